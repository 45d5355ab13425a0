"""The context of compiled code: an array of 64-bit words with the addresses, sizes and counters that it uses."""

from __future__ import annotations

import numpy as np

from warpfrag.ptx.program.state_spaces import SPACES

REGISTERS, WARP_BYTES, PARAMETERS, PARAMETER_BYTES, SHARED, SHARED_END, SHARED_STRIDE = range(7)
LOCAL, LOCAL_STRIDE, ALLOCATIONS, ALLOCATION_COUNT, WARP_BLOCK = range(7, 12)
FAULT_INST, FAULT_WARP, FAULT_MASK, INST_WAVEFRONTS, FAULT_ADDRESSES = range(12, 17)
READ_BYTES = 48  # by state space, behind the addresses of 32 lanes
WRITTEN_BYTES = READ_BYTES + len(SPACES)
WAVEFRONTS = WRITTEN_BYTES + len(SPACES)
INST_CAUSES = WAVEFRONTS + len(SPACES)  # the address of `LaunchTally.causes`
SHARED_TAGS, WRITERS, BLOCK_WARPS = range(INST_CAUSES + 1, INST_CAUSES + 4)  # `interpreter.store_tags`
INST_READ, INST_WRITTEN, INST_CONFLICTS = range(BLOCK_WARPS + 1, BLOCK_WARPS + 4)  # addresses of counts by instruction
SCREEN, SCREEN_STATE, SUSPICIONS = range(INST_CONFLICTS + 1, INST_CONFLICTS + 4)
"""The function that is told of every access, 0 for none; what it works on (`access_screen`); uncertain lanes."""
CLUSTER_WARPS = SUSPICIONS + 1
CONTEXT_WORDS = CLUSTER_WARPS + 1
ALLOCATION_WORDS = 5  # of an allocation: start, end, data, writable, tags
NO_FAULT = (1 << 62) - 1
"""The value of FAULT_INST while no access has been a fault."""
SHARED_BUFFER, LOCAL_BUFFER, COPY_GROUPS = 1, 2, 3
"""The buffer of a reported access, besides rows of the table of allocations."""


# Columns of the table, which has a row for each instruction:
# how it runs, the instruction after it (or after its segment), the address and the stores of the segment's code,
# the byte offset of the guard (-1 for none), whether that is negated, the target of a branch, the end of its block,
# how many time slices that counts for, and whether the results of mma and wgmma must be in registers before it runs.
KIND, END, FUNCTION, STORES, GUARD, NEGATED, TARGET, BLOCK_END, WEIGHT, NEEDS_PRODUCTS = range(10)
COLUMNS = 10
# Kinds: interpreted; compiled, for any lanes or only for whole warps; run by the scheduler itself.
INTERPRETED, SEGMENT, WHOLE_WARP_SEGMENT, BRANCH, BARRIER, EXIT, WARP_WAIT = range(7)

# Words of the state. Of the lanes that have the time slice: whether there are any, their instruction, the end of its
# block, the number of their warps, whether they are all lanes that are alive (converged), and then the slices
# that are not yet counted lane by lane. Of the launch: warp instructions so far, their limit, after how many of them
# Python is asked again, stores so far, barriers that lanes wait at, whether Python has changed program counters, how
# many products are pending (`pending_mma`), and whether a block reached a barrier after some of its threads had exited.
STATUS, IS_SCHEDULED, PC, SLICE_END, WARP_COUNT, IS_CONVERGED, PENDING_SLICES = range(7)
TOTAL, LIMIT, BUDGET, PROGRESS, BARRIERS_IN_USE, IS_STALE, PENDING_PRODUCTS, IS_LATE = range(7, 15)
STATE_WORDS = 15
# Statuses: why the scheduler returned to Python; the last is that it need not.
NEEDS_INTERPRETER, NONE_RUNNABLE, FAULT, OUT_OF_BUDGET, NEEDS_FLUSH, NEEDS_NOTHING = range(6)
ALL_LANES = np.uint32(0xFFFFFFFF)
"""The mask of a whole warp."""


SHARED_MARKS, LOCAL_MARKS, GLOBAL_MARKS = range(3)
"""Of shared memory, of local memory, and a table with those of each allocation."""
SHARED_ACCESSES, GLOBAL_ACCESSES, CELL_SHIFT = range(3, 6)
"""Of shared memory, a table with those of each allocation, and the bits of an offset inside a cell."""
COPIES, COPY_INSTRUCTIONS = range(6, 8)
"""The groups of copies of each thread; a byte for each instruction, 1 for cp.async."""
SCREEN_WORDS = 8
PADDING = 8
"""Bytes behind the marks of a buffer, which are read word by word."""
WRITTEN = 0xFF
"""The mark of a byte that was written."""
CELL_BYTES = 16
"""Of the tags of a cell."""
INTERVAL_BIT, BLOCK_BIT = 10, 37
"""The first bits of the fields of a tag."""
MAX_BLOCKS = (1 << 25) - 2
SEVERAL = 1 << 62
"""Of a tag: other threads of the block have read the cell in the same interval, or have written the same to it."""
BY_COPY = -(1 << 63)
"""Of a tag of writes: it is of cp.async, and has the group of the copy above the number of its thread in the batch."""
EVERYBODY = -1
"""A tag of reads: threads of several blocks, or copies."""
COPY_THREAD_BITS = 20
GROUPS, GROUPS_DONE, DONE_INTERVAL, GROUPS_DONE_BEFORE = range(4)
"""Of each thread: groups of copies that it closed, those that it waited for, in which interval, and those before it."""
COPY_WORDS = 4
