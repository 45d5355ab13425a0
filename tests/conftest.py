"""What all tests share: how hypothesis searches, and a word about what is tested and counted."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

import warpfrag

# Every run tries the same examples, so that a failure is about the change at hand. To look further:
# `.venv/bin/pytest --hypothesis-profile=search`. No deadline: the first call may compile.
settings.register_profile("same", max_examples=50, derandomize=True, deadline=None)
settings.register_profile("search", max_examples=5_000, deadline=None)
settings.load_profile("same")


def pytest_report_header():
    return f"warpfrag {warpfrag.__version__}: {Path(warpfrag.__file__).parent}"


def pytest_terminal_summary(terminalreporter):
    """Say at the end of a run how many kernels went through the assembler."""
    counts = Counter()
    for report in terminalreporter.getreports("passed"):
        counts.update({name: n for name, n in report.user_properties if name.startswith("assembler: ")})
    for name, count in sorted(counts.items()):
        terminalreporter.write_line(f"{name}: {count}")


@pytest.fixture
def ctrl_c():
    """Ctrl-C counts, also where a shell has switched it off."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)
