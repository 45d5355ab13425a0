"""Rounding to tf32: to nearest, ties away from zero."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpfrag import wmma
from warpfrag.wmma import __float_to_tf32 as float_to_tf32


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0x00000000, 0x00000000),
        (0x80000000, 0x80000000),
        (0x3F800FFF, 0x3F800000),
        (0x3F801000, 0x3F802000),  # a tie goes away from zero
        (0xBF801000, 0xBF802000),
        (0x3F803000, 0x3F804000),
        (0x3FFFF000, 0x40000000),  # into the next binade
        (0x00001000, 0x00002000),  # subnormals keep their step
        (0x00000FFF, 0x00000000),
        (0x007FF000, 0x00800000),
        (0x7F7FEFFF, 0x7F7FE000),  # the largest that is left finite
        (0x7F7FF000, 0x7F800000),
        (0xFF7FFFFF, 0xFF800000),
        (0x7F800000, 0x7F800000),
        (0xFF800000, 0xFF800000),
        (0x7FFFFFFF, 0x7FFFE000),  # NaNs stay NaNs
        (0x7F800001, 0x7FC00000),
        (0xFFC00001, 0xFFC00000),
    ],
)
def test_codes(code, expected):
    found = float_to_tf32(np.uint32(code).view(np.float32))
    assert type(found) is np.float32
    assert f"{found.view(np.uint32):08X}" == f"{expected:08X}"


@given(st.integers(0, 0x7F7FDFFF), st.booleans())
def test_the_nearest_is_found(code, negative):
    """No other multiple of 2**13 among the codes is nearer, and of two equally near the larger one is taken."""
    value = Fraction(float(np.uint32(code).view(np.float32)))
    below = np.uint32(code & ~0x1FFF)
    above = np.uint32(below + 0x2000)
    low, high = (Fraction(float(near.view(np.float32))) for near in (below, above))
    expected = above if value - low >= high - value else below
    given_code = np.uint32(code | negative << 31)
    found = float_to_tf32(given_code.view(np.float32)).view(np.uint32)
    assert found == expected | np.uint32(negative << 31)


def test_fragments_are_converted_as_in_the_guide():
    a = wmma.fragment(wmma.matrix_a, 16, 16, 8, wmma.precision.tf32, wmma.row_major)
    memory = np.random.default_rng(11).standard_normal((16, 8)).astype(np.float32)
    wmma.load_matrix_sync(a, memory, 8)
    for t in range(a.num_elements):
        a.x[t] = float_to_tf32(a.x[t])
    assert not (a.words & 0x1FFF).any()
    assert np.array_equal(a.matrix(), wmma.float_to_tf32(memory))
    assert not np.array_equal(a.matrix(), memory)
