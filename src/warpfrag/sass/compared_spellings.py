"""The machine-code spellings that were compared with a GPU; `python -m tools.sass evidence` writes the table."""

import lzma
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

TABLE = "compared_{}.txt.xz"


class ComparedSpelling(NamedTuple):
    """A compared spelling, with the numbers of matching kernels, operand sets and distinct operand sets."""

    spelling: str
    kernels: int
    sets: int
    distinct: int


@cache
def compared_rows(arch: str) -> tuple[ComparedSpelling, ...]:
    """Return the rows of an architecture's table, which is empty if nothing was compared."""
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
    """Return True if a spelling, or an equivalent one, was compared with a GPU.

    An equivalent spelling has the same encoding fields, but names a register where this one names none: R instead of
    RZ, or [R+UR] instead of [UR]. This includes the accumulator predicate and the scoreboard of wgmma:
    `HGMMA R,gdesc[UR],R` is equivalent to `HGMMA R,gdesc[UR],R,UP,gsb`.
    """
    return spelling in compared or not compared.isdisjoint(equivalents(spelling))


def equivalents(spelling: str) -> tuple[str, ...]:
    """Return the equivalent spellings that name a register or scoreboard where the given one names none."""
    name, _, forms = spelling.partition(" ")
    forms = forms.replace("RZ", "R")
    named = forms.replace("[UR]", "[R+UR]")
    if "GMMA" in name:
        named = re.sub(r"(gdesc\[UR\][^,]*,R)(?!,~?UP)", r"\1,UP", forms).removesuffix(",gsb") + ",gsb"
    return f"{name} {forms}", f"{name} {named}"
