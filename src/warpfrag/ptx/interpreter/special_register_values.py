"""Special registers: the values of %tid, %laneid, %clock and the others in every lane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import PtxError
from warpfrag.layout.coordinates import LANES
from warpfrag.ptx.program.state_spaces import GRID_WORKSPACE, SHARED_START

if TYPE_CHECKING:
    from warpfrag.ptx.interpreter.warp_state import WarpState

ZEROS = ("%gridid", "%smid", "%current_graph_exec")
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
GRID_REGISTERS = {"%envreg1": GRID_WORKSPACE >> 32, "%envreg2": GRID_WORKSPACE & 0xFFFFFFFF}
"""The registers in which cooperative groups find the grid's workspace; 0 in a launch that is not cooperative."""
DRIVER_REGISTERS = {f"%envreg{number}" for number in range(32)} - set(GRID_REGISTERS)
"""Registers that the driver fills with unknown values; on an H200 numbers 0, 6 and 10 are not zero."""
INEXACT = frozenset((*TIMERS, *RESERVED, *DRIVER_REGISTERS, "%smid", "%nsmid", "%warpid", "%nwarpid", "%gridid"))
"""Registers that have other values on a GPU; a result that depends on them is not exact."""


def block_rank(blocks: list[NDArray[Any]], cluster: tuple[int, int, int]) -> NDArray[Any]:
    """The rank of blocks in their cluster, x fastest."""
    x, y, z = (index % np.uint32(extent) for index, extent in zip(blocks, cluster, strict=True))
    return x + np.uint32(cluster[0]) * (y + np.uint32(cluster[1]) * z)


def special(source: WarpState, name: str, line: int) -> NDArray[Any]:
    """The codes of a special register in all lanes."""
    lane = np.arange(LANES, dtype=np.uint32)
    base, _, part = name.partition(".")
    launch = source.launch
    axis = "xyz".find(part) if part in {"x", "y", "z"} else -1
    if base == "%tid" and axis >= 0:
        return source.thread_index[axis]
    cluster, blocks = launch.cluster, source.block_index
    by_block = {
        "%ctaid": blocks[axis],
        "%clusterid": blocks[axis] // np.uint32(cluster[axis]),
        "%cluster_ctaid": blocks[axis] % np.uint32(cluster[axis]),
        "%cluster_ctarank": block_rank(blocks, cluster),
    }
    if name == "%cluster_ctarank" or (base in by_block and axis >= 0):
        return np.repeat(by_block[base][:, None], LANES, axis=1)
    sizes = {
        "%ntid": launch.block, "%nctaid": launch.grid, "%cluster_nctaid": cluster,
        "%nclusterid": tuple(extent // size for extent, size in zip(launch.grid, cluster, strict=True)),
    }  # fmt: skip
    if base in sizes and axis >= 0:
        return source.full(sizes[base][axis])
    if name.startswith("%lanemask_"):
        every = np.uint32(0xFFFFFFFF)
        equal = np.uint32(1) << lane
        masks = {"eq": equal, "lt": equal - np.uint32(1), "le": equal | (equal - np.uint32(1))}
        masks |= {"ge": every ^ masks["lt"], "gt": every ^ masks["le"]}
        if name[10:] in masks:
            return np.tile(masks[name[10:]], (source.warps, 1))
    if name == "%laneid":
        return np.tile(lane, (source.warps, 1))
    if name == "%warpid":
        return np.repeat(source.warp_index[:, None].astype(np.uint32), LANES, axis=1)
    numbers = {
        "%nwarpid": 64, "%nsmid": 132, "%dynamic_smem_size": launch.shared,
        "%total_smem_size": launch.shared + source.shared_bytes,
        "%aggr_smem_size": launch.shared + source.shared_bytes,
        "%cluster_nctarank": cluster[0] * cluster[1] * cluster[2],
        "%is_explicit_cluster": int(launch.is_explicit_cluster), **dict.fromkeys(ZEROS, 0), **RESERVED,
    }  # fmt: skip
    if launch.is_cooperative:
        numbers |= GRID_REGISTERS
    if name in numbers or name.startswith("%envreg"):
        return source.full(numbers.get(name, 0))
    if name in TIMERS:
        ticks = source.executed_instructions
        value = ticks >> 32 if name.endswith("_hi") else ticks & 0xFFFFFFFF if TIMERS[name] == 32 else ticks
        return np.full((source.warps, LANES), value, np.uint64)
    raise PtxError(
        line, f"expected a register or a special register, got {name!r}, which is neither declared nor modelled"
    )
