"""The events that a running batch reports: accesses of memory, what orders them, and instructions.

The interpreter calls the methods of an `Observer` while it runs an instruction; here none does anything. `ptx.checks`
derives from them. Buffers and offsets are those of `device_memory.DeviceMemory.reach`, threads are numbers in the
batch, a cell is the index of an mbarrier among the 64-bit words of shared memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.isa.qualifiers import Form
from warpfrag.ptx.program.program import DecodedInstruction

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]


class TensorAccess(NamedTuple):
    """An access of tensor memory: who issued it, and which part of which block's memory it reads or writes."""

    inst: DecodedInstruction
    thread: int  # of the batch; the first lane of a warp where a warp issued it
    operand: str  # d, a, metadata, scale_a, scale_b; registers of ld and st; cells of cp and shift
    block: int
    column: int
    columns: int
    writes: bool
    reads: bool = False
    quarters: tuple[int, ...] = (0, 1, 2, 3)  # which 32 lanes

    def overlaps(self, other: TensorAccess) -> bool:
        """Return True if both reach a column of the same lanes."""
        if self.block != other.block or not set(self.quarters) & set(other.quarters):
            return False
        return self.column < other.column + other.columns and other.column < self.column + self.columns


class Observer:
    """Is told of accesses before they happen, and of what orders them when it happens."""

    # --- accesses of threads

    def read(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Threads load `size` bytes each."""

    def write(self, buffer: Bytes, offsets: Numbers, codes: NDArray[Any], threads: Numbers) -> None:
        """Threads store codes [threads, count]."""

    def update(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Threads change `size` bytes each by an atomic."""

    # --- accesses of copies that a thread has issued

    def copy_read(self, buffer: Bytes, offsets: Numbers, size: int, thread: int) -> None:
        """A copy of a thread reads `size` bytes at each offset."""

    def copy_write(
        self, buffer: Bytes, offsets: Numbers, size: int, thread: int, cell: int | None, *, reduces: bool = False
    ) -> None:
        """A copy of a thread writes `size` bytes at each offset, and tells an mbarrier or its bulk group."""

    def product_read(self, offsets: Numbers, size: int, warp: int) -> None:
        """A wgmma of the warpgroup that starts at a warp reads elements of shared memory."""

    def product_descriptor(self, form: Form, role: str, word: int, warp: int, *, is_transposed: bool) -> None:
        """A wgmma of the warpgroup that starts at a warp takes a descriptor for A or B."""

    # --- tensor memory

    def tensor_access(self, access: TensorAccess) -> None:
        """An instruction of tcgen05 reads or writes columns."""

    def tensor_allocated(self, block: int, column: int, columns: int) -> None:
        """A block allocates columns."""

    def tensor_freed(self, access: TensorAccess) -> None:
        """A block frees columns."""

    def tensor_committed(self, cells: list[int], thread: int) -> None:
        """A thread lets mbarriers follow what it has issued."""

    # --- what orders accesses

    def barrier_arrived(self, block: int, number: int, warp: int, lanes: NDArray[np.bool_]) -> None:
        """Lanes arrive at a barrier of their block."""

    def barrier_released(self, block: int, number: int, here: NDArray[np.bool_]) -> None:
        """All that a barrier waits for have arrived; `here` are the lanes of the block that waited."""

    def cluster_completed(self, cluster: int) -> None:
        """All threads of a cluster have arrived."""

    def mbarrier_initialised(self, cell: int, thread: int) -> None:
        """A thread initialises an mbarrier."""

    def mbarrier_invalidated(self, cell: int, thread: int) -> None:
        """A thread invalidates an mbarrier."""

    def mbarrier_arrived(self, cell: int, thread: int) -> None:
        """A thread arrives at an mbarrier."""

    def mbarrier_completed(self, cell: int) -> None:
        """A phase of an mbarrier is over."""

    def mbarrier_waited(self, cells: Numbers, threads: Numbers) -> None:
        """Threads have seen that the phases which they wait for are over."""
