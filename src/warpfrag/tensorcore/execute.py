"""Execute any instruction, by its name or object, on registers or memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.errors import IllegalInstruction
from warpfrag.formats.arrays import Words
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, Immediates
from warpfrag.isa.instruction_names import LONGEST
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.smem.descriptor import Descriptor
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.shared_operand import Shared

MAX_NAMES = 1024


def execute(
    instruction: str | Instruction,
    a: ArrayLike | Shared | Descriptor | int,
    b: ArrayLike | Shared | Descriptor | int | None = None,
    c: ArrayLike | None = None,
    *,
    metadata: ArrayLike | None = None,
    scales: tuple[ArrayLike, ArrayLike] | None = None,
    immediates: Immediates = DEFAULT_IMMEDIATES,
    shared: ArrayLike | None = None,
    arch: str = "sm_90",
    threads: int | None = None,
) -> Words:
    """Return D's registers, uint32[..., 32, words] or [..., 4, 32, words], bit for bit.

    Leading axes broadcast; c=None is zero. A sparse instruction needs `metadata` words, a block-scaled one `scales`:
    the scale words of A and of B. `immediates` has the sparsity selector, the ids of scale factors, and the modifiers
    of wgmma, which takes B, and perhaps A, as `Shared` tiles or as descriptors over the bytes of `shared`. ldmatrix
    takes the lanes' addresses and `shared`; stmatrix also takes the registers as `b`, and returns the memory; movmatrix
    takes registers. IllegalInstruction if `arch` cannot run it, NotModelled if its result there is unknown.
    """
    found = as_instruction(instruction)
    if isinstance(found.form, TensorForm):
        reason = (
            "it works on tensor memory: call execute of the instruction, as in get(name).execute(tensor_memory, ...)"
        )
        raise IllegalInstruction(found.name, reason)
    return found.execute(
        a, b, c, metadata=metadata, scales=scales, immediates=immediates, shared=shared, arch=arch, threads=threads
    )


def as_instruction(instruction: str | Instruction) -> Instruction:
    """Return the instruction, or the one that a name means. Names are cached, pasted source code is not."""
    if isinstance(instruction, Instruction):
        return instruction
    if isinstance(instruction, str) and len(instruction) <= LONGEST:
        return _instruction_named(instruction)
    return get(instruction)


_instruction_named = lru_cache(MAX_NAMES)(get)


def execute_registers(
    instruction: str | Instruction,
    words: Mapping[str, NDArray[np.uint32]],
    immediates: Immediates | None = None,
    *,
    arch: str,
) -> Words:
    """Execute an instruction on registers by role."""
    return execute(
        instruction,
        words["a"],
        words["b"],
        words.get("c"),
        metadata=words.get("metadata"),
        scales=(words["scale_a"], words["scale_b"]) if "scale_a" in words else None,
        immediates=immediates or DEFAULT_IMMEDIATES,
        arch=arch,
    )
