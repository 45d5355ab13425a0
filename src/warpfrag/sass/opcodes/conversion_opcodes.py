"""Opcodes that convert between integers and floats, pack, or unpack."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from warpfrag.machine.ir.program import Immediate, PtxOperand
from warpfrag.machine.ir.scalar_types import B16, B32, F32, TYPES, Codes, Type, signed
from warpfrag.machine.semantics import conversions, floats
from warpfrag.machine.semantics.floats import FloatModifiers
from warpfrag.sass import sass_instruction as asm
from warpfrag.sass.emitter import WORD, ZERO, Emitter, Unsupported
from warpfrag.sass.opcodes.sass_row import Modifiers, SassRow, row

INTEGERS = ("U8", "S8", "U16", "S16", "U32", "S32", "U64", "S64")
FLOATS = ("F64", "F16", "BF16", "F32")
SMALL = (*FLOATS, "E4M3", "E5M2", "TF32")
INTEGRAL = {"TRUNC": "rzi", "FLOOR": "rmi", "CEIL": "rpi"}
SIGNED = asm.RegisterOperand | asm.ConstantOperand
PACKINGS = ("PACK_AB", "PACK_AB_MERGE_C", "MERGE_C", "PACK_B", "UNPACK_B", "UNPACK_B_MERGE_C")


def _float(e: Emitter, operand: asm.Operand, name: str) -> PtxOperand:
    if name == "F64":
        return e.double(operand)
    return e.single(operand) if name == "F32" else e.halves(operand)


def _integer(e: Emitter, operand: asm.Operand, name: str) -> PtxOperand:
    """Return an integer operand; .B1 or .H1 selects a byte or half, and a 64-bit immediate is the upper word."""
    if name.endswith("64"):
        return Immediate((operand.value & WORD) << 32) if isinstance(operand, asm.ImmediateOperand) else e.pair(operand)
    selector = getattr(operand, "selector", "")
    value = e.integer(replace(operand, selector="") if isinstance(operand, asm.RegisterOperand) else operand)
    if selector in {"", "B0", "H0"}:
        return value
    return e.compute("shr.u32", value, Immediate(int(selector[1:]) * (8 if selector[0] == "B" else 16)))


def _result(e: Emitter, operand: asm.Operand, name: str) -> PtxOperand:
    return e.results(operand, 2) if name.endswith("64") else e.result(operand)


def i2f(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """I2F: convert an integer to a float."""
    target, source = modifiers.first(FLOATS, "F32"), modifiers.first(INTEGERS, "S32")
    rounding = modifiers.first(("RZ", "RM", "RP"), "RN").lower()
    name = f"cvt.{rounding}.{target.lower()}.{source.lower()}"
    e.emit(name, [_result(e, a[0], target)], [_integer(e, a[1], source)])


def f2i(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """F2I: convert a float to an integer and clamp it.

    A NaN gives 0 with .NTZ; otherwise, only the top bit of the result is set.
    """
    source, target = modifiers.first(FLOATS, "F32"), modifiers.first(INTEGERS, "S32")
    mode = INTEGRAL.get(modifiers.first(tuple(INTEGRAL)), "rni")
    from_type, to_type = TYPES[source.lower()], TYPES[target.lower()]
    ftz, of_nan = "FTZ" in modifiers, 0 if "NTZ" in modifiers else 1 << (to_type.bits - 1)
    value, result = _float(e, a[1], source), _result(e, a[0], target)
    if not of_nan and 64 not in {from_type.bits, to_type.bits}:
        e.emit(f"cvt.{mode}{'.ftz' if ftz else ''}.{target.lower()}.{source.lower()}", [result], [value])
        return

    def run(codes: Codes) -> Codes:
        integers = conversions.float_to_integer(codes, from_type.element, to_type, mode, ftz=ftz)
        wide = integers.view(f"{to_type.kind.replace('s', 'i')}{integers.itemsize}").astype(wide_type.dtype)
        return np.where(floats.is_nan(codes, from_type.element), wide_type.dtype.type(of_nan), wide)

    wide_type = to_type if to_type.bits > 32 else B32
    e.call("f2i", ((wide_type,), (from_type,)), run, [result], [value])


def f2f(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """F2F: convert between float formats; the first modifier is the target format."""
    types = modifiers.chosen(FLOATS)
    if len(types) != 2:
        raise Unsupported("a conversion that is not between two float formats")
    target, source = (TYPES[name.lower()] for name in types)
    style = FloatModifiers(
        modifiers.first(("RZ", "RM", "RP"), "RN").lower(), ftz="FTZ" in modifiers, sat="SAT" in modifiers
    )

    def run(codes: Codes) -> Codes:
        return conversions.float_to_float(codes, source.element, target.element, style)

    if types[0] == "F64":
        _widen(e, a, types[1], run)
        return
    value, result = _float(e, a[1], types[1]), _result(e, a[0], types[0])
    if (target, source) == (TYPES["f32"], TYPES["f64"]) and style == FloatModifiers():
        e.emit("cvt.rn.f32.f64", [result], [value])
        return
    e.call("f2f", ((target,), (source,)), run, [result], [value])


def _widen(e: Emitter, a: list[asm.Operand], source: str, run: Callable[[Codes], Codes]) -> None:
    """Emit F2F to f64; its sign modifiers leave a NaN unchanged."""
    operand = a[1]
    unsigned = replace(operand, negate=False, absolute=False) if isinstance(operand, SIGNED) else operand
    value = e.temporary(64)
    e.call("f2f", ((TYPES["f64"],), (TYPES[source.lower()],)), run, [value], [_float(e, unsigned, source)])
    for word, name in (("absolute", "abs.f64"), ("negate", "neg.f64")):
        if getattr(operand, word, False):
            value = e.compute(name, value, bits=64)
    e.emit("mov.b64", [e.results(a[0], 2)], [value])


def frnd(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """FRND: round to an integral value in the same format."""
    name = modifiers.first(FLOATS, "F32")
    dtype, mode = TYPES[name.lower()], INTEGRAL.get(modifiers.first(tuple(INTEGRAL)), "rni")
    style = FloatModifiers(mode, ftz="FTZ" in modifiers)

    def run(codes: Codes) -> Codes:
        return conversions.float_to_float(codes, dtype.element, dtype.element, style)

    e.call("frnd", ((dtype,), (dtype,)), run, [_result(e, a[0], name)], [_float(e, a[1], name)])


def f2fp(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """F2FP: pack a into the upper and b into the lower half.

    An fp8 pair fills the lower half, with c in the upper half.
    """
    types = modifiers.chosen(SMALL)
    target, source = types[0], types[1] if len(types) > 1 else "F32"
    packing, result = modifiers.first(PACKINGS), e.result(a[0])
    if target == "TF32":
        mode = modifiers.first(("RNA", "RZ"), "RN").lower()
        relu, satfinite = "RELU" in modifiers, "SATFINITE" in modifiers

        def to_tf32(codes: Codes) -> Codes:
            return conversions.to_tf32(codes, mode, satfinite=satfinite, relu=relu)

        e.call("f2fp_tf32", ((B32,), (F32,)), to_tf32, [result], [e.single(a[1])])
    elif packing == "PACK_AB" and source == "F32" and target in {"F16", "BF16"}:
        suffix = f"{'.relu' if 'RELU' in modifiers else ''}{'.satfinite' if 'SATFINITE' in modifiers else ''}"
        name = f"cvt.{'rz' if 'RZ' in modifiers else 'rn'}{suffix}.{target.lower()}x2.f32"
        e.emit(name, [result], [e.single(a[1]), e.single(a[2])])
    else:
        sources, types_read, join = _packed_form(e, packing, target, source, a)
        convert = _converter(modifiers, source.lower(), target.lower())
        e.call("f2fp", ((B32,), types_read), lambda *codes: join(convert, *codes), [result], sources)


Convert = Callable[[Codes], Codes]


def _converter(modifiers: Modifiers, source: str, target: str) -> Convert:
    style = FloatModifiers("rz" if "RZ" in modifiers else "rn", relu="RELU" in modifiers)
    satfinite = "SATFINITE" in modifiers

    def convert(codes: Codes) -> Codes:
        return conversions.float_to_float(codes, source, target, style, satfinite=satfinite).astype(np.uint32)

    return convert


def _packed_form(
    e: Emitter, packing: str, target: str, source: str, a: list[asm.Operand]
) -> tuple[list[PtxOperand], tuple[Type, ...], Callable[..., Codes]]:
    """Return an F2FP form's sources, their types, and the function that packs the converted values."""
    is_fp8 = target in {"E4M3", "E5M2"}
    if packing in {"PACK_AB", "PACK_AB_MERGE_C"} and source == "F32" and is_fp8:
        return [e.single(a[1]), e.single(a[2]), e.half(a[3]) if len(a) > 3 else ZERO], (B32, B32, B16), _pack_bytes
    if packing == "MERGE_C" and source == "F32" and not is_fp8:
        return [e.single(a[1]), e.word(a[2]) if len(a) > 2 else ZERO], (B32, B16), _merge_half
    if packing == "UNPACK_B_MERGE_C" and is_fp8:
        return [e.halves(a[1]), e.half(a[2]) if len(a) > 2 else ZERO], (B32, B16), _narrow_halves
    if packing == "UNPACK_B" and source in {"E4M3", "E5M2"}:
        return [e.half(a[1])], (B16,), _widen_bytes
    raise Unsupported(f"the packing mode .{packing} from {source} to {target}")


def _upper(codes: Codes) -> Codes:
    return codes.astype(np.uint32) << np.uint32(16)


def _pack_bytes(convert: Convert, x: Codes, y: Codes, c: Codes) -> Codes:
    return convert(y) | convert(x) << np.uint32(8) | _upper(c)


def _merge_half(convert: Convert, x: Codes, c: Codes) -> Codes:
    return convert(x) | _upper(c)


def _narrow_halves(convert: Convert, x: Codes, c: Codes) -> Codes:
    low, high = x.astype(np.uint16), (x >> np.uint32(16)).astype(np.uint16)
    return convert(low) | convert(high) << np.uint32(8) | _upper(c)


def _widen_bytes(convert: Convert, x: Codes) -> Codes:
    return convert(x.astype(np.uint8)) | _upper(convert((x >> np.uint16(8)).astype(np.uint8)))


def _saturated(codes: Codes, name: str) -> Codes:
    low, high = conversions.limits(name[0].lower(), int(name[1:]))
    return np.clip(signed(codes).astype(np.int64), low, high).astype(np.uint32)


def i2i(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """I2I: clamp an s32 to a narrower type."""
    types = modifiers.chosen(INTEGERS)
    if len(types) != 2 or types[1] != "S32" or "SAT" not in modifiers:
        raise Unsupported("a conversion other than .SAT from S32")
    e.call("i2i", ((B32,), (B32,)), lambda x: _saturated(x, types[0]), [e.result(a[0])], [e.integer(a[1])])


def i2ip(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """I2IP: clamp two s32 values and pack them into the low bits; the bits above them are the low bits of c."""
    target = modifiers.all[0]
    bits = int(target[1:])
    mask = np.uint32((1 << bits) - 1)

    def run(x: Codes, y: Codes, c: Codes) -> Codes:
        total = (_saturated(y, target) & mask) | (_saturated(x, target) & mask) << np.uint32(bits)
        return total | c << np.uint32(2 * bits) if bits < 16 else total

    sources = [e.integer(a[1]), e.integer(a[2]), e.half(a[3])]
    e.call("i2ip", ((B32,), (B32,) * 3), run, [e.result(a[0])], sources)


def f2ip(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """F2IP: convert two f32 values to bytes in the low half; the high half is c."""
    target: Type = TYPES[modifiers.all[0].lower()]
    mode = INTEGRAL.get(modifiers.first(tuple(INTEGRAL)), "rni")

    def run(x: Codes, y: Codes, c: Codes) -> Codes:
        low, high = (
            conversions.float_to_integer(part, "f32", target, mode, ftz=False).astype(np.uint32) for part in (y, x)
        )
        return low | high << np.uint32(8) | _upper(c)

    sources = [e.single(a[1]), e.single(a[2]), e.half(a[3])]
    e.call("f2ip", ((B32,), (B32, B32, B16)), run, [e.result(a[0])], sources)


ALL_INTEGERS = " ".join(INTEGERS)
ROWS: list[SassRow] = [
    *row("I2F I2FP", f"F64 F16 BF16 F32 RM RP RZ {ALL_INTEGERS}", i2f),
    *row("F2I", f"F64 F16 BF16 F32 FTZ NTZ TRUNC FLOOR CEIL {ALL_INTEGERS}", f2i),
    *row("F2F", "F64 F16 BF16 F32 FTZ RM RP RZ SAT", f2f),
    *row("FRND", "F64 F16 BF16 F32 FTZ TRUNC FLOOR CEIL", frnd),
    *row("F2FP", f"{' '.join(SMALL)} {' '.join(PACKINGS)} RELU SATFINITE RZ RNA RN", f2fp),
    *row("I2I", f"SAT {ALL_INTEGERS}", i2i),
    *row("I2IP", "SAT S32 U8 S8 U16 S16 U4 S4 U2 S2", i2ip),
    *row("F2IP", "U8 S8 F32 TRUNC NTZ FLOOR CEIL", f2ip),
]
