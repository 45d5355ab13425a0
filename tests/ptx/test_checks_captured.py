"""Captured kernels that ran correctly on a GPU, under all checks: clean, except for races that their authors wrote.

`KNOWN` has every finding that is right by the memory model although the H200 gave the same result each time. Kernels of
`SLOW` are left out unless WARPFRAG_CHECK_EVERYTHING is set.
"""

import os
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from ptx import (
    hopper_kernels,
    hopper_launches,
    litmus,
    planted_mistakes,
    test_hopper,
    test_kernels,
    test_stored_kernels,
)

pytestmark = pytest.mark.one_engine

EVERYTHING = bool(os.environ.get("WARPFRAG_CHECK_EVERYTHING"))
PLAIN_LOAD = "a plain load before the loop of atom.cas"
NARROW_SCOPE = "atomics of scope cta at one address, from two blocks"
NO_BARRIER = "cp.async writes what the last turn of the loop reads, with no barrier between"
RETURNED = "a shuffle reads lanes that have returned, which the manual leaves undefined"
KNOWN = {
    "atomics": {
        ("race", 1526): PLAIN_LOAD, ("race", 1533): PLAIN_LOAD, ("race", 1556): PLAIN_LOAD, ("race", 1565): PLAIN_LOAD,
        ("race", 1606): PLAIN_LOAD, ("lockstep", 1533): PLAIN_LOAD, ("lockstep", 1565): PLAIN_LOAD,
        ("lockstep", 1599): PLAIN_LOAD, ("lockstep", 1606): PLAIN_LOAD,
    },
    "atomic_refs": {
        ("race", 1144): NARROW_SCOPE, ("race", 1156): NARROW_SCOPE, ("race", 1163): NARROW_SCOPE,
        ("race", 1167): NARROW_SCOPE, ("race", 1177): PLAIN_LOAD, ("race", 1186): PLAIN_LOAD,
        ("lockstep", 1177): PLAIN_LOAD, ("lockstep", 1186): PLAIN_LOAD,
    },
    "staged": {("race", 1496): NO_BARRIER},
    "divergence": {("uninitialised", 2034): RETURNED},
}  # fmt: skip
SORT, PRODUCT, LONG = "a sort of many steps", "a product of many tiles", "a long program"
TURNS = "thousands of turns of atom.cas"
SLOW = {
    "atomics": TURNS, "atomic_refs": TURNS, "bitonic_sort": SORT, "radix_sort": SORT, "cub_block": SORT,
    "pipeline": PRODUCT, "c_wmma_gemm_sm80": PRODUCT, "t_matmul_f16_sm80": PRODUCT, "t_matmul_f16_sm90": PRODUCT,
    "c_collatz_sm80": LONG,
    "calls": LONG, "doubles": LONG, "functions": LONG, "wide": LONG, "t_odd_corners_80": LONG,
    "t_selective_scan_80": LONG, "t_pointwise_80": LONG, "fft16": LONG, "wmma_formats": PRODUCT,
    "mma_f16_swizzled": PRODUCT, "attention": PRODUCT, "t_mm_tf32_80": PRODUCT, "t_mm_tf32_90": PRODUCT,
    "t_mm_s8_80": PRODUCT, "t_mm_s8_90": PRODUCT, "t_mm_fp8_89": PRODUCT, "t_mm_fp8_90": PRODUCT,
    "t_mm_bf16_odd_80": PRODUCT, "t_mm_bf16_odd_90": PRODUCT, "t_mm_f16acc_80": PRODUCT, "t_mm_f16acc_90": PRODUCT,
    "t_mm_f64_80": PRODUCT, "t_att_80": PRODUCT, "t_att_causal_80": PRODUCT, "t_att_90": PRODUCT,
    "t_attention_backward_90": PRODUCT, "t_persistent_f16_90": PRODUCT, "t_conv_80": PRODUCT, "t_scaled_90": PRODUCT,
    "ws_gemm_512": PRODUCT, "t_tma_host_64": PRODUCT,
}  # fmt: skip
HOPPER = [name for name, row in test_hopper.H200.items() if row["status"] == "ok"]
QUICK_HOPPER = (*test_hopper.COMPILED, "st_async_8", "red_async_min", "bulk_multicast_4", "put_im2col4", "far_store")


def quick(names):
    return [name for name in names if EVERYTHING or name not in SLOW]


@pytest.fixture(scope="module")
def hopper():
    return wf.ptx.load(hopper_kernels.module())


@pytest.mark.parametrize("name", HOPPER if EVERYTHING else QUICK_HOPPER)
def test_a_hopper_launch_is_clean(hopper, name):
    case = hopper_launches.CASES[name]
    args, _ = test_hopper.arguments(case)
    options = {"shared": case["shared"], "options": wf.ptx.LaunchOptions(cluster=case["cluster"]), "checks": "all"}
    run = hopper[case["entry"]].launch(case["grid"], case["block"], args, **options)

    assert (run.verdict, run.findings) == ("clean", [])


@pytest.mark.parametrize("name", quick(test_stored_kernels.CASES))
def test_a_stored_kernel_has_no_findings_but_those_known(name):
    case = test_stored_kernels.CASES[name]
    args = [test_stored_kernels.argument(given) for given in case["args"]]
    kernel = test_stored_kernels.module(case["file"])[case["entry"]]
    run = kernel.launch(case["grid"], case["block"], args, shared=case["shared"], checks="all")

    assert {(finding.kind, finding.line) for finding in run.findings} == set(KNOWN.get(name, ())), run.findings
    assert run.verdict == ("findings" if name in KNOWN else "clean")


@pytest.mark.parametrize("name", quick(test_hopper.CAPTURED))
def test_a_kernel_with_tensor_copies_is_clean(name):
    case = test_hopper.CAPTURED[name]
    with np.load(test_hopper.DATA / "memory.npz") as memory:
        arrays = {key.removeprefix(f"{name}/"): memory[key].copy() for key in memory if key.startswith(f"{name}/in")}
    args = [test_hopper.captured_argument(item, arrays) for item in case["args"]]
    kernel = test_hopper.kernel_of(case["file"], case["entry"])
    run = kernel.launch(case["grid"], case["block"], args, shared=case["shared"], checks="all")

    assert (run.verdict, run.findings) == ("clean", [])


@pytest.mark.parametrize("name", quick(test_kernels.CASES))
def test_a_captured_kernel_is_clean(name):
    run, _, _ = test_kernels.launch(name, checks="all")

    assert (run.verdict, run.findings) == ("clean", [])


def test_the_barrier_of_a_grid_orders_blocks():
    kernel = wf.ptx.load(test_hopper.DATA.parent / "modules" / "cooperative.ptx")["scan"]
    values, partial = np.ones((2, 5 * 64), np.float32)
    run = kernel.launch(5, 64, [values, partial, 5 * 64], options=wf.ptx.LaunchOptions(cooperative=True), checks="all")

    assert (run.verdict, run.findings) == ("clean", [])


def test_the_report_has_the_counts():
    page = (Path(__file__).parents[2] / "docs" / "evidence" / "checks.md").read_text(encoding="utf-8")
    planted = [row for row in planted_mistakes.PLANTED if row[3]]
    launches = len(HOPPER) + len({*test_stored_kernels.CASES, *test_hopper.CAPTURED, *test_kernels.CASES})
    counts = f"{len(planted)} mistakes planted in {len(planted_mistakes.KERNELS)} correct kernels"

    assert f"{counts}, {len(litmus.ROWS)} litmus tests of the memory model, and {launches} launches" in page
    for kind in ("race", "lockstep", "async", "fence", "uninitialised", "barrier", "deadlock"):
        rows = [row for row in planted if row[3] == kind]
        assert f"| `{kind}` | {len(rows)} | {len({row[0] for row in rows})} |" in page
        assert len({row[0] for row in rows}) >= 3
    for verdict, words in (("race", "race"), ("none", "none"), ("lockstep", "only lanes of one warp are unordered")):
        assert f"| {words} | {sum(row[3] == verdict for row in litmus.ROWS)} |" in page


def test_slow_kernels_exist():
    assert set(SLOW) <= {*test_stored_kernels.CASES, *test_hopper.CAPTURED, *test_kernels.CASES}
    assert set(KNOWN) <= set(test_stored_kernels.CASES)
