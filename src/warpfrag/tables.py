"""Read the tables of facts in the folder `tables`: TOML files that cite their sources.

Parsing the TOML would take 15 % of the CPU time of a look-up such as `warpfrag where` (142 ms instead of 118 ms;
`import numpy` takes 156 ms). Python's import machinery therefore caches the parsed rows in `__pycache__`, and parses a
file again only after it has changed.
"""

from __future__ import annotations

from functools import cache
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any, cast


class TableLoader(SourceFileLoader):
    """An import loader that compiles a TOML file into bytecode that builds its rows."""

    @staticmethod
    def source_to_code(data: object, path: object = "", *, _optimize: int = -1) -> CodeType:
        """Return the bytecode that builds the rows of a TOML file."""
        import tomllib

        rows = tomllib.loads(cast("bytes", data).decode("utf-8"))
        return compile(repr(rows), str(path), "eval", optimize=_optimize)


@cache
def read_table(name: str) -> dict[str, Any]:
    """Return the rows of `tables/<name>.toml`; raise an error if there are none."""
    code = cast("CodeType", TableLoader(name, f"{__file__[: -len('.py')]}/{name}.toml").get_code(name))
    rows: dict[str, Any] = eval(code)  # noqa: S307 (literals only)
    if not rows:
        raise ValueError(f"table {name} is empty")
    return rows
