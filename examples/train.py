"""Twenty training steps of an MLP as an H200 computes them: the loss and a digest of all weights after each step.

    warpfrag gpu --fast -- python examples/train.py     # no GPU: PyTorch's CUDA wheel
    python examples/train.py                            # on a GPU, or on the CPU with the extra torch

Weights and data are made from integers, so they are the same on every machine. `train_h200.json` has an H200's steps;
`--write FILE` stores those of this machine.
"""

import argparse
import hashlib
import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

RECORDED = Path(__file__).with_name("train_h200.json")
INPUTS, HIDDEN, CLASSES, BATCH, STEPS = 128, 256, 16, 64, 20


def integers(low: int, high: int, *shape: int, seed: int) -> torch.Tensor:
    """Return integers from `low` to `high` - 1."""
    return torch.from_numpy(np.random.default_rng(seed).integers(low, high, shape))


def mlp() -> nn.Module:
    """Return three linear layers in bfloat16 with 8-bit weights."""
    model = nn.Sequential(
        nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, CLASSES)
    ).to(torch.bfloat16)
    with torch.no_grad():
        for seed, weight in enumerate(model.parameters()):
            weight.copy_(integers(-255, 256, *weight.shape, seed=seed) / 2048)
    return model


def digest(tensors: list[torch.Tensor]) -> str:
    """Return a digest of the bytes of tensors."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def train(device: str) -> list[dict[str, Any]]:
    """Run the steps; return the loss and the digests of the logits, gradients and weights of each."""
    model = mlp().to(device)
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW(weights, lr=2**-9, weight_decay=2**-7, fused=device == "cuda")
    x = (integers(-255, 256, BATCH, INPUTS, seed=100) / 256).to(torch.bfloat16).to(device)
    labels = integers(0, CLASSES, BATCH, seed=200).to(device)
    steps = []
    for step in range(STEPS):
        logits = model(x)
        loss = nn.functional.cross_entropy(logits.float(), labels)
        optimizer.zero_grad()
        loss.backward()
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        row = {"step": step, "logits": digest([logits]), "loss": loss.item(), "gradients": digest(gradients)}
        optimizer.step()
        steps.append({**row, "weights": digest(weights)})
    return steps


def main() -> int:
    """Train, and compare each step with the recorded one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="store the steps")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    start = time.perf_counter()
    if device == "cuda":
        context: Any = nullcontext()
    else:
        import warpfrag.torch

        context = warpfrag.torch.emulate(library="cublas")
    with context as run:
        steps = train(device)
    print(f"{STEPS} steps in {time.perf_counter() - start:.1f} s; loss {steps[0]['loss']:.6f}, {steps[-1]['loss']:.6f}")
    if run is not None:
        print(f"computed by PyTorch on the CPU, not as on a GPU: {dict(run.not_emulated)}")
    if options.write:
        options.write.write_text(json.dumps({"steps": steps}, indent=1) + "\n", encoding="utf-8")
    expected = json.loads(RECORDED.read_text(encoding="utf-8"))["steps"]
    for name in ("logits", "loss", "gradients", "weights"):
        equal = [step[name] == stored[name] for step, stored in zip(steps, expected, strict=True)]
        first = "" if all(equal) else f"; the first that differs: step {equal.index(False)}"
        print(f"{name}: {sum(equal)} of {STEPS} steps equal the H200 bit for bit{first}")
    return int(steps != expected)


if __name__ == "__main__":
    sys.exit(main())
