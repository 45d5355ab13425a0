"""Sessions: contexts in which every launch of a Triton kernel runs on the PTX machine and is recorded."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources, PTXASError
from triton.runtime.jit import JITFunction, KernelInterface

from warpfrag.errors import InvalidOperand, PtxError, quote
from warpfrag.isa.targets import gpus
from warpfrag.machine.debugger.debugger import Debugger
from warpfrag.machine.interpreter.kernel_findings import Check
from warpfrag.machine.launch.options import MEASURED, Engine, LaunchOptions, checks_of, chosen_level
from warpfrag.machine.launch.profile import Profile
from warpfrag.machine.launch.run import Run
from warpfrag.triton import triton_driver
from warpfrag.triton.unwritten_storages import UNWRITTEN

DEFAULT_ARCH = "sm_90a"
MEASURED_ARCHS = (MEASURED, f"{MEASURED}a")
KEPT_BYTES = 1 << 28  # the maximum total size of the copies that a session makes of the memory before its launches
UNFIT = (OutOfResources, CompileTimeAssertionFailure, PTXASError)  # errors for which Triton skips a configuration


@dataclass(frozen=True, repr=False, eq=False)
class Launch:
    """A finished launch of a Triton kernel, with its arguments by their Python names."""

    kernel: str
    grid: tuple[int, int, int]
    block: int
    shared: int
    """The size of dynamic shared memory in bytes."""
    arguments: Mapping[str, object]
    ptx: str
    run: Run
    _loaded: triton_driver.LoadedKernel
    _entry: triton_driver.EntryArguments
    _before: dict[int, NDArray[np.uint8]]
    _config: tuple[tuple[int, int, int], LaunchOptions]

    def __repr__(self) -> str:
        """Format the kernel, its launch extents and the summary of its run."""
        grid = "x".join(map(str, self.grid))
        return f"<Launch of {self.kernel}: grid {grid}, block {self.block}, shared {self.shared} bytes; {self.run!r}>"

    def profile(self) -> Profile:
        """Return counts of instructions, bytes and tensor-core operations by line."""
        return self.run.profile

    def debug(self) -> Debugger:
        """Return a debugger for the same launch, on copies of the arguments as they were before it.

        `break_at(source="softmax.py:12")` stops at a line of the kernel; `register("%r1")` reads a PTX register;
        `watch("out", (3, 3))` stops when an element of an argument changes.
        """
        if self._entry.storages and not self._before:
            raise InvalidOperand(
                f"{self.kernel}: the arguments before this launch were not kept, because the session's launches use "
                f"more than {KEPT_BYTES >> 20} MiB; launch the kernel in a session of its own"
            )
        grid, options = self._config
        copies = {address: memory.copy() for address, memory in self._before.items()}
        values, _owners = self._entry.values(copies)
        kernel = self._loaded.kernel
        debugger = kernel.debug(grid, self.block, values, shared=self.shared, arch=self.run.arch, options=options)
        debugger.arguments = {
            name: (value, triton_driver.array_in(copies, value))
            for name, value in self.arguments.items()
            if hasattr(triton_driver.as_tensor(value), "data_ptr")
        }
        return debugger


class Session:
    """A context in which Triton compiles kernels for `arch`, launches run on the CPU, and `launches` records them.

    An autotuned kernel uses the first configuration that remains after pruning and fits the GPU. `config` overrides
    this: its index in the decorator, a `triton.Config`, or some of its values ({"BLOCK_M": 64, "num_warps": 8}),
    which select the first configuration that has them all; {kernel: config} chooses per kernel. `checks`, `engine`,
    `seed` and `level` are those of `ptx.Kernel.launch`; machine code is Triton's own cubin. `seconds` limits the
    time of each launch. With `judge=False`, which is faster, the exactness of launches is not judged. If PyTorch is
    loaded, tensors for device "cuda" are created in host memory and report "cuda", so that tests written for a GPU
    need no change; `redirect=False` turns that off. `inductor` makes torch.compile generate Triton kernels, which also
    run in the session. Sessions may be nested; the innermost one runs the kernels.
    """

    def __init__(
        self,
        arch: str = DEFAULT_ARCH,
        *,
        config: object = None,
        checks: Sequence[Check] | Check | Literal["all"] = (),
        engine: Engine = "auto",
        seed: int | None = None,
        level: Literal["auto", "sass", "ptx"] = "auto",
        redirect: bool = True,
        inductor: bool = False,
        seconds: float | None = None,
        judge: bool = True,
    ) -> None:
        """Create a session and check the architecture; nothing changes before the context is entered."""
        arch = gpus().get(arch, arch)
        self.arch, self.config, self.checks, self.engine, self.seed = arch, config, checks, engine, seed
        self.level, self.judge = level, judge
        chosen = chosen_level(level)
        self.executes_cubin = chosen == "sass" or (chosen == "auto" and arch in MEASURED_ARCHS)
        self.tracks_writes = "uninitialised" in checks_of(checks) and not inductor
        LaunchOptions(seconds=seconds)  # raises an error for an invalid limit
        self.launches: list[Launch] = []
        self.failed = 0  # launches that ended with an error
        self.is_launching = False  # True while Triton inspects the arguments of a launch
        self.redirect = redirect and "torch" in sys.modules
        self._inductor, self.seconds = inductor, seconds
        self._kept = 0  # the total size of the copies that have been made, in bytes
        self._driver = triton_driver.MachineDriver(self)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Replace Triton's driver."""
        with ExitStack() as stack:
            triton_driver.set_until(stack, driver, "_active", self._driver)
            if not self.executes_cubin:
                triton_driver.keep_ptx(stack)
            triton_driver.keep_code(stack, self._driver)
            triton_driver.set_until(stack, JITFunction, "run", self._with_arrays(JITFunction.run))
            triton_driver.set_until(stack, Autotuner, "run", self._with_single_config(Autotuner.run))
            if self.redirect:
                from warpfrag.triton.cuda_tensors import tensors_on_host

                stack.enter_context(tensors_on_host(self._driver, inductor=self._inductor))
            if self._inductor:
                from warpfrag.triton.cuda_tensors import inductor_kernels

                stack.enter_context(inductor_kernels(self._driver))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Restore Triton's driver."""
        self._stack.close()

    def __repr__(self) -> str:
        """Return the architecture and the number of launches."""
        count = len(self.launches)
        return f"<Triton on {self.arch}: {count} launch{'es' * (count != 1)}>"

    def launch(
        self,
        launcher: triton_driver.EntryLauncher,
        loaded: triton_driver.LoadedKernel,
        grid: tuple[int, int, int],
        entry: triton_driver.EntryArguments,
        arguments: dict[str, object],
    ) -> None:
        """Run a kernel on its arguments and record it."""
        if self.redirect and not self._inductor:
            from warpfrag.triton.cuda_tensors import check_pointers

            check_pointers(arguments)
        metadata = launcher.metadata
        block = metadata.num_warps * metadata.warp_size
        reserved = loaded.kernel.program.directives.get("reqntid")
        if reserved:  # the block that Triton compiled for, which may have additional warps
            block = reserved[0]
        size = sum(memory.nbytes for memory in entry.storages.values())
        is_kept = self._kept + size <= KEPT_BYTES
        before = {address: memory.copy() for address, memory in entry.storages.items()} if is_kept else {}
        self._kept += size if is_kept else 0
        blocks = (grid[0] * metadata.num_ctas, *grid[1:])
        cooperative = getattr(metadata, "launch_cooperative_grid", False)
        options = LaunchOptions(cooperative=cooperative, seconds=self.seconds, judge=self.judge)
        taken = {at: UNWRITTEN.take(at, len(data), entry.tensors[at]) for at, data in entry.storages.items()}
        tracked = {at: found for at, found in taken.items() if found} if self.tracks_writes else {}
        values, _owners = entry.values(unwritten=tracked)
        named = partial(triton_driver.name_arguments, names=entry.names)
        try:
            run = loaded.kernel.launch(
                blocks, block, values, shared=metadata.shared, arch=self.arch, checks=self.checks, engine=self.engine,
                seed=self.seed, level=self.level, options=options,
            )  # fmt: skip
        except PtxError as error:
            self.failed += 1
            lines = [] if error.source else loaded.ptx.splitlines()[error.line - 1 : error.line]
            shown = "".join(f"\n    the PTX: {line.strip()}" for line in lines)
            raise PtxError(error.line, named(error.reason) + shown, error.source) from None
        findings = [replace(found, text=named(found.text), array=named(found.array)) for found in run.findings]
        left = run.unwritten
        UNWRITTEN.update({at: found._replace(marks=left[at]) for at, found in tracked.items() if at in left})
        run = replace(run, findings=findings, unwritten={})
        launch = Launch(
            loaded.kernel.name, grid, block, metadata.shared, arguments, loaded.ptx, run, loaded, entry, before,
            (blocks, options),
        )  # fmt: skip
        self.launches.append(launch)
        sys.stdout.write(run.printed)  # the output of tl.device_print

    def _with_arrays(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a version of `JITFunction.run` that also accepts NumPy arrays."""

        def run(function: object, *args: object, **kwargs: object) -> object:
            __tracebackhide__ = True
            taken = {name: triton_driver.as_tensor(value) for name, value in kwargs.items()}
            self.is_launching = True
            try:
                return original(function, *map(triton_driver.as_tensor, args), **taken)
            finally:
                self.is_launching = False

        return run

    def _with_single_config(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a version of `Autotuner.run` that uses one configuration, without timing it or changing the cache."""

        def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # Triton's own signature
            __tracebackhide__ = True
            before = tuner.configs, tuner.cache
            tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
            chosen = _choose(tuner, tuner.prune_configs(kwargs), self.config)
            try:
                for number, config in enumerate(chosen, 1):
                    tuner.configs, tuner.cache = [config], {}
                    try:
                        return original(tuner, *args, **kwargs)
                    except UNFIT:
                        if number == len(chosen):
                            raise
            finally:
                tuner.configs, tuner.cache = before

        return run


emulate = Session  # the public name: `with warpfrag.triton.emulate():`


class Launcher:
    """A kernel to launch: `launcher[grid](*args, **constexprs)` runs it and returns the Run."""

    def __init__(self, kernel: Any, session: Callable[[], Session]) -> None:  # noqa: ANN401 # a kernel of Triton
        """Store the decorated kernel."""
        self.kernel, self._session = kernel, session

    def __getitem__(self, grid: object) -> Callable[..., Run | None]:
        """Return a function that launches on a grid: one to three numbers, or a function of the constexprs."""
        grid = (grid,) if isinstance(grid, int) else grid

        def launch(*args: object, **kwargs: object) -> Run | None:
            with self._session() as session:
                self.kernel[grid](*args, **kwargs)
            return session.launches[-1].run if session.launches else None

        return launch

    def __repr__(self) -> str:
        """Return the kernel's name."""
        return f"<Launcher of {self.kernel!r}>"


class SessionOptions(TypedDict, total=False):
    """The options of `run`, which it passes to the session."""

    arch: str
    config: object
    checks: Sequence[Check] | Check | Literal["all"]
    engine: Engine
    seed: int | None
    level: Literal["auto", "sass", "ptx"]
    seconds: float | None
    judge: bool


def run(kernel: object, **options: Unpack[SessionOptions]) -> Launcher:
    """Launch a kernel with Triton's syntax: `run(kernel)[grid](x, y, n, BLOCK=128)` returns the `ptx.Run`.

    The kernel is decorated with `@triton.jit`, and perhaps `@triton.heuristics` and `@triton.autotune`. Arrays are
    NumPy arrays or tensors in host memory. Options are those of `emulate`. An empty grid returns None.
    """
    if not isinstance(kernel, KernelInterface) or type(kernel).__name__ == "InterpretedFunction":
        hint = "; unset TRITON_INTERPRET" if type(kernel).__name__ == "InterpretedFunction" else ""
        raise InvalidOperand(f"expected a kernel decorated with @triton.jit, got {quote(kernel)}{hint}")
    Session(**options, redirect=False)  # raises an error for an invalid architecture before a grid is given
    return Launcher(kernel, lambda: Session(**options, redirect=False))


def _choose(tuner: Any, pruned: Sequence[Any], wanted: object) -> list[Any]:  # noqa: ANN401 # an Autotuner
    """Return the configurations to try, in order: the requested one, or those that remain after pruning."""
    if isinstance(wanted, dict) and any(isinstance(key, KernelInterface) for key in wanted):
        function = _function(tuner)
        wanted = next((value for key, value in wanted.items() if _function(key) is function), None)
    configs = tuner.configs
    if wanted is None:
        return list(pruned)
    if isinstance(wanted, dict):
        fitting = [config for config in configs if wanted.items() <= config.all_kwargs().items()]
        if fitting:
            return fitting[:1]
    elif isinstance(wanted, int) and not isinstance(wanted, bool) and 0 <= wanted < len(configs):
        return [configs[wanted]]
    elif hasattr(wanted, "all_kwargs"):
        return [wanted]
    listed = "; ".join(f"{number}: {config}" for number, config in enumerate(configs))
    raise InvalidOperand(f"config: expected one of the kernel's configurations ({listed}), got {quote(wanted)}")


def _function(kernel: Any) -> object:  # noqa: ANN401 # a kernel, decorated or not
    """Return the Python function of a kernel."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel
