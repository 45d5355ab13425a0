"""Which lanes run next, compiled: the readable engine's rules (`ptx.wave`) without Python, and without the GIL.

`drive` gives turn after turn to the lanes that are furthest behind, and calls the native code of their steps. Where a
step has none, or needs what only Python knows, it stops and says so; Python runs that step and comes back. While all
lanes that live are at one place, which is most of the time, nobody's place is written down.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import types

from warpfrag.arithmetic.kernels.jit import Array, Flag, Int, entry, inner
from warpfrag.arithmetic.kernels.llvm import typed_intrinsic
from warpfrag.ptx.compiler import context as context_words
from warpfrag.ptx.compiler import scheduler_state
from warpfrag.ptx.compiler.context import FAULT_STEP, NO_FAULT
from warpfrag.ptx.compiler.scheduler_state import (
    ALL,
    AT,
    BARRIER,
    BLOCK_END,
    BRANCH,
    BUDGET,
    CHANGED,
    COUNT,
    END,
    FAULT,
    FUNCTION,
    GUARD,
    IDLE,
    IN_TURN,
    KIND,
    LATE,
    LEAVE,
    LIMIT,
    MEETINGS,
    NEGATED,
    PAUSE,
    PROGRESS,
    SEGMENT,
    STATUS,
    STEP,
    STORES,
    TARGET,
    TOGETHER,
    TOTAL,
    TURN_END,
    WARP_WAIT,
    WEIGHT,
    WHOLE_SEGMENT,
)

if TYPE_CHECKING:
    from collections.abc import Callable

FAR = np.int64(1 << 62)
PLACES = np.int64(1 << 32)
QUANTUM = np.int64(4096)  # turns after which lanes that go round and round let others by


@typed_intrinsic
def call(_typing_context: Any, _function: Any, _context: Any, _rows: Any, _masks: Any, _count: Any) -> tuple[Any, Any]:  # noqa: ANN401 (types of numba)
    """Call native code by its address."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        word = ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [word] * 4)
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    generator: Callable[..., Any] = generate
    return types.void(*[types.int64] * 5), generator


@inner
def next_of(row: Int, flags: Array, numbers: Array) -> Int:
    """Where a warp goes on, before it how long its lanes have been going round; FAR if none can."""
    best = FAR
    for lane in range(32):
        if flags[0, row, lane] and not flags[1, row, lane]:
            best = min(best, (numbers[1, row, lane] // QUANTUM) * PLACES + numbers[0, row, lane])
    return best


@inner
def lanes_of(flags: Array, row: Int) -> Int:
    """Flags of a warp as bits."""
    found = np.uint32(0)
    for lane in range(32):
        found |= np.uint32(flags[row, lane]) << np.uint32(lane)
    return found


@inner
def put(row: Int, mask: Int, value: Int, place: Array) -> None:
    """Send lanes of a warp to a place."""
    for lane in range(32):
        if mask >> np.uint32(lane) & np.uint32(1):
            place[row, lane] = value


@inner
def choose(code: Array, state: Array, flags: Array, numbers: Array, lists: Array) -> Flag:
    """Find the lanes that are furthest behind; False if there are none."""
    nearest, rows, masks = lists[0], lists[1], lists[2].view(np.uint32)
    alive, waiting, place, turns = flags[0], flags[1], numbers[0], numbers[1]
    best = FAR
    for row in range(nearest.size):
        best = min(best, nearest[row])
    if best == FAR:
        return False
    start = best % PLACES
    count, everyone = 0, True
    for row in range(nearest.size):
        if nearest[row] != FAR and nearest[row] % PLACES == start:
            mask = np.uint32(0)
            for lane in range(32):
                here = alive[row, lane] and not waiting[row, lane] and place[row, lane] == start
                mask |= np.uint32(here) << np.uint32(lane)
            rows[count] = row
            masks[count] = mask
            everyone = everyone and mask == lanes_of(alive, row)
            count += 1
        else:
            everyone = everyone and lanes_of(alive, row) == np.uint32(0)
    state[AT], state[COUNT], state[TOGETHER], state[IN_TURN] = start, count, everyone, 1
    state[TURN_END] = code[start, BLOCK_END]
    if everyone:
        state[LATE] += code[start, WEIGHT]
    else:
        for i in range(count):
            for lane in range(32):
                if masks[i] >> np.uint32(lane) & np.uint32(1):
                    turns[rows[i], lane] += code[start, WEIGHT]
    return True


@inner
def end_turn(state: Array, flags: Array, numbers: Array, lists: Array) -> None:
    """The lanes that ran have their places: where their warps go on."""
    if state[TOGETHER]:
        for row in range(lists.shape[1]):
            for lane in range(32):
                numbers[1, row, lane] += state[LATE]
        state[LATE] = state[TOGETHER] = 0
    for i in range(state[COUNT]):
        row = lists[1, i]
        lists[0, row] = next_of(row, flags, numbers)
    state[IN_TURN] = 0


@inner
def go_on(target: Int, code: Array, state: Array, flags: Array, numbers: Array, lists: Array) -> None:
    """All lanes of this turn go to one place: where everybody is with them, at once."""
    if state[TOGETHER]:
        state[AT] = target
        state[TURN_END] = code[target, BLOCK_END]
        state[LATE] += code[target, WEIGHT]
        return
    masks = lists[2].view(np.uint32)
    for i in range(state[COUNT]):
        put(lists[1, i], masks[i], target, numbers[0])
    end_turn(state, flags, numbers, lists)


@inner
def leave(state: Array, flags: Array, numbers: Array, lists: Array) -> None:
    """These lanes are done."""
    masks = lists[2].view(np.uint32)
    for i in range(state[COUNT]):
        row = lists[1, i]
        put(row, masks[i], state[AT], numbers[0])
        for lane in range(32):
            if masks[i] >> np.uint32(lane) & np.uint32(1):
                flags[0, row, lane] = False
    end_turn(state, flags, numbers, lists)


@inner
def any_waits(state: Array, waiting: Array, lists: Array) -> Flag:
    """Whether lanes of these warps wait for others."""
    found = np.uint32(0)
    for i in range(state[COUNT]):
        found |= lanes_of(waiting, lists[1, i])
    return found != np.uint32(0)


@inner
def is_whole(state: Array, lists: Array) -> Flag:
    """Whether all lanes of the warps are here."""
    masks, found = lists[2].view(np.uint32), ALL
    for i in range(state[COUNT]):
        found &= masks[i]
    return found == ALL


@inner
def blocks_are_whole(state: Array, alive: Array, blocks: Array, lists: Array) -> Flag:
    """Whether all that live in the blocks of these warps are here."""
    if state[TOGETHER]:
        return True
    rows, masks = lists[1], lists[2].view(np.uint32)
    index = 0
    for row in range(blocks.size):
        taking = index < state[COUNT] and rows[index] == row
        if taking and masks[index] != lanes_of(alive, row):
            return False
        index += taking
        if not taking and lanes_of(alive, row) != np.uint32(0):
            for i in range(state[COUNT]):
                if blocks[rows[i]] == blocks[row]:
                    return False
    return True


@inner
def taken(registers: Array, row: Int, mask: Int, offset: Int, negated: Int) -> Int:
    """The lanes of a warp that follow a branch."""
    if offset < 0:
        return mask
    found = np.uint32(0)
    for lane in range(32):
        found |= np.uint32(registers[row, offset + lane] != 0) << np.uint32(lane)
    return (~found if negated else found) & mask


@inner
def branch(at: Int, code: Array, state: Array, registers: Array, flags: Array, numbers: Array, lists: Array) -> None:
    """Lanes whose guard holds go to the target, the others on."""
    rows, masks, after = lists[1], lists[2].view(np.uint32), at + 1
    some, every = False, True
    for i in range(state[COUNT]):
        mask = taken(registers, rows[i], masks[i], code[at, GUARD], code[at, NEGATED])
        some, every = some or mask != np.uint32(0), every and mask == masks[i]
    if every or not some:
        go_on(code[at, TARGET] if some else after, code, state, flags, numbers, lists)
        return
    for i in range(state[COUNT]):
        put(rows[i], masks[i], after, numbers[0])
        mask = taken(registers, rows[i], masks[i], code[at, GUARD], code[at, NEGATED])
        put(rows[i], mask, code[at, TARGET], numbers[0])
    end_turn(state, flags, numbers, lists)


@inner
def can_run(kind: Int, state: Array, flags: Array, lists: Array, blocks: Array) -> Flag:
    """Whether a step needs no Python, for the lanes whose turn it is."""
    if kind in (SEGMENT, BRANCH):
        return True
    if kind in (WHOLE_SEGMENT, WARP_WAIT):
        return is_whole(state, lists)
    if kind == BARRIER:
        return state[MEETINGS] == 0 and blocks_are_whole(state, flags[0], blocks, lists)
    return kind == LEAVE and state[MEETINGS] == 0 and not any_waits(state, flags[1], lists)


@inner
def take_over(state: Array, flags: Array, numbers: Array, lists: Array) -> None:
    """Python has changed places: where every warp goes on."""
    for row in range(lists.shape[1]):
        for lane in range(32):
            numbers[1, row, lane] += state[LATE]
        lists[0, row] = next_of(row, flags, numbers)
    state[LATE] = state[TOGETHER] = state[CHANGED] = state[IN_TURN] = 0


def with_words(function: Callable[..., None]) -> Callable[..., None]:
    """Put a digest of the words into a function's name: numba keeps code by that name, and the words are part of it."""
    words = b"".join(Path(str(module.__file__)).read_bytes() for module in (context_words, scheduler_state))
    function.__name__ += f"_{hashlib.sha256(words).hexdigest()[:8]}"
    return function


@entry
@with_words
def drive(
    code: Array,
    state: Array,
    context: Array,
    registers: Array,
    flags: Array,
    numbers: Array,
    lists: Array,
    blocks: Array,
    runs: Array,
) -> None:
    """Run until Python is needed: `state[STATUS]` says for what.

    `flags` are who lives and who waits, `numbers` places and turns of every lane; `lists` where every warp goes on, and
    the warps and masks of this turn. `runs` counts how many warps ran the steps from each place on.
    """
    budget = state[TOTAL] + state[BUDGET]
    if state[CHANGED]:
        take_over(state, flags, numbers, lists)
    while True:
        if state[TOTAL] > budget:
            state[STATUS] = PAUSE
            return
        if not state[IN_TURN] and not choose(code, state, flags, numbers, lists):
            state[STATUS] = IDLE
            return
        at, count = state[AT], state[COUNT]
        if at == state[TURN_END]:
            go_on(at, code, state, flags, numbers, lists)
            continue
        kind, steps = code[at, KIND], code[at, END] - at
        if state[TOTAL] + steps * count > state[LIMIT] or not can_run(kind, state, flags, lists, blocks):
            state[STATUS] = STEP
            return
        runs[at] += count
        state[TOTAL] += steps * count
        state[AT] = code[at, END]
        state[PROGRESS] += code[at, STORES]
        if kind in (SEGMENT, WHOLE_SEGMENT):
            call(code[at, FUNCTION], context.ctypes.data, lists[1].ctypes.data, lists[2].ctypes.data, count)
            if context[FAULT_STEP] != NO_FAULT:
                state[STATUS] = FAULT
                return
        elif kind == BRANCH:
            branch(at, code, state, registers, flags, numbers, lists)
        elif kind == LEAVE:
            leave(state, flags, numbers, lists)
