"""The base class of all checks, and a group of checks that passes every event to its members."""

from collections.abc import Callable
from typing import Any

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.kernel_findings import FindingCollector, KernelAccess, KernelFinding
from warpfrag.machine.interpreter.lane_group import LaneGroup
from warpfrag.machine.interpreter.observer import Observer
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.ir.program import DecodedInstruction


class InstructionObserver(Observer):
    """A check: it is notified before and after each instruction, and when all lanes have exited."""

    def __init__(self, state: WarpBatch, collector: FindingCollector) -> None:
        """Create a check for a batch, which reports to a collector."""
        self.state, self.collector = state, collector

    @property
    def inst(self) -> DecodedInstruction:
        """The instruction that is running."""
        return self.state.program.instructions[self.state.memory.inst]

    def access_by(self, thread: int, inst: DecodedInstruction | None = None) -> KernelAccess:
        """Describe an instruction (default: the running one) as an access by a thread of the batch."""
        inst = inst or self.inst
        return KernelAccess(inst.name, inst.line, *self.state.indices(*divmod(thread, LANES)))

    def report(self, kind: str, thread: int, text: str, count: int = 1, **details: Any) -> None:  # noqa: ANN401
        """Add a finding for a thread, at the running instruction unless `details` has a line."""
        block, index = self.state.indices(*divmod(thread, LANES))
        line = details.pop("line", self.inst.line)
        self.collector.add(KernelFinding(kind, line, text, block=block, thread=index, **details), count)

    def guarded(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Handle lanes that reach a guarded instruction, including those whose guard is false."""

    def before(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Handle an instruction before it runs."""

    def after(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Handle an instruction after it has run."""

    def guarded_after(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Handle lanes that have reached a guarded instruction, after it has run in those whose guard is true."""

    def finish(self) -> None:
        """Handle the end of the batch, when every lane has exited."""


OWN_EVENTS = ("guarded", "before", "after", "guarded_after", "finish")
EVENTS = (*(name for name in vars(Observer) if not name.startswith("_")), *OWN_EVENTS)


class ObserverGroup(InstructionObserver):
    """A group of checks that receive the same events."""

    def __init__(self, state: WarpBatch, collector: FindingCollector, observers: list[InstructionObserver]) -> None:
        """Create a group that notifies the checks in the given order."""
        super().__init__(state, collector)
        self.observers = observers


def _pass_on(name: str) -> Callable[..., None]:
    """Return a method that calls the method of this name on each check."""

    def method(group: ObserverGroup, *arguments: object, **options: object) -> None:
        for observer in group.observers:
            getattr(observer, name)(*arguments, **options)

    return method


for _name in EVENTS:
    setattr(ObserverGroup, _name, _pass_on(_name))
