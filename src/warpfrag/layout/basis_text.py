"""The text of bases: `c2 c4 r1+c8 0`, one word for each bit of an input, low bit first.

A letter names a coordinate and a number says how far it moves; `+` joins the moves of one bit, `0` moves nothing. A
digit that is larger than a bit is spelled by the bits that it would fill: of 24 columns the highest digit counts to 3
and reads `c8 c16`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from warpfrag.errors import InvalidOperand, quote
from warpfrag.layout.axes import Axis

LONGEST_NUMBER = 10  # maximum number of digits; every axis is shorter


def read_bases(name: str, text: str, outs: tuple[Axis, ...]) -> list[tuple[int, int]]:
    """Return the radix and column of each digit of an input; a column has a bit for each output digit it moves."""
    return list(_columns(name, [_read_word(word, outs) for word in text.split()], outs))


def write_basis(radix: int, moves: Iterable[tuple[str, int]]) -> list[str]:
    """Return the words for a digit with these moves: one for a bit, several for a larger digit.

    >>> write_basis(2, [("row", 1), ("col", 4)]), write_basis(3, [("col", 8)]), write_basis(2, [])
    (['r1+c4'], ['c8', 'c16'], ['0'])
    """
    parts = list(moves)
    bits = range((radix - 1).bit_length())
    return ["+".join(f"{name[0]}{weight << bit}" for name, weight in parts) or "0" for bit in bits]


def _read_word(word: str, outs: tuple[Axis, ...]) -> dict[str, int]:
    """Return the distance that a basis moves each coordinate."""
    by_letter = {axis.name[0]: axis for axis in outs}
    if word == "0":
        return {}
    moves: dict[str, int] = {}
    for part in word.split("+"):
        number = part[1:]
        is_number = number.isascii() and number.isdigit() and len(number) < LONGEST_NUMBER
        if not (part and part[0] in by_letter and is_number):
            raise InvalidOperand(
                f"basis {quote(word)}: expected 0, or one of {' '.join(by_letter)} and a number, several joined by +"
            )
        axis = by_letter[part[0]]
        if not 0 < int(number) < 1 << (axis.size - 1).bit_length():
            raise InvalidOperand(f"basis {quote(word)} is outside {axis.name}, whose size is {axis.size}")
        moves[axis.name] = moves.get(axis.name, 0) ^ int(number)
    return {coordinate: move for coordinate, move in moves.items() if move}


def _columns(name: str, words: list[dict[str, int]], outs: tuple[Axis, ...]) -> Iterator[tuple[int, int]]:
    starts = {axis.name: sum(len(other.radices) for other in outs[:at]) for at, axis in enumerate(outs)}
    cropped = {axis.name: axis for axis in outs if axis.radices and axis.radices[-1] != 2}
    at = 0
    while at < len(words):
        moves = words[at]
        axis = next((axis for axis in cropped.values() if moves.get(axis.name, 0) >= axis.weights[-1]), None)
        if axis is None:
            yield 2, sum(move << starts[coordinate] for coordinate, move in moves.items())
            at += 1
            continue
        bits = (axis.radices[-1] - 1).bit_length()
        expected = [{axis.name: axis.weights[-1] << bit} for bit in range(bits)]
        if words[at : at + bits] != expected:
            spelled = " ".join(f"{axis.name[0]}{word[axis.name]}" for word in expected)
            raise InvalidOperand(
                f"{axis.name} is {axis.size}, not a power of two: expected the consecutive bases {spelled} in {name}"
            )
        yield axis.radices[-1], 1 << (starts[axis.name] + len(axis.radices) - 1)
        at += bits
