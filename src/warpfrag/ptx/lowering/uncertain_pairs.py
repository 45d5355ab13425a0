"""Instructions of which ptxas 13.0 may make something else because of the one that computed their operand.

Random kernels on an H200 showed each pair; which of two results comes out depends on the code around, so a step is only
doubted. A row names the instruction that reads, the one that wrote what it reads, and what ptxas does. Values are
followed through moves and blocks (`values`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from warpfrag.ptx.lowering.values import Constant
from warpfrag.ptx.program.actions import Atomic, LaneOp, MatrixOp, MemoryLoad, Move
from warpfrag.ptx.program.program import Immediate, VectorOperand, registers_of
from warpfrag.ptx.program.types import TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from warpfrag.ptx.lowering.values import Values, ValueTable
    from warpfrag.ptx.program.program import DecodedInstruction

PAIRS_OF_FP8 = {"e4m3x2", "e5m2x2"}
BANKED = {"param", "const"}  # state spaces of which ptxas reads whole words
CLAMPED = {"add", "sub", "mad", "mad24"}
MIN_NORMAL_F32 = 0x00800000
MAX_AMOUNT = 255  # of a shift that is written as a number


class UncertainPair(NamedTuple):
    """One pair: what reads, what wrote, and what ptxas may do."""

    reads: Callable[[DecodedInstruction], bool]
    wrote: Callable[[DecodedInstruction], bool]
    compiler: str


def _opcode(step: DecodedInstruction, *names: str) -> bool:
    return step.attributes.opcode in names


def _types(step: DecodedInstruction) -> list[str]:
    return [kind.name for kind in step.attributes.types]


def _reads_fp8(step: DecodedInstruction) -> bool:
    return _opcode(step, "cvt") and len(_types(step)) > 1 and _types(step)[1] in PAIRS_OF_FP8


def _makes_fp8(step: DecodedInstruction) -> bool:
    return _opcode(step, "cvt") and bool(_types(step)) and _types(step)[0] in PAIRS_OF_FP8


def _unpacks_quarters(step: DecodedInstruction) -> bool:
    action, result = step.action, step.results[0] if step.results else None
    return isinstance(action, Move) and action.type.bits == 64 and isinstance(result, VectorOperand)


def _packs(step: DecodedInstruction) -> bool:
    return isinstance(step.action, Move) and isinstance(step.sources[0], VectorOperand)


def _reads_halves(step: DecodedInstruction) -> bool:
    is_packed = any(kind.parts == 2 for kind in step.attributes.types)
    return (isinstance(step.action, LaneOp) and is_packed) or isinstance(step.action, MatrixOp)


def _loads_narrow(step: DecodedInstruction, bits: int) -> bool:
    """Whether a step loads fewer bits from a bank than its registers have."""
    action = step.action
    if not isinstance(action, MemoryLoad) or action.type.bits > 16:
        return False
    if bits == 32 and (action.space not in BANKED or action.type.bits != 16):
        return False
    return any(register.bits == bits for result in step.results for register in registers_of(result))


def _loads_signed_bytes(step: DecodedInstruction) -> bool:
    return isinstance(step.action, MemoryLoad) and step.action.count > 1 and step.action.type.name == "s8"


def _clamps_integer(step: DecodedInstruction) -> bool:
    return _opcode(step, *CLAMPED) and step.attributes.sat and not step.attributes.types[0].is_float


def _shifts_far(step: DecodedInstruction) -> bool:
    amount = step.sources[-1] if step.sources else None
    is_far = isinstance(amount, Immediate) and amount.code(TYPES["u32"]) > MAX_AMOUNT
    return _opcode(step, "shl", "shr") and step.attributes.types[0].bits == 64 and is_far


def _counts_bits(step: DecodedInstruction) -> bool:
    """Whether a step of 64 bits reads an amount that was not converted already."""
    is_wide = bool(step.attributes.types) and step.attributes.types[0].bits == 64
    return _opcode(step, "shl", "shr", "bfe", "bfi") and is_wide and not getattr(step.action, "replaces", "")


def _leaves_float(step: DecodedInstruction) -> bool:
    """Whether a step leaves an f32 and begins a block of ptxas: set, or a division or root with a slow path."""
    is_float = bool(step.attributes.types) and step.attributes.types[0].name == "f32"
    is_sequence = _opcode(step, "div", "rcp", "sqrt") and step.attributes.accuracy is None
    return is_float and (_opcode(step, "set") or is_sequence)


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


def _is_sum_with_constant(step: DecodedInstruction) -> bool:
    return _opcode(step, "add", "sub", "addc", "subc") and _has_constant(step)


PAIRS = (
    UncertainPair(
        _reads_fp8, _unpacks_quarters,
        "of a quarter of 64 bits that mov unpacked, the conversion from fp8 may read another quarter",
    ),
    UncertainPair(
        _packs, lambda step: _makes_fp8(step) and _types(step)[1:] == ["f16x2"],
        "a pair of fp8 that mov packs may be packed with bits of its operand",
    ),
    UncertainPair(
        _reads_halves, lambda step: _loads_narrow(step, 32),
        "of a half that was loaded into a wider register, the upper bits may be those of its neighbour",
    ),
    UncertainPair(
        _unpacks_quarters, lambda step: _loads_narrow(step, 64),
        "of a few bits that were loaded into a wider register, the upper bits may be those of their neighbours",
    ),
    UncertainPair(
        lambda step: _opcode(step, "shl", "shr", "bfe", "bfi"), _loads_signed_bytes,
        "bytes that were loaded together may be read without their sign",
    ),
    UncertainPair(
        lambda step: _opcode(step, "cvt") and step.attributes.sat and step.attributes.types[-1].is_float,
        _clamps_integer, "a result of an instruction with .sat may be taken as clamped to 0..1",
    ),
    UncertainPair(
        lambda step: _opcode(step, "rcp") and step.attributes.accuracy is not None and step.attributes.ftz,
        lambda step: _opcode(step, "ex2", "rcp") and step.attributes.accuracy is not None and step.attributes.ftz,
        "the reciprocal of an approximate function may become another function",
    ),
    UncertainPair(
        lambda step: _opcode(step, "neg", "abs", "shl", "shr"), lambda step: _opcode(step, "cnot"),
        "the result of cnot may be read as the number 1",
    ),
    UncertainPair(
        lambda step: _opcode(step, "neg"), lambda step: _opcode(step, "set") and "bf16" in _types(step)[:1],
        "the result of set may be read as the number 1",
    ),
    UncertainPair(
        _clamped_sum, _is_sum_with_constant, "constants of two sums may be joined, and the clamp be lost",
    ),
    UncertainPair(
        _shifts_far, lambda step: _opcode(step, "mul"),
        "a shift of 64 bits by a large number that is written may do nothing",
    ),
    UncertainPair(
        _counts_bits, _leaves_float, "an amount that a float instruction left may be converted to an integer",
    ),
    UncertainPair(
        lambda step: _opcode(step, "vote"), lambda step: _opcode(step, "elect"),
        "a vote on what elect left may be computed otherwise",
    ),
    UncertainPair(
        lambda step: _opcode(step, "mul") and step.attributes.types[-1].name == "f64" and _has_constant(step),
        lambda step: _opcode(step, "neg"), "a negation before a product with a constant may change the sign of a NaN",
    ),
    UncertainPair(
        _adds_shared_halves, _is_scalar_video, "the atomic sum of halves may add another half",
    ),
)  # fmt: skip


def relevant_pairs(steps: Sequence[DecodedInstruction]) -> list[UncertainPair]:
    """The rows of which a program has what wrote."""
    return [pair for pair in PAIRS if any(pair.wrote(step) for step in steps)]


def doubt_pairs(
    step: DecodedInstruction, values: Values, table: ValueTable, at: int, pairs: Sequence[UncertainPair]
) -> None:
    """Doubt a step whose operand one of the rows names."""
    for pair in pairs:
        if not step.doubt and pair.reads(step):
            definitions = [definition[0] for value in values if (definition := table.definition(value)) is not None]
            packed = [register for source in step.sources for register in registers_of(source) if source != register]
            definitions += [writer for register in packed if (writer := table.last_writer(at, register)) is not None]
            if any(pair.wrote(definition) for definition in definitions):
                step.doubt = pair.compiler


def doubt_constants(step: DecodedInstruction, values: Values, *, has_nan: bool) -> None:
    """Doubt what ptxas computes of constants by no rule that is known: NaNs, and subnormal quotients."""
    attributes = step.attributes
    codes = [value.code for value in values if isinstance(value, Constant)]
    is_quotient = _opcode(step, "div") and attributes.accuracy is not None and len(codes) == len(values)
    if is_quotient and any(0 < code & 0x7FFFFFFF < MIN_NORMAL_F32 for code in codes):
        step.doubt = "a quotient of two constants may be computed otherwise"
    elif has_nan:
        step.doubt = "which NaN a compiler leaves of constants is not known"


def doubt_text(step: DecodedInstruction) -> None:
    """Doubt what the text of a step alone makes uncertain."""
    attributes, length = step.attributes, step.sources[-1] if step.sources else None
    if _opcode(step, "bfe") and attributes.types[0].name == "s32" and isinstance(length, Immediate):
        if length.code(TYPES["u32"]) & 0xFF >= 32 and not isinstance(step.sources[1], Immediate):
            step.doubt = "a field of more bits than the word has may be filled otherwise beyond it"
    elif isinstance(step.action, MatrixOp) and step.action.operation == "wgmma":
        registers = [register.index for register in registers_of(step.sources[0])]
        if len(set(registers)) != len(registers):
            step.doubt = "of a register that is in A twice, ptxas may take another"
