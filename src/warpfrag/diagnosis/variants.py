"""What the hardware reads if mistakes are made with one side of a product: every variant at once, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from warpfrag.diagnosis.mistake_types import Mistake
    from warpfrag.diagnosis.outcome import Codes, SuspectProduct, Words

PIECE = 1 << 21  # bytes of registers
SIDES = (("a", "metadata", "scale_a"), ("b", "scale_b"), ("c",))
"""The operands that give the rows of a product, those that give its columns, and what it starts from."""


@dataclass(frozen=True)
class Variants:
    """Some mistakes with one side of a product, and what the hardware then reads: [variant, product, row, col]."""

    made: Sequence[tuple[Mistake, ...]]
    codes: Mapping[str, Codes]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.made)


NOTHING = Variants([()], {})


@dataclass(frozen=True)
class ProductSide:
    """The operands of one side: their registers, what may have gone wrong with each, and what is read if nothing is."""

    case: SuspectProduct
    words: Mapping[str, Words]
    suspected: Mapping[str, Sequence[Mistake]]
    right: Mapping[str, Codes]

    def once(self) -> Variants:
        """Every single mistake."""
        return self._joined(self._once(role, some) for role, some in self.suspected.items() if some)

    def in_pieces(self) -> Iterator[Variants]:
        """Every single mistake, so many at once as stay in a core's cache."""
        for role, some in self.suspected.items():
            at_once = max(1, PIECE // self.words[role].nbytes)
            for start in range(0, len(some), at_once):
                yield self._joined(iter([self._once(role, some[start : start + at_once])]))

    def _once(self, role: str, some: Sequence[Mistake]) -> Variants:
        return self._read([(mistake,) for mistake in some], {role: self._changed(role, some)})

    def twice(self) -> Variants:
        """Every two mistakes: with one operand one after the other, or with two."""
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
        """The registers of an operand with each of some mistakes."""
        return np.stack([mistake.change(self.words[role]) for mistake in some])

    def _read(self, made: Sequence[tuple[Mistake, ...]], changed: Mapping[str, Words]) -> Variants:
        """What the hardware reads, without metadata that no hardware takes."""
        legal = np.arange(len(made))
        if "metadata" in changed:
            legal = np.flatnonzero(self._are_legal(changed["metadata"]))
        codes = dict(self.case.read(role, words[legal]) for role, words in changed.items())
        return Variants([made[int(place)] for place in legal], codes)

    def _are_legal(self, metadata: Words) -> NDArray[np.bool_]:
        """Which words of some hold only codes that mean something, where they are read."""
        fields = self.case.instruction.metadata.unpack(metadata, **self.case.choice.of("metadata"))
        known = self.case.pattern.columns
        return np.asarray(np.isin(fields, [*known]).reshape(len(metadata), -1).all(axis=1))

    def _joined(self, variants: Iterator[Variants]) -> Variants:
        """Variants of several operands as one list: what one of them leaves alone is as it should be."""
        parts = [*variants]
        codes = {}
        for name, right in self.right.items():
            read = [some.codes.get(name, np.broadcast_to(right, (len(some), *right.shape))) for some in parts]
            codes[name] = read[0] if len(read) == 1 else np.concatenate([right[None][:0], *read])
        return Variants([candidate for some in parts for candidate in some.made], codes)
