"""Lower a machine-code function to a program that the machine runs.

The constant banks form one buffer, starting with bank 0. The parameter window refers to the same buffer.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from warpfrag.errors import NotModelled
from warpfrag.machine.interpreter.warp_state import LaunchConfig
from warpfrag.machine.ir.actions import Jump, Refused
from warpfrag.machine.ir.program import ModuleVariable, Parameter, Program
from warpfrag.machine.ir.state_spaces import GRID_WORKSPACE, SHARED_START, WINDOWS, StateSpace
from warpfrag.sass.cubin import CubinSymbol, SassFunction
from warpfrag.sass.emitter import DRIVER_WORDS, Emitter
from warpfrag.sass.opcodes import opcode_table
from warpfrag.sass.sass_instruction import INSTRUCTION_BYTES, CodeTarget, SassInstruction

PARAMETERS = 0x210  # the offset of the first parameter in bank 0 on sm_90
BANK_ALIGN = 64
CONSTANT_BANK = 3  # the bank that contains the module's constant variables
DEFAULT_STACK = 1024
RECURSIVE_STACK = 1 << 14  # the stack size that is used if recursion makes it unknown


ENDS = {"RET", "EXIT", "BRA", "NOP"}
"""Opcodes that may be the last instruction of a function."""


@dataclass(eq=False)
class SassProgram(Program):
    """A program lowered from machine code, whose constant banks are filled in at launch."""

    banks: dict[int, bytes] = field(default_factory=dict)
    bank_starts: dict[int, int] = field(default_factory=dict)
    parameter_base: int = PARAMETERS

    def constant_banks(self, config: LaunchConfig, parameters: bytes) -> bytes:
        """Return the constant buffer; bank 0 contains the launch's extents, the address windows and the parameters."""
        grid, block, cluster = config.grid, config.block, config.cluster
        size = max(self.bank_starts[bank] + len(data) for bank, data in self.banks.items())
        buffer = bytearray(size)
        for bank, data in self.banks.items():
            start = self.bank_starts[bank]
            buffer[start : start + len(data)] = data
        start = self.bank_starts[0]
        words = DRIVER_WORDS[self.parameter_base]
        struct.pack_into("<3I", buffer, start + words.block, *block)
        struct.pack_into("<3I", buffer, start + words.grid, *grid)
        struct.pack_into("<I", buffer, start + words.stack, self.local_bytes)
        if words.cluster is not None and words.cluster_size is not None:
            clusters = [blocks // size for blocks, size in zip(grid, cluster, strict=True)]
            reciprocals = [1 / size for size in cluster]
            values = config.is_explicit_cluster, *cluster, *reciprocals, *clusters
            struct.pack_into("<4I3f3I", buffer, start + words.cluster, *values)
            struct.pack_into("<I", buffer, start + words.cluster_size, config.cluster_blocks)
        addresses = {
            words.local_window: WINDOWS["local"],
            words.parameters: WINDOWS["param"] + start + self.parameter_base,
        }
        if config.is_cooperative:  # the upper half of the address comes first
            addresses[words.workspace] = GRID_WORKSPACE >> 32 | (GRID_WORKSPACE & 0xFFFFFFFF) << 32
        if CONSTANT_BANK in self.bank_starts:
            addresses[words.constants] = WINDOWS["param"] + self.bank_starts[CONSTANT_BANK]
        for offset, address in addresses.items():
            if offset is not None:
                struct.pack_into("<Q", buffer, start + offset, address)
        first = start + self.parameter_base
        buffer[first : first + len(parameters)] = parameters
        return bytes(buffer)


def lower(
    function: SassFunction,
    code: Sequence[SassInstruction],
    address_of: Callable[[CubinSymbol], int],
    variables: dict[str, ModuleVariable],
    driver_functions: Mapping[str, int],
    *,
    in_cluster: bool = False,
) -> SassProgram:
    """Lower a kernel; an instruction that is not modelled raises an error only if it runs.

    With `in_cluster`, or if the kernel requires clusters, shared-memory addresses contain the rank of a block.
    """
    base = _parameter_base(function)
    banks = {bank: section.relocated(address_of) for bank, section in function.constants.items()}
    banks[0] = banks.get(0, b"").ljust(base + function.parameter_bytes, b"\0")
    starts, end = {}, 0
    for bank, data in sorted(banks.items()):
        starts[bank] = end
        end += -(-(len(data) + BANK_ALIGN) // BANK_ALIGN) * BANK_ALIGN
        banks[bank] = data.ljust(end - starts[bank], b"\0")
    has_groups = any(inst.opcode == "WARPSYNC" and "EXCLUSIVE" in inst.modifiers for inst in code)
    space: StateSpace = "cluster" if function.cluster or in_cluster else "shared"
    emitter = Emitter(starts, space, base, driver_functions, has_groups=has_groups)
    firsts: dict[int, int] = {}
    for inst in code:
        firsts[inst.address] = len(emitter.instructions)
        opcode_table.emit(emitter, inst)
    frame = emitter.hidden("frame", 64)
    leaders = _connect(emitter, code, firsts, banks)
    shared = max(0, function.shared_bytes - emitter.driver_words.shared_start)
    stack = max(RECURSIVE_STACK if function.stack_bytes is None else function.stack_bytes, function.frame_bytes)
    if stack or any(inst.opcode in {"LDL", "STL"} for inst in code):
        stack = max(stack, DEFAULT_STACK)
    directives: dict[str, tuple[int, ...]] = {"reqnctapercluster": function.cluster} if function.cluster else {}
    if function.required_threads:
        directives["reqntid"] = function.required_threads
    spellings = {inst.address: inst.spelling for inst in code}
    return SassProgram(
        name=function.name, target=function.arch, instructions=emitter.instructions, registers=emitter.bits,
        parameters=_parameters(function), parameter_bytes=function.parameter_bytes, shared_bytes=shared,
        dynamic_start=SHARED_START + shared, has_dynamic=True, local_bytes=-(-stack // 16) * 16, frame=frame,
        frame_bytes=0, directives=directives, variables=variables, leaders=leaders, assigns_registers=False,
        has_absolute_ranks=space == "cluster", spellings=spellings, banks=banks, bank_starts=starts,
        parameter_base=base,
    )  # fmt: skip


def _parameter_base(function: SassFunction) -> int:
    """Return the offset of the first parameter in bank 0; without parameters, the architecture determines it."""
    number = int(function.arch.removeprefix("sm_").rstrip("af"))
    base = function.parameter_base or (0x160 if number < 90 else PARAMETERS if number < 100 else 0x380)
    if base not in DRIVER_WORDS:
        raise NotModelled(
            f"{function.name}: expected parameters at {' or '.join(map(hex, DRIVER_WORDS))} in bank 0, got {base:#x}"
        )
    return base


def _parameters(function: SassFunction) -> list[Parameter]:
    """Return the parameters, which have sizes but no types, because a cubin does not record types."""
    return [
        Parameter(
            f"param {parameter.ordinal}", f"b{8 * parameter.size}", parameter.size,
            _alignment(function.parameter_base + parameter.offset, parameter.size), parameter.offset,
            is_array=parameter.size not in {1, 2, 4, 8}, is_typed=False,
        )
        for parameter in function.parameters
    ]  # fmt: skip


def _alignment(offset: int, size: int) -> int:
    """Return a parameter's alignment, derived from its offset and size."""
    align = 1
    while align < BANK_ALIGN and offset % (2 * align) == 0 and align < size:
        align *= 2
    return align


def _connect(
    emitter: Emitter, code: Sequence[SassInstruction], firsts: dict[int, int], banks: dict[int, bytes]
) -> set[int]:
    """Resolve branch targets, and return the indices at which basic blocks start."""
    instructions = emitter.instructions
    for inst, address in emitter.targets:
        if address not in firsts:
            inst.action = Refused(f"{inst.text}: there is no instruction at {address:#x}")
            continue
        inst.targets = (firsts[address],)
    returns = {
        inst.address + INSTRUCTION_BYTES: firsts[inst.address + INSTRUCTION_BYTES]
        for inst in code
        if inst.opcode == "CALL" and inst.address + INSTRUCTION_BYTES in firsts
    }
    by_address = {inst.address: inst for inst in code}
    called = returns | {
        inst.address: firsts[inst.address]
        for before, inst in pairwise(code)
        if inst.address != before.address + INSTRUCTION_BYTES or (before.guard is None and before.opcode in ENDS)
    }  # a function starts in another section, or after the end of an earlier one
    for inst in instructions:
        if isinstance(inst.action, Jump):
            opcode = by_address[inst.line].opcode
            starts = returns if opcode == "RET" else called if opcode == "CALL" else firsts
            if opcode == "BRX":
                starts = _table_targets(by_address[inst.line], firsts, banks)
            inst.action = Jump(starts)
            inst.targets = tuple(sorted(set(starts.values())))
    leaders = {0} | {target for inst in instructions for target in inst.targets}
    leaders |= {at + 1 for at, inst in enumerate(instructions) if inst.action.ends_block}
    return leaders


def _table_targets(inst: SassInstruction, firsts: dict[int, int], banks: dict[int, bytes]) -> dict[int, int]:
    """Return the possible targets of an indexed branch, which are read from offset tables in the constant banks."""
    target = inst.operands[-1]
    base = target.address if isinstance(target, CodeTarget) else 0
    found = {}
    for bank, data in banks.items():
        for (word,) in struct.iter_unpack("<i", data[: len(data) // 4 * 4]) if bank else ():
            if base + word in firsts:
                found[base + word] = firsts[base + word]
    return found or firsts
