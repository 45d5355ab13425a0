"""Functions that create a row of the opcode table, and match the qualifiers of an instruction with it.

The qualifiers after an opcode are types and modifiers. An assembler accepts the modifiers in one order only; here any
order is accepted. `ir.opcode` describes the fields of a row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields

from warpfrag.machine.ir.actions import NoOp
from warpfrag.machine.ir.opcode import HINTS, Attributes, Binder, Level, Modifier, OpcodeRow, Types
from warpfrag.machine.ir.scalar_types import TYPES, Type, types_of

FLAGS = {attribute.name for attribute in fields(Attributes) if isinstance(attribute.default, bool)}


def optional(*words: str) -> Modifier:
    """Return an optional modifier with these alternatives."""
    return Modifier(words, is_required=False)


def required(*words: str) -> Modifier:
    """Return a required modifier with these alternatives."""
    return Modifier(words, is_required=True)


def row(
    opcode: str,
    types: Sequence[Types | str],
    bind: Binder,
    source: str,
    /,
    *,
    level: Level = "specified",
    has_result: bool = True,
    may_contract: bool = False,
    any_words: bool = False,
    cases: int = 0,
    implies: Mapping[str, object] | None = None,
    like: Mapping[str, Modifier] | None = None,
    **modifiers: Modifier,
) -> OpcodeRow:
    """Return a table row; modifiers are given by name in assembler order, followed by those of `like`.

    The allowed types at a position are given as a tuple or as names separated by spaces.
    """
    allowed = tuple(types_of(each) if isinstance(each, str) else each for each in types)
    return OpcodeRow(
        opcode, allowed, {**modifiers, **(like or {})}, bind, source,
        level, has_result, may_contract, any_words, cases, implies or {},
    )  # fmt: skip


def nothing(_attributes: Attributes) -> NoOp:
    """Bind an instruction that has no effect here."""
    return NoOp()


def attribute(name: str, word: str) -> object:
    """Return the attribute value that a qualifier stands for.

    >>> attribute("ftz", "ftz"), attribute("vector", "v4"), attribute("space", "shared::cta"), attribute("half", "hi")
    (True, 4, 'shared', 'hi')
    """
    if name in FLAGS:
        return word != "clamp"
    if name == "vector":
        return int(word.removeprefix("v"))
    if name == "axes":
        return int(word.removesuffix("d"))
    if name in {"space", "destination", "origin"}:
        return "cluster" if word == "shared::cluster" else word.partition("::")[0]
    return (word[0], int(word[1:])) if name == "narrow" else word


def match(candidate: OpcodeRow, name: str, operand_count: int) -> Attributes | str:
    """Return the attributes of an instruction that matches a row, or the reason why it does not match."""
    types: list[Type] = []
    words: dict[str, str] = {}
    for word in name.split(".")[1:]:
        free = (key for key, choice in candidate.modifiers.items() if word in choice.words and key not in words)
        key = next(free, None)
        if key is not None:
            words[key] = word
        elif len(types) < len(candidate.types) and TYPES.get(word) in candidate.types[len(types)]:
            types.append(TYPES[word])
        elif not candidate.any_words:
            return f"does not take .{word}"
    if len(types) < len(candidate.types):
        return f"needs a type: .{', .'.join(sorted(kind.name for kind in candidate.types[len(types)]))}"
    missing = [key for key, choice in sorted(candidate.modifiers.items()) if choice.is_required and key not in words]
    if missing:
        return f"needs one of .{', .'.join(sorted(candidate.modifiers[missing[0]].words))}"
    values = {key: attribute(key, word) for key, word in words.items() if key not in HINTS}
    return Attributes(name, candidate.opcode, tuple(types), operand_count, **{**candidate.implies, **values})  # type: ignore[arg-type] # checked by field name when the row is made
