"""The context of compiled code: an array of 64-bit words with the addresses, sizes and counters that the code uses."""

import numpy as np

from warpfrag.machine.ir.state_spaces import SPACES

REGISTERS, WARP_BYTES, PARAMETERS, PARAMETER_BYTES, SHARED, SHARED_END, SHARED_STRIDE = range(7)
LOCAL, LOCAL_STRIDE, ALLOCATIONS, ALLOCATION_COUNT, WARP_BLOCK = range(7, 12)
FAULT_INST, FAULT_WARP, FAULT_MASK, INST_WAVEFRONTS, FAULT_ADDRESSES = range(12, 17)
READ_BYTES = 48  # one word per state space, after the addresses of 32 lanes
WRITTEN_BYTES = READ_BYTES + len(SPACES)
WAVEFRONTS = WRITTEN_BYTES + len(SPACES)
INST_CAUSES = WAVEFRONTS + len(SPACES)  # the address of `LaunchTally.causes`
SHARED_TAGS, WRITERS, BLOCK_WARPS = range(INST_CAUSES + 1, INST_CAUSES + 4)  # `interpreter.store_tags`
# addresses of per-instruction counters
INST_READ, INST_WRITTEN, INST_CONFLICTS = range(BLOCK_WARPS + 1, BLOCK_WARPS + 4)
SCREEN, SCREEN_STATE, SUSPICIONS = range(INST_CONFLICTS + 1, INST_CONFLICTS + 4)
"""The addresses of the screening function (0 for none) and of its state, and a word that is nonzero if an access is
uncertain (`access_screen.c`)."""
CLUSTER_WARPS = SUSPICIONS + 1
CONTEXT_WORDS = CLUSTER_WARPS + 1
ALLOCATION_WORDS = 5  # start, end, data, writable flag, tags
NO_FAULT = (1 << 62) - 1
"""The value of FAULT_INST until an access faults."""
SHARED_BUFFER, LOCAL_BUFFER, COPY_GROUPS = 1, 2, 3
"""Numbers of the buffers that have no row in the allocation table."""


# Columns of the instruction table, which has a row per instruction: its kind; the next instruction (or the one after
# its segment); the address of the segment's code and its number of stores; the byte offset of the guard (-1 for none),
# or of the convergence barrier; whether the guard is negated; the branch target; the end of its block; its weight in
# time slices; and whether pending mma and wgmma results must be written to registers before it runs.
KIND, END, FUNCTION, STORES, GUARD, NEGATED, TARGET, BLOCK_END, WEIGHT, NEEDS_PRODUCTS = range(10)
COLUMNS = 10
# Kinds: interpreted; compiled, for any lanes or only for whole warps; executed by the scheduler itself.
INTERPRETED, SEGMENT, WHOLE_WARP_SEGMENT, BRANCH, BARRIER, EXIT, WARP_WAIT, RECONVERGE = range(8)

# Words of the state. STATUS is the reason for the return to Python. The next six describe the lanes that have the time
# slice: whether there are any, their instruction, the end of its block, the number of their warps, whether they are all
# live lanes (converged), and the slices not yet counted per lane. The others describe the launch: executed warp
# instructions, their limit, the count at which control returns to Python, executed stores, barriers in use, whether
# Python has changed program counters, the number of pending products (`pending_mma`), and whether a block reached a
# barrier after some of its threads exited.
STATUS, IS_SCHEDULED, PC, SLICE_END, WARP_COUNT, IS_CONVERGED, PENDING_SLICES = range(7)
TOTAL, LIMIT, BUDGET, PROGRESS, BARRIERS_IN_USE, IS_STALE, PENDING_PRODUCTS, IS_LATE = range(7, 15)
STATE_WORDS = 15
# Statuses: the reason why the scheduler returned to Python. NEEDS_NOTHING is internal: it means "continue".
NEEDS_INTERPRETER, NONE_RUNNABLE, FAULT, OUT_OF_BUDGET, NEEDS_FLUSH, NEEDS_NOTHING = range(6)
ALL_LANES = np.uint32(0xFFFFFFFF)
"""The lane mask of a whole warp."""


SHARED_MARKS, LOCAL_MARKS, GLOBAL_MARKS = range(3)
"""Addresses of the shared-memory marks, of the local-memory marks, and of a table with each allocation's marks."""
SHARED_ACCESSES, GLOBAL_ACCESSES, CELL_SHIFT = range(3, 6)
"""Addresses of the shared-memory tags and of a table with each allocation's tags; number of offset bits in a cell."""
COPIES, PRODUCTS, FENCES, TRACKED_INSTRUCTIONS = range(6, 10)
"""Addresses of each thread's cp.async groups, wgmma groups and proxy fences, and of the instructions' classes."""
# Addresses of the bulk-copy groups, of the clocks, and of the times that proxy fences cover (`order_clocks.h`); the
# current time; and two flags: a warp has diverged, and the screen's result depends on stored values.
BULK_GROUPS, CLOCKS, FENCED, NOW, IS_SPLIT, IS_BY_VALUE = range(10, 16)
NOT_TRACKED, TRACKED_COPY, TRACKED_PRODUCT, TRACKED_FENCE, TRACKED_STORE, TRACKED_CONSTANT = range(6)
"""Classes of instructions, by the asynchronous accesses that they start or order."""
FENCED_CLOCKS, PRODUCT_CLOCKS, MBARRIER_CLOCKS, CLOCK_WORDS = range(32, 160, 32)
SCREEN_WORDS = 16
PADDING = 8
"""The number of padding bytes after a buffer's marks, which compiled code reads in whole words."""
MAX_BLOCKS = (1 << 25) - 2
COPY_WORDS, FENCE_WORDS = 4, 3
"""The number of words per thread for cp.async or wgmma groups, and for proxy fences."""
