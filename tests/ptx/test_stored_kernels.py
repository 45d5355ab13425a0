"""Kernels written for these tests, compared with the hash of an H200's memory.

`kernels.zip` has the PTX as nvcc 13.0 and Triton 3.6 wrote it, and the sources. `kernels.json` has the launches: arrays
come from seeds (`seeded`), those that changed have the hash and the first bytes of what the GPU left.
"""

import hashlib
import json
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from seeded import seeded
from slow_cases import sampled

pytestmark = pytest.mark.one_engine  # each launch names its own

DATA = Path(__file__).parent.parent / "data" / "ptx"
CASES = json.loads((DATA / "kernels.json").read_text(encoding="utf-8"))
BOTH = {  # the others are compiled in seconds, and are left to the readable engine here
    "lookback_scan", "last_block_sum", "histogram", "divergence", "named_barriers", "votes", "groups", "by_value",
    "mma_formats", "mma_sparse", "wgmma_f16_registers", "wgmma_narrow", "fp8", "t_softmax_90", "t_layernorm_90",
    "caches", "stack", "atomic_refs", "t_rms_rope_90", "t_swiglu_quant_90", "warp_sort",
}  # fmt: skip
RUNS = [(name, "reference") for name in CASES] + [(name, "compiled") for name in CASES if name in BOTH]


def text(file):
    with zipfile.ZipFile(DATA / "kernels.zip") as kernels:
        return kernels.read(f"{file}.ptx").decode()


@cache
def module(file):
    return wf.ptx.load(text(file))


def argument(given):
    if given is None:
        return None
    if "kind" in given:
        return seeded(given["kind"], given["shape"], given.get("seed"))
    return bytes.fromhex(given["bytes"]) if "bytes" in given else np.dtype(given["dtype"]).type(given["scalar"])


@pytest.mark.parametrize(("name", "engine_name"), sampled(RUNS, 6))
def test_the_memory_is_what_the_gpu_left(name, engine_name):
    case = CASES[name]
    args = [argument(given) for given in case["args"]]
    before = [given.tobytes() if isinstance(given, np.ndarray) else b"" for given in args]
    run = module(case["file"])[case["entry"]].launch(
        case["grid"], case["block"], args, shared=case["shared"], engine=engine_name
    )

    assert not [item for item in run.inexact_lines if "store" in item.reason]  # none of them races
    assert any(given and "after" in given for given in case["args"])
    for given, array, unchanged in zip(case["args"], args, before, strict=True):
        if isinstance(array, np.ndarray) and "after" in given:
            assert array.tobytes()[:32].hex() == given["first"]
            assert hashlib.sha256(array.tobytes()).hexdigest() == given["after"]
        elif isinstance(array, np.ndarray):
            assert array.tobytes() == unchanged


def test_what_a_kernel_prints_is_kept():
    """Triton's device_print, as printed by the GPU."""
    case = CASES["t_checked_80"]
    args = [argument(given) for given in case["args"]]
    kernel = module(case["file"])[case["entry"]]
    run = kernel.launch(case["grid"], case["block"], args, shared=case["shared"])

    lines = [f"pid ({block}, 0, 0) idx () seen: {total}" for block, total in ((0, 132925), (1, 70464))]
    assert run.printed.splitlines() == [line for line in lines for _ in range(128)]


def test_there_are_kernels_of_every_kind():
    with zipfile.ZipFile(DATA / "kernels.zip") as kernels:
        files = {name for name in kernels.namelist() if name.endswith(".ptx")}
    assert files == {f"{case['file']}.ptx" for case in CASES.values()}
    assert len(CASES) > 60
    assert set(CASES) >= BOTH
