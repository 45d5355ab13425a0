"""Predict PyTorch's results on a GPU, bit for bit.

`predict_order` finds cuBLAS's order of additions and its source; this module computes the gemm in that order. If the
library omits terms along K, so does the prediction, with a warning.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from os import PathLike
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.blas.cublas.choice_table import GPU, Choices
from warpfrag.blas.cublas.library_epilogue import KernelEpilogue, LibraryEpilogue
from warpfrag.blas.cublas.predict_order import (
    ARCH,
    RESULTS,
    PredictedOrder,
    find_product_order,
    library_instruction,
    operand_type,
    product_kind,
)
from warpfrag.blas.gemm import GemmOptions, run_gemm
from warpfrag.blas.order import Order, part_length
from warpfrag.blas.summation import PartialSums
from warpfrag.errors import InvalidOperand, LossyProduct, NotModelled, quote
from warpfrag.formats.arrays import Array
from warpfrag.formats.codes import natural_dtype
from warpfrag.formats.epilogue import Epilogue, Floats, convert, finish, float32_of, fma
from warpfrag.formats.float_environment import exact_floats
from warpfrag.formats.number_formats import FORMATS
from warpfrag.tensorcore.array_types import Foreign, Matrix, read_matrices
from warpfrag.tensorcore.resolved import resolve_chain

FMA = "fma.rn.f32"
"""The instruction that kernels without tensor cores use."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction(PredictedOrder):
    """D as PyTorch would return it, the instruction that computes it, and the predicted order of additions."""

    D: Array
    instruction: str

    def __repr__(self) -> str:
        """Return the shape and dtype of D, the order, and its source."""
        shape = " x ".join(map(str, self.D.shape))
        return f"<Prediction of {shape} {self.D.dtype} by {self.instruction}\n {self.order}\n {self.text}>"


def predict(
    A: ArrayLike,
    B: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    layout: str = "nn",
    fast_accumulation: bool = False,
    shape: tuple[int, int, int] | None = None,
    query_cublas: bool = False,
    choices: str | PathLike[str] | Choices | None = None,
    arch: str = GPU,
    epilogue: LibraryEpilogue = LibraryEpilogue(),  # noqa: B008 (it is frozen)
) -> Prediction:
    """Predict the result of torch.matmul on a GPU for A (M x K) and B (K x N), with the evidence for it.

    A and B may be float16, bfloat16, float32 (as TF32, which PyTorch does not use by default), float8_e4m3fn
    (`torch._scaled_mm` with scales of 1 and a bfloat16 result, with or without `fast_accumulation`) or int8
    (`torch._int_mm`). B always has K rows: `layout` describes only the order of A and B in memory, and "nt" means that
    B is the transpose of a row-major matrix. For `F.linear(x, W, b)`, where W is N x K, pass `wf.predict(x, W.T,
    layout="nt", bias=b)`. A third, leading axis is a batch, as for torch.bmm. If A and B are some rows and columns of a
    larger gemm, `shape` is its (m, n, k). `epilogue` gives alpha, beta and C, as for torch.addmm, a fused activation,
    and the scales of fp8 operands.

    The order of additions follows the library's own choice if the table of the GPU `arch` contains it, or the file
    `choices` that `warpfrag survey` wrote; `query_cublas` queries the cuBLAS of this machine. Otherwise, the choice
    is modelled, and the result is marked as a guess. A `LossyProduct` warning is issued if the library omits terms
    along K.
    """
    if not isinstance(epilogue, LibraryEpilogue):
        raise InvalidOperand(f"epilogue: expected a wf.LibraryEpilogue, got {quote(epilogue)}")
    if bias is not None and epilogue.bias is not None:
        raise InvalidOperand("bias: given twice, as an argument and in the epilogue")
    bias = epilogue.bias if bias is None else bias
    a, b, _ = read_matrices(A, B)
    axes = len(a.shape)
    if axes not in {2, 3} or len(b.shape) != axes:
        raise InvalidOperand(f"expected two matrices, or two batches of them; got shapes {a.shape} and {b.shape}")
    if a.shape[-1] == b.shape[-1] != b.shape[-2]:
        raise InvalidOperand(f"B: expected k x n, {b.shape[-1]} rows; got {b.shape}; for an n x k weight W, pass W.T")
    wanted = _shape(shape, (a.shape[-2], b.shape[-1], a.shape[-1]))
    name = operand_type(a.dtype, b.dtype)
    batch = max(1, a.shape[0]) if axes == 3 else None
    kind = product_kind(name, layout, bias=bias is not None, fast_accumulation=fast_accumulation, batch=batch)
    known = find_product_order(kind, wanted, query_cublas=query_cublas, choices=arch if choices is None else choices)
    if known.omitted_k:
        kept = wanted[2] - known.omitted_k
        warnings.warn(
            f"{known.kind.call} {name} {' x '.join(map(str, wanted))}: {known.source} omits the last "
            f"{known.omitted_k} of {wanted[2]} terms along K, and so does this prediction",
            LossyProduct,
            stacklevel=2,
        )
        a, b = a[..., :kept], b[..., :kept, :]
    result, has_c = RESULTS.get(name, "f32"), epilogue.C is not None
    alpha = epilogue.alpha * epilogue.scales[0] * epilogue.scales[1]
    if has_c and name == "e4m3":
        raise InvalidOperand("epilogue: torch._scaled_mm has no C")
    if epilogue.scales != (1, 1) and name != "e4m3":
        raise InvalidOperand(f"epilogue: scales apply to e4m3 operands, not to {name}; use alpha")
    if name == "s8" and (has_c or epilogue.activation or alpha != 1):
        raise InvalidOperand("epilogue: torch._int_mm has neither factors, nor C, nor an activation")
    c = None if epilogue.C is None else Matrix.read(epilogue.C, "C")
    expected = natural_dtype(FORMATS[result])
    if c is not None and c.dtype != expected:
        raise InvalidOperand(f"C: expected {expected}, the type of D; got {c.dtype}")
    added = np.zeros(0, np.float32) if bias is None else float32_of(bias, "bias")
    if not np.array_equal(added, added.astype(expected), equal_nan=True):
        raise InvalidOperand(f"bias: expected numbers that are exact in {expected}, the type of D; round them first")
    own = KernelEpilogue(alpha, epilogue.beta, bias, result, has_c, epilogue.activation)
    known, own = library_epilogue(known, own)
    D = cast("Array", library_gemm(known, a, b, c, own))
    instruction = FMA if known.order.lanes else library_instruction(name, ARCH)
    return Prediction(D=D, instruction=instruction, **vars(known))


def library_epilogue(known: PredictedOrder, epilogue: KernelEpilogue) -> tuple[PredictedOrder, KernelEpilogue]:
    """Return the order and the epilogue as the kernel computes it; the order is a guess if this was not measured."""
    order, kernel = known.order, known.kernel
    own = replace(epilogue, kernel=kernel, is_split=order.split_k > 1 or order.segment_k is not None)
    reasons = own.uncertain
    if order.in_place and (own.alpha != 1 or own.activation):
        known = replace(known, order=replace(order, in_place=False))
        reasons.append("in-place sums of parts were not measured with alpha or an activation")
    is_used = own.alpha != 1 or own.has_c or own.bias is not None or bool(own.activation)
    note = f"not compared with an H200: {'; '.join(reasons)}" if reasons else "compared with an H200"
    return replace(known, is_guess=known.is_guess or bool(reasons), epilogue=note if is_used else ""), own


def library_gemm(
    known: PredictedOrder,
    a: Matrix,
    b: Matrix,
    c: Matrix | None,
    epilogue: Epilogue,
    part: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> Array | Foreign:
    """Compute a gemm in a predicted order; `part` gives the rows and columns of D if A and B are part of a gemm."""
    name, order = known.kind.type, known.order
    if order.lanes:
        sums = finish(epilogue, lane_gemm(a.floats(), b.floats(), order), None if c is None else c.floats())
        codes = PartialSums(resolve_chain(library_instruction(name, ARCH), ARCH).rule).write(sums)
        codes = convert("f32", codes, epilogue.result)
        return cast("Array", codes.view(natural_dtype(FORMATS[epilogue.result])))
    resolved = resolve_chain(library_instruction(name, ARCH), ARCH)
    options = GemmOptions(order, None if name == "s8" else epilogue, rounding="rne" if name == "tf32" else None)
    D = run_gemm(resolved, a, b, c, options)
    if known.cut_tiles is None:
        return D
    if part is None:
        extents = a.shape[-2], b.shape[-1]
        if extents != known.shape[:2]:
            raise NotModelled(f"{known.kernel} adds some tiles of D in another order: pass the whole A and B")
        part = np.arange(extents[0]), np.arange(extents[1])
    whole = run_gemm(resolved, a, b, c, replace(options, order=Order()))
    return cast("Array", np.where(known.cut_tiles.of(*part), cast("Array", D), cast("Array", whole)))


def _shape(shape: object, own: tuple[int, int, int]) -> tuple[int, int, int]:
    if shape is None:
        return own
    extents = shape if isinstance(shape, tuple | list) and len(shape) == 3 else ()
    if not extents or not all(isinstance(extent, int | np.integer) for extent in extents):
        raise InvalidOperand(f"shape: expected (m, n, k) of the whole gemm, got {quote(shape)}")
    m, n, k = map(int, extents)
    if k != own[2]:
        raise InvalidOperand(f"shape: k is {k}, but A has {own[2]} columns; a part of a gemm must include the whole k")
    for name, whole, part, label in (("m", m, own[0], "rows of A"), ("n", n, own[1], "columns of B")):
        if whole < part:
            raise InvalidOperand(f"shape: {name} is {whole}, but there are {part} {label}")
    return m, n, k


# --- kernels without tensor cores: each lane adds its own k with fused multiply-adds, then the lanes' sums are added


@exact_floats
def lane_gemm(a: NDArray[np.float32], b: NDArray[np.float32], order: Order) -> NDArray[np.float32]:
    """Return A [..., M, K] times B [..., K, N] in float32, for an order with lanes."""
    depth = a.shape[-1]
    length = part_length(depth, order.unit or 1, order.split_k)
    with np.errstate(all="ignore"):
        total = _lane_part(a[..., :length], b[..., :length, :], order)
        for first in range(length, depth, length):
            total = total + _lane_part(a[..., first : first + length], b[..., first : first + length, :], order)
    return total


def _lane_part(a: NDArray[np.float32], b: NDArray[np.float32], order: Order) -> NDArray[np.float32]:
    lanes, vector = order.lanes or 1, order.vector or 1
    if order.blocks:
        sums = _lane_sums(a, b, order.blocks * lanes * vector, 1, None)
        sums = _add_lanes(np.moveaxis(sums.reshape(order.blocks, lanes, vector, *sums.shape[1:]), 2, 0))
        sums = _add_lanes(np.moveaxis(sums, 1, 0), in_halves=True)
        return _add_lanes(np.stack([_add_lanes(sums[chain::4]) for chain in range(4)]))
    return _add_lanes(_lane_sums(a, b, lanes, vector, order.promote), in_halves=order.in_halves)


def _lane_sums(a: Floats, b: Floats, lanes: int, vector: int, promote: int | None) -> Floats:
    """Return each lane's sum, along a new first axis."""
    blocks = -(-a.shape[-1] // (lanes * vector))
    rest = blocks * lanes * vector - a.shape[-1]
    a = np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, rest)])
    b = np.pad(b, [(0, 0)] * (b.ndim - 2) + [(0, rest), (0, 0)])
    rows = a.reshape(*a.shape[:-1], blocks, lanes, vector)
    columns = b.reshape(*b.shape[:-2], blocks, lanes, vector, b.shape[-1])
    promote = promote or blocks * vector
    sums = total = np.zeros((), np.float32)
    for place in range(blocks * vector):
        block, inside = divmod(place, vector)
        left = np.moveaxis(rows[..., block, :, inside], -1, 0)[..., None]  # [lanes, ..., M, 1]
        right = np.moveaxis(columns[..., block, :, inside, :], -2, 0)[..., None, :]
        sums = fma(left, right, sums)
        if (place + 1) % promote == 0 or place + 1 == blocks * vector:
            total = total + sums
            sums = np.zeros((), np.float32)
    return total


def _add_lanes(sums: NDArray[np.float32], *, in_halves: bool = False) -> NDArray[np.float32]:
    """Add the lanes' sums: repeatedly the second half to the first (`in_halves`), or one after the other."""
    while in_halves and len(sums) > 1:
        half = len(sums) // 2
        sums = sums[:half] + sums[half:]
    total: NDArray[np.float32] = sums[0]
    for lane in sums[1:]:
        total = total + lane
    return total
