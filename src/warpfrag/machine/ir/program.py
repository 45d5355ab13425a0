"""One decoded entry: the program that both engines run.

Names have become numbers: registers an index, variables an address, labels an index into one list of instructions,
which holds the entry and every function that it calls. Each instruction has an opcode with typed attributes, an action
and operands. Basic blocks are entered at their top and left at their end; lanes reconverge where blocks start.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from functools import cached_property
from typing import NamedTuple

import numpy as np

from warpfrag.machine.ir.actions import Action, Atomic, MemoryBarrier, MemoryLoad, NoOp, Unbound
from warpfrag.machine.ir.attributes import Attributes
from warpfrag.machine.ir.opcode import DecodedOpcode, OpcodeRow
from warpfrag.machine.ir.scalar_types import Type

LIBRARY_FILE = re.compile(r"[/\\](include|triton[/\\]language)[/\\]")  # CUDA headers, Triton's own functions


class SourceLine(NamedTuple):
    """A line of the file that a kernel was compiled from, and the line where it was inlined, if it was.

    >>> str(SourceLine("softmax.py", 7, SourceLine("model.py", 30)))
    'softmax.py:7, inlined at model.py:30'
    >>> str(SourceLine("/cuda/include/cuda_fp16.hpp", 900, SourceLine("scale.cu", 12)))
    'scale.cu:12 (in cuda_fp16.hpp:900)'
    """

    file: str
    line: int
    inlined_at: SourceLine | None = None

    def __str__(self) -> str:
        """Return the line in a compiler's style, without the folder; a user's line precedes lines of libraries."""
        line = f"{file_name(self.file)}:{self.line}"
        if self.inlined_at is None:
            return line
        if not LIBRARY_FILE.search(self.file):
            return f"{line}, inlined at {self.inlined_at}"
        return f"{self.inlined_at}" if LIBRARY_FILE.search(self.inlined_at.file) else f"{self.inlined_at} (in {line})"

    @property
    def outermost(self) -> SourceLine:
        """The line of the entry itself: that of the outermost inlined call."""
        return self.inlined_at.outermost if self.inlined_at else self


def file_name(path: str) -> str:
    """Return a file name without its folder."""
    return re.split(r"[/\\]", path)[-1]


@dataclass(frozen=True, slots=True)
class FloatLiteral:
    """A float constant: its bits as f64, or as f32 if it is written 0f..."""

    code: int
    bits: int

    @property
    def number(self) -> float:
        """The number that the bits represent."""
        value: float = struct.unpack("<f" if self.bits == 32 else "<d", self.code.to_bytes(self.bits // 8, "little"))[0]
        return value

    def __str__(self) -> str:
        """Return the PTX spelling."""
        return f"0{'f' if self.bits == 32 else 'd'}{self.code:0{self.bits // 4}X}"


@dataclass(frozen=True, slots=True)
class Register:
    """A register: its index in the register file."""

    index: int
    bits: int
    name: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class BankOperand:
    """A number in the constant banks of the launch, which form one buffer; the type it is read as sets its width."""

    offset: int


@dataclass(frozen=True, slots=True)
class Immediate:
    """A number; its code depends on the type it is read as."""

    value: int | FloatLiteral

    def code(self, ptx_type: Type | None) -> int:
        """Return the code of this number in a type."""
        if isinstance(self.value, int):
            return (
                self.value & ((1 << (ptx_type.bits if ptx_type else 64)) - 1)
                if ptx_type is None or ptx_type.bits > 1
                else self.value != 0
            )
        bits = self.value.bits
        if ptx_type is None or ptx_type.bits == bits:
            return self.value.code
        number = struct.unpack("<f" if bits == 32 else "<d", self.value.code.to_bytes(bits // 8, "little"))[0]
        if ptx_type.bits == 32:
            with np.errstate(over="ignore"):
                return int(np.float32(number).view(np.uint32))
        if ptx_type.bits == 64:
            return int(np.float64(number).view(np.uint64))
        return self.value.code & ((1 << ptx_type.bits) - 1)


@dataclass(frozen=True, slots=True)
class SpecialRegister:
    """A register that the machine fills, such as %tid.x."""

    name: str


@dataclass(frozen=True, slots=True)
class VectorOperand:
    """A vector of operands; 32-bit registers that are read or written as one wider number, low word first."""

    items: tuple[PtxOperand, ...]


@dataclass(frozen=True, slots=True)
class MemoryOperand:
    """An address: a register or a pair, or none, plus a constant; `space` is set if it names a variable."""

    base: Register | VectorOperand | None
    offset: int
    space: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Discard:
    """A discarded result: _."""


SELECTORS = ("", "b0", "b1", "b2", "b3", "h0", "h1")
"""Register parts that an operand of a scalar video instruction may name, numbered by their index here."""
PtxOperand = Register | Immediate | BankOperand | SpecialRegister | VectorOperand | MemoryOperand | Discard


class Copy(NamedTuple):
    """An argument that is copied into a function, or a result that is copied back."""

    source: PtxOperand
    target: PtxOperand
    size: int


UNBOUND = Unbound()


@dataclass(slots=True, eq=False)  # compared by identity: two equal lines are different instructions
class DecodedInstruction:
    """One instruction: its opcode with typed attributes, its action and its operands."""

    line: int
    opcode: DecodedOpcode
    action: Action = UNBOUND  # until its opcode is bound
    guard: Register | None = None
    results: tuple[PtxOperand, ...] = ()
    sources: tuple[PtxOperand, ...] = ()
    targets: tuple[int, ...] = ()  # instruction indices: of a branch, or of the called function
    arguments: tuple[Copy, ...] = ()  # arguments of a call
    returns: tuple[Copy, ...] = ()
    saved_registers: tuple[Register, ...] = ()  # restored when a call returns
    pushes_frame: bool = False  # a call that may recurse: it gets its own local memory
    text: str = ""

    @property
    def name(self) -> str:
        """The whole opcode as written."""
        return self.opcode.attributes.name

    @property
    def attributes(self) -> Attributes:
        """The typed qualifiers of the opcode."""
        return self.opcode.attributes

    @property
    def row(self) -> OpcodeRow | None:
        """The row of the opcode table; None if there is none."""
        return self.opcode.row

    @property
    def operands_read(self) -> tuple[PtxOperand, ...]:
        """The operands that are read: sources, the registers of addresses, the operands of calls, and the guard."""
        bases = [
            operand.base
            for operand in (*self.sources, *self.results)
            if isinstance(operand, MemoryOperand) and operand.base is not None
        ]
        arguments = [operand for copy in (*self.arguments, *self.returns) for operand in (copy.source, copy.target)]
        return (*self.sources, *bases, *arguments, *(() if self.guard is None else (self.guard,)))


@dataclass(frozen=True)
class Parameter:
    """A parameter of an entry: its offset and size in the parameter bytes."""

    name: str
    type: str
    size: int
    align: int
    offset: int
    is_array: bool


@dataclass(frozen=True)
class ModuleVariable:
    """A variable in global or constant memory: its address, its declaration, and its initial bytes."""

    address: int
    size: int
    space: str
    type: str
    shape: tuple[int, ...]  # empty for a scalar; a vector is the last axis
    initial: bytes = b""  # missing bytes are zero


@dataclass(eq=False)  # compared and hashed by identity, so that results can be cached
class Program:
    """Everything an engine needs to run one entry."""

    name: str
    target: str
    instructions: list[DecodedInstruction]
    registers: list[int]  # the bits of each
    parameters: list[Parameter]
    parameter_bytes: int
    shared_bytes: int  # static ones
    dynamic_start: int
    has_dynamic: bool
    local_bytes: int
    frame: Register  # start of the local memory of a recursive function
    frame_bytes: int
    directives: dict[str, tuple[int, ...]]
    variables: dict[str, ModuleVariable] = field(default_factory=dict)
    leaders: set[int] = field(default_factory=set)
    assigns_registers: bool = True  # before it reads them; machine code may read any, and ignore what it reads
    has_absolute_ranks: bool = False  # shared addresses name a block by its rank, not by its distance from the own
    spellings: dict[int, str] = field(default_factory=dict)  # of machine code, by address; evidence is counted by them

    @property
    def is_machine_code(self) -> bool:
        """True if the instructions were lowered from machine code."""
        return bool(self.spellings)

    @cached_property
    def ends(self) -> list[int]:
        """The index of the block end for every instruction."""
        return block_ends(self.instructions, self.leaders)

    def constant_banks(
        self, grid: tuple[int, ...], block: tuple[int, ...], parameters: bytes, *, is_cooperative: bool
    ) -> bytes:
        """Return the constant buffer of a launch; PTX reads nothing but its parameters there."""
        del grid, block, is_cooperative
        return parameters

    @cached_property
    def polling(self) -> frozenset[int]:
        """The starts of blocks that read memory that others may change, or that pause."""
        return frozenset(
            start
            for start in self.leaders
            if start < len(self.instructions)
            and any(polls(inst.action) for inst in self.instructions[start : self.ends[start]])
        )


def block_ends(instructions: Sequence[DecodedInstruction], leaders: set[int]) -> list[int]:
    """Return the index of the block end for every instruction."""
    ends, end = [0] * len(instructions), len(instructions)
    for at in range(len(instructions) - 1, -1, -1):
        if at + 1 in leaders or instructions[at].action.ends_block:
            end = at + 1
        ends[at] = end
    return ends


def polls(action: Action) -> bool:
    """Return True if an instruction reads memory that others may change, or pauses until they do."""
    if isinstance(action, NoOp):
        return action.pauses
    if isinstance(action, MemoryLoad):
        return action.polls
    if isinstance(action, Atomic):
        return action.name in {"cas", "exch"}
    return isinstance(action, MemoryBarrier) and action.name in {"test_wait", "try_wait"}


def registers_of(operand: PtxOperand) -> Iterator[Register]:
    """Return every register of an operand."""
    if isinstance(operand, Register):
        yield operand
    elif isinstance(operand, VectorOperand):
        for item in operand.items:
            yield from registers_of(item)


class InexactCause(IntFlag):
    """Causes of inexact results that depend on values, as bits; compiled code stores them in a byte per instruction."""

    NAN_OPERANDS = 1
    OVERLAPPING_STORES = 2
    STMATRIX_ROWS = 4
    LANES_AT_SAME_ADDRESS = 8


REASONS = {
    InexactCause.NAN_OPERANDS: "different NaNs are operands of one f64 operation: which of them stays depends on the"
    " order of operands that ptxas chose",
    InexactCause.OVERLAPPING_STORES: "several threads store different bytes to one address without a barrier between"
    " them: which stays depends on timing",
    InexactCause.STMATRIX_ROWS: "several lanes give stmatrix one address and different bytes: which stays is not"
    " specified, and computed as an H200 does it",
    InexactCause.LANES_AT_SAME_ADDRESS: "several lanes of a warp store different bytes to one address at once: computed"
    " as an H200 does it",
}
"""The reason that `Run.inexact_lines` gives for each cause."""
MEASURED_ON = {InexactCause.LANES_AT_SAME_ADDRESS: "sm_90"}
"""Architectures on which a cause was measured, so that its result is certain (docs/evidence/h200_stores.md)."""
