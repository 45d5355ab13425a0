"""Read observed results from files: registers or a matrix, in hex or decimal.

Text that names lanes or registers is a register dump. Otherwise the number of lines, and of numbers per line,
determines whether it is a matrix (or its transpose) or a register dump with a line for each lane. Rows may be labelled
(`row 3:`) or in brackets, as NumPy and PyTorch print them, and elements may be on separate lines (`D[3][4] = 1.5`, or
`D[28] = 1.5` in row-major order). Registers may be printed one by one (`D[lane][i] = 1.5`, `thread 3, i=1, val=1.5`)
or after a lane without a name. For an ambiguous text, the error suggests `--as`. Lines that are not data (prompts,
headings, other output) are skipped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from warpfrag.cli.io.matrix_files import InputSource, read_operand, read_source, words_of_text
from warpfrag.cli.io.register_dumps import (
    HEX,
    PREFIXED,
    VALUE,
    DumpLine,
    are_values,
    dump_lines_of,
    dump_of,
    read_values,
    registers_of_lines,
    value_text,
)
from warpfrag.diagnosis.observation import DECIMAL, Printed, observe, read_decimals
from warpfrag.errors import FileError, InvalidOperand
from warpfrag.formats.arrays import as_doubles
from warpfrag.formats.codes import from_codes, to_codes
from warpfrag.formats.number_formats import Rounding
from warpfrag.layout.coordinates import LANES
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import OperandBase

if TYPE_CHECKING:
    from numpy.typing import NDArray

Arrangement = Literal["registers", "matrix"]

MAX_BYTES = 1 << 24
ROWS = re.compile(r"\[([^\[\]]*)\]")
ATTRIBUTES = re.compile(r"\b(?:dtype|device|grad_fn|requires_grad)\s*=\s*[^,)\n]*")
ELEMENT = re.compile(
    r"(?:\w+\s*+)?[\[(]\s*+(\d{1,7})\s*+(?:\]\s*+\[|,)\s*+(\d{1,7})\s*+[\])]\s*+[=:]?+\s*+([^\s,;]++)", re.ASCII
)

FLAT_ELEMENT = re.compile(r"\w+\s*+\[\s*+(\d{1,7})\s*+\]\s*+[=:]\s*+([^\s,;]++)", re.ASCII)

INDEXED = re.compile(
    r"\b(?:i|j|idx|index|elem|element)\s*+[=:]\s*+(\d{1,3})\s*+[,;:]?+\s*+\w++\s*+[=:]\s*+([^\s,;]++)", re.ASCII
)
NUMBER = re.compile(rf"(?=[^\s]){VALUE.pattern}|{PREFIXED.pattern}|{HEX.pattern}", re.ASCII | re.IGNORECASE)
SEPARATORS = re.compile(r"[\s,;]++")
BARE_LANES = {str(lane) for lane in range(LANES)}


def read_result(
    file: str,
    operand: OperandBase,
    warp: int | None = None,
    arranged: Arrangement | None = None,
    skipped: dict[int, str] | None = None,
) -> NDArray[Any] | Printed:
    """Return the observed registers or the observed matrix in a .npy or text file.

    `skipped` receives the numbers of the lines that are not data, each with the reason.
    """
    source = read_source(file, MAX_BYTES)
    if source.is_array:
        array = source.array(operand.role)
        with _naming(source):
            observe(operand, array)  # type: ignore[arg-type] # one of three literals
        return array
    text = _rows_of_brackets(_checked(source), source.name)
    if arranged != "registers" and (labelled := _labelled(text, operand)) is not None:
        return labelled
    text = text if arranged == "matrix" else _by_lane(text, operand)
    skipped = {} if skipped is None else skipped
    with _naming(source, skipped):
        lines = dump_lines_of(text, dump_of(operand), skipped)
        usual = _usual_lines(lines)
        try:
            return _from_lines(lines, operand, warp, arranged, source.name)
        except InvalidOperand:
            if usual == lines:
                raise
            kept = {line.number for line in usual}
            unlike = (line.number for line in lines if line.number not in kept)
            skipped.update({number: f"line {number} is unlike the others" for number in unlike})
            return _from_lines(usual, operand, warp, arranged, source.name)


@contextmanager
def _naming(source: InputSource, skipped: dict[int, str] | None = None) -> Iterator[None]:
    """Add the name of the file and the first skipped line to an error."""
    try:
        yield
    except InvalidOperand as error:
        name = "" if source.name in str(error) else f"{source.name}: "
        first = f"; skipped {skipped[min(skipped)]}" if skipped else ""
        raise InvalidOperand(f"{name}{error}{first}") from None


def _usual_lines(lines: list[DumpLine]) -> list[DumpLine]:
    """Return the lines with the most common combination of lane label, names and number of values."""
    looks = [("lane" in line.labels, len(line.words), frozenset(word.stem for word in line.words)) for line in lines]
    usual = max(counts, key=counts.__getitem__) if (counts := Counter(looks)) else None
    return [line for line, look in zip(lines, looks, strict=True) if look == usual]


def _from_lines(
    lines: list[DumpLine], operand: OperandBase, warp: int | None, arranged: Arrangement | None, name: str
) -> NDArray[Any] | Printed:
    if (arranged or _arrangement(lines, operand, name)) == "matrix":
        return _matrix(lines, operand, name)
    if are_values(lines, dump_of(operand)):
        texts, count = read_values(lines, operand, warp)
        return read_decimals(texts, (*operand.threads, count), by_register=True)
    return registers_of_lines(lines, operand, warp)


def read_input(instruction: Instruction, role: str, path: str, rounding: Rounding) -> tuple[NDArray[Any], float | None]:
    """Return an input, and the largest error of its values if they are decimals with too few digits to be exact."""
    try:
        codes = read_operand(instruction, role, path, rounding)
        return from_codes(instruction.operands[role].format, codes), None
    except InvalidOperand:
        source, number_format = read_source(path), instruction.operands[role].format
        if rounding is not None or source.is_array or not number_format.is_float:
            raise
        codes = read_operand(instruction, role, path, "rne")
        texts = [word for _, word in words_of_text(source, codes.shape)]
        if not all(map(DECIMAL.fullmatch, texts)):
            raise
        printed, values = read_decimals(texts, codes.shape), from_codes(number_format, codes)
        if (np.abs(as_doubles(values) - printed.values) > printed.error).any():
            raise  # these numbers are not rounded printouts of values in this format
        low, high = (to_codes(number_format, printed.values + side * printed.error, rounding="rne") for side in (-1, 1))
        return values, 0.0 if np.array_equal(low, high) else 2 * float(printed.error.max())


def _checked(source: InputSource) -> str:
    if not source.content.strip():
        raise FileError(f"{source.name} is empty")
    if b"\0" in source.content:
        raise FileError(f"{source.name} is binary; expected a text file, or a .npy file from np.save")
    return source.text()


def _rows_of_brackets(text: str, name: str) -> str:
    """Put each row of a matrix printed by NumPy or PyTorch on one line; return any other text unchanged."""
    if "[[" not in text:
        return text
    if "..." in text:
        raise InvalidOperand(
            f"{name} is abbreviated (...): print everything with np.set_printoptions(threshold=sys.maxsize) or "
            "torch.set_printoptions(profile='full'), or save it with np.save"
        )
    return "\n".join(" ".join(row.split()) for row in ROWS.findall(ATTRIBUTES.sub("", text)))


def _labelled(text: str, operand: OperandBase) -> NDArray[Any] | Printed | None:
    """Return a matrix whose elements are printed one by one with their row and column, or None for any other text."""
    found = {(int(row), int(col)): word for row, col, word in ELEMENT.findall(text)}
    rows, cols = operand.shape[-2:]
    found = found or {divmod(int(index), cols): word for index, word in FLAT_ELEMENT.findall(text)}
    if len(operand.shape) > 2 or found.keys() != {(row, col) for row in range(rows) for col in range(cols)}:
        return None
    ordered = "\n".join(" ".join(found[row, col] for col in range(cols)) for row in range(rows))
    return _matrix(dump_lines_of(ordered, dump_of(operand)), operand, "the dump")


def _by_lane(text: str, operand: OperandBase) -> str:
    """Return the text with labels for lanes that are printed as `D[lane][i] = 1.5` or as numbers without a label."""
    text = INDEXED.sub(r"v\1=\2", text)
    rows = {number: SEPARATORS.split(line.strip()) for number, line in enumerate(text.splitlines())}
    rows = {number: row for number, row in rows.items() if all(map(NUMBER.fullmatch, row))}
    found = ELEMENT.findall(text) or [row for row in rows.values() if len(row) == 3]
    registers = {(int(lane), int(i)): word for lane, i, word in found if lane.isdecimal() and i.isdecimal()}
    for count in (operand.regs * operand.slots, operand.words):
        if registers.keys() == {(lane, i) for lane in range(LANES) for i in range(count)}:
            return "\n".join(f"lane {lane}: v{i}={word}" for (lane, i), word in registers.items())
        if {len(row) for row in rows.values()} == {count + 1} and {row[0] for row in rows.values()} == BARE_LANES:
            lines = enumerate(text.splitlines())
            return "\n".join(f"lane {line.lstrip()}" if number in rows else line for number, line in lines)
    return text


def _arrangement(lines: list[DumpLine], operand: OperandBase, name: str) -> Arrangement:
    """Return the arrangement that fits the lines; if none or both fit, raise a FileError that suggests --as."""
    rows, cols = operand.shape[-2:]
    sizes = [len(line.words) for line in lines]
    is_matrix = len(operand.shape) == 2 and sizes in ([cols] * rows, [rows] * cols)
    stems = {word.stem for line in lines for word in line.words}
    labels = [line.labels.get("lane") for line in lines]
    if any(stems) or any(label is not None for label in labels):
        is_numbered = labels == [*range(len(lines))] and len(lines) != LANES
        return "matrix" if is_matrix and (stems == {"row"} or (is_numbered and not any(stems))) else "registers"
    dumped = dump_of(operand)
    count = dumped.words
    if dumped.values is not None and are_values(lines, dumped):
        count = dumped.values.slots * operand.regs
    is_by_lane = sizes == [count] * dumped.lanes
    if is_matrix != is_by_lane:
        return "matrix" if is_matrix else "registers"
    if not is_matrix and (len(operand.shape) > 2 or sum(sizes) not in (rows * cols, dumped.lanes * count)):
        raise InvalidOperand(
            f"{name}: expected a matrix, {rows} lines of {cols} numbers, or registers, a line of {count} numbers for "
            f"each of {dumped.lanes} lanes; got {sum(sizes)} numbers in {len(lines)} lines"
        )
    if sum(sizes) != rows * cols:
        return "registers"
    given = f"{sum(sizes)} numbers in {len(lines)} line{'s' * (len(lines) > 1)}"
    raise InvalidOperand(
        f"{name}: {given} could be {operand.role.upper()} row by row or its registers lane by lane: add --as matrix or "
        "--as registers"
    )


def _matrix(lines: list[DumpLine], operand: OperandBase, name: str) -> NDArray[Any] | Printed:
    """Return a matrix; if the lines have the transposed shape, the matrix has it too."""
    words = [word for line in lines for word in line.words]
    rows, cols = operand.shape[-2:]
    if len(words) != rows * cols:
        raise InvalidOperand(f"{name}: expected {rows} x {cols} numbers, got {len(words)}")
    shape = (cols, rows) if [len(line.words) for line in lines] == [rows] * cols else (rows, cols)
    if are_values(lines, dump_of(operand)):
        return read_decimals([value_text(word.text) for word in words], shape)
    digits = operand.format.bits // 4
    for word in words:
        if len(word.text.lstrip("0")) > digits:
            raise InvalidOperand(
                f"line {word.line}: {word.text[:40]!r} has more than the {digits} hex digits of one element"
            )
    codes = np.array([int(word.text, 16) for word in words], np.uint64)
    return from_codes(operand.format, codes.astype(f"u{operand.format.bits // 8}").reshape(shape))
