"""Layouts in the notations of other tools: one module per notation, and the table of them.

A module's docstring teaches its notation. It has a function `write`, from a layout to a text, and `read` where the
notation can be read. Both refuse what the notation, or a layout, cannot express, and say why.

To add a notation, add a row to `NOTATIONS`, a module, and a section of its name to docs/how-to/notations.md.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from warpfrag.errors import InvalidOperand, quote

if TYPE_CHECKING:
    from collections.abc import Callable


class Notation(NamedTuple):
    """A notation: the module that implements it, whether it can be read, and what it is for."""

    module: str
    is_read: bool
    title: str
    is_text: bool = True


NOTATIONS = {
    "cute": Notation("cute_layout", is_read=True, title="CuTe's thread-value layouts, as in the MMA traits of CUTLASS"),
    "triton": Notation("triton_layout", is_read=True, title="Triton's linear layouts: a list of bases for each input"),
    "mlir": Notation(
        "mlir_layout", is_read=False, title="an MLIR affine map, from warp, lane, reg and slot to coordinates"
    ),
    "c": Notation("c_expressions", is_read=False, title="C expressions of the lane and of PTX's element number"),
    "numpy": Notation("index_arrays", is_read=True, title="an index array per coordinate", is_text=False),
    "json": Notation("json_layout", is_read=True, title="every digit and what it moves: any layout at all"),
}


def converter(notation: str, does: str) -> Callable[..., Any]:
    """What writes a layout in a notation, or reads one: the function `does` of its module."""
    can = [name for name, known in NOTATIONS.items() if known.is_read or does == "write"]
    if not isinstance(notation, str) or notation not in can:
        written = isinstance(notation, str) and notation in NOTATIONS
        fault = f"{notation} is only written" if written else f"no notation {quote(notation)}"
        msg = f"{fault}: expected one of {', '.join(can)}"
        raise InvalidOperand(msg)
    function: Callable[..., Any] = getattr(import_module(f"warpfrag.layout.{NOTATIONS[notation].module}"), does)

    def convert(source: object, **options: object) -> object:
        takes = [
            name
            for name, parameter in inspect.signature(function).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
        ]
        unknown = [name for name in options if name not in takes]
        if unknown:
            has = f"it takes {', '.join(takes)}" if takes else "it takes no options"
            msg = f"{does} {notation}: {', '.join(unknown)} means nothing here; {has}"
            raise InvalidOperand(msg)
        return function(source, **options)

    return convert
