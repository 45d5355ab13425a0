"""Colour contrast as WCAG defines it, for the tests of figures and of the explorer.

A colour is `#rrggbb`, or its red, green and blue as numbers up to 255.
"""

READABLE = 4.5  # the contrast that WCAG asks of text


def _linear(colour):
    """Red, green and blue light, 0..1."""
    channels = bytes.fromhex(colour[1:]) if isinstance(colour, str) else colour[:3]
    shares = [channel / 255 for channel in channels]
    return [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]


def luminance(colour):
    """Return the luminance of a colour, 0..1, which is all that remains in greyscale print."""
    red, green, blue = _linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    """The contrast ratio of two colours, 1..21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def distance(one, other):
    """Return the distance of two colours in Oklab, in which black and white are 1 apart."""
    return sum((x - y) ** 2 for x, y in zip(_oklab(one), _oklab(other), strict=True)) ** 0.5


def _oklab(colour):
    """Lightness and the two axes of colour, by the published matrices."""
    red, green, blue = _linear(colour)
    cones = (
        0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue,
        0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue,
        0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue,
    )
    long, medium, short = (cone ** (1 / 3) for cone in cones)
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )
