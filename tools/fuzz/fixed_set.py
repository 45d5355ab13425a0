"""A fixed set of kernels with the GPU's results, for the tests.

`choose` repeatedly takes the kernel that adds the most opcode rows, or the smallest of these if there are several. For
each kernel, the file has the PTX, the launch parameters, the hash of the output, and the first output bytes, which show
differences. The input is derived from the seed. `ROWS_SINCE` has the rows that are newer than the set.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.arguments import CHECKOUT
from tools.fuzz.emulation import has_nans
from tools.fuzz.kernel import IN_BYTES
from warpfrag.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = CHECKOUT / "tests" / "data" / "random_kernels.tar.xz"
SHOWN_BYTES = 2048
KERNELS = 30
ROWS_SINCE: set[str] = set()
"""Rows that are newer than the set; clear it when a new set is recorded."""


class Kept(NamedTuple):
    """One kernel of the set."""

    seed: int
    text: str
    grid: int
    block: int
    in_bytes: int
    out_bytes: int
    sha256: str
    shown: bytes  # the first bytes of the output
    has_nans: bool = True  # True if the input contains f64 NaNs, as in sets without this field


def choose(answers: list[dict[str, Any]], count: int = KERNELS) -> list[dict[str, Any]]:
    """Choose `count` kernels; each adds the most rows to the earlier ones, and small kernels are preferred."""
    left = sorted(answers, key=lambda answer: len(answer["gpu"]))
    chosen: list[dict[str, Any]] = []
    seen: set[str] = set()
    while left and len(chosen) < count:
        best = max(left, key=lambda answer: len(set(answer["rows"]) - seen))  # the first on ties
        left.remove(best)
        chosen.append(best)
        seen |= set(best["rows"])
    return sorted(chosen, key=lambda answer: answer["seed"])


def keep(seed: int, text: str, grid: int, block: int, output: bytes) -> Kept:
    """Return a kernel with the GPU's result."""
    digest = hashlib.sha256(output).hexdigest()
    shown = output[:SHOWN_BYTES]
    return Kept(seed, text, grid, block, grid * block * IN_BYTES, len(output), digest, shown, has_nans(seed))


def write(path: Path, kernels: list[Kept]) -> None:
    """Write the set, compressed as a whole because kernels are similar."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", preset=9) as archive:
        for part in ("ptx", "json", "out"):
            for kernel in kernels:
                facts = kernel._asdict()
                del facts["text"], facts["shown"]
                data = {"ptx": kernel.text.encode(), "json": json.dumps(facts).encode(), "out": kernel.shown}[part]
                entry = tarfile.TarInfo(f"{kernel.seed}.{part}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    write_atomically(path, packed.getvalue())


def read(path: Path = FILE) -> Iterator[Kept]:
    """Read the kernels of a set."""
    with tarfile.open(path, "r:xz") as archive:
        parts = {}
        for entry in archive.getmembers():
            content = archive.extractfile(entry)
            parts[entry.name] = content.read() if content is not None else b""
    for name, data in parts.items():
        if name.endswith(".json"):
            stem = name.removesuffix("json")
            yield Kept(text=parts[f"{stem}ptx"].decode(), shown=parts[f"{stem}out"], **json.loads(data))
