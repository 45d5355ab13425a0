"""Numba: two kernels."""

import numpy as np
from numba import cuda


@cuda.jit
def scale(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = x[i] * factor + i


@cuda.jit
def rows(x, out):
    i = cuda.grid(1)
    if i < x.shape[0]:
        total = 0.0
        for j in range(x.shape[1]):
            total += x[i, j]
        out[i] = total


x = cuda.to_device(np.linspace(0, 1, 600).astype(np.float32))
scale[5, 128](x, 1.5)
rows[1, 32](cuda.to_device(np.arange(600.0).reshape(20, 30)), cuda.to_device(np.zeros(20)))
cuda.synchronize()
print("ok")
