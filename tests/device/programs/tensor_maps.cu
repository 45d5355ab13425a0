// The 128 bytes of im2col maps (cuTensorMapEncodeIm2col), and of maps that tensormap.replace changed; JSON lines.
#include <cstdio>
#include <cuda.h>
#include <random>

#define FIELD(name, bits, type, value) \
    asm volatile("tensormap.replace.tile." name ".global.b1024." bits " [%0], %1;" ::"l"(map), type(value) : "memory"); map += 128
#define AXIS(name, bits, axis, type, value) \
    asm volatile("tensormap.replace.tile." name ".global.b1024." bits " [%0], " #axis ", %1;" ::"l"(map), type(value) : "memory"); map += 128
#define AXES(name, bits, type, value) \
    AXIS(name, bits, 0, type, value); AXIS(name, bits, 1, type, value); AXIS(name, bits, 2, type, value); AXIS(name, bits, 3, type, value)
#define CHOICE(name, number) \
    asm volatile("tensormap.replace.tile." name ".global.b1024.b32 [%0], " #number ";" ::"l"(map) : "memory"); map += 128

__global__ void replace(char *map) {
    FIELD("global_address", "b64", "l", 0x7f1234567890ll & ~15ll);
    FIELD("rank", "b32", "r", 0); FIELD("rank", "b32", "r", 4);
    AXES("box_dim", "b32", "r", 77); AXIS("box_dim", "b32", 4, "r", 77);
    AXES("global_dim", "b32", "r", 0x12345678); AXIS("global_dim", "b32", 4, "r", 0x12345678);
    AXES("global_stride", "b64", "l", 0xabcdef1230ll);
    AXES("element_stride", "b32", "r", 6); AXIS("element_stride", "b32", 4, "r", 6);
    CHOICE("elemtype", 0); CHOICE("elemtype", 7); CHOICE("elemtype", 8); CHOICE("elemtype", 9); CHOICE("elemtype", 11); CHOICE("elemtype", 12);
    CHOICE("interleave_layout", 1); CHOICE("interleave_layout", 2);
    CHOICE("swizzle_mode", 0); CHOICE("swizzle_mode", 1); CHOICE("swizzle_mode", 2); CHOICE("swizzle_mode", 3);
    CHOICE("fill_mode", 0); CHOICE("fill_mode", 1);
}
static const char *const NAMES[] = {
    "global_address", "rank 0", "rank 4", "box_dim[0]", "box_dim[1]", "box_dim[2]", "box_dim[3]", "box_dim[4]", "global_dim[0]",
    "global_dim[1]", "global_dim[2]", "global_dim[3]", "global_dim[4]", "global_stride[0]", "global_stride[1]", "global_stride[2]",
    "global_stride[3]", "element_stride[0]", "element_stride[1]", "element_stride[2]", "element_stride[3]", "element_stride[4]",
    "elemtype 0", "elemtype 7", "elemtype 8", "elemtype 9", "elemtype 11", "elemtype 12", "interleave_layout 1",
    "interleave_layout 2", "swizzle_mode 0", "swizzle_mode 1", "swizzle_mode 2", "swizzle_mode 3", "fill_mode 0", "fill_mode 1"};

static void hex(const void *data) { for (int i = 0; i < 128; i++) printf("%02x", ((const unsigned char *)data)[i]); }
template <class T> static void list(const T *values, int count) { printf("["); for (int i = 0; i < count; i++) printf("%s%lld", i ? "," : "", (long long)values[i]); printf("],"); }

template <class Function> static Function *entry(const char *name) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
    return (Function *)found;
}

int main() {
    char *memory;
    cudaMalloc(&memory, 1 << 20);
    auto encode_columns = entry<decltype(cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
    auto encode_tiles = entry<decltype(cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
    std::mt19937 random(3);
    auto pick = [&](std::initializer_list<long long> values) { return values.begin()[random() % values.size()]; };
    for (int trial = 0; trial < 1500; trial++) {
        CUtensorMap map = {};
        unsigned rank = 3 + random() % 3, steps[5], channels = pick({8, 16, 32, 64, 128, 256}), pixels = pick({1, 2, 7, 16, 100, 256, 1000, 1024});
        cuuint64_t dims[5], strides[4];
        int lower[3], upper[3], dtype = random() % 13, interleave = random() % 8 ? 0 : 1 + random() % 2, swizzle = random() % 4, promotion = random() % 4, fill = dtype > 5 ? random() % 2 : 0;
        for (unsigned i = 0; i < rank; i++) dims[i] = pick({8, 16, 33, 64, 100, 128, 1000}), steps[i] = random() % 3 ? 1 : 1 + random() % 8;
        for (unsigned i = 0; i + 1 < rank; i++) strides[i] = 32 * (1 + random() % 100000);
        for (int i = 0; i < 3; i++) lower[i] = int(random() % 12) - 6, upper[i] = int(random() % 12) - 6;
        char *address = memory + 256 * (random() % 100);
        int result = encode_columns(&map, (CUtensorMapDataType)dtype, rank, address, dims, strides, lower, upper, channels, pixels, steps, (CUtensorMapInterleave)interleave, (CUtensorMapSwizzle)swizzle, (CUtensorMapL2promotion)promotion, (CUtensorMapFloatOOBfill)fill);
        printf("[\"im2col\",%d,%u,%llu,", dtype, rank, (unsigned long long)address);
        list(dims, rank); list(strides, rank - 1); list(lower, rank - 2); list(upper, rank - 2);
        printf("%u,%u,", channels, pixels);
        list(steps, rank);
        printf("%d,%d,%d,%d,%d,\"", interleave, swizzle, promotion, fill, result);
        if (!result) hex(&map);
        printf("\"]\n");
    }
    for (int from = 0; from < 2; from++) {
        CUtensorMap map = {};
        cuuint64_t dims[] = {64, 32, 16}, strides[] = {256, 8192};
        unsigned box[] = {16, 8, 4}, steps[] = {1, 1, 1};
        if (from) encode_tiles(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, memory, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        const int count = sizeof NAMES / sizeof *NAMES;
        static unsigned char left[count * 128];
        for (int i = 0; i < count; i++) cudaMemcpy(memory + 128 * i, &map, 128, cudaMemcpyHostToDevice);
        replace<<<1, 1>>>(memory);
        fprintf(stderr, "%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
        cudaMemcpy(left, memory, sizeof left, cudaMemcpyDeviceToHost);
        for (int i = 0; i < count; i++) { printf("[\"replace\",%d,\"%s\",\"", from, NAMES[i]); hex(left + 128 * i); printf("\"]\n"); }
    }
    return 0;
}
