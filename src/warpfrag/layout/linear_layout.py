"""A layout is one linear map from places in a warp to elements of a matrix.

**In a sentence.** A fragment spreads a matrix over the registers of 32 lanes; its layout maps every (lane, reg, slot)
to the (row, col) of the element stored there.

**A small case.** The accumulator of an m16n8 instruction: lane 5 holds rows 1 and 9, columns 2 and 3.

    reg 0: (1, 2)     reg 1: (1, 3)     reg 2: (9, 2)     reg 3: (9, 3)

**The rule.** Write lane, reg and slot in binary. Every bit that is 1 contributes a fixed step, its *basis*, and the
contributions are combined by xor. A few bases therefore describe the whole map. The accumulator is

    lane: c2 c4 r1 r2 r4    reg: c1 r8    slot: none

read as: bit 0 of the lane moves 2 columns, bit 1 moves 4 columns, bits 2, 3 and 4 move 1, 2 and 4 rows; bit 0 of
the register moves 1 column, bit 1 moves 8 rows. Lane 5 is bits 0 and 2: columns + 2, rows + 1.

**Examples.** `at` evaluates the map, `where` inverts it:

    >>> from warpfrag.layout.linear_layout import Layout
    >>> accumulator = Layout.parse(dict(row=16, col=8), lane="c2 c4 r1 r2 r4", reg="c1 r8")
    >>> accumulator.at(lane=5, reg=2, slot=0)
    Coordinate(row=9, col=2)
    >>> accumulator.where(row=9, col=3)
    [Place(lane=5, reg=3, slot=0)]

**The algebra.** Every operation returns a new layout. `outer @ inner` composes two layouts and `inverse` inverts one;
`low * high` places copies of `low` as `high` describes, and `divide_left` and `divide_right` undo that; `tiled` repeats
a tile, `fix` holds an input constant, `sublayout` drops axes, `rename` and `reshape` rename and regroup axes. Two tiles
of the accumulator form a 16 x 16 matrix. Its elements are already in the lanes that the A of the next mma needs:

    >>> a = Layout.parse(dict(row=16, col=16), lane="c2 c4 r1 r2 r4", reg="r8 c8", slot="c1")
    >>> print(a.inverse() @ accumulator.tiled(col=2))
    lane: l1 l2 l4 l8 l16 | reg: s1 r1 r2 | slot: -
    >>> (a.inverse() @ accumulator.tiled(col=2)).is_trivial_over("lane")
    True

**Several coordinates at once.** A basis may move more than one coordinate: `c4+r1` moves 4 columns and 1 row. Swizzles
and compositions usually have such bases.

**Copies.** A basis may be `0`: that bit moves nothing, so two places hold the same element (wmma stores f16
fragments twice). This is why the map goes from places to elements: the other direction is not a function.
`where` lists every holder. The hardware reads the first one, and `inverse` returns it.

**Sizes that are not powers of two.** 24 columns are 8 times 3: three bits and a *digit* that counts 0, 1, 2. The text
spells the digit as the bits it would fill, `c8 c16`, and the fourth value is omitted. Such a digit moves from one axis
to another unchanged; only bits are combined by xor.

    >>> wide = Layout.parse(dict(row=16, col=24), lane="c2 c4 r1 r2 r4", reg="c1 r8 c8 c16")
    >>> wide.ins, wide.at(lane=0, reg=11)
    ({'lane': 32, 'reg': 12, 'slot': 1}, Coordinate(row=8, col=17))

**Proof.** Reading a layout checks its *rank*: the bases must reach every bit of every coordinate, none of them twice,
so each element has a holder and no element is lost. A wrong basis in a table row is found when the row is read.

**More axes.** Other axes are possible. m8n8k4 has a third coordinate, `mma`; ldmatrix has `matrix`; the metadata word
of a sparse instruction is a map to (selector, row, chunk); a warpgroup has `warp` before `lane`. All of them are
layouts. Only this package reads the columns of a map; other packages call `at`, `where`, `steps`, `runs` and `along`,
and print `bases`.

**Elsewhere.** CuTe, Triton and MLIR have their own notations for these maps: `to` writes them, `read` parses them.

    >>> accumulator.to("cute")
    '((_4,_8),(_2,_2)):((_32,_1),(_16,_8))'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, overload

from warpfrag.errors import InvalidOperand, check_flag, check_index, quote
from warpfrag.grouping import grouped
from warpfrag.layout import converter
from warpfrag.layout.axes import Axis, digits_of
from warpfrag.layout.bit_matrix import Echelon, diagonals
from warpfrag.layout.coordinates import REGISTERS, Coordinate, Place, coordinate_type
from warpfrag.layout.linear_map import LinearMap, check_axis
from warpfrag.layout.providers import card

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_INDEX = 1 << 32  # the exclusive upper limit of a coordinate of any map
LONGEST_NUMBER = 10  # the most digits of a number in the text of a basis; every axis is shorter
MAY_BE_LEFT_OUT = frozenset({"reg", "slot"})
"""Inputs that default to 0 in `at`."""


class DigitRun(NamedTuple):
    """A run of adjacent digits that stay adjacent: it contributes source // divide % modulo * multiply.

    Contributions are combined by xor; if they share no bits, they may also be added.
    """

    source: str
    divide: int
    modulo: int
    multiply: int


class Basis(NamedTuple):
    """A digit of an input: its radix, and the distance that one step of it moves each coordinate."""

    radix: int
    moves: Coordinate


@dataclass(frozen=True, eq=False)
class Layout(LinearMap):
    """A linear map from places to elements; see the top of this file. `linear_map` has the algebra."""

    # ---- reading and writing

    @classmethod
    def parse(cls, extents: Mapping[str, int], **bases: str) -> Layout:
        """Parse the bases of each input axis from text, low bit first.

        `c2` moves col by 2 (the first letter names the coordinate), `c4+r1` moves two coordinates, `0` moves none.
        Raises InvalidOperand if an element has no place or two bits make the same move.
        """
        if not isinstance(extents, Mapping) or not all(isinstance(name, str) for name in extents):
            raise InvalidOperand(
                f"expected the coordinates and their extents, such as {{'row': 16, 'col': 8}}; got {quote(extents)}"
            )
        outs = tuple(Axis.of_size(name, size) for name, size in extents.items())
        letters = [axis.name[:1] for axis in outs]
        if len(set(letters)) < len(letters) or not all(letters):
            raise InvalidOperand(f"coordinates must have different first letters, got {', '.join(map(quote, extents))}")
        for axis, text in bases.items():
            if not isinstance(text, str):
                raise InvalidOperand(f"{axis}: expected bases such as 'c2 c4 r1', got {quote(text)}")
        if "lane" in bases:
            bases = {dim: bases.get(dim, "") for dim in REGISTERS if dim in bases or dim in MAY_BE_LEFT_OUT} | bases
        digits_of_input = {axis: read_bases(axis, text, outs) for axis, text in bases.items()}
        ins = tuple(Axis(axis, tuple(radix for radix, _ in digits)) for axis, digits in digits_of_input.items())
        layout = cls(ins, outs, tuple(column for digits in digits_of_input.values() for _, column in digits))
        layout._check_rank()
        return layout

    @classmethod
    def of_steps(
        cls,
        extents: Mapping[str, int],
        steps: Mapping[str, Iterable[tuple[int, Iterable[int]]]],
        origin: Iterable[int] | None = None,
    ) -> Layout:
        """Return the map with these moves: for each input digit, its radix and its distance along each coordinate."""
        _check_steps(extents, steps, origin)
        digits = {name: [(radix, tuple(moves)) for radix, moves in of_input] for name, of_input in steps.items()}
        larger = [(radix, moves) for of_input in digits.values() for radix, moves in of_input if radix > 2]
        outs = tuple(
            Axis.cut(name, size, ((moves[at], radix) for radix, moves in larger if moves[at]))
            for at, (name, size) in enumerate(extents.items())
        )

        def column(moves: Iterable[int]) -> int:
            mask, start = 0, 0
            for axis, index in zip(outs, moves, strict=True):
                mask |= axis.mask(index) << start
                start += len(axis.radices)
            return mask

        ins = tuple(Axis(name, tuple(radix for radix, _ in of_input)) for name, of_input in digits.items())
        columns = tuple(column(moves) for of_input in digits.values() for _, moves in of_input)
        return cls(ins, outs, columns, 0 if origin is None else column(origin))

    @classmethod
    def read(
        cls,
        notation: str,
        source: object,
        *,
        shape: Sequence[int] | None = None,
        slots: int | None = None,
        dims: Sequence[str] | None = None,
        transposed: bool = False,
    ) -> Layout:
        """Read a layout in another notation: cute, triton and json are text; numpy is a set of index arrays.

        CuTe's text has neither extents nor registers: `shape` gives the extents of the coordinates, and `slots` the
        number of values per register (default 1). With `transposed`, the text counts columns first, as CuTe does for B,
        which it treats as N x K. `dims` names the coordinates if they are not row and col.
        """
        options = {
            "shape": shape,
            "slots": slots,
            "dims": dims,
            "transposed": check_flag("transposed", transposed) or None,
        }
        read = converter(notation, "read")
        return cast("Layout", read(source, **{name: value for name, value in options.items() if value is not None}))

    @overload
    def to(self, notation: Literal["numpy"]) -> dict[str, NDArray[np.intp]]: ...

    @overload
    def to(self, notation: Literal["cute", "triton", "mlir", "c", "json"], *, transposed: bool = False) -> str: ...

    @overload
    def to(self, notation: str, *, transposed: bool = False) -> str | dict[str, NDArray[np.intp]]: ...

    def to(self, notation: str, *, transposed: bool = False) -> str | dict[str, NDArray[np.intp]]:
        """Write the layout in another notation: cute, triton, mlir, c and json are text, numpy is a set of arrays.

        Raises InvalidOperand if the notation cannot express it. `transposed` is for cute: columns first, as CuTe orders
        B.
        """
        options = {"transposed": True} if check_flag("transposed", transposed) else {}
        return cast("str | dict[str, NDArray[np.intp]]", converter(notation, "write")(self, **options))

    def __repr__(self) -> str:
        """Format the extents of the coordinates, and the bases."""
        extents = ", ".join(f"{name} {size}" for name, size in self.outs.items())
        return f"<Layout of {extents}; {self}>"

    def __str__(self) -> str:
        """Return the bases, as they are written in a table row."""
        spelled = [f"{name}: {text or '-'}" for name, text in self.bases.items()]
        start = "+".join(
            f"{name[0]}{index}"
            for name, index in zip(self.outs, self._unpacked(self._packed_origin), strict=True)
            if index
        )
        return " | ".join(spelled + ([f"from {start}"] if start else []))

    @cached_property
    def bases(self) -> dict[str, str]:
        """The bases of each input axis as text, as `parse` reads them."""
        texts = {}
        for axis, digits in digits_of(self.in_axes):
            words = (self._words(self.columns[digit], self._in_radices[digit]) for digit in digits)
            texts[axis.name] = " ".join(chain.from_iterable(words))
        return texts

    def _words(self, column: int, radix: int) -> list[str]:
        moves = (
            (axis.name, weight)
            for axis, digits in digits_of(self.out_axes)
            for weight, digit in zip(axis.weights, digits, strict=True)
            if column >> digit & 1
        )
        return write_basis(radix, moves)

    def _check_rank(self) -> None:
        """Raise InvalidOperand if an element has no place or a basis is redundant."""
        rows, repeated = Echelon(), []
        for column in self.columns:
            repeated += [column] * bool(column and not rows.rest(column))
            rows.add(column)
        lost = [1 << digit for digit in range(len(self._out_radices)) if rows.rest(1 << digit)]
        faults = {
            "it loses": [word for column in lost for word in self._words(column, 2)],
            "it repeats": [word for column in repeated for word in self._words(column, 2)],
        }
        reasons = [f"{fault} {' '.join(dict.fromkeys(words))}" for fault, words in faults.items() if words]
        if reasons:
            shape = tuple(self.outs.values())
            raise InvalidOperand(f"layout {self} of shape {shape} does not have full rank: {'; '.join(reasons)}")

    def _repr_html_(self) -> str:
        """Return an HTML card for notebooks."""
        return card(self)

    # ---- sizes

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the coordinates."""
        return tuple(self.outs)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the coordinates."""
        return tuple(self.outs.values())

    @property
    def lanes(self) -> int:
        """The number of lanes: 32, or fewer for the addresses of a small ldmatrix."""
        return self.ins.get("lane", 1)

    @property
    def regs(self) -> int:
        """The number of registers per lane."""
        return self.ins.get("reg", 1)

    @property
    def slots(self) -> int:
        """The number of elements per register."""
        return self.ins.get("slot", 1)

    # ---- evaluating

    def at(self, **place: int) -> Coordinate:
        """Return the element at a place, as a named tuple of its coordinates; reg and slot default to 0."""
        ins = self.ins.keys()
        if place.keys() != ins and not ins - MAY_BE_LEFT_OUT <= place.keys() <= ins:
            kind = "inputs" if issubclass(self._place_type, Place) else "coordinates"
            raise InvalidOperand(f"expected the {kind} {', '.join(self.ins)}; got {', '.join(place) or 'none'}")
        packed = self._packed_origin
        for name, table in self._packed_steps:
            packed ^= table[check_index(name, place.get(name, 0), len(table))]
        return self._element_type._make(self._unpacked(packed))

    def where(self, **element: int) -> list[Place]:
        """Return every place that holds an element, in order; the hardware reads the first.

        The list is empty if the map does not reach the element, for example if a load covers only some columns.
        """
        if not self.is_onto:
            return self._reached(element)
        back = self._first_place
        first = back._pack(back.at(**element))  # noqa: SLF001 (of this type)
        make: Callable[[Iterable[int]], Any] = self._place_type._make
        return sorted(make(back._unpacked(first ^ other)) for other in self._packed_copies)  # noqa: SLF001

    def _reached(self, element: dict[str, int]) -> list[Place]:
        """Return the places of an element, or an empty list if the map does not reach it."""
        if element.keys() != self.outs.keys():
            raise InvalidOperand(f"expected the coordinates {', '.join(self.outs)}; got {', '.join(element) or 'none'}")
        indices = tuple(check_index(name, element[name], size) for name, size in self.outs.items())
        return self._by_element.get(indices, [])

    @cached_property
    def _by_element(self) -> dict[tuple[int, ...], list[Place]]:
        """The places of every element that the map reaches, sorted."""
        return grouped((tuple(self.at(**place._asdict())), place) for place in self.places())

    def places(self) -> Iterator[Place]:
        """Yield every place; the first input varies slowest."""
        make: Callable[[Iterable[int]], Any] = self._place_type._make
        return map(make, product(*map(range, self.ins.values())))

    @cached_property
    def elements(self) -> list[int]:
        """The element at every place, in the order of `places`, as its index in row-major order."""
        packed = [self._packed_origin]
        for _, table in self._packed_steps:
            packed = [start ^ step for start in packed for step in table]
        indices = [0] * len(packed)
        for (shift, ones, axis), size in zip(self._spans, self.outs.values(), strict=True):
            digits = [number >> shift & ones for number in packed]
            coordinates = {bits: axis.unpack(bits) if axis else bits for bits in set(digits)}
            indices = [index * size + coordinates[bits] for index, bits in zip(indices, digits, strict=True)]
        return indices

    # A packed element is one integer in which every digit has its own bits, so a single xor combines all axes.

    @cached_property
    def _shifts(self) -> list[int]:
        """The first bit of each output digit in a packed element."""
        widths = [(radix - 1).bit_length() for radix in self._out_radices]
        return [sum(widths[:digit]) for digit in range(len(widths))]

    def _packed(self, mask: int) -> int:
        """Return the packed element whose digits in `mask` are 1 and whose other digits are 0."""
        packed = 0
        for shift in self._shifts:
            packed |= (mask & 1) << shift
            mask >>= 1
        return packed

    def _pack(self, indices: Iterable[int]) -> int:
        packed = 0
        shifts = iter(self._shifts)
        for axis, index in zip(self.out_axes, indices, strict=True):
            for radix in axis.radices:
                index, digit = divmod(index, radix)  # noqa: PLW2901 (the rest of the index)
                packed |= digit << next(shifts)
        return packed

    def _unpacked(self, packed: int) -> list[int]:
        """Return the coordinates of a packed element."""
        return [
            axis.unpack(packed >> shift & ones) if axis else packed >> shift & ones for shift, ones, axis in self._spans
        ]

    @cached_property
    def _spans(self) -> list[tuple[int, int, Axis | None]]:
        """For each coordinate, its first bit in a packed element, its mask, and its axis unless that is plain."""
        spans, start = [], 0
        for axis in self.out_axes:
            width = sum((radix - 1).bit_length() for radix in axis.radices)
            spans.append((start, (1 << width) - 1, None if axis.is_plain else axis))
            start += width
        return spans

    @cached_property
    def _packed_origin(self) -> int:
        return self._packed(self.origin)

    @cached_property
    def _packed_copies(self) -> list[int]:
        """The xor differences between packed places that hold the same element."""
        return [self._first_place._packed(mask) for mask in self._kernel_span]  # noqa: SLF001 (of this type)

    @cached_property
    def _packed_steps(self) -> list[tuple[str, list[int]]]:
        """For each input, the contribution of each of its indices to a packed element."""
        tables = []
        for axis, digits in digits_of(self.in_axes):
            table = [0]
            for radix, digit in zip(axis.radices, digits, strict=True):
                step = self._packed(self.columns[digit])
                table = [count * step ^ lower for count in range(radix) for lower in table]
            tables.append((axis.name, table))
        return tables

    # ---- derived views

    def runs(self, out: str) -> list[DigitRun]:
        """Return the fewest runs of digits that form a coordinate, highest first."""
        check_axis(out, self.outs)
        axis, targets = next(pair for pair in digits_of(self.out_axes) if pair[0].name == out)
        runs = []
        for source, digits in digits_of(self.in_axes):
            pairs = (
                (at, to)
                for at, digit in enumerate(digits)
                for to, target in enumerate(targets)
                if self.columns[digit] >> target & 1
            )
            for at, to, length in diagonals(pairs):
                modulo = prod(source.radices[at : at + length])
                runs.append(DigitRun(source.name, source.weights[at], modulo, axis.weights[to]))
        return sorted(runs, key=lambda run: (-run.multiply, -run.divide))

    def digits(self, source: str) -> list[tuple[int, int]]:
        """Return the weight and the radix of each digit of an input, low first."""
        check_axis(source, self.ins)
        axis = next(axis for axis in self.in_axes if axis.name == source)
        return list(zip(axis.weights, axis.radices, strict=True))

    def steps(self, source: str) -> list[Basis]:
        """Return the moves of each digit of an input, low digit first; `of_steps` is the inverse."""
        check_axis(source, self.ins)
        digits = next(digits for axis, digits in digits_of(self.in_axes) if axis.name == source)
        return [Basis(self._in_radices[digit], self._element(self.columns[digit])) for digit in digits]

    @property
    def start(self) -> Coordinate:
        """The element at which all inputs are 0."""
        return self._element(self.origin)

    def _element(self, mask: int) -> Coordinate:
        return self._element_type._make(self._unpacked(self._packed(mask)))

    def along(self, source: str) -> str:
        """Return the coordinate along which an input counts in steps of one, or an empty string if there is none."""
        check_axis(source, self.ins)
        size = self.ins[source]
        for out in self.outs:
            alone = all(run.source != source for other in self.outs if other != out for run in self.runs(other))
            if alone and [run for run in self.runs(out) if run.source == source] == [DigitRun(source, 1, size, 1)]:
                return out
        return ""

    # ---- private helpers

    @cached_property
    def _element_type(self) -> type[Coordinate]:
        return coordinate_type(tuple(self.outs))

    @cached_property
    def _place_type(self) -> type[Coordinate]:
        return coordinate_type(tuple(self.ins))


def _check_steps(extents: object, steps: object, origin: object) -> None:
    """Raise InvalidOperand unless the arguments describe a map: names, extents, and the moves of each input digit."""

    def is_index(number: object) -> bool:
        return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < MAX_INDEX

    def are_moves(moves: object) -> bool:
        if not isinstance(moves, tuple | list) or not isinstance(extents, Mapping):
            return False
        return len(moves) == len(extents) and all(map(is_index, moves))

    def is_digit(digit: object) -> bool:
        return isinstance(digit, tuple | list) and len(digit) == 2 and is_index(digit[0]) and are_moves(digit[1])

    is_extents = isinstance(extents, Mapping) and all(isinstance(name, str) for name in extents)
    is_steps = isinstance(steps, Mapping) and all(
        isinstance(name, str) and isinstance(digits, tuple | list) and all(map(is_digit, digits))
        for name, digits in steps.items()
    )
    if not (is_extents and is_steps and (origin is None or are_moves(origin))):
        raise InvalidOperand(
            "expected coordinates with their extents, and for each input its digits as (radix, moves), such as "
            f"{{'row': 2}}, {{'lane': [(2, (1,))]}}; got {quote(extents)}, {quote(steps)}, {quote(origin)}"
        )


# --- the text of bases: `c2 c4 r1+c8 0`, one word for each bit of an input, low bit first. A letter names a coordinate,
# and a number is the distance that it moves; `+` joins the moves of one bit, and `0` moves nothing. A digit that is
# larger than a bit is spelled as the bits that it would fill: the highest digit of 24 columns counts to 3 and is
# written `c8 c16`.


def read_bases(name: str, text: str, outs: tuple[Axis, ...]) -> list[tuple[int, int]]:
    """Return the radix and the column of each digit of an input.

    A column has a bit for each output digit that it moves.
    """
    return list(_columns(name, [_read_word(word, outs) for word in text.split()], outs))


def write_basis(radix: int, moves: Iterable[tuple[str, int]]) -> list[str]:
    """Return the words for a digit with these moves: one for a bit, several for a larger digit.

    >>> write_basis(2, [("row", 1), ("col", 4)]), write_basis(3, [("col", 8)]), write_basis(2, [])
    (['r1+c4'], ['c8', 'c16'], ['0'])
    """
    parts = list(moves)
    bits = range((radix - 1).bit_length())
    return ["+".join(f"{name[0]}{weight << bit}" for name, weight in parts) or "0" for bit in bits]


def _read_word(word: str, outs: tuple[Axis, ...]) -> dict[str, int]:
    """Return the distance that one word of a basis moves each coordinate."""
    by_letter = {axis.name[0]: axis for axis in outs}
    if word == "0":
        return {}
    moves: dict[str, int] = {}
    for part in word.split("+"):
        number = part[1:]
        is_number = number.isascii() and number.isdigit() and len(number) < LONGEST_NUMBER
        if not (part and part[0] in by_letter and is_number):
            raise InvalidOperand(
                f"basis {quote(word)}: expected 0, or one of {' '.join(by_letter)} and a number, several joined by +"
            )
        axis = by_letter[part[0]]
        if not 0 < int(number) < 1 << (axis.size - 1).bit_length():
            raise InvalidOperand(f"basis {quote(word)} is outside {axis.name}, whose size is {axis.size}")
        moves[axis.name] = moves.get(axis.name, 0) ^ int(number)
    return {coordinate: move for coordinate, move in moves.items() if move}


def _columns(name: str, words: list[dict[str, int]], outs: tuple[Axis, ...]) -> Iterator[tuple[int, int]]:
    starts = {axis.name: sum(len(other.radices) for other in outs[:at]) for at, axis in enumerate(outs)}
    cropped = {axis.name: axis for axis in outs if axis.radices and axis.radices[-1] != 2}
    at = 0
    while at < len(words):
        moves = words[at]
        axis = next((axis for axis in cropped.values() if moves.get(axis.name, 0) >= axis.weights[-1]), None)
        if axis is None:
            yield 2, sum(move << starts[coordinate] for coordinate, move in moves.items())
            at += 1
            continue
        bits = (axis.radices[-1] - 1).bit_length()
        expected = [{axis.name: axis.weights[-1] << bit} for bit in range(bits)]
        if words[at : at + bits] != expected:
            spelled = " ".join(f"{axis.name[0]}{word[axis.name]}" for word in expected)
            raise InvalidOperand(
                f"{axis.name} is {axis.size}, not a power of two: expected the consecutive bases {spelled} in {name}"
            )
        yield axis.radices[-1], 1 << (starts[axis.name] + len(axis.radices) - 1)
        at += bits
