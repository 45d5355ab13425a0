"""A batch of blocks with checks: the interpreter's batch, which reports every instruction to the checks.

`LaunchChecks` holds the state that all batches of a launch share: findings, time, and the shadows of global memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import MemoryFault
from warpfrag.machine.interpreter.device_memory import DeviceMemory
from warpfrag.machine.interpreter.kernel_findings import (
    CHECK_TABLE,
    ORDER_CHECKS,
    Check,
    FindingCollector,
    KernelFinding,
)
from warpfrag.machine.interpreter.lane_group import LaneGroup
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.interpreter.warp_state import LaunchPart
from warpfrag.machine.interpreter.wgmma_registers import is_wgmma
from warpfrag.machine.ir.actions import SurfaceOp
from warpfrag.machine.ir.program import DecodedInstruction, SourceLine
from warpfrag.machine.sanitizer.barrier_checks import BarrierCheck, MbarrierLifetimes
from warpfrag.machine.sanitizer.instruction_observer import InstructionObserver, ObserverGroup
from warpfrag.machine.sanitizer.ordering import LaunchOrder
from warpfrag.machine.sanitizer.races import RaceCheck
from warpfrag.machine.sanitizer.shadow_memory import ShadowMemory
from warpfrag.machine.sanitizer.tensor_checks import TensorMemoryCheck, WgmmaCheck, uses_tensor_memory
from warpfrag.machine.sanitizer.unwritten import UnwrittenCheck


class LaunchChecks:
    """The checks of a launch, with the state that its batches share."""

    def __init__(self, checks: tuple[Check, ...], sources: Mapping[int, SourceLine]) -> None:
        """Create the checks for a launch."""
        self.checks = checks
        self.collector = FindingCollector(sources, checks)
        self.order = LaunchOrder()
        self.shadows: dict[int, ShadowMemory] = {}
        self.unwritten: dict[int, NDArray[np.uint8]] | None = None
        self.stops: Callable[[int], bool] = lambda _instructions: False  # stops the launch when it returns True
        self.is_stopped = False

    @property
    def follow_order(self) -> bool:
        """True if a check needs to know which accesses are ordered."""
        return bool(ORDER_CHECKS & set(self.checks))

    def marks(self, memory: DeviceMemory) -> dict[int, NDArray[np.uint8]]:
        """Return the marks of the arrays that have unwritten bytes, by the array's id."""
        if self.unwritten is None:
            marked = [(item.data, item.unwritten) for item in memory.allocations if item.unwritten is not None]
            self.unwritten = {id(data): marks.copy() for data, marks in marked}
        return self.unwritten

    def batch(self, part: LaunchPart) -> CheckedWarpBatch:
        """Create a batch of blocks that runs under these checks."""
        return CheckedWarpBatch(part, self)


class CheckedWarpBatch(WarpBatch):
    """A batch of blocks that runs under checks."""

    def __init__(self, part: LaunchPart, checks: LaunchChecks) -> None:
        """Create the checks for this batch, and register them with its memory."""
        super().__init__(part)
        self.checks = checks
        self.races: RaceCheck | None = None
        observers: list[InstructionObserver] = []
        if checks.follow_order:
            x, y, _ = self.launch.grid
            numbers = [b[0] + x * (b[1] + y * b[2]) for b in self.blocks]
            self.races = self.order_check(numbers)
            observers.append(self.races)
            if any(isinstance(inst.action, SurfaceOp) for inst in self.program.instructions):
                checks.collector.leave_out("races: surface accesses are not tracked")
        for name in checks.checks:
            observers += CHECK_TABLE[name].observers(self)
        self.observer = observers[0] if len(observers) == 1 else ObserverGroup(self, checks.collector, observers)
        self.memory.observer = self.observer

    def order_check(self, numbers: list[int]) -> RaceCheck:
        """Create the race check; `numbers` are the blocks' numbers in the grid."""
        checks = self.checks
        return RaceCheck(self, checks.order, checks.shadows, numbers, checks.collector)

    def barrier_checks(self) -> list[InstructionObserver]:
        """Create the observers that check barriers."""
        return [BarrierCheck(self, self.checks.collector), MbarrierLifetimes(self, self.checks.collector)]

    def unwritten_checks(self) -> list[InstructionObserver]:
        """Create the observer that tracks unwritten values."""
        return [UnwrittenCheck(self, self.checks.collector, self.checks.marks(self.memory))]

    def async_checks(self) -> list[InstructionObserver]:
        """Create the observers that check wgmma and tcgen05."""
        collector, result = self.checks.collector, list[InstructionObserver]()
        if self.races is not None and uses_tensor_memory(self.program):
            result.append(TensorMemoryCheck(self, self.races.ordering, collector))
        if any(is_wgmma(inst) for inst in self.program.instructions):
            result.append(WgmmaCheck(self, collector))
        return result

    def run_inst(self, at: int, group: LaneGroup) -> bool:
        """Run an instruction, notifying the checks before and after it."""
        self.checks.order.now += 1
        inst = self.program.instructions[at]
        self.line, self.memory.inst = inst.line, at
        active = group
        if inst.guard is not None:
            self.observer.guarded(inst, group)
            guard = group.of(self.registers[inst.guard.index])
            active = group.part(group.mask & (~guard if inst.guard.negated else guard))
        some = bool(active.mask.any())
        if some:
            self.observer.before(inst, active)
        has_run = super().run_inst(at, group)
        if some and has_run:
            self.observer.after(inst, active)
        if inst.guard is not None and has_run:
            self.observer.guarded_after(inst, group)
        return has_run

    def note(self, inst: DecodedInstruction, group: LaneGroup, fault: MemoryFault) -> None:
        """Add a finding for a failed access that the launch skips."""
        warps, lanes = np.nonzero(group.mask)
        block, thread = self.indices(int(group.warp_rows[warps[fault.index]]), int(lanes[fault.index]))
        text = self.fault(inst, group, fault).reason
        self.checks.collector.add(KernelFinding(fault.kind, inst.line, text, block=block, thread=thread))

    def schedule_next(self) -> bool:
        """Give lanes a time slice; return False if all lanes have exited or the launch is stopped."""
        self.checks.is_stopped = self.checks.is_stopped or self.checks.stops(self.checks.order.now)
        return not self.checks.is_stopped and super().schedule_next()

    def run(self) -> None:
        """Run until every lane has exited, then let the checks finish."""
        super().run()
        if not self.checks.is_stopped:
            self.observer.finish()
