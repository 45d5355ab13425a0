"""Find the arithmetic rule of an instruction on an architecture. Machine code determines it, not PTX.

instruction + architecture  --tables/arithmetic_steps.toml-->  machine code, and the steps it takes
unit named by the row       --tables/arithmetic_units.toml-->  the numbers of a step
steps + numbers             --plan-->                          a rule (`rules`), and the evidence for it

fp8 on sm_90:   A, B -> f16;  previous = fused(places 0 1 4 5 ...) onto 0;
                previous = fused(places 2 3 6 7 ...) onto previous;  D = C + previous, to nearest
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from warpfrag.errors import IllegalInstruction, NotModelled
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.instruction_table import able_architectures, forms_of, running_target
from warpfrag.isa.legality import illegal
from warpfrag.isa.qualifiers import Form
from warpfrag.isa.targets import read_target
from warpfrag.isa.tcgen05_forms import PUBLISHED_ARCH, TensorForm, published_form, unpublished
from warpfrag.tables import read_table

if TYPE_CHECKING:
    from warpfrag.tensorcore.rules import BitOperation, Direction, Rule, StepRounding

MAX_PLANS = 4096
"""The cache size, which exceeds the number of (instruction, architecture) pairs that a process usually needs."""


@dataclass(frozen=True)
class Plan:
    """The arithmetic of one instruction on one architecture: its machine code, its evidence and its rule."""

    instruction: Form
    multiplicands: tuple[str, str]
    """The formats in which A and B are multiplied."""
    unit: ArithmeticUnit | None
    steps: tuple[dict[str, Any], ...] = field(repr=False)
    machine: str
    native: bool
    source: str
    level: Level

    @cached_property
    def rule(self) -> Rule:
        """The rule that computes D, created on first use because look-ups need only the evidence."""
        return make_rule(self.instruction, self.multiplicands, self.unit, self.steps)


def arithmetic_arch(form: Form, arch: str) -> str:
    """Return the architecture whose arithmetic a target uses; raise IllegalInstruction if the form cannot run there."""
    return _arithmetic_arch(form, arch) if isinstance(arch, str) else _arithmetic_arch.__wrapped__(form, arch)


@lru_cache(MAX_PLANS)
def _arithmetic_arch(form: Form, arch: str) -> str:
    if not form.is_product:
        raise illegal(form, "it only moves data, so it has no arithmetic")
    able = able_architectures(form)
    target = read_target(arch, partial(spell, form))
    if target.arch not in able:
        known = [running_target(form, each) for each in able if is_modelled(form, each)] or able
        raise illegal(form, f"{target.name} does not have this instruction; it runs on {', '.join(known)}")
    return target.arch


def is_modelled(form: Form, arch: str) -> bool:
    """Return True if the arithmetic of a form is known on an architecture."""
    try:
        return bool(plan(form, arch))
    except NotModelled:
        return False


@lru_cache(MAX_PLANS)
def plan(instruction: Form, arch: str) -> Plan:
    """Return the plan for `instruction` on `arch`; a suffix such as the a of sm_90a is ignored.

    Raises IllegalInstruction if no instruction has this form, and NotModelled if its arithmetic is neither published
    nor measured.
    """
    is_known = isinstance(instruction, TensorForm) or instruction in forms_of(instruction.op)
    if not is_known or instruction.operation.does != "multiply":
        reason = "it only moves data, so it has no arithmetic" if is_known else "no instruction has this form"
        raise IllegalInstruction(_describe(instruction), reason)
    base = arch.rstrip("af")
    row = _find_row(instruction, base)
    made = None if row is None else _make_plan(instruction, row, base)
    if made is None:
        raise NotModelled(_refusal(instruction, base))
    return made


def arithmetic_groups(forms: Mapping[str, Form]) -> list[list[str]]:
    """Group architectures with the same modelled arithmetic; `forms` maps each architecture to its instruction."""
    by_rule: dict[Rule, list[str]] = {}
    for arch, form in forms.items():
        with suppress(NotModelled):
            by_rule.setdefault(plan(form, arch).rule, []).append(arch)
    return list(by_rule.values())


@lru_cache(MAX_PLANS)
def nearest_plan(instruction: TensorForm, arch: str) -> tuple[Plan, str]:
    """Return the plan of a tcgen05.mma and "", or the nearest published plan and the reason why it differs.

    The nearest plan is that of a dense mma by a single block on sm_100, with the same kind and types. If sums are
    grouped along k, it is the plan for a dense A with explicit zeros.
    """
    base = arch.rstrip("af")
    try:
        return plan(instruction, base), ""
    except NotModelled:
        reason = unpublished(instruction, base)
    published = published_form(instruction)
    row = _find_row(published, PUBLISHED_ARCH)
    if row is not None and row["steps"][0]["do"] == "grouped":
        instruction = replace(published, shape=instruction.shape)
    made = None if row is None else _make_plan(instruction, row, PUBLISHED_ARCH)
    if made is None:
        raise NotModelled(_refusal(instruction, base))
    return made, reason


def _make_plan(instruction: Form, row: dict[str, Any], arch: str) -> Plan | None:
    """Build an instruction's plan from a table row, or return None if its unit does not support the types."""
    steps = {written["do"]: written for written in row["steps"]}
    multiplicands = (instruction.a, instruction.b)
    if "read_ab" in steps:
        multiplicands = (steps["read_ab"]["to"],) * 2
    unit = None
    if "unit" in row:
        unit = find_unit(row["unit"], arch, *multiplicands, instruction.c if "round_d" in steps else instruction.d)
        if unit is None:
            return None
    return Plan(
        instruction=instruction,
        multiplicands=multiplicands,
        unit=unit,
        steps=tuple(row["steps"]),
        machine=_spell_machine(row, instruction, arch),
        native=row["native"],
        source=f"{row['source']}; {unit.source}" if unit else row["source"],
        level=unit.level if unit else row["level"],
    )


def _find_row(instruction: Form, arch: str) -> dict[str, Any] | None:
    """Return the first table row whose conditions all hold, or None."""
    facts = {
        "op": instruction.op,
        "a": instruction.a,
        "shape": str(instruction.shape),
        "k": instruction.shape.k,
        "blocks": getattr(instruction, "blocks", 1),
        "kind": instruction.kind,
        "bitop": instruction.bitop,
        "accumulators": f"{instruction.d}.{instruction.c}",
        "arch": arch,
    }
    for row in read_table("arithmetic_steps")["instruction"]:
        if all(fact in row[name] for name, fact in facts.items() if name in row):
            return dict(row)
    return None


def _spell_machine(row: dict[str, Any], instruction: Form, arch: str) -> str:
    """Return the machine instructions as text, with the shape and types filled in."""
    shape = instruction.shape
    piece = row.get(f"piece_{arch}", row.get("piece"))
    count = 1 if piece is None else -(-shape.m // piece[0]) * -(-shape.n // piece[1]) * -(-shape.k // piece[2])
    if piece is not None and shape.m < piece[0]:  # m8n32k16 is executed with A and B exchanged
        count = -(-shape.n // piece[0]) * -(-shape.m // piece[1]) * -(-shape.k // piece[2])
    joint = "x" if instruction.a == "f64" else ""
    accumulator = instruction.d.upper()
    operands = {"f16": "", "bf16": ".BF16", "tf32": ".TF32"}
    if instruction.a in operands:
        types = accumulator + operands[instruction.a]
    elif FORMATS[instruction.a].is_float:
        types = f"{accumulator}.{instruction.a.upper()}.{instruction.b.upper()}"
    else:
        types = f"{instruction.a.upper()}.{instruction.b.upper()}" + (".SAT" if instruction.satfinite else "")
    rounding = instruction.rounding.upper()
    return str(row["machine"]).format(
        shape=joint.join(str(size) for size in (shape.m, shape.n, shape.k)),
        by="x".join(str(size) for size in (shape.m, shape.n, shape.k)),
        half=f"{shape.m}{shape.n}{shape.k // 2}",
        piece="".join(str(size) for size in piece) if piece else "",
        count=count,
        types=types,
        sp=".SP" if instruction.operation.sparsity else "",
        accumulator=accumulator,
        add="HADD2" if instruction.d == "f16" else "FADD",
        rounding=f".{rounding}" if rounding in ("RZ", "RM", "RP") else "",
    )


def _describe(instruction: Form) -> str:
    """Return a description of a form for messages, even if it has no PTX spelling."""
    types = ".".join(word for word in (instruction.d, instruction.a, instruction.b, instruction.c) if word)
    kind = f" kind::{instruction.kind}" if instruction.kind else ""
    return f"{instruction.op} {instruction.shape} {types}{kind}"


def _refusal(instruction: Form, arch: str) -> str:
    """Return the NotModelled message, which names the property that is neither published nor measured."""
    name = _describe(instruction)
    if isinstance(instruction, TensorForm):
        reason = unpublished(instruction, arch)
    elif instruction.operation.sparsity:
        reason = "the number of products per step of a sparse floating-point mma was measured on sm_90 only"
    elif instruction.op == "wmma.mma" and instruction.c != instruction.d:
        reason = "the conversion of C, whose type differs from D's, is not published"
    else:
        reason = "its arithmetic there is neither published nor measured"
    return f"{name} is not modelled on {arch}: {reason}"


RuleName = Literal["fused", "scaled", "grouped"]
Level = Literal["specified", "published", "hardware"]


class ArithmeticUnit(NamedTuple):
    """The arithmetic of one machine instruction: a row of `tables/arithmetic_units.toml`, which explains the fields."""

    unit: str
    arch: tuple[str, ...]
    operands: tuple[str, ...]
    accumulator: str
    rule: RuleName
    fraction_bits: int
    products: int
    rounding: StepRounding
    zero_exponent: int
    nan: int
    source: str
    level: Level
    group: int = 0


@cache
def read_units() -> tuple[ArithmeticUnit, ...]:
    """Read and check every row of the table."""
    rows = read_table("arithmetic_units")["unit"]
    return tuple(
        ArithmeticUnit(**{**row, "arch": tuple(row["arch"]), "operands": tuple(row["operands"])}) for row in rows
    )


def find_unit(name: str, arch: str, operand_a: str, operand_b: str, accumulator: str) -> ArithmeticUnit | None:
    """Return the row for this unit, architecture and formats, or None."""
    for unit in read_units():
        formats_fit = operand_a in unit.operands and operand_b in unit.operands and unit.accumulator == accumulator
        if unit.unit == name and arch in unit.arch and formats_fit:
            return unit
    return None


Steps = tuple[dict[str, Any], ...]

BIT_OPERATIONS: dict[str, BitOperation] = {"xor": "xor", "and": "and"}
DIRECTIONS: dict[str, Direction] = {"": "rn", "rz": "rz", "rm": "rm", "rp": "rp"}
"""The rounding directions of qualifiers; the default for f64 is to nearest."""


def make_rule(instruction: Form, multiplicands: tuple[str, str], unit: ArithmeticUnit | None, written: Steps) -> Rule:
    """Return the rule for an instruction.

    A and B are multiplied in the formats `multiplicands`, with `unit`'s parameters.
    """
    from warpfrag.tensorcore import rules  # imported here because look-ups do not need it

    steps = {step["do"]: step for step in written}
    words = _words(instruction)
    if unit is None:
        return _exact_rule(instruction, steps, words)
    how = rules.AlignedSum(unit.fraction_bits, unit.zero_exponent, unit.rounding, unit.accumulator, unit.nan)
    if unit.rule == "grouped":
        return rules.Grouped(**words, sum=how, group=unit.group)
    stored = instruction.shape.k // 2 if words["is_sparse"] else instruction.shape.k
    make = rules.BlockScaled if unit.rule == "scaled" else rules.Fused
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
    """Return the fields that all rules share, derived from an instruction's qualifiers."""
    return {
        "k": instruction.shape.k,
        **{role: getattr(instruction, role) for role in "abcd"},
        "is_sparse": bool(instruction.operation.sparsity),
        "scales": int(instruction.scale_vec[0]) if instruction.scale_vec else 0,
        "scale_format": instruction.scale_type,
    }


def _exact_rule(instruction: Form, steps: dict[str, Any], words: dict[str, Any]) -> Rule:
    """Return a rule that needs no arithmetic unit: for integers, bits, or a chain of ordinary float operations."""
    from warpfrag.tensorcore import rules

    if "integer" in steps:
        return rules.IntegerSum(**words, clamps=instruction.satfinite)
    if "popcount" in steps:
        return rules.Popcount(**words, operation=BIT_OPERATIONS[instruction.bitop])
    if "fma_f64" in steps:
        return rules.Fma64(**words, rounding=DIRECTIONS[instruction.rounding])
    return rules.Chain(**words)


def _split(written: dict[str, Any], max_products: int, stored: int) -> list[tuple[int, ...]]:
    """Split each step into smaller steps of at most `max_products` products."""
    of, take = written.get("of", stored), written.get("take", 0)
    chosen = tuple(place for place in range(stored) if (place // of) % 2 == take)
    length = min(len(chosen), max_products, written.get("at_most", max_products))
    return [chosen[first : first + length] for first in range(0, len(chosen), length)]
