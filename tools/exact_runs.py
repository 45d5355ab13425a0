"""Run random kernels as machine code under other schedules and other unwritten values, and compare memory.

    python -m tools.exact_runs 0 20000 [--runs 2] [--size 200]

A kernel is compared if nothing but the table of compared spellings keeps its run from being exact: then no order that
the hardware leaves open, and no value that was never written, may change a byte. Kernels whose bytes change are
printed, and the exit status is 1.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from tools.arguments import make_parser
from tools.fuzz.emulation import LIMIT, data_of
from tools.fuzz.generate import SIZE, generate
from tools.sass.captures import arch_of, assemble
from warpfrag.errors import WarpfragError
from warpfrag.machine.interpreter.device_memory import DeviceMemory
from warpfrag.machine.interpreter.warp_state import LaunchPart, WarpState
from warpfrag.machine.launch.options import LaunchOptions

COMPARED = "compared with a GPU"


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
    """Return "same", "differs", "open" for a kernel whose order matters, or "error"."""
    kernel = generate(seed, size)
    text, data = kernel.text(), data_of(kernel)

    def launch(schedule: int | None, explore: int) -> tuple[bytes, Any]:
        arrays = [data.given.copy(), data.before.copy()]
        options = LaunchOptions(limit=LIMIT, threads=1, explore=explore, judge=schedule is None)
        entry = assemble(text, arch_of(text))["k"]
        run = entry.launch(kernel.grid, kernel.block, [*arrays, data.blob], seed=schedule, options=options)
        return b"".join(array.tobytes() for array in arrays), run

    try:
        first, run = launch(None, runs)
        if any(COMPARED not in reason and not reason.startswith("explore") for reason in run.inexact):
            return "open"
        is_same = run.exploration is None or run.exploration.agrees
        for number in range(runs):
            with unwritten_values(seed + number):
                is_same &= launch(seed + number, 0)[0] == first
    except (WarpfragError, RuntimeError):
        return "error"
    return "same" if is_same else "differs"


def main(words: Sequence[str] | None = None) -> int:
    """Compare the kernels of some seeds."""
    parser = make_parser("exact_runs", __doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--runs", type=int, default=2, help="other schedules, and other unwritten values, per kernel")
    parser.add_argument("--size", type=int, default=SIZE, help="statements of a kernel, at least")
    arguments = parser.parse_args(words)
    counts: Counter[str] = Counter()
    for seed in range(arguments.first, arguments.last):
        found = outcome(seed, arguments.runs, arguments.size)
        counts[found] += 1
        if found == "differs":
            print(f"seed {seed}: memory differs", flush=True)
    print(", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    return int(counts["differs"] > 0)


if __name__ == "__main__":
    sys.exit(main())
