"""Suggestions: the legal names that are most similar to a misspelled or illegal instruction name.

Names in other notations (CuTe, SASS, LLVM) are compared by `aliases.near`, targets by `targets`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache, partial

from warpfrag.isa.instruction_names import spell, tokens
from warpfrag.isa.instruction_table import forms, in_space, is_legal
from warpfrag.isa.operations import OPS
from warpfrag.isa.qualifiers import FIXED, QUALIFIERS, SHAPE, Form

MOST = 3
MAX_QUALIFIERS = 4096  # number of cached qualifiers


def similar_names(text: str, target: str | None = None) -> tuple[str, ...]:
    """Return the legal spellings that share the most qualifiers with a text, on a target if one is given."""
    qualifiers = tokens(text)
    operation = _nearest_operation(qualifiers[0]) if qualifiers else ""
    if not operation:
        return ()
    wanted, shape = _pieces(qualifiers), next(filter(SHAPE.fullmatch, qualifiers), "")
    has_shape = any(str(form.shape) == shape for form in forms(operation))
    scored = []
    is_sparse = any(qualifier == "sp" or qualifier.startswith("sp::") for qualifier in qualifiers)
    for order, (form, pieces) in enumerate(_form_pieces(operation).items()):
        shared = sum(min(count, pieces[piece]) for piece, count in wanted.items() if piece in pieces)
        if shared and (target is None or is_legal(form, target)):
            rest = pieces.total() - shared
            apart = 0 if has_shape else _distance(shape, str(form.shape))
            # a sparse instruction cannot replace a dense one; f32 is preferred, because most kernels accumulate in it
            scored.append((form.is_sparse != is_sparse, -shared, rest, apart, form.d == "f16", order, form))
    best = [form for *_, form in sorted(scored, key=lambda row: row[:-1])[:MOST]]
    return tuple(spell(_in_same_space(form, qualifiers)) for form in best)


def _nearest_operation(qualifier: str) -> str:
    """Return the first word of the operations that a qualifier names or resembles, or an empty string."""
    known = list(dict.fromkeys(op.split(".")[0] for op in OPS))
    if qualifier in known:
        return qualifier
    if SHAPE.fullmatch(qualifier) or qualifier in QUALIFIERS:
        return "mma"  # the name has no operation
    from difflib import get_close_matches

    return next(iter(get_close_matches(qualifier[:20], known, n=1)), "")


def _in_same_space(form: Form, qualifiers: list[str]) -> Form:
    """Return the form with the state space that the text names, if the form allows it."""
    return next((in_space(form, space) for space in form.operation.spaces if space in qualifiers), form)


@cache
def _form_pieces(operation: str) -> dict[Form, Counter[str]]:
    return {form: _pieces(spell(form).split(".")) for form in forms(operation)}


def _pieces(qualifiers: list[str]) -> Counter[str]:
    """Return weighted qualifiers for computing similarity; an operation weighs more than any type."""
    pieces = [piece for qualifier in qualifiers for piece in _cut(qualifier)]
    operation = qualifiers[0].lower()
    return Counter(pieces + 2 * [operation] if operation in pieces else pieces)


@lru_cache(MAX_QUALIFIERS)
def _cut(qualifier: str) -> tuple[str, ...]:
    """Split a shape into m, n and k, so that similar shapes match partly; drop qualifiers that all names have."""
    shape = SHAPE.fullmatch(qualifier)
    if shape:
        return tuple(f"{axis}{extent}" for axis, extent in zip("mnk", shape.groups(), strict=True) if extent)
    return () if qualifier in FIXED else (qualifier.lower(),)


def nearest_shapes(text: str, others: Iterable[str]) -> list[str]:
    """Return the texts whose numbers are closest to those of a text."""
    return sorted(others, key=partial(_distance, text))[:MOST]


def _distance(text: str, other: str) -> int:
    """Return the sum of the differences between corresponding numbers in two texts, such as shapes."""
    pairs = zip(re.findall(r"\d+", text), re.findall(r"\d+", other), strict=False)
    return sum(abs(int(first) - int(second)) for first, second in pairs)
