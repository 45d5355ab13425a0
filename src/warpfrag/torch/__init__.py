"""Run PyTorch models with the tensor-core arithmetic of a different GPU.

    import warpfrag.torch

    with warpfrag.torch.emulate(instruction="mma.m16n8k16.f32.bf16.bf16.f32", arch="sm_80") as run:
        loss = model(x).sum()
        loss.backward()
    print(run)

The instruction's formats must contain every number of the operands' dtype; `rounding="rne"` rounds other dtypes to
nearest even. The result has the same dtype as without emulation. Only matrix multiplications are emulated.
`batch_invariance` lists the layers of a model whose bits change with the batch size. The extra `torch` is required.
"""

from __future__ import annotations

from warpfrag.errors import NotEmulated, import_extra

import_extra("torch", "torch")

from warpfrag.torch.emulation import Emulation, Record, emulate  # noqa: E402 (a missing PyTorch is reported first)
from warpfrag.torch.model_invariance import LayerOrders, ModelInvariance, batch_invariance  # noqa: E402

__all__ = ["Emulation", "LayerOrders", "ModelInvariance", "NotEmulated", "Record", "batch_invariance", "emulate"]
