// Sums 128 numbers per block. A __syncthreads() is missing.
__global__ void rowsum(const float *x, float *sums)
{
    __shared__ float part[128];
    int i = threadIdx.x;
    part[i] = x[blockIdx.x * 128 + i];
    for (int n = 64; n > 0; n /= 2) {
        if (i < n)
            part[i] += part[i + n];
    }
    if (i == 0)
        sums[blockIdx.x] = part[0];
}
