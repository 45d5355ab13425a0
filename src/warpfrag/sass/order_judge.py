"""Decide whether an unspecified order or never-written values can change the memory that machine code writes.

The race check compares accesses (`races`). Machine code has fewer synchronisation instructions than PTX, because lanes
that run together need none. Lanes of a warp therefore count as ordered as long as they have taken the same branches
since they last reconverged (BSYNC, WARPSYNC). Atomics on one address are judged too: unordered atomics must commute,
and the values that they return must not be used.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.kernel_findings import Check
from warpfrag.machine.interpreter.lane_group import LaneGroup, items_of
from warpfrag.machine.interpreter.warp_batch import LANE_INDEX, WarpBatch
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
)
from warpfrag.machine.ir.scalar_types import B32, B64, PRED, TYPES, Codes
from warpfrag.machine.sanitizer.checked_batch import CheckedWarpBatch, LaunchChecks
from warpfrag.machine.sanitizer.instruction_observer import InstructionObserver
from warpfrag.machine.sanitizer.ordering import GPU, SyncObject
from warpfrag.machine.sanitizer.races import RaceCheck
from warpfrag.machine.sanitizer.sync_tracking import LockFollower, Strength
from warpfrag.sass.atomic_layers import (
    COMMUTING,
    EXTREMES,
    AtomicLayer,
    AtomicLayers,
    Update,
    atomic_name,
    is_order_sensitive,
)
from warpfrag.sass.cas_loops import CasLoop
from warpfrag.sass.early_waits import OPEN_ORDER, WaitedWords, is_word_load
from warpfrag.sass.mbarrier_phases import EARLY, SIMULTANEOUS, TOO_EARLY, MbarrierAnswer, MbarrierPhases
from warpfrag.sass.sass_instruction import address_text
from warpfrag.sass.uncertain_values import ProgramValues, is_constant_load, is_polling
from warpfrag.sass.uniform_registers import UniformOrder, is_first_value
from warpfrag.sass.unwritten_values import MachineUnwrittenCheck

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
JUDGED: tuple[Check, ...] = ("races", "uninitialised", "async")
ORDERED_BY_WARP = (
    actions.MemoryLoad | actions.MemoryStore | actions.Atomic | actions.AsyncCopy | actions.BulkCopy
    | actions.TensorCopy | actions.AsyncStore | actions.MemoryBarrier | actions.MatrixOp | actions.ClusterBarrier
)  # fmt: skip
MAX_LAYERS = 16  # maximum number of atomic layers per word
MAX_ANSWERS = 256  # maximum number of recorded test and arrival results per mbarrier
INVALIDATES = "CCTL.IVALL"  # what ptxas puts after the load of ld.acquire
TOGETHER = re.compile(r"(?:@\S+ )?(?:VOTEU?|MATCH|REDUX|SHFL)\b")  # other collectives repeat for lanes that run apart
AS_CONSTANT, CHANGED = 1, 2  # bytes that are loaded as constant data, and bytes that are written
ASYNCHRONOUS, BY_COPIES = -1, -2
"""Pseudo-threads for changes that may happen at any time: copied bytes, and arrivals that wait for cp.async."""


class JudgedOrder(RaceCheck):
    """The race check for machine code, where lanes that have not diverged run in lockstep."""

    judges_atomics = True

    def __init__(self, state: WarpBatch, numbers: list[int], judge: LaunchJudge) -> None:
        """Create the check; all lanes of a warp start in one class."""
        super().__init__(state, judge.order, judge.shadows, numbers, judge.collector)
        self.uncertain_answers, self.contended = judge.uncertain_answers, judge.contended
        self.decisive, code = judge.values.decisive, self.state.program.instructions
        polling = {at for at, inst in enumerate(code) if is_polling(inst)}
        self.waits = {at for at in polling - judge.values.loads if is_word_load(code[at])}
        self.value_loads, self.waited = polling - self.waits, judge.waited
        self.early: dict[int, int] = {}  # the overwritten value that each of these threads loads
        self.classes = np.zeros((self.state.warps, LANES), np.int64)
        self.next_class = 1
        # [warp, lane, other lane]: True if the other lane has exited in every order of threads
        self.exited = np.repeat(~self.state.alive[:, None, :], LANES, axis=1)
        self.atomics, self.shared_atomics = judge.atomics, AtomicLayers()
        instructions = self.state.program.instructions
        self.used, self.constant_loads = judge.used, {at for at, inst in enumerate(code) if is_constant_load(inst)}
        targets = {target for inst in instructions for target in inst.targets}
        self.meetings = {
            at + 1: inst
            for at, inst in enumerate(instructions)
            if isinstance(inst.action, actions.Reconverge) and at + 1 not in targets and inst.guard is None
        }
        copied = {index for inst in instructions if is_first_value(inst) for index in indices_of(inst.results)}
        self.uniform_lanes = {
            index: np.full(self.state.warps, -1) for index in copied
        }  # the lane whose value each warp's uniform register holds
        self.uniform_writes = {
            at: own for at, inst in enumerate(instructions) if (own := copied.intersection(indices_of(inst.results)))
        }
        self.loops = judge.loops
        # a proven compare-and-swap loop counts as an atomic, and takes no lock
        taken = self.locks.polled - self.loops.keys()
        self.locks = LockFollower(
            instructions, taken, judge.order.lock_owners, one_block=state.launch.grid == (1, 1, 1)
        )
        self.locks.has_unfenced_access = False  # machine code is judged without it
        self.synchronizing -= self.loops.keys()
        sensitive = {at for at, inst in enumerate(instructions) if is_order_sensitive(inst)}
        self.sensitive = sensitive - self.loops.keys()
        self.changes: dict[int, dict[int, int]] = defaultdict(dict)  # the last change of each mbarrier by each thread
        self.completed: dict[int, int] = {}  # the end of each mbarrier's last phase
        self.answers: dict[int, list[MbarrierAnswer]] = defaultdict(list)  # keyed by mbarrier
        self.uniform = UniformOrder(self.state, judge.uniform_uses)
        self.phases_of = MbarrierPhases(self.ordering)

    def arrive(self, at: int, group: LaneGroup) -> None:
        """Update the lane classes before an instruction: lanes join after BSYNC and split at branches."""
        inst = self.state.program.instructions[at]
        met = self.meetings.get(at)
        if met is not None:
            self.meet(group, group.read(met.sources[0], B32))
        action = inst.action
        if isinstance(action, actions.Return) and inst.guard is not None:
            self.order_lanes(group)
            classes, leaving = group.of(self.classes), self.state.active_part(inst, group).mask
            together = (classes[:, :, None] == classes[:, None, :]) & group.mask[:, :, None]
            self.exited[group.warp_rows] |= together & leaving[:, None, :]
        if isinstance(action, actions.Branch) and inst.guard is not None:
            self.renumber(group, group.of(self.state.registers[inst.guard.index]).astype(np.int64))
        if isinstance(action, actions.Jump) or (isinstance(action, actions.Branch) and action.indexed):
            self.renumber(group, group.read(inst.sources[0], B64).astype(np.int64))
        if isinstance(action, ORDERED_BY_WARP):
            self.order_lanes(group)
        if isinstance(action, actions.WarpCollective) and TOGETHER.match(inst.text):
            self.check_together(inst, group)
        if at in self.uniform_writes:
            self.follow_copy(at, group)
        self.uniform.run(at, inst, group, group.of(self.classes))

    def check_together(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Report a vote or shuffle of lanes that have taken different branches and have not met again."""
        classes, first = group.of(self.classes), group.mask.argmax(axis=1)
        apart = group.mask & (classes != classes[np.arange(len(classes)), first][:, None])
        if apart.any():
            row, lane = (int(v) for v in np.argwhere(apart)[0])
            text = "lanes that took different branches run it, and nothing makes a GPU run them together"
            thread = int(group.warp_rows[row]) * LANES + lane
            self.report("unordered", thread, f"{inst.text}: {text}", line=inst.line)

    def follow_copy(self, at: int, group: LaneGroup) -> None:
        """Record the lane whose value R2UR copies to a uniform register; another write clears this record."""
        inst = self.state.program.instructions[at]
        lanes: Numbers = np.full(len(group.mask), -1)
        rows: NDArray[np.bool_] = np.ones(len(group.mask), np.bool_)
        if is_first_value(inst):
            held = group.mask & group.read(inst.sources[1], PRED).astype(np.bool_)
            lanes, rows = held.argmax(axis=1), np.asarray(held.any(axis=1))
        for index in self.uniform_writes[at]:
            self.uniform_lanes[index][group.warp_rows[rows]] = lanes[rows]

    def thread_of(self, thread: int) -> int:
        """Return the thread whose address a uniform-datapath instruction uses, if R2UR copied that address.

        ptxas repeats such an instruction for the value of each active lane. Lanes that ran apart would repeat it only
        for their own values, so each access is attributed to the lane that supplied the address.
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
        """Split lane classes by value; if `joins` is set, lanes with equal values join one class."""
        mask, old = group.mask, group.of(self.classes)
        first = np.where(mask, values, values[np.arange(len(mask)), mask.argmax(axis=1)][:, None])
        if not joins and (first == first[:, :1]).all():
            return
        if not joins:
            self.order_lanes(group)  # those that part now have run the same instructions
        rows = np.broadcast_to(np.arange(len(mask))[:, None], mask.shape)[mask]
        keys = [rows, values[mask]] if joins else [rows, values[mask], old[mask]]
        _, numbers = np.unique(np.stack(keys), axis=1, return_inverse=True)
        new = old.copy()
        new[mask] = self.next_class + numbers.reshape(-1)
        self.next_class += int(mask.sum())
        group.put(self.classes, new)

    def order_lanes(self, group: LaneGroup) -> None:
        """Order the lanes of a group that are in the same class, because they have run the same instructions."""
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
        """Join the classes of lanes that meet at a WARPSYNC; CCTL.IVALL makes the loads before it acquire."""
        super().after(inst, group)
        if isinstance(inst.action, actions.WarpWait):
            self.meet(group, group.read(inst.sources[-1], B32))
        elif self.ordering.pending and inst.text.startswith(INVALIDATES):
            self.acquire(self.threads_of(group))
        for cell in self.phases_of.open_cells(self.state.mbarriers.words):
            self.report_phases(cell, SIMULTANEOUS)

    def acquire(self, threads: Numbers) -> None:
        """Order threads after the releases that their loads have observed."""
        for thread in threads.tolist():
            for level in range(GPU + 1):
                for snapshot in self.ordering.pending.pop((thread, level), {}).values():
                    self.ordering.learn(np.array([thread]), snapshot)
        self.ordering.widen(threads, releases=False, acquires=True)

    def report_phases(self, cell: int, text: str) -> None:
        """Report that the phases of an mbarrier depend on the order of threads."""
        place = self.state.mbarriers.place_name(cell)
        self.report("unordered", self.phases_of.thread, f"{self.inst.name} of the mbarrier at {place}: {text}")

    def meet(self, group: LaneGroup, masks: Codes) -> None:
        """Join the classes of lanes that meet; all other lanes in their masks have exited."""
        self.renumber(group, masks.astype(np.int64), joins=True)
        named = (masks[:, :, None] >> LANE_INDEX & np.uint32(1)).astype(np.bool_)
        self.uniform.meet(group, named)
        self.exited[group.warp_rows] |= named & ~group.of(self.state.alive)[:, None, :] & group.mask[:, :, None]

    def strength(self) -> Strength:
        """Return the strength of the instruction's accesses; loads in compare-and-swap loops count as strong."""
        found = super().strength()
        return found._replace(is_strong=True, level=GPU) if self.state.memory.inst in self.loops else found

    def read(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Compare loads with stores, and record loads of an mbarrier, whose value depends on the order of arrivals."""
        self.early = {}
        if self.state.memory.inst in self.waits and self.shadow_of(buffer) is not None:
            self.wait(buffer, offsets, size, threads)
        super().read(buffer, offsets, size, threads)
        if self.state.memory.inst in self.constant_loads:
            self.use(buffer, offsets, size, threads, AS_CONSTANT)
        if self.state.memory.inst in self.loops:
            self.follow_atomics(buffer, offsets, threads)
        if self.changes and buffer is self.state.memory.shared:
            for offset, thread in zip(offsets.tolist(), threads.tolist(), strict=True):
                for cell in range(offset // 8, (offset + size - 1) // 8 + 1):
                    if cell in self.changes:
                        self.answer(cell, thread)

    # --- loops that wait for a word

    def wait(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Find the overwritten values that a load of a waiting loop may still see."""
        held = buffer[offsets[:, None] + np.arange(size)].view(f"u{size}")[:, 0]
        for offset, code, thread in zip(offsets.tolist(), held.tolist(), threads.tolist(), strict=True):
            value, is_fixed = self.waited.load((id(buffer), offset), code, thread, self.ordering)
            if value != code:
                self.early[thread] = value
            if not is_fixed:
                self.collector.leave_out(OPEN_ORDER)

    def receive(self, buffer: Bytes, offsets: Numbers, threads: Numbers, strength: Strength) -> None:
        """Order threads after releases, except those whose load returns an overwritten value."""
        is_last = ~np.isin(threads, list(self.early))
        super().receive(buffer, offsets[is_last], threads[is_last], strength)

    def write(self, buffer: Bytes, offsets: Numbers, codes: NDArray[Any], threads: Numbers) -> None:
        """Record the values that strong stores replace."""
        if self.waits and self.strength().is_strong:
            self.replace(buffer, offsets, buffer[offsets[:, None] + np.arange(codes.nbytes // len(codes))], threads)
        super().write(buffer, offsets, codes, threads)
        self.use(buffer, offsets, codes.nbytes // len(codes), threads, CHANGED)

    def use(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers, how: int) -> None:
        """Report bytes of global memory that the launch both writes and loads as constant data, in any order."""
        if not self.constant_loads or id(buffer) not in self.written:
            return
        marks = self.used.setdefault(id(buffer), np.zeros(len(buffer), np.uint8))
        cells = offsets[:, None] + np.arange(size)
        is_mixed = (marks[cells] & (AS_CONSTANT ^ CHANGED ^ how)).any(axis=1)
        marks[cells] |= np.uint8(how)
        if is_mixed.any():
            text = "this launch writes data that it also loads as constant data (LDG.CONSTANT, ld.global.nc)"
            self.report("unordered", int(threads[is_mixed][0]), f"{self.inst.text}: {text}")

    def updated(self, buffer: Bytes, offsets: Numbers, old: NDArray[Any], threads: Numbers) -> None:
        """Record the values that atomics replace."""
        super().updated(buffer, offsets, old, threads)
        if self.waits:
            self.replace(buffer, offsets, np.ascontiguousarray(old).view(np.uint8), threads)

    def replace(self, buffer: Bytes, offsets: Numbers, old: Bytes, threads: Numbers) -> None:
        """Record the old values of words that threads replace."""
        entities, now = self.ordering.entities(threads).tolist(), self.ordering.now
        for offset, data, entity in zip(offsets.tolist(), old, entities, strict=True):
            self.waited.replace((id(buffer), offset), int.from_bytes(data.tobytes(), "little"), entity, now)

    # --- mbarriers: an answer (a result) is certain if every change of the mbarrier is ordered before or after it

    def mbarrier_initialised(self, cell: int, thread: int) -> None:
        """Record mbarrier.init as a change."""
        thread = self.thread_of(thread)
        super().mbarrier_initialised(cell, thread)
        self.initialised[cell].is_fenced = True  # a relaxed cluster barrier makes it visible
        self.phases_of.start(cell)
        self.change(cell, thread)

    def mbarrier_invalidated(self, cell: int, thread: int) -> None:
        """Record mbarrier.inval as a change."""
        super().mbarrier_invalidated(cell, thread)
        self.change(cell, thread)

    def mbarrier_arrived(self, cell: int, thread: int) -> None:
        """Record an arrival as a change of its mbarrier; if it returns the state, also record that answer."""
        self.count_for_phase(cell, thread)
        super().mbarrier_arrived(cell, thread)
        action = self.inst.action
        is_copy = isinstance(action, actions.MemoryBarrier) and action.name == "copies"
        if self.inst.results and not isinstance(self.inst.results[0], Discard):
            self.answer(cell, thread)
        self.change(cell, thread, BY_COPIES if is_copy else None)

    def count_for_phase(self, cell: int, thread: int) -> None:
        """Report an operation that may count for an earlier phase of an mbarrier."""
        self.phases_of.thread = thread
        if not self.phases_of.is_after(cell, thread):
            self.report_phases(cell, EARLY)
        if getattr(self.inst.action, "name", "") == "expect_tx":
            self.phases_of.expect(cell, thread)

    def copy_write(
        self, buffer: Bytes, offsets: Numbers, size: int, thread: int, cell: int | None, *, reduction: str = ""
    ) -> None:
        """Follow the atomics of a copy, and record that the copy may change its mbarrier at any time."""
        if cell is not None:
            self.count_for_phase(cell, thread)
        super().copy_write(buffer, offsets, size, thread, cell, reduction=reduction)
        self.use(buffer, offsets, size, np.full(len(offsets), thread), CHANGED)
        if reduction and self.shadow_of(buffer) is not None:
            words = reduction.split(".")
            operation = next((word for word in words if word in COMMUTING), words[0])
            kind = next(word for word in reversed(words) if word in TYPES)
            is_word = operation not in EXTREMES and TYPES[kind].bits == B32.bits
            agent = self.ordering.agent(("bulk", thread) if cell is None else ("mbarrier", cell))
            update = Update(
                operation if is_word else f"{operation}.{kind}", TYPES[kind].is_float or operation not in COMMUTING,
                self.ordering.agent_entity(agent),
            )  # fmt: skip
            self.follow_updates(buffer, offsets, np.full(len(offsets), thread), update)
        if cell is not None:
            self.change(cell, thread, ASYNCHRONOUS)

    def tensor_committed(self, cells: list[int], thread: int) -> None:
        """Record that tcgen05.commit may change mbarriers at any time."""
        super().tensor_committed(cells, thread)
        for cell in cells:
            self.change(cell, thread, ASYNCHRONOUS)

    def mbarrier_tested(self, cells: Numbers, threads: Numbers) -> None:
        """Record a test's result as an answer."""
        if not isinstance(self.inst.results[0], Discard):
            for cell, thread in zip(cells.tolist(), threads.tolist(), strict=True):
                self.answer(cell, thread)

    def mbarrier_waited(self, cells: Numbers, threads: Numbers) -> None:
        """Order a thread after a phase only if the thread cannot continue without this wait."""
        if self.state.memory.inst not in self.decisive:
            return
        for cell, thread in zip(cells.tolist(), threads.tolist(), strict=True):
            if not self.phases_of.wait(cell, thread):
                self.report_phases(cell, TOO_EARLY)
        super().mbarrier_waited(cells, threads)
        self.ordering.widen(threads, releases=False, acquires=True)
        for cell, thread in zip(cells.tolist(), threads.tolist(), strict=True):
            changes = self.changes.get(cell, {})
            # the arrivals of copies belong to the completed phase
            if changes.get(BY_COPIES, self.ordering.now) <= self.completed.get(cell, 0):
                del changes[BY_COPIES]
                changes[int(self.ordering.entities(np.array([thread]))[0])] = self.ordering.now

    def mbarrier_completed(self, cell: int) -> None:
        """Record the end of a phase, of which the threads that wait for it learn."""
        sync = self.ordering.mbarriers.setdefault(cell, SyncObject())
        is_end = getattr(self.inst.action, "name", "") not in {"init", "inval"}  # these may change the parity, too
        text = is_end and self.phases_of.end(cell, sync.current)
        if text:
            self.report_phases(cell, text)
        sync.current = self.with_agent(sync.current, self.ordering.agent(("phase", cell)), fences=False)
        super().mbarrier_completed(cell)
        self.completed[cell] = self.ordering.now

    def answer(self, cell: int, thread: int) -> None:
        """Record an answer; it is uncertain unless all earlier changes are ordered before it."""
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
        """Record a change of an mbarrier; answers that are not ordered before it become uncertain."""
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
        # some of an agent's simultaneous changes may count for the next phase
        is_repeated = agent is not None and self.changes[cell].get(agent) == now
        self.changes[cell][key] = now + is_repeated

    # --- atomics

    def update(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Compare atomics with earlier atomics on the same words."""
        super().update(buffer, offsets, size, threads)
        self.use(buffer, offsets, size, threads, CHANGED)
        if self.shadow_of(buffer) is not None:
            self.follow_atomics(buffer, offsets, threads)

    def follow_atomics(self, buffer: Bytes, offsets: Numbers, threads: Numbers) -> None:
        """Report unordered atomics that do not commute, including loads of compare-and-swap loops."""
        at, action = self.state.memory.inst, self.inst.action
        loop = self.loops.get(at)
        name = loop.operation if loop else atomic_name(action) if isinstance(action, actions.Atomic) else ""
        is_sensitive = at in self.sensitive or name.partition(".")[0] not in COMMUTING
        is_sensitive |= loop is not None and not loop.holds(lambda operand: self.codes_of(operand)[threads])
        self.follow_updates(buffer, offsets, threads, Update(name, is_sensitive), loop)

    def codes_of(self, operand: PtxOperand) -> Codes:
        """Return the codes of a register or constant in all threads."""
        kind = {1: PRED, 64: B64}.get(getattr(operand, "bits", 32), B32)
        return LaneGroup(self.state, None, self.state.alive).read(operand, kind).reshape(-1)

    def follow_updates(
        self, buffer: Bytes, offsets: Numbers, threads: Numbers, update: Update, loop: CasLoop | None = None
    ) -> None:
        """Compare updates with earlier updates of the same words."""
        kept = self.shared_atomics if buffer is self.state.memory.shared else self.atomics
        name, is_sensitive, agent = update
        entities = self.ordering.entities(threads) if agent is None else np.full(len(threads), agent)
        seen: dict[int, int] = {}  # the warp that updated each word last
        for offset, thread, entity in zip(offsets.tolist(), threads.tolist(), entities.tolist(), strict=True):
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
            has_kept = self.keep(layers, entity, name, is_sensitive=is_sensitive)
            if not has_kept and word not in kept.reported:
                self.collector.leave_out("atomics: too many of them update one word")

    def keep(self, layers: list[AtomicLayer], entity: int, name: str, *, is_sensitive: bool) -> bool:
        """Add an atomic to the layers of its word; return False if the word has too many layers."""
        block = entity // self.ordering.per_block if entity >= 0 else -1
        new = AtomicLayer(entity, self.ordering.now, name, is_sensitive, block)
        last = layers[-1] if layers else None
        if last is not None and last.entity == entity >= 0 and not last.is_group and last.name == name:
            layers[-1] = new._replace(is_sensitive=is_sensitive or last.is_sensitive)
        elif last is not None and last.name == name and not is_sensitive and not last.is_sensitive:
            layers[-1] = new._replace(block=new.block if new.block == last.block else -1, is_group=True)
        elif len(layers) < MAX_LAYERS:
            layers.append(new)
        else:
            return False
        return True

    def follows(self, layer: AtomicLayer, thread: int, name: str, *, is_sensitive: bool) -> bool:
        """Return True if an atomic commutes with the atomics of a layer, or is ordered after them."""
        return (not is_sensitive and not layer.is_sensitive and layer.name == name) or self.is_ordered(layer, thread)

    def is_ordered(self, layer: AtomicLayer, thread: int) -> bool:
        """Return True if a thread is ordered after the atomics of a layer."""
        own = int(self.ordering.entities(np.array([thread]))[0])
        if layer.is_group:  # there are several threads, and only a barrier of their block orders them all
            is_near = layer.block == own // self.ordering.per_block
            return is_near and bool(self.ordering.floor[thread] >= layer.time)
        asked = np.array([thread]), np.array([layer.entity]), np.array([layer.time])
        return layer.entity == own or bool(self.ordering.knows(*asked)[0])

    def report_atomic(self, thread: int, who: str) -> None:
        """Report that the order of an atomic affects the result."""
        text = f"{self.inst.name}: {who} update one address, and the order of these atomics changes the result"
        self.report("unordered", thread, text)


class JudgedWarpBatch(CheckedWarpBatch):
    """A batch of blocks that runs under the judge."""

    def __init__(self, part: LaunchPart, judge: LaunchJudge) -> None:
        """Create a batch for the launch's judge."""
        self.judge = judge
        self.values: MachineUnwrittenCheck | None = None
        super().__init__(part, judge)

    def order_check(self, numbers: list[int]) -> RaceCheck:
        """Return the check that compares accesses."""
        return JudgedOrder(self, numbers, self.judge)

    def unwritten_checks(self) -> list[InstructionObserver]:
        """Return the observer that tracks unwritten values."""
        self.values = MachineUnwrittenCheck(self, self.checks.collector, self.checks.marks(self.memory))
        if isinstance(self.races, JudgedOrder):
            self.values.exited = self.races.exited
        return [self.values]

    def run_inst(self, at: int, group: LaneGroup) -> bool:
        """Update the lane classes, then run the instruction."""
        if isinstance(self.races, JudgedOrder):
            self.races.arrive(at, group)
        has_run = super().run_inst(at, group)
        if isinstance(self.races, JudgedOrder) and self.races.early and has_run:
            self.put_early(self.program.instructions[at], group, self.races.early)
            self.races.early = {}
        if self.values is not None:
            loop = self.judge.loops.get(at)
            if loop in self.judge.uncertain_loops and loop is not None:
                self.values.leave_loop(loop, self.program.instructions[at], group)
        return has_run

    def put_early(self, inst: DecodedInstruction, group: LaneGroup, values: Mapping[int, int]) -> None:
        """Replace the results of a waiting load with overwritten values, which counts as progress."""
        threads = group.of(self.lane_number)
        for number, reg in enumerate(items_of(inst.results[0])):
            if isinstance(reg, Register):
                codes = group.of(self.registers[reg.index]).copy()
                for thread, value in values.items():
                    codes[threads == thread] = value >> reg.bits * number & (1 << reg.bits) - 1
                group.write(reg, codes)
        self.progress += 1


class LaunchJudge(LaunchChecks):
    """The judge of one launch."""

    def __init__(
        self,
        sources: Mapping[int, SourceLine],
        loops: Mapping[int, CasLoop],
        values: ProgramValues,
        uncertain_loops: Collection[CasLoop] = (),
    ) -> None:
        """Create a judge, given the compare-and-swap loops and the values that depend on timing.

        `uncertain_loops` are those whose written registers depend on the order of threads.
        """
        super().__init__(JUDGED, sources)
        self.loops, self.values, self.uncertain_loops = loops, values, uncertain_loops
        self.waited = WaitedWords()
        self.atomics = AtomicLayers()  # on global memory, by all batches
        self.contended: set[CasLoop] = set()  # loops that unordered threads run on the same word
        self.used: dict[int, Bytes] = {}  # the marks AS_CONSTANT and CHANGED of each byte, by buffer
        self.uniform_uses: dict[int, str] = {}  # uniform registers whose value depends on the order of lanes
        self.uncertain_answers: set[int] = set()  # mbarrier instructions whose results depend on the order of threads

    def batch(self, part: LaunchPart) -> JudgedWarpBatch:
        """Create a judged batch of blocks."""
        return JudgedWarpBatch(part, self)

    @property
    def reasons(self) -> list[str]:
        """Reasons why the result may depend on unspecified behaviour; empty if it cannot."""
        found = [f"{address_text(finding.line, finding.source)}: {finding.text}" for finding in self.collector.findings]
        found += [
            f"{address_text(at, self.collector.sources.get(at))}: {text}" for at, text in self.uniform_uses.items()
        ]
        return found + list(self.collector.unjudged)
