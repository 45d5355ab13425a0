"""Sweeps: GEMMs over many instructions, architectures, shapes and data, computed in blocks and kept in a Zarr store.

    plan = SweepPlan.read("sweep.toml")      # the cases
    sweep(plan, "sweep.zarr")                # computes the blocks that are missing
    plan.cases[3].operands()                 # operands of one case; they follow from the seed
    warpfrag.sweep.open("sweep.zarr")        # reads a store, without the TOML file and without computing

`warpfrag sweep` does the same from the command line. It needs the extra `dask`.
"""

from __future__ import annotations

from warpfrag.sweep.sweep_plan import Case, SweepPlan
from warpfrag.sweep.sweep_run import sweep
from warpfrag.sweep.sweep_store import BlockDamage, Outcome, SweepResults
from warpfrag.sweep.sweep_store import open_results as open  # noqa: A004 (only as warpfrag.sweep.open)

__all__ = ["BlockDamage", "Case", "Outcome", "SweepPlan", "SweepResults", "open", "sweep"]
