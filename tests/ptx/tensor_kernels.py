"""Kernels around statements of tcgen05: an image of tensor memory before and after."""

from __future__ import annotations

import numpy as np

from warpfrag import ptx
from warpfrag.codegen.tcgen05_code import probe_module, whole


def kernel(by_thread: str, by_warps: str = "", **options: object) -> ptx.Kernel:
    """The kernel that runs statements of one thread, or before them of all warps."""
    return ptx.load(probe_module(by_thread, by_warps, **options))["probe"]


def run(program: ptx.Kernel, shared: np.ndarray, cells: np.ndarray) -> tuple[np.ndarray, ptx.Run]:
    """Tensor memory after a kernel, and the run."""
    image = np.zeros(whole(shared.size), np.uint8)
    image[: shared.size] = shared.reshape(-1)
    out = np.zeros_like(cells)
    return out, program.launch(1, 128, [image, cells, out])
