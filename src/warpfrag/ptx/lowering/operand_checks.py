"""Checks of decoded operands, shared addresses with a cluster rank, and mma that may overwrite their operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from warpfrag.errors import ParseError, PtxError
from warpfrag.isa.tcgen05_spelling import operand_facts
from warpfrag.machine.ir.actions import (
    Action,
    Allocate,
    AsyncCopy,
    AsyncStore,
    Atomic,
    Barrier,
    Branch,
    BulkCopy,
    LaneOp,
    MatrixOp,
    MemoryBarrier,
    MemoryLoad,
    MemoryStore,
    Move,
    TensorCopy,
    TensorMapCopy,
    TensorMapReplace,
    TensorThreadOp,
    TensorWarpOp,
    WarpCollective,
    WarpWait,
)
from warpfrag.machine.ir.program import (
    DecodedInstruction,
    Discard,
    Immediate,
    MemoryOperand,
    PtxOperand,
    Register,
    SpecialRegister,
    VectorOperand,
    registers_of,
)
from warpfrag.machine.ir.scalar_types import Type
from warpfrag.machine.ir.state_spaces import RANK_SHIFT
from warpfrag.machine.ops.table import find

FP8 = {"e4m3", "e5m2"}
OVERLAP = "ptxas writes a part of D before it has read all operands, which share registers with it"


def mark_overlapping_product(inst: DecodedInstruction) -> None:
    """Mark a matrix operation as uncertain if ptxas 13.0 may overwrite operands before it has read them.

    PTX says that an instruction reads its operands before it writes. ptxas expands wmma.mma and, on sm_90, mma of fp8
    into several machine instructions on the registers as they are named. Compilers give D its own registers, or
    those of C in the same order; then the expansion has no visible effect.
    """
    action = inst.action
    if not isinstance(action, MatrixOp) or action.form.operation.does != "multiply" or len(inst.sources) < len("abc"):
        return
    a, b, c, d = ([item.index for item in registers_of(operand)] for operand in (*inst.sources[:3], inst.results[0]))
    is_wmma, is_fp8 = action.form.op == "wmma.mma", action.form.op.startswith("mma") and action.form.a in FP8
    early = {*a, *b} if is_wmma else set()
    early |= set(c) if c != d and (is_wmma or is_fp8) else set()
    if early & set(d):
        inst.uncertain = OVERLAP


MAX_RANKS = 16  # blocks of the largest cluster
KEEP_ADDRESS = {"mov", "add", "sub", "mad", "or", "xor", "and", "selp", "mapa"}
"""Opcodes whose result is an address if an operand is one."""
CHOOSE = 0xE4
"""The table of lop3 for (a & c) | (b & ~c)."""


class SharedAddresses:
    """The registers that hold shared memory addresses, according to the instructions seen so far."""

    def __init__(self, instructions: list[DecodedInstruction], new_register: Callable[[str, int], Register]) -> None:
        """Start with no address registers."""
        self.instructions, self.new_register = instructions, new_register
        self.registers: set[int] = set()

    def is_address(self, operand: PtxOperand) -> bool:
        """Return True if an operand is the address of a shared variable, or computed from one."""
        if isinstance(operand, MemoryOperand):
            return operand.base is None and operand.space in {"shared", "dynamic"}
        return isinstance(operand, Register) and operand.index in self.registers

    def follow(self, inst: DecodedInstruction) -> DecodedInstruction:
        """Return the instruction, or its replacement if it clears part of the rank in a shared address."""
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
    """Return True if a 32-bit mask clears some bits of the rank but keeps the bits above."""
    cleared = ~mask >> RANK_SHIFT & 0xFF
    return 0 < cleared < MAX_RANKS


PIECES = {8, 16, 32, 64}  # bits of a part that mov packs or unpacks
MBARRIER_SOURCES = {
    "init": (2, 2), "inval": (1, 1), "expect_tx": (2, 2), "complete_tx": (2, 2), "arrive": (1, 2),
    "arrive_drop": (1, 2), "test_wait": (2, 2), "try_wait": (2, 3), "pending_count": (1, 1), "copies": (1, 1),
}  # fmt: skip
"""The number of sources of each mbarrier instruction, with its address."""
MATRIX_SOURCES = {
    "mma": (3, 7), "mma.sp": (5, 9), "mma.sp::ordered_metadata": (5, 9), "wmma.mma": (3, 3), "wmma.load.a": (1, 2),
    "wmma.load.b": (1, 2), "wmma.load.c": (1, 2), "wmma.store.d": (2, 3), "wgmma.mma_async": (3, 7),
    "wgmma.mma_async.sp": (5, 9), "ldmatrix": (1, 1), "stmatrix": (2, 2), "movmatrix": (1, 1),
}  # fmt: skip
"""The number of sources of each operation."""
MATRIX_ACCESSES = {"wmma.load.a", "wmma.load.b", "wmma.load.c", "wmma.store.d", "ldmatrix", "stmatrix"}


def address_count(action: Action) -> int | None:
    """Return the number of operands that are addresses in brackets; None for any number."""
    if isinstance(action, MemoryLoad | MemoryStore | Atomic | TensorMapReplace):
        return 1
    if isinstance(action, LaneOp) and not action.sources:
        return None  # createpolicy, whose operands change no value: one form has a range of addresses
    if isinstance(action, AsyncCopy | AsyncStore | TensorMapCopy):
        return 2
    if isinstance(action, BulkCopy | TensorCopy):
        return 3 if action.tells_mbarrier else 2
    if isinstance(action, MemoryBarrier):
        return int(action.name != "pending_count")
    if isinstance(action, MatrixOp):
        return int(action.form.op in MATRIX_ACCESSES)
    return 0 if isinstance(action, LaneOp | Move | WarpCollective | WarpWait | Barrier | Branch | Allocate) else None


def check(inst: DecodedInstruction) -> None:
    """Reject an instruction whose operands do not match its action."""
    checker = CHECKERS.get(type(inst.action))
    if checker is not None:
        checker(inst, inst.action)


def _require(inst: DecodedInstruction, holds: bool, expected: str) -> None:  # noqa: FBT001 (the condition)
    if not holds:
        raise PtxError(inst.line, f"expected {expected}, got {inst.text}")


def _require_sources(inst: DecodedInstruction, fewest: int, largest: int) -> None:
    count = str(fewest) if fewest == largest else f"{fewest} to {largest}"
    _require(inst, fewest <= len(inst.sources) <= largest, f"{count} sources for {inst.name}")


def _is_value(operand: PtxOperand) -> bool:
    return isinstance(operand, Register | Immediate | SpecialRegister | MemoryOperand)


def _is_predicate(operand: PtxOperand, ptx_type: Type) -> bool:
    """Return True if an operand is a predicate; an immediate is one if the type is."""
    if isinstance(operand, SpecialRegister):
        return operand.name == "%is_explicit_cluster"
    return ptx_type.bits == 1 if isinstance(operand, Immediate) else isinstance(operand, Register) and operand.bits == 1


def _require_item(inst: DecodedInstruction, item: PtxOperand, ptx_type: Type, *, is_result: bool) -> None:
    """Require a register that holds the whole element; a source may also be a number, a result may be discarded."""
    if isinstance(item, Register):
        _require(inst, item.bits != 1 and item.bits >= ptx_type.bits, f"a register of at least {ptx_type.bits} bits")
    elif is_result:
        _require(inst, isinstance(item, Discard), f"a register as the result of {inst.name}")
    else:
        _require(inst, _is_value(item), f"a register or a number as a source of {inst.name}")


def _require_items(
    inst: DecodedInstruction, operand: PtxOperand, ptx_type: Type, count: int, *, is_result: bool
) -> None:
    """Require a vector with `count` elements, each of them valid."""
    items = operand.items if isinstance(operand, VectorOperand) else (operand,)
    _require(inst, len(items) == count, f"{count} elements in the vector of {inst.name}")
    for item in items:
        _require_item(inst, item, ptx_type, is_result=is_result)


def _require_place(inst: DecodedInstruction, index: int = 0) -> None:
    _require(inst, isinstance(inst.sources[index], MemoryOperand), f"an address in brackets for {inst.name}")


def _check_lanes(inst: DecodedInstruction, action: LaneOp | WarpCollective) -> None:
    """Check that a lane operation has the operands that its function takes."""
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


def _check_move(inst: DecodedInstruction, action: Move) -> None:
    _require_sources(inst, 1, 1)
    _require(inst, len(inst.results) == 1, "one result")
    for operand, is_result in ((inst.results[0], True), (inst.sources[0], False)):
        if isinstance(operand, VectorOperand):
            bits, rest = divmod(action.type.bits, max(1, len(operand.items)))
            _require(inst, rest == 0 and bits in PIECES, f"parts of {action.type.bits} bits together")
            for item in operand.items:
                fits = isinstance(item, Discard) if is_result else isinstance(item, Immediate | SpecialRegister)
                fits = item.bits == bits if isinstance(item, Register) else fits
                _require(inst, fits, f"parts of {bits} bits")
        else:
            fits = isinstance(operand, Discard) or _is_predicate(operand, action.type) == (action.type.bits == 1)
            _require(inst, fits, f"an operand of .{action.type.name}")
            is_taken = isinstance(operand, Register | Discard) if is_result else _is_value(operand)
            _require(inst, is_taken, f"a register or a number for {inst.name}")


def _check_load(inst: DecodedInstruction, action: MemoryLoad) -> None:
    _require_sources(inst, 1, 2)  # the second is a cache policy
    _require_place(inst)
    _require(inst, len(inst.results) == 1, "one result")
    _require_items(inst, inst.results[0], action.type, action.count, is_result=True)


def _check_store(inst: DecodedInstruction, action: MemoryStore) -> None:
    _require_sources(inst, 2, 3)
    _require_place(inst)
    _require_items(inst, inst.sources[1], action.type, action.count, is_result=False)


def _check_atomic(inst: DecodedInstruction, action: Atomic) -> None:
    count = 2 if action.name == "cas" else 1
    _require_sources(inst, 1 + count, 2 + count)
    _require_place(inst)
    for source in inst.sources[1 : 1 + count]:
        _require_items(inst, source, action.type, action.count, is_result=False)
    if action.returns:
        _require(inst, len(inst.results) == 1, "one result")
        _require_items(inst, inst.results[0], action.type, action.count, is_result=True)


def _check_copy(inst: DecodedInstruction, _action: AsyncCopy) -> None:
    _require_sources(inst, 3, 5)
    _require_place(inst, 0)
    _require_place(inst, 1)
    _require(inst, all(_is_value(source) for source in inst.sources[2:]), "numbers after the addresses")


def _check_bulk_copy(inst: DecodedInstruction, action: BulkCopy) -> None:
    """Check target, source and size; then an mbarrier and a block mask if the copy has them, and a cache policy."""
    fixed = 3 + action.tells_mbarrier + action.is_multicast
    _require_sources(inst, fixed, fixed + 1)
    for place in (0, 1, 3)[: 3 if action.tells_mbarrier else 2]:
        _require_place(inst, place)
    _require(inst, _is_value(inst.sources[2]), "a number of bytes after the addresses")


def _check_tensor_copy(inst: DecodedInstruction, action: TensorCopy) -> None:
    """Check shared memory, map and coordinates; then mbarrier, offsets and mask if present, and a cache policy."""
    is_load = action.direction == "load"
    fixed = 4 + (action.mode == "im2col") + action.is_multicast if is_load else 3
    _require_sources(inst, fixed, fixed + 1)
    vectors = [(2 if is_load else 1, action.rank)]
    if action.mode == "im2col":
        vectors.append((4, action.rank - 2))
    for place, count in vectors:
        vector = inst.sources[place]
        items = vector.items if isinstance(vector, VectorOperand) else ()
        _require(inst, len(items) == count and all(map(_is_value, items)), f"{count} numbers in braces")
    for place in (0, 1, 3) if is_load else (0, 2):
        _require_place(inst, place)
    _require(inst, action.mode == "tile" or action.rank >= 3, f"3 to 5 axes for {inst.name}")


def _check_async_store(inst: DecodedInstruction, action: AsyncStore) -> None:
    _require_sources(inst, 3, 3)
    _require_place(inst, 0)
    _require_place(inst, 2)
    _require_items(inst, inst.sources[1], action.type, action.count, is_result=False)


def _check_replace(inst: DecodedInstruction, action: TensorMapReplace) -> None:
    _require_sources(inst, 2 + action.has_axis, 2 + action.has_axis)
    _require_place(inst)
    _require(inst, all(map(_is_value, inst.sources[1:])), "numbers after the address")


def _check_map_copy(inst: DecodedInstruction, _action: TensorMapCopy) -> None:
    _require_sources(inst, 3, 3)
    _require_place(inst, 0)
    _require_place(inst, 1)


def _check_branch(inst: DecodedInstruction, action: Branch) -> None:
    if action.indexed:
        _require(inst, _is_value(inst.sources[0]), "a register as an index")


def _check_wait(inst: DecodedInstruction, _action: WarpWait) -> None:
    _require_sources(inst, 1, 1)
    _require(inst, _is_value(inst.sources[0]), "a mask of lanes")


def _check_barrier(inst: DecodedInstruction, action: Barrier) -> None:
    fewest = 1 if action.waits else 2  # bar.arrive needs the number of threads
    votes = inst.sources[-1:] if action.reduction else ()
    _require_sources(inst, fewest + len(votes), 2 + len(votes))
    _require(inst, all(_is_value(source) for source in inst.sources), "a number and a count of threads")
    for vote in votes:
        _require(inst, isinstance(vote, Register) and vote.bits == 1, "a predicate as the last source")
    if action.reduction:
        bits = 32 if action.reduction == "popc" else 1
        result = inst.results[0] if inst.results else None
        fits = isinstance(result, Discard) or (isinstance(result, Register) and result.bits == bits)
        _require(inst, fits and len(inst.results) == 1, f"a result of {bits} bits")


def _check_mbarrier(inst: DecodedInstruction, action: MemoryBarrier) -> None:
    _require_sources(inst, *MBARRIER_SOURCES[action.name])
    if action.name != "pending_count":
        _require_place(inst)
    _require(inst, all(_is_value(source) for source in inst.sources[1:]), "a number after the address")
    if inst.row is not None and inst.row.has_result:
        bits = {"test_wait": 1, "try_wait": 1, "pending_count": 32}.get(action.name, 64)
        result = inst.results[0] if inst.results else None
        fits = isinstance(result, Discard) or (isinstance(result, Register) and result.bits == bits)
        _require(inst, fits and len(inst.results) == 1, f"a result of {bits} bits")


def _check_matrix(inst: DecodedInstruction, action: MatrixOp) -> None:
    _require_sources(inst, *MATRIX_SOURCES[action.form.op])
    if action.form.op in MATRIX_ACCESSES:
        _require_place(inst)
    if inst.row is not None and inst.row.has_result:
        _require(inst, len(inst.results) == 1, "one result")


def _check_allocation(inst: DecodedInstruction, _action: Allocate) -> None:
    _require(inst, len(inst.results) == 2 and len(inst.sources) == 4, "a result and a size for alloca")
    align = inst.sources[1].code(None) if isinstance(inst.sources[1], Immediate) else 0
    _require(inst, align > 0 and align & (align - 1) == 0, "an alignment that is a power of two")
    _require(inst, all(_is_value(operand) for operand in (*inst.results, *inst.sources)), "registers and numbers")


def take_reduction(inst: DecodedInstruction) -> None:
    """Make the second register of ld.red, the reduced value before the address, a result."""
    if inst.results and inst.sources and isinstance(inst.sources[0], Register):
        inst.results, inst.sources = (*inst.results, inst.sources[0]), inst.sources[1:]


def check_tensor_operands(inst: DecodedInstruction, action: TensorThreadOp) -> None:
    """Reject operands that do not match the qualifiers in number or in their brackets and braces."""
    operands = (*inst.results, *inst.sources)
    try:
        facts = operand_facts(action.spelling, [_described(operand) for operand in operands])
        problem = replace(action.spelling, facts=tuple(facts.items())).problem
    except ParseError as error:
        raise PtxError(inst.line, str(error)) from None
    if problem:
        raise PtxError(inst.line, f"{inst.name}: {problem}")
    for operand in operands:
        for item in operand.items if isinstance(operand, VectorOperand) else (operand,):
            if not isinstance(item, MemoryOperand | Immediate | Register | Discard):
                raise PtxError(inst.line, f"expected registers, numbers and addresses of {inst.name}, got {inst.text}")


def _described(operand: PtxOperand) -> str:
    """Return an operand in the form that the checks in `isa` read."""
    if isinstance(operand, MemoryOperand):
        return "[address]"
    if isinstance(operand, VectorOperand):
        return "{" + ", ".join("register" for _ in operand.items) + "}"
    return str(operand.code(None)) if isinstance(operand, Immediate) else "register"


CHECKERS: dict[type[Action], Callable[..., None]] = {
    LaneOp: _check_lanes,
    WarpCollective: _check_lanes,
    Move: _check_move,
    MemoryLoad: _check_load,
    MemoryStore: _check_store,
    Atomic: _check_atomic,
    AsyncCopy: _check_copy,
    BulkCopy: _check_bulk_copy,
    TensorCopy: _check_tensor_copy,
    AsyncStore: _check_async_store,
    TensorMapReplace: _check_replace,
    TensorMapCopy: _check_map_copy,
    Branch: _check_branch,
    WarpWait: _check_wait,
    Barrier: _check_barrier,
    MemoryBarrier: _check_mbarrier,
    MatrixOp: _check_matrix,
    TensorThreadOp: check_tensor_operands,
    TensorWarpOp: check_tensor_operands,
    Allocate: _check_allocation,
}
"""The check of each action type; the others take no operands, or were checked when they were decoded."""
