"""Addresses of shared memory whose rank of a block is cleared in part.

On a GPU the address of a shared variable holds the rank of its block in the cluster, from bit 24 on (measured on an
H200). Here it holds that rank exclusive or the own one, which is zero (`program.state_spaces`). Compilers reach the
first block of a pair by an `and` that clears bit 24 of an own address. Here such an `and` puts the own rank's bits
where its mask has none: a lop3. A mask that clears all bits from 24 on makes a number of an address, as descriptors
need it.
"""

from __future__ import annotations

from collections.abc import Callable

from warpfrag.ptx.opcodes.table import find
from warpfrag.ptx.program.program import (
    DecodedInstruction,
    Immediate,
    MemoryOperand,
    PtxOperand,
    Register,
    SpecialRegister,
)
from warpfrag.ptx.program.state_spaces import RANK_SHIFT

MAX_RANKS = 16  # blocks of the largest cluster
KEEP_ADDRESS = {"mov", "add", "sub", "mad", "or", "xor", "and", "selp", "mapa"}
"""Opcodes whose result is an address if an operand is one."""
CHOOSE = 0xE4
"""The table of lop3 for (a & c) | (b & ~c)."""


class SharedAddresses:
    """The registers that hold addresses of shared memory, as far as the instructions before say so."""

    def __init__(self, instructions: list[DecodedInstruction], new_register: Callable[[str, int], Register]) -> None:
        """None does yet."""
        self.instructions, self.new_register = instructions, new_register
        self.registers: set[int] = set()

    def is_address(self, operand: PtxOperand) -> bool:
        """Whether an operand is the address of a shared variable, or made of one."""
        if isinstance(operand, MemoryOperand):
            return operand.base is None and operand.space in {"shared", "dynamic"}
        return isinstance(operand, Register) and operand.index in self.registers

    def follow(self, inst: DecodedInstruction) -> DecodedInstruction:
        """The instruction, or what it is for an address whose rank it clears in part."""
        if inst.attributes.opcode not in KEEP_ADDRESS or not any(map(self.is_address, inst.sources)):
            return inst
        self.registers.update(result.index for result in inst.results if isinstance(result, Register))
        if inst.attributes.opcode != "and" or inst.attributes.types[0].bits != 32:
            return inst
        address, mask = inst.sources if self.is_address(inst.sources[0]) else inst.sources[::-1]
        if not isinstance(mask, Immediate) or not clears_rank(mask.code(None)):
            return inst
        rank = self.new_register(f"%cluster_ctarank<<{RANK_SHIFT}", 32)
        sources = SpecialRegister("%cluster_ctarank"), Immediate(RANK_SHIFT)
        self.instructions.append(
            DecodedInstruction(inst.line, find("shl.b32", 3), results=(rank,), sources=sources, text=inst.text)
        )
        chosen = DecodedInstruction(
            inst.line, find("lop3.b32", 5), guard=inst.guard, results=inst.results, text=inst.text
        )
        chosen.sources = address, rank, mask, Immediate(CHOOSE)
        return chosen


def clears_rank(mask: int) -> bool:
    """Whether a mask of 32 bits clears bits of a rank, and keeps those above."""
    cleared = ~mask >> RANK_SHIFT & 0xFF
    return 0 < cleared < MAX_RANKS
