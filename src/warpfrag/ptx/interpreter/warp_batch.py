"""The readable engine: some blocks at once, every register an array over all their lanes.

Each lane has its own place in the program. One turn takes the lanes that are furthest behind (the lowest place), of all
warps that have lanes there, and runs them to the end of their block of steps: lanes that parted meet again at the next
block, and warps that are in step are computed together. Lanes that poll for a long time fall back in the order, so that
those they wait for get their turn. Nothing is written in place: a result is a new array, so that copies cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.errors import Fault, PtxError, WarpfragError
from warpfrag.ptx.interpreter.barriers import BlockBarriers, run_memory_barrier
from warpfrag.ptx.interpreter.calls import Calls
from warpfrag.ptx.interpreter.lane_group import Group
from warpfrag.ptx.interpreter.matrix_instructions import run_matrix
from warpfrag.ptx.interpreter.system_calls import run_system
from warpfrag.ptx.interpreter.warp_state import Launch, Tally, Warps
from warpfrag.ptx.program.actions import (
    Across,
    Action,
    AsyncCopy,
    Atomic,
    Barrier,
    Branch,
    Call,
    IndirectCall,
    Leave,
    Load,
    Matrix,
    MemoryBarrier,
    Move,
    Nothing,
    Pure,
    Refused,
    Store,
    SystemCall,
    Trap,
    WarpWait,
)
from warpfrag.ptx.program.program import Constant, Operand, Program, Register, Step, Vector
from warpfrag.ptx.program.types import TYPES, Type, container, split

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from warpfrag.ptx.interpreter.memory import Memory, Owners

    Codes = NDArray[Any]
    Mask = NDArray[np.bool_]

FAR = np.int64(1) << np.int64(62)
PLACES = np.int64(1) << np.int64(32)
QUANTUM = 4096  # turns after which lanes that go round and round let others by
POLLING = 64  # how many turns a block counts that looks at memory others may change
U32, B32, B64, PRED = TYPES["u32"], TYPES["b32"], TYPES["b64"], TYPES["pred"]


class Wave(Warps):
    """Blocks that run at once."""

    def __init__(
        self, program: Program, launch: Launch, memory: Memory, blocks: list[tuple[int, int, int]], tally: Tally
    ) -> None:
        """Put every lane at the entry."""
        super().__init__(program, launch, memory, blocks, tally)
        self.barriers = BlockBarriers(self)
        self.calls = Calls(self)

    # --- turns

    def weight(self, start: int) -> int:
        """How much a turn of a block counts."""
        return POLLING if start in self.program.polling else 1

    def run(self) -> None:
        """Until every lane has left."""
        while self.advance():
            pass

    def advance(self) -> bool:
        """Give the lanes that are furthest behind a turn; False when none is left."""
        runnable = self.alive & ~self.waiting
        if not runnable.any():
            if not self.alive.any():
                return False
            if not self.barriers.wake():
                raise PtxError(*self.barriers.deadlock())
            return True
        keys = np.where(runnable, (self.turns // QUANTUM) * PLACES + self.place, FAR)
        nearest = keys.min(axis=1)
        start = int(nearest.min() % PLACES)
        chosen = (nearest != FAR) & (nearest % PLACES == start)
        if chosen.all():
            rows, mask = None, runnable & (self.place == start)
        else:
            rows = np.nonzero(chosen)[0]
            mask = runnable[rows] & (self.place[rows] == start)
        self.turn(start, Group(self, rows, mask))
        return True

    def turn(self, start: int, group: Group) -> None:
        """Run some lanes from one place to the end of its block."""
        steps, end = self.program.steps, self.program.ends[start]
        self.check_stop()
        group.put(self.turns, group.of(self.turns) + self.weight(start))
        for at in range(start, end):
            if not self.one(at, group) or steps[at].action.ends_block:
                return
        group.put(self.place, end)

    def one(self, at: int, group: Group) -> bool:
        """One step; False if lanes wait for others of their warp."""
        step = self.program.steps[at]
        self.line, self.memory.step = step.line, at
        action = step.action
        active = group
        if step.guard is not None:
            held = group.of(self.registers[step.guard.index])
            active = group.part(group.mask & (~held if step.guard.negated else held))
        if action.is_collective and not self.gathered(at, step, group, active):
            return False
        self.count(at, at + 1, group.warps)
        if action.ends_block:
            HANDLERS[type(action)](self, at, step, group, active)
        elif active.is_whole or active.mask.any():
            self.act(step, active)
        return True

    def count(self, start: int, end: int, warps: int) -> None:
        """Steps that run."""
        self.tally.steps[start:end] += warps
        self.tally.total += (end - start) * warps
        if self.tally.total > self.launch.limit:
            msg = f"the launch has run {self.launch.limit} warp instructions, its limit: it may never end"
            raise PtxError(self.program.steps[start].line, msg)

    def check_stop(self) -> None:
        """End this thread's work if the launch was interrupted."""
        if self.tally.is_stopped:
            raise PtxError(self.line, "the launch was interrupted")

    def act(self, step: Step, group: Group) -> None:
        """Run a step that goes on to the next; of bad accesses that are collected those lanes take no part."""
        try:
            HANDLERS[type(step.action)](self, step, group)
        except Fault as fault:
            error = self.fault(step, group, fault)
            is_lane_by_lane = isinstance(step.action, Load | Store | Atomic | AsyncCopy)
            if fault.ends_launch or not self.memory.is_checked or not is_lane_by_lane:
                raise error from None
            self.memory.note(step.line, error.reason)
            warps, lanes = np.nonzero(group.mask)
            alone = np.zeros_like(group.mask)
            alone[warps[fault.index], lanes[fault.index]] = True
            for item in (one for result in step.results for one in items_of(result)):
                group.part(alone).write(item, np.zeros(group.mask.shape, container(getattr(item, "bits", 32))))
            rest = group.part(group.mask & ~alone)
            if rest.mask.any():
                self.act(step, rest)

    def fault(self, step: Step, group: Group, fault: Fault) -> PtxError:
        """An access that went wrong, with its line and thread."""
        warps, lanes = np.nonzero(group.mask)
        rows = group.rows if group.rows is not None else np.arange(self.warps)
        who = self.thread_name(int(rows[warps[fault.index]]), int(lanes[fault.index]))
        return PtxError(step.line, f"{step.name} by {who}: {fault.reason}")

    def gathered(self, at: int, step: Step, group: Group, active: Group) -> bool:
        """Whether all lanes that a collective step waits for are here; if not, those that are here wait."""
        if active is not group and not active.mask.any():
            return True
        alive = group.of(self.alive)
        needed = alive
        action = step.action
        if isinstance(action, Across) and not action.synced:
            return True
        if isinstance(action, Matrix) and action.operation == "wgmma" and not self.warpgroups_gathered(at, group):
            return False
        if isinstance(action, Across | WarpWait):
            members = active.read(step.sources[-1], B32)
            wanted = ((members[:, :, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)).astype(np.bool_)
            needed = (wanted & active.mask[:, :, None]).any(axis=1) & alive
        if isinstance(action, Across | WarpWait) and step.guard is not None:
            missing = (needed & ~group.mask).any(axis=1) & active.mask.any(axis=1)
        else:
            missing = (needed & ~group.mask).any(axis=1)
        if not missing.any():
            return True
        group.put(self.place, at)
        rows = group.rows if group.rows is not None else np.arange(self.warps)
        late = rows[missing]
        here = group.mask[missing]
        # lanes that arrived before may complete the set
        together = (self.place[late] == at) & self.alive[late] & (self.parked[late] | here)
        complete = ~(needed[missing] & ~together).any(axis=1)
        self.waiting[late] |= here
        self.parked[late] |= here
        for row in late[complete]:
            free = self.parked[row] & (self.place[row] == at)
            self.waiting[row][free] = False
            self.parked[row][free] = False
        return False

    def warpgroups_gathered(self, at: int, group: Group) -> bool:
        """Whether all four warps of every warpgroup are here; if not, those that are here wait."""
        rows = group.rows if group.rows is not None else np.arange(self.warps)
        teams = self.warp_block[rows] * self.launch.warps + self.warp_index[rows] // 4
        everyone = self.warp_block * self.launch.warps + self.warp_index // 4
        late = [int(row) for row, team in zip(rows, teams, strict=True) if (teams == team).sum() < 4]
        if not late:
            return True
        group.put(self.place, at)
        mask = dict(zip(rows.tolist(), group.mask, strict=True))
        for row in late:
            self.waiting[row] |= mask[row]
            self.parked[row] |= mask[row]
        for team in {int(everyone[row]) for row in late}:
            mates = np.nonzero(everyone == team)[0]
            arrived = self.parked[mates] & (self.place[mates] == at)
            if len(mates) == 4 and not (self.alive[mates] & ~arrived).any():
                self.waiting[mates] = False
                self.parked[mates] = False
        return False

    # --- lane by lane

    def pure(self, step: Step, group: Group) -> None:
        """Compute, and write the results."""
        action = step.action
        given = [
            operand.code(None) if kind is None else group.read(operand, kind)  # type: ignore[union-attr] # checked when decoded
            for operand, kind in zip(step.sources, action.sources, strict=True)  # type: ignore[attr-defined] # a Pure
        ]
        self.give(step, group, action.function(*given), action)  # type: ignore[attr-defined] # a Pure

    def give(self, step: Step, group: Group, found: Any, action: Any) -> None:  # noqa: ANN401 (arrays)
        """Write results, as many as are wanted."""
        values = found if isinstance(found, tuple) else (found,)
        for operand, codes, kind in zip(step.results, values, action.results, strict=False):
            group.write(operand, codes, kind if getattr(action, "extends", False) else None)

    def move(self, step: Step, group: Group) -> None:
        """mov, and packing and unpacking."""
        kind = step.action.type  # type: ignore[attr-defined] # a Move
        target, source = step.results[0], step.sources[0]
        if isinstance(source, Vector):
            bits = kind.bits // len(source.items)
            part = TYPES[f"b{bits}"]
            total = np.zeros((group.warps, 32), kind.dtype)
            for index, item in enumerate(source.items):
                total = total | group.read(item, part).astype(kind.dtype) << kind.dtype.type(bits * index)
            codes = total
        else:
            codes = group.read(source, kind)
        if isinstance(target, Vector):
            bits = kind.bits // len(target.items)
            for item, piece in zip(target.items, split(codes, len(target.items), bits), strict=True):
                group.write(item, piece)
        else:
            group.write(target, codes)

    def nothing(self, step: Step, group: Group) -> None:
        """No effect."""

    # --- memory

    def load(self, step: Step, group: Group) -> None:
        """ld."""
        action: Any = step.action
        kind: Type = action.type
        codes = self.memory.load(action.space, group.addresses(step.sources[0]), kind.dtype, action.count, group.owners)
        for index, item in enumerate(items_of(step.results[0])):
            group.write(item, group.scatter(codes[:, index]), kind)

    def store(self, step: Step, group: Group) -> None:
        """st."""
        action: Any = step.action
        kind: Type = action.type
        codes = np.stack([group.read(item, kind)[group.mask] for item in items_of(step.sources[1])], axis=1)
        self.memory.store(action.space, group.addresses(step.sources[0]), codes, group.owners)
        self.progress += 1

    def atomic(self, step: Step, group: Group) -> None:
        """atom and red: lane after lane, in the order of warps and lanes."""
        action: Any = step.action
        kind: Type = action.type
        addresses, owners = group.addresses(step.sources[0]), group.owners
        operands = [
            np.stack([group.read(item, kind)[group.mask] for item in items_of(operand)], axis=1)
            for operand in step.sources[1 : 3 if action.name == "cas" else 2]
        ]
        with self.memory.lock:
            old = self.exchange(action, addresses, owners, operands)
        self.progress += 1
        if action.returns:
            for number, item in enumerate(items_of(step.results[0])):
                group.write(item, group.scatter(old[:, number]), kind)

    def exchange(self, action: Atomic, addresses: Codes, owners: Owners, operands: list[Codes]) -> Codes:
        """The old values, and the new ones in their place."""
        kind = action.type
        old = np.empty((len(addresses), action.count), kind.dtype)
        size = kind.dtype.itemsize
        for which, buffer, offsets in self.memory.reach(
            action.space, addresses, size * action.count, owners, writes=True
        ):
            cells = self.memory.elements(buffer, kind.dtype)
            index = offsets // size
            if len(np.unique(index)) == len(index):  # no two at one address: all at once
                at = index[:, None] + np.arange(action.count)
                old[which] = cells[at]
                cells[at] = action.function(old[which], *(operand[which] for operand in operands))
                continue
            for lane, first in zip(which, index, strict=True):
                own = slice(first, first + action.count)
                old[lane] = cells[own]
                cells[own] = action.function(old[lane], *(operand[lane] for operand in operands))
        return old

    def async_copy(self, step: Step, group: Group) -> None:
        """cp.async: copied when it is issued."""
        target, source, size_operand, *rest = step.sources
        size = size_operand.code(None) if isinstance(size_operand, Constant) else 0
        if size not in {4, 8, 16}:
            raise PtxError(step.line, f"expected 4, 8 or 16 bytes for {step.name}, got {step.text}")
        taken = np.full((group.warps, 32), size, np.uint32)
        if rest and isinstance(rest[0], Register) and rest[0].bits == 1:  # ignore-src
            taken = np.where(group.read(rest[0], PRED), np.uint32(0), taken)
        elif rest and not (isinstance(rest[0], Register) and rest[0].bits == 64):  # src-size; 64 bits are a policy
            taken = np.minimum(group.read(rest[0], U32), np.uint32(size))
        kept = taken[group.mask]
        owners, addresses = group.owners, group.addresses(source)
        codes = np.zeros((len(kept), size), np.uint8)
        self.memory._check_alignment(addresses, size)  # noqa: SLF001 (memory of our own)
        for count in np.unique(kept):
            if count:
                which = np.nonzero(kept == count)[0]
                try:
                    codes[which, :count] = self.memory.load(
                        "global", addresses[which], np.dtype(np.uint8), int(count), owners.at(which)
                    )
                except Fault as fault:
                    raise fault.of(which[fault.index]) from None
        words = codes.view(np.uint32)
        self.memory.store("shared", group.addresses(target), words, owners)
        self.progress += 1

    # --- together

    def across(self, step: Step, group: Group) -> None:
        """Shuffles, votes and their kin."""
        action: Any = step.action
        given = [group.read(operand, kind) for operand, kind in zip(step.sources, action.sources, strict=True)]
        if not (action.synced and action.by_members):
            self.give(step, group, action.function(group.mask, *given), action)
            return
        members = given[-1]
        named = ((members >> np.arange(32, dtype=np.uint32)) & np.uint32(1)) != 0
        left = group.mask
        while left.any():  # lanes that name the same members are one set; there may be several in a warp
            first = np.take_along_axis(members, left.argmax(axis=1)[:, None], axis=1)
            chosen = left & (members == first)
            self.give(step, group.part(chosen), action.function(chosen & named, *given), action)
            left = left & ~chosen

    def matrix(self, step: Step, group: Group) -> None:
        """Matrix instructions."""
        try:
            run_matrix(self, step, group)
        except Fault:
            raise
        except PtxError:
            raise
        except WarpfragError as error:
            raise PtxError(step.line, str(error)) from error

    def memory_barrier(self, step: Step, group: Group) -> None:
        """mbarrier."""
        run_memory_barrier(self.barriers, step, group)

    # --- control

    def branch(self, at: int, step: Step, group: Group, active: Group) -> None:
        """Lanes whose guard holds go to the target, the others on."""
        group.put(self.place, at + 1)
        if not active.mask.any():
            return
        action: Any = step.action
        if not action.indexed:
            active.put(self.place, step.targets[0])
            return
        index = active.read(step.sources[0], U32)
        if (index[active.mask] >= len(step.targets)).any():
            raise PtxError(step.line, f"expected an index below {len(step.targets)} for {step.name}, got more")
        active.put(self.place, np.array(step.targets, np.int64)[np.where(active.mask, index, 0)])

    def call(self, at: int, step: Step, group: Group, active: Group) -> None:
        """Into a function."""
        group.put(self.place, at + 1)
        if not active.mask.any():
            return
        try:
            self.calls.call(at, step, active)
        except Fault as fault:
            raise self.fault(step, active, fault) from None
        active.put(self.place, step.targets[0])

    def call_by_address(self, at: int, step: Step, group: Group, active: Group) -> None:
        """To the call of the function that each lane has the address of."""
        group.put(self.place, at + 1)
        action: Any = step.action
        given = active.read(step.sources[0], B64)
        left = active.mask
        for address, target in zip(action.addresses, step.targets, strict=True):
            chosen = left & (given == np.uint64(address))
            active.part(chosen).put(self.place, target)
            left = left & ~chosen
        if left.any():
            wrong = Fault(
                int(left[active.mask].argmax()), f"{int(given[left][0]):#x} is no function that fits this call"
            )
            raise self.fault(step, active, wrong)

    def system_call(self, step: Step, group: Group) -> None:
        """Into the driver."""
        action: Any = step.action
        run_system(self, step, group, action.name)

    def leave(self, at: int, step: Step, group: Group, active: Group) -> None:
        """ret goes back to the caller, or ends the thread; exit ends it."""
        group.put(self.place, at + 1)
        action: Any = step.action
        depth = active.of(self.calls.depth)
        ends = active.mask & ((depth == 0) | action.whole_thread)
        returns = active.mask & ~ends
        if returns.any():
            self.calls.leave(active.part(returns))
        if ends.any():
            part = active.part(ends)
            part.put(self.alive, False)  # noqa: FBT003 (a value)
            rows = group.rows if group.rows is not None else np.arange(self.warps)
            self.unpark(rows)
            self.barriers.check_all()

    def barrier(self, at: int, step: Step, group: Group, active: Group) -> None:
        """bar and barrier."""
        group.put(self.place, at + 1)
        if active.mask.any():
            self.barriers.arrive(step, active)

    def trap(self, step: Step, group: Group) -> None:
        """trap."""
        warps, lanes = np.nonzero(group.mask)
        rows = group.rows if group.rows is not None else np.arange(self.warps)
        who = self.thread_name(int(rows[warps[0]]), int(lanes[0]))
        raise PtxError(step.line, f"{step.name} by {who}: the kernel ended the launch itself")

    def refuse(self, at: int, step: Step, group: Group, active: Group) -> None:
        """An instruction that is not modelled."""
        action: Any = step.action
        if active.mask.any():
            raise PtxError(step.line, action.reason)
        group.put(self.place, at + 1)


def items_of(operand: Operand) -> tuple[Operand, ...]:
    """The items of a vector, or the operand alone."""
    return operand.items if isinstance(operand, Vector) else (operand,)


HANDLERS: dict[type[Action], Callable[..., None]] = {
    Pure: Wave.pure,
    Move: Wave.move,
    Nothing: Wave.nothing,
    Load: Wave.load,
    Store: Wave.store,
    Atomic: Wave.atomic,
    AsyncCopy: Wave.async_copy,
    Across: Wave.across,
    WarpWait: Wave.nothing,
    Matrix: Wave.matrix,
    MemoryBarrier: Wave.memory_barrier,
    Branch: Wave.branch,
    Call: Wave.call,
    IndirectCall: Wave.call_by_address,
    SystemCall: Wave.system_call,
    Leave: Wave.leave,
    Barrier: Wave.barrier,
    Trap: Wave.trap,
    Refused: Wave.refuse,
}
