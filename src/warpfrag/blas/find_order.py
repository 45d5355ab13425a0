"""Find the order of additions that reproduces an observed D, by trying every order that kernels use.

The order affects only the last bits of an accumulator, and rounding to a narrow result hides most of them. The rows
that refuted earlier orders are therefore tried first: they contain outputs near a tie, which distinguish orders.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.blas.gemm_backend import Machine, check_backend
from warpfrag.blas.instruction_choice import choose_instruction
from warpfrag.blas.order import LINE, Chain, Order, additions_of, part_length
from warpfrag.blas.prepared_gemm import prepare_gemm
from warpfrag.blas.summation import Multiplicands, instructions, may_be_filled_up
from warpfrag.errors import AmbiguousOrder, InvalidOperand
from warpfrag.formats.arrays import as_array
from warpfrag.formats.codes import code_dtype, natural_dtype
from warpfrag.formats.epilogue import convert
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.qualifiers import HasForm
from warpfrag.tensorcore.array_types import read_matrices
from warpfrag.tensorcore.backend_protocol import Codes
from warpfrag.tensorcore.resolved_instruction import resolve_chain
from warpfrag.tensorcore.rules import Fused, IntegerSum, Popcount, Rule

RESULTS = {"f32": ("f32", "f16", "bf16"), "f16": ("f16",), "f64": ("f64",), "s32": ("s32",)}
"""The formats to which a kernel may round each accumulator."""
MAX_PARTS = 128
TILES = (16, 32, 64, 128, 256)
PROMOTIONS = (128, 64, 32, 256, 512, 1024)
MAX_SEGMENTS = 8
SUMS = (2, 4, 8, 16, 32, 64, 128, 256)
"""The possible numbers of partial float32 sums, which are added pairwise at the end."""
VECTOR = 128
"""The number of bits that a thread loads with one instruction."""
MAX_AHEAD = 32
"""The number of orders whose chains are summed together."""
MAX_AT_ONCE = 1 << 22
"""The number of codes of A and B to process at once; more would need memory without saving time."""
MIN_FILLED = 3 / 4
"""The smallest chain length, relative to the longest, at which padding saves time."""
MAX_ROWS, MAX_COLUMNS, MAX_NEW_COLUMNS = 4, 16, 6
"""The most rows and columns, and new columns per order, that are kept because their outputs refuted an order."""
MAX_FITTING = 8
"""The number of fitting orders after which the search for more ends."""


Indices: TypeAlias = "list[int] | slice"
"""Indices of rows or columns."""


class Progress(Protocol):
    """A callback for long searches and comparisons, called before each step."""

    def __call__(self, done: int, total: int, text: str) -> None:
        """Report that `done` of `total` steps are finished; `text` describes the next step."""


Begin: TypeAlias = "Callable[[Indices, Indices], Codes]"
"""Returns the initial values of a kernel's sums for these rows and columns, which broadcast to [T, rows, columns]."""
Finish: TypeAlias = "Callable[[Codes, Indices, Indices], Codes]"
"""Transforms the accumulators of these rows and columns before they are rounded to the result format."""


@dataclass(frozen=True)
class FittingOrders:
    """The orders that reproduce a result, simplest first, and the number of orders that were compared with it."""

    orders: tuple[Order, ...]
    tried: int
    is_any: bool = False
    """True if every order reproduces the result: sums of integers are exact, and an empty result has no codes."""

    @property
    def decides(self) -> bool:
        """True if exactly one order fits, so that the result shows which one was used."""
        return len(self.orders) == 1 and not self.is_any

    def note(self, name: str) -> str:
        """Return a sentence about the number of orders that fit the result called `name`, or "" if at most one fits."""
        if self.is_any:
            return f"every order of additions gives {name}, so {name} does not show which one was used"
        if len(self.orders) < 2:
            return ""
        at_least = "at least " * (len(self.orders) == MAX_FITTING)
        fit = f"{at_least}{len(self.orders)} orders fit (of {self.tried} that were compared)"
        return f"{fit}, so {name} does not decide between them; a float32 result, more outputs or a larger k may"


def find_order(
    A: ArrayLike,
    B: ArrayLike,
    observed: ArrayLike,
    *,
    instruction: str | HasForm | None = None,
    arch: str = "sm_90",
    progress: Progress | None = None,
    backend: str | Machine = "cpu",
) -> Order | None:
    """Return the simplest order of additions that reproduces every code of `observed`, or None.

    An `AmbiguousOrder` warning lists other orders that fit too: rounding to 16 bits, or a small k, hides the order.
    Only the arithmetic of `arch` is tried: for a result of another GPU, pass arch="A100", for example (`warpfrag
    find-order` tries every modelled GPU). A, B and `observed` may be some rows and columns of a gemm with the whole K.
    The default instruction is the one that libraries use for operands of these dtypes. float32 operands are first
    rounded to tf32, to nearest even, as cuBLAS does. `progress(done, total, text)` is called before each order is
    tried. `backend` is that of `wf.gemm`.
    """
    found = find_orders(A, B, observed, instruction=instruction, arch=arch, progress=progress, backend=backend)
    if found.orders and not found.decides:
        listed = f": {', '.join(map(repr, found.orders))}" if len(found.orders) > 1 else ""
        warnings.warn(f"{found.note('observed')}{listed}", AmbiguousOrder, stacklevel=2)
    return found.orders[0] if found.orders else None


def find_orders(
    A: ArrayLike,
    B: ArrayLike,
    observed: ArrayLike,
    *,
    instruction: str | HasForm | None,
    arch: str,
    progress: Progress | None,
    backend: str | Machine,
) -> FittingOrders:
    """Return the orders of additions that reproduce every code of `observed`; the arguments are `find_order`'s."""
    check_backend(backend)
    a, b, _ = read_matrices(A, B)
    if instruction is None:
        instruction = choose_instruction(a.dtype, b.dtype, arch)
    resolved = resolve_chain(instruction, arch)
    taken = prepare_gemm(resolved, a, b, rounding="rne" if resolved.rule.a == "tf32" else None, backend=backend)
    seen = as_array(observed, "observed")
    if seen.shape != taken.shape:
        expected, got = (" x ".join(map(str, shape)) or "a single number" for shape in (taken.shape, seen.shape))
        raise InvalidOperand(f"observed: expected shape {expected}, the rows of A and the columns of B; got {got}")
    return fitting_orders(taken.operands, Observed.read(seen, resolved.rule.d, "observed"), progress)


def is_float64_product(A: NDArray[Any], B: NDArray[Any], D: NDArray[Any]) -> bool:
    """Return True if D also equals the float64 product of A and B, rounded once."""
    return D.dtype.kind not in "iu" and bool(((A.astype("f8") @ B.astype("f8")).astype(D.dtype) == D).all())


def find_float32_sum(A: ArrayLike, B: ArrayLike, observed: ArrayLike) -> str:
    """Return a description of an order of float32 additions, without tensor cores, that reproduces D, or ""."""
    a, b, seen = (np.asarray(array) for array in (A, B, observed))
    if seen.dtype.kind != "f" or a.ndim != 2 or not seen.size:
        return ""
    a, b = a.astype(np.float64), b.astype(np.float64)  # products of two float32 are exact in float64
    return next((name for name, chains in _float32_chains(len(b)) if _is_float32_sum(a, b, seen, chains)), "")


def _float32_chains(depth: int) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Yield the name of each order, and the k indices that each step adds to the partial sums."""
    every = np.arange(depth)
    yield "k ascending", every[:, None]
    yield "k descending", every[::-1, None]
    for count in (count for count in SUMS if depth % count == 0):
        yield f"{count} parts of k, added pairwise", every.reshape(count, -1).T
        yield f"{count} interleaved sums, added pairwise", every.reshape(-1, count)


def _is_float32_sum(a: NDArray[Any], b: NDArray[Any], seen: NDArray[Any], chains: NDArray[np.intp]) -> bool:
    for row in range(0, len(a), MAX_ROWS):
        some = a[row : row + MAX_ROWS].T
        sums = np.zeros((chains.shape[1], some.shape[1], b.shape[1]), np.float32)
        for k in chains:
            sums = (sums + some[k][:, :, None] * b[k][:, None]).astype(np.float32)
        while len(sums) > 1:
            sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
        if not np.array_equal(sums[0].astype(seen.dtype), seen[row : row + MAX_ROWS]):
            return False
    return True


class Observed(NamedTuple):
    """The observed result of a kernel: codes [T, M, N] in a format."""

    codes: Codes
    format: str

    @classmethod
    def read(cls, seen: NDArray[Any], accumulator: str, name: str) -> Observed:
        """Return an array as codes; raise InvalidOperand if no kernel with this accumulator produces its dtype."""
        formats = {natural_dtype(FORMATS[result]): result for result in RESULTS[accumulator]}
        if seen.dtype not in formats:
            known = ", ".join(map(str, formats))
            named = "; if these are codes, name their format: --result bf16, or view(ml_dtypes.bfloat16) in Python"
            hint = named if seen.dtype.kind in "uiV" and accumulator == "f32" else ""
            expected = f"expected one of {known}, since D is {accumulator}"
            raise InvalidOperand(f"{name}: {expected}; got dtype {seen.dtype}{hint}")
        result = formats[seen.dtype]
        codes = np.ascontiguousarray(seen).view(code_dtype(FORMATS[result]))
        return cls(codes.reshape(-1, *seen.shape[-2:]), result)


def rounded_hint(seen: NDArray[Any], name: str) -> str:
    """Return a hint to pass a float32 result as f16 or bf16 if all its values are exact in that format, or ""."""
    narrow = RESULTS["f32"][1:] if seen.dtype == np.float32 and seen.size else ()
    with np.errstate(all="ignore"):
        exact = [
            form for form in narrow if np.array_equal(seen.astype(natural_dtype(FORMATS[form])), seen, equal_nan=True)
        ]
    formats = " or ".join(exact)
    said = f"all values of {name} are exact in {formats}: if the kernel rounded them, pass {name} with this dtype"
    return f"{said} (--result {exact[-1]})" if exact else ""


def fitting_orders(
    operands: Multiplicands,
    observed: Observed,
    progress: Progress | None = None,
    *,
    begin: Begin | None = None,
    finish: Finish | None = None,
    allowed: Callable[[Order], bool] | None = None,
    most: int = MAX_FITTING,
) -> FittingOrders:
    """Return up to `most` candidate orders with different additions that reproduce the observed codes.

    `finish(sums, rows, columns)` transforms the accumulators of these outputs before the kernel rounds them, and
    `begin(rows, columns)` returns the values that are added to the first part. `allowed` selects the orders to try.
    """
    rule = operands.rule
    is_any = isinstance(rule, Popcount) or (isinstance(rule, IntegerSum) and not rule.clamps) or not observed.codes.size
    tried = [Order()] if is_any else list(candidates(operands.depth, rule))
    tried = tried if allowed is None else [order for order in tried if allowed(order)]
    whole = Sample(operands, observed, begin, finish)
    hard: Sample | None = None
    rows: list[int] = []
    columns: list[int] = []
    fitting: dict[object, Order] = {}
    compared = repeated = 0
    for done, order in enumerate(tried):
        if len(fitting) == most or (fitting and compared > 2 * most):
            tried = tried[:done]
            break
        if progress is not None:
            progress(done, len(tried), order.describe(operands.depth))
        if hard is not None:
            if order not in hard.learnt:
                hard.learn(tried[done : done + min(done + 4, MAX_AHEAD)])
            if hard.wrong(order).any():
                continue
        additions = _additions(order, operands.depth, rule)
        if additions in fitting:
            repeated += 1
            continue
        wrong = whole.wrong(order)
        compared += bool(fitting)
        if not wrong.any():
            fitting[additions] = order
            if hard is None:  # most other orders fail for a few outputs
                rows, columns = _spread(wrong.shape[1], MAX_ROWS), _spread(wrong.shape[2], MAX_COLUMNS)
                hard = whole.only(rows, columns)
            continue
        row = int(wrong.sum(axis=(0, 2)).argmax())
        refuting = np.argsort(~wrong[:, row].any(axis=0), kind="stable")[:MAX_NEW_COLUMNS].tolist()
        rows = list(dict.fromkeys([row, *rows]))[:MAX_ROWS]
        columns = list(dict.fromkeys([*refuting, *columns]))[:MAX_COLUMNS]
        hard = whole.only(rows, columns)
    return FittingOrders(tuple(fitting.values()), len(tried) - repeated, is_any)


def _spread(extent: int, count: int) -> list[int]:
    """Return up to `count` indices, evenly spaced."""
    return sorted({place * extent // count for place in range(count)}) if extent else []


def _additions(order: Order, depth: int, rule: Rule) -> object:
    """Return a key that is equal for orders with the same additions; one instruction may add in several steps."""
    step = order.step or rule.k
    if isinstance(rule, Fused) and rule.steps[0] == tuple(range(len(rule.steps[0]))) and not rule.is_sparse:
        step = min(step, len(rule.steps[0]))
    return additions_of(replace(order, step=step), depth, rule.k, FORMATS[rule.a].bits)


def candidates(depth: int, rule: Rule) -> Iterator[Order]:
    """Yield every distinct order for a K of this depth, starting with the simplest."""
    k, bits = rule.k, FORMATS[rule.a].bits
    line = max(k, LINE // bits)
    units = [unit for unit in (line, line // 2, 2 * line, line // 4, 4 * line) if unit % k == 0]
    promotions = [length for length in PROMOTIONS if length % k == 0]
    parts = list(product(range(2, MAX_PARTS + 1), units))
    split = [Order(split_k, unit) for split_k, unit in parts]
    promoted = [Order(promote=length) for length in promotions]
    is_dense = not (rule.is_sparse or rule.scales)
    orders = chain(
        [Order()],
        (Order(residue=tile) for tile in TILES if is_dense and tile % k == 0),
        [*promoted, *split] if bits == 8 else [*split, *promoted],  # only fp8 kernels promote
        _cutlass(parts, rule) if is_dense else [],
        (Order(unit=unit, segment_k=count) for unit in units[:2] for count in range(2, MAX_SEGMENTS + 1)),
        (Order(split_k, unit, promote=length) for length in promotions for split_k, unit in parts),
        _cutlass(parts, rule, step=8) if is_dense and bits == 16 and k == 16 else [],
    )
    known = set()
    for order in orders:
        key = _equivalence_key(order, depth, line)
        if key is not None and key not in known:
            known.add(key)
            yield order


def _equivalence_key(order: Order, depth: int, line: int) -> tuple[int | None, ...] | None:
    """Return a key that is equal for equivalent orders, or None if K has fewer parts than the order."""
    length = depth
    if order.segment_k is not None and order.unit is not None:
        return None if -(-depth // order.unit) < order.segment_k else (-order.segment_k, order.unit)
    if order.split_k > 1:
        length = part_length(depth, order.unit or line, order.split_k)
        if -(-depth // length) != order.split_k:
            return None
    promote = order.promote
    if promote is not None and order.split_k == 1 and order.residue is None:
        length, promote = min(promote, depth), None  # equivalent to parts that consist of one chain each
    last = depth - (-(-depth // max(length, 1)) - 1) * length
    rests = (length % order.residue, last % order.residue) if order.residue else (0, 0)
    tile = order.residue if promote and any(rests) else None
    return length, *rests, tile, promote if promote and promote < length else None, order.step


def _cutlass(parts: list[tuple[int, int]], rule: Rule, step: int | None = None) -> Iterator[Order]:
    """Yield CUTLASS 2 orders: parts are whole 16-byte vectors or whole tiles, and each begins with its residue."""
    vector = max(1, VECTOR // FORMATS[rule.a].bits)
    tiles = [tile for tile in TILES if tile % (step or rule.k) == 0]
    if step:
        yield Order(step=step)
        yield from (Order(residue=tile, step=step) for tile in tiles)
    for tile in tiles:
        yield from (Order(split_k, vector, residue=tile, step=step) for split_k in range(2, MAX_PARTS // 2 + 1))
    for tile in tiles:
        yield from (Order(split_k, unit, residue=tile, step=step) for split_k, unit in parts)


class Sample:
    """All outputs of a gemm, or a sample of them; a sample caches the sums of chains, which orders share."""

    def __init__(self, operands: Multiplicands, observed: Observed, begin: Begin | None, finish: Finish | None) -> None:
        """Create the sample of all outputs."""
        self.operands, self.observed, self.begin, self.finish = operands, observed, begin, finish
        self.rows: Indices = slice(None)
        self.columns: Indices = slice(None)
        self.sums: dict[Chain, Codes] | None = None
        self.learnt: set[Order] = set()

    def only(self, rows: list[int], columns: list[int]) -> Sample:
        """Return the sample restricted to these rows and columns."""
        observed = Observed(self.observed.codes[:, rows][:, :, columns], self.observed.format)
        some = Sample(self.operands.only(rows, columns), observed, self.begin, self.finish)
        some.rows, some.columns, some.sums = rows, columns, {}
        return some

    def wrong(self, order: Order) -> NDArray[np.bool_]:
        """Return a mask of the outputs that an order does not reproduce."""
        parts, accumulator = self.operands.chains(order), self.operands.sums
        sums = self._sums_of([spans for part in parts for spans in part])
        start = None if self.begin is None else self.begin(self.rows, self.columns)
        added = (accumulator.add_all(sums[spans] for spans in part) for part in parts)
        total = accumulator.add_parts(order, added, start)
        if self.finish is not None:
            total = self.finish(total, self.rows, self.columns)
        codes, result = self.observed
        return np.asarray(convert(accumulator.format, accumulator.write(total), result) != codes)

    def learn(self, orders: list[Order]) -> None:
        """Cache the chain sums of several orders, because computing them together is much cheaper."""
        self._sums_of([spans for order in orders for part in self.operands.chains(order) for spans in part])
        self.learnt.update(orders)

    def _sums_of(self, chains: list[Chain]) -> dict[Chain, Codes]:
        """Return the sum of each chain; chains of similar length are computed together."""
        sums = {} if self.sums is None else self.sums
        for some in self._together({spans for spans in chains if spans not in sums}):
            codes = self.operands.sum_chains(some)
            sums |= {spans: self.operands.sums.read(codes[place]) for place, spans in enumerate(some)}
        return sums

    def _together(self, chains: set[Chain]) -> Iterator[list[Chain]]:
        """Yield groups of chains to sum together, the longest chains first."""
        k = self.operands.rule.k
        each = k * self.operands.a.shape[0] * (self.operands.a.shape[1] + self.operands.b.shape[2])
        min_filled = MIN_FILLED if may_be_filled_up(self.operands.rule) else 1
        some: list[Chain] = []
        longest = max_chains = 0
        for length, spans in sorted(((instructions(spans, k), spans) for spans in chains), reverse=True):
            if some and (length < min_filled * longest or len(some) >= max_chains):
                yield some
                some = []
            if not some:
                longest, max_chains = length, max(1, MAX_AT_ONCE // (length * each))
            some.append(spans)
        if some:
            yield some
