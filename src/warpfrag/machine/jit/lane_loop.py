"""A loop over the lanes of one warp, one group at a time; registers are loaded at their first read.

    loop = LaneLoop(ir, warp, mask)          opens the loop: code is appended to its body
    loop.leave()                             continues after the loop
    loop.finish(stored, offsets)             writes registers back, and closes the loop

A segment is a sequence of such loops, with calls for the whole warp in between. Values pass from one loop to the next
through the warp's registers in memory. Which registers are needed is known only at the end of the segment, so all loops
are finished there.
"""

from collections.abc import Iterable

from llvmlite import ir as llvm

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.ir.program import Register
from warpfrag.machine.jit.ir_builder import GROUP, I8, I32, I64, IRBuilder, Value, constant, integers, vector
from warpfrag.machine.jit.register_flow import REGISTER_ALIGN

SIZES = (1, 2, 4, 8)  # bytes per element


class LaneLoop:
    """A loop over groups of lanes; `current` maps registers to values, and `changed` lists registers to write back."""

    def __init__(self, ir: IRBuilder, warp: Value, mask: Value) -> None:
        """Open the loop; `mask` has the warp's active lanes."""
        self.ir, self.mask, head = ir, mask, ir.block
        self.body = ir.append_basic_block("lanes")
        ir.branch(self.body)
        ir.position_at_end(self.body)
        self.first = ir.phi(I64)
        self.first.add_incoming(constant(I64, 0), head)
        self.head = head
        self.bases = {size: self.place(warp, size) for size in SIZES}
        self.current: dict[int, Value] = {}
        self.loaded: dict[int, Value] = {}
        self.changed: dict[int, Register] = {}
        self.collected: list[tuple[llvm.PhiInstr, Value]] = []
        self.taken: set[int] = set()  # the element sizes, in bits, that this loop loads from %items

    def place(self, array: Value, size: int) -> Value:
        """Return the address of the current group's elements in an array with `size` bytes per lane."""
        return self.ir.at(array, self.ir.mul(self.first, size) if size > 1 else self.first, I8)

    def load(self, offset: int, bits: int) -> Value:
        """Load the group's values from the register at `offset`; predicates are stored as bytes."""
        size = max(8, bits) // 8
        value = self.ir.load(
            self.ir.at(self.bases[size], offset, I8),
            typ=vector(8 * size, GROUP),
            align=min(REGISTER_ALIGN, GROUP * size),
        )
        return self.ir.icmp("ne", value, 0) if bits == 1 else value

    def active(self, mask: Value | None = None) -> Value:
        """Return the current group's bits of a lane mask (default: the active lanes) as a predicate."""
        ir = self.ir
        bits = ir.broadcast(ir.lshr(self.mask if mask is None else mask, ir.resize(self.first, 32)), GROUP)
        return ir.icmp("ne", ir.and_(bits, integers((1 << lane for lane in range(GROUP)), 32)), 0)

    def collect(self, predicate: Value) -> Value:
        """Collect the groups' values of a predicate into a 32-bit mask, which is valid after the loop."""
        ir = self.ir
        here = ir.block
        ir.position_at_start(self.body)
        before = ir.phi(I32)
        before.add_incoming(constant(I32, 0), self.head)
        ir.position_at_end(here)
        bits = ir.resize(ir.lane_mask(predicate), 32)
        after = ir.or_(before, ir.shl(bits, ir.resize(self.first, 32)))
        self.collected.append((before, after))
        return after

    def leave(self) -> None:
        """End the loop body and continue after the loop."""
        self.last = self.ir.block
        self.after = self.ir.append_basic_block("after")
        self.ir.position_at_end(self.after)

    def finish(self, stored: Iterable[Register], offsets: tuple[int, ...]) -> None:
        """Write registers back in the active lanes and close the loop."""
        ir = self.ir
        ir.position_at_end(self.last)
        active = None
        for register in stored:
            index, size = register.index, max(8, register.bits) // 8
            active = active or self.active()
            old = self.loaded.get(index) or self.load(offsets[index], register.bits)
            value = ir.resize(ir.select(active, self.current[index], old), 8 * size)
            ir.store(value, ir.at(self.bases[size], offsets[index], I8), min(REGISTER_ALIGN, GROUP * size))
        following = ir.add(self.first, GROUP)
        self.first.add_incoming(following, self.last)
        for before, after in self.collected:
            before.add_incoming(after, self.last)
        ir.cbranch(ir.icmp("ult", following, LANES), self.body, self.after)
