"""Instructions of which ptxas 13.0 may make something else because of the one that computed their operand.

Random kernels on an H200 showed each pair; which of two results comes out depends on the code around, so a step is only
doubted. A row names the instruction that reads, the one that wrote what it reads, and what ptxas does. Values are
followed through moves and blocks (`values`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from warpfrag.ptx.program.actions import Atomic, LaneOp, MatrixOp, MemoryLoad, Move, Refused
from warpfrag.ptx.program.departures import OLDER, VERSIONS
from warpfrag.ptx.program.program import Immediate, MemoryOperand, Register, VectorOperand, registers_of
from warpfrag.ptx.program.types import TYPES
from warpfrag.ptx.semantics import floats
from warpfrag.ptx.semantics.floats import CODE_OF_1

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.ptx.program.actions import LaneFunction
    from warpfrag.ptx.program.program import DecodedInstruction
    from warpfrag.ptx.program.types import Codes

PAIRS_OF_FP8 = {"e4m3x2", "e5m2x2"}
BANKED = {"param", "const"}  # state spaces of which ptxas reads whole words
HALVES = {"b16", "u16"}
QUARTERS = 4
BOUNDED = {"tanh", "sin", "cos"}  # whose results lie within -1 and 1
ORDERED = {"lt", "le", "gt", "ge"}
CLAMPED = {"add", "sub", "mad", "mad24"}
LOGICAL = {"and", "or", "xor", "not"}
INFINITE = 0x7F800000  # of f32
MAX_AMOUNT = 255  # of a shift that is written as a number


UNIFORM_MATRIX = "a transposed word that was the same in every thread may be taken as such still"


class UncertainPair(NamedTuple):
    """One pair: what reads, what wrote, and what ptxas may do."""

    reads: Callable[[DecodedInstruction], bool]
    wrote: Callable[[DecodedInstruction], bool]
    compiler: str
    is_late: bool = False  # only where ptxas optimises once more: after loops, and with functions of f64 in the code
    is_carried: bool = False  # also if it was written in another round of a loop, which ptxas may unroll
    code: int | None = None  # only where the operand has this code; else as soon as the step runs
    source: Callable[[DecodedInstruction], bool] | None = None  # what wrote the operand of the one that wrote
    shares: bool = False  # only where the second operand of the one that wrote is read too
    is_upper: bool = False  # only where the upper half of what was written is not 0: that line is doubted
    is_far: bool = False  # only where another block wrote it
    is_repeated: bool = False  # only where the one that wrote is the same instruction with the same factors
    is_only_use: bool = False  # only where nothing else reads the result
    is_upper_only: bool = False  # only where nothing reads the first part of what is unpacked
    is_joined: bool = False  # only where one that wrote reads a register twice, and one of its operands is read too
    is_beside_guard: bool = False  # only where a guarded step wrote the other half of what is packed
    other: Callable[[LaneOp, list[int]], LaneFunction] | None = None  # what may be computed instead, of those operands
    position: Callable[[DecodedInstruction, int], bool] | None = None  # which of several results it may be
    misread: Callable[[Codes], Codes] | None = None  # as what the operand may be read
    versions: tuple[str, ...] = VERSIONS
    is_merged: bool = False  # also what extends the other half of what is packed: its register is no longer its own


def _opcode(step: DecodedInstruction, *names: str) -> bool:
    return step.attributes.opcode in names and not isinstance(step.action, Refused)


def _first_bits(step: DecodedInstruction) -> int:
    return step.attributes.types[0].bits if step.attributes.types else 0


def _types(step: DecodedInstruction) -> list[str]:
    return [kind.name for kind in step.attributes.types]


def _reads_fp8(step: DecodedInstruction) -> bool:
    return _opcode(step, "cvt") and len(_types(step)) > 1 and _types(step)[1] in PAIRS_OF_FP8


def _makes_fp8(step: DecodedInstruction) -> bool:
    return _opcode(step, "cvt") and bool(_types(step)) and _types(step)[0] in PAIRS_OF_FP8


def _unpacks_quarters(step: DecodedInstruction) -> bool:
    action, result = step.action, step.results[0] if step.results else None
    if not isinstance(action, Move) or not isinstance(result, VectorOperand):
        return False
    return action.type.bits == 64 and len(result.items) == QUARTERS


def _packs(step: DecodedInstruction) -> bool:
    return isinstance(step.action, Move) and isinstance(step.sources[0], VectorOperand)


def _reads_halves(step: DecodedInstruction) -> bool:
    is_packed = bool(step.attributes.types) and step.attributes.types[-1].parts == 2
    is_unpacked = isinstance(step.action, Move) and bool(step.results) and isinstance(step.results[0], VectorOperand)
    return (isinstance(step.action, LaneOp) and is_packed) or is_unpacked


def _loads_beside(step: DecodedInstruction) -> bool:
    """Whether a step loads halves of a bank into registers of 32 bits."""
    action, place = step.action, step.sources[0] if step.sources else None
    if not isinstance(action, MemoryLoad) or action.space not in BANKED or action.type.name not in HALVES:
        return False
    if step.guard is not None or not isinstance(place, MemoryOperand) or place.base is not None:
        return False
    return any(item.bits == 32 for result in step.results for item in registers_of(result))


def _is_beside(step: DecodedInstruction, position: int) -> bool:
    """Whether a half that a step loads is the upper one of an aligned word, or alone."""
    place, result = step.sources[0], step.results[0]
    items = result.items if isinstance(result, VectorOperand) else (result,)
    kept = [at for at, item in enumerate(items) if isinstance(item, Register)]
    if not isinstance(place, MemoryOperand) or not 0 <= position < len(kept):
        return True
    return len(kept) == 1 or (place.offset + 2 * kept[position]) % 4 == 2


def _unpacks_halves(step: DecodedInstruction) -> bool:
    action, result = step.action, step.results[0] if step.results else None
    return isinstance(action, Move) and isinstance(result, VectorOperand) and action.type.bits == 32


def _loads_few(step: DecodedInstruction, bits: int) -> bool:
    """Whether a step loads 16 bits or fewer into a register of so many."""
    action = step.action
    if not isinstance(action, MemoryLoad) or action.type.bits > 16 or step.guard is not None:
        return False
    return any(register.bits == bits for result in step.results for register in registers_of(result))


def _loads_half(step: DecodedInstruction) -> bool:
    action = step.action
    if not isinstance(action, MemoryLoad) or not _loads_few(step, 32):
        return False
    return action.count == 1 or (action.space in BANKED and action.type.kind != "s")


def _loads_quarter(step: DecodedInstruction) -> bool:
    """Whether a step alone loads a few bits into a register of 64 bits, of which the second quarter is the first."""
    action = step.action
    if not isinstance(action, MemoryLoad) or not _loads_few(step, 64):
        return False
    if action.type.kind == "s":
        return action.count == 1 and action.space not in BANKED
    return action.count == 1 or action.space in BANKED


def _loads_signed_bytes(step: DecodedInstruction) -> bool:
    return isinstance(step.action, MemoryLoad) and step.action.count > 1 and step.action.type.name == "s8"


def _converts_word(step: DecodedInstruction) -> bool:
    """Whether a step converts a u32: shifts of 16 bits do, to clamp their amount."""
    is_shift = _opcode(step, "shl", "shr") and _first_bits(step) == 16
    return is_shift or (_opcode(step, "cvt") and _types(step)[-1:] == ["u32"])


def _clamps_integer(step: DecodedInstruction) -> bool:
    return _opcode(step, *CLAMPED) and step.attributes.sat and _types(step)[:1] not in (["f32"], ["f16"], ["f16x2"])


def _clamps_float(step: DecodedInstruction) -> bool:
    """Whether a step converts a float to a float and does nothing besides but clamp it."""
    attributes = step.attributes
    if not _opcode(step, "cvt") or not attributes.sat or attributes.integral or len(attributes.types) != 2:
        return False
    is_kept = attributes.rounding in {"rz", "rm", "rp"} or (attributes.ftz and _types(step) == ["f32", "f32"])
    return _is_float(step) and _types(step)[1] in {"f16", "f32", "f64"} and not is_kept


def _bounds_clamped(step: DecodedInstruction) -> bool:
    """Whether a step is a minimum with a constant of 1 or more, or a maximum with one of 0 or less."""
    if not _opcode(step, "min", "max") or _types(step) != ["f32"] or step.attributes.nan:
        return False
    codes = [int(source.code(TYPES["f32"])) for source in step.sources if isinstance(source, Immediate)]
    is_minimum = step.attributes.opcode == "min"
    return any(CODE_OF_1["f32"] <= code <= INFINITE if is_minimum else code == 0 or code >> 31 for code in codes)


def _shifts_far(step: DecodedInstruction) -> bool:
    amount = step.sources[-1] if step.sources else None
    is_far = isinstance(amount, Immediate) and amount.code(TYPES["u32"]) > MAX_AMOUNT
    return _opcode(step, "shl", "shr") and _first_bits(step) == 64 and is_far


def is_banked(step: DecodedInstruction) -> bool:
    """Whether a step loads from a bank."""
    return isinstance(step.action, MemoryLoad) and step.action.space in BANKED


def _is_uniform(step: DecodedInstruction) -> bool:
    """Whether a step leaves the same word in every thread, in a register of the uniform datapath: a constant or so."""
    place = step.sources[0] if step.sources else None
    is_fixed = isinstance(place, MemoryOperand) and place.base is None
    is_shared_by_all = isinstance(step.action, MemoryLoad) and step.action.space not in {"local", "shared"}
    return _is_constant(step) or (is_shared_by_all and is_fixed and step.guard is None)


def has_empty_word(step: DecodedInstruction) -> bool:
    """Whether the lower word of the result is always 0: functions of the upper words of f64."""
    return _opcode(step, "rcp", "rsqrt") and step.attributes.accuracy == "approx" and step.attributes.ftz


def _multiplies_fp8(step: DecodedInstruction) -> bool:
    action = step.action
    is_mma = isinstance(action, MatrixOp) and action.operation == "mma"
    return is_mma and any(f".{kind}." in step.name for kind in ("e4m3", "e5m2"))


def _leaves_zero(step: DecodedInstruction) -> bool:
    """Whether a step shifts all bits out."""
    amount = step.sources[-1] if _opcode(step, "shl", "shr") else None
    is_filled = step.attributes.opcode == "shr" and _types(step) == ["s32"]
    return isinstance(amount, Immediate) and amount.code(TYPES["u32"]) >= _first_bits(step) and not is_filled


def _is_flushed(step: DecodedInstruction, *names: str) -> bool:
    """Whether a step is one of some approximate functions of f32 that flush."""
    attributes = step.attributes
    return _opcode(step, *names) and attributes.accuracy == "approx" and attributes.ftz and _types(step) == ["f32"]


def _is_reciprocal(step: DecodedInstruction) -> bool:
    return _is_flushed(step, "rcp", "div")


def selects_truth(step: DecodedInstruction) -> bool:
    """Whether a step selects between the numbers 0 and 1 that are written."""
    codes = [source.code(TYPES["u32"]) for source in step.sources[:2] if isinstance(source, Immediate)]
    return _opcode(step, "selp", "slct") and sorted(codes) == [0, 1]


def _is_scalar_video(step: DecodedInstruction) -> bool:
    return _opcode(step, "vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset", "vmad")


def _adds_shared_halves(step: DecodedInstruction) -> bool:
    action = step.action
    if not isinstance(action, Atomic) or action.name != "add" or action.space == "global":
        return False
    return action.type.parts == 2 and action.type.is_float


def _clamped_sum(step: DecodedInstruction) -> bool:
    return _opcode(step, "add", "sub") and step.attributes.sat and _has_constant(step) and "s32" in _types(step)


def _has_constant(step: DecodedInstruction) -> bool:
    return any(isinstance(source, Immediate) for source in step.sources)


def _is_float(step: DecodedInstruction) -> bool:
    return step.attributes.types[0].is_float


def _is_high_sum(step: DecodedInstruction) -> bool:
    attributes = step.attributes
    return _opcode(step, "mad") and attributes.half == "hi" and _first_bits(step) == 32 and not attributes.sat


def _has_zero(step: DecodedInstruction) -> bool:
    return any(isinstance(source, Immediate) and source.code(TYPES["s32"]) == 0 for source in step.sources)


def _is_plain_f32(step: DecodedInstruction) -> bool:
    """Whether a step of f32 says nothing about its rounding."""
    return _types(step) == ["f32"] and step.attributes.rounding is None


def _is_bounded(step: DecodedInstruction) -> bool:
    """Whether ptxas knows that a result of f32 lies within -1 and 1."""
    return _types(step)[:1] == ["f32"] and (_opcode(step, *BOUNDED) or step.attributes.sat)


def _has_constant_beyond(step: DecodedInstruction) -> bool:
    """Whether a step compares an f32 with a constant that is not between -1 and 1."""
    return any(code >= CODE_OF_1["f32"] for code in _sizes_compared(step))


def _sizes_compared(step: DecodedInstruction) -> list[int]:
    """The constants that setp compares an f32 with, without their signs, if a NaN decides against it."""
    if not _opcode(step, "setp") or step.attributes.comparison not in ORDERED or _types(step) != ["f32"]:
        return []
    return [item.code(TYPES["f32"]) & 0x7FFFFFFF for item in step.sources[:2] if isinstance(item, Immediate)]


def _is_constant(step: DecodedInstruction) -> bool:
    return bool(step.sources) and all(isinstance(source, Immediate) for source in step.sources)


def _is_sum_with_constant(step: DecodedInstruction) -> bool:
    return _opcode(step, "add", "sub", "addc", "subc") and _has_constant(step)


def _first_half_twice(codes: Codes) -> Codes:
    """Words whose second half is their first."""
    first, upper = codes.dtype.type(0xFFFF), codes.dtype.type(0xFFFF0000)
    return (codes & ~upper) | ((codes & first) << codes.dtype.type(16))


def _third(_a: Codes, _b: Codes, c: Codes) -> Codes:
    return c


def _integer_negation(a: Codes) -> Codes:
    return np.zeros_like(a) - a


def _negated_truth(action: LaneOp, places: list[int]) -> LaneFunction:
    """What a step computes if 0 is left as it is, and the 1 of bf16 becomes another number."""
    function, place = action.function, places[0]

    def run(*codes: Codes) -> Codes:
        result = function(*codes)
        code = result[0] if isinstance(result, tuple) else result
        changed = np.where(codes[place] == CODE_OF_1["bf16"], ~code, code)
        return np.where(codes[place] == 0, code.dtype.type(0), changed)

    return run


def _unclamped(action: LaneOp, places: list[int]) -> LaneFunction:
    """Another result than that of a step where its operand lies outside of 0 and 1."""
    function, kind = action.function, action.sources[places[0]]
    element = kind.element if kind is not None else "f32"

    def run(a: Codes) -> Codes:
        result = function(a)
        code = result[0] if isinstance(result, tuple) else result
        last = np.full_like(a, CODE_OF_1[element])
        is_inside = floats.compare(element, "ge", a, np.zeros_like(a)) & floats.compare(element, "le", a, last)
        return np.where(is_inside, code, ~code)

    return run


def _without_nan(action: LaneOp, places: list[int]) -> LaneFunction:
    """What a step computes if none of some operands of f32 is a NaN."""
    function = action.function

    def run(*codes: Codes) -> Codes | tuple[Codes, ...]:
        numbers = [
            np.where(floats.is_nan(code, "f32"), code.dtype.type(0), code) if place in places else code
            for place, code in enumerate(codes)
        ]
        return function(*numbers)

    return run


def _without_sign(action: LaneOp, places: list[int]) -> LaneFunction:
    """What a step computes if the sign of some operands is 0."""
    function = action.function

    def run(*codes: Codes) -> Codes | tuple[Codes, ...]:
        return function(
            *(
                code & ~(code.dtype.type(1) << code.dtype.type(8 * code.itemsize - 1)) if place in places else code
                for place, code in enumerate(codes)
            )
        )

    return run


PAIRS = (
    UncertainPair(
        lambda step: _opcode(step, *LOGICAL) and _first_bits(step) == 32, lambda step: _opcode(step, "lop3"),
        "joined with lop3 that reads a register twice, that may read 0 or another operand in place of the second",
        is_joined=True, versions=OLDER,
    ),
    UncertainPair(
        _is_high_sum, _is_high_sum, "of several mad.hi that add the same product to their result, one may be left out",
        is_carried=True, is_repeated=True, other=lambda _action, _places: _third, versions=OLDER,
    ),
    UncertainPair(
        lambda step: _opcode(step, *CLAMPED) and step.attributes.sat and "s32" in _types(step) and _has_zero(step),
        lambda step: _opcode(step, "neg", "abs") and _types(step) == ["s32"],
        "a sum of 0 and a result of neg or abs may be clamped as if that had not wrapped", code=0x80000000,
    ),
    UncertainPair(
        lambda step: _opcode(step, "add", "sub", "min", "max") and _is_plain_f32(step) and _has_constant(step),
        _is_bounded,
        "a sum of a constant and what lies within -1 and 1 may be computed as if that were no NaN", other=_without_nan,
    ),
    UncertainPair(
        lambda step: _opcode(step, "add", "sub") and _is_plain_f32(step) and _has_constant(step),
        lambda step: _opcode(step, "neg", "abs") and _types(step) == ["f32"],
        "a sum of a constant and what lies within -1 and 1 may be computed as if that were no NaN", other=_without_nan,
        source=_is_bounded,
    ),
    UncertainPair(
        _has_constant_beyond, _is_bounded,
        "a comparison that every number within -1 and 1 decides may be decided for a NaN", other=_without_nan,
    ),
    UncertainPair(
        lambda step: 0 in _sizes_compared(step), lambda step: step.attributes.sat and _is_bounded(step),
        "a comparison that every number within 0 and 1 decides may be decided for a NaN", other=_without_nan,
    ),
    UncertainPair(
        lambda step: _opcode(step, "neg") and _is_float(step), lambda step: _opcode(step, "set") and _is_float(step),
        "the negation of what set left may be 0 where that is 0", is_late=True, other=_negated_truth,
    ),
    UncertainPair(
        lambda step: _opcode(step, "mul", "mad") and step.attributes.half == "wide" and _first_bits(step) == 16,
        lambda step: _opcode(step, "cvt") and _types(step)[0] in {"s16", "u16"} and step.attributes.types[1].is_float,
        "of a number that cvt made 16 bits long in another block, more bits may be read", is_far=True,
    ),
    UncertainPair(
        lambda step: _opcode(step, "vadd4", "vsub4"), lambda step: _opcode(step, "copysign"),
        "of a result of copysign, vadd4 and vsub4 may read another sign",
    ),
    UncertainPair(
        lambda step: _opcode(step, "and", "or", "xor") and _first_bits(step) >= 32,
        lambda step: _opcode(step, "copysign") and step.sources[0] == step.sources[1],
        "of the sign of a number with its own sign, a logical operation with that number may read 0",
        shares=True, other=_without_sign,
    ),
    UncertainPair(
        _packs, lambda step: _makes_fp8(step) and _types(step)[1:] == ["f32"],
        "the other half of a word into which mov packs a pair of fp8 may be lost", is_beside_guard=True,
    ),
    UncertainPair(
        _reads_fp8, _unpacks_quarters,
        "of a quarter of 64 bits that mov unpacked, the conversion from fp8 may read another quarter",
        source=lambda step: is_banked(step) or _is_uniform(step) or has_empty_word(step),
    ),
    UncertainPair(
        _multiplies_fp8, _is_uniform,
        "of a word that is the same in every thread, a product of fp8 may read the lower half twice",
        misread=_first_half_twice,
    ),
    UncertainPair(
        _multiplies_fp8, lambda step: isinstance(step.action, Move),
        "of a word that is the same in every thread, a product of fp8 may read the lower half twice",
        source=_is_uniform, misread=_first_half_twice,
    ),
    UncertainPair(
        _multiplies_fp8, _leaves_zero, "of a word that is always 0, a product of fp8 may read 8 in the upper half",
        misread=lambda codes: codes | codes.dtype.type(0x80000), is_late=True,
    ),
    UncertainPair(
        lambda step: _opcode(step, "movmatrix"), _is_uniform,
        UNIFORM_MATRIX,
    ),
    UncertainPair(
        _packs, lambda step: _makes_fp8(step) and _types(step)[1:] == ["f16x2"],
        "a pair of fp8 that mov packs may be packed with bits of its operand", is_merged=True,
    ),
    UncertainPair(
        _reads_halves, _loads_beside,
        "of a half that was loaded into a wider register, the upper bits may be those of its neighbour",
        position=_is_beside,
    ),
    UncertainPair(
        _unpacks_quarters, _loads_quarter,
        "of a few bits that were loaded into a register of 64 bits, the second quarter may be the first",
        is_upper_only=True, misread=_first_half_twice,
    ),
    UncertainPair(
        _unpacks_halves, _loads_half,
        "of a few bits that were loaded into a register of 32 bits, the second half may be the first",
        is_upper_only=True, misread=_first_half_twice,
    ),
    UncertainPair(
        _converts_word, _loads_signed_bytes, "bytes that were loaded together may be converted with their sign",
    ),
    UncertainPair(
        _clamps_float, _clamps_integer, "a result of an instruction with .sat may be taken as clamped to 0..1",
        other=_unclamped,
    ),
    UncertainPair(
        _bounds_clamped, _clamps_integer, "a result of an instruction with .sat may be taken as clamped to 0..1",
    ),
    UncertainPair(
        _is_reciprocal, lambda step: _is_flushed(step, "rcp"),
        "the reciprocal of a reciprocal may become its operand", is_carried=True,
    ),
    UncertainPair(
        _is_reciprocal, lambda step: _is_flushed(step, "ex2"),
        "the reciprocal of a power of 2 may become another power", is_carried=True, is_only_use=True,
    ),
    UncertainPair(
        lambda step: _opcode(step, "neg", "abs", "shl", "shr"), lambda step: _opcode(step, "cnot"),
        "the result of cnot may be read as the number 1", is_late=True, code=1,
    ),
    UncertainPair(
        lambda step: _opcode(step, "shl", "shr") and _first_bits(step) == 16, lambda step: _opcode(step, "cnot"),
        "a shift of 16 bits by a result of cnot may be one by any number",
    ),
    UncertainPair(
        lambda step: _opcode(step, "shl", "shr") and _first_bits(step) == 64,
        lambda step: _opcode(step, "set") and _types(step)[:1] == ["f32"],
        "the result of set may be read as the number 1", is_late=True, code=CODE_OF_1["f32"],
    ),
    UncertainPair(
        lambda step: _opcode(step, "neg") and _is_float(step),
        lambda step: _opcode(step, "set") and not _is_float(step) and _first_bits(step) == 16,
        "what set left may be negated as an integer", is_late=True, other=lambda _action, _places: _integer_negation,
    ),
    UncertainPair(
        lambda step: _opcode(step, "neg") and _is_float(step), selects_truth,
        "a selected number 1 may be negated as an integer", code=1,
    ),
    UncertainPair(
        lambda step: _opcode(step, "neg") and not _is_float(step),
        lambda step: _opcode(step, "set") and "bf16" in _types(step)[:1],
        "the result of set may be read as the number 1", is_late=True, code=0x3F80,
    ),
    UncertainPair(
        lambda step: _opcode(step, "add") and step.attributes.sat and "s32" in _types(step),
        lambda step: _opcode(step, "sub") and "f32" not in _types(step) and _first_bits(step) == 32,
        "two sums with the same register may be joined, and the clamp be lost", shares=True,
    ),
    UncertainPair(
        _clamped_sum, _is_sum_with_constant, "constants of two sums may be joined, and the clamp be lost",
    ),
    UncertainPair(
        _shifts_far, lambda step: _opcode(step, "mul"),
        "a shift of 64 bits by a large number that is written may do nothing",
    ),
    UncertainPair(
        lambda step: _opcode(step, "setp") and len(step.results) > 1 and _types(step)[:1] == ["f32"],
        lambda step: _opcode(step, "set") and step.attributes.combine == "xor" and _types(step)[:1] == ["f32"],
        "a comparison of the result of set may be computed differently",
    ),
    UncertainPair(
        lambda step: _opcode(step, "mul") and _types(step)[-1:] == ["f64"] and _has_constant(step),
        lambda step: _opcode(step, "neg"), "a negation before a product with a constant may change the sign of a NaN",
    ),
    UncertainPair(
        lambda step: isinstance(step.action, MatrixOp) and step.action.operation == "wgmma",
        _is_constant,
        "a constant in a register of A may be read differently",
    ),
    UncertainPair(
        _adds_shared_halves, _is_scalar_video, "the atomic sum of halves may add another half", is_upper=True,
        is_carried=True,
    ),
    UncertainPair(
        _adds_shared_halves, lambda step: _opcode(step, "cnot"),
        "the atomic sum of halves may subtract -1 instead of adding the result of cnot",
    ),
    UncertainPair(
        lambda step: _opcode(step, "sub") and step.attributes.carry_out, lambda step: _opcode(step, "abs"),
        "the difference with a result of abs may be a sum, which carries differently",
    ),
    UncertainPair(
        lambda step: _opcode(step, "sub", "add") and step.attributes.sat and "s32" in _types(step),
        lambda step: _opcode(step, "add", "sub") and "f32" in _types(step) and _is_constant(step),
        "of a NaN that a sum of constants leaves, the difference may change the sign alone",
    ),
)  # fmt: skip
