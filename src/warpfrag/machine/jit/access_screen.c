/* The screening of accesses, which compiled code and the interpreter report; uncertain accesses are recorded.

   Unwritten bytes: a load is uncertain if it reads an unmarked byte of shared memory, of local memory, or of an array
   that the caller marks.

   Unordered accesses: two threads access a cell, at least one of them writes, and they belong to different blocks, or
   to one block with no barrier in between. Threads of a block may store the same bytes. A cell's read tag covers all
   of its readers: one thread, several threads of a block in one interval, or EVERYBODY. An access to bytes that
   cp.async writes is uncertain until its thread has waited for the group, and for other threads until a barrier follows
   the wait. Bytes that cp.async reads must not be written afterwards. Bytes that wgmma reads may be written after a
   wait and a barrier, and wgmma may read bytes that a thread stored before a fence.proxy.async and a barrier.

   A thread's tag has its lane and its warp in the low bits, the interval between barriers from INTERVAL_BIT on, and its
   block from BLOCK_BIT on. The tags of cp.async writes and of wgmma reads are negative. They have the group from
   COPY_THREAD_BITS on and, below it, the thread that copies or one bit per warpgroup that reads.

   If a launch has clocks (`order_clocks.h`), tags have the time instead of the interval, and clocks order accesses. A
   copy's tag then has the phase of its mbarrier from COPY_THREAD_BITS on and, below it, the number of the mbarrier; a
   cell in shared memory that several warps read has the last time from READ_TIME_BIT on and, below it, the warps. */

#include "machine/jit/access_tags.h"
#include "machine/jit/order_clocks.h"
#include "tensorcore/kernels/arguments.h"

/* Return true if nothing orders a thread's access after a group of another thread, or of its own. */
static bool is_group_pending(const thread_groups *groups, int64_t group, int64_t owner, int64_t thread, int64_t mine)
{
    int64_t done = groups[owner].groups_done;
    if (owner != thread && groups[owner].done_interval == mine >> INTERVAL_BIT)
        done = groups[owner].groups_done_before;
    return group >= done;
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

/* Return true if no fence.proxy.async orders the store with tag `written` before a thread's wgmma. */
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

/* Return the read tag of a cell after a thread has read it; the old tag `read` must not be negative. */
INLINED int64_t plain_read_tag(int64_t read, int64_t mine)
{
    int64_t difference = (read & ~SEVERAL) ^ mine;
    if (read == 0 || read == mine)
        return mine;
    if (difference >> BLOCK_BIT != 0)
        return EVERYBODY;
    return difference >> INTERVAL_BIT != 0 ? mine : read | SEVERAL;
}

/* Return the read tag of a cell after a thread has read it. */
static int64_t read_tag(const launch_context *context, int64_t read, int64_t thread, int64_t mine)
{
    if (read >= 0 || read == EVERYBODY)
        return read < 0 ? read : plain_read_tag(read, mine);
    return is_product_pending(context, read, thread, mine) ? EVERYBODY : mine;
}

/* --- clocks */

INLINED int64_t warp_of(int64_t tag)
{
    return tag / LANES & (LANES - 1);
}

/* Return true if the access with a tag is ordered before a warp: it is the warp's own, or the warp knows it. */
static bool is_known(const launch_context *context, int64_t tag, int64_t row)
{
    int64_t mine = tag_of(context, row, 0);
    if ((tag ^ mine) >> BLOCK_BIT != 0)
        return false;
    return warp_of(tag) == warp_of(mine) || clocks_of(context, row)[warp_of(tag)] >= (tag >> INTERVAL_BIT & TIME_MASK);
}

/* Return true if the reads with a positive tag are ordered before a warp. */
static bool are_reads_known(const launch_context *context, int64_t read, int64_t row)
{
    if (!(read & SEVERAL))
        return is_known(context, read, row);
    for (int64_t warp = 0; warp < LANES; warp++)
        if (read >> warp & 1 && warp != row % context->block_warps
            && clocks_of(context, row)[warp] < (read >> READ_TIME_BIT & TIME_MASK))
            return false;
    return true;
}

/* Return true if a warp does not know that the wgmma that read a cell are complete. */
static bool is_wgmma_unknown(const launch_context *context, int64_t read, int64_t row)
{
    for (int64_t warp = 0; warp < LANES; warp++)
        if (read >> warp / (WARPGROUP_THREADS / LANES) & 1
            && clocks_of(context, row)[PRODUCT_CLOCKS + warp] <= group_of(read))
            return true;
    return false;
}

/* Return true if the reads of a cell, by threads, wgmma and copies, are ordered before a warp. */
static bool is_read_known(const launch_context *context, int64_t read, int64_t row)
{
    if (read < 0)
        return read != EVERYBODY && !is_wgmma_unknown(context, read, row);
    return read == 0 || are_reads_known(context, read, row);
}

/* Return true if the last write to a cell is ordered before a warp (`by_copy`: before its asynchronous accesses). */
static bool is_write_known(const launch_context *context, int64_t written, int64_t row, bool by_copy)
{
    if (written < 0)
        return written != EVERYBODY
            && clocks_of(context, row)[MBARRIER_CLOCKS + (written & (LANES - 1))] > group_of(written);
    if (written == 0)
        return true;
    int64_t warp = warp_of(written), time = written >> INTERVAL_BIT & TIME_MASK;
    if (by_copy && clocks_of(context, row)[FENCED_CLOCKS + warp] < time
        && context->screen_state->fenced[row * LANES + warp] < time)
        return false;
    return is_known(context, written, row);
}

/* Return the read tag of a cell after a thread has read it. */
static int64_t clocked_read_tag(const launch_context *context, int64_t read, int64_t row, int64_t mine, bool is_shared)
{
    if (read == EVERYBODY)
        return read;
    if (is_read_known(context, read, row))
        return mine;
    if (read < 0 || !is_shared)
        return EVERYBODY;
    int64_t warps = read & SEVERAL ? read & UINT32_MAX : INT64_C(1) << warp_of(read);
    return SEVERAL | context->screen_state->now << READ_TIME_BIT | warps | INT64_C(1) << warp_of(mine);
}

/* Return true if a lane's access to a cell is uncertain; tag a cell that it reads. */
static bool check_clocked(const lane_access *access, access_cell *cell)
{
    const launch_context *context = access->context;
    bool is_wrong = !is_write_known(context, cell->written, access->row, false);
    if (access->is_store)
        return is_wrong || !is_read_known(context, cell->read, access->row);
    int64_t mine = access->tag | access->lane;
    cell->read = clocked_read_tag(context, cell->read, access->row, mine, access->buffer == SHARED_BUFFER);
    return is_wrong;
}

/* Return true if a read by wgmma is uncertain for one of the four warps of the warpgroup; tag the cell. */
static bool check_clocked_product(const lane_access *access, access_cell *cell, int64_t index, int64_t group)
{
    bool is_wrong = false, is_read_first = true;
    int64_t read = cell->read, readers = INT64_C(1) << index;
    for (int64_t row = access->row; row < access->row + WARPGROUP_THREADS / LANES; row++) {
        is_wrong |= !is_write_known(access->context, cell->written, row, true);
        is_read_first &= is_read_known(access->context, read, row);
    }
    if (read < 0 && read != EVERYBODY) {
        readers |= read & ((INT64_C(1) << WARPGROUPS) - 1);
        group = group_of(read) > group ? group_of(read) : group;
        is_read_first = true;
    }
    cell->read = is_read_first ? BY_COPY | group << COPY_THREAD_BITS | readers : EVERYBODY;
    return is_wrong;
}

/* Return true if an access of a bulk copy is uncertain; `tag` is the tag of the bytes that it writes. */
static bool check_transfer(const lane_access *access, int64_t tag)
{
    access_cell *cells = access->cells;
    bool is_wrong = access->marks && follow_marks(access->marks + access->offset, access->size, access->is_store);
    for (int64_t at = first_cell(access), last = last_cell(access); cells && at <= last; at++) {
        is_wrong |= !is_write_known(access->context, cells[at].written, access->row, true);
        if (access->is_store)
            is_wrong |= !is_read_known(access->context, cells[at].read, access->row);
        cells[at].written = access->is_store ? tag : cells[at].written;
        cells[at].read = access->is_store ? 0 : EVERYBODY;
    }
    return is_wrong;
}

/* Record a fence.proxy.async of a whole warp. */
static void fence_clocks(launch_context *context, int64_t row)
{
    screen_state *state = context->screen_state;
    int64_t *own = clocks_of(context, row), warp = row % context->block_warps;
    own[warp] = own[FENCED_CLOCKS + warp] = state->now++;
    memcpy(state->fenced + row * LANES, own, LANES * sizeof *own);
}

/* Return true if a store does not change the bytes in memory; record that the result depends on stored values. */
static bool stores_the_same(const lane_access *access)
{
    access->context->screen_state->is_by_value = 1;
    const uint8_t *data
        = access->buffer == SHARED_BUFFER ? access->context->shared : allocation_of(access)->data;
    return are_equal(
        access->items, LANES * access->unit, data + access->offset, access->unit, access->size, access->unit);
}

/* Return true if a tag is the thread's own current tag, or belongs to its block and an earlier interval. */
INLINED bool is_earlier(int64_t tag, int64_t mine)
{
    uint64_t difference = (uint64_t)((tag & ~SEVERAL) ^ mine);
    return tag == mine || (difference >> BLOCK_BIT == 0 && difference >> INTERVAL_BIT != 0);
}

/* Return true if a lane's access to a cell is uncertain; tag a cell that it reads. */
static bool check_cell(const lane_access *access, access_cell *cell)
{
    int64_t mine = access->tag | access->lane, thread = access->row * LANES + access->lane, written = cell->written;
    bool is_wrong = false;
    if (written < 0) {
        is_wrong = is_copy_pending(access->context->screen_state->copies, written, thread, mine);
    } else if (is_unordered(written, mine)) {
        bool is_own_block = ((written & ~SEVERAL) ^ mine) >> BLOCK_BIT == 0;
        is_wrong = !(access->is_store && access->unit && is_own_block && stores_the_same(access));
    }
    if (access->is_store)
        return is_wrong || is_read_unordered(access->context, cell->read, thread, mine);
    cell->read = read_tag(access->context, cell->read, thread, mine);
    return is_wrong;
}

/* Return true if a lane's access is uncertain given earlier accesses; tag the cells that it reads. */
INLINED bool check_lane(const lane_access *access)
{
    bool is_wrong = access->marks && follow_marks(access->marks + access->offset, access->size, access->is_store);
    if (!access->cells)
        return is_wrong;
    bool has_clocks = access->context->screen_state->clocks != 0;
    int64_t mine = access->tag | access->lane;
    access_cell *cell = access->cells + first_cell(access), *last = access->cells + last_cell(access);
    if (has_clocks) {
        for (; cell <= last; cell++)
            is_wrong |= check_clocked(access, cell);
        return is_wrong;
    }
    for (; cell <= last; cell++) {
        int64_t read = cell->read;
        bool is_after_write = cell->written == 0 || is_earlier(cell->written, mine);
        if (!is_after_write || (read < 0 && (read != EVERYBODY || access->is_store)))
            is_wrong |= check_cell(access, cell);
        else if (access->is_store)
            is_wrong |= read != 0 && !is_earlier(read, mine);
        else if (read >= 0)
            cell->read = plain_read_tag(read, mine);
    }
    return is_wrong;
}

/* Return true if a read by wgmma is uncertain given earlier writes; tag the cells for its warpgroup.

   The access's lane is the first lane of the warpgroup. */
static bool check_product(const lane_access *access)
{
    const launch_context *context = access->context;
    const screen_state *state = context->screen_state;
    access_cell *cells = access->cells;
    bool is_wrong = access->marks && follow_marks(access->marks + access->offset, access->size, false);
    if (!cells)
        return is_wrong;
    int64_t mine = access->tag | access->lane, thread = access->row * LANES + access->lane;
    int64_t index = (thread - first_thread(context, thread)) / WARPGROUP_THREADS, group = state->products[thread].groups;
    for (int64_t at = first_cell(access), last = last_cell(access); at <= last; at++) {
        int64_t written = cells[at].written, read = cells[at].read;
        if (state->clocks) {
            is_wrong |= check_clocked_product(access, &cells[at], index, group);
            continue;
        }
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
INLINED bool note_lane(const lane_access *access, int64_t mask, const int64_t *places)
{
    access_cell *cells = access->cells;
    if (!cells)
        return false;
    bool is_wrong = false;
    int64_t mine = access->tag | access->lane, unit = access->unit;
    for (int64_t at = first_cell(access), last = last_cell(access); at <= last; at++) {
        int64_t written = cells[at].written, earlier = written & (LANES - 1);
        bool is_clocked = access->context->screen_state->clocks != 0, is_own = (written ^ mine) >> 5 == 0;
        if (is_clocked ? !is_own : !is_unordered(written, mine)) {
            cells[at].written = mine;
            continue;
        }
        if (mask >> earlier & 1 && places[earlier] == places[access->lane]) {
            const uint8_t *items = access->items + (earlier - access->lane) * unit;
            access->context->screen_state->is_by_value = 1;
            is_wrong |= !unit || !are_equal(access->items, LANES * unit, items, LANES * unit, access->size, unit);
        }
        cells[at].written = is_clocked ? mine : written | SEVERAL;
    }
    return is_wrong;
}

/* Return true if the launch has written bytes that a lane reads as constant data. */
static bool is_changed(const lane_access *access)
{
    bool is_wrong = false;
    for (int64_t at = first_cell(access), last = last_cell(access); access->cells && at <= last; at++)
        is_wrong |= access->cells[at].written != 0;
    return is_wrong;
}

/* Record a thread's store to shared memory, which no fence.proxy.async follows yet. */
static void note_unfenced(const lane_access *access)
{
    thread_fences *fences = access->context->screen_state->fences;
    if (!fences || access->buffer != SHARED_BUFFER)
        return;
    fences += access->row * LANES + access->lane;
    if (!fences->unfenced)
        fences->unfenced = (access->tag | access->lane) >> INTERVAL_BIT;
}

/* Record the cells that a thread's cp.async accesses: cells that it writes until the thread waits for it, and cells
   that it reads for the whole launch. A load of constant data is recorded like these reads. */
static void note_copy(const lane_access *access)
{
    access_cell *cells = access->cells;
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
    if (context->screen_state->clocks) {
        if ((uint32_t)mask == ALL_LANES)
            fence_clocks(context, row);
        return;
    }
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
        if (context->screen_state->clocks && groups == context->screen_state->products)
            clocks_of(context, row)[PRODUCT_CLOCKS + row % context->block_warps] = own->groups_done;
    }
}

/* Check accesses that compiled code reports; the code that `memory_access.tell` emits calls this function. */
EXPORTED void WITH_LEVEL(screen_access, LEVEL)(
    launch_context *context, int64_t row, int64_t mask, const int64_t *places, int64_t base, int64_t buffer,
    int64_t size, int64_t is_store, int64_t inst, const uint8_t *items, int64_t unit)
{
    const screen_state *state = context->screen_state;
    int64_t tracked = state->tracked_instructions ? state->tracked_instructions[inst] : NOT_TRACKED;
    if (buffer == COPY_GROUPS) {
        thread_groups *groups = tracked == TRACKED_PRODUCT ? state->products
            : tracked == TRACKED_STORE                     ? state->bulk_groups
                                                           : state->copies;
        if (tracked == TRACKED_FENCE)
            follow_fence(context, row, mask);
        else if (tracked && groups)
            follow_groups(context, groups, row, mask, size, is_store);
        return;
    }
    bool is_wrong = false, is_constant = tracked == TRACKED_CONSTANT, is_copy = tracked == TRACKED_COPY;
    lane_access access = located(
        (lane_access){context, row, 0, 0, buffer, size, is_store, items, is_copy ? 0 : unit, 0, 0, 0, 0});
    for (int pass = 0; pass < (is_store || is_copy || is_constant ? 2 : 1); pass++)
        for (int lane = 0; lane < LANES; lane++) {
            if (!(mask >> lane & 1))
                continue;
            access.lane = lane;
            access.offset = places[lane] + base;
            access.items = items + lane * unit;
            if (pass == 0) {
                is_wrong |= check_lane(&access) || (is_constant && is_changed(&access));
                continue;
            }
            if (is_store)
                is_wrong |= note_lane(&access, mask, places);
            if (is_copy || is_constant)
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
        const lane_access access = located((lane_access){
            context, thread / LANES, thread % LANES, arguments->offsets.data[i],
            arguments->buffer, arguments->size, arguments->is_store, 0, 0, 0, 0, 0, 0});
        bool is_constant = arguments->tracked == TRACKED_CONSTANT;
        is_wrong |= arguments->tracked == TRACKED_PRODUCT ? check_product(&access) : check_lane(&access);
        is_wrong |= is_constant && is_changed(&access);
        if (arguments->is_store)
            is_wrong |= note_lane(&access, 0, 0);
        if (is_constant || arguments->tracked == TRACKED_COPY)
            note_copy(&access);
        else if (arguments->is_store)
            note_unfenced(&access);
    }
    context->suspicions |= is_wrong;
    return 0;
}

struct screen_transfers_arguments {
    ARRAY(1, launch_context) context;
    ARRAY(1, const int64_t) offsets;
    ARRAY(1, const int64_t) sizes;
    int64_t buffer, thread, is_store, tag;
};

/* Check the accesses of a thread's bulk copy. */
ENTRY(screen_transfers)(const struct screen_transfers_arguments *arguments)
{
    launch_context *context = arguments->context.data;
    int64_t thread = arguments->thread;
    bool is_wrong = false;
    for (int64_t i = 0; i < arguments->offsets.shape[0]; i++) {
        const lane_access access = located((lane_access){
            context, thread / LANES, thread % LANES, arguments->offsets.data[i],
            arguments->buffer, arguments->sizes.data[i], arguments->is_store, 0, 0, 0, 0, 0, 0});
        is_wrong |= check_transfer(&access, arguments->tag);
    }
    context->suspicions |= is_wrong;
    return 0;
}
