"""Matrices as files: text with numbers, or .npy; and back to text.

Text is as lenient as it can be without guessing: numbers may be separated by spaces, commas, semicolons or tabs and
stand in brackets, as numpy and C print them; `#` starts a comment. Lines must be the rows of the matrix, unless all
numbers stand on one line.
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpfrag.cli.dumps import COMMENT
from warpfrag.cli.output import shape_text, table
from warpfrag.errors import InvalidOperand

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from warpfrag.formats import Format

NPY = b"\x93NUMPY"
SEPARATORS = re.compile(r"[\s,;\[\](){}|]+")
MOST_WHOLE = 1e15  # a whole number up to here is written without a point


def read_bytes(file: str) -> bytes:
    """What a file holds; `-` is stdin."""
    if file == "-":
        if sys.stdin.isatty():
            msg = "expected a file, or input on stdin"
            raise InvalidOperand(msg)
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        msg = f"cannot read {file!r}: {(error.strerror or str(error)).lower()}"
        raise InvalidOperand(msg) from None


def read_text(file: str) -> str:
    """The text of a file; `-` is stdin."""
    try:
        return read_bytes(file).decode("utf-8-sig")
    except UnicodeDecodeError:
        msg = f"{_named(file)} is not text in UTF-8"
        raise InvalidOperand(msg) from None


def _named(file: str) -> str:
    return "stdin" if file == "-" else repr(file)


def read_matrix(file: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """The matrix in a file of text or .npy."""
    import numpy as np

    content = read_bytes(file)
    if content.startswith(NPY):
        from io import BytesIO

        try:
            found: NDArray[Any] = np.load(BytesIO(content), allow_pickle=False)
        except ValueError as error:
            msg = f"{_named(file)} is not an array of numbers: {error}"
            raise InvalidOperand(msg) from None
        if found.shape != shape:
            msg = f"{_named(file)}: expected an array of shape {shape}, got {found.shape}"
            raise InvalidOperand(msg)
        return found
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        msg = f"{_named(file)} is neither text in UTF-8 nor .npy"
        raise InvalidOperand(msg) from None
    return parse_matrix(text, shape, what=_named(file))


def parse_matrix(text: str, shape: tuple[int, ...], *, what: str = "matrix") -> NDArray[Any]:
    """The matrix that a text shows, of integers if all its numbers are, else of float64.

    >>> parse_matrix("[[1, 2], [3, 0x10]]", (2, 2)).tolist()
    [[1, 2], [3, 16]]
    """
    import numpy as np

    rows = []
    for place, line in enumerate(text.splitlines(), start=1):
        words = [word for word in SEPARATORS.split(COMMENT.sub("", line)) if word]
        if words:
            rows.append((place, [_number(word, f"{what}, line {place}") for word in words]))
    numbers = [number for _, row in rows for number in row]
    expected = f"{shape_text(shape)} numbers"
    if len(numbers) != math.prod(shape):
        msg = f"{what}: expected {expected}, {math.prod(shape)} in all, got {len(numbers)}"
        raise InvalidOperand(msg)
    if len(rows) > 1:
        for place, row in rows:
            if len(row) != shape[-1]:
                msg = f"{what}: expected {expected}, {shape[-1]} in each line, got {len(row)} in line {place}"
                raise InvalidOperand(msg)
    if any(isinstance(number, float) for number in numbers):
        return np.array(numbers, np.float64).reshape(shape)
    try:
        return np.array(numbers, np.int64 if min(numbers) < 0 else np.uint64).reshape(shape)
    except OverflowError:
        msg = f"{what}: an integer has at most 64 bits, got {max(numbers, key=abs)}"
        raise InvalidOperand(msg) from None


def _number(word: str, what: str) -> int | float:
    """A number: decimal, 0x..., 0b..., inf, nan."""
    for read in (int, lambda text: int(text, 0), float, _hex_float):
        try:
            number = read(word)
            return -0.0 if number == 0 and word.startswith("-") else number
        except ValueError:
            continue
        except OverflowError:
            break
    msg = f"{what}: {word!r} is not a number"
    raise InvalidOperand(msg)


def _hex_float(word: str) -> float:
    """0x1.8p3. Without its 0x, fromhex would take the words `3c00` and `a` for numbers too."""
    if "0x" not in word.lower():
        raise ValueError(word)
    return float.fromhex(word)


def code_text(code: int, number_format: Format) -> str:
    """A code in hex, as wide as the format."""
    return f"0x{code:0{(number_format.bits + 3) // 4}x}"


def value_text(value: Any) -> str:  # noqa: ANN401 (a number, or a scalar of ml_dtypes)
    """A value with every digit.

    >>> value_text(1.0), value_text(-0.0), value_text(0.0999755859375), value_text(-3)
    ('1', '-0.0', '0.0999755859375', '-3')
    """
    number = float(value)
    if number.is_integer() and abs(number) < MOST_WHOLE:
        return repr(number) if number == 0 and math.copysign(1, number) < 0 else str(int(number))
    return repr(number)


def short_text(dtype: np.dtype[Any]) -> Callable[[Any], str]:
    """A writer of values with the fewest digits that, rounded to this dtype, are the value again."""

    def write(value: Any) -> str:  # noqa: ANN401 (as above)
        number = float(value)
        if number.is_integer() and abs(number) < MOST_WHOLE:
            return value_text(number)
        for digits in range(1, 17):
            text = f"{number:.{digits}g}"
            if dtype.type(float(text)) == value:
                return text
        return repr(number)

    return write


def matrix_lines(cells: list[Any]) -> list[str]:
    """Nested lists of text as lines with aligned columns; an empty line between matrices."""
    if cells and isinstance(cells[0][0], list):
        return [line for place, part in enumerate(cells) for line in ([""] if place else []) + matrix_lines(part)]
    width = max(len(cell) for row in cells for cell in row)
    header, *rows = [[cell.rjust(width) for cell in row] for row in cells]
    return table(header, rows, gap=1)
