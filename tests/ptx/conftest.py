"""Every test of the PTX machine runs in both engines, but for those marked `one_engine`, which run no kernel."""

import pytest

from warpfrag.ptx.kernel import Kernel


def pytest_generate_tests(metafunc):
    alone = metafunc.definition.get_closest_marker("one_engine")
    metafunc.parametrize("engine", ["reference"] if alone else ["reference", "compiled"], indirect=True)


@pytest.fixture(autouse=True)
def engine(request, monkeypatch):
    """The engine of every launch that names none."""
    monkeypatch.setitem(Kernel.launch.__wrapped__.__kwdefaults__, "engine", request.param)
    return request.param
