"""The profile of a launch: counts of instructions, bytes and tensor-core operations per PTX or source line.

These are counts, not times: warp instructions, bytes, memory wavefronts, bank conflicts, and tensor-core operations.
Both engines give the same counts. A profile can be shown as text (`str`), JSON (`to_dict`), a notebook card, or a page
(`warpfrag ptx profile -o page.html`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from warpfrag.html import card, escape, table, table_lines
from warpfrag.machine.ir.actions import MatrixOp
from warpfrag.machine.ir.program import DecodedInstruction, SourceLine

MAX_ROWS = 20  # maximum number of rows in a text or a card
WARPGROUP = 4  # warps in a warpgroup; a wgmma is counted once per warp
QUAD_PAIRS = 4  # the number of independent matrix products in an f16 mma.m8n8k4


class LineProfile(NamedTuple):
    """The counts of one PTX or source line."""

    line: int  # the line number in the PTX or the source file
    text: str
    source: SourceLine | None = None
    instructions: int = 0
    read: int = 0  # the number of bytes read
    written: int = 0
    wavefronts: int = 0
    conflicts: int = 0
    tensor_operations: int = 0

    def plus(self, other: LineProfile) -> LineProfile:
        """Return the sum of this row and `other`, with this row's line and text."""
        return self._replace(**{name: getattr(self, name) + getattr(other, name) for name in COLUMNS})


COLUMNS = tuple(name for name in LineProfile._fields if name not in {"line", "text", "source"})
HEADINGS = {
    "instructions": "instructions", "read": "bytes read", "written": "bytes written", "wavefronts": "wavefronts",
    "conflicts": "conflicts", "tensor_operations": "tensor operations",
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Profile:
    """The counts of a launch: `lines` has the executed PTX lines in order; `by_source` groups them by source line."""

    kernel: str
    arch: str
    lines: tuple[LineProfile, ...]

    @property
    def total(self) -> LineProfile:
        """The sum of all lines."""
        return reduce(LineProfile.plus, self.lines, LineProfile(0, "all"))

    @property
    def by_source(self) -> tuple[LineProfile, ...]:
        """One row per line of the kernel's own source; inlined code is counted at the line of the call.

        PTX lines without a .loc form one row, with line 0. Without any .loc, that is the only row.
        """
        rows: dict[SourceLine | None, LineProfile] = {}
        for line in self.lines:
            source = None if line.source is None else line.source.outermost
            name = "no source line" if source is None else str(source)
            empty = LineProfile(0 if source is None else source.line, name, source)
            rows[source] = rows.get(source, empty).plus(line)
        return tuple(sorted(rows.values(), key=lambda row: (row.source is None, row.source or ("", 0))))

    def __repr__(self) -> str:
        """Format the totals."""
        total = self.total
        parts = [f"{getattr(total, name):,} {heading}" for name, heading in HEADINGS.items() if getattr(total, name)]
        return f"<Profile of {self.kernel} on {self.arch}: {', '.join(parts)}>"

    def __str__(self) -> str:
        """Format the lines with the largest counts as a table, by source line if the code has source lines."""
        heads, rows = self.table()
        return "\n".join([repr(self)[1:-1], *table_lines(heads, rows, right=self.numeric(heads))])

    @staticmethod
    def numeric(heads: list[str]) -> range:
        """Return the indices of the columns that contain numbers."""
        return range(1, len(heads) - (heads[-1] in {"code", "instruction"}))

    def table(
        self, *, by: str = "", sort: str = "instructions", limit: int | None = MAX_ROWS
    ) -> tuple[list[str], list[list[str]]]:
        """Return headings and rows, largest first; `by` is "source" or "line" (default: "source" if available)."""
        by_source = by == "source" or (not by and any(line.source is not None for line in self.lines))
        rows = list(self.by_source if by_source else self.lines)
        if sort != "line":
            rows.sort(key=lambda row: -getattr(row, sort))
        used = [name for name in COLUMNS if name == "instructions" or any(getattr(row, name) for row in rows)]
        heads = ["source" if by_source else "line", *(HEADINGS[name] for name in used)]
        cells = [
            [row.text if by_source else str(row.line), *(f"{getattr(row, name):,}" for name in used)]
            for row in rows[:limit]
        ]
        texts = [row.text if not by_source else row.source.text if row.source else "" for row in rows[:limit]]
        if any(texts):
            heads.append("code" if by_source else "instruction")
            cells = [[*cell, text] for cell, text in zip(cells, texts, strict=True)]
        return heads, cells

    def _repr_html_(self) -> str:
        """Return an HTML card for notebooks."""
        return card(f"<code>{escape(repr(self)[1:-1])}</code>", table(*self.table()))

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON-compatible values."""
        return {
            "kernel": self.kernel,
            "arch": self.arch,
            "total": _plain(self.total),
            "lines": [_plain(row) for row in self.lines],
            "by_source": [_plain(row) for row in self.by_source if row.source is not None],
        }


def _plain(row: LineProfile) -> dict[str, object]:
    return row._asdict() | {"source": None if row.source is None else str(row.source)}


def tensor_operations(inst: DecodedInstruction) -> int:
    """Return a matrix instruction's multiplications and additions, 2 m n k, per participating warp.

    A sparse mma counts as much as the dense mma of the same shape.
    """
    action = inst.action
    if not isinstance(action, MatrixOp) or not action.form.op.startswith(("mma", "wmma.mma", "wgmma")):
        return 0
    m, n, k = action.form.shape
    products = QUAD_PAIRS if str(action.form.shape) == "m8n8k4" and "f16" in action.name else 1
    return 2 * m * n * k * products // (WARPGROUP if action.operation == "wgmma" else 1)
