"""Per-lane and warp-wide instructions: arithmetic, moves, collectives, memory accesses and traps."""

from __future__ import annotations

import numpy as np

from warpfrag.errors import MemoryFault, PtxError
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.device_memory import Owners
from warpfrag.machine.interpreter.lane_group import LaneGroup, items_of
from warpfrag.machine.interpreter.warp_state import GRID_REGISTERS, WarpState
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import (
    DecodedInstruction,
    Immediate,
    InexactCause,
    Register,
    SpecialRegister,
    VectorOperand,
)
from warpfrag.machine.ir.scalar_types import B64, PRED, TYPES, U32, Codes, split
from warpfrag.machine.ir.state_spaces import is_in_window
from warpfrag.machine.semantics.floats import QUIET, choose_nan, is_nan

LANE_INDEX = np.arange(LANES, dtype=np.uint32)


def run_lane_op(state: WarpState, inst: DecodedInstruction, action: actions.LaneOp, group: LaneGroup) -> None:
    """Run a per-lane operation and write its results."""
    args: list[Codes | int] = []
    for operand, kind in zip(inst.sources, action.sources, strict=True):
        if kind is not None:
            args.append(group.read(operand, kind))
        elif isinstance(operand, Immediate):
            args.append(operand.code(None))
    values = action.function(*args)
    if action.nan_order and isinstance(values, np.ndarray):
        values, differs = choose_nan(values, [np.asarray(arg) for arg in args], action.nan_order)
        if differs is not None and not action.is_nan_order_certain and (differs & group.mask).any():
            state.tally.causes[state.memory.inst] |= InexactCause.NAN_OPERANDS
    write_results(inst, group, values, action)


def write_results(
    inst: DecodedInstruction,
    group: LaneGroup,
    values: Codes | tuple[Codes, ...],
    action: actions.LaneOp | actions.WarpCollective,
) -> None:
    """Write results to the destination operands that are present."""
    extends = isinstance(action, actions.LaneOp) and action.extends
    results = values if isinstance(values, tuple) else (values,)
    for operand, codes, kind in zip(inst.results, results, action.results, strict=False):
        group.write(operand, codes, kind if extends else None)


def run_move(_state: WarpState, inst: DecodedInstruction, action: actions.Move, group: LaneGroup) -> None:
    """Run mov: copy, pack or unpack registers."""
    kind = action.type
    target, source = inst.results[0], inst.sources[0]
    if isinstance(source, VectorOperand):
        bits = kind.bits // len(source.items)
        part = TYPES[f"b{bits}"]
        codes = np.zeros((group.warps, LANES), kind.dtype)
        for index, element in enumerate(source.items):
            codes = codes | group.read(element, part).astype(kind.dtype) << kind.dtype.type(bits * index)
    else:
        codes = group.read(source, kind)
    if isinstance(target, VectorOperand):
        bits = kind.bits // len(target.items)
        for element, piece in zip(target.items, split(codes, len(target.items), bits), strict=True):
            group.write(element, piece)
    else:
        group.write(target, codes)


def run_warp_collective(
    _state: WarpState, inst: DecodedInstruction, action: actions.WarpCollective, group: LaneGroup
) -> None:
    """Run a shuffle, vote, match or reduction."""
    args = [group.read(operand, kind) for operand, kind in zip(inst.sources, action.sources, strict=True)]
    if not (action.synced and action.by_members):
        write_results(inst, group, action.function(group.mask, *args), action)
        return
    members = args[-1]
    named = ((members >> LANE_INDEX) & np.uint32(1)) != 0
    left = group.mask
    while left.any():  # lanes with the same member mask take part together; a warp may contain several such sets
        first = np.take_along_axis(members, left.argmax(axis=1)[:, None], axis=1)
        chosen = left & (members == first)
        write_results(inst, group.part(chosen), action.function(chosen & named, *args), action)
        left = left & ~chosen


def run_trap(state: WarpState, inst: DecodedInstruction, _action: actions.Trap, group: LaneGroup) -> None:
    """Run trap or brkpt: end the launch with an error."""
    warps, lanes = np.nonzero(group.mask)
    who = state.thread_name(int(group.warp_rows[warps[0]]), int(lanes[0]))
    hint = "; grid.sync() needs launch(..., options=LaunchOptions(cooperative=True))" * lacks_grid_workspace(state)
    raise PtxError(inst.line, f"{inst.name} by {who}: the kernel ended the launch itself{hint}")


def lacks_grid_workspace(state: WarpState) -> bool:
    """Return True if the kernel reads the address of the grid workspace, but the launch is not cooperative."""
    asked = {
        source.name for inst in state.program.instructions for source in inst.sources if type(source) is SpecialRegister
    }
    return not state.launch.is_cooperative and bool(asked & set(GRID_REGISTERS))


def run_load(state: WarpState, inst: DecodedInstruction, action: actions.MemoryLoad, group: LaneGroup) -> None:
    """Run ld: each lane loads one or more elements, extended to the register width."""
    kind, addresses = action.type, group.addresses(inst.sources[0])
    codes = state.memory.load(action.space, addresses, kind.dtype, action.count, group.owners)
    for index, register in enumerate(items_of(inst.results[0])):
        group.write(register, group.scatter(codes[:, index]), kind)
    if action.polls:
        state.end_wait(group.active_rows, across_blocks=action.space != "shared")


def run_store(state: WarpState, inst: DecodedInstruction, action: actions.MemoryStore, group: LaneGroup) -> None:
    """Run st: each lane stores one or more elements."""
    codes = np.stack([group.values(element, action.type) for element in items_of(inst.sources[1])], axis=1)
    state.progress += state.memory.store(action.space, group.addresses(inst.sources[0]), codes, group.owners)


def run_atomic(state: WarpState, inst: DecodedInstruction, action: actions.Atomic, group: LaneGroup) -> None:
    """Run atom or red lane by lane, in order of warp and lane."""
    kind = action.type
    addresses, owners = group.addresses(inst.sources[0]), group.owners
    operands = [
        np.stack([group.values(element, kind) for element in items_of(operand)], axis=1)
        for operand in inst.sources[1 : 3 if action.name == "cas" else 2]
    ]
    with state.memory.lock:
        old = exchange(state, action, addresses, owners, operands)
    state.progress += 1
    if action.returns:
        for number, register in enumerate(items_of(inst.results[0])):
            group.write(register, group.scatter(old[:, number]), kind)
        state.end_wait(group.active_rows, across_blocks=action.space != "shared")


def run_allocate(state: WarpState, inst: DecodedInstruction, _action: actions.Allocate, group: LaneGroup) -> None:
    """Run alloca: extend the stack; the results are the address of the new bytes and the number of bytes in use."""
    size, align, used, start = (group.read(source, B64) for source in inst.sources)
    offset = (used + align - np.uint64(1)) // align * align
    capacity = np.uint64(state.program.local_bytes) - start
    wrong = (offset > capacity) | (size > capacity - offset)
    if wrong[group.mask].any():
        index = int(wrong[group.mask].argmax())
        asked, taken = int(size[group.mask][index]), int(used[group.mask][index])
        have = int(capacity[group.mask][index])
        raise MemoryFault(index, f"{asked} bytes do not fit on the stack: {taken} of {have} are in use")
    group.write(inst.results[0], start + offset)
    group.write(inst.results[1], offset + size)


def exchange(
    state: WarpState, action: actions.Atomic, addresses: Codes, owners: Owners, operands: list[Codes]
) -> Codes:
    """Apply an atomic operation lane by lane; return the old values."""
    kind = action.type
    old = np.empty((len(addresses), action.count), kind.dtype)
    size = kind.dtype.itemsize
    for which, buffer, offsets in state.memory.reach(action.space, addresses, size * action.count, owners, writes=True):
        if state.memory.observer is not None:
            state.memory.observer.update(buffer, offsets, size * action.count, owners.threads[which])
        cells = state.memory.elements(buffer, kind.dtype)
        index = offsets // size
        update = action.function
        if action.space == "generic" and action.in_window is not None and is_in_window(addresses[which[0]]):
            update = action.in_window
        if kind.element == "f64" and (action.space == "shared" or update is action.in_window):
            note_nan_sums(state, cells, index, operands[0][which][:, 0])
        if len(np.unique(index)) == len(index):  # all addresses differ: update them at once
            at = index[:, None] + np.arange(action.count)
            old[which] = cells[at]
            cells[at] = update(old[which], *(operand[which] for operand in operands))
        else:
            for lane, first in zip(which, index, strict=True):
                own = slice(first, first + action.count)
                old[lane] = cells[own]
                cells[own] = update(old[lane], *(operand[lane] for operand in operands))
        if state.memory.observer is not None:
            state.memory.observer.updated(buffer, offsets, old[which], owners.threads[which])
    return old


def note_nan_sums(state: WarpState, cells: Codes, index: Codes, operands: Codes) -> None:
    """Record an f64 sum of different NaNs in a compare-and-swap loop: the GPU's operand order is unknown."""
    nan = is_nan(operands, "f64")
    if nan.any() and (nan & is_nan(cells[index], "f64") & ((operands | QUIET) != (cells[index] | QUIET))).any():
        state.tally.causes[state.memory.inst] |= InexactCause.NAN_OPERANDS


def run_async_copy(state: WarpState, inst: DecodedInstruction, _action: actions.AsyncCopy, group: LaneGroup) -> None:
    """Run cp.async: copy src-size bytes at once, and fill the rest of the destination with zeros."""
    target, source, size_operand, *rest = inst.sources
    size = size_operand.code(None) if isinstance(size_operand, Immediate) else 0
    if size not in {4, 8, 16}:
        raise PtxError(inst.line, f"expected 4, 8 or 16 bytes for {inst.name}, got {inst.text}")
    src_bytes = np.full((group.warps, LANES), size, np.uint32)
    if rest and isinstance(rest[0], Register) and rest[0].bits == 1:  # ignore-src
        src_bytes = np.where(group.read(rest[0], PRED), np.uint32(0), src_bytes)
    elif rest and not (isinstance(rest[0], Register) and rest[0].bits == 64):  # src-size; 64 bits are a cache policy
        src_bytes = np.minimum(group.read(rest[0], U32), np.uint32(size))
    counts = src_bytes[group.mask]
    owners, addresses = group.owners, group.addresses(source)
    codes = np.zeros((len(counts), size), np.uint8)
    state.memory.check_alignment(addresses, size)
    for count in np.unique(counts):
        if count:
            which = np.nonzero(counts == count)[0]
            try:
                codes[which, :count] = state.memory.load(
                    "global", addresses[which], np.dtype(np.uint8), int(count), owners.at(which)
                )
            except MemoryFault as fault:
                raise fault.of(which[fault.index]) from None
    state.memory.store("shared", group.addresses(target), codes.view(np.uint32), owners)
    state.progress += 1
