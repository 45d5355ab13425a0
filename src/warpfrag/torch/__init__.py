"""PyTorch as another GPU computes it: every matrix product of a model, with the arithmetic of a tensor core.

    import warpfrag.torch

    with warpfrag.torch.emulate(instruction="mma.m16n8k16.f32.bf16.bf16.f32", arch="sm_80") as run:
        loss = model(x).sum()
        loss.backward()
    print(run)

Operands are rounded to the instruction's formats, to nearest even; the result to the dtype that the operation has
without emulation. Everything but products stays PyTorch's own. It needs the extra `torch`.
"""

from __future__ import annotations

from warpfrag.errors import NotEmulated
from warpfrag.torch.emulation import Emulation, Record, emulate

__all__ = ["Emulation", "NotEmulated", "Record", "emulate"]
