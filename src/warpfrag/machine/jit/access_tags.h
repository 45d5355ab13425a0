/* Accesses of a screened launch and the tags of the cells that they touch: `access_screen.c`. */

#ifndef WARPFRAG_ACCESS_TAGS_H
#define WARPFRAG_ACCESS_TAGS_H

#include <string.h>

#include "machine/jit/context.h"
#include "tensorcore/kernels/arguments.h"

/* Tags. SEVERAL: several threads of the block read, or wrote the same bytes, in one interval. BY_COPY: an asynchronous
   access. EVERYBODY: threads of several blocks, or copies, have read. */
#define INTERVAL_BIT 10
#define BLOCK_BIT 37
#define COPY_THREAD_BITS 20
#define WARPGROUPS 8 /* maximum in a block */
#define WARPGROUP_THREADS 128
#define SEVERAL (INT64_C(1) << 62)
#define READ_TIME_BIT 32
#define TIME_MASK ((INT64_C(1) << (BLOCK_BIT - INTERVAL_BIT)) - 1)
#define BY_COPY INT64_MIN
#define EVERYBODY (-1)

/* An access of one lane; `items` and `unit` are 0 if the stored data is unknown. */
typedef struct {
    launch_context *context;
    int64_t row, lane, offset, buffer, size;
    bool is_store;
    const uint8_t *items; /* the lane's first element; the next is LANES * unit bytes away */
    int64_t unit;
    uint8_t *marks;     /* of the buffer, or 0 if it has none */
    access_cell *cells; /* of the buffer, or 0 if its accesses are not tracked */
    int64_t shift, tag; /* offset bits in a cell, and the tag of the warp's first lane */
} lane_access;

INLINED const allocation *allocation_of(const lane_access *access)
{
    return (const allocation *)(intptr_t)access->buffer;
}

/* Return the marks of a buffer, or 0 if it has none. */
INLINED uint8_t *marks_of(const lane_access *access)
{
    const screen_state *state = access->context->screen_state;
    if (access->buffer == SHARED_BUFFER)
        return state->shared_marks;
    if (access->buffer == LOCAL_BUFFER)
        return state->local_marks;
    return state->global_marks ? state->global_marks[allocation_of(access) - access->context->allocations] : 0;
}

/* Return the cells of a buffer, or 0 if its accesses are not tracked. */
INLINED access_cell *cells_of(const lane_access *access)
{
    const screen_state *state = access->context->screen_state;
    if (access->buffer == SHARED_BUFFER)
        return state->shared_accesses;
    if (access->buffer == LOCAL_BUFFER || !state->global_accesses)
        return 0;
    return state->global_accesses[allocation_of(access) - access->context->allocations];
}

INLINED int64_t first_cell(const lane_access *access)
{
    return access->offset >> access->shift;
}

INLINED int64_t last_cell(const lane_access *access)
{
    return (access->offset + access->size - 1) >> access->shift;
}

/* Return the tag of a lane's accesses in the current interval of its warp. */
INLINED int64_t tag_of(const launch_context *context, int64_t row, int64_t lane)
{
    const screen_state *state = context->screen_state;
    if (state->clocks) {
        uint64_t interval = (UINT64_C(1) << BLOCK_SHIFT) - (UINT64_C(1) << INTERVAL_SHIFT);
        uint64_t place = (context->writers[row] & ~(interval | WORD_BYTES)) << 1;
        return (int64_t)(place | (uint64_t)state->now << INTERVAL_BIT) | lane;
    }
    return (int64_t)((context->writers[row] & ~(uint64_t)WORD_BYTES) << 1) | lane;
}

/* Fill in the fields that are the same for all lanes of an instruction. */
INLINED lane_access located(lane_access access)
{
    access.marks = marks_of(&access);
    access.cells = cells_of(&access);
    access.shift = access.context->screen_state->cell_shift;
    access.tag = tag_of(access.context, access.row, 0);
    return access;
}

/* Mark the bytes that a lane stores; return true if it loads an unmarked byte. */
INLINED bool follow_marks(uint8_t *marks, int64_t size, bool is_store)
{
    bool is_wrong = false;
    for (; size > 0; marks += 8, size -= 8) {
        uint64_t bits = size >= 8 ? ~UINT64_C(0) : (UINT64_C(1) << 8 * size) - 1, word;
        memcpy(&word, marks, 8);
        if (is_store) {
            word |= bits;
            memcpy(marks, &word, 8);
        } else {
            is_wrong |= (word & bits) != bits;
        }
    }
    return is_wrong;
}

/* Return the group, or the phase, in a negative tag. */
INLINED int64_t group_of(int64_t tag)
{
    return (tag ^ BY_COPY) >> COPY_THREAD_BITS;
}

#endif
