"""Recipes for matrix instructions: mma, wmma, wgmma and matrix moves.

Each warp has a tile of input in shared memory that only it accesses; a wgmma reads the tiles of its four warps.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from tools.fuzz.kernel import REGISTERS
from tools.fuzz.writer import TILE_BYTES, Generator, Recipe
from warpfrag.tensorcore.registry import find

if TYPE_CHECKING:
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import Operand

WARPGROUP = 128
ARCH = "sm_90"
MIXED = 0.05  # the share of mma whose D may overlap A, B or other registers of C


@lru_cache(64)
def instructions(op: str, target: str) -> tuple[Instruction, ...]:
    """Return a target's modelled instructions of an operation whose operands fit the registers."""
    return tuple(
        one
        for one in find(op=op, arch=target)
        if one.evidence(ARCH).level != "not modelled" and all(fits(getattr(one, role, None)) for role in "abcd")
    )


def kind_of(operand: Operand) -> str:
    """Return the register class of an operand."""
    return "d" if operand.ptx_type.endswith("64") else "r"


def fits(operand: Operand | None) -> bool:
    """Return True if a kernel has enough registers for an operand."""
    return operand is None or operand.storage == "shared" or operand.regs <= REGISTERS[kind_of(operand)]


def registers(g: Generator, operand: Operand, *, distinct: bool = False) -> list[str]:
    """Return registers for an operand; those of a result are distinct."""
    kind = kind_of(operand)
    return g.registers(kind, operand.regs) if distinct else [g.register(kind) for _ in range(operand.regs)]


def product_registers(g: Generator, one: Instruction) -> list[list[str]]:
    """Return registers for D, A, B and C; D usually has C's registers or its own, as in compiled code."""
    d = registers(g, one.d, distinct=True)
    if g.random.random() < MIXED:
        return [d, *(registers(g, operand) for operand in (one.a, one.b, one.c))]
    a, b, c = ([g.random.choice(_others(d, operand)) for _ in range(operand.regs)] for operand in (one.a, one.b, one.c))
    in_place = one.c.regs == one.d.regs and kind_of(one.c) == kind_of(one.d) and g.random.random() < 0.5
    return [d, a, b, d if in_place else c]


def _others(d: list[str], operand: Operand) -> list[str]:
    """Return the registers that do not overlap D."""
    kind = kind_of(operand)
    every = [f"%{kind}{number}" for number in range(REGISTERS[kind])]
    return [name for name in every if name not in d] or every


def braced(names: list[str]) -> str:
    """Return registers as one vector operand."""
    return f"{{{', '.join(names)}}}"


def metadata(g: Generator) -> str:
    """Write metadata for a sparse A that is legal for every pattern: chunks keep their first or last elements."""
    g.emit("and.b32", "%t0", g.register("r"), "0x11111111")
    g.emit("mad.lo.u32", "%t0", "%t0", "10", "0x44444444")
    return "%t0"


def multiply(g: Generator) -> None:
    """Write mma.sync of any shape and type, dense or sparse."""
    one = g.random.choice(instructions(g.choose("mma", "mma", "mma.sp", "mma.sp::ordered_metadata"), g.target))
    results, *sources = product_registers(g, one)
    operands = [braced(results), *map(braced, sources)]
    with g.group(whole=True):
        if one.selectors:
            operands += [metadata(g), str(g.random.choice(one.selectors))]
        g.emit(one.name, *operands, results=results)


def fragment_multiply(g: Generator) -> None:
    """Write a wmma.mma on arbitrary registers."""
    one = g.random.choice(instructions("wmma.mma", g.target))
    results, *sources = product_registers(g, one)
    g.emit(one.name, braced(results), *map(braced, sources), results=results)


def fragment_load(g: Generator) -> None:
    """Write a wmma.load of A, B or C from shared or global memory."""
    role = g.choose("a", "b", "c")
    one = g.random.choice(instructions(f"wmma.load.{role}", g.target))
    operand = getattr(one, role)
    results = registers(g, operand, distinct=True)
    space = g.choose("", ".shared", ".global")
    with g.group(whole=True):
        place = _matrix_place(g, space)
        g.emit(one.name.replace(".global", space), braced(results), place, str(_stride(g, operand)), results=results)


def fragment_store(g: Generator) -> None:
    """Write a wmma.store of D to the warp's tile."""
    one = g.random.choice(instructions("wmma.store.d", g.target))
    space = g.choose("", ".shared")
    with g.group(whole=True):
        g.emit("bar.warp.sync", "-1")
        if not space:
            _generic_tile(g)
        place = "[%tile]" if space else "[%u2]"
        g.emit(one.name.replace(".global", space), place, braced(registers(g, one.d)), str(_stride(g, one.d)))
        g.emit("bar.warp.sync", "-1")


def _generic_tile(g: Generator) -> None:
    """Write the generic address of the warp's tile to %u2."""
    g.emit("cvt.u64.u32", "%u2", "%tile")
    g.emit("cvta.shared.u64", "%u2", "%u2")


def _matrix_place(g: Generator, space: str) -> str:
    """Return the address from which a warp loads a matrix."""
    if space == ".shared":
        return "[%tile]"
    if space == ".global" or g.random.random() < 0.5:
        g.emit("ld.param.u64", "%u2", "[in]")
    else:
        _generic_tile(g)
    return "[%u2]"


def _stride(g: Generator, operand: Operand) -> int:
    """Return a legal row or column stride in elements: a multiple of 16 bytes, or 32 for 8-byte elements."""
    bits = operand.format.bits
    longest = max(operand.shape)
    unit = {1: 128, 4: 32}.get(bits, 128 // bits)
    stride = longest + -longest % unit
    has_space = (stride + unit) * longest * bits <= TILE_BYTES * 8
    return stride + unit if has_space and g.random.random() < 0.5 else stride


def matrix_load(g: Generator) -> None:
    """Write ldmatrix; each lane supplies the address of a row anywhere in the tile."""
    one = g.random.choice(instructions("ldmatrix", g.target))
    results = registers(g, one.d, distinct=True)
    with g.group(whole=True):
        if g.random.random() < 0.5:
            g.emit("and.b32", "%t0", g.register("r"), str(TILE_BYTES - 16))
        else:
            g.emit("mov.u32", "%t0", "%laneid")
            g.emit("mul.lo.u32", "%t0", "%t0", str(16 * g.random.randrange(1, 8)))
        g.emit("add.u32", "%t0", "%t0", "%tile")
        g.emit(one.name, braced(results), "[%t0]", results=results)


def matrix_store(g: Generator) -> None:
    """Write stmatrix; each lane supplies the address of a different row."""
    one = g.random.choice(instructions("stmatrix", g.target))
    with g.group(whole=True):
        g.emit("mov.u32", "%t0", "%laneid")
        g.emit("mad.lo.u32", "%t0", "%t0", str(16 * g.random.randrange(1, 8)), "%tile")
        g.emit("bar.warp.sync", "-1")
        g.emit(one.name, "[%t0]", braced(registers(g, one.a)))
        g.emit("bar.warp.sync", "-1")


def transpose(g: Generator) -> None:
    """Write movmatrix."""
    one = g.random.choice(instructions("movmatrix", g.target))
    result = g.register("r")
    g.emit(one.name, result, g.register("r"), results=[result])


class WgmmaForm(NamedTuple):
    """A wgmma with its immediate operands: signs of A and B, transposed operands, and the selector of a sparse A."""

    one: Instruction
    in_registers: bool
    signs: tuple[str, ...]
    transposed: tuple[str, ...]
    selector: tuple[str, ...]

    def fits_beside(self) -> bool:
        """Return True if there are enough registers for both A and D."""
        return not self.in_registers or self.one.a.regs + self.one.d.regs <= REGISTERS["r"]


@lru_cache(2)
def wgmma_forms(target: str) -> tuple[WgmmaForm, ...]:
    """Return every wgmma of a target with every choice of its immediate operands."""
    found = []
    for op in ("wgmma.mma_async", "wgmma.mma_async.sp"):
        for one in instructions(op, target):
            element = one.a.format.name
            signs = [()] if element in {"s8", "u8", "b1"} else list(product(("1", "-1"), repeat=2))
            selectors: list[tuple[str, ...]] = [(str(selector),) for selector in one.selectors] or [()]
            for in_registers in (False, True) if element != "b1" else (False,):
                count = (1 if in_registers else 2) if element in {"f16", "bf16"} else 0
                transposed = list(product(("0", "1"), repeat=count))
                found += [WgmmaForm(one, in_registers, *rest) for rest in product(signs, transposed, selectors)]
    return tuple(form for form in found if form.fits_beside())


def warpgroup_multiply(g: Generator) -> None:
    """Write a wgmma of the block's only warpgroup, with A in registers or shared memory."""
    op = g.choose("wgmma.mma_async", "wgmma.mma_async.sp")
    write_wgmma(g, g.random.choice([form for form in wgmma_forms(g.target) if form.one.op == op]))


def write_wgmma(g: Generator, form: WgmmaForm) -> None:
    """Write a form of wgmma."""
    results = registers(g, form.one.d, distinct=True)
    others = [f"%r{number}" for number in range(REGISTERS["r"]) if f"%r{number}" not in results]
    with g.group(whole=True):
        g.emit("fence.proxy.async")
        g.emit("bar.sync", "0")
        _descriptor(g, "%u3")
        a = braced(g.random.sample(others, form.one.a.regs)) if form.in_registers else "%u2"
        if not form.in_registers:
            _descriptor(g, "%u2")
        operands = [braced(results), a, "%u3"]
        if form.selector:
            operands += [metadata(g), *form.selector]
        g.emit("setp.eq.u32", "%q3", "%threads", g.choose(str(WARPGROUP), "7"))
        g.emit("wgmma.fence.sync.aligned")
        g.emit(form.one.name, *operands, "%q3", *form.signs, *form.transposed, results=results)
        g.emit("wgmma.commit_group.sync.aligned")
        g.emit("wgmma.wait_group.sync.aligned", "0")
        g.emit("bar.sync", "0")


def _descriptor(g: Generator, register: str) -> None:
    """Write the descriptor of a matrix in the tiles to a register: its start and strides, in units of 16 bytes."""
    distances = g.random.randrange(8, 33), g.random.randrange(8, 33)
    g.emit("mov.u32", "%t1", "tile")
    g.emit("shr.u32", "%t1", "%t1", "4")
    g.emit("add.u32", "%t1", "%t1", str(8 * g.random.randrange(16)))
    g.emit("cvt.u64.u32", register, "%t1")
    g.emit("or.b64", register, register, f"{distances[0] << 16 | distances[1] << 32:#x}")


RECIPES = [
    Recipe(multiply, 1.5, together=True, whole_warps=True),
    Recipe(transpose, 0.2, together=True, whole_warps=True),
    Recipe(fragment_multiply, 0.6, together=True, whole_warps=True),
    Recipe(fragment_load, 0.4, together=True, whole_warps=True, features=("tile",)),
    Recipe(fragment_store, 0.3, together=True, whole_warps=True, features=("tile",)),
    Recipe(matrix_load, 0.4, together=True, whole_warps=True, features=("tile",)),
    Recipe(matrix_store, 0.3, together=True, whole_warps=True, features=("tile",), needs=lambda g: g.target != "sm_80"),
    Recipe(
        warpgroup_multiply,
        1,
        together=True,
        whole_warps=True,
        features=("tile",),
        needs=lambda g: g.target == "sm_90a" and g.block == WARPGROUP,
    ),
]
