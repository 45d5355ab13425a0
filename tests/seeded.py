"""Arrays from a seed: the raw numbers of PCG64, whose stream NumPy never changes, scaled with exact arithmetic.

A kind is a rule, a size where the rule has one, and a type, as "below:100:i32". bf16 is kept as its codes.
"""

import numpy as np

STORED = {"bf16": "u2", "f16": "f2", "f32": "f4", "f64": "f8"}
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-42, 1.0, -2.0, 3e38, 65504.0, 1e-7])
PAIRS = np.array([0x4, 0x8, 0xC, 0x9, 0xD, 0xE], np.uint32)  # two of four elements, in order: metadata of 2:4 sparsity


def raw(seed, count):
    return np.random.PCG64(seed).random_raw(count)


def seeded(kind, shape, seed):
    """An array of a kind: zeros, bits, below:N, signed:N (-N to N), uniform[:scale], special, or metadata."""
    rule, *rest = kind.split(":")
    name = rest[-1]
    dtype = np.dtype(STORED.get(name) or f"{name[0]}{int(name[1:]) // 8}")
    count = int(np.prod(shape))
    if rule == "zeros":
        return np.zeros(shape, dtype)
    if rule == "metadata":
        chosen = PAIRS[(raw(seed, 8 * count) >> np.uint64(20)).astype(np.int64) % len(PAIRS)].reshape(-1, 8)
        return np.bitwise_or.reduce(chosen << (4 * np.arange(8, dtype=np.uint32)), axis=1).reshape(shape)
    words = raw(seed, count)
    if rule == "bits":
        return (words >> np.uint64(64 - 8 * dtype.itemsize)).astype(f"u{dtype.itemsize}").view(dtype).reshape(shape)
    words >>= np.uint64(11)
    if rule == "below":
        return (words % np.uint64(int(rest[0]))).astype(dtype).reshape(shape)
    if rule == "signed":
        most = int(rest[0])
        return ((words % np.uint64(2 * most + 1)).astype(np.int64) - most).astype(dtype).reshape(shape)
    values = (words.astype(np.float64) * 2.0**-52 - 1.0) * (float(rest[0]) if len(rest) > 1 else 1.0)
    if rule == "special":
        choice = raw(seed + 1, count)
        spread = np.ldexp(values, ((choice >> np.uint64(40)) % np.uint64(60)).astype(np.int64) - 30)
        values = np.where(
            choice % np.uint64(8), spread, SPECIAL[(choice >> np.uint64(8)).astype(np.int64) % len(SPECIAL)]
        )
    with np.errstate(over="ignore"):
        if name == "bf16":  # cut off
            return (values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16).reshape(shape)
        return values.astype(dtype).reshape(shape)
