"""PyTorch's matrix multiplications, and the functions that read their arguments.

A matmul reaches the dispatcher as one of a few ATen operations, each with several overloads. `OPERATIONS` maps every
overload to the function that reads its arguments. `PLAIN_PRODUCTS` has sums of products that are not emulated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch

from warpfrag.errors import InvalidOperand


class TorchProduct(NamedTuple):
    """The arguments of a matrix multiplication: alpha * (A B) + beta * C."""

    name: str
    A: torch.Tensor
    B: torch.Tensor
    C: torch.Tensor | None = None
    alpha: float = 1.0
    beta: float = 1.0
    dtype: torch.dtype | None = None
    """The dtype of the result, if it differs from that of A."""
    out: torch.Tensor | None = None
    """The tensor that receives the result."""

    @property
    def result(self) -> torch.dtype:
        """The dtype of the result."""
        return self.dtype or self.A.dtype

    def check(self) -> None:
        """Raise an error for operands that PyTorch would reject, or tensors that are not dense."""
        tensors = {"A": self.A, "B": self.B, **({} if self.C is None else {"C": self.C})}
        for name, tensor in tensors.items():
            if tensor.layout != torch.strided or tensor.is_quantized:
                raise InvalidOperand(f"{self.name}: {name} has layout {tensor.layout}; only dense tensors are emulated")
        of_result = {"C": self.A} if self.C is not None and self.C.dtype == self.dtype else {}
        for label in ("dtype", "device"):
            kinds = {name: getattr(of_result.get(name, tensor), label) for name, tensor in tensors.items()}
            if len(set(kinds.values())) > 1:
                listed = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
                raise InvalidOperand(f"{self.name}: expected operands with the same {label}, got {listed}")

    def written(self, result: torch.Tensor) -> torch.Tensor:
        """Return the result, written to `out` if it is given."""
        out = self.out
        if out is None:
            return result
        if out.dtype != result.dtype or (out.shape != result.shape and out.numel()):
            got = f"{out.dtype} of shape {tuple(out.shape)}"
            raise InvalidOperand(f"{self.name}: out: expected {result.dtype} of shape {tuple(result.shape)}, got {got}")
        return out.resize_(result.shape).copy_(result)


class NodeLabels(dict[tuple[int, tuple[int, ...]], str]):
    """The labels of the autograd nodes that forward matmuls create.

    A node is identified by its sequence number and output shape. PyTorch numbers the nodes of each thread separately,
    so two nodes may have the same key; if their labels differ, both get "".
    """

    running = staticmethod(torch._C._current_autograd_node)  # noqa: SLF001
    """Return the node that this thread is executing, or None outside the backward pass."""

    def add(self, product: TorchProduct, label: str) -> None:
        """Label the node of the matmul that is running, if PyTorch created one: this thread's newest node."""
        tensors = (product.A, product.B, product.C)
        if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
            key = torch.autograd._get_sequence_nr() - 1, (*product.A.shape[:-1], product.B.shape[-1])  # noqa: SLF001
            if self.setdefault(key, label) != label:  # `setdefault` is atomic
                self[key] = ""

    def of_running_node(self) -> str:
        """Return the label of the node that this thread is executing, or "" if it is unknown."""
        node = self.running()
        return "" if node is None else self.get((node._sequence_nr(), tuple(node._input_metadata[0].shape)), "")  # noqa: SLF001


def _plain(name: str) -> Callable[..., TorchProduct]:
    def read(
        A: torch.Tensor, B: torch.Tensor, out_dtype: torch.dtype | None = None, *, out: torch.Tensor | None = None
    ) -> TorchProduct:
        return TorchProduct(name, A, B, dtype=out_dtype, out=out)

    return read


def _added(name: str, *, in_place: bool = False) -> Callable[..., TorchProduct]:
    def read(
        C: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        out_dtype: torch.dtype | None = None,
        *,
        beta: float = 1,
        alpha: float = 1,
        out: torch.Tensor | None = None,
    ) -> TorchProduct:
        into = C if in_place else out
        return TorchProduct(name, A, B, C if beta != 0 else None, float(alpha), float(beta), out_dtype, into)

    return read


def _linear(
    A: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, out: torch.Tensor | None = None
) -> TorchProduct:
    return TorchProduct("linear", A, weight.t(), bias, out=out)


def _operations() -> dict[Any, Callable[..., TorchProduct]]:
    """Return the argument reader for every overload."""
    aten = torch.ops.aten
    readers = {name: _plain(name) for name in ("mm", "bmm")}
    readers |= {name: _added(name) for name in ("addmm", "baddbmm")}
    readers |= {f"{name}_": _added(name, in_place=True) for name in ("addmm", "baddbmm")}
    readers["linear"] = _linear
    packets = {name: getattr(aten, name) for name in readers}
    return {getattr(packet, each): readers[name] for name, packet in packets.items() for each in packet.overloads()}


OPERATIONS = _operations()
PRODUCT_NAME = re.compile(
    r"(?:^|_)(?:[a-z]*mm|(?:add)?mv|v?dot|tensordot|inner|einsum|matmul|linear|bilinear|trilinear|conv(?!ert)[a-z]*|rnn|"
    r"attention|transformer_encoder|fft|cdist|linalg|cholesky|lstsq|geqrf|or[mg]qr|(?:triangular|lu)_solve)(?:_|\d|$)"
)
OTHER_NAME = re.compile(r"norm|powsum|errors|cross|diagonal|freq|shift|search|upsample|weight$|reorder|prepack")
MADE_OF_PRODUCTS = re.compile(r"^(?:addbmm_?|einsum|tensordot|inner|bilinear|linalg_matrix_exp|linalg_pinv)$")
"""Operations that PyTorch composes from other operations, which are intercepted instead."""


@cache
def sums_products(name: str) -> bool:
    """Return True if the ATen operation with this name sums products: a matmul, convolution, solver or transform."""
    return bool(PRODUCT_NAME.search(name)) and not OTHER_NAME.search(name)


def is_composite(operation: Any) -> bool:  # noqa: ANN401 (an overload of torch)
    """Return True if PyTorch composes an operation from other operations, which are intercepted instead."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001
    return bool(has_kernel(operation.name(), "CompositeImplicitAutograd"))


def _plain_products() -> dict[Any, str]:
    """Return the name of every overload in this version of PyTorch that sums products and is not emulated.

    GPUs run these operations without tensor cores, or in kernels whose order of additions is not modelled. einsum,
    matmul, addbmm and others are not among them, because they consist of emulated matmuls.
    """
    every = torch._C._dispatch_get_all_op_names()  # noqa: SLF001
    names = {name[6:].partition(".")[0] for name in every if name.startswith("aten::")}
    packets = [getattr(torch.ops.aten, name) for name in sorted(names) if sums_products(name)]
    found = [getattr(packet, each) for packet in packets for each in packet.overloads()]
    named = {operation: operation.overloadpacket.__name__ for operation in found if operation not in OPERATIONS}
    return {
        operation: re.sub(r"^_(?=linalg|fft)|_ex$", "", name)
        for operation, name in named.items()
        if not MADE_OF_PRODUCTS.search(name) and (name.startswith("conv") or not is_composite(operation))
    }


PLAIN_PRODUCTS = _plain_products()


def has_numbers(args: Any) -> bool:  # noqa: ANN401 (the arguments of any operation)
    """Return True if an argument is a tensor of real or complex numbers."""
    parts = (part for entry in args for part in (entry if isinstance(entry, list | tuple) else (entry,)))
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    return any((tensor.is_floating_point() or tensor.is_complex()) and not tensor.is_meta for tensor in tensors)


COPIES = {
    *("_reshape_alias", "_to_copy", "_unsafe_view", "arange", "cat", "clone", "constant_pad_nd", "copy_"),
    *("detach", "embedding", "empty", "empty_like", "empty_strided", "fill_", "flip", "full", "full_like"),
    *("gather", "index", "index_select", "lift_fresh", "lift_fresh_copy", "masked_fill", "masked_fill_"),
    *("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros", "ones", "ones_like", "repeat"),
    *("roll", "scalar_tensor", "scatter", "select_scatter", "slice_scatter", "stack", "tril", "triu"),
    *("where", "zero_", "zeros", "zeros_like"),
}
"""Operations without arithmetic, whose result is the same on every device."""


def computes(func: Any) -> bool:  # noqa: ANN401 (an overload of torch)
    """Return True if an operation does arithmetic other than products, so that a GPU's result may differ in bits."""
    name = func.overloadpacket.__name__
    return not func.is_view and name not in COPIES and not sums_products(name)
