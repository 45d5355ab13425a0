"""Instructions, marks and helpers of the tests of PyTorch emulation."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import warpfrag as wf

F16 = "mma.m16n8k16.f32.f16.f16.f32"
BF16 = "mma.m16n8k16.f32.bf16.bf16.f32"
TF32 = "mma.m16n8k8.f32.tf32.tf32.f32"

attention_warns = pytest.mark.filterwarnings("ignore:scaled_dot_product_attention:warpfrag.errors.NotEmulated")


def by_hand(A: torch.Tensor, B: torch.Tensor, name: str, arch: str, C: torch.Tensor | None = None) -> torch.Tensor:
    """Return the `wf.gemm` of two tensors, in float32."""
    D = wf.gemm(A.detach().numpy(), B.detach().numpy(), instruction=name, arch=arch, rounding="rne")
    return torch.from_numpy(D) if C is None else torch.from_numpy(D + C.detach().numpy())


def state_of_torch() -> tuple[object, ...]:
    """The state that a mode changes while it is entered."""
    from torch.nn.modules import module as hooks
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    kernels = [torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled()]
    counts = [len(hooks._global_forward_pre_hooks), len(hooks._global_forward_hooks)]
    return *kernels, *counts, torch.backends.mha.get_fastpath_enabled(), len(_get_current_dispatch_mode_stack())


def in_thread(function):
    """Return the result of a function in another thread, or raise its error."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()
