"""The profile of a launch as a page in the style of the explorer: one file without scripts or network access.

A bar in each number's cell shows its share of the largest number in the column. Source lines come first, if the kernel
has .loc directives, then PTX lines.
"""

from __future__ import annotations

from warpfrag.html import escape
from warpfrag.machine.launch.profile import COLUMNS, HEADINGS, LineProfile, Profile
from warpfrag.viz.explorer.page_builder import PAGE, colour_rules, fill_template

STEPS = 20  # number of widths that a bar may have


def build_profile_page(profile: Profile) -> str:
    """Return the page of a profile as one HTML text."""
    widths = "\n".join(f".w{step} {{ --part: {100 * step // STEPS}%; }}" for step in range(STEPS + 1))
    base, own = ((PAGE / path).read_text(encoding="utf-8") for path in ("base.css", "profile/profile.css"))
    used = [name for name in COLUMNS if name == "instructions" or getattr(profile.total, name)]
    sums = "".join(f"<div><dt>{HEADINGS[name]}</dt><dd>{getattr(profile.total, name):,}</dd></div>" for name in used)
    sources = [row for row in profile.by_source if row.source is not None]
    tables = [_table("By line of the source", sources, used, heading="source")] if sources else []
    tables.append(_table("By line of the PTX", list(profile.lines), used, heading="line"))
    return fill_template(
        PAGE / "profile" / "profile.html",
        style=f"{colour_rules()}\n{base}\n\n{own}\n{widths}",
        title=escape(f"Profile of {profile.kernel}"),
        name=escape(profile.kernel),
        arch=escape(profile.arch),
        lines=str(len(profile.lines)),
        sums=sums,
        tables="\n".join(tables),
    )


def _table(title: str, rows: list[LineProfile], used: list[str], *, heading: str) -> str:
    """Return a table with bars; lines of PTX include their text."""
    is_ptx = heading == "line"
    heads = [f'<th class="name">{heading}</th>', *(f"<th>{HEADINGS[name]}</th>" for name in used)]
    heads += ['<th class="text">instruction</th>'] if is_ptx else []
    largest = {name: max((getattr(row, name) for row in rows), default=0) for name in used}
    lines = []
    for row in rows:
        cells = [f'<td class="name">{escape(str(row.line) if is_ptx else row.text)}</td>']
        cells += [_cell(name, getattr(row, name), largest[name]) for name in used]
        cells += [f'<td class="text" title="{escape(row.text)}">{escape(row.text)}</td>'] if is_ptx else []
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<h2>{title}</h2><div class="frame" tabindex="0" role="region" aria-label="{title}"><table>'
        f"<thead><tr>{''.join(heads)}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _cell(name: str, count: int, largest: int) -> str:
    """Return a number with a bar for its share of the largest, or an empty cell for 0."""
    if not count:
        return "<td></td>"
    return f'<td class="bar {name} w{-(-STEPS * count // largest)}">{count:,}</td>'
