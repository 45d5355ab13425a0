"""Loops over the lanes of many warps, which numba compiles: boxes of tensor maps and mbarriers, without the GIL."""

from __future__ import annotations

import numpy as np

from warpfrag.ptx.interpreter.mbarriers import COUNT, MAX_TX, TX_BITS
from warpfrag.ptx.interpreter.store_tags import (
    BLOCK_FIELD,
    HAS_WAITED_SHIFT,
    INTERVAL_SHIFT,
    WARP_FIELD,
    WORD_BYTES,
)
from warpfrag.tensorcore.kernels.jit import Array, Flag, Int, entry, inner

NEXT_INTERVAL, WHOLE_WORD = np.uint64(1 << INTERVAL_SHIFT), np.uint64(WORD_BYTES)
WAITED = np.uint64(HAS_WAITED_SHIFT)
WARP_TAG, BLOCK_TAG, NO_TAG = np.uint64(WARP_FIELD), np.uint64(BLOCK_FIELD), np.uint64(0)
ARRIVALS, TX_MASK = np.int64(COUNT), np.int64((1 << TX_BITS) - 1)
COUNT_SHIFT, TX_SHIFT, PARITY = np.int64(20), np.int64(40), np.int64(-1 << 63)
TX_SIGN, TX_MODULUS, TX_LIMIT = np.int64(1 << (TX_BITS - 1)), np.int64(1 << TX_BITS), np.int64(MAX_TX)
U1, U2 = np.uintp(1), np.uintp(2)


@inner
def meets_others(tags: Array, base: Int, runs: Array, mine: np.uint64, others: np.uint64) -> Flag:
    """Whether a word of some runs is somebody else's, as `interpreter.store_tags` says; `others` has a bit of them."""
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
    """Copy after copy, move units of 16 bytes as two plans say, and tag the words; stop at one that overlaps others.

    Bases, plans and runs count words of 64 bits, as `source` and `target` do. `target_runs` are the words that the
    units of each plan fill, [plans, runs, 2]. `done` gets how many copies were made.
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


@entry
def advance_mbarriers(
    words: Array,
    written: Array,
    cells: Array,
    arrivals: Array,
    owed: Array,
    drops: Flag,
    before: Array,
    has_ended: Array,
    done: Array,
) -> None:
    """Arrivals at mbarriers and bytes that they owe, one after the other; stops at one that is wrong.

    The fields of a word are those of `interpreter.mbarriers`; `before` gets the words as they were, `has_ended` whether
    a phase ended, `done` how many were changed.
    """
    for i in range(cells.size):
        word = np.int64(words[cells[i]])
        pending, count = word & ARRIVALS, word >> COUNT_SHIFT & ARRIVALS
        tx = word >> TX_SHIFT & TX_MASK
        tx = tx - (TX_MODULUS if tx >= TX_SIGN else np.int64(0)) + owed[i]
        if abs(tx) > TX_LIMIT or arrivals[i] > pending:
            return
        pending -= arrivals[i]
        if drops:
            count -= arrivals[i]
        parity = word & PARITY
        if pending == 0 and tx == 0:
            parity ^= PARITY
            pending = count
            has_ended[i] = True
        after = pending | count << COUNT_SHIFT | (tx & TX_MASK) << TX_SHIFT | parity
        before[i] = np.uint64(word)
        words[cells[i]] = written[cells[i]] = np.uint64(after)
        done[0] = i + 1
