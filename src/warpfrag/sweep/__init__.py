"""Sweeps: GEMMs over many instructions, architectures, shapes and data, computed in blocks and stored as Zarr arrays.

    plan = SweepPlan.read("sweep.toml")      # the cases
    sweep(plan, "sweep.zarr")                # compute the missing blocks
    plan.cases[3].operands()                 # the operands of one case, generated from its seed
    warpfrag.sweep.open("sweep.zarr")        # read a store; needs no TOML file and computes nothing

The command `warpfrag sweep` does the same. Sweeps need the extra `dask`.
"""

from warpfrag.sweep.sweep_plan import Case, SweepPlan
from warpfrag.sweep.sweep_run import sweep
from warpfrag.sweep.sweep_store import BlockDamage, Outcome, SweepResults
from warpfrag.sweep.sweep_store import open_results as open  # noqa: A004 (only as warpfrag.sweep.open)

__all__ = ["BlockDamage", "Case", "Outcome", "SweepPlan", "SweepResults", "open", "sweep"]
