"""Barriers of a block and of a cluster: the instructions bar, barrier and barrier.cluster.

Barriers in memory are in `mbarriers`; `deadlocks` reports the barriers at which lanes wait forever.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import PtxError
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.lane_group import LaneGroup
from warpfrag.machine.interpreter.warp_state import WarpState
from warpfrag.machine.ir.actions import Barrier, ClusterBarrier
from warpfrag.machine.ir.program import DecodedInstruction
from warpfrag.machine.ir.scalar_types import PRED, U32

MAX_BARRIERS = 16


@dataclass
class BarrierState:
    """One barrier of one block: the lanes that wait at it, and the number of bar.arrive arrivals.

    `partial` maps the line and warp of an aligned instruction to its name and the lanes that have not reached it,
    although other lanes of the warp have. The instruction is reported only if the missing lanes never arrive.
    """

    here: NDArray[np.bool_]  # [warps of the block, lanes]
    arrived: int = 0
    expected: int = 0
    votes: NDArray[np.bool_] | None = None
    line: int = 0
    waiters: list[tuple[Barrier, DecodedInstruction, int, NDArray[np.bool_]]] = field(default_factory=list)
    partial: dict[tuple[int, int], tuple[str, NDArray[np.bool_]]] = field(default_factory=dict)


class BlockBarriers:
    """The barriers of a batch's blocks; `states` holds the barriers in use, keyed by block and barrier number."""

    def __init__(self, state: WarpState) -> None:
        """Create the barriers of a batch; `divergent` records barriers that only some lanes of a warp reached."""
        self.state = state
        self.per_block = state.launch.warps
        self.states: dict[tuple[int, int], BarrierState] = {}
        self.divergent: dict[int, str] = {}  # line -> description

    def arrive(self, inst: DecodedInstruction, action: Barrier, group: LaneGroup) -> None:
        """Run bar or barrier: lanes arrive and, unless the instruction is bar.arrive, wait."""
        state = self.state
        operands = list(inst.sources)
        vote = operands.pop() if action.reduction else None
        if not operands:
            raise PtxError(inst.line, f"expected a barrier number, got {inst.text}")
        numbers = group.read(operands[0], U32)
        expected = group.read(operands[1], U32) if len(operands) > 1 else None
        votes = group.read(vote, PRED) if vote is not None else None
        rows = group.warp_rows
        touched = set()
        for index in np.nonzero(group.mask.any(axis=1))[0]:
            warp = int(rows[index])
            block, own = divmod(warp, self.per_block)
            lanes = group.mask[index]
            number = int(numbers[index][lanes][0])
            if number >= MAX_BARRIERS:
                raise PtxError(inst.line, f"expected a barrier number from 0 to {MAX_BARRIERS - 1}, got {number}")
            barrier = self.states.setdefault(
                (block, number),
                BarrierState(
                    np.zeros((self.per_block, LANES), np.bool_), votes=np.zeros((self.per_block, LANES), np.bool_)
                ),
            )
            barrier.line = inst.line
            if action.aligned:
                _, missing = barrier.partial.get((inst.line, warp), ("", state.alive[warp]))
                barrier.partial[inst.line, warp] = inst.name, missing & ~lanes
            if expected is not None:
                barrier.expected = int(expected[index][lanes][0])
                if barrier.expected % LANES or not barrier.expected:
                    raise PtxError(inst.line, f"expected a multiple of 32 threads, got {barrier.expected}")
            if state.memory.observer is not None:
                state.memory.observer.barrier_arrived(block, number, warp, lanes)
            if not action.waits:
                barrier.arrived += LANES
            else:
                barrier.here[own] |= lanes
                state.waiting[warp] |= lanes
                if votes is not None and barrier.votes is not None:
                    barrier.votes[own][lanes] = votes[index][lanes]
                    barrier.waiters.append((action, inst, warp, lanes))
            touched.add((block, number))
        for key in touched:
            self.check(*key)

    def _note_divergence(self, barrier: BarrierState) -> None:
        """Record the instructions that only some lanes of a warp had reached when a barrier completed."""
        for (line, warp), (name, missing) in barrier.partial.items():
            if missing.any() and line not in self.divergent:
                who = self.state.thread_name(warp, int(missing.argmax()))
                self.divergent[line] = f"{name} is reached by only part of a warp: {who} does not reach it"

    def check(self, block: int, number: int, *, is_stalled: bool = False) -> None:
        """Release the lanes that wait at a barrier if all expected threads have arrived.

        A warp normally counts once all of its lanes have arrived. When machine code can make no other progress
        (`is_stalled`), some of its lanes are enough, as on an H200.
        """
        barrier = self.states.get((block, number))
        if barrier is None or not barrier.here.any():
            return
        state = self.state
        rows = slice(block * self.per_block, (block + 1) * self.per_block)
        alive = state.alive[rows]
        if barrier.expected:
            whole = barrier.here.any(axis=1)
            if not is_stalled:
                whole &= ~(alive & ~barrier.here).any(axis=1)
            if int(whole.sum()) * LANES + barrier.arrived < barrier.expected:
                return
        elif (alive & ~barrier.here).any():
            return
        if state.memory.observer is not None:
            state.memory.observer.barrier_released(block, number, barrier.here)
        self._note_divergence(barrier)
        del self.states[block, number]
        state.order_stores([block])
        state.waiting[rows] &= ~barrier.here
        state.progress += 1
        if barrier.waiters and barrier.votes is not None:
            self._write_votes(barrier)

    def _write_votes(self, barrier: BarrierState) -> None:
        """Write the bar.red result to every lane that waited."""
        votes = barrier.votes[barrier.here] if barrier.votes is not None else np.zeros(0, np.bool_)
        for action, inst, warp, lanes in barrier.waiters:
            group = LaneGroup(self.state, np.array([warp]), lanes[None, :])
            if action.reduction == "popc":
                group.write(inst.results[0], np.full((1, LANES), int(votes.sum()), np.uint32))
            else:
                held = bool(votes.all()) if action.reduction == "and" else bool(votes.any())
                group.write(inst.results[0], np.full((1, LANES), held, np.bool_))

    def check_all(self) -> None:
        """Check all barriers again after threads have exited."""
        for key in list(self.states):
            self.check(*key)

    def release_completed(self) -> bool:
        """Check every barrier when no lane can run, and return True if any lanes were released."""
        before = int(self.state.waiting.sum())
        self.check_all()
        if int(self.state.waiting.sum()) == before and not self.state.program.assigns_registers:
            for key in list(self.states):
                self.check(*key, is_stalled=True)
        return int(self.state.waiting.sum()) < before

    def deadlock(self) -> tuple[int, str] | None:
        """Return the line and message of a deadlock at a barrier, with the missing threads, or None."""
        state = self.state
        for barrier in self.states.values():
            self._note_divergence(barrier)
        for (block, number), barrier in self.states.items():
            if not barrier.here.any():
                continue
            rows = slice(block * self.per_block, (block + 1) * self.per_block)
            missing = state.alive[rows] & ~barrier.here
            if barrier.expected:
                count = int(barrier.here.any(axis=1).sum()) * LANES + barrier.arrived
                return barrier.line, f"barrier {number} waits for {barrier.expected} threads, {count} arrived"
            warp, lane = (int(v) for v in np.argwhere(missing)[0])
            who = state.thread_name(block * self.per_block + warp, lane)
            line = state.program.instructions[int(state.pc[block * self.per_block + warp, lane])].line
            return barrier.line, f"barrier {number} waits for {who}, which waits at line {line}"
        if not state.waiting_in_warp.any():
            return None
        warp, lane = (int(v) for v in np.argwhere(state.waiting_in_warp)[0])
        inst = state.program.instructions[int(state.pc[warp, lane])]
        who = state.thread_name(warp, lane)
        return inst.line, f"{inst.name} of {who} waits for lanes of its warp that never arrive"


class ClusterBarriers:
    """The hardware barrier of each cluster in a batch.

    `phases` counts the completed phases of each cluster's barrier; `awaited` is the count that ends the phase of a
    lane's last arrival. An exited thread counts as arrived.
    """

    def __init__(self, state: WarpState) -> None:
        """Create the cluster barriers of a batch; no lane has arrived yet."""
        self.state = state
        self.size = state.launch.warps * state.launch.cluster_blocks  # warps in a cluster
        self.phases = np.zeros(-(-state.warps // self.size), np.int64)
        self.awaited = np.zeros((state.warps, LANES), np.int64)
        self.has_arrived = np.zeros((state.warps, LANES), np.bool_)
        self.waiting = np.zeros((state.warps, LANES), np.bool_)
        # lanes that have arrived and must wait before they arrive again
        self.must_wait = np.zeros((state.warps, LANES), np.bool_)
        self.lines = np.zeros(state.warps, np.int64)

    def run(self, inst: DecodedInstruction, action: ClusterBarrier, group: LaneGroup) -> None:
        """Run barrier.cluster: lanes arrive, or wait for the phase in which they arrived."""
        rows = group.warp_rows
        phases = self.phases[rows // self.size][:, None]
        self.lines[rows[group.mask.any(axis=1)]] = inst.line
        if action.waits:
            awaited = group.of(self.awaited)
            early = group.mask & ~group.of(self.must_wait)
            if early.any():
                raise self._error(inst, group, early, "waits without having arrived")
            group.put(self.must_wait, values=False)
            waits = group.mask & (awaited > phases)
            group.put(self.waiting, waits | group.of(self.waiting))
            group.put(self.state.waiting, waits | group.of(self.state.waiting))
            return
        twice = group.mask & group.of(self.must_wait)
        if twice.any():
            raise self._error(inst, group, twice, "arrives twice without waiting in between")
        group.put(self.must_wait, values=True)
        group.put(self.has_arrived, values=True)
        group.put(self.awaited, np.broadcast_to(phases + 1, group.mask.shape))
        for cluster in np.unique(rows // self.size):
            self.check(int(cluster))

    def _error(self, inst: DecodedInstruction, group: LaneGroup, wrong: NDArray[np.bool_], text: str) -> PtxError:
        warp, lane = (int(v) for v in np.argwhere(wrong)[0])
        return PtxError(inst.line, f"{inst.name}: {self.state.thread_name(int(group.warp_rows[warp]), lane)} {text}")

    def check(self, cluster: int) -> bool:
        """Complete a cluster's phase if all live threads have arrived; return True if it was completed."""
        rows = slice(cluster * self.size, (cluster + 1) * self.size)
        state = self.state
        if not self.has_arrived[rows].any() or (state.alive[rows] & ~self.has_arrived[rows]).any():
            return False
        self.has_arrived[rows] = False
        if state.memory.observer is not None:
            state.memory.observer.cluster_completed(cluster)
        self.phases[cluster] += 1
        state.waiting[rows] &= ~self.waiting[rows]
        self.waiting[rows] = False
        state.progress += 1
        first = cluster * state.launch.cluster_blocks
        state.order_stores(range(first, first + state.launch.cluster_blocks), across_blocks=True)
        state.wake(np.arange(rows.start, rows.stop))
        return True

    def check_all(self) -> bool:
        """Check every cluster; return True if a phase was completed."""
        completed = [self.check(cluster) for cluster in range(len(self.phases))]
        return any(completed)

    def deadlock(self) -> tuple[int, str] | None:
        """Return the line and message of a deadlock at a cluster barrier, with the missing thread, or None."""
        if not self.waiting.any():
            return None
        warp, lane = (int(v) for v in np.argwhere(self.waiting)[0])
        first = warp // self.size * self.size
        rows = slice(first, first + self.size)
        missing = self.state.alive[rows] & ~self.has_arrived[rows]
        count = int(self.waiting[rows].sum())
        text = f"barrier.cluster.wait of {self.state.thread_name(warp, lane)}"
        text += f" and {count - 1} more" if count > 1 else ""
        if missing.any():
            other, other_lane = (int(v) for v in np.argwhere(missing)[0])
            line = self.state.program.instructions[int(self.state.pc[first + other, other_lane])].line
            who = self.state.thread_name(first + other, other_lane)
            text += f" waits for {who}, which is at line {line}"
        return int(self.lines[warp]), text
