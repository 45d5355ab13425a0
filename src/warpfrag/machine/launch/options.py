"""The options of a launch, their validation, and their defaults: limits, level, engine and architecture."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from warpfrag.cuda_tools import LEVELS, execution_level
from warpfrag.errors import InvalidOperand, check_flag, quote
from warpfrag.isa.targets import read_target
from warpfrag.machine.interpreter.kernel_findings import CHECKS, Check
from warpfrag.machine.interpreter.warp_state import LaunchConfig
from warpfrag.machine.ir import state_spaces
from warpfrag.machine.ir.program import Program
from warpfrag.machine.launch.grid import Progress
from warpfrag.tensorcore.thread_split import check_threads

Engine = Literal["auto", "reference", "compiled"]
ENGINES = ("auto", "reference", "compiled")
ENGINE_VARIABLE = "WARPFRAG_ENGINE"
MAX_THREADS = 1024
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_SHARED = 227 * 1024
MEASURED = "sm_90"  # the architecture whose special function unit the tables describe
WRITTEN_TARGET = re.compile(r"sm_([0-9]{1,4})([0-9])([af]?)", re.ASCII)
LIMIT = 10_000_000_000  # the default limit on warp instructions
JUDGE_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """Rarely needed options of a launch."""

    cluster: int | Sequence[int] | None = None
    """The shape of a cluster, with at most 16 blocks; None selects the shape in the PTX (.reqnctapercluster)."""
    cooperative: bool = False
    """Run all blocks at the same time, as grid.sync() requires; they must fit on an H200."""
    explore: int = 0
    """The number of additional interleavings to run from the same memory; `Run.exploration` compares their results."""
    limit: int = LIMIT
    """Stop the launch after this number of warp instructions; with a limit below the default, it runs on one core."""
    seconds: float | None = None
    """Stop the launch after this many seconds, with an error that names the current line; None for no limit."""
    threads: int | None = None
    """The number of cores to use for the blocks of a compiled kernel; None for all."""
    judge: bool | float = True
    """The maximum processor time, in seconds, for judging whether the result of machine code is exact; True means 10
    seconds. If False, nothing is judged: `Run.exact` is False and launches are faster."""
    progress: Progress | None = None
    """A function that is called with the number of finished blocks and the total number of blocks."""

    def __post_init__(self) -> None:
        """Raise InvalidOperand for invalid options."""
        explore = self.explore
        if isinstance(explore, bool) or not isinstance(explore, int | np.integer) or explore < 0:
            raise InvalidOperand(f"expected explore to be a number of runs of at least 0, got {quote(explore)}")
        if isinstance(self.limit, bool) or not isinstance(self.limit, int | np.integer):
            raise InvalidOperand(f"expected limit to be a number of warp instructions, got {quote(self.limit)}")
        if self.seconds is not None and not (isinstance(self.seconds, int | float) and self.seconds > 0):
            raise InvalidOperand(f"expected seconds to be a positive number, got {quote(self.seconds)}")
        if self.progress is not None and not callable(self.progress):
            raise InvalidOperand(
                f"expected progress to be a function of two block counts (finished, total), got {quote(self.progress)}"
            )
        check_flag("cooperative", self.cooperative)
        if not isinstance(self.judge, bool | np.bool_ | int | float) or self.judge < 0:
            raise InvalidOperand(f"expected judge to be True, False or a number of seconds, got {quote(self.judge)}")
        check_threads(self.threads)


DEFAULT_OPTIONS = LaunchOptions()


def launch_config(
    program: Program, grid: object, block: object, shared: int, arch: str | None, options: LaunchOptions
) -> LaunchConfig:
    """Return the configuration of a launch; raise InvalidOperand if it is not valid for the kernel."""
    name = program.name
    blocks, threads = extent_of("grid", grid, MAX_GRID), extent_of("block", block, MAX_BLOCK)
    if threads[0] * threads[1] * threads[2] > MAX_THREADS:
        raise InvalidOperand(f"expected at most {MAX_THREADS} threads in a block, got {threads}")
    required = program.directives.get("reqntid")
    if required and (*required, 1, 1)[:3] != threads:
        raise InvalidOperand(
            f"{name} must be launched with blocks of {(*required, 1, 1)[:3]} (.reqntid), got {threads}"
        )
    limits = program.directives.get("maxntid")
    if limits and np.prod(limits) < np.prod(threads):
        raise InvalidOperand(f"{name} takes blocks of at most {int(np.prod(limits))} threads (.maxntid), got {threads}")
    if isinstance(shared, bool) or not isinstance(shared, int | np.integer) or shared < 0:
        raise InvalidOperand(f"expected shared to be a number of bytes, got {quote(shared)}")
    total = program.dynamic_start - state_spaces.SHARED_START + int(shared)
    if total > MAX_SHARED:
        raise InvalidOperand(f"expected at most {MAX_SHARED} bytes of shared memory, got {total}")
    shape, is_explicit = cluster_shape(program, options.cluster, blocks)
    architecture = launch_arch(program.target, arch)
    config = LaunchConfig(
        blocks, threads, int(shared), architecture, options.limit, options.cooperative, shape, is_explicit,
        deadline=math.inf if options.seconds is None else time.monotonic() + options.seconds,
        seconds=options.seconds or math.inf,
    )  # fmt: skip
    if options.cooperative:
        check_resident(config, total)
    return config


def extent_of(name: str, value: object, limits: tuple[int, int, int] | None = None) -> tuple[int, int, int]:
    """Return three extents, with 1 for missing axes; raise InvalidOperand if one is not positive or too large."""
    extents = [value] if isinstance(value, int | np.integer) else list(value) if isinstance(value, Sequence) else []
    sizes = [int(extent) for extent in extents if isinstance(extent, int | np.integer) and extent >= 1]
    if not 1 <= len(extents) <= 3 or len(sizes) != len(extents):
        raise InvalidOperand(f"expected {name} to be one to three positive integers, got {quote(value)}")
    x, y, z = (*sizes, 1, 1)[:3]
    if limits and any(size > limit for size, limit in zip((x, y, z), limits, strict=True)):
        raise InvalidOperand(f"expected {name} to be at most {limits}, got {quote(value)}")
    return x, y, z


def checks_of(checks: object) -> tuple[Check, ...]:
    """Return the checks that a caller requests by name: one, several, or "all"."""
    named = (checks,) if isinstance(checks, str) else tuple(checks) if isinstance(checks, Iterable) else (checks,)
    if any(isinstance(name, str) and name == "all" for name in named):
        return CHECKS
    check_choice("checks", named, CHECKS)
    return tuple(check for check in CHECKS if check in named)


def chosen_engine(engine: str) -> str:
    """Return the engine to use; the environment variable WARPFRAG_ENGINE, if set, replaces "auto"."""
    check_choice("engine", [engine], ENGINES)
    if engine == "auto" and ENGINE_VARIABLE in os.environ:
        engine = os.environ[ENGINE_VARIABLE]
        check_choice(ENGINE_VARIABLE, [engine], ENGINES)
    return engine


def chosen_level(level: str) -> str:
    """Return the level to execute; the environment variable WARPFRAG_LEVEL, if set, replaces "auto"."""
    check_choice("level", [level], LEVELS)
    return execution_level() if level == "auto" else level


def check_choice(name: str, values: Sequence[object], known: tuple[str, ...]) -> None:
    """Raise InvalidOperand unless every value is in `known`."""
    for value in values:
        if not isinstance(value, str) or value not in known:
            raise InvalidOperand(f"expected {name} to be one of {', '.join(known)}, got {quote(value)}")


MAX_CLUSTER = 16  # sizes above 8 require the function attribute NON_PORTABLE_CLUSTER_SIZE_ALLOWED
FIRST_ARCH = 90


def cluster_shape(program: Program, cluster: object, grid: tuple[int, int, int]) -> tuple[tuple[int, int, int], bool]:
    """Return the cluster shape of a launch, and True if the PTX or the launch requests clusters.

    The shape comes from the PTX (.reqnctapercluster, with or without .blocksareclusters) or from a launch argument. A
    cluster has at most 16 blocks, or fewer if `.maxclusterrank` says so (CUDA C++ Programming Guide, "Thread Block
    Clusters").
    """
    declared = declared_shape(program)
    is_explicit = declared is not None or cluster is not None or "explicitcluster" in program.directives
    shape = extent_of("cluster", cluster) if cluster is not None else declared
    if shape is None:
        if "explicitcluster" in program.directives:
            raise InvalidOperand(
                f"{program.name} must be launched with clusters (.explicitcluster):"
                " pass options=LaunchOptions(cluster=(x, y, z))"
            )
        return (1, 1, 1), False
    if declared is not None and shape != declared:
        raise InvalidOperand(
            f"{program.name} must be launched with clusters of {declared} (.reqnctapercluster), got {shape}"
        )
    largest = min(MAX_CLUSTER, *program.directives.get("maxclusterrank", (MAX_CLUSTER,)))
    if prod(shape) > largest:
        raise InvalidOperand(f"expected at most {largest} blocks in a cluster, got {prod(shape)} in {shape}")
    if any(blocks % size for blocks, size in zip(grid, shape, strict=True)):
        raise InvalidOperand(f"expected a grid that is a multiple of the cluster {shape} along every axis, got {grid}")
    number = "".join(filter(str.isdigit, program.target.split("_")[-1]))
    if prod(shape) > 1 and number and int(number) < FIRST_ARCH:
        raise InvalidOperand(f"clusters need sm_{FIRST_ARCH} or later, got a module for {program.target}")
    return shape, is_explicit


def declared_shape(program: Program) -> tuple[int, int, int] | None:
    """Return the cluster shape that the PTX requires, or None."""
    extents = program.directives.get("reqnctapercluster")
    return extent_of("cluster", extents) if extents else None


MULTIPROCESSORS = 132
RESIDENT_BLOCKS = 32  # per multiprocessor, like the next two limits
RESIDENT_WARPS = 64
SHARED_BYTES = 228 * 1024
RESERVED_BYTES = 1024  # shared memory that the system reserves per block


def check_resident(config: LaunchConfig, shared_bytes: int) -> None:
    """Raise InvalidOperand if a cooperative grid does not fit on an H200, where its blocks would wait forever.

    `shared_bytes` is the static and dynamic shared memory of a block. The limits are those of compute capability 9.0
    (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"); registers are not counted.
    """
    by_shared = SHARED_BYTES // (shared_bytes + RESERVED_BYTES)
    per_multiprocessor = min(RESIDENT_BLOCKS, RESIDENT_WARPS // config.warps, by_shared)
    x, y, z = config.grid
    if x * y * z > MULTIPROCESSORS * per_multiprocessor:
        raise InvalidOperand(
            f"a cooperative launch needs all blocks at once: an H200 holds {MULTIPROCESSORS} x {per_multiprocessor}"
            f" blocks of {config.threads} threads and {shared_bytes} bytes of shared memory, got a grid of {x * y * z}"
        )


def runs_on(target: str, arch: str) -> bool:
    """Return True if the driver can compile a module's target for a GPU of an architecture.

    The suffix a restricts a module to its own architecture; f restricts it to its own and later architectures of the
    same generation.

    >>> runs_on("sm_80", "sm_90"), runs_on("sm_90a", "sm_100"), runs_on("sm_100f", "sm_103"), runs_on("sm_120", "sm_90")
    (True, False, True, False)
    """
    own, other = WRITTEN_TARGET.fullmatch(target), WRITTEN_TARGET.fullmatch(arch)
    if own is None or other is None:
        return False
    (major, minor), (other_major, other_minor) = ((int(match[1]), int(match[2])) for match in (own, other))
    if own[3]:
        return major == other_major and (minor == other_minor if own[3] == "a" else minor <= other_minor)
    return (major, minor) <= (other_major, other_minor)


def default_arch(target: str) -> str:
    """Return the default architecture of a launch: sm_90 if the module runs there, else the module's own."""
    return MEASURED if runs_on(target, MEASURED) else target


def launch_arch(target: str, arch: str | None) -> str:
    """Return the architecture of a launch: the requested one, or the default for the target."""
    return read_target(default_arch(target) if arch is None else arch, "").name
