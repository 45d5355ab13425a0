"""The arithmetic of tensor cores: a small set of rules, each with a few parameters.

    Fused      products and C aligned to the largest exponent, truncated, added, rounded once per step
    BlockScaled  the same, with a power of two for each block of A's row and B's column
    Grouped    exact sums of groups of 4-bit products, each times its scale factors, then one truncated sum
    Chain      a chain of four ordinary f32 multiply-adds (m8n8k4 in software)
    Fma64      a chain of f64 fused multiply-adds
    IntegerSum  an exact sum, wrapped or clamped
    Popcount   C plus the number of ones in A xor B, or in A and B

A rule defines how one output is computed. The output depends only on one row of A, one column of B and one C; a
longer K is a chain, in which each D is the next C. `reference` interprets a rule for one output at a time;
a backend compiles it into a kernel for many outputs. Neither depends on PTX names or architectures.
"""

from dataclasses import dataclass
from typing import Literal

StepRounding = Literal["RZ-FP32", "RZ-E8M13", "RNE-FP16"]
Direction = Literal["rn", "rz", "rm", "rp"]
BitOperation = Literal["xor", "and"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The base class of rules: K of one instruction, the formats, and `is_sparse` if A is stored without its zeros."""

    k: int
    a: str
    b: str
    c: str
    d: str
    is_sparse: bool = False
    scales: int = 0
    """The number of scale factors per row of A and column of B in one instruction."""
    scale_format: str = ""

    @property
    def stored(self) -> int:
        """The number of stored elements per row of A in one instruction."""
        return self.k // 2 if self.is_sparse else self.k


@dataclass(frozen=True)
class AlignedSum:
    """The addition of the terms of one step; the fields are those of `tables/arithmetic_units.toml`."""

    fraction_bits: int
    zero_exponent: int
    rounding: StepRounding
    accumulator: str
    nan: int


@dataclass(frozen=True, kw_only=True)
class Fused(Rule):
    """Truncated fused dot-product-adds, one per step.

    A step is a tuple of indices: the stored elements of A's row whose products it adds. The first step adds to C, or to
    zero if `adds_c_last`; each later step adds to the result of the previous one. A and B are first converted to the
    formats `multiplicands`, and C to `c_read_as`. If D and the accumulator have different formats, the result is
    rounded to that of D.
    """

    sum: AlignedSum
    steps: tuple[tuple[int, ...], ...]
    multiplicands: tuple[str, str]
    c_read_as: str
    adds_c_last: bool = False


@dataclass(frozen=True, kw_only=True)
class BlockScaled(Fused):
    """A fused rule whose products are multiplied by powers of two, the scale factors of their blocks."""


@dataclass(frozen=True, kw_only=True)
class Grouped(Rule):
    """Groups of products summed exactly, scaled, then truncated and added like the terms of a fused step."""

    sum: AlignedSum
    group: int


@dataclass(frozen=True, kw_only=True)
class Chain(Rule):
    """m8n8k4 in software, as `reference.chain_f32` or `reference.chain_f16`, depending on D's format."""


@dataclass(frozen=True, kw_only=True)
class Fma64(Rule):
    """A chain of f64 operations c = fma(a, b, c), with k ascending."""

    rounding: Direction


@dataclass(frozen=True, kw_only=True)
class IntegerSum(Rule):
    """The exact sum of C and all products, clamped once to 32 bits or wrapped."""

    clamps: bool


@dataclass(frozen=True, kw_only=True)
class Popcount(Rule):
    """C plus the number of ones in A `operation` B, wrapped to 32 bits."""

    operation: BitOperation
