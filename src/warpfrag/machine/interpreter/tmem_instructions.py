"""The tensor memory of a batch of blocks, and the tcgen05 instructions that use it.

Everything happens at issue, one thread or warp at a time. The ISA lets mma, cp, shift, ld and st complete later, in an
order that commits, waits and fences determine; a correct kernel gets the same results in any allowed order. This module
does not detect missing commits, waits or fences: it reports every access with its thread to the memory observer, and
`machine.sanitizer.tensor_checks` tracks unfinished work.

If the arithmetic of an mma is not published, `tensorcore` rejects it and the nearest published rule is used; the launch
then lists the line and the reason, and is not exact.
"""

import itertools
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import IllegalInstruction, MemoryFault, PtxError, WarpfragError
from warpfrag.formats.arrays import Array, Words
from warpfrag.isa.tcgen05_forms import TensorForm, choose
from warpfrag.isa.tcgen05_spelling import TensorSpelling, check_columns
from warpfrag.isa.tmem_layouts import TENSOR_COLUMNS, TENSOR_LANES, copied
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.bulk_copies import LaneCopies
from warpfrag.machine.interpreter.lane_group import LaneGroup, items_of
from warpfrag.machine.interpreter.matrix_instructions import put_words, words_of
from warpfrag.machine.interpreter.mbarriers import Mbarriers
from warpfrag.machine.interpreter.observer import Observer, TensorAccess
from warpfrag.machine.interpreter.warp_state import WarpState
from warpfrag.machine.ir.actions import MemoryBarrier, TensorThreadOp
from warpfrag.machine.ir.program import DecodedInstruction, Immediate, MemoryOperand, PtxOperand, VectorOperand
from warpfrag.machine.ir.scalar_types import B64, PRED, U32, Type
from warpfrag.smem.instruction_descriptor import InstructionDescriptor, ZeroColumnMask
from warpfrag.tensorcore import execute_tcgen05 as tcgen05
from warpfrag.tensorcore.arithmetic_plan import nearest_plan
from warpfrag.tensorcore.rules import Rule

QUARTER = 32  # lanes of tensor memory that a warp can access
SCALE_ID_BITS = 0xC0000000  # kernels also put the byte id into the address of scale factors
MAX_ISSUES = 4096
QUARTERS = (0, 1, 2, 3)
ARRIVE = MemoryBarrier("arrive")


class TensorAllocation(NamedTuple):
    """Columns that a block has allocated, with the line of the allocation."""

    column: int
    columns: int
    line: int


class TensorMemories:
    """The tensor memories of a batch: their cells, allocations and permits to allocate."""

    def __init__(self, state: WarpState, mbarriers: Mbarriers) -> None:
        """Create the tensor memories of a batch; cells are allocated when a block first uses them."""
        self.state, self.mbarriers = state, mbarriers
        self.live: dict[int, list[TensorAllocation]] = {}
        self._pairs: dict[int, Words] = {}
        self._smallest: dict[int, int] = {}
        self.relinquished: dict[int, int] = {}

    def pair(self, block: int) -> Words:
        """Return the cells of the block pair that contains a block, as uint32[2, 128, 512]."""
        number = block // 2
        if number not in self._pairs:
            self._pairs[number] = np.zeros((2, TENSOR_LANES, TENSOR_COLUMNS), np.uint32)
        return self._pairs[number]

    def cells(self, block: int, blocks: int = 1) -> Words:
        """Return the cells that an instruction accesses: those of its block, or of the block pair if `blocks` is 2."""
        return self.pair(block) if blocks == 2 else cast("Words", self.pair(block)[block % 2])

    def members(self, block: int, blocks: int) -> tuple[int, ...]:
        """Return the blocks that an instruction affects, with the even rank first."""
        if blocks == 1:
            return (block,)
        size = self.state.launch.cluster_blocks
        if size % 2:
            raise MemoryFault(0, f"cta_group::2 needs clusters with an even number of blocks, got {size}")
        return block // 2 * 2, block // 2 * 2 + 1

    # --- allocation

    def allocate(self, block: int, columns: int, line: int, *, is_exclusive: bool) -> int:
        """Allocate columns for a block, and return the first column."""
        check_columns(columns, is_exclusive=is_exclusive)
        live = self.live.setdefault(block, [])
        if block in self.relinquished:
            text = f"it relinquished its permit at line {self.relinquished[block]}"
            raise MemoryFault(0, f"the block cannot allocate more columns, because {text}")
        if is_exclusive and live:
            raise MemoryFault(0, f"the block already holds {live[0].columns} columns")
        if columns > self._smallest.get(block, TENSOR_COLUMNS):
            text = f"{columns} columns are more than the {self._smallest[block]} of the previous allocation"
            raise MemoryFault(0, f"{text}: allocations must not grow")
        used = np.zeros(TENSOR_COLUMNS, np.bool_)
        for part in live:
            used[part.column : part.column + part.columns] = True
        for first in range(0, TENSOR_COLUMNS - columns + 1, columns):
            if not used[first : first + columns].any():
                live.append(TensorAllocation(first, columns, line))
                self._smallest[block] = columns
                return first
        held = ", ".join(f"{part.columns} from line {part.line}" for part in live)
        text = f"{columns} columns are not free: the block has {held}"
        raise MemoryFault(0, f"{text}; on a GPU, the instruction waits until they are freed")

    def free(self, block: int, address: int, columns: int) -> None:
        """Free one of a block's allocations."""
        for part in self.live.get(block, []):
            if (part.column, part.columns) == (address, columns):
                self.live[block].remove(part)
                return
        held = ", ".join(f"{part.columns} at {part.column}" for part in self.live.get(block, [])) or "none"
        raise MemoryFault(0, f"expected an allocation of the block ({held}), got {columns} columns at {address:#x}")

    def check_freed(self) -> None:
        """Raise PtxError if an allocation has not been freed when all threads have exited."""
        for block, live in sorted(self.live.items()):
            for part in live:
                name = ", ".join(map(str, self.state.blocks[block]))
                text = f"block ({name}) ends with {part.columns} columns of tensor memory that were allocated here"
                raise PtxError(part.line, f"{text} and never freed; on a GPU, they remain allocated")

    def check_access(self, access: TensorAccess) -> None:
        """Report an access to the checks; raise MemoryFault if its columns are not allocated."""
        first, end = access.column, access.column + access.columns
        live = self.live.get(access.block, [])
        if not any(part.column <= first and end <= part.column + part.columns for part in _joined(live)):
            held = ", ".join(f"{part.column}..{part.column + part.columns - 1}" for part in live) or "none"
            name = ", ".join(map(str, self.state.blocks[access.block]))
            text = f"columns {first}..{end - 1} ({access.operand}) are not allocated: block ({name}) has {held}"
            raise MemoryFault(0, text)
        if self.observer is not None:
            self.observer.tensor_access(access)

    @property
    def observer(self) -> Observer | None:
        """The observer of accesses, or None without checks."""
        return self.state.memory.observer


def _joined(live: list[TensorAllocation]) -> list[TensorAllocation]:
    """Merge adjacent allocations, because kernels may access them as one."""
    result: list[TensorAllocation] = []
    for part in sorted(live):
        if result and result[-1].column + result[-1].columns == part.column:
            result[-1] = result[-1]._replace(columns=result[-1].columns + part.columns)
        else:
            result.append(part)
    return result


def run_tensor(memories: TensorMemories, inst: DecodedInstruction, action: TensorThreadOp, group: LaneGroup) -> None:
    """Run a tcgen05 instruction for each thread or warp of a group."""
    spelling = action.spelling
    refusal = _refusal(spelling, memories.state.program.target)
    if refusal:
        raise PtxError(inst.line, f"{inst.name}: {refusal}")
    if action.is_collective and not group.mask[group.mask.any(axis=1)].all():
        text = f"{inst.name} needs all 32 lanes of a warp, but some have exited or are predicated off"
        raise PtxError(inst.line, text)
    for index, place in enumerate(_warps(group) if action.is_collective else _threads(group)):
        try:
            RUNNERS[spelling.op](TensorIssue(memories, inst, spelling, place))
        except MemoryFault as fault:
            raise fault.of(index * LANES if action.is_collective else index) from None
        except WarpfragError as error:
            reason = error.reason if isinstance(error, IllegalInstruction) else str(error)
            raise MemoryFault(index * LANES if action.is_collective else index, reason) from error
    memories.state.progress += 1


@lru_cache(MAX_ISSUES)
def _refusal(spelling: TensorSpelling, target: str) -> str:
    """Return the reason why a target does not support an instruction, or an empty string if it does."""
    return spelling.refusal(target)


def _threads(group: LaneGroup) -> Iterator[LaneGroup]:
    """Yield each thread of a group as a separate group."""
    for row, lanes in zip(group.warp_rows, group.mask, strict=True):
        for lane in np.nonzero(lanes)[0]:
            mask = np.zeros((1, LANES), np.bool_)
            mask[0, lane] = True
            yield LaneGroup(group.state, np.array([row]), mask)


def _warps(group: LaneGroup) -> Iterator[LaneGroup]:
    """Yield each warp of a group as a separate group."""
    for row, lanes in zip(group.warp_rows, group.mask, strict=True):
        if lanes.any():
            yield LaneGroup(group.state, np.array([row]), lanes[None])


# --- mma


@lru_cache(MAX_ISSUES)
def _form_of(spelling: TensorSpelling, word: int, target: str) -> tuple[TensorForm, InstructionDescriptor]:
    """Return the mma that an instruction descriptor specifies; raise IllegalInstruction if it specifies none."""
    descriptor = InstructionDescriptor.decode(word, kind=spelling.kind)
    if descriptor.sparse != spelling.is_sparse:
        text = f"is {'sparse' if descriptor.sparse else 'dense'}, but the instruction is not"
        raise IllegalInstruction(spelling.name, f"the instruction descriptor {word:#x} {text}")
    if descriptor.wide_k or descriptor.k_128:
        raise IllegalInstruction(spelling.name, f"the instruction descriptor {word:#x} has a k that needs sm_107")
    wanted = {name: getattr(descriptor, name) for name in ("m", "n", "a", "b", "d")}
    if spelling.qualifier("block_scale"):
        wanted["scale_type"] = descriptor.scale_type or "ue8m0"
    if descriptor.k_96:
        wanted["k"] = 96
    try:
        form = choose(spelling, spelling.name, **wanted)
    except IllegalInstruction as error:
        text = f"the instruction descriptor {word:#x} does not describe an mma: {error.reason}"
        raise IllegalInstruction(spelling.name, text) from None
    if target not in form.targets:
        text = f"the instruction descriptor {word:#x} describes {form.shape}, which {target} does not support"
        raise IllegalInstruction(spelling.name, text)
    return form, descriptor


@lru_cache(MAX_ISSUES)
def _resolved(
    spelling: TensorSpelling, word: int, target: str, arch: str, address: int, at: tuple[tuple[str, int], ...]
) -> tcgen05.TensorProduct:
    """Return an mma with resolved operands; cached, because kernels repeat the same few mma instructions."""
    form, descriptor = _form_of(spelling, word, target)
    product = tcgen05.TensorProduct(form, arch, address, dict(at), descriptor)
    lane, _ = product.base
    for role, place in at:
        other, _ = tcgen05.split_address(place & ~SCALE_ID_BITS, f"the address of {role}")
        if role in ("a", "metadata") and other != lane:
            raise IllegalInstruction(form.name, f"{role} and D must have the same base lane, got {other} and {lane}")
    return product


class MmaOperands(NamedTuple):
    """The operands of a tcgen05.mma statement by name."""

    d: PtxOperand
    a: PtxOperand
    b: PtxOperand
    idesc: PtxOperand
    accumulates: PtxOperand
    metadata: PtxOperand | None
    scale_a: PtxOperand | None
    scale_b: PtxOperand | None
    masks: PtxOperand | None
    last: PtxOperand | None  # the scale of the input D, or the zero-column mask of mma.ws


def mma_operands(spelling: TensorSpelling, sources: tuple[PtxOperand, ...]) -> MmaOperands:
    """Parse the operands of a tcgen05.mma statement."""
    rest = list(sources)
    d, a, b = rest.pop(0), rest.pop(0), rest.pop(0)
    metadata = rest.pop(0) if spelling.is_sparse else None
    idesc = rest.pop(0)
    scale_a, scale_b = (rest.pop(0), rest.pop(0)) if spelling.qualifier("block_scale") else (None, None)
    masks = rest.pop(0) if isinstance(rest[0], VectorOperand) else None
    accumulates = rest.pop(0)
    return MmaOperands(d, a, b, idesc, accumulates, metadata, scale_a, scale_b, masks, rest[0] if rest else None)


def _expanded(taken: dict[str, Array]) -> dict[str, Array]:
    """Return the operands with a sparse A expanded to dense form."""
    if "columns" not in taken:
        return taken
    stored = taken["a"]
    columns = taken["columns"].astype(np.int64)
    full = np.zeros((*stored.shape[:-1], 2 * stored.shape[-1]), stored.dtype)
    np.put_along_axis(full, columns, stored, axis=-1)
    return {role: codes for role, codes in taken.items() if role != "columns"} | {"a": full}


def _by_parts(product: tcgen05.TensorProduct, rule: Rule, taken: list[dict[str, Array]]) -> Array:
    """Compute D when the lanes hold different copies of A; each copy computes one range of D's columns."""
    width = taken[0]["b"].shape[-1] // len(taken)
    parts = []
    for number, part in enumerate(taken):
        columns = slice(number * width, (number + 1) * width)
        own = part | {role: part[role][..., columns] for role in ("b", "c", "scale_b") if role in part}
        parts.append(product.multiply(rule, own, (), 1))
    return cast("Array", np.concatenate(parts, axis=-1))


def _halved(
    taken: list[dict[str, Array]], product: tcgen05.TensorProduct, power: int
) -> tuple[list[dict[str, Array]], str]:
    """Return operands with the input D scaled by 2^-power, and the reason for uncertainty if this rounds D."""
    dtype = np.dtype(np.float32 if product.form.d == "f32" else np.float16)
    old = taken[0]["c"].view(dtype)
    new = np.ldexp(old, -power).astype(dtype)
    rounds = (np.ldexp(new.astype(np.float64), power) != old.astype(np.float64)) & ~np.isnan(old)
    reason = "the rounding of a scaled subnormal D is not published" if rounds.any() else ""
    return [part | {"c": new.view(part["c"].dtype)} for part in taken], reason


def _without_columns(
    taken: list[dict[str, Array]], product: tcgen05.TensorProduct, word: int, b: int, shared: NDArray[np.uint8]
) -> list[dict[str, Array]]:
    """Return operands in which a zero-column mask has been applied to B."""
    mask = ZeroColumnMask.decode(word)
    if not mask.active:
        return taken
    m, n, k = product.form.shape
    wide: NDArray[Any] = tcgen05.read_shared(
        tcgen05.resized(product.operands["b"], k, n + mask.shift), b, shared, 1, trans=product.word.transpose_b, axis=1
    )
    if product.word.negate_b:
        wide = wide ^ wide.dtype.type(1 << (product.operands["b"].format.bits - 1))
    columns = mask.columns(m, n)
    chosen = wide[:, [0 if column is None else column for column in columns]]
    chosen[:, [column is None for column in columns]] = 0
    return [part | {"b": chosen} for part in taken]


class TensorIssue(NamedTuple):
    """A thread or warp that issues a tcgen05 instruction; `RUNNERS` names the method that runs each operation."""

    memories: TensorMemories
    inst: DecodedInstruction
    spelling: TensorSpelling
    group: LaneGroup

    @property
    def state(self) -> WarpState:
        """The batch that the issuing thread is part of."""
        return self.memories.state

    @property
    def observer(self) -> Observer | None:
        """The observer of accesses, or None without checks."""
        return self.memories.observer

    @property
    def block(self) -> int:
        """The index of the issuing block."""
        return int(self.group.owners.blocks[0])

    @property
    def thread(self) -> int:
        """The index of the first issuing thread."""
        return int(self.group.owners.threads[0])

    @property
    def members(self) -> tuple[int, ...]:
        """The blocks that the instruction affects, with the even rank first."""
        return self.memories.members(self.block, self.spelling.blocks)

    def number(self, operand: PtxOperand, kind: Type = U32) -> int:
        """Return an operand's value in the first thread."""
        if isinstance(operand, MemoryOperand):
            return int(self.group.addresses(operand)[0])
        return int(self.group.values(operand, kind)[0])

    def uniform(self, operand: PtxOperand) -> int:
        """Return an address that must be the same in all threads of a warp."""
        is_address = isinstance(operand, MemoryOperand)
        addresses = self.group.addresses(operand) if is_address else self.group.values(operand, U32)
        if (addresses != addresses[0]).any():
            lane = int((addresses != addresses[0]).argmax())
            given = f"{int(addresses[0]):#x} and {int(addresses[lane]):#x}"
            raise MemoryFault(lane, f"expected the same address in all threads of a warp, got {given}")
        return int(addresses[0])

    def access(
        self, operand: str, block: int, column: int, columns: int, *, writes: bool, reads: bool,
        quarters: tuple[int, ...] = QUARTERS,
    ) -> None:  # fmt: skip
        """Report an access to the checks; raise MemoryFault if its columns are not allocated."""
        access = TensorAccess(self.inst, self.thread, operand, block, column, columns, writes, reads, quarters)
        self.memories.check_access(access)

    def shared(self, members: tuple[int, ...]) -> NDArray[np.uint8]:
        """Return a block's shared memory, or that of a block pair as [2, bytes]."""
        memory = self.state.memory
        blocks = memory.shared.reshape(-1, memory.shared_stride)
        return blocks[members[0]] if len(members) == 1 else blocks[members[0] : members[1] + 1]

    # --- allocation and ordering

    def allocate(self) -> None:
        """Run alloc: store the address of the allocated columns in shared memory."""
        place, columns = self.inst.sources
        self.uniform(place)
        taken = self.memories.allocate(
            self.block, self.uniform(columns), self.inst.line, is_exclusive=bool(self.spelling.qualifier("exclusive"))
        )
        space = "shared" if self.spelling.qualifier("shared_cta") else "generic"
        if self.observer is not None:
            self.observer.tensor_allocated(self.block, taken, self.uniform(columns))
        owner = self.group.owners.at(np.array([0]))
        self.state.memory.store(space, self.group.addresses(place)[:1], np.array([[taken]], np.uint32), owner)

    def free(self) -> None:
        """Run dealloc."""
        address, count = self.uniform(self.inst.sources[0]), self.uniform(self.inst.sources[1])
        self.memories.free(self.block, address, count)
        if self.observer is not None:
            freed = TensorAccess(self.inst, self.thread, "freed", self.block, address, count, writes=True)
            self.observer.tensor_freed(freed)

    def relinquish(self) -> None:
        """Run relinquish_alloc_permit."""
        self.memories.relinquished[self.block] = self.inst.line

    def order(self) -> None:
        """Run a wait or a fence; it does nothing, because all work completes at issue."""

    def commit(self) -> None:
        """Run commit: signal the mbarriers at once, because all earlier work is complete."""
        copies = LaneCopies(self.state, self.memories.mbarriers, self.group)
        address = self.group.addresses(self.inst.sources[0])
        # Triton 3.5 passes shared addresses without .shared::cluster; ptxas gives them to UTCBAR unchanged.
        space = "cluster" if self.spelling.qualifier("shared_cluster") or not int(address[0]) >> 32 else "generic"
        (cell,) = self.memories.mbarriers.cells_at(space, address, self.group.owners).tolist()
        mask = self.number(self.inst.sources[1]) & 0xFFFF if self.spelling.qualifier("multicast") else None
        cells = [cell] if mask is None else [copies.moved(cell, block) for block in copies.blocks_of(0, mask)]
        if self.observer is not None:
            self.observer.tensor_committed(cells, self.thread)
        for each in cells:
            self.memories.mbarriers.check_live(each, int(address[0]), 0)
            self.memories.mbarriers.change(each, ARRIVE, 1, 0, self.inst.line)

    # --- moves

    def reach(self, *, writes: bool) -> tuple[Words, NDArray[np.intp], NDArray[np.intp]]:
        """Return the cells of a warp's load or store, and the row and column of every (lane, reg, slot)."""
        access = self.spelling.qualifier("lanes")
        address = self.uniform(self.inst.sources[0])
        halves = self.inst.sources[1] if access == "16x32bx2" else None
        split = halves.code(None) if isinstance(halves, Immediate) else None
        lane, column = tcgen05.split_address(address, "the address")
        quarter = int(self.state.warp_index[self.group.warp_rows[0]]) % len(QUARTERS)
        if lane // QUARTER not in (0, quarter):
            first = QUARTER * quarter
            text = f"a warp whose number is {quarter} modulo 4 can access lanes {first}..{first + QUARTER - 1}"
            raise MemoryFault(0, f"{text}, got lane {lane}")
        base = lane % QUARTER
        unit = 32 if access == "32x32b" else 16
        if base % unit:
            raise MemoryFault(0, f"the lane in the address must be a multiple of {unit}, got {lane}")
        lanes, columns = tcgen05.registers_reach(self.spelling, base, split)
        lanes, columns = lanes[quarter], columns[0] + column
        # the shape 16x32bx2 accesses two halves
        for part in (slice(0, 16), slice(16, 32)) if split is not None else (slice(None),):
            low, high = int(columns[part].min()), int(columns[part].max())
            own = (quarter,)
            self.access("registers", self.block, low, high + 1 - low, writes=writes, reads=not writes, quarters=own)
        return self.memories.cells(self.block), lanes, columns

    def load(self) -> None:
        """Run ld or ld.red."""
        cells, lanes, columns = self.reach(writes=False)
        words = tcgen05.joined(cells[lanes, columns])
        put_words(self.group, self.inst.results[0], words[None])
        if self.spelling.op == "ld.red":
            self.group.write(self.inst.results[1], tcgen05.reduced(self.spelling, words)[None])

    def store(self) -> None:
        """Run st."""
        cells, lanes, columns = self.reach(writes=True)
        tcgen05.put_registers(cells, lanes, columns, words_of(self.group, self.inst.sources[-1])[0])

    def copy(self) -> None:
        """Run cp; each block of a pair copies from its own shared memory to its own tensor memory."""
        address, source = self.number(self.inst.sources[0]), self.number(self.inst.sources[1], B64)
        _, column = tcgen05.split_address(address, "the address")
        for block in self.members:
            self.access("cells", block, column, copied(self.spelling).shape[1], writes=True, reads=False)
            tcgen05.put_copy(self.spelling, self.memories.cells(block), address, source, self.shared((block,)))

    def shift(self) -> None:
        """Run shift."""
        lane, column = tcgen05.split_address(self.number(self.inst.sources[0]), "the address")
        if lane % QUARTER:
            raise MemoryFault(0, f"the lane in the address must be a multiple of {QUARTER}, got {lane}")
        for block in self.members:
            self.access("cells", block, column, tcgen05.SHIFTED_COLUMNS, writes=True, reads=True)
            tcgen05.put_shift(self.memories.cells(block), column)

    # --- mma

    def multiply(self) -> None:
        """Run mma or mma.ws for a block or a pair."""
        state = self.state
        operands = mma_operands(self.spelling, self.inst.sources)
        in_tensor_memory = {
            role: self.number(operand) & ~SCALE_ID_BITS
            for role, operand in operands._asdict().items()
            if role in ("a", "metadata", "scale_a", "scale_b") and isinstance(operand, MemoryOperand)
        }
        word, d = self.number(operands.idesc), self.number(operands.d)
        target, arch = state.program.target, state.launch.arch
        product = _resolved(self.spelling, word, target, arch, d, tuple(in_tensor_memory.items()))
        members = self.members
        accumulates = bool(self.number(operands.accumulates, PRED))
        places = {role: place & 0xFFFF for role, place in product.at.items()} | {"d": product.base[1]}
        for block, (role, column) in itertools.product(members, places.items()):
            reads = accumulates or role != "d"
            self.access(role, block, column, product.operands[role].columns, writes=role == "d", reads=reads)
        cells, shared = self.memories.cells(members[0], self.spelling.blocks), self.shared(members)
        a = None if "a" in in_tensor_memory else self.number(operands.a, B64)
        b = self.number(operands.b, B64)
        plan, reason = nearest_plan(product.counted, arch)
        taken = [
            product.read(cells, a, b, shared, accumulate=accumulates, part=part)
            for part in range(product.parts if in_tensor_memory else 1)
        ]
        if isinstance(operands.last, Immediate):
            taken, rounds = _halved(taken, product, operands.last.code(None))
            reason = reason or rounds
        elif operands.last is not None and self.spelling.is_weight_stationary:
            taken = _without_columns(taken, product, self.number(operands.last, B64), b, shared)
        if not plan.rule.is_sparse:
            taken = [_expanded(part) for part in taken]
        if reason:
            state.tally.note_uncertain(state.memory.inst, f"{reason}; computed with the nearest published rule")
        if all(
            np.array_equal(part[role], taken[0][role])
            for part in taken[1:]
            for role in ("a", "columns")
            if role in part
        ):
            result = product.multiply(plan.rule, taken[0], (), 1)
        else:
            result = _by_parts(product, plan.rule, taken)
        product.write(cells, result, self.kept_lanes(operands.masks))
        if self.spelling.qualifier("ashift"):
            tcgen05.put_shift(cells, in_tensor_memory["a"] & 0xFFFF)

    def kept_lanes(self, masks: PtxOperand | None) -> NDArray[np.bool_] | None:
        """Return the lanes of D that an mma does not write, [128] or [2, 128], or None if the mma writes all lanes."""
        if masks is None:
            return None
        words = np.array([self.number(part) for part in items_of(masks)], np.uint32)
        bits = np.unpackbits(words.view(np.uint8), bitorder="little").astype(np.bool_)
        return bits.reshape(2, TENSOR_LANES) if self.spelling.blocks == 2 else bits


RUNNERS: dict[str, Callable[[TensorIssue], None]] = {
    "alloc": TensorIssue.allocate, "dealloc": TensorIssue.free, "relinquish_alloc_permit": TensorIssue.relinquish,
    "fence::before_thread_sync": TensorIssue.order, "fence::after_thread_sync": TensorIssue.order,
    "wait::ld": TensorIssue.order, "wait::st": TensorIssue.order, "commit": TensorIssue.commit,
    "ld": TensorIssue.load, "ld.red": TensorIssue.load, "st": TensorIssue.store, "cp": TensorIssue.copy,
    "shift": TensorIssue.shift, "mma": TensorIssue.multiply, "mma.ws": TensorIssue.multiply,
}  # fmt: skip
"""The method that runs each tcgen05 operation."""
