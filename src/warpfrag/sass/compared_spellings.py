"""The spellings of machine code that were compared with a GPU; `python -m tools.sass evidence` writes the table."""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path
from typing import NamedTuple

TABLE = "compared_{}.txt.xz"


class ComparedSpelling(NamedTuple):
    """A compared spelling, with the number of matching kernels, operand sets and distinct operand sets."""

    spelling: str
    kernels: int
    sets: int
    distinct: int


@cache
def compared_rows(arch: str) -> tuple[ComparedSpelling, ...]:
    """Return the rows of an architecture's table; empty if nothing was compared."""
    path = Path(__file__).parent / TABLE.format(arch)
    if not path.is_file():
        return ()
    rows = []
    for line in lzma.decompress(path.read_bytes()).decode().splitlines():
        spelling, *counts = line.split("\t")
        rows.append(ComparedSpelling(spelling, *map(int, counts)))
    return tuple(rows)


@cache
def read_compared(arch: str) -> frozenset[str]:
    """Return the compared spellings of an architecture."""
    return frozenset(row.spelling for row in compared_rows(arch))


def is_compared(spelling: str, compared: frozenset[str]) -> bool:
    """Return True if a spelling was compared, or its form with R instead of RZ, because RZ always reads as zero."""
    name, _, forms = spelling.partition(" ")
    return spelling in compared or f"{name} {forms.replace('RZ', 'R')}" in compared
