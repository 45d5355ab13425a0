"""Settings that all tests share: hypothesis examples, slow cases, and the summary of a run."""

import signal
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import settings

import warpfrag

# Every run tries the same examples, so that a failure is about the change at hand. `--hypothesis-profile=search` tries
# others. There is no deadline, because the first call may compile.
settings.register_profile("same", max_examples=50, derandomize=True, deadline=None)
settings.register_profile("search", max_examples=5_000, deadline=None)
settings.load_profile("same")


MAX_CASES = 6


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items):
    """Mark slow all but six evenly spaced cases of each parametrised test, unless it is marked `every_case`."""
    tests = defaultdict(list)
    for item in items:
        if not any(item.iter_markers("slow")) and not any(item.iter_markers("every_case")):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        for index, case in enumerate(cases):
            if index * MAX_CASES // len(cases) == (index - 1) * MAX_CASES // len(cases):
                case.add_marker(pytest.mark.slow)


def pytest_report_header():
    return f"warpfrag {warpfrag.__version__}: {Path(warpfrag.__file__).parent}"


def pytest_terminal_summary(terminalreporter):
    """Print the number of kernels that the assembler accepted."""
    counts = Counter()
    for report in terminalreporter.getreports("passed"):
        counts.update({name: n for name, n in report.user_properties if name.startswith("assembler: ")})
    for name, count in sorted(counts.items()):
        terminalreporter.write_line(f"{name}: {count}")


@pytest.fixture(autouse=True)
def ptx_level(request, monkeypatch):
    """Execute PTX, as without ptxas; tests/sass and tests/device need ptxas and execute machine code."""
    if {"sass", "device"} & set(request.path.relative_to(request.config.rootpath).parts):
        monkeypatch.delenv("WARPFRAG_LEVEL", raising=False)
    else:
        monkeypatch.setenv("WARPFRAG_LEVEL", "ptx")


@pytest.fixture
def ctrl_c():
    """Let Ctrl-C raise KeyboardInterrupt even if the shell ignores it."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)
