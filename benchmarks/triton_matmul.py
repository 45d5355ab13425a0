"""Time Triton's interpreter on the kernel of `ptx.py`: `TRITON_INTERPRET=1 python benchmarks/triton_matmul.py SIZE`.

Prints the shortest time of several launches in seconds, and the largest error of the result.
"""

import sys
import time

import torch
import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, m, n, k, pitch_a, pitch_b, pitch_c, tile: tl.constexpr, depth: tl.constexpr):  # noqa: ANN001, ANN201 (Triton's own language)
    """Compute a tile of C."""
    row = tl.program_id(0) * tile + tl.arange(0, tile)
    column = tl.program_id(1) * tile + tl.arange(0, tile)
    inner = tl.arange(0, depth)
    total = tl.zeros((tile, tile), tl.float32)
    for first in range(0, k, depth):
        place_a = a + row[:, None] * pitch_a + (first + inner)[None, :]
        place_b = b + (first + inner)[:, None] * pitch_b + column[None, :]
        x = tl.load(place_a, mask=(row < m)[:, None] & (first + inner < k)[None, :], other=0.0)
        y = tl.load(place_b, mask=(first + inner < k)[:, None] & (column < n)[None, :], other=0.0)
        total = tl.dot(x, y, total)
    place_c = c + row[:, None] * pitch_c + column[None, :]
    tl.store(place_c, total, mask=(row < m)[:, None] & (column < n)[None, :])


def main(size: int) -> None:
    """Measure the launch, and print its time."""
    a, b = torch.randn(size, size).half(), torch.randn(size, size).half()
    c = torch.empty(size, size)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        matmul[size // 64, size // 64](a, b, c, size, size, size, size, size, size, 64, 32)
        seconds.append(time.perf_counter() - start)
    print(min(seconds), float((c - a.float() @ b.float()).abs().max()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
