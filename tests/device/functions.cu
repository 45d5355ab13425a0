// Functions of the driver, and a function that another file defines.
#include <cassert>
#include <cstdio>

#ifndef DEFINED
extern __device__ int twice(int value);

extern "C" __global__ void print(int *out) {
    int thread = threadIdx.x;
    if (thread % 16 == 3) printf("thread %d of %s: %.2f %%\n", thread, "one block", thread * 0.5);
    out[thread] = thread;
}

extern "C" __global__ void allocate(int *out) {
    int *own = (int *)malloc(16);
    own[1] = threadIdx.x;
    out[threadIdx.x] = own[1] + 1;
    free(own);
}

extern "C" __global__ void check(int *out, int limit) {
    assert(threadIdx.x < limit);
    out[threadIdx.x] = 5;
}

#ifdef LINKED
__device__ int table[4] = {1, 2, 3, 4};
extern "C" __global__ void call(int *out) {
    if (threadIdx.x % 2) out[threadIdx.x] = twice(table[threadIdx.x & 3]) + threadIdx.x;
}
#endif
#else
extern __device__ int table[4];
__device__ __noinline__ int twice(int value) { return value > 2 ? 2 * value + table[1] : value; }
#endif
