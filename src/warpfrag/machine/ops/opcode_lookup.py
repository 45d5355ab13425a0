"""The complete opcode table, and the lookup of an instruction's row."""

import gzip
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from warpfrag.grouping import grouped
from warpfrag.machine.ir.opcode import Attributes, DecodedOpcode, OpcodeRow
from warpfrag.machine.ir.state_spaces import StateSpace
from warpfrag.machine.ops import (
    asynchronous,
    collectives,
    comparing,
    converting,
    floating,
    integer,
    memory_ops,
    texture_opcodes,
    video,
)
from warpfrag.machine.ops.opcode_rows import match

MAX_KEPT = 200  # maximum length of an opcode whose decoding is cached, in characters
_MODULES = (
    integer, floating, comparing, converting, memory_ops, collectives, video, texture_opcodes, asynchronous,
)  # fmt: skip
ROWS: dict[str, list[OpcodeRow]] = grouped((row.opcode, row) for module in _MODULES for row in module.ROWS)


def find(name: str, operand_count: int) -> DecodedOpcode:
    """Decode an opcode with the first row that accepts its qualifiers; without such a row, record the reason."""
    return _decode(name, operand_count) if len(name) > MAX_KEPT else _find_kept(name, operand_count)


def _decode(name: str, operand_count: int) -> DecodedOpcode:
    opcode = name.partition(".")[0]
    attributes = Attributes(name, opcode, operand_count=operand_count)
    if opcode not in ROWS:
        from difflib import get_close_matches

        near = get_close_matches(opcode[:20], ROWS, n=1)
        nearest = f"; nearest: {near[0]}" if near else ""
        reason = f"{name} is not modelled: {opcode} is not a known opcode{nearest}"
        return DecodedOpcode(None, attributes, reason)
    misfit = ""
    for candidate in ROWS[opcode]:
        matched = match(candidate, name, operand_count)
        if isinstance(matched, Attributes):
            return DecodedOpcode(candidate, matched)
        misfit = matched  # the message names the mismatch with the last row
    return DecodedOpcode(None, attributes, f"{name} is not modelled: {opcode} {misfit}")


_find_kept = lru_cache(4096)(_decode)


def rebind(opcode: DecodedOpcode, space: StateSpace) -> DecodedOpcode:
    """Return the opcode with `space` in place of the state space in its text."""
    return _find_in_space(opcode.attributes.name, opcode.attributes.operand_count, space)


@lru_cache(4096)
def _find_in_space(name: str, operand_count: int, space: StateSpace) -> DecodedOpcode:
    """Decode an opcode for a state space; cached, because kernels use few distinct opcodes."""
    opcode = find(name, operand_count)
    return replace(opcode, attributes=replace(opcode.attributes, space=space))


TABLE = Path(__file__).parent / "compared.txt.gz"


@dataclass(frozen=True)
class Compared:
    """The PTX opcodes, with their qualifiers, whose results always equalled a GPU's."""

    gpu: str
    driver: str
    arch: str
    threads: int
    spellings: frozenset[str]


@lru_cache(1)
def compared() -> Compared:
    """Return the compared opcodes; the file is read only once."""
    head, *names = gzip.decompress(TABLE.read_bytes()).decode("ascii").splitlines()
    gpu, driver, arch, threads = head.split(",")
    return Compared(gpu, driver, arch, int(threads), frozenset(names))


def packed(table: Compared) -> bytes:
    """Return the compared opcodes in the format of their file."""
    head = f"{table.gpu},{table.driver},{table.arch},{table.threads}"
    return gzip.compress("\n".join([head, *sorted(table.spellings), ""]).encode("ascii"), 9, mtime=0)
