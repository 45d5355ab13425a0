"""Unmodified programs on the virtual GPU, built with nvcc, cuda-bindings, numba-cuda and Triton, and the verb `gpu`."""

import json
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

import warpfrag as wf
from device.conditions import needs_nvcc, needs_nvdisasm, needs_stand_ins
from device.driver_api import ADD, HEAD, environment, run
from warpfrag.cuda_tools import find_tool
from warpfrag.device.virtual_gpu import FOLDER

pytestmark = needs_stand_ins
PROGRAM = Path(__file__).with_name("program.cu")
ANSWER = [
    "cudaSuccess", "0 wrong, counter 6, NVIDIA H200, 132 multiprocessors", "cudaErrorInvalidConfiguration",
    "1024 threads at most", "an illegal memory access was encountered",
]  # fmt: skip


def python(source: str, folder: Path, **options: object) -> str:
    """Run a Python program with a virtual GPU and return its output."""
    file = folder / "program.py"
    file.write_text(textwrap.dedent(source), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, file], env=environment(folder, **options), cwd=folder, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The program of nvcc, linked with the shared runtime."""
    folder = tmp_path_factory.mktemp("nvcc")
    target, nvcc = folder / "program", find_tool("nvcc").path
    (folder / "libcudart.so").symlink_to(FOLDER / f"libcudart.so.{find_tool('nvcc').version.partition('.')[0]}")
    options = ["-arch=sm_90", "-lineinfo", "-cudart", "shared", "-cudadevrt", "none"]
    options += [f"-L{folder}", f"-Xlinker=-rpath-link={FOLDER}"]
    command = [nvcc, *options, PROGRAM, "-o", target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nvcc cannot link here: {done.stderr.strip()[-200:]}")
    return target


@needs_nvcc
@needs_nvdisasm
def test_a_program_of_nvcc(compiled, tmp_path):
    report = tmp_path / "report.html"
    command = [sys.executable, "-m", "warpfrag", "gpu", "--json", "--report", report, "--", compiled]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False,
        env={**environment(tmp_path), "LD_PRELOAD": "", "LD_LIBRARY_PATH": ""},
    )  # fmt: skip
    answer = json.loads(done.stdout)

    assert done.returncode == 1, done.stderr  # two launches fail, which the program expects
    assert [line for line in done.stderr.splitlines() if not line.startswith(("warpfrag", "    "))] == ANSWER
    assert "program.cu:10" in done.stderr  # the line of the access to freed memory
    assert [launch["error"] for launch in answer["launches"]] == [0, 0, 1, 700]
    assert "in freed memory" in answer["launches"][3]["message"]
    assert "add(float const*, float const*, float*, int)" in report.read_text(encoding="utf-8")


def test_cuda_bindings(tmp_path):
    pytest.importorskip("cuda.bindings", reason="needs cuda-bindings")
    source = f"""
        import numpy as np
        from cuda.bindings import driver

        def call(result):
            assert result[0] == 0, result
            return result[1] if len(result) == 2 else result[1:]

        call(driver.cuInit(0))
        context = call(driver.cuDevicePrimaryCtxRetain(call(driver.cuDeviceGet(0))))
        call(driver.cuCtxSetCurrent(context))
        x = np.arange(1000, dtype=np.float32)
        result = np.zeros_like(x)
        a, b = (call(driver.cuMemAlloc(x.nbytes)) for _ in range(2))
        call(driver.cuMemcpyHtoD(a, x.ctypes.data, x.nbytes))
        add = call(driver.cuModuleGetFunction(call(driver.cuModuleLoadData({ADD!r}.encode() + bytes(1))), b"add"))
        values = [np.array([int(p)], dtype=np.uint64) for p in (a, a, b)] + [np.array([1000], dtype=np.int32)]
        pointers = np.array([value.ctypes.data for value in values], dtype=np.uint64)
        call(driver.cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 0, 0, pointers.ctypes.data, 0))
        call(driver.cuMemcpyDtoH(result.ctypes.data, b, x.nbytes))
        print((result == 3 * x).all())
    """

    assert python(source, tmp_path) == "True\n"


def test_numba_cuda(tmp_path):
    if find_spec("numba_cuda") is None:
        pytest.skip("needs numba-cuda")
    source = """
        import numpy as np
        from numba import cuda, float32

        @cuda.jit
        def scaled_sum(x, out):
            tile = cuda.shared.array(128, float32)
            i = cuda.grid(1)
            tile[cuda.threadIdx.x] = 2 * x[i]
            cuda.syncthreads()
            if cuda.threadIdx.x == 0:
                total = float32(0)
                for each in tile:
                    total += each
                cuda.atomic.add(out, 0, total)

        x = np.arange(1024, dtype=np.float32)
        out = np.zeros(1, np.float32)
        scaled_sum[8, 128](x, out)
        print(out[0] == 2 * x.sum())
    """

    assert python(source, tmp_path) == "True\n"


def test_a_triton_kernel_through_tritons_own_driver(tmp_path):
    pytest.importorskip("torch", reason="needs the extra torch")
    pytest.importorskip("triton", reason="needs the extra triton")
    source = """
        import ctypes
        import numpy as np
        import triton
        import triton.language as tl
        from triton.backends.nvidia.driver import CudaDriver

        class Driver(CudaDriver):  # PyTorch's CPU wheel does not know the device and the stream
            def __init__(self):
                super().__init__()
                self.get_current_device = lambda: 0
                self.set_current_device = lambda device: None
                self.get_current_stream = lambda device: 0
                self.get_device_capability = lambda device=0: (9, 0)

        class Tensor:  # device memory, as Triton's launcher takes it
            def __init__(self, values):
                self.values = np.array(values)
                self.dtype = "torch.float32"
                address = ctypes.c_uint64()
                assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(self.values.nbytes)) == 0
                self.address = address.value
                data = self.values.ctypes.data_as(ctypes.c_void_p)
                cuda.cuMemcpyHtoD_v2(address, data, ctypes.c_size_t(self.values.nbytes))

            def data_ptr(self):
                return self.address

            def numpy(self):
                out = np.empty_like(self.values)
                data = out.ctypes.data_as(ctypes.c_void_p)
                assert cuda.cuMemcpyDtoH_v2(data, ctypes.c_uint64(self.address), ctypes.c_size_t(out.nbytes)) == 0
                return out

        cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        assert cuda.cuInit(0) == 0
        assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert cuda.cuCtxSetCurrent(context) == 0
        triton.runtime.driver.set_active(Driver())

        @triton.jit
        def softmax(x, out, n, BLOCK: tl.constexpr):
            columns = tl.arange(0, BLOCK)
            row = tl.load(x + tl.program_id(0) * n + columns, columns < n, -float("inf"))
            exponents = tl.exp(row - tl.max(row, 0))
            tl.store(out + tl.program_id(0) * n + columns, exponents / tl.sum(exponents, 0), columns < n)

        values = np.random.default_rng(0).standard_normal((8, 100)).astype(np.float32)
        x, out = Tensor(values), Tensor(np.zeros_like(values))
        softmax[(8,)](x, out, 100, 128)
        expected = np.exp(values - values.max(1, keepdims=True))
        print(np.allclose(out.numpy(), expected / expected.sum(1, keepdims=True), rtol=1e-5))
    """

    assert python(source, tmp_path) == "True\n"


def test_the_context_manager_in_one_process(tmp_path):
    done = run(
        """
        import warpfrag as wf
        with wf.gpu(memory=1 << 30) as session:
            start()
            add = function(load(ADD), "add")
            a = allocate(400)
            ok(launch(add, (1,), (100,), a, a, a, C.c_int(100)))
        print([(each["kernel"], each["grid"], each["error"]) for each in session.launches])
        """,
        tmp_path,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == "[('add', [1, 1, 1], 0)]\n"


CHILD = """
start()
a = allocate(400)
ok(launch(function(load(ADD), "add"), (1,), (THREADS,), a, a, a, C.c_int(THREADS)))
print("launched")
"""


def test_tests_with_a_virtual_gpu(tmp_path):
    definitions = HEAD + f"ADD = {ADD!r}.encode()\n"
    (tmp_path / "test_add.py").write_text(
        definitions
        + textwrap.dedent(
            """
            def test_right():
                start()
                a = allocate(400)
                ok(launch(function(load(ADD), "add"), (1,), (100,), a, a, a, C.c_int(100)))

            def test_wrong():
                a = allocate(400)
                launch(function(load(ADD), "add"), (1,), (101,), a, a, a, C.c_int(101))

            def test_a_program_of_the_test_has_the_gpu_too():
                import subprocess, sys
                done = subprocess.run([sys.executable, "child.py"], capture_output=True, text=True)
                assert done.stdout == "launched\\n", done.stderr
            """
        ),
        encoding="utf-8",
    )
    (tmp_path / "child.py").write_text(definitions + CHILD.replace("THREADS", "100"), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "warpfrag.pytest_plugin", "--virtual-gpu", "test_add.py"]
    variables = {**environment(tmp_path), "LD_PRELOAD": ""}
    done = subprocess.run(
        command, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )

    assert "1 failed, 2 passed" in done.stdout, done.stdout
    assert "by thread (100, 0, 0) of block (0, 0, 0)" in done.stdout
    assert "warpfrag gpu: 3 launches" in done.stdout


def test_findings_that_a_program_captures_are_repeated_at_the_end(tmp_path):
    quiet = "import os, sys\nos.dup2(os.open(os.devnull, os.O_WRONLY), 2)\n"
    text = quiet + HEAD + f"ADD = {ADD!r}.encode()\n" + CHILD.replace("ok(launch", "(launch").replace("THREADS", "101")
    (tmp_path / "child.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "warpfrag", "gpu", "--check", "memory", "--", sys.executable, "child.py"]
    done = subprocess.run(
        command, env={**environment(tmp_path), "LD_PRELOAD": ""}, cwd=tmp_path, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip

    assert done.returncode == 1, done.stderr
    assert "by thread (100, 0, 0) of block (0, 0, 0)" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("warpfrag gpu: 1 launch, ")


def test_the_context_manager_names_a_library_that_came_first(monkeypatch):
    monkeypatch.setattr("warpfrag.device.virtual_gpu.foreign_libraries", lambda: ["/lib/libcuda.so.1"])
    with (
        pytest.raises(wf.errors.InvalidOperand, match=r"libcuda.so.1 is already loaded: enter wf.gpu\(\) before"),
        wf.gpu(),
    ):
        pass


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"profile": "B9000"}, "expected a GPU profile"),
        ({"memory": 5}, "expected device memory of 1 MiB to 4 TiB"),
        ({"checks": "typos"}, "checks: expected names from memory, races"),
    ],
)
def test_options_are_checked(options, said):
    with pytest.raises(wf.errors.InvalidOperand, match=said), wf.gpu(**options):
        pass


def test_code_of_closed_libraries_and_of_unknown_origin_is_not_executed(tmp_path):
    from warpfrag.device.loaded_modules import refusal_of

    library = tmp_path / "libcublasLt.so.13"
    library.write_bytes(b"")

    assert "closed-source library libcublasLt.so.13" in refusal_of(str(library))
    assert "origin is unknown" in refusal_of("")
    assert refusal_of(sys.executable) == ""
