"""Track unwritten registers in compiled code: one mark per lane of each register that may be read unwritten.

Compilers generate such programs: a masked load leaves a register unchanged in the lanes that are masked off, all lanes
compute with it, and a masked store uses only the loaded values. Each register that may be read unwritten, or is
computed from one, therefore has a mark for every lane: 32 bits after the registers of the warp. Arithmetic results
are marked if an operand is; a shuffle moves marks with the values. Any other use of a marked value is a suspicion,
which the context records (`context.SUSPICIONS`) even if a launch is not screened, since few programs have marks.
"""

from collections.abc import Iterable, Sequence

from warpfrag.machine.ir.program import DecodedInstruction, indices_of
from warpfrag.machine.jit import context as ctx
from warpfrag.machine.jit.ir_builder import I8, I32, I64, IRBuilder, Value, constant
from warpfrag.machine.jit.register_flow import RegisterLayout, passes_marks, registers_read


class RegisterMarks:
    """The register marks in one segment's code; `current` has a 32-bit lane mask per register."""

    def __init__(self, ir: IRBuilder, layout: RegisterLayout, warp: Value, context: Value) -> None:
        """Create the marks for a register layout; nothing is loaded yet."""
        self.ir, self.offsets, self.marked, self.warp, self.context = ir, layout.marks, layout.marked, warp, context
        self.reads: frozenset[int] = frozenset()  # the registers that the current instruction reads
        self.current: dict[int, Value] = {}
        self.changed: set[int] = set()

    def concern(self, at: int) -> bool:
        """Return True if an instruction reads or writes a register that may have marks."""
        if self.marked is None or not self.offsets:
            return False
        self.reads = self.marked.reads[at]
        return bool(self.reads) or not self.offsets.keys().isdisjoint(self.marked.writes[at])

    def of(self, registers: Iterable[int]) -> Value | None:
        """Return the lanes in which any of these source registers is marked, or None if none can be."""
        every = None
        for register in sorted(self.reads.intersection(registers)):
            every = self.either(every, self.load(register))
        return every

    def load(self, register: int) -> Value:
        """Return the lanes in which a register is marked."""
        if register not in self.current:
            place = self.ir.at(self.warp, self.offsets[register], I8)
            self.current[register] = self.ir.load(place, typ=I32, align=4)
        return self.current[register]

    def either(self, a: Value | None, b: Value | None) -> Value | None:
        """Return the union of two lane masks; None stands for the empty mask."""
        return self.ir.or_(a, b) if a is not None and b is not None else b if a is None else a

    def both(self, a: Value, b: Value | None) -> Value | None:
        """Return the intersection of two lane masks; None stands for the empty mask."""
        return None if b is None else self.ir.and_(a, b)

    def follow(self, inst: DecodedInstruction, mask: Value, moved: Sequence[int] | None, chosen: Value | None) -> None:
        """Propagate marks to an instruction's results in the lanes of `mask`, which have run it.

        For a shuffle, `moved` gives the source lane of each lane. For a selection, the bits of `chosen` are the lanes
        that select the first operand.
        """
        ir = self.ir
        if moved is not None:
            marks = self.of(indices_of(inst.sources[:1]))
            self.suspect(self.of(indices_of(inst.sources[1:])), mask)
            bits = None if marks is None else ir.lane_mask(ir.permute(ir.predicate_of(marks), moved))
            self.put(indices_of(inst.results[:1]), bits, mask)
            self.put(indices_of(inst.results[1:]), None, mask)
            return
        marks = None
        if inst.attributes.opcode == "first_value":
            held = mask if chosen is None else ir.and_(chosen, mask)
            self.suspect(self.of(indices_of(inst.sources[:1])), held)
            self.suspect(self.of(indices_of(inst.sources[1:2])), mask)
            marks = self.both(ir.sext(ir.icmp("eq", held, 0), I32), self.of(indices_of(inst.sources[2:])))
        elif passes_marks(inst):
            marks = self.of(indices_of(inst.sources))
            if chosen is not None:
                a, b = (self.of(indices_of([item])) for item in inst.sources[:2])
                marks = self.either(self.both(chosen, a), self.both(ir.not_(chosen), b))
                marks = self.either(marks, self.of(indices_of(inst.sources[2:])))
        else:
            self.suspect(self.of(registers_read(inst)), mask)
        self.put(indices_of(inst.results), marks, mask)

    def put(self, registers: set[int], marks: Value | None, mask: Value) -> None:
        """Set the marks of registers in the lanes of `mask`."""
        ir = self.ir
        for register in sorted(registers & self.offsets.keys()):
            others = self.both(ir.not_(mask), self.load(register))
            new = self.either(others, self.both(mask, marks))
            self.current[register] = constant(I32, 0) if new is None else new
            self.changed.add(register)

    def suspect(self, marks: Value | None, mask: Value) -> None:
        """Record a suspicion if lanes in `mask` use a marked value."""
        if marks is not None:
            ir = self.ir
            place = ir.at(self.context, ctx.SUSPICIONS)
            ir.store(ir.or_(ir.load(place, typ=I64), ir.zext(ir.and_(marks, mask), I64)), place)

    def finish(self) -> None:
        """Write back the changed marks."""
        for register in sorted(self.changed):
            self.ir.store(self.current[register], self.ir.at(self.warp, self.offsets[register], I8), 4)
