"""The index of captured results: which GPU ran which instruction, and how many cases.

`index.json` lies beside the captures; `write_index` writes it. Look-ups read only the index.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.captured.folders import folders

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
    with (folder / INDEX).open(encoding="utf-8") as file:
        captures = json.load(file)["captures"]
    found: dict[tuple[str, str], list[EvidenceRow]] = {}
    for capture in captures:
        for name, cases in capture["cases"].items():
            row = EvidenceRow(capture["device"], capture["driver"], cases)
            found.setdefault((name, capture["arch"]), []).append(row)
    return found


def evidence_rows(name: str, arch: str) -> list[EvidenceRow]:
    """Every capture of an instruction (by its canonical name) on an architecture."""
    return [row for folder in folders() for row in _rows(folder).get((name, arch), [])]
