"""Emit the operations that implement one SASS instruction: operands, temporaries, guards.

All operations that implement a SASS instruction have its address as their line. The next SASS instruction
reuses the temporaries. An expansion writes architectural registers last, after it has read them.

A uniform register has a copy in every lane. Lanes that execute an instruction together have the same value, because
they compute it from uniform operands or copy it from the first lane.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from warpfrag.errors import CodeAddress, NotModelled
from warpfrag.machine.ir.actions import Action, LaneFunction, LaneOp, Refused
from warpfrag.machine.ir.opcode import Attributes, DecodedOpcode, OpcodeRow
from warpfrag.machine.ir.program import (
    BankOperand,
    DecodedInstruction,
    Discard,
    Immediate,
    MemoryOperand,
    PtxOperand,
    Register,
    VectorOperand,
)
from warpfrag.machine.ir.scalar_types import Type
from warpfrag.machine.ir.state_spaces import SHARED_START, StateSpace
from warpfrag.machine.ops import opcode_lookup
from warpfrag.sass import sass_instruction as asm

ZERO, ONE = Immediate(0), Immediate(1)
WORD = 0xFFFFFFFF
TEMPORARY = "%t"
"""The prefix of temporary registers, which belong to one SASS instruction."""


class DriverWords(NamedTuple):
    """The offsets of words that the driver writes to constant bank 0, before the parameters; None if unknown."""

    block: int
    grid: int
    stack: int
    local_window: int | None
    constants: int | None
    parameters: int | None
    workspace: int | None
    """The offset of the address of a cooperative grid's workspace, upper half first."""
    hints: tuple[int, ...]
    """Offsets of words whose values do not affect results: memory descriptors, the scope of fences."""
    shared_start: int
    """The offset of the word with the first address of shared memory."""
    cluster: int | None = None
    """The offset of a word that is 1 for cluster launches, followed by the words that describe the cluster."""
    cluster_size: int | None = None

    @property
    def known(self) -> set[int]:
        """The offsets of all words whose values are known."""
        wide = [
            start for start in (self.local_window, self.constants, self.parameters, self.workspace) if start is not None
        ]
        starts = {self.block, self.grid, *(axis + 4 * step for axis in (self.block, self.grid) for step in (1, 2))}
        clusters = set() if self.cluster is None else set(range(self.cluster, self.cluster + 40, 4))
        clusters |= set() if self.cluster_size is None else {self.cluster_size}
        return starts | clusters | {self.stack, *self.hints} | {start + step for start in wide for step in (0, 4)}


DRIVER_WORDS = {
    0x160: DriverWords(0x0, 0xC, 0x28, 0x20, None, None, None, (0x118, 0x11C), 0),
    0x210: DriverWords(
        0x0, 0xC, 0x28, 0x20, 0xD0, 0x198, 0x44, (0x18, 0x1C, 0x2C, 0x18C, 0x208, 0x20C), 1024, 0x140, 0x188
    ),
    0x380: DriverWords(0x360, 0x370, 0x37C, None, None, None, None, (0x358, 0x35C), 1024),
}
"""The driver's words, keyed by the offset of the first parameter: sm_75 to sm_89, sm_90, sm_100 and later."""
FILES = {"R": 32, "UR": 32, "P": 1, "UP": 1, "B": 32}
SASS_ROW = OpcodeRow("", (), {}, lambda _: Refused("bound by its own row"), "the table of machine opcodes")


class Unsupported(Exception):
    """Raised for an opcode, modifier or operand that is not modelled; the instruction then becomes `Refused`."""


class Emitter:
    """Collects the operations of a kernel."""

    def __init__(
        self,
        banks: Mapping[int, int],
        shared: StateSpace,
        parameters: int,
        driver_functions: Mapping[str, int],
        *,
        has_groups: bool,
    ) -> None:
        """Create an emitter, given the bank offsets, the space of shared addresses and the start of the parameters.

        `driver_functions` gives the addresses that stand for driver functions. With `has_groups`, lanes may execute the
        same instruction in several groups (WARPSYNC.EXCLUSIVE).
        """
        self.banks, self.shared, self.parameters, self.has_groups = banks, shared, parameters, has_groups
        self.driver_words, self.driver_functions = DRIVER_WORDS[parameters], driver_functions
        self.instructions: list[DecodedInstruction] = []
        self.bits: list[int] = []  # the width of each register in bits
        # branches that still need an instruction index, with their target addresses
        self.targets: list[tuple[DecodedInstruction, int]] = []
        self.guard: Register | None = None
        self.is_dead = False  # True if the guard is !PT, so the instruction never runs
        self.sass: asm.SassInstruction
        self._registers: dict[tuple[str, int], Register] = {}
        self._temporaries: dict[int, list[Register]] = {}
        self._used: dict[int, int] = {}
        self._first = 0
        self._own_guard: Register | None = None

    # --- instructions

    def begin(self, sass: asm.SassInstruction) -> None:
        """Start a SASS instruction: set its guard and release all temporaries."""
        self.sass, self._first = sass, len(self.instructions)
        self._used = {}
        self.guard, self.is_dead = None, False
        if sass.guard is not None:
            held = self.predicate(sass.guard)
            self.guard = held if isinstance(held, Register) else None
            self.is_dead = held == ZERO
        self._own_guard = self.guard

    def end(self) -> None:
        """Finish a SASS instruction; if it writes its guard before its last operation, use a copy of the guard."""
        own, guard = self.instructions[self._first :], self._own_guard
        if not own:
            self.emit("pmevent", (), ())
        if guard is None or not any(_writes(inst, guard) for inst in own[:-1]):
            return
        copy = self.temporary(1)
        self.guard = None
        self.emit("mov.pred", (copy,), (guard,))
        self.instructions.insert(self._first, self.instructions.pop())
        for inst in own:
            if inst.guard == guard:
                inst.guard = copy

    def refuse(self, reason: str) -> None:
        """Replace the operations emitted for this SASS instruction with an error that is raised if it runs."""
        del self.instructions[self._first :]
        attributes = Attributes(self.sass.opcode, self.sass.opcode)
        self.append(DecodedOpcode(None, attributes, reason), Refused(reason), (), ())

    def append(
        self, opcode: DecodedOpcode, action: Action, results: Sequence[PtxOperand], sources: Sequence[PtxOperand]
    ) -> DecodedInstruction:
        """Append an operation with a bound action, under the guard."""
        line, text = CodeAddress(self.sass.address), self.sass.text
        inst = DecodedInstruction(line, opcode, action, self.guard, tuple(results), tuple(sources), text=text)
        self.instructions.append(inst)
        return inst

    def emit(self, name: str, results: Sequence[PtxOperand], sources: Sequence[PtxOperand]) -> DecodedInstruction:
        """Append an operation, given by its PTX spelling."""
        opcode = opcode_lookup.find(name, len(results) + len(sources))
        try:
            action = opcode.action
        except NotModelled as error:
            raise Unsupported(str(error)) from None
        if isinstance(action, Refused):
            raise Unsupported(action.reason)
        if isinstance(action, LaneOp) and action.nan_order:
            action = replace(action, is_nan_order_certain=True)
        return self.append(opcode, action, results, sources)

    def compute(self, name: str, *sources: PtxOperand, bits: int = 32) -> Register:
        """Append an operation that writes to a temporary, and return that temporary."""
        result = self.temporary(bits)
        self.emit(name, (result,), sources)
        return result

    def act(
        self, attributes: Attributes, action: Action, results: Sequence[PtxOperand], sources: Sequence[PtxOperand]
    ) -> DecodedInstruction:
        """Append an action that no PTX spelling expresses."""
        return self.append(DecodedOpcode(SASS_ROW, attributes), action, results, sources)

    def call(
        self,
        name: str,
        types: tuple[Sequence[Type], Sequence[Type | None]],
        function: LaneFunction,
        results: Sequence[PtxOperand],
        sources: Sequence[PtxOperand],
    ) -> None:
        """Append a per-lane function on codes, with the given result and source types."""
        action = LaneOp(tuple(types[0]), tuple(types[1]), function, extends=True)
        self.act(Attributes(name, name, tuple(types[0]), len(results) + len(sources)), action, results, sources)

    # --- registers

    def temporary(self, bits: int = 32) -> Register:
        """Return a temporary register that the current instruction does not use yet."""
        pool, used = self._temporaries.setdefault(bits, []), self._used.get(bits, 0)
        self._used[bits] = used + 1
        if used == len(pool):
            pool.append(self._new(bits, f"{TEMPORARY}{bits}_{used}"))
        return pool[used]

    def register(self, file: str, index: int, *, negated: bool = False) -> Register:
        """Return an architectural register."""
        key = file, index
        if key not in self._registers:
            self._registers[key] = self._new(FILES[file], f"{file}{index}")
        return replace(self._registers[key], negated=True) if negated else self._registers[key]

    def hidden(self, name: str, bits: int) -> Register:
        """Return a register that instructions share although the architecture does not expose it."""
        key = name, 0
        if key not in self._registers:
            self._registers[key] = self._new(bits, f"%{name}")
        return self._registers[key]

    def _new(self, bits: int, name: str) -> Register:
        self.bits.append(bits)
        return Register(len(self.bits) - 1, bits, name)

    # --- sources

    def word(self, operand: asm.Operand, step: int = 0) -> PtxOperand:
        """Return the 32 bits of an operand that has no modifiers, or of the register `step` registers after it."""
        if any(getattr(operand, name, False) for name in ("negate", "absolute", "invert")):
            raise Unsupported(f"the sign or inversion of an operand in {self.sass.text}")
        return self.unselected(operand, step)

    def unselected(self, operand: asm.Operand, step: int = 0) -> PtxOperand:
        """Return the 32 bits of an operand that has no selector; its sign modifiers are ignored."""
        if getattr(operand, "selector", "") not in {"", "64"}:
            raise Unsupported(f"the selector .{operand.selector}")  # type: ignore[union-attr] # it has one
        return self.bits_of(operand, step)

    def half(self, operand: asm.Operand) -> PtxOperand:
        """Return a word whose low bits are the selected bits: the upper half for .H1, the low 24 bits for .24."""
        value = self.bits_of(operand)
        if getattr(operand, "selector", "") not in {"", "H0", "H1", "24", "28"}:
            raise Unsupported(f"the selector .{operand.selector}")  # type: ignore[union-attr] # it has one
        return self.compute("shr.u32", value, Immediate(16)) if getattr(operand, "selector", "") == "H1" else value

    def bits_of(self, operand: asm.Operand, step: int = 0) -> PtxOperand:
        """Return the 32 bits of an operand, or of the register `step` registers after it; modifiers are ignored."""
        if isinstance(operand, asm.RegisterOperand) and operand.file in {"R", "UR"}:
            return ZERO if operand.is_constant else self.register(operand.file, operand.index + step)
        if isinstance(operand, asm.ImmediateOperand):
            return Immediate(operand.value >> (32 * step) & WORD)
        if isinstance(operand, asm.ConstantOperand):
            return self.constant(operand, 4 * step)
        raise Unsupported(f"the operand {asm.form_of(operand)}")

    def constant(self, operand: asm.ConstantOperand, more: int = 0, kind: str = "b32") -> PtxOperand:
        """Return a word of a constant bank."""
        if operand.bank is None:
            raise Unsupported(f"the operand {asm.form_of(operand)}")
        if operand.bank not in self.banks:
            raise Unsupported(f"constant bank {operand.bank}, which the module does not have")
        offset = self.banks[operand.bank] + operand.offset + more
        is_indexed = operand.base is not None and not operand.base.is_constant
        is_driver_word = operand.bank == 0 and operand.offset < self.parameters and not is_indexed
        if is_driver_word and operand.offset + more not in self.driver_words.known:
            raise Unsupported(f"c[0x0][{operand.offset + more:#x}], an unknown driver word")
        # an indexed array parameter; the constant offset may be before its start
        if operand.base is not None and is_indexed:
            base = self.register(operand.base.file, operand.base.index)
            return self.compute(f"ld.param.{kind}", MemoryOperand(base, offset))
        return BankOperand(offset) if kind == "b32" else self.compute(f"ld.param.{kind}", MemoryOperand(None, offset))

    def pair(self, operand: asm.Operand) -> PtxOperand:
        """Return the 64 bits of a register pair or constant that has no modifiers."""
        if isinstance(operand, asm.RegisterOperand) and operand.is_constant:
            return ZERO
        if isinstance(operand, asm.ConstantOperand) and operand.base is None:
            return self.constant(operand)
        return VectorOperand((self.unselected(operand), self.unselected(operand, 1)))

    def words(self, operand: asm.Operand, count: int) -> PtxOperand:
        """Return `count` consecutive registers as one operand."""
        return VectorOperand(tuple(self.word(operand, step) for step in range(count)))

    def integer(self, operand: asm.Operand) -> PtxOperand:
        """Return a 32-bit operand with negation or inversion applied."""
        value = self.unselected(operand)
        if getattr(operand, "absolute", False):
            value = self.compute("abs.s32", value)
        if getattr(operand, "negate", False):
            return self.compute("neg.s32", value)
        return self.compute("not.b32", value) if getattr(operand, "invert", False) else value

    def long(self, operand: asm.Operand) -> PtxOperand:
        """Return a 64-bit operand with negation or inversion applied; an immediate is sign-extended."""
        if isinstance(operand, asm.ImmediateOperand):
            return Immediate(operand.value - (1 << 32) if operand.value >> 31 == 1 else operand.value)
        value = self.pair(operand)
        if getattr(operand, "negate", False):
            return self.compute("neg.s64", value, bits=64)
        return self.compute("not.b64", value, bits=64) if getattr(operand, "invert", False) else value

    def single(self, operand: asm.Operand) -> PtxOperand:
        """Return an f32 operand with its sign modifiers applied, also to a NaN."""
        return self._signed(operand, self.unselected(operand), 0x80000000)

    def double(self, operand: asm.Operand) -> PtxOperand:
        """Return an f64 operand with its sign modifiers applied, except to a NaN; an immediate is the upper half."""
        if isinstance(operand, asm.ImmediateOperand):
            return Immediate((operand.value & WORD) << 32)
        value = self.pair(operand)
        if getattr(operand, "absolute", False):
            value = self.compute("abs.f64", value, bits=64)
        return self.compute("neg.f64", value, bits=64) if getattr(operand, "negate", False) else value

    def halves(self, operand: asm.Operand) -> PtxOperand:
        """Return a packed pair of 16-bit floats with half selection and sign modifiers applied."""
        value = self.bits_of(operand)
        selector = getattr(operand, "selector", "")
        if selector not in {"", "H1_H0", "H0_H0", "H1_H1", "H0", "H1", "H0_NH1"}:
            raise Unsupported(f"the selector .{selector}")
        if selector == "H0_NH1":
            value = self.compute("prmt.b32", value, ZERO, Immediate(0x1032))  # the upper half is H0, the lower half -H1
            value = self.compute("xor.b32", value, Immediate(0x8000))
        elif selector.startswith("H0"):
            value = self.compute("prmt.b32", value, ZERO, Immediate(0x1010))
        elif selector in {"H1", "H1_H1"}:
            value = self.compute("prmt.b32", value, ZERO, Immediate(0x3232))
        return self._signed(operand, value, 0x80008000)

    def _signed(self, operand: asm.Operand, value: PtxOperand, signs: int) -> PtxOperand:
        if isinstance(value, Immediate) and isinstance(value.value, int):
            kept = signs ^ WORD if getattr(operand, "absolute", False) else WORD
            return Immediate(value.value & kept ^ (signs if getattr(operand, "negate", False) else 0))
        if getattr(operand, "absolute", False):
            value = self.compute("and.b32", value, Immediate(signs ^ WORD))
        return self.compute("xor.b32", value, Immediate(signs)) if getattr(operand, "negate", False) else value

    def predicate(self, operand: asm.Operand) -> PtxOperand:
        """Return a predicate operand, or a register's sign bit as a predicate."""
        if not isinstance(operand, asm.RegisterOperand):
            raise Unsupported(f"the predicate {asm.form_of(operand)}")
        if operand.file in {"R", "UR"} and operand.selector == "SIGN":
            name = "setp.ge.s32" if operand.invert else "setp.lt.s32"
            return self.compute(name, self.bits_of(operand), ZERO, bits=1)
        if operand.file not in {"P", "UP"}:
            raise Unsupported(f"the predicate {operand.file}{operand.index}")
        if operand.is_constant:
            return ZERO if operand.invert else ONE
        return self.register(operand.file, operand.index, negated=operand.invert)

    @staticmethod
    def inverse(predicate: PtxOperand) -> PtxOperand:
        """Return the negation of a predicate operand."""
        if isinstance(predicate, Register):
            return replace(predicate, negated=not predicate.negated)
        return ONE if predicate == ZERO else ZERO

    # --- results

    def result(self, operand: asm.Operand, step: int = 0) -> PtxOperand:
        """Return the register or predicate of a result operand."""
        if not isinstance(operand, asm.RegisterOperand) or operand.file not in FILES:
            raise Unsupported(f"the result {asm.form_of(operand)}")
        return Discard() if operand.is_constant else self.register(operand.file, operand.index + step)

    def results(self, operand: asm.Operand, count: int) -> PtxOperand:
        """Return `count` consecutive result registers as one operand."""
        return VectorOperand(tuple(self.result(operand, step) for step in range(count)))

    # --- addresses

    def address(self, operand: asm.Operand, *, wide: bool) -> MemoryOperand:
        """Return a memory address; `wide` addresses have 64 bits."""
        if not isinstance(operand, asm.AddressOperand) or operand.prefix not in {"", "desc"}:
            raise Unsupported(f"the address {asm.form_of(operand)}")
        terms: list[PtxOperand] = [
            self._term(register, wide=wide, is_alone=operand.uniform is None)
            for register in (operand.base, operand.uniform)
            if register is not None and not register.is_constant
        ]
        if len(terms) == 2:
            terms = [self.compute(f"add.u{64 if wide else 32}", *terms, bits=64 if wide else 32)]
        base = terms[0] if terms else None
        if base is not None and not isinstance(base, Register | VectorOperand):
            raise Unsupported(f"the address {asm.form_of(operand)}")
        return MemoryOperand(base, operand.offset)

    def shared_address(self, operand: asm.Operand) -> MemoryOperand:
        """Return an address in shared memory; in the machine, shared memory starts at `SHARED_START`."""
        address = self.address(operand, wide=False)
        return replace(address, offset=address.offset + SHARED_START - self.driver_words.shared_start)

    def _term(self, register: asm.RegisterOperand, *, wide: bool, is_alone: bool) -> PtxOperand:
        """Return one register of an address: a 64-bit pair, or a zero-extended word."""
        selector = register.selector
        if selector not in {"", "64", "U32", "X4", "X8", "X16"} or register.negate:
            raise Unsupported(f"the address register {asm.form_of(register)}")
        value: PtxOperand = self.register(register.file, register.index)
        if selector.startswith("X"):
            value = self.compute("shl.b32", value, Immediate(int(selector[1:]).bit_length() - 1))
        if not wide:
            return value
        is_pair = selector == "64" or (not selector and (register.file == "UR" or is_alone))
        return self.pair(register) if is_pair else VectorOperand((value, ZERO))


def _writes(inst: DecodedInstruction, register: Register) -> bool:
    return any(isinstance(result, Register) and result.index == register.index for result in inst.results)
