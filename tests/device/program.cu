// A program for `nvcc -cudart shared`: variables, managed variables, constants, a launch with <<<>>>, a graph, properties, errors.
#include <cstdio>

__device__ int counter = 5;
__managed__ int blocks = 100;
__constant__ float scale[4] = {1, 2, 3, 4};

__global__ void add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] * scale[i & 3] + b[i];
    if (i == 0) atomicAdd(&counter, 1);
    if (threadIdx.x == 0) atomicAdd(&blocks, 1);
}

template <typename T>
__global__ void reverse(T *data) {
    extern __shared__ T tile[];
    tile[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

int main() {
    const int n = 1000;
    static float host[n], result[n];
    for (int i = 0; i < n; i++) host[i] = i;
    float *a, *b, *c;
    cudaMalloc(&a, sizeof host);
    cudaMalloc(&b, sizeof host);
    cudaMalloc(&c, sizeof host);
    cudaMemcpy(a, host, sizeof host, cudaMemcpyHostToDevice);
    cudaMemcpy(b, host, sizeof host, cudaMemcpyHostToDevice);
    float twos[4] = {2, 2, 2, 2};
    cudaMemcpyToSymbol(scale, twos, sizeof twos);
    blocks += 1000;
    add<<<8, 128>>>(a, b, c, n);
    reverse<<<1, 1000, sizeof host>>>(c);
    printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    cudaMemcpy(result, c, sizeof host, cudaMemcpyDeviceToHost);
    int count, wrong = 0;
    cudaMemcpyFromSymbol(&count, counter, sizeof count);
    for (int i = 0; i < n; i++) wrong += result[i] != 3 * (n - 1 - i);
    wrong += blocks != 1108;
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, 0);
    printf("%d wrong, counter %d, %s, %d multiprocessors\n", wrong, count, properties.name, properties.multiProcessorCount);
    add<<<8, 2000>>>(a, b, c, n);
    printf("%s\n", cudaGetErrorName(cudaGetLastError()));
    cudaFuncAttributes attributes;
    cudaFuncGetAttributes(&attributes, add);
    printf("%d threads at most\n", attributes.maxThreadsPerBlock);
    cudaFree(c);
    add<<<8, 128>>>(a, b, c, n);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return wrong;
}
