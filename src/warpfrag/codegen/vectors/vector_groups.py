"""The groups of test vectors: what each is made of, and which mistakes it catches."""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.codegen.vectors.arithmetic_models import rounding_group
from warpfrag.codegen.vectors.vector_maker import VectorMaker
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, SIDES, Immediates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from warpfrag.codegen.vectors.vector_group import VectorGroup
    from warpfrag.formats.number_formats import Format
    from warpfrag.tensorcore.instruction import Instruction

INT_MAX = 2**31 - 1
MISPLACED = {  # what a misplaced operand looks like, by role; one text stands for both scales
    "a": "operands in the wrong lane, register, slot or memory order",
    "metadata": "a wrong selector, metadata in the wrong lane or field",
    "scale_a": "wrong byte or thread ids, scales in the wrong lane or byte",
}


def warp_groups(instruction: Instruction, arch: str, seed: int) -> Iterator[VectorGroup]:
    """Every group of a product of one warp."""
    maker = VectorMaker(instruction, arch, seed)
    yield positions(maker)
    yield from common_groups(maker)


def common_groups(maker: VectorMaker) -> Iterator[VectorGroup]:
    """The groups that products in registers have, but for the positions of their outputs."""
    yield from random(maker)
    yield from arithmetic_groups(maker)


def arithmetic_groups(maker: VectorMaker) -> Iterator[VectorGroup]:
    """The groups that every product has: single elements, and what its arithmetic does at the edges."""
    yield from single_elements(maker)
    if maker.instruction.d.format.is_float:
        yield rounding_group(maker)
        yield special(maker)
        yield overflow(maker)
    else:
        yield extremes(maker)
        yield saturation(maker)


def positions(maker: VectorMaker) -> VectorGroup:
    """Every output has a value of its own: once by the products, once by C alone."""
    instruction = maker.instruction
    a, b = (np.zeros((1, *full_shape(maker, role))) for role in "ab")
    rows, cols = instruction.shape.m, instruction.shape.n
    free = iter(free_columns(maker))
    # row number: digits in A against ones in B; column number, in steps of all rows: digits in B against ones in A
    constant = 0 if instruction.form.bitop == "xor" else 1
    top = {role: largest_count(instruction.operands[role].format) for role in "ab"}
    step = 1 if constant == 0 else min(top["a"], 4)
    write_digits(a, b, np.arange(rows), top["a"], constant, free)
    offsets = rows * np.arange(cols) // step
    for products in instruction.c.shape[:-2]:  # an instruction of several products has as many matrices
        offsets = offsets + rows * cols // step * np.arange(products)[:, None]
    write_digits(np.swapaxes(b, -1, -2), np.swapaxes(a, -1, -2), offsets, top["b"], step * constant, free)
    c = np.zeros((2, *instruction.c.shape))
    c[1] = 1 + np.arange(c[1].size).reshape(c[1].shape)
    codes = {
        "a": maker.exact("a", np.concatenate([a, 0 * a])),
        "b": maker.exact("b", np.concatenate([b, 0 * b])),
        "c": maker.exact("c", c),
    }
    catches = "outputs in the wrong lane, register or slot: every output differs from every other; the same for C"
    return maker.group("positions", catches, codes, DEFAULT_IMMEDIATES)


def warpgroup_positions(maker: VectorMaker) -> VectorGroup:
    """Every row has a value of its own, then every column, then by C alone every output."""
    instruction = maker.instruction
    matrices = {role: np.zeros((3, *full_shape(maker, role))) for role in "ab"}
    a, b = matrices["a"], matrices["b"]
    top = {role: largest_count(instruction.operands[role].format) for role in "ab"}
    write_digits(a[:1], b[:1], np.arange(instruction.shape.m), top["a"], 1, iter(free_columns(maker)))
    transposed = [np.swapaxes(matrix[1:2], -1, -2) for matrix in (b, a)]
    write_digits(transposed[0], transposed[1], np.arange(instruction.shape.n), top["b"], 1, iter(free_columns(maker)))
    codes = {role: maker.exact(role, matrix) for role, matrix in matrices.items()}
    codes["c"] = maker.zeros("c", 3)
    first = 1 << instruction.c.format.fraction if instruction.c.format.name == "f16" else 1  # as codes: all are normal
    numbers = first + np.arange(codes["c"][2].size).reshape(codes["c"][2].shape)
    codes["c"][2] = numbers if instruction.c.format.name == "f16" else maker.exact("c", numbers)
    catches = "outputs in the wrong warp, lane, register or slot: every output of C alone differs from every other"
    return maker.group("positions", catches, codes, DEFAULT_IMMEDIATES)


def full_shape(maker: VectorMaker, role: str) -> tuple[int, ...]:
    """The shape of an operand; for a sparse A that of the full matrix."""
    instruction = maker.instruction
    if role == "a" and instruction.pattern is not None:
        return instruction.shape.m, instruction.shape.k
    shape: tuple[int, ...] = instruction.operands[role].shape
    return shape


def free_columns(maker: VectorMaker) -> list[int]:
    """The columns of A that may hold anything, whatever the sparsity: the first half of each chunk."""
    pattern = maker.instruction.pattern
    k = maker.instruction.shape.k
    return [col for col in range(k) if pattern is None or col % pattern.chunk < pattern.kept]


def largest_count(number_format: Format) -> int:
    """The largest n such that 0, 1, ..., n are all exact."""
    if not number_format.is_float:
        return int(number_format.max)
    return int(min(1 << (number_format.fraction + 1), number_format.max))


def write_digits(
    digits: NDArray[Any], ones: NDArray[Any], wanted: NDArray[Any], top: int, constant: int, free: Iterator[int]
) -> None:
    """Write numbers as sums of digits of at most `top` along free columns, opposite to a constant."""
    left = np.broadcast_to(wanted, digits.shape[:-1]).copy()
    while left.any():
        column = next(free)
        digit = np.minimum(left, top)
        digits[..., column] = digit
        ones[..., column, :] = constant
        left -= digit


def random(maker: VectorMaker) -> Iterator[VectorGroup]:
    """Any finite operands, for every selector and a sample of scale ids that has each id at least once."""
    for choice in sample_choices(maker):
        operands = maker.instruction.operands
        codes = maker.stored({role: maker.finite(role, maker.few) for role in "abc"})
        codes |= {role: maker.scales(role, maker.few) for role in SIDES if role in operands}
        catches = "; ".join(text for role, text in MISPLACED.items() if role in operands)
        suffix = choice.suffix(operands).replace("_", " ")
        yield maker.group(f"random{suffix}", catches, codes, choice)


def sample_choices(maker: VectorMaker) -> list[Immediates]:
    """Every selector; of the ids so many combinations that each id comes once."""
    instruction = maker.instruction
    if instruction.scale_a is None:
        return [Immediates(selector) for selector in instruction.selectors or (0,)]
    sides = (instruction.scale_a, instruction.scale_b)
    ids = [*(side.byte_ids for side in sides), *(side.thread_ids for side in sides)]
    count = max(map(len, ids))
    rows = zip(*(islice(cycle(values), count) for values in ids), strict=True)
    return [Immediates(0, (byte_a, byte_b), (thread_a, thread_b)) for byte_a, byte_b, thread_a, thread_b in rows]


def single_elements(maker: VectorMaker) -> Iterator[VectorGroup]:
    """A single 1 in each row of A, or column of B, that moves through all of k; so each output is one element."""
    instruction = maker.instruction
    k = instruction.shape.k
    for role, other in (("a", "b"), ("b", "a")):
        shape = full_shape(maker, role)
        line, along = (-2, -1) if role == "a" else (-1, -2)
        lines = np.arange(shape[line])
        # many lines go through all of k in few cases
        starts = range(0, k, min(k, shape[line])) if maker.is_large else range(k)
        cases = len(starts)
        hot = np.zeros((cases, *shape))
        for case, start in enumerate(starts):
            index: list[Any] = [case, *(slice(None) for _ in shape)]
            index[line], index[along] = lines, (start + lines) % k
            hot[tuple(index)] = 1
        codes = {other: maker.finite(other, cases), "c": maker.zeros("c", cases)}
        codes[role] = maker.exact(role, hot)
        codes = codes if role == "a" else maker.stored(codes)
        catches = (
            f"a single element of {other.upper()} in the wrong place: each output is one element of {other.upper()}"
        )
        yield maker.group(f"one hot {role}", catches, codes, DEFAULT_IMMEDIATES)


def special(maker: VectorMaker) -> VectorGroup:
    """NaN, infinities, zeros of both signs, the smallest and largest numbers, scattered over ordinary ones."""
    cases = maker.few
    codes = {}
    for role in "abc":
        number_format = maker.instruction.operands[role].format
        chosen = maker.random.choice(
            np.array(special_codes(number_format), np.uint64), (cases, *maker.instruction.operands[role].shape)
        )
        ordinary = maker.finite(role, cases)
        often = maker.random.random(ordinary.shape) < np.linspace(0.02, 1.0, cases).reshape(
            -1, *(1,) * (ordinary.ndim - 1)
        )
        codes[role] = np.where(often, chosen, ordinary).astype(ordinary.dtype)
    catches = "NaN codes, infinities, signed zeros, subnormals or largest numbers treated as something else"
    return maker.group("special", catches, maker.stored(codes), DEFAULT_IMMEDIATES)


def special_codes(number_format: Format) -> list[int]:
    """The codes at the edges of a format."""
    smallest = 1 << number_format.unused
    normal = 1 << (number_format.fraction + number_format.unused)
    positive = {0, smallest, normal - smallest, normal, number_format.encode(number_format.max)}
    if number_format.infinity:
        positive.add(number_format.encode(float("inf")))
    if number_format.nan_code is not None:
        positive.add(number_format.nan_code)
        if number_format.nan == "ieee":
            positive.add(number_format.encode(float("inf")) | smallest)  # a signalling NaN
    return sorted(positive | {code | number_format.sign_bit for code in positive})


def overflow(maker: VectorMaker) -> VectorGroup:
    """Sums beyond the largest finite D, and sums that come back from there."""
    instruction = maker.instruction
    edge = {}
    for role in "ab":
        number_format = instruction.operands[role].format
        largest = number_format.encode(number_format.max)
        signs = np.array([largest, largest | number_format.sign_bit], np.uint64)
        edge[role] = maker.random.choice(signs, (4, *instruction.operands[role].shape)).astype(
            maker.zeros(role, 1).dtype
        )
        edge[role][0] = largest
    largest = instruction.c.format.encode(instruction.c.format.max)
    signs = np.array([largest, largest | instruction.c.format.sign_bit], np.uint64)
    edge["c"] = maker.random.choice(signs, (4, *instruction.c.shape)).astype(maker.zeros("c", 1).dtype)
    catches = "wrong overflow: infinity, the largest number, or a lost carry"
    return maker.group("overflow", catches, maker.stored(edge), DEFAULT_IMMEDIATES)


def extremes(maker: VectorMaker) -> VectorGroup:
    """The smallest and largest integers in every place."""
    codes = {"c": maker.zeros("c", maker.few)}
    for role in "ab":
        operand = maker.instruction.operands[role]
        ends = np.array(
            [operand.format.encode(operand.format.min), operand.format.encode(operand.format.max)], np.uint64
        )
        codes[role] = maker.random.choice(ends, (maker.few, *operand.shape)).astype(maker.zeros(role, 1).dtype)
    catches = "signed read as unsigned or the reverse, and too narrow sums"
    return maker.group("extremes", catches, maker.stored(codes), DEFAULT_IMMEDIATES)


def saturation(maker: VectorMaker) -> VectorGroup:
    """C so near to the ends of s32 that some sums pass them and others do not."""
    codes = {role: maker.finite(role, maker.few) for role in "ab"}
    shape = (maker.few, *maker.instruction.c.shape)
    reach = 1 << (maker.instruction.a.format.bits + maker.instruction.b.format.bits)
    near = INT_MAX - maker.random.integers(0, reach, shape)
    codes["c"] = maker.exact("c", np.where(maker.random.random(shape) < 0.5, near, -near - 1).astype(np.int32))
    rule = "clamp" if maker.instruction.form.satfinite else "wrap around"
    catches = f"sums beyond s32 that do not {rule}, or do so before the last product"
    return maker.group("saturation", catches, maker.stored(codes), DEFAULT_IMMEDIATES)
