"""Find the spellings near those that ptxas wrote, so that a probe covers them before a kernel contains them.

A variant is an encoding that differs in the operand forms or in a bit, or in two of these. It is kept if ptxas wrote
the opcode with the same modifiers in another spelling, and each of its operand forms at the same index of the same
opcode. Variants with other modifiers are mostly illegal on the GPU.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from tools.sass import probes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CHANGES = (*(forms << 9 for forms in range(1, 8)), *(1 << bit for bit in range(16, 105)))
"""The changes of an encoding: the three operand-form bits of the opcode field together, or any other single bit."""
BATCH = 10_000


class SeenParts:
    """The opcodes that ptxas wrote, with their modifiers, and the forms of their operands."""

    def __init__(self, spellings: Iterable[str]) -> None:
        """Collect the parts of spellings."""
        self.names: set[str] = set()
        self.forms: dict[tuple[str, int, int], set[str]] = defaultdict(set)
        for spelling in spellings:
            name, forms = parts_of(spelling)
            self.names.add(name)
            for index, form in enumerate(forms):
                self.forms[name.partition(".")[0], len(forms), index].add(form)

    def has(self, spelling: str) -> bool:
        """Return True if all parts of a spelling were seen."""
        name, forms = parts_of(spelling)
        opcode = name.partition(".")[0]
        return name in self.names and all(
            form in self.forms.get((opcode, len(forms), index), ()) for index, form in enumerate(forms)
        )


def parts_of(spelling: str) -> tuple[str, list[str]]:
    """Return the opcode with its modifiers, and the operand forms of a spelling."""
    name, _, operands = spelling.partition(" ")
    return name, operands.split(",")


def kept_variants(encodings: Sequence[int], seen: SeenParts) -> dict[str, int]:
    """Return the spellings of legal encodings all of whose parts were seen, each with an encoding."""
    decoded = (inst for inst in probes.decode_legal(encodings) if inst is not None)
    return {inst.spelling: inst.encoding for inst in decoded if seen.has(inst.spelling)}


def variants_of(
    examples: dict[str, list[int]], compared: Iterable[str], levels: int, workers: int
) -> dict[str, list[int]]:
    """Return the spellings that are up to `levels` changes away from examples, and whose parts were all seen."""
    seen = SeenParts([*examples, *compared])
    found: dict[str, list[int]] = {}
    near = examples
    with ProcessPoolExecutor(workers) as pool:
        for _ in range(levels):
            changed = list(dict.fromkeys(codes[0] ^ change for codes in near.values() for change in CHANGES))
            parts = [changed[start : start + BATCH] for start in range(0, len(changed), BATCH)]
            near = {}
            for part in pool.map(kept_variants, parts, [seen] * len(parts)):
                near |= {name: [code] for name, code in part.items() if name not in examples and name not in found}
            found |= near
            print(f"{len(near)} spellings from {len(changed)} encodings", flush=True)
    return found
