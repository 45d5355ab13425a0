"""Operands of a study: codes that follow from a seed, line by line.

A line is a row of A or a column of B, with its scale factors. Each is drawn by a generator of its own, seeded with the
seed, the operand, the number of the line and the name of the distribution: so a block draws what it needs and nothing
else, and the operands do not depend on how D is cut. Neither do the architecture and the order choose them, nor, where
a distribution has values, the format, which only rounds them.

    normal    a standard normal distribution
    uniform   between -1 and 1; integers of every size
    positive  between 0 and 1; integers that are not negative
    powers    powers of two of both signs, from 2**-8 to 2**8

These are rounded to nearest even and cut off where the format ends; integers are a quarter of the largest times the
normal distribution. `bits`, `finite`, `narrow`, `wide`, `special`, `tiny` and `extreme` are the classes of
`warpfrag.tensorcore.random_operands`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.formats.codes import code_dtype, to_codes
from warpfrag.formats.number_formats import FORMATS
from warpfrag.formats.random_codes import FLOAT_CLASSES, INTEGER_CLASSES, random_codes
from warpfrag.isa.operands import operands
from warpfrag.isa.patterns import pattern_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from warpfrag.formats.number_formats import Format
    from warpfrag.isa.patterns import Pattern
    from warpfrag.isa.qualifiers import Form

MAX_POWER = 8
SCALE_SPREAD = 6
"""How many codes a scale factor may be away from 1."""
ROLES = ("A", "B")


def _integers(row: Format, values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.rint(values * (float(row.max) / 4))


def _normal(row: Format, size: int, random: np.random.Generator) -> NDArray[np.float64]:
    values = random.standard_normal(size)
    return values if row.is_float else _integers(row, values)


def _uniform(row: Format, size: int, random: np.random.Generator) -> NDArray[np.float64]:
    if row.is_float:
        return random.uniform(-1, 1, size)
    return random.integers(int(row.min), int(row.max), size, endpoint=True).astype(np.float64)


def _positive(row: Format, size: int, random: np.random.Generator) -> NDArray[np.float64]:
    return random.random(size) if row.is_float else np.abs(_uniform(row, size, random))


def _powers(row: Format, size: int, random: np.random.Generator) -> NDArray[np.float64]:
    low = max(-MAX_POWER, row.emin) if row.is_float else 0
    high = min(MAX_POWER, int(np.log2(float(row.max))))
    signs = np.where(random.random(size) < 0.5, -1.0, 1.0)
    return signs * np.exp2(random.integers(low, high, size, endpoint=True))


VALUES: dict[str, Callable[[Format, int, np.random.Generator], NDArray[np.float64]]] = {
    "normal": _normal,
    "uniform": _uniform,
    "positive": _positive,
    "powers": _powers,
}
DISTRIBUTIONS = tuple(dict.fromkeys((*VALUES, *FLOAT_CLASSES, *INTEGER_CLASSES)))


def refusal(form: Form, data: str) -> str:
    """Why an instruction's operands have no such distribution; nothing if they have."""
    fits = (*VALUES, *(FLOAT_CLASSES if FORMATS[form.a].is_float else INTEGER_CLASSES))
    return "" if data in fits else f"data {data!r} is not for {form.a}; what is: {', '.join(fits)}"


def draw(
    form: Form, data: str, seed: int, role: str, lines: range, depth: int
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Codes of some rows of A or columns of B, and of their scale factors: one line after the other, along k."""
    row = FORMATS[form.a if role == "A" else form.b]
    codes = np.empty((len(lines), depth), code_dtype(row))
    scales = None
    if form.block_scale:
        scale = operands(form, "")[f"scale_{role.lower()}"]
        each = form.shape.k // scale.layout.outs["scale"]  # numbers that share a scale factor
        scales = np.empty((len(lines), -(-depth // each)), np.uint8)
    pruned = pattern_of(form) if role == "A" else None
    for place, line in enumerate(lines):
        random = np.random.default_rng([seed, ROLES.index(role), line, *data.encode()])
        codes[place] = _codes(row, data, depth, random)
        if pruned is not None:
            codes[place] *= _kept(pruned, depth, random)
        if scales is not None:
            scales[place] = _scales(scale.format, data, scales.shape[1], random)
    return codes, scales


def _codes(row: Format, data: str, size: int, random: np.random.Generator) -> NDArray[Any]:
    if data in VALUES:
        values = np.clip(VALUES[data](row, size, random), float(row.min), float(row.max))
        return to_codes(row, values, rounding="rne")
    if data == "bits":
        return random.integers(0, row.codes - 1, size, dtype=np.uint64, endpoint=True)
    return random_codes(row, data, (size,), random)


def _kept(pruned: Pattern, size: int, random: np.random.Generator) -> NDArray[np.bool_]:
    """Which elements of a row are not pruned, by chance."""
    choices = np.array([[column in kept for column in range(pruned.chunk)] for kept in pruned.rising.values()])
    return choices[random.integers(0, len(choices), -(-size // pruned.chunk))].reshape(-1)[:size]


def _scales(row: Format, data: str, size: int, random: np.random.Generator) -> NDArray[Any]:
    if data == "bits":
        return random.integers(0, row.codes, size)
    return row.encode(1.0) + random.integers(-SCALE_SPREAD, SCALE_SPREAD, size, endpoint=True)
