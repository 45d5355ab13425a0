"""The processors that numba's loops are compiled for: used by `machine.jit` only, until its loops are C too.

`WARPFRAG_KERNELS` names a target of `TARGETS`, to run an older set on a newer processor, or `compile`, to use none of
the objects. Building objects sets it, too: then no code of the target runs here.
"""

from __future__ import annotations

import os
import platform
import sys
from functools import lru_cache
from typing import Final, NamedTuple

from llvmlite.binding import get_host_cpu_features

VARIABLE: Final = "WARPFRAG_KERNELS"
COMPILE: Final = "compile"


class ObjectTarget(NamedTuple):
    """A set of object code: its machines, and how it is built."""

    name: str
    machine: str
    """The control word it has: x86 or arm."""
    needs: tuple[str, ...]
    """Features that the processor must have, as LLVM spells them."""
    triple: str
    cpu: str
    features: str = ""


AVX2: Final = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
AVX512: Final = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
X86: Final = "x86_64-unknown-linux-gnu-elf"
TARGETS: Final = (  # the best first
    ObjectTarget(
        "x86-64-avx512-icelake",
        "x86",
        (*AVX2, *AVX512, "avx512vnni", "avx512vpopcntdq"),
        X86,
        "x86-64-v4",
        "+avx512vnni,+avx512vpopcntdq",
    ),
    ObjectTarget("x86-64-avx512", "x86", (*AVX2, *AVX512), X86, "x86-64-v4"),
    ObjectTarget("x86-64-avx2", "x86", AVX2, X86, "x86-64-v3"),
    ObjectTarget("x86-64-fma", "x86", ("fma",), X86, "x86-64-v2", "+fma"),
    ObjectTarget("aarch64", "arm", (), "aarch64-unknown-linux-gnu-elf", "generic", "+neon"),
)
MACHINES: Final = {"x86_64": "x86", "amd64": "x86", "aarch64": "arm", "arm64": "arm"}


@lru_cache(1)
def named_target() -> ObjectTarget | None:
    """Return the target that WARPFRAG_KERNELS names, if any."""
    name = os.environ.get(VARIABLE, "")
    return next((target for target in TARGETS if target.name == name), None)


def machine() -> str:
    """Return the machine that loops are compiled for: x86, arm, or an empty text for others."""
    target = named_target()
    return target.machine if target else MACHINES.get(platform.machine().lower(), "")


def has(feature: str) -> bool:
    """Return True if the processor that loops are compiled for has a feature."""
    target = named_target()
    return feature in target.needs if target else bool(get_host_cpu_features().get(feature))


def can_run(target: ObjectTarget) -> bool:
    """Return True if this machine can run a target. None runs on Windows, which passes arguments in other registers."""
    if sys.platform == "win32" or MACHINES.get(platform.machine().lower()) != target.machine:
        return False
    features = get_host_cpu_features()
    return all(features.get(feature) for feature in target.needs)


def targets_for_host() -> list[ObjectTarget]:
    """Return the targets whose objects can be loaded here, the best first."""
    if os.environ.get(VARIABLE) == COMPILE:
        return []
    return [target for target in TARGETS if can_run(target) and named_target() in (None, target)]
