"""The index of captured results: which GPU ran which instruction, and how many cases.

`index.json` lies beside the captures; `write_index` writes it. Look-ups read only the index.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.captured.folders import folders
from warpfrag.errors import WarpfragError

if TYPE_CHECKING:
    from pathlib import Path

INDEX = "index.json"


class EvidenceRow(NamedTuple):
    """What one capture says of one instruction."""

    device: str
    driver: str
    cases: int


@cache
def _rows(folder: Path) -> dict[tuple[str, str], list[EvidenceRow]]:
    try:
        text = (folder / INDEX).read_text(encoding="utf-8")
    except OSError:
        command = f"python -m warpfrag.captured.write_index {folder}"
        msg = f"there is no {INDEX} among the captures in {str(folder)!r}; `{command}` writes it"
        raise WarpfragError(msg) from None
    found: dict[tuple[str, str], list[EvidenceRow]] = {}
    for capture in json.loads(text)["captures"]:
        for name, cases in capture["cases"].items():
            row = EvidenceRow(capture["device"], capture["driver"], cases)
            found.setdefault((name, capture["arch"]), []).append(row)
    return found


def evidence_rows(name: str, arch: str) -> list[EvidenceRow]:
    """Every capture of an instruction (by its canonical name) on an architecture."""
    return [row for folder in folders() for row in _rows(folder).get((name, arch), [])]
