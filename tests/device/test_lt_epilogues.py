"""cublasLt epilogues with auxiliary buffers and gradients: results of an H200, and those of the stand-in.

tools/lt_epilogues made the operands and recorded tests/data/torch/lt_epilogues_h200.json: digests of D, the
auxiliary buffer and the bias for each call, digests of the sums of the probes, and of GELU's gradient.
"""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from device.conditions import needs_stand_ins
from tools.lt_epilogues.cases import digest, inputs, operands
from tools.lt_epilogues.library import DTYPES, EPILOGUES, FILL, LtCase
from tools.lt_epilogues.probes import FIRST, patterns
from warpfrag.device.auxiliary_epilogue import depth_lanes, depth_sums, gelu_gradient, row_blocks, row_sums
from warpfrag.device.gemms_served import GemmCall, ServedGemm
from warpfrag.errors import CudaError

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "data" / "torch" / "lt_epilogues_h200.json"
RECORDED = json.loads(FILE.read_text(encoding="utf-8"))
NUMBERS = {"f16": 2, "bf16": 14, "tf32": 0, "f32": 0}


def read_case(key: str) -> LtCase:
    words = key.split()
    return LtCase(*words[:4], *map(int, words[4:7]), *map(float, words[7:9]), in_place=len(words) > 9)


def prepared(case: LtCase, seed: int, **changes: int) -> tuple[GemmCall, np.ndarray, dict[str, slice]]:
    """Return the call, its memory, and the parts of the memory that it writes."""
    a, b, c = operands(case, seed)
    aux, bias = inputs(case, seed)
    size = np.dtype(DTYPES[case.result]).itemsize
    d = c if case.in_place else np.full(case.m * case.n * size, FILL, np.uint8)
    buffers = {"a": a, "b": b, "c": c, "d": d, "aux": aux or bytes([FILL]) * case.aux_bytes, "bias": bias}
    starts, memory = {}, bytearray(16)
    for name, data in buffers.items():
        starts[name] = len(memory)
        raw = data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes()
        memory += raw + bytes(-len(raw) % 16)
    is_a, is_b = (int(letter == "t") for letter in case.layout)
    number, result = NUMBERS[case.type], NUMBERS[case.result]
    call = GemmCall(
        a=starts["a"], b=starts["b"], c=starts["c" if case.beta and not case.in_place else "d"], d=starts["d"],
        bias=starts["bias"], alpha_address=0, beta_address=0, scale_a=0, scale_b=0, aux=starts["aux"],
        m=case.m, n=case.n, k=case.k, lda=case.k if is_a else case.m, ldb=case.n if is_b else case.k, ldc=case.m,
        ldd=case.m, stride_a=0, stride_b=0, stride_c=0, stride_d=0, ld_aux=case.ld_aux, alpha=case.alpha,
        beta=case.beta, batch=1, type_a=number, type_b=number, type_c=result, type_d=result, bias_type=result,
        transpose_a=is_a, transpose_b=is_b, compute=77 if case.type == "tf32" else 68, math=16,
        epilogue=EPILOGUES[case.epilogue], fast=0, scale_type=0, is_batched=0, has_pointers=0, workspace_mib=32,
        function=b"cublasLtMatmul",
    )  # fmt: skip
    sizes = {"d": case.m * case.n * size, "aux": case.aux_bytes * case.has_aux, "bias": len(bias)}
    parts = {name: slice(starts[name], starts[name] + count) for name, count in sizes.items()}
    return call._replace(**changes), np.frombuffer(memory, np.uint8).copy(), parts


def served(case: LtCase, seed: int, **changes: int) -> tuple[list[str], list[str]]:
    """Return the digests of D, the auxiliary buffer and the bias, and the reasons why a GPU's may differ."""
    call, memory, parts = prepared(case, seed, **changes)
    record = SimpleNamespace(exact=None, reasons=None, basis=None)
    ServedGemm(call, lambda address, size: memory[address : address + size]).run(record)
    assert record.exact == (not record.reasons)
    return [digest(memory[part].tobytes()) for part in parts.values()], record.reasons


@pytest.mark.parametrize("name", EPILOGUES)
def test_calls_have_the_bits_of_the_h200(name):
    """Every result that is called exact is equal; float16 gradients are in other kernels, TF32 may be a guess."""
    equal, different = 0, []
    for seed, calls in RECORDED["calls"].items():
        for key, expected in calls.items():
            case = read_case(key)
            if case.epilogue == name:
                found, reasons = served(case, int(seed))
                assert found == expected or reasons, key
                equal += found == expected
                different += [key] * (found != expected)
    assert equal >= 10
    known = {"bf16", "f16"} if not is_gradient(name) else set() if name == "dgelu" else {"bf16"}
    assert [key for key in different if key.split()[1] in known] == []


def is_gradient(name: str) -> bool:
    return name.startswith(("dr", "dg", "bgrad"))


def test_other_workspaces_and_bad_buffers_are_reported():
    case = LtCase("gelu_aux", "bf16", "bf16", "tn", 64, 32, 64)
    assert any("32 MiB of workspace, not with 4" in reason for reason in served(case, 0, workspace_mib=4)[1])
    for changes in ({"ld_aux": 56}, {"ld_aux": 68}, {"aux": 0}):
        with pytest.raises(CudaError, match="a multiple of 8 and at least m"):
            served(case, 0, **changes)
    with pytest.raises(CudaError, match="a multiple of 128 and at least m"):
        served(case._replace(epilogue="relu_aux"), 0, ld_aux=64)
    reasons = served(LtCase("bgrada", "bf16", "bf16", "nt", 64, 32, 176), 0)[1]
    assert any("the bias gradient is summed is not known for this shape" in reason for reason in reasons)
    assert served(LtCase("dgelu", "f16", "f16", "tn", 64, 32, 64), 0)[1]


@pytest.mark.parametrize("key", RECORDED["probes"])
def test_bias_gradients_are_added_in_the_order_of_the_h200(key):
    """A large number and its negative hide the units that are added between them."""
    case = read_case(key)
    is_along_k = case.epilogue.startswith("bgrad")
    length = case.k if is_along_k else case.n
    units = length if case.result == "f32" else FIRST
    lanes = depth_lanes(case.k, case.bias_count)
    add = partial(depth_sums, lanes=lanes) if is_along_k else partial(row_sums, blocks=row_blocks(case.m, case.n))
    sums = [add(np.ascontiguousarray(patterns(length, first, first + units).T)) for first in range(0, length, units)]
    rounded = np.array(sums).astype(DTYPES[case.result]).astype(np.float32)
    assert digest(rounded.tobytes()) == RECORDED["probes"][key]


def test_the_gradient_of_gelu_is_that_of_the_h200():
    codes = np.arange(1 << 16, dtype=np.uint16)
    numbers = (np.random.default_rng(5).standard_normal(1 << 16) * 2).astype(np.float32)
    tables = {"f16": codes.view(np.float16), "bf16": codes.view(ml_dtypes.bfloat16), "f32": numbers}
    with np.errstate(all="ignore"):
        for name, table in tables.items():
            found = gelu_gradient(table.astype(np.float32)).astype(table.dtype)
            found[np.isnan(found.astype(np.float32))] = 0
            assert digest(found.tobytes()) == RECORDED["gelu gradient"][name]


@needs_stand_ins[0]
@needs_stand_ins[-1]
def test_a_program_gets_the_same_results(tmp_path):
    """The tool itself runs on the virtual GPU, through the C interface of cublasLt."""
    words = " bf16 bf16 nt 40 104 72 "
    calls = {key: call for key, call in RECORDED["calls"]["0"].items() if words in key and not key.startswith("dgelu ")}
    assert len(calls) == len(EPILOGUES) - 1
    stored = {key: dict(zip(("d", "aux", "bias"), call, strict=True)) for key, call in calls.items()}
    (tmp_path / "stored.json").write_text(json.dumps(stored), encoding="utf-8")
    command = [sys.executable, "-m", "warpfrag", "gpu", "--fast", "--", sys.executable, "-m", "tools.lt_epilogues"]
    done = subprocess.run(
        [*command, tmp_path, "--only", "cases", "--compare", tmp_path / "stored.json"], capture_output=True, text=True,
        timeout=300, check=False, cwd=ROOT, env=os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])},
    )  # fmt: skip
    assert f"{len(calls)} calls, {len(calls)} compared, 0 different" in done.stdout, done.stdout + done.stderr[-2000:]
