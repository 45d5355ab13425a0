"""The tcgen05 instruction classes: mma, loads, stores, copies, shifts and allocation."""

# mypy: disable-error-code="override,assignment"

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from warpfrag.errors import IllegalInstruction
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.isa.tmem_layouts import copied
from warpfrag.layout.linear_layout import Layout
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.instruction_descriptor import InstructionDescriptor
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand, Operands, operands_of
from warpfrag.tensorcore.shared_operand import Shared
from warpfrag.tensorcore.tensor_operand import TensorMetadata, TensorOperand, TensorScale, missing_shape

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from warpfrag.formats.arrays import Words


class TensorInstruction(Instruction):
    """A tcgen05 instruction. Its PTX name, `ptx`, omits the shape and types of an mma; `name` has them."""

    form: TensorForm

    @property
    def ptx(self) -> str:
        """The PTX name, which omits shape and types."""
        return self.form.spelling.name

    @property
    def blocks(self) -> int:
        """The number of blocks that execute the instruction together: 1, or 2 for a pair."""
        return self.form.blocks


class TensorMma(TensorInstruction):
    """An mma with D in tensor memory; without shape and types it is only a spelling and has no operands."""

    if TYPE_CHECKING:
        a: TensorOperand
        b: Operand
        c: TensorOperand
        d: TensorOperand
        metadata: TensorMetadata
        scale_a: TensorScale
        scale_b: TensorScale

    @cached_property
    def operands(self) -> Operands:
        """Every operand by role: D and possibly A in tensor memory, B in shared memory."""
        if not self.shape.m:
            raise missing_shape(self.form, "an operand")
        return operands_of(self.form, "")

    def descriptor(self, **options: Any) -> InstructionDescriptor:  # noqa: ANN401 (fields of the word)
        """Return the instruction descriptor; `options` are fields that the name lacks, such as transpose_b=True."""
        return InstructionDescriptor.of(self, **options)

    def execute(
        self,
        tensor_memory: ArrayLike,
        a: Shared | Descriptor | int | None,
        b: Shared | Descriptor | int,
        *,
        shared: ArrayLike | None = None,
        accumulate: bool = True,
        at: Mapping[str, int] | None = None,
        idesc: InstructionDescriptor | int | None = None,
        arch: str = "sm_100",
        threads: int | None = None,
    ) -> Words:
        """Return tensor memory after the mma: uint32[..., 128, columns], or [..., 2, 128, columns] for a pair.

        `a` and `b` are `Shared` tiles, or descriptors that address the bytes of `shared` (for a pair, uint8[..., 2,
        bytes]). With a=None, A is in tensor memory. `at` maps d (default 0), a, scale_a, scale_b and metadata to their
        first columns in tensor memory. `idesc` has the transpose, negate and saturate flags, the selector and the
        scale ids. Raises NotModelled if the result is unknown.
        """
        from warpfrag.tensorcore.execute_tcgen05 import TensorProduct, check_tensor_memory

        if not self.shape.m:
            raise missing_shape(self.form, "the result")
        word = InstructionDescriptor.decode(idesc, kind=self.form.kind) if isinstance(idesc, int) else idesc
        columns = {} if at is None else at
        others = {role: column for role, column in at.items() if role != "d"} if isinstance(at, Mapping) else columns
        address = at.get("d", 0) if isinstance(at, Mapping) else 0
        product = TensorProduct(self.form, arch, address, others, word)
        memory = check_tensor_memory(tensor_memory, self.blocks)
        return product.run(memory, a, b, shared, accumulate=accumulate, threads=threads)


class TensorLoad(TensorInstruction):
    """A load of tensor-memory columns into registers."""

    def execute(self, tensor_memory: ArrayLike, address: int = 0) -> Words | tuple[Words, Words]:
        """Return the registers of four warps, uint32[..., 4, 32, regs]; for ld.red, also the reduction of each lane."""
        from warpfrag.tensorcore.execute_tcgen05 import load

        return cast("Words | tuple[Words, Words]", load(self.form.spelling, tensor_memory, address))


class TensorStore(TensorInstruction):
    """A store of registers to tensor-memory columns."""

    def execute(self, tensor_memory: ArrayLike, address: int, words: ArrayLike) -> Words:
        """Return tensor memory after the store; `words` are the registers of four warps, uint32[..., 4, 32, regs]."""
        from warpfrag.tensorcore.execute_tcgen05 import store

        return store(self.form.spelling, tensor_memory, address, words)


class TensorMemoryCopy(TensorInstruction):
    """A copy from shared memory to tensor memory."""

    @property
    def layout(self) -> Layout:
        """The layout of the copy, from (lane, column) to the source's (row, word)."""
        return copied(self.form.spelling)

    def execute(self, tensor_memory: ArrayLike, address: int, source: Descriptor | int, *, shared: ArrayLike) -> Words:
        """Return tensor memory after the copy; `source` is a descriptor for the bytes of `shared`."""
        from warpfrag.tensorcore.execute_tcgen05 import copy

        return copy(self.form.spelling, tensor_memory, address, source, shared)


class TensorShift(TensorInstruction):
    """A shift of tensor-memory columns by one lane."""

    def execute(self, tensor_memory: ArrayLike, address: int = 0) -> Words:
        """Return tensor memory after the shift, which moves 8 columns down by one lane in each group of 32 lanes."""
        from warpfrag.tensorcore.execute_tcgen05 import shift

        return shift(self.form.spelling, tensor_memory, address)


class TensorControl(TensorInstruction):
    """An instruction that allocates tensor memory or synchronizes."""

    def execute(self, *operands: object, **options: object) -> object:
        """Raise an error, because the instruction computes nothing."""
        del operands, options
        raise IllegalInstruction(self.name, "it allocates or synchronizes, and computes nothing")


CLASSES = {"mma": TensorMma, "ld": TensorLoad, "st": TensorStore, "cp": TensorMemoryCopy, "shift": TensorShift}


def tensor_class(form: TensorForm) -> type[TensorInstruction]:
    """Return the instruction class for a form."""
    return CLASSES.get(form.spelling.op.split(".")[0], TensorControl)
