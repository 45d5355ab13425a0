"""Views of an instruction's operands in a stopped warp, as matrices or per lane.

mma lists its operands in order; wgmma has A in registers, or A and B in shared memory through descriptors, and D is
also C; ldmatrix, stmatrix, movmatrix and wmma's loads and stores move one fragment. Layouts are those of the
instruction, so a view shows the matrix that the tensor core reads, even if the kernel intended a different one.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.codes import code_dtype, from_codes
from warpfrag.formats.number_formats import FORMATS, Format
from warpfrag.machine.debugger.breakpoints import SteppedBatch, Stop
from warpfrag.machine.interpreter.lane_group import LaneGroup, items_of
from warpfrag.machine.interpreter.matrix_instructions import architecture_of, words_of
from warpfrag.machine.interpreter.warp_state import WarpState
from warpfrag.machine.ir.actions import LaneOp, MatrixOp, MemoryLoad, MemoryStore, Move, WarpCollective
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
from warpfrag.machine.ir.scalar_types import B64, TYPES, Type
from warpfrag.machine.ir.state_spaces import SHARED_START
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.shared_memory import Memory
from warpfrag.tensorcore.operand import AnyOperand, Metadata, Operand, Operands, Scale, operands_of
from warpfrag.tensorcore.shared_operand import Shared

WARPGROUP = 4  # warps in a warpgroup


def matrix_action(inst: DecodedInstruction) -> MatrixOp:
    """Return the action of a matrix instruction; raise InvalidOperand for any other instruction."""
    if not isinstance(inst.action, MatrixOp):
        raise InvalidOperand(
            f"line {inst.line}: {inst.text} is not a matrix instruction, so its registers have no matrix layout"
        )
    return inst.action


def operands_at(inst: DecodedInstruction, arch: str) -> Operands:
    """Return the operands of a matrix instruction on an architecture, by role."""
    form = matrix_action(inst).form
    return operands_of(form, architecture_of(form, arch) if form.is_wmma else "")


def ptx_operands(inst: DecodedInstruction) -> dict[str, PtxOperand]:
    """Return an instruction's PTX operands by role, in the order in which they are written."""
    action = matrix_action(inst)
    form, sources = action.form, inst.sources
    if action.operation == "wgmma":
        roles = {"d": inst.results[0], "a": sources[0], "b": sources[1]}
        return roles | ({"metadata": sources[2]} if form.operation.sparsity else {})
    if form.op in {"mma", "mma.sp", "mma.sp::ordered_metadata", "wmma.mma"}:
        roles = {"d": inst.results[0], **dict(zip("abc", sources, strict=False))}
        rest = list(sources[3:])
        if form.operation.sparsity:
            roles["metadata"] = rest[0]
            rest = rest[2:]
        return roles | ({"scale_a": rest[0], "scale_b": rest[2]} if form.block_scale else {})
    if form.op == "movmatrix":
        return {"d": inst.results[0], "a": sources[0]}
    role = next(iter(operands_of(form, "" if not form.is_wmma else "sm_90")))
    return {role: inst.results[0] if inst.results else sources[1]}


def operand_matrix(
    state: WarpState, inst: DecodedInstruction, row: int, role: str, *, raw: bool = False
) -> NDArray[Any]:
    """Return the current matrix of an operand in a warp, or in its warpgroup for wgmma."""
    action, named = matrix_action(inst), ptx_operands(inst)
    operands = operands_at(inst, state.launch.arch)
    wanted = role.lower() if isinstance(role, str) else role
    if wanted == "c" and action.operation == "wgmma":
        wanted = "d"  # the instruction has one set of registers for C and D
    if wanted not in named:
        raise InvalidOperand(f"expected an operand of {inst.name}: {', '.join(named)}; got {role!r}")
    operand = operands[wanted]
    group = _group(state, row, WARPGROUP if action.operation == "wgmma" else 1)
    source = named[wanted]
    if action.operation == "wgmma" and wanted in {"a", "b"} and not isinstance(source, VectorOperand):
        if not isinstance(operand, Operand):
            raise InvalidOperand(f"operand {wanted} of {inst.name} has no descriptor")
        return _staged(state, inst, group, operand, source, raw=raw)
    words = words_of(group, source)
    whole = words if action.operation == "wgmma" else words[0]
    return _unpacked(inst, operand, whole, raw=raw)


def _group(state: WarpState, row: int, warps: int) -> LaneGroup:
    """Return a group of all lanes in a warp, or in its warpgroup if `warps` is 4."""
    first = row - int(state.warp_index[row]) % warps
    rows = np.arange(first, min(first + warps, state.warps))
    return LaneGroup(state, rows, np.ones((len(rows), 32), np.bool_))


def _staged(
    state: WarpState, inst: DecodedInstruction, group: LaneGroup, operand: Operand, source: PtxOperand, *, raw: bool
) -> NDArray[Any]:
    """Return the matrix of a shared-memory operand, which the descriptor in a register locates."""
    word = int(group.read(source, B64)[0, 0])
    block, stride = int(state.warp_block[group.warp_rows[0]]), state.memory.shared_stride
    memory = state.memory.shared[block * stride : (block + 1) * stride]
    return operand.load(Shared(memory, Descriptor.decode(word), trans=_is_turned(inst, operand.role)), raw=raw)


def _is_turned(inst: DecodedInstruction, role: str) -> bool:
    """Return True if the immediates of a wgmma declare an operand MN-major."""
    numbers = [operand.code(None) for operand in inst.sources if isinstance(operand, Immediate)]
    flags = numbers[3 if matrix_action(inst).form.operation.sparsity else 2 :]
    if not flags:
        return False
    return bool(flags[0] if role == "a" and len(flags) > 1 else flags[-1]) if role == "b" or len(flags) > 1 else False


def _unpacked(inst: DecodedInstruction, operand: AnyOperand, words: NDArray[np.uint32], *, raw: bool) -> NDArray[Any]:
    """Return the matrix of a register operand; immediates select parts of the metadata and scale words."""
    if isinstance(operand, Operand):
        return operand.unpack(words, raw=raw)
    chosen = words[..., 0]
    if isinstance(operand, Metadata):
        at = inst.sources.index(ptx_operands(inst)["metadata"])
        selector = inst.sources[at + 1]
        return operand.unpack(chosen, selector=selector.code(None) if isinstance(selector, Immediate) else 0)
    return _scales(inst, operand, chosen, raw=raw)


def _scales(inst: DecodedInstruction, operand: Scale, words: NDArray[np.uint32], *, raw: bool) -> NDArray[Any]:
    """Return the scale factors of A or B that the byte and thread ids select."""
    at = inst.sources.index(ptx_operands(inst)[operand.role])
    ids = [operand.code(None) for operand in items_of(inst.sources[at + 1]) if isinstance(operand, Immediate)]
    return operand.unpack(words, byte_id=ids[0], thread_id=ids[1], raw=raw)


class SharedView:
    """A live view of one block's shared memory."""

    start = SHARED_START

    def __init__(self, memory: NDArray[np.uint8], end: int) -> None:
        """Create a view of one block's memory, which starts at address 0; the kernel uses it up to address `end`."""
        self._memory, self.end = memory, end

    def __repr__(self) -> str:
        """Return a summary with the size and the address range."""
        return f"<shared memory of {self.end - self.start} bytes, {self.start:#x} to {self.end:#x}>"

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """The kernel's bytes from `start` on, read-only."""
        own = self._memory[self.start : self.end]
        own.flags.writeable = False
        return own

    def as_matrix(
        self,
        memory: Memory | Descriptor,
        shape: tuple[int, int] | None = None,
        format: str | Format | None = None,  # noqa: A002 (the usual name)
        *,
        start: int | None = None,
        operand: Operand | None = None,
        trans: bool = False,
        raw: bool = False,
    ) -> NDArray[Any]:
        """Return a matrix in shared memory in its natural dtype, or as unsigned codes with `raw=True`.

        A `Memory` needs the shape and the number format of the matrix; its own `start` is relative to address 0, unless
        `start` is given. A `Descriptor` needs `operand`, the wgmma operand that it describes. `TensorMap.memory`
        returns the `Memory` of a tensor-map box.
        """
        if isinstance(memory, Descriptor):
            if operand is None:
                raise InvalidOperand(
                    "a Descriptor needs operand=, such as wgmma.b, for the shape and the number format"
                )
            moved = memory if start is None else memory.moved(start - memory.start)
            return operand.load(Shared(self._memory[: self.end], moved, trans), raw=raw)
        if not isinstance(memory, Memory):
            raise InvalidOperand(f"expected a Memory or a Descriptor, got {quote(memory)}")
        if shape is None or format is None:
            raise InvalidOperand(f"a Memory needs shape=(rows, cols) and format=, such as 'f16'; got {quote(shape)}")
        moved_memory = memory if start is None else replace(memory, start=start)
        dtype = format if isinstance(format, Format) else _format(format)
        codes = moved_memory.read(self._memory[: self.end], shape, dtype.bits).astype(code_dtype(dtype))
        return codes if raw else from_codes(dtype, codes)


def _format(name: object) -> Format:
    """Return the number format with this name; raise InvalidOperand if there is none."""
    if not isinstance(name, str) or name not in FORMATS:
        raise InvalidOperand(f"expected a number format, one of {', '.join(FORMATS)}; got {quote(name)}")
    return FORMATS[name]


FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


@dataclass(frozen=True)
class OperandValues:
    """The values of one operand: a matrix with its role and format, or the values in 32 lanes."""

    name: str
    format: str
    values: NDArray[Any]
    is_result: bool
    in_shared_memory: bool = False  # True if a descriptor locates the operand
    elements: tuple[str, ...] = ()  # for addresses: the elements of an array argument that they refer to

    def __str__(self) -> str:
        """Return the name and the first and last values."""
        values = np.array2string(self.values, threshold=8, edgeitems=2, precision=6, separator=" ").replace("\n", "")
        if self.elements:
            values = " ... ".join(dict.fromkeys((self.elements[0], self.elements[-1])))
        return f"{self.name}{' (after)' if self.is_result else ''} = {values}"

    @property
    def is_matrix(self) -> bool:
        """True for an operand of a matrix instruction."""
        return self.values.ndim > 1


@dataclass(frozen=True)
class InstructionView:
    """An instruction in one warp: its name, position, active lanes and operands."""

    stop: Stop
    instruction: str
    arch: str
    operands: tuple[OperandValues, ...]

    def __repr__(self) -> str:
        """Return a summary with the stop and the operands; long operands are shortened."""
        return f"<{self.stop!r}; {', '.join(map(str, self.operands))}>"

    @property
    def is_matrix(self) -> bool:
        """True for a matrix instruction."""
        return any(operand.is_matrix for operand in self.operands)


def named_elements(
    values: list[OperandValues], name: str, array: NDArray[Any], offsets: list[int], dtype: str
) -> list[OperandValues]:
    """Name the array elements that a load or store accesses, and convert its words to the array's dtype."""
    cells = np.transpose(np.unravel_index(np.array(offsets) // array.itemsize, array.shape)).tolist()
    elements = tuple(f"{name}{cell}" for cell in cells)
    format_of = {np.dtype(kind).name: code for code, kind in FLOATS.items()}
    code = format_of.get(dtype.rpartition(".")[2], "")
    return [
        replace(value, elements=elements) if value.format == "address"
        else replace(value, format=code, values=value.values.view(FLOATS[code])) if value.format == f"b{code[1:]}"
        else value
        for value in values
    ]  # fmt: skip


def sources_now(batch: SteppedBatch, inst: DecodedInstruction, row: int) -> list[OperandValues]:
    """Return the operands that an instruction would read if it ran now."""
    guard = [] if inst.guard is None else [_lanes(batch, row, inst.guard, TYPES["pred"], is_result=False)]
    return [*(view for view in guard if view is not None), *_values(batch, inst, row, is_result=False)]


def results_now(batch: SteppedBatch, inst: DecodedInstruction, row: int) -> list[OperandValues]:
    """Return the results of an instruction that has run."""
    return _values(batch, inst, row, is_result=True)


def _values(batch: SteppedBatch, inst: DecodedInstruction, row: int, *, is_result: bool) -> list[OperandValues]:
    if isinstance(inst.action, MatrixOp):
        roles = [role for role, operand in ptx_operands(inst).items() if _is_result(inst, role, operand) == is_result]
        if inst.action.operation == "wgmma" and not is_result:
            roles.append("c")
        return [_matrix(batch, inst, row, role, is_result=is_result) for role in roles]
    pairs = typed_operands(inst, is_result=is_result)
    values = (_lanes(batch, row, operand, dtype, is_result=is_result) for operand, dtype in pairs)
    return [view for view in values if view is not None]


def _is_result(inst: DecodedInstruction, role: str, operand: PtxOperand) -> bool:
    return bool(inst.results) and operand == inst.results[0] and (role == "d" or len(ptx_operands(inst)) == 1)


def _matrix(batch: SteppedBatch, inst: DecodedInstruction, row: int, role: str, *, is_result: bool) -> OperandValues:
    operands = operands_at(inst, batch.launch.arch)
    format_name = operands["d" if role == "c" and matrix_action(inst).operation == "wgmma" else role].format.name
    action = matrix_action(inst)
    in_shared_memory = action.operation == "wgmma" and not isinstance(
        ptx_operands(inst).get(role), VectorOperand | None
    )
    values = operand_matrix(batch, inst, row, role)
    return OperandValues(role, format_name, values, is_result, in_shared_memory and role in {"a", "b"})


def typed_operands(inst: DecodedInstruction, *, is_result: bool) -> list[tuple[PtxOperand, Type | None]]:
    """Return an instruction's results or sources, each with its type."""
    dtypes = _dtypes(inst, is_result=is_result)
    operands = enumerate(inst.results if is_result else inst.sources)
    return [(element, dtypes.get(number)) for number, operand in operands for element in items_of(operand)]


def _dtypes(inst: DecodedInstruction, *, is_result: bool) -> dict[int, Type]:
    """Return the types of an instruction's operands, by operand number."""
    action = inst.action
    if isinstance(action, LaneOp | WarpCollective):
        dtypes = action.results if is_result else action.sources
        return {number: dtype for number, dtype in enumerate(dtypes) if dtype is not None}
    if isinstance(action, MemoryLoad | MemoryStore | Move):
        return {0 if is_result or isinstance(action, Move) else 1: action.type}
    return {}


def _lanes(
    batch: SteppedBatch, row: int, operand: PtxOperand, dtype: Type | None, *, is_result: bool
) -> OperandValues | None:
    """Return an operand's values in a warp's lanes, or None if the operand has no values."""
    group = LaneGroup(batch, np.array([row]), np.ones((1, 32), np.bool_))
    if isinstance(operand, MemoryOperand):
        base = operand.name if operand.base is None else next(registers_of(operand.base)).name
        offset = f"{operand.offset:+}" if operand.base is not None and operand.offset else ""
        return OperandValues(f"[{base}{offset}]", "address", group.addresses(operand), is_result)
    if isinstance(operand, Discard) or (isinstance(operand, Immediate) and dtype is None):
        return None
    if isinstance(operand, Register):
        own = (
            dtype if dtype is not None and dtype.bits <= operand.bits else TYPES.get(f"b{operand.bits}", TYPES["pred"])
        )
        name = f"!{operand.name}" if operand.negated else operand.name
    elif isinstance(operand, SpecialRegister | Immediate):
        own = dtype or B64
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
