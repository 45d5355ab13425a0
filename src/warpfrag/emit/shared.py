"""ldmatrix and stmatrix for an operand: found by comparing layouts, and proven place by place.

An operand can be loaded by a mover when, seen in the mover's units (b16 or b8), each of its 8x8 (or 8x16, 16x16) blocks
sits in the lanes as the mover puts it there. Then only the blocks' order is left, and it says which lane gives which
address: bits of the lane that count lines move along the operand's lines, and bits that count matrices move as the
operand's registers do.

    >>> from warpfrag.registry import get
    >>> copy = shared_copies(get("mma.m16n8k16.f32.f16.f16.f32").a.row)[0]
    >>> copy.mover.name, copy.order, copy.formulas
    ('ldmatrix.sync.aligned.m8n8.x4.shared.b16', 'row', {'row': 'lane & 15', 'col': '(lane >> 4) * 8'})
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, cast

from warpfrag.emit.statement import ROLES
from warpfrag.expressions import Move, formula
from warpfrag.isa.operands import REGISTER_BITS
from warpfrag.layout import COPY, Basis
from warpfrag.registry import find

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from warpfrag.instruction import Instruction
    from warpfrag.isa.operands import OperandRow
    from warpfrag.layout import Layout
    from warpfrag.operand import Operand

ORDERS = ("row", "col")


class Units(NamedTuple):
    """The bases of an operand seen in units of a mover, along the coordinate that is contiguous in memory."""

    lane: tuple[Basis, ...]
    reg: tuple[Basis, ...]
    slot: tuple[Basis, ...]


@dataclass(frozen=True)
class SharedCopy:
    """How one mover moves one operand between shared memory, in row or column major order, and registers.

    `lines` is what each bit of a lane moves in the address that the lane gives. In memory an element takes
    `memory_bits`; after an ldmatrix its code must be shifted left by `shift`.
    """

    mover: Instruction
    operand: OperandRow
    order: str
    lines: tuple[Basis, ...]

    def __post_init__(self) -> None:
        """Prove it: every bit of every register comes from where the operand's layout wants it."""
        for lane, reg in product(range(32), range(self.operand.layout.regs)):
            for bit in range(0, REGISTER_BITS, min(self._unit, self._container)):
                if self._moved(lane, reg, bit) != self._wanted(lane, reg, bit):
                    where = f"lane {lane}, reg {reg}, bit {bit}"
                    msg = f"{self.mover.name} does not move operand {self.operand.role}: {where}"
                    raise ValueError(msg)

    @property
    def contiguous(self) -> str:
        """The coordinate whose neighbours are neighbours in memory."""
        return "col" if self.order == "row" else "row"

    @property
    def memory_bits(self) -> int:
        """Bits from one element to the next in memory; 16 narrow ones are padded to 16 bytes."""
        return self._container

    @property
    def shift(self) -> int:
        """ldmatrix leaves a code in the low bits of its container; the operand may want it higher."""
        return self.operand.low

    @property
    def formulas(self) -> dict[str, str]:
        """Row and column of the first element of the 16 bytes whose address a lane gives."""
        return {
            dim: formula(
                [
                    Move("lane", bit, basis.step.bit_length() - 1)
                    for bit, basis in enumerate(self.lines)
                    if basis.dim == dim and basis.step
                ],
                {"lane": 5},
            )
            for dim in ("row", "col")
        }

    @property
    def _container(self) -> int:
        return self.operand.container

    @property
    def _unit(self) -> int:
        return moved(self.mover).row.container

    def _moved(self, lane: int, reg: int, bit: int) -> tuple[int, int, int]:
        """Row, column and bit of the element that the mover puts at a bit of a register."""
        place = moved(self.mover).layout.at(lane=lane, reg=reg, slot=bit // self._unit)
        addresses = _addresses(self.mover)
        line_dim = addresses.dims[1]
        giver = addresses.where(matrix=place.matrix, **{line_dim: getattr(place, line_dim)})[0].lane
        start = {"row": 0, "col": 0}
        for index, basis in enumerate(self.lines):
            if basis.step and giver >> index & 1:
                start[basis.dim] += basis.step
        in_line = place.col if line_dim == "row" else place.row
        element, inside = divmod(in_line * self._unit + bit % self._unit, self._container)
        start[self.contiguous] += element
        return start["row"], start["col"], inside

    def _wanted(self, lane: int, reg: int, bit: int) -> tuple[int, int, int]:
        slot, inside = divmod(bit, self._container)
        return (*self.operand.layout.at(lane=lane, reg=reg, slot=slot), inside)


def _addresses(mover: Instruction) -> Layout:
    """Which lane gives the address of which line."""
    return cast("Layout", mover.addresses)


def moved(mover: Instruction) -> Operand:
    """The register operand of ldmatrix or stmatrix."""
    found: Operand = mover.a if mover.op == "stmatrix" else mover.d
    return found


@cache
def shared_copies(operand: OperandRow, op: str = "ldmatrix") -> tuple[SharedCopy, ...]:
    """Every way to move an operand by ldmatrix (or stmatrix), row major first."""
    if operand.unknown or operand.layout.dims != ("row", "col") or operand.container > REGISTER_BITS:
        return ()
    found = (_match(mover, operand, order) for order in ORDERS for mover in _movers(op))
    return tuple(copy for copy in found if copy is not None)


def legal_copies(operand: OperandRow, targets: Iterable[str], op: str = "ldmatrix") -> list[SharedCopy]:
    """Those that are legal on every one of some targets."""
    return [copy for copy in shared_copies(operand, op) if set(targets) <= set(copy.mover.targets)]


def operand_copies(instruction: Instruction, targets: Iterable[str]) -> dict[str, list[SharedCopy]]:
    """The ways to move each matrix of a product through shared memory on these targets; without .trans first."""
    found = {}
    for role in "dabc":
        legal = legal_copies(instruction.operands[role].row, targets, "stmatrix" if role == "d" else "ldmatrix")
        found[role] = sorted(legal, key=lambda copy: copy.mover.form.trans)
    return found


def kernel_copies(instruction: Instruction, targets: Iterable[str]) -> list[dict[str, SharedCopy]]:
    """One way for every operand that has one, as often as it takes to use all ways of A and B: a kernel for each."""
    ways = operand_copies(instruction, targets)
    return [
        {role: found[min(number, len(found) - 1)] for role, found in ways.items() if found}
        for number in range(max(len(ways["a"]), len(ways["b"])))
    ]


def memory_orders(chosen: Mapping[str, SharedCopy]) -> dict[str, str]:
    """How each matrix of a kernel lies in memory: as its copy wants it, row major where it has none."""
    return {role: chosen[role].order if role in chosen else "row" for role in ROLES}


def described_orders(orders: Mapping[str, str]) -> str:
    """How A, B, C and D lie in memory, for a comment."""
    return ", ".join(f"{role.upper()} {orders[role]} major" for role in "abcd")


@cache
def _movers(op: str) -> tuple[Instruction, ...]:
    return tuple(mover for mover in find(op=op) if not moved(mover).row.unknown)


def _match(mover: Instruction, operand: OperandRow, order: str) -> SharedCopy | None:
    """Compare the bases; nothing where they differ."""
    contiguous, across = ("col", "row") if order == "row" else ("row", "col")
    layout, addresses = moved(mover).layout, _addresses(mover)
    if moved(mover).regs != operand.layout.regs or not _same_memory(mover, operand):
        return None
    units = _in_units(operand, moved(mover).row.container, contiguous)
    if units is None:
        return None
    line_dim = addresses.dims[1]
    names = {line_dim: across, "col" if line_dim == "row" else "row": contiguous, "matrix": "matrix", "": ""}
    if (units.lane, units.slot) != (_renamed(layout.lane, names), _renamed(layout.slot, names)):
        return None
    blocks = {}
    for mine, its in zip(units.reg, _renamed(layout.reg, names), strict=True):
        if its.dim == "matrix":
            blocks[its] = mine
        elif mine != its:
            return None
    lines = tuple(
        _in_elements(blocks.get(basis, basis), operand, moved(mover).row.container, contiguous)
        for basis in _renamed(addresses.lane, names)
    )
    return SharedCopy(mover, operand, order, lines)


def _same_memory(mover: Instruction, operand: OperandRow) -> bool:
    """Whether elements in memory, after what the mover unpacks, are elements in registers."""
    if mover.form.memory:
        return operand.format.bits == moved(mover).format.bits and operand.container == moved(mover).row.container
    return operand.format.bits == operand.container


def _in_units(operand: OperandRow, unit: int, contiguous: str) -> Units | None:
    """The operand's bases in units of a mover; nothing where a unit is not made of neighbours in memory."""
    layout = operand.layout
    container = operand.container
    joined = max(0, (unit // container).bit_length() - 1)
    inside = tuple(Basis(contiguous, 1 << bit) for bit in range(joined))
    if layout.slot[:joined] != inside:
        return None
    split = tuple(Basis(contiguous, 1 << bit) for bit in range(max(0, (container // unit).bit_length() - 1)))

    def scaled(bases: tuple[Basis, ...]) -> tuple[Basis, ...]:
        return tuple(
            Basis(basis.dim, basis.step * container // unit) if basis.dim == contiguous else basis for basis in bases
        )

    return Units(scaled(layout.lane), scaled(layout.reg), split + scaled(layout.slot[joined:]))


def _in_elements(basis: Basis, operand: OperandRow, unit: int, contiguous: str) -> Basis:
    return Basis(basis.dim, basis.step * unit // operand.container) if basis.dim == contiguous else basis


def _renamed(bases: tuple[Basis, ...], names: dict[str, str]) -> tuple[Basis, ...]:
    return tuple(Basis(names[basis.dim], basis.step) if basis.step else COPY for basis in bases)
