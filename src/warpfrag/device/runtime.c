// The runtime API, implemented with the driver API: the last error, devices, memory, streams, events and graphs.
//
// Compiled twice: CUDART is 12 or 13, which differ in a few signatures and in the layout of device properties.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

static __thread int last_error;

int report(int error) {
    if (error) last_error = error;
    return error;
}

// Make the primary context current for a thread that has none.
int start(void) {
    CUhandle context = NULL;
    if (!cuCtxGetCurrent(&context) && context) return SUCCESS;
    TRY(cuInit(0));
    TRY(cuDevicePrimaryCtxRetain(&context, 0));
    return cuCtxSetCurrent(context);
}

// Errors

static const struct {
    int number;
    const char *driver, *name, *description;
} errors[] = {
#define ERROR(number, driver, runtime, description) {number, driver, runtime, description},
#include "error_names.inc"
};

EXPORT int cudaGetLastError(void) {
    int error = last_error;
    last_error = SUCCESS;
    return error;
}

EXPORT int cudaPeekAtLastError(void) { return last_error; }

EXPORT const char *cudaGetErrorName(int error) {
    for (size_t at = 0; at < sizeof errors / sizeof *errors; at++)
        if (errors[at].number == error && *errors[at].name) return errors[at].name;
    return "unrecognized error code";
}

EXPORT const char *cudaGetErrorString(int error) {
    for (size_t at = 0; at < sizeof errors / sizeof *errors; at++)
        if (errors[at].number == error && *errors[at].name) return errors[at].description;
    return "unrecognized error code";
}

// Devices

EXPORT int cudaDriverGetVersion(int *version) { return report(cuDriverGetVersion(version)); }

EXPORT int cudaRuntimeGetVersion(int *version) {
    *version = CUDART == 12 ? 12090 : 13000;
    return SUCCESS;
}

EXPORT int cudaGetDeviceCount(int *count) {
    int error = cuInit(0);
    *count = 0;
    return report(error ? error : cuDeviceGetCount(count));
}

EXPORT int cudaGetDevice(int *device) {
    *device = 0;
    return SUCCESS;
}

EXPORT int cudaSetDevice(int device) { return report(device ? INVALID_DEVICE : start()); }
ALIAS(cudaInitDevice, cudaSetDevice);
FORWARD(cudaDeviceGetAttribute, (int *value, int attribute, int device), cuDeviceGetAttribute(value, attribute, device))
FORWARD(cudaDeviceSynchronize, (void), cuCtxSynchronize())
FORWARD(cudaDeviceReset, (void), cuDevicePrimaryCtxReset_v2(0))
FORWARD(cudaDeviceGetLimit, (size_t *value, int limit), cuCtxGetLimit(value, limit))
FORWARD(cudaDeviceSetLimit, (int limit, size_t value), cuCtxSetLimit(limit, value))
FORWARD(cudaDeviceGetCacheConfig, (int *config), cuCtxGetCacheConfig(config))
FORWARD(cudaDeviceSetCacheConfig, (int config), cuCtxSetCacheConfig(config))
FORWARD(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest), cuCtxGetStreamPriorityRange(least, greatest))
FORWARD(cudaDeviceGetPCIBusId, (char *text, int size, int device), cuDeviceGetPCIBusId(text, size, device))
FORWARD(cudaDeviceCanAccessPeer, (int *can, int device, int peer), cuDeviceCanAccessPeer(can, device, peer))
FORWARD(cudaGetDeviceFlags, (unsigned *flags), cuCtxGetFlags(flags))
FORWARD(cudaSetDeviceFlags, (unsigned flags), cuCtxSetFlags(flags))
FORWARD(cudaProfilerStart, (void), SUCCESS)
FORWARD(cudaProfilerStop, (void), SUCCESS)

static const struct {
    short offset, size, attribute;
} properties[] = {
#define PROPERTY(offset12, offset13, size, attribute, name) {CUDART == 12 ? offset12 : offset13, size, attribute},
#include "property_names.inc"
};

static int fill_properties(char *data, size_t size, int device) {
    START;
    if (device) return report(INVALID_DEVICE);
    memset(data, 0, size);
    cuDeviceGetName(data, 256, 0);
    cuDeviceGetUuid(data + 256, 0);
    cuDeviceTotalMem_v2((size_t *)(data + 288), 0);
    for (size_t at = 0; at < sizeof properties / sizeof *properties; at++) {
        int value = 0;
        if (properties[at].offset < 0 || properties[at].offset + properties[at].size > (int)size) continue;
        cuDeviceGetAttribute(&value, properties[at].attribute, 0);
        memcpy(data + properties[at].offset, &(size_t){value}, properties[at].size);  // little-endian
    }
    return SUCCESS;
}

#if CUDART == 12
EXPORT int cudaGetDeviceProperties_v2(void *data, int device) { return fill_properties(data, 1032, device); }
EXPORT int cudaGetDeviceProperties(void *data, int device) { return fill_properties(data, 728, device); }
#else
EXPORT int cudaGetDeviceProperties(void *data, int device) { return fill_properties(data, 1008, device); }
#endif

// Memory

FORWARD(cudaMalloc, (void **address, size_t size),
        size ? cuMemAlloc_v2((CUdeviceptr *)address, size) : (*address = NULL, SUCCESS))
FORWARD(cudaFree, (void *address), cuMemFree_v2((CUdeviceptr)address))
FORWARD(cudaMallocHost, (void **address, size_t size), cuMemHostAlloc(address, size, 0))
FORWARD(cudaHostAlloc, (void **address, size_t size, unsigned flags), cuMemHostAlloc(address, size, flags))
FORWARD(cudaFreeHost, (void *address), address ? cuMemFreeHost(address) : SUCCESS)
FORWARD(cudaHostRegister, (void *host, size_t size, unsigned flags), cuMemHostRegister_v2(host, size, flags))
FORWARD(cudaHostUnregister, (void *host), cuMemHostUnregister(host))
FORWARD(cudaHostGetDevicePointer, (void **device, void *host, unsigned flags),
        cuMemHostGetDevicePointer_v2((CUdeviceptr *)device, host, flags))
FORWARD(cudaHostGetFlags, (unsigned *flags, void *host), cuMemHostGetFlags(flags, host))
FORWARD(cudaMallocManaged, (void **address, size_t size, unsigned flags),
        cuMemAllocManaged((CUdeviceptr *)address, size, flags))
FORWARD(cudaMemAdvise_v2, (void *address, size_t size, int advice, struct location location),
        cuMemAdvise_v2((CUdeviceptr)address, size, advice, location))
FORWARD(cudaMemPrefetchAsync_v2,
        (void *address, size_t size, struct location location, unsigned flags, CUhandle stream),
        cuMemPrefetchAsync_v2((CUdeviceptr)address, size, location, flags, stream))
PTSZ(cudaMemPrefetchAsync_v2);
#if CUDART == 12
FORWARD(cudaMemAdvise, (void *address, size_t size, int advice, int device),
        cuMemAdvise((CUdeviceptr)address, size, advice, device))
FORWARD(cudaMemPrefetchAsync, (void *address, size_t size, int device, CUhandle stream),
        cuMemPrefetchAsync((CUdeviceptr)address, size, device, stream))
#else
ALIAS(cudaMemAdvise, cudaMemAdvise_v2);
ALIAS(cudaMemPrefetchAsync, cudaMemPrefetchAsync_v2);
#endif
PTSZ(cudaMemPrefetchAsync);
FORWARD(cudaMallocPitch, (void **address, size_t *pitch, size_t width, size_t height),
        cuMemAllocPitch_v2((CUdeviceptr *)address, pitch, width, height, 16))
FORWARD(cudaMallocAsync, (void **address, size_t size, CUhandle stream),
        cuMemAllocAsync((CUdeviceptr *)address, size, stream))
FORWARD(cudaMallocFromPoolAsync, (void **address, size_t size, CUhandle pool, CUhandle stream),
        cuMemAllocFromPoolAsync((CUdeviceptr *)address, size, pool, stream))
FORWARD(cudaFreeAsync, (void *address, CUhandle stream), cuMemFreeAsync((CUdeviceptr)address, stream))
FORWARD(cudaMemGetInfo, (size_t *available, size_t *total), cuMemGetInfo_v2(available, total))
FORWARD(cudaDeviceGetDefaultMemPool, (CUhandle *pool, int device), cuDeviceGetDefaultMemPool(pool, device))
FORWARD(cudaDeviceGetMemPool, (CUhandle *pool, int device), cuDeviceGetMemPool(pool, device))
FORWARD(cudaDeviceSetMemPool, (int device, CUhandle pool), cuDeviceSetMemPool(device, pool))
FORWARD(cudaMemPoolCreate, (CUhandle *pool, const void *properties), cuMemPoolCreate(pool, properties))
FORWARD(cudaMemPoolDestroy, (CUhandle pool), cuMemPoolDestroy(pool))
FORWARD(cudaMemPoolTrimTo, (CUhandle pool, size_t keep), cuMemPoolTrimTo(pool, keep))
FORWARD(cudaMemPoolGetAttribute, (CUhandle pool, int attribute, void *value),
        cuMemPoolGetAttribute(pool, attribute, value))
FORWARD(cudaMemPoolSetAttribute, (CUhandle pool, int attribute, void *value),
        cuMemPoolSetAttribute(pool, attribute, value))
FORWARD(cudaMemPoolSetAccess, (CUhandle pool, const void *access, size_t number),
        cuMemPoolSetAccess(pool, access, number))
FORWARD(cudaMemcpy, (void *target, const void *source, size_t size, int direction),
        direction > 4 ? 21 : cuMemcpy((CUdeviceptr)target, (CUdeviceptr)source, size))
PTDS(cudaMemcpy);
FORWARD(cudaMemcpyAsync, (void *target, const void *source, size_t size, int direction, CUhandle stream),
        direction > 4 ? 21 : cuMemcpyAsync((CUdeviceptr)target, (CUdeviceptr)source, size, stream))
PTSZ(cudaMemcpyAsync);
FORWARD(cudaMemcpyPeerAsync, (void *target, int a, const void *source, int b, size_t size, CUhandle stream),
        a || b ? INVALID_DEVICE : cuMemcpyAsync((CUdeviceptr)target, (CUdeviceptr)source, size, stream))
FORWARD(cudaMemset, (void *target, int value, size_t size), cuMemsetD8_v2((CUdeviceptr)target, value, size))
PTDS(cudaMemset);
FORWARD(cudaMemsetAsync, (void *target, int value, size_t size, CUhandle stream),
        cuMemsetD8Async((CUdeviceptr)target, value, size, stream))
PTSZ(cudaMemsetAsync);
FORWARD(cudaMemset2D, (void *target, size_t pitch, int value, size_t width, size_t height),
        cuMemsetD2D8_v2((CUdeviceptr)target, pitch, value, width, height))
FORWARD(cudaMemset2DAsync, (void *target, size_t pitch, int value, size_t width, size_t height, CUhandle stream),
        cuMemsetD2D8Async((CUdeviceptr)target, pitch, value, width, height, stream))

EXPORT int cudaMemcpy2DAsync(void *target, size_t target_pitch, const void *source, size_t source_pitch, size_t width,
                             size_t height, int direction, CUhandle stream) {
    START;
    size_t box[16] = {0, 0, 4, 0, (size_t)source, 0, source_pitch, 0, 0, 4, 0, (size_t)target, 0, target_pitch, width, height};
    return report(direction > 4 ? 21 : cuMemcpy2DAsync_v2(box, stream));
}

EXPORT int cudaMemcpy2D(void *target, size_t target_pitch, const void *source, size_t source_pitch, size_t width,
                        size_t height, int direction) {
    return cudaMemcpy2DAsync(target, target_pitch, source, source_pitch, width, height, direction, NULL);
}

struct pointer_attributes {
    int type, device;
    void *device_pointer, *host_pointer;
    long reserved[8];
};

EXPORT int cudaPointerGetAttributes(struct pointer_attributes *out, const void *address) {
    START;
    unsigned type = 0, is_managed = 0;
    memset(out, 0, CUDART == 12 ? 24 : sizeof *out);
    out->host_pointer = (void *)address;
    out->device = -2;
    if (cuPointerGetAttribute(&type, 2, (CUdeviceptr)address)) return SUCCESS;  // host memory
    cuPointerGetAttribute(&is_managed, 8, (CUdeviceptr)address);
    out->type = is_managed ? 3 : (int)type;
    out->device = 0;
    out->device_pointer = (void *)address;
    if (type == 2 && !is_managed) out->host_pointer = NULL;
    return SUCCESS;
}

// Streams and events

FORWARD(cudaStreamCreate, (CUhandle *out), cuStreamCreate(out, 0))
FORWARD(cudaStreamCreateWithFlags, (CUhandle *out, unsigned flags), cuStreamCreate(out, flags))
FORWARD(cudaStreamCreateWithPriority, (CUhandle *out, unsigned flags, int priority),
        cuStreamCreateWithPriority(out, flags, priority))
FORWARD(cudaStreamDestroy, (CUhandle stream), cuStreamDestroy_v2(stream))
FORWARD(cudaStreamSynchronize, (CUhandle stream), cuStreamSynchronize(stream))
PTSZ(cudaStreamSynchronize);
FORWARD(cudaStreamQuery, (CUhandle stream), cuStreamQuery(stream))
PTSZ(cudaStreamQuery);
FORWARD(cudaStreamWaitEvent, (CUhandle stream, CUhandle event, unsigned flags), cuStreamWaitEvent(stream, event, flags))
PTSZ(cudaStreamWaitEvent);
FORWARD(cudaStreamGetPriority, (CUhandle stream, int *priority), cuStreamGetPriority(stream, priority))
FORWARD(cudaStreamGetFlags, (CUhandle stream, unsigned *flags), cuStreamGetFlags(stream, flags))
FORWARD(cudaStreamGetId, (CUhandle stream, unsigned long long *id), cuStreamGetId(stream, id))
FORWARD(cudaStreamAddCallback, (CUhandle stream, void *function, void *data, unsigned flags),
        cuStreamAddCallback(stream, function, data, flags))
FORWARD(cudaLaunchHostFunc, (CUhandle stream, void *function, void *data), cuLaunchHostFunc(stream, function, data))
FORWARD(cudaStreamBeginCapture, (CUhandle stream, int mode), cuStreamBeginCapture_v2(stream, mode))
FORWARD(cudaStreamEndCapture, (CUhandle stream, CUhandle *graph), cuStreamEndCapture(stream, graph))
FORWARD(cudaStreamIsCapturing, (CUhandle stream, int *status), cuStreamIsCapturing(stream, status))
#define CAPTURE_INFO \
    CUhandle stream, int *status, uint64_t *id, CUhandle *graph, const CUhandle **nodes, const void **edges, size_t *count
FORWARD(cudaStreamGetCaptureInfo_v3, (CAPTURE_INFO),
        cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, edges, count))
FORWARD(cudaStreamGetCaptureInfo_v2,
        (CUhandle stream, int *status, uint64_t *id, CUhandle *graph, const CUhandle **nodes, size_t *count),
        cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, NULL, count))
#if CUDART == 12
FORWARD(cudaStreamGetCaptureInfo, (CUhandle stream, int *status, uint64_t *id),
        cuStreamGetCaptureInfo_v3(stream, status, id, NULL, NULL, NULL, NULL))
#else
FORWARD(cudaStreamGetCaptureInfo, (CAPTURE_INFO),
        cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, edges, count))
#endif
FORWARD(cudaThreadExchangeStreamCaptureMode, (int *mode), cuThreadExchangeStreamCaptureMode(mode))
FORWARD(cudaEventCreate, (CUhandle *out), cuEventCreate(out, 0))
FORWARD(cudaEventCreateWithFlags, (CUhandle *out, unsigned flags), cuEventCreate(out, flags))
FORWARD(cudaEventDestroy, (CUhandle event), cuEventDestroy_v2(event))
FORWARD(cudaEventRecord, (CUhandle event, CUhandle stream), cuEventRecord(event, stream))
PTSZ(cudaEventRecord);
FORWARD(cudaEventRecordWithFlags, (CUhandle event, CUhandle stream, unsigned flags),
        cuEventRecordWithFlags(event, stream, flags))
FORWARD(cudaEventSynchronize, (CUhandle event), cuEventSynchronize(event))
FORWARD(cudaEventQuery, (CUhandle event), cuEventQuery(event))
FORWARD(cudaEventElapsedTime, (float *time, CUhandle first, CUhandle second), cuEventElapsedTime(time, first, second))

// Graphs

FORWARD(cudaGraphCreate, (CUhandle *graph, unsigned flags), cuGraphCreate(graph, flags))
FORWARD(cudaGraphDestroy, (CUhandle graph), cuGraphDestroy(graph))
FORWARD(cudaGraphInstantiate, (CUhandle *out, CUhandle graph, unsigned long long flags),
        cuGraphInstantiateWithFlags(out, graph, flags))
FORWARD(cudaGraphInstantiateWithFlags, (CUhandle *out, CUhandle graph, unsigned long long flags),
        cuGraphInstantiateWithFlags(out, graph, flags))
FORWARD(cudaGraphExecDestroy, (CUhandle graph), cuGraphExecDestroy(graph))
FORWARD(cudaGraphLaunch, (CUhandle graph, CUhandle stream), cuGraphLaunch(graph, stream))
PTSZ(cudaGraphLaunch);
FORWARD(cudaGraphUpload, (CUhandle graph, CUhandle stream), cuGraphUpload(graph, stream))
FORWARD(cudaGraphGetNodes, (CUhandle graph, CUhandle *nodes, size_t *number), cuGraphGetNodes(graph, nodes, number))
FORWARD(cudaGraphNodeGetType, (CUhandle node, int *type), cuGraphNodeGetType(node, type))
FORWARD(cudaGraphAddEmptyNode, (CUhandle *out, CUhandle graph, const CUhandle *after, size_t number),
        cuGraphAddEmptyNode(out, graph, after, number))

// Entry points of the driver

EXPORT int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                            unsigned long long flags, int *status) {
    int error = cuGetProcAddress_v2(name, function, version, flags, status);
    return error == NOT_FOUND && status ? SUCCESS : report(error);
}

EXPORT int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *status) {
    return cudaGetDriverEntryPointByVersion(name, function, CUDART == 12 ? 12090 : 13000, flags, status);
}
