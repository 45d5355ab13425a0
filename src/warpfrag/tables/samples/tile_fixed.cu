#include <stdint.h>

extern "C" __global__ void tile(const uint32_t *A, const uint32_t *B, float *D) {
    int lane = threadIdx.x, g = lane >> 2, t = lane & 3;
    uint32_t a[4] = {A[g * 8 + t], A[(g + 8) * 8 + t], A[g * 8 + t + 4], A[(g + 8) * 8 + t + 4]};
    const uint16_t *h = reinterpret_cast<const uint16_t *>(B);
    uint32_t b[2] = {h[(2 * t) * 8 + g] | uint32_t(h[(2 * t + 1) * 8 + g]) << 16,
                     h[(2 * t + 8) * 8 + g] | uint32_t(h[(2 * t + 9) * 8 + g]) << 16};
    float d[4];
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.f));
    for (int i = 0; i < 4; i++) D[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}
