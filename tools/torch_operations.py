"""Run PyTorch's native CUDA operations on fixed inputs; store digests of their results, or compare with stored ones.

    python tools/torch_operations.py --write results.json                          # on a GPU
    warpfrag gpu --fast -- python tools/torch_operations.py --compare results.json  # without a GPU

Inputs are made from integers on the host, so they are the same on every machine. No operation calls cuBLAS or cuDNN,
and none depends on the order of floating-point atomics. A failed operation is reported, and the next one is tried.
"""

import argparse
import hashlib
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

ROWS, COLUMNS = 24, 130
f16, bf16, f32, f64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
Result: TypeAlias = torch.Tensor | Sequence[torch.Tensor]
Operation: TypeAlias = Callable[[], Result]
e4m3, i32, i64, u8 = torch.float8_e4m3fn, torch.int32, torch.int64, torch.uint8


def floats(*shape: int, dtype: torch.dtype = f32, seed: int = 1) -> torch.Tensor:
    """Return multiples of 2^-17 between -4 and 4."""
    numbers = np.random.default_rng([seed, *shape]).integers(-(1 << 19), 1 << 19, shape)
    return torch.from_numpy((numbers / (1 << 17)).astype(np.float32)).to(dtype).to("cuda")


def integers(high: int, *shape: int, dtype: torch.dtype = i64, seed: int = 2) -> torch.Tensor:
    """Return integers from 0 to high - 1."""
    return torch.from_numpy(np.random.default_rng([seed, high, *shape]).integers(0, high, shape)).to(dtype).to("cuda")


def gradients(function: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the gradients of a function for an output gradient of ones."""
    inputs = [tensor.detach().requires_grad_() for tensor in tensors]
    result = function(*inputs)
    return tuple(torch.autograd.grad(result, inputs, torch.ones_like(result)))


def stepped(optimizer: type[torch.optim.Optimizer], **options: float) -> torch.Tensor:
    """Return a weight after two steps of an optimizer."""
    weight = torch.nn.Parameter(floats(500))
    chosen = optimizer([weight], **options)
    for seed in (3, 4):
        weight.grad = floats(500, seed=seed)
        chosen.step()
    return weight.detach()


def seeded(function: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Return the result of a function that draws random numbers, with a fixed seed."""
    torch.cuda.manual_seed(17)
    return function()


def unary(function: Callable[[torch.Tensor], Result], dtype: torch.dtype = f32) -> Operation:
    """Return an operation on one matrix."""
    return lambda: function(floats(ROWS, COLUMNS, dtype=dtype))


def positive(function: Callable[[torch.Tensor], Result]) -> Operation:
    """Return an operation on one matrix of positive numbers."""
    return lambda: function(floats(ROWS, COLUMNS).abs() + 0.001)


def binary(function: Callable[[torch.Tensor, torch.Tensor], Result], dtype: torch.dtype = f32) -> Operation:
    """Return an operation on two matrices."""
    return lambda: function(floats(ROWS, COLUMNS, dtype=dtype), floats(ROWS, COLUMNS, dtype=dtype, seed=5))


def image(*, size: int = 14, dtype: torch.dtype = f32) -> torch.Tensor:
    """Return two images with eight channels."""
    return floats(2, 8, size, size, dtype=dtype)


OPERATIONS: dict[str, Operation] = {
    # Element by element
    "sin": unary(torch.sin),
    "cos": unary(torch.cos),
    "tan": unary(torch.tan),
    "atan": unary(torch.atan),
    "sinh": unary(torch.sinh),
    "cosh": unary(torch.cosh),
    "asinh": unary(torch.asinh),
    "exp2": unary(torch.exp2),
    "expm1": unary(torch.expm1),
    "log1p": positive(torch.log1p),
    "log2": positive(torch.log2),
    "log10": positive(torch.log10),
    "sqrt": positive(torch.sqrt),
    "rsqrt": positive(torch.rsqrt),
    "reciprocal": unary(torch.reciprocal),
    "lgamma": positive(torch.lgamma),
    "digamma": positive(torch.digamma),
    "erfc": unary(torch.erfc),
    "erfinv": unary(lambda x: torch.erfinv(x / 5)),
    "i0": unary(torch.special.i0),
    "sinc": unary(torch.sinc),
    "round": unary(torch.round),
    "floor": unary(torch.floor),
    "trunc": unary(torch.trunc),
    "frac": unary(torch.frac),
    "sign": unary(torch.sign),
    "abs_f16": unary(torch.abs, f16),
    "neg_bf16": unary(torch.neg, bf16),
    "exp_bf16": unary(torch.exp, bf16),
    "tanh_f16": unary(torch.tanh, f16),
    "sin_f64": unary(torch.sin, f64),
    "exp_f64": unary(torch.exp, f64),
    "log_f64": unary(lambda x: torch.log(x.abs() + 1), f64),
    "relu": unary(F.relu),
    "leaky_relu": unary(F.leaky_relu),
    "elu": unary(F.elu),
    "silu": unary(F.silu),
    "silu_bf16": unary(F.silu, bf16),
    "mish": unary(F.mish),
    "softplus": unary(F.softplus),
    "hardswish": unary(F.hardswish),
    "gelu_tanh_bf16": unary(lambda x: F.gelu(x, approximate="tanh"), bf16),
    "glu": unary(F.glu),
    "clamp": unary(lambda x: x.clamp(-1, 1)),
    "nan_to_num": unary(lambda x: torch.nan_to_num(x / 0)),
    "atan2": binary(torch.atan2),
    "fmod": binary(torch.fmod),
    "remainder": binary(torch.remainder),
    "hypot": binary(torch.hypot),
    "floor_divide": binary(torch.floor_divide),
    "maximum": binary(torch.maximum),
    "mul_bf16": binary(torch.mul, bf16),
    "div_f16": binary(torch.div, f16),
    "lerp": binary(lambda x, y: torch.lerp(x, y, 0.3)),
    "addcmul": binary(lambda x, y: torch.addcmul(x, x, y, value=0.5)),
    "addcdiv": binary(lambda x, y: torch.addcdiv(x, x, y.abs() + 1)),
    "eq": binary(torch.eq),
    "logical_xor": binary(torch.logical_xor),
    "copysign": binary(torch.copysign),
    "nextafter": binary(torch.nextafter),
    "xor_i32": lambda: integers(999, 500, dtype=i32) ^ 77,
    "shift_i64": lambda: integers(999, 500) << 3,
    "mul_i64": lambda: integers(99999, 500) * integers(99999, 500, seed=6),
    "div_i32": lambda: torch.div(integers(9999, 500, dtype=i32), 7, rounding_mode="floor"),
    "to_e4m3": unary(lambda x: x.to(e4m3)),
    "from_e4m3": unary(lambda x: x.to(e4m3).to(f32)),
    "to_u8": unary(lambda x: x.abs().to(u8)),
    "complex_mul": binary(lambda x, y: torch.complex(x, y) * torch.complex(y, x)),
    # Reductions and scans
    "sum_all": unary(torch.sum),
    "sum_bf16": unary(lambda x: x.sum(-1), bf16),
    "sum_f64": unary(torch.sum, f64),
    "prod": unary(lambda x: (x / 3).prod(0)),
    "amax": unary(lambda x: x.amax(0)),
    "aminmax": unary(torch.aminmax),
    "argmin": unary(lambda x: x.argmin(-1)),
    "any": unary(lambda x: (x > 3.9).any(0)),
    "std": unary(lambda x: x.std(0)),
    "logsumexp": unary(lambda x: x.logsumexp(-1)),
    "median": unary(lambda x: x.median(-1)),
    "kthvalue": unary(lambda x: x.kthvalue(3, -1)),
    "mode": lambda: integers(9, 6, 60).mode(-1),
    "cumprod": unary(lambda x: (x / 3).cumprod(-1)),
    "cummax": unary(lambda x: x.cummax(-1)),
    "logcumsumexp": unary(lambda x: x.logcumsumexp(-1)),
    "nansum": unary(torch.nansum),
    "count_nonzero": lambda: integers(3, 24, 90).count_nonzero(0),
    "cdist": lambda: torch.cdist(floats(9, 40), floats(7, 40), compute_mode="donot_use_mm_for_euclid_dist"),
    # Order and indices
    "topk": unary(lambda x: x.topk(5)),
    "sort_wide": lambda: floats(2, 3000).sort(-1),
    "argsort_i32": lambda: torch.argsort(integers(999, 3, 200, dtype=i32), dim=-1, stable=True),
    "unique": lambda: integers(40, 300).unique(return_counts=True),
    "nonzero": lambda: (floats(8, 90) > 2).nonzero(),  # noqa: PLW0108 (overloaded)
    "masked_select": unary(lambda x: x[x > 3]),
    "searchsorted": lambda: torch.searchsorted(torch.arange(0, 40, device="cuda"), integers(50, 200)),
    "bucketize": unary(lambda x: torch.bucketize(x, torch.arange(-3, 4, device="cuda").float())),
    "gather": lambda: floats(24, 90).gather(1, integers(90, 24, 40)),
    "scatter": lambda: floats(24, 90).scatter(1, torch.arange(40, device="cuda").expand(24, 40), 7.0),
    "index_select": lambda: floats(24, 90).index_select(0, integers(24, 50)),
    "take": lambda: floats(24, 90).take(integers(2000, 77)),
    "index_put": lambda: floats(24, 90).index_put((torch.arange(9, device="cuda"),), floats(90, seed=8)),
    "scatter_add_i64": lambda: torch.zeros(40, dtype=i64, device="cuda").scatter_add(
        0, integers(40, 300), integers(9, 300, seed=9)
    ),
    "histc_i64": lambda: torch.bincount(integers(50, 400), minlength=50),
    "isin": lambda: torch.isin(integers(50, 200), integers(50, 9, seed=3)),
    "tensor_roll": unary(lambda x: x.roll((3, 5), (0, 1))),
    "flip": unary(lambda x: x.flip(0)),
    "triu": unary(torch.triu),
    "repeat_interleave": lambda: floats(30).repeat_interleave(integers(4, 30)),
    "cat_dim1": binary(lambda x, y: torch.cat([x, y], 1)),
    "stack_bf16": binary(lambda x, y: torch.stack([x, y], -1), bf16),
    "pad_reflect": lambda: F.pad(image(), (2, 2, 1, 1), mode="reflect"),
    "unfold": lambda: F.unfold(image(), 3),
    "fold": lambda: F.fold(F.unfold(image(), 2, stride=2), (14, 14), 2, stride=2),
    "pixel_shuffle": lambda: F.pixel_shuffle(image(), 2),
    "one_hot": lambda: F.one_hot(integers(12, 60), 12),
    # Layers
    "layer_norm_bf16": unary(lambda x: F.layer_norm(x, (COLUMNS,)), bf16),
    "rms_norm": unary(lambda x: F.rms_norm(x, (COLUMNS,))),
    "group_norm": lambda: F.group_norm(image(), 4),
    "instance_norm": lambda: F.instance_norm(image()),
    "softmax_wide": lambda: floats(3, 5000).softmax(-1),
    "softmax_f16": unary(lambda x: x.softmax(-1), f16),
    "softmax_dim0": unary(lambda x: x.softmax(0)),
    "avg_pool": lambda: F.avg_pool2d(image(), 3, 2, 1),
    "adaptive_pool": lambda: F.adaptive_avg_pool2d(image(), 5),
    "max_pool_indices": lambda: F.max_pool2d(image(), 2, return_indices=True),
    "interpolate_nearest": lambda: F.interpolate(image(), scale_factor=2),
    "interpolate_cubic": lambda: F.interpolate(image(), size=19, mode="bicubic"),
    "grid_sample": lambda: F.grid_sample(image(), floats(2, 6, 6, 2) / 4, align_corners=False),
    "local_response": lambda: F.local_response_norm(image(), 3),
    "depthwise_conv": lambda: torch.ops.aten._conv_depthwise2d(  # noqa: SLF001 (cuDNN is not used)
        image(), floats(8, 1, 3, 3), [3, 3], None, [1, 1], [1, 1], [1, 1]
    ),
    "smooth_l1": binary(F.smooth_l1_loss),
    "mse_loss": binary(F.mse_loss),
    "bce_logits": binary(lambda x, y: F.binary_cross_entropy_with_logits(x, (y > 0).float())),
    "nll_loss": lambda: F.nll_loss(floats(24, 30).log_softmax(-1), integers(30, 24)),
    "kl_div": binary(lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean")),
    "embedding_bag": lambda: F.embedding_bag(integers(40, 8, 5), floats(40, 30), mode="max"),
    # Gradients, optimizers, random numbers
    "gelu_backward": unary(lambda x: gradients(F.gelu, x)),
    "softmax_backward": unary(lambda x: gradients(lambda y: y.softmax(-1) ** 2, x)),
    "layer_norm_backward": unary(
        lambda x: gradients(lambda y, w: F.layer_norm(y, (COLUMNS,), w) ** 2, x, floats(COLUMNS))
    ),
    "group_norm_backward": lambda: gradients(lambda y: F.group_norm(y, 4) ** 2, image()),
    "avg_pool_backward": lambda: gradients(lambda y: F.avg_pool2d(y, 2) ** 2, image()),
    "cumsum_backward": unary(lambda x: gradients(lambda y: y.cumsum(-1), x)),
    "embedding_backward": lambda: gradients(lambda w: F.embedding(integers(40, 30), w), floats(40, 16)),
    "sgd": lambda: stepped(torch.optim.SGD, lr=0.1, momentum=0.9, fused=True),
    "adam_foreach": lambda: stepped(torch.optim.Adam, lr=0.1, foreach=True),
    "rand": lambda: seeded(lambda: torch.rand(700, device="cuda")),
    "randint": lambda: seeded(lambda: torch.randint(0, 99, (700,), device="cuda")),
    "bernoulli": lambda: seeded(lambda: torch.bernoulli(floats(24, 30).abs() / 4)),
    "randperm": lambda: seeded(lambda: torch.randperm(900, device="cuda")),
    "dropout": lambda: seeded(lambda: F.dropout(floats(24, 130), 0.4)),
    "exponential": lambda: seeded(lambda: torch.empty(700, device="cuda").exponential_()),
}


def tensors_of(value: Result) -> list[torch.Tensor]:
    """Return the tensors of a result."""
    if isinstance(value, torch.Tensor):
        return [value]
    return list(value)


def digest_of(value: Result) -> str:
    """Return a digest of types, shapes and bytes."""
    digest = hashlib.sha256()
    for tensor in tensors_of(value):
        host = tensor.detach().cpu().contiguous()
        digest.update(f"{host.dtype} {tuple(host.shape)} ".encode())
        digest.update(host.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


def run(chosen: re.Pattern[str], stored: dict[str, str]) -> dict[str, str]:
    """Run the operations whose names match; return the digest or the error of each."""
    found = {}
    for name, operation in OPERATIONS.items():
        if not chosen.fullmatch(name):
            continue
        start = time.perf_counter()
        try:
            found[name] = digest_of(operation())
            torch.cuda.synchronize()
        except (RuntimeError, TypeError, ValueError) as error:
            found[name] = f"error: {(str(error).strip().splitlines() or [repr(error)])[-1][:200]}"
        verdict = found[name]
        if name in stored and not verdict.startswith("error"):
            verdict = "equal" if verdict == stored[name] else "DIFFERS"
        print(f"{name:22}{verdict}  {time.perf_counter() - start:.2f} s", flush=True)
    return found


def main() -> int:
    """Run the operations; the exit status is 1 if a result differs from the stored one or an operation fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="store the digests")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="compare with stored digests")
    parser.add_argument(
        "--only", type=re.compile, default=re.compile(".*"), metavar="REGEX", help="names of operations"
    )
    options = parser.parse_args()
    stored = json.loads(options.compare.read_text(encoding="utf-8")) if options.compare else {}
    expected = stored.get("operations", {})
    found = run(options.only, expected)
    failed = [name for name, digest in found.items() if digest.startswith("error")]
    differ = [name for name in found if name in expected and name not in failed and found[name] != expected[name]]
    print(
        f"torch {torch.__version__}, {torch.cuda.get_device_name()}: {len(found)} operations, {len(failed)} failed",
        end="",
    )
    print(
        f", {len(found) - len(failed) - len(differ)} equal, {len(differ)} differ: {' '.join(differ)}"
        if expected
        else ""
    )
    if options.write:
        record = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "operations": found}
        options.write.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return int(bool(failed or differ))


if __name__ == "__main__":
    sys.exit(main())
