"""Emulation of PyTorch in other threads, in compiled functions and in loaders, and products that are not emulated."""

import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import warpfrag as wf

if os.environ.get("WARPFRAG_REQUIRE_TORCH") != "1":
    pytest.importorskip("torch", reason="needs the extra torch")
import torch

from torch_helpers import BF16, F16, TF32, attention_warns, by_hand, in_thread, state_of_torch


def test_other_threads_take_part():
    """Those that are started inside and those that were there before, with modules and without, forward and back."""
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(40, 8), torch.nn.Linear(8, 2))
    x, A, B = torch.randn(5, 40, requires_grad=True), torch.randn(3, 70), torch.randn(70, 4)

    def work() -> list[torch.Tensor]:
        y = model(x)
        gradients = torch.autograd.grad(y.square().sum(), [x, *model.parameters()])
        out = torch.empty(3, 4)
        torch.mm(A, B, out=out)
        return [y, *gradients, A @ B, out, torch.ones(3, 4).addmm_(A, B), torch.einsum("ij,jk->ki", A, B)]

    plain = work()
    with ThreadPoolExecutor(1) as before:
        before.submit(work).result()
        with wf.torch.emulate(instruction=BF16, rounding="rne", arch="sm_80", model=model, keep=True) as run:
            expected = work()
            count = len(run.records)
            results = [in_thread(work), before.submit(work).result()]
            with torch.inference_mode():
                assert torch.equal(in_thread(lambda: model(x)), expected[0])
        after = [in_thread(work), before.submit(work).result()]
    for theirs in results:
        assert all(map(torch.equal, theirs, expected))
    for theirs in after:
        assert all(map(torch.equal, theirs, plain))
    assert not any(map(torch.equal, plain, expected))
    facts = [(record.operation, record.layer, record.direction, record.shape) for record in run]
    assert facts[:count] == facts[count : 2 * count] == facts[2 * count : 3 * count]
    assert ("addmm", "1", "forward", (5, 2)) in facts
    assert [record.number for record in run] == [*range(len(run.results))]


def test_many_threads_write_one_list_of_records():
    A, B = torch.randn(3, 20), torch.randn(20, 4)
    with wf.torch.emulate(instruction=F16, rounding="rne", keep=True) as run, ThreadPoolExecutor(8) as pool:
        results = [*pool.map(lambda _: A @ B, range(100))]
    assert all(torch.equal(result, by_hand(A, B, F16, "sm_90")) for result in results)
    assert [record.number for record in run] == [*range(100)]
    assert len(run.results) == 100


NOT_EMULATED = {
    "mv": lambda: torch.mv(torch.ones(2, 3), torch.ones(3)),
    "addmv": lambda: torch.addmv(torch.ones(2), torch.ones(2, 3), torch.ones(3)),
    "dot": lambda: torch.ones(3) @ torch.ones(3),
    "convolution": lambda: torch.nn.Conv2d(2, 3, 3)(torch.ones(1, 2, 5, 5)),
    "convolution_backward": lambda: torch.nn.Conv3d(1, 1, 2)(torch.ones(1, 1, 3, 3, 3)).sum().backward(),
    "conv1d": torch.inference_mode()(lambda: torch.nn.Conv1d(2, 3, 3)(torch.ones(1, 2, 5))),
    "_trilinear": lambda: torch.nn.Bilinear(3, 3, 2)(torch.ones(2, 3), torch.ones(2, 3)),
    "mkldnn_rnn_layer": lambda: torch.nn.LSTM(3, 3)(torch.ones(2, 1, 3)),
    "linalg_solve": lambda: torch.linalg.solve(torch.eye(3), torch.ones(3, 3)),
    "linalg_inv": lambda: torch.linalg.inv(torch.eye(3)),
    "linalg_qr": torch.inference_mode()(lambda: torch.linalg.qr(torch.eye(3))),
    "fft_r2c": lambda: torch.fft.rfft(torch.ones(8)),
    "_scaled_mm": lambda: torch._scaled_mm(
        torch.ones(16, 16).to(torch.float8_e4m3fn),
        torch.ones(16, 16).to(torch.float8_e4m3fn).t(),
        scale_a=torch.tensor(1.0),
        scale_b=torch.tensor(1.0),
        out_dtype=torch.bfloat16,
    ),
    "_scaled_dot_product_flash_attention_for_cpu": lambda: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        *(torch.ones(1, 1, 4, 8),) * 3
    ),
}


def test_a_matmul_whose_order_is_not_modelled_is_left_to_pytorch():
    x = torch.ones(9, 9, dtype=torch.float16)
    with wf.torch.emulate(library="cublas") as run, pytest.warns(wf.errors.NotEmulated, match="alpha 2"):
        result = torch.addmm(x, x, x, alpha=2)
    assert result.eq(19).all()
    assert [name.partition(" ")[0] for name in run.not_emulated] == ["addmm"]
    with wf.torch.emulate(library="cublas", strict=True), pytest.raises(wf.errors.NotModelled, match="strict=True"):
        torch.addmm(x, x, x, alpha=2)


@pytest.mark.parametrize("name", NOT_EMULATED)
@pytest.mark.parametrize("where", ["here", "in a thread"])
def test_products_that_are_not_emulated_warn_once(name: str, where: str):
    if where == "in a thread" and name == "conv1d":
        name = "convolution"  # which it is made of
    if name == "mkldnn_rnn_layer" and not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    with wf.torch.emulate(instruction=F16, rounding="rne"), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            (NOT_EMULATED[name] if where == "here" else partial(in_thread, NOT_EMULATED[name]))()
    texts = [str(entry.message) for entry in told if entry.category is wf.torch.NotEmulated]
    assert texts.count(f"{name} is not emulated: PyTorch computes it") == 1
    assert len(texts) == (2 if name == "convolution_backward" else 1)


@pytest.mark.parametrize("name", ["mv", "linalg_solve", "linalg_inv", "linalg_qr"])
def test_products_that_are_not_emulated_are_reported_or_forbidden(name: str):
    with wf.torch.emulate(instruction=F16) as run:
        torch.ones(3).relu()
        with pytest.warns(wf.torch.NotEmulated, match=f"{name} is not emulated"):
            NOT_EMULATED[name]()
    assert str(run).endswith(f"computed by PyTorch, not as on a GPU: {name} 1")
    with wf.torch.emulate(strict=True), pytest.raises(wf.errors.NotModelled, match=f"{name} is not emulated, which"):
        NOT_EMULATED[name]()


@pytest.mark.slow
def test_flex_attention_is_named_and_forbidden():
    flex = pytest.importorskip("torch.nn.attention.flex_attention", reason="it is new in PyTorch 2.5")
    q = torch.ones(1, 1, 16, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is slow without torch.compile, PyTorch says
        with wf.torch.emulate() as run:
            flex.flex_attention(q, q, q)
        assert "computed by PyTorch, not as on a GPU: flex_attention 1" in str(run)
        with (
            wf.torch.emulate(strict=True),
            pytest.raises(wf.errors.NotModelled, match="flex_attention is not emulated"),
        ):
            flex.flex_attention(q, q, q)


def test_an_operation_made_of_emulated_products_is_not_counted():
    A = torch.ones(6, 6).bfloat16()
    with torch.inference_mode(), wf.torch.emulate(strict=True) as run:
        _ = A @ A, torch.einsum("ij,jk->ik", A, A), torch.addbmm(A, A[None], A[None]), torch.linalg.multi_dot([A, A])
    assert (len(run.records), dict(run.not_emulated)) == (4, {})


@pytest.mark.parametrize(
    "work",
    [
        lambda A: torch.einsum("ij,kj->ik", A, A),
        lambda A: torch.addbmm(torch.zeros(6, 6), A[None], A.t()[None]),
        lambda A: torch.linalg.multi_dot([A, A.t(), A]),
        lambda A: torch.nn.functional.scaled_dot_product_attention(A[None, None], A[None, None], A[None, None]),
        lambda A: torch.nn.GRU(40, 3)(A[:, None])[0],
        lambda A: torch.inner(A, A),
    ],
    ids=["einsum", "addbmm", "multi_dot", "attention", "gru", "inner"],
)
@attention_warns
def test_what_is_made_of_products_is_emulated(work):
    torch.manual_seed(6)
    A = torch.randn(6, 40)
    results = []
    for run_work in (work, partial(in_thread, partial(work, A))):
        torch.manual_seed(7)
        with wf.torch.emulate(instruction=BF16, rounding="rne", arch="sm_80") as run:
            results.append(run_work(A) if run_work is work else run_work())
        assert len(run.records) > 0
    torch.manual_seed(7)
    assert torch.equal(*results)
    assert not torch.equal(results[0], work(A))


def test_compiled_functions_run_as_they_are_written():
    """Compiled code need not call the operations that a mode sees: here it gives zeros."""

    def zeros(_graph, _inputs):
        return lambda *_: (torch.zeros(3, 4),)

    A, B = torch.randn(3, 70), torch.randn(70, 4)
    multiply = torch.compile(lambda A, B: (A @ B).relu(), backend=zeros)
    before = torch._dynamo.eval_frame._stance
    assert not multiply(A, B).any()
    with wf.torch.emulate(instruction=F16, rounding="rne"):
        results = [multiply(A, B), in_thread(lambda: multiply(A, B))]
    assert torch._dynamo.eval_frame._stance == before
    for result in results:
        assert torch.equal(result, by_hand(A, B, F16, "sm_90").relu())
    assert not multiply(A, B).any()


class Products(torch.utils.data.Dataset):
    """A dataset that multiplies."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(2, 3) @ torch.ones(3, 2)


@pytest.mark.filterwarnings("ignore:.*fork")
def test_workers_of_a_loader_are_refused_or_told_of(monkeypatch):
    plain = torch.utils.data.DataLoader.__iter__
    with wf.torch.emulate(instruction=F16, rounding="rne") as run:
        assert next(iter(torch.utils.data.DataLoader(Products())))[0, 0, 0] == 3
        assert len(run.records) == 1
        forked = torch.utils.data.DataLoader(Products(), num_workers=1, multiprocessing_context="fork")
        with pytest.raises(
            wf.errors.InvalidOperand, match="mm cannot be recorded in a process that was forked inside an emulation"
        ):
            next(iter(forked))
        spawned = torch.utils.data.DataLoader(Products(), num_workers=1, multiprocessing_context="spawn")
        monkeypatch.setattr(spawned, "_get_iterator", lambda: iter(()))
        with pytest.warns(wf.torch.NotEmulated, match=r"workers of a DataLoader \(spawn\) are separate processes"):
            assert [*spawned] == []
        assert [*spawned] == []  # once
        assert len(run.records) == 1
    assert torch.utils.data.DataLoader.__iter__ is plain


def test_threads_have_a_mode_of_their_own():
    """Operations of other threads are neither in the records of a mode nor in its layers.

    A thread without one is refused: nobody can tell which is meant.
    """
    torch.manual_seed(4)
    models = [torch.nn.Sequential(torch.nn.Linear(40, 8), torch.nn.Linear(8, 2)) for _ in range(3)]
    x, names, before = torch.randn(5, 40), [F16, BF16, TF32], state_of_torch()
    start, failures, runs = threading.Barrier(4), [], {}

    def work(place: int) -> None:
        try:
            with wf.torch.emulate(instruction=names[place], rounding="rne", model=models[place]) as run:
                start.wait()
                results = [models[place](x) for _ in range(5)]
                start.wait()
            runs[place] = run, results
        except BaseException as error:  # noqa: BLE001 (told below)
            failures.append(error)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    start.wait()
    refusals = []
    for model in models:
        with pytest.raises(wf.errors.InvalidOperand) as refused:
            model(x)
        refusals.append(str(refused.value))
    integers = torch.ones(2, 2, dtype=torch.int64) @ torch.ones(2, 2, dtype=torch.int64)
    start.wait()
    for thread in threads:
        thread.join()

    assert failures == []
    assert refusals == ["addmm in thread 'MainThread': 3 other threads have emulations; enter one here"] * 3
    assert integers.tolist() == [[2, 2], [2, 2]]
    assert state_of_torch() == before
    plain = [model(x) for model in models]
    for place, (run, results) in runs.items():
        with wf.torch.emulate(instruction=names[place], rounding="rne"):
            expected = models[place](x)
        assert all(torch.equal(expected, one) for one in results)
        assert not torch.equal(expected, plain[place])
        assert [record.layer for record in run] == ["0", "1"] * 5
