// Every entry point of the runtime that no other file defines: it says its name and returns cudaErrorNotSupported.
#include "runtime.h"

extern CUresult warpfrag_not_supported(const char *function);

#define ENTRY(name) \
    EXPORT __attribute__((weak)) int name(void) { return report(warpfrag_not_supported(#name)); }
#include "runtime_names.inc"
