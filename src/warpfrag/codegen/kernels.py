"""Kernels around one instruction, described once for CUDA C++ and PTX.

A tile kernel moves one tile from memory to memory. A raw kernel takes registers and returns registers: its operands are
uint32[cases][lanes][words] in global memory, and an operand that the instruction does not read may be null. A
`KernelWriter` writes the parts in one language.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from warpfrag.codegen.cuda_kernels import CudaKernel
from warpfrag.codegen.memory_indexing import (
    SharedCopy,
    Stage,
    contiguous_strides,
    described_orders,
    kernel_copies,
    memory_orders,
    stride_names,
)
from warpfrag.codegen.ptx_kernels import PtxKernel
from warpfrag.codegen.statement import (
    ROLES,
    SWIZZLE_PERIOD,
    THREADS,
    Parameters,
    check_variant,
    choices,
    is_sparse,
    kernel_variants,
    raw_name,
    registers,
    shared_kernel_name,
    state_space,
    threads,
    tile_name,
    tile_operands,
)
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, Immediates
from warpfrag.isa.legality import check_immediates
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import OperandBase
from warpfrag.tensorcore.wgmma_call import USUAL, Variant

KernelWriter: TypeAlias = CudaKernel | PtxKernel
"""Both have the same methods, so that each kernel is described once."""

RAW_PARAMETERS: Parameters = {**dict.fromkeys(ROLES, "words"), "cases": "int"}
# `shared` is uint8[cases][bytes], bytes a multiple of 4; the launch gives bytes + 1024 of dynamic shared memory
WGMMA_RAW_PARAMETERS: Parameters = {
    **dict.fromkeys(("d", "a", "c", "metadata", "shared"), "words"),
    **dict.fromkeys(("descriptor_a", "descriptor_b"), "descriptor"),
    **dict.fromkeys(("scale_d", "bytes"), "word"),
}


def _matrices(operands: Mapping[str, OperandBase]) -> Parameters:
    """Return a pointer to each matrix, and its strides after it."""
    parameters: Parameters = {}
    for role, operand in operands.items():
        parameters |= {role: "matrix", **dict.fromkeys(stride_names(operand, f"{role}_"), "int")}
    return parameters


def mma_kernels(writer: type[KernelWriter], instruction: Instruction, targets: Sequence[str]) -> list[str]:
    """Return a tile kernel and a raw one for every selector, and one for each path through shared memory."""
    lines = []
    for choice in choices(instruction):
        lines += tile_kernel(writer, instruction, choice)
        lines += raw_kernel(writer, instruction, choice)
    for copies in kernel_copies(instruction, targets):
        lines += shared_kernel(writer, instruction, copies)
    return lines


def raw_kernel(
    writer: type[KernelWriter], instruction: Instruction, choice: Immediates = DEFAULT_IMMEDIATES
) -> list[str]:
    """Return the raw kernel of an instruction that one warp executes."""
    check_immediates(instruction.form, choice, instruction.operands.selected_layouts)
    kernel = writer(instruction, RAW_PARAMETERS)
    kernel.start("cases")
    for role, operand in registers(instruction).items():
        kernel.declare(role, operand)
        if role != "d":
            kernel.move_raw(operand, role, role, stores=False)
    kernel.multiply(choice)
    kernel.move_raw(instruction.operands["d"], "d", "d", stores=True)
    shape = f"uint32[cases][{threads(instruction)}][words]"
    return kernel.kernel(
        raw_name(instruction, choice), f"registers in, registers out: each operand is {shape}; one case per warp"
    )


def tile_kernel(writer: type[KernelWriter], instruction: Instruction, choice: Immediates) -> list[str]:
    """Return the kernel that moves one tile from memory to memory, with one warp."""
    operands = registers(instruction)
    kernel = writer(instruction, _matrices(operands))
    for role, operand in operands.items():
        kernel.declare(role, operand)
        if role != "d":
            kernel.move_tile(operand)
    kernel.multiply(choice)
    kernel.move_tile(operands["d"])
    return kernel.kernel(tile_name(instruction, choice), "one tile from memory to memory, with one warp")


def shared_kernel(writer: type[KernelWriter], instruction: Instruction, copies: dict[str, SharedCopy]) -> list[str]:
    """Return the kernel of one tile through shared memory, without gaps, in the orders that the copies name."""
    operands, orders = registers(instruction), memory_orders(copies)
    kernel = writer(instruction, dict.fromkeys(operands, "matrix"))
    kernel.start("warp")
    for role, operand in operands.items():
        kernel.declare(role, operand)
    for role in [*(role for role in operands if role != "d"), "d"]:
        operand = operands[role]
        if role == "d":
            kernel.multiply(DEFAULT_IMMEDIATES)
        if role not in copies:
            kernel.move_tile(operand, contiguous_strides(operand, orders[role]))
        elif role == "d":
            kernel.move_matrices(operand, copies[role])
            kernel.copy_tile(operand, copies[role])
        else:
            kernel.copy_tile(operand, copies[role])
            kernel.move_matrices(operand, copies[role])
    comment = f"one tile through shared memory; in memory, without gaps: {described_orders(orders)}"
    return kernel.kernel(shared_kernel_name(instruction, orders), comment)


def wmma_kernels(writer: type[KernelWriter], instruction: Instruction, _targets: Sequence[str]) -> list[str]:
    """Return a tile kernel for each memory order of C and D, and the raw kernel."""
    lines = []
    for order in ("row", "col"):
        parameters: Parameters = {}
        for role in "dabc":
            parameters |= {role: "matrix", f"{role}_stride": "int"}
        kernel = writer(instruction, parameters)
        orders = dict(zip("ab", instruction.layouts, strict=True)) | {"c": order, "d": order}
        for role in "dabc":
            kernel.declare(role, instruction.operands[role])
        for role in "abc":
            kernel.move_wmma(role, orders[role])
        kernel.multiply(DEFAULT_IMMEDIATES)
        kernel.move_wmma("d", order)
        comment = f"one tile from memory to memory, with one warp; C and D {order} major"
        lines += kernel.kernel(tile_name(instruction, order=order), comment)
    return [*lines, *raw_kernel(writer, instruction)]


def wmma_move_kernels(writer: type[KernelWriter], instruction: Instruction, _targets: Sequence[str]) -> list[str]:
    """Return the kernel of a wmma.load or wmma.store alone: from memory to raw registers or back."""
    ((role, operand),) = instruction.operands.items()
    stores, in_shared = role == "d", state_space(instruction) == "shared"
    parameters: Parameters = {"registers": "words", "memory": "matrix", "stride": "int"}
    comment = [f"registers are one word (f64: double) after another for each of {threads(instruction)} lanes; one warp"]
    if in_shared:
        parameters["bytes"] = "int"
        comment.append("the first `bytes` of memory pass through dynamic shared memory of this size")
    kernel = writer(instruction, parameters, ["memory" if stores else "registers"])
    kernel.start("warp")
    kernel.declare(role, operand)
    address = kernel.copy_bytes(to_shared=True) if in_shared else ""
    if stores:
        kernel.move_raw(operand, "registers", role, stores=False)
    kernel.move_wmma(role, address=address)
    if stores and in_shared:
        kernel.copy_bytes(to_shared=False)
    if not stores:
        kernel.move_raw(operand, "registers", role, stores=True)
    return kernel.kernel(raw_name(instruction), *comment)


def matrix_move_kernels(writer: type[KernelWriter], instruction: Instruction, _targets: Sequence[str]) -> list[str]:
    """Return the kernel of ldmatrix, stmatrix or movmatrix alone: registers, and 16 bytes for each lane."""
    operands = registers(instruction)
    kernel = writer(instruction, {"d": "words", "a": "words"})
    kernel.start("warp")
    for role, operand in operands.items():
        kernel.declare(role, operand)
    if "a" in operands:
        kernel.move_raw(operands["a"], "a", "a", stores=False)
    if instruction.addresses is not None:  # bytes that stmatrix does not write keep their value
        kernel.move_line("d" if "a" in operands else "a", to_shared=True)
        kernel.synchronize_warp()
    kernel.move_matrix()
    if "d" in operands:
        kernel.move_raw(operands["d"], "d", "d", stores=True)
    else:
        kernel.synchronize_warp()
        kernel.move_line("d", to_shared=False)
    lanes = threads(instruction)
    words, lines = f"uint32[{lanes}][words]", f"the 16 bytes to which each lane points, uint32[{lanes}][4]"
    comments = {
        "ldmatrix": f"a: {lines}; d: registers, {words}",
        "stmatrix": f"a: registers, {words}; d: {lines}",
        "movmatrix": f"a and d: registers, uint32[{lanes}]",
    }
    return kernel.kernel(raw_name(instruction), f"{comments[instruction.op]}; launch one warp")


def wgmma_kernels(writer: type[KernelWriter], instruction: Instruction, _targets: Sequence[str]) -> list[str]:
    """Return every kernel of one wgmma."""
    lines = []
    for variant in kernel_variants(instruction):
        lines += wgmma_tile_kernel(writer, instruction, variant)
        lines += [] if any(variant.trans) else wgmma_raw_kernel(writer, instruction, variant)
    return lines


def wgmma_tile_kernel(writer: type[KernelWriter], instruction: Instruction, variant: Variant) -> list[str]:
    """Return the kernel that moves one tile from memory to memory, with one warpgroup."""
    check_variant(instruction, variant)
    kernel = writer(instruction, _matrices(tile_operands(instruction)))
    kernel.declare("d", instruction.d)
    kernel.move_tile(instruction.c, fragment="d")
    if variant.staged:
        a = kernel.stage(Stage(instruction.a, variant.trans[0]))
    else:
        a = ""
        kernel.declare("a", instruction.a)
        kernel.move_tile(instruction.a)
    b = kernel.stage(Stage(instruction.b, variant.trans[1]))
    if is_sparse(instruction):
        kernel.declare("metadata", instruction.metadata)
        kernel.move_tile(instruction.metadata)
    kernel.multiply_wgmma(variant, a, b, scale_d=False)
    kernel.move_tile(instruction.d)
    comment = f"one tile from memory to memory, with one warpgroup; {variant.description}"
    return kernel.kernel(tile_name(instruction, variant), comment)


def wgmma_raw_kernel(writer: type[KernelWriter], instruction: Instruction, variant: Variant = USUAL) -> list[str]:
    """Return the kernel that takes registers and bytes of shared memory, and returns registers."""
    check_variant(instruction, variant)
    kernel = writer(instruction, WGMMA_RAW_PARAMETERS)
    kernel.start("block")
    kernel.stage_image()
    kernel.declare("d", instruction.d)
    kernel.move_raw(instruction.c, "c", "d", stores=False)
    if variant.staged:
        a = kernel.moved_descriptor("descriptor_a")
    else:
        a = ""
        kernel.declare("a", instruction.a)
        kernel.move_raw(instruction.a, "a", "a", stores=False)
    b = kernel.moved_descriptor("descriptor_b")
    if is_sparse(instruction):
        kernel.declare("metadata", instruction.metadata)
        kernel.move_raw(instruction.metadata, "metadata", "metadata", stores=False)
    kernel.multiply_wgmma(variant, a, b, scale_d=True)
    kernel.move_raw(instruction.d, "d", "d", stores=True)
    return kernel.kernel(
        raw_name(instruction, variant),
        f"registers in, registers out, a block for each case: each operand is uint32[cases][{THREADS}][words]",
        "shared is uint8[cases][bytes], and descriptors count from its first byte",
        f"it needs bytes + {SWIZZLE_PERIOD} of dynamic shared memory",
    )
