// Streams, events and graphs. All work runs immediately, in call order; a capturing stream adds it to a graph instead.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stand_in.h"

#define LEGACY ((CUhandle)1)
#define PER_THREAD ((CUhandle)2)
#define DISABLE_TIMING 2
enum { CAPTURE_NONE, CAPTURE_ACTIVE, CAPTURE_INVALID };

struct node {
    CUhandle handle;
    struct graph *graph;
    struct operation operation;
    CUhandle *dependencies;
    size_t dependency_count;
};

struct graph {  // an executable graph is a copy with the nodes in execution order
    CUhandle handle;
    struct node **nodes;
    size_t count;
    bool is_invalid;
    uint64_t id;
};

struct event {
    struct context *context;
    struct graph *capture;
    uint32_t flags;
    bool is_recorded;
    struct timespec time;
};

static struct stream default_streams[3];
static struct stream **streams;  // all except the default streams
static size_t stream_count;
static uint64_t next_id = 10;

CUresult find_stream(CUhandle handle, struct stream **stream) {
    if ((uintptr_t)handle <= 2) {
        *stream = &default_streams[(uintptr_t)handle];
        (*stream)->id = (uintptr_t)handle;
        return SUCCESS;
    }
    *stream = object_of(handle, STREAM);
    return *stream && (*stream)->context == current_context() ? SUCCESS : INVALID_HANDLE;
}

bool is_capturing(void) {
    for (size_t at = 0; at < stream_count; at++)
        if (streams[at]->capture) return true;
    return false;
}

CUresult run_operation(const struct operation *operation) {
    struct event *event;
    switch (operation->type) {
        case OP_COPY: run_copy(&operation->copy); break;
        case OP_FILL: run_fill(&operation->fill); break;
        case OP_FREE: return release(operation->address, DEVICE_MEMORY);
        case OP_GRAPH: return run_graph(operation->handle);
        case OP_CALL:
            pthread_mutex_unlock(&lock);
            operation->call.function(operation->call.data);
            pthread_mutex_lock(&lock);
            break;
        case OP_RECORD:
            if (!(event = object_of(operation->handle, EVENT))) return INVALID_HANDLE;
            clock_gettime(CLOCK_MONOTONIC, &event->time);
            event->is_recorded = true;
            break;
        case OP_LAUNCH: {
            struct launch *sent = operation->launch.request;
            struct context *context = current_context();
            void *reply;
            size_t length;
            CUresult error = request_blob(REQUEST_LAUNCH, sent, sizeof *sent + sent->parameter_bytes, &reply, &length);
            if (error >= 700 && error < 720 && error != LAUNCH_OUT_OF_RESOURCES && context) context->error = error;
            return error;
        }
        case OP_EMPTY:
        case OP_WAIT: break;
    }
    return SUCCESS;
}

void drop_operation(struct operation *operation) {
    if (operation->type == OP_LAUNCH) free(operation->launch.request);
    operation->type = OP_EMPTY;
}

static struct operation copy_of(const struct operation *operation) {
    struct operation result = *operation;
    if (result.type == OP_LAUNCH) {
        size_t size = sizeof *result.launch.request + result.launch.request->parameter_bytes;
        result.launch.request = memcpy(malloc(size), operation->launch.request, size);
    }
    return result;
}

CUresult submit(CUhandle handle, const struct operation *operation) {
    struct stream *stream;
    TRY(find_stream(handle, &stream));
    if (!stream->capture) return run_operation(operation);
    REQUIRE(!stream->capture->is_invalid, CAPTURE_INVALIDATED);
    append_node(stream->capture, operation);
    return SUCCESS;
}

// Streams

EXPORT CUresult cuStreamCreateWithPriority(CUhandle *out, unsigned flags, int priority) {
    NEED_CONTEXT;
    REQUIRE(out && flags <= 1, INVALID_VALUE);
    struct stream *stream = calloc(1, sizeof *stream);
    int lowest = profile.greatest_priority, highest = profile.least_priority;
    *stream = (struct stream){NULL, context, NULL, priority < lowest ? lowest : priority > highest ? highest : priority,
                              flags, 0, next_id++};
    streams = realloc(streams, (stream_count + 1) * sizeof *streams);
    if (!streams) abort();
    streams[stream_count++] = stream;
    *out = stream->handle = make_handle(STREAM, stream);
    return SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUhandle *out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }

EXPORT CUresult cuStreamDestroy_v2(CUhandle handle) {
    NEED_CONTEXT;
    struct stream *stream = object_of(handle, STREAM);
    REQUIRE(stream, INVALID_HANDLE);
    for (size_t at = 0; at < stream_count; at++)
        if (streams[at] == stream) streams[at] = streams[--stream_count];
    drop_handle(handle);
    free(stream);
    return SUCCESS;
}

#define STREAM_OF(handle)          \
    NEED_CONTEXT;                  \
    struct stream *stream;         \
    TRY(find_stream(handle, &stream))

EXPORT CUresult cuStreamSynchronize(CUhandle handle) {
    STREAM_OF(handle);
    if (!stream->capture) return SUCCESS;
    stream->capture->is_invalid = true;
    return CAPTURE_UNSUPPORTED;
}
PTSZ(cuStreamSynchronize);
ALIAS(cuStreamQuery, cuStreamSynchronize);
ALIAS(cuStreamQuery_ptsz, cuStreamSynchronize);

EXPORT CUresult cuStreamGetPriority(CUhandle handle, int *priority) {
    STREAM_OF(handle);
    *priority = stream->priority;
    return SUCCESS;
}
PTSZ(cuStreamGetPriority);

EXPORT CUresult cuStreamGetFlags(CUhandle handle, unsigned *flags) {
    STREAM_OF(handle);
    *flags = stream->flags;
    return SUCCESS;
}
PTSZ(cuStreamGetFlags);

EXPORT CUresult cuStreamGetId(CUhandle handle, unsigned long long *id) {
    STREAM_OF(handle);
    *id = stream->id;
    return SUCCESS;
}
PTSZ(cuStreamGetId);

EXPORT CUresult cuStreamGetCtx(CUhandle handle, CUhandle *out) {
    STREAM_OF(handle);
    *out = context->handle;
    return SUCCESS;
}
PTSZ(cuStreamGetCtx);

EXPORT CUresult cuStreamGetDevice(CUhandle handle, CUdevice *device) {
    STREAM_OF(handle);
    *device = 0;
    return SUCCESS;
}
PTSZ(cuStreamGetDevice);

EXPORT CUresult cuLaunchHostFunc(CUhandle stream, void (*function)(void *), void *data) {
    NEED_CONTEXT;
    REQUIRE(function, INVALID_VALUE);
    struct operation operation = {OP_CALL, {.call = {function, data}}};
    return submit(stream, &operation);
}
PTSZ(cuLaunchHostFunc);

EXPORT CUresult cuStreamAddCallback(CUhandle handle, void (*function)(CUhandle, CUresult, void *), void *data,
                                    unsigned flags) {
    STREAM_OF(handle);
    REQUIRE(function && !flags && !stream->capture, INVALID_VALUE);
    function(handle, SUCCESS, data);
    return SUCCESS;
}
PTSZ(cuStreamAddCallback);

// Capture

EXPORT CUresult cuStreamBeginCapture_v2(CUhandle handle, int mode) {
    STREAM_OF(handle);
    REQUIRE((uintptr_t)handle > 2 && !stream->capture, (uintptr_t)handle > 2 ? ILLEGAL_STATE : CAPTURE_UNSUPPORTED);
    stream->capture = new_graph();
    stream->capture_mode = mode;
    return SUCCESS;
}
PTSZ(cuStreamBeginCapture_v2);

EXPORT CUresult cuStreamBeginCapture(CUhandle handle) { return cuStreamBeginCapture_v2(handle, 0); }
PTSZ(cuStreamBeginCapture);

EXPORT CUresult cuStreamBeginCaptureToGraph(CUhandle handle, CUhandle target, const void *dependencies,
                                            const void *edges, size_t number, int mode) {
    (void)dependencies, (void)edges, (void)number;
    STREAM_OF(handle);
    REQUIRE((uintptr_t)handle > 2 && !stream->capture && object_of(target, GRAPH), INVALID_VALUE);
    stream->capture = object_of(target, GRAPH);
    stream->capture_mode = mode;
    return SUCCESS;
}
PTSZ(cuStreamBeginCaptureToGraph);

EXPORT CUresult cuStreamEndCapture(CUhandle handle, CUhandle *out) {
    STREAM_OF(handle);
    struct graph *graph = stream->capture;
    REQUIRE(out, INVALID_VALUE);
    *out = NULL;
    REQUIRE(graph, ILLEGAL_STATE);
    for (size_t at = 0; at < stream_count; at++)
        if (streams[at]->capture == graph) streams[at]->capture = NULL;
    REQUIRE(!graph->is_invalid, CAPTURE_INVALIDATED);
    *out = graph->handle;
    return SUCCESS;
}
PTSZ(cuStreamEndCapture);

static int capture_status(const struct stream *stream) {
    return !stream->capture ? CAPTURE_NONE : stream->capture->is_invalid ? CAPTURE_INVALID : CAPTURE_ACTIVE;
}

EXPORT CUresult cuStreamIsCapturing(CUhandle handle, int *status) {
    STREAM_OF(handle);
    REQUIRE(status, INVALID_VALUE);
    *status = capture_status(stream);
    return SUCCESS;
}
PTSZ(cuStreamIsCapturing);

EXPORT CUresult cuStreamGetCaptureInfo_v3(CUhandle handle, int *status, uint64_t *id, CUhandle *graph,
                                          const CUhandle **dependencies, const void **edges, size_t *number) {
    static CUhandle last;
    STREAM_OF(handle);
    REQUIRE(status, INVALID_VALUE);
    *status = capture_status(stream);
    if (!stream->capture) return SUCCESS;
    if (id) *id = stream->capture->id;
    if (graph) *graph = stream->capture->handle;
    size_t count = stream->capture->count;
    last = count ? stream->capture->nodes[count - 1]->handle : NULL;
    if (dependencies) *dependencies = &last;
    if (edges) *edges = NULL;
    if (number) *number = count > 0;
    return SUCCESS;
}
PTSZ(cuStreamGetCaptureInfo_v3);

EXPORT CUresult cuStreamGetCaptureInfo_v2(CUhandle handle, int *status, uint64_t *id, CUhandle *graph,
                                          const CUhandle **dependencies, size_t *number) {
    return cuStreamGetCaptureInfo_v3(handle, status, id, graph, dependencies, NULL, number);
}
PTSZ(cuStreamGetCaptureInfo_v2);

EXPORT CUresult cuStreamGetCaptureInfo(CUhandle handle, int *status, uint64_t *id) {
    return cuStreamGetCaptureInfo_v3(handle, status, id, NULL, NULL, NULL, NULL);
}
PTSZ(cuStreamGetCaptureInfo);

EXPORT CUresult cuStreamUpdateCaptureDependencies(CUhandle handle, CUhandle *dependencies, size_t number,
                                                  unsigned flags) {
    (void)dependencies, (void)number, (void)flags;
    STREAM_OF(handle);
    return stream->capture ? SUCCESS : ILLEGAL_STATE;
}
PTSZ(cuStreamUpdateCaptureDependencies);

EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    static __thread int current;
    int before = current;
    current = *mode;
    *mode = before;
    return SUCCESS;
}

// Events

EXPORT CUresult cuEventCreate(CUhandle *out, unsigned flags) {
    NEED_CONTEXT;
    REQUIRE(out && flags < 8, INVALID_VALUE);
    struct event *event = calloc(1, sizeof *event);
    event->context = context;
    event->flags = flags;
    *out = make_handle(EVENT, event);
    return SUCCESS;
}

#define EVENT_OF(handle)                            \
    NEED_CONTEXT;                                   \
    struct event *event = object_of(handle, EVENT); \
    REQUIRE(event, INVALID_HANDLE)

EXPORT CUresult cuEventDestroy_v2(CUhandle handle) {
    EVENT_OF(handle);
    drop_handle(handle);
    free(event);
    return SUCCESS;
}

EXPORT CUresult cuEventRecord(CUhandle handle, CUhandle stream_handle) {
    EVENT_OF(handle);
    struct stream *stream;
    TRY(find_stream(stream_handle, &stream));
    REQUIRE(event->context == context, INVALID_HANDLE);
    event->capture = stream->capture;
    if (stream->capture) return SUCCESS;  // a graph has dependencies instead of events
    struct operation operation = {OP_RECORD, {.handle = handle}};
    return run_operation(&operation);
}
PTSZ(cuEventRecord);

EXPORT CUresult cuEventRecordWithFlags(CUhandle handle, CUhandle stream, unsigned flags) {
    (void)flags;
    return cuEventRecord(handle, stream);
}
PTSZ(cuEventRecordWithFlags);

EXPORT CUresult cuStreamWaitEvent(CUhandle stream_handle, CUhandle handle, unsigned flags) {
    (void)flags;
    EVENT_OF(handle);
    struct stream *stream;
    TRY(find_stream(stream_handle, &stream));
    if (event->capture && !stream->capture) stream->capture = event->capture;  // the stream joins the capture
    return SUCCESS;
}
PTSZ(cuStreamWaitEvent);

EXPORT CUresult cuEventSynchronize(CUhandle handle) {
    EVENT_OF(handle);
    return SUCCESS;
}
ALIAS(cuEventQuery, cuEventSynchronize);

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUhandle first, CUhandle second) {
    EVENT_OF(first);
    struct event *end = object_of(second, EVENT);
    REQUIRE(end && milliseconds, end ? INVALID_VALUE : INVALID_HANDLE);
    REQUIRE(event->is_recorded && end->is_recorded && !((event->flags | end->flags) & DISABLE_TIMING), INVALID_HANDLE);
    double seconds = (double)(end->time.tv_sec - event->time.tv_sec) + 1e-9 * (end->time.tv_nsec - event->time.tv_nsec);
    *milliseconds = (float)(1e3 * seconds);
    return SUCCESS;
}
ALIAS(cuEventElapsedTime_v2, cuEventElapsedTime);

// Graphs

struct graph *new_graph(void) {
    struct graph *graph = calloc(1, sizeof *graph);
    graph->handle = make_handle(GRAPH, graph);
    graph->id = next_id++;
    return graph;
}

static struct node *add_node(struct graph *graph, struct operation operation, const CUhandle *after, size_t number) {
    struct node *node = calloc(1, sizeof *node);
    graph->nodes = realloc(graph->nodes, (graph->count + 1) * sizeof *graph->nodes);
    if (!node || !graph->nodes) abort();
    graph->nodes[graph->count++] = node;
    node->graph = graph;
    node->operation = operation;
    node->handle = make_handle(NODE, node);
    node->dependencies = malloc((number + 1) * sizeof *after);
    if (number) memcpy(node->dependencies, after, number * sizeof *after);
    node->dependency_count = number;
    return node;
}

CUhandle append_node(struct graph *graph, const struct operation *operation) {
    CUhandle last = graph->count ? graph->nodes[graph->count - 1]->handle : NULL;
    return add_node(graph, copy_of(operation), &last, graph->count > 0)->handle;
}

CUresult run_graph(CUhandle handle) {
    struct graph *graph = object_of(handle, GRAPH_EXEC);
    if (!graph) graph = object_of(handle, GRAPH);
    REQUIRE(graph, INVALID_VALUE);
    for (size_t at = 0; at < graph->count; at++) TRY(run_operation(&graph->nodes[at]->operation));
    return SUCCESS;
}

static void free_graph(struct graph *graph) {
    for (size_t at = 0; at < graph->count; at++) {
        drop_operation(&graph->nodes[at]->operation);
        free(graph->nodes[at]->dependencies);
        drop_handle(graph->nodes[at]->handle);
        free(graph->nodes[at]);
    }
    free(graph->nodes);
    drop_handle(graph->handle);
    free(graph);
}

EXPORT CUresult cuGraphCreate(CUhandle *out, unsigned flags) {
    NEED_INIT;
    REQUIRE(out && !flags, INVALID_VALUE);
    *out = new_graph()->handle;
    return SUCCESS;
}

EXPORT CUresult cuGraphDestroy(CUhandle handle) {
    NEED_INIT;
    REQUIRE(object_of(handle, GRAPH), INVALID_VALUE);
    free_graph(object_of(handle, GRAPH));
    return SUCCESS;
}

EXPORT CUresult cuGraphExecDestroy(CUhandle handle) {
    NEED_INIT;
    REQUIRE(object_of(handle, GRAPH_EXEC), INVALID_VALUE);
    free_graph(object_of(handle, GRAPH_EXEC));
    return SUCCESS;
}

static bool is_done(const struct graph *graph, const bool *done, CUhandle node) {
    for (size_t at = 0; at < graph->count; at++)
        if (graph->nodes[at]->handle == node) return done[at];
    return true;
}

// Copy the nodes in topological order; each copy has the original node as its only dependency.
static CUresult instantiate(CUhandle *out, CUhandle handle) {
    struct graph *graph = object_of(handle, GRAPH);
    REQUIRE(out && graph, INVALID_VALUE);
    struct graph *copy = calloc(1, sizeof *copy);
    bool *done = calloc(graph->count + 1, sizeof *done), advanced = true;
    while (advanced && copy->count < graph->count) {
        advanced = false;
        for (size_t at = 0; at < graph->count; at++) {
            struct node *node = graph->nodes[at];
            bool is_next = !done[at];
            for (size_t each = 0; each < node->dependency_count; each++)
                is_next = is_next && is_done(graph, done, node->dependencies[each]);
            if (!is_next) continue;
            add_node(copy, copy_of(&node->operation), &node->handle, 1);
            done[at] = advanced = true;
        }
    }
    free(done);
    copy->handle = make_handle(GRAPH_EXEC, copy);
    if (copy->count < graph->count) {  // a cycle
        free_graph(copy);
        return INVALID_VALUE;
    }
    *out = copy->handle;
    return SUCCESS;
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUhandle *out, CUhandle graph, unsigned long long flags) {
    (void)flags;
    NEED_CONTEXT;
    return instantiate(out, graph);
}

EXPORT CUresult cuGraphInstantiate_v2(CUhandle *out, CUhandle graph, CUhandle *node, char *text, size_t size) {
    if (node) *node = NULL;
    if (text && size) *text = 0;
    return cuGraphInstantiateWithFlags(out, graph, 0);
}
ALIAS(cuGraphInstantiate, cuGraphInstantiate_v2);

struct instantiation {
    uint64_t flags;
    CUhandle upload_stream, error_node;
    int result;
};

EXPORT CUresult cuGraphInstantiateWithParams(CUhandle *out, CUhandle graph, struct instantiation *parameters) {
    parameters->error_node = NULL;
    parameters->result = 0;
    return cuGraphInstantiateWithFlags(out, graph, parameters->flags);
}
PTSZ(cuGraphInstantiateWithParams);

EXPORT CUresult cuGraphLaunch(CUhandle graph, CUhandle stream) {
    NEED_CONTEXT;
    REQUIRE(object_of(graph, GRAPH_EXEC), INVALID_VALUE);
    struct operation operation = {OP_GRAPH, {.handle = graph}};
    return submit(stream, &operation);
}
PTSZ(cuGraphLaunch);

EXPORT CUresult cuGraphUpload(CUhandle graph, CUhandle stream) {
    (void)stream;
    NEED_CONTEXT;
    return object_of(graph, GRAPH_EXEC) ? SUCCESS : INVALID_VALUE;
}
PTSZ(cuGraphUpload);

EXPORT CUresult cuGraphGetNodes(CUhandle handle, CUhandle *nodes, size_t *number) {
    NEED_INIT;
    struct graph *graph = object_of(handle, GRAPH);
    REQUIRE(graph && number, INVALID_VALUE);
    for (size_t at = 0; nodes && at < *number; at++) nodes[at] = at < graph->count ? graph->nodes[at]->handle : NULL;
    if (!nodes || *number > graph->count) *number = graph->count;
    return SUCCESS;
}

EXPORT CUresult cuGraphNodeGetType(CUhandle handle, int *type) {
    static const int types[] = {[OP_LAUNCH] = 0, [OP_COPY] = 1, [OP_FILL] = 2, [OP_CALL] = 3, [OP_GRAPH] = 4,
                                [OP_EMPTY] = 5, [OP_WAIT] = 6, [OP_RECORD] = 7, [OP_FREE] = 11};
    NEED_INIT;
    struct node *node = object_of(handle, NODE);
    REQUIRE(node && type, INVALID_VALUE);
    *type = types[node->operation.type];
    return SUCCESS;
}

static CUresult add(CUhandle *out, CUhandle handle, const CUhandle *after, size_t number, struct operation operation) {
    struct graph *graph = object_of(handle, GRAPH);
    REQUIRE(graph && out && (after || !number), INVALID_VALUE);
    for (size_t at = 0; at < number; at++) {
        struct node *node = object_of(after[at], NODE);
        REQUIRE(node && node->graph == graph, INVALID_VALUE);
    }
    *out = add_node(graph, operation, after, number)->handle;
    return SUCCESS;
}

EXPORT CUresult cuGraphAddEmptyNode(CUhandle *out, CUhandle graph, const CUhandle *after, size_t number) {
    NEED_INIT;
    return add(out, graph, after, number, (struct operation){.type = OP_EMPTY});
}

EXPORT CUresult cuGraphAddHostNode(CUhandle *out, CUhandle graph, const CUhandle *after, size_t number,
                                   void *const *call) {
    NEED_INIT;
    REQUIRE(call, INVALID_VALUE);
    struct operation operation = {OP_CALL, {.call = {(void (*)(void *))call[0], call[1]}}};
    return add(out, graph, after, number, operation);
}

EXPORT CUresult cuGraphAddChildGraphNode(CUhandle *out, CUhandle graph, const CUhandle *after, size_t number,
                                         CUhandle child) {
    NEED_INIT;
    CUhandle copy;
    TRY(instantiate(&copy, child));
    return add(out, graph, after, number, (struct operation){OP_GRAPH, {.handle = copy}});
}

struct node_fill {
    CUdeviceptr target;
    size_t pitch;
    unsigned value, size;
    size_t width, height;
};

EXPORT CUresult cuGraphAddMemsetNode(CUhandle *out, CUhandle graph, const CUhandle *after, size_t number,
                                     const struct node_fill *fill, CUhandle context_handle) {
    (void)context_handle;
    NEED_INIT;
    REQUIRE(fill && (fill->size == 1 || fill->size == 2 || fill->size == 4), INVALID_VALUE);
    struct operation operation = {OP_FILL, {.fill = {NULL, fill->value, fill->size, fill->width, fill->height, fill->pitch}}};
    size_t bytes = (fill->height - 1) * fill->pitch + fill->width * fill->size;
    TRY(accessible((void *)fill->target, bytes, &operation.fill.target));
    return add(out, graph, after, number, operation);
}

struct kernel_node {
    CUhandle function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
    CUhandle kernel, context;
};

static CUresult kernel_operation(const struct kernel_node *node, struct operation *operation) {
    REQUIRE(node, INVALID_VALUE);
    struct function *function = object_of(node->function ? node->function : node->kernel, FUNCTION);
    REQUIRE(function, INVALID_HANDLE);
    struct launch launch = {.shared = node->shared};
    memcpy(launch.grid, node->grid, sizeof launch.grid);
    memcpy(launch.block, node->block, sizeof launch.block);
    return launch_operation(function, &launch, node->parameters, node->extra, operation);
}

EXPORT CUresult cuGraphAddKernelNode_v2(CUhandle *out, CUhandle graph, const CUhandle *after, size_t number,
                                        const struct kernel_node *kernel) {
    NEED_CONTEXT;
    struct operation operation;
    TRY(kernel_operation(kernel, &operation));
    return add(out, graph, after, number, operation);
}
ALIAS(cuGraphAddKernelNode, cuGraphAddKernelNode_v2);

// Change the parameters of a node in an executable graph, or in the original graph if `graph` is NULL.
static CUresult change_node(struct graph *graph, CUhandle handle, const struct kernel_node *kernel) {
    struct node *node = object_of(handle, NODE);
    for (size_t at = 0; graph && at < graph->count; at++)
        if (*graph->nodes[at]->dependencies == handle) node = graph->nodes[at];
    REQUIRE(node && node->operation.type == OP_LAUNCH && (!graph || node->graph == graph), INVALID_VALUE);
    struct operation operation;
    TRY(kernel_operation(kernel, &operation));
    drop_operation(&node->operation);
    node->operation = operation;
    return SUCCESS;
}

EXPORT CUresult cuGraphKernelNodeSetParams_v2(CUhandle node, const struct kernel_node *kernel) {
    NEED_CONTEXT;
    return change_node(NULL, node, kernel);
}
ALIAS(cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams_v2);

EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUhandle graph, CUhandle node, const struct kernel_node *kernel) {
    NEED_CONTEXT;
    REQUIRE(object_of(graph, GRAPH_EXEC), INVALID_VALUE);
    return change_node(object_of(graph, GRAPH_EXEC), node, kernel);
}
ALIAS(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2);

EXPORT CUresult cuGraphAddDependencies(CUhandle handle, const CUhandle *from, const CUhandle *to, size_t number) {
    NEED_INIT;
    for (size_t at = 0; at < number; at++) {
        struct node *node = object_of(to[at], NODE), *before = object_of(from[at], NODE);
        REQUIRE(node && before && node->graph == before->graph && node->graph == object_of(handle, GRAPH), INVALID_VALUE);
        node->dependencies = realloc(node->dependencies, (node->dependency_count + 1) * sizeof *from);
        node->dependencies[node->dependency_count++] = from[at];
    }
    return SUCCESS;
}
