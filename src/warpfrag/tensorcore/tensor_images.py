"""Memory images: the memories of one tcgen05.mma as arrays of 32-bit words, for GPU kernels and captures.

    a, b    uint32[words]             the bytes of A and B in shared memory, as their first descriptors read them
    c       uint32[128, columns]      tensor memory before the mma: D, then metadata and scale factors, if any
    d       uint32[128, columns]      the columns of D after the mma

For a pair of blocks every image has a leading axis of two; axes before that are a batch. `codegen.emit_tcgen05` writes
the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, cast

import numpy as np

from warpfrag.formats.arrays import Words
from warpfrag.isa.instruction_table import able_architectures
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.instruction_descriptor import InstructionDescriptor
from warpfrag.tensorcore.execute_tcgen05 import TensorProduct, half
from warpfrag.tensorcore.operand import operands_of
from warpfrag.tensorcore.shared_operand import Shared
from warpfrag.tensorcore.tensor_operand import InTensorShared

IN_TENSOR_MEMORY = ("metadata", "scale_a", "scale_b")


def tensor_operands(form: TensorForm) -> Mapping[str, Any]:
    """Return the operands of an mma by role; they are the same on every architecture."""
    return operands_of(form, able_architectures(form)[0])


def image_columns(form: TensorForm) -> dict[str, int]:
    """Return the first column of each operand in the tensor-memory image, D first; `end` is the number of columns."""
    operands = tensor_operands(form)
    places, end = {"d": 0}, operands["d"].columns
    for role in IN_TENSOR_MEMORY:
        if role in operands:
            places[role] = end = end + end % 2  # metadata must start at an even column
            end += operands[role].columns
    return places | {"end": end}


def shared_parts(form: TensorForm) -> tuple[InTensorShared, InTensorShared]:
    """Return the A and B operands that one block stores in shared memory; for a pair, these are halves."""
    operands = tensor_operands(form)
    a, b = operands["a"], operands["b"]
    return (a, b) if form.blocks == 1 else (half(a, 0), half(b, 1))


def usual_call(form: TensorForm) -> TensorCall:
    """Return the first descriptors of A and B, and the default instruction descriptor."""
    a, b = (part.descriptors()[0].word for part in shared_parts(form))
    return TensorCall((a, b), TensorProduct(form, "").word.word)


def run_images(form: TensorForm, images: Mapping[str, Words], arch: str, call: TensorCall | None = None) -> Words:
    """Run an mma on memory images and return the image of D; raise NotModelled if the result is unknown."""
    places = image_columns(form)
    end = places.pop("end")
    at = {role: column for role, column in places.items() if role != "d"}
    chosen = usual_call(form) if call is None else call
    idesc = InstructionDescriptor.decode(chosen.idesc, kind=form.kind)
    a, b = (
        Shared(np.ascontiguousarray(images[role]).view(np.uint8), Descriptor.decode(word, kind="tcgen05"), is_turned)
        for role, word, is_turned in zip("ab", chosen.descriptors, (idesc.transpose_a, idesc.transpose_b), strict=True)
    )
    memory = np.ascontiguousarray(images["c"][..., :end])
    after = TensorProduct(form, arch, 0, at, idesc).run(memory, a, b, None, accumulate=True, threads=None)
    return cast("Words", np.ascontiguousarray(after[..., : tensor_operands(form)["d"].columns]))


class TensorCallRow(TypedDict):
    """A call as stored in a capture file, with numbers in hex."""

    descriptors: list[str]
    idesc: str


@dataclass(frozen=True)
class TensorCall:
    """The descriptors of A and B, relative to the start of their tiles, and the instruction descriptor, as integers."""

    descriptors: tuple[int, int]
    idesc: int

    @property
    def row(self) -> TensorCallRow:
        """The call as a row of a capture file."""
        return {"descriptors": [hex(word) for word in self.descriptors], "idesc": hex(self.idesc)}

    @classmethod
    def read(cls, row: TensorCallRow) -> TensorCall:
        """Parse a row of a capture file; raise an error if it is malformed."""
        a, b = (int(word, 16) for word in row["descriptors"])
        return cls((a, b), int(row["idesc"], 16))
