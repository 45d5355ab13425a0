"""Track never-written values through machine code, which may read registers without using them."""

import numpy as np
from numpy.typing import NDArray

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.kernel_findings import FindingCollector
from warpfrag.machine.interpreter.lane_group import LaneGroup, items_of
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import DecodedInstruction, PtxOperand, Register, registers_of
from warpfrag.machine.ir.scalar_types import B32, Codes
from warpfrag.machine.sanitizer.unwritten import UnwrittenCheck
from warpfrag.sass.cas_loops import CasLoop

Bytes = NDArray[np.uint8]
FOLLOWED = (
    actions.LaneOp | actions.Move | actions.WarpCollective | actions.MemoryLoad | actions.MemoryStore | actions.Atomic
    | actions.MatrixOp | actions.DirectCall | actions.NoOp
)  # fmt: skip
"""Actions whose never-written operands are tracked or, if they are addresses, reported."""
BITWISE = {"lop3", "plop3", "p2r"}
"""Bitwise operations: each result bit depends on one bit of each operand."""
MAX_VARIANTS = 1 << 6


class MachineUnwrittenCheck(UnwrittenCheck):
    """The check for unwritten values in machine code, which may read registers without using them."""

    def __init__(self, state: WarpBatch, collector: FindingCollector, marked: dict[int, Bytes]) -> None:
        """Find the uniform registers, which all lanes of a warp share."""
        super().__init__(state, collector, marked)
        self.uniform: set[int] = set()
        self.exited = np.zeros((state.warps, LANES, LANES), np.bool_)  # set by the judge
        for inst in self.state.program.instructions:
            for operand in (*inst.results, *inst.sources):
                self.uniform |= {reg.index for reg in registers_of(operand) if reg.name.startswith("U")}

    def put(self, group: LaneGroup, operand: PtxOperand, mask: Codes) -> None:
        """Set the mask of a register; a uniform register is written for the whole warp."""
        super().put(group, operand, mask)
        if isinstance(operand, Register) and operand.index in self.uniform:
            own = self.masks[operand.index]
            active = group.mask.any(axis=1)
            rows = group.warp_rows[active]
            value = own[rows, group.mask[active].argmax(axis=1)]
            own[rows] = value[:, None]
            self.is_marked[operand.index] = bool(own.any())

    def put_clean(self, group: LaneGroup, operand: PtxOperand) -> None:
        """Clear the marks of an operand's registers."""
        for reg in items_of(operand):
            if isinstance(reg, Register) and reg.index in self.uniform and self.is_marked[reg.index]:
                self.put(group, reg, np.zeros(group.mask.shape, self.masks[reg.index].dtype))
            else:
                super().put_clean(group, reg)

    def before(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Report never-written registers that are read by an instruction with side effects (a store, a branch, ...)."""
        super().before(inst, group)
        if not self.is_clean and not isinstance(inst.action, FOLLOWED):
            for operand in inst.sources:
                self.check(group, operand, "an operand depends on a value that was never written")

    def may_read(self, group: LaneGroup) -> NDArray[np.bool_]:
        """Return the lanes that a shuffle may read: those that run it, and those known to have exited, which give 0."""
        return super().may_read(group) | self.exited[group.warp_rows]

    def leave_loop(self, loop: CasLoop, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Mark, in lanes that leave a compare-and-swap loop, the registers that depend on the order of threads."""
        branches = [branch for branch, _ in loop.guards]
        if inst.guard is not None and inst in branches:
            is_taken = group.of(self.state.registers[inst.guard.index]) ^ inst.guard.negated
            left = group.part(group.mask & (~is_taken if inst is branches[-1] else is_taken))
            for index in loop.left_registers[branches.index(inst)]:
                self.put_whole(left, Register(index, self.state.program.registers[index], ""), left.mask)

    def computed(self, inst: DecodedInstruction, action: actions.LaneOp, group: LaneGroup) -> list[Codes]:
        """Return the masks of the results; bitwise operations are evaluated with both values of each unwritten bit."""
        if inst.attributes.opcode not in BITWISE:
            return super().computed(inst, action, group)
        types = [kind or B32 for kind in action.sources]
        values = [group.read(operand, kind) for operand, kind in zip(inst.sources, types, strict=True)]
        masks = [self.mask_of(operand)[group.warp_rows] for operand in inst.sources]
        marked = [at for at, mask in enumerate(masks) if ((mask != 0) & group.mask).any()]
        if 1 << len(marked) > MAX_VARIANTS and inst.attributes.opcode != "p2r":
            return super().computed(inst, action, group)
        if inst.attributes.opcode == "p2r":
            choices = [[], *([at] for at in marked)]  # a bit of the result depends on one operand
        else:
            choices = [[at for bit, at in enumerate(marked) if number >> bit & 1] for number in range(1 << len(marked))]
        results: list[Codes] = []
        for chosen in choices:
            variant = list(values)
            for at in marked:
                mask = masks[at].astype(values[at].dtype)
                variant[at] = values[at] | mask if at in chosen else values[at] & ~mask
            constants = [
                int(reg.flat[0]) if kind is None else reg for reg, kind in zip(variant, action.sources, strict=True)
            ]
            found = action.function(*constants)
            results.append(found[0] if isinstance(found, tuple) else found)
        changed = np.zeros_like(results[0])
        for found in results[1:]:
            changed = changed | (found ^ results[0])
        return [changed] * len(inst.results)
