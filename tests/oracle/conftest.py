"""Say at the end of a run how many kernels went through the assembler."""

from __future__ import annotations

from collections import Counter


def pytest_terminal_summary(terminalreporter):
    counts = Counter()
    for report in terminalreporter.getreports("passed"):
        counts.update({name: n for name, n in report.user_properties if name.startswith("assembler: ")})
    for name, count in sorted(counts.items()):
        terminalreporter.write_line(f"{name}: {count}")
