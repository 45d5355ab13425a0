"""What a notebook shows of an instruction, an operand or a layout: a card with the facts and a small map of lanes.

A map is a matrix in the colours of the lanes that hold it, without words: enough to recognise a fragment at a glance.
Point at a patch to read whose it is. `draw` has the figure with words.
"""

from __future__ import annotations

from itertools import groupby, product
from typing import TYPE_CHECKING

from warpfrag import html
from warpfrag.viz import svg
from warpfrag.viz.palette import COLOURS
from warpfrag.viz.warpgroup_lanes import flatten_warps, flattened_layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from warpfrag.layout.coordinates import Place
    from warpfrag.layout.linear_layout import Layout
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import OperandBase

LARGEST = 136  # pixels along a side of a map
CELL = 9  # pixels of an element, where that is less
MAX_MAPS = 4  # of a layout with more planes, only so many are shown
MAX_PATCHES = 1024  # of a map; of a larger one the first columns are shown, so that a card stays light
PLACE = {"lane", "reg", "slot"}
MAPPED = {"a", "b", "d"}  # of a product: C lies where D does

Run = tuple[int, int, int, int]  # top, left, height and width of a patch, in elements


def card(kind: str, thing: object) -> str:
    """The card of an instruction, operand or layout, as HTML."""
    return CARDS[kind](thing)


def instruction_html(instruction: Instruction) -> str:
    """An instruction as a card: its name, where it is legal, its operands, and a map of A, B and D."""
    operands = list(instruction.operands.values())
    is_product = instruction.operands.keys() >= MAPPED
    mapped = [operand for operand in operands if operand.role in MAPPED or not is_product]
    rows = [_operand_cells(operand) for operand in operands]
    fragments = f" Fragments as measured on {instruction.arch}." if instruction.arch else ""
    return html.card(
        f"<code>{svg.escape(instruction.name)}</code>",
        f"<p>Legal on {', '.join(instruction.targets)}.{fragments}</p>",
        html.table(("operand", "format", "shape", "registers", "elements in each"), rows),
        _maps(figure for operand in mapped for figure in _operand_maps(operand)),
    )


def operand_html(operand: OperandBase) -> str:
    """An operand as a card: what it holds, whose it is, and a map of it."""
    return html.card(
        f"<code>{svg.escape(operand.role)} of {svg.escape(operand.instruction)}</code>",
        html.table(("operand", "format", "shape", "registers", "elements in each"), [_operand_cells(operand)]),
        _maps(_operand_maps(operand)),
    )


def layout_html(layout: Layout) -> str:
    """A layout as a card: how far its coordinates run, its bases, and a map of it if it is one of registers."""
    ins, outs = (", ".join(f"{name} {extent}" for name, extent in some.items()) for some in (layout.ins, layout.outs))
    threads = flattened_layout(layout)
    is_fragment = set(threads.ins) == PLACE and threads.is_onto
    copies = f", each element in {layout.copies} places" if is_fragment and layout.copies > 1 else ""
    return html.card(
        f"<code>{svg.escape(str(layout))}</code>",
        f"<p>from {ins} to {outs}{copies}</p>",
        _maps(_layout_maps(threads, "")) if is_fragment else "",
    )


CARDS: dict[str, Callable[..., str]] = {
    "instruction": instruction_html,
    "operand": operand_html,
    "layout": layout_html,
}


def _operand_cells(operand: OperandBase) -> tuple[str, ...]:
    shape = " x ".join(map(str, operand.shape))
    if operand.storage == "shared":
        return operand.role, str(operand.format), shape, "shared memory", ""
    return operand.role, str(operand.format), shape, f"{operand.regs} x {operand.ptx_type}", str(operand.slots)


def _maps(figures: Iterable[str]) -> str:
    return f'<div class="maps">{"".join(figures)}</div>'


def _operand_maps(operand: OperandBase) -> Iterator[str]:
    """The maps of an operand; a sentence where its layout is unknown."""
    if operand.storage == "shared":
        return
    if operand.spec.unknown:
        yield f"<p>{svg.escape(operand.role)}: {svg.escape(operand.spec.unknown)}.</p>"
    else:
        is_matrix = len(operand.role) == 1  # of metadata and scale factors, what the first choice reads
        name, max_planes = (operand.role.upper(), MAX_MAPS) if is_matrix else (operand.role, 1)
        yield from _layout_maps(flatten_warps(operand).layout, name, max_planes)


def _layout_maps(layout: Layout, name: str, max_planes: int = MAX_MAPS) -> Iterator[str]:
    """A map for each plane that the last two coordinates span."""
    outer = layout.shape[:-2]
    height, width = (1, *layout.shape)[-2:]
    holders: dict[tuple[int, ...], Place] = {}
    for place in layout.places():
        holders.setdefault(tuple(layout.at(**place._asdict())), place)  # the first is the one the hardware reads
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
    """Patches of one lane and register in the colour of the lane."""
    height, width = len(plane), len(plane[0])
    wide, tall = min(CELL, LARGEST / width), min(CELL, LARGEST / height)
    patches = []
    for top, left, down, across in _runs(plane):
        lane, reg, _ = plane[top][left]
        rows, cols = _range(top, down), _range(left, across)
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


def _range(first: int, length: int) -> str:
    return f"{first}" if length == 1 else f"{first}-{first + length - 1}"


def _runs(plane: list[list[Place]]) -> list[Run]:
    """Neighbours of one lane and register as patches, along rows or along columns: whichever gives fewer."""
    across = [(y, x, 1, length) for y, line in enumerate(plane) for x, length in _lengths(line)]
    down = [(y, x, length, 1) for x, line in enumerate(zip(*plane, strict=True)) for y, length in _lengths(line)]
    return min(across, down, key=len)


def _lengths(line: Iterable[Place]) -> Iterator[tuple[int, int]]:
    """Where runs of one lane and register start, and how long they are."""
    start = 0
    for _, run in groupby(line, key=lambda place: place[:2]):
        length = sum(1 for _ in run)
        yield start, length
        start += length
