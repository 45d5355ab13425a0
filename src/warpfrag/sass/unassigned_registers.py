"""Find reads of registers that may be unassigned, in machine code.

A backward analysis finds the bits of each register that can still affect the launch. Compilers read some registers only
to drop their bits, such as a PRMT that fills one half. Such reads do not count. A forward analysis then finds, at each
instruction, the registers that may be unassigned, or that are computed from unassigned ones.
"""

from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np

from warpfrag.machine.interpreter.wgmma_registers import is_wgmma
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.opcode import Attributes
from warpfrag.machine.ir.program import (
    DecodedInstruction,
    Immediate,
    MarkedRegisters,
    MemoryOperand,
    Program,
    PtxOperand,
    Register,
    VectorOperand,
    indices_of,
)
from warpfrag.machine.jit.register_flow import passes_marks

BITWISE = {"and", "or", "xor", "not", "lop3"}
ROUTING = {"prmt": 2, "shl": 1, "shr": 1, "shf": 2}
"""Operations that copy bits, with the number of their data operands; the other operands must be constants."""
LOW_BITS = {"add", "sub", "neg", "mul", "mad"}
"""Operations whose low result bits depend only on the low bits of their operands."""
WORD_BITS = 32
PURE = actions.LaneOp | actions.Move | actions.WarpCollective
Demands = dict[int, int]
"""For each register, the bits that can still affect the launch; registers without such bits are absent."""


def ones(bits: int) -> int:
    """Return a mask of the `bits` lowest bits."""
    return (1 << bits) - 1


def spread(operand: PtxOperand, bits: int) -> Iterable[tuple[int, int]]:
    """Yield each register of an operand with the part of the given bits that it holds."""
    if isinstance(operand, Register):
        yield operand.index, bits & ones(operand.bits)
    elif isinstance(operand, VectorOperand):
        for number, item in enumerate(operand.items):
            yield from spread(item, bits >> WORD_BITS * number & ones(WORD_BITS))
    elif isinstance(operand, MemoryOperand) and operand.base is not None:
        yield from ((index, -1) for index in indices_of([operand.base]))


def accumulates(inst: DecodedInstruction) -> bool:
    """Return True for a wgmma that also reads its result registers, to add to them."""
    scale = inst.sources[2] if is_wgmma(inst) else Immediate(0)
    return not isinstance(scale, Immediate) or scale.code(None) != 0


def has_low_bits(attributes: Attributes) -> bool:
    """Return True if an integer operation returns the low half, without saturation or carries."""
    return attributes.half in {None, "lo"} and not (attributes.sat or attributes.carry_in or attributes.carry_out)


class BitDemand:
    """The operand bits that one instruction needs in order to compute given bits of its result."""

    def __init__(self, inst: DecodedInstruction) -> None:
        """Store the instruction; its demands are computed on request and cached."""
        self.inst, self.known = inst, dict[int, list[int]]()

    def of_sources(self, needed: int) -> list[int]:
        """Return the bits that the instruction needs from each source."""
        if needed not in self.known:
            self.known[needed] = self._of_sources(needed)
        return self.known[needed]

    def _of_sources(self, needed: int) -> list[int]:
        inst, action = self.inst, self.inst.action
        if isinstance(action, actions.LaneOp):
            return self.computed(action, needed)
        if isinstance(action, actions.WarpCollective):
            return self.collective(needed)
        if isinstance(action, actions.MemoryStore) and action.count == 1:
            return [-1, ones(action.type.bits)]
        is_copy = isinstance(action, actions.Move) and isinstance(inst.results[0], Register)
        return [needed if is_copy and isinstance(item, Register) else -1 for item in inst.sources]

    def computed(self, action: actions.LaneOp, needed: int) -> list[int]:
        """Return the operand bits that a per-lane operation needs."""
        inst, every = self.inst, [-1 if kind is None else ones(kind.bits) for kind in action.sources]
        opcode, count = inst.attributes.opcode, ROUTING.get(inst.attributes.opcode, 0)
        has_floats = action.fused is not None or any(kind and kind.is_float for kind in action.sources)
        if len(inst.results) > 1 or has_floats:
            return every
        if opcode == "selp":
            return [needed, needed, *every[2:]]
        if opcode in LOW_BITS and has_low_bits(inst.attributes):
            return self.low_bits(needed, every)
        if opcode in BITWISE:
            return self.bitwise(needed, action)
        if count and all(isinstance(operand, Immediate) for operand in inst.sources[count:]):
            return self.routed(needed, action, count)
        return every

    def collective(self, needed: int) -> list[int]:
        """Return the operand bits that a cross-lane operation needs; shuffles and R2UR move bits."""
        inst = self.inst
        every = [-1] * len(inst.sources)
        if inst.attributes.opcode == "shfl":
            return [needed, *every[1:]]
        if inst.attributes.opcode == "first_value":
            return [needed, -1, 0 if isinstance(inst.sources[1], Immediate) else needed]
        return every

    def low_bits(self, needed: int, every: list[int]) -> list[int]:
        """Return the bits that integer sums and low products need; a factor's trailing zeros reduce them."""
        sources, wanted = self.inst.sources, needed.bit_length()
        result = [ones(wanted) & bits for bits in every]
        if self.inst.attributes.opcode in {"mul", "mad"}:
            for number in range(2):
                factor = sources[1 - number]
                value = factor.code(None) if isinstance(factor, Immediate) else 1
                zeros = (value & -value).bit_length() - 1 if value else wanted
                result[number] &= ones(max(0, wanted - zeros))
        return result

    def evaluate(self, action: actions.LaneOp, values: list[int | list[int] | None]) -> list[int]:
        """Evaluate the operation for constant operands; None stands for the constant in the instruction."""
        arguments: list[object] = []
        count = max(len(value) if isinstance(value, list) else 1 for value in values)
        for operand, kind, value in zip(self.inst.sources, action.sources, values, strict=True):
            code = operand.code(kind) if value is None and isinstance(operand, Immediate) else value
            if kind is None:
                arguments.append(code)
            else:
                codes = np.broadcast_to(np.array(code, np.uint64), (1, count))
                arguments.append(codes.astype(kind.dtype))
        found: Any = action.function(*arguments)
        return [int(item) for item in np.asarray(found[0] if isinstance(found, tuple) else found).reshape(-1)]

    def bitwise(self, needed: int, action: actions.LaneOp) -> list[int]:
        """Return the bits needed by an operation in which each result bit depends on one bit of each operand."""
        sources = self.inst.sources
        free = [number for number, operand in enumerate(sources) if not isinstance(operand, Immediate)]
        result = [0] * len(sources)
        for chosen in free:
            for bits in product((0, 1), repeat=len(free)):
                if bits[free.index(chosen)]:
                    continue
                values: list[int | list[int] | None] = [None] * len(sources)
                for number, bit in zip(free, bits, strict=True):
                    values[number] = ones(64) * bit
                (low,) = self.evaluate(action, values)
                values[chosen] = ones(64)
                (high,) = self.evaluate(action, values)
                result[chosen] |= (low ^ high) & needed
        return result

    def routed(self, needed: int, action: actions.LaneOp, count: int) -> list[int]:
        """Return the bits needed by an operation that copies bits of its first `count` operands."""
        result = [0] * len(action.sources)
        for chosen in range(count):
            kind = action.sources[chosen]
            if kind is None or isinstance(self.inst.sources[chosen], Immediate):
                continue
            values: list[int | list[int] | None] = [None if number >= count else 0 for number in range(len(result))]
            (nothing,) = self.evaluate(action, values)
            values[chosen] = [1 << bit for bit in range(kind.bits)]
            found = self.evaluate(action, values)
            result[chosen] = sum(1 << bit for bit, code in enumerate(found) if (code ^ nothing) & needed)
        return result


class RegisterDemand:
    """For every instruction, the register bits that can still affect the launch."""

    def __init__(self, program: Program) -> None:
        """Run the backward analysis to a fixed point."""
        self.instructions = program.instructions
        self.starts = sorted({0, *program.ends} - {len(self.instructions)}) if self.instructions else []
        self.ends = {start: program.ends[start] for start in self.starts}
        self.forms = [BitDemand(inst) for inst in self.instructions]
        self.reads: list[frozenset[int]] = [frozenset()] * len(self.instructions)
        before: dict[int, Demands] = {start: {} for start in self.starts}
        preceding: dict[int, set[int]] = {start: set() for start in self.starts}
        for start in self.starts:
            for after in self.following(start):
                preceding[after].add(start)
        queue = list(self.starts)
        while queue:
            start = queue.pop()
            found = self.walk(start, before)
            if found != before[start]:
                before[start] = found
                queue += preceding[start] - set(queue)
        for start in self.starts:
            self.walk(start, before)

    def following(self, start: int) -> list[int]:
        """Return the blocks that may run after a block."""
        last = self.instructions[self.ends[start] - 1]
        is_left = last.guard is None and isinstance(last.action, actions.Branch | actions.Return | actions.Jump)
        targets = {*last.targets, *(() if is_left else (self.ends[start],))}
        if isinstance(last.action, actions.Jump):
            targets |= {*last.action.starts.values()}
        return sorted(targets & self.ends.keys())

    def walk(self, start: int, before: dict[int, Demands]) -> Demands:
        """Return the demands at the start of a block, and record the registers that each instruction needs."""
        state: Demands = {}
        for after in self.following(start):
            for index, bits in before[after].items():
                state[index] = state.get(index, 0) | bits
        for at in range(self.ends[start] - 1, start - 1, -1):
            self.reads[at] = self.step_back(at, state)
        return state

    def step_back(self, at: int, state: Demands) -> frozenset[int]:
        """Update the demands across an instruction; return the registers that the instruction needs."""
        inst = self.instructions[at]
        results = [[(index, state.get(index, 0)) for index, _ in spread(item, 0)] for item in inst.results]
        needed = sum(bits << WORD_BITS * n for n, (_, bits) in enumerate(results[0])) if results else 0
        is_used = not isinstance(inst.action, PURE) or any(bits for item in results for _, bits in item)
        needs = self.forms[at].of_sources(needed if len(results) == 1 else -1) if is_used else []
        if inst.guard is None:
            for item in results:
                for index, _ in item:
                    state.pop(index, None)
        read: Demands = {}
        for operand, bits in zip(inst.sources, needs, strict=True) if is_used else ():
            for index, part in spread(operand, bits):
                read[index] = read.get(index, 0) | part
        if is_used:
            others = [item for item in inst.results if isinstance(item, MemoryOperand) or accumulates(inst)]
            read |= dict.fromkeys(indices_of([*others, *([] if inst.guard is None else [inst.guard])]), -1)
        for index, bits in read.items():
            if bits:
                state[index] = state.get(index, 0) | bits
        return frozenset(index for index, bits in read.items() if bits)


def unassigned_registers(program: Program) -> MarkedRegisters | None:
    """Return the registers that may be unassigned when an instruction needs or writes them; None if there are calls."""
    if any(isinstance(inst.action, actions.DirectCall | actions.IndirectCall) for inst in program.instructions):
        return None
    demand = RegisterDemand(program)
    count = len(program.instructions)
    reads, writes = [frozenset[int]()] * count, [frozenset[int]()] * count
    before = {0: frozenset(range(len(program.registers))) - {program.frame.index}} if count else {}
    queue = list(before)
    while queue:
        start = queue.pop()
        state = before[start]
        for at in range(start, demand.ends[start]):
            inst = program.instructions[at]
            results = indices_of(inst.results)
            reads[at] = demand.reads[at] & state
            marked = results if passes_marks(inst) and reads[at] else set()
            writes[at] = frozenset(results & state | marked)
            state = (state if inst.guard is not None else state - results) | marked
        for after in demand.following(start):
            joined = before.get(after, frozenset()) | state
            if joined != before.get(after):
                before[after] = joined
                queue.append(after)
    return MarkedRegisters(tuple(reads), tuple(writes))
