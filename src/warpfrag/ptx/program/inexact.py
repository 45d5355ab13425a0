"""Causes that make the result of an instruction uncertain although its opcode is known.

Some causes are known when a kernel is lowered (`DecodedInstruction.uncertain`). Those that depend on values are seen
while it runs: a bit of `LaunchTally.causes`, which both engines set alike. `Run.inexact_lines` lists both.
"""

from __future__ import annotations

from enum import IntFlag


class InexactCause(IntFlag):
    """Causes that depend on values, as bits; compiled code stores them in one byte of each instruction."""

    NAN_OPERANDS = 1
    OVERLAPPING_STORES = 2
    STMATRIX_ROWS = 4
    LANES_AT_SAME_ADDRESS = 8


REASONS = {
    InexactCause.NAN_OPERANDS: "different NaNs are operands of one f64 operation: which of them stays depends on the"
    " order of operands that ptxas chose",
    InexactCause.OVERLAPPING_STORES: "several threads store different bytes to one address without a barrier between"
    " them: which stays depends on timing",
    InexactCause.STMATRIX_ROWS: "several lanes give stmatrix one address and different bytes: which stays is not"
    " specified, and computed as an H200 does it",
    InexactCause.LANES_AT_SAME_ADDRESS: "several lanes of a warp store different bytes to one address at once: computed"
    " as an H200 does it",
}
"""The reason that `Run.inexact_lines` gives for each cause."""
MEASURED_ON = {InexactCause.LANES_AT_SAME_ADDRESS: "sm_90"}
"""Architectures on which a cause was measured, so that its result is certain (docs/evidence/h200_stores.md)."""
