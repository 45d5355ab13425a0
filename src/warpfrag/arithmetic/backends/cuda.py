"""The rules on a GPU: any architecture's arithmetic, on whatever GPU is there.

The kernels are CUDA C++ in `arithmetic/gpu`, compiled for a rule's numbers by NVRTC when a rule is first used and kept
on disk by CuPy, which also brings the arrays. Operands are prepared on the GPU, a part of K at a time, in a room of
fixed size; the codes are the reference's, and a canary compares before a rule is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache, cached_property
from importlib.resources import files
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.arithmetic import reference
from warpfrag.arithmetic.backends.canary import operands_of
from warpfrag.arithmetic.encodings import ROUNDINGS, conversion, encoding_of, order_of, powers_of_two, split_scales
from warpfrag.arithmetic.protocol import Operands
from warpfrag.arithmetic.rules import Chain, Fma64, Fused, Grouped, Integer, Popcount, Rule, Scaled
from warpfrag.arithmetic.schedule import part_of_k
from warpfrag.errors import NoGpu
from warpfrag.numerics.codes import code_dtype
from warpfrag.numerics.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warpfrag.arithmetic.protocol import Codes

    Device = Any
    """An array of CuPy, which brings no types."""

ROOM = 1 << 30
"""Bytes for prepared operands, about."""
MOST_LINES = 8192
"""Rows and columns of the outputs that are computed at once: what is prepared serves so many."""
LEAST_DEPTH = 1024
"""K is not cut into smaller parts than this."""
THREADS = 128
MOST_TILES = 65535
"""Of one launch: the third extent of a grid."""


def aligned(**fields: object) -> np.dtype[Any]:
    """A structure as the compiler lays it out."""
    return np.dtype(list(fields.items()), align=True)


LONG, INT = np.int64, np.int32
NULL = LONG(0)
STRIDES = aligned(tile=LONG, line=LONG, k=LONG)
ENCODING = aligned(fraction=INT, bias=INT, unused=INT, sign_place=INT, special_from=INT, infinity=INT)
BLOCKS = aligned(tile=LONG, line=LONG, block=LONG, k=LONG)
"""Structures hold no pointers, so that a kernel may also run where addresses are given late."""


def struct(kind: np.dtype[Any], *values: object) -> np.ndarray[Any, Any]:
    """One structure."""
    return np.array(tuple(values), kind)


@cache
def cupy() -> Any:  # noqa: ANN401 (a module without types)
    """CuPy with a GPU, or NoGpu with what is missing."""
    try:
        import cupy as found
    except ImportError as error:
        msg = f"CuPy is not installed ({error}): pip install 'warpfrag[gpu]'"
        raise NoGpu(msg) from None
    try:
        found.cuda.Device().compute_capability  # noqa: B018 (it asks the driver)
    except Exception as error:  # noqa: BLE001 (CuPy raises many kinds where there is no driver or GPU)
        msg = f"no NVIDIA GPU can be used: {error}"
        raise NoGpu(msg) from None
    return found


def current_gpu() -> int:
    """The number of the GPU that CuPy works on now: what was compiled or copied for one is not there on another."""
    return int(cupy().cuda.Device().id)


@cache
def _source(name: str) -> str:
    folder = files("warpfrag.arithmetic.gpu")
    return "".join(folder.joinpath(f"{part}.cu").read_text(encoding="utf-8") for part in ("common", name))


def _compiled(name: str, macros: dict[str, int | str], prologue: str = "") -> Any:  # noqa: ANN401 (a module of CuPy)
    options = ("-std=c++17", *(f"-D{macro}={value}" for macro, value in macros.items()))
    return cupy().RawModule(code=prologue + _source(name), options=options, backend="nvrtc")


@cache
def _sums(_gpu: int) -> Any:  # noqa: ANN401 (a kernel of CuPy)
    return _compiled("sums", {}).get_function("add")


def add_floats(a: Device, b: Device) -> Device:
    """a + b of float32. CuPy's own addition flushes subnormals."""
    a, b = (cupy().ascontiguousarray(array) for array in cupy().broadcast_arrays(a, b))
    out = cupy().empty_like(a)
    if out.size:
        _sums(current_gpu())((-(-out.size // THREADS),), (THREADS,), (a, b, out, LONG(out.size)))
    return out


def _parts(extent: int, most: int) -> list[slice]:
    return [slice(first, min(first + most, extent)) for first in range(0, extent, most)]


class DeviceKernel(ABC):
    """A rule for the GPU: its source, its macros, and how it is run on a part of a product that fits the room."""

    source: str
    bytes_per_element: float
    most_lines = MOST_LINES

    def __init__(self, rule: Rule) -> None:
        """Nothing is compiled yet."""
        self.rule = rule

    @abstractmethod
    def macros(self) -> dict[str, int | str]:
        """The numbers of the rule."""

    @property
    def prologue(self) -> str:
        """What stands before the source."""
        return ""

    @abstractmethod
    def run(self, operands: Operands) -> Device:
        """D's codes of a part: arrays of the GPU, contiguous; C may be written to."""

    @cached_property
    def module(self) -> Any:  # noqa: ANN401
        """The compiled kernels."""
        return _compiled(self.source, self.macros(), self.prologue)

    def launch(self, name: str, grid: tuple[int, int, int], block: int, *arguments: object, shared: int = 0) -> None:
        """Run a kernel."""
        kernel = self.module.get_function(name)
        if shared:
            kernel.max_dynamic_shared_size_bytes = shared
        kernel(grid, (block,), arguments, shared_mem=shared)

    def parts(self, operands: Operands) -> Iterator[tuple[tuple[slice, ...], list[Operands]]]:
        """Which outputs to compute at once, and their operands, part of K after part."""
        tiles, height, width = operands.c.shape
        depth = operands.b.shape[1]
        lines = min(height, self.most_lines) + min(width, self.most_lines)
        whole = max(1, int(ROOM / (lines * self.bytes_per_element)))  # elements along K that fit
        at_once = min(depth, max(LEAST_DEPTH, whole)) // self.rule.k * self.rule.k or self.rule.k
        together = min(MOST_TILES, max(1, whole // depth))
        instructions, each = depth // self.rule.k, at_once // self.rule.k
        for place in product(_parts(tiles, together), _parts(height, self.most_lines), _parts(width, self.most_lines)):
            block = operands.part(*place)
            yield place, [part_of_k(block, part.start, part.stop, instructions) for part in _parts(instructions, each)]

    def matmul(self, operands: Operands) -> Device:
        """D's codes, as an array of the GPU."""
        if operands.c.size == 0:
            return cupy().empty(operands.c.shape, code_dtype(FORMATS[self.rule.d]))
        out = None
        for place, parts in self.parts(operands):
            code = parts[0].c
            for part in parts:
                code = self.run(_contiguous(part._replace(c=code)))
            if code.shape == operands.c.shape:
                return code
            if out is None:
                out = cupy().empty(operands.c.shape, code.dtype)
            out[place] = code
        return out


def _contiguous(operands: Operands) -> Operands:
    found: list[Any] = [None if array is None else cupy().ascontiguousarray(array) for array in operands]
    return Operands(*found)


def _with_zeros(operands: Operands) -> Device:
    """A sparse A with its zeros."""
    if operands.columns is None:
        return operands.a
    tiles, height, kept = operands.a.shape
    full = cupy().zeros((tiles * height, operands.b.shape[1]), operands.a.dtype)
    rows = cupy().arange(tiles * height)[:, None]
    full[rows, operands.columns.reshape(-1, kept)] = operands.a.reshape(-1, kept)
    return full.reshape(tiles, height, -1)


def _padded(lines: int, extent: int) -> int:
    return -(-lines // extent) * extent


def _strides_a(a: Device) -> np.ndarray[Any, Any]:
    return struct(STRIDES, a.shape[1] * a.shape[2], a.shape[2], 1)


def _strides_b(b: Device) -> np.ndarray[Any, Any]:
    return struct(STRIDES, b.shape[1] * b.shape[2], 1, b.shape[2])


def _is_f16(name: str) -> int:
    return int(name == "f16")


class FusedDevice(DeviceKernel):
    """The truncated fused dot-product-add, plain or with a power of two per block."""

    source = "fused"
    bytes_per_element = 11.0
    rows_per_thread, columns_per_thread = 8, 4
    threads_down, threads_across = 8, 16
    most_bits, most_products = 25, 64
    """For which the float64 argument holds; whatever else is computed by the scalar rule."""

    def __init__(self, rule: Fused) -> None:
        """Collect the numbers of a step."""
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
            rule.sum.fraction_bits <= self.most_bits
            and len(lengths) == 1
            and self.products <= self.most_products
            and not (self.products % 16 if self.products > 16 else self.products not in (4, 8, 16))
        )

    def macros(self) -> dict[str, int | str]:
        """The numbers of the rule, and what fits the shared memory of this GPU."""
        rule, stage = self.fused, self.stage_bytes
        room = cupy().cuda.Device().attributes
        per_block, per_sm = room["MaxSharedMemoryPerBlockOptin"], room["MaxSharedMemoryPerMultiprocessor"]
        self.stages = 3 if 2 * (3 * stage + 1024) <= per_sm and 3 * stage <= per_block else 2
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
            # products of formats with fewer exponent bits stay far from the ends of f32's range
            "WATCHES_EXPONENTS": int(
                isinstance(rule, Scaled) or any(FORMATS[name].exponent > 5 for name in rule.multiplicands)
            ),
            "ROWS_PER_THREAD": self.rows_per_thread,
            "COLUMNS_PER_THREAD": self.columns_per_thread,
            "STAGES": self.stages,
            "BLOCKS_PER_SM": 2 if 2 * (self.stages * stage + 1024) <= per_sm else 1,
        }

    @property
    def span(self) -> int:
        """Elements of one word of signs."""
        return min(self.products, 16)

    @property
    def stage_bytes(self) -> int:
        """Shared memory of one stage."""
        return (self.height + self.width) * (self.depth * 10 + self.depth // self.span * 4)

    def codes(self, array: Device, side: int) -> Device:
        """The codes that are multiplied."""
        source, target = (self.fused.a, self.fused.b)[side], self.fused.multiplicands[side]
        if source == target:
            return array
        table = conversion(source, target).astype(code_dtype(FORMATS[target]))
        return cupy().asarray(table)[array]

    def scales(self, codes: Device | None, *, is_b: bool) -> tuple[Device, np.ndarray[Any, Any]]:
        """The exponents of scale factors, or null, and where they lie."""
        if codes is None:
            return NULL, struct(BLOCKS, 0, 0, 0, 1)
        blocks, lines = codes.shape[1:] if is_b else codes.shape[:0:-1]
        line, block = (1, lines) if is_b else (blocks, 1)
        return powers_of_two(codes), struct(BLOCKS, blocks * lines, line, block, self.rule.k // self.rule.scales)

    def prepare(
        self,
        codes: Device,
        order: Device,
        scales: tuple[Device, np.ndarray[Any, Any]],
        special: Device | None,
        *,
        is_b: bool,
    ) -> tuple[Any, ...]:
        """One side as `fused` takes it: values, exponents, signs, and how many lines there are with the padding."""
        cp = cupy()
        tiles = codes.shape[0]
        lines, depth = codes.shape[2 if is_b else 1], len(order)
        padded = _padded(lines, self.width if is_b else self.height)
        room = (
            cp.empty((tiles, depth, padded), cp.float64),
            cp.empty((tiles, depth // 4, padded), cp.uint64),
            cp.empty((tiles, depth // self.span, padded), cp.uint32),
        )
        self.launch(
            f"prepare_{'b' if is_b else 'a'}{8 * codes.dtype.itemsize}",
            (-(-padded // THREADS), depth // self.span, tiles),
            THREADS,
            codes, (_strides_b if is_b else _strides_a)(codes), order, *scales, self.encodings[is_b], *room,
            NULL if special is None else special, INT(lines), INT(padded), INT(depth),
        )  # fmt: skip
        return *room, INT(padded)

    def run(self, operands: Operands) -> Device:
        """All of it, then again what needs care."""
        cp, rule = cupy(), self.fused
        a, b, c = self.codes(operands.a, 0), self.codes(operands.b, 1), operands.c
        tiles, height, width = c.shape
        stored, rows = order_of(rule, b.shape[1])
        scales_a, scales_b = self.scales(operands.scale_a, is_b=False), self.scales(operands.scale_b, is_b=True)
        out = cp.empty(c.shape, code_dtype(FORMATS[rule.d]))
        odd = NULL
        if self.is_quick:
            odd = cp.zeros(c.shape, cp.uint8)
            special = cp.zeros((tiles, width), cp.uint8) if rule.is_sparse else None
            order = cp.asarray(np.pad(rows, (0, -len(rows) % self.depth), constant_values=-1))
            ready_a = self.prepare(_with_zeros(operands._replace(a=a)), order, scales_a, None, is_b=False)
            ready_b = self.prepare(b, order, scales_b, special, is_b=True)
            self.launch(
                "fused",
                (int(ready_b[-1]) // self.width, int(ready_a[-1]) // self.height, tiles),
                self.threads_down * self.threads_across,
                *ready_a, *ready_b, c, out, odd, NULL if special is None else special,
                INT(height), INT(width), INT(len(rows) // self.products),
                shared=self.stages * self.stage_bytes,
            )  # fmt: skip
        self.launch(
            "redo",
            (-(-out.size // THREADS), 1, 1),
            THREADS,
            a, b, _strides_a(a), _strides_b(b), *self.encodings, INT(a.dtype.itemsize), INT(b.dtype.itemsize),
            NULL if operands.columns is None else operands.columns.astype(cp.int32),
            scales_a[0], scales_b[0], scales_a[1], scales_b[1],
            cp.asarray(stored), INT(len(stored)), INT(self.stored), c, out, odd,
            INT(height), INT(width), INT(tiles),
        )  # fmt: skip
        return out


class IntegerDevice(DeviceKernel):
    """8- and 4-bit integers, and bits."""

    source = "integer"
    bytes_per_element = 1.0
    extent, threads, depth = 128, 256, 4

    def __init__(self, rule: Integer | Popcount) -> None:
        """How many codes a register holds."""
        super().__init__(rule)
        self.integers = rule
        self.codes = 32 if isinstance(rule, Popcount) else 4

    def macros(self) -> dict[str, int | str]:
        """The numbers of the rule."""
        rule = self.integers
        operation, clamps = ("DOT", rule.clamps) if isinstance(rule, Integer) else (rule.operation.upper(), False)
        return {
            "CODES": self.codes,
            "BITS": FORMATS[rule.a].bits,
            "SIGNED_A": int(FORMATS[rule.a].signed),
            "SIGNED_B": int(FORMATS[rule.b].signed),
            "OPERATION": operation,
            "CLAMPS": int(clamps),
            "WORDS": rule.k // self.codes,
        }

    def pack(self, codes: Device, name: str, *, is_b: bool) -> Device:
        """Registers of codes."""
        lines, depth = codes.shape[2 if is_b else 1], codes.shape[1 if is_b else 2]
        padded = _padded(lines, self.extent)
        registers = _padded(-(-depth // self.codes), self.depth)
        words = cupy().empty((codes.shape[0], registers, padded), np.uint32)
        strides = (_strides_b if is_b else _strides_a)(codes)
        grid = (-(-padded // THREADS), registers, codes.shape[0])
        sizes = (INT(lines), INT(padded), INT(depth), INT(registers))
        self.launch("pack", grid, THREADS, codes, strides, INT(FORMATS[name].signed), words, *sizes)
        return words

    def run(self, operands: Operands) -> Device:
        """Onto C."""
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
    """f64."""

    source = "fma64"
    bytes_per_element = 8.0
    extent = 64

    def macros(self) -> dict[str, int | str]:
        """The rounding."""
        rule = self.rule
        names = {"rn": "__fma_rn", "rz": "__fma_rz", "rm": "__fma_rd", "rp": "__fma_ru"}
        return {"FMA": names[rule.rounding]} if isinstance(rule, Fma64) else {}

    def run(self, operands: Operands) -> Device:
        """From C."""
        a, b, c = operands[:3]
        tiles, height, width = c.shape
        out = cupy().empty_like(c)
        grid = (-(-width // self.extent), -(-height // self.extent), tiles)
        self.launch("fma64", grid, 256, a, b, c, out, INT(height), INT(width), INT(b.shape[1]))
        return out


class ChainDevice(DeviceKernel):
    """m8n8k4 in software."""

    source = "chain"
    bytes_per_element = 2.0

    def macros(self) -> dict[str, int | str]:
        """The accumulators' formats."""
        return {"C_IS_F16": _is_f16(self.rule.c), "D_IS_F16": _is_f16(self.rule.d)}

    def run(self, operands: Operands) -> Device:
        """From C."""
        a, b, c = operands[:3]
        tiles, height, width = c.shape
        out = cupy().empty(c.shape, code_dtype(FORMATS[self.rule.d]))
        sizes = (INT(height), INT(width), INT(b.shape[1]), INT(tiles))
        self.launch("chain", (-(-out.size // THREADS), 1, 1), THREADS, a, b, c, out, *sizes)
        return out


class GroupedDevice(DeviceKernel):
    """Block-scaled 4-bit floats."""

    source = "grouped"
    bytes_per_element = 1.0
    extent = 64

    def __init__(self, rule: Grouped) -> None:
        """Tables from codes to doubled elements and to scales."""
        super().__init__(rule)
        self.grouped = rule
        elements = FORMATS[rule.a]
        self.doubled = np.array([round(2 * elements.decode(code)) for code in range(elements.codes)], np.int8)

    def macros(self) -> dict[str, int | str]:
        """The numbers of the rule."""
        rule = self.grouped
        return {
            "K": rule.k,
            "GROUP": rule.group,
            "SCALES": rule.scales,
            "FRACTION_BITS": rule.sum.fraction_bits,
            "ZERO_EXPONENT": f"({rule.sum.zero_exponent})",
        }

    def pack(self, codes: Device, *, is_b: bool) -> Device:
        """Doubled elements, four to a register."""
        lines, depth = codes.shape[2 if is_b else 1], codes.shape[1 if is_b else 2]
        padded = _padded(lines, self.extent)
        words = cupy().empty((codes.shape[0], depth // 4, padded), np.uint32)
        strides = (_strides_b if is_b else _strides_a)(codes)
        table = cupy().asarray(self.doubled)
        grid = (-(-padded // THREADS), depth // 4, codes.shape[0])
        self.launch("pack", grid, THREADS, codes, strides, table, words, INT(lines), INT(padded), INT(depth // 4))
        return words

    def run(self, operands: Operands) -> Device:
        """From C."""
        cp = cupy()
        tiles, height, width = operands.c.shape
        a, b = self.pack(operands.a, is_b=False), self.pack(operands.b, is_b=True)
        table = cp.asarray(split_scales(self.rule.scale_format))
        scales = [cp.ascontiguousarray(table[codes]) for codes in operands[4:]]
        out = cp.empty(operands.c.shape, cp.uint32)
        sizes = (INT(height), INT(width), INT(a.shape[2]), INT(b.shape[2]), INT(a.shape[1] * 4 // self.rule.k))
        grid = (b.shape[2] // self.extent, a.shape[2] // self.extent, tiles)
        self.launch("grouped", grid, 256, a, b, *scales, operands.c.astype(cp.uint32), out, *sizes)
        return out


KERNELS: dict[type[Rule], Any] = {
    Fused: FusedDevice,
    Scaled: FusedDevice,
    Grouped: GroupedDevice,
    Chain: ChainDevice,
    Fma64: Fma64Device,
    Integer: IntegerDevice,
    Popcount: IntegerDevice,
}


@cache
def kernel_of(rule: Rule, gpu: int) -> DeviceKernel:
    """The kernel of a rule on the GPU of that number, once the canary has passed."""
    kernel: DeviceKernel = KERNELS[type(rule)](rule)
    operands = operands_of(rule)
    found = on_device(kernel, operands)
    if not np.array_equal(cupy().asnumpy(found).astype(np.uint64), reference.matmul(rule, operands).astype(np.uint64)):
        name = cupy().cuda.runtime.getDeviceProperties(gpu)["name"].decode()
        msg = f"the GPU's kernel of this rule does not compute what the reference does on this {name}: {rule}"
        raise NoGpu(msg)
    return kernel


def on_device(kernel: DeviceKernel, operands: Operands) -> Device:
    """Run a kernel on arrays of the host or the GPU."""
    arrays: list[Any] = [None if array is None else cupy().asarray(array) for array in operands]
    return kernel.matmul(Operands(*arrays))


def as_given(found: Device, operands: Operands) -> Codes:
    """A result where A is: in the memory of the GPU, or of the host."""
    codes: Codes = found if isinstance(operands.a, cupy().ndarray) else cupy().asnumpy(found)
    return codes


class Cuda:
    """A GPU that emulates."""

    name = "cuda"
    on_gpu = True

    def matmul(self, rule: Rule, operands: Operands) -> Codes:
        """D's codes; an array of the GPU where A is one."""
        found: Codes = on_device(kernel_of(rule, current_gpu()), operands)
        found = found.astype(code_dtype(FORMATS[rule.d]), copy=False)
        return as_given(found, operands)
