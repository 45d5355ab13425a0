/* The best level that this processor and its operating system can run, as an index into `levels.LEVELS`.

   Only the copy that is compiled for the lowest level is called. */

#include "entry.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <cpuid.h>

enum { BASELINE, AVX2, AVX512 };

#define BIT(number) (1u << (number))

/* Return the registers that the operating system saves, from the extended control register. */
static uint32_t saved_registers(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static int has_all(uint32_t features, uint32_t wanted)
{
    return (features & wanted) == wanted;
}

static int best_level(void)
{
    enum { FMA = BIT(12), MOVBE = BIT(22), POPCNT = BIT(23), OSXSAVE = BIT(27), F16C = BIT(29) }; /* leaf 1, ecx */
    enum { BMI1 = BIT(3), AVX2_BIT = BIT(5), BMI2 = BIT(8) };                                     /* leaf 7, ebx */
    const uint32_t lzcnt = BIT(5);                                                       /* leaf 0x80000001, ecx */
    const uint32_t avx512 = BIT(16) | BIT(17) | BIT(28) | BIT(30) | BIT(31); /* leaf 7, ebx: F, DQ, CD, BW, VL */
    const uint32_t ymm = BIT(1) | BIT(2), zmm = ymm | BIT(5) | BIT(6) | BIT(7);
    uint32_t a, b, c, d, basic, structured, extended;
    if (!__get_cpuid(1, &a, &b, &basic, &d) || !__get_cpuid_count(7, 0, &a, &structured, &c, &d)
        || !__get_cpuid(0x80000001, &a, &b, &extended, &d))
        return BASELINE;
    if (!has_all(basic, FMA | MOVBE | POPCNT | OSXSAVE | F16C) || !has_all(structured, BMI1 | AVX2_BIT | BMI2)
        || !has_all(extended, lzcnt) || !has_all(saved_registers(), ymm))
        return BASELINE;
    return has_all(structured, avx512) && has_all(saved_registers(), zmm) ? AVX512 : AVX2;
}

#else

static int best_level(void)
{
    return 0;
}

#endif

ENTRY(processor_level)(void)
{
    return best_level();
}
