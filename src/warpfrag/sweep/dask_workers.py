"""Dask workers: processes on this machine, or those of a running scheduler."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from warpfrag.errors import SchedulerError, WarpfragError, import_extra, quote

if TYPE_CHECKING:
    import distributed

Task = TypeVar("Task")
Answer = TypeVar("Answer")

CONNECT_TIMEOUT = 10  # seconds
TASKS_PER_THREAD = 2  # number of queued tasks; small, so that results do not pile up


@contextmanager
def connected(scheduler: str | None, workers: int | None) -> Iterator[Any]:
    """Yield a client for the scheduler, or for `workers` local processes, which Dask restarts if they die."""
    distributed = import_extra("distributed", "dask")
    with ExitStack() as stack:
        stack.enter_context(_without_logs())
        if scheduler is None:
            with _ignored_interrupts():
                cluster = distributed.LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                )
            scheduler = stack.enter_context(cluster)
        try:
            client = distributed.Client(scheduler, timeout=CONNECT_TIMEOUT)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise SchedulerError(
                f"no scheduler answers at {quote(scheduler)} ({type(error).__name__}: {error})"
            ) from None
        yield stack.enter_context(client)


@contextmanager
def _without_logs() -> Iterator[None]:
    """Silence distributed's log, because the sweep itself reports a lost scheduler or worker."""
    logger = logging.getLogger("distributed")
    previous = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(previous)


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """Ignore SIGINT in this context and in the processes that it starts; the sweep handles it and ends them."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread can set handlers
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def run_all(
    client: distributed.Client, function: Callable[[Task], Answer], tasks: Iterator[Task]
) -> Generator[tuple[Task, Answer]]:
    """Yield each task and its result, in order of completion; Dask reruns the tasks of a worker that dies."""
    distributed = import_extra("distributed", "dask")
    pending: dict[Any, Task] = {}
    done = distributed.as_completed()
    capacity = answers = 0
    try:
        while True:
            if answers == capacity:  # workers come and go, so count their threads again
                capacity, answers = TASKS_PER_THREAD * max(1, sum(client.nthreads().values())), 0
            for task in islice(tasks, max(0, capacity - len(pending))):
                future = client.submit(function, task, pure=False)
                pending[future] = task
                done.add(future)
            if not pending:
                return
            future = next(done)
            task, answer = pending.pop(future), future.result()
            future.release()
            answers += 1
            yield task, answer
    except WarpfragError:
        raise
    except distributed.CancelledError:
        raise SchedulerError("the scheduler is no longer reachable") from None
    except Exception as error:  # noqa: BLE001 (a worker can raise anything, and a connection can break)
        raise SchedulerError(f"a worker failed ({type(error).__name__}: {error})") from None
    finally:
        client.cancel(list(pending))
