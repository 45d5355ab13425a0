"""Kernel arguments and module variables on the command line: `x:f32:4x200`, `i32:200` or a file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from warpfrag.cli.io.matrix_files import read_source
from warpfrag.errors import InvalidOperand, quote

if TYPE_CHECKING:
    from warpfrag.machine.launch.kernel import KernelModule

DTYPES = {"f16": "f2", "f32": "f4", "f64": "f8"} | {
    f"{kind}{bits}": f"{letter}{bits // 8}"
    for kind, letter in (("i", "i"), ("s", "i"), ("u", "u"))
    for bits in (8, 16, 32, 64)
}
MAX_BYTES = 1 << 32
Arrays = dict[str, np.ndarray[Any, Any]]


def read_symbol(text: str, module: KernelModule) -> tuple[str, np.ndarray[Any, Any]]:
    """Set a module variable if `text` has a value; return its name and its array."""
    name, equals, value = text.partition("=")
    memory = module.symbols[name]
    if value.endswith(".npy"):
        array = read_source(value, MAX_BYTES).array(opaque=True)
        if array.nbytes == memory.nbytes:  # nvcc declares most arrays as bytes
            array = np.ascontiguousarray(array).reshape(-1).view(memory.dtype).reshape(memory.shape)
        module.symbols[name] = array
    elif equals:
        module.symbols[name] = _read_number(f"--symbol {quote(text)}", memory.dtype, value)  # type: ignore[assignment] # has the declared dtype
    return name, memory


def read_argument(text: str, arrays: Arrays) -> object:
    """Return the argument that `text` describes; store an array in `arrays` under its name."""
    if text == "null":
        return None
    if text.startswith("[") and text.endswith("]"):
        from warpfrag.ptx import DeviceArray

        return DeviceArray([read_argument(part.strip(), arrays) for part in text[1:-1].split(",")])
    parts = text.split(":")
    if len(parts) == 2 and parts[0] in DTYPES:
        return _read_number(f"--arg {quote(text)}", np.dtype(DTYPES[parts[0]]), parts[1])
    if len(parts) == 3 and parts[1] in DTYPES and re.fullmatch(r"\d{1,12}(x\d{1,12})*", parts[2], re.ASCII):
        shape = tuple(int(extent) for extent in parts[2].split("x"))
        dtype = np.dtype(DTYPES[parts[1]])
        if np.prod([float(extent) for extent in shape]) * dtype.itemsize > MAX_BYTES:
            raise InvalidOperand(f"--arg {quote(text)}: expected at most {MAX_BYTES} bytes")
        return arrays.setdefault(parts[0], np.zeros(shape, dtype))
    if not text.endswith(".npy"):
        expected = "FILE.npy, NAME:TYPE:SHAPE, TYPE:NUMBER (such as i32:100) or null"
        raise click.UsageError(f"--arg: expected {expected}, got {quote(text)}; types are {' '.join(DTYPES)}")
    name = re.split(r"[/\\:]", text.removesuffix(".npy"))[-1]
    return arrays.setdefault(name, np.array(read_source(text, MAX_BYTES).array(opaque=True)))


def _read_number(option: str, dtype: np.dtype[Any], digits: str) -> object:
    try:
        return dtype.type(float(digits) if dtype.kind == "f" else int(digits, 0))
    except (ValueError, OverflowError):
        raise InvalidOperand(f"{option}: expected a number of type {dtype}") from None
