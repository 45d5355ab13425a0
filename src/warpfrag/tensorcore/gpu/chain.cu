// m8n8k4 in software: short chains of ordinary f32 operations. f16 products are exact in f32.
//
// Macros: C_IS_F16, D_IS_F16.

#define LENGTH 4

extern "C" __global__ void chain(const u16 *a, const u16 *b, const C *c, D *d, int height, int width, int depth, int tiles) {
    s64 output = (s64)blockIdx.x * blockDim.x + threadIdx.x;
    if (output >= (s64)tiles * height * width) return;
    s64 tile = output / width / height, column = output % width;
    const u16 *row = a + output / width * depth;
    b += tile * depth * width + column;
    u32 value = C_IS_F16 ? f32_of_f16(c[output]) : c[output];
    for (int k = 0; k < depth; k += LENGTH) {
        u32 product[LENGTH];
        for (int i = 0; i < LENGTH; i++)
            product[i] = multiply_f32(f32_of_f16(row[k + i]), f32_of_f16(b[(s64)(k + i) * width]));
#if D_IS_F16
        u32 low = add_f32(product[0], product[1]), high = add_f32(product[2], product[3]);
        value = f32_of_f16(f16_of_f32(add_f32(add_f32(value, low), high)));
#else
        u32 total = add_f32(product[0], 0);
        for (int i = 1; i < LENGTH; i++) total = add_f32(total, product[i]);
        value = add_f32(value, total);
#endif
    }
    d[output] = D_IS_F16 ? (D)f16_of_f32(value) : (D)(is_nan_f32(value) ? NAN_F32 : value);
}
