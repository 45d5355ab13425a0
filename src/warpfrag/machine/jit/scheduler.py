"""The compiled scheduler: selects lanes to run by the interpreter's rules (`warp_batch`), without Python or the GIL.

`run_scheduler` gives time slices to the lanes that are furthest behind, and calls the machine code of their
instructions. For an instruction that needs Python it returns a status; Python runs the instruction and calls again.
While all live lanes are at one instruction, as is usual, program counters are not written lane by lane.

The arrays: `flags` are alive and waiting, `numbers` program counters and time slices, both [2, warps, lanes]; `lists`
are [3, warps]: the priority of every warp, then the rows and the lane masks of the warps that have the time slice.
`table` and `state` are described in `context`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from llvmlite import ir
from numba import types

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.store_tags import INTERVAL_SHIFT
from warpfrag.machine.interpreter.warp_batch import NOT_RUNNABLE, PRIORITY_UNIT, QUANTUM
from warpfrag.machine.jit import context as ctx
from warpfrag.tensorcore.kernels.jit import Array, Flag, Int, entry, inner
from warpfrag.tensorcore.kernels.llvm_helpers import Lowering, typed_intrinsic

NEXT_INTERVAL = np.uint64(1 << INTERVAL_SHIFT)


@typed_intrinsic
def call_segment(
    _typing_context: object, _function: object, _context: object, _rows: object, _masks: object, _count: object
) -> Lowering:
    """Call machine code by its address."""

    def generate(
        _context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]
    ) -> ir.Value:
        word = ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [word] * 4)
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return ir.Constant(ir.IntType(8).as_pointer(), None)  # numba's representation of void

    return types.void(*[types.int64] * 5), generate


@inner
def priority_of(row: Int, flags: Array, numbers: Array) -> Int:
    """Return the priority of a warp's first lane: its program counter, and above it the time spent in loops."""
    best = NOT_RUNNABLE
    for lane in range(LANES):
        if flags[0, row, lane] and not flags[1, row, lane]:
            best = min(best, (numbers[1, row, lane] // QUANTUM) * PRIORITY_UNIT + numbers[0, row, lane])
    return best


@inner
def mask_of(flags: Array, row: Int) -> Int:
    """Return the flags of a warp's lanes as a mask."""
    mask = np.uint32(0)
    for lane in range(LANES):
        mask |= np.uint32(flags[row, lane]) << np.uint32(lane)
    return mask


@inner
def set_pc(row: Int, mask: Int, value: Int, pc: Array) -> None:
    """Set the program counter of some lanes of a warp."""
    for lane in range(LANES):
        if mask >> np.uint32(lane) & np.uint32(1):
            pc[row, lane] = value


@inner
def guarded_mask(registers: Array, row: Int, mask: Int, offset: Int, negated: Int) -> Int:
    """Return the lanes of a warp whose guard holds; all lanes if there is no guard."""
    if offset < 0:
        return mask
    guard = np.uint32(0)
    for lane in range(LANES):
        guard |= np.uint32(registers[row, offset + lane] != 0) << np.uint32(lane)
    return (~guard if negated else guard) & mask


@inner
def schedule_next(table: Array, state: Array, flags: Array, numbers: Array, lists: Array) -> Flag:
    """Give a time slice to the lanes that are furthest behind; return False if none can run."""
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
    state[ctx.PC], state[ctx.WARP_COUNT], state[ctx.IS_CONVERGED], state[ctx.IS_SCHEDULED] = (
        start,
        count,
        is_converged,
        1,
    )
    state[ctx.SLICE_END] = table[start, ctx.BLOCK_END]
    if is_converged:
        state[ctx.PENDING_SLICES] += table[start, ctx.WEIGHT]
    else:
        for i in range(count):
            for lane in range(LANES):
                if masks[i] >> np.uint32(lane) & np.uint32(1):
                    slices[rows[i], lane] += table[start, ctx.WEIGHT]
    return True


@inner
def end_slice(state: Array, flags: Array, numbers: Array, lists: Array) -> None:
    """End the time slice of lanes whose program counters are set, and update the priorities of their warps."""
    if state[ctx.IS_CONVERGED]:
        for row in range(lists.shape[1]):
            for lane in range(LANES):
                numbers[1, row, lane] += state[ctx.PENDING_SLICES]
        state[ctx.PENDING_SLICES] = state[ctx.IS_CONVERGED] = 0
    for i in range(state[ctx.WARP_COUNT]):
        row = lists[1, i]
        lists[0, row] = priority_of(row, flags, numbers)
    state[ctx.IS_SCHEDULED] = 0


@inner
def jump(target: Int, table: Array, state: Array, flags: Array, numbers: Array, lists: Array) -> None:
    """Send all lanes of this time slice to one instruction; do not store it while they are converged.

    It is stored before control returns to Python, which may run other lanes.
    """
    if state[ctx.IS_CONVERGED] and state[ctx.TOTAL] <= state[ctx.BUDGET]:
        state[ctx.PC] = target
        state[ctx.SLICE_END] = table[target, ctx.BLOCK_END]
        state[ctx.PENDING_SLICES] += table[target, ctx.WEIGHT]
        return
    masks = lists[2].view(np.uint32)
    for i in range(state[ctx.WARP_COUNT]):
        set_pc(lists[1, i], masks[i], target, numbers[0])
    end_slice(state, flags, numbers, lists)


@inner
def exit_lanes(state: Array, flags: Array, numbers: Array, lists: Array, blocks: Array, exited: Array) -> None:
    """Exit the threads of this time slice."""
    masks = lists[2].view(np.uint32)
    for i in range(state[ctx.WARP_COUNT]):
        row = lists[1, i]
        exited[blocks[row]] = True
        set_pc(row, masks[i], state[ctx.PC], numbers[0])
        for lane in range(LANES):
            if masks[i] >> np.uint32(lane) & np.uint32(1):
                flags[0, row, lane] = False
    end_slice(state, flags, numbers, lists)


@inner
def any_waiting(state: Array, waiting: Array, lists: Array) -> Flag:
    """Return True if other lanes of these warps are waiting."""
    mask = np.uint32(0)
    for i in range(state[ctx.WARP_COUNT]):
        mask |= mask_of(waiting, lists[1, i])
    return mask != np.uint32(0)


@inner
def warps_are_whole(state: Array, lists: Array) -> Flag:
    """Return True if all lanes of these warps are here."""
    masks, mask = lists[2].view(np.uint32), ctx.ALL_LANES
    for i in range(state[ctx.WARP_COUNT]):
        mask &= masks[i]
    return mask == ctx.ALL_LANES


@inner
def blocks_are_whole(state: Array, alive: Array, blocks: Array, lists: Array) -> Flag:
    """Return True if all live lanes in the blocks of these warps are here."""
    if state[ctx.IS_CONVERGED]:
        return True
    rows, masks = lists[1], lists[2].view(np.uint32)
    index = 0
    for row in range(blocks.size):
        is_here = index < state[ctx.WARP_COUNT] and rows[index] == row
        if is_here and masks[index] != mask_of(alive, row):
            return False
        index += is_here
        if not is_here and mask_of(alive, row) != np.uint32(0):
            for i in range(state[ctx.WARP_COUNT]):
                if blocks[rows[i]] == blocks[row]:
                    return False
    return True


@inner
def branch(at: Int, table: Array, state: Array, registers: Array, flags: Array, numbers: Array, lists: Array) -> None:
    """Send lanes whose guard holds to the target, and the others to the next instruction."""
    rows, masks, after = lists[1], lists[2].view(np.uint32), at + 1
    some, every = False, True
    for i in range(state[ctx.WARP_COUNT]):
        mask = guarded_mask(registers, rows[i], masks[i], table[at, ctx.GUARD], table[at, ctx.NEGATED])
        some, every = some or mask != np.uint32(0), every and mask == masks[i]
    if every or not some:
        jump(table[at, ctx.TARGET] if some else after, table, state, flags, numbers, lists)
        return
    for i in range(state[ctx.WARP_COUNT]):
        set_pc(rows[i], masks[i], after, numbers[0])
        mask = guarded_mask(registers, rows[i], masks[i], table[at, ctx.GUARD], table[at, ctx.NEGATED])
        set_pc(rows[i], mask, table[at, ctx.TARGET], numbers[0])
    end_slice(state, flags, numbers, lists)


@inner
def pass_barrier(state: Array, lists: Array, blocks: Array, writers: Array, exited: Array) -> None:
    """Order later stores of this time slice's warps after their stores before a barrier."""
    for i in range(state[ctx.WARP_COUNT]):
        row = lists[1, i]
        writers[row] += NEXT_INTERVAL
        state[ctx.IS_LATE] |= exited[blocks[row]]


@inner
def can_run(kind: Int, state: Array, flags: Array, lists: Array, blocks: Array) -> Flag:
    """Return True if the lanes of this time slice can run an instruction without Python."""
    if kind in (ctx.SEGMENT, ctx.BRANCH):
        return True
    if kind in (ctx.WHOLE_WARP_SEGMENT, ctx.WARP_WAIT):
        return warps_are_whole(state, lists)
    if kind == ctx.BARRIER:
        return state[ctx.BARRIERS_IN_USE] == 0 and blocks_are_whole(state, flags[0], blocks, lists)
    return kind == ctx.EXIT and state[ctx.BARRIERS_IN_USE] == 0 and not any_waiting(state, flags[1], lists)


@inner
def needs_of(table: Array, state: Array, flags: Array, lists: Array, blocks: Array) -> Int:
    """Return the reason why this time slice's instruction needs Python, as a status."""
    at = state[ctx.PC]
    total = state[ctx.TOTAL] + (table[at, ctx.END] - at) * state[ctx.WARP_COUNT]
    if total > state[ctx.LIMIT] or not can_run(table[at, ctx.KIND], state, flags, lists, blocks):
        return ctx.NEEDS_INTERPRETER
    return ctx.NEEDS_FLUSH if state[ctx.PENDING_PRODUCTS] and table[at, ctx.NEEDS_PRODUCTS] else ctx.NEEDS_NOTHING


@inner
def run_control(
    at: Int, table: Array, state: Array, registers: Array, flags: Array, numbers: Array, lists: Array, blocks: Array,
    writers: Array, exited: Array,
) -> None:  # fmt: skip
    """Run a branch, a barrier or an exit for the lanes of this time slice."""
    kind = table[at, ctx.KIND]
    if kind == ctx.BRANCH:
        branch(at, table, state, registers, flags, numbers, lists)
    elif kind == ctx.BARRIER:
        pass_barrier(state, lists, blocks, writers, exited)
    elif kind == ctx.EXIT:
        exit_lanes(state, flags, numbers, lists, blocks, exited)


@inner
def refresh(state: Array, flags: Array, numbers: Array, lists: Array) -> None:
    """Recompute the priorities of all warps after Python has changed program counters."""
    for row in range(lists.shape[1]):
        for lane in range(LANES):
            numbers[1, row, lane] += state[ctx.PENDING_SLICES]
        lists[0, row] = priority_of(row, flags, numbers)
    state[ctx.PENDING_SLICES] = state[ctx.IS_CONVERGED] = state[ctx.IS_STALE] = state[ctx.IS_SCHEDULED] = 0


def named_after_constants(function: Callable[..., None]) -> Callable[..., None]:
    """Add a digest of its constants and callees to a function's name, because numba caches code under that name."""
    constants = repr((NOT_RUNNABLE, PRIORITY_UNIT, QUANTUM, NEXT_INTERVAL)).encode()
    digest = hashlib.sha256(Path(str(ctx.__file__)).read_bytes() + constants).hexdigest()
    function.__name__ += f"_{digest[:8]}"
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
) -> None:
    """Run until Python is needed; `state[STATUS]` is the reason.

    `blocks` has the block of every warp; `runs` counts the warps that ran each run of instructions; `writers` has the
    store tags of the warps, which every barrier changes (`interpreter.store_tags`); `exited` is True for every block
    with exited threads.
    """
    if state[ctx.IS_STALE]:
        refresh(state, flags, numbers, lists)
    while True:
        if state[ctx.TOTAL] > state[ctx.BUDGET] and not state[ctx.IS_SCHEDULED]:
            state[ctx.STATUS] = ctx.OUT_OF_BUDGET
            return
        if not state[ctx.IS_SCHEDULED] and not schedule_next(table, state, flags, numbers, lists):
            state[ctx.STATUS] = ctx.NONE_RUNNABLE
            return
        at, count = state[ctx.PC], state[ctx.WARP_COUNT]
        if at == state[ctx.SLICE_END]:
            jump(at, table, state, flags, numbers, lists)
            continue
        kind, instructions = table[at, ctx.KIND], table[at, ctx.END] - at
        state[ctx.STATUS] = needs_of(table, state, flags, lists, blocks)
        if state[ctx.STATUS] != ctx.NEEDS_NOTHING:
            return
        runs[at] += count
        state[ctx.TOTAL] += instructions * count
        state[ctx.PC] = table[at, ctx.END]
        state[ctx.PROGRESS] += table[at, ctx.STORES]
        if kind in (ctx.SEGMENT, ctx.WHOLE_WARP_SEGMENT):
            call_segment(
                table[at, ctx.FUNCTION], context.ctypes.data, lists[1].ctypes.data, lists[2].ctypes.data, count
            )
            if context[ctx.FAULT_INST] != ctx.NO_FAULT:
                state[ctx.STATUS] = ctx.FAULT
                return
        else:
            run_control(at, table, state, registers, flags, numbers, lists, blocks, writers, exited)
