"""The aliases of instructions (CuTe, SASS, NVVM, MLIR), as the page has them.

The names of machine code are the same on many targets, and the operations of MLIR are made of the same pieces: both
travel as places in the list of texts. Names of frameworks travel as the patterns that find them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from warpfrag.isa import framework_names as frameworks
from warpfrag.isa.aliases import aliases_of

if TYPE_CHECKING:
    from warpfrag.isa.qualifiers import Form
    from warpfrag.viz.explorer.interned_list import InternedList

OPERATION = re.compile(r"(.*?) \{(.*)\}(.*)", re.DOTALL)
FRAMEWORKS = ("builtin", "wmma", "cutlass", "warpgroup", "triton")
"""What frameworks.js calls the readers, in the order in which the kinds of names are tried."""
PATTERNS = {
    "builtin": frameworks.BUILTIN,
    "fragment": frameworks.FRAGMENT,
    "accumulator": frameworks.ACCUMULATOR,
    "cutlass_shape": frameworks.CUTLASS_SHAPE,
    "mlir_shape": frameworks.MLIR_SHAPE,
    "mlir_sides": frameworks.MLIR_SIDES,
    "memref": frameworks.MEMREF,
    "version": frameworks.VERSION,
    "shape": frameworks.SHAPE,
    "k_width": frameworks.K_WIDTH,
}


def framework_vocabulary() -> dict[str, Any]:
    """What the page needs to read names of frameworks: regular expressions that JavaScript takes too, and types."""
    kinds = zip(FRAMEWORKS, frameworks.FRAMEWORKS, strict=True)
    return {
        "names": [[kind, framework.pattern] for kind, framework in kinds],
        "patterns": PATTERNS,
        "types": frameworks.TYPES,
        "families": frameworks.FAMILIES,
    }


def names_of(form: Form, texts: InternedList[str], target_sets: InternedList[tuple[str, ...]]) -> list[Any]:
    """The names of one instruction: CuTe's, those of machine code, NVVM's, MLIR's, and others; empty where none is."""
    aliases = aliases_of(form)
    place = texts.place
    by_code: dict[str, list[str]] = {}
    for target, code in aliases["sass"].items():
        by_code.setdefault(code, []).append(target)
    return [
        [place(aliases["cute"])] if aliases["cute"] else [],
        [[place(code), target_sets.place(tuple(some))] for code, some in by_code.items()],
        [place(aliases["nvvm"])] if aliases["nvvm"] else [],
        _pieces(texts, aliases["mlir"]) if aliases["mlir"] else [],
        [place(name) for name in aliases["also"]],
    ]


def _pieces(texts: InternedList[str], text: str) -> list[int]:
    """An operation as what stands before its attributes, what stands behind them, and each of them."""
    match = OPERATION.fullmatch(text)
    if match is None:
        msg = f"expected an operation with attributes in braces, got {text!r}"
        raise ValueError(msg)
    before, attributes, behind = match.groups()
    return [*map(texts.place, (before, behind, *attributes.split(", ")))]
