"""Families of operations: those of one family are written alike.

A family has a row in the table of writers of each language (`cuda.WRITERS`, `ptx.WRITERS`). A new operation takes a
place in a family here, or a new family with a writer in each language; nothing else asks which operation it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from warpfrag.tensorcore.instruction import Instruction

Family = Literal["mma", "wmma", "wmma move", "matrix move", "wgmma"]

OPERATIONS: dict[Family, tuple[str, ...]] = {
    # a product of one warp, with fragments that the ISA fixes: helpers load and store each register by the layout
    "mma": ("mma", "mma.sp", "mma.sp::ordered_metadata"),
    # a product whose fragments the ISA leaves open: it comes with loads and stores of its own
    "wmma": ("wmma.mma",),
    "wmma move": ("wmma.load.a", "wmma.load.b", "wmma.load.c", "wmma.store.d"),
    # 8 x 8 matrices between shared memory and registers, or within registers
    "matrix move": ("ldmatrix", "stmatrix", "movmatrix"),
    # a product of a warpgroup, with operands in shared memory behind descriptors
    "wgmma": ("wgmma.mma_async", "wgmma.mma_async.sp"),
}
FAMILIES: tuple[Family, ...] = get_args(Family)
_FAMILY_OF = {operation: family for family, operations in OPERATIONS.items() for operation in operations}


def family(instruction: Instruction) -> Family:
    """The family of an instruction."""
    return _FAMILY_OF[instruction.op]
