"""Triton kernels without a GPU: launches, sessions, arguments, and tests written for a GPU."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # without it Triton warns that its default will change
if os.environ.get("WARPFRAG_REQUIRE_TRITON") != "1":
    pytest.importorskip("triton", reason="needs the extra triton")
import triton
import triton.language as tl

import triton_kernels
import warpfrag.triton
from triton_hopper_kernels import HOPPER_CASES
from triton_kernels import CASES, Case
from triton_tensor_kernels import TENSOR_CASES
from warpfrag.triton.triton_session import _choose

VERSION = tuple(map(int, triton.__version__.split(".")[:2]))
MEASURED = json.loads((Path(__file__).parent / "data" / "triton_h200.json").read_text(encoding="utf-8"))


def plain(ptx: str) -> str:
    """A digest of the instructions: without comments, debug sections and the lines of the source."""
    lines = [line.split("//")[0].strip() for line in ptx.partition(".section")[0].splitlines()]
    kept = [line for line in lines if not re.match(r"\.(loc|file|version)|$", line)]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()[:16]


def launched(name: str, arch: str) -> tuple[Case, warpfrag.triton.Launch]:
    case = CASES[name](np.random.default_rng(0))
    with warpfrag.triton.emulate(arch) as session:
        case.kernel[case.grid](*case.args, **case.meta)
    (launch,) = session.launches
    return case, launch


@pytest.mark.parametrize("name", CASES)
def test_kernels_of_the_usual_kinds(name):
    """Results equal NumPy's within rounding, and an H200's memory if it ran the same PTX."""
    case, launch = launched(name, "sm_90a")

    assert not launch.run.uncertain
    for place, expected in case.expected.items():
        got = case.args[place]
        if case.tolerance:
            away = np.abs(got.astype(np.float64) - expected.astype(np.float64)).max()
            assert away <= case.tolerance * np.abs(expected.astype(np.float64)).max()
        else:
            assert got.tobytes() == np.ascontiguousarray(expected).tobytes()
    measured = MEASURED[name]
    if measured["ptx"] == plain(launch.ptx):  # another version of Triton compiles otherwise
        memory = hashlib.sha256(b"".join(array.tobytes() for array in case.args if isinstance(array, np.ndarray)))
        assert memory.hexdigest()[:16] == measured["memory"]


@pytest.mark.parametrize("name", TENSOR_CASES)
def test_kernels_with_tensor_memory(name):
    """Both engines leave the same; products are those of gemm on sm_100, code by code, attention is near."""
    left = []
    for engine in ("reference", "compiled"):
        case = TENSOR_CASES[name](np.random.default_rng(0))
        with warpfrag.triton.emulate("sm_100a", engine=engine) as session:
            case.kernel[case.grid](*case.args, **case.meta)
        (launch,) = session.launches
        ((place, expected),) = case.expected.items()
        got = case.args[place]
        got = got if isinstance(got, np.ndarray) else got.base.numpy()
        has_tcgen05 = any(opcode.startswith("tcgen05.mma") for opcode in launch.run.counts.opcodes)
        assert has_tcgen05 == (name != "matmul_int8" or VERSION >= (3, 8))  # older versions use mma for int8
        if case.tolerance:
            away = np.abs(got.astype(np.float64) - expected.astype(np.float64)).max()
            assert away <= case.tolerance * np.abs(expected.astype(np.float64)).max()
        else:
            assert not launch.run.uncertain
            assert got.tobytes() == expected.tobytes()
        left.append((got.tobytes(), launch.run.inexact_lines))
    assert left[0] == left[1]


@pytest.mark.parametrize("name", HOPPER_CASES)
def test_kernels_with_descriptors_and_specialized_warps(name):
    """Both engines leave the same: products are those of gemm, attention is near, and all are what an H200 left."""
    skip_other_gluon(name)
    left = []
    for engine in ("reference", "compiled"):
        case = HOPPER_CASES[name](np.random.default_rng(0))
        with warpfrag.triton.emulate("sm_90a", engine=engine) as session:
            case.kernel[case.grid](*case.args, **case.meta)
        (launch,) = session.launches
        given = case.args[: max(case.expected) + 1]
        arrays = [arg if isinstance(arg, np.ndarray) else arg.base.numpy() for arg in given]
        left.append(b"".join(array.tobytes() for array in arrays))
        assert not launch.run.uncertain
        assert has_roles(launch) == name.endswith("_specialized")
        ((place, expected),) = case.expected.items()
        if case.tolerance:
            away = np.abs(arrays[place].astype(np.float64) - expected).max()
            assert away <= case.tolerance * np.abs(expected).max()
        else:
            assert arrays[place].tobytes() == expected.tobytes()
    assert left[0] == left[1]
    measured = MEASURED[name]
    if triton.__version__ == MEASURED["triton"]:  # it does not always order shared memory alike: the PTX may differ
        assert hashlib.sha256(left[0]).hexdigest()[:16] == measured["memory"]


def skip_other_gluon(name: str) -> None:
    if "gluon" in name and VERSION < (3, 8):
        pytest.skip("before Triton 3.8, Gluon has other names")


def has_roles(launch: warpfrag.triton.Launch) -> bool:
    """Specialised warps: there are more of them, they release registers, and some share barriers."""
    counts = launch.run.counts.opcodes
    roles = [name for name in counts if name.startswith(("setmaxnreg.", "USETMAXREG"))]
    arrivals = [name for name in counts if name.startswith(("mbarrier.arrive", "SYNCS.ARRIVE"))]
    return launch.block > 128 and len(roles) == 2 and bool(arrivals)


@pytest.mark.parametrize("name", [name for name in HOPPER_CASES if name.endswith("_specialized")])
def test_specialized_warps_are_ordered(name):
    """With a box of 64 rows, Triton passes the whole tile to both warpgroups: both store it, which nothing orders.

    Before version 3.8, Triton initialises some mbarriers twice.
    """
    skip_other_gluon(name)
    case = HOPPER_CASES[name](np.random.default_rng(0))
    with warpfrag.triton.emulate("sm_90a", checks="all") as session:
        case.kernel[case.grid](*case.args, **case.meta)
    findings = session.launches[0].run.findings
    if VERSION < (3, 8):
        assert {finding.text.partition(" ")[0] for finding in findings if finding.check == "barriers"} <= {
            "mbarrier.init.shared::cta.b64"
        }
        findings = [finding for finding in findings if finding.check != "barriers"]
    if name in {"persistent_host_specialized", "attention_host_specialized"}:
        (finding,) = findings
        assert finding.check == "async"
        assert str(finding).count("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group (in flight)") == 2
    else:
        assert not findings


def test_the_measured_kernels_are_those_of_a_known_version():
    if triton.__version__ != MEASURED["triton"]:
        pytest.skip(f"measured with Triton {MEASURED['triton']}")
    _, launch = launched("vector_add", "sm_90a")
    assert plain(launch.ptx) == MEASURED["vector_add"]["ptx"]


@triton.autotune(
    [triton.Config({"B": 128}, num_stages=4, num_warps=8), triton.Config({"B": 32}, num_warps=4)], key=["K"]
)
@triton.jit
def large_kernel(a, b, c, K, B: tl.constexpr):
    m = tl.arange(0, B)
    total = tl.zeros((B, B), tl.float32)
    for start in range(0, K, B):
        k = start + m
        tile_a = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < 32) & (k[None, :] < K), other=0.0)
        tile_b = tl.load(b + k[:, None] * 32 + m[None, :], mask=(k[:, None] < K) & (m[None, :] < 32), other=0.0)
        total = tl.dot(tile_a, tile_b, total)
    tl.store(c + m[:, None] * 32 + m[None, :], total, mask=(m[:, None] < 32) & (m[None, :] < 32))


def test_configurations_that_do_not_fit_are_skipped():
    """The first needs more shared memory than a block can have."""
    rng = np.random.default_rng(0)
    A, B, C = triton_kernels.floats(rng, 32, 64), triton_kernels.floats(rng, 64, 32), np.zeros((32, 32), np.float32)
    warpfrag.triton.run(large_kernel)[(1,)](A, B, C, 64)
    assert np.allclose(C, A @ B, atol=0.1)
    with pytest.raises(triton.runtime.errors.OutOfResources, match="shared memory"):
        warpfrag.triton.run(large_kernel, config={large_kernel: 0})[(1,)](A, B, C, 64)
    warpfrag.triton.run(large_kernel, config={tuned_kernel: 0})[(1,)](A, B, C, 64)  # of another kernel


def test_a_launch_can_be_debugged_and_profiled():
    x, out = np.arange(200, dtype=np.float32), np.zeros(200, np.float32)
    with warpfrag.triton.emulate() as session:
        triton_kernels.add_kernel[(2,)](x, x, out, 200, BLOCK=128)
    (launch,) = session.launches
    first = triton_kernels.add_kernel.starting_line_number
    assert repr(launch).startswith("<Launch of add_kernel: grid 2x1x1, block 128, shared 0 bytes; <Run: ")
    assert len(repr(launch)) < 250
    assert launch.arguments["out"] is out
    assert launch.arguments["n"] == 200
    assert {row.source.line for row in launch.profile().by_source} <= set(range(first, first + 6))
    debugger = launch.debug()
    debugger.break_at(source=f"triton_kernels.py:{first + 4}")
    stop = debugger.run()
    assert (stop.source.file.endswith("triton_kernels.py"), stop.source.line) == (True, first + 4)
    held = debugger.registers()
    assert any(codes.tolist() == list(range(32)) for codes in held.values())
    assert all(np.array_equal(debugger.register(name), codes) for name, codes in held.items())
    with pytest.raises(
        wf.errors.InvalidOperand,
        match=r"expected a PTX register of add_kernel, such as %\w+, .*, got 'i'; source variables cannot be read",
    ):
        debugger.register("i")  # a Python variable: no register is known to hold its value
    lines = f"no instruction at source line elsewhere.py:.*; lines with code: .*triton_kernels.py:{first + 4}"
    with pytest.raises(wf.errors.InvalidOperand, match=lines):
        debugger.break_at(source=f"elsewhere.py:{first + 4}")


def test_a_profile_charges_library_lines_to_the_kernel():
    x = np.arange(64, dtype=np.float32).reshape(2, 32)
    with warpfrag.triton.emulate() as session:
        triton_kernels.softmax_kernel[(1,)](np.zeros_like(x), x, 32, 2, 32, BLOCK=32)
    (launch,) = session.launches
    files = {row.source.file.rpartition("/")[2] for row in launch.profile().by_source if row.source}
    assert files == {"triton_kernels.py"}


def test_a_gpu_names_its_architecture(tmp_path):
    assert warpfrag.triton.emulate("A100").arch == "sm_80"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "warpfrag.pytest_plugin", "--triton-arch", "A1000"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert done.stderr.startswith(
        "ERROR: warpfrag.pytest_plugin: arch: expected an architecture that Triton supports"
    ), done


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100a", "sm_120"])
def test_any_architecture_is_compiled_for(arch):
    x = np.arange(200, dtype=np.float32)
    out = np.zeros_like(x)
    run = warpfrag.triton.run(triton_kernels.add_kernel, arch=arch)[(2,)](x, x, out, 200, BLOCK=128)

    assert (run.uncertain, run.arch, out.tolist()) == ((), arch, (2 * x).tolist())


def test_errors_name_the_line_and_the_argument():
    x = np.zeros(100, np.float32)
    line = triton_kernels.add_kernel.starting_line_number + 4
    with pytest.raises(wf.errors.PtxError, match=rf"^triton_kernels.py:{line} .*the nearest is x of 400 bytes") as info:
        warpfrag.triton.run(triton_kernels.add_kernel)[(1,)](x, x.copy(), x.copy(), 200, BLOCK=256)
    assert info.value.source == f"triton_kernels.py:{line}"
    with pytest.raises(wf.errors.PtxError, match=r"read-only"):
        warpfrag.triton.run(triton_kernels.add_kernel)[(1,)](x, x, np.broadcast_to(np.float32(1), 100), 100, BLOCK=128)
    run = warpfrag.triton.run(triton_kernels.add_kernel, checks=["memory"])[(1,)](x, x, x, 100, BLOCK=128)
    assert [source.line for source in run.source_counts][-1] == line


@triton.jit
def doubled(out, i):
    tl.store(out + i, 2 * tl.sum(tl.load(out + i)))


@triton.jit
def calling_kernel(out, BLOCK: tl.constexpr):
    doubled(out, tl.arange(0, BLOCK))


def test_inlined_functions_are_quoted_with_the_call():
    """Triton's own tl.sum is not quoted; the user's function and its call are."""
    call = calling_kernel.starting_line_number + 2
    with pytest.raises(wf.errors.PtxError) as info:
        warpfrag.triton.run(calling_kernel)[(1,)](np.zeros(100, np.float32), BLOCK=128)
    name, store = Path(__file__).name, doubled.starting_line_number + 2
    assert info.value.source == f"{name}:{call} (in {name}:{store})"
    assert str(info.value).split("\n")[1:] == [
        f"    {name}:{store}: tl.store(out + i, 2 * tl.sum(tl.load(out + i)))",
        f"    {name}:{call}: doubled(out, tl.arange(0, BLOCK))",
    ]
    run = warpfrag.triton.run(calling_kernel)[(1,)](np.zeros(128, np.float32), BLOCK=128)
    assert {row[0]: row[-1] for row in run.profile.table()[1]} == {
        f"{name}:{call}": "doubled(out, tl.arange(0, BLOCK))",
        f"{name}:{calling_kernel.starting_line_number + 1}": "def calling_kernel(out, BLOCK: tl.constexpr):",
    }


@triton.jit
def endless_kernel(out, n):
    i = n * 0
    while i < n:
        tl.store(out, i)
        i += n * 0


def test_a_line_without_a_source_is_quoted_from_the_ptx():
    with pytest.raises(wf.errors.PtxError, match=r"stopped after 0.5 s .*\n    the PTX: \S") as caught:
        warpfrag.triton.run(endless_kernel, arch="sm_80", seconds=0.5)[(1,)](np.zeros(1, np.int32), 5)
    assert caught.value.source == ""


@triton.autotune([triton.Config({"BLOCK": size}, num_warps=size // 64) for size in (64, 128, 256)], key=["n"])
@triton.heuristics({"IS_EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned_kernel(out, n, IS_EVEN: tl.constexpr, BLOCK: tl.constexpr, OFFSET: tl.constexpr = 7):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, BLOCK + OFFSET + IS_EVEN, None if IS_EVEN else i < n)


@pytest.mark.parametrize(
    ("config", "n", "value"),
    [(None, 256, 72), (None, 250, 71), (2, 256, 264), ({"BLOCK": 128}, 256, 136), ({"num_warps": 4}, 250, 263)],
)
def test_autotuned_kernels_run_one_configuration(config, n, value):
    out = np.zeros(n, np.int32)
    run = warpfrag.triton.run(tuned_kernel, config=config)[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](out, n)

    assert not run.uncertain
    assert set(out.tolist()) == {value}
    assert len(tuned_kernel.configs) == 3
    assert tuned_kernel.cache == {}  # a GPU of this process would measure for itself


def test_configurations_that_do_not_exist_are_refused():
    for wanted in (7, {"BLOCK": 5}, "fast", True):
        with pytest.raises(
            wf.errors.InvalidOperand, match=r"config: expected one of the kernel's configurations \(0: BLOCK: 64"
        ):
            _choose(tuned_kernel, tuned_kernel.configs, wanted)
    assert _choose(tuned_kernel, [], tuned_kernel.configs[1]) == [tuned_kernel.configs[1]]


@triton.jit
def arguments_kernel(out, pair, nothing, a: tl.int64, flag, ONE, f16: tl.float16):
    tl.store(out, pair[0] + pair[1] + a + flag + ONE + (1000 if nothing is None else 0) + f16.to(tl.float64))


def test_arguments_of_every_kind_arrive():
    out = np.zeros(1)
    warpfrag.triton.run(arguments_kernel)[(1,)](out, (3, np.int32(4)), None, -(2**40), True, 1, 0.5)  # 1 is a constexpr

    assert out.tolist() == [3 + 4 + 1000 - 2**40 + 1 + 1 + 0.5]
    assert warpfrag.triton.run(arguments_kernel)[(0,)](out, (3, 4), None, 1, True, 1, 0.5) is None  # an empty grid
    with pytest.raises(wf.errors.InvalidOperand, match="expected an array of numbers, got an array of dtype object"):
        warpfrag.triton.run(arguments_kernel)[(1,)](np.array([None]), (3, 4), None, 1, True, 1, 0.5)


@triton.jit
def descriptor_kernel(x, out, M, N, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BLOCK, BLOCK])
    target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BLOCK, BLOCK])
    at = [tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK]
    target.store(at, source.load(at) + 1)


def test_descriptors_are_plain_accesses_where_there_is_no_tma():
    x = np.arange(40 * 24, dtype=np.float32).reshape(40, 24)
    out = np.zeros_like(x)
    run = warpfrag.triton.run(descriptor_kernel, arch="sm_80")[(3, 2)](x, out, 40, 24, BLOCK=16)

    assert not run.uncertain
    assert np.array_equal(out, x + 1)


@triton.jit
def copy_kernel(source, target, BLOCK: tl.constexpr):
    at = [tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK]
    target.store(at, source.load(at) + 1)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_descriptors_of_the_host(arch):
    """Plain accesses, or tensor maps if the architecture has TMA."""
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    from triton.tools.tensor_descriptor import TensorDescriptor

    memory = torch.arange(64 * 96 + 8, dtype=torch.float16) % 100
    x = memory[8:].reshape(64, 96)  # a view
    y = torch.zeros_like(x)
    arguments = [TensorDescriptor.from_tensor(tensor, [32, 32]) for tensor in (x, y)]
    launch = warpfrag.triton.run(copy_kernel, arch=arch)[(2, 3)]
    assert not launch(*arguments, BLOCK=32).uncertain
    assert torch.equal(y, x + 1)


def test_tables_of_pointers_are_device_arrays():
    """A grouped product: each group has its own matrices, which the kernel finds by their addresses."""
    rng = np.random.default_rng(0)
    sizes = np.array([[32, 48, 16], [20, 16, 64]], np.int32)
    groups = [
        [triton_kernels.floats(rng, M, K, dtype=np.float16), triton_kernels.floats(rng, K, N, dtype=np.float16)]
        for M, N, K in sizes
    ]
    out = [np.zeros((M, N), np.float16) for M, N, _ in sizes]
    tables = [wf.ptx.DeviceArray(list(arrays)) for arrays in (*zip(*groups, strict=True), out)]
    run = warpfrag.triton.run(triton_kernels.grouped_kernel)[(3,)](
        *(table.array for table in tables), sizes, 2, BLOCK=16
    )

    assert not run.uncertain
    for (A, B), D in zip(groups, out, strict=True):
        assert np.allclose(A.astype(np.float32) @ B.astype(np.float32), D, rtol=2e-3, atol=2e-3)


def test_a_watchpoint_names_an_argument():
    """Views and the caller's arrays are found in the copies on which the debugger runs."""
    memory = np.zeros(12, np.float32)
    out = memory[4:].reshape(2, 4)
    with warpfrag.triton.emulate("sm_90a") as session:
        triton_kernels.add_kernel[(1,)](np.ones(8, np.float32), np.ones(8, np.float32), out, 8, BLOCK=32)
    (launch,) = session.launches
    for given in (list(launch.arguments)[2], out, launch.arguments[list(launch.arguments)[2]]):
        debugger = launch.debug()
        point = debugger.watch(given, (1, 1))
        stop = debugger.run()
        assert (stop.reason, point.size) == ("watchpoint", 4)
        assert (np.frombuffer(stop.old, np.float32), np.frombuffer(stop.new, np.float32)) == (0, 2)
    with pytest.raises(wf.errors.InvalidOperand, match="expected an array argument"):
        launch.debug().watch("nothing", (1, 1))


def test_a_grid_may_be_one_number():
    x = np.ones(8, np.float32)
    assert warpfrag.triton.run(triton_kernels.add_kernel)[1](x, x, x, 8, BLOCK=32).counts.instructions
    assert x.tolist() == [2] * 8


def test_what_is_no_kernel_and_no_target_is_refused(monkeypatch):
    with pytest.raises(wf.errors.InvalidOperand, match="expected a kernel decorated with @triton.jit, got <function"):
        warpfrag.triton.run(plain)
    for arch in ("sm_70", "gfx942", 90, "sm_90b"):
        with pytest.raises(
            wf.errors.InvalidOperand, match=r"arch: expected an architecture that Triton supports \(sm_75, sm_80"
        ):
            warpfrag.triton.emulate(arch)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    interpreted = triton.jit(triton_kernels.add_kernel.fn)
    with pytest.raises(wf.errors.InvalidOperand, match="unset TRITON_INTERPRET"):
        warpfrag.triton.run(interpreted)


def test_sessions_nest_and_leave_nothing_behind():
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    before = driver._active, JITFunction.run, CUDABackend.add_stages, CUDABackend.hash
    x = np.zeros(8, np.float32)
    with warpfrag.triton.emulate("sm_80") as outer:
        triton_kernels.add_kernel[(1,)](x, x, x, 8, BLOCK=32)
        with warpfrag.triton.emulate("sm_90a", seed=1) as inner:
            triton_kernels.add_kernel[(1,)](x, x, x, 8, BLOCK=32)
        triton_kernels.add_kernel[(1,)](x, x, x, 8, BLOCK=32)
    assert (driver._active, JITFunction.run, CUDABackend.add_stages, CUDABackend.hash) == before
    assert [launch.run.arch for launch in outer.launches + inner.launches] == ["sm_80", "sm_80", "sm_90a"]
    assert (outer.launches[0].kernel, outer.launches[0].grid, outer.launches[0].block) == ("add_kernel", (1, 1, 1), 128)
    assert repr(inner) == "<Triton on sm_90a: 1 launch>"
    assert re.match("<Launcher of JITFunction", repr(warpfrag.triton.run(triton_kernels.add_kernel)))


@pytest.mark.filterwarnings("ignore")  # of PyTorch's compiler about itself
def test_compiled_functions_run_as_triton_kernels():
    torch = pytest.importorskip("torch", reason="needs the extra torch")

    def softmax(x, y):
        return torch.softmax(x * y + 1, -1).sum(0)

    with warpfrag.triton.emulate("sm_90a", inductor=True) as session:
        x = torch.randn(8, 16, device="cuda")
        y = torch.randn_like(x)
        out = torch.compile(softmax)(x, y)
        assert out.is_cuda
        assert torch.allclose(out, softmax(x, y), atol=1e-6)
    assert [launch.kernel.startswith("triton_") for launch in session.launches] == [True] * len(session.launches)
    assert session.launches
    assert torch.compile.__module__ == "torch"


def test_what_emulate_does_not_replace_is_named():
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    with warpfrag.triton.emulate():
        with pytest.raises(wf.errors.NotModelled, match=r"torch.cuda.CUDAGraph needs .*`warpfrag gpu -- python"):
            torch.cuda.CUDAGraph()
        assert torch.cuda.CUDAGraph | None  # libraries annotate with it
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.current_stream().synchronize()
        end.record()
        assert start.elapsed_time(end) >= 0
