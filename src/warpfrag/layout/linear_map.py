"""Linear maps between named axes, and their algebra: the basis of layouts.

**A map is a matrix of bits.** Every axis is cut into digits, nearly always bits. `columns` has an integer for each
input digit: if its bit d is set, the input digit moves output digit d. Digits are numbered across all axes, low first.
The moves of several inputs are combined by xor. In a swizzle of two bits, bit 1 of `x` moves both bits of `y`:

    >>> swizzle = LinearMap((Axis("x", (2, 2)),), (Axis("y", (2, 2)),), columns=(0b01, 0b11))
    >>> (swizzle @ swizzle.rename(x="z", y="x")).columns  # done twice: the identity
    (1, 2)

**Larger digits.** A digit of radix 3 is never joined with others: it moves exactly one output digit of radix 3. The
bits are thus linear over GF(2), and everything else passes through unchanged.

**One map, several cuts.** 6 is a bit and a digit of radix 3, in either order. The identity of 6 indices is the same map
in both cuts. If an operation needs a digit to start at a certain weight, `_recut` finds this cut: only runs that
the map does not mix can be cut again.

`Layout` adds the fragment features: text, look-ups, other notations.
"""

# ruff: noqa: SLF001 (methods read the private attributes of other maps)

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import prod
from typing import Self

from warpfrag.errors import InvalidOperand, check_index, quote
from warpfrag.layout.axes import (
    Axes,
    Axis,
    UnmixedRun,
    boundaries,
    cut_text,
    digits_of,
    flattened,
    mask_of,
    not_regrouped,
    numbered,
    ones,
    part,
    regrouped,
    regrouped_weights,
    renumbered,
    split,
    stacked,
    starts,
    with_pieces,
)
from warpfrag.layout.bit_matrix import Echelon, diagonals
from warpfrag.layout.coordinates import check_name

Boundaries = Mapping[str, set[int]]  # the weights, for some axes, at which a digit has to start


@dataclass(frozen=True, eq=False)
class LinearMap:
    """A linear map from input axes to output axes; see the top of this file.

    `origin` has the output bits that are 1 if all inputs are 0.
    """

    in_axes: Axes
    out_axes: Axes
    columns: tuple[int, ...]
    origin: int = 0

    def __post_init__(self) -> None:
        """Raise an error if a column does not match the axes: bits move bits; a larger digit moves one of its radix."""
        for name in (*self.ins, *self.outs):
            check_name(name)
        if len(self.columns) != len(self._in_radices):
            raise InvalidOperand(
                f"expected {len(self._in_radices)} columns, one for each digit of {self.ins}; got {len(self.columns)}"
            )
        larger = [column for radix, column in zip(self._in_radices, self.columns, strict=True) if radix != 2]
        alike = {radix: mask_of(radix, self._out_radices) for radix in {2, *self._in_radices}}
        for radix, column in [*zip(self._in_radices, self.columns, strict=True), (2, self.origin)]:
            is_unmixed = column and not column & (column - 1) and larger.count(column) == 1
            if column & ~alike[radix] or not (radix == 2 or is_unmixed):
                raise InvalidOperand(f"a digit of radix {radix} cannot move the digits {column:b} of {self.outs}")

    def __reduce__(self) -> tuple[type[Self], tuple[Axes, Axes, tuple[int, ...], int]]:
        """Pickle the map without derived data."""
        return type(self), (self.in_axes, self.out_axes, self.columns, self.origin)

    # ---- sizes

    @cached_property
    def ins(self) -> dict[str, int]:
        """Each input axis, with its extent."""
        return {axis.name: axis.size for axis in self.in_axes}

    @cached_property
    def outs(self) -> dict[str, int]:
        """Each coordinate, with its extent."""
        return {axis.name: axis.size for axis in self.out_axes}

    @cached_property
    def rank(self) -> int:
        """The number of output digits that the inputs can move independently."""
        rows = Echelon()
        for column in self.columns:
            rows.add(column)
        return rows.rank

    @property
    def is_onto(self) -> bool:
        """True if every element has a place."""
        return self.rank == len(self._out_radices)

    @property
    def is_additive(self) -> bool:
        """True if moves may be added: no two input digits move the same output digit."""
        together = 0
        for column in (*self.columns, self.origin):
            if together & column:
                return False
            together |= column
        return True

    @property
    def is_bitwise(self) -> bool:
        """True if coordinates are formed by xor alone: only the highest digit of each may be larger than a bit."""
        return all(axis.is_plain for axis in self.out_axes)

    @cached_property
    def copies(self) -> int:
        """The number of places that hold each element."""
        return len(self._kernel_span)

    # ---- algebra

    def __eq__(self, other: object) -> bool:
        """Return True if both maps have the same axes in the same order, and map every place to the same element."""
        if not isinstance(other, LinearMap):
            return NotImplemented
        if self is other:
            return True
        if list(self.ins.items()) != list(other.ins.items()) or list(self.outs.items()) != list(other.outs.items()):
            return False
        if (self.in_axes, self.out_axes) == (other.in_axes, other.out_axes):
            return (self.columns, self.origin) == (other.columns, other.origin)
        # the same sizes may be cut into other digits, such as 3 times 2 instead of 2 times 3
        mine: LinearMap | None = self
        its: LinearMap | None = other
        for _ in range(2):
            mine = mine and its and mine._recut(boundaries(its.in_axes), boundaries(its.out_axes))
            its = its and mine and its._recut(boundaries(mine.in_axes), boundaries(mine.out_axes))
        if mine is None or its is None or (mine.in_axes, mine.out_axes) != (its.in_axes, its.out_axes):
            return False
        return (mine.columns, mine.origin) == (its.columns, its.origin)

    def __hash__(self) -> int:
        """Hash the extents, because equal maps have equal extents, and few maps share them."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((tuple(self.ins.items()), tuple(self.outs.items())))

    @classmethod
    def identity(cls, **extents: int) -> Self:
        """Return the identity map: its outputs have the names and extents of its inputs.

        >>> LinearMap.identity(warp=4).columns
        (1, 2)
        """
        axes = tuple(Axis.of_size(name, size) for name, size in extents.items())
        return cls(axes, axes, tuple(1 << digit for digit in range(sum(len(axis.radices) for axis in axes))))

    def __matmul__(self, inner: Self) -> Self:
        """Compose two maps: `(outer @ inner).at(x)` is `outer.at(inner.at(x))`."""
        self._check_map(inner, "the inner layout")
        if {*self.in_axes} == {*inner.out_axes}:
            return self._after(inner)
        outer, within = self, inner
        for name in self.ins if self.ins == inner.outs else ():  # recut one side to match the other
            outer = outer._recut({name: boundaries(within.out_axes)[name]}, {}) or outer
            within = within._recut({}, {name: boundaries(outer.in_axes)[name]}) or within
            outer = outer._recut({name: boundaries(within.out_axes)[name]}, {}) or outer
        if {*outer.in_axes} != {*within.out_axes}:
            mine, its = cut_text(self.in_axes), cut_text(inner.out_axes)
            raise InvalidOperand(f"the inner layout maps to {its}, but the outer one maps from {mine}")
        return outer._after(within)

    def _after(self, inner: Self) -> Self:
        """Return the composition of two maps that cut their digits at the same weights."""
        first = {axis.name: digits.start for axis, digits in digits_of(self.in_axes)}
        sources = [first[axis.name] + place for axis in inner.out_axes for place in range(len(axis.radices))]

        def through(mask: int) -> int:
            moved = 0
            for digit, source in enumerate(sources):
                if mask >> digit & 1:
                    moved ^= self.columns[source]
            return moved

        columns = tuple(through(column) for column in inner.columns)
        return type(self)(inner.in_axes, self.out_axes, columns, self.origin ^ through(inner.origin))

    def inverse(self) -> Self:
        """Return the map from each element to its first holder; raise InvalidOperand if an element has no place."""
        return self._first_place

    def __mul__(self, other: Self) -> Self:
        """Return the product: this map for the low part of every index, `other` for the high part.

        A shared axis has the digits of both maps, with those of `other` above. An axis of only one map is kept. So
        `tile * counts` repeats a tile along the axes of `counts`:

        >>> from warpfrag.layout.linear_layout import Layout
        >>> tile = Layout.parse(dict(row=8, col=8), lane="c2 c4 r1 r2 r4", reg="c1")
        >>> down = Layout.parse(dict(row=2), warp="r1")
        >>> print(tile * down, (tile * down).outs)
        warp: r8 | lane: c2 c4 r1 r2 r4 | reg: c1 | slot: - {'row': 16, 'col': 8}

        New axes follow the old ones, except that warp, lane, reg and slot keep this order.
        """
        self._check_map(other, "the second factor")
        return self._times(other.in_axes, other.out_axes, other.columns, other.origin)

    def _times(self, ins: Axes, outs: Axes, columns: tuple[int, ...], origin: int = 0) -> Self:
        in_axes, low_ins, high_ins = stacked(self.in_axes, ins)
        out_axes, low_outs, high_outs = stacked(self.out_axes, outs)
        moved = {low_ins[digit]: renumbered(mask, low_outs) for digit, mask in enumerate(self.columns)}
        moved |= {high_ins[digit]: renumbered(mask, high_outs) for digit, mask in enumerate(columns)}
        start = renumbered(self.origin, low_outs) | renumbered(origin, high_outs)
        return type(self)(in_axes, out_axes, tuple(moved[digit] for digit in range(len(moved))), start)

    def divide_left(self, low: Self) -> Self | None:
        """Return the map `high` with `low * high == self`; None if there is none.

        It has all axes of this map, with extent 1 if `low` covers the whole axis. For example, find how a layout counts
        its tiles:

        >>> from warpfrag.layout.linear_layout import Layout
        >>> tile = Layout.parse(dict(row=8, col=8), lane="c2 c4 r1 r2 r4", reg="c1")
        >>> whole = Layout.parse(dict(row=16, col=16), lane="c2 c4 r1 r2 r4", reg="c1 r8 c8")
        >>> print(whole.divide_left(tile))
        lane: - | reg: r1 c1 | slot: -
        >>> whole.divide_left(Layout.parse(dict(row=8, col=8), lane="r1 r2 r4 c2 c4", reg="c1")) is None
        True
        """
        return self._quotient(low, is_low=True)

    def divide_right(self, high: Self) -> Self | None:
        """Return the map `low` with `low * high == self`, with all axes of this map; None if there is none.

        >>> from warpfrag.layout.linear_layout import Layout
        >>> whole = Layout.parse(dict(row=16, col=16), lane="c2 c4 r1 r2 r4", reg="c1 r8 c8")
        >>> print(whole.divide_right(Layout.parse(dict(row=2, col=2), reg="r1 c1")))
        lane: c2 c4 r1 r2 r4 | reg: c1 | slot: -
        """
        return self._quotient(high, is_low=False)

    def _quotient(self, factor: Self, *, is_low: bool) -> Self | None:
        self._check_map(factor, "the divisor")
        sides = ((self.ins, factor.ins), (self.outs, factor.outs))
        if any(name not in mine or mine[name] % size for mine, its in sides for name, size in its.items()):
            return None
        cuts = [
            {name: its.get(name, 1) if is_low else size // its.get(name, 1) for name, size in mine.items()}
            for mine, its in sides
        ]
        whole = self._recut(*({name: {weight} for name, weight in of_side.items()} for of_side in cuts))
        if whole is None:
            return None
        in_axes, in_digits = part(whole.in_axes, cuts[0], is_high=is_low)
        out_axes, out_digits = part(whole.out_axes, cuts[1], is_high=is_low)
        kept = sum(1 << digit for digit in out_digits)
        if any(whole.columns[digit] & ~kept for digit in in_digits):
            return None  # the remaining bits would move coordinates that belong to the factor
        rest = whole._rearranged(in_axes, in_digits, out_axes, out_digits)
        return rest if (factor * rest if is_low else rest * factor) == self else None

    def tiled(self, **counts: int) -> Self:
        """Return several tiles side by side; col=2 adds a second tile on the right.

        New digits of `reg`, above the old ones, count the tiles in the order of the keywords.
        """
        if "reg" not in self.ins:
            raise InvalidOperand(
                f"only a layout with registers can be tiled; this one starts from {', '.join(self.ins)}"
            )
        tiles = []
        for name, count in counts.items():
            if name not in self.outs:
                raise InvalidOperand(f"tiled: expected names from {', '.join(self.outs)}; got {name}")
            tiles.append(Axis(name, Axis.of_size(f"tiles along {name}", count).radices))
        radices = tuple(radix for axis in tiles for radix in axis.radices)
        columns = tuple(1 << digit for digit in range(len(radices)))
        return self._times((Axis("reg", radices),), tuple(tiles), columns)

    def fix(self, **inputs: int) -> Self:
        """Hold these inputs constant, and return the map from the others."""
        self._check_names("fix", inputs, self.ins)
        origin, ins, columns = self.origin, [], []
        for axis, digits in digits_of(self.in_axes):
            own = [self.columns[digit] for digit in digits]
            if axis.name not in inputs:
                ins.append(axis)
                columns += own
                continue
            index = check_index(axis.name, inputs[axis.name], axis.size)
            for radix, column in zip(axis.radices, own, strict=True):
                index, digit = divmod(index, radix)
                if radix > 2 and digit:
                    raise InvalidOperand(
                        f"{axis.name} cannot be fixed at {inputs[axis.name]}: a digit of radix {radix} is not 0 there"
                    )
                origin ^= column * digit
        return type(self)(tuple(ins), self.out_axes, tuple(columns), origin)

    def sublayout(self, ins: Sequence[str], outs: Sequence[str]) -> Self:
        """Return the map from some inputs to some outputs; the other inputs are 0, the other outputs are dropped.

        >>> from warpfrag.layout.linear_layout import Layout
        >>> accumulator = Layout.parse(dict(row=16, col=8), lane="c2 c4 r1 r2 r4", reg="c1 r8")
        >>> print(accumulator.sublayout(["lane"], ["row"]))
        lane: 0 0 r1 r2 r4

        A digit that is larger than a bit must be kept or dropped with its coordinate.
        """
        kept_ins, kept_outs = self._names("ins", ins, self.ins), self._names("outs", outs, self.outs)
        in_digits = [digit for axis, digits in digits_of(self.in_axes) if axis.name in kept_ins for digit in digits]
        out_digits = [digit for axis, digits in digits_of(self.out_axes) if axis.name in kept_outs for digit in digits]
        kept = sum(1 << digit for digit in out_digits)
        for digit in in_digits:
            if self._in_radices[digit] > 2 and not self.columns[digit] & kept:
                raise InvalidOperand(
                    f"a radix-{self._in_radices[digit]} digit of {', '.join(kept_ins)} maps to a dropped output"
                    f" (kept: {', '.join(kept_outs) or 'none'}): keep or drop both"
                )
        return self._rearranged(
            tuple(axis for axis in self.in_axes if axis.name in kept_ins),
            in_digits,
            tuple(axis for axis in self.out_axes if axis.name in kept_outs),
            out_digits,
        )

    def rename(self, **names: str) -> Self:
        """Return the same map with other names for some axes: inputs, outputs, or both if both have the name.

        >>> from warpfrag.layout.linear_layout import Layout
        >>> Layout.parse(dict(row=8, col=4), lane="c1 c2 r1 r2 r4").rename(lane="thread", col="k").at(thread=5)
        Coordinate(row=1, k=1)
        """
        self._check_names("rename", names, {**self.ins, **self.outs})
        for name in names.values():
            check_name(name)
        ins, outs = (
            tuple(axis._replace(name=names.get(axis.name, axis.name)) for axis in axes)
            for axes in (self.in_axes, self.out_axes)
        )
        for renamed in (ins, outs):
            if len({axis.name for axis in renamed}) < len(renamed):
                raise InvalidOperand(
                    f"rename: two axes would have the same name: {', '.join(axis.name for axis in renamed)}"
                )
        return type(self)(ins, outs, self.columns, self.origin)

    def reshape(self, ins: Mapping[str, int] | None = None, outs: Mapping[str, int] | None = None) -> Self:
        """Regroup the inputs, the outputs or both to other names and extents; the map stays the same.

        As in NumPy's reshape, the last axis varies fastest, and the order of places stays the same. For example, number
        the threads of a warpgroup, 32 for each warp:

        >>> from warpfrag.layout.linear_layout import Layout
        >>> layout = Layout.parse(dict(row=64, col=8), warp="r16 r32", lane="c2 c4 r1 r2 r4", reg="c1 r8")
        >>> print(layout.reshape(ins={"thread": 128, "value": 4}))
        thread: c2 c4 r1 r2 r4 r16 r32 | value: c1 r8
        >>> print(layout.reshape(outs={"element": 512}).at(warp=1, lane=5, reg=1))
        Coordinate(element=139)

        Digits that the map mixes by xor cannot be cut, so extents that are not powers of two may be rejected.
        """
        reshaped = self if ins is None else self._reshaped_ins(ins)
        return reshaped if outs is None else reshaped._reshaped_outs(outs)

    def _reshaped_ins(self, extents: Mapping[str, int]) -> Self:
        flat_axis, order = flattened(self.in_axes)
        flat = self._rearranged((flat_axis,), order, self.out_axes, list(range(len(self._out_radices))))
        weights = regrouped_weights(extents, self.ins)
        cut = flat._recut({flat_axis.name: {*weights.values()}}, {})
        if cut is None:
            raise not_regrouped(self.ins, extents)
        axes, digits = regrouped(cut.in_axes[0], weights, extents)
        return cut._rearranged(axes, digits, cut.out_axes, list(range(len(cut._out_radices))))

    def _reshaped_outs(self, extents: Mapping[str, int]) -> Self:
        """Regroup the outputs in the same way as inputs, but with rows instead of columns."""
        flat_axis, order = flattened(self.out_axes)
        flat = self._rearranged(self.in_axes, list(range(len(self.columns))), (flat_axis,), order)
        weights = regrouped_weights(extents, self.outs)
        cut = flat._recut({}, {flat_axis.name: {*weights.values()}})
        if cut is None:
            raise not_regrouped(self.outs, extents)
        axes, digits = regrouped(cut.out_axes[0], weights, extents)
        return cut._rearranged(cut.in_axes, list(range(len(cut.columns))), axes, digits)

    def joined(self, name: str, *axes: str) -> Self:
        """Join some inputs into one, the first one lowest. For example, PTX's element number joins slot and reg."""
        numbers = {axis.name: digits for axis, digits in digits_of(self.in_axes)}
        for axis in axes:
            check_axis(axis, self.ins)
        if not isinstance(name, str) or not name.isidentifier() or name in self.ins:
            raise InvalidOperand(f"the joined input needs a new name, got {quote(name)}")
        order = [other for other in numbers if other not in axes]
        radices = self._in_radices
        joint = Axis(name, tuple(radices[digit] for axis in axes for digit in numbers[axis]))
        kept = tuple(axis for axis in self.in_axes if axis.name in order)
        columns = tuple(self.columns[digit] for axis in (*order, *axes) for digit in numbers[axis])
        return type(self)((*kept, joint), self.out_axes, columns, self.origin)

    def is_trivial_over(self, *names: str) -> bool:
        """Return True if these inputs become the outputs of the same names unchanged, and affect no other output.

        A map between places that is trivial over `warp` moves nothing between warps, and does the same in each warp.

        >>> from warpfrag.layout.linear_layout import Layout
        >>> a = Layout.parse(dict(row=16, col=8), lane="c2 c4 r1 r2 r4", reg="c1 r8")
        >>> b = Layout.parse(dict(row=16, col=8), lane="c2 c4 r1 r2 r4", reg="r8 c1")
        >>> moves = a.inverse() @ b
        >>> moves.is_trivial_over("lane"), moves.is_trivial_over("reg")
        (True, False)
        """
        for name in names:
            check_axis(name, self.ins)
        if any(self.outs.get(name) != self.ins[name] for name in names):
            return False
        ins, outs = ({axis.name: axis for axis in axes} for axes in (self.in_axes, self.out_axes))
        cut = self._recut(
            {name: {*outs[name].weights} for name in names}, {name: {*ins[name].weights} for name in names}
        )
        if cut is None:
            return False
        sources, targets = (
            [digit for name in names for axis, digits in digits_of(axes) if axis.name == name for digit in digits]
            for axes in (cut.in_axes, cut.out_axes)
        )
        expected = dict(zip(sources, targets, strict=True))
        touched = sum(1 << digit for digit in targets)
        return not cut.origin & touched and all(
            column == 1 << expected[digit] if digit in expected else not column & touched
            for digit, column in enumerate(cut.columns)
        )

    # ---- digits

    @cached_property
    def _in_radices(self) -> tuple[int, ...]:
        return tuple(chain.from_iterable(axis.radices for axis in self.in_axes))

    @cached_property
    def _out_radices(self) -> tuple[int, ...]:
        return tuple(chain.from_iterable(axis.radices for axis in self.out_axes))

    def _rearranged(self, in_axes: Axes, in_digits: Sequence[int], out_axes: Axes, out_digits: Sequence[int]) -> Self:
        """Return a map with some digits of this map, arranged in other axes; digits are numbered as in this map."""
        places = {digit: place for place, digit in enumerate(out_digits)}
        columns = tuple(renumbered(self.columns[digit], places) for digit in in_digits)
        return type(self)(in_axes, out_axes, columns, renumbered(self.origin, places))

    def _recut(self, ins: Boundaries, outs: Boundaries) -> Self | None:
        """Recut the map so that a digit starts at each of these weights, or return None if that is impossible.

        Adjacent digits that the map does not mix form one number, which may be cut into any factors.
        """
        sides = ((self.in_axes, ins), (self.out_axes, outs))
        if all(of_axes.get(axis.name, set()) <= starts(axis) for axes, of_axes in sides for axis in axes):
            return self
        pieces = self._unmixed(ins, outs)
        if pieces is None:
            return None
        new_ins, in_numbers = with_pieces(self.in_axes, {piece.source: piece for piece in pieces})
        new_outs, out_numbers = with_pieces(self.out_axes, {piece.target: piece for piece in pieces})
        cut = ((new_ins, ins), (new_outs, outs))
        if not all(of_axes.get(axis.name, set()) <= starts(axis) for axes, of_axes in cut for axis in axes):
            return None
        whole = {digit: numbers[0] for digit, numbers in out_numbers.items() if len(numbers) == 1}
        columns: dict[int, int] = {}
        for piece in pieces:
            targets = out_numbers[piece.target]
            columns |= zip(in_numbers[piece.source], (1 << target for target in targets), strict=True)
        for digit, numbers in in_numbers.items():
            if numbers[0] not in columns:
                columns[numbers[0]] = renumbered(self.columns[digit], whole)
        ordered = tuple(columns[digit] for digit in range(len(columns)))
        return type(self)(new_ins, new_outs, ordered, renumbered(self.origin, whole))

    def _unmixed(self, ins: Boundaries, outs: Boundaries) -> list[UnmixedRun] | None:
        """Return the map's unmixed runs, cut at these weights, or None if that is impossible."""
        touched = Counter(digit for mask in (*self.columns, self.origin) for digit in ones(mask))
        sources, targets = numbered(self.in_axes), numbered(self.out_axes)
        # numbered with gaps, so that digits of different axes are never adjacent
        pairs = {
            (digit + sources[digit].axis, target + targets[target].axis): (digit, target)
            for digit, column in enumerate(self.columns)
            for target in ones(column)
            if column.bit_count() == 1 and touched[target] == 1
        }
        pieces = []
        for run in diagonals(pairs):
            digit, target = pairs[run.at, run.to]
            own = self._in_radices[digit : digit + run.length]
            source, sink = sources[digit], targets[target]
            wanted = {
                weight // start
                for start, weights in ((source.weight, ins.get(source.name)), (sink.weight, outs.get(sink.name)))
                for weight in weights or ()
                if start < weight < start * prod(own)
            }
            radices = own if wanted <= {prod(own[:place]) for place in range(len(own))} else split(prod(own), wanted)
            if radices is None:
                return None
            pieces.append(UnmixedRun(digit, target, run.length, radices))
        return pieces

    @cached_property
    def _solved(self) -> tuple[list[int], list[int]]:
        """For each output digit, the input mask that moves only it; and the masks that move nothing."""
        rows = Echelon()
        # Elimination starts with the least significant inputs. If several inputs move the same digits, no solution uses
        # the more significant ones, so each solution is the first holder of its element.
        digits = [digit for _, own in digits_of(self.in_axes) for digit in reversed(own)]  # in the order of places
        nothing = [rows.add(self.columns[digit], inputs=1 << digit) for digit in reversed(digits)]
        solved = [rows.inputs(1 << digit) for digit in range(len(self._out_radices))]
        return solved, list(filter(None, nothing))

    @cached_property
    def _kernel_span(self) -> list[int]:
        """Every input mask that moves nothing: these are the differences between places that hold the same element."""
        span = [0]
        for mask in self._solved[1]:
            span += [mask ^ other for other in span]
        return span

    @cached_property
    def _first_place(self) -> Self:
        """The inverse map: from each element to its first holder."""
        if not self.is_onto:
            raise InvalidOperand(f"layout {self} has no inverse: some elements of {self.outs} have no place")
        origin = 0
        for digit, column in enumerate(self._solved[0]):
            origin ^= column * (self.origin >> digit & 1)
        return type(self)(self.out_axes, self.in_axes, tuple(self._solved[0]), origin)

    # ---- argument checks

    def _check_map(self, other: object, label: str) -> None:
        if not isinstance(other, type(self)):
            raise InvalidOperand(f"{label} must be a {type(self).__name__}, got {quote(other)}")

    @staticmethod
    def _check_names(method: str, names: Iterable[str], axes: Mapping[str, int]) -> None:
        unknown = [name for name in names if name not in axes]
        if unknown:
            raise InvalidOperand(f"{method}: expected names from {', '.join(axes)}; got {', '.join(map(str, unknown))}")

    @staticmethod
    def _names(side: str, names: Sequence[str], axes: Mapping[str, int]) -> tuple[str, ...]:
        if not isinstance(names, tuple | list) or not all(isinstance(name, str) and name in axes for name in names):
            raise InvalidOperand(f"{side}: expected a list of names from {', '.join(axes)}; got {quote(names)}")
        return tuple(names)


def check_axis(name: object, axes: Mapping[str, int]) -> None:
    """Raise an error unless a name is among these axes."""
    if not isinstance(name, str) or name not in axes:
        raise InvalidOperand(f"expected one of {', '.join(axes)}; got {quote(name)}")
