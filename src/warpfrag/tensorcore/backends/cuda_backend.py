"""GPU kernels for the rules: any architecture's arithmetic on any CUDA GPU.

Each rule has a kernel class, which defines the macros of its CUDA source, prepares the operands and launches the
kernels. Results equal the reference's bit for bit; a small test gemm checks this before a rule is used.
"""

from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import NoGpu
from warpfrag.formats.codes import code_dtype
from warpfrag.formats.number_formats import FORMATS
from warpfrag.formats.random_codes import random_codes
from warpfrag.tensorcore import reference
from warpfrag.tensorcore.backend_protocol import Codes, ProductOperands
from warpfrag.tensorcore.backends.device_kernel import (
    INT,
    LONG,
    THREADS,
    DeviceArray,
    DeviceKernel,
    Struct,
    aligned,
    cupy,
    current_gpu,
    in_memory_of,
    on_device,
    struct,
)
from warpfrag.tensorcore.encodings import ROUNDINGS, conversion, encoding_of, order_of, powers_of_two, split_scales
from warpfrag.tensorcore.rules import BlockScaled, Chain, Fma64, Fused, Grouped, IntegerSum, Popcount, Rule

NULL = LONG(0)
STRIDES = aligned(tile=LONG, line=LONG, k=LONG)
ENCODING = aligned(fraction=INT, bias=INT, unused=INT, sign_place=INT, special_from=INT, infinity=INT)
BLOCKS = aligned(tile=LONG, line=LONG, block=LONG, k=LONG)
"""The dtypes of the structures that kernels take by value; they contain no addresses."""
TILES, ROWS, COLUMNS = 2, 5, 21
"""The extents of the test gemm: rows of more than one strip, and columns for the vector code and its remainder."""


def _with_zeros(operands: ProductOperands) -> DeviceArray:
    """Return a sparse A expanded with explicit zeros."""
    if operands.columns is None:
        return operands.a
    tiles, height, kept = operands.a.shape
    full: DeviceArray = cupy().zeros((tiles * height, operands.b.shape[1]), operands.a.dtype)
    rows = cupy().arange(tiles * height)[:, None]
    full[rows, operands.columns.reshape(-1, kept)] = operands.a.reshape(-1, kept)
    return full.reshape(tiles, height, -1)


def _padded(lines: int, extent: int) -> int:
    return -(-lines // extent) * extent


def _strides_a(a: DeviceArray) -> Struct:
    return struct(STRIDES, a.shape[1] * a.shape[2], a.shape[2], 1)


def _strides_b(b: DeviceArray) -> Struct:
    return struct(STRIDES, b.shape[1] * b.shape[2], 1, b.shape[2])


def _is_f16(name: str) -> int:
    return int(name == "f16")


class Occupancy(NamedTuple):
    """The stages and blocks of the main loop of `fused` that fit in a multiprocessor's shared memory."""

    stages: int  # the number of stages of operands in flight
    blocks_per_sm: int


class DeviceScales(NamedTuple):
    """The scale factors of one operand, as exponents (null if there are none), with their strides."""

    exponents: DeviceArray | np.int64
    blocks: Struct


class PreparedSide(NamedTuple):
    """A or B in the form that `fused` reads; rows and columns are padded to whole blocks."""

    values: DeviceArray
    exponents: DeviceArray
    signs: DeviceArray
    padded: np.int32


class FusedDevice(DeviceKernel):
    """The kernel for truncated fused dot-product-adds, with or without a power of two per block."""

    source = "fused"
    bytes_per_element = 11.0
    rows_per_thread, columns_per_thread = 8, 4
    threads_down, threads_across = 8, 16
    max_fraction_bits, max_products = 25, 64
    """The limits of the float64 method; rules beyond them use the scalar method."""

    def __init__(self, rule: Fused) -> None:
        """Lay out a step, and determine whether the float64 method of `gpu/fused.cu` applies."""
        super().__init__(rule)
        self.fused = rule
        self.stored = len(rule.steps[0])
        self.products = 2 * self.stored if rule.is_sparse else self.stored
        self.depth = max(16, self.products * len(rule.steps))
        self.height = self.rows_per_thread * self.threads_down
        self.width = self.columns_per_thread * self.threads_across
        self.encodings = [struct(ENCODING, *encoding_of(FORMATS[name])) for name in rule.multiplicands]
        lengths = {len(step) for step in rule.steps}
        self.is_quick = (
            rule.sum.fraction_bits <= self.max_fraction_bits
            and len(lengths) == 1
            and self.products <= self.max_products
            and not (self.products % 16 if self.products > 16 else self.products not in (4, 8, 16))
        )

    @cached_property
    def occupancy(self) -> Occupancy:
        """The number of stages and blocks: three stages if two such blocks fit in shared memory, else two."""
        stage, limits = self.stage_bytes, cupy().cuda.Device().attributes
        per_block, per_sm = limits["MaxSharedMemoryPerBlockOptin"], limits["MaxSharedMemoryPerMultiprocessor"]
        stages = 3 if 2 * (3 * stage + 1024) <= per_sm and 3 * stage <= per_block else 2
        return Occupancy(stages, 2 if 2 * (stages * stage + 1024) <= per_sm else 1)

    def macros(self) -> dict[str, int | str]:
        """Return macros with the rule's constants and the sizes that fit this GPU's shared memory."""
        rule = self.fused
        return {
            "FRACTION_BITS": rule.sum.fraction_bits,
            "PRODUCTS": self.products,
            "STEPS": len(rule.steps),
            "ZERO_EXPONENT": f"({rule.sum.zero_exponent})",
            "ROUND_TO": ROUNDINGS[rule.sum.rounding],
            "ADDS_C_LAST": int(rule.adds_c_last),
            "C_EMIN": f"({FORMATS[rule.c_read_as].emin})",
            "C_IS_F16": _is_f16(rule.c),
            "D_IS_F16": _is_f16(rule.d),
            # with fewer exponent bits, products stay well within the range of f32
            "WATCHES_EXPONENTS": int(
                isinstance(rule, BlockScaled) or any(FORMATS[name].exponent > 5 for name in rule.multiplicands)
            ),
            "ROWS_PER_THREAD": self.rows_per_thread,
            "COLUMNS_PER_THREAD": self.columns_per_thread,
            "STAGES": self.occupancy.stages,
            "BLOCKS_PER_SM": self.occupancy.blocks_per_sm,
        }

    @property
    def span(self) -> int:
        """The number of elements whose sign bits share a word."""
        return min(self.products, 16)

    @property
    def stage_bytes(self) -> int:
        """The shared memory of one stage, in bytes: values, exponents and signs of both sides."""
        return (self.height + self.width) * (self.depth * 10 + self.depth // self.span * 4)

    def codes(self, array: DeviceArray, side: int) -> DeviceArray:
        """Return the codes of one operand in the format in which they are multiplied."""
        source, target = (self.fused.a, self.fused.b)[side], self.fused.multiplicands[side]
        if source == target:
            return array
        table = conversion(source, target).astype(code_dtype(FORMATS[target]))
        converted: DeviceArray = cupy().asarray(table)[array]
        return converted

    def scales(self, codes: DeviceArray | None, *, is_b: bool) -> DeviceScales:
        """Return scale factors as exponents, or null, and their strides."""
        if codes is None:
            return DeviceScales(NULL, struct(BLOCKS, 0, 0, 0, 1))
        blocks, lines = codes.shape[1:] if is_b else codes.shape[:0:-1]
        line, block = (1, lines) if is_b else (blocks, 1)
        strides = struct(BLOCKS, blocks * lines, line, block, self.rule.k // self.rule.scales)
        return DeviceScales(powers_of_two(codes), strides)

    def prepare(
        self, codes: DeviceArray, order: DeviceArray, scales: DeviceScales, special: DeviceArray | None, *, is_b: bool
    ) -> PreparedSide:
        """Decode one operand in the order of addition."""
        cp = cupy()
        tiles = codes.shape[0]
        lines, depth = codes.shape[2 if is_b else 1], len(order)
        padded = _padded(lines, self.width if is_b else self.height)
        ready = PreparedSide(
            values=cp.empty((tiles, depth, padded), cp.float64),
            exponents=cp.empty((tiles, depth // 4, padded), cp.uint64),
            signs=cp.empty((tiles, depth // self.span, padded), cp.uint32),
            padded=INT(padded),
        )
        self.launch(
            f"prepare_{'b' if is_b else 'a'}{8 * codes.dtype.itemsize}",
            (-(-padded // THREADS), depth // self.span, tiles),
            THREADS,
            codes, (_strides_b if is_b else _strides_a)(codes), order, *scales, self.encodings[is_b], ready.values,
            ready.exponents, ready.signs, NULL if special is None else special, INT(lines), ready.padded, INT(depth),
        )  # fmt: skip
        return ready

    def run(self, operands: ProductOperands) -> DeviceArray:
        """Compute every output in float64, and recompute inexact outputs with the scalar method."""
        cp, rule = cupy(), self.fused
        a, b, c = self.codes(operands.a, 0), self.codes(operands.b, 1), operands.c
        tiles, height, width = c.shape
        stored, rows = order_of(rule, b.shape[1])
        scales_a, scales_b = self.scales(operands.scale_a, is_b=False), self.scales(operands.scale_b, is_b=True)
        out: DeviceArray = cp.empty(c.shape, code_dtype(FORMATS[rule.d]))
        exceptional: DeviceArray | np.int64 = NULL
        if self.is_quick:
            exceptional = cp.zeros(c.shape, cp.uint8)
            special = cp.zeros((tiles, width), cp.uint8) if rule.is_sparse else None
            order = cp.asarray(np.pad(rows, (0, -len(rows) % self.depth), constant_values=-1))
            ready_a = self.prepare(_with_zeros(operands._replace(a=a)), order, scales_a, None, is_b=False)
            ready_b = self.prepare(b, order, scales_b, special, is_b=True)
            self.launch(
                "fused",
                (int(ready_b.padded) // self.width, int(ready_a.padded) // self.height, tiles),
                self.threads_down * self.threads_across,
                *ready_a, *ready_b, c, out, exceptional, NULL if special is None else special,
                INT(height), INT(width), INT(len(rows) // self.products),
                shared=self.occupancy.stages * self.stage_bytes,
            )  # fmt: skip
        self.launch(
            "redo",
            (-(-out.size // THREADS), 1, 1),
            THREADS,
            a, b, _strides_a(a), _strides_b(b), *self.encodings, INT(a.dtype.itemsize), INT(b.dtype.itemsize),
            NULL if operands.columns is None else operands.columns.astype(cp.int32),
            scales_a.exponents, scales_b.exponents, scales_a.blocks, scales_b.blocks,
            cp.asarray(stored), INT(len(stored)), INT(self.stored), c, out, exceptional,
            INT(height), INT(width), INT(tiles),
        )  # fmt: skip
        return out


class IntegerDevice(DeviceKernel):
    """The kernel for integer sums: 8- and 4-bit products, or one-bit operations."""

    source = "integer"
    bytes_per_element = 1.0
    extent, threads, depth = 128, 256, 4

    def __init__(self, rule: IntegerSum | Popcount) -> None:
        """Create a kernel for a rule."""
        super().__init__(rule)
        self.integers = rule
        self.codes = 32 if isinstance(rule, Popcount) else 4

    def macros(self) -> dict[str, int | str]:
        """Return macros for the width and sign of elements, the operation, and clamping."""
        rule = self.integers
        operation, clamps = ("DOT", rule.clamps) if isinstance(rule, IntegerSum) else (rule.operation.upper(), False)
        return {
            "CODES": self.codes,
            "BITS": FORMATS[rule.a].bits,
            "SIGNED_A": int(FORMATS[rule.a].signed),
            "SIGNED_B": int(FORMATS[rule.b].signed),
            "OPERATION": operation,
            "CLAMPS": int(clamps),
            "WORDS": rule.k // self.codes,
        }

    def pack(self, codes: DeviceArray, name: str, *, is_b: bool) -> DeviceArray:
        """Return the codes of one operand packed into registers, padded to whole blocks."""
        lines, depth = codes.shape[2 if is_b else 1], codes.shape[1 if is_b else 2]
        padded = _padded(lines, self.extent)
        registers = _padded(-(-depth // self.codes), self.depth)
        words: DeviceArray = cupy().empty((codes.shape[0], registers, padded), np.uint32)
        strides = (_strides_b if is_b else _strides_a)(codes)
        grid = (-(-padded // THREADS), registers, codes.shape[0])
        sizes = (INT(lines), INT(padded), INT(depth), INT(registers))
        self.launch("pack", grid, THREADS, codes, strides, INT(FORMATS[name].signed), words, *sizes)
        return words

    def run(self, operands: ProductOperands) -> DeviceArray:
        """Pack A and B into registers, and add their products to C."""
        rule = self.rule
        tiles, height, width = operands.c.shape
        a = self.pack(_with_zeros(operands), rule.a, is_b=False)
        b = self.pack(operands.b, rule.b, is_b=True)
        sums = operands.c.astype(np.uint32)
        sizes = (INT(height), INT(width), INT(a.shape[2]), INT(b.shape[2]), INT(a.shape[1]))
        grid = (b.shape[2] // self.extent, a.shape[2] // self.extent, tiles)
        self.launch("integer", grid, self.threads, a, b, sums, *sizes)
        return sums


class Fma64Device(DeviceKernel):
    """The kernel for f64, a chain of fused multiply-adds."""

    source = "fma64"
    bytes_per_element = 8.0
    extent = 64

    def macros(self) -> dict[str, int | str]:
        """Return a macro that is the fused multiply-add in the rule's rounding mode."""
        rule = self.rule
        names = {"rn": "__fma_rn", "rz": "__fma_rz", "rm": "__fma_rd", "rp": "__fma_ru"}
        return {"FMA": names[rule.rounding]} if isinstance(rule, Fma64) else {}

    def run(self, operands: ProductOperands) -> DeviceArray:
        """Launch the kernel once on the operands."""
        a, b, c = operands[:3]
        tiles, height, width = c.shape
        out: DeviceArray = cupy().empty_like(c)
        grid = (-(-width // self.extent), -(-height // self.extent), tiles)
        self.launch("fma64", grid, 256, a, b, c, out, INT(height), INT(width), INT(b.shape[1]))
        return out


class ChainDevice(DeviceKernel):
    """The kernel for m8n8k4 in software, a chain of f32 operations."""

    source = "chain"
    bytes_per_element = 2.0

    def macros(self) -> dict[str, int | str]:
        """Return macros for the formats of C and D."""
        return {"C_IS_F16": _is_f16(self.rule.c), "D_IS_F16": _is_f16(self.rule.d)}

    def run(self, operands: ProductOperands) -> DeviceArray:
        """Launch the kernel once, with one thread per output."""
        a, b, c = operands[:3]
        tiles, height, width = c.shape
        out: DeviceArray = cupy().empty(c.shape, code_dtype(FORMATS[self.rule.d]))
        sizes = (INT(height), INT(width), INT(b.shape[1]), INT(tiles))
        self.launch("chain", (-(-out.size // THREADS), 1, 1), THREADS, a, b, c, out, *sizes)
        return out


class GroupedDevice(DeviceKernel):
    """The kernel for block-scaled 4-bit floats: exact group sums, then one truncated sum."""

    source = "grouped"
    bytes_per_element = 1.0
    extent = 64

    def __init__(self, rule: Grouped) -> None:
        """Build tables that map codes to doubled elements and to scales."""
        super().__init__(rule)
        self.grouped = rule
        elements = FORMATS[rule.a]
        self.doubled = np.array([round(2 * elements.decode(code)) for code in range(elements.codes)], np.int8)

    def macros(self) -> dict[str, int | str]:
        """Return macros for the extents of an instruction and the parameters of its truncated sum."""
        rule = self.grouped
        return {
            "K": rule.k,
            "GROUP": rule.group,
            "SCALES": rule.scales,
            "FRACTION_BITS": rule.sum.fraction_bits,
            "ZERO_EXPONENT": f"({rule.sum.zero_exponent})",
        }

    def pack(self, codes: DeviceArray, *, is_b: bool) -> DeviceArray:
        """Return doubled elements, four to a register."""
        lines, depth = codes.shape[2 if is_b else 1], codes.shape[1 if is_b else 2]
        padded = _padded(lines, self.extent)
        words: DeviceArray = cupy().empty((codes.shape[0], depth // 4, padded), np.uint32)
        strides = (_strides_b if is_b else _strides_a)(codes)
        table = cupy().asarray(self.doubled)
        grid = (-(-padded // THREADS), depth // 4, codes.shape[0])
        self.launch("pack", grid, THREADS, codes, strides, table, words, INT(lines), INT(padded), INT(depth // 4))
        return words

    def run(self, operands: ProductOperands) -> DeviceArray:
        """Pack the elements into registers, look up the scales, and add all products to C."""
        cp = cupy()
        tiles, height, width = operands.c.shape
        a, b = self.pack(operands.a, is_b=False), self.pack(operands.b, is_b=True)
        table = cp.asarray(split_scales(self.rule.scale_format))
        scales = [cp.ascontiguousarray(table[codes]) for codes in operands[4:]]
        out: DeviceArray = cp.empty(operands.c.shape, cp.uint32)
        sizes = (INT(height), INT(width), INT(a.shape[2]), INT(b.shape[2]), INT(a.shape[1] * 4 // self.rule.k))
        grid = (b.shape[2] // self.extent, a.shape[2] // self.extent, tiles)
        self.launch("grouped", grid, 256, a, b, *scales, operands.c.astype(cp.uint32), out, *sizes)
        return out


KERNELS: dict[type[Rule], Callable[[Any], DeviceKernel]] = {
    Fused: FusedDevice,
    BlockScaled: FusedDevice,
    Grouped: GroupedDevice,
    Chain: ChainDevice,
    Fma64: Fma64Device,
    IntegerSum: IntegerDevice,
    Popcount: IntegerDevice,
}


def canary_operands(rule: Rule) -> ProductOperands:
    """Return the test gemm: two small tiles of both signs, near 1, whose results depend on the rounding.

    The second tile has a row and a column of small subnormals and a very large C, which exercise the special cases for
    extreme exponents.
    """
    random = np.random.default_rng(7)

    def draw(name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        fmt = FORMATS[name]
        return random_codes(fmt, "narrow" if fmt.is_float else "plain", shape, random).astype(code_dtype(fmt))

    a, b = draw(rule.a, (TILES, ROWS, rule.stored)), draw(rule.b, (TILES, rule.k, COLUMNS))
    c = draw(rule.c, (TILES, ROWS, COLUMNS))
    if FORMATS[rule.a].is_float:
        a[-1, -1], c[-1, -1] = 1 << FORMATS[rule.a].unused, 3
        c[-1, 0, 0] = FORMATS[rule.c].encode(FORMATS[rule.c].max / 2)
        b[-1, :, -1] = 3 << FORMATS[rule.b].unused
    columns = None
    if rule.is_sparse:
        places = np.arange(rule.stored, dtype=np.int32)
        first = 2 * places if rule.k == 2 * rule.stored and rule.a == "tf32" else 4 * (places // 2) + places % 2
        columns = np.broadcast_to(first, a.shape).copy()
    if not rule.scales:
        return ProductOperands(a, b, c, columns)
    return ProductOperands(
        a,
        b,
        c,
        columns,
        draw(rule.scale_format, (TILES, ROWS, rule.scales)),
        draw(rule.scale_format, (TILES, rule.scales, COLUMNS)),
    )


@cache
def kernel_of(rule: Rule, gpu: int) -> DeviceKernel:
    """Return a rule's kernel on a GPU; raise NoGpu if its test gemm differs from the reference."""
    kernel = KERNELS[type(rule)](rule)
    operands = canary_operands(rule)
    codes = cupy().asnumpy(on_device(kernel, operands))
    if not np.array_equal(codes.astype(np.uint64), reference.matmul(rule, operands).astype(np.uint64)):
        name = cupy().cuda.runtime.getDeviceProperties(gpu)["name"].decode()
        raise NoGpu(f"the GPU kernel for this rule differs from the reference on this {name}: {rule}")
    return kernel


class Cuda:
    """A GPU that emulates the arithmetic of any architecture with these kernels."""

    name = "cuda"
    on_gpu = True

    def matmul(self, rule: Rule, operands: ProductOperands) -> Codes:
        """Return the codes of D, as a GPU array if A is one."""
        codes = on_device(kernel_of(rule, current_gpu()), operands)
        return in_memory_of(codes.astype(code_dtype(FORMATS[rule.d]), copy=False), operands)
