"""Instructions of which ptxas 13.0 may make something else because of the one that computed their operand.

Random kernels on an H200 showed each pair; which of two results comes out depends on the code around, so a step is only
doubted. A row names the instruction that reads, the one that wrote what it reads, and what ptxas does. Values are
followed through moves and blocks (`values`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from warpfrag.ptx.lowering.values import Constant
from warpfrag.ptx.program.actions import Atomic, LaneOp, MemoryLoad, MemoryStore, Move
from warpfrag.ptx.program.program import Immediate, VectorOperand, registers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from warpfrag.ptx.lowering.values import Values, ValueTable
    from warpfrag.ptx.program.program import DecodedInstruction

PAIRS_OF_FP8 = {"e4m3x2", "e5m2x2"}
APPROXIMATE = {"ex2", "rcp", "rsqrt", "sqrt"}
BANKED = {"param", "const"}  # state spaces of which ptxas reads whole words


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
    action = step.action
    return isinstance(action, Move) and action.type.bits == 64 and isinstance(step.results[0], VectorOperand)


def _packs(step: DecodedInstruction) -> bool:
    return isinstance(step.action, Move) and isinstance(step.sources[0], VectorOperand)


def _is_packed(step: DecodedInstruction) -> bool:
    return isinstance(step.action, LaneOp) and any(kind.parts == 2 for kind in step.attributes.types)


def _loads_halves(step: DecodedInstruction) -> bool:
    action = step.action
    return isinstance(action, MemoryLoad) and action.count > 1 and action.type.bits == 16


def _loads_wide_halves(step: DecodedInstruction) -> bool:
    wide = any(register.bits == 64 for result in step.results for register in registers_of(result))
    return _loads_halves(step) and step.attributes.space in BANKED and wide


def _clamps_float(step: DecodedInstruction) -> bool:
    return isinstance(step.action, LaneOp) and step.attributes.sat and step.attributes.types[-1].is_float


def _clamps_integer(step: DecodedInstruction) -> bool:
    return isinstance(step.action, LaneOp) and step.attributes.sat and not step.attributes.types[0].is_float


def _clamped_sum(step: DecodedInstruction) -> bool:
    return _opcode(step, "add", "sub") and step.attributes.sat and _has_constant(step) and "s32" in _types(step)


def _has_constant(step: DecodedInstruction) -> bool:
    return any(isinstance(source, Immediate) for source in step.sources)


def _is_sum_with_constant(step: DecodedInstruction) -> bool:
    return _opcode(step, "add", "sub", "addc", "subc") and _has_constant(step)


def _reads_anything(step: DecodedInstruction) -> bool:
    return isinstance(step.action, LaneOp | Move | MemoryStore | Atomic)


PAIRS = (
    UncertainPair(
        _reads_fp8, _unpacks_quarters,
        "of a quarter of 64 bits that mov unpacked, the conversion from fp8 may read another quarter",
    ),
    UncertainPair(
        _packs, _makes_fp8, "a pair of fp8 that mov packs may be packed with bits of its operand",
    ),
    UncertainPair(
        _is_packed, _loads_halves,
        "of a half that was loaded with others into a wider register, the upper bits may be those of its neighbour",
    ),
    UncertainPair(
        _reads_anything, _loads_wide_halves,
        "of a half that was loaded with others into a wider register, the upper bits may be those of its neighbour",
    ),
    UncertainPair(
        _clamps_float, _clamps_integer, "a result of an instruction with .sat may be taken as clamped to 0..1",
    ),
    UncertainPair(
        lambda step: _opcode(step, "rcp") and step.attributes.accuracy is not None,
        lambda step: _opcode(step, *APPROXIMATE) and step.attributes.accuracy is not None,
        "the reciprocal of an approximate function may become another function",
    ),
    UncertainPair(
        lambda step: _opcode(step, "neg", "abs", "shl", "shr"), lambda step: _opcode(step, "cnot"),
        "the result of cnot may be read as the number 1",
    ),
    UncertainPair(
        _clamped_sum, _is_sum_with_constant, "constants of two sums may be joined, and the clamp be lost",
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
    """Doubt what ptxas computes of constants by no rule that is known: NaNs, and quotients."""
    attributes = step.attributes
    if _opcode(step, "div") and attributes.accuracy is not None and all(isinstance(item, Constant) for item in values):
        step.doubt = "a quotient of two constants may be computed otherwise"
    elif has_nan:
        step.doubt = "which NaN a compiler leaves of constants is not known"
