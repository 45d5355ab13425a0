"""The pytest plugin with Triton: tests written for a GPU, findings, and errors of single tests."""

import os
import subprocess
import sys

import pytest

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # without it Triton warns that its default will change
if os.environ.get("WARPFRAG_REQUIRE_TRITON") != "1":
    pytest.importorskip("triton", reason="needs the extra triton")

PLUGIN_TEST = """
import pytest, torch, triton, triton.language as tl
DEVICE = triton.runtime.driver.active.get_active_torch_device()

@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) * factor, i < n)

@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("device", ["cuda", torch.device("cuda:0"), DEVICE])
def test_scale(device, triton_session):
    host = torch.randn(300)
    x = torch.randn(300, device=device).to("cuda").cuda() + host.cuda()
    out = torch.empty_like(x)
    assert x.is_cuda and torch.cuda.get_device_capability() == (8, 0)
    assert x.device == out.device == torch.device("cuda:0") and x.get_device() == 0
    assert not host.is_cuda and host.device.type == "cpu" and host.get_device() == -1
    scale[(3,)](x, out, 300, 2.5, BLOCK=128)
    torch.cuda.synchronize()
    before = out.cpu()
    out.zero_()  # a copy to the host is a copy
    assert torch.equal(before.cuda(), x * 2.5) and not before.is_cuda
    assert [launch.run.uncertain for launch in triton_session.launches] == [()]

@triton.jit
def first_of_each(table, out):
    row = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(out + tl.program_id(0), tl.load(row))

def test_tables_of_pointers():
    rows = torch.randn(3, 5, device="cuda")
    table = torch.tensor([row.data_ptr() for row in rows], dtype=torch.int64, device="cuda")
    out = torch.empty(3, device="cuda")
    first_of_each[(3,)](table, out)
    assert torch.equal(out, rows[:, 0])
"""


def test_tests_for_a_gpu_run_unchanged(tmp_path):
    pytest.importorskip("torch", reason="needs the extra torch")
    (tmp_path / "test_scale.py").write_text(PLUGIN_TEST, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "warpfrag.pytest_plugin", "--triton-arch", "sm_80"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert "4 passed" in done.stdout, done.stdout + done.stderr
    assert "warpfrag: 4 Triton launches on sm_80; nothing was checked (--check all" in done.stdout


def test_the_summary_counts_the_launches_of_workers(tmp_path):
    pytest.importorskip("torch", reason="needs the extra torch")
    (tmp_path / "test_scale.py").write_text(PLUGIN_TEST, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "xdist", "-p", "warpfrag.pytest_plugin"]
    command += ["--triton-arch", "sm_80"]
    done = subprocess.run([*command, "--check", "memory"], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert "warpfrag: 4 Triton launches on sm_80, checked for memory: 0 findings" in done.stdout, done.stdout


WRONG_DEVICE_TEST = """
import numpy as np, pytest, torch, triton, triton.language as tl

@triton.jit
def double(x):
    tl.store(x, tl.load(x) * 2)

@pytest.fixture
def on_gpu():
    return torch.ones(3, device="cuda")

@pytest.mark.parametrize("host", [torch.ones(3), torch.from_numpy(np.ones(3)), lambda: torch.ones(3)])
def test_a_kernel_cannot_use_a_host_tensor(host):
    double[(1,)](host() if callable(host) else host)

def test_numpy_cannot_read_a_gpu_tensor(on_gpu):
    on_gpu.numpy()

def test_arithmetic_is_on_one_device(on_gpu):
    on_gpu + torch.ones(3)

def test_correct_uses(on_gpu):
    double[(1,)](on_gpu)
    double[(1,)](np.ones(3))
    double[(1,)](torch.ones(3).pin_memory())
    double[(1,)](torch.from_numpy(np.ones(3)).to("cuda"))
    assert on_gpu[torch.tensor([0])].cpu().numpy() == 2 and (on_gpu * torch.tensor(2.0)).is_cuda
    seen = []
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * x
        @staticmethod
        def backward(ctx, grad):
            seen.append((grad + torch.ones(3)).numpy())
            return grad
    Square.apply(torch.ones(3, requires_grad=True)).sum().backward()
    assert len(seen) == 1
"""


def test_tensors_on_the_wrong_device_fail_as_on_a_gpu(tmp_path):
    pytest.importorskip("torch", reason="needs the extra torch")
    (tmp_path / "test_device.py").write_text(WRONG_DEVICE_TEST, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "warpfrag.pytest_plugin", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert "5 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?): x is a tensor") >= 3
    assert "TypeError: can't convert cuda:0 device type tensor to numpy" in done.stdout
    assert "RuntimeError: Expected all tensors to be on the same device" in done.stdout
    assert "triton_session.py" not in done.stdout + done.stderr
    assert "cuda_tensors.py" not in done.stdout + done.stderr


TMA_TEST = """
import torch, triton, triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def product(a, b, c, K: tl.constexpr):
    total = tl.zeros((64, 64), tl.float32)
    for k in range(0, K, 32):
        total = tl.dot(a.load([0, k]), b.load([k, 0]), total)
    c.store([0, 0], total)

def test_product():
    a, b = torch.randn(64, 64, device="cuda").half(), torch.randn(64, 64, device="cuda").half()
    c = torch.zeros(64, 64, device="cuda")
    sizes = {a: [64, 32], b: [32, 64], c: [64, 64]}
    product[(1,)](*(TensorDescriptor.from_tensor(tensor, size) for tensor, size in sizes.items()), 64)
"""


@pytest.mark.parametrize(
    ("choice", "outcome", "is_shown"),
    [(None, "1 passed", True), ("fail", "1 failed", True), ("accept", "1 passed", False)],
)
def test_a_launch_that_is_not_judged_completely_passes_fails_or_is_accepted(choice, outcome, is_shown, tmp_path):
    pytest.importorskip("torch", reason="needs the extra torch")
    (tmp_path / "test_tma.py").write_text(TMA_TEST, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "warpfrag.pytest_plugin", "--check", "async"]
    command += ["--check-incomplete", choice] if choice else []
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert outcome in done.stdout, done.stdout + done.stderr
    assert "1 Triton launch on sm_90a, checked for async: 0 findings, 1 incomplete launch\n" in done.stdout
    assert ("product: not judged: an asynchronous copy signals an mbarrier without fence" in done.stdout) == is_shown
    assert ("--check-incomplete fail makes its test fail" in done.stdout) == (choice is None)


JUDGED_TEST = """
import numpy as np, pytest, triton, triton.language as tl

@triton.jit
def fill(out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), 1)

@pytest.fixture
def reasons():
    launches = triton.runtime.driver.active.session.launches
    fill[(1,)](np.zeros(32, np.int32), BLOCK=32)
    return launches[-1].run.inexact

def test_with_the_fixture(reasons, triton_session):
    assert "the exactness of the result was not judged" not in reasons

def test_without_the_fixture(reasons):
    assert reasons[0] == "the exactness of the result was not judged"
"""


def test_launches_are_judged_for_tests_that_can_see_it(tmp_path):
    (tmp_path / "test_judged.py").write_text(JUDGED_TEST, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "warpfrag.pytest_plugin", str(tmp_path)]
    own = os.environ | {"WARPFRAG_LEVEL": "auto"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=own)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_finding_of_a_check_fails_the_test(tmp_path):
    pytest.importorskip("torch", reason="needs the extra torch")
    unmasked = PLUGIN_TEST.replace("tl.load(x + i, i < n)", "tl.load(x + i)")
    (tmp_path / "test_scale.py").write_text(unmasked, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "warpfrag.pytest_plugin", "--check", "memory,races"]
    command += ["--triton-arch", "sm_80", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert "3 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "scale: bounds, test_scale.py:" in done.stdout
    assert "warpfrag: 4 Triton launches on sm_80, checked for memory, races: 3 findings" in done.stdout


def test_an_error_without_checks_shows_the_tests_own_frames(tmp_path):
    pytest.importorskip("torch", reason="needs the extra torch")
    unmasked = PLUGIN_TEST.replace("tl.load(x + i, i < n)", "tl.load(x + i)")
    (tmp_path / "test_scale.py").write_text(unmasked, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "warpfrag.pytest_plugin", "--triton-arch", "sm_80"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert "3 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "triton_session.py" not in done.stdout
    assert "runtime/jit.py" not in done.stdout
    assert "warpfrag: 4 Triton launches on sm_80, 3 ended with an error" in done.stdout


SPIN_TEST = """
import conftest
import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def spin(flag):
    value = tl.load(flag)
    while value == 0:
        value = value * 2
    tl.store(flag, value)


@triton.jit
def undefined(x):
    tl.store(x, missing_name)


@triton.jit
def past_the_end(x):
    tl.store(x + 1, 1.0)


def test_spin():
    assert conftest.HAS_GPU
    spin[(1,)](torch.zeros(1, device="cuda"))


def test_undefined():
    undefined[(1,)](torch.zeros(1, device="cuda"))


def test_a_failure_also_shows_its_findings():
    past_the_end[(1,)](torch.zeros(1, device="cuda"))
    assert False


@pytest.fixture
def launched():
    past_the_end[(1,)](torch.zeros(1, device="cuda"))


def test_a_fixture_has_findings(launched):
    pass
"""


def test_a_kernel_fails_its_own_test(tmp_path):
    pytest.importorskip("torch", reason="needs the extra torch")
    (tmp_path / "test_spin.py").write_text(SPIN_TEST, encoding="utf-8")
    (tmp_path / "test_broken.py").write_text("import no_such_module\n", encoding="utf-8")
    (tmp_path / "conftest.py").write_text("import torch\nHAS_GPU = torch.cuda.is_available()\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "warpfrag.pytest_plugin", "--check", "all"]
    command += ["--launch-seconds", "3", "--continue-on-collection-errors", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert "3 failed, 2 errors" in done.stdout, done.stdout + done.stderr
    assert "1 ended with an error; the other 2, checked for all: 2 findings" in done.stdout
    assert "triton_session.py" not in done.stdout
    assert "test_spin.py:13 (line " in done.stdout
    assert (
        "the launch was stopped after 3 s (--launch-seconds, LaunchOptions.seconds); this line was running"
        in done.stdout
    )
    assert "missing_name is not defined" in done.stdout
    assert "No module named 'no_such_module'" in done.stdout
    findings, _summary = done.stdout.split("short test summary info")
    assert findings.count("past_the_end: bounds, test_spin.py:24") == 2


def test_bad_options_of_the_plugin_are_refused(tmp_path):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "warpfrag.pytest_plugin", "--check", "race", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    negative = subprocess.run([*command[:6], "--launch-seconds", "-3"], capture_output=True, text=True, check=False)
    assert "expected seconds to be a positive number, got -3.0" in negative.stderr
    assert "--check: expected memory, races, uninitialised, barriers, async or all, got 'race'" in done.stderr
