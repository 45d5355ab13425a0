"""LLVM functions that tag the stores of one warp, as `interpreter.store_tags` does.

A helper that stores calls `tagged_B_C` instead of the mover `store_B_C` (elements of B bits, C per lane). It tags the
words of all lanes, moves the data, and reads it again if two lanes may have stored to one address, that is, if a word
already had this warp's tag. Vectors of tags are used if the lanes fill one line: their addresses are consecutive, or
they are the addresses of an aligned line, permuted by xor with a constant, as in swizzles. Bytes are compared only if a
tag belongs to another warp and no barrier orders the stores.
"""

from typing import NamedTuple

from llvmlite import ir

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.store_tags import (
    BLOCK_FIELD,
    INTERVAL_SHIFT,
    SERVED_BYTES,
    WARP_FIELD,
    WORD,
    WORD_BYTES,
)
from warpfrag.machine.ir.program import InexactCause
from warpfrag.machine.jit import context as ctx
from warpfrag.machine.jit.ir_builder import (
    I1,
    I8,
    I32,
    I64,
    POINTER,
    VOID,
    IRBuilder,
    Variable,
    constant,
    define,
    integers,
    vector,
)

TAGGED_TYPES = (I32, POINTER, I64, POINTER, I64, I64, I64, POINTER)
"""Parameter types of `tagged_B_C`: those of a mover (lanes, addresses, their base, data), then those of `Writer`."""


class Writer(NamedTuple):
    """The storing warp: the tag address for address 0, its tag, the block bits to compare, and the causes' address."""

    shadow: ir.Value
    tag: ir.Value
    across: ir.Value  # 0 if all stores of other blocks are ordered before this store
    cause: ir.Value

    def tags_at(self, b: IRBuilder, address: ir.Value) -> ir.Value:
        """Return the address of a word's tag."""
        return b.inttoptr(b.add(self.shadow, b.shl(address, 1)), POINTER)

    def is_foreign(self, b: IRBuilder, tags: ir.Value, masks: ir.Value | int) -> ir.Value:
        """Return True if another warp stored bytes in `masks` and no barrier or wait orders those stores."""
        mine, across = self.tag, self.across
        if isinstance(tags.type, ir.VectorType):
            mine, across = (b.broadcast(value, tags.type.count) for value in (mine, across))
        changed = b.xor(tags, mine)
        is_near = b.and_(b.icmp("ult", changed, 1 << INTERVAL_SHIFT), b.icmp("ne", b.and_(changed, WARP_FIELD), 0))
        is_far = b.icmp("ne", b.and_(changed, across), 0)
        return b.and_(b.or_(is_near, is_far), b.icmp("ne", b.and_(tags, masks), 0))

    def merged(self, b: IRBuilder, tag: ir.Value, mask: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return a word's tag after a store to some of its bytes, and the bytes that this warp had already stored."""
        is_own = b.icmp("ule", b.xor(tag, self.tag), WORD_BYTES)
        kept = b.select(is_own, tag, self.tag)
        return b.or_(kept, mask), b.and_(kept, mask)

    def note(self, b: IRBuilder, cause: InexactCause) -> None:
        """Record a reason why the result may differ from a GPU's."""
        b.store(b.or_(b.load(self.cause, typ=I8), int(cause)), self.cause)


def writer_of(
    b: IRBuilder, context: ir.Value, row: ir.Value, at: ir.Value, shadow: ir.Value, *, is_shared: bool
) -> Writer:
    """Return the `Writer` for the warp in row `row`."""
    tag = b.element(b.element(context, ctx.WRITERS, POINTER), row)
    has_waited = b.icmp("slt", tag, 0)
    across = b.select(has_waited, constant(I64, 0), constant(I64, 0 if is_shared else BLOCK_FIELD))
    return Writer(shadow, tag, across, b.at(b.element(context, ctx.INST_CAUSES, POINTER), at, I8))


def define_end_wait(module: ir.Module) -> None:
    """Define `end_wait(context, row, mask, across)`, which orders the block's later stores after earlier stores.

    The earlier stores are those of the same block if `across` is 0, and those of all blocks otherwise.
    """
    with define(module, "end_wait", VOID, POINTER, I64, I32, I64) as (b, context, row, mask, across):
        with b.if_then(b.icmp("eq", mask, 0)):
            b.ret_void()
        count = b.element(context, ctx.BLOCK_WARPS)
        first = b.sub(row, b.urem(row, count))
        with b.count_to(b.add(first, count), first) as index:
            place = b.at(b.element(context, ctx.WRITERS, POINTER), index)
            b.store(b.or_(b.add(b.load(place, typ=I64), 1 << INTERVAL_SHIFT), across), place)


def store_order(size: int) -> list[int]:
    """Return the lanes of a warp in the order in which they store `size` bytes each; the last store wins."""
    together = min(LANES, SERVED_BYTES // size)
    return [lane ^ (together - 1) for lane in range(LANES)]


def own_element(b: IRBuilder, items: ir.Value, bits: int, index: int, lane: ir.Value | int) -> ir.Value:
    """Return the address of one element in a lane's data."""
    return b.at(b.at(items, LANES * bits // 8 * index, I8), lane, ir.IntType(bits))


def define_tagged(module: ir.Module, bits: int, count: int, cause: InexactCause) -> None:
    """Define `tagged_B_C`, which tags the words that a warp stores to and calls the mover of the same module.

    `cause` is recorded if lanes of one instruction store different bytes to the same address.
    """
    size, element = bits // 8 * count, ir.IntType(bits)
    define_resolve(module, bits, count)
    with define(module, f"tagged_{bits}_{count}", VOID, *TAGGED_TYPES, attribute="nounwind") as (b, *arguments):
        part, places, delta, items = mover = arguments[:4]
        writer = Writer(*arguments[4:])
        own = b.or_(writer.tag, WORD_BYTES)
        tag_line(b, mover, writer, own, size, f"store_{bits}_{count}")
        may_repeat = Variable(b, constant(I1, 0))
        with b.each_bit(part) as lane:
            place = b.element(places, lane)
            tags_at = writer.tags_at(b, b.and_(place, -WORD))
            lane_tags = vector(64, max(1, size // WORD))
            tags = b.load(tags_at, typ=I64 if size < WORD else lane_tags, align=8)
            mask = b.shl(constant(I64, (1 << size) - 1), b.and_(place, WORD - 1)) if size < WORD else WORD_BYTES
            is_foreign = writer.is_foreign(b, tags, mask)
            with b.if_else(is_foreign if size < WORD else b.any(is_foreign)) as (met, free):
                with met:
                    b.call_named(f"resolve_{bits}_{count}", VOID, lane, place, delta, items, *writer)
                    may_repeat.set(1)
                with free:
                    if size < WORD:
                        merged, repeated = writer.merged(b, tags, mask)
                        is_own = b.icmp("ne", repeated, 0)
                    else:
                        merged = b.broadcast(own, lane_tags.count)
                        is_own = b.any(b.icmp("eq", tags, merged))
                    b.store(merged, tags_at, align=8)
                    may_repeat.set(b.or_(may_repeat.get(), is_own))
        b.call_named(f"store_{bits}_{count}", VOID, *mover)
        with b.if_then(may_repeat.get()):
            changed = Variable(b, constant(element, 0))
            with b.each_bit(part) as lane:
                start = b.inttoptr(b.add(b.element(places, lane), delta), POINTER)
                for index in range(count):
                    stored = b.load(b.at(start, index, element), typ=element, align=1)
                    given = b.load(own_element(b, items, bits, index, lane), typ=element, align=1)
                    changed.set(b.or_(changed.get(), b.xor(stored, given)))
            with b.if_then(b.icmp("ne", changed.get(), 0)):
                writer.note(b, cause)


def tag_line(b: IRBuilder, mover: list[ir.Value], writer: Writer, own: ir.Value, size: int, store: str) -> None:
    """Emit the fast path for lanes that fill one line: tag and store with vectors, then return from the function."""
    part, places, _, _ = mover
    every, begin = b.load(places, typ=vector(64), align=8), b.element(places, 0)
    distances, begins = integers(size * lane for lane in range(LANES)), b.broadcast(begin)
    is_line = b.icmp("eq", b.reduce("or", b.xor(every, b.add(begins, distances))), 0)
    if size < WORD:
        is_line = b.and_(is_line, b.icmp("eq", b.and_(begin, WORD - 1), 0))
    is_swizzled = b.icmp("eq", b.reduce("or", b.xor(b.xor(every, begins), distances)), 0)
    with b.if_then(b.and_(b.icmp("eq", part, -1), b.or_(is_line, is_swizzled))):
        start = b.and_(begin, b.select(is_line, constant(I64, -1), constant(I64, -LANES * size)))
        tags_at = writer.tags_at(b, start)
        line_words = LANES * size // WORD
        kind = vector(64, min(line_words, LANES))
        pieces = [b.at(tags_at, first) for first in range(0, line_words, kind.count)]
        is_foreign = constant(vector(1, kind.count), 0)
        for piece in pieces:
            is_foreign = b.or_(is_foreign, writer.is_foreign(b, b.load(piece, typ=kind, align=8), WORD_BYTES))
        with b.if_then(b.not_(b.any(is_foreign))):
            for piece in pieces:
                b.store(b.broadcast(own, kind.count), piece, align=8)
            b.call_named(store, VOID, *mover)
            b.ret_void()


def define_resolve(module: ir.Module, bits: int, count: int) -> None:
    """Define `resolve_B_C`, which tags one lane's words and compares its bytes with those that other lanes stored."""
    unit = bits // 8
    size = unit * count
    types = (I32, I64, I64, POINTER, *TAGGED_TYPES[4:])
    with define(module, f"resolve_{bits}_{count}", VOID, *types, attribute="noinline") as (b, *arguments):
        lane, place, delta, items = arguments[:4]
        writer = Writer(*arguments[4:])
        lane_start = b.mul(b.zext(lane, I64), unit)
        mask = constant(I64, WORD_BYTES)
        if size < WORD:
            mask = b.shl(constant(I64, (1 << size) - 1), b.and_(place, WORD - 1))
        own = b.or_(writer.tag, mask)
        with b.count_to(max(1, size // WORD)) as index:
            word = b.add(b.and_(place, -WORD), b.mul(index, WORD))
            tag_at = writer.tags_at(b, word)
            tag = b.load(tag_at, typ=I64)
            with b.if_else(writer.is_foreign(b, tag, mask)) as (met, free):
                with free:
                    b.store(writer.merged(b, tag, mask)[0], tag_at)
                with met:
                    overlap, changed = b.and_(tag, mask), Variable(b, constant(I8, 0))
                    with b.count_to(WORD) as byte, b.if_then(b.trunc(b.lshr(overlap, byte), I1)):
                        address = b.add(word, byte)
                        stored = b.load(b.inttoptr(b.add(address, delta), POINTER), typ=I8)
                        inside = b.sub(address, place)
                        start = b.mul(b.udiv(inside, unit), LANES * unit)
                        given = b.element(items, b.add(b.add(start, lane_start), b.urem(inside, unit)), I8)
                        changed.set(b.or_(changed.get(), b.xor(stored, given)))
                    is_changed = b.icmp("ne", changed.get(), 0)
                    with b.if_then(is_changed):
                        writer.note(b, InexactCause.OVERLAPPING_STORES)
                    keeps = b.and_(b.icmp("eq", overlap, mask), b.not_(is_changed))
                    b.store(b.select(keeps, tag, own), tag_at)
