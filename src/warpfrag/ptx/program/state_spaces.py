"""State spaces and generic addresses: each space but global has a window of the 64-bit addresses.

The places of the windows are ours: a real GPU chooses its own, and no program may depend on them.
"""

from __future__ import annotations

from typing import Literal

StateSpace = Literal["generic", "global", "shared", "local", "param", "const"]
SPACES: tuple[StateSpace, ...] = ("global", "shared", "local", "param", "const")
WINDOW_SIZE = 1 << 32
WINDOWS = {
    "global": 0,
    "const": 0,  # constants lie among the global variables
    "shared": 0x0001_0000_0000_0000,
    "local": 0x0002_0000_0000_0000,
    "param": 0x0003_0000_0000_0000,
}
WINDOW_SHIFT = 48  # from an address to the number of its window
CODE = 0x0004_0000_0000_0000
HEAP = 0x7D00_0000_0000
HEAP_BYTES = 8 << 20
"""What malloc in a kernel may give in all, as CUDA has it when nobody asks for more."""
VARIABLES = 0x7E00_0000_0000
ARRAYS = 0x7F00_0000_0000
SHARED_START = 1024
"""The first address of shared memory: the system keeps what is below, as on real GPUs."""
ALIGNMENT = 256


def is_in_window(address: int) -> bool:
    """Whether a generic address is one of shared, local or parameter memory, not of global memory."""
    return 1 <= int(address) >> WINDOW_SHIFT <= len(set(WINDOWS.values())) - 1
