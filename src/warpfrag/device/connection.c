// The connection to the server process, and the device memory that the program and the server share.
//
// The first use starts the server and passes it a socket and the memory file. The server leaves the program's process
// tree, so that the program never waits for a child that it did not start. It ends when the socket closes.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stand_in.h"

#define BASE 0x300000000000
#define SMALLEST ((size_t)1 << 30)
#define SERVER_SOCKET 3  // file descriptors of the server
#define SERVER_MEMORY 4

extern char **environ;
struct profile profile;
pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int channel = -1, memory = -1;
static bool tried, is_lost, in_child;
static int tracing = -1;
static char *view;  // all of device memory, for copies; accesses through the program's mapping at `base` fault
static CUdeviceptr base = BASE;
static size_t span;
static char *scratch;
static size_t scratch_size;

struct header {
    uint32_t type, size;
};

void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("warpfrag gpu: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

bool is_traced(void) {
    if (tracing < 0) tracing = getenv("WARPFRAG_GPU_TRACE") != NULL;
    return tracing;
}

void trace(const char *function) { say("call %s", function); }

CUdeviceptr device_base(void) { return base; }
size_t device_span(void) { return span; }
int memory_file(void) { return memory; }
char *host_view(CUdeviceptr address) { return view + (address - base); }
bool is_device_address(uint64_t address) { return span && address >= base && address - base < span; }

static bool transfer(bool sends, void *data, size_t size) {
    while (size) {
        ssize_t done = sends ? send(channel, data, size, MSG_NOSIGNAL) : recv(channel, data, size, 0);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        data = (char *)data + done;
        size -= done;
    }
    return true;
}

CUresult lost(void) {
    if (!is_lost) say("the server process ended; every further CUDA call returns CUDA_ERROR_DEVICE_UNAVAILABLE");
    is_lost = true;
    return DEVICE_UNAVAILABLE;
}

static bool post(enum request type, const void *payload, size_t size) {
    struct header header = {type, size};
    return transfer(true, &header, sizeof header) && transfer(true, (void *)payload, size);
}

CUresult send_request(enum request type, const void *payload, size_t size) {
    if (is_lost || in_child) return in_child ? NOT_INITIALIZED : DEVICE_UNAVAILABLE;
    return post(type, payload, size) ? SUCCESS : lost();
}

// Tell the check "uninitialised" that host code wrote to `data`, an address in `view`. Host addresses are ignored.
void note_written(const char *data, size_t size) {
    static int tracks = -1;
    if (tracks < 0) tracks = strstr(getenv("WARPFRAG_GPU_CHECKS") ?: "", "uninitialised") != NULL;
    uint64_t message[] = {base + (data - view), size};
    if (tracks && size && data >= view && data < view + span) send_request(REQUEST_WRITTEN, message, sizeof message);
}

// Send a request and wait for the reply; *reply points to memory that the next request reuses.
CUresult request_blob(enum request type, const void *payload, size_t size, void **reply, size_t *length) {
    TRY(send_request(type, payload, size));
    struct header header;
    if (!transfer(false, &header, sizeof header)) return lost();
    if (header.size > scratch_size) {
        free(scratch);
        scratch = malloc(scratch_size = header.size);
        if (!scratch) abort();
    }
    if (!transfer(false, scratch, header.size)) return lost();
    *reply = scratch;
    *length = header.size;
    return header.type;
}

CUresult request(enum request type, const void *payload, size_t size, void *reply, size_t capacity, size_t *length) {
    void *data;
    size_t count;
    TRY(request_blob(type, payload, size, &data, &count));
    memcpy(reply, data, count < capacity ? count : capacity);
    if (length) *length = count;
    return SUCCESS;
}

// `request` under a public name, for the other stand-in libraries.
EXPORT CUresult warpfrag_request(uint32_t type, const void *payload, size_t size, void *reply, size_t capacity,
                                 size_t *length) {
    NEED_INIT;
    return request(type, payload, size, reply, capacity, length);
}

CUresult not_supported(const char *function) {
    LOCKED;
    say("%s is not supported; the call fails with a NOT_SUPPORTED error", function);
    if (channel >= 0) send_request(REQUEST_NOTE, function, strlen(function));
    return NOT_SUPPORTED;
}

EXPORT CUresult warpfrag_not_supported(const char *function) { return not_supported(function); }

static void forget_in_child(void) {
    if (channel < 0) return;
    in_child = true;
    close(channel);
    close(memory);
    channel = memory = -1;
    lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

// Map four times the size of device memory, so that freed addresses are not reused soon, or less if the system refuses.
static bool map_memory(size_t size) {
    memory = syscall(SYS_memfd_create, "warpfrag device memory", 1u /* close on exec */);
    if (memory < 0) return false;
    for (span = size * 4; span >= SMALLEST || span >= size; span /= 2) {
        if (ftruncate(memory, span)) continue;
        int flags = MAP_SHARED | MAP_NORESERVE;
        view = mmap(NULL, span, PROT_READ | PROT_WRITE, flags, memory, 0);
        if (view == MAP_FAILED) continue;
        void *place = mmap((void *)BASE, span, PROT_NONE, flags, memory, 0);  // another address if BASE is in use
        if (place != MAP_FAILED) {
            base = (CUdeviceptr)place;
            return true;
        }
        munmap(view, span);
    }
    return false;
}

static bool is_inherited(const char *variable) {
    return strncmp(variable, "LD_", 3) && strncmp(variable, "PYTHON", 6);
}

// Run the server's module with the Python interpreter that WARPFRAG_GPU_SERVER names.
static bool start_server(int socket) {
    const char *python = getenv("WARPFRAG_GPU_SERVER");
    if (!python) {
        say("no server is configured: start the program with `warpfrag gpu -- program`");
        return false;
    }
    size_t count = 0, kept = 0;
    while (environ[count]) count++;
    char **environment = calloc(count + 1, sizeof *environment);
    for (size_t at = 0; environment && at < count; at++)
        if (is_inherited(environ[at])) environment[kept++] = environ[at];
    char numbers[64];
    snprintf(numbers, sizeof numbers, "%llu:%llu", (unsigned long long)base, (unsigned long long)span);
    const char *folder = getenv("WARPFRAG_GPU_SOURCE");
    char *arguments[] = {(char *)python, "-P", "-c",
                         "import sys; sys.argv[1] in sys.path or sys.path.insert(0, sys.argv[1]); "
                         "from warpfrag.device.server import main; main(sys.argv[2])",
                         (char *)(folder ? folder : ""), numbers, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    // Duplicate the descriptors to high numbers first, because they may be 3 or 4 themselves. Only 3 and 4 stay open.
    int safe_socket = fcntl(socket, F_DUPFD_CLOEXEC, 10), safe_memory = fcntl(memory, F_DUPFD_CLOEXEC, 10);
    posix_spawn_file_actions_adddup2(&actions, safe_socket, SERVER_SOCKET);
    posix_spawn_file_actions_adddup2(&actions, safe_memory, SERVER_MEMORY);
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    sigemptyset(&none);
    sigfillset(&defaults);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    pid_t child;
    int failed = environment ? posix_spawn(&child, python, &actions, &attributes, arguments, environment) : ENOMEM;
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(safe_socket);
    close(safe_memory);
    free(environment);
    if (failed) {
        say("cannot start %s: %s", python, strerror(failed));
        return false;
    }
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;  // the child forks the server and ends at once
    return true;
}

CUresult connect_server(void) {
    if (in_child) return NOT_INITIALIZED;
    if (tried) return channel >= 0 ? SUCCESS : NO_DEVICE;
    tried = true;
    const char *wanted = getenv("WARPFRAG_GPU_MEMORY");
    size_t size = wanted ? strtoull(wanted, NULL, 10) : 0;
    int pair[2];
    if (!map_memory(size ? size : (size_t)150109880320) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) {
        say("cannot map device memory: %s; try a smaller --memory", strerror(errno));
        return NO_DEVICE;
    }
    channel = pair[0];
    bool started = start_server(pair[1]);
    close(pair[1]);
    if (!started || !transfer(false, &profile, sizeof profile)) {
        if (started) say("the server did not start");
        close(channel);
        channel = -1;
        return NO_DEVICE;
    }
    if (size) profile.total_memory = size;
    pthread_atfork(NULL, NULL, forget_in_child);
    return SUCCESS;
}

CUresult ready(void) {
    if (in_child || !tried) return NOT_INITIALIZED;
    if (channel < 0) return NO_DEVICE;
    return is_lost ? DEVICE_UNAVAILABLE : SUCCESS;
}
