"""Compute the GEMMs of a program's cuBLAS calls as `wf.predict` does, with reasons why a GPU's bits may differ.

cuBLAS is column-major: its D is our D transposed, its A is our B, and its m is our n.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from warpfrag.blas.cublas.choice_table import GPU
from warpfrag.blas.cublas.library_epilogue import KernelEpilogue, gelu
from warpfrag.blas.cublas.library_gemm import library_epilogue, library_gemm
from warpfrag.blas.cublas.predict_order import RESULTS, PredictedOrder, find_product_order, product_kind
from warpfrag.device.auxiliary_epilogue import (
    AUX_ELEMENTS,
    MASK_BITS,
    WAVES,
    AuxiliaryEpilogue,
    depth_lanes,
    depth_sums,
    rounded,
    row_blocks,
)
from warpfrag.device.error_codes import ErrorCode
from warpfrag.errors import CudaError
from warpfrag.formats.epilogue import RESULTS as FLOATS
from warpfrag.formats.epilogue import finish, fma
from warpfrag.tensorcore.array_types import read_matrices

if TYPE_CHECKING:
    from warpfrag.device.launch_log import LaunchRecord

CUDA_TYPES: dict[int, str] = {0: "f32", 1: "f64", 2: "f16", 3: "s8", 10: "s32", 14: "bf16", 28: "e4m3"}
DTYPES: dict[str, Any] = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "s8": np.int8, "s32": np.int32,
    "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn,
}  # fmt: skip
F32, COMPUTE_F32, COMPUTE_TF32, COMPUTE_S32 = 0, 68, 77, 72
TF32_MATH, MATH_MASK, NO_REDUCED_PRECISION = 3, 15, 16
PLAIN, RELU, BIAS, GELU = 1, 2, 4, 32
AUX, BGRAD, DRELU, DGELU, BGRAD_A, BGRAD_B = 128, 16, 136, 192, 256, 512
ACTIVATIONS = {PLAIN: "", RELU: "relu", RELU | BIAS: "relu", BIAS: "", GELU: "gelu", GELU | BIAS: "gelu"}
EPILOGUES = ACTIVATIONS | {AUX | number: name for number, name in ACTIVATIONS.items() if name}
GRADIENTS = {DRELU: "relu", DRELU | BGRAD: "relu", DGELU: "gelu", DGELU | BGRAD: "gelu"}
EPILOGUES |= dict.fromkeys((*GRADIENTS, BGRAD_A, BGRAD_B), "")
WORKSPACE_MIB, LT_WORKSPACE_MIB = 32, 1
"""The workspace sizes in MiB with which the library's kernel choices were measured; PyTorch uses the same sizes."""
FIELDS = struct.Struct("<10Q12q2d16i40s")
MAX_CHAINED = 1 << 27
"""The maximum number of multiply-adds in a float32 GEMM that is computed as a chain of FMAs, in up to 10 s."""
Matrix = NDArray[Any]


class GemmCall(NamedTuple):
    """The arguments of a cuBLAS GEMM, in the order of `struct gemm` in cublas_stand_in.h."""

    a: int
    b: int
    c: int
    d: int
    bias: int
    alpha_address: int
    beta_address: int
    scale_a: int
    scale_b: int
    aux: int
    m: int
    n: int
    k: int
    lda: int
    ldb: int
    ldc: int
    ldd: int
    stride_a: int
    stride_b: int
    stride_c: int
    stride_d: int
    ld_aux: int
    alpha: float
    beta: float
    batch: int
    type_a: int
    type_b: int
    type_c: int
    type_d: int
    bias_type: int
    transpose_a: int
    transpose_b: int
    compute: int
    math: int
    epilogue: int
    fast: int
    scale_type: int
    is_batched: int
    has_pointers: int
    workspace_mib: int
    function: bytes

    @property
    def title(self) -> str:
        """The function, the types and the shape, for messages."""
        name = self.function.rstrip(b"\0").decode()
        types = " ".join(CUDA_TYPES.get(each, f"type {each}") for each in (self.type_a, self.type_b, self.type_d))
        count = f"{self.batch} x " * bool(self.is_batched)
        layout = "nt"[self.transpose_a > 0] + "nt"[self.transpose_b > 0]
        return f"{name} {types} {layout} {count}m {self.m} n {self.n} k {self.k}"


def read_gemm_call(payload: bytes) -> GemmCall:
    """Decode the GEMM call in a request."""
    return GemmCall(*FIELDS.unpack(payload))


class Finishing(NamedTuple):
    """The epilogue of a call: alpha * (A B) + beta * C + bias, then an activation."""

    alpha: float
    beta: float
    bias: Matrix | None
    c: Matrix | None
    activation: str


class ServedGemm:
    """A GEMM on device memory, and the reasons why a GPU's result may have different bits."""

    def __init__(self, call: GemmCall, memory: Callable[[int, int], NDArray[np.uint8]]) -> None:
        """Decode the call; raise CudaError for types and extents that cuBLAS or this stand-in does not accept."""
        self.call, self.memory = call, memory
        self.reasons: list[str] = []
        unknown = [each for each in (call.type_a, call.type_b, call.type_c, call.type_d) if each not in CUDA_TYPES]
        if unknown or call.epilogue not in EPILOGUES:
            found = f"data type {unknown[0]}" if unknown else f"epilogue {call.epilogue}"
            raise CudaError(ErrorCode.NOT_SUPPORTED, f"{found} is not supported")
        rows_a = call.k if call.transpose_a else call.m
        rows_b = call.n if call.transpose_b else call.k
        pairs = (call.lda, rows_a), (call.ldb, rows_b), (call.ldc, call.m), (call.ldd, call.m)
        if min(call.m, call.n, call.k, call.batch) < 0 or any(ld < max(1, rows) for ld, rows in pairs):
            raise CudaError(
                ErrorCode.INVALID_VALUE,
                "expected non-negative extents, and leading dimensions of at least the number of rows",
            )

    def run(self, record: LaunchRecord) -> None:
        """Compute D, write it to device memory, and add the basis and the reasons to `record`."""
        call = self.call
        if 0 in {call.m, call.n, call.batch}:
            record.exact = True
            return
        a = self.matrices(call.b, call.stride_b, (call.type_b, call.ldb, call.k, call.n, call.transpose_b))
        b = self.matrices(call.a, call.stride_a, (call.type_a, call.lda, call.m, call.k, call.transpose_a))
        alpha, beta = self.factor(call.alpha, call.alpha_address), self.factor(call.beta, call.beta_address)
        for address in filter(None, (call.scale_a, call.scale_b)):
            alpha *= float(self.memory(address, 4).view(np.float32)[0])
        layout_c = call.type_c, call.ldc, call.m, call.n, 0
        c = self.matrices(call.c, call.stride_c, layout_c) if beta else None
        bias = None
        if call.epilogue & BIAS:
            dtype = np.dtype(DTYPES[CUDA_TYPES[call.bias_type]])
            bias = self.memory(call.bias, call.m * dtype.itemsize).view(dtype)
        epilogue = Finishing(alpha, beta, bias, c, EPILOGUES[call.epilogue])
        name = self.predicted_type()
        if name is not None and call.k:
            values = self.predicted(name, a, b, epilogue)
        elif call.compute == COMPUTE_F32 and call.type_a == call.type_b == call.type_d == F32:
            values = self.in_float32(a, b, epilogue)
        else:
            values = self.in_float64(a, b, epilogue)
        if call.epilogue in {BGRAD_A, BGRAD_B}:
            steps = b[0] if call.epilogue == BGRAD_A else a[0].T
            sums = depth_sums(steps.astype(np.float32), depth_lanes(*steps.shape) or 64)
            self.bias_gradient(steps.shape[1])[...] = rounded(sums, self.result)
        layout_d = call.type_d, call.ldd, call.m, call.n, 0
        for target, matrix in zip(self.views(call.d, call.stride_d, layout_d), values, strict=True):
            target[...] = matrix
        record.exact, record.reasons, record.basis = not self.reasons, self.reasons, self.basis

    basis = ""

    # Operands

    def addresses(self, start: int, stride: int, size: int) -> list[int]:
        """Return the address of each matrix of a batch."""
        count = self.call.batch if self.call.is_batched else 1
        if self.call.has_pointers:
            return [int(each) for each in self.memory(start, 8 * count).view(np.uint64)]
        return [start + index * stride * size for index in range(count)]

    def views(self, start: int, stride: int, layout: tuple[int, int, int, int, int]) -> list[Matrix]:
        """Return the matrices of an operand, as row-major views of its transpose."""
        number, ld, rows, columns, is_transposed = layout
        if is_transposed:
            rows, columns = columns, rows
        dtype = np.dtype(DTYPES[CUDA_TYPES[number]])
        size = dtype.itemsize
        found = []
        for address in self.addresses(start, stride, size):
            data = self.memory(address, ((columns - 1) * ld + rows) * size if rows and columns else 0)
            view = as_strided(data.view(dtype), (columns, rows), (ld * size, size))
            found.append(view.T if is_transposed else view)
        return found

    def matrices(self, start: int, stride: int, layout: tuple[int, int, int, int, int]) -> Matrix:
        """Return an operand as an array whose first axis is the batch."""
        return np.stack(self.views(start, stride, layout))

    def factor(self, value: float, address: int) -> float:
        """Return alpha or beta: the value at `address` in device memory, or `value` if the address is 0."""
        if not address:
            return value
        dtype = np.dtype(DTYPES[CUDA_TYPES[self.call.scale_type]])
        return float(self.memory(address, dtype.itemsize).view(dtype)[0])

    @property
    def result(self) -> str:
        """The format of D."""
        return CUDA_TYPES[self.call.type_d]

    def bias_gradient(self, count: int) -> Matrix:
        """Return the bias gradient's memory as an array."""
        dtype = np.dtype(DTYPES[self.result])
        return self.memory(self.call.bias, count * dtype.itemsize).view(dtype)

    def auxiliary(self) -> Matrix:
        """Return the auxiliary buffer, with a row of bits (as bytes) or numbers for each column of D."""
        call = self.call
        is_mask = bool(call.epilogue & (RELU | DRELU & ~AUX))
        dtype = np.dtype(np.uint8 if is_mask else DTYPES[self.result])
        unit, width, step = (
            (MASK_BITS, -(-call.m // 8), call.ld_aux // 8) if is_mask else (AUX_ELEMENTS, call.m, call.ld_aux)
        )
        if call.ld_aux < call.m or call.ld_aux % unit or not call.aux:
            raise CudaError(
                ErrorCode.INVALID_VALUE,
                f"expected an auxiliary buffer whose leading dimension is a multiple of {unit} and at least m",
            )
        data = self.memory(call.aux, ((call.n - 1) * step + width) * dtype.itemsize).view(dtype)
        return as_strided(data, (call.n, width), (step * dtype.itemsize, dtype.itemsize))

    def library_epilogue(self, epilogue: Finishing) -> KernelEpilogue:
        """Return the epilogue with the roundings of cuBLAS kernels; results that are not floats are rounded later."""
        call, result = self.call, self.result if self.result in FLOATS else "f32"
        own = epilogue.alpha, epilogue.beta, epilogue.bias, result, epilogue.c is not None, epilogue.activation
        is_in_place = call.c == call.d
        if not call.epilogue & AUX:
            return KernelEpilogue(*own, in_place=is_in_place)
        gradient = self.bias_gradient(call.m) if call.epilogue & BGRAD else None
        name = GRADIENTS.get(call.epilogue, "")
        is_fused = call.epilogue == DGELU and result == "f16"
        return AuxiliaryEpilogue(
            *own, in_place=is_in_place, gradient=name, aux=self.auxiliary(), bias_gradient=gradient, is_fused=is_fused
        )

    def check_auxiliary(self, name: str, kernel: str) -> None:
        """Add the reasons why a call with an auxiliary buffer or a gradient may differ on a GPU."""
        call = self.call
        is_gradient = call.epilogue in GRADIENTS or call.epilogue in {BGRAD_A, BGRAD_B}
        if not is_gradient and not call.epilogue & AUX:
            return
        if (is_gradient and name == "f16") or (call.epilogue == DGELU and name == "bf16"):
            self.reasons.append(f"for this epilogue with {name} operands, cuBLAS selects kernels that are not modelled")
        rows = call.m if call.epilogue == BGRAD_A else call.n
        is_open = call.epilogue in {BGRAD_A, BGRAD_B} and depth_lanes(call.k, rows) is None
        is_open |= call.epilogue & BGRAD > 0 and len({row_blocks(call.m, call.n, wave) for wave in WAVES}) > 1
        if is_open:
            self.reasons.append("the order in which the bias gradient is summed is not known for this shape")
        if not kernel.startswith(("nvjet", "cutlass")):
            self.reasons.append(f"gradients and auxiliary buffers were not measured with {kernel or 'float32'} kernels")

    # Results

    def predicted_type(self) -> str | None:
        """Return the operand format if the order of additions can be predicted, else None."""
        call = self.call
        name = CUDA_TYPES[call.type_a] if call.type_a == call.type_b else ""
        if name in {"f16", "bf16", "e4m3"} and call.compute == COMPUTE_F32:
            return name
        if name == "s8" and call.compute == COMPUTE_S32:
            return name
        is_tf32 = call.compute == COMPUTE_TF32 or (call.compute == COMPUTE_F32 and call.math & MATH_MASK == TF32_MATH)
        return "tf32" if name == "f32" and is_tf32 else None

    def in_float32(self, a: Matrix, b: Matrix, epilogue: Finishing) -> Matrix:
        """Return D for float32 without TF32, as a chain of FMAs with ascending k.

        All measured kernels use this order within each part of K. The parts into which cuBLAS splits K are not known.
        """
        depth = self.call.k
        if a.shape[0] * a.shape[1] * b.shape[2] * depth > MAX_CHAINED:
            return self.in_float64(a, b, epilogue)
        if depth > 1:
            self.reasons.append("float32 without TF32: cuBLAS may split K, which is not modelled")
        sums = np.zeros((a.shape[0], a.shape[1], b.shape[2]), np.float32)
        for k in range(depth):
            sums = fma(np.broadcast_to(a[:, :, k, None], sums.shape), b[:, k, None], sums)
        own = self.library_epilogue(epilogue)
        self.reasons += own.uncertain
        self.check_auxiliary("f32", "")
        return finish(own, sums, epilogue.c)

    def in_float64(self, a: Matrix, b: Matrix, epilogue: Finishing) -> Matrix:
        """Return D computed in float64 and rounded once, for GEMMs whose order of additions is unknown."""
        call = self.call
        if "e4m3" in {CUDA_TYPES[call.type_a], CUDA_TYPES[call.type_b]} or CUDA_TYPES[call.type_d] in {"s8", "s32"}:
            raise CudaError(
                ErrorCode.NOT_SUPPORTED, f"compute type {call.compute} is not supported for these data types"
            )
        if call.epilogue & AUX:
            raise CudaError(
                ErrorCode.NOT_SUPPORTED, f"epilogue {call.epilogue} is not supported for these data types and extents"
            )
        self.reasons.append("computed in float64 and rounded once, because the order of the GPU's additions is unknown")
        with np.errstate(all="ignore"):
            total = epilogue.alpha * (a.astype(np.float64) @ b.astype(np.float64))
            if epilogue.c is not None:
                total += epilogue.beta * epilogue.c.astype(np.float64)
            if epilogue.bias is not None:
                total += epilogue.bias.astype(np.float64)
            if epilogue.activation == "gelu":
                total = gelu(total.astype(np.float32)).astype(np.float64)
            elif epilogue.activation:
                total = np.maximum(total, 0.0)
            return total.astype(DTYPES[CUDA_TYPES[call.type_d]])

    def predicted(self, name: str, a: Matrix, b: Matrix, epilogue: Finishing) -> Matrix:
        """Return D in the predicted order of additions."""
        call, reasons = self.call, self.reasons
        result, expected = CUDA_TYPES[call.type_d], "s32" if name == "s8" else RESULTS[name]
        known = self.order(name, has_bias=epilogue.bias is not None and not call.epilogue & AUX)
        self.check_auxiliary(name, known.kernel)
        known, own = library_epilogue(known, self.library_epilogue(epilogue))
        self.basis = known.text
        if known.is_guess:
            reasons.append(known.text)
        if result != expected and (name, result) not in {("f16", "f32"), ("bf16", "f32")}:
            reasons.append(f"the order of additions was measured with {expected} results, not with {result}")
        is_split = known.order.split_k > 1 or known.order.segment_k is not None
        if name in {"f16", "bf16"} and is_split and not call.math & NO_REDUCED_PRECISION:
            reasons.append("the program permits reduced-precision sums of partial results; full precision is assumed")
        kept = call.k - known.omitted_k
        if known.omitted_k:
            reasons.append(f"cuBLAS omits the last {known.omitted_k} terms along k")
        c = epilogue.c
        if not call.is_batched:
            a, b, c = a[0], b[0], None if c is None else c[0]
        used = read_matrices(a[..., :kept], b[..., :kept, :], c)
        if name == "s8" and ((epilogue.alpha, epilogue.beta) != (1, 0) or call.epilogue != PLAIN or result != "s32"):
            raise CudaError(
                ErrorCode.NOT_SUPPORTED, "an int8 GEMM needs alpha 1, beta 0, an int32 result and no epilogue"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = np.asarray(library_gemm(known, *used, own)).astype(DTYPES[result])
        return values if call.is_batched else values[None]

    def order(self, name: str, *, has_bias: bool) -> PredictedOrder:
        """Return the predicted order of additions."""
        call = self.call
        layout = "nt"[call.transpose_b > 0] + "nt"[call.transpose_a > 0]
        batch = call.batch if call.is_batched else None
        if layout == "tt":
            self.reasons.append("the order of additions was not measured for two transposed operands")
            layout = "nn"
        is_lt = call.function.startswith(b"cublasLt")
        if is_lt and call.workspace_mib == WORKSPACE_MIB and name != "e4m3":
            has_bias = False  # in this case, a bias does not change the choice
        if has_bias and layout != "nt":
            self.reasons.append(f"the order of additions was measured for a bias with layout nt, not with {layout}")
        is_fast = bool(call.fast) and name == "e4m3"
        kind = product_kind(name, layout, bias=has_bias, fast_accumulation=is_fast, batch=batch)
        expected = WORKSPACE_MIB if kind.call in {"matmul", "bmm"} else LT_WORKSPACE_MIB
        if is_lt and call.workspace_mib != expected and name != "s8":
            given = f"{expected} MiB of workspace, not with {call.workspace_mib}"
            self.reasons.append(f"cuBLAS's choice was measured with {given}")
        return find_product_order(kind, (call.n, call.m, call.k), query_cublas=False, choices=GPU)
