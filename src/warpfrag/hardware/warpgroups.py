"""wgmma on the GPU: which kernels are run, and on which operands, tiles and descriptors.

A width is only a size, so each family runs every combination of its immediates at one width, and at the others two of
them: one with A in shared memory, one with A in registers, others from width to width.

Shared memory is full of random codes, so that any descriptor reads some. Each kernel gets tiles of every swizzle, and
descriptors that nobody would write: tiles that overlap, odd distances, starts anywhere in a pattern.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from warpfrag.codegen.statement import wgmma_variants
from warpfrag.errors import InvalidOperand
from warpfrag.formats.random_codes import random_bytes
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.shared_memory import SWIZZLES, UNIT
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.random_operands import classes, random_words
from warpfrag.tensorcore.wgmma_call import Variant, WgmmaCases

WIDTH = 64  # at which every combination of immediates runs
MAX_BYTES = 47 * 1024  # of shared memory: so much needs no leave of the driver
RANDOM = -1  # in the place of a swizzle: a descriptor at random
SETS = (*SWIZZLES, RANDOM, RANDOM)


def chosen_variants(instruction: Instruction) -> list[Variant]:
    """The kernels of one instruction that are run."""
    every = list(wgmma_variants(instruction))
    if instruction.shape.n == WIDTH:
        return every
    step = instruction.shape.n // 8
    in_shared = [variant for variant in every if variant.staged]
    in_registers = [variant for variant in every if not variant.staged]
    return [in_shared[5 * step % len(in_shared)], in_registers[5 * step % len(in_registers)]]


def warp_tiles(instruction: Instruction) -> int:
    """How many tiles of 16 x 8, the least that a warp computes, one case has."""
    return instruction.shape.m // 16 * (instruction.shape.n // 8)


def launches(instruction: Instruction, variant: Variant, cases: int, seed: int) -> Iterator[tuple[str, WgmmaCases]]:
    """Operands to run, with what they are: `cases` in all, and at least one of each set."""
    kinds = classes(instruction)
    share = -(-cases // len(SETS))
    # another start for each kernel, so that each class meets each swizzle and each scale-d
    turn = zlib.crc32(f"{instruction.name} {variant.description} {variant.selector}".encode())
    for number, swizzle in enumerate(SETS):
        kind = kinds[(number + turn) % len(kinds)]
        random = np.random.default_rng([seed, turn, number])
        is_added = (number + turn // 7) % 3 > 0
        what = (
            f"{kind}, {'odd descriptors' if swizzle == RANDOM else f'swizzle {swizzle}'}{'' if is_added else ', no C'}"
        )
        yield what, operands(instruction, variant, kind, swizzle, (share, random, is_added))


def operands(
    instruction: Instruction,
    variant: Variant,
    kind: str,
    swizzle: int,
    rest: tuple[int, np.random.Generator, bool],
) -> WgmmaCases:
    """Some cases of one class of operands, in tiles of one swizzle."""
    cases, random, is_added = rest
    words: dict[str, NDArray[np.uint32]] = random_words(instruction, kind, cases, random, variant.selector)
    descriptor_a, reach_a = Descriptor(), 0
    if variant.staged:
        words.pop("a")
        descriptor_a = _descriptor(instruction.a, swizzle, variant.trans[0], random, (0, MAX_BYTES // 4))
        reach_a = _reach(instruction.a, descriptor_a, variant.trans[0])
    start = int(random.integers(0, reach_a + 1)) if swizzle == RANDOM else reach_a  # random ones may share bytes
    start = -(-start // UNIT) * UNIT
    descriptor_b = _descriptor(instruction.b, swizzle, variant.trans[1], random, (start, MAX_BYTES))
    reach = max(reach_a, _reach(instruction.b, descriptor_b, variant.trans[1]))
    size = -(-reach // UNIT) * UNIT
    shared = np.empty((cases, size), np.uint8)
    shared[:, :start] = random_bytes(instruction.a.format, kind, (cases, start), random)
    shared[:, start:] = random_bytes(instruction.b.format, kind, (cases, size - start), random)
    return WgmmaCases(variant, words, shared, (descriptor_a.word, descriptor_b.word), is_added)


def _reach(operand: Operand, descriptor: Descriptor, trans: bool) -> int:  # noqa: FBT001 (as the operand says it)
    return int(operand.addresses(descriptor, trans).max()) + max(1, operand.format.bits // 8)


def _descriptor(
    operand: Operand,
    swizzle: int,
    trans: bool,  # noqa: FBT001 (as the operand says it)
    random: np.random.Generator,
    span: tuple[int, int],
) -> Descriptor:
    """A descriptor whose tile lies in a part of memory: one of a tile without gaps, or any."""
    first, end = span
    while True:
        start = first + UNIT * int(random.integers(0, 128))
        if swizzle == RANDOM:
            largest = int(random.choice([64, 512, 2048]))
            leading, stride = (UNIT * int(random.integers(0, largest // UNIT)) for _ in range(2))
            width = int(random.choice(list(SWIZZLES)))
        else:
            tile = _compact(operand, swizzle, trans)
            if tile is None:  # lines too short for this swizzle: some distances will do
                leading, stride, width, step = 512, 1024, swizzle, 0
            else:
                chosen = tile[int(random.integers(0, len(tile)))]
                leading, stride, width, step = chosen.leading, chosen.stride, swizzle, chosen.start
            # in half of the cases as one writes it; in the others somewhere in a pattern
            start = -(-first // 1024) * 1024 + step if random.random() < 0.5 else start + step
        base_offset = int(random.choice([0, int(random.integers(0, 8))]))
        descriptor = Descriptor(start, leading, stride, width, base_offset)
        if _reach(operand, descriptor, trans) <= end:
            return descriptor


def _compact(operand: Operand, swizzle: int, trans: bool) -> list[Descriptor] | None:  # noqa: FBT001 (as above)
    """The descriptors along k of a tile whose lines fill a swizzle; None where none can."""
    mine = operand.shape[1 if operand.role == "a" else 0]
    for steps in (1, 2, 4):
        try:
            return operand.descriptors(k=mine * steps, swizzle=swizzle, trans=trans)
        except InvalidOperand:
            continue
    return None
