"""Legality: which form a text means, and if none, which word is wrong and what is near."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

from warpfrag.errors import IllegalInstruction
from warpfrag.isa.names import Misspelt, Words, fields, read, spell, tokens
from warpfrag.isa.rows import SHAPE, Form, HasForm, forms, legal_targets, targets

NEAREST = 3
LABELS = {
    "shape": "shape",
    "kind": "kind",
    "block_scale": "block_scale",
    "d": "type of D",
    "a": "type of A",
    "b": "type of B",
    "c": "type of C",
    "layouts": "layout",
    "satfinite": "satfinite",
    "scale_vec": "scale_vec",
    "scale_type": "scale type",
    "bitop": "bit operation",
    "rounding": "rounding",
    "num": "number of matrices",
    "trans": "trans",
    "memory": "type in memory",
}


def resolve(text: str, target: str | None = None, selector: int | None = None) -> Form:
    """The form a text means; IllegalInstruction where there is none, or not for this target or selector."""
    if not isinstance(text, str):
        raise IllegalInstruction(repr(text), f"expected PTX text, got a {type(text).__name__}")
    try:
        words = read(text)
        form = _match(words)
    except Misspelt as error:
        raise IllegalInstruction(_short(text), str(error), lambda: nearest(text)) from None
    if target is not None:
        _check_target(text, form, target)
    if selector is not None:
        check_selector(form, selector)
    return form


def form_of(instruction: str | HasForm) -> Form:
    """The form of an instruction, or of its name."""
    if isinstance(instruction, str) or not hasattr(instruction, "form"):
        return resolve(instruction)  # type: ignore[arg-type] # which says what is wrong with what is neither
    return instruction.form


def _short(text: str) -> str:
    """The text as an error quotes it: a screenful of nonsense helps nobody."""
    most = 160
    return text if len(text) <= most else text[:most] + "..."


@cache
def _forms_of(op: str) -> tuple[Form, ...]:
    return tuple(form for form in forms() if form.op == op)


def _match(words: Words) -> Form:
    """Narrow the forms of an operation down, word by word; the word that leaves none is the wrong one."""
    wanted = fields(words)
    left = list(_forms_of(wanted.pop("op")))
    for axis, choice in wanted.items():
        kept = [form for form in left if getattr(form, axis) == choice]
        if not kept:
            allowed = list(dict.fromkeys(getattr(form, axis) for form in left))
            raise Misspelt(_blame(words.op, axis, choice, allowed, wanted))
        left = kept
    if "scale_vec" not in wanted and left[0].scale_vec and not forms()[left[0]][0].scale_vec_optional:
        sizes = ", ".join(dict.fromkeys(f"scale_vec::{form.scale_vec}" for form in left))
        msg = f"kind::{left[0].kind} needs one of {sizes}"
        raise Misspelt(msg)
    if words.said.get("rounding") == ["rn"] and not forms()[left[0]][0].rounding:
        raise Misspelt(_blame(words.op, "rounding", "rn", [], wanted))
    if len(left) > 1:
        layouts = ", ".join(dict.fromkeys(".".join(form.layouts) for form in left))
        msg = f"the layout is missing: one of {layouts} is expected"
        raise Misspelt(msg)
    return left[0]


def _word(axis: str, choice: Any) -> str:  # noqa: ANN401 (a field of a form)
    """A field as it stands in a name."""
    if isinstance(choice, bool):
        return axis if choice else ""
    if axis == "layouts":
        return ".".join(choice)
    if axis == "num":
        return f"x{choice}" if choice else ""
    return str(choice)


def _blame(op: str, axis: str, choice: Any, allowed: list[Any], wanted: dict[str, Any]) -> str:  # noqa: ANN401
    """One sentence on the wrong word: what it is, what it stands beside, what could stand there."""
    before = list(wanted)[: list(wanted).index(axis)]
    beside = " ".join([op, *filter(None, (_word(name, wanted[name]) for name in before))])
    if isinstance(choice, bool):
        return f"{axis!r} must {'not be written' if choice else 'be written'} with {beside}"
    options = ", ".join(filter(None, (_word(axis, entry) for entry in allowed))) or "none"
    word = _word(axis, choice)
    if not word:
        return f"the {LABELS[axis]} is missing with {beside}: expected {options}"
    return f"{word!r} is not a {LABELS[axis]} that goes with {beside}: expected {options}"


def _check_target(text: str, form: Form, target: str) -> None:
    if target not in targets():
        raise IllegalInstruction(_short(text), f"unknown target {target!r}; targets are {', '.join(targets())}")
    legal = legal_targets(form)
    if target not in legal:
        reason = f"not on target {target!r}; it is legal on {', '.join(legal)}"
        raise IllegalInstruction(_short(text), reason, lambda: nearest(text, target))


def check_selector(form: Form, selector: int) -> None:
    """Refuse a sparsity selector that a form does not have, or on which the hardware traps."""
    name = spell(form)
    if not form.is_sparse:
        raise IllegalInstruction(name, f"selector {selector!r}: only sparse instructions have one")
    family = forms()[form][0]
    legal = range(family.selectors)
    if selector in family.traps:
        reason = f"selector {selector} assembles, but the hardware traps on it; legal selectors are {_listed(legal)}"
        raise IllegalInstruction(name, reason, lambda: (name,))
    if isinstance(selector, bool) or selector not in legal:
        reason = f"selector {selector!r} is out of range; legal selectors are {_listed(legal)}"
        raise IllegalInstruction(name, reason, lambda: (name,))


def _listed(numbers: range) -> str:
    return ", ".join(map(str, numbers))


def nearest(text: str, target: str | None = None) -> tuple[str, ...]:
    """The legal spellings that share most words with a text, on a target if one is given; none if no word is shared."""
    wanted = _pieces(tokens(text))
    scored = []
    is_sparse = any(word == "sp" or word.startswith("sp::") for word in tokens(text))
    for order, (form, pieces) in enumerate(_form_pieces().items()):
        shared = sum((wanted & pieces).values())
        if shared and (target is None or target in legal_targets(form)):
            # a dense kernel has no use for a sparse instruction, however many words they share
            scored.append((form.is_sparse != is_sparse, -shared, sum(pieces.values()) - shared, order, form))
    best = sorted(scored)[:NEAREST]
    return tuple(spell(form) for *_, form in best)


@cache
def _form_pieces() -> dict[Form, Counter[str]]:
    return {form: _pieces(spell(form).split(".")) for form in forms()}


def _pieces(words: list[str]) -> Counter[str]:
    """Words to compare, a shape cut into m, n and k, so that a near shape counts as near."""
    pieces: Counter[str] = Counter()
    for place, word in enumerate(words):
        shape = SHAPE.fullmatch(word)
        if shape:
            pieces.update(f"{axis}{extent}" for axis, extent in zip("mnk", shape.groups(), strict=True) if extent)
        elif word not in {"sync", "aligned"}:
            # The operation itself weighs more than any one type: an mma is not near to an ldmatrix.
            pieces[word.lower()] += 3 if place == 0 else 1
    return pieces
