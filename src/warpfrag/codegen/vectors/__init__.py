"""Test vectors: registers in, registers out, chosen so that mistakes show.

    >>> from warpfrag.codegen.vectors import vectors
    >>> vector_set = vectors("mma.m16n8k16.f32.f16.f16.f32", arch="sm_90")
    >>> [group.name for group in vector_set.groups]
    ['positions', 'random', 'one hot a', 'one hot b', 'rounding', 'special', 'overflow']
    >>> all(vector_set.self_check().values())
    True

Every group says which mistakes it catches. `self_check` makes every simple mistake in the layout and sees that the
vectors notice.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from warpfrag.errors import InvalidOperand, quote
from warpfrag.isa.targets import read_target
from warpfrag.tensorcore.registry import get

if TYPE_CHECKING:
    from warpfrag.codegen.vectors.vector_sets import VectorSet
    from warpfrag.tensorcore.instruction import Instruction


def vectors(instruction: str | Instruction, *, arch: str = "sm_90", seed: int = 1) -> VectorSet:
    """The test vectors of a product, with the arithmetic of an architecture; the same seed gives the same ones.

    InvalidOperand for what computes nothing, IllegalInstruction for what does not run there, NotModelled where
    the result is not modelled.
    """
    from warpfrag.codegen.vectors.vector_sets import SCOPES, VectorSet

    number = check_seed(seed)
    product = get(instruction)
    arch = read_target(arch, product.name, "arch").name
    check_product(product, "vectors are made for")
    if product.form.operation.fragments == "measured":  # they differ by architecture
        product = get(product, target=arch)
    return VectorSet(product, arch, tuple(SCOPES[product.form.operation.scope].groups(product, arch, number)))


def check_product(instruction: Instruction, purpose: str) -> None:
    """Refuse an instruction that only moves; `purpose` begins the sentence about those that do not."""
    if instruction.form.operation.does == "multiply" and not instruction.shape.m:
        example = "m=128, n=64, a='f16', d='f32'"
        msg = f"{instruction.name} has no shape: {purpose} products of a shape and types; get it with {example}"
        raise InvalidOperand(msg)
    if instruction.form.operation.does != "multiply":
        what = "moves registers and " if instruction.form.operation.scope != "block" else ""
        msg = f"{instruction.name} {what}computes nothing: {purpose} mma, mma.sp, wmma.mma, wgmma and tcgen05.mma"
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
