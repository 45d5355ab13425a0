"""Matrix instructions of whole warps, by warpfrag's own: this room only carries registers and addresses to them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.catalog.execute import execute
from warpfrag.errors import Fault, IllegalInstruction, PtxError
from warpfrag.execution import fragment, matrix_moves
from warpfrag.isa.legality import able_architectures, arithmetic_arch, resolve
from warpfrag.isa.names import spell
from warpfrag.isa.operands import addresses as addresses_of
from warpfrag.isa.operands import operands
from warpfrag.isa.targets import read_target
from warpfrag.ptx.interpreter.lane_group import Group
from warpfrag.ptx.interpreter.memory import Owners
from warpfrag.ptx.program.program import Constant, Register, Sink, Vector
from warpfrag.ptx.program.types import TYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.isa.operands import OperandSpec
    from warpfrag.isa.words import Form
    from warpfrag.ptx.interpreter.warp_state import Warps
    from warpfrag.ptx.program.program import Operand, Step
    from warpfrag.ptx.program.types import Codes

U32, B32, B64, PRED = TYPES["u32"], TYPES["b32"], TYPES["b64"], TYPES["pred"]


@lru_cache(256)
def form_of(name: str) -> Form:
    """The form of a name."""
    return resolve(name)


@lru_cache(256)
def architecture_of(form: Form, arch: str) -> str:
    """The architecture that runs a form; IllegalInstruction if it lacks it."""
    if form.is_product:
        return arithmetic_arch(form, arch)
    target = read_target(arch, spell(form), "arch")
    able = able_architectures(form)
    if target.arch not in able:
        raise IllegalInstruction(spell(form), f"{target.name} lacks it; {', '.join(able)} have it")
    return target.arch


def run_matrix(wave: Warps, step: Step, group: Group) -> None:
    """Run an instruction for the warps whose lanes are all here."""
    name = str(getattr(step.action, "name", ""))
    form = form_of(name)
    architecture_of(form, wave.launch.arch)
    taking = group.mask.any(axis=1)
    rows = group.rows if group.rows is not None else np.arange(wave.warps)
    here = Group(wave, rows[taking], group.mask[taking])
    if not here.is_whole:
        raise PtxError(step.line, f"{step.name} needs all 32 lanes of a warp, but some have left or are predicated off")
    if form.op == "ldmatrix":
        _load_matrices(wave, step, here, form)
    elif form.op == "stmatrix":
        _store_matrices(wave, step, here, form)
    elif form.op == "movmatrix":
        put_words(here, step.results[0], matrix_moves.move(form, words_of(here, step.sources[0])))
    elif form.op.startswith("wmma.load"):
        _load_fragment(wave, step, here, form)
    elif form.op.startswith("wmma.store"):
        _store_fragment(wave, step, here, form)
    elif form.is_warpgroup:
        _multiply_warpgroups(wave, step, here, form)
    else:
        _multiply(wave, step, here, name)


def items(operand: Operand) -> tuple[Operand, ...]:
    """The registers of an operand."""
    return operand.items if isinstance(operand, Vector) else (operand,)


def words_of(group: Group, operand: Operand) -> NDArray[np.uint32]:
    """The registers of an operand as words, [warps, 32, words]."""
    columns: list[NDArray[Any]] = []
    for item in items(operand):
        if isinstance(item, Register) and item.bits == 64:
            codes = group.read(item, B64)
            columns += [(codes & np.uint64(0xFFFFFFFF)).astype(np.uint32), (codes >> np.uint64(32)).astype(np.uint32)]
        else:
            columns.append(group.read(item, B32))
    return np.ascontiguousarray(np.stack(columns, axis=-1))


def put_words(group: Group, operand: Operand, words: NDArray[Any]) -> None:
    """Words into the registers of an operand."""
    at = 0
    for item in items(operand):
        if isinstance(item, Register) and item.bits == 64:
            low, high = words[..., at].astype(np.uint64), words[..., at + 1].astype(np.uint64)
            group.write(item, low | high << np.uint64(32))
            at += 2
        else:
            if not isinstance(item, Sink):
                group.write(item, words[..., at])
            at += 1


def _multiply(wave: Warps, step: Step, group: Group, name: str) -> None:
    """mma and wmma.mma."""
    a, b, c, *rest = step.sources
    form = form_of(name)
    options: dict[str, Any] = {}
    if form.is_sparse:
        options["metadata"] = group.read(rest.pop(0), U32)
        options["selector"] = _immediate(step, rest.pop(0))
    if form.block_scale:
        scale_a, ids_a, scale_b, ids_b = rest
        options["scale_a"], options["scale_b"] = group.read(scale_a, U32), group.read(scale_b, U32)
        pairs = [[_immediate(step, one) for one in items(ids)] for ids in (ids_a, ids_b)]
        options["byte_id"], options["thread_id"] = zip(*pairs, strict=True)
    given = [words_of(group, operand) for operand in (a, b, c)]
    put_words(group, step.results[0], execute(name, *given, arch=wave.launch.arch, **options))


def multiply_many(wave: Warps, steps: list[Step], group: Group) -> None:
    """Some mma of whole warps that need nothing of each other: one product of as many times more warps."""
    name = str(getattr(steps[0].action, "name", ""))
    architecture_of(form_of(name), wave.launch.arch)
    given = [np.concatenate([words_of(group, step.sources[place]) for step in steps]) for place in range(3)]
    result = execute(name, *given, arch=wave.launch.arch)
    for number, step in enumerate(steps):
        put_words(group, step.results[0], result[number * group.warps : (number + 1) * group.warps])


def _multiply_warpgroups(wave: Warps, step: Step, group: Group, form: Form) -> None:
    """wgmma: done when it is issued, one warpgroup after the other; D is C too."""
    a, b, *rest = step.sources
    options: dict[str, Any] = {}
    metadata = None
    if form.is_sparse:
        metadata = group.read(rest.pop(0), U32)
        options["selector"] = _immediate(step, rest.pop(0))
    scale_d = group.read(rest.pop(0), PRED)
    numbers = [_immediate(step, one) for one in rest]
    if len(numbers) >= 2:  # 1 or -1
        options["negate"] = tuple(number != 1 for number in numbers[:2])
    if len(numbers) > 2:
        trans = [bool(number) for number in numbers[2:]]
        options["trans"] = (trans[0], trans[1]) if len(trans) == 2 else (False, trans[0])  # A in registers: B's alone
    c_words = words_of(group, step.results[0])
    result = np.empty_like(c_words)
    in_registers = isinstance(a, Vector)
    a_words = words_of(group, a) if in_registers else None
    descriptors = [None if operand is a and in_registers else group.read(operand, B64)[:, 0] for operand in (a, b)]
    rows = group.rows if group.rows is not None else np.arange(wave.warps)
    stride = wave.memory.shared_stride
    for first in range(0, group.warps, 4):
        four = slice(first, first + 4)
        block = int(wave.warp_block[rows[first]])
        memory = wave.memory.shared[block * stride : block * stride + stride]
        if metadata is not None:
            options["metadata"] = metadata[four]
        result[four] = execute(
            spell(form),
            a_words[four] if a_words is not None else int(descriptors[0][first]),  # type: ignore[index] # one of both
            int(descriptors[1][first]),  # type: ignore[index] # B has always one
            c_words[four],
            shared=memory,
            scale_d=bool(scale_d[first, 0]),
            arch=wave.launch.arch,
            **options,
        )
    put_words(group, step.results[0], result)


def _immediate(step: Step, operand: Operand) -> int:
    if not isinstance(operand, Constant):
        raise PtxError(step.line, f"expected a constant in {step.text}")
    return operand.code(None)


def _places(wave: Warps, step: Step, group: Group, form: Form, *, writes: bool) -> Codes:
    """Where the lines of ldmatrix and stmatrix lie in the shared memory of all blocks, [warps, 32]."""
    lines = addresses_of(form)
    lanes = lines.lanes if lines is not None else 32
    addresses = group.addresses(step.sources[0]).reshape(group.warps, 32)
    mask = np.zeros((group.warps, 32), np.bool_)
    mask[:, :lanes] = True
    needed = group.part(mask)
    space = "shared" if "shared" in step.name else "generic"
    flat = addresses[mask]
    found = np.zeros(len(flat), np.int64)
    try:
        owners = needed.owners
        matrix = Owners(owners.blocks, owners.threads, owners.threads // 8)  # a line from each of eight lanes
        reached = wave.memory.reach(space, flat, 16, matrix, writes=writes)
    except Fault as fault:
        raise fault.of(np.nonzero(mask.reshape(-1))[0][fault.index]) from None
    for which, buffer, offsets in reached:
        if buffer is not wave.memory.shared:
            raise Fault(int(np.nonzero(mask.reshape(-1))[0][which[0]]), "the address is not in shared memory")
        found[which] = offsets
    return needed.scatter(found)


def _load_matrices(wave: Warps, step: Step, group: Group, form: Form) -> None:
    places = _places(wave, step, group, form, writes=False)
    put_words(group, step.results[0], matrix_moves.load(form, places, wave.memory.shared))


def _store_matrices(wave: Warps, step: Step, group: Group, form: Form) -> None:
    places = _places(wave, step, group, form, writes=True)
    wave.memory.shared[...] = matrix_moves.store(form, places, words_of(group, step.sources[1]), wave.memory.shared)
    wave.progress += 1


def _row(wave: Warps, form: Form) -> OperandSpec:
    """The operand of a wmma load or store."""
    (row,) = operands(form, architecture_of(form, wave.launch.arch)).values()
    return row


def _elements(step: Step, group: Group, form: Form, row: OperandSpec, stride: Operand | None) -> Codes:
    """The bit address of every element of a tile, [warps, rows, cols], from its warp's address and stride."""
    height, width = row.layout.shape
    order = form.layouts[0]
    line = (width if order == "row" else height) if stride is None else 0
    pitch = np.full(group.warps, line, np.int64) if stride is None else group.read(stride, U32)[:, 0].astype(np.int64)
    r, c = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    major, minor = (r, c) if order == "row" else (c, r)
    index = major[None] * pitch[:, None, None] + minor[None]
    base = group.addresses(step.sources[0]).reshape(group.warps, 32)[:, 0].astype(np.uint64)
    return base[:, None, None] * np.uint64(8) + (index * row.container).astype(np.uint64)


def _space(step: Step) -> str:
    words = step.name.split(".")
    return next((word.split("::")[0] for word in words if word.split("::")[0] in {"shared", "global"}), "generic")


def _owners(group: Group, count: int) -> Owners:
    """Of the elements of a fragment, which nobody says how a warp asks for."""
    owners = group.owners
    firsts = [np.repeat(one.reshape(group.warps, 32)[:, 0], count) for one in (owners.blocks, owners.threads)]
    return Owners(firsts[0], firsts[1], None)


def _load_fragment(wave: Warps, step: Step, group: Group, form: Form) -> None:
    row = _row(wave, form)
    stride = step.sources[1] if len(step.sources) > 1 else None
    bits = _elements(step, group, form, row, stride)
    owners = _owners(group, bits[0].size)
    dtype = np.dtype(f"u{max(8, row.container) // 8}")
    try:
        codes = wave.memory.load(_space(step), (bits >> np.uint64(3)).reshape(-1), dtype, 1, owners)
    except Fault as fault:
        raise fault.of(fault.index // bits[0].size * 32) from None
    codes = codes.reshape(bits.shape)
    if row.container < 8:
        codes = codes >> (bits & np.uint64(7)).astype(np.uint8) & np.uint8((1 << row.container) - 1)
    put_words(group, step.results[0], fragment.pack(row, codes))


def _store_fragment(wave: Warps, step: Step, group: Group, form: Form) -> None:
    row = _row(wave, form)
    stride = step.sources[2] if len(step.sources) > 2 else None
    bits = _elements(step, group, form, row, stride)
    codes = fragment.unpack(row, words_of(group, step.sources[1]))
    owners = _owners(group, bits[0].size)
    flat = codes.reshape(-1, 1).astype(f"u{row.container // 8}")
    try:
        wave.memory.store(_space(step), (bits >> np.uint64(3)).reshape(-1), flat, owners)
    except Fault as fault:
        raise fault.of(fault.index // bits[0].size * 32) from None
    wave.progress += 1
