"""The registers and descriptors of wgmma: the instructions that access them, and a proof that no access is too early.

A wgmma.mma_async reads A and writes D while its warps continue. Until a wgmma.wait_group after a commit, no thread may
read or write D, or write A. A later wgmma may use the same accumulators. Registers that were written since the last
wgmma.fence may not be ready when a wgmma starts. `mov` does not count as an access, because ptxas removes or moves the
copies and constants that compilers emit; instead, a copy inherits the state of the register that it copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from warpfrag.isa.qualifiers import Form
from warpfrag.machine.ir.actions import Branch, DirectCall, IndirectCall, Jump, MatrixOp, Move, Return
from warpfrag.machine.ir.program import DecodedInstruction, Immediate, Program, VectorOperand, indices_of, registers_of
from warpfrag.smem.descriptor import Descriptor, contradictions
from warpfrag.tensorcore.resolved_instruction import resolve_form

NOT_WAITED = ", which has not been waited for"


def is_wgmma(inst: DecodedInstruction) -> bool:
    """Return True for wgmma.mma_async."""
    return isinstance(inst.action, MatrixOp) and inst.action.operation == "wgmma"


def is_proxy_fence(inst: DecodedInstruction) -> bool:
    """Return True for fence.proxy.async, which orders the generic proxy and the async proxy."""
    words = inst.name.split(".")
    return words[0] in {"fence", "membar"} and "proxy" in words and any(word.startswith("async") for word in words)


def product_registers(inst: DecodedInstruction) -> tuple[list[int], list[int]]:
    """Return the registers of D, and those of A unless A is in shared memory."""
    a = inst.sources[0]
    sources = [register.index for register in registers_of(a)] if isinstance(a, VectorOperand) else []
    return [register.index for register in registers_of(inst.results[0])], sources


def tracked_registers(program: Program) -> set[int]:
    """Return the registers of all wgmma instructions in a program, and registers that are copied to or from them."""
    tracked: set[int] = set()
    for inst in program.instructions:
        if is_wgmma(inst):
            tracked |= {index for part in product_registers(inst) for index in part}
    copies = [
        indices_of((inst.results[0], inst.sources[0])) for inst in program.instructions if isinstance(inst.action, Move)
    ]
    grown = bool(tracked)
    while grown:
        more = {index for pair in copies if tracked & pair for index in pair} - tracked
        tracked |= more
        grown = bool(more)
    return tracked


def groups_left(inst: DecodedInstruction) -> int:
    """Return the number of wgmma groups that wgmma.wait_group may leave in flight."""
    operand = inst.sources[0] if inst.sources else None
    return operand.code(None) if isinstance(operand, Immediate) else 0


@lru_cache(maxsize=1024)  # kernels reuse a few descriptors
def descriptor_problem(form: Form, arch: str, role: str, word: int, *, is_transposed: bool) -> str:
    """Return a description of the mistake in a wgmma's A or B descriptor, or an empty string."""
    operand = getattr(resolve_form(form, arch).operands, role)
    problems = contradictions(Descriptor.decode(word), operand, trans=is_transposed)
    return next((problem.text for problem in problems), "")


class RegisterProblem(NamedTuple):
    """A wgmma register access that is too early: its kind, its description and the conflicting instruction's line."""

    kind: str
    text: str
    line: int | None = None


RegisterTable: TypeAlias = dict[int, tuple[int, int]]


@dataclass
class WarpProducts:
    """The wgmma state of one warp: registers in flight, writes since the last fence, and the open group."""

    targets: RegisterTable = field(default_factory=dict)  # group and line of the wgmma that writes D
    sources: RegisterTable = field(default_factory=dict)  # group and line of the wgmma that reads A
    written: RegisterTable = field(default_factory=dict)  # 0 and the line of the last write
    group: int = 1
    has_fence: bool = False
    follows_moves: bool = True  # False for machine code, in which a copy counts as an access

    def run(self, inst: DecodedInstruction) -> list[RegisterProblem]:
        """Update the state with an instruction, and return the mistakes that it makes."""
        operation = inst.name.split(".")[1] if inst.name.startswith("wgmma.") else ""
        if is_wgmma(inst):
            return list(self.issue(inst))
        if operation == "fence":
            self.written, self.has_fence = {}, True
        elif operation == "commit_group":
            self.group += 1
        elif operation == "wait_group":
            last = self.group - groups_left(inst)
            self.targets, self.sources = (
                {index: row for index, row in table.items() if row[0] >= last} for table in (self.targets, self.sources)
            )
        elif not (isinstance(inst.action, Move) and self.follows_moves and self.move(inst)):
            return self.access(inst)
        return []

    def issue(self, inst: DecodedInstruction) -> Iterator[RegisterProblem]:
        """Yield a problem for each wgmma register that is not ready, then mark all its registers as in flight."""
        targets, sources = product_registers(inst)
        late = [index for index in (*targets, *sources) if index in self.written]
        if not self.has_fence:
            yield RegisterProblem("fence", ": no wgmma.fence was executed before it")
        elif late:
            line = self.written[late[0]][1]
            text = f": {name_of(inst, late[0])} was written at line {line}, with no wgmma.fence after it"
            yield RegisterProblem("fence", text, line)
        if late or not self.has_fence:  # a missing fence is reported only once
            self.written, self.has_fence = {}, True
        for index in sources:
            if index in self.targets:
                line = self.targets[index][1]
                text = f": A in {name_of(inst, index)} is the result of the wgmma at line {line}{NOT_WAITED}"
                yield RegisterProblem("async", text, line)
        self.targets |= dict.fromkeys(targets, (self.group, inst.line))
        self.sources |= dict.fromkeys(sources, (self.group, inst.line))

    def move(self, inst: DecodedInstruction) -> bool:
        """Propagate a register's state through mov; return False if a constant overwrites a register in flight."""
        sources, targets = indices_of(inst.sources[:1]), indices_of(inst.results[:1])
        if not sources and any(index in table for index in targets for table in (self.targets, self.sources)):
            return False
        for table in (self.targets, self.sources, self.written):
            state = next((table[index] for index in sources if index in table), None)
            for index in targets:
                table.pop(index, None)
                if state is not None:
                    table[index] = state
        return True

    def access(self, inst: DecodedInstruction) -> list[RegisterProblem]:
        """Update the state with any other instruction; return its first access to a register in flight, if any."""
        in_flight = self.sources | self.targets
        early = [("reads", index) for index in sorted(indices_of(inst.operands_read)) if index in self.targets]
        early += [("writes", index) for index in sorted(indices_of(inst.results)) if index in in_flight]
        for verb, index in early[:1]:
            line = in_flight[index][1]
            text = (
                f" {verb} {name_of(inst, index)}, a register of the wgmma at line {line}, which has not been waited for"
            )
            return [RegisterProblem("async", text, line)]
        self.written |= dict.fromkeys(indices_of(inst.results), (0, inst.line))
        return []

    def joined(self, other: WarpProducts) -> WarpProducts:
        """Return the state that covers either of two paths; closed groups are renumbered 0, and the open group 1."""
        tables: tuple[RegisterTable, RegisterTable, RegisterTable] = {}, {}, {}
        for state in (self, other):
            for table, own in zip(tables, (state.targets, state.sources, state.written), strict=True):
                for index, (number, line) in own.items():
                    row = int(number >= state.group), line
                    table[index] = max(row, table.get(index, row))
        return WarpProducts(*tables, 1, self.has_fence and other.has_fence, self.follows_moves)


def name_of(inst: DecodedInstruction, index: int) -> str:
    """Return the name of an instruction's register, given its index."""
    registers = [register for operand in (*inst.results, *inst.sources) for register in registers_of(operand)]
    return next((register.name for register in registers if register.index == index), "a register")


def touching(program: Program) -> set[int]:
    """Return the indices of the wgmma instructions and of instructions that access a tracked register."""
    tracked = tracked_registers(program)
    return {
        at
        for at, inst in enumerate(program.instructions)
        if inst.name.startswith("wgmma.") or tracked & indices_of((*inst.operands_read, *inst.results))
    }


def are_registers_ready(program: Program) -> bool:
    """Return True if no path through the program uses a wgmma register too early; calls are not followed."""
    instructions, touched = program.instructions, touching(program)
    if not any(map(is_wgmma, instructions)):
        return True
    if any(isinstance(inst.action, DirectCall | IndirectCall | Jump) for inst in instructions):
        return False
    before, queue = {0: WarpProducts(follows_moves=not program.is_machine_code)}, [0]
    while queue:
        start = queue.pop()
        state, end = before[start].joined(before[start]), program.ends[start]
        for at in range(start, end):
            inst = instructions[at]
            may_not_run = inst.guard is not None and (inst.name.startswith("wgmma.") or isinstance(inst.action, Move))
            if at in touched and (may_not_run or state.run(inst)):
                return False
        last = instructions[end - 1]
        is_passed = last.guard is not None or not isinstance(last.action, Branch | Return)
        for at in {*last.targets, *((end,) if is_passed else ())} & {*range(len(instructions))}:
            joined = state.joined(before.get(at, state))
            if joined != before.get(at):
                before[at] = joined
                queue.append(at)
    return True
