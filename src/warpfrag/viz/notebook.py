"""Notebook cards of instructions, operands and layouts: the facts, and a small map of lanes.

A map shows a matrix in the colours of its lanes, without text, so that a fragment can be recognised at a glance. The
tooltip of a patch names its lane. `draw` makes the figure with text.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby, product

from warpfrag import html
from warpfrag.layout.coordinates import Place
from warpfrag.layout.linear_layout import Layout
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import OperandBase
from warpfrag.viz import svg
from warpfrag.viz.fragment_grids import flatten_warps, flattened_layout
from warpfrag.viz.grids import range_text
from warpfrag.viz.palette import COLOURS, Palette, themed

LARGEST = 136  # the side of a map in pixels
CELL = 9  # the largest size of an element in pixels
MAX_MAPS = 4  # the maximum number of planes of a layout that a card shows
MAX_PATCHES = 1024  # larger maps show only their first columns, so that cards stay small
REGISTER_COORDINATES = {"lane", "reg", "slot"}
HEADINGS = ("operand", "format", "shape", "registers", "elements in each")
MAPPED = {"a", "b", "d"}  # C has the same layout as D

Run = tuple[int, int, int, int]  # top, left, height and width of a patch, in elements


def card(subject: Instruction | OperandBase | Layout) -> str:
    """Return the card of an instruction, an operand or a layout, as HTML."""
    if isinstance(subject, Layout):
        return layout_html(subject)
    return operand_html(subject) if isinstance(subject, OperandBase) else instruction_html(subject)


def instruction_html(instruction: Instruction) -> str:
    """Return the card of an instruction: its name, the targets, its operands, and a map of A, B and D."""
    operands = list(instruction.operands.values())
    is_product = instruction.operands.keys() >= MAPPED
    mapped = [operand for operand in operands if operand.role in MAPPED or not is_product]
    fragments = f" Fragments as measured on {instruction.arch}." if instruction.arch else ""
    return _card(
        instruction.name,
        f"<p>Legal on {', '.join(instruction.targets)}.{fragments}</p>",
        html.table(HEADINGS, map(_operand_cells, operands)),
        _maps(figure for operand in mapped for figure in _operand_maps(operand)),
    )


def operand_html(operand: OperandBase) -> str:
    """Return the card of an operand: its contents and its map."""
    facts = html.table(HEADINGS, [_operand_cells(operand)])
    return _card(f"{operand.role} of {operand.instruction}", facts, _maps(_operand_maps(operand)))


def layout_html(layout: Layout) -> str:
    """Return the card of a layout: its extents, its bases, and a map if it is a register layout."""
    ins, outs = (", ".join(f"{name} {extent}" for name, extent in some.items()) for some in (layout.ins, layout.outs))
    threads = flattened_layout(layout)
    is_fragment = set(threads.ins) == REGISTER_COORDINATES and threads.is_onto
    copies = f", each element in {layout.copies} places" if is_fragment and layout.copies > 1 else ""
    maps = _maps(_layout_maps(threads, "")) if is_fragment else ""
    return _card(str(layout), f"<p>from {ins} to {outs}{copies}</p>", maps)


def _card(name: str, *parts: str) -> str:
    """Return a card with the style rules for lane colours; class t5 is for lane 5."""
    return html.card(f"<code>{html.escape(name)}</code>", *parts, style=themed("auto", _lane_fills))


def _lane_fills(palette: Palette) -> str:
    return "".join(f".wf-card .t{lane}{{fill:{palette.lane(lane)}}}" for lane in range(COLOURS))


def _operand_cells(operand: OperandBase) -> tuple[str, ...]:
    shape = " x ".join(map(str, operand.shape))
    if operand.storage == "shared":
        return operand.role, str(operand.format), shape, "shared memory", ""
    return operand.role, str(operand.format), shape, f"{operand.regs} x {operand.ptx_type}", str(operand.slots)


def _maps(figures: Iterable[str]) -> str:
    return f'<div class="maps">{"".join(figures)}</div>'


def _operand_maps(operand: OperandBase) -> Iterator[str]:
    """Yield the maps of an operand in registers, or a sentence if its layout is unknown."""
    if operand.storage != "shared" and operand.spec.unknown:
        yield f"<p>{html.escape(operand.role)}: {html.escape(operand.spec.unknown)}.</p>"
    elif set(flattened_layout(operand.spec.layout).ins) == REGISTER_COORDINATES:
        # for metadata and scale factors, show the part that the first immediates read
        is_matrix = len(operand.role) == 1
        name, max_planes = (operand.role.upper(), MAX_MAPS) if is_matrix else (operand.role, 1)
        yield from _layout_maps(flatten_warps(operand).layout, name, max_planes)


def _layout_maps(layout: Layout, name: str, max_planes: int = MAX_MAPS) -> Iterator[str]:
    """Yield a map for each plane of a layout's last two coordinates."""
    outer = layout.shape[:-2]
    height, width = (1, *layout.shape)[-2:]
    holders: dict[tuple[int, ...], Place] = {}
    for place in layout.places():
        holders.setdefault(tuple(layout.at(**place._asdict())), place)  # the hardware reads the first holder
    planes = list(product(*map(range, outer)))
    for leading in planes[:max_planes]:
        ids = zip(layout.dims, leading, strict=False)
        where = ", ".join(f"{dim} {index}" for dim, index in ids if layout.outs[dim] > 1)
        words = f"{name} {height} x {width}".strip() + (f", {where}" if where else "")
        plane = [[holders[(*leading, row, col)[-len(layout.dims) :]] for col in range(width)] for row in range(height)]
        columns = width
        while len(_runs([line[:columns] for line in plane])) > MAX_PATCHES:
            columns //= 2
        words += f", the first {columns} columns" if columns < width else ""
        yield f"<figure>{_map([line[:columns] for line in plane], words)}<figcaption>{words}</figcaption></figure>"
    if len(planes) > max_planes:
        yield f"<p>and {len(planes) - max_planes} more</p>"


def _map(plane: list[list[Place]], words: str) -> str:
    """Return a map of patches; each patch shows one lane and register, in the lane's colour."""
    height, width = len(plane), len(plane[0])
    wide, tall = min(CELL, LARGEST / width), min(CELL, LARGEST / height)
    patches = []
    for top, left, down, across in _runs(plane):
        lane, reg, _ = plane[top][left]
        rows, cols = range_text(top, top + down - 1), range_text(left, left + across - 1)
        tip = f"[{rows}][{cols}]: lane {lane}, register {reg}"
        box = {"x": left * wide, "y": top * tall, "width": across * wide, "height": down * tall}
        patches.append(svg.rect(**box, title=tip, classes=f"t{lane % COLOURS}"))
    frame: dict[str, int | float | str] = {
        "xmlns": svg.NAMESPACE,
        "role": "img",
        "aria-label": words,
        "width": width * wide,
        "height": height * tall,
        "shape-rendering": "crispEdges",
    }
    return svg.element("svg", frame, "".join(patches))


def _runs(plane: list[list[Place]]) -> list[Run]:
    """Group adjacent elements of a lane and register into patches, along rows or columns, whichever gives fewer."""
    across = [(y, x, 1, length) for y, line in enumerate(plane) for x, length in _lengths(line)]
    down = [(y, x, length, 1) for x, line in enumerate(zip(*plane, strict=True)) for y, length in _lengths(line)]
    return min(across, down, key=len)


def _lengths(line: Iterable[Place]) -> Iterator[tuple[int, int]]:
    """Yield the start and length of each run of elements in the same lane and register."""
    start = 0
    for _, run in groupby(line, key=lambda place: place[:2]):
        length = sum(1 for _ in run)
        yield start, length
        start += length
