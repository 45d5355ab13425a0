"""The search for mistakes that explain a D.

The search uses the first mma with a wrong result. A few of its outputs, the probes, are computed for many mistakes at
once, as rows or columns of one mma. Mistakes that reproduce the probes are then computed completely, in all mmas.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from warpfrag.diagnosis.arithmetic_mistakes import RoundingBound, misreadings, rounding, rounding_bound, shift
from warpfrag.diagnosis.findings import (
    Codes,
    Diagnosis,
    Misreading,
    Mistake,
    Suspect,
    Words,
    agreement,
    diagnosis,
    likelihood,
)
from warpfrag.diagnosis.mistakes import distinct
from warpfrag.diagnosis.outcome import SuspectProduct
from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.arrays import as_doubles
from warpfrag.formats.codes import from_codes
from warpfrag.tensorcore.arithmetic_plan import plan
from warpfrag.tensorcore.backend_protocol import ProductOperands

PROBES = 12  # outputs that a mistake must give before it is computed whole; each is asked only of what gave the last
MIN_READABLE_SHARE = 8  # at least 1 of 8 lines of D must be known
PIECE = 1 << 21  # bytes of registers with mistakes that are computed at once
COLUMNS = ("b", "scale_b")  # operands that determine the columns of D; the others determine its rows


class Search:
    """The search in the first mma with a wrong result."""

    def __init__(self, case: SuspectProduct, words: dict[str, Words], observed: Codes) -> None:
        """Broadcast the inputs over the batch."""
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
            raise InvalidOperand(f"{name}: expected at least one matrix, got leading axes {quote(batch)}")
        self.observed = np.broadcast_to(observed, (*batch, *shape)).reshape(tiles, *shape)
        whole = {role: (array, array.shape[len(lead[role]) :]) for role, array in words.items()}
        spread = {
            role: np.broadcast_to(array, (*batch, *own)).reshape(tiles, *own) for role, (array, own) in whole.items()
        }
        self.tiles = [{role: array[tile] for role, array in spread.items()} for tile in range(tiles)]

    def diagnosis(self) -> Diagnosis:
        """Search for mistakes that explain D; if there are none, for an explanation of its differences."""
        right = [self.case.right(words) for words in self.tiles]
        wrong = [tile for tile, codes in enumerate(right) if not np.array_equal(codes, self.observed[tile])]
        if not wrong:
            return Diagnosis([], correct=True, tried={})
        self.words, self.right, self.target = self.tiles[wrong[0]], right[wrong[0]], self.observed[wrong[0]]
        differ = np.flatnonzero(self.right != self.target)
        spread = np.linspace(0, len(differ) - 1, min(PROBES, len(differ))).astype(int)
        self.probes = [int(index) for index in differ[spread]]
        self.base = {name: codes for name, codes in self.case.inputs(self.words)._asdict().items() if codes is not None}
        suspected = {role: self.case.suspects(role) for role in (*self.words, "d")}
        misread = [*misreadings(self.case.form, self.case.arch, scale_d=self.case.scale_d)]
        everything: list[Suspect] = [*(suspect for some in suspected.values() for suspect in some), *misread]
        candidates = [suspect for role, some in suspected.items() for suspect in self._probed(role, some)]
        explanations: list[Suspect] = self._named_once(self._explaining([*candidates, *misread]))
        if not explanations:
            explanations = [suspect for role in ("a", "b") for suspect in self._beyond(role, suspected[role])]
        if not explanations and self.case.scale_d:
            reach = np.stack([self._reach(words) for words in self.tiles])
            explanations = [*shift(self.operand.format, self.observed, np.stack(right), reach)]
        if not explanations:
            explanations = [*self._rounding(self.observed, right)]
        partial = agreement(self.operand, self.target, self.right, c=self._c())
        return diagnosis(explanations, everything, partial)

    def _c(self) -> Codes | None:
        """Return C's codes if they can be compared with D's and are not all zero."""
        c = self.base["c"].reshape(self.right.shape)
        return c if self.case.form.c == self.case.form.d and c.any() else None

    def _bound(self) -> RoundingBound:
        return rounding_bound(self.case.form, self.case.arch, self.case.form.shape.k, self.operand.format)

    def _reach(self, words: Mapping[str, Words]) -> NDArray[np.float64]:
        """Return the largest rounding error of one mma."""
        form = self.operand.format
        if not form.is_float:
            return np.zeros(self.right.shape)
        return self._bound().of(as_doubles(from_codes(form, self._magnitude(words))))

    def _rounding(self, observed: Codes, right: list[Codes]) -> Iterator[Misreading]:
        """Yield a misreading if every D is right up to rounding."""
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

    def _named_once(self, explanations: list[Suspect]) -> list[Suspect]:
        """Remove mistakes that repeat another of their category under another name."""
        repeated: set[int] = set()
        for role, operand in self.case.instruction.operands.items():
            mine = [
                suspect
                for suspect in sorted(explanations, key=likelihood)
                if isinstance(suspect, Mistake) and suspect.operand == role
            ]
            if mine and role not in self.case.tiles:
                repeated |= {*map(id, mine)} - {*map(id, distinct(operand, mine))}
        return [suspect for suspect in explanations if id(suspect) not in repeated]

    def _explaining(self, candidates: Iterable[Suspect]) -> list[Suspect]:
        """Return the candidates that reproduce every observed D."""
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
            # known bits are 1, unknown bits are 0
            read = self.case.read(role, mistake.change(all_set))[1][0]
            known = (read == read.max()).all(axis=axis)
            count = int(known.sum())
            if not lines // MIN_READABLE_SHARE <= count < lines:
                continue
            part = np.s_[known] if role == "a" else np.s_[:, known]
            outcomes = [self.case.outcome(words, mistake) for words in self.tiles]
            pairs = [*zip(outcomes, self.observed, strict=True)]
            agree = all(codes is not None and np.array_equal(codes[part], seen[part]) for codes, seen in pairs)
            if agree and not np.array_equal(self.right[part], self.target[part]):
                name = "rows" if role == "a" else "columns"
                yield replace(
                    mistake, text=f"{mistake.text}; {count} of {lines} {name} match; the others are beyond the memory"
                )

    # ---- probes: one output with many mistakes at once

    def _probed(self, role: str, mistakes: Sequence[Mistake]) -> Iterator[Mistake]:
        """Yield the mistakes with one operand that give all probes."""
        held = self.operand.pack(self.right, raw=True) if role == "d" else self.words[role]
        at_once = max(1, PIECE // held.nbytes)
        for start in range(0, len(mistakes), at_once):
            some = mistakes[start : start + at_once]
            if role == "d":
                seen = self.operand.unpack(np.stack([mistake.change(held) for mistake in some]), raw=True)
                equal = (seen == self.target).reshape(len(some), -1).all(axis=1)
                yield from (some[int(index)] for index in np.flatnonzero(equal))
                continue
            kept, name, codes = self.case.changed(role, held, some)
            for probe in self.probes:
                if kept:
                    equal = self._outputs(name, codes, probe) == self.target.reshape(-1)[probe]
                    kept, codes = [kept[int(index)] for index in np.flatnonzero(equal)], codes[equal]
            yield from kept

    def _outputs(self, name: str, codes: Codes, probe: int) -> Codes:
        """Return one output of D for variants of one input, which are the rows or columns of one mma."""
        number, row, col = (int(i) for i in np.unravel_index(probe, (len(self.base["c"]), *self.right.shape[-2:])))
        high, wide = (1, len(codes)) if name in COLUMNS else (len(codes), 1)
        lines = {}
        for each, right in self.base.items():
            variants = codes if each == name else right[None]
            if each == "c":
                lines[each] = np.broadcast_to(variants[:, number, row, col].reshape(-1, 1), (high, wide))
            elif each in COLUMNS:
                line = variants[:, number, :, col]
                lines[each] = np.broadcast_to(line, (wide, line.shape[-1])).T
            else:
                line = variants[:, number, row]
                lines[each] = np.broadcast_to(line, (high, line.shape[-1]))
        inputs = ProductOperands(**{each: np.ascontiguousarray(line)[None] for each, line in lines.items()})
        rule = plan(self.case.form, self.case.arch).rule
        return self.case.run(rule, inputs).reshape(-1)
