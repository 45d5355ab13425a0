"""CUDA C++ through the installed nvcc: compiled, cached by content, launched with structs and shared memory."""

import json

import numpy as np
import pytest

import warpfrag as wf
from oracle import toolkit
from warpfrag import cuda_tools
from warpfrag.cli import main
from warpfrag.ptx import nvcc

pytestmark = pytest.mark.one_engine
SOURCE = """#include "factor.h"
struct Params { int n; float bias; short steps; };

__global__ void reversed(Params p, const float *x, float *out) {
    extern __shared__ float tile[];
    int i = threadIdx.x;
    if (i < p.n) tile[i] = x[i];
    __syncthreads();
    if (i < p.n) out[i] = FACTOR * tile[p.n - 1 - i] + p.bias + p.steps;
}
"""
PARAMS = np.dtype([("n", np.int32), ("bias", np.float32), ("steps", np.int16)], align=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    toolkit.find_nvcc()
    monkeypatch.setenv("WARPFRAG_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "factor.h").write_text("#define FACTOR 3\n", encoding="utf-8")
    (tmp_path / "kernel.cu").write_text(SOURCE, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_a_file_is_compiled_once_and_again_when_a_header_changes(folder, monkeypatch):
    started = []
    original = nvcc._run
    monkeypatch.setattr(nvcc, "_run", lambda command, *where: started.append(command) or original(command, *where))
    x, out = np.arange(40, dtype=np.float32), np.zeros(40, np.float32)
    params = np.array((40, 0.5, 2), PARAMS)

    def launch():
        module = wf.ptx.compile(folder / "kernel.cu", arch="sm_90a", options=["-I", str(folder)])
        return module, module["reversed"].launch(1, 64, [params, x, out], shared=160)

    module, run = launch()
    assert (module.target, run.uncertain, out.tolist()) == ("sm_90a", (), (3 * x[::-1] + 2.5).tolist())
    assert {source.line for source in run.source_counts} >= {7, 9}
    compiled = len(started)
    launch()
    assert len(started) == compiled  # nvcc was not asked again
    (folder / "factor.h").write_text("#define FACTOR 4\n", encoding="utf-8")
    launch()
    assert out.tolist() == (4 * x[::-1] + 2.5).tolist()
    with pytest.raises(wf.errors.PtxError, match=r"^kernel.cu:7 \(line \d+ of the PTX\): ld.global"):
        module["reversed"].launch(1, 64, [np.array((41, 0, 0), PARAMS)[()], x, out], shared=256)


INLINED = """__device__ __forceinline__ void put(float *out, int i, const float *x) {
    out[i] = __shfl_xor_sync(~0u, x[i], 1) * 2.0f;  // a function of a header of CUDA
}

__global__ void swapped(const float *x, float *out) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    put(tile, i, x);
    out[i] = tile[63 - i];
}
"""


def test_inlined_lines_are_quoted_with_the_call(folder, monkeypatch, capsys):
    """The finding, the error, the debugger, the profile and explain quote the user's lines, never the header's."""
    (folder / "swapped.cu").write_text(INLINED, encoding="utf-8")
    kernel = wf.ptx.compile(folder / "swapped.cu")["swapped"]
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    store, call = (
        "    swapped.cu:2: out[i] = __shfl_xor_sync(~0u, x[i], 1) * 2.0f;  // a function of a header of CUDA",
        "    swapped.cu:8: put(tile, i, x);",
    )
    (race,) = kernel.launch(1, 64, [x, out], checks="all").findings
    assert str(race.other.source) == "swapped.cu:8 (in swapped.cu:2)"
    assert str(race).split("\n")[1:] == ["    swapped.cu:9: out[i] = tile[63 - i];", store, call]
    debugger = kernel.debug(1, 64, [x, out])
    debugger.break_at(opcode="st.shared", source="swapped.cu:8")
    stop = debugger.run()
    assert str(stop).split("\n")[1:] == [store, call]
    assert "\n" not in repr(stop) + repr(debugger)
    with kernel.debug(1, 64, [x, out]) as debugger:
        debugger.break_at(opcode="shfl.sync")
        assert str(debugger.run()).split("\n")[1:] == [store, call]
        assert debugger.stop.source.file.endswith(".hpp")
    rows = {row[0]: row[-1] for row in kernel.launch(1, 64, [x, out]).profile.table()[1]}
    assert rows["swapped.cu:8"] == "put(tile, i, x);"
    with pytest.raises(wf.errors.PtxError, match=r"\n    swapped.cu:8: put\(tile, i, x\);$"):
        kernel.launch(1, 64, [x[:9], out])
    np.save(folder / "x.npy", x)
    monkeypatch.chdir(folder)
    arguments = ["--grid", "1", "--block", "64", "--arg", "x.npy", "--arg", "out:f32:64"]
    assert main(["ptx", "explain", "swapped.cu:2", *arguments]) == 0
    assert f"{store}\n{call}\n" in capsys.readouterr().out
    assert main(["ptx", "run", "swapped.cu", *arguments[:-1], "out:f32:9"]) == 2
    assert capsys.readouterr().err.endswith("\n    swapped.cu:9: out[i] = tile[63 - i];\n")


def test_explain_finds_a_statement_by_its_first_line(folder, monkeypatch, capsys):
    """nvcc 13.0 gives the instructions of an asm statement the line of its operands, nvcc 13.4 the first."""
    body = """    float x[2] = {};
    asm volatile("fma.rn.f32 %0, %1, %1, %1;"
                 : "+f"(x[0]) : "f"(x[1]));
    out[0] = x[0];"""
    text = f"__global__ void one(float *out) {{\n{body}\n}}\n"
    (folder / "one.cu").write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    arguments = ["--grid", "1", "--block", "1", "--arg", "out:f32:1"]
    assert main(["ptx", "explain", "one.cu:3", *arguments]) == 0
    assert {"one.cu:3", "one.cu:4"} & set(capsys.readouterr().out.split())
    assert main(["ptx", "explain", "one.cu:2", *arguments]) == 2
    assert "has no instruction at one.cu:2; the nearest lines with instructions are" in capsys.readouterr().err


def test_a_copy_of_a_compiled_file_has_its_own_lines(folder):
    """PTX is cached by content, so a hit may have been compiled from a file whose text has changed since."""
    first, second = folder / "first.cu", folder / "second.cu"
    for file in (first, second):
        file.write_text(INLINED, encoding="utf-8")
        module = wf.ptx.compile(file)
    first.write_text("changed\n" * 9, encoding="utf-8")
    lines = [source.outermost for source in module.sources.values()]
    assert {line.file for line in lines} == {str(second)}
    assert "changed" not in {line.text for line in lines}


def test_what_nvcc_refuses_is_said_in_its_words(folder):
    with pytest.raises(wf.ptx.CompilationFailed) as info:
        wf.ptx.compile("__global__ void f() {\n    int x = unknown;\n}", options=["-DUNUSED"])
    assert str(info.value).startswith('nvcc cannot compile kernel.cu: kernel.cu(2): error: identifier "unknown"')


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        (7, {}, wf.errors.InvalidOperand, "expected a path or the text of a CUDA C\\+\\+ file, got 7"),
        ("missing.cu", {}, wf.errors.FileError, "missing.cu"),
        ("a\nb", {"arch": "sm_1"}, wf.errors.InvalidOperand, "arch: expected a target such as sm_90a, got 'sm_1'"),
        ("a\nb", {"options": "-DN=4"}, wf.errors.InvalidOperand, "options: expected a list of words"),
        ("a\nb", {"options": ["-arch=sm_80"]}, wf.errors.InvalidOperand, "'-arch=sm_80' is not allowed"),
        ("a\nb", {"options": ["-o"]}, wf.errors.InvalidOperand, "'-o' is not allowed"),
    ],
)
def test_what_cannot_be_compiled_is_refused_before(source, options, error, message):
    with pytest.raises(error, match=message):
        wf.ptx.compile(source, **options)


def test_without_nvcc_cuda_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(cuda_tools, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(wf.errors.MissingExtra, match=r"nvcc, which compiles .*pip install '\.\[assembler\]'"):
        wf.ptx.compile("a\nb")


@pytest.mark.slow
def test_the_command_takes_cuda(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    source = "#include <math.h>\n__global__ void half(float *x) { x[threadIdx.x] *= 0.5f; }\n"
    (folder / "half.cu").write_text(source, encoding="utf-8")
    np.save("x.npy", np.arange(4, dtype=np.float32))

    assert main(["ptx", "run", "half.cu", "--arch", "sm_80", "--block", "4", "--arg", "x.npy", "-o", "out.npz"]) == 0
    assert np.load("out.npz")["x"].tolist() == [0, 0.5, 1, 1.5]
    assert main(["ptx", "info", "half.cu"]) == 0
    assert "for sm_90a" in capsys.readouterr().out
    (folder / "half.cu").write_text("__global__ void half(float *x) { y; }\n", encoding="utf-8")
    assert main(["ptx", "info", "half.cu"]) == 2
    assert 'half.cu(1): error: identifier "y" is undefined' in capsys.readouterr().err


TILE = """#include <cstdint>
template <typename T>
__global__ void tile(const uint32_t *A, const uint32_t *B, T *D) {
    int g = threadIdx.x >> 2, t = threadIdx.x & 3;
    uint32_t a[4] = {A[g * 8 + t], A[(g + 8) * 8 + t], A[g * 8 + t + 4], A[(g + 8) * 8 + t + 4]};
    float d[4];
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(B[g * 8 + t]), "r"(B[g * 8 + t + 4]), "f"(0.f));
    D[g * 8 + 2 * t] = d[0];
}
"""


def test_the_debugger_stops_once_per_line_and_shows_floats(folder):
    text = """extern "C" __global__ void k(const float *x, float *y) {
    float a = x[threadIdx.x];
    y[threadIdx.x] = a * a + 2.0f * a + 1.5f;
}
"""
    (folder / "poly.cu").write_text(text, encoding="utf-8")
    x, y = np.linspace(0, 1, 32, dtype=np.float32), np.zeros(32, np.float32)
    with wf.ptx.compile(folder / "poly.cu")["k"].debug(grid=1, block=32, args=[x, y]) as debugger:
        point = debugger.break_at(source="poly.cu:3")
        stops = [*iter(debugger.run, None)]
        assert (len(stops), point.hits) == (1, 1)
    with wf.ptx.compile(folder / "poly.cu")["k"].debug(grid=1, block=32, args=[x, y]) as debugger:
        debugger.break_at(opcode="st.global")
        debugger.run()
        name = debugger.instruction.sources[1].name
        assert debugger.register(name).dtype == np.float32
        assert np.allclose(debugger.register(name), x * x + 2 * x + 1.5)
        assert np.array_equal(debugger.register(name, raw=True).view(np.float32), debugger.register(name))
        assert np.array_equal(debugger.registers()[name], debugger.register(name))


def test_a_line_of_the_cuda_file_is_explained(folder, monkeypatch, capsys):
    """The template is instantiated by its name; the columns of B are stored one after the other."""
    monkeypatch.chdir(folder)
    (folder / "tile.cu").write_text(TILE, encoding="utf-8")
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal(shape).astype(np.float16) for shape in ((16, 16), (8, 16)))
    np.save("a.npy", A)
    np.save("b.npy", B)
    arguments = ["--block", "32", "--arg", "a.npy", "--arg", "b.npy", "--arg", "d:f32:16x8"]
    command = ["--entry", "tile<float>", *arguments, "--json"]
    assert main(["ptx", "explain", "tile.cu:7", *command]) == 0
    facts = json.loads(capsys.readouterr().out)["instruction"]
    values = {operand["name"]: np.array(operand["values"]) for operand in facts["operands"]}
    assert (facts["source"], facts["name"].split(".")[0]) == ("tile.cu:7", "mma")
    assert np.array_equal(values["a"], A.astype(float))
    assert np.array_equal(values["b"], B.T.astype(float))
    assert main(["ptx", "explain", "tile.cu:1", *command[:-1]]) == 2
    assert "void tile<float>(unsigned int const*" in (message := capsys.readouterr().err)
    assert "no instruction at tile.cu:1; the nearest lines with instructions are 3, 4, 5, 7" in " ".join(
        message.split()
    )


def test_templates_are_instantiated_by_name(folder):
    module = wf.ptx.compile(TILE, instantiate=["tile<float>", "tile< double >"])
    assert sorted(kernel.readable_name.partition("(")[0] for kernel in module.values()) == [
        "void tile<double>",
        "void tile<float>",
    ]
    with pytest.raises(wf.errors.CompilationFailed, match=r"no instance of function template|tile"):
        wf.ptx.compile(TILE, instantiate=["tile<3>"])
    for wrong in ("tile<float>", ["tile<float>; int x"], [3]):
        with pytest.raises(wf.errors.InvalidOperand, match="instantiate: expected a list of templates"):
            wf.ptx.compile(TILE, instantiate=wrong)


def test_the_headers_of_cccl_are_found(tmp_path, monkeypatch):
    program = tmp_path / "toolkit/bin/nvcc"
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(nvcc, "package_folders", lambda name: [tmp_path / "site" / name])
    assert nvcc.cccl_folder(program) is None
    folders = [tmp_path / "site/cuda/cccl/headers/include", tmp_path / "site/nvidia/cu13/include/cccl",
               tmp_path / "home/include/cccl", tmp_path / "toolkit/include/cccl"]  # fmt: skip
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    for folder in folders:
        (folder / "cub").mkdir(parents=True)
        assert nvcc.cccl_folder(program) == folder


@pytest.mark.usefixtures("folder")
def test_a_sample_is_compiled():
    assert list(wf.ptx.compile("sample:tile.cu", arch="sm_80")) == ["tile"]
