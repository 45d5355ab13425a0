"""Whole matrix products: the codes that a kernel built from one instruction gives for any M, N and K.

Each output is its own chain: the D of one instruction is the C of the next, k ascending, or as an `Order` says. Edges
are padded with zeros, as a kernel pads its last tile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Required, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.blas.blockwise import blockwise
from warpfrag.blas.gemm_backend import Machine, check_backend, machine_of, memory_of_gpu
from warpfrag.blas.gemm_shapes import ProductShape
from warpfrag.blas.order import Order
from warpfrag.blas.summation import Multiplicands, multiply, read_sums, write_sums
from warpfrag.errors import InvalidOperand, check_flag, quote
from warpfrag.formats.arrays import Array
from warpfrag.formats.codes import from_codes
from warpfrag.formats.epilogue import Epilogue, convert, finish, float32_of
from warpfrag.formats.number_formats import FORMATS, Rounding
from warpfrag.isa.legality import illegal
from warpfrag.isa.qualifiers import HasForm
from warpfrag.tensorcore.array_types import (
    Foreign,
    ForeignArray,
    Lazy,
    Matrix,
    MatrixLike,
    Scaled,
    common_kind,
    device_of,
    to_caller_kind,
    to_host,
)
from warpfrag.tensorcore.resolved import ResolvedInstruction, resolve_instruction
from warpfrag.tensorcore.rules import Rule

ASCENDING = Order()


@dataclass(frozen=True)
class GemmOptions:
    """The options of a gemm, checked once: how the kernel adds and finishes, how numbers are read, what computes."""

    order: Order = ASCENDING
    epilogue: Epilogue | None = None
    raw: bool = False
    rounding: Rounding = None
    backend: str | Machine = "cpu"

    def __post_init__(self) -> None:
        """Reject what is no order, epilogue or backend."""
        if not isinstance(self.order, Order):
            raise InvalidOperand(f"order: expected a wf.Order, got {quote(self.order)}")
        if self.epilogue is not None and not isinstance(self.epilogue, Epilogue):
            raise InvalidOperand(f"epilogue: expected a wf.Epilogue, got {quote(self.epilogue)}")
        check_flag("raw", self.raw)
        check_backend(self.backend)


@dataclass(frozen=True)
class PreparedGemm:
    """A gemm before it runs: the instruction, the codes of A and B, and the extents of D."""

    resolved: ResolvedInstruction
    operands: Multiplicands
    extents: ProductShape

    @property
    def rule(self) -> Rule:
        """The arithmetic of the instruction."""
        return self.resolved.rule

    @property
    def shape(self) -> tuple[int, ...]:
        """Of D, with its batch axes; the operands have one."""
        return self.extents.shape

    @property
    def work(self) -> int:
        """The multiply-adds."""
        return math.prod(self.shape) * self.operands.depth


class GemmKeywords(TypedDict, total=False):
    """The keywords of `gemm`, for its overloads."""

    instruction: Required[str | HasForm]
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
    instruction: str | HasForm,
    arch: str = "sm_90",
    order: Order = ASCENDING,
    epilogue: Epilogue | None = None,
    raw: bool = False,
    rounding: Rounding = None,
    backend: str | Machine = "cpu",
) -> Array | Foreign:
    """Return D = A B + C for A of M x K and B of K x N, as a kernel of that instruction computes it.

    Arrays are taken as `Operand.pack` takes them; C=None is zero; leading axes are a batch and broadcast. A sparse
    instruction takes the full, pruned A. A block-scaled one takes A and B as `wf.Scaled`, with scale factors
    (M, blocks) and (blocks, N). `order` says how the kernel adds along k: by default in a chain that starts from C.
    `epilogue` says what the kernel does with its sums, which then start from zero; C may be any numbers that are exact
    in float32. An instruction whose C and D have different formats is rejected: it cannot be chained.

    `backend` says what computes: "cpu", all cores; `warpfrag.blas.gemm_backend.Cpu(threads=n)`; "cuda", a GPU that
    emulates; "native", that GPU's own tensor cores, if `arch` is its own; "auto", the fastest of these. The codes are
    always the same. Arrays come from numpy, PyTorch or CuPy, and so does D; those in GPU memory need a backend that
    runs there. `Cpu(threads=n)` does not limit products of large integer matrices: numpy's BLAS computes them, with the
    threads that its own settings allow (OPENBLAS_NUM_THREADS and the like).
    """
    options = GemmOptions(order, epilogue, raw, rounding, backend)
    a, b = Matrix.read(A, "A"), Matrix.read(B, "B")
    return run_gemm(instruction, arch, a, b, None if C is None else Matrix.read(C, "C"), options)


def run_gemm(
    instruction: str | HasForm, arch: str, a: Matrix, b: Matrix, c: Matrix | None, options: GemmOptions
) -> Array | Foreign:
    """Compute a gemm whose arguments have been read."""
    kind = common_kind((a, b, c))
    if kind.on_gpu and options.backend == "cpu":
        raise InvalidOperand(
            f"A is a {kind}, and backend is 'cpu': backend='cuda' computes there, or move the arrays to the host"
        )
    with memory_of_gpu(), device_of(kind):
        resolved = resolve_instruction(instruction, arch)
        gemm = prepare_gemm(resolved, a, b, raw=options.raw, rounding=options.rounding)
        if options.epilogue is not None:
            _check_epilogue(options.epilogue, gemm, options.order)
        machine = machine_of(options.backend, resolved, work=gemm.work, on_gpu=kind.on_gpu)
        if options.epilogue is not None:
            addend = None if c is None else _c_of(gemm, float32_of(to_host(c.array, kind), "C"))
            result = _finished(gemm, addend, options.order, options.epilogue, machine, raw=options.raw)
        else:
            start = None
            if c is not None:
                in_format = FORMATS[resolved.rule.c]
                start = _c_of(gemm, c.codes(in_format, raw=options.raw, rounding=options.rounding))
            codes = multiply(resolved.rule, gemm.operands, start, options.order, machine).reshape(gemm.shape)
            result = codes if options.raw else from_codes(FORMATS[resolved.rule.d], codes)
        returned: Array | Foreign = to_caller_kind(result, kind)
        return returned


def _check_epilogue(epilogue: Epilogue, gemm: PreparedGemm, order: Order) -> None:
    """Reject an epilogue that does not fit the gemm."""
    if gemm.rule.d != "f32":
        raise InvalidOperand(f"{gemm.resolved.name}: an epilogue takes sums in f32, and D is {gemm.rule.d}")
    if order.in_place and epilogue.alpha != 1:
        raise InvalidOperand(
            f"order: parts that are added in place are measured with alpha 1, not with {epilogue.alpha}"
        )
    if epilogue.bias is not None:
        gemm.extents.check_bias(len(float32_of(epilogue.bias, "bias")))


def _finished(
    gemm: PreparedGemm, c: NDArray[Any] | None, order: Order, epilogue: Epilogue, machine: Machine, *, raw: bool
) -> Array:
    """The result of a kernel that has an epilogue, which runs on the host."""
    start = None
    if order.in_place:
        start, c, epilogue = _addend(gemm, c, epilogue), None, replace(epilogue, bias=None)
    codes = multiply(gemm.rule, gemm.operands, start, order, machine)
    sums = read_sums(gemm.rule, codes if isinstance(codes, np.ndarray) else codes.get())
    codes = convert("f32", write_sums(gemm.rule, finish(epilogue, sums, c)), epilogue.result).reshape(gemm.shape)
    return codes if raw else from_codes(FORMATS[epilogue.result], codes)


def _addend(gemm: PreparedGemm, c: NDArray[Any] | None, epilogue: Epilogue) -> NDArray[Any] | None:
    """The start of parts that are added in place, beta * C + bias, as f32 codes."""
    bias = None if epilogue.bias is None else float32_of(epilogue.bias, "bias")
    start = bias if c is None or epilogue.beta == 0 else finish(replace(epilogue, bias=None), np.zeros_like(c), c)
    if start is None:
        return None
    if start is not bias and bias is not None:
        start = start + bias
    shape = (math.prod(gemm.extents.batch), *gemm.shape[-2:])
    codes: NDArray[Any] = np.asarray(
        write_sums(gemm.rule, np.ascontiguousarray(np.broadcast_to(start, shape))), like=gemm.operands.a
    )
    return codes


def _c_of(gemm: PreparedGemm, c: NDArray[Any]) -> NDArray[Any]:
    """C with the batch axis of the gemm."""
    gemm.extents.check_c(c.shape)
    return _flat(c, gemm.extents.batch)


def read_gemm(
    A: MatrixLike,
    B: MatrixLike,
    *,
    instruction: str | HasForm,
    arch: str = "sm_90",
    raw: bool = False,
    rounding: Rounding = None,
) -> PreparedGemm:
    """Read the arguments of a gemm that is not run as a whole, but searched or traced."""
    resolved = resolve_instruction(instruction, arch)
    return prepare_gemm(resolved, Matrix.read(A, "A"), Matrix.read(B, "B"), raw=raw, rounding=rounding)


def prepare_gemm(
    resolved: ResolvedInstruction, a: Matrix, b: Matrix, *, raw: bool = False, rounding: Rounding = None
) -> PreparedGemm:
    """Convert A and B to codes; reject extents that do not fit and instructions that cannot be chained along k."""
    form, operands = resolved.form, resolved.operands
    if form.c != form.d:
        raise illegal(form, f"it cannot be chained along k: D is {form.d} but C is {form.c}")
    codes_a = a.codes(operands["a"].format, raw=raw, rounding=rounding)
    codes_b = b.codes(operands["b"].format, raw=raw, rounding=rounding)
    extents = ProductShape.of(codes_a.shape, codes_b.shape)
    scales = _scales(resolved, (a.scales, b.scales), extents, raw=raw, rounding=rounding)
    flat_a, flat_b = _flat(codes_a, extents.batch), _flat(codes_b, extents.batch)
    return PreparedGemm(resolved, Multiplicands(flat_a, flat_b, operands.a.pattern, *scales), extents)


def _flat(codes: NDArray[Any], batch: tuple[int, ...]) -> NDArray[Any]:
    """Codes with one batch axis."""
    if codes.shape[:-2] != batch:  # a broadcast array is read-only, and kernels copy it
        codes = np.broadcast_to(codes, (*batch, *codes.shape[-2:]))
    return codes.reshape(math.prod(batch), *codes.shape[-2:])


def _scales(
    resolved: ResolvedInstruction,
    scales: tuple[Matrix | None, Matrix | None],
    extents: ProductShape,
    *,
    raw: bool,
    rounding: Rounding,
) -> list[NDArray[Any]]:
    """Scale codes for every instruction along k; blocks that only padding reaches get the scale 1."""
    form, operands = resolved.form, resolved.operands
    for role, scale in zip(("scale_a", "scale_b"), scales, strict=True):
        if (scale is not None) != bool(form.block_scale):
            raise InvalidOperand(
                f"{resolved.name} {'needs' if scale is None else 'takes no'} {role}: pass Scaled(matrix, scales)"
            )
    if not form.block_scale:
        return []
    unity = operands["scale_a"].format.encode(1.0)
    counts = extents.scale_counts(form)
    padded = []
    for scale, along in zip(scales, (-1, -2), strict=True):
        if scale is not None:
            codes = scale.codes(operands[scale.name].format, raw=raw, rounding=rounding)
            extents.check_scales(counts, scale.name, codes.shape)
            padding = [(0, 0)] * codes.ndim
            padding[along] = (0, counts.allowed - codes.shape[along])
            padded.append(_flat(np.pad(codes, padding, constant_values=unity), extents.batch))
    return padded
