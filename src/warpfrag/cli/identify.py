"""`warpfrag identify`: which operands have a layout that somebody else wrote."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING

import click

from warpfrag.cli.support.fragment_argument import read_fragment
from warpfrag.cli.support.matrix_files import read_source
from warpfrag.cli.support.options import complete_file, complete_instruction, integer, json_option
from warpfrag.cli.support.output import NO, echo, print_heading, print_json
from warpfrag.cli.support.verbs import verb
from warpfrag.errors import InvalidOperand, WarpfragError, quote
from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.layout.linear_layout import Layout
from warpfrag.tensorcore.identify import identify

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warpfrag.tensorcore.identify import LoadedOperand, Match, Matches, Near, Tiled

MMA = "mma.m16n8k16.f32.f16.f16.f32"
MAX_LINES = 12
SLOTS = (1, 2, 4, 8, 16, 32)
SHAPE = re.compile(r"\d{1,6}(?:[x,]\d{1,6})*", re.ASCII)


@frozen_dataclass(eq=False)
class LayoutReading:
    """One reading of the text as a layout, and the operands that fit it."""

    layout: Layout
    all_matches: Matches
    transposed: bool = False

    @property
    def matches(self) -> list[Match]:
        """The operands that fit; of a text that may be B's, as CuTe takes it, only those."""
        return [match for match in self.all_matches if match.operand == "b" or not self.transposed]

    @property
    def tiles(self) -> list[Tiled]:
        """The operands of which it is tiles, chosen as the matches are."""
        return [match for match in self.all_matches.tiles if match.operand == "b" or not self.transposed]

    @property
    def words(self) -> str:
        """What this reading assumes."""
        slots = self.layout.slots
        several = f", {slots} values per register" if slots > 1 else ""
        return several + (", read as N x K, the order of B in CuTe" if self.transposed else "")


@verb(
    'warpfrag identify --cute "((_4,_8),(_2,_2,_2)):((_32,_1),(_16,_8,_128))" --shape 16x16',
    "warpfrag identify --triton layout.txt --slots 2              # what a compiler printed, in a file",
    f"warpfrag identify {MMA}:d:col=2     # what else has this fragment's layout",
    'warpfrag identify --cute "tmem_[32b](0x0000.0000) o ((_16,_4),_64):((_65536,_2097152),_1)"   # tensor memory',
)
@click.argument("fragment", required=False, shell_complete=complete_instruction)
@click.option("--cute", metavar="LAYOUT", shell_complete=complete_file, help="A thread-value layout of CuTe.")
@click.option("--triton", metavar="LAYOUT", shell_complete=complete_file, help="A linear layout of Triton.")
@click.option("--steps", metavar="LAYOUT", shell_complete=complete_file, help="What --to json wrote.")
@click.option("--shape", metavar="ROWSxCOLS", help="The extents of the matrix, which CuTe's text does not contain.")
@click.option("--slots", type=integer(1, 64), metavar="N", help="Values per register; without it, all are tried.")
@click.option("--dims", metavar="NAMES", help="Names of the coordinates, if not row and col: matrix,row,col.")
@click.option("--transposed", is_flag=True, help="The text counts columns first. Without it, both are tried for B.")
@click.option("--all", "everything", is_flag=True, help="List every operand, not only the first.")
@json_option
def command(
    *, fragment: str | None, slots: int | None, transposed: bool, everything: bool, as_json: bool, **texts: str | None
) -> int:
    """Which operands of which instructions have a layout, or tiles of which it is made; if none, the closest ones.

    LAYOUT is the text itself, or the name of a file that holds it, or - for stdin. FRAGMENT is a layout of warpfrag,
    written INSTRUCTION:OPERAND, or INSTRUCTION:OPERAND:col=2 for two tiles side by side. The exit status is 0 if an
    operand was found and 1 if none was.
    """
    readings = list(_readings(fragment, texts, slots, transposed=transposed))
    fitting = [reading for reading in readings if reading.matches]
    tiled = {reading: tiles for reading in fitting or readings if (tiles := reading.tiles)}
    first = next(iter(fitting or readings))
    near = [] if first.matches else first.all_matches.near
    loads = [match for reading in readings for match in reading.all_matches.loads]
    if as_json:
        tiles = [match for tiles in tiled.values() for match in tiles]
        print_json("identify", {**_json(fitting or [first], tiles, near), "loads": [_load(match) for match in loads]})
    else:
        for at, reading in enumerate(fitting or [first]):
            _print_matches(reading, everything=everything, below=at > 0)
        _print_groups("Tiles side by side that make it:", _tile_groups(tiled))
        _print_groups("Near, but not the same:", _near_groups(near))
        _print_groups("Loads of tensor memory that leave it in registers:", _load_groups(loads))
    return 0 if fitting or tiled or loads else NO


def _readings(
    fragment: str | None, options: dict[str, str | None], slots: int | None, *, transposed: bool
) -> Iterable[LayoutReading]:
    """Every reading of the text as a layout; the first is the literal one."""
    texts = {name: text for name in ("cute", "triton", "steps") if (text := options[name]) is not None}
    if len(texts) + (fragment is not None) != 1:
        count = len(texts) + (fragment is not None)
        msg = f"expected one layout: FRAGMENT, --cute, --triton or --steps; got {count or 'none'}"
        raise InvalidOperand(msg)
    if fragment is not None:
        layout = read_fragment(fragment, None).layout
        yield LayoutReading(layout, identify(layout))
        return
    ((name, text),) = texts.items()
    shape, dims = options["shape"], options["dims"]
    pasted = PastedLayout(
        notation="json" if name == "steps" else name,
        text=_text(text),
        shape=None if shape is None else _shape(shape),
        dims=None if dims is None else tuple(dims.split(",")),
    )
    plain = pasted.read(slots, transposed=transposed)
    yield LayoutReading(plain, identify(plain))
    if "tlane" in plain.ins and (name == "cute" or slots or plain.slots > 1):
        return  # its text says how many elements share a column
    counts = [plain.slots] if slots or plain.slots > 1 or name == "steps" else SLOTS
    orders = [False, True] if name == "cute" and not transposed and len(plain.dims) == 2 else [transposed]
    for count, order in product(counts, orders):
        if (count, order) == (plain.slots, transposed):
            continue
        with suppress(WarpfragError):  # there are not so many values
            layout = pasted.read(count, transposed=order)
            yield LayoutReading(layout, identify(layout), order and not transposed)


@frozen_dataclass
class PastedLayout:
    """A text in some notation, with the shape and the names of coordinates that it leaves out."""

    notation: str
    text: str
    shape: tuple[int, ...] | None
    dims: tuple[str, ...] | None

    def read(self, slots: int | None, *, transposed: bool) -> Layout:
        """The layout, with so many values per register."""
        return Layout.read(
            self.notation, self.text, shape=self.shape, dims=self.dims, slots=slots, transposed=transposed
        )


def _text(text: str) -> str:
    """A layout itself, which has brackets or arrows in it, or what the file of this name holds."""
    return text if re.search(r"[(<\[{]|->", text) else read_source(text).text()


def _shape(text: str) -> tuple[int, ...]:
    if not SHAPE.fullmatch(text):
        msg = f"--shape is the extents of the matrix, such as 16x8; got {quote(text)}"
        raise InvalidOperand(msg)
    return tuple(map(int, re.split("[x,]", text)))


def _print_matches(reading: LayoutReading, *, everything: bool, below: bool) -> None:
    if below:
        echo()
    print_heading(f"{reading.layout}{reading.words}")
    matches = reading.matches
    if not matches:
        echo("No operand has this layout.")
        return
    limit = len(matches) if everything else MAX_LINES
    for match in matches[:limit]:
        echo(f"  {match.operand:<3} {match.instruction}")
    if len(matches) > limit:
        echo(f"  and {len(matches) - limit} more: --all lists them")


def _print_groups(title: str, groups: dict[str, list[str]]) -> None:
    """Operands that are alike for the same reason on a line."""
    if not groups:
        return
    echo()
    print_heading(title)
    for reason, names in groups.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        echo(f"  {reason}: {names[0]}{more}")


def _tile_groups(tiled: dict[LayoutReading, list[Tiled]]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for reading, tiles in tiled.items():
        for match in tiles:
            counts = ",".join(f"{dim}={count}" for dim, count in match.tiles.items()) or "the same in every warp"
            counts += f" in {match.warps} warps" if match.warps > 1 and match.tiles else ""
            groups.setdefault(counts + reading.words, []).append(f"{match.operand} of {match.instruction}")
    return groups


def _near_groups(near: list[Near]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for match in near:
        groups.setdefault(", ".join(match.differences), []).append(f"{match.operand} of {match.instruction}")
    return groups


def _load_groups(loads: list[LoadedOperand]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for match in loads:
        groups.setdefault(match.load.name, []).append(f"{match.operand} of {match.instruction}")
    return groups


def _load(match: LoadedOperand) -> dict[str, object]:
    return {**_operand(match), "load": match.load.name}


def _json(readings: list[LayoutReading], tiles: list[Tiled], near: list[Near]) -> dict[str, object]:
    return {
        "layouts": [
            {
                "bases": {name: text.split() for name, text in reading.layout.bases.items()},
                "dims": reading.layout.dims,
                "extents": reading.layout.shape,
                "slots": reading.layout.slots,
                "transposed": reading.transposed,
                "operands": [_operand(match) for match in reading.matches],
            }
            for reading in readings
        ],
        "tiles": [{**_operand(match), "tiles": match.tiles, "warps": match.warps} for match in tiles],
        "near": [{**_operand(match), "differences": match.differences} for match in near],
    }


def _operand(match: Match | Tiled | Near | LoadedOperand) -> dict[str, object]:
    return {"instruction": match.instruction.name, "operand": match.operand}
