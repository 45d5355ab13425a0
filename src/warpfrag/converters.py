"""Layouts in other notations. They are written and read by a room above the layout, so that room is found by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def converter(notation: str, does: str) -> Callable[..., Any]:
    """What writes a layout in a notation, or reads one."""
    find: Callable[[str, str], Callable[..., Any]] = import_module("warpfrag.notations").converter
    return find(notation, does)
