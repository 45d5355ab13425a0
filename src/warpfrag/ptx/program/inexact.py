"""Why a result of a kernel may differ from a GPU's although every opcode is known: one cause, one row.

A cause belongs to a step. What is known when a kernel is lowered is text (`DecodedInstruction.doubt`) and counts as
soon as the step runs. What depends on values is seen while it runs: a bit of `LaunchTally.causes`, which both engines
set alike. A launch lists both with line and reason (`Run.inexact_lines`), and is then not exact;
those that cannot change memory are left out (`launch.other_results`).
"""

from __future__ import annotations

from enum import IntFlag


class InexactCause(IntFlag):
    """Causes that depend on values, as bits; compiled code stores them in one byte of each step."""

    NAN_OPERANDS = 1
    OVERLAPPING_STORES = 2
    STMATRIX_ROWS = 4
    LANES_AT_SAME_ADDRESS = 8
    COMPILER = 64


LOOKED_INTO = InexactCause.NAN_OPERANDS | InexactCause.COMPILER
"""Causes of which the other results are known: a short launch is run again with them."""
REASONS = {
    InexactCause.NAN_OPERANDS: "different NaNs are operands of one f64 operation: which of them stays depends on the"
    " order of operands that ptxas chose",
    InexactCause.OVERLAPPING_STORES: "several threads store different bytes to one address without a barrier between"
    " them: which stays depends on timing",
    InexactCause.STMATRIX_ROWS: "several lanes give stmatrix one address and different bytes: which stays is not"
    " specified, and computed as an H200 does it",
    InexactCause.LANES_AT_SAME_ADDRESS: "several lanes of a warp store different bytes to one address at once: computed"
    " as an H200 does it",
    InexactCause.COMPILER: "ptxas may compile it differently, with another result for these values",
}
"""What `Run.inexact_lines` says of each cause."""
MEASURED_ON = {InexactCause.LANES_AT_SAME_ADDRESS: "sm_90"}
"""Causes that are none on one architecture: what it does was measured (docs/evidence/h200_stores.md)."""
