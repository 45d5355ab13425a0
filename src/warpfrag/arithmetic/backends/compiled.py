"""The compiled backend: a kernel class per rule, over loops that numba has compiled.

A kernel turns codes into what its loops take, runs blocks of outputs, and gives back codes. Which blocks, and on
which threads, is the scheduler's affair.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property, lru_cache, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.arithmetic.encodings import ROUNDINGS, conversion, encoding_of, order_of, powers_of_two, split_scales
from warpfrag.arithmetic.kernels import constants as at
from warpfrag.arithmetic.kernels import fma64, fused
from warpfrag.arithmetic.kernels.chain import chain_block
from warpfrag.arithmetic.kernels.control_word import CONTROL_WORDS
from warpfrag.arithmetic.kernels.four_rows import STRIP
from warpfrag.arithmetic.kernels.grouped import grouped_block
from warpfrag.arithmetic.kernels.integer import integer_block
from warpfrag.arithmetic.kernels.popcount import popcount_block
from warpfrag.arithmetic.kernels.prepare import BLOCK, WORD, PreparedA, PreparedB, Source
from warpfrag.arithmetic.kernels.vector import COLUMNS
from warpfrag.arithmetic.kernels.ways import way_of
from warpfrag.arithmetic.protocol import Block, Grain
from warpfrag.arithmetic.rules import Chain, Fma64, Fused, Grouped, Integer, Popcount, Rule, Scaled
from warpfrag.arithmetic.schedule import split
from warpfrag.numerics.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from warpfrag.arithmetic.kernels.jit import Entry
    from warpfrag.arithmetic.protocol import Codes, Job, Operands, Task
    from warpfrag.numerics.formats import Format

CACHE_LINE = 64
"""Bytes: arrays start at a line of the cache."""
MOST_BITS = 25
"""Fraction bits for which `kernels.strip` is proved."""
MOST_PRODUCTS = 32
"""Products of a step for which it is: what they add up to stays in range."""
MOST_PREPARED = 1 << 27
"""Bytes of prepared operands, about: a longer K is run in parts, one after the other."""
PREPARED_BYTES = 12
"""Of each element: a float64, and at most 32 bits for its exponent."""
LEAST_DEPTH = 1 << 10
"""But never in smaller parts than this."""
LINE = 512
"""Columns that the other loops like to have together."""
_NONE = np.empty((0, 0, 0), np.int32)


class BlockJob:
    """One product whose loops take any block."""

    def __init__(self, loops: Callable[..., None], out: Codes, result: Codes) -> None:
        """`loops` takes a block; `out` is what it writes to, `result` the same as codes."""
        self.loops = loops
        self.out = result
        self.shape = out.shape

    def prepare(self, tile: int, pieces: int) -> list[Task]:  # noqa: ARG002 (nothing is prepared)
        """Nothing."""
        return []

    def run(self, block: Block) -> None:
        """Some outputs."""
        self.loops(np.array(block, np.int64))


class BlockKernel(ABC):
    """What the rules share whose loops take any block: all but the fused one."""

    entry: Entry
    grain = Grain(columns=LINE)

    @property
    def entry_of_parts(self) -> Entry:
        """What runs parts of a tile: the same."""
        return self.entry

    def __init__(self, rule: Rule) -> None:
        """Remember the rule."""
        self.rule = rule

    def most_depth(self, height: int, width: int) -> int:  # noqa: ARG002 (they need no room for K)
        """Any K."""
        return 1 << 62

    @abstractmethod
    def load(self, operands: Operands) -> tuple[tuple[Any, ...], Codes, Codes]:
        """What the loops take before the block; what they write to; and the same as codes."""

    def start(self, operands: Operands) -> Job:
        """Take a product on."""
        arguments, out, codes = self.load(operands)
        return BlockJob(partial(self.entry.run, *arguments), out, codes)

    def run_whole(self, operands: Operands) -> Codes:
        """All of it."""
        arguments, out, codes = self.load(operands)
        self.entry.run(*arguments, whole_of(out.shape))
        return codes


@lru_cache(64)
def whole_of(shape: tuple[int, int, int]) -> NDArray[np.int64]:
    """The bounds of a block with every output."""
    tiles, height, width = shape
    return np.array(Block(0, tiles, 0, height, 0, width), np.int64)


def _plain(array: Codes, kind: type[np.generic]) -> Codes:
    """An array as the loops are compiled for: contiguous, and not read-only, which is a type of its own to numba."""
    found = np.ascontiguousarray(array, kind)
    return found.copy() if found is array and not found.flags.writeable else found


def _integers(codes: Codes, row: Format) -> NDArray[np.int16]:
    """The numbers that codes of an integer format stand for."""
    values = codes.astype(np.int16)
    values &= np.int16(row.codes - 1)
    if row.signed:
        half = np.int16(row.codes // 2)
        values ^= half
        values -= half
    return values


def _is_f16(name: str) -> int:
    return at.IS_F16 if name == "f16" else at.IS_F32


class ChainKernel(BlockKernel):
    """m8n8k4 in software."""

    entry = chain_block

    def load(self, operands: Operands) -> tuple[tuple[Any, ...], Codes, Codes]:
        """Codes, and the accumulators' formats."""
        out = np.empty(operands.c.shape, np.uint32)
        codes = [_plain(array, np.uint32) for array in operands[:3]]
        return (*codes, _is_f16(self.rule.c), _is_f16(self.rule.d), out), out, out


class IntegerKernel(BlockKernel):
    """8- and 4-bit integers."""

    entry = integer_block

    def __init__(self, rule: Integer) -> None:
        """Remember the rule as what it is."""
        self.integer = rule
        self.rule = rule

    def load(self, operands: Operands) -> tuple[tuple[Any, ...], Codes, Codes]:
        """Values, and C as the sums to add to."""
        rule = self.integer
        a, b, c, columns, *_ = operands
        sums = np.array(c, np.uint32, order="C").view(np.int32)
        rows = np.arange(b.shape[1], dtype=np.int32).reshape(1, 1, -1) if columns is None else _plain(columns, np.int32)
        values = (_integers(a, FORMATS[rule.a]), _integers(b, FORMATS[rule.b]))
        return (*values, rows, sums, rule.stored, rule.k, rule.clamps), sums, sums.view(np.uint32)


class PopcountKernel(BlockKernel):
    """One-bit operands, 64 to a word."""

    entry = popcount_block

    def __init__(self, rule: Popcount) -> None:
        """Remember the operation."""
        self.rule = rule
        self.is_xor = rule.operation == "xor"

    def load(self, operands: Operands) -> tuple[tuple[Any, ...], Codes, Codes]:
        """Words, and C as the sums to add to."""
        a, b, c, *_ = operands
        words_a = np.packbits(a, axis=2, bitorder="little").view(np.uint64)
        tiles, depth, width = b.shape
        bits = np.asarray(b, np.uint8).reshape(tiles, depth // 64, 8, 8, width)
        bytes_b = bits[:, :, :, 0].copy()
        for place in range(1, 8):  # whole lines at once: packbits takes ten times as long along this axis
            bytes_b |= bits[:, :, :, place] << place
        words_b = np.ascontiguousarray(bytes_b.swapaxes(2, 3)).view(np.uint64)[..., 0]
        sums = np.array(c, np.uint32, order="C").view(np.int32)
        return (words_a, words_b, sums, self.is_xor), sums, sums.view(np.uint32)


class Fma64Kernel(BlockKernel):
    """f64."""

    entry = fma64.fma_block
    grain = Grain(STRIP, COLUMNS, fma64.ROWS_AT_ONCE)

    def __init__(self, rule: Fma64) -> None:
        """Remember the rounding."""
        self.rule = rule
        self.control_word = CONTROL_WORDS[rule.rounding]

    def load(self, operands: Operands) -> tuple[tuple[Any, ...], Codes, Codes]:
        """Codes as signed integers."""
        a, b, c = (_plain(array, np.uint64).view(np.int64) for array in operands[:3])
        out = np.empty(c.shape, np.int64)
        return (a, b, c, self.control_word, out), out, out.view(np.uint64)


class GroupedKernel(BlockKernel):
    """Block-scaled 4-bit floats."""

    entry = grouped_block

    def __init__(self, rule: Grouped) -> None:
        """Tables from codes to doubled elements and to scales."""
        self.rule = rule
        elements = FORMATS[rule.a]
        self.doubled = np.array([round(2 * elements.decode(code)) for code in range(elements.codes)], np.int8)
        self.scales = split_scales(rule.scale_format)
        how = rule.sum
        numbers = (rule.k, rule.group, rule.scales, how.fraction_bits, how.zero_exponent)
        self.numbers = np.array(numbers, np.int64)

    def load(self, operands: Operands) -> tuple[tuple[Any, ...], Codes, Codes]:
        """Elements doubled, scales as integers."""
        a, b, c, _, scale_a, scale_b = operands
        out = np.empty(c.shape, np.uint32)
        arguments = (
            self.doubled.take(a),
            self.doubled.take(b),
            _plain(c, np.uint32),
            self.scales.take(scale_a),  # type: ignore[arg-type]
            self.scales.take(scale_b),  # type: ignore[arg-type]
            self.numbers,
            out,
        )
        return arguments, out, out


class FusedKernel:
    """The truncated fused dot-product-add, plain or with a power of two per block."""

    entry = fused.fused_tiles
    entry_of_parts = fused.fused_block
    grain = Grain(STRIP, BLOCK, fused.ROWS_AT_ONCE, 4)

    def __init__(self, rule: Fused) -> None:
        """Collect the numbers of the rule and, where fp8 becomes f16, the table that does it."""
        self.rule = rule
        self.constants = fused_constants(rule)
        self.numbers = at.flatten(self.constants)
        self.converts = rule.multiplicands != (rule.a, rule.b)
        self.order = lru_cache(8)(partial(_orders, rule))

    @cached_property
    def tables(self) -> list[NDArray[np.uint32]]:
        """Tables from the codes of A and of B to the codes that are multiplied."""
        rule = self.rule
        pairs = zip((rule.a, rule.b), rule.multiplicands, strict=True)
        return [conversion(source, target) for source, target in pairs]

    def most_depth(self, height: int, width: int) -> int:
        """As much K as fits the room for prepared operands."""
        padded = height + -(-width // BLOCK) * BLOCK
        depth = max(LEAST_DEPTH, MOST_PREPARED // (padded * PREPARED_BYTES))
        return max(1, depth // self.rule.k) * self.rule.k

    def load(self, operands: Operands) -> tuple[Any, ...]:
        """What the loops take, but for the tiles."""
        a, b, c, columns, scale_a, scale_b = operands
        if self.converts:
            table_a, table_b = self.tables
            a, b = table_a[a], table_b[b]
        return (
            _plain(a, np.uint32),
            _plain(b, np.uint32),
            _plain(c, np.uint32),
            _NONE if columns is None else _plain(columns, np.int32),
            _NONE if scale_a is None else powers_of_two(scale_a),
            _NONE if scale_b is None else powers_of_two(scale_b),
            self.order(b.shape[1]),
            self.numbers,
            np.empty(c.shape, np.uint32),
        )

    def start(self, operands: Operands) -> Job:
        """Take a product on."""
        return FusedJob(self.constants, self.load(operands))

    def run_whole(self, operands: Operands) -> Codes:
        """All of it."""
        arguments = self.load(operands)
        self.entry.run(*arguments, whole_of(operands.c.shape))
        out: Codes = arguments[-1]
        return out


class FusedJob:
    """One fused product: whole tiles prepare themselves, a large one is prepared once for all of its blocks."""

    def __init__(self, constants: at.Constants, arguments: tuple[Any, ...]) -> None:
        """Keep what the loops take."""
        self.constants = constants
        self.arguments = arguments
        self.out: Codes = arguments[-1]
        self.tile: tuple[Any, ...] | None = None

    def prepare(self, tile: int, pieces: int) -> list[Task]:
        """Rows of A and blocks of B."""
        a, b, c, columns, scale_a, scale_b, orders, numbers, out = self.arguments
        order_a, order_b, places = np.split(orders, [a.shape[2], a.shape[2] + b.shape[1]])
        rows = columns[tile].take(order_a, axis=1) if len(columns) else columns.reshape(0, 0)
        scales = (scale[tile] if len(scale) else scale.reshape(0, 0) for scale in (scale_a, scale_b))
        source = Source(a[tile], b[tile], order_a, order_b, places, rows, *scales)
        height, width = out.shape[1:]
        blocks, steps = -(-width // BLOCK), order_a.size // self.constants.products
        words = -(-(order_b.size // steps) // WORD)
        elements_a, elements_b = (height, order_a.size), (blocks * order_b.size * BLOCK,)
        groups_a, groups_b = (height, steps, 1 + 2 * words), (blocks * steps * (1 + words) * BLOCK,)
        is_short = self.constants.is_short
        fields = _carve(
            (elements_a, np.float64),
            (elements_a, np.int32),
            (groups_a, np.int32),
            (groups_a if is_short else (0, 0, 0), np.int32),
            (elements_b, np.float64),
            (elements_b, np.int8),
            (groups_b, np.int32),
            (groups_b if is_short else (0,), np.uint8),
        )
        ready_a, ready_b = PreparedA(*fields[:4]), PreparedB(*fields[4:])
        self.tile = (ready_a, ready_b, source, numbers, c[tile], out[tile])
        by_column = [
            partial(fused.prepare_blocks.run, source, numbers, ready_b, *span) for span in split(blocks, pieces)
        ]
        by_row = [partial(fused.prepare_rows.run, source, numbers, ready_a, *span) for span in split(height, pieces)]
        return [*by_column, *by_row]

    def run(self, block: Block) -> None:
        """Whole tiles, or part of the one that is prepared."""
        if self.tile is None:
            fused.fused_tiles.run(*self.arguments, np.array(block, np.int64))
            return
        blocks = (block.first_column // BLOCK, -(-block.last_column // BLOCK))
        fused.fused_block.run(*self.tile, fused.Part(block.first_row, block.last_row, *blocks))


def fused_constants(rule: Fused) -> at.Constants:
    """The numbers of a rule, as the kernels read them."""
    how, products = rule.sum, len(rule.steps[0])
    if not Compiled.holds(rule):
        msg = (
            f"the kernels of the fused rule keep at most {MOST_BITS} fraction bits, and add products by fours, at most "
            f"{MOST_PRODUCTS}; got {how.fraction_bits} bits, {products} products"
        )
        raise ValueError(msg)
    way = way_of(rule)
    return at.Constants(
        a=at.Encoding(*encoding_of(FORMATS[rule.multiplicands[0]])),
        b=at.Encoding(*encoding_of(FORMATS[rule.multiplicands[1]])),
        fraction_bits=how.fraction_bits,
        products=products,
        zero_exponent=how.zero_exponent,
        round_to=ROUNDINGS[how.rounding],
        c_format=_is_f16(rule.c),
        c_emin=FORMATS[rule.c_read_as].emin,
        d_format=_is_f16(rule.d),
        steps=len(rule.steps),
        adds_c_last=int(way.adds_c_last),
        is_sparse=int(way.is_sparse),
        is_narrow=int(way.is_narrow),
        is_short=int(way.is_short),
    )


def _orders(rule: Fused, depth: int) -> NDArray[np.int32]:
    """For a whole K: in which order A's elements are added, how B's rows are stored, where each row of B is."""
    stored, rows = order_of(rule, depth)
    return np.concatenate([stored, rows, np.argsort(rows)]).astype(np.int32)


def _carve(*wanted: tuple[tuple[int, ...], type[np.generic]]) -> list[NDArray[Any]]:
    """Arrays taken from one block of memory.

    The C library keeps one large block for the next product; many smaller ones it hands back to the system, and
    getting their pages again took a tenth of the time of a product of 512 x 512 x 512.
    """
    sizes = [math.prod(shape) * np.dtype(kind).itemsize for shape, kind in wanted]
    starts = [0, *accumulate(-(-size // CACHE_LINE) * CACHE_LINE for size in sizes)]
    memory = np.empty(starts[-1] + CACHE_LINE, np.uint8)
    memory = memory[-memory.ctypes.data % CACHE_LINE :]
    return [
        memory[start : start + size].view(kind).reshape(shape)
        for start, size, (shape, kind) in zip(starts, sizes, wanted, strict=False)
    ]


KERNELS: dict[type[Rule], Callable[[Any], BlockKernel | FusedKernel]] = {
    Fused: FusedKernel,
    Scaled: FusedKernel,
    Grouped: GroupedKernel,
    Chain: ChainKernel,
    Fma64: Fma64Kernel,
    Integer: IntegerKernel,
    Popcount: PopcountKernel,
}


class Compiled:
    """The backend."""

    name = "compiled"

    def compile(self, rule: Rule) -> BlockKernel | FusedKernel:
        """A kernel for a rule; its loops are compiled when they first run, or loaded if they were before."""
        return KERNELS[type(rule)](rule)

    @staticmethod
    def holds(rule: Rule) -> bool:
        """Whether the loops can run a rule: the fused ones are proved up to a number of bits and products."""
        if not isinstance(rule, Fused):
            return True
        lengths = {len(step) for step in rule.steps}
        return rule.sum.fraction_bits <= MOST_BITS and len(lengths) == 1 and max(lengths) <= MOST_PRODUCTS

    @staticmethod
    def is_cached(kernel: BlockKernel | FusedKernel, *, split: bool) -> bool:
        """Whether the loops of a kernel have been compiled before, for whole tiles or for parts of one."""
        return (kernel.entry_of_parts if split else kernel.entry).is_cached
