"""Find the opcode rows that random kernels cover."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from tools.fuzz.spellings import candidates, table
from warpfrag.machine.ops import asynchronous
from warpfrag.machine.ops.opcode_lookup import ROWS, find

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tools.fuzz.kernel import Kernel

GUARD = re.compile(r"^@\S+ ")
LEFT_TO_TEXTURES = {"tex", "tld4", "suld", "sust", "sured"}
"""Opcodes on texture and surface handles, which `tools.textures` compares."""
NOT_ON_HOPPER = {"tcgen05"}
UNDEFINED = {"discard"}
"""Opcodes that leave undefined bytes in memory, which cannot be compared (tests/sass/test_changed_data.py)."""

LEFT_TO_LAUNCHES = {id(row) for row in asynchronous.ROWS}
"""Rows for tensor maps and clusters, which `tests/ptx/hopper_launches.py` covers."""


@lru_cache(1)
def row_names() -> dict[int, str]:
    """Return a name for each row: its opcode, types and required qualifiers."""
    names: dict[int, str] = {}
    for opcode, rows in ROWS.items():
        for number, row in enumerate(rows):
            words = ["|".join(choice.words) for choice in row.modifiers.values() if choice.is_required]
            types = ["|".join(kind.name for kind in kinds) for kinds in row.types]
            names[id(row)] = f"{opcode}#{number} {'.'.join([*words, *types])}".strip()
    return names


def rows_of(kernel: Kernel) -> set[str]:
    """Return the names of a kernel's rows."""
    return {name for name in map(row_of, {(s.name, len(s.operands)) for s in kernel.statements()}) if name}


@lru_cache(10_000)
def row_of(opcode: tuple[str, int]) -> str:
    """Return the name of the row for an opcode and its number of operands."""
    row = find(*opcode).row
    return row_names()[id(row)] if row is not None else ""


@lru_cache(1)
def refused_rows() -> set[int]:
    """Return the rows without a spelling that ptxas accepts for any target."""
    taken: dict[int, bool] = {}
    for case in candidates():
        is_taken = any(answer != "-" for answer in table().get(case.name, ()))
        taken[id(case.row)] = taken.get(id(case.row), False) or is_taken
    return {row for row, is_taken in taken.items() if not is_taken}


def missing(counts: Counter[str], at_least: int = 1) -> list[str]:
    """Return the rows that fewer than `at_least` kernels have, except those that ptxas never accepts."""
    left_out = refused_rows() | LEFT_TO_LAUNCHES
    wanted = [name for row, name in row_names().items() if row not in left_out]
    wanted = [name for name in wanted if name.split("#")[0] not in LEFT_TO_TEXTURES | NOT_ON_HOPPER | UNDEFINED]
    return [name for name in wanted if counts[name] < at_least]


def missing_in_text(texts: Iterable[str]) -> list[str]:
    """Return the rows that no module contains, by the opcodes of its statements."""
    words = {GUARD.sub("", part.strip()).split(" ")[0] for text in texts for part in re.split("[;\n]", text)}
    return missing(Counter(row_of((word, 3)) for word in words if word.split(".")[0] in ROWS))
