"""The operands of a matrix instruction in a warp that stands at it: which registers feed each, and as matrices.

mma names its operands in order; wgmma has A in registers or both in shared memory, behind descriptors, and D is C too;
ldmatrix, stmatrix, movmatrix and wmma's loads and stores move one fragment. The layouts are those of the instruction,
so a matrix here is what the tensor core takes it for, whatever the kernel meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.errors import InvalidOperand
from warpfrag.ptx.interpreter.lane_group import LaneGroup, items_of
from warpfrag.ptx.interpreter.matrix_instructions import architecture_of, words_of
from warpfrag.ptx.program.actions import MatrixOp
from warpfrag.ptx.program.program import Immediate, VectorOperand
from warpfrag.ptx.program.types import TYPES
from warpfrag.smem.descriptor import Descriptor
from warpfrag.tensorcore.operand import Metadata, Operand, Scale, operands_of
from warpfrag.tensorcore.shared_operand import Shared

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.ptx.interpreter.warp_state import WarpState
    from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand
    from warpfrag.tensorcore.operand import AnyOperand, Operands

WARPGROUP = 4  # warps
B64 = TYPES["b64"]


def matrix_action(step: DecodedInstruction) -> MatrixOp:
    """The action of a matrix instruction; InvalidOperand for any other."""
    if not isinstance(step.action, MatrixOp):
        msg = f"line {step.line}: {step.text} is no matrix instruction, so its registers are no matrix"
        raise InvalidOperand(msg)
    return step.action


def operands_at(step: DecodedInstruction, arch: str) -> Operands:
    """The operands of a matrix instruction, with the fragments of an architecture."""
    form = matrix_action(step).form
    return operands_of(form, architecture_of(form, arch) if form.is_wmma else "")


def ptx_operands(step: DecodedInstruction) -> dict[str, PtxOperand]:
    """What the instruction names for each role, in the order of its text."""
    action = matrix_action(step)
    form, sources = action.form, step.sources
    if action.operation == "wgmma":
        roles = {"d": step.results[0], "a": sources[0], "b": sources[1]}
        return roles | ({"metadata": sources[2]} if form.operation.sparsity else {})
    if form.op in {"mma", "mma.sp", "mma.sp::ordered_metadata", "wmma.mma"}:
        roles = {"d": step.results[0], **dict(zip("abc", sources, strict=False))}
        rest = list(sources[3:])
        if form.operation.sparsity:
            roles["metadata"] = rest[0]
            rest = rest[2:]
        return roles | ({"scale_a": rest[0], "scale_b": rest[2]} if form.block_scale else {})
    if form.op == "movmatrix":
        return {"d": step.results[0], "a": sources[0]}
    role = next(iter(operands_of(form, "" if not form.is_wmma else "sm_90")))
    return {role: step.results[0] if step.results else sources[1]}


def operand_matrix(
    state: WarpState, step: DecodedInstruction, row: int, role: str, *, raw: bool = False
) -> NDArray[Any]:
    """The matrix that an operand of a matrix instruction is now, in a warp or in its warpgroup."""
    action, named = matrix_action(step), ptx_operands(step)
    operands = operands_at(step, state.launch.arch)
    wanted = role.lower() if isinstance(role, str) else role
    if wanted == "c" and action.operation == "wgmma":
        wanted = "d"  # one set of registers
    if wanted not in named:
        msg = f"expected an operand of {step.name}: {', '.join(named)}; got {role!r}"
        raise InvalidOperand(msg)
    operand = operands[wanted]
    group = _group(state, row, WARPGROUP if action.operation == "wgmma" else 1)
    source = named[wanted]
    if action.operation == "wgmma" and wanted in {"a", "b"} and not isinstance(source, VectorOperand):
        if not isinstance(operand, Operand):
            msg = f"operand {wanted} of {step.name} has no descriptor"
            raise InvalidOperand(msg)
        return _staged(state, step, group, operand, source, raw=raw)
    words = words_of(group, source)
    whole = words if action.operation == "wgmma" else words[0]
    return _unpacked(step, operand, whole, raw=raw)


def _group(state: WarpState, row: int, warps: int) -> LaneGroup:
    """A warp, or the warpgroup that it belongs to, with all lanes."""
    first = row - int(state.warp_index[row]) % warps
    rows = np.arange(first, min(first + warps, state.warps))
    return LaneGroup(state, rows, np.ones((len(rows), 32), np.bool_))


def _staged(
    state: WarpState, step: DecodedInstruction, group: LaneGroup, operand: Operand, source: PtxOperand, *, raw: bool
) -> NDArray[Any]:
    """An operand in shared memory, through the descriptor that a register holds."""
    word = int(group.read(source, B64)[0, 0])
    block, stride = int(state.warp_block[group.warp_rows[0]]), state.memory.shared_stride
    memory = state.memory.shared[block * stride : (block + 1) * stride]
    tile = Shared(memory, Descriptor.decode(word), trans=_is_turned(step, operand.role))
    return operand.load(tile, raw=raw)


def _is_turned(step: DecodedInstruction, role: str) -> bool:
    """Whether the immediates of a wgmma say that an operand is MN-major."""
    numbers = [operand.code(None) for operand in step.sources if isinstance(operand, Immediate)]
    flags = numbers[3 if matrix_action(step).form.operation.sparsity else 2 :]
    if not flags:
        return False
    return bool(flags[0] if role == "a" and len(flags) > 1 else flags[-1]) if role == "b" or len(flags) > 1 else False


def _unpacked(step: DecodedInstruction, operand: AnyOperand, words: NDArray[np.uint32], *, raw: bool) -> NDArray[Any]:
    """The matrix of an operand in registers; metadata and scale factors as the immediates choose them."""
    if isinstance(operand, Operand):
        return operand.unpack(words, raw=raw)
    chosen = words[..., 0]
    if isinstance(operand, Metadata):
        at = step.sources.index(ptx_operands(step)["metadata"])
        selector = step.sources[at + 1]
        return operand.unpack(chosen, selector=selector.code(None) if isinstance(selector, Immediate) else 0)
    return _scales(step, operand, chosen, raw=raw)


def _scales(step: DecodedInstruction, operand: Scale, words: NDArray[np.uint32], *, raw: bool) -> NDArray[Any]:
    """The scale factors of A or B that the byte and thread ids choose."""
    at = step.sources.index(ptx_operands(step)[operand.role])
    ids = [item.code(None) for item in items_of(step.sources[at + 1]) if isinstance(item, Immediate)]
    return operand.unpack(words, byte_id=ids[0], thread_id=ids[1], raw=raw)


def staged_offsets(state: WarpState, step: DecodedInstruction, row: int) -> NDArray[np.int64]:
    """Where the elements of a wgmma's operands lie that have a descriptor, in the shared memory of the batch."""
    group, named = _group(state, row, WARPGROUP), ptx_operands(step)
    operands, offsets = operands_at(step, state.launch.arch), [np.zeros(0, np.int64)]
    first = int(state.warp_block[group.warp_rows[0]]) * state.memory.shared_stride
    for role in ("a", "b"):
        operand = operands[role]
        if not isinstance(named[role], VectorOperand) and isinstance(operand, Operand):
            word = int(group.read(named[role], B64)[0, 0])
            places = operand.addresses(word, trans=_is_turned(step, role)).reshape(-1)
            offsets.append(first + places[places < state.memory.shared_stride])
    return np.concatenate(offsets)
