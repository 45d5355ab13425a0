"""Constant expressions: the values that ptxas 13.0 and 13.4 write for `.global .u64 x = EXPRESSION`, and errors."""

import pytest

import warpfrag as wf
from warpfrag.ptx.lowering.passes import lower
from warpfrag.ptx.reader.parser import parse

pytestmark = pytest.mark.one_engine
HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
INTEGERS = {
    "9223372036854775807 / 1": 0x7FFFFFFFFFFFFFFF,
    "-7 / 2": 0xFFFFFFFFFFFFFFFD,
    "7 / -2": 0xFFFFFFFFFFFFFFFD,
    "-7 / 2U": 0x7FFFFFFFFFFFFFFC,
    "-7U / 2": 0x7FFFFFFFFFFFFFFC,
    "18446744073709551615 / 2": 0x7FFFFFFFFFFFFFFF,
    "0x8000000000000000 / -1": 0,
    "-9223372036854775808 / -1": 0,
    "100 / 10 / 2": 5,
    "-7 % 2": 1,
    "7 % -2": 7,
    "5%(3)": 2,
    "(-7 % 2 - 2) >> 1": 0x7FFFFFFFFFFFFFFF,
    "(-9223372036854775807 - 1) % -1": 0x8000000000000000,
    "9223372036854775807 + 1": 0x8000000000000000,
    "0x7FFFFFFFFFFFFFFF + 1 >> 1": 0xC000000000000000,
    "9223372036854775807 * 2": 0xFFFFFFFFFFFFFFFE,
    "-1 >> 1": 0xFFFFFFFFFFFFFFFF,
    "-1U >> 1": 0x7FFFFFFFFFFFFFFF,
    "-1 >> 1U": 0xFFFFFFFFFFFFFFFF,
    "-1 >> 64": 0xFFFFFFFFFFFFFFFF,
    "-8 >> 65": 0xFFFFFFFFFFFFFFFC,
    "0x8000000000000000 >> 63": 1,
    "1 << 63": 0x8000000000000000,
    "1 << 65": 2,
    "1 << -1": 0x8000000000000000,
    "(-1 << 1U) / 2": 0xFFFFFFFFFFFFFFFF,
    "1 << 2 + 1": 8,
    "-1 < 1": 1,
    "-1 < 1U": 0,
    "-1 > 1U": 1,
    "3 >= 4": 0,
    "2 <= 2": 1,
    "3 != 3": 0,
    "3 > 2 > 1": 0,
    "1 == 2 < 3": 1,
    "4 & 6 == 6": 0,
    "1 | 0 && 0": 0,
    "1 && 1 || 0 && 0": 1,
    "2 && 4": 1,
    "(1U && 1U) - 2 >> 1": 0xFFFFFFFFFFFFFFFF,
    "(1U < 2U) - 2 >> 1": 0xFFFFFFFFFFFFFFFF,
    "!1U - 2 >> 1": 0xFFFFFFFFFFFFFFFF,
    "!!5": 1,
    "~5 >> 1": 0x7FFFFFFFFFFFFFFD,
    "-~5": 6,
    "(-1 & -1) >> 1": 0xFFFFFFFFFFFFFFFF,
    "(-1 ^ 0U) >> 1": 0x7FFFFFFFFFFFFFFF,
    "1 | 2 ^ 3 & 4": 3,
    "1 ? 0 ? 5 : 6 : 7": 6,
    "0 ? 2 : 0 ? 4 : 5": 5,
    "1?2:3": 2,
    "(1 ? -7 : 2U) / 2": 0xFFFFFFFFFFFFFFFD,
    "5 > 3 ? 10 + 1 : 20": 11,
    "(.s64)0xFFFFFFFFFFFFFFFF / 2": 0,
    "(.u64)-7 / 2": 0x7FFFFFFFFFFFFFFC,
    "(.s64) -7U / 2": 0xFFFFFFFFFFFFFFFD,
    "( .s64 ) (.u64) 5": 5,
    "-WARP_SZ / 5": 0xFFFFFFFFFFFFFFFA,
    "017 + 0b101 + 0xFU": 35,
    "1.5 - 0.5 == 1.0": 1,
    "1.5 < 2.5": 1,
    "0d3FF0000000000000 >= 2.0": 0,
}
FLOATS = {
    ("f64", "1.5 + 2.25"): 0x400E000000000000,
    ("f64", "0.1 + 0.2"): 0x3FD3333333333334,
    ("f64", "2.0 / 3.0 - 1.0"): 0xBFD5555555555556,
    ("f64", "1e308 * 10.0"): 0x7FF0000000000000,
    ("f64", "0d3FF0000000000000 * 3.0"): 0x4008000000000000,
    ("f64", "- -(1.5)"): 0x3FF8000000000000,
    ("f64", "-0.0"): 0x8000000000000000,
    ("f64", "0f3DCCCCCD"): 0x3DCCCCCD,
    ("b64", "0f3F800000"): 0x3F800000,
    ("b64", "1.5"): 0x3FF8000000000000,
    ("b32", "1.5"): 0x3FC00000,
    ("f32", "0d3FB999999999999A"): 0x3DCCCCCD,
    ("f32", "(0f3F800000)"): 0x3F800000,
    ("f32", "1e300"): 0x7F800000,
    ("f32", "1e-40"): 0x000116C2,
    ("u8", "-200"): 0x38,
    ("u32", "0x1FFFFFFFF"): 0xFFFFFFFF,
}
DIGITS = "1" * 5000
REFUSED = {
    "7 / 0": "division by zero in a constant expression",
    "7 % (3 - 3)": "division by zero in a constant expression",
    "0 ? 1/0 : 3": "division by zero in a constant expression",
    "1 || 1/0": "division by zero in a constant expression",
    "(-9223372036854775807 - 1) / -1": "does not fit in 64 bits",
    "1.0 / 0.0 == 1.0": "division by zero in a constant expression",
    "1.5": "expected an initial value of a matching type for .u64 'x', got 0d3FF8000000000000",
    "1.5 < 2": "expected an integer in a constant expression, got the float",
    "!1.5": "expected an integer in a constant expression",
    "1.5 % 1.0": "expected integer operands for '%', got floats",
    "1.5 ? 2 : 3": "expected an integer in a constant expression",
    "1 ? 2.5 : 3.5": "expected an integer in a constant expression",
    "(.s64)1.5": "expected an integer in a constant expression",
    "(.u32)5": "expected a cast to .s64 or .u64, got '.u32'",
    "0f3F800000 + 1.0": "expected an integer in a constant expression",
    "5%3": "expected ';', got '%3'",
    "08": "expected octal digits after a leading 0, got '08'",
    "5u": "expected PTX",
    "1 +": "expected a number, got ';'",
    "1 ? 2": "expected ':', got ';'",
    "99999999999999999999999999": "expected an integer of at most 64 bits",
    "0x10000000000000000": "expected an integer of at most 64 bits",
    DIGITS: r"expected an integer of at most 64 bits, got '1{200}'\.\.\. \(5000 characters\)",
    f"{DIGITS}.0": "expected a number in the range of f64",
    f"0x{DIGITS}": "expected an integer of at most 64 bits",
    f"1e{DIGITS}": "expected a number in the range of f64",
    "1e-400": "expected a number in the range of f64",
    "(" * 100 + "1" + ")" * 100: "at most 64 nested braces",
    "0?1:" * 100 + "1": "at most 64 nested braces",
    "-" * 3000 + "1": "at most 64 nested braces",
}


def initial_value(kind, expression):
    """The code that a variable starts with."""
    source = parse(f"{HEAD}.visible .global .{kind} x = {expression};\n.entry k() {{ ret; }}")
    return int.from_bytes(lower(source, "k").variables["x"].initial, "little")


@pytest.mark.parametrize(("expression", "code"), INTEGERS.items())
def test_integers_are_those_of_the_assembler(expression, code):
    assert initial_value("u64", expression) == code


@pytest.mark.parametrize(("written", "code"), FLOATS.items())
def test_floats_are_those_of_the_assembler(written, code):
    assert initial_value(*written) == code


@pytest.mark.parametrize(("expression", "message"), [pytest.param(*pair, id=pair[0][:20]) for pair in REFUSED.items()])
def test_what_has_no_value_is_refused_with_its_line(expression, message):
    with pytest.raises(wf.ptx.PtxError, match=message) as caught:
        initial_value("u64", expression)

    assert caught.value.line == 4


def test_expressions_stand_in_operands_and_addresses():
    body = "ld.global.u32 %r, [%d + 4 << 1]; add.u32 %r, %r, 1 ? 7 % (4) : 9; st.global.u32 [%d + (3 < 4) * 4 - 4], %r;"
    steps = lower(parse(f"{HEAD}.entry k() {{ .reg .u32 %r; .reg .u64 %d; {body} }}"), "k").instructions

    assert [steps[0].sources[0].offset, steps[1].sources[1].value, steps[2].sources[0].offset] == [8, 3, 0]
