"""Runs of steps as native functions: which steps go together, and their text.

A function runs its steps for one warp after the other, with the registers of a warp in its hands. So that warps see
each other's stores as in the readable engine, step by step, a store starts a run and no load follows it there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.ptx import spaces
from warpfrag.ptx.actions import Across, Action, Load, Matrix, Move, Nothing, Pure, Store
from warpfrag.ptx.native.lanes import RULES, fused_rule
from warpfrag.ptx.native.text import Text, Value
from warpfrag.ptx.opcodes.cooperating import shuffle
from warpfrag.ptx.opcodes.rows import Words, match
from warpfrag.ptx.program import Constant, Operand, Place, Register, Sink, Special, Step, Vector, registers_of
from warpfrag.ptx.special import INEXACT
from warpfrag.ptx.types import TYPES, Type, container

if TYPE_CHECKING:
    from warpfrag.ptx.program import Program

SPACES = ("global", "shared", "local", "param", "const")
WIDTHS = {1, 8, 16, 32, 64}

# What a function is told, as places of an array of 64-bit words.
REGISTERS, WARP_BYTES, PARAMETERS, PARAMETER_BYTES, SHARED, SHARED_END, SHARED_STRIDE = range(7)
LOCAL, LOCAL_STRIDE, ALLOCATIONS, ALLOCATION_COUNT, WARP_BLOCK = range(7, 12)
FAULT_STEP, FAULT_WARP, FAULT_MASK, FAULT_ADDRESSES = 12, 13, 14, 16
READ, WRITTEN = 48, 53
CONTEXT_WORDS = 64
NO_FAULT = (1 << 62) - 1


@dataclass(frozen=True)
class File:
    """Where the registers of a warp lie: the byte of each, those of special registers after the declared."""

    offsets: tuple[int, ...]
    special: dict[str, int]
    bytes: int

    @staticmethod
    def of(program: Program) -> File:
        """Lay out the registers of a program."""
        at, offsets = 0, []
        for bits in program.registers:
            offsets.append(at)
            at += max(64, 32 * container(bits).itemsize)
        special: dict[str, int] = {}
        for step in program.steps:
            for operand in step.sources:
                for one in operand.items if isinstance(operand, Vector) else (operand,):
                    if isinstance(one, Special) and one.name not in special and is_fixed(one.name):
                        special[one.name] = at
                        at += 128
        return File(tuple(offsets), special, at)


@dataclass(frozen=True)
class Segment:
    """Steps that run as one function."""

    start: int
    end: int
    name: str
    stores: int = 0
    is_whole: bool = False  # all lanes of each warp must be there


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
        self.helpers: set[tuple[str, str, int, int]] = set()
        self.slots = 0  # 64-bit vectors that loads and stores pass

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
        if kind.bits not in WIDTHS or kind.bits == 1:
            raise Unsupported
        text = self.text
        addresses = self.addresses(step.sources[0])
        is_load = isinstance(action, Load)
        operand = step.results[0] if is_load else step.sources[1]
        items = operand.items if isinstance(operand, Vector) else (operand,)
        if len(items) != action.count:
            raise Unsupported
        mask = "%mask"
        if active is not None:
            bits = text.new(f"bitcast {active} to i32")
            mask = text.new(f"and i32 %mask, {bits}")
        text.line(f"store {addresses}, ptr %addresses, align 64")
        self.slots = max(self.slots, len(items))
        places = [text.new(f"getelementptr i8, ptr %items, i64 {32 * kind.bits // 8 * i}") for i in range(len(items))]
        if not is_load:
            for item, place in zip(items, places, strict=True):
                text.line(f"store {self.read(item, kind)}, ptr {place}, align 32")
        self.move_data(at, ("load" if is_load else "store", space, kind.bits, len(items)), mask)
        if is_load:
            for item, place in zip(items, places, strict=True):
                value = Value(text.new(f"load <32 x i{kind.bits}>, ptr {place}, align 32"), kind.bits)
                self.write(item, value, active, kind)

    def move_data(self, at: int, helper: tuple[str, str, int, int], mask: str) -> None:
        """Call a helper that moves data; after a fault the warp stops."""
        text = self.text
        self.helpers.add(helper)
        fault = text.new(
            f"call i32 @{helper_name(*helper)}(ptr %context, i64 %row, i32 {mask}, ptr %addresses, ptr %items)"
        )
        wrong = text.new(f"icmp ne i32 {fault}, 0")
        text.line(f"br i1 {wrong}, label %bad{at}, label %good{at}, !prof !0")
        text.lines.append(f"bad{at}:")
        text.line(f"call void @fault(ptr %context, i64 {at}, i64 %row, i32 {mask}, ptr %addresses)")
        text.line("br label %next")
        text.lines.append(f"good{at}:")

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
        self.move_data(at, ("load", "shared", 64, 2), str((1 << (8 * count)) - 1))
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

    def finish(self) -> None:
        """Write back what changed, in the lanes that are here."""
        text = self.text
        if self.changed:
            mask = Value(text.new("bitcast i32 %mask to <32 x i1>"), 1)
        for index, register in self.changed.items():
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


def helper_name(way: str, space: str, bits: int, count: int) -> str:
    """The name of the function that moves data."""
    return f"{way}_{space}_{bits}_{count}"


def is_supported(file: File, at: int, step: Step) -> bool:
    """Whether a step can be compiled."""
    if step.action.ends_block:
        return False
    try:
        Body(file).step(at, step)
    except Unsupported:
        return False
    return True


def cut(program: Program, file: File) -> list[Segment]:
    """The segments of a program."""
    found: list[Segment] = []
    ends, steps = program.ends, program.steps
    first: int | None = None
    stored = False
    for at, step in enumerate(steps):
        action: Action = step.action
        fits = is_supported(file, at, step)
        alone = fits and action.is_collective
        breaks = isinstance(action, Store) or (isinstance(action, Load) and stored)
        if first is not None and (not fits or alone or breaks or ends[at] != ends[first]):
            found.append(Segment(first, at, f"segment{first}", int(stored)))
            first = None
        if alone:
            found.append(Segment(at, at + 1, f"segment{at}", is_whole=True))
            continue
        if fits and first is None:
            first, stored = at, False
        stored = stored or (fits and isinstance(action, Store))
    if first is not None:
        found.append(Segment(first, len(steps), f"segment{first}", int(stored)))
    return found


def products(program: Program) -> dict[int, int]:
    """Runs of mma that need nothing of each other, [start, end): they are one product of more warps."""
    found: dict[int, int] = {}
    start: int | None = None
    written: set[int] = set()
    for at, step in enumerate(program.steps):
        plain = isinstance(step.action, Matrix) and step.action.operation == "mma" and len(step.sources) == 3
        plain = plain and step.guard is None and ".m16n8k" in step.name  # others have several tiles in a warp
        used = {one.index for operand in step.sources for one in registers_of(operand)} if plain else set()
        if start is not None:
            same = plain and step.action == program.steps[start].action and program.ends[at] == program.ends[start]
            if same and not used & written:
                found[start] = at + 1
            else:
                start = None
        if start is None and plain:
            start, written = at, set()
        if plain:
            written |= {one.index for operand in step.results for one in registers_of(operand)}
    return found


def module_text(program: Program, file: File, segments: list[Segment]) -> str:
    """All functions of a program."""
    used: set[str] = set()
    helpers: set[tuple[str, str, int, int]] = set()
    functions = []
    for segment in segments:
        body = Body(file)
        for at in range(segment.start, segment.end):
            body.step(at, program.steps[at])
        body.finish()
        used |= body.text.used
        helpers |= body.helpers
        functions.append(FUNCTION.format(name=segment.name, body="\n".join(body.text.lines)))
    used.add("declare i32 @llvm.cttz.i32(i32, i1)")
    parts = [*sorted(used), FAULT, FIND, *(helper_text(*one) for one in sorted(helpers)), *functions]
    return "\n".join([*parts, '!0 = !{!"branch_weights", i32 1, i32 1000}', ""])


FUNCTION = """
define void @{name}(ptr noalias %context, ptr noalias %rows, ptr noalias %masks, i64 %count) {{
entry:
  %addresses = alloca <32 x i64>, align 256
  %items = alloca [8 x <32 x i64>], align 256
  %registers = load ptr, ptr %context
  %stride_at = getelementptr i64, ptr %context, i64 1
  %stride = load i64, ptr %stride_at
  br label %loop
loop:
  %index = phi i64 [0, %entry], [%index_after, %next]
  %row_at = getelementptr i64, ptr %rows, i64 %index
  %row = load i64, ptr %row_at
  %mask_at = getelementptr i32, ptr %masks, i64 %index
  %mask = load i32, ptr %mask_at
  %warp_offset = mul i64 %row, %stride
  %warp = getelementptr i8, ptr %registers, i64 %warp_offset
{body}
  br label %next
next:
  %index_after = add i64 %index, 1
  %more = icmp ult i64 %index_after, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}}"""

# Of several faults the first step's is kept, and of one step's the first warp's.
FAULT = f"""
define internal void @fault(ptr %context, i64 %step, i64 %row, i32 %mask, ptr %addresses) noinline {{
  %step_at = getelementptr i64, ptr %context, i64 {FAULT_STEP}
  %known = load i64, ptr %step_at
  %earlier = icmp ult i64 %step, %known
  br i1 %earlier, label %keep, label %done
keep:
  store i64 %step, ptr %step_at
  %row_at = getelementptr i64, ptr %context, i64 {FAULT_WARP}
  store i64 %row, ptr %row_at
  %mask_at = getelementptr i64, ptr %context, i64 {FAULT_MASK}
  %wide = zext i32 %mask to i64
  store i64 %wide, ptr %mask_at
  %given = load <32 x i64>, ptr %addresses
  %kept = getelementptr i64, ptr %context, i64 {FAULT_ADDRESSES}
  store <32 x i64> %given, ptr %kept, align 8
  br label %done
done:
  ret void
}}"""

# The allocation that holds an address: its row of the table (start, end, data, writable), or null.
FIND = f"""
define internal ptr @find(ptr %context, i64 %address) noinline {{
entry:
  %table_at = getelementptr i64, ptr %context, i64 {ALLOCATIONS}
  %table = load ptr, ptr %table_at
  %count_at = getelementptr i64, ptr %context, i64 {ALLOCATION_COUNT}
  %count = load i64, ptr %count_at
  br label %loop
loop:
  %index = phi i64 [0, %entry], [%after, %next]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %look, label %none
look:
  %offset = mul i64 %index, 4
  %row = getelementptr i64, ptr %table, i64 %offset
  %start = load i64, ptr %row
  %end_at = getelementptr i64, ptr %row, i64 1
  %end = load i64, ptr %end_at
  %from = icmp uge i64 %address, %start
  %to = icmp ult i64 %address, %end
  %inside = and i1 %from, %to
  br i1 %inside, label %found, label %next
next:
  %after = add i64 %index, 1
  br label %loop
found:
  ret ptr %row
none:
  ret ptr null
}}"""


def helper_text(way: str, space: str, bits: int, count: int) -> str:
    """The function that loads or stores `count` elements of each lane, after looking at every address."""
    size = bits // 8 * count
    unit = bits // 8
    counter = READ if way == "load" else WRITTEN
    aligned = min(size, 16) - 1 if size & (size - 1) == 0 else 0
    lines = [
        f"define internal i32 @{helper_name(way, space, bits, count)}({HELPER_TAKES}) noinline {{",
        "entry:",
    ]

    def word(name: str, index: int, kind: str = "i64") -> None:
        lines.append(f"  %{name}_at = getelementptr i64, ptr %context, i64 {index}")
        lines.append(f"  %{name} = load {kind}, ptr %{name}_at")

    word("shared", SHARED, "ptr")
    word("shared_end", SHARED_END)
    word("shared_stride", SHARED_STRIDE)
    word("blocks", WARP_BLOCK, "ptr")
    word("local", LOCAL, "ptr")
    word("local_stride", LOCAL_STRIDE)
    word("parameters", PARAMETERS, "ptr")
    word("parameter_bytes", PARAMETER_BYTES)
    lines.append(
        f"""  %block_at = getelementptr i64, ptr %blocks, i64 %row
  %block = load i64, ptr %block_at
  %shared_offset = mul i64 %block, %shared_stride
  %shared_base = getelementptr i8, ptr %shared, i64 %shared_offset
  %first_thread = shl i64 %row, 5
  br label %loop
loop:
  %left = phi i32 [%mask, %entry], [%left_after, %next]
  %home = phi ptr [null, %entry], [%home_after, %next]
  %more = icmp ne i32 %left, 0
  br i1 %more, label %one, label %done
done:
  ret i32 0
fault:
  ret i32 1
one:
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %less = sub i32 %left, 1
  %left_after = and i32 %left, %less
  %address_at = getelementptr i64, ptr %addresses, i32 %lane
  %address = load i64, ptr %address_at
  %rest = and i64 %address, {aligned}
  %crooked = icmp ne i64 %rest, 0
  br i1 %crooked, label %fault, label %straight
straight:"""
    )
    if space == "generic":
        lines.append(
            """  %window = lshr i64 %address, 48
  switch i64 %window, label %in_global [ i64 1, label %in_shared i64 2, label %in_local i64 3, label %in_param ]"""
        )
        used: tuple[str, ...] = ("global", "shared", "local", "param")
    else:
        lines.append(f"  br label %in_{space}")
        used = (space,)
    arrivals = []
    for name in used:
        lines.append(f"in_{name}:")
        offset = "%address"
        if space == "generic" and name != "global":
            lines.append(f"  %{name}_inner = sub i64 %address, {spaces.WINDOWS[name]}")
            offset = f"%{name}_inner"
        lines.append(PLACES[name].format(offset=offset, size=size, start=spaces.SHARED_START, name=name))
        if name in {"global", "const"} and way == "store":
            lines.append(
                f"""  %writable_at = getelementptr i64, ptr %{name}_home, i64 3
  %writable = load i64, ptr %writable_at
  %locked = icmp eq i64 %writable, 0
  br i1 %locked, label %fault, label %{name}_open
{name}_open:"""
            )
        if name == "param" and way == "store":
            lines.append("  br label %fault")
            continue
        lines += [
            f"  %{name}_count_at = getelementptr i64, ptr %context, i64 {counter + SPACES.index(name)}",
            f"  %{name}_count = load i64, ptr %{name}_count_at",
            f"  %{name}_count_after = add i64 %{name}_count, {size}",
            f"  store i64 %{name}_count_after, ptr %{name}_count_at",
            f"  br label %{name}_there",
            f"{name}_there:",
            "  br label %move",
        ]
        arrivals.append(name)
    places = ", ".join(f"[%{name}_place, %{name}_there]" for name in arrivals)
    homes = ", ".join(
        f"[{f'%{name}_home' if name in {'global', 'const'} else '%home'}, %{name}_there]" for name in arrivals
    )
    if not arrivals:
        return "\n".join([*lines[:1], "  ret i32 1", "}"])
    lines += ["move:", f"  %place = phi ptr {places}", f"  %home_after = phi ptr {homes}"]
    for index in range(count):
        lines += [
            f"  %memory{index} = getelementptr i8, ptr %place, i64 {unit * index}",
            f"  %item{index} = getelementptr i8, ptr %items, i64 {32 * unit * index}",
            f"  %lane_item{index} = getelementptr i{bits}, ptr %item{index}, i32 %lane",
        ]
        source, target = ("memory", "lane_item") if way == "load" else ("lane_item", "memory")
        lines += [
            f"  %code{index} = load i{bits}, ptr %{source}{index}, align 1",
            f"  store i{bits} %code{index}, ptr %{target}{index}, align 1",
        ]
    lines += ["  br label %next", "next:", "  br label %loop", "}"]
    return "\n".join(lines)


HELPER_TAKES = "ptr %context, i64 %row, i32 %mask, ptr %addresses, ptr %items"
IN_TABLE = """  %{name}_same = icmp ne ptr %home, null
  br i1 %{name}_same, label %{name}_known, label %{name}_search
{name}_known:
  %{name}_start0 = load i64, ptr %home
  %{name}_end0_at = getelementptr i64, ptr %home, i64 1
  %{name}_end0 = load i64, ptr %{name}_end0_at
  %{name}_last0 = sub i64 %{name}_end0, {size}
  %{name}_from0 = icmp uge i64 {offset}, %{name}_start0
  %{name}_to0 = icmp ult i64 {offset}, %{name}_end0
  %{name}_fits0 = icmp sle i64 {offset}, %{name}_last0
  %{name}_begins0 = and i1 %{name}_from0, %{name}_to0
  %{name}_in0 = and i1 %{name}_begins0, %{name}_fits0
  br i1 %{name}_in0, label %{name}_ready, label %{name}_search
{name}_search:
  %{name}_found = call ptr @find(ptr %context, i64 {offset})
  %{name}_none = icmp eq ptr %{name}_found, null
  br i1 %{name}_none, label %fault, label %{name}_check
{name}_check:
  %{name}_end1_at = getelementptr i64, ptr %{name}_found, i64 1
  %{name}_end1 = load i64, ptr %{name}_end1_at
  %{name}_last1 = sub i64 %{name}_end1, {size}
  %{name}_to1 = icmp sle i64 {offset}, %{name}_last1
  br i1 %{name}_to1, label %{name}_ready, label %fault
{name}_ready:
  %{name}_home = phi ptr [%home, %{name}_known], [%{name}_found, %{name}_check]
  %{name}_start = load i64, ptr %{name}_home
  %{name}_data_at = getelementptr i64, ptr %{name}_home, i64 2
  %{name}_data = load ptr, ptr %{name}_data_at
  %{name}_offset = sub i64 {offset}, %{name}_start
  %{name}_place = getelementptr i8, ptr %{name}_data, i64 %{name}_offset"""
IN_BUFFER = """  %{name}_from = icmp uge i64 {offset}, {low}
  %{name}_last = sub i64 %{end}, {size}
  %{name}_to = icmp ult i64 {offset}, %{end}
  %{name}_fits = icmp sle i64 {offset}, %{name}_last
  %{name}_begins = and i1 %{name}_from, %{name}_to
  %{name}_in = and i1 %{name}_begins, %{name}_fits
  br i1 %{name}_in, label %{name}_ready, label %fault
{name}_ready:"""
PLACES = {
    "global": IN_TABLE,
    "const": IN_TABLE,
    "shared": IN_BUFFER.replace("{low}", "{start}").replace("{end}", "shared_end")
    + "\n  %shared_place = getelementptr i8, ptr %shared_base, i64 {offset}",
    "local": IN_BUFFER.replace("{low}", "0").replace("{end}", "local_stride")
    + """
  %local_lane = zext i32 %lane to i64
  %local_thread = add i64 %first_thread, %local_lane
  %local_start = mul i64 %local_thread, %local_stride
  %local_whole = add i64 %local_start, {offset}
  %local_place = getelementptr i8, ptr %local, i64 %local_whole""",
    "param": IN_BUFFER.replace("{low}", "0").replace("{end}", "parameter_bytes")
    + "\n  %param_place = getelementptr i8, ptr %parameters, i64 {offset}",
}
