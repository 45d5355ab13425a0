// The runtime's entry points that no other file defines. Each prints its name and returns cudaErrorNotSupported.
#include "runtime.h"

extern CUresult warpfrag_not_supported(const char *function);

#define ENTRY(name) \
    EXPORT __attribute__((weak)) int name(void) { return report(warpfrag_not_supported(#name)); }
#include "runtime_names.inc"
