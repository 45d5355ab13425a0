"""The rules, readable: one short function each, on Python integers, which never round or overflow.

`fast` computes the same codes quickly; both are held to the same tests. Where the two differ, this one is right.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from warpfrag.arithmetic.numbers import MINUS_ZERO, ONE, PLUS_ZERO, Direction, Number, round_code, unpack
from warpfrag.arithmetic.tracing import Term, TraceStep
from warpfrag.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.arithmetic.lowering import Plan, Step
    from warpfrag.arithmetic.units import Rounding, Unit

NAN_F32 = 0x7FFFFFFF
NAN_F16 = 0x7FFF
NAN_F64 = 0xFFF8000000000000
QUIET_F64 = 1 << 51


def truncated_sum(terms: Sequence[Number], unit: Unit) -> tuple[int, int, tuple[int, ...]]:
    """Align, cut, add: every term is cut towards zero to a multiple of 2**(common - F); the sum is exact.

    The common exponent is the largest exponent of a term that is not zero, and at least `zero_exponent`. Returns
    the common exponent, the sum and what was kept of each term.
    """
    common = max([unit.zero_exponent, *(term.exponent for term in terms if term.aligns)])
    kept = []
    for term in terms:
        shift = term.exponent - term.fraction - (common - unit.fraction_bits)
        magnitude = term.significand << shift if shift >= 0 else term.significand >> -shift
        kept.append(-magnitude if term.negative else magnitude)
    return common, sum(kept), tuple(kept)


def multiply(x: Number, y: Number) -> Number:
    """The exact product; its exponent is the sum of the exponents and is never renormalised."""
    negative = x.negative != y.negative
    if x.is_nan or y.is_nan or (x.is_infinite and y.is_zero) or (x.is_zero and y.is_infinite):
        return Number(is_nan=True)
    if x.is_infinite or y.is_infinite:
        return Number(negative=negative, is_infinite=True)
    return Number(negative, x.significand * y.significand, x.exponent + y.exponent, x.fraction + y.fraction)


def special_sum(terms: Sequence[Number]) -> Number | None:
    """NaN if any term is NaN or infinities of both signs meet; an infinity if there is one; else None."""
    signs = {term.negative for term in terms if term.is_infinite}
    if any(term.is_nan for term in terms) or len(signs) > 1:
        return Number(is_nan=True)
    return Number(negative=signs.pop(), is_infinite=True) if signs else None


def infinity_code(format_name: str, *, negative: bool) -> int:
    """The code of an infinity."""
    row = FORMATS[format_name]
    return (row.sign_bit if negative else 0) | (((1 << row.exponent) - 1) << row.fraction)


def round_sum(total: int, exponent: int, rounding: Rounding) -> int:
    """The rounding that ends a step; the result is never -0.

    RZ-FP32 cuts to f32 and overflows to infinity; RZ-E8M13 cuts to 13 fraction bits; RNE-FP16 takes the nearest
    f16, ties to even.
    """
    if rounding == "RNE-FP16":
        code = round_code("f16", total < 0, abs(total), exponent, "rn")
        return 0 if code == FORMATS["f16"].sign_bit else code
    fraction = 13 if rounding == "RZ-E8M13" else 23
    code = round_code("f32", total < 0, abs(total), exponent, "rz", fraction=fraction, overflows=True)
    return 0 if code == FORMATS["f32"].sign_bit else code


def fused_step(
    products: Sequence[Number], c: Number, unit: Unit
) -> tuple[int, int | None, int | None, tuple[int, ...]]:
    """Truncated fused dot-product-add: products and C in one cut sum, rounded once.

    Any NaN, infinity times zero, or infinities of both signs give the one NaN code. Returns the result's code, the
    common exponent, the sum and what was kept of each term (C last); with an infinity or NaN nothing is aligned, and
    exponent and sum are None.
    """
    terms = [*products, c]
    special = special_sum(terms)
    if special is not None:
        negative = special.negative
        code = unit.nan if special.is_nan else infinity_code(unit.accumulator, negative=negative)
        return code, None, None, (0,) * len(terms)
    common, total, kept = truncated_sum(terms, unit)
    return round_sum(total, common - unit.fraction_bits, unit.rounding), common, total, kept


def scale_product(product: Number, scale: Number) -> Number:
    """A product times a power of two: only the exponent moves (block-scaled kinds, ue8m0)."""
    if scale.is_nan:
        return Number(is_nan=True)
    moved = product.exponent + scale.exponent
    return Number(product.negative, product.significand, moved, product.fraction, product.is_infinite, product.is_nan)


def group_product(products: Sequence[Number], scale: Number) -> Number:
    """Sixteen 4-bit products summed exactly, times a scale; the exponent is the scale's alone.

    A group whose products are all zero counts as zero; one that cancels to zero keeps its exponent.
    """
    if scale.is_nan:
        return Number(is_nan=True)
    point = products[0].fraction
    total = 0
    for product in products:
        magnitude = product.significand << product.exponent  # exponents are 0, 1, 2, ... for e2m1
        total += -magnitude if product.negative else magnitude
    if scale.is_zero or all(product.is_zero for product in products):
        return PLUS_ZERO
    significand = abs(total) * scale.significand
    return Number(total < 0, significand, scale.exponent, point + scale.fraction, keeps_exponent=True)


def multiply_add(x: Number, y: Number, z: Number, format_name: str, direction: Direction) -> int | None:
    """x * y + z rounded once, by IEEE 754; None where the result is NaN.

    An exact zero is +0 unless both parts are -0; rounding down makes it -0.
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
    """FFMA, and with one operand fixed FMUL and FADD: f32, to nearest, one NaN code."""
    code = multiply_add(x, y, z, "f32", "rn")
    return unpack("f32", NAN_F32 if code is None else code)


def chain_f32(a: Sequence[Number], b: Sequence[Number], c: Number) -> Number:
    """m8n8k4 in software with f32 results: four FFMA from zero, then FADD of C."""
    total = PLUS_ZERO
    for x, y in zip(a, b, strict=True):
        total = ffma(x, y, total)
    return ffma(c, ONE, total)


def chain_f16(a: Sequence[Number], b: Sequence[Number], c: Number) -> Number:
    """m8n8k4 in software with f16 results: (c + (a0 b0 + a1 b1)) + (a2 b2 + a3 b3) in f32, each rounded."""
    low = ffma(a[1], b[1], ffma(a[0], b[0], MINUS_ZERO))
    high = ffma(a[3], b[3], ffma(a[2], b[2], MINUS_ZERO))
    return ffma(ffma(c, ONE, low), ONE, high)


def convert_f16(number: Number) -> int:
    """F2FP: the nearest f16, ties to even; NaN is 0x7FFF."""
    if number.is_nan:
        return NAN_F16
    if number.is_infinite:
        return infinity_code("f16", negative=number.negative)
    return round_code("f16", number.negative, number.significand, number.exponent - number.fraction, "rn")


def add_c(c: Number, part: Number, format_name: str) -> int:
    """FADD or HADD2: C plus what the tensor core gave, to nearest."""
    code = multiply_add(c, ONE, part, format_name, "rn")
    if code is None:
        return NAN_F16 if format_name == "f16" else NAN_F32
    return code


def fma_f64(a: Number, b: Number, c: Number, direction: Direction) -> int:
    """One link of DMMA's chain: fused, with IEEE zeros, subnormals and overflow.

    A NaN operand comes through, quieted, with its sign and payload: B's before C's before A's. A NaN made here
    (infinity times zero, infinities of both signs) is 0xFFF8000000000000.
    """
    for operand in (b, c, a):
        if operand.is_nan:
            return operand.code | QUIET_F64
    code = multiply_add(a, b, c, "f64", direction)
    return NAN_F64 if code is None else code


def add_integers(products: Sequence[int], c: int, *, satfinite: bool) -> int:
    """The exact sum, then clamped once or wrapped to 32 bits; as a code."""
    total = sum(products, c)
    if satfinite:
        total = min(max(total, -(1 << 31)), (1 << 31) - 1)
    return total & 0xFFFFFFFF


def count_bits(a: Sequence[int], b: Sequence[int], bitop: str) -> int:
    """The number of ones of A xor B, or of A and B."""
    return sum((x ^ y) if bitop == "xor" else (x & y) for x, y in zip(a, b, strict=True))


class _Output:
    """One output on its way through a plan; keeps the trace."""

    def __init__(self, plan: Plan) -> None:
        """Start with nothing done."""
        self.plan = plan
        self.steps: list[TraceStep] = []

    def run(self, a: Sequence[int], b: Sequence[int], c: int, scale_a: Sequence[int], scale_b: Sequence[int]) -> int:
        """One instruction: codes of A's stored elements, of the B elements they meet, of C and of the scales."""
        last = self.plan.steps[-1].do  # the step that gives D; those before it may only convert
        if last == "integer":
            return self._integer(a, b, c)
        if last == "popcount":
            ones, start = count_bits(a, b, self.plan.bitop), int(FORMATS["s32"].decode(c))
            result = add_integers([ones], start, satfinite=False)
            terms = (_integer_term("popcount", ones), _integer_term("C", start))
            self._record(f"C + popcount(A {self.plan.bitop} B)", terms, result, "mod 2**32")
            return result
        numbers_a = [unpack(self.plan.operand_a, convert(code, self.plan.a, self.plan.operand_a)) for code in a]
        numbers_b = [unpack(self.plan.operand_b, convert(code, self.plan.b, self.plan.operand_b)) for code in b]
        if last == "fma_f64":
            return self._chain_f64(numbers_a, numbers_b, c)
        return self._steps(numbers_a, numbers_b, c, scale_a, scale_b)

    def _steps(
        self,
        a: Sequence[Number],
        b: Sequence[Number],
        c_code: int,
        scale_a: Sequence[int],
        scale_b: Sequence[int],
    ) -> int:
        """The steps of a plan with a floating-point accumulator, in order."""
        plan = self.plan
        c = unpack(plan.c, c_code)
        c_format = plan.c
        previous = c_code
        for step in plan.steps:
            if step.do == "read_c":
                c_format = step.to
                previous = convert(c_code, plan.c, step.to)
                c = unpack(step.to, previous)
            elif step.do in ("fused", "scaled", "grouped"):
                onto = {"c": c, "zero": PLUS_ZERO, "previous": None}[step.onto or "c"]
                start = unpack(_unit(step).accumulator, previous) if onto is None else onto
                previous = self._fused(step, a, b, start, scale_a, scale_b)
            elif step.do == "add_c":
                part = unpack(plan.d, previous)
                previous = add_c(c, part, plan.d)
                self._record("C + previous", (_term("previous", part), _term("C", c)), previous, "RN")
            elif step.do == "round_d":
                number = unpack(c_format, previous)
                previous = convert_f16(number)
                self._record("previous to f16", (_term("previous", number),), previous, "RN")
            elif step.do == "chain_f32":
                previous = chain_f32(a, b, c).code
                self._record(
                    "C + fma(a3, b3, fma(a2, b2, fma(a1, b1, fma(a0, b0, 0)))) in f32",
                    (*_products(a, b), _term("C", c)),
                    previous,
                    "RN after each",
                )
            elif step.do == "chain_f16":
                previous = convert_f16(chain_f16(a, b, c))
                self._record(
                    "(C + fma(a1, b1, a0 * b0)) + fma(a3, b3, a2 * b2) in f32, then f16",
                    (*_products(a, b), _term("C", c)),
                    previous,
                    "RN after each",
                )
        return previous

    def _fused(
        self,
        step: Step,
        a: Sequence[Number],
        b: Sequence[Number],
        start: Number,
        scale_a: Sequence[int],
        scale_b: Sequence[int],
    ) -> int:
        """One fused, scaled or grouped step."""
        unit = _unit(step)
        products = [multiply(a[place], b[place]) for place in step.places]
        names = [f"k={place}" for place in step.places]
        if self.plan.scales:
            scales = [
                multiply(unpack(self.plan.scale_type, x), unpack(self.plan.scale_type, y))
                for x, y in zip(scale_a, scale_b, strict=True)
            ]
            block = self.plan.k // len(scales)
            if step.do == "scaled":
                products = [
                    scale_product(product, scales[place // block])
                    for place, product in zip(step.places, products, strict=True)
                ]
            else:
                names = [f"k={place}..{place + unit.group - 1}" for place in step.places[:: unit.group]]
                products = [
                    group_product(products[index : index + unit.group], scales[step.places[index] // block])
                    for index in range(0, len(products), unit.group)
                ]
        code, common, total, kept = fused_step(products, start, unit)
        start_name = {"c": "C", "zero": "0", "previous": "previous"}[step.onto or "c"]
        grid = None if common is None else Fraction(2) ** (common - unit.fraction_bits)
        terms = tuple(
            _term(name, number, part, grid)
            for name, number, part in zip([*names, start_name], [*products, start], kept, strict=True)
        )
        self.steps.append(
            TraceStep(
                rule=f"{step.do} step of {len(step.places)} products onto {step.onto}",
                terms=terms,
                common_exponent=common,
                fraction_bits=None if common is None else unit.fraction_bits,
                total=total,
                rounding=unit.rounding,
                result_format=unit.accumulator,
                result=code,
            )
        )
        return code

    def _chain_f64(self, a: Sequence[Number], b: Sequence[Number], code: int) -> int:
        """c = fma(a, b, c) with k ascending."""
        direction: Direction = self.plan.rounding  # type: ignore[assignment]
        for place, (x, y) in enumerate(zip(a, b, strict=True)):
            c = unpack("f64", code)
            code = fma_f64(x, y, c, direction)
            terms = (_term(f"k={place}", multiply(x, y)), _term("C", c))
            self._record("fma(a, b, c)", terms, code, direction.upper())
        return code

    def _integer(self, a: Sequence[int], b: Sequence[int], c: int) -> int:
        """The exact sum of integer products and C."""
        products = [
            int(FORMATS[self.plan.a].decode(x)) * int(FORMATS[self.plan.b].decode(y)) for x, y in zip(a, b, strict=True)
        ]
        start = int(FORMATS["s32"].decode(c))
        result = add_integers(products, start, satfinite=self.plan.satfinite)
        terms = (
            *(_integer_term(f"k={place}", value) for place, value in enumerate(products)),
            _integer_term("C", start),
        )
        self._record("exact sum", terms, result, "clamped once" if self.plan.satfinite else "mod 2**32")
        return result

    def _record(self, rule: str, terms: tuple[Term, ...], result: int, rounding: str) -> None:
        """Keep a step that does not align its terms."""
        self.steps.append(TraceStep(rule, terms, None, None, None, rounding, self.plan.d, result))


def _unit(step: Step) -> Unit:
    """The unit of a step that adds products."""
    if step.unit is None:
        msg = f"step {step.do!r} has no unit"
        raise TypeError(msg)
    return step.unit


def convert(code: int, source: str, target: str) -> int:
    """An exact conversion to a wider format (F2FP of fp8, HADD2.F32 of C); NaN becomes the target's canonical one."""
    if source == target:
        return code
    number = unpack(source, code)
    if number.is_nan:
        return NAN_F16 if target == "f16" else NAN_F32
    if number.is_infinite:
        return infinity_code(target, negative=number.negative)
    return round_code(target, number.negative, number.significand, number.exponent - number.fraction, "rn")


def _term(name: str, number: Number, kept: int = 0, grid: Fraction | None = None) -> Term:
    """A term of the trace; without a grid nothing is cut."""
    if not number.is_finite:
        infinity = -math.inf if number.negative else math.inf
        return Term(name, math.nan if number.is_nan else infinity, None, 0, Fraction(0))
    exponent = number.exponent if number.aligns else None
    lost = Fraction(0) if grid is None else number.value - kept * grid
    return Term(name, number.value, exponent, kept, lost)


def _integer_term(name: str, value: int) -> Term:
    """A term of an exact sum of integers."""
    return Term(name, Fraction(value), None, value, Fraction(0))


def _products(a: Sequence[Number], b: Sequence[Number]) -> tuple[Term, ...]:
    """The products as terms."""
    return tuple(_term(f"k={place}", multiply(x, y)) for place, (x, y) in enumerate(zip(a, b, strict=True)))


def trace(
    plan: Plan,
    a: Sequence[int],
    b: Sequence[int],
    c: int,
    *,
    columns: Sequence[int] | None = None,
    scale_a: Sequence[int] = (),
    scale_b: Sequence[int] = (),
) -> list[TraceStep]:
    """Every step of one output: `a` is a row of A (stored elements), `b` a column of B, all codes.

    K may be a multiple of the instruction's: the D of one instruction is the C of the next. A sparse plan needs
    `columns`, the logical column of each stored element.
    """
    output = _Output(plan)
    met = [int(b[column]) for column in (range(len(b)) if columns is None else columns)]
    code = int(c)
    for index in range(len(b) // plan.k):
        stored = slice(index * plan.stored, (index + 1) * plan.stored)
        scales = slice(index * plan.scales, (index + 1) * plan.scales)
        code = output.run(
            [int(element) for element in a[stored]],
            met[stored],
            code,
            [int(scale) for scale in scale_a[scales]],
            [int(scale) for scale in scale_b[scales]],
        )
    return output.steps


def matmul(
    plan: Plan,
    a: Any,  # noqa: ANN401 - arrays of codes, typed in fast
    b: Any,  # noqa: ANN401
    c: Any,  # noqa: ANN401
    *,
    columns: Any = None,  # noqa: ANN401
    scale_a: Any = None,  # noqa: ANN401
    scale_b: Any = None,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """The slow twin of `fast.matmul`: the same arguments, the same codes, one output at a time."""
    out = c.astype(f"uint{max(8, FORMATS[plan.d].bits)}")
    for tile in range(c.shape[0]):
        for i in range(c.shape[1]):
            row = a[tile, i].tolist()
            met = None if columns is None else columns[tile, i].tolist()
            for j in range(c.shape[2]):
                steps = trace(
                    plan,
                    row,
                    b[tile, :, j].tolist(),
                    int(c[tile, i, j]),
                    columns=met,
                    scale_a=() if scale_a is None else scale_a[tile, i].tolist(),
                    scale_b=() if scale_b is None else scale_b[tile, :, j].tolist(),
                )
                out[tile, i, j] = steps[-1].result
    return out
