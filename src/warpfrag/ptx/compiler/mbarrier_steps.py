"""mbarriers in the compiled scheduler: waits whose phase is over, and arrivals. The rest `mbarrier_batches` does.

What Python has to do is known before anything has changed: lanes that have to sleep, addresses that differ in a warp,
mbarriers that are not initialised, counts that are wrong. The fields of an mbarrier, and what a wait orders, are those
of `interpreter.mbarriers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from warpfrag.arithmetic.kernels.jit import Array, Flag, Int, inner
from warpfrag.core.coordinates import LANES
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
from warpfrag.ptx.compiler.context import SHARED_END, SHARED_STRIDE, WAVEFRONTS, WRITTEN_BYTES
from warpfrag.ptx.compiler.lane_masks import guarded_mask, priority_of
from warpfrag.ptx.compiler.scheduler_state import (
    ADDRESS,
    ALL_LANES,
    ARRIVES,
    GUARD,
    IS_TRANSACTION,
    KIND,
    NEGATED,
    NUMBER,
    NUMBER_VALUE,
    OFFSET,
    PROGRESS,
    RESULT,
    WAITS,
    WARP_COUNT,
)
from warpfrag.ptx.interpreter.mbarriers import NOT_ASLEEP
from warpfrag.ptx.interpreter.store_tags import INTERVAL_SHIFT
from warpfrag.ptx.program.actions import MemoryBarrier
from warpfrag.ptx.program.program import Discard, Immediate, MemoryOperand, Register
from warpfrag.ptx.program.state_spaces import SHARED_START, SPACES
from warpfrag.ptx.program.types import TYPES

if TYPE_CHECKING:
    from warpfrag.ptx.compiler.warp_code import RegisterLayout
    from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand

NEXT_INTERVAL = np.uint64(1 << INTERVAL_SHIFT)
OBJECT_BYTES = 8
WRITTEN, PASSES = WRITTEN_BYTES + SPACES.index("shared"), WAVEFRONTS + SPACES.index("shared")
ADDRESS_BITS = np.int64((1 << 32) - 1)
WORD_BITS = 32  # of a register with an address or a number


class OperandPlace(NamedTuple):
    """Where the scheduler finds a number: the byte offset of a register's lanes (-1 for none), and what is added."""

    register: int
    added: int


def mbarrier_columns(step: DecodedInstruction, layout: RegisterLayout) -> dict[int, int] | None:
    """The columns of a step's row in the table, by their number, with its kind; None where Python has to run it."""
    action = step.action
    if not isinstance(action, MemoryBarrier) or action.space != "shared":
        return None
    address = _place(step.sources[0], layout)
    number = _place(step.sources[1], layout) if len(step.sources) > 1 else OperandPlace(-1, 1)
    if address is None or number is None:
        return None
    columns = {ADDRESS: address.register, OFFSET: address.added, NUMBER: number.register, NUMBER_VALUE: number.added}
    if action.name == "try_wait" and action.parity and step.guard is None:
        result = step.results[0]
        if not isinstance(result, Register) or result.bits != 1:
            return None
        return columns | {0: WAITS, RESULT: layout.offsets[result.index]}
    if action.name != "arrive" or not all(isinstance(result, Discard) for result in step.results):
        return None
    guard = -1 if step.guard is None else layout.offsets[step.guard.index]
    negated = step.guard is not None and step.guard.negated
    return columns | {0: ARRIVES, GUARD: guard, NEGATED: int(negated), IS_TRANSACTION: int(action.transaction)}


def _place(operand: PtxOperand, layout: RegisterLayout) -> OperandPlace | None:
    """Where the numbers of an operand lie: a register of 32 bits, a constant, or both."""
    if isinstance(operand, Immediate):
        return OperandPlace(-1, int(operand.code(TYPES["b64"])))
    base, added = (operand.base, operand.offset) if isinstance(operand, MemoryOperand) else (operand, 0)
    if base is None:
        return OperandPlace(-1, added)
    if not isinstance(base, Register) or base.bits != WORD_BITS:
        return None
    return OperandPlace(layout.offsets[base.index], added)


@inner
def number_of_lane(at: Int, column: Int, row: Int, lane: Int, table: Array, registers: Array) -> Int:
    """A number of 32 bits of a lane, and what is added to it: two columns of the table."""
    if table[at, column] < 0:
        return table[at, column + 1]
    words = registers[row].view(np.uint32)
    return np.int64(words[(table[at, column] >> 2) + lane]) + table[at, column + 1]


@inner
def cell_of(at: Int, row: Int, lane: Int, table: Array, registers: Array, blocks: Array, context: Array) -> Int:
    """The place of a lane's mbarrier among the words of shared memory; -1 where there is none."""
    address = number_of_lane(at, ADDRESS, row, lane, table, registers) & ADDRESS_BITS
    if address % OBJECT_BYTES or address < SHARED_START or address + OBJECT_BYTES > context[SHARED_END]:
        return np.int64(-1)
    return (blocks[row] * context[SHARED_STRIDE] + address) // OBJECT_BYTES


@inner
def are_over(
    at: Int, table: Array, state: Array, registers: Array, lists: Array, blocks: Array, context: Array, words: Array,
    live: Array,
) -> Flag:  # fmt: skip
    """Whether the phases that whole warps wait for are over, each of one mbarrier."""
    masks = lists[2].view(np.uint32)
    for i in range(state[WARP_COUNT]):
        row = lists[1, i]
        cell = cell_of(at, row, 0, table, registers, blocks, context)
        number = number_of_lane(at, NUMBER, row, 0, table, registers)
        if masks[i] != ALL_LANES or cell < 0 or not live[cell]:
            return False
        if (np.int64(words[cell]) < 0) == (number & 1 != 0):
            return False
        for lane in range(1, LANES):
            if cell_of(at, row, lane, table, registers, blocks, context) != cell:
                return False
            if number_of_lane(at, NUMBER, row, lane, table, registers) != number:
                return False
    return True


@inner
def count_access(at: Int, lanes: Int, context: Array, step_written: Array, step_wavefronts: Array) -> None:
    """Count what lanes of a warp write to one mbarrier: their bytes, and one wavefront."""
    context[WRITTEN] += OBJECT_BYTES * lanes
    step_written[at] += OBJECT_BYTES * lanes
    context[PASSES] += 1
    step_wavefronts[at] += 1


@inner
def end_waits(
    at: Int, table: Array, state: Array, registers: Array, lists: Array, blocks: Array, context: Array,
    writers: Array, expired: Array, step_written: Array, step_wavefronts: Array,
) -> None:  # fmt: skip
    """Let warps go on whose phases are over: what their blocks store from now on is ordered behind what they stored."""
    for i in range(state[WARP_COUNT]):
        row = lists[1, i]
        for lane in range(LANES):
            registers[row, table[at, RESULT] + lane] = 1
            expired[row, lane] = False
        count_access(at, LANES, context, step_written, step_wavefronts)
        if i == 0 or blocks[row] != blocks[lists[1, i - 1]]:
            for other in range(blocks.size):
                if blocks[other] == blocks[row]:
                    writers[other] += NEXT_INTERVAL


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
    at: Int, table: Array, state: Array, registers: Array, lists: Array, blocks: Array, context: Array, words: Array,
    live: Array, undo: Array,
) -> Int:  # fmt: skip
    """Let lanes arrive one after the other: how many did, or -1, with nothing changed, where Python has to.

    `undo` gets the place of each mbarrier and its word before.
    """
    masks, count = lists[2].view(np.uint32), 0
    is_right = True
    for i in range(state[WARP_COUNT]):
        row, first = lists[1, i], np.int64(-1)
        mask = guarded_mask(registers, row, masks[i], table[at, GUARD], table[at, NEGATED])
        for lane in range(LANES):
            if not is_right or not mask >> np.uint32(lane) & np.uint32(1):
                continue
            cell = cell_of(at, row, lane, table, registers, blocks, context)
            first = cell if first < 0 else first
            if cell < 0 or cell != first or not live[cell]:
                is_right = False
                continue
            number = number_of_lane(at, NUMBER, row, lane, table, registers)
            arrivals, owed = (np.int64(1), number) if table[at, IS_TRANSACTION] else (number, np.int64(0))
            word = np.int64(words[cell])
            after = word_after(word, arrivals, owed)
            undo[0, count], undo[1, count] = cell, word
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
        cell = undo[0, i]
        written[cell] = words[cell]
        after = words[cell]
        for later in range(i + 1, count):  # the word that this arrival left, which the next one found
            if undo[0, later] == cell:
                after = np.uint64(undo[1, later])
                break
        if (np.int64(after) ^ undo[1, i]) < 0:
            wake(cell, awaited, flags, numbers, lists)
    masks = lists[2].view(np.uint32)
    for i in range(state[WARP_COUNT]):
        mask = guarded_mask(registers, lists[1, i], masks[i], table[at, GUARD], table[at, NEGATED])
        lanes = 0
        for lane in range(LANES):
            lanes += np.int64(mask >> np.uint32(lane) & np.uint32(1))
        if lanes:
            count_access(at, lanes, context, step_written, step_wavefronts)


@inner
def wake(cell: Int, awaited: Array, flags: Array, numbers: Array, lists: Array) -> None:
    """Let the lanes that sleep for an mbarrier look at it again."""
    for row in range(awaited.shape[0]):
        is_any = False
        for lane in range(LANES):
            if awaited[row, lane] == cell:
                awaited[row, lane] = NOT_ASLEEP
                flags[1, row, lane] = False
                is_any = True
        if is_any:
            lists[0, row] = priority_of(row, flags, numbers)


@inner
def run_mbarrier(
    at: Int, table: Array, state: Array, context: Array, registers: Array, flags: Array, numbers: Array, lists: Array,
    blocks: Array, writers: Array, words: Array, written: Array, live: Array, awaited: Array, expired: Array,
    undo: Array, step_written: Array, step_wavefronts: Array,
) -> Flag:  # fmt: skip
    """Run a wait or an arrival; False, with nothing changed, where Python has to."""
    if table[at, KIND] == WAITS:
        if not are_over(at, table, state, registers, lists, blocks, context, words, live):
            return False
        end_waits(at, table, state, registers, lists, blocks, context, writers, expired, step_written, step_wavefronts)
        return True
    count = arrive_lanes(at, table, state, registers, lists, blocks, context, words, live, undo)
    if count < 0:
        return False
    state[PROGRESS] += count > 0
    end_arrivals(
        at, count, table, state, registers, flags, numbers, lists, context, words, written, awaited, undo,
        step_written, step_wavefronts,
    )  # fmt: skip
    return True
