"""The facts of warpfrag, as rows in TOML files, each with its source; this module only reads them."""

from __future__ import annotations

import tomllib
from functools import cache
from typing import Any


@cache
def read_table(name: str) -> dict[str, Any]:
    """The rows of `tables/<name>.toml`. Callers check what the rows say; here only emptiness is refused."""
    with open(f"{__path__[0]}/{name}.toml", "rb") as file:  # noqa: PTH123 (importing pathlib takes longer than reading)
        rows = tomllib.load(file)
    if not rows:
        msg = f"table {name} is empty"
        raise ValueError(msg)
    return rows
