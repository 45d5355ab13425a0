"""Backends and array types, as far as they can be tested without a GPU."""

import logging
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.blas import gemm_backend as backend
from warpfrag.blas import native_gemm as tensor_core
from warpfrag.errors import InvalidOperand, NoGpu, NotModelled, OutOfMemory
from warpfrag.tensorcore import array_types
from warpfrag.tensorcore.array_types import HOST, ArrayKind, Matrix, kind_of, read_matrices
from warpfrag.tensorcore.backends import cuda_backend as cuda
from warpfrag.tensorcore.backends import device_kernel
from warpfrag.tensorcore.resolved_instruction import resolve_instruction

F16 = "mma.m16n8k16.f32.f16.f16.f32"
A, B = np.ones((3, 5), np.float16), np.ones((5, 4), np.float16)


@pytest.fixture
def no_gpu(monkeypatch):
    """Simulate a machine without CuPy."""

    def absent():
        msg = "CuPy is not installed: pip install '.[gpu]'"
        raise NoGpu(msg)

    for module in (cuda, device_kernel, tensor_core):
        monkeypatch.setattr(module, "cupy", absent)


@pytest.mark.parametrize("backend", ["cuda", "native"])
def test_a_backend_that_is_not_there_says_what_is_missing(backend, no_gpu):
    with pytest.raises(NoGpu, match=r"CuPy is not installed: pip install '\.\[gpu\]'"):
        wf.gemm(A, B, instruction=F16, backend=backend)


def test_what_cupy_lacks_is_said_where_it_is_asked_for():
    """Run in a separate process, with CuPy hidden: warpfrag raises the error, before any work."""
    code = (
        "import sys; sys.modules['cupy'] = None\n"
        "import numpy as np, warpfrag as wf\n"
        "try: wf.gemm(np.ones((2, 2), np.float16), np.ones((2, 2), np.float16), "
        f"instruction='{F16}', backend='cuda')\n"
        "except wf.WarpfragError as error: print(type(error).__name__, error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, encoding="utf-8")
    assert said.stdout.startswith("NoGpu CuPy is not installed")
    assert "pip install '.[gpu]'" in said.stdout


def test_a_gpu_that_cannot_be_used_says_why(monkeypatch):
    class Device:
        def __init__(self):
            msg = "cudaErrorNoDevice: no CUDA-capable device is detected"
            raise RuntimeError(msg)

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(Device=Device)))
    device_kernel.cupy.cache_clear()
    with pytest.raises(NoGpu, match="no NVIDIA GPU can be used: cudaErrorNoDevice"):
        device_kernel.cupy()


@pytest.mark.parametrize("backend", ["gpu", "CUDA", "", None, 3])
def test_what_is_no_backend_is_refused(backend):
    with pytest.raises(InvalidOperand, match="expected one of cpu, cuda, native, auto; got"):
        wf.gemm(A, B, instruction=F16, backend=backend)


def test_auto_takes_the_cores_where_there_is_no_gpu_and_says_why(no_gpu, monkeypatch, caplog):
    with caplog.at_level(logging.INFO, "warpfrag"):
        wf.gemm(A, B, instruction=F16, backend="auto")
        monkeypatch.setattr(backend, "PAYS", 1)
        found = wf.gemm(A, B, instruction=F16, backend="auto")
    assert np.array_equal(found, wf.gemm(A, B, instruction=F16))
    assert caplog.messages == [
        "60 multiply-adds on sm_90: backend 'cpu' (a GPU is faster from 67108864)",
        "60 multiply-adds on sm_90: backend 'cpu' (CuPy is not installed: pip install '.[gpu]')",
    ]


@pytest.mark.parametrize(("fails", "takes"), [((), "native"), (("native",), "cuda"), (("native", "cuda"), "cpu")])
def test_auto_takes_the_fastest_that_is_there(fails, takes, monkeypatch):
    """Prefer the tensor cores, then a GPU that emulates, then the CPU; small work never leaves the host."""

    def choice(name):
        def choose(*_):
            if name in fails:
                raise NoGpu(name) if "cuda" in fails else NotModelled(name)
            return SimpleNamespace(name=name)

        return choose

    monkeypatch.setattr(tensor_core, "TensorCores", choice("native"))
    monkeypatch.setattr(backend, "cuda", choice("cuda"))
    resolved = resolve_instruction(F16, "sm_90")
    assert backend.machine_of("auto", resolved, work=backend.PAYS, on_gpu=False).name == takes
    assert backend.machine_of("auto", resolved, work=backend.PAYS - 1, on_gpu=False).name == "cpu"
    assert backend.machine_of("auto", resolved, work=1, on_gpu=True).name == takes


def test_memory_that_does_not_suffice_is_said(monkeypatch):
    class OutOfMemoryError(Exception):
        pass

    class Full:
        name, on_gpu = "cuda", True

        def matmul(self, rule, operands):
            msg = "Out of memory allocating 274,877,906,944 bytes"
            raise OutOfMemoryError(msg)

    memory = SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(memory=memory)))
    monkeypatch.setattr(backend, "cuda", Full)
    with pytest.raises(OutOfMemory, match="the GPU is out of memory: Out of memory allocating 274,877,906,944 bytes"):
        wf.gemm(A, B, instruction=F16, backend="cuda")


def test_an_architecture_that_is_not_the_gpus_own_is_refused(monkeypatch):
    monkeypatch.setattr("warpfrag.blas.native_gemm._own_target", lambda: "sm_90a")
    with pytest.raises(NotModelled, match="this GPU is sm_90a, not sm_80; backend 'cuda' emulates it"):
        wf.gemm(A, B, instruction=F16, arch="sm_80", backend="native")


@pytest.mark.parametrize(
    ("own", "instruction", "why"),
    [
        ("sm_90a", "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "has operands in shared memory"),
        ("sm_90a", "mma.sp::ordered_metadata.m16n8k32.f32.f16.f16.f32", "is sparse"),
        ("sm_120a", "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0", "has scale factors"),
        ("sm_70", "mma.m8n8k4.row.col.f32.f16.f16.f32", "computes four tiles per warp"),
    ],
)
def test_what_the_native_kernel_does_not_run_is_refused_and_auto_says_why(own, instruction, why, monkeypatch, caplog):
    monkeypatch.setattr("warpfrag.blas.native_gemm._own_target", lambda: own)
    resolved = resolve_instruction(instruction, own.removesuffix("a"))
    said = f"backend 'native' runs a dense mma on registers, but \\S+ {why}; use 'cuda'"
    with pytest.raises(NotModelled, match=said):
        backend.machine_of("native", resolved, work=1, on_gpu=True)
    monkeypatch.setattr(backend, "cuda", lambda: SimpleNamespace(name="cuda"))
    with caplog.at_level(logging.INFO, "warpfrag"):
        backend.machine_of("auto", resolved, work=1, on_gpu=True)
    assert re.search(rf"backend 'cuda' \({said}\)", caplog.text)


class Tensor:
    """The attributes of a GPU tensor that identify its type."""

    device, layout, dtype = "cuda:0", "strided", "torch.float16"


Tensor.__module__ = "torch"


def test_an_array_of_a_gpu_needs_a_backend_that_runs_there():
    assert kind_of(Tensor()) == ArrayKind("torch", "cuda:0")
    with pytest.raises(InvalidOperand, match="A is a torch tensor on cuda:0, but backend is 'cpu': use backend='cuda'"):
        wf.gemm(Tensor(), Tensor(), instruction=F16)


def test_an_array_of_another_accelerator_is_refused():
    class Elsewhere(Tensor):
        device = "mps:0"

    Elsewhere.__module__ = "torch"
    with pytest.raises(InvalidOperand, match="in host memory or on an NVIDIA GPU, got a torch tensor on mps:0"):
        wf.gemm(Elsewhere(), Elsewhere(), instruction=F16, backend="cuda")


def test_arrays_of_several_kinds_are_refused():
    with pytest.raises(
        InvalidOperand, match="expected arrays from one library .*, but A is a torch tensor on cuda:0, B is"
    ):
        wf.gemm(Tensor(), B, instruction=F16, backend="cuda")
    assert read_matrices([[1.0]], B)[0].kind == HOST


@pytest.mark.parametrize(
    ("name", "codes", "raw"),
    [
        ("b1", np.array([0, 1], np.uint8), True),
        ("b1", np.array([False, True]), False),
        ("e2m1", np.array([0, 15], np.uint8), True),
        ("f16", np.array([1.0, np.nan], np.float16), False),
    ],
)
def test_codes_that_are_in_a_gpu_stay_there(name, codes, raw, monkeypatch):
    """Codes narrower than a byte are checked once for the largest."""
    monkeypatch.setattr(array_types, "device_bits", lambda array, _: array.view(f"uint{8 * array.itemsize}"))
    kind = ArrayKind("cupy", "cuda:0")
    found = Matrix("A", codes, kind).codes(wf.FORMATS[name], raw=raw)
    assert np.array_equal(found, codes.view(found.dtype))
    assert Matrix("A", codes[:0], kind).codes(wf.FORMATS[name], raw=raw).size == 0
    if wf.FORMATS[name].bits < 8:  # the host says which is wrong
        monkeypatch.setattr(array_types, "to_host", lambda array, _: array)
        monkeypatch.setattr(device_kernel, "cupy", lambda: np)
        with pytest.raises(InvalidOperand, match="A: element|A: "):
            Matrix("A", codes.view(np.uint8) << 4, kind).codes(wf.FORMATS[name], raw=True)


@pytest.mark.filterwarnings("ignore::warpfrag.errors.AmbiguousOrder")
def test_results_and_biases_may_be_bfloat16_tensors():
    """NumPy itself cannot read them, nor tensors with an autograd history."""
    torch = pytest.importorskip("torch")
    random = torch.Generator().manual_seed(3)
    a, b = (torch.randn(shape, generator=random, requires_grad=True).bfloat16() for shape in ((6, 40), (40, 8)))
    D = wf.gemm(a, b).bfloat16().requires_grad_()
    assert wf.find_order(a, b, D) == wf.Order()
    assert wf.explain(D, D, a, b, arch="sm_90").first.order == wf.Order()
    epilogue = wf.Epilogue(bias=b[0], result="bf16")
    assert torch.equal(wf.gemm(a, b, epilogue=epilogue), (wf.gemm(a, b) + b[0].detach().float()).bfloat16())
    with pytest.raises(InvalidOperand, match="observed: expected a dense tensor, got one with layout torch.sparse_coo"):
        wf.find_order(a, b, D.detach().to_sparse())


@pytest.mark.parametrize(
    ("dtype", "instruction"),
    [
        ("float16", F16),
        ("bfloat16", "mma.m16n8k16.f32.bf16.bf16.f32"),
        ("float8_e4m3fn", "mma.m16n8k32.f32.e4m3.e4m3.f32"),
        ("int8", "mma.m16n8k32.s32.s8.s8.s32"),
        ("float64", "mma.m8n8k4.f64.f64.f64.f64"),
    ],
)
def test_tensors_in_tensors_out(dtype, instruction):
    """CPU tensors of PyTorch: the same numbers as with NumPy arrays, returned as a tensor."""
    torch = pytest.importorskip("torch")
    random = torch.Generator().manual_seed(3)
    a, b = (torch.randint(-7, 8, shape, generator=random).to(getattr(torch, dtype)) for shape in ((6, 40), (40, 9)))
    found = wf.gemm(a, b, instruction=instruction)
    want = wf.gemm(a.double().numpy(), b.double().numpy(), instruction=instruction)
    assert isinstance(found, torch.Tensor)
    assert np.array_equal(found.numpy(), want)
    finished = wf.gemm(a.double().numpy(), b.double().numpy(), instruction=F16, epilogue=wf.Epilogue(result="bf16"))
    assert torch.equal(
        wf.gemm(a.half(), b.half(), instruction=F16, epilogue=wf.Epilogue(result="bf16")).float(),
        torch.from_numpy(finished.astype(np.float32)),
    )


def test_a_tensor_that_is_not_dense_is_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidOperand, match="expected a dense tensor"):
        wf.gemm(torch.eye(16).to_sparse(), torch.eye(16), instruction=F16)
