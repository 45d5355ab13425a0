"""The format of recorded launches: `launches.json`, and `blobs.zip` with code and memory under their digests.

A record has one launch, or several that share their memory, and the contents of the memory that they can reach, before
and after the launches. Memory is stored in chunks of 64 KiB, so that equal chunks are stored once.

    {"schema": 1, "gpu": "NVIDIA H200", "driver": 13000, "records": [{
        "name": "vector_add",
        "launches": [{"kernel": "_Z3add...", "number": 0, "grid": [4, 1, 1], "block": [128, 1, 1], "shared": 0,
                      "cluster": null, "cooperative": false, "params": "00e0...", "code": "5f0c...",
                      "origin": "libtorch_cuda.so", "reason": ""}],
        "memory": [{"address": 139637976727552, "size": 2097152, "before": ["..."], "after": ["..."], "variable": ""}],
        "compared": null, "reason": ""}]}

`reason` explains why a launch has no code, or why a record has no memory. `compared` limits the comparison to ranges
[address, size]; null compares everything.
"""

import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterable
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

from warpfrag.errors import FileError, quote
from warpfrag.files import read_bytes, write_atomically

SCHEMA = 1
INDEX, BLOBS = "launches.json", "blobs.zip"
CHUNK = 1 << 16
DIGITS = 32
MAX_INDEX_BYTES = 1 << 30
Extent = tuple[int, int, int]


class RecordedLaunch(NamedTuple):
    """A launch as the driver received it.

    `code` is the digest of its cubin, or "" if it is missing, as `reason` explains. `number` counts the program's
    matching launches, and `origin` is the file that loaded the code.
    """

    kernel: str
    number: int
    grid: Extent
    block: Extent
    shared: int
    cluster: Extent | None
    cooperative: bool
    params: bytes
    code: str
    origin: str
    reason: str


class MemoryBlock(NamedTuple):
    """A range of memory, as digests of its chunks before and after the launches; `after` is empty if not recorded.

    `variable` is the name of a module variable, or "" for an allocation.
    """

    address: int
    size: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    variable: str = ""


class RecordedSequence(NamedTuple):
    """One or more launches that share their memory."""

    name: str
    launches: tuple[RecordedLaunch, ...]
    memory: tuple[MemoryBlock, ...]
    compared: tuple[tuple[int, int], ...] | None = None
    reason: str = ""


class Recording:
    """The records in a folder; code and memory are read on demand."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        """Read the index; raise FileError if it is missing or invalid."""
        self.folder = Path(folder)
        data = read_bytes(self.folder / INDEX, MAX_INDEX_BYTES)
        try:
            index = json.loads(data)
            if index["schema"] != SCHEMA:
                raise FileError(f"{quote(str(folder))}: expected schema {SCHEMA}, got {quote(index['schema'])}")
            self.gpu, self.driver = str(index["gpu"]), int(index["driver"])
            self.records = tuple(_record(row) for row in index["records"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FileError(
                f"{quote(str(self.folder / INDEX))} is not an index of recorded launches: {error!r}"
            ) from None

    @cached_property
    def _archive(self) -> zipfile.ZipFile:
        return zipfile.ZipFile(self.folder / BLOBS)

    def blob(self, digest: str) -> bytes:
        """Return the bytes with this digest; raise FileError if they are missing or corrupt."""
        path = self.folder / BLOBS
        try:
            data = self._archive.read(digest)
        except KeyError:
            raise FileError(f"{quote(str(path))} has no blob {digest}: record the launches again") from None
        except (OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
            raise FileError(f"cannot read {quote(str(path))}: {error}") from None
        if digest_of(data) != digest:
            raise FileError(f"{quote(str(path))}: blob {digest} is corrupt; record the launches again")
        return data

    def blobs(self, digests: Iterable[str]) -> bytes:
        """Return the contents of these chunks, concatenated."""
        known: dict[str, bytes] = {}
        parts = []
        for digest in digests:
            if digest not in known:
                known[digest] = self.blob(digest)
            parts.append(known[digest])
        return b"".join(parts)


class RecordingWriter:
    """Writes a recording; use it in a `with` statement, which writes the index at the end."""

    def __init__(self, folder: str | PathLike[str], gpu: str, driver: int) -> None:
        """Create the folder, replacing an existing recording."""
        self.folder, self.gpu, self.driver = Path(folder), gpu, driver
        self.records: list[RecordedSequence] = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / INDEX).unlink(missing_ok=True)
            self._archive = zipfile.ZipFile(self.folder / BLOBS, "w", zipfile.ZIP_DEFLATED)
        except OSError as error:
            raise FileError(f"cannot write {quote(str(folder))}: {error.strerror}") from None
        self._known: set[str] = set()

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Write the index, unless the `with` block raised an error."""
        self._archive.close()
        if error is None:
            index = {"schema": SCHEMA, "gpu": self.gpu, "driver": self.driver, "records": list(map(_row, self.records))}
            write_atomically(self.folder / INDEX, json.dumps(index, separators=(",", ":")) + "\n")

    def blob(self, data: bytes) -> str:
        """Store bytes, and return their digest."""
        digest = digest_of(data)
        if digest not in self._known:
            self._known.add(digest)
            try:
                self._archive.writestr(zipfile.ZipInfo(digest), data, zipfile.ZIP_DEFLATED)
            except OSError as error:
                raise FileError(f"cannot write {quote(str(self.folder / BLOBS))}: {error.strerror}") from None
        return digest

    def chunks(self, data: bytes) -> tuple[str, ...]:
        """Store memory, and return the digests of its chunks."""
        return tuple(self.blob(data[at : at + CHUNK]) for at in range(0, len(data), CHUNK))


def digest_of(data: bytes) -> str:
    """Return the digest of a blob, which is its name."""
    return hashlib.sha256(data).hexdigest()[:DIGITS]


def _row(record: RecordedSequence) -> dict[str, Any]:
    """Return a record as JSON-compatible values."""
    launches = [launch._asdict() | {"params": launch.params.hex()} for launch in record.launches]
    return record._asdict() | {"launches": launches, "memory": [block._asdict() for block in record.memory]}


def _record(row: dict[str, Any]) -> RecordedSequence:
    """Create a record from JSON values; raise ValueError, KeyError or TypeError if they are invalid."""
    memory = tuple(_block(block) for block in row["memory"])
    launches = tuple(_launch(launch) for launch in row["launches"])
    compared = None if row["compared"] is None else tuple((int(start), int(size)) for start, size in row["compared"])
    return RecordedSequence(str(row["name"]), launches, memory, compared, str(row["reason"]))


def _block(row: dict[str, Any]) -> MemoryBlock:
    address, size = int(row["address"]), int(row["size"])
    before, after = (tuple(map(str, row[name])) for name in ("before", "after"))
    if address < 0 or size < 1 or len(before) != -(-size // CHUNK) or len(after) not in {0, len(before)}:
        raise ValueError(
            f"the {size} bytes at {address:#x} have {len(before)} chunks before and {len(after)} after the launch"
        )
    return MemoryBlock(address, size, before, after, str(row["variable"]))


def _launch(row: dict[str, Any]) -> RecordedLaunch:
    grid, block = _extent(row["grid"]), _extent(row["block"])
    cluster = None if row["cluster"] is None else _extent(row["cluster"])
    return RecordedLaunch(
        str(row["kernel"]), int(row["number"]), grid, block, int(row["shared"]), cluster, bool(row["cooperative"]),
        bytes.fromhex(row["params"]), str(row["code"]), str(row["origin"]), str(row["reason"]),
    )  # fmt: skip


def _extent(numbers: list[int]) -> Extent:
    x, y, z = map(int, numbers)
    return x, y, z
