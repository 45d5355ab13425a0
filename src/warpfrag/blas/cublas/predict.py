"""Predict PyTorch's results on a GPU, bit for bit.

`predict_order` finds cuBLAS's order of additions and its source; this module computes the gemm in that order. If the
library omits terms along K, so does the prediction, with a warning.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from os import PathLike
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from warpfrag.blas.cublas.choice_table import GPU, Choices
from warpfrag.blas.cublas.library_epilogue import KernelEpilogue, LibraryEpilogue
from warpfrag.blas.cublas.library_gemm import library_epilogue, library_gemm
from warpfrag.blas.cublas.predict_order import (
    ARCH,
    RESULTS,
    PredictedOrder,
    find_product_order,
    library_instruction,
    operand_type,
    product_kind,
)
from warpfrag.errors import InvalidOperand, LossyProduct, quote
from warpfrag.formats.arrays import Array
from warpfrag.formats.codes import natural_dtype
from warpfrag.formats.epilogue import float32_of
from warpfrag.formats.number_formats import FORMATS
from warpfrag.tensorcore.array_types import Matrix, read_matrices

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

    The order of additions is the library's own choice if it is in the table of the GPU `arch`, or in the file
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
        raise InvalidOperand("epilogue: torch._int_mm takes no alpha, C or activation")
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
    return Prediction(D=D, instruction=FMA if known.order.lanes else library_instruction(name, ARCH), **vars(known))


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
