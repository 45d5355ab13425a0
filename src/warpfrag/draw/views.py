"""Which grids a figure of an instruction consists of, for each view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from warpfrag.draw.matrix import matrix_grids
from warpfrag.draw.sparse import logical_grid
from warpfrag.draw.warp import warp_grid
from warpfrag.draw.words import Choice, field_warp_grid, metadata_choice, metadata_grid, scale_choice, scale_grid
from warpfrag.errors import InvalidOperand
from warpfrag.operand import Metadata, Operand, Scale, SparseOperand

if TYPE_CHECKING:
    from warpfrag.draw.cut import Cut
    from warpfrag.draw.grid import Grid
    from warpfrag.draw.page import Scene
    from warpfrag.instruction import Instruction

View = Literal["matrix", "warp", "logical", "whole"]
VIEWS: tuple[View, ...] = get_args(View)

AnyOperand = Operand | Metadata | Scale


class Request(NamedTuple):
    """What the reader asks for, beside instruction and operand."""

    selector: int
    byte_id: int
    thread_id: int
    cut: Cut


def default_view(instruction: Instruction, operand: AnyOperand | None) -> View:
    """Products are shown whole, a sparse A as the matrix it stands for, everything else as a matrix."""
    if operand is None:
        return "whole" if instruction.form.is_product else "matrix"
    return "logical" if isinstance(operand, SparseOperand) else "matrix"


def scenes(instruction: Instruction, operand: AnyOperand | None, view: View, request: Request) -> tuple[Scene, ...]:
    """The grids of a figure, in scenes: see page.py."""
    if view == "whole":
        return _whole(instruction, operand, request)
    chosen = [operand] if operand else list(instruction.operands.values())
    if operand is None:
        request.cut.refuse("a figure of all operands")
    return tuple((grid,) for one in chosen for grid in _grids(instruction, one, view, request))


def _grids(instruction: Instruction, operand: AnyOperand, view: View, request: Request) -> list[Grid]:
    """One operand, in one view."""
    if view == "warp":
        request.cut.refuse("the warp view")
    if view == "logical" or isinstance(operand, Metadata | Scale):
        request.cut.within("parts", 1)
    if isinstance(operand, Metadata | Scale):
        return [_words_grid(instruction, operand, view, request)]
    if view == "warp":
        return [warp_grid(operand)]
    if view == "logical":
        if isinstance(operand, SparseOperand):
            return [logical_grid(operand, request.cut)]
        msg = f"{operand.described} is dense: the logical view is for the A of mma.sp; use matrix or warp"
        raise InvalidOperand(msg)
    return matrix_grids(operand, request.cut, instruction.addresses)


def _words_grid(instruction: Instruction, operand: Metadata | Scale, view: View, request: Request) -> Grid:
    """Metadata or scale factors."""
    if view == "logical":
        msg = f"{operand.described} has the views matrix and warp, not {view}"
        raise InvalidOperand(msg)
    choice = _choice(operand, request)
    if view == "warp":
        return field_warp_grid(operand, choice)
    if isinstance(operand, Metadata):
        return metadata_grid(operand, choice, instruction.a.sparsity, request.cut)
    return scale_grid(operand, choice, request.cut)


def _choice(operand: Metadata | Scale, request: Request) -> Choice:
    if isinstance(operand, Metadata):
        return metadata_choice(operand, request.selector)
    return scale_choice(operand, request.byte_id, request.thread_id)


def _whole(instruction: Instruction, operand: AnyOperand | None, request: Request) -> tuple[Scene, ...]:
    """A, B, D, metadata and scale factors, a scene for each product."""
    if operand is not None or not instruction.form.is_product:
        what = f"operand {operand.role}" if operand else instruction.name
        msg = f"the whole view shows A, B and D of a product; for {what} use matrix or warp"
        raise InvalidOperand(msg)
    request.cut.refuse("the whole view")
    a = [logical_grid(instruction.a)] if isinstance(instruction.a, SparseOperand) else matrix_grids(instruction.a)
    words = [one for one in instruction.operands.values() if isinstance(one, Metadata | Scale)]
    extras = [_words_grid(instruction, one, "matrix", request) for one in words]
    products = zip(a, matrix_grids(instruction.b), matrix_grids(instruction.d), strict=True)
    return tuple((*product, *extras) for product in products)
