// Modules, libraries, functions, launches, occupancy, linking and tensor maps.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stand_in.h"

#define FATBIN_MAGIC 0xBA55ED50u
#define WRAPPER_MAGIC 0x466243B1u
#define RESERVED_SHARED 1024
#define SHARED_PER_SM 81 /* numbers of device attributes */
#define REGISTERS_PER_SM 82
#define BLOCKS_PER_SM 106
#define MAX_SHARED_OPTIN 97
#define SM_COUNT 16
#define WARPS_PER_SM (profile.attributes[39] / 32)

struct wrapper {  // nvcc's wrapper around a fatbin
    uint32_t magic, version;
    const void *data;
};

static size_t image_size(const void *image) {
    uint32_t magic;
    memcpy(&magic, image, sizeof magic);
    if (magic == FATBIN_MAGIC) {
        const struct {
            uint32_t magic;
            uint16_t version, header;
            uint64_t size;
        } *header = image;
        return header->header + header->size;
    }
    if (memcmp(image, ELFMAG, SELFMAG)) return strlen(image);
    const Elf64_Ehdr *elf = image;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)((const char *)image + elf->e_shoff);
    size_t end = elf->e_shoff + (size_t)elf->e_shnum * elf->e_shentsize;
    size_t programs = elf->e_phoff + (size_t)elf->e_phnum * elf->e_phentsize;
    if (programs > end) end = programs;
    if (end < sizeof *elf) end = sizeof *elf;
    for (int at = 0; at < elf->e_shnum; at++) {
        size_t last = sections[at].sh_offset + (sections[at].sh_type == SHT_NOBITS ? 0 : sections[at].sh_size);
        if (last > end) end = last;
    }
    return end;
}

// Load an image. The library or program that contains the caller determines whether the image may be executed.
EXPORT CUresult warpfrag_load(CUhandle *out, const void *image, const void *caller, int is_library) {
    NEED_INIT;
    REQUIRE(out && image, INVALID_VALUE);
    struct context *context = current_context();
    REQUIRE(context || is_library, INVALID_CONTEXT);
    const struct wrapper *wrapper = image;
    if (!memcmp(image, &(uint32_t){WRAPPER_MAGIC}, 4)) image = wrapper->data;
    Dl_info info;
    const char *file = dladdr(caller, &info) && info.dli_fname ? info.dli_fname : "";
    size_t size = image_size(image), prefix = strlen(file) + 1;
    char *message = malloc(prefix + size);
    REQUIRE(message, OUT_OF_MEMORY);
    memcpy(message, file, prefix);
    memcpy(message + prefix, image, size);
    struct {
        uint32_t id, align;
        uint64_t bytes;
    } loaded;
    CUresult error = request(REQUEST_LOAD, message, prefix + size, &loaded, sizeof loaded, NULL);
    free(message);
    TRY(error);
    struct module *module = calloc(1, sizeof *module);
    *module = (struct module){NULL, loaded.id, is_library ? NULL : context, 0, is_library};
    if (loaded.bytes) {
        TRY(allocate(module->context, loaded.bytes, loaded.align, HIDDEN_MEMORY, &module->variables));
        uint64_t place[] = {loaded.id, module->variables};
        TRY(request(REQUEST_PLACE, place, sizeof place, NULL, 0, NULL));
    }
    *out = module->handle = make_handle(MODULE, module);
    return SUCCESS;
}

EXPORT CUresult cuModuleLoadData(CUhandle *module, const void *image) {
    return warpfrag_load(module, image, __builtin_return_address(0), false);
}

// The caller's log buffer stays empty; if loading fails, the server prints the reason.
EXPORT CUresult cuModuleLoadDataEx(CUhandle *module, const void *image, unsigned number, int *options, void **values) {
    (void)number, (void)options, (void)values;
    return warpfrag_load(module, image, __builtin_return_address(0), false);
}

EXPORT CUresult cuModuleLoadFatBinary(CUhandle *module, const void *image) {
    return warpfrag_load(module, image, __builtin_return_address(0), false);
}

EXPORT CUresult cuLibraryLoadData(CUhandle *library, const void *image, int *jit_options, void **jit_values,
                                  unsigned jit_number, int *options, void **values, unsigned number) {
    (void)jit_options, (void)jit_values, (void)jit_number, (void)options, (void)values, (void)number;
    return warpfrag_load(library, image, __builtin_return_address(0), true);
}

// Return the contents of a file, followed by a zero byte, or NULL if the file cannot be read.
static char *file_contents(const char *path, long *size) {
    FILE *file = path ? fopen(path, "rb") : NULL;
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    *size = ftell(file);
    rewind(file);
    char *data = calloc(1, *size + 1);
    bool is_read = data && fread(data, 1, *size, file) == (size_t)*size;
    fclose(file);
    if (is_read) return data;
    free(data);
    return NULL;
}

static CUresult load_file(CUhandle *module, const char *path, const void *caller, bool is_library) {
    long size;
    char *data = file_contents(path, &size);
    REQUIRE(data, 301);
    CUresult error = size > 3 ? warpfrag_load(module, data, caller, is_library) : INVALID_IMAGE;
    free(data);
    return error;
}

EXPORT CUresult cuModuleLoad(CUhandle *module, const char *path) {
    return load_file(module, path, __builtin_return_address(0), false);
}

EXPORT CUresult cuLibraryLoadFromFile(CUhandle *library, const char *path, int *jit_options, void **jit_values,
                                      unsigned jit_number, int *options, void **values, unsigned number) {
    (void)jit_options, (void)jit_values, (void)jit_number, (void)options, (void)values, (void)number;
    return load_file(library, path, __builtin_return_address(0), true);
}

EXPORT CUresult cuModuleUnload(CUhandle handle) {
    NEED_INIT;
    struct module *module = object_of(handle, MODULE);
    REQUIRE(module, INVALID_HANDLE);
    if (module->variables) release(module->variables, HIDDEN_MEMORY);
    send_request(REQUEST_UNLOAD, &module->id, sizeof module->id);
    drop_handle(handle);
    free(module);
    return SUCCESS;
}
ALIAS(cuLibraryUnload, cuModuleUnload);

EXPORT CUresult cuModuleGetLoadingMode(int *mode) {
    NEED_INIT;
    *mode = 2;  // lazy
    return SUCCESS;
}

// Functions. A library's kernel and its function are one object.

static struct function *known_function(uint32_t id, struct module *module);

EXPORT CUresult cuModuleGetFunction(CUhandle *out, CUhandle handle, const char *name) {
    NEED_INIT;
    struct module *module = object_of(handle, MODULE);
    REQUIRE(module, INVALID_HANDLE);
    REQUIRE(out && name && *name, INVALID_VALUE);
    size_t length = strlen(name) + 1;
    char *message = malloc(sizeof module->id + length);
    memcpy(message, &module->id, sizeof module->id);
    memcpy(message + sizeof module->id, name, length);
    struct found {
        uint32_t id, parameter_bytes, parameter_count;
        int32_t attributes[FUNCTION_ATTRIBUTES];
        struct parameter parameters[];
    } *found;
    void *reply;
    size_t size;
    CUresult error = request_blob(REQUEST_FUNCTION, message, sizeof module->id + length, &reply, &size);
    free(message);
    TRY(error);
    found = reply;
    struct function *function = known_function(found->id, module);
    if (!function->handle) {
        size_t bytes = found->parameter_count * sizeof *found->parameters;
        function->parameter_bytes = found->parameter_bytes;
        function->parameter_count = found->parameter_count;
        function->parameters = memcpy(malloc(bytes + 1), found->parameters, bytes);
        memcpy(function->attributes, found->attributes, sizeof function->attributes);
        function->name = strdup(name);
        function->handle = make_handle(FUNCTION, function);
    }
    *out = function->handle;
    return SUCCESS;
}

static struct function **functions;
static size_t function_count;

static struct function *known_function(uint32_t id, struct module *module) {
    if (id >= function_count) {
        functions = realloc(functions, (id + 1) * sizeof *functions);
        for (; function_count <= id; function_count++) {
            functions[function_count] = calloc(1, sizeof **functions);
            functions[function_count]->id = function_count;
        }
    }
    functions[id]->module = module;
    return functions[id];
}
ALIAS(cuLibraryGetKernel, cuModuleGetFunction);

static CUresult kernel_names(CUhandle handle, char **names, uint32_t *count) {
    struct module *module = object_of(handle, MODULE);
    REQUIRE(module, INVALID_HANDLE);
    void *reply;
    size_t size;
    TRY(request_blob(REQUEST_KERNELS, &module->id, sizeof module->id, &reply, &size));
    memcpy(count, reply, sizeof *count);
    *names = memcpy(malloc(size), (char *)reply + sizeof *count, size - sizeof *count);
    return SUCCESS;
}

EXPORT CUresult cuModuleGetFunctionCount(unsigned *count, CUhandle module) {
    NEED_INIT;
    char *names = NULL;
    TRY(kernel_names(module, &names, count));
    free(names);
    return SUCCESS;
}
ALIAS(cuLibraryGetKernelCount, cuModuleGetFunctionCount);

EXPORT CUresult cuModuleEnumerateFunctions(CUhandle *out, unsigned number, CUhandle module) {
    NEED_INIT;
    char *names;
    uint32_t count;
    TRY(kernel_names(module, &names, &count));
    CUresult error = SUCCESS;
    char *name = names;
    for (uint32_t at = 0; at < count && at < number && !error; at++, name += strlen(name) + 1)
        error = cuModuleGetFunction(&out[at], module, name);
    free(names);
    return error;
}
ALIAS(cuLibraryEnumerateKernels, cuModuleEnumerateFunctions);

EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUhandle handle, const char *name) {
    NEED_INIT;
    struct module *module = object_of(handle, MODULE);
    REQUIRE(module, INVALID_HANDLE);
    REQUIRE(name, INVALID_VALUE);
    size_t length = strlen(name) + 1;
    char *message = malloc(sizeof module->id + length);
    memcpy(message, &module->id, sizeof module->id);
    memcpy(message + sizeof module->id, name, length);
    uint64_t found[2];
    CUresult error = request(REQUEST_VARIABLE, message, sizeof module->id + length, found, sizeof found, NULL);
    free(message);
    TRY(error);
    if (address) *address = found[0];
    if (size) *size = found[1];
    return SUCCESS;
}
ALIAS(cuLibraryGetGlobal, cuModuleGetGlobal_v2);
ALIAS(cuLibraryGetManaged, cuModuleGetGlobal_v2);

EXPORT CUresult cuLibraryGetModule(CUhandle *module, CUhandle library) {
    NEED_CONTEXT;
    REQUIRE(module && object_of(library, MODULE), INVALID_HANDLE);
    *module = library;
    return SUCCESS;
}

EXPORT CUresult cuKernelGetFunction(CUhandle *function, CUhandle kernel) {
    NEED_CONTEXT;
    REQUIRE(function && object_of(kernel, FUNCTION), INVALID_HANDLE);
    *function = kernel;
    return SUCCESS;
}

#define FUNCTION_OF(handle)                                 \
    NEED_INIT;                                              \
    struct function *function = object_of(handle, FUNCTION); \
    REQUIRE(function, INVALID_HANDLE)

EXPORT CUresult cuFuncGetModule(CUhandle *module, CUhandle handle) {
    FUNCTION_OF(handle);
    *module = function->module->handle;
    return SUCCESS;
}
ALIAS(cuKernelGetLibrary, cuFuncGetModule);

EXPORT CUresult cuFuncGetName(const char **name, CUhandle handle) {
    FUNCTION_OF(handle);
    *name = function->name;
    return SUCCESS;
}
ALIAS(cuKernelGetName, cuFuncGetName);

EXPORT CUresult cuFuncIsLoaded(int *state, CUhandle handle) {
    FUNCTION_OF(handle);
    *state = 1;
    return SUCCESS;
}

EXPORT CUresult cuFuncLoad(CUhandle handle) {
    FUNCTION_OF(handle);
    return SUCCESS;
}

EXPORT CUresult cuFuncGetParamInfo(CUhandle handle, size_t index, size_t *offset, size_t *size) {
    FUNCTION_OF(handle);
    REQUIRE(offset && index < function->parameter_count, INVALID_VALUE);
    *offset = function->parameters[index].offset;
    if (size) *size = function->parameters[index].size;
    return SUCCESS;
}
ALIAS(cuKernelGetParamInfo, cuFuncGetParamInfo);

EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUhandle handle) {
    FUNCTION_OF(handle);
    REQUIRE(value && attribute >= 0 && attribute < FUNCTION_ATTRIBUTES, INVALID_VALUE);
    *value = function->attributes[attribute];
    return SUCCESS;
}

EXPORT CUresult cuKernelGetAttribute(int *value, int attribute, CUhandle kernel, CUdevice device) {
    REQUIRE(device == 0, INVALID_DEVICE);
    return cuFuncGetAttribute(value, attribute, kernel);
}

EXPORT CUresult cuFuncSetAttribute(CUhandle handle, int attribute, int value) {
    FUNCTION_OF(handle);
    int32_t limit = profile.attributes[MAX_SHARED_OPTIN] - function->attributes[SHARED_BYTES];
    bool is_size = attribute == MAX_DYNAMIC_SHARED && value >= 0 && value <= limit;
    bool is_carveout = attribute == CARVEOUT && value >= -1 && value <= 100;
    bool is_cluster = attribute >= CLUSTER_WIDTH && attribute <= SCHEDULING_POLICY && value >= 0;
    REQUIRE(is_size || is_carveout || is_cluster, INVALID_VALUE);
    function->attributes[attribute] = value;
    return SUCCESS;
}

EXPORT CUresult cuKernelSetAttribute(int attribute, int value, CUhandle kernel, CUdevice device) {
    REQUIRE(device == 0, INVALID_DEVICE);
    return cuFuncSetAttribute(kernel, attribute, value);
}

EXPORT CUresult cuFuncSetCacheConfig(CUhandle handle, int config) {
    FUNCTION_OF(handle);
    (void)config;
    return SUCCESS;
}
ALIAS(cuFuncSetSharedMemConfig, cuFuncSetCacheConfig);

EXPORT CUresult cuKernelSetCacheConfig(CUhandle kernel, int config, CUdevice device) {
    (void)device;
    return cuFuncSetCacheConfig(kernel, config);
}

// Occupancy: the number of blocks that fit on a multiprocessor, limited by warps, registers and shared memory.

static int active_blocks(const struct function *function, int threads, size_t shared) {
    const int32_t *attributes = function->attributes;
    if (threads < 1 || threads > attributes[MAX_THREADS]) return 0;
    if (shared > (size_t)attributes[MAX_DYNAMIC_SHARED]) return 0;
    int warps = (threads + 31) / 32, blocks = profile.attributes[BLOCKS_PER_SM];
    int by_warps = WARPS_PER_SM / warps;
    if (by_warps < blocks) blocks = by_warps;
    int registers = (attributes[REGISTERS] * 32 + 255) / 256 * 256;  // per warp
    if (registers) {
        int by_registers = profile.attributes[REGISTERS_PER_SM] / 4 / registers * 4 / warps;  // four partitions
        if (by_registers < blocks) blocks = by_registers;
    }
    size_t bytes = (attributes[SHARED_BYTES] + shared + RESERVED_SHARED + 127) / 128 * 128;
    int by_shared = profile.attributes[SHARED_PER_SM] / bytes;
    return by_shared < blocks ? by_shared : blocks;
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUhandle handle, int threads,
                                                                     size_t shared, unsigned flags) {
    (void)flags;
    FUNCTION_OF(handle);
    REQUIRE(blocks && threads > 0, INVALID_VALUE);
    *blocks = active_blocks(function, threads, shared);
    return SUCCESS;
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUhandle function, int threads, size_t shared) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}

EXPORT CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUhandle handle,
                                                          size_t (*shared_of)(int), size_t shared, int limit,
                                                          unsigned flags) {
    (void)flags;
    FUNCTION_OF(handle);
    REQUIRE(grid && block && limit >= 0, INVALID_VALUE);
    int most = function->attributes[MAX_THREADS], best = 0;
    if (limit && limit < most) most = limit;
    for (int threads = (most + 31) / 32 * 32; threads > 0; threads -= 32) {
        int size = threads < most ? threads : most;
        int blocks = active_blocks(function, size, shared_of ? shared_of(size) : shared);
        if (blocks * size > best) {
            best = blocks * size;
            *block = size;
            *grid = blocks * profile.attributes[SM_COUNT];
        }
    }
    return best ? SUCCESS : INVALID_VALUE;
}

EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUhandle function, size_t (*shared_of)(int),
                                                 size_t shared, int limit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, shared_of, shared, limit, 0);
}

EXPORT CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUhandle handle, int blocks, int threads) {
    FUNCTION_OF(handle);
    REQUIRE(bytes && blocks > 0 && threads > 0, INVALID_VALUE);
    size_t share = profile.attributes[SHARED_PER_SM] / blocks / 128 * 128;
    size_t fixed = function->attributes[SHARED_BYTES] + RESERVED_SHARED;
    size_t most = profile.attributes[MAX_SHARED_OPTIN] - function->attributes[SHARED_BYTES];
    *bytes = share < fixed ? 0 : share - fixed < most ? share - fixed : most;
    return SUCCESS;
}

// Launches

struct attribute_value {  // a launch attribute
    int id;
    char padding[4];
    union {
        char bytes[64];
        int number;
        uint32_t shape[3];
    } value;
};

struct launch_config {
    uint32_t grid[3], block[3], shared;
    CUhandle stream;
    struct attribute_value *attributes;
    uint32_t attribute_count;
};

static CUresult check_launch(const struct function *function, const struct launch *launch) {
    uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
    uint64_t blocks = 1, cluster = 1;
    for (int at = 0; at < 3; at++) {
        REQUIRE(launch->block[at] && launch->block[at] <= (uint32_t)profile.attributes[2 + at], INVALID_VALUE);
        REQUIRE(launch->grid[at] && launch->grid[at] <= (uint32_t)profile.attributes[5 + at], INVALID_VALUE);
        uint32_t size = launch->cluster[at] ? launch->cluster[at] : 1;
        REQUIRE(launch->grid[at] % size == 0, 912);  // an invalid cluster size
        blocks *= launch->grid[at];
        cluster *= size;
    }
    int limit = function->attributes[NON_PORTABLE_CLUSTER] ? 16 : 8;
    REQUIRE(cluster <= (uint64_t)limit, 912);
    REQUIRE(threads <= (uint64_t)profile.attributes[1], INVALID_VALUE);
    REQUIRE(threads <= (uint64_t)function->attributes[MAX_THREADS], LAUNCH_OUT_OF_RESOURCES);
    REQUIRE(launch->shared <= (uint32_t)function->attributes[MAX_DYNAMIC_SHARED], INVALID_VALUE);
    uint64_t resident = (uint64_t)active_blocks(function, threads, launch->shared) * profile.attributes[SM_COUNT];
    REQUIRE(!launch->cooperative || blocks <= resident, COOPERATIVE_LAUNCH_TOO_LARGE);
    return SUCCESS;
}

// Check a launch, and convert it to an operation that a stream can run, with a copy of the parameters.
CUresult launch_operation(struct function *function, const struct launch *launch, void **parameters, void **extra,
                          struct operation *operation) {
    TRY(check_launch(function, launch));
    REQUIRE(parameters || extra || !function->parameter_bytes, INVALID_VALUE);
    struct launch *sent = calloc(1, sizeof *sent + function->parameter_bytes);
    REQUIRE(sent, OUT_OF_MEMORY);
    *sent = *launch;
    sent->function = function->id;
    sent->parameter_bytes = function->parameter_bytes;
    char *bytes = (char *)(sent + 1);
    for (uint32_t at = 0; parameters && at < function->parameter_count; at++)
        memcpy(bytes + function->parameters[at].offset, parameters[at], function->parameters[at].size);
    const void *buffer = NULL;
    size_t size = 0;
    for (void **each = extra; !parameters && each && *each; each += 2) {
        if (*each == (void *)1) buffer = each[1];
        if (*each == (void *)2) size = *(size_t *)each[1];
    }
    if (buffer) memcpy(bytes, buffer, size < function->parameter_bytes ? size : function->parameter_bytes);
    *operation = (struct operation){OP_LAUNCH, {.launch = {function, sent}}};
    return SUCCESS;
}

static CUresult launch(CUhandle handle, const struct launch *shape, CUhandle stream, void **parameters, void **extra) {
    NEED_CONTEXT;
    struct function *function = object_of(handle, FUNCTION);
    REQUIRE(function && (function->module->library || function->module->context == context), INVALID_HANDLE);
    REQUIRE(object_of(function->module->handle, MODULE) == function->module, INVALID_HANDLE);
    struct operation operation;
    CUresult error = launch_operation(function, shape, parameters, extra, &operation);
    if (error) {
        struct launch rejected = *shape;
        rejected.function = function->id;
        rejected.parameter_bytes = error;  // the server expects the error code instead of the parameter size
        send_request(REQUEST_REJECTED, &rejected, sizeof rejected);
        return error;
    }
    error = submit(stream, &operation);
    drop_operation(&operation);
    return error;
}

EXPORT CUresult cuLaunchKernel(CUhandle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                               unsigned bz, unsigned shared, CUhandle stream, void **parameters, void **extra) {
    struct launch shape = {0, {gx, gy, gz}, {bx, by, bz}, {0, 0, 0}, shared, 0, 0};
    return launch(function, &shape, stream, parameters, extra);
}
PTSZ(cuLaunchKernel);

EXPORT CUresult cuLaunchCooperativeKernel(CUhandle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                          unsigned by, unsigned bz, unsigned shared, CUhandle stream,
                                          void **parameters) {
    struct launch shape = {0, {gx, gy, gz}, {bx, by, bz}, {0, 0, 0}, shared, 1, 0};
    return launch(function, &shape, stream, parameters, NULL);
}
PTSZ(cuLaunchCooperativeKernel);

static struct launch shape_of(const struct launch_config *config) {
    struct launch shape = {.shared = config->shared};
    memcpy(shape.grid, config->grid, sizeof shape.grid);
    memcpy(shape.block, config->block, sizeof shape.block);
    for (uint32_t at = 0; at < config->attribute_count; at++) {
        const struct attribute_value *each = &config->attributes[at];
        if (each->id == 2) shape.cooperative = each->value.number != 0;
        if (each->id == 4) memcpy(shape.cluster, each->value.shape, sizeof shape.cluster);
    }
    return shape;
}

EXPORT CUresult cuLaunchKernelEx(const struct launch_config *config, CUhandle function, void **parameters,
                                 void **extra) {
    REQUIRE(config, INVALID_VALUE);
    struct launch shape = shape_of(config);
    return launch(function, &shape, config->stream, parameters, extra);
}
PTSZ(cuLaunchKernelEx);

EXPORT CUresult cuOccupancyMaxActiveClusters(int *clusters, CUhandle handle, const struct launch_config *config) {
    FUNCTION_OF(handle);
    REQUIRE(clusters && config, INVALID_VALUE);
    struct launch shape = shape_of(config);
    int size = 1, threads = 1;
    for (int at = 0; at < 3; at++) {
        size *= shape.cluster[at] ? shape.cluster[at] : 1;
        threads *= shape.block[at];
    }
    *clusters = active_blocks(function, threads, shape.shared) * profile.attributes[SM_COUNT] / size;
    return SUCCESS;
}

EXPORT CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUhandle handle, const struct launch_config *config) {
    FUNCTION_OF(handle);
    REQUIRE(size && config, INVALID_VALUE);
    *size = function->attributes[NON_PORTABLE_CLUSTER] ? 16 : 8;
    return SUCCESS;
}

// Linking. The inputs are collected here; the server links them.

struct link {
    char *inputs;
    size_t size;
    void *image;
};

EXPORT CUresult cuLinkCreate_v2(unsigned number, int *options, void **values, CUhandle *out) {
    (void)number, (void)options, (void)values;
    NEED_CONTEXT;
    REQUIRE(out, INVALID_VALUE);
    *out = make_handle(LINK, calloc(1, sizeof(struct link)));
    return SUCCESS;
}

EXPORT CUresult cuLinkAddData_v2(CUhandle handle, int type, void *data, size_t size, const char *name, unsigned number,
                                 int *options, void **values) {
    (void)name, (void)number, (void)options, (void)values;
    NEED_CONTEXT;
    struct link *link = object_of(handle, LINK);
    REQUIRE(link, INVALID_HANDLE);
    REQUIRE(data && size, INVALID_VALUE);
    uint64_t header[] = {type, size};
    link->inputs = realloc(link->inputs, link->size + sizeof header + size);
    memcpy(link->inputs + link->size, header, sizeof header);
    memcpy(link->inputs + link->size + sizeof header, data, size);
    link->size += sizeof header + size;
    return SUCCESS;
}

EXPORT CUresult cuLinkAddFile_v2(CUhandle handle, int type, const char *path, unsigned number, int *options,
                                 void **values) {
    NEED_CONTEXT;
    REQUIRE(object_of(handle, LINK), INVALID_HANDLE);
    REQUIRE(path, INVALID_VALUE);
    long size;
    char *data = file_contents(path, &size);
    REQUIRE(data, 301);
    CUresult result = cuLinkAddData_v2(handle, type, data, size, path, number, options, values);
    free(data);
    return result;
}

EXPORT CUresult cuLinkComplete(CUhandle handle, void **image, size_t *size) {
    NEED_CONTEXT;
    struct link *link = object_of(handle, LINK);
    REQUIRE(link, INVALID_HANDLE);
    void *reply;
    size_t length;
    TRY(request_blob(REQUEST_LINK, link->inputs, link->size, &reply, &length));
    free(link->image);
    *image = link->image = memcpy(calloc(1, length + 1), reply, length);
    *size = length;
    return SUCCESS;
}

EXPORT CUresult cuLinkDestroy(CUhandle handle) {
    NEED_CONTEXT;
    struct link *link = object_of(handle, LINK);
    REQUIRE(link, INVALID_HANDLE);
    free(link->inputs);
    free(link->image);
    free(link);
    drop_handle(handle);
    return SUCCESS;
}

// Tensor maps. The server checks the description and encodes the 128 bytes.

EXPORT CUresult cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *dims,
                                       const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,
                                       int interleave, int swizzle, int promotion, int fill) {
    NEED_INIT;
    REQUIRE(map && rank >= 1 && rank <= 5 && dims && box && element_strides && (rank == 1 || strides), INVALID_VALUE);
    struct {
        uint64_t address, dims[5], strides[5];
        uint32_t box[5], element_strides[5];
        int32_t type, rank, interleave, swizzle, promotion, fill;
    } message = {(uintptr_t)address, {0}, {0}, {0}, {0}, type, rank, interleave, swizzle, promotion, fill};
    memcpy(message.dims, dims, rank * sizeof *dims);
    if (rank > 1) memcpy(message.strides, strides, (rank - 1) * sizeof *strides);
    memcpy(message.box, box, rank * sizeof *box);
    memcpy(message.element_strides, element_strides, rank * sizeof *element_strides);
    return request(REQUEST_TENSOR_MAP, &message, sizeof message, map, 128, NULL);
}
