"""Lane groups: the lanes that run one instruction, with access to their operands and addresses.

An instruction reads and writes its operands through its group. Registers are not written in place: a result is a new
array, so copies are free.
"""

from __future__ import annotations

import numpy as np

from warpfrag.errors import PtxError
from warpfrag.formats.arrays import Mask, Numbers
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.device_memory import Owners
from warpfrag.machine.interpreter.warp_state import WarpState
from warpfrag.machine.ir.program import (
    BankOperand,
    Discard,
    Immediate,
    MemoryOperand,
    PtxOperand,
    Register,
    SpecialRegister,
    VectorOperand,
)
from warpfrag.machine.ir.scalar_types import B32, B64, Codes, Type, container, signed, split


class LaneGroup:
    """A set of lanes: `rows` are their warps (None for the whole batch), and `mask` selects the lanes of each warp."""

    __slots__ = ("_places", "is_whole", "mask", "rows", "state")

    def __init__(self, state: WarpState, rows: Numbers | None, mask: Mask) -> None:
        """Create a group; `is_whole` is True if it consists of whole warps, which is the common case."""
        self.state, self.rows, self.mask = state, rows, mask
        self.is_whole = bool(mask.all())
        self._places: tuple[Numbers, Numbers] | None = None

    @property
    def warps(self) -> int:
        """The number of warps in the group, including those without selected lanes."""
        return len(self.mask)

    @property
    def warp_rows(self) -> Numbers:
        """The rows of the group's warps in the state arrays."""
        return self.rows if self.rows is not None else np.arange(self.state.warps)

    def part(self, mask: Mask) -> LaneGroup:
        """Return a group with the same warps and a different lane mask."""
        return LaneGroup(self.state, self.rows, mask)

    @property
    def active_rows(self) -> Numbers:
        """The rows of the warps that have active lanes."""
        return self.warp_rows[self.mask.any(axis=1)]

    def of(self, everyone: Codes) -> Codes:
        """Return the rows of this group's warps from an array over all warps."""
        return everyone if self.rows is None else everyone[self.rows]

    def pick(self, everyone: Codes) -> Codes:
        """Return the values of this group's lanes from an array over all warps, as a flat array."""
        if self.is_whole:
            return self.of(everyone).flatten()
        if self._places is None:
            warps, lanes = np.divmod(np.flatnonzero(self.mask), LANES)
            self._places = warps if self.rows is None else self.rows[warps], lanes
        return everyone[self._places]

    def put(self, everyone: Codes, values: Codes | int) -> None:
        """Assign values to this group's lanes in an array over all warps, which is changed in place."""
        if self.rows is None:
            everyone[self.mask] = values[self.mask] if isinstance(values, np.ndarray) else values
        else:
            part = everyone[self.rows]
            part[self.mask] = values[self.mask] if isinstance(values, np.ndarray) else values
            everyone[self.rows] = part

    # --- operands

    def read(self, operand: PtxOperand, ptx_type: Type) -> Codes:
        """Return the codes of an operand in all lanes of the group's warps."""
        if type(operand) is Register:
            codes = self.of(self.state.registers[operand.index])
            if operand.negated:
                codes = ~codes
            return codes if codes.dtype == ptx_type.dtype else codes.astype(ptx_type.dtype)
        if type(operand) is Immediate:
            return self.state.constant(operand.code(ptx_type), ptx_type.dtype, self.warps)
        if type(operand) is VectorOperand:
            return self._read_words(operand, ptx_type)
        if type(operand) is BankOperand:
            code = self.state.memory.constant(operand.offset, ptx_type.dtype.itemsize)
            return self.state.constant(code, ptx_type.dtype, self.warps)
        if type(operand) is SpecialRegister:
            return self.of(self.state.special(operand.name)).astype(ptx_type.dtype)
        if type(operand) is MemoryOperand:  # the operand is a variable's address
            address = self.state.constant(operand.offset & ((1 << ptx_type.bits) - 1), ptx_type.dtype, self.warps)
            return address if operand.base is None else self.read(operand.base, ptx_type) + address
        raise PtxError(self.state.line, f"expected a register or a number, got {operand}")

    def _read_words(self, operand: VectorOperand, ptx_type: Type) -> Codes:
        """Return several 32-bit registers as one integer per lane, low word first."""
        words = [self.read(element, B32) for element in operand.items]
        codes = words[0].astype(ptx_type.dtype)
        for index, word in enumerate(words[1 : ptx_type.bits // 32], 1):
            codes = codes | word.astype(ptx_type.dtype) << ptx_type.dtype.type(32 * index)
        return codes

    def values(self, operand: PtxOperand, ptx_type: Type) -> Codes:
        """Return an operand's codes in the group's lanes, as a flat array."""
        if type(operand) is Register and not operand.negated:
            return self.pick(self.state.registers[operand.index]).astype(ptx_type.dtype, copy=False)
        return self.read(operand, ptx_type)[self.mask]

    def write(self, operand: PtxOperand, codes: Codes, ptx_type: Type | None = None) -> None:
        """Write codes to a register in the group's lanes, extended to the register's width according to `ptx_type`."""
        if type(operand) is VectorOperand:
            for element, word in zip(operand.items, split(codes, len(operand.items), 32), strict=True):
                self.write(element, word)
            return
        if type(operand) is not Register:
            if type(operand) is Discard:
                return
            raise PtxError(self.state.line, f"expected a register as a result, got {operand}")
        dtype = container(operand.bits)
        if codes.dtype != dtype:
            codes = (signed(codes) if ptx_type is not None and ptx_type.kind == "s" else codes).astype(dtype)
        registers = self.state.registers
        if self.rows is None:
            if codes.shape != self.mask.shape:
                codes = np.broadcast_to(codes, self.mask.shape)
            registers[operand.index] = codes if self.is_whole else np.where(self.mask, codes, registers[operand.index])
            return
        whole = registers[operand.index].copy()
        whole[self.rows] = np.where(self.mask, codes, whole[self.rows])
        registers[operand.index] = whole

    def addresses(self, place: PtxOperand) -> Codes:
        """Return a memory operand's addresses in the group's lanes, as a flat array."""
        if not isinstance(place, MemoryOperand):
            raise PtxError(self.state.line, f"expected an address, got {place}")
        offset = np.uint64(place.offset & ((1 << 64) - 1))
        if place.base is None:
            return np.full(int(self.mask.sum()), offset, np.uint64)
        if isinstance(place.base, VectorOperand):
            return self.values(place.base, B64) + offset
        codes = self.pick(self.state.registers[place.base.index])
        if place.base.bits == 64:
            return codes + offset
        return (codes.astype(np.uint64) + offset) & np.uint64(0xFFFFFFFF)

    @property
    def owners(self) -> Owners:
        """The owners of the lanes' shared and local memory."""
        state = self.state
        threads = self.pick(state.lane_number)
        return Owners(self.pick(state.lane_block), threads, threads // LANES)

    def scatter(self, values: Codes) -> Codes:
        """Expand a flat array over the group's lanes to [warps, lanes], with zeros elsewhere."""
        full = np.zeros(self.mask.shape, values.dtype)
        full[self.mask] = values
        return full


def items_of(operand: PtxOperand) -> tuple[PtxOperand, ...]:
    """Return the elements of a vector operand, or the operand itself as the only element."""
    return operand.items if isinstance(operand, VectorOperand) else (operand,)
