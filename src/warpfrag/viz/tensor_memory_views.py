"""Figures of tcgen05: operands in tensor memory, and the registers of its loads and stores.

128 lanes by up to 512 columns are too many cells to read, and most cells follow from their neighbours. A cell in a map
of tensor memory is therefore a region: lanes and columns that hold consecutive elements, at most 32 lanes (one warp)
high. It names the rows and columns of the matrix that the region holds. A load is shown by the registers of each thread
of a warp: columns of tensor memory, or elements of an operand that is loaded `through` it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from warpfrag.errors import InvalidOperand, check_index
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.isa.tmem_layouts import copies_in_words, is_half, placement, scaled_lines
from warpfrag.layout.coordinates import LANES
from warpfrag.layout.linear_layout import Layout
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand, OperandBase
from warpfrag.tensorcore.tensor_operand import after_load, load_layout, missing_shape
from warpfrag.viz.drawing import GridDrawing
from warpfrag.viz.fragment_grids import matrix_grids, warp_grid
from warpfrag.viz.grids import (
    ColourKey,
    Cut,
    FigureCell,
    FigureGrid,
    HeadingLevel,
    HeadingMark,
    Range,
    labels,
    range_text,
    single_blocks,
)
from warpfrag.viz.palette import COLOURS
from warpfrag.viz.views import FigureRequest, View

ACROSS = 4  # the number of regions side by side, if the columns can be grouped in that way
LONG_NAMES = 8  # with up to this number of regions side by side, cells name the coordinates, as in `row 0-31`
FLAT = 2  # with up to this number of regions side by side, a cell's text is on one line
COLOURS_KEY = ColourKey("one colour for each part of the matrix; copies of a part have the same colour", ())
HALF_LANES = 16
WARPS = 4
MAX_COLUMNS = 32  # the number of a load's columns that are shown by default
Ranges = tuple["Range | None", ...]  # the range of each coordinate, or None for padding


class TensorRegion(NamedTuple):
    """A region of a block's tensor memory: its first lane and column, and the range of each coordinate in it."""

    block: int
    lane: int
    column: int
    holds: Ranges


@dataclass(frozen=True)
class TensorMemoryMap:
    """An operand in tensor memory, divided into regions."""

    operand: OperandBase
    form: TensorForm

    @property
    def layout(self) -> Layout:
        """The map from (tlane, column, slot), with block first for a pair, to the coordinates of an element."""
        return self.operand.layout

    @cached_property
    def down(self) -> str:
        """The coordinate that lanes count: rows or, for the scale factors of B, columns."""
        moves = self.layout.steps("tlane")[0].moves
        return next(name for name, amount in moves._asdict().items() if amount)

    @cached_property
    def lanes(self) -> int:
        """The number of lanes in a region: they hold consecutive rows, and belong to one warp."""
        run = 1
        for step in self.layout.steps("tlane"):
            if getattr(step.moves, self.down) != run or sum(step.moves) != run or run == LANES:
                break
            run *= step.radix
        return run

    @cached_property
    def columns(self) -> int:
        """The number of columns in a region; regions are evenly spaced, and several fit side by side."""
        total, group = self.layout.ins["column"], 1
        moved: tuple[int, ...] = ()
        for step in self.layout.steps("column"):
            counts_on = not moved or tuple(step.moves) == tuple(amount * group for amount in moved)
            if total // group <= ACROSS or total // (group * step.radix) < 2 or not counts_on:
                break
            moved = moved or tuple(step.moves)
            group *= step.radix
        first = self.layout.steps("column")[:1]
        return group if first and not getattr(first[0].moves, self.down) else 1

    @cached_property
    def lines(self) -> dict[int, int]:
        """For each coordinate along the lanes, the row or column that it represents, without padding."""
        if not self.is_scale:
            return {index: index for index in range(self.layout.outs[self.down])}
        return {index: line for line, index in enumerate(scaled_lines(self.form, self.operand.role[-1]))}

    @property
    def is_scale(self) -> bool:
        """True for scale factors."""
        return self.operand.role.startswith("scale")

    @cached_property
    def regions(self) -> tuple[TensorRegion, ...]:
        """All regions, ordered by block and then by lane."""
        ins = self.layout.ins
        return tuple(
            TensorRegion(block, lane, column, self._holds(block, lane, column))
            for block in range(ins.get("block", 1))
            for lane in range(0, ins["tlane"], self.lanes)
            for column in range(0, ins["column"], self.columns)
        )

    def _holds(self, block: int, lane: int, column: int) -> Ranges:
        """Return the range of each coordinate in a region."""
        of_block = {"block": block} if "block" in self.layout.ins else {}
        elements = [
            self.layout.at(**of_block, tlane=lane + down, column=column + across, slot=slot)._asdict()
            for down in range(self.lanes)
            for across in range(self.columns)
            for slot in range(self.layout.slots)
        ]
        real = [
            element | {self.down: self.lines[element[self.down]]}
            for element in elements
            if element[self.down] in self.lines
        ]
        return tuple(
            (min(element[name] for element in real), max(element[name] for element in real)) if real else None
            for name in self.layout.dims
        )

    @cached_property
    def colours(self) -> dict[Ranges, int]:
        """The colour of each part of the matrix that a region holds."""
        parts = dict.fromkeys(region.holds for region in self.regions if None not in region.holds)
        return {part: number % COLOURS for number, part in enumerate(parts)}

    @cached_property
    def name(self) -> str:
        """The name of the operand in titles."""
        role = self.operand.role
        words = {"metadata": "Metadata", "scale_a": "Scale factors of A", "scale_b": "Scale factors of B"}
        return words.get(role, role.upper())


def map_grids(tensor: TensorMemoryMap, block: int | None = None) -> list[FigureGrid]:
    """Return the grid of tensor memory for each block, or for one block."""
    blocks = tensor.layout.ins.get("block", 1)
    chosen = range(blocks) if block is None else [check_index("block", block, blocks)]
    return [_map_grid(tensor, each, f" of block {each}" if blocks > 1 else "") for each in chosen]


def _map_grid(tensor: TensorMemoryMap, block: int, of_block: str) -> FigureGrid:
    ins = tensor.layout.ins
    across = ins["column"] // tensor.columns
    cells = tuple(
        _map_cell(tensor, region, is_long=across <= LONG_NAMES) for region in tensor.regions if region.block == block
    )
    columns, lanes = (
        labels(name, [range_text(first, first + size - 1) for first in range(0, extent, size)])
        for name, extent, size in (("columns", ins["column"], tensor.columns), ("lanes", ins["tlane"], tensor.lanes))
    )
    in_warp = LANES // tensor.lanes
    warps = [HeadingMark(warp * in_warp, (warp + 1) * in_warp - 1, str(warp)) for warp in range(ins["tlane"] // LANES)]
    return FigureGrid(
        tensor.operand.role,
        f"{tensor.name} in tensor memory{of_block}",
        COLOURS,
        (HeadingLevel("warp", tuple(warps)), lanes),
        (columns,),
        cells,
        single_blocks(cells),
        key=COLOURS_KEY,
        is_stacked=across > FLAT,
    )


def _map_cell(tensor: TensorMemoryMap, region: TensorRegion, *, is_long: bool) -> FigureCell:
    """Return the cell for a region, with the rows and columns of the matrix that the region holds."""
    named = [
        (name, held)
        for name, held in zip(tensor.layout.dims, region.holds, strict=True)
        if held is not None and tensor.layout.outs[name] > 1
    ]
    full = [f"{name} {range_text(*held)}" for name, held in named]
    lines = full if is_long else [range_text(*held) for _, held in named]
    # base lane 16 selects the region, for an operand that fills only half of the lanes
    is_other = is_half(tensor.form) and not tensor.is_scale and region.lane & HALF_LANES != 0
    if is_other:
        lines, full = ["base", "lane 16"], [f"{', '.join(full)} where the base lane is 16"]
    elif not named:
        lines, full = ["-"], ["padding"]
    lanes = range_text(region.lane, region.lane + tensor.lanes - 1)
    columns = range_text(region.column, region.column + tensor.columns - 1)
    return FigureCell(
        region.lane // tensor.lanes,
        region.column // tensor.columns,
        tuple((name, held[0]) for name, held in named),
        tensor.colours.get(region.holds, 0),
        tuple(lines),
        f"lanes {lanes}, columns {columns}: {', '.join(full)}",
        unread=is_other or not named,
    )


# ---- figures


def is_in_tensor_memory(instruction: Instruction, operand: OperandBase | None) -> bool:
    """Return True if this module draws the operand: it belongs to tcgen05 and is not in shared memory."""
    return isinstance(instruction.form, TensorForm) and (operand is None or operand.storage != "shared")


def tensor_drawing(
    instruction: Instruction, operand: OperandBase | None, view: View | None, request: FigureRequest
) -> GridDrawing:
    """Return the figure of a tcgen05 instruction, or of one of its operands."""
    form = instruction.form
    if not instruction.operands or not isinstance(form, TensorForm):
        if isinstance(form, TensorForm) and form.op.startswith("tcgen05.mma"):
            raise missing_shape(form, "a figure")
        raise InvalidOperand(f"{instruction} has no operands to draw")
    through = request.options.through
    if operand is None and through is None and form.shape.m:
        title, notes, grids = _all_maps(instruction, form, view, request)
    else:
        chosen = operand or next(iter(instruction.operands.values()))
        if chosen.storage == "tensor" and through is None:
            title, notes, grids = _operand_map(chosen, form, view, request)
        else:
            title, notes, grids = _registers(instruction, chosen, view, request)
    return GridDrawing(title, instruction.name, tuple(notes), tuple((grid,) for grid in grids))


def _check_view(view: View | None, views: tuple[str, ...], figure: str) -> None:
    if view is not None and view not in views:
        raise InvalidOperand(f"{figure} has only the view{'s' * (len(views) > 1)} {' and '.join(views)}, not {view}")


def _reject_load(request: FigureRequest, figure: str) -> None:
    """Raise InvalidOperand if a load's warp or address is given without a load."""
    options = request.options
    if options.warp is not None or options.column or options.base_lane:
        raise InvalidOperand(
            f"warp, column and base_lane select a load: for {figure}, pass `through` too, such as a tcgen05.ld"
        )


Contents = tuple[str, list[str], list[FigureGrid]]  # title, notes and grids


def _all_maps(instruction: Instruction, form: TensorForm, view: View | None, request: FigureRequest) -> Contents:
    """Return the tensor memory of every operand that an instruction keeps there."""
    _check_view(view, ("memory",), "a figure of all operands in tensor memory")
    _reject_load(request, str(instruction))
    request.cut.reject("a figure of all operands")
    tensors = [
        TensorMemoryMap(operand, form)
        for role, operand in sorted(instruction.operands.items())
        if operand.storage == "tensor" and role != "c"
    ]
    notes = [note for tensor in tensors for note in _map_notes(tensor)]
    notes.append("B is in shared memory, at the address in its descriptor; A may be there too. C is the old D.")
    grids = [grid for tensor in tensors for grid in map_grids(tensor, request.options.block)]
    return f"Tensor memory, {form.shape}", [*dict.fromkeys(notes)], grids


def _operand_map(operand: OperandBase, form: TensorForm, view: View | None, request: FigureRequest) -> Contents:
    """Return the memory of one operand."""
    _check_view(view, ("memory",), f"{operand.description} in tensor memory")
    _reject_load(request, operand.description)
    request.cut.reject("a map of tensor memory")
    tensor = TensorMemoryMap(operand, form)
    name = f"Operand {tensor.name}" if len(operand.role) == 1 else tensor.name
    return f"{name} in tensor memory, {form.shape}", [*_map_notes(tensor)], map_grids(tensor, request.options.block)


def _map_notes(tensor: TensorMemoryMap) -> Iterator[str]:
    """Yield notes on the contents, the number of columns, the data path, and the reason for copies."""
    operand, layout = tensor.operand, tensor.layout
    extents = " x ".join(str(extent) for extent in operand.shape)
    each = f"{layout.slots} in each" if layout.slots > 1 else "one in each"
    contents = "codes of 4 bits" if operand.role == "metadata" else f"of {operand.format}"
    yield f"{tensor.name}: {extents} {contents} in {layout.ins['column']} columns of 32 bits, {each}."
    if not tensor.is_scale:
        yield f"Data path {placement(tensor.form)[0]} of the PTX ISA."
    if layout.copies > 1:
        words = copies_in_words(tensor.form, operand.role, layout.copies)
        yield f"{words[0].upper()}{words[1:]}."


def _registers(instruction: Instruction, operand: OperandBase, view: View | None, request: FigureRequest) -> Contents:
    """Return the part of tensor memory, or of a loaded operand, that each thread of one warp holds."""
    _check_view(view, ("matrix", "warp"), "a figure of registers")
    options = request.options
    warp = check_index("warp", options.warp or 0, WARPS)
    if options.through is not None:
        held = after_load(operand, options.through, options.column, options.base_lane)
        load = getattr(options.through, "name", options.through)
    else:
        layout = load_layout(instruction, options.column, options.base_lane)
        held = replace(operand, spec=replace(operand.spec, layout=layout))
        load = instruction.name
    fixed, of_block = {"warp": warp}, ""
    blocks = held.layout.ins.get("block", 1)
    block = check_index("block", options.block or 0, blocks)
    if blocks > 1:
        fixed["block"], of_block = block, f" of block {block}"
    of_warp = _of_warp(held, fixed)
    is_access = "tlane" in of_warp.layout.dims
    notes = [*_load_notes(of_warp, str(load), warp, request)]
    if view == "warp":
        request.cut.reject("the warp view")
        grids = [replace(warp_grid(of_warp), title=f"The registers of warp {warp}")]
        notes.append(f"A cell is ({', '.join(of_warp.layout.dims)}); low bits are on the left.")
    else:
        cut, is_cut = _held_part(of_warp, request.cut)
        grids = matrix_grids(of_warp, cut)
        if is_access:
            grids = [replace(grid, title=f"Tensor memory of warp {warp}, by lane and column") for grid in grids]
        if is_cut:
            notes.append(f"Only {MAX_COLUMNS} columns are shown; select others with cols.")
    name = operand.role.upper() if len(operand.role) == 1 else operand.role
    subject = "Registers of warp" if is_access else f"{name} in the registers of warp"
    return f"{subject} {warp}{of_block}", notes, grids


def _of_warp(operand: OperandBase, fixed: dict[str, int]) -> Operand:
    """Return one warp's registers as a warp-level operand; each tensor-memory column is an element."""
    layout = operand.layout
    dims = tuple(name for name in layout.dims if name != "slot")
    origin = layout.at(**fixed, lane=0, reg=0, slot=0)
    extents = {name: layout.outs[name] for name in dims}
    held = Layout.of_steps(extents, register_steps(layout, dims), tuple(getattr(origin, dim) for dim in dims))
    return Operand(replace(operand.spec, layout=held), operand.instruction)


def register_steps(layout: Layout, dims: tuple[str, ...]) -> dict[str, list[tuple[int, tuple[int, ...]]]]:
    """Return, for lane, reg and slot, the radix of each digit and its moves along `dims`."""
    return {
        name: [(step.radix, tuple(getattr(step.moves, dim) for dim in dims)) for step in layout.steps(name)]
        for name in ("lane", "reg", "slot")
    }


def _held_part(operand: Operand, cut: Cut) -> tuple[Cut, bool]:
    """Return the part that registers hold, by default at most MAX_COLUMNS columns, and True if columns are left out."""
    down, across = operand.layout.dims[-2:]
    elements = [operand.layout.at(**place._asdict()) for place in operand.layout.places()]
    rows, cols = ([getattr(element, name) for element in elements] for name in (down, across))
    last = min(max(cols), min(cols) + MAX_COLUMNS - 1)
    visible = cut._replace(rows=cut.rows or (min(rows), max(rows)), cols=cut.cols or (min(cols), last))
    return visible, cut.cols is None and last < max(cols)


def _load_notes(operand: Operand, load: str, warp: int, request: FigureRequest) -> Iterator[str]:
    """Yield notes on the load, its address, and the lanes of its warp."""
    options, count = request.options, operand.regs
    address = f"column {options.column}, base lane {options.base_lane}"
    yield f"{load}, {address}: {count} register{'s' * (count > 1)} per thread."
    if operand.slots > 1 and "tlane" in operand.layout.dims:
        yield "A register holds the lower halves of two columns."
    first = LANES * warp + options.base_lane
    yield f"Warp {warp} of four accesses the lanes from {first} on; each further warp starts 32 lanes higher."
