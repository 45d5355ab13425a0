"""What ptxas makes of a kernel where it departs from the manual, against the bytes of an H200."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from ptx.lines import run_lines
from warpfrag.errors import CompilerDeparture, InvalidOperand
from warpfrag.ptx.program.departures import DEPARTURES, VERSIONS

pytestmark = pytest.mark.filterwarnings("ignore::warpfrag.errors.CompilerDeparture")
DATA = Path(__file__).parent.parent / "data" / "ptx_random"
REPRODUCERS = json.loads((DATA / "index.json").read_text())
PAGE = Path(__file__).parent.parent.parent / "docs" / "explanation" / "compiler-departures.md"
DOUBTFUL = {
    "f64_nan_order",
    "atom_shared_add_f64",
    "loop_xor_pred",
    "whole_k00123",
    "cvt_of_cnot",
    "cvt_of_cnot_c",
    "fold_constants",
    "store_u8_of_half",
}
"""Where NaNs meet, or the code around a line decides: these may differ, and must say so."""
SECTION = re.compile(r"^### (.+?)\n\n```text\n(.*?)\n```\n\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
VALUES = re.compile(r"(%[a-z]\d+) = (\w+)")


@pytest.fixture(scope="module")
def measured() -> dict[str, np.ndarray]:
    with np.load(DATA / "h200.npz") as arrays:
        return dict(arrays)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(REPRODUCERS))
def test_reproducers_leave_what_an_h200_leaves(name: str, measured: dict[str, np.ndarray]) -> None:
    facts = REPRODUCERS[name]
    kernel = wf.ptx.load((DATA / f"{name}.ptx").read_text())[facts["entry"]]
    for compiler in ("13.0", "13.4"):
        data, out = measured[f"{name}/input"].copy(), measured[f"{name}/before"].copy()
        run = kernel.launch(facts["grid"], facts["block"], [data, out], compiler=compiler)
        is_equal = np.array_equal(out, measured[f"{name}/h200_{compiler}"])
        if name in DOUBTFUL:
            assert is_equal or not run.exact
        else:
            assert is_equal
            assert run.exact or name == "f64_nan_immediate"  # with constants that no instruction can hold


def test_most_doubtful_reproducers_are_equal_all_the_same(measured: dict[str, np.ndarray]) -> None:
    for name in DOUBTFUL - {"f64_nan_order", "loop_xor_pred", "whole_k00123", "store_u8_of_half"}:
        out = measured[f"{name}/before"].copy()
        kernel = wf.ptx.load((DATA / f"{name}.ptx").read_text())["k"]
        run = kernel.launch(1, 32, [measured[f"{name}/input"].copy(), out])
        assert np.array_equal(out, measured[f"{name}/h200_13.0"])
        assert not run.exact
        assert all(item.line and item.source and item.reason for item in run.inexact_lines)


def sections() -> dict[str, tuple[str, str]]:
    text = PAGE.read_text(encoding="utf-8")
    return {title[0].lower() + title[1:]: (code, prose) for title, code, prose in SECTION.findall(text)}


@pytest.mark.one_engine
def test_the_page_says_what_the_table_says() -> None:
    assert sections().keys() == DEPARTURES.keys()
    for name, (_, prose) in sections().items():
        row = DEPARTURES[name]
        said = " ".join(prose.split())
        assert said.startswith(
            f"ptxas {', '.join(row.versions)}. The manual: {row.manual}. The compiler: {row.compiler}."
        )


EXAMPLES = {name: item for name, item in sections().items() if "H200 leaves" in item[1]}


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_of_the_page_leave_what_an_h200_left(name: str) -> None:
    code, prose = EXAMPLES[name]
    before, after = prose.rsplit("H200 leaves", 1)
    values = {register: int(value, 0) for register, value in VALUES.findall(before.rpartition("With `")[2])}
    (register, gpu), (_, manual) = VALUES.findall(after)
    left, run = run_lines(code, values, register)
    assert left == int(gpu, 0) != int(manual, 0)
    assert run.exact or name in {"conversion of a truth value", "abs of halves of a positive number"}
    for version in sorted(set(VERSIONS) - set(DEPARTURES[name].versions)):
        assert run_lines(code, values, register, version)[0] == int(manual, 0)


BETWEEN = {
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [memory], {%r4};": True,
    "atom.global.exch.b128 %w1, [%out], %w0;": True,
    "createpolicy.fractional.L2::evict_last.b64 %d4;": True,
    "createpolicy.range.L2::evict_last.L2::evict_first.b64 %d4, [%in], 128, 256;": False,
    "@%p0 brkpt;": False,
    "fence.proxy.async;": False,
}
"""Instructions between a sum of floats and its store in fewer bits: whether ptxas 13.0 converts what is stored."""


@pytest.mark.one_engine
@pytest.mark.parametrize("line", BETWEEN)
def test_a_store_converts_a_float_of_the_block_that_ptxas_sees(line: str) -> None:
    text = f""".version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) {{
  .reg .b64 %in, %out, %d<8>; .reg .b32 %r<8>; .reg .b128 %w<2>; .reg .pred %p0;
  .shared .align 16 .b8 memory[128];
  ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; ld.global.f32 %r0, [%in];
  mov.b64 %d0, 0; mov.b128 %w0, {{%d0, %d0}}; setp.gt.u32 %p0, %r0, 2000; mov.b32 %r4, 0;
  add.f32 %r1, %r0, %r0;
  {line}
  st.global.b16 [%out+16], %r1;
  ret;
}}"""
    departures = {name for _, _, name in wf.ptx.load(text)["k"].program.departures}
    assert ("narrow store of a float" in departures) == BETWEEN[line]


FUNCTION = "tanh.approx.f16 %h4, %h0;"
LOW_BYTES = {
    f"{FUNCTION} cvt.s64.s8 %d5, %h4;": ("%d5", 0x60, True),
    f"{FUNCTION} cvt.s8.u8 %d5, %h4;": ("%d5", 0x60, True),
    f"{FUNCTION} cvt.u8.s8 %d5, %h4;": ("%d5", 0x960, True),
    f"{FUNCTION} cvt.u8.s16 %h5, %h4;": ("%h5", 0x960, True),
    f"{FUNCTION} cvt.s64.u8 %d5, %h4;": ("%d5", 0x960, True),
    f"{FUNCTION} cvt.sat.u8.u16 %h5, %h4;": ("%h5", 0xFF, True),
    f"{FUNCTION} cvt.rn.f16.u8 %h5, %h4;": ("%h5", 0x5600, True),
    f"{FUNCTION} cvt.u32.u16 %r5, %h4; cvt.u8.u32 %r6, %r5;": ("%r6", 0x60, False),
    f"{FUNCTION} cvt.u32.u16 %r5, %h4; and.b32 %r6, 255, %r5;": ("%r6", 0x60, False),
    f"{FUNCTION} cvt.s32.s16 %r5, %h4; and.b32 %r6, %r5, 255;": ("%r6", 0x60, True),
    "mov.b32 %r4, {%h0, %h0}; tanh.approx.f16x2 %r4, %r4; mov.b32 {_, %h4}, %r4; cvt.u8.u16 %h5, %h4;": (
        "%h5", 0x60, False,
    ),
    "mov.b16 %h4, %h1; @%p0 tanh.approx.f16 %h4, %h0; cvt.u8.s16 %h5, %h4;": ("%h5", 0x60, False),
}  # fmt: skip
"""What lines take of 0x0960 where they mean its low byte, as the code of ptxas 13.0 shows; whether it is certain."""


@pytest.mark.parametrize("lines", LOW_BYTES)
def test_the_low_byte_of_a_function_of_f16_is_all_of_it_where_ptxas_drops_a_mask(lines: str) -> None:
    register, expected, is_exact = LOW_BYTES[lines]
    left, run = run_lines(lines, {"%h0": 0x960, "%h1": 0x1234, "%p0": 1}, register)
    assert (left, run.exact) == (expected, is_exact)


POSITIVE = "add.sat.f32 %r4, %r0, %r1; mov.b32 {%h4, %h5}, %r4;"
HALVES_OF_POSITIVE = {
    f"{POSITIVE} abs.f16 %h6, %h4;": ("%h6", 0xC591, False),
    f"{POSITIVE} abs.ftz.f16 %h6, %h4;": ("%h6", 0xC591, False),
    f"{POSITIVE} abs.bf16 %h6, %h4;": ("%h6", 0xC591, False),
    f"{POSITIVE} abs.f16 %h6, %h5;": ("%h6", 0x3B00, True),
    f"{POSITIVE} mov.b32 %r5, {{%h4, %h0}}; abs.f16x2 %r5, %r5;": ("%r5", 0x45914591, False),
    f"{POSITIVE} mov.b32 %r5, {{%h0, %h0}}; abs.f16x2 %r5, %r5;": ("%r5", 0x45914591, True),
    "add.f32 %r4, %r0, %r1; mov.b32 {%h4, %h5}, %r4; abs.f16 %h6, %h4;": ("%h6", 0x4591, True),
    "add.sat.f32 %r4, %r0, %r1; cvt.u16.u32 %h4, %r4; abs.f16 %h6, %h4;": ("%h6", 0xC591, False),
}
"""abs of a half of 0x3B00C591: what ptxas 13.0 leaves or may leave, as its code shows, and whether it is certain."""


@pytest.mark.parametrize("lines", HALVES_OF_POSITIVE)
def test_abs_of_a_half_of_a_positive_number_may_keep_its_sign(lines: str) -> None:
    register, expected, is_exact = HALVES_OF_POSITIVE[lines]
    left, run = run_lines(lines, {"%r0": 0x3B00C591, "%r1": 0, "%h0": 0xC591}, register)
    assert (left, run.exact) == (expected, is_exact)


DOUBTS = {
    "sign before a selection": ({"%r0": 0x7F800001, "%r1": 0, "%p0": 1}, {"%r0": 0x3F800000}, "%r5"),
    "sign of 16 bits extended": ({"%h0": 0x8000, "%h1": 11}, {"%h0": 0x7FFF}, "%r4"),
    "comparison of a positive number with 0": ({"%r0": 0x7FC00000}, {"%r0": 0x3F800000}, "%p2"),
    "flush of a joined comparison": ({"%r0": 1, "%r1": 2, "%p0": 1}, {"%r0": 0x3F800000}, "%r1"),
}


@pytest.mark.parametrize("name", sorted(DOUBTS))
def test_doubts_are_named_only_where_the_values_make_a_difference(name: str) -> None:
    code, _ = sections()[name]
    values, harmless, register = DOUBTS[name]
    _, run = run_lines(code, values, register)
    assert not run.exact
    assert DEPARTURES[name].compiler in run.inexact_lines[0].reason
    assert run_lines(code, {**values, **harmless}, register)[1].exact


NEGATIONS = {
    "neg.f32 %r4, %r0; neg.f32 %r5, %r4;": 0x7F800001,
    "neg.f32 %r4, %r0; neg.ftz.f32 %r5, %r4;": 0x7FFFFFFF,
    "neg.ftz.f32 %r4, %r0; neg.f32 %r5, %r4;": 0x7FFFFFFF,
}
"""What is left of a NaN."""


@pytest.mark.parametrize("lines", NEGATIONS)
def test_two_negations_are_none_unless_they_flush(lines: str) -> None:
    left, run = run_lines(lines, {"%r0": 0x7F800001}, "%r5")
    assert left == NEGATIONS[lines]
    assert run.exact


SELECTIONS = {
    "abs.f32 %r4, %r0; slct.b32.f32 %r5, %r1, %r2, %r4;": 7,
    "abs.f32 %r4, %r0; slct.ftz.b32.f32 %r5, %r1, %r2, %r4;": 9,
    "abs.ftz.f32 %r4, %r0; slct.b32.f32 %r5, %r1, %r2, %r4;": 9,
}
"""What is selected by the size of a NaN."""


@pytest.mark.parametrize("lines", SELECTIONS)
def test_a_size_is_compared_where_one_flushes(lines: str) -> None:
    left, run = run_lines(lines, {"%r0": 0x7FC00000, "%r1": 7, "%r2": 9}, "%r5")
    assert left == SELECTIONS[lines]
    assert run.exact


def test_a_flushed_half_is_rounded_to_nearest() -> None:
    code, _ = sections()["truncation of a flushed half"]
    for half, expected in ((0xBE00, 2), (0x3E00, 2), (0x3800, 0), (0x3A00, 1), (0x4000, 2)):
        left, run = run_lines(code, {"%h0": half}, "%r4")
        assert (left, run.exact) == (expected, True)
    assert run_lines(code.replace(".ftz", ""), {"%h0": 0xBE00}, "%r4")[0] == 1


@pytest.mark.parametrize("divisor", ["0f71194D20", "%r3"])
@pytest.mark.parametrize("division", ["div.approx", "div.full"])
def test_a_reciprocal_of_a_constant_is_that_of_the_compiler_in_a_fused_quotient_too(
    division: str, divisor: str
) -> None:
    code = f"mov.b32 %r3, 0f71194D20; {division}.f32 %r4, %r0, {divisor}; add.f32 %r5, %r4, %r1;"
    left, run = run_lines(code, {"%r0": 0x3F800000, "%r1": 0}, "%r5")
    assert (left, run.exact) == (0x0DD5BFC1, True)  # the constant of FFMA; the special function unit leaves ..C2


def test_different_nans_in_f64_are_named() -> None:
    values = {"%d0": 0x7FF8000000000001, "%d1": 0xFFF8000000000002}
    line = "add.rn.f64 %d4, %d0, %d1;"
    _, run = run_lines(line, values, "%d4")
    assert [item.source for item in run.inexact_lines] == [line.removesuffix(";")]
    for other in (0xFFF8000000000002, 0xFFF0000000000002, 0x3FF0000000000000):
        assert run_lines(line, {**values, "%d0": other}, "%d4")[1].exact


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mul.f64 %d4, 0d7FF0000000000001, 0d7FF8000000000000;", 0x7FF8000000000000),
        ("mul.f64 %d4, 0d7FF8000000000000, 0d7FF0000000000001;", 0x7FF8000000000000),
        ("mul.f64 %d4, 0d7FF0000000000001, 0d7FF8000000000005;", 0x7FF8000000000005),
        ("mul.rn.f64 %d4, 0d7FF4000000000000, 0d7FF8000000000000;", 0x7FFC000000000000),
        ("sub.f64 %d4, 0d7FF0000000000001, 0d7FF8000000000000;", 0xFFF8000000000000),
        ("sub.f64 %d4, 0d7FF8000000000000, 0d7FF0000000000001;", 0x7FF8000000000000),
        ("sub.f64 %d4, 0d7FF0000000000001, 0d7FF8000000000005;", 0xFFF8000000000005),
    ],
)
def test_of_two_nans_that_are_written_the_operand_that_ptxas_makes_b_stays(line: str, expected: int) -> None:
    left, run = run_lines(line, {"%d0": 0}, "%d4")
    assert (left, run.exact) == (expected, True)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("cvt.rpi.f64.f64 %d5, 0d7FF8000000000000;", 0x7FF8000000000000),  # which ptxas leaves to the hardware
        ("cvt.f64.f32 %d5, 0f7FC00000;", 0xFFF8000000000000),
        ("slct.b64.f32 %d5, 0x7FF8000000000000, %d0, 0f00000001;", 0xFFF8000000000000),
        ("slct.b64.f32 %d5, %d0, 0x7FF8000000000000, 0fBF800000;", 0xFFF8000000000000),
        ("mov.b64 %d6, 0x7FF8000000000000; slct.b64.f32 %d5, %d6, %d0, %r0;", 0x7FF8000000000000),
    ],
)
def test_a_nan_that_ptxas_knows_is_added_with_the_other_sign(lines: str, expected: int) -> None:
    left, run = run_lines(f"{lines} sub.f64 %d4, %d0, %d5;", {"%d0": 0, "%r0": 1}, "%d4")
    assert (left, run.exact) == (expected, True)


@pytest.mark.parametrize(
    ("lines", "is_exact"),
    [
        ("bfi.b64 %d5, 1, 0x7FFFFFFFFFFFFFFF, 170, 34;", False),
        ("and.b64 %d6, 0x7FFFFFFFFFFFFFFF, -2; slct.b64.f32 %d5, %d6, %d0, 0f00000001;", False),
        ("bfi.b64 %d5, 1, 0x3FFFFFFFFFFFFFFF, 170, 34;", True),
        ("mov.b64 %d6, 0x7FFFFFFFFFFFFFFF; and.b64 %d5, %d6, %d1;", True),
    ],
)
def test_the_sign_of_a_nan_that_ptxas_knows_late_is_doubted(lines: str, is_exact: bool) -> None:
    _, run = run_lines(f"{lines} sub.f64 %d4, %d0, %d5;", {"%d0": 0, "%d1": 0xFFFFFFFFFFFFFFFF}, "%d4")
    assert run.exact == is_exact


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mul.ftz.sat.f32 %r4, 0f7F800000, 0f000000FF;", 0x3F800000),
        ("mul.ftz.sat.f32 %r4, 0f807FFFFF, 0f7F800000;", 0),
        ("mul.ftz.f32 %r4, %r0, 0f7F800000;", 0x7FFFFFFF),
        ("mul.rn.ftz.f32 %r4, 0f7F800000, 0f000000FF;", 0x7FFFFFFF),
        ("mul.ftz.f32 %r4, 0f7F000000, 0f000000FF;", 0),
        ("mul.ftz.f32 %r5, 0f7F800000, 0f000000FF; add.ftz.f32 %r4, %r5, %r0;", 0x7F800000),
    ],
)
def test_an_infinity_times_a_subnormal_is_infinite_where_both_are_constants(line: str, expected: int) -> None:
    left, run = run_lines(line, {"%r0": 1}, "%r4")
    assert (left, run.exact) == (expected, True)


def test_generic_sums_in_shared_memory_do_not_flush() -> None:
    code = "mov.u64 %d4, memory; cvta.shared.u64 %d4, %d4; st.shared.b32 [memory], 0; red.add.f32 [%d4], %r0;"
    assert run_lines(f"{code} ld.shared.b32 %r4, [memory];", {"%r0": 1}, "%r4")[0] == 1


@pytest.mark.one_engine
def test_a_kernel_warns_of_lines_that_ptxas_compiles_otherwise() -> None:
    code = "@%p0 testp.finite.f32 %p1, %r0; min.f32 %r1, %r0, %r0;"
    text = f".version 8.7\n.target sm_90\n.visible .entry k() {{ .reg .pred %p<2>; .reg .b32 %r<2>;\n{code} ret; }}"
    module = wf.ptx.load(text)
    with pytest.warns(CompilerDeparture, match="line 4: the guard of testp is ignored"):
        kernel = module["k"]
    assert [(item.line, item.versions) for item in kernel.warnings] == [(4, VERSIONS)]
    assert module.warnings == kernel.warnings


@pytest.mark.one_engine
def test_an_unknown_compiler_is_refused() -> None:
    text = ".version 8.7\n.target sm_90\n.visible .entry k() { ret; }"
    with pytest.raises(InvalidOperand, match=r"compiler of 12\.9, 13\.0, 13\.4, got '11\.0'"):
        wf.ptx.load(text)["k"].launch(1, 1, compiler="11.0")  # type: ignore[arg-type]
