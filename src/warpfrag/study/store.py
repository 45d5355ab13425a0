"""A study's results as a Zarr store that is right at every moment: a process may be killed at any.

    study.zarr/
      zarr.json           a group: the study, its hash, and who made it
      0, 1, ...           an array for each case: D, in chunks of one block; its attributes are the case and, once D is
                          there, the figures
      .blocks/0/1.2.json  the tally of a block that is done, as long as its case is not

Every file is written whole or not at all. The tally of a block is written after its chunk, and the figures of a case
after all of its tallies: so what is said to be there is there. Whatever else a killed process left is done again, and
has the same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from warpfrag import __version__
from warpfrag.errors import UnusableFile, quote
from warpfrag.numerics.codes import natural_dtype
from warpfrag.numerics.formats import FORMATS
from warpfrag.render.files import PART, read_bytes, write_atomically
from warpfrag.study.extra import extra
from warpfrag.study.tally import ErrorTally

if TYPE_CHECKING:
    from os import PathLike

    import zarr
    from numpy.typing import NDArray

    from warpfrag.study.plan import Study

SCHEMA = 1
KEY = "warpfrag"
BLOCKS = ".blocks"
MAX_BYTES = 1 << 24


def versions() -> dict[str, str]:
    """What the operands and the codes may depend on besides the study."""
    return {"version": __version__, "numpy": np.__version__}


class ResultStore:
    """The store of one study, open for one process."""

    def __init__(self, path: str | PathLike[str], study: Study) -> None:
        """Make a new store, or go on with one that is there; refused if it holds anything else."""
        if not isinstance(path, str | os.PathLike):
            msg = f"expected the name of a store to write, got {quote(path)}"
            raise UnusableFile(msg)
        self.path, self.study = Path(path), study
        self._zarr = extra("zarr")
        self._arrays: dict[int, Any] = {}
        self._prepare()
        self._lock = _lock(self.path)
        try:
            self._clean()
            self._files = _whole_files(self.path)
            self._group = self._open()
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

    def _prepare(self) -> None:
        """Make the folder; what is there and is no study of ours is refused."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            others = [entry.name for entry in self.path.iterdir() if not entry.name.startswith(PART)]
        except (OSError, ValueError) as error:  # a ValueError: a NUL in the path
            reason = error.strerror if isinstance(error, OSError) else error
            msg = f"cannot write {quote(str(self.path))}: {reason}"
            raise UnusableFile(msg) from None
        if others and self._about() is None:
            msg = f"{quote(str(self.path))} is there and is no study: give another name with -o"
            raise UnusableFile(msg)

    def _about(self) -> dict[str, Any] | None:
        """What the group says of the study."""
        try:
            table = json.loads(read_bytes(self.path / "zarr.json", MAX_BYTES))
            about: dict[str, Any] = table["attributes"][KEY]
        except (UnusableFile, ValueError, KeyError, TypeError):
            return None
        return about

    def _clean(self) -> None:
        """Remove the files that a killed process was writing."""
        for part in self.path.rglob(f"{PART}*"):
            part.unlink(missing_ok=True)

    def _open(self) -> zarr.Group:
        about = self._about()
        mine = {"schema": SCHEMA, "sha256": self.study.digest, **versions(), "study": self.study.to_dict()}
        if about is None:
            return self._zarr.create_group(self._files, attributes={KEY: mine})
        for name in ("schema", "study", *versions()):
            if about.get(name) != mine[name]:
                differing = (
                    _difference(about.get(name), mine[name])
                    if name == "study"
                    else (f"it was made with {name} {about.get(name)}, and this is {mine[name]}")
                )
                msg = f"{quote(str(self.path))} holds another study: {differing}; give another name with -o"
                raise UnusableFile(msg)
        return self._zarr.open_group(self._files, mode="r+")

    def name(self, number: int) -> str:
        """What the array of a case is called."""
        return str(number).zfill(len(str(len(self.study.cases) - 1)))

    def figures(self, number: int) -> dict[str, Any] | None:
        """The figures of a case; None if it is not done."""
        if not (self.path / self.name(number) / "zarr.json").is_file():
            return None
        figures: dict[str, Any] | None = dict(self._array(number).attrs).get("figures")
        return figures

    def _array(self, number: int) -> zarr.Array:
        if number not in self._arrays:
            self._arrays[number] = self._group[self.name(number)]
        return self._arrays[number]

    def tallies(self, number: int) -> dict[tuple[int, int], ErrorTally]:
        """The blocks of a case that are done, while the case is not."""
        tallies = {}
        for path in (self.path / BLOCKS / self.name(number)).glob("*.json"):
            row, column = path.stem.split(".")
            tallies[int(row), int(column)] = ErrorTally.from_dict(json.loads(read_bytes(path, MAX_BYTES)))
        return tallies

    def begin(self, number: int) -> None:
        """Make the array of a case and the folder of its tallies, where they are not there yet."""
        case, name = self.study.cases[number], self.name(number)
        (self.path / BLOCKS / name).mkdir(parents=True, exist_ok=True)
        if (self.path / name / "zarr.json").is_file():
            return
        rows, columns, _ = case.shape
        self._group.create_array(
            name,
            shape=(rows, columns),
            chunks=(min(rows, self.study.block[0]), min(columns, self.study.block[1])),
            dtype=natural_dtype(FORMATS[case.form.d]),
            compressors=None,
            attributes=case.to_dict(),
            config={"write_empty_chunks": True},  # else a chunk of negative zeros would come back positive
        )

    def write(self, number: int, place: tuple[int, int], D: NDArray[Any], tally: ErrorTally) -> None:
        """Keep a block: the chunk first, then that it is there."""
        rows, columns = (index * size for index, size in zip(place, self.study.block, strict=True))
        self._array(number)[rows : rows + D.shape[0], columns : columns + D.shape[1]] = D
        path = self.path / BLOCKS / self.name(number) / f"{place[0]}.{place[1]}.json"
        write_atomically(path, json.dumps(tally.to_dict()))

    def finish(self, number: int, figures: dict[str, Any]) -> None:
        """Keep the figures of a case; then its tallies are not needed any more."""
        self._array(number).update_attributes({"figures": figures})
        self.forget(number)

    def drop(self, number: int) -> None:
        """Remove what there is of a case that turns out not to be computable."""
        self.forget(number)
        shutil.rmtree(self.path / self.name(number), ignore_errors=True)

    def forget(self, number: int) -> None:
        """Remove the tallies of a case that is done, and their folder when it was the last."""
        self._arrays.pop(number, None)
        shutil.rmtree(self.path / BLOCKS / self.name(number), ignore_errors=True)
        with suppress(OSError):  # there are others
            (self.path / BLOCKS).rmdir()


def _difference(there: object, here: object) -> str:
    """What differs between two studies, by key."""
    if not isinstance(there, dict) or not isinstance(here, dict):
        return "it does not say which"
    names = [name for name in dict.fromkeys([*there, *here]) if there.get(name) != here.get(name)]
    return "; ".join(f"{name} is {quote(there.get(name))} there and {quote(here.get(name))} here" for name in names)


def _whole_files(path: Path) -> zarr.abc.store.Store:
    """Files of zarr that are written whole or not at all."""
    storage = extra("zarr.storage")

    class WholeFiles(storage.LocalStore):  # type: ignore[misc, name-defined] # zarr is imported when it is needed
        """A folder on this machine."""

        async def set(self, key: str, value: zarr.abc.buffer.Buffer) -> None:
            file = self.root / key
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, value.to_bytes())

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
        raise UnusableFile(msg) from None
    return descriptor
