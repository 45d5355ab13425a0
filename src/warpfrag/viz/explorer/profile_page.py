"""The profile of a launch as a page in the style of the explorer: one file, without a script or a network.

The lines that count stand out by a bar behind each number: its part of the largest of its column. Lines of the source
come first, where .loc names them, then those of the PTX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.html import escape
from warpfrag.ptx.launch.profile import COLUMNS, HEADINGS
from warpfrag.viz.explorer.colours import colour_rules
from warpfrag.viz.explorer.page_builder import PAGE, content_policy

if TYPE_CHECKING:
    from warpfrag.ptx.launch.profile import LineProfile, Profile

STEPS = 20  # widths of a bar
STYLE = """
main { max-width: 76rem; margin: 0 auto; }
h2 { margin: 1.5rem 0 0.5rem; font-size: 1rem; }
.sums { display: flex; flex-wrap: wrap; gap: 0.5rem 2rem; margin: 0.75rem 0; }
.sums dt { color: var(--muted); font-size: 0.78rem; }
.sums dd { font: 600 1.1rem var(--mono); }
.frame { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
table { width: 100%; border-collapse: collapse; font-size: 0.82rem; }
th, td { padding: 0.25rem 0.6rem; text-align: right; white-space: nowrap; }
th { position: sticky; top: 0; background: var(--panel); color: var(--muted); font-weight: 600; }
tr + tr td { border-top: 1px solid var(--line); }
.name { text-align: left; font-family: var(--mono); }
.text { text-align: left; font-family: var(--mono); white-space: pre; max-width: 44rem; overflow: hidden;
  text-overflow: ellipsis; }
td { font-family: var(--mono); }
.bar { background: linear-gradient(var(--bar), var(--bar)) right / var(--part) 100% no-repeat; }
.instructions { --bar: color-mix(in srgb, var(--accent) 28%, transparent); }
.read, .written { --bar: color-mix(in srgb, var(--good) 28%, transparent); }
.wavefronts { --bar: color-mix(in srgb, var(--term) 40%, transparent); }
.conflicts { --bar: color-mix(in srgb, var(--warn) 45%, transparent); }
.tensor_operations { --bar: color-mix(in srgb, var(--strong-line) 40%, transparent); }
"""
TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header><h1>warpfrag <span>profile</span></h1></header>
<main>
<h2 id="name">{name}</h2>
<ul id="badges"><li>{arch}</li><li>{lines} lines of PTX ran</li></ul>
<dl class="sums">{sums}</dl>
{tables}
<footer>Counts of warp instructions, bytes, wavefronts and operations: no times. A wavefront of shared memory is a pass
over its banks, of global memory a sector of 32 bytes; conflicts are wavefronts that are there only because lanes want
different words of one bank.</footer>
</main>
</body>
</html>
"""


def build_profile_page(profile: Profile) -> str:
    """The page of a profile, as one HTML text."""
    widths = "\n".join(f".w{step} {{ --part: {100 * step // STEPS}%; }}" for step in range(STEPS + 1))
    base = (PAGE / "base.css").read_text(encoding="utf-8")
    style = f"{colour_rules()}\n{base}\n{STYLE}\n{widths}"
    used = [name for name in COLUMNS if name == "instructions" or getattr(profile.total, name)]
    sums = "".join(f"<div><dt>{HEADINGS[name]}</dt><dd>{getattr(profile.total, name):,}</dd></div>" for name in used)
    sources = [row for row in profile.by_source if row.source is not None]
    tables = [_table("By line of the source", sources, used, heading="source")] if sources else []
    tables.append(_table("By line of the PTX", list(profile.lines), used, heading="line"))
    return TEMPLATE.format(
        policy=content_policy("", style),
        title=escape(f"Profile of {profile.kernel}"),
        style=style,
        name=escape(profile.kernel),
        arch=escape(profile.arch),
        lines=len(profile.lines),
        sums=sums,
        tables="\n".join(tables),
    )


def _table(title: str, rows: list[LineProfile], used: list[str], *, heading: str) -> str:
    """A table with bars; the lines of PTX have their text."""
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
    """A number, and a bar as long as its part of the largest; nothing for 0."""
    if not count:
        return "<td></td>"
    return f'<td class="bar {name} w{-(-STEPS * count // largest)}">{count:,}</td>'
