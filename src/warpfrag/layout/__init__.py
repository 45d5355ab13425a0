"""Layouts: linear maps from lanes, registers and slots to matrix elements, and the notations of other tools.

Read `linear_layout` first. A notation has a row in `NOTATIONS`, a module whose docstring explains it, and functions
`write_NAME` and, if it can be read, `read_NAME`. Both raise InvalidOperand if the notation, or warpfrag, cannot express
the layout. To add a notation, add these and a section to docs/how-to/notations.md.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, NamedTuple

from warpfrag.errors import InvalidOperand, quote


class Notation(NamedTuple):
    """A notation: the module that implements it, its description, and True if layouts can be read from it."""

    module: str
    is_read: bool
    title: str
    is_text: bool = True


NOTATIONS = {
    "cute": Notation("cute_layout", is_read=True, title="CuTe's thread-value layouts, as in the MMA traits of CUTLASS"),
    "triton": Notation("triton_layout", is_read=True, title="Triton's linear layouts: a list of bases for each input"),
    "mlir": Notation(
        "text_notations", is_read=False, title="an MLIR affine map from warp, lane, reg, slot to coordinates"
    ),
    "c": Notation("text_notations", is_read=False, title="C expressions of the lane and of PTX's element number"),
    "numpy": Notation("index_arrays", is_read=True, title="one index array per coordinate", is_text=False),
    "json": Notation("text_notations", is_read=True, title="every digit and its moves; can express any layout"),
}


def converter(notation: str, direction: Literal["read", "write"]) -> Callable[..., Any]:
    """Return the function that reads or writes a notation."""
    import inspect

    known = [name for name, row in NOTATIONS.items() if row.is_read or direction == "write"]
    if not isinstance(notation, str) or notation not in known:
        is_written = isinstance(notation, str) and notation in NOTATIONS
        fault = f"{notation} can be written but not read" if is_written else f"no notation {quote(notation)}"
        raise InvalidOperand(f"{fault}: expected one of {', '.join(known)}")
    module = import_module(f"warpfrag.layout.{NOTATIONS[notation].module}")
    function: Callable[..., Any] = getattr(module, f"{direction}_{notation}")
    parameters = inspect.signature(function).parameters.values()
    accepted = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]

    def convert(source: object, **options: object) -> object:
        unknown = [name for name in options if name not in accepted]
        if unknown:
            has = f"it takes {', '.join(accepted)}" if accepted else "it takes no options"
            raise InvalidOperand(f"{direction} {notation}: {', '.join(unknown)} is not an option; {has}")
        return function(source, **options)

    return convert
