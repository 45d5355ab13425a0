"""wgmma calls in kernels: registers, shared-memory bytes, descriptors and constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypedDict

import numpy as np

from warpfrag.formats.arrays import Bytes, Words
from warpfrag.isa.immediates import Immediates


@dataclass(frozen=True)
class Variant:
    """The constants of an assembled kernel: where A is stored, and the immediates. Pairs are for A and B."""

    staged: bool = True  # True if A is in shared memory
    trans: tuple[bool, bool] = (False, False)
    negate: tuple[bool, bool] = (False, False)
    selector: int = 0

    def suffix(self, *, sparse: bool) -> str:
        """Return the suffix of the kernel's name."""
        parts = [f"selector{self.selector}"] if sparse else []
        parts += [] if self.staged else ["registers"]
        parts += [f"{role}_mn" for role, is_turned in zip("ab", self.trans, strict=True) if is_turned]
        parts += [f"minus_{role}" for role, is_negated in zip("ab", self.negate, strict=True) if is_negated]
        return "".join(f"_{part}" for part in parts)

    @property
    def description(self) -> str:
        """A description for a report, without the selector."""
        parts = ["A in shared memory" if self.staged else "A in registers"]
        parts += [f"{role} MN-major" for role, is_turned in zip("AB", self.trans, strict=True) if is_turned]
        parts += [f"-{role}" for role, is_negated in zip("AB", self.negate, strict=True) if is_negated]
        return ", ".join(parts)


KernelVariant: TypeAlias = Immediates | Variant
"""The constants of a kernel, which are immediates unless it executes wgmma."""


USUAL = Variant()


class WgmmaCallRow(TypedDict):
    """A call as stored in a capture file; the entry has the selector, and descriptors are in hex."""

    staged: bool
    trans: list[bool]
    negate: list[bool]
    descriptors: list[str]
    scale_d: bool


@dataclass(frozen=True)
class WgmmaCall:
    """The arguments of a wgmma other than its registers and the bytes of shared memory."""

    variant: Variant
    descriptors: tuple[int, int]  # of A (0 if it is in registers) and B
    scale_d: bool = True

    @property
    def row(self) -> WgmmaCallRow:
        """The call as a row of a capture file."""
        variant = self.variant
        return {
            "staged": variant.staged,
            "trans": [*variant.trans],
            "negate": [*variant.negate],
            "descriptors": [hex(word) for word in self.descriptors],
            "scale_d": bool(self.scale_d),
        }

    @classmethod
    def read(cls, row: WgmmaCallRow, selector: int) -> WgmmaCall:
        """Parse a row of a capture file; raise an error if it is malformed."""
        (trans_a, trans_b), (negate_a, negate_b) = row["trans"], row["negate"]
        flags = (row["staged"], trans_a, trans_b, negate_a, negate_b, row["scale_d"])
        if not all(isinstance(flag, bool) for flag in flags):
            raise ValueError(f"expected true and false in a call, got {flags}")
        a, b = (int(word, 16) for word in row["descriptors"])
        return cls(Variant(row["staged"], (trans_a, trans_b), (negate_a, negate_b), selector), (a, b), row["scale_d"])

    def stage(self, arrays: Mapping[str, Words]) -> WgmmaCases:
        """Return the cases that these registers and shared memory define."""
        words = {role: array for role, array in arrays.items() if role != "shared"}
        shared = np.ascontiguousarray(arrays["shared"]).view(np.uint8)
        return WgmmaCases(self.variant, words, shared, self.descriptors, self.scale_d)


@dataclass(frozen=True, eq=False)
class WgmmaCases:
    """Cases of one wgmma that share a kernel, descriptors and scale-d.

    `words` has the registers uint32[cases, 4, 32, words] of c, and of a if it is in registers, and the metadata
    uint32[cases, 4, 32]; `shared` is uint8[cases, bytes]. The descriptors are those of A (0 if it is in registers) and
    B.
    """

    variant: Variant
    words: dict[str, Words]
    shared: Bytes
    descriptors: tuple[int, int]
    scale_d: bool = True

    @property
    def call(self) -> WgmmaCall:
        """The call, without the arrays."""
        return WgmmaCall(self.variant, self.descriptors, self.scale_d)

    @property
    def cases(self) -> int:
        """The number of cases."""
        return len(self.shared)

    @property
    def arrays(self) -> dict[str, Words]:
        """The registers, and `shared` as 32-bit integers."""
        return {**self.words, "shared": np.ascontiguousarray(self.shared).view(np.uint32)}
