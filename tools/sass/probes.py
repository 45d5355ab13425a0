"""Probe kernels: single machine instructions between loads of their operands and stores of their results.

A probe is an instruction that ptxas encoded in some kernel, with its original registers. A probe kernel has several
probes. For each of them, code loads the source registers from memory, runs the instruction, and stores its results, so
that every execution by a lane is an operand set whose result reaches memory. Zero registers among the sources are
replaced by other registers. Memory instructions get an address that belongs only to their thread.

`probe_kernels` writes the code.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tools.sass.evidence import is_arithmetic
from warpfrag.cuda_tools import find_tool
from warpfrag.errors import SassError
from warpfrag.machine.ir.actions import (
    Atomic,
    LaneOp,
    MatrixOp,
    MemoryLoad,
    MemoryStore,
    Move,
    WarpCollective,
)
from warpfrag.machine.ir.program import MemoryOperand, Register, registers_of
from warpfrag.sass.disassembler import LINE, disassemble
from warpfrag.sass.emitter import Emitter
from warpfrag.sass.instruction_parser import parse_instruction
from warpfrag.sass.opcodes import opcode_table
from warpfrag.sass.sass_instruction import (
    INSTRUCTION_BYTES,
    AddressOperand,
    ConstantOperand,
    ImmediateOperand,
    RegisterOperand,
    SassInstruction,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from warpfrag.machine.ir.program import PtxOperand

ARCH = "sm_90"
THREADS = 2048
"""The number of threads in a launch: twice 1,024, because special values repeat."""
LANES_LAYOUT, WARPS_LAYOUT, ONE_WARP = (THREADS // 128, 128), (THREADS, 1), (1, 32)
"""Grid and block: full warps, one thread per warp if every operand is uniform, or one warp if none is a register."""
SHARED_BASE, CELL_BYTES = 0x400, 16
SHARED_BYTES = 128 * CELL_BYTES
PARAMETERS, CONSTANT_BYTES = 0x210, 256
CONSTANT_FIELD, CONSTANT_MASK = 38, (1 << 21) - 1
"""The position and the mask of the encoding field with the offset and the bank of a constant."""
ADDRESS, SCRATCH, FREE = 250, 248, (200, 208, 216, 224)
"""The registers that hold a thread's address, a scratch register, and registers that replace zero registers."""
DESCRIPTOR, UNIFORM_SCRATCH = 60, 59
ILLEGAL = re.compile(r"at address (0x[0-9a-f]+)")
MEMORY = MemoryLoad | MemoryStore | Atomic
COMPUTING = LaneOp | Move | WarpCollective
SHARED_OPCODES = {"ATOMS", "LDS", "LDSM", "STS"}
GLOBAL_OPCODES = {"ATOM", "ATOMG", "LD", "LDG", "RED", "REDG", "ST", "STG"}
STORES = {"REDG", "STG", "STS", "ST"}


class NoProbe(Exception):
    """Raised for an instruction that a probe cannot run; the message is the reason."""


class Probe(NamedTuple):
    """An instruction with the names of the registers that are loaded before it, and of those that are stored after it.

    `original` is the encoding with zero registers, which some opcodes require; it is 0 if there is none.
    """

    inst: SassInstruction
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    address: AddressOperand | None = None
    original: int = 0

    @property
    def layout(self) -> tuple[int, int]:
        """The grid and block that vary the operands: one thread per warp if no operand differs between lanes."""
        files = {split_name(name)[0] for name in self.reads}
        if not files and self.address is None and is_arithmetic(self.inst.spelling):
            return ONE_WARP
        is_uniform = self.inst.opcode.startswith("U") or bool(files and not ("R" in files or files == {"P"}))
        if self.address is not None:
            has_lanes = self.address.base is not None and not self.address.base.is_constant
            is_uniform = not has_lanes if self.inst.opcode in SHARED_OPCODES else is_uniform or not has_lanes
        return WARPS_LAYOUT if is_uniform else LANES_LAYOUT


class ProbeKernel(NamedTuple):
    """A kernel with its probes, and the words with the results of each."""

    cubin: bytes
    probes: tuple[Probe, ...]
    words: tuple[tuple[int, ...], ...]
    layout: tuple[int, int]


def split_name(name: str) -> tuple[str, int]:
    """Return the file and the index of a register."""
    file = name.rstrip("0123456789")
    return file, int(name[len(file) :])


def probe_of(inst: SassInstruction) -> Probe:
    """Return the probe of an instruction; raise NoProbe if there is none."""
    emitter = Emitter({0: 0}, "shared", PARAMETERS, {}, has_groups=False)
    opcode_table.emit(emitter, inst)
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    for part in emitter.instructions:
        operation = part.action.operation if isinstance(part.action, MatrixOp) else ""
        is_matrix = operation == "ldmatrix" or (operation == "mma" and "SP" not in inst.modifiers)
        if not is_matrix and not isinstance(part.action, MEMORY | COMPUTING) and not is_control(inst):
            raise NoProbe(f"{type(part.action).__name__} is neither arithmetic nor a memory access")
        reads |= dict.fromkeys(name for name in _names(part.operands_read) if name not in writes)
        writes |= dict.fromkeys(_names(part.results))
    if is_control(inst):
        return _checked(control_probe(inst, tuple(reads)))
    constant = constant_of(inst)
    if constant is not None:
        if not is_parameter(constant):
            raise NoProbe("a constant of another bank")
        if constant.base is not None:
            reads.pop(f"{constant.base.file}{constant.base.index}", None)
        return _checked(Probe(inst, tuple(reads), tuple(writes)))
    addresses = [operand for operand in inst.operands if isinstance(operand, AddressOperand)]
    if not any(isinstance(part.action, MEMORY) for part in emitter.instructions) and not addresses:
        if not reads and not (inst.operands and isinstance(inst.operands[-1], ImmediateOperand)):
            raise NoProbe("it reads no register")
        return _checked(Probe(inst, tuple(reads), tuple(writes)))
    if len(addresses) != 1:
        raise NoProbe(f"it has {len(addresses)} addresses")
    for register in _address_registers(inst, addresses[0]):
        reads.pop(f"{register.file}{register.index}", None)
        is_pair = inst.opcode in GLOBAL_OPCODES
        reads.pop(f"{register.file}{register.index + 1}" if is_pair else "", None)
    return _checked(Probe(inst, tuple(reads), tuple(writes), addresses[0]))


def is_control(inst: SassInstruction) -> bool:
    """Return True for block barriers, WARPSYNC, and branches that all lanes take or none does."""
    first = inst.operands[0] if inst.operands else None
    is_uniform = isinstance(first, RegisterOperand) and first.file == "UP"
    return inst.opcode in {"BAR", "WARPSYNC"} or (inst.opcode == "BRA" and (is_uniform or "U" in inst.modifiers))


def control_probe(inst: SassInstruction, reads: tuple[str, ...]) -> Probe:
    """Return the probe of a barrier or branch; a branch without registers gets a guard, which examples lack."""
    if inst.opcode == "BRA":
        return Probe(inst, reads or ("P0",), ())
    if not reads or (inst.opcode == "BAR" and barrier_registers(inst) is None):
        raise NoProbe("a barrier without registers, or with another number of threads")
    return Probe(inst, reads, reads if inst.opcode == "WARPSYNC" else ())


def barrier_registers(inst: SassInstruction) -> dict[int, int] | None:
    """Return the shift of the thread count in each register of a block barrier; None if a probe cannot run it.

    A register has the number of the barrier, the number of threads, or both. The shift is -1 if a register has only the
    number of the barrier.
    """
    numbers = [operand for operand in inst.operands if getattr(operand, "file", "") != "P"]
    first, last = numbers[0], numbers[-1]
    if isinstance(last, ImmediateOperand) and (len(numbers) > 1 or isinstance(first, ImmediateOperand)):
        return None
    if any(isinstance(operand, RegisterOperand) and operand.file != "R" for operand in numbers):
        return None
    if first == last and len(numbers) > 1 and isinstance(first, RegisterOperand):
        return {first.index: 16}
    found = {first.index: -1} if isinstance(first, RegisterOperand) else {}
    return found | ({last.index: 0} if len(numbers) > 1 and isinstance(last, RegisterOperand) else {})


def constant_of(inst: SassInstruction) -> ConstantOperand | None:
    """Return the constant that an instruction reads."""
    return next((operand for operand in inst.operands if isinstance(operand, ConstantOperand)), None)


def is_parameter(operand: ConstantOperand) -> bool:
    """Return True if a constant is a word of a probe kernel's second parameter."""
    first = PARAMETERS + 8
    return operand.bank == 0 and first <= operand.offset <= first + CONSTANT_BYTES - 8


def _address_registers(inst: SassInstruction, address: AddressOperand) -> list[RegisterOperand]:
    """Return the registers that hold an address in global or shared memory; raise NoProbe if a probe cannot set it."""
    found = [register for register in (address.base, address.uniform) if register is not None]
    if address.prefix == "desc":
        is_known = len(found) == 1 and found[0].selector == "64" and not found[0].is_constant
    elif inst.opcode in SHARED_OPCODES:
        is_known = not address.prefix and not any(register.selector for register in found)
    else:
        is_known = is_plain_global(inst, address) or is_uniform_global(inst, address)
    if not is_known:
        raise NoProbe("an address of another form or space")
    data = [operand for operand in inst.operands if isinstance(operand, RegisterOperand) and not operand.is_constant]
    if inst.opcode not in STORES:
        del data[: 1 if inst.operands[0] in data else 0]
    if any(a.file == b.file and b.index - 4 < a.index < b.index + 2 for a in data for b in found):
        raise NoProbe("an address register is data too")
    return found


def is_plain_global(inst: SassInstruction, address: AddressOperand) -> bool:
    """Return True for a 64-bit address in global memory without a descriptor: [R] or [R.64+UR].

    CAST is for shared memory only.
    """
    if (
        "CAST" in inst.modifiers
        or inst.opcode not in GLOBAL_OPCODES
        or address.prefix
        or address.base is None
        or address.base.is_constant
    ):
        return False
    if address.uniform is None:
        return "E" in inst.modifiers and address.base.selector in {"", "64"}
    return address.base.selector == "64" and not address.uniform.is_constant


def is_uniform_global(inst: SassInstruction, address: AddressOperand) -> bool:
    """Return True for an address in global memory that is a uniform register: [RZ.U32+UR]."""
    return (
        inst.opcode == "LDG"
        and "E" in inst.modifiers
        and not address.prefix
        and address.base is not None
        and address.base.is_constant
        and address.base.selector == "U32"
        and address.uniform is not None
        and not address.uniform.is_constant
    )


def _names(operands: Iterable[PtxOperand]) -> list[str]:
    """Return the architectural registers of operands."""
    return [register.name for operand in operands for register in _registers(operand) if register.name[0] != "%"]


def _registers(operand: PtxOperand) -> list[Register]:
    found = list(registers_of(operand))
    if isinstance(operand, MemoryOperand) and operand.base is not None:
        found += registers_of(operand.base)
    return found


def _checked(probe: Probe) -> Probe:
    """Return a probe; raise NoProbe if it uses a register that the code around it needs."""
    own = {
        f"R{ADDRESS}",
        f"R{ADDRESS + 1}",
        f"R{SCRATCH}",
        f"R{SCRATCH + 1}",
        f"UR{DESCRIPTOR}",
        f"UR{DESCRIPTOR + 1}",
        f"UR{UNIFORM_SCRATCH}",
    }
    taken = own & {*probe.reads, *probe.writes}
    if taken or any(re.fullmatch(r"R25[2-5]|UR63|B\d+", name) for name in (*probe.reads, *probe.writes)):
        raise NoProbe(f"it uses {', '.join(taken) or 'a register that the kernel lacks'}")
    return probe


# --- examples: encodings without zero registers


def without_guard_and_hints(encoding: int) -> int:
    """Return the encoding without its guard and without operand reuse."""
    return encoding & ~(0xF << 12) & ~(0xF << 122) | 7 << 12


def usable(encodings: Sequence[int]) -> list[SassInstruction]:
    """Decode encodings, with constants from the parameter; zero registers are replaced if nothing else changes."""
    fixed = [without_guard_and_hints(encoding) for encoding in encodings]
    before = decoded(fixed)
    for number, inst in enumerate(before):
        constant = constant_of(inst)
        if constant is not None and constant.bank is not None and not is_parameter(constant):
            fixed[number] &= ~(CONSTANT_MASK << CONSTANT_FIELD)
            fixed[number] |= PARAMETERS + CELL_BYTES << CONSTANT_FIELD
            if constant.base is not None and constant.base.is_constant:
                fixed[number] = fixed[number] & ~(0xFF << 24) | FREE[1] << 24
    before = [new or old for old, new in zip(before, decode_legal(fixed), strict=True)]
    for field, free in ((16, FREE[0]), (24, FREE[1]), (32, FREE[2]), (64, FREE[3])):
        trial = [
            encoding & ~(0xFF << field) | free << field if encoding >> field & 0xFF == 0xFF else encoding
            for encoding in fixed
        ]
        for number, (old, new) in enumerate(zip(before, decode_legal(trial), strict=True)):
            if new is not None and _is_same_but_zero(old, new):
                fixed[number], before[number] = trial[number], new
    return before


def _is_same_but_zero(old: SassInstruction, new: SassInstruction) -> bool:
    """Return True if two instructions differ only in one RZ that became a register."""
    if (old.opcode, old.modifiers, len(old.operands)) != (new.opcode, new.modifiers, len(new.operands)):
        return False
    changed = [(a, b) for a, b in zip(old.operands, new.operands, strict=True) if a != b]
    return (
        len(changed) == 1
        and all(
            isinstance(a, RegisterOperand) and a.file == "R" and a.is_constant and replace(a, index=b.index) == b
            for a, b in changed
            if isinstance(b, RegisterOperand)
        )
        and isinstance(changed[0][1], RegisterOperand)
    )


def decoded(encodings: Sequence[int]) -> list[SassInstruction]:
    """Decode single instructions; their code addresses do not matter."""
    code = b"".join(encoding.to_bytes(16, "little") for encoding in encodings)
    (found,) = disassemble([code], ARCH)
    return list(found)


def decode_legal(encodings: Sequence[int]) -> list[SassInstruction | None]:
    """Decode single instructions; None for those that nvdisasm or the parser does not accept."""
    found: list[SassInstruction | None] = [None] * len(encodings)
    rest, text = dict(enumerate(encodings)), ""
    while rest:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "code.bin"
            path.write_bytes(b"".join(encoding.to_bytes(INSTRUCTION_BYTES, "little") for encoding in rest.values()))
            command = [str(find_tool("nvdisasm").path), "--binary", "SM90", "--print-raw", "--no-dataflow", str(path)]
            done = subprocess.run(command, capture_output=True, check=False, text=True, errors="replace")  # noqa: S603
        illegal = {int(address, 16) // INSTRUCTION_BYTES for address in ILLEGAL.findall(done.stderr)}
        if not illegal:
            text = done.stdout
            break
        rest = {number: code for at, (number, code) in enumerate(rest.items()) if at not in illegal}
    numbers = list(rest)
    for address, line in LINE.findall(text):
        number = numbers[int(address, 16) // INSTRUCTION_BYTES]
        with suppress(SassError):
            found[number] = parse_instruction(line, int(address, 16), rest[number])
    return found
