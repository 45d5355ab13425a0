"""Tensors of `torch.empty` under Triton sessions: what nothing wrote is a finding, and everything else is not."""

import os
from threading import Thread

import pytest

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # without it Triton warns that its default will change
if os.environ.get("WARPFRAG_REQUIRE_TRITON") != "1":
    pytest.importorskip("triton", reason="needs the extra triton")
if os.environ.get("WARPFRAG_REQUIRE_TORCH") != "1":
    pytest.importorskip("torch", reason="needs the extra torch")
import torch
import triton
import triton.language as tl

import warpfrag.triton

N = 64


@triton.jit
def double_kernel(x, out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i, i < n) * 2, i < n)


@triton.jit
def count_kernel(x, out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_add(out + i % 4, tl.load(x + i, i < n, 0.0), i < n)


@pytest.fixture
def session():
    with warpfrag.triton.emulate("sm_80", checks="uninitialised") as opened:
        yield opened


def empty(size=N, **options):
    return torch.empty(size, device="cuda", **options)


def doubled(session, x, out=None, n=N, kernel=double_kernel):
    """Launch the kernel; return the result and the launch's findings."""
    out = empty() if out is None else out
    kernel[(1,)](x, out, n, N=N)
    assert session.launches[-1].run.checks == ("uninitialised",)
    return out, session.launches[-1].run.findings


NEW = {
    "empty": empty,
    "empty_like": lambda: torch.empty_like(torch.zeros(N, device="cuda")),
    "new_empty": lambda: torch.zeros(1, device="cuda").new_empty(N),
    "empty_strided": lambda: torch.empty_strided((N,), (1,), device="cuda"),
    "a view": lambda: empty(4 * N).view(4, N)[3],
    "a parameter": lambda: torch.nn.Parameter(empty()),
    "after its shape was read": lambda: (x := empty(), x.shape, x.stride(), x.is_contiguous(), x.dtype, x.numel())[0],
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", NEW)
def test_a_new_tensor_is_unwritten(name, session):
    _, findings = doubled(session, NEW[name]())

    (finding,) = findings
    assert finding.kind == "uninitialised"
    assert finding.count == N
    assert finding.source is not None
    assert " of x)" in finding.text


def in_thread(x):
    thread = Thread(target=lambda: x.fill_(1.0))
    thread.start()
    thread.join()


def accumulated(x):
    weight = torch.ones(N, device="cuda", requires_grad=True)
    weight.grad = x
    (weight * 2).sum().backward()


def kept(x):
    with warpfrag.triton.emulate("sm_80"):  # without the check
        double_kernel[(1,)](torch.zeros(N, device="cuda"), x, N, N=N)


WRITERS = {
    "an element": lambda x: x.__setitem__(3, 1.0),
    "fill_": lambda x: x.fill_(1.0),
    "a view": lambda x: x.view(8, 8).t()[2:].zero_(),
    "data": lambda x: x.data.zero_(),
    "out": lambda x: torch.mul(torch.ones(N, device="cuda"), 2, out=x),
    "copy_": lambda x: x.copy_(torch.ones(N, device="cpu")),
    "foreach": lambda x: torch._foreach_zero_([x]),
    "initialisation": lambda x: torch.nn.init.normal_(torch.nn.Parameter(x)),
    "another thread": in_thread,
    "a gradient": accumulated,
    "a pointer": lambda x: x.data_ptr(),
    "a kernel without the check": kept,
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", WRITERS)
def test_a_tensor_counts_as_written_once_anything_may_have_written_it(name, session):
    tensor = empty()
    WRITERS[name](tensor)

    assert doubled(session, tensor)[1] == []


def test_the_bytes_that_a_kernel_left_unwritten_are_known(session):
    part, findings = doubled(session, torch.ones(N, device="cuda"), n=N - 4)
    assert findings == []
    assert doubled(session, part, n=N - 4)[1] == []
    assert doubled(session, part[4:], n=N - 8)[1] == []
    (finding,) = doubled(session, part[4:], n=N - 4)[1]
    assert finding.count == 4
    assert f"byte {4 * (N - 4)} of x" in finding.text


def test_memory_that_is_used_again_is_not_unwritten(session):
    addresses = set()
    for _ in range(20):
        for make, count in ((torch.ones, 0), (torch.empty, 1)):
            tensor = make(N, device="cuda")
            assert len(doubled(session, tensor)[1]) == count
            addresses.add(tensor.untyped_storage().data_ptr())
            del tensor
            session.launches.clear()  # they keep their arguments
    assert len(addresses) < 40


def test_an_atomic_on_an_empty_tensor_is_a_finding(session):
    ones = torch.ones(N, device="cuda")

    assert doubled(session, ones, torch.zeros(N, device="cuda"), kernel=count_kernel)[1] == []
    (finding,) = doubled(session, ones, kernel=count_kernel)[1]
    assert "an atomic changes memory that was never written" in finding.text
    assert " of out)" in finding.text


def test_a_value_that_is_never_used_is_no_finding(session):
    @triton.jit
    def select_kernel(x, y, out, N: tl.constexpr):
        i = tl.arange(0, N)
        tl.store(out + i, tl.where(i < N, tl.load(y + i), tl.load(x + i)))

    select_kernel[(1,)](empty(), torch.ones(N, device="cuda"), empty(), N=N)
    assert session.launches[-1].run.findings == []


def test_a_result_of_unwritten_memory_is_not_exact(monkeypatch):
    monkeypatch.delenv("WARPFRAG_LEVEL", raising=False)
    with warpfrag.triton.emulate("sm_90a", checks="uninitialised") as session:
        doubled(session, empty())
        doubled(session, torch.ones(N, device="cuda"))
    assert [launch.run.exact for launch in session.launches] == [False, True]


def test_memory_that_generated_code_may_write_is_not_tracked():
    assert warpfrag.triton.emulate("sm_80", checks="all").tracks_writes
    assert not warpfrag.triton.emulate("sm_80", checks="all", inductor=True).tracks_writes
    assert not warpfrag.triton.emulate("sm_80", checks="races").tracks_writes


def test_new_memory_has_no_old_results(session):
    kept = doubled(session, torch.ones(N, device="cuda"))[0]
    del kept
    out, _ = doubled(session, torch.ones(N, device="cuda"), n=N - 1)
    assert out.isnan().tolist() == [False] * (N - 1) + [True]


@triton.jit
def printing_kernel(x):
    tl.device_print("element", tl.load(x))


def test_device_print_writes_to_standard_output(session, capsys):
    printing_kernel[(1,)](torch.full((1,), 7, dtype=torch.int32, device="cuda"))
    assert "element: 7" in capsys.readouterr().out


def test_contexts_of_torch_cuda_are_classes(session):
    assert isinstance(torch.cuda.device, type)
    with torch.cuda.device(0), torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.reset_peak_memory_stats()
