// Declarations shared by the parts of the stand-in driver. They are our own, not CUDA's headers.
#ifndef WARPFRAG_STAND_IN_H
#define WARPFRAG_STAND_IN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
// A second name for a function. PTSZ and PTDS define the names that programs with per-thread default streams use.
#define ALIAS(name, original) EXPORT __typeof__(original) name __attribute__((alias(#original)))
#define PTSZ(name) ALIAS(name##_ptsz, name)
#define PTDS(name) ALIAS(name##_ptds, name)

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef void *CUhandle;

// A memory location, as in the signatures of the functions that CUDA 12.2 changed.
struct location {
    int type, id;
};

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEVICE_UNAVAILABLE = 46,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    LAUNCH_OUT_OF_RESOURCES = 701,
    PRIMARY_CONTEXT_ACTIVE = 708,
    COOPERATIVE_LAUNCH_TOO_LARGE = 720,
    UNSUPPORTED_LIMIT = 215,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_UNMATCHED = 903,
    ILLEGAL_STATE = 401,
};

// Requests to the server; server.py has the same numbers.
enum request {
    REQUEST_ALLOCATE = 1,
    REQUEST_FREE,
    REQUEST_LOAD,
    REQUEST_PLACE,
    REQUEST_UNLOAD,
    REQUEST_FUNCTION,
    REQUEST_VARIABLE,
    REQUEST_KERNELS,
    REQUEST_LAUNCH,
    REQUEST_LINK,
    REQUEST_NOTE,
    REQUEST_TENSOR_MAP,
    REQUEST_GEMM,
    REQUEST_WRITTEN,
    REQUEST_REJECTED,
};

enum handle_type { CONTEXT = 1, STREAM, EVENT, MODULE, FUNCTION, GRAPH, NODE, GRAPH_EXEC, POOL, LINK };

#define ATTRIBUTES 256
#define LIMITS 16

struct profile {  // the device's attributes: the server's first message
    int32_t driver_version, attribute_count, least_priority, greatest_priority;
    uint64_t total_memory, limits[LIMITS];
    int32_t attributes[ATTRIBUTES];
    uint8_t uuid[16];
    char name[256];
};

struct context {
    CUhandle handle;
    CUresult error;  // a launch error stays until the context is destroyed
    uint32_t flags, references;
    uint64_t limits[LIMITS];
    bool primary;
};

struct allocation {
    CUdeviceptr start;
    size_t size;
    struct context *context;
    CUhandle pool;
    uint8_t category;
    uint64_t id;
};

enum { DEVICE_MEMORY, HOST_MEMORY, MANAGED_MEMORY, HIDDEN_MEMORY };  // hidden: a module's variables

struct parameter {
    uint32_t offset, size;
};

#define FUNCTION_ATTRIBUTES 16
enum {  // function attributes
    MAX_THREADS,
    SHARED_BYTES,
    CONST_BYTES,
    LOCAL_BYTES,
    REGISTERS,
    PTX_VERSION,
    BINARY_VERSION,
    CACHE_MODE,
    MAX_DYNAMIC_SHARED,
    CARVEOUT,
    CLUSTER_MUST_BE_SET,
    CLUSTER_WIDTH,
    CLUSTER_HEIGHT,
    CLUSTER_DEPTH,
    NON_PORTABLE_CLUSTER,
    SCHEDULING_POLICY,
};

struct module {
    CUhandle handle;
    uint32_t id;
    struct context *context;
    CUdeviceptr variables;
    bool library;
};

struct function {
    CUhandle handle;
    struct module *module;
    uint32_t id, parameter_bytes, parameter_count;
    int32_t attributes[FUNCTION_ATTRIBUTES];
    struct parameter *parameters;
    char *name;
};

struct launch {  // as the server reads it; the parameter bytes follow
    uint32_t function, grid[3], block[3], cluster[3], shared, cooperative, parameter_bytes;
};

struct copy {  // a box of bytes; a plain copy has one row
    char *target;
    const char *source;
    size_t width, height, depth, target_pitch, source_pitch, target_slice, source_slice;
};

struct fill {
    char *target;
    uint32_t value, size;  // bytes of one element
    size_t width, height, pitch;
};

enum operation_type { OP_EMPTY, OP_LAUNCH, OP_COPY, OP_FILL, OP_CALL, OP_RECORD, OP_WAIT, OP_FREE, OP_GRAPH };

struct operation {  // the work that a stream executes, or a graph captures
    enum operation_type type;
    union {
        struct copy copy;
        struct fill fill;
        struct {
            void (*function)(void *);
            void *data;
        } call;
        CUhandle handle;      // an event or a graph
        CUdeviceptr address;  // to free
        struct {
            struct function *function;
            struct launch *request;
        } launch;
    };
};

struct stream {
    CUhandle handle;
    struct context *context;
    struct graph *capture;
    int priority;
    uint32_t flags, capture_mode;
    uint64_t id;
};

extern struct profile profile;
extern pthread_mutex_t lock;

// connection.c
CUresult connect_server(void);
CUresult send_request(enum request type, const void *payload, size_t size);
CUresult request(enum request type, const void *payload, size_t size, void *reply, size_t capacity, size_t *length);
CUresult request_blob(enum request type, const void *payload, size_t size, void **reply, size_t *length);
CUdeviceptr device_base(void);
size_t device_span(void);
int memory_file(void);
char *host_view(CUdeviceptr address);
bool is_device_address(uint64_t address);
bool is_traced(void);
void trace(const char *function);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
CUresult not_supported(const char *function);
CUresult lost(void);

// driver.c
CUhandle make_handle(enum handle_type type, void *object);
void *object_of(CUhandle handle, enum handle_type type);
void drop_handle(CUhandle handle);
CUresult ready(void);
struct context *current_context(void);
CUresult enter(struct context **context);
void unlock(pthread_mutex_t **held);

// entry_points.c
CUresult find_entry_point(const char *name, void **function, int version, uint64_t flags, int *status);

// memory.c
CUresult allocate(struct context *context, size_t size, size_t align, uint8_t category, CUdeviceptr *address);
CUresult release(CUdeviceptr address, int category);
struct allocation *find_allocation(CUdeviceptr address);
struct allocation *next_allocation(struct context *context);
CUresult accessible(const void *address, size_t size, char **view);
void note_written(const char *data, size_t size);
void run_copy(const struct copy *copy);
void run_fill(const struct fill *fill);

// streams.c
CUresult submit(CUhandle stream, const struct operation *operation);
CUresult find_stream(CUhandle handle, struct stream **stream);
CUresult run_operation(const struct operation *operation);
void drop_operation(struct operation *operation);
struct graph *new_graph(void);
CUhandle graph_handle(struct graph *graph);
CUhandle append_node(struct graph *graph, const struct operation *operation);
CUhandle last_node(struct graph *graph, size_t *count);
CUresult run_graph(CUhandle handle);
bool is_capturing(void);

// modules.c
CUresult launch_operation(struct function *function, const struct launch *launch, void **parameters, void **extra,
                          struct operation *operation);

#define LOCKED                                                              \
    pthread_mutex_t *held __attribute__((cleanup(unlock), unused)) = &lock; \
    pthread_mutex_lock(held);                                               \
    if (is_traced()) trace(__func__)
#define NEED_INIT                      \
    LOCKED;                            \
    {                                  \
        CUresult state = ready();      \
        if (state) return state;       \
    }
#define NEED_CONTEXT                                   \
    struct context *context;                           \
    NEED_INIT;                                         \
    {                                                  \
        CUresult state = enter(&context);              \
        if (state) return state;                       \
    }                                                  \
    (void)context
#define REQUIRE(condition, error) \
    do {                          \
        if (!(condition)) return error; \
    } while (0)
#define TRY(call)                        \
    do {                                 \
        CUresult status_ = (call);       \
        if (status_) return status_;     \
    } while (0)

#endif
