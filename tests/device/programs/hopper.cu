// Clusters, and copies through a tensor map that the driver encoded.
#include <cooperative_groups.h>
#include <cstdio>
#include <cuda.h>
#include <vector>

__global__ void __cluster_dims__(2, 1, 1) exchange(float *x) {
    __shared__ float own[128];
    auto cluster = cooperative_groups::this_cluster();
    int i = blockIdx.x * 128 + threadIdx.x;
    own[threadIdx.x] = x[i];
    cluster.sync();
    float *theirs = cluster.map_shared_rank(own, cluster.block_rank() ^ 1);
    x[i] = theirs[127 - threadIdx.x] * 2;
    cluster.sync();
}

__global__ void box(const __grid_constant__ CUtensorMap map, unsigned short *out, int column, int row) {
    __shared__ alignas(1024) unsigned short tile[16 * 64];
    __shared__ alignas(8) unsigned long long barrier;
    unsigned bar = (unsigned)__cvta_generic_to_shared(&barrier), to = (unsigned)__cvta_generic_to_shared(tile);
    if (!threadIdx.x) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(2048) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&map), "r"(column), "r"(row), "r"(bar) : "memory");
    }
    __syncthreads();
    asm volatile("{ .reg .pred p; WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @p bra DONE; bra WAIT; DONE: }" ::"r"(bar) : "memory");
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) out[i] = tile[i] + 1;
}

int main() {
    std::vector<unsigned short> host(96 * 128);
    for (size_t i = 0; i < host.size(); i++) host[i] = (unsigned short)(i * 7);
    unsigned short *a, *out;
    float *x;
    cudaMalloc(&a, host.size() * 2); cudaMalloc(&out, 2048); cudaMalloc(&x, 4 * 128 * 4);
    cudaMemcpy(a, host.data(), host.size() * 2, cudaMemcpyHostToDevice);
    cudaMemcpy(x, host.data(), 4 * 128 * 4, cudaMemcpyHostToDevice);
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
    auto encode = (decltype(&cuTensorMapEncodeTiled))entry;
    exchange<<<4, 128>>>(x);
    for (int swizzle = 0; swizzle < 4; swizzle += 3) {
        CUtensorMap map;
        cuuint64_t dims[] = {128, 96}, strides[] = {256};
        cuuint32_t extents[] = {64, 16}, steps[] = {1, 1};
        int result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, a, dims, strides, extents, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, (CUtensorMapSwizzle)swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        box<<<1, 128>>>(map, out, 64, 88);
        printf("%d %s\n", result, cudaGetErrorString(cudaDeviceSynchronize()));
    }
    return 0;
}
