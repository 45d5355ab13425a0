"""From a plan to compiled loops: one small class per family, chosen once per plan.

An engine turns codes into what its kernel takes, decides what to share among threads, and gives back codes. Small
work runs in the calling thread; tiles are dealt out whole; one large tile is dealt out by rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from warpfrag.arithmetic.fused import Fused
from warpfrag.arithmetic.kernels import parameters as at
from warpfrag.arithmetic.sharing import LARGE_TILE, count_threads, share, share_tiles_or_rows
from warpfrag.errors import WarpfragError
from warpfrag.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from warpfrag.arithmetic.lowering import Plan
    from warpfrag.arithmetic.operands import Operands

    Codes = NDArray[Any]


class Engine(Protocol):
    """What runs a plan."""

    def run(self, operands: Operands, threads: int | None) -> Codes:
        """D's codes [T, M, N], of any unsigned type."""


class Chain:
    """m8n8k4 in software."""

    def __init__(self, plan: Plan) -> None:
        """Remember which accumulators the plan has."""
        self.c_format = at.IS_F16 if plan.c == "f16" else at.IS_F32
        self.d_format = at.IS_F16 if plan.d == "f16" else at.IS_F32

    def run(self, operands: Operands, threads: int | None) -> Codes:
        """Tiles whole, or rows where there is one."""
        from warpfrag.arithmetic.kernels.chain import chain_tiles

        a, b, c, *_ = operands
        wide = [np.ascontiguousarray(codes, np.uint32) for codes in (a, b, c)]
        out = np.empty(c.shape, np.uint32)

        def part(first_tile: int, last_tile: int, first_row: int, last_row: int) -> None:
            chain_tiles(*wide, self.c_format, self.d_format, out, first_tile, last_tile, first_row, last_row)

        share_tiles_or_rows(part, c, b.shape[1], threads)
        return out


class Integer:
    """8- and 4-bit integers."""

    def __init__(self, plan: Plan) -> None:
        """Tables from codes to values."""
        self.plan = plan
        self.tables = [
            np.array([FORMATS[name].decode(code) for code in range(FORMATS[name].codes)], np.int16)
            for name in (plan.a, plan.b)
        ]

    def run(self, operands: Operands, threads: int | None) -> Codes:
        """Tiles whole, or the rows of each large tile, on the threads."""
        from warpfrag.arithmetic.kernels.integer import integer_product, integer_tiles

        a, b, c, columns, *_ = operands
        plan = self.plan
        values_a = self.tables[0].take(a)
        values_b = self.tables[1].take(b)
        sums = np.array(c, np.uint32, order="C").view(np.int32)
        if columns is None:
            rows = np.arange(b.shape[1], dtype=np.int32).reshape(1, 1, -1)
        else:
            rows = np.ascontiguousarray(columns, np.int32)
        clamp = plan.satfinite
        work = values_a.size * b.shape[2]
        threads = count_threads(threads, work)
        if threads > 1 and work >= LARGE_TILE * len(sums):
            for tile in range(len(sums)):
                met = rows[tile if len(rows) > 1 else 0]

                def part(first: int, last: int, tile: int = tile, met: Codes = met) -> None:
                    width = sums.shape[2]
                    integer_product(
                        values_a[tile],
                        values_b[tile],
                        met,
                        sums[tile],
                        plan.stored,
                        plan.k,
                        clamp,
                        first,
                        last,
                        0,
                        width,
                    )

                share(part, sums.shape[1], threads)
        else:

            def tiles(first: int, last: int) -> None:
                integer_tiles(values_a, values_b, rows, sums, plan.stored, plan.k, clamp, first, last)

            share(tiles, len(sums), threads)
        return sums.view(np.uint32)


class Bits:
    """One-bit operands."""

    def __init__(self, plan: Plan) -> None:
        """Remember the operation."""
        self.is_xor = plan.bitop == "xor"

    def run(self, operands: Operands, threads: int | None) -> Codes:
        """Pack 64 bits a word, then tiles whole or rows."""
        from warpfrag.arithmetic.kernels.bits import bit_product, bit_tiles

        a, b, c, *_ = operands
        words_a = np.packbits(a, axis=2, bitorder="little").view(np.uint64)
        tiles, depth, width = b.shape
        bytes_b = np.packbits(b, axis=1, bitorder="little").reshape(tiles, depth // 64, 8, width)
        words_b = np.ascontiguousarray(bytes_b.swapaxes(2, 3)).view(np.uint64)[..., 0]
        sums = np.array(c, np.uint32, order="C").view(np.int32)
        work = words_a.size * width * 16
        threads = count_threads(threads, work)
        if threads > 1 and work >= LARGE_TILE * tiles:
            for tile in range(tiles):

                def part(first: int, last: int, tile: int = tile) -> None:
                    bit_product(words_a[tile], words_b[tile], sums[tile], self.is_xor, first, last)

                share(part, sums.shape[1], threads)
        else:

            def whole(first: int, last: int) -> None:
                bit_tiles(words_a, words_b, sums, self.is_xor, first, last)

            share(whole, tiles, threads)
        return sums.view(np.uint32)


class Double:
    """f64."""

    def __init__(self, plan: Plan) -> None:
        """Remember the rounding mode."""
        from warpfrag.arithmetic.kernels import llvm

        modes = {"rn": llvm.TO_NEAREST, "rz": llvm.TOWARDS_ZERO, "rm": llvm.DOWNWARD, "rp": llvm.UPWARD}
        self.rounding = modes[plan.rounding]

    def run(self, operands: Operands, threads: int | None) -> Codes:
        """Tiles whole, or the rows of each large tile, on the threads."""
        from warpfrag.arithmetic.kernels.double import double_product, double_tiles

        a, b, c, *_ = operands
        codes_a, codes_b, codes_c = (np.ascontiguousarray(codes, np.uint64).view(np.int64) for codes in (a, b, c))
        values_b = codes_b.view(np.float64)
        out = np.empty(c.shape, np.int64)
        work = codes_a.size * b.shape[2]
        threads = count_threads(threads, work)
        if threads > 1 and work >= LARGE_TILE * len(out):
            for tile in range(len(out)):

                def part(first: int, last: int, tile: int = tile) -> None:
                    matrices = (codes_a[tile], codes_b[tile], values_b[tile], codes_c[tile])
                    double_product(*matrices, self.rounding, out[tile], first, last)

                share(part, c.shape[1], threads)
        else:

            def tiles(first: int, last: int) -> None:
                double_tiles(codes_a, codes_b, values_b, codes_c, self.rounding, out, first, last)

            share(tiles, len(out), threads)
        return out.view(np.uint64)


class Grouped:
    """Block-scaled 4-bit floats."""

    def __init__(self, plan: Plan) -> None:
        """Tables from codes to doubled elements and to scales."""
        unit = plan.fused_steps[0].unit
        if unit is None:
            msg = "a grouped step always has a unit"
            raise TypeError(msg)
        self.plan = plan
        self.unit = unit
        elements = FORMATS[plan.a]
        self.doubled = np.array([round(2 * elements.decode(code)) for code in range(elements.codes)], np.int8)
        from warpfrag.arithmetic.numbers import unpack

        scales = [unpack(plan.scale_type, code) for code in range(256)]
        self.scale_units = np.array([scale.significand << (3 - scale.fraction) for scale in scales], np.int32)
        self.scale_exponents = np.array(
            [at.NAN_SCALE if scale.is_nan else scale.exponent for scale in scales], np.int32
        )

    def run(self, operands: Operands, threads: int | None) -> Codes:
        """Tiles whole, or rows where there is one."""
        from warpfrag.arithmetic.kernels.grouped import grouped_tiles

        a, b, c, _, scale_a, scale_b = operands
        decoded = (
            self.doubled.take(a),
            self.doubled.take(b),
            np.ascontiguousarray(c, np.uint32),
            self.scale_units.take(scale_a),  # type: ignore[arg-type]
            self.scale_units.take(scale_b),  # type: ignore[arg-type]
            self.scale_exponents.take(scale_a),  # type: ignore[arg-type]
            self.scale_exponents.take(scale_b),  # type: ignore[arg-type]
        )
        out = np.empty(c.shape, np.uint32)
        unit = self.unit
        rule = (self.plan.k, unit.group, self.plan.scales, unit.fraction_bits, unit.zero_exponent)

        def part(first_tile: int, last_tile: int, first_row: int, last_row: int) -> None:
            grouped_tiles(*decoded, *rule, out, first_tile, last_tile, first_row, last_row)

        share_tiles_or_rows(part, c, b.shape[1], threads)
        return out


def flushes_subnormals() -> bool:
    """Whether float operations of this thread give 0 where they should give a subnormal number."""
    return bool(np.nextafter(0.0, 1.0) * np.float64(1.0) == 0.0)


def engine_for(plan: Plan) -> Engine:
    """The family that runs a plan; refused where it could not be right."""
    if flushes_subnormals():
        msg = (
            "this process makes zeros of subnormal numbers (flush-to-zero; libraries built with -ffast-math and "
            "torch.set_flush_denormal switch it on): results would be wrong; switch it off, or use another process"
        )
        raise WarpfragError(msg)
    engines: dict[str, Callable[[Plan], Engine]] = {
        "fused": Fused,
        "scaled": Fused,
        "grouped": Grouped,
        "chain_f32": Chain,
        "chain_f16": Chain,
        "fma_f64": Double,
        "integer": Integer,
        "popcount": Bits,
    }
    arithmetic = next(step.do for step in plan.steps if step.do in engines)
    return engines[arithmetic](plan)
