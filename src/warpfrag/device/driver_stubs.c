// Every public entry point that no other file defines: it says its name and returns CUDA_ERROR_NOT_SUPPORTED.
#include "stand_in.h"

#define ENTRY(name, symbol, version) \
    EXPORT __attribute__((weak)) CUresult symbol(void) { return not_supported(#symbol); }
#include "driver_names.inc"
