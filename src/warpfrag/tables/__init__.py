"""The facts of warpfrag, as rows in TOML files, each with its source; this module only reads them."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def read_table(name: str) -> dict[str, Any]:
    """The rows of `tables/<name>.toml`. Callers check what the rows say; here only emptiness is refused."""
    path = Path(__file__).parent / f"{name}.toml"
    with path.open("rb") as file:
        rows = tomllib.load(file)
    if not rows:
        msg = f"table {name} is empty"
        raise ValueError(msg)
    return rows
