"""Launches that an H200 ran, as machine code of its driver's assembler: every byte equal, and exact if compared."""

import os

import pytest

from oracle import toolkit
from ptx.test_stored_kernels import CASES as STORED
from tools.sass.captures import in_engine
from tools.sass.suite_launches import suite_cases
from warpfrag.cuda_tools import find_tool
from warpfrag.errors import MissingExtra

DRIVER = "13.0."
"""The release of ptxas in the H200's driver."""
CASES = {case.name: case for case in suite_cases()}
NOT_EXACT = {
    "atomic_refs", "atomics", "caches", "calls", "floats", "functions", "groups", "halves", "last_block_sum",
    "lookback_scan", "named_barriers", "pipeline", "stack", "staged", "t_att_90", "t_att_causal_80",
    "t_atomics_80", "t_attention_backward_90", "t_checked_80", "t_odd_corners_80", "t_scans_80", "votes", "warp_sort",
    "wgmma_f16_registers", "wgmma_narrow",
}  # fmt: skip
"""Stored kernels with an open order or with spellings that were not compared."""
EXACT = {name for name in STORED if name not in NOT_EXACT} | {name for name in CASES if name.startswith("load2")}


@pytest.fixture(scope="module", autouse=True)
def _driver_assembler():
    try:
        version = find_tool("ptxas").version
    except MissingExtra:
        version = "none"
    if not version.startswith(DRIVER):
        text = f"expected ptxas {DRIVER}*, the one of the driver, got {version}"
        pytest.fail(text) if os.environ.get("WARPFRAG_REQUIRE_DRIVER_ASSEMBLER") == "1" else pytest.skip(text)
    toolkit.programs("nvdisasm") or toolkit.absent("no nvdisasm: install nvidia-cuda-nvdisasm>=13.4")


@pytest.mark.every_case
@pytest.mark.one_engine
@pytest.mark.parametrize("name", STORED)
def test_a_kernel_leaves_what_the_gpu_left(name):
    assert differences(name) == []


@pytest.mark.one_engine
@pytest.mark.parametrize("name", [name for name in CASES if name not in STORED])
def test_a_copy_leaves_what_the_gpu_left(name):
    assert differences(name) == []


def differences(name):
    """Run a launch; return the arrays that differ from the GPU's and, for names in `EXACT`, reasons for not exact."""
    reasons: list[str] = []
    results = CASES[name].run(in_engine("auto", reasons, judge=name in EXACT))
    assert results
    wrong = [array for array, computed, expected in results if computed != expected]
    return wrong + (reasons if name in EXACT else [])
