"""What the compiled scheduler shares with Python: the columns of its table of steps, and the words of its state."""

from __future__ import annotations

import numpy as np

# Columns of the table, which has a row for each step:
# how it runs, the step after it (or after its segment), the address of the segment's code, how many stores that has,
# the byte offset of the guard (-1 for none), whether that is negated, the target of a branch, the end of its block,
# how many time slices that counts for, and whether the results of mma and wgmma must be in registers before it runs.
KIND, END, FUNCTION, STORES, GUARD, NEGATED, TARGET, BLOCK_END, WEIGHT, NEEDS_PRODUCTS = range(10)
# Of an mbarrier (`mbarrier_steps`): the byte offsets of the registers with its address and with the count, bytes or
# parity (-1 for none), each before what is added to it; that of the predicate of a wait; whether it expects bytes.
ADDRESS, OFFSET, NUMBER, NUMBER_VALUE, RESULT, IS_TRANSACTION = range(10, 16)
COLUMNS = 16
# Kinds: by the interpreter; compiled code, for any lanes or only for whole warps; steps that the scheduler itself runs.
INTERPRETED, SEGMENT, WHOLE_WARP_SEGMENT, BRANCH, BARRIER, EXIT, WARP_WAIT, WAITS, ARRIVES = range(9)

# Words of the state. Of the lanes that have the time slice: whether there are any, the step they are at, the end of
# their block, how many warps they are of, whether they are all lanes that are alive (converged), and then the slices
# that are not yet counted lane by lane. Of the launch: warp instructions so far, their limit, after how many of them
# Python is asked again, stores so far, barriers that lanes wait at, whether Python has changed program counters, how
# many products are pending (`pending_products`), whether a block reached a barrier after some of its threads had
# exited, whether somebody watches memory, so that Python runs mbarriers, and how many of the warps go on to the next
# step: all, but for those that a wait puts to sleep.
STATUS, IS_SCHEDULED, PC, SLICE_END, WARP_COUNT, IS_CONVERGED, PENDING_SLICES = range(7)
TOTAL, LIMIT, BUDGET, PROGRESS, BARRIERS_IN_USE, IS_STALE, PENDING_PRODUCTS, IS_LATE = range(7, 15)
IS_WATCHED, RUN_WARPS = range(15, 17)
STATE_WORDS = 17
# Statuses: why the scheduler returned to Python; the last is that it need not.
NEEDS_INTERPRETER, NONE_RUNNABLE, FAULT, OUT_OF_BUDGET, NEEDS_FLUSH, NEEDS_NOTHING = range(6)
ALL_LANES = np.uint32(0xFFFFFFFF)
"""The mask of a whole warp."""
