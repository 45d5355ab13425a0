"""What PyTorch gives on an H200, to the last bit: the order of additions comes from a table of measured shapes.

Which kernel cuBLAS runs, and with it the order, depends on the call, the types, the shape and the version of the
library. Where the table has no row, the order is that of the nearest shape that it has, and said to be a guess.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.core.coordinates import check_flag
from warpfrag.errors import InvalidOperand, quote
from warpfrag.numerics.arrays import as_array
from warpfrag.numerics.codes import natural_dtype
from warpfrag.numerics.epilogue import Epilogue
from warpfrag.numerics.formats import FORMATS
from warpfrag.prediction.libraries import instruction_for
from warpfrag.products.gemm import gemm
from warpfrag.products.order import Order
from warpfrag.render import html
from warpfrag.tables import read_table

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from warpfrag.numerics.arrays import Array

RESULTS = {"f16": "f16", "bf16": "bf16", "tf32": "f32", "e4m3": "bf16"}
"""What the product of each format is rounded to; integers stay s32."""
LAYOUTS = ("nn", "nt", "tn")
ARCH = "sm_90"


@dataclass(frozen=True)
class MeasuredProduct:
    """A measured product: what was called with which operands, the kernel that ran, and the order that explains it."""

    call: str
    type: str
    layout: str
    batch: int
    m: int
    n: int
    k: int
    order: Order
    kernel: str

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N and K."""
        return self.m, self.n, self.k


@dataclass(frozen=True)
class Prediction:
    """D as PyTorch gives it, and how that is known. `row` is the measured one, or the nearest where it is a guess."""

    D: Array
    order: Order
    instruction: str
    row: MeasuredProduct
    is_guess: bool
    text: str

    def __repr__(self) -> str:
        """What D is, the order, and how it is known."""
        shape = " x ".join(map(str, self.D.shape))
        return f"<Prediction of {shape} {self.D.dtype} by {self.instruction}\n {self.order}\n {self.text}>"

    def _repr_html_(self) -> str:
        """A card for notebooks: the product, the order, the kernel, and how it is known."""
        rows = [
            ("instruction", self.instruction),
            ("order of additions", str(self.order)),
            ("kernel", self.row.kernel),
            ("known", "a guess from the nearest measured shape" if self.is_guess else "measured"),
        ]
        title = f"Prediction of {' x '.join(map(str, self.D.shape))} {self.D.dtype}"
        return html.card(
            f"<code>{html.escape(title)}</code>",
            html.table(("", "library"), rows),
            f"<p>{html.escape(self.text)}</p>",
        )


@cache
def measured() -> tuple[MeasuredProduct, ...]:
    """Every row of the table."""
    table = read_table("library_orders")
    rows = []
    for row in table["rows"]:
        facts = dict(zip(table["columns"], row, strict=True))
        parts: dict[str, Any] = {part.name: facts.pop(part.name) or part.default for part in fields(Order)}
        rows.append(MeasuredProduct(**facts, order=Order(**parts)))
    return tuple(rows)


def versions() -> str:
    """What the table was measured with."""
    table = read_table("library_orders")
    return f"torch {table['torch']} (CUDA {table['cuda']}) on an {table['gpu']}"


def predict(
    A: ArrayLike,
    B: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    layout: str = "nn",
    fast_accumulation: bool = False,
    shape: tuple[int, int, int] | None = None,
) -> Prediction:
    """What torch.matmul gives on an H200 for A (M x K) and B (K x N), and how well that is known.

    float16 and bfloat16 as they are, float32 with TF32 allowed, float8_e4m3fn as `torch._scaled_mm` with scales of 1
    and a bfloat16 result, with or without `fast_accumulation`; int8 as `torch._int_mm`. With a bias it is a linear
    layer. `layout` says which operand lies turned in memory: "nt" where B is the transpose of a row-major matrix, as
    the weight of a linear layer is. Three axes are a batch, as for torch.bmm. A and B may be some rows and columns of
    a larger product: then `shape` is its (m, n, k).
    """
    a, b = as_array(A, "A"), as_array(B, "B")
    instruction = instruction_for(a.dtype, b.dtype, ARCH)
    kind = {natural_dtype(FORMATS[name]): name for name in (*RESULTS, "s8")}[a.dtype]
    if not isinstance(layout, str) or layout not in LAYOUTS:
        msg = f"layout: expected one of {', '.join(LAYOUTS)}; got {quote(layout)}"
        raise InvalidOperand(msg)
    if a.ndim not in {2, 3} or b.ndim != a.ndim:
        msg = f"A and B: expected two matrices, or two batches of them; got shapes {a.shape} and {b.shape}"
        raise InvalidOperand(msg)
    call = _call(kind, is_batch=a.ndim == 3, has_bias=bias is not None, fast=check_flag("fast", fast_accumulation))
    if call in {"linear", "int_mm"} or kind == "e4m3":
        layout = "nt"
    wanted = _shape(shape, (a.shape[-2], b.shape[-1], a.shape[-1]))
    row, is_guess = _find(call, kind, layout, a.shape[0] if a.ndim == 3 else 1, wanted)
    order = row.order
    if kind == "s8":
        D = gemm(a, b, instruction=instruction, arch=ARCH, order=order)
    else:
        epilogue = Epilogue(bias=bias, result=RESULTS[kind])
        D = gemm(
            a, b, instruction=instruction, arch=ARCH, order=order, epilogue=epilogue,
            rounding="rne" if kind == "tf32" else None,
        )  # fmt: skip
    return Prediction(D, order, instruction, row, is_guess, _text(row, wanted, is_guess=is_guess))


def _call(kind: str, *, is_batch: bool, has_bias: bool, fast: bool) -> str:
    """What of PyTorch it is, as the table calls it."""
    if is_batch and (kind in {"e4m3", "s8"} or has_bias):
        msg = "a batch is measured for float16, bfloat16 and float32 without a bias"
        raise InvalidOperand(msg)
    if kind == "s8":
        if has_bias:
            msg = "torch._int_mm takes no bias"
            raise InvalidOperand(msg)
        return "int_mm"
    if kind == "e4m3":
        return "scaled_mm bias" if has_bias else f"scaled_mm {'fast' if fast else 'slow'}"
    if fast:
        msg = "fast_accumulation is a choice for float8_e4m3fn only"
        raise InvalidOperand(msg)
    return "bmm" if is_batch else "linear" if has_bias else "matmul"


def _shape(shape: object, own: tuple[int, int, int]) -> tuple[int, int, int]:
    if shape is None:
        return own
    extents = shape if isinstance(shape, tuple | list) and len(shape) == 3 else ()
    if not extents or not all(isinstance(extent, int | np.integer) for extent in extents):
        msg = f"shape: expected (m, n, k) of the whole product, got {quote(shape)}"
        raise InvalidOperand(msg)
    m, n, k = map(int, extents)
    if k != own[2] or m < own[0] or n < own[1]:
        msg = f"shape: a product of {m} x {n} x {k} has no part of {own[0]} x {own[1]} x {own[2]}"
        raise InvalidOperand(msg)
    return m, n, k


def _find(call: str, kind: str, layout: str, batch: int, shape: tuple[int, int, int]) -> tuple[MeasuredProduct, bool]:
    """The row of the table, or the nearest one, and whether it is a guess."""
    rows = [row for row in measured() if (row.call, row.type) == (call, kind)]

    def distance(row: MeasuredProduct) -> float:
        apart = sum(abs(math.log2(mine / max(other, 1))) for mine, other in zip(row.shape, shape, strict=True))
        return apart + (row.layout != layout) / 4 + (row.batch != batch) / 4

    nearest = min(rows, key=distance)
    return nearest, (nearest.layout, nearest.batch, *nearest.shape) != (layout, batch, *shape)


def _text(row: MeasuredProduct, shape: tuple[int, int, int], *, is_guess: bool) -> str:
    words = row.order.describe(shape[2])
    m, n, k = row.shape
    if not is_guess:
        return f"{words}; measured with {versions()}: {row.kernel}"
    there = f"{row.call} {row.type} {row.layout} {m} x {n} x {k}"
    return f"a guess: {words}, as {versions()} for the nearest measured shape, {there}: {row.kernel}"
