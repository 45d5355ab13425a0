/* The scheduler: selects lanes to run by the interpreter's rules (`warp_batch.py`), without Python.

   It gives time slices to the lanes that are furthest behind, and calls the machine code of their instructions. For an
   instruction that needs Python it returns a status; Python runs the instruction and calls again. While all live lanes
   are at one instruction, as is usual, program counters are not written lane by lane. */

#include <string.h>

#include "machine/jit/order_clocks.h"
#include "tensorcore/kernels/arguments.h"

typedef bool lane_flags[LANES];
typedef int64_t lane_numbers[LANES];
typedef void segment_function(launch_context *context, const int64_t *rows, const uint32_t *masks, int64_t count);

typedef struct {
    const instruction_row *table;
    scheduler_state *state;
    launch_context *context;
    const uint8_t *registers;
    int64_t warp_bytes, warps;
    lane_flags *alive, *waiting; /* indexed by warp */
    lane_numbers *pc, *slices;
    int64_t *priorities; /* indexed by warp */
    int64_t *rows;       /* the warps that have the time slice */
    uint32_t *masks;     /* the lanes of these warps that have it */
    const int64_t *blocks;
    int64_t *runs;
    uint64_t *writers;
    bool *exited;
} scheduler;

/* Return the flags of a warp's lanes as a mask. The multiplication moves the lowest bit of byte i to bit 56 + i. */
INLINED uint32_t mask_of(const lane_flags flags)
{
    uint32_t mask = 0;
    for (int lane = 0; lane < LANES; lane += 8) {
        uint64_t bytes;
        memcpy(&bytes, flags + lane, 8);
        mask |= (uint32_t)(bytes * UINT64_C(0x0102040810204080) >> 56) << lane;
    }
    return mask;
}

static void set_pc(lane_numbers pc, uint32_t mask, int64_t value)
{
    for (int lane = 0; lane < LANES; lane++)
        if (mask >> lane & 1)
            pc[lane] = value;
}

/* Return the lowest priority of a warp's runnable lanes: the program counter and, above it, the used quanta. */
static int64_t priority_of(const scheduler *self, int64_t row)
{
    int64_t best = NOT_RUNNABLE;
    for (int lane = 0; lane < LANES; lane++) {
        uint64_t quanta = (uint64_t)self->slices[row][lane] / QUANTUM;
        int64_t priority = (int64_t)(quanta * PRIORITY_UNIT) + self->pc[row][lane];
        bool is_runnable = self->alive[row][lane] & !self->waiting[row][lane];
        best = is_runnable && priority < best ? priority : best;
    }
    return best;
}

/* Return the program counter that a priority contains. */
INLINED int64_t pc_of(int64_t priority)
{
    return priority & (PRIORITY_UNIT - 1);
}

/* Return the lanes of a warp whose guard holds, or all lanes if there is no guard. */
static uint32_t guarded_mask(const scheduler *self, const instruction_row *inst, int64_t index)
{
    uint32_t mask = self->masks[index];
    if (inst->guard < 0)
        return mask;
    const uint8_t *predicate = self->registers + self->rows[index] * self->warp_bytes + inst->guard;
    lane_flags holds;
    for (int lane = 0; lane < LANES; lane++)
        holds[lane] = predicate[lane] != 0;
    return (inst->negated ? ~mask_of(holds) : mask_of(holds)) & mask;
}

/* Return the runnable lanes of a warp that are at an instruction. */
static uint32_t lanes_at(const scheduler *self, int64_t row, int64_t pc)
{
    lane_flags is_here;
    for (int lane = 0; lane < LANES; lane++)
        is_here[lane] = self->pc[row][lane] == pc;
    return mask_of(is_here) & mask_of(self->alive[row]) & ~mask_of(self->waiting[row]);
}

/* Give a time slice to the lanes that are furthest behind; return false if none can run. */
static bool schedule_next(const scheduler *self)
{
    scheduler_state *state = self->state;
    int64_t best = NOT_RUNNABLE;
    for (int64_t row = 0; row < self->warps; row++)
        best = self->priorities[row] < best ? self->priorities[row] : best;
    if (best == NOT_RUNNABLE)
        return false;
    int64_t start = pc_of(best), count = 0;
    bool is_converged = true;
    for (int64_t row = 0; row < self->warps; row++) {
        uint32_t mask = 0;
        if (self->priorities[row] != NOT_RUNNABLE && pc_of(self->priorities[row]) == start) {
            mask = lanes_at(self, row, start);
            self->rows[count] = row;
            self->masks[count++] = mask;
        }
        is_converged = is_converged && mask == mask_of(self->alive[row]);
    }
    int64_t weight = self->table[start].weight;
    state->pc = start;
    state->warp_count = count;
    state->is_converged = is_converged;
    state->is_scheduled = 1;
    state->slice_end = self->table[start].block_end;
    if (is_converged) {
        state->pending_slices += weight;
        return true;
    }
    for (int64_t i = 0; i < count; i++)
        for (int lane = 0; lane < LANES; lane++)
            if (self->masks[i] >> lane & 1)
                self->slices[self->rows[i]][lane] += weight;
    return true;
}

static void add_pending_slices(const scheduler *self)
{
    int64_t pending = self->state->pending_slices;
    for (int64_t row = 0; row < self->warps; row++)
        for (int lane = 0; lane < LANES; lane++)
            self->slices[row][lane] += pending;
    self->state->pending_slices = self->state->is_converged = 0;
}

/* End the time slice of lanes whose program counters are set, and update the priorities of their warps. */
static void end_slice(const scheduler *self)
{
    if (self->state->is_converged)
        add_pending_slices(self);
    for (int64_t i = 0; i < self->state->warp_count; i++)
        self->priorities[self->rows[i]] = priority_of(self, self->rows[i]);
    self->state->is_scheduled = 0;
}

/* Send all lanes of this time slice to one instruction; do not store their program counters while they are converged.

   They are stored before control returns to Python, which may run other lanes. */
static void jump(const scheduler *self, int64_t target)
{
    scheduler_state *state = self->state;
    if (state->is_converged && state->total <= state->budget) {
        state->pc = target;
        state->slice_end = self->table[target].block_end;
        state->pending_slices += self->table[target].weight;
        return;
    }
    for (int64_t i = 0; i < state->warp_count; i++)
        set_pc(self->pc[self->rows[i]], self->masks[i], target);
    end_slice(self);
}

/* Send lanes whose guard holds to the target, and the others to the next instruction. */
static void branch(const scheduler *self, int64_t at)
{
    const instruction_row *inst = &self->table[at];
    bool some = false, every = true;
    for (int64_t i = 0; i < self->state->warp_count; i++) {
        uint32_t mask = guarded_mask(self, inst, i);
        some = some || mask != 0;
        every = every && mask == self->masks[i];
    }
    if (every || !some) {
        jump(self, some ? inst->target : at + 1);
        return;
    }
    screen_state *screen = self->context->screen_state;
    for (int64_t i = 0; i < self->state->warp_count; i++) {
        int64_t row = self->rows[i];
        uint32_t mask = guarded_mask(self, inst, i);
        set_pc(self->pc[row], self->masks[i], at + 1);
        set_pc(self->pc[row], mask, inst->target);
        if (screen && mask && mask != self->masks[i])
            screen->is_split = 1;
    }
    end_slice(self);
}

/* Pass a barrier: order the later stores of this time slice's warps after their earlier ones. */
static void pass_barrier(const scheduler *self)
{
    for (int64_t i = 0; i < self->state->warp_count; i++) {
        int64_t row = self->rows[i];
        self->writers[row] += UINT64_C(1) << INTERVAL_SHIFT;
        self->state->is_late |= self->exited[self->blocks[row]];
    }
    join_warps(self->context, self->rows, self->state->warp_count);
}

static void exit_lanes(const scheduler *self)
{
    for (int64_t i = 0; i < self->state->warp_count; i++) {
        int64_t row = self->rows[i];
        self->exited[self->blocks[row]] = true;
        set_pc(self->pc[row], self->masks[i], self->state->pc);
        for (int lane = 0; lane < LANES; lane++)
            if (self->masks[i] >> lane & 1)
                self->alive[row][lane] = false;
    }
    end_slice(self);
}

static bool warps_are_whole(const scheduler *self)
{
    uint32_t mask = ALL_LANES;
    for (int64_t i = 0; i < self->state->warp_count; i++)
        mask &= self->masks[i];
    return mask == ALL_LANES;
}

/* Return true if all live lanes in the convergence barriers of these lanes are here, each with the same mask. */
static bool barriers_are_complete(const scheduler *self, const instruction_row *inst)
{
    for (int64_t i = 0; i < self->state->warp_count; i++) {
        int64_t row = self->rows[i];
        uint32_t left = self->masks[i], alive = mask_of(self->alive[row]), barriers[LANES];
        memcpy(barriers, self->registers + row * self->warp_bytes + inst->guard, sizeof barriers);
        for (int lane = 0; left; lane++) {
            uint32_t same = 0;
            for (int other = 0; left >> lane & 1 && other < LANES; other++)
                same |= (uint32_t)(barriers[other] == barriers[lane]) << other;
            if (same && barriers[lane] & alive & ~(same & self->masks[i]))
                return false;
            left &= ~same;
        }
    }
    return true;
}

/* Return true if other lanes of these warps are waiting. */
static bool any_waiting(const scheduler *self)
{
    uint32_t mask = 0;
    for (int64_t i = 0; i < self->state->warp_count; i++)
        mask |= mask_of(self->waiting[self->rows[i]]);
    return mask != 0;
}

static bool has_warp_here(const scheduler *self, int64_t block)
{
    for (int64_t i = 0; i < self->state->warp_count; i++)
        if (self->blocks[self->rows[i]] == block)
            return true;
    return false;
}

/* Return true if all live lanes in the blocks of these warps are here. */
static bool blocks_are_whole(const scheduler *self)
{
    if (self->state->is_converged)
        return true;
    int64_t index = 0;
    for (int64_t row = 0; row < self->warps; row++) {
        uint32_t alive = mask_of(self->alive[row]);
        if (index < self->state->warp_count && self->rows[index] == row) {
            if (self->masks[index++] != alive)
                return false;
        } else if (alive && has_warp_here(self, self->blocks[row])) {
            return false;
        }
    }
    return true;
}

/* Return true if the lanes of this time slice can run an instruction without Python. */
static bool can_run(const scheduler *self, const instruction_row *inst)
{
    switch (inst->kind) {
    case SEGMENT:
    case BRANCH:
        return true;
    case WHOLE_WARP_SEGMENT:
    case WARP_WAIT:
        return warps_are_whole(self);
    case RECONVERGE:
        return barriers_are_complete(self, inst);
    case BARRIER:
        return self->state->barriers_in_use == 0 && blocks_are_whole(self);
    case EXIT:
        return self->state->barriers_in_use == 0 && !any_waiting(self);
    default:
        return false;
    }
}

/* Return the reason why this time slice's instruction needs Python, as a status. */
static int64_t needs_of(const scheduler *self)
{
    const scheduler_state *state = self->state;
    const instruction_row *inst = &self->table[state->pc];
    int64_t total = state->total + (inst->end - state->pc) * state->warp_count;
    if (total > state->limit || !can_run(self, inst))
        return NEEDS_INTERPRETER;
    return state->pending_products && inst->needs_products ? NEEDS_FLUSH : NEEDS_NOTHING;
}

/* Run machine code, a branch, a barrier or an exit for the lanes of this time slice. */
static void run_instruction(const scheduler *self, int64_t at)
{
    const instruction_row *inst = &self->table[at];
    switch (inst->kind) {
    case SEGMENT:
    case WHOLE_WARP_SEGMENT: {
        segment_function *function = (segment_function *)(intptr_t)inst->function;
        function(self->context, self->rows, self->masks, self->state->warp_count);
        break;
    }
    case BRANCH:
        branch(self, at);
        break;
    case BARRIER:
        pass_barrier(self);
        break;
    case EXIT:
        exit_lanes(self);
        break;
    default: /* WARP_WAIT and RECONVERGE: all lanes are here, so there is nothing to wait for */
        break;
    }
}

/* Recompute the priorities of all warps after Python has changed program counters. */
static void refresh(const scheduler *self)
{
    add_pending_slices(self);
    for (int64_t row = 0; row < self->warps; row++)
        self->priorities[row] = priority_of(self, row);
    self->state->is_stale = self->state->is_scheduled = 0;
}

/* Run until Python is needed; return the reason. */
static int64_t run_until_needed(const scheduler *self)
{
    scheduler_state *state = self->state;
    if (state->is_stale)
        refresh(self);
    for (;;) {
        if (!state->is_scheduled) {
            if (state->total > state->budget)
                return OUT_OF_BUDGET;
            if (!schedule_next(self))
                return NONE_RUNNABLE;
        }
        int64_t at = state->pc;
        if (at == state->slice_end) {
            jump(self, at);
            continue;
        }
        int64_t status = needs_of(self);
        if (status != NEEDS_NOTHING)
            return status;
        const instruction_row *inst = &self->table[at];
        self->runs[at] += state->warp_count;
        state->total += (inst->end - at) * state->warp_count;
        state->pc = inst->end;
        state->progress += inst->stores;
        run_instruction(self, at);
        if (self->context->fault_inst != NO_FAULT)
            return FAULT;
    }
}

/* `flags` has the alive and waiting flags, `numbers` the program counters and time slices; `lists` has the priority
   of every warp, then the rows and the lane masks of the warps that have the time slice. `blocks` has the block of
   every warp; `runs` counts the warps that ran each segment, by its first instruction; `writers` has the store
   tag of every warp, which each barrier changes (`store_tags.py`); `exited` is true for blocks with exited threads. */
struct run_scheduler_arguments {
    ARRAY(2, const instruction_row) table;
    ARRAY(1, scheduler_state) state;
    ARRAY(1, launch_context) context;
    ARRAY(2, const uint8_t) registers;
    ARRAY(3, bool) flags;
    ARRAY(3, int64_t) numbers;
    ARRAY(2, int64_t) lists;
    ARRAY(1, const int64_t) blocks;
    ARRAY(1, int64_t) runs;
    ARRAY(1, uint64_t) writers;
    ARRAY(1, bool) exited;
};

ENTRY(run_scheduler)(const struct run_scheduler_arguments *arguments)
{
    int64_t warps = arguments->lists.shape[1];
    lane_flags *flags = (lane_flags *)arguments->flags.data;
    lane_numbers *numbers = (lane_numbers *)arguments->numbers.data;
    const scheduler self = {
        .table = arguments->table.data,
        .state = arguments->state.data,
        .context = arguments->context.data,
        .registers = arguments->registers.data,
        .warp_bytes = arguments->registers.shape[1],
        .warps = warps,
        .alive = flags,
        .waiting = flags + warps,
        .pc = numbers,
        .slices = numbers + warps,
        .priorities = arguments->lists.data,
        .rows = arguments->lists.data + warps,
        .masks = (uint32_t *)(arguments->lists.data + 2 * warps),
        .blocks = arguments->blocks.data,
        .runs = arguments->runs.data,
        .writers = arguments->writers.data,
        .exited = arguments->exited.data,
    };
    self.state->status = run_until_needed(&self);
    return 0;
}
