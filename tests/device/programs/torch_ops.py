"""PyTorch operations with PyTorch's own kernels; inputs are created on the host."""

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch.nn.attention import SDPBackend, sdpa_kernel

generator = torch.Generator().manual_seed(5)
bf16, f16, f32, f64 = torch.bfloat16, torch.float16, torch.float32, torch.float64


def floats(*shape, dtype=f32):
    return torch.randn(*shape, generator=generator).to(dtype).to("cuda")


def integers(high, *shape):
    return torch.randint(0, high, shape, generator=generator).to("cuda")


def flash(q):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, q, q, is_causal=True)


def adamw(weight, gradient):
    parameter = torch.nn.Parameter(weight)
    parameter.grad = gradient
    torch.optim.AdamW([parameter], fused=True).step()


x, y, half = floats(40, 300), floats(40, 300), floats(40, 300, dtype=bf16)
image, index = floats(2, 8, 12, 12), integers(40, 25)
OPERATIONS = (
    lambda: x + y, lambda: half * 2 + half, lambda: F.gelu(x), lambda: F.silu(half), lambda: torch.exp(x),
    lambda: torch.sin(x), lambda: torch.pow(x.abs(), y), lambda: torch.erfinv(x / 10), lambda: torch.rsqrt(x.abs()),
    lambda: x.to(f16), lambda: torch.softmax(x, -1), lambda: F.log_softmax(half, -1),
    lambda: F.layer_norm(x, (300,), y[0], x[1]), lambda: F.rms_norm(half, (300,)), x.sum,
    lambda: half.sum(-1), lambda: x.sum(0), lambda: x.argmax(-1), lambda: x.var(-1), x.norm,
    lambda: x.cumsum(-1), lambda: x.topk(7), lambda: x.sort(-1), lambda: torch.where(x > y, x, y),
    lambda: x.t().contiguous(), lambda: torch.cat([x, y]), lambda: F.embedding(index, x),
    lambda: x.gather(1, index[None]),
    lambda: F.max_pool2d(image, 2), lambda: F.interpolate(image, scale_factor=2, mode="bilinear"),
    lambda: F.group_norm(image, 4), lambda: index.bincount(minlength=40), lambda: torch.tril(x[:, :40]),
    lambda: F.cross_entropy(x, index.repeat(2)[:40]), lambda: (x.double() / y.double()), lambda: x.flip(1),
    lambda: adamw(x.clone(), y), lambda: flash(floats(1, 2, 64, 64, dtype=f16)), lambda: half @ half.t(),
)  # fmt: skip
for operation in OPERATIONS:
    operation()
torch.cuda.synchronize()
print(torch.__version__, len(OPERATIONS), "operations")
