"""An access of tensor memory: what the observer of a launch is told of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from warpfrag.ptx.program.program import DecodedInstruction


class TensorAccess(NamedTuple):
    """An access of tensor memory: who issued it, and which part of which block's memory it reads or writes."""

    step: DecodedInstruction
    thread: int  # of the batch; the first lane of a warp where a warp issued it
    operand: str  # d, a, metadata, scale_a, scale_b; registers of ld and st; cells of cp and shift
    block: int
    column: int
    columns: int
    writes: bool
    reads: bool = False
    quarters: tuple[int, ...] = (0, 1, 2, 3)  # which 32 lanes

    def overlaps(self, other: TensorAccess) -> bool:
        """Whether both reach a column of the same lanes."""
        if self.block != other.block or not set(self.quarters) & set(other.quarters):
            return False
        return self.column < other.column + other.columns and other.column < self.column + self.columns
