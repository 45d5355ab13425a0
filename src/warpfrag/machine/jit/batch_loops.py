"""Loops that copy between the registers of warps and matrices of codes; numba compiles them to run without the GIL."""

from __future__ import annotations

import numpy as np

from warpfrag.machine.interpreter.mbarriers import COUNT, MAX_TX, TX_BITS
from warpfrag.machine.interpreter.store_tags import (
    BLOCK_FIELD,
    HAS_WAITED_SHIFT,
    INTERVAL_SHIFT,
    WARP_FIELD,
    WORD_BYTES,
)
from warpfrag.tensorcore.kernels.jit import Array, Flag, Int, entry, inner

HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
U1 = np.uintp(1)


@entry
def take(codes: Array, rows: Array, index: Array, out: Array) -> None:
    """Set out[i, j] = codes[rows[i], index[j]], with i over warps."""
    for i in range(rows.size):
        row = rows[i]
        for j in range(index.size):
            out[i, j] = codes[row, index[j]]


@entry
def take_tiles(cells: Array, bases: Array, index: Array, out: Array) -> None:
    """Gather tiles [height, width] into one matrix: tile (i, j) is read at offsets `index` from bases[i, j]."""
    height, width = index.shape
    for i in range(bases.shape[0]):
        for y in range(height):
            for j in range(bases.shape[1]):
                base = bases[i, j]
                for x in range(width):
                    out[i * height + y, j * width + x] = cells[np.uintp(base + index[y, x])]


@entry
def put_tiles(cells: Array, bases: Array, index: Array, matrix: Array) -> None:
    """Scatter one matrix to tiles [height, width]: tile (i, j) is written at offsets `index` from bases[i, j]."""
    height, width = index.shape
    for i in range(bases.shape[0]):
        for y in range(height):
            for j in range(bases.shape[1]):
                base = bases[i, j]
                for x in range(width):
                    cells[np.uintp(base + index[y, x])] = matrix[i * height + y, j * width + x]


@inner
def are_equal(words: Array, base: Int, plan: Array, other_base: Int, other_plan: Array) -> Flag:
    """Return True if two tiles have equal contents."""
    for unit in range(plan.size):
        at, other = np.uintp(base + plan[unit]), np.uintp(other_base + other_plan[unit])
        if words[at] != words[other] or words[at + U1] != words[other + U1]:
            return False
    return True


@inner
def holds(words: Array, bases: Array, plans: Array, which: Array, first: Array) -> Flag:
    """Return True if `first` names an equal tile for every tile, and some tiles share one."""
    shares = False
    for i in range(bases.size):
        other = first[i]
        if other == i:
            continue
        is_repeated = bases[i] == bases[i - 1] and which[i] == which[i - 1] and other == first[i - 1]
        if not is_repeated and not are_equal(words, bases[i], plans[which[i]], bases[other], plans[which[other]]):
            return False
        shares = True
    return shares


@entry
def find_equal(words: Array, bases: Array, plans: Array, which: Array, first: Array, hashes: Array) -> None:
    """For each tile, find the first tile with equal contents; keep the contents of `first` if they are still valid.

    A tile consists of 16-byte units (two words each) at offsets plans[which[i]] from bases[i].
    """
    if holds(words, bases, plans, which, first):
        return
    for i in range(bases.size):
        plan, low, high = plans[which[i]], np.uint64(0), np.uint64(0)
        for unit in range(plan.size):
            at = np.uintp(bases[i] + plan[unit])
            low, high = (low ^ words[at]) * HASH_FACTOR, (high ^ words[at + U1]) * HASH_FACTOR
        hashes[i] = low ^ (high >> np.uint64(29)) ^ high
        first[i] = i
        for other in range(i):
            if (
                hashes[other] == hashes[i]
                and first[other] == other
                and are_equal(words, bases[i], plan, bases[other], plans[which[other]])
            ):
                first[i] = other
                break


@entry
def take_units(words: Array, bases: Array, plans: Array, which: Array, out: Array) -> None:
    """Gather tiles, described as in `find_equal`, unit by unit."""
    for i in range(bases.size):
        base, plan = bases[i], plans[which[i]]
        for unit in range(plan.size):
            at, to = np.uintp(base + plan[unit]), np.uintp(unit) * np.uintp(2)
            out[i, to], out[i, to + U1] = words[at], words[at + U1]


NEXT_INTERVAL, WHOLE_WORD = np.uint64(1 << INTERVAL_SHIFT), np.uint64(WORD_BYTES)
WAITED = np.uint64(HAS_WAITED_SHIFT)
WARP_TAG, BLOCK_TAG, NO_TAG = np.uint64(WARP_FIELD), np.uint64(BLOCK_FIELD), np.uint64(0)
U1, U2 = np.uintp(1), np.uintp(2)


@inner
def meets_others(tags: Array, base: Int, runs: Array, mine: np.uint64, others: np.uint64) -> Flag:
    """Return True if unordered stores of another warp tagged a word of some runs (`interpreter.store_tags`)."""
    met = NO_TAG
    for run in range(runs.shape[0]):
        first = U2 * np.uintp(base + runs[run, 0])
        for word in range(first, first + U2 * np.uintp(runs[run, 1])):
            differences = tags[word] ^ mine
            near = differences & WARP_TAG if differences < NEXT_INTERVAL else NO_TAG
            met |= (near | (differences & others)) if tags[word] & WHOLE_WORD != NO_TAG else NO_TAG
    return met != NO_TAG


@entry
def copy_units(
    source: Array,
    source_bases: Array,
    source_plans: Array,
    source_which: Array,
    target: Array,
    target_bases: Array,
    target_plans: Array,
    target_which: Array,
    target_runs: Array,
    tags: Array,
    writers: Array,
    is_shared: Flag,
    done: Array,
) -> None:
    """Move 16-byte units according to two plans, copy by copy, and tag the words; stop at a copy that overlaps others.

    Bases, plans and runs count 64-bit words, as `source` and `target` do. `target_runs` are the words that the units of
    each plan fill, [plans, runs, 2]. `done` receives the number of copies made.
    """
    for i in range(source_bases.size):
        from_base, to_base, mine = source_bases[i], target_bases[i], writers[i]
        from_plan, to_plan = source_plans[source_which[i]], target_plans[target_which[i]]
        runs, own = target_runs[target_which[i]], mine | WHOLE_WORD
        others = NO_TAG if is_shared or mine >> WAITED != NO_TAG else BLOCK_TAG
        if meets_others(tags, to_base, runs, mine, others):
            return
        for unit in range(from_plan.size):
            at, to = np.uintp(from_base + from_plan[unit]), np.uintp(to_base + to_plan[unit])
            target[to], target[to + U1] = source[at], source[at + U1]
        for run in range(runs.shape[0]):
            first = U2 * np.uintp(to_base + runs[run, 0])
            tags[first : first + U2 * np.uintp(runs[run, 1])] = own
        done[0] = i + 1


ARRIVALS, TX_MASK = np.int64(COUNT), np.int64((1 << TX_BITS) - 1)
COUNT_SHIFT, TX_SHIFT, PARITY = np.int64(20), np.int64(40), np.int64(-1 << 63)
TX_SIGN, TX_MODULUS, TX_LIMIT = np.int64(1 << (TX_BITS - 1)), np.int64(1 << TX_BITS), np.int64(MAX_TX)


@inner
def word_after(word: Int, arrivals: Int, owed: Int, drops: Flag) -> Int:
    """Return an mbarrier word after arrivals and a change of pending bytes; the same word if that is invalid."""
    pending, count = word & ARRIVALS, word >> COUNT_SHIFT & ARRIVALS
    tx = word >> TX_SHIFT & TX_MASK
    tx = tx - (TX_MODULUS if tx >= TX_SIGN else np.int64(0)) + owed
    if abs(tx) > TX_LIMIT or arrivals > pending:
        return word
    pending -= arrivals
    if drops:
        count -= arrivals
    parity = word & PARITY
    if pending == 0 and tx == 0:
        parity ^= PARITY
        pending = count
    return pending | count << COUNT_SHIFT | (tx & TX_MASK) << TX_SHIFT | parity


@entry
def advance_mbarriers(
    words: Array, written: Array, cells: Array, arrivals: Array, owed: Array, drops: Flag, before: Array,
    has_ended: Array, done: Array,
) -> None:  # fmt: skip
    """Apply arrivals and pending bytes to mbarriers in order, up to the first change that is invalid.

    The fields of a word are those of `interpreter.mbarriers`; `before` receives the words as they were, `has_ended` is
    True if a phase ended, and `done` receives the number of changed mbarriers.
    """
    for i in range(cells.size):
        word = np.int64(words[cells[i]])
        after = word_after(word, arrivals[i], owed[i], drops)
        if after == word and (arrivals[i] != 0 or owed[i] != 0):
            return
        has_ended[i], before[i] = (after ^ word) < 0, np.uint64(word)
        words[cells[i]] = written[cells[i]] = np.uint64(after)
        done[0] = i + 1
