"""Launching a kernel: arguments by type and size, extents, and errors."""

from dataclasses import replace

import numpy as np
import pytest

import warpfrag as wf

TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .align 8 .b8 blob[12], .param .f32 scale, .param .u16 small)
{
    .reg .b64 %rd<3>; .reg .b32 %r<5>; .reg .b16 %h; .reg .f32 %f;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [blob+8];
    ld.param.f32 %f, [scale];
    ld.param.u16 %h, [small];
    st.global.u32 [%rd1], %r1;
    st.global.f32 [%rd1+4], %f;
    st.global.u16 [%rd1+8], %h;
    ret;
}
.visible .entry limited() .reqntid 64 { .shared .b8 big[1000]; ret; }
.func again(.reg .b32 %a) { call.uni again, (%a); ret; }
.visible .entry recursive() { call.uni again, (5); ret; }
"""
MODULE = wf.ptx.load(TEXT)
BLOB = np.arange(3, dtype=np.uint32)


def test_a_run_is_shown_in_a_line_and_as_a_card(engine):
    run = MODULE["k"].launch(1, 1, [np.zeros(3, np.uint32), BLOB, 1.5, 7], checks=["memory"])
    card = run._repr_html_()

    counts = "8 warp instructions of 8 opcodes"
    assert repr(run) == f"<Run: PTX semantics for sm_90, not exact, {counts}, {run.engine} engine, no findings>"
    assert all(
        label in card for label in ("warp instructions", "evidence", "state space", "st.global.u16", "wavefronts")
    )
    assert card.startswith('<div class="wf-card">')


def test_the_package_lists_what_is_public():
    assert {"Kernel", "Module", "PtxError", "Run", "load"} <= set(dir(wf.ptx)) == set(wf.ptx.__all__)
    assert all(getattr(wf.ptx, name).__doc__ for name in dir(wf.ptx))


def test_arguments_take_their_places():
    out = np.zeros(3, np.uint32)
    MODULE["k"].launch((1, 1), [32], [out, BLOB, 1.5, 7])
    first = out.copy()
    MODULE["k"].launch(1, 1, [out, BLOB.tobytes(), np.float32(1.5), np.uint16(7)])

    assert first.tolist() == out.tolist() == [2, 0x3FC00000, 7]
    assert [*MODULE] == ["k", "limited", "recursive"]
    assert "again" not in MODULE
    assert repr(MODULE["k"]) == "<kernel k(u64, b8, f32, u16)>"


def test_two_arguments_may_be_one_array_and_memory_changes_in_place():
    text = TEXT.replace(".param .u64 out, .param .align 8 .b8 blob[12]", ".param .u64 out, .param .u64 blob").replace(
        "ld.param.u32 %r1, [blob+8];", "ld.param.u64 %rd2, [blob]; ld.global.u32 %r1, [%rd2+8];"
    )
    out = np.array([0, 0, 9], np.uint32)
    wf.ptx.load(text)["k"].launch(1, 1, [out, out, 0.0, 3])

    assert out.tolist() == [9, 0, 3]

    whole = np.array([0, 0, 0, 0, 5], np.uint32)  # a part of it that begins where it does is shorter
    wf.ptx.load(text.replace("[%rd2+8]", "[%rd2+16]"))["k"].launch(1, 1, [whole[:3], whole, 0.0, 3])
    assert whole.tolist() == [5, 0, 3, 0, 5]


def test_a_struct_is_its_fields():
    text = TEXT.replace(".param .u64 out, .param .align 8 .b8 blob[12]", ".param .align 8 .b8 s[24]").replace(
        "ld.param.u64 %rd1, [out];", "ld.param.u64 %rd1, [s+8];"
    ).replace("[blob+8]", "[s+16]")  # fmt: skip
    kernel = wf.ptx.load(text)["k"]
    out = np.zeros(3, np.uint32)
    kernel.launch(1, 1, [(np.int32(1), out, np.uint16(77)), 0.0, 3])
    assert out.tolist() == [77, 0, 3]

    with pytest.raises(wf.errors.InvalidOperand, match="expected at most 24 bytes, got 32"):
        kernel.launch(1, 1, [[out, out, None, np.float64(1)], 0.0, 3])
    with pytest.raises(
        wf.errors.InvalidOperand, match="field 1.: expected an array, a NumPy scalar, bytes or None, got 5"
    ):
        kernel.launch(1, 1, [[out, 5], 0.0, 3])


def test_a_call_that_is_no_launch_says_what_is():
    out = np.zeros(3, np.uint32)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'check'; expected shared, arch, checks, "):
        MODULE["k"].launch(1, 1, [out, BLOB, 1.5, 7], check="all")
    with pytest.raises(TypeError, match=r"use kernel.launch\(grid=..., block=..., args=\[...\]\)"):
        MODULE["k"](out, 100)
    integer = wf.ptx.load(TEXT.replace(".param .f32", ".param .u32"))["k"]
    with pytest.raises(
        wf.errors.InvalidOperand,
        match=r"expected an integer, got float32 1.5; to pass its bits, use .view\(np.uint32\)",
    ):
        integer.launch(1, 1, [out, BLOB, np.float32(1.5), 7])
    integer.launch(1, 1, [out, BLOB, np.float32(1.5).view(np.uint32), 7])
    assert out[1] == 0x3FC00000
    with pytest.raises(wf.errors.InvalidOperand, match=r"expected a float, got int32 3; .* .view\(np.float32\)"):
        MODULE["k"].launch(1, 1, [out, BLOB, np.int32(3), 7])


def test_a_run_names_the_assembled_architecture_and_counts_findings():
    run = MODULE["k"].launch(1, 1, [np.zeros(3, np.uint32), BLOB, 1.5, 7], checks="memory")
    (finding,) = MODULE["k"].launch(1, 1, [np.zeros(2, np.uint32), BLOB, 1.5, 7], checks="memory").findings
    run = replace(run, basis="sass sm_90a, ptxas 13.0.88, cubin 0", arch="sm_90", findings=[finding])

    assert repr(run).startswith("<Run: machine code for sm_90a, ")
    assert ", 1 finding>" in repr(run)


def read_only():
    array = np.zeros(3, np.uint32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("entry", "options", "message"),
    [
        ("k", {"args": [None]}, r"k takes 4 arguments \(out .u64, blob .b8, scale .f32, small .u16\), got 1"),
        ("k", {"args": [None, BLOB, 1.0, 1]}, "outside every allocation: there are no allocations"),
        ("k", {"args": [read_only(), BLOB, 1.0, 1]}, "a store to argument 0 .out. at .* which is read-only"),
        ("k", {"args": [np.zeros((4, 4), np.uint32)[:, 1], BLOB, 1.0, 1]}, "expected a contiguous array"),
        ("k", {"args": [np.zeros(3, object), BLOB, 1.0, 1]}, "expected an array of numbers"),
        (
            "k",
            {"args": [np.zeros(3), BLOB[:2], 1.0, 1]},
            "argument 1 .blob, .b8.: expected 12 bytes, got .*, which has 8",
        ),
        ("k", {"args": [np.zeros(3), BLOB, np.zeros(3), 1]}, "expected a value of 4 bytes, got an array"),
        ("k", {"args": [np.zeros(3), BLOB, None, 1]}, "got None, a null pointer"),
        ("k", {"args": [np.zeros(3), BLOB, 1.0, 70000]}, "expected an integer of 16 bits, got 70000"),
        ("k", {"args": [np.zeros(3), BLOB, 1.0, 1.5]}, "expected an integer, got 1.5"),
        ("k", {"args": [np.zeros(3), BLOB, "x", 1]}, "expected an array, a number, bytes or None, got 'x'"),
        ("limited", {"block": 32}, r"blocks of \(64, 1, 1\)"),
        ("limited", {"block": 64, "shared": 300_000}, "at most 232448 bytes of shared memory"),
        ("limited", {"block": 64, "shared": -1}, "expected shared to be a number of bytes"),
        ("limited", {"block": (64, 64)}, "at most 1024 threads"),
        ("limited", {"block": 64, "grid": (1, 2, 3, 4)}, "expected grid to be one to three positive integers"),
        ("limited", {"block": 64, "arch": "sm_12"}, "sm_12"),
        ("limited", {"block": 64, "arch": ""}, "unknown arch ''"),
        (
            "limited",
            {"block": 64, "checks": ("speed",)},
            "expected checks to be one of memory, races, .*, async, got 'speed'",
        ),
        (
            "limited",
            {"block": 64, "engine": "jit"},
            "expected engine to be one of auto, reference, compiled, got 'jit'",
        ),
        ("recursive", {}, "line 17: calls are nested more than 1024 deep"),
    ],
)
def test_what_cannot_be_launched_is_refused(entry, options, message):
    with pytest.raises(wf.WarpfragError, match=message):
        MODULE[entry].launch(**({"grid": 1, "block": 1, "args": []} | options))


def test_invalid_launch_options_are_rejected():
    with pytest.raises(wf.errors.InvalidOperand, match="expected explore to be a number of runs of at least 0, got -1"):
        wf.ptx.LaunchOptions(explore=-1)


def test_missing_entries_and_files_are_named():
    with pytest.raises(wf.WarpfragError, match=r"expected one of the entries \(k, limited, recursive\), got 'no'"):
        MODULE["no"]
    with pytest.raises(wf.errors.FileError, match="nowhere.ptx"):
        wf.ptx.load("nowhere.ptx")
    for nothing in (7, "", " "):
        with pytest.raises(
            wf.errors.InvalidOperand, match=f"expected a path or the text of a PTX module, got {nothing!r}"
        ):
            wf.ptx.load(nothing)
