"""MLIR: an operation of the dialects `nvvm` and `nvgpu`, read by what it says rather than by how it is laid out.

Attributes may come in any order and in either of MLIR's two spellings (`multiplicandAPtxType = #nvvm.mma_type<s8>`,
`multiplicand_a_ptx_type = s8`), and some may be missing: then several instructions may fit.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from warpfrag.isa.alias_spelling import names_of
from warpfrag.isa.rows import forms

if TYPE_CHECKING:
    from warpfrag.isa.qualifiers import Form

OPERATION = (
    r"(?<![\w.])(?:nvgpu\.mma\.sync"
    r"|nvvm\.(?:mma\.(?:sp\.)?(?:sync|block_scale)|wmma\.(?:mma|load|store)|ldmatrix|stmatrix))(?![\w.])"
)
ATTRIBUTE = r"(\w+)\s*=\s*(?:(?:#[\w.]+)?<([^>]*)>|(\[[^\]]*\]|[^<>{},]+))"
TYPES = r"\}\s*:|\s:\s*(?=\()"
REGISTERS = r"\b[A-Za-z]*\[[^\]]*\]"

FLAGS = ("ordered", "kind", "tf32")  # absent means false

Facts = dict[str, str]


def facts(text: str) -> Facts:
    """What an operation says: its name, its attributes, the types of its operands."""
    operation = re.search(OPERATION, text)
    if operation is None:
        return {}
    rest = re.sub(REGISTERS, " ", text[operation.end() :])
    stated = {"operation": operation[0]}
    attributes, types = (*re.split(TYPES, rest, maxsplit=1), "")[:2]
    for name, bracketed, bare in re.findall(ATTRIBUTE, attributes):
        stated[name.replace("_", "").lower()] = re.sub(r"\s+|:\s*i32", "", bracketed or bare)
    if "ordered" in attributes.lower():
        stated["ordered"] = "yes"
    if "tf32enabled" in attributes.lower():
        stated["tf32"] = "yes"
    if types:
        stated["types"] = re.sub(r"\s+|!llvm\.ptr(?:<\d>)?", "", types.split("\n")[0])
    return stated


@cache
def _known() -> dict[str, tuple[tuple[Form, Facts], ...]]:
    """What every form says in MLIR, by its operation."""
    by_operation: dict[str, list[tuple[Form, Facts]]] = {}
    for form in forms():
        for text in names_of(form, "mlir"):
            stated = facts(text)
            by_operation.setdefault(stated["operation"], []).append((form, stated))
    return {operation: tuple(rows) for operation, rows in by_operation.items()}


def forms_of(text: str) -> tuple[Form, ...]:
    """The forms that agree with everything a text says, and have none of FLAGS that it does not say."""
    stated = facts(text)
    return tuple(
        form
        for form, known in _known().get(stated.get("operation", ""), ())
        if all(known.get(name) == entry for name, entry in stated.items())
        and all(name in stated for name in FLAGS if name in known)
    )
