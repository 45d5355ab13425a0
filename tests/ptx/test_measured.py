"""Results of single instructions on an H200, for rules that are easy to get wrong."""

import numpy as np
import pytest

from warpfrag.machine.ops.opcode_lookup import find
from warpfrag.machine.semantics.conversions import float_to_float
from warpfrag.machine.semantics.floats import FloatModifiers, divide, fma, multiply
from warpfrag.machine.semantics.ptx_rounding import decode

pytestmark = pytest.mark.one_engine

WIDTH = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "f64": np.uint64}
FTZ = FloatModifiers(ftz=True)
SEEN = {
    "ftz after rounding brought it up": (multiply, "f32", FTZ, (0x1FFFFFFE, 0x20000001), 0x00800000),
    "ftz of what f32's precision holds": (multiply, "f32", FTZ, (0x3F7FFFFF, 0x00800000), 0),
    "the same upwards": (fma, "f32", FloatModifiers("rp", ftz=True), (0x3F7FFFFF, 0x00800000, 0), 0),
    "ftz of a sum just below": (fma, "f32", FTZ, (0xA0000001, 0x025A6846, 0x00800000), 0x00800000),
    "ftz of f16": (fma, "f16", FTZ, (0x846E, 0x08EB, 0x0400), 0x0400),
    "a product beyond f64, and infinity": (
        fma, "f64", FloatModifiers("rz"),
        (0xE4F750BA761D0F85, 0xE0ABB6F6DEA79B06, 0xFFF0000000000000), 0xFFF0000000000000,
    ),
    "just beyond f64, downwards": (
        fma, "f64", FloatModifiers("rm"),
        (0x7FEFFFFFFFFFFFFF, 0xC000000000000000, 0xE7BFAD06C3F4F91D), 0xFFF0000000000000,
    ),
    "the NaN of a division is that of a": (
        divide, "f64", FloatModifiers(), (0xFFF0000000000001, 0x7FF0000000000001), 0xFFF8000000000001,
    ),
    "the NaN of a sum is that of b": (
        fma, "f64", FloatModifiers(), (0xFFF0000000000001, 0x7FF0000000000001, 0), 0x7FF8000000000001,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SEEN)
def test_an_h200_gave(case):
    function, name, style, given, expected = SEEN[case]
    found = function(name, style, *(np.array([code], WIDTH[name]) for code in given))
    assert hex(int(found[0])) == hex(expected)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_the_nan_of_out_of_bounds_makes_a_product_0(kind):
    plain, relu = (find(f"fma.rn.oob{word}.{kind}", 4).action.function for word in ("", ".relu"))
    outside, other, value = (np.array([code], np.uint16) for code in (0xFFF7, 0x7FF6, 0x4000))
    assert [plain(outside, value, value)[0], plain(value, outside, value)[0], relu(outside, value, value)[0]] == [0] * 3
    assert plain(other, value, value)[0] == plain(value, value, outside)[0] == 0x7FFF


def test_conversions_flush_and_quiet():
    assert float_to_float(np.array([0x7FFFFF], np.uint32), "f32", "bf16", FTZ)[0] == 0
    assert float_to_float(np.array([0x7C01], np.uint16), "f16", "f16", FloatModifiers())[0] == 0x7FFF
    assert float_to_float(np.array([0xFF81], np.uint16), "bf16", "bf16", FloatModifiers())[0] == 0x7FFF


@pytest.mark.parametrize("name", ["e2m3", "e3m2"])
def test_bits_above_a_narrow_code_do_not_count(name):
    codes = np.arange(64, dtype=np.uint8)
    assert np.array_equal(decode(codes | np.uint8(0xC0), name), decode(codes, name))
