"""How steps are doubted: where a row of `uncertain_pairs` names what reads and what wrote, or the text of a step alone.

A step is doubted as soon as it runs, or it gets an alternative: it is inexact where the two results differ.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, permutations
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.ptx.lowering.liveness import readers_behind, written_registers
from warpfrag.ptx.lowering.uncertain_pairs import PAIRS, UNIFORM_MATRIX, UncertainPair, is_banked
from warpfrag.ptx.lowering.values import Constant, Joined, Result
from warpfrag.ptx.opcodes.integer import by_parts
from warpfrag.ptx.program.actions import Alternative, Branch, LaneOp, MatrixOp, MemoryLoad, Move
from warpfrag.ptx.program.program import (
    Immediate,
    MemoryOperand,
    OtherReading,
    Register,
    SpecialRegister,
    VectorOperand,
    registers_of,
)
from warpfrag.ptx.program.types import F64, TYPES, U16
from warpfrag.ptx.semantics import floats

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warpfrag.ptx.lowering.values import Value, Values, ValueTable
    from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand
    from warpfrag.ptx.program.types import Codes

MIN_NORMAL_F32 = 0x00800000
MINUS_1 = 0xFFFFFFFF
MINUS_0, HALF = 0x8000, 0xFFFF  # of f16 and bf16
S16 = TYPES["s16"]
SAME_IN_WARP = {"redux", "vote", "activemask", "elect"}
OF_A_THREAD = ("%tid", "%laneid", "%lanemask")


def _doubt_upper(step: DecodedInstruction, reason: str) -> None:
    """Doubt a step where the upper half of its result is not 0."""
    action = step.action
    if not isinstance(action, LaneOp):
        return
    function = action.function

    def run(*codes: Codes) -> Codes:
        result = function(*codes)
        first = result[0] if isinstance(result, tuple) else result
        return first & first.dtype.type(0xFFFF)

    step.action = replace(action, alternative=Alternative(run, reason))


def relevant_pairs(steps: Sequence[DecodedInstruction], version: str, *, has_library: bool) -> list[UncertainPair]:
    """The rows of a version of ptxas of which a program has what wrote."""
    pairs = [pair for pair in PAIRS if (has_library or not pair.is_late) and version in pair.versions]
    return [pair for pair in pairs if any(pair.wrote(step) for step in steps)]


def doubt_pairs(
    step: DecodedInstruction, values: Values, table: ValueTable, at: int, pairs: Sequence[UncertainPair]
) -> None:
    """Doubt a step whose operand one of the rows names."""
    for pair in pairs:
        if step.doubt or not pair.reads(step):
            continue
        if pair.is_joined:
            if _is_joined(pair, values, table):
                step.doubt = pair.compiler
            continue
        matched = {
            place: writers
            for place, value in enumerate(values)
            if (
                writers := [
                    item for item in table.writers(value, is_carried=pair.is_carried) if _matches(pair, item, table)
                ]
            )
            and (pair.position is None or not isinstance(value, Result) or pair.position(writers[0], value.position))
            and (not pair.is_far or not table.is_near(value, step))
            and (not pair.shares or _shares(writers, step))
            and (not pair.is_upper_only or not _is_first_part(value, writers))
            and (not pair.is_repeated or _repeats(writers, step, place, table))
        }
        places = list(matched)
        if step.attributes.opcode == "div":
            places = [place for place in places if place == 1]
        if not _is_such_a_place(pair, step, table, at, places):
            continue
        if pair.is_upper:
            for writer in (item for items in matched.values() for item in items):
                _doubt_upper(writer, pair.compiler)
        elif pair.code is not None or pair.other is not None:
            _add_alternative(pair, step, places)
        else:
            _doubt_operands(pair, step, table, at, places)


def _doubt_operands(
    pair: UncertainPair, step: DecodedInstruction, table: ValueTable, at: int, places: list[int]
) -> None:
    """Doubt a step that reads what a row names at some places, or in its vectors."""
    packed = [item for item, writer in _packed_writers(step, table, at) if _matches(pair, writer, table)]
    if not places and not packed:
        return
    step.doubt = pair.compiler
    if pair.is_merged:
        _doubt_other_half(step, at, table, pair.compiler)
    if pair.misread is not None:
        read = [item for place in places for item in registers_of(step.sources[place])]
        registers = {item.index: item for item in (*read, *packed)}
        step.misreading = OtherReading(tuple(registers.values()), pair.misread)


def _doubt_other_half(step: DecodedInstruction, at: int, table: ValueTable, reason: str) -> None:
    """Doubt what extends a register that a step packs as an upper half."""
    vector = step.sources[0]
    upper = vector.items[1::2] if isinstance(vector, VectorOperand) else ()
    for item in (item for item in upper if isinstance(item, Register)):
        for other in (table.steps[place] for place in readers_behind(table.steps, at, item)):
            if isinstance(other.action, LaneOp) and not {S16, U16}.isdisjoint(other.action.sources):
                other.doubt = other.doubt or reason


def _is_such_a_place(
    pair: UncertainPair, step: DecodedInstruction, table: ValueTable, at: int, places: list[int]
) -> bool:
    """Whether the code around a step is as a row says."""
    if pair.is_upper_only and not _is_upper_only(step, table, at):
        return False
    if pair.is_beside_guard and not _is_beside_guard(step, table, at):
        return False
    return not pair.is_only_use or not all(table.has_other_reader(at, step.sources[place]) for place in places)


def _add_alternative(pair: UncertainPair, step: DecodedInstruction, places: list[int]) -> None:
    """Let a step that reads what a row names at some places be inexact where the results differ."""
    if places and pair.code is not None:
        _doubt_code(step, places, pair.code, pair.compiler)
    elif places and pair.other is not None and isinstance(step.action, LaneOp):
        alternative = Alternative(pair.other(step.action, places), pair.compiler)
        step.action = replace(step.action, alternative=alternative)


def _even_items(operand: PtxOperand) -> tuple[PtxOperand, ...]:
    """The items of a vector that become the lower half of a word."""
    return operand.items[::2] if isinstance(operand, VectorOperand) else ()


def _matches(pair: UncertainPair, writer: DecodedInstruction, table: ValueTable) -> bool:
    if not pair.wrote(writer):
        return False
    if pair.source is None:
        return True
    before = writer.sources[0] if writer.sources else None
    first = table.last_writer(table.steps.index(writer), before) if isinstance(before, Register) else None
    return first is not None and pair.source(first)


def _repeats(writers: list[DecodedInstruction], step: DecodedInstruction, place: int, table: ValueTable) -> bool:
    """Whether one of some steps does the same as a step that adds its result."""
    same = [item for item in writers if item.name == step.name and item.sources[:2] == step.sources[:2]]
    return place == 2 and any(item is not step or table.is_same_loop(item, step) for item in same)


def _is_first_part(value: Value | None, writers: list[DecodedInstruction]) -> bool:
    """Whether a value is the first of several that were loaded together."""
    is_first = isinstance(value, Result) and value.position == 0
    return is_first and all(isinstance(item.action, MemoryLoad) and item.action.count > 1 for item in writers)


def _is_joined(pair: UncertainPair, values: Values, table: ValueTable) -> bool:
    """Whether one of two values was left by a step that reads a register twice, and that reads the other value too."""
    plain = [_unchanged(value, table) for value in values]
    for value, other in permutations(plain, 2):
        if not isinstance(value, Result) or not pair.wrote(table.steps[value.step]):
            continue
        read = [_unchanged(item, table) for item in table.operands(value.step)]
        is_repeated = any(_is_same(a, b, table) for a, b in combinations(read, 2))
        if is_repeated and any(_is_same(item, other, table) for item in read):
            return True
    return False


def _unchanged(value: Value | None, table: ValueTable) -> Value | None:
    """What a value is, or the negation of: of an operation with 0, the other operand."""
    while isinstance(value, Result) and table.steps[value.step].attributes.opcode in {"or", "xor", "not"}:
        others = [item for item in table.operands(value.step) if item != Constant(0)]
        if len(others) != 1 or table.steps[value.step].guard is not None:
            break
        value = others[0]
    return value


def _is_same(a: Value | None, b: Value | None, table: ValueTable) -> bool:
    """Whether two values in registers are equal, or loads of the same address left them."""
    if isinstance(a, Result) and isinstance(b, Result) and a.position == b.position:
        first, second = table.steps[a.step], table.steps[b.step]
        return first is second or (
            isinstance(first.action, MemoryLoad) and first.name == second.name and first.sources == second.sources
        )
    return a == b and isinstance(a, Joined)


def _is_upper_only(step: DecodedInstruction, table: ValueTable, at: int) -> bool:
    """Whether nothing reads the first part of what a step unpacks, in that or in the whole.

    What lies in a bank may be loaded anew in a block that reads the second part: there something has to read the first.
    """
    vector, source = step.results[0], step.sources[0]
    lowest, second = vector.items[:2] if isinstance(vector, VectorOperand) else (None, None)
    writer = table.last_writer(at, source) if isinstance(source, Register) else None
    if writer is not None and is_banked(writer) and isinstance(second, Register):
        first = [
            table.blocks_behind(at, item, is_whole=True) for item in (lowest, source) if isinstance(item, Register)
        ]
        if _blocks_of_copies(second, table, at).difference(*first):
            return True
    is_read = isinstance(lowest, Register) and table.is_read_behind(at, lowest, is_whole=True)
    return not is_read and not table.has_other_reader(at, source, is_whole=True)


def _blocks_of_copies(register: Register, table: ValueTable, at: int) -> set[int]:
    """The blocks behind that of a step in which a register that it wrote is read, or a copy made in the same block."""
    blocks = table.blocks_behind(at, register)
    for place in readers_behind(table.steps, at, register):
        copied = _moved(table.steps[place]) if at < place < table.ends[at] else []
        for target in (target for target, source in copied if source == register):
            blocks |= _blocks_of_copies(target, table, place)
    return blocks


def _is_beside_guard(step: DecodedInstruction, table: ValueTable, at: int) -> bool:
    """Whether a guarded step wrote a register that a step packs as an upper half."""
    vector = step.sources[0]
    upper = vector.items[1::2] if isinstance(vector, VectorOperand) else ()
    writers = [table.last_writer(at, item) for item in upper if isinstance(item, Register)]
    return any(writer is not None and writer.guard is not None for writer in writers)


def _shares(writers: list[DecodedInstruction], step: DecodedInstruction) -> bool:
    return any(writer.sources[1] in step.sources for writer in writers)


def _packed_writers(
    step: DecodedInstruction, table: ValueTable, at: int
) -> Iterator[tuple[Register, DecodedInstruction]]:
    """The registers of the vectors that a step reads, and what wrote them."""
    items_of = _even_items if isinstance(step.action, Move) else registers_of
    factors = step.sources[:2] if isinstance(step.action, MatrixOp) else step.sources
    for source in factors:
        for item in items_of(source) if isinstance(source, VectorOperand) else ():
            if isinstance(item, Register) and (writer := table.last_writer(at, item)) is not None:
                yield item, writer


def _doubt_code(step: DecodedInstruction, places: list[int], code: int, reason: str) -> None:
    """Doubt a step where an operand at one of some places has a code."""
    action = step.action
    if not isinstance(action, LaneOp):
        step.doubt = reason
        return
    function = action.function

    def run(*codes: Codes) -> Codes:
        result = function(*codes)
        first = result[0] if isinstance(result, tuple) else result
        is_read = np.logical_or.reduce([codes[place] == code for place in places])
        return np.where(is_read, ~first, first)

    step.action = replace(action, alternative=Alternative(run, reason))


def doubt_constants(step: DecodedInstruction, values: Values, *, has_nan: bool) -> None:
    """Doubt what ptxas computes of constants by no rule that is known: NaNs, and subnormal quotients."""
    attributes = step.attributes
    codes = [value.code for value in values if isinstance(value, Constant)]
    is_quotient = step.attributes.opcode == "div" and attributes.accuracy is not None and len(codes) == len(values)
    if is_quotient and attributes.ftz and any(0 < code & 0x7FFFFFFF < MIN_NORMAL_F32 for code in codes):
        step.doubt = "a quotient of two constants may be computed differently"
    elif has_nan:
        _doubt_nan(step, "which NaN a compiler leaves of constants is not known")
    elif attributes.opcode == "movmatrix" and codes:
        step.doubt = UNIFORM_MATRIX
    elif attributes.opcode == "fma" and len(codes) > 1 and values[0] == values[1]:
        _doubt_squared_zero(step, codes[0])


def _doubt_squared_zero(step: DecodedInstruction, code: int) -> None:
    """Doubt the square of two halves of which one is -0 and the other is not: the sign of the first -0 is lost."""
    action = step.action
    halves = (code & HALF, code >> 16)
    if not isinstance(action, LaneOp) or action.results[0].parts != 2 or halves.count(MINUS_0) != 1:
        return
    function, sign = action.function, MINUS_0 << 16 * halves.index(MINUS_0)

    def run(a: Codes, b: Codes, c: Codes) -> Codes:
        result = function(a & ~a.dtype.type(sign), b, c)
        return result[0] if isinstance(result, tuple) else result

    reason = "of the square of a constant whose one half is -0, that half may be -0"
    step.action = replace(action, alternative=Alternative(run, reason))


def _doubt_nan(step: DecodedInstruction, reason: str) -> None:
    """Doubt a step where its result is a NaN: it may be another; one that is no float may be anything."""
    action = step.action
    if not isinstance(action, LaneOp) or len(action.results) != 1 or not action.results[0].is_float:
        step.doubt = reason
        return
    function, kind = action.function, action.results[0]
    another = by_parts(kind, lambda a: floats.another_nan(a, kind.element))

    def run(*codes: Codes) -> Codes:
        result = function(*codes)
        return another(result[0] if isinstance(result, tuple) else result)

    step.action = replace(action, alternative=Alternative(run, reason))


def doubt_text(step: DecodedInstruction, *, has_calls: bool) -> None:
    """Doubt what the text of a step alone makes uncertain, in a kernel that calls functions or not."""
    if has_calls and step.attributes.opcode == "setmaxnreg":
        step.doubt = "in a kernel that calls functions, another number of registers may change local memory"
    if isinstance(step.action, MatrixOp) and step.action.operation == "wgmma":
        registers = [register.index for register in registers_of(step.sources[0])]
        if len(set(registers)) != len(registers):
            step.doubt = "of a register that is in A twice, ptxas may take another"


def doubt_registers_of_a(steps: Sequence[DecodedInstruction]) -> None:
    """Doubt wgmma with A in registers, where ptxas takes another word or another sign for what left one of them."""
    if not any(_reads_a(step) for step in steps):
        return
    last: dict[int, tuple[DecodedInstruction, Register]] = {}  # what left a register, and the one that mov copied
    read = Counter(index for step in steps for index in {item.index for item in _wide_sources(step)})
    for step in steps:
        for item in registers_of(step.sources[0]) if _reads_a(step) else ():
            writer, register = last.get(item.index, (None, item))
            whole = _upper_word_of(writer, register, last) if writer is not None else None
            if writer is not None and writer.attributes.opcode == "cnot" and _negates_a(step):
                step.doubt = "with a result of cnot in A, the sign of A may be changed as that of integers"
            elif whole is not None and read[whole.index] > 1:
                step.doubt = "of the upper word of 64 bits that are in use, A may take the lower word"
        for register in written_registers(step):
            source = step.sources[0] if isinstance(step.action, Move) and len(step.sources) == 1 else None
            is_copy = isinstance(source, Register) and source.bits == register.bits
            before = last.get(source.index) if is_copy and isinstance(source, Register) else None
            last[register.index] = before or (step, register)


def _reads_a(step: DecodedInstruction) -> bool:
    """Whether a step is wgmma with A in registers."""
    is_wgmma = isinstance(step.action, MatrixOp) and step.action.operation == "wgmma"
    return is_wgmma and isinstance(step.sources[0], VectorOperand)


def _negates_a(step: DecodedInstruction) -> bool:
    """Whether wgmma is told to change the sign of A, by the number behind its predicate."""
    pairs = zip(step.sources, step.sources[1:], strict=False)
    behind = [second for first, second in pairs if isinstance(first, Register) and first.bits == 1]
    return any(isinstance(item, Immediate) and item.code(TYPES["s32"]) == MINUS_1 for item in behind)


def _wide_sources(step: DecodedInstruction) -> list[Register]:
    return [item for source in step.sources for item in registers_of(source) if item.bits == F64.bits]


def _upper_word_of(
    step: DecodedInstruction, register: Register, last: dict[int, tuple[DecodedInstruction, Register]]
) -> Register | None:
    """The 64-bit register whose upper word a step left in another: by mov into two, or as cvt of what shr left."""
    target, source = step.results[0], step.sources[0] if step.sources else None
    if not isinstance(source, Register) or source.bits != F64.bits:
        return None
    if isinstance(target, VectorOperand):
        return source if len(target.items) == 2 and target.items[1] == register else None
    shifted, _ = last.get(source.index, (None, None))
    if step.attributes.opcode != "cvt" or shifted is None or shifted.attributes.opcode != "shr":
        return None
    return next(iter(_wide_sources(shifted)), None)


def doubt_transposed(steps: Sequence[DecodedInstruction]) -> None:
    """Doubt movmatrix of a word that is the same in every thread: ptxas takes its result as the same, too.

    It then branches on the result as if all threads went one way, and does not wait for those that go another. Other
    uses are not doubted here.
    """
    if not any(step.attributes.opcode == "movmatrix" for step in steps):
        return
    uniform: set[int] = set()
    derived: dict[int, set[int]] = {}  # by register: the places of the movmatrix that its value comes from
    for at, step in enumerate(steps):
        read = _registers_read(step)
        places = {place for item in (*read, *_guard_of(step)) for place in derived.get(item.index, ())}
        if step.attributes.opcode == "movmatrix" and any(item.index in uniform for item in read):
            places.add(at)
        if isinstance(step.action, Branch):
            for place in places:
                steps[place].doubt = UNIFORM_MATRIX
        is_uniform = step.guard is None and _leaves_uniform(step, uniform)
        for register in written_registers(step):
            (uniform.add if is_uniform else uniform.discard)(register.index)
            derived[register.index] = places


def _guard_of(step: DecodedInstruction) -> tuple[Register, ...]:
    return () if step.guard is None else (step.guard,)


def _registers_read(step: DecodedInstruction) -> list[Register]:
    bases = [source.base for source in step.sources if isinstance(source, MemoryOperand)]
    direct = [item for source in step.sources for item in registers_of(source)]
    return [*direct, *(base for base in bases if isinstance(base, Register))]


def _leaves_uniform(step: DecodedInstruction, uniform: set[int]) -> bool:
    """Whether ptxas takes a result as the same in every thread of a warp, by the registers of which it does so."""
    opcode = step.attributes.opcode
    if opcode in SAME_IN_WARP or (opcode == "match" and ".all" in step.name):
        return True
    if opcode == "shfl":
        return ".idx" in step.name and all(isinstance(source, Immediate) for source in step.sources[1:2])
    special = [source.name for source in step.sources if isinstance(source, SpecialRegister)]
    if any(name.startswith(OF_A_THREAD) for name in special):
        return False
    if isinstance(step.action, MemoryLoad) and step.action.space == "local":
        return False
    is_read = isinstance(step.action, LaneOp | Move | MemoryLoad)
    return is_read and all(item.index in uniform for item in _registers_read(step))


def doubt_copies(steps: Sequence[DecodedInstruction]) -> None:
    """Doubt wgmma that overwrites a register of which mov made a copy before: the copy may change too.

    Copies of a constant do not count: ptxas makes the constant anew. (Triton starts its accumulators so.)
    """
    copied: dict[Register, int] = {}  # the register that another is a copy of, or a part
    constant: set[int] = set()
    for at, step in enumerate(steps):
        written = {register.index for register in written_registers(step)}
        changed = [copy for copy, register in copied.items() if register in written and copy.index not in written]
        is_wgmma = isinstance(step.action, MatrixOp) and step.action.operation == "wgmma"
        if is_wgmma and any(any(readers_behind(steps, at, copy)) for copy in changed):
            step.doubt = "a copy of a register that wgmma writes may be made behind it"
        copied = {copy: register for copy, register in copied.items() if not {copy.index, register} & written}
        moved = _moved(step)
        constant -= written
        constant |= {
            target.index for target, source in moved if isinstance(source, Immediate) or source.index in constant
        }
        copied |= {
            target: source.index
            for target, source in moved
            if target.index not in constant and isinstance(source, Register) and source.index not in written
        }


def _moved(step: DecodedInstruction) -> list[tuple[Register, Register | Immediate]]:
    """What mov without a guard copies: the register that is written, and what it gets, or a part of."""
    if not isinstance(step.action, Move) or step.guard is not None:
        return []
    pairs = zip(map(_items, step.results), map(_items, step.sources), strict=False)
    return [
        (target, source)
        for targets, sources in pairs
        if len(targets) == len(sources) or len(sources) == 1
        for target, source in zip(targets, sources * (len(targets) // len(sources)), strict=True)
        if isinstance(target, Register) and isinstance(source, Register | Immediate)
    ]


def _items(operand: PtxOperand) -> tuple[PtxOperand, ...]:
    return operand.items if isinstance(operand, VectorOperand) else (operand,)
