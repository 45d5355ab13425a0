"""Explain why two results of one gemm differ: find the origin of each, and the step at which the sums diverge.

The origin of a result is an architecture, an order of additions, and the number of omitted terms. The origin of a
prediction is known; for an array, every modelled architecture and order is tried (`find_order`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest

import numpy as np
from numpy.typing import ArrayLike

from warpfrag.blas.cublas.predict import Prediction
from warpfrag.blas.cublas.predict_order import library_instruction, operand_type
from warpfrag.blas.find_order import Finish, FittingOrders, Observed, Progress, fitting_orders, rounded_hint
from warpfrag.blas.gemm_trace import ProductStep, trace_output
from warpfrag.blas.order import Order
from warpfrag.blas.prepared_gemm import PreparedGemm, prepare_gemm
from warpfrag.errors import InvalidOperand, NotModelled, WarpfragError, quote
from warpfrag.formats.arrays import as_array
from warpfrag.formats.epilogue import Epilogue, float32_of
from warpfrag.formats.number_formats import Rounding
from warpfrag.html import TextCard, table_lines
from warpfrag.isa.legality import form_of
from warpfrag.isa.qualifiers import Form, HasForm
from warpfrag.isa.targets import gpu_names
from warpfrag.tensorcore.arithmetic_plan import arithmetic_arch, plan
from warpfrag.tensorcore.array_types import Matrix, read_matrices
from warpfrag.tensorcore.resolved_instruction import resolve_chain

ARCHS = ("sm_90", "sm_80", "sm_100", "sm_120")
"""The architectures that are tried by default for an array."""
TAIL = 64
"""The unit of a second search, which omits the last K % TAIL terms, because one library omits them."""
NONE = FittingOrders((), 0)
CONTEXT = 3
"""The number of steps to list before the first difference."""
LISTED = 12
SHOWN = 3
"""The number of fitting orders to list if a result does not decide between several."""


@dataclass(frozen=True)
class ResultOrigin:
    """The simplest modelled order and architecture that reproduce a result bit for bit, or None if there are none."""

    name: str
    arch: str | None
    order: Order | None
    omitted_k: int
    depth: int
    arithmetic: str = ""
    fitting: FittingOrders = NONE
    """All orders that reproduce the result on `arch`; a prediction's order is known, so it has none."""
    other_archs: tuple[str, ...] = ()
    """The other tried architectures that reproduce the result."""
    hint: str = ""
    """The next things to try if nothing reproduces the result."""

    @property
    def is_certain(self) -> bool:
        """True if the order is known, or the result determines it."""
        return self.fitting.decides or not self.fitting.orders

    @property
    def text(self) -> str:
        """A description of the origin: the order, or the number of orders that fit and the first of them."""
        if self.order is None:
            nothing = "no order of additions on the architectures that were tried reproduces this result"
            return f"{self.name}: {nothing}{'; ' * bool(self.hint)}{self.hint}"
        depth, orders = self.depth - self.omitted_k, self.fitting.orders[:SHOWN]
        omitted = f", without the last {self.omitted_k} terms along K" if self.omitted_k else ""
        *gpus, last = (gpu_names([arch]) for arch in (str(self.arch), *self.other_archs))
        where = f"on {', '.join(gpus)}{' or ' * bool(gpus)}{last}{omitted}"
        if self.is_certain:
            return f"{self.name}: {self.order.describe(depth)}, {where}"
        listed = "; ".join(order.describe(depth) for order in orders)
        more = f"; and {len(self.fitting.orders) - len(orders)} more" * (len(self.fitting.orders) > len(orders))
        return f"{self.name}: {self.fitting.note(self.name)}; the simplest, {where}: {listed}{more}"


@dataclass(frozen=True)
class Explanation(TextCard):
    """Two results of one gemm: their origins, the number of differing codes, and the trace of one output."""

    first: ResultOrigin
    second: ResultOrigin
    outputs: int
    differing: int
    output: tuple[int, int] | None
    """The row and column of the first output that differs."""
    steps: tuple[tuple[ProductStep, ...], tuple[ProductStep, ...]]
    """Every step of that output in each of the results; empty if a result has no origin."""

    @property
    def parted(self) -> int | None:
        """The index of the first step whose sums differ, or None if nothing differs or there is no trace."""
        pairs = zip_longest(*self.steps)
        if not all(self.steps):
            return None
        return next((number for number, (mine, other) in enumerate(pairs) if mine != other), None)

    @property
    def text(self) -> str:
        """The explanation as text, without the trace."""
        lines = [self.first.text, self.second.text]
        if self.output is None:
            return "\n".join([*lines, f"all {self.outputs} codes are equal"])
        row, col = self.output
        lines.append(f"{self.differing} of {self.outputs} codes differ, the first at D[{row}, {col}]")
        if self.parted is not None:
            certain = self.first.is_certain and self.second.is_certain
            assumed = "" if certain else "with the first order listed for each, "
            lines.append(f"{assumed}the sums of this output diverge at step {self.parted + 1}{self._reason}")
        return "\n".join(lines)

    @property
    def _reason(self) -> str:
        """The reason why the sums of the two origins differ."""
        if self.first.arithmetic != self.second.arithmetic:
            first, second = (f"{gpu_names([str(one.arch)])} adds {one.arithmetic}" for one in (self.first, self.second))
            return f": {first}, and {second}"
        return ": the terms are added in another order" if self.first.order != self.second.order else ""

    @property
    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """The steps around the divergence, side by side: the number, then the step and its sum in each result."""
        if self.parted is None:
            return []
        pairs = list(zip_longest(*self.steps))
        start = max(0, self.parted - CONTEXT)
        numbers = [*range(start, min(len(pairs), start + LISTED))]
        if numbers[-1] < len(pairs) - 1:
            numbers.append(len(pairs) - 1)
        rows: list[tuple[str, str, str, str, str]] = []
        for number in numbers:
            if rows and number > int(rows[-1][0]):
                rows.append(("...", "", "", "", ""))
            cells = [("", "") if step is None else (step.text, f"{step.value:.9g}") for step in pairs[number]]
            rows.append((str(number + 1), *cells[0], *cells[1]))
        return rows

    def __str__(self) -> str:
        """Return the explanation and the steps around the divergence."""
        rows = self.rows
        if not rows:
            return self.text
        header = ("step", self.first.name, "sum", self.second.name, "sum")
        return "\n".join([self.text, "", *table_lines(header, rows, right=())])

    def __repr__(self) -> str:
        """Return the number of differing codes and both origins."""
        return (
            f"<Explanation: {self.differing} of {self.outputs} codes differ\n {self.first.text}\n {self.second.text}>"
        )

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON-compatible values."""

        def origin(result: ResultOrigin) -> dict[str, object]:
            order = None if result.order is None else asdict(result.order)
            facts = {"name": result.name, "arch": result.arch, "order": order, "omitted_k": result.omitted_k}
            others = [asdict(other) for other in result.fitting.orders[1:]]
            return {**facts, "other_orders": others, "other_archs": list(result.other_archs), "text": result.text}

        return {
            "first": origin(self.first),
            "second": origin(self.second),
            "outputs": self.outputs,
            "differing": self.differing,
            "output": None if self.output is None else list(self.output),
            "first_divergence": self.parted,
            "steps": [[step.to_dict() for step in steps] for steps in self.steps],
        }


def explain(
    D1: ArrayLike | Prediction,
    D2: ArrayLike | Prediction,
    A: ArrayLike,
    B: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    instruction: str | HasForm | None = None,
    arch: str | Sequence[str] = ARCHS,
    names: tuple[str, str] = ("D1", "D2"),
    progress: Progress | None = None,
) -> Explanation:
    """Explain why two results of A B differ: find the origin of each, and the step at which an output's sums diverge.

    A result is an array, observed or computed, or a prediction of `wf.predict`. A, B and the results may be some rows
    and columns of a gemm with the whole K. The default instruction is the one that libraries use for these operands;
    `arch` limits the architectures that are tried for an array. float32 operands are rounded to tf32 first. If several
    orders reproduce a result, the text says how many, and the simplest is traced.
    """
    a, b, _ = read_matrices(A, B)
    archs = (arch,) if isinstance(arch, str) else tuple(arch) if isinstance(arch, tuple | list) else ()
    if not archs or not all(isinstance(entry, str) for entry in archs):
        raise InvalidOperand(f"arch: expected one or more architectures, such as 'sm_90'; got {quote(arch)}")
    if not isinstance(names, tuple | list) or len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise InvalidOperand(f"names: expected two names, got {quote(names)}")
    if bias is not None and float32_of(bias, "bias").shape != b.shape[-1:]:
        raise InvalidOperand(
            f"bias: expected one number for each column of B, {b.shape}; got shape {float32_of(bias, 'bias').shape}"
        )
    if instruction is None:
        instruction = library_instruction(operand_type(a.dtype, b.dtype), "sm_90")
    work = _Work(a, b, bias, instruction, form_of(instruction), archs, progress)
    results = [work.codes(D, name) for D, name in zip((D1, D2), names, strict=True)]
    if results[0].format != results[1].format:
        raise InvalidOperand(
            f"{names[0]} is {results[0].format} and {names[1]} is {results[1].format}: expected the same format"
        )
    origins = [work.origin(D, seen, name) for D, seen, name in zip((D1, D2), results, names, strict=True)]
    unlike = results[0].codes[0] != results[1].codes[0]
    output = tuple(int(index) for index in np.argwhere(unlike)[0]) if unlike.any() else None
    steps: tuple[tuple[ProductStep, ...], ...] = ((), ())
    if output is not None:
        steps = tuple(work.steps(origin, output, results[0].format) for origin in origins)
    place = None if output is None else (output[0], output[1])
    return Explanation(origins[0], origins[1], unlike.size, int(unlike.sum()), place, (steps[0], steps[1]))


@dataclass(frozen=True)
class _Work:
    """The gemm whose results are compared."""

    a: Matrix
    b: Matrix
    bias: ArrayLike | None
    instruction: str | HasForm
    form: Form
    archs: tuple[str, ...]
    progress: Progress | None

    def prepare(self, arch: str, omitted_k: int) -> PreparedGemm:
        """Return the gemm on an architecture without the last `omitted_k` terms along K; float32 is rounded to tf32."""
        end = self.a.shape[-1] - omitted_k
        rounding: Rounding = "rne" if self.form.a == "tf32" else None
        return prepare_gemm(resolve_chain(self.instruction, arch), self.a[:, :end], self.b[:end], rounding=rounding)

    def codes(self, D: ArrayLike | Prediction, name: str) -> Observed:
        """Return D as codes in the instruction's result format; errors about its shape call it `name`."""
        seen = as_array(D.D if isinstance(D, Prediction) else D, name)
        is_plain = len(self.a.shape) == len(self.b.shape) == 2
        shape = (self.a.shape[0], self.b.shape[1]) if is_plain else None
        if seen.shape != shape:
            shapes = f"{name} has shape {seen.shape}, A {self.a.shape} and B {self.b.shape}"
            raise InvalidOperand(f"{shapes}: expected two matrices and their product")
        return Observed.read(seen, self.form.d, name)

    def origin(self, D: ArrayLike | Prediction, seen: Observed, name: str) -> ResultOrigin:
        """Return the origin of a result, searching for it if the result is an array."""
        depth = self.a.shape[-1]
        if isinstance(D, Prediction):
            return ResultOrigin(name, "H200", D.order, D.omitted_k, depth, self._arithmetic("H200"))
        tails = [0, *([depth % TAIL] if depth % TAIL and depth > TAIL else [])]
        for omitted_k in tails:
            for arch in self.archs:
                found = self._search(seen, arch, omitted_k)
                if found.orders:
                    others = (other for other in self.archs if other != arch)
                    alike = tuple(
                        other for other in others if self._search(seen, other, omitted_k, found.orders).orders
                    )
                    facts = omitted_k, depth, self._arithmetic(arch), found, alike
                    return ResultOrigin(name, arch, found.orders[0], *facts)
        return ResultOrigin(name, None, None, 0, depth, hint=rounded_hint(as_array(D, name), name))

    def _arithmetic(self, arch: str) -> str:
        """Return a description of the terms per step and the bits kept, or an empty string if sums are exact."""
        unit = plan(self.form, arithmetic_arch(self.form, arch)).unit
        return "" if unit is None else f"{unit.products} products per step with {unit.fraction_bits} fraction bits"

    def _search(self, seen: Observed, arch: str, omitted_k: int, known: Sequence[Order] = ()) -> FittingOrders:
        """Return the orders that reproduce a result on an architecture, or only the first of `known` that does."""
        try:
            taken = self.prepare(arch, omitted_k)
        except NotModelled:
            return NONE
        except WarpfragError:
            if len(self.archs) == 1:
                raise
            return NONE
        finish = self._finish()
        if known:
            return fitting_orders(taken.operands, seen, finish=finish, allowed=known.__contains__, most=1)
        return fitting_orders(taken.operands, seen, self.progress, finish=finish)

    def _finish(self) -> Finish | None:
        if self.bias is None:
            return None
        added = float32_of(self.bias, "bias")
        return lambda sums, _rows, columns: sums + added[columns]

    def steps(self, origin: ResultOrigin, output: tuple[int, ...], result: str) -> tuple[ProductStep, ...]:
        """Return every step of one output."""
        if origin.order is None or origin.arch is None:
            return ()
        epilogue = Epilogue(bias=self.bias, result=result) if self.form.d == "f32" else None
        taken = self.prepare(origin.arch, origin.omitted_k)
        return tuple(trace_output(taken, output[0], output[1], order=origin.order, epilogue=epilogue))
