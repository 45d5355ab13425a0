"""Building the page: data, script and style in one file that asks nothing of any network.

The content security policy names the one script and the one style sheet by their hash and allows nothing else: no
request, no form, no inline handler or style. So nothing that gets in through the data or the address can run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from pathlib import Path

from warpfrag.viz.explorer.bundle import join_modules
from warpfrag.viz.explorer.colours import colour_rules
from warpfrag.viz.explorer.explorer_data import page_data

PAGE = Path(__file__).parent / "page"
PLACE = re.compile(r"\{\{(\w+)\}\}")


@cache
def build_page() -> str:
    """The whole explorer as one HTML text; the same text every time."""
    style = "\n".join([colour_rules(), *(path.read_text(encoding="utf-8") for path in sorted(PAGE.glob("*.css")))])
    script = join_modules({path.name: path.read_text(encoding="utf-8") for path in sorted(PAGE.glob("*.js"))})
    parts = {
        "policy": content_policy(script, style),
        "style": style,
        "script": script,
        # A text in the data could end the script element early, were it ever to hold "</".
        "data": json.dumps(page_data(), separators=(",", ":")).replace("<", "\\u003c"),
    }
    template = (PAGE / "index.html").read_text(encoding="utf-8")
    return PLACE.sub(lambda placeholder: parts[placeholder[1]], template)


def content_policy(script: str, style: str) -> str:
    """The policy under which only this script and this style sheet work; the icon is a data: address."""
    rules = {
        "default-src": "'none'",
        "script-src": _hash(script),
        "style-src": _hash(style),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{rule} {value}" for rule, value in rules.items())


def _hash(text: str) -> str:
    """How a policy names an inline text."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
