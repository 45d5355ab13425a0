"""What all 32 lanes of a warp compute together, as LLVM code: votes, matches, reductions, elections.

A function takes the builder, the attributes of the instruction and its operands, and returns the results; None where
the interpreter has to run it. All lanes are here, and take part.
"""

from __future__ import annotations

from collections.abc import Callable

from warpfrag.layout.coordinates import LANES
from warpfrag.ptx.compiler.ir_builder import IRBuilder, Value, integers, splat
from warpfrag.ptx.program.attributes import Attributes

Results = tuple[Value, ...]

EVERYONE = (1 << LANES) - 1
REDUCTIONS = {
    ("add", "u"): "add", ("add", "s"): "add", ("min", "u"): "umin", ("min", "s"): "smin", ("max", "u"): "umax",
    ("max", "s"): "smax", ("and", "b"): "and", ("or", "b"): "or", ("xor", "b"): "xor",
}  # fmt: skip
"""LLVM's vector reductions by operation and kind of type."""


def vote(ir: IRBuilder, attributes: Attributes, operands: list[Value]) -> Results:
    """vote: all, any, uni, or the predicates as bits."""
    bits = ir.lane_mask(operands[0])
    if attributes.operation == "ballot":
        return (ir.broadcast(bits),)
    every, none = (ir.icmp("eq", bits, number) for number in (-1, 0))
    answers = {"all": every, "any": ir.not_(none), "uni": ir.or_(every, none)}
    return (ir.broadcast(answers[attributes.operation or ""]),)


def match(ir: IRBuilder, attributes: Attributes, operands: list[Value]) -> Results:
    """match: the lanes with the same value; or all of them and true, where all have one."""
    value = operands[0]
    if attributes.operation == "all":
        same = ir.lane_mask(ir.icmp("eq", value, ir.permute(value, [0] * LANES)))
        every = ir.broadcast(ir.icmp("eq", same, -1))
        return ir.select(every, splat(EVERYONE, 32), splat(0, 32)), every
    lanes = splat(0, 32)
    for lane in range(LANES):
        equal = ir.icmp("eq", value, ir.permute(value, [lane] * LANES))
        lanes = ir.select(equal, ir.or_(lanes, 1 << lane), lanes)
    return (lanes,)


def reduce_lanes(ir: IRBuilder, attributes: Attributes, operands: list[Value]) -> Results | None:
    """redux of integers: one number of all lanes."""
    name = REDUCTIONS.get((attributes.operation or "", attributes.types[0].kind))
    if name is None:
        return None
    return (ir.broadcast(ir.reduce(name, operands[0])),)


def elect(_ir: IRBuilder, _attributes: Attributes, _operands: list[Value]) -> Results:
    """elect: the first lane, by number and by predicate."""
    return splat(0, 32), integers((lane == 0 for lane in range(LANES)), 1)


def active_lanes(_ir: IRBuilder, _attributes: Attributes, _operands: list[Value]) -> Results:
    """activemask: everyone."""
    return (splat(EVERYONE, 32),)


WARP_LOWERINGS: dict[str, Callable[[IRBuilder, Attributes, list[Value]], Results | None]] = {
    "vote": vote,
    "match": match,
    "redux": reduce_lanes,
    "elect": elect,
    "activemask": active_lanes,
}
"""By opcode; shuffles are `WarpCode.shuffle`."""
