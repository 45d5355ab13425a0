"""What libraries run for a product: the table `tables/libraries.toml`."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from warpfrag.errors import InvalidOperand, NotModelled
from warpfrag.formats.codes import natural_dtype
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.targets import read_target
from warpfrag.tables import read_table


@cache
def _instructions() -> dict[str, dict[str, str]]:
    """By architecture, then by the format of the operands."""
    rows = read_table("libraries")["instruction"]
    return {row["arch"]: {name: text for name, text in row.items() if name in FORMATS} for row in rows}


def instruction_for(a: np.dtype[Any], b: np.dtype[Any], arch: str) -> str:
    """The instruction that a library's kernels have for operands of these dtypes on an architecture."""
    base = read_target(arch, "").name.rstrip("af")
    if base not in _instructions():
        msg = f"which instruction libraries use was measured on {', '.join(_instructions())}, not on {base}: name one"
        raise NotModelled(msg)
    known = {natural_dtype(FORMATS[name]): name for name in _instructions()[base]}
    if a != b or a not in known:
        msg = f"A is {a} and B is {b}: expected both of one of {', '.join(map(str, known))}, or name an instruction"
        raise InvalidOperand(msg)
    return _instructions()[base][known[a]]
