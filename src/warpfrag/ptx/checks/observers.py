"""Several checks that follow one batch: each is told of everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warpfrag.ptx.interpreter.observer import Observer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from warpfrag.isa.qualifiers import Form
    from warpfrag.ptx.interpreter.lane_group import LaneGroup
    from warpfrag.ptx.interpreter.tensor_access import TensorAccess
    from warpfrag.ptx.program.program import DecodedInstruction

    Bytes = NDArray[np.uint8]
    Numbers = NDArray[np.int64]


class StepObserver(Observer):
    """A check: it is told of steps too, before and after they run, and when all lanes have exited."""

    def guarded(self, step: DecodedInstruction, group: LaneGroup) -> None:
        """Lanes have reached a step with a guard, whether it holds or not."""

    def before(self, step: DecodedInstruction, group: LaneGroup) -> None:
        """Lanes are about to run a step."""

    def after(self, step: DecodedInstruction, group: LaneGroup) -> None:
        """Lanes have run a step."""

    def finish(self) -> None:
        """Every lane has exited."""


class ObserverGroup(StepObserver):
    """Passes everything on to each of some checks."""

    def __init__(self, observers: list[StepObserver]) -> None:
        """Keep the checks in the order in which they are told."""
        self.observers = observers

    def guarded(self, step: DecodedInstruction, group: LaneGroup) -> None:
        """Lanes have reached a step with a guard."""
        for item in self.observers:
            item.guarded(step, group)

    def before(self, step: DecodedInstruction, group: LaneGroup) -> None:
        """Lanes are about to run a step."""
        for item in self.observers:
            item.before(step, group)

    def after(self, step: DecodedInstruction, group: LaneGroup) -> None:
        """Lanes have run a step."""
        for item in self.observers:
            item.after(step, group)

    def finish(self) -> None:
        """Every lane has exited."""
        for item in self.observers:
            item.finish()

    def read(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Threads load."""
        for item in self.observers:
            item.read(buffer, offsets, size, threads)

    def write(self, buffer: Bytes, offsets: Numbers, codes: NDArray[Any], threads: Numbers) -> None:
        """Threads store."""
        for item in self.observers:
            item.write(buffer, offsets, codes, threads)

    def update(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Threads change memory by an atomic."""
        for item in self.observers:
            item.update(buffer, offsets, size, threads)

    def copy_read(self, buffer: Bytes, offsets: Numbers, size: int, thread: int) -> None:
        """A copy reads."""
        for item in self.observers:
            item.copy_read(buffer, offsets, size, thread)

    def copy_write(
        self, buffer: Bytes, offsets: Numbers, size: int, thread: int, cell: int | None, *, reduces: bool = False
    ) -> None:
        """A copy writes."""
        for item in self.observers:
            item.copy_write(buffer, offsets, size, thread, cell, reduces=reduces)

    def product_read(self, offsets: Numbers, size: int, warp: int) -> None:
        """A wgmma reads shared memory."""
        for item in self.observers:
            item.product_read(offsets, size, warp)

    def product_descriptor(self, form: Form, role: str, word: int, warp: int, *, is_transposed: bool) -> None:
        """A wgmma takes a descriptor."""
        for item in self.observers:
            item.product_descriptor(form, role, word, warp, is_transposed=is_transposed)

    def tensor_access(self, access: TensorAccess) -> None:
        """tcgen05 reads or writes columns."""
        for item in self.observers:
            item.tensor_access(access)

    def tensor_allocated(self, block: int, column: int, columns: int) -> None:
        """A block allocates columns."""
        for item in self.observers:
            item.tensor_allocated(block, column, columns)

    def tensor_freed(self, access: TensorAccess) -> None:
        """A block frees columns."""
        for item in self.observers:
            item.tensor_freed(access)

    def tensor_committed(self, cells: list[int], thread: int) -> None:
        """A thread commits what it has issued."""
        for item in self.observers:
            item.tensor_committed(cells, thread)

    def barrier_arrived(self, block: int, number: int, warp: int, lanes: NDArray[np.bool_]) -> None:
        """Lanes arrive at a barrier."""
        for item in self.observers:
            item.barrier_arrived(block, number, warp, lanes)

    def barrier_released(self, block: int, number: int, here: NDArray[np.bool_]) -> None:
        """A barrier is complete."""
        for item in self.observers:
            item.barrier_released(block, number, here)

    def cluster_completed(self, cluster: int) -> None:
        """A cluster's barrier is complete."""
        for item in self.observers:
            item.cluster_completed(cluster)

    def mbarrier_initialised(self, cell: int, thread: int) -> None:
        """A thread initialises an mbarrier."""
        for item in self.observers:
            item.mbarrier_initialised(cell, thread)

    def mbarrier_invalidated(self, cell: int, thread: int) -> None:
        """A thread invalidates an mbarrier."""
        for item in self.observers:
            item.mbarrier_invalidated(cell, thread)

    def mbarrier_arrived(self, cell: int, thread: int) -> None:
        """A thread arrives at an mbarrier."""
        for item in self.observers:
            item.mbarrier_arrived(cell, thread)

    def mbarrier_completed(self, cell: int) -> None:
        """A phase of an mbarrier is over."""
        for item in self.observers:
            item.mbarrier_completed(cell)

    def mbarrier_waited(self, cells: Numbers, threads: Numbers) -> None:
        """Threads have seen phases end."""
        for item in self.observers:
            item.mbarrier_waited(cells, threads)
