"""Tests of Triton kernels without a GPU and without a change: `pytest -p warpfrag.triton.pytest_plugin`.

While pytest runs, every launch of a Triton kernel runs here, compiled for `--triton-target`, and device "cuda" is the
memory of the host, from the moment test files are imported. The fixture `triton_session` is the session of one test:

    def test_add(triton_session):
        ...
        uncertain = [launch for launch in triton_session.launches if launch.run.inexact_lines]

The last lines of a run say how many launches and findings there were.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from warpfrag.ptx.interpreter.kernel_findings import CHECKS
from warpfrag.triton.session import DEFAULT_TARGET, Session, emulate

if TYPE_CHECKING:
    from collections.abc import Iterator

SESSION = pytest.StashKey[Session]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the command line."""
    group = parser.getgroup("warpfrag", "Triton kernels without a GPU")
    group.addoption("--triton-target", default=DEFAULT_TARGET, metavar="SM", help="what to compile for [%(default)s]")
    checks = f"{', '.join(CHECKS)} or all"
    group.addoption("--triton-check", action="append", default=[], metavar="CHECK", help=checks)
    group.addoption("--triton-engine", default="auto", metavar="ENGINE", help="auto, reference or compiled")


def pytest_configure(config: pytest.Config) -> None:
    """Begin before test files are imported: their decorators ask whether there is a GPU."""
    with suppress(ImportError):
        import torch  # noqa: F401 (it must be there to be told where tensors go)
    config.stash[SESSION] = _session(config).__enter__()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give Triton its driver back."""
    session = config.stash.get(SESSION, None)
    if session is not None:
        session.__exit__(None, None, None)
        del config.stash[SESSION]


@pytest.fixture(autouse=True)
def triton_session(request: pytest.FixtureRequest) -> Iterator[Session]:
    """The session of a test: its `launches` are those of this test."""
    with _session(request.config) as session:
        yield session
    request.config.stash[SESSION].launches.extend(session.launches)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what ran here."""
    session = config.stash[SESSION]
    findings = sum(len(launch.run.findings) for launch in session.launches)
    terminalreporter.write_line(
        f"warpfrag: {len(session.launches)} launches of Triton kernels on {session.target}, {findings} findings"
    )


def _session(config: pytest.Config) -> Session:
    return emulate(
        config.getoption("--triton-target"),
        checks=config.getoption("--triton-check"),
        engine=config.getoption("--triton-engine"),
    )
