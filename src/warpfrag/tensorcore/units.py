"""The numbers of a tensor-core unit: rows of `tables/arithmetic.toml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from warpfrag.formats.number_formats import FORMATS
from warpfrag.tables import read_table

RuleName = Literal["fused", "scaled", "grouped"]
Rounding = Literal["RZ-FP32", "RZ-E8M13", "RNE-FP16"]
Level = Literal["specified", "published", "hardware"]


@dataclass(frozen=True)
class ArithmeticUnit:
    """How one machine instruction adds up; the fields are explained at the top of the table."""

    unit: str
    arch: tuple[str, ...]
    operands: tuple[str, ...]
    accumulator: str
    rule: RuleName
    fraction_bits: int
    products: int
    rounding: Rounding
    zero_exponent: int
    nan: int
    source: str
    level: Level
    group: int = 0

    def __post_init__(self) -> None:
        """Refuse a row that names what does not exist or contradicts itself."""
        unknown = [name for name in (*self.operands, self.accumulator) if name not in FORMATS]
        if unknown:
            msg = f"unit {self.unit}: unknown formats {unknown}"
            raise ValueError(msg)
        if (self.rounding == "RNE-FP16") != (self.accumulator == "f16"):
            msg = f"unit {self.unit}: rounding {self.rounding} does not give {self.accumulator}"
            raise ValueError(msg)
        if (self.rule == "grouped") != (self.group > 0):
            msg = f"unit {self.unit}: only the grouped rule has groups"
            raise ValueError(msg)


@cache
def read_units() -> tuple[ArithmeticUnit, ...]:
    """Every row of the table, checked."""
    rows = read_table("arithmetic")["unit"]
    return tuple(
        ArithmeticUnit(**{**row, "arch": tuple(row["arch"]), "operands": tuple(row["operands"])}) for row in rows
    )


def find_unit(name: str, arch: str, operand_a: str, operand_b: str, accumulator: str) -> ArithmeticUnit | None:
    """The row for this unit, architecture and formats, or None."""
    for unit in read_units():
        formats_fit = operand_a in unit.operands and operand_b in unit.operands and unit.accumulator == accumulator
        if unit.unit == name and arch in unit.arch and formats_fit:
            return unit
    return None
