"""Round trips for every operand of every instruction: places to elements and back, codes to registers and back."""

from functools import cache
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from instructions import each_of, every

INSTRUCTIONS = every()
BATCH = (2, 3)

# Bits of the raw code of each format. tf32 keeps all 32 bits of its float32; a mover's b16 and b8 say their own.
CODE_BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1,
    "e4m3": 8, "e5m2": 8, "e3m2": 6, "e2m3": 6, "e2m1": 4,
}  # fmt: skip

# The bits of a register that hold no element: kinds f8f6f4 and mxf8f6f4 keep e3m2 and e2m3 in bits 5..0 of a byte
# and e2m1 in bits 5..2. Everywhere else e2m1 is packed.
PADDING = {"e3m2": 0xC0C0C0C0, "e2m3": 0xC0C0C0C0, "e2m1": 0xC3C3C3C3}


def operand_names(name: str) -> str:
    """The register operands of an instruction, one letter each."""
    words = name.split(".")
    if words[0] == "wmma" and words[1] in ("load", "store"):
        return words[2]
    return {"ldmatrix": "d", "stmatrix": "a", "movmatrix": "ad", "wgmma": "acd"}.get(words[0], "abcd")


def operands(instruction: Any) -> list[tuple[str, Any]]:
    """Return (letter, operand) of an instruction; none for ldmatrix .s8.s4, whose layout is unknown."""
    if ".s8.s4" in instruction.name:
        return []
    return [(letter, getattr(instruction, letter)) for letter in operand_names(instruction.name)]


def padding_mask(instruction: Any, operand: Any) -> int:
    """The padding bits of each 32-bit word of an operand."""
    in_bytes = any(f"kind::{kind}." in instruction.name for kind in ("f8f6f4", "mxf8f6f4"))
    return PADDING.get(operand.format.name, 0) if in_bytes else 0


def random_codes(operand: Any, seed: int) -> npt.NDArray[Any]:
    """Codes of every bit pattern of the format, with batch axes before the matrix."""
    bits = CODE_BITS.get(operand.format.name, operand.format.bits)
    dtype = np.dtype(f"u{max(8, bits) // 8}") if bits != 6 else np.dtype("u1")
    return np.random.default_rng(seed).integers(0, 1 << bits, (*BATCH, *operand.shape), dtype=dtype)


@cache
def round_trip(layout: Any, regs: int, slots: int, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Check a layout place by place and element by element; places, elements, and copies of each element."""
    holders: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    extents = (4, 32, regs, slots) if "warp" in layout.ins else (32, regs, slots)
    for place in product(*map(range, extents)):
        element = layout.at(**dict(zip(layout.ins, place, strict=True)))
        assert place in layout.where(**element._asdict())
        holders.setdefault(tuple(element), []).append(place)
    fields = element._fields
    for element in product(*(range(extent) for extent in shape)):
        places = layout.where(**dict(zip(fields, element, strict=True)))
        assert places == sorted(holders[element])
    counts = {len(places) for places in holders.values()}
    assert len(counts) == 1
    return prod(extents), len(holders), counts.pop()


def test_there_are_instructions() -> None:
    """The tests below run over all instructions, each once; only ldmatrix .s8.s4 has no known operands."""
    assert len(INSTRUCTIONS) >= 640
    assert len({instruction.name for instruction in INSTRUCTIONS}) == len(INSTRUCTIONS)
    assert {len(operands(instruction)) for instruction in INSTRUCTIONS} == {0, 1, 2, 3, 4}
    assert sum(not operands(instruction) for instruction in INSTRUCTIONS) == 3


@each_of(INSTRUCTIONS)
def test_places_and_elements(instruction: Any) -> None:
    """`x in where(at(x))` for every lane, register and slot; every element has its holders, and no other."""
    for letter, operand in operands(instruction):
        places, elements, copies = round_trip(operand.layout, operand.regs, operand.slots, tuple(operand.shape))
        assert elements == np.prod(operand.shape), letter
        assert places == elements * copies, letter


@each_of(INSTRUCTIONS)
def test_codes_and_registers(instruction: Any) -> None:
    """unpack(pack(codes)) is codes, with batch axes; every copy is written; padding is zero and not read."""
    for seed, (letter, operand) in enumerate(operands(instruction)):
        codes = random_codes(operand, seed)
        words = operand.pack(codes, raw=True)
        threads = (4, 32) if instruction.name.startswith("wgmma") else (32,)
        assert (words.shape, words.dtype) == ((*BATCH, *threads, operand.words), np.dtype(np.uint32)), letter
        again = operand.unpack(words, raw=True)
        assert again.dtype.kind == "u", letter
        assert np.array_equal(again, codes), letter
        assert np.array_equal(operand.unpack(words, raw=True, strict=True), codes), letter
        padding = np.uint32(padding_mask(instruction, operand))
        assert not (words & padding).any(), letter
        assert np.array_equal(operand.unpack(words | padding, raw=True), codes), letter
        assert np.array_equal(operand.pack(codes[1, 2], raw=True), words[1, 2]), letter


def test_padding_is_exercised() -> None:
    """Padded operands exist in each of e3m2, e2m3 and e2m1, and e2m1 also exists packed."""
    seen = {
        (operand.format.name, padding_mask(instruction, operand) != 0)
        for instruction in INSTRUCTIONS
        for _, operand in operands(instruction)
        if operand.format.name in PADDING
    }
    assert seen == {("e3m2", True), ("e2m3", True), ("e2m1", True), ("e2m1", False)}


@each_of(INSTRUCTIONS)
def test_every_register_bit_is_an_element_or_padding(instruction: Any) -> None:
    """Packing all-ones codes sets every bit of every register, but the padding."""
    for letter, operand in operands(instruction):
        bits = CODE_BITS.get(operand.format.name)
        if bits is None:  # a mover's 6- and 4-bit sources have padding of their own
            continue
        codes = np.full(operand.shape, (1 << bits) - 1, np.uint64)
        codes = codes.astype(np.dtype(f"u{max(8, bits) // 8}") if bits != 6 else np.dtype("u1"))
        words = operand.pack(codes, raw=True)
        assert (words == 0xFFFFFFFF & ~padding_mask(instruction, operand)).all(), letter


@each_of(INSTRUCTIONS)
def test_natural_values_round_trip(instruction: Any) -> None:
    """unpack returns the natural dtype with the same bits: packing it again gives the same registers."""
    for seed, (letter, operand) in enumerate(operands(instruction)):
        words = operand.pack(random_codes(operand, seed), raw=True)
        values = operand.unpack(words)
        assert values.shape == (*BATCH, *operand.shape), letter
        assert np.array_equal(operand.pack(values), words), letter
