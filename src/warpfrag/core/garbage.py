"""No search for garbage while many objects are made that all stay: it would go through all of them again and again."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Search nothing meanwhile; what was made counts as old afterwards, as if it had survived some searches."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            if not gc.get_freeze_count():  # else the program has its own plans
                gc.freeze()
                gc.unfreeze()  # into the oldest generation
            gc.enable()
