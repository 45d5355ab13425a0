"""Special registers: what %tid, %laneid and their kin hold in every lane."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from warpfrag.errors import PtxError
from warpfrag.ptx.program.state_spaces import SHARED_START

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Extents(Protocol):
    """How a kernel is launched, to its special registers."""

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks."""

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads of a block."""

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory."""


class Warps(Protocol):
    """The warps that run together, to their special registers."""

    warps: int
    thread_index: list[NDArray[Any]]
    block_index: list[NDArray[Any]]
    warp_index: NDArray[Any]

    @property
    def launch(self) -> Extents:
        """How they were launched."""

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that the kernel declares."""

    @property
    def executed_steps(self) -> int:
        """Steps so far: all the time that there is."""

    def full(self, value: int) -> NDArray[Any]:
        """One number in every lane."""


ZEROS = ("%gridid", "%smid", "%cluster_ctarank", "%is_explicit_cluster", "%current_graph_exec")
ONES = ("%cluster_nctarank",)
TIMERS = {
    "%clock": 32,
    "%clock_hi": 32,
    "%clock64": 64,
    "%globaltimer": 64,
    "%globaltimer_lo": 32,
    "%globaltimer_hi": 32,
}
RESERVED = {
    "%reserved_smem_offset_begin": 0,
    "%reserved_smem_offset_end": SHARED_START,
    "%reserved_smem_offset_cap": SHARED_START,
    "%reserved_smem_offset_0": 0,
    "%reserved_smem_offset_1": 0,
}
INEXACT = frozenset((*TIMERS, *RESERVED, "%smid", "%nsmid", "%warpid", "%nwarpid", "%gridid"))
"""Registers whose value a real GPU chooses otherwise; a result that depends on them is not exact."""


NAMES = re.compile(
    r"%((tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)\.[xyz]|lanemask_(eq|lt|le|gt|ge)|laneid|warpid"
    r"|nwarpid|nsmid|smid|gridid|dynamic_smem_size|total_smem_size|aggr_smem_size|envreg\d+|clock|clock_hi|clock64"
    r"|globaltimer|globaltimer_lo|globaltimer_hi|cluster_ctarank|cluster_nctarank|is_explicit_cluster|current_graph_exec"
    r"|reserved_smem_offset_(begin|end|cap|[01]))"
)


def is_special(name: str) -> bool:
    """Whether the machine fills a register of this name."""
    return NAMES.fullmatch(name) is not None


def special(wave: Warps, name: str, line: int) -> NDArray[Any]:
    """The codes of a special register in all lanes."""
    lane = np.arange(32, dtype=np.uint32)
    base, _, part = name.partition(".")
    launch = wave.launch
    axis = "xyz".find(part) if part in {"x", "y", "z"} else -1
    if base == "%tid" and axis >= 0:
        return wave.thread_index[axis]
    if base in {"%ctaid", "%clusterid"} and axis >= 0:
        return np.repeat(wave.block_index[axis][:, None], 32, axis=1)
    sizes = {
        "%ntid": launch.block, "%nctaid": launch.grid, "%nclusterid": launch.grid,
        "%cluster_ctaid": (0, 0, 0), "%cluster_nctaid": (1, 1, 1),
    }  # fmt: skip
    if base in sizes and axis >= 0:
        return wave.full(sizes[base][axis])
    if name.startswith("%lanemask_"):
        every = np.uint32(0xFFFFFFFF)
        equal = np.uint32(1) << lane
        masks = {"eq": equal, "lt": equal - np.uint32(1), "le": equal | (equal - np.uint32(1))}
        masks |= {"ge": every ^ masks["lt"], "gt": every ^ masks["le"]}
        if name[10:] in masks:
            return np.tile(masks[name[10:]], (wave.warps, 1))
    if name == "%laneid":
        return np.tile(lane, (wave.warps, 1))
    if name == "%warpid":
        return np.repeat(wave.warp_index[:, None].astype(np.uint32), 32, axis=1)
    numbers = {
        "%nwarpid": 64, "%nsmid": 132, "%dynamic_smem_size": launch.shared,
        "%total_smem_size": launch.shared + wave.shared_bytes,
        "%aggr_smem_size": launch.shared + wave.shared_bytes,
        **dict.fromkeys(ZEROS, 0), **dict.fromkeys(ONES, 1), **RESERVED,
    }  # fmt: skip
    if name in numbers or name.startswith("%envreg"):
        return wave.full(numbers.get(name, 0))
    if name in TIMERS:
        ticks = wave.executed_steps
        value = ticks >> 32 if name.endswith("_hi") else ticks & 0xFFFFFFFF if TIMERS[name] == 32 else ticks
        return np.full((wave.warps, 32), value, np.uint64)
    raise PtxError(
        line, f"expected a register or a special register, got {name!r}, which is neither declared nor modelled"
    )
