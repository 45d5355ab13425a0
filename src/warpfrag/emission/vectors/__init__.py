"""Test vectors: registers in, registers out, chosen so that mistakes show.

    >>> from warpfrag.emission.vectors import vectors
    >>> found = vectors("mma.m16n8k16.f32.f16.f16.f32", arch="sm_90")
    >>> [group.name for group in found.groups]
    ['positions', 'random', 'one hot a', 'one hot b', 'rounding', 'special', 'overflow']
    >>> all(found.self_check().values())
    True

Every group says which mistakes it catches. `self_check` makes every simple mistake in the layout and sees that the
vectors notice.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from warpfrag.catalog.registry import get
from warpfrag.errors import InvalidOperand, quote
from warpfrag.isa.targets import read_target

if TYPE_CHECKING:
    from warpfrag.catalog.instruction import Instruction
    from warpfrag.emission.vectors.sets import VectorSet


def vectors(instruction: str | Instruction, *, arch: str = "sm_90", seed: int = 1) -> VectorSet:
    """The test vectors of a product, with the arithmetic of an architecture; the same seed gives the same ones.

    InvalidOperand for what computes nothing, IllegalInstruction for what does not run there, NotModelled where nobody
    knows what comes out.
    """
    from warpfrag.emission.vectors.groups import groups
    from warpfrag.emission.vectors.material import Material
    from warpfrag.emission.vectors.sets import VectorSet

    number = check_seed(seed)
    found = get(instruction)
    arch = read_target(arch, found.name, "arch").name
    check_product(found, "vectors are made for")
    if found.form.is_warpgroup:
        from warpfrag.emission.vectors.warpgroups import WarpgroupMaterial, warpgroup_groups

        material = WarpgroupMaterial(found, arch, number)
        return VectorSet(found, arch, (*groups(material), *warpgroup_groups(material)))
    if found.form.is_wmma:
        found = get(found, target=arch)
    return VectorSet(found, arch, tuple(groups(Material(found, arch, number))))


def check_product(instruction: Instruction, purpose: str) -> None:
    """Refuse an instruction that only moves; `purpose` begins the sentence about those that do not."""
    if not instruction.form.is_product:
        msg = f"{instruction.name} moves registers and computes nothing: {purpose} mma, mma.sp, wmma.mma and wgmma"
        raise InvalidOperand(msg)


def check_seed(seed: int) -> int:
    """The seed; refused where numpy would not take it."""
    try:
        number = -1 if isinstance(seed, bool) else operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        msg = f"seed is an integer, at least 0, got {quote(seed)}"
        raise InvalidOperand(msg)
    return number
