"""Profiles: the attributes of a GPU as its driver reports them, read from a real GPU."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpfrag.errors import InvalidOperand, quote

FOLDER = Path(__file__).parent / "profiles"
ATTRIBUTES, LIMITS = 256, 16  # as in stand_in.h
NO_LIMIT = 2**64 - 1
UUID = b"warpfrag gpu 0\0\0"


@dataclass(frozen=True)
class GpuProfile:
    """What a driver says about a GPU: its name, memory, limits, and attributes 1 and up by number."""

    name: str
    arch: str
    source: str
    driver_version: int
    total_memory: int
    limits: tuple[int | None, ...]
    stream_priorities: tuple[int, int]
    attributes: tuple[int, ...]

    def encode(self) -> bytes:
        """Return `struct profile` of stand_in.h."""
        limits = [NO_LIMIT if limit is None else limit for limit in self.limits]
        limits += [NO_LIMIT] * (LIMITS - len(limits))
        attributes = [0, *self.attributes]
        count = len(attributes)
        attributes += [0] * (ATTRIBUTES - count)
        head = struct.pack("<4iQ", self.driver_version, count, *self.stream_priorities, self.total_memory)
        numbers = struct.pack(f"<{LIMITS}Q{ATTRIBUTES}i", *limits, *attributes)
        return head + numbers + UUID + self.name.encode().ljust(256, b"\0")


def profile_names() -> list[str]:
    """Return the names of the profiles."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def read_profile(name: str) -> GpuProfile:
    """Return a profile by name; InvalidOperand lists the names if there is none."""
    names = {each.lower(): each for each in profile_names()}
    if name.lower() not in names:
        raise InvalidOperand(f"expected a GPU profile ({', '.join(names.values())}), got {quote(name)}")
    row = json.loads((FOLDER / f"{names[name.lower()]}.json").read_bytes())
    lists: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    return GpuProfile(**lists)
