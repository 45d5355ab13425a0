"""Tables as text, and HTML cards for notebooks.

A card inherits its text colour from the notebook and has no background, so it is readable in light and dark themes.
Every style rule starts with the card's class, so it does not affect the rest of the page.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

STYLE = {
    "": "font:13px/1.5 system-ui,sans-serif;margin:4px 0",
    "code": "font:600 13px ui-monospace,monospace;background:none;color:inherit;overflow-wrap:anywhere",
    "p": "margin:2px 0;opacity:.8",
    "table": "border-collapse:collapse;margin:6px 0;font-size:12px",
    "th,.wf-card td": "text-align:left;padding:1px 12px 1px 0;border:0;background:none;font-weight:400",
    "th": "font-weight:600",
    ".maps": "display:flex;flex-wrap:wrap;gap:8px 16px;align-items:flex-end",
    "figure": "margin:0",
    "figcaption": "font-size:11px;opacity:.8",
    "svg": "display:block",
}
"""CSS declarations by selector, relative to the card's class."""
STYLESHEET = "".join(f".wf-card {selector}{{{declarations}}}" for selector, declarations in STYLE.items())
ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


def escape(text: str) -> str:
    """Escape text for use in an HTML or SVG element or attribute."""
    return text.translate(ESCAPES)


def card(*parts: str, style: str = "") -> str:
    """Return a card that contains these HTML parts; `style` has additional CSS rules."""
    return f'<div class="wf-card"><style>{STYLESHEET}{style}</style>{"".join(parts)}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table with escaped cell text."""
    heads = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    return f"<table><tr>{heads}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def table_lines(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, gap: int = 2, right: Container[int] | None = None
) -> list[str]:
    """Return lines with aligned columns; the columns in `right`, by default those of integers, are right-aligned.

    >>> table_lines(["lane", "bits"], [[5, "15:0"], [12, "31:16"]])
    ['lane  bits', '   5  15:0', '  12  31:16']
    """
    cells = [list(row) for row in rows]
    columns = range(len(header))
    to_right = [i for i in columns if all(isinstance(row[i], int) for row in cells)] if right is None else right
    lines = [list(header), *([str(cell) for cell in row] for row in cells)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = (
        [line[i].rjust(widths[i]) if i in to_right else line[i].ljust(widths[i]) for i in columns] for line in lines
    )
    return [(" " * gap).join(line).rstrip() for line in aligned]


class TextCard:
    """A result that notebooks show as text, with its first line as the title."""

    def _repr_html_(self) -> str:
        """Return an HTML card for notebooks."""
        title, *lines = str(self).strip("<>").splitlines()
        return card(f"<p>{escape(title)}</p>", f"<pre>{escape(chr(10).join(lines))}</pre>")
