"""The layers of a PyTorch model whose bits change with the batch size."""

import os
from collections import OrderedDict

import numpy as np
import pytest

import warpfrag as wf

if os.environ.get("WARPFRAG_REQUIRE_TORCH") != "1":
    pytest.importorskip("torch", reason="needs the extra torch")
import torch

from warpfrag.blas.cublas.predict_order import PredictedOrder
from warpfrag.blas.cublas.torch_settings import assumption_lines, own_value
from warpfrag.torch import LayerOrders, ModelInvariance
from warpfrag.torch.emulation import PLAIN_FLOAT32

NAME = "allow_bf16_reduced_precision_reduction"
REDUCED = f"torch.backends.cuda.matmul.{NAME}"
F16 = "mma.m16n8k16.f32.f16.f16.f32"


@pytest.fixture
def precision():
    """Set the precision of float32 matmuls, and restore it afterwards."""
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


def test_a_layer_of_float32_without_tf32_is_not_judged(precision):
    model = torch.nn.Sequential(torch.nn.Linear(256, 64), torch.nn.Linear(64, 16, bias=False))
    precision("highest")
    found = wf.torch.batch_invariance(model, torch.zeros(1, 256), [1, 4])
    assert [(layer.is_judged, layer.reason) for layer in found.layers] == [(False, PLAIN_FLOAT32)] * 2
    assert f"layer '0', layer '1' not judged: {PLAIN_FLOAT32}" in str(found).splitlines()
    assert [layer["reason"] for layer in found.to_dict()["layers"]] == [PLAIN_FLOAT32] * 2
    precision("high")
    found = wf.torch.batch_invariance(model, torch.zeros(1, 256), [16, 64])
    assert [(layer.is_judged, layer.reason) for layer in found.layers] == [(True, "")] * 2


def test_the_settings_of_this_process_are_read(precision):
    before = torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    try:
        for value in (False, True):
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = value
            (line,) = assumption_lines(["bf16", "e4m3", "bf16"])
            assert line.endswith(
                "here it is True, so a GPU may run other kernels with other bits" if value else "here it is False"
            )
            with wf.torch.emulate(library="cublas") as run:
                _ = torch.ones(8, 64).bfloat16() @ torch.ones(64, 8).bfloat16()
            assert str(run).splitlines()[-1] == line
    finally:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = before
    for name, is_on in (("high", True), ("highest", False)):
        precision(name)
        line = wf.batch_invariance(64, 64, dtype=torch.float32, m=(1, 4)).text.splitlines()[-1]
        assert line.startswith(
            "assumes torch.backends.cuda.matmul.allow_tf32 = True (PyTorch's default: False), because"
        )
        assert f"here it is {is_on}" in line


def layer_orders(name: str, *orders: wf.Order | None, k: int = 384, guess: bool = False, omitted_k: int = 0):
    """Return a layer with these orders at the batch sizes 1, 2, ..."""
    shapes = [(16 * batch, 64, k) for batch in range(1, len(orders) + 1)]
    kind = wf.predict_order(16, 64, k).kind
    known = [
        None if order is None else PredictedOrder(
            kind, shape, order, "modelled" if guess else "library", None, is_guess=guess, omitted_k=omitted_k,
            kernel="nvjet", source="a library",
        )
        for shape, order in zip(shapes, orders, strict=True)
    ]  # fmt: skip
    return LayerOrders(name, "mm", tuple(shapes), tuple(known), "pad", reason="gemv" if None in orders else "")


def test_the_headline_counts_only_what_was_judged():
    halves, whole = wf.Order(split_k=2, unit=64), wf.Order()
    layers = (
        layer_orders("0", None, None),
        layer_orders("1", halves, whole, guess=True),
        layer_orders("2", None, whole),
        layer_orders("3", whole, whole, guess=True),
    )
    found = ModelInvariance((1, 2), layers, {"gelu": 1}, "H200")
    *lines, settings = str(found).splitlines()
    assert settings.startswith(f"assumes {REDUCED} = False (PyTorch's default: True); here it is {own_value(NAME)}")
    assert found.to_dict()["settings"] == {REDUCED: {"assumed": False, "default": True, "here": own_value(NAME)}}
    headline = "1 of 2 judged matmuls change their order (for 2, the order is a guess)"
    headline += "; 2 not judged: layer '0', layer '2'"
    assert lines == [
        f"batch sizes 1, 2 on H200 (others were not tried): {headline}",
        "1 (mm), a guess",
        f"  batch 1: 16 x 64 x 384, {halves.describe(384)}, a guess: nvjet",
        "  batch 2: 32 x 64 x 384, k ascending, a guess: nvjet",
        "  remedy: pad",
        "no change, a guess: layer '3'",
        "layer '0', layer '2' not judged: gemv",
        "not judged (not a matrix product): gelu 1",
    ]
    many = tuple(layer_orders(str(place), None) for place in range(10))
    headline = str(ModelInvariance((1,), many, {}, "H200")).splitlines()[0]
    assert "0 of 0 judged matmuls change their order; 10 not judged: layer '0'," in headline
    assert headline.endswith("layer '7', and 2 more")


@pytest.mark.parametrize(
    ("orders", "k", "changes"),
    [
        ((wf.Order(split_k=8, unit=32), wf.Order(split_k=6, unit=32)), 384, False),  # 6 parts of 64
        ((wf.Order(split_k=8, unit=32), wf.Order(split_k=6, unit=32)), 4096, True),
        ((wf.Order(split_k=2, unit=64), wf.Order(split_k=2, unit=32)), 384, False),
        ((wf.Order(split_k=2), wf.Order(split_k=3)), 384, True),
        ((wf.Order(split_k=4, unit=64), wf.Order()), 64, False),  # one part
        ((wf.Order(residue=32), wf.Order()), 384, False),  # no remainder
        ((wf.Order(residue=32), wf.Order()), 392, True),
        ((wf.Order(step=16), wf.Order()), 384, False),  # whole instructions
        ((wf.Order(step=8), wf.Order()), 384, True),
        ((wf.Order(segment_k=2, unit=64), wf.Order(split_k=2, unit=64)), 384, False),
        ((wf.Order(segment_k=3, unit=64), wf.Order(split_k=3, unit=64)), 384, True),  # a tree
    ],
)
def test_orders_that_cut_k_alike_are_the_same(orders: tuple[wf.Order, ...], k: int, changes: bool):
    assert layer_orders("0", *orders, k=k).changes == changes
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal(shape).astype(np.float16) for shape in ((32, k), (k, 64)))
    first, second = (wf.gemm(A, B, instruction=F16, order=order) for order in orders)
    assert np.array_equal(first, second) != changes


def test_a_model_names_the_layers_that_change_with_the_batch_size():
    """The down projection of Llama 3 8B splits K in 4, 3 and 2 parts for 16, 64 and 128 tokens."""
    layers = {"up": torch.nn.Linear(4096, 14336, bias=False), "down": torch.nn.Linear(14336, 4096, bias=False)}
    with torch.device("cpu"):
        model = torch.nn.Sequential(OrderedDict(layers)).bfloat16()
    found = wf.torch.batch_invariance(model, torch.zeros(1, 16, 4096, dtype=torch.bfloat16), [1, 4, 8])

    assert [(layer.layer, layer.changes) for layer in found.layers] == [("up", False), ("down", True)]
    down = found.changes[0]
    assert [known.order.split_k for known in down.predictions] == [4, 3, 2]
    ranges = wf.batch_invariance(4096, 14336, m=(1, 128)).layers[0].ranges
    assert down.remedy.startswith(f"pad smaller inputs to {ranges[-1].first} rows (tokens);")
    assert [known.order for known in down.predictions] == [
        next(run.order for run in ranges if run.first <= m <= run.last) for m in (16, 64, 128)
    ]
    assert found.to_dict()["layers"][1]["changes"]
    for wrong in ([0], 4):
        with pytest.raises(wf.errors.InvalidOperand, match="batches: expected positive batch sizes"):
            wf.torch.batch_invariance(model, torch.zeros(1, 1), wrong)
    with pytest.raises(wf.errors.InvalidOperand, match="example: expected the model's input, such as torch.zeros"):
        wf.torch.batch_invariance(model, (1, 16, 4096))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("example", "message"),
    [
        (torch.zeros(1, 4000).bfloat16(), "mat1 and mat2 shapes cannot be multiplied"),
        (torch.zeros(4096).bfloat16(), "mat1 and mat2 shapes cannot be multiplied"),  # its axis is the batch
        (torch.zeros(1, 4096).half(), "same dtype"),
        (torch.zeros(1, 2, 4096), "same dtype"),
    ],
)
def test_what_pytorch_rejects_raises_its_error(example: torch.Tensor, message: str, bias: bool):
    with pytest.raises(RuntimeError, match=message):
        wf.torch.batch_invariance(torch.nn.Linear(4096, 64, bias=bias).bfloat16(), example, [4])


@pytest.mark.filterwarnings("ignore::warpfrag.errors.NotEmulated")
def test_products_that_are_not_modelled_are_called_products():
    class Products(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.mv(x, x[0]) + torch.linalg.solve(torch.eye(64), torch.addmv(x[0], x, x[0]).float()).relu()

    found = wf.torch.batch_invariance(Products(), torch.ones(1, 64).bfloat16(), [64])
    assert str(found).splitlines()[-2:] == [
        "not judged (a product that is not modelled): mv 1, addmv 1, linalg_solve 1",
        "not judged (not a matrix product): relu 1, add 1",
    ]
    assert found.to_dict()["products"] == ["addmv", "linalg_solve", "mv"]


@pytest.mark.filterwarnings("ignore:scaled_dot_product_attention:warpfrag.errors.NotEmulated")
@pytest.mark.parametrize("training", [True, False])
def test_the_attention_of_a_layer_is_not_judged(training: bool):
    """PyTorch's own layers call attention where no mode sees it; its bfloat16 operands are widened there."""
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0, batch_first=True).bfloat16().train(training)
    found = wf.torch.batch_invariance(layer, torch.zeros(1, 4, 64).bfloat16(), [1, 2])
    reasons = {layer.reason for layer in found.layers if not layer.is_judged}
    assert reasons == {"attention, which a GPU usually computes in one fused kernel"}
    assert PLAIN_FLOAT32 not in str(found)
    assert torch.nn.functional.scaled_dot_product_attention is torch._C._nn.scaled_dot_product_attention


@pytest.mark.filterwarnings("ignore:scaled_dot_product_attention:warpfrag.errors.NotEmulated")
def test_attention_is_not_judged():
    """A GPU runs one fused kernel, not the matmuls that PyTorch runs on the CPU."""

    class Attention(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(x, x, x) @ x.mT

    found = wf.torch.batch_invariance(Attention(), torch.zeros(1, 2, 8, 64).bfloat16(), [1, 2])
    fused = "attention, which a GPU usually computes in one fused kernel"
    assert [layer.reason for layer in found.layers] == [fused, fused, ""]
