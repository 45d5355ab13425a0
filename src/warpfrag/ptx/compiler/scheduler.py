"""The compiled scheduler: which lanes run next, by the interpreter's rules (`warp_batch`), without Python or the GIL.

`run_scheduler` gives one time slice after the other to the lanes that are furthest behind, and calls the machine code
of their steps. Where a step has none, or needs Python, it returns with a status; Python runs that step and calls again.
While all lanes that are alive are at one step, as they mostly are, program counters are not written lane by lane.

The arrays: `flags` are alive and waiting, `numbers` program counters and time slices, both [2, warps, lanes]; `lists`
are [3, warps]: the priority of every warp, then the rows and the lane masks of the warps that have the time slice.
`table` and `state` are described in `scheduler_state`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from llvmlite import ir
from numba import types

from warpfrag.layout.coordinates import LANES
from warpfrag.ptx.compiler import batch_loops, lane_masks, mbarrier_steps, scheduler_state
from warpfrag.ptx.compiler import context as context_words
from warpfrag.ptx.compiler.context import FAULT_STEP, NO_FAULT
from warpfrag.ptx.compiler.lane_masks import guarded_mask, mask_of, priority_of, set_pc
from warpfrag.ptx.compiler.mbarrier_steps import put_to_sleep, run_mbarrier
from warpfrag.ptx.compiler.scheduler_state import (
    ALL_LANES,
    ARRIVES,
    BARRIER,
    BARRIERS_IN_USE,
    BLOCK_END,
    BRANCH,
    BUDGET,
    END,
    EXIT,
    FAULT,
    FUNCTION,
    GUARD,
    IS_CONVERGED,
    IS_LATE,
    IS_SCHEDULED,
    IS_STALE,
    IS_WATCHED,
    KIND,
    LIMIT,
    NEEDS_FLUSH,
    NEEDS_INTERPRETER,
    NEEDS_NOTHING,
    NEEDS_PRODUCTS,
    NEGATED,
    NONE_RUNNABLE,
    OUT_OF_BUDGET,
    PC,
    PENDING_PRODUCTS,
    PENDING_SLICES,
    PROGRESS,
    RUN_WARPS,
    SEGMENT,
    SLICE_END,
    STATUS,
    STORES,
    TARGET,
    TOTAL,
    WAITS,
    WARP_COUNT,
    WARP_WAIT,
    WEIGHT,
    WHOLE_WARP_SEGMENT,
)
from warpfrag.ptx.interpreter.mbarriers import MAX_TX, NOT_ASLEEP
from warpfrag.ptx.interpreter.store_tags import INTERVAL_SHIFT
from warpfrag.ptx.interpreter.warp_batch import NOT_RUNNABLE, PRIORITY_UNIT, QUANTUM
from warpfrag.ptx.program.state_spaces import SHARED_START
from warpfrag.tensorcore.kernels.jit import Array, Flag, Int, entry, inner
from warpfrag.tensorcore.kernels.llvm_helpers import typed_intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numba.core.typing.templates import Signature

NEXT_INTERVAL = np.uint64(1 << INTERVAL_SHIFT)


@typed_intrinsic
def call_segment(
    _typing_context: object, _function: object, _context: object, _rows: object, _masks: object, _count: object
) -> tuple[Signature, Callable[..., ir.Value]]:
    """Call machine code by its address."""

    def generate(
        _context: object, builder: ir.IRBuilder, _signature: Signature, arguments: Sequence[ir.Value]
    ) -> ir.Value:
        word = ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [word] * 4)
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return ir.Constant(ir.IntType(8).as_pointer(), None)  # numba's value of void

    return types.void(*[types.int64] * 5), generate


@inner
def schedule_next(table: Array, state: Array, flags: Array, numbers: Array, lists: Array) -> Flag:
    """Give a time slice to the lanes that are furthest behind; False if none can run."""
    priorities, rows, masks = lists[0], lists[1], lists[2].view(np.uint32)
    alive, waiting, pc, slices = flags[0], flags[1], numbers[0], numbers[1]
    best = NOT_RUNNABLE
    for row in range(priorities.size):
        best = min(best, priorities[row])
    if best == NOT_RUNNABLE:
        return False
    start = best % PRIORITY_UNIT
    count, is_converged = 0, True
    for row in range(priorities.size):
        if priorities[row] != NOT_RUNNABLE and priorities[row] % PRIORITY_UNIT == start:
            mask = np.uint32(0)
            for lane in range(LANES):
                here = alive[row, lane] and not waiting[row, lane] and pc[row, lane] == start
                mask |= np.uint32(here) << np.uint32(lane)
            rows[count] = row
            masks[count] = mask
            is_converged = is_converged and mask == mask_of(alive, row)
            count += 1
        else:
            is_converged = is_converged and mask_of(alive, row) == np.uint32(0)
    state[PC], state[WARP_COUNT], state[IS_CONVERGED], state[IS_SCHEDULED] = start, count, is_converged, 1
    state[SLICE_END] = table[start, BLOCK_END]
    if is_converged:
        state[PENDING_SLICES] += table[start, WEIGHT]
    else:
        for i in range(count):
            for lane in range(LANES):
                if masks[i] >> np.uint32(lane) & np.uint32(1):
                    slices[rows[i], lane] += table[start, WEIGHT]
    return True


@inner
def end_slice(state: Array, flags: Array, numbers: Array, lists: Array) -> None:
    """End the time slice of lanes whose program counters are set: find the new priorities of their warps."""
    if state[IS_CONVERGED]:
        for row in range(lists.shape[1]):
            for lane in range(LANES):
                numbers[1, row, lane] += state[PENDING_SLICES]
        state[PENDING_SLICES] = state[IS_CONVERGED] = 0
    for i in range(state[WARP_COUNT]):
        row = lists[1, i]
        lists[0, row] = priority_of(row, flags, numbers)
    state[IS_SCHEDULED] = 0


@inner
def jump(target: Int, table: Array, state: Array, flags: Array, numbers: Array, lists: Array) -> None:
    """Send all lanes of this time slice to one step: while they are converged, without writing it down.

    When Python is to be asked, it is written down: Python may let other lanes run.
    """
    if state[IS_CONVERGED] and state[TOTAL] <= state[BUDGET]:
        state[PC] = target
        state[SLICE_END] = table[target, BLOCK_END]
        state[PENDING_SLICES] += table[target, WEIGHT]
        return
    masks = lists[2].view(np.uint32)
    for i in range(state[WARP_COUNT]):
        set_pc(lists[1, i], masks[i], target, numbers[0])
    end_slice(state, flags, numbers, lists)


@inner
def exit_lanes(state: Array, flags: Array, numbers: Array, lists: Array, blocks: Array, exited: Array) -> None:
    """End the threads of this time slice."""
    masks = lists[2].view(np.uint32)
    for i in range(state[WARP_COUNT]):
        row = lists[1, i]
        exited[blocks[row]] = True
        set_pc(row, masks[i], state[PC], numbers[0])
        for lane in range(LANES):
            if masks[i] >> np.uint32(lane) & np.uint32(1):
                flags[0, row, lane] = False
    end_slice(state, flags, numbers, lists)


@inner
def any_waiting(state: Array, waiting: Array, lists: Array) -> Flag:
    """Whether other lanes of these warps wait for some."""
    mask = np.uint32(0)
    for i in range(state[WARP_COUNT]):
        mask |= mask_of(waiting, lists[1, i])
    return mask != np.uint32(0)


@inner
def warps_are_whole(state: Array, lists: Array) -> Flag:
    """Whether all lanes of these warps are here."""
    masks, mask = lists[2].view(np.uint32), ALL_LANES
    for i in range(state[WARP_COUNT]):
        mask &= masks[i]
    return mask == ALL_LANES


@inner
def blocks_are_whole(state: Array, alive: Array, blocks: Array, lists: Array) -> Flag:
    """Whether all lanes that are alive in the blocks of these warps are here."""
    if state[IS_CONVERGED]:
        return True
    rows, masks = lists[1], lists[2].view(np.uint32)
    index = 0
    for row in range(blocks.size):
        is_here = index < state[WARP_COUNT] and rows[index] == row
        if is_here and masks[index] != mask_of(alive, row):
            return False
        index += is_here
        if not is_here and mask_of(alive, row) != np.uint32(0):
            for i in range(state[WARP_COUNT]):
                if blocks[rows[i]] == blocks[row]:
                    return False
    return True


@inner
def branch(at: Int, table: Array, state: Array, registers: Array, flags: Array, numbers: Array, lists: Array) -> None:
    """Send lanes whose guard holds to the target, the others on to the next step."""
    rows, masks, after = lists[1], lists[2].view(np.uint32), at + 1
    some, every = False, True
    for i in range(state[WARP_COUNT]):
        mask = guarded_mask(registers, rows[i], masks[i], table[at, GUARD], table[at, NEGATED])
        some, every = some or mask != np.uint32(0), every and mask == masks[i]
    if every or not some:
        jump(table[at, TARGET] if some else after, table, state, flags, numbers, lists)
        return
    for i in range(state[WARP_COUNT]):
        set_pc(rows[i], masks[i], after, numbers[0])
        mask = guarded_mask(registers, rows[i], masks[i], table[at, GUARD], table[at, NEGATED])
        set_pc(rows[i], mask, table[at, TARGET], numbers[0])
    end_slice(state, flags, numbers, lists)


@inner
def pass_barrier(state: Array, lists: Array, blocks: Array, writers: Array, exited: Array) -> None:
    """Order what the warps of this time slice store from now on behind what they stored before a barrier."""
    for i in range(state[WARP_COUNT]):
        row = lists[1, i]
        writers[row] += NEXT_INTERVAL
        state[IS_LATE] |= exited[blocks[row]]


@inner
def can_run(kind: Int, state: Array, flags: Array, lists: Array, blocks: Array) -> Flag:
    """Whether a step needs no Python, for the lanes of this time slice."""
    if kind in (SEGMENT, BRANCH):
        return True
    if kind in (WAITS, ARRIVES):
        return state[IS_WATCHED] == 0
    if kind in (WHOLE_WARP_SEGMENT, WARP_WAIT):
        return warps_are_whole(state, lists)
    if kind == BARRIER:
        return state[BARRIERS_IN_USE] == 0 and blocks_are_whole(state, flags[0], blocks, lists)
    return kind == EXIT and state[BARRIERS_IN_USE] == 0 and not any_waiting(state, flags[1], lists)


@inner
def needs_of(table: Array, state: Array, flags: Array, lists: Array, blocks: Array) -> Int:
    """What the step of this time slice needs Python for, as a status."""
    at = state[PC]
    total = state[TOTAL] + (table[at, END] - at) * state[WARP_COUNT]
    if total > state[LIMIT] or not can_run(table[at, KIND], state, flags, lists, blocks):
        return NEEDS_INTERPRETER
    return NEEDS_FLUSH if state[PENDING_PRODUCTS] and table[at, NEEDS_PRODUCTS] else NEEDS_NOTHING


@inner
def begin_step(
    at: Int, table: Array, state: Array, context: Array, registers: Array, codes: Array, flags: Array, numbers: Array,
    lists: Array, blocks: Array, writers: Array, words: Array, written: Array, live: Array, awaited: Array,
    expired: Array, undo: Array, step_written: Array, step_wavefronts: Array,
) -> Int:  # fmt: skip
    """What the step of this time slice needs Python for, as a status; an mbarrier that needs nothing is run here."""
    status = needs_of(table, state, flags, lists, blocks)
    state[RUN_WARPS] = state[WARP_COUNT]
    if status == NEEDS_NOTHING and table[at, KIND] in (WAITS, ARRIVES):
        is_done = run_mbarrier(
            at, table, state, context, registers, codes, flags, numbers, lists, blocks, writers, words, written, live,
            awaited, expired, undo, step_written, step_wavefronts,
        )  # fmt: skip
        return NEEDS_NOTHING if is_done else NEEDS_INTERPRETER
    return status


@inner
def run_control(
    at: Int, table: Array, state: Array, registers: Array, flags: Array, numbers: Array, lists: Array, blocks: Array,
    writers: Array, exited: Array, awaited: Array, undo: Array,
) -> None:  # fmt: skip
    """Do what a step does to the lanes of this time slice: where they go, whether they wait or end."""
    kind = table[at, KIND]
    if kind == BRANCH:
        branch(at, table, state, registers, flags, numbers, lists)
    elif kind == BARRIER:
        pass_barrier(state, lists, blocks, writers, exited)
    elif kind == EXIT:
        exit_lanes(state, flags, numbers, lists, blocks, exited)
    elif kind == WAITS and put_to_sleep(at, state, flags, numbers, lists, awaited, undo):
        end_slice(state, flags, numbers, lists)


@inner
def refresh(state: Array, flags: Array, numbers: Array, lists: Array) -> None:
    """Find the priorities of all warps, after Python has changed program counters."""
    for row in range(lists.shape[1]):
        for lane in range(LANES):
            numbers[1, row, lane] += state[PENDING_SLICES]
        lists[0, row] = priority_of(row, flags, numbers)
    state[PENDING_SLICES] = state[IS_CONVERGED] = state[IS_STALE] = state[IS_SCHEDULED] = 0


MODULES = (context_words, scheduler_state, lane_masks, mbarrier_steps, batch_loops)


def named_after_constants(function: Callable[..., None]) -> Callable[..., None]:
    """Add a digest of constants and of what it calls to a function's name: numba caches code by that name."""
    texts = b"".join(Path(str(module.__file__)).read_bytes() for module in MODULES)
    texts += repr((NOT_RUNNABLE, PRIORITY_UNIT, QUANTUM, NEXT_INTERVAL, NOT_ASLEEP, MAX_TX, SHARED_START)).encode()
    function.__name__ += f"_{hashlib.sha256(texts).hexdigest()[:8]}"
    return function


@entry
@named_after_constants
def run_scheduler(
    table: Array,
    state: Array,
    context: Array,
    registers: Array,
    flags: Array,
    numbers: Array,
    lists: Array,
    blocks: Array,
    runs: Array,
    writers: Array,
    exited: Array,
    words: Array,
    written: Array,
    live: Array,
    awaited: Array,
    expired: Array,
    undo: Array,
    step_written: Array,
    step_wavefronts: Array,
) -> None:
    """Run until Python is needed: `state[STATUS]` says for what.

    `blocks` has the block of every warp; `runs` counts how many warps ran the steps from each step on; `writers` are
    the tags of what the warps store, which every barrier changes (`interpreter.store_tags`); `exited` says of every
    block whether threads of it have. Of mbarriers: `words` of
    shared memory, those that were `written` last and that are `live`, what lanes sleep for (`awaited`), whose waits
    have `expired`, and room to `undo` arrivals; `step_written` and `step_wavefronts` are counts by step.
    """
    codes = registers.view(np.uint32)
    if state[IS_STALE]:
        refresh(state, flags, numbers, lists)
    while True:
        if state[TOTAL] > state[BUDGET] and not state[IS_SCHEDULED]:
            state[STATUS] = OUT_OF_BUDGET
            return
        if not state[IS_SCHEDULED] and not schedule_next(table, state, flags, numbers, lists):
            state[STATUS] = NONE_RUNNABLE
            return
        at, count = state[PC], state[WARP_COUNT]
        if at == state[SLICE_END]:
            jump(at, table, state, flags, numbers, lists)
            continue
        kind, steps = table[at, KIND], table[at, END] - at
        state[STATUS] = begin_step(
            at, table, state, context, registers, codes, flags, numbers, lists, blocks, writers, words, written, live,
            awaited, expired, undo, step_written, step_wavefronts,
        )  # fmt: skip
        if state[STATUS] != NEEDS_NOTHING:
            return
        runs[at] += state[RUN_WARPS]
        state[TOTAL] += steps * state[RUN_WARPS]
        state[PC] = table[at, END]
        state[PROGRESS] += table[at, STORES]
        if kind in (SEGMENT, WHOLE_WARP_SEGMENT):
            call_segment(table[at, FUNCTION], context.ctypes.data, lists[1].ctypes.data, lists[2].ctypes.data, count)
            if context[FAULT_STEP] != NO_FAULT:
                state[STATUS] = FAULT
                return
        else:
            run_control(at, table, state, registers, flags, numbers, lists, blocks, writers, exited, awaited, undo)
