"""Inputs that once raised a foreign error, were rejected without need, or took more than linear time."""

import re
import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from warpfrag.viz.draw import ViewOptions

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
FLAGS = np.array([True, False, True])
pytestmark = pytest.mark.every_case
MMA = wf.get("mma.m16n8k16.f32.f16.f16.f32")
TF32 = wf.get("mma.m16n8k8.f32.tf32.tf32.f32")


def module(body: str) -> str:
    return f"{HEAD}.visible .entry k(.param .u64 o)\n{{\n{body}\nret;\n}}\n"


def tcgen05(n: int, m: int = 128, blocks: int = 1) -> Any:
    return wf.get(f"tcgen05.mma.cta_group::{blocks}.kind::f16", m=m, n=n, a="bf16", b="bf16", d="f32")


def launch(**options: Any) -> Any:
    return wf.ptx.load(module(""))["k"].launch(1, 1, [np.zeros(4, np.uint32)], **options)


@pytest.mark.parametrize(
    "dtype",
    [np.float16, np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.int8],
    ids=lambda one: one.__name__,
)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
@pytest.mark.parametrize(("m", "n"), [(4, 0), (0, 4), (0, 0), (16, 0)])
def test_an_empty_product_is_predicted(dtype, layout, m, n):
    prediction = wf.predict(np.ones((m, 4), dtype), np.ones((4, n), dtype), layout=layout)
    assert prediction.D.shape == (m, n)
    assert not prediction.is_guess


@pytest.mark.parametrize("columns", ["64U", "0x40U", "0100", "040", "32"])
def test_integers_are_read_as_ptx_spells_them(columns):
    name = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32"
    assert str(wf.get(f"{name} [x], {columns};")) == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [x], 089;", "expected an integer such as 64.*'089'"),
        ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [x], 060;", "a multiple of 32; got 48"),
        ("tcgen05.mma.cta_group::1.kind::f16 [d], a, b, i, p, 020;", "the factor for the old D in 0..15, got 020"),
    ],
)
def test_wrong_integers_are_named(text, message):
    with pytest.raises(wf.errors.IllegalInstruction, match=message):
        wf.get(text)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: wf.loads(MMA.a, wf.Memory("row", 32), packed=FLAGS), "packed must be True or False, got array"),
        (lambda: tcgen05(64).a.descriptors(swizzle=FLAGS), "swizzle must be 0, 32, 64, 128 bytes, got array"),
        (lambda: wf.draw(MMA, "a", options=FLAGS), "options: expected ViewOptions\\(...\\), got array"),
        (lambda: wf.draw(MMA, "a", immediates=FLAGS), "immediates: expected Immediates\\(...\\), got array"),
        (lambda: wf.draw(tcgen05(64), "d", options=ViewOptions(trans=FLAGS)), "trans must be True or False, got array"),
        (
            lambda: launch(options=wf.ptx.LaunchOptions(cooperative=FLAGS)),
            "cooperative must be True or False, got array",
        ),
        (
            lambda: launch(options=wf.ptx.LaunchOptions(limit=FLAGS)),
            "expected limit to be a number of warp instructions",
        ),
        (lambda: launch(options=wf.ptx.LaunchOptions(progress=FLAGS)), "expected progress to be a function"),
        (lambda: launch(checks=FLAGS), "expected checks to be one of memory, races, .*, got np.True_"),
        (lambda: launch(engine=FLAGS), "expected engine to be one of auto, reference, compiled, got array"),
        (lambda: wf.ptx.load(module(""))["k"].launch(1, 1, object()), "expected args to be a list of arguments"),
        (lambda: wf.ptx.compile("x", options=221), "options: expected a list of words"),
    ],
)
def test_an_array_for_a_flag_is_named(ask, message):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        ask()


def test_an_object_without_repr_is_no_kernel():
    class Silent:
        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(wf.errors.PtxError, match="got an object of type Silent"):
        wf.ptx.load(module(""))[Silent()]


def test_a_target_with_thousands_of_digits_is_unknown():
    text = module("").replace("sm_90a", "sm_" + "9" * 5000)
    with pytest.raises(wf.errors.IllegalInstruction, match="unknown arch 'sm_9+'") as raised:
        wf.ptx.load(text)["k"].launch(1, 1, [np.zeros(4, np.uint32)])
    assert len(str(raised.value)) < 2000


@pytest.mark.parametrize("text", [HEAD + "/* " * 50_000, HEAD + "/*" + "*" * 1_000_000, HEAD + "\n/* \n"])
def test_an_unclosed_comment_is_an_error_at_once(text):
    start = time.process_time()
    with pytest.raises(wf.errors.PtxError, match="comment that starts here is not terminated") as raised:
        wf.ptx.load(text)
    assert time.process_time() - start < 1
    assert f"line {4 + text.startswith(HEAD + chr(10))}:" in str(raised.value)


def test_comments_before_the_version_are_read_in_linear_time():
    start = time.process_time()
    with pytest.raises(wf.WarpfragError):
        wf.ptx.load("/**/" * 5000 + "x")  # one line, without .version: a path
    assert time.process_time() - start < 1
    assert list(wf.ptx.load("/* a *//***/ " + module("").replace("\n", " "))) == ["k"]


def seconds_of(branches: int) -> float:
    text = module("\n".join(f"L{at}: bra L{at * 7919 % branches};" for at in range(branches)))
    start = time.process_time()
    kernel = wf.ptx.load(text)["k"]
    with pytest.raises(wf.errors.PtxError, match="the launch reached its limit of 50 warp instructions"):
        kernel.launch(1, 32, [np.zeros(16, np.uint32)], options=wf.ptx.LaunchOptions(limit=50))
    return time.process_time() - start


def test_ten_thousand_branches_take_ten_times_the_time_of_a_thousand():
    seconds_of(10)  # imports
    few, many = min(seconds_of(1000) for _ in range(3)), seconds_of(10_000)
    assert many < 25 * few  # 100 times if it were quadratic


@pytest.mark.parametrize(
    ("n", "column", "load"),
    [
        (48, 0, "32x32b.x32"),
        (48, 32, "32x32b.x16"),
        (96, 0, "32x32b.x64"),
        (96, 32, "32x32b.x32"),
        (96, 64, "32x32b.x32"),
        (80, 16, "32x32b.x16"),
        (208, 32, "32x32b.x16"),
        (208, 0, "32x32b.x128"),
        (48, 32, "16x256b.x2"),
    ],
)
def test_loads_reach_any_part_of_any_n(n, column, load):
    d, name = tcgen05(n).d, f"tcgen05.ld.sync.aligned.{load}.b32"
    layout = d.through(name, column=column)
    matrix = np.arange(128 * n, dtype=np.float32).reshape(128, n)
    memory = np.zeros((128, 512), np.uint32)
    memory[:, :n] = d.pack(matrix)
    registers = wf.get(name).execute(memory, column).view(np.float32)
    for place in layout.places():
        element = layout.at(**place._asdict())
        assert registers[place.warp, place.lane, place.reg] == matrix[element.row, element.col]
    last = layout.at(warp=3, lane=31, reg=layout.regs - 1)
    assert [*layout.where(**last._asdict())] == [(3, 31, layout.regs - 1, 0)]


def test_a_load_of_halves_that_are_not_a_power_of_two_apart_is_refused():
    with pytest.raises(wf.errors.InvalidOperand, match="no linear layout describes the registers of this load"):
        tcgen05(48, 128, 2).d.through("tcgen05.ld.sync.aligned.32x32b.x16.b32")


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int32])
def test_big_endian_arrays_are_taken_as_native_ones(dtype):
    instruction = TF32 if dtype == np.float32 else MMA
    random = np.random.default_rng(1)
    A, B = (random.integers(-9, 9, operand.shape).astype(dtype) for operand in (instruction.a, instruction.b))
    if dtype == np.float32:  # taken by their bits: no value is exact in tf32
        A, B = A / np.float32(3), B / np.float32(7)
    swapped = [array.astype(array.dtype.newbyteorder(">")) for array in (A, B)]
    assert np.array_equal(instruction(*swapped), instruction(A, B))
    assert np.array_equal(instruction.a.pack(swapped[0]), instruction.a.pack(A))
    found, expected = (wf.gemm(*pair, instruction=instruction, arch="H200") for pair in (swapped, (A, B)))
    assert np.array_equal(found, expected)


def test_a_big_endian_product_is_predicted():
    A, B = np.full((16, 16), 1 / 3, ">f4"), np.full((16, 16), 1 / 7, ">f4")
    assert np.array_equal(wf.predict(A, B).D, wf.predict(A.astype("<f4"), B.astype("<f4")).D)


def test_a_run_without_checks_says_so():
    assert re.search(r"engine, not checked>$", repr(launch()))
    assert re.search(r"engine, no findings>$", repr(launch(checks="memory")))


@pytest.mark.parametrize(
    ("use", "matters"),
    [
        ("", False),
        ("add.u64 %c, %c, 1;", False),
        ("sub.u64 %d, %c, %c;\nxor.b64 %c, %d, 5;", False),
        ("st.global.u64 [%p], %c;", True),
        ("sub.u64 %d, %c, 1;\nst.global.u64 [%p], %d;", True),
        ("setp.gt.u64 %q, %c, 9;\n@%q bra END;\nst.global.u64 [%p], 1;\nEND:", True),
        ("add.u64 %d, %p, %c;\nsub.u64 %d, %d, %c;\nst.global.u64 [%d], 1;", True),
    ],
)
def test_a_clock_that_is_read_and_not_used_does_not_matter(use, matters):
    registers = ".reg .b64 %c, %d, %p;\n.reg .pred %q;\nld.param.u64 %p, [o];\nmov.u64 %c, %clock64;\n"
    run = wf.ptx.load(module(registers + use))["k"].launch(1, 1, [np.zeros(1, np.uint64)])
    assert ("%clock64" in run.inexact_opcodes) is matters
    assert any("clock64" in reason for reason in map(str, run.uncertain)) is matters
