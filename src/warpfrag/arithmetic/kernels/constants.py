"""The numbers of a rule and the bounds of a block, by name, as the kernels read them.

They come as flat arrays, because numba looks at every argument of a call, and into every tuple: an array is quick to
pass. And a new architecture is other numbers, not other code.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from warpfrag.arithmetic.encodings import NAN_SCALE
from warpfrag.arithmetic.kernels.jit import Array, Int, inlined
from warpfrag.arithmetic.protocol import Block

# Values of c_format and d_format.
IS_F32: Final = 0
IS_F16: Final = 1

ANY_NAN_SCALE: Final = NAN_SCALE // 2
"""The sum of two exponents is at least this if one of them stands for NaN: the other may be negative."""


class Encoding(NamedTuple):
    """How an element of A or B is read."""

    fraction: Int
    bias: Int
    unused: Int
    sign_place: Int  # which bit holds the sign
    special_from: Int  # magnitudes from here on are infinity or NaN
    infinity: Int  # the magnitude of infinity, or -1


class Constants(NamedTuple):
    """A fused rule."""

    a: Encoding
    b: Encoding
    fraction_bits: Int
    products: Int  # of one step
    zero_exponent: Int
    round_to: Int
    c_format: Int
    c_emin: Int  # least exponent a C that is not 0 is read with
    d_format: Int
    steps: Int  # of one instruction
    adds_c_last: Int  # steps start from zero, C is added afterwards, rounded to nearest
    is_sparse: Int
    is_narrow: Int  # it has floors under exponents that are reached in f32's safe range
    is_short: Int  # `short_steps` runs it, where exponents allow


def flatten(constants: Constants) -> Array:
    """As one array."""
    return np.array([*constants.a, *constants.b, *constants[2:]], np.int64)


@inlined
def unflatten(n: Array) -> Constants:
    """By name again."""
    a = Encoding(n[0], n[1], n[2], n[3], n[4], n[5])
    b = Encoding(n[6], n[7], n[8], n[9], n[10], n[11])
    return Constants(a, b, n[12], n[13], n[14], n[15], n[16], n[17], n[18], n[19], n[20], n[21], n[22], n[23])


@inlined
def unflatten_block(bounds: Array) -> Block:
    """A block by name."""
    return Block(bounds[0], bounds[1], bounds[2], bounds[3], bounds[4], bounds[5])
