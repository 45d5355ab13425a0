"""The results of a sweep as a Zarr store that stays valid if the process is killed at any moment.

    sweep.zarr/
      zarr.json           a group; attributes["warpfrag"] has the plan and the package versions
      0, 1, ...           an array for each case: D, in chunks of one block; its attributes are the case and, once D is
                          complete, the figures
      .blocks/0/1.2.json  the error tally of a finished block of an unfinished case

Every file is replaced atomically. The tally of a block is written after its chunk, and the figures of a case after all
of its tallies, so a tally implies its chunk, and figures imply all chunks. A chunk ends with its crc32c (Zarr's codec).
A damaged chunk is deleted before it is computed again, so a process that is killed in between leaves the chunk missing.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import FileError, InvalidOperand, StoreWarning, check_flag, import_extra, quote
from warpfrag.files import PART, read_bytes, write_atomically
from warpfrag.formats.codes import natural_dtype
from warpfrag.formats.number_formats import FORMATS
from warpfrag.sweep.error_tally import ErrorTally
from warpfrag.sweep.sweep_plan import Case, SweepPlan

if TYPE_CHECKING:
    import zarr

SCHEMA = 4
KEY = "warpfrag"
RECORDS = ".blocks"
METADATA = "zarr.json"
PARTIAL = (f"{PART}*", "*.partial")  # temporary files of warpfrag and Zarr, which remain if a process is killed
MAX_BYTES = 1 << 20  # the largest JSON file in bytes
CRC_BYTES = 4
MAX_LISTED = 5  # the maximum number of damaged files that a message lists


def versions() -> dict[str, str]:
    """Return the versions of the packages on which results may depend."""
    return {"version": version("warpfrag"), "numpy": np.__version__}


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case: its figures, or the reason why it cannot be computed."""

    name: str
    case: Case
    figures: dict[str, Any] | None
    refusal: str
    repaired: tuple[str, ...] = ()
    """Descriptions of the damaged chunks that were computed again."""

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON-compatible values."""
        results = {"figures": self.figures, "refusal": self.refusal, "repaired": [*self.repaired]}
        return {"name": self.name, **self.case.to_dict(), **results}


class BlockDamage(NamedTuple):
    """A missing or damaged chunk: its case, its index in the grid of chunks, and its file in the store."""

    case: str
    block: tuple[int, int]
    file: str
    reason: str

    def __str__(self) -> str:
        """Format the file and the reason."""
        return f"{self.file} {self.reason}"


def list_damage(damage: Sequence[BlockDamage]) -> str:
    """Return a text that lists the first damaged files and counts the others."""
    more = f"; and {len(damage) - MAX_LISTED} more" if damage[MAX_LISTED:] else ""
    return "; ".join(map(str, damage[:MAX_LISTED])) + more


class StoredCase(NamedTuple):
    """The stored part of a case: its figures if it is finished, else the error tallies of its finished blocks."""

    figures: dict[str, Any] | None
    tallies: dict[tuple[int, int], ErrorTally]
    damage: tuple[BlockDamage, ...] = ()


class StoreReader:
    """A store opened for reading, with the paths of its files."""

    def __init__(self, path: Path, plan: SweepPlan) -> None:
        """Create a reader for a folder and a plan; nothing is read yet."""
        self.path, self.plan = path, plan

    def name(self, number: int) -> str:
        """Return the name of a case's array."""
        return str(number).zfill(len(str(len(self.plan.cases) - 1)))

    def blocks(self, case: Case) -> list[tuple[int, int]]:
        """Return the index of every block of D."""
        rows, columns = (-(-size // step) for size, step in zip(case.shape[:2], self.plan.block, strict=True))
        return list(product(range(rows), range(columns)))

    def chunk_shape(self, case: Case) -> tuple[int, int]:
        """Return the shape of every chunk; chunks at the edges are padded."""
        return min(case.shape[0], self.plan.block[0]), min(case.shape[1], self.plan.block[1])

    def chunk_file(self, number: int, block: tuple[int, int]) -> Path:
        """Return the path of a block's chunk."""
        return self.path / self.name(number) / "c" / str(block[0]) / str(block[1])

    def record_file(self, number: int, block: tuple[int, int]) -> Path:
        """Return the path of a block's error tally."""
        return self.path / RECORDS / self.name(number) / f"{block[0]}.{block[1]}.json"

    def read_case(self, number: int, *, verify: bool) -> StoredCase:
        """Return the stored part of a case; a chunk with a wrong size or (with `verify`) checksum counts as damaged."""
        metadata = self.path / self.name(number) / METADATA
        figures = read_json(metadata).get("attributes", {}).get("figures") if metadata.exists() else None
        blocks = self.blocks(self.plan.cases[number])
        read = {} if figures is not None else {block: self._tally(number, block) for block in blocks}
        tallies = {block: tally for block, tally in read.items() if tally is not None}
        damage = []
        for block in blocks if figures is not None else [*tallies]:
            problem = self._chunk_problem(number, block, verify=verify)
            if problem:
                file = self.chunk_file(number, block).relative_to(self.path).as_posix()
                damage.append(BlockDamage(self.name(number), block, file, problem))
                tallies.pop(block, None)
        return StoredCase(figures, tallies, tuple(damage))

    def _tally(self, number: int, block: tuple[int, int]) -> ErrorTally | None:
        """Return the error tally of a block, or None if it is missing or incomplete."""
        try:
            return ErrorTally.from_dict(json.loads(read_bytes(self.record_file(number, block), MAX_BYTES)))
        except (FileError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def _chunk_problem(self, number: int, block: tuple[int, int], *, verify: bool) -> str:
        """Return a description of the problem with a chunk, or an empty string; `verify` also compares the checksum."""
        case, file = self.plan.cases[number], self.chunk_file(number, block)
        rows, columns = self.chunk_shape(case)
        size = rows * columns * natural_dtype(FORMATS[case.form.d]).itemsize + CRC_BYTES
        try:
            size_on_disk = file.stat().st_size if file.is_file() else -1
            content = file.read_bytes() if verify and size_on_disk == size else b""
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        if size_on_disk != size:
            return "is missing" if size_on_disk < 0 else f"has {size_on_disk} bytes, not {size}"
        stored = int.from_bytes(content[-CRC_BYTES:], "little")
        if content and import_extra("google_crc32c", "dask").value(content[:-CRC_BYTES]) != stored:
            return "does not match its checksum"
        return ""


def read_json(path: Path) -> dict[str, Any]:
    """Return the contents of a JSON file."""
    try:
        document = json.loads(read_bytes(path, MAX_BYTES))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("attributes", {}), dict):
        raise FileError(f"{quote(str(path))} is damaged; delete {quote(str(path.parent))} to compute it again")
    return document


def read_header(path: Path) -> dict[str, Any]:
    """Return attributes["warpfrag"] of a store; raise FileError if the folder is not a store with this schema."""
    header = read_json(path / METADATA).get("attributes", {}).get(KEY)
    if not isinstance(header, dict) or not isinstance(header.get("plan"), dict):
        raise FileError(f"{quote(str(path / METADATA))} is not a sweep, because attributes[{KEY!r}] is missing")
    if header.get("schema") != SCHEMA:
        raise FileError(f"{quote(str(path / METADATA))} has schema {quote(header.get('schema'))}, expected {SCHEMA}")
    return header


@dataclass(frozen=True)
class SweepResults:
    """The contents of a store. `done` of `blocks` blocks are stored; cases that cannot be computed do not count."""

    plan: SweepPlan
    outcomes: tuple[Outcome, ...]
    """All cases; unfinished ones have no figures."""
    damage: tuple[BlockDamage, ...]
    """Chunks that `sweep` would compute again."""
    done: int
    blocks: int
    _store: StoreReader

    @property
    def is_complete(self) -> bool:
        """True if every block is stored and none is damaged."""
        return self.done == self.blocks and not self.damage

    def read(self, name: str) -> NDArray[Any]:
        """Return D of the named case; raise FileError if the case is unfinished or does not match its checksum."""
        names = [outcome.name for outcome in self.outcomes]
        if name not in names:
            raise InvalidOperand(f"name: expected one of the cases {names[0]} to {names[-1]}, got {quote(name)}")
        stored = self._store.read_case(names.index(name), verify=True)
        file = quote(str(self._store.path / name))
        if stored.damage:
            raise FileError(f"{file} is damaged: {list_damage(stored.damage)}; run the sweep again to repair it")
        if stored.figures is None:
            raise FileError(f"{file} is not finished: run the sweep again to resume it")
        D: NDArray[Any] = import_extra("zarr", "dask").open_group(self._store.path, mode="r")[name][:]
        return D


def open_results(path: str | PathLike[str], *, verify: bool = False) -> SweepResults:
    """Open a store for reading; nothing is computed or written.

    Missing and truncated chunks are listed in `damage`, with a `StoreWarning`; `verify=True` also reads every chunk and
    compares it with its checksum. Raises FileError if the folder is not a store.
    """
    check_flag("verify", verify)
    if not isinstance(path, str | os.PathLike):
        raise FileError(f"expected the path of a store, got {quote(path)}")
    folder = Path(path)
    store = StoreReader(folder, SweepPlan.of_table(read_header(folder)["plan"]))
    outcomes: list[Outcome] = []
    damage: list[BlockDamage] = []
    done = total = 0
    for number, case in enumerate(store.plan.cases):
        figures = None
        if not case.refusal:
            stored, blocks = store.read_case(number, verify=verify), len(store.blocks(case))
            figures = stored.figures
            total += blocks
            done += len(stored.tallies) if figures is None else blocks - len(stored.damage)
            damage += stored.damage
        outcomes.append(Outcome(store.name(number), case, figures, case.refusal))
    if damage:
        msg = f"{quote(str(folder))} is damaged: {list_damage(damage)}; run the sweep again to repair it"
        warnings.warn(msg, StoreWarning, stacklevel=2)
    return SweepResults(store.plan, tuple(outcomes), tuple(damage), done, total, store)


class StoreWriter(StoreReader):
    """A store opened for writing and locked against other processes until it is closed."""

    def __init__(self, path: str | PathLike[str], plan: SweepPlan) -> None:
        """Create a store, or continue one with the same plan and versions."""
        if not isinstance(path, str | os.PathLike):
            raise FileError(f"expected the path of a store, got {quote(path)}")
        super().__init__(Path(path), plan)
        self._zarr = import_extra("zarr", "dask")
        self._arrays: dict[int, Any] = {}
        with _write_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.path)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        for part in [path for pattern in PARTIAL for path in self.path.rglob(pattern)]:
            _remove(part)
        plan = self.plan
        header: dict[str, Any] = {"schema": SCHEMA, "sha256": plan.digest, **versions(), "plan": plan.to_dict()}
        if not any(self.path.iterdir()):
            self._group = self._zarr.create_group(self.path, attributes={KEY: header})
            return
        if not (self.path / METADATA).exists():
            raise FileError(f"{quote(str(self.path))} exists and is not a sweep; choose another name with -o")
        stored = read_header(self.path)
        for name in ("plan", *versions()):
            if stored.get(name) != header[name]:
                change = f"the store was written with {name} {stored.get(name)}; this process has {header[name]}"
                if name == "plan":
                    change = _difference(stored[name], header[name])
                raise FileError(f"{quote(str(self.path))} has a different sweep: {change}; choose another name with -o")
        self._group = self._zarr.open_group(self.path, mode="r+")

    def __enter__(self) -> Self:
        """Return the store itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self.close()

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _array(self, number: int) -> zarr.Array:
        if number not in self._arrays:
            self._arrays[number] = self._group[self.name(number)]
        return self._arrays[number]

    def begin(self, number: int) -> None:
        """Create the array of a case, unless it exists."""
        case, name = self.plan.cases[number], self.name(number)
        if (self.path / name / METADATA).is_file():
            return
        rows, columns, _ = case.shape
        with _write_errors(self.path / name):
            self._group.create_array(
                name,
                shape=(rows, columns),
                chunks=self.chunk_shape(case),
                dtype=natural_dtype(FORMATS[case.form.d]),
                compressors=[import_extra("zarr.codecs", "dask").Crc32cCodec()],
                attributes=case.to_dict(),
                config={"write_empty_chunks": True},  # otherwise negative zeros would be read back as positive zeros
            )

    def write(self, number: int, block: tuple[int, int], D: NDArray[Any], tally: ErrorTally | None) -> None:
        """Write a block's chunk and, if the case is unfinished, its error tally."""
        chunk, record = self.chunk_file(number, block), self.record_file(number, block)
        rows, columns = (index * size for index, size in zip(block, self.plan.block, strict=True))
        with _write_errors(chunk):
            self._array(number)[rows : rows + D.shape[0], columns : columns + D.shape[1]] = D
            record.parent.mkdir(parents=True, exist_ok=True)
        if tally is not None:
            write_atomically(record, json.dumps(tally.to_dict()))

    def finish(self, number: int, figures: dict[str, Any]) -> None:
        """Write the figures of a case, then delete its error tallies."""
        with _write_errors(self.path / self.name(number)):
            self._array(number).update_attributes({"figures": figures})
        self.delete_records(number)

    def delete_records(self, number: int) -> None:
        """Delete the error tallies of a case, and their folder once it is empty."""
        self._arrays.pop(number, None)
        folder = self.path / RECORDS
        _remove(folder / self.name(number))
        with suppress(OSError):  # other cases still have tallies there, or there is no folder
            folder.rmdir()

    def delete_block(self, number: int, block: tuple[int, int]) -> None:
        """Delete the chunk and the error tally of a damaged block."""
        _remove(self.record_file(number, block))
        _remove(self.chunk_file(number, block))


def _remove(path: Path) -> None:
    """Delete a file or a folder, if it exists."""
    with _write_errors(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif os.path.lexists(path):
            path.unlink()


def _difference(stored: dict[str, Any], requested: dict[str, Any]) -> str:
    """Return a text that lists the keys in which two plans differ."""
    names = [name for name in dict.fromkeys([*stored, *requested]) if stored.get(name) != requested.get(name)]
    return "; ".join(
        f"{name} is {quote(stored.get(name))} in the store and {quote(requested.get(name))} in the plan"
        for name in names
    )


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    """Convert errors of the operating system to FileError."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: the path contains a NUL
        reason = error.strerror if isinstance(error, OSError) else error
        raise FileError(f"cannot write {quote(str(path))}: {reason}") from None


def _lock(path: Path) -> int | None:
    """Lock a folder and return the descriptor that holds the lock, or None on a system without fcntl."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover (only on Windows)
        return None
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise FileError(f"{quote(str(path))} is in use: another sweep is writing to it") from None
    return descriptor
