"""Whole GEMMs: the codes that a kernel computes with one instruction, for any M, N and K.

Each output is computed by a chain of instructions: the D of one is the C of the next, with k ascending or in the
requested `Order`. Edges are padded with zeros, as a kernel pads its last tile.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import TypedDict, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike

from warpfrag.blas.blockwise import blockwise
from warpfrag.blas.gemm_backend import Machine, check_backend, on_device
from warpfrag.blas.instruction_choice import ChosenGemm, choose_instruction, truncation_note
from warpfrag.blas.order import Order, check_order
from warpfrag.blas.prepared_gemm import prepare_gemm
from warpfrag.errors import InvalidOperand, LossyProduct, check_flag, quote
from warpfrag.formats.arrays import Array
from warpfrag.formats.codes import from_codes
from warpfrag.formats.epilogue import Epilogue
from warpfrag.formats.number_formats import FORMATS, Rounding
from warpfrag.isa.qualifiers import HasForm
from warpfrag.tensorcore.array_types import (
    Foreign,
    ForeignArray,
    Lazy,
    Matrix,
    MatrixLike,
    Scaled,
    read_matrices,
    to_caller_kind,
)
from warpfrag.tensorcore.resolved_instruction import ResolvedInstruction, resolve_chain

ASCENDING = Order()


@dataclass(frozen=True)
class GemmOptions:
    """The options of a gemm, validated once: the order, the epilogue, the rounding of inputs and the backend."""

    order: Order = ASCENDING
    epilogue: Epilogue | None = None
    raw: bool = False
    rounding: Rounding = None
    backend: str | Machine = "cpu"

    def __post_init__(self) -> None:
        """Raise InvalidOperand if the order, epilogue or backend is invalid."""
        if check_order(self.order).lanes:
            raise InvalidOperand("order: lanes apply to kernels without tensor cores, which only wf.predict computes")
        if self.epilogue is not None and not isinstance(self.epilogue, Epilogue):
            raise InvalidOperand(f"epilogue: expected a wf.Epilogue, got {quote(self.epilogue)}")
        check_flag("raw", self.raw)
        check_backend(self.backend)


class GemmKeywords(TypedDict, total=False):
    """The keyword arguments of `gemm`, for its overloads."""

    instruction: str | HasForm | None
    arch: str
    order: Order
    epilogue: Epilogue | None
    raw: bool
    rounding: Rounding
    backend: str | Machine


@overload
def gemm(
    A: ForeignArray,
    B: ForeignArray | ArrayLike,
    C: ForeignArray | ArrayLike | None = None,
    **options: Unpack[GemmKeywords],
) -> ForeignArray: ...


@overload
def gemm(A: ArrayLike, B: Lazy, C: ArrayLike | Lazy | None = None, **options: Unpack[GemmKeywords]) -> Lazy: ...


@overload
def gemm(
    A: ArrayLike | Scaled, B: ArrayLike | Scaled, C: ArrayLike | None = None, **options: Unpack[GemmKeywords]
) -> Array: ...


@blockwise
def gemm(
    A: MatrixLike | Scaled,
    B: MatrixLike | Scaled,
    C: MatrixLike | None = None,
    *,
    instruction: str | HasForm | None = None,
    arch: str = "sm_90",
    order: Order = ASCENDING,
    epilogue: Epilogue | None = None,
    raw: bool = False,
    rounding: Rounding = None,
    backend: str | Machine = "cpu",
) -> Array | Foreign:
    """Return D = A B + C for A (M x K) and B (K x N), as a kernel that uses this instruction computes it.

    Without an instruction, the one that libraries use for these dtypes on `arch` (an architecture or a GPU such as
    "A100") is chosen; `D.instruction` is its name. float32 is multiplied as tf32: it is truncated, with a warning,
    unless rounding is "rne".

    Arrays are converted as in `Operand.pack`; C=None is zero; leading axes are a batch and broadcast. A sparse
    instruction takes the full, pruned A. A block-scaled instruction takes A and B as `wf.Scaled`, with scale factors
    (M, blocks) and (blocks, N). `order` is the order of additions along k, by default one chain that starts from C.
    `epilogue` transforms the kernel's sums, which then start from zero; C may contain any numbers that are exact in
    float32. An instruction whose C and D have different formats is rejected, because it cannot be chained.

    `backend` is "cpu" (all cores), `warpfrag.blas.gemm_backend.Cpu(threads=n)`, "cuda" (emulation on a GPU), "native"
    (the GPU's own tensor cores, if `arch` is its architecture) or "auto" (the fastest of these). The codes are always
    the same. A and B may be NumPy, PyTorch or CuPy arrays, and D is of the same type; arrays in GPU memory need a
    backend that runs there. `Cpu(threads=n)` does not limit GEMMs of large integer matrices, which NumPy's BLAS
    computes with its own number of threads (OPENBLAS_NUM_THREADS).
    """
    options = GemmOptions(order, epilogue, raw, rounding, backend)
    a, b, c = read_matrices(A, B, C)
    if instruction is not None:
        return run_gemm(resolve_chain(instruction, arch), a, b, c, options)
    if raw or isinstance(A, Scaled) or isinstance(B, Scaled):
        raise InvalidOperand(f"{'codes' if raw else 'scaled operands'} do not determine an instruction: name one")
    chosen = choose_instruction(a.dtype, b.dtype, arch)
    if isinstance(A, np.ndarray) and isinstance(B, np.ndarray) and (note := truncation_note(A, B, chosen, rounding)):
        warnings.warn(note, LossyProduct, stacklevel=2)
    D = run_gemm(resolve_chain(chosen, arch), a, b, c, options)
    D = D.view(ChosenGemm) if isinstance(D, np.ndarray) else D
    with suppress(AttributeError):  # attributes cannot be set on CuPy arrays
        D.instruction = chosen  # type: ignore[union-attr] # PyTorch's tensors take any
    return D


def run_gemm(
    resolved: ResolvedInstruction, a: Matrix, b: Matrix, c: Matrix | None, options: GemmOptions
) -> Array | Foreign:
    """Compute a gemm whose arguments have already been checked."""
    kind = a.kind
    if kind.on_gpu and options.backend == "cpu":
        raise InvalidOperand(f"A is a {kind}, but backend is 'cpu': use backend='cuda', or move the arrays to the host")
    with on_device(kind):
        gemm = prepare_gemm(resolved, a, b, raw=options.raw, rounding=options.rounding, backend=options.backend)
        if c is not None:
            gemm.extents.check_c(c.shape)
        if options.epilogue is not None:
            addend = None if c is None else gemm.extents.flat(c.floats())
            codes, result = gemm.finished(addend, options.order, options.epilogue), options.epilogue.result
        else:
            start = None
            if c is not None:
                start = gemm.extents.flat(c.codes(FORMATS[gemm.rule.c], raw=options.raw, rounding=options.rounding))
            codes, result = gemm.operands.multiply(start, options.order), gemm.rule.d
        codes = codes.reshape(gemm.shape)
        return to_caller_kind(codes if options.raw else from_codes(FORMATS[result], codes), kind)
