"""How well colours stand out, as WCAG defines it: what the tests of figures and of the explorer share.

A colour is `#rrggbb`, or its red, green and blue as numbers up to 255.
"""

from __future__ import annotations

READABLE = 4.5  # the contrast that WCAG asks of text


def luminance(colour):
    """How much light a colour gives off, 0..1; in grey print this is all that is left."""
    channels = bytes.fromhex(colour[1:]) if isinstance(colour, str) else colour[:3]
    shares = [channel / 255 for channel in channels]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    """The contrast ratio of two colours, 1..21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)
