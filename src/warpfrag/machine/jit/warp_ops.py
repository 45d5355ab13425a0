"""Operations across the 32 lanes of a warp in LLVM: votes, matches, reductions, elections.

The functions in `WARP_LOWERINGS` take the builder, the attributes and the operands of an instruction, and return its
results, or None if the interpreter must run it. They assume that all 32 lanes are active; `vote_of_active` handles any
mask of lanes.
"""

from collections.abc import Callable

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.wgmma_registers import groups_left, is_proxy_fence
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.opcode import Attributes
from warpfrag.machine.ir.program import DecodedInstruction
from warpfrag.machine.jit.ir_builder import IRBuilder, Value, integers, splat

Results = tuple[Value, ...]

EVERYONE = (1 << LANES) - 1
REDUCTIONS = {
    ("add", "u"): "add", ("add", "s"): "add", ("min", "u"): "umin", ("min", "s"): "smin", ("max", "u"): "umax",
    ("max", "s"): "smax", ("and", "b"): "and", ("or", "b"): "or", ("xor", "b"): "xor",
}  # fmt: skip
"""LLVM vector reductions by operation and signedness."""


def vote(ir: IRBuilder, attributes: Attributes, operands: list[Value]) -> Results:
    """Lower vote, which returns all, any or uni of the predicates, or for ballot the predicates as bits."""
    bits = ir.lane_mask(operands[0])
    if attributes.operation == "ballot":
        return (ir.broadcast(bits),)
    every, none = (ir.icmp("eq", bits, number) for number in (-1, 0))
    answers = {"all": every, "any": ir.not_(none), "uni": ir.or_(every, none)}
    return (ir.broadcast(answers[attributes.operation or ""]),)


def match(ir: IRBuilder, attributes: Attributes, operands: list[Value]) -> Results:
    """Lower match, which returns the lanes with the same value; match.all also returns True if all lanes match."""
    value = operands[0]
    if attributes.operation == "all":
        same = ir.lane_mask(ir.icmp("eq", value, ir.permute(value, [0] * LANES)))
        every = ir.broadcast(ir.icmp("eq", same, -1))
        return ir.select(every, splat(EVERYONE, 32, LANES), splat(0, 32, LANES)), every
    lanes = splat(0, 32, LANES)
    for lane in range(LANES):
        equal = ir.icmp("eq", value, ir.permute(value, [lane] * LANES))
        lanes = ir.select(equal, ir.or_(lanes, 1 << lane), lanes)
    return (lanes,)


def reduce_lanes(ir: IRBuilder, attributes: Attributes, operands: list[Value]) -> Results | None:
    """Lower integer redux, which reduces a value over all lanes."""
    name = REDUCTIONS.get((attributes.operation or "", attributes.types[0].kind))
    return None if name is None else (ir.broadcast(ir.reduce(name, operands[0])),)


def elect(_ir: IRBuilder, _attributes: Attributes, _operands: list[Value]) -> Results:
    """Lower elect, which returns the first lane's number and a predicate that is true only in that lane."""
    return splat(0, 32, LANES), integers((lane == 0 for lane in range(LANES)), 1)


WARP_LOWERINGS: dict[str, Callable[[IRBuilder, Attributes, list[Value]], Results | None]] = {
    "vote": vote, "match": match, "redux": reduce_lanes, "elect": elect,
    "activemask": lambda _ir, _attributes, _operands: (splat(EVERYONE, 32, LANES),),
}  # fmt: skip
"""Lowerings by opcode; shuffles are lowered in `WarpCode.shuffle`."""


MASKED = {"activemask", "first_lane", "first_value", "vote"}


def is_masked(inst: DecodedInstruction) -> bool:
    """Return True for an operation that is compiled for any mask of active lanes."""
    action = inst.action
    return isinstance(action, actions.WarpCollective) and not action.synced and inst.attributes.opcode in MASKED


def vote_of_active(ir: IRBuilder, attributes: Attributes, bits: Value, mask: Value) -> Value:
    """Return the mask of the active lanes, or the scalar result of their vote on the predicate mask `bits`."""
    if attributes.opcode == "activemask":
        return mask
    bits = ir.and_(bits, mask)
    if attributes.operation == "ballot":
        return bits
    every, none = ir.icmp("eq", bits, mask), ir.icmp("eq", bits, 0)
    return {"all": every, "any": ir.not_(none), "uni": ir.or_(every, none)}[attributes.operation or ""]


def row_elements(half: int, *, trans: bool) -> list[int]:
    """Return the indices of the fragment elements that fill one half of eight rows, row by row."""
    if not trans:  # words: word w of row r is in lane 4 r + w
        return [4 * row + 2 * half + word for row in range(8) for word in range(2)]
    columns = [4 * half + column for column in range(4)]
    return [2 * (4 * column + row // 2) + row % 2 for row in range(8) for column in columns]


def fragment_elements(matrix: int, *, trans: bool) -> list[int]:
    """Return the index of each fragment element in the loaded rows: all first halves, then all second halves."""
    if not trans:  # words: lane l has word l % 4 of row l / 4
        return [64 * (lane % 4 // 2) + 2 * (8 * matrix + lane // 4) + lane % 2 for lane in range(LANES)]
    places: list[int] = []
    for lane in range(LANES):  # elements: lane l has column l / 4 of rows 2 (l % 4) and the next
        first = 128 * (lane // 16) + 4 * (8 * matrix + 2 * (lane % 4)) + lane // 4 % 4
        places += [first, first + 4]
    return places


def group_events(inst: DecodedInstruction) -> list[int | None]:
    """Return an instruction's effects on copy or wgmma groups: None closes a group, n leaves at most n pending.

    fence.proxy.async is reported like a closed group, although it concerns no group.
    """
    words = inst.name.split(".")
    if is_proxy_fence(inst):
        return [None]
    if words[0] == "wgmma":
        words = ["cp", "async", *words[1:]]
    if words[:2] != ["cp", "async"] or "mbarrier" in words:
        return []
    words = [word for word in words if word != "bulk"]
    groups: dict[str, list[int | None]] = {
        "commit_group": [None], "wait_all": [None, 0], "wait_group": [groups_left(inst)],
    }  # fmt: skip
    return groups.get(words[2], [])
