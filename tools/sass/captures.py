"""Read captured launches: the cubin, the arguments, and the arrays as the GPU left them."""

import json
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import warpfrag as wf
from tools.fuzz import record
from warpfrag.cuda_tools import find_tool
from warpfrag.errors import SassError
from warpfrag.machine.launch.kernel import Kernel
from warpfrag.machine.launch.launch_arguments import GlobalMemory, RawArguments
from warpfrag.machine.launch.options import Engine, LaunchOptions
from warpfrag.sass.cubin import Cubin
from warpfrag.sass.disassembler import disassemble
from warpfrag.sass.sass_module import SassModule

LIMIT = 20_000_000
"""The number of warp instructions after which a launch counts as endless."""
BATCH = 32
"""The number of kernels that one nvdisasm process decodes."""
UNITS = 1 << 21
"""The size and alignment of the allocator's segments around recorded blocks."""


class Launch(NamedTuple):
    """A captured launch; `args` has the arguments of `Kernel.launch` by name: args, or params and memory."""

    kernel: Kernel
    grid: Any
    block: Any
    args: Any
    shared: int


Runner = Callable[[Launch, LaunchOptions], object]
RunCase = Callable[[Runner], list[tuple[str, bytes, bytes]]]
"""A function that runs a case and returns (name, computed bytes, the GPU's bytes) for each of its arrays."""


@dataclass(frozen=True)
class Case:
    """A captured launch, or several on the same memory.

    With `is_by_spelling`, each result belongs to one spelling, has its name, and does not depend on the others.
    """

    name: str
    run: RunCase
    is_by_spelling: bool = False


@lru_cache(2 * BATCH)
def assemble(text: str, arch: str, level: str = "-O3") -> SassModule:
    """Assemble a PTX module with the installed ptxas."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "module.ptx", Path(folder) / "module.cubin"
        source.write_text(text)
        command = [str(find_tool("ptxas").path), f"-arch={arch}", level, str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise RuntimeError(f"ptxas: {done.stderr[:400]}")
        return SassModule(Cubin(target.read_bytes()))


def arch_of(text: str) -> str:
    """Return the architecture that an H200 compiles a module for."""
    return "sm_90a" if ".target sm_90a" in text else "sm_90"


def read_cases(folder: Path, part: int = 0, parts: int = 1) -> Iterator[Case]:
    """Yield every `parts`-th case of a folder: random kernels, operations.json, cases.json, or NAME.ptx with data."""
    if any(folder.glob("*.jsonl.xz")):
        records = record.read(sorted(folder.glob("*.jsonl.xz")))
        yield from random_kernels(decoded_ahead(islice(records, part, None, parts)))
        return
    yield from islice(other_cases(folder), part, None, parts)


def other_cases(folder: Path) -> Iterator[Case]:
    """Yield the cases of a folder without random kernels."""
    if (folder / "kernels.json").exists() or folder.name == "wgmma":
        from tools.sass.suite_launches import suite_cases, verified_wgmma

        yield from verified_wgmma() if folder.name == "wgmma" else suite_cases()
    elif (folder / "operations.json").exists():
        yield from operations(folder)
    elif (folder / "cases.json").exists():
        yield from kernels(folder)
    else:
        yield from reproducers(folder)


def in_engine(engine: Engine, reasons: list[str], *, judge: bool = True) -> Runner:
    """Return a runner that launches kernels in an engine, and collects the reasons why a launch is not exact."""

    def run(launch: Launch, options: LaunchOptions) -> None:
        kernel, grid, block, args, shared = launch
        options = replace(options, judge=judge)
        launched = kernel.launch(grid, block, **args, shared=shared, engine=engine, options=options)
        reasons.extend(launched.inexact)

    return run


def launch(kernel: Kernel, facts: dict[str, Any], args: list[Any], runner: Runner) -> None:
    """Run a kernel, with a limit that ends an endless loop."""
    given = Launch(kernel, facts["grid"], facts["block"], {"args": args}, facts["shared"])
    runner(given, LaunchOptions(limit=LIMIT))


def random_kernels(records: Iterator[record.Recorded]) -> Iterator[Case]:
    """Yield the random kernels of `tools.fuzz record`; digests of the arrays replace their bytes."""
    for recorded in records:

        def run(runner: Runner, recorded: record.Recorded = recorded) -> list[Any]:
            data = recorded.data()
            arrays = [data.given.copy(), data.before.copy()]
            facts = {"grid": recorded.grid, "block": recorded.block, "shared": 0}
            launch(assemble(recorded.text, recorded.arch)["k"], facts, [*arrays, data.blob], runner)
            if recorded.output:
                return [("output", arrays[1].tobytes(), recorded.output_bytes)]
            return [("digest", record.digest(arrays).encode(), recorded.left[0].encode())]

        yield Case(str(recorded.seed), run)


def decoded_ahead(records: Iterator[record.Recorded]) -> Iterator[record.Recorded]:
    """Yield the records after decoding several kernels in one nvdisasm process, which is slow to start."""
    while batch := list(islice(records, BATCH)):
        by_arch: dict[str, list[bytes]] = {}
        for recorded in batch:
            module = assemble(recorded.text, recorded.arch)
            by_arch.setdefault(module.cubin["k"].arch, []).append(module.cubin["k"].code.relocated(module.address_of))
        for arch, codes in by_arch.items():
            with suppress(SassError):
                disassemble(codes, arch)
        yield from batch


def reproducers(folder: Path) -> Iterator[Case]:
    """Yield kernels with one input and one output buffer; `output_reference` is the GPU's output."""
    for path in sorted(folder.glob("*.npz")):
        text, facts = path.with_suffix(".ptx").read_text(), json.loads(path.with_suffix(".json").read_text())

        def run(runner: Runner, path: Path = path, text: str = text, facts: dict[str, Any] = facts) -> list[Any]:
            data = np.load(path)
            given, out = data["input"].copy(), data["output_before"].copy()
            kernel = assemble(text, arch_of(text))[facts["entry"]]
            launch(kernel, facts, [given, out], runner)
            return [("output", out.tobytes(), data["output_reference"].tobytes())]

        yield Case(path.stem, run)


def kernels(folder: Path) -> Iterator[Case]:
    """Yield kernels with any arguments; memory.npz has the arrays before and after the launch."""
    for name, facts in json.loads((folder / "cases.json").read_text()).items():

        def run(runner: Runner, name: str = name, facts: dict[str, Any] = facts) -> list[Any]:
            memory = np.load(folder / "memory.npz")
            arrays: dict[int, Any] = {}
            args = [argument(memory, name, number, given, arrays) for number, given in enumerate(facts["args"])]
            text = (folder / facts.get("file", f"{name}.ptx")).read_text()
            kernel = assemble(text, arch_of(text))[facts["entry"]]
            launch(kernel, facts, args, runner)
            return [
                (f"argument {number}", arrays[number].tobytes(), memory[f"{name}/{key}"].tobytes())
                for number, given in enumerate(facts["args"])
                if given and given.get("changed")
                for key in [given["array"].replace("in", "out")]
            ]

        yield Case(name, run)


def argument(memory: Any, name: str, number: int, given: dict[str, Any], arrays: dict[int, Any]) -> object:  # noqa: ANN401
    """Return one argument; arrays are copied."""
    if "scalar" in given:
        value = np.dtype(given["dtype"]).type(given["scalar"])
        return None if given["dtype"] == "uint64" and not given["scalar"] else value
    array = arrays[number] = memory[f"{name}/{given['array']}"].copy()
    if "tensormap" not in given:
        return array
    fields = given["tensormap"]
    strides = [*fields["strides"][::-1], np.dtype(fields["dtype"]).itemsize]
    options = {"dims": fields["dims"][::-1], "strides": strides, "fill": fields["fill"], "dtype": fields["dtype"]}
    return wf.ptx.TensorMap(array, fields["box"][::-1], fields["swizzle"], **options)


# --- operations of a framework: launches with raw parameters on memory at fixed addresses


def operations(folder: Path) -> Iterator[Case]:
    """Yield operations with several launches; cubins are found by kernel name."""
    target = Path(tempfile.gettempdir()) / "captured_operations"
    for name in ("memory", "modules"):
        if not (target / name).exists():
            with tarfile.open(folder / f"{name}.tar.xz") as archive:
                archive.extractall(target / name, filter="data")
    found = module_index(target / "modules")
    for name, facts in json.loads((folder / "operations.json").read_text()).items():

        def run(runner: Runner, facts: dict[str, Any] = facts) -> list[Any]:
            return run_operation(facts, target, found, runner)

        yield Case(name, run)


def module_index(folder: Path) -> dict[str, list[Path]]:
    """Return the cubins that have each kernel."""
    found: dict[str, list[Path]] = {}
    for path in sorted(item for item in folder.rglob("*") if item.is_file()):
        for kernel in Cubin(path.read_bytes()).kernels:
            found.setdefault(kernel, []).append(path)
    return found


@lru_cache(32)
def module_at(path: Path) -> SassModule:
    """Return the module of a cubin."""
    return SassModule(Cubin(path.read_bytes()))


def run_operation(facts: dict[str, Any], folder: Path, found: dict[str, list[Path]], runner: Runner) -> list[Any]:
    """Run the launches of an operation, and return its output arrays."""
    blobs = {path.name: path for path in (folder / "memory").rglob("*") if path.is_file()}
    blocks = {int(address, 16): blobs[blob].read_bytes() for address, blob in facts["before"].items()}
    memory: dict[int, Any] = {}
    for address, data in blocks.items():
        first, last = address // UNITS, (address + len(data) - 1) // UNITS
        for unit in range(first, last + 1):
            memory.setdefault(unit, np.zeros(UNITS, np.uint8))
    starts = [unit for unit in sorted(memory) if unit - 1 not in memory]
    arrays = {}
    for start in starts:
        end = start
        while end in memory:
            end += 1
        arrays[start * UNITS] = np.zeros((end - start) * UNITS, np.uint8)
    for address, data in blocks.items():
        start = max(item for item in arrays if item <= address)
        arrays[start][address - start : address - start + len(data)] = np.frombuffer(data, np.uint8)
    for call in facts["launches"]:
        if "params" not in call:
            raise RuntimeError(f"{call.get('api', call)} is not a launch")
        launch_raw(call, found, arrays, runner)
    after = {int(address, 16): blobs[blob].read_bytes() for address, blob in facts["after"].items()}
    results = []
    for number, (address, shape, strides, dtype) in enumerate(facts["outputs"]):
        size = extent_of(shape, strides, dtype)
        start = max(item for item in arrays if item <= address)
        block = max(item for item in after if item <= address)
        computed = arrays[start][address - start : address - start + size].tobytes()
        results.append((f"output {number}", computed, after[block][address - block : address - block + size]))
    return results


def extent_of(shape: list[int], strides: list[int], dtype: str) -> int:
    """Return the number of bytes from the first to the last element of an array."""
    name = dtype.removeprefix("torch.")
    size = {"bfloat16": 2, "half": 2, "float16": 2, "bool": 1, "float": 4, "long": 8, "double": 8}.get(name, 0)
    size = size or (1 if name.startswith("float8") else np.dtype(name).itemsize)
    if 0 in shape:
        return 0
    return (sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)) + 1) * size


def launch_raw(facts: dict[str, Any], found: dict[str, list[Path]], arrays: dict[int, Any], runner: Runner) -> None:
    """Run one launch with its parameter bytes."""
    kernel = module_at(found[facts["name"]][0])[facts["name"]]
    params = bytearray(kernel.program.parameter_bytes)
    for offset, size, code in facts["params"]:
        params[offset : offset + size] = bytes.fromhex(code)
    cluster = facts.get("cluster")
    options = LaunchOptions(cluster=tuple(cluster) if cluster else None, limit=LIMIT)
    raw: RawArguments = {"params": bytes(params), "memory": GlobalMemory(arrays)}
    runner(Launch(kernel, facts["grid"], facts["block"], raw, facts["shared"]), options)
