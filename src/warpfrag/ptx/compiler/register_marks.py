"""Registers that may be read before they are written: compiled code follows in which lanes they were not.

Compilers write such programs: a masked load leaves a register as it was in the lanes that are masked off, all lanes
compute with it, and a masked store takes only what was loaded. So each register that may be read unwritten, or computed
from one that may, has a mark for every lane: 32 bits behind the registers of the warp. Results of arithmetic are marked
where an operand is; a shuffle moves marks with the values. A mark that reaches anything else is a doubt, which the
context counts (`context.SUSPICIONS`), whether a launch is screened or not: few programs have marks at all.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from warpfrag.ptx.compiler import context
from warpfrag.ptx.compiler.definite_assignment import maybe_unassigned, registers_read
from warpfrag.ptx.compiler.liveness import indices_of
from warpfrag.ptx.program.actions import DirectCall, IndirectCall, LaneOp, Move
from warpfrag.ptx.program.program import Register

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from warpfrag.ptx.compiler.ir_builder import IntLanes, IRBuilder
    from warpfrag.ptx.program.program import DecodedInstruction, Program

NOBODY = "0"


def _unwritten(program: Program) -> set[int] | None:
    """The registers that may be read unwritten; None beyond calls, or in a program too large."""
    calls = any(isinstance(step.action, DirectCall | IndirectCall) for step in program.steps)
    return None if calls else maybe_unassigned(program)


def is_followed(program: Program) -> bool:
    """Whether all registers that may be read unwritten are known."""
    return _unwritten(program) is not None


def passes_marks(step: DecodedInstruction) -> bool:
    """Whether the results of a step are marked where its operands are."""
    return isinstance(step.action, LaneOp | Move) or step.attributes.opcode == "shfl"


def marked_registers(program: Program) -> set[int]:
    """The registers that may be read unwritten, and those computed from them; none where that is not followed."""
    marked = _unwritten(program) or set()
    results: dict[int, set[int]] = defaultdict(set)
    for step in program.steps if marked else ():
        if passes_marks(step):
            for register in indices_of(step.sources):
                results[register] |= indices_of(step.results)
    queue = list(marked)
    while queue:
        new = results[queue.pop()] - marked
        marked |= new
        queue += new
    return marked


class RegisterMarks:
    """The marks of registers in the code of one segment: `current` are integers of 32 bits, a bit for each lane."""

    def __init__(self, ir: IRBuilder, offsets: dict[int, int]) -> None:
        """Nothing is loaded; marks lie at some offsets of a warp's registers."""
        self.ir, self.offsets = ir, offsets
        self.current: dict[int, str] = {}
        self.changed: set[int] = set()

    def concern(self, step: DecodedInstruction) -> bool:
        """Whether a step reads or writes a register that may have marks."""
        if not self.offsets:
            return False
        return not self.offsets.keys().isdisjoint(registers_read(step) | indices_of(step.results))

    def is_choice(self, step: DecodedInstruction) -> bool:
        """Whether a step takes one of two operands, by a register."""
        return step.attributes.opcode == "selp" and isinstance(step.sources[2], Register)

    def of(self, registers: Iterable[int]) -> str:
        """The lanes in which one of some registers has a mark."""
        every = NOBODY
        for register in sorted(set(registers) & self.offsets.keys()):
            if register not in self.current:
                place = self.ir.gep("%warp", self.offsets[register])
                self.current[register] = self.ir.assign(f"load i32, ptr {place}, align 4")
            own = self.current[register]
            every = own if every == NOBODY else self.ir.assign(f"or i32 {every}, {own}")
        return every

    def follow(self, step: DecodedInstruction, mask: str, moved: Sequence[int] | None, chosen: IntLanes | None) -> None:
        """Mark the results of a step that lanes of a mask have run.

        `moved` has for a shuffle the lane that each takes from; `chosen` for a selection who takes the first operand.
        """
        ir = self.ir
        first, rest = step.sources[:1], step.sources[1:]
        if moved is not None:
            bits = ir.lane_mask(ir.permute(ir.predicate_of(self.of(indices_of(first))), moved))
            self.doubt(self.of(indices_of(rest)), mask)
            self.put(indices_of(step.results[:1]), bits, mask)
            self.put(indices_of(step.results[1:]), NOBODY, mask)
            return
        marks = NOBODY
        if passes_marks(step):
            marks = self.of(indices_of(step.sources))
            if chosen is not None:
                lanes = ir.lane_mask(chosen)
                a, b = (self.of(indices_of([item])) for item in step.sources[:2])
                taken = ir.assign(f"and i32 {lanes}, {a}")
                left = ir.assign(f"and i32 {ir.assign(f'xor i32 {lanes}, -1')}, {b}")
                either = ir.assign(f"or i32 {taken}, {left}")
                marks = ir.assign(f"or i32 {either}, {self.of(indices_of(step.sources[2:]))}")
            self.doubt(self.of([step.guard.index] if step.guard is not None else []), mask)
        else:
            self.doubt(self.of(registers_read(step)), mask)
        self.put(indices_of(step.results), marks, mask)

    def put(self, registers: set[int], marks: str, mask: str) -> None:
        """Give registers new marks in the lanes of a mask."""
        ir = self.ir
        for register in sorted(registers & self.offsets.keys()):
            others = ir.assign(f"and i32 {self.of([register])}, {ir.assign(f'xor i32 {mask}, -1')}")
            new = others if marks == NOBODY else ir.assign(f"or i32 {others}, {ir.assign(f'and i32 {marks}, {mask}')}")
            self.current[register] = new
            self.changed.add(register)

    def doubt(self, marks: str, mask: str) -> None:
        """Count lanes of a mask that have a mark."""
        if marks == NOBODY:
            return
        ir = self.ir
        wrong = ir.assign(f"zext i32 {ir.assign(f'and i32 {marks}, {mask}')} to i64")
        place = ir.gep("%context", 8 * context.SUSPICIONS)
        before = ir.assign(f"load i64, ptr {place}")
        ir.line(f"store i64 {ir.assign(f'or i64 {before}, {wrong}')}, ptr {place}")

    def finish(self) -> None:
        """Write back the marks that changed."""
        for register in sorted(self.changed):
            place = self.ir.gep("%warp", self.offsets[register])
            self.ir.line(f"store i32 {self.current[register]}, ptr {place}, align 4")
