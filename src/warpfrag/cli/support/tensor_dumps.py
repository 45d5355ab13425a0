"""Tensor memory as text: a line for each lane, a hex word for each column, and of a pair of blocks the block before it.

    lane 0: 00000000 3f800000
    block 1 lane 37: 00000000 3f800000

Lines may leave the names out; they are then all lanes in order, the first block first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from warpfrag.errors import InvalidOperand, quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

LABEL = re.compile(r"(?:block (?P<block>\d{1,2})[ ,]+)?t?lane (?P<lane>\d{1,3}) *:", re.ASCII | re.IGNORECASE)
WORD = re.compile(r"(?:0x)?[0-9a-f]{1,8}", re.ASCII | re.IGNORECASE)


def tensor_lines(columns: NDArray[np.uint32]) -> Iterator[str]:
    """The lines of uint32[128, columns], of a pair uint32[2, 128, columns]."""
    for block, lanes in enumerate(columns if columns.ndim == 3 else [columns]):
        prefix = f"block {block} " if columns.ndim == 3 else ""
        for lane, words in enumerate(lanes.tolist()):
            yield f"{prefix}lane {lane}: {' '.join(f'{word:08x}' for word in words)}"


def read_tensor_dump(text: str, shape: tuple[int, ...]) -> NDArray[np.uint32]:
    """The columns that lines hold, of this shape; refused where lanes or columns are missing."""
    import numpy as np

    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lanes = shape[-2]
    count = lanes * (shape[0] if len(shape) == 3 else 1)
    rows: dict[int, list[int]] = {}
    for number, line in enumerate(lines):
        label = LABEL.match(line)
        place = number if label is None else int(label["block"] or 0) * lanes + int(label["lane"])
        words = line[label.end() if label else 0 :].split()
        wrong = next((word for word in words if not WORD.fullmatch(word)), None)
        if wrong is not None or len(words) != shape[-1] or not place < count or place in rows:
            expected = f"{shape[-1]} hex words of one lane 0..{lanes - 1}, each lane once"
            msg = f"line {number + 1}: expected {expected}; got {quote(wrong if wrong is not None else line)}"
            raise InvalidOperand(msg)
        rows[place] = [int(word, 16) for word in words]
    if len(rows) != count:
        msg = f"expected {count} lanes of tensor memory, got {len(rows)}"
        raise InvalidOperand(msg)
    return np.array([rows[place] for place in range(count)], np.uint32).reshape(shape)
