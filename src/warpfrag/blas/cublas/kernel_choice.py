"""Predict the kernel that cuBLAS runs: the choice is queried from the library, tabulated, or modelled.

`cublaslt` queries the library, `choice_table` has the tabulated choices, and `choice_model` predicts the choice for
shapes that no table contains. `kernel_orders` then derives the order of additions from the choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from warpfrag.blas.cublas.choice_model import modelled_choice
from warpfrag.blas.cublas.choice_table import GPU, Choice, Choices, ProductKind, built_in
from warpfrag.blas.cublas.cublaslt import Question, library
from warpfrag.errors import NotModelled

ALIKE = {"linear": "matmul", "scaled_mm bias": "scaled_mm slow"}
"""Calls with a bias for which the library almost always makes the same choice as for the call without a bias."""


class ChosenKernel(NamedTuple):
    """The kernel that the library is predicted to choose; `basis` is "library" (queried or tabulated) or "modelled"."""

    choice: Choice
    basis: str
    accuracy: float | None
    source: str


def choose_kernel(kind: ProductKind, shape: tuple[int, int, int], table: Choices, *, is_queried: bool) -> ChosenKernel:
    """Return the kernel that the library is predicted to choose for a gemm; raise NotModelled if no source covers it.

    The sources, in this order: the installed library (if `is_queried`), `table`, `table` for the call without a bias,
    and the model.
    """
    m, n, k = shape
    if is_queried:
        queried = library()
        question = Question(kind.call, kind.type, kind.layout, m, n, k, kind.batch)
        source = f"cuBLASLt {queried.version} on an {queried.gpu}"
        return ChosenKernel(queried.choice(question), "library", None, source)
    alike = kind._replace(call=ALIKE.get(kind.call, kind.call))
    if kind.batch == 1:
        # PyTorch copies the bias to D and calls cublasSgemm in this case
        if kind == ("linear", "tf32", "nt", 1) and n == 1:
            return choose_kernel(alike, shape, table, is_queried=is_queried)._replace(basis="modelled")
        for called, basis in ((kind, "library"), (alike, "modelled")):
            tabulated = table.find(called.layer(m), m, n, k)
            if tabulated is not None:
                return ChosenKernel(tabulated, basis, None, table.source)
    own = built_in(GPU)  # the model was fitted to the choices of this table's library
    if (table.gpu, table.library) != (own.gpu, own.library):
        raise NotModelled(
            f"{kind.call} {kind.type} {kind.layout} {m} x {n} x {k} is not in {table!r}; add this layer to the survey"
        )
    choice, accuracy = modelled_choice(kind, m, n, k)
    return ChosenKernel(choice, "modelled", accuracy, own.source)


def choice_runs(
    kind: ProductKind, n: int, k: int, span: tuple[int, int], table: Choices, *, is_queried: bool
) -> Iterator[tuple[int, int, ChosenKernel]]:
    """Yield ranges of m with the same choice, as (first, last, choice): those of a table, or single values of m."""
    first, last = span
    runs, basis = None, "library"
    if not is_queried and kind.layout != "tn":
        runs = table.runs(kind.layer(first), n, k)
        if runs is None and kind.call in ALIKE:
            runs, basis = table.runs(kind._replace(call=ALIKE[kind.call]).layer(first), n, k), "modelled"
    for end, choice in runs or []:
        if first > last:
            return
        if end >= first:
            yield first, min(end, last), ChosenKernel(choice, basis, None, table.source)
            first = min(end, last) + 1
    while first <= last:
        yield first, first, choose_kernel(kind, (first, n, k), table, is_queried=is_queried)
        first += 1
