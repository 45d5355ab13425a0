"""Run PyTorch models with the tensor-core arithmetic of another GPU.

    import warpfrag.torch

    with warpfrag.torch.emulate(instruction="mma.m16n8k16.f32.bf16.bf16.f32", arch="sm_80") as run:
        loss = model(x).sum()
        loss.backward()
    print(run)

Operands are rounded to the instruction's formats, to nearest even; the result to the dtype that the operation has
without emulation. Only matrix multiplications are emulated. The extra `torch` is required.
"""

from __future__ import annotations

from warpfrag.errors import NotEmulated, import_extra

import_extra("torch", "torch")

from warpfrag.torch.emulation import Emulation, Record, emulate  # noqa: E402 (a missing PyTorch is reported first)

__all__ = ["Emulation", "NotEmulated", "Record", "emulate"]
