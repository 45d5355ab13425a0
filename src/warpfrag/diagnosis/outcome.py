"""The result of an mma in which mistakes are made: one candidate at a time, or many variants of one side at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from warpfrag.diagnosis.arithmetic_mistakes import added
from warpfrag.diagnosis.descriptor_mistakes import suspects_in_memory
from warpfrag.diagnosis.findings import Candidate, Codes, Misreading, Mistake, Suspect, Words
from warpfrag.diagnosis.mistakes import suspects
from warpfrag.diagnosis.register_mistakes import chosen_codes, other_choices
from warpfrag.errors import IllegalInstruction, InvalidSparsity, NotModelled
from warpfrag.formats.arrays import as_doubles
from warpfrag.formats.codes import from_codes, to_codes
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.immediates import SELECTED_BY, Immediates, part_of
from warpfrag.isa.legality import arithmetic_arch
from warpfrag.isa.patterns import Pattern
from warpfrag.isa.qualifiers import Form
from warpfrag.isa.rows import forms
from warpfrag.tensorcore.arithmetic_plan import plan
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.matmul import matmul
from warpfrag.tensorcore.operand import Metadata, Operand, Scale
from warpfrag.tensorcore.rules import Rule
from warpfrag.tensorcore.shared_operand import Shared
from warpfrag.tensorcore.sparsity import logical_columns


@dataclass(frozen=True)
class SuspectProduct:
    """The intended instruction, with its architecture and immediates.

    `tiles` are the operands in shared memory. Without `scale_d`, C is not read.
    """

    instruction: Instruction
    arch: str
    choice: Immediates
    tiles: Mapping[str, Shared] = field(default_factory=dict)
    scale_d: bool = True

    @property
    def form(self) -> Form:
        """The form of the instruction."""
        return self.instruction.form

    @property
    def pattern(self) -> Pattern:
        """The sparsity pattern of A."""
        return self.instruction.a.sparsity

    def suspects(self, role: str) -> list[Mistake]:
        """Return every mistake with an operand, the likeliest first."""
        operand = self.instruction.operands[role]
        if role == "c" and not self.scale_d:
            return []  # it is not read
        if role in self.tiles:
            return [*suspects_in_memory(self._staged(role), self.tiles[role])]
        return [*suspects(operand), *other_choices(operand, self.choice)]

    def axes(self, role: str) -> int:
        """Return the number of array axes of one operand of one product: threads and words, or bytes."""
        if role in self.tiles:
            return 1
        return len(self.instruction.operands[role].threads) + (role not in SELECTED_BY)

    def _staged(self, role: str) -> Operand:
        operand: Operand = self.instruction.a if role == "a" else self.instruction.b
        return operand

    def rule(self, suspected: Iterable[Suspect] = ()) -> Rule | None:
        """Return the arithmetic rule under some misreadings; None if it is unknown."""
        form, arch = self.form, self.arch
        for suspect in suspected:
            if isinstance(suspect, Misreading):
                form, arch = replace(form, **suspect.words), suspect.arch or arch  # type: ignore[arg-type] # words of a name
        if form not in forms():
            return None
        with suppress(NotModelled, IllegalInstruction):
            return plan(form, arithmetic_arch(form, arch)).rule
        return None

    def read(self, role: str, words: Words) -> tuple[str, Codes]:
        """Return the codes that the hardware reads from the registers of an operand, and their name."""
        operand = self.instruction.operands[role]
        codes: Codes
        batch = words.shape[: -self.axes(role)]
        if role in self.tiles:
            codes = self._staged(role).read(replace(self.tiles[role], memory=words))
        elif isinstance(operand, Metadata | Scale):
            codes = chosen_codes(operand, words, part_of(self.choice, role))
            codes = logical_columns(self.pattern, codes) if isinstance(operand, Metadata) else codes
        else:
            codes = operand.unpack(words, raw=True)
        return "columns" if role == "metadata" else role, codes.reshape(*batch, -1, *codes.shape[-2:])

    def inputs(self, words: Mapping[str, Words]) -> ProductOperands:
        """Return the codes that the hardware reads: of one product, or of the four of m8n8k4."""
        read = ProductOperands(**dict(self.read(role, array) for role, array in words.items()))
        return read if self.scale_d else read._replace(c=np.zeros_like(read.c))

    def right(self, words: Mapping[str, Words]) -> Codes:
        """Return D's codes for one product without mistakes."""
        rule = plan(self.form, self.arch).rule  # raises if the rule is unknown
        return self.run(rule, self.inputs(words)).reshape(self.instruction.d.shape)

    def outcome(self, words: Mapping[str, Words], candidate: Candidate) -> Codes | None:
        """Return D's codes for one product with these mistakes; None if they are impossible."""
        rule = self.rule(candidate)
        made = {**words}
        for mistake in candidate:
            if isinstance(mistake, Mistake) and mistake.operand != "d":
                made[mistake.operand] = mistake.change(made[mistake.operand])
        if rule is None:
            return None
        try:
            inputs = self.inputs(made)
        except InvalidSparsity:
            return None
        inputs = _reordered(inputs, candidate)
        operand = self.instruction.d
        codes = self.run(rule, inputs)
        for mistake in candidate:
            if isinstance(mistake, Misreading) and mistake.again == "product":
                codes = self.run(rule, inputs._replace(c=codes))
            elif isinstance(mistake, Misreading) and mistake.again == "scale_d":
                codes = self.run(rule, inputs._replace(c=self.read("c", made["c"])[1]))
            elif isinstance(mistake, Misreading) and mistake.again == "c":
                codes = added(operand, codes, inputs.c)
        codes = codes.reshape(operand.shape)
        for mistake in candidate:
            if isinstance(mistake, Mistake) and mistake.operand == "d":
                codes = operand.unpack(mistake.change(operand.pack(codes, raw=True)), raw=True)
        return codes

    def run(self, rule: Rule, inputs: ProductOperands) -> Codes:
        """Return D's codes for one product; C and D are converted if the rule has other accumulators."""
        mine, its = self.instruction.operands, (FORMATS[rule.c], FORMATS[rule.d])
        c = inputs.c
        if its[0] is not mine.c.format:
            c = to_codes(its[0], as_doubles(from_codes(mine.c.format, c)), rounding="rne")
        extra = {name: getattr(inputs, name) for name in ("columns", "scale_a", "scale_b")}
        codes = matmul(rule, inputs.a, inputs.b, c, **extra)
        if its[1] is not mine.d.format:
            codes = to_codes(mine.d.format, as_doubles(from_codes(its[1], codes)), rounding="rne")
        return codes


def _reordered(inputs: ProductOperands, candidate: Candidate) -> ProductOperands:
    """Return the inputs with the terms in the k order of misreadings."""
    for mistake in candidate:
        if isinstance(mistake, Misreading) and mistake.k_order:
            order = list(mistake.k_order)
            inputs = inputs._replace(a=inputs.a[..., order], b=inputs.b[..., order, :])
    return inputs


# ---- many variants at once


PIECE = 1 << 21  # bytes of registers
SIDES = (("a", "metadata", "scale_a"), ("b", "scale_b"), ("c",))
"""The operands that give the rows of a product, those that give its columns, and C."""


@dataclass(frozen=True)
class Variants:
    """Mistakes with one side of a product, and the codes that the hardware then reads: [variant, product, row, col]."""

    made: Sequence[tuple[Mistake, ...]]
    codes: Mapping[str, Codes]

    def __len__(self) -> int:
        """The number of variants."""
        return len(self.made)


NOTHING = Variants([()], {})


@dataclass(frozen=True)
class ProductSide:
    """The operands of one side: their registers, the mistakes with each, and the codes without mistakes."""

    case: SuspectProduct
    words: Mapping[str, Words]
    suspected: Mapping[str, Sequence[Mistake]]
    right: Mapping[str, Codes]

    def once(self) -> Variants:
        """Return every single mistake."""
        return self._joined(self._once(role, some) for role, some in self.suspected.items() if some)

    def in_pieces(self) -> Iterator[Variants]:
        """Yield every single mistake, in pieces that fit into a core's cache."""
        for role, some in self.suspected.items():
            at_once = max(1, PIECE // self.words[role].nbytes)
            for start in range(0, len(some), at_once):
                yield self._joined(iter([self._once(role, some[start : start + at_once])]))

    def _once(self, role: str, some: Sequence[Mistake]) -> Variants:
        return self._read([(mistake,) for mistake in some], {role: self._changed(role, some)})

    def twice(self) -> Variants:
        """Return every pair of mistakes: with one operand one after the other, or with two operands."""
        return self._joined(self._twice())

    def _twice(self) -> Iterator[Variants]:
        changed = {role: self._changed(role, some) for role, some in self.suspected.items() if some}
        for role, first in changed.items():
            some = self.suspected[role]
            again = np.concatenate([second.change(first) for second in some])
            yield self._read([(first, second) for second in some for first in some], {role: again})
        for left, right in combinations(changed, 2):
            made = [*product(self.suspected[left], self.suspected[right])]
            outer, inner = len(changed[left]), len(changed[right])
            each = {left: np.repeat(np.arange(outer), inner), right: np.tile(np.arange(inner), outer)}
            yield self._read(made, {role: changed[role][places] for role, places in each.items()})

    def _changed(self, role: str, some: Sequence[Mistake]) -> Words:
        """Return the registers of an operand with each of several mistakes."""
        return np.stack([mistake.change(self.words[role]) for mistake in some])

    def _read(self, made: Sequence[tuple[Mistake, ...]], changed: Mapping[str, Words]) -> Variants:
        """Return the codes that the hardware reads, without variants whose metadata is illegal."""
        legal = np.arange(len(made))
        if "metadata" in changed:
            legal = np.flatnonzero(self._are_legal(changed["metadata"]))
        codes = dict(self.case.read(role, words[legal]) for role, words in changed.items())
        return Variants([made[int(place)] for place in legal], codes)

    def _are_legal(self, metadata: Words) -> NDArray[np.bool_]:
        """Return a mask of the metadata words in which every code that is read is legal."""
        fields = self.case.instruction.metadata.unpack(metadata, **part_of(self.case.choice, "metadata"))
        known = self.case.pattern.columns
        return np.asarray(np.isin(fields, [*known]).reshape(len(metadata), -1).all(axis=1))

    def _joined(self, variants: Iterator[Variants]) -> Variants:
        """Join the variants of several operands; the operands that a variant does not change are right."""
        parts = [*variants]
        codes = {}
        for name, right in self.right.items():
            read = [some.codes.get(name, np.broadcast_to(right, (len(some), *right.shape))) for some in parts]
            codes[name] = read[0] if len(read) == 1 else np.concatenate([right[None][:0], *read])
        return Variants([candidate for some in parts for candidate in some.made], codes)
