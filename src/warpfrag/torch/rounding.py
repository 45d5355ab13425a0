"""Tensors as an instruction takes them: divided by a scale, and rounded to nearest even in its format.

On the host numpy rounds. A tensor of a GPU is rounded there by PyTorch, where that gives the same bits.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import torch

from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.codes import as_read, from_codes, to_codes
from warpfrag.formats.number_formats import FORMATS
from warpfrag.tensorcore.array_types import ArrayKind, to_caller_kind

TensorScale: TypeAlias = float | Literal["amax"]
"""The scale of a whole tensor."""


def scale_factor(tensor: torch.Tensor, name: str, scale: TensorScale) -> float:
    """What a tensor is divided by before it is rounded: a number, or what brings its largest to the format's."""
    if scale != "amax":
        return float(scale)
    largest = float(tensor.abs().max()) if tensor.numel() else 0.0
    return float(np.float32(largest / float(FORMATS[name].max))) if np.isfinite(largest) and largest else 1.0


def check_scale(name: str, scale: object) -> TensorScale:
    """Refuse what is no scale of a tensor."""
    if scale == "amax":
        return "amax"
    if isinstance(scale, int | float) and not isinstance(scale, bool) and 0 < scale < float("inf"):
        return float(scale)
    msg = f"{name}: expected a positive number, or 'amax' for the largest of each tensor; got {quote(scale)}"
    raise InvalidOperand(msg)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of a dtype that numpy knows."""
    return tensor if tensor.dtype in (torch.float16, torch.float32, torch.float64) else tensor.float()


def rounded(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Numbers as the instruction takes them: its format's own dtype where PyTorch has it, else float32."""
    if tensor.is_cuda and (on_gpu := rounded_there(tensor, name)) is not None:
        return on_gpu
    row = FORMATS[name]
    numbers = from_codes(row, as_read(row, to_codes(row, widened(tensor).cpu().numpy(), rounding="rne")))
    result: torch.Tensor = to_caller_kind(
        numbers if hasattr(torch, row.dtype) else numbers.astype(np.float32), ArrayKind("torch", str(tensor.device))
    )
    return result


def rounded_there(tensor: torch.Tensor, name: str) -> torch.Tensor | None:
    """The same by PyTorch, where the tensor is; None where that may round twice, or refuses nothing."""
    if tensor.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return None
    if name in ("f16", "bf16"):
        return tensor.to(getattr(torch, FORMATS[name].dtype))
    if name != "tf32":
        return None
    unused = FORMATS[name].unused
    bits = tensor.float().contiguous().view(torch.int32)
    even = (bits >> unused) & 1
    nearest = (bits + even + (1 << unused - 1) - 1) >> unused << unused
    return torch.where(tensor.isnan(), torch.nan, torch.where(tensor.isinf(), bits, nearest).view(torch.float32))
