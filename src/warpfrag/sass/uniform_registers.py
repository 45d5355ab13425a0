"""Find uniform registers whose values depend on the order in which the diverged lanes of a warp run.

A warp has one copy of each uniform register. On one side of a divergent branch, ptxas sometimes writes a uniform
register whose old value the lanes on the other side still need. The result then depends on the side that the hardware
runs first. The machine keeps a copy for each lane, so both sides see the value of their own path.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.lane_group import LaneGroup
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.ir.program import DecodedInstruction, PtxOperand, registers_of

Numbers = NDArray[np.int64]


def uniform_names(operands: list[PtxOperand]) -> set[str]:
    """Return the names of the uniform registers in these operands."""
    return {register.name for operand in operands for register in registers_of(operand) if register.name[0] == "U"}


def is_first_value(inst: DecodedInstruction) -> bool:
    """Return True if an instruction copies the first active lane's value to a uniform register."""
    return inst.attributes.opcode == "first_value"


class UniformOrder:
    """For each uniform register and lane, the assignment whose value the lane expects.

    Assignments are numbered. `assigned` is the last one on a lane's path; a lane is `stale` if other lanes, which
    expected the same value, have assigned the register since. `used` is the assignment that a lane has read last.
    `readers` are the lanes that read it together with the lane or have met the lane since; they need no other order.
    """

    def __init__(self, state: WarpBatch, found: dict[int, str]) -> None:
        """Collect the uniform registers that instructions read and write; reasons are added to `found`, by address."""
        self.state, self.found, code = state, found, state.program.instructions
        reads = [uniform_names([*inst.sources, *([] if inst.guard is None else [inst.guard])]) for inst in code]
        writes = [uniform_names(list(inst.results)) for inst in code]
        # R2UR reads its result register only to keep the old value if no lane takes part, which is not a use
        reads = [
            item - own if is_first_value(inst) else item for inst, item, own in zip(code, reads, writes, strict=True)
        ]
        self.names = sorted(set().union(*reads, *writes))
        numbers = {name: number for number, name in enumerate(self.names)}
        self.reads, self.writes = (
            [sorted(numbers[name] for name in item) for item in items] for items in (reads, writes)
        )
        shape = len(self.names), state.warps, LANES
        self.assigned, self.used = np.zeros(shape, np.int64), np.full(shape, -1)
        self.stale, self.readers = np.zeros(shape, np.bool_), np.zeros((*shape, LANES), np.bool_)
        self.count, self.has_diverged = 0, False

    def run(self, at: int, inst: DecodedInstruction, group: LaneGroup, classes: Numbers) -> None:
        """Follow an instruction that a group runs; lanes of different classes may run it at different times."""
        if not (self.reads[at] or self.writes[at]):
            return
        mask, alive = group.mask, group.of(self.state.alive)
        together = bool((mask == alive).all() and (~mask | (classes == classes.max(axis=1, keepdims=True))).all())
        if together and not self.has_diverged:
            return
        self.has_diverged = True
        active = mask if inst.guard is None else self.state.active_part(inst, group).mask
        for row, lanes in self.parts(group, classes):
            if (active[row] & lanes).any():
                warp = int(group.warp_rows[row])
                for number in self.reads[at]:
                    self.read(inst, number, warp, lanes & active[row], lanes)
                for number in self.writes[at]:
                    self.write(inst, number, warp, lanes)

    def meet(self, group: LaneGroup, masks: NDArray[np.bool_]) -> None:
        """Order lanes after the reads of the lanes that they meet; `masks` is [warp, lane, lane that it meets]."""
        if self.has_diverged:
            self.readers[:, group.warp_rows] |= masks & group.mask[:, :, None]

    def parts(self, group: LaneGroup, classes: Numbers) -> Iterator[tuple[int, NDArray[np.bool_]]]:
        """Yield each row of a group with the lanes of one class."""
        for row in range(len(group.mask)):
            for own in np.unique(classes[row][group.mask[row]]).tolist():
                yield row, group.mask[row] & (classes[row] == own)

    def read(
        self, inst: DecodedInstruction, number: int, warp: int, active: NDArray[np.bool_], lanes: NDArray[np.bool_]
    ) -> None:
        """Compare the values that the active lanes of a class expect, and record their use."""
        values = self.assigned[number, warp][active]
        if self.stale[number, warp][active].any() or (values != values[0]).any():
            self.report(inst.line, number, "read")
        self.used[number, warp, active], self.readers[number, warp, active] = values, lanes

    def write(self, inst: DecodedInstruction, number: int, warp: int, lanes: NDArray[np.bool_]) -> None:
        """Assign a register in the lanes of a class; report unordered lanes that have used the value it replaces."""
        assigned, others = self.assigned[number, warp], self.state.alive[warp] & ~lanes
        replaced = np.unique(assigned[lanes])
        apart = others & ~(self.readers[number, warp] & lanes).any(axis=1)
        if np.isin(self.used[number, warp][apart], replaced).any():
            self.report(inst.line, number, "written")
        self.stale[number, warp] |= others & np.isin(assigned, replaced)
        self.stale[number, warp][lanes] = False
        self.count += 1
        assigned[lanes] = self.count

    def report(self, address: int, number: int, action: str) -> None:
        """Add a reason for an address, if it has none."""
        other = "assign" if action == "read" else "read"
        name = self.names[number]
        text = f"{name} is {action} here, and diverged lanes of the warp {other} it, in an unspecified order"
        self.found.setdefault(address, text)
