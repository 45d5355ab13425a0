"""`warpfrag identify`: find the operands that match a layout from another tool."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product
from typing import Annotated, NamedTuple

from warpfrag.cli.io.arguments import FragmentName, complete_file
from warpfrag.cli.io.fragment_argument import read_fragment
from warpfrag.cli.io.matrix_files import read_source
from warpfrag.cli.io.output import NO, echo, print_heading
from warpfrag.cli.io.verbs import Answer, Param, integer, verb
from warpfrag.errors import InvalidOperand, WarpfragError, quote
from warpfrag.grouping import grouped
from warpfrag.layout.linear_layout import Layout
from warpfrag.tensorcore.identify import LoadedOperand, Match, Near, Tiled

MAX_LINES = 12
SLOTS = (1, 2, 4, 8, 16, 32)
SHAPE = re.compile(r"\d{1,6}(?:[x,]\d{1,6})*", re.ASCII)

LayoutText = Annotated[str, Param("LAYOUT", complete=complete_file)]


class ReadLayout(NamedTuple):
    """One reading of the input as a layout, and the operands that match it.

    bases: for each input, the move of each bit, low bit first
    dims: names of the coordinates
    extents: extents of the coordinates
    slots: values per register
    transposed: true if the text was read as N x K, the order of B in CuTe
    operands: operands that match
    """

    bases: dict[str, list[str]]
    dims: tuple[str, ...]
    extents: tuple[int, ...]
    slots: int
    transposed: bool
    operands: list[Match]


class Identification(NamedTuple):
    """The operands that match a layout.

    layouts: each reading of the input that matches an operand; if none does, the simplest reading
    tiles: operands whose tiles form the layout
    near: if no operand matches, similar operands, nearest first
    loads: tensor-memory loads after which registers hold an accumulator in this layout
    """

    layouts: list[ReadLayout]
    tiles: list[Tiled]
    near: list[Near]
    loads: list[LoadedOperand]


class LayoutReading:
    """One reading of the text, and the operands that match it; text in CuTe's order for B matches only B."""

    def __init__(self, layout: Layout, *, transposed: bool = False) -> None:
        """Find the matching operands."""
        from warpfrag.tensorcore.identify import identify as find_operands

        found = find_operands(layout)
        self.layout, self.transposed = layout, transposed
        self.matches: list[Match] = [match for match in found if match.operand == "b" or not transposed]
        self.tiles: list[Tiled] = [match for match in found.tiles if match.operand == "b" or not transposed]
        self.near: list[Near] = found.near
        self.loads: list[LoadedOperand] = found.loads

    @property
    def assumptions(self) -> str:
        """Return the assumptions of this reading as text."""
        slots = self.layout.slots
        several = f", {slots} values per register" if slots > 1 else ""
        return several + (", read as N x K, the order of B in CuTe" if self.transposed else "")


@verb
def identify(
    fragment: FragmentName | None = None,
    *,
    cute: LayoutText | None = None,
    triton: LayoutText | None = None,
    shape: str | None = None,
    slots: Annotated[int, Param("N", integer(1, 64))] | None = None,
    dims: str | None = None,
    transposed: bool = False,
    all_: bool = False,
) -> Answer[Identification]:
    """Find the operands that have a given layout, or whose tiles form it; otherwise show the most similar operands.

    LAYOUT is the text itself, the name of a file that contains it, or - for stdin. INSTRUCTION:OPERAND is one of
    warpfrag's own layouts; INSTRUCTION:OPERAND:col=2 has two tiles side by side. The exit status is 1
    if no operand is found.

    Options:
        cute: A CuTe thread-value layout.
        triton: A Triton linear layout.
        shape (ROWSxCOLS): The extents of the matrix, which CuTe's text does not contain.
        slots: Values per register; default: every number is tried.
        dims (NAMES): Names of the coordinates, such as matrix,row,col; default: row,col.
        transposed: The text has columns first; default: both orders are tried for B.
        all_: List every matching operand, not only the first few.

    For example:
        warpfrag identify --cute "((_4,_8),(_2,_2,_2)):((_32,_1),(_16,_8,_128))" --shape 16x16
        warpfrag identify --triton layout.txt --slots 2              # compiler output, in a file
        warpfrag identify mma.m16n8k16.f32.f16.f16.f32:d:col=2     # other operands with this fragment's layout
        warpfrag identify --cute "tmem_[32b](0x0000.0000) o ((_16,_4),_64):((_65536,_2097152),_1)"   # tensor memory
    """
    texts = {name: text for name, text in (("cute", cute), ("triton", triton)) if text is not None}
    count = len(texts) + (fragment is not None)
    if count != 1:
        raise InvalidOperand(f"expected one layout: INSTRUCTION:OPERAND, --cute or --triton; got {count or 'none'}")
    if fragment is not None:
        readings = [LayoutReading(read_fragment(fragment, None).layout)]
    else:
        ((notation, text),) = texts.items()
        readings = list(_readings(PastedLayout(notation, text, shape, dims), slots, transposed=transposed))
    fitting = [reading for reading in readings if reading.matches]
    tiled = [reading for reading in fitting or readings if reading.tiles]
    shown = fitting or readings[:1]
    near = [] if fitting else shown[0].near
    loads = [match for reading in readings for match in reading.loads]
    facts = Identification(
        [_read_layout(reading) for reading in shown],
        [match for reading in tiled for match in reading.tiles],
        near,
        loads,
    )

    def show() -> None:
        for number, reading in enumerate(shown):
            if number:
                echo()
            _print_matches(reading, limit=len(reading.matches) if all_ else MAX_LINES)
        tiles = ((_tile_text(match) + reading.assumptions, match) for reading in tiled for match in reading.tiles)
        _print_groups("Operands whose tiles form this layout:", tiles)
        _print_groups("Similar operands:", ((", ".join(match.differences), match) for match in near))
        _print_groups("Tensor-memory loads that give this layout:", ((match.load.name, match) for match in loads))

    return Answer(facts, show, 0 if fitting or tiled or loads else NO)


class PastedLayout(NamedTuple):
    """The text of a layout, with the shape and coordinate names that it omits."""

    notation: str
    text: str
    shape: str | None
    dims: str | None

    def read(self, slots: int | None, *, transposed: bool) -> Layout:
        """Return the layout, with `slots` values per register."""
        shape, dims = self.shape, self.dims
        if shape is not None and not SHAPE.fullmatch(shape):
            raise InvalidOperand(f"--shape: expected the extents of the matrix, such as 16x8; got {quote(shape)}")
        return Layout.read(
            self.notation,
            self.text if re.search(r"[(<\[{]|->", self.text) else read_source(self.text).text(),
            shape=None if shape is None else tuple(map(int, re.split("[x,]", shape))),
            dims=None if dims is None else tuple(dims.split(",")),
            slots=slots,
            transposed=transposed,
        )


def _readings(pasted: PastedLayout, slots: int | None, *, transposed: bool) -> Iterator[LayoutReading]:
    """Yield every reading of the text, the literal one first."""
    plain = pasted.read(slots, transposed=transposed)
    yield LayoutReading(plain)
    if "tlane" in plain.ins and (pasted.notation == "cute" or slots or plain.slots > 1):
        return  # the text contains the number of elements per column
    counts = [plain.slots] if slots or plain.slots > 1 else SLOTS
    tries_both = pasted.notation == "cute" and not transposed and len(plain.dims) == 2
    for count, is_turned in product(counts, [False, True] if tries_both else [transposed]):
        if (count, is_turned) == (plain.slots, transposed):
            continue
        with suppress(WarpfragError):  # fewer values than slots
            yield LayoutReading(pasted.read(count, transposed=is_turned), transposed=is_turned and not transposed)


def _read_layout(reading: LayoutReading) -> ReadLayout:
    layout = reading.layout
    bases = {name: text.split() for name, text in layout.bases.items()}
    return ReadLayout(bases, layout.dims, layout.shape, layout.slots, reading.transposed, reading.matches)


def _print_matches(reading: LayoutReading, limit: int) -> None:
    print_heading(f"{reading.layout}{reading.assumptions}")
    if not reading.matches:
        echo("No operand has this layout.")
    for match in reading.matches[:limit]:
        echo(f"  {match.operand:<3} {match.instruction}")
    if len(reading.matches) > limit:
        echo(f"  and {len(reading.matches) - limit} more: --all lists them")


def _print_groups(title: str, matches: Iterable[tuple[str, Tiled | Near | LoadedOperand]]) -> None:
    """Print operands that match for the same reason on one line."""
    groups = grouped((reason, f"{match.operand} of {match.instruction}") for reason, match in matches)
    if groups:
        echo()
        print_heading(title)
    for reason, names in groups.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        echo(f"  {reason}: {names[0]}{more}")


def _tile_text(match: Tiled) -> str:
    counts = ",".join(f"{dim}={count}" for dim, count in match.tiles.items()) or "the same in every warp"
    return counts + (f" in {match.warps} warps" if match.warps > 1 and match.tiles else "")
