"""Legality: find the form and targets of an instruction name, or report its wrong qualifier.

`similar_names` suggests legal names for a misspelled or illegal one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import islice
from operator import index
from typing import TYPE_CHECKING, cast

from warpfrag.errors import IllegalInstruction, ParseError, quote
from warpfrag.isa.alias_names import is_plain, names_in
from warpfrag.isa.immediates import Immediates, check_ids
from warpfrag.isa.instruction_names import LONGEST, ParsedName, head, read, spell, tokens
from warpfrag.isa.instruction_table import families_of, fits, forms_of, in_space, legal_targets
from warpfrag.isa.operations import OPS
from warpfrag.isa.qualifiers import QUALIFIERS, Form, HasForm
from warpfrag.isa.targets import read_target
from warpfrag.isa.tcgen05_forms import TensorForm, read_form
from warpfrag.isa.tcgen05_names import forms_named
from warpfrag.isa.tcgen05_spelling import PREFIX, read_spelling
from warpfrag.tables import read_table

if TYPE_CHECKING:
    from warpfrag.layout.linear_layout import Layout

MAX_FORMS = 4096  # number of cached (form, architecture) pairs
MAX_LISTED = 8  # the most instructions that are listed for an ambiguous name
MAX_NAMED = 24  # the most choices that an error lists in full
Version = tuple[int, int]
TENSOR_NAME = re.compile(r"(?<![\w.:])tcgen05\.[a-z][\w:]*(?:\.[\w:]+)*", re.IGNORECASE)
MAX_TENSOR_SOURCE = 1 << 14  # the number of characters searched for a tcgen05 instruction


def resolve(text: str, target: str | None = None, selector: int | None = None, **shape: object) -> Form:
    """Return the form that a text names; raise IllegalInstruction if there is none for this target and selector.

    The text is a PTX name with its qualifiers in any order, source code with one instruction, or another tool's name.
    `shape` gives the fields that the text of a tcgen05.mma omits: m, n, k, a, b, d, scale_type.
    """
    if not isinstance(text, str):
        raise illegal(text, f"expected PTX text, got a {type(text).__name__}")
    asked = {name: entry for name, entry in shape.items() if entry is not None}
    if is_tensor_text(text):
        return _tensor_form(text, target, selector, asked)
    if asked:
        reason = f"the name already has a shape and types; {', '.join(asked)} can be given only for {PREFIX}.mma"
        raise illegal(text, reason)
    name = _statement(text)
    try:
        form = _match(read(name))
    except ParseError as error:
        form = _form_by_alias(name, str(error))
    if target is not None:
        _check_target(name, form, target)
    if selector is not None:
        check_selector(form, selector)
    return form


def is_tensor_text(text: str) -> bool:
    """Return True if a text is a tcgen05 instruction, with or without operands, or source code that contains one."""
    start = text.strip().strip('"').lower()
    if start.startswith(f"{PREFIX}."):
        return start.rstrip(";").count(";") == 0
    return len(TENSOR_NAME.findall(text[:MAX_TENSOR_SOURCE])) == 1


def _tensor_form(text: str, target: str | None, selector: int | None, asked: dict[str, object]) -> Form:
    """Return the form of a tcgen05 text; raise IllegalInstruction if the target does not support it."""
    plain = text.strip().strip('"').strip()
    if not plain.lower().startswith(PREFIX):  # operands in source code are placeholders
        plain = TENSOR_NAME.findall(plain[:MAX_TENSOR_SOURCE])[0]
    try:
        form = read_form(plain, **asked)
    except ParseError as error:
        raise illegal(plain, str(error)) from None
    if target is not None:
        name = read_target(target, _quoted(plain)).name
        full = read_spelling(plain) if " " in plain else form.spelling
        reason = full.refusal(name)
        if not reason and name not in form.targets:
            reason = (
                f"{form.shape} with kind::{form.kind} is not available on {name}, only on {', '.join(form.targets)}"
            )
        if reason:
            raise illegal(plain, reason)
    if selector is not None:
        check_selector(form, selector)
    return form


def _statement(text: str) -> str:
    """Return the only instruction in a name or source fragment, or the text itself if there is none."""
    names = names_in(text)
    forms = {}
    if len(names) > 1:
        for name in names:
            with suppress(ParseError):
                forms[_match(read(name))] = name
        if len(forms) > 1:
            reason = f"the text contains {len(forms)} instructions; choose one"
            raise illegal("source", reason, lambda: tuple(map(spell, forms)))
    return next(iter([*forms.values(), *names]), text)


def _form_by_alias(text: str, problem: str) -> Form:
    """Return the only form with this alias; if there is none, raise IllegalInstruction with the PTX parse error."""
    from warpfrag.isa.aliases import meaning, near

    elsewhere = forms_named(text)
    if elsewhere:
        if len(elsewhere) > 1:
            reason = f"this name matches {len(elsewhere)} {PREFIX} instructions; choose one"
            raise illegal(text, reason, _spelled(elsewhere))
        return elsewhere[0]
    named = meaning(text)
    if named is None or not named.forms:
        name = named.name if named else text
        beyond = out_of_scope(name)
        if beyond:
            raise illegal(name, f"out of scope: {beyond}")
        if named is None:
            raise illegal(text, problem, partial(_similar_names, text))
        raise illegal(name[:LONGEST], f"unknown {named.called}", lambda: tuple(map(spell, near(name, named.notation))))
    if len(named.forms) > 1:
        reason = f"this {named.called} matches {len(named.forms)} instructions; choose one"
        raise illegal(named.name, reason, _spelled(named.forms))
    return named.forms[0]


def illegal(subject: object, reason: str, nearest: Callable[[], tuple[str, ...]] = tuple) -> IllegalInstruction:
    """Return the error for a text that names no legal form, or for a request that a form does not support."""
    return IllegalInstruction(_quoted(subject), reason, nearest)


def _quoted(subject: object) -> str:
    """Return the name of a form, or a text as errors quote it: shortened, and on one line."""
    if isinstance(subject, Form):
        return spell(subject)
    name, longest = head(subject) if isinstance(subject, str) else quote(subject), 160
    return name if len(name) <= longest else name[:longest] + "..."


def _similar_names(text: str, target: str | None = None) -> tuple[str, ...]:
    """Return suggestions for a name; errors call this function when they are printed."""
    from warpfrag.isa.similar_names import similar_names

    return similar_names(text, target)


def _spelled(found: Iterable[Form]) -> Callable[[], tuple[str, ...]]:
    """Return a function that spells the first forms."""
    return lambda: tuple(map(spell, islice(found, MAX_LISTED)))


def form_of(instruction: str | HasForm) -> Form:
    """Return the form of an instruction, which may be given by its name."""
    form = getattr(instruction, "form", None)
    return form if isinstance(form, Form) else resolve(cast("str", instruction))  # raises an error with the reason


def _match(reading: ParsedName) -> Form:
    """Return the form that matches all qualifiers; raise an error for the first qualifier that no form matches."""
    wanted = dict(reading.choices)
    space = wanted.pop("space", "")
    left = list(forms_of(reading.op))
    for name, choice in wanted.items():
        kept = [form for form in left if getattr(form, name) == choice]
        if not kept:
            allowed = list(dict.fromkeys(getattr(form, name) for form in left))
            raise ParseError(_blame(reading, name, choice, allowed))
        left = kept
    family = families_of(left[0])[0]
    if "scale_vec" not in wanted and left[0].scale_vec and not family.scale_vec_optional:
        sizes = ", ".join(dict.fromkeys(f"scale_vec::{form.scale_vec}" for form in left))
        raise ParseError(f"kind::{left[0].kind} needs {sizes.replace(', ', ' or ')}")
    if reading.says_nearest and "rounding" not in family.qualifiers:
        raise ParseError(_blame(reading, "rounding", "rn", []))
    if len(left) > 1:
        layouts = ", ".join(dict.fromkeys(".".join(form.layouts) for form in left))
        raise ParseError(f"the layout is missing: expected one of {layouts}")
    spaces = OPS[reading.op].spaces
    if space and space not in spaces:
        raise ParseError(_blame(reading, "space", space, [*spaces]))
    return left[0] if left[0].space == space else in_space(left[0], space)


def _written(name: str, choice: object) -> str:
    """Return a qualifier's value as it is spelled in a name."""
    return ".".join(QUALIFIERS[name].write(choice)) if choice else ""


def _blame(reading: ParsedName, name: str, choice: object, allowed: Sequence[object]) -> str:
    """Return a sentence about the wrong qualifier: its value, its context and the legal values."""
    before = list(reading.choices)[: list(reading.choices).index(name)]
    beside = " ".join([reading.op, *filter(None, (_written(other, reading.choices[other]) for other in before))])
    if isinstance(choice, bool):
        return f"{name!r} must {'not be written' if choice else 'be written'} with {beside}"
    texts = list(filter(None, (_written(name, entry) for entry in allowed)))
    options = ", ".join(texts) or "none"
    if len(texts) > MAX_NAMED:
        from warpfrag.isa.similar_names import nearest_shapes

        options = f"one of {len(texts)}, such as {', '.join(nearest_shapes(_written(name, choice), texts))}"
    label = QUALIFIERS[name].label
    if not choice:
        return f"the {label} is missing with {beside}: expected {options}"
    return f"{_written(name, choice)!r} is not a valid {label} with {beside}: expected {options}"


def left_out(text: str) -> tuple[str, ...]:
    """Return the qualifiers that an assembler requires but a legal text omits; empty for complete PTX.

    >>> left_out("mma.m16n8k16.f32.f16.f16.f32")
    ('sync', 'aligned', 'row', 'col')
    """
    if not is_plain(text) or is_tensor_text(text):
        return ()
    form = resolve(text)
    missing = Counter(qualifier.lower() for qualifier in spell(form).split(".")) - Counter(tokens(text))
    return tuple(qualifier for qualifier in missing.elements() if qualifier not in form.operation.may_lack)


def out_of_scope(text: str) -> str:
    """Return a description of an instruction that is out of scope, or an empty string if it is in scope."""
    qualifiers = tokens(text)
    if qualifiers:
        qualifiers[0] = qualifiers[0].removeprefix("cute::")
    for row in read_table("scope")["out"]:
        for name in row["names"]:
            first, any_characters, last = name.partition("*")
            asked = ".".join(qualifiers if any_characters else qualifiers[: name.count(".") + 1])
            if asked == name or (any_characters and asked.startswith(first) and asked.endswith(last)):
                return f"{asked} is {row['is']}"
    return ""


def _check_target(text: str, form: Form, target: str) -> None:
    name = read_target(target, _quoted(text)).name
    legal = legal_targets(form)
    if name not in legal:
        reason = f"not available on {name}; it is legal on {', '.join(legal)}"
        raise illegal(text, reason, partial(_similar_names, text, name))


def first_version(form: Form, target: str) -> Version:
    """Return the first PTX version that supports a form on a target.

    >>> first_version(resolve("mma.m16n8k8.f32.f16.f16.f32"), "sm_75")
    (6, 5)
    """
    table = read_table("versions")
    if isinstance(form, TensorForm):
        return max(_version(table["target"][target]), _version(form.spelling.version))
    return max(_version(table["target"][target]), _needed_version(form))


@lru_cache(MAX_FORMS)
def _needed_version(form: Form) -> Version:
    """Return the first PTX version that supports a form on any target."""
    needs = read_table("versions")["needs"]
    return max((_version(row["version"]) for row in needs if fits(row, form)), default=(0, 0))


def first_versions(form: Form, archs: Iterable[str]) -> dict[str, str]:
    """Return the first PTX version that supports a form on each architecture, as text."""
    versions = {arch: first_version(form, arch) for arch in archs}
    return {arch: f"{major}.{minor}" for arch, (major, minor) in versions.items()}


def _version(text: str) -> Version:
    major, minor = text.split(".")
    return int(major), int(minor)


def advice(form: Form) -> str:
    """Return the warnings that an assembler prints for a legal form."""
    rows = [row for row in read_table("advice")["advice"] if fits(row, form)]
    return "; ".join(row["text"].format(since=row["since"]) for row in rows)


def companions(form: Form) -> list[tuple[str, str]]:
    """Return the instructions that a kernel must execute before and after a form, in order; usually there are none."""
    return [(row["name"], row["when"]) for row in read_table("companions")["companion"] if form.op in row["op"]]


def check_selector(form: Form, selector: int) -> None:
    """Raise IllegalInstruction for a selector that a form does not accept or that makes the hardware trap."""
    if not form.is_sparse:
        raise illegal(form, f"selector {quote(selector)}: only sparse instructions have one")
    family = families_of(form)[0]
    try:
        number = -1 if isinstance(selector, bool) else index(selector)
    except TypeError:
        number = -1
    if number in family.traps:
        reason = f"ptxas accepts selector {number}, but the hardware traps on it"
    elif number not in range(family.selectors):
        reason = f"selector {quote(selector)} is out of range"
    else:
        return
    legal = ", ".join(map(str, range(family.selectors)))
    raise illegal(form, f"{reason}; legal selectors are {legal}")


def check_immediates(form: Form, choice: Immediates, layouts: Mapping[str, Layout]) -> None:
    """Raise an error for immediates that a form does not accept; `layouts` has the metadata and scale registers."""
    if form.is_sparse:
        check_selector(form, choice.selector)
    check_ids(choice, layouts, lambda: spell(form))
