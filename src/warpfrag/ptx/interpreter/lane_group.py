"""Lanes that are at one place of the program: what they read, write and address.

An engine gives the registers; an action sees only the group. Nothing is written in place: a result is a new array, so
that copies cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.errors import PtxError
from warpfrag.ptx.interpreter.memory import Owners
from warpfrag.ptx.program.program import Constant, Operand, Place, Register, Sink, Special
from warpfrag.ptx.program.types import Type, container, signed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.ptx.interpreter.warp_state import Warps
    from warpfrag.ptx.program.types import Codes

    Mask = NDArray[np.bool_]


class Group:
    """Lanes at one place: some warps, and the lanes of each."""

    __slots__ = ("is_whole", "mask", "rows", "wave")

    def __init__(self, wave: Warps, rows: NDArray[np.int64] | None, mask: Mask) -> None:
        """`rows` None means all warps of the wave."""
        self.wave, self.rows, self.mask = wave, rows, mask
        self.is_whole = bool(mask.all())

    @property
    def warps(self) -> int:
        """How many warps."""
        return len(self.mask)

    def part(self, mask: Mask) -> Group:
        """The same warps with fewer lanes."""
        return Group(self.wave, self.rows, mask)

    def of(self, everyone: Codes) -> Codes:
        """These warps' part of an array over all."""
        return everyone if self.rows is None else everyone[self.rows]

    def put(self, everyone: Codes, values: Any) -> None:  # noqa: ANN401 (an array or a number)
        """Set these lanes of an array over all, in place."""
        if self.rows is None:
            everyone[self.mask] = values[self.mask] if isinstance(values, np.ndarray) else values
        else:
            part = everyone[self.rows]
            part[self.mask] = values[self.mask] if isinstance(values, np.ndarray) else values
            everyone[self.rows] = part

    # --- operands

    def read(self, operand: Operand, kind: Type) -> Codes:
        """The codes of an operand in all lanes of the warps."""
        if type(operand) is Register:
            codes = self.of(self.wave.registers[operand.index])
            if operand.negated:
                codes = ~codes
            return codes if codes.dtype == kind.dtype else codes.astype(kind.dtype)
        if type(operand) is Constant:
            return self.wave.constant(operand.code(kind), kind.dtype, self.warps)
        if type(operand) is Special:
            return self.of(self.wave.special(operand.name)).astype(kind.dtype)
        if type(operand) is Place:  # the address of a variable
            address = self.wave.constant(operand.offset & ((1 << kind.bits) - 1), kind.dtype, self.warps)
            return address if operand.base is None else self.read(operand.base, kind) + address
        msg = f"expected a register or a number, got {operand}"
        raise PtxError(self.wave.line, msg)

    def write(self, operand: Operand, codes: Codes, kind: Type | None = None) -> None:
        """Give a register new codes in these lanes; `kind` extends them to its width."""
        if type(operand) is not Register:
            if type(operand) is Sink:
                return
            raise PtxError(self.wave.line, f"expected a register as a result, got {operand}")
        dtype = container(operand.bits)
        if codes.dtype != dtype:
            codes = (signed(codes) if kind is not None and kind.kind == "s" else codes).astype(dtype)
        registers = self.wave.registers
        if self.rows is None:
            if codes.shape != self.mask.shape:
                codes = np.broadcast_to(codes, self.mask.shape)
            registers[operand.index] = codes if self.is_whole else np.where(self.mask, codes, registers[operand.index])
            return
        whole = registers[operand.index].copy()
        whole[self.rows] = np.where(self.mask, codes, whole[self.rows])
        registers[operand.index] = whole

    def addresses(self, place: Operand) -> Codes:
        """The addresses of these lanes, one after the other."""
        if not isinstance(place, Place):
            raise PtxError(self.wave.line, f"expected an address, got {place}")
        offset = np.uint64(place.offset & ((1 << 64) - 1))
        if place.base is None:
            return np.full(int(self.mask.sum()), offset, np.uint64)
        codes = self.of(self.wave.registers[place.base.index])[self.mask]
        if place.base.bits == 64:
            return codes + offset
        return (codes.astype(np.uint64) + offset) & np.uint64(0xFFFFFFFF)

    @property
    def owners(self) -> Owners:
        """Whose shared and local memory these lanes use."""
        wave = self.wave
        threads = self.of(wave.lane_number)[self.mask]
        return Owners(self.of(wave.lane_block)[self.mask], threads, threads // 32)

    def scatter(self, values: Codes) -> Codes:
        """Values of these lanes in an array over all lanes of the warps; zero elsewhere."""
        full = np.zeros(self.mask.shape, values.dtype)
        full[self.mask] = values
        return full
