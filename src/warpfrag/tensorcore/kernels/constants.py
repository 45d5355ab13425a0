"""The numbers of a rule and the bounds of a block, by name, as the kernels read them.

They come as flat arrays, because numba looks at every argument of a call, and into every tuple: an array is quick to
pass. And a new architecture is other numbers, not other code.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.tensorcore.backend_protocol import OutputBlock
from warpfrag.tensorcore.encodings import NAN_SCALE
from warpfrag.tensorcore.kernels.jit import Array, Int, inlined
from warpfrag.tensorcore.kernels.llvm_helpers import first_elements

# Values of c_format and d_format.
IS_F32: Final = 0
IS_F16: Final = 1

ANY_NAN_SCALE: Final = NAN_SCALE // 2
"""The sum of two exponents is at least this if one of them represents NaN: the other may be negative."""


class Encoding(NamedTuple):
    """The decoding of A's or B's codes; `encodings.encoding_of` has the same order."""

    fraction: Int
    bias: Int
    unused: Int
    sign_place: Int  # the bit that holds the sign
    special_from: Int  # magnitudes from here on are infinity or NaN
    infinity: Int  # the magnitude of infinity, or -1


class Constants(NamedTuple):
    """The numbers of a fused rule."""

    a: Encoding
    b: Encoding
    fraction_bits: Int
    products: Int  # of one step
    zero_exponent: Int
    round_to: Int
    c_format: Int
    c_emin: Int  # the smallest exponent that a C other than 0 is read with
    d_format: Int
    steps: Int  # of one instruction
    adds_c_last: Int  # steps start from zero, C is added afterwards, rounded to nearest
    is_sparse: Int
    is_narrow: Int  # its lower bounds of exponents are reached in the range of the vector loops
    is_short: Int  # `fast_steps` runs it, where exponents allow
    unit_exponent: Int  # every product is a multiple of 2**this


def flatten(constants: Constants) -> NDArray[np.int64]:
    """Return them as one array: the fields of both encodings, then all others, in the order of their declaration."""
    return np.array([*constants.a, *constants.b, *constants[2:]], np.int64)


ENCODING_FIELDS: Final = len(Encoding._fields)
OTHER_FIELDS: Final = len(Constants._fields) - 2
BLOCK_FIELDS: Final = len(OutputBlock._fields)


@inlined
def unflatten(numbers: Array) -> Constants:
    """Return the numbers of a rule, by name, from the array that `flatten` makes."""
    a = Encoding(*first_elements(numbers, ENCODING_FIELDS))
    b = Encoding(*first_elements(numbers[ENCODING_FIELDS:], ENCODING_FIELDS))
    return Constants(a, b, *first_elements(numbers[2 * ENCODING_FIELDS :], OTHER_FIELDS))


@inlined
def unflatten_block(bounds: Array) -> OutputBlock:
    """Return a block by name, from the array of its bounds."""
    return OutputBlock(*first_elements(bounds, BLOCK_FIELDS))
