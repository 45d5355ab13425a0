"""The text of some steps of one warp: its registers are loaded when they are first read, and stored at the end."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.ptx.compiler.lane_ops import RULES, fused_rule
from warpfrag.ptx.compiler.liveness import live_after
from warpfrag.ptx.compiler.llvm_text import Text, Value
from warpfrag.ptx.compiler.memory_access import Helper, helper_name
from warpfrag.ptx.interpreter.special_registers import INEXACT
from warpfrag.ptx.opcodes.cooperating import shuffle
from warpfrag.ptx.opcodes.rows import Words, match
from warpfrag.ptx.program.actions import Across, AsyncCopy, Load, Matrix, Move, Nothing, Pure, Store
from warpfrag.ptx.program.program import Constant, Operand, Place, Register, Sink, Special, Step, Vector
from warpfrag.ptx.program.types import TYPES, Type, container

if TYPE_CHECKING:
    from warpfrag.ptx.program.program import Program

WIDTHS = {1, 8, 16, 32, 64}
WIDEST_ACCESS = 128  # bits of a lane
COPIED = {4, 8, 16}  # bytes of cp.async


@dataclass(frozen=True)
class File:
    """Where the registers of a warp lie: the byte of each, those of special registers after the declared."""

    offsets: tuple[int, ...]
    special: dict[str, int]
    bytes: int

    @staticmethod
    def of(program: Program) -> File:
        """Lay out the registers of a program: first those that outlive a block of steps, so that they lie together."""
        outlive = 0
        live = live_after(program)
        for end in set(program.ends):
            outlive |= live[end - 1]
        at, offsets = 0, [0] * len(program.registers)
        for index in sorted(range(len(offsets)), key=lambda index: not outlive >> index & 1):
            offsets[index] = at
            at += max(64, 32 * container(program.registers[index]).itemsize)
        special: dict[str, int] = {}
        for step in program.steps:
            for operand in step.sources:
                for one in operand.items if isinstance(operand, Vector) else (operand,):
                    if isinstance(one, Special) and one.name not in special and is_fixed(one.name):
                        special[one.name] = at
                        at += 128
        return File(tuple(offsets), special, at)


def is_fixed(name: str) -> bool:
    """Whether a special register never changes, and is as on a GPU."""
    return name.split(".", maxsplit=1)[0] not in INEXACT


def words_of(step: Step) -> Words | None:
    """The words of a step, sorted."""
    if step.row is None:
        return None
    found = match(step.row, step.name, len(step.results) + len(step.sources))
    return None if isinstance(found, str) else found


class Unsupported(Exception):
    """A step that is left to the readable engine."""


class Body:
    """The text of some steps of one warp."""

    def __init__(self, file: File) -> None:
        """Nothing is read yet."""
        self.file = file
        self.text = Text()
        self.known: dict[int, Value] = {}
        self.before: dict[int, Value] = {}
        self.changed: dict[int, Register] = {}
        self.helpers: set[Helper] = set()

    # --- operands

    def register(self, register: Register) -> Value:
        """A register's lanes."""
        if register.bits not in WIDTHS:
            raise Unsupported
        if register.index not in self.known:
            value = self.load(self.file.offsets[register.index], register.bits)
            self.known[register.index] = self.before[register.index] = value
        return self.known[register.index]

    def load(self, offset: int, bits: int) -> Value:
        """Lanes from the register file."""
        stored = max(8, bits)
        place = self.text.new(f"getelementptr i8, ptr %warp, i64 {offset}")
        value = Value(self.text.new(f"load <32 x i{stored}>, ptr {place}, align 64"), stored)
        return self.text.compare("ne", value, self.text.constant(0, 8)) if bits == 1 else value

    def read(self, operand: Operand, kind: Type) -> Value:
        """An operand as the codes of a type."""
        if kind.bits not in WIDTHS:
            raise Unsupported
        if isinstance(operand, Register):
            value = self.register(operand)
            if operand.negated:
                value = self.text.invert(value)
            if kind.bits == 1 and value.bits != 1:
                raise Unsupported
            return self.text.resize(value, kind.bits)
        if isinstance(operand, Constant):
            return self.text.constant(int(operand.code(kind)), kind.bits)
        if isinstance(operand, Special) and operand.name in self.file.special:
            return self.text.resize(self.load(self.file.special[operand.name], 32), kind.bits)
        if isinstance(operand, Place) and operand.base is None:
            return self.text.constant(operand.offset, kind.bits)
        raise Unsupported

    def write(self, operand: Operand, value: Value, active: Value | None, kind: Type | None = None) -> None:
        """New lanes of a register, where the guard holds."""
        if isinstance(operand, Sink):
            return
        if not isinstance(operand, Register) or operand.bits not in WIDTHS:
            raise Unsupported
        if (operand.bits == 1) != (value.bits == 1):
            raise Unsupported
        value = self.text.resize(value, operand.bits, signed=kind is not None and kind.kind == "s")
        old = self.register(operand)
        self.known[operand.index] = value if active is None else self.text.select(active, value, old)
        self.changed[operand.index] = operand

    # --- steps

    def step(self, at: int, step: Step) -> None:
        """Add a step; Unsupported if it cannot be."""
        action = step.action
        active = None
        if step.guard is not None:
            active = self.register(step.guard)
            active = self.text.invert(active) if step.guard.negated else active
        if isinstance(action, Nothing):
            return
        if isinstance(action, Pure):
            self.pure(step, action, active)
        elif isinstance(action, Move):
            self.move(step, action, active)
        elif isinstance(action, Load | Store):
            self.access(at, step, action, active)
        elif isinstance(action, AsyncCopy):
            self.copy(at, step, active)
        elif isinstance(action, Matrix):
            self.load_matrices(at, step)
        elif isinstance(action, Across):
            self.shuffle(step)
        else:
            raise Unsupported

    def pure(self, step: Step, action: Pure, active: Value | None) -> None:
        """What lanes compute."""
        words = words_of(step)
        if words is None or words.opcode not in RULES:
            raise Unsupported
        given: list[Value | int] = [
            operand.code(None) if kind is None and isinstance(operand, Constant) else self.read(operand, kind)  # type: ignore[arg-type] # None goes with a constant
            for operand, kind in zip(step.sources, action.sources, strict=True)
        ]
        if action.fused is None:
            found = RULES[words.opcode](self.text, words, given)
        elif action.fused[0] == "mul":
            found = fused_rule(self.text, words, given, action.fused[1:])
        else:
            found = None
        if found is None:
            raise Unsupported
        for operand, value, kind in zip(step.results, found, action.results, strict=False):
            self.write(operand, value, active, kind if action.extends else None)

    def move(self, step: Step, action: Move, active: Value | None) -> None:
        """mov, packing and unpacking."""
        kind = action.type
        target, source = step.results[0], step.sources[0]
        if kind.bits not in WIDTHS:
            raise Unsupported
        if isinstance(source, Vector):
            bits = kind.bits // len(source.items)
            value = self.text.constant(0, kind.bits)
            for index, item in enumerate(source.items):
                piece = self.text.resize(self.read(item, TYPES[f"b{bits}"]), kind.bits)
                moved = self.text.binary("shl", piece, self.text.constant(bits * index, kind.bits))
                value = self.text.binary("or", value, moved)
        else:
            value = self.read(source, kind)
        if not isinstance(target, Vector):
            self.write(target, value, active)
            return
        bits = kind.bits // len(target.items)
        for index, item in enumerate(target.items):
            moved = self.text.binary("lshr", value, self.text.constant(bits * index, kind.bits))
            self.write(item, self.text.resize(moved, bits), active)

    # --- memory

    def addresses(self, place: Operand) -> Value:
        """The addresses of all lanes."""
        if not isinstance(place, Place):
            raise Unsupported
        if place.base is None:
            return self.text.constant(place.offset, 64)
        base = self.register(place.base)
        if base.bits not in {32, 64}:
            raise Unsupported
        found = self.text.binary("add", base, self.text.constant(place.offset, base.bits))
        return self.text.resize(found, 64)

    def access(self, at: int, step: Step, action: Load | Store, active: Value | None) -> None:
        """ld and st: the addresses go to a helper, which comes back with a fault or not."""
        kind, space = action.type, action.space
        if kind.bits not in WIDTHS or kind.bits == 1 or kind.bits * action.count > WIDEST_ACCESS:
            raise Unsupported
        text = self.text
        addresses = self.addresses(step.sources[0])
        is_load = isinstance(action, Load)
        operand = step.results[0] if is_load else step.sources[1]
        items = operand.items if isinstance(operand, Vector) else (operand,)
        if len(items) != action.count:
            raise Unsupported
        mask = self.mask_of(active)
        text.line(f"store {addresses}, ptr %addresses, align 64")
        places = [text.new(f"getelementptr i8, ptr %items, i64 {32 * kind.bits // 8 * i}") for i in range(len(items))]
        if not is_load:
            for item, place in zip(items, places, strict=True):
                text.line(f"store {self.read(item, kind)}, ptr {place}, align 32")
        self.move_data(at, ("load" if is_load else "store", space, kind.bits, len(items)), mask)
        if is_load:
            for item, place in zip(items, places, strict=True):
                value = Value(text.new(f"load <32 x i{kind.bits}>, ptr {place}, align 32"), kind.bits)
                self.write(item, value, active, kind)

    def mask_of(self, active: Value | None) -> str:
        """The lanes that are here and whose guard holds."""
        if active is None:
            return "%mask"
        return self.text.new(f"and i32 %mask, {self.text.new(f'bitcast {active} to i32')}")

    def copy(self, at: int, step: Step, active: Value | None) -> None:
        """cp.async: what is taken of the source, then zeros."""
        text = self.text
        target, source, given, *rest = step.sources
        size = given.code(None) if isinstance(given, Constant) else 0
        if size not in COPIED:
            raise Unsupported
        taken = text.constant(size, 32)
        if rest and isinstance(rest[0], Register) and rest[0].bits == 1:  # ignore-src
            taken = text.select(self.read(rest[0], TYPES["pred"]), text.constant(0, 32), taken)
        elif rest and not (isinstance(rest[0], Register) and rest[0].bits == 64):  # src-size; 64 bits are a policy
            taken = text.call("umin", self.read(rest[0], TYPES["u32"]), taken)
        mask = self.mask_of(active)
        places, sources = self.addresses(target), self.addresses(source)
        text.line(f"store {sources}, ptr %addresses, align 64")
        text.line(f"store {taken}, ptr %taken, align 64")
        self.helpers.add(("copy", "global", 32, size // 4))
        fault = text.new(
            f"call i32 @copy_{size // 4}(ptr %context, i32 {mask}, ptr %addresses, ptr %items, ptr %taken, i64 {at})"
        )
        self.stop_at(f"{at}_read", at, mask, fault)
        text.line(f"store {places}, ptr %addresses, align 64")
        self.move_data(at, ("store", "shared", 32, size // 4), mask)

    def move_data(self, at: int, helper: Helper, mask: str) -> None:
        """Call a helper that moves data."""
        self.helpers.add(helper)
        fault = self.text.new(
            f"call i32 @{helper_name(*helper)}"
            f"(ptr %context, i64 %row, i32 {mask}, ptr %addresses, ptr %items, i64 {at})"
        )
        self.stop_at(str(at), at, mask, fault)

    def stop_at(self, name: str, at: int, mask: str, fault: str) -> None:
        """After a fault the warp stops."""
        text = self.text
        wrong = text.new(f"icmp ne i32 {fault}, 0")
        text.line(f"br i1 {wrong}, label %bad{name}, label %good{name}, !prof !0")
        text.lines.append(f"bad{name}:")
        text.line(f"call void @fault(ptr %context, i64 {at}, i64 %row, i32 {mask}, ptr %addresses)")
        text.line("br label %next")
        text.lines.append(f"good{name}:")

    # --- whole warps

    def load_matrices(self, at: int, step: Step) -> None:
        """ldmatrix of 16-bit elements: the lines of all lanes, then each word from where its elements lie."""
        found = LDMATRIX.fullmatch(step.name)
        if found is None or step.guard is not None:
            raise Unsupported
        count, text = int(found["count"]), self.text
        operand = step.results[0]
        items = operand.items if isinstance(operand, Vector) else (operand,)
        if len(items) != count:
            raise Unsupported
        text.line(f"store {self.addresses(step.sources[0])}, ptr %addresses, align 64")
        self.move_data(at, ("load", "matrices", 64, 2), str((1 << (8 * count)) - 1))
        bits = 16 if found["trans"] else 32
        elements = 32 * 64 // bits
        upper = text.new("getelementptr i8, ptr %items, i64 256")
        halves = [text.new(f"load <{elements} x i{bits}>, ptr {place}, align 32") for place in ("%items", upper)]
        for matrix, item in enumerate(items):
            chosen = ", ".join(f"i32 {index}" for index in matrix_places(matrix, trans=bits == 16))
            name = text.new(
                f"shufflevector <{elements} x i{bits}> {halves[0]}, <{elements} x i{bits}> {halves[1]}, "
                f"<{32 * 32 // bits} x i32> <{chosen}>"
            )
            if bits == 16:
                name = text.new(f"bitcast <64 x i16> {name} to <32 x i32>")
            self.write(item, Value(name, 32), None)

    def shuffle(self, step: Step) -> None:
        """shfl by constants, with all lanes there."""
        words = words_of(step)
        operands = step.sources[1:3]
        if words is None or words.opcode != "shfl" or step.guard is not None:
            raise Unsupported
        numbers = [one.code(TYPES["u32"]) for one in operands if isinstance(one, Constant)]
        if len(numbers) != 2:
            raise Unsupported
        given = [np.full((1, 32), number, np.uint32) for number in numbers]
        lanes, inside = shuffle(None, np.arange(32)[None, :], *given, mode=words.get("mode"))
        value = self.read(step.sources[0], TYPES["b32"])
        chosen = ", ".join(f"i32 {lane}" for lane in lanes[0])
        held = ", ".join(f"i1 {'true' if one else 'false'}" for one in inside[0])
        moved = Value(self.text.new(f"shufflevector {value}, {value}, <32 x i32> <{chosen}>"), 32)
        for operand, result in zip(step.results, (moved, Value(f"<{held}>", 1)), strict=False):
            self.write(operand, result, None)

    def finish(self, live: int) -> None:
        """Write back what changed and is still wanted, in the lanes that are here."""
        text = self.text
        mask = Value(text.new("bitcast i32 %mask to <32 x i1>"), 1)
        for index, register in self.changed.items():
            if not live >> index & 1:
                continue
            value = text.select(mask, self.known[index], self.before[index])
            place = text.new(f"getelementptr i8, ptr %warp, i64 {self.file.offsets[index]}")
            text.line(f"store {text.resize(value, max(8, register.bits))}, ptr {place}, align 64")


LDMATRIX = re.compile(r"ldmatrix\.sync\.aligned\.m8n8\.x(?P<count>[124])(?P<trans>\.trans)?\.shared(::cta)?\.b16")


def matrix_places(matrix: int, *, trans: bool) -> list[int]:
    """Where the elements of a fragment lie among the first halves of all lines, then the second halves."""
    if not trans:  # words: lane l has word l % 4 of line l / 4
        return [64 * (lane % 4 // 2) + 2 * (8 * matrix + lane // 4) + lane % 2 for lane in range(32)]
    places: list[int] = []
    for lane in range(32):  # elements: lane l has column l / 4 of lines 2 (l % 4) and the next
        first = 128 * (lane // 16) + 4 * (8 * matrix + 2 * (lane % 4)) + lane // 4 % 4
        places += [first, first + 4]
    return places
