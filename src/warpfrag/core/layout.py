"""A layout is one linear map from places in a warp to elements of a matrix.

**In a sentence.** A fragment spreads a matrix over the registers of 32 lanes; its layout says, for every
(lane, reg, slot), which (row, col) sits there.

**A small case.** The accumulator of an m16n8 instruction: lane 5 holds rows 1 and 9, columns 2 and 3.

    reg 0: (1, 2)     reg 1: (1, 3)     reg 2: (9, 2)     reg 3: (9, 3)

**The rule.** Write lane, reg and slot in binary. Every bit that is 1 contributes a fixed step, its *basis*, and the
contributions are joined by xor. So a handful of bases says everything. The accumulator is

    lane: c2 c4 r1 r2 r4    reg: c1 r8    slot: none

read as: bit 0 of the lane moves 2 columns, bit 1 moves 4 columns, bits 2, 3 and 4 move 1, 2 and 4 rows; bit 0 of
the register moves 1 column, bit 1 moves 8 rows. Lane 5 is bits 0 and 2: columns + 2, rows + 1.

**Examples.** `at` evaluates the map, `where` inverts it:

    >>> from warpfrag.core.layout import Layout
    >>> accumulator = Layout.parse(dict(row=16, col=8), lane="c2 c4 r1 r2 r4", reg="c1 r8")
    >>> accumulator.at(lane=5, reg=2, slot=0)
    Coordinate(row=9, col=2)
    >>> accumulator.where(row=9, col=3)
    [Place(lane=5, reg=3, slot=0)]

**The algebra.** Layouts are put together and taken apart without leaving the type. `outer @ inner` does one after the
other, `inverse` goes back, `tiled` puts copies of a tile side by side, `fix` holds an input still. Two tiles of the
accumulator make a 16 x 16 matrix; asked where its elements sit in the A of the next product, the answer is the
identity, so nothing moves:

    >>> a = Layout.parse(dict(row=16, col=16), lane="c2 c4 r1 r2 r4", reg="r8 c8", slot="c1")
    >>> print(a.inverse() @ accumulator.tiled(col=2))
    lane: l1 l2 l4 l8 l16 | reg: s1 r1 r2 | slot: -

**Several coordinates at once.** A basis may move more than one coordinate: `c4+r1` moves 4 columns and 1 row. A swizzle
is such a map, and so is any composition.

**Copies.** A basis may be `0`: that bit moves nowhere, so two places hold the same element (wmma keeps f16
fragments twice). That is why the map goes from places to elements: the other direction is not a function.
`where` lists every holder, and the first is the one the hardware reads; `inverse` gives that one.

**Sizes that are no power of two.** 24 columns are 8 times 3: three bits and a *digit* that counts 0, 1, 2. The text
spells the digit by the bits it would fill, `c8 c16`, and the fourth value is cropped. Such a digit goes from one axis
to another as it is; only bits are joined by xor.

    >>> wide = Layout.parse(dict(row=16, col=24), lane="c2 c4 r1 r2 r4", reg="c1 r8 c8 c16")
    >>> wide.ins, wide.at(lane=0, reg=11)
    ({'lane': 32, 'reg': 12, 'slot': 1}, Coordinate(row=8, col=17))

**Proof.** Reading a layout checks its *rank*: the bases must reach every bit of every coordinate, none of them twice,
so each element has a holder and no element is lost. One wrong basis in a table row is found when it is read.

**More axes.** The axes need not be these. m8n8k4 has a third coordinate, `mma`; ldmatrix has `matrix`; the metadata
word of a sparse instruction is a map to (selector, row, chunk); a warpgroup has `warp` before `lane`. It is always this
type, and only this file reads its bases: others ask `at`, `where`, `runs`, `steps` and `along`.

**Elsewhere.** CuTe, Triton and MLIR write down the same maps in their own words: `to` writes them, `read` reads them.

    >>> accumulator.to("cute")
    '((_4,_8),(_2,_2)):((_32,_1),(_16,_8))'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

from warpfrag.core.axes import Axis, columns_of, mask_of, read_step
from warpfrag.core.coordinates import REGISTERS, Coordinate, Place, check_flag, check_index, check_name, coordinate_type
from warpfrag.core.gf2 import Echelon
from warpfrag.core.providers import card, converter
from warpfrag.errors import InvalidOperand, quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

MOST_INDEX = 1 << 32  # of what a map reaches
MAY_BE_LEFT_OUT = frozenset({"reg", "slot"})
"""Inputs that are 0 where `at` is not told."""


class Run(NamedTuple):
    """Neighbouring digits that stay neighbours: source // divide % modulo * multiply is a part of the result.

    All parts of a result are joined by xor; parts that share no bits may as well be added.
    """

    source: str
    divide: int
    modulo: int
    multiply: int


class Step(NamedTuple):
    """What a one in a digit of an input moves: the radix of the digit, and how far each coordinate goes."""

    radix: int
    moves: Coordinate


@dataclass(frozen=True, eq=False)
class Layout:
    """A linear map from input axes to output axes; see the top of this file.

    `columns` has, for each digit of the inputs, the set of output digits that it moves, as a mask: digit d of the
    outputs, counted through all axes, is bit d. `origin` has the output bits that are 1 where all inputs are 0.
    """

    in_axes: tuple[Axis, ...]
    out_axes: tuple[Axis, ...]
    columns: tuple[int, ...]
    origin: int = 0

    def __post_init__(self) -> None:
        """Refuse columns that do not belong to these axes: a bit moves bits, a digit of radix 3 one of radix 3."""
        for name in (*self.ins, *self.outs):
            check_name(name)
        if len(self.columns) != len(self._in_radices):
            msg = f"{len(self.columns)} columns for the {len(self._in_radices)} digits of {self.ins}"
            raise InvalidOperand(msg)
        odd = [column for radix, column in zip(self._in_radices, self.columns, strict=True) if radix != 2]
        alike = {radix: mask_of(radix, self._out_radices) for radix in {2, *self._in_radices}}
        for radix, column in [*zip(self._in_radices, self.columns, strict=True), (2, self.origin)]:
            one_digit = column and not column & (column - 1) and odd.count(column) == 1
            if column & ~alike[radix] or not (radix == 2 or one_digit):
                msg = f"a digit of radix {radix} cannot move the digits {column:b} of {self.outs}"
                raise InvalidOperand(msg)

    def __reduce__(self) -> tuple[type[Layout], tuple[tuple[Axis, ...], tuple[Axis, ...], tuple[int, ...], int]]:
        """Travel without what was worked out on the way."""
        return Layout, (self.in_axes, self.out_axes, self.columns, self.origin)

    # ---- reading and writing

    @classmethod
    def parse(cls, extents: Mapping[str, int], **bases: str) -> Layout:
        """Read bases written as text, low bit first, for each input axis.

        `c2` moves col by 2 (the first letter names the coordinate), `c4+r1` moves two, `0` none. Refused where an
        element would have no place, or two bits would move the same way.
        """
        if not isinstance(extents, Mapping) or not all(isinstance(name, str) for name in extents):
            msg = (
                f"expected the coordinates and how far they run, such as {{'row': 16, 'col': 8}}; got {quote(extents)}"
            )
            raise InvalidOperand(msg)
        outs = tuple(Axis.of_size(name, size) for name, size in extents.items())
        letters = [axis.name[:1] for axis in outs]
        if len(set(letters)) < len(letters) or not all(letters):
            msg = f"coordinates are told apart by their first letters, got {', '.join(map(quote, extents))}"
            raise InvalidOperand(msg)
        for axis, text in bases.items():
            if not isinstance(text, str):
                msg = f"the bases of {axis} are a text such as 'c2 c4 r1', got {quote(text)}"
                raise InvalidOperand(msg)
        if "lane" in bases:
            bases = {
                name: bases.get(name, "") for name in REGISTERS if name in bases or name in MAY_BE_LEFT_OUT
            } | bases
        steps = {axis: [read_step(word, outs) for word in text.split()] for axis, text in bases.items()}
        found = {axis: list(columns_of(axis, words, outs)) for axis, words in steps.items()}
        ins = tuple(Axis(axis, tuple(radix for radix, _ in digits)) for axis, digits in found.items())
        layout = cls(ins, outs, tuple(column for digits in found.values() for _, column in digits))
        layout._check_rank()
        return layout

    @classmethod
    def of_steps(
        cls,
        extents: Mapping[str, int],
        steps: Mapping[str, Iterable[tuple[int, Iterable[int]]]],
        origin: Iterable[int] | None = None,
    ) -> Layout:
        """The map whose `steps` these are: for each digit of each input its radix, and how far each coordinate goes."""
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
        given: object,
        *,
        shape: Sequence[int] | None = None,
        slots: int | None = None,
        dims: Sequence[str] | None = None,
        transposed: bool = False,
    ) -> Layout:
        """The layout that a text says in another notation: cute, triton or json; or index arrays: numpy.

        CuTe's text has neither extents nor registers: `shape` says how far the coordinates run, and `slots` how many
        values share a register, 1 unless said. `transposed`: the text counts columns first, as CuTe does for B, which
        it takes as N x K. `dims` names the coordinates where they are not row and col.
        """
        options = {
            "shape": shape,
            "slots": slots,
            "dims": dims,
            "transposed": check_flag("transposed", transposed) or None,
        }
        found: Layout = converter(notation, "read")(given, **{name: v for name, v in options.items() if v is not None})
        return found

    @overload
    def to(self, notation: Literal["numpy"]) -> dict[str, NDArray[np.intp]]: ...

    @overload
    def to(self, notation: Literal["cute", "triton", "mlir", "c", "json"], *, transposed: bool = False) -> str: ...

    @overload
    def to(self, notation: str, *, transposed: bool = False) -> str | dict[str, NDArray[np.intp]]: ...

    def to(self, notation: str, *, transposed: bool = False) -> str | dict[str, NDArray[np.intp]]:
        """Write it in another notation: cute, triton, mlir, c, json as text; numpy gives an index array per coordinate.

        InvalidOperand where the notation cannot express it. `transposed` is for cute: columns first, as CuTe has B.
        """
        options = {"transposed": True} if check_flag("transposed", transposed) else {}
        written: str | dict[str, NDArray[np.intp]] = converter(notation, "write")(self, **options)
        return written

    def __str__(self) -> str:
        """The bases, as a table row spells them."""
        spelled = [f"{name}: {text or '-'}" for name, text in self.bases.items()]
        start = "+".join(
            f"{name[0]}{index}"
            for name, index in zip(self.outs, self._unpacked(self._packed_origin), strict=True)
            if index
        )
        return " | ".join(spelled + ([f"from {start}"] if start else []))

    @cached_property
    def bases(self) -> dict[str, str]:
        """The text of each input axis: what `parse` reads."""
        found = {}
        for axis, digits in self._digits_of(self.in_axes):
            words = (self._words(self.columns[digit], self._in_radices[digit]) for digit in digits)
            found[axis.name] = " ".join(chain.from_iterable(words))
        return found

    def _words(self, column: int, radix: int) -> list[str]:
        """The words of one digit: one for a bit, and for a larger digit one for each bit that it takes."""
        steps = [
            (axis.name[0], axis.weights[place])
            for axis, digits in self._digits_of(self.out_axes)
            for place, digit in enumerate(digits)
            if column >> digit & 1
        ]
        bits = range((radix - 1).bit_length())
        return ["+".join(f"{letter}{step << bit}" for letter, step in steps) or "0" for bit in bits]

    def _check_rank(self) -> None:
        """Refuse a map that loses an element, or in which a basis repeats what others do."""
        rows, repeated = Echelon(), []
        for column in self.columns:
            repeated += [column] * bool(column and not rows.rest(column))
            rows.add(column)
        lost = [1 << digit for digit in range(len(self._out_radices)) if rows.rest(1 << digit)]
        faults = {
            "it loses": [word for column in lost for word in self._words(column, 2)],
            "it repeats": [word for column in repeated for word in self._words(column, 2)],
        }
        said = [f"{fault} {' '.join(dict.fromkeys(words))}" for fault, words in faults.items() if words]
        if said:
            shape = tuple(self.outs.values())
            msg = f"layout {self} of shape {shape} has not full rank: {'; '.join(said)}"
            raise InvalidOperand(msg)

    def _repr_html_(self) -> str:
        """A card for notebooks."""
        return card("layout", self)

    # ---- sizes

    @cached_property
    def ins(self) -> dict[str, int]:
        """Each input and how far it runs."""
        return {axis.name: axis.size for axis in self.in_axes}

    @cached_property
    def outs(self) -> dict[str, int]:
        """Each coordinate and how far it runs."""
        return {axis.name: axis.size for axis in self.out_axes}

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the coordinates."""
        return tuple(self.outs)

    @property
    def shape(self) -> tuple[int, ...]:
        """How far the coordinates run."""
        return tuple(self.outs.values())

    @property
    def lanes(self) -> int:
        """How many lanes of a warp take part: 32, or fewer for the addresses of a small ldmatrix."""
        return self.ins.get("lane", 1)

    @property
    def regs(self) -> int:
        """Registers per lane."""
        return self.ins.get("reg", 1)

    @property
    def slots(self) -> int:
        """Elements per register."""
        return self.ins.get("slot", 1)

    @cached_property
    def rank(self) -> int:
        """How many digits of the outputs the inputs can move independently."""
        rows = Echelon()
        for column in self.columns:
            rows.add(column)
        return rows.rank

    @property
    def is_onto(self) -> bool:
        """Whether every element has a place."""
        return self.rank == len(self._out_radices)

    @property
    def is_additive(self) -> bool:
        """Whether what the digits move may be added: no two move the same digit of the result."""
        together = 0
        for column in (*self.columns, self.origin):
            if together & column:
                return False
            together |= column
        return True

    @cached_property
    def copies(self) -> int:
        """How many places hold each element that has one."""
        return len(self._kernel_span)

    # ---- evaluating

    def at(self, **place: int) -> Coordinate:
        """The element at a place, as a named tuple of its coordinates; reg and slot are 0 where they are left out."""
        ins = self.ins.keys()
        if place.keys() != ins and not ins - MAY_BE_LEFT_OUT <= place.keys() <= ins:
            kind = "inputs" if issubclass(self._place_type, Place) else "coordinates"
            msg = f"expected the {kind} {', '.join(self.ins)}; got {', '.join(place) or 'none'}"
            raise InvalidOperand(msg)
        packed = self._packed_origin
        for name, table in self._packed_steps:
            packed ^= table[check_index(name, place.get(name, 0), len(table))]
        return self._element_type._make(self._unpacked(packed))

    def where(self, **element: int) -> list[Place]:
        """Every place that holds an element, sorted; the first is the one the hardware reads."""
        back = self._first_place
        first = back._pack(back.at(**element))  # noqa: SLF001 (of this type)
        make: Callable[[Iterable[int]], Any] = self._place_type._make
        return sorted(make(back._unpacked(first ^ other)) for other in self._packed_copies)  # noqa: SLF001

    def places(self) -> Iterator[Place]:
        """Every place, the first input slowest."""
        make: Callable[[Iterable[int]], Any] = self._place_type._make
        return map(make, product(*map(range, self.ins.values())))

    # An element *packed* is one integer in which every digit has bits of its own, so that one xor joins all axes.

    @cached_property
    def _shifts(self) -> list[int]:
        """Where each digit of the outputs starts in a packed element."""
        widths = [(radix - 1).bit_length() for radix in self._out_radices]
        return [sum(widths[:digit]) for digit in range(len(widths))]

    def _packed(self, mask: int) -> int:
        """The packed element whose digits in a mask are 1, and 0 elsewhere."""
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
        """The coordinates of a packed element."""
        return [
            axis.unpack(packed >> shift & ones) if axis else packed >> shift & ones for shift, ones, axis in self._spans
        ]

    @cached_property
    def _spans(self) -> list[tuple[int, int, Axis | None]]:
        """Where each coordinate starts in a packed element, its bits as a mask, its axis if they are not its index."""
        found, start = [], 0
        for axis in self.out_axes:
            width = sum((radix - 1).bit_length() for radix in axis.radices)
            found.append((start, (1 << width) - 1, None if axis.is_plain else axis))
            start += width
        return found

    @cached_property
    def _packed_origin(self) -> int:
        return self._packed(self.origin)

    @cached_property
    def _packed_copies(self) -> list[int]:
        """What the packed places of two holders of one element differ by."""
        return [self._first_place._packed(mask) for mask in self._kernel_span]  # noqa: SLF001 (of this type)

    @cached_property
    def _packed_steps(self) -> list[tuple[str, list[int]]]:
        """For each input, what each of its indices contributes to the packed element."""
        found = []
        for axis, digits in self._digits_of(self.in_axes):
            table = [0]
            for radix, digit in zip(axis.radices, digits, strict=True):
                step = self._packed(self.columns[digit])
                table = [count * step ^ lower for count in range(radix) for lower in table]
            found.append((axis.name, table))
        return found

    # ---- algebra

    def __eq__(self, other: object) -> bool:
        """Whether the two take every place to the same element."""
        if not isinstance(other, Layout):
            return NotImplemented
        if self is other:
            return True
        if list(self.ins.items()) != list(other.ins.items()) or list(self.outs.items()) != list(other.outs.items()):
            return False
        if (self.in_axes, self.out_axes) == (other.in_axes, other.out_axes):
            return (self.columns, self.origin) == (other.columns, other.origin)
        # the same sizes cut into other digits (3 times 2, 2 times 3): ask every place
        return all(self.at(**place._asdict()) == other.at(**place._asdict()) for place in self.places())

    def __hash__(self) -> int:
        """By sizes: layouts of one shape are few."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((tuple(self.ins.items()), tuple(self.outs.items())))

    def __matmul__(self, inner: Layout) -> Layout:
        """First `inner`, then this: the element that this map has at the place that the inner one leads to."""
        if not isinstance(inner, Layout):
            msg = f"the inner layout is a Layout, got {quote(inner)}"
            raise InvalidOperand(msg)
        mine, its = ({axis.name: axis for axis in axes} for axes in (self.in_axes, inner.out_axes))
        if mine != its:
            wanted, came = (
                ", ".join(f"{axis.name} {'x'.join(map(str, axis.radices)) or 1}" for axis in axes.values())
                for axes in (mine, its)
            )
            msg = f"the inner layout leads to {came}, but the outer one starts from {wanted}"
            raise InvalidOperand(msg)
        starts = {axis.name: digits.start for axis, digits in self._digits_of(self.in_axes)}
        mine_of = [starts[axis.name] + place for axis in inner.out_axes for place in range(len(axis.radices))]

        def through(mask: int) -> int:
            moved = 0
            for digit, column in enumerate(mine_of):
                if mask >> digit & 1:
                    moved ^= self.columns[column]
            return moved

        columns = tuple(through(column) for column in inner.columns)
        return Layout(inner.in_axes, self.out_axes, columns, self.origin ^ through(inner.origin))

    def inverse(self) -> Layout:
        """From elements to places, for each element the first of its holders; refused where an element has none."""
        return self._first_place

    def tiled(self, **counts: int) -> Layout:
        """Several tiles side by side: col=2 puts a second one to the right.

        The tiles are counted by new digits of `reg`, above the old ones, in the order of the keywords.
        """
        if "reg" not in self.ins:
            msg = f"only a layout with registers can be tiled; this one starts from {', '.join(self.ins)}"
            raise InvalidOperand(msg)
        outs = list(self.out_axes)
        more: list[tuple[int, int, int]] = []  # a radix, the axis it extends, and its digit there
        for name, count in counts.items():
            if name not in self.outs:
                msg = f"tiled: expected some of {', '.join(self.outs)}; got {name}"
                raise InvalidOperand(msg)
            at = list(self.outs).index(name)
            added = Axis.of_size(f"tiles along {name}", count).radices
            more += [(radix, at, len(outs[at].radices) + place) for place, radix in enumerate(added)]
            outs[at] = Axis(name, outs[at].radices + added)
        starts = [sum(len(axis.radices) for axis in outs[:at]) for at in range(len(outs))]
        renumbered = [starts[at] + place for at, axis in enumerate(self.out_axes) for place in range(len(axis.radices))]

        def widened(mask: int) -> int:
            return sum(1 << new for old, new in enumerate(renumbered) if mask >> old & 1)

        ins, columns = [], []
        for axis, digits in self._digits_of(self.in_axes):
            mine = [widened(self.columns[digit]) for digit in digits]
            if axis.name == "reg":
                mine += [1 << (starts[at] + place) for _, at, place in more]
                axis = Axis("reg", axis.radices + tuple(radix for radix, *_ in more))  # noqa: PLW2901
            ins.append(axis)
            columns += mine
        return Layout(tuple(ins), tuple(outs), tuple(columns), widened(self.origin))

    def fix(self, **inputs: int) -> Layout:
        """The map of the other inputs while these stay as they are."""
        unknown = [name for name in inputs if name not in self.ins]
        if unknown:
            msg = f"fix: expected some of {', '.join(self.ins)}; got {', '.join(unknown)}"
            raise InvalidOperand(msg)
        origin, ins, columns = self.origin, [], []
        for axis, digits in self._digits_of(self.in_axes):
            mine = [self.columns[digit] for digit in digits]
            if axis.name not in inputs:
                ins.append(axis)
                columns += mine
                continue
            index = check_index(axis.name, inputs[axis.name], axis.size)
            for radix, column in zip(axis.radices, mine, strict=True):
                index, digit = divmod(index, radix)
                if radix > 2 and digit:
                    msg = f"{axis.name} cannot be fixed at {inputs[axis.name]}: a digit of radix {radix} is not 0 there"
                    raise InvalidOperand(msg)
                origin ^= column * digit
        return Layout(tuple(ins), self.out_axes, tuple(columns), origin)

    def joined(self, name: str, *axes: str) -> Layout:
        """The same map with some inputs as one, the first of them lowest: PTX's element number is slot, then reg."""
        digits_of = {axis.name: digits for axis, digits in self._digits_of(self.in_axes)}
        for axis in axes:
            _check_name(axis, self.ins)
        if not isinstance(name, str) or not name.isidentifier() or name in self.ins:
            msg = f"the joined input needs a new name, got {quote(name)}"
            raise InvalidOperand(msg)
        order = [one for one in digits_of if one not in axes]
        radices = self._in_radices
        one = Axis(name, tuple(radices[digit] for axis in axes for digit in digits_of[axis]))
        kept = tuple(axis for axis in self.in_axes if axis.name in order)
        columns = tuple(self.columns[digit] for axis in (*order, *axes) for digit in digits_of[axis])
        return Layout((*kept, one), self.out_axes, columns, self.origin)

    # ---- what others derive from it

    def runs(self, out: str) -> list[Run]:
        """What makes up one coordinate, the highest part first: the fewest runs of digits."""
        _check_name(out, self.outs)
        axis, targets = next(pair for pair in self._digits_of(self.out_axes) if pair[0].name == out)
        found = []
        for source, digits in self._digits_of(self.in_axes):
            pairs = {
                (at, to)
                for at, digit in enumerate(digits)
                for to, target in enumerate(targets)
                if self.columns[digit] >> target & 1
            }
            for at, to in pairs:
                if (at - 1, to - 1) in pairs:
                    continue
                length = 1
                while (at + length, to + length) in pairs:
                    length += 1
                modulo = prod(source.radices[at : at + length])
                found.append(Run(source.name, source.weights[at], modulo, axis.weights[to]))
        return sorted(found, key=lambda run: (-run.multiply, -run.divide))

    def digits(self, source: str) -> list[tuple[int, int]]:
        """How an input is cut: the weight and the radix of each of its digits, low first."""
        _check_name(source, self.ins)
        axis = next(axis for axis in self.in_axes if axis.name == source)
        return list(zip(axis.weights, axis.radices, strict=True))

    def steps(self, source: str) -> list[Step]:
        """What a one in each digit of an input moves, low digit first; `of_steps` goes back."""
        _check_name(source, self.ins)
        digits = next(digits for axis, digits in self._digits_of(self.in_axes) if axis.name == source)
        return [Step(self._in_radices[digit], self._element(self.columns[digit])) for digit in digits]

    @property
    def start(self) -> Coordinate:
        """The element where all inputs are 0."""
        return self._element(self.origin)

    def _element(self, mask: int) -> Coordinate:
        return self._element_type._make(self._unpacked(self._packed(mask)))

    def along(self, source: str) -> str:
        """The coordinate along which an input counts one by one; nothing where it counts otherwise."""
        _check_name(source, self.ins)
        size = self.ins[source]
        for out in self.outs:
            alone = all(not self._touches(source, other) for other in self.outs if other != out)
            if alone and [run for run in self.runs(out) if run.source == source] == [Run(source, 1, size, 1)]:
                return out
        return ""

    def _touches(self, source: str, out: str) -> bool:
        return any(run.source == source for run in self.runs(out))

    # ---- inside

    @cached_property
    def _in_radices(self) -> tuple[int, ...]:
        return tuple(chain.from_iterable(axis.radices for axis in self.in_axes))

    @cached_property
    def _out_radices(self) -> tuple[int, ...]:
        return tuple(chain.from_iterable(axis.radices for axis in self.out_axes))

    @cached_property
    def _element_type(self) -> type[Coordinate]:
        return coordinate_type(tuple(self.outs))

    @cached_property
    def _place_type(self) -> type[Coordinate]:
        return coordinate_type(tuple(self.ins))

    @staticmethod
    def _digits_of(axes: tuple[Axis, ...]) -> list[tuple[Axis, range]]:
        """Each axis with the numbers of its digits, counted through all axes."""
        found, start = [], 0
        for axis in axes:
            found.append((axis, range(start, start + len(axis.radices))))
            start += len(axis.radices)
        return found

    @cached_property
    def _significance(self) -> list[int]:
        """The digits of the inputs as places are sorted: those of the first axis first, the highest first."""
        return [digit for _, digits in self._digits_of(self.in_axes) for digit in reversed(digits)]

    @cached_property
    def _solved(self) -> tuple[list[int], list[int]]:
        """Input masks that move one output digit each, and those that move nothing: elimination over bits."""
        rows = Echelon()
        # The least significant inputs come first. So of inputs that move the same the most significant are left over,
        # no solution uses them, and the place that it leads to is the least of all holders.
        nothing = [rows.add(self.columns[digit], inputs=1 << digit) for digit in reversed(self._significance)]
        solved = [rows.inputs(1 << digit) for digit in range(len(self._out_radices))]
        return solved, list(filter(None, nothing))

    @cached_property
    def _kernel_span(self) -> list[int]:
        """Every input mask that moves nothing: what two holders of one element differ by."""
        span = [0]
        for mask in self._solved[1]:
            span += [mask ^ other for other in span]
        return span

    @cached_property
    def _first_place(self) -> Layout:
        """The inverse: for each element the least of its holders."""
        if not self.is_onto:
            msg = f"layout {self} has no inverse: some elements of {self.outs} have no place"
            raise InvalidOperand(msg)
        origin = 0
        for digit, column in enumerate(self._solved[0]):
            origin ^= column * (self.origin >> digit & 1)
        return Layout(self.out_axes, self.in_axes, tuple(self._solved[0]), origin)


def _check_steps(extents: object, steps: object, origin: object) -> None:
    """Refuse what is no description of a map: names with extents, and for each input digits with as many moves."""

    def is_index(number: object) -> bool:
        return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < MOST_INDEX

    def are_moves(moves: object) -> bool:
        fitting = isinstance(moves, tuple | list) and isinstance(extents, Mapping) and len(moves) == len(extents)
        return fitting and all(map(is_index, moves))  # type: ignore[call-overload] # of a sequence

    def is_digit(digit: object) -> bool:
        return isinstance(digit, tuple | list) and len(digit) == 2 and is_index(digit[0]) and are_moves(digit[1])

    is_extents = isinstance(extents, Mapping) and all(isinstance(name, str) for name in extents)
    is_steps = isinstance(steps, Mapping) and all(
        isinstance(name, str) and isinstance(digits, tuple | list) and all(map(is_digit, digits))
        for name, digits in steps.items()
    )
    if not (is_extents and is_steps and (origin is None or are_moves(origin))):
        msg = (
            "expected coordinates with how far they run, and for each input its digits as (radix, moves), such as "
            f"{{'row': 2}}, {{'lane': [(2, (1,))]}}; got {quote(extents)}, {quote(steps)}, {quote(origin)}"
        )
        raise InvalidOperand(msg)


def _check_name(name: str, axes: dict[str, int]) -> None:
    if not isinstance(name, str) or name not in axes:
        msg = f"expected one of {', '.join(axes)}; got {quote(name)}"
        raise InvalidOperand(msg)
