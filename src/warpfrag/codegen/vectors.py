"""Test vectors: operand registers and the expected result registers, chosen so that mistakes show.

    >>> from warpfrag.codegen.vectors import test_vectors
    >>> vector_set = test_vectors("mma.m16n8k16.f32.f16.f16.f32", arch="sm_90")
    >>> [group.name for group in vector_set.groups]
    ['positions', 'random', 'one hot a', 'one hot b', 'rounding', 'special', 'overflow']

Every group says which mistakes it catches. The raw kernels that `emit(..., kernels=True)` writes take these arrays.

The common groups of wgmma and tcgen05 store A and B in shared memory without gaps. Further groups have A in registers
(wgmma), tiles of each swizzle, K-major and MN-major, negation and saturation (tcgen05). The instruction reads the
middle of a swizzled tile.
"""

from __future__ import annotations

import io
import json
import operator
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from warpfrag.codegen.statement import SWIZZLE_PERIOD, can_transpose
from warpfrag.codegen.vector_groups import (
    Codes,
    Operands,
    TilePlacement,
    VectorGroup,
    VectorMaker,
    Words,
    common_groups,
)
from warpfrag.diagnosis.descriptor_mistakes import swizzle_text
from warpfrag.errors import InvalidOperand, quote
from warpfrag.files import check_writable, write_atomically
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, Immediates
from warpfrag.isa.targets import read_target
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.instruction_descriptor import InstructionDescriptor
from warpfrag.smem.shared_memory import SWIZZLES
from warpfrag.tensorcore.execute_wgmma import run_wgmma_cases
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.tcgen05_types import TensorMma
from warpfrag.tensorcore.tensor_images import TensorCall, image_columns, run_images, shared_parts
from warpfrag.tensorcore.wgmma_call import Variant, WgmmaCall

MAX_TILES = 4  # instructions along k that read one swizzled tile, at most
UNIT = 16  # bytes: shared memory is a multiple of this


def tile(operand: Any, placement: TilePlacement, bits: int) -> Descriptor:  # noqa: ANN401 (of wgmma or tcgen05)
    """Return the descriptor of the middle of a tile; InvalidOperand if its lines are too short for the swizzle."""
    if placement.swizzle is None:
        descriptors = operand.descriptors(trans=placement.trans)
    else:
        k = operand.shape[1 if operand.role == "a" else 0]
        count = 1 if placement.trans else max(1, placement.swizzle * 8 // (k * bits))
        size = k * min(count, MAX_TILES)
        descriptors = operand.descriptors(k=size, swizzle=placement.swizzle, trans=placement.trans)
    return cast("Descriptor", descriptors[len(descriptors) // 2])


class SharedVectorMaker(VectorMaker):
    """Makes operands in shared memory, and further groups with other placements."""

    few = 2
    is_large = True

    @abstractmethod
    def placements(self) -> Iterator[TilePlacement]:
        """Yield the placements that the instruction can read."""

    def placement_groups(self) -> Iterator[VectorGroup]:
        """Yield a group of random operands for every placement."""
        for placement in self.placements():
            codes = self.finite_operands()
            if placement.saturate:
                ends = self.random.choice([-(2**31), 2**31 - 1], codes["c"].shape)
                codes["c"] = self.exact("c", ends.astype(np.int32))
            yield self.group(*self._explained(placement), codes, placement=placement)

    def _explained(self, placement: TilePlacement) -> tuple[str, str]:
        """Return the name of a placement's group, and the mistakes it catches."""
        if not placement.staged:
            return "registers", "A in the wrong warp, lane, register or slot"
        if placement.negate:
            return "negated", "a wrong sign of A: bit 13 of the instruction descriptor"
        if placement.saturate:
            return "saturated", "sums beyond s32 that do not clamp: bit 3 of the instruction descriptor"
        order = "MN-major" if placement.trans else "K-major"
        catches = "leading and stride byte offsets swapped, wrong swizzle bits, a missing transposition"
        name = f"{order}, {swizzle_text(placement.swizzle or 0)}"
        return name, f"wrong descriptors: {catches}, a start off by 16 bytes"


class WgmmaVectorMaker(SharedVectorMaker):
    """Makes operands of one wgmma, in registers and in shared memory."""

    def run(self, codes: Codes, choice: Immediates, placement: TilePlacement) -> tuple[Operands, Words, WgmmaCall]:
        """Store matrices of codes in registers and shared memory and run them; return operands, D and the call."""
        instruction = self.instruction
        words = {"c": instruction.c.pack(codes["c"], raw=True)}
        if "metadata" in codes:
            words["metadata"] = self.metadata_words("metadata", codes, choice)
        if not placement.staged:
            words["a"] = instruction.a.pack(codes["a"], raw=True)
        shared = np.zeros((len(codes["b"]), 0), np.uint8)
        descriptors = {"a": 0}
        for role in "ab" if placement.staged else "b":
            shared, descriptors[role] = self._stored(shared, role, codes[role], placement)
        words["shared"] = np.ascontiguousarray(shared).view(np.uint32)
        trans = (placement.staged and placement.trans, placement.trans)
        variant = Variant(placement.staged, trans, selector=choice.selector)
        call = WgmmaCall(variant, (descriptors["a"], descriptors["b"]))
        return words, run_wgmma_cases(instruction, call.stage(words), self.arch), call

    def _stored(
        self, shared: NDArray[np.uint8], role: str, codes: NDArray[Any], placement: TilePlacement
    ) -> tuple[NDArray[np.uint8], int]:
        """Append an operand to shared memory, among random bytes; return the memory and the descriptor."""
        operand: Operand = self.instruction.a if role == "a" else self.instruction.b
        start = -(-shared.shape[1] // SWIZZLE_PERIOD) * SWIZZLE_PERIOD
        descriptor = tile(operand, placement, operand.format.bits)
        descriptor = replace(descriptor, start=descriptor.start + start)
        memory = operand.memory(descriptor, trans=placement.trans)
        rows, cols = operand.shape
        size = -(-memory.size((rows, cols), operand.format.bits) // UNIT) * UNIT
        longer = self.random.integers(0, 256, (len(codes), size), np.uint8)
        longer[:, : shared.shape[1]] = shared
        return memory.write(longer, codes, operand.format.bits), descriptor.word

    def placements(self) -> Iterator[TilePlacement]:
        """Yield A in registers, and every order and swizzle."""
        yield TilePlacement(staged=False)
        for trans in (False, True) if can_transpose(self.instruction) else (False,):
            for swizzle in SWIZZLES:
                placement = TilePlacement(trans=trans, swizzle=swizzle)
                try:
                    for operand in (self.instruction.a, self.instruction.b):
                        tile(operand, placement, operand.format.bits)
                except InvalidOperand:
                    continue  # lines too short for this swizzle
                yield placement


class TensorVectorMaker(SharedVectorMaker):
    """Makes the shared and tensor memory of one tcgen05.mma."""

    @property
    def mma(self) -> TensorMma:
        """The instruction."""
        return cast("TensorMma", self.instruction)

    def run(self, codes: Codes, choice: Immediates, placement: TilePlacement) -> tuple[Operands, Words, TensorCall]:
        """Store matrices of codes in shared and tensor memory and run them; return operands, D and the call."""
        mma = self.mma
        words: Operands = {}
        descriptors = []
        for axis, (role, part) in enumerate(zip("ab", shared_parts(mma.form), strict=True)):
            descriptor = tile(part, placement, part.stored_bits)
            halves = np.stack(np.split(codes[role], 2, axis - 2), axis=1) if mma.blocks == 2 else codes[role]
            memory = part.store(halves, descriptor, trans=placement.trans, raw=True).memory
            padding = [(0, 0)] * (memory.ndim - 1) + [(0, -memory.shape[-1] % UNIT)]
            words[role] = np.ascontiguousarray(np.pad(memory, padding)).view(np.uint32)
            descriptors.append(descriptor.word)
        words["c"] = self._tensor_memory(codes, choice)
        call = TensorCall((descriptors[0], descriptors[1]), self._instruction_descriptor(placement, choice).word)
        return words, run_images(mma.form, words, self.arch, call), call

    def _tensor_memory(self, codes: Codes, choice: Immediates) -> Words:
        """Return the columns of D, metadata and scale factors."""
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

    def _instruction_descriptor(self, placement: TilePlacement, choice: Immediates) -> InstructionDescriptor:
        fields: dict[str, Any] = {"transpose_a": placement.trans, "transpose_b": placement.trans}
        fields |= {"negate_a": placement.negate, "saturate": placement.saturate, "selector": choice.selector}
        fields |= {"scale_a_id": choice.byte_id[0], "scale_b_id": choice.byte_id[1]}
        return self.mma.descriptor(**{name: entry for name, entry in fields.items() if entry})

    def placements(self) -> Iterator[TilePlacement]:
        """Yield every order and swizzle that the types allow, a negated A, and saturation."""
        mma = self.mma
        orders = (False,) if mma.form.kind == "tf32" else (False, True)  # transposed tf32 swizzles are undocumented
        placements = [TilePlacement(trans=trans, swizzle=swizzle) for trans in orders for swizzle in SWIZZLES]
        if mma.a.format.is_float:
            placements.append(TilePlacement(negate=True))
        elif mma.form.kind == "i8":
            placements.append(TilePlacement(saturate=True))
        for placement in placements:
            try:
                problems = [
                    *(
                        problem
                        for part in shared_parts(mma.form)
                        for problem in tile(part, placement, part.stored_bits).problems(part, trans=placement.trans)
                    ),
                    *self._instruction_descriptor(placement, DEFAULT_IMMEDIATES).problems(mma),
                ]
            except InvalidOperand:
                continue  # lines too short for this swizzle
            if not problems:
                yield placement


MAKERS: dict[str, type[VectorMaker]] = {
    "warp": VectorMaker,
    "warpgroup": WgmmaVectorMaker,
    "block": TensorVectorMaker,
}


def vector_groups(instruction: Instruction, arch: str, seed: int) -> Iterator[VectorGroup]:
    """Yield every group of an instruction."""
    maker = MAKERS[instruction.form.operation.scope](instruction, arch, seed)
    yield from common_groups(maker)
    if isinstance(maker, SharedVectorMaker):
        yield from maker.placement_groups()


SCHEMA = 2


def test_vectors(
    instruction: str | Instruction,
    *,
    arch: str = "sm_90",  # noqa: PT028 (not a test)
    seed: int = 1,  # noqa: PT028
) -> VectorSet:
    """Return test vectors of a matrix multiplication on an architecture; equal seeds give equal vectors.

    Raises InvalidOperand if the instruction does not multiply, IllegalInstruction if the architecture does not have
    it, NotModelled if its result is unknown.
    """
    number = check_seed(seed)
    mma = get(instruction)
    arch = read_target(arch, mma.name, "arch").name
    check_multiplies(mma, "test vectors exist for")
    if mma.form.operation.fragments == "measured":  # wmma fragments differ by architecture
        mma = get(mma, target=arch)
    return VectorSet(mma, arch, tuple(vector_groups(mma, arch, number)))


def check_multiplies(instruction: Instruction, purpose: str) -> None:
    """Reject an instruction that does not multiply; `purpose` begins the list of instructions that do."""
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
    """Return the seed; reject seeds that numpy does not take."""
    try:
        number = -1 if isinstance(seed, bool) else operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise InvalidOperand(f"seed is an integer, at least 0, got {quote(seed)}")
    return number


@dataclass(frozen=True, eq=False)
class VectorSet:
    """The test vectors of one instruction, with the arithmetic of one architecture."""

    instruction: Instruction
    arch: str
    groups: tuple[VectorGroup, ...]

    def __repr__(self) -> str:
        """Summarize the set."""
        return f"<VectorSet of {self.instruction.name} on {self.arch}: {self.cases} cases in {len(self.groups)} groups>"

    @property
    def cases(self) -> int:
        """The number of cases in all groups."""
        return sum(group.cases for group in self.groups)

    def __getitem__(self, name: str) -> VectorGroup:
        """Return the group with a name."""
        by_name = {group.name: group for group in self.groups}
        if not isinstance(name, str) or name not in by_name:
            raise InvalidOperand(f"group is one of {', '.join(by_name)}; got {quote(name)}")
        return by_name[name]

    def save(self, path: str | PathLike[str]) -> None:
        """Write an npz archive: each array as `group/role`, and `about`, the description of the set as JSON."""
        arrays = {f"{group.name}/{role}": words for group in self.groups for role, words in group.registers.items()}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, about=np.array(json.dumps(self.to_dict())), **arrays)
        write_atomically(check_output(path), buffer.getvalue())

    def to_dict(self) -> dict[str, Any]:
        """Describe the set without its arrays."""
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
    """Return the path; reject one that is no .npz or cannot be written."""
    try:
        output = Path(path)
    except TypeError:
        raise InvalidOperand(f"expected the path of a file, got {quote(path)}") from None
    if output.suffix != ".npz":
        raise InvalidOperand(f"test vectors are written as .npz, got {quote(output.name)}")
    check_writable(output)
    return output
