"""The names of an instruction's kernels, its immediates, and the statement that executes it, for both languages."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product

from warpfrag.codegen.ptx_builder import vector
from warpfrag.errors import InvalidOperand
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, SELECTED_BY, Immediates, immediates_after, legal, suffix_of
from warpfrag.isa.immediates import all_immediates as all_choices
from warpfrag.isa.legality import advice
from warpfrag.smem.descriptor import TURNABLE
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import OperandBase
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.wgmma_call import KernelVariant, Variant

# The order of operands in a statement; those that an instruction lacks are omitted.
ROLES = ("d", "a", "b", "c", "metadata", "scale_a", "scale_b")

# The operands of a data movement: a role stands for the vector of its registers, and d0 for the first register of d.
MOVE_OPERANDS = {
    "ldmatrix": "{d}, [{address}]",
    "stmatrix": "[{address}], {a}",
    "movmatrix": "{d0}, {a0}",
    "wmma.load.a": "{a}, [{address}], {stride}",
    "wmma.load.b": "{b}, [{address}], {stride}",
    "wmma.load.c": "{c}, [{address}], {stride}",
    "wmma.store.d": "[{address}], {d}, {stride}",
}


def identifier(instruction: Instruction) -> str:
    """Return a unique C++ and PTX identifier for an instruction: its name without .sync.aligned.

    >>> from warpfrag.tensorcore.registry import get
    >>> identifier(get("mma.m16n8k16.f32.f16.f16.f32"))
    'mma_m16n8k16_row_col_f32_f16_f16_f32'
    """
    return re.sub(r"[.:]+", "_", instruction.name.replace(".sync.aligned", ""))


def _suffix(instruction: Instruction, fixed: KernelVariant) -> str:
    if isinstance(fixed, Variant):
        return fixed.suffix(sparse=is_sparse(instruction))
    return suffix_of(fixed, instruction.operands)


def raw_name(instruction: Instruction, fixed: KernelVariant = DEFAULT_IMMEDIATES) -> str:
    """Return the name of the raw kernel with these immediates."""
    return f"{identifier(instruction)}{_suffix(instruction, fixed)}_raw"


def tile_name(instruction: Instruction, fixed: KernelVariant = DEFAULT_IMMEDIATES, order: str = "") -> str:
    """Return the name of a tile kernel; wmma has one for each memory order of C and D."""
    ending = f"_{order}" if order else ""
    return f"{identifier(instruction)}{_suffix(instruction, fixed)}_tile{ending}"


def shared_kernel_name(instruction: Instruction, orders: Mapping[str, str]) -> str:
    """Return the name of a tile kernel that uses shared memory, with the memory orders of A and B."""
    return f"{identifier(instruction)}_shared_{orders['a']}_{orders['b']}"


def choices(instruction: Instruction, *, ids: bool = False) -> Iterator[Immediates]:
    """Yield every selector and, with `ids`, every byte and thread id."""
    return all_choices(instruction.operands.selected_layouts, ids=ids)


def registers(instruction: Instruction) -> dict[str, OperandBase]:
    """Return the register operands by role, in the order of the statement."""
    return {role: instruction.operands[role] for role in ROLES if role in instruction.operands}


def threads(instruction: Instruction) -> int:
    """Return the number of threads that execute an instruction together."""
    operand = next(operand for operand in instruction.operands.values() if operand.storage != "shared")
    return math.prod(operand.spec.threads)


def remarks(instruction: Instruction) -> list[str]:
    """Return a comment with the assembler's advice on an instruction, and how to follow it."""
    lines = [f"{text}." for text in [advice(instruction.form)] if text]
    if instruction.op == "mma.sp":
        ordered = get(instruction.name.replace("mma.sp", "mma.sp::ordered_metadata", 1)).name
        lines.append(f"The same registers have the same meaning for {ordered}")
        lines.append("if the indices of every metadata code ascend, as in the output of compress.")
    return lines


def statement(
    instruction: Instruction,
    names: Mapping[str, Sequence[str]],
    immediates: Sequence[str] = (),
    address: str = "",
    stride: str = "",
) -> str:
    """Return an instruction with its operands; `names` are the registers of each role.

    `immediates` are the selector of a sparse instruction, then the byte id and thread id of A and those of B if it is
    block-scaled.

    >>> from warpfrag.tensorcore.registry import get
    >>> statement(get("ldmatrix.sync.aligned.m8n8.x2.shared.b16"), {"d": ["%0", "%1"]}, address="%2")
    'ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];'
    """
    vectors = {role: vector(words) for role, words in names.items()}
    if instruction.op in MOVE_OPERANDS:
        first = {f"{role}0": words[0] for role, words in names.items()}
        operands = MOVE_OPERANDS[instruction.op].format(**vectors, **first, address=address, stride=stride)
        return f"{instruction.name} {operands};"
    remaining = iter(immediates)
    parts = [vectors[role] for role in "dabc"]
    for role, coordinates in SELECTED_BY.items():
        if role in instruction.operands:
            numbers = list(islice(remaining, len(coordinates)))
            parts += [names[role][0], vector(numbers) if len(numbers) > 1 else numbers[0]]
    return f"{instruction.name} {', '.join(parts)};"


def immediates(instruction: Instruction, choice: Immediates) -> list[str]:
    """Return the immediates of a statement as numbers, in the order of `statement`."""
    return [
        str(number) for role in SELECTED_BY if role in instruction.operands for number in immediates_after(choice, role)
    ]


def state_space(instruction: Instruction) -> str:
    """Return the state space that a load or store names: global, shared, or "" if it takes a generic address."""
    return instruction.form.space.partition("::")[0]


def memory_instruction(instruction: Instruction, role: str, layout: str) -> Instruction:
    """Return the wmma.load or wmma.store that moves one operand of a wmma.mma between registers and memory."""
    op = "wmma.store.d" if role == "d" else f"wmma.load.{role}"
    words = [op, layout, instruction.shape, getattr(instruction.form, role)]
    return get(".".join(str(word) for word in words if word))


# ---- wgmma

THREADS = 128
TILE_ROLES = ("d", "a", "b", "c", "metadata")
FENCE = "wgmma.fence.sync.aligned;"
COMMIT = "wgmma.commit_group.sync.aligned;"
WAIT = "wgmma.wait_group.sync.aligned {};"
PROXY_FENCE = "fence.proxy.async;"  # makes the threads' writes to shared memory visible to wgmma
SWIZZLE_PERIOD = 1024  # the number of bytes after which every swizzle repeats; shared memory is aligned to it
PAIRS: tuple[tuple[bool, bool], ...] = ((False, False), (False, True), (True, False), (True, True))


def check_variant(instruction: Instruction, variant: Variant) -> None:
    """Raise an error for a variant that the instruction does not support."""
    if any(variant.trans) and not can_transpose(instruction):
        raise InvalidOperand(f"{instruction.name}: only 16-bit types can be MN-major, got {variant}")
    if variant.trans[0] and not variant.staged:
        raise InvalidOperand(f"{instruction.name}: A in registers cannot be MN-major, got {variant}")
    if any(variant.negate) and not instruction.a.format.is_float:
        raise InvalidOperand(f"{instruction.name}: only floats can be negated, got {variant}")
    if variant.selector not in wgmma_selectors(instruction):
        raise InvalidOperand(f"{instruction.name} takes the selectors {[*wgmma_selectors(instruction)]}, got {variant}")


def is_sparse(instruction: Instruction) -> bool:
    """Return True if the instruction takes a metadata register and a selector."""
    return "metadata" in instruction.operands


def can_transpose(instruction: Instruction) -> bool:
    """Return True if A and B in shared memory may be MN-major."""
    return instruction.a.format.bits == TURNABLE


def wgmma_selectors(instruction: Instruction) -> range:
    """Return the sparsity selectors; a dense instruction has only 0."""
    return legal(instruction.metadata.layout, "selector") if is_sparse(instruction) else range(1)


def wgmma_variants(instruction: Instruction) -> Iterator[Variant]:
    """Yield every variant of a wgmma."""
    for staged, trans, negate in product((True, False), PAIRS, PAIRS):
        if any(trans) and (not can_transpose(instruction) or (trans[0] and not staged)):
            continue
        if any(negate) and not instruction.a.format.is_float:
            continue
        for selector in wgmma_selectors(instruction):
            yield Variant(staged, trans, negate, selector)


def kernel_variants(instruction: Instruction) -> Iterator[Variant]:
    """Yield the variants that are emitted as kernels: all combinations of A's storage, orders and selectors."""
    for variant in wgmma_variants(instruction):
        if not any(variant.negate) and variant.trans in {(False, False), (variant.staged, True)}:
            yield variant


def tile_operands(instruction: Instruction) -> dict[str, OperandBase]:
    """Return the matrices of a tile kernel by role, in the order of its parameters."""
    return {role: instruction.operands[role] for role in TILE_ROLES if role in instruction.operands}


def wgmma_immediate_names(instruction: Instruction, *, staged: bool) -> list[str]:
    """Return the names of the immediates in template order: selector, signs, transpositions."""
    names = ["selector"] if is_sparse(instruction) else []
    names += ["scale_a", "scale_b"] if instruction.a.format.is_float else []
    if can_transpose(instruction):
        names += ["trans_a", "trans_b"] if staged else ["trans_b"]
    return names


def wgmma_immediates(instruction: Instruction, variant: Variant) -> list[str]:
    """Return the immediates after scale-d: signs for floats, transpositions for 16-bit types."""
    numbers = [-1 if negate else 1 for negate in variant.negate] if instruction.a.format.is_float else []
    if can_transpose(instruction):
        numbers += [int(is_transposed) for is_transposed in variant.trans[0 if variant.staged else 1 :]]
    return [str(number) for number in numbers]


def wgmma_statement(
    instruction: Instruction,
    d: Sequence[str],
    a: Sequence[str] | str,
    b: str,
    scale_d: str,
    immediates: Sequence[str],
    metadata: Sequence[str] = (),
) -> str:
    """Return a wgmma with its operands.

    `a` is a descriptor or registers, and `metadata` the register and the selector.
    """
    operands = [vector(d), a if isinstance(a, str) else vector(a), b, *metadata, scale_d, *immediates]
    return f"{instruction.name} {', '.join(operands)};"
