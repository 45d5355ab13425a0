"""Figures of tcgen05: operands in tensor memory, and the registers of its loads and stores.

An operand in tensor memory is a map by lane and column (`tensor_map`), or single elements. A load is shown by what each
thread of a warp holds: columns of tensor memory, or elements of an operand that is loaded `through` it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.errors import InvalidOperand, check_index
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.isa.tmem_layouts import copies_in_words, placement
from warpfrag.layout.coordinates import LANES
from warpfrag.layout.linear_layout import Layout
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.tensor_operand import after_load, load_layout, missing_shape
from warpfrag.viz.by_element import matrix_grids
from warpfrag.viz.by_lane import warp_grid
from warpfrag.viz.tensor_memory_map import (
    HALF_LANES,
    MAX_COLS,
    MAX_ROWS,
    TensorMemoryMap,
    element_grid,
    map_grids,
    matrix_map,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warpfrag.isa.qualifiers import HasForm
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import OperandBase
    from warpfrag.viz.cells import Cut, FigureGrid
    from warpfrag.viz.views import Scene, View

WARPS = 4
MAX_COLUMNS = 32  # of a load, that are shown at once


class TensorRequest(NamedTuple):
    """What the reader asks for, beside instruction and operand."""

    cut: Cut
    warp: int | None = None
    block: int | None = None
    through: str | HasForm | None = None
    column: int = 0
    base_lane: int = 0


class TensorPicture(NamedTuple):
    """What a figure is made of."""

    title: str
    notes: tuple[str, ...]
    scenes: tuple[Scene, ...]


def is_in_tensor_memory(instruction: Instruction, operand: OperandBase | None) -> bool:
    """Whether this module draws it: what tcgen05 has in tensor memory and in registers, not in shared memory."""
    return isinstance(instruction.form, TensorForm) and (operand is None or operand.storage != "shared")


def tensor_picture(
    instruction: Instruction, operand: OperandBase | None, view: View | None, request: TensorRequest
) -> TensorPicture:
    """The figure of an instruction of tcgen05, or of one of its operands."""
    form = instruction.form
    if not instruction.operands or not isinstance(form, TensorForm):
        if isinstance(form, TensorForm) and form.op.startswith("tcgen05.mma"):
            raise missing_shape(form, "a figure")
        msg = f"{instruction} has no operands to draw"
        raise InvalidOperand(msg)
    if operand is None and request.through is None and form.shape.m:
        return _every_map(instruction, form, view, request)
    chosen = operand or next(iter(instruction.operands.values()))
    if chosen.storage == "tensor" and request.through is None:
        return _operand_map(chosen, form, view, request)
    return _registers(instruction, chosen, view, request)


def _refuse_view(view: View | None, views: tuple[str, ...], what: str) -> None:
    if view is not None and view not in views:
        msg = f"{what} has the views {' and '.join(views)}, not {view}"
        raise InvalidOperand(msg)


def _refuse_load(request: TensorRequest, what: str) -> None:
    """Warps and addresses of loads say nothing of tensor memory itself."""
    if request.warp is not None or request.column or request.base_lane:
        msg = f"warp, column and base_lane are of a load: {what} has them with `through`, such as a tcgen05.ld"
        raise InvalidOperand(msg)


def _every_map(instruction: Instruction, form: TensorForm, view: View | None, request: TensorRequest) -> TensorPicture:
    """All that an instruction has in tensor memory; C is the old D."""
    _refuse_view(view, ("memory",), "a figure of all operands in tensor memory")
    _refuse_load(request, str(instruction))
    request.cut.refuse("a figure of all operands")
    held = [
        TensorMemoryMap(operand, form)
        for role, operand in sorted(instruction.operands.items())
        if operand.storage == "tensor" and role != "c"
    ]
    notes = [note for tensor in held for note in _map_notes(tensor)]
    notes.append("B lies in shared memory, where a descriptor says; A may. C is the old D.")
    scenes = tuple((grid,) for tensor in held for grid in _of_block(map_grids(tensor), request.block))
    return TensorPicture(f"Tensor memory, {form.shape}", tuple(dict.fromkeys(notes)), scenes)


def _of_block(grids: list[FigureGrid], block: int | None) -> list[FigureGrid]:
    return grids if block is None else [grids[check_index("block", block, len(grids))]]


def _operand_map(operand: OperandBase, form: TensorForm, view: View | None, request: TensorRequest) -> TensorPicture:
    """One operand: matrix and memory, in the same colours, or single elements."""
    _refuse_view(view, ("memory", "matrix"), f"{operand.description} in tensor memory")
    _refuse_load(request, operand.description)
    tensor = TensorMemoryMap(operand, form)
    name = f"Operand {tensor.name}" if len(operand.role) == 1 else f"{tensor.name[0].upper()}{tensor.name[1:]}"
    if view == "matrix":
        grid, is_cut = element_grid(tensor, request.cut)
        notes = [*_map_notes(tensor), "A cell names the lane (L) and the column (c) of tensor memory."]
        if is_cut:
            notes.append(f"At most {MAX_ROWS} x {MAX_COLS} elements are shown at once: rows and cols have others.")
        return TensorPicture(f"{name}, {form.shape}", tuple(notes), ((grid,),))
    request.cut.refuse("a map of tensor memory")
    grids = [matrix_map(tensor), *_of_block(map_grids(tensor), request.block)]
    return TensorPicture(
        f"{name} in tensor memory, {form.shape}", tuple(_map_notes(tensor)), tuple((grid,) for grid in grids)
    )


def _map_notes(tensor: TensorMemoryMap) -> Iterator[str]:
    """What lies there, in how many columns, on which data path, and why there are copies."""
    operand, layout = tensor.operand, tensor.layout
    extents = " x ".join(str(extent) for extent in operand.shape)
    each = f"{layout.slots} in each" if layout.slots > 1 else "one in each"
    what = "codes of 4 bits" if operand.role == "metadata" else f"of {operand.format}"
    name = f"{tensor.name[0].upper()}{tensor.name[1:]}"
    yield f"{name}: {extents} {what} in {layout.ins['column']} columns of 32 bits, {each}."
    if not operand.role.startswith("scale"):
        yield f"Data path {placement(tensor.form)[0]} of the PTX ISA."
    if layout.copies > 1:
        words = copies_in_words(tensor.form, operand.role, layout.copies)
        yield f"{words[0].upper()}{words[1:]}."


def _registers(
    instruction: Instruction, operand: OperandBase, view: View | None, request: TensorRequest
) -> TensorPicture:
    """What each thread of one warp holds of tensor memory, or of an operand that is loaded."""
    _refuse_view(view, ("matrix", "warp"), "a figure of registers")
    warp = check_index("warp", request.warp or 0, WARPS)
    if request.through is not None:
        held = after_load(operand, request.through, request.column, request.base_lane)
        load = getattr(request.through, "name", request.through)
    else:
        layout = load_layout(instruction, request.column, request.base_lane)
        held = replace(operand, spec=replace(operand.spec, layout=layout))
        load = instruction.name
    fixed = {"warp": warp}
    blocks = held.layout.ins.get("block", 1)
    if blocks > 1:
        fixed["block"] = check_index("block", request.block or 0, blocks)
    elif request.block is not None:
        check_index("block", request.block, blocks)
    of_warp = _of_warp(held, fixed)
    is_access = "tlane" in of_warp.layout.dims
    notes = [*_load_notes(of_warp, str(load), warp, request, is_access=is_access)]
    if view == "warp":
        request.cut.refuse("the warp view")
        grids = [replace(warp_grid(of_warp), title=f"The registers of warp {warp}")]
        notes.append(f"Cells say ({', '.join(of_warp.layout.dims)}); low bits stand left.")
    else:
        cut, is_cut = _seen(of_warp, request.cut)
        grids = matrix_grids(of_warp, cut)
        if is_access:
            grids = [replace(grid, title=f"Tensor memory of warp {warp}, by lane and column") for grid in grids]
        if is_cut:
            notes.append(f"Of its columns {MAX_COLUMNS} are shown at once: cols has others.")
    of_block = f" of block {fixed['block']}" if blocks > 1 else ""
    name = operand.role.upper() if len(operand.role) == 1 else operand.role
    what = "Registers of warp" if is_access else f"{name} in the registers of warp"
    return TensorPicture(f"{what} {warp}{of_block}", tuple(notes), tuple((grid,) for grid in grids))


def _of_warp(operand: OperandBase, fixed: dict[str, int]) -> Operand:
    """The registers of one warp, as an operand of a warp; a column of tensor memory is one element there."""
    layout = operand.layout
    dims = [name for name in layout.dims if name != "slot"]
    steps = {
        name: [(step.radix, tuple(getattr(step.moves, dim) for dim in dims)) for step in layout.steps(name)]
        for name in ("lane", "reg", "slot")
    }
    origin = layout.at(**fixed, lane=0, reg=0, slot=0)
    extents = {name: layout.outs[name] for name in dims}
    held = Layout.of_steps(extents, steps, tuple(getattr(origin, dim) for dim in dims))
    return Operand(replace(operand.spec, layout=held), operand.instruction)


def _seen(operand: Operand, cut: Cut) -> tuple[Cut, bool]:
    """The part of the matrix that a warp holds something of, at most so many columns; and whether some are left out."""
    down, across = operand.layout.dims[-2:]
    elements = [operand.layout.at(**place._asdict()) for place in operand.layout.places()]
    rows, cols = ([getattr(element, name) for element in elements] for name in (down, across))
    last = min(max(cols), min(cols) + MAX_COLUMNS - 1)
    visible = cut._replace(rows=cut.rows or (min(rows), max(rows)), cols=cut.cols or (min(cols), last))
    return visible, cut.cols is None and last < max(cols)


def _load_notes(operand: Operand, load: str, warp: int, request: TensorRequest, *, is_access: bool) -> Iterator[str]:
    """The load, its address, its warp, and how elements are named."""
    registers = f"{operand.regs} register{'s' * (operand.regs > 1)}"
    names = f"{operand.role}0..{operand.role}{operand.regs * operand.slots - 1}"
    if not is_access:
        yield f"{load}, column {request.column}, base lane {request.base_lane}: {registers} per thread."
    else:
        halves = " A register has the lower halves of two columns." if operand.slots > 1 else ""
        yield f"{registers} per thread: {names}.{halves}"
    first = LANES * warp + request.base_lane
    rows = {getattr(operand.layout.at(**place._asdict()), operand.layout.dims[-2]) for place in operand.layout.places()}
    half = is_access and len(rows) <= HALF_LANES
    reach = f"lanes {first} to {first + (HALF_LANES if half else LANES) - 1}" if is_access else f"lanes from {first} on"
    yield f"Warp {warp} of four reaches {reach} of tensor memory; each further warp 32 lanes further."
