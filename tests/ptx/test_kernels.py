"""Real nvcc and Triton kernels: every byte of memory equals an H200's."""

import json
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf

DATA = Path(__file__).parent.parent / "data" / "ptx"
CASES = json.loads((DATA / "cases.json").read_text(encoding="utf-8"))


def launch(name, **options):
    case = CASES[name]
    with np.load(DATA / "memory.npz") as memory:
        arrays = {arg["array"]: memory[f"{name}/{arg['array']}"].copy() for arg in case["args"] if "array" in arg}
        expected = {
            key: memory[f"{name}/{key.replace('in', 'out')}"] if f"{name}/{key.replace('in', 'out')}" in memory else
            memory[f"{name}/{key}"] for key in arrays
        }  # fmt: skip
    args = [
        arrays[arg["array"]] if "array" in arg else np.dtype(arg["dtype"]).type(arg["scalar"]) for arg in case["args"]
    ]
    kernel = wf.ptx.load(DATA / f"{name}.ptx")[case["entry"]]
    run = kernel.launch(case["grid"], case["block"], args, shared=case["shared"], **options)
    return run, arrays, expected


@pytest.mark.parametrize("name", CASES)
def test_the_memory_is_what_the_gpu_left(name):
    run, arrays, expected = launch(name)

    assert any(arg.get("changed") for arg in CASES[name]["args"])
    for key, array in arrays.items():
        assert array.tobytes() == expected[key].tobytes(), key
    assert not run.uncertain
    assert run.counts.instructions == run.profile.total.instructions > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", ["c_wmma_gemm_sm80", "c_scan_sm80", "t_hist_sm80"])
def test_the_order_of_blocks_does_not_change_them(name):
    _, arrays, expected = launch(name, seed=5, checks=("memory", "barriers"))

    assert all(array.tobytes() == expected[key].tobytes() for key, array in arrays.items())


def test_evidence_names_what_an_assembler_may_contract():
    run, _, _ = launch("c_reduce_sm80")

    assert {level for level, _, _ in run.evidence.values()} <= {"specified", "hardware"}
    assert "contract" in run.evidence["add.f32"].detail
    assert "contract" not in run.evidence["add.s32"].detail
    matrix = launch("c_mma_s8_sm80")[0].evidence["mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32"]
    assert matrix.level == "hardware"
    assert matrix.cases > 0


@pytest.mark.parametrize(("target", "expected"), [("sm_80", 2.0**-44), ("sm_80, debug", 0)])
def test_a_debug_module_is_not_contracted(target, expected):
    """-G disables the assembler's optimizations: an H200 then rounds product and sum separately."""
    text = f""".version 8.0
.target {target}
.address_size 64
.visible .entry k(.param .u64 out)
{{
.reg .f32 %f<4>; .reg .b64 %rd1;
ld.param.u64 %rd1, [out];
ld.global.f32 %f1, [%rd1];
mul.f32 %f2, %f1, %f1;
sub.f32 %f3, %f2, 0f3F800004;
st.global.f32 [%rd1], %f3;
ret;
}}"""
    out = np.array([1 + 2.0**-22], np.float32)
    wf.ptx.load(text)["k"].launch(1, 1, [out])

    assert out[0] == expected


def test_a_kernel_for_an_architecture_that_lacks_an_instruction_is_refused():
    with pytest.raises(wf.WarpfragError, match=r"line \d+.*: .*sm_75"):
        launch("t_matmul_f16_sm80", arch="sm_75")
