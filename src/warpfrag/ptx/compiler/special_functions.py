"""The special function unit as native code: the twins of `arithmetic.unit`, and of the sequences around it.

A parabola is computed in float64, where each of its steps is exact: all are integers below 2**53. Every function is a
function of its own in the code of a kernel that calls it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING

from warpfrag.ptx.compiler.llvm_text import Text, Value
from warpfrag.ptx.semantics.special_functions import (
    COLUMN,
    DIGITS,
    DROPPED,
    PLACES,
    SINGLE,
    TANH_DIGITS,
    UPPER,
    Word,
    coefficients,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.ptx.opcodes.rows import Words

Unit = Callable[[Text, Value], Value]
SIGN, NAN, INFINITY, ONE = 0x80000000, 0x7FFFFFFF, 0x7F800000, 0x3F800000
FRACTION, LEAST_NORMAL, TWO_TO_126 = 0x007FFFFF, 0x00800000, 0x7E800000
TWO_TO_16 = 0x47800000
BELOW_256, TWO_TO_28 = 0x437FFFFF, 0x4D800000  # beyond them nothing changes: ex2 is infinite or zero, turns are whole
TURNS = 0.15915493667125702  # 1 / (2 pi) as float32 has it
DOUBLES = "<32 x double>"


# --- what functions are made of


def at(text: Text, operation: str, a: Value, code: int) -> Value:
    """An operation with one code in every lane."""
    return text.binary(operation, a, text.constant(code, a.bits))


def pick(text: Text, order: str, a: Value, code: int, found: Value | int, otherwise: Value) -> Value:
    """`found` where a compares so with a code."""
    chosen = found if isinstance(found, Value) else text.constant(found, otherwise.bits)
    return text.select(text.compare(order, a, text.constant(code, a.bits)), chosen, otherwise)


def number(value: float, kind: str = "double") -> str:
    """A float in every lane, as LLVM spells it: by the bits of a float64."""
    return f"splat ({kind} 0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X})"


def real(text: Text, operation: str, a: str, b: str) -> str:
    """fadd, fsub and fmul of float64."""
    return text.new(f"{operation} {DOUBLES} {a}, {b}")


def times(text: Text, a: Value, factor: float) -> Value:
    """a times a float32, or the square of a: rounded, its NaN the one that arithmetic makes."""
    return quiet(text, text.codes(text.new(f"fmul <32 x float> {text.float(a)}, {number(factor, 'float')}"), 32))


def quiet(text: Text, a: Value) -> Value:
    """The NaN that arithmetic makes for every other."""
    return pick(text, "ugt", at(text, "and", a, NAN), INFINITY, NAN, a)


def look_up(text: Text, name: str, values: Sequence[int], kind: str, index: Value) -> str:
    """Entries of a table, one for each lane."""
    short = {"double": "f64", "i32": "i32"}[kind]
    entries = [
        number(one).removeprefix("splat (").removesuffix(")") if kind == "double" else f"i32 {one}" for one in values
    ]
    text.used.add(f"@{name} = internal constant [{len(values)} x {kind}] [{', '.join(entries)}]")
    gather = f"llvm.masked.gather.v32{short}.v32p0"
    text.used.add(f"declare <32 x {kind}> @{gather}(<32 x ptr>, i32, <32 x i1>, <32 x {kind}>)")
    places = text.new(f"getelementptr {kind}, ptr @{name}, {index}")
    size = 8 if kind == "double" else 4
    mask = "<32 x i1> splat (i1 true)"
    return text.new(f"call <32 x {kind}> @{gather}(<32 x ptr> {places}, i32 {size}, {mask}, <32 x {kind}> poison)")


def parabola(text: Text, function: str, digits: Value) -> str:
    """The unit's result, uncut, as float64."""
    segment, x = at(text, "lshr", digits, DIGITS), at(text, "and", digits, (1 << DIGITS) - 1)
    square = text.constant(0, 32)
    for place in range(COLUMN // 2 + 1, DIGITS):  # a digit's own square, and its products with those below it
        low = at(text, "lshr", at(text, "and", x, (1 << place) - 1), COLUMN - 1 - place)
        more = text.binary("add", square, at(text, "add", low, 1 << 2 * place - COLUMN))
        square = pick(text, "ne", at(text, "and", x, 1 << place), 0, more, square)
    c0, c1, c2 = (
        look_up(text, f"unit.{function}.{index}", column.tolist(), "double", segment)
        for index, column in enumerate(coefficients()[function])
    )
    total = real(text, "fadd", c0, real(text, "fmul", c1, text.new(f"uitofp {x} to {DOUBLES}")))
    return real(text, "fadd", total, real(text, "fmul", c2, text.new(f"uitofp {square} to {DOUBLES}")))


def cut(text: Text, units: str, word: Word = SINGLE) -> Value:
    """Codes of what a parabola gives: its first bits."""
    codes = text.resize(at(text, "lshr", text.codes(units, 64), 52 - word.fraction), 32)
    codes = at(text, "sub", codes, 1023 - word.bias + PLACES << word.fraction)
    zero = Value(text.new(f"fcmp oeq {DOUBLES} {units}, {number(0.0)}"), 1)
    return text.select(zero, text.constant(0, 32), codes)


def parts(text: Text, a: Value, word: Word = SINGLE) -> tuple[Value, Value, Value, Value]:
    """Sign, magnitude, exponent field and fraction."""
    size = at(text, "and", a, NAN)
    fraction = at(text, "and", size, (1 << word.fraction) - 1)
    return at(text, "and", a, SIGN), size, at(text, "lshr", size, word.fraction), fraction


def widened(text: Text, a: Value, most: int) -> str:
    """Numbers without their sign as float64, and none more than `most`."""
    size = text.call("umin", at(text, "and", a, NAN), text.constant(most, 32))
    return text.new(f"fpext <32 x float> {text.float(size)} to {DOUBLES}")


def floor(text: Text, a: str) -> str:
    """The whole number below."""
    return text.float_call("floor", 64, a)


# --- the functions of the unit


def rcp(text: Text, a: Value, word: Word = SINGLE) -> Value:
    """1 / x."""
    sign, size, exponent, fraction = parts(text, a, word)
    turned = at(text, "shl", at(text, "sub", exponent, word.bias), word.fraction)
    found = cut(text, parabola(text, "rcp", at(text, "shl", fraction, 24 - word.fraction)), word)
    found = text.binary("sub", found, turned)
    found = pick(text, "slt", found, 1 << word.fraction, 0, found)
    found = pick(text, "eq", size, word.infinity, 0, pick(text, "eq", exponent, 0, word.infinity, found))
    return pick(text, "ugt", size, word.infinity, NAN, text.binary("or", found, sign))


def _root(text: Text, function: str, a: Value, way: str, word: Word = SINGLE) -> Value:
    _, _, exponent, fraction = parts(text, a, word)
    odd = at(text, "and", at(text, "add", exponent, 1), 1)  # the bias is odd
    half = at(text, "ashr", text.binary("sub", at(text, "sub", exponent, word.bias), odd), 1)
    digits = text.binary("or", fraction, at(text, "shl", odd, word.fraction))
    digits = at(text, "shl", digits, 23 - word.fraction)
    found = cut(text, parabola(text, function, digits), word)
    found = pick(text, "eq", digits, 0, word.bias << word.fraction, found)
    return text.binary(way, found, at(text, "shl", half, word.fraction))


def rsqrt(text: Text, a: Value, word: Word = SINGLE) -> Value:
    """1 / sqrt(x); NaN for what is negative or none."""
    found = pick(text, "eq", a, word.infinity, 0, _root(text, "rsqrt", a, "sub", word))
    found = pick(text, "ugt", a, word.infinity, NAN, found)
    sign, size, _, _ = parts(text, a, word)
    return pick(text, "ult", size, 1 << word.fraction, at(text, "or", sign, word.infinity), found)


def sqrt(text: Text, a: Value) -> Value:
    """The square root of x."""
    found = pick(text, "eq", a, INFINITY, INFINITY, _root(text, "sqrt", a, "add"))
    found = pick(text, "ugt", a, INFINITY, NAN, found)
    sign, size, _, _ = parts(text, a)
    return pick(text, "ult", size, LEAST_NORMAL, sign, found)


def ex2(text: Text, a: Value) -> Value:
    """2 to the power of x."""
    scaled = real(text, "fmul", widened(text, a, BELOW_256), number(2.0**23))
    digits = Value(text.new(f"fptosi {DOUBLES} {scaled} to <32 x i32>"), 32)
    behind = at(text, "and", digits, FRACTION)
    negative = pick(text, "ne", behind, 0, text.invert(digits), text.binary("sub", text.constant(0, 32), digits))
    digits = pick(text, "slt", a, 0, negative, digits)
    power = text.call("smax", at(text, "ashr", digits, 23), text.constant(-128, 32))
    power = text.call("smin", power, text.constant(128, 32))
    found = at(text, "sub", cut(text, parabola(text, "ex2", at(text, "and", digits, FRACTION))), 1 << 23)
    found = text.binary("add", found, at(text, "shl", power, 23))
    found = pick(text, "slt", found, LEAST_NORMAL, 0, text.call("smin", found, text.constant(INFINITY, 32)))
    return pick(text, "ugt", at(text, "and", a, NAN), INFINITY, NAN, found)


def lg2(text: Text, a: Value) -> Value:
    """The logarithm of x to base 2."""
    _, size, exponent, fraction = parts(text, a)
    whole = text.new(f"sitofp {at(text, 'sub', exponent, 127)} to {DOUBLES}")
    total = real(text, "fadd", parabola(text, "lg2", fraction), real(text, "fmul", whole, number(2.0**PLACES)))
    total = floor(text, real(text, "fmul", total, number(2.0**-DROPPED)))
    below = Value(text.new(f"fcmp olt {DOUBLES} {total}, {number(0.0)}"), 1)
    turned = real(text, "fsub", number(-1.0), total)
    total = text.new(f"select {below}, {DOUBLES} {turned}, {DOUBLES} {total}")
    found = cut(text, real(text, "fmul", total, number(2.0**DROPPED)))
    found = text.select(below, at(text, "or", found, SIGN), found)
    found = pick(text, "eq", a, ONE, 0, pick(text, "eq", a, INFINITY, INFINITY, found))
    found = pick(text, "ugt", a, INFINITY, NAN, found)
    return pick(text, "ult", size, LEAST_NORMAL, INFINITY | SIGN, found)


def _wave(text: Text, a: Value, quarters: int, sign: Value) -> Value:
    """sin and cos of x: a product cut to 24 bits is the number of turns."""
    product = text.codes(real(text, "fmul", widened(text, a, TWO_TO_28), number(TURNS)), 64)
    kept = text.float(at(text, "and", product, -1 << 52 - 23))
    turns = floor(text, real(text, "fmul", kept, number(2.0**25)))
    whole = real(text, "fmul", floor(text, real(text, "fmul", turns, number(2.0**-25))), number(2.0**25))
    place = Value(text.new(f"fptosi {DOUBLES} {real(text, 'fsub', turns, whole)} to <32 x i32>"), 32)
    place = at(text, "add", place, quarters << 23)
    digits = pick(text, "ne", at(text, "and", place, 1 << 23), 0, text.invert(place), place)
    found = cut(text, parabola(text, "sin", at(text, "and", digits, FRACTION)))
    turned = text.binary("xor", at(text, "and", at(text, "shl", place, 7), SIGN), sign)
    return pick(text, "uge", at(text, "and", a, NAN), INFINITY, NAN, text.binary("or", found, turned))


def sin(text: Text, a: Value) -> Value:
    """The sine of x."""
    return _wave(text, a, 0, at(text, "and", a, SIGN))


def cos(text: Text, a: Value) -> Value:
    """The cosine of x."""
    return _wave(text, a, 1, text.constant(0, 32))


def tanh(text: Text, a: Value) -> Value:
    """The hyperbolic tangent of x."""
    sign, size, exponent, fraction = parts(text, a)
    first = min(TANH_DIGITS)
    place = text.call("smax", at(text, "sub", exponent, first), text.constant(0, 32))
    place = text.call("smin", place, text.constant(len(TANH_DIGITS) - 1, 32))
    taken = [*TANH_DIGITS.values()]
    before = [end - (1 << one) << DIGITS for end, one in zip(accumulate(1 << one for one in taken), taken, strict=True)]
    start = Value(look_up(text, "unit.tanh.first", before, "i32", place), 32)
    shift = Value(look_up(text, "unit.tanh.shift", [23 - DIGITS - one for one in taken], "i32", place), 32)
    digits = text.binary("add", start, text.binary("lshr", fraction, shift))
    found = pick(text, "ult", size, first << 23, size, cut(text, parabola(text, "tanh", digits)))
    found = pick(text, "ult", size, max(TANH_DIGITS) + 1 << 23, found, text.constant(ONE, 32))
    return pick(text, "ugt", size, INFINITY, NAN, text.binary("or", found, sign))


# --- the sequences without ftz


def scaled(function: Unit, back: Unit) -> Unit:
    """The unit on a subnormal input scaled up by 2**24, and its result scaled `back`."""

    def build(text: Text, a: Value) -> Value:
        size = at(text, "and", a, NAN)
        found = function(text, pick(text, "ult", size, LEAST_NORMAL, times(text, a, 2.0**24), a))
        return pick(text, "ult", size, LEAST_NORMAL, back(text, found), found)

    return build


def plain_ex2(text: Text, a: Value) -> Value:
    """A result that would be subnormal is the square of that of a / 2."""
    low = Value(text.new(f"fcmp olt <32 x float> {text.float(a)}, {number(-126.0, 'float')}"), 1)
    found = ex2(text, text.select(low, times(text, a, 0.5), a))
    root = text.float(found)
    return text.select(low, quiet(text, text.codes(text.new(f"fmul <32 x float> {root}, {root}"), 32)), found)


def plain_rcp(text: Text, a: Value) -> Value:
    """An input at either end is scaled to the middle, and its result with it."""
    size = at(text, "and", a, NAN)
    middle = pick(text, "ult", size, LEAST_NORMAL, 0x4B800000, text.constant(ONE, 32))  # 2**24
    large = text.binary("and", *(text.compare(order, size, text.constant(code, 32)) for order, code in LARGE))
    factor = text.float(text.select(large, text.constant(0x3E800000, 32), middle))  # 1 / 4
    given = quiet(text, text.codes(text.new(f"fmul <32 x float> {text.float(a)}, {factor}"), 32))
    found = text.float(rcp(text, given))
    return quiet(text, text.codes(text.new(f"fmul <32 x float> {factor}, {found}"), 32))


def less_24(text: Text, a: Value) -> Value:
    """a - 24."""
    return quiet(text, text.codes(text.new(f"fadd <32 x float> {text.float(a)}, {number(-24.0, 'float')}"), 32))


LARGE = (("ugt", TWO_TO_126), ("ule", INFINITY))
FLUSHED: dict[str, Unit] = {
    "rcp": rcp, "rsqrt": rsqrt, "sqrt": sqrt, "ex2": ex2, "lg2": lg2, "sin": sin, "cos": cos, "tanh": tanh,
}  # fmt: skip
PLAIN: dict[str, Unit] = {
    "rcp": plain_rcp,
    "rsqrt": scaled(rsqrt, lambda text, a: times(text, a, 4096.0)),
    "sqrt": scaled(sqrt, lambda text, a: times(text, a, 2.0**-12)),
    "ex2": plain_ex2,
    "lg2": scaled(lg2, less_24),
    "sin": sin,
    "cos": cos,
    "tanh": tanh,
}


def called(text: Text, name: str, function: Unit, a: Value) -> Value:
    """A call of a function that the module has once."""
    inner = Text()
    found = function(inner, Value("%a", 32))
    text.used |= inner.used
    body = "\n".join(inner.lines)
    text.used.add(f"define internal {found.type} @{name}({a.type} %a) noinline {{\n{body}\n  ret {found}\n}}")
    return Value(text.new(f"call {found.type} @{name}({a})"), 32)


def narrow(function: Unit) -> Unit:
    """The unit on f16: its result for the same number in f32, cut; what is too large is infinite."""

    def build(text: Text, a: Value) -> Value:
        halves = text.float(text.resize(a, 16))
        given = text.codes(text.new(f"fpext <32 x half> {halves} to <32 x float>"), 32)
        found = function(text, given)
        rounded = text.new(f"fptrunc <32 x float> {text.float(found)} to <32 x half>")
        back = text.codes(text.new(f"fpext <32 x half> {rounded} to <32 x float>"), 32)
        codes, size = text.codes(rounded, 16), at(text, "and", found, NAN)
        more = text.compare("ugt", at(text, "and", back, NAN), size)
        codes = text.resize(text.select(more, at(text, "sub", codes, 1), codes), 32)
        codes = pick(text, "uge", size, TWO_TO_16, 0x7C00, codes)  # of ex2, which has no sign
        return pick(text, "ugt", size, INFINITY, 0x7FFF, codes)

    return build


def narrower(function: Unit) -> Unit:
    """The unit on bf16, which is half an f32."""
    return lambda text, a: at(text, "lshr", function(text, at(text, "shl", a, 16)), 16)


def upper(function: Callable[[Text, Value, Word], Value]) -> Unit:
    """The unit on upper words of f64."""
    return lambda text, a: function(text, a, UPPER)


def unit_rule(text: Text, words: Words, given: list[Value]) -> tuple[Value, ...] | None:
    """The .approx functions, but for the sequence of rsqrt on f64."""
    kind, name, a = words.types[0], f"unit.{words.opcode}", given[0]
    if kind.name == "f32":
        kinds, ending = (FLUSHED, "") if words.has("ftz") else (PLAIN, ".plain")
        return (called(text, name + ending, kinds[words.opcode], a),)
    if kind.name == "f64":
        if not words.has("ftz"):
            return None
        high = text.resize(at(text, "lshr", a, 32), 32)
        found = called(text, f"{name}.upper", upper({"rcp": rcp, "rsqrt": rsqrt}[words.opcode]), high)
        return (at(text, "shl", text.resize(found, 64), 32),)
    build = (narrow if kind.element == "f16" else narrower)(FLUSHED[words.opcode])
    total = text.constant(0, 32)
    for shift in range(0, kind.bits, 16):
        part = at(text, "and", at(text, "lshr", text.resize(a, 32), shift), 0xFFFF)
        found = called(text, f"{name}.{kind.element}", build, part)
        total = text.binary("or", total, at(text, "shl", found, shift))
    return (text.resize(total, kind.bits),)


def quotient_factors(text: Text, words: Words, a: Value, b: Value) -> list[Value]:
    """The unit's 1 / b, and a; .full scales a large b down first, and without ftz a subnormal b is scaled up."""
    size = at(text, "and", b, NAN)
    if words.get("way") == "full":
        large = text.binary("and", *(text.compare(order, size, text.constant(code, 32)) for order, code in LARGE))
        lower = times(text, a, 0.25)
        if words.has("ftz"):  # below 2**-124 nothing normal is left
            sign, magnitude, _, _ = parts(text, a)
            lower = pick(text, "ult", magnitude, LEAST_NORMAL + (2 << 23), sign, lower)
        a, b = text.select(large, lower, a), text.select(large, times(text, b, 0.25), b)
    if not words.has("ftz"):
        a, b = (pick(text, "ult", size, LEAST_NORMAL, times(text, one, 2.0**24), one) for one in (a, b))
    return [called(text, "unit.rcp", rcp, b), a]
