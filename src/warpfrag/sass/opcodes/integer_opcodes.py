"""Integer, logic and predicate opcodes; uniform forms (UIADD3, ULOP3) use the same operations."""

from functools import partial

import numpy as np

from warpfrag.machine.ir.program import Discard, Immediate, PtxOperand, VectorOperand
from warpfrag.machine.ir.scalar_types import B32, PRED, U32, Codes, split
from warpfrag.machine.semantics import integers
from warpfrag.sass import sass_instruction as asm
from warpfrag.sass.emitter import ONE, ZERO, Emitter, Unsupported
from warpfrag.sass.opcodes.sass_row import Modifiers, SassRow, is_predicate, is_true, row

COMPARISONS = ("LT", "LE", "GT", "GE", "EQ", "NE", "T", "F")
BOOLEANS = ("AND", "OR", "XOR")
PERMUTATIONS = ("F4E", "B4E", "RC8", "ECL", "ECR", "RC16")
PREDICATES = 7


def mov(e: Emitter, _modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """MOV: copy 32 bits; partial byte masks are not modelled."""
    if len(a) > 2 and a[2] != asm.ImmediateOperand(0xF):
        raise Unsupported("MOV with a byte mask")
    e.emit("mov.b32", [e.result(a[0])], [e.word(a[1])])


def _addend(e: Emitter, operand: asm.Operand) -> tuple[PtxOperand, int]:
    """Return a term of a sum with carries, and a constant to add, which is 1 for a negated term: -r = ~r + 1."""
    value = e.unselected(operand)
    if getattr(operand, "negate", False):
        return e.compute("not.b32", value), 1
    return (e.compute("not.b32", value), 0) if getattr(operand, "invert", False) else (value, 0)


def sum_with_carries(
    e: Emitter, result: PtxOperand, carries_out: list[PtxOperand], terms: list[asm.Operand], carries: list[PtxOperand]
) -> None:
    """Emit the sum of up to three terms and two carries; the carries out are sum >= 2**32 and sum >= 2**33."""
    if not carries and all(isinstance(carry, Discard) for carry in carries_out):
        emit_sum(e, result, [], [e.integer(term) for term in terms], [], 0)
        return
    values, more = zip(*(_addend(e, term) for term in terms), strict=True)
    emit_sum(e, result, carries_out, list(values), carries, sum(more))


def emit_sum(
    e: Emitter,
    result: PtxOperand,
    carries_out: list[PtxOperand],
    values: list[PtxOperand],
    carries: list[PtxOperand],
    more: int,
) -> None:
    """Emit the sum of up to three words, two carries and a constant."""
    modifiers = [value for value in values if value != ZERO] + [ZERO] * 3
    given = [carry for carry in carries if carry != ZERO]
    if all(isinstance(carry, Discard) for carry in carries_out) and not given and not more:
        total = modifiers[0]
        for index in (1, 2):
            if modifiers[index] != ZERO:
                is_last = modifiers[index + 1] == ZERO
                target = result if is_last else e.temporary()
                e.emit("add.u32", [target], [total, modifiers[index]])
                total = target
        if modifiers[1] == ZERO:
            e.emit("mov.b32", [result], [modifiers[0]])
        return
    outs = [*carries_out, Discard(), Discard()][:2]
    carried = [*given, ZERO, ZERO][:2]
    types = ((U32, PRED, PRED), (U32, U32, U32, PRED, PRED, U32))
    e.call("iadd3", types, add3, [result, *outs], [*modifiers[:3], *carried, Immediate(more)])


def add3(a: Codes, b: Codes, c: Codes, p: Codes, q: Codes, more: Codes) -> tuple[Codes, Codes, Codes]:
    """Return a sum of words, modulo 2**32, and the carries sum >= 2**32 and sum >= 2**33."""
    wide = a.astype(np.uint64) + b + c + p + q + more
    carry = wide >> np.uint64(32)
    return wide.astype(np.uint32), carry >= 1, carry >= 2


def iadd3(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """IADD3: d = a + b + c, with up to two carries in (.X) and two carries out."""
    if "64" in modifiers:
        values = [e.long(operand) for operand in a[1:4]]
        partial_sum = e.compute("add.u64", values[0], values[1], bits=64)
        e.emit("add.u64", [e.results(a[0], 2)], [partial_sum, values[2]])
        return
    rest, outs = a[1:], list[PtxOperand]()
    while is_predicate(rest[0]) and len(outs) < 2:
        outs.append(e.result(rest[0]))
        rest = rest[1:]
    sum_with_carries(e, e.result(a[0]), outs, rest[:3], [e.predicate(operand) for operand in rest[3:]])


def viadd(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """VIADD: d = a + b; with .16x2, each half separately."""
    dtype = "u16x2" if "16x2" in modifiers else "u32"
    e.emit(f"add.{dtype}", [e.result(a[0])], [e.integer(a[1]), e.integer(a[2])])


def imad(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """IMAD: d = a * b + c. .WIDE: c and d have 64 bits. .HI: return the upper word of the sum with a 64-bit c."""
    rest, out = a[1:], None
    if is_predicate(rest[0]):
        out, rest = e.result(rest[0]), rest[1:]
    carry = e.predicate(rest[3]) if len(rest) > 3 else ZERO
    x, y, z = rest[:3]
    negates = getattr(x, "negate", False) != getattr(y, "negate", False)
    if any(getattr(operand, "invert", False) or getattr(operand, "absolute", False) for operand in (x, y)):
        raise Unsupported("an inverted or absolute factor")
    p, q = e.unselected(x), e.unselected(y)
    if "WIDE" in modifiers or "HI" in modifiers:
        _imad_wide(e, modifiers, a[0], (p, q, z), (out, carry, negates))
        return
    if out is not None:
        raise Unsupported("a carry out of a 32-bit sum")
    factor = e.compute("neg.s32", p) if negates else p
    if ZERO in {factor, q}:
        emit_sum(e, e.result(a[0]), [], [e.integer(z)], [carry], 0)
    elif carry == ZERO:
        e.emit("mad.lo.u32", [e.result(a[0])], [factor, q, e.integer(z)])
    else:
        term = e.compute("mul.lo.u32", factor, q)
        emit_sum(e, e.result(a[0]), [], [term, e.integer(z)], [carry], 0)


def _imad_wide(
    e: Emitter,
    modifiers: Modifiers,
    target: asm.Operand,
    operands: tuple[PtxOperand, PtxOperand, asm.Operand],
    options: tuple[PtxOperand | None, PtxOperand, bool],
) -> None:
    dtype = "u32" if "U32" in modifiers else "s32"
    x, y, z = operands
    out, carry, negates = options
    if isinstance(z, asm.ImmediateOperand):
        addend: PtxOperand = Immediate(z.value) if dtype == "u32" else e.long(z)
    elif out is not None and getattr(z, "negate", False):  # -z is ~z + 1, and adding 1 may produce a carry
        addend, carry = e.compute("not.b64", e.pair(z), bits=64), ONE
    else:
        addend = e.long(z)
    result = VectorOperand((Discard(), e.result(target))) if "HI" in modifiers else e.results(target, 2)
    if not negates and out is None and carry == ZERO:
        e.emit(f"mad.wide.{dtype}", [result], [x, y, addend])
        return
    term = e.compute(f"mul.wide.{dtype}", x, y, bits=64)
    if negates:
        term = e.compute("neg.s64", term, bits=64)
    name = "add.cc.u64" if carry == ZERO else "addc.cc.u64"
    e.emit(name, [result, Discard() if out is None else out], [term, addend, *([] if carry == ZERO else [carry])])


def lea(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """LEA: d = (a << s) + b. .HI: use the upper word of c:a << s. .SX32: c is the sign of a. .X: add a carry."""
    rest, outs = a[1:], list[PtxOperand]()
    if is_predicate(rest[0]):
        outs, rest = [e.result(rest[0])], rest[1:]
    carries = list[PtxOperand]()
    if "X" in modifiers:
        carries, rest = [e.predicate(rest[-1])], rest[:-1]
    changed = [
        part for part in (rest[0], *rest[2:]) if getattr(part, "negate", False) or getattr(part, "invert", False)
    ]
    if changed and ("HI" in modifiers or outs or carries):
        raise Unsupported("a negated shifted operand with carries")
    x, shift = e.integer(rest[0]), e.word(rest[-1])
    if "HI" in modifiers:
        upper = e.compute("shr.s32", x, Immediate(31)) if "SX32" in modifiers else e.word(rest[2])
        shifted = e.compute("shf.l.wrap.b32", x, upper, shift)
    else:
        shifted = e.compute("shl.b32", x, shift)
    term, more = _addend(e, rest[1])
    if more and not outs and not carries:
        term, more = e.integer(rest[1]), 0
    emit_sum(e, e.result(a[0]), outs, [shifted, term], carries, more)


def shf(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """SHF: shift the pair c:a. .HI returns the upper word; .W takes the count modulo the width, else it is clamped."""
    d, x, count, c = e.result(a[0]), e.word(a[1]), e.word(a[2]), e.word(a[3])
    is_left, upper, wraps = "L" in modifiers, "HI" in modifiers, "W" in modifiers
    is_64 = "U64" in modifiers or "S64" in modifiers
    is_signed = "S32" in modifiers or "S64" in modifiers
    if not is_64 and is_left == upper:
        e.emit(f"shf.{'l' if is_left else 'r'}.{'wrap' if wraps else 'clamp'}.b32", [d], [x, c, count])
        return
    if wraps:
        count = e.compute("and.b32", count, Immediate(63 if is_64 else 31))
    if not is_64:
        name = "shl.b32" if is_left else f"shr.{'s' if is_signed else 'u'}32"
        e.emit(name, [d], [x if is_left else c, count])
        return
    result = VectorOperand((Discard(), d)) if upper else VectorOperand((d, Discard()))
    name = "shl.b64" if is_left else f"shr.{'s' if is_signed else 'u'}64"
    e.emit(name, [result], [VectorOperand((x, c)), count])


def prmt(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """PRMT: select bytes of c:a, as the middle operand specifies."""
    mode = modifiers.first(PERMUTATIONS)
    e.emit(
        f"prmt.b32.{mode.lower()}" if mode else "prmt.b32", [e.result(a[0])], [e.word(a[1]), e.word(a[3]), e.word(a[2])]
    )


def lop3(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """LOP3: apply a three-input bitwise function.

    A predicate result is `(d != 0) or p`, where p is another predicate; with .PAND, it is `(d != 0) and p`.
    """
    out = None
    if is_predicate(a[0]):
        out, a = e.result(a[0]), a[1:]
    values = [e.integer(operand) for operand in a[1:4]]
    lut = e.word(a[4])
    if out is None or isinstance(out, Discard):
        e.emit("lop3.b32", [e.result(a[0])], [*values, lut])
        return
    other = e.predicate(a[5]) if len(a) > 5 else ZERO
    bits = e.compute("lop3.b32", *values, lut)
    e.emit(f"setp.ne.{'and' if 'PAND' in modifiers else 'or'}.u32", [out], [bits, ZERO, other])
    e.emit("mov.b32", [e.result(a[0])], [bits])


def plop3(e: Emitter, _modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """PLOP3: compute two three-input functions of predicates."""
    tables = [operand.value for operand in a[5:7] if isinstance(operand, asm.ImmediateOperand)]
    values = [e.predicate(operand) for operand in a[2:5]]
    results = [e.result(operand) for operand in a[:2]]
    wanted = [(result, lut) for result, lut in zip(results, tables, strict=True) if not isinstance(result, Discard)]
    found = [_table_of_predicates(e, lut, values) for _, lut in wanted]
    for (result, _), value in zip(wanted, found, strict=True):
        e.emit("mov.pred", [result], [value])


def _table_of_predicates(e: Emitter, lut: int, values: list[PtxOperand]) -> PtxOperand:
    """Return the value of a truth table for these predicates by repeatedly selecting half of the table."""
    if not values:
        return ONE if lut & 1 else ZERO
    half = 1 << (len(values) - 1)
    low, high = lut & ((1 << half) - 1), lut >> half & ((1 << half) - 1)
    first, rest = values[0], values[1:]
    if low == high or first == ZERO:
        return _table_of_predicates(e, low, rest)
    if first == ONE:
        return _table_of_predicates(e, high, rest)
    if_false, if_true = _table_of_predicates(e, low, rest), _table_of_predicates(e, high, rest)
    if (if_false, if_true) == (ZERO, ONE):
        return first
    if (if_false, if_true) == (ONE, ZERO):
        return e.inverse(first)
    chosen = e.compute("and.pred", first, if_true, bits=1)
    other = e.compute("and.pred", e.inverse(first), if_false, bits=1)
    return e.compute("or.pred", chosen, other, bits=1)


def sel(e: Emitter, _modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """SEL: d = p ? a : b."""
    e.emit("selp.b32", [e.result(a[0])], [e.integer(a[1]), e.integer(a[2]), e.predicate(a[3])])


def combine(e: Emitter, modifiers: Modifiers, held: PtxOperand, a: list[asm.Operand]) -> None:
    """Write P = held op c and Q = !held op c; `a` lists P, Q and c."""
    name, other = f"{modifiers.first(BOOLEANS, 'AND').lower()}.pred", e.predicate(a[2])
    first = e.result(a[0])
    second = e.result(a[1])
    if not isinstance(second, Discard):
        copy = e.compute(name, held, other, bits=1) if not isinstance(first, Discard) else held
        e.emit(name, [second], [e.inverse(held), other])
        if not isinstance(first, Discard):
            e.emit("mov.pred", [first], [copy])
        return
    e.emit(name, [first], [held, other])


def isetp(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """ISETP: P = (a cmp b) op c, Q = !(a cmp b) op c. .EX: compare upper words.

    With .EX, the last operand is the result of comparing the lower words.
    """
    order = modifiers.first(COMPARISONS)
    dtype = "u32" if "U32" in modifiers else "s32"
    x, y = e.integer(a[2]), e.integer(a[3])
    if order in {"T", "F"}:
        held: PtxOperand = ONE if order == "T" else ZERO
    elif "EX" in modifiers:
        lower = e.predicate(a[5])
        if order == "NE":
            held = e.compute(f"setp.ne.or.{dtype}", x, y, lower, bits=1)
        else:
            held = e.compute(f"setp.eq.and.{dtype}", x, y, lower, bits=1)
        if order not in {"EQ", "NE"}:
            held = e.compute(f"setp.{order[0].lower()}t.or.{dtype}", x, y, held, bits=1)
    else:
        name = f"setp.{order.lower()}.{modifiers.first(BOOLEANS, 'AND').lower()}.{dtype}"
        e.emit(name, [e.result(a[0]), e.result(a[1])], [x, y, e.predicate(a[4])])
        return
    combine(e, modifiers, held, [a[0], a[1], a[4]])


def sgxt(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """SGXT: sign-extend the low bits of a, or with .U32, zero-extend them."""
    name = f"szext.{'wrap' if 'W' in modifiers else 'clamp'}.{'u' if 'U32' in modifiers else 's'}32"
    e.emit(name, [e.result(a[0])], [e.word(a[1]), e.word(a[2])])


def bmsk(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """BMSK: return a mask of b ones that starts at bit a."""
    e.emit(f"bmsk.{'wrap' if 'W' in modifiers else 'clamp'}.b32", [e.result(a[0])], [e.word(a[1]), e.word(a[2])])


def flo(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """FLO: return the position of the leading bit; .SH: 31 minus the position."""
    if len(a) > 2 and is_predicate(a[1]):
        if not is_true(a[1]):
            raise Unsupported("FLO with a predicate result")
        a = [a[0], *a[2:]]
    name = f"bfind{'.shiftamt' if 'SH' in modifiers else ''}.{'u' if 'U32' in modifiers else 's'}32"
    e.emit(name, [e.result(a[0])], [e.integer(a[1])])


def unary(name: str) -> partial[None]:
    """Return the emitter of an opcode with one operand."""
    return partial(_unary, name)


def _unary(name: str, e: Emitter, _modifiers: Modifiers, a: list[asm.Operand]) -> None:
    e.emit(name, [e.result(a[0])], [e.integer(a[1])])


def p2r(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """P2R: replace the bits of c that a mask selects with predicates.

    .B1 to .B3 select a byte other than the lowest.
    """
    byte = 8 * int(modifiers.first(("B1", "B2", "B3"), "B0")[1:])
    file = "UP" if getattr(a[1], "file", "") == "UPR" else "P"

    def run(*codes: Codes) -> Codes:
        *predicates, c, mask, shift = codes
        bits = np.zeros_like(c)
        for index, held in enumerate(predicates):
            bits |= held.astype(np.uint32) << np.uint32(index)
        mask = (mask & np.uint32(0xFF)) << shift  # bit 7 is 0, because there are only seven predicates
        return bits << shift & mask | c & ~mask

    mask = a[3].value if isinstance(a[3], asm.ImmediateOperand) else -1
    sources = [e.register(file, index) if mask >> index & 1 else ZERO for index in range(PREDICATES)]
    types = (*(PRED,) * PREDICATES, B32, B32, B32)
    e.call("p2r", ((B32,), types), run, [e.result(a[0])], [*sources, *map(e.word, a[2:4]), Immediate(byte)])


def r2p(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """R2P: set the predicates that a mask selects to bits of a register."""
    mask = a[2] if len(a) > 2 else asm.ImmediateOperand((1 << PREDICATES) - 1)
    if not isinstance(mask, asm.ImmediateOperand):
        raise Unsupported("R2P with a mask that is not an immediate")
    selector = getattr(a[1], "selector", "") or modifiers.first(("B1", "B2", "B3"), "B0")
    shift = 8 * int(selector[1:])
    file = "UP" if getattr(a[0], "file", "") == "UPR" else "P"
    for index in range(PREDICATES):
        if mask.value >> index & 1:
            bit = e.compute("and.b32", e.bits_of(a[1]), Immediate(1 << (index + shift)))
            e.emit("setp.ne.u32", [e.register(file, index)], [bit, ZERO])


def vimnmx(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """VIMNMX: return the minimum of two or three operands if the predicate is true, else the maximum."""
    _extremes(e, modifiers, a[0], [e.integer(operand) for operand in a[1:-1]], a[-1])


def viaddmnmx(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """VIADDMNMX: return the minimum or maximum of a + b and c."""
    dtype = "u16x2" if "S16x2" in modifiers or "U16x2" in modifiers else "u32"
    total = e.compute(f"add.{dtype}", e.integer(a[1]), e.integer(a[2]))
    _extremes(e, modifiers, a[0], [total, e.integer(a[3])], a[4])


def _extremes(
    e: Emitter, modifiers: Modifiers, target: asm.Operand, values: list[PtxOperand], chooser: asm.Operand
) -> None:
    dtype = modifiers.first(("S16x2", "U16x2", "U32"), "S32").lower()
    relu = "RELU" in modifiers

    def pick(name: str, result: PtxOperand) -> None:
        total = values[0]
        for index, value in enumerate(values[1:], 2):
            is_last = index == len(values)
            to = result if is_last else e.temporary()
            e.emit(f"{name}{'.relu' if relu and is_last else ''}.{dtype}", [to], [total, value])
            total = to

    held = e.predicate(chooser)
    if held in {ZERO, ONE}:
        pick("min" if held == ONE else "max", e.result(target))
        return
    low, high = e.temporary(), e.temporary()
    pick("min", low)
    pick("max", high)
    e.emit("selp.b32", [e.result(target)], [low, high, held])


def vabsdiff(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """VABSDIFF: d = |a - b| + c."""
    dtype = "u32" if "U32" in modifiers else "s32"
    e.emit(f"sad.{dtype}", [e.result(a[0])], [e.integer(operand) for operand in a[1:4]])


def vabsdiff4(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """VABSDIFF4: return |a - b| for each byte (signed without .U8); with .ACC, return their sum plus c."""
    dtype, accumulates = "u" if "U8" in modifiers else "s", "ACC" in modifiers

    def run(x: Codes, y: Codes, c: Codes) -> Codes:
        total = c if accumulates else np.zeros_like(c)
        for index, (p, q) in enumerate(zip(split(x, 4, 8), split(y, 4, 8), strict=True)):
            values = [integers.values_of(part, dtype).astype(np.int32) for part in (p, q)]
            difference = np.abs(values[0] - values[1]).astype(np.uint32)
            total = total + (difference if accumulates else (difference & np.uint32(255)) << np.uint32(8 * index))
        return total

    e.call("vabsdiff4", ((B32,), (B32,) * 3), run, [e.result(a[0])], [e.integer(operand) for operand in a[1:4]])


def idp(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """IDP: compute dp4a or dp2a."""
    dtypes = [word[0].lower() for word in modifiers.chosen(("S8", "U8", "S16", "U16"))]
    values = [e.integer(operand) for operand in a[1:4]]
    first, second = (f"{dtype}32" for dtype in dtypes)
    half = "" if "4A" in modifiers else ".hi" if "HI" in modifiers else ".lo"
    e.emit(f"{'dp4a' if '4A' in modifiers else 'dp2a'}{half}.{first}.{second}", [e.result(a[0])], values)


ROWS: list[SassRow] = [
    *row("MOV", "", mov),
    *row("IADD3", "X 64", iadd3),
    *row("VIADD IADD", "16x2", viadd),
    *row("IMAD", "X WIDE U32 MOV IADD SHL HI", imad),
    *row("LEA", "HI X SX32", lea),
    *row("SHF", "L R W U32 S32 U64 S64 HI", shf),
    *row("PRMT", " ".join(PERMUTATIONS), prmt),
    *row("LOP3", "LUT PAND", lop3),
    *row("PLOP3", "LUT", plop3),
    *row("SEL", "", sel),
    *row("ISETP", "LT LE GT GE EQ NE T F U32 AND OR XOR EX", isetp),
    *row("SGXT", "U32 W", sgxt),
    *row("BMSK", "W", bmsk),
    *row("FLO", "U32 SH", flo),
    *row("POPC", "", unary("popc.b32")),
    *row("BREV", "", unary("brev.b32")),
    *row("IABS", "", unary("abs.s32")),
    *row("P2R", "B1 B2 B3", p2r),
    *row("R2P", "B1 B2 B3", r2p),
    *row("VIMNMX IMNMX VIMNMX3", "S16x2 U16x2 RELU U32 S32", vimnmx),
    *row("VIADDMNMX", "S16x2 U16x2 RELU U32", viaddmnmx),
    *row("VABSDIFF", "U32", vabsdiff),
    *row("VABSDIFF4", "U8 S8 ACC", vabsdiff4),
    *row("IDP", "4A 2A S8 U8 S16 U16 HI LO", idp),
]
