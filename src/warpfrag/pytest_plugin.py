"""Run Triton tests that were written for a GPU without one: `pytest -p warpfrag.pytest_plugin`.

While pytest runs, warpfrag runs every launch of a Triton kernel, compiled for `--triton-arch`, and tensors for device
"cuda" are created in host memory. With `--triton-check`, a test whose launches have findings fails, and the findings
are printed. The fixture `triton_session` has the launches of one test:

    def test_add(triton_session):
        ...
        uncertain = [launch for launch in triton_session.launches if launch.run.inexact_lines]
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress

import pytest

from warpfrag.machine.interpreter.kernel_findings import CHECKS
from warpfrag.triton import Session, emulate

SESSION = pytest.StashKey[Session]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the command line."""
    group = parser.getgroup("warpfrag", "Triton kernels without a GPU")
    group.addoption("--triton-arch", default="sm_90a", metavar="SM", help="architecture to compile for [%(default)s]")
    checks = f"fail a test with findings of this check: {', '.join(CHECKS)} or all"
    group.addoption("--triton-check", action="append", default=[], metavar="CHECK", help=checks)
    group.addoption("--triton-engine", default="auto", metavar="ENGINE", help="auto, reference or compiled")


def pytest_configure(config: pytest.Config) -> None:
    """Start before test files are imported: their decorators ask whether there is a GPU."""
    with suppress(ImportError):
        import torch  # noqa: F401 (the session redirects devices only if PyTorch is loaded)
    config.stash[SESSION] = _session(config).__enter__()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Restore Triton's driver."""
    session = config.stash.get(SESSION, None)
    if session is not None:
        session.__exit__(None, None, None)
        del config.stash[SESSION]


@pytest.fixture(autouse=True)
def triton_session(request: pytest.FixtureRequest) -> Iterator[Session]:
    """Yield the session of a test: its `launches` are the launches of this test."""
    with _session(request.config) as session:
        yield session
    request.config.stash[SESSION].launches.extend(session.launches)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that passed although a check has findings."""
    yield
    session: Session | None = getattr(item, "funcargs", {}).get("triton_session")
    launches = session.launches if session else []
    findings = [f"{launch.kernel}: {finding}" for launch in launches for finding in launch.run.findings]
    if findings:
        pytest.fail("\n".join(findings), pytrace=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the number of launches and findings."""
    session = config.stash[SESSION]
    findings = sum(len(launch.run.findings) for launch in session.launches)
    terminalreporter.write_line(
        f"warpfrag: {len(session.launches)} launches of Triton kernels on {session.arch}, {findings} findings"
    )


def _session(config: pytest.Config) -> Session:
    return emulate(
        config.getoption("--triton-arch"),
        checks=config.getoption("--triton-check"),
        engine=config.getoption("--triton-engine"),
    )
