"""The function to which compiled code reports its accesses while a launch is screened; it records uncertain ones.

Unwritten bytes: a load is uncertain if it reads an unmarked byte of shared memory, of local memory, or of an array that
the caller marks.

Unordered accesses: two threads access a cell, at least one of them writes, and they belong to different blocks, or to
one block with no barrier in between. Threads of a block may store the same bytes. A cell's read tag covers all of its
readers: one thread, several threads of a block in one interval, or everybody. An access to bytes that cp.async writes
is uncertain until its thread has waited for the group, and for other threads until a barrier follows the wait; bytes
that cp.async reads may not be written any more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from llvmlite import ir
from numba import cfunc, types

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.jit import context as ctx
from warpfrag.machine.jit.context import SHARED as SHARED_DATA
from warpfrag.tensorcore.kernels.jit import Array, Flag, Int, entry, inner
from warpfrag.tensorcore.kernels.llvm_helpers import Lowering, typed_intrinsic
from warpfrag.tensorcore.kernels.objects import say_uncached

WORD_BYTES = 8
WORD = ir.IntType(64)
LOW_BIT, WORD_SIZE, CELL_SIZE, NO_TAG = np.int64(1), np.int64(WORD_BYTES), np.int64(ctx.CELL_BYTES), np.int64(0)
ALLOCATION_BYTES = np.int64(WORD_BYTES * ctx.ALLOCATION_WORDS)
COPY_BYTES = np.int64(WORD_BYTES * ctx.COPY_WORDS)
INTERVAL, BLOCK, THREAD_BITS = np.int64(ctx.INTERVAL_BIT), np.int64(ctx.BLOCK_BIT), np.int64(ctx.COPY_THREAD_BITS)
COPY, SHARED, ALL, PLAIN_TAG = (
    np.int64(ctx.BY_COPY),
    np.int64(ctx.SEVERAL),
    np.int64(ctx.EVERYBODY),
    np.int64(~ctx.SEVERAL),
)
LANE_MASK, WARP_LANES = np.int64(LANES - 1), np.int64(LANES)
DATA_WORD = 2  # in a row of the allocation table
THREAD_MASK = np.int64((1 << ctx.COPY_THREAD_BITS) - 1)
TAG_BYTES = np.int64(15)


@typed_intrinsic
def load_word(_typing_context: object, _address: object) -> Lowering:
    """Return the 64 bits at an address."""

    def emit(_context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> ir.Value:
        return builder.load(builder.inttoptr(arguments[0], WORD.as_pointer()), align=1)

    return types.int64(types.int64), emit


@typed_intrinsic
def store_word(_typing_context: object, _address: object, _word: object) -> Lowering:
    """Write 64 bits to an address."""

    def emit(_context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> ir.Value:
        builder.store(arguments[1], builder.inttoptr(arguments[0], WORD.as_pointer()), align=1)
        return ir.Constant(ir.IntType(8).as_pointer(), None)  # numba's representation of void

    return types.void(types.int64, types.int64), emit


@typed_intrinsic
def load_byte(_typing_context: object, _address: object) -> Lowering:
    """Return the byte at an address."""

    def emit(_context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> ir.Value:
        return builder.load(builder.inttoptr(arguments[0], ir.IntType(8).as_pointer()))

    return types.uint8(types.int64), emit


@inner
def word_of(table: Int, index: Int) -> Int:
    """Return a word of a table, given the table's address."""
    return load_word(table + np.int64(index) * WORD_SIZE)


@inner
def put_word(table: Int, index: Int, word: Int) -> None:
    """Set a word of a table."""
    store_word(table + np.int64(index) * WORD_SIZE, word)


@inner
def marks_of(words: Int, state: Int, buffer: Int) -> Int:
    """Return the address of a buffer's marks; 0 if it has none."""
    if buffer == ctx.SHARED_BUFFER:
        return word_of(state, ctx.SHARED_MARKS)
    if buffer == ctx.LOCAL_BUFFER:
        return word_of(state, ctx.LOCAL_MARKS)
    table = word_of(state, ctx.GLOBAL_MARKS)
    return NO_TAG if table == 0 else word_of(table, (buffer - word_of(words, ctx.ALLOCATIONS)) // ALLOCATION_BYTES)


@inner
def accesses_of(words: Int, state: Int, buffer: Int) -> Int:
    """Return the address of a buffer's access tags; 0 if its accesses are not tracked."""
    if buffer == ctx.SHARED_BUFFER:
        return word_of(state, ctx.SHARED_ACCESSES)
    table = word_of(state, ctx.GLOBAL_ACCESSES)
    if buffer == ctx.LOCAL_BUFFER or table == 0:
        return NO_TAG
    return word_of(table, (buffer - word_of(words, ctx.ALLOCATIONS)) // ALLOCATION_BYTES)


@inner
def follow_marks(at: Int, size: Int, is_store: Flag) -> Flag:
    """Mark the bytes that a lane stores; return True if it loads an unmarked byte."""
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
    """Return True if nothing orders a thread's access after a cp.async."""
    owner, group = tag & THREAD_MASK, (tag ^ COPY) >> THREAD_BITS
    own = copies + owner * COPY_BYTES
    done = word_of(own, ctx.GROUPS_DONE)
    if owner != thread and word_of(own, ctx.DONE_INTERVAL) == mine >> INTERVAL:
        done = word_of(own, ctx.GROUPS_DONE_BEFORE)
    return group >= done


@inner
def are_equal(first: Int, first_stride: Int, second: Int, second_stride: Int, size: Int, unit: Int) -> Flag:
    """Return True if elements at two addresses are equal: `unit` bytes each, a given distance apart."""
    for byte in range(size):
        element, rest = np.int64(byte) // unit, np.int64(byte) % unit
        if load_byte(first + element * first_stride + rest) != load_byte(second + element * second_stride + rest):
            return False
    return True


@inner
def is_unordered(written: Int, mine: Int) -> Flag:
    """Return True if nothing orders a thread's access after another thread's write.

    A tag differs from the thread's own tag (`mine`) in the block field for another block, in the interval field after a
    barrier, and in the low bits for another thread.
    """
    difference = (written & PLAIN_TAG) ^ mine
    return written > 0 and written != mine and (difference >> BLOCK != 0 or difference >> INTERVAL == 0)


@inner
def is_read_unordered(read: Int, mine: Int) -> Flag:
    """Return True if nothing orders a thread's write after the reads of other threads."""
    difference = (read & PLAIN_TAG) ^ mine
    return read not in (NO_TAG, mine) and (read == ALL or difference >> BLOCK != 0 or difference >> INTERVAL == 0)


@inner
def note_read(at: Int, mine: Int) -> None:
    """Tag a cell that a thread reads."""
    read = word_of(at, 1)
    difference = (read & PLAIN_TAG) ^ mine
    if read == NO_TAG:
        put_word(at, 1, mine)
    elif read not in (ALL, mine):
        if difference >> BLOCK != 0:
            put_word(at, 1, ALL)
        elif difference >> INTERVAL != 0:
            put_word(at, 1, mine)
        else:
            put_word(at, 1, read | SHARED)


@inner
def follow_groups(copies: Int, row: Int, mask: Int, left: Int, closes: Flag, mine: Int) -> None:
    """Close a group of copies in each lane, or wait until at most `left` groups are incomplete."""
    for lane in range(LANES):
        if mask >> np.int64(lane) & LOW_BIT:
            own = copies + (row * np.int64(LANES) + np.int64(lane)) * COPY_BYTES
            groups = word_of(own, ctx.GROUPS)
            if closes:
                put_word(own, ctx.GROUPS, groups + LOW_BIT)
            elif groups - left > word_of(own, ctx.GROUPS_DONE):
                if word_of(own, ctx.DONE_INTERVAL) != mine >> INTERVAL:
                    put_word(own, ctx.GROUPS_DONE_BEFORE, word_of(own, ctx.GROUPS_DONE))
                    put_word(own, ctx.DONE_INTERVAL, mine >> INTERVAL)
                put_word(own, ctx.GROUPS_DONE, groups - left)


@inner
def tag_of(words: Int, row: Int, lane: Int) -> Int:
    """Return the tag of a thread's accesses in the current interval."""
    return (word_of(word_of(words, ctx.WRITERS), row) & ~TAG_BYTES) << LOW_BIT | lane


@inner
def check_lane(
    words: Int, row: Int, lane: Int, offset: Int, buffer: Int, size: Int, is_store: Flag, items: Int, unit: Int
) -> Flag:
    """Return True if a lane's access is uncertain given earlier accesses; tag the cells that it reads.

    `items` and `unit` are 0 if the stored data is not known.
    """
    state = word_of(words, ctx.SCREEN_STATE)
    marks, accesses = marks_of(words, state, buffer), accesses_of(words, state, buffer)
    is_wrong = marks != 0 and follow_marks(marks + offset, size, is_store)
    if accesses == 0:
        return is_wrong
    shift, copies = word_of(state, ctx.CELL_SHIFT), word_of(state, ctx.COPIES)
    mine, thread = tag_of(words, row, lane), row * WARP_LANES + lane
    for cell in range(offset >> shift, ((offset + size - LOW_BIT) >> shift) + LOW_BIT):
        at = accesses + np.int64(cell) * CELL_SIZE
        written = word_of(at, 0)
        if written < 0:
            is_wrong |= is_copy_pending(copies, written, thread, mine)
        elif is_unordered(written, mine):
            is_same = False
            if is_store and unit != 0 and ((written & PLAIN_TAG) ^ mine) >> BLOCK == 0:
                data = word_of(words, SHARED_DATA) if buffer == ctx.SHARED_BUFFER else word_of(buffer, DATA_WORD)
                is_same = are_equal(items + lane * unit, WARP_LANES * unit, data + offset, unit, size, unit)
            is_wrong |= not is_same
        if is_store:
            is_wrong |= is_read_unordered(word_of(at, 1), mine)
        else:
            note_read(at, mine)
    return is_wrong


@inner
def note_lane(
    words: Int, row: Int, lane: Int, mask: Int, places: Int, offset: Int, buffer: Int, size: Int, items: Int, unit: Int
) -> Flag:
    """Tag the cells that a lane stores; return True if an earlier lane of the instruction stores other bytes there."""
    state = word_of(words, ctx.SCREEN_STATE)
    accesses = accesses_of(words, state, buffer)
    if accesses == 0:
        return False
    shift, mine, is_wrong = word_of(state, ctx.CELL_SHIFT), tag_of(words, row, lane), False
    for cell in range(offset >> shift, ((offset + size - LOW_BIT) >> shift) + LOW_BIT):
        at = accesses + np.int64(cell) * CELL_SIZE
        written = word_of(at, 0)
        if not is_unordered(written, mine):
            put_word(at, 0, mine)
            continue
        other = written & LANE_MASK
        if mask >> other & LOW_BIT and word_of(places, other) == word_of(places, lane):
            is_wrong |= unit == 0 or not are_equal(
                items + lane * unit, WARP_LANES * unit, items + other * unit, WARP_LANES * unit, size, unit
            )
        put_word(at, 0, written | SHARED)
    return is_wrong


@inner
def note_copy(words: Int, row: Int, lane: Int, offset: Int, buffer: Int, size: Int, is_store: Flag) -> None:
    """Record that a thread's cp.async reads or writes cells: until it is waited for, or forever."""
    state = word_of(words, ctx.SCREEN_STATE)
    accesses, copies = accesses_of(words, state, buffer), word_of(state, ctx.COPIES)
    if accesses == 0:
        return
    shift, thread = word_of(state, ctx.CELL_SHIFT), row * WARP_LANES + lane
    group = word_of(copies + thread * COPY_BYTES, ctx.GROUPS)
    for cell in range(offset >> shift, ((offset + size - LOW_BIT) >> shift) + LOW_BIT):
        at = accesses + np.int64(cell) * CELL_SIZE
        if is_store:
            put_word(at, 0, COPY | group << THREAD_BITS | thread)
        else:
            put_word(at, 1, ALL)


@inner
def add_suspicion(words: Int, is_wrong: Flag) -> None:
    """Record an uncertain access in the context."""
    if is_wrong:
        put_word(words, ctx.SUSPICIONS, word_of(words, ctx.SUSPICIONS) | LOW_BIT)


def screen_access(
    words: Int,
    row: Int,
    mask: Int,
    places: Int,
    base: Int,
    buffer: Int,
    size: Int,
    is_store: Int,
    inst: Int,
    items: Int,
    unit: Int,
) -> None:
    """Check an access that compiled code reports (`memory_access.tell`); `words` is the context."""
    state = word_of(words, ctx.SCREEN_STATE)
    if buffer == ctx.COPY_GROUPS:
        copies = word_of(state, ctx.COPIES)
        if copies != 0:
            follow_groups(copies, row, mask, size, is_store != 0, tag_of(words, row, NO_TAG))
        return
    is_wrong, is_copy = False, False
    if word_of(state, ctx.COPY_INSTRUCTIONS) != 0:
        is_copy = load_byte(word_of(state, ctx.COPY_INSTRUCTIONS) + inst) != 0
    known = NO_TAG if is_copy else unit
    for lane in range(LANES):
        if mask >> np.int64(lane) & LOW_BIT:
            offset = word_of(places, lane) + base
            is_wrong |= check_lane(words, row, np.int64(lane), offset, buffer, size, is_store != 0, items, known)
    for lane in range(LANES if is_store or is_copy else 0):
        if mask >> np.int64(lane) & LOW_BIT:
            at, offset = np.int64(lane), word_of(places, lane) + base
            if is_store:
                is_wrong |= note_lane(words, row, at, mask, places, offset, buffer, size, items, known)
            if is_copy:
                note_copy(words, row, at, offset, buffer, size, is_store != 0)
    add_suspicion(words, is_wrong)


def named_after_constants(function: Callable[..., None]) -> Callable[..., None]:
    """Add a digest of the constants to a function's name, because numba caches the compiled code under that name."""
    text = Path(str(ctx.__file__)).read_bytes()
    function.__name__ += f"_{hashlib.sha256(text).hexdigest()[:8]}"
    function.__qualname__ = function.__name__
    return function


@entry
@named_after_constants
def screen_accesses(
    words: Int, threads: Array, offsets: Array, buffer: Int, size: Int, is_store: Flag, is_copy: Flag
) -> None:
    """Check accesses that the interpreter reports, thread by thread, each at its offset."""
    is_wrong = False
    for index in range(threads.size):
        row, lane, offset = threads[index] // WARP_LANES, threads[index] % WARP_LANES, offsets[index]
        is_wrong |= check_lane(words, row, lane, offset, buffer, size, is_store, NO_TAG, NO_TAG)
        if is_store:
            is_wrong |= note_lane(words, row, lane, NO_TAG, NO_TAG, offset, buffer, size, NO_TAG, NO_TAG)
        if is_copy:
            note_copy(words, row, lane, offset, buffer, size, is_store)
    add_suspicion(words, is_wrong)


@cache
def screen_address() -> int:
    """Return the address of `screen_access` in machine code, compiled or from numba's cache."""
    signature, function = types.void(*[types.int64] * 11), named_after_constants(screen_access)
    try:
        compiled = cfunc(signature, cache=True)(function)
    except RuntimeError:  # no cache folder is writable
        say_uncached("no folder can be written")
        compiled = cfunc(signature)(function)
    _kept.append(compiled)
    return int(compiled.address or 0)


_kept: list[object] = []
"""The owner of the machine code."""
