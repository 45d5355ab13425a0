"""Find accesses to wgmma registers in flight, and register writes without a wgmma.fence before the wgmma.

A wgmma.mma_async reads A and writes D while its warps continue. Until wgmma.wait_group after a commit, no thread may
read or write D, nor write A; another wgmma may use the same accumulators. Registers that were written since the last
wgmma.fence may not be ready when it begins. `mov` does not count as an access: compilers write it for copies and
constants that ptxas removes or places itself, so a copy counts as the register that it copies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from warpfrag.isa.qualifiers import Form
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.kernel_findings import FindingCollector, KernelAccess
from warpfrag.machine.interpreter.lane_group import LaneGroup, items_of
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.ir.actions import MatrixOp, Move
from warpfrag.machine.ir.program import (
    DecodedInstruction,
    Immediate,
    MemoryOperand,
    Program,
    PtxOperand,
    Register,
    VectorOperand,
    registers_of,
)
from warpfrag.machine.sanitizer.instruction_observer import InstructionObserver
from warpfrag.machine.sanitizer.ordering import LaunchOrder
from warpfrag.smem.descriptor import Descriptor, contradictions
from warpfrag.tensorcore.resolved import resolve_form


class WarpProducts:
    """The wgmma state of one warp: registers in flight, open and committed groups, and the last fence."""

    def __init__(self) -> None:
        """Create the state of a warp before its first wgmma."""
        self.targets: dict[int, tuple[int, int]] = {}  # group and line of the wgmma that writes each D register
        self.sources: dict[int, tuple[int, int]] = {}  # group and line of the wgmma that reads each A register
        self.written: dict[int, tuple[int, int]] = {}  # time and line of the last write, by register
        self.group = 1  # the open group
        self.fence_time = -1


class RegisterCheck(InstructionObserver):
    """Checks the registers of wgmma, warp by warp."""

    def __init__(self, state: WarpBatch, order: LaunchOrder, collector: FindingCollector) -> None:
        """Find the instructions that use tracked registers; the check skips all others."""
        super().__init__(state, collector)
        self.order = order
        self.tracked = tracked_registers(state.program)
        self.warps: dict[int, WarpProducts] = defaultdict(WarpProducts)
        self.touches: dict[int, bool] = {}

    def before(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Check an instruction that reads or writes tracked registers."""
        at = self.state.memory.inst
        touches = self.touches.get(at)
        if touches is None:
            touches = self.touches[at] = bool(self.tracked & {*_reads(inst), *_writes(inst)})
        is_product = is_wgmma(inst)
        if not touches and not is_product:
            return
        for warp, lanes in zip(group.warp_rows.tolist(), group.mask, strict=True):
            if lanes.any():
                own = self.warps[warp]
                self.issue(inst, own, warp) if is_product else self.access(inst, own, warp, int(lanes.argmax()))

    def after(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Handle wgmma.fence, commit_group and wait_group."""
        words = inst.name.split(".")
        if words[0] != "wgmma" or is_wgmma(inst):
            return
        for warp in group.active_rows.tolist():
            own = self.warps[warp]
            if "fence" in words:
                own.fence_time = self.order.now
            elif "commit_group" in words:
                own.group += 1
            elif "wait_group" in words:
                operand = inst.sources[0] if inst.sources else None
                left = operand.code(None) if isinstance(operand, Immediate) else 0
                for table in (own.targets, own.sources):
                    for register in [name for name, (number, _) in table.items() if number < own.group - left]:
                        del table[register]

    def issue(self, inst: DecodedInstruction, own: WarpProducts, warp: int) -> None:
        """Handle a wgmma: check that its registers are ready, and mark them as in flight."""
        targets, sources = product_registers(inst)
        names = {
            register.index: register.name
            for operand in (*inst.results, *inst.sources)
            for register in registers_of(operand)
        }
        if own.fence_time < 0:
            self.report_registers("fence", warp * LANES, ": no wgmma.fence was passed before it", None)
        else:
            late = [index for index in (*targets, *sources) if own.written.get(index, (-1, 0))[0] > own.fence_time]
            if late:
                line = own.written[late[0]][1]
                text = f": {names[late[0]]} was written at line {line}, with no wgmma.fence after it"
                self.report_registers("fence", warp * LANES, text, line)
        for index in sources:
            if index in own.targets:
                line = own.targets[index][1]
                text = f": A in {names[index]} is the result of the wgmma at line {line}, which has not been waited for"
                self.report_registers("async", warp * LANES, text, line)
        own.targets |= dict.fromkeys(targets, (own.group, inst.line))
        own.sources |= dict.fromkeys(sources, (own.group, inst.line))

    def access(self, inst: DecodedInstruction, own: WarpProducts, warp: int, lane: int) -> None:
        """Check another instruction that reads or writes tracked registers."""
        if isinstance(inst.action, Move):
            sources, targets = list(_registers(inst.sources[0])), list(_registers(inst.results[0]))
            if sources or not any(index in table for index in targets for table in (own.targets, own.sources)):
                for table in (own.targets, own.sources, own.written):
                    state = next((table[index] for index in sources if index in table), None)
                    for index in targets:
                        if state is not None:
                            table[index] = state
                        else:
                            table.pop(index, None)
                return
        for index in _reads(inst):
            if index in own.targets:
                self.touched(inst, own.targets[index][1], warp * LANES + lane, "reads", index)
                return
        for index in _writes(inst):
            table = own.targets if index in own.targets else own.sources
            if index in table:
                self.touched(inst, table[index][1], warp * LANES + lane, "writes", index)
                return
            own.written[index] = self.order.now, inst.line

    def touched(self, inst: DecodedInstruction, line: int, thread: int, verb: str, index: int) -> None:
        """Report an access to a register in flight."""
        registers = [register for operand in (*inst.results, *inst.sources) for register in registers_of(operand)]
        name = next((register.name for register in registers if register.index == index), "a register")
        text = f" {verb} {name}, a register of the wgmma at line {line}, which has not been waited for"
        self.report_registers("async", thread, text, line)

    def report_registers(self, kind: str, thread: int, text: str, line: int | None) -> None:
        """Report the running instruction, with the line of the conflicting instruction if there is one."""
        block, index = self.state.indices(*divmod(thread, LANES))
        other = None if line is None else KernelAccess("wgmma or register", line, block, index)
        self.report(kind, thread, f"{self.inst.name}{text}", other=other)


def is_wgmma(inst: DecodedInstruction) -> bool:
    """Return True for wgmma.mma_async."""
    return isinstance(inst.action, MatrixOp) and inst.action.operation == "wgmma"


def product_registers(inst: DecodedInstruction) -> tuple[list[int], list[int]]:
    """Return the registers of D, and those of A if it is not in shared memory."""
    a = inst.sources[0]
    sources = [register.index for register in registers_of(a)] if isinstance(a, VectorOperand) else []
    return [register.index for register in registers_of(inst.results[0])], sources


def tracked_registers(program: Program) -> set[int]:
    """Return the registers of all wgmma in a program, and the registers that are copied to or from them."""
    tracked: set[int] = set()
    for inst in program.instructions:
        if is_wgmma(inst):
            tracked |= {index for part in product_registers(inst) for index in part}
    copies = [
        {*_registers(inst.results[0]), *_registers(inst.sources[0])}
        for inst in program.instructions
        if isinstance(inst.action, Move)
    ]
    grown = bool(tracked)
    while grown:
        more = {index for pair in copies if tracked & pair for index in pair} - tracked
        tracked |= more
        grown = bool(more)
    return tracked


def _registers(operand: PtxOperand) -> Iterator[int]:
    for item in items_of(operand):
        if isinstance(item, Register):
            yield item.index
        elif isinstance(item, MemoryOperand) and item.base is not None:
            yield from (register.index for register in registers_of(item.base))


def _reads(inst: DecodedInstruction) -> list[int]:
    """Return the registers that an instruction reads, including its guard and its addresses."""
    guard = [inst.guard.index] if inst.guard is not None else []
    return guard + [index for operand in inst.sources for index in _registers(operand)]


def _writes(inst: DecodedInstruction) -> list[int]:
    """Return the registers that an instruction writes."""
    return [index for operand in inst.results for index in _registers(operand)]


START = 0x3FFF
"""The start-address bits of a descriptor, which do not affect the element layout."""


class DescriptorCheck(InstructionObserver):
    """Checks each distinct descriptor once."""

    def __init__(self, state: WarpBatch, collector: FindingCollector) -> None:
        """Create the check of a batch."""
        super().__init__(state, collector)
        self.judged: dict[tuple[object, ...], str] = {}

    def product_descriptor(self, form: Form, role: str, word: int, warp: int, *, is_transposed: bool) -> None:
        """Check the descriptor of A or B of a wgmma."""
        key = form, role, word & ~START, is_transposed
        if key not in self.judged:
            operand = getattr(resolve_form(form, self.state.launch.arch).operands, role)
            problems = contradictions(Descriptor.decode(word), operand, trans=is_transposed)
            self.judged[key] = next((problem.text for problem in problems), "")
        if not self.judged[key]:
            return
        text = f"the descriptor {word:#018x} of {role.upper()}: {self.judged[key]}"
        self.report("descriptor", warp * LANES, text, space="shared")
