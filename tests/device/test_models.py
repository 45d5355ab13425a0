"""PyTorch's CUDA wheel on the virtual GPU: whole models, training, operations and compiled functions, as on an H200.

They run if this Python has a CUDA build of PyTorch, or if WARPFRAG_CUDA_TORCH names a Python that has one.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from device.conditions import needs_stand_ins

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "torch"
PYTHON = os.environ.get("WARPFRAG_CUDA_TORCH", sys.executable)
PROBE = "import sys, torch; sys.exit(torch.version.cuda is None)"
pytestmark = [*needs_stand_ins, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def cuda_torch() -> None:
    """Skip without a CUDA build of PyTorch, or a decompressor for its kernels."""
    if sys.version_info < (3, 14):
        pytest.importorskip("zstandard", reason="needs the extra sass")
    if subprocess.run([PYTHON, "-c", PROBE], capture_output=True, check=False).returncode:
        pytest.skip("needs a CUDA build of PyTorch; WARPFRAG_CUDA_TORCH names a Python that has one")


def run(*arguments: str | Path) -> str:
    """Run a Python program on the virtual GPU, and return its output."""
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "warpfrag", "gpu", "--fast", "--", PYTHON, *arguments],
        capture_output=True, text=True, check=False, cwd=ROOT, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


def test_twenty_training_steps_have_the_bits_of_the_h200():
    assert run("examples/train.py").count("20 of 20 steps equal the H200 bit for bit") == 4


def test_a_llama_has_the_bits_of_the_h200():
    printed = run("examples/llama.py", "--backward").splitlines()
    assert [line for line in printed if "bit for bit" in line] == [
        "batch 1: 28 of 28 results equal the H200 bit for bit",
        "batch 4: 28 of 28 results equal the H200 bit for bit",
        "gradients: 21 of 21 results equal the H200 bit for bit",
    ]
    assert any("the first is that of model.layers.0.mlp.down_proj" in line for line in printed)


@pytest.mark.parametrize("model", ["bert", "compiled"])
def test_other_models_have_the_bits_of_the_h200(tmp_path, model):
    run("-m", "tools.torch_models", tmp_path, "--once", "--only", model)
    found = json.loads((tmp_path / "models.json").read_text(encoding="utf-8"))[model]
    expected = json.loads((DATA / "models_h200.json").read_text(encoding="utf-8"))[model]
    if model == "compiled":
        unlike = [name for name in expected if found[name] != expected[name]]
        assert unlike == ["linear relu torch.float32"]  # float32 without TF32: the split of K is not modelled
        return
    for batch in ("batch 1", "batch 4"):
        assert found[batch]["all logits"] == expected[batch]["all logits"]
        assert found[batch]["outputs"] == expected[batch]["outputs"]
    assert found["gradients"] == expected["gradients"]


def test_150_operations_have_the_bits_of_the_h200():
    printed = run("tools/torch_operations.py", "--compare", DATA / "operations_h200.json")
    assert "150 operations, 0 failed, 150 equal, 0 differ" in printed
