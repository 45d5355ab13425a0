"""Shared-memory descriptors of wgmma that mean nothing: bits of no field, and strides that break a swizzle's pattern.

The hardware takes such a descriptor and multiplies what it finds: a start address that was not masked, a stride that is
counted in the wrong unit. `Descriptor.problems` has more, which is suspicious and may be meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.ptx.checks.findings import KernelFinding
from warpfrag.ptx.checks.observers import StepObserver
from warpfrag.smem.descriptor import Descriptor, contradictions
from warpfrag.tensorcore.prepared import prepare

if TYPE_CHECKING:
    from warpfrag.isa.qualifiers import Form
    from warpfrag.ptx.checks.findings import FindingCollector
    from warpfrag.ptx.interpreter.warp_batch import WarpBatch

START = 0x3FFF
"""The bits of a start address: elements lie alike whatever it is."""


class DescriptorCheck(StepObserver):
    """Judges every descriptor once."""

    def __init__(self, state: WarpBatch, collector: FindingCollector) -> None:
        """Nothing is judged yet."""
        self.state, self.collector = state, collector
        self.judged: dict[tuple[object, ...], str] = {}

    def product_descriptor(self, form: Form, role: str, word: int, warp: int, *, is_transposed: bool) -> None:
        """A wgmma takes a descriptor for A or B."""
        key = form, role, word & ~START, is_transposed
        if key not in self.judged:
            operand = getattr(prepare(form, self.state.launch.arch).operands, role)
            problems = contradictions(Descriptor.decode(word), operand, trans=is_transposed)
            self.judged[key] = next((problem.text for problem in problems), "")
        if not self.judged[key]:
            return
        text = f"the descriptor {word:#018x} of {role.upper()}: {self.judged[key]}"
        x, y, z = (int(axis[warp]) for axis in self.state.block_index)
        i, j, k = (int(axis[warp, 0]) for axis in self.state.thread_index)
        line = self.state.program.steps[self.state.memory.step].line
        self.collector.add(KernelFinding("descriptor", line, text, block=(x, y, z), thread=(i, j, k), space="shared"))
