"""Generate the input bytes of kernels: random bits and boundary values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPECIAL = {
    16: (
        0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7C01, 0xFE5A,
        0xFFFF, 0x7FFF, 0x7F80, 0xFF80, 0x7F7F, 0x0080, 0x007F, 0x3F80, 0xBF80, 0x7FC0, 0x7F81, 31, 32, 63, 64,
    ),
    32: (
        0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x800000, 0x80800000, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF,
        0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFC12345, 0xFFFFFFFF, 0x7FFFFFFF, 0x4B000000, 0x4F000000,
        0xCF000000, 0x5F000000, 0x477FE000, 0x477FF000, 0x33800000, 0x38800000, 0x33000000, 0x3F000000, 0xBF000000,
        0x40200000, 0x43E00000, 0x43E80000, 2, 31, 32, 33, 63, 64, 255, 0x8000, 0xFFFF, 0x10000,
    ),
    64: (
        0, 1 << 63, 1, 0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x3FF0000000000000, 0xBFF0000000000000,
        0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 0x7FF0000000000001,
        0xFFF8000000ABCDEF, 0xFFFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0x43E0000000000000, 0xC3E0000000000000,
        0x41E0000000000000, 0x36A0000000000000, 0x380FFFFFE0000000, 0x3690000000000000, 0x3810000000000000, 2, 31, 32,
        63, 64, 0xFFFFFFFF, 0x100000000, 0x80000000,
    ),
}  # fmt: skip


FINITE = np.uint64(0xFFEFFFFFFFFFFFFF)  # clears an exponent bit, which makes f64 NaNs finite


def random_bytes(seed: int, count: int, *, has_nans: bool = True) -> NDArray[np.uint8]:
    """Return `count` bytes: random words, special values of each width, floats of similar magnitude, small integers.

    Without `has_nans`, no word is an f64 NaN: if both operands are NaNs, the result depends on ptxas's choice.
    """
    random = np.random.default_rng(seed)
    words = -(-count // 8)

    def any_of(bits: int) -> NDArray[np.uint64]:
        codes = np.array(SPECIAL[bits], np.uint64)
        parts = [codes[random.integers(0, len(codes), words)] << np.uint64(at) for at in range(0, 64, bits)]
        total: NDArray[np.uint64] = np.bitwise_or.reduce(parts)
        return total

    def near_one(bits: int, exponents: tuple[int, int], fraction: int) -> NDArray[np.uint64]:
        total = np.zeros(words, np.uint64)
        for at in range(0, 64, bits):
            exponent = random.integers(*exponents, words).astype(np.uint64) << np.uint64(fraction)
            rest = random.integers(0, 1 << fraction, words, dtype=np.uint64)
            sign = random.integers(0, 2, words).astype(np.uint64) << np.uint64(bits - 1)
            total |= (exponent | rest | sign) << np.uint64(at)
        return total

    small = random.integers(0, 64, words).astype(np.uint64) | random.integers(0, 64, words).astype(
        np.uint64
    ) << np.uint64(32)
    kinds = [
        random.integers(0, 1 << 64, words, dtype=np.uint64), any_of(64), any_of(32), any_of(16),
        near_one(32, (110, 140), 23), near_one(64, (1000, 1060), 52), near_one(16, (10, 20), 10), small,
    ]  # fmt: skip
    chosen = random.integers(0, len(kinds), words)
    found = np.choose(chosen, kinds)
    if not has_nans:
        found[np.isnan(found.view(np.float64))] &= FINITE
    return found.view(np.uint8)[:count].copy()
