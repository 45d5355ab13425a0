"""Test vectors: operand registers and the expected result registers, chosen to expose mistakes.

    >>> from warpfrag.codegen.vectors import test_vectors
    >>> vector_set = test_vectors("mma.m16n8k16.f32.f16.f16.f32", arch="sm_90")
    >>> [group.name for group in vector_set.groups]
    ['positions', 'random', 'one hot a', 'one hot b', 'rounding', 'special', 'overflow']

A group contains operands whose results expose mistakes in a layout, a selector or the arithmetic. Metadata for other
selectors and scales for other ids hold different legal values, so a wrong selector or id changes the result.
`group.catches` names the mistakes that a group exposes. The raw kernels of `emit(..., kernels=True)` take these arrays.

wgmma and tcgen05 read A and B from shared memory, K-major and without gaps; wgmma has one more group, with A in
registers.
"""

from __future__ import annotations

import io
import json
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import cycle, islice
from operator import or_
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from warpfrag.codegen.statement import SWIZZLE_PERIOD
from warpfrag.errors import InvalidOperand, quote
from warpfrag.files import check_writable, write_atomically
from warpfrag.formats.codes import code_dtype, to_codes
from warpfrag.formats.random_codes import random_codes
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, SIDES, Immediates, part_of, suffix_of
from warpfrag.isa.targets import read_target
from warpfrag.tensorcore.execute import execute_registers
from warpfrag.tensorcore.execute_wgmma import run_wgmma_cases
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.tcgen05_types import TensorMma
from warpfrag.tensorcore.tensor_images import TensorCall, image_columns, run_images, shared_parts
from warpfrag.tensorcore.wgmma_call import Variant, WgmmaCall

Codes: TypeAlias = dict[str, NDArray[Any]]
Words: TypeAlias = NDArray[np.uint32]
Operands: TypeAlias = dict[str, Words]

# rows and columns are numbered with digits in this base, because every format but b1 represents 0 to 4 exactly
BASE = 4
HALF_CODES = 30000  # approximately the number of positive normal f16 codes
MISPLACED = {  # the mistakes that each operand reveals, by role; one text describes both scales
    "a": "operands in the wrong lane, register, slot or memory order",
    "metadata": "a wrong selector, metadata in the wrong lane or field",
    "scale_a": "wrong byte or thread ids, scales in the wrong lane or byte",
}


@dataclass(frozen=True, eq=False)
class VectorGroup:
    """Test vectors of one category: operand registers by role in `words`, and the expected registers `d`.

    Registers are uint32[cases, 32, words], metadata and scales uint32[cases, 32]. A wgmma has uint32[cases, 4, 32,
    words], and `shared`, the contents of shared memory, uint32[cases, words]. tcgen05 has the arrays described in
    `tensorcore.tensor_images`. `call` holds the descriptors of both. `catches` names the mistakes that change `d`.
    """

    name: str
    catches: str
    words: Operands
    d: Words
    choice: Immediates = DEFAULT_IMMEDIATES
    call: WgmmaCall | TensorCall | None = None

    @property
    def cases(self) -> int:
        """The number of cases."""
        return len(self.d)

    @property
    def registers(self) -> dict[str, NDArray[np.uint32]]:
        """The registers of every role, `d` last."""
        return {**self.words, "d": self.d}


class VectorMaker:
    """Creates operands of one instruction from a seed, and groups of test vectors from the operands.

    `few` is the number of cases in a random group. With `is_large`, one case tests many elements at once.
    """

    few = 8
    is_large = False

    def __init__(self, instruction: Instruction, arch: str, seed: int = 1) -> None:
        """Create the generator; equal seeds give equal operands."""
        self.instruction = instruction
        self.arch = arch
        self.random = np.random.default_rng(seed)

    def zeros(self, role: str, cases: int) -> NDArray[Any]:
        """Return zero codes."""
        operand = self.instruction.operands[role]
        return np.zeros((cases, *operand.shape), code_dtype(operand.format))

    def exact(self, role: str, values: NDArray[Any]) -> NDArray[Any]:
        """Return the codes of values that the format represents exactly; a sparse A is given as the full matrix."""
        return to_codes(self.instruction.operands[role].format, values)

    def choose(self, role: str, codes: NDArray[np.uint64] | list[int], cases: int) -> NDArray[Any]:
        """Fill an operand with random choices from `codes`."""
        operand = self.instruction.operands[role]
        picked = self.random.choice(np.array(codes, np.uint64), (cases, *operand.shape))
        return picked.astype(code_dtype(operand.format))

    def codes(self, role: str, cases: int, category: str = "narrow") -> NDArray[Any]:
        """Return random codes in a class of `formats.random_codes`; integers have only `plain` and `extreme`."""
        operand = self.instruction.operands[role]
        chosen = category if operand.format.is_float or category == "extreme" else "plain"
        drawn = random_codes(operand.format, chosen, (cases, *operand.shape), self.random)
        return drawn.astype(code_dtype(operand.format))

    def fields(self, cases: int) -> NDArray[Any]:
        """Return legal metadata codes."""
        pattern = self.instruction.pattern
        legal = sorted(pattern.columns) if pattern else [0]
        return self.random.choice(np.array(legal, np.uint8), (cases, *self.instruction.metadata.shape))

    def stored(self, codes: Codes) -> Codes:
        """Return the codes; for a sparse instruction, A becomes its stored half, and metadata codes are added."""
        if "metadata" in self.instruction.operands:
            codes["metadata"] = self.fields(len(codes["b"]))
        return codes

    def random_operands(self, category: str = "narrow", b: str = "") -> Codes:
        """Return random A, B and C of a class, or B of the class `b` if given; a sparse A gets metadata codes."""
        categories = {"a": category, "b": b or category, "c": category}
        return self.stored({role: self.codes(role, self.few, each) for role, each in categories.items()})

    def scales(self, role: str, cases: int, *, unit: bool = False) -> NDArray[Any]:
        """Return codes of scale factors: all 1, or within a few powers of two of 1."""
        operand = self.instruction.operands[role]
        if unit:
            return np.full((cases, *operand.shape), operand.format.encode(1.0), np.uint8)
        return self.codes(role, cases, "plain")

    def group(
        self, name: str, catches: str, codes: Codes, choice: Immediates = DEFAULT_IMMEDIATES, *, staged: bool = True
    ) -> VectorGroup:
        """Return a group with these matrices of codes; a sparse A without metadata codes is the full matrix."""
        words, d, call = self.run(self.compressed(codes), choice, staged=staged)
        return VectorGroup(name, catches, words, d, choice, call)

    def run(
        self, codes: Codes, choice: Immediates, *, staged: bool
    ) -> tuple[Operands, Words, WgmmaCall | TensorCall | None]:
        """Pack matrices of codes into registers and execute the instruction; return operands, D and the call."""
        del staged  # unused: A is always in registers
        matrices = (self.instruction.a, self.instruction.b, self.instruction.c)
        words = {operand.role: operand.pack(codes[operand.role], raw=True) for operand in matrices}
        for role in self.instruction.operands.selected_layouts:
            pack = self.metadata_words if role == "metadata" else self.scale_words
            words[role] = pack(role, codes, choice)
        return words, execute_registers(self.instruction, words, choice, arch=self.arch), None

    def compressed(self, codes: Codes) -> Codes:
        """Compress a full sparse A to its stored half and metadata codes."""
        if "metadata" in codes or "metadata" not in self.instruction.operands:
            return codes
        stored, metadata = self.instruction.compress(codes["a"], raw=True)
        return {**codes, "a": stored, "metadata": metadata}

    def metadata_words(self, role: str, codes: Codes, choice: Immediates) -> NDArray[np.uint32]:
        """Pack metadata for one selector, and different but legal metadata for all other selectors."""
        operand, fields = self.instruction.metadata, codes[role]
        parts = [
            operand.pack(fields if selector == choice.selector else self.fields(len(fields)), selector=selector)
            for selector in operand.selectors
        ]
        return reduce(or_, parts)

    def scale_words(self, role: str, codes: Codes, choice: Immediates) -> NDArray[np.uint32]:
        """Pack scale factors for one choice of ids, and different scale factors for all other ids."""
        operand: Any = self.instruction.operands[role]
        cases = len(codes["b"])
        chosen = part_of(choice, role)
        scales = codes[role] if role in codes else self.scales(role, cases, unit=True)
        parts = []
        for ids in scale_ids(operand):
            is_read = all(chosen[name] == number for name, number in ids.items())
            parts.append(operand.pack(scales if is_read else self.scales(role, cases), **ids, raw=True))
        return reduce(or_, parts)

    def choices(self) -> list[Immediates]:
        """Return every selector; for scale factors, combinations of ids in which each id occurs at least once."""
        operands: Any = self.instruction.operands
        if "metadata" in operands:
            return [Immediates(selector) for selector in operands["metadata"].selectors]
        if "scale_a" not in operands:
            return [DEFAULT_IMMEDIATES]
        a, b = (scale_ids(operands[side]) for side in SIDES)
        count = max(len(a), len(b))
        pairs = zip(islice(cycle(a), count), islice(cycle(b[1:] + b[:1]), count), strict=True)
        mixed = [
            Immediates(0, (x["byte_id"], y["byte_id"]), (x.get("thread_id", 0), y.get("thread_id", 0)))
            for x, y in pairs
        ]
        return list(dict.fromkeys([DEFAULT_IMMEDIATES, *mixed]))

    def full_shape(self, role: str) -> tuple[int, ...]:
        """Return the shape of an operand; for a sparse A, that of the full matrix."""
        if role == "a" and self.instruction.pattern is not None:
            return self.instruction.shape.m, self.instruction.shape.k
        return self.instruction.operands[role].shape


def scale_ids(operand: Any) -> list[dict[str, int]]:  # noqa: ANN401 (scales of registers and of tensor memory)
    """Return the byte ids of a scale operand; for scales in registers, each with every thread id."""
    if not hasattr(operand, "thread_ids"):
        return [{"byte_id": byte} for byte in operand.byte_ids]
    return [{"byte_id": byte, "thread_id": thread} for thread in operand.thread_ids for byte in operand.byte_ids]


def common_groups(maker: VectorMaker) -> Iterator[VectorGroup]:
    """Yield the groups that every matrix multiplication has."""
    yield positions(maker)
    yield from random(maker)
    yield from single_elements(maker)
    if maker.instruction.d.format.is_float:
        yield rounding(maker)
        catches = "wrong treatment of NaNs, infinities, signed zeros, subnormals or largest numbers"
        yield maker.group("special", catches, maker.random_operands("special"))
        yield overflow(maker)
    else:
        rule = "clamp" if maker.instruction.form.satfinite else "wrap around"
        catches = f"signed read as unsigned or vice versa, and sums beyond s32 that do not {rule}"
        yield maker.group("extremes", catches, maker.random_operands("extreme"))


def positions(maker: VectorMaker) -> VectorGroup:
    """Return three cases: outputs that give their row number, outputs that give their column number, and C alone."""
    instruction = maker.instruction
    matrices = {role: np.zeros((3, *maker.full_shape(role))) for role in "ab"}
    a, b = matrices["a"], matrices["b"]
    write_numbers(maker, "a", a[0], b[0])
    write_numbers(maker, "b", np.swapaxes(b[1], -1, -2), np.swapaxes(a[1], -1, -2))
    codes = {role: maker.exact(role, matrix) for role, matrix in matrices.items()}
    codes["c"] = maker.zeros("c", 3)
    numbers = np.arange(codes["c"][2].size).reshape(codes["c"][2].shape)
    if instruction.c.format.name == "f16":  # f16 represents few integers, but it has enough normal codes
        codes["c"][2] = (1 << instruction.c.format.fraction) + numbers % HALF_CODES
    else:
        codes["c"][2] = maker.exact("c", 1 + numbers)
    catches = "outputs in the wrong lane, register or slot: with C alone, all outputs differ"
    return maker.group("positions", catches, codes)


def write_numbers(maker: VectorMaker, role: str, digits: NDArray[Any], weights: NDArray[Any]) -> None:
    """Write digits and weights whose products, summed along k, give the number of each row."""
    instruction = maker.instruction
    pattern, number_format = instruction.pattern, instruction.operands[role].format
    # every sparsity pattern allows the first half of each chunk to be kept
    free = (col for col in range(instruction.shape.k) if pattern is None or col % pattern.chunk < pattern.kept)
    top = int(number_format.max)
    if number_format.is_float:
        top = int(min(1 << (number_format.fraction + 1), number_format.max))
    numbers = np.arange(digits.shape[-2])
    unit = 0 if instruction.form.bitop == "xor" else 1
    parts = [(numbers, unit)] if top < BASE else [(numbers % BASE, 1), (numbers // BASE, BASE)]
    for number, weight in parts:
        left = np.broadcast_to(number, digits.shape[:-1]).copy()
        while left.any():
            column = next(free)
            digits[..., column] = np.minimum(left, top)
            weights[..., column, :] = weight
            left -= np.minimum(left, top)


def random(maker: VectorMaker) -> Iterator[VectorGroup]:
    """Yield finite operands for every selector, and for combinations of scale ids that include each id."""
    operands = maker.instruction.operands
    catches = "; ".join(text for role, text in MISPLACED.items() if role in operands)
    for choice in maker.choices():
        codes = maker.random_operands()
        codes |= {role: maker.scales(role, maker.few) for role in SIDES if role in operands}
        yield maker.group(f"random{suffix_of(choice, operands).replace('_', ' ')}", catches, codes, choice)


def single_elements(maker: VectorMaker) -> Iterator[VectorGroup]:
    """Yield a single 1 in each row of A or column of B, for every k; each output is one element of the other matrix."""
    k = maker.instruction.shape.k
    for role, partner in (("a", "b"), ("b", "a")):
        shape = maker.full_shape(role)
        line, along = (-2, -1) if role == "a" else (-1, -2)
        lines = np.arange(shape[line])
        # if there are many rows or columns, a few cases are enough to reach every k
        starts = range(0, k, min(k, shape[line])) if maker.is_large else range(k)
        hot = np.zeros((len(starts), *shape))
        for case, start in enumerate(starts):
            index: list[Any] = [case, *(slice(None) for _ in shape)]
            index[line], index[along] = lines, (start + lines) % k
            hot[tuple(index)] = 1
        codes = {partner: maker.codes(partner, len(starts)), "c": maker.zeros("c", len(starts))}
        codes[role] = maker.exact(role, hot)
        catches = f"a misplaced element of {partner.upper()}: each output is one element of {partner.upper()}"
        yield maker.group(f"one hot {role}", catches, codes if role == "a" else maker.stored(codes))


def rounding(maker: VectorMaker) -> VectorGroup:
    """Return terms of very different magnitudes; in half of the cases, two large terms cancel and tiny ones remain."""
    codes = maker.random_operands("wide", b="narrow")
    number_format = maker.instruction.a.format
    large = number_format.encode(2.0 ** min(12, math.frexp(number_format.max)[1] - 2))
    codes["a"][::2], codes["c"][::2] = (maker.codes(role, maker.few, "tiny")[::2] for role in "ac")
    codes["a"][::2, ..., 0], codes["a"][::2, ..., -1] = large, large | number_format.sign_bit
    codes["b"][::2, ..., -1, :] = codes["b"][::2, ..., 0, :]
    catches = "sums that keep a different number of bits, round differently, or add in a different order"
    return maker.group("rounding", catches, codes)


def overflow(maker: VectorMaker) -> VectorGroup:
    """Return sums that exceed the largest finite D, at the end or only in between."""
    codes = {}
    for role in "abc":
        number_format = maker.instruction.operands[role].format
        largest = number_format.encode(number_format.max)
        codes[role] = maker.choose(role, [largest, largest | number_format.sign_bit], 4)
        if role != "c":
            codes[role][0] = largest
    catches = "wrong overflow: infinity, the largest number, or a lost carry"
    return maker.group("overflow", catches, maker.stored(codes))


UNIT = 16  # the size of shared memory is a multiple of this number of bytes


class WgmmaVectorMaker(VectorMaker):
    """Creates operands for a wgmma, in registers and in shared memory."""

    few = 2
    is_large = True

    def run(self, codes: Codes, choice: Immediates, *, staged: bool) -> tuple[Operands, Words, WgmmaCall]:
        """Store matrices of codes in registers and shared memory, and execute wgmma.

        Return operands, D and the call.
        """
        instruction = self.instruction
        words = {"c": instruction.c.pack(codes["c"], raw=True)}
        if "metadata" in codes:
            words["metadata"] = self.metadata_words("metadata", codes, choice)
        if not staged:
            words["a"] = instruction.a.pack(codes["a"], raw=True)
        shared = np.zeros((len(codes["b"]), 0), np.uint8)
        descriptors = {"a": 0}
        for role in "ab" if staged else "b":
            shared, descriptors[role] = self._stored(shared, role, codes[role])
        words["shared"] = np.ascontiguousarray(shared).view(np.uint32)
        call = WgmmaCall(Variant(staged, selector=choice.selector), (descriptors["a"], descriptors["b"]))
        return words, run_wgmma_cases(instruction, call.stage(words), self.arch), call

    def _stored(self, shared: NDArray[np.uint8], role: str, codes: NDArray[Any]) -> tuple[NDArray[np.uint8], int]:
        """Append an operand to shared memory, between random bytes; return the memory and the operand's address."""
        operand: Operand = self.instruction.a if role == "a" else self.instruction.b
        descriptor = operand.descriptors()[0].moved(-(-shared.shape[1] // SWIZZLE_PERIOD) * SWIZZLE_PERIOD)
        memory = operand.memory(descriptor)
        rows, cols = operand.shape
        size = -(-memory.size((rows, cols), operand.format.bits) // UNIT) * UNIT
        longer = self.random.integers(0, 256, (len(codes), size), np.uint8)
        longer[:, : shared.shape[1]] = shared
        return memory.write(longer, codes, operand.format.bits), descriptor.word


class TensorVectorMaker(VectorMaker):
    """Creates the shared and tensor memory of one tcgen05.mma."""

    few = 2
    is_large = True

    @property
    def mma(self) -> TensorMma:
        """The instruction."""
        return cast("TensorMma", self.instruction)

    def run(self, codes: Codes, choice: Immediates, *, staged: bool) -> tuple[Operands, Words, TensorCall]:
        """Store matrices of codes in shared and tensor memory, and execute the mma; return operands, D and the call."""
        del staged  # unused: A is always in shared memory
        mma = self.mma
        words: Operands = {}
        descriptors = []
        for axis, (role, part) in enumerate(zip("ab", shared_parts(mma.form), strict=True)):
            descriptor = part.descriptors()[0]
            halves = np.stack(np.split(codes[role], 2, axis - 2), axis=1) if mma.blocks == 2 else codes[role]
            memory = part.store(halves, descriptor, raw=True).memory
            padding = [(0, 0)] * (memory.ndim - 1) + [(0, -memory.shape[-1] % UNIT)]
            words[role] = np.ascontiguousarray(np.pad(memory, padding)).view(np.uint32)
            descriptors.append(descriptor.word)
        words["c"] = self._tensor_memory(codes, choice)
        fields = {"selector": choice.selector, "scale_a_id": choice.byte_id[0], "scale_b_id": choice.byte_id[1]}
        idesc = mma.descriptor(**{name: field for name, field in fields.items() if field})
        call = TensorCall((descriptors[0], descriptors[1]), idesc.word)
        return words, run_images(mma.form, words, self.arch, call), call

    def _tensor_memory(self, codes: Codes, choice: Immediates) -> Words:
        """Return tensor-memory columns with D, metadata and scale factors."""
        columns = image_columns(self.mma.form)
        parts = {"d": self.mma.d.pack(codes["c"], raw=True)}
        for role in columns:
            if role == "metadata":
                parts[role] = self.metadata_words(role, codes, choice)
            elif role not in {"d", "end"}:
                parts[role] = self.scale_words(role, codes, choice)
        image = np.zeros((*parts["d"].shape[:-1], columns["end"]), np.uint32)
        for role, part in parts.items():
            image[..., columns[role] : columns[role] + part.shape[-1]] = part
        return image


MAKERS: dict[str, type[VectorMaker]] = {"warp": VectorMaker, "warpgroup": WgmmaVectorMaker, "block": TensorVectorMaker}


SCHEMA = 2


def test_vectors(
    instruction: str | Instruction,
    *,
    arch: str = "sm_90",  # noqa: PT028 (not a test)
    seed: int = 1,  # noqa: PT028
) -> VectorSet:
    """Return test vectors for a matrix multiplication on an architecture; equal seeds give equal vectors.

    Raises InvalidOperand if the instruction does not multiply, IllegalInstruction if the architecture does not support
    it, and NotModelled if its result is unknown.
    """
    number = check_seed(seed)
    mma = get(instruction)
    arch = read_target(arch, mma.name).name
    check_multiplies(mma, "test vectors exist for")
    if mma.form.operation.fragments == "measured":  # wmma fragments depend on the architecture
        mma = get(mma, arch=arch)
    maker = MAKERS[mma.form.operation.scope](mma, arch, number)
    groups = [*common_groups(maker)]
    if isinstance(maker, WgmmaVectorMaker):
        catches = "A in the wrong warp, lane, register or slot"
        groups.append(maker.group("registers", catches, maker.random_operands(), staged=False))
    return VectorSet(mma, arch, tuple(groups))


test_vectors.__test__ = False  # type: ignore[attr-defined]  # pytest must not collect it where it is imported


def check_multiplies(instruction: Instruction, purpose: str) -> None:
    """Raise InvalidOperand for an instruction that does not multiply; the message starts with `purpose`."""
    operation = instruction.form.operation
    if operation.does != "multiply":
        action = "" if operation.scope == "block" else "moves registers and "
        raise InvalidOperand(
            f"{instruction.name} {action}computes nothing: {purpose} mma, mma.sp, wmma.mma, wgmma and tcgen05.mma"
        )
    if not instruction.shape.m:
        example = "m=128, n=64, a='f16', d='f32'"
        raise InvalidOperand(
            f"{instruction.name} has no shape: {purpose} instructions with a shape and types; get it with {example}"
        )


def check_seed(seed: int) -> int:
    """Return the seed; raise InvalidOperand if NumPy does not accept it."""
    try:
        number = -1 if isinstance(seed, bool) else operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise InvalidOperand(f"seed: expected a non-negative integer, got {quote(seed)}")
    return number


@dataclass(frozen=True, eq=False)
class VectorSet:
    """The test vectors for one instruction, with the arithmetic of one architecture."""

    instruction: Instruction
    arch: str
    groups: tuple[VectorGroup, ...]

    def __repr__(self) -> str:
        """Format the instruction, the architecture and the groups."""
        return f"<VectorSet of {self.instruction.name} on {self.arch}: {self.cases} cases in {len(self.groups)} groups>"

    @property
    def cases(self) -> int:
        """The number of cases in all groups."""
        return sum(group.cases for group in self.groups)

    def __getitem__(self, name: str) -> VectorGroup:
        """Return the group with this name."""
        by_name = {group.name: group for group in self.groups}
        if not isinstance(name, str) or name not in by_name:
            raise InvalidOperand(f"expected a group from {', '.join(by_name)}; got {quote(name)}")
        return by_name[name]

    def save(self, path: str | PathLike[str]) -> None:
        """Write an npz archive: each array as `group/role`, and `about`, a description of the set as JSON."""
        arrays = {f"{group.name}/{role}": words for group in self.groups for role, words in group.registers.items()}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, about=np.array(json.dumps(self.to_dict())), **arrays)
        write_atomically(check_output(path), buffer.getvalue())

    def to_dict(self) -> dict[str, Any]:
        """Return a description of the set without its arrays."""
        groups = [
            {
                "name": group.name,
                "catches": group.catches,
                "cases": group.cases,
                "selector": group.choice.selector,
                "byte_id": list(group.choice.byte_id),
                "thread_id": list(group.choice.thread_id),
                **(group.call.row if group.call else {}),
            }
            for group in self.groups
        ]
        return {"schema": SCHEMA, "instruction": self.instruction.name, "arch": self.arch, "groups": groups}


def check_output(path: str | PathLike[str]) -> Path:
    """Return the path; raise an error if it is not an .npz file or cannot be written."""
    try:
        output = Path(path)
    except TypeError:
        raise InvalidOperand(f"expected the path of a file, got {quote(path)}") from None
    if output.suffix != ".npz":
        raise InvalidOperand(f"expected an .npz file for test vectors, got {quote(output.name)}")
    check_writable(output)
    return output
