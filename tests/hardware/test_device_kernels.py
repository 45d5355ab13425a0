"""The GPU kernels without a GPU: nvcc compiles them, and the PTX machine runs them on NumPy arrays.

So every kernel, its preparation and its launch are held to the reference in CI too, for a rule of each kind. What only
a GPU can show, how fast they are and that the hardware agrees, `python -m tools.products` shows.
"""

import subprocess
import sys
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

import warpfrag as wf
from oracle.toolkit import find_nvcc
from tools.products import SPANS, operands
from warpfrag.blas import native_gemm as tensor_core
from warpfrag.tensorcore import reference
from warpfrag.tensorcore.arithmetic_plan import plan
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.backends import cuda_backend as cuda
from warpfrag.tensorcore.backends import device_kernel
from warpfrag.tensorcore.resolved_instruction import resolve_instruction

RULES = {
    "exponents watched": ("mma.m16n8k8.f32.bf16.bf16.f32", "sm_90"),
    "C added last": ("mma.m16n8k32.f32.e4m3.e4m3.f32", "sm_100"),
    "sparse": ("mma.sp.m16n8k32.f32.f16.f16.f32", "sm_90"),
    "grouped": ("mma.m16n8k64.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", "sm_120"),
    "clamped": ("mma.m16n8k32.satfinite.s32.u4.s4.s32", "sm_90"),
    "f64 towards zero": ("mma.m16n8k4.rz.f64.f64.f64.f64", "sm_90"),
    "chain": ("mma.m8n8k4.row.col.f16.f16.f16.f16", "sm_90"),
}


class Gpu:
    """One of several GPUs; the current one is that of the innermost `with`."""

    compute_capability = "90"
    attributes = MappingProxyType({"MaxSharedMemoryPerBlockOptin": 232448, "MaxSharedMemoryPerMultiprocessor": 233472})
    current = (0,)

    def __init__(self, number=None):
        self.id = Gpu.current[-1] if number is None else number

    def __enter__(self):
        Gpu.current = (*Gpu.current, self.id)

    def __exit__(self, *_):
        Gpu.current = Gpu.current[:-1]


class Cupy:
    """The part of CuPy that the backend uses, with NumPy arrays and kernels on the PTX machine."""

    ndarray = np.ndarray
    cuda = SimpleNamespace(Device=Gpu)

    def __init__(self, folder):
        self.folder = folder

    def __getattr__(self, name):
        return getattr(np, name)

    def asnumpy(self, array):
        return array

    def RawModule(self, *, code, options, backend):  # noqa: N802 (CuPy's name)
        assert backend == "nvrtc"
        source = self.folder / f"{abs(hash((code, options)))}.cu"
        source.write_text(code, encoding="utf-8")
        command = [str(find_nvcc()), "-arch=sm_90", "-ftz=true", "-ptx", *options, str(source), "-o", f"{source}.ptx"]
        subprocess.run(command, check=True, capture_output=True)
        kernels = wf.ptx.load(f"{source}.ptx")
        return SimpleNamespace(get_function=lambda name: Function(kernels[name]))


class Function:
    """A kernel, launched as CuPy launches one."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.max_dynamic_shared_size_bytes = 0

    def __call__(self, grid, block, arguments, shared_mem=0):
        sizes = [(*extent, 1, 1)[:3] for extent in (grid, block)]
        self.kernel.launch(*sizes, list(arguments), shared=shared_mem, arch="sm_90")


@pytest.fixture
def on_the_machine(tmp_path, monkeypatch):
    """Return the backend with the PTX machine instead of a GPU."""
    remembered = (cuda.kernel_of, tensor_core._kernel_of, device_kernel._sums)
    for one in remembered:
        one.cache_clear()
    stand_in = Cupy(tmp_path)
    for module in (cuda, device_kernel, tensor_core):
        monkeypatch.setattr(module, "cupy", lambda: stand_in)
    monkeypatch.setattr(cuda.FusedDevice, "rows_per_thread", 2)  # a body of fewer instructions compiles sooner
    monkeypatch.setattr(cuda.FusedDevice, "columns_per_thread", 2)
    yield stand_in
    for one in remembered:  # of a GPU that is not there
        one.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("which", RULES)
def test_a_rule_on_the_device_gives_the_reference(which, on_the_machine):
    name, arch = RULES[which]
    rule = plan(wf.get(name).form, arch).rule
    kernel = cuda.KERNELS[type(rule)](rule)
    random = np.random.default_rng(3)
    depth = 2 if rule.c == rule.d else 1
    # a GPU has seen every rule with each span
    for span, extents in ((list(SPANS)[len(which) % len(SPANS)], (18, 9, 2)), ("any", (9, 9, 1))):
        given = operands(random, rule, (depth, *extents), span)
        if rule.c != "s32":
            given.c[0, 0, :2] = 0, (1 << 8 * given.c.itemsize - 1)  # zeros of both signs
        copies = ProductOperands(*(None if one is None else one.copy() for one in given))
        found = device_kernel.on_device(kernel, copies)
        assert np.array_equal(found.astype(np.uint64), reference.matmul(rule, given).astype(np.uint64)), span


def test_the_first_kernel_says_what_it_does_and_equal_rules_are_one_text(monkeypatch, capsys):
    """A compiler that only records. CuPy caches compiled code by text and options: equal sources are compiled once."""
    asked = []

    def compiled(*, code, options, backend):
        asked.append((code, options, backend))
        return SimpleNamespace(get_function=lambda _name: None)

    for module in (cuda, device_kernel):
        monkeypatch.setattr(module, "cupy", lambda: SimpleNamespace(RawModule=compiled, cuda=Cupy.cuda))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("CUPY_CACHE_DIR", "kernels-here")
    device_kernel._say_loading.cache_clear()
    form = wf.get("mma.m16n8k16.f32.f16.f16.f32").form
    for arch in ("sm_80", "sm_80", "sm_90"):
        rule = plan(form, arch).rule
        _ = cuda.KERNELS[type(rule)](rule).module
    device_kernel._say_loading.cache_clear()

    first, again, other = asked
    assert first == again
    assert first[0] == other[0]  # one text, for the numbers of any rule
    assert first[1] != other[1]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "loading kernels for this GPU; compiling those that are not yet in kernels-here takes" in said


@pytest.mark.slow
def test_k_and_the_outputs_are_cut_where_they_do_not_fit_the_room(on_the_machine, monkeypatch):
    """The same codes from more launches."""
    name, arch = RULES["chain"]  # whose kernel is the smallest
    rule = plan(wf.get(name).form, arch).rule
    kernel = cuda.KERNELS[type(rule)](rule)
    given = operands(np.random.default_rng(4), rule, (6, 18, 9, 3), "near 1")
    monkeypatch.setattr(device_kernel, "SCRATCH_BYTES", 1)
    monkeypatch.setattr(device_kernel, "MIN_DEPTH", 8)
    monkeypatch.setattr(device_kernel.DeviceKernel, "max_lines", 8)
    launched = []
    launch = kernel.launch

    def counted(name, *rest, **more):
        launched.append(name)
        launch(name, *rest, **more)

    monkeypatch.setattr(kernel, "launch", counted)
    assert np.array_equal(kernel.matmul(given), reference.matmul(rule, given))
    assert launched.count("chain") == 3 * 3 * 2 * 3  # tiles, rows, columns, parts of K


class OnGpu(np.ndarray):
    """A NumPy array that claims to be a CuPy array on the second GPU."""

    device = SimpleNamespace(id=1)


OnGpu.__module__ = "cupy"


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cuda", "native"])
def test_a_product_runs_on_the_gpu_that_has_its_operands(backend, on_the_machine, monkeypatch):
    """Kernels and their data are created for each GPU separately."""
    name = "mma.m16n8k8.f32.f16.f16.f32"
    launched, made, launch = set(), set(), device_kernel.DeviceKernel.launch

    def noted(kernel, *rest, **more):
        launched.add((kernel, Gpu.current[-1]))
        launch(kernel, *rest, **more)

    def making(make):
        return lambda *shape: made.add(Gpu.current[-1]) or make(*shape)

    monkeypatch.setattr(device_kernel.DeviceKernel, "launch", noted)
    for name_of_maker in ("asarray", "empty", "empty_like"):
        monkeypatch.setattr(on_the_machine, name_of_maker, making(getattr(np, name_of_maker)), raising=False)
    random = np.random.default_rng(2)
    a, b = (random.standard_normal(shape).astype(np.float16).view(np.uint16) for shape in ((5, 8), (8, 7)))
    expected = wf.gemm(a, b, instruction=name, raw=True)
    for gpu, given in enumerate(((a, b), (a.view(OnGpu), b.view(OnGpu)))):
        made.clear()
        assert np.array_equal(wf.gemm(*given, instruction=name, raw=True, backend=backend), expected)
        assert made == {gpu}
    assert sorted(gpu for _, gpu in launched) == [0, 1]
    assert len({kernel for kernel, _ in launched}) == 2
    assert Gpu.current == (0,)


def test_a_product_of_no_rows_launches_nothing(on_the_machine):
    rule = plan(wf.get("mma.m16n8k8.f32.tf32.tf32.f32").form, "sm_90").rule
    given = operands(np.random.default_rng(4), rule, (2, 0, 9, 3), "near 1")
    assert cuda.FusedDevice(rule).matmul(given).shape == (3, 0, 9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mma.m16n8k16.f32.f16.f16.f32", "mma.m16n8k32.s32.s8.s8.s32"])
def test_the_real_instruction_along_k(name, on_the_machine):
    """Registers are filled, chained and read according to the layouts."""
    resolved = resolve_instruction(name, "sm_90")
    rule = resolved.rule
    given = operands(np.random.default_rng(5), rule, (3, 40, 37, 2), "near 1")
    found = tensor_core.TensorCores(resolved).matmul(rule, given)
    assert np.array_equal(found, reference.matmul(rule, given))


def test_sums_are_added_with_their_subnormals(on_the_machine):
    sums = np.array([2.0**-149, 1.5, -(2.0**-127)], np.float32)
    assert np.array_equal(device_kernel.add_floats(sums, sums), sums + sums)
