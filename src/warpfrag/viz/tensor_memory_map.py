"""Tensor memory as a map: lanes from top to bottom, columns from left to right, and what lies there.

128 lanes by up to 512 columns are too many cells to read, and most of them follow from their neighbours. So a cell of
the map is a region: lanes and columns over which an operand counts on without a jump, at most a warp's 32 lanes high.
It names the rows and columns that lie there. The matrix beside it has the same regions in the same colours, and names
their lanes and columns. `element_grid` shows single elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.isa.tmem_layouts import is_half, scaled_lines
from warpfrag.layout.coordinates import LANES
from warpfrag.viz.cells import (
    CellBlock,
    ColourKey,
    Cut,
    FigureCell,
    FigureGrid,
    HeadingLevel,
    HeadingMark,
    bit_words,
    ticks,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from warpfrag.isa.tcgen05_forms import TensorForm
    from warpfrag.layout.coordinates import Place
    from warpfrag.layout.linear_layout import Layout
    from warpfrag.tensorcore.operand import OperandBase
    from warpfrag.viz.cells import Range

ACROSS = 4  # regions side by side, if the columns can be grouped so
LONG_NAMES = 8  # so many regions side by side have words beside their numbers
FLAT = 2  # so many have room for their words in one line
SHADES = 4  # of one hue
HUES = 8
PLURALS = {"row": "rows", "col": "columns", "chunk": "chunks", "byte": "bytes"}
MAX_ROWS, MAX_COLS = 32, 16  # single elements that are shown at once
HALF_LANES = 16
Ranges = tuple["Range | None", ...]  # of each coordinate; None where a region holds nothing


class TensorRegion(NamedTuple):
    """Lanes and columns of a block, and the range of each coordinate that lies there; of padding nothing does."""

    block: int
    lane: int
    column: int
    holds: Ranges


@dataclass(frozen=True)
class TensorMemoryMap:
    """An operand in tensor memory, in regions."""

    operand: OperandBase
    form: TensorForm

    @property
    def layout(self) -> Layout:
        """From (tlane, column, slot), of a pair with block before it, to the coordinates of an element."""
        return self.operand.layout

    @cached_property
    def down(self) -> str:
        """The coordinate that lanes count: rows, of the scale factors of B columns."""
        moves = self.layout.steps("tlane")[0].moves
        return next(name for name, amount in moves._asdict().items() if amount)

    @property
    def across(self) -> str:
        """The other coordinate; a selector is neither."""
        return next(name for name in reversed(self.layout.dims) if name != self.down)

    @cached_property
    def lanes(self) -> int:
        """Lanes of a region: as many as count on, at most a warp's."""
        run = 1
        for step in self.layout.steps("tlane"):
            if getattr(step.moves, self.down) != run or sum(step.moves) != run or run == LANES:
                break
            run *= step.radix
        return run

    @cached_property
    def columns(self) -> int:
        """Columns of a region: as many as count on, and no more than leave several regions side by side."""
        total, group = self.layout.ins["column"], 1
        moved: tuple[int, ...] = ()
        for step in self.layout.steps("column"):
            counts_on = not moved or tuple(step.moves) == tuple(amount * group for amount in moved)
            if total // group <= ACROSS or total // (group * step.radix) < 2 or not counts_on:
                break
            moved = moved or tuple(step.moves)
            group *= step.radix
        return group if counts_along(self.layout, self.down) else 1

    @cached_property
    def extents(self) -> dict[str, int]:
        """How far each coordinate runs in the matrix: the layout of scale factors has padding beyond."""
        extents = dict(self.layout.outs)
        if self.operand.role.startswith("scale"):
            extents[self.down] = len(scaled_lines(self.form, self.operand.role[-1]))
        return extents

    @cached_property
    def _lines(self) -> dict[int, int]:
        """For each coordinate along lanes that is no padding, the row or column that it stands for."""
        if not self.operand.role.startswith("scale"):
            return {index: index for index in range(self.layout.outs[self.down])}
        return {index: line for line, index in enumerate(scaled_lines(self.form, self.operand.role[-1]))}

    @cached_property
    def regions(self) -> tuple[TensorRegion, ...]:
        """Every region, block by block, lane by lane."""
        ins = self.layout.ins
        return tuple(
            TensorRegion(block, lane, column, self._holds(block, lane, column))
            for block in range(ins.get("block", 1))
            for lane in range(0, ins["tlane"], self.lanes)
            for column in range(0, ins["column"], self.columns)
        )

    def _holds(self, block: int, lane: int, column: int) -> Ranges:
        """The ranges of the coordinates in a region."""
        of_block = {"block": block} if "block" in self.layout.ins else {}
        elements = [
            self.layout.at(**of_block, tlane=lane + down, column=column + across, slot=slot)._asdict()
            for down in range(self.lanes)
            for across in range(self.columns)
            for slot in range(self.layout.slots)
        ]
        real = [
            element | {self.down: self._lines[element[self.down]]}
            for element in elements
            if element[self.down] in self._lines
        ]
        return tuple(
            (min(element[name] for element in real), max(element[name] for element in real)) if real else None
            for name in self.layout.dims
        )

    def colour(self, holds: Ranges) -> int:
        """Which colour a region has: a hue for its rows, a shade for its place along the other coordinate."""
        at = dict(zip(self.layout.dims, holds, strict=True))
        down, across = at[self.down], at[self.across]
        if down is None or across is None:
            return 0
        shade = SHADES * across[0] // self.extents[self.across] if self._is_divided else 1
        return SHADES * (down[0] // self._band % HUES) + shade

    @cached_property
    def name(self) -> str:
        """What its titles call it."""
        role = self.operand.role
        words = {"metadata": "metadata", "scale_a": "scale factors of A", "scale_b": "scale factors of B"}
        return words.get(role, role.upper())

    @cached_property
    def _is_divided(self) -> bool:
        """Whether regions differ along the other coordinate."""
        place = self.layout.dims.index(self.across)
        return len({region.holds[place] for region in self.regions if region.holds[place]}) > 1

    @cached_property
    def _band(self) -> int:
        """Rows of a region."""
        at = dict(zip(self.layout.dims, self.regions[0].holds, strict=True))[self.down]
        return at[1] - at[0] + 1 if at else 1

    @property
    def key(self) -> ColourKey:
        """What hues and shades stand for, with a name for each hue."""
        hues = min(HUES, -(-self.extents[self.down] // self._band))
        words = f"one hue for each {self._band} {PLURALS[self.down]}"
        words += f", one shade for each quarter of the {PLURALS[self.across]}" if self._is_divided else ""
        names = ["" for _ in range(SHADES * hues)]
        used = max(self.colour(region.holds) % SHADES for region in self.regions)
        for hue in range(hues):
            last = min((hue + 1) * self._band, self.extents[self.down]) - 1
            names[SHADES * hue + used] = f"{PLURALS[self.down]} {hue * self._band}-{last}"
        return ColourKey(words, tuple(names))


def counts_along(layout: Layout, down: str) -> bool:
    """Whether the first bit of the column moves along another coordinate than lanes do, and nothing else."""
    steps = layout.steps("column")
    return bool(steps) and not getattr(steps[0].moves, down)


def range_words(first: int, last: int) -> str:
    """A range as first-last, or one number."""
    return f"{first}-{last}" if last > first else f"{first}"


def map_grids(tensor: TensorMemoryMap) -> list[FigureGrid]:
    """Tensor memory of each block."""
    blocks = tensor.layout.ins.get("block", 1)
    return [_map_grid(tensor, block, is_pair=blocks > 1) for block in range(blocks)]


def _map_grid(tensor: TensorMemoryMap, block: int, *, is_pair: bool) -> FigureGrid:
    ins = tensor.layout.ins
    regions = [region for region in tensor.regions if region.block == block]
    width = ins["column"] // tensor.columns
    is_long = width <= LONG_NAMES
    cells = [_map_cell(tensor, region, is_long=is_long) for region in regions]
    columns = _level("columns", range(0, ins["column"], tensor.columns), tensor.columns)
    rows = _level("lanes", range(0, ins["tlane"], tensor.lanes), tensor.lanes)
    in_warp = LANES // tensor.lanes
    warps = [HeadingMark(warp * in_warp, (warp + 1) * in_warp - 1, str(warp)) for warp in range(ins["tlane"] // LANES)]
    return FigureGrid(
        operand=tensor.operand.role,
        title=f"{tensor.name[0].upper()}{tensor.name[1:]} in tensor memory" + (f" of block {block}" if is_pair else ""),
        lanes=len(tensor.key.names),
        height=len(rows.marks),
        width=width,
        rows=(HeadingLevel("warp", tuple(warps)), rows),
        cols=(columns,),
        cells=tuple(cells),
        blocks=tuple(CellBlock(cell.y, cell.x, cell.y, cell.x, cell.lines) for cell in cells),
        key=tensor.key,
        is_stacked=width > FLAT,
    )


def _level(name: str, starts: Iterable[int], size: int) -> HeadingLevel:
    """Headings of ranges."""
    return HeadingLevel(
        name,
        tuple(HeadingMark(place, place, range_words(first, first + size - 1)) for place, first in enumerate(starts)),
    )


def _map_cell(tensor: TensorMemoryMap, region: TensorRegion, *, is_long: bool) -> FigureCell:
    """A region: what lies there. Of lanes that another base lane selects it says so."""
    named = [
        (name, held)
        for name, held in zip(tensor.layout.dims, region.holds, strict=True)
        if held is not None and tensor.layout.outs[name] > 1
    ]
    full = [f"{name} {range_words(*held)}" for name, held in named]
    lines = full if is_long else [range_words(*held) for _, held in named]
    where = f"lanes {range_words(region.lane, region.lane + tensor.lanes - 1)}, "
    where += f"columns {range_words(region.column, region.column + tensor.columns - 1)}"
    is_other = is_half(tensor.form) and not tensor.operand.role.startswith("scale") and region.lane & HALF_LANES != 0
    if is_other:
        lines, full = ["base", "lane 16"], [f"{', '.join(full)} where the base lane is 16"]
    elif not named:
        lines, full = ["-"], ["padding"]
    return FigureCell(
        y=region.lane // tensor.lanes,
        x=region.column // tensor.columns,
        coordinates=tuple((name, held[0]) for name, held in named),
        lane=tensor.colour(region.holds),
        reg=0,
        slot="",
        lines=tuple(lines),
        tip=f"{where}: {', '.join(full)}",
        unread=is_other or not named,
    )


def matrix_map(tensor: TensorMemoryMap) -> FigureGrid:
    """The matrix in the same regions and colours; a cell says where it lies."""
    *_, first_dim, second_dim = tensor.layout.dims
    holders: dict[tuple[Range, Range], list[TensorRegion]] = {}
    is_other = is_half(tensor.form) and not tensor.operand.role.startswith("scale")
    for region in tensor.regions:
        at = dict(zip(tensor.layout.dims, region.holds, strict=True))
        down, across = at[first_dim], at[second_dim]
        is_read = at.get("selector") in (None, (0, 0))
        if down is not None and across is not None and is_read and not (is_other and region.lane & HALF_LANES):
            holders.setdefault((down, across), []).append(region)
    rows, cols = (sorted({ranges[place] for ranges in holders}) for place in (0, 1))
    is_long = len(cols) <= LONG_NAMES
    cells = []
    for (down, across), regions in sorted(holders.items()):
        lines = _places(tensor, regions, is_long=is_long)
        element = f"{first_dim} {range_words(*down)}, {second_dim} {range_words(*across)}"
        every = "; ".join(" ".join(_places(tensor, [region], is_long=True)) for region in regions)
        cells.append(
            FigureCell(
                y=rows.index(down),
                x=cols.index(across),
                coordinates=((first_dim, down[0]), (second_dim, across[0])),
                lane=tensor.colour(regions[0].holds),
                reg=0,
                slot="",
                lines=lines,
                tip=f"{element}: {every}",
            )
        )
    choice = ", selector 0" if tensor.layout.outs.get("selector", 1) > 1 else ""
    extents = " x ".join(str(tensor.extents[dim]) for dim in (first_dim, second_dim))
    return FigureGrid(
        operand=tensor.operand.role,
        title=f"{tensor.name[0].upper()}{tensor.name[1:]} ({extents}){choice}",
        lanes=len(tensor.key.names),
        height=len(rows),
        width=len(cols),
        rows=(_ranges_level(first_dim, rows),),
        cols=(_ranges_level(second_dim, cols),),
        cells=tuple(cells),
        blocks=tuple(CellBlock(cell.y, cell.x, cell.y, cell.x, cell.lines) for cell in cells),
        key=tensor.key,
        is_stacked=len(cols) > FLAT,
    )


def _ranges_level(name: str, ranges: list[Range]) -> HeadingLevel:
    return HeadingLevel(name, tuple(HeadingMark(place, place, range_words(*each)) for place, each in enumerate(ranges)))


def _places(tensor: TensorMemoryMap, regions: Sequence[TensorRegion], *, is_long: bool) -> tuple[str, ...]:
    """Where regions that hold the same lie: block, lanes and columns of the first, and how many more there are."""
    first = regions[0]
    lanes = range_words(first.lane, first.lane + tensor.lanes - 1)
    columns = range_words(first.column, first.column + tensor.columns - 1)
    block = [f"block {first.block}" if is_long else f"b{first.block}"] if "block" in tensor.layout.ins else []
    more = [f"+ {len(regions) - 1} more"] if len(regions) > 1 else []
    if len(regions) == 2 and first.block == regions[1].block:
        more = [f"and {range_words(regions[1].lane, regions[1].lane + tensor.lanes - 1)}"]
        return (*block, f"lanes {lanes}" if is_long else lanes, *more, f"columns {columns}" if is_long else columns)
    noun = "columns" if tensor.columns > 1 else "column"
    return (*block, f"lanes {lanes}" if is_long else lanes, f"{noun} {columns}" if is_long else columns, *more)


def element_grid(tensor: TensorMemoryMap, cut: Cut) -> tuple[FigureGrid, bool]:
    """Single elements, and the lane and column of each holder; and whether the default cut left some out."""
    layout = tensor.layout
    *outer, down, across = layout.dims
    rows, is_cut_down = _visible(cut, "rows", tensor.extents[down], MAX_ROWS)
    cols, is_cut_across = _visible(cut, "cols", tensor.extents[across], MAX_COLS)
    part, _ = cut.within("parts", layout.outs[outer[0]] if outer else 1)
    inverse = {line: index for index, line in tensor._lines.items()}  # noqa: SLF001 (of this module)
    cells = []
    for row in range(rows[0], rows[1] + 1):
        for col in range(cols[0], cols[1] + 1):
            at = {down: row, across: col}
            in_layout = at | {tensor.down: inverse[at[tensor.down]]} | dict.fromkeys(outer, part)
            cells.append(_element_cell(tensor, at, layout.where(**in_layout), (row - rows[0], col - cols[0])))
    choice = f", {outer[0]} {part}" if outer else ""
    title = f"{tensor.name[0].upper()}{tensor.name[1:]} ({tensor.extents[down]} x {tensor.extents[across]}){choice}"
    return FigureGrid(
        operand=tensor.operand.role,
        title=title,
        lanes=LANES,
        height=rows[1] - rows[0] + 1,
        width=cols[1] - cols[0] + 1,
        rows=(ticks(down, *rows),),
        cols=(ticks(across, *cols),),
        cells=tuple(cells),
        blocks=tuple(CellBlock(cell.y, cell.x, cell.y, cell.x, cell.lines) for cell in cells),
        key=ColourKey(
            "lanes of tensor memory, a hue for each four; the same in each 32",
            tuple(f"L{lane}" for lane in range(LANES)),
        ),
    ), is_cut_down or is_cut_across


def _visible(cut: Cut, name: str, extent: int, limit: int) -> tuple[Range, bool]:
    """The range that is asked for, or the first few; and whether some are left out unasked."""
    first, last = cut.within(name, extent)
    is_open = getattr(cut, name) is None
    return (first, min(last, limit - 1) if is_open else last), is_open and last >= limit


def _element_cell(tensor: TensorMemoryMap, at: dict[str, int], places: list[Place], yx: tuple[int, int]) -> FigureCell:
    operand, first = tensor.operand, places[0]
    bits = f"[{bit_words(operand, first.slot)}]" if tensor.layout.slots > 1 else ""
    block = f"b{first.block} " if "block" in tensor.layout.ins else ""

    def words(place: Place) -> str:
        of_block = f"block {place.block} " if "block" in tensor.layout.ins else ""
        return f"{of_block}lane {place.tlane} column {place.column}{bits}"

    return FigureCell(
        y=yx[0],
        x=yx[1],
        coordinates=tuple(at.items()),
        lane=first.tlane % LANES,
        reg=first.column,
        slot=str(first.slot),
        lines=(f"{block}L{first.tlane}:", f"c{first.column}{bits}"),
        tip=f"{operand.role.upper()}[{','.join(map(str, at.values()))}] {'; copy '.join(map(words, places))}",
    )
