"""The figures of the PTX ISA that warpfrag draws, by number: the rows of `tables/figures.toml`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from warpfrag.errors import InvalidOperand, quote
from warpfrag.tables import read_table
from warpfrag.viz.grids import Range


@dataclass(frozen=True)
class FigureRow:
    """One row of the table of figures; the head of the table explains the fields."""

    key: str
    caption: str
    section: str
    instruction: str
    operand: str = ""
    view: str = ""
    rows: Range | None = None
    cols: Range | None = None
    parts: Range | None = None
    selector: int = 0

    @property
    def title(self) -> str:
        """The caption, after the figure number if there is one."""
        return f"Figure {self.key}: {self.caption}" if self.key.isdigit() else self.caption

    @property
    def command(self) -> str:
        """The command that draws the figure without its number."""
        words = ["warpfrag draw", self.instruction, self.operand]
        for name in ("view", "rows", "cols", "parts", "selector"):
            choice = getattr(self, name)
            if choice:
                words.append(f"--{name} {'{}-{}'.format(*choice) if isinstance(choice, tuple) else choice}")
        return " ".join(word for word in words if word)


@cache
def figure_rows() -> dict[str, FigureRow]:
    """Return every row by its key: a figure number of the ISA, or a name chosen by warpfrag."""
    rows = list(_read())
    by_key = {row.key: row for row in rows}
    if len(by_key) != len(rows):
        raise ValueError("table figures: two rows with the same key")
    return by_key


def _read() -> Iterator[FigureRow]:
    for section in read_table("figures")["section"]:
        for row in section["figures"]:
            ranges = {name: tuple(row[name]) for name in ("rows", "cols", "parts") if name in row}
            yield FigureRow(
                **{"instruction": section.get("instruction", ""), **row, **ranges, "key": str(row["key"])},
                section=section["title"],
            )


def figure_row(key: int | str) -> FigureRow:
    """Return the row of a figure; for an unknown key, raise an error with similar keys."""
    rows = figure_rows()
    wanted = str(key)
    if wanted in rows:
        return rows[wanted]
    near = difflib.get_close_matches(wanted, rows, n=3, cutoff=0.4)
    hint = f"; near: {', '.join(near)}" if near else ""
    raise InvalidOperand(f"unknown figure {quote(wanted)}{hint}; figures are {', '.join(rows)}")
