/* The function to which compiled code reports its accesses while a launch is screened; it records uncertain ones.

   Unwritten bytes: a load is uncertain if it reads an unmarked byte of shared memory, of local memory, or of an array
   that the caller marks.

   Unordered accesses: two threads access a cell, at least one of them writes, and they belong to different blocks, or
   to one block with no barrier in between. Threads of a block may store the same bytes. A cell's read tag covers all
   of its readers: one thread, several threads of a block in one interval, or EVERYBODY. An access to bytes that
   cp.async writes is uncertain until its thread has waited for the group, and for other threads until a barrier follows
   the wait; bytes that cp.async reads must not be written afterwards. Bytes that wgmma reads may be written after a wait and
   a barrier, and wgmma may read bytes that a thread stored before a fence.proxy.async and a barrier.

   A thread's tag has its lane and its warp in the low bits, the interval between barriers from INTERVAL_BIT on, and its
   block from BLOCK_BIT on. The tags of a cp.async, which writes, and of a wgmma, which reads, are negative. They have the
   group from COPY_THREAD_BITS on and, below it, the thread that copies or one bit per warpgroup that reads. */

#include <string.h>

#include "machine/jit/context.h"
#include "tensorcore/kernels/arguments.h"

/* Tags. SEVERAL: several threads of the block read, or wrote the same bytes, in one interval. BY_COPY: an asynchronous
   access. EVERYBODY: threads of several blocks, or copies, have read. */
#define INTERVAL_BIT 10
#define BLOCK_BIT 37
#define COPY_THREAD_BITS 20
#define WARPGROUPS 8 /* at most in a block */
#define WARPGROUP_THREADS 128
#define SEVERAL (INT64_C(1) << 62)
#define BY_COPY INT64_MIN
#define EVERYBODY (-1)

/* An access of one lane; `items` and `unit` are 0 if the stored data is unknown. */
typedef struct {
    launch_context *context;
    int64_t row, lane, offset, buffer, size;
    bool is_store;
    const uint8_t *items; /* the lane's first element; the next is LANES * unit bytes away */
    int64_t unit;
} lane_access;

INLINED const allocation *allocation_of(const lane_access *access)
{
    return (const allocation *)(intptr_t)access->buffer;
}

/* Return the marks of a buffer, or 0 if it has none. */
static uint8_t *marks_of(const lane_access *access)
{
    const screen_state *state = access->context->screen_state;
    if (access->buffer == SHARED_BUFFER)
        return state->shared_marks;
    if (access->buffer == LOCAL_BUFFER)
        return state->local_marks;
    return state->global_marks ? state->global_marks[allocation_of(access) - access->context->allocations] : 0;
}

/* Return the cells of a buffer, or 0 if its accesses are not tracked. */
static access_cell *cells_of(const lane_access *access)
{
    const screen_state *state = access->context->screen_state;
    if (access->buffer == SHARED_BUFFER)
        return state->shared_accesses;
    if (access->buffer == LOCAL_BUFFER || !state->global_accesses)
        return 0;
    return state->global_accesses[allocation_of(access) - access->context->allocations];
}

static int64_t first_cell(const lane_access *access)
{
    return access->offset >> access->context->screen_state->cell_shift;
}

static int64_t last_cell(const lane_access *access)
{
    return (access->offset + access->size - 1) >> access->context->screen_state->cell_shift;
}

/* Return the tag of accesses in a warp's current interval. */
static int64_t tag_of(const launch_context *context, int64_t row, int64_t lane)
{
    return (int64_t)((context->writers[row] & ~(uint64_t)WORD_BYTES) << 1) | lane;
}

/* Mark the bytes that a lane stores; return true if it loads an unmarked byte. */
static bool follow_marks(uint8_t *marks, int64_t size, bool is_store)
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

/* Return true if nothing orders a thread's access after a group of another thread, or of its own. */
static bool is_group_pending(const thread_groups *groups, int64_t group, int64_t owner, int64_t thread, int64_t mine)
{
    int64_t done = groups[owner].groups_done;
    if (owner != thread && groups[owner].done_interval == mine >> INTERVAL_BIT)
        done = groups[owner].groups_done_before;
    return group >= done;
}

INLINED int64_t group_of(int64_t tag)
{
    return (tag ^ BY_COPY) >> COPY_THREAD_BITS;
}

/* Return true if nothing orders a thread's access after a cp.async. */
static bool is_copy_pending(const thread_groups *copies, int64_t tag, int64_t thread, int64_t mine)
{
    int64_t owner = tag & ((INT64_C(1) << COPY_THREAD_BITS) - 1);
    return is_group_pending(copies, group_of(tag), owner, thread, mine);
}

/* Return the first thread of a thread's block, as a number in the batch. */
static int64_t first_thread(const launch_context *context, int64_t thread)
{
    return thread - thread % (context->block_warps * LANES);
}

/* Return true if nothing orders a thread's access after the wgmma that read a cell. */
static bool is_product_pending(const launch_context *context, int64_t tag, int64_t thread, int64_t mine)
{
    int64_t owner = first_thread(context, thread);
    for (int64_t readers = tag & ((INT64_C(1) << WARPGROUPS) - 1); readers; readers >>= 1, owner += WARPGROUP_THREADS)
        if (readers & 1 && is_group_pending(context->screen_state->products, group_of(tag), owner, thread, mine))
            return true;
    return false;
}

/* Return true if no fence.proxy.async orders the store of a tag before the wgmma of a thread. */
static bool is_fence_missing(const launch_context *context, int64_t written, int64_t thread, int64_t mine)
{
    const thread_fences *fences = context->screen_state->fences;
    int64_t owner = first_thread(context, thread) + (written & ((INT64_C(1) << INTERVAL_BIT) - 1));
    int64_t interval = (written & ~SEVERAL) >> INTERVAL_BIT;
    if (fences[thread].interval > interval)
        return false; /* the thread itself has passed a fence since the barrier */
    if (written & SEVERAL || (fences[owner].unfenced && interval >= fences[owner].unfenced))
        return true;
    bool is_late = fences[owner].interval == mine >> INTERVAL_BIT && interval >= fences[owner].first;
    return owner != thread && is_late;
}

/* Return true if `size` bytes are equal; they are elements of `unit` bytes at the given distances. */
static bool are_equal(
    const uint8_t *first, int64_t first_stride, const uint8_t *second, int64_t second_stride, int64_t size,
    int64_t unit)
{
    for (; size > 0; first += first_stride, second += second_stride, size -= unit)
        if (memcmp(first, second, (size_t)(size < unit ? size : unit)) != 0)
            return false;
    return true;
}

/* Return true if no barrier orders the accesses of two tags: they belong to two blocks, or to one interval. */
INLINED bool are_concurrent(int64_t tag, int64_t mine)
{
    int64_t difference = (tag & ~SEVERAL) ^ mine;
    return difference >> BLOCK_BIT != 0 || difference >> INTERVAL_BIT == 0;
}

/* Return true if nothing orders a thread's access after another thread's write. */
INLINED bool is_unordered(int64_t written, int64_t mine)
{
    return written > 0 && written != mine && are_concurrent(written, mine);
}

/* Return true if nothing orders a thread's write after the reads of other threads. */
INLINED bool is_read_unordered(const launch_context *context, int64_t read, int64_t thread, int64_t mine)
{
    if (read < 0)
        return read == EVERYBODY || is_product_pending(context, read, thread, mine);
    return read != 0 && read != mine && are_concurrent(read, mine);
}

/* Return the read tag of a cell after a thread has read it. */
static int64_t read_tag(const launch_context *context, int64_t read, int64_t thread, int64_t mine)
{
    int64_t difference = (read & ~SEVERAL) ^ mine;
    if (read == EVERYBODY || read == mine)
        return read;
    if (read == 0)
        return mine;
    if (read < 0)
        return is_product_pending(context, read, thread, mine) ? EVERYBODY : mine;
    if (difference >> BLOCK_BIT != 0)
        return EVERYBODY;
    return difference >> INTERVAL_BIT != 0 ? mine : read | SEVERAL;
}

/* Return true if a store does not change the bytes in memory. */
static bool stores_the_same(const lane_access *access)
{
    const uint8_t *data
        = access->buffer == SHARED_BUFFER ? access->context->shared : allocation_of(access)->data;
    return are_equal(
        access->items, LANES * access->unit, data + access->offset, access->unit, access->size, access->unit);
}

/* Return true if a lane's access is uncertain given earlier accesses; tag the cells that it reads. */
static bool check_lane(const lane_access *access)
{
    uint8_t *marks = marks_of(access);
    access_cell *cells = cells_of(access);
    bool is_wrong = marks && follow_marks(marks + access->offset, access->size, access->is_store);
    if (!cells)
        return is_wrong;
    const thread_groups *copies = access->context->screen_state->copies;
    int64_t mine = tag_of(access->context, access->row, access->lane), thread = access->row * LANES + access->lane;
    for (int64_t at = first_cell(access), last = last_cell(access); at <= last; at++) {
        access_cell *cell = &cells[at];
        int64_t written = cell->written;
        if (written < 0) {
            is_wrong |= is_copy_pending(copies, written, thread, mine);
        } else if (is_unordered(written, mine)) {
            bool is_own_block = ((written & ~SEVERAL) ^ mine) >> BLOCK_BIT == 0;
            is_wrong |= !(access->is_store && access->unit && is_own_block && stores_the_same(access));
        }
        if (access->is_store)
            is_wrong |= is_read_unordered(access->context, cell->read, thread, mine);
        else
            cell->read = read_tag(access->context, cell->read, thread, mine);
    }
    return is_wrong;
}

/* Return true if a read by wgmma is uncertain given earlier writes; tag the cells for its warpgroup.

   The lane is the first of the warpgroup. */
static bool check_product(const lane_access *access)
{
    const launch_context *context = access->context;
    const screen_state *state = context->screen_state;
    uint8_t *marks = marks_of(access);
    access_cell *cells = cells_of(access);
    bool is_wrong = marks && follow_marks(marks + access->offset, access->size, false);
    if (!cells)
        return is_wrong;
    int64_t mine = tag_of(context, access->row, access->lane), thread = access->row * LANES + access->lane;
    int64_t index = (thread - first_thread(context, thread)) / WARPGROUP_THREADS, group = state->products[thread].groups;
    for (int64_t at = first_cell(access), last = last_cell(access); at <= last; at++) {
        int64_t written = cells[at].written, read = cells[at].read;
        if (written < 0)
            is_wrong |= is_copy_pending(state->copies, written, thread, mine);
        else if (written > 0)
            is_wrong |= is_unordered(written, mine) || is_fence_missing(context, written, thread, mine);
        int64_t readers = INT64_C(1) << index, last_group = group;
        if (read < 0 && read != EVERYBODY) {
            readers |= read & ((INT64_C(1) << WARPGROUPS) - 1);
            last_group = group_of(read) > group ? group_of(read) : group;
        }
        if (read == EVERYBODY || (read > 0 && read != mine && are_concurrent(read, mine)))
            cells[at].read = EVERYBODY;
        else
            cells[at].read = BY_COPY | last_group << COPY_THREAD_BITS | readers;
    }
    return is_wrong;
}

/* Tag the cells that a lane stores; return true if an earlier lane of the instruction stores different bytes there.
   `mask` has the lanes of the instruction, `places` their addresses. */
static bool note_lane(const lane_access *access, int64_t mask, const int64_t *places)
{
    access_cell *cells = cells_of(access);
    if (!cells)
        return false;
    bool is_wrong = false;
    int64_t mine = tag_of(access->context, access->row, access->lane), unit = access->unit;
    for (int64_t at = first_cell(access), last = last_cell(access); at <= last; at++) {
        int64_t written = cells[at].written;
        if (!is_unordered(written, mine)) {
            cells[at].written = mine;
            continue;
        }
        int64_t earlier = written & (LANES - 1);
        if (mask >> earlier & 1 && places[earlier] == places[access->lane]) {
            const uint8_t *items = access->items + (earlier - access->lane) * unit;
            is_wrong |= !unit || !are_equal(access->items, LANES * unit, items, LANES * unit, access->size, unit);
        }
        cells[at].written = written | SEVERAL;
    }
    return is_wrong;
}

/* Record that no fence.proxy.async follows a thread's store to shared memory yet. */
static void note_unfenced(const lane_access *access)
{
    thread_fences *fences = access->context->screen_state->fences;
    if (!fences || access->buffer != SHARED_BUFFER)
        return;
    fences += access->row * LANES + access->lane;
    if (!fences->unfenced)
        fences->unfenced = tag_of(access->context, access->row, access->lane) >> INTERVAL_BIT;
}

/* Record that a thread's cp.async reads or writes cells: until the thread waits for it, or forever. */
static void note_copy(const lane_access *access)
{
    access_cell *cells = cells_of(access);
    if (!cells)
        return;
    int64_t thread = access->row * LANES + access->lane;
    int64_t group = access->context->screen_state->copies[thread].groups;
    for (int64_t at = first_cell(access), last = last_cell(access); at <= last; at++) {
        if (access->is_store)
            cells[at].written = BY_COPY | group << COPY_THREAD_BITS | thread;
        else
            cells[at].read = EVERYBODY;
    }
}

/* Record a fence.proxy.async of each lane. */
static void follow_fence(launch_context *context, int64_t row, int64_t mask)
{
    int64_t interval = tag_of(context, row, 0) >> INTERVAL_BIT;
    for (int lane = 0; lane < LANES; lane++) {
        thread_fences *own = &context->screen_state->fences[row * LANES + lane];
        if (!(mask >> lane & 1))
            continue;
        if (own->interval != interval) {
            own->interval = interval;
            own->first = INT64_MAX;
        }
        if (own->unfenced && own->unfenced < own->first)
            own->first = own->unfenced;
        own->unfenced = 0;
    }
}

/* Close a group of copies or wgmma in each lane, or wait until at most `left` groups are incomplete. */
static void follow_groups(
    launch_context *context, thread_groups *groups, int64_t row, int64_t mask, int64_t left, bool closes)
{
    int64_t interval = tag_of(context, row, 0) >> INTERVAL_BIT;
    for (int lane = 0; lane < LANES; lane++) {
        thread_groups *own = &groups[row * LANES + lane];
        if (!(mask >> lane & 1))
            continue;
        if (closes) {
            own->groups++;
        } else if (own->groups - left > own->groups_done) {
            if (own->done_interval != interval) {
                own->groups_done_before = own->groups_done;
                own->done_interval = interval;
            }
            own->groups_done = own->groups - left;
        }
    }
}

/* Check an access that compiled code reports; `memory_access.tell` calls this function by its address. */
EXPORTED void WITH_LEVEL(screen_access, LEVEL)(
    launch_context *context, int64_t row, int64_t mask, const int64_t *places, int64_t base, int64_t buffer,
    int64_t size, int64_t is_store, int64_t inst, const uint8_t *items, int64_t unit)
{
    const screen_state *state = context->screen_state;
    int64_t tracked = state->tracked_instructions ? state->tracked_instructions[inst] : NOT_TRACKED;
    if (buffer == COPY_GROUPS) {
        thread_groups *groups = tracked == TRACKED_PRODUCT ? state->products : state->copies;
        if (tracked == TRACKED_FENCE)
            follow_fence(context, row, mask);
        else if (tracked)
            follow_groups(context, groups, row, mask, size, is_store);
        return;
    }
    bool is_wrong = false, is_copy = tracked == TRACKED_COPY;
    lane_access access = {context, row, 0, 0, buffer, size, is_store, items, is_copy ? 0 : unit};
    for (int pass = 0; pass < (is_store || is_copy ? 2 : 1); pass++)
        for (int lane = 0; lane < LANES; lane++) {
            if (!(mask >> lane & 1))
                continue;
            access.lane = lane;
            access.offset = places[lane] + base;
            access.items = items + lane * unit;
            if (pass == 0) {
                is_wrong |= check_lane(&access);
                continue;
            }
            if (is_store)
                is_wrong |= note_lane(&access, mask, places);
            if (is_copy)
                note_copy(&access);
            else
                note_unfenced(&access);
        }
    context->suspicions |= is_wrong;
}

struct screen_accesses_arguments {
    ARRAY(1, launch_context) context;
    ARRAY(1, const int64_t) threads;
    ARRAY(1, const int64_t) offsets;
    int64_t buffer, size, is_store, tracked;
};

/* Check accesses that the interpreter reports, thread by thread, each at its offset. */
ENTRY(screen_accesses)(const struct screen_accesses_arguments *arguments)
{
    launch_context *context = arguments->context.data;
    bool is_wrong = false;
    for (int64_t i = 0; i < arguments->threads.shape[0]; i++) {
        int64_t thread = arguments->threads.data[i];
        const lane_access access = {
            context, thread / LANES, thread % LANES, arguments->offsets.data[i],
            arguments->buffer, arguments->size, arguments->is_store, 0, 0};
        is_wrong |= arguments->tracked == TRACKED_PRODUCT ? check_product(&access) : check_lane(&access);
        if (arguments->is_store)
            is_wrong |= note_lane(&access, 0, 0);
        if (arguments->tracked == TRACKED_COPY)
            note_copy(&access);
        else if (arguments->is_store)
            note_unfenced(&access);
    }
    context->suspicions |= is_wrong;
    return 0;
}
