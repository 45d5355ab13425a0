"""Search for the mistakes that explain D.

The search uses the first mma with a wrong result. A few of its outputs, the probes, are computed for many mistakes at
once, as rows or columns of one mma. Mistakes that reproduce the probes are then computed completely, in all mmas.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial as partial_of
from operator import itemgetter

import numpy as np

from warpfrag.diagnosis import arithmetic_mistakes as arithmetic
from warpfrag.diagnosis.agreement import agreement
from warpfrag.diagnosis.findings import (
    SAME_D,
    TOO_FEW_DIGITS,
    Codes,
    Diagnosis,
    Misreading,
    Mistake,
    Suspect,
    Words,
    diagnosis,
    likelihood,
    ranked,
)
from warpfrag.diagnosis.fixes import fix
from warpfrag.diagnosis.index_maps import snapped, stored_elsewhere, unwritten
from warpfrag.diagnosis.mistakes import distinct
from warpfrag.diagnosis.observation import Observation
from warpfrag.diagnosis.outcome import SuspectProduct
from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.arrays import Doubles, as_doubles
from warpfrag.formats.codes import from_codes
from warpfrag.grouping import grouped
from warpfrag.isa.targets import gpu_names
from warpfrag.tensorcore.arithmetic_plan import plan
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.operand import Operand

PROBES = 12  # number of outputs that a mistake must reproduce, one by one, before it is computed completely
MIN_READABLE_SHARE = 8  # at least 1 in 8 lines of D must be known
PIECE = 1 << 21  # maximum size in bytes of the variants that are computed together
NUMBERED = (7, 5)  # element numbers modulo these fill A and B, and are exact in every type
MAX_WORSE = 4  # mistakes whose error exceeds the smallest error by more than this factor are dropped
OTHER_GPU = "; it matches exactly with the arithmetic of {0}: pass --arch {1} (arch= in Python) if the kernel ran there"
COLUMNS = ("b", "scale_b")  # the operands that determine the columns of D; the others determine the rows


class Search:
    """The search for mistakes in the first mma with a wrong result."""

    def __init__(self, case: SuspectProduct, words: dict[str, Words], observed: Observation) -> None:
        """Broadcast the inputs over the batch."""
        self.case, self.given, self.seen = case, words, observed
        self.operand = case.instruction.d
        name, shape = case.instruction.name, self.operand.shape
        lead = {role: array.shape[: -case.axes(role)] for role, array in words.items()}
        lead["d"] = observed.codes.shape[: -len(shape)]
        try:
            batch = np.broadcast_shapes(*lead.values())
        except ValueError:
            axes = ", ".join(f"{role} {axes}" for role, axes in lead.items())
            raise InvalidOperand(f"{name}: leading axes do not broadcast: {axes}") from None
        tiles = math.prod(batch)
        if not tiles:
            raise InvalidOperand(f"{name}: expected at least one matrix, got leading axes {quote(batch)}")
        self.observed = observed.map(lambda array: np.broadcast_to(array, (*batch, *shape)).reshape(tiles, *shape))
        whole = {role: (array, array.shape[len(lead[role]) :]) for role, array in words.items()}
        spread = {
            role: np.broadcast_to(array, (*batch, *own)).reshape(tiles, *own) for role, (array, own) in whole.items()
        }
        self.tiles = [{role: array[tile] for role, array in spread.items()} for tile in range(tiles)]

    def diagnosis(self) -> Diagnosis:
        """Search for mistakes that explain D, then for rounding, shifted accumulators and unwritten elements."""
        right = np.stack([self.case.right(words) for words in self.tiles])
        matches = self.observed.matches(right)
        notes = self.observed.notes(right)
        if matches.all():
            return Diagnosis([], correct=True, tried={}, notes=notes)
        wrong = int(np.flatnonzero(~matches.reshape(len(right), -1).all(axis=1))[0])
        self.words, self.right, self.target = self.tiles[wrong], right[wrong], self.observed.map(itemgetter(wrong))
        differ = np.flatnonzero(~matches[wrong])
        spread = np.linspace(0, len(differ) - 1, min(PROBES, len(differ))).astype(int)
        self.probes = [int(index) for index in differ[spread]]
        self.base = {name: codes for name, codes in self.case.inputs(self.words)._asdict().items() if codes is not None}
        suspected = {role: self.case.suspects(role) for role in (*self.words, "d")}
        misread = [*arithmetic.misreadings(self.case.form, self.case.arch, scale_d=self.case.scale_d)]
        everything: list[Suspect] = [*(suspect for some in suspected.values() for suspect in some), *misread]
        candidates = [suspect for role, some in suspected.items() for suspect in self._probed(role, some)]
        explanations: list[Suspect] = self._named_once(self._explaining([*candidates, *misread]))
        if not explanations:
            explanations = [suspect for role in ("a", "b") for suspect in self._beyond(role, suspected[role])]
        if len(right) == 1 and all(suspect.rare for suspect in explanations):
            explanations += stored_elsewhere(self.operand, snapped(self.target, self.right), self.right)
        near: list[Suspect] = [] if explanations else [*self._rounding(right)]
        if not explanations and not near and self.operand.format.is_float:
            explanations, gpus = self._up_to_rounding(everything)
            notes += (arithmetic.ROUNDED + gpus,) if explanations else ()
        if not explanations:
            reach = np.stack([self._reach(words) for words in self.tiles]) + self.observed.slack
            explanations = near
            if self.case.scale_d:
                explanations = [*arithmetic.shift(self.operand.format, self.observed.codes, right, reach)] or near
            with np.errstate(invalid="ignore"):
                error = np.abs(self.observed.values - as_doubles(from_codes(self.operand.format, right)))
            rounded = 0 if explanations else int((~matches & (error <= reach)).sum())
            notes += (f"{rounded} of the wrong elements differ only by rounding",) if rounded else ()
        if not explanations and np.isfinite(self.observed.slack).all():
            expected = as_doubles(from_codes(self.operand.format, self.right))
            same = np.asarray(matches.all(axis=0))
            explanations = [*unwritten(self.operand, same, self.observed.values, expected)]
        partial = agreement(self.operand, self.target.towards(self.right), self.right, c=self._c())
        return diagnosis(
            explanations,
            everything,
            partial,
            fix=partial_of(fix, self.case.instruction.operands),
            notes=(
                *notes,
                *(() if any(note.endswith(TOO_FEW_DIGITS) for note in notes) else self._tell_apart(explanations)),
            ),
        )

    def _up_to_rounding(self, suspected: Sequence[Suspect]) -> tuple[list[Suspect], str]:
        """Return the mistakes that explain D up to rounding, and a hint if D is exact on other architectures."""
        magnitude = as_doubles(from_codes(self.operand.format, self.case.right(self.words, magnitude=True)))
        largest = magnitude[np.isfinite(magnitude)].max(initial=0.0)
        widest = float(self._bound().of(arithmetic.MAX_GROWTH * largest))
        target, self.target = self.target, self.target.narrowed().widened(widest)
        by_role = grouped((suspect.operand, suspect) for suspect in suspected if isinstance(suspect, Mistake))
        near: list[Suspect] = [each for role, some in by_role.items() for each in self._probed(role, some)]
        near += [suspect for suspect in suspected if isinstance(suspect, Misreading) and suspect.kind in {"c", "sign"}]
        self.target = target
        errors = {id(suspect): self._error(suspect, widest) for suspect in near}
        best = min(errors.values(), default=math.inf)
        found = [suspect for suspect in near if errors[id(suspect)] <= min(1.0, MAX_WORSE * best)]
        archs = [archs[0] for archs in arithmetic.other_arithmetic(self.case.form, self.case.arch)]
        exact = {arch: some for arch in archs if (some := self._explaining(found, arch))}
        gpus = OTHER_GPU.format(gpu_names(exact), gpu_names([*exact][:1])) if exact else ""
        return self._named_once(next(iter(exact.values()), found)), gpus

    def _error(self, suspect: Suspect, widest: float) -> float:
        """Return the largest difference between D and a mistake's outcome, in units of the largest rounding error."""
        outcomes, magnitudes = self._outcomes(suspect), self._outcomes(suspect, magnitude=True)
        if outcomes is None or magnitudes is None:
            return math.inf
        seen, result = self.observed.narrowed(), self.operand.format
        values, scale = (as_doubles(from_codes(result, codes)) for codes in (outcomes, magnitudes))
        allowed = np.minimum(self._bound().of(scale), widest) + arithmetic.ulps_of(result, values) + seen.slack
        with np.errstate(invalid="ignore"):
            error = np.where(seen.matches(outcomes), 0.0, np.abs(seen.values - values)) / allowed
        return math.inf if np.isnan(error).any() else float(error.max())

    def _c(self) -> Codes | None:
        """Return the codes of C if they can be compared with those of D and are not all zero."""
        c = self.base["c"].reshape(self.right.shape)
        return c if self.case.form.c == self.case.form.d and c.any() else None

    def _bound(self) -> arithmetic.RoundingBound:
        """Return the loosest rounding bound of all architectures and of a sequential sum of k terms."""
        form, result = self.case.form, self.operand.format
        archs = (self.case.arch, *(archs[0] for archs in arithmetic.other_arithmetic(form, self.case.arch)))
        bounds = [arithmetic.rounding_bound(form, arch, form.shape.k, result) for arch in archs]
        return max(
            [*bounds, arithmetic.RoundingBound(form.shape.k, result.fraction)],
            key=lambda bound: bound.of(np.ones(1))[0],
        )

    def _reach(self, words: Mapping[str, Words]) -> Doubles:
        """Return the largest possible rounding error of one mma."""
        form = self.operand.format
        if not form.is_float:
            return np.zeros(self.right.shape)
        return self._bound().of(as_doubles(from_codes(form, self.case.right(words, magnitude=True))))

    def _rounding(self, right: Codes) -> Iterator[Misreading]:
        """Yield a misreading if every D is right up to rounding."""
        if self.operand.format.is_float:
            magnitudes = np.stack([self.case.right(words, magnitude=True) for words in self.tiles])
            seen = self.observed.towards(right)
            text = arithmetic.rounding(self.operand.format, seen, right, magnitudes, self._bound(), self.observed.slack)
            if text is not None:
                yield Misreading("rounding", "d", text)

    def _named_once(self, explanations: list[Suspect]) -> list[Suspect]:
        """Remove mistakes that have the same effect as another of their category under a different name."""
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

    def _explaining(self, candidates: Iterable[Suspect], arch: str = "") -> list[Suspect]:
        """Return the candidates that reproduce every observed D; exact matches replace approximate ones."""
        explanations, exact = [], []
        for candidate in candidates:
            outcomes = self._outcomes(candidate, arch)
            if outcomes is None or not self.observed.matches(outcomes).all():
                continue
            explanations.append(candidate)
            if self.observed.is_exact(outcomes):
                exact.append(candidate)
        return exact or explanations

    def _outcomes(self, suspect: Suspect, arch: str = "", *, magnitude: bool = False) -> Codes | None:
        """Return the codes of D, or of |A||B| + |C|, of every mma with this mistake; None if it is impossible."""
        case = replace(self.case, arch=arch or self.case.arch)
        outcomes = [case.outcome(words, suspect, magnitude=magnitude) for words in self.tiles]
        possible = [codes for codes in outcomes if codes is not None]
        return np.stack(possible) if len(possible) == len(outcomes) else None

    def _tell_apart(self, explanations: Sequence[Suspect]) -> Iterator[str]:
        """Yield sentences about kernel results that would distinguish the first explanations."""
        listed = ranked(explanations)
        if len(listed) < 2 or self.case.tiles or self.case.instruction.pattern or self.case.form.block_scale:
            return
        numbered, words = self._numbered()
        both = self.case.instruction.a, self.case.instruction.b
        shuffled = {**self.words, **{operand.role: random_words(operand) for operand in both}}
        for inputs, given in ((self.words, ""), (words, f"with {numbered}, "), (shuffled, "")):
            outcomes = [self.case.outcome(inputs, suspect) for suspect in listed]
            first = outcomes[0]
            for number, codes in enumerate(outcomes[1:], start=2):
                if first is None or codes is None or np.array_equal(first, codes):
                    continue
                if inputs is shuffled:
                    yield f"to tell 1 from {number}, run the kernel again with other random A and B"
                    return
                place = np.unravel_index(int(np.argmax(self._distance(first, codes))), first.shape)
                values = [from_codes(self.operand.format, one[place]).item() for one in (first, codes)]
                at = "".join(f"[{int(index)}]" for index in place)
                yield (
                    f"to tell 1 from {number}: {given}D{at} is {values[0]:.9g} for explanation 1 and "
                    f"{values[1]:.9g} for explanation {number}"
                )
                return
        yield SAME_D

    def _distance(self, first: Codes, second: Codes) -> Doubles:
        values = (as_doubles(from_codes(self.operand.format, codes)) for codes in (first, second))
        return np.nan_to_num(np.abs(np.subtract(*values)))

    def _numbered(self) -> tuple[str, dict[str, Words]]:
        """Return inputs that distinguish every element, as a description and as registers."""
        instruction = self.case.instruction
        matrices, texts = {}, []
        indices = (("i", "k"), ("k", "j"))
        for name, operand, (row, col), most in zip(
            "AB", (instruction.a, instruction.b), indices, NUMBERED, strict=True
        ):
            width, modulus = operand.shape[-1], min(most, int(operand.format.max) + 1)
            index = np.arange(math.prod(operand.shape)).reshape(operand.shape)
            matrices[operand.role] = operand.pack(index % modulus, rounding="rne")
            texts.append(f"{name}[{row}][{col}] = ({width} * {row} + {col}) % {modulus}")
        return " and ".join(texts), {**self.words, **matrices}

    def _beyond(self, role: str, some: list[Mistake]) -> Iterator[Mistake]:
        """Yield wrong descriptors, strides and offsets that read beyond the memory and explain the rest of D."""
        axis = "ba".index(role)  # an element beyond the memory affects a column of D, or a row if it belongs to A
        lines = self.right.shape[1 - axis]
        kinds = {"descriptor", "transposed"} if role in self.case.tiles else {"stride", "offset"}
        all_set = np.full_like(self.words[role], np.iinfo(self.words[role].dtype).max)
        for mistake in some:
            if mistake.kind not in kinds or self.right.ndim > 2:
                continue
            # set known bits to 1 and unknown bits to 0
            read = self.case.read(role, mistake.change(all_set))[1][0]
            known = (read == read.max()).all(axis=axis)
            count = int(known.sum())
            if not lines // MIN_READABLE_SHARE <= count < lines:
                continue
            part = (known,) if role == "a" else np.s_[:, known]
            outcomes = self._outcomes(mistake)
            if outcomes is None:
                continue
            every = (slice(None), *part)
            agree = self.observed.map(itemgetter(every)).matches(outcomes[every]).all()
            if agree and not self.target.map(itemgetter(part)).matches(self.right[part]).all():
                name = "rows" if role == "a" else "columns"
                yield replace(
                    mistake, text=f"{mistake.text}; {count} of {lines} {name} match; the others read beyond the memory"
                )

    # ---- probes: one output with many mistakes at once

    def _probed(self, role: str, mistakes: Sequence[Mistake]) -> Iterator[Mistake]:
        """Yield the mistakes with one operand that reproduce all probes."""
        held = self.operand.pack(self.right, raw=True) if role == "d" else self.words[role]
        at_once = max(1, PIECE // held.nbytes)
        for start in range(0, len(mistakes), at_once):
            some = mistakes[start : start + at_once]
            if role == "d":
                seen = self.operand.unpack(np.stack([mistake.change(held) for mistake in some]), raw=True)
                equal = self.target.matches(seen).reshape(len(some), -1).all(axis=1)
                yield from (some[int(index)] for index in np.flatnonzero(equal))
                continue
            kept, name, codes = self.case.changed(role, held, some)
            flat = self.target.map(np.ravel)
            for probe in self.probes:
                if kept:
                    equal = flat.map(itemgetter(probe)).matches(self._outputs(name, codes, probe))
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
        return self.case.run(plan(self.case.form, self.case.arch).rule, inputs).reshape(-1)


def random_words(operand: Operand) -> Words:
    """Return registers that hold small random integers."""
    numbers = np.random.default_rng(1).integers(0, min(4, int(operand.format.max) + 1), operand.shape)
    return operand.pack(numbers, rounding="rne")
