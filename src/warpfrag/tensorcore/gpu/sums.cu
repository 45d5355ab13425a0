// Adds two arrays of partial sums in f32, rounded to nearest.

extern "C" __global__ void add(const u32 *a, const u32 *b, u32 *sums, s64 count) {
    s64 at = (s64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) sums[at] = add_f32(a[at], b[at]);
}
