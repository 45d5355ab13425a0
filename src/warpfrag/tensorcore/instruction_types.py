"""The kinds of instructions: a class for each, whose `execute` takes what that kind takes and nothing else.

`KINDS` says which class an instruction has. To add a kind: a class here, and a row of `KINDS`.
"""

# mypy: disable-error-code="override"
# A name decides at run time which kind `get` returns, so `Instruction.execute` is the union of the signatures here.

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from warpfrag.isa.immediates import Immediates
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.tensorcore.instruction import Instruction, interned

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from warpfrag.formats.arrays import Bytes, Words
    from warpfrag.isa.qualifiers import Form
    from warpfrag.smem.descriptor import Descriptor
    from warpfrag.tensorcore.shared_operand import Shared


@cache
def _multiply_registers() -> Callable[..., Words]:
    """`execution.mma.multiply`, imported when it is first used (a look-up needs no numpy) and then at no cost."""
    from warpfrag.tensorcore.execute_mma import multiply

    return multiply


class Mma(Instruction):
    """A dense product of one warp: mma, and wmma.mma with the fragments that were measured."""

    def execute(
        self,
        a: ArrayLike,
        b: ArrayLike,
        c: ArrayLike | None = None,
        *,
        arch: str = "sm_90",
        threads: int | None = None,
    ) -> Words:
        """D's registers, uint32[..., 32, words], bit for bit as `arch` computes them.

        `a`, `b` and `c` are registers uint32[..., 32, words]; leading axes are a batch and broadcast, c=None is zero.
        `threads` is how many cores to use. IllegalInstruction if `arch` cannot run it, NotModelled if nobody knows
        what that architecture computes.
        """
        return _multiply_registers()(self.form, arch, a, b, c, threads=threads)


class SparseMma(Instruction):
    """A product of one warp whose A is stored without half of its elements: mma.sp."""

    def execute(
        self,
        a: ArrayLike,
        b: ArrayLike,
        c: ArrayLike | None = None,
        *,
        metadata: ArrayLike,
        selector: int = 0,
        arch: str = "sm_90",
        threads: int | None = None,
    ) -> Words:
        """D's registers, uint32[..., 32, words], as `Mma.execute` gives them, for the stored half of A.

        `metadata` is a word per lane, uint32[..., 32]; `selector` says which lanes are read, and only what they hold
        is checked.
        """
        words, immediates = {"metadata": metadata}, Immediates(selector)
        return _multiply_registers()(self.form, arch, a, b, c, words=words, immediates=immediates, threads=threads)


class BlockScaledMma(Instruction):
    """A product of one warp whose A and B have scale factors: mma with block_scale."""

    def execute(
        self,
        a: ArrayLike,
        b: ArrayLike,
        c: ArrayLike | None = None,
        *,
        scale_a: ArrayLike,
        scale_b: ArrayLike,
        byte_id: tuple[int, int] = (0, 0),
        thread_id: tuple[int, int] = (0, 0),
        arch: str = "sm_90",
        threads: int | None = None,
    ) -> Words:
        """D's registers, uint32[..., 32, words], as `Mma.execute` gives them, of scaled A and B.

        `scale_a` and `scale_b` are a word per lane, uint32[..., 32]; the pairs `byte_id` and `thread_id`, for A and
        for B, select the bytes and lanes that are read.
        """
        words, immediates = {"scale_a": scale_a, "scale_b": scale_b}, Immediates(0, byte_id, thread_id)
        return _multiply_registers()(self.form, arch, a, b, c, words=words, immediates=immediates, threads=threads)


class SparseBlockScaledMma(Instruction):
    """A product of one warp with a sparse A and scale factors: mma.sp with block_scale."""

    def execute(
        self,
        a: ArrayLike,
        b: ArrayLike,
        c: ArrayLike | None = None,
        *,
        metadata: ArrayLike,
        selector: int = 0,
        scale_a: ArrayLike,
        scale_b: ArrayLike,
        byte_id: tuple[int, int] = (0, 0),
        thread_id: tuple[int, int] = (0, 0),
        arch: str = "sm_90",
        threads: int | None = None,
    ) -> Words:
        """D's registers, uint32[..., 32, words]: with metadata as of `SparseMma`, scales as of `BlockScaledMma`."""
        words = {"metadata": metadata, "scale_a": scale_a, "scale_b": scale_b}
        immediates = Immediates(selector, byte_id, thread_id)
        return _multiply_registers()(self.form, arch, a, b, c, words=words, immediates=immediates, threads=threads)


class Wgmma(Instruction):
    """A dense product of a warpgroup, with B in shared memory: wgmma.mma_async."""

    def execute(
        self,
        a: ArrayLike | Shared | Descriptor | int,
        b: Shared | Descriptor | int,
        c: ArrayLike | None = None,
        *,
        shared: ArrayLike | None = None,
        trans: tuple[bool, bool] = (False, False),
        negate: tuple[bool, bool] = (False, False),
        scale_d: bool = True,
        arch: str = "sm_90",
        threads: int | None = None,
    ) -> Words:
        """D's registers, uint32[..., 4, 32, words], bit for bit as `arch` computes them.

        `b`, and perhaps `a`, is a `Shared` tile, or a descriptor over the bytes of `shared`; else `a` has registers,
        uint32[..., 4, 32, words]. The pairs are for A and B: `trans` says which descriptor is MN-major, `negate`
        which operand changes its sign. Without `scale_d` C is not read; c=None is zero.
        """
        from warpfrag.tensorcore.execute_wgmma import multiply

        return multiply(
            self.form,
            arch,
            a,
            b,
            c,
            shared=shared,
            trans=trans,
            negate=negate,
            scale_d=scale_d,
            threads=threads,
        )


class SparseWgmma(Instruction):
    """A product of a warpgroup with a sparse A: wgmma.mma_async.sp."""

    def execute(
        self,
        a: ArrayLike | Shared | Descriptor | int,
        b: Shared | Descriptor | int,
        c: ArrayLike | None = None,
        *,
        metadata: ArrayLike,
        selector: int = 0,
        shared: ArrayLike | None = None,
        trans: tuple[bool, bool] = (False, False),
        negate: tuple[bool, bool] = (False, False),
        scale_d: bool = True,
        arch: str = "sm_90",
        threads: int | None = None,
    ) -> Words:
        """D's registers, uint32[..., 4, 32, words], as `Wgmma.execute` gives them, for the stored half of A.

        `metadata` is a word per lane, uint32[..., 4, 32]; `selector` says which lanes are read.
        """
        from warpfrag.tensorcore.execute_wgmma import multiply

        return multiply(
            self.form,
            arch,
            a,
            b,
            c,
            metadata=metadata,
            selector=selector,
            shared=shared,
            trans=trans,
            negate=negate,
            scale_d=scale_d,
            threads=threads,
        )


class Ldmatrix(Instruction):
    """Matrices from shared memory to registers."""

    def execute(self, addresses: ArrayLike, *, shared: ArrayLike) -> Words:
        """The registers, uint32[..., 32, words], filled from the bytes of `shared`, uint8[bytes].

        `addresses` int[..., 32] has the byte at which each lane's row begins; lanes that name no row are not looked at.
        """
        from warpfrag.tensorcore.matrix_moves import load

        return load(self.form, addresses, shared)


class Stmatrix(Instruction):
    """Matrices from registers to shared memory."""

    def execute(self, addresses: ArrayLike, words: ArrayLike, *, shared: ArrayLike) -> Bytes:
        """The memory after it, uint8[bytes]; the one passed as `shared` is not changed.

        `addresses` int[..., 32] has the byte at which each lane's row begins, `words` the registers
        uint32[..., 32, words].
        """
        from warpfrag.tensorcore.matrix_moves import store

        return store(self.form, addresses, self.a.check_words(words), shared)


class Movmatrix(Instruction):
    """A matrix transposed from registers to registers."""

    def execute(self, words: ArrayLike) -> Words:
        """The registers of the transposed matrix, uint32[..., 32, 1]."""
        from warpfrag.tensorcore.matrix_moves import move

        return move(self.form, self.a.check_words(words))


class WmmaMemory(Instruction):
    """wmma.load and wmma.store: fragments between memory and registers. `wf.wmma` runs them; `execute` refuses."""


KINDS: dict[str, type[Instruction]] = {
    "mma": Mma,
    "mma.sp": SparseMma,
    "mma.sp::ordered_metadata": SparseMma,
    "wmma.mma": Mma,
    "wmma.load.a": WmmaMemory,
    "wmma.load.b": WmmaMemory,
    "wmma.load.c": WmmaMemory,
    "wmma.store.d": WmmaMemory,
    "wgmma.mma_async": Wgmma,
    "wgmma.mma_async.sp": SparseWgmma,
    "ldmatrix": Ldmatrix,
    "stmatrix": Stmatrix,
    "movmatrix": Movmatrix,
}
BLOCK_SCALED: dict[type[Instruction], type[Instruction]] = {Mma: BlockScaledMma, SparseMma: SparseBlockScaledMma}


def instruction_of(form: Form, arch: str) -> Instruction:
    """The one object that stands for a form with the wmma fragments of an architecture, of the kind that it is."""
    if isinstance(form, TensorForm):
        from warpfrag.tensorcore.tcgen05_types import tensor_kind

        return interned(tensor_kind(form), form, "")
    kind = KINDS[form.op]
    return interned(BLOCK_SCALED[kind] if form.block_scale else kind, form, arch)
