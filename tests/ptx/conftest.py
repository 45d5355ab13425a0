"""Every test of the PTX machine runs in both engines, but for those marked `one_engine`, which run no kernel."""

import pytest

from warpfrag.ptx.launch.kernel import Kernel


def pytest_generate_tests(metafunc):
    if metafunc.definition.get_closest_marker("one_engine") is None:
        metafunc.parametrize("engine", ["reference", "compiled"], indirect=True)


@pytest.fixture(autouse=True)
def engine(request, monkeypatch):
    """The engine of every launch that names none; a test marked `one_engine` has that of a user."""
    named = getattr(request, "param", None)
    if named:
        monkeypatch.setitem(Kernel.launch.__wrapped__.__kwdefaults__, "engine", named)
    return named
