"""The special function unit in LLVM: compiled versions of `formats.special_functions` and the `.approx` opcodes.

The unit evaluates a parabola for each segment of a function. float64 computes this exactly, because all numbers are
integers below 2**53. Each function is emitted once into the module of every kernel that calls it.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate

from warpfrag.formats.number_formats import CANONICAL_NANS
from warpfrag.formats.special_functions import COLUMN, DIGITS, DROPPED, PLACES, TANH_DIGITS, TURNS, coefficients
from warpfrag.machine.ir.opcode import Attributes
from warpfrag.machine.jit.ir_builder import FLOATS, I32, IRBuilder, Value, define, float_splat, splat

UnaryFunction = Callable[[IRBuilder, Value], Value]
SIGN, NAN, INFINITY, CODE_OF_1 = 0x80000000, CANONICAL_NANS["f32"], 0x7F800000, 0x3F800000
MAGNITUDE = 0x7FFFFFFF  # all bits except the sign
FRACTION, MIN_NORMAL, TWO_TO_126 = 0x007FFFFF, 0x00800000, 0x7E800000
TWO_TO_24, QUARTER = 0x4B800000, 0x3E800000
# beyond these magnitudes, ex2 is infinite or zero, and the angles of sin and cos are whole turns
BELOW_256, TWO_TO_28 = 0x437FFFFF, 0x4D800000


# --- building blocks


def scale(ir: IRBuilder, a: Value, factor: float) -> Value:
    """Return f32 codes multiplied by a constant and rounded; NaNs become canonical."""
    return quiet(ir, ir.as_int(ir.fmul(ir.as_float(a), float_splat(factor, 32))))


def quiet(ir: IRBuilder, a: Value) -> Value:
    """Replace NaNs with the canonical NaN."""
    return ir.select_where("ugt", ir.and_(a, MAGNITUDE), INFINITY, NAN, a)


def parabola(ir: IRBuilder, function: str, digits: Value) -> Value:
    """Return the special-function unit's result before truncation, as float64: c0 + c1 * x + c2 * square(x)."""
    segment, x = ir.lshr(digits, DIGITS), ir.and_(digits, (1 << DIGITS) - 1)
    square = splat(0, 32)
    for place in range(COLUMN // 2 + 1, DIGITS):  # the square of the digit, and its products with lower digits
        low = ir.lshr(ir.and_(x, (1 << place) - 1), COLUMN - 1 - place)
        more = ir.add(square, ir.add(low, 1 << 2 * place - COLUMN))
        square = ir.select_where("ne", ir.and_(x, 1 << place), 0, more, square)
    c0, c1, c2 = (
        ir.gather(f"unit.{function}.{index}", FLOATS[64], column.tolist(), segment)
        for index, column in enumerate(coefficients()[function])
    )
    total = ir.fadd(c0, ir.fmul(c1, ir.to_float(x, 64, signed=False)))
    return ir.fadd(total, ir.fmul(c2, ir.to_float(square, 64, signed=False)))


def truncate(ir: IRBuilder, units: Value) -> Value:
    """Return a parabola's results as f32 codes, truncated to f32 precision."""
    codes = ir.resize(ir.lshr(ir.as_int(units), 52 - 23), 32)
    codes = ir.sub(codes, 1023 - 127 + PLACES << 23)
    return ir.select(ir.fcmp("oeq", units, float_splat(0.0)), splat(0, 32), codes)


def fields(ir: IRBuilder, a: Value) -> tuple[Value, Value, Value, Value]:
    """Return the sign, the magnitude, the exponent field and the fraction of f32 codes."""
    magnitude = ir.and_(a, MAGNITUDE)
    fraction = ir.and_(magnitude, FRACTION)
    return ir.and_(a, SIGN), magnitude, ir.lshr(magnitude, 23), fraction


def absolute_double(ir: IRBuilder, a: Value, limit: int) -> Value:
    """Return the magnitudes of f32 codes as float64, clamped to that of the f32 code `limit`."""
    magnitude = ir.minimum(ir.and_(a, MAGNITUDE), limit, signed=False)
    return ir.fpext(ir.as_float(magnitude), 64)


# --- the functions of the unit


def rcp(ir: IRBuilder, a: Value) -> Value:
    """Return 1 / a as the special-function unit computes it; subnormal results are flushed to zero."""
    sign, magnitude, exponent, fraction = fields(ir, a)
    exponent_code = ir.shl(ir.sub(exponent, 127), 23)
    result = truncate(ir, parabola(ir, "rcp", ir.shl(fraction, 1)))
    result = ir.sub(result, exponent_code)
    result = ir.select_where("slt", result, MIN_NORMAL, 0, result)
    result = ir.select_where("eq", exponent, 0, INFINITY, result)
    result = ir.select_where("eq", magnitude, INFINITY, 0, result)
    return ir.select_where("ugt", magnitude, INFINITY, NAN, ir.or_(result, sign))


def _root(ir: IRBuilder, function: str, a: Value) -> tuple[Value, Value]:
    """Return `function` (sqrt or rsqrt) of the significand, and half the exponent, which the caller applies."""
    _, _, exponent, fraction = fields(ir, a)
    parity = ir.and_(ir.add(exponent, 1), 1)  # the parity of the unbiased exponent, because the bias is odd
    half = ir.ashr(ir.sub(ir.sub(exponent, 127), parity), 1)
    digits = ir.or_(fraction, ir.shl(parity, 23))
    result = truncate(ir, parabola(ir, function, digits))
    result = ir.select_where("eq", digits, 0, CODE_OF_1, result)
    return result, ir.shl(half, 23)


def rsqrt(ir: IRBuilder, a: Value) -> Value:
    """Return 1 / sqrt(a) as the special-function unit computes it; NaN for negative normal numbers and NaNs."""
    result = ir.select_where("eq", a, INFINITY, 0, ir.sub(*_root(ir, "rsqrt", a)))
    result = ir.select_where("ugt", a, INFINITY, NAN, result)
    sign, magnitude, _, _ = fields(ir, a)
    return ir.select_where("ult", magnitude, MIN_NORMAL, ir.or_(sign, INFINITY), result)


def sqrt(ir: IRBuilder, a: Value) -> Value:
    """Return the square root of a as the special-function unit computes it."""
    result = ir.select_where("eq", a, INFINITY, INFINITY, ir.add(*_root(ir, "sqrt", a)))
    result = ir.select_where("ugt", a, INFINITY, NAN, result)
    sign, magnitude, _, _ = fields(ir, a)
    return ir.select_where("ult", magnitude, MIN_NORMAL, sign, result)


def ex2(ir: IRBuilder, a: Value) -> Value:
    """Return 2 to the power of a as the special-function unit computes it."""
    scaled = ir.fmul(absolute_double(ir, a, BELOW_256), float_splat(2.0**23))
    digits = ir.to_int(scaled, 32, signed=True)
    fraction = ir.and_(digits, FRACTION)
    negative = ir.select_where("ne", fraction, 0, ir.not_(digits), ir.neg(digits))
    digits = ir.select_where("slt", a, 0, negative, digits)
    power = ir.maximum(ir.ashr(digits, 23), -128, signed=True)
    power = ir.minimum(power, 128, signed=True)
    result = ir.sub(truncate(ir, parabola(ir, "ex2", ir.and_(digits, FRACTION))), 1 << 23)
    result = ir.add(result, ir.shl(power, 23))
    result = ir.select_where("slt", result, MIN_NORMAL, 0, ir.minimum(result, INFINITY, signed=True))
    return ir.select_where("ugt", ir.and_(a, MAGNITUDE), INFINITY, NAN, result)


def lg2(ir: IRBuilder, a: Value) -> Value:
    """Return the base-2 logarithm of a as the special-function unit computes it."""
    _, magnitude, exponent, fraction = fields(ir, a)
    whole = ir.to_float(ir.sub(exponent, 127), 64, signed=True)
    total = ir.fadd(parabola(ir, "lg2", fraction), ir.fmul(whole, float_splat(2.0**PLACES)))
    total = ir.intrinsic("floor", ir.fmul(total, float_splat(2.0**-DROPPED)))
    below = ir.fcmp("olt", total, float_splat(0.0))
    complement = ir.fsub(float_splat(-1.0), total)
    total = ir.select(below, complement, total)
    result = truncate(ir, ir.fmul(total, float_splat(2.0**DROPPED)))
    result = ir.select(below, ir.or_(result, SIGN), result)
    result = ir.select_where("eq", a, INFINITY, INFINITY, result)
    result = ir.select_where("eq", a, CODE_OF_1, 0, result)
    result = ir.select_where("ugt", a, INFINITY, NAN, result)
    return ir.select_where("ult", magnitude, MIN_NORMAL, INFINITY | SIGN, result)


def _sine(ir: IRBuilder, a: Value, quarters: int, sign: Value) -> Value:
    """Return the sine of an angle plus `quarters` quarter turns; the product a * TURNS is truncated to 24 bits."""
    product = ir.as_int(ir.fmul(absolute_double(ir, a, TWO_TO_28), float_splat(TURNS)))
    kept = ir.as_float(ir.and_(product, -1 << 52 - 23))
    turns = ir.intrinsic("floor", ir.fmul(kept, float_splat(2.0**25)))
    whole = ir.fmul(ir.intrinsic("floor", ir.fmul(turns, float_splat(2.0**-25))), float_splat(2.0**25))
    phase = ir.to_int(ir.fsub(turns, whole), 32, signed=True)
    phase = ir.add(phase, quarters << 23)
    digits = ir.select_where("ne", ir.and_(phase, 1 << 23), 0, ir.not_(phase), phase)
    result = truncate(ir, parabola(ir, "sin", ir.and_(digits, FRACTION)))
    sign = ir.xor(ir.and_(ir.shl(phase, 7), SIGN), sign)
    return ir.select_where("uge", ir.and_(a, MAGNITUDE), INFINITY, NAN, ir.or_(result, sign))


def sin(ir: IRBuilder, a: Value) -> Value:
    """Return the sine of a as the special-function unit computes it, from an angle in turns."""
    return _sine(ir, a, 0, ir.and_(a, SIGN))


def cos(ir: IRBuilder, a: Value) -> Value:
    """Return the cosine of a as the special-function unit computes it: the sine shifted by a quarter turn."""
    return _sine(ir, a, 1, splat(0, 32))


def tanh(ir: IRBuilder, a: Value) -> Value:
    """Return the hyperbolic tangent of a as the special-function unit computes it; subnormals are kept."""
    sign, magnitude, exponent, fraction = fields(ir, a)
    first = min(TANH_DIGITS)
    binade = ir.maximum(ir.sub(exponent, first), 0, signed=True)
    binade = ir.minimum(binade, len(TANH_DIGITS) - 1, signed=True)
    lengths = [*TANH_DIGITS.values()]  # the number of digits that select a table segment, by binade
    ends = accumulate(1 << length for length in lengths)
    starts = [end - (1 << length) << DIGITS for end, length in zip(ends, lengths, strict=True)]
    start = ir.gather("unit.tanh.first", I32, starts, binade)
    shift = ir.gather("unit.tanh.shift", I32, [23 - DIGITS - length for length in lengths], binade)
    digits = ir.add(start, ir.lshr(fraction, shift))
    result = truncate(ir, parabola(ir, "tanh", digits))
    result = ir.select_where("ult", magnitude, first << 23, magnitude, result)
    result = ir.select_where("ult", magnitude, max(TANH_DIGITS) + 1 << 23, result, splat(CODE_OF_1, 32))
    return ir.select_where("ugt", magnitude, INFINITY, NAN, ir.or_(result, sign))


# --- sequences without ftz


def rescaled(function: UnaryFunction, back: UnaryFunction) -> UnaryFunction:
    """Return `function` with subnormal inputs scaled up by 2**24; `back` undoes the scaling in the results."""

    def build(ir: IRBuilder, a: Value) -> Value:
        magnitude = ir.and_(a, MAGNITUDE)
        normal = ir.select_where("ult", magnitude, MIN_NORMAL, scale(ir, a, 2.0**24), a)
        result = function(ir, normal)
        return ir.select_where("ult", magnitude, MIN_NORMAL, back(ir, result), result)

    return build


def plain_ex2(ir: IRBuilder, a: Value) -> Value:
    """Return 2 to the power of a; an input below -126 is halved and the result is squared."""
    low = ir.fcmp("olt", ir.as_float(a), float_splat(-126.0, 32))
    result = ex2(ir, ir.select(low, scale(ir, a, 0.5), a))
    root = ir.as_float(result)
    return ir.select(low, quiet(ir, ir.as_int(ir.fmul(root, root))), result)


def plain_rcp(ir: IRBuilder, a: Value) -> Value:
    """Return 1 / a; very small and very large inputs are scaled into range, and the result is scaled back."""
    magnitude = ir.and_(a, MAGNITUDE)
    factor_code = ir.select_where("ult", magnitude, MIN_NORMAL, TWO_TO_24, splat(CODE_OF_1, 32))
    large = is_large(ir, magnitude)
    factor = ir.as_float(ir.select(large, splat(QUARTER, 32), factor_code))
    middle = quiet(ir, ir.as_int(ir.fmul(ir.as_float(a), factor)))
    result = ir.as_float(rcp(ir, middle))
    return quiet(ir, ir.as_int(ir.fmul(factor, result)))


def is_large(ir: IRBuilder, magnitude: Value) -> Value:
    """Return a predicate for magnitudes above 2**126, except NaNs: their reciprocals are subnormal or zero."""
    return ir.and_(ir.icmp("ugt", magnitude, TWO_TO_126), ir.icmp("ule", magnitude, INFINITY))


WITH_FTZ: dict[str, UnaryFunction] = {
    "rcp": rcp, "rsqrt": rsqrt, "sqrt": sqrt, "ex2": ex2, "lg2": lg2, "sin": sin, "cos": cos, "tanh": tanh,
}  # fmt: skip
WITHOUT_FTZ: dict[str, UnaryFunction] = {
    "rcp": plain_rcp, "rsqrt": rescaled(rsqrt, lambda ir, a: scale(ir, a, 4096.0)),
    "sqrt": rescaled(sqrt, lambda ir, a: scale(ir, a, 2.0**-12)), "ex2": plain_ex2,
    "lg2": rescaled(lg2, lambda ir, a: quiet(ir, ir.as_int(ir.fadd(ir.as_float(a), float_splat(-24.0, 32))))),
    "sin": sin, "cos": cos, "tanh": tanh,
}  # fmt: skip


def call(ir: IRBuilder, name: str, function: UnaryFunction, a: Value) -> Value:
    """Call `function` by name, defining it in the kernel's module on first use."""
    if name not in ir.module.globals:
        with define(ir.module, name, a.type, a.type, attribute="noinline") as (body, argument):
            body.ret(function(body, argument))
    return ir.call_named(name, a.type, a)


def lower_approximate(ir: IRBuilder, attributes: Attributes, operands: Sequence[Value]) -> tuple[Value, ...] | None:
    """Lower the f32 .approx functions; return None for other types, which the interpreter runs."""
    if attributes.types[0].name != "f32":
        return None
    functions, ending = (WITH_FTZ, "") if attributes.ftz else (WITHOUT_FTZ, ".plain")
    return (call(ir, f"unit.{attributes.opcode}{ending}", functions[attributes.opcode], operands[0]),)


def quotient_factors(ir: IRBuilder, attributes: Attributes, a: Value, b: Value) -> list[Value]:
    """Return the unit's 1 / b, and a; both are scaled first if b is large (.full) or subnormal (without ftz)."""
    magnitude = ir.and_(b, MAGNITUDE)
    if attributes.accuracy == "full":
        large = is_large(ir, magnitude)
        lower = scale(ir, a, 0.25)
        if attributes.ftz:  # a quarter of a number below 2**-124 is flushed to zero
            sign, size, _, _ = fields(ir, a)
            lower = ir.select_where("ult", size, MIN_NORMAL + (2 << 23), sign, lower)
        a, b = ir.select(large, lower, a), ir.select(large, scale(ir, b, 0.25), b)
    if not attributes.ftz:
        a, b = (ir.select_where("ult", magnitude, MIN_NORMAL, scale(ir, v, 2.0**24), v) for v in (a, b))
    return [call(ir, "unit.rcp", rcp, b), a]
