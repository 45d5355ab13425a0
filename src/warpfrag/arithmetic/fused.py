"""The engine of the truncated fused dot-product-add, plain or with a power of two per block.

It puts the numbers of a plan where the kernels look for them, widens fp8 to f16 where the machine does, and runs
either whole tiles or, for one large tile, operands prepared once and rows dealt out.
"""

from __future__ import annotations

import math
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.arithmetic.kernels import parameters as at
from warpfrag.arithmetic.sharing import LARGE_TILE, count_threads, cut, run_all, share
from warpfrag.formats import FORMATS, Format

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.arithmetic.lowering import Plan
    from warpfrag.arithmetic.operands import Operands

    Codes = NDArray[Any]
    Order = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]

LINE = 64
"""Bytes: arrays start at a line of the cache."""
MOST_BITS = 25
"""Fraction bits for which `kernels.strip` is proved."""
MOST_PRODUCTS = 32
"""Products of a step: one bit of a word for each element of B that may be met."""
_NONE = np.empty((0, 0, 0), np.int32)


class Fused:
    """The truncated fused dot-product-add, plain or with a power of two per block."""

    def __init__(self, plan: Plan) -> None:
        """Collect the numbers of the plan and, where fp8 becomes f16, the table that does it."""
        from warpfrag.arithmetic.kernels.fused import fused_tiles

        self.plan = plan
        self.tiles = fused_tiles
        self.numbers = fused_numbers(plan)
        self.orders: dict[int, Order] = {}

    @cached_property
    def widened(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Tables from the codes of A and of B to the codes that enter the arithmetic."""
        from warpfrag.arithmetic.reference import convert

        tables = []
        for source, target in ((self.plan.a, self.plan.operand_a), (self.plan.b, self.plan.operand_b)):
            codes = [convert(code, source, target) for code in range(FORMATS[source].codes)]
            tables.append(np.array(codes, np.uint32))
        return tables[0], tables[1]

    def order(self, depth: int) -> Order:
        """For a whole K: in which order A's elements are added, how B's rows are stored, where each row of B is."""
        found = self.orders.get(depth)
        if found is None:
            plan = self.plan
            once = np.array([place for step in plan.fused_steps for place in step.places], np.int32)
            starts = np.arange(depth // plan.k, dtype=np.int32)[:, None]
            a_order = np.ascontiguousarray((once + starts * np.int32(plan.stored)).reshape(-1))
            # Stored element p of a sparse A meets row 2 p or 2 p + 1, or those of its neighbour in the chunk.
            b_order = (2 * a_order[:, None] + np.arange(2, dtype=np.int32)).reshape(-1) if plan.is_sparse else a_order
            found = self.orders[depth] = (a_order, b_order, np.argsort(b_order).astype(np.int32))
        return found

    def run(self, operands: Operands, threads: int | None) -> Codes:
        """Tiles whole, or the rows of each large tile, on the threads."""
        a, b, c, columns, scale_a, scale_b = operands
        if self.plan.a != self.plan.operand_a:
            table_a, table_b = self.widened
            a, b = table_a[a], table_b[b]
        wide_a = np.ascontiguousarray(a, np.uint32)
        wide_b = np.ascontiguousarray(b, np.uint32)
        wide_c = np.ascontiguousarray(c, np.uint32)
        met = _NONE if columns is None else np.ascontiguousarray(columns, np.int32)
        exponents_a = _NONE if scale_a is None else _powers_of_two(scale_a)
        exponents_b = _NONE if scale_b is None else _powers_of_two(scale_b)
        order = self.order(b.shape[1])
        out = np.empty(c.shape, np.uint32)
        work = wide_a.size * b.shape[2]
        threads = count_threads(threads, work)
        if threads > 1 and work >= LARGE_TILE * len(out):
            for tile in range(len(out)):
                _share_fused_tile(
                    wide_a[tile],
                    wide_b[tile],
                    wide_c[tile],
                    met[tile] if columns is not None else met.reshape(0, 0),
                    exponents_a[tile] if scale_a is not None else exponents_a.reshape(0, 0),
                    exponents_b[tile] if scale_b is not None else exponents_b.reshape(0, 0),
                    order,
                    self.numbers,
                    out[tile],
                    threads,
                )
            return out

        prepared = (wide_a, wide_b, wide_c, met, exponents_a, exponents_b, *order, self.numbers, out)
        if threads == 1:
            self.tiles(*prepared, 0, len(out))
        else:
            share(lambda first, last: self.tiles(*prepared, first, last), len(out), threads, 4)
        return out


def fused_numbers(plan: Plan) -> NDArray[np.int64]:
    """The plan's numbers, where `kernels.parameters` says they are."""
    steps = plan.fused_steps
    unit = steps[0].unit
    if unit is None:
        msg = "a fused step always has a unit"
        raise TypeError(msg)
    places = len(steps[0].places)
    if (
        unit.fraction_bits > MOST_BITS
        or places % 4
        or places > (MOST_PRODUCTS // 2 if plan.is_sparse else MOST_PRODUCTS)
    ):
        msg = (
            f"unit {unit.unit}: the kernels of the fused rule keep at most {MOST_BITS} fraction bits, and add products "
            f"by fours, at most {MOST_PRODUCTS} (sparse: half of it); got {unit.fraction_bits} bits, {places} products"
        )
        raise ValueError(msg)
    numbers = np.zeros(at.LENGTH, np.int64)
    for base, name in ((at.FORMAT_A, plan.operand_a), (at.FORMAT_B, plan.operand_b)):
        row = FORMATS[name]
        numbers[base + at.FRACTION] = row.fraction
        numbers[base + at.BIAS] = row.bias
        numbers[base + at.UNUSED] = row.unused
        numbers[base + at.SIGN_PLACE] = row.bits - 1
        numbers[base + at.SPECIAL_FROM], numbers[base + at.INFINITY] = _specials(row)
    numbers[at.FRACTION_BITS] = unit.fraction_bits
    numbers[at.PRODUCTS] = places
    numbers[at.ZERO_EXPONENT] = unit.zero_exponent
    numbers[at.ROUND_TO] = {"RZ-FP32": at.TO_F32_RZ, "RNE-FP16": at.TO_F16_RN, "RZ-E8M13": at.TO_E8M13_RZ}[
        unit.rounding
    ]
    numbers[at.C_FORMAT] = at.IS_F16 if plan.c == "f16" else at.IS_F32
    converted = any(step.do == "read_c" for step in plan.steps)
    numbers[at.C_EMIN] = FORMATS["f32" if converted else plan.c].emin
    numbers[at.D_FORMAT] = at.IS_F16 if plan.d == "f16" else at.IS_F32
    numbers[at.STEPS] = len(steps)
    numbers[at.ADD_C_LAST] = any(step.do == "add_c" for step in plan.steps)
    return numbers


def _specials(row: Format) -> tuple[int, int]:
    """The least magnitude that is not a finite value, and the magnitude of infinity (-1: none)."""
    top = 1 << (row.exponent + row.fraction)
    if row.nan == "ieee":
        infinity = top - (1 << row.fraction)
        return infinity, infinity
    return (top - 1 if row.nan == "ones" else top), -1


def _powers_of_two(codes: Codes) -> NDArray[np.int32]:
    """ue8m0 codes as exponents."""
    exponents = codes.astype(np.int32) - FORMATS["ue8m0"].bias
    exponents[codes == FORMATS["ue8m0"].nan_code] = at.NAN_SCALE
    return exponents


def _share_fused_tile(
    a: Codes,
    b: Codes,
    c: Codes,
    columns: Codes,
    scale_a: Codes,
    scale_b: Codes,
    orders: Order,
    numbers: NDArray[np.int64],
    out: Codes,
    threads: int,
) -> None:
    """One large tile: operands prepared once, then rows and column blocks dealt out."""
    from warpfrag.arithmetic.kernels.fused import ROWS_AT_ONCE, Source, fused_rows, read_c, rows_met, write_d
    from warpfrag.arithmetic.kernels.prepare import BLOCK, Ready, prepare_a, prepare_b
    from warpfrag.arithmetic.kernels.strip import STRIP

    order, b_order, b_places = orders
    height, width = out.shape
    strips, blocks = -(-height // STRIP), -(-width // BLOCK)
    steps = order.size // int(numbers[at.PRODUCTS])
    kinds: list[type[np.generic]] = [np.float64, np.int8, np.int32, np.uint32]  # of the fields of Ready
    shapes_a = [(strips * STRIP, order.size)] * 2 + [(height, steps)] * 2
    shapes_b = [(blocks * b_order.size * BLOCK,)] * 2 + [(blocks * steps * BLOCK,)] * 2
    *fields, a_nonzero, accumulators = _carve(
        *zip(shapes_a, kinds, strict=True),
        *zip(shapes_b, kinds, strict=True),
        ((height, steps), np.uint32),
        ((blocks, height, min(BLOCK, -(-width // 8) * 8)), np.float32),
    )
    ready_a, ready_b = Ready(*fields[:4]), Ready(*fields[4:])
    rows = rows_met(columns, order) if columns.size else columns
    source = Source(a, b, order, rows, scale_a, scale_b, numbers)

    def prepare_rows(first: int, last: int) -> None:
        prepare_a(a, order, rows, b_places, scale_a, numbers, ready_a, a_nonzero, first, last)

    def prepare_blocks(first: int, last: int) -> None:
        prepare_b(b, b_order, steps, scale_b, numbers, ready_b, first, last)

    def multiply(first_strip: int, last_strip: int, *some_blocks: int) -> None:
        part = (first_strip * STRIP, min(last_strip * STRIP, height), *some_blocks)
        read_c(c, numbers, accumulators, *part)
        fused_rows(ready_a, a_nonzero, ready_b, b_places, source, accumulators, *part)
        write_d(accumulators, numbers, out, *part)

    pieces = 4 * threads
    run_all([*cut(prepare_blocks, blocks, pieces), *cut(prepare_rows, height, pieces)], threads)
    if strips >= blocks:
        at_least = -(-height // ROWS_AT_ONCE)
        run_all(cut(lambda *some: multiply(*some, 0, blocks), strips, max(pieces, at_least)), threads)
    else:
        run_all(cut(lambda *some: multiply(0, strips, *some), blocks, pieces), threads)


def _carve(*wanted: tuple[tuple[int, ...], type[np.generic]]) -> list[NDArray[Any]]:
    """Arrays cut from one block of memory.

    The C library keeps one large block for the next product; many smaller ones it hands back to the system, and
    getting their pages again took a tenth of the time of a product of 512 x 512 x 512.
    """
    sizes = [math.prod(shape) * np.dtype(kind).itemsize for shape, kind in wanted]
    starts = [0, *accumulate(-(-size // LINE) * LINE for size in sizes)]
    memory = np.empty(starts[-1] + LINE, np.uint8)
    memory = memory[-memory.ctypes.data % LINE :]
    return [
        memory[start : start + size].view(kind).reshape(shape)
        for start, size, (shape, kind) in zip(starts, sizes, wanted, strict=False)
    ]
