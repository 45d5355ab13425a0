"""The index of captured results: the capture files, the GPU that ran each instruction, and the number of cases.

`index.json` is stored next to the captures; `tools/write_capture_index.py` writes it. Look-ups read only the index.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.errors import FileError, WarpfragError, quote
from warpfrag.files import read_bytes

if TYPE_CHECKING:
    from pathlib import Path

HERE = os.path.dirname(__file__)  # noqa: PTH120 (importing pathlib takes longer than reading the index)
VARIABLE = "WARPFRAG_CAPTURED"
INDEX = "index.json"
MAX_BYTES = 1 << 26  # the largest index in bytes; an entry takes about a hundred


class EvidenceRow(NamedTuple):
    """The evidence that one capture provides for one instruction."""

    device: str
    driver: str
    cases: int


def folders() -> tuple[str, ...]:
    """Return the capture folders: the package's own, and the one in the environment variable WARPFRAG_CAPTURED."""
    extra = os.environ.get(VARIABLE)
    return (HERE, extra) if extra else (HERE,)


@contextmanager
def whole(path: str | Path, label: str) -> Iterator[None]:
    """Convert errors to FileError in a `with` block that reads a file, which may be damaged or foreign."""
    try:
        yield
    except FileError:
        raise
    except Exception as error:  # noqa: BLE001 (a damaged file can fail in any part of its reader)
        reason = str(error) if isinstance(error, ValueError | WarpfragError) else f"{type(error).__name__} {error}"
        raise FileError(f"{quote(str(path))} is not {label}: {quote(reason)}") from None


@lru_cache(maxsize=16)
def _rows(folder: str) -> dict[tuple[str, str], list[EvidenceRow]]:
    path = f"{folder}/{INDEX}"
    command = f"python -m tools.write_capture_index {folder}"
    if not os.path.exists(path):  # noqa: PTH110
        raise FileError(f"no {INDEX} in the capture folder {quote(folder)}; write it with `{command}`")
    rows: dict[tuple[str, str], list[EvidenceRow]] = {}
    with whole(path, f"an index of captures written by `{command}`"):
        for capture in json.loads(read_bytes(path, MAX_BYTES))["captures"]:
            for name, cases in capture["cases"].items():
                row = EvidenceRow(str(capture["device"]), str(capture["driver"]), int(cases))
                rows.setdefault((name, str(capture["arch"])), []).append(row)
    return rows


def evidence_rows(name: str, arch: str) -> list[EvidenceRow]:
    """Return the captures of an instruction, given by its canonical name, on an architecture."""
    return [row for folder in folders() for row in _rows(folder).get((name, arch), [])]
