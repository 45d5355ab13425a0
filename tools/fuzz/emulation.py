"""Run random kernels on the PTX machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tools.fuzz.inputs import random_bytes
from tools.fuzz.kernel import BLOB_BYTES, IN_BYTES, TRACED
from warpfrag.machine.launch.options import Engine, LaunchOptions
from warpfrag.ptx.ptx_module import load

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tools.fuzz.kernel import Kernel
    from warpfrag.machine.launch.run import Run

ARCH = "sm_90"
LIMIT = 2_000_000  # the maximum number of warp instructions in a launch
WITH_NANS = 5  # every fifth kernel has f64 NaNs in its input


class Data(NamedTuple):
    """The arguments of a kernel: its input, its initial output, and its struct."""

    given: NDArray[np.uint8]
    before: NDArray[np.uint8]
    blob: bytes


def data_of(kernel: Kernel) -> Data:
    """Return the data of a kernel, derived from its seed."""
    return make_data(kernel.seed, kernel.threads * IN_BYTES, kernel.out_bytes, has_nans=has_nans(kernel.seed))


def has_nans(seed: int) -> bool:
    """Return True if the input of a seed's kernel contains f64 NaNs."""
    return seed % WITH_NANS == 0


def make_data(seed: int, in_bytes: int, out_bytes: int, *, has_nans: bool) -> Data:
    """Return the data for a seed."""
    sizes = (in_bytes, out_bytes, BLOB_BYTES)
    given, before, blob = (random_bytes(seed + (at << 32), size, has_nans=has_nans) for at, size in enumerate(sizes))
    return Data(given, before, blob.tobytes())


def emulate(
    text: str, kernel: Kernel, data: Data, engine: Engine = "reference", *, traced: bool = False
) -> tuple[list[NDArray[np.uint8]], Run]:
    """Return the arrays after an emulated run, and the run."""
    arrays = [data.given.copy(), data.before.copy()]
    arguments = [*arrays, data.blob]
    if traced:
        arrays.append(blank_trace(kernel))
        arguments.append(arrays[-1])
    return arrays, launch(
        text, kernel.grid, kernel.block, arguments, engine=engine, options=LaunchOptions(limit=LIMIT, threads=1)
    )


def launch(text: str, grid: int, block: int, arguments: list[Any], **options: Any) -> Run:  # noqa: ANN401 (those of launch)
    """Launch the kernel of a module."""
    return load(text)["k"].launch(grid, block, arguments, arch=ARCH, **options)


def blank_trace(kernel: Kernel) -> NDArray[np.uint8]:
    """Return zeroed memory for the trace of every thread."""
    return np.zeros(kernel.threads * (16 + 16 * TRACED), np.uint8)
