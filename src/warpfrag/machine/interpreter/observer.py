"""Events that a running batch reports: memory accesses and the events that order them.

The interpreter calls the methods of an `Observer` as it runs each instruction. The methods here do nothing;
`machine.sanitizer` overrides them. Buffers and offsets are those of `device_memory.DeviceMemory.reach`, threads are
numbered within the batch, and a cell is the 64-bit word index of an mbarrier in shared memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.isa.qualifiers import Form
from warpfrag.machine.ir.program import DecodedInstruction

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]


class TensorAccess(NamedTuple):
    """An access to tensor memory: the issuing thread, the operand, and the columns of a block that it touches."""

    inst: DecodedInstruction
    thread: int  # the thread's number in the batch, or that of the first lane if a warp issued the access
    operand: str  # d, a, metadata, scale_a or scale_b (mma), registers (ld, st), cells (cp, shift) or freed (dealloc)
    block: int
    column: int
    columns: int
    writes: bool
    reads: bool = False
    quarters: tuple[int, ...] = (0, 1, 2, 3)  # the accessed groups of 32 lanes

    def overlaps(self, other: TensorAccess) -> bool:
        """Return True if two accesses have a block, a quarter of the lanes and a column in common."""
        if self.block != other.block or not set(self.quarters) & set(other.quarters):
            return False
        return self.column < other.column + other.columns and other.column < self.column + self.columns


class Observer:
    """Receives memory accesses before they execute, and ordering events as they happen."""

    # --- thread accesses

    def read(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Handle loads of `size` bytes by each thread."""

    def write(self, buffer: Bytes, offsets: Numbers, codes: NDArray[Any], threads: Numbers) -> None:
        """Handle stores of codes [threads, count]."""

    def update(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Handle atomics on `size` bytes by each thread."""

    def updated(self, buffer: Bytes, offsets: Numbers, old: NDArray[Any], threads: Numbers) -> None:
        """Handle the old values [threads, count] that atomics replaced."""

    # --- accesses of asynchronous copies

    def copy_read(self, buffer: Bytes, offsets: Numbers, size: int, thread: int, cells: list[int]) -> None:
        """Handle a copy that reads `size` bytes at each offset and signals mbarriers or its bulk group."""

    def copy_write(
        self, buffer: Bytes, offsets: Numbers, size: int, thread: int, cell: int | None, *, reduction: str = ""
    ) -> None:
        """Handle a copy that writes `size` bytes at each offset and signals an mbarrier or its bulk group.

        `reduction` has the operation and type of a copy that reduces: it contains add and ends with f32.
        """

    def product_read(self, offsets: Numbers, size: int, warp: int) -> None:
        """Handle the shared-memory reads of a wgmma; `warp` is the first warp of its warpgroup."""

    def product_descriptor(self, form: Form, role: str, word: int, warp: int, *, is_transposed: bool) -> None:
        """Handle the A or B descriptor of a wgmma; `warp` is the first warp of its warpgroup."""

    # --- tensor memory

    def tensor_access(self, access: TensorAccess) -> None:
        """Handle a tcgen05 instruction that reads or writes columns."""

    def tensor_allocated(self, block: int, column: int, columns: int) -> None:
        """Handle a block's allocation of columns."""

    def tensor_freed(self, access: TensorAccess) -> None:
        """Handle a block's release of columns."""

    def tensor_committed(self, cells: list[int], thread: int) -> None:
        """Handle a commit: from now on, the mbarriers track the work that the thread has issued."""

    # --- events that order accesses

    def barrier_arrived(self, block: int, number: int, warp: int, lanes: NDArray[np.bool_]) -> None:
        """Handle lanes that arrive at a block barrier."""

    def barrier_released(self, block: int, number: int, here: NDArray[np.bool_]) -> None:
        """Handle a completed barrier; `here` is a mask of the block's lanes that waited."""

    def warp_synced(self, warp: int, lanes: NDArray[np.bool_]) -> None:
        """Handle lanes that were released from different bar.warp.sync instructions together."""

    def cluster_completed(self, cluster: int) -> None:
        """Handle a completed cluster barrier."""

    def mbarrier_initialised(self, cell: int, thread: int) -> None:
        """Handle a thread that initialises an mbarrier."""

    def mbarrier_invalidated(self, cell: int, thread: int) -> None:
        """Handle a thread that invalidates an mbarrier."""

    def mbarrier_arrived(self, cell: int, thread: int) -> None:
        """Handle a thread that arrives at an mbarrier."""

    def mbarrier_completed(self, cell: int) -> None:
        """Handle the end of an mbarrier phase."""

    def mbarrier_tested(self, cells: Numbers, threads: Numbers) -> None:
        """Handle the threads that receive the result of a test, before they act on it."""

    def mbarrier_waited(self, cells: Numbers, threads: Numbers) -> None:
        """Handle the threads that have seen the end of the phases they waited for."""
