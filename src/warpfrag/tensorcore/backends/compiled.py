"""The compiled backend: one kernel class per rule, with loops written in C (`tensorcore/kernels`).

A kernel converts codes to the arguments of its loops, runs blocks of outputs, and returns codes. `thread_split` chooses
the blocks and threads.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache, cached_property, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.number_formats import FORMATS
from warpfrag.tensorcore import encodings
from warpfrag.tensorcore.backend_protocol import Codes, Grain, Job, OutputBlock, ProductOperands, Task
from warpfrag.tensorcore.native.library import NativeFunction, library, warn_unusable
from warpfrag.tensorcore.rules import BlockScaled, Chain, Fma64, Fused, Grouped, Popcount, Rule
from warpfrag.tensorcore.thread_split import allocate, split

MAX_FRACTION_BITS = 25
"""The most fraction bits for which `kernels/strip.h` is proved correct."""
MAX_PRODUCTS = 32
"""The most products per step for which that proof holds: their sum stays in range."""
MAX_PREPARED_BYTES = 1 << 27
"""The approximate limit on prepared operands in bytes; a longer K runs in parts."""
PREPARED_BYTES = 12
"""The size of a prepared element in bytes: a float64 and at most 32 bits for its exponent."""
MIN_DEPTH = 1 << 10
"""The minimum length of a part of K."""
MAX_KEPT = 1 << 14
"""The most elements of A, B and C for which a gemm's memory is reused by the next gemm of the same shape."""
KEPT_SHAPES = 8
"""The number of shapes per rule for which memory is kept."""
LINE = 512
"""The number of columns per block in the unfused loops, which fills whole cache lines."""
STRIP, BLOCK = 4, 64
"""The numbers of rows of A and columns of B that the fused loops process together, as in the C code."""
ROWS_AT_ONCE = 256
"""The number of rows whose accumulators fit in the L2 cache."""
F64_COLUMNS, F64_ROWS = 32, 1024
"""For f64: a multiple of the columns processed together, and the number of rows whose sums fit in the L2 cache."""
DIRECTIONS = ("rn", "rm", "rp", "rz")
"""The rounding directions in the order of `environment.h`."""
IS_F32, IS_F16 = 0, 1
"""The values of c_format and d_format."""
GROUPED_BLOCK = NativeFunction("grouped_block", "i1[3] i1[3] u4[3] i4[3] i4[3] u4[3]" + 11 * " i8")
CHECK_ENVIRONMENT = NativeFunction("check_environment", "")
CHAIN_BLOCK = NativeFunction("chain_block", "u4[3] u4[3] u4[3] u4[3]" + 8 * " i8")
POPCOUNT_BLOCK = NativeFunction("popcount_block", "u8[3] u8[3] i4[3]" + 7 * " i8")
FMA_BLOCK = NativeFunction("fma_block", "i8[3] i8[3] i8[3] i8[3]" + 7 * " i8")
FUSED_TILES = NativeFunction("fused_tiles", "u4[3] u4[3] u4[3] i4[3] i4[3] i4[3] i4[1] i8[1] u4[3] i8 i8")
FUSED_LAYOUT = NativeFunction("fused_layout", "i8[1] i8[1]" + 4 * " i8")
_TILE = "u4[2] u4[2] u4[2] u4[2] i4[2] i4[2] i4[2] i4[1] i4[1] i4[1] i8[1] u1[1]" + 4 * " i8"
PREPARE_ROWS, PREPARE_BLOCKS, FUSED_BLOCK = (
    NativeFunction(name, _TILE) for name in ("prepare_rows", "prepare_blocks", "fused_block")
)
_NONE = np.empty((0, 0, 0), np.int32)


class LoopArguments(NamedTuple):
    """The loop arguments that precede the bounds of a block, and the array of codes that the loops write."""

    before_bounds: tuple[object, ...]
    codes: Codes


class BlockJob:
    """A gemm whose loops accept any block."""

    def __init__(self, loops: Callable[[OutputBlock], None], out: Codes) -> None:
        """Create a job; `loops` takes a block and writes its part of `out`."""
        self.run = loops
        self.out = out

    def prepare(self, tile: int, pieces: int) -> list[Task]:  # noqa: ARG002 (the same for every kernel)
        """Return no tasks, because these loops read the operands without preparation."""
        return []


class BlockKernel(ABC):
    """The base class of kernels whose loops accept any block: all kernels except the fused one."""

    loops: NativeFunction
    grain = Grain(columns=LINE)

    def __init__(self, rule: Rule) -> None:
        """Create a kernel for a rule."""
        self.rule = rule

    def max_depth(self, height: int, width: int) -> int:  # noqa: ARG002 (the same for every kernel)
        """Return an unlimited K, because these loops need no scratch memory along K."""
        return 1 << 62

    @abstractmethod
    def load(self, operands: ProductOperands) -> LoopArguments:
        """Convert the operands of a gemm to the form that the C loops expect."""

    def start(self, operands: ProductOperands) -> Job:
        """Load the operands and return a job that runs the loops on any block."""
        arguments, codes = self.load(operands)
        return BlockJob(partial(self.loops.run, *arguments), codes)

    def run_whole(self, operands: ProductOperands) -> Codes:
        """Load the operands and run the loops on all outputs."""
        arguments, codes = self.load(operands)
        tiles, height, width = codes.shape
        self.loops.run(*arguments, OutputBlock(0, tiles, 0, height, 0, width))
        return codes


def _plain(array: Codes, kind: type[np.generic]) -> Codes:
    """Return a contiguous, writable array of this dtype, as the loops require."""
    contiguous = np.ascontiguousarray(array, kind)
    return contiguous.copy() if contiguous is array and not contiguous.flags.writeable else contiguous


def _is_f16(name: str) -> int:
    return IS_F16 if name == "f16" else IS_F32


class ChainKernel(BlockKernel):
    """The kernel for m8n8k4 in software, a chain of f32 operations."""

    loops = CHAIN_BLOCK

    def load(self, operands: ProductOperands) -> LoopArguments:
        """Return the codes, and the formats of the accumulators."""
        out = np.empty(operands.c.shape, np.uint32)
        codes = [_plain(array, np.uint32) for array in operands[:3]]
        return LoopArguments((*codes, out, _is_f16(self.rule.c), _is_f16(self.rule.d)), out)


class PopcountKernel(BlockKernel):
    """The kernel for one-bit operands, packed 64 to a word."""

    loops = POPCOUNT_BLOCK

    def __init__(self, rule: Popcount) -> None:
        """Select the operation: xor or and."""
        super().__init__(rule)
        self.is_xor = rule.operation == "xor"

    def load(self, operands: ProductOperands) -> LoopArguments:
        """Return the one-bit operands packed into words, and C as the initial sums."""
        a, b, c, *_ = operands
        words_a = np.ascontiguousarray(np.packbits(a, axis=2, bitorder="little")).view(np.uint64)
        tiles, depth, width = b.shape
        bits = np.asarray(b, np.uint8).reshape(tiles, depth // 64, 8, 8, width)
        bytes_b = bits[:, :, :, 0].copy()
        for place in range(1, 8):  # packbits is ten times slower along this axis
            bytes_b |= bits[:, :, :, place] << place
        words_b = np.ascontiguousarray(bytes_b.swapaxes(2, 3)).view(np.uint64)[..., 0]
        sums = np.array(c, np.uint32, order="C").view(np.int32)
        return LoopArguments((words_a, words_b, sums, self.is_xor), sums.view(np.uint32))


class Fma64Kernel(BlockKernel):
    """The kernel for f64, a chain of fused multiply-adds."""

    loops = FMA_BLOCK
    grain = Grain(STRIP, F64_COLUMNS, F64_ROWS)

    def __init__(self, rule: Fma64) -> None:
        """Create a kernel for a rule and its rounding direction."""
        super().__init__(rule)
        self.direction = DIRECTIONS.index(rule.rounding)

    def load(self, operands: ProductOperands) -> LoopArguments:
        """Return the codes as signed integers."""
        a, b, c = (_plain(array, np.uint64).view(np.int64) for array in operands[:3])
        out = np.empty(c.shape, np.int64)
        return LoopArguments((a, b, c, out, self.direction), out.view(np.uint64))


class GroupedKernel(BlockKernel):
    """The kernel for block-scaled 4-bit floats: exact sums of groups, then one truncated sum."""

    loops = GROUPED_BLOCK

    def __init__(self, rule: Grouped) -> None:
        """Build tables that map codes to doubled elements and to scales."""
        super().__init__(rule)
        elements = FORMATS[rule.a]
        self.doubled = np.array([round(2 * elements.decode(code)) for code in range(elements.codes)], np.int8)
        self.scales = encodings.split_scales(rule.scale_format)
        self.numbers = (rule.k, rule.group, rule.scales, rule.sum.fraction_bits, rule.sum.zero_exponent)

    def load(self, operands: ProductOperands) -> LoopArguments:
        """Return the doubled elements, and the scales as integers."""
        a, b, c, _, scale_a, scale_b = operands
        if scale_a is None or scale_b is None:
            raise TypeError("a grouped rule needs scale factors")
        out = np.empty(c.shape, np.uint32)
        elements = (self.doubled.take(a), self.doubled.take(b), _plain(c, np.uint32))
        scales = (self.scales.take(scale_a), self.scales.take(scale_b))
        return LoopArguments((*elements, *scales, out, self.numbers), out)


class FusedArguments(NamedTuple):
    """The arguments of `fused_tiles` for a whole gemm, except the range of tiles to compute."""

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
    """Memory for one small gemm, with the loops bound to it."""

    memory: tuple[Codes, ...]
    """The memory of the operands, in the order of `FusedArguments`."""
    out: Codes
    run: Callable[[], None]


class Encoding(NamedTuple):
    """Parameters for decoding A or B, in the order of `encodings.encoding_of`."""

    fraction: int
    bias: int
    unused: int
    sign_place: int
    special_from: int
    infinity: int


class Constants(NamedTuple):
    """The constants of a fused rule, in the order of `kernels/prepare.h`, which describes them."""

    a: Encoding
    b: Encoding
    fraction_bits: int
    products: int
    zero_exponent: int
    round_to: int
    c_format: int
    c_emin: int
    d_format: int
    steps: int
    adds_c_last: int
    is_sparse: int
    is_narrow: int
    is_short: int
    unit_exponent: int


class FusedKernel:
    """The kernel for truncated fused dot-product-adds, with or without a power of two per block."""

    grain = Grain(STRIP, BLOCK, ROWS_AT_ONCE, 4)

    def __init__(self, rule: Fused) -> None:
        """Collect the constants of the rule, and determine whether codes must be converted first."""
        self.rule = rule
        self.constants = fused_constants(rule)
        self.numbers = np.array([*self.constants.a, *self.constants.b, *self.constants[2:]], np.int64)
        self.converts = rule.multiplicands != (rule.a, rule.b)
        self.is_plain = not (self.converts or rule.is_sparse or rule.scales)
        self.order = lru_cache(8)(partial(_orders, rule))
        self.idle: Callable[..., list[Workspace]] = lru_cache(KEPT_SHAPES)(lambda *_shapes: [])
        """Unused workspaces by the shapes of A and B."""

    @cached_property
    def tables(self) -> list[NDArray[np.uint32]]:
        """Tables that map the codes of A and B to the codes that are multiplied."""
        rule = self.rule
        pairs = zip((rule.a, rule.b), rule.multiplicands, strict=True)
        return [encodings.conversion(source, target) for source, target in pairs]

    def max_depth(self, height: int, width: int) -> int:
        """Return the longest K whose prepared operands fit in MAX_PREPARED_BYTES."""
        padded = height + -(-width // BLOCK) * BLOCK
        depth = max(MIN_DEPTH, MAX_PREPARED_BYTES // (padded * PREPARED_BYTES))
        return max(1, depth // self.rule.k) * self.rule.k

    def words(self, operands: ProductOperands) -> tuple[Codes, ...]:
        """Return the operands with A and B in the formats that are multiplied, and scale factors as exponents."""
        a, b, c, columns, scale_a, scale_b = operands
        if self.converts:
            table_a, table_b = self.tables
            a, b = table_a.take(a, mode="wrap"), table_b.take(b, mode="wrap")  # the fastest mode; codes are in range
        if columns is None:
            columns = _NONE
        if scale_a is None or scale_b is None:
            return a, b, c, columns, _NONE, _NONE
        return a, b, c, columns, encodings.powers_of_two(scale_a), encodings.powers_of_two(scale_b)

    def load(self, operands: ProductOperands) -> FusedArguments:
        """Convert the operands of a gemm to the form that the C loops expect."""
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
        """Load the operands and return a job, which prepares a large tile before it runs in parts."""
        return FusedJob(self.load(operands))

    def run_whole(self, operands: ProductOperands) -> Codes:
        """Load the operands, and compute whole tiles one after the other."""
        a, b, c, *_ = operands
        if a.size + b.size + c.size > MAX_KEPT:
            arguments = self.load(operands)
            FUSED_TILES.run(*arguments, 0, len(c))
            return arguments.out
        idle = self.idle(a.shape, b.shape)
        try:
            workspace = idle.pop()  # popped, so that no other thread or signal handler uses it
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
        return Workspace(arguments[:6], loaded.out, FUSED_TILES.bound(*arguments, 0, len(loaded.out)))


class FusedJob:
    """One fused gemm; the blocks of a large tile share prepared operands."""

    def __init__(self, arguments: FusedArguments) -> None:
        """Create a job without a prepared tile."""
        self.arguments = arguments
        self.out: Codes = arguments.out
        self.tile: tuple[Codes, ...] = ()
        """The loop arguments for the prepared tile, without the rows and blocks to compute."""

    def prepare(self, tile: int, pieces: int) -> list[Task]:
        """Allocate memory for a tile; the tasks fill it with rows of A and with blocks of columns of B."""
        a, b, c, columns, scale_a, scale_b, orders, numbers, out = self.arguments
        order, b_order, b_places = np.split(orders, [a.shape[2], a.shape[2] + b.shape[1]])
        met_rows = columns[tile].take(order, axis=1) if len(columns) else columns.reshape(0, 0)
        scales = (scale[tile] if len(scale) else scale.reshape(0, 0) for scale in (scale_a, scale_b))
        height, width = out.shape[1:]
        layout = np.empty(3, np.int64)  # receives the memory size and the offsets of B's groups
        FUSED_LAYOUT.run(layout, numbers, height, width, a.shape[2], b.shape[1])
        (memory,) = allocate(((int(layout[0]),), np.uint8))
        operands = (a[tile], b[tile], c[tile], out[tile], met_rows, *scales)
        self.tile = (*operands, order, b_order, b_places, numbers, memory)
        by_column = [partial(PREPARE_BLOCKS.run, *self.tile, *span, 0, 0) for span in split(-(-width // BLOCK), pieces)]
        return [*by_column, *(partial(PREPARE_ROWS.run, *self.tile, *span, 0, 0) for span in split(height, pieces))]

    def run(self, block: OutputBlock) -> None:
        """Compute whole tiles, or part of the prepared tile."""
        if not self.tile:
            FUSED_TILES.run(*self.arguments, block.first_tile, block.last_tile)
            return
        blocks = (block.first_column // BLOCK, -(-block.last_column // BLOCK))
        FUSED_BLOCK.run(*self.tile, block.first_row, block.last_row, *blocks)


def fused_constants(rule: Fused) -> Constants:
    """Return the constants that the kernels need for a rule."""
    how, products = rule.sum, len(rule.steps[0])
    if not Compiled.holds(rule):
        raise ValueError(
            f"the fused kernels keep at most {MAX_FRACTION_BITS} fraction bits and add the same number of products, "
            f"at most {MAX_PRODUCTS}, in every step; got {how.fraction_bits} bits, {products} products in the first"
        )
    variant = encodings.loop_variant_of(rule)
    return Constants(
        a=Encoding(*encodings.encoding_of(FORMATS[rule.multiplicands[0]])),
        b=Encoding(*encodings.encoding_of(FORMATS[rule.multiplicands[1]])),
        fraction_bits=how.fraction_bits,
        products=products,
        zero_exponent=how.zero_exponent,
        round_to=encodings.ROUNDINGS[how.rounding],
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
    """Return the order of addition over K: the indices of A's elements, those of B's rows, and each row's position."""
    stored, rows = encodings.order_of(rule, depth)
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
    """The backend whose kernels are compiled C code."""

    name = "compiled"

    def compile(self, rule: Rule) -> BlockKernel | FusedKernel:
        """Return a kernel for a rule."""
        return KERNELS[type(rule)](rule)

    @staticmethod
    @cache
    def is_available() -> bool:
        """Return True if the library is loaded and this processor multiplies, adds and rounds as the loops expect."""
        loaded = library()
        if loaded is None:
            return False
        if not loaded.has(CHECK_ENVIRONMENT.name):
            warn_unusable("this processor has no fused multiply-add")
            return False
        if CHECK_ENVIRONMENT.call(b""):
            warn_unusable("this processor does not follow the rounding mode in its control register")
            return False
        return True

    @staticmethod
    def holds(rule: Rule) -> bool:
        """Return True if the loops support a rule; the fused loops limit the number of bits and products.

        There are no loops for integers, because `integer_sums` uses NumPy.
        """
        if not isinstance(rule, Fused):
            return type(rule) in KERNELS
        lengths = {len(step) for step in rule.steps}
        return rule.sum.fraction_bits <= MAX_FRACTION_BITS and len(lengths) == 1 and max(lengths) <= MAX_PRODUCTS
