/* The functions that Python calls.

   Every file is compiled once per processor level, with LEVEL set to the level's name. The name of an entry ends with
   it, so that one library holds all levels; everything else is static. An entry takes the address of a structure whose
   members are all 8 bytes: numbers, and for an array its address followed by its extents. `library.py` writes it. */

#ifndef WARPFRAG_ENTRY_H
#define WARPFRAG_ENTRY_H

#include <stdint.h>

#define JOIN_LEVEL(name, level) name##__##level
#define WITH_LEVEL(name, level) JOIN_LEVEL(name, level)

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/* Returns 0, or NO_MEMORY. */
#define ENTRY(name) EXPORTED int32_t WITH_LEVEL(name, LEVEL)

#define NO_MEMORY 1

#define INLINED static inline __attribute__((always_inline))
#define NOT_INLINED static __attribute__((noinline))

/* Unroll a loop over registers completely; or keep a short loop over memory, which clang would unroll to scalar code
   before it can vectorize it. */
#ifdef __clang__
#define UNROLLED _Pragma("clang loop unroll(full)")
#define VECTORIZED _Pragma("clang loop unroll(disable)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#define VECTORIZED
#endif

#endif
