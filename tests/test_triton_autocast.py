"""torch.autocast("cuda") under Triton sessions: CUDA tensors have the types that they have on a GPU."""

import os
import re
from pathlib import Path

import pytest

if os.environ.get("WARPFRAG_REQUIRE_TRITON") != "1":
    pytest.importorskip("triton", reason="needs the extra triton")
if os.environ.get("WARPFRAG_REQUIRE_TORCH") != "1":
    pytest.importorskip("torch", reason="needs the extra torch")
import torch
from torch.nn import functional

import warpfrag.triton
from warpfrag.triton.cuda_autocast import LOWER, WIDEST


@pytest.fixture
def x():
    with warpfrag.triton.emulate("sm_90a"):
        yield torch.randn(8, 16, device="cuda")


def test_operations_have_the_types_of_a_gpu(x):
    half, host, image = x.half(), torch.randn(8, 8), torch.randn(1, 3, 8, 8, device="cuda").half()
    with torch.autocast("cuda"):
        results = {
            torch.float16: [
                x @ x.T, functional.linear(x, x), torch.einsum("ij,kj->ik", x, x), torch.mv(x, x[0]),
                torch.nn.LSTM(16, 4).cuda()(x)[0], torch.addcmul(half, half, half), half + half,
                half.sum(dtype=half.dtype), functional.pad(image, (1, 1, 1, 1), mode="reflect"),
            ],
            torch.float32: [
                half.softmax(-1), half.exp(), half.sum(), functional.layer_norm(half, (16,)), x + half,
                torch.addcmul(half, x, half), functional.interpolate(image, scale_factor=2), host @ host,
                functional.cross_entropy(half, torch.zeros(8, dtype=torch.long, device="cuda")),
            ],
            torch.float64: [x.double() @ x.double().T],
        }  # fmt: skip
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            functional.binary_cross_entropy(x.sigmoid(), x.sigmoid())
        with torch.autocast("cuda", enabled=False):
            assert (x @ x.T).dtype == torch.float32
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert (x @ x.T).dtype == torch.bfloat16
    for dtype, tensors in results.items():
        assert [tensor.dtype for tensor in tensors] == [dtype] * len(tensors)
    assert torch.equal(results[torch.float16][0], half @ half.T)
    assert (x @ x.T).dtype == torch.float32


def test_calls_inside_python_functions_of_pytorch_are_converted(x):
    attention = torch.nn.MultiheadAttention(16, 4).cuda()
    with torch.autocast("cuda"):
        output, weights = attention(x, x, x)

    assert (output.dtype, weights.dtype) == (torch.float16, torch.float32)
    assert output.is_cuda
    assert weights.is_cuda


def test_training_with_a_gradient_scaler(x):
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).cuda()
    optimizer, scaler, losses = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cuda"), []
    for _ in range(4):
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            output = model(x)
            losses.append(functional.mse_loss(output, torch.ones(8, 4, device="cuda")))
        scaler.scale(losses[-1]).backward()
        scaler.step(optimizer)
        scaler.update()

    assert (output.dtype, losses[-1].dtype, model[0].weight.grad.dtype) == (torch.float16, torch.float32, torch.float32)
    assert losses[-1] < losses[0]


def test_the_operations_are_those_of_pytorchs_header():
    header = (Path(torch.__file__).parent / "include/ATen/autocast_mode.h").read_text(encoding="utf-8")

    def names(macro):
        lines = re.search(rf"#define {macro}\(_\)((?:.*\\\n)+.*)", header)[1]
        return set(re.findall(r"_\((\w+)", lines))

    lower, widest = names("AT_FORALL_LOWER_PRECISION_FP"), names("AT_FORALL_PROMOTE")
    others = names("AT_FORALL_FP32") | names("AT_FORALL_FP32_SET_OPT_DTYPE")

    assert len(lower) > 20
    assert all(LOWER.search(name) and not WIDEST.search(name) for name in lower)
    assert all(WIDEST.search(name) and not LOWER.search(name) for name in widest)
    assert [name for name in others if LOWER.search(name) or WIDEST.search(name)] == []
