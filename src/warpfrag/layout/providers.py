"""Services of higher modules for the objects of lower ones: notebook cards and operands in tensor memory.

`viz` draws the notebook card of a layout, but `layout` must not import `viz`. So `warpfrag/__init__.py` registers a
loader for each service, which imports the provider on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast


class FigureSvg(Protocol):
    """Draws an object that has a figure, as SVG."""

    def __call__(self, subject: object, theme: str) -> str:
        """Return the SVG text of the figure of `subject`."""


class CardRenderer(Protocol):
    """Makes the notebook card of an instruction, an operand, a layout or a report."""

    def __call__(self, subject: object) -> str:
        """Return the card of `subject` as HTML."""


class OperandBuilder(Protocol):
    """Makes the operand in tensor memory of a row of the ISA."""

    def __call__(self, row: object, form: object, rule: object) -> object:
        """The operand of a row, of this form, pruned by this rule if at all."""


class PlanEmitter(Protocol):
    """Writes a relayout or access plan as CUDA C++ or PTX."""

    def __call__(self, plan: object, lang: str, name: str) -> str:
        """Return the code of a plan."""


_LOADERS: dict[str, Callable[[], object]] = {}


def register(service: str, load: Callable[[], object]) -> None:
    """Name the function that imports what provides a service."""
    _LOADERS[service] = load


def figure_svg(subject: object, theme: str) -> str:
    """Return the figure of an object as SVG; `theme` is auto, light or dark."""
    return cast("FigureSvg", _LOADERS["figure_svg"]())(subject, theme)


def card(subject: object) -> str:
    """Return the notebook card of an object as HTML."""
    return cast("CardRenderer", _LOADERS["card"]())(subject)


def tensor_operand(row: object, form: object, rule: object) -> object:
    """The operand in tensor memory of a row of the ISA: its classes build on those of registers."""
    return cast("OperandBuilder", _LOADERS["tensor_operand"]())(row, form, rule)


def emit_plan(plan: object, lang: str, name: str) -> str:
    """Return the code of a relayout or access plan: a function of this name, or of a default name if it is empty."""
    return cast("PlanEmitter", _LOADERS["emit_plan"]())(plan, lang, name)
