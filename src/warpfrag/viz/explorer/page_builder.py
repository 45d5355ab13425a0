"""Build the explorer page and the page of a profile: data, script and style in one file that needs no network.

A page opened from disk cannot import files, so its JavaScript modules are joined into one script. A module starts with
`import { name } from "./other.js";` lines and has `export` before declarations that others use. Joining removes both
and puts each module after the modules that it imports. All modules then share one scope, so only one of them may
declare a name at the top level; tests check this, and every imported name.

The content security policy allows the script and the style sheet by their hashes, and nothing else: no request, no
form, no inline handler or style. Code that is injected through the data or the address therefore cannot run.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from warpfrag.errors import InvalidOperand, quote
from warpfrag.html import escape
from warpfrag.machine.launch.profile import COLUMNS, HEADINGS, LineProfile, Profile
from warpfrag.viz.explorer.explorer_data import page_data
from warpfrag.viz.palette import COLOURS, DARK, LIGHT, Palette

PAGE = Path(__file__).parent / "page"
STEPS = 20  # the number of different bar widths
PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
IMPORT = re.compile(r'^import \{([\w\s,]+)\} from "\./([\w.]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class)\b)", re.MULTILINE)


@cache
def build_page(url: str = "") -> str:
    """Return the whole explorer as reproducible HTML; `url` is the address at which it is hosted."""
    if url and not re.fullmatch(r"https?://[^\s\"'<>]+", url):
        raise InvalidOperand(f"url: expected an address such as https://example.org/explorer/, got {quote(url)}")
    styles = [path.read_text(encoding="utf-8") for path in sorted(PAGE.glob("*.css"))]
    script = join_modules({path.name: path.read_text(encoding="utf-8") for path in sorted(PAGE.glob("*.js"))})
    # "</" in the data could end the script element early
    data = json.dumps(page_data(), separators=(",", ":")).replace("<", "\\u003c")
    canonical = f'<link rel="canonical" href="{escape(url)}">' if url else ""
    style = "\n".join([colour_rules(), *styles])
    return fill_template(PAGE / "index.html", style=style, script=script, data=data, canonical=canonical)


def build_profile_page(profile: Profile) -> str:
    """Return the page of a launch's profile: source lines (if there are .loc directives), then PTX lines.

    A bar in the cell of each number shows the number relative to the largest one in its column.
    """
    widths = "\n".join(f".w{step} {{ --part: {100 * step // STEPS}%; }}" for step in range(STEPS + 1))
    base, own = ((PAGE / path).read_text(encoding="utf-8") for path in ("base.css", "profile/profile.css"))
    used = [name for name in COLUMNS if name == "instructions" or getattr(profile.total, name)]
    sums = "".join(f"<div><dt>{HEADINGS[name]}</dt><dd>{getattr(profile.total, name):,}</dd></div>" for name in used)
    sources = [row for row in profile.by_source if row.source is not None]
    tables = [_table("By source line", sources, used, heading="source")] if sources else []
    tables.append(_table("By PTX line", list(profile.lines), used, heading="line"))
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
    """Return an HTML table with bars; rows of PTX lines include their text."""
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
    """Return a table cell with a number and a bar for its share of the largest one; the cell of a 0 is empty."""
    if not count:
        return "<td></td>"
    return f'<td class="bar {name} w{-(-STEPS * count // largest)}">{count:,}</td>'


def fill_template(template: Path, *, style: str, script: str = "", **parts: str) -> str:
    """Return a page: a template whose placeholders, such as {{style}}, have been replaced."""
    texts = {**parts, "style": style, "script": script, "policy": content_policy(script, style)}
    return PLACEHOLDER.sub(lambda placeholder: texts[placeholder[1]], template.read_text(encoding="utf-8"))


def content_policy(script: str, style: str) -> str:
    """Return a policy that allows only this script and this style sheet; the icon is a data: URL."""
    rules = {
        "default-src": "'none'",
        "script-src": _hash(script),
        "style-src": _hash(style),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{rule} {source}" for rule, source in rules.items())


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def colour_rules() -> str:
    """Return the figures' colours as CSS for both colour schemes: paper, text, and a class per lane, such as `t5`."""
    return f"{_rules(LIGHT)}\n@media (prefers-color-scheme: dark) {{\n{_rules(DARK)}\n}}\n"


def _rules(palette: Palette) -> str:
    root = f":root {{ --paper: {palette.paper}; --ink: {palette.ink}; --muted: {palette.muted}; }}"
    lanes = (f".t{lane} {{ --lane-colour: {palette.lane(lane)}; }}" for lane in range(COLOURS))
    return "\n".join([root, *lanes])


def join_modules(files: Mapping[str, str]) -> str:
    """Join JavaScript modules, given by file name, each after the modules that it imports."""
    imports = {name: {file for _, file in IMPORT.findall(text)} for name, text in files.items()}
    order = TopologicalSorter(imports).static_order()
    return "\n".join(f"// {name}\n{EXPORT.sub('', IMPORT.sub('', files[name])).strip()}\n" for name in order)
