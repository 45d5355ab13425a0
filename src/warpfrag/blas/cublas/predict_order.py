"""Predict the order of additions that a library uses for a gemm, from its shape and types alone.

Sources are tried in this order:

    measured    this gemm was run, and its order was found
    library     the library's own choice: queried now, or tabulated for the layer and m
    modelled    a model of the choice, fitted to the library's choices; its accuracy is stated

`kernel_choice.choose_kernel` returns the choice for the last two sources, and the rules of `kernel_orders` derive the
order from it. An order that depends on a modelled choice or an unproved rule is marked as a guess. A choice that no
rule covers raises `NotModelled`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache, lru_cache
from os import PathLike
from typing import Any

import numpy as np

from warpfrag.blas.cublas.choice_table import BUILT_IN, GPU, Choice, Choices, ProductKind, choices_of
from warpfrag.blas.cublas.kernel_choice import ChosenKernel, choice_runs, choose_kernel
from warpfrag.blas.cublas.kernel_orders import KernelOrder, order_of
from warpfrag.blas.cublas.segment_k import CutTiles
from warpfrag.blas.cublas.torch_settings import assumptions
from warpfrag.blas.order import Order, additions_of
from warpfrag.errors import InvalidOperand, NotModelled, check_flag, check_name, quote
from warpfrag.formats.codes import natural_dtype
from warpfrag.formats.number_formats import FORMATS, format_name
from warpfrag.html import TextCard
from warpfrag.isa.legality import form_of
from warpfrag.isa.targets import read_target
from warpfrag.tables import read_table

RESULTS = {"f16": "f16", "bf16": "bf16", "tf32": "f32", "e4m3": "bf16"}
"""The format of D for each operand format; for integers it is s32."""
DTYPES = (*RESULTS, "s8")
LAYOUTS = ("nn", "nt", "tn")
ARCH = "sm_90"
MAX_EXTENT = (1 << 24) - 1
INTEGERS = "any library: integers have the same sum in every order"
EMPTY = "any library: the result is empty, or a sum without terms"
TF32 = "float32 as TF32 (PyTorch's default is TF32 off), "


@dataclass(frozen=True)
class MeasuredProduct:
    """A measured gemm: the call, its operands, the kernel that ran, and the order that reproduces the result."""

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
        """The extents M, N and K."""
        return self.m, self.n, self.k


@dataclass(frozen=True)
class PredictedOrder(TextCard):
    """The order of additions of a gemm, and its source."""

    kind: ProductKind
    shape: tuple[int, int, int]
    order: Order
    basis: str
    """The source of the order: measured, library (its own choice, tabulated or queried) or modelled."""
    accuracy: float | None = None
    """For a modelled choice, the fraction of unseen shapes of this type for which the order was predicted correctly."""
    is_guess: bool = False
    omitted_k: int = 0
    """The number of terms at the end of K that the library omits; this is a defect of some of its kernels."""
    kernel: str = ""
    source: str = ""
    choice: Choice | None = None
    row: MeasuredProduct | None = None
    cut_tiles: CutTiles | None = None
    """The tiles of D that `order` applies to, if k ascends in all others."""
    epilogue: str = ""
    """A note on whether the epilogue of these kernels was compared with an H200; empty without an epilogue."""

    @property
    def text(self) -> str:
        """A description of the order, its source, and the terms that the library omits."""
        words = self.order.describe(self.shape[2] - self.omitted_k)
        known = {
            "measured": f"measured with {self.source}",
            "library": f"the choice of {self.source}",
            "modelled": f"a modelled choice of {self.source}"
            + (f", right for {100 * self.accuracy:.1f} % of unseen shapes" if self.accuracy is not None else ""),
        }[self.basis]
        lost = f"; the library omits the last {self.omitted_k} terms along K" if self.omitted_k else ""
        if self.cut_tiles is not None:
            words = f"in {int(self.cut_tiles.is_cut.sum())} of {self.cut_tiles.is_cut.size} tiles {words}"
        words = f"{'a guess: ' if self.is_guess else ''}{TF32 if self.kind.type == 'tf32' else ''}{words}"
        return f"{words}; {known}: {self.kernel}{f'; epilogue {self.epilogue}' if self.epilogue else ''}{lost}"

    def __repr__(self) -> str:
        """Format the gemm, its order, and the source of the order."""
        shape = " x ".join(map(str, self.shape))
        return f"<PredictedOrder of {self.kind.call} {self.kind.type} {self.kind.layout} {shape}\n {self.text}>"

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON-compatible values."""
        return {
            **self.kind._asdict(),
            **dict(zip("mnk", self.shape, strict=True)),
            "order": {entry.name: getattr(self.order, entry.name) for entry in fields(Order)},
            "basis": self.basis,
            "accuracy": self.accuracy,
            "guess": self.is_guess,
            "omitted_k": self.omitted_k,
            "kernel": self.kernel,
            "source": self.source,
            "settings": assumptions([self.kind.type]),
            "configuration": None if self.choice is None else self.choice._asdict(),
            "text": self.text,
        }


@dataclass(frozen=True)
class OrderRun:
    """A range of m with the same order; `order` is None if no rule covers the library's choice."""

    first: int
    last: int
    k: int
    order: Order | None
    omitted_k: int
    basis: str
    is_guess: bool
    kernel: str

    @property
    def text(self) -> str:
        """A description of the range and its order."""
        span = f"m = {self.first}" + (f"..{self.last}" if self.last > self.first else "")
        if self.order is None:
            return f"{span}: not modelled ({self.kernel})"
        lost = f", without the last {self.omitted_k} terms along K" if self.omitted_k else ""
        guess = ", a guess" if self.is_guess else ""
        return f"{span}: {self.order.describe(self.k - self.omitted_k)}{lost}{guess}"

    @property
    def short(self) -> str:
        """A short form of the order, for figures."""
        if self.order is None:
            return "?"
        count = self.order.segment_k or self.order.split_k
        return "ascending" if count == 1 else f"{count} parts"


@cache
def measured() -> tuple[MeasuredProduct, ...]:
    """Return all measured gemms."""
    table = read_table("library_orders")
    rows = []
    for row in table["rows"]:
        facts = dict(zip(table["columns"], row, strict=True))
        parts: dict[str, Any] = {part.name: facts.pop(part.name, None) or part.default for part in fields(Order)}
        rows.append(MeasuredProduct(**facts, order=Order(**parts)))
    return tuple(rows)


@cache
def _measured_by_shape() -> dict[tuple[object, ...], MeasuredProduct]:
    return {(row.call, row.type, row.layout, row.batch, *row.shape): row for row in measured()}


def versions() -> str:
    """Return the library versions with which the gemms were measured."""
    table = read_table("library_orders")
    return f"torch {table['torch']} (CUDA {table['cuda']}) on an {table['gpu']}"


@cache
def _instructions() -> dict[str, dict[str, str]]:
    """Return the instructions that libraries use, by architecture and operand format."""
    rows = read_table("library_instructions")["instruction"]
    return {row["arch"]: {name: text for name, text in row.items() if name in FORMATS} for row in rows}


def library_instruction(name: str, arch: str) -> str:
    """Return the instruction that a library's kernels use for an operand format on an architecture."""
    base = read_target(arch, "").name.rstrip("af")
    if base not in _instructions():
        raise NotModelled(
            f"library instructions were measured on {', '.join(_instructions())}, not on {base}: name an instruction"
        )
    return _instructions()[base][name]


@lru_cache(64)
def library_additions(name: str, order: Order, depth: int) -> tuple[object, ...]:
    """Return a key that is equal for orders that perform the same additions if K has this depth."""
    form = form_of(library_instruction(name, ARCH))
    return additions_of(order, depth, form.shape.k, FORMATS[form.a].bits)


def operand_type(a: np.dtype[Any], b: np.dtype[Any]) -> str:
    """Return the format in which libraries multiply operands of these dtypes; float32 becomes tf32."""
    known = {natural_dtype(FORMATS[name]): name for name in DTYPES}
    if a != b or a not in known:
        raise InvalidOperand(f"A is {a} and B is {b}: expected both to be one of {', '.join(map(str, known))}")
    return known[a]


def product_kind(
    name: str, layout: object, *, bias: object = False, fast_accumulation: object = False, batch: int | None = None
) -> ProductKind:
    """Return the PyTorch call that computes a gemm of these operands; raise an error if there is none."""
    layout = check_name("layout", layout, LAYOUTS)
    has_bias, fast = check_flag("bias", bias), check_flag("fast_accumulation", fast_accumulation)
    if batch is not None and (name in {"e4m3", "s8"} or has_bias):
        raise InvalidOperand("a batch was measured only for float16, bfloat16 and float32 without a bias")
    if name == "s8" and has_bias:
        raise InvalidOperand("torch._int_mm takes no bias")
    if fast and name != "e4m3":
        raise InvalidOperand("fast_accumulation applies to float8_e4m3fn only")
    if batch is not None:
        return ProductKind("bmm", name, layout, batch)
    if name == "s8":
        return ProductKind("int_mm", name, "nt")
    if name == "e4m3":
        call = "fast" if fast else "bias" if has_bias else "slow"  # a bias does not change the order of a fast call
        return ProductKind(f"scaled_mm {call}", name, "nt")
    return ProductKind("linear", name, "nt") if has_bias else ProductKind("matmul", name, layout)


def extent(name: str, value: object, largest: int = MAX_EXTENT) -> int:
    """Return an integer from 1 to `largest`; raise InvalidOperand for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= largest:
        raise InvalidOperand(f"{name}: expected an integer from 1 to {largest}, got {quote(value)}")
    return int(value)


def extents(name: str, pair: object, largest: int = MAX_EXTENT) -> tuple[int, int]:
    """Return a pair of integers from 1 to `largest`, such as a layer's n and k."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InvalidOperand(f"{name}: expected two integers, such as [6144, 4096]; got {quote(pair)}")
    return extent(name, pair[0], largest), extent(name, pair[1], largest)


def predict_order(
    m: int,
    n: int,
    k: int,
    *,
    dtype: object = "bf16",
    layout: str = "nn",
    bias: bool = False,
    fast_accumulation: bool = False,
    batch: int = 1,
    query_cublas: bool = False,
    choices: str | PathLike[str] | Choices = GPU,
) -> PredictedOrder:
    """Predict the order of additions that PyTorch uses for M x K times K x N, with the evidence for it.

    `dtype` is f16, bf16, tf32 (float32 with TF32 allowed), e4m3 or s8; the other keywords are those of `wf.predict`.
    The prediction assumes PyTorch's workspace of 32 MiB, reduced-precision reductions disabled, and TF32 enabled.
    """
    name = format_name(dtype, DTYPES)
    batches = None if extent("batch", batch) == 1 else int(batch)
    kind = product_kind(name, layout, bias=bias, fast_accumulation=fast_accumulation, batch=batches)
    shape = extent("m", m), extent("n", n), extent("k", k)
    return find_product_order(kind, shape, query_cublas=query_cublas, choices=choices)


def find_product_order(
    kind: ProductKind, shape: tuple[int, int, int], *, query_cublas: object, choices: object
) -> PredictedOrder:
    """Predict the order of additions of a PyTorch call for a shape."""
    is_queried, table = check_flag("query_cublas", query_cublas), choices_of(choices)
    if table.name in BUILT_IN.values() and not is_queried:
        row = _measured_by_shape().get((*kind, *shape))
        if row is not None:
            return PredictedOrder(kind, shape, row.order, "measured", kernel=row.kernel, source=versions(), row=row)
    if kind.type == "s8" or 0 in shape:
        source = EMPTY if 0 in shape else INTEGERS
        return PredictedOrder(kind, shape, Order(), "library", kernel="any", source=source)
    chosen = choose_kernel(kind, shape, table, is_queried=is_queried)
    known = order_of(kind, chosen.choice, shape)
    return PredictedOrder(
        kind, shape, known.order, chosen.basis, chosen.accuracy,
        is_guess=chosen.basis == "modelled" or not known.is_proved, omitted_k=known.omitted_k,
        kernel=chosen.choice.kernel, source=chosen.source, choice=chosen.choice, cut_tiles=known.cut_tiles,
    )  # fmt: skip


def order_runs(
    kind: ProductKind, n: int, k: int, span: tuple[int, int], *, query_cublas: object, choices: object
) -> tuple[list[OrderRun], str]:
    """Return the ranges of m with the same order of additions for a layer, and the source of the choices."""
    is_queried, table = check_flag("query_cublas", query_cublas), choices_of(choices)
    pieces: list[OrderRun] = []
    source = ""
    for first, last, chosen in choice_runs(kind, n, k, span, table, is_queried=is_queried):
        source = source or chosen.source
        run = _order_run(kind, first, last, n, k, chosen)
        if pieces and is_alike(pieces[-1], run, kind.type):
            before = pieces.pop()
            basis = run.basis if before.basis == "library" else before.basis
            is_guess = before.is_guess or run.is_guess
            run = OrderRun(before.first, last, k, before.order, run.omitted_k, basis, is_guess, before.kernel)
        pieces.append(run)
    return pieces, source


def _order_run(kind: ProductKind, first: int, last: int, n: int, k: int, chosen: ChosenKernel) -> OrderRun:
    try:
        known: KernelOrder | None = order_of(kind, chosen.choice, (first, n, k))
    except NotModelled:
        known = None
    if known is not None and known.cut_tiles is not None:
        known = KernelOrder(Order(), is_proved=False)  # which tiles are cut changes with m
    is_guess = chosen.basis == "modelled" or known is None or not known.is_proved
    order, omitted = (None, 0) if known is None else (known.order, known.omitted_k)
    return OrderRun(first, last, k, order, omitted, chosen.basis, is_guess, chosen.choice.kernel)


def is_alike(run: OrderRun, other: OrderRun, name: str) -> bool:
    """Return True if two ranges perform the same additions, possibly with different split counts."""
    if run.omitted_k != other.omitted_k or (run.order is None) != (other.order is None):
        return False
    if run.order is None or other.order is None:
        return run.kernel == other.kernel
    depth = run.k - run.omitted_k
    return run.order == other.order or (
        library_additions(name, run.order, depth) == library_additions(name, other.order, depth)
    )
