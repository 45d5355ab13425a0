"""Find accesses to tensor memory and wgmma registers that do not wait for an operation in flight.

Every tcgen05 instruction that reads or writes columns is kept until a later one covers them. Two of them that touch the
same columns must be ordered if one writes:

    ld, st            complete with wait::ld and wait::st of their warp
    mma, cp, shift    complete with a commit, for threads that wait for its mbarrier
    pipelined pairs   mma, cp, shift of one thread that run in the order in which they are issued: five pairs of the
                      ISA, and a cp after mma or cp, on which Triton's block-scaled kernels rely

An operation that has completed for one warp is complete for another warp ordered after it (`ordering`), if
tcgen05.fence::before_thread_sync precedes the synchronisation and tcgen05.fence::after_thread_sync follows it. A commit
implies the first fence. Some compilers omit both fences throughout a kernel (Triton 3.9 does). A kernel that has
neither fence is not required to have them, and the run lists this as unjudged. Lanes of a warp count as one. A warp
that stores to columns that it loaded needs no wait: the store needs the loaded registers.

Columns that were not written since their allocation are undefined. This is tracked for each 32 lanes: an mma with
64 rows leaves 16 of them unchanged. An mma that reads such columns is a finding here. A load is not, because pipelined
loops may load for an iteration that does not follow. Its registers are marked instead (`unwritten`).

`interpreter.wgmma_registers` has the rules for the registers of wgmma.
"""

from collections import defaultdict, deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warpfrag.isa.qualifiers import Form
from warpfrag.isa.tmem_layouts import TENSOR_COLUMNS
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.kernel_findings import FindingCollector, KernelAccess, KernelFinding
from warpfrag.machine.interpreter.lane_group import LaneGroup
from warpfrag.machine.interpreter.observer import TensorAccess
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.interpreter.wgmma_registers import WarpProducts, descriptor_problem, touching
from warpfrag.machine.ir.actions import TensorThreadOp
from warpfrag.machine.ir.program import DecodedInstruction, Program
from warpfrag.machine.sanitizer.instruction_observer import InstructionObserver
from warpfrag.machine.sanitizer.ordering import Ordering

QUARTERS = 4
PIPELINED = {("mma", "mma"), ("cp", "mma"), ("shift", "mma"), ("shift", "cp"), ("mma", "shift")}
IN_ISSUE_ORDER = PIPELINED | {("mma", "cp"), ("cp", "cp")}
FENCES = ("fence::before_thread_sync", "fence::after_thread_sync")
PRODUCT_OPERANDS = {"d", "a", "metadata", "scale_a", "scale_b"}
MAX_EVENTS = 16  # maximum number of waits recorded per warp for each committing thread


def uses_tensor_memory(program: Program) -> bool:
    """Return True if a kernel has tcgen05 instructions."""
    return any(isinstance(inst.action, TensorThreadOp) for inst in program.instructions)


class WrittenColumns:
    """The columns of each block's tensor memory that were written since their allocation, per 32 lanes."""

    def __init__(self) -> None:
        """Create the record; nothing is written yet."""
        self.blocks: dict[int, NDArray[np.bool_]] = defaultdict(lambda: np.zeros((QUARTERS, TENSOR_COLUMNS), np.bool_))

    def forget(self, block: int, column: int, columns: int) -> None:
        """Mark newly allocated columns as unwritten."""
        self.blocks[block][:, column : column + columns] = False

    def write(self, access: TensorAccess) -> None:
        """Mark the columns of an access as written."""
        self.blocks[access.block][list(access.quarters), access.column : access.column + access.columns] = True

    def first_unwritten(self, access: TensorAccess) -> int | None:
        """Return the first unwritten column of an access, or None."""
        # scale factors are allocated in multiples of 128 rows, of which the last may be unused
        padded = access.operand.startswith("scale")
        end = access.column + (1 if padded else access.columns)
        written = self.blocks[access.block][list(access.quarters), access.column : end]
        return next((access.column + at for at in range(written.shape[1]) if not written[:, at].any()), None)


@dataclass
class IssuedAccess:
    """An access, the time at which it was issued and, for ld and st, the time of its warp's wait."""

    access: TensorAccess
    op: str  # ld, st, mma, cp, shift
    time: int
    waited: int | None = None

    @property
    def warp(self) -> int:
        """The issuing warp."""
        return self.access.thread // LANES


class TensorMemoryCheck(InstructionObserver):
    """Checks a batch's accesses to tensor memory."""

    def __init__(self, state: WarpBatch, ordering: Ordering, collector: FindingCollector) -> None:
        """Create the check for a batch."""
        super().__init__(state, collector)
        self.ordering = ordering
        self.issued: dict[int, list[IssuedAccess]] = defaultdict(list)  # accesses by block
        self.written = WrittenColumns()
        # keyed by mbarrier: the latest commit time of each thread
        self.committed: dict[int, dict[int, int]] = defaultdict(dict)
        self.completed: dict[int, dict[int, int]] = defaultdict(dict)
        # keyed by issuer and warp: pairs of commit time and wait time
        self.learned: dict[int, dict[int, deque[tuple[int, int]]]] = defaultdict(dict)
        self.fences_before: dict[int, deque[int]] = defaultdict(lambda: deque(maxlen=MAX_EVENTS))  # keyed by warp
        # keyed by warp: the time, and the warp's knowledge at that time
        self.fences_after: dict[int, tuple[int, NDArray[np.int32]]] = {}
        self.asks_for_fences = any(_spelled(inst) in FENCES for inst in state.program.instructions)
        if not self.asks_for_fences:
            collector.leave_out("tensor memory: the kernel has no tcgen05.fence, so missing fences are not reported")

    # --- ordering events

    def after(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Record waits and fences."""
        if not isinstance(inst.action, TensorThreadOp):
            return
        op, now = inst.action.spelling.op, self.ordering.now
        for warp in group.active_rows.tolist():
            if op in ("wait::ld", "wait::st"):
                self._wait(warp, op[-2:], now)
            elif op == "fence::before_thread_sync":
                self.fences_before[warp].append(now)
            elif op == "fence::after_thread_sync":
                self.fences_after[warp] = now, self._known(warp)

    def _wait(self, warp: int, op: str, now: int) -> None:
        for accesses in self.issued.values():
            for prior in accesses:
                if prior.warp == warp and prior.op == op and prior.waited is None:
                    prior.waited = now

    def _known(self, warp: int) -> NDArray[np.int32]:
        """Return, for each warp, the time up to which `warp` is ordered after it."""
        rows = self.ordering.known[warp * LANES : (warp + 1) * LANES, : self.ordering.own_columns].max(axis=0)
        return rows.reshape(-1, LANES // self.ordering.share).max(axis=1)

    def tensor_committed(self, cells: list[int], thread: int) -> None:
        """Record that an mbarrier covers everything a thread has issued so far."""
        for cell in cells:
            self.committed[cell][thread] = self.ordering.now

    def mbarrier_completed(self, cell: int) -> None:
        """Handle the end of a phase, which completes everything committed to the mbarrier."""
        if cell in self.committed:
            self.completed[cell] |= self.committed.pop(cell)

    def mbarrier_waited(self, cells: NDArray[np.int64], threads: NDArray[np.int64]) -> None:
        """Record that warps now know that committed operations are complete."""
        for cell in np.unique(cells).tolist():
            for issuer, time in self.completed.get(cell, {}).items():
                for warp in np.unique(threads[cells == cell] // LANES).tolist():
                    events = self.learned[issuer].setdefault(warp, deque(maxlen=MAX_EVENTS))
                    events.append((time, self.ordering.now))

    # --- accesses

    def tensor_allocated(self, block: int, column: int, columns: int) -> None:
        """Mark newly allocated columns as unwritten."""
        self.written.forget(block, column, columns)

    def tensor_access(self, access: TensorAccess) -> None:
        """Report an access that reads unwritten columns or conflicts with an earlier access."""
        column = self.written.first_unwritten(access) if access.reads and access.operand in PRODUCT_OPERANDS else None
        if column is not None:
            label = "the old D" if access.operand == "d" else access.operand
            text = f"reads column {column} ({label}), which has not been written since it was allocated"
            self._report(access, None, text)
        for prior in list(self.issued[access.block]):
            if prior.access.overlaps(access) and (access.writes or prior.access.writes):
                fault = self._fault(prior, access)
                if fault:
                    self._report(access, prior, fault)
        if access.writes:
            self.written.write(access)
        self._keep(access)

    def _keep(self, access: TensorAccess) -> None:
        """Record an access; it replaces equal ones, and a write replaces those of other instructions that it covers."""
        items = self.issued[access.block]
        op = _op(access.inst)
        if access.writes:
            covered = [old for old in items if _covers(access, old.access) and old.access.inst is not access.inst]
            for prior in covered:
                items.remove(prior)
        same = [prior for prior in items if prior.access == access]  # repeated reads, as in a loop
        for prior in same:
            items.remove(prior)
        items.append(IssuedAccess(access, op, self.ordering.now))

    def tensor_freed(self, access: TensorAccess) -> None:
        """Report accesses in flight to columns that are freed, because another block may reallocate them."""
        for prior in list(self.issued[access.block]):
            if prior.access.overlaps(access):
                fault = self._fault(prior, access, needs_fences=False)
                if fault:
                    self._report(access, prior, fault)
                self.issued[access.block].remove(prior)

    def finish(self) -> None:
        """Report allocations that were never freed; without checks, these end a launch with an error."""
        memories = self.state.tensor_memories
        for block, live in sorted(memories.live.items()) if memories is not None else ():
            for allocation in live:
                place = self.state.blocks[block]
                text = f"{allocation.columns} columns of tensor memory are allocated here and never freed"
                x, y, z = (int(axis) for axis in place)
                self.collector.add(KernelFinding("tensor_memory", allocation.line, text, block=(x, y, z)))
            live.clear()

    # --- order

    def _fault(self, prior: IssuedAccess, access: TensorAccess, *, needs_fences: bool = True) -> str:
        """Return the reason why an access is not ordered after the earlier access `prior`, or "" if it is ordered."""
        warp, op = access.thread // LANES, _op(access.inst)
        needs_fences = needs_fences and self.asks_for_fences
        name = f"{prior.access.inst.name} at line {prior.access.inst.line}"
        if prior.op in ("ld", "st"):  # a wait of the warp, not a commit, completes the access
            return self._fault_of_warp(prior, warp, op, name, needs_fences=needs_fences)
        if prior.access.thread == access.thread and (prior.op, op) in IN_ISSUE_ORDER:
            return ""
        events = [
            (by, wait)
            for by, all_events in self.learned.get(prior.access.thread, {}).items()
            for commit, wait in all_events
            if commit >= prior.time
        ]
        if not any(by == warp or self._known_now(warp, by) >= wait for by, wait in events):
            return f"{name} may not be complete: no thread waited for an mbarrier that it was committed to"
        if not needs_fences or any(self._is_fenced(warp, by, wait) for by, wait in events):
            return ""
        return f"there is no tcgen05.fence::after_thread_sync between it and the wait for {name}"

    def _fault_of_warp(self, prior: IssuedAccess, warp: int, op: str, name: str, *, needs_fences: bool) -> str:
        """Return the reason why an access is not ordered after an earlier ld or st, or "" if it is ordered."""
        if prior.waited is None:
            if warp == prior.warp and (prior.op, op) in {("ld", "st"), ("st", "st")}:
                return ""
            return f"{name} may not be complete: no tcgen05.wait::{prior.op} follows it"
        if warp == prior.warp:
            return ""
        if self._known_now(warp, prior.warp) < prior.waited:
            return f"nothing orders it after {name} of another warp"
        if not needs_fences:
            return ""
        before = [time for time in self.fences_before[prior.warp] if time >= prior.waited]
        if not before or self._known_now(warp, prior.warp) < before[0]:
            return f"no tcgen05.fence::before_thread_sync follows {name} of another warp"
        if not self._is_fenced(warp, prior.warp, before[0]):
            return f"there is no tcgen05.fence::after_thread_sync between it and {name} of another warp"
        return ""

    def _known_now(self, warp: int, other: int) -> int:
        return int(self._known(warp)[other])

    def _is_fenced(self, warp: int, other: int, time: int) -> bool:
        """Return True if a warp ran fence::after_thread_sync after it was ordered after another warp's operation."""
        when, known = self.fences_after.get(warp, (-1, None))
        if known is None:
            return False
        return when >= time if warp == other else int(known[other]) >= time

    def _report(self, access: TensorAccess, prior: IssuedAccess | None, text: str) -> None:
        other = None if prior is None else self.access_by(prior.access.thread, prior.access.inst)
        last = access.column + access.columns - 1
        words = f"{access.inst.name} ({access.operand}, columns {access.column}..{last}): {text}"
        self.report("tensor_memory", access.thread, words, line=access.inst.line, other=other)


def _spelled(inst: DecodedInstruction) -> str:
    """Return the name of an instruction's tcgen05 operation, or an empty string."""
    return inst.action.spelling.op if isinstance(inst.action, TensorThreadOp) else ""


def _op(inst: DecodedInstruction) -> str:
    """Return the first word of a tcgen05 operation, such as ld, st, mma or cp."""
    return _spelled(inst).partition(".")[0]


def _covers(access: TensorAccess, other: TensorAccess) -> bool:
    """Return True if one access covers everything that another access touches."""
    return (
        set(access.quarters) >= set(other.quarters)
        and access.column <= other.column
        and access.column + access.columns >= other.column + other.columns
    )


class WgmmaCheck(InstructionObserver):
    """Checks the registers and descriptors of wgmma, warp by warp."""

    def __init__(self, state: WarpBatch, collector: FindingCollector) -> None:
        """Create the check and find the instructions that use tracked registers; all others are skipped."""
        super().__init__(state, collector)
        self.touching = touching(state.program)
        self.warps: dict[int, WarpProducts] = defaultdict(WarpProducts)

    def before(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Report the registers that an instruction accesses too early."""
        if self.state.memory.inst not in self.touching:
            return
        for warp, lanes in zip(group.warp_rows.tolist(), group.mask, strict=True):
            for kind, text, line in self.warps[warp].run(inst) if lanes.any() else ():
                lane = int(lanes.argmax())
                indices = self.state.indices(warp, lane)
                other = None if line is None else KernelAccess("wgmma or register access", line, *indices)
                self.report(kind, warp * LANES + lane, f"{inst.name}{text}", other=other)

    def product_descriptor(self, form: Form, role: str, word: int, warp: int, *, is_transposed: bool) -> None:
        """Check a wgmma's A or B descriptor."""
        problem = descriptor_problem(form, self.state.launch.arch, role, word, is_transposed=is_transposed)
        if problem:
            text = f"the descriptor {word:#018x} of {role.upper()}: {problem}"
            self.report("descriptor", warp * LANES, text, space="shared")
