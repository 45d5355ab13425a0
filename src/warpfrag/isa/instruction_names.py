"""Names: from PTX text to the words of an instruction, and back.

A name is read and written by the rows of `words`, so the two cannot drift. Words may come in any order.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from warpfrag.errors import ParseError
from warpfrag.isa.ops import OPS, Op
from warpfrag.isa.qualifiers import FIXED, SHAPE, WORDS, Form
from warpfrag.isa.rows import families, families_of
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.layout.frozen import frozen_dataclass

LONGEST = 256  # characters; the longest legal name has about half of that


@frozen_dataclass
class ParsedName:
    """What a text says: its operation, and a choice for each word, in the order in which a wrong one is looked for.

    A choice that the text leaves open is not there; `legality` decides whether it may be.
    """

    op: str
    choices: dict[str, Any]
    says_nearest: bool = False


def spell(form: Form) -> str:
    """The canonical PTX text of a form: words that only repeat a default are left out."""
    if isinstance(form, TensorForm):
        return form.name
    row = OPS[form.op]
    unsaid = row.implied if all(getattr(form, name) == entry for name, entry in row.implied.items()) else {}
    written = [form.op]
    for name in row.words:
        if name in FIXED:
            written.append(name)
        elif name not in unsaid and _is_written(form, name):
            written += WORDS[name].write(getattr(form, name))
    return ".".join(written)


def _is_written(form: Form, name: str) -> bool:
    if name == "scale_vec" and form.scale_vec:
        return not families_of(form)[0].scale_vec_optional
    return bool(getattr(form, name))


def tokens(text: str) -> list[str]:
    """The dotted words of a text, without operands, quotes and the semicolon, in lower case."""
    name = head(text)
    lowered = name.lower() if name.isascii() else name  # the Kelvin sign would become a k
    return lowered.split(".") if name else []


def head(text: str) -> str:
    """The part of a text that can be a name; no more than a name may have, so that it can be kept and shown."""
    start = text[: 2 * LONGEST].strip().lstrip('"').strip()
    return re.split(r"[\s;{}\[\]%,]", start, maxsplit=1)[0].rstrip('."')


@cache
def _groups() -> dict[str, tuple[str, str]]:
    """Every word in lower case: how it is spelled (scale_vec::1X has a capital), and the group it belongs to."""
    words = {(name, name) for name in (*FIXED, "block_scale")}
    words |= {("space", space) for row in OPS.values() for space in row.spaces}
    words |= {(name, word) for name, row in WORDS.items() for word in row.extra}
    for family in families():
        for name, choices in family.words.items():
            if name != "shape":
                words |= {(name, word) for choice in choices if choice for word in WORDS[name].write(choice)}
    return {word.lower(): (word, WORDS[name].group or name) for name, word in words}


def read(text: str) -> ParsedName:
    """Read a text by the words of its operation; a text that is no name is ParseError."""
    words = tokens(text)
    if sum(map(len, words)) > LONGEST:
        msg = f"{words[0][:20]!r} starts a text that is longer than any instruction"
        raise ParseError(msg)
    op, rest = _split(words)
    row = OPS[op]
    by_group: dict[str, list[str]] = {}
    for word in rest:
        spelled, group = (word, "shape") if SHAPE.fullmatch(word) else _groups().get(word, ("", ""))
        if not group:
            msg = f"unknown word {word[:60]!r}"
            raise ParseError(msg)
        if not any(group in (name, WORDS[name].group) for name in row.words):
            msg = f"{spelled!r} is no word of {op}, whose words are {_order(row)}"
            raise ParseError(msg)
        first = next((name for name, other in WORDS.items() if other.after == group and name in by_group), "")
        if first:
            msg = f"{by_group[first][0]!r} is out of place: the {WORDS[first].label} stands behind the {group}"
            raise ParseError(msg)
        by_group.setdefault(group, []).append(spelled)
    types = _read_types(op, by_group.get("types", []))
    choices = {}
    for name, entry in WORDS.items():
        if name in types:
            choices[name] = types[name]
        elif name in by_group:
            choices[name] = _read_word(name, by_group[name])
        elif name in row.words and entry.absent is not None:
            choices[name] = entry.absent
    for name in FIXED:
        del choices[name]
    if "shape" not in choices:
        msg = f"expected a shape such as m16n8k16 with {op}, got none"
        raise ParseError(msg)
    return ParsedName(op, choices, says_nearest=by_group.get("rounding") == ["rn"])


def _split(words: list[str]) -> tuple[str, list[str]]:
    """The operation, and the other words. To an assembler .sp is a word like any other, and wmma.load.a is one."""
    for stem in OPS:
        length = stem.count(".") + 1
        if words[:length] != stem.split("."):
            continue
        sparse = [word for word in words[length:] if word.split("::")[0] == "sp"]
        if len(sparse) > 1:
            msg = f"{sparse[1]!r} is said after {sparse[0]!r}: one of them is enough"
            raise ParseError(msg)
        op = ".".join([stem, *sparse])
        if op not in OPS:
            msg = f"unknown word {sparse[0][:60]!r}"
            raise ParseError(msg)
        return op, [word for word in words[length:] if word not in sparse]
    if words and SHAPE.fullmatch(words[0]):
        msg = f"expected an operation before the shape {words[0]}: one of {', '.join(OPS)}"
        raise ParseError(msg)
    near = ".".join(words[:3])[:60]
    msg = f"no operation is called {near!r}; operations are {', '.join(OPS)}" if near else "there is no word to read"
    raise ParseError(msg)


def _order(row: Op) -> str:
    return " ".join(WORDS[name].label if name in ("d", "a", "b", "c") else name for name in row.words)


def _read_word(name: str, words: list[str]) -> Any:  # noqa: ANN401 (a field of a form)
    word = WORDS[name]
    if len(words) > word.max_words:
        msg = f"{words[word.max_words]!r} is said twice"
        raise ParseError(msg)
    choice = word.read(tuple(words))
    expected = word.write(choice) if choice else tuple(words)
    if tuple(words) != expected:
        msg = f"expected {'.'.join(expected)!r} as the {word.label}, got {'.'.join(words)!r}"
        raise ParseError(msg)
    return choice


def _read_types(op: str, types: list[str]) -> dict[str, str]:
    """Which operand each type is for."""
    row = OPS[op]
    names = [name for name in row.words if WORDS[name].group == "types"]
    wanted = [name for name in names if WORDS[name].absent is None]
    if row.implied:
        explicit = [name for name in wanted if name not in row.implied]
        if len(types) == len(explicit):
            return dict(row.implied) | dict(zip(explicit, types, strict=True))
        if {name: entry for name, entry in zip(wanted, types, strict=False) if name in row.implied} == row.implied:
            msg = f"{types[1]!r} of A and B is left out in {op}: two types, D and C, are expected"
            raise ParseError(msg)
    if not len(wanted) <= len(types) <= len(names):
        got = repr(".".join(types)) if types else "none"
        expected = f"{len(wanted)} element types" if len(wanted) > 1 else "an element type"
        of = f" ({', '.join(map(str.upper, wanted))})" if len(wanted) > 1 else ""
        msg = f"expected {expected} of {op}{of}, got {got}"
        raise ParseError(msg)
    return {name: WORDS[name].absent for name in names[len(types) :]} | dict(zip(names, types, strict=False))
