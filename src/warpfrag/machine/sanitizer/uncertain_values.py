"""Values that depend on time or place, such as a clock or the result of a wait: do they reach memory?

A forward analysis over all paths follows them through registers. A branch on such a value makes everything uncertain
that is written before both paths meet again (its nearest post-dominator). A spin-wait, which only waits, is harmless.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from warpfrag.machine.interpreter.warp_state import INEXACT
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import Program
from warpfrag.machine.jit.register_flow import indices_of, registers_read, special_registers_of

CONTROL = actions.Branch | actions.Jump
PURE = actions.LaneOp | actions.Move | actions.MemoryLoad | actions.WarpCollective | actions.MatrixOp
HARMLESS = actions.NoOp | actions.Reconverge | actions.WarpWait | actions.LeaveBarrier
WAITS = {"test_wait", "try_wait"}
MAX_SOURCES = 32  # that are examined one by one


def source_of(program: Program, at: int) -> str:
    """Return why the result of an instruction is uncertain; "" if it is not."""
    inst = program.instructions[at]
    names = sorted(name for name in special_registers_of(inst) if name.split(".", maxsplit=1)[0] in INEXACT)
    if names:
        return f"{inst.text}: {', '.join(names)} has another value on a GPU, and it reaches memory"
    if isinstance(inst.action, actions.MemoryBarrier) and inst.action.name in WAITS:
        return f"{inst.text}: the result of the wait depends on timing, and it reaches memory"
    return ""


KNOWN: WeakKeyDictionary[Program, dict[int, str]] = WeakKeyDictionary()


def uncertain_sources(program: Program) -> dict[int, str]:
    """Return the instructions whose uncertain result can reach memory, with the reason."""
    if program not in KNOWN:
        sources = {at: text for at in range(len(program.instructions)) if (text := source_of(program, at))}
        found: dict[int, str] = {}
        if sources:
            flow = ValueFlow(program)
            if flow.reaches_memory(sources):
                is_few = len(sources) <= MAX_SOURCES
                found = {at: text for at, text in sources.items() if not is_few or flow.reaches_memory([at])}
        KNOWN[program] = found
    return KNOWN[program]


class ValueFlow:
    """The control flow of a program, and what depends on some of its values."""

    def __init__(self, program: Program) -> None:
        """Find blocks, their successors, and the block where the paths from each meet again."""
        self.instructions = program.instructions
        self.starts = sorted({0, *program.ends} - {len(self.instructions)})
        self.ends = [program.ends[start] for start in self.starts]
        number = {start: at for at, start in enumerate(self.starts)}
        self.following: list[list[int]] = []
        for end in self.ends:
            last = self.instructions[end - 1]
            is_left = isinstance(last.action, actions.Branch | actions.Return | actions.Jump) and last.guard is None
            targets = [*last.targets, *([] if is_left else [end])]
            self.following.append(sorted({number[at] for at in targets if at in number}))
        self.reads = [sum(1 << index for index in registers_read(inst)) for inst in self.instructions]
        self.writes = [sum(1 << index for index in indices_of(inst.results)) for inst in self.instructions]
        self.after = self._post_dominators()

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
        """Return the blocks that a branch at the end of a block decides about."""
        meeting = self.after[block] & ~(1 << block)
        reached: set[int] = set()
        queue = list(self.following[block])
        while queue:
            at = queue.pop()
            if at not in reached and not meeting >> at & 1:
                reached.add(at)
                queue += self.following[at]
        return reached

    def reaches_memory(self, sources: Iterable[int]) -> bool:
        """Return True if the results of some instructions can change memory."""
        chosen = frozenset(sources)
        before = [0] * len(self.starts)
        decided: set[int] = set()  # blocks that an uncertain branch decides about
        queue = list(range(len(self.starts)))
        while queue:
            block = queue.pop(0)
            state = before[block]
            for at in range(self.starts[block], self.ends[block]):
                action = self.instructions[at].action
                if at not in chosen and block not in decided and not state & self.reads[at]:
                    if self.instructions[at].guard is None:
                        state &= ~self.writes[at]
                    continue
                is_wait = isinstance(action, actions.MemoryBarrier) and action.name in WAITS
                if is_wait or at in chosen or (isinstance(action, PURE) and self.writes[at]):
                    state |= self.writes[at]
                elif isinstance(action, CONTROL):
                    new = self.region(block) - decided if state & self.reads[at] or at in chosen else set()
                    decided |= new
                    queue += sorted(new - set(queue))
                elif not isinstance(action, HARMLESS):
                    return True
            for other in self.following[block]:
                if state & ~before[other]:
                    before[other] |= state
                    if other not in queue:
                        queue.append(other)
        return False
