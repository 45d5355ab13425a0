"""Find compare-and-swap loops that perform one commuting atomic; ptxas emits them for 64-bit atomics in shared memory.

    again: old = load [a]            and for min and max:    again: old = load [a]
           new = f(old)                                             if x >= old: leave
           if cas [a], old, new fails: again                        if cas [a], old, x fails: again

The order in which threads run such loops does not change memory if f is a sum, a bitwise operation, a minimum or a
maximum. This is proved from the instructions: the loop is executed symbolically, sums are matched operation by
operation, and bitwise functions and comparisons are evaluated for all distinct cases. The registers after a loop do
depend on the order.

Some proofs require two values to be equal: the addresses of the load and the swap, or the compared and stored words. If
the code computes them by different expressions, the proof holds only for threads in which they are equal
(`CasLoop.holds`). This is checked when the loop runs, so it does not matter how the code copied a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.machine.interpreter.warp_state import INEXACT
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import (
    BankOperand,
    DecodedInstruction,
    Immediate,
    MemoryOperand,
    Program,
    PtxOperand,
    Register,
    SpecialRegister,
    VectorOperand,
    indices_of,
    registers_of,
)
from warpfrag.machine.ir.scalar_types import B32, TYPES, Codes, Type

MEMBERS = actions.MemoryLoad | actions.Atomic | actions.Branch
BITWISE = {"lop3", "and", "or", "xor", "not"}
LOGIC = {"and", "or", "xor", "not"}
FIXED = {"operand", "value"}
"""The names of nodes whose value is the same in every iteration, but may differ between threads."""
MAX_LEAVES = 4
SWAP_SOURCES = 3
PAIR_BITS = 64
WORD_BITS = 32
MAX_WORD = 0xFFFFFFFF
ENDS = (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
"""Sample words: their pairs have every relative order, as signed and as unsigned integers."""
ORDERS = {"min": np.greater, "max": np.less}


class Node(NamedTuple):
    """A value in a loop.

    `name` is "constant", "operand", "value", "old", "swapped" or "done" for a leaf, and "" for other values. A "value"
    is computed from constants and operands only; proofs treat it as unknown.
    """

    name: str
    number: Any  # the constant, the operand, or the number of the operation's result
    inst: DecodedInstruction | None = None
    sources: tuple[Any, ...] = ()  # nodes, or tuples of nodes for register pairs

    @property
    def leaves(self) -> set[Node]:
        """The leaves that the value depends on, without constants."""
        return {node for node in self.operations() if node.name not in {"", "constant"}}

    @property
    def operands(self) -> set[Node]:
        """The registers and other operands that the value depends on."""
        return {node for node in self.operations(whole=True) if node.name == "operand"}

    def depends_on_memory(self) -> bool:
        """Return True if the value depends on a loaded value or on the result of the swap."""
        return any(leaf.name in {"old", "swapped"} for leaf in self.leaves)

    def operations(self, *, whole: bool = False) -> Iterator[Node]:
        """Yield this value and all values from which it is computed, those of a "value" only if `whole` is set."""
        yield self
        for source in self.sources if whole or self.name != "value" else ():
            for node in (source,) if isinstance(source, Node) else source:
                yield from node.operations(whole=whole)


class EqualValues(NamedTuple):
    """Two values that must be equal after `difference` is added to the first."""

    first: Node
    second: Node
    difference: int = 0


def cas_loops(program: Program) -> dict[int, CasLoop]:
    """Return the proven loops, keyed by the indices of their loads, compare-and-swaps and branches."""
    found: dict[int, CasLoop] = {}
    for at, inst in enumerate(program.instructions):
        if isinstance(inst.action, actions.Atomic) and inst.action.name == "cas":
            span = loop_around(program, at)
            loop = None if span is None else CasLoop(program, span)
            if span is not None and loop is not None and loop.operation:
                found |= {n: loop for n in span if isinstance(program.instructions[n].action, MEMBERS)}
    return found


def loop_around(program: Program, at: int) -> range | None:
    """Return the innermost loop around an instruction, if it has one or two blocks and one entry."""
    instructions = program.instructions
    own = max(start for start in (0, *program.ends) if start <= at)
    end = program.ends[at]
    last = instructions[end - 1]
    if not isinstance(last.action, actions.Branch) or len(last.targets) != 1 or last.guard is None:
        return None
    start = last.targets[0]
    if not start <= at or program.ends[start] not in {end, own}:
        return None
    indirect = {target for inst in instructions if isinstance(inst.action, actions.Jump) for target in
                inst.action.starts.values()}  # fmt: skip
    targets = {target for inst in instructions for target in inst.targets} | indirect
    return None if any(start < target < end for target in targets) else range(start, end)


class CasLoop:
    """A loop around a compare-and-swap, after one symbolic execution."""

    def __init__(self, program: Program, loop: range) -> None:
        """Execute the loop symbolically, once."""
        self.loop = loop
        self.body = [program.instructions[number] for number in loop]
        self.values: dict[int, Node] = {}
        self.written = {index for inst in self.body for index in indices_of(inst.results)}
        self.guards: list[tuple[DecodedInstruction, Node]] = []  # the branches and their conditions
        self.first: dict[int, Node] = {}  # the register values at the first branch
        self.swap: tuple[Any, Any, Any] | None = None  # the address, the expected value and the new value
        self.load: tuple[Any, ...] | None = None
        self.is_plain = True
        for inst in self.body:
            self.follow(inst)
        self.equal: list[EqualValues] = []
        self.operation = self.matched()
        self.left_registers = self.uncertain_registers()

    def follow(self, inst: DecodedInstruction) -> None:
        """Execute an instruction symbolically."""
        action = inst.action
        if isinstance(action, actions.Branch):
            self.is_plain &= inst.guard is not None and not action.indexed
            if inst.guard is not None:
                self.guards.append((inst, self.node(inst.guard)))
                self.first = self.first or dict(self.values)
        elif inst.guard is not None:
            self.is_plain = False
        elif isinstance(action, actions.MemoryLoad) and self.load is None:
            self.is_plain &= action.space == "shared" and action.count * action.type.bits == PAIR_BITS
            self.load = self.address(inst.sources[0])
            self.put(inst.results[0], [Node("old", 0), Node("old", 1)])
        elif isinstance(action, actions.Atomic) and self.swap is None and len(inst.sources) == SWAP_SOURCES:
            self.is_plain &= action.space == "shared"
            expected, new = (tuple(self.words(source, 2)) for source in inst.sources[1:])
            self.swap = self.address(inst.sources[0]), expected, new
            self.put(inst.results[0], [Node("swapped", 0)])
        elif isinstance(action, actions.Move):
            registers = list(registers_of(inst.results[0]))
            whole = [self.node(inst.sources[0], registers[0].bits)] if len(registers) == 1 else []
            self.put(inst.results[0], whole or self.words(inst.sources[0], len(registers)))
        elif isinstance(action, actions.LaneOp):
            sources = tuple(
                self.node(operand, kind.bits if kind else WORD_BITS)
                for operand, kind in zip(inst.sources, action.sources, strict=True)
            )
            is_answer = inst.name.startswith("setp.eq.b64") and self.swap is not None
            is_answer = is_answer and set(sources) == {Node("swapped", 0), self.swap[1] if self.swap else None}
            for number, operand in enumerate(inst.results):
                self.put(operand, [Node("done", 0) if is_answer else Node("", number, inst, sources)] * 2)
        elif not isinstance(action, actions.NoOp):
            self.is_plain = False

    def node(self, operand: PtxOperand, bits: int = WORD_BITS) -> Any:  # noqa: ANN401 (a node or a tuple of nodes)
        """Return the symbolic value of an operand, or of its words."""
        if isinstance(operand, VectorOperand) or (isinstance(operand, BankOperand) and bits > WORD_BITS):
            items = tuple(self.words(operand, bits // WORD_BITS))
            return items if len(items) > 1 else items[0]
        if isinstance(operand, Register):
            own = self.values.get(operand.index, Node("operand", replace(operand, negated=False)))
            return Node("", "not", None, (own,)) if operand.negated else own
        is_special = isinstance(operand, SpecialRegister) and operand.name.partition(".")[0] not in INEXACT
        self.is_plain &= is_special or isinstance(operand, BankOperand | Immediate)
        return Node("constant" if isinstance(operand, Immediate) else "operand", operand)

    def words(self, operand: PtxOperand, count: int) -> list[Any]:
        """Return the symbolic values of the words of an operand."""
        if isinstance(operand, VectorOperand):
            return [word for item in operand.items for word in self.words(item, 1)]
        if isinstance(operand, BankOperand):
            return [Node("operand", BankOperand(operand.offset + 4 * word)) for word in range(count)]
        if isinstance(operand, Immediate):
            code = operand.code(None)
            return [Node("constant", Immediate(code >> WORD_BITS * word & MAX_WORD)) for word in range(count)]
        return [self.node(operand)]

    def address(self, operand: PtxOperand) -> tuple[Any, int]:
        """Return a symbolic address, as base and offset."""
        if not isinstance(operand, MemoryOperand) or operand.space:
            self.is_plain = False
            return Node("constant", Immediate(0)), 0
        return Node("constant", Immediate(0)) if operand.base is None else self.node(operand.base), operand.offset

    def put(self, operand: PtxOperand, nodes: list[Any]) -> None:
        """Set the symbolic value of a result; a register pair gets a node for each word."""
        registers = list(registers_of(operand))
        self.is_plain &= len(registers) <= len(nodes)
        for number, (register, node) in enumerate(zip(registers, nodes, strict=False)):
            if isinstance(node, Node) and node.inst is not None and not node.name:
                is_part = isinstance(operand, VectorOperand)
                node = simplified(node._replace(number=(node.number, number)) if is_part else node)  # noqa: PLW2901
            self.values[register.index] = node

    def matched(self) -> str:
        """Return the commuting operation that the loop provably computes, or an empty string."""
        if not self.is_plain or self.swap is None or self.load is None:
            return ""
        (base, offset), expected, new = self.swap
        olds = Node("old", 0), Node("old", 1)
        if expected != olds or len(new) != len(olds) or not all(isinstance(node, Node) for node in (base, *new)):
            return ""
        *early, (last, again) = self.guards
        loaded, start = self.load
        if not all(node.name in {*FIXED, "constant"} for node in (loaded, base)):
            return ""
        if self.varies(loaded, base, *new) or not self.repeats(last, again):
            return ""
        if (base, offset) != self.load:
            self.equal.append(EqualValues(base, loaded, offset - start))
        if not early and all(node.name in FIXED for node in new):
            self.equal += [EqualValues(node, Node("constant", Immediate(MAX_WORD))) for node in new]
            return "or"
        if not early:
            return bitwise(new) or ("add" if is_sum(new) else "")
        (leaving, guard), *others = early
        is_leaving = all(target not in self.loop for target in leaving.targets)
        if not is_leaving or others:
            return ""
        name, compared = extreme(leaving, guard, new)
        self.equal += [EqualValues(*pair) for pair in zip(compared, new, strict=False) if pair[0] != pair[1]]
        return "" if self.varies(guard) else name

    def varies(self, *nodes: Node) -> bool:
        """Return True if a value depends on a register that an earlier iteration wrote."""
        return bool(indices_of(leaf.number for node in nodes for leaf in node.operands) & self.written)

    def holds(self, read: Callable[[PtxOperand], Codes]) -> bool:
        """Return True if the values in `equal` are equal; `read` returns the codes of an operand in the threads."""
        for first, second, difference in self.equal:
            leaves = {leaf: read(leaf.number) for leaf in first.operands | second.operands}
            codes = [evaluate(node, leaves).astype(np.int64) for node in (first, second)]
            if np.any((codes[0] + difference - codes[1]) % 2**32):
                return False
        return True

    def repeats(self, last: DecodedInstruction, guard: Node) -> bool:
        """Return True if the loop repeats exactly when the swap fails."""
        if guard.leaves != {Node("done", 0)}:
            return False
        taken = evaluate(guard, {Node("done", 0): np.array([False, True])})
        return bool(taken[0]) and not taken[1] and last.targets == (self.loop.start,)

    def uncertain_registers(self) -> list[set[int]]:
        """Return, for each branch, the registers that depend on the order of threads if the loop is left there."""
        exits = [{index for index, node in self.values.items() if node.depends_on_memory()}]
        for _, guard in self.guards[:-1]:  # registers written after this branch depend on how often the loop repeats
            own = {index for index, node in self.first.items() if node != guard and node.depends_on_memory()}
            exits.insert(0, own | (self.written - self.first.keys()))
        return exits


def evaluate(node: Any, leaves: Mapping[Node, Codes], kind: Type = B32) -> Codes:  # noqa: ANN401
    """Evaluate a node, or a pair of nodes, given the values of its leaves."""
    if not isinstance(node, Node):
        low, high = (evaluate(part, leaves).astype(np.uint64) for part in node)
        return low | high << np.uint64(32)
    if node.name == "constant":
        return np.asarray(node.number.code(kind), kind.dtype)
    if node in leaves:
        return leaves[node]
    if node.inst is None:
        return ~evaluate(node.sources[0], leaves, TYPES["pred"])
    action: Any = node.inst.action
    sources = [
        source.number.code(None) if own is None else evaluate(source, leaves, own).astype(own.dtype)
        for source, own in zip(node.sources, action.sources, strict=True)
    ]
    shape = np.broadcast_shapes(*(np.shape(source) for source in sources))
    sources = [
        source if own is None else np.broadcast_to(source, shape)
        for source, own in zip(sources, action.sources, strict=True)
    ]
    found = action.function(*sources)
    number, word = node.number if isinstance(node.number, tuple) else (node.number, 0)
    result = found[number] if isinstance(found, tuple) else found
    return (result >> result.dtype.type(32 * word)).astype(np.uint32) if isinstance(node.number, tuple) else result


def simplified(node: Node) -> Node:
    """Return the node, evaluated if all leaves are constants, or renamed to "value" if it does not depend on memory."""
    if node.name or any(leaf.name not in FIXED for leaf in node.leaves):
        return node
    return node._replace(name="value") if node.leaves else Node("constant", Immediate(int(evaluate(node, {}))))


def bitwise(new: tuple[Node, ...]) -> str:
    """Return "and", "or" or "xor" if each new bit is that function of the old bit, whatever the other operands are."""
    effects = set()
    for word, node in enumerate(new):
        if any(part.inst is not None and part.inst.attributes.opcode not in BITWISE for part in node.operations()):
            return ""
        others = sorted(node.leaves - {Node("old", word)}, key=str)
        if len(others) > MAX_LEAVES or any(leaf.name not in FIXED for leaf in others):
            return ""
        rows = np.array(list(product((0, 0xFFFFFFFF), repeat=len(others))), np.uint32).reshape(2 ** len(others), -1)
        given = {leaf: rows[:, at] for at, leaf in enumerate(others)}
        ends = [np.full(len(rows), end, np.uint32) for end in (0, 0xFFFFFFFF)]
        low, high = (evaluate(node, {**given, Node("old", word): end}) for end in ends)
        by_name = {"clear": ~low & ~high, "set": low & high, "keep": ~low & high, "flip": low & ~high}
        effects |= {name for name, bits in by_name.items() if np.any(bits)}
    names = {"and": {"clear", "keep"}, "or": {"set", "keep"}, "xor": {"flip", "keep"}}
    return next((name for name, allowed in names.items() if effects <= allowed), "")


def is_sum(new: tuple[Node, ...]) -> bool:
    """Return True if a pair of words is the old pair plus a loop-invariant pair, with a carry between the words."""
    low, high = new
    if any(node.inst is None or node.inst.attributes.opcode != "iadd3" or node.number != 0 for node in new):
        return False
    lows, highs = low.sources[:2], [same_word(part) for part in high.sources[:3]]
    others = [part for part in lows if part != Node("old", 0)] + [part for part in highs if part != Node("old", 1)]
    is_fixed = all(leaf.name in FIXED for part in others for leaf in part.leaves)
    carries = [part for part in high.sources[3:] if not is_number(part, 0)]
    is_carried = carries == [low._replace(number=1)] and all(is_number(part, 0) for part in low.sources[2:])
    return is_fixed and is_carried and lows.count(Node("old", 0)) == highs.count(Node("old", 1)) == 1


def same_word(node: Node) -> Node:
    """Return the other factor if a value is a multiplication by 1, else the value itself."""
    is_product = node.inst is not None and node.inst.name.startswith("mul.lo")
    factors = [source for source in node.sources if not is_number(source, 1)] if is_product else []
    return factors[0] if len(factors) == 1 else node


def is_number(node: Node, number: int) -> bool:
    """Return True if a value is the given constant."""
    return node.name == "constant" and node.number.code(B32) == number


def is_word(node: Any) -> bool:  # noqa: ANN401
    """Return True for the old value and for values that do not depend on it."""
    return not isinstance(node, Node) or node.name in {"old", *FIXED}


def extreme(leaving: DecodedInstruction, guard: Node, new: tuple[Node, ...]) -> tuple[str, list[Node]]:
    """Return the minimum or maximum that a loop computes, such as "min.u8" (8 bytes), and the words that it compares.

    Such a loop exits early if the new value would not replace the old one. It compares word by word, so it is enough to
    test words in every relative order. The result is valid only if the compared words are also the stored words, which
    the caller must check.
    """
    failed = "", list[Node]()
    olds = Node("old", 0), Node("old", 1)
    compared: list[set[Node]] = [set(), set()]
    for node in guard.operations():
        opcode = "not" if node.inst is None else node.inst.attributes.opcode
        words = [word for word in range(2) if opcode == "setp" and olds[word] in node.sources[:2]]
        for word in words:
            compared[word] |= {*node.sources[:2]} - {olds[word]}
        if not node.name and not words and (opcode not in LOGIC or any(is_word(part) for part in node.sources)):
            return failed
    if leaving.guard is None or any(len(part) != 1 for part in compared):
        return failed
    own_nodes = [part for words in compared for part in words]
    if not all(node.name in {*FIXED, "constant"} for node in (*own_nodes, *new)):
        return failed
    own_words = [(node.number.code(B32),) if node.name == "constant" else ENDS for node in own_nodes]
    old_words = [{*ENDS, *((word + step) % 2**32 for word in own for step in (-1, 1))} for own in own_words]
    rows: NDArray[np.uint32] = np.array(list(product(*old_words, *own_words)), np.uint32)
    rows = rows[rows[:, 2] == rows[:, 3]] if own_nodes[0] == own_nodes[1] else rows
    leaves = {node: rows[:, at] for at, node in enumerate((*olds, *own_nodes)) if node.name != "constant"}
    if not guard.leaves <= leaves.keys():
        return failed
    is_left = evaluate(guard, leaves)
    for kind, (name, compare) in product(("u8", "i8"), ORDERS.items()):
        old, own = (np.ascontiguousarray(rows[:, at : at + 2]).view(kind)[:, 0] for at in (0, 2))
        if any(np.array_equal(is_left, found) for found in (compare(own, old), compare(own, old) | (own == old))):
            return f"{name}.{kind}", own_nodes
    return failed
