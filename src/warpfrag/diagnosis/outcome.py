"""What a product gives if mistakes are made: evaluates every candidate."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.diagnosis.arithmetic_mistakes import added
from warpfrag.diagnosis.descriptor_mistakes import suspects_in_memory
from warpfrag.diagnosis.mistake_types import Misreading, Mistake
from warpfrag.diagnosis.mistakes import suspects
from warpfrag.diagnosis.word_mistakes import other_choices
from warpfrag.errors import IllegalInstruction, InvalidSparsity, NotModelled
from warpfrag.formats.arrays import as_doubles
from warpfrag.formats.codes import from_codes, to_codes
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.immediates import SELECTED_BY
from warpfrag.isa.legality import arithmetic_arch
from warpfrag.isa.rows import forms
from warpfrag.tensorcore.arithmetic_plan import plan
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.matmul import matmul
from warpfrag.tensorcore.operand import Metadata, Scale
from warpfrag.tensorcore.sparsity import logical_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from warpfrag.diagnosis.explanations import Candidate, Suspect
    from warpfrag.isa.immediates import Immediates
    from warpfrag.isa.patterns import Pattern
    from warpfrag.isa.qualifiers import Form
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import Operand
    from warpfrag.tensorcore.rules import Rule
    from warpfrag.tensorcore.shared_operand import Shared

    Codes = NDArray[Any]
    Words = NDArray[Any]  # registers, or of an operand in shared memory its bytes


@dataclass(frozen=True)
class SuspectProduct:
    """What should have run: the instruction, on an architecture, with these immediates.

    `tiles` are the operands that lie in shared memory. Without `scale_d`, C is not read.
    """

    instruction: Instruction
    arch: str
    choice: Immediates
    tiles: Mapping[str, Shared] = field(default_factory=dict)
    scale_d: bool = True

    @property
    def form(self) -> Form:
        """The words of the instruction."""
        return self.instruction.form

    @property
    def pattern(self) -> Pattern:
        """How A is pruned."""
        return self.instruction.a.sparsity

    def suspects(self, role: str) -> list[Mistake]:
        """Every mistake with an operand, the likeliest first."""
        operand = self.instruction.operands[role]
        if role == "c" and not self.scale_d:
            return []  # it is not read
        if role in self.tiles:
            return [*suspects_in_memory(self._staged(role), self.tiles[role])]
        return [*suspects(operand), *other_choices(operand, self.choice)]

    def axes(self, role: str) -> int:
        """How many axes what one product holds of an operand has: registers of threads, words, or bytes of memory."""
        if role in self.tiles:
            return 1
        return len(self.instruction.operands[role].threads) + (role not in SELECTED_BY)

    def _staged(self, role: str) -> Operand:
        operand: Operand = self.instruction.a if role == "a" else self.instruction.b
        return operand

    def rule(self, suspected: Iterable[Suspect] = ()) -> Rule | None:
        """The rule that runs under some misreadings; None where nobody knows it."""
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
        """What the hardware reads in the registers of a role, and what that is called."""
        operand = self.instruction.operands[role]
        codes: Codes
        batch = words.shape[: -self.axes(role)]
        if role in self.tiles:
            codes = self._staged(role).read(replace(self.tiles[role], memory=words))
        elif isinstance(operand, Metadata):
            fields = operand.unpack(words, **self.choice.of(role))
            codes = logical_columns(self.pattern, fields)
        elif isinstance(operand, Scale):
            codes = operand.unpack(words, **self.choice.of(role), raw=True)
        else:
            codes = operand.unpack(words, raw=True)
        return "columns" if role == "metadata" else role, codes.reshape(*batch, -1, *codes.shape[-2:])

    def inputs(self, words: Mapping[str, Words]) -> ProductOperands:
        """What the hardware reads in all registers: one product, but four for m8n8k4."""
        read = ProductOperands(**dict(self.read(role, array) for role, array in words.items()))
        return read if self.scale_d else read._replace(c=np.zeros_like(read.c))

    def right(self, words: Mapping[str, Words]) -> Codes:
        """D's codes for one product if no mistake is made."""
        rule = plan(self.form, self.arch).rule  # or the refusal, where nobody knows it
        return self.run(rule, self.inputs(words)).reshape(self.instruction.d.shape)

    def outcome(self, words: Mapping[str, Words], candidate: Candidate) -> Codes | None:
        """D's codes for one product if these mistakes are made; None where they cannot be."""
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
        """D's codes for one product; where a rule has other accumulators, converted on the way in and out."""
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
    """The terms in the order of k that misreadings say."""
    for mistake in candidate:
        if isinstance(mistake, Misreading) and mistake.k_order:
            order = list(mistake.k_order)
            inputs = inputs._replace(a=inputs.a[..., order], b=inputs.b[..., order, :])
    return inputs
