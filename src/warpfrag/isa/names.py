"""Names: from PTX text to words and back.

An operation has a *grammar*: the places of its words, in order. Text is read by walking the grammar; a name is
written by walking it too, so the two cannot drift. A place marked `~` is one that people and other tools also use:
it is read there but never written there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from warpfrag.errors import WarpfragError
from warpfrag.isa.rows import SHAPE, Form, Shape, forms

if TYPE_CHECKING:
    from collections.abc import Callable

GRAMMAR = {
    "mma": "sync ~kind shape layouts satfinite ~rounding kind types ~satfinite scale_type bitop rounding",
    "mma.sp": "sync ~kind shape layouts satfinite kind types ~satfinite scale_type",
    "mma.sp::ordered_metadata": "sync ~kind shape layouts satfinite kind types ~satfinite scale_type",
    "wmma.mma": "bitop sync layouts shape rounding types satfinite ~rounding",
    "wmma.load.a": "sync layouts shape space types",
    "wmma.load.b": "sync layouts shape space types",
    "wmma.load.c": "sync layouts shape space types",
    "wmma.store.d": "sync layouts shape space types",
    "ldmatrix": "sync shape num trans space types",
    "stmatrix": "sync shape num trans space types",
    "movmatrix": "sync shape trans types",
}
REQUIRED = {"shape", "types"}
LONGEST = 256  # characters; the longest legal name has about half of that
DEFAULT_SPACE = {"wmma": "global", "ldmatrix": "shared", "stmatrix": "shared"}
SPACES = {"wmma": ("global", "shared", "shared::cta"), "ldmatrix": ("shared", "shared::cta")}
SPACES["stmatrix"] = SPACES["ldmatrix"]


class Misspelt(WarpfragError):
    """The text does not follow the grammar; the message names the word."""


@dataclass
class Words:
    """What a text says: its operation, and the words at each place of the grammar that it uses."""

    op: str
    said: dict[str, list[str]] = field(default_factory=dict)


def _as_written(form: Form) -> dict[str, list[str]]:
    """The words of a form at each place of a grammar."""
    if form.op.startswith("wmma.mma") and form.a == "f16":
        types = [form.d, form.c]  # the ISA leaves A and B out: they can only be f16
    else:
        types = [name for name in (form.d, form.a, form.b, form.c) if name]
    if form.num or form.trans:  # a mover: one register type, and the memory type where it differs
        types = [form.d, *([form.memory] if form.memory else [])]
    kind = [f"kind::{form.kind}"] if form.kind else []
    if form.block_scale:
        kind.append("block_scale")
        if not forms()[form][0].scale_vec_optional:
            kind.append(f"scale_vec::{form.scale_vec}")
    space = DEFAULT_SPACE.get(form.op.split(".")[0])
    return {
        "sync": ["sync", "aligned"],
        "shape": [str(form.shape)],
        "layouts": [word for word in form.layouts if word],
        "kind": kind,
        "satfinite": ["satfinite"] if form.satfinite else [],
        "rounding": [form.rounding] if form.rounding else [],
        "types": types,
        "scale_type": [form.scale_type] if form.scale_type else [],
        "bitop": [form.bitop, "popc"] if form.bitop else [],
        "num": [f"x{form.num}"] if form.num else [],
        "trans": ["trans"] if form.trans else [],
        "space": [space] if space else [],
    }


def spell(form: Form) -> str:
    """The canonical PTX text of a form: words that only repeat a default are left out."""
    written = _as_written(form)
    places = [place for place in GRAMMAR[form.op].split() if not place.startswith("~")]
    return ".".join([form.op, *(word for place in places for word in written[place])])


@cache
def _vocabulary() -> dict[str, frozenset[str]]:
    """Every word the forms use, by place."""
    found: dict[str, set[str]] = {}
    for form in forms():
        for place, words in _as_written(form).items():
            found.setdefault(place, set()).update(words)
    found["kind"] |= {f"scale_vec::{form.scale_vec}" for form in forms() if form.scale_vec}
    found["rounding"].add("rn")
    found["space"] = {word for spaces in SPACES.values() for word in spaces}
    return {place: frozenset(words) for place, words in found.items()}


@cache
def _known_words() -> dict[str, str]:
    """Every word in lower case, and how it is spelt: scale_vec::1X has a capital."""
    return {word.lower(): word for words in _vocabulary().values() for word in words}


def tokens(text: str) -> list[str]:
    """The dotted words of a text, without operands, quotes and the semicolon."""
    head = re.split(r"[\s;{}\[\]%,]", text[: 2 * LONGEST].strip().lstrip('"').strip(), maxsplit=1)[0]
    lowered = head.lower() if head.isascii() else head  # the Kelvin sign would become a k
    return lowered.rstrip('."').split(".") if head else []


def read(text: str) -> Words:
    """Read a text by the grammar of its operation; a text that does not follow it is Misspelt."""
    words = tokens(text)
    if sum(map(len, words)) > LONGEST:
        msg = f"{words[0][:20]!r} starts a text that is longer than any instruction"
        raise Misspelt(msg)
    op = next(
        (op for op in sorted(GRAMMAR, key=len, reverse=True) if words[: op.count(".") + 1] == op.split(".")), None
    )
    if op is None:
        near = ".".join(words[:3])[:60]
        msg = f"no operation is called {near!r}; operations are {', '.join(GRAMMAR)}"
        raise Misspelt(msg)
    rest = words[op.count(".") + 1 :]
    known = _known_words()
    for word in rest:
        if word not in known and not SHAPE.fullmatch(word):
            msg = f"unknown word {word[:60]!r}"
            raise Misspelt(msg)
    queue = [known.get(word, word) for word in rest]
    read_words = Words(op)
    for place in GRAMMAR[op].split():
        taken = READERS[place.lstrip("~")](queue, op)
        del queue[: len(taken)]
        if taken:
            _note(read_words, place.lstrip("~"), taken)
        elif place in REQUIRED:
            came = repr(queue[0]) if queue else "the end"
            msg = f"expected {_describe(place, op)}, got {came}"
            raise Misspelt(msg)
    if queue:
        msg = f"{queue[0]!r} is out of place; the order of {op} is {_order(op)}"
        raise Misspelt(msg)
    return read_words


def _note(words: Words, place: str, taken: list[str]) -> None:
    if place in words.said:
        msg = f"{taken[0]!r} is said twice"
        raise Misspelt(msg)
    words.said[place] = taken


def _describe(place: str, op: str) -> str:
    return "a shape such as m16n8k16" if place == "shape" else f"element types of {op}"


def _order(op: str) -> str:
    places = [place for place in GRAMMAR[op].split() if not place.startswith("~")]
    return " ".join(places).replace("sync", "sync.aligned")


def _take(place: str) -> Callable[[list[str], str], list[str]]:
    """A reader that takes one word of a place."""
    return lambda queue, _op: queue[:1] if queue and queue[0] in _vocabulary()[place] else []


def _take_pair(first: frozenset[str] | set[str], second: str) -> Callable[[list[str], str], list[str]]:
    """A reader that takes two words that belong together."""

    def read_pair(queue: list[str], _op: str) -> list[str]:
        if not queue or queue[0] not in first:
            return []
        if queue[1:2] != [second]:
            came = repr(queue[1]) if queue[1:] else "the end"
            msg = f"expected {second!r} after {queue[0]!r}, got {came}"
            raise Misspelt(msg)
        return queue[:2]

    return read_pair


def _take_run(place: str, most: int) -> Callable[[list[str], str], list[str]]:
    """A reader that takes words of a place while they last."""

    def read_run(queue: list[str], _op: str) -> list[str]:
        count = 0
        while count < min(most, len(queue)) and queue[count] in _vocabulary()[place]:
            count += 1
        return queue[:count]

    return read_run


def _take_shape(queue: list[str], _op: str) -> list[str]:
    return queue[:1] if queue and SHAPE.fullmatch(queue[0]) else []


def _take_space(queue: list[str], op: str) -> list[str]:
    return queue[:1] if queue and queue[0] in SPACES[op.split(".", maxsplit=1)[0]] else []


def _take_kind(queue: list[str], _op: str) -> list[str]:
    if not queue or not queue[0].startswith("kind::"):
        return []
    count = 1
    if queue[1:2] == ["block_scale"]:
        count += 1
        if queue[2:3] and queue[2].startswith("scale_vec::"):
            count += 1
    return queue[:count]


READERS: dict[str, Callable[[list[str], str], list[str]]] = {
    "sync": _take_pair({"sync"}, "aligned"),
    "shape": _take_shape,
    "layouts": _take_run("layouts", 2),
    "kind": _take_kind,
    "satfinite": _take("satfinite"),
    "rounding": _take("rounding"),
    "types": _take_run("types", 4),
    "scale_type": _take("scale_type"),
    "bitop": _take_pair({"xor", "and"}, "popc"),
    "num": _take("num"),
    "trans": _take("trans"),
    "space": _take_space,
}


def fields(words: Words) -> dict[str, Any]:
    """The fields of the form that a text asks for, in the order in which a wrong one is looked for.

    A field that the text leaves open is not there; `legality` decides whether it may be.
    """
    said, op = words.said, words.op
    wanted: dict[str, Any] = {"op": op, "shape": Shape.parse(said["shape"][0])}
    kind = said.get("kind", [])
    wanted["kind"] = kind[0].removeprefix("kind::") if kind else ""
    wanted["block_scale"] = "block_scale" in kind
    wanted |= _type_fields(op, words.said["types"])
    if "layouts" in said:
        wanted["layouts"] = tuple(said["layouts"])
    wanted["satfinite"] = "satfinite" in said
    if len(kind) > 2:
        wanted["scale_vec"] = kind[2].removeprefix("scale_vec::")
    wanted["scale_type"] = said.get("scale_type", [""])[0]
    wanted["bitop"] = said.get("bitop", [""])[0]
    wanted["rounding"] = said.get("rounding", [""])[0].replace("rn", "")
    wanted["num"] = int(said["num"][0][1:]) if "num" in said else 0
    wanted["trans"] = "trans" in said
    return wanted


def _type_fields(op: str, types: list[str]) -> dict[str, str]:
    """Which operand each type word is for."""
    places: tuple[str, ...] = ("d", "a", "b", "c")
    if op.startswith(("wmma.load", "wmma.store")):
        places = (op[-1],)
    elif op in {"ldmatrix", "stmatrix", "movmatrix"}:
        places = ("d", "memory")
        types = [*types, ""][:2] if len(types) == 1 else types
    elif op == "wmma.mma" and len(types) == 2:
        types = [types[0], "f16", "f16", types[1]]
    elif op == "wmma.mma" and types[1:3] == ["f16", "f16"]:
        msg = "'f16' of A and B is left out in wmma.mma: two types, D and C, are expected"
        raise Misspelt(msg)
    if len(types) != len(places):
        msg = f"expected {len(places)} element types, got {'.'.join(types)!r}"
        raise Misspelt(msg)
    return dict(zip(places, types, strict=True))
