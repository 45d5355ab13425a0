"""Colours of figures, light and dark: a hue for each group of four lanes, and a lightness for each lane in it.

The lightness differs enough to distinguish lanes on a grey printout. Neighbouring groups have very different hues,
because they usually hold neighbouring rows. Every colour is computed in OKLCH, where equal lightness looks equally
light; a test checks that text on it has a contrast of at least 4.5 to 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, radians, sin
from typing import Literal, get_args

from warpfrag.errors import InvalidOperand, quote

COLOURS = 32  # the warps of a warpgroup reuse the colours of the first warp
GROUP = 4  # the number of lanes that share a hue
HUE_STEP = 135  # degrees between neighbouring groups, which gives eight hues and clearly different neighbours
FIRST_HUE = 250

Theme = Literal["auto", "light", "dark"]


@dataclass(frozen=True)
class Palette:
    """The colours of one theme. `lightness` and `chroma` are those of the four lanes of a group."""

    paper: str
    ink: str
    muted: str
    edge: str
    unread: str
    lightness: tuple[float, float, float, float]
    chroma: tuple[float, float, float, float]

    def lane(self, lane: int) -> str:
        """Return the fill colour of a lane."""
        shade = lane % GROUP
        return oklch(self.lightness[shade], self.chroma[shade], FIRST_HUE + HUE_STEP * (lane // GROUP))


LIGHT = Palette(
    paper="#ffffff",
    ink="#14181d",
    muted="#515a64",
    edge="#3f4852",
    unread="#eceef0",
    lightness=(0.955, 0.885, 0.81, 0.735),
    chroma=(0.035, 0.065, 0.085, 0.095),
)
DARK = Palette(
    paper="#14181d",
    ink="#f3f5f7",
    muted="#a9b2bc",
    edge="#c3cad2",
    unread="#262b31",
    lightness=(0.315, 0.375, 0.435, 0.495),
    chroma=(0.045, 0.06, 0.075, 0.085),
)


def themed(theme: Theme, rules: Callable[[Palette], str]) -> str:
    """Return CSS rules for a theme; "auto" follows the reader's colour scheme, and prints in light colours."""
    if not (isinstance(theme, str) and theme in get_args(Theme)):
        raise InvalidOperand(f"theme: expected {', '.join(get_args(Theme))}; got {quote(theme)}")
    if theme == "auto":
        return f"{rules(LIGHT)}@media screen and (prefers-color-scheme:dark){{{rules(DARK)}}}"
    return rules(DARK if theme == "dark" else LIGHT)


def oklch(lightness: float, chroma: float, hue: float) -> str:
    """Return a colour as #rrggbb from its lightness (0..1), its chroma and its hue in degrees."""
    green_red, blue_yellow = chroma * cos(radians(hue)), chroma * sin(radians(hue))
    # Bjoern Ottosson's matrices: Oklab to the cube roots of cone responses, and these to linear sRGB.
    long = (lightness + 0.3963377774 * green_red + 0.2158037573 * blue_yellow) ** 3
    medium = (lightness - 0.1055613458 * green_red - 0.0638541728 * blue_yellow) ** 3
    short = (lightness - 0.0894841775 * green_red - 1.2914855480 * blue_yellow) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(f"{round(255 * _gamma(channel)):02x}" for channel in linear)


def _gamma(channel: float) -> float:
    """Convert linear light to an sRGB channel, clamped to 0..1."""
    channel = min(1.0, max(0.0, channel))
    return 12.92 * channel if channel <= 0.0031308 else 1.055 * channel ** (1 / 2.4) - 0.055
