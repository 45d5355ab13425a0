"""CuPy: elementwise, raw and reduction kernels that NVRTC compiles."""

import cupy as cp
import numpy as np

x = cp.asarray(np.linspace(-3, 3, 900, dtype=np.float32))
y = cp.ElementwiseKernel("float32 a, float32 b", "float32 c", "c = a * b + exp(a)", "blend")(x, x)
SOURCE = """extern "C" __global__ void twice(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2;
}"""
raw = cp.RawKernel(SOURCE, "twice")
raw((8,), (128,), (x, np.int32(900)))
total = cp.ReductionKernel("float32 a", "float32 b", "a * a", "a + b", "b = sqrt(a)", "0", "length")(y)
largest = cp.maximum(x, y) - cp.minimum(x, y)
cp.cuda.Device().synchronize()
print(cp.__version__, float(total), float(largest[0]))
