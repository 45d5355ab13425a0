/* Box copies and mbarrier updates for many lanes at once; `box_copies.py` calls them. */

#include <string.h>

#include "machine/jit/context.h"
#include "tensorcore/kernels/arguments.h"

#define UNIT_BYTES 16
#define TAGS_PER_WORD 2 /* one tag for every 4 bytes of a 64-bit word */
#define WARP_FIELD ((UINT64_C(1) << INTERVAL_SHIFT) - (UINT64_C(1) << WARP_SHIFT))
#define BLOCK_FIELD ((UINT64_C(1) << HAS_WAITED_SHIFT) - (UINT64_C(1) << BLOCK_SHIFT))

typedef struct {
    int64_t first, count; /* 64-bit words */
} word_run;

/* The source or the target of copies. Copy i accesses units at data + 8 * (bases[i] + plans[which[i]]). */
typedef struct {
    uint8_t *data; /* not aligned, because it may be the caller's array */
    ARRAY(1, const int64_t) bases;
    ARRAY(2, const int64_t) plans;
    ARRAY(1, const int64_t) which;
} copy_side;

struct copy_units_arguments {
    copy_side source, target;
    ARRAY(3, const word_run) runs; /* the words that the units of each target plan fill, [plans, runs] */
    ARRAY(1, uint64_t) tags;
    ARRAY(1, const uint64_t) writers;
    int64_t is_shared;
    ARRAY(1, int64_t) done;
};

/* Return true if some words have tags of other warps' unordered stores (`store_tags.py`). */
static bool meets_others(const uint64_t *tags, int64_t count, uint64_t mine, uint64_t others)
{
    uint64_t met = 0;
    for (int64_t i = 0; i < count; i++) {
        uint64_t difference = tags[i] ^ mine; /* for another warp in this interval, only the warp field differs */
        uint64_t is_near = difference - (1 << WARP_SHIFT) < WARP_FIELD ? ~UINT64_C(0) : 0;
        met |= tags[i] & WORD_BYTES ? is_near | (difference & others) : 0;
    }
    return met != 0;
}

/* Copy 16-byte units; the offsets count 64-bit words. */
static void move_units(
    uint8_t *restrict target, const int64_t *restrict to, const uint8_t *restrict source,
    const int64_t *restrict from, int64_t units)
{
    for (int64_t unit = 0; unit < units; unit++)
        memcpy(target + 8 * to[unit], source + 8 * from[unit], UNIT_BYTES);
}

static void set_tags(uint64_t *tags, int64_t count, uint64_t tag)
{
    for (int64_t i = 0; i < count; i++)
        tags[i] = tag;
}

/* Execute the copies in order, and tag the words that they write; stop at a copy that overlaps another warp's stores.
   `done` receives the number of completed copies. */
ENTRY(copy_units)(const struct copy_units_arguments *arguments)
{
    const copy_side *source = &arguments->source, *target = &arguments->target;
    int64_t units = source->plans.shape[1], run_count = arguments->runs.shape[1];
    for (int64_t i = 0; i < source->bases.shape[0]; i++) {
        uint64_t mine = arguments->writers.data[i];
        uint64_t others = arguments->is_shared || mine >> HAS_WAITED_SHIFT ? 0 : BLOCK_FIELD;
        const word_run *runs = arguments->runs.data + target->which.data[i] * run_count;
        uint64_t *tags = arguments->tags.data + TAGS_PER_WORD * target->bases.data[i];
        for (int64_t run = 0; run < run_count; run++)
            if (meets_others(tags + TAGS_PER_WORD * runs[run].first, TAGS_PER_WORD * runs[run].count, mine, others))
                return 0;
        move_units(
            target->data + 8 * target->bases.data[i], target->plans.data + target->which.data[i] * units,
            source->data + 8 * source->bases.data[i], source->plans.data + source->which.data[i] * units, units);
        for (int64_t run = 0; run < run_count; run++)
            set_tags(tags + TAGS_PER_WORD * runs[run].first, TAGS_PER_WORD * runs[run].count, mine | WORD_BYTES);
        arguments->done.data[0] = i + 1;
    }
    return 0;
}

#define PARITY (UINT64_C(1) << PARITY_SHIFT)
#define TX_MASK ((INT64_C(1) << TX_BITS) - 1)
#define TX_SIGN (INT64_C(1) << (TX_BITS - 1))

/* Return an mbarrier word after arrivals and a change of the pending bytes, or the same word if they are invalid. */
static uint64_t word_after(uint64_t word, int64_t arrivals, int64_t owed, bool drops)
{
    int64_t pending = word & COUNT, count = word >> COUNT_SHIFT & COUNT;
    int64_t field = word >> TX_SHIFT & TX_MASK;
    int64_t tx = (field ^ TX_SIGN) - TX_SIGN + owed;
    if (tx > MAX_TX || tx < -MAX_TX || arrivals > pending)
        return word;
    pending -= arrivals;
    if (drops)
        count -= arrivals;
    uint64_t parity = word & PARITY;
    if (pending == 0 && tx == 0) {
        parity ^= PARITY;
        pending = count;
    }
    return (uint64_t)pending | (uint64_t)count << COUNT_SHIFT | (uint64_t)(tx & TX_MASK) << TX_SHIFT | parity;
}

struct advance_mbarriers_arguments {
    ARRAY(1, uint64_t) words;
    ARRAY(1, uint64_t) written;
    ARRAY(1, const int64_t) cells;
    ARRAY(1, const int64_t) arrivals;
    ARRAY(1, const int64_t) owed;
    int64_t drops;
    ARRAY(1, uint64_t) before;
    ARRAY(1, bool) has_ended;
    ARRAY(1, int64_t) done;
};

/* Apply arrivals and pending bytes to mbarriers in order, up to the first invalid change.

   The fields of a word are those of `mbarriers.py`. `before` receives the previous words, `has_ended` is true if a
   phase ended, and `done` receives the number of changed mbarriers. */
ENTRY(advance_mbarriers)(const struct advance_mbarriers_arguments *arguments)
{
    for (int64_t i = 0; i < arguments->cells.shape[0]; i++) {
        int64_t cell = arguments->cells.data[i], arrivals = arguments->arrivals.data[i];
        int64_t owed = arguments->owed.data[i];
        uint64_t word = arguments->words.data[cell];
        uint64_t after = word_after(word, arrivals, owed, arguments->drops);
        if (after == word && (arrivals != 0 || owed != 0))
            return 0;
        arguments->has_ended.data[i] = (after ^ word) >> PARITY_SHIFT;
        arguments->before.data[i] = word;
        arguments->words.data[cell] = arguments->written.data[cell] = after;
        arguments->done.data[0] = i + 1;
    }
    return 0;
}
