// Kernels with one mistake each, at the lines that are marked.
extern "C" __global__ void store_outside(float *out, int n) {
    int i = threadIdx.x;
    out[i] = i;  // MISTAKE store_outside
}

extern "C" __global__ void load_outside(float *out, int n) {
    int i = threadIdx.x;
    float value = 0;
    if (i < n) value = out[i + 1];  // MISTAKE load_outside
    if (i < n - 1) out[i] = value;
}

extern "C" __global__ void after_free(float *out, int n) {
    if (threadIdx.x == 0) out[0] = 1;  // MISTAKE after_free
}

extern "C" __global__ void misaligned(float *out, int n) {
    if (threadIdx.x == 0) *(float4 *)(out + 1) = make_float4(n, n, n, n);  // MISTAKE misaligned
}

extern "C" __global__ void no_barrier(float *out, int n) {
    __shared__ float tile[64];
    tile[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = tile[63 - threadIdx.x];  // MISTAKE no_barrier
}

extern "C" __global__ void no_atomic(float *out, int n) {
    if (threadIdx.x == 0) out[0] = blockIdx.x;  // MISTAKE no_atomic
}

extern "C" __global__ void shared_outside(float *out, int n) {
    __shared__ float tile[64];
    tile[threadIdx.x + n] = 1;  // MISTAKE shared_outside
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}

extern "C" __global__ void uninitialised(float *out, int n) {
    __shared__ float tile[64];
    if (threadIdx.x < 32) tile[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];  // MISTAKE uninitialised
}

extern "C" __global__ void overwritten(float *out, int n) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    tile[i] = i;
    __syncthreads();
    tile[i] = tile[63 - i] + 1;  // MISTAKE overwritten
    __syncthreads();
    out[i] = tile[i];
}

extern "C" __global__ void divergent_barrier(float *out, int n) {
    out[threadIdx.x] = 1;
    if (threadIdx.x < n - 16) {
        __syncthreads();  // MISTAKE divergent_barrier
        out[threadIdx.x] = 2;
    }
}
