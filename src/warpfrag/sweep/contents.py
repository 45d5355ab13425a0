"""What a store holds, case by case, and what of it is damaged. Nothing here writes."""

from __future__ import annotations

import json
import os
import re
from hashlib import sha256
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from warpfrag.errors import FileError, quote
from warpfrag.files import PART
from warpfrag.formats.codes import natural_dtype
from warpfrag.formats.number_formats import FORMATS
from warpfrag.sweep.checksums import CHECKSUM, CRC_BYTES, BlockDamage, chunk_problem, damaged_document, read_document
from warpfrag.sweep.tally import ErrorTally

if TYPE_CHECKING:
    from pathlib import Path

    from warpfrag.sweep.sweep_plan import Case, Study

SCHEMA = 2
WITHOUT_CHECKSUMS = 1
"""The schema of 0.2."""
KEY = "warpfrag"
BLOCKS = ".blocks"
METADATA = "zarr.json"


def read_about(path: Path) -> dict[str, Any] | None:
    """What the group of a store says of its study; None if it is a group of somebody else."""
    document = read_document(path / METADATA, None)
    try:
        about: dict[str, Any] = document["attributes"][KEY]
        schema, checksum = about["schema"], document["attributes"].get(CHECKSUM)
    except (KeyError, TypeError, AttributeError):
        if document.get("node_type") != "group" or KEY in json.dumps(document):
            raise damaged_document(path / METADATA) from None
        return None
    if schema == WITHOUT_CHECKSUMS and checksum is None:
        if sha256(json.dumps(about.get("study"), sort_keys=True).encode()).hexdigest() != about.get("sha256"):
            raise damaged_document(path / METADATA)
    else:
        read_document(path / METADATA, "")
    return about


def without_checksums(path: Path, about: dict[str, Any]) -> str:
    """The warning of a store of 0.2."""
    return f"{quote(str(path))} was made with version {about.get('version')}: it has no checksums to tell damage by"


class BlockRecord(NamedTuple):
    """What is kept of a block that is done while its case is not."""

    crc32c: str
    tally: ErrorTally


class StoredCase(NamedTuple):
    """What a store has of a case."""

    figures: dict[str, Any] | None
    """None while the case is not done."""
    records: dict[tuple[int, int], BlockRecord]
    """The blocks that are done, of a case that is not."""
    damage: tuple[BlockDamage, ...]
    """Of a case that is done, what is not there of it; of another, records and chunks that do not count."""
    crc32c: dict[tuple[int, int], str]
    """Of the chunks that are damaged, of a case that is done."""


class StoreContents:
    """The files of a store, as its study says that they are."""

    def __init__(self, path: Path, study: Study, about: dict[str, Any]) -> None:
        """Remember where they are, and what the group says."""
        self.path, self.study = path, study
        self.has_checksums = about["schema"] != WITHOUT_CHECKSUMS
        self._digest = about["sha256"]

    def name(self, number: int) -> str:
        """What the array of a case is called."""
        return str(number).zfill(len(str(len(self.study.cases) - 1)))

    def owner(self, name: str) -> str:
        """Whose a document of an array is."""
        return f"{self._digest}/{name}"

    def grid(self, case: Case) -> tuple[int, int]:
        """How many rows and columns of chunks D has."""
        rows, columns = (-(-size // step) for size, step in zip(case.shape[:2], self.study.block, strict=True))
        return rows, columns

    def chunk_shape(self, case: Case) -> tuple[int, int]:
        """Of every chunk: those at the edges are padded."""
        return min(case.shape[0], self.study.block[0]), min(case.shape[1], self.study.block[1])

    def chunk(self, number: int, place: tuple[int, int]) -> Path:
        """The file of a chunk."""
        return self.path / self.name(number) / "c" / str(place[0]) / str(place[1])

    def record(self, number: int, place: tuple[int, int]) -> Path:
        """The file of a record."""
        return self.path / BLOCKS / self.name(number) / f"{place[0]}.{place[1]}.json"

    def read_case(self, number: int, *, verify: bool) -> StoredCase:
        """What is there of a case: each chunk is looked at, and read if `verify` asks for it."""
        document = self._document(number)
        attributes = document.get("attributes", {})
        if "figures" not in attributes:
            lost = self._lost_metadata(number) if not document else ()
            return self._records(number, lost, verify=verify)
        case, digits = self.study.cases[number], 2 * CRC_BYTES
        rows, columns = self.grid(case)
        sums = attributes.get("crc32c")
        damage, crc32c = [], {}
        for index, place in enumerate(product(range(rows), range(columns))):
            crc = None if sums is None else sums[index * digits : (index + 1) * digits]
            damaged = self._damage(number, place, crc if verify else None)
            if damaged is not None:
                damage.append(damaged)
                crc32c[place] = crc or ""
        return StoredCase(attributes["figures"], {}, tuple(damage), crc32c)

    def _document(self, number: int) -> dict[str, Any]:
        """The metadata of a case; nothing where there is none."""
        name = self.name(number)
        file = self.path / name / METADATA
        if not os.path.lexists(file) and (file.parent.is_dir() or not os.path.lexists(file.parent)):
            return {}  # else a file is in the place of the folder, which reading it will say
        if self.has_checksums:
            return read_document(file, self.owner(name))
        document = read_document(file, None)
        if not self._is_plain(document, self.study.cases[number]):
            raise damaged_document(file)
        return document

    def _is_plain(self, document: dict[str, Any], case: Case) -> bool:
        """Whether metadata without a checksum are those of the case."""
        try:
            attributes = {name: value for name, value in document["attributes"].items() if name != "figures"}
            shapes = document["shape"], document["chunk_grid"]["configuration"]["chunk_shape"]
            codecs = [codec["name"] for codec in document["codecs"]]
        except (KeyError, TypeError, AttributeError):
            return False
        expected = [*case.shape[:2]], [*self.chunk_shape(case)]
        dtype = natural_dtype(FORMATS[case.form.d]).name
        return (
            attributes == case.to_dict()
            and shapes == expected
            and (document.get("data_type"), codecs) == (dtype, ["bytes"])
        )

    def _lost_metadata(self, number: int) -> tuple[BlockDamage, ...]:
        """Chunks without metadata: no sweep leaves them so."""
        name = self.name(number)
        if not (self.path / name / "c").exists():
            return ()
        return (BlockDamage(name, None, f"{name}/{METADATA}", "is missing"),)

    def _damage(self, number: int, place: tuple[int, int], crc: str | None) -> BlockDamage | None:
        case, file = self.study.cases[number], self.chunk(number, place)
        rows, columns = self.chunk_shape(case)
        size = rows * columns * natural_dtype(FORMATS[case.form.d]).itemsize
        problem = chunk_problem(file, size + CRC_BYTES if self.has_checksums else size, crc)
        return BlockDamage(self.name(number), place, self._inside(file), problem) if problem else None

    def _inside(self, file: Path) -> str:
        return file.relative_to(self.path).as_posix()

    def _records(self, number: int, damage: tuple[BlockDamage, ...], *, verify: bool) -> StoredCase:
        """The blocks of a case that are done, while the case is not; a record without its chunk does not count."""
        records, damages = {}, [*damage]
        folder, name = self.path / BLOCKS / self.name(number), self.name(number)
        files = sorted(folder.iterdir()) if folder.is_dir() else []
        for file in files:
            if file.name.startswith(PART):
                continue  # a sweep writes it now
            place = self._place(number, file.name)
            if place is None:
                damages.append(BlockDamage(name, None, self._inside(file), "is no record of a block"))
                continue
            try:
                facts = read_document(file, self.owner(self._inside(file)))
            except FileError:
                damages.append(BlockDamage(name, place, self._inside(file), "is damaged"))
                continue
            damaged = self._damage(number, place, facts["crc32c"] if verify else None)
            if damaged is None:
                records[place] = BlockRecord(facts["crc32c"], ErrorTally.from_dict(facts["tally"]))
            else:
                damages.append(damaged)
        return StoredCase(None, records, tuple(damages), {})

    def _place(self, number: int, name: str) -> tuple[int, int] | None:
        """The block that a record is named after, if the case has it."""
        parts = re.fullmatch(r"([0-9]{1,9})\.([0-9]{1,9})\.json", name)
        if parts is None:
            return None
        row, column = int(parts[1]), int(parts[2])
        rows, columns = self.grid(self.study.cases[number])
        is_there = row < rows and column < columns and self.record(number, (row, column)).name == name
        return (row, column) if is_there else None
