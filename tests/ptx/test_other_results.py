"""A doubt counts only where another result of its step would change memory."""

from __future__ import annotations

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.ptx.launch import other_results

pytestmark = pytest.mark.filterwarnings("ignore::warpfrag.errors.CompilerDeparture")
KERNEL = """
.version 8.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 rounds)
{{
    .reg .b64 %d<10>; .reg .b32 %r<10>; .reg .pred %p<4>;
    ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; ld.param.u32 %r5, [rounds];
    ld.global.f64 %d2, [%d0]; ld.global.f64 %d3, [%d0+8]; ld.global.b32 %r0, [%d0+16];
    mov.u32 %r6, 0;
LOOP:
    {body}
    add.u32 %r6, %r6, 1;
    setp.lt.u32 %p2, %r6, %r5;
    @%p2 bra LOOP;
    ret;
}}
"""
NANS = np.array([0x7FF8000000000001, 0xFFF8000000000002, 0x40000000], np.uint64)
SUM = "add.f64 %d4, %d2, %d3;"
TWICE = "rcp.approx.ftz.f32 %r1, %r0; rcp.approx.ftz.f32 %r2, %r1;"
STORED = "st.global.b64 [%d1], %d4;"
STORED_WORD = "st.global.b32 [%d1], %r2;"


def launch(body: str, rounds: int = 1) -> tuple[wf.ptx.Run, np.ndarray]:
    out = np.arange(4, dtype=np.uint64)
    run = wf.ptx.load(KERNEL.format(body=body))["k"].launch(1, 32, [NANS.copy(), out, rounds])
    return run, out


@pytest.mark.parametrize(("doubted", "stored"), [(SUM, STORED), (TWICE, STORED_WORD)])
def test_a_doubted_result_that_is_stored_stays_in_doubt(doubted: str, stored: str) -> None:
    run, _ = launch(f"{doubted} {stored}")
    assert not run.exact
    assert [line.line for line in run.inexact_lines]


def test_a_rest_may_be_the_same_for_no_bits_all_bits_and_changed_bits() -> None:
    run, _ = launch(f"add.u32 %r0, %r0, 0x800000; {TWICE} rem.u32 %r2, %r2, 3; {STORED_WORD}")  # of 4.0
    assert not run.exact


@pytest.mark.parametrize(
    "body",
    [
        f"{SUM} mov.b64 %d4, 7; {STORED}",  # overwritten
        f"{SUM} testp.notanumber.f64 %p1, %d4; selp.b64 %d4, 1, 0, %p1; {STORED}",  # a NaN whichever it is
        f"{TWICE} and.b32 %r2, %r2, 0; {STORED_WORD}",
        f"{SUM} {TWICE}",
    ],
)
def test_a_doubt_that_cannot_reach_memory_is_none(body: str) -> None:
    run, out = launch(body)
    assert run.exact
    assert not run.inexact_lines
    assert out[1:].tolist() == [1, 2, 3]  # what other runs stored is gone


@pytest.mark.parametrize("other", ["%d2", "%d3"])
def test_another_result_may_bring_a_doubt_that_the_launch_has_not(other: str) -> None:
    run, _ = launch(f"{SUM} mul.f64 %d4, %d4, {other}; {STORED}")  # a NaN times itself, or times the other
    assert not run.exact
    run, _ = launch(f"{SUM} mul.f64 %d5, %d4, {other}; mov.b64 %d4, 7; {STORED}")
    assert run.exact


def test_of_two_doubts_the_one_that_matters_is_left() -> None:
    run, _ = launch(f"{TWICE} {SUM} {STORED}")
    assert [line.source for line in run.inexact_lines] == [SUM.rstrip(";")]


def test_the_memory_of_the_launch_itself_is_left() -> None:
    run, out = launch(f"{SUM} {STORED} atom.global.add.u64 %d5, [%d1+8], 1;")
    assert not run.exact
    assert out.tolist() == [0xFFF8000000000002, 33, 2, 3]  # the hardware prefers its second operand


def test_an_error_with_another_result_keeps_the_doubt() -> None:
    place = "and.b32 %r3, %r2, 0x7F000000; setp.eq.u32 %p1, %r3, 0x40000000; @!%p1 trap;"
    run, _ = launch(f"{TWICE} {place}")
    assert not run.exact


def test_a_long_launch_keeps_its_doubts(monkeypatch: pytest.MonkeyPatch) -> None:
    body = f"{SUM} mov.b64 %d4, 7; {STORED}"
    assert launch(body, 8)[0].exact
    monkeypatch.setattr(other_results, "MAX_STEPS", 40)
    assert not launch(body, 8)[0].exact


def test_a_loop_that_another_result_never_ends_keeps_the_doubt() -> None:
    body = f"{TWICE} and.b32 %r4, %r2, 1; sub.u32 %r6, %r6, %r4; {STORED_WORD} st.global.b32 [%d1], 0;"
    assert not launch(body, 3)[0].exact


def test_large_arrays_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_results, "MAX_BYTES", 8)
    assert not launch(f"{SUM} mov.b64 %d4, 7; {STORED}")[0].exact
