"""Instruction classes: one for each way to execute an instruction.

`CLASSES` maps operations to classes. To add one: a class here, and a row of `CLASSES`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, cast

from warpfrag.errors import InvalidOperand
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, Immediates
from warpfrag.isa.qualifiers import Form
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.tensorcore.instruction import Instruction, interned
from warpfrag.tensorcore.shared_operand import Shared

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from warpfrag.formats.arrays import Words
    from warpfrag.smem.descriptor import Descriptor


@cache
def _multiply_registers() -> Callable[..., Words]:
    """Import `execute_mma.multiply` on first use, since a look-up needs no numpy; later calls cost nothing."""
    from warpfrag.tensorcore.execute_mma import multiply

    return multiply


class Mma(Instruction):
    """mma, mma.sp and wmma.mma: D = A B + C of one warp, with a dense or sparse A, perhaps with scale factors."""

    def execute(
        self,
        a: ArrayLike | Shared | Descriptor | int,
        b: ArrayLike | Shared | Descriptor | int | None = None,
        c: ArrayLike | None = None,
        *,
        metadata: ArrayLike | None = None,
        scales: tuple[ArrayLike, ArrayLike] | None = None,
        immediates: Immediates = DEFAULT_IMMEDIATES,
        shared: ArrayLike | None = None,
        arch: str = "sm_90",
        threads: int | None = None,
    ) -> Words:
        """Return D's registers, uint32[..., 32, words], bit for bit as `arch` computes them.

        `a`, `b` and `c` are registers uint32[..., 32, words]; leading axes are a batch and broadcast, c=None is zero.
        A sparse instruction needs `metadata`, a block-scaled one `scales`, the words of A and of B: each uint32[...,
        32], one word per lane. `immediates` select the bytes and lanes that are read. `threads` limits the CPU cores.
        IllegalInstruction if `arch` cannot run it, NotModelled if nobody knows what that architecture computes.
        """
        if shared is not None:
            raise InvalidOperand(f"{self.name} takes no shared memory: its operands are registers")
        return _multiply_registers()(self.form, arch, a, b, c, metadata, scales, immediates, threads)


class Wgmma(Instruction):
    """wgmma.mma_async: D = A B + C of a warpgroup, with B in shared memory, and a dense or sparse A."""

    def execute(
        self,
        a: ArrayLike | Shared | Descriptor | int,
        b: ArrayLike | Shared | Descriptor | int | None = None,
        c: ArrayLike | None = None,
        *,
        metadata: ArrayLike | None = None,
        scales: tuple[ArrayLike, ArrayLike] | None = None,
        immediates: Immediates = DEFAULT_IMMEDIATES,
        shared: ArrayLike | None = None,
        arch: str = "sm_90",
        threads: int | None = None,
    ) -> Words:
        """Return D's registers, uint32[..., 4, 32, words], bit for bit as `arch` computes them.

        `b`, and perhaps `a`, is a `Shared` tile, or a descriptor over the bytes of `shared`; otherwise `a` is
        registers, uint32[..., 4, 32, words]. A sparse instruction needs `metadata`, uint32[..., 4, 32].
        """
        from warpfrag.tensorcore.execute_wgmma import multiply

        self._reject(scales=scales)
        return multiply(self.form, arch, a, cast("ArrayLike", b), c, metadata, immediates, shared, threads)


class MatrixMove(Instruction):
    """ldmatrix, stmatrix and movmatrix: 8 x 8 matrices between shared memory and registers, or transposed there."""

    def execute(
        self,
        a: ArrayLike | Shared | Descriptor | int,
        b: ArrayLike | Shared | Descriptor | int | None = None,
        c: ArrayLike | None = None,
        *,
        metadata: ArrayLike | None = None,
        scales: tuple[ArrayLike, ArrayLike] | None = None,
        immediates: Immediates = DEFAULT_IMMEDIATES,
        shared: ArrayLike | None = None,
        arch: str = "sm_90",
        threads: int | None = None,
    ) -> Words:
        """Return the registers, uint32[..., 32, words]; for stmatrix the memory after it, uint8[bytes].

        `a` has the address of each lane's row in `shared`, int[..., 32]; addresses of unused lanes are ignored.
        stmatrix also takes the registers to store as `b`. movmatrix takes registers only, as `a`.
        """
        from warpfrag.tensorcore import matrix_moves

        del arch, threads
        self._reject(c=c, metadata=metadata, scales=scales, immediates=immediates)
        operand = cast("ArrayLike", a)
        if self.op == "movmatrix":
            self._reject(b=b, shared=shared)
            return matrix_moves.move(self.form, self.a.check_words(operand))
        if shared is None:
            raise InvalidOperand(f"{self.name} needs shared=, the bytes of its memory")
        if self.op == "ldmatrix":
            self._reject(b=b)
            return matrix_moves.load(self.form, operand, shared)
        if b is None:
            raise InvalidOperand(f"{self.name} needs b, the registers to store")
        registers = self.a.check_words(cast("ArrayLike", b))
        return cast("Words", matrix_moves.store(self.form, operand, registers, shared))


CLASSES: dict[str, type[Instruction]] = {
    "mma": Mma,
    "mma.sp": Mma,
    "mma.sp::ordered_metadata": Mma,
    "wmma.mma": Mma,
    "wgmma.mma_async": Wgmma,
    "wgmma.mma_async.sp": Wgmma,
    "ldmatrix": MatrixMove,
    "stmatrix": MatrixMove,
    "movmatrix": MatrixMove,
}
"""The class of each operation; wmma.load and wmma.store are plain instructions."""


def instruction_of(form: Form, arch: str) -> Instruction:
    """Return the one object for a form, with the wmma fragments of an architecture."""
    if isinstance(form, TensorForm):
        from warpfrag.tensorcore.tcgen05_types import tensor_class

        return interned(tensor_class(form), form, "")
    return interned(CLASSES.get(form.op, Instruction), form, arch)
