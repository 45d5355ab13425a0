"""Test vectors: operand registers and the expected result registers, chosen to expose mistakes.

    >>> from warpfrag.codegen.vectors import test_vectors
    >>> vector_set = test_vectors("mma.m16n8k16.f32.f16.f16.f32", arch="sm_90")
    >>> [group.name for group in vector_set.groups]
    ['positions', 'random', 'one hot a', 'one hot b', 'rounding', 'special', 'overflow']

`group.catches` names the mistakes that a group exposes. The raw kernels of `emit(..., kernels=True)` take these arrays.

wgmma and tcgen05 read A and B from shared memory, K-major and without gaps; wgmma has another group with A in
registers.
"""

from __future__ import annotations

import io
import json
import operator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from warpfrag.codegen.statement import SWIZZLE_PERIOD
from warpfrag.codegen.vector_groups import Codes, Operands, VectorGroup, VectorMaker, Words, common_groups
from warpfrag.errors import InvalidOperand, quote
from warpfrag.files import check_writable, write_atomically
from warpfrag.isa.immediates import Immediates
from warpfrag.isa.targets import read_target
from warpfrag.tensorcore.execute_wgmma import run_wgmma_cases
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.tcgen05_types import TensorMma
from warpfrag.tensorcore.tensor_images import TensorCall, image_columns, run_images, shared_parts
from warpfrag.tensorcore.wgmma_call import Variant, WgmmaCall

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
        start = -(-shared.shape[1] // SWIZZLE_PERIOD) * SWIZZLE_PERIOD
        descriptor = operand.descriptors()[0].moved(start)
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
