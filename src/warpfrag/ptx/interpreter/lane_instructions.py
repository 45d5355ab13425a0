"""Instructions on registers alone: lane by lane, moves, exchanges between the lanes of a warp; and trap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from warpfrag.errors import PtxError
from warpfrag.layout.coordinates import LANES
from warpfrag.ptx.interpreter.special_registers import GRID_REGISTERS
from warpfrag.ptx.program.actions import LaneOp
from warpfrag.ptx.program.inexact import InexactCause
from warpfrag.ptx.program.program import Immediate, SpecialRegister, VectorOperand
from warpfrag.ptx.program.types import TYPES, split
from warpfrag.ptx.semantics.floats import choose_nan

if TYPE_CHECKING:
    from warpfrag.ptx.interpreter.lane_group import LaneGroup
    from warpfrag.ptx.interpreter.warp_state import WarpState
    from warpfrag.ptx.program.actions import Move, Trap, WarpCollective
    from warpfrag.ptx.program.program import DecodedInstruction
    from warpfrag.ptx.program.types import Codes

B32, LANE_INDEX = TYPES["b32"], np.arange(LANES, dtype=np.uint32)


def run_lane_op(state: WarpState, step: DecodedInstruction, action: LaneOp, group: LaneGroup) -> None:
    """Compute lane by lane, and write the results."""
    args: list[Codes | int] = []
    for operand, kind in zip(step.sources, action.sources, strict=True):
        if kind is not None:
            args.append(group.read(operand, kind))
        elif isinstance(operand, Immediate):
            args.append(operand.code(None))
    values = action.function(*args)
    if action.nan_choice is not None and isinstance(values, np.ndarray):
        values, doubtful = choose_nan(values, [np.asarray(arg) for arg in args], action.nan_choice.order)
        if doubtful is not None and not action.nan_choice.is_fixed and (doubtful & group.mask).any():
            state.tally.causes[state.memory.step] |= InexactCause.NAN_OPERANDS
    if action.alternative is not None:
        pairs = zip(as_tuple(values), as_tuple(action.alternative.function(*args)), strict=False)
        if any(((value != other) & group.mask).any() for value, other in pairs):
            state.tally.causes[state.memory.step] |= InexactCause.COMPILER
    write_results(step, group, values, action)


def write_results(
    step: DecodedInstruction,
    group: LaneGroup,
    values: Codes | tuple[Codes, ...],
    action: LaneOp | WarpCollective,
) -> None:
    """Write as many results as the instruction has operands for."""
    extends = isinstance(action, LaneOp) and action.extends
    results = values if isinstance(values, tuple) else (values,)
    for operand, codes, kind in zip(step.results, results, action.results, strict=False):
        group.write(operand, codes, kind if extends else None)


def run_move(_state: WarpState, step: DecodedInstruction, action: Move, group: LaneGroup) -> None:
    """mov: a copy, several registers packed into one, or one unpacked."""
    kind = action.type
    target, source = step.results[0], step.sources[0]
    if isinstance(source, VectorOperand):
        bits = kind.bits // len(source.items)
        part = TYPES[f"b{bits}"]
        codes = np.zeros((group.warps, LANES), kind.dtype)
        for index, item in enumerate(source.items):
            codes = codes | group.read(item, part).astype(kind.dtype) << kind.dtype.type(bits * index)
    else:
        codes = group.read(source, kind)
    if isinstance(target, VectorOperand):
        bits = kind.bits // len(target.items)
        for item, piece in zip(target.items, split(codes, len(target.items), bits), strict=True):
            group.write(item, piece)
    else:
        group.write(target, codes)


def run_warp_collective(_state: WarpState, step: DecodedInstruction, action: WarpCollective, group: LaneGroup) -> None:
    """Shuffles, votes, matches and reductions."""
    args = [group.read(operand, kind) for operand, kind in zip(step.sources, action.sources, strict=True)]
    if not (action.synced and action.by_members):
        write_results(step, group, action.function(group.mask, *args), action)
        return
    members = args[-1]
    named = ((members >> LANE_INDEX) & np.uint32(1)) != 0
    left = group.mask
    while left.any():  # lanes that name the same members are one set; there may be several in a warp
        first = np.take_along_axis(members, left.argmax(axis=1)[:, None], axis=1)
        chosen = left & (members == first)
        write_results(step, group.part(chosen), action.function(chosen & named, *args), action)
        left = left & ~chosen


def run_trap(state: WarpState, step: DecodedInstruction, _action: Trap, group: LaneGroup) -> None:
    """trap and brkpt: the launch ends with an error."""
    warps, lanes = np.nonzero(group.mask)
    who = state.thread_name(int(group.warp_rows[warps[0]]), int(lanes[0]))
    hint = "; grid.sync() needs launch(..., cooperative=True)" if lacks_grid_workspace(state) else ""
    raise PtxError(step.line, f"{step.name} by {who}: the kernel ended the launch itself{hint}")


def lacks_grid_workspace(state: WarpState) -> bool:
    """Whether the kernel asks for the workspace that only a cooperative launch has."""
    asked = {source.name for step in state.program.steps for source in step.sources if type(source) is SpecialRegister}
    return not state.launch.is_cooperative and bool(asked & set(GRID_REGISTERS))


def as_tuple(values: Codes | tuple[Codes, ...]) -> tuple[Codes, ...]:
    """The results of a step, where it has one too."""
    return values if isinstance(values, tuple) else (values,)
