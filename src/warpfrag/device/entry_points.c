// The table of entry points. An entry point that no other file defines prints its name and returns CUDA_ERROR_NOT_SUPPORTED.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "stand_in.h"

#define ENTRY(name, symbol, version) \
    EXPORT __attribute__((weak)) CUresult symbol(void) { return not_supported(#symbol); }
#include "driver_names.inc"
#undef ENTRY

static const struct {
    const char *name, *symbol;
    int version;
    CUresult (*function)(void);
} entries[] = {
#define ENTRY(name, symbol, version) {#name, #symbol, version, symbol},
#include "driver_names.inc"
};

static bool is_per_thread(const char *symbol) {
    size_t length = strlen(symbol);
    return length > 5 && (!strcmp(symbol + length - 5, "_ptsz") || !strcmp(symbol + length - 5, "_ptds"));
}

// Find the newest variant of a function that exists in a CUDA version; flag 2 selects per-thread default streams.
CUresult find_entry_point(const char *name, void **function, int version, uint64_t flags, int *status) {
    bool wants_per_thread = flags & 2, has_name = false;
    int best = -1;
    for (size_t at = 0; at < sizeof entries / sizeof *entries; at++) {
        if (strcmp(entries[at].name, name) && strcmp(entries[at].symbol, name)) continue;
        has_name = true;
        bool is_thread = is_per_thread(entries[at].symbol);
        if (entries[at].version > version || (is_thread && !wants_per_thread)) continue;
        bool is_better = best < 0 || is_thread > is_per_thread(entries[best].symbol) ||
                         (is_thread == is_per_thread(entries[best].symbol) && entries[at].version >= entries[best].version);
        if (is_better) best = at;
    }
    *function = best < 0 ? NULL : (void *)entries[best].function;
    if (status) *status = best >= 0 ? 0 : has_name ? 2 : 1;
    return best >= 0 ? SUCCESS : NOT_FOUND;
}

// Programs that open CUDA's libraries by path, as PyTorch does with the libraries in wheels, get the stand-ins instead.

static void *(*real_dlopen)(const char *, int);
static const char *const stand_ins[] = {"libcuda.so.1",    "libcudart.so.12",   "libcudart.so.13",  "libcublas.so.12",
                                        "libcublas.so.13", "libcublasLt.so.12", "libcublasLt.so.13"};

__attribute__((constructor)) static void find_dlopen(void) { *(void **)&real_dlopen = dlsym(RTLD_NEXT, "dlopen"); }

static void *open_stand_in(const char *file, int mode) {
    static const char here;
    const char *name = strrchr(file, '/') + 1;
    Dl_info own;
    if (!dladdr(&here, &own) || !strrchr(own.dli_fname, '/')) return NULL;
    for (size_t at = 0; at < sizeof stand_ins / sizeof *stand_ins; at++) {
        size_t length = strlen(stand_ins[at]);
        if (strncmp(name, stand_ins[at], length) || (name[length] && name[length] != '.')) continue;
        char path[PATH_MAX];
        int folder = strrchr(own.dli_fname, '/') - own.dli_fname;
        int size = snprintf(path, sizeof path, "%.*s/%s", folder, own.dli_fname, stand_ins[at]);
        return size < (int)sizeof path ? real_dlopen(path, mode) : NULL;
    }
    return NULL;
}

EXPORT void *dlopen(const char *file, int mode) {
    void *found = file && strchr(file, '/') ? open_stand_in(file, mode) : NULL;
    if (found) return found;
#ifdef __clang__
    __attribute__((musttail))  // the dynamic linker finds the caller and its RUNPATH by the return address
#endif
    return real_dlopen(file, mode);
}
