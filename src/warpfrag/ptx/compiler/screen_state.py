"""What a screened launch shares with the function that compiled code tells of accesses: words, marks and tags.

`SHARED_MARKS` and its like are words of the state, most of them addresses, 0 where nothing is followed. A mark is a
byte for each byte of memory. Accesses are two tags for each cell of memory: of the last write, and of reads. From the
low end a tag has the lane (5 bits), the warp in its block (5), the interval between two barriers of the block (27) and
the block and one (25): so it is the tag of `interpreter.store_tags` with the lane in place of the bytes.
"""

from __future__ import annotations

SHARED_MARKS, LOCAL_MARKS, GLOBAL_MARKS = range(3)
"""Of shared memory, of local memory, and a table with those of each allocation."""
SHARED_ACCESSES, GLOBAL_ACCESSES, CELL_SHIFT = range(3, 6)
"""Of shared memory, a table with those of each allocation, and the bits of an offset inside a cell."""
COPIES, COPY_STEPS = range(6, 8)
"""The groups of copies of each thread; a byte for each step, 1 for cp.async."""
STATE_WORDS = 8
PADDING = 8
"""Bytes behind the marks of a buffer, which are read word by word."""
WRITTEN = 0xFF
"""The mark of a byte that was written."""
CELL_BYTES = 16
"""Of the tags of a cell."""
INTERVAL_BIT, BLOCK_BIT = 10, 37
"""Where the fields of a tag begin."""
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
