"""Lines that ptxas may compile otherwise: which are in doubt, as its code and random kernels on an H200 showed."""

from __future__ import annotations

import numpy as np
import pytest

import warpfrag as wf
from ptx.lines import run_lines

pytestmark = pytest.mark.filterwarnings("ignore::warpfrag.errors.CompilerDeparture")

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
