"""Work dealt out to threads: kernels run without the lock of the interpreter, so plain threads are enough."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from warpfrag.errors import InvalidOperand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    Task = Callable[[], None]

SMALL = 1 << 19
"""Multiply-adds below which a thread costs more than it saves."""
LARGE_TILE = 1 << 21
"""Multiply-adds from which one tile is shared among threads."""


def check_threads(asked: object) -> None:
    """Refuse what is no number of threads, however small the work."""
    if asked is not None and (isinstance(asked, bool) or not isinstance(asked, int) or asked < 1):
        msg = f"threads is an integer from 1 on, or None for every core; got {asked!r}"
        raise InvalidOperand(msg)


def count_threads(asked: int | None, work: int) -> int:
    """How many threads to use for `work` multiply-adds: one where it is small, else those asked for, or every core."""
    if work < SMALL:
        return 1
    if asked is not None:
        return asked
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(tasks: Iterable[Task], threads: int) -> None:
    """Run the tasks on that many threads, the calling one among them; each takes the next task when it is free."""
    waiting = deque(tasks)

    def work() -> None:
        while True:
            try:
                task = waiting.popleft()
            except IndexError:
                return
            task()

    helpers = min(threads, len(waiting)) - 1
    if helpers < 1:
        work()
        return
    with ThreadPoolExecutor(helpers) as pool:
        started = [pool.submit(work) for _ in range(helpers)]
        work()
        for helper in started:
            helper.result()


def cut(task: Callable[[int, int], None], count: int, pieces: int) -> list[Task]:
    """Tasks task(first, last) that together cover range(count)."""
    pieces = min(count, pieces)
    return [partial(task, *pair) for pair in pairwise(count * piece // pieces for piece in range(pieces + 1))]


def share(task: Callable[[int, int], None], count: int, threads: int, pieces_each: int = 1) -> None:
    """Run task(first, last) over range(count), cut into pieces for the threads."""
    run_all(cut(task, count, threads * pieces_each if threads > 1 else 1), threads)


def share_tiles_or_rows(
    part: Callable[[int, int, int, int], None], c: NDArray[Any], depth: int, threads: int | None
) -> None:
    """Deal out tiles, or the rows of the only tile."""
    tiles, height, _width = c.shape
    threads = count_threads(threads, c.size * depth)
    if tiles == 1:
        share(lambda first, last: part(0, 1, first, last), height, threads)
    else:
        share(lambda first, last: part(first, last, 0, height), tiles, threads)
