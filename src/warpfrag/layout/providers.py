"""Functions that higher layers provide to lower ones: figures, notebook cards, tensor-memory operands, emitted plans.

`viz` draws the notebook card of a layout, but `layout` must not import `viz`. So `warpfrag/__init__.py` registers the
function for each service, which is imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

_PROVIDERS: dict[str, tuple[str, str]] = {}


def register(service: str, module: str, function: str) -> None:
    """Register the function that provides a service; its module is imported on first use."""
    _PROVIDERS[service] = module, function


@cache
def _provider(service: str) -> Callable[..., Any]:
    module, function = _PROVIDERS[service]
    provider: Callable[..., Any] = getattr(import_module(module), function)
    return provider


def figure_svg(subject: object, theme: str) -> str:
    """Return the figure of an object as SVG; `theme` is auto, light or dark."""
    svg: str = _provider("figure_svg")(subject, theme)
    return svg


def card(subject: object) -> str:
    """Return the notebook card of an object as HTML."""
    html: str = _provider("card")(subject)
    return html


def tensor_operand(row: object, form: object, rule: object) -> object:
    """Return the tensor-memory operand of an ISA row, for a form and, if it is sparse, its pattern."""
    return _provider("tensor_operand")(row, form, rule)


def emit_plan(plan: object, lang: str, name: str) -> str:
    """Return the code of a relayout or access plan as a function called `name`; if `name` is empty, use a default."""
    code: str = _provider("emit_plan")(plan, lang, name)
    return code
