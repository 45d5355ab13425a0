"""Check decoded operands, and keep track of shared addresses that contain a cluster rank."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from warpfrag.errors import ParseError, PtxError
from warpfrag.isa.tcgen05_spelling import operand_facts
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import (
    DecodedInstruction,
    Discard,
    Immediate,
    MemoryOperand,
    PtxOperand,
    Register,
    SpecialRegister,
    VectorOperand,
)
from warpfrag.machine.ir.scalar_types import Type
from warpfrag.machine.ir.state_spaces import RANK_SHIFT
from warpfrag.machine.ops.opcode_lookup import find

MAX_RANKS = 16  # maximum number of blocks in a cluster
KEEP_ADDRESS = {"mov", "add", "sub", "mad", "or", "xor", "and", "selp", "mapa"}
"""Opcodes whose result is an address if one of their operands is an address."""
CHOOSE = 0xE4
"""The lop3 truth table of (a & c) | (b & ~c)."""


class SharedAddresses:
    """The registers that hold shared-memory addresses after the instructions processed so far."""

    def __init__(self, instructions: list[DecodedInstruction], new_register: Callable[[str, int], Register]) -> None:
        """Create an empty set of address registers; `new_register` allocates temporaries."""
        self.instructions, self.new_register = instructions, new_register
        self.registers: set[int] = set()

    def is_address(self, operand: PtxOperand) -> bool:
        """Return True if an operand is the address of a shared variable, or is computed from one."""
        if isinstance(operand, MemoryOperand):
            return operand.base is None and operand.space in {"shared", "dynamic"}
        return isinstance(operand, Register) and operand.index in self.registers

    def follow(self, inst: DecodedInstruction) -> DecodedInstruction:
        """Update the set for an instruction; return the instruction, or a replacement if it clears part of a rank."""
        if inst.attributes.opcode not in KEEP_ADDRESS or not any(map(self.is_address, inst.sources)):
            return inst
        self.registers.update(result.index for result in inst.results if isinstance(result, Register))
        if inst.attributes.opcode != "and" or inst.attributes.types[0].bits != 32:
            return inst
        address, mask = inst.sources if self.is_address(inst.sources[0]) else inst.sources[::-1]
        if not isinstance(mask, Immediate) or not clears_rank(mask.code(None)):
            return inst
        rank = self.new_register(f"%cluster_ctarank<<{RANK_SHIFT}", 32)
        sources = SpecialRegister("%cluster_ctarank"), Immediate(RANK_SHIFT)
        self.instructions.append(
            DecodedInstruction(inst.line, find("shl.b32", 3), results=(rank,), sources=sources, text=inst.text)
        )
        chosen = DecodedInstruction(
            inst.line, find("lop3.b32", 5), guard=inst.guard, results=inst.results, text=inst.text
        )
        chosen.sources = address, rank, mask, Immediate(CHOOSE)
        return chosen


def clears_rank(mask: int) -> bool:
    """Return True if a 32-bit mask clears some bits of the rank but keeps the bits above it."""
    cleared = ~mask >> RANK_SHIFT & 0xFF
    return 0 < cleared < MAX_RANKS


PIECES = {8, 16, 32, 64}  # the widths of registers that mov can pack or unpack
MBARRIER_SOURCES = {
    "init": (2, 2), "inval": (1, 1), "expect_tx": (2, 2), "complete_tx": (2, 2), "arrive": (1, 2),
    "arrive_drop": (1, 2), "test_wait": (2, 2), "try_wait": (2, 3), "pending_count": (1, 1), "copies": (1, 1),
}  # fmt: skip
"""The minimum and maximum number of sources of each mbarrier instruction, including the address."""
MATRIX_SOURCES = {
    "mma": (3, 7), "mma.sp": (5, 9), "mma.sp::ordered_metadata": (5, 9), "wmma.mma": (3, 3), "wmma.load.a": (1, 2),
    "wmma.load.b": (1, 2), "wmma.load.c": (1, 2), "wmma.store.d": (2, 3), "wgmma.mma_async": (3, 7),
    "wgmma.mma_async.sp": (5, 9), "ldmatrix": (1, 1), "stmatrix": (2, 2), "movmatrix": (1, 1),
}  # fmt: skip
"""The minimum and maximum number of sources of each matrix operation."""
MATRIX_ACCESSES = {"wmma.load.a", "wmma.load.b", "wmma.load.c", "wmma.store.d", "ldmatrix", "stmatrix"}


class OperandShape(NamedTuple):
    """The sources that an action takes: their number, and those that must be addresses or vectors."""

    fewest: int
    most: int
    addresses: tuple[int, ...] = ()
    vectors: tuple[tuple[int, int], ...] = ()  # operand number and length of each vector
    element: Type | None = None  # the element type of the vectors


def _atomic_shape(action: actions.Atomic) -> OperandShape:
    values = (1, 2) if action.name == "cas" else (1,)
    vectors = tuple((number, action.count) for number in values)
    return OperandShape(1 + len(values), 2 + len(values), (0,), vectors, action.type)


def _bulk_shape(action: actions.BulkCopy) -> OperandShape:
    """Return the sources of a bulk copy: target, source, size and, if present, mbarrier and block mask."""
    fixed = 3 + action.tells_mbarrier + action.is_multicast
    return OperandShape(fixed, fixed + 1, (0, 1, 3) if action.tells_mbarrier else (0, 1))


def _tensor_shape(action: actions.TensorCopy) -> OperandShape:
    """Return the sources of a box copy: memory, map, coordinates and, for loads, mbarrier, offsets and mask."""
    if action.direction != "load":
        return OperandShape(3, 4, (0, 2), ((1, action.rank),))
    offsets = ((4, action.rank - 2),) if action.mode == "im2col" else ()
    fixed = 4 + len(offsets) + action.is_multicast
    return OperandShape(fixed, fixed + 1, (0, 1, 3), ((2, action.rank), *offsets))


SHAPES: dict[type[actions.Action], Callable[[Any], OperandShape]] = {
    actions.MemoryLoad: lambda _: OperandShape(1, 2, (0,)),
    actions.MemoryStore: lambda action: OperandShape(2, 3, (0,), ((1, action.count),), action.type),
    actions.Atomic: _atomic_shape,
    actions.AsyncStore: lambda action: OperandShape(3, 3, (0, 2), ((1, action.count),), action.type),
    actions.AsyncCopy: lambda _: OperandShape(3, 5, (0, 1)),
    actions.TensorMapCopy: lambda _: OperandShape(3, 3, (0, 1)),
    actions.TensorMapReplace: lambda action: OperandShape(2 + action.has_axis, 2 + action.has_axis, (0,)),
    actions.BulkCopy: _bulk_shape,
    actions.TensorCopy: _tensor_shape,
    actions.WarpWait: lambda _: OperandShape(1, 1),
    actions.Barrier: lambda action: OperandShape(2 - action.waits + bool(action.reduction), 2 + bool(action.reduction)),
    actions.MemoryBarrier: lambda action: OperandShape(
        *MBARRIER_SOURCES[action.name], (0,) * (action.name != "pending_count")
    ),
    actions.MatrixOp: lambda action: OperandShape(
        *MATRIX_SOURCES[action.form.op], (0,) * (action.form.op in MATRIX_ACCESSES)
    ),
}
"""The sources of each action, without an optional cache policy. Other actions are checked elsewhere."""


def shape_of(action: actions.Action) -> OperandShape | None:
    """Return the sources that an action takes, or None if it is not in `SHAPES`."""
    return SHAPES[type(action)](action) if type(action) in SHAPES else None


def address_count(action: actions.Action) -> int | None:
    """Return the number of address operands in brackets, or None if any number is allowed."""
    shape = shape_of(action)
    if shape is not None:
        return len(shape.addresses)
    if isinstance(action, actions.LaneOp) and not action.sources:
        return None  # createpolicy has an optional address range, which does not affect results
    without = actions.LaneOp | actions.Move | actions.WarpCollective | actions.Branch | actions.Allocate
    return 0 if isinstance(action, without) else None


def check(inst: DecodedInstruction) -> None:
    """Raise an error if an instruction's operands do not match its action."""
    shape = shape_of(inst.action)
    if shape is not None:
        _check_sources(inst, shape)
    checker = CHECKERS.get(type(inst.action))
    if checker is not None:
        checker(inst, inst.action)


def _check_sources(inst: DecodedInstruction, shape: OperandShape) -> None:
    """Check the number and types of an instruction's sources."""
    count = str(shape.fewest) if shape.fewest == shape.most else f"{shape.fewest} to {shape.most}"
    _require(inst, shape.fewest <= len(inst.sources) <= shape.most, f"{count} sources for {inst.name}")
    lengths = dict(shape.vectors)
    for number, source in enumerate(inst.sources):
        if number in shape.addresses:
            _require(inst, isinstance(source, MemoryOperand), f"an address in brackets for {inst.name}")
        elif number in lengths:
            _require_items(inst, source, shape.element, lengths[number], is_result=False)
        elif not isinstance(inst.action, actions.MatrixOp):
            _require(inst, _is_value(source), f"a register or a number as a source of {inst.name}")


def _require(inst: DecodedInstruction, holds: bool, expected: str) -> None:  # noqa: FBT001 (the condition)
    if not holds:
        raise PtxError(inst.line, f"expected {expected}, got {inst.text}")


def _is_value(operand: PtxOperand) -> bool:
    return isinstance(operand, Register | Immediate | SpecialRegister | MemoryOperand)


def _is_predicate(operand: PtxOperand, ptx_type: Type) -> bool:
    """Return True if an operand is a predicate; an immediate counts as one if the type is pred."""
    if isinstance(operand, SpecialRegister):
        return operand.name == "%is_explicit_cluster"
    return ptx_type.bits == 1 if isinstance(operand, Immediate) else isinstance(operand, Register) and operand.bits == 1


def _require_items(
    inst: DecodedInstruction, operand: PtxOperand, element: Type | None, count: int, *, is_result: bool
) -> None:
    """Check a vector of registers; a source vector may contain numbers, and a result vector may discard elements."""
    items = operand.items if isinstance(operand, VectorOperand) else (operand,)
    _require(inst, len(items) == count, f"{count} elements in the vector of {inst.name}")
    for part in items:
        if isinstance(part, Register) and element is not None:
            _require(inst, part.bits != 1 and part.bits >= element.bits, f"a register of at least {element.bits} bits")
        elif is_result:
            _require(inst, isinstance(part, Discard), f"a register as the result of {inst.name}")
        else:
            _require(inst, _is_value(part), f"a register or a number as a source of {inst.name}")


def _require_result(inst: DecodedInstruction, bits: int) -> None:
    result = inst.results[0] if len(inst.results) == 1 else None
    fits = isinstance(result, Discard) or (isinstance(result, Register) and result.bits == bits)
    _require(inst, fits, f"a result of {bits} bits")


def _check_lanes(inst: DecodedInstruction, action: actions.LaneOp | actions.WarpCollective) -> None:
    """Check the operands of an operation that every lane computes."""
    if inst.row is not None and inst.row.any_words:
        inst.sources = ()
        return
    if len(inst.sources) != len(action.sources) or not 1 <= len(inst.results) <= len(action.results):
        count = f"{len(action.sources)} sources"
        raise PtxError(inst.line, f"expected a result and {count} for {inst.name}, got {inst.text}")
    for result, result_kind in zip(inst.results, action.results, strict=False):
        _require(inst, isinstance(result, Register | Discard), f"a register as the result of {inst.name}")
        if isinstance(result, Register):
            _require(inst, (result.bits == 1) == (result_kind.bits == 1), f"a result of .{result_kind.name}")
    for kind, source in zip(action.sources, inst.sources, strict=True):
        if kind is None and not isinstance(source, Immediate):
            raise PtxError(inst.line, f"expected a constant in {inst.text}")
        if isinstance(source, Discard | VectorOperand):
            raise PtxError(inst.line, f"expected a register or a number as a source in {inst.text}")
        if kind is not None:
            _require(inst, _is_predicate(source, kind) == (kind.bits == 1), f"a source of .{kind.name}")


def _check_move(inst: DecodedInstruction, action: actions.Move) -> None:
    _require(inst, len(inst.results) == len(inst.sources) == 1, "one result and one source")
    for operand, is_result in ((inst.results[0], True), (inst.sources[0], False)):
        if isinstance(operand, VectorOperand):
            bits, rest = divmod(action.type.bits, max(1, len(operand.items)))
            _require(inst, rest == 0 and bits in PIECES, f"vector elements with {action.type.bits} bits in total")
            for part in operand.items:
                fits = isinstance(part, Discard) if is_result else isinstance(part, Immediate | SpecialRegister)
                fits = part.bits == bits if isinstance(part, Register) else fits
                _require(inst, fits, f"vector elements of {bits} bits")
        else:
            fits = isinstance(operand, Discard) or _is_predicate(operand, action.type) == (action.type.bits == 1)
            _require(inst, fits, f"an operand of .{action.type.name}")
            is_taken = isinstance(operand, Register | Discard) if is_result else _is_value(operand)
            _require(inst, is_taken, f"a register or a number for {inst.name}")


def _check_loaded(inst: DecodedInstruction, action: actions.MemoryLoad | actions.Atomic) -> None:
    if isinstance(action, actions.MemoryLoad) or action.returns:
        _require(inst, len(inst.results) == 1, "one result")
        _require_items(inst, inst.results[0], action.type, action.count, is_result=True)


def _check_branch(inst: DecodedInstruction, action: actions.Branch) -> None:
    if action.indexed:
        _require(inst, _is_value(inst.sources[0]), "a register as an index")


def _check_barrier(inst: DecodedInstruction, action: actions.Barrier) -> None:
    if action.reduction:
        vote = inst.sources[-1]
        _require(inst, isinstance(vote, Register) and vote.bits == 1, "a predicate as the last source")
        _require_result(inst, 32 if action.reduction == "popc" else 1)


def _check_mbarrier(inst: DecodedInstruction, action: actions.MemoryBarrier) -> None:
    if inst.row is not None and inst.row.has_result:
        _require_result(inst, {"test_wait": 1, "try_wait": 1, "pending_count": 32}.get(action.name, 64))


def _check_matrix(inst: DecodedInstruction, _action: actions.MatrixOp) -> None:
    if inst.row is not None and inst.row.has_result:
        _require(inst, len(inst.results) == 1, "one result")


def _check_allocation(inst: DecodedInstruction, _action: actions.Allocate) -> None:
    _require(inst, len(inst.results) == 2 and len(inst.sources) == 4, "a result and a size for alloca")
    align = inst.sources[1].code(None) if isinstance(inst.sources[1], Immediate) else 0
    _require(inst, align > 0 and align & (align - 1) == 0, "an alignment that is a power of two")
    _require(inst, all(_is_value(operand) for operand in (*inst.results, *inst.sources)), "registers and numbers")


def take_reduction(inst: DecodedInstruction) -> None:
    """Move ld.red's second register, which receives the reduced value, from the sources to the results."""
    if inst.results and inst.sources and isinstance(inst.sources[0], Register):
        inst.results, inst.sources = (*inst.results, inst.sources[0]), inst.sources[1:]


def check_tensor_operands(inst: DecodedInstruction, action: actions.TensorThreadOp) -> None:
    """Raise an error for tcgen05 operands that do not match the qualifiers."""
    operands = (*inst.results, *inst.sources)
    try:
        facts = operand_facts(action.spelling, [_described(operand) for operand in operands])
        problem = replace(action.spelling, facts=tuple(facts.items())).problem
    except ParseError as error:
        raise PtxError(inst.line, str(error)) from None
    if problem:
        raise PtxError(inst.line, f"{inst.name}: {problem}")
    for operand in operands:
        for element in operand.items if isinstance(operand, VectorOperand) else (operand,):
            if not isinstance(element, MemoryOperand | Immediate | Register | Discard):
                raise PtxError(inst.line, f"expected registers, immediates or addresses, got {inst.text}")


def _described(operand: PtxOperand) -> str:
    """Return an operand in the notation that the checks in `isa` use."""
    if isinstance(operand, MemoryOperand):
        return "[address]"
    if isinstance(operand, VectorOperand):
        return "{" + ", ".join("register" for _ in operand.items) + "}"
    return str(operand.code(None)) if isinstance(operand, Immediate) else "register"


CHECKERS: dict[type[actions.Action], Callable[..., None]] = {
    actions.LaneOp: _check_lanes,
    actions.WarpCollective: _check_lanes,
    actions.Move: _check_move,
    actions.MemoryLoad: _check_loaded,
    actions.Atomic: _check_loaded,
    actions.TensorCopy: lambda inst, action: _require(
        inst, action.mode == "tile" or action.rank >= 3, f"3 to 5 axes for {inst.name}"
    ),
    actions.Branch: _check_branch,
    actions.Barrier: _check_barrier,
    actions.MemoryBarrier: _check_mbarrier,
    actions.MatrixOp: _check_matrix,
    actions.TensorThreadOp: check_tensor_operands,
    actions.TensorWarpOp: check_tensor_operands,
    actions.Allocate: _check_allocation,
}
"""Additional operand checks by action; actions that are missing have no operands, or were checked when decoded."""
