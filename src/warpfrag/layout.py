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

    >>> from warpfrag.layout import Layout
    >>> accumulator = Layout.parse(dict(row=16, col=8), lane="c2 c4 r1 r2 r4", reg="c1 r8")
    >>> accumulator.at(lane=5, reg=2, slot=0)
    Coordinate(row=9, col=2)
    >>> accumulator.where(row=9, col=3)
    [Place(lane=5, reg=3, slot=0)]

**Copies.** A basis may be `0`: that bit moves nowhere, so two places hold the same element (wmma keeps f16
fragments twice). That is why the map goes from places to elements: the other direction is not a function.
`where` lists every holder, and the first is the one the hardware reads.

**Proof.** Reading a layout checks its *rank*: the bases must reach every bit of every coordinate, each by one basis,
so each element has a holder and no element is lost. One wrong basis in a table row is found when it is read.

**More coordinates.** The coordinates need not be row and col. m8n8k4 has a third, `mma`; ldmatrix has `matrix`;
the metadata word of a sparse instruction is a map to (selector, row, chunk); a scale word to (thread_id,
byte_id, row, scale). It is always this one type.

**Limits.** Extents are powers of two, and one basis moves one coordinate by one power of two. wgmma with N = 24 and
swizzled shared memory would not fit; every fragment of every warp-level instruction does.
"""

from __future__ import annotations

import operator
from collections import namedtuple
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from warpfrag.errors import InvalidOperand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

INPUTS = ("lane", "reg", "slot")


class Place(NamedTuple):
    """Where an element sits: lane of the warp, register of the operand, slot inside the register."""

    lane: int
    reg: int
    slot: int


class Basis(NamedTuple):
    """What one bit of lane, reg or slot moves: `step` along coordinate `dim`; a step of 0 is a copy."""

    dim: str
    step: int

    def __str__(self) -> str:
        """As a table row spells it."""
        return f"{self.dim[0]}{self.step}" if self.step else "0"


COPY = Basis("", 0)


@cache
def coordinate_type(dims: tuple[str, ...]) -> Any:  # noqa: ANN401 (a class made from data)
    """The named tuple whose fields are these coordinates."""
    fields: Any = namedtuple("Coordinate", dims)  # type: ignore[misc] # noqa: PYI024 (the fields are data)
    # pickle looks a class up by its name and would not find one that is made from data
    travel = {"__slots__": (), "__reduce__": lambda self: (_coordinate, (dims, tuple(self)))}
    return type("Coordinate", (fields,), travel)


def _coordinate(dims: tuple[str, ...], indices: tuple[int, ...]) -> Any:  # noqa: ANN401 (of a class made from data)
    return coordinate_type(dims)._make(indices)


@dataclass(frozen=True)
class Layout:
    """The map (lane, reg, slot) -> coordinates, given by the basis of each bit; see the top of this file."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    lane: tuple[Basis, ...]
    reg: tuple[Basis, ...]
    slot: tuple[Basis, ...]

    @classmethod
    def parse(cls, extents: Mapping[str, int], *, lane: str, reg: str = "", slot: str = "") -> Layout:
        """Read bases written as text: `c2` moves col by 2 (the first letter names the coordinate), `0` nowhere."""
        by_letter = {dim[0]: dim for dim in extents}

        def read(word: str) -> Basis:
            if word == "0":
                return COPY
            if word[0] not in by_letter or not word[1:].isdigit():
                msg = f"basis {word!r}: expected 0, or one of {' '.join(by_letter)} and a number"
                raise InvalidOperand(msg)
            return Basis(by_letter[word[0]], int(word[1:]))

        bases = (tuple(read(word) for word in text.split()) for text in (lane, reg, slot))
        return cls(tuple(extents), tuple(extents.values()), *bases)

    def __post_init__(self) -> None:
        """Check the rank: the bases reach every bit of every coordinate, each exactly once."""
        wanted = [
            Basis(dim, 1 << bit) for dim, extent in self.extents.items() for bit in range(extent.bit_length() - 1)
        ]
        reached = [basis for basis in self.bases if basis.step]
        faults: dict[str, list[Basis] | list[int]] = {
            "it loses": [basis for basis in wanted if basis not in reached],
            "it repeats or oversteps with": [basis for basis in reached if reached.count(basis) > wanted.count(basis)],
            "these extents are no powers of two:": [extent for extent in self.shape if extent & (extent - 1)],
        }
        said = [f"{fault} {' '.join(dict.fromkeys(map(str, found)))}" for fault, found in faults.items() if found]
        if said:
            msg = f"layout {self} of shape {self.shape} has not full rank: {'; '.join(said)}"
            raise InvalidOperand(msg)

    def __str__(self) -> str:
        """The bases, as a table row spells them."""
        return " | ".join(f"{name}: {' '.join(map(str, getattr(self, name))) or '-'}" for name in INPUTS)

    @property
    def extents(self) -> dict[str, int]:
        """Each coordinate and how far it runs."""
        return dict(zip(self.dims, self.shape, strict=True))

    @property
    def bases(self) -> tuple[Basis, ...]:
        """The basis of every bit: lane, then reg, then slot, low bits first."""
        return self.lane + self.reg + self.slot

    @property
    def lanes(self) -> int:
        """How many lanes take part: 32, or fewer for the addresses of a small ldmatrix."""
        return 1 << len(self.lane)

    @property
    def regs(self) -> int:
        """Registers per lane."""
        return 1 << len(self.reg)

    @property
    def slots(self) -> int:
        """Elements per register."""
        return 1 << len(self.slot)

    @property
    def copies(self) -> int:
        """How many places hold each element."""
        return 1 << sum(not basis.step for basis in self.bases)

    def places(self) -> Iterator[Place]:
        """Every place, lane by lane, low register and low slot first."""
        return map(Place._make, product(range(self.lanes), range(self.regs), range(self.slots)))

    def at(self, *, lane: int, reg: int = 0, slot: int = 0) -> Any:  # noqa: ANN401 (see coordinate_type)
        """The element at a place, as a named tuple of its coordinates."""
        coordinates = dict.fromkeys(self.dims, 0)
        for name, index in zip(INPUTS, (lane, reg, slot), strict=True):
            bases = getattr(self, name)
            check_index(name, index, 1 << len(bases))
            for bit, basis in enumerate(bases):
                if basis.step and index >> bit & 1:
                    coordinates[basis.dim] ^= basis.step
        return coordinate_type(self.dims)(**coordinates)

    def where(self, **coordinates: int) -> list[Place]:
        """Every place that holds an element, sorted; the first is the one the hardware reads."""
        if coordinates.keys() != self.extents.keys():
            msg = f"expected the coordinates {', '.join(self.dims)}; got {', '.join(coordinates) or 'none'}"
            raise InvalidOperand(msg)
        for dim, extent in self.extents.items():
            check_index(dim, coordinates[dim], extent)
        # A bit whose basis moves a coordinate is decided by that coordinate; the bit of a copy is free.
        ways = [
            [
                sum(bit << place for place, bit in enumerate(bits))
                for bits in product(
                    *((0, 1) if not basis.step else (int(coordinates[basis.dim] & basis.step > 0),) for basis in bases)
                )
            ]
            for bases in (self.lane, self.reg, self.slot)
        ]
        return sorted(map(Place._make, product(*ways)))


def check_index(name: str, index: int, extent: int) -> None:
    """Refuse an index that is not an integer in 0..extent-1."""
    try:
        index = operator.index(index)
    except TypeError:
        msg = f"{name} is an integer 0..{extent - 1}, got {index!r}"
        raise InvalidOperand(msg) from None
    if not 0 <= index < extent:
        msg = f"{name} is 0..{extent - 1}, got {index}"
        raise InvalidOperand(msg)
