"""LLVM functions that count wavefronts as `interpreter.memory.count_wavefronts` does.

They try the common case first: sectors in ascending order; words in different banks. Otherwise units are counted one by
one: a unit is new if no earlier lane has it. In shared memory, the upper half of the result is the number of wavefronts
that are bank conflicts: those that the same units, spread evenly over the banks, would not need.
"""

from __future__ import annotations

from llvmlite import ir

from warpfrag.layout.coordinates import LANES
from warpfrag.ptx.compiler.ir_builder import I32, I64, POINTER, IRBuilder, Variable, constant, define, vector
from warpfrag.ptx.interpreter.device_memory import SECTOR
from warpfrag.smem.shared_memory import BANK_BYTES, BANKS

LOW_HALF = (1 << 32) - 1


def lane_count(builder: IRBuilder, mask: ir.Value) -> ir.Value:
    """Return the number of lanes in a mask, as 64 bits."""
    return builder.zext(builder.intrinsic("ctpop", mask), I64)


def define_sectors(module: ir.Module) -> None:
    """Define `sectors(mask, addresses)`, the wavefronts of an access to global memory."""
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
    """Define `passes(mask, addresses, unit)`, the wavefronts of an access to shared memory, and its conflicts."""
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
    """Define `matrix_passes(mask, addresses, first)`, the wavefronts of eight rows of ldmatrix."""
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
    """Define `different(mask, addresses, unit, slots)`: the most units in one slot, and above the number of units."""
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
