"""Which grids a figure of an instruction consists of, for each view, and what its reader should know beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from warpfrag.drawing.by_element import (
    Choice,
    logical_grid,
    matrix_grids,
    metadata_choice,
    metadata_grid,
    scale_choice,
    scale_grid,
)
from warpfrag.drawing.by_lane import field_warp_grid, warp_grid
from warpfrag.drawing.staged_view import Staged, left_out, staged_grids
from warpfrag.drawing.threads import ROWS, in_threads, of_warp, with_warps
from warpfrag.errors import InvalidOperand
from warpfrag.execution.operand import Metadata, Operand, Scale, SparseOperand

if TYPE_CHECKING:
    from warpfrag.catalog.instruction import Instruction
    from warpfrag.drawing.cells import Cut, Grid
    from warpfrag.execution.operand import Registers
    from warpfrag.isa.patterns import Pattern
    from warpfrag.memory.descriptor import Descriptor

View = Literal["matrix", "warp", "logical", "whole", "memory"]
VIEWS: tuple[View, ...] = get_args(View)

AnyOperand = Operand | Metadata | Scale
MOST_COLUMNS = 32  # of a matrix of a warpgroup, if no others are asked for
Scene = tuple["Grid", ...]  # one grid, or the grids of a product: A, B and D, then metadata and scale factors


class Request(NamedTuple):
    """What the reader asks for, beside instruction and operand."""

    selector: int
    byte_id: int
    thread_id: int
    cut: Cut
    warp: int | None = None
    descriptors: tuple[Descriptor, ...] = ()
    trans: bool = False


def default_view(instruction: Instruction, operand: AnyOperand | None) -> View:
    """Products are shown whole, a sparse A as the matrix it stands for, everything else as a matrix."""
    if operand is None:
        return "whole" if instruction.form.is_product and not instruction.form.is_warpgroup else "matrix"
    if operand.home == "shared":
        return "memory"
    return "logical" if isinstance(operand, SparseOperand) else "matrix"


def scenes(instruction: Instruction, operand: AnyOperand | None, view: View, request: Request) -> tuple[Scene, ...]:
    """The grids of a figure, in scenes."""
    if view == "whole":
        return _whole(instruction, operand, request)
    if view == "memory":
        return tuple((grid,) for grid in staged_grids(staged(instruction, operand, request), request.cut))
    chosen = [operand] if operand else in_registers(instruction)
    if operand is None:
        request.cut.refuse("a figure of all operands")
    if not instruction.form.is_warpgroup:
        return tuple((grid,) for one in chosen for grid in _grids(instruction, one, view, request))
    if request.warp is None:
        return tuple((with_warps(grid),) for one in chosen for grid in _grids(instruction, one, view, request))
    if view == "warp":
        grids = [grid for one in chosen for grid in _grids(instruction, one, view, request)]
        return tuple((with_warps(of_warp(grid, request.warp)),) for grid in grids)
    rows = ROWS * request.warp, ROWS * (request.warp + 1) - 1
    narrow = request._replace(cut=request.cut._replace(rows=rows))
    return tuple((with_warps(grid),) for one in chosen for grid in _grids(instruction, one, view, narrow))


def staged(instruction: Instruction, operand: AnyOperand | None, request: Request) -> Staged:
    """What the memory view shows: the operand under its descriptors, of a tile without gaps if none are given."""
    if not (isinstance(operand, Operand) and operand.staged):
        what = f"operand {operand.role}" if operand else "all operands"
        msg = f"the memory view shows A or B of wgmma in shared memory, not {what} of {instruction}"
        raise InvalidOperand(msg)
    found = request.descriptors or tuple(operand.descriptors(trans=request.trans))
    return Staged(operand, found, request.trans)


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
    return matrix_grids(operand, _narrowed(instruction, operand, request.cut), instruction.addresses)


def in_registers(instruction: Instruction) -> list[AnyOperand]:
    """The operands that lie in registers; of a warpgroup without C, which is large and lies where D does."""
    left_out = "c" if instruction.form.is_warpgroup else ""
    every = sorted(instruction.operands.values(), key=lambda one: one.role)  # inputs first, of movmatrix too
    return [in_threads(one) for one in every if one.home != "shared" and one.role != left_out]


def _narrowed(instruction: Instruction, operand: Operand, cut: Cut) -> Cut:
    """The cut, or the first columns of what is too wide to be read."""
    is_wide = instruction.form.is_warpgroup and operand.shape[1] > MOST_COLUMNS
    return cut._replace(cols=(0, MOST_COLUMNS - 1)) if is_wide and cut.cols is None else cut


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
    if instruction.form.is_warpgroup:
        msg = f"the whole view shows A, B and D in registers; B of {instruction.name} lies in shared memory: use matrix"
        raise InvalidOperand(msg)
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


def notes(instruction: Instruction, operand: AnyOperand | None, view: View, request: Request) -> tuple[str, ...]:
    """What a reader of the picture should know: registers, names, padding, copies, whose fragments."""
    if view == "memory":
        return _memory_notes(staged(instruction, operand, request), request)
    every = in_registers(instruction)
    shown: list[Registers] = [operand] if operand else [one for one in every if view != "whole" or one.role != "c"]
    found = [_registers_note(one) for one in shown]
    if view == "whole" and instruction.c.layout == instruction.d.layout:
        found.append("C sits where D sits: c0 in the place of d0, and so on.")
    elif view == "whole":
        found.append(f"C has another layout than D, because it is {instruction.c.format}: draw operand c to see it.")
    if instruction.form.is_warpgroup:
        found += _warpgroup_notes(instruction, shown, view, request)
    if instruction.form.is_quad:
        found.append(
            "Products 0 to 3 are the ISA's computations 1 to 4; lanes 4p..4p+3 and 16+4p..19+4p hold product p."
        )
    if instruction.addresses:
        found.append("address: the lane that gives the shared-memory address of the line beside it.")
    if any(isinstance(one, SparseOperand) for one in shown) and view in {"logical", "whole"}:
        pattern = instruction.a.sparsity
        found.append(f"Of each {pattern.chunk} columns {pattern.kept} are stored; the metadata says which.")
    if any(isinstance(one, Metadata) for one in shown):
        found.append(_codes_note(instruction.a.sparsity))
    if view == "warp":
        found.append(f"Cells say {_coordinate_words(shown)}; low bits stand left.")
    found += dict.fromkeys(_copies_note(one) for one in shown if isinstance(one, Operand) and one.layout.copies > 1)
    if instruction.arch:
        found.append(f"The ISA leaves wmma fragments open: these are the ones of {instruction.arch}, measured.")
    return tuple(found)


def _memory_notes(shown: Staged, request: Request) -> tuple[str, ...]:
    """The descriptors, in words, what is odd about them, and what is not shown."""
    first = shown.descriptors[0]
    starts = ", ".join(str(one.start) for one in shown.descriptors)
    order = "MN-major" if shown.trans else "K-major"
    swizzle = f"{first.swizzle}-byte swizzle" if first.swizzle else "no swizzle"
    base = f", base offset {first.base_offset}" if first.base_offset else ""
    shape = " x ".join(map(str, shown.operand.shape))
    stored = " (the stored half)" if isinstance(shown.operand, SparseOperand) else ""
    found = [
        f"{shown.operand.role.upper()}: {shape} of {shown.operand.format}{stored}, {order}, {swizzle}.",
        f"Descriptor 0x{first.word:016x}: start {starts}, leading {first.leading}, stride {first.stride}{base}.",
    ]
    problems = [one.text for one in first.problems(shown.operand, trans=shown.trans)]
    found += [f"Odd: {text}." for text in problems]
    found.append("A cell names its line and its elements; it has the same colour in both pictures. Grey: not read.")
    rest = left_out(shown, request.cut)
    return (*found, rest) if rest else tuple(found)


def _warpgroup_notes(instruction: Instruction, shown: list[Registers], view: View, request: Request) -> list[str]:
    """How its threads are named, what is left out, and what no register holds."""
    found = ["T0 to T127 are the threads of the warpgroup: T37 is lane 5 of warp 1."]
    wide = [one for one in shown if isinstance(one, Operand) and one.shape[1] > MOST_COLUMNS]
    if wide and view == "matrix" and request.cut.cols is None:
        names = " and ".join(one.role.upper() for one in wide)
        found.append(
            f"Of the {wide[0].shape[1]} columns of {names}, {MOST_COLUMNS} are shown at once: cols has others."
        )
    if len(shown) > 1:
        held = " and ".join(one.role.upper() for one in instruction.operands.values() if one.home == "shared")
        found.append(f"{held} lies in shared memory, where a descriptor says. C sits where D sits.")
    return found


def _registers_note(operand: Registers) -> str:
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


def _padding_note(operand: Registers) -> str:
    """Where codes are narrower than their place in the register."""
    high, low = operand.bits(0)
    if operand.row.container == operand.format.bits:
        return ""
    return f" Each code fills bits {high}:{low} of {operand.row.container}; the others are padding."


def _copies_note(operand: Operand) -> str:
    return f"Every element of {operand.role.upper()} has {operand.layout.copies} holders; the hardware reads the first."


def _coordinate_words(shown: list[Registers]) -> str:
    """The names of the coordinates in the cells."""
    dims = {one.layout.dims if isinstance(one, Operand) else one.layout.dims[-2:] for one in shown}
    return " or ".join(f"({', '.join(names)})" for names in sorted(dims))
