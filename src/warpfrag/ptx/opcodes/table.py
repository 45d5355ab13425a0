"""The whole table, and the row of an instruction."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

from warpfrag.ptx.opcodes import comparing, converting, cooperating, floating, integer, moving, video
from warpfrag.ptx.opcodes.rows import Row, match
from warpfrag.ptx.program.actions import Action, Refused

ROWS: dict[str, list[Row]] = defaultdict(list)
for _room in (integer, floating, comparing, converting, moving, cooperating, video):
    for _row in _room.ROWS:
        ROWS[_row.opcode].append(_row)


@lru_cache(4096)
def find(name: str, operands: int) -> tuple[Row | None, Action]:
    """The row that an instruction belongs to and what it does; without one, why it is refused."""
    opcode = name.split(".", maxsplit=1)[0]
    if opcode not in ROWS:
        return None, Refused(f"{name} is not modelled: no row for {opcode}")
    reasons = []
    for candidate in ROWS[opcode]:
        words = match(candidate, name, operands)
        if isinstance(words, str):
            reasons.append(words)
        else:
            return candidate, candidate.make(words)
    # the row that read furthest says it best
    return None, Refused(f"{name} is not modelled: {opcode} is not known with {reasons[-1]}")
