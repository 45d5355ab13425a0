"""A fixture that lets tests of `exact` look at order and values only."""

import pytest

from oracle import toolkit
from warpfrag.sass.sass_module import SassModule


class Everything(frozenset):
    """A table in which every spelling was compared."""

    def __contains__(self, spelling):
        return True

    def __bool__(self):
        return True


@pytest.fixture
def every_spelling_compared(monkeypatch):
    """Assemble and decode with the installed tools, and count every spelling as compared."""
    toolkit.find_ptxas("sm_90a")
    toolkit.programs("nvdisasm") or toolkit.absent("no nvdisasm: install nvidia-cuda-nvdisasm>=13.4")
    monkeypatch.setattr(SassModule, "compared_spellings", lambda _: Everything())
