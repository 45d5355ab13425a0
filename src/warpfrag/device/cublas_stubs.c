// The other entry points of libcublas and libcublasLt that PyTorch and cuSOLVER import. Each prints its name and
// returns CUBLAS_STATUS_NOT_SUPPORTED.
#include "cublas_stand_in.h"

#define STUB(name) \
    EXPORT __attribute__((weak)) int name(void) { return unsupported(#name); }
#if IS_LT
#define ENTRY(name)
#define LT_ENTRY(name) STUB(name)
#else
#define ENTRY(name) STUB(name)
#define LT_ENTRY(name)
#endif
#include "cublas_names.inc"
