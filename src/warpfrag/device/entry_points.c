// The table of entry points. One that no other file defines says its name and returns CUDA_ERROR_NOT_SUPPORTED.
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

// Find the newest function of a name that a CUDA version has; flag 2 asks for default streams per thread.
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
