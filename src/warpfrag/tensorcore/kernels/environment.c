/* A check that the control word has the effect that `environment.h` expects; emulators may ignore it. */

#include "tensorcore/kernels/environment.h"

#if defined(__aarch64__) || defined(__FMA__)

/* Return true if adding a number far below the last bit of 1 or -1 gives the expected result, and if a subnormal is not
   flushed to zero. */
NOT_INLINED int rounds_as_told(double sign, double expected)
{
    volatile double one = sign, little = sign * 0x1p-60, subnormal = 0x1p-1074;
    return one + little == expected && subnormal * 1.0 != 0.0;
}

/* Returns 0 if every rounding mode has its effect, and no subnormal is flushed to zero. */
ENTRY(check_environment)(const void *none)
{
    const double above = 1.0 + 0x1p-52;
    const double expected[][2] = {{1.0, 1.0}, {1.0, above}, {above, 1.0}, {1.0, 1.0}}; /* results for 1 and -1 */
    int32_t failures = 0;
    (void)none;
    for (int direction = TO_NEAREST; direction <= TOWARDS_ZERO; direction++) {
        control_word caller = enter_environment(direction);
        failures += !rounds_as_told(1.0, expected[direction][0]) + !rounds_as_told(-1.0, -expected[direction][1]);
        restore_environment(caller);
    }
    return failures;
}

#endif
