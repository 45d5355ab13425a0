"""What instructions are called elsewhere, as the page has it.

The names of machine code are the same on many targets, and the operations of MLIR are made of the same pieces: both
travel as places in the list of texts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from warpfrag.isa.aliases import aliases_of

if TYPE_CHECKING:
    from warpfrag.explorer.listed import Listed
    from warpfrag.isa.words import Form

OPERATION = re.compile(r"(.*?) \{(.*)\}(.*)", re.DOTALL)


def names_of(form: Form, texts: Listed, target_sets: Listed) -> list[Any]:
    """The names of one instruction: CuTe's, those of machine code, NVVM's, MLIR's, and others; empty where none is."""
    found = aliases_of(form)
    place = texts.place
    by_code: dict[str, list[str]] = {}
    for target, code in found["sass"].items():
        by_code.setdefault(code, []).append(target)
    return [
        [place(found["cute"])] if found["cute"] else [],
        [[place(code), target_sets.place(tuple(some))] for code, some in by_code.items()],
        [place(found["nvvm"])] if found["nvvm"] else [],
        _pieces(texts, found["mlir"]) if found["mlir"] else [],
        [place(name) for name in found["also"]],
    ]


def _pieces(texts: Listed, text: str) -> list[int]:
    """An operation as what stands before its attributes, what stands behind them, and each of them."""
    found = OPERATION.fullmatch(text)
    if found is None:
        msg = f"expected an operation with attributes in braces, got {text!r}"
        raise ValueError(msg)
    before, attributes, behind = found.groups()
    return [*map(texts.place, (before, behind, *attributes.split(", ")))]
