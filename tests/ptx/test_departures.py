"""What ptxas makes of a kernel where it departs from the manual, against the bytes of an H200."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
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
WIDTHS = {"d": 64, "r": 32, "h": 16}


@pytest.fixture(scope="module")
def measured() -> dict[str, np.ndarray]:
    with np.load(DATA / "h200.npz") as arrays:
        return dict(arrays)


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


def run_lines(code: str, values: dict[str, int], result: str, compiler: str = "13.0") -> tuple[int, wf.Run]:
    """What lines of PTX leave in a register, from values in others."""
    loads, data = [], np.zeros(len(values) + 1, np.uint64)
    for at, (name, value) in enumerate(values.items()):
        data[at] = value
        if name[1] == "p":
            loads.append(f"ld.global.u32 %r20, [%in+{8 * at}]; setp.ne.u32 {name}, %r20, 0;")
        else:
            loads.append(f"ld.global.b{WIDTHS[name[1]]} {name}, [%in+{8 * at}];")
    stores = f"selp.u32 %r21, 1, 0, {result}; st.global.u32 [%out], %r21;"
    if result[1] != "p":
        stores = f"st.global.b{WIDTHS[result[1]]} [%out], {result};"
    text = f""".version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b) {{
  .reg .b64 %d<8>, %in, %out; .reg .b32 %r<22>; .reg .b16 %h<8>; .reg .pred %p<4>;
  .shared .align 4 .b32 memory;
  ld.param.u64 %in, [a]; ld.param.u64 %out, [b];
  {" ".join(loads)}
  {code}
  {stores}
  ret;
}}"""
    out = np.zeros(1, np.uint64)
    run = wf.ptx.load(text)["k"].launch(1, 1, [data, out], compiler=compiler)
    return int(out[0]), run


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


JOINED = "setp.ne.u32 %p0, %r0, 0; setp.gt.and.ftz.f32 %p2, %r2, %r3, %p0;"
LOOP = """setp.ne.u32 %p0, %r0, 0; setp.ne.u32 %p1, %r1, 0; setp.ne.u32 %p2, %r1, 0; @!%p0 bra DONE;
MORE: WRITES sub.u32 %r2, %r2, 1; setp.ne.u32 %p3, %r2, 0; @%p3 bra MORE; DONE: selp.b32 %r5, 1, 0, %p0;"""
QUOTIENT = "setp.lt.u32 %p0, %r2, %r0; div.rz.f32 %r4, %r0, %r1; st.global.b32 [%in], %r4;"
PLAIN_LOOP = LOOP.replace("WRITES", "").replace("%r5", "%r6")
NAN = "rcp.approx.f32 %r6, %r3; cos.approx.f32 %r4, %r6;"
CHANGED_GUARD = (
    "setp.lt.u32 %p0, %r2, %r0; setp.lt.u32 %p1, %r0, %r2; mov.b32 %r5, 1; LOOP: or.pred %p2, %p0, %p1;"
    " @%p2 bra LEFT; bra LOOP; LEFT: @%p0 mov.b32 %r5, 16; @%p1 bra DONE; mov.pred %p0, %p1; DONE:"
    " selp.b32 %r6, 1, 0, %p0; st.global.b32 [%in], %r6;"
)
COUNTED = "LOOP: sub.u32 %r2, %r2, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra LOOP;"
MATCHED = "match.all.sync.b32 %r4|%p0, 0, -1; mov.b32 %r5, 1; selp.b32 %r6, 1, 0, %p0;"
TRUTH_SHIFT = (
    "cvt.u64.u32 %d4, %r2; setp.eq.u32 %p2, %r3, 1; set.lt.f32.s32 %r4, %r2, %r0; @%p2 bra FAR; shl.b64 %d4, %d4, %r4;"
    " FAR: cvt.u32.u64 %r5, %d4;"
)
TWO_USES = (
    "or.b32 %r0, %r0, 1; or.b32 %r1, %r0, 2; setp.eq.u32 %p1, %r2, 3; setp.eq.u32 %p2, %r2, 4; mul.f32 %r4, %r0, %r1;"
    " sub.f32 %r6, %r4, %r0; @%p1 bra NEXT; st.global.b32 [%in], %r2; NEXT: @%p2 bra LAST; st.global.b32 [%in+4], %r2;"
    " LAST:"
)
SUM_BEHIND = "add.u32 %r5, %r6, 1;"
IN_USE = "st.global.v2.b32 [%in+16], {%r0, %r1};"
SASS_RULES = {
    "rcp.approx.ftz.f32 %r4, %r0; rcp.approx.ftz.f32 %r5, %r4;": False,
    "ex2.approx.ftz.f32 %r4, %r0; rcp.approx.ftz.f32 %r5, %r4;": False,
    "ex2.approx.ftz.f32 %r4, %r0; rcp.approx.ftz.f32 %r5, %r4; add.f32 %r6, %r4, %r4; st.global.f32 [%in], %r6;": True,
    "ex2.approx.ftz.f32 %r4, %r0; div.full.ftz.f32 %r5, %r1, %r4;": True,
    "sqrt.approx.ftz.f32 %r4, %r0; rcp.approx.ftz.f32 %r5, %r4;": True,
    "sub.u32 %r4, %r0, %r1; add.sat.s32 %r5, %r4, %r1;": False,
    "sub.u32 %r4, %r0, %r1; add.sat.s32 %r5, %r4, %r2;": True,
    "rem.u32 %r5, 7, %r3;": True,
    f"{CHANGED_GUARD} div.rp.f32 %r4, %r0, %r1; st.global.b32 [%in+4], %r4;": False,
    CHANGED_GUARD: True,
    "vset.u32.u32.lt.max %r5, %r0, %r1, %r1; st.shared.b32 [memory], 0; LOOP: red.shared.add.noftz.f16x2 [memory], %r5;"
    " ld.shared.b32 %r5, [memory]; setp.gt.u32 %p1, %r3, 0; @%p1 bra LOOP;": False,
    "ld.param.v2.u8 {%r4, %r6}, [a+4]; mov.b32 {_, %h1}, %r6; cvt.u32.u16 %r5, %h1;": False,
    "ld.param.v2.u8 {%r6, %r4}, [a]; mov.b32 {_, %h1}, %r6; cvt.u32.u16 %r5, %h1;": True,
    "ld.param.v2.s8 {%r4, %r6}, [a]; mov.b32 {_, %h1}, %r6; cvt.u32.u16 %r5, %h1;": True,
    f"{MATCHED} @!%p0 add.u32 %r5, %r0, %r1; add.u32 %r5, %r5, %r6;": True,
    f"{COUNTED} {MATCHED} @!%p0 add.u32 %r5, %r0, %r1; add.u32 %r5, %r5, %r6;": False,
    f"{COUNTED} {MATCHED.replace('b32 %r4|%p0, 0', 'b32 %r4|%p0, %r3')} @!%p0 add.u32 %r5, %r0, %r1;": True,
    f"{COUNTED} {MATCHED} @%p0 add.u32 %r5, %r0, %r1; add.u32 %r5, %r5, %r6;": True,
    "ld.param.b16 %d4, [a+4]; mov.b64 {%h0, %h1, %h2, %h3}, %d4; st.global.b16 [%in], %h0; cvt.u32.u16 %r5, %h1;": True,
    "ld.param.b16 %d4, [a+4]; mov.b64 {%h0, %h1, %h2, %h3}, %d4; st.global.b16 [%in], %h0; setp.gt.u32 %p1, %r3, 0;"
    " @%p1 bra NEXT; st.global.b32 [%in+4], %r0; NEXT: cvt.u32.u16 %r5, %h1;": False,
    "ld.param.b16 %d4, [a+4]; mov.b64 {%h0, %h1, %h2, %h3}, %d4; setp.gt.u32 %p1, %r3, 0; @%p1 mov.b16 %h0, %h2;"
    " st.global.b16 [%in], %h0; cvt.u32.u16 %r5, %h1;": False,
    "ld.global.v2.u8 {%r4, %r6}, [%in]; mov.b32 {_, %h1}, %r6; cvt.u32.u16 %r5, %h1;": True,
    "elect.sync %r4|%p0, -1; setp.lt.u32 %p1, %r0, %r2; @%p1 bra DONE; @%p0 st.global.b32 [%in], %r2;"
    " DONE: mov.b32 %r5, 1;": False,
    "elect.sync %r4|%p0, -1; setp.lt.u32 %p1, %r0, %r2; @%p1 bra DONE; @%p0 st.global.b32 [%in], %r2;"
    " DONE: selp.b32 %r5, 1, 0, %p0;": True,
    f"{QUOTIENT} selp.b32 %r4, 1, 0, %p0; cvt.rn.f16.f32 %h1, %r4; cvt.u32.u16 %r5, %h1;": False,
    f"{QUOTIENT} slct.b32.s32 %r4, 1, 0, %r2; cvt.rzi.s32.f32 %r5, %r4;": False,
    f"{QUOTIENT} selp.b32 %r4, 1, 0, %p0; neg.f32 %r5, %r4;": False,
    f"{QUOTIENT} selp.b32 %r4, 2, 0, %p0; cvt.rn.f16.f32 %h1, %r4; cvt.u32.u16 %r5, %h1;": True,
    f"{QUOTIENT} selp.b32 %r4, 1, 0, %p0; cvt.rn.tf32.f32 %r5, %r4;": True,
    f"{QUOTIENT} selp.b32 %r4, 1, 0, %p0; cvt.rn.relu.bf16.f32 %h1, %r4; cvt.u32.u16 %r5, %h1;": True,
    "setp.lt.u32 %p0, %r2, %r0; selp.b32 %r4, 1, 0, %p0; cvt.rzi.s32.f32 %r5, %r4;": True,
    f"{QUOTIENT} mov.b32 {{%h0, %h1}}, %r0; set.eq.bf16.f16 %h2, %h0, %h0; cvt.rn.f16.s16 %h3, %h2;"
    " st.global.b16 [%in], %h2; cvt.u32.u16 %r5, %h3;": False,
    "lop3.b32 %r4, %r0, %r0, %r1, 0x7C; xor.b32 %r5, %r4, %r0;": False,
    "lop3.b32 %r4, %r0, %r0, %r1, 0x7C; not.b32 %r4, %r4; and.b32 %r5, %r1, %r4;": False,
    "ld.global.b32 %r6, [%in]; ld.global.b32 %r7, [%in]; lop3.b32 %r4, %r1, %r6, %r7, 0x7C; xor.b32 %r4, 0, %r4;"
    " xor.b32 %r5, %r4, %r1;": False,
    "lop3.b32 %r4, %r0, %r0, %r1, 0x7C; xor.b32 %r5, %r4, %r2;": True,
    "lop3.b32 %r4, %r0, %r2, %r1, 0x7C; xor.b32 %r5, %r4, %r0;": True,
    "lop3.b32 %r4, %r0, %r0, %r1, 0x7C; lop3.b32 %r5, %r4, %r0, %r1, 0x1E;": True,
    "abs.s32 %r4, %r0; sub.cc.s32 %r4, %r1, %r4; subc.s32 %r5, %r2, %r1;": False,
    "add.rn.f16x2 %r4, %r0, %r1; cvt.rn.relu.tf32.f32 %r5, %r4;": False,
    "set.ge.s32.f16x2 %r4, %r0, %r1; cvt.rn.tf32.f32 %r5, %r4;": False,
    "set.ge.s32.f32 %r4, %r0, %r1; cvt.rn.tf32.f32 %r5, %r4;": True,
    "ld.global.u16 %r4, [%in+2]; mov.b32 {_, %h1}, %r4; cvt.u32.u16 %r5, %h1;": False,
    "ld.global.s8 %d4, [%in+2]; mov.b64 {%h0, %h1, %h2, %h3}, %d4; cvt.u32.u16 %r5, %h1;": False,
    "ld.global.u16 %d4, [%in+2]; mov.b64 {%h0, %h1, %h2, %h3}, %d4; cvt.u32.u16 %r5, %h1;": False,
    "ld.global.u16 %d4, [%in+2]; mov.b64 {%h0, %h1, %h2, %h3}, %d4; cvt.u32.u16 %r5, %h1;"
    " st.global.u16 [%in+2], %h0;": True,
    "ld.global.u16 %d4, [%in+2]; mov.b64 {%h0, %h1, %h2, %h3}, %d4; cvt.u32.u16 %r5, %h1;"
    " mul.lo.s64 %d5, %d4, %d4; st.global.u64 [%in], %d5;": True,
    "add.rn.f16x2 %r4, %r0, %r1; cvt.rn.relu.tf32.f32 %r5, %r4; st.global.b32 [%in], %r4;": True,
    "add.sat.s32 %r4, %r0, %r1; cvt.sat.f32.f32 %r5, %r4;": False,
    "add.sat.s32 %r4, %r0, %r1; cvt.ftz.sat.f32.f32 %r5, %r4;": True,
    "add.sat.s32 %r4, %r0, %r1; cvt.rni.sat.f32.f32 %r5, %r4;": True,
    "add.sat.s32 %r4, %r0, %r1; cvt.rzi.sat.u32.f32 %r5, %r4;": True,
    "setp.lt.u32 %p2, %r0, %r2; @%p2 popc.b32 %r0, 7; sin.approx.ftz.f32 %r5, %r0;": True,
    "ld.global.u16 %r4, [%in]; mov.b32 {%h0, %h1}, %r4; cvt.u32.u16 %r5, %h1; cvt.u32.u16 %r6, %h0;"
    " st.global.b32 [%in], %r6;": True,
    "cvt.u64.u32 %d4, %r0; mov.b64 {%h0, %h1, %h2, %h3}, %d4; cvt.rn.f16x2.e4m3x2 %r5, %h3;": False,
    "cvt.u64.u32 %d4, %r0; mov.b64 {%h0, %h1, %h2, %h3}, %d4; cvt.rn.f16x2.e4m3x2 %r5, %h2;": True,
    "mad.hi.s32 %r5, %r0, %r1, %r2; mad.hi.s32 %r5, %r0, %r1, %r5;": False,
    "mad.hi.s32 %r5, %r0, %r1, %r2; mad.hi.s32 %r5, %r0, %r2, %r5;": True,
    "setp.lt.and.ftz.f32 %p2, %r2, %r0, %p0; @%p2 exit; mov.b32 %r5, 1;": True,
    "mov.pred %p2, 1; @%p0 bra DONE; setp.eq.ftz.f32 %p2, %r2, %r3; DONE: selp.b32 %r5, 1, 0, %p2;": False,
    "setp.eq.ftz.f32 %p2, %r2, %r3; selp.b32 %r5, 1, 0, %p2;": True,
    "neg.f32 %r6, %r0; copysign.f32 %r4, %r6, %r6; xor.b32 %r5, %r6, %r4;": False,
    "neg.f32 %r6, %r0; copysign.f32 %r4, %r6, %r6; or.b32 %r5, %r6, %r4;": True,
    "neg.f32 %r6, %r0; copysign.f32 %r4, %r6, %r6; xor.b32 %r5, %r1, %r4;": True,
    "neg.f32 %r6, %r0; copysign.f32 %r4, %r0, %r6; xor.b32 %r5, %r6, %r4;": True,
    "or.b32 %r4, %r0, 0x7F800001; setp.eq.u32 %p2, %r3, 0; @%p2 neg.f32 %r5, %r4;": True,
    "or.b32 %r4, %r0, 0x7F800001; setp.eq.u32 %p2, %r3, 0; @!%p2 bra DONE; @%p2 neg.f32 %r5, %r4; DONE:": False,
    "cvt.rn.satfinite.e4m3x2.f16x2 %h3, %r0; mov.b32 %r4, {%h3, %h1}; set.ls.s32.u16 %r5, %h1, %h2;": False,
    "cvt.rn.satfinite.e4m3x2.f16x2 %h3, %r0; mov.b32 %r4, {%h3, %h1}; set.ls.s32.u16 %r5, %h0, %h2;": True,
    f"{JOINED} and.pred %p1, %p2, %p2; @%p1 bra DONE; mov.b32 %r5, 1; DONE:": False,
    f"{JOINED} not.pred %p1, %p2; @!%p1 bra DONE; mov.b32 %r5, 1; DONE:": False,
    f"{JOINED} not.pred %p1, %p2; @%p1 bra DONE; mov.b32 %r5, 1; DONE:": True,
    LOOP.replace("WRITES", "@%p1 setp.lt.s32 %p0, %r2, %r0; setp.lt.s32 %p1, %r2, %r1;"): False,
    LOOP.replace("WRITES", "@%p2 setp.lt.s32 %p0, %r2, %r0; setp.lt.s32 %p1, %r2, %r1;"): True,
    f"{NAN} sub.ftz.f32 %r5, %r4, 0f5A40CCC5;": False,
    f"{NAN} sub.rn.ftz.f32 %r5, %r4, 0f5A40CCC5;": True,
    f"{NAN} neg.f32 %r4, %r4; sub.f32 %r5, 0f5A40CCC5, %r4;": False,
    f"{NAN} setp.lt.f32 %p2, %r4, 0f5A40CCC5; selp.b32 %r5, 1, 0, %p2;": False,
    f"{NAN} setp.ltu.f32 %p2, %r4, 0f5A40CCC5; selp.b32 %r5, 1, 0, %p2;": True,
    f"{NAN} setp.lt.f32 %p2, %r4, 0f3F000000; selp.b32 %r5, 1, 0, %p2;": True,
    "cos.approx.f32 %r4, %r0; setp.lt.f32 %p2, %r4, 0f5A40CCC5; selp.b32 %r5, 1, 0, %p2;": True,
    f"set.eq.f16.f16 %h1, %h0, %h0; cvt.u32.u16 %r5, %h1; {PLAIN_LOOP}": False,
    "set.eq.f16.f16 %h1, %h0, %h0; cvt.u32.u16 %r5, %h1;": True,
    "set.neu.ftz.u32.f32 %r4, %r2, %r3; setp.ne.u32 %p2, %r4, 0; selp.b32 %r5, 1, 0, %p2;": False,
    "set.neu.ftz.s32.f32 %r4, %r2, %r3; cnot.b32 %r5, %r4;": False,
    "set.neu.ftz.u32.f32 %r4, %r2, %r3; rem.u32 %r5, %r0, %r4;": False,
    "set.neu.ftz.u32.f32 %r4, %r2, %r3; min.u32 %r5, %r4, 1;": True,
    "set.neu.ftz.f32.f32 %r4, %r2, %r3; cnot.b32 %r5, %r4;": True,
    "set.neu.ftz.u32.f32 %r4, %r0, %r3; cnot.b32 %r5, %r4;": True,
    "elect.sync %r4|%p2, 1; vote.sync.all.pred %p1, !%p2, 1; selp.b32 %r5, 1, 0, %p1;": False,
    "elect.sync %r4|%p2, 1; not.pred %p2, %p2; vote.sync.all.pred %p1, %p2, 1; selp.b32 %r5, 1, 0, %p1;": False,
    "elect.sync %r4|%p2, 1; vote.sync.any.pred %p1, %p2, 1; selp.b32 %r5, 1, 0, %p1;": True,
    "elect.sync %r4|%p2, 1; vote.sync.all.pred %p1, %p2, 1; selp.b32 %r5, 1, 0, %p1;": True,
    "elect.sync %r4|%p2, 1; vote.sync.any.pred %p1, %p0, 1; selp.b32 %r5, 1, 0, %p1;": True,
    "cnot.b32 %r4, %r2; cvt.u16.u32 %h0, %r2; shl.b16 %h1, %h0, %r4; cvt.u32.u16 %r5, %h1;": False,
    "cnot.b32 %r4, %r2; cvt.u16.u32 %h0, %r2; mov.b32 %r6, %r4; shr.u16 %h1, %h0, %r6; cvt.u32.u16 %r5, %h1;": False,
    "cnot.b32 %r4, %r2; shl.b32 %r5, %r2, %r4;": True,
    f"{TRUTH_SHIFT} {PLAIN_LOOP}": False,
    TRUTH_SHIFT: True,
    "shl.b32 %r6, %r2, 31; mov.b32 %r4, 0x80003C00; fma.rn.f16x2 %r5, %r4, %r4, %r6;": False,
    "shl.b32 %r6, %r2, 31; mov.b32 %r4, 0x3C003C00; fma.rn.f16x2 %r5, %r4, %r4, %r6;": True,
    "shl.b32 %r6, %r2, 31; mov.b32 %r4, 0x80008000; fma.rn.f16x2 %r5, %r4, %r4, %r6;": True,
    "ld.param.u32 %r6, [a]; ld.param.u32 %r7, [a]; setp.eq.s32 %p2, %r6, %r7; or.b32 %r4, %r0, 0x7F800001;"
    " @%p2 neg.f32 %r5, %r4;": False,
    "ld.param.u32 %r6, [a]; ld.param.u32 %r7, [a+4]; setp.ne.s32 %p2, %r6, %r7; or.b32 %r4, %r0, 0x7F800001;"
    " @%p2 neg.f32 %r5, %r4;": True,
    "or.b32 %r4, %r0, 0x7F800001; setp.eq.u32 %p2, %r3, 1; abs.f32 %r5, %r4; @%p2 bra NEXT; st.global.b32 [%in], %r0;"
    " NEXT: @%p2 rcp.rn.f32 %r5, %r2;": False,
    "bar.red.or.pred %p1, 0, %p0; LOOP: sub.u32 %r2, %r2, 1; @%p1 bra NEXT; div.rm.f32 %r5, %r0, %r1;"
    " NEXT: setp.ne.u32 %p2, %r2, 0; @%p2 bra LOOP;": False,
    "bar.red.or.pred %p1, 0, %p0; selp.b32 %r5, 1, 0, %p1;": True,
    f"{TWO_USES} st.global.b32 [%in+8], %r4; {SUM_BEHIND} {IN_USE}": False,
    f"{TWO_USES} {SUM_BEHIND} st.global.b32 [%in+8], %r4; {IN_USE}": True,
    f"{TWO_USES} st.global.b32 [%in+8], %r4; {SUM_BEHIND}": True,
    f"{TWO_USES.partition('NEXT:')[0]} NEXT: st.global.b32 [%in+8], %r4; {SUM_BEHIND} {IN_USE}": True,
}
"""Lines, and whether ptxas 13.0 leaves them as they are, as its code shows; %r3 is 0."""


@pytest.mark.one_engine
@pytest.mark.parametrize("lines", SASS_RULES)
def test_doubts_follow_the_code_of_ptxas(lines: str) -> None:
    _, run = run_lines(lines, {"%r0": 0x3F800000, "%r1": 0x40000000, "%r2": 5, "%r3": 0}, "%r5")
    assert run.exact == SASS_RULES[lines]


SEEN_IN_KERNELS = {
    f"{PLAIN_LOOP} set.lt.u16.f16 %h1, %h0, %h2; neg.f16 %h3, %h1; cvt.u32.u16 %r5, %h3;": False,
    "set.lt.u16.f16 %h1, %h0, %h2; neg.f16 %h3, %h1; cvt.u32.u16 %r5, %h3;": True,
    "LOOP: cvt.rz.tf32.f32 %r5, %r0; mul.rn.bf16x2 %r0, %r1, %r1; sub.u32 %r2, %r2, 1; setp.ne.u32 %p2, %r2, 0;"
    " @%p2 bra LOOP;": False,
    "LOOP: cvt.rz.tf32.f32 %r5, %r0; mul.rn.f32 %r0, %r1, %r1; sub.u32 %r2, %r2, 1; setp.ne.u32 %p2, %r2, 0;"
    " @%p2 bra LOOP;": True,
    "setp.ne.and.b16 %p1|%p0, 0x175, 3, %p0; selp.b32 %r5, 1, 0, %p1;": True,
    "cos.approx.ftz.f32 %r4, 0f00000000; setp.eq.u32 %p2, %r3, 1; @%p2 bra NEXT; st.global.b32 [%in], %r0;"
    " NEXT: cos.approx.f32 %r5, %r4;": False,
    "cos.approx.ftz.f32 %r4, 0f00000000; cos.approx.f32 %r5, %r4;": True,
}
"""Lines, and whether they are known: of those that are not, a random kernel left something else on an H200."""


@pytest.mark.one_engine
@pytest.mark.parametrize("lines", SEEN_IN_KERNELS)
def test_what_random_kernels_showed_is_doubted(lines: str) -> None:
    _, run = run_lines(lines, {"%r0": 0x3F800000, "%r1": 0x40000000, "%r2": 5, "%r3": 0, "%p0": 1}, "%r5")
    assert run.exact == SEEN_IN_KERNELS[lines]


@pytest.mark.parametrize(("results", "is_doubted"), [("%p1|%p0", True), ("%p1|%p2", False)])
def test_a_comparison_of_constants_that_decides_on_a_call_is_doubted(results: str, is_doubted: bool) -> None:
    text = f""".version 8.7
.target sm_90
.address_size 64
.func f() {{ ret; }}
.visible .entry k(.param .u64 a) {{
  .reg .b32 %r0; .reg .pred %p<3>;
  ld.param.u32 %r0, [a]; setp.gt.u32 %p0, %r0, 3; setp.ne.and.b16 {results}, 0x175, 3, %p0; @%p1 bra NEXT; call f, ();
NEXT: ret;
}}"""
    assert is_doubted == any(step.doubt for step in wf.ptx.load(text)["k"].program.steps)


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


IN_A = {
    "cnot.b32 %r2, %r2;": ("-1", True),
    "cnot.b32 %r2, %r2; ": ("1", False),
    "neg.s32 %r2, %r2;": ("-1", False),
    "mov.b64 {%r4, %r2}, %d0; st.global.b64 [%out], %d0;": ("1", True),
    "mov.b64 {_, %r5}, %d0; mov.b32 %r2, %r5; st.global.b64 [%out], %d0;": ("1", True),
    "shr.u64 %d1, %d0, 32; cvt.u32.u64 %r2, %d1; st.global.b64 [%out], %d0;": ("1", True),
    "mov.b64 {%r4, %r2}, %d0; st.global.b32 [%out], %r4;": ("1", False),
    "mov.b64 {%r2, %r4}, %d0; st.global.b64 [%out], %d0;": ("1", False),
    "ld.global.b32 %r8, [%in]; mov.b32 %r16, %r8;": ("1", True),
    "ld.global.b32 %r8, [%in]; mov.b32 {_, %h0}, %r8;": ("1", True),
    "ld.global.b32 %r8, [%in]; mov.b32 %r15, %r8;": ("1", False),
}
"""What left a register of A or a copy of one of D, and the sign of A: whether ptxas 13.0 takes something else."""


@pytest.mark.one_engine
@pytest.mark.parametrize("lines", IN_A)
def test_registers_of_a_are_in_doubt_where_ptxas_takes_others(lines: str) -> None:
    sign, is_doubted = IN_A[lines]
    text = f""".version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b) {{
  .reg .b64 %d<4>, %in, %out; .reg .b32 %r<20>; .reg .b16 %h<2>; .reg .pred %p<2>;
  ld.param.u64 %in, [a]; ld.param.u64 %out, [b]; ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%in];
  ld.global.b64 %d0, [%in]; ld.global.b64 %d3, [%in+8];
  {lines} setp.ne.u32 %p0, %r0, 0;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16
    {{%r8, %r9, %r10, %r11}}, {{%r0, %r1, %r2, %r3}}, %d3, %p0, {sign}, 1, 0;
  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; st.global.b32 [%out+8], %r8;
  st.global.b32 [%out+12], %r16; st.global.b16 [%out+16], %h0;
  ret;
}}"""
    doubts = [step.doubt for step in wf.ptx.load(text)["k"].program.steps if step.name.startswith("wgmma.mma")]
    assert [bool(item) for item in doubts] == [is_doubted]


TRANSPOSED = {
    "redux.sync.xor.b32 %r4, %r0, -1;": True,
    "redux.sync.xor.b32 %r4, %r0, -1; xor.b32 %r4, %r4, 99;": True,
    "vote.sync.ballot.b32 %r4, %p0, -1;": True,
    "mov.u32 %r4, %ctaid.x; mad.lo.u32 %r4, %r4, 17, 5;": True,
    "shfl.sync.idx.b32 %r4, %r0, 0, 31, -1;": True,
    "ld.shared.b32 %r4, [memory];": True,
    "match.any.sync.b32 %r4, %r0, -1;": False,
    "redux.sync.xor.b32 %r4, %r0, -1; add.u32 %r4, %r4, %r0;": False,
    "redux.sync.xor.b32 %r4, %r0, -1; @%p0 mov.b32 %r4, %r0;": False,
    "mov.b32 %r4, %r0;": False,
}
"""What left a word: whether ptxas 13.0 branches on the transposed word as if it were the same in every thread."""


@pytest.mark.one_engine
@pytest.mark.parametrize("lines", TRANSPOSED)
def test_a_transposed_word_is_in_doubt_where_ptxas_takes_it_as_the_same_in_every_thread(lines: str) -> None:
    text = f""".version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a) {{
  .reg .b64 %in; .reg .b32 %r<8>; .reg .pred %p<2>; .shared .align 4 .b32 memory;
  mov.u32 %r1, %tid.x; ld.param.u64 %in, [a]; mad.wide.u32 %in, %r1, 4, %in; ld.global.b32 %r0, [%in];
  setp.lt.s32 %p0, %r0, 4;
  {lines}
  movmatrix.sync.aligned.m8n8.trans.b16 %r5, %r4;
  and.b32 %r6, %r5, 7; setp.eq.u32 %p1, %r6, 0; @%p1 bra DONE;
  st.global.b32 [%in], %r5; DONE:
  ret;
}}"""
    doubts = [step.doubt for step in wf.ptx.load(text)["k"].program.steps if step.name.startswith("movmatrix")]
    assert [bool(item) for item in doubts] == [TRANSPOSED[lines]]


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


MINIMA = {
    "min.f64 %d4, %d0, 0d3FF0000000009ABC; bar.sync 0; st.global.b16 [%in], %d4;": False,
    "max.f64 %d4, 0dBFF0000000005678, %d1; bar.sync 0; cvt.u32.u64 %r4, %d4; st.global.b32 [%in], %r4;": False,
    "min.f64 %d4, %d0, 0d3FF0000000009ABC; bar.sync 0; st.global.b64 [%in], %d4;": True,
    "min.f64 %d4, %d1, 0d3FF0000000009ABC; bar.sync 0; st.global.b16 [%in], %d4;": True,
}
"""Whether the lower word of what a line leaves is known, beside a quotient of f64."""


@pytest.mark.parametrize("lines", MINIMA)
def test_the_lower_word_of_a_minimum_is_doubted_where_nothing_else_is_read(lines: str) -> None:
    values = {"%d0": 0xC000000000001234, "%d1": 0x3FF0000000009ABC}
    quotient = "div.rn.f64 %d5, %d0, %d1; st.global.b64 [%in+8], %d5;"
    assert run_lines(f"{lines} {quotient}", values, "%d5")[1].exact == MINIMA[lines]
    assert run_lines(lines, values, "%d0")[1].exact


@pytest.mark.parametrize(
    ("quotient", "is_exact"),
    [
        ("@%p0 div.rm.f64 %d5, %d0, %d1; st.global.b32 [%in+8], %d5;", False),
        ("@%p0 div.rm.f64 %d5, %d0, %d1; st.global.b64 [%in+8], %d5;", True),
        ("div.rm.f64 %d5, %d0, %d1; st.global.b32 [%in+8], %d5;", True),
    ],
)
def test_the_lower_word_of_a_maximum_is_doubted_behind_a_guarded_quotient(quotient: str, is_exact: bool) -> None:
    values = {"%d0": 0x3FF0000000005678, "%d1": 0xC000000000001234, "%p0": 1}
    _, run = run_lines(f"{quotient} max.f64 %d4, %d0, %d1; cvt.u32.u64 %r4, %d4;", values, "%r4")
    assert run.exact == is_exact


@pytest.mark.parametrize(("position", "is_exact"), [("%r4", False), ("%r5", True)])
def test_the_lower_word_of_a_maximum_is_doubted_beside_fields_of_two_blocks(position: str, is_exact: bool) -> None:
    text = f""".version 8.7
.target sm_90
.address_size 64
.func (.param .b32 q) f(.param .b64 a) {{
  .reg .b64 %d<2>; .reg .b32 %r<2>;
  ld.param.b64 %d0, [a]; max.f64 %d1, %d0, 0d380FFFFFE0000000; cvt.u32.u64 %r1, %d1; st.param.b32 [q], %r1; ret;
}}
.visible .entry k(.param .u64 in) {{
  .reg .b64 %in, %d0; .reg .b32 %r<8>; .reg .pred %p0;
  ld.param.u64 %in, [in]; ld.global.b64 %d0, [%in]; ld.global.v4.b32 {{%r0, %r1, %r4, %r5}}, [%in];
  setp.eq.u32 %p0, %r0, 5; bfe.u32 %r2, %r1, %r4, %r0; @%p0 bra NEXT; bfe.u32 %r2, %r0, {position}, %r0; NEXT:
  {{ .param .b64 pa; .param .b32 pq; st.param.b64 [pa], %d0; call (pq), f, (pa); ld.param.b32 %r3, [pq]; }}
  st.global.b32 [%in], %r2; st.global.b32 [%in+4], %r3; ret;
}}"""
    run = wf.ptx.load(text)["k"].launch(1, 1, [np.array([0x3FF0000000005678, 0], np.uint64)])
    assert run.exact == is_exact


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


@pytest.mark.parametrize(
    ("line", "is_exact"),
    [
        ("min.f32 %r4, 0f67177390, %r5;", False),
        ("max.f32 %r4, %r5, 0f80000000;", False),
        ("min.f32 %r4, 0f3F7FFFFF, %r5;", True),
        ("max.f32 %r4, %r5, 0f3F800000;", True),
        ("min.NaN.f32 %r4, 0f67177390, %r5;", True),
    ],
)
def test_a_bound_of_a_clamped_integer_is_doubted_if_it_is_none_for_0_to_1(line: str, is_exact: bool) -> None:
    _, run = run_lines(f"add.sat.s32 %r5, %r0, %r1; {line}", {"%r0": 0x6B000000, "%r1": 5}, "%r4")
    assert run.exact == is_exact


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
