"""The passes that make a program do what ptxas makes of it where it departs from the manual (`program.departures`).

A function of `RULES` finds the steps that a row concerns by their text and their block, and gives them another action,
so that both engines run what the GPU would; `known_values` has those that depend on what ptxas knows of operands. Where
the text does not tell which code ptxas makes, a step keeps its action and gets a second one, its alternative: it is
inexact where the two give different results, and only there.

The rules were read from the code that ptxas 12.9, 13.0 and 13.4 make for sm_90, and compared with an H200.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.ptx.lowering.fragment_flow import items_of
from warpfrag.ptx.lowering.half_rules import changes_flushed_sign
from warpfrag.ptx.lowering.known_values import calls_library, fold_values
from warpfrag.ptx.lowering.liveness import written_registers
from warpfrag.ptx.lowering.predicate_rules import doubt_predicates
from warpfrag.ptx.lowering.replaced_steps import goes_back, note, replace_function, replace_where_seen
from warpfrag.ptx.opcodes.integer import by_parts
from warpfrag.ptx.program.actions import (
    AsyncCopy,
    Atomic,
    Branch,
    LaneOp,
    MatrixOp,
    MemoryLoad,
    MemoryStore,
    WarpCollective,
    WarpWait,
)
from warpfrag.ptx.program.departures import DEPARTURES
from warpfrag.ptx.program.program import Immediate, MemoryOperand, Register, registers_of
from warpfrag.ptx.program.types import B16, B32, BF16, F16, F32, F64, PRED, TYPES, container
from warpfrag.ptx.semantics import conversions, floats

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.ptx.lowering.statements import KernelLowering
    from warpfrag.ptx.program.actions import LaneFunction
    from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand
    from warpfrag.ptx.program.types import Codes, Type


def depart(kernel: KernelLowering) -> None:
    """The steps do what the code does that a version of ptxas makes of them."""
    for name, rule in RULES.items():
        if kernel.compiler in DEPARTURES[name].versions:
            rule(kernel)
    if not kernel.source.is_debug:
        _early_branch(kernel)
        _guarded_sign(kernel)
        doubt_predicates(kernel)
        fold_values(kernel)


# --- guards


def _guarded_set(kernel: KernelLowering) -> None:
    for step in kernel.steps:
        action = step.action
        if step.guard is None or step.attributes.opcode != "set" or not isinstance(action, LaneOp):
            continue
        target, kind = step.attributes.types
        if kind.parts != 1 or (target.bits < 32 and not target.is_float) or (not target.is_float and kind.bits != 16):
            continue
        function = action.function

        def run(
            *codes: Codes, function: LaneFunction = function, target: Type = target, narrow: bool = kind.bits == 16
        ) -> Codes:
            *operands, old, guard = codes
            held = function(*operands)
            return np.where(guard, held, _unguarded(old, target, narrow=narrow))

        register = B16 if target.bits == 16 else B32
        step.action = replace(action, sources=(*action.sources, register, PRED), function=run, replaces="guarded set")
        step.sources = (*step.sources, step.results[0], step.guard)
        step.guard = None
        note(kernel, step, "guarded set")


def _unguarded(old: Codes, target: Type, *, narrow: bool) -> Codes:
    """What set leaves of d where its guard is false."""
    source = TYPES["s16"] if narrow else TYPES["s32"]
    code = old.astype(container(source.bits)).view(f"i{source.bits // 8}")
    if not target.is_float:
        return code.astype(np.int32).view(np.uint32)
    with np.errstate(over="ignore"):
        size = np.abs(code)
    unsigned = size.view(container(source.bits))
    return conversions.integer_to_float(unsigned, source, target.element, "rn")


def _guarded_testp(kernel: KernelLowering) -> None:
    for step in kernel.steps:
        if step.guard is not None and step.attributes.opcode == "testp":
            step.guard = None
            note(kernel, step, "guarded testp")


def _guarded_byte_sum(kernel: KernelLowering) -> None:
    for step in kernel.steps:
        attributes = step.attributes
        is_sum = attributes.opcode in {"vadd4", "vsub4"} and attributes.accumulate
        if is_sum and step.guard is not None and {kind.name for kind in attributes.types} == {"u32"}:
            step.guard = None
            note(kernel, step, "guarded sum of bytes")


def _long_shift(kernel: KernelLowering) -> None:
    for step in kernel.steps:
        amount = step.sources[-1] if step.sources else None
        if step.attributes.opcode not in {"shl", "shr"} or not isinstance(amount, Immediate):
            continue
        code, bits = amount.code(TYPES["u32"]), step.attributes.types[0].bits
        if bits == 16 and code > 0xFFFF:
            step.sources = (step.sources[0], Immediate(code & 0xFFFF))
            note(kernel, step, "long shift of 16 bits")


def _guarded_sign(kernel: KernelLowering) -> None:
    if not any(step.guard is not None and step.attributes.opcode in {"abs", "neg"} for step in kernel.steps):
        return
    looked: set[int] = set()  # predicates that may be known, so that a guard is left out: a branch before looked at
    last: dict[int, DecodedInstruction] = {}  # them, or equal numbers were compared; what wrote a register last
    for step in kernel.steps:
        attributes = step.attributes
        if isinstance(step.action, Branch) and step.guard is not None:
            looked.add(step.guard.index)
        written = [register.index for register in written_registers(step)]
        (looked.update if _compares_equal(step, last) else looked.difference_update)(written)
        last.update(dict.fromkeys(written, step))
        if step.guard is None or attributes.opcode not in {"abs", "neg"} or attributes.types != (F32,):
            continue
        if not attributes.ftz and isinstance(step.sources[0], Register):
            function, is_sure = _sign_bits(attributes.opcode, F32), step.guard.index not in looked
            replace_where_seen(kernel, step, "guarded abs and neg", function, is_sure=is_sure)


def _compares_equal(step: DecodedInstruction, last: dict[int, DecodedInstruction]) -> bool:
    """Whether a step compares a value with itself: one register, or what was loaded from one parameter."""
    if step.attributes.opcode != "setp" or not all(isinstance(item, Register) for item in step.sources[:2]):
        return False
    loads = [last.get(item.index) for item in step.sources[:2] if isinstance(item, Register)]
    places = [load.sources[0] for load in loads if load is not None and isinstance(load.action, MemoryLoad)]
    is_fixed = len(places) == 2 and isinstance(places[0], MemoryOperand) and places[0].base is None
    return step.sources[0] == step.sources[1] or (is_fixed and places[0] == places[1])


def _sign_bits(opcode: str, kind: Type) -> LaneFunction:
    return by_parts(kind, floats.magnitude_of if opcode == "abs" else floats.negate)


# --- values of float instructions in integer instructions

UNTYPED = {
    *(f"{name}.approx.f32" for name in ("ex2", "lg2", "rcp", "rsqrt", "sqrt", "div")),
    "div.full.f32", "div.full.ftz.f32", "copysign.f32", "copysign.f64", "cvt.ftz.f64.f32", "cvt.ftz.sat.f64.f32",
    *(f"cvt.{mode}.ftz{sat}.f32.f64" for mode in ("rn", "rz", "rm", "rp") for sat in ("", ".sat")),
    "cvt.rna.tf32.f32", "cvt.rna.satfinite.tf32.f32",
}  # fmt: skip
"""Float instructions that are sequences: nothing remembers that their result is a float."""
SEQUENCES = {
    "div", "rem", "bar", "barrier", "membar", "fence", "shfl", "vote", "match", "redux", "activemask", "nanosleep",
    "mma", "wmma", "wgmma", "movmatrix", "ldmatrix", "pmevent", "trap", "griddepcontrol", "brkpt", "call",
}  # fmt: skip
"""Opcodes that begin a block of their own, wherever they stand."""
CACHE_HINTS = {"prefetch", "prefetchu", "discard", "applypriority"}
WIDE_SEQUENCES = {"bfe", "bfi", "bfind", "brev"}
"""Those that do with 64 bits."""


def _begins_block(step: DecodedInstruction) -> bool:
    """Whether ptxas sees a new block behind a step, although no label and no branch is there."""
    attributes = step.attributes
    name = attributes.opcode
    kind = attributes.types[-1] if attributes.types else None
    if name == "div" and (attributes.accuracy == "full" or (attributes.accuracy == "approx" and attributes.ftz)):
        return False
    if name in SEQUENCES or isinstance(step.action, MatrixOp | WarpCollective | WarpWait):
        return name not in {"elect", "stmatrix"}
    if _updates_vector(step) or (step.guard is not None and _is_branched(step)):
        return True
    if name in WIDE_SEQUENCES:
        return kind is not None and kind.bits == 64
    if name in {"rcp", "sqrt"} and attributes.accuracy is None:
        return True
    if name in {"ex2", "lg2", "rcp", "rsqrt", "sqrt"} and kind == F32:
        return not attributes.ftz
    if name == "rsqrt":
        return kind == F64 and not attributes.ftz
    is_range = name == "createpolicy" and ".range" in attributes.name
    return is_range or (name == "mov" and step.text.endswith(("%clock", "%clock64", "%clock_hi", "%globaltimer")))


def _updates_vector(step: DecodedInstruction) -> bool:
    """Whether a step is an atomic operation on several numbers; one of 128 bits is none."""
    return isinstance(step.action, Atomic) and step.action.count > 1 and "b128" not in step.name


def _is_branched(step: DecodedInstruction) -> bool:
    """Whether a guard of a step becomes a branch: around a sequence, and around what leaves a second result."""
    attributes = step.attributes
    is_root = attributes.opcode in {"rcp", "sqrt"} and attributes.types == (F64,)
    has_slow_path = attributes.accuracy is None and (attributes.opcode == "div" or is_root)
    return has_slow_path or attributes.carry_out or (attributes.opcode == "lop3" and len(step.results) > 1)


def _float_type(step: DecodedInstruction) -> Type | None:
    """The float type that ptxas remembers of the result of a step."""
    attributes = step.attributes
    if attributes.name in UNTYPED or not attributes.types:
        return None
    if attributes.opcode in {"setp", "testp", "st", "red"} or _updates_vector(step):
        return None
    if step.guard is not None and attributes.opcode != "lop3" and _is_branched(step):
        return None
    kind = attributes.types[0]
    if kind.name == "tf32":
        return F32
    if kind == BF16 and attributes.opcode not in {"add", "sub", "mul", "ex2", "tanh", "set"}:
        return F16  # which is what the store then converts from
    return kind if kind.is_float and kind.parts == 1 else None


def _each_typed(kernel: KernelLowering, rule: Callable[[DecodedInstruction, dict[int, Type]], None]) -> None:
    """Call a rule for each step with the registers that hold results of float instructions of its block."""
    known: dict[int, Type] = {}
    for at, step in enumerate(kernel.steps):
        is_access = isinstance(step.action, MemoryLoad | MemoryStore | Atomic | AsyncCopy)
        is_apart = step.guard is not None and (is_access or step.attributes.opcode in CACHE_HINTS)
        if at in kernel.leaders or is_apart:  # a guarded access of memory is a block of its own
            known = {}
        rule(step, known)
        if _begins_block(step) or step.action.ends_block:
            known = {}
        kind = None if is_apart else _float_type(step)
        for register in (item for operand in step.results for item in registers_of(operand)):
            known.pop(register.index, None)
            if kind is not None and kind.bits == register.bits:
                known[register.index] = kind


def _float_shift(kernel: KernelLowering) -> None:
    def rule(step: DecodedInstruction, known: dict[int, Type]) -> None:
        action = step.action
        if step.attributes.opcode not in {"shl", "shr"} or not isinstance(action, LaneOp) or len(step.sources) != 2:
            return
        amount, kind = step.sources[1], step.attributes.types[0]
        if kind.bits != 64 or not isinstance(amount, Register) or known.get(amount.index) != F32:
            return
        function = action.function
        counts = TYPES["s64" if kind.kind == "s" else "u64"]

        def run(a: Codes, b: Codes) -> Codes:
            count = conversions.float_to_integer(b, "f32", counts, "rzi", ftz=False)
            result = function(a, count.astype(np.uint32))
            return result[0] if isinstance(result, tuple) else result

        replace_function(kernel, step, "float shift amount", run)

    _each_typed(kernel, rule)


def _narrow_store(kernel: KernelLowering) -> None:
    """A store of fewer bits than its register has: the type of its last register decides for all of its registers."""

    def rule(step: DecodedInstruction, known: dict[int, Type]) -> None:
        action = step.action
        if not isinstance(action, MemoryStore) or len(step.sources) == 1 or step.guard is not None:
            return
        last = items_of(step.sources[1])[-1]
        kind = known.get(last.index) if isinstance(last, Register) and _is_narrowed(action, last) else None
        if kind is not None:
            target = TYPES[f"{'s' if action.type.kind == 's' else 'u'}{action.type.bits}"]
            bits = TYPES[f"b{kind.bits}"]
            flushed = [_has_flushed_sign(kernel, step, item) for item in items_of(step.sources[1])]
            mode = "rni" if all(flushed) else "rzi"
            step.action = replace(action, converts=(bits, partial(_to_integer, kind.element, target, mode)))
            note(kernel, step, "narrow store of a float")
            if any(flushed) and not all(flushed):
                step.doubt = DEPARTURES["truncation of a flushed half"].compiler

    _each_typed(kernel, rule)


def _is_narrowed(action: MemoryStore, value: Register) -> bool:
    """Whether a register is stored in fewer bits, as an integer."""
    return value.bits > action.type.bits and not action.type.is_float


def _has_flushed_sign(kernel: KernelLowering, step: DecodedInstruction, item: PtxOperand) -> bool:
    """Whether abs or neg of f16 with .ftz left a register that a step stores: it is then rounded to nearest."""
    at = next(place for place, other in enumerate(kernel.steps) if other is step)
    for other in reversed(kernel.steps[:at]):
        if isinstance(item, Register) and any(register.index == item.index for register in written_registers(other)):
            return other.guard is None and changes_flushed_sign(other)
    return False


def _to_integer(element: str, target: Type, mode: str, codes: Codes) -> Codes:
    return conversions.float_to_integer(codes, element, target, mode, ftz=False)


def _leads_past(steps: list[DecodedInstruction], branch: DecodedInstruction, start: int, end: int) -> bool:
    """Whether one side of a branch alone reaches a loop: the other jumps over it, or into a jump before it."""
    target = max(branch.targets)
    return target > end or (target <= start and target > 0 and steps[target - 1].action.ends_block)


def _is_logical(step: DecodedInstruction) -> bool:
    return step.attributes.opcode in {"and", "or", "xor", "not"} and step.attributes.types == (PRED,)


def _copies_predicate(step: DecodedInstruction) -> bool:
    """Whether a step is a logical operation on one predicate."""
    return step.attributes.opcode in {"and", "or"} and _is_logical(step) and len(set(step.sources)) == 1


def _early_branch(kernel: KernelLowering) -> None:
    """Doubt a branch on isspacep.shared behind a function of f64: ptxas asks again, and may lose a predicate."""
    before: dict[int, bool] = {}  # predicates of isspacep in the block, and whether a function came since
    for at, step in enumerate(kernel.steps):
        if at in kernel.leaders:
            before = {}
        if isinstance(step.action, Branch) and step.guard is not None and before.get(step.guard.index):
            step.doubt = "of a branch on the predicate of isspacep, another predicate may be lost"
        is_source = step.attributes.opcode == "isspacep" and step.attributes.space == "shared"
        for register in written_registers(step):
            before.pop(register.index, None)
            if is_source:
                before[register.index] = False
        if calls_library(step):
            before = dict.fromkeys(before, True)


def _loop_predicate(kernel: KernelLowering) -> None:
    """Doubt a predicate that a loop changes by a logical operation on itself, where a branch before looked at it."""
    steps = kernel.steps
    branches = [(at, step) for at, step in enumerate(steps) if isinstance(step.action, Branch) and step.guard]
    for end, step in enumerate(kernel.steps):
        if not goes_back(end, step):
            continue
        start = min(step.targets)
        looked = {
            branch.guard.index
            for at, branch in branches
            if branch.guard is not None and at < start and _leads_past(steps, branch, start, end)
        }
        written = {
            item.index for inner in steps[start:end] for operand in inner.results for item in registers_of(operand)
        }
        for inner in kernel.steps[start:end]:
            read = {item.index for item in inner.sources if isinstance(item, Register)}
            if _copies_predicate(inner) and read & written:
                inner.doubt = DEPARTURES["predicate of a loop"].compiler
            results = {register.index for operand in inner.results for register in registers_of(operand)}
            sources = {source.index for source in inner.sources if isinstance(source, Register) and source.bits == 1}
            guard = inner.guard.index if inner.guard is not None else None
            kept = results - {guard} if guard in written else set()  # where the guard is false, which it may become
            if looked & kept or (_is_logical(inner) and looked & results & sources):
                inner.doubt = DEPARTURES["predicate of a loop"].compiler
                note(kernel, inner, "predicate of a loop")


RULES: dict[str, Callable[[KernelLowering], None]] = {
    "guarded set": _guarded_set,
    "guarded testp": _guarded_testp,
    "guarded sum of bytes": _guarded_byte_sum,
    "long shift of 16 bits": _long_shift,
    "float shift amount": _float_shift,
    "narrow store of a float": _narrow_store,
    "predicate of a loop": _loop_predicate,
}
"""By the name of a departure: what finds its steps by their text and their block."""
