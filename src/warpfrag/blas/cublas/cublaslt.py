"""Query cuBLAS for a gemm: the configuration that its heuristic returns, and the kernels that it launches.

There are two queries, neither of which runs a gemm:

    configuration    cublasLtMatmulAlgoGetHeuristic with PyTorch's arguments: 32 MiB of workspace, or 1 MiB if
                     PyTorch calls cuBLASLt itself; partial sums in float32
    kernels          the call itself, captured into a CUDA graph instead of a stream: the graph's nodes name the kernels

PyTorch calls cublasGemmEx and cublasSgemm for mm and bmm, and cublasLtMatmul for the rest. cuBLAS is column-major: a
row-major D is its transpose in column-major order, so cuBLAS's A is our B, and its m is our n.

The queries use ctypes, and need an NVIDIA GPU, its driver, and PyTorch's cuBLAS libraries.
"""

from __future__ import annotations

import ctypes
import math
import re
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from warpfrag.blas.cublas.choice_table import NVJET, Choice
from warpfrag.blas.cublas.segment_k import tiles_launched
from warpfrag.errors import NoGpu, NotModelled

WORKSPACE, LT_WORKSPACE = 32 << 20, 1 << 20
"""The workspace sizes in bytes that PyTorch passes to cuBLAS (on Hopper) and to cuBLASLt."""
LIBRARIES = ("libcublasLt.so", "libcublas.so")
TYPES = {"f16": 2, "bf16": 14, "tf32": 0, "f32": 0, "s8": 3, "e4m3": 28}
RESULTS = {"f16": 2, "bf16": 14, "tf32": 0, "f32": 0, "s8": 10, "e4m3": 14}
FLOAT32, INT32 = 0, 10
COMPUTE = {"f16": 68, "bf16": 68, "tf32": 77, "f32": 68, "s8": 72, "e4m3": 68}
"""The cublasComputeType of each operand format; `TYPES` and `RESULTS` have the cudaDataType of operands and D."""
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS, SCALE_A, SCALE_B, FAST, BIAS_TYPE = 3, 4, 7, 8, 17, 18, 25, 26
"""Attributes of a cublasLtMatmulDesc."""
MAX_WORKSPACE, REDUCTION_SCHEMES = 1, 3
"""Attributes of a cublasLtMatmulPreference."""
IN_FLOAT32 = 2
"""The reduction scheme that PyTorch leaves enabled when reduced-precision reductions are disabled."""
ADD_BIAS = 4
BATCH_COUNT, BATCH_STRIDE = 5, 6
"""Attributes of a cublasLtMatrixLayout."""
MATH_MODES = {"tf32": 3, "f32": 0}
NO_REDUCED_PRECISION = 16
"""A math mode of a cuBLAS handle."""
TENSOR_OP = 99
RELAXED = 2
"""The stream-capture mode in which the library may load its kernels."""
KERNEL_NODE = 0
RESULT_BYTES = 96
SIZES = (4, 4, 4, 4, 4, 4, 4, 2, 2)
"""The sizes in bytes of an algorithm's attributes, in the order of `Configuration`'s fields."""


class Configuration(NamedTuple):
    """The algorithm that cuBLASLt's heuristic returns, in cuBLAS's numbering."""

    algorithm: int
    tile: int
    split_k: int
    reduction: int
    swizzle: int
    custom: int
    stages: int
    inner: int
    cluster: int


class KernelLaunch(NamedTuple):
    """A kernel that a call would launch."""

    name: str
    grid: tuple[int, int, int]
    block: int


class _NodeParams(ctypes.Structure):
    """The driver's struct CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = [
        ("function", ctypes.c_void_p), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint), ("params", ctypes.c_void_p), ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p), ("context", ctypes.c_void_p), ("rest", ctypes.c_uint64 * 8),
    ]  # fmt: skip


@dataclass(frozen=True)
class Question:
    """A gemm as it is passed to a library; `call` is the PyTorch function that computes it."""

    call: str
    type: str
    layout: str
    m: int
    n: int
    k: int
    batch: int = 1


def _check(status: int, label: str) -> None:
    if status:
        raise NoGpu(f"{label} failed with status {status}")


def _set_attributes(setter: Callable[..., int], target: ctypes.c_void_p, values: list[tuple[int, Any]]) -> None:
    for attribute, value in values:
        status = setter(target, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))
        _check(status, f"setting attribute {attribute} of a cuBLASLt descriptor")


def _loaded() -> Iterator[str]:
    """Yield the paths of libraries that this process has already loaded, for example through PyTorch."""
    maps = Path("/proc/self/maps")
    if maps.exists():
        yield from dict.fromkeys(re.findall(r"/\S*libcublas\S*", maps.read_text(encoding="utf-8")))


def find_libraries() -> tuple[str, str]:
    """Return the paths of cuBLASLt and cuBLAS: loaded ones first, then NVIDIA's Python packages, then the system's."""
    packages = [
        str(path)
        for folder in map(Path, sys.path)
        for path in sorted(folder.glob("nvidia/*/lib/libcublas*.so*"))
        if folder.is_dir()
    ]
    paths = [*_loaded(), *packages]
    names = [next((path for path in paths if Path(path).name.startswith(name)), name) for name in LIBRARIES]
    return names[0], names[1]


class Library:
    """The cuBLAS library on this machine's GPU, ready for queries. Not thread-safe."""

    def __init__(self) -> None:
        """Open the driver and the libraries, and allocate a little GPU memory, which no kernel reads."""
        try:
            self._driver: Any = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise NoGpu("cannot query cuBLAS: this machine has no NVIDIA driver (libcuda.so.1)") from None
        _check(self._driver.cuInit(0), "cuInit")
        context = ctypes.c_void_p()
        _check(self._driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
        _check(self._driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        files = find_libraries()
        try:
            self._lt, self._blas = (ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) for path in files)
        except OSError as error:
            raise NoGpu(f"cannot load cuBLAS ({error}); install PyTorch with CUDA, which includes it") from None
        self._lt_handle, self._blas_handle, self._stream = (ctypes.c_void_p() for _ in range(3))
        _check(self._lt.cublasLtCreate(ctypes.byref(self._lt_handle)), "cublasLtCreate")
        _check(self._blas.cublasCreate_v2(ctypes.byref(self._blas_handle)), "cublasCreate")
        _check(self._driver.cuStreamCreate(ctypes.byref(self._stream), 1), "cuStreamCreate")
        base = ctypes.c_void_p()
        size = 4 * WORKSPACE
        _check(self._driver.cuMemAlloc_v2(ctypes.byref(base), ctypes.c_size_t(size)), "cuMemAlloc")
        self._a, self._b, self._d, self._workspace = (
            ctypes.c_void_p((base.value or 0) + place * WORKSPACE) for place in range(4)
        )
        self._blas.cublasSetStream_v2(self._blas_handle, self._stream)
        _check(
            self._blas.cublasSetWorkspace_v2(self._blas_handle, self._workspace, ctypes.c_size_t(WORKSPACE)),
            "cublasSetWorkspace",
        )
        self._lt.cublasLtMatmulAlgoGetHeuristic.argtypes = (
            [ctypes.c_void_p] * 7 + [ctypes.c_int] + [ctypes.c_void_p] * 2
        )
        self._lt.cublasLtMatmul.argtypes = [ctypes.c_void_p] * 14 + [ctypes.c_size_t, ctypes.c_void_p]
        self._lt.cublasLtMatrixLayoutCreate.argtypes = [
            ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64,
        ]  # fmt: skip
        self._algorithm = (ctypes.c_ubyte * RESULT_BYTES)()
        self._preferences = {
            (size, is_limited): self._make_preference(size, is_limited=is_limited)
            for size in (WORKSPACE, LT_WORKSPACE)
            for is_limited in (False, True)
        }
        self._descriptions: dict[tuple[str, str, str], ctypes.c_void_p] = {}
        self._names: dict[int, str] = {}

    @property
    def version(self) -> str:
        """The version of cuBLASLt, such as 13.0.2."""
        self._lt.cublasLtGetVersion.restype = ctypes.c_size_t
        number = int(self._lt.cublasLtGetVersion())
        major, rest = divmod(number, 10000 if number >= 100000 else 1000)
        return f"{major}.{rest // 100}.{rest % 100}"

    @property
    def gpu(self) -> str:
        """The name of the GPU."""
        text = ctypes.create_string_buffer(200)
        _check(self._driver.cuDeviceGetName(text, 200, 0), "cuDeviceGetName")
        return text.value.decode()

    def choice(self, asked: Question) -> Choice:
        """Return the part of the choice that determines the order of additions."""
        configuration = self.configuration(asked)
        is_nvjet = configuration is not None and configuration.algorithm == NVJET
        launches = () if is_nvjet else self.kernels(asked)
        return choice_of(configuration, launches, (asked.m, asked.n, asked.k), asked.batch, asked.layout)

    def configuration(self, asked: Question) -> Configuration | None:
        """Return the first algorithm that cuBLASLt's heuristic suggests, or None if there is none."""
        with self._matrices(asked) as matrices:
            return self._asked(asked, matrices)

    def kernels(self, asked: Question) -> tuple[KernelLaunch, ...]:
        """Return the kernels that PyTorch's call would launch, in order, without running them."""
        if asked.call in {"matmul", "bmm"}:
            return self._captured(lambda: self._blas_call(asked))
        with self._matrices(asked) as matrices:
            if self._asked(asked, matrices) is None:
                return ()
            return self._captured(lambda: self._lt_call(asked, matrices))

    def _make_preference(self, workspace: int, *, is_limited: bool) -> ctypes.c_void_p:
        """Return a preference descriptor.

        If `is_limited`, partial sums are added in float32, as PyTorch requests if D has 16 bits.
        """
        made = ctypes.c_void_p()
        _check(self._lt.cublasLtMatmulPreferenceCreate(ctypes.byref(made)), "cublasLtMatmulPreferenceCreate")
        values: list[tuple[int, Any]] = [(MAX_WORKSPACE, ctypes.c_uint64(workspace))]
        if is_limited:
            values.append((REDUCTION_SCHEMES, ctypes.c_uint32(IN_FLOAT32)))
        _set_attributes(self._lt.cublasLtMatmulPreferenceSetAttribute, made, values)
        return made

    def _description(self, asked: Question) -> ctypes.c_void_p:
        """Return the cublasLtMatmulDesc for a gemm."""
        key = asked.call, asked.type, asked.layout
        if key not in self._descriptions:
            made = ctypes.c_void_p()
            scale = INT32 if asked.type == "s8" else FLOAT32
            status = self._lt.cublasLtMatmulDescCreate(ctypes.byref(made), COMPUTE[asked.type], scale)
            _check(status, "cublasLtMatmulDescCreate")
            values: list[tuple[int, Any]] = [
                (TRANSPOSE_A, ctypes.c_int32(asked.layout[1] == "t")),
                (TRANSPOSE_B, ctypes.c_int32(asked.layout[0] == "t")),
            ]
            if asked.call in {"linear", "scaled_mm bias"}:
                values += [(EPILOGUE, ctypes.c_uint32(ADD_BIAS)), (BIAS, self._d)]
            if asked.type == "e4m3":
                values += [(SCALE_A, self._d), (SCALE_B, self._d), (FAST, ctypes.c_int8(asked.call.endswith("fast")))]
            if asked.call == "scaled_mm bias":
                values.append((BIAS_TYPE, ctypes.c_int32(RESULTS[asked.type])))
            _set_attributes(self._lt.cublasLtMatmulDescSetAttribute, made, values)
            self._descriptions[key] = made
        return self._descriptions[key]

    @contextmanager
    def _matrices(self, asked: Question) -> Iterator[list[ctypes.c_void_p]]:
        """Yield the matrix layouts of cuBLAS's A, B and D."""
        m, n, k = asked.m, asked.n, asked.k
        shapes = [
            (TYPES[asked.type], *((k, n) if asked.layout[1] == "t" else (n, k))),
            (TYPES[asked.type], *((m, k) if asked.layout[0] == "t" else (k, m))),
            (RESULTS[asked.type], n, m),
        ]
        made: list[ctypes.c_void_p] = []
        try:
            for kind, rows, columns in shapes:
                layout = ctypes.c_void_p()
                status = self._lt.cublasLtMatrixLayoutCreate(ctypes.addressof(layout), kind, rows, columns, rows)
                _check(status, "cublasLtMatrixLayoutCreate")
                made.append(layout)
                if asked.batch > 1:
                    count, stride = ctypes.c_int32(asked.batch), ctypes.c_int64(rows * columns)
                    values: list[tuple[int, Any]] = [(BATCH_COUNT, count), (BATCH_STRIDE, stride)]
                    _set_attributes(self._lt.cublasLtMatrixLayoutSetAttribute, layout, values)
            yield made
        finally:
            for layout in made:
                self._lt.cublasLtMatrixLayoutDestroy(layout)

    def _asked(self, asked: Question, matrices: list[ctypes.c_void_p]) -> Configuration | None:
        a, b, d = matrices
        count = ctypes.c_int(0)
        workspace = WORKSPACE if asked.call in {"matmul", "bmm"} else LT_WORKSPACE
        status = self._lt.cublasLtMatmulAlgoGetHeuristic(
            self._lt_handle, self._description(asked), a, b, d, d,
            self._preferences[workspace, asked.type in {"f16", "bf16"}], 1,
            ctypes.addressof(self._algorithm), ctypes.addressof(count),
        )  # fmt: skip
        return None if status or not count.value else self._configuration()

    def _configuration(self) -> Configuration:
        """Return the configuration of the algorithm that the heuristic returned last."""
        numbers = []
        value, written = ctypes.c_uint32(), ctypes.c_size_t()
        for attribute, size in enumerate(SIZES):
            value.value = 0
            self._lt.cublasLtMatmulAlgoConfigGetAttribute(
                ctypes.byref(self._algorithm), attribute, ctypes.byref(value), ctypes.c_size_t(size),
                ctypes.byref(written),
            )  # fmt: skip
            numbers.append(struct.unpack("i", struct.pack("I", value.value))[0])
        return Configuration(*numbers)

    def _blas_call(self, asked: Question) -> int:
        """Call cublasGemmEx or cublasSgemm as PyTorch does."""
        blas, handle = self._blas, self._blas_handle
        m, n, k, batch = asked.m, asked.n, asked.k, asked.batch
        turned_a, turned_b = int(asked.layout[1] == "t"), int(asked.layout[0] == "t")
        lda, ldb = k if turned_a else n, m if turned_b else k
        alpha, beta = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
        is_single = asked.type in MATH_MODES
        blas.cublasSetMathMode(handle, MATH_MODES.get(asked.type, NO_REDUCED_PRECISION))
        kind = [] if is_single else [TYPES[asked.type]]

        def matrix(address: ctypes.c_void_p, leading: int, extent: int) -> list[Any]:
            return [address, *kind, leading, *([ctypes.c_longlong(extent)] if batch > 1 else [])]

        matrices = (matrix(self._a, lda, n * k), matrix(self._b, ldb, m * k), matrix(self._d, n, m * n))
        count = [batch] if batch > 1 else []
        compute = [] if is_single else [COMPUTE[asked.type], TENSOR_OP]
        function = {
            (True, False): blas.cublasSgemm_v2,
            (True, True): blas.cublasSgemmStridedBatched,
            (False, False): blas.cublasGemmEx,
            (False, True): blas.cublasGemmStridedBatchedEx,
        }[is_single, batch > 1]
        start = (handle, turned_a, turned_b, n, m, k, alpha)
        return int(function(*start, *matrices[0], *matrices[1], beta, *matrices[2], *count, *compute))

    def _lt_call(self, asked: Question, matrices: list[ctypes.c_void_p]) -> int:
        """Call cublasLtMatmul with the algorithm that the heuristic returns."""
        a, b, d = matrices
        scalar = ctypes.c_int32 if asked.type == "s8" else ctypes.c_float
        alpha, beta = scalar(1), scalar(0)
        return int(
            self._lt.cublasLtMatmul(
                self._lt_handle, self._description(asked), ctypes.addressof(alpha), self._a, a, self._b, b,
                ctypes.addressof(beta), self._d, d, self._d, d, ctypes.addressof(self._algorithm), self._workspace,
                LT_WORKSPACE, self._stream,
            )
        )  # fmt: skip

    def _captured(self, launch: Callable[[], int]) -> tuple[KernelLaunch, ...]:
        """Capture a call into a CUDA graph, and return the kernels in the graph."""
        driver, graph = self._driver, ctypes.c_void_p()
        _check(driver.cuStreamBeginCapture_v2(self._stream, RELAXED), "cuStreamBeginCapture")
        status = launch()
        ended = driver.cuStreamEndCapture(self._stream, ctypes.byref(graph))
        try:
            _check(status, "cuBLAS")
            _check(ended, "cuStreamEndCapture")
            count = ctypes.c_size_t()
            _check(driver.cuGraphGetNodes(graph, None, ctypes.byref(count)), "cuGraphGetNodes")
            nodes = (ctypes.c_void_p * max(count.value, 1))()
            _check(driver.cuGraphGetNodes(graph, nodes, ctypes.byref(count)), "cuGraphGetNodes")
            return tuple(self._launches(nodes[: count.value]))
        finally:
            if graph.value:
                driver.cuGraphDestroy(graph)

    def _launches(self, nodes: list[int | None]) -> Iterator[KernelLaunch]:
        for address in nodes:
            node, kind, params = ctypes.c_void_p(address), ctypes.c_int(-1), _NodeParams()
            _check(self._driver.cuGraphNodeGetType(node, ctypes.byref(kind)), "cuGraphNodeGetType")
            if kind.value == KERNEL_NODE:
                status = self._driver.cuGraphKernelNodeGetParams_v2(node, ctypes.byref(params))
                _check(status, "cuGraphKernelNodeGetParams")
                grid = (params.grid[0], params.grid[1], params.grid[2])
                yield KernelLaunch(self._name(params), grid, params.block[0])

    def _name(self, params: _NodeParams) -> str:
        key = int(params.function or params.kernel or 0)
        if key not in self._names:
            text = ctypes.c_char_p()
            if params.function:
                status = self._driver.cuFuncGetName(ctypes.byref(text), ctypes.c_void_p(params.function))
            else:
                status = self._driver.cuKernelGetName(ctypes.byref(text), ctypes.c_void_p(params.kernel))
            _check(status, "querying the name of a kernel")
            self._names[key] = (text.value or b"").decode()
        return self._names[key]


def choice_of(
    configuration: Configuration | None,
    launches: Sequence[KernelLaunch],
    shape: tuple[int, int, int],
    batch: int = 1,
    layout: str = "nn",
) -> Choice:
    """Return the part of a configuration and its kernels that determines the order of additions."""
    main = [launch for launch in launches if "splitKreduce" not in launch.name]
    if configuration is None and not main:
        raise NotModelled(f"the library has no kernel for a gemm of {' x '.join(map(str, shape))}")
    algorithm, tile, split, reduction, swizzle, custom, stages, _, cluster = configuration or (0,) * 9
    if algorithm == NVJET or (main and main[0].name.startswith("nvjet")):
        return Choice(NVJET, 0, split, reduction, 0, 0, "nvjet")
    if not main:
        return Choice(algorithm, tile, split, reduction, custom, stages, "")
    name = main[0].name
    if "cutlass_" in name and "simt" not in name:
        tile_k = int((re.search(r"_\d+x\d+_(\d+)x\d+_[nt]{2}_align", name) or (0, "32"))[1])
        short = "s1688gemm" in name
        generation = "75" if "cutlass_75" in name else "80"
        family = f"cutlass_{generation}{'_wmma' if 'wmma' in name else ''}{'_s1688' if short else ''}"
        return Choice(algorithm, 0, max(1, main[0].grid[2] // batch), reduction, 0, tile_k, family)
    if "segment_k_on" in name and configuration is not None:
        total = tiles_launched(tile, cluster, layout, shape) * batch
        parts = math.prod(main[0].grid) // total if total else 0  # 0 unless all tiles fit in one wave
        return Choice(algorithm, tile, parts, 0, cluster, swizzle, "xmma_segment_k")
    if "sm90_xmma" in name:
        return Choice(algorithm, 0, 1, 0, 0, 0, "xmma_sm90")
    if "xmma" in name and "tf32" in name:
        tile_k = int((re.search(r"tilesize\d+x\d+x(\d+)", name) or (0, "0"))[1])
        return Choice(algorithm, 0, max(1, main[0].grid[2] // batch), reduction, 0, tile_k, "xmma_sm80")
    return Choice(algorithm, 0, split, reduction, custom, 0, _plain_family(name))


def _plain_family(name: str) -> str:
    """Return the family that a kernel's name contains or, if it contains none, the start of the name."""
    known = ("gemvNSP", "gemv2N", "gemv2T", "gemvx", "gemmSN_NN", "gemmSN_TN", "dot_kernel", "magma", "ffma", "simt")
    return next((word for word in known if word in name), re.sub(r"\W+", "_", name)[:60])


@cache
def library() -> Library:
    """Return the cuBLAS library of this machine, which is opened only once."""
    return Library()
