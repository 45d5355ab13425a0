"""The profile of a launch: what every line executed, moved and multiplied, by line of PTX or of the source.

These are counts, not times: warp instructions, bytes, wavefronts of memory and how many of them are bank conflicts, and
the operations of tensor cores. Both engines count the same. A profile is text (`str`), JSON (`to_dict`), a card in a
notebook, and a page (`warpfrag ptx profile -o page.html`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from warpfrag.ptx.program.actions import MatrixOp
from warpfrag.ptx.program.program import DecodedInstruction
from warpfrag.ptx.reader.source_lines import SourceLine

MAX_ROWS = 20  # of a text or a card
WARPGROUP = 4  # warps, each of which counts a wgmma
QUAD_PAIRS = 4  # products of mma.m8n8k4 with f16


@dataclass(frozen=True)
class LineProfile:
    """Counts of a line: warp instructions, bytes, wavefronts, bank conflicts, tensor core operations."""

    line: int  # of the PTX, or of the source
    text: str
    source: SourceLine | None = None
    instructions: int = 0
    read: int = 0  # bytes
    written: int = 0
    wavefronts: int = 0
    conflicts: int = 0
    tensor_operations: int = 0

    def __add__(self, other: LineProfile) -> LineProfile:
        """The counts of both, under the name of this one."""
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in COLUMNS})


COLUMNS = tuple(item.name for item in fields(LineProfile) if item.name not in {"line", "text", "source"})
HEADINGS = {
    "instructions": "instructions", "read": "bytes read", "written": "bytes written", "wavefronts": "wavefronts",
    "conflicts": "conflicts", "tensor_operations": "tensor operations",
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Profile:
    """The counts of a launch: `lines` of the PTX that ran, in order; `by_source` the same by line of the source."""

    kernel: str
    arch: str
    lines: tuple[LineProfile, ...]

    @classmethod
    def of(
        cls,
        kernel: str,
        arch: str,
        texts: Mapping[int, str],
        sources: Mapping[int, SourceLine],
        counts: Mapping[str, Mapping[int, int]],
    ) -> Profile:
        """The profile of counts by line, under the names of `COLUMNS`."""
        rows = [
            LineProfile(line, text, sources.get(line), **{name: counts.get(name, {}).get(line, 0) for name in COLUMNS})
            for line, text in sorted(texts.items())
        ]
        return cls(kernel, arch, tuple(rows))

    @property
    def total(self) -> LineProfile:
        """All lines together."""
        return _sum(self.lines, LineProfile(0, "all"))

    @property
    def by_source(self) -> tuple[LineProfile, ...]:
        """One row for each line of the kernel's own source: what was inlined counts at the line of its call.

        Lines of PTX of which .loc says nothing are one row, with line 0. Without any .loc it is that row alone.
        """
        rows: dict[SourceLine | None, LineProfile] = {}
        for item in self.lines:
            source = None if item.source is None else item.source.outermost
            name = "no source line" if source is None else str(source)
            empty = LineProfile(0 if source is None else source.line, name, source)
            rows[source] = rows.get(source, empty) + item
        return tuple(sorted(rows.values(), key=lambda row: (row.source is None, row.source or ("", 0))))

    def __repr__(self) -> str:
        """The sums."""
        total = self.total
        parts = [f"{getattr(total, name):,} {heading}" for name, heading in HEADINGS.items() if getattr(total, name)]
        return f"<Profile of {self.kernel} on {self.arch}: {', '.join(parts)}>"

    def __str__(self) -> str:
        """The lines that count most, by source where there is one, as a table."""
        return "\n".join([repr(self)[1:-1], *_table(*self.table())])

    def table(
        self, *, by: str = "", sort: str = "instructions", limit: int | None = MAX_ROWS
    ) -> tuple[list[str], list[list[str]]]:
        """Headings and rows as texts, largest first; `by` is "source" or "line", by default what there is."""
        by_source = by == "source" or (not by and any(item.source is not None for item in self.lines))
        rows = list(self.by_source if by_source else self.lines)
        if sort != "line":
            rows.sort(key=lambda row: -getattr(row, sort))
        used = [name for name in COLUMNS if name == "instructions" or any(getattr(row, name) for row in rows)]
        heads = ["source" if by_source else "line", *(HEADINGS[name] for name in used)]
        cells = [
            [row.text if by_source else str(row.line), *(f"{getattr(row, name):,}" for name in used)]
            for row in rows[:limit]
        ]
        if not by_source:
            heads.append("instruction")
            cells = [[*cell, row.text] for cell, row in zip(cells, rows, strict=False)]
        return heads, cells

    def _repr_html_(self) -> str:
        """A card for notebooks."""
        from warpfrag.html import card, escape, table

        return card(f"<code>{escape(repr(self)[1:-1])}</code>", table(*self.table()))

    def to_dict(self) -> dict[str, object]:
        """Everything as plain numbers and texts."""
        return {
            "kernel": self.kernel,
            "arch": self.arch,
            "total": _plain(self.total),
            "lines": [_plain(row) for row in self.lines],
            "by_source": [_plain(row) for row in self.by_source if row.source is not None],
        }


def _plain(row: LineProfile) -> dict[str, object]:
    return asdict(row) | {"source": None if row.source is None else str(row.source)}


def _sum(rows: Iterable[LineProfile], start: LineProfile) -> LineProfile:
    for row in rows:
        start += row
    return start


def _table(heads: list[str], rows: list[list[str]]) -> list[str]:
    """Lines of a table: texts to the left, numbers to the right."""
    columns = list(zip(heads, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for cells in (heads, *rows):
        parts = [
            cell.ljust(width)
            if at in {0, *([len(heads) - 1] if heads[-1] == "instruction" else [])}
            else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append("  ".join(parts).rstrip())
    return lines


def tensor_operations(inst: DecodedInstruction) -> int:
    """The multiplications and additions of a matrix instruction, 2 m n k, by each warp that takes part.

    A sparse product counts as the dense one that it stands for.
    """
    action = inst.action
    if not isinstance(action, MatrixOp) or not action.form.op.startswith(("mma", "wmma.mma", "wgmma")):
        return 0
    m, n, k = action.form.shape
    products = QUAD_PAIRS if str(action.form.shape) == "m8n8k4" and "f16" in action.name else 1
    return 2 * m * n * k * products // (WARPGROUP if action.operation == "wgmma" else 1)


def by_line(instructions: Sequence[DecodedInstruction], counts: NDArray[np.int64]) -> dict[int, int]:
    """Counts of instructions, added up by line."""
    lines: dict[int, int] = {}
    for at in np.flatnonzero(counts).tolist():
        line = instructions[at].line
        lines[line] = lines.get(line, 0) + int(counts[at])
    return lines
