"""Whole products: the codes that a kernel built from one instruction gives for any M, N and K.

Each output is its own chain: the D of one instruction is the C of the next, k ascending, or as an `Order` says. Edges
are padded with zeros, as a kernel pads its last tile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Required, TypedDict, Unpack, cast, overload

import numpy as np

from warpfrag.blas.array_types import (
    common_kind,
    device_bits,
    device_of,
    dtype_of,
    kind_of,
    on_gpu,
    to_caller_kind,
    to_host,
)
from warpfrag.blas.blockwise import blockwise
from warpfrag.blas.gemm_backend import check_backend, machine_of, memory_of_gpu
from warpfrag.blas.order import Order
from warpfrag.blas.shapes import ProductShape
from warpfrag.blas.summation import Multiplicands, multiply, read_sums, write_sums
from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.arrays import as_array
from warpfrag.formats.codes import code_dtype, codes_of, from_codes, natural_dtype
from warpfrag.formats.epilogue import Epilogue, convert, finish, float32_of
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.legality import arithmetic_arch, chained_arch, form_of
from warpfrag.tensorcore.arithmetic import plan
from warpfrag.tensorcore.operand import operands_of
from warpfrag.tensorcore.schedule import check_threads

if TYPE_CHECKING:
    import cupy
    import torch
    from numpy.typing import ArrayLike, NDArray

    from warpfrag.blas.array_types import ArrayKind, Foreign, ForeignArray, Lazy, MatrixLike
    from warpfrag.blas.gemm_backend import Machine
    from warpfrag.formats.arrays import Array
    from warpfrag.formats.number_formats import Format, Rounding
    from warpfrag.isa.qualifiers import Form, HasForm
    from warpfrag.tensorcore.operand import Operands, Registers
    from warpfrag.tensorcore.rules import Rule

ASCENDING = Order()


@dataclass(frozen=True)
class Product:
    """A product before it runs: the rule, the codes of A and B, and the extents that D has."""

    form: Form
    rule: Rule
    operands: Multiplicands
    extents: ProductShape

    @property
    def shape(self) -> tuple[int, ...]:
        """Of D, with its batch axes; the operands have one."""
        return self.extents.shape


class GemmOptions(TypedDict, total=False):
    """The keywords of `gemm`, which says what each means."""

    instruction: Required[str | HasForm]
    arch: str
    order: Order
    epilogue: Epilogue | None
    scale_a: MatrixLike | None
    scale_b: MatrixLike | None
    raw: bool
    rounding: Rounding
    threads: int | None
    backend: str


@overload
def gemm(
    A: ForeignArray,
    B: ForeignArray | ArrayLike,
    C: ForeignArray | ArrayLike | None = None,
    **options: Unpack[GemmOptions],
) -> ForeignArray: ...


@overload
def gemm(A: ArrayLike, B: Lazy, C: ArrayLike | Lazy | None = None, **options: Unpack[GemmOptions]) -> Lazy: ...


@overload
def gemm(A: ArrayLike, B: ArrayLike, C: ArrayLike | None = None, **options: Unpack[GemmOptions]) -> Array: ...


@blockwise
def gemm(
    A: MatrixLike,
    B: MatrixLike,
    C: MatrixLike | None = None,
    *,
    instruction: str | HasForm,
    arch: str = "sm_90",
    order: Order = ASCENDING,
    epilogue: Epilogue | None = None,
    scale_a: MatrixLike | None = None,
    scale_b: MatrixLike | None = None,
    raw: bool = False,
    rounding: Rounding = None,
    threads: int | None = None,
    backend: str = "cpu",
) -> Array | Foreign:
    """D = A B + C for A of M x K and B of K x N, as a kernel of that instruction computes it.

    Arrays are taken as `Operand.pack` takes them; C=None is zero; leading axes are a batch and broadcast. A sparse
    instruction takes the full, pruned A. A block-scaled one takes scale factors (M, blocks) and (blocks, N), one block
    for each run of K that shares a scale. `order` says how the kernel adds along k: without one, in a chain from C on.
    `epilogue` says what the kernel does with its sums, which then start from zero; C may be any numbers that are exact
    in float32. Refused where C and D have different formats: such an instruction cannot be chained.

    `backend` says what computes it: "cpu", all cores or `threads` of them; "cuda", a GPU that emulates; "native", that
    GPU's own tensor cores, where `arch` is its own; "auto", the fastest of these. Every code is the same. Arrays are
    numpy's, PyTorch's or CuPy's, and D is of their kind; those in a GPU's memory need a backend that runs there.
    `threads` does not limit products of large integer matrices: numpy's BLAS computes them, on as many threads as its
    own settings say (OPENBLAS_NUM_THREADS and the like).
    """
    if not isinstance(order, Order):
        msg = f"order: expected a wf.Order, got {quote(order)}"
        raise InvalidOperand(msg)
    check_threads(threads)
    check_backend(backend)
    kind = common_kind({"A": A, "B": B, "C": C, "scale_a": scale_a, "scale_b": scale_b})
    if kind.on_gpu and backend == "cpu":
        msg = f"A is a {kind}, and backend is 'cpu': backend='cuda' computes there, or move the arrays to the host"
        raise InvalidOperand(msg)
    with memory_of_gpu(), device_of(kind):
        product = prepare(
            A, B, instruction=instruction, arch=arch, scales=(scale_a, scale_b), raw=raw, rounding=rounding
        )
        form, work = product.form, math.prod(product.shape) * product.operands.depth
        if epilogue is not None:
            _check_epilogue(epilogue, product, order)
        machine = machine_of(backend, form, arch, work=work, threads=threads, on_gpu=kind.on_gpu)
        if epilogue is not None:
            c = None if C is None else _c_of(product, float32_of(to_host(C, kind), "C"))
            result = _finished(product, c, order, epilogue, machine, raw=raw)
        else:
            operands = operands_of(form, arithmetic_arch(form, arch))
            c = None if C is None else _c_of(product, _codes(operands["c"], C, "C", raw=raw, rounding=rounding))
            codes = multiply(product.rule, product.operands, c, order, machine).reshape(product.shape)
            result = codes if raw else from_codes(operands["d"].format, codes)
        returned: Array | Foreign = to_caller_kind(result, kind)
        return returned


def _check_epilogue(epilogue: object, product: Product, order: Order) -> None:
    """Refuse an epilogue that does not fit the product."""
    if not isinstance(epilogue, Epilogue):
        msg = f"epilogue: expected a wf.Epilogue, got {quote(epilogue)}"
        raise InvalidOperand(msg)
    if product.rule.d != "f32":
        msg = f"{spell(product.form)}: an epilogue takes sums in f32, and D is {product.rule.d}"
        raise InvalidOperand(msg)
    if order.in_place and epilogue.alpha != 1:
        msg = f"order: parts that are added in place are measured with alpha 1, not with {epilogue.alpha}"
        raise InvalidOperand(msg)
    if epilogue.bias is not None:
        product.extents.check_bias(len(float32_of(epilogue.bias, "bias")))


def _finished(
    product: Product, c: NDArray[Any] | None, order: Order, epilogue: Epilogue, machine: Machine, *, raw: bool
) -> Array:
    """The product of a kernel that has an epilogue, which runs on the host."""
    start = None
    if order.in_place:
        start, c, epilogue = _addend(product, c, epilogue), None, replace(epilogue, bias=None)
    codes = multiply(product.rule, product.operands, start, order, machine)
    sums = read_sums(product.rule, codes if isinstance(codes, np.ndarray) else codes.get())
    codes = convert("f32", write_sums(product.rule, finish(epilogue, sums, c)), epilogue.result).reshape(product.shape)
    return codes if raw else from_codes(FORMATS[epilogue.result], codes)


def _addend(product: Product, c: NDArray[Any] | None, epilogue: Epilogue) -> NDArray[Any] | None:
    """What parts that are added in place are added to, beta * C + bias, as codes of f32."""
    bias = None if epilogue.bias is None else float32_of(epilogue.bias, "bias")
    start = bias if c is None or epilogue.beta == 0 else finish(replace(epilogue, bias=None), np.zeros_like(c), c)
    if start is None:
        return None
    if start is not bias and bias is not None:
        start = start + bias
    shape = (math.prod(product.extents.batch), *product.shape[-2:])
    codes: NDArray[Any] = np.asarray(
        write_sums(product.rule, np.ascontiguousarray(np.broadcast_to(start, shape))), like=product.operands.a
    )
    return codes


def _c_of(product: Product, c: NDArray[Any]) -> NDArray[Any]:
    """C with the batch axis of the product."""
    product.extents.check_c(c.shape)
    return _flat(c, product.extents.batch)


def prepare(
    A: MatrixLike,
    B: MatrixLike,
    *,
    instruction: str | HasForm,
    arch: str,
    scales: tuple[MatrixLike | None, MatrixLike | None] = (None, None),
    raw: bool = False,
    rounding: Rounding = None,
) -> Product:
    """Take the operands of a product: legal, of fitting extents, as codes."""
    form = form_of(instruction)
    wanted = chained_arch(form, arch)
    operands = operands_of(form, wanted)
    a = _codes(operands["a"], A, "A", raw=raw, rounding=rounding)
    b = _codes(operands["b"], B, "B", raw=raw, rounding=rounding)
    extents = ProductShape.of(a.shape, b.shape)
    scale_codes: tuple[NDArray[Any] | None, NDArray[Any] | None] = (None, None)
    if form.block_scale or scales[0] is not None or scales[1] is not None:
        scale_codes = _scales(form, operands, scales, extents, raw=raw, rounding=rounding)
    multiplicands = Multiplicands(_flat(a, extents.batch), _flat(b, extents.batch), operands.a.pattern, *scale_codes)
    return Product(form, plan(form, wanted).rule, multiplicands, extents)


def _flat(codes: NDArray[Any], batch: tuple[int, ...]) -> NDArray[Any]:
    """Codes with one batch axis."""
    if codes.shape[:-2] != batch:  # what is broadcast cannot be written, and kernels copy that
        codes = np.broadcast_to(codes, (*batch, *codes.shape[-2:]))
    return codes.reshape(math.prod(batch), *codes.shape[-2:])


def _codes(operand: Registers, array: MatrixLike, what: str, *, raw: bool, rounding: Rounding) -> NDArray[Any]:
    """Codes of a matrix of any extents, or of a batch of them: where it is, if its bits are the codes."""
    kind = kind_of(array)
    codes: NDArray[Any] | None = None
    if kind.on_gpu:
        codes = _codes_on_gpu(
            operand.format, cast("torch.Tensor | cupy.ndarray", array), kind, raw=raw, rounding=rounding
        )
    matrix = as_array(to_host(array, kind), what) if codes is None else codes
    if matrix.ndim < 2:
        msg = f"{what}: expected a matrix, got an array of shape {matrix.shape}"
        raise InvalidOperand(msg)
    if codes is not None:
        return codes
    codes = codes_of(operand.format, matrix, raw=raw, rounding=rounding, what=what)
    return on_gpu(codes) if kind.on_gpu else codes


def _codes_on_gpu(
    number_format: Format,
    array: torch.Tensor | cupy.ndarray,
    kind: ArrayKind,
    *,
    raw: bool,
    rounding: Rounding,
) -> cupy.ndarray | None:
    """An array of a GPU as codes, where its bits are; None where its values must be looked at one by one."""
    dtype, wanted = dtype_of(array), code_dtype(number_format)
    is_natural = dtype == natural_dtype(number_format) and not (number_format.unused and rounding)
    if not (dtype == wanted if raw else is_natural):
        return None
    codes = device_bits(array, kind)
    fills = number_format.bits == 8 * wanted.itemsize
    return codes if fills or not codes.size or int(codes.max()) < number_format.codes else None


def _scales(
    form: Form,
    operands: Operands,
    scales: tuple[MatrixLike | None, MatrixLike | None],
    extents: ProductShape,
    *,
    raw: bool,
    rounding: Rounding,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Scale codes for every step; blocks that only padding reaches get the scale 1."""
    if not form.block_scale:
        msg = f"{spell(form)} takes no scale_a and no scale_b"
        raise InvalidOperand(msg)
    factors = [scale for scale in scales if scale is not None]
    if len(factors) < len(scales):
        msg = f"{spell(form)} needs scale_a and scale_b"
        raise InvalidOperand(msg)
    unity = operands["scale_a"].format.encode(1.0)
    counts = extents.scale_counts(form)
    padded = []
    for what, scale, along in zip(("scale_a", "scale_b"), factors, (-1, -2), strict=True):
        codes = _codes(operands[what], scale, what, raw=raw, rounding=rounding)
        extents.check_scales(counts, what, codes.shape)
        padding = [(0, 0)] * codes.ndim
        padding[along] = (0, counts.allowed - codes.shape[along])
        padded.append(_flat(np.pad(codes, padding, constant_values=unity), extents.batch))
    return padded[0], padded[1]
