"""Tables of the kernels that libraries choose for a gemm, by layer and m; `kernel_choice` decides when to use them."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import FileError, InvalidOperand, NotModelled, quote
from warpfrag.files import read_bytes, write_atomically

NVJET = 66
"""The cuBLASLt id of the nvjet algorithm."""
SCHEMA = 1
FORMAT = "warpfrag choices"
ARRAYS = {
    "choices": np.int32, "layers": np.uint64, "counts": np.uint16, "ends": np.uint16, "chosen": np.uint16,
}  # fmt: skip
MAX_EXTENT = 1 << 24
MAX_BYTES = 1 << 28  # the largest file of choices in bytes
MAX_M = (1 << 16) - 1
SETTINGS = {"workspace": 32 << 20, "lt_workspace": 1 << 20, "reduced_precision_reduction": False, "tf32": True}
"""The assumed PyTorch settings: workspaces of cuBLAS and cuBLASLt, partial sums in float32, TF32 allowed."""
GPU = "H200"
BUILT_IN = {GPU: "choices_h200.npz"}
"""File names of the built-in tables, by GPU."""
TABLE_OF_ARCH = {"sm_90": GPU}
"""The GPU whose table is used for an architecture."""


class Choice(NamedTuple):
    """The part of a library's choice that determines the order, in cuBLASLt's numbering.

    `kernel` is a kernel family.
    """

    algorithm: int
    tile: int
    split_k: int
    reduction: int
    custom: int
    stages: int
    kernel: str


class ChoiceRun(NamedTuple):
    """A range of m with the same choice; it starts after the previous range and ends at `last`."""

    last: int
    choice: Choice


class LayerKind(NamedTuple):
    """The table key of a layer: a PyTorch call, and the type, layout and alignment of its operands."""

    call: str
    type: str
    layout: str


class ProductKind(NamedTuple):
    """A PyTorch call and the type and layout of its operands, without the shape."""

    call: str
    type: str
    layout: str
    batch: int = 1

    def layer(self, m: int) -> LayerKind:
        """Return the table key of a layer; if A is transposed, its alignment depends on m."""
        if self.layout != "tn":
            return LayerKind(self.call, self.type, self.layout)
        step = 8 if self.type in {"f16", "bf16"} else 4
        return LayerKind(self.call, self.type, f"tn{np.gcd(m, step)}")


@dataclass(frozen=True)
class Choices:
    """The choices of a library on one GPU: `runs` returns those of a layer for all m, `find` that of a single gemm."""

    gpu: str
    library: str
    torch: str
    kinds: tuple[LayerKind, ...]
    choices: tuple[Choice, ...]
    layers: NDArray[np.uint64]
    counts: NDArray[np.uint16]
    ends: NDArray[np.uint16]
    chosen: NDArray[np.uint16]
    settings: Mapping[str, Any] = field(default_factory=lambda: dict(SETTINGS))
    name: str = ""

    def __repr__(self) -> str:
        """Format the library, the GPU and the size of the table."""
        return f"<Choices of {self.library} on {self.gpu}: {len(self.layers)} layers, {len(self.ends)} runs>"

    @property
    def source(self) -> str:
        """The library and GPU whose choices the table contains."""
        return f"{self.library} on an {self.gpu}" + (f" ({self.name})" if self.name else "")

    def runs(self, kind: LayerKind, n: int, k: int) -> list[ChoiceRun] | None:
        """Return a layer's ranges in ascending order of m, or None if the layer is not in the table."""
        place = self._place(kind, n, k)
        if place is None:
            return None
        first = int(self.counts[:place].sum(dtype=np.int64))
        span = slice(first, first + int(self.counts[place]))
        return [
            ChoiceRun(int(last), self.choices[number])
            for last, number in zip(self.ends[span], self.chosen[span], strict=True)
        ]

    def find(self, kind: LayerKind, m: int, n: int, k: int) -> Choice | None:
        """Return the choice for a gemm, or None if the table does not contain it."""
        return next((run.choice for run in self.runs(kind, n, k) or [] if m <= run.last), None)

    def _place(self, kind: LayerKind, n: int, k: int) -> int | None:
        if kind not in self.kinds or not (0 < n < MAX_EXTENT and 0 < k < MAX_EXTENT):
            return None
        key = np.uint64(_key(self.kinds.index(kind), n, k))
        place = int(np.searchsorted(self.layers, key))
        return place if place < len(self.layers) and self.layers[place] == key else None

    @property
    def listed(self) -> list[tuple[LayerKind, int, int]]:
        """The `LayerKind`, n and k of every layer in the table."""
        mask = MAX_EXTENT - 1
        return [(self.kinds[key >> 48], key >> 24 & mask, key & mask) for key in map(int, self.layers)]

    @classmethod
    def build(
        cls,
        runs: Mapping[tuple[LayerKind, int, int], Sequence[ChoiceRun]],
        *,
        gpu: str,
        library: str,
        torch: str,
        settings: Mapping[str, Any] | None = None,
    ) -> Choices:
        """Build a table from the given layers, merging adjacent ranges that have the same choice."""
        kinds = tuple(dict.fromkeys(kind for kind, _, _ in runs))
        numbers: dict[Choice, int] = {}
        keys, counts, ends, chosen = [], [], [], []
        for (kind, n, k), some in sorted(runs.items(), key=lambda entry: _key(kinds.index(entry[0][0]), *entry[0][1:])):
            joined = _joined(some)
            keys.append(_key(kinds.index(kind), n, k))
            counts.append(len(joined))
            ends += [run.last for run in joined]
            chosen += [numbers.setdefault(run.choice, len(numbers)) for run in joined]
        arrays = (
            np.array(keys, np.uint64), np.array(counts, np.uint16), np.array(ends, np.uint16),
            np.array(chosen, np.uint16),
        )  # fmt: skip
        return cls(gpu, library, torch, kinds, tuple(numbers), *arrays, dict(settings or SETTINGS))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the table to a file atomically."""
        write_atomically(str(path), self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the table in the format of its file."""
        kernels = list(dict.fromkeys(choice.kernel for choice in self.choices))
        rows = [[*choice[:-1], kernels.index(choice.kernel)] for choice in self.choices]
        arrays: dict[str, NDArray[Any]] = {
            "choices": np.array(rows, np.int32).reshape(-1, len(Choice._fields)),
            **{name: getattr(self, name) for name in ARRAYS if name != "choices"},
        }
        header = {
            "format": FORMAT, "schema": SCHEMA, "gpu": self.gpu, "library": self.library, "torch": self.torch,
            "settings": dict(self.settings), "kinds": [list(kind) for kind in self.kinds], "kernels": kernels,
        }  # fmt: skip
        text = np.frombuffer(json.dumps(header).encode(), np.uint8)
        stream = BytesIO()
        np.savez_compressed(stream, header=text, **arrays)  # type: ignore[arg-type] # NumPy's stub has a flag there
        return stream.getvalue()

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Choices:
        """Load a table from a file; raise FileError if the file is damaged or does not contain choices."""
        return cls.from_bytes(read_bytes(path, MAX_BYTES), Path(path).name)

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Choices:
        """Decode a table from the bytes of a file; messages call the file `name`."""
        try:
            with np.load(BytesIO(data), allow_pickle=False) as stored:
                arrays = {key: stored[key] for key in stored.files}
            header = json.loads(bytes(arrays.pop("header")))
        except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
            label = f"{type(error).__name__}: {error}"
            raise FileError(f"{name}: expected a file of choices written by `warpfrag survey`; {label}") from None
        _check(name, header, arrays)
        kernels = header["kernels"]
        rows = tuple(Choice._make([*row[:-1], kernels[row[-1]]]) for row in arrays["choices"].tolist())
        kinds = tuple(LayerKind(*kind) for kind in header["kinds"])
        return cls(
            header["gpu"], header["library"], header["torch"], kinds, rows,
            arrays["layers"], arrays["counts"], arrays["ends"], arrays["chosen"], header["settings"], name,
        )  # fmt: skip


def _key(kind: int, n: int, k: int) -> int:
    return kind << 48 | n << 24 | k


def _joined(runs: Iterable[ChoiceRun]) -> list[ChoiceRun]:
    joined: list[ChoiceRun] = []
    for run in runs:
        if joined and joined[-1].choice == run.choice:
            joined.pop()
        joined.append(run)
    return joined


def _check(name: str, header: object, arrays: dict[str, NDArray[Any]]) -> None:
    """Raise FileError if a file is incomplete or its schema is unknown."""
    found = {key: array.dtype for key, array in arrays.items()}
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        reason = "expected a file of choices written by `warpfrag survey`"
    elif header.get("schema") != SCHEMA:
        reason = f"expected schema {SCHEMA} of a file of choices, got {quote(header.get('schema'))}"
    elif found != {key: np.dtype(kind) for key, kind in ARRAYS.items()}:
        got = ", ".join(f"{key} {dtype}" for key, dtype in found.items())
        reason = f"expected the arrays {', '.join(ARRAYS)}; got {got}"
    elif not int(arrays["counts"].sum(dtype=np.int64)) == len(arrays["ends"]) == len(arrays["chosen"]):
        reason = "the arrays are inconsistent, so the file is damaged"
    else:
        return
    raise FileError(f"{name}: {reason}")


@cache
def built_in(gpu: str) -> Choices:
    """Return the built-in table for a GPU."""
    data = files("warpfrag.blas.cublas").joinpath(BUILT_IN[gpu]).read_bytes()
    return Choices.from_bytes(data, BUILT_IN[gpu])


@cache
def _opened(path: str, _changed: int) -> Choices:
    return Choices.load(path)


def choices_of(source: object) -> Choices:
    """Return the table for a `choices` argument: the name of a GPU with a built-in table, a file, or a table."""
    if isinstance(source, Choices):
        return source
    if not isinstance(source, str | Path):
        raise InvalidOperand(f"choices: expected a GPU, a table, or a `warpfrag survey` file; got {quote(source)}")
    name = TABLE_OF_ARCH.get(str(source), str(source).removeprefix("NVIDIA "))
    if name in BUILT_IN:
        return built_in(name)
    try:
        changed = Path(source).stat().st_mtime_ns
    except (OSError, ValueError) as error:
        if not Path(source).suffix:
            raise NotModelled(
                f"cuBLAS's order of additions is known on {', '.join(BUILT_IN)}, not on {quote(source)}: run `warpfrag "
                "survey` on a machine with that GPU, and pass its file as choices; `gemm` models the arithmetic of "
                "other GPUs, with k ascending"
            ) from None
        reason = getattr(error, "strerror", None) or str(error)  # the reason without the file name
        raise FileError(f"choices: {quote(str(source))} cannot be read: {reason}") from None
    return _opened(str(source), changed)
