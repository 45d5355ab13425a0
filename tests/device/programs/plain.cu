// A program as nvcc builds it by default, with the runtime linked statically.
#include <cooperative_groups.h>
#include <cstdio>
#include <vector>

__constant__ float coefficients[4];
__device__ int counter = 3;
__device__ float scale[2] = {0.5f, 2.0f};

struct Given { float *data; int count; double factor; };
struct Node { float *data; Node *next; };

__global__ void saxpy(int n, float a, const float *x, float *y) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = a * x[i] + y[i]; }
__global__ void polynomial(float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = ((coefficients[3] * x[i] + coefficients[2]) * x[i] + coefficients[1]) * x[i] + coefficients[0]; }
__global__ void tally(const float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n && x[i] > 0) atomicAdd(&counter, 1); if (i < 2) scale[i] += 1; }
__global__ void by_value(Given given) { for (int i = threadIdx.x; i < given.count; i += blockDim.x) given.data[i] = float(sin(given.factor * given.data[i])); }
__global__ void listed(Node *node) { for (; node; node = node->next) node->data[threadIdx.x] += 1; }
__global__ void histogram(const unsigned *x, int n, unsigned *bins) {
    __shared__ unsigned own[64];
    if (threadIdx.x < 64) own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&own[x[i] % 64], 1);
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}
__global__ void transpose(const float *x, float *y, int n) {
    extern __shared__ float tile[];
    int i = blockIdx.x * 16 + threadIdx.x, j = blockIdx.y * 16 + threadIdx.y;
    tile[threadIdx.y * 17 + threadIdx.x] = x[j * n + i];
    __syncthreads();
    y[(blockIdx.x * 16 + threadIdx.y) * n + blockIdx.y * 16 + threadIdx.x] = tile[threadIdx.x * 17 + threadIdx.y];
}
__global__ void total(const float *x, int n, float *out) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 32) sum += x[i];
    for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    if (!threadIdx.x) *out = sum;
}
__global__ void passes(float *x, int n) {
    auto grid = cooperative_groups::this_grid();
    for (int pass = 0; pass < 3; pass++) {
        int i = grid.thread_rank();
        float next = i < n ? x[(i + 1) % n] * 0.5f + x[i] : 0;
        grid.sync();
        if (i < n) x[i] = next;
        grid.sync();
    }
}

int main() {
    const int n = 1024;
    std::vector<float> host(n);
    std::vector<unsigned> words(n);
    for (int i = 0; i < n; i++) host[i] = float((i * 37) % 101) / 25 - 2, words[i] = i * 2654435761u;
    float *x, *y;
    unsigned *u, *bins;
    cudaMalloc(&x, n * 4); cudaMalloc(&y, n * 4); cudaMalloc(&u, n * 4); cudaMalloc(&bins, 256);
    cudaMemcpy(x, host.data(), n * 4, cudaMemcpyHostToDevice); cudaMemcpy(y, host.data(), n * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(u, words.data(), n * 4, cudaMemcpyHostToDevice); cudaMemset(bins, 0, 256);
    float set[4] = {0.25f, -1.5f, 0.125f, 2.0f};
    cudaMemcpyToSymbol(coefficients, set, sizeof set);
    saxpy<<<8, 128>>>(n, 1.5f, x, y);
    polynomial<<<8, 128>>>(y, n);
    tally<<<8, 128>>>(x, n);
    tally<<<4, 128>>>(y, 500);
    by_value<<<1, 256>>>(Given{x, n, 0.75});
    Node nodes[2], *list;
    cudaMalloc(&list, sizeof nodes);
    nodes[0] = {x, list + 1}; nodes[1] = {y, nullptr};
    cudaMemcpy(list, nodes, sizeof nodes, cudaMemcpyHostToDevice);
    listed<<<1, 64>>>(list);
    histogram<<<4, 128>>>(u, n, bins);
    transpose<<<dim3(2, 2), dim3(16, 16), 16 * 17 * 4>>>(x, y, 32);
    total<<<1, 32>>>(x, n, y);
    int count = n;
    void *values[] = {&x, &count};
    cudaLaunchCooperativeKernel((void *)passes, dim3(8), dim3(128), values, 0, 0);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
