"""Every litmus test (`litmus`): a race is reported if and only if the memory model has one."""

import numpy as np
import pytest

import warpfrag as wf
from ptx import litmus

ADDRESSES = {"x": 0, "y": 128, "z": 256}
VALUES = {"W": "1", "W2": "2", "W[": "1", "W2[": "2"}


def instruction(text, number):
    """One step of a thread as PTX."""
    name, _, place = text.partition(" ")
    opcode, _, words = name.rstrip("]").partition("[")
    at = f"[%rd1+{ADDRESSES[place]}]" if place in ADDRESSES else ""
    dotted = f".{words}" if words else ""
    register = f"%r{10 + number}"
    return {
        "W": f"st{dotted}.global.u32 {at}, 1;",
        "W2": f"st{dotted}.global.u32 {at}, 2;",
        "H": f"st{dotted}.global.u16 {at}, %h1;",
        "R": f"ld{dotted}.global.u32 {register}, {at};",
        "A": f"atom{dotted}.global.add.u32 {register}, {at}, 1;",
        "D": f"atom{dotted}.global.add.u64 %rd9, {at}, 1;",
        "F": f"fence{dotted};",
        "M": f"membar.{place};",
        "S": "bar.warp.sync -1;",
        "V": "vote.sync.any.pred %p3, %p1, -1;",
        "B": "bar.sync 0;",
    }[opcode]


def kernel(place, programs):
    """The threads one after the other: thread k runs at its own label, and the others skip it."""
    who = {"lanes": "%laneid", "warps": "%r5", "blocks": "%ctaid.x", "cluster": "%ctaid.x"}[place]
    body = []
    together = {"S", "V", "B"}
    if place in {"lanes", "warps"}:  # what all must reach stands outside of the branches
        (first, second), sync = programs, next((item for item in programs[0] if item in together), None)
        body += branch(0, [item for item in first if item not in together])
        body += [instruction(sync, 0)] if sync else []
        body += branch(1, [item for item in second if item not in together])
    else:
        for number, program in enumerate(programs):
            body += branch(number, program)
    return "\n".join([
        ".version 8.6", ".target sm_90", ".address_size 64", ".visible .entry k(.param .u64 out)", "{",
        ".reg .pred %p<4>; .reg .b16 %h<3>; .reg .b32 %r<40>; .reg .b64 %rd<10>;", "ld.param.u64 %rd1, [out];",
        "mov.u32 %r4, %tid.x;", "shr.u32 %r5, %r4, 5;", f"mov.u32 %r6, {who};", "mov.u32 %r7, %laneid;",
        "mov.u16 %h1, 3;", "setp.eq.u32 %p1, %r7, 0;", *body, "ret;", "}",
    ])  # fmt: skip


def branch(number, program):
    """The steps of one thread, in a branch of their own."""
    label = f"L{number}"
    lines = [f"setp.ne.u32 %p2, %r6, {number};", f"@%p2 bra {label};"]
    return [*lines, *(instruction(item, number) for item in program), f"{label}:"]


def launch_of(place, programs):
    """The text of a kernel, its grid and block, and the options of its launch."""
    block = {"lanes": 32, "warps": 64}.get(place, 1)
    grid = 1 if place in {"lanes", "warps"} else len(programs)
    text = kernel(place, programs)
    if place == "warps":
        text = text.replace("@%p2 bra", "setp.ne.or.u32 %p2, %r7, 0, %p2;\n@%p2 bra")
    return text, grid, block, {"options": wf.ptx.LaunchOptions(cluster=len(programs))} if place == "cluster" else {}


@pytest.mark.one_engine
@pytest.mark.parametrize("row", litmus.ROWS, ids=[row[0] for row in litmus.ROWS])
def test_a_litmus_test_is_judged_as_the_model_says(row):
    _, place, programs, verdict, _ = row
    text, grid, block, options = launch_of(place, programs)
    run = wf.ptx.load(text)["k"].launch(grid, block, [np.zeros(128, np.uint32)], checks="races", **options)

    assert {finding.kind for finding in run.findings} == ({verdict} - {"none"})
    assert bool(run.uncertain) == (verdict != "none" or bool(run.inexact_lines))


@pytest.mark.one_engine
def test_there_are_enough_of_them():
    assert len({row[0] for row in litmus.ROWS}) == len(litmus.ROWS) >= 60
    assert len({(row[1], str(row[2])) for row in litmus.ROWS}) == len(litmus.ROWS)  # none twice
    assert {row[3] for row in litmus.ROWS} == {"race", "none", "lockstep", "unordered"}
