"""Asynchronous copies: cp.async.bulk, tensor-map boxes, st.async, red.async, and the tensor-map instructions.

Everything happens at issue, lane by lane: the data is moved, then the byte count is reported to the mbarrier. Stores by
a copy are tagged like stores by the issuing thread (`store_tags`), so unordered stores are detected.

Bad operands end the launch, as on an H200 (measured: docs/evidence/h200_tma.md).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import MemoryFault
from warpfrag.formats.arrays import Bytes, Numbers
from warpfrag.machine.interpreter.device_memory import MemoryAccess, Owners
from warpfrag.machine.interpreter.lane_group import LaneGroup, items_of
from warpfrag.machine.interpreter.mbarriers import Mbarriers
from warpfrag.machine.interpreter.warp_state import WarpState
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import DecodedInstruction, InexactCause, PtxOperand
from warpfrag.machine.ir.scalar_types import B64, TYPES, U32, Codes
from warpfrag.machine.ops.asynchronous import reduction
from warpfrag.machine.semantics.floats import FloatModifiers, add, is_nan
from warpfrag.smem.tensor_map import GRANULE, MAP_ALIGN, MAP_BYTES, SHARED_ALIGN, TensorMapFields, replace_field

SIGNED_32 = 1 << 31
TF32_NAN = np.uint32(0x7FFFE000)
REDUCED_TYPES = {
    "add": {"u32", "s32", "u64", "f16", "bf16", "f32", "tf32", "f64"},
    "min": {"u32", "s32", "u64", "s64", "f16", "bf16"},
    "max": {"u32", "s32", "u64", "s64", "f16", "bf16"},
    "inc": {"u32"}, "dec": {"u32"},
    "and": {"u32", "s32", "u64"}, "or": {"u32", "s32", "u64"}, "xor": {"u32", "s32", "u64"},
}  # fmt: skip
"""The tensor-map types that each reduction supports; for any other type, an H200 reports an illegal instruction."""


class LaneCopies:
    """The lanes that run a copy instruction, with access to their memory and mbarriers."""

    def __init__(self, state: WarpState, mbarriers: Mbarriers, group: LaneGroup) -> None:
        """Create the copies for a group of lanes."""
        self.state, self.mbarriers, self.memory, self.group = state, mbarriers, state.memory, group
        self.owners = group.owners
        self.count = len(self.owners.blocks)

    def numbers(self, operand: PtxOperand) -> list[int]:
        """Return an operand's 32-bit values, one per lane."""
        return self.group.values(operand, U32).tolist()

    def addresses(self, operand: PtxOperand) -> list[int]:
        """Return an operand's addresses, one per lane."""
        return [int(address) for address in self.group.addresses(operand).tolist()]

    def owner(self, lane: int) -> Owners:
        """Return the owner of a lane's memory; it has no request number, so wavefronts are not counted."""
        which = slice(lane, lane + 1)
        return Owners(self.owners.blocks[which], self.owners.threads[which], None)

    def span(self, space: str, address: int, size: int, lane: int, *, writes: bool) -> tuple[Bytes, int]:
        """Return the buffer and offset of contiguous bytes; raise MemoryFault unless they are in one allocation."""
        if not size:
            return np.zeros(0, np.uint8), 0
        memory, owner = self.memory, self.owner(lane)
        # in machine code, the address may name the lane's own block
        space = memory.window_space(1) if space == "shared" else space
        try:
            pieces = [
                memory.reach_space(space, np.array([end], np.uint64), 1, owner, writes=writes)[0]
                for end in (address, address + size - 1)
            ]
        except MemoryFault as fault:
            raise MemoryFault(
                lane, f"{fault.reason} ({size} bytes from {address:#x})", ends_launch=fault.ends_launch
            ) from None
        (_, buffer, first), (_, other, last) = pieces
        if buffer is not other or int(last[0]) - int(first[0]) != size - 1:
            raise MemoryFault(lane, f"{size} bytes at {address:#x} are not inside one allocation", ends_launch=True)
        memory.count_bytes(space, size, writes=writes)
        if memory.accesses is not None:
            memory.accesses.append(MemoryAccess(buffer, first, size, owner.threads, writes))
        return buffer, int(first[0])

    def span_at(self, space: str, address: int, lane: int, *, writes: bool = True) -> tuple[Bytes, int]:
        """Return the buffer and offset of the tensor map at an address; the state space may be generic."""
        if space == "generic":
            space, address = self.memory.space_of(address)
        return self.span(space, address, MAP_BYTES, lane, writes=writes)

    def tell_read(self, buffer: Bytes, offsets: Numbers, size: int, lane: int, cells: Sequence[int] = ()) -> None:
        """Tell the checks which bytes a lane's copy reads and which mbarriers it signals."""
        if self.memory.observer is not None:
            self.memory.observer.copy_read(buffer, offsets, size, int(self.owners.threads[lane]), list(cells))

    def tell_write(
        self, buffer: Bytes, offsets: Numbers, size: int, lane: int, cell: int | None, *, reduction: str = ""
    ) -> None:
        """Tell the checks which bytes a lane's copy writes and which mbarrier it signals."""
        if self.memory.observer is not None:
            thread = int(self.owners.threads[lane])
            self.memory.observer.copy_write(buffer, offsets, size, thread, cell, reduction=reduction)

    def store(self, buffer: Bytes, offsets: Numbers, codes: NDArray[Any], lane: int, cell: int | None = None) -> None:
        """Store codes [offsets, count] for a lane; `cell` is the mbarrier to signal."""
        self.tell_write(buffer, offsets, codes.dtype.itemsize * codes.shape[1], lane, cell)
        threads = np.full(len(offsets), self.owners.threads[lane], np.int64)
        self.memory.tags.store(self.memory.inst, buffer, offsets, codes, threads, InexactCause.OVERLAPPING_STORES)

    def blocks_of(self, lane: int, mask: int | None) -> list[int]:
        """Return the destination blocks of a lane's copy: its own block, or the blocks in a cluster mask."""
        own = int(self.owners.blocks[lane])
        if mask is None:
            return [own]
        size = self.state.launch.cluster_blocks
        if not mask or mask >> size:
            raise MemoryFault(lane, f"expected a nonzero mask of the cluster's {size} blocks, got {mask:#x}")
        return [own // size * size + rank for rank in range(size) if mask >> rank & 1]

    def barrier_cell(self, operand: PtxOperand, lane: int) -> int:
        """Return the mbarrier that a lane's copy signals, as a 64-bit word index into shared memory."""
        address = self.group.addresses(operand)[lane : lane + 1]
        try:
            (cell,) = self.mbarriers.cells_at("cluster", address, self.owner(lane)).tolist()
        except MemoryFault as fault:
            raise fault.of(lane) from None
        return int(cell)

    def tell(self, cell: int, count: int, lane: int) -> None:
        """Subtract `count` copied bytes from an mbarrier's pending bytes."""
        address = 8 * cell % self.memory.shared_stride
        self.mbarriers.check_live(cell, address, lane)
        self.mbarriers.complete_bytes(cell, count, lane)

    def deliver(
        self, buffer: Bytes, offsets: Numbers, data: Bytes, lane: int, cell: int | None, mask: int | None
    ) -> None:
        """Store 16-byte units at the destination or, with a mask, in each of its blocks, and signal the mbarriers."""
        own = int(self.owners.blocks[lane])
        for block in self.blocks_of(lane, mask):
            shift = (block - own) * self.memory.shared_stride if mask is not None else 0
            told = self.moved(cell, block) if cell is not None and mask is not None else cell
            self.store(buffer, offsets + shift, data.view(np.uint32).reshape(-1, 4), lane, told)
            if told is not None:
                self.tell(told, len(data), lane)

    def told_cells(self, lane: int, cell: int | None, mask: int | None) -> list[int]:
        """Return the mbarriers that a lane's copy signals."""
        if cell is None or mask is None:
            return [] if cell is None else [cell]
        return [self.moved(cell, block) for block in self.blocks_of(lane, mask)]

    def moved(self, cell: int, block: int) -> int:
        """Return the word index of the mbarrier at the same shared-memory address in another block."""
        words = self.memory.shared_stride // 8
        return cell % words + block * words


def _check(lane: int, value: int, align: int, label: str) -> None:
    if value % align:
        raise MemoryFault(lane, f"expected {label} that is a multiple of {align}, got {value:#x}", kind="misaligned")


def run_bulk_copy(copies: LaneCopies, inst: DecodedInstruction, action: actions.BulkCopy) -> None:
    """Run cp.async.bulk and cp.reduce.async.bulk."""
    target, source, size = inst.sources[:3]
    rest = list(inst.sources[3:])
    barrier = rest.pop(0) if action.tells_mbarrier else None
    masks = copies.numbers(rest.pop(0)) if action.is_multicast else [None] * copies.count
    sizes = copies.numbers(size)
    targets, sources = copies.addresses(target), copies.addresses(source)
    for lane in range(copies.count):
        count = sizes[lane]
        for value, label in (
            (count, "a size"),
            (targets[lane], "a target address"),
            (sources[lane], "a source address"),
        ):
            _check(lane, value, GRANULE, label)
        if not count:
            continue
        buffer, first = copies.span(action.source, sources[lane], count, lane, writes=False)
        cell = copies.barrier_cell(barrier, lane) if barrier is not None else None
        cells = copies.told_cells(lane, cell, masks[lane])
        copies.tell_read(buffer, first + GRANULE * np.arange(count // GRANULE), GRANULE, lane, cells)
        data = buffer[first : first + count].copy()
        home, at = copies.span(action.target, targets[lane], count, lane, writes=True)
        if action.function is None or action.type is None:
            offsets = at + GRANULE * np.arange(count // GRANULE)
            copies.deliver(home, offsets, data, lane, cell, masks[lane])
            continue
        copies.tell_write(home, at + np.arange(0, count, 4), 4, lane, cell, reduction=inst.name)
        with copies.memory.lock:
            elements = home[at : at + count].view(action.type.dtype)
            elements[...] = action.function(elements.copy(), data.view(action.type.dtype))
        if cell is not None:
            copies.tell(cell, count, lane)


def run_tensor_copy(copies: LaneCopies, inst: DecodedInstruction, action: actions.TensorCopy) -> None:
    """Run cp.async.bulk.tensor and cp.reduce.async.bulk.tensor."""
    rest = list(inst.sources)
    shared = rest.pop(0) if action.direction == "load" else rest.pop(2)
    tensor_map, vector = rest.pop(0), rest.pop(0)
    coordinates = [copies.numbers(item) for item in items_of(vector)]
    maps = copies.addresses(tensor_map)
    boxes = copies.addresses(shared)
    barrier = rest.pop(0) if action.direction == "load" else None
    moves = [copies.numbers(item) for item in items_of(rest.pop(0))] if action.mode == "im2col" else []
    masks = copies.numbers(rest.pop(0)) if action.is_multicast else [None] * copies.count
    for lane in range(copies.count):
        fields = read_map(copies, maps[lane], lane)
        start = tuple(axis[lane] - 2 * SIGNED_32 * (axis[lane] >= SIGNED_32) for axis in coordinates)
        offsets = tuple(axis[lane] & 0xFFFF for axis in moves)
        check_copy(fields, action, start, boxes[lane], lane)
        if barrier is None:
            put_box(copies, fields, action, start, boxes[lane], lane)
            continue
        cell = copies.barrier_cell(barrier, lane)
        data = box_data(copies, fields, start, offsets, lane, copies.told_cells(lane, cell, masks[lane]))
        home, at = copies.span("cluster", boxes[lane], fields.shared_bytes, lane, writes=True)
        offsets_of_units = fields.shared_units(boxes[lane] & 0xFFFFFF) - (boxes[lane] & 0xFFFFFF)
        copies.deliver(home, at + offsets_of_units, data, lane, cell, masks[lane])


def read_map(copies: LaneCopies, address: int, lane: int) -> TensorMapFields:
    """Return the fields of the tensor map at a generic address; raise MemoryFault if there is none."""
    _check(lane, address, MAP_ALIGN, "the address of a tensor map")
    try:
        buffer, first = copies.span_at("generic", address, lane, writes=False)
        data = buffer[first : first + MAP_BYTES].tobytes()
    except MemoryFault as fault:
        raise MemoryFault(lane, f"there is no tensor map at {address:#x}: {fault.reason}", kind="descriptor") from None
    fields = TensorMapFields.decode(data)
    if fields is None:
        raise MemoryFault(lane, f"the {MAP_BYTES} bytes at {address:#x} are not a tensor map", kind="descriptor")
    return fields


def check_copy(
    fields: TensorMapFields, action: actions.TensorCopy, start: tuple[int, ...], box: int, lane: int
) -> None:
    """Raise MemoryFault for a copy that ends the launch on an H200 (measured)."""
    problem = _map_problem(fields, action)
    if problem:
        raise MemoryFault(lane, problem, kind="descriptor")
    _check(lane, box & 0xFFFFFF, SHARED_ALIGN, "an address in shared memory")
    problem = _start_problem(fields, action, start)
    if problem:
        raise MemoryFault(lane, f"{problem}; an H200 reports an illegal instruction", kind="descriptor")


def _map_problem(fields: TensorMapFields, action: actions.TensorCopy) -> str:
    """Return the reason why a copy cannot use a tensor map, or an empty string if it can."""
    if fields.rank != action.rank:
        return f"expected a tensor map with {action.rank} axes, got one with {fields.rank}"
    if (fields.im2col is not None) != (action.mode != "tile"):
        mode = "tile" if fields.im2col is None else "im2col"
        return f"expected a tensor map for .{action.mode}, got one for .{mode}"
    if problems := fields.problems():
        return f"the tensor map is not valid: {problems[0]}"
    if action.reduction and fields.element.format not in REDUCED_TYPES[action.reduction]:
        types = ", ".join(sorted(REDUCED_TYPES[action.reduction]))
        return f"expected elements of type {types} for .{action.reduction}, got {fields.element.name}"
    return ""


def _start_problem(fields: TensorMapFields, action: actions.TensorCopy, start: tuple[int, ...]) -> str:
    """Return the reason why a copy cannot start at the given coordinates, or an empty string if it can."""
    if start[0] * fields.pitches[0] % GRANULE:
        text = f"expected an innermost coordinate at a multiple of {GRANULE} bytes, got {start[0]} elements of"
        return f"{text} {fields.element.bytes} bytes"
    if action.direction == "store" and min(start) < 0:
        return f"expected coordinates of at least 0 for a store, got {start}"
    if fields.im2col is not None:
        first = 0 if fields.interleave else 1  # the first axis that counts pixels
        axes = zip(start[first:], fields.im2col.lower, fields.im2col.upper, fields.dims[first:], strict=False)
        if not all(low <= at <= extent - 1 + up for at, low, up, extent in axes):
            return f"expected a first pixel inside the bounding box, got {start}"
    return ""


def _tensor_bytes(
    copies: LaneCopies, fields: TensorMapFields, inside: Numbers, lane: int, *, writes: bool
) -> tuple[Bytes, int]:
    """Return the buffer that contains the tensor, and the offset of the tensor's address in it."""
    low, high = int(inside.min()), int(inside.max()) + fields.element.bytes
    buffer, first = copies.span("global", fields.address + low, high - low, lane, writes=writes)
    return buffer, first - low


def box_data(
    copies: LaneCopies,
    fields: TensorMapFields,
    start: tuple[int, ...],
    offsets: tuple[int, ...],
    lane: int,
    cells: Sequence[int] = (),
) -> Bytes:
    """Return a box's bytes in shared-memory order before swizzling; elements outside the tensor get the fill value."""
    places, inside = fields.elements(start, offsets)
    dtype = np.dtype(f"u{fields.element.bytes}")
    if inside.all():
        buffer, base = _tensor_bytes(copies, fields, places, lane, writes=False)
        copies.tell_read(buffer, base + places.reshape(-1), dtype.itemsize, lane, cells)
        unit = np.dtype(np.uint64)
        per_unit = unit.itemsize // dtype.itemsize
        words = copies.memory.elements(buffer, unit)[(base + places[..., ::per_unit]) // unit.itemsize]
        return loaded(fields, np.ascontiguousarray(words).reshape(-1).view(dtype)).view(np.uint8)
    code = fields.element.nan if fields.fill == "nan" and fields.element.nan is not None else 0
    codes = np.full(places.shape, code, dtype)
    if inside.any():
        own = places[inside]
        buffer, base = _tensor_bytes(copies, fields, own, lane, writes=False)
        copies.tell_read(buffer, base + own.reshape(-1), dtype.itemsize, lane, cells)
        codes[inside] = loaded(fields, copies.memory.elements(buffer, dtype)[(base + own) // dtype.itemsize])
    return codes.reshape(-1).view(np.uint8)


def loaded(fields: TensorMapFields, codes: Codes) -> Codes:
    """Return elements as a load delivers them: tf32 values rounded and NaNs made canonical, as on an H200."""
    if fields.element.format != "tf32":
        return codes
    even = (codes >> np.uint32(13)) & np.uint32(1)
    nearest = (codes + np.uint32(0xFFF) + even) & np.uint32(0xFFFFE000)
    return np.where(is_nan(codes, "f32"), TF32_NAN, nearest)


def put_box(
    copies: LaneCopies, fields: TensorMapFields, action: actions.TensorCopy, start: tuple[int, ...], box: int, lane: int
) -> None:
    """Store a box, or reduce it into the tensor; only 16-byte units inside the tensor are written.

    A box that is entirely outside the tensor is not even read (measured on an H200).
    """
    places, inside = fields.elements(start)
    units_inside = inside[..., :: GRANULE // fields.element.bytes]
    inside = np.repeat(units_inside, GRANULE // fields.element.bytes, axis=-1)
    if not inside.any():
        return
    home, at = copies.span("shared", box, fields.shared_bytes, lane, writes=False)
    own_box = box & 0xFFFFFF  # the address without the block's rank
    units = at + fields.shared_units(own_box) - own_box
    copies.tell_read(home, units.reshape(-1)[: units_inside.size][units_inside.reshape(-1)], GRANULE, lane)
    dtype = np.dtype(f"u{fields.element.bytes}")
    data = copies.memory.elements(home, np.dtype(np.uint64))[units[:, None] // 8 + np.arange(2)]
    codes = np.ascontiguousarray(data).reshape(-1).view(dtype)[: places.size].reshape(places.shape)
    own = places[inside]
    buffer, base = _tensor_bytes(copies, fields, own, lane, writes=True)
    if action.reduction:
        name = f"{action.reduction}.{fields.element.format}"
        copies.tell_write(buffer, base + own.reshape(-1), dtype.itemsize, lane, None, reduction=name)
        cells, at_cells = copies.memory.elements(buffer, dtype), (base + own) // dtype.itemsize
        with copies.memory.lock:
            rounds = reduce_cells(tensor_reduction(fields, action.reduction), cells, at_cells, codes[inside])
        if rounds > 1 and (fields.element.sign == "f" or action.reduction in {"inc", "dec"}):
            copies.state.tally.causes[copies.memory.inst] |= InexactCause.OVERLAPPING_STORES
    elif inside.all():
        rows = np.ascontiguousarray(codes).reshape(-1).view(np.uint32).reshape(-1, 4)
        firsts = places[..., :: GRANULE // dtype.itemsize].reshape(-1)
        copies.store(buffer, base + firsts, rows, lane)
    else:
        copies.store(buffer, base + own, codes[inside][:, None], lane)


def reduce_cells(function: actions.CodeFunction, cells: Codes, places: Numbers, codes: Codes) -> int:
    """Reduce codes into cells, and return the number of rounds that this takes.

    Each round contains at most one element per cell. Elements of a box share a cell if a stride of the map is shorter
    than the extent of the inner axes.
    """
    left, rounds = np.arange(len(places)), 0
    while len(left):
        _, first = np.unique(places[left], return_index=True)
        now = left[first]
        cells[places[now]] = function(cells[places[now]], codes[now])
        left, rounds = np.delete(left, first), rounds + 1
    return rounds


def tensor_reduction(fields: TensorMapFields, name: str) -> actions.CodeFunction:
    """Return the function that an element-wise tensor reduction applies.

    It is the function of `red`, except that f32 sums flush subnormals only if the map specifies it, as measured on an
    H200.
    """
    element = fields.element
    if name == "add" and element.format in {"f32", "tf32"}:
        style = FloatModifiers(ftz=element.name.endswith("_ftz"))
        return lambda old, new: add("f32", style, old, new)
    return reduction(name, TYPES[element.format], "global")


def run_async_store(copies: LaneCopies, inst: DecodedInstruction, action: actions.AsyncStore) -> None:
    """Run st.async or red.async lane by lane; each lane signals its mbarrier."""
    target, value, barrier = inst.sources
    kind = action.type
    codes = np.stack([copies.group.values(item, kind) for item in items_of(value)], axis=1)
    size = kind.dtype.itemsize * action.count
    if action.is_ordered:
        copies.state.tally.causes[copies.memory.inst] |= InexactCause.OVERLAPPING_STORES
    reached = copies.memory.reach("cluster", copies.group.addresses(target), size, copies.owners, writes=True)
    for which, buffer, offsets in reached:
        for lane, offset in zip(which.tolist(), offsets.tolist(), strict=True):
            cell = copies.barrier_cell(barrier, lane)
            if action.function is None:
                copies.store(buffer, np.array([offset]), codes[lane : lane + 1], lane, cell)
            else:
                copies.tell_write(buffer, np.array([offset]), size, lane, cell, reduction=inst.name)
                cells = copies.memory.elements(buffer, kind.dtype)[offset // kind.dtype.itemsize :][: action.count]
                cells[...] = action.function(cells.copy(), codes[lane])
            copies.tell(cell, size, lane)


def run_map_replace(copies: LaneCopies, inst: DecodedInstruction, action: actions.TensorMapReplace) -> None:
    """Run tensormap.replace, which changes one field of a 128-byte tensor map, lane by lane."""
    tensor_map, *numbers = inst.sources
    axes = copies.numbers(numbers[0]) if action.has_axis else [0] * copies.count
    values = copies.group.values(numbers[-1], B64).tolist()
    for lane, address in enumerate(copies.addresses(tensor_map)):
        _check(lane, address, MAP_BYTES, "the address of a tensor map")
        buffer, first = copies.span_at(action.space, address, lane)
        try:
            data = replace_field(buffer[first : first + MAP_BYTES].tobytes(), action.field, values[lane], axes[lane])
        except ValueError as error:
            raise MemoryFault(lane, str(error)) from None
        buffer[first : first + MAP_BYTES] = np.frombuffer(data, np.uint8)


def run_map_copy(copies: LaneCopies, inst: DecodedInstruction, _action: actions.TensorMapCopy) -> None:
    """Run tensormap.cp_fenceproxy, which copies each warp's tensor map from shared to global memory."""
    targets, sources = copies.addresses(inst.sources[0]), copies.addresses(inst.sources[1])
    warps = copies.owners.threads // copies.group.mask.shape[1]
    for lane in np.unique(warps, return_index=True)[1].tolist():
        _check(lane, targets[lane], MAP_BYTES, "a target address")
        home, at = copies.span_at("generic", targets[lane], lane, writes=True)
        buffer, first = copies.span_at("shared", sources[lane], lane, writes=False)
        parts = GRANULE * np.arange(MAP_BYTES // GRANULE)
        if copies.memory.observer is not None:
            copies.memory.observer.read(
                buffer, first + parts, GRANULE, np.full(len(parts), copies.owners.threads[lane])
            )
        copies.store(home, at + parts, buffer[first : first + MAP_BYTES].copy().view(np.uint32).reshape(-1, 4), lane)


COPIES: dict[type[actions.Action], Callable[..., None]] = {
    actions.BulkCopy: run_bulk_copy,
    actions.TensorCopy: run_tensor_copy,
    actions.AsyncStore: run_async_store,
    actions.TensorMapReplace: run_map_replace,
    actions.TensorMapCopy: run_map_copy,
}
"""The function that runs each action, called with the `LaneCopies`, the instruction and the action."""
