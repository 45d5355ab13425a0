"""Running a study: what its store does not have yet, block by block, here or on workers."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpfrag.arithmetic import plan
from warpfrag.arithmetic.rules import Popcount
from warpfrag.core.coordinates import check_index
from warpfrag.errors import InvalidOperand, NotModelled, UnusableScheduler, quote
from warpfrag.isa.legality import arithmetic_arch
from warpfrag.isa.operands import operands
from warpfrag.numerics.codes import from_codes, values_of
from warpfrag.numerics.formats import FORMATS
from warpfrag.products.gemm import gemm
from warpfrag.study.cluster import connected, run_all
from warpfrag.study.plan import Case, Study, StudyBlock
from warpfrag.study.store import ResultStore, versions
from warpfrag.study.tally import ErrorTally, tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

    from numpy.typing import NDArray

    Progress = Callable[[int, int, Case, bool], None]


class BlockTask(NamedTuple):
    """A block of a case that is not done yet, and who asks for it."""

    number: int
    place: tuple[int, int]
    case: Case
    block: StudyBlock
    versions: dict[str, str]
    threads: int | None


@dataclass(frozen=True)
class Outcome:
    """What became of one case: its figures, or why it cannot be computed."""

    name: str
    case: Case
    figures: dict[str, Any] | None
    refusal: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"name": self.name, **self.case.to_dict(), "figures": self.figures, "refusal": self.refusal}


def run_task(task: BlockTask) -> tuple[NDArray[Any], ErrorTally] | str:
    """A block of D, and its errors; or why this machine cannot compute the case: its GPU is of another architecture."""
    if task.versions != versions():
        texts = (
            ", ".join(f"{name} {number}" for name, number in stack.items()) for stack in (versions(), task.versions)
        )
        msg = "a worker has {}, and the sweep {}: results could differ".format(*texts)
        raise UnusableScheduler(msg)
    case, block = task.case, task.block
    matrices = case.operands(block)
    try:
        codes = gemm(**matrices, **case.options(), raw=True, threads=task.threads)
    except NotModelled as error:
        return str(error)
    D = from_codes(FORMATS[case.form.d], codes)
    a, b = _values(case, matrices)
    return D, tally(D, a, b, case.form.d, (block.rows.start, block.columns.start))


def _values(
    case: Case, matrices: dict[str, NDArray[Any]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | tuple[None, None]:
    """What the tensor core reads of A and B, with their scale factors; nothing where there is no exact product."""
    form = case.form
    if isinstance(plan(form, arithmetic_arch(form, case.arch)).rule, Popcount):
        return None, None
    scaled = []
    for role, axis in (("A", 1), ("B", 0)):
        values = values_of(FORMATS[getattr(form, role.lower())], matrices[role])
        if form.block_scale:
            scale = operands(form, "")[f"scale_{role.lower()}"]
            each = form.shape.k // scale.layout.outs["scale"]
            factors = values_of(scale.format, matrices[f"scale_{role.lower()}"])
            values = values * np.repeat(factors, each, axis=axis)[: values.shape[0], : values.shape[1]]
        scaled.append(values)
    return scaled[0], scaled[1]


def sweep(
    study: Study,
    path: str | PathLike[str],
    *,
    scheduler: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Compute what the store at `path` does not have yet, and give the figures of every case.

    In this process; on so many `workers` of this machine, each a process; or on those of the scheduler at an address.
    It may be killed at any moment: the next call goes on, and the end is the same. `progress` is told the blocks that
    are done, how many there are, whose the last one was, and whether that case is done.
    """
    if not isinstance(study, Study):
        msg = f"study: expected a Study, such as Study.read('study.toml') gives, got {quote(study)}"
        raise InvalidOperand(msg)
    if workers is not None:
        check_index("workers", workers, 1 << 10)
    with ResultStore(path, study) as store:
        run = _Run(store, progress)
        if run.left:
            if scheduler is None and not workers:
                for task in run.tasks(threads=None):
                    run.keep(task, run_task(task))
            else:
                with (
                    connected(scheduler, workers) as client,
                    closing(run_all(client, run_task, run.tasks(threads=1))) as answers,
                ):
                    for task, answer in answers:
                        run.keep(task, answer)
        return run.outcomes()


class _Run:
    """What a store has, and what is still to do."""

    def __init__(self, store: ResultStore, progress: Progress | None) -> None:
        """Look at the store."""
        self.store, self.study, self.progress = store, store.study, progress
        self.figures: dict[int, dict[str, Any]] = {}
        self.tallies: dict[int, dict[tuple[int, int], ErrorTally]] = {}
        self.refusals: dict[int, str] = {}
        self.total = self.done = 0
        for number, case in enumerate(self.study.cases):
            if case.refusal:
                self.refusals[number] = case.refusal
                continue
            blocks = self._count(case)
            self.total += blocks
            figures = store.figures(number)
            if figures is not None:
                self.figures[number] = figures
                store.forget(number)
                self.done += blocks
            else:
                self.tallies[number] = store.tallies(number)
                self.done += len(self.tallies[number])
                self._finish(number)

    @property
    def left(self) -> int:
        """How many blocks are not done."""
        return self.total - self.done

    def _count(self, case: Case) -> int:
        rows, columns = (-(-size // step) for size, step in zip(case.shape, self.study.block, strict=False))
        return rows * columns

    def tasks(self, threads: int | None) -> Iterator[BlockTask]:
        """The blocks that are not done, case by case."""
        for number in sorted(self.tallies):
            case = self.study.cases[number]
            self.store.begin(number)
            there = set(self.tallies[number])
            for place, block in case.blocks(self.study.block):
                if number in self.refusals:
                    break
                if place not in there:
                    yield BlockTask(number, place, case, block, versions(), threads)

    def keep(self, task: BlockTask, answer: tuple[NDArray[Any], ErrorTally] | str) -> None:
        """Write a block, and the figures of its case if it was the last; or give the case up."""
        if task.number in self.refusals:
            return  # this block was under way when another was refused
        if isinstance(answer, str):
            self.refusals[task.number] = answer
            self.done += self._count(task.case) - len(self.tallies.pop(task.number))
            self.store.drop(task.number)
            return
        D, errors = answer
        self.store.write(task.number, task.place, D, errors)
        self.tallies[task.number][task.place] = errors
        self.done += 1
        is_done = self._finish(task.number)
        if self.progress is not None:
            self.progress(self.done, self.total, task.case, is_done)

    def _finish(self, number: int) -> bool:
        """Write the figures of a case that has all of its blocks; whether it has."""
        tallies = self.tallies[number]
        if len(tallies) < self._count(self.study.cases[number]):
            return False
        figures = sum(tallies.values(), ErrorTally()).figures()
        self.store.finish(number, figures)
        self.figures[number] = figures
        del self.tallies[number]
        return True

    def outcomes(self) -> list[Outcome]:
        """The outcome of every case, in the order of the study."""
        return [
            Outcome(self.store.name(number), case, self.figures.get(number), self.refusals.get(number, ""))
            for number, case in enumerate(self.study.cases)
        ]
