"""Find out whether the memory that a launch writes depends on addresses that warpfrag chose: a GPU chooses others.

If an analysis of the code finds stores whose data may be computed from an address, the launch runs again with its
arrays and variables at different addresses.
"""

from bisect import bisect_right
from dataclasses import replace

import numpy as np

from warpfrag.machine.interpreter.device_memory import DeviceMemory, MemorySnapshot
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import (
    BankOperand,
    DecodedInstruction,
    MemoryOperand,
    VectorOperand,
    indices_of,
    registers_of,
)
from warpfrag.machine.launch.exploration import explore
from warpfrag.machine.launch.grid import Waves, Work
from warpfrag.sass.lowering import SassProgram
from warpfrag.sass.uncertain_values import ValueFlow

MOVED = (0x2AAA_AAAA_AA00, 0x1555_5555_5500)
"""The addresses of the first array in the two further runs: every bit from 8 to 45 differs."""
APART = 1 << 32  # the distance of moved arrays
COMPUTES = actions.LaneOp | actions.Move | actions.WarpCollective
STORES = actions.MemoryStore | actions.Atomic
STACK = "R1"


def stored_addresses(program: SassProgram, memory: DeviceMemory) -> set[int]:
    """Return the stores and atomics to global memory whose data may be computed from an address in a constant bank.

    Only whole registers are followed. Loaded values and predicates count as independent of addresses, and so does a
    register that was written under a guard: the old value is hardly ever used.
    """
    sources = {at for at, inst in enumerate(program.instructions) if reads_address(inst, program, memory)}
    found: set[int] = set()
    if not sources or not any(isinstance(inst.action, STORES) for inst in program.instructions):
        return found
    flow = ValueFlow(program)
    predicates = sum(1 << index for index, bits in enumerate(program.registers) if bits == 1)
    before = {0: 0}  # the registers that may hold part of an address, at the start of each block
    queue = [0]
    while queue:
        block = queue.pop()
        state = before[block]
        for at in range(flow.starts[block], flow.ends[block]):
            inst, writes = flow.instructions[at], flow.writes[at] & ~predicates
            if isinstance(inst.action, STORES) and inst.action.space in {"global", "generic"}:
                data = sum(1 << index for index in indices_of(inst.sources[1:]))
                if state & data:
                    found.add(at)
            is_whole = inst.attributes.opcode != "prmt"  # ptxas packs halves into registers whose other half is unused
            if isinstance(inst.action, COMPUTES) and is_whole and (at in sources or state & flow.reads[at]):
                state |= writes
            else:
                state &= ~writes
        for other in flow.following[block]:
            if other not in before or state & ~before[other]:
                before[other] = before.get(other, 0) | state
                queue.append(other)
    return found


def stored_stack_pointers(program: SassProgram) -> set[int]:
    """Return the stores to global memory of the stack pointer: ptxas uses it for a value that was never written."""
    return {
        at
        for at, inst in enumerate(program.instructions)
        if isinstance(inst.action, STORES) and inst.action.space in {"global", "generic"}
        if any(reg.name == STACK for operand in inst.sources[1:] for reg in registers_of(operand))
    }


def depends_on_addresses(work: Work, program: SassProgram, waves: Waves, before: MemorySnapshot) -> bool:
    """Run a launch again, from its initial memory, with its arrays and variables at two other addresses."""

    def run(number: int) -> str:
        moved = with_moved_arrays(work.memory, program, MOVED[number])
        again = Work(work.program, work.config, moved, work.compiled).run_waves(waves.again(), 1, None)
        return "" if again.failure is None else str(again.failure[1])

    return not explore(work.memory, before, len(MOVED), run).agrees


def with_moved_arrays(memory: DeviceMemory, program: SassProgram, first: int) -> DeviceMemory:
    """Return the memory with each array and variable to which a constant bank points at another address."""
    moved, parameters = memory.fork(), memory.parameters.copy()
    starts = {item.start: item.start for item in memory.allocations}
    base = program.bank_starts[0] + program.parameter_base
    for offset in range(-(-base // 8) * 8, len(parameters) - 7, 8):
        value = memory.constant(offset, 8)
        at = bisect_right(memory.starts, value) - 1
        if is_chosen(offset, program, memory) and at >= 0:
            old = memory.allocations[at].start
            if starts[old] == old:
                starts[old] = first + APART * at
            parameters[offset : offset + 8] = np.frombuffer((starts[old] + value - old).to_bytes(8, "little"), np.uint8)
    moved.parameters = parameters
    items = sorted(
        (replace(item, start=starts[item.start]) for item in memory.allocations), key=lambda item: item.start
    )
    moved.allocations, moved.starts = items, [item.start for item in items]
    return moved


def reads_address(inst: DecodedInstruction, program: SassProgram, memory: DeviceMemory) -> bool:
    """Return True if an instruction reads part of an address from a constant bank, at a fixed offset."""
    found = list[int]()
    for operand in inst.sources:
        for item in operand.items if isinstance(operand, VectorOperand) else (operand,):
            if isinstance(item, BankOperand):
                found.append(item.offset)
        if isinstance(operand, MemoryOperand) and operand.base is None and inst.name.startswith("ld.param"):
            found.append(operand.offset)
    return any(is_chosen(offset & ~7, program, memory) for offset in found)


def is_chosen(offset: int, program: SassProgram, memory: DeviceMemory) -> bool:
    """Return True if 8 bytes of the constant banks are an address in an allocation that warpfrag placed."""
    value, parameter = memory.constant(offset, 8), offset - program.bank_starts[0] - program.parameter_base
    is_narrow = any(each.offset <= parameter < each.offset + each.size < each.offset + 8 for each in program.parameters)
    return (
        parameter >= 0
        and not is_narrow
        and any(
            item.start <= value < max(item.end, item.start + 1) and not item.is_placed for item in memory.allocations
        )
    )
