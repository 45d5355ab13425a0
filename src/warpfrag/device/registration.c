// Fatbins, kernels and variables, which nvcc's code registers when a program or library is loaded, and kernel launches.
//
// A fatbin is loaded when its first kernel or variable is used.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime.h"

#define INVALID_DEVICE_FUNCTION 98
#define INVALID_SYMBOL 13
#define INVALID_CONFIGURATION 9

struct dim3 {
    unsigned x, y, z;
};

struct fatbin {
    const void *image, *caller;
    CUhandle module;
    int error;
};

struct entry {  // a kernel or a variable; the key is the address of its host counterpart
    const void *host;
    struct fatbin *fatbin;
    const char *name;
    CUhandle function;
    bool is_managed;  // the host counterpart is the pointer to a __managed__ variable
};

static struct entry *table;  // open addressing
static size_t table_size, table_count;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

static struct entry *slot_of(struct entry *entries, size_t size, const void *host) {
    size_t at = ((uintptr_t)host >> 2) * 0x9E3779B97F4A7C15u % size;
    while (entries[at].host && entries[at].host != host) at = (at + 1) % size;
    return &entries[at];
}

static void register_entry(struct fatbin *fatbin, const void *host, const char *name, bool is_managed) {
    pthread_mutex_lock(&table_lock);
    if (2 * (table_count + 1) > table_size) {
        size_t size = table_size ? 2 * table_size : 1024;
        struct entry *larger = calloc(size, sizeof *larger);
        if (!larger) abort();
        for (size_t at = 0; at < table_size; at++)
            if (table[at].host) *slot_of(larger, size, table[at].host) = table[at];
        free(table);
        table = larger;
        table_size = size;
    }
    struct entry *slot = slot_of(table, table_size, host);
    table_count += !slot->host;
    *slot = (struct entry){host, fatbin, name, NULL, is_managed};
    pthread_mutex_unlock(&table_lock);
}

static struct entry *find_entry(const void *host) {
    struct entry *slot = table_size ? slot_of(table, table_size, host) : NULL;
    return slot && slot->host ? slot : NULL;
}

static int load(struct fatbin *fatbin) {
    START;
    if (!fatbin->module && !fatbin->error)
        fatbin->error = warpfrag_load(&fatbin->module, fatbin->image, fatbin->caller, true);
    return fatbin->error;
}

int function_of(const void *host, CUhandle *function) {
    pthread_mutex_lock(&table_lock);
    struct entry *entry = find_entry(host);
    pthread_mutex_unlock(&table_lock);
    if (!entry) return INVALID_DEVICE_FUNCTION;
    TRY(load(entry->fatbin));
    if (!entry->function && cuModuleGetFunction(&entry->function, entry->fatbin->module, entry->name))
        return INVALID_DEVICE_FUNCTION;
    *function = entry->function;
    return SUCCESS;
}

int symbol_of(const void *host, CUdeviceptr *address, size_t *size) {
    pthread_mutex_lock(&table_lock);
    struct entry *entry = find_entry(host);
    pthread_mutex_unlock(&table_lock);
    if (!entry) return INVALID_SYMBOL;
    TRY(load(entry->fatbin));
    return cuModuleGetGlobal_v2(address, size, entry->fatbin->module, entry->name) ? INVALID_SYMBOL : SUCCESS;
}

EXPORT void **__cudaRegisterFatBinary(const void *image) {
    struct fatbin *fatbin = calloc(1, sizeof *fatbin);
    *fatbin = (struct fatbin){image, __builtin_return_address(0), NULL, 0};
    return (void **)fatbin;
}

EXPORT void __cudaRegisterFatBinaryEnd(void **fatbin) { (void)fatbin; }
EXPORT void __cudaUnregisterFatBinary(void **fatbin) { (void)fatbin; }  // called only when the process ends

// Called by host code before it accesses a __managed__ variable: sets the pointers to them, and lets the host access them.
EXPORT char __cudaInitModule(void **fatbin) {
    if (load((struct fatbin *)fatbin)) return 0;
    pthread_mutex_lock(&table_lock);
    for (size_t at = 0; at < table_size; at++) {
        const struct entry *entry = table + at;
        CUdeviceptr address;
        size_t size, page = (size_t)sysconf(_SC_PAGESIZE);
        if (!entry->is_managed || entry->fatbin != (struct fatbin *)fatbin) continue;
        if (cuModuleGetGlobal_v2(&address, &size, entry->fatbin->module, entry->name)) continue;
        uintptr_t first = address / page * page, end = (address + size + page - 1) / page * page;
        if (!mprotect((void *)first, end - first, PROT_READ | PROT_WRITE)) *(void **)(uintptr_t)entry->host = (void *)(uintptr_t)address;
    }
    pthread_mutex_unlock(&table_lock);
    return 1;
}

EXPORT void __cudaRegisterFunction(void **fatbin, const char *host, char *device, const char *name, int limit, void *tid,
                                   void *bid, void *block, void *grid, int *warp) {
    (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    register_entry((struct fatbin *)fatbin, host, name, false);
}

EXPORT void __cudaRegisterVar(void **fatbin, char *host, char *device, const char *name, int ext, size_t size,
                              int constant, int global) {
    (void)device, (void)ext, (void)size, (void)constant, (void)global;
    register_entry((struct fatbin *)fatbin, host, name, false);
}

EXPORT void __cudaRegisterManagedVar(void **fatbin, void **host, char *device, const char *name, int ext, size_t size,
                                     int constant, int global) {
    (void)device, (void)ext, (void)size, (void)constant, (void)global;
    register_entry((struct fatbin *)fatbin, host, name, true);
}

// Launches

static __thread struct {
    struct dim3 grid, block;
    size_t shared;
    CUhandle stream;
} pushed;

EXPORT unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared, CUhandle stream) {
    pushed.grid = grid;
    pushed.block = block;
    pushed.shared = shared;
    pushed.stream = stream;
    return 0;
}

EXPORT int __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *shared, CUhandle *stream) {
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = pushed.shared;
    *stream = pushed.stream;
    return SUCCESS;
}

EXPORT int __cudaGetKernel(CUhandle *kernel, const void *host) { return report(function_of(host, kernel)); }
ALIAS(cudaGetKernel, __cudaGetKernel);
ALIAS(cudaGetFuncBySymbol, __cudaGetKernel);

static int launched(int error) { return report(error == INVALID_VALUE ? INVALID_CONFIGURATION : error); }

EXPORT int __cudaLaunchKernel(CUhandle kernel, struct dim3 grid, struct dim3 block, void **arguments, size_t shared,
                              CUhandle stream) {
    START;
    return launched(kernel ? cuLaunchKernel(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared,
                                            stream, arguments, NULL)
                           : INVALID_DEVICE_FUNCTION);
}
PTSZ(__cudaLaunchKernel);

EXPORT int cudaLaunchKernel(const void *host, struct dim3 grid, struct dim3 block, void **arguments, size_t shared,
                            CUhandle stream) {
    CUhandle function;
    int error = function_of(host, &function);
    return error ? report(error) : __cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}
PTSZ(cudaLaunchKernel);

EXPORT int cudaLaunchCooperativeKernel(const void *host, struct dim3 grid, struct dim3 block, void **arguments,
                                       size_t shared, CUhandle stream) {
    CUhandle function;
    int error = function_of(host, &function);
    return launched(error ? error
                          : cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                                      (unsigned)shared, stream, arguments));
}
PTSZ(cudaLaunchCooperativeKernel);

// The configuration has the driver's layout, except that the shared memory size has 64 bits, of which the driver reads 32.
EXPORT int cudaLaunchKernelExC(const void *config, const void *host, void **arguments) {
    CUhandle function;
    int error = function_of(host, &function);
    return launched(error ? error : cuLaunchKernelEx(config, function, arguments, NULL));
}
PTSZ(cudaLaunchKernelExC);

// Attributes of functions, occupancy, symbols

struct function_attributes {
    size_t shared, constants, local;
    int numbers[12], reserved[18];
};

EXPORT int cudaFuncGetAttributes(struct function_attributes *out, const void *host) {
    static const int numbers[12] = {MAX_THREADS,        REGISTERS, PTX_VERSION,         BINARY_VERSION,
                                    CACHE_MODE,         MAX_DYNAMIC_SHARED, CARVEOUT,   CLUSTER_MUST_BE_SET,
                                    CLUSTER_WIDTH,      CLUSTER_HEIGHT,     CLUSTER_DEPTH, SCHEDULING_POLICY};
    CUhandle function;
    int error = function_of(host, &function), value = 0;
    if (error) return report(error);
    memset(out, 0, sizeof *out);
    cuFuncGetAttribute(&value, SHARED_BYTES, function);
    out->shared = value;
    cuFuncGetAttribute(&value, CONST_BYTES, function);
    out->constants = value;
    cuFuncGetAttribute(&value, LOCAL_BYTES, function);
    out->local = value;
    for (int at = 0; at < 12; at++) cuFuncGetAttribute(&out->numbers[at], numbers[at], function);
    return SUCCESS;
}

#define WITH_FUNCTION(name, parameters, call)     \
    EXPORT int name parameters {                  \
        CUhandle function;                        \
        int error = function_of(host, &function); \
        return report(error ? error : call);      \
    }

WITH_FUNCTION(cudaFuncSetAttribute, (const void *host, int attribute, int value),
              cuFuncSetAttribute(function, attribute, value))
WITH_FUNCTION(cudaFuncSetCacheConfig, (const void *host, int config), cuFuncSetCacheConfig(function, config))
WITH_FUNCTION(cudaFuncGetName, (const char **name, const void *host), cuFuncGetName(name, function))
WITH_FUNCTION(cudaOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, const void *host, int threads, size_t shared),
              cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared))
WITH_FUNCTION(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
              (int *blocks, const void *host, int threads, size_t shared, unsigned flags),
              cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, flags))
WITH_FUNCTION(cudaOccupancyAvailableDynamicSMemPerBlock, (size_t *bytes, const void *host, int blocks, int threads),
              cuOccupancyAvailableDynamicSMemPerBlock(bytes, function, blocks, threads))
WITH_FUNCTION(cudaOccupancyMaxActiveClusters, (int *clusters, const void *host, const void *config),
              cuOccupancyMaxActiveClusters(clusters, function, config))
WITH_FUNCTION(cudaOccupancyMaxPotentialClusterSize, (int *size, const void *host, const void *config),
              cuOccupancyMaxPotentialClusterSize(size, function, config))

EXPORT int cudaGetSymbolAddress(void **address, const void *host) {
    return report(symbol_of(host, (CUdeviceptr *)address, NULL));
}

EXPORT int cudaGetSymbolSize(size_t *size, const void *host) { return report(symbol_of(host, NULL, size)); }

// Check that the copy fits a variable, and copy to or from it.
static int copy_symbol(const void *host, const void *memory, size_t size, size_t offset, bool is_target, CUhandle stream) {
    CUdeviceptr address;
    size_t whole;
    TRY(symbol_of(host, &address, &whole));
    if (offset + size > whole) return INVALID_VALUE;
    CUdeviceptr variable = address + offset, other = (CUdeviceptr)memory;
    return is_target ? cuMemcpyAsync(variable, other, size, stream) : cuMemcpyAsync(other, variable, size, stream);
}

EXPORT int cudaMemcpyToSymbol(const void *host, const void *source, size_t size, size_t offset, int direction) {
    (void)direction;
    return report(copy_symbol(host, source, size, offset, true, NULL));
}

EXPORT int cudaMemcpyFromSymbol(void *target, const void *host, size_t size, size_t offset, int direction) {
    (void)direction;
    return report(copy_symbol(host, target, size, offset, false, NULL));
}

EXPORT int cudaMemcpyToSymbolAsync(const void *host, const void *source, size_t size, size_t offset, int direction,
                                   CUhandle stream) {
    (void)direction;
    return report(copy_symbol(host, source, size, offset, true, stream));
}

EXPORT int cudaMemcpyFromSymbolAsync(void *target, const void *host, size_t size, size_t offset, int direction,
                                     CUhandle stream) {
    (void)direction;
    return report(copy_symbol(host, target, size, offset, false, stream));
}
