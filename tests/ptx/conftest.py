"""The engines that run the tests of this folder.

A test launches kernels with the reference engine; `make test-all` runs it with the compiled engine as well. Files about
execution say `pytestmark = pytest.mark.both_engines` and are run with both by `make test` too. A test that launches no
kernel, or names the engine itself, is marked `one_engine`.
"""

import pytest


def pytest_generate_tests(metafunc):
    if metafunc.definition.get_closest_marker("one_engine") is None:
        always = metafunc.definition.get_closest_marker("both_engines") is not None
        compiled = pytest.param("compiled", marks=() if always else pytest.mark.slow)
        metafunc.parametrize("engine", ["reference", compiled], indirect=True)


@pytest.fixture(autouse=True)
def engine(request, monkeypatch):
    """Return the engine of launches that name none; None in a test marked `one_engine`, which uses the default."""
    name = getattr(request, "param", None)
    if name is not None:
        monkeypatch.setenv("WARPFRAG_ENGINE", name)
    return name
