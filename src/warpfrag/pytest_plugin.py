"""Run Triton tests without a GPU: `pytest -p warpfrag.pytest_plugin --check races,memory`.

While pytest runs, warpfrag runs every launch of a Triton kernel, compiled for `--triton-arch`, and tensors for device
"cuda" are created in host memory. The plugin starts before conftest.py is imported. With `--check`, a test whose
launches have findings fails, and the findings are printed. A launch that takes longer than `--launch-seconds` fails
with an error that names the line it had reached. The fixture `triton_session` has the launches of one test. Only tests
that use it judge whether launches are exact (`run.exact`), because that takes time:

    def test_add(triton_session):
        ...
        uncertain = [launch for launch in triton_session.launches if launch.run.uncertain]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

from warpfrag.device.launch_log import UNJUDGED, unjudged_of
from warpfrag.errors import InvalidOperand, WarpfragError
from warpfrag.machine.interpreter.kernel_findings import CHECKS

if TYPE_CHECKING:
    from warpfrag.device.virtual_gpu import GpuSession
    from warpfrag.triton import Launch, Session
    from warpfrag.triton.triton_session import SessionOptions

LAUNCH_SECONDS = 300.0


@dataclass
class LaunchSummary:
    """The session of the whole test run, the options of every test's session, and the counts over finished tests."""

    session: Session
    checks: tuple[str, ...]
    launches: int = 0
    failed: int = 0
    findings: int = 0
    incomplete: int = 0
    unjudged: list[str] = field(default_factory=list)
    options: SessionOptions = field(default_factory=dict)  # type: ignore[assignment] # no option is required

    def add(self, session: Session) -> None:
        """Count the launches of a session."""
        runs = [launch.run for launch in session.launches]
        self.launches += len(runs) + session.failed
        self.failed += session.failed
        self.findings += sum(len(run.findings) for run in runs)
        self.incomplete += sum(run.verdict == "incomplete" for run in runs)
        self.unjudged += [text for text in _texts(session.launches) if UNJUDGED in text]

    def __str__(self) -> str:
        """Return a one-line summary for the end of the run."""
        if not self.launches:
            return "warpfrag: no Triton kernel was launched; nothing was checked"
        launched = f"warpfrag: {self.launches} Triton launch{'es' * (self.launches > 1)} on {self.session.arch}"
        launched += f", {self.failed} ended with an error" if self.failed else ""
        checked = f"{launched}; the other {self.launches - self.failed}" if self.failed else launched
        if self.failed == self.launches:
            return f"{launched}; nothing was checked"
        if not self.checks:
            return f"{launched}; nothing was checked (--check all finds races, wrong addresses and more)"
        incomplete = f", {self.incomplete} incomplete launch{'es' * (self.incomplete > 1)}" if self.incomplete else ""
        findings = f"{self.findings} finding{'s' * (self.findings != 1)}"
        return f"{checked}, checked for {', '.join(self.checks)}: {findings}{incomplete}"


COUNTS = ("launches", "failed", "findings", "incomplete", "unjudged")
SUMMARY = pytest.StashKey[LaunchSummary]()
SESSION = pytest.StashKey["Session"]()
REPORTED = pytest.StashKey[int]()
GPU = pytest.StashKey["GpuSession"]()


def read_checks(text: str) -> list[str]:
    """Return the names in a list such as `races,memory`."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in (*CHECKS, "all"):
            raise pytest.UsageError(f"--check: expected {', '.join(CHECKS)} or all, got {name!r}")
    return names


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the command line."""
    group = parser.getgroup("warpfrag", "Triton kernels without a GPU")
    checks = f"fail tests whose kernels have findings: {','.join(CHECKS)} or all"
    group.addoption("--check", action="append", default=[], metavar="CHECKS", help=checks)
    unjudged = "the effect of a launch that the checks cannot judge completely: fail its test, warn in the summary \
[default], or accept it"
    choices = ("fail", "warn", "accept")
    group.addoption("--check-incomplete", choices=choices, default="warn", help=unjudged)
    group.addoption("--triton-arch", default="sm_90a", metavar="ARCH", help="compile for this GPU [%(default)s]")
    everything = "give the tests a virtual GPU, which runs all CUDA code, not only Triton kernels"
    group.addoption("--virtual-gpu", action="store_true", help=everything)
    limit = "stop a launch after this many seconds, and show the line it had reached [%(default)s]"
    group.addoption("--launch-seconds", type=float, default=LAUNCH_SECONDS, metavar="S", help=limit)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start before conftest.py and test files are imported, because they check for a GPU."""
    chosen = early_config.known_args_namespace
    checks = tuple(dict.fromkeys(name for text in chosen.check for name in read_checks(text)))
    options: SessionOptions = {"arch": chosen.triton_arch, "seconds": chosen.launch_seconds, "judge": False}
    options["checks"] = "all" if "all" in checks else checks  # type: ignore[typeddict-item] # read_checks has checked the names
    try:
        if chosen.virtual_gpu:
            from warpfrag.device.virtual_gpu import gpu, preloading

            device = gpu(checks=checks, launch_seconds=chosen.launch_seconds)
            early_config.stash[GPU] = device.__enter__()  # for the rest of the process
            os.environ |= preloading()  # programs that the tests start have the same GPU
            return
        with suppress(ImportError):
            import torch  # noqa: F401 (the session redirects devices only if PyTorch is loaded)
        from warpfrag.triton import emulate

        session = emulate(**options)
    except (ImportError, InvalidOperand) as error:
        raise pytest.UsageError(f"warpfrag.pytest_plugin: {error}") from None
    early_config.stash[SUMMARY] = LaunchSummary(session.__enter__(), checks, options=options)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the session of the run, which restores Triton's driver."""
    summary = config.stash.get(SUMMARY, None)
    if summary is not None:
        summary.session.__exit__(None, None, None)
        del config.stash[SUMMARY]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test, with its fixtures, in its own session."""
    if device := _virtual_gpu(item.config):
        item.stash[REPORTED] = len(device.findings)
        return (yield)
    from warpfrag.triton import emulate

    summary = item.config.stash[SUMMARY]
    summary.options["judge"] = "triton_session" in getattr(item, "fixturenames", ())
    with emulate(**summary.options) as session:
        item.stash[SESSION], item.stash[REPORTED] = session, 0
        done = yield
    summary.add(session)
    return done


def _virtual_gpu(config: pytest.Config) -> GpuSession | None:
    """Return the virtual GPU that --virtual-gpu started, or None."""
    return config.stash.get(GPU, None)


@pytest.fixture
def triton_session(request: pytest.FixtureRequest) -> Session:
    """Return the session of a test; its `launches` are those of this test."""
    return request.node.stash[SESSION]  # type: ignore[no-any-return] # a node has a stash of any types


def _phase(name: str) -> Callable[[pytest.Item], Generator[None, None, None]]:
    """Return the hook that fails a test whose kernels have findings in a phase."""

    def run(item: pytest.Item) -> Generator[None, None, None]:
        yield from _with_findings(item, name)

    return pytest.hookimpl(wrapper=True)(run)


pytest_runtest_setup, pytest_runtest_call, pytest_runtest_teardown = map(_phase, ("setup", "call", "teardown"))


def _with_findings(item: pytest.Item, phase: str) -> Generator[None, None, None]:
    """Run a phase of a test; findings make it fail, or are added to its error."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, WarpfragError):
            error.__traceback__ = _own_frames(error.__traceback__)
        if findings := _new_findings(item):
            item.add_report_section(phase, "warpfrag findings", findings)
        raise
    if findings := _new_findings(item):
        pytest.fail(findings, pytrace=False)


def _own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of Triton and warpfrag, which do not help to find a kernel's mistake."""
    inner = tuple(str(Path(sys.modules[name].__file__ or "").parent) for name in ("triton", "warpfrag"))
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    for entry in reversed(entries):
        if not entry.tb_frame.f_code.co_filename.startswith(inner):
            traceback = TracebackType(traceback, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return traceback


def _new_findings(item: pytest.Item) -> str:
    """Return the findings since the last call, one per line; unjudged events are included if they make tests fail."""
    device, fails = _virtual_gpu(item.config), item.config.option.check_incomplete == "fail"
    found = device.findings if device else _texts(item.stash[SESSION].launches)
    new, item.stash[REPORTED] = found[item.stash[REPORTED] :], len(found)
    return "\n".join(text for text in new if fails or UNJUDGED not in text)


def _texts(launches: list[Launch]) -> list[str]:
    """Return the findings of launches, and the events that the checks could not judge."""
    return [
        f"{launch.kernel}: {text}"
        for launch in launches
        for text in (*launch.run.findings, *(f"{UNJUDGED}{reason}" for reason in launch.run.unjudged))
    ]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the counts of a pytest-xdist worker to the main process."""
    output, summary = getattr(session.config, "workeroutput", None), session.config.stash.get(SUMMARY, None)
    if output is not None and summary is not None:
        output["warpfrag"] = {name: getattr(summary, name) for name in COUNTS}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 (a class of pytest-xdist)
    """Add the counts of a pytest-xdist worker."""
    for name, count in getattr(node, "workeroutput", {}).get("warpfrag", {}).items():
        summary = node.config.stash[SUMMARY]
        setattr(summary, name, getattr(summary, name) + count)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the number of launches and findings, and the events that the checks could not judge."""
    device = _virtual_gpu(config)
    found = device.findings if device else config.stash[SUMMARY].unjudged
    for text in unjudged_of(found) if config.option.check_incomplete == "warn" else ():
        terminalreporter.write_line(f"warpfrag: {text}; --check-incomplete fail makes its test fail")
    terminalreporter.write_line(str(device or config.stash[SUMMARY]))
