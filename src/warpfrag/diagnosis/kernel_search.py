"""Search for mistakes in a kernel that computes D = A B + C of any extents, tile by tile, in a loop over k.

The search covers fragment mistakes, applied to every fragment, and mistakes that only a kernel can have: wrong indices
into whole matrices, mistakes in the loop over k, and accumulators that are not reset. As for one instruction, a few
wrong outputs are first computed for all mistakes together; only the mistakes that reproduce them are computed
completely.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.blas.find_order import RESULTS, Observed, fitting_orders
from warpfrag.blas.gemm import gemm
from warpfrag.blas.order import Order
from warpfrag.blas.prepared_gemm import read_gemm
from warpfrag.diagnosis import arithmetic_mistakes as arithmetic
from warpfrag.diagnosis.agreement import agreement
from warpfrag.diagnosis.findings import Codes, Diagnosis, Misreading, Mistake, diagnosis, likelihood
from warpfrag.diagnosis.fixes import fix
from warpfrag.diagnosis.index_maps import stored_elsewhere, unwritten
from warpfrag.diagnosis.matrix_mistakes import gathered, misindexed
from warpfrag.diagnosis.mistakes import suspects
from warpfrag.diagnosis.observation import stored_precision
from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.arrays import Mask, as_array, as_doubles
from warpfrag.formats.codes import code_dtype, codes_of, from_codes, natural_dtype, to_codes
from warpfrag.formats.epilogue import convert
from warpfrag.formats.number_formats import FORMATS, Format, Rounding
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.rules import IntegerSum, Popcount

PROBES = 6  # the number of outputs that a mistake must reproduce before it is computed completely
MAX_WHOLE = 24  # the maximum number of mistakes that are computed completely, most likely first
MAX_CHAINED = 256  # the maximum number of tiles for which reused accumulators are considered


Suspects: TypeAlias = list[Mistake | Misreading]


class BlockTile(NamedTuple):
    """The rows and columns of D that a thread block computes, and the k of one iteration."""

    m: int
    n: int
    k: int


@dataclass(frozen=True, eq=False)
class Suspicion:
    """A suspected mistake in a kernel; `lines` applies it to rows of A, C or D, or to columns of B."""

    mistake: Mistake
    lines: Callable[[Codes, NDArray[np.intp]], Codes]


def read_tile(tile: object, instruction: Instruction) -> BlockTile:
    """Return `tile` as a BlockTile; its k is optional and defaults to that of the instruction."""
    extents = (*tile, instruction.shape.k)[:3] if isinstance(tile, tuple | list) and 2 <= len(tile) <= 3 else ()
    if not extents or not all(isinstance(extent, int) and extent > 0 for extent in extents):
        wanted = "the rows and columns of D that a block computes, such as (128, 64), optionally followed by k"
        raise InvalidOperand(f"tile: expected {wanted}; got {quote(tile)}")
    return BlockTile(*extents)


class KernelSearch:
    """The search for mistakes in the result of a kernel."""

    def __init__(
        self,
        instruction: Instruction,
        arch: str,
        tile: BlockTile,
        matrices: tuple[ArrayLike, ArrayLike, ArrayLike | None],
        observed: ArrayLike,
        rounding: Rounding,
    ) -> None:
        """Convert the matrices to codes, and compute the correct result."""
        self.instruction, self.arch, self.tile = instruction, arch, tile
        A, B, C = matrices
        taken = read_gemm(A, B, instruction=instruction, arch=arch, rounding=rounding)
        if taken.extents.batch or 0 in taken.shape:
            raise InvalidOperand(
                f"{instruction.name}: tile= takes one non-empty A and B, not a batch; D has the shape {taken.shape}"
            )
        self.rule = taken.rule
        self.a, self.b = taken.operands.a[0], taken.operands.b[0]
        form = FORMATS[self.rule.c]
        zero = np.zeros(taken.shape, code_dtype(form))
        self.c = zero if C is None else codes_of(form, as_array(C, "C"), raw=False, rounding=rounding, label="C")
        if self.c.shape != taken.shape:
            raise InvalidOperand(f"C: expected shape {taken.shape} (A's rows, B's columns), got {self.c.shape}")
        self.slack = 0.0  # half a unit of the last printed digit
        self.notes: tuple[str, ...] = ()
        self.result, self.seen = self._observed(as_array(observed, "observed"), taken.shape)
        self.allowed = 0.0  # the largest accepted difference from the observed D
        self.sums = self._product(self.a, self.b, self.c)
        self.right = self._written(self.sums)

    def _observed(self, observed: NDArray[Any], shape: tuple[int, ...]) -> tuple[str, Codes]:
        """Return the format and the codes of the observed result."""
        name = self.rule.d
        if observed.shape != shape:
            raise InvalidOperand(f"observed: expected shape {shape} (A's rows, B's columns), got {observed.shape}")
        formats = {natural_dtype(FORMATS[other]): other for other in RESULTS.get(name, (name,))}
        if observed.dtype in formats or not FORMATS[name].is_float:
            result = formats.get(observed.dtype, name)
            narrow = [other for other in formats.values() if result == name and _is_exact(FORMATS[other], observed)]
            if narrow[1:]:
                result = narrow[-1]
                self.notes = (f"all values of D are exact in {result}, so D is compared as {result}",)
            return result, codes_of(FORMATS[result], observed, raw=False, rounding=None, label="observed")
        printed = stored_precision(FORMATS[name], observed)
        if printed is not None:
            self.slack, observed = float(printed.error.max()), printed.values
            self.notes = (f"compared at the precision of D: {printed.digits}",)
        return name, codes_of(FORMATS[name], observed, raw=False, rounding="rne" if printed else None, label="observed")

    def _product(self, a: Codes, b: Codes, c: Codes | None, *, arch: str = "", order: Order | None = None) -> Codes:
        return gemm(a, b, c, instruction=self.instruction, arch=arch or self.arch, raw=True, order=order or Order())

    def _written(self, sums: Codes) -> Codes:
        """Convert sums to the format that the kernel stores."""
        return sums if self.result == self.rule.d else convert(self.rule.d, sums, self.result)

    def diagnosis(self) -> Diagnosis:
        """Search for the mistakes that explain all of D."""
        if self._is_seen(self.sums):
            return Diagnosis([], correct=True, tried={}, notes=self.notes)
        suspected = {
            role: sorted(self._suspects(role), key=lambda suspicion: likelihood(suspicion.mistake)) for role in "abcd"
        }
        tried = [suspicion.mistake for some in suspected.values() for suspicion in some]
        misread = [*self._of_loops()]
        explanations = self._explanations(suspected, misread)
        if all(suspect.rare for suspect in explanations):
            explanations += stored_elsewhere(self.instruction.d, self.seen, self.right)
        if not explanations:
            explanations += [*self._of_accumulators()][:1]
        if not explanations:
            near = self._rounding()
            explanations += (near and self._of_orders()) or near  # a different order changes only the rounding
        notes = self.notes
        if not explanations and FORMATS[self.result].is_float:
            magnitude = as_doubles(from_codes(FORMATS[self.result], self._magnitude()))
            self.allowed = float(
                self._bound().of(arithmetic.MAX_GROWTH * magnitude[np.isfinite(magnitude)].max(initial=0.0))
            )
            explanations = self._explanations(suspected, misread)
            notes += (arithmetic.ROUNDED,) if explanations else ()
        if not explanations:
            same, tile = self.seen == self.right, (self.tile.m, self.tile.n)
            seen, right = (as_doubles(from_codes(FORMATS[self.result], codes)) for codes in (self.seen, self.right))
            explanations += unwritten(self.instruction.d, same, seen, right, tile)
        partial_agreement = agreement(
            self.instruction.d,
            self.seen,
            self.right,
            c=self.c if self.rule.c == self.result and self.c.any() else None,
            block=(self.tile.m, self.tile.n),
        )
        everything: list[Mistake | Misreading] = [*tried, *(mistake for mistake, _ in misread)]
        fixes = partial(fix, self.instruction.operands)
        return diagnosis(explanations, everything, partial_agreement, fix=fixes, notes=notes)

    def _explanations(self, suspected: dict[str, list[Suspicion]], misread: list[tuple[Misreading, Codes]]) -> Suspects:
        """Return the mistakes that reproduce all of D."""
        found = [suspicion.mistake for role, some in suspected.items() for suspicion in self._explaining(role, some)]
        return [*found, *(mistake for mistake, codes in misread if self._is_seen(codes))]

    def _is_seen(self, sums: Codes) -> bool:
        return bool(self._match(self._written(sums), self.seen).all())

    def _match(self, codes: Codes, seen: Codes) -> Mask:
        """Return a mask of codes that are equal or, if rounding is allowed, close to the observed ones."""
        same: Mask = np.asarray(codes == seen)
        if not self.allowed + self.slack:
            return same
        form = FORMATS[self.result]
        values, wanted = (as_doubles(from_codes(form, each)) for each in (codes, seen))
        with np.errstate(invalid="ignore"):
            return np.asarray(
                same | (np.abs(values - wanted) <= self.allowed + self.slack + arithmetic.ulps_of(form, wanted))
            )

    # ---- mistakes with one matrix

    def _suspects(self, role: str) -> Iterator[Suspicion]:
        """Yield mistakes in every fragment of a matrix, and wrong indices into the whole matrix."""
        operand: Operand = getattr(self.instruction, role)
        codes: Codes = {"a": self.a, "b": self.b, "c": self.c, "d": self.sums}[role]
        if role == "c" and not codes.any():
            return
        shape: tuple[int, int] = codes.shape
        if operand.storage != "shared" and len(operand.shape) == 2 and self.instruction.pattern is None:
            for mistake in suspects(operand):
                if mistake.kind not in {"index", "stride", "offset"}:
                    yield Suspicion(mistake, partial(_in_fragments, operand=operand, change=mistake.change))
        within = {"a": (self.tile.m, self.tile.k), "b": (self.tile.k, self.tile.n)}.get(role, self.tile[:2])
        lengths = {*codes.shape, *self.a.shape, *self.b.shape, *self.tile}
        for extent in sorted(set(within)):
            for rule in misindexed(shape, role, lengths, extent):
                mistake = Mistake(rule.kind, role, rule.text, np.copy, rare=rule.rare)
                yield Suspicion(mistake, partial(_indexed, source=rule.source, columns=role == "b"))
        if shape[0] == shape[1]:
            mistake = Mistake("transposed", role, "the whole matrix transposed", np.copy)
            turned = partial(_transposed, shape=shape)
            yield Suspicion(mistake, partial(_indexed, source=turned, columns=role == "b"))
        if role == "d":
            grid = shape[0] // self.tile.m, shape[1] // self.tile.n
            if grid[0] == grid[1] > 1 and self.tile.m * grid[0] == shape[0] and self.tile.n * grid[1] == shape[1]:
                mistake = Mistake("index", "d", "row and column of the block swapped (blockIdx.x and .y)", np.copy)
                yield Suspicion(
                    mistake, partial(_indexed, source=partial(_blocks_swapped, shape=shape, tile=self.tile))
                )

    def _explaining(self, role: str, some: Sequence[Suspicion]) -> list[Suspicion]:
        """Return a matrix's mistakes that reproduce all of D, without repetitions within a category."""
        wrong = np.argwhere(self.seen != self.right)
        probes = wrong[np.linspace(0, len(wrong) - 1, min(PROBES, len(wrong))).astype(int)]
        kept = list(some)
        for row, col in probes:
            if kept:
                outputs = self._match(self._outputs(role, kept, int(row), int(col)), self.seen[row, col])
                kept = [suspicion for suspicion, code in zip(kept, outputs, strict=True) if code]
        explaining: dict[str, Suspicion] = {}
        for suspicion in kept[:MAX_WHOLE]:
            if self._is_seen(self._whole(role, suspicion)):
                explaining.setdefault(f"{suspicion.mistake.kind} {suspicion.mistake.text}", suspicion)
        return [*explaining.values()]

    def _outputs(self, role: str, some: Sequence[Suspicion], row: int, col: int) -> Codes:
        """Return the value of one output of D for each of several mistakes."""
        codes: Codes = {"a": self.a, "b": self.b, "c": self.c, "d": self.sums}[role]
        line = np.array([col if role == "b" else row])
        lines = np.concatenate([suspicion.lines(codes, line) for suspicion in some])
        if role == "d":
            return self._written(lines[:, col])
        c = np.broadcast_to(self.c[row, col], (len(some), 1))
        a, b = np.broadcast_to(self.a[row], (len(some), len(self.b))), self.b[:, [col]]
        if role == "a":
            sums = self._product(np.ascontiguousarray(lines), b, c)[:, 0]
        elif role == "b":
            sums = self._product(self.a[[row]], np.ascontiguousarray(lines.T), c.T)[0]
        else:
            sums = self._product(np.ascontiguousarray(a), b, lines[:, [col]])[:, 0]
        return self._written(sums)

    def _whole(self, role: str, suspicion: Suspicion) -> Codes:
        """Return the sums of a kernel that makes a mistake everywhere in a matrix."""
        codes: Codes = {"a": self.a, "b": self.b, "c": self.c, "d": self.sums}[role]
        changed = suspicion.lines(codes, np.arange(codes.shape[1 if role == "b" else 0]))
        if role == "d":
            return changed
        changed = np.ascontiguousarray(changed.T if role == "b" else changed)
        return self._product(*{"a": self.a, "b": self.b, "c": self.c, role: changed}.values())

    # ---- mistakes with k, accumulators and architectures

    def _of_loops(self) -> Iterator[tuple[Misreading, Codes]]:
        """Yield mistakes with tiles of k (missing, repeated, reordered) and with C, and wrong architectures."""
        depth, step = len(self.b), self.tile.k
        starts = [*range(0, depth, step)]
        tiles = [np.arange(start, min(start + step, depth)) for start in starts]
        loops: list[tuple[str, str, list[Any]]] = []
        if len(tiles) > 1:
            loops = [
                ("loop", "the last tile of k is missing: the loop ends too early", tiles[:-1]),
                ("loop", "the first tile of k is missing", tiles[1:]),
                ("loop", "only the last tile of k is used: the accumulators are zeroed in the loop", tiles[-1:]),
                ("loop", "the first tile of k is added twice", [tiles[0], *tiles]),
                ("loop", "the last tile of k is added twice: the loop ends too late", [*tiles, tiles[-1]]),
                ("loop", "only the first tile of k is used, in every iteration", [tiles[0]] * len(tiles)),
                ("loop", "every other tile of k is used", tiles[::2]),
            ]
        if len({len(tile) for tile in tiles}) == 1 and not isinstance(self.rule, IntegerSum | Popcount):
            loops += [
                ("order", f"k in another order: tiles of {step}, {text}", [tiles[place] for place in order])
                for text, order in arithmetic.k_orders(len(tiles))
            ]
        for kind, text, used in loops:
            k = np.concatenate(used)
            codes = self._product(np.ascontiguousarray(self.a[:, k]), np.ascontiguousarray(self.b[k]), self.c)
            yield Misreading(kind, "d", text), codes  # type: ignore[arg-type] # one of two literals
        if self.c.any():
            yield Misreading("c", "c", "missing"), self._product(self.a, self.b, None)
            yield (
                Misreading("c", "c", "added once more after the product"),
                arithmetic.added(self.instruction.d, self.sums, self.c),
            )
        for archs in arithmetic.other_arithmetic(self.instruction.form, self.arch):
            text = f"the arithmetic of {', '.join(archs)}"
            yield Misreading("arch", "d", text), self._product(self.a, self.b, self.c, arch=archs[0])

    def _of_accumulators(self) -> Iterator[Misreading]:
        """Yield the mistakes of accumulators that start with a constant, or with the sums of the previous tile."""
        for chained in (False, True):
            codes = self._carried(columns_first=chained)
            if codes is not None and self._is_seen(codes):
                order = "column by column" if chained else "row by row"
                yield Misreading("c", "c", f"not zeroed between tiles: each starts with the previous sums, {order}")
        yield from arithmetic.shift(FORMATS[self.result], self.seen, self.right, self._reach())

    def _reach(self) -> NDArray[np.float64]:
        """Return the largest possible rounding error of each element."""
        form = FORMATS[self.result]
        if not form.is_float:
            return np.zeros(self.seen.shape)
        return self._bound().of(as_doubles(from_codes(form, self._magnitude())))

    def _carried(self, *, columns_first: bool) -> Codes | None:
        """Return the sums of a kernel that never zeroes its accumulators; None if tiles differ in size."""
        (rows, cols), (m, n, _) = self.seen.shape, self.tile
        grid = rows // m, cols // n
        if rows % m or cols % n or not 1 < grid[0] * grid[1] <= MAX_CHAINED:
            return None
        if not np.array_equal(self.seen[:m, :n], self.right[:m, :n]):
            return None
        tiles = [(row, col) for row in range(grid[0]) for col in range(grid[1])]
        codes, before = np.empty_like(self.sums), self.c[:m, :n]
        for row, col in sorted(tiles, key=lambda place: place[::-1]) if columns_first else tiles:
            high, wide = slice(row * m, row * m + m), slice(col * n, col * n + n)
            before = self._product(self.a[high], np.ascontiguousarray(self.b[:, wide]), np.ascontiguousarray(before))
            codes[high, wide] = before
        return codes

    def _of_orders(self) -> list[Misreading]:
        """Return a misreading if an order of additions from libraries or split-K kernels explains D."""
        if isinstance(self.rule, IntegerSum | Popcount) or self.c.any() or self.instruction.form.block_scale:
            return []
        taken = read_gemm(self.a, self.b, instruction=self.instruction, arch=self.arch, raw=True)
        found = fitting_orders(taken.operands, Observed(self.seen[None], self.result), most=1)
        return [Misreading("order", "d", f"k in another order: {order}") for order in found.orders]

    def _bound(self) -> arithmetic.RoundingBound:
        bound = arithmetic.rounding_bound(self.instruction.form, self.arch, len(self.b), FORMATS[self.rule.d])
        return bound._replace(steps=bound.steps + 1)

    def _magnitude(self) -> Codes:
        """Return the codes of |A||B| + |C|, computed with the instruction itself."""
        formats = (FORMATS[self.rule.a], FORMATS[self.rule.b], FORMATS[self.rule.c])
        unsigned = [
            codes & codes.dtype.type(form.codes - 1 - form.sign_bit)
            for codes, form in zip((self.a, self.b, self.c), formats, strict=True)
        ]
        return self._written(self._product(*unsigned))

    def _rounding(self) -> list[Misreading]:
        """Return a misreading if D is right up to rounding."""
        if not FORMATS[self.rule.d].is_float:
            return []
        text = arithmetic.rounding(
            FORMATS[self.result], self.seen, self.right, self._magnitude(), self._bound(), self.slack
        )
        return [] if text is None else [Misreading("rounding", "d", text)]


def _is_exact(form: Format, values: NDArray[Any]) -> bool:
    """Return True if the format represents every value exactly."""
    with np.errstate(over="ignore"):
        codes = to_codes(form, values, rounding="rne")
    return np.array_equal(as_doubles(from_codes(form, codes)), as_doubles(values), equal_nan=True)


def _indexed(
    codes: Codes, which: NDArray[np.intp], *, source: Callable[..., NDArray[np.intp]], columns: bool = False
) -> Codes:
    """Return rows or columns of a matrix as read (for D, as stored) with wrong indices."""
    if columns:
        return gathered(codes, source(np.arange(codes.shape[0])[None], which[:, None]))
    return gathered(codes, source(which[:, None], np.arange(codes.shape[1])[None]))


def _transposed(row: NDArray[np.intp], col: NDArray[np.intp], *, shape: tuple[int, int]) -> NDArray[np.intp]:
    return col * shape[1] + row


def _blocks_swapped(
    row: NDArray[np.intp], col: NDArray[np.intp], *, shape: tuple[int, int], tile: BlockTile
) -> NDArray[np.intp]:
    """Return the element at the same position in the block with exchanged row and column."""
    there = col // tile.n * tile.m + row % tile.m
    return there * shape[1] + row // tile.m * tile.n + col % tile.n


def _in_fragments(
    codes: Codes, which: NDArray[np.intp], *, operand: Operand, change: Callable[[Codes], Codes]
) -> Codes:
    """Return rows or columns of a matrix with a mistake in every fragment."""
    high, wide = operand.shape
    across = operand.role == "b"
    size = wide if across else high
    blocks = np.unique(which // size)
    lines = (blocks[:, None] * size + np.arange(size)).reshape(-1)
    axis = 1 if across else 0
    some = np.take(codes, np.minimum(lines, codes.shape[axis] - 1), axis=axis)
    length = codes.shape[1 - axis]
    padding = -length % (high if across else wide)
    some = np.pad(some, ((0, padding), (0, 0)) if across else ((0, 0), (0, padding)))
    rows, cols = some.shape[0] // high, some.shape[1] // wide
    cut = some.reshape(rows, high, cols, wide).transpose(0, 2, 1, 3)
    changed = operand.unpack(change(operand.pack(np.ascontiguousarray(cut), raw=True)), raw=True)
    whole = changed.transpose(0, 2, 1, 3).reshape(some.shape)
    whole = whole.T[:, :length] if across else whole[:, :length]
    return whole[np.searchsorted(lines, which)]
