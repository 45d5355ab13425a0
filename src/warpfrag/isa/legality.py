"""Legality: which form a text means, and if none, which word is wrong and what is near."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

from warpfrag.errors import IllegalInstruction
from warpfrag.isa.names import Misspelt, Reading, read, spell, tokens
from warpfrag.isa.rows import families_of, forms, legal_targets, targets
from warpfrag.isa.words import SHAPE, WORDS, Form, HasForm

NEAREST = 3


def resolve(text: str, target: str | None = None, selector: int | None = None) -> Form:
    """The form a text means; IllegalInstruction where there is none, or not for this target or selector."""
    if not isinstance(text, str):
        raise IllegalInstruction(repr(text), f"expected PTX text, got a {type(text).__name__}")
    try:
        form = _match(read(text))
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


def _match(reading: Reading) -> Form:
    """Narrow the forms of an operation down, word by word; the word that leaves none is the wrong one."""
    wanted = dict(reading.choices)
    space = wanted.pop("space", "")
    left = list(_forms_of(reading.op))
    for name, choice in wanted.items():
        kept = [form for form in left if getattr(form, name) == choice]
        if not kept:
            allowed = list(dict.fromkeys(getattr(form, name) for form in left))
            raise Misspelt(_blame(reading, name, choice, allowed))
        left = kept
    family = families_of(left[0])[0]
    if "scale_vec" not in wanted and left[0].scale_vec and not family.scale_vec_optional:
        sizes = ", ".join(dict.fromkeys(f"scale_vec::{form.scale_vec}" for form in left))
        msg = f"kind::{left[0].kind} needs one of {sizes}"
        raise Misspelt(msg)
    if reading.says_nearest and "rounding" not in family.words:
        raise Misspelt(_blame(reading, "rounding", "rn", []))
    if len(left) > 1:
        layouts = ", ".join(dict.fromkeys(".".join(form.layouts) for form in left))
        msg = f"the layout is missing: one of {layouts} is expected"
        raise Misspelt(msg)
    spaces = left[0].operation.spaces
    if space and space not in spaces:
        raise Misspelt(_blame(reading, "space", space, [*spaces]))
    return replace(left[0], space=space)


def _written(name: str, choice: Any) -> str:  # noqa: ANN401 (a field of a form)
    """A choice as it stands in a name."""
    return ".".join(WORDS[name].write(choice)) if choice else ""


def _blame(reading: Reading, name: str, choice: Any, allowed: list[Any]) -> str:  # noqa: ANN401
    """One sentence on the wrong word: what it is, what it stands beside, what could stand there."""
    before = list(reading.choices)[: list(reading.choices).index(name)]
    beside = " ".join([reading.op, *filter(None, (_written(other, reading.choices[other]) for other in before))])
    if isinstance(choice, bool):
        return f"{name!r} must {'not be written' if choice else 'be written'} with {beside}"
    options = ", ".join(filter(None, (_written(name, entry) for entry in allowed))) or "none"
    label = WORDS[name].label
    if not choice:
        return f"the {label} is missing with {beside}: expected {options}"
    return f"{_written(name, choice)!r} is not a {label} that goes with {beside}: expected {options}"


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
    family = families_of(form)[0]
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
