"""Find values that depend on timing or placement, such as clocks and wait results, and reach memory.

A forward analysis over all paths follows these values through registers. After a branch that depends on such a value,
everything written before both paths meet again (at the nearest post-dominator) is uncertain. A spin-wait is harmless,
because it only waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import reduce
from operator import and_
from typing import NamedTuple
from weakref import WeakKeyDictionary

from warpfrag.machine.interpreter.warp_state import INEXACT
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import DecodedInstruction, Discard, Program, indices_of, registers_of
from warpfrag.machine.jit.register_flow import registers_read, special_registers_of
from warpfrag.sass.emitter import TEMPORARY

CONTROL = actions.Branch | actions.Jump | actions.Return
PURE = actions.LaneOp | actions.Move | actions.MemoryLoad | actions.WarpCollective | actions.MatrixOp
HARMLESS = actions.NoOp | actions.Reconverge | actions.WarpWait | actions.LeaveBarrier
WAITS = {"test_wait", "try_wait"}
BOTH_WAYS = 2  # the number of successors of a conditional branch
MAX_BLOCKS = 4096  # in programs with more blocks, every source is assumed to reach memory
MAX_SOURCES = 32  # maximum number of sources that are examined individually


def source_of(program: Program, at: int) -> str:
    """Return the reason why an instruction's result is uncertain, or an empty string."""
    inst = program.instructions[at]
    names = sorted(name for name in special_registers_of(inst) if name.split(".", maxsplit=1)[0] in INEXACT)
    if names:
        return f"{inst.text}: {', '.join(names)} has a different value on a GPU, and this value reaches memory"
    if isinstance(inst.action, actions.MemoryBarrier) and is_wanted(inst):
        result = "result of the wait" if inst.action.name in WAITS else "state that is returned"
        return f"{inst.text}: the {result} depends on timing and reaches memory"
    return ""


def is_wanted(inst: DecodedInstruction) -> bool:
    """Return True if an instruction has a result that is not discarded."""
    return bool(inst.results) and not isinstance(inst.results[0], Discard)


class ProgramValues(NamedTuple):
    """The uncertain values of a program.

    `uncertain` has a reason for each instruction whose uncertain result can reach memory. `decisive` has the waits that
    a thread passes only once the phase has ended. `loads` has the volatile, relaxed and acquire loads whose value can
    reach memory; all other such loads only wait.
    """

    uncertain: dict[int, str]
    decisive: frozenset[int]
    loads: frozenset[int]


def is_quiet(inst: DecodedInstruction) -> bool:
    """Return True if an instruction accesses no memory and does not affect other threads."""
    return isinstance(inst.action, actions.LaneOp | actions.Move | actions.NoOp | actions.Branch | actions.Reconverge)


KNOWN: WeakKeyDictionary[Program, ProgramValues] = WeakKeyDictionary()


def values_of(program: Program) -> ProgramValues:
    """Return a program's uncertain values and decisive waits, which are computed once."""
    if program not in KNOWN:
        sources = {at: text for at in range(len(program.instructions)) if (text := source_of(program, at))}
        loads = {at for at, inst in enumerate(program.instructions) if is_polling(inst)}
        found, decisive, used = {*sources}, frozenset[int](), loads
        if (sources or loads) and len(program.leaders) <= MAX_BLOCKS:
            flow = ValueFlow(program)
            decisive = flow.decisive_waits()
            found, used = flow.reaching(sources), flow.reaching(loads)
        KNOWN[program] = ProgramValues({at: sources[at] for at in sorted(found)}, decisive, frozenset(used))
    return KNOWN[program]


def is_polling(inst: DecodedInstruction) -> bool:
    """Return True for a volatile, relaxed or acquire load."""
    return isinstance(inst.action, actions.MemoryLoad) and inst.action.polls


def is_constant_load(inst: DecodedInstruction) -> bool:
    """Return True for a load that may return old data if the launch writes there (.nc, .CONSTANT)."""
    return isinstance(inst.action, actions.MemoryLoad) and ".nc." in inst.name


def local_registers(program: Program) -> frozenset[int]:
    """Return the temporaries: registers that are written before each read, at the same address."""
    line, written, local, others = -1, set[int](), set[int](), set[int]()
    for inst in program.instructions:
        if inst.line != line:
            line, written = inst.line, set()
        read = registers_read(inst)
        local |= read & written
        others |= read - written
        written |= indices_of(inst.results)
    return frozenset(local - others)


class Known(NamedTuple):
    """The predicates known to be true and those known to be false on all paths, as bit masks."""

    true: int = 0
    false: int = 0

    @property
    def bits(self) -> int:
        """The predicates whose values are known."""
        return self.true | self.false

    def without(self, registers: int) -> Known:
        """Return the known predicates after the given `registers` have been written."""
        return Known(self.true & ~registers, self.false & ~registers)


class ValueFlow:
    """A program's control flow, and how instructions depend on uncertain values."""

    def __init__(self, program: Program) -> None:
        """Find the basic blocks, their successors and their nearest post-dominators; the last block is the end."""
        self.instructions = program.instructions
        count = len(self.instructions)
        self.starts = sorted({0, *program.ends} - {count})
        self.ends = [program.ends[start] for start in self.starts]
        number = {start: at for at, start in enumerate(self.starts)}
        self.following: list[list[int]] = []
        for end in self.ends:
            last = self.instructions[end - 1]
            is_left = isinstance(last.action, actions.Branch | actions.Return | actions.Jump) and last.guard is None
            targets = [*last.targets, *([] if is_left else [end])]
            leaves = [len(number)] if isinstance(last.action, actions.Return) else []
            self.following.append(sorted({*leaves, *(number[at] for at in targets if at in number)}))
        self.starts, self.ends = [*self.starts, count], [*self.ends, count]
        self.following.append([])
        self.reads = [sum(1 << index for index in registers_read(inst)) for inst in self.instructions]
        self.writes = [sum(1 << index for index in indices_of(inst.results)) for inst in self.instructions]
        self.temporaries = sum(
            1 << reg.index
            for reg in {reg for inst in self.instructions for operand in inst.results for reg in registers_of(operand)}
            if reg.name.startswith(TEMPORARY)
        )
        self.after = self._post_dominators()
        self.known = self._known_predicates()

    def _post_dominators(self) -> list[int]:
        """Return, for each block, the blocks on all paths from it to the end, as bits."""
        everything = (1 << len(self.starts)) - 1
        found = [everything if following else 1 << at for at, following in enumerate(self.following)]
        is_changed = True
        while is_changed:
            is_changed = False
            for at in range(len(found) - 1, -1, -1):
                if self.following[at]:
                    common = everything
                    for other in self.following[at]:
                        common &= found[other]
                    if common | 1 << at != found[at]:
                        found[at], is_changed = common | 1 << at, True
        return found

    def region(self, block: int) -> set[int]:
        """Return the blocks whose execution depends on the branch that ends a block."""
        meeting = self.after[block] & ~(1 << block)
        reached: set[int] = set()
        queue = list(self.following[block])
        while queue:
            at = queue.pop()
            if at not in reached and not meeting >> at & 1:
                reached.add(at)
                queue += self.following[at]
        return reached

    def decisive_waits(self) -> frozenset[int]:
        """Return the waits after which a thread continues only once the phase has ended, as in a spin-wait."""
        failing: dict[int, list[int]] = {}  # for each wait, the blocks that are executed after it fails
        for block, (start, end) in enumerate(zip(self.starts, self.ends, strict=True)):
            last = self.instructions[end - 1]
            for at in range(start, end - 1):
                if isinstance(last.action, actions.Branch | actions.Return) and last.guard and self.is_wait(at):
                    between = self.instructions[at + 1 : end - 1]
                    is_decided = self.writes[at] == 1 << last.guard.index and all(map(is_quiet, between))
                    if is_decided and not any(self.writes[at] & self.writes[n] for n in range(at + 1, end - 1)):
                        targets = self.taken(block)
                        others = {*self.following[block]} - targets
                        failing[at] = [*(targets if last.guard.negated else others)]
        found, count = set(failing), -1
        while count != len(found):
            count = len(found)
            found = {at for at in found if all(self.waits_again(at, block, found) for block in failing[at])}
        return frozenset(found)

    def taken(self, block: int) -> set[int]:
        """Return the blocks that follow if the guarded branch or exit at the end of a block is taken."""
        last = self.instructions[self.ends[block] - 1]
        places = [len(self.instructions)] if isinstance(last.action, actions.Return) else last.targets
        return {other for other in self.following[block] if self.starts[other] in places}

    def is_wait(self, at: int) -> bool:
        """Return True for an mbarrier test whose result is used."""
        inst = self.instructions[at]
        return isinstance(inst.action, actions.MemoryBarrier) and inst.action.name in WAITS and is_wanted(inst)

    def waits_again(self, wait: int, start: int, allowed: set[int]) -> bool:
        """Return True if every path from a block reaches an allowed wait for this mbarrier before any side effect."""
        place = self.instructions[wait].sources[0]
        queue, seen = [start], {start}
        while queue:
            block = queue.pop()
            if self.starts[block] == len(self.instructions):
                return False
            for at in range(self.starts[block], self.ends[block]):
                inst = self.instructions[at]
                if at in allowed and inst.sources[0] == place:
                    break
                if not is_quiet(inst) or self.writes[at] & sum(1 << index for index in indices_of([place])):
                    return False
            else:
                queue += [other for other in self.following[block] if other not in seen]
                seen.update(self.following[block])
        return True

    def reaching(self, sources: Collection[int]) -> set[int]:
        """Return the sources whose results can change memory; more than MAX_SOURCES are not examined individually."""
        if not self.reaches_memory(sources):
            return set()
        return {at for at in sources if len(sources) > MAX_SOURCES or self.reaches_memory([at])}

    def reaches_memory(self, sources: Iterable[int]) -> bool:
        """Return True if the results of the given instructions can affect memory."""
        chosen = frozenset(sources)
        decided: set[int] = set()  # blocks whose execution depends on an uncertain branch
        branches: set[int] = set()  # blocks that end with an uncertain branch
        count = -1
        while count < len(branches):  # each round includes the branches that earlier rounds found
            count = len(branches)
            if self._follow(chosen, decided, branches):
                return True
        return False

    def _follow(self, chosen: frozenset[int], decided: set[int], branches: set[int]) -> bool:
        """Propagate values along all paths once and add uncertain branches; return True if a value reaches memory."""
        meetings = {other for block in decided | branches for other in self.following[block]} - decided
        before = {0: 0}  # uncertain registers at the start of each block that is reached
        queue = [0]
        while queue:
            block = queue.pop(0)
            state, known = before[block], self.known[block]
            for at in range(self.starts[block], self.ends[block]):
                action, writes = self.instructions[at].action, self.writes[at]
                if at and self.instructions[at].line != self.instructions[at - 1].line:
                    state &= ~self.temporaries  # temporaries are used by one SASS instruction only
                is_certain = block not in decided and not state & ~known.bits & self.reads[at]
                is_wait = isinstance(action, actions.MemoryBarrier) and action.name in WAITS
                if at in chosen or (not is_certain and (is_wait or (isinstance(action, PURE) and writes))):
                    state |= writes
                elif is_certain and self.instructions[at].guard is None:
                    state &= ~writes
                elif not is_certain and isinstance(action, CONTROL):
                    branches.add(block)
                    decided |= self.region(block)
                elif not is_certain and not isinstance(action, HARMLESS):
                    return True
                known = known.without(writes)
            for other in self.following[block]:
                shown = self.along(block, other, known)
                reached = state & ~shown.bits
                # where paths from an uncertain branch meet, values known on only one path become uncertain
                if other in meetings:
                    reached |= shown.bits & ~self.known[other].bits
                if other not in before or reached & ~before[other]:
                    before[other] = before.get(other, 0) | reached
                    if other not in queue:
                        queue.append(other)
        return False

    def _known_predicates(self) -> list[Known]:
        """Return the predicates whose values are known at the start of each block."""
        edges: dict[tuple[int, int], Known] = {}
        found = [Known()] * len(self.starts)
        queue = [0]
        while queue:
            block = queue.pop(0)
            known = found[block]
            for at in range(self.starts[block], self.ends[block]):
                known = known.without(self.writes[at])
            for other in self.following[block]:
                shown = self.along(block, other, known)
                if edges.get((block, other)) == shown:
                    continue
                edges[block, other] = shown
                arriving = [state for (_, target), state in edges.items() if target == other]
                if other == 0:
                    arriving.append(Known())
                found[other] = Known(
                    reduce(and_, (state.true for state in arriving)), reduce(and_, (state.false for state in arriving))
                )
                if other not in queue:
                    queue.append(other)
        return found

    def along(self, block: int, other: int, known: Known) -> Known:
        """Return the predicates known on an edge; taking a branch determines the value of its guard."""
        last = self.instructions[self.ends[block] - 1]
        guard = last.guard
        if guard is None or not isinstance(last.action, actions.Branch) or len(self.following[block]) != BOTH_WAYS:
            return known
        bit = 1 << guard.index
        is_true = (self.starts[other] in last.targets) != guard.negated
        known = known.without(bit)
        return Known(known.true | bit * is_true, known.false | bit * (not is_true))
