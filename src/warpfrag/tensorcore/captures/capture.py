"""Capture files: the results of one GPU.

A capture is an `.npz` file. The array `about` is JSON text in bytes: device, arch, driver, assembler, and a list of
entries. An entry names an instruction and its selector, and for each class of operands the keys of the arrays

    a, b, c, d              uint32 [cases, 32, words], low register first; an f64 is two words, low word first
    metadata, scale_a, scale_b    uint32 [cases, 32], if the instruction has them

Operands that several instructions share are stored once.

A wgmma entry also has `calls`: for each class the storage of A, the transposed and negated operands, the descriptors in
hex, and scale-d. Its arrays are

    a (if it is in registers), c, d         uint32 [cases, 4, 32, words]
    metadata                                uint32 [cases, 4, 32]
    shared                                  uint32 [cases, bytes / 4], the bytes of shared memory

The arrays of tcgen05 are images (`tensor_images`), with the cases as first axis.
"""

import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from warpfrag.files import read_bytes, write_atomically
from warpfrag.formats.arrays import Words
from warpfrag.isa.legality import resolve
from warpfrag.isa.qualifiers import Form
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.isa.tmem_layouts import TENSOR_LANES
from warpfrag.layout.coordinates import LANES
from warpfrag.tensorcore.captures.capture_index import HERE, folders, whole
from warpfrag.tensorcore.wgmma_call import WgmmaCall, WgmmaCallRow, WgmmaCases

WARPGROUP = (4, LANES)  # (warps, lanes) of a warpgroup
MAX_BYTES = 1 << 30
CAPTURE = "a capture written by `warpfrag verify --capture`"


class CaptureEntry(TypedDict):
    """An instruction with a selector, and the array keys for each operand class."""

    instruction: str
    selector: int | None
    classes: dict[str, dict[str, str]]
    calls: NotRequired[dict[str, WgmmaCallRow]]


class About(TypedDict):
    """The metadata of a capture file."""

    device: str
    arch: str
    driver: str
    assembler: str
    entries: list[CaptureEntry]


@dataclass(frozen=True)
class CapturedCase:
    """One entry and operand class of a capture: operands in registers or memory images, and the GPU's results."""

    instruction: str
    selector: int | None
    operands: str
    a: Words
    b: Words
    c: Words
    d: Words
    metadata: Words | None = None
    scale_a: Words | None = None
    scale_b: Words | None = None

    @property
    def words(self) -> dict[str, Words]:
        """The arrays by role."""
        roles = ("a", "b", "c", "d", "metadata", "scale_a", "scale_b")
        return {role: array for role in roles if (array := getattr(self, role)) is not None}


@dataclass(frozen=True)
class WgmmaCase:
    """One entry and operand class of a captured wgmma: the call, and the GPU's results."""

    instruction: str
    selector: int | None
    operands: str
    call: WgmmaCases
    d: Words

    @property
    def words(self) -> dict[str, NDArray[Any]]:
        """The arrays by role."""
        return {**self.call.words, "d": self.d, "shared": self.call.shared}


def _check(case: CapturedCase | WgmmaCase, form: Form) -> None:
    """Raise an error if an array has an unexpected dtype, or if the numbers of cases or threads differ."""
    for role, array in case.words.items():
        threads: tuple[int, ...] = WARPGROUP if isinstance(case, WgmmaCase) else (LANES,)
        if isinstance(form, TensorForm):
            threads = (2,) * (form.blocks == 2) + (TENSOR_LANES,) * (role in "cd")
        if role == "shared":
            threads = ()
        lead, has_words = (len(case.d), *threads), role in "abcd" or role == "shared"
        dtype = np.uint8 if role == "shared" else np.uint32
        if array.dtype != dtype or array.ndim != len(lead) + has_words or array.shape[: len(lead)] != lead:
            raise ValueError(f"{role} of {case.instruction} has the wrong dtype or shape: {array.dtype} {array.shape}")


def _wgmma_case(entry: CaptureEntry, kind: str, arrays: dict[str, Words]) -> WgmmaCase:
    call = WgmmaCall.read(entry["calls"][kind], entry["selector"] or 0)
    d = arrays.pop("d")
    return WgmmaCase(entry["instruction"], entry["selector"], kind, call.stage(arrays), d)


@dataclass(frozen=True)
class Capture:
    """An open capture file."""

    path: Path
    about: About
    arrays: Mapping[str, Words]

    @property
    def instructions(self) -> dict[str, Form]:
        """The captured instructions, by their names in the file."""
        with whole(self.path, CAPTURE):
            return {entry["instruction"]: resolve(entry["instruction"]) for entry in self.about["entries"]}

    def cases(self, names: Container[str] | None = None) -> Iterator[CapturedCase | WgmmaCase]:
        """Yield the cases of every entry and class in file order; `names` selects instructions."""
        forms = self.instructions
        for entry in self.about["entries"]:
            name = entry["instruction"]
            if names is None or name in names:
                with whole(self.path, CAPTURE):
                    classes = [*entry["classes"].items()]
                for kind, keys in classes:
                    with whole(self.path, CAPTURE):
                        arrays = {role: self.arrays[key] for role, key in keys.items()}
                        case = (
                            _wgmma_case(entry, kind, arrays)
                            if "calls" in entry
                            else CapturedCase(name, entry["selector"], kind, **arrays)
                        )
                        _check(case, forms[name])
                    yield case


def open_capture(path: Path) -> Capture:
    """Open a capture file; its arrays are read on first use."""
    with whole(path, CAPTURE):
        arrays = np.load(BytesIO(read_bytes(path, MAX_BYTES)), allow_pickle=False)
        about = json.loads(arrays["about"].tobytes().decode("utf-8"))
        if not about["entries"] or not isinstance(about["entries"], list):
            raise ValueError("it has no entries")
        for fact in ("device", "arch", "driver"):
            about[fact] = str(about[fact])
    return Capture(path, about, arrays)


def write_capture(path: str | PathLike[str], about: Mapping[str, object], arrays: Mapping[str, Words]) -> None:
    """Write a capture file; `about` has device, arch, driver, assembler and entries."""
    text = json.dumps({"schema": 1, **about}).encode("utf-8")
    packed: dict[str, Any] = {"about": np.frombuffer(text, np.uint8), **arrays}
    content = BytesIO()
    np.savez_compressed(content, **packed)
    write_atomically(path, content.getvalue())


def captures() -> tuple[Capture, ...]:
    """Return every capture in the capture folders."""
    return tuple(_opened(path) for folder in folders() for path in sorted(Path(folder).glob("*.npz")))


_opened = lru_cache(maxsize=64)(open_capture)


FILE = Path(HERE) / "addresses" / "h200.npz"
MAX_MAP_BYTES = 1 << 24
MEMORY = 1 << 16


class AddressMap(NamedTuple):
    """The addresses that the hardware reads for one operand and descriptor."""

    instruction: str
    operand: str
    trans: bool
    descriptor: int
    addresses: NDArray[np.int64]


class AddressMaps(NamedTuple):
    """All address maps captured on one GPU."""

    device: str
    arch: str
    driver: str
    maps: tuple[AddressMap, ...]


def address_maps() -> AddressMaps:
    """Return every address map."""
    with whole(FILE, "a file of address maps"):
        arrays = np.load(BytesIO(read_bytes(FILE, MAX_MAP_BYTES)), allow_pickle=False)
        about = json.loads(arrays["about"].tobytes().decode("utf-8"))
        steps, at, maps = arrays["steps"], 0, []
        for row in about["maps"]:
            count = int(np.prod(row["shape"]))
            addresses = np.cumsum(steps[at : at + count], dtype=np.int64) % MEMORY
            at += count
            maps.append(
                AddressMap(
                    row["instruction"],
                    row["operand"],
                    row["trans"],
                    int(row["descriptor"], 16),
                    addresses.reshape(row["shape"]),
                )
            )
    return AddressMaps(about["device"], about["arch"], about["driver"], tuple(maps))
