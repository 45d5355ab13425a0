"""`warpfrag test`: what a file may say, what passes, what fails and why, and what is not run without trust."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec

import numpy as np
import pytest

import warpfrag as wf
from oracle import toolkit
from warpfrag.cli import main
from warpfrag.grading.expressions import FUNCTIONS, evaluate
from warpfrag.grading.grade import grade
from warpfrag.grading.suite import read_suite

SCALE = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry scale(.param .u64 x, .param .u64 out, .param .f32 factor, .param .u32 n)
{
    .reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<6>; .reg .f32 %f<4>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [out];
    ld.param.f32 %f1, [factor];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 ret;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4];
    mul.f32 %f3, %f2, %f1;
    st.global.f32 [%rd5], %f3;
    ret;
}
.visible .entry forever()
{
again:
    bra again;
}
"""
CUDA = """
extern "C" __global__ void scale(const float *x, float *out, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = FACTOR * factor * x[i];
}
"""
STRUCT = """{ name = "p", fields = [
    { name = "factor", value = 1.5, dtype = "float32" }, { name = "n", value = 100, dtype = "int32" },
] },"""
TEST = """
[[test]]
name = "scale"
kernel = "scale.ptx"
entry = "scale"
grid = 4
block = 32
args = [
    { name = "x", expr = "normal(100, seed=3)", dtype = "float32" },
    { name = "out", out = [100], dtype = "float32" },
    { name = "factor", value = 1.5, dtype = "float32" },
    { name = "n", value = 100, dtype = "int32" },
]
expect = { out = "factor * x" }
"""


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """A function that writes a file, with parts of `TEST` replaced, and runs its first test."""
    (tmp_path / "scale.ptx").write_text(SCALE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def run(*replaced: tuple[str, str], more: str = "", trust: bool = False, text: str = TEST):
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "tests.toml").write_text(text + more, encoding="utf-8")
        return grade(read_suite("tests.toml")[0], trust=trust)

    return run


def test_a_kernel_that_is_right_passes(suite):
    result = suite(more="exact = true\nchecks = ['memory', 'barriers']\nlimit = 1000")

    assert (result.passed, result.reason, result.exact, result.arch) == (True, "", False, "sm_90")
    assert result.instructions > 0


@pytest.mark.parametrize(
    ("replaced", "reason"),
    [
        ([('"factor * x"', '"factor * x + (arange(100) == 7)"')], r"^out\[7\] is .*, expected .*\(1 of 100 elements"),
        ([("grid = 4", "grid = 3")], r"^out\[96\] was never written, nor 3 other elements of 100$"),
        ([("value = 100,", "value = 0,")], "^out was never written$"),
        ([("out = [100]", "out = [50]")], r"line \d+: st.global.f32 .* outside every allocation"),
        ([('"factor * x"', '"zeros(99)"')], r"^out has shape \(100,\), and shape \(99,\) is expected$"),
        ([('{ out = "factor * x" }', '{ x = "1 * x" }')], "^x is expected to hold what it held before the launch"),
        ([('{ out = "factor * x" }', '{ factor = "1" }')], "^factor is no array$"),
        ([("block = 32", "block = 32\nlimit = 20")], "20"),
        ([('entry = "scale"', "")], r"^scale.ptx has 2 entries \(scale, forever\): expected entry$"),
        ([('"normal(100', '"nomral(100')], "there is no function 'nomral'; nearest normal$"),
        ([("scale.ptx", "other.ptx")], "other.ptx"),
    ],
)  # fmt: skip
def test_a_kernel_that_is_wrong_fails_with_a_reason(suite, replaced, reason):
    result = suite(*replaced)

    assert not result.passed
    assert re.search(reason, result.reason), result.reason


@pytest.mark.parametrize(
    ("expect", "passed"),
    [
        ("{ expr = 'factor * x * 1.0001', rtol = 1e-3 }", True),
        ("{ expr = 'factor * x * 1.0001', rtol = 1e-6 }", False),
        ("{ expr = 'factor * x + 1e-3', atol = 1e-2 }", True),
        ("{ expr = 'cast(factor * x * (1 + 1e-7), \"float32\")', ulps = 2 }", True),
        ("{ expr = 'factor * x * (1 + 1e-5)', ulps = 2 }", False),
        ("{ file = 'expected.npy' }", True),
    ],
)
def test_tolerances_and_files(suite, tmp_path, expect, passed):
    x = np.random.default_rng(3).standard_normal(100).astype(np.float32)
    np.save(tmp_path / "expected.npy", np.float32(1.5) * x)

    assert suite(('"factor * x"', expect)).passed == passed


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        (("entry =", "enrty ="), "scale: there is no key 'enrty'; nearest entry"),
        (("[[test]]", "[test]"), r"expected tables \[\[test\]\]"),
        (
            ('{ out = "factor * x" }', '{ y = "1" }'),
            "expect names 'y', which is none of the arguments: x, out, factor, n",
        ),
        (('expect = { out = "factor * x" }', ""), "a test must test something"),
        (('kernel = "scale.ptx"', "kernel = 7"), "expected kernel as the name of a file, got 7"),
        (
            ("out = [100]", 'out = [100], expr = "x"'),
            "expected one of value, expr, file, out, null, fields, got expr, out",
        ),
        ((', dtype = "int32"', ""), "expected a dtype such as 'float32' beside value"),
        (("grid = 4", "shared = 'all'"), "shared cannot be 'all'"),
        (("[[test]]", "[[test"), "is no TOML"),
        (('"factor * x"', "{ rtol = 1 }"), "expected an expression, or a table with expr or file"),
        (('"factor * x"', '{ expr = "x", rtol = -1 }'), "expected rtol, atol, ulps as numbers of at least 0"),
    ],
)
def test_files_that_cannot_be_used_are_refused(suite, replaced, message):
    with pytest.raises(wf.UnusableFile, match=message):
        suite(replaced)


@pytest.mark.parametrize(
    ("replaced", "why"),
    [
        (("scale.ptx", "scale.cu"), "compiled by nvcc"),
        (("scale.ptx", "scale.py:scale"), "Python"),
        (("expect = {", 'reference = "scale.py:f"\nexpect = {'), "reference 'scale.py:f' is Python"),
        (('expr = "normal(100, seed=3)"', 'file = "../x.npy"'), "'../x.npy' is outside the folder of the file"),
        (("scale.ptx", "/etc/passwd"), "'/etc/passwd' is outside the folder of the file"),
    ],
)  # fmt: skip
def test_nothing_but_ptx_runs_without_trust(suite, tmp_path, replaced, why):
    (tmp_path / "scale.py").write_text("raise SystemExit('it ran')", encoding="utf-8")
    result = suite(replaced)

    assert not result.passed
    assert why in result.reason
    assert result.reason.endswith("it is run only with --trust")


def test_references_in_python_and_kernels_in_cuda_run_with_trust(suite, tmp_path):
    toolkit.find_nvcc()
    (tmp_path / "scale.cu").write_text(CUDA, encoding="utf-8")
    (tmp_path / "right.py").write_text("def f(x, factor, n):\n    return {'out': 2 * factor * x}\n", encoding="utf-8")
    replaced = [
        ("scale.ptx", "scale.cu"),
        ('expect = { out = "factor * x" }', 'reference = "right.py:f"\noptions = ["-DFACTOR=2"]'),
    ]

    assert suite(*replaced, trust=True).passed


@pytest.mark.skipif(find_spec("triton") is None, reason="needs the extra triton")
def test_kernels_of_triton_run_with_trust(suite, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    source = """import triton
import triton.language as tl
@triton.jit
def scale(x, out, factor, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) * factor, i < n)
"""
    (tmp_path / "kernels.py").write_text(source, encoding="utf-8")
    result = suite(("scale.ptx", "kernels.py:scale"), ('entry = "scale"', "meta = { BLOCK = 32 }"), trust=True)

    assert (result.passed, result.reason) == (True, "")


def test_structs_and_null_pointers(suite, tmp_path):
    text = SCALE.partition(".visible .entry forever")[0]
    text = text.replace(".param .f32 factor, .param .u32 n", ".param .align 4 .b8 p[8]")
    text = text.replace("[factor]", "[p]").replace("[n]", "[p+4]")
    (tmp_path / "struct.ptx").write_text(text, encoding="utf-8")
    old = '{ name = "factor", value = 1.5, dtype = "float32" },\n    { name = "n", value = 100, dtype = "int32" },'

    assert suite(("scale.ptx", "struct.ptx"), (old, STRUCT)).passed
    replaced = [(old, STRUCT), ("scale.ptx", "struct.ptx"), ('out = [100], dtype = "float32"', "null = true")]
    assert "4 bytes at 0x0 are outside every allocation" in suite(*replaced, ("{ out =", "{ x =")).reason


def test_the_command_reports_and_stops_what_never_ends(suite, tmp_path, capsys):
    more = """
[[test]]
name = "endless"
kernel = "scale.ptx"
entry = "forever"
seconds = 2
args = []
reference = "none.py:f"

[[test]]
name = "wrong"
kernel = "scale.ptx"
entry = "scale"
grid = 4
args = [{ expr = "ones(100)", dtype = "float32" }, { name = "out", out = 100, dtype = "float32" },
        { value = 2, dtype = "float32" }, { value = 100, dtype = "int32" }]
expect = { out = "3" }
"""
    (tmp_path / "none.py").write_text("def f():\n    return {'out': 1}\n", encoding="utf-8")
    suite(more=more)

    assert main(["test", "tests.toml", "--trust", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["passed"], answer["failed"]) == (1, 2)
    assert [(test["name"], test["reason"]) for test in answer["tests"]] == [
        ("scale", ""),
        ("endless", "it took more than 2 seconds"),
        ("wrong", "out[0] is 2.0, expected 3.0 (100 of 100 elements differ)"),
    ]
    assert main(["test", "tests.toml", "--only", "scale"]) == 0
    assert capsys.readouterr().out == "ok      scale, not exact on sm_90\n1 passed, 0 failed\n"
    assert main(["test", "tests.toml", "--only", "nothing"]) == 2
    assert "no test has this in its name; there are scale, endless, wrong" in capsys.readouterr().err


# Expressions


def test_expressions_are_numpys():
    x = np.arange(6.0).reshape(2, 3)
    expected = {
        "x.T @ x": x.T @ x,
        "where(x > 2, x, -x)[:, ::2]": np.where(x > 2, x, -x)[:, ::2],
        "x.sum(axis=1) / x.shape[1]": x.mean(1),
        "cast(x, 'float16') ** 2": x.astype(np.float16) ** 2,
        "reshape(arange(1, 7), (3, 2)) % 2 == 0": np.arange(1, 7).reshape(3, 2) % 2 == 0,
        "~(arange(4) & 1) | 6 ^ 1 << 2": ~(np.arange(4) & 1) | 6 ^ 1 << 2,
        "bincount(arange(5), 5) + ones(5, dtype='int32')": np.full(5, 2),
        "max(x) + pi + x[1, None, 2]": x.max() + np.pi + x[1, None, 2],
        "zeros(3) + eye(3) + linspace(0, 1, 3) * full(3, 2)": np.eye(3) + np.arange(3),
        "outer(arange(2), x[0])": np.multiply.outer(np.arange(2), x[0]),
        "broadcast_to(x[0], [2, 3]).astype('int8')": np.tile(np.arange(3, dtype=np.int8), (2, 1)),
        "uniform(3, seed=1) < normal([3]) + integers(0, 9, 3)": (
            np.random.default_rng(1).random(3)
            < np.random.default_rng(0).standard_normal(3) + np.random.default_rng(0).integers(0, 9, 3)
        ),
    }
    for text, value in expected.items():
        assert np.array_equal(evaluate(text, {"x": x}), value), text
    assert len(FUNCTIONS) > 50


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__import__('os').system('true')", "there is no function '__import__'"),
        ("x.__class__", "there is no attribute '__class__'"),
        ("x.tofile('f')", "there is no method 'tofile'"),
        ("(lambda: 1)()", "there is no function"),
        ("[y for y in x]", "ListComp is not understood here"),
        ("f'{x}'", "JoinedStr is not understood here"),
        ("y", "there is no name 'y'; the names are x, pi, e, inf, nan"),
        ("10 ** 100", "an exponent of 100 is too large"),
        ("9 ** 60", "an integer of more than 64 bits"),
        ("zeros([100000, 100000])", "expected at most 268435456 elements"),
        ("arange(10 ** 12)", "expected at most 268435456 elements"),
        ("'a' * 1000000000", "operators are for numbers and arrays"),
        ("sum(x, out=x)", "only keywords such as axis, dtype and seed"),
        ("x +", "cannot be read"),
        ("1 < x < 2", "compare two values, and join comparisons by &"),
        ("cast(x, 'object')", "expected dtype of"),
        ("zeros(-1)", "expected a shape of positive integers, got -1"),
        ("arange()", "arange: expected one to three numbers"),
        ("x[7]", "out of bounds"),
        ("x @ 3 is x", "the operator Is is not understood here"),
        ("(" * 500 + "x" + ")" * 500, "cannot be read"),
        ("x" * 20000, "expected at most 10000 characters"),
    ],
)
def test_nothing_else_is_evaluated(text, message):
    with pytest.raises(wf.InvalidOperand, match=message):
        evaluate(text, {"x": np.ones(3)})
