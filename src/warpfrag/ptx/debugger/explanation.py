"""One visit of one warp to an instruction: what it read, and what it left.

Operands of a matrix instruction are matrices; those of any other have a value in each of the 32 lanes, which are read
as the type that the instruction takes them for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.ptx.debugger.operand_view import matrix_action, operand_matrix, operands_at, ptx_operands
from warpfrag.ptx.interpreter.lane_group import LaneGroup, items_of
from warpfrag.ptx.program.actions import LaneOp, MatrixOp, MemoryLoad, MemoryStore, Move, WarpCollective
from warpfrag.ptx.program.program import Discard, Immediate, MemoryOperand, Register, SpecialRegister, VectorOperand
from warpfrag.ptx.program.types import TYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.ptx.debugger.breakpoints import Stop
    from warpfrag.ptx.debugger.stepped_batch import SteppedBatch
    from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand
    from warpfrag.ptx.program.types import Type

B64 = TYPES["b64"]
FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


@frozen_dataclass
class OperandValues:
    """An operand: as a matrix, with its role and format, or as the values of 32 lanes."""

    name: str
    format: str
    values: NDArray[Any]
    is_result: bool
    in_shared_memory: bool = False  # behind a descriptor

    @property
    def is_matrix(self) -> bool:
        """Whether it is the operand of a matrix instruction."""
        return self.values.ndim > 1


@frozen_dataclass
class InstructionView:
    """An instruction in one warp: where it is, which lanes run it, and all its operands; `instruction` is its name."""

    stop: Stop
    instruction: str
    arch: str
    operands: tuple[OperandValues, ...]

    def __repr__(self) -> str:
        """Where it is, and the names of its operands."""
        return f"<{self.stop}; {', '.join(item.name for item in self.operands)}>"

    @property
    def is_matrix(self) -> bool:
        """Whether it is a matrix instruction."""
        return any(item.is_matrix for item in self.operands)


def sources_now(batch: SteppedBatch, step: DecodedInstruction, row: int) -> list[OperandValues]:
    """What an instruction would read now."""
    if isinstance(step.action, MatrixOp):
        roles = [role for role, operand in ptx_operands(step).items() if not _is_result(step, role, operand)]
        if step.action.operation == "wgmma":
            roles.append("c")
        return [_matrix(batch, step, row, role, is_result=False) for role in roles]
    guard = [] if step.guard is None else [(step.guard, TYPES["pred"])]
    kinds = _kinds(step, is_result=False)
    pairs = [*guard, *((item, kinds.get(at)) for at, operand in enumerate(step.sources) for item in items_of(operand))]
    return [item for operand, kind in pairs if (item := _lanes(batch, row, operand, kind, is_result=False)) is not None]


def results_now(batch: SteppedBatch, step: DecodedInstruction, row: int) -> list[OperandValues]:
    """What an instruction has left, once it has run."""
    if isinstance(step.action, MatrixOp):
        roles = [role for role, operand in ptx_operands(step).items() if _is_result(step, role, operand)]
        return [_matrix(batch, step, row, role, is_result=True) for role in roles]
    kinds = _kinds(step, is_result=True)
    pairs = [(item, kinds.get(at)) for at, operand in enumerate(step.results) for item in items_of(operand)]
    return [item for operand, kind in pairs if (item := _lanes(batch, row, operand, kind, is_result=True)) is not None]


def _is_result(step: DecodedInstruction, role: str, operand: PtxOperand) -> bool:
    return bool(step.results) and operand == step.results[0] and (role == "d" or len(ptx_operands(step)) == 1)


def _matrix(batch: SteppedBatch, step: DecodedInstruction, row: int, role: str, *, is_result: bool) -> OperandValues:
    operands = operands_at(step, batch.launch.arch)
    format_name = operands["d" if role == "c" and matrix_action(step).operation == "wgmma" else role].format.name
    action = matrix_action(step)
    in_shared_memory = action.operation == "wgmma" and not isinstance(
        ptx_operands(step).get(role), VectorOperand | None
    )
    values = operand_matrix(batch, step, row, role)
    return OperandValues(role, format_name, values, is_result, in_shared_memory and role in {"a", "b"})


def _kinds(step: DecodedInstruction, *, is_result: bool) -> dict[int, Type]:
    """The types of the operands of an instruction, by their place."""
    action = step.action
    if isinstance(action, LaneOp | WarpCollective):
        kinds = action.results if is_result else action.sources
        return {at: kind for at, kind in enumerate(kinds) if kind is not None}
    if isinstance(action, MemoryLoad | MemoryStore | Move):
        return {0 if is_result or isinstance(action, Move) else 1: action.type}
    return {}


def _lanes(
    batch: SteppedBatch, row: int, operand: PtxOperand, kind: Type | None, *, is_result: bool
) -> OperandValues | None:
    """The values of an operand in the lanes of a warp; None where it has none."""
    group = LaneGroup(batch, np.array([row]), np.ones((1, 32), np.bool_))
    if isinstance(operand, MemoryOperand):
        base = operand.base.name if operand.base is not None else operand.name
        offset = f"{operand.offset:+}" if operand.base is not None and operand.offset else ""
        return OperandValues(f"[{base}{offset}]", "address", group.addresses(operand), is_result)
    if isinstance(operand, Discard) or (isinstance(operand, Immediate) and kind is None):
        return None
    if isinstance(operand, Register):
        own = kind if kind is not None and kind.bits <= operand.bits else TYPES.get(f"b{operand.bits}", TYPES["pred"])
        name = f"!{operand.name}" if operand.negated else operand.name
    elif isinstance(operand, SpecialRegister | Immediate):
        own = kind or B64
        name = operand.name if isinstance(operand, SpecialRegister) else "constant"
    else:
        return None
    codes = group.read(operand, own)[0]
    values = codes
    if own.name in FLOATS:
        values = codes.view(FLOATS[own.name])
    elif own.kind == "s":
        values = codes.view(f"i{codes.dtype.itemsize}")
    return OperandValues(name, own.name, values.copy(), is_result)
