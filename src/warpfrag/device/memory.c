// Device memory: allocations, pools, pointer attributes, copies and fills.
//
// Freed addresses are reused only when no new ones are left, so that a use after free is detected. Each allocation is
// followed by a gap that is never allocated.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stand_in.h"

#define GRANULE 512
#define PAGE ((size_t)65536)  // a multiple of every page size
#define UP(value, unit) (((value) + (unit) - 1) / (unit) * (unit))

static struct allocation *allocations;  // sorted by address
static size_t count, capacity, used;
static CUdeviceptr next;
static uint64_t next_id = 1;

static size_t index_after(CUdeviceptr address) {  // the index of the first allocation after an address
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (allocations[middle].start <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

struct allocation *find_allocation(CUdeviceptr address) {
    size_t at = index_after(address);
    if (!at) return NULL;
    struct allocation *found = &allocations[at - 1];
    return address - found->start < found->size ? found : NULL;
}

struct allocation *next_allocation(struct context *context) {
    for (size_t at = 0; at < count; at++)
        if (allocations[at].context == context) return &allocations[at];
    return NULL;
}

// Return the size of an allocation, including the gap after it. Memory that the host can access fills whole pages,
// because allocating and freeing it changes the protection of these pages.
static size_t footprint(const struct allocation *each) {
    return each->category == DEVICE_MEMORY || each->category == HIDDEN_MEMORY
               ? UP(each->size, GRANULE) + GRANULE
               : UP(UP(each->size, GRANULE) + GRANULE, PAGE);
}

static CUdeviceptr find_gap(size_t size, size_t align) {
    CUdeviceptr end = device_base() + device_span();
    CUdeviceptr start = UP(next ? next : device_base(), align);
    if (start + size <= end) return start;
    start = UP(device_base(), align);
    for (size_t at = 0; at < count; at++) {
        if (start + size <= allocations[at].start) return start;
        start = UP(allocations[at].start + footprint(&allocations[at]), align);
    }
    return start + size <= end ? start : 0;
}

CUresult allocate(struct context *context, size_t size, size_t align, uint8_t category, CUdeviceptr *address) {
    bool is_host = category == HOST_MEMORY || category == MANAGED_MEMORY;
    struct allocation new = {0, size, context, NULL, category, next_id};
    REQUIRE(size && address, INVALID_VALUE);
    REQUIRE(size <= profile.total_memory && used + size <= profile.total_memory, OUT_OF_MEMORY);
    size_t whole = footprint(&new);
    new.start = find_gap(whole, is_host ? PAGE : align > GRANULE ? align : GRANULE);
    REQUIRE(new.start, OUT_OF_MEMORY);
    if (count == capacity) {
        capacity = capacity ? 2 * capacity : 256;
        allocations = realloc(allocations, capacity * sizeof *allocations);
        if (!allocations) abort();
    }
    if (is_host && mprotect((void *)new.start, UP(size, PAGE), PROT_READ | PROT_WRITE)) return OUT_OF_MEMORY;
    size_t at = index_after(new.start);
    memmove(allocations + at + 1, allocations + at, (count - at) * sizeof *allocations);
    allocations[at] = new;
    count++;
    next_id++;
    if (category != HOST_MEMORY) used += size;
    if (new.start + whole > next) next = new.start + whole;
    *address = new.start;
    uint64_t message[] = {new.start, size, category};
    return send_request(REQUEST_ALLOCATE, message, sizeof message);
}

// Free the allocation that starts at an address; `category` -1 matches any.
CUresult release(CUdeviceptr address, int category) {
    struct allocation *found = find_allocation(address);
    REQUIRE(found && found->start == address, INVALID_VALUE);
    REQUIRE(category < 0 || found->category == category || (category == DEVICE_MEMORY && found->category == MANAGED_MEMORY),
            INVALID_VALUE);
    size_t start = address - device_base(), whole = footprint(found);
    if (found->category == HOST_MEMORY || found->category == MANAGED_MEMORY)
        mprotect((void *)address, UP(found->size, PAGE), PROT_NONE);
    if (found->category != HOST_MEMORY) used -= found->size;
    if (fallocate(memory_file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, start, whole))
        memset(host_view(address), 0, found->size);
    size_t at = found - allocations;
    memmove(found, found + 1, (--count - at) * sizeof *found);
    return send_request(REQUEST_FREE, &address, sizeof address);
}

// Find the bytes at an address in host or device memory; return INVALID_VALUE if a device range is not inside one
// allocation. An empty range may be anywhere, for example at the end of an array.
CUresult accessible(const void *address, size_t size, char **view) {
    if (!size || !is_device_address((uintptr_t)address)) {
        REQUIRE(address || !size, INVALID_VALUE);
        *view = (char *)address;
        return SUCCESS;
    }
    struct allocation *found = find_allocation((uintptr_t)address);
    REQUIRE(found && (uintptr_t)address - found->start + size <= found->size, INVALID_VALUE);
    *view = host_view((uintptr_t)address);
    return SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    NEED_CONTEXT;
    return allocate(context, size, GRANULE, DEVICE_MEMORY, address);
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element) {
    NEED_CONTEXT;
    REQUIRE(pitch && width && height && (element == 4 || element == 8 || element == 16), INVALID_VALUE);
    *pitch = UP(width, 512);
    return allocate(context, *pitch * height, GRANULE, DEVICE_MEMORY, address);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags) {
    NEED_CONTEXT;
    REQUIRE(flags == 1 || flags == 2, INVALID_VALUE);
    return allocate(context, size, GRANULE, MANAGED_MEMORY, address);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
    NEED_CONTEXT;
    return address ? release(address, DEVICE_MEMORY) : SUCCESS;
}

EXPORT CUresult cuMemHostAlloc(void **address, size_t size, unsigned flags) {
    (void)flags;
    NEED_CONTEXT;
    return allocate(context, size, PAGE, HOST_MEMORY, (CUdeviceptr *)address);
}

EXPORT CUresult cuMemAllocHost_v2(void **address, size_t size) { return cuMemHostAlloc(address, size, 0); }

EXPORT CUresult cuMemFreeHost(void *address) {
    NEED_CONTEXT;
    return release((CUdeviceptr)address, HOST_MEMORY);
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned flags) {
    NEED_CONTEXT;
    REQUIRE(device && !flags && find_allocation((CUdeviceptr)host), INVALID_VALUE);
    *device = (CUdeviceptr)host;
    return SUCCESS;
}

EXPORT CUresult cuMemHostGetFlags(unsigned *flags, void *host) {
    NEED_CONTEXT;
    REQUIRE(flags && find_allocation((CUdeviceptr)host), INVALID_VALUE);
    *flags = 2;  // mapped
    return SUCCESS;
}

// Registered host memory can be copied like other host memory, but kernels cannot access it.
EXPORT CUresult cuMemHostRegister_v2(void *host, size_t size, unsigned flags) {
    (void)flags;
    NEED_CONTEXT;
    REQUIRE(host && size, INVALID_VALUE);
    return SUCCESS;
}

EXPORT CUresult cuMemHostUnregister(void *host) {
    NEED_CONTEXT;
    REQUIRE(host, INVALID_VALUE);
    return SUCCESS;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    NEED_CONTEXT;
    REQUIRE(available && total, INVALID_VALUE);
    *total = profile.total_memory;
    *available = *total - used;
    return SUCCESS;
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *size, CUdeviceptr address) {
    NEED_CONTEXT;
    struct allocation *found = find_allocation(address);
    REQUIRE(found, NOT_FOUND);
    if (start) *start = found->start;
    if (size) *size = found->size;
    return SUCCESS;
}

EXPORT CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address) {
    NEED_CONTEXT;
    struct allocation *found = find_allocation(address);
    REQUIRE(data && found, INVALID_VALUE);
    bool is_host = found->category == HOST_MEMORY, is_managed = found->category == MANAGED_MEMORY;
    switch (attribute) {
        case 1: *(CUhandle *)data = found->context ? found->context->handle : NULL; break;
        case 2: *(unsigned *)data = is_host ? 1 : 2; break;
        case 3: *(CUdeviceptr *)data = address; break;
        case 4:
            REQUIRE(is_host || is_managed, INVALID_VALUE);
            *(CUdeviceptr *)data = address;
            break;
        case 6: *(unsigned *)data = 1; break;
        case 7:
        case 20: *(uint64_t *)data = found->id; break;
        case 8: *(unsigned *)data = is_managed; break;
        case 9: *(int *)data = 0; break;
        case 10: *(unsigned *)data = 0; break;
        case 11: *(CUdeviceptr *)data = found->start; break;
        case 12: *(size_t *)data = found->size; break;
        case 13: *(unsigned *)data = 1; break;
        case 14: *(uint64_t *)data = 0; break;
        case 15: *(unsigned *)data = 0; break;
        case 16: *(unsigned *)data = 3; break;
        case 17: *(CUhandle *)data = found->pool; break;
        default: return INVALID_VALUE;
    }
    return SUCCESS;
}

// Like cuPointerGetAttribute, but memory that CUDA did not allocate is not an error: its attributes are 0, and its
// device is -2.
EXPORT CUresult cuPointerGetAttributes(unsigned number, int *attributes, void **data, CUdeviceptr address) {
    NEED_CONTEXT;
    REQUIRE(number && attributes && data, INVALID_VALUE);
    for (unsigned at = 0; at < number; at++) {
        int attribute = attributes[at];
        bool is_wide = attribute == 1 || attribute == 3 || attribute == 4 || attribute == 7 || attribute == 11 ||
                       attribute == 12 || attribute == 14 || attribute == 17 || attribute == 20;
        memset(data[at], 0, is_wide ? 8 : 4);
        if (attribute == 9) *(int *)data[at] = -2;
        if (find_allocation(address)) cuPointerGetAttribute(data[at], attribute, address);
    }
    return SUCCESS;
}

EXPORT CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address) {
    NEED_CONTEXT;
    REQUIRE(value && attribute == 6 && find_allocation(address), INVALID_VALUE);
    return SUCCESS;
}

EXPORT CUresult cuMemAdvise(CUdeviceptr address, size_t size, int advice, CUdevice device) {
    (void)size, (void)advice, (void)device;
    NEED_CONTEXT;
    return find_allocation(address) ? SUCCESS : INVALID_VALUE;
}

EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t size, CUdevice device, CUhandle stream) {
    (void)stream;
    return cuMemAdvise(address, size, 0, device);
}
PTSZ(cuMemPrefetchAsync);

EXPORT CUresult cuMemAdvise_v2(CUdeviceptr address, size_t size, int advice, struct location location) {
    return cuMemAdvise(address, size, advice, location.id);
}

EXPORT CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t size, struct location location, unsigned flags,
                                      CUhandle stream) {
    return flags ? INVALID_VALUE : cuMemPrefetchAsync(address, size, location.id, stream);
}
PTSZ(cuMemPrefetchAsync_v2);

// Copies and fills. Like the driver, they tell host memory from device memory by the address.

static size_t extent(size_t width, size_t height, size_t depth, size_t pitch, size_t slice) {
    return width && height && depth ? (depth - 1) * slice + (height - 1) * pitch + width : 0;
}

void run_copy(const struct copy *copy) {
    note_written(copy->target, extent(copy->width, copy->height, copy->depth, copy->target_pitch, copy->target_slice));
    for (size_t z = 0; z < copy->depth; z++)
        for (size_t y = 0; y < copy->height; y++)
            memmove(copy->target + z * copy->target_slice + y * copy->target_pitch,
                    copy->source + z * copy->source_slice + y * copy->source_pitch, copy->width);
}

void run_fill(const struct fill *fill) {
    note_written(fill->target, extent(fill->width * fill->size, fill->height, 1, fill->pitch, 0));
    for (size_t y = 0; y < fill->height; y++) {
        char *row = fill->target + y * fill->pitch;
        if (fill->size == 1) memset(row, (int)fill->value, fill->width);
        else
            for (size_t x = 0; x < fill->width; x++) memcpy(row + x * fill->size, &fill->value, fill->size);
    }
}

static CUresult copy_box(struct copy copy, CUhandle stream) {
    struct operation operation = {OP_COPY, {.copy = copy}};
    TRY(accessible(copy.target, extent(copy.width, copy.height, copy.depth, copy.target_pitch, copy.target_slice),
                   &operation.copy.target));
    TRY(accessible(copy.source, extent(copy.width, copy.height, copy.depth, copy.source_pitch, copy.source_slice),
                   (char **)&operation.copy.source));
    return submit(stream, &operation);
}

static CUresult copy_bytes(const void *target, const void *source, size_t size, CUhandle stream) {
    return copy_box((struct copy){(char *)target, source, size, 1, 1, size, size, size, size}, stream);
}

static bool is_device_range(CUdeviceptr address, size_t size) {
    return !size || (is_device_address(address) && find_allocation(address));
}
#define CHECKED(address) REQUIRE(is_device_range(address, size), INVALID_VALUE)

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void *source, size_t size) {
    NEED_CONTEXT;
    CHECKED(target);
    return copy_bytes((void *)target, source, size, NULL);
}
PTDS(cuMemcpyHtoD_v2);

EXPORT CUresult cuMemcpyDtoH_v2(void *target, CUdeviceptr source, size_t size) {
    NEED_CONTEXT;
    CHECKED(source);
    return copy_bytes(target, (void *)source, size, NULL);
}
PTDS(cuMemcpyDtoH_v2);

EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr target, CUdeviceptr source, size_t size) {
    NEED_CONTEXT;
    CHECKED(target);
    CHECKED(source);
    return copy_bytes((void *)target, (void *)source, size, NULL);
}
PTDS(cuMemcpyDtoD_v2);

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source, size_t size, CUhandle stream) {
    NEED_CONTEXT;
    CHECKED(target);
    return copy_bytes((void *)target, source, size, stream);
}
PTSZ(cuMemcpyHtoDAsync_v2);

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t size, CUhandle stream) {
    NEED_CONTEXT;
    CHECKED(source);
    return copy_bytes(target, (void *)source, size, stream);
}
PTSZ(cuMemcpyDtoHAsync_v2);

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t size, CUhandle stream) {
    NEED_CONTEXT;
    CHECKED(target);
    CHECKED(source);
    return copy_bytes((void *)target, (void *)source, size, stream);
}
PTSZ(cuMemcpyDtoDAsync_v2);

EXPORT CUresult cuMemcpy(CUdeviceptr target, CUdeviceptr source, size_t size) {
    NEED_CONTEXT;
    return copy_bytes((void *)target, (void *)source, size, NULL);
}
PTDS(cuMemcpy);

EXPORT CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t size, CUhandle stream) {
    NEED_CONTEXT;
    return copy_bytes((void *)target, (void *)source, size, stream);
}
PTSZ(cuMemcpyAsync);

struct side {  // the source or destination of a 2D or 3D copy
    int type;
    const char *host;
    CUdeviceptr device;
    void *array;
};

static CUresult side_address(struct side side, size_t offset, char **address) {
    REQUIRE(side.type >= 1 && side.type <= 4 && side.type != 3, side.type == 3 ? NOT_SUPPORTED : INVALID_VALUE);
    *address = (side.type == 1 ? (char *)side.host : (char *)side.device) + offset;
    return SUCCESS;
}

struct copy_2d {
    size_t source_x, source_y;
    struct side source;
    size_t source_pitch, target_x, target_y;
    struct side target;
    size_t target_pitch, width, height;
};

EXPORT CUresult cuMemcpy2DAsync_v2(const struct copy_2d *box, CUhandle stream) {
    NEED_CONTEXT;
    REQUIRE(box, INVALID_VALUE);
    struct copy copy = {NULL, NULL, box->width, box->height, 1, box->target_pitch, box->source_pitch, 0, 0};
    TRY(side_address(box->target, box->target_y * box->target_pitch + box->target_x, &copy.target));
    TRY(side_address(box->source, box->source_y * box->source_pitch + box->source_x, (char **)&copy.source));
    REQUIRE(box->height < 2 || (box->width <= box->target_pitch && box->width <= box->source_pitch), INVALID_VALUE);
    return copy_box(copy, stream);
}
PTSZ(cuMemcpy2DAsync_v2);

EXPORT CUresult cuMemcpy2D_v2(const struct copy_2d *box) { return cuMemcpy2DAsync_v2(box, NULL); }
PTDS(cuMemcpy2D_v2);
ALIAS(cuMemcpy2DUnaligned_v2, cuMemcpy2D_v2);
ALIAS(cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2D_v2);

struct side_3d {
    size_t x, y, z, level;
    struct side side;
    void *reserved;
    size_t pitch, height;
};

struct copy_3d {
    struct side_3d source, target;
    size_t width, height, depth;
};

static CUresult side_3d_address(const struct side_3d *side, size_t *slice, char **address) {
    *slice = side->pitch * side->height;
    return side_address(side->side, side->z * *slice + side->y * side->pitch + side->x, address);
}

EXPORT CUresult cuMemcpy3DAsync_v2(const struct copy_3d *box, CUhandle stream) {
    NEED_CONTEXT;
    REQUIRE(box, INVALID_VALUE);
    struct copy copy = {NULL, NULL, box->width, box->height, box->depth, box->target.pitch, box->source.pitch, 0, 0};
    TRY(side_3d_address(&box->target, &copy.target_slice, &copy.target));
    TRY(side_3d_address(&box->source, &copy.source_slice, (char **)&copy.source));
    return copy_box(copy, stream);
}
PTSZ(cuMemcpy3DAsync_v2);

EXPORT CUresult cuMemcpy3D_v2(const struct copy_3d *box) { return cuMemcpy3DAsync_v2(box, NULL); }
PTDS(cuMemcpy3D_v2);

static CUresult fill_box(CUdeviceptr target, uint32_t value, uint32_t size, size_t width, size_t height, size_t pitch,
                         CUhandle stream) {
    REQUIRE(target % size == 0 && (height < 2 || pitch >= width * size), INVALID_VALUE);
    REQUIRE(!width || !height || is_device_address(target), INVALID_VALUE);
    struct operation operation = {OP_FILL, {.fill = {NULL, value, size, width, height, pitch}}};
    TRY(accessible((void *)target, extent(width * size, height, 1, pitch, 0), &operation.fill.target));
    return submit(stream, &operation);
}

#define FILL(bits, type)                                                                                        \
    EXPORT CUresult cuMemsetD##bits##_v2(CUdeviceptr target, type value, size_t number) {                       \
        NEED_CONTEXT;                                                                                           \
        return fill_box(target, value, bits / 8, number, 1, 0, NULL);                                           \
    }                                                                                                           \
    PTDS(cuMemsetD##bits##_v2);                                                                                 \
    EXPORT CUresult cuMemsetD##bits##Async(CUdeviceptr target, type value, size_t number, CUhandle stream) {    \
        NEED_CONTEXT;                                                                                           \
        return fill_box(target, value, bits / 8, number, 1, 0, stream);                                         \
    }                                                                                                           \
    PTSZ(cuMemsetD##bits##Async);                                                                               \
    EXPORT CUresult cuMemsetD2D##bits##_v2(CUdeviceptr target, size_t pitch, type value, size_t width,          \
                                           size_t height) {                                                     \
        NEED_CONTEXT;                                                                                           \
        return fill_box(target, value, bits / 8, width, height, pitch, NULL);                                   \
    }                                                                                                           \
    PTDS(cuMemsetD2D##bits##_v2);                                                                               \
    EXPORT CUresult cuMemsetD2D##bits##Async(CUdeviceptr target, size_t pitch, type value, size_t width,        \
                                             size_t height, CUhandle stream) {                                  \
        NEED_CONTEXT;                                                                                           \
        return fill_box(target, value, bits / 8, width, height, pitch, stream);                                 \
    }                                                                                                           \
    PTSZ(cuMemsetD2D##bits##Async)

FILL(8, unsigned char);
FILL(16, unsigned short);
FILL(32, unsigned);

// Memory pools. Stream-ordered allocations are ordinary ones, because streams run in call order.

struct pool {
    uint64_t attributes[16];
    size_t used;
};
static CUhandle default_pool;

static CUhandle new_pool(void) {
    struct pool *pool = calloc(1, sizeof *pool);
    for (int at = 1; at <= 3; at++) pool->attributes[at] = 1;  // reuse policies
    return make_handle(POOL, pool);
}

EXPORT CUresult cuDeviceGetDefaultMemPool(CUhandle *pool, CUdevice device) {
    NEED_INIT;
    REQUIRE(pool && device == 0, device ? INVALID_DEVICE : INVALID_VALUE);
    if (!default_pool) default_pool = new_pool();
    *pool = default_pool;
    return SUCCESS;
}
ALIAS(cuDeviceGetMemPool, cuDeviceGetDefaultMemPool);

EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUhandle pool) {
    NEED_INIT;
    REQUIRE(device == 0 && object_of(pool, POOL), INVALID_VALUE);
    default_pool = pool;
    return SUCCESS;
}

EXPORT CUresult cuMemPoolCreate(CUhandle *pool, const void *properties) {
    NEED_INIT;
    REQUIRE(pool && properties, INVALID_VALUE);
    *pool = new_pool();
    return SUCCESS;
}

EXPORT CUresult cuMemPoolDestroy(CUhandle pool) {
    NEED_INIT;
    REQUIRE(object_of(pool, POOL) && pool != default_pool, INVALID_VALUE);
    free(object_of(pool, POOL));
    drop_handle(pool);
    return SUCCESS;
}

EXPORT CUresult cuMemPoolTrimTo(CUhandle pool, size_t keep) {
    (void)keep;
    NEED_INIT;
    return object_of(pool, POOL) ? SUCCESS : INVALID_VALUE;
}

EXPORT CUresult cuMemPoolSetAccess(CUhandle pool, const void *access, size_t number) {
    (void)access, (void)number;
    return cuMemPoolTrimTo(pool, 0);
}

EXPORT CUresult cuMemPoolGetAttribute(CUhandle handle, int attribute, void *value) {
    NEED_INIT;
    struct pool *pool = object_of(handle, POOL);
    REQUIRE(pool && value && attribute > 0 && attribute < 16, INVALID_VALUE);
    if (attribute <= 3) *(int *)value = (int)pool->attributes[attribute];
    else *(uint64_t *)value = attribute == 4 ? pool->attributes[4] : pool->used;
    return SUCCESS;
}

EXPORT CUresult cuMemPoolSetAttribute(CUhandle handle, int attribute, const void *value) {
    NEED_INIT;
    struct pool *pool = object_of(handle, POOL);
    REQUIRE(pool && value && attribute > 0 && attribute < 16, INVALID_VALUE);
    pool->attributes[attribute] = attribute <= 3 ? (uint64_t) * (const int *)value : *(const uint64_t *)value;
    return SUCCESS;
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUhandle handle, CUhandle stream) {
    NEED_CONTEXT;
    struct pool *pool = object_of(handle, POOL);
    struct stream *found;
    REQUIRE(pool, INVALID_VALUE);
    TRY(find_stream(stream, &found));
    TRY(allocate(context, size, GRANULE, DEVICE_MEMORY, address));
    find_allocation(*address)->pool = handle;
    pool->used += size;
    return SUCCESS;
}
PTSZ(cuMemAllocFromPoolAsync);

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, CUhandle stream) {
    CUhandle pool;
    TRY(cuDeviceGetDefaultMemPool(&pool, 0));
    return cuMemAllocFromPoolAsync(address, size, pool, stream);
}
PTSZ(cuMemAllocAsync);

EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUhandle stream) {
    NEED_CONTEXT;
    struct allocation *found = find_allocation(address);
    REQUIRE(found && found->start == address, INVALID_VALUE);
    struct pool *pool = found->pool ? object_of(found->pool, POOL) : NULL;
    if (pool) pool->used -= found->size;
    struct operation operation = {OP_FREE, {.address = address}};
    return submit(stream, &operation);
}
PTSZ(cuMemFreeAsync);
