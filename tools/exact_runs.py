"""Run random kernels as machine code with different schedules and unwritten values, and compare their memory.

    python -m tools.exact_runs 0 20000 [--runs 2] [--size 200] [--workers 2] [--seconds 500]

A kernel is compared if its run is exact, apart from spellings that the table of compared spellings lacks. No
unspecified order, and no value that was never written, may then change a byte. Kernels whose bytes change are printed,
and the exit status is 1.
"""

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from math import inf
from multiprocessing import Pool
from typing import Any
from unittest import mock

import numpy as np

from tools.arguments import make_parser
from tools.fuzz.emulation import LIMIT, data_of
from tools.fuzz.generate import SIZE, generate
from tools.fuzz.kernel import Kernel
from tools.sass.captures import BATCH, arch_of, assemble
from warpfrag.errors import SassError, WarpfragError
from warpfrag.machine.interpreter.device_memory import DeviceMemory
from warpfrag.machine.interpreter.warp_state import LaunchPart, WarpState
from warpfrag.machine.launch.exploration import Exploration
from warpfrag.machine.launch.kernel import Kernel as MachineKernel
from warpfrag.machine.launch.options import LaunchOptions
from warpfrag.sass.disassembler import disassemble
from warpfrag.sass.sass_module import SassModule

COMPARED = "compared with a GPU"
JUDGE_SECONDS = 60.0


@contextmanager
def unwritten_values(seed: int) -> Iterator[None]:
    """Give registers, shared and local memory random values before anything is written."""
    start, begin, rng = DeviceMemory.start_blocks, WarpState.__init__, np.random.default_rng(seed)

    def start_blocks(memory: DeviceMemory, *arguments: Any) -> None:  # noqa: ANN401 (as the method it replaces)
        start(memory, *arguments)
        for data in (memory.shared, memory.local):
            data[...] = rng.integers(0, 256, data.shape, np.uint8)

    def initialise(state: WarpState, part: LaunchPart) -> None:
        begin(state, part)
        for index in range(len(part.program.registers)):
            codes = state.registers[index]
            if index != part.program.frame.index:
                found = rng.integers(0, 256, (*codes.shape, codes.dtype.itemsize), np.uint8)
                is_flag = codes.dtype == np.bool_
                state.registers[index] = found[..., 0] % 2 == 1 if is_flag else found.view(codes.dtype)[..., 0]

    with (
        mock.patch.object(DeviceMemory, "start_blocks", start_blocks),
        mock.patch.object(WarpState, "__init__", initialise),
    ):
        yield


def outcome(seed: int, runs: int, size: int) -> str:
    """Return the outcome of one kernel."""
    return next(outcomes([seed], runs, size))


def outcomes(seeds: Iterable[int], runs: int, size: int) -> Iterator[str]:
    """Yield "same", "differs", "open" for a kernel whose order matters, or "error", for each seed.

    One nvdisasm process decodes the kernels of a batch, because its start takes as long as a run.
    """
    waiting = iter(seeds)
    while batch := [generate(seed, size) for seed in islice(waiting, BATCH)]:
        modules = [assembled(kernel) for kernel in batch]
        by_arch = defaultdict[str, list[bytes]](list)
        for module in filter(None, modules):
            by_arch[module.cubin.arch].append(module.cubin["k"].code.relocated(module.address_of))
        for arch, codes in by_arch.items():
            with suppress(SassError):
                disassemble(codes, arch)
        for kernel, code in zip(batch, modules, strict=True):
            yield "error" if code is None else compared(kernel, code, runs)


def assembled(kernel: Kernel) -> SassModule | None:
    """Return the machine code of a kernel, or None if ptxas rejects it."""
    try:
        return assemble(kernel.text(), arch_of(kernel.text()))
    except RuntimeError:
        return None


def compared(kernel: Kernel, module: SassModule, runs: int) -> str:
    """Run a kernel, then run it with other schedules, each with other values in unwritten memory and registers."""
    data, explored = data_of(kernel), MachineKernel._explored  # noqa: SLF001 (it is replaced)

    def explored_with_other_values(*arguments: Any) -> Exploration:  # noqa: ANN401 (as the method it replaces)
        with unwritten_values(kernel.seed):
            return explored(*arguments)

    arrays = [data.given.copy(), data.before.copy(), data.blob]
    options = LaunchOptions(limit=LIMIT, threads=1, explore=runs, judge=JUDGE_SECONDS)
    try:
        with mock.patch.object(MachineKernel, "_explored", explored_with_other_values):
            run = module["k"].launch(kernel.grid, kernel.block, arrays, options=options)
    except (WarpfragError, RuntimeError):
        return "error"
    if any(COMPARED not in reason and not reason.startswith("explore") for reason in run.inexact):
        return "open"
    return "same" if run.exploration is not None and run.exploration.agrees else "differs"


def batch_outcomes(seeds: Sequence[int], runs: int, size: int) -> list[tuple[int, str]]:
    """Return the outcomes of the kernels of one batch, in a worker process."""
    return list(zip(seeds, outcomes(seeds, runs, size), strict=True))


def main(words: Sequence[str] | None = None) -> int:
    """Compare the kernels of the given seeds, and print the counts."""
    parser = make_parser("exact_runs", __doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--runs", type=int, default=2, help="number of other schedules and unwritten values per kernel")
    parser.add_argument("--size", type=int, default=SIZE, help="minimum number of statements in a kernel")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=inf, help="stop after this time")
    arguments = parser.parse_args(words)
    counts: Counter[str] = Counter()
    until = time.monotonic() + arguments.seconds
    seeds = range(arguments.first, arguments.last)
    batches = [seeds[start : start + BATCH] for start in range(0, len(seeds), BATCH)]
    run = partial(batch_outcomes, runs=arguments.runs, size=arguments.size)
    with Pool(arguments.workers) as pool:  # leaving it ends the workers
        for found in pool.imap_unordered(run, batches):
            counts.update(outcome for _, outcome in found)
            for seed, outcome in found:
                if outcome == "differs":
                    print(f"seed {seed}: memory differs", flush=True)
            if time.monotonic() > until:
                break
    print(", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    return int(counts["differs"] > 0)


if __name__ == "__main__":
    sys.exit(main())
