"""Single calls of cublasLtMatmul with auxiliary and gradient epilogues."""

import ctypes
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from warpfrag.blas.cublas.cublaslt import (
    BIAS,
    COMPUTE,
    EPILOGUE,
    FLOAT32,
    LT_WORKSPACE,
    TRANSPOSE_A,
    TRANSPOSE_B,
    TYPES,
    WORKSPACE,
    Library,
    _check,
    _set_attributes,
)  # fmt: skip
from warpfrag.errors import NoGpu

AUX_POINTER, AUX_LD = 11, 12
EPILOGUES = {
    "default": 1, "bias": 4, "relu": 2, "gelu": 32, "relu_aux": 130, "relu_aux_bias": 134, "gelu_aux": 160,
    "gelu_aux_bias": 164, "drelu": 136, "drelu_bgrad": 152, "dgelu": 192, "dgelu_bgrad": 208, "bgrada": 256,
    "bgradb": 512,
}  # fmt: skip
DTYPES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f32": np.float32}
PAIRS = (("bf16", "bf16"), ("f16", "f16"), ("tf32", "f32"), ("bf16", "f32"))
LAYOUTS = ("tn", "nn", "nt")
MASK_BITS, AUX_ELEMENTS = 128, 8
BUFFER = 32 << 20
FILL = 0xA5


class LtCase(NamedTuple):
    """A call in cuBLAS's terms: D is m x n and column-major; `layout` has a t for each transposed operand."""

    epilogue: str
    type: str
    result: str
    layout: str
    m: int
    n: int
    k: int
    alpha: float = 1.0
    beta: float = 0.0
    in_place: bool = False
    """True if C is D."""

    @property
    def ld_aux(self) -> int:
        """The leading dimension of the auxiliary buffer, in bits or elements."""
        unit = MASK_BITS if "relu" in self.epilogue else AUX_ELEMENTS
        return -(-self.m // unit) * unit

    @property
    def aux_bytes(self) -> int:
        """The size of the auxiliary buffer."""
        if "relu" in self.epilogue:
            return self.ld_aux * self.n // 8
        return self.ld_aux * self.n * int(np.dtype(DTYPES[self.result]).itemsize)

    @property
    def has_aux(self) -> bool:
        """True if the epilogue reads or writes an auxiliary buffer."""
        return bool(EPILOGUES[self.epilogue] & 128)

    @property
    def bias_count(self) -> int:
        """The number of elements of the bias or its gradient."""
        return self.n if self.epilogue == "bgradb" else self.m


class LtCall(NamedTuple):
    """The results of a call: the bytes of D, the auxiliary buffer and the bias."""

    status: int
    d: bytes = b""
    aux: bytes = b""
    bias: bytes = b""


class EpilogueLibrary(Library):
    """cuBLASLt with memory for the operands of a call."""

    def __init__(self) -> None:
        """Allocate the buffers."""
        super().__init__()
        base = ctypes.c_void_p()
        _check(self._driver.cuMemAlloc_v2(ctypes.byref(base), ctypes.c_size_t(3 * BUFFER)), "cuMemAlloc")
        self._c, self._aux, self._bias = (ctypes.c_void_p((base.value or 0) + at * BUFFER) for at in range(3))

    def upload(self, target: ctypes.c_void_p, data: NDArray[Any]) -> None:
        """Copy an array to a buffer."""
        raw = np.ascontiguousarray(data).tobytes()
        _check(self._driver.cuMemcpyHtoD_v2(target, raw, ctypes.c_size_t(len(raw))), "cuMemcpyHtoD")

    def download(self, source: ctypes.c_void_p, size: int) -> bytes:
        """Copy bytes from a buffer."""
        raw = ctypes.create_string_buffer(max(1, size))
        _check(self._driver.cuMemcpyDtoH_v2(raw, source, ctypes.c_size_t(size)), "cuMemcpyDtoH")
        return raw.raw[:size]

    def set_operands(self, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None = None) -> None:
        """Copy A, B and C to the GPU in column-major order."""
        self.upload(self._a, a)
        self.upload(self._b, b)
        if c is not None:
            self.upload(self._c, c)

    def call(self, case: LtCase, aux: bytes, bias: bytes, *, is_short: bool = False) -> tuple[LtCall, dict[str, Any]]:
        """Make a call; also return the configuration and the kernels, unless `is_short`."""
        descriptor, layouts = self._described(case)
        facts: dict[str, Any] = {}
        try:
            if not is_short:
                self._heuristic(descriptor, layouts, LT_WORKSPACE, case.result)
                facts["configuration 1"] = self._configuration()
            status = self._heuristic(descriptor, layouts, WORKSPACE, case.result)
            if status:
                return LtCall(status), facts
            if not is_short:
                facts["configuration 32"] = self._configuration()
                facts["kernels"] = self._kernels(case, descriptor, layouts)
            size_d = case.m * case.n * np.dtype(DTYPES[case.result]).itemsize
            if case.in_place:
                _check(self._driver.cuMemcpyDtoD_v2(self._d, self._c, ctypes.c_size_t(size_d)), "cuMemcpyDtoD")
            else:
                self.upload(self._d, np.full(size_d, FILL, np.uint8))
            self.upload(self._aux, np.frombuffer(aux or bytes([FILL]) * case.aux_bytes, np.uint8))
            self.upload(self._bias, np.frombuffer(bias, np.uint8))
            status = self._matmul(case, descriptor, layouts)
            _check(self._driver.cuStreamSynchronize(self._stream), "cuStreamSynchronize")
            if status:
                return LtCall(status), facts
            aux_size = case.aux_bytes if case.has_aux else 0
            buffers = (self._d, size_d), (self._aux, aux_size), (self._bias, len(bias))
            return LtCall(0, *(self.download(*each) for each in buffers)), facts
        finally:
            self._lt.cublasLtMatmulDescDestroy(descriptor)
            for layout in layouts:
                self._lt.cublasLtMatrixLayoutDestroy(layout)

    def kernels_of(self, case: LtCase) -> Any:  # noqa: ANN401 (JSON)
        """Return the kernels of a call without running it."""
        descriptor, layouts = self._described(case)
        try:
            if self._heuristic(descriptor, layouts, WORKSPACE, case.result):
                return None
            return self._kernels(case, descriptor, layouts)
        finally:
            self._lt.cublasLtMatmulDescDestroy(descriptor)
            for layout in layouts:
                self._lt.cublasLtMatrixLayoutDestroy(layout)

    def _described(self, case: LtCase) -> tuple[ctypes.c_void_p, list[ctypes.c_void_p]]:
        descriptor = ctypes.c_void_p()
        status = self._lt.cublasLtMatmulDescCreate(ctypes.byref(descriptor), COMPUTE[case.type], FLOAT32)
        _check(status, "cublasLtMatmulDescCreate")
        number = EPILOGUES[case.epilogue]
        values: list[tuple[int, Any]] = [
            (TRANSPOSE_A, ctypes.c_int32(case.layout[0] == "t")), (TRANSPOSE_B, ctypes.c_int32(case.layout[1] == "t")),
            (EPILOGUE, ctypes.c_uint32(number)),
        ]  # fmt: skip
        if number & (4 | 16 | 256 | 512):
            values.append((BIAS, self._bias))
        if case.has_aux:
            values += [(AUX_POINTER, self._aux), (AUX_LD, ctypes.c_int64(case.ld_aux))]
        _set_attributes(self._lt.cublasLtMatmulDescSetAttribute, descriptor, values)
        m, n, k = case.m, case.n, case.k
        shapes = [
            (TYPES[case.type], *((k, m) if case.layout[0] == "t" else (m, k))),
            (TYPES[case.type], *((n, k) if case.layout[1] == "t" else (k, n))),
            (TYPES[case.result], m, n),
        ]
        layouts = []
        for kind, rows, columns in shapes:
            layout = ctypes.c_void_p()
            status = self._lt.cublasLtMatrixLayoutCreate(ctypes.addressof(layout), kind, rows, columns, rows)
            _check(status, "cublasLtMatrixLayoutCreate")
            layouts.append(layout)
        return descriptor, layouts

    def _kernels(self, case: LtCase, descriptor: ctypes.c_void_p, layouts: list[ctypes.c_void_p]) -> object:
        try:
            found = self._captured(lambda: self._matmul(case, descriptor, layouts))
        except NoGpu as error:
            return str(error)
        return [[each.name, *each.grid, each.block] for each in found]

    def _heuristic(self, descriptor: ctypes.c_void_p, layouts: list[ctypes.c_void_p], size: int, result: str) -> int:
        a, b, d = layouts
        count, preference = ctypes.c_int(0), self._preferences[size, result != "f32"]
        status = self._lt.cublasLtMatmulAlgoGetHeuristic(
            self._lt_handle, descriptor, a, b, d, d, preference, 1, ctypes.addressof(self._algorithm),
            ctypes.addressof(count),
        )  # fmt: skip
        return int(status) or (0 if count.value else -1)

    def _matmul(self, case: LtCase, descriptor: ctypes.c_void_p, layouts: list[ctypes.c_void_p]) -> int:
        a, b, d = layouts
        c = self._c if case.beta and not case.in_place else self._d
        alpha, beta = ctypes.c_float(case.alpha), ctypes.c_float(case.beta)
        return int(
            self._lt.cublasLtMatmul(
                self._lt_handle, descriptor, ctypes.addressof(alpha), self._a, a, self._b, b, ctypes.addressof(beta),
                c, d, self._d, d, ctypes.addressof(self._algorithm), self._workspace,
                WORKSPACE, self._stream,
            )
        )  # fmt: skip


def text_of(case: LtCase) -> str:
    """Return the name of a case."""
    return " ".join(map(str, case[:9])) + " in_place" * case.in_place
