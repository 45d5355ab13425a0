"""Cooperative launches: every block of the grid is on the GPU at once, so that they can wait for each other.

`grid.sync()` of cooperative groups is a counter in global memory, to which %envreg1 and %envreg2 point: each block adds
to it and reads it until its highest bit flips. In a launch that is not cooperative both are zero and the kernel traps,
as measured on an H200 (in a process that has made no cooperative launch: the driver never takes the workspace back).

A grid that does not fit on the GPU would wait forever, so CUDA refuses it. Here the GPU is an H200, with the limits of
compute capability 9.0 (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"), which its driver
confirms. Registers, which only an assembler knows, are not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.errors import InvalidOperand

if TYPE_CHECKING:
    from warpfrag.ptx.interpreter.warp_state import LaunchConfig

MULTIPROCESSORS = 132
RESIDENT_BLOCKS = 32  # of a multiprocessor, and so the next two
RESIDENT_WARPS = 64
SHARED_BYTES = 228 * 1024
RESERVED_BYTES = 1024  # of shared memory in each block


def check_resident(config: LaunchConfig, shared_bytes: int) -> None:
    """Refuse a grid that does not fit on the GPU at once; `shared_bytes` is what a block uses, static and dynamic."""
    by_shared = SHARED_BYTES // (shared_bytes + RESERVED_BYTES)
    per_multiprocessor = min(RESIDENT_BLOCKS, RESIDENT_WARPS // config.warps, by_shared)
    x, y, z = config.grid
    if x * y * z > MULTIPROCESSORS * per_multiprocessor:
        msg = (
            f"a cooperative launch needs all blocks at once: of {config.threads} threads and {shared_bytes} bytes of "
            f"shared memory an H200 holds {MULTIPROCESSORS} x {per_multiprocessor}, got a grid of {x * y * z}"
        )
        raise InvalidOperand(msg)
