"""Sparsity patterns: the columns of a chunk that each metadata code keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from warpfrag.isa.instruction_table import families_of
from warpfrag.isa.qualifiers import Form
from warpfrag.tables import read_table


@dataclass(frozen=True)
class Pattern:
    """A row of the table of sparsity patterns; `rising` and `descending` map codes to the stored columns, in order.

    If metadata is `ordered`, only the codes in `rising` are legal.
    """

    name: str
    chunk: int
    unit: int
    rising: dict[int, tuple[int, ...]] = field(hash=False)
    descending: dict[int, tuple[int, ...]] = field(hash=False)
    ordered: bool = False

    @property
    def kept(self) -> int:
        """The number of stored elements per chunk."""
        return len(next(iter(self.rising.values())))

    @property
    def columns(self) -> dict[int, tuple[int, ...]]:
        """The columns of the chunk that each legal code stores, in storage order."""
        return self.rising if self.ordered else self.rising | self.descending


@cache
def pattern(name: str, *, ordered: bool = False) -> Pattern:
    """Return the pattern 1:2, 2:4 or 4:8, after checking that its table row keeps half of each chunk."""
    table = read_table("sparsity")
    row = table["pattern"][name]
    unit = row["unit"]

    def columns(codes: dict[str, list[int]]) -> dict[int, tuple[int, ...]]:
        return {
            int(code, 2): tuple(unit * position + step for position in positions for step in range(unit))
            for code, positions in codes.items()
        }

    codes = table["codes"][row["codes"]]
    result = Pattern(name, row["chunk"], unit, columns(codes["rising"]), columns(codes["descending"]), ordered)
    if any(len(kept) * 2 != result.chunk for kept in (*result.rising.values(), *result.descending.values())):
        raise ValueError(f"sparsity pattern {name}: a code does not keep half of the {result.chunk} columns")
    return result


def pattern_of(form: Form) -> Pattern | None:
    """Return the sparsity pattern of a form's A, or None if A is dense."""
    name = families_of(form)[0].sparsity
    return pattern(name, ordered=form.is_ordered) if name else None
