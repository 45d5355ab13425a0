"""Conversions between formats as PTX's cvt does them: to nearest even, saturating where it does."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from warpfrag.errors import NotModelled
from warpfrag.formats.float_environment import exact_floats
from warpfrag.formats.number_formats import FORMATS
from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.tables import read_table

if TYPE_CHECKING:
    from numpy.typing import NDArray


@frozen_dataclass
class Conversion:
    """One row of the table of conversions; the fields are explained at its top."""

    source: str
    target: str
    cvt: str
    pair: bool
    nan: int
    too_large: Literal["infinity", "largest", "clamp"]
    since: int


@cache
def conversions() -> dict[tuple[str, str], Conversion]:
    """Every conversion, by the formats from and to."""
    by_formats = {}
    for row in read_table("conversions")["conversion"]:
        rest = {name: entry for name, entry in row.items() if name not in {"from", "to"}}
        by_formats[row["from"], row["to"]] = Conversion(row["from"], row["to"], **rest)
    return by_formats


def conversion(source: str, target: str) -> Conversion | None:
    """How elements get from one format to another; None where they stay as they are; refused where nothing does it."""
    if source == target:
        return None
    row = conversions().get((source, target))
    if row is None:
        known = ", ".join(f"{a} to {b}" for a, b in conversions())
        msg = f"no conversion from {source} to {target} is known; known: {known}"
        raise NotModelled(msg)
    return row


@exact_floats
def convert_codes(source: str, target: str, codes: NDArray[Any]) -> NDArray[Any]:
    """The codes of a format that codes of another become."""
    import numpy as np

    from warpfrag.formats.arrays import as_doubles
    from warpfrag.formats.codes import code_dtype, from_codes, to_codes

    row = conversion(source, target)
    if row is None:
        return codes
    into = FORMATS[target]
    values = as_doubles(from_codes(FORMATS[source], codes))
    nan = np.isnan(values)
    if row.too_large != "infinity":
        values = np.clip(np.where(nan, 0.0, values), into.min, into.max)
    converted = to_codes(into, np.where(nan, 0.0, values), rounding="rne")
    return np.where(nan, code_dtype(into).type(row.nan), converted)
