"""Products shared out: which blocks of outputs, and on which threads. Knows neither rules nor backends.

Tiles are dealt out whole while there are many small ones; a large tile is split along its rows, or along its columns
where it has more of those. Compiled code and numpy run without the GIL, so plain threads are enough.
"""

from __future__ import annotations

import os
from collections import deque
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from warpfrag.arithmetic.protocol import Block, Grain, Operands
from warpfrag.errors import InvalidOperand, quote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from warpfrag.arithmetic.protocol import Kernel, Task

SMALL = 1 << 19
"""Multiply-adds below which a thread costs more than it saves."""
LARGE_TILE = 1 << 21
"""Multiply-adds from which one tile is split into blocks."""


def check_threads(asked: object) -> None:
    """Refuse what is no number of threads, however small the work."""
    if asked is not None and (isinstance(asked, bool) or not isinstance(asked, int) or asked < 1):
        msg = f"threads is an integer from 1 on, or None for every core; got {quote(asked)}"
        raise InvalidOperand(msg)


def count_threads(asked: int | None, work: int) -> int:
    """How many threads to use for `work` multiply-adds: one where it is small, else those asked for, or every core."""
    if work < SMALL:
        return 1
    if asked is not None:
        return asked
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_split(operands: Operands) -> bool:
    """Whether tiles are large enough to be split into blocks."""
    return bool(operands.work >= LARGE_TILE * operands.c.shape[0])


def run(kernel: Kernel, operands: Operands, threads: int | None, k: int) -> NDArray[Any]:
    """D's codes. A K too long for the kernel is run in parts, multiples of `k`: the D of one is the C of the next."""
    depth, width = operands.b.shape[1:]
    most = kernel.most_depth(operands.c.shape[1], width)
    if depth <= most:
        return run_at_once(kernel, operands, threads)
    code = operands.c
    for first in range(0, depth, most):
        part = part_of_k(operands._replace(c=code), first // k, min(first + most, depth) // k, depth // k)
        code = run_at_once(kernel, part, threads)
    return code


def part_of_k(operands: Operands, first: int, last: int, instructions: int) -> Operands:
    """Some instructions of all along K."""
    a, b, c, columns, scale_a, scale_b = operands

    def some(array: NDArray[Any], axis: int) -> NDArray[Any]:
        each = array.shape[axis] // instructions
        return array[(slice(None),) * axis + (slice(first * each, last * each),)]

    return Operands(
        some(a, 2),
        some(b, 1),
        c,
        None if columns is None else some(columns, 2) - first * (b.shape[1] // instructions),
        None if scale_a is None else some(scale_a, 2),
        None if scale_b is None else some(scale_b, 1),
    )


def run_at_once(kernel: Kernel, operands: Operands, threads: int | None) -> NDArray[Any]:
    """D's codes."""
    work = operands.work
    threads = count_threads(threads, work)
    if work >= LARGE_TILE * operands.c.shape[0]:
        return run_split(kernel, operands, threads)
    if threads == 1:
        return kernel.run_whole(operands)
    job = kernel.start(operands)
    blocks = blocks_of_tiles(operands.c.shape, kernel.grain.pieces_per_thread * threads)
    run_all([partial(job.run, block) for block in blocks], threads)
    return job.out


def run_split(kernel: Kernel, operands: Operands, threads: int) -> NDArray[Any]:
    """D's codes: tile after tile, each split into blocks."""
    job = kernel.start(operands)
    for tile in range(operands.c.shape[0]):
        run_all(job.prepare(tile, 4 * threads), threads)
        blocks = blocks_of_tile(tile, operands.c.shape, kernel.grain, threads)
        run_all([partial(job.run, block) for block in blocks], threads)
    return job.out


def blocks_of_tiles(shape: tuple[int, ...], pieces: int) -> list[Block]:
    """Whole tiles."""
    tiles, height, width = shape
    return [Block(first, last, 0, height, 0, width) for first, last in split(tiles, pieces)]


def blocks_of_tile(tile: int, shape: tuple[int, ...], grain: Grain, threads: int) -> list[Block]:
    """Parts of one tile."""
    _tiles, height, width = shape
    strips, blocks = -(-height // grain.rows), -(-width // grain.columns)
    pieces = grain.pieces_per_thread * threads
    if strips >= blocks:
        spans = split(strips, max(pieces, -(-height // grain.most_rows)))
        rows = [(first * grain.rows, min(last * grain.rows, height)) for first, last in spans]
        return [Block(tile, tile + 1, first, last, 0, width) for first, last in rows]
    spans = split(blocks, pieces)
    columns = [(first * grain.columns, min(last * grain.columns, width)) for first, last in spans]
    return [Block(tile, tile + 1, 0, height, first, last) for first, last in columns]


def split(count: int, pieces: int) -> list[tuple[int, int]]:
    """range(count) in at most so many pieces, about equal."""
    pieces = min(count, pieces)
    return list(pairwise(count * piece // pieces for piece in range(pieces + 1)))


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
    from concurrent.futures import ThreadPoolExecutor  # which imports a good deal more

    with ThreadPoolExecutor(helpers) as pool:
        started = [pool.submit(work) for _ in range(helpers)]
        try:
            work()
        except BaseException:
            waiting.clear()  # an interrupt ends the work of the others too
            raise
        for helper in started:
            helper.result()
