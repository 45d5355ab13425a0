"""Run small models and store digests of their results, with the kernels that a GPU ran.

    python -m tools.torch_models OUT                             # on a GPU, with transformers
    warpfrag gpu --fast -- python -m tools.torch_models OUT      # without a GPU

The models are the Llama of examples/llama.py, a BERT with an attention mask, the MLP of examples/train.py, and
functions that torch.compile compiles. OUT/models.json is written after each model; a failed model is reported, and the
next one is tried.
"""

import argparse
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config
import transformers

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import llama
import train

MAX_NAME = 160


def bert() -> transformers.BertForMaskedLM:
    """Return a two-layer BERT with 8-bit weights."""
    config = transformers.BertConfig(
        vocab_size=llama.VOCABULARY, hidden_size=512, intermediate_size=2048, num_hidden_layers=2,
        num_attention_heads=8, max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )  # fmt: skip
    return llama.with_weights(transformers.BertForMaskedLM(config))


def bert_inputs(batch: int) -> dict[str, torch.Tensor]:
    """Return prompts that end with padding; the first one has 5 padding tokens."""
    mask = torch.ones(batch, llama.TOKENS, dtype=torch.long)
    for row in range(batch):
        mask[row, llama.TOKENS - 5 + row :] = 0
    return {"input_ids": llama.tokens(batch), "attention_mask": mask}


def kernels_of(function: Callable[[], object]) -> list[list[Any]]:
    """Return the operation, name, grid and block of each kernel that a function launches, and the operation number."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as run:
        function()
        torch.cuda.synchronize()
    path = Path("kernels.trace.json")
    run.export_chrome_trace(str(path))
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    path.unlink()
    operations = {
        event["args"].get("External id"): event["name"]
        for event in events
        if event.get("cat") == "cpu_op" and "External id" in event.get("args", {})
    }
    kernels = sorted((event for event in events if event.get("cat") == "kernel"), key=lambda event: event["ts"])
    return [
        [
            operations.get(event["args"].get("External id"), ""),
            event["name"][:MAX_NAME],
            event["args"].get("grid"),
            event["args"].get("block"),
            event["args"].get("External id"),
        ]
        for event in kernels
    ]


def transformer(model: Any, inputs: Callable[[int], dict[str, torch.Tensor]]) -> dict[str, Any]:  # noqa: ANN401
    """Return the digests of both batches and of the gradients, and the kernels of each pass."""

    def on_gpu(batch: int) -> dict[str, torch.Tensor]:
        return {name: tensor.to("cuda") for name, tensor in inputs(batch).items()}

    model = model.to("cuda")
    found: dict[str, Any] = {}
    for batch in (1, 4):
        found[f"batch {batch}"] = llama.record(model, on_gpu(batch))
    for number in range(REPEATS):
        found["gradients" if not number else f"gradients again {number}"] = llama.gradients(model, on_gpu(1))
    if REPEATS > 1:
        with torch.no_grad():
            for batch in (1, 4):
                found[f"kernels {batch}"] = kernels_of(lambda batch=batch: model(**on_gpu(batch)))  # type: ignore[misc]
        found["kernels backward"] = kernels_of(lambda: llama.gradients(model, on_gpu(1)))
    return found


def trained() -> dict[str, Any]:
    """Return the steps of the MLP, and the kernels of one run."""
    found: dict[str, Any] = {"steps": train.train("cuda")}
    if REPEATS > 1:
        found["again"] = train.train("cuda") == found["steps"]
        found["kernels"] = kernels_of(lambda: train.train("cuda"))[:100]
    return found


def rms_norm(x: torch.Tensor) -> torch.Tensor:
    """Return rows divided by their root mean square."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 2**-20)


COMPILED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": torch.nn.functional.gelu,
    "silu mul": lambda x: torch.nn.functional.silu(x) * (x + 1),
    "softmax": lambda x: x.softmax(-1),
    "rms_norm": rms_norm,
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "column sums": lambda x: x.sum(0),
    "linear relu": lambda x: torch.relu(x @ x.mT),
}


def compiled() -> dict[str, Any]:
    """Return the digests of functions that torch.compile compiles."""
    torch._inductor.config.triton.autotune_pointwise = False  # noqa: SLF001 (no public name; results do not depend on it)
    found: dict[str, Any] = {}
    for name, function in COMPILED.items():
        for dtype in (torch.float32, torch.bfloat16):
            x = (train.integers(-(1 << 19), 1 << 19, 40, 600, seed=9) / (1 << 17)).to(dtype).to("cuda")
            key = f"{name} {dtype}"
            try:
                found[key] = llama.digest(torch.compile(function)(x))
            except Exception as error:  # noqa: BLE001 (the next function is tried)
                found[key] = f"error: {str(error)[:300]}"
            print(key, found[key][:120], flush=True)
    return found


REPEATS = 3
MODELS: dict[str, Callable[[], dict[str, Any]]] = {
    "llama": lambda: transformer(llama.llama(), lambda batch: {"input_ids": llama.tokens(batch)}),
    "bert": lambda: transformer(bert(), bert_inputs),
    "train": trained,
    "compiled": compiled,
}


def main() -> None:
    """Run every model."""
    global REPEATS  # noqa: PLW0603 (an option)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--once", action="store_true", help="run each model once, without a profiler")
    parser.add_argument("--only", choices=MODELS)
    options = parser.parse_args()
    REPEATS = 1 if options.once else REPEATS
    llama.configure()
    found: dict[str, Any] = {
        "torch": torch.__version__, "transformers": transformers.__version__, "gpu": torch.cuda.get_device_name(),
    }  # fmt: skip
    for name, run in MODELS.items():
        if options.only not in {None, name}:
            continue
        try:
            found[name] = run()
        except Exception as error:  # noqa: BLE001 (the next model is tried)
            traceback.print_exc()
            found[name] = {"error": repr(error)}
        print(name, "done", flush=True)
        (options.folder / "models.json").write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
