"""Execute a relayout on registers, as NumPy arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.arrays import Words, as_doubles
from warpfrag.formats.codes import code_dtype, from_codes, to_codes
from warpfrag.formats.float_environment import exact_floats
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.operands import OperandSpec
from warpfrag.plans import relayout_operations as ops
from warpfrag.tensorcore import fragment


@exact_floats
def convert_codes(source: str, target: str, codes: NDArray[Any]) -> NDArray[Any]:
    """Convert codes from one format to another."""
    row = ops.conversion(source, target)
    if row is None:
        return codes
    into = FORMATS[target]
    values = as_doubles(from_codes(FORMATS[source], codes))
    nan = np.isnan(values)
    if row.too_large != "infinity":
        values = np.clip(np.where(nan, 0.0, values), into.min, into.max)
    converted = to_codes(into, np.where(nan, 0.0, values), rounding="rne")
    return np.where(nan, code_dtype(into).type(row.nan), converted)


def move(words: Words, origins: Sequence[int], source: OperandSpec, target: OperandSpec) -> Words:
    """Return the target's registers [..., lanes, words], from the source position of every element of a warp."""
    *outer, lanes, _ = words.shape
    elements = fragment.cut_slots(np.ascontiguousarray(words), source.container)
    moved = elements.reshape(*outer, -1).take(origins, axis=-1)
    if ops.converts(source, target):
        codes = moved >> moved.dtype.type(source.low) & moved.dtype.type(source.format.codes - 1)
        converted = convert_codes(source.format.name, target.format.name, codes.astype(code_dtype(source.format)))
        moved = converted << converted.dtype.type(target.low)
    return fragment.join_slots(moved, target.container).view(np.uint32).reshape(*outer, lanes, -1)
