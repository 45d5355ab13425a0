/* Records kernel launches of a CUDA program: parameters, code, and the memory they can reach, before and after.

   The driver loads this library if CUDA_INJECTION64_PATH names it, and calls InitializeInjection. CUPTI then calls
   `on_event` around every driver call. Selected launches are written to the folder WARPFRAG_RECORD: PID.log (JSON
   lines), PID-N.before, PID-N.after and PID-N.cubin; record.py packs them. The declarations are our own. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <regex.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DRIVER_API = 1, RESOURCE = 3, MODULE_LOADED = 6, ENTER = 0, EXIT = 1 };
enum { COOPERATIVE = 2, CLUSTER = 4, MAX_PARAMS = 32768, MAX_RANGES = 4096, FRAMES = 64 };

typedef struct {
    int site;
    const char *function;
    const void *params;
    void *result;
    const char *symbol;
} CallbackData;
typedef struct { void *context, *handle, *descriptor; } ResourceData;
typedef struct { uint32_t id; size_t size; const char *cubin; } ModuleData;
typedef struct { void *function; uint32_t grid[3], block[3], shared; void *stream, **values, **extra; } LaunchParams;
typedef struct { int id, pad; uint32_t value[16]; } Attribute;
typedef struct { uint32_t grid[3], block[3], shared; void *stream; Attribute *attributes; uint32_t count; } Config;
typedef struct { const Config *config; void *function, **values, **extra; } ConfigParams;

typedef struct { uint64_t start, size; } Range;
typedef struct { uint64_t handle; int image, is_kernel; } Handle;
typedef struct { char *file; int is_open; char *cubin; size_t size; uint64_t module, library; } Image;

/* The driver functions that this library calls. */
static int (*synchronize)(void), (*copy)(uint64_t, uint64_t, size_t), (*is_capturing)(void *, int *);
static int (*address_range)(uint64_t *, size_t *, uint64_t);
static int (*function_param)(void *, size_t, size_t *, size_t *), (*kernel_param)(void *, size_t, size_t *, size_t *);
static int (*kernel_library)(uint64_t *, void *), (*function_module)(uint64_t *, void *);
static int (*kernel_function)(uint64_t *, void *);
static int (*module_global)(uint64_t *, size_t *, uint64_t, const char *);
static int (*library_global)(uint64_t *, size_t *, uint64_t, const char *);
static int (*driver_version)(int *), (*device_name)(char *, int, int), (*current_device)(int *);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int is_own_call;  /* this library's own calls are not recorded */
static __thread int is_recording; /* between enter and exit of a selected launch */
static __thread int lock_depth;
static __thread int current_image = -1;

static const char *folder;
static FILE *output;
static regex_t pattern;
static long matched, recorded, stored, limit = 50, max_bytes = 1L << 30;
static int has_pattern, only_last, cubins;
static const char *chosen;

static Range *allocations, ranges[MAX_RANGES];
static Handle *handles;
static Image *images;
static int allocation_count, handle_count, image_count, range_count;

static void acquire(void)
{
    if (!lock_depth++) pthread_mutex_lock(&lock);
}

static void release(void)
{
    if (!--lock_depth) pthread_mutex_unlock(&lock);
}

static void *grow(void *array, int count, size_t size)
{
    if (count & (count - 1)) return array;
    return realloc(array, size * (count ? 2 * count : 1));
}

/* --- the log */

static void quoted(const char *text)
{
    fputc('"', output);
    for (; text && *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', output);
        if ((unsigned char)*text < 32) fprintf(output, "\\u%04x", *text);
        else fputc(*text, output);
    }
    fputc('"', output);
}

static void numbers(const char *name, const uint32_t *values)
{
    fprintf(output, ",\"%s\":[%u,%u,%u]", name, values[0], values[1], values[2]);
}

static void note(const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(output, "{\"note\":");
    quoted(text);
    fprintf(output, "}\n");
    fflush(output);
}

/* --- allocations */

static void add_allocation(uint64_t start, size_t size)
{
    if (!start || !size) return;
    allocations = grow(allocations, allocation_count, sizeof *allocations);
    int at = allocation_count++;
    for (; at && allocations[at - 1].start > start; at--) allocations[at] = allocations[at - 1];
    allocations[at] = (Range){start, size};
}

static int find_allocation(uint64_t address)
{
    int low = 0, high = allocation_count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (allocations[middle].start <= address) low = middle + 1;
        else high = middle;
    }
    return low && address - allocations[low - 1].start < allocations[low - 1].size ? low - 1 : -1;
}

static void remove_allocation(uint64_t start)
{
    int at = find_allocation(start);
    if (at < 0 || allocations[at].start != start) return;
    memmove(allocations + at, allocations + at + 1, sizeof *allocations * (--allocation_count - at));
}

/* --- code: images by the handles of their modules, libraries, kernels and functions */

static const char *file_of(const void *address)
{
    Dl_info info;
    return dladdr(address, &info) && info.dli_fname ? info.dli_fname : NULL;
}

static int starts_with(const char *path, const char *const *prefixes)
{
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    for (; *prefixes; prefixes++)
        if (!strncmp(name, *prefixes, strlen(*prefixes))) return 1;
    return 0;
}

static const char *loading_file(const void *image)
{
    static const char *const skipped[] = {"libcuda.so", "libcupti", "libcudart", "libnvidia-", "libc.so", "libpthread", NULL};
    const char *own = file_of((void *)loading_file), *file = file_of(image);
    void *frames[FRAMES];
    if (file) return file;
    int count = backtrace(frames, FRAMES);
    for (int frame = 0; frame < count; frame++) {
        file = file_of(frames[frame]);
        if (file && strcmp(file, own) && !starts_with(file, skipped)) return file;
    }
    return NULL;
}

static int add_image(const char *file)
{
    /* NVIDIA's libraries, whose code is never stored. An unknown file counts as closed-source. */
    static const char *const closed[] = {
#include "../tables/closed_libraries.inc"
        NULL};
    images = grow(images, image_count, sizeof *images);
    images[image_count] = (Image){file ? strdup(file) : NULL, file && !starts_with(file, closed), NULL, 0, 0, 0};
    fprintf(output, "{\"image\":%d,\"is_open\":%d,\"file\":", image_count, images[image_count].is_open);
    quoted(file ? file : "");
    fprintf(output, "}\n");
    return image_count++;
}

static Handle *find_handle(uint64_t handle)
{
    for (int at = handle_count - 1; at >= 0; at--)
        if (handles[at].handle == handle) return handles + at;
    return NULL;
}

static int image_of(uint64_t handle)
{
    Handle *known = find_handle(handle);
    return known ? known->image : -1;
}

static void add_handle(uint64_t handle, int image, int is_kernel)
{
    Handle *known = find_handle(handle);
    if (!handle || image < 0) return;
    if (!known) {
        handles = grow(handles, handle_count, sizeof *handles);
        known = handles + handle_count++;
    }
    *known = (Handle){handle, image, is_kernel};
}

static int image_of_function(void *function)
{
    uint64_t owner = 0;
    int image = image_of((uint64_t)function);
    if (image < 0 && kernel_library && !kernel_library(&owner, function)) image = image_of(owner);
    if (image < 0 && function_module && !function_module(&owner, function)) image = image_of(owner);
    return image;
}

static void keep_cubin(const ModuleData *module)
{
    char path[4096];
    Image *image = current_image < 0 ? NULL : images + current_image;
    if (!image || !image->is_open || !module->cubin) return;
    snprintf(path, sizeof path, "%s/%d-%d.cubin", folder, (int)getpid(), cubins);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(module->cubin, 1, module->size, file) != module->size) note("cannot write %s", path);
    if (file) fclose(file);
    fprintf(output, "{\"cubin\":\"%d-%d.cubin\",\"image\":%d}\n", (int)getpid(), cubins++, current_image);
    free(image->cubin);
    image->cubin = malloc(image->size = module->size);
    if (image->cubin) memcpy(image->cubin, module->cubin, module->size);
}

static int is_call(const char *name, const char *wanted)
{
    size_t length = strlen(wanted);
    return !strncmp(name, wanted, length) && (!name[length] || name[length] == '_');
}

/* Returns the image of the code that a call may load, or -1 if it loads none. */
static int image_of_call(const char *name, const uint64_t *params)
{
    if (is_call(name, "cuModuleLoadData") || is_call(name, "cuModuleLoadDataEx") || is_call(name, "cuModuleLoadFatBinary")
        || is_call(name, "cuLibraryLoadData"))
        return add_image(loading_file((void *)params[1]));
    if (is_call(name, "cuModuleLoad") || is_call(name, "cuLibraryLoadFromFile")) return add_image((char *)params[1]);
    if (is_call(name, "cuModuleGetFunction") || is_call(name, "cuLibraryGetKernel") || is_call(name, "cuLibraryGetModule")
        || is_call(name, "cuKernelGetFunction") || is_call(name, "cuModuleGetGlobal") || is_call(name, "cuLibraryGetGlobal"))
        return image_of(params[strstr(name, "GetGlobal") ? 2 : 1]);
    if (is_call(name, "cuLibraryEnumerateKernels")) return image_of(params[2]);
    return -1;
}

static void after_code_call(const char *name, const uint64_t *params)
{
    if (current_image < 0) return;
    uint64_t handle = *(uint64_t *)params[0];
    if (is_call(name, "cuLibraryEnumerateKernels")) {
        for (uint32_t at = 0; at < (uint32_t)params[1]; at++) add_handle(((uint64_t *)params[0])[at], current_image, 1);
    } else if (!strstr(name, "GetGlobal")) {
        add_handle(handle, current_image, is_call(name, "cuLibraryGetKernel"));
        if (strstr(name, "cuModuleLoad") || strstr(name, "cuLibraryGetModule")) images[current_image].module = handle;
        if (strstr(name, "cuLibraryLoad")) images[current_image].library = handle;
    }
    current_image = -1;
}

static void after_memory_call(const char *name, const uint64_t *params)
{
    if (is_call(name, "cuMemAllocPitch")) add_allocation(*(uint64_t *)params[0], *(size_t *)params[1] * params[3]);
    else if (is_call(name, "cuMemAlloc") || is_call(name, "cuMemAllocManaged") || is_call(name, "cuMemAllocAsync")
             || is_call(name, "cuMemAllocFromPoolAsync") || is_call(name, "cuMemHostAlloc") || is_call(name, "cuMemAllocHost"))
        add_allocation(*(uint64_t *)params[0], params[1]);
    else if (is_call(name, "cuMemMap") || is_call(name, "cuMemHostRegister")) add_allocation(params[0], params[1]);
}

/* --- memory that a launch can reach */

static void add_range(uint64_t address, int ask_driver)
{
    uint64_t start;
    size_t size;
    int at = find_allocation(address);
    if (at >= 0) start = allocations[at].start, size = allocations[at].size;
    else if (!ask_driver || address < 1 << 16 || address_range(&start, &size, address) || !size) return;
    for (int index = 0; index < range_count; index++)
        if (start < ranges[index].start + ranges[index].size && ranges[index].start < start + size) return;
    if (range_count < MAX_RANGES) ranges[range_count++] = (Range){start, size};
}

static void add_pointers(const unsigned char *data, size_t size, int ask_driver)
{
    uint64_t low = allocation_count ? allocations[0].start : ~0ull, word;
    uint64_t high = allocation_count ? allocations[allocation_count - 1].start + allocations[allocation_count - 1].size : 0;
    for (size_t at = 0; at + 8 <= size; at += 8) {
        memcpy(&word, data + at, 8);
        if (ask_driver || (word >= low && word < high)) add_range(word, ask_driver);
    }
}

/* Writes the ranges to a file. `scan` adds the ranges that their contents point to. Returns an error text, or NULL. */
static const char *write_ranges(const char *path, int scan)
{
    FILE *file = fopen(path, "wb");
    uint64_t total = 0;
    const char *problem = file ? NULL : "the folder cannot be written";
    for (int index = 0; !problem && index < range_count; index++) {
        size_t size = ranges[index].size;
        unsigned char *data = (total += size) > (uint64_t)max_bytes ? NULL : malloc(size);
        if (!data) problem = "the memory that it can reach exceeds --max-bytes";
        else if (copy((uint64_t)data, ranges[index].start, size)) problem = "its memory cannot be read";
        else if (fwrite(data, 1, size, file) != size) problem = "the folder cannot be written";
        else if (scan) add_pointers(data, size, 0);
        free(data);
    }
    if (file && fclose(file) && !problem) problem = "the folder cannot be written";
    return problem;
}

/* Adds the module's variables, which are the data objects in the cubin's symbol table, and logs their names. */
static void add_variables(const Image *image)
{
    const unsigned char *elf = (unsigned char *)image->cubin;
    int is_first = 1;
    fprintf(output, ",\"variables\":[");
    if (elf && image->size > 64) {
        uint64_t sections = *(uint64_t *)(elf + 40);
        int count = *(uint16_t *)(elf + 60), width = *(uint16_t *)(elf + 58);
        for (int index = 0; index < count && sections + (uint64_t)width * (index + 1) <= image->size; index++) {
            const unsigned char *section = elf + sections + (uint64_t)width * index;
            if (*(uint32_t *)(section + 4) != 2) continue; /* SHT_SYMTAB */
            const unsigned char *strings = elf + sections + (uint64_t)width * *(uint32_t *)(section + 40);
            const char *names = (char *)elf + *(uint64_t *)(strings + 24);
            uint64_t first = *(uint64_t *)(section + 24), bytes = *(uint64_t *)(section + 32);
            for (uint64_t at = first; at + 24 <= first + bytes && at + 24 <= image->size; at += 24) {
                const char *name = names + *(uint32_t *)(elf + at);
                uint64_t address = 0;
                size_t size = 0;
                if ((elf[at + 4] & 15) != 1 || !*name) continue; /* STT_OBJECT */
                int missing = 1;
                if (image->library) missing = library_global(&address, &size, image->library, name);
                if (missing && image->module) missing = module_global(&address, &size, image->module, name);
                if (missing || !size || range_count == MAX_RANGES) continue;
                fprintf(output, is_first ? "[" : ",[");
                quoted(name);
                fprintf(output, ",%d]", range_count);
                is_first = 0;
                ranges[range_count++] = (Range){address, size};
            }
        }
    }
    fprintf(output, "]");
}

/* --- launches */

static int is_chosen(const char *name)
{
    char number[32];
    if (has_pattern && regexec(&pattern, name, 0, NULL, 0)) return 0;
    long index = matched++;
    if (chosen) {
        snprintf(number, sizeof number, ",%ld,", index);
        return strstr(chosen, number) != NULL;
    }
    return only_last || stored < limit;
}

static size_t read_params(void *function, void **values, void **extra, unsigned char *params)
{
    size_t total = 0, offset, size;
    if (!values && extra) {
        unsigned char *buffer = NULL;
        for (; *extra; extra += 2) {
            if (*extra == (void *)1) buffer = extra[1];
            if (*extra == (void *)2) total = *(size_t *)extra[1];
        }
        if (!buffer || total > MAX_PARAMS) return 0;
        memcpy(params, buffer, total);
        return total;
    }
    for (size_t index = 0; values; index++) {
        if ((!function_param || function_param(function, index, &offset, &size))
            && (!kernel_param || kernel_param(function, index, &offset, &size)))
            break;
        if (offset + size > MAX_PARAMS) break;
        memcpy(params + offset, values[index], size);
        total = offset + size > total ? offset + size : total;
    }
    return total;
}

static void begin_launch(const CallbackData *call, const LaunchParams *launch, const uint32_t *cluster, int cooperative)
{
    static unsigned char params[MAX_PARAMS];
    char path[4096];
    int capturing = 0, image = image_of_function(launch->function);
    const char *problem = NULL;
    int is_open = image >= 0 && images[image].is_open;
    if (is_capturing && !is_capturing(launch->stream, &capturing) && capturing) problem = "it is part of a graph";
    else if (synchronize()) problem = "an earlier launch failed";
    Handle *known = find_handle((uint64_t)launch->function);
    uint64_t loaded;
    if (!problem && known && known->is_kernel && kernel_function) kernel_function(&loaded, launch->function); /* loads lazy code */
    current_image = -1; /* code that is loaded from here on is the driver's own */
    memset(params, 0, sizeof params);
    size_t size = is_open ? read_params(launch->function, launch->values, launch->extra, params) : 0;
    if (only_last) recorded = 0;
    fprintf(output, "{\"launch\":%ld,\"number\":%ld,\"image\":%d,\"name\":", recorded, matched - 1, image);
    quoted(call->symbol);
    numbers("grid", launch->grid);
    numbers("block", launch->block);
    fprintf(output, ",\"shared\":%u,\"cooperative\":%d", launch->shared, cooperative);
    if (cluster) numbers("cluster", cluster);
    fprintf(output, ",\"params\":\"");
    for (size_t at = 0; at < size; at++) fprintf(output, "%02x", params[at]);
    fprintf(output, "\"");
    range_count = 0;
    int device = 0;
    char gpu[256] = "";
    if (!current_device(&device)) device_name(gpu, sizeof gpu, device);
    fprintf(output, ",\"gpu\":");
    quoted(gpu);
    if (!problem && is_open) { /* for closed-source code, only the shape of the launch is stored */
        stored++;
        add_variables(images + image);
        add_pointers(params, size, 1);
        snprintf(path, sizeof path, "%s/%d-%ld.before", folder, (int)getpid(), recorded);
        problem = write_ranges(path, 1);
    }
    fprintf(output, ",\"ranges\":[");
    for (int at = 0; at < range_count; at++)
        fprintf(output, "%s[%llu,%llu]", at ? "," : "", (unsigned long long)ranges[at].start, (unsigned long long)ranges[at].size);
    fprintf(output, "],\"problem\":");
    quoted(problem ? problem : "");
    fprintf(output, "}\n");
    fflush(output);
    if (problem || !is_open) range_count = -1;
}

static void end_launch(const CallbackData *call)
{
    char path[4096];
    int error = call->result ? *(int *)call->result : 0;
    const char *problem = NULL;
    if (range_count >= 0) {
        if (!error) error = synchronize();
        snprintf(path, sizeof path, "%s/%d-%ld.after", folder, (int)getpid(), recorded);
        problem = error ? "the launch failed" : write_ranges(path, 0);
    }
    fprintf(output, "{\"end\":%ld,\"error\":%d,\"problem\":", recorded++, error);
    quoted(problem ? problem : "");
    fprintf(output, "}\n");
    fflush(output);
}

static void on_launch(const CallbackData *call)
{
    LaunchParams launch;
    const uint32_t *cluster = NULL;
    int cooperative = is_call(call->function, "cuLaunchCooperativeKernel");
    if (is_call(call->function, "cuLaunchKernelEx")) {
        const ConfigParams *given = call->params;
        const Config *config = given->config;
        memcpy(launch.grid, config->grid, sizeof launch.grid + sizeof launch.block + sizeof launch.shared);
        launch.function = given->function, launch.stream = config->stream;
        launch.values = given->values, launch.extra = given->extra;
        for (uint32_t at = 0; at < config->count; at++) {
            if (config->attributes[at].id == CLUSTER) cluster = config->attributes[at].value;
            if (config->attributes[at].id == COOPERATIVE) cooperative = config->attributes[at].value[0] != 0;
        }
    } else {
        memcpy(&launch, call->params, cooperative ? offsetof(LaunchParams, extra) : sizeof launch);
        if (cooperative) launch.extra = NULL;
    }
    if (call->site == ENTER) {
        acquire(); /* another thread's launch waits until a recorded one has ended */
        current_image = image_of_function(launch.function);
        if (call->symbol && is_chosen(call->symbol)) {
            is_recording = 1;
            begin_launch(call, &launch, cluster, cooperative);
        } else {
            release();
        }
    } else {
        current_image = -1;
        if (is_recording) {
            end_launch(call);
            is_recording = 0;
            release();
        }
    }
}

static void on_call(const CallbackData *call)
{
    const char *name = call->function;
    const uint64_t *params = call->params;
    int failed = call->site == EXIT && call->result && *(int *)call->result;
    acquire();
    if (call->site == ENTER) {
        if (!strncmp(name, "cuModule", 8) || !strncmp(name, "cuLibrary", 9) || !strncmp(name, "cuKernelGet", 11))
            current_image = image_of_call(name, params);
        else if (is_call(name, "cuMemFree") || is_call(name, "cuMemFreeAsync") || is_call(name, "cuMemFreeHost")
                 || is_call(name, "cuMemUnmap") || is_call(name, "cuMemHostUnregister"))
            remove_allocation(params[0]);
    } else if (!failed) {
        after_code_call(name, params);
        if (!strncmp(name, "cuMem", 5)) after_memory_call(name, params);
    } else {
        current_image = -1;
    }
    release();
}

static void on_event(void *unused, int domain, uint32_t id, const void *data)
{
    (void)unused;
    if (domain == RESOURCE && id == MODULE_LOADED) { /* even in this library's own calls, which may load lazy code */
        acquire();
        keep_cubin(((const ResourceData *)data)->descriptor);
        release();
    }
    if (domain != DRIVER_API || is_own_call) return;
    const CallbackData *call = data;
    is_own_call = 1;
    if (!strncmp(call->function, "cuLaunch", 8) && strstr(call->function, "Kernel") && !strstr(call->function, "MultiDevice"))
        on_launch(call);
    else
        on_call(call);
    is_own_call = 0;
}

/* --- start */

static void *open_cupti(void)
{
    static const char *const names[] = {"libcupti.so.13", "libcupti.so.12", NULL};
    const char *path = getenv("WARPFRAG_CUPTI");
    void *library = NULL;
    /* Use the copy that the program has loaded: two copies in one process interfere with each other. */
    for (const char *const *name = names; !library && *name; name++) library = dlopen(*name, RTLD_NOW | RTLD_NOLOAD);
    if (!library && path && *path) library = dlopen(path, RTLD_NOW);
    for (const char *const *name = names; !library && *name; name++) library = dlopen(*name, RTLD_NOW);
    return library;
}

int InitializeInjection(void)
{
    static int has_started;
    char path[4096];
    int version = 0, result = 0;
    const char *value;
    if (has_started++ || !(folder = getenv("WARPFRAG_RECORD"))) return 1;
    snprintf(path, sizeof path, "%s/%d.log", folder, (int)getpid());
    if (!(output = fopen(path, "w"))) return 1;
    if ((value = getenv("WARPFRAG_RECORD_KERNEL")) && *value) has_pattern = !regcomp(&pattern, value, REG_EXTENDED | REG_NOSUB);
    if ((value = getenv("WARPFRAG_RECORD_LAUNCH")) && *value) chosen = value;
    only_last = (value = getenv("WARPFRAG_RECORD_LAST")) && *value == '1';
    if ((value = getenv("WARPFRAG_RECORD_LIMIT"))) limit = atol(value);
    if ((value = getenv("WARPFRAG_RECORD_BYTES"))) max_bytes = atol(value);

    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *cupti = open_cupti();
    if (!driver || !cupti) {
        note("%s", dlerror());
        return 1;
    }
    *(void **)&synchronize = dlsym(driver, "cuCtxSynchronize");
    *(void **)&copy = dlsym(driver, "cuMemcpy");
    *(void **)&is_capturing = dlsym(driver, "cuStreamIsCapturing");
    *(void **)&address_range = dlsym(driver, "cuMemGetAddressRange_v2");
    *(void **)&function_param = dlsym(driver, "cuFuncGetParamInfo");
    *(void **)&kernel_param = dlsym(driver, "cuKernelGetParamInfo");
    *(void **)&kernel_library = dlsym(driver, "cuKernelGetLibrary");
    *(void **)&function_module = dlsym(driver, "cuFuncGetModule");
    *(void **)&module_global = dlsym(driver, "cuModuleGetGlobal_v2");
    *(void **)&library_global = dlsym(driver, "cuLibraryGetGlobal");
    *(void **)&kernel_function = dlsym(driver, "cuKernelGetFunction");
    *(void **)&driver_version = dlsym(driver, "cuDriverGetVersion");
    *(void **)&device_name = dlsym(driver, "cuDeviceGetName");
    *(void **)&current_device = dlsym(driver, "cuCtxGetDevice");
    int (*subscribe)(void **, void (*)(void *, int, uint32_t, const void *), void *) = NULL;
    int (*enable)(uint32_t, void *, int) = NULL;
    void *subscriber = NULL;
    *(void **)&subscribe = dlsym(cupti, "cuptiSubscribe");
    *(void **)&enable = dlsym(cupti, "cuptiEnableDomain");
    is_own_call = 1;
    if (driver_version) driver_version(&version);
    if (!subscribe || !enable || !synchronize || !copy || !address_range || !module_global || !library_global
        || !device_name || !current_device)
        note("the driver or CUPTI is too old");
    else if ((result = subscribe(&subscriber, on_event, NULL)) || (result = enable(1, subscriber, DRIVER_API))
             || (result = enable(1, subscriber, RESOURCE)))
        note("CUPTI returns error %d: another profiler may be active", result);
    else
        fprintf(output, "{\"driver\":%d}\n", version);
    is_own_call = 0;
    fflush(output);
    return 1;
}

/* Starts recording if the library is loaded with LD_PRELOAD instead of CUDA_INJECTION64_PATH. */
__attribute__((constructor)) static void start(void)
{
    const char *preloads = getenv("WARPFRAG_RECORD_PRELOAD");
    if (preloads && *preloads == '1') InitializeInjection();
}
