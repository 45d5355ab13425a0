"""The file format of captured results.

A capture is an `.npz`. The array `about` is JSON text in bytes: device, arch, driver, assembler, and a list of
entries. An entry names an instruction and its selector, and for each class of operands the keys of the arrays

    a, b, c, d              uint32 [cases, 32, words], low register first; an f64 is two words, low word first
    metadata, scale_a, scale_b    uint32 [cases, 32], where the instruction has them

Operands that several instructions share are stored once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.captured.folders import folders
from warpfrag.isa.legality import resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from warpfrag.isa.words import Form, HasForm


@dataclass(frozen=True)
class Case:
    """One entry and class of a capture: operand registers and what the GPU gave."""

    instruction: str
    selector: int | None
    operands: str
    a: NDArray[np.uint32]
    b: NDArray[np.uint32]
    c: NDArray[np.uint32]
    d: NDArray[np.uint32]
    metadata: NDArray[np.uint32] | None = None
    scale_a: NDArray[np.uint32] | None = None
    scale_b: NDArray[np.uint32] | None = None


@dataclass(frozen=True)
class Capture:
    """An open capture file."""

    path: Path
    about: Mapping[str, Any]
    arrays: Mapping[str, NDArray[np.uint32]]

    def cases(self, form: Form | None = None) -> Iterator[Case]:
        """Every entry and class, in the order of the file, or those of one form."""
        for entry in self.about["entries"]:
            if form is None or resolve(entry["instruction"]) == form:
                for operands, keys in entry["classes"].items():
                    arrays = {role: self.arrays[key] for role, key in keys.items()}
                    yield Case(entry["instruction"], entry["selector"], operands, **arrays)


def open_capture(path: Path) -> Capture:
    """Read a capture file; arrays are unpacked when they are used."""
    arrays = np.load(path)
    about = json.loads(arrays["about"].tobytes().decode("utf-8"))
    if not about["entries"]:
        msg = f"capture {path.name} has no entries"
        raise ValueError(msg)
    return Capture(path, about, arrays)


def write_capture(path: Path, about: Mapping[str, Any], arrays: Mapping[str, NDArray[np.uint32]]) -> None:
    """Write a capture file; `about` has device, arch, driver, assembler and entries."""
    text = json.dumps({"schema": 1, **about}).encode("utf-8")
    packed: dict[str, Any] = {"about": np.frombuffer(text, np.uint8), **arrays}
    np.savez_compressed(path, **packed)


@cache
def captures() -> tuple[Capture, ...]:
    """Every capture there is."""
    return tuple(open_capture(path) for folder in folders() for path in sorted(folder.glob("*.npz")))


def load_cases(instruction: str | HasForm, arch: str = "sm_90") -> Iterator[Case]:
    """Every captured case of one instruction on an architecture, whatever its spelling."""
    form = resolve(instruction) if isinstance(instruction, str) else instruction.form
    for capture in captures():
        if capture.about["arch"] == arch:
            yield from capture.cases(form)
