"""Read observed results from files: registers or a matrix, in hex or decimal.

A text that names lanes or registers is a register dump. Otherwise the number of lines and of numbers per line decides
if it is a matrix (or its transpose) or a register dump with a line for each lane. Rows may be labelled (`row 3:`) or in
brackets, as NumPy and PyTorch print them, and elements may be on lines of their own (`D[3][4] = 1.5`). An ambiguous
text is an error that suggests `--as`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from warpfrag.cli.support.matrix_files import InputSource, read_source
from warpfrag.cli.support.register_dumps import (
    DumpLine,
    are_values,
    dump_lines_of,
    dump_of,
    read_registers,
    read_values,
    value_text,
)
from warpfrag.diagnosis.observation import Printed, read_decimals
from warpfrag.errors import FileError, InvalidOperand
from warpfrag.formats.codes import from_codes
from warpfrag.layout.coordinates import LANES
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


def read_result(
    file: str, operand: OperandBase, warp: int | None = None, arranged: Arrangement | None = None
) -> NDArray[Any] | Printed:
    """Return the observed registers or the observed matrix in a .npy or text file."""
    source = read_source(file, MAX_BYTES)
    if source.is_array:
        return source.array()
    text = _rows_of_brackets(_checked(source), source.name)
    if arranged != "registers" and (labelled := _labelled(text, operand)) is not None:
        return labelled
    lines = dump_lines_of(text, dump_of(operand))
    if (arranged or _arrangement(lines, operand, source.name)) == "matrix":
        return _matrix(lines, operand, source.name)
    if are_values(lines, dump_of(operand)):
        texts, count = read_values(lines, operand, warp)
        return read_decimals(texts, (*operand.threads, count), by_register=True)
    return read_registers(text, operand, warp)


def _checked(source: InputSource) -> str:
    if not source.content.strip():
        raise FileError(f"{source.name} is empty")
    if b"\0" in source.content:
        raise FileError(f"{source.name} is binary: expected text, or an array that np.save wrote (.npy)")
    return source.text()


def _rows_of_brackets(text: str, name: str) -> str:
    """Return a matrix that NumPy or PyTorch printed with one line per row; return any other text unchanged."""
    if "[[" not in text:
        return text
    if "..." in text:
        raise InvalidOperand(
            f"{name} is abbreviated (...): print everything with np.set_printoptions(threshold=sys.maxsize) or "
            "torch.set_printoptions(profile='full'), or save it with np.save"
        )
    return "\n".join(" ".join(row.split()) for row in ROWS.findall(ATTRIBUTES.sub("", text)))


def _labelled(text: str, operand: OperandBase) -> NDArray[Any] | Printed | None:
    """Return a matrix whose elements are printed one by one with row and column, or None for any other text."""
    found = {(int(row), int(col)): word for row, col, word in ELEMENT.findall(text)}
    rows, cols = operand.shape[-2:]
    if len(operand.shape) > 2 or found.keys() != {(row, col) for row in range(rows) for col in range(cols)}:
        return None
    ordered = "\n".join(" ".join(found[row, col] for col in range(cols)) for row in range(rows))
    return _matrix(dump_lines_of(ordered, dump_of(operand)), operand, "the dump")


def _arrangement(lines: list[DumpLine], operand: OperandBase, name: str) -> Arrangement:
    """Return the arrangement that fits the lines; raise FileError, which suggests --as, if none or both fit."""
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
        f"{name}: {given} may be {operand.role.upper()} row by row or its registers lane by lane: add --as matrix or "
        "--as registers"
    )


def _matrix(lines: list[DumpLine], operand: OperandBase, name: str) -> NDArray[Any] | Printed:
    """Return a matrix, transposed if the lines have the transposed shape."""
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
