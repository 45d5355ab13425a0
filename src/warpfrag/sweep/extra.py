"""What the extra `dask` brings, imported when it is needed; a sentence where it is not there."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from warpfrag.errors import MissingExtra

if TYPE_CHECKING:
    from types import ModuleType


def extra(name: str) -> ModuleType:
    """A module of the extra `dask`."""
    try:
        return import_module(name)
    except ImportError as error:
        msg = f"a study needs {error.name or name}, which is not installed: pip install 'warpfrag[dask]'"
        raise MissingExtra(msg) from None
