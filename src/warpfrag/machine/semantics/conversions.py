"""The cvt instruction: conversions between all types, each rounded once."""

import numpy as np

from warpfrag.formats.number_formats import FORMATS
from warpfrag.machine.ir.scalar_types import Codes, Type, container, signed, unsigned
from warpfrag.machine.semantics import floats
from warpfrag.machine.semantics.ptx_rounding import TOP, ExactNumbers, decode, encode, round_sum

INTEGRAL = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def limits(kind: str, bits: int) -> tuple[int, int]:
    """Return the smallest and the largest `bits`-bit integer, which is signed if `kind` is "s"."""
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind == "s" else (0, (1 << bits) - 1)


def integer_to_integer(a: Codes, source: Type, target: Type, *, sat: bool) -> Codes:
    """Truncate or extend integers; with .sat, clamp them to the target's range."""
    values = signed(a) if source.kind == "s" else a
    if sat:
        low, high = limits(target.kind, target.bits)
        source_low, source_high = limits(source.kind, source.bits)
        if low > source_low or high < source_high:
            values = np.clip(values, max(low, source_low), min(high, source_high))
    return values.astype(np.int64 if source.kind == "s" else np.uint64).astype(container(target.bits))


def integer_to_float(a: Codes, source: Type, name: str, mode: str) -> Codes:
    """Convert integers to floats, rounding once."""
    values = signed(a).astype(np.int64) if source.kind == "s" else a.astype(np.uint64)
    negative = values < 0 if source.kind == "s" else np.zeros(values.shape, np.bool_)
    size = np.where(negative, (-values.view(np.int64)).view(np.uint64), values.view(np.uint64))
    length = bit_length(size)
    significand = np.where(size == 0, TOP, size << (np.uint64(64) - np.maximum(length, np.uint64(1))))
    codes = encode(ExactNumbers(negative, significand, length.astype(np.int64) - 1), FORMATS[name], mode)
    return np.where(size == 0, codes.dtype.type(0), codes)


def bit_length(values: Codes) -> Codes:
    """Return the bit length of each integer, like int.bit_length, found by binary search."""
    length = np.zeros(values.shape, np.uint64)
    for step in (32, 16, 8, 4, 2, 1):
        shift = np.uint64(step)
        large = values >= (np.uint64(1) << shift)
        values = np.where(large, values >> shift, values)
        length += np.where(large, shift, np.uint64(0))
    return length + (values != 0)


def float_to_integer(a: Codes, name: str, target: Type, mode: str, *, ftz: bool) -> Codes:
    """Round floats to integers and clamp them; NaN gives 0, or only the top bit set if a type has 64 bits."""
    values = decode(floats.flush(a, name) if ftz and name == "f32" else a, name)
    with np.errstate(invalid="ignore"):
        whole = INTEGRAL[mode](values)
        low, high = limits(target.kind, target.bits)
        inside = np.clip(whole, float(low), float(high))
        above, below = whole >= float(high), whole <= float(low)
        safe = np.where(above | below | np.isnan(whole), 0.0, inside)
        codes = safe.astype(np.int64).view(np.uint64) if target.kind == "s" else safe.astype(np.uint64)
    mask = (1 << target.bits) - 1
    codes = np.where(above, np.uint64(high & mask), np.where(below, np.uint64(low & mask), codes))
    nan = 1 << (target.bits - 1) if target.bits == 64 or name == "f64" else 0
    return unsigned(np.where(np.isnan(values), np.uint64(nan), codes), target.bits)


def float_to_float(
    a: Codes, source: str, target: str, modifiers: floats.FloatModifiers, *, satfinite: bool = False
) -> Codes:
    """Widen or narrow floats, or round them to integral values if both formats are the same."""
    flushes = modifiers.ftz and source == "f32" and target in {"f32", "f64", "bf16"}
    if flushes:
        a = floats.quiet(floats.flush(a, source), source)
    if source == target and not (flushes or modifiers.sat or modifiers.relu or modifiers.rounding in INTEGRAL):
        return floats.quiet(a, source) if source in {"f16", "bf16"} else a
    mode = modifiers.rounding
    with np.errstate(all="ignore"):
        values = decode(a, source)
        if mode in INTEGRAL:
            values = INTEGRAL[mode](values)
            mode = "rn"
        if target == "f64":
            codes = values.view(np.uint64)
        else:
            codes = round_sum(values, None, FORMATS[target], mode, satfinite=satfinite)
            if (source, target) == ("f64", "f32"):
                codes = floats.flush_tiny(codes, values, None, target, floats.FloatModifiers(mode, ftz=modifiers.ftz))
    keeps = "f64" in {source, target} or ((source, target) == ("bf16", "f32") and not modifiers.ftz)
    if keeps and source in floats.CODE_OF_1 and target in floats.CODE_OF_1:
        codes = np.where(floats.is_nan(a, source), nan_payload(a, source, target), codes)
    if target in floats.CODE_OF_1:
        return floats.finish(
            codes,
            target,
            floats.FloatModifiers(ftz=modifiers.ftz and target == "f32", sat=modifiers.sat, relu=modifiers.relu),
        )
    return relu_small(codes, target) if modifiers.relu else codes


def nan_payload(a: Codes, source: str, target: str) -> Codes:
    """Convert NaNs, keeping the sign and upper payload bits; they become quiet, except from bf16 to f32."""
    old, new = FORMATS[source], FORMATS[target]
    wide = a.astype(np.uint64)
    payload = wide & np.uint64((1 << old.fraction) - 1)
    shift = new.fraction - old.fraction
    payload = payload << np.uint64(shift) if shift >= 0 else payload >> np.uint64(-shift)
    top = ((1 << new.exponent) - 1) << new.fraction
    quieted = 0 if (source, target) == ("bf16", "f32") else 1 << (new.fraction - 1)
    sign = wide >> np.uint64(old.bits - 1) << np.uint64(new.bits - 1)
    return (sign | payload | np.uint64(top | quieted)).astype(container(new.bits))


def relu_small(codes: Codes, name: str) -> Codes:
    """Replace negative values with zero, for tf32 and formats narrower than 16 bits."""
    sign = codes.dtype.type(FORMATS[name].sign_bit)
    return np.where(((codes & sign) != 0) & ~np.isnan(decode(codes, name)), codes.dtype.type(0), codes)


def to_tf32(a: Codes, mode: str, *, satfinite: bool, relu: bool) -> Codes:
    """Convert f32 to tf32, in a 32-bit container whose low 13 bits are zero."""
    exponent_ones = np.uint32(0x7F800000)
    drop = np.uint32(0x1FFF)
    if mode == "rna":
        rounded = np.where(floats.magnitude_of(a) < exponent_ones, a + np.uint32(0x1000), a)
    elif mode == "rn":
        rounded = a + np.uint32(0xFFF) + ((a >> np.uint32(13)) & np.uint32(1))
    else:
        rounded = a
    codes = rounded & ~drop
    if mode != "rna":
        codes = np.where(floats.is_nan(a, "f32"), np.uint32(0x7FFFE000), codes)
    if satfinite:  # step back by one ulp, for NaNs too (measured)
        codes = np.where(floats.magnitude_of(codes) >= exponent_ones, codes - np.uint32(0x2000), codes)
    if relu:
        codes = np.where((floats.sign_of(codes) != 0) & ~floats.is_nan(codes, "f32"), np.uint32(0), codes)
    return codes
