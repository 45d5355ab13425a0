"""The logits of a two-layer Llama as an H200 computes them, in a batch of 1 and a batch of 4, and why they differ.

    warpfrag gpu --fast -- python examples/llama.py     # no GPU: PyTorch's CUDA wheel and transformers
    python examples/llama.py                            # on a GPU, or on the CPU with the extra torch

The weights are made from integers, so they are the same on every machine. `llama_h200.json` has digests of every
layer's output, all logits and every gradient on an H200; `--write FILE` stores those of this machine.
"""

import argparse
import hashlib
import json
import sys
import time
import zlib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

RECORDED = Path(__file__).with_name("llama_h200.json")
TOKENS = 17
VOCABULARY = 2048
Digests = dict[str, str]


def llama() -> transformers.LlamaForCausalLM:
    """Return the model: 8 query heads of width 64, 2 key-value heads, and 8-bit weights."""
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=512, intermediate_size=3072, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=False, attn_implementation="sdpa",
        use_cache=False,
    )  # fmt: skip
    return with_weights(transformers.LlamaForCausalLM(config))


def with_weights(model: Any) -> Any:  # noqa: ANN401 (a model of transformers)
    """Replace each weight by integers over a power of two, which its name determines, in bfloat16."""
    model = model.to(torch.bfloat16).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            numbers = np.random.default_rng(zlib.crc32(name.encode())).integers(-255, 256, tuple(weight.shape))
            scaled = 1 + numbers / 2048 if weight.ndim == 1 and "bias" not in name else numbers / 4096
            weight.copy_(torch.from_numpy(scaled))
    return model


def tokens(batch: int) -> torch.Tensor:
    """Return a batch of prompts; the first is the same in every batch."""
    return torch.from_numpy(np.random.default_rng(7).integers(0, VOCABULARY, (4, TOKENS)))[:batch]


def digest(tensor: torch.Tensor) -> str:
    """Return a digest of a tensor's bytes."""
    host = tensor.detach().cpu().contiguous()
    return hashlib.sha256(host.reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


class Trace:
    """The digest of the first batch entry of each layer's output."""

    def __init__(self, model: torch.nn.Module) -> None:
        """Add a hook to each layer that computes."""
        self.outputs: Digests = {}
        self.hooks = [
            layer.register_forward_hook(self.hook(name))
            for name, layer in model.named_modules()
            if not list(layer.children()) or name.endswith(("attn", "attention"))
        ]

    def hook(self, name: str) -> Any:  # noqa: ANN401 (a hook of PyTorch)
        """Return a function that stores the output of a layer."""

        def store(_layer: torch.nn.Module, _inputs: object, output: Any) -> None:  # noqa: ANN401
            tensor = output[0] if isinstance(output, tuple) else output
            self.outputs[name] = digest(tensor[:1])

        return store


def why(model: torch.nn.Module) -> None:
    """Print the layers in which cuBLAS changes its order of additions with the batch size."""
    try:
        import warpfrag.torch
    except ImportError:  # PyTorch's environment need not contain warpfrag
        return
    print(warpfrag.torch.batch_invariance(model.cpu(), {"input_ids": tokens(1)}, batches=[1, 4]))


def record(model: Any, inputs: dict[str, torch.Tensor]) -> dict[str, Any]:  # noqa: ANN401 (a model of transformers)
    """Run the forward pass; return the digests of the first entry's outputs and of all logits, and a few logits."""
    trace = Trace(model)
    start = time.perf_counter()
    with torch.no_grad():
        logits = model(**inputs).logits
    if logits.is_cuda:
        torch.cuda.synchronize()
    for hook in trace.hooks:
        hook.remove()
    return {
        "outputs": {**trace.outputs, "logits": digest(logits[:1])},
        "all logits": digest(logits),
        "sample": logits[0, -1, :8].float().tolist(),
        "seconds": round(time.perf_counter() - start, 1),
    }


def gradients(model: Any, inputs: dict[str, torch.Tensor]) -> Digests:  # noqa: ANN401 (a model of transformers)
    """Return the digest of every weight's gradient for the mean of the squared logits."""
    model.zero_grad()
    model(**inputs).logits.float().square().mean().backward()
    return {name: digest(weight.grad) for name, weight in model.named_parameters() if weight.grad is not None}


def configure() -> str:
    """Choose the device; let PyTorch use its own attention kernels and full-precision sums of partial results."""
    torch.backends.cuda.enable_cudnn_sdp(enabled=False)  # cuDNN is closed-source; flash attention is PyTorch's own
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    return "cuda" if torch.cuda.is_available() else "cpu"


def cublas_on_cpu(model: torch.nn.Module, device: str) -> Any:  # noqa: ANN401 (a context)
    """Return the context that computes matmuls like an H200's cuBLAS on CPU tensors."""
    if device == "cuda":
        return nullcontext()
    import warpfrag.torch

    return warpfrag.torch.emulate(library="cublas", model=model)


def flattened(results: dict[str, Any]) -> Digests:
    """Return the digests of a forward or backward pass by name."""
    return {**results["outputs"], "all logits": results["all logits"]} if "outputs" in results else results


def compare(found: dict[str, Any], expected: dict[str, Any]) -> int:
    """Print how many results equal the recorded ones; return the number that differ."""
    wrong = 0
    for name, results in found.items():
        digests, stored = (flattened(each) for each in (results, expected[name]))
        unlike = [layer for layer in digests if digests[layer] != stored.get(layer)]
        wrong += len(unlike)
        print(f"{name}: {len(digests) - len(unlike)} of {len(digests)} results equal the H200 bit for bit", end="")
        print(f"; the first that differs: {unlike[0]}" if unlike else "")
    return wrong


def main() -> int:
    """Run both batches, and the backward pass on request; compare with an H200."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="store the digests")
    parser.add_argument("--backward", action="store_true", help="compute gradients too")
    options = parser.parse_args()
    device = configure()
    model = llama().to(device)
    found: dict[str, Any] = {}
    with cublas_on_cpu(model, device) as run:
        for batch in (1, 4):
            found[f"batch {batch}"] = record(model, {"input_ids": tokens(batch).to(device)})
            print(f"forward pass of batch {batch}: {found[f'batch {batch}']['seconds']} s", flush=True)
        if options.backward:
            found["gradients"] = gradients(model, {"input_ids": tokens(1).to(device)})
    alone, among = found["batch 1"]["outputs"], found["batch 4"]["outputs"]
    unlike = [layer for layer in alone if alone[layer] != among[layer]]
    print(f"the first prompt alone and in a batch of 4: {len(unlike)} of {len(alone)} outputs differ", end="")
    print(f"; the first is that of {unlike[0]}" if unlike else "")
    if run is not None:
        print(f"computed by PyTorch on the CPU, not as on a GPU: {dict(run.not_emulated)}")
    why(model)
    if options.write:
        options.write.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(compare(found, json.loads(RECORDED.read_text(encoding="utf-8"))) > 0)


if __name__ == "__main__":
    sys.exit(main())
