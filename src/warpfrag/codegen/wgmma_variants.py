"""The variants of a wgmma, for both languages: what its immediates fix, the names of its kernels, its statement.

Around it stand `wgmma.fence`, after which it sees what was written to its registers, `wgmma.commit_group`, which makes
one group of the products so far, and `wgmma.wait_group 0`, which waits for all groups.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from warpfrag.codegen.ptx_builder import vector
from warpfrag.codegen.staging import Stage
from warpfrag.codegen.statement import identifier
from warpfrag.errors import InvalidOperand
from warpfrag.isa.immediates import legal
from warpfrag.smem.descriptor import TURNABLE
from warpfrag.tensorcore.wgmma_call import USUAL, Variant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import Registers

THREADS = 128
TILE_ROLES = ("d", "a", "b", "c", "metadata")
FENCE = "wgmma.fence.sync.aligned;"
COMMIT = "wgmma.commit_group.sync.aligned;"
WAIT = "wgmma.wait_group.sync.aligned {};"
PROXY_FENCE = "fence.proxy.async;"  # what threads wrote into shared memory is seen by wgmma after this
SWIZZLE_PERIOD = 1024  # bytes after which every swizzle repeats: shared memory starts at a multiple of it
PAIRS: tuple[tuple[bool, bool], ...] = ((False, False), (False, True), (True, False), (True, True))


def check(instruction: Instruction, variant: Variant) -> None:
    """Refuse a variant that the instruction does not have."""
    if any(variant.trans) and not can_transpose(instruction):
        msg = f"{instruction.name}: only 16-bit types can be MN-major, got {variant}"
        raise InvalidOperand(msg)
    if variant.trans[0] and not variant.staged:
        msg = f"{instruction.name}: A in registers cannot be MN-major, got {variant}"
        raise InvalidOperand(msg)
    if any(variant.negate) and not instruction.a.format.is_float:
        msg = f"{instruction.name}: only floats can be negated, got {variant}"
        raise InvalidOperand(msg)
    if variant.selector not in selectors(instruction):
        msg = f"{instruction.name} has the selectors {[*selectors(instruction)]}, got {variant}"
        raise InvalidOperand(msg)


def is_sparse(instruction: Instruction) -> bool:
    """Whether it takes a metadata register and a selector."""
    return "metadata" in instruction.operands


def can_transpose(instruction: Instruction) -> bool:
    """Whether A and B in shared memory may be MN-major."""
    return instruction.a.format.bits == TURNABLE


def selectors(instruction: Instruction) -> range:
    """The sparsity selectors; 0 alone where dense."""
    return legal(instruction.metadata.layout, "selector") if is_sparse(instruction) else range(1)


def variants(instruction: Instruction) -> Iterator[Variant]:
    """Every variant of a wgmma."""
    for staged, trans, negate in product((True, False), PAIRS, PAIRS):
        if any(trans) and (not can_transpose(instruction) or (trans[0] and not staged)):
            continue
        if any(negate) and not instruction.a.format.is_float:
            continue
        for selector in selectors(instruction):
            yield Variant(staged, trans, negate, selector)


def kernel_variants(instruction: Instruction) -> Iterator[Variant]:
    """The variants that have kernels in emitted code: A in each place, each order in memory and selector, no signs."""
    for variant in variants(instruction):
        if not any(variant.negate) and variant.trans in {(False, False), (variant.staged, True)}:
            yield variant


def stages(instruction: Instruction) -> Iterator[Stage]:
    """How A and B can be laid out in shared memory: K-major, and MN-major where the instruction reads that."""
    for operand in (instruction.a, instruction.b):
        for trans in (False, True) if can_transpose(instruction) else (False,):
            yield Stage(operand, trans)


def tile_operands(instruction: Instruction) -> dict[str, Registers]:
    """The matrices of a tile kernel, in the order of its parameters."""
    return {role: instruction.operands[role] for role in TILE_ROLES if role in instruction.operands}


def immediate_names(instruction: Instruction, *, staged: bool) -> list[str]:
    """What the immediates are called, in the order of the template: selector, signs, transpositions."""
    names = ["selector"] if is_sparse(instruction) else []
    names += ["scale_a", "scale_b"] if instruction.a.format.is_float else []
    if can_transpose(instruction):
        names += ["trans_a", "trans_b"] if staged else ["trans_b"]
    return names


def raw_name(instruction: Instruction, variant: Variant = USUAL) -> str:
    """The kernel from registers and bytes of shared memory to registers."""
    return f"{identifier(instruction)}{variant.suffix(sparse=is_sparse(instruction))}_raw"


def tile_name(instruction: Instruction, variant: Variant = USUAL) -> str:
    """The kernel of one tile from memory to memory."""
    return f"{identifier(instruction)}{variant.suffix(sparse=is_sparse(instruction))}_tile"


def immediates(instruction: Instruction, variant: Variant) -> list[str]:
    """What stands behind scale-d: signs of floats, transpositions of 16-bit types."""
    numbers = [-1 if negate else 1 for negate in variant.negate] if instruction.a.format.is_float else []
    if can_transpose(instruction):
        numbers += [int(is_transposed) for is_transposed in variant.trans[0 if variant.staged else 1 :]]
    return [str(number) for number in numbers]


def statement(
    instruction: Instruction,
    d: Sequence[str],
    a: Sequence[str] | str,
    b: str,
    scale_d: str,
    immediates: Sequence[str],
    metadata: Sequence[str] = (),
) -> str:
    """The instruction with its operands; `a` is a descriptor or registers, `metadata` the word and the selector."""
    operands = [vector(d), a if isinstance(a, str) else vector(a), b, *metadata, scale_d, *immediates]
    return f"{instruction.name} {', '.join(operands)};"
