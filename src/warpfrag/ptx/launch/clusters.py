"""Clusters: blocks that run together on neighbouring multiprocessors and reach each other's shared memory.

Their shape stands in the PTX (.reqnctapercluster, or .blocksareclusters with it) or is an argument of the launch. A
cluster has at most 8 blocks, unless a kernel asks for more in a way that not every GPU grants (CUDA C++ Programming
Guide, "Thread Block Clusters"); `.maxclusterrank` may say fewer. The grid is a multiple of it along every axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.errors import InvalidOperand, quote

if TYPE_CHECKING:
    from warpfrag.ptx.program.program import Program

MAX_CLUSTER = 8
FIRST_ARCH = 90


def cluster_shape(program: Program, cluster: object, grid: tuple[int, int, int]) -> tuple[tuple[int, int, int], bool]:
    """The shape of the clusters of a launch, and whether somebody asked for clusters."""
    declared = declared_shape(program)
    is_explicit = declared is not None or cluster is not None or "explicitcluster" in program.directives
    shape = _read(cluster) if cluster is not None else declared
    if shape is None:
        if "explicitcluster" in program.directives:
            msg = f"{program.name} must be launched with clusters (.explicitcluster): give cluster=(x, y, z)"
            raise InvalidOperand(msg)
        return (1, 1, 1), False
    if declared is not None and shape != declared:
        msg = f"{program.name} must be launched with clusters of {declared} (.reqnctapercluster), got {shape}"
        raise InvalidOperand(msg)
    largest = min(MAX_CLUSTER, *program.directives.get("maxclusterrank", (MAX_CLUSTER,)))
    if prod(shape) > largest:
        msg = f"expected at most {largest} blocks in a cluster, got {prod(shape)} of {shape}"
        raise InvalidOperand(msg)
    if any(blocks % size for blocks, size in zip(grid, shape, strict=True)):
        msg = f"expected a grid that is a multiple of the cluster {shape} along every axis, got {grid}"
        raise InvalidOperand(msg)
    number = "".join(filter(str.isdigit, program.target.split("_")[-1]))
    if prod(shape) > 1 and number and int(number) < FIRST_ARCH:
        msg = f"clusters need sm_{FIRST_ARCH} or later, got a module for {program.target}"
        raise InvalidOperand(msg)
    return shape, is_explicit


def declared_shape(program: Program) -> tuple[int, int, int] | None:
    """The shape that the PTX asks for; None where it says nothing."""
    written = program.directives.get("reqnctapercluster")
    return _three(written) if written else None


def _three(extents: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


def _read(cluster: object) -> tuple[int, int, int]:
    """Three extents; those that are left out are 1."""
    extents = (
        [cluster] if isinstance(cluster, int | np.integer) else list(cluster) if isinstance(cluster, Sequence) else []
    )
    sizes = [int(extent) for extent in extents if isinstance(extent, int | np.integer) and extent >= 1]
    if not 1 <= len(extents) <= 3 or len(sizes) != len(extents):
        msg = f"expected cluster as one to three positive integers, got {quote(cluster)}"
        raise InvalidOperand(msg)
    return _three(sizes)
