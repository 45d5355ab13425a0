"""Read matrices from text and .npy files, and format them as text.

Numbers are separated by spaces, commas, semicolons or tabs, and may be in brackets, as NumPy and C print them; `#`
starts a comment. A line is a row of the matrix, unless all numbers are on one line. A number is read exactly and
rounded at most once, to the format of the operand.

Files are not trusted: sizes are bounded, and the header of a .npy is checked.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from warpfrag.cli.io.output import shape_text
from warpfrag.errors import FileError, InvalidOperand, quote
from warpfrag.files import read_bytes
from warpfrag.formats.number_formats import FORMATS, Format, Rounding
from warpfrag.html import table_lines

if TYPE_CHECKING:
    import numpy as np
    from numpy.lib.npyio import NpzFile
    from numpy.typing import NDArray

    from warpfrag.tensorcore.instruction import Instruction

MAX_BYTES = 1 << 24  # maximum size of an input in bytes, ten times that of the largest operand as text with all digits
MAX_ARRAY_BYTES = 1 << 30  # maximum size of a whole matrix in bytes, as .npy
MAX_DIGITS = 4000  # maximum number of digits; an exact f64 has at most 1100, and Python reads at most 4300
FAR = 5 * MAX_DIGITS  # larger exponents overflow or underflow in every format
NPY = b"\x93NUMPY"
ZIP = b"PK"  # .npz is an archive of .npy
TORCH = re.compile(rb"PK\x03\x04.{26,200}?/data\.pkl|\x80\x02\x8a\nl\xfc\x9cF\xf9", re.DOTALL)  # files from torch.save
COMMENT = re.compile(r"(#|//).*")
WORD = re.compile(r"[^\s,;\[\](){}|]+")
NOTATIONS = {  # base of the digits, base of the exponent, and exponent steps per digit
    re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:e([+-]?\d+))?", re.ASCII | re.IGNORECASE): (10, 10, 1),
    re.compile(r"([+-]?)0x([\da-f]*)(?:\.([\da-f]*))?(?:p([+-]?\d+))?", re.ASCII | re.IGNORECASE): (16, 2, 4),
    re.compile(r"([+-]?)0b([01]+)()()", re.ASCII | re.IGNORECASE): (2, 2, 1),
}
SPECIAL = re.compile(r"[+-]?(inf|infinity|nan)", re.IGNORECASE)
MAX_WHOLE = 1e15  # integers below this are written without a decimal point


@dataclass(frozen=True)
class InputSource:
    """An input: its name for error messages, its bytes, and the name of an array in an archive (.npz)."""

    name: str
    content: bytes
    member: str = ""

    @property
    def is_array(self) -> bool:
        """Return True if the input is a .npy or .npz file."""
        return self.content.startswith((NPY, ZIP))

    def text(self) -> str:
        """Return the text, without a byte order mark."""
        if self.is_array:
            kind = "a .npy file" if self.content.startswith(NPY) else "an archive (.npz)"
            raise FileError(f"{self.name} is {kind}, but text is expected")
        try:
            return self.content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise FileError(f"{self.name} is neither UTF-8 text nor a .npy file") from None

    def array(self, role: str = "", *, opaque: bool = False) -> NDArray[Any]:
        """Return the array of real numbers in a .npy file, or the array in a .npz file that the input or `role` names.

        With `opaque`, untyped elements are accepted.
        """
        import numpy as np

        try:
            loaded = np.load(BytesIO(self.content), allow_pickle=False)
            array = loaded if self.content.startswith(NPY) else self._member(loaded, role)
            dtype = array.dtype
        except FileError:
            raise
        except Exception as error:  # noqa: BLE001 (numpy raises many types for a broken header)
            raise FileError(f"{self.name} is not an array of numbers: {str(error) or type(error).__name__}") from None
        if dtype.kind not in "biuf" and not (opaque and dtype.kind == "V" and dtype.names is None and dtype.itemsize):
            raise FileError(f"{self.name} is not an array of numbers; its dtype is {quote(str(dtype))}")
        if not array.size:
            raise FileError(f"{self.name} is an empty array")
        return np.asarray(array)

    def _member(self, archive: NpzFile, role: str) -> NDArray[Any]:
        """Return the only array of an archive, or the one that the file name or the role names."""
        wanted = self.member or role
        found = [name for name in archive.files if name.lower() == wanted.lower()]
        if len(archive.files) == 1 and not self.member:
            found = archive.files
        if not found:
            listed = ", ".join(archive.files)
            raise FileError(f"{self.name} has no array {quote(wanted)}; it has {quote(listed)}; name one as FILE:NAME")
        sizes = [] if archive.zip is None else [entry.file_size for entry in archive.zip.infolist()]
        if sum(sizes) > MAX_ARRAY_BYTES:
            raise FileError(f"{self.name}: its arrays have more than {MAX_ARRAY_BYTES} bytes")
        return archive[found[0]]


def read_source(file: str, max_bytes: int = MAX_BYTES) -> InputSource:
    """Read a file; `-` is stdin, and `FILE.npz:NAME` is an array in an archive."""
    if file != "-":
        path, _, member = file.rpartition(":")
        if path.endswith(".npz"):
            return InputSource(quote(path), read_bytes(path, max_bytes), member)
        content = read_bytes(file, max_bytes)
        if TORCH.match(content):
            save = f"numpy.save('{Path(file).stem}.npy', torch.load({file!r}).numpy())"
            narrow = "bfloat16 and fp8 are saved as codes, .view(torch.uint16).numpy() and .view(torch.uint8).numpy()"
            raise FileError(f"{quote(file)} was written by torch.save: convert it with {save}; {narrow}")
        return InputSource(quote(file), content)
    if sys.stdin is None or sys.stdin.isatty():
        raise FileError("expected a file, or input on stdin" + ("" if sys.stdin else ", which is closed"))
    try:
        content = sys.stdin.buffer.read(max_bytes + 1)
    except OSError as error:
        raise FileError(f"cannot read stdin: {error.strerror or error}") from None
    if len(content) > max_bytes:
        raise FileError(f"cannot read stdin: it has more than {max_bytes} bytes")
    return InputSource("stdin", content)


def read_codes(
    file: str,
    number_format: Format,
    shape: tuple[int, ...],
    *,
    raw: bool = False,
    rounding: Rounding = None,
    role: str = "",
) -> NDArray[Any]:
    """Return the codes of the matrix in a text or .npy file; with `raw`, the file contains codes, otherwise values."""
    source = read_source(file)
    if not source.is_array:
        return _codes_of_text(source, number_format, shape, raw=raw, rounding=rounding)
    from warpfrag.formats.codes import check_codes, to_codes

    array = source.array(role)
    if array.shape != shape:
        raise InvalidOperand(f"{source.name}: expected an array of shape {shape}, got {array.shape}")
    if raw:
        return check_codes(number_format, array, label=source.name)
    return to_codes(number_format, array, rounding=rounding, label=source.name)


def _codes_of_text(
    source: InputSource, number_format: Format, shape: tuple[int, ...], *, raw: bool, rounding: Rounding
) -> NDArray[Any]:
    import numpy as np

    from warpfrag.formats.codes import code_dtype

    words = words_of_text(source, shape)
    known: dict[str, int] = {}  # most matrices repeat numbers, such as zero
    for position, (line, word) in enumerate(words):
        if word not in known:
            value = exact_value(word, f"{source.name}, line {line}")
            code = _check_code(number_format, value) if raw else _encode(number_format, value, rounding)
            if isinstance(code, str):
                index = tuple(int(i) for i in np.unravel_index(position, shape))
                raise InvalidOperand(f"{source.name}: element {index} is {quote(word)}, but {code}")
            known[word] = code
    return np.array([known[word] for _, word in words], code_dtype(number_format)).reshape(shape)


def words_of_text(source: InputSource, shape: tuple[int, ...]) -> list[tuple[int, str]]:
    """Return the numbers in a text file with their line numbers; raise an error if their count does not fit `shape`."""
    expected = f"{source.name}: expected {shape_text(shape)} numbers"
    count = math.prod(shape)
    words: list[tuple[int, str]] = []
    per_line: dict[int, int] = {}
    for number, line in enumerate(StringIO(source.text()), start=1):
        for match in WORD.finditer(COMMENT.sub("", line)):
            words.append((number, match[0]))
            per_line[number] = per_line.get(number, 0) + 1
            if len(words) > count:
                raise InvalidOperand(f"{expected}, {count} in all, got more")
    if len(words) != count:
        for number, word in words:
            exact_value(word, f"{source.name}, line {number}")  # a word that is not a number has its own message
        raise InvalidOperand(f"{expected}, {count} in all, got {len(words)}")
    for number, came in per_line.items():
        if len(per_line) > 1 and came != shape[-1]:
            raise InvalidOperand(f"{expected}, {shape[-1]} in each line, got {came} in line {number}")
    return words


def read_text_matrix(source: InputSource) -> NDArray[Any]:
    """Return a matrix of any extents from a text file with one line per row."""
    import numpy as np

    if len(source.content) > MAX_BYTES:
        raise FileError(f"{source.name} has more than {MAX_BYTES} bytes of text: save it with numpy.save")
    lines = enumerate(StringIO(source.text()), start=1)
    found = ((number, WORD.findall(COMMENT.sub("", line))) for number, line in lines)
    rows = [
        [float(exact_value(word, f"{source.name}, line {number}")) for word in words]
        for number, words in found
        if words
    ]
    if not rows:
        raise FileError(f"{source.name} has no numbers")
    if len({*map(len, rows)}) > 1:
        raise InvalidOperand(f"{source.name}: expected the same number of values in each line")
    return np.array(rows)


def exact_value(word: str, label: str) -> Fraction | float:
    """Return the exact value of a decimal, 0x..., 0x1.8p3 or 0b... number, or a float for inf, nan and -0.

    >>> exact_value("1.0000000000000000001", "here"), exact_value("0x1.8p1", "here"), exact_value("-0", "here")
    (Fraction(10000000000000000001, 10000000000000000000), Fraction(3, 1), -0.0)
    """
    if len(word) <= MAX_DIGITS:
        if SPECIAL.fullmatch(word):
            return float(word)
        for pattern, (base, radix, per_digit) in NOTATIONS.items():
            match = pattern.fullmatch(word)
            if match and (match[2] or match[3]):
                sign, whole, fraction, exponent = match.groups(default="")
                digits = int(sign + whole + fraction, base)
                scale = int(exponent or 0) - per_digit * len(fraction)
                if not digits:
                    return -0.0 if sign == "-" else Fraction(0)
                return digits * Fraction(radix) ** max(-FAR, min(scale, FAR))
    limit = f" of at most {MAX_DIGITS} digits" if word[:1].isdigit() else ""
    raise InvalidOperand(f"{label}: {quote(word)} is not a number{limit}")


def _encode(number_format: Format, value: Fraction | float, rounding: Rounding) -> int | str:
    """Return the code of a value, or an error message if the format cannot represent the value."""
    try:
        return number_format.encode(value, rounding=rounding)
    except InvalidOperand:
        if number_format.min <= value <= number_format.max:
            return f"that is not exact in {number_format}; --rounding rne rounds it to the nearest value"
        numbers = "values" if number_format.is_float else "integers"
        return f"{number_format} holds the {numbers} {number_format.min}..{number_format.max}"


def _check_code(number_format: Format, value: Fraction | float) -> int | str:
    """Return `value` as a code, or an error message if it is not a code."""
    if value == 0 or (isinstance(value, Fraction) and value.denominator == 1 and 0 < value < number_format.codes):
        return int(value)
    return f"{number_format} codes are 0..{number_format.codes - 1:#x}"


def read_operand(instruction: Instruction, role: str, file: str, rounding: Rounding) -> NDArray[Any]:
    """Return the codes of an operand's matrix in a file; for a sparse instruction, the file has the full A."""
    operand = instruction.operands.get(role)
    if operand is None:
        raise click.BadParameter(f"{instruction.name} takes no {role}", param_hint=f"--{role.replace('_', '-')}")
    is_sparse = role == "a" and instruction.pattern is not None
    shape = (instruction.shape.m, instruction.shape.k) if is_sparse else operand.shape
    return read_codes(file, operand.format, shape, rounding=rounding, role=role)


def code_text(code: int, number_format: Format) -> str:
    """Return a code in hex, with all digits of the format."""
    return f"0x{code:0{(number_format.bits + 3) // 4}x}"


def value_text(value: float) -> str:
    """Return a value as text with float64 precision.

    >>> value_text(1.0), value_text(-0.0), value_text(0.0999755859375), value_text(-3)
    ('1', '-0.0', '0.0999755859375', '-3')
    """
    number = float(value)
    if number.is_integer() and abs(number) < MAX_WHOLE:
        return repr(number) if number == 0 and math.copysign(1, number) < 0 else str(int(number))
    return repr(number)


def short_text(dtype: np.dtype[Any]) -> Callable[[float], str]:
    """Return a function that formats values with the fewest digits that identify them in this dtype."""

    def write(value: float) -> str:
        number = float(value)
        if number.is_integer() and abs(number) < MAX_WHOLE:
            return value_text(number)
        for digits in range(1, 17):
            text = f"{number:.{digits}g}"
            if dtype.type(float(text)) == value:
                return text
        return repr(number)

    return write


def matrix_lines(matrix: NDArray[Any], write: Callable[[Any], str]) -> list[str]:
    """Return a matrix as lines with aligned columns, with an empty line between matrices."""
    lines: list[str] = []
    for tile in matrix.reshape(-1, *matrix.shape[-2:]):
        cells = [[write(entry) for entry in row] for row in tile.tolist()]
        width = max(len(cell) for row in cells for cell in row)
        header, *rows = [[cell.rjust(width) for cell in row] for row in cells]
        lines += [*([""] if lines else []), *table_lines(header, rows, gap=1)]
    return lines


def read_optional(file: str | None) -> NDArray[Any] | None:
    """Return the array in a .npy file, or None if there is no file."""
    return None if file is None else read_array(file, None)


def read_array(file: str, codes: str | None, option: str = "--codes") -> NDArray[Any]:
    """Return the array in a .npy file; with `codes`, decode codes of that format, or convert floats that are exact."""
    import numpy as np

    from warpfrag.formats.codes import check_codes, code_dtype, codes_of, from_codes

    source = read_source(file, MAX_ARRAY_BYTES)
    if not source.is_array:
        raise FileError(f"{source.name} is not a .npy file: save the whole matrix with numpy.save")
    array = source.array(opaque=True)
    if codes is None:
        if array.dtype.kind == "V":
            raise InvalidOperand(
                f"{source.name} has {array.dtype.itemsize}-byte elements without a type: name the type with {option}"
            )
        return array
    fmt = FORMATS[codes]
    if array.dtype.kind == "f" and fmt.is_float:
        with suppress(InvalidOperand):
            return from_codes(fmt, codes_of(fmt, array, raw=False, rounding=None, label=source.name))
    if array.dtype.itemsize != code_dtype(fmt).itemsize or array.dtype.kind not in "uiV":
        inexact = f", whose values are not exact in {codes}" * (array.dtype.kind == "f")
        raise InvalidOperand(f"{source.name}: codes of {codes} are {code_dtype(fmt)}, got dtype {array.dtype}{inexact}")
    return from_codes(fmt, check_codes(fmt, np.asarray(array).view(code_dtype(fmt)), label=source.name))
