"""What lanes compute, as native code: the twins of `ptx.arithmetic`, for the instructions that kernels use most.

A row is found by the name of the opcode; one that gives None is left to the readable engine. LLVM's plain float
operations round to nearest even and keep subnormals, and nothing here lets it relax that.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from warpfrag.numerics.formats import FORMATS
from warpfrag.ptx.compiler.special_functions import quotient_factors, unit_rule
from warpfrag.ptx.program.state_spaces import WINDOWS
from warpfrag.ptx.semantics.rounding import canonical_nan

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.ptx.compiler.llvm_text import Text, Value
    from warpfrag.ptx.opcodes.rows import Words
    from warpfrag.ptx.program.types import Type

    Given = list[Any]
    """Values; the table of lop3 is a number."""
    Rule = Callable[[Text, Words, Given], tuple[Value, ...] | None]

NAN = {bits: canonical_nan(FORMATS[f"f{bits}"]) for bits in (16, 32, 64)}
NAN_BF16 = canonical_nan(FORMATS["bf16"])
LEAST_NORMAL = {16: 0x0400, 32: 0x00800000, 64: 0x0010000000000000}
INFINITY = {16: 0x7C00, 32: 0x7F800000, 64: 0x7FF0000000000000}
ONE = {32: 0x3F800000, 64: 0x3FF0000000000000}
BINARY32 = {"f32", "f64"}


# --- integers


def integer_rule(text: Text, words: Words, given: Given) -> tuple[Value, ...] | None:
    """add, sub, min, max, abs, neg, and, or, xor, not, cnot."""
    kind = words.types[-1]
    if words.has("sat") or words.has("relu") or words.has("cc") or kind.parts != 1:
        return None
    signed = kind.kind == "s"
    zero = text.constant(0, given[0].bits)
    if words.opcode in {"add", "sub", "and", "or", "xor"}:
        return (text.binary(words.opcode, *given),)
    if words.opcode in {"min", "max"}:
        return (text.call(f"{'s' if signed else 'u'}{words.opcode}", *given),)
    if words.opcode == "neg":
        return (text.binary("sub", zero, given[0]),)
    if words.opcode == "abs":
        negative = text.compare("slt", given[0], zero)
        return (text.select(negative, text.binary("sub", zero, given[0]), given[0]),)
    if words.opcode == "cnot":
        return (text.resize(text.compare("eq", given[0], zero), given[0].bits),)
    return (text.invert(given[0]),)


def product(text: Text, words: Words, a: Value, b: Value) -> Value:
    """The low half, the high half or the whole of a product."""
    kind, half = words.types[0], words.get("half")
    signed = kind.kind == "s"
    if half == "lo":
        return text.binary("mul", a, b)
    wide = text.binary(
        "mul", text.resize(a, 2 * kind.bits, signed=signed), text.resize(b, 2 * kind.bits, signed=signed)
    )
    if half == "wide":
        return wide
    return text.resize(text.binary("lshr", wide, text.constant(kind.bits, 2 * kind.bits)), kind.bits)


def multiply_rule(text: Text, words: Words, given: Given) -> tuple[Value, ...] | None:
    """mul and mad of integers."""
    if words.has("sat") or words.has("cc") or (words.get("half") == "hi" and words.types[0].bits == 64):
        return None
    found = product(text, words, given[0], given[1])
    return (text.binary("add", found, given[2]) if words.opcode == "mad" else found,)


def divide_rule(text: Text, words: Words, given: Given) -> tuple[Value, ...]:
    """div and rem of integers: towards zero; by zero both are all ones."""
    a, b = given
    bits, signed = a.bits, words.types[0].kind == "s"
    zero, one = text.constant(0, bits), text.constant(1, bits)
    by_zero = text.compare("eq", b, zero)
    safe = text.select(by_zero, one, b)
    if signed:  # the least number by -1 wraps: its remainder is 0
        least = text.compare("eq", a, text.constant(1 << (bits - 1), bits))
        overflow = text.binary("and", least, text.compare("eq", b, text.constant(-1, bits)))
        safe = text.select(overflow, one, safe)
    found = text.binary(f"{'s' if signed else 'u'}{words.opcode}", a, safe)
    return (text.select(by_zero, text.constant(-1, bits), found),)


def shift(text: Text, operation: str, a: Value, count: Value) -> Value:
    """shl, lshr or ashr by a count of 32 bits: beyond the width all bits are out."""
    most = text.constant(a.bits - 1, 32)
    near = text.resize(text.call("umin", count, most), a.bits)
    found = text.binary(operation, a, near)
    if operation == "ashr":
        return found
    return text.select(text.compare("ugt", count, most), text.constant(0, a.bits), found)


def shift_rule(text: Text, words: Words, given: Given) -> tuple[Value, ...]:
    """shl and shr."""
    right = "ashr" if words.types[0].kind == "s" else "lshr"
    return (shift(text, "shl" if words.opcode == "shl" else right, *given),)


def funnel_rule(text: Text, words: Words, given: Given) -> tuple[Value, ...]:
    """shf: 32 bits out of b:a."""
    a, b, c = given
    count = (
        text.binary("and", c, text.constant(31, 32))
        if words.has("wrap")
        else text.call("umin", c, text.constant(32, 32))
    )
    high = text.binary("shl", text.resize(b, 64), text.constant(32, 64))
    pair, by = text.binary("or", high, text.resize(a, 64)), text.resize(count, 64)
    if words.has("l"):
        return (text.resize(text.binary("lshr", text.binary("shl", pair, by), text.constant(32, 64)), 32),)
    return (text.resize(text.binary("lshr", pair, by), 32),)


def logic3_rule(text: Text, words: Words, given: Given) -> tuple[Value, ...] | None:
    """lop3: any function of three bits."""
    if "combine" in words.options:
        return None
    a, b, c, table = given
    total = text.constant(0, 32)
    for index in range(8):
        if table >> index & 1:
            terms = [one if index & bit else text.invert(one) for one, bit in ((a, 4), (b, 2), (c, 1))]
            term = text.binary("and", text.binary("and", terms[0], terms[1]), terms[2])
            total = text.binary("or", total, term)
    return (total,)


def count_rule(text: Text, words: Words, given: Given) -> tuple[Value, ...]:
    """popc and clz."""
    found = text.call("ctpop", given[0]) if words.opcode == "popc" else text.call("ctlz", given[0], flag="false")
    return (text.resize(found, 32),)


def reverse_rule(text: Text, _words: Words, given: Given) -> tuple[Value, ...]:
    """brev."""
    return (text.call("bitreverse", given[0]),)


def field_of(text: Text, count: Value, bits: int) -> Value:
    """A place or length of bfe and bfi."""
    return (
        text.binary("and", count, text.constant(0xFF, 32))
        if bits == 32
        else text.call("umin", count, text.constant(255, 32))
    )


def ones_below(text: Text, count: Value, bits: int) -> Value:
    """So many ones from the low end; all of them from the width on."""
    # a count beyond the width leaves 0 - 1
    return text.binary("sub", shift(text, "shl", text.constant(1, bits), count), text.constant(1, bits))


def extract_rule(text: Text, words: Words, given: Given) -> tuple[Value, ...]:
    """bfe: beyond the field, or beyond the word, are zeros or the sign of the field."""
    a = given[0]
    bits = a.bits
    position, count = (field_of(text, one, bits) for one in given[1:])
    low = shift(text, "lshr", a, position)
    if words.types[0].kind != "s":
        return (text.binary("and", low, ones_below(text, count, bits)),)
    width, zero = text.constant(bits, 32), text.constant(0, 32)
    room = text.binary("sub", width, text.call("umin", position, width))
    kept = ones_below(text, text.call("umin", count, room), bits)
    end = text.binary("add", position, count)
    last = text.call("umin", text.binary("sub", end, text.constant(1, 32)), text.constant(bits - 1, 32))
    sign = text.resize(shift(text, "lshr", a, last), 1)
    sign = text.binary("and", sign, text.compare("ne", count, zero))
    rest = text.select(sign, text.invert(kept), text.constant(0, bits))
    return (text.binary("or", text.binary("and", low, kept), rest),)


def insert_rule(text: Text, _words: Words, given: Given) -> tuple[Value, ...]:
    """bfi."""
    a, b = given[:2]
    position, count = (field_of(text, one, a.bits) for one in given[2:])
    mask = shift(text, "shl", ones_below(text, count, a.bits), position)
    kept = text.binary("and", b, text.invert(mask))
    return (text.binary("or", kept, text.binary("and", shift(text, "shl", a, position), mask)),)


def permute_rule(text: Text, words: Words, given: Given) -> tuple[Value, ...] | None:
    """prmt in its default mode."""
    if words.get("mode"):
        return None
    a, b, c = given
    pair = text.binary("or", text.binary("shl", text.resize(b, 64), text.constant(32, 64)), text.resize(a, 64))
    total = text.constant(0, 32)
    for index in range(4):
        selector = text.binary("lshr", c, text.constant(4 * index, 32))
        place = text.binary("shl", text.binary("and", selector, text.constant(7, 32)), text.constant(3, 32))
        byte = text.resize(text.binary("lshr", pair, text.resize(place, 64)), 8)
        spread = text.binary("ashr", byte, text.constant(7, 8))
        takes_sign = text.resize(text.binary("lshr", selector, text.constant(3, 32)), 1)
        piece = text.resize(text.select(takes_sign, spread, byte), 32)
        total = text.binary("or", total, text.binary("shl", piece, text.constant(8 * index, 32)))
    return (total,)


# --- floats


def magnitude(text: Text, a: Value) -> Value:
    """Without the sign."""
    return text.binary("and", a, text.constant((1 << (a.bits - 1)) - 1, a.bits))


def sign_of(text: Text, a: Value) -> Value:
    """The sign bit alone."""
    return text.binary("and", a, text.constant(1 << (a.bits - 1), a.bits))


def negated(text: Text, a: Value) -> Value:
    """The sign turned."""
    return text.binary("xor", a, text.constant(1 << (a.bits - 1), a.bits))


def is_nan(text: Text, a: Value) -> Value:
    """Whether codes are NaNs."""
    return text.compare("ugt", magnitude(text, a), text.constant(INFINITY[a.bits], a.bits))


def flushed(text: Text, a: Value) -> Value:
    """Subnormals become zeros of their sign."""
    small = text.compare("ult", magnitude(text, a), text.constant(LEAST_NORMAL[a.bits], a.bits))
    return text.select(small, sign_of(text, a), a)


def settled(text: Text, found: Value, given: Given) -> Value:
    """The NaN of an operation: one of its own, or for f64 that of b, else c, else a, made quiet."""
    nan = text.constant(NAN[found.bits], found.bits)
    if found.bits == 64:
        for one in (given[0], *given[:0:-1]):
            nan = text.select(is_nan(text, one), text.binary("or", one, text.constant(1 << 51, 64)), nan)
    return text.select(is_nan(text, found), nan, found)


def saturated(text: Text, a: Value) -> Value:
    """Clamped to 0..1; NaNs and negative numbers are 0."""
    low = text.call("umin", a, text.constant(ONE[a.bits], a.bits))
    bad = text.binary("or", is_nan(text, a), text.compare("slt", a, text.constant(0, a.bits)))
    return text.select(bad, text.constant(0, a.bits), low)


def unflushed(text: Text, found: Value, scaled: str) -> Value:
    """A result of f32 with ftz, zero where it is too small once rounded to 24 bits with an unbounded exponent.

    Only a result that is the smallest normal number can have been rounded up from below that: `scaled` is the same
    operation 24 powers of two higher, where nothing is subnormal, and tells.
    """
    least = LEAST_NORMAL[32]
    edge = text.compare("eq", magnitude(text, found), text.constant(least, 32))
    below = text.compare("ult", magnitude(text, text.codes(scaled, 32)), text.constant(least + (24 << 23), 32))
    return text.select(text.binary("and", edge, below), sign_of(text, found), found)


def higher(text: Text, a: Value) -> str:
    """f32 times 2**24."""
    return text.new(f"fmul <32 x float> {text.float(a)}, splat (float 0x4170000000000000)")


def fused(text: Text, given: Given, *, ftz: bool) -> Value:
    """a * b + c with one rounding."""
    bits = given[0].bits
    found = text.codes(text.float_call("fma", bits, *(text.float(one) for one in given)), bits)
    found = settled(text, found, given)
    if not ftz:
        return found
    a, b, c = given
    return unflushed(text, found, text.float_call("fma", 32, higher(text, a), text.float(b), higher(text, c)))


def float_rule(text: Text, words: Words, given: Given) -> tuple[Value, ...] | None:
    """add, sub, mul, fma, mad, div, sqrt and rcp to nearest even."""
    kind = words.types[-1]
    if len(words.types) != 1 or kind.name not in BINARY32 or words.get("rounding", "rn") != "rn" or words.has("relu"):
        return None
    ftz, opcode = words.has("ftz"), words.opcode
    if words.get("approx"):
        return unit_rule(text, words, given)
    if words.get("way"):
        given, opcode = quotient_factors(text, words, *given), "mul"
    if ftz and opcode in {"div", "rcp", "sqrt"}:
        return None
    bits = kind.bits
    given = [flushed(text, one) for one in given] if ftz else list(given)
    if opcode == "rcp":
        given, opcode = [text.constant(ONE[bits], bits), given[0]], "div"
    if opcode == "sub":  # a NaN keeps its sign
        given[1] = text.select(is_nan(text, given[1]), given[1], negated(text, given[1]))
        opcode = "add"
    if opcode in {"fma", "mad"}:
        found = fused(text, given, ftz=ftz)
    elif opcode == "sqrt":
        found = settled(text, text.codes(text.float_call("sqrt", bits, text.float(given[0])), bits), given)
    else:
        floats = [text.float(one) for one in given]
        kinds = f"<32 x {'float' if bits == 32 else 'double'}>"
        turned = given[::-1] if opcode == "div" else given  # a division takes the NaN of what is divided first
        found = settled(text, text.codes(text.new(f"f{opcode} {kinds} {floats[0]}, {floats[1]}"), bits), turned)
        if ftz and opcode == "mul":
            scaled = text.new(f"fmul {kinds} {higher(text, given[0])}, {floats[1]}")
            found = unflushed(text, found, scaled)
    if ftz:
        found = flushed(text, found)
    return (saturated(text, found) if words.has("sat") else found,)


def fused_rule(text: Text, words: Words, given: Given, signs: tuple[bool, bool]) -> tuple[Value, ...] | None:
    """A sum with the product that an assembler fuses into it; `signs` say which of product and addend are turned."""
    kind = words.types[-1]
    if kind.name not in BINARY32:
        return None
    ftz = words.has("ftz")
    a, b, c = given
    given = [negated(text, a) if signs[0] else a, b, negated(text, c) if signs[1] else c]
    if ftz:
        given = [flushed(text, one) for one in given]
    found = fused(text, given, ftz=ftz)
    if ftz:
        found = flushed(text, found)
    return (saturated(text, found) if words.has("sat") else found,)


def sign_rule(text: Text, words: Words, given: Given) -> tuple[Value, ...] | None:
    """abs and neg of floats."""
    if words.types[0].name not in BINARY32:
        return None
    a = flushed(text, given[0]) if words.has("ftz") else given[0]
    found = magnitude(text, a) if words.opcode == "abs" else negated(text, a)
    nan = text.constant(NAN[32], 32) if a.bits == 32 else text.binary("or", a, text.constant(1 << 51, 64))
    return (text.select(is_nan(text, a), nan, found),)


def in_order(text: Text, a: Value) -> Value:
    """Signed integers in the order of the numbers."""
    flip = text.binary("xor", a, text.constant((1 << (a.bits - 1)) - 1, a.bits))
    return text.select(text.compare("slt", a, text.constant(0, a.bits)), flip, a)


def float_extreme_rule(text: Text, words: Words, given: Given) -> tuple[Value, ...] | None:
    """min and max of two f32: a number beats a NaN unless .NaN asks for it."""
    if words.types[0].name != "f32" or len(given) != 2 or words.has("xorsign") or words.has("abs"):
        return None
    a, b = (flushed(text, one) for one in given) if words.has("ftz") else given
    order = "sge" if words.opcode == "max" else "sle"
    found = text.select(text.compare(order, in_order(text, a), in_order(text, b)), a, b)
    nan_a, nan_b, nan = is_nan(text, a), is_nan(text, b), text.constant(NAN[32], 32)
    if words.has("NaN"):
        return (text.select(text.binary("or", nan_a, nan_b), nan, found),)
    found = text.select(nan_a, b, text.select(nan_b, a, found))
    return (text.select(text.binary("and", nan_a, nan_b), nan, found),)


# --- comparisons and selections

ORDERS = ("eq", "ne", "lt", "le", "gt", "ge")
FLOAT_ORDER = {"num": "ord", "nan": "uno"}
FLOAT_ORDER |= {word: f"o{word}" for word in ORDERS} | {f"{word}u": f"u{word}" for word in ORDERS}
UNSIGNED_ORDER = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge", "eq": "eq", "ne": "ne"}


def held(text: Text, words: Words, kind: Type, a: Value, b: Value) -> Value | None:
    """Whether a comparison holds."""
    order = words.get("order")
    if kind.is_float:
        if kind.name not in BINARY32:
            return None
        if words.has("ftz"):
            a, b = flushed(text, a), flushed(text, b)
        x, y = text.float(a), text.float(b)
        found = text.new(f"fcmp {FLOAT_ORDER[order]} <32 x {'float' if a.bits == 32 else 'double'}> {x}, {y}")
        return type(a)(found, 1)
    plain = UNSIGNED_ORDER.get(order) or f"{'s' if kind.kind == 's' else 'u'}{order}"
    return text.compare(plain, a, b)


def compare_rule(text: Text, words: Words, given: Given) -> tuple[Value, ...] | None:
    """setp."""
    kind = words.types[0]
    found = held(text, words, kind, given[0], given[1]) if kind.parts == 1 else None
    if found is None:
        return None
    other = text.invert(found)
    combine = words.get("combine")
    if combine:
        return text.binary(combine, found, given[2]), text.binary(combine, other, given[2])
    return found, other


def select_rule(text: Text, _words: Words, given: Given) -> tuple[Value, ...]:
    """selp."""
    return (text.select(given[2], given[0], given[1]),)


# --- conversions


def convert_rule(text: Text, words: Words, given: Given) -> tuple[Value, ...] | None:
    """cvt between integers, from those of up to 32 bits to f32 and f64, from these to integers, and between floats."""
    if len(words.types) != 2 or words.get("pack"):
        return None
    target, source = words.types
    a = given[0]
    if not target.is_float and not source.is_float:
        return None if words.has("sat") else (text.resize(a, target.bits, signed=source.kind == "s"),)
    if target.name in BINARY32 and not source.is_float:
        if source.bits > 32 or words.get("rounding", "rn") != "rn" or words.has("sat"):
            return None
        operation = "sitofp" if source.kind == "s" else "uitofp"
        kind = "float" if target.bits == 32 else "double"
        return (text.codes(text.new(f"{operation} {a} to <32 x {kind}>"), target.bits),)
    if source.name in BINARY32 and not target.is_float:
        return (to_integer(text, words, a, target),)
    return float_conversion(text, words, given)


def float_conversion(text: Text, words: Words, given: Given) -> tuple[Value, ...] | None:
    """cvt of f16, bf16, f32 and f64 to nearest even, and of two f32 to halves of a word."""
    target, source = words.types
    nearest = words.options == {"rounding": "rn"}
    if source.name == "f32" and nearest and target.name in NARROWED:
        halves = [NARROWED[target.name](text, one) for one in given]
        if len(halves) == 1:
            return (halves[0],)
        high, low = (text.resize(one, 32) for one in halves)
        return (text.binary("or", text.binary("shl", high, text.constant(16, 32)), low),)
    a = given[0]
    if (target.name, source.name) == ("f32", "f16") and (nearest or not words.options):
        wide = text.codes(text.new(f"fpext <32 x half> {text.float(a)} to <32 x float>"), 32)
        return (text.select(is_nan(text, a), text.constant(NAN[32], 32), wide),)
    if (target.name, source.name) == ("f32", "bf16") and not words.options:
        return (text.binary("shl", text.resize(a, 32), text.constant(16, 32)),)
    if (target.name, source.name) == ("f32", "f64") and nearest:
        cut = text.codes(text.new(f"fptrunc <32 x double> {text.float(a)} to <32 x float>"), 32)
        sign = text.resize(text.binary("lshr", sign_of(text, a), text.constant(32, 64)), 32)
        payload = text.resize(text.binary("lshr", a, text.constant(29, 64)), 32)
        kept = text.binary("or", payload, text.constant(0x7FC00000, 32))
        kept = text.binary("or", text.binary("and", kept, text.constant(0x7FFFFFFF, 32)), sign)
        return (text.select(is_nan(text, a), kept, cut),)
    if (target.name, source.name, words.options) == ("tf32", "f32", {"rounding": "rna"}):
        finite = text.compare("ult", magnitude(text, a), text.constant(INFINITY[32], 32))
        raised = text.select(finite, text.binary("add", a, text.constant(0x1000, 32)), a)
        return (text.binary("and", raised, text.constant(~0x1FFF, 32)),)
    return None


def to_f16(text: Text, a: Value) -> Value:
    """f32 to f16."""
    cut = text.codes(text.new(f"fptrunc <32 x float> {text.float(a)} to <32 x half>"), 16)
    return text.select(is_nan(text, a), text.constant(NAN[16], 16), cut)


def to_bf16(text: Text, a: Value) -> Value:
    """f32 to bf16: the upper half, after adding nearly half of its last place, and that place where it is odd."""
    odd = text.binary("and", text.binary("lshr", a, text.constant(16, 32)), text.constant(1, 32))
    raised = text.binary("add", text.binary("add", a, text.constant(0x7FFF, 32)), odd)
    cut = text.resize(text.binary("lshr", raised, text.constant(16, 32)), 16)
    return text.select(is_nan(text, a), text.constant(NAN_BF16, 16), cut)


NARROWED = {"f16": to_f16, "f16x2": to_f16, "bf16": to_bf16, "bf16x2": to_bf16}


def to_integer(text: Text, words: Words, a: Value, target: Type) -> Value:
    """A float rounded to an integer and clamped; a NaN is 0, or the top bit alone where 64 bits are involved."""
    source_bits = a.bits
    if words.has("ftz") and a.bits == 32:
        a = flushed(text, a)
    number = text.float(a)
    if a.bits == 32:
        number = text.new(f"fpext <32 x float> {number} to <32 x double>")
    rounding = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}[words.get("integral", "rzi")]
    whole = text.float_call(rounding, 64, number)
    signed, bits = target.kind == "s", target.bits
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    kind = type(a)
    floats = [f"splat (double {_double(one)})" for one in (low, high)]
    above = kind(text.new(f"fcmp oge <32 x double> {whole}, {floats[1]}"), 1)
    below = kind(text.new(f"fcmp ole <32 x double> {whole}, {floats[0]}"), 1)
    nan = kind(text.new(f"fcmp uno <32 x double> {whole}, {whole}"), 1)
    outside = text.binary("or", above, text.binary("or", below, nan))
    safe = text.float(text.select(outside, text.constant(0, 64), text.codes(whole, 64)))
    code = kind(text.new(f"fpto{'s' if signed else 'u'}i <32 x double> {safe} to <32 x i64>"), 64)
    code = text.select(above, text.constant(high, 64), text.select(below, text.constant(low, 64), code))
    missing = 1 << (bits - 1) if bits == 64 or source_bits == 64 else 0
    return text.resize(text.select(nan, text.constant(missing, 64), code), bits)


def _double(number: int) -> str:
    """A double as LLVM spells it: its bits."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(number)))[0]:016X}"


def generic_rule(text: Text, words: Words, given: Given) -> tuple[Value, ...]:
    """cvta."""
    window = text.constant(WINDOWS[words.get("space").split("::")[0]], given[0].bits)
    return (text.binary("sub" if words.has("to") else "add", given[0], window),)


def by_type(floats: Rule, integers: Rule) -> Rule:
    """One rule for floats, another for integers."""

    def rule(text: Text, words: Words, given: Given) -> tuple[Value, ...] | None:
        return (floats if words.types[-1].is_float else integers)(text, words, given)

    return rule


RULES: dict[str, Rule] = {
    "add": by_type(float_rule, integer_rule), "sub": by_type(float_rule, integer_rule),
    "min": by_type(float_extreme_rule, integer_rule), "max": by_type(float_extreme_rule, integer_rule),
    "abs": by_type(sign_rule, integer_rule), "neg": by_type(sign_rule, integer_rule),
    "mul": by_type(float_rule, multiply_rule), "mad": by_type(float_rule, multiply_rule),
    "div": by_type(float_rule, divide_rule), "rem": divide_rule,
    "fma": float_rule, "sqrt": float_rule, "rcp": float_rule, "rsqrt": unit_rule, "ex2": unit_rule, "lg2": unit_rule,
    "sin": unit_rule, "cos": unit_rule, "tanh": unit_rule,
    "and": integer_rule, "or": integer_rule, "xor": integer_rule, "not": integer_rule, "cnot": integer_rule,
    "shl": shift_rule, "shr": shift_rule, "shf": funnel_rule, "lop3": logic3_rule,
    "popc": count_rule, "clz": count_rule, "brev": reverse_rule,
    "bfe": extract_rule, "bfi": insert_rule, "prmt": permute_rule,
    "setp": compare_rule, "selp": select_rule, "cvt": convert_rule, "cvta": generic_rule,
}  # fmt: skip
