"""Checksums of a store: what tells a result from a file that was lost, cut, changed or put in the place of another.

    chunk      its last four bytes are the crc32c of the others: zarr's own codec. The metadata of its case repeats it,
               and before the case is done the record of its block does: so a chunk in another's place is noticed too
    zarr.json  attributes["checksum"] is the sha256 of the rest, and of whose it is: the study's hash, the array's name
    record     the same, in "checksum"

Documents (zarr.json and records) are small, and are checked in every byte whenever they are read. Chunks are looked
at: whether each is there and has its size; their content is read and compared only where that is asked for.
"""

from __future__ import annotations

import json
from errno import ENOENT, ENOTDIR
from hashlib import sha256
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, NamedTuple

from warpfrag.errors import FileError, quote
from warpfrag.files import read_bytes
from warpfrag.sweep.extra import extra

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MAX_BYTES = 1 << 28
"""Of a document: eight digits for each of thirty million chunks."""
CRC_BYTES = 4
CHECKSUM = "checksum"
MAX_LISTED = 5
"""Of damaged files, in a sentence."""


class BlockDamage(NamedTuple):
    """A block whose chunk or record is not what was written."""

    case: str
    """The array of the store."""
    place: tuple[int, int] | None
    """Where it is in the grid of chunks; None where a record is of no block of the case."""
    file: str
    """Inside the store."""
    reason: str

    def __str__(self) -> str:
        """In a few words."""
        return f"{self.file} {self.reason}"


def list_damage(damage: Sequence[BlockDamage]) -> str:
    """What is damaged, as a part of a sentence."""
    more = f"; and {len(damage) - MAX_LISTED} more" if damage[MAX_LISTED:] else ""
    return "; ".join(map(str, damage[:MAX_LISTED])) + more


def seal(document: dict[str, Any], owner: str) -> bytes:
    """A document as it is written: with a checksum of everything else in it, and of whose it is."""
    sealed = json.loads(json.dumps(document))
    attributes = sealed.get("attributes", sealed)
    attributes.pop(CHECKSUM, None)
    attributes[CHECKSUM] = sha256(json.dumps([owner, sealed]).encode()).hexdigest()
    return json.dumps(sealed, indent=2).encode()


def read_document(path: Path, owner: str | None) -> dict[str, Any]:
    """A document that is what `seal` wrote, in every byte; refused if not. Without an owner it has no checksum."""
    content = read_bytes(path, MAX_BYTES)
    try:
        document = json.loads(content)
        is_whole = isinstance(document, dict) and (owner is None or seal(document, owner) == content)
    except (ValueError, TypeError, AttributeError, RecursionError):
        is_whole = False
    if not is_whole:
        raise damaged_document(path)
    facts: dict[str, Any] = document
    return facts


def damaged_document(path: Path) -> FileError:
    """The refusal of a document: what it says cannot be computed again, or nobody can tell for what."""
    return FileError(f"{quote(str(path))} is damaged: it is not what a sweep has written")


def chunk_problem(path: Path, size: int, crc: str | None) -> str:
    """What is wrong with a chunk; nothing, if it is a file of its size and, where a crc32c is named, of its content."""
    try:
        status = path.stat()
        if not S_ISREG(status.st_mode):
            return "is no file"
        if status.st_size != size:
            return f"has {status.st_size} bytes, not {size}"
        content = b"" if crc is None else path.read_bytes()
    except OSError as error:
        is_missing = error.errno in {ENOENT, ENOTDIR}
        return "is missing" if is_missing else f"cannot be read: {error.strerror}"
    if crc is None:
        return ""
    stored = content[-CRC_BYTES:]
    if extra("google_crc32c").value(content[:-CRC_BYTES]) != int.from_bytes(stored, "little"):
        return "does not fit its checksum"
    return "" if stored.hex() == crc else "holds another block"
