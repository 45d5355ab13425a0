"""Workers of dask.distributed: some of this machine, or those of a scheduler's address."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from warpfrag.errors import SchedulerError, WarpfragError, quote
from warpfrag.sweep.extra import extra

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    import distributed

Task = TypeVar("Task")
Answer = TypeVar("Answer")

SECONDS = 10
"""How long a scheduler may take to answer."""
AHEAD = 2
"""Tasks that wait for each thread of a worker: no more, so that results do not pile up."""


@contextmanager
def connected(scheduler: str | None, workers: int | None) -> Iterator[Any]:
    """A client of a scheduler, or of as many workers of our own; a worker of ours that dies is started again."""
    distributed = extra("distributed")
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
            client = distributed.Client(scheduler, timeout=SECONDS)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            msg = f"no scheduler answers at {quote(scheduler)} ({type(error).__name__}: {error})"
            raise SchedulerError(msg) from None
        yield stack.enter_context(client)


@contextmanager
def _without_logs() -> Iterator[None]:
    """What distributed would log about a scheduler or worker that has gone: we say it in a sentence."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """Processes that are started now ignore SIGINT: it is for the sweep, which ends them."""
    if threading.current_thread() is not threading.main_thread():  # only that one may say what a signal does
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def run_all(
    client: distributed.Client, function: Callable[[Task], Answer], tasks: Iterator[Task]
) -> Generator[tuple[Task, Answer]]:
    """What the function gives for each task, as they are done; a task whose worker dies goes to another."""
    distributed = extra("distributed")
    pending: dict[Any, Task] = {}
    done = distributed.as_completed()
    capacity = answers = 0
    try:
        while True:
            if answers == capacity:  # workers come and go: count their threads now and then
                capacity, answers = AHEAD * max(1, sum(client.nthreads().values())), 0
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
        msg = "the scheduler is not reachable any more"
        raise SchedulerError(msg) from None
    except Exception as error:  # noqa: BLE001 (whatever a worker raises, or a connection that breaks)
        msg = f"a worker failed ({type(error).__name__}: {error})"
        raise SchedulerError(msg) from None
    finally:
        client.cancel(list(pending))
