"""Find stores whose data is computed from an address that warpfrag chose, because a GPU chooses other addresses."""

from warpfrag.machine.interpreter.device_memory import DeviceMemory
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import BankOperand, DecodedInstruction, MemoryOperand, VectorOperand, indices_of
from warpfrag.machine.ir.state_spaces import is_in_window
from warpfrag.sass.lowering import SassProgram
from warpfrag.sass.uncertain_values import ValueFlow

COMPUTES = actions.LaneOp | actions.Move | actions.WarpCollective
STORES = actions.MemoryStore | actions.Atomic


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
    """Return True if 8 bytes of the constant banks are an address in a window or allocation that warpfrag placed."""
    value, parameter = memory.constant(offset, 8), offset - program.bank_starts[0] - program.parameter_base
    if parameter < 0:
        return is_in_window(value)
    is_narrow = any(each.offset <= parameter < each.offset + each.size < each.offset + 8 for each in program.parameters)
    return not is_narrow and any(
        item.start <= value < max(item.end, item.start + 1) and not item.is_placed for item in memory.allocations
    )
