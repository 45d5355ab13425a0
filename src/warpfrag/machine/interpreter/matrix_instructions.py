"""Matrix instructions, which whole warps run; `tensorcore` computes the results from registers and addresses.

`RUNNERS` maps each operation of the ISA to the function that runs it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import IllegalInstruction, MemoryFault, PtxError
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, Immediates
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.instruction_table import able_architectures
from warpfrag.isa.operands import OperandSpec, operands
from warpfrag.isa.operands import addresses as addresses_of
from warpfrag.isa.qualifiers import Form
from warpfrag.isa.targets import read_target
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.device_memory import Owners
from warpfrag.machine.interpreter.lane_group import LaneGroup, items_of
from warpfrag.machine.interpreter.warp_state import WarpState
from warpfrag.machine.ir.actions import MatrixOp
from warpfrag.machine.ir.program import DecodedInstruction, Immediate, InexactCause, PtxOperand, Register, VectorOperand
from warpfrag.machine.ir.scalar_types import B32, B64, PRED, U32, Codes
from warpfrag.tensorcore import fragment, matrix_moves
from warpfrag.tensorcore.arithmetic_plan import arithmetic_arch
from warpfrag.tensorcore.execute import execute
from warpfrag.tensorcore.execute_wgmma import element_places, multiply_groups
from warpfrag.tensorcore.matmul import multiply_matrices


def matrix_name(inst: DecodedInstruction) -> str:
    """Return the name that `execute` expects for an instruction."""
    return inst.action.name if isinstance(inst.action, MatrixOp) else inst.name


@lru_cache(256)
def architecture_of(form: Form, arch: str) -> str:
    """Return the architecture on which a form runs; raise IllegalInstruction if the target does not support it."""
    if form.operation.does == "multiply":
        return arithmetic_arch(form, arch)
    target = read_target(arch, spell(form))
    able = able_architectures(form)
    if target.arch not in able:
        raise IllegalInstruction(
            spell(form), f"{target.name} does not support the instruction, but {', '.join(able)} do"
        )
    return target.arch


def run_matrix(state: WarpState, inst: DecodedInstruction, action: MatrixOp, group: LaneGroup) -> None:
    """Run a matrix instruction; all lanes of each warp must be active."""
    form = action.form
    architecture_of(form, state.launch.arch)
    warps = group.mask.any(axis=1)
    here = LaneGroup(state, group.warp_rows[warps], group.mask[warps])
    if not here.is_whole:
        text = f"{inst.name} needs all 32 lanes of a warp, but some have exited or are predicated off"
        raise PtxError(inst.line, text)
    RUNNERS[form.op](state, inst, action, here)


def words_of(group: LaneGroup, operand: PtxOperand) -> NDArray[np.uint32]:
    """Return an operand's 32-bit registers, as [warps, 32, words]."""
    kinds = ((part, B64 if isinstance(part, Register) and part.bits == 64 else B32) for part in items_of(operand))
    return join_words(group.read(part, kind) for part, kind in kinds)


def join_words(columns: Iterable[Codes]) -> NDArray[np.uint32]:
    """Return register codes as 32-bit words; a 64-bit register becomes two words."""
    words: list[NDArray[Any]] = []
    for codes in columns:
        words.append(codes.astype(np.uint32, copy=False))
        if codes.dtype.itemsize == 8:
            words.append((codes >> np.uint64(32)).astype(np.uint32))
    return np.ascontiguousarray(np.stack(words, axis=-1))


def put_words(group: LaneGroup, operand: PtxOperand, words: NDArray[Any]) -> None:
    """Write words to the registers of an operand."""
    for element, codes in split_words(operand, words):
        group.write(element, codes)


def split_words(operand: PtxOperand, words: NDArray[Any]) -> Iterator[tuple[PtxOperand, Codes]]:
    """Split words into the codes of each register of an operand; a 64-bit register takes two words."""
    columns = iter(np.moveaxis(words, -1, 0))
    for element, low in zip(items_of(operand), columns, strict=False):
        is_wide = isinstance(element, Register) and element.bits == 64
        yield element, low.astype(np.uint64) | next(columns).astype(np.uint64) << np.uint64(32) if is_wide else low


def _multiply(state: WarpState, inst: DecodedInstruction, action: MatrixOp, group: LaneGroup) -> None:
    """Run mma or wmma.mma."""
    a, b, c, *rest = inst.sources
    form = action.form
    options = _sparsity_options(inst, group, form, rest)
    if form.block_scale:
        scale_a, ids_a, scale_b, ids_b = rest
        options["scales"] = group.read(scale_a, U32), group.read(scale_b, U32)
        (byte_a, thread_a), (byte_b, thread_b) = (
            [_immediate(inst, number) for number in items_of(ids)] for ids in (ids_a, ids_b)
        )
        chosen = {"byte_id": (byte_a, byte_b), "thread_id": (thread_a, thread_b)}
        options["immediates"] = replace(options.get("immediates", DEFAULT_IMMEDIATES), **chosen)
    words = [words_of(group, operand) for operand in (a, b, c)]
    if form.is_wmma and _fragment_operands(state, form)["d"].unknown:
        result = _multiply_fragments(state, form, words)
    else:
        result = execute(action.name, *words, arch=state.launch.arch, **options)
    put_words(group, inst.results[0], result)


def _multiply_fragments(state: WarpState, form: Form, words: list[NDArray[np.uint32]]) -> NDArray[np.uint32]:
    """Run wmma.mma on unpacked matrices; fragments whose layout is undocumented use a substitute layout."""
    specs = _fragment_operands(state, form)
    matrices = [fragment.unpack(specs[role], own) for role, own in zip("abc", words, strict=True)]
    return fragment.pack(specs["d"], multiply_matrices(form, *matrices, arch=state.launch.arch, raw=True))


def _sparsity_options(
    inst: DecodedInstruction, group: LaneGroup, form: Form, operands: list[PtxOperand]
) -> dict[str, Any]:
    """Return the sparsity options of `execute`; their operands follow A, B and C."""
    if not form.operation.sparsity:
        return {}
    return {"metadata": group.read(operands.pop(0), U32), "immediates": Immediates(_immediate(inst, operands.pop(0)))}


def multiply_many(state: WarpState, instructions: list[DecodedInstruction], group: LaneGroup) -> None:
    """Run several independent whole-warp mma instructions as one mma over more warps."""
    action = instructions[0].action
    if not isinstance(action, MatrixOp):
        return
    name = action.name
    architecture_of(action.form, state.launch.arch)
    words = [np.concatenate([words_of(group, inst.sources[place]) for inst in instructions]) for place in range(3)]
    result = execute(name, *words, arch=state.launch.arch)
    for number, inst in enumerate(instructions):
        put_words(group, inst.results[0], result[number * group.warps : (number + 1) * group.warps])


def _multiply_warpgroups(state: WarpState, inst: DecodedInstruction, action: MatrixOp, group: LaneGroup) -> None:
    """Run wgmma one warpgroup at a time; it completes at issue, and D also supplies C."""
    a, b, *rest = inst.sources
    form = action.form
    options = _sparsity_options(inst, group, form, rest)
    metadata = options.pop("metadata", None)
    scale_d = group.read(rest.pop(0), PRED)
    numbers = [_immediate(inst, operand) for operand in rest]
    immediates = options.get("immediates", DEFAULT_IMMEDIATES)
    if len(numbers) >= 2:  # each is 1 or -1
        immediates = replace(immediates, negate=(numbers[0] != 1, numbers[1] != 1))
    if len(numbers) > 2:
        *turned_a, turned_b = (bool(number) for number in numbers[2:])  # only B has a descriptor if A is in registers
        immediates = replace(immediates, trans=(any(turned_a), turned_b))
    c_words = words_of(group, inst.results[0])
    result = np.empty_like(c_words)
    in_registers = isinstance(a, VectorOperand)
    a_values = words_of(group, a) if in_registers else group.read(a, B64)[:, 0]  # registers, or one descriptor per warp
    b_descriptors = group.read(b, B64)[:, 0]
    if state.memory.observer is not None:
        if not in_registers:
            tell_reads(state, group, form, "a", a_values, is_transposed=immediates.trans[0])
        tell_reads(state, group, form, "b", b_descriptors, is_transposed=immediates.trans[1])
    stride = state.memory.shared_stride
    firsts = slice(None, None, 4)
    if metadata is None:
        joined = multiply_groups(
            form,
            state.launch.arch,
            a_values.reshape(-1, 4, *a_values.shape[1:]) if in_registers else a_values[firsts],
            b_descriptors[firsts],
            c_words.reshape(-1, 4, *c_words.shape[1:]),
            shared=state.memory.shared.reshape(-1, stride),
            blocks=state.warp_block[group.warp_rows[firsts]],
            trans=immediates.trans,
            negate=immediates.negate,
            scale_d=scale_d[firsts, 0],
        )
        if joined is not None:
            put_words(group, inst.results[0], joined.reshape(c_words.shape))
            return
    for first in range(0, group.warps, 4):
        four = slice(first, first + 4)
        block = int(state.warp_block[group.warp_rows[first]])
        memory = state.memory.shared[block * stride : block * stride + stride]
        result[four] = execute(
            spell(form),
            a_values[four] if in_registers else int(a_values[first]),
            int(b_descriptors[first]),
            c_words[four],
            metadata=None if metadata is None else metadata[four],
            immediates=replace(immediates, scale_d=bool(scale_d[first, 0])),
            shared=memory,
            arch=state.launch.arch,
        )
    put_words(group, inst.results[0], result)


def tell_reads(
    state: WarpState, group: LaneGroup, form: Form, role: str, descriptors: Codes, *, is_transposed: bool
) -> None:
    """Tell the checks which shared-memory elements a wgmma reads through its descriptors."""
    memory = state.memory
    for first in range(0, group.warps, 4):
        if memory.observer is None:
            return
        warp, word = int(group.warp_rows[first]), int(descriptors[first])
        memory.observer.product_descriptor(form, role, word, warp, is_transposed=is_transposed)
        places = element_places(form, state.launch.arch, role, word, is_transposed)
        if places is None:
            continue
        start = int(state.warp_block[warp]) * memory.shared_stride
        size = max(1, operands(form, state.launch.arch)[role].format.bits // 8)
        inside = places.reshape(-1) * size
        memory.observer.product_read(start + inside[inside + size <= memory.shared_stride], size, warp)


def _immediate(inst: DecodedInstruction, operand: PtxOperand) -> int:
    """Return the value of an immediate operand; raise an error for any other operand."""
    if not isinstance(operand, Immediate):
        raise PtxError(inst.line, f"expected an immediate operand in {inst.text}")
    return operand.code(None)


def _places(state: WarpState, inst: DecodedInstruction, group: LaneGroup, form: Form, *, writes: bool) -> Codes:
    """Return the offsets of ldmatrix and stmatrix rows in the shared memory of all blocks, as [warps, 32]."""
    rows = addresses_of(form)
    lanes = rows.lanes if rows is not None else LANES
    addresses = group.addresses(inst.sources[0]).reshape(group.warps, LANES)
    mask = np.zeros((group.warps, LANES), np.bool_)
    mask[:, :lanes] = True
    needed = group.part(mask)
    space = inst.attributes.space
    flat = addresses[mask]
    places = np.zeros(len(flat), np.int64)
    try:
        owners = needed.owners
        # eight lanes, with one row each, form a request
        matrix = Owners(owners.blocks, owners.threads, owners.threads // 8)
        reached = state.memory.reach(space, flat, 16, matrix, writes=writes)
    except MemoryFault as fault:
        raise fault.of(np.nonzero(mask.reshape(-1))[0][fault.index]) from None
    for which, buffer, offsets in reached:
        if buffer is not state.memory.shared:
            raise MemoryFault(int(np.nonzero(mask.reshape(-1))[0][which[0]]), "the address is not in shared memory")
        places[which] = offsets
        if state.memory.observer is not None and not writes:
            state.memory.observer.read(buffer, offsets, 16, needed.owners.threads[which])
    return needed.scatter(places)


def _load_matrices(state: WarpState, inst: DecodedInstruction, action: MatrixOp, group: LaneGroup) -> None:
    form = action.form
    places = _places(state, inst, group, form, writes=False)
    put_words(group, inst.results[0], matrix_moves.load(form, places, state.memory.shared))


def _store_matrices(state: WarpState, inst: DecodedInstruction, action: MatrixOp, group: LaneGroup) -> None:
    """Run stmatrix: each lane that supplies an address stores 16 bytes, eight lanes at a time."""
    form = action.form
    places = _places(state, inst, group, form, writes=True)
    lines = matrix_moves.lines_by_lane(form, words_of(group, inst.sources[1]))
    lanes = lines.shape[-2]
    threads = group.of(state.lane_number)[:, :lanes].reshape(-1)
    codes = np.ascontiguousarray(lines.reshape(-1, matrix_moves.LINE)).view(np.uint32)
    memory, offsets = state.memory, places[:, :lanes].reshape(-1)
    if memory.observer is not None:
        memory.observer.write(memory.shared, offsets, codes, threads)
    memory.tags.store(memory.inst, memory.shared, offsets, codes, threads, InexactCause.STMATRIX_ROWS)
    state.progress += 1


def _fragment_operands(state: WarpState, form: Form) -> dict[str, OperandSpec]:
    """Return the operands of a wmma instruction on the launch's architecture."""
    return operands(form, architecture_of(form, state.launch.arch))


def _fragment_operand(state: WarpState, form: Form) -> OperandSpec:
    """Return the operand of a wmma load or store."""
    (operand,) = _fragment_operands(state, form).values()
    return operand


def _elements(
    inst: DecodedInstruction, group: LaneGroup, form: Form, operand: OperandSpec, stride: PtxOperand | None
) -> tuple[Codes, Codes]:
    """Return each element's byte address and its first bit in that byte, both [warps, rows, cols]."""
    height, width = operand.layout.shape
    order = form.layouts[0]
    line = (width if order == "row" else height) if stride is None else 0
    pitch = np.full(group.warps, line, np.int64) if stride is None else group.read(stride, U32)[:, 0].astype(np.int64)
    r, c = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    major, minor = (r, c) if order == "row" else (c, r)
    index = major[None] * pitch[:, None, None] + minor[None]
    base = group.addresses(inst.sources[0]).reshape(group.warps, LANES)[:, 0].astype(np.uint64)
    bits = (index * operand.container).astype(np.uint64)
    return base[:, None, None] + (bits >> np.uint64(3)), (bits & np.uint64(7)).astype(np.uint8)


def _owners(group: LaneGroup, count: int) -> Owners:
    """Return the owners of a fragment's elements, without request numbers: PTX does not specify wmma's requests."""
    owners = group.owners
    firsts = [np.repeat(owner.reshape(group.warps, LANES)[:, 0], count) for owner in (owners.blocks, owners.threads)]
    return Owners(firsts[0], firsts[1], None)


def _load_fragment(state: WarpState, inst: DecodedInstruction, action: MatrixOp, group: LaneGroup) -> None:
    form = action.form
    operand = _fragment_operand(state, form)
    stride = inst.sources[1] if len(inst.sources) > 1 else None
    places, first_bits = _elements(inst, group, form, operand, stride)
    owners = _owners(group, places[0].size)
    dtype = np.dtype(f"u{max(8, operand.container) // 8}")
    try:
        codes = state.memory.load(inst.attributes.space, places.reshape(-1), dtype, 1, owners)
    except MemoryFault as fault:
        raise fault.of(fault.index // places[0].size * LANES) from None
    codes = codes.reshape(places.shape)
    if operand.container < 8:
        codes = codes >> first_bits & np.uint8((1 << operand.container) - 1)
    put_words(group, inst.results[0], fragment.pack(operand, codes))


def _store_fragment(state: WarpState, inst: DecodedInstruction, action: MatrixOp, group: LaneGroup) -> None:
    form = action.form
    operand = _fragment_operand(state, form)
    stride = inst.sources[2] if len(inst.sources) > 2 else None
    places, _ = _elements(inst, group, form, operand, stride)
    codes = fragment.unpack(operand, words_of(group, inst.sources[1]))
    owners = _owners(group, places[0].size)
    flat = codes.reshape(-1, 1).astype(f"u{operand.container // 8}")
    try:
        state.memory.store(inst.attributes.space, places.reshape(-1), flat, owners, InexactCause.OVERLAPPING_STORES)
    except MemoryFault as fault:
        raise fault.of(fault.index // places[0].size * LANES) from None
    state.progress += 1


def _transpose(_state: WarpState, inst: DecodedInstruction, action: MatrixOp, group: LaneGroup) -> None:
    put_words(group, inst.results[0], matrix_moves.move(action.form, words_of(group, inst.sources[0])))


MatrixRunner = Callable[["WarpState", "DecodedInstruction", "MatrixOp", LaneGroup], None]
RUNNERS: dict[str, MatrixRunner] = {
    "mma": _multiply, "mma.sp": _multiply, "mma.sp::ordered_metadata": _multiply, "wmma.mma": _multiply,
    "wmma.load.a": _load_fragment, "wmma.load.b": _load_fragment, "wmma.load.c": _load_fragment,
    "wmma.store.d": _store_fragment, "wgmma.mma_async": _multiply_warpgroups,
    "wgmma.mma_async.sp": _multiply_warpgroups, "ldmatrix": _load_matrices, "stmatrix": _store_matrices,
    "movmatrix": _transpose,
}  # fmt: skip
"""The function that runs each operation of `isa.operations.OPS` for whole warps."""
