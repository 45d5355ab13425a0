"""Measure errors: compute a gemm, and compare it with the exact result.

Operands are needed in two forms: as codes, which are multiplied on each architecture and in each order, and as the
float64 values that a tensor core reads, for the exact result. They must therefore be finite, and C must be exact in its
format. A large gemm is compared a few rows at a time, because exact numbers need much memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from warpfrag.blas.error_report import ErrorReport, Errors, ErrorStatistics, Growth, exact_result, magnitude
from warpfrag.blas.find_order import Progress
from warpfrag.blas.gemm_backend import Machine, check_backend, on_device
from warpfrag.blas.instruction_choice import choose_instruction, truncation_note
from warpfrag.blas.order import Order, check_order
from warpfrag.blas.prepared_gemm import PreparedGemm, prepare_gemm
from warpfrag.errors import InvalidOperand, NotModelled, quote
from warpfrag.formats.arrays import Doubles, as_array, as_doubles
from warpfrag.formats.codes import codes_of, from_codes, values_of
from warpfrag.formats.number_formats import FORMATS, Rounding
from warpfrag.isa.qualifiers import HasForm
from warpfrag.tensorcore.array_types import Scaled, read_matrices, to_host
from warpfrag.tensorcore.reference import TraceStep, trace
from warpfrag.tensorcore.resolved_instruction import resolve_chain
from warpfrag.tensorcore.rules import Popcount
from warpfrag.tensorcore.sparsity import compress, logical_columns

MAX_OUTPUTS = 1 << 17
"""The number of outputs to compare at a time; each needs an exact number of about a hundred bytes."""
MAX_GROWTH = 48
"""The maximum number of rows, and of columns, used to measure the growth with k; each point needs one gemm."""


def error_report(
    A: ArrayLike | Scaled,
    B: ArrayLike | Scaled,
    C: ArrayLike | None = None,
    *,
    instruction: str | HasForm | None = None,
    arch: str | Sequence[str] = "sm_90",
    order: Order | Sequence[Order] = Order(),  # noqa: B008 (it is frozen)
    rounding: Rounding = None,
    progress: Progress | None = None,
    backend: str | Machine = "cpu",
    against: tuple[ArrayLike, ArrayLike] | None = None,
) -> ErrorReport:
    """Measure the errors of D = A B + C against the exact result, for each architecture and order of additions.

    Without an instruction, each architecture uses the one that `wf.gemm` chooses for the dtypes; the report names it.
    Operands are converted as in `wf.gemm`, and must be finite; if they are rounded or `Scaled`, the exact result is
    computed from the rounded or scaled values. A large gemm is compared a few rows at a time; `progress(done, total,
    text)` is called before each of these steps. `backend` is as in `wf.gemm`.

    `against` is A and B before quantization: D is compared with their exact product, so the errors include quantization
    errors.
    """
    check_backend(backend)
    archs = [arch] if isinstance(arch, str) else _listed("arch", arch)
    orders = _listed("order", order) if isinstance(order, list | tuple) else [order]
    matrices = read_matrices(A, B)[:2]
    if instruction is None and (isinstance(A, Scaled) or isinstance(B, Scaled)):
        raise InvalidOperand("scaled operands do not determine an instruction: name one")
    dtypes = matrices[0].dtype, matrices[1].dtype
    chosen = {str(name): choose_instruction(*dtypes, name) if instruction is None else instruction for name in archs}
    taken = {
        name: prepare_gemm(resolve_chain(inst, name), *matrices, rounding=rounding, backend=backend)
        for name, inst in chosen.items()
    }
    first = next(iter(taken.values()))
    if len(first.shape) != 2 or 0 in first.shape:
        raise InvalidOperand(f"A and B: expected matrices with a non-empty product, got a D of shape {first.shape}")
    if isinstance(first.rule, Popcount):
        raise InvalidOperand(f"{first.resolved.name} counts bits, so it has no rounding errors")
    a, b = (_values(first, "a"), _values(first, "b")) if against is None else _unquantised(against, first)
    added = None if C is None else _added(C, first)
    tasks = [MeasuredTask(gemm, name, which) for (name, gemm), which in product(taken.items(), orders)]
    for task in tasks:
        task.taken.operands.chains(check_order(task.order))  # raises an error if the order is not valid for this gemm
    (height, depth), width = a.shape, b.shape[1]
    at_once = max(1, MAX_OUTPUTS // width)
    firsts = range(0, height, at_once)
    totals = [ErrorStatistics(first.rule.d) for _ in tasks]
    total = len(tasks) * (len(firsts) + 1)
    for number, start in enumerate(firsts):
        rows = slice(start, min(start + at_once, height))
        c = None if added is None else added[rows]
        exact = exact_result(a[rows], b, c)
        size = magnitude(a[rows], b, c)
        for place, (task, figures) in enumerate(zip(tasks, totals, strict=True)):
            if progress is not None:
                progress(number * len(tasks) + place, total, f"{task.arch}, rows {rows.start} to {rows.stop - 1}")
            outputs = task.run(rows, slice(None), depth, c)
            if not place:
                baseline = outputs.view(np.uint64)
            figures.differing += int((outputs.view(np.uint64) != baseline).sum())
            figures.take(outputs, exact, start, size)
    errors = []
    for place, (task, figures) in enumerate(zip(tasks, totals, strict=True)):
        if progress is not None:
            progress(total - len(tasks) + place, total, f"{task.arch}, growth with k")
        errors.append(_errors(task, figures, a, b, added))
    shape = (height, width, depth)
    names = dict.fromkeys(gemm.resolved.name for gemm in taken.values())
    values = [np.asarray(to_host(matrix.array, matrix.kind)) for matrix in matrices]
    notes = [truncation_note(values[0], values[1], name, rounding) for name in names]
    return ErrorReport(", ".join(names), shape, first.rule.d, tuple(errors), against is not None, max(notes))


@dataclass(frozen=True)
class MeasuredTask:
    """A gemm to measure: its operands, architecture, order and backend."""

    taken: PreparedGemm
    arch: str
    order: Order

    def run(self, rows: slice, columns: slice, depth: int, c: Doubles | None) -> Doubles:
        """Compute some rows and columns of the emulated gemm over the first `depth` terms."""
        rule = self.taken.rule
        start = None if c is None else codes_of(FORMATS[rule.c], c, raw=False, rounding=None, label="C")[None]
        with on_device():
            codes = self.taken.operands.only(rows, columns, depth).multiply(start, self.order)[0]
        return from_codes(FORMATS[rule.d], codes).astype(np.float64)

    def growth(self, a: Doubles, b: Doubles, c: Doubles | None) -> tuple[Growth, ...]:
        """Measure the errors over the first terms: 1, 2, 4, ... times the instruction's k, and the whole K."""
        depth, rule = a.shape[1], self.taken.rule
        some = slice(MAX_GROWTH)
        c = None if c is None else c[some, some]
        lengths = [rule.k << place for place in range(64) if rule.k << place < depth] + [depth]
        growth = []
        for length in lengths:
            figures = ErrorStatistics(rule.d)
            figures.take(self.run(some, some, length, c), exact_result(a[some, :length], b[:length, some], c))
            if figures.count:
                facts = figures.facts()
                growth.append(Growth(length, facts.largest_ulps, facts.rms_ulps, figures.normwise))
        return tuple(growth)

    def steps(self, row: int, col: int, added: Doubles | None) -> tuple[TraceStep, ...]:
        """Return the trace of one output, which is empty if its order is not a single chain."""
        if not self.order.carries_c or self.order.residue:
            return ()
        rule, operands = self.taken.rule, self.taken.operands
        depth = operands.depth
        padding = max(1, -(-depth // rule.k)) * rule.k - depth
        a = np.pad(operands.a[0, row], (0, padding))
        b = np.pad(operands.b[0, :, col], (0, padding))
        c = 0 if added is None else FORMATS[rule.c].encode(float(added[row, col]))
        columns = None
        if operands.pattern is not None:
            stored, fields = compress(operands.pattern, a[None])
            a, columns = stored[0], logical_columns(operands.pattern, fields)[0].tolist()
        scales = {}
        if operands.scale_a is not None and operands.scale_b is not None:
            scales = {"scale_a": operands.scale_a[0, row].tolist(), "scale_b": operands.scale_b[0, :, col].tolist()}
        return tuple(trace(rule, a.tolist(), b.tolist(), c, columns=columns, **scales))


def _errors(task: MeasuredTask, figures: ErrorStatistics, a: Doubles, b: Doubles, c: Doubles | None) -> Errors:
    if not figures.count:
        raise NotModelled(f"{task.taken.resolved.name} on {task.arch}: no output is finite")
    worst = figures.worst
    edges, counts = figures.histogram()
    return Errors(
        arch=task.arch,
        order=task.order,
        outputs=figures.count,
        nonfinite=figures.nonfinite,
        **asdict(figures.facts()),
        row=worst.row,
        col=worst.col,
        computed=worst.computed,
        exact=worst.exact,
        growth=task.growth(a, b, c),
        edges=edges,
        counts=counts,
        steps=task.steps(worst.row, worst.col, c),
        differing=figures.differing,
    )


def _unquantised(against: object, taken: PreparedGemm) -> tuple[Doubles, Doubles]:
    """Return A and B before quantization; raise InvalidOperand if a shape differs from that of the operand."""
    if not isinstance(against, tuple | list) or len(against) != 2:
        raise InvalidOperand(f"against: expected A and B before quantization, got {quote(against)}")
    values = []
    for label, matrix, codes in zip("AB", against, (taken.operands.a[0], taken.operands.b[0]), strict=True):
        array = as_array(matrix, f"against, {label}")
        if array.shape != codes.shape:
            raise InvalidOperand(f"against: {label} has shape {array.shape}, but the operand has shape {codes.shape}")
        values.append(_finite(as_doubles(array), label))
    return values[0], values[1]


def _listed(label: str, argument: object) -> list[Any]:
    if not isinstance(argument, list | tuple) or not argument:
        raise InvalidOperand(f"{label}: expected one value, or a list of at least one; got {quote(argument)}")
    return list(argument)


def _values(taken: PreparedGemm, role: str) -> Doubles:
    """Return an operand's values as float64, as the tensor core reads them."""
    values = values_of(FORMATS[getattr(taken.rule, role)], getattr(taken.operands, role)[0])
    scales = getattr(taken.operands, f"scale_{role}")
    if scales is not None:
        factors = values_of(FORMATS[taken.rule.scale_format], scales[0])
        axis, block = 1 if role == "a" else 0, taken.rule.k // taken.rule.scales
        values = values * np.repeat(factors, block, axis=axis).take(range(taken.operands.depth), axis=axis)
    return _finite(values, role.upper())


def _finite(values: Doubles, label: str) -> Doubles:
    if not np.isfinite(values).all():
        place = tuple(int(index) for index in np.argwhere(~np.isfinite(values))[0])
        raise InvalidOperand(f"{label}: expected finite values, got {values[place]} as element {place}")
    return values


def _added(C: ArrayLike, taken: PreparedGemm) -> Doubles:
    """Return C as float64; raise InvalidOperand if its shape, its dtype or a value is wrong."""
    values = as_array(C, "C")
    if values.shape != taken.shape or values.dtype.kind not in "biuf":
        raise InvalidOperand(
            f"C: expected {' x '.join(map(str, taken.shape))} numbers, got {values.dtype} of shape {values.shape}"
        )
    # raises an error for values that are not exact
    codes_of(FORMATS[taken.rule.c], values, raw=False, rounding=None, label="C")
    return _finite(as_doubles(values), "C")
