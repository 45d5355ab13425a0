"""Cards for notebooks. They are drawn by a room above those whose objects have one, so that room is found by name."""

from __future__ import annotations

from importlib import import_module


def card(kind: str, thing: object) -> str:
    """The card of an instruction, operand or layout, as HTML."""
    html: str = getattr(import_module("warpfrag.draw.notebook"), f"{kind}_html")(thing)
    return html
