"""Read and write register dumps in the formats of printf and debuggers.

A line may begin with its thread: `lane 3:`, `T3`, `[3]`, `3:`, `t=3`, `[lane 3]`, `thread (3,0,0)`, `warp 1 lane 3:`.
Threads beyond 31 belong to the next warps. A line with only a label applies to the lines below it. Words may have names
with numbers, which give their order: `a3=0x3c00`, `a[3]:`, `reg 3:`, `%r15 = ...`, `R15 0x...`. Several words after a
name are consecutive registers.

If a line has numbers with 0x, those are the words, and its other numbers are ignored. If it has none, every number is
hex, unless a number in the dump has a decimal point or a sign, or is inf or nan: then all numbers are values, one for
each element. Whole numbers are also values if a long dump contains no hex letter. Anything else is an error that names
the line.

A dump of tensor memory has a line for each lane, with a hex word for each column: `lane 0: 00000000 3f800000`. With a
pair of blocks, lines name the block: `block 1 lane 37: 00000000 3f800000`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from warpfrag.cli.io.matrix_files import COMMENT, exact_value
from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.number_formats import Format
from warpfrag.layout.coordinates import LANES
from warpfrag.tensorcore.operand import OperandBase

if TYPE_CHECKING:
    from warpfrag.formats.arrays import Words

Entry = TypeVar("Entry")
REGISTER_BITS = 32
MASK = (1 << REGISTER_BITS) - 1
WORD_DIGITS = 8
MIN_DIGITS = 40  # the probability that 40 hex digits contain no letter is 7e-9
NUMBER_DIGITS = 7  # maximum number of digits of a lane or register number
LIMITS = {"thread": 1024, "warp": 32}  # maximum number of threads and warps per block
# A dump may be long and untrusted, so no pattern may backtrack: repetitions are possessive (`*+`).
LABEL = re.compile(
    r"""(?:(?P<kind>t?lane|thread|tid|warp|block|cta)(?:Idx\.x|_?id)?+\s*+[=:]?+\s*+|T\s*+[=:]\s*+|(?=[\[(]))
            (?:(\d++)|[\[(]\s*+(\d++)(?:\s*+,\s*+\d++)*+\s*+[\])])(?![\w.])\s*+[:=,]?+[\s,;]*+
        |T(\d++)(?![\w.]|\s*+=)\s*+[:,]?+[\s,;]*+  # T3, but not t3 = ..., a register
        |(\d++)\s*+:[\s,;]*+""",
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
BRACKETED = re.compile(r"^\s*+\[((?:lane|thread|tid|warp|block)[^\[\]]*+)\]", re.IGNORECASE)
KINDS = {"tlane": "lane", "tid": "thread", "cta": "block", None: "lane"}
TOKEN = re.compile(
    r"(?P<name>[%$]?[A-Za-z_][\w.]*+(?:\s*+\[\s*+\d++\s*+\]|\s++\d++(?=\s*+[=:]))?+)\s*+[=:]|(?P<word>[^\s,;{}()|]++)",
    re.ASCII,
)
BARE_NAME = re.compile(r"[%$]?[A-Za-z_][\w.]*+(?:\[\d++\])?", re.ASCII)  # R4 0x3c00
PREFIXED = re.compile(r"0x([0-9a-f]++)u?l{0,2}", re.IGNORECASE)
HEX = re.compile(r"[0-9a-f]++", re.IGNORECASE)
VALUE = re.compile(r"[+-]?(?:inf(?:inity)?|nan|\d*+\.?\d*+(?:e[+-]?\d++)?)f?", re.ASCII | re.IGNORECASE)
NAN = re.compile(r"nan\([^)]*+\)", re.IGNORECASE)  # with a payload, as debuggers print NaNs
IS_VALUE = re.compile(r"[.+-]|nan|inf", re.IGNORECASE)


class DumpWord(NamedTuple):
    """A number in a dump, without 0x, with its line, and the stem and number of its register's name."""

    text: str
    line: int
    stem: str = ""
    number: int | None = None
    has_prefix: bool = False


class DumpLine(NamedTuple):
    """A line of a dump: its number, its labels by type, and its words."""

    number: int
    labels: dict[str, int]
    words: list[DumpWord]


class ValueEncoding(NamedTuple):
    """The encoding of values: codes of a format, `slots` in a register of `bits`, starting at bit `low`."""

    format: Format
    slots: int
    bits: int
    low: int = 0


class DumpFormat(NamedTuple):
    """The expected contents of a dump: `words` 32-bit words in each of `lanes` lanes, for each warp or block (`group`).

    With `wide`, 64-bit registers may be written whole. `values` encodes values.
    """

    words: int
    wide: bool = False
    values: ValueEncoding | None = None
    lanes: int = LANES
    group: str = "warp"


def dump_of(registers: OperandBase) -> DumpFormat:
    """Return the expected contents of a dump of an operand."""
    if registers.storage in ("tensor", "either"):
        *_, lanes, columns = registers.threads
        return DumpFormat(columns, lanes=lanes, group="block")
    row = registers.spec
    has_values = registers.role in "abcd"
    values = ValueEncoding(row.format, registers.slots, row.register_bits, row.low) if has_values else None
    return DumpFormat(registers.words, row.register_bits > REGISTER_BITS, values)


def read_registers(text: str, registers: OperandBase, warp: int | None = None, *, batch: bool = False) -> Words:
    """Return an operand's registers by lane, for its warps or blocks, or with `batch` for all warps in the dump."""
    return registers_of_lines(dump_lines_of(text, dump_of(registers)), registers, warp, batch=batch)


def registers_of_lines(
    lines: list[DumpLine], registers: OperandBase, warp: int | None = None, *, batch: bool = False
) -> Words:
    """Return an operand's registers from the lines of a dump, as `read_registers` does."""
    import numpy as np

    words = np.array(_of_warps(parse_lines(lines, dump_of(registers)), registers, warp, batch=batch), np.uint32)
    return words if len(words) > 1 or _warps(registers) > 1 else words[0]


def read_values(lines: list[DumpLine], registers: OperandBase, warp: int | None = None) -> tuple[list[str], int]:
    """Return the values of a dump, lane by lane, and the number of values per lane."""
    rows, count = _rows(lines, dump_of(registers), is_value=True)
    texts = [value_text(word.text) for lanes in _of_warps(rows, registers, warp) for row in lanes for word in row]
    return texts, count


def _warps(registers: OperandBase) -> int:
    """Return the number of warps or blocks that hold an operand."""
    is_block = dump_of(registers).group == "block"
    return registers.threads[0] if len(registers.threads) > 1 + is_block else 1


def _of_warps(
    found: dict[int, list[list[Entry]]], registers: OperandBase, warp: int | None, *, batch: bool = False
) -> list[list[list[Entry]]]:
    """Return the warps or blocks that hold an operand, or with `batch` all warps in the dump."""
    group, count = dump_of(registers).group, _warps(registers)
    listed = f"the {group}s {', '.join(map(str, found))}"
    if count > 1:
        if warp is not None or [*found] != [*range(count)]:
            got = f"{group} {warp} alone" if warp is not None else listed
            raise InvalidOperand(
                f"{registers.description} is held by {group}s 0 to {count - 1}, so the dump must name its "
                f"threads ({group} 1 lane 3:, or T35:); got {got}"
            )
    elif warp is not None or (len(found) > 1 and not batch):
        if warp not in found:
            raise InvalidOperand(
                f"the dump has {listed}: " + ("choose one with --warp" if warp is None else f"there is no warp {warp}")
            )
        found = {warp: found[warp]}
    return [*found.values()]


def parse_dump(text: str, dumped: DumpFormat) -> dict[int, list[list[int]]]:
    """Return the registers of every lane, by warp or block; a dump without names belongs to warp 0.

    >>> parse_dump(" ".join(f"{lane:08x}" for lane in range(64)), DumpFormat(2))[0][31]
    [62, 63]
    """
    return parse_lines(dump_lines_of(text, dumped), dumped)


def parse_lines(lines: list[DumpLine], dumped: DumpFormat) -> dict[int, list[list[int]]]:
    """Return the registers of every lane, by warp or block, from the lines of a dump."""
    is_value = are_values(lines, dumped)
    rows, count = _rows(lines, dumped, is_value=is_value)
    encoding = dumped.values if is_value else None
    return {group: [_codes(row, count, dumped, encoding) for row in lanes] for group, lanes in rows.items()}


def _rows(lines: list[DumpLine], dumped: DumpFormat, *, is_value: bool) -> tuple[dict[int, list[list[DumpWord]]], int]:
    """Return the numbers of every lane in register order, by warp or block, and their count per lane."""
    if not lines:
        raise InvalidOperand(f"expected a dump of {dumped.lanes} lanes with {dumped.words} words each, got no numbers")
    unlabelled = [line for line in lines if "lane" not in line.labels]
    if 0 < len(unlabelled) < len(lines):
        raise InvalidOperand(f"line {unlabelled[0].number} names no lane, though other lines do")
    encoding = dumped.values if is_value else None
    count = encoding.slots * dumped.words * REGISTER_BITS // encoding.bits if encoding else dumped.words
    groups = {}
    for group in sorted({line.labels.get(dumped.group, 0) for line in lines}):
        rows: list[list[DumpWord]] = [[] for _ in range(dumped.lanes)]
        mine = [line for line in lines if line.labels.get(dumped.group, 0) == group]
        if unlabelled:
            rows = _by_position(mine, dumped, count)
        else:
            for line in mine:
                rows[line.labels["lane"]] += line.words
        missing = [lane for lane, row in enumerate(rows) if not row]
        twice = next((f"lane {lane} appears twice" for lane, row in enumerate(rows) if len(row) > count), "")
        if missing:
            present = f"{dumped.lanes - len(missing)} of {dumped.lanes} lanes{twice and ', and '}{twice}"
            raise InvalidOperand(f"lane {missing[0]} is missing: the dump has {present}; print from every lane")
        groups[group] = [_in_order(row, lane) for lane, row in enumerate(rows)]
        for lane, row in enumerate(groups[group]):
            found = sum(1 + (not is_value and _is_wide(word, dumped)) for word in row)
            if found != count:
                noun = f"{'value' if is_value else 'word'}{'s' * (count > 1)}"
                hint = f": {twice}; print each lane once, and name the warp if there are several" if twice else ""
                if found < count and any(word.has_prefix for word in row):
                    hint = " with 0x; numbers without 0x are not counted: print every word with 0x"
                raise InvalidOperand(f"expected {count} {noun} for lane {lane}, got {found}{hint}")
    return groups, count


def dump_lines_of(text: str, dumped: DumpFormat, skipped: dict[int, str] | None = None) -> list[DumpLine]:
    """Return the lines that contain numbers; a line with only labels applies to the lines below it.

    With `skipped`, a line with other words (a prompt, a heading) is skipped, and its error is stored by line number.
    """
    lines = []
    standing: dict[str, int] = {}
    for number, full in enumerate(text.splitlines(), start=1):
        line = NAN.sub("nan", COMMENT.sub("", BRACKETED.sub(r"\1:", full))).lstrip(" \t,;")
        own, start = _labels(line, number, dumped)
        try:
            words = _words(line, start, number)
        except InvalidOperand as error:
            if skipped is None:
                raise
            skipped[number] = str(error)
            continue
        if words:
            lines.append(DumpLine(number, standing | own, words))
        else:
            standing = own if own.keys() & {"warp", "block"} else standing | own
    return lines


def _labels(line: str, number: int, dumped: DumpFormat) -> tuple[dict[str, int], int]:
    """Return the labels of a line (warp, lane and block, if present), and the index at which its numbers start."""
    labels: dict[str, int] = {}
    start = 0
    limits = {**LIMITS, "lane": dumped.lanes}
    while match := LABEL.match(line, start):
        written = match["kind"] and match["kind"].lower()
        index = KINDS.get(written, written or "lane")
        if index in labels or (written is None and "thread" in labels):
            break
        digits = next(filter(None, match.groups()[1:]))
        limit = limits.get(index, 10**NUMBER_DIGITS)
        if len(digits) > NUMBER_DIGITS or int(digits) >= limit:
            hint = "; lanes start at 0" if index == "lane" else ""
            raise InvalidOperand(f"line {number}: expected a {index} from 0 to {limit - 1}, got {quote(digits)}{hint}")
        labels[index] = int(digits)
        start = match.end()
    thread = labels.pop("thread", None)
    if thread is not None and "lane" not in labels:
        labels["lane"] = thread % LANES
        if thread >= LANES:
            labels["warp"] = thread // LANES
    return labels, start


def _words(line: str, start: int, number: int) -> list[DumpWord]:
    """Return the numbers of a line, each with the preceding register name."""
    tokens = [(match["name"], match["word"]) for match in TOKEN.finditer(line, start)]
    plain = [word for _, word in tokens if word]
    has_prefix = any(map(PREFIXED.fullmatch, plain))
    # printf's %#x writes zero without 0x, so a bare 0 is a word if all others have 0x
    has_bare_zeros = all(word == "0" or PREFIXED.fullmatch(word) for word in plain)
    words: list[DumpWord] = []
    stem, index = "", None
    unused = ""  # a name whose word has not been found yet
    for name, word in tokens:
        prefixed = PREFIXED.fullmatch(word or "")
        if name or (has_prefix and not prefixed and BARE_NAME.fullmatch(word)):
            if unused:
                break
            unused = name or word
            stem, index = _split_name(unused)
        elif has_prefix and not prefixed and not (word == "0" and has_bare_zeros):
            if not VALUE.fullmatch(word):
                raise InvalidOperand(f"line {number}: {quote(word)}, in a line with 0x words, is not a number")
        elif prefixed or HEX.fullmatch(word) or VALUE.fullmatch(word):
            words.append(DumpWord(prefixed[1] if prefixed else word, number, stem, index, has_prefix))
            index = None if index is None else index + 1
            unused = ""
        else:
            raise InvalidOperand(f"line {number}: {quote(word)} is not a {'' if '.' in word else 'hex '}number")
    if unused:
        raise InvalidOperand(f"line {number}: no word follows {quote(unused)}")
    return words


def _split_name(name: str) -> tuple[str, int | None]:
    """Return the stem and the number of a register name.

    >>> _split_name("a[3]"), _split_name("%r15"), _split_name("reg 3"), _split_name("lo")
    (('a', 3), ('%r', 15), ('reg', 3), ('lo', None))
    """
    bare = name.rstrip("] \t")
    stem = bare.rstrip("0123456789")
    digits = bare[len(stem) :]
    return (stem.rstrip("[ \t"), int(digits)) if 0 < len(digits) <= NUMBER_DIGITS else (name, None)


def are_values(lines: list[DumpLine], dumped: DumpFormat) -> bool:
    """Return True if the numbers of a dump are values, and False if they are hex words."""
    words = [word for line in lines for word in line.words]
    value = next((word for word in words if not word.has_prefix and IS_VALUE.search(word.text)), None)
    encoding = dumped.values
    if value is None:
        groups = len({line.labels.get(dumped.group, 0) for line in lines})
        return encoding is not None and _are_decimal(words, groups * dumped.lanes, dumped, encoding)
    if encoding is None:
        raise InvalidOperand(f"line {value.line}: {quote(value.text)} is not a hex number")
    for word in words:
        if word.has_prefix or not VALUE.fullmatch(word.text):
            written = f"0x{word.text}" if word.has_prefix else word.text
            raise InvalidOperand(
                f"line {word.line} has the hex number {quote(written)}, line {value.line} the decimal "
                f"{quote(value.text)}: print all numbers in the same format"
            )
    return True


def _are_decimal(words: list[DumpWord], lanes: int, dumped: DumpFormat, encoding: ValueEncoding) -> bool:
    """Return True if unsigned integers are decimal, because hex numbers this long would almost surely have letters."""
    texts = [word.text for word in words]
    longest = max(map(len, texts), default=0)
    elements = lanes * dumped.words * REGISTER_BITS // encoding.bits * encoding.slots
    if not all(map(str.isdecimal, texts)) or any(word.has_prefix for word in words) or len(words) != elements:
        return False
    digits = sum(len(text) for text in texts if len(text) > 1)
    if encoding.format.is_float:
        return longest < WORD_DIGITS
    if 0 < digits < MIN_DIGITS and longest < WORD_DIGITS:
        raise InvalidOperand(
            f"line {words[0].line}: these numbers could be decimal or hex: print them with %08x, a 0x prefix, or %+d"
        )
    return longest != WORD_DIGITS and digits >= MIN_DIGITS


def value_text(text: str) -> str:
    """Return a value without the suffix of a C float."""
    return text if text.lower().endswith("inf") else text.rstrip("fF")


def _by_position(lines: list[DumpLine], dumped: DumpFormat, count: int) -> list[list[DumpWord]]:
    """Return the numbers of each lane in a dump without labels: lines in order, one stream, or named registers."""
    lanes = dumped.lanes
    sizes = [sum(1 + _is_wide(word, dumped) for word in line.words) for line in lines]
    heads = [(line.words[0].stem, line.words[0].number) for line in lines]
    if len(lines) == count > 1 and sizes == [lanes] * count and all(stem for stem, _ in heads):
        named = [
            [word._replace(stem=stem, number=number) for word in line.words]
            for line, (stem, number) in zip(lines, heads, strict=True)
        ]
        return [list(row) for row in zip(*named, strict=True)]
    if sum(sizes) != lanes * count:
        wrong = next((at for at, size in enumerate(sizes) if size != count), None) if len(lines) == lanes else None
        got = f"got {sum(sizes)}" if wrong is None else f"got {sizes[wrong]} in line {lines[wrong].number}"
        raise InvalidOperand(
            f"expected {lanes * count} words, {count} in each of {lanes} lines or all in one stream, {got}"
        )
    stream = [word for line in lines for word in line.words]
    each = len(stream) // lanes
    return [stream[lane * each :][:each] for lane in range(lanes)]


def _is_wide(word: DumpWord, dumped: DumpFormat) -> bool:
    """Return True for a whole 64-bit register."""
    return dumped.wide and len(word.text) > WORD_DIGITS and bool(HEX.fullmatch(word.text))


def _codes(row: list[DumpWord], count: int, dumped: DumpFormat, encoding: ValueEncoding | None) -> list[int]:
    """Return the 32-bit registers of one lane, in order."""
    codes = [code for word in row for code in _decode(word, dumped, encoding)]
    if encoding is None:
        return codes
    words = []
    width = encoding.bits // encoding.slots
    for first in range(0, count, encoding.slots):
        slots = codes[first : first + encoding.slots]
        register = sum(code << width * slot + encoding.low for slot, code in enumerate(slots))
        words += [register >> low & MASK for low in range(0, encoding.bits, REGISTER_BITS)]
    return words


def _decode(word: DumpWord, dumped: DumpFormat, encoding: ValueEncoding | None) -> tuple[int, ...]:
    """Return a 32-bit register, the two halves of a 64-bit register, or the code of a value."""
    if encoding:  # round to nearest, because decimal numbers are seldom exact
        value = exact_value(value_text(word.text), f"line {word.line}")
        return (encoding.format.encode(value, rounding="rne"),)
    digits = word.text.lstrip("0") or "0"
    if _is_wide(word, dumped) and len(digits) <= 2 * WORD_DIGITS:
        whole = int(digits, 16)
        return whole & MASK, whole >> REGISTER_BITS
    if len(digits) > WORD_DIGITS:
        raise InvalidOperand(
            f"line {word.line}: {quote(word.text)} has more than 32 bits; words are hex, with or without 0x"
        )
    return (int(digits, 16),)


def _in_order(row: list[DumpWord], lane: int) -> list[DumpWord]:
    """Return the numbers of a lane, sorted by the numbers in their names, which must be consecutive."""
    stems = list(dict.fromkeys(word.stem for word in row))
    if len(stems) > 1:
        last = next(word for word in row if word.stem == stems[1])
        names = " and ".join(quote(stem) if stem else "words without a name" for stem in stems[:2])
        raise InvalidOperand(f"line {last.line}: lane {lane} has {names}; expected the registers of one operand")
    if all(word.number is None for word in row):
        return row
    ordered = sorted(row, key=lambda word: word.number or 0)
    for number, word in enumerate(ordered, start=ordered[0].number or 0):
        if word.number != number:
            got = word.stem if word.number is None else f"{word.stem}{word.number}"
            expected = quote(f"{word.stem}{number}")
            raise InvalidOperand(f"line {word.line}: lane {lane}: expected {expected}, got {quote(got)}")
    return ordered


def dump_lines(words: Words, group: str = "") -> list[str]:
    """Return a dump with a line per lane that `parse_dump` can read; with `group`, lines have labels."""
    lines = []
    for number, rows in enumerate(words.reshape(-1, *words.shape[-2:]).tolist()):
        prefix = f"{group} {number} " if words.ndim > 2 else ""
        for lane, row in enumerate(rows):
            label = f"{prefix}lane {lane}: " if group else ""
            lines.append(label + " ".join(f"0x{word:08x}" for word in row))
    return lines
