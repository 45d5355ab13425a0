/* A driver with CUPTI's callbacks for tests of record.c: memory is host memory, and the only kernel adds `increment` and
   `bias[1]`, variables of the module, to the integers at [*outer]. It loads the library CUDA_INJECTION64_PATH as the driver does. */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*Callback)(void *, int, uint32_t, const void *);
static Callback callback;
static uint32_t increment = 5, bias[2] = {0, 100};
static uint64_t sizes[64][2];
static int size_count, is_loaded;
static char cubin[1 << 16];
static size_t cubin_size;

int fake_subscribe(Callback function) { return callback = function, 0; }

static void tell(int site, const char *name, const void *params, int *result, const char *symbol)
{
    struct { int site; const char *name; const void *params; void *result; const char *symbol; } data = {site, name, params, result, symbol};
    if (callback) callback(NULL, 1, 0, &data);
}

static void load_code(void)
{
    struct { uint32_t id; size_t size; const char *cubin; } module = {1, cubin_size, cubin};
    struct { void *context, *stream, *descriptor; } data = {NULL, NULL, &module};
    if (!is_loaded++ && callback) callback(NULL, 3, 6, &data);
}

int cuInit(unsigned flags)
{
    (void)flags;
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    int (*start)(void) = NULL;
    if (library) *(void **)&start = dlsym(library, "InitializeInjection");
    return start ? !start() : 0;
}

int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuCtxGetDevice(int *device) { return *device = 0, 0; }
int cuDeviceGetName(char *name, int size, int device) { return (void)device, snprintf(name, size, "Fake GPU"), 0; }
int cuCtxSynchronize(void) { return 0; }
int cuStreamIsCapturing(void *stream, int *status) { return (void)stream, *status = 0, 0; }
int cuMemcpy(uint64_t to, uint64_t from, size_t size) { return memcpy((void *)to, (void *)from, size), 0; }
int cuFuncGetModule(uint64_t *module, void *function) { return (void)module, (void)function, 400; }
int cuModuleGetGlobal_v2(uint64_t *address, size_t *size, uint64_t module, const char *name) { return (void)address, (void)size, (void)module, (void)name, 400; }

int cuMemGetAddressRange_v2(uint64_t *start, size_t *size, uint64_t address)
{
    for (int at = 0; at < size_count; at++)
        if (address - sizes[at][0] < sizes[at][1]) return *start = sizes[at][0], *size = sizes[at][1], 0;
    return 1;
}

int cuMemAlloc_v2(uint64_t *address, size_t size)
{
    struct { uint64_t *address; size_t size; } params = {address, size};
    int result = 0;
    tell(0, "cuMemAlloc_v2", &params, &result, NULL);
    *address = (uint64_t)aligned_alloc(256, size);
    memset((void *)*address, 0, size);
    sizes[size_count][0] = *address;
    sizes[size_count++][1] = size;
    tell(1, "cuMemAlloc_v2", &params, &result, NULL);
    return 0;
}

int cuLibraryLoadData(uint64_t *library, const void *code)
{
    struct { uint64_t *library; const void *code; } params = {library, code};
    int result = 0;
    tell(0, "cuLibraryLoadData", &params, &result, NULL);
    cubin_size = ((size_t *)code)[-1];
    memcpy(cubin, code, cubin_size);
    *library = 0x1111;
    tell(1, "cuLibraryLoadData", &params, &result, NULL);
    return 0;
}

int cuLibraryGetKernel(uint64_t *kernel, uint64_t library, const char *name)
{
    struct { uint64_t *kernel, library; const char *name; } params = {kernel, library, name};
    int result = 0;
    tell(0, "cuLibraryGetKernel", &params, &result, NULL);
    *kernel = 0x2222;
    tell(1, "cuLibraryGetKernel", &params, &result, NULL);
    return 0;
}

int cuKernelGetFunction(uint64_t *function, uint64_t kernel) { return load_code(), *function = kernel, 0; }

int cuLibraryGetGlobal(uint64_t *address, size_t *size, uint64_t library, const char *name)
{
    (void)library;
    if (!strcmp(name, "bias")) return *address = (uint64_t)bias, *size = sizeof bias, 0;
    if (strcmp(name, "increment")) return 500;
    return *address = (uint64_t)&increment, *size = 4, 0;
}

int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size) { return (void)function, (void)index, (void)offset, (void)size, 400; }
int cuKernelGetParamInfo(void *kernel, size_t index, size_t *offset, size_t *size)
{
    (void)kernel;
    if (index > 1) return 1;
    return *offset = 8 * index, *size = index ? 4 : 8, 0;
}

int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **values, void **extra)
{
    struct { void *f; unsigned shape[7]; void *stream, **values, **extra; } params = {f, {gx, gy, gz, bx, by, bz, shared}, stream, values, extra};
    int result = 0;
    tell(0, "cuLaunchKernel", &params, &result, "add");
    load_code();
    uint32_t *data = **(uint32_t ***)values[0];
    for (unsigned at = 0; at < bx; at++) data[at] += increment + bias[1];
    increment += *(uint32_t *)values[1];
    result = getenv("FAIL") ? 719 : 0;
    tell(1, "cuLaunchKernel", &params, &result, "add");
    return result;
}
