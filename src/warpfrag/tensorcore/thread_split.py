"""Split gemms into blocks of outputs, and run them on threads, for every rule and backend.

Many small tiles are distributed as whole tiles; a large tile is split along its longer side. Compiled code and NumPy
run without the GIL, so plain threads are enough.
"""

import math
import os
from collections import deque
from collections.abc import Iterable
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from warpfrag.errors import InvalidOperand, quote
from warpfrag.tensorcore.backend_protocol import Grain, OutputBlock, ProductKernel, ProductOperands, Task

SMALL = 1 << 19
"""The number of multiply-adds below which a second thread costs more than it saves."""
LARGE_TILE = 1 << 21
"""The smallest number of multiply-adds for which a single tile is split into blocks."""


def check_threads(threads: object) -> None:
    """Raise InvalidOperand for an invalid number of threads, even if the work needs only one thread."""
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise InvalidOperand(f"threads must be a positive integer, or None for every core; got {quote(threads)}")


def count_threads(requested: int | None, work: int) -> int:
    """Return the number of threads for `work` multiply-adds: one for little work, else `requested` or every core."""
    if work < SMALL:
        return 1
    if requested is not None:
        return requested
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_split(operands: ProductOperands) -> bool:
    """Return True if tiles are large enough to be worth splitting into blocks."""
    return bool(operands.work >= LARGE_TILE * operands.c.shape[0])


def run(kernel: ProductKernel, operands: ProductOperands, threads: int | None, k: int) -> NDArray[Any]:
    """Return D's codes. A K that is too long for the kernel is processed in multiples of `k`; each D is the next C."""
    depth, width = operands.b.shape[1:]
    max_depth = kernel.max_depth(operands.c.shape[1], width)
    if depth <= max_depth:
        return run_at_once(kernel, operands, threads)
    code = operands.c
    for first in range(0, depth, max_depth):
        part = part_of_k(operands._replace(c=code), first // k, min(first + max_depth, depth) // k, depth // k)
        code = run_at_once(kernel, part, threads)
    return code


def part_of_k(operands: ProductOperands, first: int, last: int, instructions: int) -> ProductOperands:
    """Return the operands for instructions `first` to `last` - 1 along K."""
    a, b, c, columns, scale_a, scale_b = operands

    def some(array: NDArray[Any], axis: int) -> NDArray[Any]:
        each = array.shape[axis] // instructions
        return array[(slice(None),) * axis + (slice(first * each, last * each),)]

    return ProductOperands(
        some(a, 2),
        some(b, 1),
        c,
        None if columns is None else some(columns, 2) - first * (b.shape[1] // instructions),
        None if scale_a is None else some(scale_a, 2),
        None if scale_b is None else some(scale_b, 1),
    )


def run_at_once(kernel: ProductKernel, operands: ProductOperands, threads: int | None) -> NDArray[Any]:
    """Return D's codes for the whole K, from whole or split tiles, on one or more threads."""
    threads = count_threads(threads, operands.work)
    if is_split(operands):
        return run_split(kernel, operands, threads)
    if threads == 1:
        return kernel.run_whole(operands)
    job = kernel.start(operands)
    blocks = blocks_of_tiles(operands.c.shape, kernel.grain.pieces_per_thread * threads)
    run_all([partial(job.run, block) for block in blocks], threads)
    return job.out


def run_split(kernel: ProductKernel, operands: ProductOperands, threads: int) -> NDArray[Any]:
    """Return D's codes, computed tile by tile, with each tile split into blocks."""
    job = kernel.start(operands)
    for tile in range(operands.c.shape[0]):
        run_all(job.prepare(tile, 4 * threads if threads > 1 else 1), threads)
        blocks = blocks_of_tile(tile, operands.c.shape, kernel.grain, threads)
        run_all([partial(job.run, block) for block in blocks], threads)
    return job.out


def blocks_of_tiles(shape: tuple[int, ...], pieces: int) -> list[OutputBlock]:
    """Return about `pieces` blocks of whole tiles."""
    tiles, height, width = shape
    return [OutputBlock(first, last, 0, height, 0, width) for first, last in split(tiles, pieces)]


def blocks_of_tile(tile: int, shape: tuple[int, ...], grain: Grain, threads: int) -> list[OutputBlock]:
    """Return the blocks of one tile, which is split along its longer side."""
    _tiles, height, width = shape
    strips, blocks = -(-height // grain.rows), -(-width // grain.columns)
    pieces = grain.pieces_per_thread * threads if threads > 1 else 1  # one thread has nothing to balance
    if strips >= blocks:
        spans = split(strips, max(pieces, -(-height // grain.max_rows)))
        rows = [(first * grain.rows, min(last * grain.rows, height)) for first, last in spans]
        return [OutputBlock(tile, tile + 1, first, last, 0, width) for first, last in rows]
    spans = split(blocks, pieces)
    columns = [(first * grain.columns, min(last * grain.columns, width)) for first, last in spans]
    return [OutputBlock(tile, tile + 1, 0, height, first, last) for first, last in columns]


def split(count: int, pieces: int) -> list[tuple[int, int]]:
    """Return the bounds of at most `pieces` nearly equal parts of range(count)."""
    pieces = min(count, pieces)
    return list(pairwise(count * piece // pieces for piece in range(pieces + 1)))


def run_all(tasks: Iterable[Task], threads: int) -> None:
    """Run the tasks on `threads` threads, including the calling one."""
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
    from concurrent.futures import ThreadPoolExecutor  # imported here because it is slow

    with ThreadPoolExecutor(helpers) as pool:
        started = [pool.submit(work) for _ in range(helpers)]
        try:
            work()
        except BaseException:
            waiting.clear()  # an interrupt also stops the other threads
            raise
        for helper in started:
            helper.result()


CACHE_LINE = 64
"""Bytes per cache line, to which arrays are aligned."""


def allocate(*wanted: tuple[tuple[int, ...], DTypeLike]) -> list[NDArray[Any]]:
    """Return uninitialised arrays of these shapes and dtypes, in one block of memory.

    The C library keeps one large block for the next gemm. It would return many smaller blocks to the system, and
    faulting their pages in again took a tenth of the time of a 512 x 512 x 512 gemm.
    """
    sizes = [math.prod(shape) * np.dtype(kind).itemsize for shape, kind in wanted]
    starts = [0, *accumulate(-(-size // CACHE_LINE) * CACHE_LINE for size in sizes)]
    memory = np.empty(starts[-1] + CACHE_LINE, np.uint8)
    memory = memory[-memory.ctypes.data % CACHE_LINE :]
    return [
        memory[start : start + size].view(kind).reshape(shape)
        for start, size, (shape, kind) in zip(starts, sizes, wanted, strict=False)
    ]
