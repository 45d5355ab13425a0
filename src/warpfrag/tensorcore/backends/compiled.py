"""The compiled backend: a kernel class per rule, over loops that numba has compiled.

A kernel turns codes into what its loops take, runs blocks of outputs, and returns codes. Which blocks, and on which
threads, `schedule` decides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.number_formats import FORMATS
from warpfrag.tensorcore.backend_protocol import Codes, Grain, Job, OutputBlock, ProductOperands, Task
from warpfrag.tensorcore.encodings import (
    ROUNDINGS,
    conversion,
    encoding_of,
    loop_variant_of,
    order_of,
    powers_of_two,
    split_scales,
)
from warpfrag.tensorcore.kernels import fma64, fused
from warpfrag.tensorcore.kernels.constants import IS_F16, IS_F32, Constants, Encoding, flatten
from warpfrag.tensorcore.kernels.control_word import CONTROL_WORDS
from warpfrag.tensorcore.kernels.jit import KernelEntry
from warpfrag.tensorcore.kernels.prepare import BLOCK, WORD, PreparedA, PreparedB, SourceOperands
from warpfrag.tensorcore.kernels.unfused import GroupedNumbers, chain_block, grouped_block, popcount_block
from warpfrag.tensorcore.kernels.vector import COLUMNS, STRIP
from warpfrag.tensorcore.rules import BlockScaled, Chain, Fma64, Fused, Grouped, Popcount, Rule
from warpfrag.tensorcore.schedule import allocate, split

MAX_FRACTION_BITS = 25
"""Fraction bits for which `kernels.strip` is proved."""
MAX_PRODUCTS = 32
"""Products of a step for which it is: what they add up to stays in range."""
MAX_PREPARED_BYTES = 1 << 27
"""Bytes of prepared operands, about: a longer K is run in parts, one after the other."""
PREPARED_BYTES = 12
"""The bytes of a prepared element: a float64, and at most 32 bits for its exponent."""
MIN_DEPTH = 1 << 10
"""K is not cut into smaller parts than this."""
MAX_KEPT = 1 << 14
"""Elements of A, B and C up to which the memory of a product is kept for the next of its shape."""
KEPT_SHAPES = 8
"""Shapes of each rule for which it is."""
LINE = 512
"""Columns of a block for the loops that are not fused: whole lines of the caches."""
_NONE = np.empty((0, 0, 0), np.int32)


class LoopArguments(NamedTuple):
    """The arguments of loops before the bounds of a block, and the result that they write, as codes."""

    before_bounds: tuple[object, ...]
    codes: Codes


class BlockJob:
    """A product whose loops take any block."""

    def __init__(self, loops: Callable[[NDArray[np.int64]], None], out: Codes) -> None:
        """Keep `loops`, which takes the bounds of a block and writes its part of `out`."""
        self.loops = loops
        self.out = out

    def prepare(self, tile: int, pieces: int) -> list[Task]:  # noqa: ARG002 (the same for every kernel)
        """Return no tasks: these loops read the operands as they are."""
        return []

    def run(self, block: OutputBlock) -> None:
        """Run the loops on a block."""
        self.loops(np.array(block, np.int64))


class BlockKernel(ABC):
    """The base of the kernels whose loops take any block: all but the fused one."""

    entry: KernelEntry[...]
    grain = Grain(columns=LINE)

    @property
    def entry_of_parts(self) -> KernelEntry[...]:
        """The entry that runs parts of a tile: the one that runs whole tiles."""
        return self.entry

    def __init__(self, rule: Rule) -> None:
        """Compile nothing before the first run."""
        self.rule = rule

    def max_depth(self, height: int, width: int) -> int:  # noqa: ARG002 (they need no scratch memory for K)
        """Return a K that is never exceeded: no scratch memory grows with it."""
        return 1 << 62

    @abstractmethod
    def load(self, operands: ProductOperands) -> LoopArguments:
        """Return the operands of a product as the loops take them."""

    def start(self, operands: ProductOperands) -> Job:
        """Load the operands; the job runs the loops on any block."""
        arguments, codes = self.load(operands)
        return BlockJob(partial(self.entry.run, *arguments), codes)

    def run_whole(self, operands: ProductOperands) -> Codes:
        """Load the operands, and run the loops on every output."""
        arguments, codes = self.load(operands)
        self.entry.run(*arguments, whole_of(codes.shape))
        return codes


@lru_cache(64)
def whole_of(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the bounds of a block with every output."""
    tiles, height, width = shape
    return np.array(OutputBlock(0, tiles, 0, height, 0, width), np.int64)


def _plain(array: Codes, kind: type[np.generic]) -> Codes:
    """Return an array as the loops are compiled for: contiguous and writable (numba has other types for the rest)."""
    contiguous = np.ascontiguousarray(array, kind)
    return contiguous.copy() if contiguous is array and not contiguous.flags.writeable else contiguous


def _is_f16(name: str) -> int:
    return IS_F16 if name == "f16" else IS_F32


class ChainKernel(BlockKernel):
    """m8n8k4 in software: a chain of f32 operations."""

    entry = chain_block

    def load(self, operands: ProductOperands) -> LoopArguments:
        """Return codes, and the accumulators' formats."""
        out = np.empty(operands.c.shape, np.uint32)
        codes = [_plain(array, np.uint32) for array in operands[:3]]
        return LoopArguments((*codes, _is_f16(self.rule.c), _is_f16(self.rule.d), out), out)


class PopcountKernel(BlockKernel):
    """One-bit operands, 64 to a word."""

    entry = popcount_block

    def __init__(self, rule: Popcount) -> None:
        """Find out which of the two operations the rule has."""
        super().__init__(rule)
        self.is_xor = rule.operation == "xor"

    def load(self, operands: ProductOperands) -> LoopArguments:
        """Return words, and C as the sums to add to."""
        a, b, c, *_ = operands
        words_a = np.ascontiguousarray(np.packbits(a, axis=2, bitorder="little")).view(np.uint64)
        tiles, depth, width = b.shape
        bits = np.asarray(b, np.uint8).reshape(tiles, depth // 64, 8, 8, width)
        bytes_b = bits[:, :, :, 0].copy()
        for place in range(1, 8):  # whole lines at once: packbits takes ten times as long along this axis
            bytes_b |= bits[:, :, :, place] << place
        words_b = np.ascontiguousarray(bytes_b.swapaxes(2, 3)).view(np.uint64)[..., 0]
        sums = np.array(c, np.uint32, order="C").view(np.int32)
        return LoopArguments((words_a, words_b, sums, self.is_xor), sums.view(np.uint32))


class Fma64Kernel(BlockKernel):
    """f64: a chain of fused multiply-adds."""

    entry = fma64.fma_block
    grain = Grain(STRIP, COLUMNS, fma64.ROWS_AT_ONCE)

    def __init__(self, rule: Fma64) -> None:
        """Find the control word of the rounding."""
        super().__init__(rule)
        self.control_word = CONTROL_WORDS[rule.rounding]

    def load(self, operands: ProductOperands) -> LoopArguments:
        """Return codes as signed integers."""
        a, b, c = (_plain(array, np.uint64).view(np.int64) for array in operands[:3])
        out = np.empty(c.shape, np.int64)
        return LoopArguments((a, b, c, self.control_word, out), out.view(np.uint64))


class GroupedKernel(BlockKernel):
    """Block-scaled 4-bit floats: exact sums of groups, then one truncated sum."""

    entry = grouped_block

    def __init__(self, rule: Grouped) -> None:
        """Make tables from codes to doubled elements and to scales."""
        super().__init__(rule)
        elements = FORMATS[rule.a]
        self.doubled = np.array([round(2 * elements.decode(code)) for code in range(elements.codes)], np.int8)
        self.scales = split_scales(rule.scale_format)
        how = rule.sum
        numbers = GroupedNumbers(rule.k, rule.group, rule.scales, how.fraction_bits, how.zero_exponent)
        self.numbers = np.array(numbers, np.int64)

    def load(self, operands: ProductOperands) -> LoopArguments:
        """Return doubled elements, and scales as integers."""
        a, b, c, _, scale_a, scale_b = operands
        if scale_a is None or scale_b is None:
            raise TypeError("a grouped rule has scale factors")
        out = np.empty(c.shape, np.uint32)
        elements = (self.doubled.take(a), self.doubled.take(b), _plain(c, np.uint32))
        return LoopArguments((*elements, self.scales.take(scale_a), self.scales.take(scale_b), self.numbers, out), out)


class FusedArguments(NamedTuple):
    """The arguments of `kernels.fused.fused_tiles` before the bounds of a block: every tile of a product."""

    a: NDArray[np.uint32]
    b: NDArray[np.uint32]
    c: NDArray[np.uint32]
    columns: NDArray[np.int32]
    scale_a: NDArray[np.int32]
    scale_b: NDArray[np.int32]
    orders: NDArray[np.int32]
    numbers: NDArray[np.int64]
    out: NDArray[np.uint32]


class Workspace(NamedTuple):
    """Memory for one small product, and the loops that run on it, with their arguments found once."""

    memory: tuple[Codes, ...]
    """The memory of the operands, in the order of `FusedArguments`."""
    out: Codes
    run: Callable[[], None]


class PreparedTile(NamedTuple):
    """The arguments of `kernels.fused.fused_block` before the part to compute: one tile, its operands prepared."""

    a: PreparedA[NDArray[Any]]
    b: PreparedB[NDArray[Any]]
    source: SourceOperands
    numbers: NDArray[np.int64]
    c: NDArray[np.uint32]
    out: NDArray[np.uint32]


class FusedKernel:
    """The truncated fused dot-product-add, plain or with a power of two per block."""

    entry = fused.fused_tiles
    entry_of_parts = fused.fused_block
    grain = Grain(STRIP, BLOCK, fused.ROWS_AT_ONCE, 4)

    def __init__(self, rule: Fused) -> None:
        """Collect the numbers of the rule and, if fp8 becomes f16, the conversion table."""
        self.rule = rule
        self.constants = fused_constants(rule)
        self.numbers = flatten(self.constants)
        self.converts = rule.multiplicands != (rule.a, rule.b)
        self.is_plain = not (self.converts or rule.is_sparse or rule.scales)
        self.order = lru_cache(8)(partial(_orders, rule))
        self.idle: Callable[..., list[Workspace]] = lru_cache(KEPT_SHAPES)(lambda *_shapes: [])
        """Workspaces that no thread uses, by the shapes of A and B."""

    @cached_property
    def tables(self) -> list[NDArray[np.uint32]]:
        """The tables from the codes of A and of B to the codes that are multiplied."""
        rule = self.rule
        pairs = zip((rule.a, rule.b), rule.multiplicands, strict=True)
        return [conversion(source, target) for source, target in pairs]

    def max_depth(self, height: int, width: int) -> int:
        """Return the longest K whose operands fit MAX_PREPARED_BYTES."""
        padded = height + -(-width // BLOCK) * BLOCK
        depth = max(MIN_DEPTH, MAX_PREPARED_BYTES // (padded * PREPARED_BYTES))
        return max(1, depth // self.rule.k) * self.rule.k

    def words(self, operands: ProductOperands) -> tuple[Codes, ...]:
        """Return the operands as the loops take them, in the order of their arguments."""
        a, b, c, columns, scale_a, scale_b = operands
        if self.converts:
            table_a, table_b = self.tables
            a, b = table_a.take(a), table_b.take(b)
        if columns is None:
            columns = _NONE
        if scale_a is None or scale_b is None:
            return a, b, c, columns, _NONE, _NONE
        return a, b, c, columns, powers_of_two(scale_a), powers_of_two(scale_b)

    def load(self, operands: ProductOperands) -> FusedArguments:
        """Return the operands of a product as the loops take them."""
        a, b, c, columns, scale_a, scale_b = self.words(operands)
        return FusedArguments(
            _plain(a, np.uint32),
            _plain(b, np.uint32),
            _plain(c, np.uint32),
            _plain(columns, np.int32),
            _plain(scale_a, np.int32),
            _plain(scale_b, np.int32),
            self.order(operands.b.shape[1]),
            self.numbers,
            np.empty(operands.c.shape, np.uint32),
        )

    def start(self, operands: ProductOperands) -> Job:
        """Load the operands; the job prepares a large tile before it is run in parts."""
        return FusedJob(self.constants, self.load(operands))

    def run_whole(self, operands: ProductOperands) -> Codes:
        """Load the operands, and run whole tiles, one after the other."""
        a, b, c, *_ = operands
        if a.size + b.size + c.size > MAX_KEPT:
            arguments = self.load(operands)
            self.entry.run(*arguments, whole_of(c.shape))
            return arguments.out
        idle = self.idle(a.shape, b.shape)
        try:
            workspace = idle.pop()  # which no other thread has, nor a signal's handler
        except IndexError:
            workspace = self.workspace(operands)
        memory, out, run = workspace
        for place, array in zip(memory, (a, b, c) if self.is_plain else self.words(operands), strict=False):
            place[...] = array
        run()
        codes = out.copy()
        idle.append(workspace)
        return codes

    def workspace(self, operands: ProductOperands) -> Workspace:
        """Return a new workspace for operands of these shapes."""
        loaded = self.load(operands)
        arguments = FusedArguments(
            np.copy(loaded.a),
            np.copy(loaded.b),
            np.copy(loaded.c),
            np.copy(loaded.columns),
            np.copy(loaded.scale_a),
            np.copy(loaded.scale_b),
            loaded.orders,
            loaded.numbers,
            loaded.out,
        )
        return Workspace(arguments[:6], loaded.out, self.entry.bound(*arguments, whole_of(loaded.out.shape)))


class FusedJob:
    """One fused product: whole tiles prepare themselves, a large one is prepared once for all of its blocks."""

    def __init__(self, constants: Constants, arguments: FusedArguments) -> None:
        """Start with no tile prepared."""
        self.constants = constants
        self.arguments = arguments
        self.out: Codes = arguments.out
        self.tile: PreparedTile | None = None

    def prepare(self, tile: int, pieces: int) -> list[Task]:
        """Make the buffers of a tile; the tasks fill them with its rows of A and its blocks of columns of B."""
        a, b, c, columns, scale_a, scale_b, orders, numbers, out = self.arguments
        order_a, order_b, places = np.split(orders, [a.shape[2], a.shape[2] + b.shape[1]])
        rows = columns[tile] if len(columns) else columns.reshape(0, 0)
        if len(columns) and not np.array_equal(order_a, np.arange(order_a.size)):
            rows = rows.take(order_a, axis=1)
        scales = (scale[tile] if len(scale) else scale.reshape(0, 0) for scale in (scale_a, scale_b))
        source = SourceOperands(a[tile], b[tile], order_a, order_b, places, rows, *scales)
        height, width = out.shape[1:]
        blocks, steps = -(-width // BLOCK), order_a.size // self.constants.products
        words = -(-(order_b.size // steps) // WORD)
        elements_a, elements_b = (height, order_a.size), (blocks * order_b.size * BLOCK,)
        groups_a, groups_b = (height, steps, 1 + 2 * words), (blocks * steps * (1 + words) * BLOCK,)
        is_short = self.constants.is_short
        fields = allocate(
            (elements_a, np.float64),
            (elements_a, np.int32),
            (groups_a, np.int32),
            (groups_a if is_short else (0, 0, 0), np.int32),
            ((height + 1, order_a.size) if self.constants.is_sparse else (0, 0), np.uint32),
            (elements_b, np.float64),
            (elements_b, np.int8),
            (groups_b, np.int32),
            (groups_b if is_short else (0,), np.uint8),
        )
        ready_a, ready_b = PreparedA(*fields[:5]), PreparedB(*fields[5:])
        self.tile = PreparedTile(ready_a, ready_b, source, numbers, c[tile], out[tile])
        by_column = [
            partial(fused.prepare_blocks.run, source, numbers, ready_b, *span) for span in split(blocks, pieces)
        ]
        by_row = [partial(fused.prepare_rows.run, source, numbers, ready_a, *span) for span in split(height, pieces)]
        return [*by_column, *by_row]

    def run(self, block: OutputBlock) -> None:
        """Run whole tiles, or part of the one that is prepared."""
        if self.tile is None:
            fused.fused_tiles.run(*self.arguments, np.array(block, np.int64))
            return
        blocks = (block.first_column // BLOCK, -(-block.last_column // BLOCK))
        fused.fused_block.run(*self.tile, fused.TilePart(block.first_row, block.last_row, *blocks))


def fused_constants(rule: Fused) -> Constants:
    """Return the numbers of a rule, as the kernels read them."""
    how, products = rule.sum, len(rule.steps[0])
    if not Compiled.holds(rule):
        raise ValueError(
            f"the kernels of the fused rule keep at most {MAX_FRACTION_BITS} fraction bits, and add products by fours, "
            f"at most {MAX_PRODUCTS}; got {how.fraction_bits} bits, {products} products"
        )
    variant = loop_variant_of(rule)
    return Constants(
        a=Encoding(*encoding_of(FORMATS[rule.multiplicands[0]])),
        b=Encoding(*encoding_of(FORMATS[rule.multiplicands[1]])),
        fraction_bits=how.fraction_bits,
        products=products,
        zero_exponent=how.zero_exponent,
        round_to=ROUNDINGS[how.rounding],
        c_format=_is_f16(rule.c),
        c_emin=FORMATS[rule.c_read_as].emin,
        d_format=_is_f16(rule.d),
        steps=len(rule.steps),
        adds_c_last=int(variant.adds_c_last),
        is_sparse=int(variant.is_sparse),
        is_narrow=int(variant.is_narrow),
        is_short=int(variant.is_short),
        unit_exponent=sum(FORMATS[name].emin - FORMATS[name].fraction for name in (rule.a, rule.b)),
    )


def _orders(rule: Fused, depth: int) -> NDArray[np.int32]:
    """Return, for a whole K, the order in which A's elements and B's rows are added, and the index of each row of B."""
    stored, rows = order_of(rule, depth)
    return np.concatenate([stored, rows, np.argsort(rows)]).astype(np.int32)


KERNELS: dict[type[Rule], Callable[[Any], BlockKernel | FusedKernel]] = {
    Fused: FusedKernel,
    BlockScaled: FusedKernel,
    Grouped: GroupedKernel,
    Chain: ChainKernel,
    Fma64: Fma64Kernel,
    Popcount: PopcountKernel,
}


class Compiled:
    """The backend whose kernels numba compiles."""

    name = "compiled"

    def compile(self, rule: Rule) -> BlockKernel | FusedKernel:
        """Return a kernel for a rule; its loops are compiled when they first run, or loaded if they are cached."""
        return KERNELS[type(rule)](rule)

    @staticmethod
    def holds(rule: Rule) -> bool:
        """Return True if the loops can run a rule: the fused ones are proved up to a number of bits and products.

        Integers have none: `integer_sums` leaves them to numpy.
        """
        if not isinstance(rule, Fused):
            return type(rule) in KERNELS
        lengths = {len(step) for step in rule.steps}
        return rule.sum.fraction_bits <= MAX_FRACTION_BITS and len(lengths) == 1 and max(lengths) <= MAX_PRODUCTS

    @staticmethod
    def is_cached(kernel: BlockKernel | FusedKernel, *, split: bool) -> bool:
        """Return True if a kernel's loops have been compiled before, for whole tiles or for parts of one."""
        return (kernel.entry_of_parts if split else kernel.entry).is_cached
