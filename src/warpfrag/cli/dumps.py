"""Register dumps: what printf and debuggers show of the registers of a warp, read and written.

A line may say which lane it is about (`lane 3:`, `T3`, `[3]`, `3:`, `thread (3,0,0)`) and may name its registers
(`%r12 = 0x3c00`, `a0=3c00`). Where a line has numbers with 0x, those are the words and all else is decoration; where it
has none, every number is hex. Lines about one lane are joined. Without lanes, it is a line per lane, or one stream.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.cli.matrices import COMMENT, MOST_DIGITS
from warpfrag.errors import InvalidOperand, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LANES = 32
WORD_DIGITS = 8
# A dump may come from anywhere and be of any length, so no pattern here may try a text in more than one way: what is
# repeated is possessive (`*+`), and a name is looked for at the start of a word only.
# Where a line says which lane it is about: a word anywhere, or a number at its start.
LANE_WORDS = [
    re.compile(
        rf"(?<![\w.])(?:{word})\s*+[=:]?\s*+(?:(\d++)|[\[(]\s*+(\d++)(?:\s*+,\s*+\d++)*+\s*+[\])])(?![\w.])\s*+[:=,]?",
        re.ASCII | re.IGNORECASE,
    )
    for word in (r"lane(?:_?id)?", r"thread(?:Idx\.x)?|tid")
]
LANE_STARTS = [
    re.compile(r"\s*+T(\d++)(?![\w.]|\s*+=)\s*+[:,]?", re.ASCII | re.IGNORECASE),  # T3, but not t3 = ..., a register
    re.compile(r"\s*+[\[(]\s*+(\d++)\s*+[\])]\s*+[:=,]?", re.ASCII),
    re.compile(r"\s*+(\d++)\s*+:", re.ASCII),
]
PREFIXED = re.compile(r"0x([0-9a-f]++)u?l{0,2}", re.IGNORECASE)
NAME = re.compile(r"(?<![\w.])[%$]?[A-Za-z_][\w.]*+(?:\[\d++\])?\s*+[=:]", re.ASCII)
SEPARATORS = re.compile(r"[\s,;{}()]++")
HEX = re.compile(r"[0-9a-f]++", re.IGNORECASE)


class Line(NamedTuple):
    """One line of a dump: where it is, which lane it is about (if it says so), and its words in hex digits."""

    number: int
    lane: int | None
    words: list[str]


def read_lines(text: str) -> list[Line]:
    """The lines of a dump that hold words."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        lane, rest = _cut_lane(COMMENT.sub("", line))
        if lane is not None and not (len(lane) <= MOST_DIGITS and int(lane) < LANES):
            msg = f"line {number}: a lane is 0..{LANES - 1}, got {shown(lane)}"
            raise InvalidOperand(msg)
        words = _words(rest, number)
        if words:
            found.append(Line(number, None if lane is None else int(lane), words))
    return found


def _cut_lane(line: str) -> tuple[str | None, str]:
    """The digits of the lane that a line names, and what comes behind them."""
    for pattern in LANE_WORDS:
        if label := pattern.search(line):
            return label[1] or label[2], line[label.end() :]
    for pattern in LANE_STARTS:
        if label := pattern.match(line):
            return label[1], line[label.end() :]
    return None, line


def _words(text: str, number: int) -> list[str]:
    """The words of a line, without 0x."""
    pieces = [piece for piece in SEPARATORS.split(NAME.sub(" ", text)) if piece]
    prefixed = [PREFIXED.fullmatch(piece) for piece in pieces]
    if any(prefixed):
        # printf's %#x writes a zero without 0x: where all else has it, a bare 0 is a word too
        bare_zeros = all(match or piece == "0" for match, piece in zip(prefixed, pieces, strict=True))
        return [match[1] if match else "0" for match in prefixed if match or bare_zeros]
    wrong = next((piece for piece in pieces if not HEX.fullmatch(piece)), None)
    if wrong is not None:
        msg = f"line {number}: {shown(wrong)} is not a hex number"
        raise InvalidOperand(msg)
    return pieces


def parse_dump(text: str, words: int, *, wide: bool = False, by: str | None = None) -> list[list[int]]:
    """The words of every lane. `wide` registers of 64 bits may also be given whole; `by` says what a line is.

    >>> parse_dump(" ".join(f"{lane:08x}" for lane in range(64)), words=2)[31]
    [62, 63]
    """
    lines = read_lines(text)
    if not lines:
        msg = f"expected a dump of {LANES} lanes of {words} words, got no hex numbers"
        raise InvalidOperand(msg)
    lines = [line._replace(words=_split(line, wide=wide)) for line in lines]
    labelled = [line.lane is not None for line in lines]
    if all(labelled):
        rows = _by_label(lines, words)
    elif any(labelled):
        msg = f"line {lines[labelled.index(False)].number} names no lane, though other lines do"
        raise InvalidOperand(msg)
    else:
        rows = _by_position(lines, words, by)
    return [[int(word, 16) for word in row] for row in rows]


def _split(line: Line, *, wide: bool) -> list[str]:
    """Words of at most 32 bits: a whole 64-bit register becomes its low word and its high word."""
    found = []
    for digits in line.words:
        significant = digits.lstrip("0") or "0"
        if wide and len(digits) > WORD_DIGITS and len(significant) <= 2 * WORD_DIGITS:
            whole = digits.zfill(2 * WORD_DIGITS)
            found += [whole[-WORD_DIGITS:], whole[-2 * WORD_DIGITS : -WORD_DIGITS]]
        elif len(significant) > WORD_DIGITS:
            msg = f"line {line.number}: {shown(digits)} has more than 32 bits; words are hex, with or without 0x"
            raise InvalidOperand(msg)
        else:
            found.append(significant)
    return found


def _by_label(lines: list[Line], words: int) -> list[list[str]]:
    rows: dict[int, list[str]] = {lane: [] for lane in range(LANES)}
    for line in lines:
        if line.lane is not None:
            rows[line.lane] += line.words
    for lane, row in rows.items():
        if len(row) != words:
            came = f"got {len(row)}" if row else "but it is missing"
            msg = f"expected {words} word{'s' if words > 1 else ''} of lane {lane}, {came}"
            raise InvalidOperand(msg)
    return list(rows.values())


def _by_position(lines: list[Line], words: int, by: str | None) -> list[list[str]]:
    stream = [word for line in lines for word in line.words]
    if len(stream) != LANES * words:
        each = f"{words} in each of {LANES} lines"
        odd = next((line for line in lines if len(line.words) != words), None) if len(lines) == LANES else None
        came = f"got {len(odd.words)} in line {odd.number}" if odd else f"got {len(stream)}"
        msg = f"expected {LANES * words} words, {each} or all in one stream, {came}"
        raise InvalidOperand(msg)
    per_register = len(lines) == words and words > 1 and all(len(line.words) == LANES for line in lines)
    if by is None and per_register:
        msg = f"{words} lines of {LANES} words: say --by register if a line is a register, --by lane if it is a stream"
        raise InvalidOperand(msg)
    if by == "register":
        return [stream[lane::LANES] for lane in range(LANES)]
    return [stream[lane * words : (lane + 1) * words] for lane in range(LANES)]


def dump_lines(rows: Iterable[Sequence[int]]) -> list[str]:
    """A dump with a line per lane, which `parse_dump` reads back."""
    return [" ".join(f"0x{word:08x}" for word in row) for row in rows]
