"""Parts of a matrix: figures often show only some rows, columns or products."""

from __future__ import annotations

from typing import NamedTuple

from warpfrag.errors import InvalidOperand

Range = tuple[int, int]  # first and last, both included


class Cut(NamedTuple):
    """What to show: rows, columns, and parts (products of m8n8k4, matrices of ldmatrix); None is everything."""

    rows: Range | None = None
    cols: Range | None = None
    parts: Range | None = None

    def within(self, name: str, extent: int) -> Range:
        """The range that is asked for, refused where it leaves 0..extent-1."""
        found: Range | None = getattr(self, name)
        if found is None:
            return 0, extent - 1
        if len(found) != 2 or not 0 <= found[0] <= found[1] < extent:
            msg = f"{name} is (first, last) with 0 <= first <= last <= {extent - 1}, got {found!r}"
            raise InvalidOperand(msg)
        return found

    def refuse(self, what: str) -> None:
        """Refuse a cut where there is nothing to cut."""
        given = [name for name, found in self._asdict().items() if found is not None]
        if given:
            msg = f"{what} cannot be cut, got {' and '.join(given)}; name one operand and its matrix or logical view"
            raise InvalidOperand(msg)


EVERYTHING = Cut()
