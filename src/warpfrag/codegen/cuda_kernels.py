"""Kernels in CUDA C++ around the device functions: one tile from memory to memory, or registers in, registers out.

They have plain names (extern "C"), by which a program finds them, so one program may hold them once: they belong in a
file that is compiled, not in a header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.codegen.cuda_builder import CudaBuilder
from warpfrag.codegen.cuda_functions import register_array, register_arrays, shared_name
from warpfrag.codegen.matrix_copies import described_orders, kernel_copies, memory_orders
from warpfrag.codegen.memory_indexing import contiguous_strides, extents, stride_names
from warpfrag.codegen.statement import (
    ROLES,
    choices,
    immediates,
    raw_name,
    registers,
    shared_kernel_name,
    state_space,
    threads,
    tile_name,
)
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES
from warpfrag.isa.operands import REGISTER_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warpfrag.codegen.matrix_copies import SharedCopy
    from warpfrag.isa.immediates import Immediates
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import Registers

# Used by the kernels of every instruction.
COMMON = """\
namespace warpfrag {

// Copy a tile of whole words between global and shared memory, with all threads of a block.
__device__ __forceinline__ void copy_words(void* to, const void* from, int words) {
    for (int i = threadIdx.x; i < words; i += blockDim.x) {
        static_cast<uint32_t*>(to)[i] = static_cast<const uint32_t*>(from)[i];
    }
    __syncthreads();
}

}  // namespace warpfrag
"""


def mma_kernels(instruction: Instruction, targets: Sequence[str]) -> list[str]:
    """A tile kernel and a raw one for every selector, and one for each path through shared memory."""
    lines = []
    for choice in choices(instruction):
        lines += tile_kernel(instruction, choice)
        lines += raw_kernel(instruction, choice)
    for copies in kernel_copies(instruction, targets):
        lines += shared_kernel(instruction, copies)
    return lines


def wmma_kernels(instruction: Instruction, _targets: Sequence[str]) -> list[str]:
    """A tile kernel for each memory order of C and D, and the raw one."""
    return [*wmma_tile(instruction, "row"), *wmma_tile(instruction, "col"), *raw_kernel(instruction)]


def call(instruction: Instruction, choice: Immediates, function: str = "mma") -> str:
    """A call of the wrapper, or of another function like it, with these immediates."""
    numbers = immediates(instruction, choice)
    template = f"<{', '.join(numbers)}>" if numbers else ""
    return f"{function}{template}({', '.join(f'fragment_{role}' for role in registers(instruction))});"


def start_with_fragments(instruction: Instruction) -> CudaBuilder:
    """A body that declares the fragments of a kernel."""
    code = CudaBuilder()
    declare_fragments(code, instruction)
    return code


def declare_fragments(code: CudaBuilder, instruction: Instruction) -> None:
    """An array called `fragment_` and its role for every operand in registers."""
    code.line(*(array.declaration(f"fragment_{role}") for role, array in register_arrays(instruction).items()))


def matrix_parameters(operands: Mapping[str, Registers]) -> list[str]:
    """A pointer to each matrix, and its strides behind it; D alone is written."""
    parameters = []
    for role, operand in operands.items():
        strides = [f"int {name}" for name in stride_names(operand, f"{role}_")]
        parameters.append(", ".join([f"{'' if role == 'd' else 'const '}void* {role}", *strides]))
    return parameters


def raw_kernel(instruction: Instruction, choice: Immediates = DEFAULT_IMMEDIATES, function: str = "mma") -> list[str]:
    """Registers in, registers out, with the parameters that the raw kernels in PTX take."""
    arrays = register_arrays(instruction)
    lanes = threads(instruction)
    pointers = [f"{'' if role == 'd' else 'const '}uint32_t* {role}" for role in ROLES]
    code = CudaBuilder()
    code.line("const int thread = blockIdx.x * blockDim.x + threadIdx.x;")
    code.line(f"if (thread / {lanes} >= cases) return;")
    declare_fragments(code, instruction)
    for role, array in arrays.items():
        source = role if array.c_type == "uint32_t" else f"reinterpret_cast<const {array.c_type}*>({role})"
        if role != "d":
            code.repeat(array.count, f"fragment_{role}[i] = {source}[thread * {array.count} + i];")
    code.line(call(instruction, choice, function))
    d = arrays["d"]
    target = "d" if d.c_type == "uint32_t" else f"reinterpret_cast<{d.c_type}*>(d)"
    code.repeat(d.count, f"{target}[thread * {d.count} + i] = fragment_d[i];")
    return [
        f"// Registers in, registers out: each operand is uint32[cases][{lanes}][words]; one case per warp.",
        *code.kernel(raw_name(instruction, choice), [*pointers, "int cases"]),
    ]


def tile_kernel(instruction: Instruction, choice: Immediates) -> list[str]:
    """One tile from memory to memory, with one warp."""
    operands = registers(instruction)
    code = start_with_fragments(instruction)
    for role, operand in operands.items():
        if role != "d":
            code.line(f"load_{role}(fragment_{role}, {role}, {', '.join(stride_names(operand, f'{role}_'))});")
    code.line(call(instruction, choice))
    code.line(f"store_d(d, {', '.join(stride_names(operands['d'], 'd_'))}, fragment_d);")
    return [
        "// One tile from memory to memory, with one warp.",
        *code.kernel(tile_name(instruction, choice), matrix_parameters(operands)),
    ]


def shared_kernel(instruction: Instruction, copies: dict[str, SharedCopy]) -> list[str]:
    """One tile through shared memory; in memory, without gaps, in the orders that the copies name."""
    orders = memory_orders(copies)
    operands = registers(instruction)
    code, after = start_with_fragments(instruction), CudaBuilder()
    for role, operand in operands.items():
        strides = contiguous_strides(operand, orders[role])
        if role not in copies:
            place = ", ".join(map(str, strides))
            if role == "d":
                after.line(f"store_d(d, {place}, fragment_d);")
            else:
                code.line(f"load_{role}(fragment_{role}, {role}, {place});")
            continue
        copy = copies[role]
        rows, cols = extents(operand)
        words = rows * cols * copy.memory_bits // REGISTER_BITS
        code.line(f"__shared__ __align__(16) uint32_t shared_{role}[{words}];")
        helper = shared_name(operand, copy)
        if role == "d":
            after.line(f"{helper}(shared_d, {max(strides)}, fragment_d);", "__syncwarp();")
            after.line(f"copy_words(d, shared_d, {words});")
        else:
            code.line(f"copy_words(shared_{role}, {role}, {words});")
            code.line(f"{helper}(fragment_{role}, shared_{role}, {max(strides)});")
    code.line(call(instruction, DEFAULT_IMMEDIATES), *after.body())
    parameters = [f"{'' if role == 'd' else 'const '}void* {role}" for role in operands]
    return [
        f"// One tile through shared memory. In memory, without gaps: {described_orders(orders)}.",
        *code.kernel(shared_kernel_name(instruction, orders), parameters),
    ]


def wmma_tile(instruction: Instruction, layout: str) -> list[str]:
    """One tile of a wmma.mma from memory to memory; A and B lie there as the instruction says."""
    parameters = [f"{'' if role == 'd' else 'const '}void* {role}, int {role}_stride" for role in "dabc"]
    code = start_with_fragments(instruction)
    code.line("load_a(fragment_a, a, a_stride);")
    code.line("load_b(fragment_b, b, b_stride);")
    code.line(f"load_c_{layout}(fragment_c, c, c_stride);")
    code.line(call(instruction, DEFAULT_IMMEDIATES))
    code.line(f"store_d_{layout}(d, d_stride, fragment_d);")
    return [
        f"// One tile from memory to memory, with one warp; C and D {layout} major.",
        *code.kernel(tile_name(instruction, order=layout), parameters),
    ]


def wmma_move_kernels(instruction: Instruction, _targets: Sequence[str]) -> list[str]:
    """A wmma.load or wmma.store by itself: from memory to raw registers or back."""
    ((role, operand),) = instruction.operands.items()
    array = register_array(operand, "fragment")
    stores = role == "d"
    fragments = f"{'const ' if stores else ''}{array.c_type}* registers"
    memory = f"{'' if stores else 'const '}void* memory"
    element = f"registers[threadIdx.x * {array.count} + i]"
    lanes = f"each of {threads(instruction)} lanes"
    comment = [f"// Registers are one word (f64: double) after another for {lanes}; launch one warp."]
    parameters = [fragments, memory, "int stride"]
    place = "memory"
    code = CudaBuilder()
    code.line(array.declaration())
    if state_space(instruction) == "shared":
        comment.append("// The first `bytes` of memory pass through as much dynamic shared memory.")
        parameters.append("int bytes")
        place = "tile"
        code.line("extern __shared__ __align__(32) uint32_t tile[];", "copy_words(tile, memory, bytes / 4);")
    if stores:
        code.repeat(array.count, f"fragment[i] = {element};")
        code.line(f"store({place}, stride, fragment);")
        if place == "tile":
            code.line("__syncwarp();", "copy_words(memory, tile, bytes / 4);")
    else:
        code.line(f"load(fragment, {place}, stride);")
        code.repeat(array.count, f"{element} = fragment[i];")
    return [*comment, *code.kernel(raw_name(instruction), parameters)]


def matrix_move_kernels(instruction: Instruction, _targets: Sequence[str]) -> list[str]:
    """ldmatrix, stmatrix or movmatrix by itself: registers, and the 16 bytes to which each lane points."""
    arrays = register_arrays(instruction)
    lanes = threads(instruction)
    takes_address = instruction.addresses is not None
    line = "lines + threadIdx.x * 4"
    if state_space(instruction) == "shared":
        line = f"static_cast<uint32_t>(__cvta_generic_to_shared({line}))"
    code = CudaBuilder()
    code.line(*(f"uint32_t fragment_{role}[{array.count}];" for role, array in arrays.items()))
    if takes_address:
        code.line(f"__shared__ __align__(16) uint32_t lines[{4 * lanes}];")
    if "a" in arrays:
        count = arrays["a"].count
        code.repeat(count, f"fragment_a[i] = a[threadIdx.x * {count} + i];")
    if takes_address:  # stmatrix leaves what it does not write as it was
        source = "d" if "a" in arrays else "a"
        code.repeat(4, f"lines[threadIdx.x * 4 + i] = {source}[threadIdx.x * 4 + i];")
        code.line("__syncwarp();")
    fragments = [f"fragment_{role}" for role in arrays]
    code.line(f"{instruction.op}({', '.join([*fragments, *([line] if takes_address else [])])});")
    if "d" in arrays:
        count = arrays["d"].count
        code.repeat(count, f"d[threadIdx.x * {count} + i] = fragment_d[i];")
    else:
        code.line("__syncwarp();")
        code.repeat(4, "d[threadIdx.x * 4 + i] = lines[threadIdx.x * 4 + i];")
    words, lines = f"uint32[{lanes}][words]", f"the 16 bytes to which each lane points, uint32[{lanes}][4]"
    moves = {
        "ldmatrix": f"a: {lines}; d: registers, {words}.",
        "stmatrix": f"a: registers, {words}; d: {lines}.",
        "movmatrix": f"a and d: registers, uint32[{lanes}].",
    }
    parameters = ["uint32_t* d", "const uint32_t* a"]
    return [f"// {moves[instruction.op]} Launch one warp.", *code.kernel(raw_name(instruction), parameters)]
