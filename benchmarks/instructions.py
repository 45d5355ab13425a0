"""Instructions for each multiply-add, counted in assembly: `python benchmarks/instructions.py [SET ...]`.

Each part of the loops is compiled alone, as `build_objects` compiles all of them, for sets of object code; none of
these needs to run here. Its assembly says which loop an instruction is in. A loop that multiplies
serves as many multiply-adds as its fused multiply-adds have lanes; the loop around it runs once for each step, for as
many outputs as the inner one has sums; a loop over exponents serves as many products as its maxima have bytes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numba.core.compiler_lock import global_compiler_lock

from warpfrag.tensorcore.kernels import build_objects, fma64
from warpfrag.tensorcore.kernels.constants import Constants, unflatten
from warpfrag.tensorcore.kernels.fast_steps import (
    StepPanel,
    add_products_sparse,
    find_max_exponents_sparse,
    run_exact_steps,
    run_short_steps,
)
from warpfrag.tensorcore.kernels.jit import Array, KernelEntry, entry, inlined
from warpfrag.tensorcore.kernels.prepare import BLOCK, PreparedA, PreparedB
from warpfrag.tensorcore.kernels.processor import TARGETS, VARIABLE, ObjectTarget, named_target
from warpfrag.tensorcore.kernels.strip import (
    FAST_START,
    WORD_START,
    BlockGeometry,
    Scratch,
    add_products,
    find_max_exponents,
    kept_bits,
    start_of,
    strip_of,
)
from warpfrag.tensorcore.kernels.vector import STRIP, ElementPointer, address

K_AT_ONCE = 2
"""`vector.add_lines` and `fast_steps.add_lines_sparse` pass two k in an iteration."""
SHOWN = ("aarch64", "x86-64-avx2", "x86-64-avx512-icelake")
REGISTERS = {"xmm": 128, "ymm": 256, "zmm": 512, ".2d": 128, ".16b": 128}
"""Bits of a register, by what names it in assembly."""


# Parts of the loops, as functions of their own, which all take the same arguments.

Operands: TypeAlias = "tuple[PreparedA[Array], PreparedB[Array]]"
Addresses: TypeAlias = "tuple[PreparedA[ElementPointer], PreparedB[ElementPointer], Scratch[ElementPointer]]"


@inlined
def addresses(operands: Operands, scratch: Scratch[Array]) -> Addresses:
    """The addresses of what the loops read and write."""
    a, b = operands
    at_a = PreparedA(
        address(a.values), address(a.relatives), address(a.groups), address(a.group_bytes), address(a.lines)
    )
    at_b = PreparedB(address(b.values), address(b.relatives), address(b.groups), address(b.group_bytes))
    at_scratch = Scratch(
        address(scratch.accumulators),
        address(scratch.from_zero),
        address(scratch.max_exponents),
        address(scratch.exceptional),
        address(scratch.saved),
        address(scratch.partials_f32),
        address(scratch.exponents),
        address(scratch.negative_counts),
    )
    return at_a, at_b, at_scratch


@inlined
def constants_of(numbers: Array, is_sparse: int) -> Constants:
    """The numbers of a rule that is known to be sparse, or not to be."""
    c = unflatten(numbers)
    of_formats = (c.fraction_bits, c.products, c.zero_exponent, c.round_to, c.c_format, c.c_emin, c.d_format)
    return Constants(c.a, c.b, *of_formats, c.steps, c.adds_c_last, is_sparse, c.is_narrow, c.is_short, c.unit_exponent)


@entry
def exponents(operands: Operands, scratch: Scratch[Array], numbers: Array, geometry: BlockGeometry) -> None:  # noqa: ARG001
    """The largest exponents of the products of a step."""
    at_a, at_b, at = addresses(operands, scratch)
    strip = strip_of(geometry, geometry.first_row, geometry.all_steps, geometry.first_group)
    find_max_exponents(at.max_exponents, at.exceptional, at_a.relatives, at_b.relatives, strip)


@entry
def exponents_sparse(operands: Operands, scratch: Scratch[Array], numbers: Array, geometry: BlockGeometry) -> None:  # noqa: ARG001
    """The same for a sparse A."""
    at_a, at_b, at = addresses(operands, scratch)
    strip = strip_of(geometry, geometry.first_row, geometry.all_steps, geometry.first_group)
    find_max_exponents_sparse(at.max_exponents, at.exceptional, at_a.relatives, at_b.relatives, at_a.lines, strip)


@entry
def products(operands: Operands, scratch: Scratch[Array], numbers: Array, geometry: BlockGeometry) -> None:
    """The sums of a step."""
    at_a, at_b, at = addresses(operands, scratch)
    constants = constants_of(numbers, 0)
    strip = strip_of(geometry, geometry.first_row, geometry.all_steps, geometry.first_group)
    start, kept = start_of(constants, constants.products), kept_bits(constants.round_to)
    add_products(at.accumulators, at.max_exponents, at_a, at_b, start, kept, strip, FAST_START)


@entry
def products_sparse(operands: Operands, scratch: Scratch[Array], numbers: Array, geometry: BlockGeometry) -> None:
    """The same for a sparse A."""
    at_a, at_b, at = addresses(operands, scratch)
    constants = constants_of(numbers, 1)
    strip = strip_of(geometry, geometry.first_row, geometry.all_steps, geometry.first_group)
    start, kept = start_of(constants, constants.products), kept_bits(constants.round_to)
    add_products_sparse(at.accumulators, at.max_exponents, at_a, at_b, start, kept, strip, WORD_START)


@entry
def exact(operands: Operands, scratch: Scratch[Array], numbers: Array, geometry: BlockGeometry) -> None:
    """Steps that truncate no product."""
    at_a, at_b, at = addresses(operands, scratch)
    run_exact_steps(at.accumulators, at_a, at_b, constants_of(numbers, 0), geometry)


@entry
def exact_sparse(operands: Operands, scratch: Scratch[Array], numbers: Array, geometry: BlockGeometry) -> None:
    """The same for a sparse A."""
    at_a, at_b, at = addresses(operands, scratch)
    run_exact_steps(at.accumulators, at_a, at_b, constants_of(numbers, 1), geometry)


@entry
def short(operands: Operands, scratch: Scratch[Array], numbers: Array, geometry: BlockGeometry) -> None:
    """Exponents and sums of short steps."""
    at_a, at_b, at = addresses(operands, scratch)
    panel = StepPanel(geometry, geometry.first_group, geometry.all_steps, geometry.first_row, geometry.first_group)
    run_short_steps(at, at_a, at_b, constants_of(numbers, 0).fraction_bits, panel)


PARTS = (exponents, exponents_sparse, products, products_sparse, exact, exact_sparse, short)


@dataclass(frozen=True)
class Work:
    """The parts of one type, the products per step and the steps per instruction."""

    parts: tuple[str, ...]
    products: int
    steps: int = 1


TYPES = {
    "f16, bf16": Work(("products", "exponents"), 16),
    "tf32": Work(("short",), 8),
    "fp8": Work(("exact",), 16, 2),
    "f64": Work(("fma_block",), fma64.PANEL),
    "sparse f16": Work(("products_sparse", "exponents_sparse"), 16),
    "sparse fp8": Work(("exact_sparse",), 16, 2),
}
"""As mma on sm_90 has them. Integers run in BLAS."""


def arguments() -> tuple[object, ...]:
    """Arguments of the types that the parts take; they are never run."""

    def empty(kind: str, rank: int = 1) -> Array:
        return np.zeros((1,) * rank, kind)

    a = PreparedA(empty("f8", 2), empty("i4", 2), empty("i4", 3), empty("i4", 3), empty("u4", 2))
    b = PreparedB(empty("f8"), empty("i1"), empty("i4"), empty("u1"))
    kinds = ("f8", "f8", "i1", "i1", "f8", "f4", "u1", "u1")
    numbers = np.zeros(2 * 6 + len(Constants._fields) - 2, np.int64)
    geometry = BlockGeometry(*[np.uint64(1)] * len(BlockGeometry._fields))
    return (a, b), Scratch(*map(empty, kinds)), numbers, geometry


# Loops of an assembly text.


@dataclass
class Loop:
    """The instructions of a loop that are in no inner one."""

    parent: str = ""
    instructions: list[str] = field(default_factory=list)

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of float64 that its vector instructions do."""
        return self.lanes(r"(?:vfn?m(?:add|sub)\w*pd|fml[as])\s.*?([xyz]mm|\.2d)", 64)

    @property
    def maxima(self) -> int:
        """Maxima of bytes that its vector instructions do."""
        return self.lanes(r"(?:v?pmaxsb|smax)\s.*?([xyz]mm|\.16b)", 8)

    def lanes(self, pattern: str, bits: int) -> int:
        """The lanes of all instructions of a pattern, whose group names a register."""
        found = (re.match(pattern, line) for line in self.instructions)
        return sum(REGISTERS[match[1]] // bits for match in found if match)


def loops_of(assembly: str) -> dict[str, Loop]:
    """The loops of a function by the label of their first block, which LLVM's comments name; "" is what is in none."""
    loops: dict[str, Loop] = defaultdict(Loop)
    for block in re.split(r"^(?=\.LBB\d+_\d+:|(?://|#) %bb\.)", assembly, flags=re.MULTILINE):
        label = re.match(r"\.L(BB\d+_\d+):", block)
        inside = re.search(r"in Loop: Header=(BB\d+_\d+)", block)
        name = inside[1] if inside else label[1] if label and "Loop Header: Depth" in block else ""
        parents = re.findall(r"Parent Loop (BB\d+_\d+)", block)
        if parents and not inside:
            loops[name].parent = parents[-1]  # the nearest
        loops[name].instructions += re.findall(r"^\t([a-z].*)", block, re.MULTILINE)
    return loops


class Cost(NamedTuple):
    """Instructions for each multiply-add."""

    multiply: float
    exponents: float
    once_a_step: float


def cost_of(loops: dict[str, Loop], work: Work) -> Cost:
    """Return the cost of the loops of a part."""
    multiply = exponents = once_a_step = 0.0
    outer = {loop.parent for loop in loops.values()} | {""}
    innermost = [loop for name, loop in loops.items() if name not in outer]
    inner = max(innermost, key=lambda loop: loop.multiply_adds)
    if inner.multiply_adds:
        multiply = len(inner.instructions) / inner.multiply_adds
        outputs, products = inner.multiply_adds / K_AT_ONCE, work.products
        around = loops[inner.parent]
        once_a_step = len(around.instructions) / outputs / products
        if work.steps > 1:
            once_a_step += len(loops[around.parent].instructions) / outputs / (products * work.steps)
    inner = max(innermost, key=lambda loop: loop.maxima)
    if inner.maxima:
        exponents = len(inner.instructions) / inner.maxima
        if inner.parent:
            once_a_step += len(loops[inner.parent].instructions) / (STRIP * BLOCK) / work.products
    return Cost(multiply, exponents, once_a_step)


def assembly_of(entry: KernelEntry[...], target: ObjectTarget) -> str:
    """The code of a part for a target, with LLVM's comments."""
    if entry.name == fma64.fma_block.name:
        codes = np.zeros((1, 1, 1), np.int64)
        values: tuple[object, ...] = (codes, codes, codes, 0, codes, np.zeros(6, np.int64))
    else:
        values = arguments()
    with global_compiler_lock:
        text = build_objects.lower(entry.name, entry, values)
    module, machine = build_objects.optimize({entry.name: text}, target)
    machine.set_asm_verbosity(True)
    assembly: str = machine.emit_assembly(module)
    return assembly[assembly.index(f"\n{entry.name}:") :]


def count(target: ObjectTarget) -> dict[str, Cost]:
    """Print the cost of each type on the target that WARPFRAG_KERNELS names."""
    build_objects.emit_nothing()
    loops = {entry.name: loops_of(assembly_of(entry, target)) for entry in (*PARTS, fma64.fma_block)}
    costs = {}
    for name, work in TYPES.items():
        parts = [cost_of(loops[part], work) for part in work.parts]
        costs[name] = Cost(*(sum(column) for column in zip(*parts, strict=True)))
    return costs


def main() -> None:
    """Count for each set in a process of its own, and print one table."""
    target = named_target()
    if target is not None:
        sys.stdout.write(json.dumps(count(target)))
        return
    names = sys.argv[1:] or SHOWN
    costs = {}
    for target in (target for name in names for target in TARGETS if target.name == name):
        settings = {VARIABLE: target.name, **build_objects.numbas_processor(target)}
        output = subprocess.check_output([sys.executable, __file__], env={**os.environ, **settings})  # noqa: S603 (our own)
        costs[target.name] = {name: Cost(*cost) for name, cost in json.loads(output).items()}
    write = sys.stdout.write
    write(f"| type | {' | '.join(costs)} |\n|---|{'---:|' * len(costs)}\n")
    for name in TYPES:
        cells = (costs[target][name] for target in costs)
        write(f"| {name} | {' | '.join(f'{sum(c):.3f} = ' + ' + '.join(f'{x:.3f}' for x in c) for c in cells)} |\n")


if __name__ == "__main__":
    main()
