"""Attention during an emulation: a warning that it runs as separate matmuls, and the dtypes that it runs in."""

from __future__ import annotations

from collections.abc import Callable
from threading import local
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

ATTENTION = torch.nn.functional.scaled_dot_product_attention
"""PyTorch's own function. While an emulation is active, `torch.nn.functional` has a replacement that warns."""


class AttentionWatch(TorchFunctionMode):
    """Warns that attention is emulated as two matmuls, although a GPU usually runs one fused kernel."""

    def __init__(self, warn_once: Callable[[str, str], None]) -> None:
        """Create the watch, given the function that issues warnings."""
        super().__init__()
        self._warn_once = warn_once
        self._running = local()

    @property
    def dtypes(self) -> list[torch.dtype]:
        """The query dtypes of the attention calls that this thread is running."""
        dtypes: list[torch.dtype] = self._running.__dict__.setdefault("dtypes", [])
        return dtypes

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        """Call a function, and watch the call if it is attention that was imported by name."""
        return self.watch(args, kwargs or {}) if func is ATTENTION else func(*args, **(kwargs or {}))

    def watch(self, args: Any, kwargs: Any) -> Any:  # noqa: ANN401 (the arguments of attention)
        """Warn, then call attention; `dtypes` contains its query dtype during the call."""
        msg = "scaled_dot_product_attention runs as two matmuls and a softmax; a GPU usually runs a fused kernel"
        self._warn_once("scaled_dot_product_attention", f"{msg}, whose bits differ")
        self.dtypes.append((args[0] if args else kwargs["query"]).dtype)
        try:
            return ATTENTION(*args, **kwargs)
        finally:
            self.dtypes.pop()

    def widening(self, dtype: torch.dtype) -> str:
        """Return a note if attention is running and its operands were converted to this dtype, or ""."""
        own = self.dtypes[-1] if self.dtypes else dtype
        note = f"attention: PyTorch's CPU implementation widened {own} to {dtype}, which is not emulated; "
        note += "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True) prevents this"
        return note if dtype != own else ""
