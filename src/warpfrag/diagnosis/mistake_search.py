"""The search for mistakes that explain a D: single ones, and if none does, pairs.

The search uses the first product that is wrong. A few of its outputs, the probes, are computed for all variants at
once, as rows and columns of one product. Variants that give the probes are then computed completely, in all products.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from warpfrag.diagnosis.arithmetic_mistakes import (
    RoundingBound,
    leftovers,
    misreadings,
    rounding,
    rounding_bound,
    shift,
)
from warpfrag.diagnosis.findings import (
    Candidate,
    Codes,
    Diagnosis,
    Misreading,
    Mistake,
    Suspect,
    Words,
    agreement,
    diagnosis,
    rank,
)
from warpfrag.diagnosis.mistakes import distinct
from warpfrag.diagnosis.outcome import NOTHING, SIDES, ProductSide, SuspectProduct, Variants
from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.arrays import as_doubles
from warpfrag.formats.codes import from_codes
from warpfrag.tensorcore.arithmetic_plan import plan
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.rules import Rule

PROBES = 12  # outputs that a mistake must give before it is computed whole; each is asked only of what gave the last
MIN_READABLE_SHARE = 8  # at least 1 of 8 lines of D must be known
MAX_WORDS = 1 << 18  # of D's registers that are compared at once
MAX_BYTES = 1 << 25  # of registers with two mistakes
MAX_PAIRS = 60  # the likeliest pairs, which are computed completely
ROWS = ("a", "columns", "scale_a", "c")
COLS = ("b", "scale_b")


class Search:
    """The search in the first product that is wrong."""

    def __init__(self, case: SuspectProduct, words: dict[str, Words], observed: Codes) -> None:
        """Broadcast the inputs over the products."""
        self.case = case
        self.operand = case.instruction.d
        name, shape = case.instruction.name, self.operand.shape
        lead = {role: array.shape[: -case.axes(role)] for role, array in words.items()}
        lead["d"] = observed.shape[: -len(shape)]
        try:
            batch = np.broadcast_shapes(*lead.values())
        except ValueError:
            axes = ", ".join(f"{role} {axes}" for role, axes in lead.items())
            raise InvalidOperand(f"{name}: leading axes do not broadcast: {axes}") from None
        tiles = math.prod(batch)
        if not tiles:
            raise InvalidOperand(f"{name}: expected at least one product, got leading axes {quote(batch)}")
        self.observed = np.broadcast_to(observed, (*batch, *shape)).reshape(tiles, *shape)
        whole = {role: (array, array.shape[len(lead[role]) :]) for role, array in words.items()}
        spread = {
            role: np.broadcast_to(array, (*batch, *own)).reshape(tiles, *own) for role, (array, own) in whole.items()
        }
        self.tiles = [{role: array[tile] for role, array in spread.items()} for tile in range(tiles)]
        self.pairs = 0

    def diagnosis(self) -> Diagnosis:
        """Search for single mistakes and, if none explains D, for pairs."""
        right = [self.case.right(words) for words in self.tiles]
        wrong = [tile for tile, codes in enumerate(right) if not np.array_equal(codes, self.observed[tile])]
        if not wrong:
            return Diagnosis([], correct=True, tried={}, pairs=0)
        self.words, self.right, self.target = self.tiles[wrong[0]], right[wrong[0]], self.observed[wrong[0]]
        differ = np.flatnonzero(self.right != self.target)
        spread = np.linspace(0, len(differ) - 1, min(PROBES, len(differ))).astype(int)
        self.probes = [int(place) for place in differ[spread]]
        self.base = {name: codes for name, codes in self.case.inputs(self.words)._asdict().items() if codes is not None}
        suspected = {role: self.case.suspects(role) for role in (*self.words, "d")}
        misread = [*misreadings(self.case.form, self.case.arch, scale_d=self.case.scale_d)]
        everything: list[Suspect] = [*(suspect for some in suspected.values() for suspect in some), *misread]
        explanations = self._named_once(self._explaining(self._singles(suspected, misread)))
        if not explanations:
            explanations = [(suspect,) for role in ("a", "b") for suspect in self._beyond(role, suspected[role])]
        if not explanations and self.case.scale_d:
            explanations = self._explaining((suspect,) for suspect in self._leftovers())[:1] or self._shifted(right)
        if not explanations:
            explanations = [(suspect,) for suspect in self._rounding(self.observed, right)]
        if not explanations:
            common = {role: self._common(role, some) for role, some in suspected.items()}
            pairs = self._pairs(common, [suspect for suspect in misread if not suspect.rare])
            explanations = self._explaining(sorted(pairs, key=rank)[:MAX_PAIRS])
        partial = agreement(self.operand, self.target, self.right, c=self._c())
        return diagnosis(explanations, everything, self.pairs, partial)

    def _c(self) -> Codes | None:
        """Return C's codes if they can be compared with D's and are not all zero."""
        c = self.base["c"].reshape(self.right.shape)
        return c if self.case.form.c == self.case.form.d and c.any() else None

    def _bound(self) -> RoundingBound:
        return rounding_bound(self.case.form, self.case.arch, self.case.form.shape.k, self.operand.format)

    def _reach(self, words: Mapping[str, Words]) -> NDArray[np.float64]:
        """Return the largest rounding error of one product."""
        form = self.operand.format
        if not form.is_float:
            return np.zeros(self.right.shape)
        return self._bound().of(as_doubles(from_codes(form, self._magnitude(words))))

    def _shifted(self, right: list[Codes]) -> list[Candidate]:
        """Return the number by which every product is larger than expected, up to rounding."""
        reach = np.stack([self._reach(words) for words in self.tiles])
        shifted = shift(self.operand.format, self.observed, np.stack(right), reach)
        return [] if shifted is None else [(shifted,)]

    def _leftovers(self) -> Iterator[Mistake]:
        """Yield the numbers that accumulators may have held and that give the probes."""
        reach = self._reach(self.words)
        starts = [*leftovers(self.case.instruction.c, self.operand.format, self.target, self.right, reach)]
        for probe in self.probes if len(starts) > 1 else ():
            side = ProductSide(self.case, self.words, {"c": starts}, {"c": self.base["c"]})
            rule = plan(self.case.form, self.case.arch).rule
            outputs = self._outputs(rule, (side.once(), np.arange(len(starts))), (NOTHING, np.arange(1)), probe)[:, 0]
            target = self.target.reshape(-1)[probe]
            starts = [start for start, code in zip(starts, outputs, strict=True) if code == target]
            if not starts:
                break
        yield from starts

    def _rounding(self, observed: Codes, right: list[Codes]) -> Iterator[Misreading]:
        """Yield a misreading if every product is right up to rounding."""
        if self.operand.format.is_float:
            magnitudes = np.stack([self._magnitude(words) for words in self.tiles])
            text = rounding(self.operand.format, observed, np.stack(right), magnitudes, self._bound())
            if text is not None:
                yield Misreading("rounding", "d", text)

    def _magnitude(self, words: Mapping[str, Words]) -> Codes:
        """Return the codes of |A||B| + |C|, computed by the instruction itself."""
        rule = plan(self.case.form, self.case.arch).rule
        inputs = self.case.inputs(words)
        roles = self.case.instruction.operands
        signs = {role: getattr(inputs, role).dtype.type(roles[role].format.sign_bit) for role in "abc"}
        unsigned = {role: getattr(inputs, role) & ~sign for role, sign in signs.items()}
        return self.case.run(rule, inputs._replace(**unsigned)).reshape(self.operand.shape)

    def _named_once(self, explanations: list[Candidate]) -> list[Candidate]:
        """Remove single mistakes that repeat another of their category under another name."""
        operands = self.case.instruction.operands
        held = {role: operand for role, operand in operands.items() if role not in self.case.tiles}
        alike = {id(mistake) for (mistake,) in explanations if isinstance(mistake, Mistake) and mistake.operand in held}
        for role, operand in held.items():
            mine = [
                mistake
                for (mistake,) in sorted(explanations, key=rank)
                if isinstance(mistake, Mistake) and mistake.operand == role
            ]
            alike -= {*map(id, distinct(operand, mine))} if mine else set()
        return [(mistake,) for (mistake,) in explanations if id(mistake) not in alike]

    def _common(self, role: str, some: list[Mistake]) -> list[Mistake]:
        """Return the mistakes that are paired: for a large operand, the likeliest that fit into memory."""
        held = self.words[role] if role in self.words else self.operand.pack(self.right, raw=True)
        limit = math.isqrt(MAX_BYTES // held.nbytes)
        return [mistake for mistake in some if not mistake.rare][:limit]

    def _explaining(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return the candidates that give the observed D in every product."""
        explanations = []
        for candidate in candidates:
            outcomes = (self.case.outcome(words, candidate) for words in self.tiles)
            pairs = zip(outcomes, self.observed, strict=True)
            if all(codes is not None and np.array_equal(codes, seen) for codes, seen in pairs):
                explanations.append(candidate)
        return explanations

    def _beyond(self, role: str, some: list[Mistake]) -> Iterator[Mistake]:
        """Yield descriptors, strides and offsets that reach beyond the memory and explain the lines within it."""
        axis = "ba".index(role)  # that of k: an element beyond the memory spoils a column of D, or for A a row
        lines = self.right.shape[1 - axis]
        kinds = {"descriptor", "transposed"} if role in self.case.tiles else {"stride", "offset"}
        all_set = np.full_like(self.words[role], np.iinfo(self.words[role].dtype).max)
        for mistake in some:
            if mistake.kind not in kinds or self.right.ndim > 2:
                continue
            # every bit that is known is 1 here, and what is not known is 0
            read = self.case.read(role, mistake.change(all_set))[1][0]
            known = (read == read.max()).all(axis=axis)
            count = int(known.sum())
            if not lines // MIN_READABLE_SHARE <= count < lines:
                continue
            part = np.s_[known] if role == "a" else np.s_[:, known]
            outcomes = [self.case.outcome(words, (mistake,)) for words in self.tiles]
            pairs = [*zip(outcomes, self.observed, strict=True)]
            agree = all(codes is not None and np.array_equal(codes[part], seen[part]) for codes, seen in pairs)
            if agree and not np.array_equal(self.right[part], self.target[part]):
                name = "rows" if role == "a" else "columns"
                yield replace(
                    mistake, text=f"{mistake.text}; {count} of {lines} {name} tell, the others lie beyond the memory"
                )

    def _sides(self, suspected: Mapping[str, list[Mistake]]) -> list[ProductSide]:
        names = [[("columns" if role == "metadata" else role) for role in roles] for roles in SIDES]
        return [
            ProductSide(
                self.case,
                self.words,
                {role: suspected[role] for role in roles if role in suspected},
                {name: self.base[name] for name in read if name in self.base},
            )
            for roles, read in zip(SIDES, names, strict=True)
        ]

    def _singles(self, suspected: Mapping[str, list[Mistake]], misread: list[Misreading]) -> Iterator[Candidate]:
        """Yield single mistakes that give the probes."""
        a, b, c = self._sides(suspected)
        for side in (a, b, c):
            for some in side.in_pieces():
                yield from self._probed(NOTHING, some) if side is b else self._probed(some, NOTHING)
        yield from self._last([((), self.right)], suspected["d"])
        yield from ((misreading,) for misreading in misread)

    def _pairs(self, suspected: Mapping[str, list[Mistake]], misread: list[Misreading]) -> Iterator[Candidate]:
        """Yield pairs of mistakes that give the probes."""
        sides = self._sides(suspected)
        a, b, c = (side.once() for side in sides)
        aa, bb, cc = (side.twice() for side in sides)
        for down, across in ((aa, NOTHING), (NOTHING, bb), (cc, NOTHING), (a, b), (a, c), (c, b)):
            self.pairs += len(down) * len(across)
            yield from self._probed(down, across)
        for down, across in ((a, NOTHING), (NOTHING, b), (c, NOTHING)):
            for last in suspected["d"]:
                self.pairs += len(down) * len(across)
                yield from self._probed(down, across, last=last)
            for misreading in misread:
                if not misreading.again:
                    self.pairs += len(down) * len(across)
                    yield from self._probed(down, across, misread=misreading)
        yield from self._of_results(suspected["d"], misread)

    def _of_results(self, last: list[Mistake], misread: list[Misreading]) -> Iterator[Candidate]:
        """Yield pairs that need no probes: two mistakes with D, one after a misreading, or two misreadings."""
        words = self.operand.pack(self.right, raw=True)
        firsts: list[tuple[Candidate, Codes | None]] = [
            ((mistake,), self.operand.unpack(mistake.change(words), raw=True)) for mistake in last
        ]
        firsts += [((mistake,), self.case.outcome(self.words, (mistake,))) for mistake in misread]
        known = [(made, codes) for made, codes in firsts if codes is not None]
        self.pairs += len(known) * len(last)
        yield from self._last(known, last)
        for mistake, other in combinations(misread, 2):
            if not set(mistake.words) & set(other.words) and not (mistake.arch and other.arch):
                self.pairs += 1
                yield mistake, other

    def _last(self, results: list[tuple[Candidate, Codes]], last: list[Mistake]) -> Iterator[Candidate]:
        """Yield mistakes with D that turn one of several results into the observed one."""
        words = self.operand.pack(np.stack([codes for _, codes in results]), raw=True)
        at_once = max(1, MAX_WORDS // words.size)
        for start in range(0, len(last), at_once):
            some = last[start : start + at_once]
            seen = self.operand.unpack(np.stack([mistake.change(words) for mistake in some]), raw=True)
            equal = (seen == self.target).reshape(len(some), len(results), -1).all(axis=2)
            yield from ((*results[first][0], some[second]) for second, first in np.argwhere(equal))

    # ---- probes: one output of all variants at once

    def _probed(
        self, down: Variants, across: Variants, *, last: Mistake | None = None, misread: Misreading | None = None
    ) -> Iterator[Candidate]:
        """Yield pairs of a variant of each side that give all probes.

        D may be changed afterwards (`last`), or something else run (`misread`).
        """
        rule = self.case.rule([misread] if misread else [])
        if rule is None:
            return
        kept = np.ones((len(down), len(across)), bool)
        origin, target = self._before(last)
        for probe in self.probes:
            rows, cols = np.flatnonzero(kept.any(axis=1)), np.flatnonzero(kept.any(axis=0))
            if not rows.size:
                return
            outputs = self._outputs(rule, (down, rows), (across, cols), int(origin[probe]))
            kept[np.ix_(rows, cols)] &= outputs == target[probe]
        for row, col in np.argwhere(kept):
            made = (*down.made[row], *across.made[col])
            yield (*((misread,) if misread else ()), *made, *((last,) if last else ()))

    def _before(self, last: Mistake | None) -> tuple[NDArray[np.int64], Codes]:
        """Return the source of each element of D under a mistake with D, and its code before the mistake."""
        shape, target = self.operand.shape, self.target.reshape(-1)
        places = np.arange(math.prod(shape))
        if last is None:
            return places, target
        moved = self.operand.unpack(last.change(self.operand.pack(places.reshape(shape), raw=True)), raw=True)
        if np.array_equal(np.sort(moved, axis=None), places):
            return moved.astype(np.int64).reshape(-1), target
        # it moves parts of elements: made once more, it undoes itself
        undone = self.operand.unpack(last.change(self.operand.pack(self.target, raw=True)), raw=True)
        return places, undone.reshape(-1)

    def _outputs(
        self,
        rule: Rule,
        down: tuple[Variants, NDArray[np.intp]],
        across: tuple[Variants, NDArray[np.intp]],
        place: int,
    ) -> Codes:
        """Return one output of D for all variants: A's are the rows of one product, B's its columns."""
        number, row, col = (int(i) for i in np.unravel_index(place, (len(self.base["c"]), *self.right.shape[-2:])))
        (rows, high), (cols, wide) = ((side.codes, which) for side, which in (down, across))
        lines = {}
        for name, right in self.base.items():
            if name == "c":
                c = right[number, row, col]
                c = rows["c"][high, number, row, col][:, None] if "c" in rows else c
                c = cols["c"][wide, number, row, col][None] if "c" in cols else c
                lines["c"] = np.broadcast_to(c, (len(high), len(wide)))
            elif name in COLS:
                line = cols[name][wide, number, :, col] if name in cols else right[None, number, :, col]
                lines[name] = np.broadcast_to(line, (len(wide), line.shape[-1])).T
            else:
                line = rows[name][high, number, row] if name in rows else right[None, number, row]
                lines[name] = np.broadcast_to(line, (len(high), line.shape[-1]))
        first, back = _distinct([lines[name] for name in ROWS if name in lines])
        once = {name: codes[first] if name in ROWS else codes for name, codes in lines.items()}
        inputs = ProductOperands(**{name: np.ascontiguousarray(codes)[None] for name, codes in once.items()})
        outputs: Codes = self.case.run(rule, inputs)[0][back]
        return outputs


def _distinct(rows: list[Codes]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first index of each distinct row of joined arrays, and the index of every row among them."""
    joined = np.concatenate([np.ascontiguousarray(codes).view(np.uint8) for codes in rows], axis=1)
    whole = np.ascontiguousarray(joined).view(f"V{joined.shape[1]}")[:, 0]
    _, first, back = np.unique(whole, return_index=True, return_inverse=True)
    return first, back.reshape(-1)
