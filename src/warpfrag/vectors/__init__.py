"""Test vectors: registers in, registers out, chosen so that mistakes show.

    >>> from warpfrag.vectors import vectors
    >>> found = vectors("mma.m16n8k16.f32.f16.f16.f32", arch="sm_90")
    >>> [group.name for group in found.groups]
    ['positions', 'random', 'one hot a', 'one hot b', 'rounding', 'special', 'overflow']
    >>> all(found.self_check().values())
    True

Every group says which mistakes it catches. `self_check` makes every simple mistake in the layout and sees that the
vectors notice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.errors import IllegalInstruction
from warpfrag.registry import get

if TYPE_CHECKING:
    from warpfrag.instruction import Instruction
    from warpfrag.vectors.sets import VectorSet


def vectors(instruction: str | Instruction, *, arch: str = "sm_90", seed: int = 1) -> VectorSet:
    """The test vectors of a product, with the arithmetic of an architecture; the same seed gives the same ones.

    IllegalInstruction for what computes nothing or does not run there, NotModelled where nobody knows what comes out.
    """
    from warpfrag.vectors.groups import groups
    from warpfrag.vectors.material import Material
    from warpfrag.vectors.sets import VectorSet

    found = get(instruction)
    if not found.form.is_product:
        raise IllegalInstruction(found.name, "it moves registers and computes nothing: vectors are made for products")
    if found.form.is_wmma:
        found = get(found, target=arch)
    return VectorSet(found, arch, tuple(groups(Material(found, arch, seed))))
