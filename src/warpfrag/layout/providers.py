"""What higher modules provide to the objects of lower ones: notebook cards, other notations, tensor memory.

`Layout.to("cute")` is written by `layout.notations`, a card is drawn by `viz.draw`. Both are above
the objects that have these methods, so the objects do not import them: `warpfrag/__init__.py` registers a loader for
each service, and the loader imports what it needs on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable


class CardRenderer(Protocol):
    """Draws the notebook card of an object, as HTML; `kind` is instruction, operand or layout."""

    def __call__(self, kind: str, thing: object) -> str:
        """The card of a thing of this kind."""


class ConverterLookup(Protocol):
    """Finds the function that writes a layout in a notation or reads one: `direction` is write or read."""

    def __call__(self, notation: str, direction: str) -> Callable[..., object]:
        """The converter; InvalidOperand where a notation is unknown or only written."""


class OperandBuilder(Protocol):
    """Makes the operand in tensor memory of a row of the ISA."""

    def __call__(self, row: object, form: object, rule: object) -> object:
        """The operand of a row, of this form, pruned by this rule if at all."""


class PlanEmitter(Protocol):
    """Writes a relayout or access plan as CUDA C++ or PTX."""

    def __call__(self, plan: object, lang: str, name: str) -> str:
        """The code of a plan."""


_LOADERS: dict[str, Callable[[], object]] = {}


def register(service: str, load: Callable[[], object]) -> None:
    """Name the function that imports what provides a service."""
    _LOADERS[service] = load


def card(kind: str, thing: object) -> str:
    """The card of an instruction, operand or layout, as HTML."""
    return cast("CardRenderer", _LOADERS["card"]())(kind, thing)


def tensor_operand(row: object, form: object, rule: object) -> object:
    """The operand in tensor memory of a row of the ISA: its classes build on those of registers."""
    return cast("OperandBuilder", _LOADERS["tensor_operand"]())(row, form, rule)


def emit_plan(plan: object, lang: str, name: str) -> str:
    """The code of a relayout or access plan: a function of this name, or of a default name if it is empty."""
    return cast("PlanEmitter", _LOADERS["emit_plan"]())(plan, lang, name)


def converter(notation: str, direction: str) -> Callable[..., Any]:
    """The function that writes a layout in a notation, or reads one."""
    return cast("ConverterLookup", _LOADERS["converter"]())(notation, direction)
