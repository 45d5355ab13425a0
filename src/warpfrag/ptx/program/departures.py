"""Where ptxas departs from the manual of PTX: one departure, one row.

A row says which versions do it, what the manual says, what the compiler does, and how that is known. The passes of
`lowering` give the steps that a row concerns another action, by functions that have the names of the rows.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

CompilerVersion = Literal["12.9", "13.0", "13.4"]
VERSIONS: tuple[CompilerVersion, ...] = get_args(CompilerVersion)
OLDER: tuple[CompilerVersion, ...] = ("12.9", "13.0")
DEFAULT: CompilerVersion = "13.0"
"""The compiler in the driver of the H200 that all was measured on."""


class Departure(NamedTuple):
    """One departure; `warns` where a program that follows the manual is compiled to another one."""

    name: str
    versions: tuple[CompilerVersion, ...]
    manual: str
    compiler: str
    source: str
    warns: bool = True


READ = "the code of ptxas 12.9, 13.0 and 13.4 for sm_90; random kernels and probes of 13.0 on an H200"
DEPARTURES = {
    row.name: row
    for row in (
        Departure(
            "guarded set", VERSIONS,
            "a guard that is false leaves d as it was",
            "the guard of set covers only its comparison: where it is false, d is converted from an integer to a float"
            " without its sign, or with operands of 16 bits extended from its lower half",
            READ,
        ),
        Departure(
            "guarded testp", VERSIONS,
            "a guard that is false leaves p as it was", "the guard of testp is ignored", READ,
        ),
        Departure(
            "guarded sum of bytes", VERSIONS,
            "a guard that is false leaves d as it was",
            "the guard of vadd4 and vsub4 with .add is ignored where all types are u32", READ,
        ),
        Departure(
            "long shift of 16 bits", VERSIONS,
            "an amount beyond the width shifts all bits out",
            "of an amount that is written as a number, shl and shr of 16 bits take the low 16 bits", READ,
        ),
        Departure(
            "selection by a constant", OLDER,
            "slct.s32 takes a where c is not negative", "slct.s32.s32 reads the bits of a constant c as an f32",
            READ,
        ),
        Departure(
            "float shift amount", VERSIONS,
            "the amount of a shift is an integer of 32 bits",
            "an amount that a float instruction of the same block left is converted from f32 to an integer", READ,
        ),
        Departure(
            "narrow store of a float", OLDER,
            "a store that is narrower than its register stores the low bits",
            "a value that a float instruction of the same block left is converted to an integer, and clamped;"
            " in a vector the last register decides for all", READ,
        ),
        Departure(
            "bfe beyond the word", VERSIONS,
            "bits beyond the word are the sign bit of the word",
            "bfe.s32 with a constant position of 32 or more and a constant length is -1", READ,
        ),
        Departure(
            "bfi of a long field", OLDER,
            "a length beyond the word goes to its end",
            "bfi.b32 with a constant position within a byte takes the length modulo 32", READ,
        ),
        Departure(
            "atomic sum of an unpacked half", VERSIONS,
            "both halves of a and b are added",
            "in shared memory, if the operand is a word of a 64-bit value, the upper half adds bits 32 to 47 of that",
            READ,
        ),
        Departure(
            "guarded abs and neg", VERSIONS,
            "abs and neg of f32 make a NaN canonical", "under a guard they change the sign of a NaN and keep its bits",
            READ, warns=False,
        ),
        Departure(
            "min and max of equal operands", VERSIONS,
            "min and max make a NaN canonical", "min and max of a value with itself are that value", READ, warns=False,
        ),
        Departure(
            "product with 1", VERSIONS,
            "a product makes a NaN canonical", "a product with 1 that says nothing about rounding is the other factor",
            READ, warns=False,
        ),
        Departure(
            "infinity times a subnormal", VERSIONS,
            ".ftz takes a subnormal factor as 0, which makes a NaN with an infinity",
            "where both are constants, mul and div.approx that say nothing about rounding leave out .ftz", READ,
        ),
        Departure(
            "function of a constant", VERSIONS,
            "approximate functions are those of the hardware",
            "of a constant they are computed by the compiler, rounded to nearest", READ, warns=False,
        ),
        Departure(
            "sign of a constant NaN", VERSIONS,
            "abs and neg make a NaN canonical, a conversion from f64 keeps its payload",
            "abs and neg of a constant NaN keep its payload, and its conversion from f64 to 16 bits is canonical",
            READ, warns=False,
        ),
        Departure(
            "conversion of a truth value", VERSIONS,
            "cvt reads the bits of its operand",
            "of the result of cnot, of a selected 0 or 1, or of set to f32, cvt to or from another kind of number may"
            " read the number 1",
            READ, warns=False,
        ),
        Departure(
            "sign before a selection", VERSIONS,
            "abs and neg of f32 make a NaN canonical",
            "a selection or a conversion that uses their result may take the NaN as it was", READ, warns=False,
        ),
        Departure(
            "selection by a power of 2", VERSIONS,
            "slct takes b where c is a NaN", "where c is the result of ex2 or abs, it takes a", READ,
        ),
        Departure(
            "abs of halves of a positive number", VERSIONS,
            "abs of two halves clears the signs of both",
            "it is dropped where the word is the result of an instruction on f32 that is never negative", READ,
        ),
        Departure(
            "low byte of a function of f16", VERSIONS,
            "a conversion from or to u8 takes 8 bits",
            "of the result of ex2 or tanh of f16 it takes all 16, and a mask that keeps the low byte keeps all", READ,
        ),
        Departure(
            "sign of 16 bits extended", OLDER,
            "neg and abs of the smallest s16 are that number",
            "an instruction that extends the result to 32 bits reads 32768", READ,
        ),
        Departure(
            "negation of a negation", VERSIONS,
            "neg makes a NaN canonical", "neg of the result of neg is the operand of the first, its bits unchanged",
            READ, warns=False,
        ),
        Departure(
            "comparison of a positive number with 0", VERSIONS,
            "a comparison with a NaN does not hold", "of the result of abs or ex2, it may be taken as a number", READ,
        ),
        Departure(
            "negated operand of mma", VERSIONS,
            "mma multiplies the two halves of a register of B as they are",
            "if neg.f32 left a register that is all of B, mma of f16 or bf16 may negate both of its halves", READ,
        ),
        Departure(
            "conversions between halves joined", VERSIONS,
            "cvt rounds to an integral bf16, then from f16 to an integer",
            "a cvt that rounds to integral numbers and one that reads them as another format may become one", READ,
        ),
        Departure(
            "tf32 of a packed sum", VERSIONS,
            "cvt reads 32 bits",
            "of a result of two halves, cvt.rn and cvt.rz to tf32 may read the lower half alone",
            READ,
        ),
        Departure(
            "truth value in both halves", VERSIONS,
            "the extension of a u16 to 32 bits is filled with zeros",
            "set of f16 or bf16 leaves 1.0 in both halves of a register, and what extends it from u16 reads both", READ,
        ),
        Departure(
            "truncation of a flushed half", VERSIONS,
            "cvt.rzi rounds towards zero",
            "cvt.rzi of the result of abs.ftz.f16 or neg.ftz.f16 rounds to nearest", READ,
        ),
        Departure(
            "fp8 of a known quarter", VERSIONS,
            "cvt reads the 16 bits of its register",
            "of the upper quarter of 64 bits whose upper word ptxas knows, cvt from fp8 may read another number (8 for"
            " 0)", READ,
        ),
        Departure(
            "lower word of a minimum", OLDER,
            "min and max of f64 compare their operands",
            "where nothing but the lower word of the result is read, they may leave that of b, or of a constant, unless"
            " the other operand is 0", READ,
        ),
        Departure(
            "flush of a joined comparison", VERSIONS,
            "with .ftz, setp and set compare subnormal numbers as 0",
            "setp.and.ftz.f32 that decides a branch or an exit, and setp.ftz.f32 in a block that may be skipped, behind"
            " a predicate that is a constant, and a comparison with 0 of what set.ftz left: subnormal numbers are"
            " compared as they are", READ,
        ),
        Departure(
            "predicate of a loop", OLDER,
            "a predicate has the value that was written last",
            "a predicate that is true where a loop is entered and that the loop changes by a logical operation on"
            " itself may be taken as still true",
            READ,
        ),
    )
}  # fmt: skip
