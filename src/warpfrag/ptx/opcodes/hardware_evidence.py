"""The spellings whose results an H200 gave too: `tools.opcodes` compares them and writes the list.

The first line of `compared.txt.gz` is the GPU, its driver, its architecture and how many threads were compared for
each; the others are the spellings. It is the one place of this fact; docs/evidence/h200_opcodes.md tells of it.
"""

from __future__ import annotations

import gzip
from functools import lru_cache
from pathlib import Path

from warpfrag.layout.frozen import frozen_dataclass

TABLE = Path(__file__).parent / "compared.txt.gz"


@frozen_dataclass
class Compared:
    """Spellings that were compared, every result equal."""

    gpu: str
    driver: str
    arch: str
    threads: int
    spellings: frozenset[str]


@lru_cache(1)
def compared() -> Compared:
    """The list, read once."""
    head, *names = gzip.decompress(TABLE.read_bytes()).decode("ascii").splitlines()
    gpu, driver, arch, threads = head.split(",")
    return Compared(gpu, driver, arch, int(threads), frozenset(names))


def packed(table: Compared) -> bytes:
    """The list as the file holds it."""
    head = f"{table.gpu},{table.driver},{table.arch},{table.threads}"
    return gzip.compress("\n".join([head, *sorted(table.spellings), ""]).encode("ascii"), 9, mtime=0)
