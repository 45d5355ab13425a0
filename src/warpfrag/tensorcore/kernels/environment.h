/* The floating-point environment of a kernel: its own while it runs, the caller's before and after.

   The control word of a thread (MXCSR on x86-64, FPCR on aarch64) controls how floats are rounded, whether subnormals
   are flushed to zero, and which exceptions trap. An entry that computes with floats begins with `enter_environment`
   and ends with `restore_environment`, and does not return in between.

   Compilers assume that float operations give the same result everywhere, and may move them across a change of the
   word. Each change is a barrier for loads and stores, and the code between two changes is in functions that
   are not inlined: they read their operands from memory and write their results there. */

#ifndef WARPFRAG_ENVIRONMENT_H
#define WARPFRAG_ENVIRONMENT_H

#include "tensorcore/native/entry.h"

#define MEMORY_BARRIER() __asm__ volatile("" ::: "memory")

typedef uint64_t control_word;

#if defined(__x86_64__)
#include <immintrin.h>
/* Nothing is flushed, nothing traps. The two direction bits: to nearest, down, up, towards zero. */
static const control_word CONTROL_WORDS[] = {0x1F80, 0x3F80, 0x5F80, 0x7F80};

INLINED control_word read_control_word(void)
{
    return _mm_getcsr();
}

INLINED void write_control_word(control_word word)
{
    MEMORY_BARRIER();
    _mm_setcsr((unsigned)word);
    MEMORY_BARRIER();
}

#elif defined(__aarch64__)
static const control_word CONTROL_WORDS[] = {0, 2 << 22, 1 << 22, 3 << 22};

INLINED control_word read_control_word(void)
{
    control_word word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    return word;
}

INLINED void write_control_word(control_word word)
{
    __asm__ volatile("msr fpcr, %0" ::"r"(word) : "memory");
}
#endif

/* The rounding directions, in the order of `compiled.py`. */
enum { TO_NEAREST, DOWN, UP, TOWARDS_ZERO };

INLINED void round_floats(int direction)
{
    write_control_word(CONTROL_WORDS[direction]);
}

INLINED control_word enter_environment(int direction)
{
    control_word caller = read_control_word();
    round_floats(direction);
    return caller;
}

INLINED void restore_environment(control_word caller)
{
    write_control_word(caller);
}

#endif
