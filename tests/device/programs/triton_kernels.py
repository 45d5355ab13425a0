"""Triton kernels: element-wise, softmax, products with and without tensor descriptors, integer atomics."""

import torch
import triton
import triton.language as tl

generator = torch.Generator().manual_seed(7)


def floats(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=generator).to(dtype).to("cuda")


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    tl.store(out + index, tl.load(x + index, mask) + tl.load(y + index, mask), mask)


@triton.jit
def softmax(x, out, width, BLOCK: tl.constexpr):
    row, index = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * width + index, index < width, -float("inf"))
    weights = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * width + index, weights / tl.sum(weights, 0), index < width)


@triton.jit
def matmul(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BLOCK):
        left = tl.load(a + rows[:, None] * K + start + inner[None, :])
        right = tl.load(b + (start + inner[:, None]) * N + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total)


@triton.jit
def described(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BLOCK):
        total = tl.dot(a.load([0, start]), b.load([start, 0]), total)
    c.store([0, 0], total)


@triton.jit
def count(x, bins, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + index, index < n, 0)
    tl.atomic_add(bins + value, 1, index < n)


x, y, out = floats(1000), floats(1000), torch.zeros(1000).to("cuda")
add[(8,)](x, y, out, 1000, BLOCK=128)
add[(4,)](x.half(), y.half(), out.half(), 900, BLOCK=256)
softmax[(6,)](floats(6, 130), torch.zeros(6, 130).to("cuda"), 130, BLOCK=256)
a, b, c = floats(64, 96, dtype=torch.float16), floats(96, 64, dtype=torch.float16), torch.zeros(64, 64).to("cuda")
matmul[(1,)](a, b, c, 96, M=64, N=64, BLOCK=32)
wide = floats(64, 96), floats(96, 64), torch.zeros(64, 64).to("cuda")
matmul[(1,)](*wide, 96, M=64, N=64, BLOCK=32)
values = torch.randint(0, 30, (500,), generator=generator, dtype=torch.int32).to("cuda")
count[(4,)](values, torch.zeros(30, dtype=torch.int32).to("cuda"), 500, BLOCK=128)
try:
    from triton.tools.tensor_descriptor import TensorDescriptor

    maps = [TensorDescriptor.from_tensor(tensor, box) for tensor, box in ((a, [64, 32]), (b, [32, 64]), (c, [64, 64]))]
    described[(1,)](*maps, 96, M=64, N=64, BLOCK=32)
except ImportError as error:
    print(error)
torch.cuda.synchronize()
print(triton.__version__)
