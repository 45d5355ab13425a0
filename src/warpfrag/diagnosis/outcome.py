"""Compute the result of an mma that has a mistake."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from warpfrag.diagnosis.arithmetic_mistakes import added
from warpfrag.diagnosis.descriptor_mistakes import suspects_in_memory
from warpfrag.diagnosis.findings import Codes, Misreading, Mistake, Suspect, Words
from warpfrag.diagnosis.mistakes import suspects
from warpfrag.diagnosis.register_mistakes import chosen_codes, other_choices
from warpfrag.errors import IllegalInstruction, InvalidSparsity, NotModelled
from warpfrag.formats.arrays import as_doubles
from warpfrag.formats.codes import from_codes, to_codes
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.immediates import SELECTED_BY, Immediates, part_of
from warpfrag.isa.instruction_table import forms
from warpfrag.isa.qualifiers import Form
from warpfrag.isa.sparsity_patterns import Pattern
from warpfrag.tensorcore.arithmetic_plan import arithmetic_arch, plan
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
        """Return every mistake with an operand, most likely first."""
        operand = self.instruction.operands[role]
        if role == "c" and not self.scale_d:
            return []  # C is not read, so mistakes with it have no effect
        if role in self.tiles:
            return [*suspects_in_memory(self._staged(role), self.tiles[role])]
        return [*suspects(operand), *other_choices(operand, self.choice)]

    def axes(self, role: str) -> int:
        """Return the number of array axes of an operand in one mma: threads and registers, or bytes."""
        if role in self.tiles:
            return 1
        return len(self.instruction.operands[role].threads) + (role not in SELECTED_BY)

    def _staged(self, role: str) -> Operand:
        return self.instruction.a if role == "a" else self.instruction.b

    def rule(self, suspect: Suspect | None = None) -> Rule | None:
        """Return the arithmetic rule, or that of a misreading if one is given; None if it is unknown."""
        form, arch = self.form, self.arch
        if isinstance(suspect, Misreading):
            form, arch = replace(form, **suspect.words), suspect.arch or arch  # type: ignore[arg-type] # the keys are fields of Form
        if form not in forms():
            return None
        with suppress(NotModelled, IllegalInstruction):
            return plan(form, arithmetic_arch(form, arch)).rule
        return None

    def read(self, role: str, words: Words) -> tuple[str, Codes]:
        """Return the name of an input of the rule, and the codes that the hardware reads for it from `words`."""
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
        """Return the codes that the hardware reads for one mma (m8n8k4 consists of four matrix multiplications)."""
        read = ProductOperands(**dict(self.read(role, array) for role, array in words.items()))
        return read if self.scale_d else read._replace(c=np.zeros_like(read.c))

    def unsigned(self, inputs: ProductOperands) -> ProductOperands:
        """Return the codes of |A|, |B| and |C|."""
        roles = self.instruction.operands
        signs = {role: getattr(inputs, role).dtype.type(roles[role].format.sign_bit) for role in "abc"}
        return inputs._replace(**{role: getattr(inputs, role) & ~sign for role, sign in signs.items()})

    def right(self, words: Mapping[str, Words], *, magnitude: bool = False) -> Codes:
        """Return the codes of D, or of |A||B| + |C|, for one mma without mistakes."""
        rule, inputs = plan(self.form, self.arch).rule, self.inputs(words)  # raises an error if the rule is unknown
        return self.run(rule, self.unsigned(inputs) if magnitude else inputs).reshape(self.instruction.d.shape)

    def outcome(self, words: Mapping[str, Words], suspect: Suspect, *, magnitude: bool = False) -> Codes | None:
        """Return the codes of D, or of |A||B| + |C|, for one mma with this mistake; None if it is impossible."""
        rule, operand = self.rule(suspect), self.instruction.d
        made = {**words}
        if isinstance(suspect, Mistake) and suspect.operand != "d":
            made[suspect.operand] = suspect.change(made[suspect.operand])
        if rule is None:
            return None
        try:
            inputs = self.inputs(made)
        except InvalidSparsity:
            return None
        inputs = self.unsigned(inputs) if magnitude else inputs
        if isinstance(suspect, Mistake):
            codes = self.run(rule, inputs).reshape(operand.shape)
            is_last = suspect.operand == "d"
            return operand.unpack(suspect.change(operand.pack(codes, raw=True)), raw=True) if is_last else codes
        if suspect.k_order:
            order = list(suspect.k_order)
            inputs = inputs._replace(a=inputs.a[..., order], b=inputs.b[..., order, :])
        codes = self.run(rule, inputs)
        if suspect.again == "product":
            codes = self.run(rule, inputs._replace(c=codes))
        elif suspect.again == "scale_d":
            codes = self.run(rule, inputs._replace(c=self.read("c", made["c"])[1]))
        elif suspect.again == "c":
            codes = added(operand, codes, inputs.c)
        return codes.reshape(operand.shape)

    def run(self, rule: Rule, inputs: ProductOperands) -> Codes:
        """Return the codes of D for one mma; C and D are converted if the rule has other accumulators."""
        mine, its = self.instruction.operands, (FORMATS[rule.c], FORMATS[rule.d])
        c = inputs.c
        if its[0] is not mine.c.format:
            c = to_codes(its[0], as_doubles(from_codes(mine.c.format, c)), rounding="rne")
        extra = {name: getattr(inputs, name) for name in ("columns", "scale_a", "scale_b")}
        codes = matmul(rule, inputs.a, inputs.b, c, **extra)
        if its[1] is not mine.d.format:
            codes = to_codes(mine.d.format, as_doubles(from_codes(its[1], codes)), rounding="rne")
        return codes

    def changed(self, role: str, words: Words, mistakes: Sequence[Mistake]) -> tuple[list[Mistake], str, Codes]:
        """Return the mistakes that leave metadata legal, the name of the changed input, and its codes."""
        stack = np.stack([mistake.change(words) for mistake in mistakes])
        if role == "metadata":
            fields = self.instruction.metadata.unpack(stack, **part_of(self.choice, role))
            legal = np.flatnonzero(np.isin(fields, [*self.pattern.columns]).reshape(len(stack), -1).all(axis=1))
            mistakes = [mistakes[int(index)] for index in legal]
            stack = stack[legal]
        return [*mistakes], *self.read(role, stack)
