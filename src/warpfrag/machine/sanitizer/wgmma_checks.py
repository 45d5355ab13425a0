"""Find accesses to wgmma registers in flight, and register writes without a wgmma.fence before the wgmma.

`interpreter.wgmma_registers` has the rules.
"""

from __future__ import annotations

from collections import defaultdict

from warpfrag.isa.qualifiers import Form
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.kernel_findings import FindingCollector, KernelAccess
from warpfrag.machine.interpreter.lane_group import LaneGroup
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.interpreter.wgmma_registers import WarpProducts, descriptor_problem, touching
from warpfrag.machine.ir.program import DecodedInstruction
from warpfrag.machine.sanitizer.instruction_observer import InstructionObserver


class WgmmaCheck(InstructionObserver):
    """Checks the registers of wgmma, warp by warp, and the descriptors."""

    def __init__(self, state: WarpBatch, collector: FindingCollector) -> None:
        """Find the instructions that use tracked registers; the check skips all others."""
        super().__init__(state, collector)
        self.touching = touching(state.program)
        self.warps: dict[int, WarpProducts] = defaultdict(WarpProducts)

    def before(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Report the registers that an instruction uses too early."""
        if self.state.memory.inst not in self.touching:
            return
        for warp, lanes in zip(group.warp_rows.tolist(), group.mask, strict=True):
            for kind, text, line in self.warps[warp].run(inst) if lanes.any() else ():
                lane = int(lanes.argmax())
                indices = self.state.indices(warp, lane)
                other = None if line is None else KernelAccess("wgmma or register", line, *indices)
                self.report(kind, warp * LANES + lane, f"{inst.name}{text}", other=other)

    def product_descriptor(self, form: Form, role: str, word: int, warp: int, *, is_transposed: bool) -> None:
        """Check the descriptor of A or B of a wgmma."""
        problem = descriptor_problem(form, self.state.launch.arch, role, word, is_transposed=is_transposed)
        if problem:
            text = f"the descriptor {word:#018x} of {role.upper()}: {problem}"
            self.report("descriptor", warp * LANES, text, space="shared")
