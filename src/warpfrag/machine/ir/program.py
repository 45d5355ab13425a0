"""One decoded entry: the program that both engines run.

Names are resolved to numbers: a register to an index, a variable to an address, a label to an index in one list of
instructions, which contains the entry and every function that it calls. Each instruction has an opcode with typed
attributes, an action and operands. Basic blocks are entered only at their start and left only at their end; lanes
reconverge at the start of blocks.
"""

from __future__ import annotations

import linecache
import re
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from warpfrag.errors import PtxError, WarpfragError
from warpfrag.machine.ir.actions import Action, Atomic, MemoryBarrier, MemoryLoad, NoOp, Unbound
from warpfrag.machine.ir.opcode import Attributes, DecodedOpcode, OpcodeRow
from warpfrag.machine.ir.scalar_types import Type

# matches files of CUDA headers and Triton's library functions
LIBRARY_FILE = re.compile(r"[/\\](include|triton[/\\]language)[/\\]")
MAX_TEXT = 160  # maximum number of characters shown of a source line


class SourceLine(NamedTuple):
    """A line of a kernel's source file, and the line at which it was inlined, if any.

    >>> str(SourceLine("softmax.py", 7, SourceLine("model.py", 30)))
    'model.py:30 (in softmax.py:7)'
    >>> str(SourceLine("/cuda/include/cuda_fp16.hpp", 900, SourceLine("scale.cu", 12)))
    'scale.cu:12 (in cuda_fp16.hpp:900)'
    """

    file: str
    line: int
    inlined_at: SourceLine | None = None

    def __str__(self) -> str:
        """Format the line in the kernel, then the lines in the inlined functions, without folders."""
        own = [call for call in self.calls[::-1] if not LIBRARY_FILE.search(call.file)]
        library = [call for call in self.calls[::-1] if LIBRARY_FILE.search(call.file)]
        first, *others = (f"{file_name(call.file)}:{call.line}" for call in own + library[: 1 if own else None])
        return f"{first} (in {', '.join(others)})" if others else first

    @property
    def calls(self) -> list[SourceLine]:
        """The line itself, then the lines of the calls through which it was inlined, innermost first."""
        return [self, *(self.inlined_at.calls if self.inlined_at else ())]

    @property
    def outermost(self) -> SourceLine:
        """The line in the entry function itself, which is the call site of the outermost inlined function."""
        return self.calls[-1]

    @property
    def text(self) -> str:
        """The text of the line, or an empty string for a library file or a file that does not exist."""
        file = "" if LIBRARY_FILE.search(self.file) else current_path(self.file)
        linecache.checkcache(file)  # the file may have changed since an earlier launch
        return linecache.getline(file, self.line).strip()[:MAX_TEXT] if Path(file).is_file() else ""


def file_name(path: str) -> str:
    """Return a file name without its folder."""
    return re.split(r"[/\\]", path)[-1]


def current_path(file: str) -> str:
    """Return the path of a source file; if it belongs to an imported module, the path in this checkout.

    Triton's cache ignores folders, so a cached kernel may have been compiled in a different checkout.
    """
    tail = Path(file).parts[-2:]
    imported = {path for module in list(sys.modules.values()) if (path := getattr(module, "__file__", None))}
    found = {path for path in imported if path.endswith(file_name(file)) and Path(path).parts[-2:] == tail}
    return found.pop() if file not in found and len(found) == 1 else file


def excerpt(*sources: SourceLine | None) -> str:
    """Return the text of each source line and of its call sites, one per line; lines without text are omitted."""
    lines = dict.fromkeys(line._replace(inlined_at=None) for source in sources if source for line in source.calls)
    return "".join(f"\n    {line}: {line.text}" for line in lines if line.text)


def located(error: WarpfragError, sources: Mapping[int, SourceLine]) -> WarpfragError:
    """Return an error that also names the source line from which its PTX line was compiled."""
    if isinstance(error, PtxError) and error.line in sources:
        source = sources[error.line]
        return PtxError(error.line, error.reason + excerpt(source), str(source), error.kind)
    return error


@dataclass(frozen=True, slots=True)
class FloatLiteral:
    """A float constant: its bits as an f32 if it is spelled 0f..., and otherwise as an f64."""

    code: int
    bits: int

    @property
    def number(self) -> float:
        """The value of the constant."""
        return struct.unpack("<f" if self.bits == 32 else "<d", self.code.to_bytes(self.bits // 8, "little"))[0]

    def __str__(self) -> str:
        """Return the PTX spelling."""
        return f"0{'f' if self.bits == 32 else 'd'}{self.code:0{self.bits // 4}X}"


@dataclass(frozen=True, slots=True)
class Register:
    """A register operand: its index in the register file, its width and its name."""

    index: int
    bits: int
    name: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class BankOperand:
    """An operand in the launch's constant banks, which form one buffer; its width is that of the type it is read as."""

    offset: int


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant operand; its code depends on the type it is read as."""

    value: int | FloatLiteral

    def code(self, ptx_type: Type | None) -> int:
        """Return the constant's code in a type."""
        if isinstance(self.value, int):
            if ptx_type is not None and ptx_type.bits == 1:
                return self.value != 0
            return self.value & ((1 << (ptx_type.bits if ptx_type else 64)) - 1)
        bits = self.value.bits
        if ptx_type is None or ptx_type.bits == bits:
            return self.value.code
        number = self.value.number
        if ptx_type.bits == 32:
            with np.errstate(over="ignore"):
                return int(np.float32(number).view(np.uint32))
        if ptx_type.bits == 64:
            return int(np.float64(number).view(np.uint64))
        return self.value.code & ((1 << ptx_type.bits) - 1)


@dataclass(frozen=True, slots=True)
class SpecialRegister:
    """A predefined register, such as %tid.x."""

    name: str


@dataclass(frozen=True, slots=True)
class VectorOperand:
    """A vector of operands, or 32-bit registers that form one wider integer, low word first."""

    items: tuple[PtxOperand, ...]


@dataclass(frozen=True, slots=True)
class MemoryOperand:
    """A memory address: an optional register or register pair plus a constant; `space` is set for a variable."""

    base: Register | VectorOperand | None
    offset: int
    space: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Discard:
    """The operand `_`, which discards a result."""


SELECTORS = ("", "b0", "b1", "b2", "b3", "h0", "h1")
"""Register-part selectors of scalar video instructions; operands store a selector as its index in this tuple."""
PtxOperand = Register | Immediate | BankOperand | SpecialRegister | VectorOperand | MemoryOperand | Discard


class Copy(NamedTuple):
    """A copy of an argument to a called function, or of a result to the caller."""

    source: PtxOperand
    target: PtxOperand
    size: int


UNBOUND = Unbound()


@dataclass(slots=True, eq=False)  # compared by identity, because equal instructions on two lines are distinct
class DecodedInstruction:
    """One instruction: its opcode with typed attributes, its action and its operands."""

    line: int
    opcode: DecodedOpcode
    action: Action = UNBOUND  # replaced when the opcode is bound
    guard: Register | None = None
    results: tuple[PtxOperand, ...] = ()
    sources: tuple[PtxOperand, ...] = ()
    targets: tuple[int, ...] = ()  # instruction indices of the branch targets or of the called function
    arguments: tuple[Copy, ...] = ()  # arguments of a call
    returns: tuple[Copy, ...] = ()
    saved_registers: tuple[Register, ...] = ()  # registers that are restored when a call returns
    pushes_frame: bool = False  # True for a call that may recurse, which needs its own local memory
    text: str = ""

    @property
    def name(self) -> str:
        """The opcode with its qualifiers, as written."""
        return self.opcode.attributes.name

    @property
    def mnemonic(self) -> str:
        """The opcode as it is written in the instruction's text, such as `LDG.E`; empty if there is no text."""
        words = self.text.split()
        return words[words[0].startswith("@")] if words else ""

    @property
    def attributes(self) -> Attributes:
        """The typed qualifiers of the opcode."""
        return self.opcode.attributes

    @property
    def row(self) -> OpcodeRow | None:
        """The row of the opcode table, or None."""
        return self.opcode.row

    @property
    def operands_read(self) -> tuple[PtxOperand, ...]:
        """All operands that are read, including address registers, call arguments and the guard."""
        bases = [
            operand.base
            for operand in (*self.sources, *self.results)
            if isinstance(operand, MemoryOperand) and operand.base is not None
        ]
        arguments = [operand for copy in (*self.arguments, *self.returns) for operand in (copy.source, copy.target)]
        return (*self.sources, *bases, *arguments, *(() if self.guard is None else (self.guard,)))


class MarkedRegisters(NamedTuple):
    """For each instruction, the registers that may be unassigned when it reads or writes them."""

    reads: tuple[frozenset[int], ...]
    writes: tuple[frozenset[int], ...]


@dataclass(frozen=True)
class Parameter:
    """An entry parameter: its offset and size in the parameter bytes; machine code does not record its type."""

    name: str
    type: str
    size: int
    align: int
    offset: int
    is_array: bool
    is_typed: bool = True


@dataclass(frozen=True)
class ModuleVariable:
    """A variable in global or constant memory: its address, declaration and initial bytes."""

    address: int
    size: int
    space: str
    type: str
    shape: tuple[int, ...]  # () for a scalar; the last axis counts the elements of a vector type
    initial: bytes = b""  # the initial bytes; the rest is zero


@dataclass(eq=False)  # compared and hashed by identity, so that results can be cached
class Program:
    """Everything an engine needs to run one entry."""

    name: str
    target: str
    instructions: list[DecodedInstruction]
    registers: list[int]  # the width of each register in bits
    parameters: list[Parameter]
    parameter_bytes: int
    shared_bytes: int  # bytes of static shared memory
    dynamic_start: int
    has_dynamic: bool
    local_bytes: int
    frame: Register  # the register with the start of a recursive function's local memory
    frame_bytes: int
    directives: dict[str, tuple[int, ...]]
    variables: dict[str, ModuleVariable] = field(default_factory=dict)
    leaders: set[int] = field(default_factory=set)
    assigns_registers: bool = True  # False for machine code, which may read unassigned registers without using them
    # set if compiled code should mark registers that may be unassigned
    find_unassigned: Callable[[Program], MarkedRegisters | None] | None = None
    # True if shared addresses contain the target block's rank itself, not its XOR with the executing block's rank
    has_absolute_ranks: bool = False
    # machine-code spellings by address, used to look up evidence
    spellings: dict[int, str] = field(default_factory=dict)

    def opcode_at(self, at: int) -> str:
        """Return the opcode of the instruction at an index, or "" if it continues the machine instruction before it."""
        inst = self.instructions[at]
        if not self.is_machine_code:
            return inst.name
        return inst.mnemonic if at == 0 or self.instructions[at - 1].line != inst.line else ""

    @property
    def is_machine_code(self) -> bool:
        """True if the instructions were lowered from machine code."""
        return bool(self.spellings)

    @cached_property
    def ends(self) -> list[int]:
        """The index after the end of each instruction's basic block."""
        return block_ends(self.instructions, self.leaders)

    @cached_property
    def polling(self) -> frozenset[int]:
        """The start indices of basic blocks that pause, or that read memory which other threads may change."""
        return frozenset(
            start
            for start in self.leaders
            if start < len(self.instructions)
            and any(polls(inst.action) for inst in self.instructions[start : self.ends[start]])
        )


def block_ends(instructions: Sequence[DecodedInstruction], leaders: set[int]) -> list[int]:
    """Return, for each instruction, the index after the end of its basic block."""
    ends, end = [0] * len(instructions), len(instructions)
    for at in range(len(instructions) - 1, -1, -1):
        if at + 1 in leaders or instructions[at].action.ends_block:
            end = at + 1
        ends[at] = end
    return ends


def polls(action: Action) -> bool:
    """Return True if an action reads memory that other threads may change, or pauses."""
    if isinstance(action, NoOp):
        return action.pauses
    if isinstance(action, MemoryLoad):
        return action.polls
    if isinstance(action, Atomic):
        return action.name in {"cas", "exch"}
    return isinstance(action, MemoryBarrier) and action.name in {"test_wait", "try_wait"}


def registers_of(operand: PtxOperand) -> Iterator[Register]:
    """Yield all registers in an operand."""
    if isinstance(operand, Register):
        yield operand
    elif isinstance(operand, VectorOperand):
        for item in operand.items:
            yield from registers_of(item)


def indices_of(operands: Iterable[PtxOperand]) -> set[int]:
    """Return the indices of all registers in the operands, including their address registers."""
    registers: set[int] = set()
    for operand in operands:
        if isinstance(operand, Register):  # the usual case
            registers.add(operand.index)
            continue
        registers.update(register.index for register in registers_of(operand))
        if isinstance(operand, MemoryOperand) and operand.base is not None:
            registers.update(register.index for register in registers_of(operand.base))
    return registers


class InexactCause(IntFlag):
    """Causes of inexact results that depend on the values in a launch, as flags in one byte per instruction."""

    NAN_OPERANDS = 1
    OVERLAPPING_STORES = 2
    STMATRIX_ROWS = 4
    LANES_AT_SAME_ADDRESS = 8


REASONS = {
    InexactCause.NAN_OPERANDS: "different NaNs are operands of one f64 operation: the result depends on the operand"
    " order that ptxas chose",
    InexactCause.OVERLAPPING_STORES: "several threads store different bytes to the same address without a barrier"
    " between them: the result depends on timing",
    InexactCause.STMATRIX_ROWS: "several lanes pass the same address and different bytes to stmatrix: the result is"
    " unspecified, and is computed as on an H200",
    InexactCause.LANES_AT_SAME_ADDRESS: "several lanes of a warp store different bytes to the same address at once:"
    " the result is computed as on an H200",
}
"""The text that `Run.inexact_lines` gives as the reason for each cause."""
MEASURED_ON = {InexactCause.LANES_AT_SAME_ADDRESS: "sm_90"}
"""The architecture on which the results of a cause were measured, and are known (docs/evidence/h200_stores.md)."""
