"""Fragments on the command line: `INSTRUCTION:OPERAND`, and optionally a number of tiles.

`mma.m16n8k16.f32.f16.f16.f32:d` is an accumulator, `...:d:col=2` two of them side by side, `...:b:row=2,col=2` four.
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.cli.io.output import shape_text
from warpfrag.errors import InvalidOperand, quote
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import get

if TYPE_CHECKING:
    from warpfrag.tensorcore.tensor_operand import TensorOperand

# A single colon ends an instruction name; the name itself may contain pairs, as in kind::mxf4.
FRAGMENT = re.compile(r"(?P<name>.+[^:]):(?P<operand>[A-Za-z_]+(?::[^:]*)?)", re.ASCII)
COUNT = re.compile(r"(row|col|matrix)=(\d{1,4})", re.ASCII)
MAX_WORDS = 256


def read_fragment(text: str, arch: str | None) -> Operand:
    """Return the fragment that INSTRUCTION:OPERAND[:row=N,col=N] names."""
    match = FRAGMENT.fullmatch(text.strip())
    if match is None:
        raise InvalidOperand(
            f"expected INSTRUCTION:OPERAND, such as mma.m16n8k16.f32.f16.f16.f32:d or ...:d:col=2, got {quote(text)}"
        )
    return read_operand(get(match["name"], arch), match["operand"])


def read_operand(instruction: Instruction, text: str) -> Operand:
    """Return the operand that OPERAND[:row=N,col=N] names."""
    role, colon, tiles = text.partition(":")
    operand = instruction.operands.get(role.lower())
    if not isinstance(operand, Operand):
        known = [name for name, candidate in instruction.operands.items() if isinstance(candidate, Operand)]
        raise InvalidOperand(f"{instruction} has no matrix {quote(role)}; expected one of {', '.join(known)}")
    if not colon:
        return operand
    counts: dict[str, int] = {}
    for part in tiles.split(","):
        match = COUNT.fullmatch(part.strip())
        if match is None or match[1] in counts or not int(match[2]):
            raise InvalidOperand(f"tiles: expected row=N,col=N with N at least 1, such as col=2; got {quote(tiles)}")
        counts[match[1]] = int(match[2])
    words = operand.words * prod(counts.values())
    if words > MAX_WORDS:
        raise InvalidOperand(f"{operand.role}:{tiles} takes {words} registers; a lane has at most {MAX_WORDS}")
    return operand.tiled(**counts)


def fragment_text(operand: Operand) -> str:
    """Return a short description of a fragment."""
    return f"{operand.role} of {operand.instruction}, {shape_text(operand.shape)} {operand.format}"


class FragmentFacts(NamedTuple):
    """An operand, or several tiles of it.

    instruction: canonical name
    operand: a, b, c or d
    format: number format
    shape: extents of the matrix
    words: 32-bit registers per lane; columns in tensor memory
    """

    instruction: str
    operand: str
    format: str
    shape: tuple[int, ...]
    words: int


def fragment_facts(operand: Operand | TensorOperand) -> FragmentFacts:
    """Return the facts about a fragment."""
    words = operand.words if isinstance(operand, Operand) else operand.columns
    return FragmentFacts(operand.instruction, operand.role, operand.format.name, operand.shape, words)
