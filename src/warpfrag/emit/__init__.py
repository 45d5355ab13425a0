"""From layout to code: what an instruction needs around it, written in CUDA C++ or PTX.

Every product gets the inline-PTX wrapper, helpers that move each operand between memory and registers, `ldmatrix` and
`stmatrix` helpers where the layout allows them, a kernel that multiplies one tile, and a raw kernel, registers in and
registers out. Index expressions come from the layout.

    >>> from warpfrag.emit import emit
    >>> text = emit("mma.m16n8k16.f32.f16.f16.f32")
    >>> [line.strip() for line in text.splitlines() if line.strip().startswith("const int row = ")][0]
    'const int row = (i >> 1) * 8 + (lane >> 2);'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.errors import WarpfragError
from warpfrag.instruction import Instruction
from warpfrag.registry import get

if TYPE_CHECKING:
    from collections.abc import Iterable

TONGUES = ("cuda", "ptx")


def emit(
    instructions: str | Instruction | Iterable[str | Instruction], *, lang: str = "cuda", target: str | None = None
) -> str:
    """One translation unit that compiles alone, for one instruction or several.

    Without a target it compiles wherever the instructions are legal (PTX: for the oldest target that takes them all).
    With one, it also has what that target adds, such as stmatrix from sm_90 on.
    """
    if lang not in TONGUES:
        msg = f"lang is one of {', '.join(TONGUES)}, got {lang!r}"
        raise WarpfragError(msg)
    several = [instructions] if isinstance(instructions, str | Instruction) else list(instructions)
    # by name: the wmma of two architectures is one text, because wmma loads and stores its fragments itself
    found = list({one.name: one for one in (get(instruction, target) for instruction in several)}.values())
    if not found:
        msg = "expected at least one instruction to emit, got none"
        raise WarpfragError(msg)
    if lang == "cuda":
        from warpfrag.emit import cuda

        return cuda.unit(found, target)
    from warpfrag.emit import ptx

    return ptx.unit(found, target)
