"""A store, opened to be read: which cases are there, their figures, their products, and what is damaged."""

from __future__ import annotations

import os
import warnings
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpfrag.errors import FileError, InvalidOperand, StoreWarning, check_flag, quote
from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.sweep.checksums import BlockDamage, list_damage
from warpfrag.sweep.contents import (
    KEY,
    METADATA,
    SCHEMA,
    WITHOUT_CHECKSUMS,
    StoreContents,
    read_about,
    without_checksums,
)
from warpfrag.sweep.extra import extra
from warpfrag.sweep.sweep_plan import Study
from warpfrag.sweep.sweep_run import Outcome

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray


@frozen_dataclass
class StudyResults:
    """What a store has; `blocks` of D of the cases that can be computed are asked for, `done` of them are there."""

    study: Study
    outcomes: tuple[Outcome, ...]
    """Every case: without figures where it is not done."""
    damage: tuple[BlockDamage, ...]
    """What is not as it was written; `sweep` computes it again."""
    done: int
    blocks: int
    _contents: StoreContents = field(repr=False)

    @property
    def is_complete(self) -> bool:
        """Whether every block is there, and nothing is damaged."""
        return self.done == self.blocks and not self.damage

    def read(self, name: str) -> NDArray[Any]:
        """D of a case, by the name that its outcome has; refused where it is not whole. Its checksums are compared."""
        names = [outcome.name for outcome in self.outcomes]
        if name not in names:
            msg = f"name: expected one of the cases {names[0]} to {names[-1]}, got {quote(name)}"
            raise InvalidOperand(msg)
        stored = self._contents.read_case(names.index(name), verify=True)
        file = quote(str(self._contents.path / name))
        if stored.damage:
            msg = f"{file} is damaged: {list_damage(stored.damage)}; a sweep computes it again"
            raise FileError(msg)
        if stored.figures is None:
            msg = f"{file} is not finished: run the sweep again to resume it"
            raise FileError(msg)
        D: NDArray[Any] = extra("zarr").open_group(self._contents.path, mode="r")[name][:]
        return D


def open_results(path: str | PathLike[str], *, verify: bool = False) -> StudyResults:
    """What a store has, of any version; nothing is computed and nothing is written.

    Every chunk is looked at: whether it is there and has its size; with `verify` it is read and compared with its
    checksum. A `StoreWarning` says what is damaged, or that the store, of 0.2, has no checksums. A store whose
    zarr.json is damaged is refused, and so is what is no store.
    """
    check_flag("verify", verify)
    if not isinstance(path, str | os.PathLike):
        msg = f"expected the name of a store to read, got {quote(path)}"
        raise FileError(msg)
    folder = Path(path)
    about = read_about(folder)
    if about is None or about["schema"] not in {WITHOUT_CHECKSUMS, SCHEMA}:
        held = "is no study" if about is None else f"has schema {quote(about['schema'])}, not {SCHEMA}"
        msg = f"{quote(str(folder / METADATA))} {held}: attributes[{KEY!r}]"
        raise FileError(msg)
    contents = StoreContents(folder, Study.of_table(about["study"]), about)
    outcomes: list[Outcome] = []
    damage: list[BlockDamage] = []
    done = blocks = 0
    for number, case in enumerate(contents.study.cases):
        figures = None
        if not case.refusal:
            rows, columns = contents.grid(case)
            stored = contents.read_case(number, verify=verify)
            figures = stored.figures
            blocks += rows * columns
            done += len(stored.records) if figures is None else rows * columns - len(stored.crc32c)
            damage += stored.damage
        outcomes.append(Outcome(contents.name(number), case, figures, case.refusal))
    if damage:
        msg = f"{quote(str(folder))} is damaged: {list_damage(damage)}; a sweep computes it again"
        warnings.warn(msg, StoreWarning, stacklevel=2)
    elif not contents.has_checksums:
        warnings.warn(without_checksums(folder, about), StoreWarning, stacklevel=2)
    return StudyResults(contents.study, tuple(outcomes), tuple(damage), done, blocks, contents)
