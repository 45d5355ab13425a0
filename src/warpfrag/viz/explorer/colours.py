"""The colours of the page: those of the figures, as style rules, so that a lane has one colour everywhere."""

from __future__ import annotations

from warpfrag.viz.palette import COLOURS, DARK, LIGHT, Palette


def colour_rules() -> str:
    """The rules for both schemes: paper and ink, and a class `t5` for lane 5."""
    return f"{_rules(LIGHT)}\n@media (prefers-color-scheme: dark) {{\n{_rules(DARK)}\n}}\n"


def _rules(palette: Palette) -> str:
    tokens = {"paper": palette.paper, "ink": palette.ink, "muted": palette.muted}
    root = " ".join(f"--{name}: {colour};" for name, colour in tokens.items())
    lanes = (f".t{lane} {{ --lane-colour: {palette.lane(lane)}; }}" for lane in range(COLOURS))
    return "\n".join([f":root {{ {root} }}", *lanes])
