"""Which grids a figure of an instruction consists of, for each view, and the notes beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from warpfrag.errors import InvalidOperand
from warpfrag.layout.coordinates import LANES
from warpfrag.tensorcore.operand import Metadata, Operand, Scale, SparseOperand
from warpfrag.viz.by_element import (
    FieldChoice,
    logical_grid,
    matrix_grids,
    metadata_choice,
    metadata_grid,
    scale_choice,
    scale_grid,
)
from warpfrag.viz.by_lane import field_warp_grid, warp_grid
from warpfrag.viz.staged_view import StagedFigure, left_out, staged_grids
from warpfrag.viz.warpgroup_lanes import ROWS, flatten_warps, of_warp, with_warps

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.isa.patterns import Pattern
    from warpfrag.smem.descriptor import Descriptor
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import OperandBase
    from warpfrag.viz.cells import Cut, FigureGrid

View = Literal["matrix", "warp", "logical", "whole", "memory"]
VIEWS: tuple[View, ...] = get_args(View)

AnyOperand = Operand | Metadata | Scale
MAX_COLUMNS = 32  # of a matrix of a warpgroup, if no others are asked for
PRODUCT_ROLES = {"a", "b", "d"}  # what a whole view shows of a product
HIDDEN_ROLES: dict[str, set[str]] = {
    "warp": set(),
    "warpgroup": {"c"},
}  # by scope: of a warpgroup C is large, and lies where D does
Scene = tuple["FigureGrid", ...]  # one grid, or the grids of a product: A, B and D, then metadata and scale factors


class FigureRequest(NamedTuple):
    """What the reader asks for, beside instruction and operand."""

    selector: int
    byte_id: int
    thread_id: int
    cut: Cut
    warp: int | None = None
    descriptors: tuple[Descriptor, ...] = ()
    trans: bool = False


def default_view(instruction: Instruction, operand: AnyOperand | None) -> View:
    """Products in registers are shown whole, a sparse A as the matrix it stands for, everything else as a matrix."""
    if operand is None:
        roles_in_registers = {each.role for each in instruction.operands.values() if each.storage != "shared"}
        return "whole" if roles_in_registers >= PRODUCT_ROLES else "matrix"
    if operand.storage == "shared":
        return "memory"
    return "logical" if isinstance(operand, SparseOperand) else "matrix"


def scenes(
    instruction: Instruction, operand: AnyOperand | None, view: View, request: FigureRequest
) -> tuple[Scene, ...]:
    """The grids of a figure, in scenes."""
    if view == "whole":
        return _whole(instruction, operand, request)
    if view == "memory":
        return tuple((grid,) for grid in staged_grids(staged(instruction, operand, request), request.cut))
    if operand is None:
        request.cut.refuse("a figure of all operands")
    warp = request.warp
    if warp is not None and view != "warp":  # then a warp is some rows of the matrix
        request = request._replace(cut=request.cut._replace(rows=(ROWS * warp, ROWS * (warp + 1) - 1)))
    operands = [operand] if operand else in_registers(instruction)
    grids = [grid for each in operands for grid in _grids(instruction, each, view, request)]
    if warp is not None and view == "warp":
        grids = [of_warp(grid, warp) for grid in grids]
    return tuple((with_warps(grid),) for grid in grids)


def staged(instruction: Instruction, operand: AnyOperand | None, request: FigureRequest) -> StagedFigure:
    """What the memory view shows: the operand under its descriptors, of a tile without gaps if none are given."""
    if not (isinstance(operand, Operand) and operand.staged):
        what = f"operand {operand.role}" if operand else "all operands"
        msg = f"the memory view shows A or B of wgmma in shared memory, not {what} of {instruction}"
        raise InvalidOperand(msg)
    descriptors = request.descriptors or tuple(operand.descriptors(trans=request.trans))
    return StagedFigure(operand, descriptors, request.trans)


def _grids(instruction: Instruction, operand: AnyOperand, view: View, request: FigureRequest) -> list[FigureGrid]:
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
        msg = f"{operand.description} is dense: the logical view is for the A of mma.sp; use matrix or warp"
        raise InvalidOperand(msg)
    return matrix_grids(operand, _narrowed(operand, request.cut), instruction.addresses)


def in_registers(instruction: Instruction) -> list[AnyOperand]:
    """The operands that lie in registers and are not hidden."""
    hidden = HIDDEN_ROLES[instruction.form.operation.scope]
    every = sorted(instruction.operands.values(), key=lambda operand: operand.role)  # inputs first, of movmatrix too
    return [flatten_warps(operand) for operand in every if operand.storage != "shared" and operand.role not in hidden]


def _narrowed(operand: Operand, cut: Cut) -> Cut:
    """The cut, or the first columns of what is too wide to be read."""
    is_wide = operand.layout.lanes > LANES and operand.shape[1] > MAX_COLUMNS
    return cut._replace(cols=(0, MAX_COLUMNS - 1)) if is_wide and cut.cols is None else cut


def _words_grid(instruction: Instruction, operand: Metadata | Scale, view: View, request: FigureRequest) -> FigureGrid:
    """Metadata or scale factors."""
    if view == "logical":
        msg = f"{operand.description} has the views matrix and warp, not {view}"
        raise InvalidOperand(msg)
    choice = _choice(operand, request)
    if view == "warp":
        return field_warp_grid(operand, choice)
    if isinstance(operand, Metadata):
        return metadata_grid(operand, choice, instruction.a.sparsity, request.cut)
    return scale_grid(operand, choice, request.cut)


def _choice(operand: Metadata | Scale, request: FigureRequest) -> FieldChoice:
    if isinstance(operand, Metadata):
        return metadata_choice(operand, request.selector)
    return scale_choice(operand, request.byte_id, request.thread_id)


def _whole(instruction: Instruction, operand: AnyOperand | None, request: FigureRequest) -> tuple[Scene, ...]:
    """A, B, D, metadata and scale factors, a scene for each product."""
    if any(each.storage == "shared" for each in instruction.operands.values()):
        msg = f"the whole view shows A, B and D in registers; B of {instruction.name} lies in shared memory: use matrix"
        raise InvalidOperand(msg)
    if operand is not None or not instruction.operands.keys() >= PRODUCT_ROLES:
        what = f"operand {operand.role}" if operand else instruction.name
        msg = f"the whole view shows A, B and D of a product; for {what} use matrix or warp"
        raise InvalidOperand(msg)
    request.cut.refuse("the whole view")
    a = [logical_grid(instruction.a)] if isinstance(instruction.a, SparseOperand) else matrix_grids(instruction.a)
    fields = [each for each in instruction.operands.values() if isinstance(each, Metadata | Scale)]
    extras = [_words_grid(instruction, each, "matrix", request) for each in fields]
    products = zip(a, matrix_grids(instruction.b), matrix_grids(instruction.d), strict=True)
    return tuple((*product, *extras) for product in products)


def notes(instruction: Instruction, operand: AnyOperand | None, view: View, request: FigureRequest) -> tuple[str, ...]:
    """The notes of a figure: registers, names, padding, copies, whose fragments."""
    if view == "memory":
        return _memory_notes(staged(instruction, operand, request), request)
    every = in_registers(instruction)
    drawn = [each for each in every if view != "whole" or each.role != "c"]
    operands: list[OperandBase] = [operand] if operand else [*drawn]
    sentences = [_registers_note(each) for each in operands]
    if view == "whole" and instruction.c.layout == instruction.d.layout:
        sentences.append("C sits where D sits: c0 in the place of d0, and so on.")
    elif view == "whole":
        sentences.append(
            f"C has another layout than D, because it is {instruction.c.format}: draw operand c to see it."
        )
    sentences += SCOPE_NOTES[instruction.form.operation.scope](instruction, operands, view, request)
    if any("mma" in each.layout.dims for each in operands):
        sentences.append(
            "Products 0 to 3 are the ISA's computations 1 to 4; lanes 4p..4p+3 and 16+4p..19+4p hold product p."
        )
    if instruction.addresses:
        sentences.append("address: the lane that gives the shared-memory address of the line beside it.")
    if any(isinstance(each, SparseOperand) for each in operands) and view in {"logical", "whole"}:
        pattern = instruction.a.sparsity
        sentences.append(f"Of each {pattern.chunk} columns {pattern.kept} are stored; the metadata says which.")
    if any(isinstance(each, Metadata) for each in operands):
        sentences.append(_codes_note(instruction.a.sparsity))
    if view == "warp":
        sentences.append(f"Cells say {_coordinate_words(operands)}; low bits stand left.")
    copied = [each for each in operands if isinstance(each, Operand) and each.layout.copies > 1]
    sentences += dict.fromkeys(map(_copies_note, copied))
    if instruction.arch:
        sentences.append(f"The ISA leaves wmma fragments open: these are the ones of {instruction.arch}, measured.")
    return tuple(sentences)


def _memory_notes(figure: StagedFigure, request: FigureRequest) -> tuple[str, ...]:
    """The descriptors, in words, their problems, and what is not shown."""
    operand = figure.operand
    first = figure.descriptors[0]
    starts = ", ".join(str(descriptor.start) for descriptor in figure.descriptors)
    order = "MN-major" if figure.trans else "K-major"
    swizzle = f"{first.swizzle}-byte swizzle" if first.swizzle else "no swizzle"
    base = f", base offset {first.base_offset}" if first.base_offset else ""
    shape = " x ".join(map(str, operand.shape))
    stored = " (the stored half)" if isinstance(operand, SparseOperand) else ""
    sentences = [
        f"{operand.role.upper()}: {shape} of {operand.format}{stored}, {order}, {swizzle}.",
        f"Descriptor 0x{first.word:016x}: start {starts}, leading {first.leading}, stride {first.stride}{base}.",
    ]
    problems = first.problems(operand, trans=figure.trans)
    sentences += [f"Problem: {problem.text}." for problem in problems]
    sentences.append("A cell names its line and its elements; it has the same colour in both pictures. Grey: not read.")
    rest = left_out(figure, request.cut)
    return (*sentences, rest) if rest else tuple(sentences)


def _warpgroup_notes(
    instruction: Instruction, operands: list[OperandBase], view: View, request: FigureRequest
) -> list[str]:
    """How its threads are named, what is left out, and what no register holds."""
    sentences = ["T0 to T127 are the threads of the warpgroup: T37 is lane 5 of warp 1."]
    wide = [operand for operand in operands if isinstance(operand, Operand) and operand.shape[1] > MAX_COLUMNS]
    if wide and view == "matrix" and request.cut.cols is None:
        names = " and ".join(operand.role.upper() for operand in wide)
        sentences.append(
            f"Of the {wide[0].shape[1]} columns of {names}, {MAX_COLUMNS} are shown at once: cols has others."
        )
    if len(operands) > 1:
        shared = [operand for operand in instruction.operands.values() if operand.storage == "shared"]
        held = " and ".join(operand.role.upper() for operand in shared)
        sentences.append(f"{held} lies in shared memory, where a descriptor says. C sits where D sits.")
    return sentences


def _no_notes(*_: object) -> list[str]:
    return []


SCOPE_NOTES: dict[str, Callable[[Instruction, list[OperandBase], View, FigureRequest], list[str]]] = {
    "warp": _no_notes,
    "warpgroup": _warpgroup_notes,
}


def _registers_note(operand: OperandBase) -> str:
    """Registers of an operand, and how its elements fill them."""
    count = operand.regs * operand.slots
    extents = " x ".join(map(str, operand.shape))
    if isinstance(operand, Metadata):
        return f"metadata: a 4-bit code for each of {extents} chunks of A, in one word {operand.ptx_type} per lane."
    if isinstance(operand, Scale):
        return f"{operand.role}: {extents} of {operand.format}, a byte each, in one word {operand.ptx_type} per lane."
    registers = f"{operand.regs} register{'s' * (operand.regs > 1)} {operand.ptx_type} per lane"
    names = f"{operand.role}0" if count == 1 else f"{operand.role}0..{operand.role}{count - 1}"
    names += ", low bits first" if operand.slots > 1 else ""
    stored = " (the stored half)" if isinstance(operand, SparseOperand) else ""
    kind = f"{operand.role.upper()}: {extents} of {operand.format}{stored}"
    return f"{kind}, {registers}: {names}.{_padding_note(operand)}"


def _codes_note(pattern: Pattern) -> str:
    """What the codes of ordered metadata mean."""
    meanings = (f"{code:04b} columns {' '.join(map(str, kept))}" for code, kept in sorted(pattern.rising.items()))
    return f"Of each chunk of {pattern.chunk} columns a code keeps: {'; '.join(meanings)}."


def _padding_note(operand: OperandBase) -> str:
    """Where codes are narrower than their place in the register."""
    high, low = operand.bits(0)
    if operand.spec.container == operand.format.bits:
        return ""
    return f" Each code fills bits {high}:{low} of {operand.spec.container}; the others are padding."


def _copies_note(operand: Operand) -> str:
    return f"Every element of {operand.role.upper()} has {operand.layout.copies} holders; the hardware reads the first."


def _coordinate_words(operands: list[OperandBase]) -> str:
    """The names of the coordinates in the cells."""
    dims = {operand.layout.dims if isinstance(operand, Operand) else operand.layout.dims[-2:] for operand in operands}
    return " or ".join(f"({', '.join(names)})" for names in sorted(dims))
