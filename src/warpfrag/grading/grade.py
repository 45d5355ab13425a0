"""One test: make its arguments, launch, compare.

An array that a kernel must write holds random bytes before the launch. An element that holds them still was not
written; where that could be chance, the kernel runs once more on other bytes. What is expected is evaluated from the
arguments as they were before the launch.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.errors import FileError, InvalidOperand, WarpfragError, quote
from warpfrag.files import read_bytes
from warpfrag.grading.expressions import dtype_of, evaluate
from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.ptx.launch.kernel import load
from warpfrag.ptx.launch.nvcc import compile_cuda

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from warpfrag.grading.suite import Expectation, KernelTest, TestArgument
    from warpfrag.ptx.launch.run import Run

DEFAULT_TARGET = "sm_90a"  # of what is compiled here
MAX_ARRAY = 1 << 34  # bytes of a file
SEED = 20_260_101  # of the bytes that outputs hold before a launch


@frozen_dataclass
class Grade:
    """How a test went: whether it passed, and the first reason why not."""

    name: str
    passed: bool
    reason: str = ""
    exact: bool | None = None  # None where no launch came to its end
    arch: str = ""
    instructions: int = 0
    seconds: float = 0.0
    findings: tuple[str, ...] = ()
    verdict: str | None = None  # of the checks
    printed: str = ""


class LaunchArguments:
    """The arguments of a launch by name; outputs hold bytes that a kernel would hardly write by chance."""

    def __init__(self, test: KernelTest, *, invert: bool) -> None:
        """Make all of them, in order; `invert` gives outputs other bytes everywhere."""
        self.names: dict[str, Any] = {}
        self.marks: dict[str, NDArray[np.uint8]] = {}  # what outputs hold before
        self._folder, self._random, self._invert = test.folder, np.random.default_rng(SEED), invert
        self.values = [self._value(item) for item in test.args]

    def _value(self, item: TestArgument) -> object:
        if item.fields:
            return [self._value(part) for part in item.fields]
        value: Any = None
        if item.out is not None:
            value = self._output(item)
        elif not item.null:
            value = self._input(item)
        if isinstance(value, np.ndarray) and value.ndim:
            value = np.ascontiguousarray(value)
        self.names[item.name] = value
        return value

    def _output(self, item: TestArgument) -> NDArray[Any]:
        result = evaluate("zeros(shape)", {"shape": item.out}).astype(dtype_of(item.dtype))
        mark = self._random.integers(0, 256, result.nbytes, np.uint8)
        self.marks[item.name] = ~mark if self._invert else mark
        filled: NDArray[Any] = self.marks[item.name].copy().view(result.dtype).reshape(result.shape)
        return filled

    def _input(self, item: TestArgument) -> Any:  # noqa: ANN401 # an array or a number
        value: Any
        if item.file is not None:
            value = read_array(self._folder / item.file)
        else:
            value = evaluate(item.expr, self.names) if item.expr is not None else item.value
        if item.dtype is None:
            return value if isinstance(value, np.ndarray | np.generic) else np.asarray(value)[()]
        with np.errstate(all="ignore"):
            return np.asarray(value).astype(dtype_of(item.dtype))[()]


def grade(test: KernelTest, *, trust: bool) -> Grade:
    """Run a test; whatever is wrong with it or its kernel is the reason why it failed."""
    started = perf_counter()
    if test.needs_trust and not trust:
        return Grade(test.name, passed=False, reason=f"{test.needs_trust}: it is run only with --trust")
    try:
        result = _graded(test)
    except (WarpfragError, MemoryError) as error:
        reason = "there is not enough memory" if isinstance(error, MemoryError) else str(error)
        result = Grade(test.name, passed=False, reason=reason)
    return replace(result, seconds=perf_counter() - started)


def _graded(test: KernelTest) -> Grade:
    arguments = LaunchArguments(test, invert=False)
    before = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arguments.names.items()}
    inputs = {name: value for name, value in before.items() if name not in arguments.marks}
    expected = _expected(test, inputs)
    launch = _launcher(test)
    run = launch(arguments.values)
    reason = (
        _unwritten(test, arguments, launch)
        or _differences(test, arguments.names, before, expected)
        or (f"findings: {run.findings[0]}" if run.findings else "")
        or ("a GPU may give other bits: " + "; ".join(run.uncertain[:3]) if test.exact and run.uncertain else "")
    )
    return Grade(
        test.name,
        not reason,
        reason,
        run.exact,
        run.arch,
        run.counts.instructions,
        findings=tuple(str(item) for item in run.findings),
        verdict=run.verdict,
        printed=run.printed,
    )


def _expected(test: KernelTest, inputs: Mapping[str, object]) -> dict[str, tuple[Any, Expectation]]:
    """What arrays should hold, by name."""
    from warpfrag.grading.suite import Expectation

    result: dict[str, tuple[Any, Expectation]] = {}
    if test.reference is not None:
        values = _function(test, test.reference)(**inputs)
        if not isinstance(values, dict) or not values:
            msg = f"{test.reference}: expected a dict of arrays by name, got {quote(values)}"
            raise InvalidOperand(msg)
        result = {name: (value, Expectation()) for name, value in values.items()}
    for name, expectation in test.expect.items():
        if expectation.file is not None:
            result[name] = read_array(test.folder / expectation.file), expectation
        else:
            result[name] = evaluate(str(expectation.expr), inputs), expectation
    return result


def _launcher(test: KernelTest) -> Callable[[list[object]], Run]:
    """The kernel of a test, ready for arguments."""
    options: dict[str, Any] = {"checks": test.checks, "engine": test.engine}
    if ".py" in test.kernel:
        from warpfrag.triton import run

        target = test.arch or DEFAULT_TARGET
        kernel: Any = run(_function(test, test.kernel), target=target, **options)
        return lambda values: kernel[tuple(test.grid)](*values, **test.meta)
    path = test.folder / test.kernel
    if test.kernel.endswith(".cu"):
        module = compile_cuda(path, arch=test.arch or DEFAULT_TARGET, options=test.options)
    else:
        module = load(path)
    names = list(module)
    if test.entry is None and len(names) != 1:
        msg = f"{test.kernel} has {len(names)} entries ({', '.join(names) or 'none'}): expected entry"
        raise InvalidOperand(msg)
    entry = module[test.entry or names[0]]
    options |= {"shared": test.shared, "arch": test.arch, "limit": test.limit, "cooperative": test.cooperative}
    return lambda values: entry.launch(test.grid, test.block, values, **options)


def _unwritten(test: KernelTest, arguments: LaunchArguments, launch: Callable[[list[object]], Run]) -> str:
    """Which output the kernel did not write, or not whole."""
    suspects = {name: _marked(arguments, name) for name in arguments.marks}
    if not any(mask.any() for mask in suspects.values()):
        return ""
    again = LaunchArguments(test, invert=True)
    launch(again.values)
    for name, mask in suspects.items():
        left = mask & _marked(again, name)
        if left.all() and left.size:
            return f"{name} was never written"
        if left.any():
            first = tuple(int(index[0]) for index in np.nonzero(left))
            return f"{name}{list(first)} was never written, nor {int(left.sum()) - 1} other elements of {left.size}"
    return ""


def _marked(arguments: LaunchArguments, name: str) -> NDArray[np.bool]:
    """The elements of an output that hold what they held before."""
    array = arguments.names[name]
    same = array.reshape(-1).view(np.uint8) == arguments.marks[name]
    return np.asarray(same.reshape(*array.shape, array.itemsize).all(axis=-1))


def _differences(
    test: KernelTest,
    after: Mapping[str, Any],
    before: Mapping[str, Any],
    expected: Mapping[str, tuple[Any, Expectation]],
) -> str:
    """The first array that does not hold what it should."""
    outputs = {item.name for item in test.args if item.out is not None}
    for name, (value, expectation) in expected.items():
        array = after.get(name)
        if not isinstance(array, np.ndarray):
            return f"{name} is no array"
        try:
            with np.errstate(all="ignore"):
                wanted = np.broadcast_to(np.asarray(value).astype(array.dtype), array.shape)
        except ValueError:
            return f"{name} has shape {array.shape}, and shape {np.shape(value)} is expected"
        if name not in outputs and array.size and _same(wanted, before[name]).all():
            return f"{name} is expected to hold what it held before the launch: nothing is tested"
        wrong = ~_close(array, wanted, expectation)
        if wrong.any():
            at = tuple(int(index[0]) for index in np.nonzero(wrong))
            count = f"{int(wrong.sum())} of {array.size} elements differ"
            return f"{name}{list(at)} is {array[at]}, expected {wanted[at]} ({count})"
    return ""


def _same(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.bool]:
    """Which elements have the same bits."""
    code = f"u{left.itemsize}"
    return np.asarray(np.ascontiguousarray(left).view(code) == np.ascontiguousarray(right).view(code))


def _close(array: NDArray[Any], wanted: NDArray[Any], expectation: Expectation) -> NDArray[np.bool]:
    """Which elements are as expected: the same bits, or within a tolerance."""
    good = _same(array, wanted).reshape(array.shape)
    if expectation.rtol or expectation.atol:
        left, right = array.astype(np.float64), wanted.astype(np.float64)
        good |= np.isclose(left, right, expectation.rtol, expectation.atol, equal_nan=True)
    if expectation.ulps:
        distance = np.abs(_ordered(array) - _ordered(wanted)).reshape(array.shape)
        with np.errstate(all="ignore"):
            numbers = np.isfinite(array.astype(np.float64)) & np.isfinite(wanted.astype(np.float64))
        good |= numbers & (distance <= expectation.ulps)
    return good


def _ordered(array: NDArray[Any]) -> NDArray[np.int64]:
    """Integers in the order of the values, neighbours one apart."""
    codes = np.ascontiguousarray(array).view(f"i{array.itemsize}").astype(np.int64)
    lowest = -(1 << (8 * array.itemsize - 1))
    return np.where(codes < 0, lowest - codes, codes) if array.dtype.kind not in "iub" else codes


def _function(test: KernelTest, name: str) -> Any:  # noqa: ANN401 # a function or a kernel of the user's
    """A function of a Python file, which runs it: only of tests that are trusted."""
    file, _, attribute = name.partition(":")
    path = test.folder / file
    if not path.is_file() or not attribute:
        msg = f"expected FILE.py:FUNCTION, got {quote(name)}, and there is no such file or function"
        raise FileError(msg)
    module_name = f"warpfrag_graded_{path.stem}"
    if module_name not in sys.modules or getattr(sys.modules[module_name], "__file__", None) != str(path):
        spec = importlib.util.spec_from_file_location(module_name, path)
        if spec is None or spec.loader is None:
            msg = f"{quote(file)} cannot be read as Python"
            raise FileError(msg)
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        spec.loader.exec_module(module)
    if not hasattr(sys.modules[module_name], attribute):
        msg = f"{file} has no {quote(attribute)}"
        raise FileError(msg)
    return getattr(sys.modules[module_name], attribute)


def read_array(path: Path) -> NDArray[Any]:
    """The array of a .npy file; nothing is unpickled."""
    import io

    try:
        array = np.load(io.BytesIO(read_bytes(path, MAX_ARRAY)), allow_pickle=False)
    except (ValueError, EOFError) as error:
        msg = f"{quote(path.name)} cannot be read as an array: {error}"
        raise FileError(msg) from None
    if not isinstance(array, np.ndarray):
        msg = f"{quote(path.name)} holds no single array"
        raise FileError(msg)
    return array
