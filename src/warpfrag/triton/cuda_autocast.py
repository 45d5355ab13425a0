"""torch.autocast("cuda") for CUDA tensors in host memory, for which PyTorch itself would use CPU autocast.

The operations, and the types to which their arguments are converted, are those that PyTorch registers for CUDA. This
module registers the same operations for a dispatch key that no tensor has, and adds this key to calls under autocast.
"""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial

import torch
from torch.library import Library, fallthrough_kernel
from torch.utils._pytree import tree_leaves, tree_map_only

core = torch._C  # noqa: SLF001 (dispatch keys have no public functions)
KEY = core.DispatchKey.AutocastPrivateUse1
OWN = core.DispatchKeySet(KEY)
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")  # on a GPU, cuDNN's operations are registered instead
LOWER = re.compile(r"conv|mm|mv$|matmul|^linear$|lstm|gru|rnn|^addr$|prelu|einsum|vecdot|multi_dot|scaled_dot_product")
"""Operations that run in the autocast type; those that match `WIDEST` run in the widest type of their arguments, and
all others in float32."""
WIDEST = re.compile(r"^addc|atan2|^bilinear|^cross$|^v?dot|grid_sampler|index_put|tensordot|scatter_add")
UNSAFE = "binary_cross_entropy"
Test = Callable[[torch.Tensor], bool]


def autocast(is_cuda: Test) -> AbstractContextManager[object]:
    """Return a context in which operations convert CUDA tensors, if torch.autocast("cuda") is enabled."""
    if not torch.is_autocast_enabled("cuda"):
        return nullcontext()
    _register(is_cuda)
    included, excluded = core._dispatch_tls_local_include_set() | OWN, core._dispatch_tls_local_exclude_set() - OWN  # noqa: SLF001
    guard: AbstractContextManager[object] = core._ForceDispatchKeyGuard(included, excluded)  # noqa: SLF001
    return guard


@cache
def _register(is_cuda: Test) -> tuple[Library, Library]:
    """Register the operations, which costs nothing until the key is included."""
    library, others = Library("aten", "IMPL"), Library("_", "IMPL")
    others.fallback(fallthrough_kernel, KEY.name)
    names = core._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")  # noqa: SLF001
    for qualified in (*names, *(f"aten::{name}.{form}" for name in RECURRENT for form in ("input", "data"))):
        name, _, overload = qualified.removeprefix("aten::").partition(".")
        operation = getattr(getattr(torch.ops.aten, name), overload or "default")
        library.impl(qualified, partial(_converted, operation, name, is_cuda), KEY.name)
    return library, others


def _converted(
    operation: Callable[..., object], name: str, is_cuda: Test, *args: object, **kwargs: object
) -> object:  # fmt: skip
    """Run an operation on converted arguments, as on a GPU, unless it is called with a dtype."""
    lower, given = torch.get_autocast_dtype("cuda"), tree_leaves((args, kwargs))
    floats = [each for each in given if isinstance(each, torch.Tensor) and each.is_floating_point() and is_cuda(each)]
    if name == UNSAFE and floats:
        raise RuntimeError(f"torch.nn.functional.{UNSAFE} is unsafe to autocast; use {UNSAFE}_with_logits")
    is_lower = LOWER.search(name) or (WIDEST.search(name) and {each.dtype for each in floats} <= {lower})
    wanted = lower if is_lower else torch.float32
    chosen = {id(each) for each in floats if each.dtype != torch.float64}
    if not any(isinstance(each, torch.dtype) for each in given):
        args, kwargs = tree_map_only(
            torch.Tensor, lambda each: each.to(wanted) if id(each) in chosen else each, (args, kwargs)
        )
    with core._ExcludeDispatchKeyGuard(OWN):  # noqa: SLF001
        return operation(*args, **kwargs)
