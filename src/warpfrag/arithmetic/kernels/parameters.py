"""Where each number of a plan sits in the one integer array that the compiled fused loops take.

One array keeps the call cheap and the compiled signatures few: a new architecture is other numbers, not other code.
"""

from __future__ import annotations

from typing import Final

# How one operand element is read; A starts at FORMAT_A, B at FORMAT_B.
FRACTION: Final = 0
BIAS: Final = 1
UNUSED: Final = 2
SIGN_PLACE: Final = 3  # which bit holds the sign
SPECIAL_FROM: Final = 4  # magnitudes from here on are infinity or NaN
INFINITY: Final = 5  # the magnitude of infinity, or -1
FORMAT_LENGTH: Final = 6
FORMAT_A: Final = 0
FORMAT_B: Final = FORMAT_LENGTH

# The rule of one step.
FRACTION_BITS: Final = 2 * FORMAT_LENGTH
PRODUCTS: Final = FRACTION_BITS + 1
ZERO_EXPONENT: Final = FRACTION_BITS + 2
ROUND_TO: Final = FRACTION_BITS + 3
C_FORMAT: Final = FRACTION_BITS + 4
C_EMIN: Final = FRACTION_BITS + 5  # least exponent a C that is not 0 is read with
D_FORMAT: Final = FRACTION_BITS + 6
STEPS: Final = FRACTION_BITS + 7  # steps of one instruction
ADD_C_LAST: Final = FRACTION_BITS + 8  # steps start from zero, C is added afterwards, rounded to nearest
LENGTH: Final = FRACTION_BITS + 9

# Values of ROUND_TO.
TO_F32_RZ: Final = 0
TO_F16_RN: Final = 1
TO_E8M13_RZ: Final = 2

# Values of C_FORMAT and D_FORMAT.
IS_F32: Final = 0
IS_F16: Final = 1

NAN_SCALE: Final = 1 << 20
"""Exponent that stands for a scale factor that is NaN."""
ANY_NAN_SCALE: Final = NAN_SCALE // 2
"""The sum of two exponents is at least this if one of them stands for NaN: the other may be negative."""
