"""Which order of additions a library uses for a product, without operands, and how that is known.

Asked in this order; the first that has an answer gives it:

    measured    the product itself was run, and its order found
    library     the library's own choice: asked now, or tabulated for the layer and m
    modelled    a model of the choice, fitted on answers of the library; its accuracy is stated

A choice becomes an order by the rules of `kernel_orders`. What rests on a modelled choice, or on a rule that is not
proved, is a guess. A choice that no rule covers is `NotModelled`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpfrag import html
from warpfrag.blas.cublas import choice_model
from warpfrag.blas.cublas.choices import Choice, ProductKind, built_in, choices_of
from warpfrag.blas.cublas.cublaslt import Question, library
from warpfrag.blas.cublas.kernel_orders import KernelOrder, choice_of, order_of
from warpfrag.blas.order import Order, part_length
from warpfrag.errors import InvalidOperand, NotModelled, check_flag, quote
from warpfrag.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from warpfrag.blas.cublas.choices import Choices

RESULTS = {"f16": "f16", "bf16": "bf16", "tf32": "f32", "e4m3": "bf16"}
"""What the product of each format is rounded to; integers stay s32."""
TYPES = (*RESULTS, "s8")
LAYOUTS = ("nn", "nt", "tn")
GPU = "H200"
MAX_EXTENT = (1 << 24) - 1
ALIKE = {"linear": "matmul", "scaled_mm bias": "scaled_mm slow"}
"""Calls for which the library nearly always chooses as for another one, without a bias."""
INTEGERS = "any library: integers have the same sum in every order"


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
class PredictedOrder:
    """The order of additions of a product, and how it is known."""

    kind: ProductKind
    shape: tuple[int, int, int]
    order: Order
    basis: str
    """measured, library (its own answer, tabulated or asked) or modelled."""
    accuracy: float | None
    """Of a modelled choice: the share of unseen shapes of this kind for which the order was the library's."""
    is_guess: bool
    lost: int
    """How many of the last products of K the library leaves out: a defect of some of its kernels."""
    kernel: str
    source: str
    choice: Choice | None = None
    row: MeasuredProduct | None = None

    @property
    def text(self) -> str:
        """The order in words, what it rests on, and what the library leaves out."""
        words = self.order.describe(self.shape[2] - self.lost)
        known = {
            "measured": f"measured with {self.source}",
            "library": f"the choice of {self.source}",
            "modelled": f"a modelled choice of {self.source}"
            + (f", right for {100 * self.accuracy:.1f} % of unseen shapes" if self.accuracy is not None else ""),
        }[self.basis]
        lost = f"; the library leaves out the last {self.lost} products of K" if self.lost else ""
        return f"{'a guess: ' if self.is_guess else ''}{words}; {known}: {self.kernel}{lost}"

    def __repr__(self) -> str:
        """The product, its order, and how it is known."""
        shape = " x ".join(map(str, self.shape))
        return f"<PredictedOrder of {self.kind.call} {self.kind.type} {self.kind.layout} {shape}\n {self.text}>"

    def _repr_html_(self) -> str:
        """A card for notebooks."""
        rows = [("order of additions", str(self.order)), ("kernel", self.kernel), ("basis", self.basis)]
        title = f"{self.kind.type} {' x '.join(map(str, self.shape))}"
        return html.card(html.escape(title), html.table(("", "library"), rows), f"<p>{html.escape(self.text)}</p>")

    def to_dict(self) -> dict[str, object]:
        """All of it as plain objects, for JSON."""
        return {
            **self.kind._asdict(),
            **dict(zip("mnk", self.shape, strict=True)),
            "order": {entry.name: getattr(self.order, entry.name) for entry in fields(Order)},
            "basis": self.basis,
            "accuracy": self.accuracy,
            "guess": self.is_guess,
            "omitted_k": self.lost,
            "kernel": self.kernel,
            "source": self.source,
            "configuration": None if self.choice is None else self.choice._asdict(),
            "text": self.text,
        }


@dataclass(frozen=True)
class OrderRun:
    """A range of m in which a layer keeps its order; `order` is None where no rule covers what the library chooses."""

    first: int
    last: int
    k: int
    order: Order | None
    lost: int
    basis: str
    is_guess: bool
    kernel: str

    @property
    def text(self) -> str:
        """The range and its order, in words."""
        span = f"m = {self.first}" + (f"..{self.last}" if self.last > self.first else "")
        if self.order is None:
            return f"{span}: not modelled ({self.kernel})"
        lost = f", without the last {self.lost} products of K" if self.lost else ""
        guess = ", a guess" if self.is_guess else ""
        return f"{span}: {self.order.describe(self.k - self.lost)}{lost}{guess}"

    @property
    def short(self) -> str:
        """The order in a few characters, for a picture."""
        if self.order is None:
            return "?"
        count = self.order.segment_k or self.order.split_k
        return "ascending" if count == 1 else f"{count} parts"


@cache
def measured() -> tuple[MeasuredProduct, ...]:
    """Every row of the table of measured products."""
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
    """What the table was measured with."""
    table = read_table("library_orders")
    return f"torch {table['torch']} (CUDA {table['cuda']}) on an {table['gpu']}"


def product_kind(
    type: object,  # noqa: A002 (as everywhere)
    layout: object,
    *,
    bias: object = False,
    fast_accumulation: object = False,
    batch: object = 1,
) -> ProductKind:
    """What of PyTorch computes a product of such operands; refuses what it does not take."""
    if not isinstance(type, str) or type not in TYPES:
        msg = f"type: expected one of {', '.join(TYPES)}; got {quote(type)}"
        raise InvalidOperand(msg)
    if not isinstance(layout, str) or layout not in LAYOUTS:
        msg = f"layout: expected one of {', '.join(LAYOUTS)}; got {quote(layout)}"
        raise InvalidOperand(msg)
    count = _extent("batch", batch)
    has_bias, fast = check_flag("bias", bias), check_flag("fast_accumulation", fast_accumulation)
    if count > 1 and (type in {"e4m3", "s8"} or has_bias):
        msg = "a batch is measured for float16, bfloat16 and float32 without a bias"
        raise InvalidOperand(msg)
    if type == "s8" and has_bias:
        msg = "torch._int_mm takes no bias"
        raise InvalidOperand(msg)
    if fast and type != "e4m3":
        msg = "fast_accumulation is a choice for float8_e4m3fn only"
        raise InvalidOperand(msg)
    if type == "s8":
        return ProductKind("int_mm", type, "nt")
    if type == "e4m3":
        return ProductKind("scaled_mm bias" if has_bias else f"scaled_mm {'fast' if fast else 'slow'}", type, "nt")
    if has_bias:
        return ProductKind("linear", type, "nt")
    return ProductKind("bmm" if count > 1 else "matmul", type, layout, count)


def _extent(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= MAX_EXTENT:
        msg = f"{name}: expected an integer from 1 to {MAX_EXTENT}, got {quote(value)}"
        raise InvalidOperand(msg)
    return int(value)


def predict_order(
    m: int,
    n: int,
    k: int,
    *,
    type: str = "bf16",  # noqa: A002 (as everywhere)
    layout: str = "nt",
    bias: bool = False,
    fast_accumulation: bool = False,
    batch: int = 1,
    gpu: str = GPU,
    ask: bool = False,
    choices: str | PathLike[str] | Choices | None = None,
) -> PredictedOrder:
    """The order of additions that PyTorch's library uses for a product of M x K and K x N, and how that is known.

    `type` is f16, bf16, tf32 (float32 with TF32 allowed), e4m3 or s8; the other keywords are those of `wf.predict`.
    Assumed are PyTorch's workspace of 32 MiB, reduced-precision reductions switched off, and TF32 allowed.
    """
    kind = product_kind(type, layout, bias=bias, fast_accumulation=fast_accumulation, batch=batch)
    shape = _extent("m", m), _extent("n", n), _extent("k", k)
    return find_product_order(kind, shape, gpu=gpu, ask=ask, choices=choices)


def find_product_order(
    kind: ProductKind, shape: tuple[int, int, int], *, gpu: object, ask: object, choices: object
) -> PredictedOrder:
    """The same, for a product of a kind."""
    is_asked = check_flag("ask", ask)
    table = choices_of(choices)
    if table is None and not is_asked:
        built_in(_gpu(gpu))  # raises NotModelled for a GPU without a table
        row = _measured_by_shape().get((*kind, *shape))
        if row is not None:
            return PredictedOrder(
                kind, shape, row.order, "measured", None, is_guess=False, lost=0, kernel=row.kernel, source=versions(),
                row=row,
            )  # fmt: skip
    if kind.type == "s8":
        return PredictedOrder(
            kind, shape, Order(), "library", None, is_guess=False, lost=0, kernel="any", source=INTEGERS
        )
    chosen = _chosen(kind, shape, _gpu(gpu), table, is_asked=is_asked)
    known = order_of(kind, chosen.choice, shape)
    return PredictedOrder(
        kind, shape, known.order, chosen.basis, chosen.accuracy,
        is_guess=chosen.basis == "modelled" or not known.is_proved, lost=known.lost, kernel=chosen.choice.kernel,
        source=chosen.source, choice=chosen.choice,
    )  # fmt: skip


def _gpu(gpu: object) -> str:
    if not isinstance(gpu, str):
        msg = f"gpu: expected the name of a GPU, such as {GPU!r}; got {quote(gpu)}"
        raise InvalidOperand(msg)
    return gpu.removeprefix("NVIDIA ")


class _Chosen(NamedTuple):
    """What the library chooses, and how that is known."""

    choice: Choice
    basis: str
    accuracy: float | None
    source: str


def _chosen(
    kind: ProductKind, shape: tuple[int, int, int], gpu: str, table: Choices | None, *, is_asked: bool
) -> _Chosen:
    m, n, k = shape
    if is_asked:
        asked = library()
        question = Question(kind.call, kind.type, kind.layout, m, n, k, kind.batch)
        choice = choice_of(asked.configuration(question), asked.kernels(question), shape, kind.batch)
        return _Chosen(choice, "library", None, f"cuBLASLt {asked.version} on an {asked.gpu}")
    tables = [table] if table is not None else [built_in(gpu)]
    if kind.batch == 1:
        for some in tables:
            tabulated = some.find(kind.layer(m), m, n, k)
            if tabulated is not None:
                return _Chosen(tabulated, "library", None, some.source)
            alike = some.find(kind._replace(call=ALIKE.get(kind.call, kind.call)).layer(m), m, n, k)
            if alike is not None:
                return _Chosen(alike, "modelled", None, some.source)
    if table is not None and not _is_like_built_in(table, gpu):
        msg = f"{kind.call} {kind.type} {kind.layout} {m} x {n} x {k} is not in {table!r}: survey this layer too"
        raise NotModelled(msg)
    choice, accuracy = choice_model.choose(kind, m, n, k)
    return _Chosen(choice, "modelled", accuracy, built_in(gpu).source)


def _is_like_built_in(table: Choices, gpu: str) -> bool:
    """Whether the model of the wheel, fitted on the library of the built-in table, holds for a table too."""
    try:
        own = built_in(gpu)
    except NotModelled:
        return False
    return (table.gpu, table.library) == (own.gpu, own.library)


def order_runs(
    kind: ProductKind, n: int, k: int, span: tuple[int, int], *, gpu: object, ask: object, choices: object
) -> tuple[list[OrderRun], str]:
    """The ranges of m in which a layer keeps its order of additions, and whose choices these are."""
    is_asked, table = check_flag("ask", ask), choices_of(choices)
    pieces: list[OrderRun] = []
    source = ""
    for first, last, chosen in _choice_runs(kind, n, k, span, _gpu(gpu), table, is_asked=is_asked):
        source = source or chosen.source
        run = _order_run(kind, first, last, n, k, chosen)
        if pieces and _alike(pieces[-1], run):
            before = pieces.pop()
            basis = run.basis if before.basis == "library" else before.basis
            is_guess = before.is_guess or run.is_guess
            run = OrderRun(before.first, last, k, before.order, run.lost, basis, is_guess, before.kernel)
        pieces.append(run)
    return pieces, source


def _choice_runs(
    kind: ProductKind, n: int, k: int, span: tuple[int, int], gpu: str, table: Choices | None, *, is_asked: bool
) -> Iterator[tuple[int, int, _Chosen]]:
    """Ranges of m and what is chosen in each: from a table by its runs, else m by m."""
    first, last = span
    own = table if table is not None else None if is_asked else built_in(gpu)
    runs, basis = None, "library"
    if own is not None and not is_asked and kind.layout != "tn":
        runs = own.runs(kind.layer(first), n, k)
        if runs is None and kind.call in ALIKE:
            runs, basis = own.runs(kind._replace(call=ALIKE[kind.call]).layer(first), n, k), "modelled"
    for end, choice in runs or []:
        if first > last:
            return
        if end >= first:
            yield first, min(end, last), _Chosen(choice, basis, None, own.source if own else "")
            first = min(end, last) + 1
    while first <= last:
        yield first, first, _chosen(kind, (first, n, k), gpu, table, is_asked=is_asked)
        first += 1


def _order_run(kind: ProductKind, first: int, last: int, n: int, k: int, chosen: _Chosen) -> OrderRun:
    try:
        known: KernelOrder | None = order_of(kind, chosen.choice, (first, n, k))
    except NotModelled:
        known = None
    is_guess = chosen.basis == "modelled" or known is None or not known.is_proved
    order, lost = (None, 0) if known is None else (known.order, known.lost)
    return OrderRun(first, last, k, order, lost, chosen.basis, is_guess, chosen.choice.kernel)


def _alike(run: OrderRun, other: OrderRun) -> bool:
    """Whether two runs add the same k in the same parts: split counts that give the same parts are the same order."""
    if run.lost != other.lost or (run.order is None) != (other.order is None):
        return False
    if run.order is None or other.order is None:
        return run.kernel == other.kernel
    return _effective(run.order, run.k) == _effective(other.order, other.k)


def _effective(order: Order, k: int) -> tuple[object, ...]:
    """What an order does to a K of this depth."""
    length = part_length(k, order.unit, order.split_k) if order.unit and order.split_k > 1 else k
    cut = (order.segment_k, order.unit) if order.segment_k else None
    whole = order.residue is not None and length % order.residue == 0 and k % order.residue == 0
    return min(length, k), cut, order.promote, None if whole else order.residue, order.step
