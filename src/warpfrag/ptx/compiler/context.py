"""What native code is told, as places of an array of 64-bit words."""

from __future__ import annotations

from warpfrag.ptx.program.state_spaces import SPACES

REGISTERS, WARP_BYTES, PARAMETERS, PARAMETER_BYTES, SHARED, SHARED_END, SHARED_STRIDE = range(7)
LOCAL, LOCAL_STRIDE, ALLOCATIONS, ALLOCATION_COUNT, WARP_BLOCK = range(7, 12)
FAULT_STEP, FAULT_WARP, FAULT_MASK, PASSES_OF_STEPS, FAULT_ADDRESSES = range(12, 17)
READ = 48  # bytes by state space
WRITTEN = READ + len(SPACES)
PASSES = WRITTEN + len(SPACES)  # wavefronts by state space
CONTEXT_WORDS = 64
NO_FAULT = (1 << 62) - 1
