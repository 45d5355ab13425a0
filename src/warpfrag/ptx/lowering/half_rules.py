"""What ptxas makes of halves of words: packed numbers, unpacked words, and operations on 16 bits or fewer.

The rules are those of `known_values`: given a step, the values of its sources and the table of all.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.ptx.lowering.liveness import readers_behind
from warpfrag.ptx.lowering.replaced_steps import (
    doubt,
    first,
    note,
    replace_where_seen,
    second,
)
from warpfrag.ptx.lowering.uncertain_pairs import PAIRS_OF_FP8, QUARTERS
from warpfrag.ptx.lowering.values import Constant, ValueTable
from warpfrag.ptx.opcodes.integer import by_parts
from warpfrag.ptx.program.actions import (
    Atomic,
    Branch,
    DirectCall,
    LaneOp,
    MemoryLoad,
    MemoryStore,
    Move,
)
from warpfrag.ptx.program.departures import DEPARTURES
from warpfrag.ptx.program.program import Immediate, Register, VectorOperand
from warpfrag.ptx.program.types import B16, BF16, F16, F32, F64, TYPES, U16
from warpfrag.ptx.semantics import conversions, floats

if TYPE_CHECKING:
    from warpfrag.ptx.lowering.statements import KernelLowering
    from warpfrag.ptx.lowering.values import Value, Values
    from warpfrag.ptx.program.actions import LaneFunction
    from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand
    from warpfrag.ptx.program.types import Codes, Type


def adds_halves(action: Atomic) -> bool:
    """Whether an atomic operation may add two halves in shared memory."""
    return action.name == "add" and action.type.parts == 2 and action.type.is_float and action.space != "global"


def unpacked_half(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """An atomic sum of two halves whose operand is a word of 64 bits."""
    action = step.action
    if not isinstance(action, Atomic):
        return False
    definition = table.definition(values[1])
    if definition is None:
        return True
    source, position = definition
    is_upper = _is_upper_word(source, position)
    if is_upper is None or table.is_packed(source):
        return True
    whole = source.sources[0]
    function = action.in_window or action.function
    if is_upper:
        run = partial(_add_half, function)
        step.action = replace(action, in_window=run, function=run if action.space == "shared" else action.function)
    elif action.space == "shared" and isinstance(whole, Register) and table.is_unchanged(source, step, whole):
        step.action = replace(action, merges=_merge_half)
        step.sources = (*step.sources, whole)
    else:
        step.doubt = DEPARTURES["atomic sum of an unpacked half"].compiler
    note(kernel, step, "atomic sum of an unpacked half")
    return True


def _is_upper_word(step: DecodedInstruction, position: int) -> bool | None:
    """Whether a result is the upper word of a 64-bit register, or the lower one; None if neither."""
    if step.guard is not None:
        return None
    if step.attributes.opcode == "cvt":
        is_word = [kind.bits for kind in step.attributes.types] == [32, 64] and not step.attributes.types[1].is_float
        return False if is_word else None
    target = step.results[0] if isinstance(step.action, Move) and step.action.type.bits == 64 else None
    if not isinstance(target, VectorOperand) or len(target.items) != 2:
        return None
    kept = [index for index, item in enumerate(target.items) if isinstance(item, Register)]
    return kept[position] == 1 if 0 <= position < len(kept) else None


def _add_half(function: LaneFunction, a: Codes, b: Codes) -> Codes:
    """The sum with the lower half in both halves."""
    low = b & b.dtype.type(0xFFFF)
    result = function(a, low | low << b.dtype.type(16))
    return result[0] if isinstance(result, tuple) else result


def _merge_half(word: Codes, whole: Codes) -> Codes:
    """A word with bits 32 to 47 of a 64-bit value as its upper half."""
    middle = (whole >> np.uint64(32) & np.uint64(0xFFFF)).astype(word.dtype)
    return (word & word.dtype.type(0xFFFF)) | middle << word.dtype.type(16)


def packed_abs(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """abs of two halves in a word that ptxas knows as an f32 without a sign."""
    attributes = step.attributes
    if attributes.opcode != "abs" or not attributes.types[0].is_float or attributes.types[0] in {F32, F64}:
        return False
    definition = table.definition(values[0])
    if attributes.types[0].parts != 2:
        return _half_abs(kernel, step, table)
    if definition is not None and _doubt_packed_abs(step, definition[0], table):
        return True
    if definition is None or definition[0].guard is not None or F32 not in definition[0].attributes.types[:1]:
        return False
    source = definition[0].attributes
    if source.sat or source.opcode in {"ex2", "abs"}:
        kind = attributes.types[0]
        keep = by_parts(kind, lambda a: floats.quiet(floats.flush(a, kind.element), kind.element))
        name = "abs of halves of a positive number"
        is_sure = kind.element != "bf16" and table.is_near(values[0], step)
        replace_where_seen(kernel, step, name, keep if attributes.ftz else first, is_sure=is_sure)
        return True
    is_square = source.opcode == "mul" and len(set(definition[0].sources)) == 1
    if is_square or source.opcode in {"sqrt", "rsqrt", "set", "cos", "sin", "cvt"}:
        doubt(step, "abs of halves of a positive number", first)
    return False


def _half_abs(kernel: KernelLowering, step: DecodedInstruction, table: ValueTable) -> bool:
    """abs of a half of a word that ptxas knows as an f32 without a sign."""
    kind, at = step.attributes.types[0], table.place(step)
    if not _is_half_of_positive(step.sources[0], at, table):
        return False

    def keep(a: Codes) -> Codes:
        return floats.quiet(floats.flush(a, kind.element), kind.element) if step.attributes.ftz else a

    replace_where_seen(kernel, step, "abs of halves of a positive number", keep, is_sure=False)
    return True


def _doubt_packed_abs(step: DecodedInstruction, packed: DecodedInstruction, table: ValueTable) -> bool:
    """Doubt abs of two halves that mov packed, if one of them was a half of an f32 without a sign."""
    source, action = packed.sources[0] if packed.sources else None, step.action
    is_packed = isinstance(packed.action, Move) and isinstance(source, VectorOperand) and len(source.items) == 2
    if not is_packed or not isinstance(source, VectorOperand) or not isinstance(action, LaneOp):
        return False
    at = table.place(packed)
    kept = sum(0x8000 << 16 * half for half in (0, 1) if _is_half_of_positive(source.items[half], at, table))
    function = action.function

    def run(a: Codes) -> Codes:
        result = function(a)
        return (result[0] if isinstance(result, tuple) else result) | a & a.dtype.type(kept)

    if kept:
        doubt(step, "abs of halves of a positive number", run)
    return bool(kept)


def _is_half_of_positive(half: PtxOperand, at: int, table: ValueTable) -> bool:
    """Whether a register holds a half of what an instruction on f32 left that is never negative."""
    writer = table.last_writer(at, half) if isinstance(half, Register) else None
    if writer is None or not writer.sources or not isinstance(writer.sources[0], Register):
        return False
    kinds = [kind.name for kind in writer.attributes.types]
    is_half = isinstance(writer.action, Move) and isinstance(writer.results[0], VectorOperand)
    if not is_half and not (writer.attributes.opcode == "cvt" and kinds in (["u16", "u32"], ["s16", "u32"])):
        return False
    word = table.last_writer(table.place(writer), writer.sources[0])
    if word is None or F32 not in word.attributes.types[:1] or word.guard is not None:
        return False
    return word.attributes.sat or word.attributes.opcode in {"ex2", "abs"}


def low_byte(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """The low byte of ex2 or tanh of f16, by a conversion from or to u8 or a mask."""
    attributes, action = step.attributes, step.action
    if not isinstance(action, LaneOp) or not (_masks(step, values) or _takes_byte(step)):
        return False
    sure = [_is_sure_function(item) for item in map(table.definition, values)]
    if not any(sure) and not any(_may_be_function(value, table) for value in values):
        return False
    name = "low byte of a function of f16"
    if attributes.opcode == "and":
        place = next(at for at, value in enumerate(values) if not isinstance(value, Constant))
        doubt(step, name, second if place else first)
        return True
    target = action.results[0]
    if target.is_float:
        step.doubt = DEPARTURES[name].compiler
        return True
    register, source = step.results[0], step.sources[0]
    kind = TYPES[f"b{register.bits}"] if isinstance(register, Register) else target
    whole = TYPES[f"b{source.bits}"] if isinstance(source, Register) else B16
    bound = replace(action, sources=(whole,), results=(kind,))
    if any(sure):
        step.action = replace(bound, replaces=name, function=lambda a: a.astype(kind.dtype))
    else:
        step.action = replace(bound, function=lambda a: (a & a.dtype.type(0xFF)).astype(kind.dtype))
        doubt(step, name, lambda a: a.astype(kind.dtype))
    note(kernel, step, name)
    return True


def _masks(step: DecodedInstruction, values: Values) -> bool:
    """Whether a step keeps some of 32 bits or fewer, which a constant says."""
    is_mask = step.attributes.opcode == "and" and step.attributes.types[0].bits in {16, 32}
    return is_mask and sum(isinstance(value, Constant) for value in values) == 1


def _takes_byte(step: DecodedInstruction) -> bool:
    """Whether ptxas masks the low byte for a conversion: from u8, unless an s8 is made of it, and to u8."""
    attributes, action = step.attributes, step.action
    if attributes.opcode != "cvt" or not isinstance(action, LaneOp) or len(action.sources) != 1:
        return False
    target, source = action.results[0].name, action.sources[0]
    if source is None or source.is_float or (attributes.sat and not action.results[0].is_float):
        return False
    return target == "u8" or (source.name == "u8" and target not in {"s8", "f16", "f64"})


def _is_sure_function(definition: tuple[DecodedInstruction, int] | None) -> bool:
    """Whether ptxas knows that ex2 or tanh of f16 left a value."""
    return definition is not None and definition[0].guard is None and _is_function(definition[0], F16)


def _is_function(step: DecodedInstruction, kind: Type) -> bool:
    return step.attributes.opcode in {"ex2", "tanh"} and step.attributes.types == (kind,)


def _may_be_function(value: Value | None, table: ValueTable) -> bool:
    """Whether ex2 or tanh of f16 may have left a value: under a guard, in a loop, as one of two halves, or extended."""
    for writer in table.writers(value, is_carried=True):
        if _is_function(writer, F16):
            return True
        kinds = [kind.name for kind in writer.attributes.types]
        is_extension = writer.attributes.opcode == "cvt" and kinds in (["u32", "u16"], ["u64", "u16"], ["s64", "u16"])
        source = writer.sources[0] if writer.sources else None
        if not (is_extension or isinstance(writer.action, Move)) or not isinstance(source, Register):
            continue
        before = table.last_writer(table.steps.index(writer), source)
        if before is not None and _is_function(before, F16 if is_extension else TYPES["f16x2"]):
            return True
    return False


def joined_conversions(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """Doubt a conversion of what another one rounded to an integral number."""
    del kernel
    attributes = step.attributes
    if attributes.opcode != "cvt" or len(attributes.types) != 2 or attributes.types[1] not in {F16, BF16}:
        return False
    definition = table.definition(values[0])
    if definition is None or definition[0].attributes.opcode != "cvt" or not definition[0].attributes.integral:
        return False
    kinds = definition[0].attributes.types
    if kinds[0] in {F16, BF16} and kinds[0] != attributes.types[1]:
        step.doubt = DEPARTURES["conversions between halves joined"].compiler
    return True


def packed_tf32(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """Doubt a conversion to tf32 of a result of two halves; where nothing else reads that, the upper one is lost."""
    attributes, action = step.attributes, step.action
    if attributes.opcode != "cvt" or attributes.types[0].name != "tf32" or attributes.rounding == "rna":
        return False
    halves = [item for item in table.writers(values[0], is_carried=table.has_loops) if _leaves_two_halves(item)]
    at = table.place(step)
    is_carried = table.definition(values[0]) is None  # from another round of a loop
    if is_carried:
        halves = [item for item in halves if table.place(item) > at]
    if not halves or not isinstance(action, LaneOp):
        return False
    if not is_carried and table.has_other_reader(at, step.sources[0], is_whole=True):
        return True
    if is_carried or not table.has_other_reader(at, step.sources[0]):
        step.doubt = DEPARTURES["tf32 of a packed sum"].compiler
        note(kernel, step, "tf32 of a packed sum")
        return True
    function = action.function

    def run(a: Codes) -> Codes:
        result = function(a & np.uint32(0xFFFF))
        return result[0] if isinstance(result, tuple) else result

    doubt(step, "tf32 of a packed sum", run)
    return True


def _leaves_two_halves(step: DecodedInstruction) -> bool:
    """Whether a result is two halves: set of two halves leaves them as an integer too."""
    kinds = step.attributes.types
    return any(kind.parts == 2 for kind in (kinds if step.attributes.opcode == "set" else kinds[:1]))


def doubled_truth(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """What set to f16 or bf16 leaves is in both halves of a register, and what extends a u16 reads all of it."""
    attributes, action = step.attributes, step.action
    if not isinstance(action, LaneOp) or U16 not in action.sources:
        return False
    is_wide = attributes.opcode in {"mul", "mad"} and attributes.half == "wide"
    is_extended = attributes.opcode == "cvt" and action.results[0].bits == 32 and not action.results[0].is_float
    if not (is_wide or (is_extended and not attributes.sat) or _reads_more(step)):
        return False
    places = [
        place
        for place, (value, kind) in enumerate(zip(values, action.sources, strict=True))
        if kind == U16 and (item := table.definition(value)) is not None and _compares_halves(item[0])
    ]
    if not places:
        return False
    name, function = "truth value in both halves", action.function

    def extended(*codes: Codes) -> Codes:
        words = [code.astype(np.uint32) for code in codes]
        first, *others = (word | word << np.uint32(16) if at in places else word for at, word in enumerate(words))
        product = first * others[0] if others else first
        return product + others[1] if len(others) > 1 else product

    def changed(*codes: Codes) -> tuple[Codes, ...]:
        results = function(*codes)
        is_read = np.logical_or.reduce([codes[place] != 0 for place in places])
        return tuple(np.where(is_read, ~code, code) for code in (results if isinstance(results, tuple) else (results,)))

    if is_wide or is_extended:
        is_near = all(table.is_near(values[place], step) for place in places)
        is_late = table.has_functions or table.has_loops  # with which set may become a selection, of one half
        replace_where_seen(kernel, step, name, extended, is_sure=is_near and not is_late)
    else:
        doubt(step, name, changed)
    return True


def _compares_halves(step: DecodedInstruction) -> bool:
    """Whether a step is set of halves as one instruction leaves it: one that flushes or has a guard is extended."""
    kinds, action = step.attributes.types, step.action
    is_plain = isinstance(action, LaneOp) and not action.replaces and step.guard is None and not step.attributes.ftz
    is_set = step.attributes.opcode == "set" and len(kinds) == 2
    return is_plain and is_set and kinds[0] in {F16, BF16} and kinds[1] in {F16, BF16}


def _reads_more(step: DecodedInstruction) -> bool:
    """Whether an instruction of 16 bits looks at the upper half of its register."""
    attributes = step.attributes
    if attributes.opcode in {"mul", "mad"}:
        return attributes.half == "hi"
    return attributes.opcode in {"setp", "set", "sad", "div", "rem", "shr"}


def truncated_half(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """cvt.rzi of what abs.ftz or neg.ftz of f16 left rounds to nearest."""
    attributes, action = step.attributes, step.action
    if attributes.opcode != "cvt" or attributes.integral != "rzi" or not isinstance(action, LaneOp):
        return False
    if action.sources != (F16,) or action.results[0].is_float:
        return False
    definition = table.definition(values[0])
    writers = [definition[0]] if definition is not None else table.writers(values[0], is_carried=True)
    unpacked = [
        before
        for writer in writers
        if isinstance(writer.action, Move) and isinstance(writer.sources[0], Register)
        if (before := table.last_writer(table.steps.index(writer), writer.sources[0])) is not None
    ]
    if not any(changes_flushed_sign(writer) for writer in (*writers, *unpacked)):
        return False
    target = action.results[0]

    def rounded(a: Codes) -> Codes:
        return conversions.float_to_integer(a, "f16", target, "rni", ftz=False)

    is_sure = definition is not None and changes_flushed_sign(definition[0]) and definition[0].guard is None
    replace_where_seen(kernel, step, "truncation of a flushed half", rounded, is_sure=is_sure)
    return True


def changes_flushed_sign(step: DecodedInstruction) -> bool:
    """Whether a step is abs or neg of f16 with .ftz."""
    attributes = step.attributes
    is_sign = attributes.opcode in {"abs", "neg"} and attributes.ftz
    return is_sign and attributes.types[0].element == "f16"


def zero_quarter(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """Doubt a conversion from fp8 of the upper quarter of 64 bits whose upper word is a constant."""
    attributes = step.attributes
    if attributes.opcode != "cvt" or len(attributes.types) != 2 or attributes.types[1].name not in PAIRS_OF_FP8:
        return False
    definition = table.definition(values[0])
    if definition is None or not isinstance(definition[0].action, Move):
        return False
    source, position = definition
    vector, whole = source.results[0], source.sources[0]
    if not isinstance(vector, VectorOperand) or len(vector.items) != QUARTERS or not isinstance(whole, Register):
        return False
    kept = [index for index, item in enumerate(vector.items) if isinstance(item, Register)]
    at = next(index for index, other in enumerate(table.steps) if other is source)
    before = table.last_writer(at, whole)
    is_upper = 0 <= position < len(kept) and kept[position] == QUARTERS - 1
    if before is not None and is_upper and _knows_upper_word(before):
        step.doubt = DEPARTURES["fp8 of a known quarter"].compiler
        note(kernel, step, "fp8 of a known quarter")
    return True


def _knows_upper_word(step: DecodedInstruction) -> bool:
    """Whether ptxas knows the upper word of a result: it is packed with a constant, or no more than 32 bits."""
    attributes, action = step.attributes, step.action
    if isinstance(action, Move):
        source = step.sources[0]
        return isinstance(source, VectorOperand) and isinstance(source.items[-1], Immediate)
    if isinstance(action, MemoryLoad):
        return action.type.bits < 64 and action.type.kind != "s"
    if attributes.opcode == "cvt":
        kind = attributes.types[-1]
        return kind.bits < 64 and kind.kind not in {"s", "f"}
    is_mask = attributes.opcode == "and" and any(isinstance(source, Immediate) for source in step.sources)
    is_shift = attributes.opcode == "shr" and isinstance(step.sources[-1], Immediate)
    return attributes.opcode == "cnot" or is_mask or is_shift


def lower_extremum(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """Doubt min and max of f64 of which nothing but the lower word is read, where ptxas sees it late."""
    action, attributes = step.action, step.attributes
    if attributes.opcode not in {"min", "max"} or attributes.types != (F64,) or not isinstance(action, LaneOp):
        return False
    at, result = next(index for index, other in enumerate(table.steps) if other is step), step.results[0]
    has_constant = any(isinstance(value, Constant) for value in values)
    if not isinstance(result, Register) or not _is_seen_late(table, at, has_constant=has_constant):
        return False
    if not _is_lower_word(table, at, result):
        return False
    is_first = isinstance(values[0], Constant)  # which ptxas makes the second operand

    def run(a: Codes, b: Codes) -> Codes:
        held = action.function(a, b)
        code, low = held[0] if isinstance(held, tuple) else held, np.uint64(0xFFFFFFFF)
        compared, other = (b, a) if is_first else (a, b)
        return (code & ~low) | (np.where(compared << np.uint64(1) == 0, compared, other) & low)

    doubt(step, "lower word of a minimum", run)
    note(kernel, step, "lower word of a minimum")
    return True


def _is_seen_late(table: ValueTable, at: int, *, has_constant: bool) -> bool:
    """Whether the code has what lets ptxas look again: a quotient of f64, or in a function a branch or a guard.

    Other quotients are those under a guard of which nothing but the lower word is read; in functions, two fields of the
    same position in different blocks of the program count too.
    """
    starts = {target for other in table.steps if isinstance(other.action, DirectCall) for target in other.targets}
    start = max((place for place in starts if place <= at), default=None)
    if start is None:
        return any(
            _divides(step) and (has_constant or _is_lower_quotient(table, place))
            for place, step in enumerate(table.steps)
        )
    end = min((place for place in starts if place > at), default=len(table.steps))
    places = [place for place in range(start, end) if _is_extremum(table.steps[place])]
    has_branch = table.steps[at].guard is not None or any(_may_be_skipped(table, place) for place in places)
    return has_branch or any(map(_divides, table.steps[min(starts) :])) or _repeats_field(table)


def _is_lower_quotient(table: ValueTable, at: int) -> bool:
    """Whether a step is guarded and nothing but the lower word of its result is read."""
    result = table.steps[at].results[0]
    return table.steps[at].guard is not None and isinstance(result, Register) and _is_lower_word(table, at, result)


def _repeats_field(table: ValueTable) -> bool:
    """Whether bfe or bfi of 32 bits with the same register for the position are in different blocks."""
    ends: dict[int, set[int]] = {}
    for place, step in enumerate(table.steps):
        position = step.sources[-2] if step.attributes.opcode in {"bfe", "bfi"} else None
        if isinstance(position, Register) and step.attributes.types[0].bits == TYPES["b32"].bits:
            ends.setdefault(position.index, set()).add(table.ends[place])
    return any(len(places) > 1 for places in ends.values())


def _is_lower_word(table: ValueTable, at: int, result: Register) -> bool:
    """Whether nothing but the lower word of a result is read."""
    readers = [table.steps[place] for place in readers_behind(table.steps, at, result) if place in table.kept]
    return all(isinstance(other.action, Move) or _takes_lower_word(other) for other in readers)


def _is_extremum(step: DecodedInstruction) -> bool:
    return step.attributes.opcode in {"min", "max"} and step.attributes.types == (F64,)


def _divides(step: DecodedInstruction) -> bool:
    return step.attributes.opcode == "div" and step.attributes.types == (F64,)


def _may_be_skipped(table: ValueTable, at: int) -> bool:
    """Whether a branch before a step leads past it."""
    return any(
        isinstance(step.action, Branch) and step.guard is not None and max(step.targets) > at
        for step in table.steps[:at]
    )


def _takes_lower_word(step: DecodedInstruction) -> bool:
    if isinstance(step.action, MemoryStore):
        return step.action.type.bits <= TYPES["b32"].bits
    return step.attributes.opcode == "cvt" and step.attributes.types[0].bits <= 32
