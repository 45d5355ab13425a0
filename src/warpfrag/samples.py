"""Small example files, so that every command in the README and the documentation runs as written.

Any file argument accepts `sample:NAME`. `warpfrag samples` lists and copies the samples.
"""

from __future__ import annotations

from errno import ENOENT
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "sample:"

SAMPLES = {
    "A.txt": "A of mma.m16n8k16, 16 x 16 integers",
    "B.txt": "B of the same instruction, 16 x 8 integers",
    "dump.txt": "registers of D, printed by a kernel with a wrong load of B",
    "cancel_A.txt": "a 16 x 16 A whose row 0 starts with 4096, -4096, -0.75",
    "cancel_B.txt": "a 16 x 16 B whose column 0 starts with 2048, 2048, 1: the exact sum is -0.75",
    "A.npy": "two rows of A in a float16 gemm with k = 5120, whose sums nearly cancel",
    "B.npy": "one column of B in the same gemm",
    "D.npy": "their product, as predicted for PyTorch on an H200 (24 x 1024 x 5120, layout nt)",
    "tile.cu": "a CUDA kernel that loads B of an mma as if it were A",
    "tile.ptx": "its PTX, as nvcc 13.0 wrote it for sm_80 with -lineinfo",
    "tile_fixed.cu": "the same kernel with the right load of B",
    "tile_fixed.ptx": "its PTX, compiled in the same way",
    "rowsum.cu": "a CUDA kernel that lacks a __syncthreads()",
    "rowsum.ptx": "its PTX, as nvcc 13.0 wrote it for sm_80 with -lineinfo",
    "softmax.ptx": "the PTX of a softmax kernel, as Triton 3.6 wrote it for sm_80",
}


def sample_path(name: str) -> Path:
    """Return the path of a sample; an unknown name raises an OSError that lists the samples."""
    if name not in SAMPLES:
        raise OSError(ENOENT, f"unknown sample: expected one of {', '.join(SAMPLES)}", PREFIX + name)
    from pathlib import Path  # the import takes longer than many look-ups

    return Path(__file__).parent / "tables" / "samples" / name
