"""Worker processes that may crash or hang: each job has a time limit, and a worker that fails is replaced."""

from __future__ import annotations

import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from tools.arguments import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Worker:
    """One worker process, which runs one job at a time."""

    def __init__(self) -> None:
        """Start the process."""
        environment = {**os.environ, **dict.fromkeys(THREAD_LIMITS, "1"), "CUDA_CACHE_DISABLE": "1"}
        command = [sys.executable, "-m", "tools.fuzz.jobs"]
        self.process = subprocess.Popen(  # noqa: S603 (this package)
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=CHECKOUT, bufsize=0
        )
        self.rest = b""

    def ask(self, job: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Return the answer to a job, or an answer that reports a timeout or the end of the process."""
        assert self.process.stdin is not None  # noqa: S101 (pipes were requested)
        assert self.process.stdout is not None  # noqa: S101
        try:
            self.process.stdin.write(json.dumps(job).encode() + b"\n")
        except BrokenPipeError:
            return ended(job, "ends its process", "before it was asked")
        until = time.monotonic() + seconds
        while b"\n" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return ended(job, "hangs", f"no answer within {seconds:.0f} seconds")
            part = os.read(self.process.stdout.fileno(), 1 << 20)
            if not part:
                return ended(job, "ends its process", f"exit status {self.process.wait()}")
            self.rest += part
        line, _, self.rest = self.rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """Stop the process."""
        self.process.kill()
        self.process.communicate()  # drains and closes the pipes, and waits


def ended(job: dict[str, Any], state: str, why: str) -> dict[str, Any]:
    """Return the answer for a worker that failed."""
    return {**job, "state": state, "why": why, "fatal": True}


def work(
    jobs: Iterable[dict[str, Any]], workers: int, *, seconds_each: float, seconds: float
) -> Iterator[dict[str, Any]]:
    """Run jobs on several workers until the time is up; yield the answers as they arrive."""
    waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    answered: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    until = time.monotonic() + seconds

    def serve() -> None:
        worker = None
        while time.monotonic() < until:
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                break
            worker = worker or Worker()
            answer = worker.ask(job, seconds_each)
            answered.put(answer)
            if answer.get("fatal"):
                worker.end()
                worker = None
        if worker:
            worker.end()
        answered.put(None)

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    running = len(threads)
    while running:
        item = answered.get()
        if item is None:
            running -= 1
        else:
            yield item
