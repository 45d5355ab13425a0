"""Register dumps as printf and debuggers print them, read and written.

A line may begin with its thread: `lane 3:`, `T3`, `[3]`, `3:`, `t=3`, `thread (3,0,0)`, `warp 1 lane 3:`. Threads
beyond 31 belong to the next warps. Its words may have names, and names say which register: `a3=0x3c00`, `a[3]:`,
`reg 3:`, `V3:`, `v.w=`. PTX and machine registers (`%r15 = ...`, `R15 0x...`) only have an order, so their numbers must
be consecutive. Words after one name are the registers from there on. A line with a label alone applies to the lines
below.

If a line has numbers with 0x, those are the words; a decimal number or a float beside them must repeat the word, or be
a remark in floats. If it has none, every number is hex, unless one number of the dump has a point or a sign, or is
inf or nan: then all are values, an element each. Anything else is rejected with its line.

A dump of tensor memory has a line for each lane, with a hex word for each column, and for a pair of blocks the block:
`lane 0: 00000000 3f800000`, `block 1 lane 37: 00000000 3f800000`. Lines without names are all lanes in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.cli.support.matrix_files import COMMENT, MAX_DIGITS, exact_value
from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.number_formats import Format
from warpfrag.layout.coordinates import LANES
from warpfrag.tensorcore.operand import OperandBase

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

REGISTER_BITS = 32
MASK = (1 << REGISTER_BITS) - 1
WORD_DIGITS = 8
MAX_THREADS = 1024  # of a block
# A dump may come from anywhere and be of any length, so no pattern here may backtrack: what is repeated is possessive
# (`*+`), and every pattern is tried where the last one ended.
INDEX = r"\s*+[=:]?\s*+(?:(\d++)|[\[(]\s*+(\d++)(?:\s*+,\s*+\d++)*+\s*+[\])])(?![\w.])\s*+[:=,]?"
LABELS = {
    kind: re.compile(rf"(?:{word}){INDEX}", re.ASCII | re.IGNORECASE)
    for kind, word in {
        "lane": r"lane(?:_?id)?",
        "thread": r"thread(?:Idx\.x|_?id)?|tid",
        "warp": r"warp(?:_?id)?",
        "block": r"block(?:Idx\.x|_?id)?|cta(?:_?id)?",
    }.items()
}
LANE_STARTS = [
    re.compile(r"T(\d++)(?![\w.]|\s*+=)\s*+[:,]?", re.ASCII | re.IGNORECASE),  # T3, but not t3 = ..., a register
    re.compile(r"T\s*+[=:]\s*+(\d++)(?![\w.])\s*+[:,]?", re.ASCII | re.IGNORECASE),
    re.compile(r"[\[(]\s*+(\d++)\s*+[\])]\s*+[:=,]?", re.ASCII),
    re.compile(r"(\d++)\s*+:", re.ASCII),
]
SPACE = re.compile(r"[\s,;]*+")
GAP = re.compile(r"[\s,;{}()|]*+")
NAMED = re.compile(
    r"([%$]?[A-Za-z_][\w.]*+(?:\s*+\[\s*+\d++\s*+\]|\s++\d++(?=\s*+[=:]))?+)\s*+[=:]", re.ASCII
)  # with the sign before a value
PIECE = re.compile(r"[^\s,;{}()|]++")
BARE_NAME = re.compile(r"[%$]?[A-Za-z_][\w.]*+(?:\[\d++\])?", re.ASCII)  # R4 0x3c00
FIELDS = ("x", "y", "z", "w")  # of CUDA's vectors: v.x, v.y, ...
ORDERED = re.compile(r"%\w*|u?r", re.ASCII | re.IGNORECASE)  # names of registers that only have an order
PREFIXED = re.compile(r"0x([0-9a-f]++)u?l{0,2}", re.IGNORECASE)
HEX = re.compile(r"[0-9a-f]++", re.IGNORECASE)
DECIMAL = re.compile(r"[+-]?\d++", re.ASCII)
VALUE = re.compile(r"[+-]?(?:inf(?:inity)?|nan|\d*+\.?\d*+(?:e[+-]?\d++)?)f?", re.ASCII | re.IGNORECASE)
IS_VALUE = re.compile(r"[.+-]|nan|inf", re.IGNORECASE)
TENSOR_LABEL = re.compile(r"(?:block (?P<block>\d{1,2})[ ,]+)?t?lane (?P<lane>\d{1,3}) *:", re.ASCII | re.IGNORECASE)
TENSOR_WORD = re.compile(r"(?:0x)?[0-9a-f]{1,8}", re.ASCII | re.IGNORECASE)


class RegisterName(NamedTuple):
    """The name of a word: its stem and its number, None if it has no number."""

    stem: str
    number: int | None

    def __str__(self) -> str:
        """Return the name as messages quote it."""
        return quote(self.stem if self.number is None else f"{self.stem}{self.number}")


class DumpWord(NamedTuple):
    """One number of a dump, as written, without 0x; its line and its name.

    `codes` is its meaning: a 32-bit word, the two words of a 64-bit register, or the code of a value.
    """

    text: str
    line: int
    name: RegisterName | None
    has_prefix: bool
    codes: tuple[int, ...] = ()


class DumpLine(NamedTuple):
    """One line of a dump: its number, its warp and lane if it names them, and its words."""

    number: int
    warp: int | None
    lane: int | None
    words: list[DumpWord]


class ValueEncoding(NamedTuple):
    """The encoding of values: codes of a format, `slots` in a register of `bits`, starting at bit `low`."""

    format: Format
    slots: int
    bits: int
    low: int = 0


def read_lines(text: str) -> list[DumpLine]:
    """Return the lines of a dump that contain words; a line with a label alone applies to those below it."""
    lines, blocks = [], set()
    standing: dict[str, int] = {}
    for number, full in enumerate(text.splitlines(), start=1):
        line = COMMENT.sub("", full)
        own, start = _cut_labels(line, number)
        words = _words(line, start, number)
        if not words:
            standing = own if own.keys() & {"warp", "block"} else standing | own
            continue
        owner = standing | own
        blocks.add(owner.get("block"))
        lines.append(DumpLine(number, owner.get("warp"), owner.get("lane"), words))
        if len(blocks) > 1:
            raise InvalidOperand(f"line {number} is of another block than those before: give the dump of one block")
    return lines


def _cut_labels(line: str, number: int) -> tuple[dict[str, int], int]:
    """Return the labels of a line (warp, lane and block, if present), and the start of its words."""
    labels: dict[str, int] = {}
    start = 0
    while True:
        start = _skip(SPACE, line, start)
        candidates = ((kind, pattern.match(line, start)) for kind, pattern in LABELS.items() if kind not in labels)
        kind, label = next(((kind, label) for kind, label in candidates if label), ("lane", None))
        if label is None and not labels.keys() & {"lane", "thread"}:
            label = next((label for pattern in LANE_STARTS if (label := pattern.match(line, start))), None)
        if label is None:
            break
        digits = next(group for group in label.groups() if group)
        limit = {"lane": LANES, "thread": MAX_THREADS, "warp": MAX_THREADS // LANES}.get(kind, 1 << 31)
        if not (len(digits) <= MAX_DIGITS and int(digits) < limit):
            raise InvalidOperand(f"line {number}: a {kind} is 0..{limit - 1}, got {quote(digits)}")
        labels[kind] = int(digits)
        start = label.end()
    thread = labels.pop("thread", None)
    if thread is not None and "lane" not in labels:
        labels["lane"] = thread % LANES
        if thread >= LANES and labels.setdefault("warp", thread // LANES) != thread // LANES:
            raise InvalidOperand(
                f"line {number}: thread {thread} is of warp {thread // LANES}, not of warp {labels['warp']}"
            )
    return labels, start


def _skip(separators: re.Pattern[str], line: str, start: int) -> int:
    """Return the end of the separators at this position."""
    match = separators.match(line, start)
    return match.end() if match else start


def _pieces(line: str, start: int) -> Iterator[tuple[str, bool]]:
    """Yield the rest of a line in pieces, and whether each is a name."""
    start = _skip(GAP, line, start)
    while start < len(line):
        named = NAMED.match(line, start)
        piece = named or PIECE.match(line, start)
        if piece is None:
            return
        yield (named[1], True) if named else (piece[0], False)
        start = _skip(GAP, line, piece.end())


def _words(line: str, start: int, number: int) -> list[DumpWord]:
    """Return the words of a line, each with the name before it."""
    pieces = [*_pieces(line, start)]
    values = [piece for piece, is_name in pieces if not is_name]
    has_prefix = any(map(PREFIXED.fullmatch, values))
    # printf's %#x writes a zero without 0x: where all else has it, a bare 0 is a word too
    bare_zeros = all(piece == "0" or PREFIXED.fullmatch(piece) for piece in values)
    words: list[DumpWord] = []
    name: RegisterName | None = None
    used = len(words)  # words there were when the name came
    for piece, is_name in [*pieces, ("", True)]:
        prefixed = PREFIXED.fullmatch(piece)
        if is_name or (has_prefix and not prefixed and BARE_NAME.fullmatch(piece)):
            following = _name(piece, number)
            if name is not None and used == len(words):
                raise InvalidOperand(f"line {number}: no word follows {name}")
            name, used = following, len(words)
        elif prefixed or (piece == "0" and has_prefix and bare_zeros):
            words.append(DumpWord(prefixed[1] if prefixed else "0", number, name, has_prefix=True))
            name = _next(name)
        elif has_prefix:
            _check_remark(piece, words, number)
        elif HEX.fullmatch(piece) or VALUE.fullmatch(piece):
            words.append(DumpWord(piece, number, name, has_prefix=False))
            name = _next(name)
        else:
            raise InvalidOperand(f"line {number}: {quote(piece)} is not a hex number")
    return words


def _check_remark(piece: str, before: list[DumpWord], number: int) -> None:
    """Check a number beside words with 0x: a decimal must repeat the word before it, a float is a remark."""
    if DECIMAL.fullmatch(piece) and before and len(piece) <= MAX_DIGITS:
        word = int(before[-1].text, 16)
        if int(piece) in {word, word - (1 << 32), word - (1 << 64)}:
            return
    elif VALUE.fullmatch(piece) and IS_VALUE.search(piece):
        return
    raise InvalidOperand(f"line {number}: cannot tell what {quote(piece)} is beside words with 0x")


def _name(text: str, number: int) -> RegisterName:
    """Return a name, split; reject the name of a lane, which must come first."""
    bare = text.rstrip("] \t")
    stem = bare.rstrip("0123456789")
    digits, (before, _, last) = bare[len(stem) :], text.rpartition(".")
    name = RegisterName(text, None)
    if 0 < len(digits) < WORD_DIGITS:
        name = RegisterName(stem.rstrip("[ \t"), int(digits))
    elif last in FIELDS:
        name = RegisterName(before, FIELDS.index(last))
    if name.stem.lower() in {"lane", "tid", "thread", "warp", "block"}:
        raise InvalidOperand(
            f"line {number}: {quote(name.stem)} comes after other words: the name of the registers must come first"
        )
    return name


def _next(name: RegisterName | None) -> RegisterName | None:
    """Return the name of the next word."""
    return name if name is None or name.number is None else RegisterName(name.stem, name.number + 1)


class DumpFormat(NamedTuple):
    """The expected contents of a dump: `words` of 32 bits per lane, of the operand `role`.

    With `wide`, 64-bit registers may be written whole. `floats` encodes values; `by` says whether a line without a
    label is a lane or a register.
    """

    words: int
    wide: bool = False
    by: str | None = None
    role: str = ""
    floats: ValueEncoding | None = None


def parse_dump(text: str, words: int, *, wide: bool = False, by: str | None = None) -> list[list[int]]:
    """Return the words of every lane, from a dump of one warp.

    >>> parse_dump(" ".join(f"{lane:08x}" for lane in range(64)), words=2)[31]
    [62, 63]
    """
    return single_warp(parse_warps(text, DumpFormat(words, wide, by)), None)


def single_warp(warps: dict[int, list[list[int]]], warp: int | None) -> list[list[int]]:
    """Return the words of the only warp, or of the chosen one."""
    if warp is None and len(warps) == 1:
        return next(iter(warps.values()))
    if warp is None or warp not in warps:
        wanted = "choose one" if warp is None else f"there is no warp {warp}"
        raise InvalidOperand(f"the dump has the warps {', '.join(map(str, warps))}: {wanted}")
    return warps[warp]


def warps_of_group(warps: dict[int, list[list[int]]], warp: int | None, count: int, what: str) -> list[list[list[int]]]:
    """Return the words of all warps of a warpgroup."""
    if warp is not None or sorted(warps) != list(range(count)):
        came = f"warp {warp} alone" if warp is not None else f"the warps {', '.join(map(str, sorted(warps)))}"
        raise InvalidOperand(
            f"{what} is held by warps 0 to {count - 1}, so the dump must name its threads "
            f"(warp 1 lane 3:, or T35:); got {came}"
        )
    return [warps[index] for index in range(count)]


def parse_warps(text: str, dumped: DumpFormat) -> dict[int, list[list[int]]]:
    """Return the words of every lane, by warp; a dump without warps belongs to warp 0."""
    lines = read_lines(text)
    if not lines:
        raise InvalidOperand(f"expected a dump of {LANES} lanes of {dumped.words} words, got no hex numbers")
    floats = _values_of(lines, dumped.floats)
    lines = [line._replace(words=[_decoded(word, dumped, floats) for word in line.words]) for line in lines]
    lines = _of_role(lines, dumped.role)
    labelled = [line.lane is not None for line in lines]
    if not all(labelled) and any(labelled):
        raise InvalidOperand(f"line {lines[labelled.index(False)].number} names no lane, though other lines do")
    count = floats.slots * dumped.words * REGISTER_BITS // floats.bits if floats else dumped.words
    warps = {}
    for warp in sorted({line.warp or 0 for line in lines}):
        mine = [line for line in lines if (line.warp or 0) == warp]
        rows = _by_label(mine) if all(labelled) else _by_position(mine, count, dumped.by)
        what = f"{count} {'value' if floats else 'word'}{'s' * (count > 1)}"
        warps[warp] = [_registers(row, lane, what, count, floats) for lane, row in enumerate(rows)]
    return warps


def _values_of(lines: list[DumpLine], floats: ValueEncoding | None) -> ValueEncoding | None:
    """Return the encoding if the numbers of a dump are values; None if they are words."""
    every = [word for line in lines for word in line.words]
    value = next((word for word in every if not word.has_prefix and IS_VALUE.search(word.text)), None)
    if value is None:
        return None
    if floats is None:
        raise InvalidOperand(f"line {value.line}: {quote(value.text)} is not a hex number")
    prefixed = next((word for word in every if word.has_prefix), None)
    if prefixed is not None:
        raise InvalidOperand(
            f"line {prefixed.line}: {quote('0x' + prefixed.text)} is a word, but line {value.line} has values"
        )
    return floats


def _decoded(word: DumpWord, dumped: DumpFormat, floats: ValueEncoding | None) -> DumpWord:
    """Return a word with its codes."""
    if floats:  # to nearest: a decimal number is seldom exact
        text = word.text if word.text.lower().endswith("inf") else word.text.rstrip("fF")
        value = exact_value(text, f"line {word.line}")
        return word._replace(codes=(floats.format.encode(value, rounding="rne"),))
    significant = word.text.lstrip("0") or "0"
    if dumped.wide and len(word.text) > WORD_DIGITS and len(significant) <= 2 * WORD_DIGITS:
        whole = int(significant, 16)
        return word._replace(codes=(whole & MASK, whole >> REGISTER_BITS))
    if len(significant) > WORD_DIGITS:
        raise InvalidOperand(
            f"line {word.line}: {quote(word.text)} has more than 32 bits; words are hex, with or without 0x"
        )
    return word._replace(codes=(int(significant, 16),))


def _of_role(lines: list[DumpLine], role: str) -> list[DumpLine]:
    """Return the lines and words of one operand, from a dump of several."""
    named = [word for line in lines for word in line.words if word.name]
    stems = list(dict.fromkeys(word.name.stem for word in named if word.name))
    if len(stems) < 2:
        return lines
    kept = [
        line._replace(words=[word for word in line.words if word.name and word.name.stem.lower() == role])
        for line in lines
    ]
    if not any(line.words for line in kept):
        other = next(word for word in named if word.name and word.name.stem != stems[0])
        msg = f"line {other.line}: {other.name} does not match {named[0].name} in line {named[0].line}"
        raise InvalidOperand(msg + (f", and neither is a register of {role}" if role else ""))
    return [line for line in kept if line.words]


def _by_label(lines: list[DumpLine]) -> list[list[DumpWord]]:
    rows: list[list[DumpWord]] = [[] for _ in range(LANES)]
    for line in lines:
        rows[line.lane or 0] += line.words
    return rows


def _by_position(lines: list[DumpLine], count: int, by: str | None) -> list[list[DumpWord]]:
    """Return the words of each lane in a dump without labels: its lines in order, or one stream."""
    sizes = [sum(len(word.codes) for word in line.words) for line in lines]
    if len(lines) == count > 1 and sizes == [LANES] * count and by != "lane":
        heads = [line.words[0].name for line in lines]
        if by is None and None in heads:
            each = f"{count} lines of {LANES} words"
            raise InvalidOperand(f"{each}: say --by register if a line is a register, --by lane if it is a stream")
        columns = [[word._replace(name=head) for word in line.words] for line, head in zip(lines, heads, strict=True)]
        return [list(row) for row in zip(*columns, strict=True)]
    if sum(sizes) != LANES * count:
        line_at = next((at for at, size in enumerate(sizes) if size != count), None) if len(lines) == LANES else None
        came = f"got {sum(sizes)}" if line_at is None else f"got {sizes[line_at]} in line {lines[line_at].number}"
        raise InvalidOperand(
            f"expected {LANES * count} words, {count} in each of {LANES} lines or all in one stream, {came}"
        )
    stream = [word for line in lines for word in line.words]
    if by == "register":
        return [stream[lane::LANES] for lane in range(LANES)]
    rows: list[list[DumpWord]] = [[]]
    for word in stream:
        if sum(len(other.codes) for other in rows[-1]) >= count:
            rows.append([])
        rows[-1].append(word)
    return rows


def _registers(row: list[DumpWord], lane: int, what: str, count: int, floats: ValueEncoding | None) -> list[int]:
    """Return the words of one lane, in register order."""
    codes = [code for word in _ordered(row, lane) for code in word.codes]
    if len(codes) != count:
        came = f"got {len(codes)}" if row else "but it is missing"
        raise InvalidOperand(f"expected {what} of lane {lane}, {came}")
    if floats is None:
        return codes
    words = []
    width = floats.bits // floats.slots
    for first in range(0, count, floats.slots):
        register = sum(
            code << width * slot + floats.low for slot, code in enumerate(codes[first : first + floats.slots])
        )
        words += [register >> low & MASK for low in range(0, floats.bits, REGISTER_BITS)]
    return words


def _ordered(row: list[DumpWord], lane: int) -> list[DumpWord]:
    """Return the words of a lane in the order of their names."""
    names = [word.name for word in row]
    numbers = [name.number for name in names if name and name.number is not None]
    if not numbers:
        different = list(dict.fromkeys(name for name in names if name))
        if len(different) > 1:
            raise InvalidOperand(
                f"line {row[-1].line}: {different[0]} and {different[1]} do not say which registers they are"
            )
        return row
    if len(numbers) < len(row):
        unnumbered = next(word for word in row if not word.name or word.name.number is None)
        others = f"though other words of lane {lane} have"
        raise InvalidOperand(f"line {unnumbered.line}: {quote(unnumbered.text)} has no number in its name, {others}")
    ordered = [row[at] for at in sorted(range(len(row)), key=numbers.__getitem__)]
    start = min(numbers) if all(name and ORDERED.fullmatch(name.stem) for name in names) else 0
    for place, word in enumerate(ordered):
        if word.name and word.name.number != start + place:
            before = ordered[place - 1].name if place else None
            twice = before == word.name
            why = "comes twice" if twice else f"comes after {before}" if before else "comes first"
            expected = RegisterName(word.name.stem, start + place)
            raise InvalidOperand(f"line {word.line}: of lane {lane}, {word.name} {why}; expected {expected}")
    return ordered


def dump_of(registers: OperandBase, by: str | None = None) -> DumpFormat:
    """Return the expected contents of a dump of an operand."""
    row = registers.spec
    is_float = registers.format.is_float and registers.role in "abcd"
    floats = ValueEncoding(row.format, registers.slots, row.register_bits, row.low) if is_float else None
    return DumpFormat(registers.words, row.register_bits > REGISTER_BITS, by, registers.role, floats)


def dump_lines(rows: Iterable[Sequence[int]]) -> list[str]:
    """Return a dump with a line per lane, which `parse_dump` reads back."""
    return [" ".join(f"0x{word:08x}" for word in row) for row in rows]


def tensor_lines(columns: NDArray[np.uint32]) -> Iterator[str]:
    """Yield the lines of uint32[128, columns], or uint32[2, 128, columns] for a pair of blocks."""
    for block, lanes in enumerate(columns if columns.ndim == 3 else [columns]):
        prefix = f"block {block} " if columns.ndim == 3 else ""
        for lane, words in enumerate(lanes.tolist()):
            yield f"{prefix}lane {lane}: {' '.join(f'{word:08x}' for word in words)}"


def read_tensor_dump(text: str, shape: tuple[int, ...]) -> NDArray[np.uint32]:
    """Return the columns of a dump, with this shape; reject missing lanes or columns."""
    import numpy as np

    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lanes = shape[-2]
    count = lanes * (shape[0] if len(shape) == 3 else 1)
    rows: dict[int, list[int]] = {}
    for number, line in enumerate(lines):
        label = TENSOR_LABEL.match(line)
        index = number if label is None else int(label["block"] or 0) * lanes + int(label["lane"])
        words = line[label.end() if label else 0 :].split()
        wrong = next((word for word in words if not TENSOR_WORD.fullmatch(word)), None)
        if wrong is not None or len(words) != shape[-1] or not index < count or index in rows:
            expected = f"{shape[-1]} hex words of one lane 0..{lanes - 1}, each lane once"
            raise InvalidOperand(
                f"line {number + 1}: expected {expected}; got {quote(wrong if wrong is not None else line)}"
            )
        rows[index] = [int(word, 16) for word in words]
    if len(rows) != count:
        raise InvalidOperand(f"expected {count} lanes of tensor memory, got {len(rows)}")
    return np.array([rows[index] for index in range(count)], np.uint32).reshape(shape)
