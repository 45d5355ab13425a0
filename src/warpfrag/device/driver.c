// The driver API: initialization, device, contexts and errors.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stand_in.h"

static struct context *primary;
static bool is_initialized;

void unlock(pthread_mutex_t **held) { pthread_mutex_unlock(*held); }

// A handle is a type and an index that is never reused, so that a destroyed handle stays invalid.

static void **objects;
static size_t object_count, object_capacity;

CUhandle make_handle(enum handle_type type, void *object) {
    if (object_count == object_capacity) {
        object_capacity = object_capacity ? 2 * object_capacity : 256;
        objects = realloc(objects, object_capacity * sizeof *objects);
        if (!objects) abort();
    }
    objects[object_count++] = object;
    return (CUhandle)((uintptr_t)type << 40 | (uintptr_t)object_count << 4);
}

void *object_of(CUhandle handle, enum handle_type type) {
    uintptr_t value = (uintptr_t)handle, index = (value >> 4 & 0xFFFFFFFFF) - 1;
    return value >> 40 == type && !(value & 15) && index < object_count ? objects[index] : NULL;
}

void drop_handle(CUhandle handle) { objects[((uintptr_t)handle >> 4 & 0xFFFFFFFFF) - 1] = NULL; }

// Contexts: each thread has a stack of them.

#define DEPTH 32
static __thread CUhandle stack[DEPTH];
static __thread int depth;

struct context *current_context(void) { return depth ? object_of(stack[depth - 1], CONTEXT) : NULL; }

CUresult enter(struct context **context) {
    REQUIRE(depth && stack[depth - 1], INVALID_CONTEXT);
    *context = current_context();
    REQUIRE(*context, 709);  // destroyed
    return (*context)->error;
}

static struct context *new_context(uint32_t flags, bool is_primary) {
    struct context *context = calloc(1, sizeof *context);
    context->handle = make_handle(CONTEXT, context);
    context->flags = flags;
    context->primary = is_primary;
    memcpy(context->limits, profile.limits, sizeof profile.limits);
    return context;
}

static void destroy_context(struct context *context) {
    for (struct allocation *each; (each = next_allocation(context));) release(each->start, -1);
    drop_handle(context->handle);
    free(context);
}

EXPORT CUresult cuInit(unsigned flags) {
    LOCKED;
    REQUIRE(!flags, INVALID_VALUE);
    TRY(connect_server());
    is_initialized = true;
    return SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version) {
    LOCKED;
    REQUIRE(version, INVALID_VALUE);
    TRY(connect_server());
    *version = profile.driver_version;
    return SUCCESS;
}

#define DEVICE(device) \
    NEED_INIT;         \
    REQUIRE((device) == 0, INVALID_DEVICE)

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    DEVICE(ordinal);
    REQUIRE(device, INVALID_VALUE);
    *device = 0;
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count) {
    NEED_INIT;
    REQUIRE(count, INVALID_VALUE);
    *count = 1;
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    DEVICE(device);
    REQUIRE(name && size > 0, INVALID_VALUE);
    snprintf(name, size, "%s", profile.name);
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(void *uuid, CUdevice device) {
    DEVICE(device);
    REQUIRE(uuid, INVALID_VALUE);
    memcpy(uuid, profile.uuid, sizeof profile.uuid);
    return SUCCESS;
}
ALIAS(cuDeviceGetUuid_v2, cuDeviceGetUuid);

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    DEVICE(device);
    REQUIRE(bytes, INVALID_VALUE);
    *bytes = profile.total_memory;
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    DEVICE(device);
    REQUIRE(value && attribute > 0 && attribute < profile.attribute_count, INVALID_VALUE);
    *value = profile.attributes[attribute];
    return SUCCESS;
}

EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    DEVICE(device);
    *major = profile.attributes[75];
    *minor = profile.attributes[76];
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice device) {
    DEVICE(device);
    snprintf(text, size, "%08X:%02X:%02X.0", profile.attributes[50], profile.attributes[33], profile.attributes[34]);
    return SUCCESS;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    DEVICE(device);
    REQUIRE(peer == 0, INVALID_DEVICE);
    *can = 0;
    return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUhandle *out, CUdevice device) {
    DEVICE(device);
    REQUIRE(out, INVALID_VALUE);
    if (!primary) primary = new_context(0, true);
    primary->references++;
    *out = primary->handle;
    return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    DEVICE(device);
    if (primary) destroy_context(primary);
    primary = NULL;
    return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    DEVICE(device);
    REQUIRE(primary, INVALID_CONTEXT);
    return --primary->references ? SUCCESS : cuDevicePrimaryCtxReset_v2(device);
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    DEVICE(device);
    if (flags) *flags = primary ? primary->flags : 0;
    if (active) *active = primary != NULL;
    return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    DEVICE(device);
    if (primary) primary->flags = flags;
    return SUCCESS;
}

EXPORT CUresult cuCtxCreate_v2(CUhandle *out, unsigned flags, CUdevice device) {
    DEVICE(device);
    REQUIRE(out && depth < DEPTH, INVALID_VALUE);
    *out = stack[depth++] = new_context(flags, false)->handle;
    return SUCCESS;
}

EXPORT CUresult cuCtxCreate_v3(CUhandle *out, void *affinity, int count, unsigned flags, CUdevice device) {
    (void)affinity, (void)count;
    return cuCtxCreate_v2(out, flags, device);
}

EXPORT CUresult cuCtxCreate_v4(CUhandle *out, void *parameters, unsigned flags, CUdevice device) {
    (void)parameters;
    return cuCtxCreate_v2(out, flags, device);
}

EXPORT CUresult cuCtxDestroy_v2(CUhandle handle) {
    NEED_INIT;
    struct context *context = object_of(handle, CONTEXT);
    REQUIRE(context && !context->primary, INVALID_CONTEXT);
    if (depth && stack[depth - 1] == handle) depth--;
    destroy_context(context);
    return SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUhandle handle) {
    NEED_INIT;
    REQUIRE(!handle || object_of(handle, CONTEXT), INVALID_CONTEXT);
    if (!depth && handle) depth++;
    if (depth && handle) stack[depth - 1] = handle;
    if (depth && !handle) depth--;
    return SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent_v2(CUhandle handle) {
    NEED_INIT;
    REQUIRE(object_of(handle, CONTEXT), INVALID_CONTEXT);
    REQUIRE(depth < DEPTH, INVALID_VALUE);
    stack[depth++] = handle;
    return SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUhandle *out) {
    NEED_INIT;
    REQUIRE(depth, INVALID_CONTEXT);
    CUhandle handle = stack[--depth];
    if (out) *out = handle;
    return SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUhandle *out) {
    NEED_INIT;
    REQUIRE(out, INVALID_VALUE);
    *out = depth ? stack[depth - 1] : NULL;
    return SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
    NEED_INIT;
    REQUIRE(device, INVALID_VALUE);
    REQUIRE(current_context(), INVALID_CONTEXT);
    *device = 0;
    return SUCCESS;
}

EXPORT CUresult cuCtxGetFlags(unsigned *flags) {
    NEED_CONTEXT;
    *flags = context->flags;
    return SUCCESS;
}

EXPORT CUresult cuCtxSetFlags(unsigned flags) {
    NEED_CONTEXT;
    context->flags = flags;
    return SUCCESS;
}

EXPORT CUresult cuCtxGetId(CUhandle handle, unsigned long long *id) {
    NEED_CONTEXT;
    REQUIRE(!handle || object_of(handle, CONTEXT), INVALID_CONTEXT);
    *id = (uintptr_t)(handle ? handle : context->handle);
    return SUCCESS;
}

EXPORT CUresult cuCtxGetApiVersion(CUhandle handle, unsigned *version) {
    NEED_INIT;
    REQUIRE(!handle || object_of(handle, CONTEXT), INVALID_CONTEXT);
    *version = 3020;
    return SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void) {
    NEED_CONTEXT;
    return is_capturing() ? CAPTURE_UNSUPPORTED : SUCCESS;
}

EXPORT CUresult cuCtxGetLimit(size_t *value, int limit) {
    NEED_CONTEXT;
    REQUIRE(value && limit >= 0 && limit < LIMITS, INVALID_VALUE);
    REQUIRE(context->limits[limit] != UINT64_MAX, UNSUPPORTED_LIMIT);
    *value = context->limits[limit];
    return SUCCESS;
}

EXPORT CUresult cuCtxSetLimit(int limit, size_t value) {
    NEED_CONTEXT;
    REQUIRE(limit >= 0 && limit < LIMITS, INVALID_VALUE);
    REQUIRE(context->limits[limit] != UINT64_MAX, UNSUPPORTED_LIMIT);
    context->limits[limit] = value;
    return SUCCESS;
}

EXPORT CUresult cuCtxGetCacheConfig(int *config) {
    NEED_CONTEXT;
    *config = 0;
    return SUCCESS;
}

EXPORT CUresult cuCtxSetCacheConfig(int config) {
    (void)config;
    NEED_CONTEXT;
    return SUCCESS;
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    NEED_CONTEXT;
    if (least) *least = profile.least_priority;
    if (greatest) *greatest = profile.greatest_priority;
    return SUCCESS;
}

EXPORT CUresult cuCtxResetPersistingL2Cache(void) {
    NEED_CONTEXT;
    return SUCCESS;
}

EXPORT CUresult cuCtxEnablePeerAccess(CUhandle peer, unsigned flags) {
    (void)peer, (void)flags;
    NEED_CONTEXT;
    return INVALID_CONTEXT;
}

EXPORT CUresult cuProfilerStart(void) { return SUCCESS; }
EXPORT CUresult cuProfilerStop(void) { return SUCCESS; }

// Errors

static const struct {
    int number;
    const char *driver, *runtime, *description;
} errors[] = {
#define ERROR(number, driver, runtime, description) {number, driver, runtime, description},
#include "error_names.inc"
};

EXPORT CUresult cuGetErrorName(CUresult error, const char **name) {
    REQUIRE(name, INVALID_VALUE);
    *name = NULL;
    for (size_t at = 0; at < sizeof errors / sizeof *errors; at++)
        if (errors[at].number == error && *errors[at].driver) *name = errors[at].driver;
    return *name ? SUCCESS : INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
    REQUIRE(text, INVALID_VALUE);
    *text = NULL;
    for (size_t at = 0; at < sizeof errors / sizeof *errors; at++)
        if (errors[at].number == error && *errors[at].driver) *text = errors[at].description;
    return *text ? SUCCESS : INVALID_VALUE;
}

// Entry points. NVIDIA's own libraries request private tables, some of them to authenticate the driver. All of these
// requests are rejected.

static const struct {
    const char *file, *advice;
} unsupported_libraries[] = {
#include "unsupported_libraries.inc"
};

EXPORT CUresult cuGetExportTable(const void **table, const void *id) {
    (void)id;
    static bool said[sizeof unsupported_libraries / sizeof *unsupported_libraries];
    Dl_info caller;
    bool is_file = dladdr(__builtin_return_address(0), &caller) && caller.dli_fname;
    const char *slash = is_file ? strrchr(caller.dli_fname, '/') : NULL;
    const char *file = slash ? slash + 1 : "";
    LOCKED;
    size_t at = 0;
    while (strncmp(file, unsupported_libraries[at].file, strlen(unsupported_libraries[at].file))) at++;
    if (!said[at]) say("%s", unsupported_libraries[at].advice);
    said[at] = true;
    if (table) *table = NULL;
    return NOT_FOUND;
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    REQUIRE(name && function, INVALID_VALUE);
    return find_entry_point(name, function, version, flags, status);
}
ALIAS(cuGetProcAddress_v2_ptsz, cuGetProcAddress_v2);

EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
