"""Write a random kernel: its registers, operands, blocks and frame.

A kernel has a fixed set of registers (`kernel.REGISTERS`), filled from its input. Recipes write statements that change
them, and at the end all registers are stored. The result is deterministic: no statement reads uninitialised values, no
two threads access one location without a barrier between them unless the order cannot affect the result, and every loop
ends.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from tools.fuzz.inputs import SPECIAL
from tools.fuzz.kernel import (
    BITS,
    IN_BYTES,
    OUT_BYTES,
    REGISTERS,
    SCRATCH_BYTES,
    Function,
    Group,
    Kernel,
    Piece,
    Statement,
)  # fmt: skip
from tools.fuzz.spellings import Spelling, accepted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from warpfrag.machine.ir.scalar_types import Type

GUARDED = 0.12  # the share of guarded statements
CONSTANT = 0.12  # the share of constants among operands that may be constant
ALL_CONSTANT = 0.02  # the share of statements with only constant operands
SAME = 0.06  # the share of operands that repeat the previous register
OWN_BYTES = 64  # shared memory of one thread: 48 bytes of data, an mbarrier, 8 bytes unused
OWN_DATA, OWN_BARRIER = 48, 48
TILE_BYTES = 32 * IN_BYTES  # shared memory of one warp, filled with its input
EXCHANGE_BYTES = 16  # bytes per thread for exchanges between threads
TABLE_BYTES = 128  # bytes of the module's variables
LOCAL_BYTES = 64
MAX_DEPTH = 3
WHOLE_BLOCKS, RAGGED_BLOCKS = (32, 32, 64, 96, 128), (1, 7, 31, 33, 48, 65)
TEMPORARIES = (
    ".reg .b32 %t<6>, %count<4>, %members, %thread, %threads, %own, %mine, %tile;"
    " .reg .b64 %u<6>, %state<3>, %base, %in, %out, %tail, %own_g, %local_g, %const_g, %global_g, %blob_g;"
    " .reg .pred %q<4>; .reg .b128 %w<2>;"
)


@dataclass(frozen=True)
class Place:
    """The context of a statement: uniformity of control flow, active lanes, enclosing function, and nesting depth."""

    together: bool = True
    in_function: bool = False
    depth: int = 0
    members: str = "-1"  # the active lanes, if the warp has diverged


class Generator:
    """Generates one kernel."""

    def __init__(self, seed: int, size: int, recipes: Sequence[Recipe], target: str | None = None) -> None:
        """Create the generator for a seed and a size; the seed also chooses the target if none is given."""
        self.random = Random(f"{seed} {size}")  # noqa: S311 (no secrets)
        self.seed, self.size, self.recipes = seed, size, recipes
        self.target = target or self.random.choice(("sm_80", "sm_90a", "sm_90a"))
        self.has_whole_warps = self.random.random() < 0.8
        self.block = self.random.choice(WHOLE_BLOCKS if self.has_whole_warps else RAGGED_BLOCKS)
        self.grid = self.random.choice((1, 1, 2, 3))
        self.place = Place()
        self.labels = 0
        self.has_divided = False  # True if the lanes of a warp may have diverged
        self.written = 0
        self.open: list[Group] = [Group()]
        self.functions: list[str] = []
        self.features: set[str] = set()  # features that the prologue must prepare
        self.lane_rows = group_rows(
            s for s in accepted(self.target) if not s.is_collective and not s.carries_in | s.carries_out
        )
        self.collective_rows = group_rows(s for s in accepted(self.target) if s.is_collective)
        self.carries = {s.name: s for s in accepted(self.target) if s.carries_in or s.carries_out}

    # ---- pieces

    def add(self, piece: Piece) -> None:
        """Add a piece to the innermost open group."""
        self.open[-1].pieces.append(piece)

    @contextmanager
    def group(self, *, whole: bool = False) -> Iterator[Group]:
        """Collect the pieces that are written inside the `with` block into a group."""
        made = Group(whole=whole)
        self.add(made)
        self.open.append(made)
        yield made
        self.open.pop()

    @contextmanager
    def at(self, **changes: object) -> Iterator[None]:
        """Change the context of the statements that are written inside the `with` block."""
        before = self.place
        self.has_divided |= not changes.get("together", True)
        self.place = Place(**{**vars(before), **changes})
        yield
        self.place = before

    def emit(self, name: str, *operands: str, results: Sequence[str] = (), guard: bool | str = False) -> None:
        """Write a statement; with `guard=True`, it may get a random guard."""
        text = guard if isinstance(guard, str) else ""
        if guard is True and self.random.random() < GUARDED:
            text = f"@{self.random.choice(('', '!'))}{self.register('p')}"
        self.add(Statement(name, operands, tuple(results), text))
        self.written += 1

    def label(self) -> str:
        """Return a new label."""
        self.labels += 1
        return f"L{self.labels}"

    # ---- operands

    def register(self, kind: str) -> str:
        """Return a random register of a class: h, r, d or p."""
        return f"%{kind}{self.random.randrange(REGISTERS[kind])}"

    def registers(self, kind: str, count: int) -> list[str]:
        """Return distinct registers of a class."""
        return [f"%{kind}{number}" for number in self.random.sample(range(REGISTERS[kind]), count)]

    def choose(self, *values: str) -> str:
        """Return one of the given words."""
        return self.random.choice(values)

    def constant(self, kind: Type) -> str:
        """Return a literal of a type."""
        return random_constant(self.random, kind)

    def operands(self, spelling: Spelling) -> list[str]:
        """Return random sources of a spelling: registers, and constants if ptxas accepts them."""
        every = self.random.random() < ALL_CONSTANT
        found: list[str] = []
        for index, kind in enumerate(spelling.sources):
            limit = LIMITED.get((spelling.row.opcode, index))
            if kind is None:
                found.append(str(self.random.randrange(256)))
            elif limit is not None:
                found.append(str(self.random.randrange(limit)))
            elif index in spelling.constants and (every or self.random.random() < CONSTANT):
                below = CONSTANT_BELOW.get((spelling.row.opcode, index))
                found.append(str(self.random.randrange(below)) if below else self.constant(kind))
            elif found and self.random.random() < SAME and found[-1].startswith(f"%{letter(kind)}"):
                found.append(found[-1])
            else:
                found.append(self.register(letter(kind)))
        return found

    def results(self, spelling: Spelling) -> list[str]:
        """Return distinct registers for the results."""
        count = len(spelling.results)
        if count == 2 and spelling.row.opcode == "setp" and spelling.results[0].bits == 1:
            pair = "x2" in spelling.name
            return self.registers("p", 2 if pair or self.random.random() < 0.4 else 1)
        if count == 2 and spelling.row.opcode == "shfl" and self.random.random() < 0.5:
            count = 1
        return [self.register(letter(kind)) for kind in spelling.results[:count]]

    def instruction(self, spelling: Spelling, sources: Sequence[str], *, guard: bool | str = True) -> None:
        """Write a spelling with the given sources and random results."""
        results = self.results(spelling)
        self.emit(spelling.name, "|".join(results), *sources, results=results, guard=guard)

    # ---- the whole

    def fill(self, count: int) -> None:
        """Write recipes until the body has `count` statements."""
        until = self.written + count
        while self.written < until:
            fitting = [recipe for recipe in self.recipes if recipe.fits(self)]
            chosen = self.random.choices(fitting, [recipe.weight for recipe in fitting])[0]
            self.features.update(chosen.features)
            with self.group():
                chosen.write(self)

    def kernel(self) -> Kernel:
        """Return the kernel of the seed."""
        self.fill(self.size)
        body, end = self.open[0], Group()
        self.open = [end]
        self.finish()
        functions = tuple(self.function(name) for name in self.functions)
        random = self.random
        data = [
            ", ".join(str(random.choice((0, 255, 127, 128, random.randrange(256)))) for _ in range(TABLE_BYTES))
            for _ in range(2)
        ]
        variables = (
            f".const .align 16 .b8 constants[{TABLE_BYTES}] = {{{data[0]}}};",
            f".global .align 16 .b8 globals[{TABLE_BYTES}] = {{{data[1]}}};",
            ".global .align 128 .b8 unused[128];",
            *((f"{signature(name)};") for name in self.functions),
        )
        return Kernel(
            self.seed, self.target, self.grid, self.block, variables, functions,
            tuple(self.start()), body, end,
        )  # fmt: skip

    def start(self) -> Iterator[str]:
        """Write declarations and addresses, and initialise every register and readable byte."""
        yield declared()
        yield TEMPORARIES
        yield f".shared .align 128 .b8 own[{self.block * OWN_BYTES}];"
        yield f".shared .align 128 .b8 exchange[{self.block * EXCHANGE_BYTES}];"
        yield ".shared .align 16 .b8 common[256];"
        if "tile" in self.features:
            yield f".shared .align 128 .b8 tile[{self.block // 32 * TILE_BYTES}];"
        yield f".local .align 16 .b8 stack[{LOCAL_BYTES}];"
        yield "ld.param.u64 %in, [in]; ld.param.u64 %out, [out];"
        yield "mov.u32 %thread, %tid.x; mov.u32 %threads, %ntid.x; mov.u32 %t0, %ctaid.x; mov.u32 %t1, %nctaid.x;"
        yield "mad.lo.u32 %t0, %t0, %threads, %thread; mul.lo.u32 %t1, %t1, %threads;"
        yield f"mad.wide.u32 %tail, %t1, {OUT_BYTES}, %out; mad.wide.u32 %out, %t0, {OUT_BYTES}, %out;"
        yield f"mad.wide.u32 %in, %t0, {IN_BYTES}, %in;"
        yield f"mov.u32 %own, own; mad.lo.u32 %own, %thread, {OWN_BYTES}, %own;"
        yield f"mov.u32 %mine, exchange; mad.lo.u32 %mine, %thread, {EXCHANGE_BYTES}, %mine;"
        yield "cvt.u64.u32 %own_g, %own; cvta.shared.u64 %own_g, %own_g; mov.u32 %members, -1;"
        yield "mov.u64 %local_g, stack; cvta.local.u64 %local_g, %local_g;"
        yield "mov.u64 %const_g, constants; cvta.const.u64 %const_g, %const_g;"
        yield "mov.u64 %global_g, globals; cvta.global.u64 %global_g, %global_g;"
        yield "mov.b64 %blob_g, blob; cvta.param.u64 %blob_g, %blob_g;"
        for at in range(0, OWN_DATA, 16):
            yield f"ld.global.v2.b64 {{%u0, %u1}}, [%in+{at}]; st.shared.v2.b64 [%own+{at}], {{%u0, %u1}};"
        for at in range(0, LOCAL_BYTES, 16):
            yield f"ld.global.v2.b64 {{%u0, %u1}}, [%in+{at}]; st.local.v2.b64 [stack+{at}], {{%u0, %u1}};"
        if "tile" in self.features:
            yield f"mov.u32 %t0, tile; shr.u32 %t1, %thread, 5; mad.lo.u32 %tile, %t1, {TILE_BYTES}, %t0;"
            yield f"mad.lo.u32 %t0, %thread, {IN_BYTES}, %t0;"
            for at in range(0, IN_BYTES, 16):
                yield f"ld.global.v2.b64 {{%u0, %u1}}, [%in+{at}]; st.shared.v2.b64 [%t0+{at}], {{%u0, %u1}};"
        yield "bar.sync 0;"
        yield from self.filled(
            lambda size: f"ld.global.b{8 * size} %{{}}, [%in+{self.random.randrange(0, IN_BYTES, size)}];"
        )

    def filled(self, load: Callable[[int], str]) -> Iterator[str]:
        """Yield the lines that initialise every register; `load` returns an instruction that loads that many bytes."""
        for name, count in REGISTERS.items():
            for number in range(count):
                if name == "p":
                    order = self.choose("lt", "gt", "ne", "ge")
                    yield f"setp.{order}.s32 %p{number}, %r{number}, %r{number + 5};"
                else:
                    yield load({"h": 2, "r": 4, "d": 8}[name]).format(f"{name}{number}")

    def finish(self) -> None:
        """Write stores of every register; in some kernels, some threads then exit and the others store again."""
        self.store_registers()
        if self.random.random() < 0.3:
            self.emit("exit", guard=f"@{self.register('p')}")
            for kind in "hrd":
                first, second = self.registers(kind, 2)
                self.emit(f"xor.b{BITS[kind]}", first, first, second, results=[first])
            self.store_registers()
        self.emit(self.choose("ret", "ret.uni", "exit"))

    def store_registers(self) -> None:
        """Write stores of every register, after the thread's scratch memory."""
        at = SCRATCH_BYTES
        for kind in "drh":
            for number in range(REGISTERS[kind]):
                self.emit(f"st.global.b{BITS[kind]}", f"[%out+{at}]", f"%{kind}{number}")
                at += BITS[kind] // 8
        self.emit("mov.b32", "%t0", "0")
        for number in range(REGISTERS["p"]):
            self.emit("selp.b32", "%t1", str(1 << number), "0", f"%p{number}")
            self.emit("or.b32", "%t0", "%t0", "%t1")
        self.emit("st.global.b32", f"[%out+{at}]", "%t0")

    # ---- functions

    def function(self, name: str) -> Function:
        """Write a function: registers from its parameters, a few recipes, and a result from all registers."""
        body = Group()
        self.open.append(body)
        recursive = name.startswith("recursive")
        places = ("a", "a", "b", "b+4", "c", "c+4", "c+8", "c+12")
        with self.at(together=False, in_function=True, depth=2):
            if recursive:
                with self.group(whole=True):
                    self.recursion(name)
            self.fill(8)
        self.open.pop()

        def load(size: int) -> str:
            return f"ld.param.b{8 * size} %{{}}, [{self.random.choice(places if size < 8 else ('b', 'c', 'c+8'))}];"

        start = [
            declared(), TEMPORARIES, f".local .align 16 .b8 stack[{LOCAL_BYTES}];",
            "mov.u64 %local_g, stack; cvta.local.u64 %local_g, %local_g;",
            "mov.u64 %const_g, constants; cvta.const.u64 %const_g, %const_g;",
            "mov.u64 %global_g, globals; cvta.global.u64 %global_g, %global_g;",
            *self.filled(load),
            *(f"st.local.b64 [stack+{at}], %d{at // 8};" for at in range(0, LOCAL_BYTES, 8)),
        ]  # fmt: skip
        end = ["mov.b32 %t0, 0;"]
        end += [f"xor.b32 %t0, %t0, %r{number};" for number in range(REGISTERS["r"])]
        end += [f"cvt.u32.u64 %t1, %d{number}; add.u32 %t0, %t0, %t1;" for number in range(REGISTERS["d"])]
        end += [f"cvt.u32.u16 %t1, %h{n}; mad.lo.u32 %t0, %t0, 3, %t1;" for n in range(REGISTERS["h"])]
        end += ["st.param.b32 [q], %t0;", "ret;"]
        return Function(signature(name), tuple(start), body, tuple(end))

    def recursion(self, name: str) -> None:
        """Write a recursive call; the low bits of the first parameter give the depth."""
        over = self.label()
        self.emit("ld.param.b32", "%count3", "[a]")
        self.emit("and.b32", "%count3", "%count3", "3")
        self.emit("setp.eq.u32", "%q3", "%count3", "0")
        self.emit("bra", over, guard="@%q3")
        self.emit("sub.u32", "%count3", "%count3", "1")
        self.call_of(name, "%count3")
        self.add(f"{over}:")

    def call_of(self, name: str, first: str, guard: str = "") -> None:
        """Write a call to a function."""
        self.has_divided = True
        self.add("{ .param .b32 pa; .param .b64 pb; .param .align 8 .b8 pc[16]; .param .b32 pq;")
        self.emit("st.param.b32", "[pa]", first)
        self.emit("st.param.b64", "[pb]", self.register("d"))
        for at, kind in ((0, "h"), (2, "h"), (4, "r"), (8, "d")):
            self.emit(f"st.param.b{ {'h': 16, 'r': 32, 'd': 64}[kind] }", f"[pc+{at}]", self.register(kind))
        self.emit("call", "(pq)", name, "(pa, pb, pc)", guard=guard)
        result = self.register("r")
        self.emit("ld.param.b32", result, "[pq]", results=[result])
        self.add("}")


def signature(name: str) -> str:
    """Return the head of a function."""
    return f".func (.param .b32 q) {name}(.param .b32 a, .param .b64 b, .param .align 8 .b8 c[16])"


def declared() -> str:
    """Return the register declarations of a kernel."""
    types = {"h": "b16", "r": "b32", "d": "b64", "p": "pred"}
    return " ".join(f".reg .{types[name]} %{name}<{count}>;" for name, count in REGISTERS.items())


def letter(kind: Type) -> str:
    """Return the register class of a type."""
    return "p" if kind.bits == 1 else "h" if kind.bits <= 16 else "r" if kind.bits == 32 else "d"


def random_constant(random: Random, kind: Type) -> str:
    """Return a random literal of a type, often a boundary value."""
    if kind.is_float:
        code = random.choice(SPECIAL[kind.bits]) if random.random() < 0.6 else random.getrandbits(kind.bits)
        return f"0{'f' if kind.bits == 32 else 'd'}{code:0{kind.bits // 4}X}"
    bits = 32 if kind.parts > 1 else min(kind.bits, 64)
    code = random.choice((
        random.choice((0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64)), (1 << (bits - 1)) - 1, 1 << (bits - 1),
        (1 << bits) - 1, random.getrandbits(bits), random.getrandbits(random.randrange(1, bits + 1)),
    ))  # fmt: skip
    if kind.kind == "s" and code >> (bits - 1):
        return str(code - (1 << bits))
    return str(code) if random.random() < 0.5 else f"{code:#x}"


def group_rows(spellings: Iterator[Spelling]) -> list[list[Spelling]]:
    """Group spellings by row, so that each row is equally likely."""
    rows: dict[int, list[Spelling]] = {}
    for spelling in spellings:
        rows.setdefault(id(spelling.row), []).append(spelling)
    return list(rows.values())


LIMITED = {("fns", 1): 32}
"""Operands that must be constants below a limit; the result is otherwise undefined."""
CONSTANT_BELOW = {("bfe", 1): 256, ("bfe", 2): 256, ("bfi", 2): 256, ("bfi", 3): 256}
"""Operands whose constants ptxas accepts only below a limit."""


@dataclass(frozen=True)
class Recipe:
    """A recipe for a statement: its writer, its weight and its allowed contexts."""

    write: Callable[[Generator], None]
    weight: float
    together: bool = False  # needs all threads of the block
    whole_warps: bool = False  # needs all lanes of every warp
    in_function: bool = True  # allowed in a function
    nests: bool = False  # contains other recipes
    features: tuple[str, ...] = ()  # the features that the prologue must prepare
    needs: Callable[[Generator], bool] = lambda _: True

    def fits(self, generator: Generator) -> bool:
        """Return True if the recipe is allowed in the current context."""
        place = generator.place
        return (
            (place.together or not self.together)
            and (generator.has_whole_warps or not self.whole_warps)
            and (self.in_function or not place.in_function)
            and (place.depth < MAX_DEPTH or not self.nests)
            and self.needs(generator)
        )
