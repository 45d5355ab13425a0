"""Spellings of tcgen05: the qualifiers of each operation, their legal combinations, and their targets.

The text of a tcgen05.mma contains little more than its kind: the shape and types are in an instruction descriptor,
which an assembler does not read. This module therefore checks a *spelling* as an assembler does, by its qualifiers and
operands, and `tcgen05_forms` adds the shape and types.

    >>> spelling = read_spelling("tcgen05.mma.kind::i8.cta_group::1 [d], a, b, i, p;")
    >>> spelling.name, spelling.targets
    ('tcgen05.mma.cta_group::1.kind::i8', ('sm_100a', 'sm_110a'))

Qualifiers and rules are rows of `tables/tcgen05.toml`; each rule gives the reason for a rejection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from warpfrag.errors import ParseError, quote
from warpfrag.tables import read_table

PREFIX = "tcgen05"
REGISTERS_PER_REPEAT = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
SMALLEST_ALLOCATION, LARGEST_ALLOCATION, LARGEST_EXCLUSIVE = 32, 512, 576
LARGEST_SCALE = 15
METADATA_COLUMNS = 32  # ld.spcompress returns two metadata bits per column, so a register covers this number of columns
OPERAND = r"\{[^{}]*\}|\[[^\[\]]*\]|[^,\s{}\[\]]+"


@dataclass(frozen=True)
class TensorSpelling:
    """A spelling: its operation, its qualifiers by group, and facts about its operands if the text has any."""

    op: str
    qualifiers: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...] = ()

    @cached_property
    def choices(self) -> dict[str, str]:
        """The qualifier of each group, and facts about operands, by name."""
        return dict(self.qualifiers) | dict(self.facts)

    def qualifier(self, group: str) -> str:
        """Return the spelling's qualifier in a group, or an empty string."""
        return self.choices.get(group, "")

    @cached_property
    def name(self) -> str:
        """The qualifiers in canonical order; `.sp` follows the operation."""
        return ".".join((PREFIX, self.op, *(qualifier for _, qualifier in self.qualifiers)))

    @property
    def is_sparse(self) -> bool:
        """True if A is sparse."""
        return bool(self.qualifier("sp"))

    @property
    def is_weight_stationary(self) -> bool:
        """True for mma.ws."""
        return self.op == "mma.ws"

    @property
    def blocks(self) -> int:
        """The number of thread blocks that work together: 1 or 2."""
        return int(self.qualifier("cta_group").removeprefix("cta_group::") or 1)

    @property
    def kind(self) -> str:
        """The part of the kind:: qualifier after the colons, or an empty string."""
        return self.qualifier("kind").removeprefix("kind::")

    @property
    def repeat(self) -> int:
        """The repeat count of a load or store."""
        return int(self.qualifier("repeat").removeprefix("x") or 1)

    @cached_property
    def problem(self) -> str:
        """The reason why no assembler accepts the spelling, or an empty string."""
        for rule in self._rules:
            if "refused" in rule:
                return str(rule["refused"]).format_map(self.choices)
        return "" if self.targets else f"no target supports this combination: {self._demands()}"

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The targets whose assembler accepts the spelling."""
        table = read_table("tcgen05")
        if any("refused" in rule for rule in self._rules):
            return ()
        lists = [table["targets"][rule["on"]] for rule in self._rules if "on" in rule]
        return tuple(name for name in table["targets"]["all"] if all(name in names for names in lists))

    def refusal(self, target: str) -> str:
        """Return the reason why the assembler rejects the spelling for a target, or an empty string."""
        if target in self.targets:
            return ""
        if self.problem:
            return self.problem
        table = read_table("tcgen05")
        if target not in table["targets"]["all"]:
            return f"{PREFIX} is not available on {target}, only on {', '.join(table['targets']['all'])}"
        return f"{self._demands(target)}, but not on {target}"

    def _demands(self, target: str = "") -> str:
        """Return the qualifiers that only some targets support or, given a target, those that it does not support."""
        table = read_table("tcgen05")["targets"]
        stated = []
        for rule in self._rules:
            if "on" in rule and target not in table[rule["on"]]:
                qualifiers = " with ".join(filter(None, map(self.qualifier, rule.get("when", ())))) or self.op
                qualifiers = "a factor for the old D" if qualifiers == "yes" else qualifiers
                stated.append(f"{qualifiers} is legal on {', '.join(table[rule['on']])}")
        return "; ".join(stated)

    @property
    def version(self) -> str:
        """The first PTX version that supports the spelling on any target."""
        versions = [str(rule["version"]) for rule in self._rules if "version" in rule]
        return max(versions, default="8.6", key=lambda text: tuple(map(int, text.split("."))))

    @cached_property
    def _rules(self) -> list[Mapping[str, Any]]:
        """The legality rules that apply to this spelling."""
        return [
            rule
            for rule in read_table("tcgen05")["rules"]
            if self.op in rule.get("op", (self.op,))
            and all(self.qualifier(group) in qualifiers for group, qualifiers in rule.get("when", {}).items())
        ]


@cache
def _groups(op: str) -> dict[str, bool]:
    """Return the qualifier groups of an operation in order; the value is True for required groups."""
    listed = read_table("tcgen05")["operations"][op]["qualifiers"].split()
    return {name.rstrip("*"): name.endswith("*") for name in listed}


@cache
def _group_of(op: str) -> dict[str, str]:
    """Return every qualifier of an operation, in lower case, with its group."""
    table = read_table("tcgen05")["groups"]
    return {qualifier: group for group in _groups(op) for qualifier in table[group]}


def _split(qualifiers: list[str]) -> tuple[str, list[str]]:
    """Split qualifiers into the operation, the longest prefix that names one, and the remaining qualifiers."""
    operations = read_table("tcgen05")["operations"]
    for length in (3, 2, 1):
        if ".".join(qualifiers[:length]) in operations:
            return ".".join(qualifiers[:length]), qualifiers[length:]
    from difflib import get_close_matches

    near = get_close_matches(qualifiers[0][:30] if qualifiers else "", operations, n=3)
    hint = f"near: {', '.join(near)}" if near else f"operations are {', '.join(operations)}"
    raise ParseError(f"{PREFIX} has no operation {qualifiers[0][:60] if qualifiers else ''!r}; {hint}")


def read_qualifiers(qualifiers: list[str]) -> TensorSpelling:
    """Parse the qualifiers after `tcgen05.`; raise ParseError if one is wrong, missing or repeated."""
    op, rest = _split(qualifiers)
    by_group: dict[str, str] = {}
    order: list[str] = []
    known = {qualifier.lower(): (qualifier, group) for qualifier, group in _group_of(op).items()}
    for qualifier in rest:
        if qualifier.lower() not in known:
            raise ParseError(_unknown(op, qualifier))
        spelled, group = known[qualifier.lower()]
        if group in by_group:
            raise ParseError(
                f"{spelled!r} conflicts with an earlier qualifier: {PREFIX}.{op} already has {by_group[group]!r}"
            )
        by_group[group] = spelled
        order.append(group)
    for group, is_needed in _groups(op).items():
        if is_needed and group not in by_group:
            choices = read_table("tcgen05")["groups"][group]
            raise ParseError(
                f"{PREFIX}.{op} needs {' or '.join(choices) if len(choices) < 3 else 'one of ' + ', '.join(choices)}"
            )
    for first, second in (("f32", "b2"), ("byte", "narrow")):
        if first in by_group and second in by_group and order.index(first) > order.index(second):
            raise ParseError(f"{by_group[first]!r} must come before {by_group[second]!r}")
    return TensorSpelling(op, tuple((group, by_group[group]) for group in _groups(op) if group in by_group))


def in_full(qualifiers: list[str]) -> list[str]:
    """Return the qualifiers including sync and aligned, which short forms omit."""
    op, rest = _split(qualifiers)
    needed = [group for group in ("sync", "aligned") if _groups(op).get(group)]
    if len(needed) < 2 or {qualifier.lower() for qualifier in rest} & set(needed):
        return qualifiers
    return [*qualifiers[: len(qualifiers) - len(rest)], *needed, *rest]


def _unknown(op: str, qualifier: str) -> str:
    """Return a hint for an unknown qualifier: the operations that have it, or similar qualifiers."""
    from difflib import get_close_matches

    near = get_close_matches(qualifier[:40], _group_of(op), n=3)
    hint = f"; near: {', '.join(near)}" if near else f"; its qualifiers are {', '.join(_groups(op)) or 'none'}"
    return f"{qualifier[:60]!r} is not a qualifier of {PREFIX}.{op}{hint}"


def read_spelling(text: str) -> TensorSpelling:
    """Return the spelling of a text, with facts about its operands; raise ParseError if it is not one.

    Operands, if given, are checked: A in brackets is in tensor memory, the number of registers in braces must match
    the qualifiers, and immediates must be in range.
    """
    name, _, operands = text.strip().rstrip(";").strip().partition(" ")
    qualifiers = name.split(".")
    if qualifiers[0].lower() != PREFIX:
        raise ParseError(f"expected text that begins with {PREFIX}, got {name[:60]!r}")
    spelling = read_qualifiers(qualifiers[1:])
    if not operands.strip():
        return spelling
    facts = operand_facts(spelling, re.findall(OPERAND, operands))
    return TensorSpelling(spelling.op, spelling.qualifiers, tuple(facts.items()))


# ---- operands


def operand_facts(spelling: TensorSpelling, operands: list[str]) -> dict[str, str]:
    """Return facts about a statement's operands, such as where A is stored; raise ParseError if they are wrong."""
    return dict(_facts(spelling, operands))


def _facts(spelling: TensorSpelling, operands: list[str]) -> Iterator[tuple[str, str]]:
    """Yield facts about a statement's operands; raise ParseError if they do not match its qualifiers."""
    expected = _operands(spelling)
    categories = "".join(map(_category, operands))
    match = re.fullmatch("".join(map(_pattern, expected)), categories)
    if match is None:
        described = ", ".join(f"an optional {name[:-1]}" if name.endswith("?") else name for name in expected)
        raise ParseError(
            f"{spelling.name} takes {described or 'no operands'};"
            f" got {len(operands)} operands: {', '.join(operands)[:120]}"
        )
    vectors = [len(operand.split(",")) for operand in operands if operand.startswith("{")]
    if spelling.op in ("mma", "mma.ws"):
        yield "a", "tensor" if categories[1] == "t" else "shared"
        if vectors:
            yield "masks", str(vectors[0])
            if vectors[0] not in (4, 8):
                raise ParseError(f"expected lane masks in 4 registers, or in 8 for a pair of blocks; got {vectors[0]}")
        if match.groupdict().get("factor"):
            if not 0 <= _integer(operands[-1]) <= LARGEST_SCALE:
                raise ParseError(f"expected the factor for the old D in 0..{LARGEST_SCALE}, got {operands[-1]}")
            yield "scale_d", "yes"
    elif spelling.qualifier("lanes"):
        wanted = registers(spelling)
        if vectors != wanted:
            raise ParseError(
                f"{spelling.name} has {' and '.join(map(str, wanted))} registers, got {' and '.join(map(str, vectors))}"
            )
    elif spelling.op in ("alloc", "dealloc") and categories.endswith("i"):
        check_columns(_integer(operands[-1]), is_exclusive=bool(spelling.qualifier("exclusive")))


def registers(spelling: TensorSpelling) -> list[int]:
    """Return the number of registers in each vector of a load or store; for ld.spcompress, metadata comes first."""
    count = REGISTERS_PER_REPEAT[spelling.qualifier("lanes")] * spelling.repeat
    return [-(-count // METADATA_COLUMNS), count // 2] if spelling.op.endswith("spcompress") else [count]


def _category(operand: str) -> str:
    """Return an operand's category: t for memory in brackets, v for registers in braces, i for an integer, else r."""
    if operand[0] in BRACKETS:
        return BRACKETS[operand[0]]
    return "i" if re.fullmatch(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?", operand) else "r"


OPERANDS = {
    "ld": "{registers}, [address]",
    "ld.red": "{registers}, result, [address]",
    "ld.spcompress": "{metadata}, {registers}, [address]",
    "ld.red.spcompress": "{metadata}, {registers}, result, [address]",
    "st": "[address], {registers}",
    "cp": "[address], descriptor",
    "shift": "[address]",
    "alloc": "[result address], columns",
    "dealloc": "address, columns",
    "commit": "[mbarrier]",
}
BRACKETS = {"[": "t", "{": "v"}
CATEGORIES = {"a": "[tri]", "result": "r", "immediate": "i", "factor of D": "(?P<factor>i)"}
"""The categories of operands that have no brackets; all others are [ri]."""


def _operands(spelling: TensorSpelling) -> list[str]:
    """Return the operands that a spelling takes; optional ones are marked with ?."""
    if spelling.op not in ("mma", "mma.ws"):
        operands = OPERANDS[spelling.op].split(", ") if spelling.op in OPERANDS else []
        if spelling.qualifier("lanes") == "16x32bx2" and not spelling.op.endswith("spcompress"):
            operands.insert(operands.index("[address]") + 1, "immediate")
        return operands + (["mask"] if spelling.qualifier("multicast") else [])
    extra = ["[metadata]"] if spelling.is_sparse else ["[table]"] if spelling.qualifier("decompress") else []
    operands = ["[d]", "a", "b", *extra, "idesc"]
    if spelling.op == "mma.ws":
        return [*operands, "enable-input-d", "zero-column mask?"]
    if spelling.qualifier("block_scale"):
        return [*operands, "[scale-a]", "[scale-b]", "enable-input-d"]
    return [*operands, "{lane masks}?", "enable-input-d", "factor of D?"]


def _pattern(operand: str) -> str:
    """Return the categories that an operand may have, as a regular expression for the result of `_category`."""
    name = operand.rstrip("?")
    category = BRACKETS.get(name[0]) or CATEGORIES.get(name, "[ri]")
    return category + "?" * operand.endswith("?")


def _integer(text: str) -> int:
    """Return the value of a PTX integer, which may end in U; a leading 0 means octal."""
    digits = text.lstrip("-").removesuffix("U")
    try:
        size = int(digits, 8 if digits.isdigit() and digits.startswith("0") else 0)
    except ValueError:
        raise ParseError(f"expected an integer such as 64, 0x40, 0100 or 64U; got {quote(text)}") from None
    return -size if text.startswith("-") else size


def check_columns(columns: int, *, is_exclusive: bool) -> None:
    """Raise an error if tensor memory cannot be allocated in this number of columns."""
    largest = LARGEST_EXCLUSIVE if is_exclusive else LARGEST_ALLOCATION
    if columns % SMALLEST_ALLOCATION or not SMALLEST_ALLOCATION <= columns <= largest:
        step = SMALLEST_ALLOCATION
        raise ParseError(f"expected an allocation of {step} to {largest} columns, a multiple of {step}; got {columns}")
    if not is_exclusive and columns & (columns - 1):
        raise ParseError(f"expected columns to be a power of two unless the allocation is exclusive, got {columns}")
