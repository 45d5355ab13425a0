"""The rule that the written steps of a row of `tables/lowering.toml` mean for an instruction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warpfrag.isa.qualifiers import Form
from warpfrag.tensorcore.rules import (
    AlignedSum,
    BitOperation,
    Chain,
    Direction,
    Fma64,
    Fused,
    Grouped,
    IntegerSum,
    Popcount,
    Rule,
    Scaled,
)
from warpfrag.tensorcore.units import ArithmeticUnit

if TYPE_CHECKING:
    Steps = tuple[dict[str, Any], ...]

BIT_OPERATIONS: dict[str, BitOperation] = {"xor": "xor", "and": "and"}
DIRECTIONS: dict[str, Direction] = {"": "rn", "rz": "rz", "rm": "rm", "rp": "rp"}
"""What the words of an instruction mean; without one, f64 is rounded to nearest."""


def make_rule(instruction: Form, multiplicands: tuple[str, str], unit: ArithmeticUnit | None, written: Steps) -> Rule:
    """The rule. `multiplicands` are the formats that A and B have when they are multiplied, `unit` has the numbers."""
    steps = {step["do"]: step for step in written}
    words = _words(instruction)
    if unit is None:
        return _exact_rule(instruction, steps, words)
    how = AlignedSum(unit.fraction_bits, unit.zero_exponent, unit.rounding, unit.accumulator, unit.nan)
    if unit.rule == "grouped":
        return Grouped(**words, sum=how, group=unit.group)
    stored = instruction.shape.k // 2 if words["is_sparse"] else instruction.shape.k
    make = Scaled if unit.rule == "scaled" else Fused
    split = [_split(step, unit.products, stored) for step in written if step["do"] == unit.rule]
    return make(
        **words,
        sum=how,
        steps=tuple(places for places_of_step in split for places in places_of_step),
        multiplicands=multiplicands,
        c_read_as=steps.get("read_c", {"to": instruction.c})["to"],
        adds_c_last="add_c" in steps,
    )


def _words(instruction: Form) -> dict[str, Any]:
    """The fields that every rule has, from the words of an instruction."""
    return {
        "k": instruction.shape.k,
        **{role: getattr(instruction, role) for role in "abcd"},
        "is_sparse": bool(instruction.operation.sparsity),
        "scales": int(instruction.scale_vec[0]) if instruction.scale_vec else 0,
        "scale_format": instruction.scale_type,
    }


def _exact_rule(instruction: Form, steps: dict[str, Any], words: dict[str, Any]) -> Rule:
    """A rule that needs no unit: integers, bits, and what ordinary float operations compute."""
    if "integer" in steps:
        return IntegerSum(**words, clamps=instruction.satfinite)
    if "popcount" in steps:
        return Popcount(**words, operation=BIT_OPERATIONS[instruction.bitop])
    if "fma_f64" in steps:
        return Fma64(**words, rounding=DIRECTIONS[instruction.rounding])
    return Chain(**words)


def _split(written: dict[str, Any], max_products: int, stored: int) -> list[tuple[int, ...]]:
    """The places of a written step, in as many steps as it takes to add at most `max_products` products at a time."""
    of, take = written.get("of", stored), written.get("take", 0)
    chosen = tuple(place for place in range(stored) if (place // of) % 2 == take)
    length = min(len(chosen), max_products, written.get("at_most", max_products))
    return [chosen[first : first + length] for first in range(0, len(chosen), length)]
