"""mbarriers in the compiled scheduler: try_wait by parity, and arrivals. The rest `mbarrier_batches` does.

What Python has to do is known before anything has changed: addresses that differ in a warp, mbarriers that are not
initialised, counts that are wrong, waits whose time limit has passed. The fields of an mbarrier, and what a wait
orders, are those of `interpreter.mbarriers`.
"""

from __future__ import annotations

import numpy as np

from warpfrag.layout.coordinates import LANES
from warpfrag.ptx.compiler.batch_loops import (
    ARRIVALS,
    COUNT_SHIFT,
    PARITY,
    TX_LIMIT,
    TX_MASK,
    TX_MODULUS,
    TX_SHIFT,
    TX_SIGN,
)
from warpfrag.ptx.compiler.context import (
    BLOCK_WARPS,
    CLUSTER_WARPS,
    SHARED_END,
    SHARED_STRIDE,
    WAVEFRONTS,
    WRITTEN_BYTES,
)
from warpfrag.ptx.compiler.lane_masks import guarded_mask, priority_of, set_pc
from warpfrag.ptx.compiler.scheduler_state import (
    ADDRESS,
    GUARD,
    IS_TRANSACTION,
    KIND,
    NEGATED,
    NUMBER,
    PROGRESS,
    RESULT,
    RUN_WARPS,
    WAITS,
    WARP_COUNT,
)
from warpfrag.ptx.interpreter.mbarriers import NOT_ASLEEP
from warpfrag.ptx.interpreter.store_tags import INTERVAL_SHIFT
from warpfrag.ptx.program.state_spaces import SHARED_START, SPACES
from warpfrag.tensorcore.kernels.jit import Array, Flag, Int, inner

NEXT_INTERVAL = np.uint64(1 << INTERVAL_SHIFT)
OBJECT_BYTES = 8
WRITTEN, PASSES = WRITTEN_BYTES + SPACES.index("shared"), WAVEFRONTS + SPACES.index("shared")
ADDRESS_BITS = np.int64((1 << 32) - 1)


@inner
def is_in(mask: Int, lane: Int) -> Flag:
    """Whether a mask has a lane."""
    return mask >> np.uint32(lane) & np.uint32(1) != np.uint32(0)


@inner
def first_lane(mask: Int) -> Int:
    """The first lane of a mask, which has some."""
    lane = 0
    while not is_in(mask, lane):
        lane += 1
    return lane


@inner
def number_of_lane(at: Int, column: Int, row: Int, lane: Int, table: Array, codes: Array) -> Int:
    """A number of 32 bits of a lane, and what is added to it: two columns of the table.

    `codes` are the registers in words of 32 bits.
    """
    if table[at, column] < 0:
        return table[at, column + 1]
    return np.int64(codes[row, (table[at, column] >> 2) + lane]) + table[at, column + 1]


@inner
def is_uniform(at: Int, column: Int, row: Int, mask: Int, table: Array, codes: Array) -> Flag:
    """Whether lanes of a warp have the same number."""
    if table[at, column] < 0:
        return True
    place = table[at, column] >> 2
    first, differences = codes[row, place + first_lane(mask)], np.uint32(0)
    for lane in range(LANES):
        differences |= codes[row, place + lane] ^ first if is_in(mask, lane) else np.uint32(0)
    return differences == np.uint32(0)


@inner
def cell_of(at: Int, row: Int, lane: Int, table: Array, codes: Array, blocks: Array, context: Array) -> Int:
    """The place of a lane's mbarrier among the words of shared memory; -1 where there is none."""
    address = number_of_lane(at, ADDRESS, row, lane, table, codes) & ADDRESS_BITS
    if address % OBJECT_BYTES or address < SHARED_START or address + OBJECT_BYTES > context[SHARED_END]:
        return np.int64(-1)
    return (blocks[row] * context[SHARED_STRIDE] + address) // OBJECT_BYTES


@inner
def awaited_cell(
    at: Int, row: Int, mask: Int, table: Array, codes: Array, blocks: Array, context: Array, live: Array,
    expired: Array,
) -> Int:  # fmt: skip
    """The mbarrier that lanes of a warp wait for; -1 where they differ, where there is none, or time is over."""
    if not is_uniform(at, ADDRESS, row, mask, table, codes) or not is_uniform(at, NUMBER, row, mask, table, codes):
        return np.int64(-1)
    is_late = False
    for lane in range(LANES):
        is_late |= expired[row, lane] and is_in(mask, lane)
    cell = cell_of(at, row, first_lane(mask), table, codes, blocks, context)
    return np.int64(-1) if is_late or cell < 0 or not live[cell] else cell


@inner
def is_over(at: Int, row: Int, mask: Int, cell: Int, table: Array, codes: Array, words: Array) -> Flag:
    """Whether the phase is over that lanes of a warp wait for."""
    number = number_of_lane(at, NUMBER, row, first_lane(mask), table, codes)
    return (np.int64(words[cell]) < 0) != (number & 1 != 0)


@inner
def count_access(at: Int, lanes: Int, context: Array, step_written: Array, step_wavefronts: Array) -> None:
    """Count what lanes of a warp write to one mbarrier: their bytes, and one wavefront."""
    context[WRITTEN] += OBJECT_BYTES * lanes
    step_written[at] += OBJECT_BYTES * lanes
    context[PASSES] += 1
    step_wavefronts[at] += 1


@inner
def find_waits(
    at: Int, table: Array, state: Array, codes: Array, lists: Array, blocks: Array, context: Array, words: Array,
    live: Array, expired: Array, undo: Array,
) -> Flag:  # fmt: skip
    """Find the mbarriers that warps wait for, into `undo`, and how many of them go on; False where Python has to.

    The first row of `undo` gets the place of each, the second whether its phase is over.
    """
    masks, ready = lists[2].view(np.uint32), 0
    for i in range(state[WARP_COUNT]):
        row, mask = lists[1, i], masks[i]
        cell = awaited_cell(at, row, mask, table, codes, blocks, context, live, expired)
        if cell < 0:
            return False
        undo[0, i], undo[1, i] = cell, is_over(at, row, mask, cell, table, codes, words)
        ready += undo[1, i]
    state[RUN_WARPS] = ready
    return True


@inner
def end_waits(
    at: Int, table: Array, state: Array, registers: Array, lists: Array, blocks: Array, context: Array,
    writers: Array, undo: Array, step_written: Array, step_wavefronts: Array,
) -> None:  # fmt: skip
    """Answer warps whose phases are over: what their blocks store from now on is ordered behind what they stored."""
    masks, last = lists[2].view(np.uint32), np.int64(-1)
    for i in range(state[WARP_COUNT]):
        row, lanes = lists[1, i], 0
        for lane in range(LANES):
            if is_in(masks[i], lane):
                lanes += 1
                if undo[1, i]:
                    registers[row, table[at, RESULT] + lane] = 1
        count_access(at, lanes, context, step_written, step_wavefronts)
        if undo[1, i] and blocks[row] != last:
            last = blocks[row]
            for other in range(last * context[BLOCK_WARPS], (last + 1) * context[BLOCK_WARPS]):
                writers[other] += NEXT_INTERVAL


@inner
def put_to_sleep(
    at: Int, state: Array, flags: Array, numbers: Array, lists: Array, awaited: Array, undo: Array
) -> Flag:
    """Let warps sleep until their phases are over, and the others go on; False where none has to."""
    if state[RUN_WARPS] == state[WARP_COUNT]:
        return False
    masks = lists[2].view(np.uint32)
    for i in range(state[WARP_COUNT]):
        row = lists[1, i]
        set_pc(row, masks[i], at + undo[1, i], numbers[0])
        for lane in range(LANES):
            if is_in(masks[i], lane) and not undo[1, i]:
                flags[1, row, lane] = True
                awaited[row, lane] = undo[0, i]
    return True


@inner
def word_after(word: Int, arrivals: Int, owed: Int) -> Int:
    """An mbarrier after arrivals and bytes that are owed; the word itself where they are wrong."""
    pending, count = word & ARRIVALS, word >> COUNT_SHIFT & ARRIVALS
    tx = word >> TX_SHIFT & TX_MASK
    tx = tx - (TX_MODULUS if tx >= TX_SIGN else np.int64(0)) + owed
    if abs(tx) > TX_LIMIT or arrivals > pending or arrivals < 1:
        return word
    pending -= arrivals
    parity = word & PARITY
    if pending == 0 and tx == 0:
        parity ^= PARITY
        pending = count
    return pending | count << COUNT_SHIFT | (tx & TX_MASK) << TX_SHIFT | parity


@inner
def arrive_lanes(
    at: Int, table: Array, state: Array, registers: Array, codes: Array, lists: Array, blocks: Array, context: Array,
    words: Array, live: Array, undo: Array,
) -> Int:  # fmt: skip
    """Let lanes arrive one after the other: how many did, or -1, with nothing changed, where Python has to.

    `undo` gets the place of each mbarrier, its word before, and whether its phase ended.
    """
    masks, count = lists[2].view(np.uint32), 0
    is_right = True
    for i in range(state[WARP_COUNT]):
        row, first = lists[1, i], np.int64(-1)
        mask = guarded_mask(registers, row, masks[i], table[at, GUARD], table[at, NEGATED])
        for lane in range(LANES):
            if not is_right or not is_in(mask, lane):
                continue
            cell = cell_of(at, row, lane, table, codes, blocks, context)
            first = cell if first < 0 else first
            if cell < 0 or cell != first or not live[cell]:
                is_right = False
                continue
            number = number_of_lane(at, NUMBER, row, lane, table, codes)
            arrivals, owed = (np.int64(1), number) if table[at, IS_TRANSACTION] else (number, np.int64(0))
            word = np.int64(words[cell])
            after = word_after(word, arrivals, owed)
            undo[0, count], undo[1, count], undo[2, count] = cell, word, (after ^ word) < 0
            words[cell] = np.uint64(after)
            count += 1
            is_right = after != word
    if is_right:
        return count
    for i in range(count - 1, -1, -1):
        words[undo[0, i]] = np.uint64(undo[1, i])
    return -1


@inner
def end_arrivals(
    at: Int, count: Int, table: Array, state: Array, registers: Array, flags: Array, numbers: Array, lists: Array,
    context: Array, words: Array, written: Array, awaited: Array, undo: Array, step_written: Array,
    step_wavefronts: Array,
) -> None:  # fmt: skip
    """Note what arrivals have written, and wake lanes that sleep for phases which they ended."""
    for i in range(count):
        written[undo[0, i]] = words[undo[0, i]]
        if undo[2, i]:
            wake(undo[0, i], context, awaited, flags, numbers, lists)
    masks = lists[2].view(np.uint32)
    for i in range(state[WARP_COUNT]):
        mask = guarded_mask(registers, lists[1, i], masks[i], table[at, GUARD], table[at, NEGATED])
        lanes = 0
        for lane in range(LANES):
            lanes += is_in(mask, lane)
        if lanes:
            count_access(at, lanes, context, step_written, step_wavefronts)


@inner
def wake(cell: Int, context: Array, awaited: Array, flags: Array, numbers: Array, lists: Array) -> None:
    """Let the lanes that sleep for an mbarrier look at it again: they are of its cluster."""
    block = cell * OBJECT_BYTES // context[SHARED_STRIDE]
    first = block * context[BLOCK_WARPS] // context[CLUSTER_WARPS] * context[CLUSTER_WARPS]
    for row in range(first, first + context[CLUSTER_WARPS]):
        sleepers = 0
        for lane in range(LANES):
            sleepers += awaited[row, lane] == cell
        if not sleepers:
            continue
        for lane in range(LANES):
            if awaited[row, lane] == cell:
                awaited[row, lane] = NOT_ASLEEP
                flags[1, row, lane] = False
        lists[0, row] = priority_of(row, flags, numbers)


@inner
def run_mbarrier(
    at: Int, table: Array, state: Array, context: Array, registers: Array, codes: Array, flags: Array, numbers: Array,
    lists: Array, blocks: Array, writers: Array, words: Array, written: Array, live: Array, awaited: Array,
    expired: Array, undo: Array, step_written: Array, step_wavefronts: Array,
) -> Flag:  # fmt: skip
    """Run a wait or an arrival; False, with nothing changed, where Python has to."""
    if table[at, KIND] == WAITS:
        if not find_waits(at, table, state, codes, lists, blocks, context, words, live, expired, undo):
            return False
        end_waits(at, table, state, registers, lists, blocks, context, writers, undo, step_written, step_wavefronts)
        return True
    count = arrive_lanes(at, table, state, registers, codes, lists, blocks, context, words, live, undo)
    if count < 0:
        return False
    state[PROGRESS] += count > 0
    end_arrivals(
        at, count, table, state, registers, flags, numbers, lists, context, words, written, awaited, undo,
        step_written, step_wavefronts,
    )  # fmt: skip
    return True
