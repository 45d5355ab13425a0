"""Floats by exact fractions, as IEEE 754 defines them, without NumPy and without warpfrag's tables."""

from fractions import Fraction

WIDTHS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}


def value(name, code):
    """The exact value of a finite code; None for a NaN, a string for an infinity."""
    exponent_bits, fraction_bits = WIDTHS[name]
    sign = -1 if code >> (exponent_bits + fraction_bits) else 1
    exponent = code >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = code & ((1 << fraction_bits) - 1)
    if exponent == (1 << exponent_bits) - 1:
        return None if fraction else ("-inf" if sign < 0 else "inf")
    bias = (1 << (exponent_bits - 1)) - 1
    significand = fraction + (1 << fraction_bits if exponent else 0)
    return sign * Fraction(significand) * Fraction(2) ** (max(exponent, 1) - bias - fraction_bits)


def rounded(name, exact, mode):
    """The code of a number that is not zero."""
    exponent_bits, fraction_bits = WIDTHS[name]
    bias = (1 << (exponent_bits - 1)) - 1
    negative, size = exact < 0, abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    while Fraction(2) ** exponent > size:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    exponent = max(exponent, 1 - bias)
    unit = Fraction(2) ** (exponent - fraction_bits)
    whole, rest = divmod(size, unit)
    whole = int(whole)
    up = {
        "rn": rest * 2 > unit or (rest * 2 == unit and whole & 1),
        "rna": rest * 2 >= unit,
        "rz": False,
        "rm": rest and negative,
        "rp": rest and not negative,
    }[mode]
    whole += bool(up)
    code = whole + ((exponent + bias - 1) << fraction_bits)
    infinity = ((1 << exponent_bits) - 1) << fraction_bits
    if code >= infinity:
        to_infinity = mode in {"rn", "rna"} or (mode == "rp" and not negative) or (mode == "rm" and negative)
        code = infinity if to_infinity else infinity - 1
    return code | negative << (exponent_bits + fraction_bits)
