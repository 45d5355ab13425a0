"""The context of compiled code: an array of 64-bit words with the addresses, sizes and counters that it uses."""

from __future__ import annotations

from warpfrag.ptx.program.state_spaces import SPACES

REGISTERS, WARP_BYTES, PARAMETERS, PARAMETER_BYTES, SHARED, SHARED_END, SHARED_STRIDE = range(7)
LOCAL, LOCAL_STRIDE, ALLOCATIONS, ALLOCATION_COUNT, WARP_BLOCK = range(7, 12)
FAULT_STEP, FAULT_WARP, FAULT_MASK, STEP_WAVEFRONTS, FAULT_ADDRESSES = range(12, 17)
READ_BYTES = 48  # by state space, behind the addresses of 32 lanes
WRITTEN_BYTES = READ_BYTES + len(SPACES)
WAVEFRONTS = WRITTEN_BYTES + len(SPACES)
STEP_CAUSES = WAVEFRONTS + len(SPACES)  # the address of `LaunchTally.causes`
SHARED_TAGS, WRITERS, BLOCK_WARPS = range(STEP_CAUSES + 1, STEP_CAUSES + 4)  # `interpreter.store_tags`
STEP_READ, STEP_WRITTEN, STEP_CONFLICTS = range(BLOCK_WARPS + 1, BLOCK_WARPS + 4)  # addresses of counts by step
SCREEN, SCREEN_STATE, SUSPICIONS = range(STEP_CONFLICTS + 1, STEP_CONFLICTS + 4)
"""The function that is told of every access, 0 for none; what it works on (`access_screen`); lanes that it doubts."""
CLUSTER_WARPS = SUSPICIONS + 1
CONTEXT_WORDS = CLUSTER_WARPS + 1
ALLOCATION_WORDS = 5  # of an allocation: start, end, data, writable, tags
NO_FAULT = (1 << 62) - 1
"""What FAULT_STEP holds while no access has been a fault."""
SHARED_BUFFER, LOCAL_BUFFER, COPY_GROUPS = 1, 2, 3
"""What an access that is told goes to, besides rows of the table of allocations."""
