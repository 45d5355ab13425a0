"""The facts of warpfrag, as rows in TOML files, each with its source; this module only reads them.

Parsing TOML would take a fifth of a look-up's time, so Python treats a table as it treats a module: it keeps the parsed
form in `__pycache__`, and parses again when the file has changed.
"""

from __future__ import annotations

from functools import cache
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from types import CodeType


class TableLoader(SourceFileLoader):
    """Loads a table as bytecode that makes its rows."""

    @staticmethod
    def source_to_code(data: object, path: object = "", *, _optimize: int = -1) -> CodeType:
        """The bytecode of a TOML file."""
        import tomllib

        rows = tomllib.loads(cast("bytes", data).decode("utf-8"))
        code: CodeType = compile(repr(rows), str(path), "eval", optimize=_optimize)
        return code


@cache
def read_table(name: str) -> dict[str, Any]:
    """The rows of `tables/<name>.toml`. Callers check what the rows say; here only emptiness is refused."""
    code = cast("CodeType", TableLoader(name, f"{__path__[0]}/{name}.toml").get_code(name))
    rows: dict[str, Any] = eval(code)  # noqa: S307 (literals only)
    if not rows:
        msg = f"table {name} is empty"
        raise ValueError(msg)
    return rows
