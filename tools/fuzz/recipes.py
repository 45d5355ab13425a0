"""Recipes for single threads: arithmetic, moves, memory, branches, loops and calls."""

from typing import NamedTuple

from tools.fuzz.kernel import BITS, BLOB_BYTES, IN_BYTES, SCRATCH_BYTES
from tools.fuzz.spellings import accepted_video
from tools.fuzz.writer import (
    CONSTANT,
    LOCAL_BYTES,
    OWN_DATA,
    TABLE_BYTES,
    Generator,
    Recipe,
    letter,
)  # fmt: skip
from warpfrag.machine.ir.program import SELECTORS
from warpfrag.machine.ir.scalar_types import TYPES


def arithmetic(g: Generator) -> None:
    """Write one instruction of an arithmetic row."""
    spelling = g.random.choice(g.random.choice(g.lane_rows))
    g.instruction(spelling, g.operands(spelling))


def scalar_video(g: Generator) -> None:
    """Write a video instruction on bytes, halves or whole registers."""
    video = g.random.choice(g.random.choice(accepted_video(g.target)))
    result = g.register("r")
    d = f"{result}.{g.choose(*PARTS)}" if video.merges else result
    sources = [_part(g) for _ in range(2)]
    if video.takes_c:
        sources.append(g.register("r"))
    if video.row.opcode == "vmad" and ".po" not in video.name:
        negated = g.random.choice(NEGATED)
        sources = [f"-{text}" if place in negated and text[0] == "%" else text for place, text in enumerate(sources)]
    g.emit(video.name, d, *sources, results=[result], guard=True)


def _part(g: Generator) -> str:
    """Return a byte, a half or the whole of a register, or a constant."""
    if g.random.random() < CONSTANT:
        return g.constant(TYPES["u32"])
    return g.register("r") + g.choose("", "", "", *(f".{part}" for part in PARTS))


PARTS = tuple(filter(None, SELECTORS))
NEGATED: tuple[tuple[int, ...], ...] = ((), (), (), (0,), (1,), (0, 1), (2,))
"""The sources of vmad that may be negated."""


def carry_chain(g: Generator) -> None:
    """Write a multi-word sum with a carry chain."""
    kind = g.choose("u32", "s32", "u64", "s64")
    first, then = g.random.choice((("add", "addc"), ("sub", "subc"), ("mad.lo", "madc.hi"), ("mad.hi", "madc.lo")))
    names = [f"{first}.cc.{kind}", *[f"{then}.cc.{kind}"] * g.random.randrange(3), f"{then}.{kind}"]
    with g.group(whole=True):
        for name in names:
            spelling = g.carries[name]
            g.instruction(spelling, g.operands(spelling), guard=False)


def move(g: Generator) -> None:
    """Write a mov: packing, unpacking, constants, special registers or predicates."""
    g.random.choice(MOVES)(g)


def _pack(g: Generator) -> None:
    kind, part, count = g.random.choice((("r", "h", 2), ("d", "r", 2), ("d", "h", 4)))
    parts = [g.register(part) for _ in range(count)]
    result = g.register(kind)
    g.emit(f"mov.b{32 if kind == 'r' else 64}", result, f"{{{', '.join(parts)}}}", results=[result], guard=True)


def _unpack(g: Generator) -> None:
    kind, part, count = g.random.choice((("r", "h", 2), ("d", "r", 2), ("d", "h", 4)))
    results = g.registers(part, count)
    unused = g.random.randrange(count) if g.random.random() < 0.3 else -1
    shown = [register for number, register in enumerate(results) if number != unused]
    text = ", ".join("_" if number == unused else register for number, register in enumerate(results))
    g.emit(f"mov.b{32 if kind == 'r' else 64}", f"{{{text}}}", g.register(kind), results=shown, guard=True)


def _copy(g: Generator) -> None:
    kind = g.choose("h", "r", "d")
    word = {"h": ("b16", "u16", "s16"), "r": ("b32", "u32", "s32", "f32"), "d": ("b64", "u64", "s64", "f64")}
    result = g.register(kind)
    name = g.choose(*word[kind])
    source = g.register(kind)
    if g.random.random() < 0.4:
        source = g.constant(TYPES[name])
    g.emit(f"mov.{name}", result, source, results=[result], guard=True)


def _copy_predicate(g: Generator) -> None:
    result = g.register("p")
    g.emit("mov.pred", result, g.register("p"), results=[result], guard=True)


def _special_register(g: Generator) -> None:
    result = g.register("r")
    g.emit("mov.u32", result, g.choose(*SPECIAL_REGISTERS), results=[result], guard=True)


def _copy_vector(g: Generator) -> None:
    kind, count = g.random.choice((("r", 2), ("r", 4), ("d", 2), ("h", 2), ("h", 4)))
    results = g.registers(kind, count)
    sources = ", ".join(g.register(kind) for _ in range(count))
    name = f"mov.v{count}.{g.choose('b', 'u', 's')}{BITS[kind]}"
    g.emit(name, f"{{{', '.join(results)}}}", f"{{{sources}}}", results=results, guard=True)


SPECIAL_REGISTERS = (
    "%tid.x", "%tid.y", "%ntid.x", "%ntid.z", "%ctaid.x", "%ctaid.y", "%nctaid.x", "%laneid",
    "%lanemask_lt", "%lanemask_le", "%lanemask_eq", "%lanemask_ge", "%lanemask_gt",
)  # fmt: skip
MOVES = (_pack, _unpack, _unpack, _copy, _copy, _copy_predicate, _special_register, _copy_vector)


# ---- memory


class Area(NamedTuple):
    """A memory area that a thread reads, and also writes if the area is private."""

    space: str
    base: str  # a register or a symbol
    generic: str  # the register with its generic address
    size: int
    is_writable: bool
    in_function: bool
    is_narrow: bool = False  # True if addresses have 32 bits


AREAS = (
    Area("global", "%in", "%in", IN_BYTES, is_writable=False, in_function=False),
    Area("global", "%out", "%out", SCRATCH_BYTES, is_writable=True, in_function=False),
    Area("global", "globals", "%global_g", TABLE_BYTES, is_writable=False, in_function=True),
    Area("const", "constants", "%const_g", TABLE_BYTES, is_writable=False, in_function=True),
    Area("param", "blob", "%blob_g", BLOB_BYTES, is_writable=False, in_function=False),
    Area("shared", "%own", "%own_g", OWN_DATA, is_writable=True, in_function=False, is_narrow=True),
    Area("local", "stack", "%local_g", LOCAL_BYTES, is_writable=True, in_function=True),
)
LOADS = {
    "global": (
        "ld.global", "ld.global", "ld.global.ca", "ld.global.cg", "ld.global.cs", "ld.global.lu", "ld.global.cv",
        "ld.weak.global", "ld.volatile.global", "ld.relaxed.gpu.global", "ld.acquire.sys.global",
        "ld.relaxed.cta.global", "ld.global.L1::evict_last", "ld.global.L1::no_allocate", "ld.global.L2::128B",
        "ld.global.L1::evict_first.L2::64B", "ld.mmio.relaxed.sys.global",
    ),
    "constant global": (
        "ld.global.nc", "ld.global.ca.nc", "ld.global.nc.L1::no_allocate", "ldu.global", "ld.global.nc.L2::256B",
    ),
    "const": ("ld.const",),
    "param": ("ld.param",),
    "shared": ("ld.shared", "ld.shared::cta", "ld.volatile.shared", "ld.relaxed.cta.shared", "ld.weak.shared"),
    "local": ("ld.local", "ld.local.ca", "ld.local.cs"),
    "generic": ("ld", "ld", "ld.volatile", "ld.relaxed.gpu", "ld.weak"),
}  # fmt: skip
STORES = {
    "global": (
        "st.global", "st.global", "st.global.wb", "st.global.cg", "st.global.cs", "st.global.wt", "st.weak.global",
        "st.volatile.global", "st.relaxed.gpu.global", "st.release.cta.global", "st.global.L1::no_allocate",
        "st.mmio.relaxed.sys.global",
    ),
    "shared": ("st.shared", "st.shared::cta", "st.volatile.shared", "st.relaxed.cta.shared"),
    "local": ("st.local", "st.local.wb"),
    "generic": ("st", "st", "st.volatile", "st.release.gpu"),
}  # fmt: skip
MOVED = ("b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64")
WIDER = {"h": "hrd", "r": "rd", "d": "d"}


def address(g: Generator, area: Area, size: int, *, generic: bool) -> str:
    """Return an aligned address in an area; if its offset is in a register, write the code that computes it."""
    base = area.generic if generic else area.base
    mask = area.size - 1 & ~(size - 1)
    is_constant = g.random.random() < 0.7
    if is_constant or not base.startswith("%") or area.size & (area.size - 1):
        return f"[{base}+{g.random.randrange(0, area.size - size + 1, size)}]"
    g.emit("and.b32", "%t0", g.register("r"), str(mask))
    if area.is_narrow and not generic:
        g.emit("add.u32", "%t0", "%t0", base)
        return "[%t0]"
    g.emit("cvt.u64.u32", "%u0", "%t0")
    g.emit("add.u64", "%u0", "%u0", base)
    return "[%u0]"


def _fitting_areas(g: Generator, *, writable: bool = False) -> list[Area]:
    return [
        area for area in AREAS
        if (area.in_function or not g.place.in_function) and (area.is_writable or not writable)
    ]  # fmt: skip


def _moved(g: Generator) -> tuple[str, str, int, int]:
    """Choose a type; return it with its register class, the vector length and the size in bytes."""
    name = g.choose(*MOVED)
    kind = TYPES[name]
    registers = letter(kind) if kind.is_float else g.random.choice(WIDER[letter(kind)])
    count = g.random.choice((1, 1, 1, 2, 4))
    while kind.bits // 8 * count > 16:
        count //= 2
    return name, registers, count, kind.bits // 8 * count


def _of_vectors(forms: tuple[str, ...]) -> list[str]:
    """Return the forms that can load or store vectors."""
    return [form for form in forms if ".mmio" not in form]


def load(g: Generator) -> None:
    """Write a load from any space, with a specific or a generic address."""
    area = g.random.choice(_fitting_areas(g))
    generic = g.random.random() < 0.25
    kind, registers, count, size = _moved(g)
    forms = LOADS["generic"] if generic else LOADS[area.space]
    if area.space == "global" and not generic and not area.is_writable and g.random.random() < 0.3:
        forms = LOADS["constant global"]
    name = g.choose(*forms) if count == 1 else g.choose(*_of_vectors(forms))
    results = g.registers(registers, count)
    with g.group(whole=True):
        place = address(g, area, size, generic=generic)
        vector = f".v{count}" if count > 1 else ""
        text = f"{{{', '.join(results)}}}" if count > 1 else results[0]
        g.emit(f"{name}{vector}.{kind}", text, place, results=results, guard=True)


def store(g: Generator) -> None:
    """Write a store to private memory."""
    area = g.random.choice(_fitting_areas(g, writable=True))
    generic = g.random.random() < 0.25
    kind, registers, count, size = _moved(g)
    forms = STORES["generic"] if generic else STORES[area.space]
    name = g.choose(*forms) if count == 1 else g.choose(*_of_vectors(forms))
    values = [g.register(registers) for _ in range(count)]
    with g.group(whole=True):
        place = address(g, area, size, generic=generic)
        vector = f".v{count}" if count > 1 else ""
        text = f"{{{', '.join(values)}}}" if count > 1 else values[0]
        g.emit(f"{name}{vector}.{kind}", place, text, guard=True)


# ---- control flow


def branch(g: Generator) -> None:
    """Write an if, sometimes with an else."""
    otherwise, end = g.label(), g.label()
    with g.group(whole=True):
        g.emit("bra", otherwise, guard=f"@{g.choose('', '!')}{g.register('p')}")
        with g.at(together=False, depth=g.place.depth + 1):
            with g.group():
                g.fill(g.random.randrange(1, 6))
            if g.random.random() < 0.6:
                g.emit("bra", end)
                g.add(f"{otherwise}:")
                with g.group():
                    g.fill(g.random.randrange(1, 6))
            else:
                g.add(f"{otherwise}:")
        g.add(f"{end}:")
        _rejoin(g)


def _rejoin(g: Generator) -> None:
    """Write code at which all lanes of a warp reconverge."""
    if g.place.together and g.has_whole_warps:
        g.emit("bar.warp.sync", "-1")


def loop(g: Generator) -> None:
    """Write a loop whose iteration count is in a register."""
    start, end = g.label(), g.label()
    counter, done = f"%count{g.place.depth}", f"%q{g.place.depth}"
    with g.group(whole=True):
        g.emit("and.b32", counter, g.register("r"), "7" if g.place.depth == 0 else "3")
        g.add(f"{start}:")
        g.emit("setp.eq.u32", done, counter, "0")
        g.emit("bra", end, guard=f"@{done}")
        with g.at(together=False, depth=g.place.depth + 1):
            with g.group():
                g.fill(g.random.randrange(2, 7))
            if g.random.random() < 0.4:
                with g.group(whole=True):
                    g.emit("bra", end, guard=f"@{g.register('p')}")
                with g.group():
                    g.fill(2)
        g.emit("sub.u32", counter, counter, "1")
        g.emit("bra", start)
        g.add(f"{end}:")
        _rejoin(g)


def counted_loop(g: Generator) -> None:
    """Write a loop with the same iteration count in all threads, which may contain collectives."""
    start = g.label()
    counter, more = f"%count{g.place.depth}", f"%q{g.place.depth}"
    with g.group(whole=True):
        g.emit("mov.u32", counter, str(g.random.randrange(1, 4)))
        g.add(f"{start}:")
        with g.at(depth=g.place.depth + 1), g.group():
            g.fill(g.random.randrange(2, 7))
        g.emit("sub.u32", counter, counter, "1")
        g.emit("setp.ne.u32", more, counter, "0")
        g.emit("bra" if not g.place.together else g.choose("bra", "bra.uni"), start, guard=f"@{more}")


def switch(g: Generator) -> None:
    """Write brx.idx over a few cases, some of which fall through."""
    cases = [g.label() for _ in range(g.random.randrange(2, 5))]
    end, targets = g.label(), f"targets{g.labels}"
    with g.group(whole=True):
        g.add(f"{targets}: .branchtargets {', '.join(cases)};")
        g.emit("rem.u32", "%t3", g.register("r"), str(len(cases)))
        g.emit("brx.idx", "%t3", targets)
        with g.at(together=False, depth=MAX_INSIDE):
            for case in cases:
                g.add(f"{case}:")
                with g.group():
                    g.fill(g.random.randrange(1, 3))
                if g.random.random() < 0.7:
                    g.emit("bra", end)
        g.add(f"{end}:")
        _rejoin(g)


MAX_INSIDE = 3  # maximum nesting depth


def call(g: Generator) -> None:
    """Write a call to a function with parameters, which may be recursive."""
    name = g.choose("first", "second", "recursive")
    if name not in g.functions:
        g.functions.append(name)
    with g.group(whole=True):  # lanes with different recursion depths do not reconverge on a GPU
        g.call_of(name, str(g.random.randrange(4)) if name == "recursive" else g.register("r"))
        _rejoin(g)


RECIPES = [
    Recipe(arithmetic, 60),
    Recipe(scalar_video, 3),
    Recipe(carry_chain, 1.5),
    Recipe(move, 6),
    Recipe(load, 9),
    Recipe(store, 4),
    Recipe(branch, 4, nests=True),
    Recipe(loop, 1.5, nests=True),
    Recipe(counted_loop, 1.5, nests=True),
    Recipe(switch, 1, nests=True),
    Recipe(call, 1, in_function=False),
]
