"""What all 32 lanes of a warp compute together, as LLVM code: votes, matches, reductions, elections.

A function takes the builder, the attributes of the instruction and its operands, and returns the results; None where
the interpreter has to run it. All lanes are here, and take part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.layout.coordinates import LANES
from warpfrag.ptx.compiler.ir_builder import IntLanes, splat

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.ptx.compiler.ir_builder import IRBuilder
    from warpfrag.ptx.program.attributes import Attributes

    Results = tuple[IntLanes, ...]

EVERYONE = (1 << LANES) - 1
REDUCTIONS = {
    ("add", "u"): "add", ("add", "s"): "add", ("min", "u"): "umin", ("min", "s"): "smin", ("max", "u"): "umax",
    ("max", "s"): "smax", ("and", "b"): "and", ("or", "b"): "or", ("xor", "b"): "xor",
}  # fmt: skip
"""LLVM's vector reductions by operation and kind of type."""


def broadcast(ir: IRBuilder, scalar: str, bits: int) -> IntLanes:
    """A scalar in every lane."""
    kind = f"<{LANES} x i{bits}>"
    first = ir.assign(f"insertelement {kind} poison, i{bits} {scalar}, i64 0")
    return IntLanes(ir.assign(f"shufflevector {kind} {first}, {kind} poison, <{LANES} x i32> zeroinitializer"), bits)


def vote(ir: IRBuilder, attributes: Attributes, operands: list[IntLanes]) -> Results:
    """vote: all, any, uni, or the predicates as bits."""
    bits = ir.lane_mask(operands[0])
    if attributes.operation == "ballot":
        return (broadcast(ir, bits, 32),)
    every, nobody = (ir.assign(f"icmp eq i32 {bits}, {number}") for number in (-1, 0))
    some = ir.assign(f"xor i1 {nobody}, true")
    uniform = ir.assign(f"or i1 {every}, {nobody}")
    return (broadcast(ir, {"all": every, "any": some, "uni": uniform}[attributes.operation or ""], 1),)


def match(ir: IRBuilder, attributes: Attributes, operands: list[IntLanes]) -> Results:
    """match: the lanes with the same value; or all of them and true, where all have one."""
    value = operands[0]
    if attributes.operation == "all":
        same = ir.lane_mask(ir.icmp("eq", value, ir.permute(value, [0] * LANES)))
        every = broadcast(ir, ir.assign(f"icmp eq i32 {same}, -1"), 1)
        return ir.select(every, splat(EVERYONE, 32), splat(0, 32)), every
    lanes = splat(0, 32)
    for lane in range(LANES):
        equal = ir.icmp("eq", value, ir.permute(value, [lane] * LANES))
        lanes = ir.select(equal, ir.or_(lanes, 1 << lane), lanes)
    return (lanes,)


def reduce_lanes(ir: IRBuilder, attributes: Attributes, operands: list[IntLanes]) -> Results | None:
    """redux of integers: one number of all lanes."""
    name = REDUCTIONS.get((attributes.operation or "", attributes.types[0].kind))
    if name is None:
        return None
    value = operands[0]
    function = f"llvm.vector.reduce.{name}.v{LANES}i32"
    ir.declarations.add(f"declare i32 @{function}({value.type})")
    return (broadcast(ir, ir.assign(f"call i32 @{function}({value})"), 32),)


def elect(_ir: IRBuilder, _attributes: Attributes, _operands: list[IntLanes]) -> Results:
    """elect: the first lane, by number and by predicate."""
    first = ", ".join(f"i1 {'true' if lane == 0 else 'false'}" for lane in range(LANES))
    return splat(0, 32), IntLanes(f"<{first}>", 1)


def active_lanes(_ir: IRBuilder, _attributes: Attributes, _operands: list[IntLanes]) -> Results:
    """activemask: everyone."""
    return (splat(EVERYONE, 32),)


WARP_LOWERINGS: dict[str, Callable[[IRBuilder, Attributes, list[IntLanes]], Results | None]] = {
    "vote": vote,
    "match": match,
    "redux": reduce_lanes,
    "elect": elect,
    "activemask": active_lanes,
}
"""By opcode; shuffles are `WarpCode.shuffle`."""
