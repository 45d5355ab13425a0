"""Find the spellings near those that ptxas wrote, so that a probe covers them before a kernel contains them.

A variant is an encoding that differs in a bit or two. It is kept if ptxas wrote each of its modifiers, and each form of
an operand at this index, with the same opcode in some other spelling.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from tools.sass import probes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BITS = (*range(9, 12), *range(16, 105))
"""The bits of an encoding that variants change: the operand forms in the opcode field, operands and modifiers."""
BATCH = 10_000


class SeenParts:
    """The modifiers of each opcode, and the forms of its operands, that ptxas wrote."""

    def __init__(self, spellings: Iterable[str]) -> None:
        """Collect the parts of spellings."""
        self.modifiers: dict[str, set[str]] = defaultdict(set)
        self.forms: dict[tuple[str, int, int], set[str]] = defaultdict(set)
        for spelling in spellings:
            opcode, modifiers, forms = parts_of(spelling)
            self.modifiers[opcode].update(modifiers)
            for index, form in enumerate(forms):
                self.forms[opcode, len(forms), index].add(form)

    def has(self, spelling: str) -> bool:
        """Return True if all parts of a spelling were seen."""
        opcode, modifiers, forms = parts_of(spelling)
        return self.modifiers.get(opcode, set()).issuperset(modifiers) and all(
            form in self.forms.get((opcode, len(forms), index), ()) for index, form in enumerate(forms)
        )


def parts_of(spelling: str) -> tuple[str, list[str], list[str]]:
    """Return the opcode, the modifiers and the operand forms of a spelling."""
    head, _, operands = spelling.partition(" ")
    opcode, *modifiers = head.split(".")
    return opcode, modifiers, operands.split(",")


def kept_variants(encodings: Sequence[int], seen: SeenParts) -> dict[str, int]:
    """Return the spellings of legal encodings that have seen parts only, each with an encoding."""
    decoded = (inst for inst in probes.decode_legal(encodings) if inst is not None)
    return {inst.spelling: inst.encoding for inst in decoded if seen.has(inst.spelling)}


def variants_of(examples: dict[str, list[int]], levels: int, workers: int) -> dict[str, list[int]]:
    """Return the spellings that differ from examples in up to `levels` bits and have seen parts only."""
    seen = SeenParts(examples)
    found: dict[str, list[int]] = {}
    near = examples
    with ProcessPoolExecutor(workers) as pool:
        for _ in range(levels):
            changed = list(dict.fromkeys(codes[0] ^ 1 << bit for codes in near.values() for bit in BITS))
            parts = [changed[start : start + BATCH] for start in range(0, len(changed), BATCH)]
            near = {}
            for part in pool.map(kept_variants, parts, [seen] * len(parts)):
                near |= {name: [code] for name, code in part.items() if name not in examples and name not in found}
            found |= near
            print(f"{len(near)} spellings from {len(changed)} encodings", flush=True)
    return found
