"""Tests in a process of their own: a kernel that never ends is stopped, and one that takes all memory hurts nobody.

The process runs one test after another and is started again when it had to be stopped. The limit of memory is what the
process may take beyond what Python and its packages have taken before the first test; it holds where the system can
set one (Linux).
"""

from __future__ import annotations

import multiprocessing
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from warpfrag.grading.suite import KernelTest, read_suite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from warpfrag.grading.grade import Grade

GRACE = 60.0  # seconds in which the process starts


def run_tests(path: str | Path, tests: list[int], *, trust: bool) -> Iterator[Grade]:
    """The grades of some tests of a file, by number, one after another."""
    from warpfrag.grading.grade import Grade

    suite = read_suite(path)
    left = list(tests)
    context = multiprocessing.get_context("spawn")
    while left:
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(there, str(path), left, trust), daemon=True)
        process.start()
        there.close()
        try:
            while left:
                test = suite[left[0]]
                reason = _wait(here, GRACE, "did not start") or _wait(
                    here, test.seconds, f"took more than {test.seconds:g} seconds"
                )
                left.pop(0)
                if reason:
                    yield Grade(test.name, passed=False, reason=reason, seconds=test.seconds)
                    break
                yield here.recv()
        finally:
            process.kill()
            process.join()
            here.close()


def _wait(connection: Connection, seconds: float, late: str) -> str:
    """Wait for a message and take that of a start; why there is none, if there is none."""
    try:
        if not connection.poll(seconds):
            return f"it {late}"
        if late.startswith("did"):
            connection.recv()
    except (EOFError, OSError):
        return "its process ended without an answer: it may have taken too much memory"
    return ""


def _work(connection: Connection, path: str, tests: list[int], trust: bool) -> None:  # noqa: FBT001 (an argument of a process)
    """Run tests and send their grades: what the process does."""
    from warpfrag.grading.grade import grade

    suite = read_suite(path)
    with suppress(BrokenPipeError, KeyboardInterrupt):
        for number in tests:
            connection.send("started")
            _limit_memory(suite[number])
            connection.send(grade(suite[number], trust=trust))


def _limit_memory(test: KernelTest) -> None:
    """Allow the process so much memory beyond what it has."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        wanted = pages * resource.getpagesize() + (test.memory << 20)
        resource.setrlimit(resource.RLIMIT_AS, (wanted if hard < 0 else min(wanted, hard), hard))
