"""Running a study: what its store does not have yet, block by block, here or on workers."""

from __future__ import annotations

import warnings
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpfrag.blas.gemm import gemm
from warpfrag.errors import (
    FileError,
    InvalidOperand,
    NotModelled,
    SchedulerError,
    StoreWarning,
    check_flag,
    check_index,
    quote,
)
from warpfrag.formats.codes import from_codes, values_of
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.legality import arithmetic_arch
from warpfrag.isa.operands import operands
from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.sweep.checksums import list_damage
from warpfrag.sweep.cluster import connected, run_all
from warpfrag.sweep.contents import BlockRecord, without_checksums
from warpfrag.sweep.store import ResultStore, versions
from warpfrag.sweep.sweep_plan import Case, Study, StudyBlock
from warpfrag.sweep.tally import ErrorTally, tally
from warpfrag.tensorcore.arithmetic import plan
from warpfrag.tensorcore.rules import Popcount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

    from numpy.typing import NDArray

    from warpfrag.sweep.checksums import BlockDamage

    Progress = Callable[[int, int, Case, bool], None]


class BlockTask(NamedTuple):
    """A block of a case that is not done yet, and who asks for it."""

    number: int
    place: tuple[int, int]
    case: Case
    block: StudyBlock
    versions: dict[str, str]
    threads: int | None


@frozen_dataclass
class Outcome:
    """What became of one case: its figures, or why it cannot be computed."""

    name: str
    case: Case
    figures: dict[str, Any] | None
    refusal: str
    repaired: tuple[str, ...] = ()
    """What of it was damaged in the store, and is computed again."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        facts = {"figures": self.figures, "refusal": self.refusal, "repaired": [*self.repaired]}
        return {"name": self.name, **self.case.to_dict(), **facts}


def run_task(task: BlockTask) -> tuple[NDArray[Any], ErrorTally] | str:
    """A block of D, and its errors; or why this machine cannot compute the case: its GPU is of another architecture."""
    if task.versions != versions():
        texts = (
            ", ".join(f"{name} {number}" for name, number in stack.items()) for stack in (versions(), task.versions)
        )
        msg = "a worker has {}, and the sweep {}: results could differ".format(*texts)
        raise SchedulerError(msg)
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
    verify: bool = False,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Compute what the store at `path` does not have yet, and give the figures of every case.

    In this process; on so many `workers` of this machine, each a process; or on those of the scheduler at an address.
    It may be killed at any moment: the next call goes on, and the end is the same. `progress` is told the blocks that
    are done, how many there are, whose the last one was, and whether that case is done.

    Blocks whose chunk is missing, cut or no file are computed again, with a `StoreWarning` that names them; with
    `verify` also those whose content is not what was written. A damaged zarr.json is refused. A store of 0.2, which
    has no checksums, is read with a warning, and refused where something is left to compute.
    """
    if not isinstance(study, Study):
        msg = f"study: expected a Study, such as Study.read('study.toml') gives, got {quote(study)}"
        raise InvalidOperand(msg)
    if workers is not None:
        check_index("workers", workers, 1 << 10)
    check_flag("verify", verify)
    with ResultStore(path, study) as store:
        run = _Run(store, progress, verify=verify)
        run.report()
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

    def __init__(self, store: ResultStore, progress: Progress | None, *, verify: bool) -> None:
        """Look at the store."""
        self.store, self.study, self.progress = store, store.study, progress
        self.figures: dict[int, dict[str, Any]] = {}
        self.records: dict[int, dict[tuple[int, int], BlockRecord]] = {}
        self.lost: dict[int, dict[tuple[int, int], str]] = {}
        """The crc32c of chunks that are damaged, of cases that are done."""
        self.damage: dict[int, tuple[BlockDamage, ...]] = {}
        self.refusals: dict[int, str] = {}
        self.total = self.done = 0
        for number, case in enumerate(self.study.cases):
            if case.refusal:
                self.refusals[number] = case.refusal
                continue
            blocks = self._count(case)
            self.total += blocks
            stored = store.contents.read_case(number, verify=verify)
            if stored.damage:
                self.damage[number] = stored.damage
            if stored.figures is None:
                self.records[number] = stored.records
                self.done += len(stored.records)
                continue
            self.figures[number] = stored.figures
            self.done += blocks - len(stored.crc32c)
            if stored.crc32c:
                self.lost[number] = stored.crc32c

    def report(self) -> None:
        """Say what is damaged, and remove it; finish what has all of its blocks. Old stores are not written."""
        path = quote(str(self.store.path))
        listed = list_damage([entry for damage in self.damage.values() for entry in damage])
        if not self.store.contents.has_checksums:
            if self.left:
                what = listed or f"{self.left} of {self.total} blocks are missing"
                made_by = f"version {self.store.about.get('version')}"
                msg = f"{path} was made with {made_by}, and this version cannot go on with it: {what}"
                raise FileError(msg)
            warnings.warn(without_checksums(self.store.path, self.store.about), StoreWarning, stacklevel=3)
            return
        if self.damage:
            for number, damage in self.damage.items():
                for entry in damage:
                    self.store.remove(number, entry)
            msg = f"{path} is damaged, and what is lost is computed again: {listed}"
            warnings.warn(msg, StoreWarning, stacklevel=3)
        for number in self.figures:
            self.store.forget(number)
        for number in [*self.records]:
            self._finish(number)

    @property
    def left(self) -> int:
        """How many blocks are not done."""
        return self.total - self.done

    def _count(self, case: Case) -> int:
        rows, columns = self.store.contents.grid(case)
        return rows * columns

    def tasks(self, threads: int | None) -> Iterator[BlockTask]:
        """The blocks that are not done, case by case."""
        for number in sorted({*self.records, *self.lost}):
            case = self.study.cases[number]
            lost = set(self.lost.get(number, ()))
            there = set(self.records.get(number, ()))
            if not lost:
                self.store.begin(number)
            for place, block in case.blocks(self.study.block):
                if number in self.refusals:
                    break
                if place in lost or (not lost and place not in there):
                    yield BlockTask(number, place, case, block, versions(), threads)

    def keep(self, task: BlockTask, answer: tuple[NDArray[Any], ErrorTally] | str) -> None:
        """Write a block, and the figures of its case if it was the last; or give the case up."""
        if task.number in self.refusals:
            return  # this block was under way when another was refused
        if isinstance(answer, str):
            self._refuse(task, answer)
            return
        D, errors = answer
        if task.number in self.lost:
            is_done = self._mend(task, D)
        else:
            crc32c = self.store.write(task.number, task.place, D, errors)
            self.records[task.number][task.place] = BlockRecord(crc32c, errors)
            is_done = self._finish(task.number)
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total, task.case, is_done)

    def _refuse(self, task: BlockTask, reason: str) -> None:
        """Give up a case that this machine cannot compute; not one that is done but for a damaged block."""
        if task.number in self.lost:
            msg = f"{quote(str(self.store.contents.chunk(task.number, task.place)))} is lost: {reason}"
            raise FileError(msg)
        self.refusals[task.number] = reason
        self.done += self._count(task.case) - len(self.records.pop(task.number))
        self.store.drop(task.number)

    def _mend(self, task: BlockTask, D: NDArray[Any]) -> bool:
        """Write a block of a case that is done, if it is what it was; whether it was the last that was lost."""
        chunk, lost = self.store.contents.chunk(task.number, task.place), self.lost[task.number]
        if self.store.write(task.number, task.place, D, None) != lost[task.place]:
            chunk.unlink()
            msg = f"{quote(str(chunk))} is lost: computed again, it is another; remove {quote(str(chunk.parents[2]))}"
            raise FileError(msg)
        del lost[task.place]
        if lost:
            return False
        del self.lost[task.number]
        return True

    def _finish(self, number: int) -> bool:
        """Write the figures of a case that has all of its blocks; whether it has."""
        records = self.records[number]
        if len(records) < self._count(self.study.cases[number]):
            return False
        figures = sum((record.tally for record in records.values()), ErrorTally()).figures()
        self.store.begin(number)
        self.store.finish(number, figures, [records[place].crc32c for place in sorted(records)])
        self.figures[number] = figures
        del self.records[number]
        return True

    def outcomes(self) -> list[Outcome]:
        """The outcome of every case, in the order of the study."""
        return [
            Outcome(
                self.store.contents.name(number),
                case,
                self.figures.get(number),
                self.refusals.get(number, ""),
                tuple(str(entry) for entry in self.damage.get(number, ())),
            )
            for number, case in enumerate(self.study.cases)
        ]
