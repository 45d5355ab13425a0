"""What native turns are told of steps, and of where a wave stands: columns of a table, and places of an array."""

from __future__ import annotations

import numpy as np

# What a step is to this file: columns of a table.
KIND, END, FUNCTION, STORES, GUARD, NEGATED, TARGET, BLOCK_END, WEIGHT = range(9)
COLUMNS = 9
BY_PYTHON, SEGMENT, WHOLE_SEGMENT, BRANCH, BARRIER, LEAVE, WARP_WAIT = range(7)

# Where a wave stands: places of an array.
STATUS, IN_TURN, AT, TURN_END, COUNT, TOGETHER, LATE, TOTAL, LIMIT, BUDGET, PROGRESS, MEETINGS, CHANGED = range(13)
STATE_WORDS = 13
STEP, IDLE, FAULT, PAUSE = range(4)  # statuses
ALL = np.uint32(0xFFFFFFFF)
"""All lanes of a warp."""
