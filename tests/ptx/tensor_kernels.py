"""Kernels around statements of tcgen05: an image of tensor memory before and after."""

import numpy as np

from warpfrag import ptx
from warpfrag.codegen.ptx_builder import module_header
from warpfrag.codegen.tcgen05_code import tensor_kernel

UNIT = 2048  # bytes that 128 threads copy at a time


def probe_module(
    by_thread: str = "",
    by_warps: str = "",
    *,
    columns: int = 64,
    size: int = UNIT,
    target: str = "sm_100a",
    version: str = "8.8",
) -> str:
    """Return a module that runs tcgen05 statements on memory: `by_warps` in all threads, `by_thread` in the first.

    Its parameters are `size` bytes of shared memory, tensor memory before, uint32[128, columns], and after. Statements
    use %v0 to %v135, %r9 to %r31, %rd6 to %rd11 and %p5, and find these registers:

        %r8    the first column           %rd5   the address of the tile >> 4, to add to a descriptor
        %r6    the lanes of their warp    %p4    true, in statements of a single thread
        %r1    the thread index
    """
    major, minor = map(int, version.split("."))
    head = module_header((major, minor), target)
    images = {"tensor_image": columns, "out": columns}
    return "\n".join([*head, tensor_kernel("probe", {"shared_image": whole(size)}, images, by_thread, by_warps)])


def whole(size: int) -> int:
    """Round the size of a tile up to that of a probe's shared memory."""
    return -(-size // UNIT) * UNIT


def vector(count: int, first: int = 0) -> str:
    """Return `count` of the registers %v in braces."""
    return "{" + ", ".join(f"%v{first + i}" for i in range(count)) + "}"


def kernel(by_thread: str, by_warps: str = "", **options: object) -> ptx.Kernel:
    """The kernel that runs statements of one thread, or before them of all warps."""
    return ptx.load(probe_module(by_thread, by_warps, **options))["probe"]


def run(program: ptx.Kernel, shared: np.ndarray, cells: np.ndarray) -> tuple[np.ndarray, ptx.Run]:
    """Return tensor memory after a kernel, and the run."""
    image = np.zeros(whole(shared.size), np.uint8)
    image[: shared.size] = shared.reshape(-1)
    out = np.zeros_like(cells)
    return out, program.launch(1, 128, [image, cells, out])
