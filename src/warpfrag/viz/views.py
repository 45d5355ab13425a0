"""The views of an instruction: the grids of a figure, and the notes that accompany them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from warpfrag.errors import InvalidOperand
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, Immediates
from warpfrag.isa.qualifiers import HasForm
from warpfrag.isa.sparsity_patterns import Pattern
from warpfrag.layout.coordinates import LANES
from warpfrag.smem.descriptor import Descriptor
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Metadata, Operand, OperandBase, Scale, SparseOperand
from warpfrag.viz.fragment_grids import (
    WARP_ROWS,
    field_choice,
    field_warp_grid,
    flatten_warps,
    logical_grid,
    matrix_grids,
    metadata_grid,
    of_warp,
    scale_grid,
    warp_grid,
    with_warps,
)
from warpfrag.viz.grids import EVERYTHING, Cut, FigureGrid, Range, Scene
from warpfrag.viz.shared_memory_views import StagedFigure, left_out, staged_grids

View = Literal["matrix", "warp", "logical", "whole", "memory"]
VIEWS: tuple[View, ...] = get_args(View)

AnyOperand = Operand | Metadata | Scale
MAX_COLUMNS = 32  # the columns of a warpgroup's matrix that are shown by default
PRODUCT_ROLES = {"a", "b", "d"}  # the operands that the view "whole" shows


@dataclass(frozen=True)
class ViewOptions:
    """Options of `draw` that apply only to some instructions.

    `parts` selects products of m8n8k4 or matrices of ldmatrix, as (first, last). `warp` selects a warp of a warpgroup,
    and `block` one of a pair of thread blocks. `descriptor` describes an operand in shared memory: a descriptor or
    its word, or several, one for each instruction along k; `trans` means MN-major. `through` is a tcgen05.ld: the
    figure shows the registers after it, loaded from `column` and `base_lane`.
    """

    parts: Range | None = None
    warp: int | None = None
    block: int | None = None
    descriptor: Descriptor | int | Sequence[Descriptor | int] | None = None
    trans: bool = False
    through: str | HasForm | None = None
    column: int = 0
    base_lane: int = 0


DEFAULT_OPTIONS = ViewOptions()


class FigureRequest(NamedTuple):
    """The caller's choices, apart from the instruction, the operand and the view."""

    cut: Cut = EVERYTHING
    immediates: Immediates = DEFAULT_IMMEDIATES
    options: ViewOptions = DEFAULT_OPTIONS
    descriptors: tuple[Descriptor, ...] = ()


def default_view(instruction: Instruction, operand: AnyOperand | None) -> View:
    """Return the view to draw if none is requested."""
    if operand is None:
        roles_in_registers = {each.role for each in instruction.operands.values() if each.storage != "shared"}
        return "whole" if roles_in_registers >= PRODUCT_ROLES else "matrix"
    if operand.storage == "shared":
        return "memory"
    return "logical" if isinstance(operand, SparseOperand) else "matrix"


def scenes(
    instruction: Instruction, operand: AnyOperand | None, view: View, request: FigureRequest
) -> tuple[Scene, ...]:
    """Return the grids of a figure, grouped into scenes."""
    if view == "whole":
        return _whole(instruction, operand, request)
    if view == "memory":
        return tuple((grid,) for grid in staged_grids(_staged(instruction, operand, request), request.cut))
    if operand is None:
        request.cut.reject("a figure of all operands")
    warp = request.options.warp
    if warp is not None and view != "warp":  # a warp of a warpgroup holds only some rows of the matrix
        request = request._replace(cut=request.cut._replace(rows=(WARP_ROWS * warp, WARP_ROWS * (warp + 1) - 1)))
    operands = [operand] if operand else _in_registers(instruction)
    grids = [grid for each in operands for grid in _grids(instruction, each, view, request)]
    if warp is not None and view == "warp":
        grids = [of_warp(grid, warp) for grid in grids]
    return tuple((with_warps(grid),) for grid in grids)


def _staged(instruction: Instruction, operand: AnyOperand | None, request: FigureRequest) -> StagedFigure:
    """Return the figure of an operand in shared memory, which is a tile without gaps unless a descriptor is given."""
    if not (isinstance(operand, Operand) and operand.staged):
        subject = f"operand {operand.role}" if operand else "all operands"
        raise InvalidOperand(f"the memory view shows A or B of wgmma or tcgen05, not {subject} of {instruction}")
    trans = request.options.trans
    return StagedFigure(operand, request.descriptors or tuple(operand.descriptors(trans=trans)), trans=trans)


def _grids(instruction: Instruction, operand: AnyOperand, view: View, request: FigureRequest) -> list[FigureGrid]:
    """Return the grids of one operand in one view."""
    if view == "warp":
        request.cut.reject("the warp view")
    if view == "logical" or isinstance(operand, Metadata | Scale):
        request.cut.within("parts", 1)
    if isinstance(operand, Metadata | Scale):
        return [_words_grid(instruction, operand, view, request)]
    if view == "warp":
        return [warp_grid(operand)]
    if view == "logical":
        if isinstance(operand, SparseOperand):
            return [logical_grid(operand, request.cut)]
        raise InvalidOperand(
            f"{operand.description} is dense: only a sparse A and its metadata have a logical view;"
            " use the matrix or warp view"
        )
    is_wide = operand.layout.lanes > LANES and operand.shape[1] > MAX_COLUMNS
    narrow = is_wide and request.cut.cols is None
    cut = request.cut._replace(cols=(0, MAX_COLUMNS - 1)) if narrow else request.cut
    return matrix_grids(operand, cut, instruction.addresses)


def _in_registers(instruction: Instruction) -> list[AnyOperand]:
    """Return the operands in registers; a warpgroup's C is left out, because it is large and has D's layout."""
    hidden = "c" if instruction.form.operation.scope == "warpgroup" else ""
    # inputs come first, also for movmatrix
    every = sorted(instruction.operands.values(), key=lambda operand: operand.role)
    return [flatten_warps(operand) for operand in every if operand.storage != "shared" and operand.role != hidden]


def _words_grid(instruction: Instruction, operand: Metadata | Scale, view: View, request: FigureRequest) -> FigureGrid:
    """Return the grid of metadata or scale factors."""
    if view == "logical":
        raise InvalidOperand(f"{operand.description} has the views matrix and warp, not {view}")
    choice = field_choice(operand, request.immediates)
    if view == "warp":
        return field_warp_grid(operand, choice)
    if isinstance(operand, Metadata):
        return metadata_grid(operand, choice, instruction.a.sparsity, request.cut)
    return scale_grid(operand, choice, request.cut)


def _whole(instruction: Instruction, operand: AnyOperand | None, request: FigureRequest) -> tuple[Scene, ...]:
    """Return A, B, D, metadata and scale factors, with one scene per mma."""
    if any(each.storage == "shared" for each in instruction.operands.values()):
        raise InvalidOperand(
            f"the whole view shows A, B and D in registers; B of {instruction.name} is in shared memory: use matrix"
        )
    if operand is not None or not instruction.operands.keys() >= PRODUCT_ROLES:
        subject = f"operand {operand.role}" if operand else instruction.name
        raise InvalidOperand(f"the whole view shows A, B and D of an mma; for {subject} use matrix or warp")
    request.cut.reject("the whole view")
    a = [logical_grid(instruction.a)] if isinstance(instruction.a, SparseOperand) else matrix_grids(instruction.a)
    fields = [each for each in instruction.operands.values() if isinstance(each, Metadata | Scale)]
    extras = [_words_grid(instruction, each, "matrix", request) for each in fields]
    products = zip(a, matrix_grids(instruction.b), matrix_grids(instruction.d), strict=True)
    return tuple((*product, *extras) for product in products)


# ---- notes


def notes(instruction: Instruction, operand: AnyOperand | None, view: View, request: FigureRequest) -> tuple[str, ...]:
    """Return the notes of a figure: registers, names, padding, copies, and the GPU of measured fragments."""
    if view == "memory":
        return _memory_notes(_staged(instruction, operand, request), request)
    drawn = [each for each in _in_registers(instruction) if view != "whole" or each.role != "c"]
    operands: list[AnyOperand] = [operand] if operand else drawn
    sentences = [_registers_note(each) for each in operands]
    if view == "whole" and instruction.c.layout == instruction.d.layout:
        sentences.append("C has the layout of D: c0 is in the place of d0, and so on.")
    elif view == "whole":
        sentences.append(
            f"The layout of C differs from that of D, because C is {instruction.c.format}: draw operand c to see it."
        )
    if instruction.form.operation.scope == "warpgroup":
        sentences += _warpgroup_notes(instruction, operands, view, request)
    if any("mma" in each.layout.dims for each in operands):
        sentences.append(
            "Products 0 to 3 are the ISA's computations 1 to 4; lanes 4p..4p+3 and 16+4p..19+4p hold product p."
        )
    if instruction.addresses:
        sentences.append("address: the lane that passes the shared-memory address of the line beside it.")
    if any(isinstance(each, SparseOperand) for each in operands) and view in {"logical", "whole"}:
        pattern = instruction.a.sparsity
        sentences.append(f"Of every {pattern.chunk} columns, {pattern.kept} are stored; the metadata selects them.")
    if any(isinstance(each, Metadata) for each in operands):
        sentences.append(_codes_note(instruction.a.sparsity))
    if view == "warp":
        dims = {each.layout.dims if isinstance(each, Operand) else each.layout.dims[-2:] for each in operands}
        words = " or ".join(f"({', '.join(names)})" for names in sorted(dims))
        sentences.append(f"A cell is {words}; low bits are on the left.")
    sentences += dict.fromkeys(
        f"Every element of {each.role.upper()} has {each.layout.copies} holders; the hardware reads the first."
        for each in [each for each in operands if isinstance(each, Operand) and each.layout.copies > 1]
    )
    if instruction.arch:
        sentences.append(f"The ISA does not define wmma fragments: these were measured on {instruction.arch}.")
    return tuple(sentences)


def _memory_notes(figure: StagedFigure, request: FigureRequest) -> tuple[str, ...]:
    """Return notes on the descriptors, their problems, and what is not shown."""
    operand = figure.operand
    first = figure.descriptors[0]
    starts = ", ".join(str(descriptor.start) for descriptor in figure.descriptors)
    order = "MN-major" if figure.trans else "K-major"
    swizzle = f"{first.swizzle}-byte swizzle" if first.swizzle else "no swizzle"
    base = f", base offset {first.base_offset}" if first.base_offset else ""
    return (
        f"{_matrix_words(operand)}, {order}, {swizzle}.",
        f"Descriptor 0x{first.word:016x}: start {starts}, leading {first.leading}, stride {first.stride}{base}.",
        *(f"Problem: {problem.text}." for problem in first.problems(operand, trans=figure.trans)),
        "A cell names its line and its elements; it has the same colour in both pictures. Grey: not read.",
        *left_out(figure, request.cut),
    )


def _warpgroup_notes(
    instruction: Instruction, operands: list[AnyOperand], view: View, request: FigureRequest
) -> list[str]:
    """Return notes on thread names, omitted parts, and elements that no register holds."""
    sentences = ["T0 to T127 are the threads of the warpgroup: T37 is lane 5 of warp 1."]
    wide = [operand for operand in operands if isinstance(operand, Operand) and operand.shape[1] > MAX_COLUMNS]
    if wide and view == "matrix" and request.cut.cols is None:
        names = " and ".join(operand.role.upper() for operand in wide)
        sentences.append(
            f"Only {MAX_COLUMNS} of the {wide[0].shape[1]} columns of {names} are shown; select others with cols."
        )
    if len(operands) > 1:
        shared = [operand for operand in instruction.operands.values() if operand.storage == "shared"]
        held = " and ".join(operand.role.upper() for operand in shared)
        sentences.append(f"{held} is in shared memory, at the address in its descriptor. C has the layout of D.")
    return sentences


def _matrix_words(operand: OperandBase) -> str:
    stored = " (the stored half)" if isinstance(operand, SparseOperand) else ""
    return f"{operand.role.upper()}: {' x '.join(map(str, operand.shape))} of {operand.format}{stored}"


def _registers_note(operand: OperandBase) -> str:
    """Return a note on an operand's registers and their elements."""
    count = operand.regs * operand.slots
    extents = " x ".join(map(str, operand.shape))
    if isinstance(operand, Metadata):
        return f"metadata: a 4-bit code for each of {extents} chunks of A, in one {operand.ptx_type} word per lane."
    if isinstance(operand, Scale):
        return f"{operand.role}: {extents} of {operand.format}, a byte each, in one {operand.ptx_type} word per lane."
    registers = f"{operand.regs} {operand.ptx_type} register{'s' * (operand.regs > 1)} per lane"
    names = f"{operand.role}0" if count == 1 else f"{operand.role}0..{operand.role}{count - 1}"
    names += ", low bits first" if operand.slots > 1 else ""
    high, low = operand.bits(0)
    is_padded = operand.spec.container != operand.format.bits
    padding = f" Each code fills bits {high}:{low} of {operand.spec.container}; the others are padding."
    return f"{_matrix_words(operand)}, {registers}: {names}.{padding * is_padded}"


def _codes_note(pattern: Pattern) -> str:
    """Return a note that explains the codes of ordered metadata."""
    meanings = (f"{code:04b} columns {' '.join(map(str, kept))}" for code, kept in sorted(pattern.rising.items()))
    return f"Of every {pattern.chunk} columns, a code keeps: {'; '.join(meanings)}."
