"""Run a sweep: compute the blocks that its store does not yet contain, in this process or on Dask workers."""

from __future__ import annotations

import logging
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from warpfrag.blas.gemm import gemm
from warpfrag.blas.gemm_backend import Cpu
from warpfrag.errors import (
    InvalidOperand,
    NotModelled,
    SchedulerError,
    StoreWarning,
    WarpfragError,
    check_flag,
    check_index,
    import_extra,
    quote,
)
from warpfrag.formats.arrays import Doubles
from warpfrag.formats.codes import from_codes, values_of
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.operands import operands
from warpfrag.sweep.error_tally import ErrorTally, tally
from warpfrag.sweep.sweep_plan import Case, SweepBlock, SweepPlan, matrices_of
from warpfrag.sweep.sweep_store import Outcome, StoredCase, StoreWriter, list_damage, versions
from warpfrag.tensorcore.arithmetic_plan import arithmetic_arch
from warpfrag.tensorcore.arithmetic_plan import plan as arithmetic_plan
from warpfrag.tensorcore.rules import Popcount

if TYPE_CHECKING:
    import distributed

Task = TypeVar("Task")
Answer = TypeVar("Answer")

CONNECT_TIMEOUT = 10  # seconds
TASKS_PER_THREAD = 2  # the number of queued tasks per thread; small, so that results do not pile up
Progress = Callable[[int, int, Case, bool], None]


class BlockTask(NamedTuple):
    """A block to compute, and the package versions that a worker must have."""

    number: int
    grid_index: tuple[int, int]
    case: Case
    block: SweepBlock
    versions: dict[str, str]
    threads: int | None


def run_task(task: BlockTask) -> tuple[NDArray[Any], ErrorTally]:
    """Compute a block of D and its errors."""
    if task.versions != versions():
        texts = (", ".join(f"{name} {number}" for name, number in each.items()) for each in (versions(), task.versions))
        raise SchedulerError("a worker has {}, but the sweep has {}, so results could differ".format(*texts))
    case, block = task.case, task.block
    matrices = case.operands(block)
    backend = Cpu(task.threads) if case.backend == "cpu" else case.backend
    try:
        codes = gemm(*matrices_of(matrices), **case.options() | {"backend": backend}, raw=True)
    except NotModelled as error:  # this machine's GPU cannot compute it
        raise NotModelled(f"{case}: {error}") from None
    D = from_codes(FORMATS[case.form.d], codes)
    a, b = _values(case, matrices)
    return D, tally(D, a, b, case.form.d, (block.rows.start, block.columns.start))


def _values(case: Case, matrices: dict[str, NDArray[Any]]) -> tuple[Doubles, Doubles] | tuple[None, None]:
    """Return the values of A and B, scaled if they have scale factors, or (None, None) if D is not their product."""
    form = case.form
    if isinstance(arithmetic_plan(form, arithmetic_arch(form, case.arch)).rule, Popcount):
        return None, None
    scaled = []
    for role, axis in (("A", 1), ("B", 0)):
        values = values_of(FORMATS[getattr(form, role.lower())], matrices[role])
        if form.block_scale:
            scale = operands(form, "")[f"scale_{role.lower()}"]
            block = form.shape.k // scale.layout.outs["scale"]
            factors = values_of(scale.format, matrices[f"scale_{role.lower()}"])
            values = values * np.repeat(factors, block, axis=axis)[: values.shape[0], : values.shape[1]]
        scaled.append(values)
    return scaled[0], scaled[1]


def sweep(
    plan: SweepPlan,
    path: str | PathLike[str],
    *,
    scheduler: str | None = None,
    workers: int | None = None,
    verify: bool = False,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Compute the blocks that the store at `path` does not contain yet, and return the outcome of every case.

    Blocks are computed in this process, in `workers` local processes, or on the workers of the Dask scheduler at the
    address `scheduler`. A sweep may be killed at any moment; the next call resumes it and gives the same results.
    `progress` is called after each block with the number of finished blocks, the number of all blocks, the case of the
    block, and True if that case is complete.

    Missing and truncated chunks are computed again, and a `StoreWarning` lists them. With `verify`, chunks that do not
    match their checksums are computed again too.
    """
    if not isinstance(plan, SweepPlan):
        raise InvalidOperand(f"plan: expected a SweepPlan, such as SweepPlan.read('sweep.toml'), got {quote(plan)}")
    if workers is not None:
        check_index("workers", workers, 1 << 10)
    check_flag("verify", verify)
    with StoreWriter(path, plan) as store:
        run = _Run(store, progress, verify=verify)
        run.repair()
        if run.remaining and scheduler is None and not workers:
            for task in run.tasks(threads=None):
                run.store_result(task, run_task(task))
        elif run.remaining:
            with (
                connected(scheduler, workers) as client,
                closing(run_all(client, run_task, run.tasks(threads=1))) as answers,
            ):
                for task, answer in answers:
                    run.store_result(task, answer)
        return run.outcomes()


class _Run:
    """The state of a sweep: the stored part of every case, and the missing blocks."""

    def __init__(self, store: StoreWriter, progress: Progress | None, *, verify: bool) -> None:
        """Read the state from the store."""
        self.store, self.plan, self.progress = store, store.plan, progress
        self.refusals = {number: case.refusal for number, case in enumerate(self.plan.cases) if case.refusal}
        self.cases: dict[int, StoredCase] = {
            number: store.read_case(number, verify=verify)
            for number in range(len(self.plan.cases))
            if number not in self.refusals
        }
        self.missing = {number: self._missing(number) for number in self.cases}
        """The blocks of each case that must still be computed."""
        self.total = sum(len(store.blocks(self.plan.cases[number])) for number in self.cases)

    def _missing(self, number: int) -> set[tuple[int, int]]:
        stored = self.cases[number]
        if stored.figures is not None:
            return {entry.block for entry in stored.damage}
        return set(self.store.blocks(self.plan.cases[number])) - stored.tallies.keys()

    @property
    def remaining(self) -> int:
        """The number of blocks to compute."""
        return sum(map(len, self.missing.values()))

    def repair(self) -> None:
        """Delete damaged chunks, with a warning, and finish cases whose blocks are all stored."""
        damage = [(number, entry) for number, stored in self.cases.items() for entry in stored.damage]
        for number, entry in damage:
            self.store.delete_block(number, entry.block)
        if damage:
            listed = list_damage([entry for _, entry in damage])
            msg = f"{quote(str(self.store.path))} is damaged; computing these chunks again: {listed}"
            warnings.warn(msg, StoreWarning, stacklevel=3)
        for number, missing in self.missing.items():
            if not missing:
                self._finish(number)

    def tasks(self, threads: int | None) -> Iterator[BlockTask]:
        """Yield the blocks to compute, case by case."""
        for number in self.cases:
            case, missing = self.plan.cases[number], set(self.missing[number])
            if missing:
                self.store.begin(number)
            for index, block in case.blocks(self.plan.block):
                if index in missing:
                    yield BlockTask(number, index, case, block, versions(), threads)

    def store_result(self, task: BlockTask, answer: tuple[NDArray[Any], ErrorTally]) -> None:
        """Write a block and, after the last block of a case, its figures."""
        number = task.number
        stored, (D, errors) = self.cases[number], answer
        is_new = stored.figures is None
        self.store.write(number, task.grid_index, D, errors if is_new else None)
        if is_new:
            stored.tallies[task.grid_index] = errors
        self.missing[number].remove(task.grid_index)
        if not self.missing[number]:
            self._finish(number)
        if self.progress is not None:
            self.progress(self.total - self.remaining, self.total, task.case, not self.missing[number])

    def _finish(self, number: int) -> None:
        """Write the figures of a case whose blocks are all stored."""
        stored = self.cases[number]
        if stored.figures is not None:
            self.store.delete_records(number)
            return
        figures = sum(stored.tallies.values(), ErrorTally()).figures()
        self.store.begin(number)
        self.store.finish(number, figures)
        self.cases[number] = stored._replace(figures=figures)

    def outcomes(self) -> list[Outcome]:
        """Return the outcome of every case, in the order of the plan."""
        empty = StoredCase(None, {})
        return [
            Outcome(self.store.name(number), case, figures, self.refusals.get(number, ""), tuple(map(str, damage)))
            for number, case in enumerate(self.plan.cases)
            for figures, _, damage in [self.cases.get(number, empty)]
        ]


@contextmanager
def connected(scheduler: str | None, workers: int | None) -> Iterator[Any]:
    """Yield a client for a Dask scheduler, or for `workers` local processes, which Dask restarts if they die."""
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
    """Ignore SIGINT here and in the child processes started in the block, because the sweep itself ends them."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread can set signal handlers
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
    """Yield each task with its result, in order of completion; Dask reruns the tasks of workers that die."""
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
