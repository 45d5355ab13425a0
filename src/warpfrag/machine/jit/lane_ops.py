"""Lane arithmetic lowered to LLVM: the compiled versions of `machine.semantics`, for frequently used instructions.

`LOWERINGS` has a function for each opcode. It takes an instruction's operands as vectors of codes, appends LLVM
instructions to a builder and returns the results, or None if the interpreter must run the instruction. LLVM's plain
float operations round to nearest even and keep subnormals; no fast-math flags are used.
"""

from collections.abc import Callable, Sequence

from warpfrag.formats.number_formats import FORMATS
from warpfrag.machine.ir.opcode import Attributes
from warpfrag.machine.ir.scalar_types import Type
from warpfrag.machine.ir.state_spaces import WINDOWS
from warpfrag.machine.jit.ir_builder import IRBuilder, Value, float_splat, splat, width
from warpfrag.machine.jit.sfu_code import lower_approximate, quotient_factors
from warpfrag.machine.semantics.conversions import limits
from warpfrag.machine.semantics.ptx_rounding import canonical_nan

Lanes = Sequence[Value]
Results = tuple[Value, ...]
NAN = {bits: canonical_nan(FORMATS[f"f{bits}"]) for bits in (16, 32, 64)}
NAN_BF16 = canonical_nan(FORMATS["bf16"])
QUIET_F64 = 1 << 51  # the bit that makes an f64 NaN quiet
MIN_NORMAL = {16: 0x0400, 32: 0x00800000, 64: 0x0010000000000000}
INFINITY = {16: 0x7C00, 32: 0x7F800000, 64: 0x7FF0000000000000}
CODE_OF_1 = {32: 0x3F800000, 64: 0x3FF0000000000000}
IEEE_TYPES = {"f32", "f64"}  # LLVM's float and double


# --- integers


def lower_integer(ir: IRBuilder, attributes: Attributes, operands: Lanes) -> Results | None:
    """Lower add, sub, min, max, abs, neg, and, or, xor, not and cnot."""
    kind, a = attributes.types[-1], operands[0]
    if attributes.sat or attributes.relu or attributes.carry_out or kind.parts != 1:
        carries = attributes.carry_out and kind.parts == 1
        return lower_carry(ir, attributes, operands) if carries else None
    signed = kind.kind == "s"
    if attributes.opcode in INTEGER_INSTRUCTIONS:
        return (INTEGER_INSTRUCTIONS[attributes.opcode](ir, a, operands[1]),)
    if attributes.opcode == "min":
        return (ir.minimum(a, operands[1], signed=signed),)
    if attributes.opcode == "max":
        return (ir.maximum(a, operands[1], signed=signed),)
    if attributes.opcode == "neg":
        return (ir.neg(a),)
    if attributes.opcode == "abs":
        return (ir.select(ir.icmp("slt", a, 0), ir.neg(a), a),)
    if attributes.opcode == "cnot":
        return (ir.resize(ir.icmp("eq", a, 0), width(a)),)
    return (ir.not_(a),)


def lower_carry(ir: IRBuilder, attributes: Attributes, operands: Lanes) -> Results | None:
    """Lower add and addc with carry in or carry out."""
    if attributes.opcode not in {"add", "addc"}:
        return None
    total = ir.add(operands[0], operands[1])
    over = ir.icmp("ult", total, operands[0])
    if attributes.carry_in:
        more = ir.add(total, ir.resize(operands[2], width(total)))
        over = ir.or_(over, ir.icmp("ult", more, total))
        total = more
    return (total, over) if attributes.carry_out else (total,)


def lower_add3(ir: IRBuilder, _attributes: Attributes, operands: Lanes) -> Results:
    """Lower iadd3: three words, two carries and a constant; the carries out are sum >= 2**32 and sum >= 2**33."""
    total = ir.resize(operands[0], 64)
    for operand in operands[1:]:
        total = ir.add(total, ir.resize(operand, 64))
    carry = ir.lshr(total, 32)
    return ir.resize(total, 32), ir.icmp("uge", carry, 1), ir.icmp("uge", carry, 2)


INTEGER_INSTRUCTIONS: dict[str, Callable[[IRBuilder, Value, Value], Value]] = {
    "add": IRBuilder.add, "sub": IRBuilder.sub, "and": IRBuilder.and_, "or": IRBuilder.or_, "xor": IRBuilder.xor,
}  # fmt: skip
"""PTX opcodes that map to one LLVM instruction; the last three also apply to predicates."""


def product(ir: IRBuilder, attributes: Attributes, a: Value, b: Value) -> Value:
    """Return the low half, the high half or all bits of an integer product, as the attributes specify."""
    kind, half = attributes.types[0], attributes.half
    signed = kind.kind == "s"
    if half == "lo":
        return ir.mul(a, b)
    wide = ir.mul(ir.resize(a, 2 * kind.bits, signed=signed), ir.resize(b, 2 * kind.bits, signed=signed))
    return wide if half == "wide" else ir.resize(ir.lshr(wide, kind.bits), kind.bits)


def lower_multiply(ir: IRBuilder, attributes: Attributes, operands: Lanes) -> Results | None:
    """Lower integer mul and mad with .lo, .hi or .wide."""
    if attributes.sat or attributes.carry_out or (attributes.half == "hi" and attributes.types[0].bits == 64):
        return None
    result = product(ir, attributes, operands[0], operands[1])
    return (ir.add(result, operands[2]) if attributes.opcode == "mad" else result,)


def lower_divide(ir: IRBuilder, attributes: Attributes, operands: Lanes) -> Results:
    """Lower integer div and rem: quotients are truncated, and division by zero gives all ones."""
    a, b = operands
    bits, signed = width(a), attributes.types[0].kind == "s"
    by_zero = ir.icmp("eq", b, 0)
    divisor = ir.select(by_zero, splat(1, bits), b)
    if signed:  # INT_MIN / -1 wraps, and the remainder is 0
        smallest = ir.icmp("eq", a, 1 << (bits - 1))
        overflow = ir.and_(smallest, ir.icmp("eq", b, -1))
        divisor = ir.select(overflow, splat(1, bits), divisor)
    divide = {"div": (ir.udiv, ir.sdiv), "rem": (ir.urem, ir.srem)}[attributes.opcode][signed]
    result = divide(a, divisor)
    return (ir.select(by_zero, splat(-1, bits), result),)


def _clamped_shift(ir: IRBuilder, a: Value, count: Value) -> Value:
    """Return a shift count clamped to less than the width of `a`, as LLVM requires."""
    return ir.resize(ir.minimum(count, width(a) - 1, signed=False), width(a))


def _zero_beyond_width(ir: IRBuilder, shifted: Value, count: Value) -> Value:
    """Return the shifted value, or zero if the count is at least the width, as in PTX."""
    return ir.select(ir.icmp("ugt", count, width(shifted) - 1), splat(0, width(shifted)), shifted)


def shift_left(ir: IRBuilder, a: Value, count: Value) -> Value:
    """Return a << count, which is zero if the count is at least the width."""
    return _zero_beyond_width(ir, ir.shl(a, _clamped_shift(ir, a, count)), count)


def shift_right(ir: IRBuilder, a: Value, count: Value) -> Value:
    """Return the logical shift a >> count, which is zero if the count is at least the width."""
    return _zero_beyond_width(ir, ir.lshr(a, _clamped_shift(ir, a, count)), count)


def lower_shift(ir: IRBuilder, attributes: Attributes, operands: Lanes) -> Results:
    """Lower shl and shr; counts of at least the width shift out all bits."""
    a, count = operands
    if attributes.opcode == "shl":
        return (shift_left(ir, a, count),)
    if attributes.types[0].kind == "s":
        return (ir.ashr(a, _clamped_shift(ir, a, count)),)
    return (shift_right(ir, a, count),)


def lower_funnel_shift(ir: IRBuilder, attributes: Attributes, operands: Lanes) -> Results:
    """Lower shf, which shifts the 64-bit value b:a and returns 32 bits of it."""
    a, b, c = operands
    count = ir.and_(c, 31) if attributes.wraps else ir.minimum(c, 32, signed=False)
    high = ir.shl(ir.resize(b, 64), 32)
    pair, by = ir.or_(high, ir.resize(a, 64)), ir.resize(count, 64)
    if attributes.direction == "l":
        return (ir.resize(ir.lshr(ir.shl(pair, by), 32), 32),)
    return (ir.resize(ir.lshr(pair, by), 32),)


def lower_lop3(ir: IRBuilder, attributes: Attributes, operands: Lanes, table: int) -> Results | None:
    """Lower lop3, a function of three bits per position, as the OR of the minterms that its table selects."""
    if attributes.combine is not None:
        return None
    total = splat(0, 32)
    for index in range(8):
        if table >> index & 1:
            a, b, c = (value if index & bit else ir.not_(value) for value, bit in zip(operands, (4, 2, 1), strict=True))
            total = ir.or_(total, ir.and_(ir.and_(a, b), c))
    return (total,)


def lower_bit_count(ir: IRBuilder, attributes: Attributes, operands: Lanes) -> Results:
    """Lower popc and clz; the result always has 32 bits."""
    (a,) = operands
    count = ir.intrinsic("ctpop", a) if attributes.opcode == "popc" else ir.intrinsic("ctlz", a, flag=False)
    return (ir.resize(count, 32),)


def _field_count(ir: IRBuilder, count: Value, bits: int) -> Value:
    """Return a bfe or bfi position or length: the low byte of a 32-bit operand, or a 64-bit operand clamped to 255."""
    return ir.and_(count, 0xFF) if bits == 32 else ir.minimum(count, 255, signed=False)


def low_bits(ir: IRBuilder, count: Value, bits: int) -> Value:
    """Return a mask of the `count` lowest bits; all bits if the count is at least the width."""
    return ir.sub(shift_left(ir, splat(1, bits), count), 1)


def lower_extend(ir: IRBuilder, attributes: Attributes, operands: Lanes) -> Results | None:
    """Lower unsigned szext, which keeps only the low bits."""
    count = ir.and_(operands[1], 31) if "wrap" in attributes.name else operands[1]
    return (ir.and_(operands[0], low_bits(ir, count, 32)),) if attributes.types[0].kind == "u" else None


def lower_predicate_bits(ir: IRBuilder, _attributes: Attributes, operands: Lanes) -> Results:
    """Lower p2r: insert shifted predicate bits into a word under a mask."""
    *predicates, c, mask, shift = operands
    bits = splat(0, 32)
    for index, predicate in enumerate(predicates):
        bits = ir.or_(bits, ir.shl(ir.resize(predicate, 32), index))
    mask = ir.shl(ir.and_(mask, 0xFF), shift)  # bit 7 of `bits` is 0: there are only seven predicates
    return (ir.or_(ir.and_(ir.shl(bits, shift), mask), ir.and_(c, ir.not_(mask))),)


def lower_extract(ir: IRBuilder, attributes: Attributes, operands: Lanes) -> Results:
    """Lower bfe, which fills the bits above the field with zeros or with the field's sign."""
    a = operands[0]
    bits = width(a)
    position, count = (_field_count(ir, value, bits) for value in operands[1:])
    low = shift_right(ir, a, position)
    if attributes.types[0].kind != "s":
        return (ir.and_(low, low_bits(ir, count, bits)),)
    available = ir.sub(splat(bits, 32), ir.minimum(position, bits, signed=False))
    kept = low_bits(ir, ir.minimum(count, available, signed=False), bits)
    end = ir.add(position, count)
    last = ir.minimum(ir.sub(end, 1), bits - 1, signed=False)
    sign = ir.resize(shift_right(ir, a, last), 1)
    sign = ir.and_(sign, ir.icmp("ne", count, 0))
    fill = ir.select(sign, ir.not_(kept), splat(0, bits))
    return (ir.or_(ir.and_(low, kept), fill),)


def lower_insert(ir: IRBuilder, _attributes: Attributes, operands: Lanes) -> Results:
    """Lower bfi: insert the low bits of a into a field of b."""
    a, b = operands[:2]
    position, count = (_field_count(ir, value, width(a)) for value in operands[2:])
    mask = shift_left(ir, low_bits(ir, count, width(a)), position)
    kept = ir.and_(b, ir.not_(mask))
    return (ir.or_(kept, ir.and_(shift_left(ir, a, position), mask)),)


def lower_permute_bytes(ir: IRBuilder, attributes: Attributes, operands: Lanes) -> Results | None:
    """Lower prmt in its default mode; bit 3 of a selector replicates the sign bit of the selected byte."""
    if attributes.permute:
        return None
    a, b, c = operands
    pair = ir.or_(ir.shl(ir.resize(b, 64), 32), ir.resize(a, 64))
    total = splat(0, 32)
    for index in range(4):
        selector = ir.lshr(c, 4 * index)
        bit_offset = ir.shl(ir.and_(selector, 7), 3)
        byte = ir.resize(ir.lshr(pair, ir.resize(bit_offset, 64)), 8)
        sign = ir.ashr(byte, 7)
        takes_sign = ir.resize(ir.lshr(selector, 3), 1)
        piece = ir.resize(ir.select(takes_sign, sign, byte), 32)
        total = ir.or_(total, ir.shl(piece, 8 * index))
    return (total,)


# --- floats, as codes


def magnitude(ir: IRBuilder, a: Value) -> Value:
    """Return codes with the sign bit cleared."""
    return ir.and_(a, (1 << (width(a) - 1)) - 1)


def sign_of(ir: IRBuilder, a: Value) -> Value:
    """Return only the sign bits of codes."""
    return ir.and_(a, 1 << (width(a) - 1))


def negate(ir: IRBuilder, a: Value) -> Value:
    """Invert the sign bit, also for NaNs."""
    return ir.xor(a, 1 << (width(a) - 1))


def is_nan(ir: IRBuilder, a: Value) -> Value:
    """Return a predicate that is true in the lanes whose code is a NaN."""
    if width(a) >= 32:
        number = ir.as_float(a)
        return ir.fcmp("uno", number, number)
    return ir.icmp("ugt", magnitude(ir, a), INFINITY[width(a)])


def flush(ir: IRBuilder, a: Value) -> Value:
    """Replace subnormals with zeros of the same sign."""
    subnormal = ir.icmp("ult", magnitude(ir, a), MIN_NORMAL[width(a)])
    return ir.select(subnormal, sign_of(ir, a), a)


def canonical(ir: IRBuilder, result: Value, operands: Lanes) -> Value:
    """Replace NaN results with the canonical NaN, or in f64 with the NaN of the only operand.

    f64 results of several operands are returned unchanged; `choose_nan` handles them.
    """
    nan = splat(NAN[width(result)], width(result))
    if width(result) == 64:
        if len(operands) > 1:
            return result
        nan = ir.select(is_nan(ir, operands[0]), ir.or_(operands[0], QUIET_F64), nan)
    return ir.select(is_nan(ir, result), nan, result)


def choose_nan(ir: IRBuilder, result: Value, operands: Lanes, order: Sequence[int]) -> tuple[Value, Value]:
    """Return f64 results with the operand NaN that is first in `order`, and the lanes with different operand NaNs."""
    nan, differs, is_chosen = splat(NAN[64], 64), splat(0, 1), splat(0, 1)
    for index in order[::-1]:
        here, quieted = is_nan(ir, operands[index]), ir.or_(operands[index], QUIET_F64)
        differs = ir.or_(differs, ir.and_(ir.and_(here, is_chosen), ir.icmp("ne", quieted, nan)))
        nan, is_chosen = ir.select(here, quieted, nan), ir.or_(is_chosen, here)
    is_result = is_nan(ir, result)
    return ir.select(is_result, nan, result), ir.and_(differs, is_result)


def saturate(ir: IRBuilder, a: Value) -> Value:
    """Clamp floats to 0..1; NaNs and negative numbers become 0."""
    below_1 = ir.minimum(a, CODE_OF_1[width(a)], signed=False)
    is_zero = ir.or_(is_nan(ir, a), ir.icmp("slt", a, 0))
    return ir.select(is_zero, splat(0, width(a)), below_1)


def flush_before_rounding(ir: IRBuilder, result: Value, scaled: Value) -> Value:
    """Flush an f32 result to zero if it is subnormal when rounded to 24 bits with an unbounded exponent.

    Only a result equal to the smallest normal number can have been rounded up to it. `scaled` is the result
    of the same operation, scaled by 2**24 so that nothing is subnormal; it shows whether the result was rounded up.
    """
    smallest = MIN_NORMAL[32]
    edge = ir.icmp("eq", magnitude(ir, result), smallest)
    below = ir.icmp("ult", magnitude(ir, ir.as_int(scaled)), smallest + (24 << 23))
    return ir.select(ir.and_(edge, below), sign_of(ir, result), result)


def scale_up(ir: IRBuilder, a: Value) -> Value:
    """Return the values of f32 codes times 2**24, as floats."""
    return ir.fmul(ir.as_float(a), float_splat(2.0**24, 32))


def fused_multiply_add(ir: IRBuilder, operands: Lanes, *, ftz: bool) -> Value:
    """Return a * b + c with one rounding."""
    x, y, z = (ir.as_float(operand) for operand in operands)
    result = canonical(ir, ir.as_int(ir.intrinsic("fma", x, y, z)), operands)
    if not ftz:
        return result
    a, b, c = operands
    return flush_before_rounding(ir, result, ir.intrinsic("fma", scale_up(ir, a), ir.as_float(b), scale_up(ir, c)))


def finish(ir: IRBuilder, attributes: Attributes, result: Value) -> Results:
    """Apply ftz and sat after rounding."""
    if attributes.ftz:
        result = flush(ir, result)
    return (saturate(ir, result) if attributes.sat else result,)


def lower_float(ir: IRBuilder, attributes: Attributes, operands: Lanes) -> Results | None:
    """Lower add, sub, mul, fma, mad, div, sqrt and rcp, rounding to nearest even."""
    kind = attributes.types[-1]
    if (
        len(attributes.types) != 1
        or kind.name not in IEEE_TYPES
        or attributes.rounding not in {None, "rn"}
        or attributes.relu
    ):
        return None
    ftz, opcode = attributes.ftz, attributes.opcode
    if attributes.accuracy is not None and opcode == "div":
        operands, opcode = quotient_factors(ir, attributes, *operands), "mul"
    elif attributes.accuracy is not None:
        return lower_approximate(ir, attributes, operands)
    if ftz and opcode in {"div", "rcp", "sqrt"}:
        return None
    bits = kind.bits
    if ftz:
        operands = [flush(ir, operand) for operand in operands]
    if opcode == "rcp":
        operands, opcode = [splat(CODE_OF_1[bits], bits), operands[0]], "div"
    if opcode in {"fma", "mad"}:
        result = fused_multiply_add(ir, operands, ftz=ftz)
    elif opcode == "sqrt":
        result = canonical(ir, ir.as_int(ir.intrinsic("sqrt", ir.as_float(operands[0]))), operands)
    else:
        a, b = operands
        if opcode == "sub":  # a NaN keeps its sign
            b = ir.select(is_nan(ir, b), b, negate(ir, b))
        x, y = ir.as_float(a), ir.as_float(b)
        exact = FLOAT_INSTRUCTIONS[opcode](ir, x, y)
        result = canonical(ir, ir.as_int(exact), (b,) if attributes.opcode == "rcp" else (a, b))
        if ftz and opcode == "mul":
            result = flush_before_rounding(ir, result, ir.fmul(scale_up(ir, a), y))
    return finish(ir, attributes, result)


FLOAT_INSTRUCTIONS = {"add": IRBuilder.fadd, "sub": IRBuilder.fadd, "mul": IRBuilder.fmul, "div": IRBuilder.fdiv}
"""LLVM instructions by opcode; `sub` adds the negated b, so it produces the same NaN as `add`."""


def lower_contracted(
    ir: IRBuilder, attributes: Attributes, operands: Lanes, signs: tuple[bool, bool]
) -> Results | None:
    """Lower a multiply-add that ptxas contracts; `signs` are flags that negate the product and the addend."""
    if attributes.types[-1].name not in IEEE_TYPES:
        return None
    a, b, c = operands
    operands = [negate(ir, a) if signs[0] else a, b, negate(ir, c) if signs[1] else c]
    ftz = attributes.ftz
    if ftz:
        operands = [flush(ir, operand) for operand in operands]
    return finish(ir, attributes, fused_multiply_add(ir, operands, ftz=ftz))


def lower_sign(ir: IRBuilder, attributes: Attributes, operands: Lanes) -> Results | None:
    """Lower float abs and neg."""
    if attributes.types[0].name not in IEEE_TYPES:
        return None
    a = flush(ir, operands[0]) if attributes.ftz else operands[0]
    result = magnitude(ir, a) if attributes.opcode == "abs" else negate(ir, a)
    nan = splat(NAN[32], 32) if width(a) == 32 else ir.or_(a, QUIET_F64)
    return (ir.select(is_nan(ir, a), nan, result),)


def in_order(ir: IRBuilder, a: Value) -> Value:
    """Map float codes to signed integers that have the same order as the floats."""
    return ir.select(ir.icmp("slt", a, 0), ir.xor(a, (1 << (width(a) - 1)) - 1), a)


def lower_float_extreme(ir: IRBuilder, attributes: Attributes, operands: Lanes) -> Results | None:
    """Lower f32 min and max, which prefer a number to a NaN unless .NaN is given."""
    if attributes.types[0].name != "f32" or len(operands) != 2 or attributes.xorsign or attributes.abs:
        return None
    a, b = (flush(ir, operand) for operand in operands) if attributes.ftz else operands
    predicate = "sge" if attributes.opcode == "max" else "sle"
    result = ir.select(ir.icmp(predicate, in_order(ir, a), in_order(ir, b)), a, b)
    nan_a, nan_b, nan = is_nan(ir, a), is_nan(ir, b), splat(NAN[32], 32)
    if attributes.nan:
        return (ir.select(ir.or_(nan_a, nan_b), nan, result),)
    result = ir.select(nan_a, b, ir.select(nan_b, a, result))
    return (ir.select(ir.and_(nan_a, nan_b), nan, result),)


# --- comparisons and selections

ORDERS = ("eq", "ne", "lt", "le", "gt", "ge")
FLOAT_PREDICATES = {"num": "ord", "nan": "uno"}
FLOAT_PREDICATES |= {word: f"o{word}" for word in ORDERS} | {f"{word}u": f"u{word}" for word in ORDERS}
UNSIGNED_PREDICATES = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge", "eq": "eq", "ne": "ne"}


def comparison(ir: IRBuilder, attributes: Attributes, kind: Type, a: Value, b: Value) -> Value | None:
    """Return a setp comparison as a predicate, or None for float types other than f32 and f64."""
    order = attributes.comparison or ""
    if kind.is_float:
        if kind.name not in IEEE_TYPES:
            return None
        if attributes.ftz:
            a, b = flush(ir, a), flush(ir, b)
        x, y = ir.as_float(a), ir.as_float(b)
        return ir.fcmp(FLOAT_PREDICATES[order], x, y)
    return ir.icmp(UNSIGNED_PREDICATES.get(order) or f"{'s' if kind.kind == 's' else 'u'}{order}", a, b)


def lower_compare(ir: IRBuilder, attributes: Attributes, operands: Lanes) -> Results | None:
    """Lower setp, whose results are the comparison and its negation, each combined with an optional predicate."""
    kind = attributes.types[0]
    holds = comparison(ir, attributes, kind, operands[0], operands[1]) if kind.parts == 1 else None
    if holds is None:
        return None
    fails = ir.not_(holds)
    if attributes.combine is None:
        return holds, fails
    combine = INTEGER_INSTRUCTIONS[attributes.combine]
    return combine(ir, holds, operands[2]), combine(ir, fails, operands[2])


# --- conversions


def lower_convert(ir: IRBuilder, attributes: Attributes, operands: Lanes) -> Results | None:
    """Lower cvt between integers, between floats, from f32 or f64 to integers, and from narrow integers to floats."""
    if len(attributes.types) != 2 or attributes.packs:
        return None
    target, source = attributes.types
    a = operands[0]
    if not target.is_float and not source.is_float:
        return None if attributes.sat else (ir.resize(a, target.bits, signed=source.kind == "s"),)
    if target.name in IEEE_TYPES and not source.is_float:
        if source.bits > 32 or attributes.rounding not in {None, "rn"} or attributes.sat:
            return None
        return (ir.as_int(ir.to_float(a, target.bits, signed=source.kind == "s")),)
    if source.name in IEEE_TYPES and not target.is_float:
        return (float_to_integer(ir, attributes, a, target),)
    return float_to_float(ir, attributes, operands)


def float_to_float(ir: IRBuilder, attributes: Attributes, operands: Lanes) -> Results | None:
    """Lower cvt.rn between f16, bf16, f32 and f64, and from two f32 values to a packed pair."""
    target, source = attributes.types
    is_plain = not (attributes.ftz or attributes.sat or attributes.satfinite or attributes.relu or attributes.integral)
    rounding = attributes.rounding or "unwritten" if is_plain else None
    nearest = rounding == "rn"
    if source.name == "f32" and nearest and target.name in NARROWING:
        halves = [NARROWING[target.name](ir, operand) for operand in operands]
        if len(halves) == 1:
            return (halves[0],)
        high, low = (ir.resize(half, 32) for half in halves)
        return (ir.or_(ir.shl(high, 16), low),)
    a = operands[0]
    if (target.name, source.name) == ("f32", "f16") and rounding in {"rn", "unwritten"}:
        return (ir.select(is_nan(ir, a), splat(NAN[32], 32), ir.as_int(ir.fpext(ir.as_float(a), 32))),)
    if (target.name, source.name) == ("f32", "bf16") and rounding == "unwritten":
        return (ir.shl(ir.resize(a, 32), 16),)
    if (target.name, source.name) == ("f32", "f64") and nearest:
        rounded = ir.as_int(ir.fptrunc(ir.as_float(a), 32))
        sign = ir.resize(ir.lshr(sign_of(ir, a), 32), 32)
        payload = ir.resize(ir.lshr(a, 29), 32)
        nan = ir.or_(payload, 0x7FC00000)
        nan = ir.or_(ir.and_(nan, 0x7FFFFFFF), sign)
        return (ir.select(is_nan(ir, a), nan, rounded),)
    if (target.name, source.name, rounding) == ("tf32", "f32", "rna"):
        finite = ir.icmp("ult", magnitude(ir, a), INFINITY[32])
        raised = ir.select(finite, ir.add(a, 0x1000), a)
        return (ir.and_(raised, ~0x1FFF),)
    return None


def f32_to_f16(ir: IRBuilder, a: Value) -> Value:
    """Convert f32 to f16, rounding to nearest even."""
    return ir.select(is_nan(ir, a), splat(NAN[16], 16), ir.as_int(ir.fptrunc(ir.as_float(a), 16)))


def f32_to_bf16(ir: IRBuilder, a: Value) -> Value:
    """Convert f32 to bf16: add 0x7FFF plus the lowest kept bit, and take the upper half."""
    last_place = ir.and_(ir.lshr(a, 16), 1)
    raised = ir.add(ir.add(a, 0x7FFF), last_place)
    rounded = ir.resize(ir.lshr(raised, 16), 16)
    return ir.select(is_nan(ir, a), splat(NAN_BF16, 16), rounded)


NARROWING = {"f16": f32_to_f16, "f16x2": f32_to_f16, "bf16": f32_to_bf16, "bf16x2": f32_to_bf16}
INTEGRAL_ROUNDING = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}  # LLVM intrinsics by rounding mode


def float_to_integer(ir: IRBuilder, attributes: Attributes, a: Value, target: Type) -> Value:
    """Round floats to integers and clamp them; NaN gives 0, or only the top bit if either type has 64 bits."""
    source_bits = width(a)
    if attributes.ftz and width(a) == 32:
        a = flush(ir, a)
    number = ir.as_float(a)
    if width(a) == 32:
        number = ir.fpext(number, 64)
    whole = ir.intrinsic(INTEGRAL_ROUNDING[attributes.integral or "rzi"], number)
    low, high = limits(target.kind, target.bits)
    above = ir.fcmp("oge", whole, float_splat(float(high)))
    below = ir.fcmp("ole", whole, float_splat(float(low)))
    nan = ir.fcmp("uno", whole, whole)
    outside = ir.or_(above, ir.or_(below, nan))
    inside = ir.as_float(ir.select(outside, splat(0, 64), ir.as_int(whole)))
    code = ir.to_int(inside, 64, signed=target.kind == "s")
    code = ir.select(above, splat(high, 64), ir.select(below, splat(low, 64), code))
    of_nan = 1 << (target.bits - 1) if target.bits == 64 or source_bits == 64 else 0
    return ir.resize(ir.select(nan, splat(of_nan, 64), code), target.bits)


def lower_generic_address(ir: IRBuilder, attributes: Attributes, operands: Lanes) -> Results:
    """Lower cvta, which adds the window address of a state space, or subtracts it with .to."""
    return ((ir.sub if attributes.to_space else ir.add)(operands[0], WINDOWS[attributes.space]),)


Lowering = Callable[[IRBuilder, "Attributes", Lanes], Results | None]


def by_type(floats: Lowering, integers: Lowering) -> Lowering:
    """Return a lowering that uses `floats` for float types and `integers` for integer types."""

    def lower(ir: IRBuilder, attributes: Attributes, operands: Lanes) -> Results | None:
        return (floats if attributes.types[-1].is_float else integers)(ir, attributes, operands)

    return lower


LOWERINGS: dict[str, Lowering] = {
    "add": by_type(lower_float, lower_integer), "sub": by_type(lower_float, lower_integer),
    "min": by_type(lower_float_extreme, lower_integer), "max": by_type(lower_float_extreme, lower_integer),
    "abs": by_type(lower_sign, lower_integer), "neg": by_type(lower_sign, lower_integer),
    "mul": by_type(lower_float, lower_multiply), "mad": by_type(lower_float, lower_multiply),
    "div": by_type(lower_float, lower_divide), "rem": lower_divide,
    "fma": lower_float, "sqrt": lower_float, "rcp": lower_float,
    "rsqrt": lower_approximate, "ex2": lower_approximate, "lg2": lower_approximate,
    "sin": lower_approximate, "cos": lower_approximate, "tanh": lower_approximate,
    "and": lower_integer, "or": lower_integer, "xor": lower_integer, "not": lower_integer, "cnot": lower_integer,
    "shl": lower_shift, "shr": lower_shift, "shf": lower_funnel_shift,
    "popc": lower_bit_count, "clz": lower_bit_count,
    "brev": lambda ir, _, operands: (ir.intrinsic("bitreverse", operands[0]),),
    "selp": lambda ir, _, operands: (ir.select(operands[2], operands[0], operands[1]),),
    "bfe": lower_extract, "bfi": lower_insert, "prmt": lower_permute_bytes,
    "addc": lower_carry, "iadd3": lower_add3, "szext": lower_extend, "p2r": lower_predicate_bits,
    "setp": lower_compare, "cvt": lower_convert, "cvta": lower_generic_address,
}  # fmt: skip
"""Lowerings by opcode; lop3 is missing because one of its operands is an immediate (`lower_lop3`)."""
