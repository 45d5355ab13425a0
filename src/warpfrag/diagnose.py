"""Which mistake gives this wrong result.

Two questions. Given the inputs of a product and the D that came out, or given one operand's registers and the matrix
they should hold: what went wrong? Every mistake of `mistakes` is made, and those that give exactly what was observed
are named, the likeliest first. Where none does, two at a time are tried.

    >>> import numpy as np, warpfrag as wf
    >>> mma = wf.get("mma.m16n8k16.f32.f16.f16.f32")
    >>> A, B = np.arange(256.0).reshape(16, 16) % 31, np.arange(128.0).reshape(16, 8) % 29
    >>> for finding in diagnose(mma, mma(A.T, B), A, B):
    ...     print(finding)
    a: memory read in the other order

One product is enough to search in. A few of its outputs are computed for all candidates at once, as rows and columns of
one product; what gives those is made, whole and in every product given, by `_Case.outcome`.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np

from warpfrag.arithmetic import matmul, plan
from warpfrag.arrays import as_array
from warpfrag.choice import CHOOSING, Choice
from warpfrag.codes import from_codes, to_codes
from warpfrag.errors import IllegalInstruction, InvalidOperand, InvalidSparsity, NotModelled, shown
from warpfrag.instruction import Instruction, instruction_of
from warpfrag.isa.legality import arithmetic_arch, check_choice, form_of
from warpfrag.isa.rows import forms
from warpfrag.mistakes import (
    KINDS,
    Misreading,
    Mistake,
    added,
    chosen_words,
    likelihood,
    misreadings,
    other_choices,
    suspects,
    written_elsewhere,
)
from warpfrag.operand import Metadata, Operand, Registers, Scale
from warpfrag.sparsity import compress, logical_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from warpfrag.arithmetic.rules import Rule
    from warpfrag.formats import Rounding
    from warpfrag.isa.patterns import Pattern
    from warpfrag.isa.words import Form, HasForm
    from warpfrag.mistakes import Kind
    from warpfrag.operand import AnyOperand

    Codes = NDArray[Any]
    Words = NDArray[np.uint32]

Suspect: TypeAlias = Mistake | Misreading
Candidate: TypeAlias = tuple[Suspect, ...]

PROBES = 12  # outputs that a mistake must give before it is computed whole; each is asked only of what gave the last
MOST_PAIRS = 60  # so many, the likeliest, are computed whole
ROWS = ("a", "columns", "scale_a", "c")
COLS = ("b", "scale_b")
SIDES = (("a", "metadata", "scale_a"), ("b", "scale_b"), ("c",))


@dataclass(frozen=True)
class Finding:
    """A mistake that explains what was observed. `operand` is the one it is made with; `second` the other of a pair."""

    kind: Kind
    operand: str
    text: str
    second: Finding | None = None

    def __str__(self) -> str:
        """The operand and the mistake, such as `b: registers 0 and 1 swapped`."""
        if self.second is None:
            return f"{self.operand}: {self.text}"
        joint = "then" if self.second.operand == self.operand else "and"
        return f"{self.operand}: {self.text}; {joint} {self.second}"


class Diagnosis(list[Finding]):
    """The findings, the likeliest first, and how far the search went.

    `correct`: nothing is wrong. `tried` counts the mistakes that were made, by kind, and `pairs` the pairs of them.
    """

    def __init__(self, findings: Iterable[Finding], *, correct: bool, tried: Mapping[Kind, int], pairs: int) -> None:
        """Keep the findings and the counts."""
        super().__init__(findings)
        self.correct = correct
        self.tried = dict(tried)
        self.pairs = pairs

    def __str__(self) -> str:
        """The answer in words."""
        return "\n".join(map(str, self)) or self.summary

    @property
    def summary(self) -> str:
        """One sentence: what came of it."""
        if self.correct:
            return "correct: this is what the instruction gives"
        if self:
            one, several = ("pair of mistakes", "pairs of mistakes") if self[0].second else ("mistake", "mistakes")
            return f"1 {one} explains it" if len(self) == 1 else f"{len(self)} {several} explain it"
        counts = ", ".join(f"{kind} {count}" for kind, count in self.tried.items())
        return f"nothing found: {sum(self.tried.values())} mistakes tried ({counts}) and {self.pairs} pairs of them"


@overload
def diagnose(
    instruction: str | HasForm,
    observed: ArrayLike,
    A: ArrayLike,
    B: ArrayLike,
    C: ArrayLike | None = None,
    *,
    metadata: ArrayLike | None = None,
    selector: int = 0,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    byte_id: tuple[int, int] = (0, 0),
    thread_id: tuple[int, int] = (0, 0),
    arch: str = "sm_90",
    rounding: Rounding = None,
) -> Diagnosis: ...


@overload
def diagnose(
    instruction: Registers,
    observed: ArrayLike,
    A: ArrayLike,
    *,
    selector: int = 0,
    byte_id: tuple[int, int] = (0, 0),
    thread_id: tuple[int, int] = (0, 0),
    rounding: Rounding = None,
) -> Diagnosis: ...


def diagnose(
    instruction: str | HasForm | Registers,
    observed: ArrayLike,
    A: ArrayLike,
    B: ArrayLike | None = None,
    C: ArrayLike | None = None,
    *,
    metadata: ArrayLike | None = None,
    selector: int = 0,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    byte_id: tuple[int, int] = (0, 0),
    thread_id: tuple[int, int] = (0, 0),
    arch: str = "sm_90",
    rounding: Rounding = None,
) -> Diagnosis:
    """The mistakes that explain an observed D exactly, the likeliest first: none if it is correct or nothing fits.

    `observed` is D's registers, uint32[..., 32, words], or D as a matrix; A, B and C are the matrices that should have
    gone in. Leading axes are products that one mistake must explain. A sparse instruction takes the full, pruned A, a
    block-scaled one its scale factors. What lanes hold that the instruction does not read is taken to be zero, unless
    the words themselves are given: `metadata`, `scale_a` and `scale_b` may be uint32[..., 32].

    `diagnose(mma.a, words, A)` asks about one operand: its registers, and the matrix that they should hold.
    """
    choice = Choice(selector, byte_id, thread_id)
    if isinstance(instruction, Registers):
        if any(given is not None for given in (B, C, metadata, scale_a, scale_b)):
            msg = f"{instruction.described}: expected its registers and the matrix they should hold, nothing else"
            raise InvalidOperand(msg)
        return _of_operand(instruction, observed, A, choice, rounding)  # type: ignore[arg-type] # one of the three
    form = form_of(instruction)
    wanted = arithmetic_arch(form, arch)
    found = instruction_of(form, wanted if form.is_wmma else "")
    if B is None:
        msg = f"{found.name}: expected the inputs A and B; to ask about A alone, pass the operand, such as mma.a"
        raise InvalidOperand(msg)
    check_choice(form, choice, found.operands.chosen_layouts)
    words: dict[str, Words] = {"b": found.b.pack(B, rounding=rounding)}
    words |= _left_words(found, A, metadata, choice, rounding)
    zero = np.zeros((32, found.c.words), np.uint32)
    words["c"] = zero if C is None else found.c.pack(C, rounding=rounding)
    for role, scales in (("scale_a", scale_a), ("scale_b", scale_b)):
        words |= _scale_words(found, role, scales, choice, rounding)
    return _Search(_Case(found, wanted, choice), words, _observed(found.d, observed)).diagnosis()


def _left_words(
    instruction: Instruction, A: ArrayLike, metadata: ArrayLike | None, choice: Choice, rounding: Rounding
) -> dict[str, Words]:
    """Registers of A, and of a sparse one the metadata."""
    rule = instruction.pattern
    if rule is None:
        if metadata is not None:
            msg = f"{instruction.name} is dense: it takes no metadata"
            raise InvalidOperand(msg)
        return {"a": instruction.a.pack(A, rounding=rounding)}
    full = instruction.a.full_codes(A, rounding=rounding)
    if metadata is None:
        stored, codes = compress(rule, full)
        packed = instruction.metadata.pack(codes, selector=choice.selector)
        return {"a": instruction.a.pack(stored, raw=True), "metadata": packed}
    words = instruction.metadata.check_words(metadata)
    fields = instruction.metadata.unpack(words, selector=choice.selector)
    columns = logical_columns(rule, fields)
    try:
        shape = np.broadcast_shapes(full.shape[:-2], columns.shape[:-2])
    except ValueError:
        msg = f"leading axes do not broadcast: A {full.shape}, metadata {words.shape}"
        raise InvalidOperand(msg) from None
    stored = np.take_along_axis(
        np.broadcast_to(full, (*shape, *full.shape[-2:])), np.broadcast_to(columns, (*shape, *columns.shape[-2:])), -1
    )
    return {"a": instruction.a.pack(stored, raw=True), "metadata": words}


def _scale_words(
    instruction: Instruction, role: str, scales: ArrayLike | None, choice: Choice, rounding: Rounding
) -> dict[str, Words]:
    scale = instruction.operands.get(role)
    if (scale is None) != (scales is None):
        msg = f"{instruction.name} {'takes no' if scale is None else 'needs'} {role}"
        raise InvalidOperand(msg)
    if not isinstance(scale, Scale) or scales is None:
        return {}
    given = as_array(scales, scale.described)
    if given.dtype == np.uint32 and given.shape[-1:] == scale.threads:
        return {role: given}
    return {role: chosen_words(scale, scale.codes(given, rounding=rounding), choice.of(role))}


def _observed(operand: Operand, observed: ArrayLike) -> Codes:
    """Codes of what was observed: registers where it has their type and shape, else a matrix."""
    array = as_array(observed, operand.described)
    if array.dtype == np.uint32 and array.shape[-2:] == (32, operand.words):
        return operand.unpack(array, raw=True)
    registers = f"registers, uint32[..., 32, {operand.words}]"
    if array.shape[max(0, array.ndim - len(operand.shape)) :] != operand.shape:
        matrix = ", ".join(map(str, operand.shape))
        msg = f"{operand.described}: expected a matrix (..., {matrix}) or {registers}, got {array.dtype} {array.shape}"
        raise InvalidOperand(msg)
    return operand.codes(array)


# ---- one operand


def _of_operand(
    operand: AnyOperand, observed: ArrayLike, matrix: ArrayLike, choice: Choice, rounding: Rounding
) -> Diagnosis:
    """What turns the registers of a matrix into those that were observed."""
    words = operand.check_words(observed)
    suspected = [*suspects(operand)]
    if isinstance(operand, Operand):
        right = operand.pack(matrix, rounding=rounding)
    else:
        choice.check({operand.role: operand.layout}, operand.instruction)
        codes = operand.codes(matrix, raw=isinstance(operand, Metadata), rounding=rounding)
        right = chosen_words(operand, codes, choice.of(operand.role))
        suspected += written_elsewhere(operand, codes, choice)

    def read(words: Words) -> Codes:  # what lies beside the codes of a matrix, and in copies, is nobody's business
        return operand.unpack(words, raw=True) if isinstance(operand, Operand) else words

    try:
        shape = np.broadcast_shapes(words.shape, right.shape)
    except ValueError:
        msg = f"{operand.described}: leading axes do not broadcast: registers {words.shape}, matrix {right.shape}"
        raise InvalidOperand(msg) from None
    got, right = read(np.broadcast_to(words, shape)), np.broadcast_to(right, shape)
    if not got.size:
        msg = f"{operand.described}: expected the registers of at least one matrix, got shape {words.shape}"
        raise InvalidOperand(msg)
    if np.array_equal(got, read(right)):
        return Diagnosis([], correct=True, tried={}, pairs=0)
    found: list[Candidate] = [(one,) for one in suspected if np.array_equal(read(one.change(right)), got)]
    common = [one for one in suspected if not one.rare]
    if found:
        return _diagnosis(found, suspected, 0)
    stack = np.stack([one.change(right) for one in common])
    for second in common:
        equal = (read(second.change(stack)) == got).reshape(len(stack), -1).all(axis=1)
        found += [(common[first], second) for first in np.flatnonzero(equal)]
    return _diagnosis(sorted(found, key=_rank)[:MOST_PAIRS], suspected, len(common) ** 2)


# ---- a product


@dataclass(frozen=True)
class _Inputs:
    """Codes of what the hardware reads, [..., products, rows, cols]; one product, but four for m8n8k4."""

    a: Codes
    b: Codes
    c: Codes
    columns: Codes | None = None
    scale_a: Codes | None = None
    scale_b: Codes | None = None


@dataclass(frozen=True)
class _Case:
    """What should have run: the instruction, on an architecture, with these immediates."""

    instruction: Instruction
    arch: str
    choice: Choice

    @property
    def form(self) -> Form:
        return self.instruction.form

    @property
    def pattern(self) -> Pattern:
        return self.instruction.a.sparsity

    def rule(self, suspected: Iterable[Suspect] = ()) -> Rule | None:
        """The rule that runs under some misreadings; None where nobody knows it."""
        form, arch = self.form, self.arch
        for one in suspected:
            if isinstance(one, Misreading):
                form, arch = replace(form, **one.words), one.arch or arch  # type: ignore[arg-type] # words of a name
        if form not in forms():
            return None
        with suppress(NotModelled, IllegalInstruction):
            return plan(form, arithmetic_arch(form, arch)).rule
        return None

    def read(self, role: str, words: Words) -> tuple[str, Codes]:
        """What the hardware reads in the registers of a role, and what that is called."""
        operand = self.instruction.operands[role]
        batch = words.shape[: -1 if role in CHOOSING else -2]
        if isinstance(operand, Metadata):
            fields = operand.unpack(words, **self.choice.of(role))
            codes: Codes = logical_columns(self.pattern, fields)
        elif isinstance(operand, Scale):
            codes = operand.unpack(words, **self.choice.of(role), raw=True)
        else:
            codes = operand.unpack(words, raw=True)
        return "columns" if role == "metadata" else role, codes.reshape(*batch, -1, *codes.shape[-2:])

    def inputs(self, words: Mapping[str, Words]) -> _Inputs:
        return _Inputs(**dict(self.read(role, array) for role, array in words.items()))

    def right(self, words: Mapping[str, Words]) -> Codes:
        """D's codes for one product if no mistake is made."""
        rule = plan(self.form, self.arch).rule  # or the refusal, where nobody knows it
        return self.run(rule, self.inputs(words)).reshape(self.instruction.d.shape)

    def outcome(self, words: Mapping[str, Words], candidate: Candidate) -> Codes | None:
        """D's codes for one product if these mistakes are made; None where they cannot be."""
        rule = self.rule(candidate)
        made = {**words}
        for one in candidate:
            if isinstance(one, Mistake) and one.operand != "d":
                made[one.operand] = one.change(made[one.operand])
        if rule is None:
            return None
        try:
            inputs = self.inputs(made)
        except InvalidSparsity:
            return None
        operand = self.instruction.d
        codes = self.run(rule, inputs)
        for one in candidate:
            if isinstance(one, Misreading) and one.again == "product":
                codes = self.run(rule, replace(inputs, c=codes))
            elif isinstance(one, Misreading) and one.again == "c":
                codes = added(operand, codes, inputs.c)
        codes = codes.reshape(operand.shape)
        for one in candidate:
            if isinstance(one, Mistake) and one.operand == "d":
                codes = operand.unpack(one.change(operand.pack(codes, raw=True)), raw=True)
        return codes

    def run(self, rule: Rule, inputs: _Inputs) -> Codes:
        """D's codes for one product; where a rule has other accumulators, converted on the way in and out."""
        from warpfrag.formats import FORMATS

        mine, its = self.instruction.operands, (FORMATS[rule.c], FORMATS[rule.d])
        c = inputs.c
        if its[0] is not mine.c.format:
            c = to_codes(its[0], from_codes(mine.c.format, c).astype(np.float64), rounding="rne")
        extra = {name: getattr(inputs, name) for name in ("columns", "scale_a", "scale_b")}
        codes = matmul(rule, inputs.a, inputs.b, c, **extra)
        if its[1] is not mine.d.format:
            codes = to_codes(mine.d.format, from_codes(its[1], codes).astype(np.float64), rounding="rne")
        return codes


@dataclass(frozen=True)
class _Variants:
    """Some mistakes with one side of the product, and what the hardware then reads: [variant, product, row, col]."""

    made: list[tuple[Mistake, ...]]
    codes: dict[str, Codes]

    def __len__(self) -> int:
        return len(self.made)

    def some(self, places: NDArray[np.intp]) -> _Variants:
        return _Variants([self.made[place] for place in places], {name: c[places] for name, c in self.codes.items()})


NOTHING = _Variants([()], {})


class _Search:
    """The search in the first product that is wrong."""

    def __init__(self, case: _Case, words: dict[str, Words], observed: Codes) -> None:
        """Spread everything over the products."""
        self.case = case
        self.operand = case.instruction.d
        name, shape = case.instruction.name, self.operand.shape
        lead = {role: array.shape[: -1 if role in CHOOSING else -2] for role, array in words.items()}
        lead["d"] = observed.shape[: -len(shape)]
        try:
            batch = np.broadcast_shapes(*lead.values())
        except ValueError:
            axes = ", ".join(f"{role} {axes}" for role, axes in lead.items())
            msg = f"{name}: leading axes do not broadcast: {axes}"
            raise InvalidOperand(msg) from None
        tiles = math.prod(batch)
        if not tiles:
            msg = f"{name}: expected at least one product, got leading axes {shown(batch)}"
            raise InvalidOperand(msg)
        self.observed = np.broadcast_to(observed, (*batch, *shape)).reshape(tiles, *shape)
        whole = {role: (array, array.shape[len(lead[role]) :]) for role, array in words.items()}
        spread = {
            role: np.broadcast_to(array, (*batch, *own)).reshape(tiles, *own) for role, (array, own) in whole.items()
        }
        self.tiles = [{role: array[tile] for role, array in spread.items()} for tile in range(tiles)]
        self.pairs = 0

    def diagnosis(self) -> Diagnosis:
        """Singles, else pairs."""
        right = [self.case.right(words) for words in self.tiles]
        wrong = [tile for tile, codes in enumerate(right) if not np.array_equal(codes, self.observed[tile])]
        if not wrong:
            return Diagnosis([], correct=True, tried={}, pairs=0)
        self.words, self.right, self.target = self.tiles[wrong[0]], right[wrong[0]], self.observed[wrong[0]]
        differ = np.flatnonzero(self.right != self.target)
        spread = np.linspace(0, len(differ) - 1, min(PROBES, len(differ))).astype(int)
        self.probes = [int(place) for place in differ[spread]]
        self.base = {name: codes for name, codes in vars(self.case.inputs(self.words)).items() if codes is not None}
        operands = self.case.instruction.operands
        self.suspected = {
            role: [*suspects(operands[role]), *other_choices(operands[role], self.case.choice)]
            for role in (*self.words, "d")
        }
        self.misread = [*misreadings(self.case.form, self.case.arch)]
        everything: list[Suspect] = [one for some in self.suspected.values() for one in some]
        everything += self.misread
        found = self._explaining(self._singles())
        if not found:
            self.suspected = {role: [one for one in some if not one.rare] for role, some in self.suspected.items()}
            found = self._explaining(sorted(self._pairs(), key=_rank)[:MOST_PAIRS])
        return _diagnosis(found, everything, self.pairs)

    def _explaining(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Those that give what was observed in every product."""
        found = []
        for candidate in candidates:
            outcomes = (self.case.outcome(words, candidate) for words in self.tiles)
            pairs = zip(outcomes, self.observed, strict=True)
            if all(codes is not None and np.array_equal(codes, seen) for codes, seen in pairs):
                found.append(candidate)
        return found

    def _singles(self) -> Iterator[Candidate]:
        """Single mistakes that give the probes."""
        a, b, c = (self._variants(roles) for roles in SIDES)
        for down, across in ((a, NOTHING), (NOTHING, b), (c, NOTHING)):
            yield from self._probed(down, across)
        yield from ((one,) for one in self.suspected["d"])
        yield from ((one,) for one in self.misread)

    def _pairs(self) -> Iterator[Candidate]:
        """Pairs of mistakes that give the probes."""
        a, b, c = (self._variants(roles) for roles in SIDES)
        aa, bb, cc = (self._twice(roles) for roles in SIDES)
        for down, across in ((aa, NOTHING), (NOTHING, bb), (cc, NOTHING), (a, b), (a, c), (c, b)):
            self.pairs += len(down) * len(across)
            yield from self._probed(down, across)
        for down, across in ((a, NOTHING), (NOTHING, b), (c, NOTHING)):
            for last in self.suspected["d"]:
                self.pairs += len(down) * len(across)
                yield from self._probed(down, across, last=last)
            for misread in self.misread:
                if not misread.again:
                    self.pairs += len(down) * len(across)
                    yield from self._probed(down, across, misread=misread)
        yield from self._of_results()

    def _of_results(self) -> Iterator[Candidate]:
        """Pairs that need no product of their own: two mistakes with D, or one after a misreading, or two of those."""
        results: list[tuple[Candidate, Codes | None]] = [((), self.right)]
        results += [((one,), self.case.outcome(self.words, (one,))) for one in self.misread]
        last = self.suspected["d"]
        for made, codes in results:
            if codes is None:
                continue
            words = self.operand.pack(codes, raw=True)
            firsts = [(*made, one) for one in last] if not made else [made]
            stack = np.stack([one.change(words) for one in last]) if not made else words[None]
            for second in last:
                self.pairs += len(firsts)
                seen = self.operand.unpack(second.change(stack), raw=True)
                equal = (seen == self.target).reshape(len(firsts), -1).all(axis=1)
                yield from ((*firsts[place], second) for place in np.flatnonzero(equal))
        for one, other in combinations(self.misread, 2):
            if not set(one.words) & set(other.words) and not (one.arch and other.arch):
                self.pairs += 1
                yield one, other

    # ---- variants of one side of the product: what the hardware reads if mistakes are made

    def _variants(self, roles: Sequence[str]) -> _Variants:
        """Every single mistake with the operands of one side."""
        found = []
        for role in roles:
            if some := self.suspected.get(role):
                changed = np.stack([one.change(self.words[role]) for one in some])
                found.append(self._read([(one,) for one in some], {role: changed}))
        return self._joined(roles, found)

    def _twice(self, roles: Sequence[str]) -> _Variants:
        """Every two mistakes with the operands of one side: with one operand one after the other, or with two."""
        found = []
        present = [role for role in roles if self.suspected.get(role)]
        for role in present:
            some = self.suspected[role]
            first = np.stack([one.change(self.words[role]) for one in some])
            changed = np.concatenate([second.change(first) for second in some])
            found.append(self._read([(one, second) for second in some for one in some], {role: changed}))
        for left, right in combinations(present, 2):
            made = [*product(self.suspected[left], self.suspected[right])]
            both = {
                role: np.stack([pair[place].change(self.words[role]) for pair in made])
                for place, role in enumerate((left, right))
            }
            found.append(self._read(made, both))
        return self._joined(roles, found)

    def _read(self, made: Sequence[tuple[Mistake, ...]], changed: dict[str, Words]) -> _Variants:
        """What the hardware reads, without metadata that no hardware takes."""
        legal = np.arange(len(made))
        if "metadata" in changed:
            legal = np.flatnonzero([self._is_legal(words) for words in changed["metadata"]])
        codes = dict(self.case.read(role, words[legal]) for role, words in changed.items())
        return _Variants([made[int(place)] for place in legal], codes)

    def _is_legal(self, metadata: Words) -> bool:
        try:
            self.case.read("metadata", metadata)
        except InvalidSparsity:
            return False
        return True

    def _joined(self, roles: Sequence[str], found: list[_Variants]) -> _Variants:
        """Variants of several operands as one list: what one of them leaves alone is as it should be."""
        made = [one for some in found for one in some.made]
        codes = {}
        for name in ("columns" if role == "metadata" else role for role in roles):
            if name in self.base:
                right = self.base[name]
                parts = [some.codes.get(name, np.broadcast_to(right, (len(some), *right.shape))) for some in found]
                codes[name] = np.concatenate(parts)
        return _Variants(made, codes)

    # ---- probes: one output of all variants at once

    def _probed(
        self, down: _Variants, across: _Variants, *, last: Mistake | None = None, misread: Misreading | None = None
    ) -> Iterator[Candidate]:
        """Every variant of one side with every one of the other, if they give all probes.

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
            outputs = self._outputs(rule, down.some(rows), across.some(cols), int(origin[probe]))
            kept[np.ix_(rows, cols)] &= outputs == target[probe]
        for row, col in np.argwhere(kept):
            made = (*down.made[row], *across.made[col])
            yield (*((misread,) if misread else ()), *made, *((last,) if last else ()))

    def _before(self, last: Mistake | None) -> tuple[NDArray[np.int64], Codes]:
        """Where each element of D comes from if a mistake is made with D, and what it was before that."""
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

    def _outputs(self, rule: Rule, down: _Variants, across: _Variants, place: int) -> Codes:
        """One output of D for all variants: those of A's side are rows of one product, those of B's its columns."""
        number, row, col = (int(i) for i in np.unravel_index(place, (len(self.base["c"]), *self.right.shape[-2:])))
        height, width = len(down), len(across)
        given = {}
        for name, right in self.base.items():
            if name == "c":
                c = right[number, row, col]
                rows, cols = down.codes.get("c"), across.codes.get("c")
                c = c if rows is None else rows[:, number, row, col][:, None]
                c = c if cols is None else cols[:, number, row, col][None]
                given["c"] = np.broadcast_to(c, (height, width))
            elif name in COLS:
                one = across.codes.get(name)
                line = right[None, number, :, col] if one is None else one[:, number, :, col]
                given[name] = np.broadcast_to(line, (width, line.shape[-1])).T
            else:
                one = down.codes.get(name)
                line = right[None, number, row] if one is None else one[:, number, row]
                given[name] = np.broadcast_to(line, (height, line.shape[-1]))
        keys = [np.ascontiguousarray(given[name]).view(np.uint8) for name in ROWS if name in given]
        _, first, back = np.unique(np.concatenate(keys, axis=1), axis=0, return_index=True, return_inverse=True)
        once = {name: codes[first] if name in ROWS else codes for name, codes in given.items()}
        inputs = _Inputs(**{name: np.ascontiguousarray(codes)[None] for name, codes in once.items()})
        outputs: Codes = self.case.run(rule, inputs)[0][back.reshape(-1)]
        return outputs


def _rank(candidate: Candidate) -> tuple[int, list[tuple[bool, int, int]]]:
    """A key that sorts the likeliest first."""
    return sum(KINDS.index(one.kind) for one in candidate), sorted(map(likelihood, candidate))


def _diagnosis(found: Iterable[Candidate], suspected: Iterable[Suspect], pairs: int) -> Diagnosis:
    """The answer. Two mistakes with one operand stand in their order; where either will do, once."""
    findings: dict[frozenset[int], Finding] = {}
    for candidate in sorted(found, key=_rank):
        one_operand = len({one.operand for one in candidate}) == 1
        first, *rest = candidate if one_operand else sorted(candidate, key=likelihood)
        made = [Finding(one.kind, one.operand, one.text) for one in (first, *rest)]
        finding = replace(made[0], second=made[1]) if rest else made[0]
        findings.setdefault(frozenset(map(id, candidate)), finding)
    counts = Counter(one.kind for one in suspected)
    tried = {kind: counts[kind] for kind in KINDS if counts[kind]}
    return Diagnosis(findings.values(), correct=False, tried=tried, pairs=pairs)
