"""What the extra `dask` brings, imported when it is needed; a sentence where it is not there."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from warpfrag.errors import WarpfragError

if TYPE_CHECKING:
    from types import ModuleType


class MissingExtra(WarpfragError, ImportError):
    """A package of an extra is not installed; an ImportError too."""


class UnusableScheduler(WarpfragError, OSError):
    """A scheduler cannot be reached, has gone, or has workers that differ from us; an OSError too."""


def extra(name: str) -> ModuleType:
    """A module of the extra `dask`."""
    try:
        return import_module(name)
    except ImportError as error:
        msg = f"a study needs {error.name or name}, which is not installed: pip install 'warpfrag[dask]'"
        raise MissingExtra(msg) from None
