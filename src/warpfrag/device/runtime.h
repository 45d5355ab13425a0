// Declarations shared by the parts of the stand-in runtime: the driver's functions, and macros for runtime functions.
#ifndef WARPFRAG_RUNTIME_H
#define WARPFRAG_RUNTIME_H

#include "stand_in.h"

// The driver functions, declared without parameters; the C files that define them have the full signatures.
#define ENTRY(name, symbol, version) extern CUresult symbol();
#include "driver_names.inc"
#undef ENTRY
extern CUresult warpfrag_load(CUhandle *module, const void *image, const void *caller, int is_library);

int report(int error);
int start(void);
int function_of(const void *host, CUhandle *function);
int symbol_of(const void *host, CUdeviceptr *address, size_t *size);

#define START                           \
    do {                                \
        int error_ = start();           \
        if (error_) return report(error_); \
    } while (0)
#define FORWARD(name, parameters, call) \
    EXPORT int name parameters {        \
        START;                          \
        return report(call);            \
    }

#endif
