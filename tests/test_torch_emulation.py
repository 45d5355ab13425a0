"""PyTorch with a tensor core's arithmetic: forward and backward products, records, and what is refused."""

import hashlib
import json
import os
import re
import runpy
import warnings
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import warpfrag as wf

if os.environ.get("WARPFRAG_REQUIRE_TORCH") != "1":
    pytest.importorskip("torch", reason="needs the extra torch")
import torch.utils.checkpoint

from torch_helpers import BF16, F16, TF32, attention_warns, by_hand, in_thread, state_of_torch
from warpfrag.torch import emulation


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


@pytest.mark.parametrize(("name", "arch"), [(F16, "sm_70"), (BF16, "sm_80"), (TF32, "sm_90")])
def test_a_linear_layer_and_its_gradients_are_those_of_gemm(name: str, arch: str):
    if arch == "sm_70":
        name = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"
    torch.manual_seed(1)
    layer = torch.nn.Linear(40, 7)
    x = torch.randn(5, 40, requires_grad=True)
    with wf.torch.emulate(instruction=name, rounding="rne", arch=arch) as run:
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


@attention_warns
def test_a_transformer_forward_and_backward():
    """Every product of two layers, replayed by hand with the operands that it had."""
    model, x = transformer(), torch.randn(2, 10, 24, requires_grad=True)
    seen: list[tuple] = []
    with wf.torch.emulate(instruction=BF16, rounding="rne", arch="sm_80", compare="sm_90", model=model) as run:
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
    assert all(bool(record.differing) == (record.first_differing is not None) for record in run)
    assert all(record.error < 1e-5 for record in run)
    assert str(run).splitlines()[2].split()[1:3] == ["0.qkv", "forward"]


class Force(torch.nn.Module):
    """Layers that share an input, one that is recomputed, and a gradient in the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.out = torch.nn.Linear(32, 16), torch.nn.Linear(32, 24), torch.nn.Linear(16, 40)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.utils.checkpoint.checkpoint(lambda x: self.out(self.q(x).tanh()), x, use_reentrant=False)
        (force,) = torch.autograd.grad(y.square().sum() + self.k(x).square().sum(), x, create_graph=True)
        return force


def test_backward_matmuls_have_the_layer_of_the_node_that_runs():
    """The shape of each matmul, whose sizes differ between layers, shows the layer that it belongs to."""
    for seed in range(4):
        torch.manual_seed(seed)
        layers = [torch.nn.Linear(128, 512), torch.nn.SiLU(), torch.nn.Linear(512, 96), torch.nn.Linear(96, 100)]
        model = torch.nn.Sequential(*layers).bfloat16()
        with wf.torch.emulate(model=model) as run:
            model(torch.randn(4, 128).bfloat16()).sum().backward()
        sizes = {"0": {4, 128, 512}, "2": {4, 512, 96}, "3": {4, 96, 100}}
        assert [{*record.shape, record.k} for record in run] == [sizes[record.layer] for record in run]
        assert [record.direction for record in run] == ["forward"] * 3 + ["backward"] * 5

    model = Force()
    with wf.torch.emulate(instruction=BF16, rounding="rne", model=model) as run:
        model(torch.randn(3, 32, requires_grad=True)).sum().backward()
    sizes = {"q": {3, 32, 16}, "k": {3, 32, 24}, "out": {3, 16, 40}}
    assert [{*record.shape, record.k} for record in run] == [sizes[record.layer] for record in run]
    counts = Counter((record.layer, record.direction) for record in run)
    assert [counts[layer, "forward"] for layer in sizes] == [3, 1, 1]  # q is computed again in each backward pass
    assert all(counts[layer, "backward"] >= 2 for layer in sizes)
    assert list(run)[-1].direction == "backward"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_results_have_the_dtype_of_the_operation(dtype: torch.dtype):
    torch.manual_seed(2)
    A, B, C = (torch.randn(shape).to(dtype) for shape in ((3, 4, 20), (3, 20, 5), (3, 4, 5)))
    with wf.torch.emulate(instruction=F16, rounding="rne"):
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
    with wf.torch.emulate(instruction=TF32, rounding="rne", order=order):
        found = A @ B
    expected = wf.gemm(A.numpy(), B.numpy(), instruction=TF32, order=order, rounding="rne")
    assert np.array_equal(found.numpy(), expected)


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_gpu_rounds_its_tensors_as_the_host_does(name: str, dtype: torch.dtype):
    """By PyTorch, which the host shows as well: ties, subnormals, what is too large, infinities."""
    wide = dtype == torch.float32
    codes = torch.arange(-(1 << 31), 1 << 31, 0xFFFE) if wide else torch.arange(-(1 << 15), 1 << 15)
    tensor = codes.to(torch.int32 if wide else torch.int16).view(dtype)
    found, expected = emulation.rounded_there(tensor, name), emulation.rounded(tensor, name)
    assert found is not None
    assert found.dtype == expected.dtype
    same = found == expected
    signs = found.signbit() == expected.signbit()
    assert (same & signs | found.isnan() & expected.isnan()).all()
    assert emulation.rounded_there(tensor.double(), name) is None  # PyTorch rounds those twice


def test_tensors_of_a_gpu_stay_there_if_cupy_is_installed(monkeypatch: pytest.MonkeyPatch):
    tensor = SimpleNamespace(is_cuda=True, device=torch.device("cuda", 0))
    monkeypatch.setattr(emulation, "cupy", lambda: None)
    assert str(emulation._device(tensor)) == "cuda:0"

    def absent() -> None:
        raise wf.errors.NoGpu

    monkeypatch.setattr(emulation, "cupy", absent)
    assert str(emulation._device(tensor)) == "cpu"


def test_a_format_that_contains_a_dtype_has_all_its_numbers():
    for dtype, formats in emulation.CONTAINED.items():
        bits = torch.empty(0, dtype=dtype).element_size() * 8
        codes = torch.arange(1 << bits).to(torch.uint8 if bits == 8 else torch.uint16).view(dtype).float()
        numbers = codes[codes.isfinite()]
        assert len(numbers) > 200
        assert all(torch.equal(emulation.rounded(numbers, name).float(), numbers) for name in formats), dtype


@pytest.mark.parametrize(
    ("instruction", "dtype", "is_accepted"),
    [
        (F16, torch.float16, True), (F16, torch.bfloat16, False), (F16, torch.float32, False),
        (BF16, torch.bfloat16, True), (BF16, torch.float16, False), (TF32, torch.float16, True),
        (TF32, torch.float32, False), (TF32, torch.float64, False), (F16, torch.float8_e4m3fn, True),
    ],
)  # fmt: skip
def test_operands_are_never_rounded_silently(instruction: str, dtype: torch.dtype, is_accepted: bool):
    A, B = torch.ones(3, 16).to(dtype), torch.ones(16, 4).to(dtype)
    with wf.torch.emulate(instruction=instruction) as run:
        if is_accepted:
            _ = A @ B
        else:
            with pytest.raises(wf.errors.InvalidOperand, match='rounding="rne"'):
                _ = A @ B

    assert len(run.records) == is_accepted
    with wf.torch.emulate(instruction=instruction, rounding="rne") as run:
        assert (A @ B == 16).all()


def test_operations_that_pytorch_computes_are_counted():
    A = torch.ones(4, 64).bfloat16()
    with wf.torch.emulate(library="cublas", arch="H200") as run:
        _ = torch.softmax(A @ A.t(), dim=-1).transpose(0, 1).contiguous() * 2
        _ = torch.softmax(A, dim=-1)

    assert run.not_emulated == {"_softmax": 2, "mul": 1}
    assert "\ncomputed by PyTorch, not as on a GPU: _softmax 2, mul 1\n" in str(run)
    with wf.torch.emulate(library="cublas", arch="H200", strict=True) as run:
        _ = torch.softmax(A @ A.t(), dim=-1)  # only sums of products are forbidden
        with pytest.raises(wf.errors.NotModelled, match="mv is not emulated, which strict=True forbids"):
            A @ A[0]
    assert run.not_emulated == {"_softmax": 1}


@pytest.fixture
def precision():
    """Set the precision of float32 matmuls, and restore it afterwards."""
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


PLAIN_FLOAT32 = re.escape(emulation.PLAIN_FLOAT32)


def test_float32_is_tf32_only_if_pytorch_allows_it(precision):
    torch.manual_seed(5)
    A, B = torch.randn(8, 256), torch.randn(256, 16)
    plain = A @ B
    precision("highest")
    with wf.torch.emulate(library="cublas", arch="H200", keep=True) as run:
        with pytest.warns(wf.errors.NotEmulated, match=rf"mm \({PLAIN_FLOAT32}\) is not emulated: PyTorch computes it"):
            left = A @ B
        inside = in_thread(lambda: A @ B)

    assert torch.equal(left, plain)
    assert torch.equal(inside, plain)
    assert run.records == run.results == []
    assert run.not_emulated == {f"mm ({emulation.PLAIN_FLOAT32})": 2}
    assert str(run).splitlines() == [
        "cuBLAS on an H200: no matmul was emulated",
        f"computed by PyTorch, not as on a GPU: mm ({emulation.PLAIN_FLOAT32}) 2",
    ]
    with (
        wf.torch.emulate(library="cublas", arch="H200", strict=True),
        pytest.raises(
            wf.errors.NotModelled, match=rf"mm \({PLAIN_FLOAT32}\) is not emulated, which strict=True forbids"
        ),
    ):
        _ = A @ B
    with wf.torch.emulate(library="cublas", arch="H200", strict=True):
        _ = A.bfloat16() @ B.bfloat16()  # other dtypes do not depend on the setting

    for allowed in ("high", "medium"):
        precision(allowed)
        with wf.torch.emulate(library="cublas", arch="H200", strict=True) as run:
            found = A @ B
        assert np.array_equal(found.numpy(), wf.predict(A.numpy(), B.numpy()).D)
        assert not torch.equal(found, plain)
        assert "tf32, " in str(run).splitlines()[2]


def test_a_bias_is_added_first_if_parts_are_added_in_place(precision):
    precision("high")
    torch.manual_seed(6)
    A, weight, bias = torch.randn(2, 4544), torch.randn(8, 4544), torch.randn(8)
    with wf.torch.emulate(library="cublas", arch="H200", strict=True) as run:
        found = torch.nn.functional.linear(A, weight, bias)
    expected = wf.predict(A.numpy(), weight.T.numpy(), bias=bias.numpy(), layout="nt")

    assert run.records[0].prediction.order.in_place
    assert np.array_equal(found.numpy().view(np.uint32), expected.D.view(np.uint32))


def test_every_setting_of_tf32_is_read(precision):
    A = torch.ones(4, 16)
    matmul = torch.backends.cuda.matmul
    names = ["allow_tf32"] + ["fp32_precision"] * hasattr(matmul, "fp32_precision")
    for name in names:
        for is_allowed in (True, False):
            setattr(matmul, name, is_allowed if name == "allow_tf32" else "tf32" if is_allowed else "ieee")
            operation = SimpleNamespace(A=A)
            assert emulation.is_plain_float32(operation) != is_allowed
    assert not emulation.is_plain_float32(SimpleNamespace(A=A.half()))


def test_attention_warns_that_it_is_two_matmuls(precision):
    """Without a fused kernel, PyTorch widens bfloat16 to float32 before it multiplies."""
    precision("high")
    q = torch.ones(1, 2, 8, 16).bfloat16()
    with (
        wf.torch.emulate(library="cublas", arch="H200") as run,
        pytest.warns(wf.errors.NotEmulated, match="a GPU usually runs a fused kernel"),
    ):
        torch.nn.functional.scaled_dot_product_attention(q, q, q)

    assert [record.operation for record in run.records] == ["bmm", "bmm"]


def test_results_are_written_where_they_should_be():
    torch.manual_seed(3)
    A, B, C = torch.randn(4, 20), torch.randn(20, 5), torch.ones(4, 5)
    D = by_hand(A, B, F16, "sm_90")
    with wf.torch.emulate(instruction=F16, rounding="rne", keep=True) as run:
        out, empty, mine = torch.zeros(4, 5), torch.empty(0), C.clone()
        assert torch.mm(A, B, out=out) is out
        torch.mm(A, B, out=empty)
        torch.addmm(C, A, B, out=C)
        mine.addmm_(A, B, beta=0)
        batch = torch.ones(1, 4, 5).baddbmm_(A[None], B[None])
        turned = torch.mm(torch.imag(torch.complex(A, -A).conj()), B)  # a view with its sign to be changed
    assert [torch.equal(one, D) for one in (out, empty, mine, turned)] == [True] * 4
    with wf.torch.emulate(instruction=F16, rounding="rne"):
        wide = torch.mm(A.half(), B.half(), out_dtype=torch.float32)
        added = torch.addmm(torch.ones(4, 5), A.half(), B.half(), out_dtype=torch.float32)
    assert wide.dtype == added.dtype == torch.float32
    assert [torch.equal(wide, D), torch.equal(added, D + 1)] == [True] * 2
    assert [torch.equal(one, D + 1) for one in (C, batch[0])] == [True] * 2
    assert [record.operation for record in run] == ["mm", "mm", "addmm", "addmm", "baddbmm", "mm"]
    assert all(record.error < 1e-5 for record in run)  # C is read before it is written to
    assert len(run.results) == 6


WRONG = {
    "inner extents": lambda: torch.mm(torch.ones(2, 3), torch.ones(4, 5)),
    "batches": lambda: torch.bmm(torch.ones(2, 3, 4), torch.ones(3, 4, 5)),
    "a vector": lambda: torch.mm(torch.ones(3), torch.ones(3, 2)),
    "dtypes": lambda: torch.mm(torch.ones(2, 3), torch.ones(3, 2, dtype=torch.float16)),
    "dtype of C": lambda: torch.addmm(torch.ones(2, dtype=torch.float64), torch.ones(2, 3), torch.ones(3, 2)),
    "integers": lambda: torch.addmm(torch.ones(2, dtype=torch.int32), torch.ones(2, 3), torch.ones(3, 2)),
    "devices": lambda: torch.mm(torch.ones(2, 3), torch.ones(3, 2, device="meta")),
    "C": lambda: torch.addmm(torch.ones(7), torch.ones(2, 3), torch.ones(3, 2)),
    "in place": lambda: torch.ones(2).addmm_(torch.ones(2, 3), torch.ones(3, 2)),
    "out": lambda: torch.mm(torch.ones(2, 3), torch.ones(3, 2), out=torch.ones(3, 3)),
    "dtype of out": lambda: torch.mm(torch.ones(2, 3), torch.ones(3, 2), out=torch.ones(2, 2, dtype=torch.float16)),
    "sparse": lambda: torch.mm(torch.ones(2, 3).to_sparse(), torch.ones(3, 2)),
    "linear": lambda: torch.nn.Linear(3, 2)(torch.ones(2, 4)),
    "too large": lambda: torch.mm(torch.full((2, 3), 1e9), torch.ones(3, 2)),
    "infinite": lambda: torch.mm(torch.full((2, 3), float("inf")), torch.ones(3, 2)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_goes_wrong_inside_is_told_and_undone(wrong: str):
    before = state_of_torch()
    name = "mma.m16n8k32.f32.e4m3.e4m3.f32" if wrong in {"too large", "infinite"} else F16
    model = torch.nn.Sequential(torch.nn.Linear(3, 2))
    run = wf.torch.emulate(instruction=name, rounding="rne", model=model)
    with pytest.raises(wf.WarpfragError), run:
        WRONG[wrong]()
    assert state_of_torch() == before
    assert run.records == []
    with run:  # and it can be used again
        model(torch.ones(1, 3))
    assert [record.layer for record in run] == ["0"]
    assert state_of_torch() == before


def test_what_has_no_numbers_is_left_to_pytorch():
    with wf.torch.emulate(instruction=F16, rounding="rne") as run:
        assert torch.mm(torch.ones(2, 3, device="meta"), torch.ones(3, 4, device="meta")).shape == (2, 4)
        with pytest.warns(wf.torch.NotEmulated, match="mm of torch.complex64 is not emulated: PyTorch computes it"):
            assert torch.mm(torch.ones(2, 3, dtype=torch.complex64), torch.ones(3, 4, dtype=torch.complex64))[0, 0] == 3
        assert torch.mm(torch.ones(0, 3), torch.ones(3, 4)).shape == (0, 4)
        assert torch.mm(torch.ones(2, 0), torch.ones(0, 4)).tolist() == [[0.0] * 4] * 2
    assert [record.shape for record in run] == [(0, 4), (2, 4)]


def test_tensors_that_numpy_cannot_read_are_converted():
    numbers, fragment = torch.ones(16, 16), wf.get(F16).a
    for tensor in (numbers.bfloat16(), torch.complex(numbers, -numbers).conj().imag, numbers.requires_grad_()):
        assert np.array_equal(fragment.pack(tensor), fragment.pack(np.ones((16, 16))))
    sparse = torch.ones(16, 16).to_sparse()
    for pack in (fragment.pack, lambda tensor: wf.gemm(tensor, torch.ones(16, 8), instruction=F16)):
        with pytest.raises(wf.errors.InvalidOperand, match="expected a dense tensor"):
            pack(sparse)


@pytest.mark.filterwarnings("ignore:.*nested tensors")
def test_nested_tensors_are_refused():
    with pytest.raises(wf.errors.InvalidOperand, match="expected a dense tensor, got a nested one"):
        wf.gemm(torch.nested.nested_tensor([torch.ones(16, 16)]), torch.ones(16, 8), instruction=F16)


def test_emulations_inside_each_other():
    A, B = torch.randn(3, 70), torch.randn(70, 4)
    before = state_of_torch()
    with wf.torch.emulate(instruction=F16, rounding="rne") as outer:
        with pytest.raises(wf.errors.InvalidOperand, match="is already active"):
            outer.__enter__()
        with wf.torch.emulate(instruction=TF32, rounding="rne") as inner:
            found = A @ B
        after = A @ B
    assert state_of_torch() == before
    assert torch.equal(found, by_hand(A, B, TF32, "sm_90"))
    assert torch.equal(after, by_hand(A, B, F16, "sm_90"))
    assert (len(inner.records), len(outer.records)) == (1, 1)


@pytest.mark.parametrize("name", ["instruction", "arch", "order", "compare", "model", "keep", "rounding", "strict"])
def test_nonsense_is_refused(name: str):
    before = state_of_torch()
    for wrong in (
        3,
        -1.5,
        "",
        "x" * 5000,
        "mma",
        "sm_9",
        b"sm_90",
        [],
        {},
        (1, 2),
        object(),
        np.zeros(3),
        torch.ones(2),
        float("nan"),
    ):
        with pytest.raises(wf.WarpfragError):
            wf.torch.emulate(**({"instruction": F16} | {name: wrong}))
    assert state_of_torch() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"instruction": "mma.m16n8k32.s32.s8.s8.s32"}, "expected a dense mma of floats without scale factors"),
        ({"instruction": "mma.sp.m16n8k32.f32.f16.f16.f32"}, "expected a dense mma"),
        ({"instruction": "ldmatrix.m8n8.x4.b16"}, "ldmatrix"),
        ({"arch": "sm_70"}, "does not have this instruction"),
        ({"compare": "sm_1"}, "sm_1"),
        ({"order": 3}, r"order: expected a wf.Order, such as wf.Order\(split_k=2\); got 3"),
        ({"order": wf.Order(promote=24)}, "promote: expected a multiple of the instruction's k, 16; got 24"),
        ({"model": 3}, "model: expected a torch.nn.Module, got 3"),
    ],
)
def test_what_cannot_be_emulated_is_refused(change: dict, message: str):
    with pytest.raises(wf.WarpfragError, match=message):
        wf.torch.emulate(**({"instruction": F16} | change))


@attention_warns
def test_the_example_finds_the_first_differing_bit(capsys):
    runpy.run_path(str(Path(__file__).parents[1] / "examples" / "transformer.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()

    assert [line.split()[0] for line in lines[1:5]] == ["V100", "A100", "H100", "B200"]
    assert "first differing bit" in lines[2]


def test_whole_tensors_are_scaled_before_they_are_rounded():
    name = "mma.m16n8k32.f32.e4m3.e4m3.f32"
    A, B = torch.randn(8, 64) * 1e-4, torch.randn(64, 8) * 100
    with wf.torch.emulate(instruction=name, rounding="rne", scales=("amax", 4.0)):
        scaled = A @ B
    with wf.torch.emulate(instruction=name, rounding="rne"):
        plain = A @ B
    factor = float(np.float32(float(A.abs().max()) / 448))
    a, b = ((tensor / by).to(torch.float8_e4m3fn) for tensor, by in ((A, factor), (B, 4.0)))
    sums = wf.gemm(a, b, instruction=name).float()
    exact = A.double() @ B.double()

    assert torch.equal(scaled, (sums.double() * np.float32(factor * 4)).float())
    assert (scaled - exact).abs().mean() < (plain - exact).abs().mean() / 4
    for scale in (0, -1.0, "max", True, float("inf")):
        with pytest.raises(
            wf.errors.InvalidOperand, match="scales: expected a positive number or 'amax' for A and for B"
        ):
            wf.torch.emulate(instruction=name, rounding="rne", scales=(1.0, scale))


def test_every_product_in_the_order_that_the_library_chooses():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 64, bias=False)
    ).bfloat16()
    x = torch.randn(2, 4, 128).bfloat16()
    with torch.no_grad(), emulation.emulate(library="cublas", arch="H200", model=model, keep=True) as run:
        model(x)
    calls = [(record.prediction.kind.call, record.prediction.shape) for record in run.records]
    assert calls == [("linear", (8, 256, 128)), ("matmul", (8, 64, 256))]
    assert str(run).startswith("cuBLAS on an H200")
    expected = wf.predict(
        x.reshape(8, 128).view(torch.int16).numpy().view("bfloat16"),
        model[0].weight.t().contiguous().view(torch.int16).numpy().view("bfloat16"),
        bias=model[0].bias.detach().float().numpy(), layout="nt",
    )  # fmt: skip
    assert np.array_equal(expected.D.view(np.int16), run.results[0].view(torch.int16).numpy().reshape(8, 256))
    heads, *lines = str(run).splitlines()[1:3]
    assert heads.split()[-1] == "order"
    assert [record.is_guess for record in run] == [record.prediction.is_guess for record in run]
    assert lines[0].endswith("(a guess)") == run.records[0].is_guess
    with pytest.raises(wf.errors.InvalidOperand, match="expected an instruction, or library='cublas'; got both"):
        emulation.emulate(instruction=BF16, library="cublas")
    with pytest.raises(wf.errors.InvalidOperand, match="library: expected 'cublas', got 'mkl'"):
        emulation.emulate(library="mkl")
    with pytest.raises(wf.errors.NotModelled, match="known on H200, not on 'T4'"):
        emulation.emulate(library="cublas", arch="T4")


def test_the_dtypes_choose_the_instruction(precision):
    torch.manual_seed(0)
    A, B = torch.randn(5, 40), torch.randn(40, 6)
    plain, double = A @ B, A.double() @ B.double()
    with emulation.emulate(arch="A100", compare="H100", keep=True) as run:
        for dtype in (torch.float16, torch.bfloat16):
            _ = A.to(dtype) @ B.to(dtype)
        precision("highest")
        for expected, reason in ((plain, PLAIN_FLOAT32), (double, "only wf.gemm computes float64")):
            with pytest.warns(wf.errors.NotEmulated, match=rf"mm \({reason}"):
                assert torch.equal(A.to(expected.dtype) @ B.to(expected.dtype), expected)
    assert [wf.get(record.instruction).form.a for record in run] == ["f16", "bf16"]
    expected = wf.gemm(A.half().numpy(), B.half().numpy(), arch="A100").astype(np.float16)
    assert np.array_equal(run.results[0].numpy(), expected)
    assert repr(run) == "<Emulation: the instruction for each dtype on A100, k ascending: 2 matmuls>"
    assert str(run).splitlines()[1].split()[-4:] == ["differ", "on", "H100", "instruction"]
    precision("high")
    with emulation.emulate(arch="A100") as allowed:
        found = A @ B
    precision("highest")
    with emulation.emulate(arch="A100", rounding="rne") as asked:
        assert torch.equal(A @ B, found)
    assert [wf.get(record.instruction).form.a for record in (*allowed, *asked)] == ["tf32", "tf32"]


@pytest.mark.parametrize("settings", [{"arch": "A100"}, {"library": "cublas"}, {"instruction": F16}])
def test_attention_that_pytorch_widens_is_named(settings, precision):
    precision("highest")
    q = torch.ones(1, 2, 8, 16, requires_grad=True).half()
    message = "attention: PyTorch's CPU implementation widened torch.float16 to torch.float32"
    with emulation.emulate(**settings) as run, warnings.catch_warnings():
        warnings.simplefilter("ignore", wf.errors.NotEmulated)
        if "instruction" in settings:
            with pytest.raises(wf.errors.InvalidOperand, match=message):
                torch.nn.functional.scaled_dot_product_attention(q, q, q)
        else:
            torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()
            assert f"bmm ({message}" in str(run)
            assert sum(count for name, count in run.not_emulated.items() if name.startswith("bmm")) == 6
            assert emulation.PLAIN_FLOAT32 not in str(run)
    assert run.records == []


def test_overflows_of_rounded_operands_are_counted():
    A, B = torch.tensor([[1e5, 1.0, float("inf")]]), torch.ones(3, 2)
    with emulation.emulate(instruction=F16, rounding="rne") as run:
        _ = A @ B
    assert [record.overflows for record in run] == [1]
    assert str(run).endswith("operand elements that became infinite or NaN when they were rounded: 1")


@pytest.mark.parametrize("sort", ["addmm bf16", "addmm f16"])
def test_a_matrix_is_added_as_the_kernels_of_the_h200_add_it(sort: str):
    """Kernels without split-K round the sum and add it to C in memory (tools/torch_gemms.py recorded the digests)."""
    text = (Path(__file__).parent / "data/torch/gemms_h200.json").read_text(encoding="utf-8")
    calls = json.loads(text)["calls"][sort]
    dtype = torch.bfloat16 if "bf16" in sort else torch.float16

    def floats(*shape: int, seed: int) -> torch.Tensor:
        numbers = np.random.default_rng([seed, *shape]).integers(-(1 << 19), 1 << 19, shape)
        return torch.from_numpy((numbers / (1 << 17)).astype(np.float32)).to(dtype)

    for key in ("32 64 64", "32 512 512", "48 512 3072"):
        m, n, k = map(int, key.split())
        with wf.torch.emulate(library="cublas", arch="H200"):
            found = torch.addmm(floats(m, n, seed=3), floats(m, k, seed=1), floats(n, k, seed=2).t())
        digest = hashlib.sha256(f"{dtype} {(m, n)} ".encode() + found.view(torch.uint8).numpy().tobytes())
        assert digest.hexdigest()[:32] == calls[key], key
