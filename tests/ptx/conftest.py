"""Every test of the PTX machine runs in both engines."""

import pytest

from warpfrag.ptx.kernel import Kernel


@pytest.fixture(autouse=True, params=["reference", "compiled"])
def engine(request, monkeypatch):
    """The engine of every launch that names none."""
    monkeypatch.setitem(Kernel.launch.__wrapped__.__kwdefaults__, "engine", request.param)
    return request.param
