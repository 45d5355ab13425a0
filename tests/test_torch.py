"""PyTorch with a tensor core's arithmetic: forward and backward products, records, and what is refused."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf

if os.environ.get("WARPFRAG_REQUIRE_TORCH") != "1":
    pytest.importorskip("torch", reason="needs the extra torch")
import torch

F16 = "mma.m16n8k16.f32.f16.f16.f32"
BF16 = "mma.m16n8k16.f32.bf16.bf16.f32"
TF32 = "mma.m16n8k8.f32.tf32.tf32.f32"


class Block(torch.nn.Module):
    """A layer of a transformer: attention and two linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width, bias=False)
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        x = x + self.out(torch.nn.functional.scaled_dot_product_attention(q, k, v))
        return x + self.down(torch.relu(self.up(x)))


def transformer(width: int = 24) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(Block(width), Block(width))


def by_hand(A: torch.Tensor, B: torch.Tensor, name: str, arch: str, C: torch.Tensor | None = None) -> torch.Tensor:
    """What `wf.gemm` gives for two tensors, in float32."""
    D = wf.gemm(A.detach().numpy(), B.detach().numpy(), instruction=name, arch=arch, rounding="rne")
    return torch.from_numpy(D) if C is None else torch.from_numpy(D + C.detach().numpy())


@pytest.mark.parametrize(("name", "arch"), [(F16, "sm_70"), (BF16, "sm_80"), (TF32, "sm_90")])
def test_a_linear_layer_and_its_gradients_are_those_of_gemm(name: str, arch: str):
    if arch == "sm_70":
        name = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"
    torch.manual_seed(1)
    layer = torch.nn.Linear(40, 7)
    x = torch.randn(5, 40, requires_grad=True)
    with wf.torch.emulate(instruction=name, arch=arch) as run:
        y = layer(x)
        grad = torch.randn(5, 7)
        y.backward(grad)

    assert torch.equal(y, by_hand(x, layer.weight.t(), name, arch, layer.bias))
    assert torch.equal(x.grad, by_hand(grad, layer.weight, name, arch))
    assert torch.equal(layer.weight.grad, by_hand(grad.t(), x, name, arch))
    assert [(record.operation, record.layer, record.direction) for record in run] == [
        ("addmm", "Linear", "forward"),
        ("mm", "Linear", "backward"),
        ("mm", "Linear", "backward"),
    ]
    assert not torch.equal(layer(x), y)  # outside it is PyTorch's own again


def test_a_transformer_forward_and_backward():
    """Every product of two layers, replayed by hand with the operands that it had."""
    model, x = transformer(), torch.randn(2, 10, 24, requires_grad=True)
    seen: list[tuple] = []
    with wf.torch.emulate(instruction=BF16, arch="sm_80", compare="sm_90", model=model) as run:
        multiply = run._multiply

        def spy(operation):
            found = multiply(operation)
            seen.append((operation, found.detach().clone()))
            return found

        run._multiply = spy
        model(x).square().sum().backward()

    directions = [record.direction for record in run]
    assert directions.count("forward") == 12  # four linear layers and two products of attention, twice
    assert directions.count("backward") >= 20
    for operation, found in seen:
        A, B = (tensor.detach().float().numpy() for tensor in (operation.A, operation.B))
        D = wf.gemm(A, B, instruction=BF16, arch="sm_80", rounding="rne")
        if operation.C is not None:
            D = D + operation.C.detach().numpy()
        assert np.array_equal(D, found.numpy())
    layers = {record.layer for record in run if record.direction == "backward"}
    assert {"0.qkv", "0.out", "0.up", "0.down", "1.qkv", "1.down"} <= layers
    assert any(record.differing for record in run)  # an A100 and an H100 do not agree
    assert all(record.error < 1e-5 for record in run)
    assert str(run).splitlines()[1].split()[1:3] == ["0.qkv", "forward"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_results_have_the_dtype_of_the_operation(dtype: torch.dtype):
    torch.manual_seed(2)
    A, B, C = (torch.randn(shape).to(dtype) for shape in ((3, 4, 20), (3, 20, 5), (3, 4, 5)))
    with wf.torch.emulate(instruction=F16):
        products = torch.bmm(A, B)
        added = torch.baddbmm(C, A, B, alpha=2.0, beta=0.5)
        scaled = torch.addmm(C[0], A[0], B[0], alpha=3.0, beta=0.0)
        integers = torch.ones(2, 2, dtype=torch.int64) @ torch.ones(2, 2, dtype=torch.int64)
    D = torch.stack([by_hand(a.float(), b.float(), F16, "sm_90") for a, b in zip(A, B, strict=True)])

    assert torch.equal(products, D.to(dtype))
    assert torch.equal(added, (2.0 * D + 0.5 * C.float()).to(dtype))
    assert torch.equal(scaled, (3.0 * D[0]).to(dtype))
    assert integers.tolist() == [[2, 2], [2, 2]]


def test_an_order_is_used():
    A, B = torch.randn(3, 200), torch.randn(200, 4)
    order = wf.Order(split_k=2, unit=64)
    with wf.torch.emulate(instruction=TF32, order=order):
        found = A @ B
    expected = wf.gemm(A.numpy(), B.numpy(), instruction=TF32, order=order, rounding="rne")
    assert np.array_equal(found.numpy(), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"instruction": "mma.m16n8k32.s32.s8.s8.s32"}, "expected a dense product of floats without scale factors"),
        ({"instruction": "mma.sp.m16n8k32.f32.f16.f16.f32"}, "expected a dense product"),
        ({"instruction": "ldmatrix.m8n8.x4.b16"}, "ldmatrix"),
        ({"arch": "sm_70"}, "cannot run it"),
        ({"compare": "sm_1"}, "sm_1"),
        ({"order": 3}, "order: expected a wf.Order, got 3"),
        ({"order": wf.Order(promote=24)}, "promote is a multiple of the instruction's k, 16; got 24"),
        ({"model": 3}, "model: expected a torch.nn.Module, got 3"),
    ],
)
def test_what_cannot_be_emulated_is_refused(change: dict, message: str):
    with pytest.raises(wf.WarpfragError, match=message):
        wf.torch.emulate(**({"instruction": F16} | change))


def test_the_example_finds_the_first_differing_bit(capsys):
    runpy.run_path(str(Path(__file__).parents[1] / "examples" / "transformer.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()

    assert [line.split()[0] for line in lines[1:5]] == ["V100", "A100", "H100", "B200"]
    assert "first differing bit" in lines[2]
