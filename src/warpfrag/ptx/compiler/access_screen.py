"""The function that compiled code tells of its accesses while a launch is screened, and what it doubts.

Bytes that nobody wrote: one of shared or local memory, or of an array that the caller marks, is loaded without a mark.

Accesses that nothing orders: two threads access a cell, one of them writes, and they are of different blocks, or of one
block with no barrier between. All that a cell's readers have in common is kept, so that none is forgotten: one thread,
several of a block in one interval, or everybody. What cp.async writes is doubted until its thread has waited for the
group, and by other threads until a barrier came after the wait; what it reads may not be written any more.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from llvmlite import ir
from numba import cfunc, types

from warpfrag.arithmetic.kernels.jit import Array, Flag, Int, entry, inner, say_uncached
from warpfrag.arithmetic.kernels.llvm import typed_intrinsic
from warpfrag.core.coordinates import LANES
from warpfrag.ptx.compiler import access_hook, context, screen_state
from warpfrag.ptx.compiler.access_hook import COPY_GROUPS, LOCAL_BUFFER, SHARED_BUFFER
from warpfrag.ptx.compiler.context import ALLOCATION_WORDS, ALLOCATIONS, SCREEN_STATE, SUSPICIONS, WRITERS
from warpfrag.ptx.compiler.screen_state import (
    BLOCK_BIT,
    CELL_BYTES,
    CELL_SHIFT,
    COPIES,
    COPY_STEPS,
    COPY_THREAD_BITS,
    COPY_WORDS,
    DONE_INTERVAL,
    EVERYBODY,
    GLOBAL_ACCESSES,
    GLOBAL_MARKS,
    GROUPS,
    GROUPS_DONE,
    GROUPS_DONE_BEFORE,
    INTERVAL_BIT,
    LOCAL_MARKS,
    SEVERAL,
    SHARED_ACCESSES,
    SHARED_MARKS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numba.core.typing.templates import Signature

    Lowering = tuple[Signature, Callable[..., ir.Value]]

WORD_BYTES = 8
WORD = ir.IntType(64)
LOW_BIT, WORD_SIZE, CELL_SIZE, NO_TAG = np.int64(1), np.int64(WORD_BYTES), np.int64(CELL_BYTES), np.int64(0)
ALLOCATION_BYTES = np.int64(WORD_BYTES * ALLOCATION_WORDS)
COPY_BYTES = np.int64(WORD_BYTES * COPY_WORDS)
INTERVAL, BLOCK, THREAD_BITS = np.int64(INTERVAL_BIT), np.int64(BLOCK_BIT), np.int64(COPY_THREAD_BITS)
FLAG, ALL, PLAIN_TAG = np.int64(SEVERAL), np.int64(EVERYBODY), np.int64(~SEVERAL)
THREAD_MASK = np.int64((1 << COPY_THREAD_BITS) - 1)
TAG_BYTES = np.int64(15)


@typed_intrinsic
def load_word(_typing_context: object, _address: object) -> Lowering:
    """The 64 bits at an address."""

    def emit(_context: object, builder: ir.IRBuilder, _signature: Signature, arguments: Sequence[ir.Value]) -> ir.Value:
        return builder.load(builder.inttoptr(arguments[0], WORD.as_pointer()), align=1)

    return types.int64(types.int64), emit


@typed_intrinsic
def store_word(_typing_context: object, _address: object, _word: object) -> Lowering:
    """Write 64 bits to an address."""

    def emit(_context: object, builder: ir.IRBuilder, _signature: Signature, arguments: Sequence[ir.Value]) -> ir.Value:
        builder.store(arguments[1], builder.inttoptr(arguments[0], WORD.as_pointer()), align=1)
        return ir.Constant(ir.IntType(8).as_pointer(), None)  # numba's value of void

    return types.void(types.int64, types.int64), emit


@inner
def word_of(table: Int, index: Int) -> Int:
    """A word of a table, by the address of that."""
    return load_word(table + np.int64(index) * WORD_SIZE)


@inner
def put_word(table: Int, index: Int, word: Int) -> None:
    """Set a word of a table."""
    store_word(table + np.int64(index) * WORD_SIZE, word)


@inner
def marks_of(words: Int, state: Int, buffer: Int) -> Int:
    """The address of the marks of a buffer; 0 where it has none."""
    if buffer == SHARED_BUFFER:
        return word_of(state, SHARED_MARKS)
    if buffer == LOCAL_BUFFER:
        return word_of(state, LOCAL_MARKS)
    table = word_of(state, GLOBAL_MARKS)
    return NO_TAG if table == 0 else word_of(table, (buffer - word_of(words, ALLOCATIONS)) // ALLOCATION_BYTES)


@inner
def accesses_of(words: Int, state: Int, buffer: Int) -> Int:
    """The address of the accesses of a buffer; 0 where threads cannot meet."""
    if buffer == SHARED_BUFFER:
        return word_of(state, SHARED_ACCESSES)
    table = word_of(state, GLOBAL_ACCESSES)
    if buffer == LOCAL_BUFFER or table == 0:
        return NO_TAG
    return word_of(table, (buffer - word_of(words, ALLOCATIONS)) // ALLOCATION_BYTES)


@inner
def follow_marks(at: Int, size: Int, is_store: Flag) -> Flag:
    """Mark what a lane stores; whether it loads a byte without a mark."""
    is_wrong = False
    while size > 0:
        bits = np.int64(-1) if size >= WORD_SIZE else (LOW_BIT << (np.int64(8) * size)) - LOW_BIT
        word = load_word(at)
        if is_store:
            store_word(at, word | bits)
        else:
            is_wrong |= word & bits != bits
        at += WORD_SIZE
        size -= WORD_SIZE
    return is_wrong


@inner
def is_copy_pending(copies: Int, tag: Int, thread: Int, mine: Int) -> Flag:
    """Whether nothing orders an access of a thread behind a copy of cp.async."""
    owner, group = tag & THREAD_MASK, (tag & PLAIN_TAG) >> THREAD_BITS
    own = copies + owner * COPY_BYTES
    done = word_of(own, GROUPS_DONE)
    if owner != thread and word_of(own, DONE_INTERVAL) == mine >> INTERVAL:
        done = word_of(own, GROUPS_DONE_BEFORE)
    return group >= done


@inner
def follow_order(accesses: Int, first: Int, last: Int, mine: Int, thread: Int, is_store: Flag, copies: Int) -> Flag:
    """Note what a thread does to some cells; whether nothing orders it behind what others did. `copies` for cp.async.

    A tag differs from one's own (`mine`) at the bit of the block in another block, at that of the interval behind a
    barrier, and below in another thread.
    """
    is_wrong = False
    for cell in range(first, last + LOW_BIT):
        at = accesses + np.int64(cell) * CELL_SIZE
        written, read = word_of(at, 0), word_of(at, 1)
        if written < 0:
            is_wrong |= is_copy_pending(copies, written, thread, mine)
        elif written not in (NO_TAG, mine):
            difference = written ^ mine
            is_wrong |= difference >> BLOCK != 0 or difference >> INTERVAL == 0
        difference = (read & PLAIN_TAG) ^ mine
        if is_store:
            if read not in (NO_TAG, mine):
                is_wrong |= read == ALL or difference >> BLOCK != 0 or difference >> INTERVAL == 0
            put_word(at, 0, mine)
        elif read == NO_TAG:
            put_word(at, 1, mine)
        elif read not in (ALL, mine):
            if difference >> BLOCK != 0:
                put_word(at, 1, ALL)
            elif difference >> INTERVAL != 0:
                put_word(at, 1, mine)
            elif difference != 0:
                put_word(at, 1, read | FLAG)
    return is_wrong


@inner
def note_copy(accesses: Int, first: Int, last: Int, thread: Int, is_store: Flag, copies: Int) -> None:
    """Note that cp.async of a thread reads or writes cells: until it is waited for, or for ever."""
    group = word_of(copies + thread * COPY_BYTES, GROUPS)
    for cell in range(first, last + LOW_BIT):
        at = accesses + np.int64(cell) * CELL_SIZE
        if is_store:
            put_word(at, 0, FLAG | group << THREAD_BITS | thread)
        else:
            put_word(at, 1, ALL)


@inner
def follow_groups(copies: Int, row: Int, mask: Int, left: Int, closes: Flag, mine: Int) -> None:
    """Lanes close a group of copies, or wait until at most `left` are not done."""
    for lane in range(LANES):
        if mask >> np.int64(lane) & LOW_BIT:
            own = copies + (row * np.int64(LANES) + np.int64(lane)) * COPY_BYTES
            groups = word_of(own, GROUPS)
            if closes:
                put_word(own, GROUPS, groups + LOW_BIT)
            elif groups - left > word_of(own, GROUPS_DONE):
                if word_of(own, DONE_INTERVAL) != mine >> INTERVAL:
                    put_word(own, GROUPS_DONE_BEFORE, word_of(own, GROUPS_DONE))
                    put_word(own, DONE_INTERVAL, mine >> INTERVAL)
                put_word(own, GROUPS_DONE, groups - left)


@inner
def screen_lane(
    words: Int, row: Int, lane: Int, offset: Int, buffer: Int, size: Int, is_store: Flag, is_copy: Flag
) -> Flag:
    """Whether an access of a lane is doubted."""
    state = word_of(words, SCREEN_STATE)
    is_wrong = False
    marks = marks_of(words, state, buffer)
    if marks != 0:
        is_wrong |= follow_marks(marks + offset, size, is_store)
    accesses = accesses_of(words, state, buffer)
    if accesses != 0:
        shift, copies = word_of(state, CELL_SHIFT), word_of(state, COPIES)
        first, last = offset >> shift, (offset + size - LOW_BIT) >> shift
        mine = (word_of(word_of(words, WRITERS), row) & ~TAG_BYTES) << LOW_BIT | lane
        thread = row * np.int64(LANES) + lane
        is_wrong |= follow_order(accesses, first, last, mine, thread, is_store, copies)
        if is_copy:
            note_copy(accesses, first, last, thread, is_store, copies)
    return is_wrong


@inner
def add_doubt(words: Int, is_wrong: Flag) -> None:
    """Count a doubt in the context."""
    if is_wrong:
        put_word(words, SUSPICIONS, word_of(words, SUSPICIONS) | LOW_BIT)


def screen_access(
    words: Int,
    row: Int,
    mask: Int,
    places: Int,
    base: Int,
    buffer: Int,
    size: Int,
    is_store: Int,
    step: Int,
) -> None:
    """What `access_hook` calls: `words` is the context; doubts go there."""
    if buffer == COPY_GROUPS:
        copies = word_of(word_of(words, SCREEN_STATE), COPIES)
        if copies != 0:
            mine = (word_of(word_of(words, WRITERS), row) & ~TAG_BYTES) << LOW_BIT
            follow_groups(copies, row, mask, size, is_store != 0, mine)
        return
    is_wrong, is_copy = False, False
    copy_steps = word_of(word_of(words, SCREEN_STATE), COPY_STEPS)
    if copy_steps != 0:
        is_copy = load_word(copy_steps + step) & LOW_BIT != 0
    for lane in range(LANES):
        if mask >> np.int64(lane) & LOW_BIT:
            offset = word_of(places, lane) + base
            is_wrong |= screen_lane(words, row, np.int64(lane), offset, buffer, size, is_store != 0, is_copy)
    add_doubt(words, is_wrong)


def named_after_constants(function: Callable[..., None]) -> Callable[..., None]:
    """Add a digest of the constants to a function's name: numba caches code by that name, and they are part of it."""
    texts = b"".join(Path(str(module.__file__)).read_bytes() for module in (access_hook, context, screen_state))
    function.__name__ += f"_{hashlib.sha256(texts).hexdigest()[:8]}"
    function.__qualname__ = function.__name__
    return function


@entry
@named_after_constants
def screen_accesses(
    words: Int, threads: Array, offsets: Array, buffer: Int, size: Int, is_store: Flag, is_copy: Flag
) -> None:
    """The same for accesses of the interpreter: thread after thread, each with its offset."""
    is_wrong = False
    for index in range(threads.size):
        row, lane = threads[index] // np.int64(LANES), threads[index] % np.int64(LANES)
        is_wrong |= screen_lane(words, row, lane, offsets[index], buffer, size, is_store, is_copy)
    add_doubt(words, is_wrong)


@cache
def screen_address() -> int:
    """The address of `screen_access` in machine code, compiled or from numba's cache."""
    signature, function = types.void(*[types.int64] * 9), named_after_constants(screen_access)
    try:
        compiled = cfunc(signature, cache=True)(function)
    except RuntimeError:  # no folder can be written
        say_uncached("no folder can be written")
        compiled = cfunc(signature)(function)
    _kept.append(compiled)
    return int(compiled.address or 0)


_kept: list[object] = []
"""What owns the machine code."""
