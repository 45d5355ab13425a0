"""The readable reference: one short function per rule, on Python integers, which never round or overflow.

The backends compute the same codes faster, and pass the same tests. If they differ, the reference is right. Nothing
here depends on the floating-point environment: there is no float arithmetic.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from numpy.typing import NDArray

from warpfrag.formats.number_formats import CANONICAL_NANS, FORMATS
from warpfrag.tensorcore import rules
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.soft_floats import MINUS_ZERO, PLUS_ZERO, UNITY, Number, round_code, unpack

NAN_F32, NAN_F16, NAN_F64 = (CANONICAL_NANS[name] for name in ("f32", "f16", "f64"))
QUIET_F64 = 1 << 51


@dataclass(frozen=True)
class TraceTerm:
    """A summand of a step: a product, a scaled group of products, or C.

    The sum receives kept * 2**(common_exponent - fraction_bits); `lost` is the exact remainder.
    """

    name: str
    value: Fraction | float  # a float only if it is infinite or NaN
    exponent: int | None  # None for a zero, which does not affect the common exponent
    kept: int
    lost: Fraction


@dataclass(frozen=True)
class TraceStep:
    """One step in the computation of an output.

    `common_exponent`, `fraction_bits` and `total` are None if the step does not align its terms, because of its rule or
    because a term is infinite or NaN. `total` is the sum of the kept parts, in units of 2**(common_exponent -
    fraction_bits).
    """

    rule: str
    terms: tuple[TraceTerm, ...]
    common_exponent: int | None
    fraction_bits: int | None
    total: int | None
    rounding: str
    result_format: str
    result: int

    @property
    def special(self) -> str | None:
        """A description of the terms that make the result infinite or NaN, or None if every term is finite."""
        values = {term.name: term.value for term in self.terms if isinstance(term.value, float)}
        nan = [name for name, value in values.items() if math.isnan(value)]
        if nan:
            return _are(nan, "NaN")
        if len(set(values.values())) > 1:
            return "infinities of both signs"
        return _are([*values], "infinite") if values else None

    @property
    def exact_sum(self) -> Fraction | None:
        """The exact sum of the terms, or None if the step does not align them."""
        if self.common_exponent is None:
            return None
        return sum((term.value for term in self.terms if isinstance(term.value, Fraction)), Fraction(0))

    @property
    def nearest(self) -> int | None:
        """The code of the value nearest to the exact sum; never -0, which no step returns."""
        exact = self.exact_sum
        if exact is None:
            return None
        exponent = 1 - exact.denominator.bit_length()  # the denominator is always a power of two
        code = round_code(self.result_format, exact < 0, abs(exact.numerator), exponent, "rn")
        return 0 if code == FORMATS[self.result_format].sign_bit else code

    @property
    def ulps_above_nearest(self) -> int | None:
        """The distance of the result from the nearest value, in ulps; negative if it is below."""
        nearest = self.nearest
        return None if nearest is None else self._place(self.result) - self._place(nearest)

    def _place(self, code: int) -> int:
        """Return the index of a code among the format's values in ascending order; zero has index 0."""
        sign = FORMATS[self.result_format].sign_bit
        return -(code ^ sign) if code & sign else code


def _are(names: list[str], label: str) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} {label}"


def truncated_sum(terms: Sequence[Number], how: rules.AlignedSum) -> tuple[int, int, tuple[int, ...]]:
    """Align, truncate and add: every term is truncated to a multiple of 2**(common - F); the sum is exact.

    The common exponent is the largest exponent of any nonzero term, and at least `zero_exponent`. Return the common
    exponent, the sum and the kept part of each term.
    """
    common = max([how.zero_exponent, *(term.exponent for term in terms if term.aligns)])
    kept = []
    for term in terms:
        shift = term.exponent - term.fraction - (common - how.fraction_bits)
        magnitude = term.significand << shift if shift >= 0 else term.significand >> -shift
        kept.append(-magnitude if term.negative else magnitude)
    return common, sum(kept), tuple(kept)


def multiply(x: Number, y: Number) -> Number:
    """Return the exact product; its exponent is the sum of both exponents and is never renormalised."""
    negative = x.negative != y.negative
    if x.is_nan or y.is_nan or (x.is_infinite and y.is_zero) or (x.is_zero and y.is_infinite):
        return Number(is_nan=True)
    if x.is_infinite or y.is_infinite:
        return Number(negative=negative, is_infinite=True)
    return Number(negative, x.significand * y.significand, x.exponent + y.exponent, x.fraction + y.fraction)


def special_sum(terms: Sequence[Number]) -> Number | None:
    """Return NaN if a term is NaN or there are infinities of both signs; an infinity if there is one; else None."""
    signs = {term.negative for term in terms if term.is_infinite}
    if any(term.is_nan for term in terms) or len(signs) > 1:
        return Number(is_nan=True)
    return Number(negative=signs.pop(), is_infinite=True) if signs else None


def infinity_code(format_name: str, *, negative: bool) -> int:
    """Return the code of an infinity."""
    fmt = FORMATS[format_name]
    return (fmt.sign_bit if negative else 0) | (((1 << fmt.exponent) - 1) << fmt.fraction)


def round_sum(total: int, exponent: int, rounding: rules.StepRounding) -> int:
    """Apply the rounding at the end of a step; the result is never -0.

    RZ-FP32 truncates to f32 and overflows to infinity; RZ-E8M13 truncates to 13 fraction bits; RNE-FP16 rounds to the
    nearest f16, ties to even.
    """
    if rounding == "RNE-FP16":
        code = round_code("f16", total < 0, abs(total), exponent, "rn")
        return 0 if code == FORMATS["f16"].sign_bit else code
    fraction = 13 if rounding == "RZ-E8M13" else 23
    code = round_code("f32", total < 0, abs(total), exponent, "rz", fraction=fraction, overflows=True)
    return 0 if code == FORMATS["f32"].sign_bit else code


def fused_step(
    products: Sequence[Number], c: Number, how: rules.AlignedSum
) -> tuple[int, int | None, int | None, tuple[int, ...]]:
    """Compute a truncated fused dot-product-add: products and C in one truncated sum, rounded once.

    A NaN, infinity times zero, or infinities of both signs give the canonical NaN. Return the result's code, the common
    exponent, the sum and the kept part of each term (C last). If a term is infinite or NaN, nothing is aligned, and the
    exponent and the sum are None.
    """
    terms = [*products, c]
    special = special_sum(terms)
    if special is not None:
        negative = special.negative
        code = how.nan if special.is_nan else infinity_code(how.accumulator, negative=negative)
        return code, None, None, (0,) * len(terms)
    common, total, kept = truncated_sum(terms, how)
    return round_sum(total, common - how.fraction_bits, how.rounding), common, total, kept


def scale_product(product: Number, scale: Number) -> Number:
    """Return a product multiplied by a ue8m0 scale factor, a power of two: only the exponent changes."""
    if scale.is_nan:
        return Number(is_nan=True)
    moved = product.exponent + scale.exponent
    return Number(product.negative, product.significand, moved, product.fraction, product.is_infinite, product.is_nan)


def group_product(products: Sequence[Number], scale: Number) -> Number:
    """Return the exact sum of sixteen 4-bit products, multiplied by a scale factor; its exponent is the factor's.

    A group whose products are all zero counts as zero; a group that cancels to zero keeps the exponent.
    """
    if scale.is_nan:
        return Number(is_nan=True)
    point = products[0].fraction
    total = 0
    for product in products:
        magnitude = product.significand << product.exponent  # exponents 0, 1, 2, ... for e2m1
        total += -magnitude if product.negative else magnitude
    if scale.is_zero or all(product.is_zero for product in products):
        return PLUS_ZERO
    significand = abs(total) * scale.significand
    return Number(total < 0, significand, scale.exponent, point + scale.fraction, keeps_exponent=True)


def multiply_add(x: Number, y: Number, z: Number, format_name: str, direction: rules.Direction) -> int | None:
    """Return x * y + z rounded once, as in IEEE 754; None if the result is NaN.

    A zero result keeps the sign of x * y and z if both are zeros of the same sign; otherwise it is +0, or -0 when
    rounding down.
    """
    product = multiply(x, y)
    special = special_sum([product, z])
    if special is not None:
        return None if special.is_nan else infinity_code(format_name, negative=special.negative)
    low = min(product.exponent - product.fraction, z.exponent - z.fraction)
    total = 0
    for term in (product, z):
        magnitude = term.significand << (term.exponent - term.fraction - low)
        total += -magnitude if term.negative else magnitude
    negative = total < 0
    if not total:
        same_sign = product.is_zero and z.is_zero and product.negative == z.negative
        negative = product.negative if same_sign else direction == "rm"
    return round_code(format_name, negative, abs(total), low, direction)


def ffma(x: Number, y: Number, z: Number) -> Number:
    """Compute an FFMA, rounded to nearest f32, with the canonical NaN; a constant operand makes it an FMUL or FADD."""
    code = multiply_add(x, y, z, "f32", "rn")
    return unpack("f32", NAN_F32 if code is None else code)


def chain_f32(a: Sequence[Number], b: Sequence[Number], c: Number) -> Number:
    """Compute m8n8k4 in software with f32 results: a chain of four FFMAs from zero, then an FADD that adds C."""
    total = PLUS_ZERO
    for x, y in zip(a, b, strict=True):
        total = ffma(x, y, total)
    return ffma(c, UNITY, total)


def chain_f16(a: Sequence[Number], b: Sequence[Number], c: Number) -> Number:
    """Compute m8n8k4 in software with f16 results: (c + (a0 b0 + a1 b1)) + (a2 b2 + a3 b3) in f32, each rounded."""
    low = ffma(a[1], b[1], ffma(a[0], b[0], MINUS_ZERO))
    high = ffma(a[3], b[3], ffma(a[2], b[2], MINUS_ZERO))
    return ffma(ffma(c, UNITY, low), UNITY, high)


def convert_f16(number: Number) -> int:
    """Convert to the nearest f16, ties to even, as F2FP does; every NaN becomes the canonical NaN."""
    if number.is_nan:
        return NAN_F16
    if number.is_infinite:
        return infinity_code("f16", negative=number.negative)
    return round_code("f16", number.negative, number.significand, number.exponent - number.fraction, "rn")


def add_c(c: Number, part: Number, format_name: str) -> int:
    """Add C to the tensor core's result with FADD or HADD2, rounded to nearest."""
    code = multiply_add(c, UNITY, part, format_name, "rn")
    if code is None:
        return NAN_F16 if format_name == "f16" else NAN_F32
    return code


def fma_f64(a: Number, b: Number, c: Number, direction: rules.Direction) -> int:
    """Compute one fused multiply-add of DMMA's chain, with IEEE zeros, subnormals and overflow.

    A NaN operand is quieted and propagated with its sign and payload; B has priority, then C, then A. A new NaN
    (infinity times zero, infinities of both signs) is the canonical NaN.
    """
    for operand in (b, c, a):
        if operand.is_nan:
            return operand.code | QUIET_F64
    code = multiply_add(a, b, c, "f64", direction)
    return NAN_F64 if code is None else code


def add_integers(products: Sequence[int], c: int, *, satfinite: bool) -> int:
    """Return the code of an exact sum, either clamped once or wrapped to 32 bits."""
    total = sum(products, c)
    if satfinite:
        total = min(max(total, -(1 << 31)), (1 << 31) - 1)
    return total & 0xFFFFFFFF


class OutputOperands(NamedTuple):
    """The codes from which an output is computed: A's stored elements, the matching elements of B, C and the scales."""

    a: Sequence[int]
    b: Sequence[int]
    c: int
    scale_a: Sequence[int] = ()
    scale_b: Sequence[int] = ()


Trace = list[TraceStep]


def compute(rule: rules.Rule, codes: OutputOperands, trace: Trace | None = None) -> int:
    """Compute one output of one instruction; append its steps to `trace`, if given."""
    match rule:
        case rules.Fused():
            return _fused(rule, codes, trace)
        case rules.Grouped():
            return _grouped(rule, codes, trace)
        case rules.Chain():
            return _chain(rule, codes, trace)
        case rules.Fma64():
            return _fma_chain(rule, codes, trace)
        case rules.IntegerSum():
            return _integer(rule, codes, trace)
        case rules.Popcount():
            return _popcount(rule, codes, trace)
    raise TypeError(f"unknown rule: {rule}")


def _fused(rule: rules.Fused, codes: OutputOperands, trace: Trace | None) -> int:
    """Compute the steps in order, then add C if it comes last, then convert to D's format."""
    format_a, format_b = rule.multiplicands
    a = [_unpack(format_a, convert(code, rule.a, format_a)) for code in codes.a]
    b = [_unpack(format_b, convert(code, rule.b, format_b)) for code in codes.b]
    c = unpack(rule.c_read_as, convert(codes.c, rule.c, rule.c_read_as))
    scale = _scales(rule, codes)
    accumulator = rule.sum.accumulator
    start, onto = (PLUS_ZERO, "zero") if rule.adds_c_last else (c, "c")
    code = 0
    for places in rule.steps:
        products = [multiply(a[place], b[place]) for place in places]
        if scale:
            block = rule.k // rule.scales
            products = [
                scale_product(product, scale[place // block]) for product, place in zip(products, places, strict=True)
            ]
        name = f"{'scaled' if scale else 'fused'} step of {len(places)} products onto {onto}"
        code = _aligned_step(rule.sum, name, [f"k={place}" for place in places], products, start, trace)
        start, onto = unpack(accumulator, code), "previous"
    if rule.adds_c_last:
        code = add_c(c, start, rule.d)
        if trace is not None:
            terms = (_term("previous", start), _term("C", c))
            trace.append(_unaligned(rule, "C + previous", terms, code, "RN"))
    elif rule.d != accumulator:
        code = convert_f16(start)
        if trace is not None:
            trace.append(_unaligned(rule, "previous to f16", (_term("previous", start),), code, "RN"))
    return code


def _grouped(rule: rules.Grouped, codes: OutputOperands, trace: Trace | None) -> int:
    """Compute one step, whose terms are groups of products."""
    products = [multiply(_unpack(rule.a, x), _unpack(rule.b, y)) for x, y in zip(codes.a, codes.b, strict=True)]
    scales = _scales(rule, codes)
    block = rule.k // rule.scales
    starts = range(0, rule.k, rule.group)
    groups = [group_product(products[first : first + rule.group], scales[first // block]) for first in starts]
    names = [f"k={first}..{first + rule.group - 1}" for first in starts]
    name = f"grouped step of {rule.k} products onto c"
    return _aligned_step(rule.sum, name, names, groups, unpack(rule.c, codes.c), trace)


def _aligned_step(
    how: rules.AlignedSum, name: str, names: list[str], products: list[Number], start: Number, trace: Trace | None
) -> int:
    """Compute one truncated sum, and append it to the trace."""
    code, common, total, kept = fused_step(products, start, how)
    if trace is not None:
        start_name = {"c": "C", "zero": "0", "previous": "previous"}[name.rpartition(" ")[2]]
        grid = None if common is None else Fraction(2) ** (common - how.fraction_bits)
        terms = tuple(
            _term(term, number, part, grid)
            for term, number, part in zip([*names, start_name], [*products, start], kept, strict=True)
        )
        bits = None if common is None else how.fraction_bits
        trace.append(TraceStep(name, terms, common, bits, total, how.rounding, how.accumulator, code))
    return code


def _chain(rule: rules.Chain, codes: OutputOperands, trace: Trace | None) -> int:
    """Compute m8n8k4 in software, using `chain_f32` or `chain_f16`."""
    a, b = [_unpack(rule.a, code) for code in codes.a], [_unpack(rule.b, code) for code in codes.b]
    c = unpack("f32", convert(codes.c, rule.c, "f32"))
    if rule.d == "f32":
        name = "C + fma(a3, b3, fma(a2, b2, fma(a1, b1, fma(a0, b0, 0)))) in f32"
        code = chain_f32(a, b, c).code
    else:
        name = "(C + fma(a1, b1, a0 * b0)) + fma(a3, b3, a2 * b2) in f32, then f16"
        code = convert_f16(chain_f16(a, b, c))
    if trace is not None:
        terms = (*(_term(f"k={k}", multiply(x, y)) for k, (x, y) in enumerate(zip(a, b, strict=True))), _term("C", c))
        trace.append(_unaligned(rule, name, terms, code, "RN after each"))
    return code


def _fma_chain(rule: rules.Fma64, codes: OutputOperands, trace: Trace | None) -> int:
    """Compute c = fma(a, b, c) for each k, in ascending order."""
    code = codes.c
    for k, (a, b) in enumerate(zip(codes.a, codes.b, strict=True)):
        x, y, c = unpack("f64", a), unpack("f64", b), unpack("f64", code)
        code = fma_f64(x, y, c, rule.rounding)
        if trace is not None:
            terms = (_term(f"k={k}", multiply(x, y)), _term("C", c))
            trace.append(_unaligned(rule, "fma(a, b, c)", terms, code, rule.rounding.upper()))
    return code


def _integer(rule: rules.IntegerSum, codes: OutputOperands, trace: Trace | None) -> int:
    """Return the exact sum of integer products and C."""
    a, b, s32 = FORMATS[rule.a], FORMATS[rule.b], FORMATS["s32"]
    products = [int(a.decode(x)) * int(b.decode(y)) for x, y in zip(codes.a, codes.b, strict=True)]
    start = int(s32.decode(codes.c))
    code = add_integers(products, start, satfinite=rule.clamps)
    if trace is not None:
        terms = (*(_integer_term(f"k={k}", value) for k, value in enumerate(products)), _integer_term("C", start))
        trace.append(_unaligned(rule, "exact sum", terms, code, "clamped once" if rule.clamps else "mod 2**32"))
    return code


def _popcount(rule: rules.Popcount, codes: OutputOperands, trace: Trace | None) -> int:
    """Return C plus the number of ones in A xor B, or in A and B."""
    ones = sum(x ^ y if rule.operation == "xor" else x & y for x, y in zip(codes.a, codes.b, strict=True))
    start = int(FORMATS["s32"].decode(codes.c))
    code = add_integers([ones], start, satfinite=False)
    if trace is not None:
        terms = (_integer_term("popcount", ones), _integer_term("C", start))
        trace.append(_unaligned(rule, f"C + popcount(A {rule.operation} B)", terms, code, "mod 2**32"))
    return code


def _scales(rule: rules.Rule, codes: OutputOperands) -> list[Number]:
    """Return the scale factor of each block: the factor of A's row times the factor of B's column."""
    name = rule.scale_format
    return [multiply(unpack(name, x), unpack(name, y)) for x, y in zip(codes.scale_a, codes.scale_b, strict=True)]


_unpack = lru_cache(1 << 12)(unpack)  # elements repeat, because each row of A is multiplied by every column of B


def _unaligned(rule: rules.Rule, name: str, terms: tuple[TraceTerm, ...], code: int, rounding: str) -> TraceStep:
    """Return a step that does not align its terms."""
    return TraceStep(name, terms, None, None, None, rounding, rule.d, code)


@lru_cache(1 << 12)
def convert(code: int, source: str, target: str) -> int:
    """Convert exactly to a wider format (F2FP for fp8, HADD2.F32 for C); NaN becomes the target's canonical NaN."""
    if source == target:
        return code
    number = unpack(source, code)
    if number.is_nan:
        return NAN_F16 if target == "f16" else NAN_F32
    if number.is_infinite:
        return infinity_code(target, negative=number.negative)
    return round_code(target, number.negative, number.significand, number.exponent - number.fraction, "rn")


def _term(name: str, number: Number, kept: int = 0, grid: Fraction | None = None) -> TraceTerm:
    """Return a term of the trace; without a `grid`, the step aligns no terms, and `lost` is 0."""
    if not number.is_finite:
        infinity = -math.inf if number.negative else math.inf
        return TraceTerm(name, math.nan if number.is_nan else infinity, None, 0, Fraction(0))
    exponent = number.exponent if number.aligns else None
    lost = Fraction(0) if grid is None else number.value - kept * grid
    return TraceTerm(name, number.value, exponent, kept, lost)


def _integer_term(name: str, value: int) -> TraceTerm:
    """Return a term of an exact sum of integers."""
    return TraceTerm(name, Fraction(value), None, value, Fraction(0))


def chain(rule: rules.Rule, codes: OutputOperands, trace: Trace | None = None) -> int:
    """Compute one output for any multiple of the instruction's K: the D of one instruction is the C of the next."""
    code = codes.c
    for index in range(len(codes.a) // rule.stored):
        stored = slice(index * rule.stored, (index + 1) * rule.stored)
        scales = slice(index * rule.scales, (index + 1) * rule.scales)
        part = OutputOperands(codes.a[stored], codes.b[stored], code, codes.scale_a[scales], codes.scale_b[scales])
        code = compute(rule, part, trace)
    return code


def trace(
    rule: rules.Rule,
    a: Sequence[int],
    b: Sequence[int],
    c: int,
    *,
    columns: Sequence[int] | None = None,
    scale_a: Sequence[int] = (),
    scale_b: Sequence[int] = (),
) -> list[TraceStep]:
    """Return every step in the computation of one output; `a` is a row of A (stored elements), `b` a column of B.

    All operands are codes. A sparse rule needs `columns`, the logical column of each stored element.
    """
    met = [int(b[column]) for column in (range(len(b)) if columns is None else columns)]
    steps: Trace = []
    row, scales = [int(code) for code in a], [[int(code) for code in scale] for scale in (scale_a, scale_b)]
    chain(rule, OutputOperands(row, met, int(c), *scales), steps)
    return steps


def matmul(rule: rules.Rule, operands: ProductOperands) -> NDArray[Any]:
    """Return D's codes, computed one output at a time."""
    lists: list[Any] = [None if array is None else array.tolist() for array in operands]
    a, b, c, columns, scale_a, scale_b = lists
    out = operands.c.astype(f"uint{max(8, FORMATS[rule.d].bits)}")
    for tile, i, j in itertools.product(*(range(extent) for extent in out.shape)):
        met = range(len(b[tile])) if columns is None else columns[tile][i]
        codes = OutputOperands(
            a[tile][i],
            [b[tile][k][j] for k in met],
            c[tile][i][j],
            () if scale_a is None else scale_a[tile][i],
            () if scale_b is None else [scales[j] for scales in scale_b[tile]],
        )
        out[tile, i, j] = chain(rule, codes)
    return out
