"""Parse and print instruction names: PTX text and its qualifiers.

The same rows of `qualifiers` parse and print a name, so the two agree. Qualifiers may come in any order.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from warpfrag.errors import ParseError
from warpfrag.formats.number_formats import format_alias
from warpfrag.isa.instruction_table import families, families_of
from warpfrag.isa.operations import OPS, Op
from warpfrag.isa.qualifiers import FIXED, QUALIFIERS, SHAPE, Form
from warpfrag.isa.tcgen05_forms import TensorForm

LONGEST = 256  # the longest text that is parsed; the longest legal name has about half as many characters


class ParsedName(NamedTuple):
    """A parsed name: its operation, and the value of each qualifier, in the order in which they are checked.

    Qualifiers that the text omits are absent; `legality` decides whether this is allowed.
    """

    op: str
    choices: dict[str, Any]
    says_nearest: bool = False


def spell(form: Form) -> str:
    """Return the canonical PTX name of a form, without redundant defaults."""
    if isinstance(form, TensorForm):
        return form.name
    row = OPS[form.op]
    unsaid = {*row.implied} if all(getattr(form, name) == entry for name, entry in row.implied.items()) else set()
    if form.scale_vec and families_of(form)[0].scale_vec_optional:
        unsaid.add("scale_vec")
    written = [form.op]
    for name in row.qualifiers:
        if name in FIXED:
            written.append(name)
        elif name not in unsaid and (entry := getattr(form, name)):
            written += QUALIFIERS[name].write(entry)
    return ".".join(written)


def tokens(text: str) -> list[str]:
    """Return the dotted qualifiers of a text, without operands, quotes and the semicolon, in lower case."""
    name = head(text)
    lowered = name.lower() if name.isascii() else name  # lower() would turn the Kelvin sign into a k
    return lowered.split(".") if name else []


def head(text: str) -> str:
    """Return the first word of a text, shortened for a message; it may be an instruction name."""
    start = text[: 2 * LONGEST].strip().lstrip('"').strip()
    return re.split(r"[\s;{}\[\]%,]", start, maxsplit=1)[0].rstrip('."')


@cache
def _groups() -> dict[str, tuple[str, str]]:
    """Return every qualifier in lower case, with its spelling (scale_vec::1X has a capital letter) and its group."""
    qualifiers = {(name, name) for name in (*FIXED, "block_scale")}
    qualifiers |= {("space", space) for row in OPS.values() for space in row.spaces}
    qualifiers |= {(name, qualifier) for name, row in QUALIFIERS.items() for qualifier in row.extra}
    for family in families():
        for name, choices in family.qualifiers.items():
            if name != "shape":
                qualifiers |= {
                    (name, qualifier) for choice in choices if choice for qualifier in QUALIFIERS[name].write(choice)
                }
    return {qualifier.lower(): (qualifier, QUALIFIERS[name].group or name) for name, qualifier in qualifiers}


def read(text: str) -> ParsedName:
    """Parse a name with the qualifiers of its operation; raise ParseError if that fails."""
    qualifiers = tokens(text)
    if sum(map(len, qualifiers)) > LONGEST:
        raise ParseError(f"the text that starts with {qualifiers[0][:20]!r} is longer than any instruction name")
    op, rest = _split(qualifiers)
    row = OPS[op]
    by_group: dict[str, list[str]] = {}
    for qualifier in rest:
        spelled, group = (qualifier, "shape") if SHAPE.fullmatch(qualifier) else _groups().get(qualifier, ("", ""))
        if not group:
            alias = format_alias(qualifier)
            known = f": PTX spells it {' or '.join(alias.types)}" if alias else ""
            raise ParseError(f"unknown qualifier {qualifier[:60]!r}{known}")
        if not any(group in (name, QUALIFIERS[name].group) for name in row.qualifiers):
            raise ParseError(f"{spelled!r} is not a qualifier of {op}, whose qualifiers are {_order(row)}")
        first = next((name for name, other in QUALIFIERS.items() if other.after == group and name in by_group), "")
        if first:
            raise ParseError(
                f"{by_group[first][0]!r} is out of order: the {QUALIFIERS[first].label} comes after the {group}"
            )
        by_group.setdefault(group, []).append(spelled)
    types = _read_types(op, by_group.get("types", []))
    choices = {}
    for name, entry in QUALIFIERS.items():
        if name in types:
            choices[name] = types[name]
        elif name in by_group:
            choices[name] = _read_qualifier(name, by_group[name])
        elif name in row.qualifiers and entry.absent is not None:
            choices[name] = entry.absent
    for name in FIXED:
        del choices[name]
    if "shape" not in choices:
        raise ParseError(f"expected a shape such as m16n8k16 with {op}, got none")
    return ParsedName(op, choices, says_nearest=by_group.get("rounding") == ["rn"])


def _split(qualifiers: list[str]) -> tuple[str, list[str]]:
    """Split a name into operation and qualifiers; .sp may be among the qualifiers, and wmma.load.a is an operation."""
    if qualifiers[:1] == ["wgmma"] and SHAPE.fullmatch("".join(qualifiers[1:2])):
        qualifiers = ["wgmma", "mma_async", *qualifiers[1:]]
    for stem in OPS:
        length = stem.count(".") + 1
        if qualifiers[:length] != stem.split("."):
            continue
        sparse = [qualifier for qualifier in qualifiers[length:] if qualifier.split("::")[0] == "sp"]
        if len(sparse) > 1:
            raise ParseError(f"{sparse[1]!r} repeats {sparse[0]!r}: leave one of them out")
        op = ".".join([stem, *sparse])
        if op not in OPS:
            raise ParseError(f"unknown qualifier {sparse[0][:60]!r}")
        return op, [qualifier for qualifier in qualifiers[length:] if qualifier not in sparse]
    if qualifiers and SHAPE.fullmatch(qualifiers[0]):
        raise ParseError(f"expected an operation before the shape {qualifiers[0]}: one of {', '.join(OPS)}")
    near = ".".join(qualifiers[:3])[:60]
    raise ParseError(
        f"unknown operation {near!r}: expected one of {', '.join(OPS)}" if near else "the instruction name is empty"
    )


def _order(row: Op) -> str:
    return " ".join(QUALIFIERS[name].label if name in ("d", "a", "b", "c") else name for name in row.qualifiers)


def _read_qualifier(name: str, qualifiers: list[str]) -> Any:  # noqa: ANN401 (a field of a form)
    qualifier = QUALIFIERS[name]
    if len(qualifiers) > qualifier.max_qualifiers:
        raise ParseError(f"{qualifiers[qualifier.max_qualifiers]!r} is given twice")
    choice = qualifier.read(tuple(qualifiers))
    expected = qualifier.write(choice) if choice else tuple(qualifiers)
    if tuple(qualifiers) != expected:
        raise ParseError(f"expected {'.'.join(expected)!r} as the {qualifier.label}, got {'.'.join(qualifiers)!r}")
    return choice


def _read_types(op: str, types: list[str]) -> dict[str, str]:
    """Return the type of each operand that the type qualifiers specify."""
    row = OPS[op]
    names = [name for name in row.qualifiers if QUALIFIERS[name].group == "types"]
    wanted = [name for name in names if QUALIFIERS[name].absent is None]
    if row.implied:
        explicit = [name for name in wanted if name not in row.implied]
        if len(types) == len(explicit):
            return dict(row.implied) | dict(zip(explicit, types, strict=True))
        if {name: entry for name, entry in zip(wanted, types, strict=False) if name in row.implied} == row.implied:
            raise ParseError(f"{op} takes only the types of D and C: leave out {types[1]!r}, the type of A and B")
    if not len(wanted) <= len(types) <= len(names):
        got = repr(".".join(types)) if types else "none"
        expected = f"{len(wanted)} element types" if len(wanted) > 1 else "an element type"
        of = f" ({', '.join(map(str.upper, wanted))})" if len(wanted) > 1 else ""
        raise ParseError(f"expected {expected} of {op}{of}, got {got}")
    return {name: QUALIFIERS[name].absent for name in names[len(types) :]} | dict(zip(names, types, strict=False))
