"""Opcodes for floats, halves, and the multi-function unit."""

from dataclasses import replace
from functools import partial

import numpy as np

from warpfrag.formats import special_functions
from warpfrag.machine.ir.actions import LaneOp
from warpfrag.machine.ir.opcode import Attributes, Binder
from warpfrag.machine.ir.program import Immediate, PtxOperand
from warpfrag.machine.ir.scalar_types import B32, BF16, BF16X2, F16, F16X2, F32, F64, PRED, Codes, Type, join, split
from warpfrag.machine.ops.floating import rounded
from warpfrag.machine.semantics import approximate_functions, floats
from warpfrag.machine.semantics.floats import FloatModifiers
from warpfrag.sass import sass_instruction as asm
from warpfrag.sass.emitter import ONE, ZERO, Emitter, Unsupported
from warpfrag.sass.opcodes.integer_opcodes import BOOLEANS, combine
from warpfrag.sass.opcodes.sass_row import Modifiers, SassRow, row

FLOAT_COMPARISONS = (
    "LT", "LE", "GT", "GE", "EQ", "NE", "LTU", "LEU", "GTU", "GEU", "EQU", "NEU", "NUM", "NAN", "T", "F",
)  # fmt: skip
ROUNDINGS = ("RZ", "RM", "RP")
STYLE = "FTZ SAT RZ RM RP"
OPERATIONS = {"ADD": ("add", 2, floats.add), "MUL": ("mul", 2, floats.multiply), "FMA": ("fma", 3, floats.fma)}
# the exponents of the f64 scale factors
SCALES = {"M2": 0x400, "M4": 0x401, "M8": 0x402, "D2": 0x3FE, "D4": 0x3FD, "D8": 0x3FC}
FUNCTIONS = {
    "RCP": special_functions.rcp, "RSQ": special_functions.rsqrt, "SQRT": special_functions.sqrt,
    "EX2": special_functions.ex2, "LG2": special_functions.lg2, "SIN": special_functions.sin,
    "COS": special_functions.cos, "TANH": special_functions.tanh,
}  # fmt: skip
UPPER = {
    "RCP64H": partial(special_functions.rcp, encoding=special_functions.UPPER),
    "RSQ64H": partial(special_functions.rsqrt, encoding=special_functions.UPPER),
}
UNIT_NAMES = {"RCP": "rcp", "RSQ": "rsqrt", "SQRT": "sqrt", "EX2": "ex2", "LG2": "lg2", "TANH": "tanh"}
"""Functions of the multi-function unit that equal PTX's .approx.ftz.f32 functions."""


def _emit_rounded(
    e: Emitter, attributes: Attributes, bind: Binder, result: PtxOperand, sources: list[PtxOperand]
) -> None:
    action = bind(attributes)
    if isinstance(action, LaneOp):
        action = replace(action, is_nan_order_certain=True)
    e.act(attributes, action, [result], sources)


def arithmetic(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """FADD, FMUL, FFMA and their f64 forms: add, multiply, or both, with one rounding.

    A NaN result is 7fffffff in f32; in f64, it is the first NaN among b, c and a.
    """
    opcode, count, function = OPERATIONS[modifiers.opcode[1:]]
    is_double = modifiers.opcode[0] == "D"
    dtype = F64 if is_double else F32
    sources = [(e.double if is_double else e.single)(operand) for operand in a[1 : 1 + count]]
    result = e.results(a[0], 2) if is_double else e.result(a[0])
    rounding = modifiers.first(ROUNDINGS, "RN").lower()
    ftz, sat = "FTZ" in modifiers, "SAT" in modifiers
    name = f"{opcode}.{rounding}{'.ftz' if ftz else ''}{'.sat' if sat else ''}.{dtype.name}"
    attributes = Attributes(name, opcode, (dtype,), count + 1, rounding=rounding, ftz=ftz, sat=sat)  # type: ignore[arg-type]
    _emit_rounded(e, attributes, rounded(count, function), result, sources)


def scaled_product(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """FMUL, including FMUL.M8 to FMUL.D8, which also multiply by a power of two.

    The product is rounded once, because ptxas emits the scale only for mul without .rn. Subnormal results were not
    measured.
    """
    scale = modifiers.first(tuple(SCALES), "")
    if not scale:
        arithmetic(e, modifiers, a)
        return
    if modifiers.first(ROUNDINGS, ""):
        raise Unsupported(f"FMUL.{scale} with a rounding mode")
    style = ".ftz" * ("FTZ" in modifiers)
    wide = [e.compute(f"cvt{style}.f64.f32", e.single(operand), bits=64) for operand in a[1:3]]
    exact = e.compute("mul.rn.f64", *wide, bits=64)
    product = e.compute("mul.rn.f64", exact, Immediate(SCALES[scale] << 52), bits=64)
    single = e.compute("cvt.rn.f32.f64", product)  # multiplying by 1 turns a NaN into 7fffffff
    e.emit(f"mul.rn{style}{'.sat' * ('SAT' in modifiers)}.f32", [e.result(a[0])], [single, Immediate(0x3F800000)])


def _format(modifiers: Modifiers) -> Type:
    return BF16X2 if "BF16_V2" in modifiers or "BF16" in modifiers else F16X2


def half_arithmetic(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """HADD2, HMUL2, HFMA2: operate on each half separately; HADD2.F32 adds the low halves as f32."""
    opcode, count, function = OPERATIONS[modifiers.opcode[1:-1]]
    dtype = _format(modifiers)
    sources = [e.halves(operand) for operand in a[1 : 1 + count]]
    ftz, sat, relu = ("FTZ" in modifiers), ("SAT" in modifiers), ("RELU" in modifiers)
    if "F32" in modifiers:
        if opcode != "add":
            raise Unsupported(f"{modifiers.opcode}.F32")
        wide = [e.compute(f"cvt.f32.{dtype.element}", source) for source in sources]
        e.emit(f"add.rn{'.ftz' if ftz else ''}{'.sat' if sat else ''}.f32", [e.result(a[0])], wide)
        return
    if "OOB" in modifiers:
        e.emit(f"fma.rn.oob{'.relu' if relu else ''}.{dtype.name}", [e.result(a[0])], sources)
        return
    name = f"{opcode}.rn.{dtype.name}"
    attributes = Attributes(name, opcode, (dtype,), count + 1, rounding="rn", ftz=ftz, sat=sat, relu=relu)
    _emit_rounded(e, attributes, rounded(count, function), e.result(a[0]), sources)


def _extreme(
    e: Emitter, modifiers: Modifiers, dtype: Type, result: PtxOperand, values: list[PtxOperand], chooser: asm.Operand
) -> None:
    """Emit the minimum if the predicate is true, else the maximum."""
    style = FloatModifiers(
        ftz="FTZ" in modifiers, nan="NAN" in modifiers, xorsign_abs="XORSIGN" in modifiers, relu="RELU" in modifiers
    )
    opcode = "min" if e.predicate(chooser) == ONE else "max"

    def run(*codes: Codes) -> Codes:
        *terms, least = codes

        def pick(*parts: Codes) -> Codes:
            total = [parts[0], parts[0]]
            for part in parts[1:]:
                total = [floats.extreme(dtype.element, style, t, part, largest=i == 1) for i, t in enumerate(total)]
            return np.where(least, *total)

        if dtype.parts == 1:
            return pick(*terms)
        return join([pick(*parts) for parts in zip(*(split(term, 2, 16) for term in terms), strict=True)], 16)

    held = e.predicate(chooser)
    if dtype == F32 and held in {ZERO, ONE} and len(values) == 2 and "XORSIGN" not in modifiers:
        nan = ".NaN" if "NAN" in modifiers else ""
        e.emit(f"{opcode}{'.ftz' if 'FTZ' in modifiers else ''}{nan}.f32", [result], values)
        return
    e.call("extreme", ((dtype,), (*(dtype,) * len(values), PRED)), run, [result], [*values, held])


def fmnmx(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """FMNMX: return the minimum if the predicate is true, else the maximum; .XORSIGN ignores operand modifiers."""
    read = e.unselected if "XORSIGN" in modifiers else e.single
    _extreme(e, modifiers, F32, e.result(a[0]), [read(operand) for operand in a[1:3]], a[3])


def hmnmx2(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """HMNMX2, and VHMNMX with three operands: apply FMNMX to each half."""
    values = []
    for operand in a[1:-1]:
        if "XORSIGN" in modifiers and isinstance(operand, asm.RegisterOperand):
            values.append(e.halves(replace(operand, absolute=False)))
        else:
            values.append(e.halves(operand))
    _extreme(e, modifiers, _format(modifiers), e.result(a[0]), values, a[-1])


def set_predicates(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """FSETP and DSETP: P = (a cmp b) op c, Q = !(a cmp b) op c."""
    is_double = modifiers.opcode[0] == "D"
    dtype = F64 if is_double else F32
    x, y = ((e.double if is_double else e.single)(operand) for operand in a[2:4])
    if "MIN" in modifiers or "MAX" in modifiers:
        _choose_extreme(e, modifiers, dtype, a, x, y)
        return
    order = modifiers.first(FLOAT_COMPARISONS)
    if order in {"T", "F"}:
        combine(e, modifiers, ONE if order == "T" else ZERO, [a[0], a[1], a[4]])
        return
    boolean = modifiers.first(BOOLEANS, "AND").lower()
    name = f"setp.{order.lower()}.{boolean}{'.ftz' if 'FTZ' in modifiers else ''}.{dtype.name}"
    e.emit(name, [e.result(a[0]), e.result(a[1])], [x, y, e.predicate(a[4])])


def _choose_extreme(
    e: Emitter, modifiers: Modifiers, dtype: Type, a: list[asm.Operand], x: PtxOperand, y: PtxOperand
) -> None:
    """DSETP.MIN and .MAX: P is true if a is selected (for equal operands, only by .MIN), Q if both are NaNs."""

    def run(p: Codes, q: Codes) -> tuple[Codes, Codes]:
        nan_p, nan_q = floats.is_nan(p, dtype.element), floats.is_nan(q, dtype.element)
        first, second = floats.ordered(p), floats.ordered(q)
        taken = first > second if "MAX" in modifiers else first <= second
        return np.where(nan_p, False, np.where(nan_q, True, taken)), nan_p & nan_q  # noqa: FBT003

    e.call("setp_extreme", ((PRED, PRED), (dtype, dtype)), run, [e.result(a[0]), e.result(a[1])], [x, y])


def fset(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """FSET: return all ones, or 1.0 with .BF, if the comparison is true."""
    order, boolean = modifiers.first(FLOAT_COMPARISONS).lower(), modifiers.first(BOOLEANS, "AND").lower()
    name = f"set.{order}.{boolean}{'.ftz' if 'FTZ' in modifiers else ''}.{'f32' if 'BF' in modifiers else 'u32'}.f32"
    e.emit(name, [e.result(a[0])], [e.single(a[1]), e.single(a[2]), e.predicate(a[3])])


def hsetp2(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """HSETP2: P compares the low halves, Q the high halves; with .H_AND, P is their conjunction and Q its negation."""
    sources = [e.halves(a[2]), e.halves(a[3])]
    if "H_AND" in modifiers:
        held: list[PtxOperand] = [e.temporary(1), e.temporary(1)]
        _compare_halves(e, modifiers, "", held, sources)
        combine(e, modifiers, e.compute("and.pred", *held, bits=1), [a[0], a[1], a[4]])
        return
    boolean = modifiers.first(BOOLEANS, "AND").lower()
    _compare_halves(e, modifiers, f".{boolean}", [e.result(a[0]), e.result(a[1])], [*sources, e.predicate(a[4])])


def _compare_halves(
    e: Emitter, modifiers: Modifiers, boolean: str, results: list[PtxOperand], sources: list[PtxOperand]
) -> None:
    order = modifiers.first(FLOAT_COMPARISONS).lower()
    if order in {"t", "f"}:
        raise Unsupported(f"the half-precision comparison .{order.upper()}")
    name = f"setp.{order}{boolean}{'.ftz' if 'FTZ' in modifiers else ''}.{_format(modifiers).name}"
    e.emit(name, results, sources)


def hset2(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """HSET2: return all ones, or 1.0 with .BF, in each half in which the comparison is true."""
    held: list[PtxOperand] = [e.temporary(1), e.temporary(1)]
    sources = [e.halves(a[1]), e.halves(a[2]), e.predicate(a[3])]
    _compare_halves(e, modifiers, f".{modifiers.first(BOOLEANS, 'AND').lower()}", held, sources)
    one = floats.CODE_OF_1[_format(modifiers).element] if "BF" in modifiers else 0xFFFF
    low = e.compute("selp.b32", Immediate(one), ZERO, held[0])
    high = e.compute("selp.b32", Immediate(one << 16), ZERO, held[1])
    e.emit("or.b32", [e.result(a[0])], [low, high])


def fsel(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """FSEL: d = p ? a : b, with sign modifiers; .FTZ flushes the result."""
    sources = [e.single(a[1]), e.single(a[2]), e.predicate(a[3])]
    if "FTZ" not in modifiers:
        e.emit("selp.b32", [e.result(a[0])], sources)
        return
    chosen = e.compute("selp.b32", *sources)
    e.call("flush", ((F32,), (F32,)), partial(floats.flush, name="f32"), [e.result(a[0])], [chosen])


def fchk(e: Emitter, _modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """FCHK: return true if dividing the two floats requires the slow path."""
    sources = [e.single(a[1]), e.single(a[2])]
    e.call("division_check", ((PRED,), (F32, F32)), needs_slow_division, [e.result(a[0])], sources)


def needs_slow_division(x: Codes, y: Codes) -> Codes:
    """Return a mask of pairs for which the fast path of x / y may lose bits.

    Only exponents matter (57,344 pairs measured).
    """
    first, second = ((code >> np.uint32(23) & np.uint32(0xFF)).astype(np.int32) for code in (x, y))
    difference = first - second
    outside = (first <= 24) | (first == 255) | (second <= 1) | (second >= 252)
    return outside | (difference <= -125) | (difference >= 127)


def mufu(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """MUFU: evaluate a function of the multi-function unit, using tables that were measured for every input."""
    name = modifiers.all[0]
    result = e.result(a[0])
    narrow = {"F16": F16, "BF16": BF16, "BF16_V2": BF16}.get(modifiers.first(("F16", "BF16", "BF16_V2")))
    if narrow is not None and name in FUNCTIONS:
        run = partial(approximate_functions.narrow, FUNCTIONS[name], narrow.element)
        e.call("mufu", ((narrow,), (narrow,)), run, [result], [e.halves(a[1])])
        return
    source = e.single(a[1])
    if name in UNIT_NAMES:
        ftz = "" if name == "TANH" else ".ftz"
        e.emit(f"{UNIT_NAMES[name]}.approx{ftz}.f32", [result], [source])
        return
    function = FUNCTIONS.get(name) or UPPER.get(name)
    if function is None:
        raise Unsupported(f"MUFU.{name}")
    e.call(f"mufu_{name.lower()}", ((B32,), (B32,)), function, [result], [source])


HALF = "BF16_V2 RELU MMA FTZ SAT F32 OOB"
COMPARED = " ".join((*FLOAT_COMPARISONS, *BOOLEANS))
UNIT = "a table of every f32 input, measured on an H200"
ROWS: list[SassRow] = [
    *row("FADD FFMA", STYLE, arithmetic),
    *row("FMUL", f"{STYLE} {' '.join(SCALES)}", scaled_product),
    *row("DADD DMUL DFMA", "RZ RM RP", arithmetic),
    *row("HADD2 HMUL2 HFMA2", HALF, half_arithmetic),
    *row("FMNMX", "FTZ NAN XORSIGN", fmnmx),
    *row("HMNMX2", "BF16_V2 FTZ NAN XORSIGN RELU", hmnmx2),
    *row("VHMNMX", "BF16_V2 FTZ NAN RELU", hmnmx2),
    *row("FSETP", f"FTZ {COMPARED}", set_predicates),
    *row("DSETP", f"MIN MAX {COMPARED}", set_predicates),
    *row("FSET", f"BF FTZ {COMPARED}", fset),
    *row("HSETP2", f"BF16_V2 FTZ H_AND {COMPARED}", hsetp2),
    *row("HSET2", f"BF BF16_V2 FTZ {COMPARED}", hset2),
    *row("FSEL", "FTZ", fsel),
    *row("FCHK", "", fchk),
    *row("MUFU", "RCP SIN COS LG2 TANH EX2 RSQ SQRT RSQ64H RCP64H F16 BF16 BF16_V2", mufu, UNIT),
]
