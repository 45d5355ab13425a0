"""No search for garbage while many objects are made that all stay: it would go through all of them again and again."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Search nothing meanwhile."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def count_as_old() -> None:
    """Count all objects as old, like those that a search has kept twice: the next search will leave them alone.

    A program that keeps objects out of all searches (`gc.freeze`) goes on to do so: then nothing is changed.
    """
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()
