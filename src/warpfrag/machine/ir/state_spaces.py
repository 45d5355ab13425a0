"""State spaces and generic addresses: each space except global has a window in the 64-bit address space.

The window addresses are arbitrary choices: a real GPU chooses its own, and no program may depend on them.
"""

import re
from typing import Literal, NamedTuple

StateSpace = Literal["generic", "global", "shared", "cluster", "local", "param", "const"]
SPACES: tuple[StateSpace, ...] = ("global", "shared", "local", "param", "const")
WINDOW_SIZE = 1 << 32
WINDOWS = {
    "global": 0,
    "const": 0,  # constants are at global addresses, in a separate range
    "shared": 0x0001_0000_0000_0000,
    "cluster": 0x0001_0000_0000_0000,
    "local": 0x0002_0000_0000_0000,
    "param": 0x0003_0000_0000_0000,
}
RANK_SHIFT = 24
"""The position of the rank bits of a shared::cluster address: the target's rank XOR the executing block's rank.

Addresses in a block's own shared memory are thus the same in every block. Code that flips a rank bit to reach a
neighbour, as Triton's does, assumes that these bits are the rank itself, and still reaches the right block.
`ptx.lowering.operand_checks` handles code that clears a rank bit."""
RANK_BITS = 0xFF << RANK_SHIFT
WINDOW_SHIFT = 48  # address >> WINDOW_SHIFT is the window number
CODE = 0x0004_0000_0000_0000
HANDLES = 0x0005_0000_0000_0000
"""The handle of the first texture or surface; handles are 64 apart."""
HEAP = 0x7D00_0000_0000
HEAP_BYTES = 8 << 20
"""The size of the malloc heap in bytes: CUDA's default."""
GRID_WORKSPACE = 0x7C00_0000_0000
"""The address of the grid.sync() barrier; cooperative launches provide it in %envreg1 (high half) and %envreg2."""
GRID_WORKSPACE_BYTES = 256
DEVICE_ARRAYS = 0x1000_0000_0000
"""The first address of device arrays, which keep their addresses between launches."""
CONSTANTS = 0x7B00_0000_0000
CONSTANTS_BYTES = 1 << 28  # the size of the address range for constants, with gaps between the variables
VARIABLES = 0x7E00_0000_0000
ARRAYS = 0x7F00_0000_0000


class GlobalMemoryMap(NamedTuple):
    """The start of each region of global memory; with 32-bit addresses, constants follow the arrays of a launch."""

    arrays: int
    constants: int
    variables: int
    variables_end: int
    code: int

    def end(self, region: Literal["constants", "variables"]) -> int:
        """Return the end address of constants or of other variables."""
        return self.constants + CONSTANTS_BYTES if region == "constants" else self.variables_end


GLOBAL_MEMORY_MAPS = {
    32: GlobalMemoryMap(0x1000_0000, 0x5000_0000, 0x6000_0000, 0x8000_0000, 0x8000_0000),
    64: GlobalMemoryMap(ARRAYS, CONSTANTS, VARIABLES, ARRAYS, CODE),
}
"""The global-memory map for each `.address_size`. With 32 bits there are no windows: generic addresses are global."""
SHARED_START = 1024
"""The first usable address of shared memory; the system reserves the bytes below it, as on real GPUs."""
ALIGNMENT = 256


def is_in_window(address: int) -> bool:
    """Return True if a generic address is in shared, local or parameter memory, not in global memory."""
    return 1 <= int(address) >> WINDOW_SHIFT <= len(set(WINDOWS.values())) - 1


NAMES = re.compile(
    r"%((tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)\.[xyz]|lanemask_(eq|lt|le|gt|ge)|laneid|warpid"
    r"|nwarpid|nsmid|smid|gridid|dynamic_smem_size|total_smem_size|aggr_smem_size|envreg\d+|clock|clock_hi|clock64"
    r"|globaltimer|globaltimer_lo|globaltimer_hi|cluster_ctarank|cluster_nctarank|is_explicit_cluster|current_graph_exec"
    r"|reserved_smem_offset_(begin|end|cap|[01]))"
)


def is_special(name: str) -> bool:
    """Return True if a name denotes a special register."""
    return NAMES.fullmatch(name) is not None
