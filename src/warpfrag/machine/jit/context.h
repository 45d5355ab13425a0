/* Structures and constants that the C files share with Python and with compiled kernels.

   Every member takes 8 bytes. `context.py` has the same words under the same names in capitals, as indices into arrays
   of 64-bit words. Constants have the same names as in `context.py` and in the interpreter modules that define them.
   tests/ptx/test_loops.py checks that they agree. */

#ifndef WARPFRAG_CONTEXT_H
#define WARPFRAG_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#define LANES 32
#define ALL_LANES 0xFFFFFFFF
#define SPACE_COUNT 5 /* state spaces: `ir/state_spaces.py` */

/* A row of the allocation table. */
typedef struct {
    int64_t start, end;
    uint8_t *data;
    int64_t writable, tags;
} allocation;

typedef struct {
    int64_t written, read; /* tags: `access_screen.c` */
} access_cell;

/* A thread's cp.async or wgmma groups: the number of closed groups, the number that it has waited for, the interval of
   its last wait, and the number that it had waited for before that interval. */
typedef struct {
    int64_t groups, groups_done, done_interval, groups_done_before;
} thread_groups;

/* A thread's fence.proxy.async instructions. `unfenced` is the interval of the thread's first store to shared memory
   that no fence follows yet (0 for none). `interval` is the interval of its last fence. `first` is the interval of the
   first store that this fence, or an earlier fence in the same interval, covers. */
typedef struct {
    int64_t unfenced, interval, first;
} thread_fences;

/* The state of a screened launch; 0 for everything that is not tracked. */
typedef struct {
    uint8_t *shared_marks, *local_marks, **global_marks; /* one for each allocation */
    access_cell *shared_accesses, **global_accesses;
    int64_t cell_shift; /* number of offset bits inside a cell */
    thread_groups *copies, *products;
    thread_fences *fences;
    const uint8_t *tracked_instructions; /* enum tracked */
    thread_groups *bulk_groups;          /* for bulk copies that no mbarrier counts */
    int64_t *clocks, *fenced, now;       /* `order_clocks.h` */
    int64_t is_split;                    /* 1 if lanes of a warp took different branches */
    int64_t is_by_value;                 /* 1 if the screen's result depends on stored values */
} screen_state;

typedef struct {
    int64_t registers, warp_bytes, parameters, parameter_bytes;
    uint8_t *shared;
    int64_t shared_end, shared_stride, local, local_stride;
    allocation *allocations;
    int64_t allocation_count, warp_block;
    int64_t fault_inst, fault_warp, fault_mask, inst_wavefronts, fault_addresses[LANES];
    int64_t read_bytes[SPACE_COUNT], written_bytes[SPACE_COUNT], wavefronts[SPACE_COUNT];
    int64_t inst_causes, shared_tags;
    const uint64_t *writers; /* each warp's store tag */
    int64_t block_warps, inst_read, inst_written, inst_conflicts;
    int64_t screen;
    screen_state *screen_state;
    int64_t suspicions, cluster_warps;
} launch_context;

#define NO_FAULT ((INT64_C(1) << 62) - 1)

/* Numbers of the buffers that have no row in the allocation table. */
enum buffers { SHARED_BUFFER = 1, LOCAL_BUFFER, COPY_GROUPS };

/* Instructions that start or order asynchronous accesses. */
enum tracked { NOT_TRACKED, TRACKED_COPY, TRACKED_PRODUCT, TRACKED_FENCE, TRACKED_STORE, TRACKED_CONSTANT };

/* The offsets of the parts of a warp's clocks: warps (0), fenced warps, wgmma groups by warp, and mbarriers. */
#define FENCED_CLOCKS 32
#define PRODUCT_CLOCKS 64
#define MBARRIER_CLOCKS 96
#define CLOCK_WORDS 128

/* A row of the instruction table. */
typedef struct {
    int64_t kind, end, function, stores, guard, negated, target, block_end, weight, needs_products;
} instruction_row;

enum kinds { INTERPRETED, SEGMENT, WHOLE_WARP_SEGMENT, BRANCH, BARRIER, EXIT, WARP_WAIT, RECONVERGE };

typedef struct {
    int64_t status, is_scheduled, pc, slice_end, warp_count, is_converged, pending_slices;
    int64_t total, limit, budget, progress, barriers_in_use, is_stale, pending_products, is_late;
} scheduler_state;

enum statuses { NEEDS_INTERPRETER, NONE_RUNNABLE, FAULT, OUT_OF_BUDGET, NEEDS_FLUSH, NEEDS_NOTHING };

/* `interpreter/warp_batch.py` */
#define NOT_RUNNABLE (INT64_C(1) << 62)
#define PRIORITY_UNIT (INT64_C(1) << 32)
#define QUANTUM 4096

/* `interpreter/store_tags.py` */
#define WORD_BYTES 15
#define WARP_SHIFT 4
#define INTERVAL_SHIFT 9
#define BLOCK_SHIFT 36
#define HAS_WAITED_SHIFT 63

/* `interpreter/mbarriers.py` */
#define COUNT ((1 << 20) - 1)
#define COUNT_SHIFT 20
#define TX_BITS 23
#define TX_SHIFT 40
#define MAX_TX ((1 << 20) - 1)
#define PARITY_SHIFT 63

#endif
