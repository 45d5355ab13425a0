"""One training step of a small transformer as four GPUs compute it: the loss, and the first matmul whose bits differ.

    python examples/transformer.py        # needs the extra torch; no GPU

The weights are random. Every matmul, forward and backward, has the arithmetic of that GPU's tensor cores, and
everything else is the same. The tensor cores therefore cause every difference that is printed.
"""

import torch
from torch import nn

import warpfrag.torch

GPUS = {
    "V100": ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_70"),
    "A100": ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80"),
    "H100": ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90"),
    "B200": ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_100"),
}
WIDTH, HEADS, TOKENS = 32, 2, 12


class Layer(nn.Module):
    """Attention and a two-layer network, each with a residual connection."""

    def __init__(self) -> None:
        """Make the weights."""
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output of the layer."""
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(-2, -3) for part in self.qkv(x).chunk(3, dim=-1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(-2, -3).flatten(-2)
        x = x + self.out(mixed)
        return x + self.down(torch.relu(self.up(x)))


def step(instruction: str, arch: str) -> tuple[float, warpfrag.torch.Emulation, list[torch.Tensor]]:
    """Run a forward and backward pass; return the loss, the records, and the result of every matmul."""
    torch.manual_seed(0)
    model = nn.Sequential(Layer(), Layer())
    x = torch.randn(1, TOKENS, WIDTH)
    with warpfrag.torch.emulate(instruction=instruction, rounding="rne", arch=arch, model=model, keep=True) as run:
        loss = model(x).square().mean()
        loss.backward()
    return loss.item(), run, run.results


def main() -> None:
    """Run the step on every GPU, and compare each with the previous one."""
    print(f"a step of two layers, {TOKENS} tokens of width {WIDTH}, f16 products with f32 sums")
    before, earlier = "", []
    for gpu, (instruction, arch) in GPUS.items():
        loss, run, results = step(instruction, arch)
        pairs = zip(results, earlier, strict=bool(earlier))
        unlike = [number for number, (one, other) in enumerate(pairs) if not torch.equal(one, other)]
        said = ""
        if unlike:
            record = run.records[unlike[0]]
            said = (
                f"first differing bit from {before}: matmul {record.number}, {record.layer} ({record.direction}); "
                f"{len(unlike)} of {len(results)} matmuls differ"
            )
        elif before:
            said = f"all {len(results)} matmuls are equal to those on {before} bit for bit"
        print(f"{gpu}  loss {loss:.9f}  {said}".rstrip())
        before, earlier = gpu, results


if __name__ == "__main__":
    main()
