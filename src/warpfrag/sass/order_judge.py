"""Decide whether an unspecified order or never-written values can change the memory that machine code leaves.

The race check compares accesses (`races`). Machine code has fewer synchronisation instructions than PTX, because lanes
that run together need none. So lanes of a warp are ordered as long as they have taken the same branches since they last
reconverged (BSYNC, WARPSYNC). Atomics on one address are judged too: unordered atomics must commute, and their old
values must not be used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.kernel_findings import Check, FindingCollector
from warpfrag.machine.interpreter.lane_group import LaneGroup, items_of
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.interpreter.warp_state import LaunchPart
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import (
    DecodedInstruction,
    Discard,
    MemoryOperand,
    PtxOperand,
    Register,
    SourceLine,
    indices_of,
    registers_of,
)
from warpfrag.machine.ir.scalar_types import B32, B64, PRED, Codes
from warpfrag.machine.sanitizer.checked_batch import CheckedWarpBatch, LaunchChecks
from warpfrag.machine.sanitizer.instruction_observer import InstructionObserver
from warpfrag.machine.sanitizer.ordering import GPU
from warpfrag.machine.sanitizer.races import RaceCheck
from warpfrag.machine.sanitizer.sync_tracking import NO_INIT_FENCE, Strength
from warpfrag.machine.sanitizer.unwritten import UnwrittenCheck
from warpfrag.sass.cas_loops import CasLoop
from warpfrag.sass.sass_instruction import address_text

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
JUDGED: tuple[Check, ...] = ("races", "uninitialised", "async")
ORDERED_BY_WARP = (
    actions.MemoryLoad | actions.MemoryStore | actions.Atomic | actions.AsyncCopy | actions.BulkCopy
    | actions.TensorCopy | actions.AsyncStore | actions.MemoryBarrier | actions.MatrixOp | actions.ClusterBarrier
)  # fmt: skip
FOLLOWED = (
    actions.LaneOp | actions.Move | actions.WarpCollective | actions.MemoryLoad | actions.MemoryStore | actions.Atomic
    | actions.MatrixOp | actions.DirectCall | actions.NoOp
)  # fmt: skip
"""Actions whose never-written operands are tracked or, if they are addresses, reported."""
COMMUTING = {"add", "min", "max", "and", "or", "xor"}
BITWISE = {"lop3", "plop3", "p2r"}
"""Bitwise operations: each result bit depends on one bit of each operand."""
MAX_VARIANTS = 1 << 6
MAX_LAYERS = 16  # maximum number of atomic layers per word
EXTREMES = {"min", "max"}
MAX_ANSWERS = 256  # of an mbarrier: results of tests and arrivals
ASYNCHRONOUS, BY_COPIES = -1, -2
"""Pseudo-threads for changes that may happen at any time: copied bytes, and arrivals that wait for cp.async."""


class JudgedOrder(RaceCheck):
    """The race check for machine code, in which lanes that have not diverged run in lockstep."""

    def __init__(self, state: WarpBatch, numbers: list[int], judge: LaunchJudge) -> None:
        """Create the check with all lanes of a warp in one class."""
        super().__init__(state, judge.order, judge.shadows, numbers, judge.collector)
        self.decisive, self.uncertain_answers, self.contended = judge.decisive, judge.uncertain_answers, judge.contended
        self.classes = np.zeros((self.state.warps, LANES), np.int64)
        self.next_class = 1
        self.atomics, self.shared_atomics = judge.atomics, AtomicLayers()
        instructions = self.state.program.instructions
        targets = {target for inst in instructions for target in inst.targets}
        self.meetings = {
            at + 1: inst
            for at, inst in enumerate(instructions)
            if isinstance(inst.action, actions.Reconverge) and at + 1 not in targets and inst.guard is None
        }
        copied = {index for inst in instructions if is_first_value(inst) for index in indices_of(inst.results)}
        self.uniform_lanes = {
            index: np.full(self.state.warps, -1) for index in copied
        }  # the lane whose value each warp has
        self.uniform_writes = {
            at: own for at, inst in enumerate(instructions) if (own := copied.intersection(indices_of(inst.results)))
        }
        self.loops = judge.loops
        sensitive = {at for at, inst in enumerate(instructions) if is_order_sensitive(inst)}
        self.sensitive = sensitive - self.loops.keys()
        self.changes: dict[int, dict[int, int]] = defaultdict(dict)  # of an mbarrier, by thread: the last time
        self.completed: dict[int, int] = {}  # the end of the last phase, by mbarrier
        self.answers: dict[int, list[MbarrierAnswer]] = defaultdict(list)  # by mbarrier

    def arrive(self, at: int, group: LaneGroup) -> None:
        """Update the classes before an instruction: lanes join after BSYNC and split at branches."""
        inst = self.state.program.instructions[at]
        met = self.meetings.get(at)
        if met is not None:
            self.renumber(group, group.read(met.sources[0], B32).astype(np.int64), joins=True)
        action = inst.action
        if isinstance(action, actions.Branch) and inst.guard is not None:
            self.renumber(group, group.of(self.state.registers[inst.guard.index]).astype(np.int64))
        if isinstance(action, actions.Jump) or (isinstance(action, actions.Branch) and action.indexed):
            self.renumber(group, group.read(inst.sources[0], B64).astype(np.int64))
        if isinstance(action, ORDERED_BY_WARP):
            self.order_lanes(group)
        if at in self.uniform_writes:
            self.follow_copy(at, group)

    def follow_copy(self, at: int, group: LaneGroup) -> None:
        """Record the lane whose value R2UR copies to a uniform register; other instructions have no such lane."""
        inst = self.state.program.instructions[at]
        lanes: Numbers = np.full(len(group.mask), -1)
        rows: NDArray[np.bool_] = np.ones(len(group.mask), np.bool_)
        if is_first_value(inst):
            held = group.mask & group.read(inst.sources[1], PRED).astype(np.bool_)
            lanes, rows = held.argmax(axis=1), np.asarray(held.any(axis=1))
        for index in self.uniform_writes[at]:
            self.uniform_lanes[index][group.warp_rows[rows]] = lanes[rows]

    def thread_of(self, thread: int) -> int:
        """Return the thread whose address an instruction of the uniform datapath uses, if R2UR copied it.

        ptxas repeats such an instruction for the value of each active lane. Lanes that ran apart would repeat it for
        their own values only, so each access counts as an access of the lane that has the address.
        """
        address = self.inst.sources[0] if self.inst.sources else None
        base = address.base if isinstance(address, MemoryOperand) else None
        warp = thread // LANES
        lane = (
            int(self.uniform_lanes[base.index][warp])
            if isinstance(base, Register) and base.index in self.uniform_lanes
            else -1
        )
        return thread if lane < 0 else warp * LANES + lane

    def renumber(self, group: LaneGroup, values: Numbers, *, joins: bool = False) -> None:
        """Split classes by value; if `joins` is set, lanes with equal values get the same class."""
        mask, old = group.mask, group.of(self.classes)
        first = np.where(mask, values, values[np.arange(len(mask)), mask.argmax(axis=1)][:, None])
        if not joins and (first == first[:, :1]).all():
            return
        rows = np.broadcast_to(np.arange(len(mask))[:, None], mask.shape)[mask]
        keys = [rows, values[mask]] if joins else [rows, values[mask], old[mask]]
        _, numbers = np.unique(np.stack(keys), axis=1, return_inverse=True)
        new = old.copy()
        new[mask] = self.next_class + numbers.reshape(-1)
        self.next_class += int(mask.sum())
        group.put(self.classes, new)

    def order_lanes(self, group: LaneGroup) -> None:
        """Order the lanes of a group that are in one class, because they have run the same instructions."""
        classes, mask = group.of(self.classes), group.mask
        whole = mask.all(axis=1) & (classes == classes[:, :1]).all(axis=1)
        if whole.any():
            self.ordering.sync_warps(group.warp_rows[whole].astype(np.int64))
        for row in np.nonzero(~whole & mask.any(axis=1))[0].tolist():
            for own in np.unique(classes[row][mask[row]]).tolist():
                lanes = np.nonzero(mask[row] & (classes[row] == own))[0]
                if len(lanes) > 1:
                    self.ordering.sync_lanes(int(group.warp_rows[row]) * LANES + lanes)

    def after(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Join the lanes of a WARPSYNC."""
        super().after(inst, group)
        if isinstance(inst.action, actions.WarpWait):
            self.renumber(group, group.read(inst.sources[-1], B32).astype(np.int64), joins=True)

    def strength(self) -> Strength:
        """Return the strength of this instruction's accesses; the load of a compare-and-swap loop is strong too."""
        found = super().strength()
        return found._replace(is_strong=True, level=GPU) if self.state.memory.inst in self.loops else found

    def read(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Compare loads with stores, and record loads of an mbarrier, whose value depends on the order of arrivals."""
        super().read(buffer, offsets, size, threads)
        if self.state.memory.inst in self.loops:
            self.follow_atomics(buffer, offsets, threads)
        if self.changes and buffer is self.state.memory.shared:
            for offset, thread in zip(offsets.tolist(), threads.tolist(), strict=True):
                for cell in range(offset // 8, (offset + size - 1) // 8 + 1):
                    if cell in self.changes:
                        self.answer(cell, thread)

    # --- mbarriers: an answer is certain if all changes are ordered before or after it

    def mbarrier_initialised(self, cell: int, thread: int) -> None:
        """Record mbarrier.init as a change."""
        thread = self.thread_of(thread)
        super().mbarrier_initialised(cell, thread)
        self.change(cell, thread)

    def mbarrier_invalidated(self, cell: int, thread: int) -> None:
        """Record mbarrier.inval as a change."""
        super().mbarrier_invalidated(cell, thread)
        self.change(cell, thread)

    def mbarrier_arrived(self, cell: int, thread: int) -> None:
        """Record an arrival as a change of the mbarrier; if the arrival returns the state, also record that answer."""
        super().mbarrier_arrived(cell, thread)
        action = self.inst.action
        is_copy = isinstance(action, actions.MemoryBarrier) and action.name == "copies"
        if self.inst.results and not isinstance(self.inst.results[0], Discard):
            self.answer(cell, thread)
        self.change(cell, thread, BY_COPIES if is_copy else None)

    def copy_write(
        self, buffer: Bytes, offsets: Numbers, size: int, thread: int, cell: int | None, *, reduces: bool = False
    ) -> None:
        """Record that a copy may change its mbarrier at any time."""
        super().copy_write(buffer, offsets, size, thread, cell, reduces=reduces)
        if cell is not None:
            self.change(cell, thread, ASYNCHRONOUS)

    def tensor_committed(self, cells: list[int], thread: int) -> None:
        """Record that tcgen05.commit may change mbarriers at any time."""
        super().tensor_committed(cells, thread)
        for cell in cells:
            self.change(cell, thread, ASYNCHRONOUS)

    def mbarrier_tested(self, cells: Numbers, threads: Numbers) -> None:
        """Record the result of a test as an answer."""
        if not isinstance(self.inst.results[0], Discard):
            for cell, thread in zip(cells.tolist(), threads.tolist(), strict=True):
                self.answer(cell, thread)

    def mbarrier_waited(self, cells: Numbers, threads: Numbers) -> None:
        """Order the thread after the phase only if it cannot continue without the wait."""
        if self.state.memory.inst not in self.decisive:
            return
        super().mbarrier_waited(cells, threads)
        for cell, thread in zip(cells.tolist(), threads.tolist(), strict=True):
            changes = self.changes.get(cell, {})
            if changes.get(BY_COPIES, self.ordering.now) <= self.completed.get(cell, 0):  # the phase counted them
                del changes[BY_COPIES]
                changes[int(self.ordering.entities(np.array([thread]))[0])] = self.ordering.now

    def mbarrier_completed(self, cell: int) -> None:
        """Record the end of a phase."""
        super().mbarrier_completed(cell)
        self.completed[cell] = self.ordering.now

    def answer(self, cell: int, thread: int) -> None:
        """Record an answer, which is uncertain unless all changes so far are ordered before it."""
        at = self.state.memory.inst
        if at in self.uncertain_answers:
            return
        changes = self.changes[cell]
        entities, times = np.array(list(changes), np.int64), np.array(list(changes.values()), np.int64)
        is_known = changes.keys().isdisjoint((ASYNCHRONOUS, BY_COPIES))
        is_known = is_known and bool(self.ordering.knows(np.full(len(times), thread), entities, times).all())
        answers = self.answers[cell]
        if is_known and len(answers) < MAX_ANSWERS:
            entity = int(self.ordering.entities(np.array([thread]))[0])
            answers.append(MbarrierAnswer(at, entity, self.ordering.now))
        else:
            self.uncertain_answers.add(at)

    def change(self, cell: int, thread: int, agent: int | None = None) -> None:
        """Record a change of an mbarrier; answers about it that are not ordered before the change become uncertain."""
        entity = int(self.ordering.entities(np.array([thread]))[0])
        answers = self.answers.get(cell, ())
        if answers:
            known = self.ordering.knows(
                np.full(len(answers), thread), np.array([answer.entity for answer in answers]),
                np.array([answer.time for answer in answers]),
            )  # fmt: skip
            self.uncertain_answers |= {
                answer.inst for answer, is_known in zip(answers, known, strict=True) if not is_known
            }
        key, now = entity if agent is None else agent, self.ordering.now
        is_repeated = agent is not None and self.changes[cell].get(agent) == now  # some may be for the next phase
        self.changes[cell][key] = now + is_repeated

    # --- atomics

    def update(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Compare atomics with earlier atomics on the same words."""
        super().update(buffer, offsets, size, threads)
        if self.shadow_of(buffer) is not None:
            self.follow_atomics(buffer, offsets, threads)

    def follow_atomics(self, buffer: Bytes, offsets: Numbers, threads: Numbers) -> None:
        """Report unordered atomics that do not commute, including loads of compare-and-swap loops."""
        at, action = self.state.memory.inst, self.inst.action
        loop = self.loops.get(at)
        name = loop.operation if loop else atomic_name(action) if isinstance(action, actions.Atomic) else ""
        is_sensitive = at in self.sensitive or name.partition(".")[0] not in COMMUTING
        is_sensitive |= loop is not None and not loop.holds(self.state.registers, threads)
        kept = self.shared_atomics if buffer is self.state.memory.shared else self.atomics
        seen: dict[int, int] = {}  # the warp that updated each word last
        for offset, thread in zip(offsets.tolist(), threads.tolist(), strict=True):
            word = id(buffer), offset
            layers = kept.setdefault(word, [])
            is_open = is_sensitive and offset in seen
            is_one = is_open and seen[offset] == thread // LANES
            if is_open or not all(self.follows(layer, thread, name, is_sensitive=is_sensitive) for layer in layers):
                self.report_atomic(thread, "lanes of a warp" if is_one else "several warps or blocks")
                kept.reported.add(word)
            if loop and (offset in seen or not all(self.is_ordered(layer, thread) for layer in layers)):
                self.contended.add(loop)
            seen[offset] = thread // LANES
            has_kept = self.keep(layers, thread, name, is_sensitive=is_sensitive)
            if not has_kept and word not in kept.reported:
                self.collector.leave_out("atomics: too many update one word to be tracked")

    def keep(self, layers: list[AtomicLayer], thread: int, name: str, *, is_sensitive: bool) -> bool:
        """Add an atomic to the layers of its word; return False if the word has too many layers."""
        entity = int(self.ordering.entities(np.array([thread]))[0])
        new = AtomicLayer(entity, self.ordering.now, name, is_sensitive, entity // self.ordering.per_block)
        last = layers[-1] if layers else None
        if last is not None and last.entity == entity and not last.is_group and last.name == name:
            layers[-1] = new._replace(is_sensitive=is_sensitive or last.is_sensitive)
        elif last is not None and last.name == name and not is_sensitive and not last.is_sensitive:
            layers[-1] = new._replace(block=new.block if new.block == last.block else -1, is_group=True)
        elif len(layers) < MAX_LAYERS:
            layers.append(new)
        else:
            return False
        return True

    def follows(self, layer: AtomicLayer, thread: int, name: str, *, is_sensitive: bool) -> bool:
        """Return True if an atomic commutes with a layer's atomics or is ordered after them."""
        return (not is_sensitive and not layer.is_sensitive and layer.name == name) or self.is_ordered(layer, thread)

    def is_ordered(self, layer: AtomicLayer, thread: int) -> bool:
        """Return True if a thread is ordered after the atomics of a layer."""
        own = int(self.ordering.entities(np.array([thread]))[0])
        if layer.is_group:  # several threads: only a barrier of their block orders all of them
            is_near = layer.block == own // self.ordering.per_block
            return is_near and bool(self.ordering.floor[thread] >= layer.time)
        asked = np.array([thread]), np.array([layer.entity]), np.array([layer.time])
        return layer.entity == own or bool(self.ordering.knows(*asked)[0])

    def report_atomic(self, thread: int, who: str) -> None:
        """Report an atomic whose order matters."""
        text = f"{self.inst.name}: {who} update one address, and the order of these atomics changes the result"
        self.report("unordered", thread, text)


class AtomicLayer(NamedTuple):
    """Commuting atomics on one word: the last thread and time, the operation, and the block (-1 for several)."""

    entity: int
    time: int
    name: str
    is_sensitive: bool
    block: int
    is_group: bool = False  # True if several threads are involved


class AtomicLayers(dict[tuple[int, int], list[AtomicLayer]]):
    """The atomics on each word, by buffer and offset: of a batch for shared memory, of the launch for global memory."""

    def __init__(self) -> None:
        """Start without atomics."""
        super().__init__()
        self.reported: set[tuple[int, int]] = set()  # words whose atomics' order matters


class MbarrierAnswer(NamedTuple):
    """The result of an mbarrier instruction: the instruction, the thread and the time."""

    inst: int
    entity: int
    time: int


def atomic_name(action: actions.Atomic) -> str:
    """Return the operation of an atomic; signed and unsigned minima and maxima are distinct."""
    return f"{action.name}.{action.type.dtype.str[1:]}.{action.type.kind}" if action.name in EXTREMES else action.name


def is_first_value(inst: DecodedInstruction) -> bool:
    """Return True if an instruction copies the first active lane's value to a uniform register."""
    return inst.attributes.opcode == "first_value"


def is_order_sensitive(inst: DecodedInstruction) -> bool:
    """Return True if the order of this atomic relative to others can change memory or registers."""
    action = inst.action
    if not isinstance(action, actions.Atomic):
        return False
    results = [reg for operand in inst.results for reg in items_of(operand)]
    is_used = action.returns and any(not isinstance(reg, Discard) for reg in results)
    return action.is_float or is_used or action.name not in COMMUTING


class JudgedValues(UnwrittenCheck):
    """The check of unwritten values for machine code, which may read registers without using them."""

    def __init__(self, state: WarpBatch, collector: FindingCollector, marked: dict[int, Bytes]) -> None:
        """Find the uniform registers, which all lanes of a warp share."""
        super().__init__(state, collector, marked)
        self.uniform: set[int] = set()
        for inst in self.state.program.instructions:
            for operand in (*inst.results, *inst.sources):
                self.uniform |= {reg.index for reg in registers_of(operand) if reg.name.startswith("U")}

    def put(self, group: LaneGroup, operand: PtxOperand, mask: Codes) -> None:
        """Set the mask of a register; a uniform register is written for the whole warp."""
        super().put(group, operand, mask)
        if isinstance(operand, Register) and operand.index in self.uniform:
            own = self.masks[operand.index]
            active = group.mask.any(axis=1)
            rows = group.warp_rows[active]
            value = own[rows, group.mask[active].argmax(axis=1)]
            own[rows] = value[:, None]
            self.is_marked[operand.index] = bool(own.any())

    def put_clean(self, group: LaneGroup, operand: PtxOperand) -> None:
        """Clear the marks of an operand's registers."""
        for reg in items_of(operand):
            if isinstance(reg, Register) and reg.index in self.uniform and self.is_marked[reg.index]:
                self.put(group, reg, np.zeros(group.mask.shape, self.masks[reg.index].dtype))
            else:
                super().put_clean(group, reg)

    def before(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Report never-written registers that are read by an instruction with side effects (a store, a branch, ...)."""
        super().before(inst, group)
        if not self.is_clean and not isinstance(inst.action, FOLLOWED):
            for operand in inst.sources:
                self.check(group, operand, "an operand depends on a value that was never written")

    def leave_loop(self, loop: CasLoop, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Mark the registers that depend on the order of threads in lanes that leave a compare-and-swap loop."""
        branches = [branch for branch, _ in loop.guards]
        if inst.guard is not None and inst in branches:
            is_taken = group.of(self.state.registers[inst.guard.index]) ^ inst.guard.negated
            left = group.part(group.mask & (~is_taken if inst is branches[-1] else is_taken))
            for index in loop.left_registers[branches.index(inst)]:
                self.put_whole(left, Register(index, self.state.program.registers[index], ""), left.mask)

    def guarded_after(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Mark the results in lanes whose guard was never written, because the instruction may not have run."""
        if inst.guard is not None and self.is_marked[inst.guard.index]:
            wrong = group.part(group.mask & self.mask_of(inst.guard)[group.warp_rows].astype(np.bool_))
            for operand in inst.results if wrong.mask.any() else ():
                self.put_whole(wrong, operand, wrong.mask)

    def computed(self, inst: DecodedInstruction, action: actions.LaneOp, group: LaneGroup) -> list[Codes]:
        """Return the masks of the results; bitwise operations are evaluated with both values of each unwritten bit."""
        if inst.attributes.opcode not in BITWISE:
            return super().computed(inst, action, group)
        types = [kind or B32 for kind in action.sources]
        values = [group.read(operand, kind) for operand, kind in zip(inst.sources, types, strict=True)]
        masks = [self.mask_of(operand)[group.warp_rows] for operand in inst.sources]
        marked = [at for at, mask in enumerate(masks) if ((mask != 0) & group.mask).any()]
        if 1 << len(marked) > MAX_VARIANTS and inst.attributes.opcode != "p2r":
            return super().computed(inst, action, group)
        if inst.attributes.opcode == "p2r":
            choices = [[], *([at] for at in marked)]  # a bit of the result depends on one operand
        else:
            choices = [[at for bit, at in enumerate(marked) if number >> bit & 1] for number in range(1 << len(marked))]
        results: list[Codes] = []
        for chosen in choices:
            variant = list(values)
            for at in marked:
                mask = masks[at].astype(values[at].dtype)
                variant[at] = values[at] | mask if at in chosen else values[at] & ~mask
            constants = [
                int(reg.flat[0]) if kind is None else reg for reg, kind in zip(variant, action.sources, strict=True)
            ]
            found = action.function(*constants)
            results.append(found[0] if isinstance(found, tuple) else found)
        changed = np.zeros_like(results[0])
        for found in results[1:]:
            changed = changed | (found ^ results[0])
        return [changed] * len(inst.results)


class JudgedWarpBatch(CheckedWarpBatch):
    """A batch of blocks whose machine code is judged."""

    def __init__(self, part: LaunchPart, judge: LaunchJudge) -> None:
        """Create a batch for the launch's judge."""
        self.judge = judge
        self.values: JudgedValues | None = None
        super().__init__(part, judge)

    def order_check(self, numbers: list[int]) -> RaceCheck:
        """Return the check that compares accesses."""
        return JudgedOrder(self, numbers, self.judge)

    def unwritten_checks(self) -> list[InstructionObserver]:
        """Return the observer that tracks unwritten values."""
        self.values = JudgedValues(self, self.checks.collector, self.checks.marks(self.memory))
        return [self.values]

    def run_inst(self, at: int, group: LaneGroup) -> bool:
        """Update the lane classes, then run the instruction."""
        if isinstance(self.races, JudgedOrder):
            self.races.arrive(at, group)
        has_run = super().run_inst(at, group)
        if self.values is not None:
            self.values.guarded_after(self.program.instructions[at], group)
            loop = self.judge.loops.get(at)
            if loop in self.judge.uncertain_loops and loop is not None:
                self.values.leave_loop(loop, self.program.instructions[at], group)
        return has_run


class LaunchJudge(LaunchChecks):
    """The judge of one launch."""

    def __init__(
        self,
        sources: Mapping[int, SourceLine],
        loops: Mapping[int, CasLoop],
        decisive: frozenset[int],
        uncertain_loops: Collection[CasLoop] = (),
    ) -> None:
        """Create a judge, given the compare-and-swap loops and the waits that order threads.

        The registers that `uncertain_loops` write depend on the order of threads.
        """
        super().__init__(JUDGED, sources)
        self.loops, self.decisive, self.uncertain_loops = loops, decisive, uncertain_loops
        self.atomics = AtomicLayers()  # on global memory, by all batches
        self.contended: set[CasLoop] = set()  # loops of unordered threads on one word
        self.uncertain_answers: set[int] = set()  # mbarrier instructions whose results depend on the order of threads

    def batch(self, part: LaunchPart) -> JudgedWarpBatch:
        """Create a judged batch of blocks."""
        return JudgedWarpBatch(part, self)

    @property
    def reasons(self) -> list[str]:
        """The reasons why the result may depend on unspecified behaviour; empty if it cannot."""
        found = [f"{address_text(finding.line, finding.source)}: {finding.text}" for finding in self.collector.findings]
        return found + [reason for reason in self.collector.unjudged if reason != NO_INIT_FENCE]
