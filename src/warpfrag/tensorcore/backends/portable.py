"""The portable backend: every rule on whole arrays, with NumPy alone.

It needs no compiled code, and is used if the compiled backend is unavailable or does not support a rule. Float
operations (exact ones, and the f32 of `Chain`) run in the default environment.

    float_steps     fused rules with finite values
    integer_sums    integers, with NumPy's BLAS (below)
    _chain, ...     all other rules; fused rules with infinities and NaNs, on 64-bit integers as in `reference`

`integer_sums` is exact, because every partial sum is an integer that float32 represents. Products of two 8-bit integers
are at most 2**14 (u8: 255 * 255), so a sum of 1024 of them (u8: 258) is at most 2**24, in any order and with or without
fused multiply-adds. K is split into parts of that length; the sums of the parts are added as int32, which wraps like
the tensor core. An s8 gemm therefore takes about as long as a float32 gemm in NumPy. A BLAS that multiplies
float32 with fewer bits would not be exact, so a gemm of the largest integers is checked first; float64 is used if the
check fails.

A rule that clamps does so once per instruction. If C and K are too small for a sum to reach 2**31, nothing is clamped
and K is split as above; otherwise K is split at every instruction.

BLAS chooses its own number of threads (OPENBLAS_NUM_THREADS, OMP_NUM_THREADS and similar variables).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.arrays import Mask, Numbers
from warpfrag.formats.float_environment import exact_floats
from warpfrag.formats.number_formats import CANONICAL_NANS, FORMATS, Format
from warpfrag.tensorcore.backend_protocol import Codes, Grain, Job, OutputBlock, ProductOperands, Task
from warpfrag.tensorcore.backends import float_steps
from warpfrag.tensorcore.encodings import conversion
from warpfrag.tensorcore.rules import AlignedSum, Chain, Fma64, Fused, Grouped, IntegerSum, Popcount, Rule
from warpfrag.tensorcore.thread_split import allocate

Floats = np.dtype[np.floating[Any]]

EXACT_BITS = {np.dtype(np.float32): 24, np.dtype(np.float64): 30}
"""For each dtype, the number of bits up to which sums are exact and fit int32."""
ROWS_AT_ONCE = 512
"""The number of rows whose sums fit in the cache."""
BYTE = 1 << 8
INT32_MAX = (1 << 31) - 1
INT32_MIN = -(1 << 31)


@cache
def exact_floats_of_blas() -> Floats:
    """Return the dtype in which BLAS multiplies integers exactly: float32, or float64 if float32 fails the check."""
    random = np.random.default_rng(5)
    depth = 1 << 10
    a, b = random.choice([-128, -127, 127], (8, depth)), random.choice([-128, -127, 127], (depth, 8))
    a[0], b[:, 0] = -128, -128  # gives the largest possible sum
    made = a.astype(np.float32) @ b.astype(np.float32)
    return np.dtype(np.float32 if np.array_equal(made, a @ b) else np.float64)


def largest_of(fmt: Format) -> int:
    """Return the largest magnitude of an integer format."""
    return fmt.codes // 2 if fmt.signed else fmt.codes - 1


def decode_into(numbers: NDArray[Any], fmt: Format, codes: Codes) -> None:
    """Write the values of integer codes to an array."""
    bits = codes.astype(np.uint8, copy=False)
    if fmt.codes < BYTE:
        bits = bits & np.uint8(fmt.codes - 1)
        if fmt.signed:
            half = np.uint8(fmt.codes // 2)
            bits ^= half
            bits -= half
    numbers[...] = bits.view(np.int8) if fmt.signed else bits


def with_zeros(stored: NDArray[Any], columns: Codes, depth: int) -> NDArray[Any]:
    """Return a sparse A expanded with zeros."""
    full = np.zeros((*stored.shape[:-1], depth), stored.dtype)
    np.put_along_axis(full, columns.astype(np.int64), stored, axis=-1)
    return full


def integer_sums(rule: IntegerSum, operands: ProductOperands) -> Codes:
    """Return the codes of D for one or more tiles, as exact sums of integer products."""
    kind, formats = exact_floats_of_blas(), (FORMATS[rule.a], FORMATS[rule.b])
    depth, (*tiles, height, width) = operands.b.shape[-2], operands.c.shape
    stored, row_count = operands.a.shape[-1], min(height, ROWS_AT_ONCE)
    a_rows, b, products, parts = allocate(
        ((*tiles, row_count, stored), kind),
        (operands.b.shape, kind),
        ((*tiles, row_count, width), kind),
        ((*tiles, row_count, width), np.int32),
    )
    decode_into(b, formats[1], operands.b)
    total = operands.c.astype(np.uint32).view(np.int32)
    largest = largest_of(formats[0]) * largest_of(formats[1])
    clamps = rule.clamps and int(np.abs(total.astype(np.int64)).max(initial=0)) + depth * largest > INT32_MAX
    at_once = rule.k if clamps else (1 << EXACT_BITS[kind]) // largest
    for first_row in range(0, height, ROWS_AT_ONCE):
        rows = slice(first_row, first_row + ROWS_AT_ONCE)
        sums = total[..., rows, :]
        here = slice(sums.shape[-2])
        a, product, part = a_rows[..., here, :], products[..., here, :], parts[..., here, :]
        decode_into(a, formats[0], operands.a[..., rows, :])
        if operands.columns is not None:
            a = with_zeros(a, operands.columns[..., rows, :], depth)
        for first in range(0, depth, at_once):
            some = slice(first, first + at_once)
            np.matmul(a[..., some], b[..., some, :], out=product)
            np.copyto(part, product, casting="unsafe")  # the float32 is an exact integer
            if clamps:
                sums[...] = np.clip(np.add(sums, part, dtype=np.int64), INT32_MIN, INT32_MAX)
            else:
                sums += part
    return total.view(np.uint32)


Index = slice | EllipsisType | Numbers | None

AT_ONCE = 1 << 20
"""The number of products per step that are in memory; significands and exponents take 8 MB each."""


WHOLE = 1 << 30
"""A number that exceeds the rows and columns of any tile."""


class Portable:
    """The backend that needs only NumPy."""

    name = "portable"

    def compile(self, rule: Rule) -> PortableKernel:
        """Return a kernel for a rule."""
        return PortableKernel(rule)


class PortableKernel:
    """A rule as a function of one or more tiles."""

    grain = Grain(pieces_per_thread=4)

    def __init__(self, rule: Rule) -> None:
        """Choose the function for the rule's class."""
        self.rule = rule
        functions: dict[type[Rule], Callable[..., Codes]] = {
            Grouped: _grouped,
            Chain: _chain,
            Fma64: _fma_chain,
            IntegerSum: integer_sums,
            Popcount: _popcount,
        }
        self.function = functions.get(type(rule), _fused)
        self.takes_tiles = self.function in (_fused, integer_sums)  # these functions process several tiles at once
        if self.function is integer_sums:  # tiles are not split, because BLAS uses its own threads
            self.grain = Grain(rows=WHOLE, columns=WHOLE)

    def max_depth(self, height: int, width: int) -> int:  # noqa: ARG002 (it holds one step at a time)
        """Return an unlimited K, because only one step is in memory at a time."""
        return 1 << 62

    def start(self, operands: ProductOperands) -> Job:
        """Return a job whose blocks are slices of the operands."""
        return PortableJob(self, operands)

    def run_whole(self, operands: ProductOperands) -> Codes:
        """Run one job with one block."""
        job = PortableJob(self, operands)
        tiles, height, width = operands.c.shape
        job.run(OutputBlock(0, tiles, 0, height, 0, width))
        return job.out


class PortableJob:
    """A gemm in progress."""

    def __init__(self, kernel: PortableKernel, operands: ProductOperands) -> None:
        """Create a job; its blocks are slices of the operands."""
        self.kernel = kernel
        self.operands = operands
        self.out = np.empty(operands.c.shape, np.uint64 if kernel.rule.d == "f64" else np.uint32)

    def prepare(self, tile: int, pieces: int) -> list[Task]:  # noqa: ARG002 (the same for every kernel)
        """Return no tasks, because operands are decoded block by block."""
        return []

    def run(self, block: OutputBlock) -> None:
        """Compute a block, in parts that fit in scratch memory."""
        columns = slice(block.first_column, block.last_column)
        rows_at_once = max_rows(self.kernel.rule, self.operands.b.shape[1], block.last_column - block.first_column)
        together = max(1, rows_at_once // (block.last_row - block.first_row)) if self.kernel.takes_tiles else 1
        for tile in range(block.first_tile, block.last_tile, together):
            tiles = slice(tile, min(tile + together, block.last_tile))
            for first in range(block.first_row, block.last_row, rows_at_once):
                rows = slice(first, min(first + rows_at_once, block.last_row))
                part = self.operands.part(tiles if self.kernel.takes_tiles else tile, rows, columns)
                codes = run_tiles(self.kernel, part)
                if (codes.shape, codes.dtype) == (self.out.shape, self.out.dtype):  # a single block needs no copying
                    self.out = codes
                else:
                    self.out[tiles, rows, columns] = codes


def max_rows(rule: Rule, depth: int, width: int) -> int:
    """Return the number of rows, each of `width` columns, to compute at once in one or more tiles."""
    if isinstance(rule, IntegerSum):  # B is decoded for each part, and the sums take a few arrays as large as D
        return max(1, 8 * AT_ONCE // max(1, width))
    return max(1, AT_ONCE // max(1, min(depth, rule.k) * width))


@exact_floats
def run_tiles(kernel: PortableKernel, operands: ProductOperands) -> Codes:
    """Compute one tile, or several at once if the kernel supports it."""
    with np.errstate(all="ignore"):
        return kernel.function(kernel.rule, operands)


class Decoded(NamedTuple):
    """Decoded codes, like arrays of `soft_floats.Number`: (-1)**negative * significand * 2**(exponent - fraction)."""

    negative: Mask
    significand: Numbers
    exponent: Numbers
    fraction: int
    nan: Mask
    infinite: Mask

    def at(self, index: tuple[Index, ...]) -> Decoded:
        """Return the numbers selected by a NumPy index."""
        negative, significand, exponent, fraction, nan, infinite = self
        return Decoded(negative[index], significand[index], exponent[index], fraction, nan[index], infinite[index])

    @property
    def special(self) -> bool:
        """True if at least one number is infinite or NaN."""
        return bool(self.nan.any() or self.infinite.any())


def decode(name: str, codes: Codes) -> Decoded:
    """Decode codes, as `soft_floats.unpack` does for a single code."""
    fmt = FORMATS[name]
    wide = codes.astype(np.int64)
    negative = (wide & fmt.sign_bit) != 0
    magnitude = (wide & (fmt.codes - 1 - fmt.sign_bit)) >> fmt.unused
    field = magnitude >> fmt.fraction
    fraction = magnitude & ((1 << fmt.fraction) - 1)
    nan = infinite = np.zeros(codes.shape, bool)
    if fmt.nan == "ones":
        nan = magnitude == (1 << (fmt.exponent + fmt.fraction)) - 1
    elif fmt.nan == "ieee":
        top = field == (1 << fmt.exponent) - 1
        nan, infinite = top & (fraction != 0), top & (fraction == 0)
    if not fmt.fraction:  # ue8m0 has no subnormals: code 0 is 2**-127
        return Decoded(negative, np.where(nan, 0, 1), field - fmt.bias, 0, nan, infinite)
    significand = np.where(field > 0, fraction | (1 << fmt.fraction), fraction)
    significand = np.where(nan | infinite, 0, significand)
    return Decoded(negative, significand, np.maximum(field, 1) - fmt.bias, fmt.fraction, nan, infinite)


def shift(magnitude: Numbers, places: Numbers) -> Numbers:
    """Return magnitude * 2**places, truncated; a left shift must not overflow."""
    left = np.clip(places, 0, 62)
    return np.where(places >= 0, magnitude << left, magnitude >> np.clip(-places, 0, 63))


def round_codes(name: str, total: Numbers, exponent: Numbers, fraction: int, *, nearest: bool) -> Numbers:
    """Return the codes of total * 2**exponent, truncated or rounded to nearest even at `fraction` bits; never -0.

    This is the array version of `soft_floats.round_code` with `overflows`. |total| is below 2**53.
    """
    fmt = FORMATS[name]
    magnitude = np.abs(total)
    length = np.frexp(magnitude.astype(np.float64))[1].astype(np.int64)  # exact in every floating-point environment
    place = np.maximum(length - 1 + exponent, fmt.emin) - fraction
    down = place - exponent
    units = shift(magnitude, -down)
    if nearest:
        below = np.clip(down, 0, 62)
        rest = magnitude & ((np.int64(1) << below) - 1)
        half = np.where(down > 0, np.int64(1) << np.maximum(below - 1, 0), 1)
        units += (rest > half) | ((rest == half) & ((units & 1) == 1))
    dropped = fmt.fraction - fraction
    codes = ((place - dropped - (fmt.emin - fmt.fraction)) << fmt.fraction) + (units << dropped)
    codes = np.minimum(codes, ((1 << fmt.exponent) - 1) << fmt.fraction)
    return np.where((magnitude == 0) | (codes == 0), 0, np.where(total < 0, codes | fmt.sign_bit, codes))


class Terms(NamedTuple):
    """The terms of a step, [..., rows, terms, columns]: signed significands, exponents, and a mask of nonzero terms."""

    significand: Numbers
    exponent: Numbers
    fraction: int
    present: Mask


def aligned_sum(how: AlignedSum, terms: Terms, c: Decoded) -> Numbers:
    """Return codes [..., rows, columns] for finite terms, like `reference.fused_step` but on arrays."""
    floor = np.int64(how.zero_exponent)
    common = np.where(terms.present, terms.exponent, floor).max(axis=-2, initial=floor)
    common = np.maximum(common, np.where(c.significand != 0, c.exponent, floor))
    places = terms.exponent - common[..., None, :] + (how.fraction_bits - terms.fraction)
    kept = shift(np.abs(terms.significand), places)
    total = np.where(terms.significand < 0, -kept, kept).sum(axis=-2)
    kept_c = shift(c.significand, c.exponent - common + (how.fraction_bits - c.fraction))
    total += np.where(c.negative, -kept_c, kept_c)
    exponent = common - how.fraction_bits
    if how.rounding == "RNE-FP16":
        return round_codes("f16", total, exponent, 10, nearest=True)
    return round_codes("f32", total, exponent, 13 if how.rounding == "RZ-E8M13" else 23, nearest=False)


def with_specials(how: AlignedSum, codes: Numbers, nan: Mask, plus: Mask, minus: Mask) -> Numbers:
    """Return the codes, replaced where an infinity or NaN determines the result."""
    fmt = FORMATS[how.accumulator]
    infinity = ((1 << fmt.exponent) - 1) << fmt.fraction
    codes = np.where(plus, infinity, np.where(minus, infinity | fmt.sign_bit, codes))
    return np.where(nan | (plus & minus), how.nan, codes)


def _convert(source: str, target: str, codes: Codes) -> Codes:
    """Convert codes to a wider format, like `reference.convert` but on arrays."""
    if source == target:
        return codes
    if source == "f16":  # too large for a table
        return _codes_of_f32(_values_f16(codes))
    return conversion(source, target)[codes]


def _fused(rule: Fused, operands: ProductOperands) -> Codes:
    """Compute steps of truncated sums with k ascending, plain or scaled, for all tiles at once."""
    a = _convert(rule.a, rule.multiplicands[0], operands.a)
    b = _convert(rule.b, rule.multiplicands[1], operands.b)
    convert = float_steps.Conversions(partial(_convert, rule.c, rule.c_read_as), partial(_finish, rule))
    codes = float_steps.run(rule, operands, a, b, convert)
    return _fused_by_integers(rule, operands, a, b) if codes is None else codes


def _finish(rule: Fused, c: Codes, made: Codes) -> Codes:
    """Return D of an instruction, given its C and the sum of its steps in the accumulator's format."""
    if rule.adds_c_last:
        return _add_c(rule.d, c, made)
    return made if rule.d == rule.sum.accumulator else _codes_of_f16(_values_f32(made).astype(np.float64))


def _fused_by_integers(rule: Fused, operands: ProductOperands, codes_a: Codes, codes_b: Codes) -> Codes:
    """Compute fused steps for any codes, including infinities and NaNs."""
    a, b = decode(rule.multiplicands[0], codes_a), decode(rule.multiplicands[1], codes_b)
    special = a.special or b.special
    code = operands.c
    tiles = np.arange(len(code))[:, None, None]
    for index in range(operands.b.shape[1] // rule.k):
        c = decode(rule.c_read_as, _convert(rule.c, rule.c_read_as, code))
        scale = _scales(rule, operands, index)
        start = decode(rule.sum.accumulator, np.zeros(code.shape, np.int64)) if rule.adds_c_last else c
        for step in rule.steps:
            places = np.array(step) + index * rule.stored
            x = a.at((..., places, None))
            met = operands.columns
            y = b.at((slice(None), None, places)) if met is None else b.at((tiles, met[..., places]))
            terms = Terms(
                np.where(x.negative != y.negative, -1, 1) * x.significand * y.significand,
                x.exponent + y.exponent,
                x.fraction + y.fraction,
                (x.significand != 0) & (y.significand != 0),
            )
            if scale is not None:
                block = np.array(step) // (rule.k // rule.scales)
                terms = terms._replace(exponent=terms.exponent + scale.exponent[..., block, :])
            made = aligned_sum(rule.sum, terms, start)
            if special or start.special or (scale is not None and scale.nan.any()):
                nan, plus, minus = _special_products(x, y)
                if scale is not None:
                    nan |= scale.nan.any(axis=-2)
                plus |= start.infinite & ~start.negative
                minus |= start.infinite & start.negative
                made = with_specials(rule.sum, made, nan | start.nan, plus, minus)
            start = decode(rule.sum.accumulator, made)
        code = _finish(rule, code, made)
    return code


def _special_products(x: Decoded, y: Decoded) -> tuple[Mask, Mask, Mask]:
    """Return masks of the outputs with a product that is NaN, +infinity or -infinity."""
    infinite = x.infinite | y.infinite
    zero_x, zero_y = (~(part.infinite | part.nan) & (part.significand == 0) for part in (x, y))
    nan = x.nan | y.nan | (x.infinite & zero_y) | (zero_x & y.infinite)
    negative = x.negative != y.negative
    plus, minus = infinite & ~nan & ~negative, infinite & ~nan & negative
    return nan.any(axis=-2), plus.any(axis=-2), minus.any(axis=-2)


def _scales(rule: Rule, operands: ProductOperands, index: int) -> Decoded | None:
    """Return the scale factors of one instruction, those of A times those of B: [..., rows, blocks, columns]."""
    if operands.scale_a is None or operands.scale_b is None:
        return None
    blocks = slice(index * rule.scales, (index + 1) * rule.scales)
    x = decode(rule.scale_format, operands.scale_a[..., blocks]).at((..., None))
    y = decode(rule.scale_format, operands.scale_b[..., blocks, :]).at((..., None, slice(None), slice(None)))
    return Decoded(
        x.negative != y.negative,
        x.significand * y.significand,
        x.exponent + y.exponent,
        x.fraction + y.fraction,
        x.nan | y.nan,
        x.infinite | y.infinite,
    )


def _grouped(rule: Grouped, operands: ProductOperands) -> Codes:
    """Compute a grouped rule: exact sums of groups, scaled, then one truncated sum per instruction."""
    doubled = np.array([2 * FORMATS[rule.a].decode(code) for code in range(FORMATS[rule.a].codes)])
    # doubled elements are integers, so their products and sums are exact in float64
    a, b = doubled[operands.a], doubled[operands.b]
    code = operands.c
    for index in range(len(b) // rule.k):
        whole = slice(index * rule.k, (index + 1) * rule.k)
        x = a[:, whole].reshape(len(a), -1, rule.group).swapaxes(0, 1)
        y = b[whole].reshape(-1, rule.group, b.shape[1])
        total = (x @ y).astype(np.int64).swapaxes(0, 1)
        met = ((x != 0).astype(np.float64) @ (y != 0).astype(np.float64)).swapaxes(0, 1) > 0
        scale = _scales(rule, operands, index)
        if scale is None:
            raise TypeError("a grouped rule needs scale factors")
        block = np.arange(total.shape[1]) * rule.group // (rule.k // rule.scales)
        scale = scale.at((slice(None), block))
        present = met & (scale.significand != 0)
        terms = Terms(total * scale.significand, scale.exponent, 2 + scale.fraction, present)
        c = decode(rule.c, code)
        made = aligned_sum(rule.sum, terms, c)
        nan = c.nan | scale.nan.any(axis=1)
        code = with_specials(rule.sum, made, nan, c.infinite & ~c.negative, c.infinite & c.negative)
    return code


def _values_f32(codes: Codes) -> NDArray[np.float32]:
    return codes.astype(np.uint32).view(np.float32)


def _values_f16(codes: Codes) -> NDArray[np.float32]:
    return codes.astype(np.uint16).view(np.float16).astype(np.float32)


def _codes_of_f32(values: NDArray[np.float32]) -> Codes:
    return np.where(np.isnan(values), np.uint32(CANONICAL_NANS["f32"]), values.view(np.uint32))


def _codes_of_f16(values: NDArray[Any]) -> Codes:
    """Round to the nearest f16, ties to even; every NaN becomes the canonical NaN."""
    codes = values.astype(np.float16).view(np.uint16)
    return np.where(np.isnan(values), np.uint16(CANONICAL_NANS["f16"]), codes).astype(np.uint32)


def _add_c(name: str, c: Codes, part: Codes) -> Codes:
    """Add C to the tensor core's result with FADD or HADD2, rounded to nearest."""
    if name == "f16":
        return _codes_of_f16(_values_f16(c).astype(np.float64) + _values_f16(part).astype(np.float64))
    return _codes_of_f32(_values_f32(c) + _values_f32(part))


def _chain(rule: Chain, operands: ProductOperands) -> Codes:
    """Compute m8n8k4 in software; f16 products are exact in f32, so a multiply and an add equal one FFMA."""
    a, b = _values_f16(operands.a), _values_f16(operands.b)
    code = operands.c
    for first in range(0, len(b), rule.k):
        line = _values_f16(code) if rule.c == "f16" else _values_f32(code)
        p0, p1, p2, p3 = (a[:, k, None] * b[None, k] for k in range(first, first + 4))
        if rule.d == "f16":
            code = _codes_of_f16((line + (p0 + p1)) + (p2 + p3))
        else:
            code = _codes_of_f32(line + (((p0 + np.float32(0.0) + p1) + p2) + p3))
    return code


def _fma_chain(rule: Fma64, operands: ProductOperands) -> Codes:
    """Compute with the reference, because NumPy has no fused multiply-add."""
    from warpfrag.tensorcore import reference  # imports fractions, which no other rule needs

    codes: Codes = reference.matmul(rule, ProductOperands(operands.a[None], operands.b[None], operands.c[None]))[0]
    return codes


def _popcount(rule: Popcount, operands: ProductOperands) -> Codes:
    """Count ones: `A and B` is a product of bits; `A xor B` has the ones of A and of B, minus twice that product."""
    a, b = operands.a.astype(np.float64), operands.b.astype(np.float64)
    ones = a @ b
    if rule.operation == "xor":
        ones = a.sum(axis=1)[:, None] + b.sum(axis=0)[None] - 2 * ones
    total: Numbers = operands.c.astype(np.int64) + ones.astype(np.int64)
    return (total & 0xFFFFFFFF).astype(np.uint32)
