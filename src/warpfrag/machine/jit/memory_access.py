"""LLVM functions that move data between the registers of a warp and memory, after checking every address.

    i32 load_global_16_1(context, row, mask, addresses, items, instruction)

`addresses` contains an address for each of the 32 lanes, and `items` their data: element 0 of all lanes, then element
1. The result is 1 if an access is outside its space or misaligned; the interpreter then finds the access and reports
it. Bytes and wavefronts are counted as in `interpreter.device_memory`.

Each helper is a separate module that all kernels share, so it is compiled only once.

While a launch is screened, every access is reported to a function whose address is in the context:

    void function(context, row, mask, places, base, buffer, size, is_store, instruction, items, unit)

Lane l accesses `size` bytes at offset places[l] + base of a buffer, which is identified by its row in the allocation
table, or by `SHARED_BUFFER` or `LOCAL_BUFFER`. A store writes elements of `unit` bytes. cp.async and wgmma groups are
reported as accesses to `COPY_GROUPS`: a store closes a group, and a load waits until at most `size` groups are
incomplete.

The functions that count wavefronts try the common case first: sectors in ascending order, or words in different banks.
Otherwise, they count units one by one: a unit is new if no earlier lane accesses it. In shared memory, the upper half
of the result is the number of bank conflicts: the wavefronts that would not be needed if the units were spread evenly
over the banks.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from llvmlite import ir

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.device_memory import SECTOR
from warpfrag.machine.ir import state_spaces
from warpfrag.machine.ir.program import InexactCause
from warpfrag.machine.ir.state_spaces import SPACES
from warpfrag.machine.jit import context as ctx
from warpfrag.machine.jit.ir_builder import (
    I8,
    I32,
    I64,
    LANE_NUMBERS,
    POINTER,
    VOID,
    IRBuilder,
    Variable,
    constant,
    define,
    integers,
    vector,
)
from warpfrag.machine.jit.store_overlaps import define_end_wait, define_tagged, own_element, store_order, writer_of
from warpfrag.smem.shared_memory import BANK_BYTES, BANKS

LOW_HALF = (1 << 32) - 1


def lane_count(builder: IRBuilder, mask: ir.Value) -> ir.Value:
    """Return the number of lanes in a mask, as a 64-bit integer."""
    return builder.zext(builder.intrinsic("ctpop", mask), I64)


def define_sectors(module: ir.Module) -> None:
    """Define `sectors(mask, addresses)`, which counts the wavefronts of a global-memory access."""
    with define(module, "sectors", I64, I32, POINTER) as (b, mask, addresses):
        with b.if_then(b.icmp("eq", mask, 0)):
            b.ret(constant(I64, 0))
        last = b.sub(constant(I32, LANES - 1), b.intrinsic("ctlz", mask, flag=True))
        every = b.load(addresses, typ=vector(64), align=8)
        live = b.select(b.predicate_of(mask), every, b.broadcast(b.element(addresses, last)))
        sector = b.lshr(live, SECTOR.bit_length() - 1)
        before = b.permute(sector, [0, *range(LANES - 1)])
        with b.if_then(b.not_(b.any(b.icmp("ult", sector, before)))):
            b.ret(b.add(lane_count(b, b.lane_mask(b.icmp("ne", sector, before))), 1))
        packed = b.call_named("different", I64, mask, addresses, constant(I64, SECTOR), constant(I64, 1))
        b.ret(b.and_(packed, LOW_HALF))


def define_passes(module: ir.Module) -> None:
    """Define `passes(mask, addresses, unit)`, which counts wavefronts and bank conflicts in shared memory."""
    with define(module, "passes", I64, I32, POINTER, I64) as (b, mask, addresses, unit):
        with b.if_then(b.icmp("eq", mask, 0)):
            b.ret(constant(I64, 0))
        slots = b.udiv(constant(I64, BANKS * BANK_BYTES), unit)
        every = b.load(addresses, typ=vector(64), align=8)
        piece = b.lshr(every, b.broadcast(b.intrinsic("cttz", unit, flag=True)))
        first = b.extract_element(piece, b.intrinsic("cttz", mask, flag=True))
        live = b.select(b.predicate_of(mask), piece, b.broadcast(first))
        extent = b.sub(b.reduce("umax", live), b.reduce("umin", live))
        with b.if_then(b.icmp("ult", extent, slots)):
            b.ret(constant(I64, 1))
        last_slot = b.sub(slots, 1)
        slot = b.and_(live, b.broadcast(last_slot))
        used = b.trunc(b.reduce("or", b.shl(constant(vector(64), 1), slot)), I32)
        with b.if_then(b.icmp("eq", b.intrinsic("ctpop", used), b.intrinsic("ctpop", mask))):
            b.ret(constant(I64, 1))
        packed = b.call_named("different", I64, mask, addresses, unit, slots)
        count, units = b.and_(packed, LOW_HALF), b.lshr(packed, 32)
        ideal = b.udiv(b.add(units, last_slot), slots)
        b.ret(b.or_(count, b.shl(b.sub(count, ideal), 32)))


def define_matrix_passes(module: ir.Module) -> None:
    """Define `matrix_passes(mask, addresses, first)`, which counts the wavefronts of eight ldmatrix rows."""
    with define(module, "matrix_passes", I64, I32, POINTER, I32) as (b, mask, addresses, first):
        eight = b.shl(constant(I32, 0xFF), first)
        own = b.and_(mask, eight)
        with b.if_then(b.icmp("eq", own, eight)):
            rows = b.lshr(b.load(b.at(addresses, first), typ=vector(64, 8), align=8), 4)
            used = b.reduce("or", b.shl(constant(vector(64, 8), 1), b.and_(rows, 7)))
            with b.if_then(b.icmp("eq", used, 0xFF)):
                b.ret(constant(I64, 1))
        b.ret(b.call_named("passes", I64, own, addresses, constant(I64, 16)))


def define_different(module: ir.Module) -> None:
    """Define `different(mask, addresses, unit, slots)`, which counts the distinct units that lanes access.

    The lower half of the result is the largest number of units in one slot, the upper half the total number.
    """
    with define(module, "different", I64, I32, POINTER, I64, I64) as (b, mask, addresses, unit, slots):
        counts, known = (b.entry_alloca(ir.ArrayType(I64, LANES), 64) for _ in range(2))
        for table in (counts, known):
            b.store(ir.Constant(ir.ArrayType(I64, LANES), None), table)
        total, most = Variable(b, constant(I64, 0)), Variable(b, constant(I64, 0))
        with b.each_bit(mask) as lane:
            piece = b.udiv(b.element(addresses, lane), unit)
            index = Variable(b, constant(I64, 0))

            def is_other(piece: ir.Value = piece, index: Variable = index) -> ir.Value:
                inside = b.icmp("ult", index.get(), total.get())
                return b.and_(inside, b.icmp("ne", b.element(known, index.get()), piece))

            with b.while_(is_other):
                index.set(b.add(index.get(), 1))
            with b.if_then(b.icmp("eq", index.get(), total.get())):
                b.store(piece, b.at(known, total.get()))
                total.set(b.add(total.get(), 1))
                slot = b.urem(piece, slots)
                b.add_to(counts, slot, constant(I64, 1))
                most.set(b.maximum(most.get(), b.element(counts, slot), signed=False))
        b.ret(b.or_(b.shl(total.get(), 32), most.get()))


Helper = tuple[str, str, int, int]
"""The access, the state space, the bits per element and the elements per lane, which fill at most 16 bytes.

The access is "load", "store" or "copy" (cp.async). The space "matrices" is shared memory in which each group of eight
lanes addresses a matrix's rows."""
HELPER_TYPES = (POINTER, I64, I32, POINTER, POINTER, I64)
COPY_TYPES = (POINTER, I64, I32, POINTER, POINTER, POINTER, I64)
WINDOWS = {0: "global", 1: "shared", 2: "local", 3: "param"}
TAGGED = {"global", "const", "shared", "matrices"}
"""State spaces whose stores are tagged because other threads see them."""
START, END, DATA, WRITABLE, TAGS = range(ctx.ALLOCATION_WORDS)
"""Word offsets in a row of the allocation table."""


class AccessCall(NamedTuple):
    """The parameters of a helper function, which describe one warp's access."""

    context: ir.Value
    row: ir.Value
    mask: ir.Value
    addresses: ir.Value
    items: ir.Value
    inst: ir.Value


def helper_name(access: str, space: str, bits: int, count: int) -> str:
    """Return the name of a helper function."""
    return f"{access}_{space}_{bits}_{count}"


COMMON: Helper = ("common", "", 0, 0)
"""The module with the functions that all helpers and segments call."""


def with_callees(helpers: set[Helper]) -> list[Helper]:
    """Return the helpers and those that they call, callees first."""
    generic = [helper for helper in helpers if helper[1] == "generic"]
    own = {(access, space, bits, count) for access, _, bits, count in generic for space in WINDOWS.values()}
    return [COMMON, *sorted(helpers | own, key=lambda helper: (helper[1] == "generic", helper))]


COMMON_FUNCTIONS = ("different", "sectors", "passes", "matrix_passes", "end_wait", "find", "fault", "tell_groups")


def functions_of(helper: Helper) -> tuple[str, ...]:
    """Return the names of the functions that a helper's module exports."""
    access, _, _, count = helper
    return {"common": COMMON_FUNCTIONS, "copy": (f"copy_{count}",)}.get(access, (helper_name(*helper),))


def helper_text(access: str, space: str, bits: int, count: int) -> str:
    """Return a helper's LLVM module as text."""
    module = ir.Module(helper_name(access, space, bits, count))
    if access == "common":
        for define_function in (
            define_different, define_sectors, define_passes, define_matrix_passes, define_end_wait, define_find,
            define_fault, define_tell_groups,
        ):  # fmt: skip
            define_function(module)
    elif space == "generic":
        define_generic(module, access, bits, count)
    elif access == "copy":
        define_mover(module, "load", bits, count)
        define_copy(module, count)
    else:
        define_mover(module, access, bits, count)
        if access == "store" and space in TAGGED:
            cause = InexactCause.STMATRIX_ROWS if space == "matrices" else InexactCause.LANES_AT_SAME_ADDRESS
            define_tagged(module, bits, count, cause)
        define_plain(module, access, space, bits, count)
    return str(module)


def fail_if(b: IRBuilder, condition: ir.Value) -> None:
    """Emit code that returns 1, the fault status, if a condition is true."""
    with b.if_then(condition, likely=False):
        b.ret(constant(I32, 1))


def define_generic(module: ir.Module, access: str, bits: int, count: int) -> None:
    """Define a helper for generic addresses, which calls the helper of each window for the lanes that address it."""
    with define(module, helper_name(access, "generic", bits, count), I32, *HELPER_TYPES) as (b, *arguments):
        call = AccessCall(*arguments)
        every = b.load(call.addresses, typ=vector(64), align=8)
        inner, window = b.entry_alloca(vector(64), 256), b.lshr(every, state_spaces.WINDOW_SHIFT)
        for number, space in WINDOWS.items():
            is_inside = b.icmp("eq", window, number)
            if not number:  # this call also handles addresses outside all windows
                is_inside = b.or_(is_inside, b.icmp("ugt", window, max(WINDOWS)))
            part = b.and_(call.mask, b.lane_mask(is_inside))
            with b.if_then(b.icmp("ne", part, 0)):
                b.store(b.sub(every, state_spaces.WINDOWS[space]), inner, align=256)
                own = call._replace(mask=part, addresses=inner)
                fail_if(b, b.icmp("ne", b.call_named(helper_name(access, space, bits, count), I32, *own), 0))
        b.ret(constant(I32, 0))


def define_plain(module: ir.Module, access: str, space: str, bits: int, count: int) -> None:
    """Define a helper for one state space, which checks alignment, counts wavefronts and moves the data."""
    with define(module, helper_name(access, space, bits, count), I32, *HELPER_TYPES) as (b, *arguments):
        call = AccessCall(*arguments)
        is_store, size = access == "store", bits // 8 * count
        if is_store and space == "param":
            fail_if(b, b.icmp("ne", call.mask, 0))
            b.ret(constant(I32, 0))
            return
        if size & (size - 1) == 0:
            fail_if(b, is_misaligned(b, call, size))
        home = "shared" if space == "matrices" else space
        count_bytes(b, call, home, b.mul(lane_count(b, call.mask), size), is_store=is_store)
        if home in {"global", "shared"}:
            count_wavefronts(b, call, home, wavefronts_of(b, call, space, size))
        reach = each_allocation if home in {"global", "const"} else in_buffer
        with reach(b, call, home, constant(I64, size), writes=is_store) as target:
            if home != "param":
                tell(b, call, target, constant(I64, size), unit=bits // 8, is_store=is_store)
            mover = (target.part, target.places, target.delta, call.items)
            if is_store and space in TAGGED:
                writer = writer_of(b, call.context, call.row, call.inst, target.shadow, is_shared=home == "shared")
                b.call_named(f"tagged_{bits}_{count}", VOID, *mover, *writer)
            else:
                b.call_named(f"{access}_{bits}_{count}", VOID, *mover)
        b.ret(constant(I32, 0))


def is_misaligned(b: IRBuilder, call: AccessCall, size: int) -> ir.Value:
    """Emit code that tests if any active lane's address is not a multiple of `size`, a power of two."""
    every = b.load(call.addresses, typ=vector(64), align=8)
    live = b.select(b.predicate_of(call.mask), every, constant(vector(64), 0))
    return b.icmp("ne", b.and_(b.reduce("or", live), size - 1), 0)


# --- counters


def count_bytes(b: IRBuilder, call: AccessCall, space: str, more: ir.Value, *, is_store: bool) -> None:
    """Emit code that counts the bytes that an instruction reads or writes."""
    total, by_inst = (ctx.WRITTEN_BYTES, ctx.INST_WRITTEN) if is_store else (ctx.READ_BYTES, ctx.INST_READ)
    b.add_to(call.context, total + SPACES.index(space), more)
    b.add_to(b.element(call.context, by_inst, POINTER), call.inst, more)


def count_wavefronts(b: IRBuilder, call: AccessCall, space: str, packed: ir.Value) -> None:
    """Emit code that adds the wavefronts in the lower half of `packed` and the bank conflicts in its upper half."""
    more = b.and_(packed, LOW_HALF)
    b.add_to(b.element(call.context, ctx.INST_CONFLICTS, POINTER), call.inst, b.lshr(packed, 32))
    b.add_to(call.context, ctx.WAVEFRONTS + SPACES.index(space), more)
    b.add_to(b.element(call.context, ctx.INST_WAVEFRONTS, POINTER), call.inst, more)


def wavefronts_of(b: IRBuilder, call: AccessCall, space: str, size: int) -> ir.Value:
    """Emit code that counts the wavefronts of a global-memory or shared-memory access."""
    if space == "global":
        return b.call_named("sectors", I64, call.mask, call.addresses)
    if space == "shared":
        unit = constant(I64, max(size, BANK_BYTES))
        return b.call_named("passes", I64, call.mask, call.addresses, unit)
    total = constant(I64, 0)
    for first in range(0, LANES, 8):
        total = b.add(b.call_named("matrix_passes", I64, call.mask, call.addresses, constant(I32, first)), total)
    return total


# --- memory that lanes access


class Reached(NamedTuple):
    """Lanes whose data is in one buffer, at host address `places` + `delta` and buffer offset `places` + `base`."""

    part: ir.Value
    places: ir.Value
    delta: ir.Value
    base: ir.Value
    buffer: ir.Value
    shadow: ir.Value  # the address of the tag for address 0


@contextmanager
def each_allocation(b: IRBuilder, call: AccessCall, _space: str, size: ir.Value, *, writes: bool) -> Iterator[Reached]:
    """Emit a loop over the global allocations that lanes access."""
    every = b.load(call.addresses, typ=vector(64), align=8)
    left = Variable(b, call.mask)
    with b.while_(lambda: b.icmp("ne", left.get(), 0)):
        now = left.get()
        address = b.element(call.addresses, b.intrinsic("cttz", now, flag=True))
        home = b.call_named("find", POINTER, call.context, address)
        buffer = b.ptrtoint(home, I64)
        fail_if(b, b.icmp("eq", buffer, 0))
        start, end = b.element(home, START), b.element(home, END)
        fail_if(b, b.icmp("ult", b.sub(end, address), size))
        if writes:
            fail_if(b, b.icmp("eq", b.element(home, WRITABLE), 0))
        is_inside = b.and_(
            b.icmp("uge", every, b.broadcast(start)), b.icmp("ule", every, b.broadcast(b.sub(end, size)))
        )
        part = b.and_(now, b.lane_mask(is_inside))
        left.set(b.xor(now, part))
        shadow = b.sub(b.element(home, TAGS), b.shl(start, 1))
        yield Reached(part, call.addresses, b.sub(b.element(home, DATA), start), b.neg(start), buffer, shadow)


@contextmanager
def in_buffer(b: IRBuilder, call: AccessCall, space: str, size: ir.Value, *, writes: bool) -> Iterator[Reached]:
    """Emit code for a state space that is stored in one buffer, with a region for each block or thread."""
    del writes
    start = state_spaces.SHARED_START if space == "shared" else 0
    end_word, base_word, number = {
        "shared": (ctx.SHARED_END, ctx.SHARED, ctx.SHARED_BUFFER),
        "local": (ctx.LOCAL_STRIDE, ctx.LOCAL, ctx.LOCAL_BUFFER),
        "param": (ctx.PARAMETER_BYTES, ctx.PARAMETERS, 0),
    }[space]
    every, end = b.load(call.addresses, typ=vector(64), align=8), b.element(call.context, end_word)
    ends = b.broadcast(end)
    is_outside = b.or_(b.icmp("ult", every, start), b.icmp("uge", every, ends))
    is_outside = b.or_(is_outside, b.icmp("ult", b.sub(ends, every), b.broadcast(size)))
    fail_if(b, b.icmp("ne", b.and_(b.lane_mask(is_outside), call.mask), 0))
    places, base = call.addresses, constant(I64, 0)
    if space == "shared":
        block = b.element(b.element(call.context, ctx.WARP_BLOCK, POINTER), call.row)
        base = b.mul(block, b.element(call.context, ctx.SHARED_STRIDE))
    elif space == "local":
        base = b.mul(b.mul(call.row, LANES), end)
        places = b.entry_alloca(vector(64), 256)
        b.store(b.add(every, b.mul(LANE_NUMBERS, ends)), places, align=256)
    delta = b.add(b.element(call.context, base_word), base)
    shadow = b.add(b.element(call.context, ctx.SHARED_TAGS), b.shl(base, 1))
    yield Reached(call.mask, places, delta, base, constant(I64, number), shadow)


SCREEN_FUNCTION = ir.FunctionType(VOID, [POINTER, I64, I64, POINTER, *[I64] * 5, POINTER, I64]).as_pointer()


def tell(
    b: IRBuilder, call: AccessCall, target: Reached, size: ir.Value, unit: int, *, is_store: bool | ir.Value
) -> None:
    """Emit code that reports an access to the screening function, if there is one."""
    function = b.element(call.context, ctx.SCREEN)
    with b.if_then(b.icmp("ne", function, 0), likely=False):
        stores = constant(I64, is_store) if isinstance(is_store, bool) else is_store
        b.call(
            b.inttoptr(function, SCREEN_FUNCTION),
            [
                call.context, call.row, b.zext(target.part, I64), target.places, target.base, target.buffer, size,
                stores, call.inst, call.items, constant(I64, unit),
            ],
        )  # fmt: skip


def define_tell_groups(module: ir.Module) -> None:
    """Define `tell_groups(context, row, mask, left, closes, inst)`, which reports copy groups and proxy fences."""
    types = (POINTER, I64, I32, I64, I64, I64)
    with define(module, "tell_groups", VOID, *types) as (b, context, row, mask, left, closes, inst):
        nothing, zero = ir.Constant(POINTER, None), constant(I64, 0)
        target = Reached(mask, nothing, zero, zero, constant(I64, ctx.COPY_GROUPS), zero)
        tell(b, AccessCall(context, row, mask, nothing, nothing, inst), target, left, 0, is_store=closes)


# --- moves


def define_mover(module: ir.Module, access: str, bits: int, count: int) -> None:
    """Define a function that moves data between `items` and the lanes' addresses, as one vector if contiguous."""
    types, element = (I32, POINTER, I64, POINTER), ir.IntType(bits)
    name = f"{access}_{bits}_{count}"
    order = store_order(bits // 8 * count) if access == "store" else list(range(LANES))
    with define(module, name, VOID, *types, attribute="alwaysinline") as (b, part, places, delta, items):
        is_whole = b.icmp("eq", part, -1)

        def move(kind: ir.Type, memory: ir.Value, own: ir.Value) -> None:
            source, target = (memory, own) if access == "load" else (own, memory)
            b.store(b.load(source, typ=kind, align=1), target, align=1)

        def move_lane(lane: ir.Value | int) -> None:
            start = b.inttoptr(b.add(b.element(places, lane), delta), POINTER)
            for index in range(count):
                move(element, b.at(start, index, element), own_element(b, items, bits, index, lane))

        if count == 1:
            every, begin = b.load(places, typ=vector(64), align=8), b.element(places, 0)
            line = b.add(b.broadcast(begin), integers(lane * bits // 8 for lane in range(LANES)))
            is_line = b.icmp("eq", b.reduce("or", b.xor(every, line)), 0)
            with b.if_then(b.and_(is_line, is_whole)):
                move(vector(bits), b.inttoptr(b.add(begin, delta), POINTER), items)
                b.ret_void()
        with b.if_then(is_whole):
            for lane in order:
                move_lane(lane)
            b.ret_void()
        with b.each_bit(in_order(b, part, order[0])) as position:
            move_lane(b.xor(position, order[0]))


def in_order(b: IRBuilder, part: ir.Value, first: int) -> ir.Value:
    """Permute a lane mask: bit i of the result is bit (i xor `first`) of the mask."""
    if not first:
        return part
    turned = b.intrinsic("bitreverse", part)
    if first == 15:
        return b.intrinsic("fshl", turned, turned, constant(I32, 16))
    return b.intrinsic("bswap", turned) if first == 7 else turned


def define_copy(module: ir.Module, count: int) -> None:
    """Define the global-memory half of cp.async: copy `src_bytes` bytes per lane to `items`, padded with zeros.

    Lanes that copy the same number of bytes form one request, as in the interpreter.
    """
    size = 4 * count
    with define(module, f"copy_{count}", I32, *COPY_TYPES) as (b, *arguments):
        context, row, mask, addresses, items, src_bytes, inst = arguments
        call = AccessCall(context, row, mask, addresses, items, inst)
        fail_if(b, is_misaligned(b, call, size))
        b.store(ir.Constant(ir.ArrayType(vector(32), count), None), items, align=64)
        sizes, left = b.load(src_bytes, typ=vector(32), align=64), Variable(b, mask)
        with b.while_(lambda: b.icmp("ne", left.get(), 0)):
            now = left.get()
            bytes_each = b.element(src_bytes, b.intrinsic("cttz", now, flag=True), I32)
            own = call._replace(mask=b.and_(now, b.lane_mask(b.icmp("eq", sizes, b.broadcast(bytes_each)))))
            left.set(b.xor(now, own.mask))
            with b.if_then(b.icmp("ne", bytes_each, 0)):
                length = b.zext(bytes_each, I64)
                count_bytes(b, own, "global", b.mul(lane_count(b, own.mask), length), is_store=False)
                count_wavefronts(b, own, "global", wavefronts_of(b, own, "global", size))
                with each_allocation(b, own, "global", length, writes=False) as target:
                    tell(b, own, target, length, 0, is_store=False)
                    with b.if_else(b.icmp("eq", bytes_each, size)) as (whole, some):
                        with whole:
                            b.call_named(f"load_32_{count}", VOID, target.part, addresses, target.delta, items)
                        with some, b.each_bit(target.part) as lane:
                            start = b.inttoptr(b.add(b.element(addresses, lane), target.delta), POINTER)
                            with b.count_to(length) as index:
                                word = b.mul(b.lshr(index, 2), 4 * LANES)
                                place = b.add(b.add(word, b.mul(b.zext(lane, I64), 4)), b.and_(index, 3))
                                b.store(b.element(start, index, I8), b.at(items, place, I8))
        b.ret(constant(I32, 0))


# --- functions that all helpers share


def define_fault(module: ir.Module) -> None:
    """Define `fault(context, inst, row, mask, addresses)`, which records the fault of the earliest instruction."""
    with define(module, "fault", VOID, POINTER, I64, I64, I32, POINTER) as (b, context, inst, row, mask, addresses):
        with b.if_then(b.icmp("uge", inst, b.element(context, ctx.FAULT_INST))):
            b.ret_void()
        numbers = {ctx.FAULT_INST: inst, ctx.FAULT_WARP: row, ctx.FAULT_MASK: b.zext(mask, I64)}
        for word, number in numbers.items():
            b.store(number, b.at(context, word))
        every = b.load(addresses, typ=vector(64), align=8)
        b.store(every, b.at(context, ctx.FAULT_ADDRESSES), align=8)


def define_find(module: ir.Module) -> None:
    """Define `find(context, address)`, which returns the row of the allocation that contains an address, or null."""
    with define(module, "find", POINTER, POINTER, I64) as (b, context, address):
        table = b.element(context, ctx.ALLOCATIONS, POINTER)
        low, high = Variable(b, constant(I64, 0)), Variable(b, b.element(context, ctx.ALLOCATION_COUNT))
        with b.while_(lambda: b.icmp("ult", low.get(), high.get())):
            middle = b.lshr(b.add(low.get(), high.get()), 1)
            is_from = b.icmp("uge", address, b.element(table, b.mul(middle, ctx.ALLOCATION_WORDS)))
            low.set(b.select(is_from, b.add(middle, 1), low.get()))
            high.set(b.select(is_from, high.get(), middle))
        nothing = ir.Constant(POINTER, None)
        with b.if_then(b.icmp("eq", low.get(), 0)):
            b.ret(nothing)
        row = b.at(table, b.mul(b.sub(low.get(), 1), ctx.ALLOCATION_WORDS))
        b.ret(b.select(b.icmp("ult", address, b.element(row, END)), row, nothing))
