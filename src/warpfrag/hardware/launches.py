"""The wgmma and tcgen05 launches of `verify`, with their operands, tiles and descriptors.

The width n does not change the arithmetic, so tcgen05 runs at one width. wgmma runs every combination of immediates at
that width, and two of them at each other width: one with A in shared memory, one with A in registers.

Shared memory is filled with random codes, so every descriptor reads defined data. Each wgmma kernel runs with tiles of
every swizzle and with unusual descriptors: overlapping tiles, odd strides, and starts anywhere in a swizzle pattern.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from warpfrag.codegen.statement import identifier, wgmma_variants
from warpfrag.codegen.tcgen05_code import module
from warpfrag.errors import InvalidOperand
from warpfrag.formats.codes import code_dtype
from warpfrag.formats.number_formats import Format
from warpfrag.formats.random_codes import random_bytes, random_codes
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.shared_memory import SWIZZLES, UNIT
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.random_operands import classes, random_words
from warpfrag.tensorcore.tcgen05_types import TensorMma
from warpfrag.tensorcore.tensor_images import image_columns, shared_parts, tensor_operands
from warpfrag.tensorcore.wgmma_call import Variant, WgmmaCases

Words: TypeAlias = NDArray[np.uint32]
WIDTH = 64
MAX_BYTES = 47 * 1024  # the shared memory, in bytes, that a kernel gets without setting an attribute
RANDOM = -1  # marks an entry of `SETS` that uses a random descriptor instead of a swizzle
WARPS = 4
SETS = (*SWIZZLES, RANDOM, RANDOM)


def verified_variants(instruction: Instruction) -> list[Variant]:
    """Return the wgmma variants that `verify` runs."""
    variants = list(wgmma_variants(instruction))
    if instruction.shape.n == WIDTH:
        return variants
    step = instruction.shape.n // 8
    in_shared = [variant for variant in variants if variant.staged]
    in_registers = [variant for variant in variants if not variant.staged]
    return [in_shared[5 * step % len(in_shared)], in_registers[5 * step % len(in_registers)]]


def warp_tiles(instruction: Instruction) -> int:
    """Return the number of 16 x 8 tiles in one case; a warp computes at least one tile."""
    return instruction.shape.m // 16 * (instruction.shape.n // 8)


def wgmma_launches(
    instruction: Instruction, variant: Variant, cases: int, seed: int
) -> Iterator[tuple[str, WgmmaCases]]:
    """Yield each launch's description and operands: `cases` in total, and at least one for each of `SETS`."""
    categories = classes(instruction)
    share = -(-cases // len(SETS))
    # the first class differs between kernels, so that each class occurs with all swizzles and both values of scale-d
    offset = zlib.crc32(f"{instruction.name} {variant.description} {variant.selector}".encode())
    for number, swizzle in enumerate(SETS):
        category = categories[(number + offset) % len(categories)]
        random = np.random.default_rng([seed, offset, number])
        is_added = (number + offset // 7) % 3 > 0
        tiles = "odd descriptors" if swizzle == RANDOM else f"swizzle {swizzle}"
        call = variant, is_added
        yield (
            f"{category}, {tiles}{'' if is_added else ', no C'}",
            wgmma_operands(instruction, call, category, swizzle, share, random),
        )


def wgmma_operands(
    instruction: Instruction,
    call: tuple[Variant, bool],
    category: str,
    swizzle: int,
    cases: int,
    random: np.random.Generator,
) -> WgmmaCases:
    """Return cases whose operands are of one class, in tiles with one swizzle."""
    variant, is_added = call
    words: dict[str, NDArray[np.uint32]] = random_words(instruction, category, cases, random, variant.selector)
    descriptor_a, reach_a = Descriptor(), 0
    if variant.staged:
        words.pop("a")
        descriptor_a = _descriptor(instruction.a, swizzle, variant.trans[0], random, (0, MAX_BYTES // 4))
        reach_a = _reach(instruction.a, descriptor_a, variant.trans[0])
    start = int(random.integers(0, reach_a + 1)) if swizzle == RANDOM else reach_a  # random tiles may overlap
    start = -(-start // UNIT) * UNIT
    descriptor_b = _descriptor(instruction.b, swizzle, variant.trans[1], random, (start, MAX_BYTES))
    reach = max(reach_a, _reach(instruction.b, descriptor_b, variant.trans[1]))
    size = -(-reach // UNIT) * UNIT
    shared = np.empty((cases, size), np.uint8)
    shared[:, :start] = random_bytes(instruction.a.format, category, (cases, start), random)
    shared[:, start:] = random_bytes(instruction.b.format, category, (cases, size - start), random)
    return WgmmaCases(variant, words, shared, (descriptor_a.word, descriptor_b.word), is_added)


def _reach(operand: Operand, descriptor: Descriptor, trans: bool) -> int:  # noqa: FBT001 (as in Operand)
    return int(operand.addresses(descriptor, trans).max()) + max(1, operand.format.bits // 8)


def _descriptor(
    operand: Operand,
    swizzle: int,
    trans: bool,  # noqa: FBT001 (as in Operand)
    random: np.random.Generator,
    span: tuple[int, int],
) -> Descriptor:
    """Return the descriptor of a tile within `span`: a dense tile, or a random one."""
    first, end = span
    while True:
        start = first + UNIT * int(random.integers(0, 128))
        if swizzle == RANDOM:
            largest = int(random.choice([64, 512, 2048]))
            leading, stride = (UNIT * int(random.integers(0, largest // UNIT)) for _ in range(2))
            width = int(random.choice(list(SWIZZLES)))
        else:
            tile = _compact(operand, swizzle, trans)
            if tile is None:  # the lines are too short for this swizzle, so the strides do not matter
                leading, stride, width, step = 512, 1024, swizzle, 0
            else:
                part = tile[int(random.integers(0, len(tile)))]
                leading, stride, width, step = part.leading, part.stride, swizzle, part.start
            # half of the tiles start at the start of a swizzle pattern, and the others anywhere
            start = -(-first // 1024) * 1024 + step if random.random() < 0.5 else start + step
        base_offset = int(random.choice([0, int(random.integers(0, 8))]))
        descriptor = Descriptor(start, leading, stride, width, base_offset)
        if _reach(operand, descriptor, trans) <= end:
            return descriptor


def _compact(operand: Operand, swizzle: int, trans: bool) -> list[Descriptor] | None:  # noqa: FBT001
    """Return the descriptors along k of a dense tile with this swizzle, or None if there is none."""
    k = operand.shape[1 if operand.role == "a" else 0]
    for steps in (1, 2, 4):
        try:
            return operand.descriptors(k=k * steps, swizzle=swizzle, trans=trans)
        except InvalidOperand:
            continue
    return None


@dataclass(frozen=True, eq=False)
class TensorLaunch:
    """A launch: PTX text, entry, number of blocks, an array for each parameter, and the name of the written array."""

    text: str
    entry: str
    blocks: int
    arrays: dict[str, Words]
    result: str = "d"

    @property
    def operands(self) -> dict[str, Words]:
        """The arrays that the kernel reads."""
        return {name: array for name, array in self.arrays.items() if name != self.result}


def tensor_launches(t: TensorMma, cases: int, seed: int, target: str) -> Iterator[tuple[str, TensorLaunch]]:
    """Yield each launch with the class of its operands: `cases` in total, and at least one for each class."""
    text, entry = module([t], target), f"{identifier(t)}_kernel"
    categories = classes(t)
    for number, category in enumerate(categories):
        for case in range(-(-cases // len(categories))):
            images = random_images(t, category, np.random.default_rng([seed, number, case]))
            yield category, TensorLaunch(text, entry, t.blocks, images)


def random_images(t: TensorMma, category: str, random: np.random.Generator) -> dict[str, Words]:
    """Return memory images with operands of one class, and an empty image for D."""
    form, operands = t.form, tensor_operands(t.form)
    images: dict[str, Words] = {}
    for role, part, axis in zip("ab", shared_parts(form), (0, 1), strict=True):
        codes = _codes(operands[role].format, category, operands[role].shape, random)
        tile = part.store(np.stack(np.split(codes, 2, axis)) if t.blocks == 2 else codes, raw=True)
        images[role] = np.ascontiguousarray(tile.memory).view(np.uint32)
    columns = image_columns(form)
    d = operands["d"]
    accumulator = d.pack(_codes(d.format, category, d.shape, random), raw=True)
    images["c"] = np.zeros((*accumulator.shape[:-1], columns["end"]), np.uint32)
    images["c"][..., : d.columns] = accumulator
    for role, column in columns.items():
        if role in ("metadata", "scale_a", "scale_b"):
            operand = operands[role]
            images["c"][..., column : column + operand.columns] = _packed(t, role, operand, category, random)
    images["d"] = np.zeros_like(accumulator)
    return images


def _codes(number_format: Format, category: str, shape: tuple[int, ...], random: np.random.Generator) -> NDArray[Any]:
    if category == "bits":
        return random.integers(0, number_format.codes, shape).astype(code_dtype(number_format))
    return random_codes(number_format, category, shape, random).astype(code_dtype(number_format))


def _packed(t: TensorMma, role: str, operand: Any, category: str, random: np.random.Generator) -> Words:  # noqa: ANN401
    """Return tensor-memory columns that contain the metadata or scale factors."""
    if role == "metadata":
        legal = list(t.pattern.rising) if t.pattern is not None else [0]
        metadata: Words = operand.pack(random.choice(legal, operand.shape[-2:]).astype(np.uint8))
        return metadata
    if category == "bits":
        codes = random.integers(0, 128 if operand.format.name == "ue4m3" else 256, operand.shape)
    else:
        codes = operand.format.encode(1.0) + random.integers(-6, 7, operand.shape)
    scales: Words = operand.pack(codes, raw=True)
    return scales
