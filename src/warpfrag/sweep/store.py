"""A study's results as a Zarr store that is right at every moment: a process may be killed at any.

    study.zarr/
      zarr.json           a group: the study, its hash, and who made it
      0, 1, ...           an array for each case: D, in chunks of one block; its attributes are the case and, once D is
                          there, the figures and the crc32c of every chunk
      .blocks/0/1.2.json  the record of a block that is done, as long as its case is not: its tally, its chunk's crc32c

Every file is written whole or not at all. The record of a block is written after its chunk, and the figures of a case
after all of its records: so what is said to be there was there. Whether it still is, `contents` looks, and `checksums`
says how. What is damaged is removed before it is computed again: whoever comes after a kill sees that it is missing.
Whatever else a killed process left is done again, and has the same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from warpfrag.errors import FileError, quote
from warpfrag.files import PART, write_atomically
from warpfrag.formats.codes import natural_dtype
from warpfrag.formats.number_formats import FORMATS
from warpfrag.sweep.checksums import CRC_BYTES, BlockDamage, seal
from warpfrag.sweep.contents import BLOCKS, KEY, METADATA, SCHEMA, WITHOUT_CHECKSUMS, StoreContents, read_about
from warpfrag.sweep.extra import extra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from os import PathLike

    import zarr
    from numpy.typing import NDArray

    from warpfrag.sweep.sweep_plan import Study
    from warpfrag.sweep.tally import ErrorTally


def versions() -> dict[str, str]:
    """What the operands and the codes may depend on besides the study."""
    return {"version": version("warpfrag"), "numpy": np.__version__}


class ResultStore:
    """The store of one study, open for one process."""

    def __init__(self, path: str | PathLike[str], study: Study) -> None:
        """Make a new store, or go on with one that is there; refused if it holds anything else."""
        if not isinstance(path, str | os.PathLike):
            msg = f"expected the name of a store to write, got {quote(path)}"
            raise FileError(msg)
        self.path, self.study = Path(path), study
        self._zarr = extra("zarr")
        self._arrays: dict[int, Any] = {}
        self._prepare()
        self._lock = _lock(self.path)
        try:
            about = self._prepare()  # once more: another sweep may have written it before the lock was ours
            self._clean()
            mine = {"schema": SCHEMA, "sha256": study.digest, **versions(), "study": study.to_dict()}
            if about is not None:
                self._check(about, mine)
            self.about = about or mine
            self.contents = StoreContents(self.path, study, self.about)
            self._crc32c: dict[str, str] = {}
            self._files = _whole_files(self.path, self._owner, self._crc32c)
            if about is None:
                self._group = self._zarr.create_group(self._files, attributes={KEY: mine})
            elif self.contents.has_checksums:
                self._group = self._zarr.open_group(self._files, mode="r+")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Use it in a with statement."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release the lock of the store."""
        self.close()

    def close(self) -> None:
        """Release the lock of the store."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _prepare(self) -> dict[str, Any] | None:
        """Make the folder; what the group says where there is a study. What is no study of ours is refused."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            others = [entry.name for entry in self.path.iterdir() if not entry.name.startswith(PART)]
        except (OSError, ValueError) as error:  # a ValueError: a NUL in the path
            reason = error.strerror if isinstance(error, OSError) else error
            msg = f"cannot write {quote(str(self.path))}: {reason}"
            raise FileError(msg) from None
        about = read_about(self.path) if METADATA in others else None
        if others and about is None:
            why = "" if METADATA in others else f", for {quote(str(self.path / METADATA))} is missing"
            msg = f"{quote(str(self.path))} exists and is not a study{why}: give another name with -o"
            raise FileError(msg)
        return about

    def _clean(self) -> None:
        """Remove the files that a killed process was writing."""
        for part in self.path.rglob(f"{PART}*"):
            _remove(part)

    def _check(self, about: dict[str, Any], mine: dict[str, Any]) -> None:
        """Refuse another study; one without checksums may be of any version, since it is only read."""
        for name in ("study",) if about["schema"] == WITHOUT_CHECKSUMS else ("schema", "study", *versions()):
            if about.get(name) != mine[name]:
                differing = (
                    _difference(about.get(name), mine[name])
                    if name == "study"
                    else (f"it was made with {name} {about.get(name)}, and this is {mine[name]}")
                )
                msg = f"{quote(str(self.path))} holds another study: {differing}; give another name with -o"
                raise FileError(msg)

    def _owner(self, key: str) -> str:
        """Whose a document of zarr is: that of the group is its own."""
        name = key.removesuffix(METADATA).rstrip("/")
        return self.contents.owner(name) if name else ""

    def _array(self, number: int) -> zarr.Array:
        if number not in self._arrays:
            self._arrays[number] = self._group[self.contents.name(number)]
        return self._arrays[number]

    def begin(self, number: int) -> None:
        """Make the array of a case and the folder of its records, where they are not there yet."""
        case, name = self.study.cases[number], self.contents.name(number)
        records = self.path / BLOCKS / name
        self._make_folder(records)
        if (self.path / name / METADATA).is_file():
            return
        rows, columns, _ = case.shape
        self._group.create_array(
            name,
            shape=(rows, columns),
            chunks=self.contents.chunk_shape(case),
            dtype=natural_dtype(FORMATS[case.form.d]),
            compressors=[extra("zarr.codecs").Crc32cCodec()],
            attributes=case.to_dict(),
            config={"write_empty_chunks": True},  # else a chunk of negative zeros would come back positive
        )

    def write(self, number: int, place: tuple[int, int], D: NDArray[Any], tally: ErrorTally | None) -> str:
        """Keep a block: the chunk first, then, of a case that is not done, that it is there; the chunk's crc32c."""
        chunk = self.contents.chunk(number, place)
        self._make_folder(chunk.parent)
        rows, columns = (index * size for index, size in zip(place, self.study.block, strict=True))
        self._array(number)[rows : rows + D.shape[0], columns : columns + D.shape[1]] = D
        crc32c = self._crc32c.pop(chunk.relative_to(self.path).as_posix())
        if tally is not None:
            record = self.contents.record(number, place)
            owner = self.contents.owner(record.relative_to(self.path).as_posix())
            write_atomically(record, seal({"crc32c": crc32c, "tally": tally.to_dict()}, owner))
        return crc32c

    def finish(self, number: int, figures: dict[str, Any], crc32c: Iterable[str]) -> None:
        """Keep the figures of a case, and the crc32c of its chunks; then its records are not needed any more."""
        self._array(number).update_attributes({"figures": figures, "crc32c": "".join(crc32c)})
        self.forget(number)

    def drop(self, number: int) -> None:
        """Remove what there is of a case that cannot be computed; chunks first, which without metadata are damage."""
        self.forget(number)
        for part in ("c", "."):
            shutil.rmtree(self.path / self.contents.name(number) / part, ignore_errors=True)

    def forget(self, number: int) -> None:
        """Remove the records of a case that is done, and their folder when it was the last."""
        self._arrays.pop(number, None)
        folder = self.path / BLOCKS
        _remove(folder / self.contents.name(number))
        if not folder.is_dir():
            _remove(folder)
            return
        with suppress(OSError):  # there are others
            folder.rmdir()

    def remove(self, number: int, damage: BlockDamage) -> None:
        """Remove a chunk or record that is not what was written, and all that speaks for its block."""
        if damage.file.startswith(BLOCKS):
            _remove(self.path / damage.file)
        if damage.place is not None:
            _remove(self.contents.record(number, damage.place))
            _remove(self.contents.chunk(number, damage.place))

    def _make_folder(self, folder: Path) -> None:
        """Make a folder of the store; a file in its place, or in that of one above, is removed."""
        if folder.is_dir():
            return
        inside = folder.relative_to(self.path)
        for path in (*reversed(inside.parents), inside):
            if not (self.path / path).is_dir():
                _remove(self.path / path)
        with _refusals_of(folder):
            folder.mkdir(parents=True, exist_ok=True)


def _remove(path: Path) -> None:
    """Remove a file, or whatever is in its place."""
    with _refusals_of(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif os.path.lexists(path):
            path.unlink()


def _difference(there: object, here: object) -> str:
    """What differs between two studies, by key."""
    if not isinstance(there, dict) or not isinstance(here, dict):
        return "it does not say which"
    names = [name for name in dict.fromkeys([*there, *here]) if there.get(name) != here.get(name)]
    return "; ".join(f"{name} is {quote(there.get(name))} there and {quote(here.get(name))} here" for name in names)


@contextmanager
def _refusals_of(path: Path) -> Iterator[None]:
    """Turn what the operating system refuses into one sentence."""
    try:
        yield
    except OSError as error:
        msg = f"cannot write {quote(str(path))}: {error.strerror}"
        raise FileError(msg) from None


def _whole_files(path: Path, owner: Callable[[str], str], crc32c: dict[str, str]) -> zarr.abc.store.Store:
    """Files of zarr that are written whole or not at all: metadata with a checksum, and that of a chunk is kept."""
    storage = extra("zarr.storage")

    class WholeFiles(storage.LocalStore):  # type: ignore[misc, name-defined] # zarr is imported when it is needed
        """A folder on this machine."""

        async def set(self, key: str, value: zarr.abc.buffer.Buffer) -> None:
            file, content = self.root / key, value.to_bytes()
            if file.name == METADATA:
                content = seal(json.loads(content), owner(key))
            else:
                crc32c[key] = content[-CRC_BYTES:].hex()
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, content)

        async def set_if_not_exists(self, key: str, value: zarr.abc.buffer.Buffer) -> None:
            if not (self.root / key).exists():
                await self.set(key, value)

    return WholeFiles(path)


def _lock(path: Path) -> int | None:
    """A hold on a folder that ends with the process, however it ends; None where the system has none."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover (not on Windows)
        return None
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        msg = f"{quote(str(path))} is in use: another sweep writes to it"
        raise FileError(msg) from None
    return descriptor
