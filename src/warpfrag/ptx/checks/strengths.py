"""How strong the accesses and fences of an instruction are: what the words .relaxed, .acquire, .gpu and their like say.

Sources: PTX ISA, Memory Consistency Model. An access is strong if it is volatile, relaxed, acquire or release, or an
atomic. Two strong accesses do not race if each one's scope reaches the thread of the other, and they overlap whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from warpfrag.ptx.checks.ordering import BLOCK, GPU, SCOPES
from warpfrag.ptx.program.actions import Atomic

if TYPE_CHECKING:
    from warpfrag.ptx.program.program import DecodedInstruction

MEMBAR_LEVELS = {"cta": BLOCK, "gl": GPU, "sys": GPU}


class Strength(NamedTuple):
    """Whether an access is strong, whether it acquires or releases, and the level of its scope."""

    is_strong: bool
    acquires: bool
    releases: bool
    level: int


WEAK = Strength(is_strong=False, acquires=False, releases=False, level=BLOCK)


def strength_of(step: DecodedInstruction) -> Strength:
    """The strength of a load, a store or an atomic."""
    words = step.name.split(".")
    is_atomic = isinstance(step.action, Atomic)
    order = next((word for word in words if word in {"relaxed", "acquire", "release", "acq_rel", "volatile"}), "")
    if not order and not is_atomic:
        return WEAK
    default = "sys" if order == "volatile" else "gpu"
    scope = next((word for word in words if word in SCOPES), default)
    return Strength(
        is_strong=True, acquires=order in {"acquire", "acq_rel"}, releases=order in {"release", "acq_rel"},
        level=SCOPES[scope],
    )  # fmt: skip


def fence_level(step: DecodedInstruction) -> int | None:
    """The level of a fence of ordinary memory; None where the instruction is none."""
    words = step.name.split(".")
    if words[0] == "membar":
        return MEMBAR_LEVELS.get(words[1]) if len(words) > 1 else None
    if words[0] != "fence" or "proxy" in words or "mbarrier_init" in words:
        return None
    return SCOPES[next((word for word in words if word in SCOPES), "sys")]


def is_sc_fence(step: DecodedInstruction) -> bool:
    """Whether a fence is sequentially consistent: fence.sc, and membar, which means the same."""
    words = step.name.split(".")
    return words[0] == "membar" or "sc" in words


def is_proxy_fence(step: DecodedInstruction) -> bool:
    """Whether an instruction is fence.proxy.async, which orders the generic and the async proxy."""
    words = step.name.split(".")
    return words[0] in {"fence", "membar"} and "proxy" in words and any(word.startswith("async") for word in words)
