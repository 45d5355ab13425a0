"""Arrays of whole products as .npy files: real numbers, or codes of a format that .npy has no name for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from warpfrag.cli.support.matrix_files import read_source
from warpfrag.cli.support.options import complete_file
from warpfrag.errors import InvalidOperand, UnusableFile
from warpfrag.formats.number_formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from warpfrag.cli.support.options import Function

MAX_BYTES = 1 << 30


def array_argument(name: str) -> Callable[[Function], Function]:
    """An argument that names a .npy file."""
    return click.argument(name, metavar=f"{name.upper()}.npy", shell_complete=complete_file)


def codes_option(function: Function) -> Function:
    """The option --codes."""
    return click.option(
        "--codes",
        metavar="FORMAT",
        type=click.Choice(sorted(FORMATS)),
        help="A and B hold codes of this format, as bf16 and e4m3 need, for which .npy has no type.",
    )(function)


def read_array(file: str, codes: str | None, option: str = "--codes") -> NDArray[Any]:
    """The array in a file; with `codes`, the numbers of that format whose codes it holds."""
    import numpy as np

    from warpfrag.formats.codes import check_codes, code_dtype, from_codes

    source = read_source(file, MAX_BYTES)
    if not source.is_array:
        msg = f"{source.name} is not .npy: save the whole matrix with numpy.save"
        raise UnusableFile(msg)
    array = source.array(opaque=True)
    if codes is None:
        if array.dtype.kind == "V":
            msg = f"{source.name} has items of {array.dtype.itemsize} bytes without a type: name it with {option}"
            raise InvalidOperand(msg)
        return array
    fmt = FORMATS[codes]
    if array.dtype.itemsize != code_dtype(fmt).itemsize or array.dtype.kind not in "uiV":
        msg = f"{source.name}: codes of {codes} are {code_dtype(fmt)}, got dtype {array.dtype}"
        raise InvalidOperand(msg)
    return from_codes(fmt, check_codes(fmt, np.asarray(array).view(code_dtype(fmt)), what=source.name))
