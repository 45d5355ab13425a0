"""Studies: products of many instructions, architectures, shapes and data, made in blocks and kept in a Zarr store.

    study = Study.read("study.toml")        # which cases there are
    sweep(study, "study.zarr")              # computes what is not there yet
    study.cases[3].operands()               # the operands of one case: they follow from the seed
    warpfrag.sweep.open("study.zarr")       # what a store has, without the file and without computing

`warpfrag sweep` is the same from the command line. It needs the extra `dask`.
"""

from __future__ import annotations

from warpfrag.errors import MissingExtra, SchedulerError, StoreWarning
from warpfrag.sweep.checksums import BlockDamage
from warpfrag.sweep.sweep_plan import Case, Study
from warpfrag.sweep.sweep_results import StudyResults
from warpfrag.sweep.sweep_results import open_results as open  # noqa: A004 (only as warpfrag.sweep.open)
from warpfrag.sweep.sweep_run import Outcome, sweep

__all__ = [
    "BlockDamage",
    "Case",
    "MissingExtra",
    "Outcome",
    "SchedulerError",
    "StoreWarning",
    "Study",
    "StudyResults",
    "open",
    "sweep",
]
