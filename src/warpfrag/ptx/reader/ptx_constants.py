"""Constants and their operators: 64-bit integers, signed or unsigned, and f64.

An integer is signed unless a U follows it or it needs all 64 bits. An operation on two integers is unsigned if either
operand is, else signed; results wrap. Where the manual is silent, the rules of ptxas 13.0 and 13.4 apply: `%` treats
both sides as unsigned; `~` returns an unsigned integer; comparisons and logical operators return a signed 0 or 1; a
shift has the signedness of its left side and uses the low six bits of its right side; `?:` has the signedness of the
selected side. Both sides are evaluated, so a division by zero is an error even in the side that is not selected.
Integers and floats never mix.
"""

import math
import operator
import re
import struct
from collections.abc import Callable

from warpfrag.errors import PtxError, quote
from warpfrag.machine.ir.program import FloatLiteral
from warpfrag.ptx.reader.syntax import IntegerLiteral

ConstantSyntax = IntegerLiteral | FloatLiteral
BITS = 64
MASK = (1 << BITS) - 1
MAX_DIGITS = 80  # longer than any 64-bit integer in any base
NAMED_NUMBERS = {"WARP_SZ": 32}
CASTS = {".s64": False, ".u64": True}
"""Casts of constants; True for those that return an unsigned integer."""
PRECEDENCE = {
    sign: level
    for level, signs in enumerate(
        ("||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / %"), 1
    )
    for sign in signs.split()
}  # fmt: skip
"""The precedence level of each binary operator."""
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
LOGICAL: dict[str, Callable[[int, int], bool]] = {
    "&&": lambda a, b: a != 0 and b != 0,
    "||": lambda a, b: a != 0 or b != 0,
}
INTEGERS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_, "|": operator.or_, "^": operator.xor,
}  # fmt: skip
FLOATS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
}  # fmt: skip


def integer(value: int, *, is_unsigned: bool = False) -> IntegerLiteral:
    """Return a 64-bit integer constant; higher bits of `value` are dropped."""
    value &= MASK
    return IntegerLiteral(value if is_unsigned or value >> (BITS - 1) == 0 else value - (1 << BITS), is_unsigned)


def literal(text: str, line: int) -> ConstantSyntax:
    """Return the constant for a number as PTX spells it.

    >>> literal("0x1F", 1), literal("017", 1).value, literal("0f3F800000", 1).code == 0x3F800000
    (IntegerLiteral(value=31, is_unsigned=False), 15, True)
    """
    for pattern, bits in ((r"0[fF]([0-9a-fA-F]{8})", 32), (r"0[dD]([0-9a-fA-F]{16})", 64)):
        if hexadecimal := re.fullmatch(pattern, text):
            return FloatLiteral(int(hexadecimal[1], 16), bits)
    if re.fullmatch(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?", text):
        digits = text.rstrip("U")
        is_octal = digits.isdigit() and digits[0] == "0"
        if is_octal and set(digits) & {"8", "9"}:
            raise PtxError(line, f"expected octal digits after a leading 0, got {quote(text)}")
        value = (
            int(digits, 8 if is_octal else 10 if digits.isdigit() else 0) if len(digits) <= MAX_DIGITS else 1 << BITS
        )
        if value > MASK:
            raise PtxError(line, f"expected an integer of at most 64 bits, got {quote(text)}")
        return IntegerLiteral(value, text.endswith("U") or value >> (BITS - 1) == 1)
    number = float(text)
    if math.isinf(number) or (number == 0 and re.search("[1-9]", re.split("[eE]", text)[0])):
        raise PtxError(line, f"expected a number in the range of f64, got {quote(text)}")
    return f64(number)


def f64(number: float) -> FloatLiteral:
    """Return a float as an f64 constant."""
    return FloatLiteral(int.from_bytes(struct.pack("<d", number), "little"), 64)


def unary(sign: str, operand: ConstantSyntax, line: int) -> ConstantSyntax:
    """Apply a unary operator to a constant."""
    if isinstance(operand, FloatLiteral) and sign in "+-":
        return operand if sign == "+" else FloatLiteral(operand.code ^ 1 << (operand.bits - 1), operand.bits)
    value = value_of(operand, line)
    if sign == "!":
        return integer(value == 0)
    if sign == "~":
        return integer(~value, is_unsigned=True)
    return integer(-value if sign == "-" else value, is_unsigned=is_unsigned(operand))


def cast(kind: str, operand: ConstantSyntax, line: int) -> IntegerLiteral:
    """Cast an integer constant to a signed or unsigned integer."""
    if kind not in CASTS:
        raise PtxError(line, f"expected a cast to .s64 or .u64, got {quote(kind)}")
    return integer(value_of(operand, line), is_unsigned=CASTS[kind])


def binary(sign: str, left: ConstantSyntax, right: ConstantSyntax, line: int) -> ConstantSyntax:
    """Apply a binary operator to two constants."""
    if isinstance(left, FloatLiteral) and isinstance(right, FloatLiteral) and left.bits == right.bits == BITS:
        return _binary_floats(sign, left, right, line)
    unsigned = is_unsigned(left) or is_unsigned(right)
    a, b = value_of(left, line), value_of(right, line)
    if sign in {"<<", ">>"}:
        return integer(a << (b & 63) if sign == "<<" else a >> (b & 63), is_unsigned=is_unsigned(left))
    if sign in LOGICAL:
        return integer(LOGICAL[sign](a, b))
    if sign == "%":
        return integer((a & MASK) % _divisor(b & MASK, line), is_unsigned=True)
    if unsigned:
        a, b = a & MASK, b & MASK
    if sign in COMPARISONS:
        return integer(COMPARISONS[sign](a, b))
    if sign == "/":
        quotient = abs(a) // abs(_divisor(b, line))
        value = quotient if (a < 0) == (b < 0) else -quotient
        if not unsigned and value >> (BITS - 1) == 1:
            raise PtxError(line, f"the quotient {a} / {b} does not fit in 64 bits")
        return integer(value, is_unsigned=unsigned)
    return integer(INTEGERS[sign](a, b), is_unsigned=unsigned)


def _binary_floats(sign: str, left: FloatLiteral, right: FloatLiteral, line: int) -> ConstantSyntax:
    """Apply an arithmetic operator or a comparison to two f64 constants."""
    a, b = left.number, right.number
    if sign in COMPARISONS:
        return integer(COMPARISONS[sign](a, b))
    if sign not in FLOATS:
        raise PtxError(line, f"expected integer operands for {sign!r}, got floats")
    if sign == "/":
        _divisor(b, line)
    return f64(FLOATS[sign](a, b))


def _divisor(value: float, line: int) -> int:
    """Return a divisor; raise an error if it is zero."""
    if value == 0:
        raise PtxError(line, "division by zero in a constant expression")
    return int(value)


def value_of(operand: ConstantSyntax, line: int) -> int:
    """Return the value of an integer constant; raise an error for a float."""
    if isinstance(operand, FloatLiteral):
        raise PtxError(line, f"expected an integer in a constant expression, got the float {operand}")
    return operand.value


def is_unsigned(operand: ConstantSyntax) -> bool:
    """Return True if a constant is an unsigned integer."""
    return isinstance(operand, IntegerLiteral) and operand.is_unsigned
