"""MLIR: an operation of the dialects `nvvm` and `nvgpu`, read by what it says rather than by how it is laid out.

Attributes may come in any order and in either of MLIR's two spellings (`multiplicandAPtxType = #nvvm.mma_type<s8>`,
`multiplicand_a_ptx_type = s8`), and some may be missing: then several instructions may fit.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from warpfrag.isa.aliases.spelling import names_of
from warpfrag.isa.rows import forms

if TYPE_CHECKING:
    from warpfrag.isa.words import Form

OPERATION = re.compile(
    r"(?<![\w.])(?:nvgpu\.mma\.sync"
    r"|nvvm\.(?:mma\.(?:sp\.)?(?:sync|block_scale)|wmma\.(?:mma|load|store)|ldmatrix|stmatrix))(?![\w.])"
)
ATTRIBUTE = re.compile(r"(\w+)\s*=\s*(?:(?:#[\w.]+)?<([^>]*)>|(\[[^\]]*\]|[^<>{},]+))")
TYPES = re.compile(r"\}\s*:|\s:\s*(?=\()")
REGISTERS = re.compile(r"\b[A-Za-z]*\[[^\]]*\]")

FLAGS = ("ordered", "kind", "tf32")  # what is not said of these is not meant

Facts = dict[str, str]


def facts(text: str) -> Facts:
    """What an operation says: its name, its attributes, the types of its operands."""
    found = OPERATION.search(text)
    if found is None:
        return {}
    rest = REGISTERS.sub(" ", text[found.end() :])
    said = {"operation": found[0]}
    attributes, types = (*TYPES.split(rest, maxsplit=1), "")[:2]
    for name, bracketed, bare in ATTRIBUTE.findall(attributes):
        said[name.replace("_", "").lower()] = re.sub(r"\s+|:\s*i32", "", bracketed or bare)
    if "ordered" in attributes.lower():
        said["ordered"] = "yes"
    if "tf32enabled" in attributes.lower():
        said["tf32"] = "yes"
    if types:
        said["types"] = re.sub(r"\s+|!llvm\.ptr(?:<\d>)?", "", types.split("\n")[0])
    return said


@cache
def _known() -> dict[str, tuple[tuple[Form, Facts], ...]]:
    """What every form says in MLIR, by its operation."""
    found: dict[str, list[tuple[Form, Facts]]] = {}
    for form in forms():
        for text in names_of(form, "mlir"):
            said = facts(text)
            found.setdefault(said["operation"], []).append((form, said))
    return {operation: tuple(rows) for operation, rows in found.items()}


def forms_of(text: str) -> tuple[Form, ...]:
    """The forms that agree with everything a text says, and have none of FLAGS that it does not say."""
    said = facts(text)
    return tuple(
        form
        for form, known in _known().get(said.get("operation", ""), ())
        if all(known.get(name) == entry for name, entry in said.items())
        and all(name in said for name in FLAGS if name in known)
    )
