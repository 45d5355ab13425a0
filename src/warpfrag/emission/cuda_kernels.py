"""Kernels in CUDA C++ around the device functions: one tile from memory to memory, or registers in, registers out.

They have plain names (extern "C"), by which a program finds them, so one program may hold them once: they belong in a
file that is compiled, not in a header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.emission.cuda_functions import shared_name, variables
from warpfrag.emission.cuda_syntax import Variable, kernel, loop
from warpfrag.emission.shared import described_orders, kernel_copies, memory_orders
from warpfrag.emission.statement import (
    ROLES,
    choices,
    identifier,
    immediates,
    raw_name,
    registers,
    shared_kernel_name,
    state_space,
    threads,
    tile_name,
)
from warpfrag.emission.strides import contiguous_strides, extents, stride_names
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES
from warpfrag.isa.operands import REGISTER_BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.catalog.instruction import Instruction
    from warpfrag.emission.shared import SharedCopy
    from warpfrag.isa.immediates import Immediates

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


def block(instruction: Instruction, targets: Sequence[str]) -> str:
    """Every kernel of one instruction, with what these targets have."""
    if instruction.op == "wmma.mma":
        lines = [*wmma_tile(instruction, "row"), *wmma_tile(instruction, "col"), *raw_kernel(instruction)]
    elif instruction.form.is_wmma:
        lines = wmma_move(instruction)
    elif instruction.form.is_product:
        lines = []
        for choice in choices(instruction):
            lines += tile_kernel(instruction, choice)
            lines += raw_kernel(instruction, choice)
        for chosen in kernel_copies(instruction, targets):
            lines += shared_kernel(instruction, chosen)
    else:
        lines = mover_kernel(instruction)
    name = identifier(instruction)
    head = [f"// Kernels of {instruction.name}", f"namespace warpfrag::{name} {{", ""]
    return "\n".join([*head, *lines, f"}}  // namespace warpfrag::{name}", ""])


def call(instruction: Instruction, choice: Immediates, function: str = "mma") -> str:
    """A call of the wrapper, or of another function like it, with these immediates."""
    given = immediates(instruction, choice)
    template = f"<{', '.join(given)}>" if given else ""
    return f"{function}{template}({', '.join(f'fragment_{role}' for role in registers(instruction))});"


def declarations(instruction: Instruction) -> list[str]:
    """The fragments of a kernel."""
    return [
        f"{variable.c_type} fragment_{role}[{variable.count}];" for role, variable in variables(instruction).items()
    ]


def raw_kernel(instruction: Instruction, choice: Immediates = DEFAULT_IMMEDIATES, function: str = "mma") -> list[str]:
    """Registers in, registers out, with the parameters that the raw kernels in PTX take."""
    every = variables(instruction)
    lanes = threads(instruction)
    pointers = [f"{'' if role == 'd' else 'const '}uint32_t* {role}" for role in ROLES]
    body = [
        "const int thread = blockIdx.x * blockDim.x + threadIdx.x;",
        f"if (thread / {lanes} >= cases) return;",
        *declarations(instruction),
    ]
    for role, variable in every.items():
        at = f"[thread * {variable.count} + i]"
        source = role if variable.c_type == "uint32_t" else f"reinterpret_cast<const {variable.c_type}*>({role})"
        if role != "d":
            body += loop(variable.count, [f"fragment_{role}[i] = {source}{at};"])
    body.append(call(instruction, choice, function))
    d = every["d"]
    target = "d" if d.c_type == "uint32_t" else f"reinterpret_cast<{d.c_type}*>(d)"
    body += loop(d.count, [f"{target}[thread * {d.count} + i] = fragment_d[i];"])
    return [
        f"// Registers in, registers out: each operand is uint32[cases][{lanes}][words]; one case per warp.",
        *kernel(raw_name(instruction, choice), [*pointers, "int cases"], body),
    ]


def tile_kernel(instruction: Instruction, choice: Immediates) -> list[str]:
    """One tile from memory to memory, with one warp."""
    operands = registers(instruction)
    parameters = []
    for role, operand in operands.items():
        steps = [f"int {name}" for name in stride_names(operand, f"{role}_")]
        parameters.append(", ".join([f"{'' if role == 'd' else 'const '}void* {role}", *steps]))
    body = declarations(instruction)
    for role, operand in operands.items():
        if role != "d":
            body.append(f"load_{role}(fragment_{role}, {role}, {', '.join(stride_names(operand, f'{role}_'))});")
    body += [call(instruction, choice), f"store_d(d, {', '.join(stride_names(operands['d'], 'd_'))}, fragment_d);"]
    return [
        "// One tile from memory to memory, with one warp.",
        *kernel(tile_name(instruction, choice), parameters, body),
    ]


def shared_kernel(instruction: Instruction, chosen: dict[str, SharedCopy]) -> list[str]:
    """One tile through shared memory; in memory, without gaps, in the orders that the copies name."""
    orders = memory_orders(chosen)
    before, after = declarations(instruction), []
    for role, operand in registers(instruction).items():
        steps = contiguous_strides(operand, orders[role])
        if role not in chosen:
            place = ", ".join(map(str, steps))
            if role == "d":
                after.append(f"store_d(d, {place}, fragment_d);")
            else:
                before.append(f"load_{role}(fragment_{role}, {role}, {place});")
            continue
        copy = chosen[role]
        rows, cols = extents(operand)
        words = rows * cols * copy.memory_bits // REGISTER_BITS
        before.append(f"__shared__ __align__(16) uint32_t shared_{role}[{words}];")
        helper = shared_name(operand, copy)
        if role == "d":
            after += [f"{helper}(shared_d, {max(steps)}, fragment_d);", "__syncwarp();"]
            after.append(f"copy_words(d, shared_d, {words});")
        else:
            before.append(f"copy_words(shared_{role}, {role}, {words});")
            before.append(f"{helper}(fragment_{role}, shared_{role}, {max(steps)});")
    parameters = [f"{'' if role == 'd' else 'const '}void* {role}" for role in registers(instruction)]
    body = [*before, call(instruction, DEFAULT_IMMEDIATES), *after]
    return [
        f"// One tile through shared memory. In memory, without gaps: {described_orders(orders)}.",
        *kernel(shared_kernel_name(instruction, orders), parameters, body),
    ]


def wmma_tile(instruction: Instruction, layout: str) -> list[str]:
    """One tile of a wmma.mma from memory to memory; A and B lie there as the instruction says."""
    parameters = [f"{'' if role == 'd' else 'const '}void* {role}, int {role}_stride" for role in "dabc"]
    body = [
        *declarations(instruction),
        "load_a(fragment_a, a, a_stride);",
        "load_b(fragment_b, b, b_stride);",
        f"load_c_{layout}(fragment_c, c, c_stride);",
        call(instruction, DEFAULT_IMMEDIATES),
        f"store_d_{layout}(d, d_stride, fragment_d);",
    ]
    return [
        f"// One tile from memory to memory, with one warp; C and D {layout} major.",
        *kernel(tile_name(instruction, order=layout), parameters, body),
    ]


def wmma_move(instruction: Instruction) -> list[str]:
    """A wmma.load or wmma.store by itself: from memory to raw registers or back."""
    role = instruction.op[-1]
    variable = Variable(role, instruction.operands[role], role)
    stores = role == "d"
    fragments = f"{'const ' if stores else ''}{variable.c_type}* registers"
    memory = f"{'' if stores else 'const '}void* memory"
    at = f"registers[threadIdx.x * {variable.count} + i]"
    lanes = f"each of {threads(instruction)} lanes"
    comment = [f"// Registers are one word (f64: double) after another for {lanes}; launch one warp."]
    parameters = [fragments, memory, "int stride"]
    place, before, after = "memory", [], []
    if state_space(instruction) == "shared":
        comment.append("// The first `bytes` of memory pass through as much dynamic shared memory.")
        parameters.append("int bytes")
        place = "tile"
        before = ["extern __shared__ __align__(32) uint32_t tile[];", "copy_words(tile, memory, bytes / 4);"]
        after = ["__syncwarp();", "copy_words(memory, tile, bytes / 4);"] if stores else []
    fragment = f"{variable.c_type} fragment[{variable.count}];"
    if stores:
        move = [*loop(variable.count, [f"fragment[i] = {at};"]), f"store({place}, stride, fragment);"]
    else:
        move = [f"load(fragment, {place}, stride);", *loop(variable.count, [f"{at} = fragment[i];"])]
    return [*comment, *kernel(raw_name(instruction), parameters, [fragment, *before, *move, *after])]


def mover_kernel(instruction: Instruction) -> list[str]:
    """ldmatrix, stmatrix or movmatrix by itself: registers, and the 16 bytes to which each lane points."""
    every = variables(instruction)
    lanes = threads(instruction)
    line = "lines + threadIdx.x * 4"
    if state_space(instruction) == "shared":
        line = f"static_cast<uint32_t>(__cvta_generic_to_shared({line}))"
    body = [f"uint32_t fragment_{role}[{variable.count}];" for role, variable in every.items()]
    if instruction.op != "movmatrix":
        body.append(f"__shared__ __align__(16) uint32_t lines[{4 * lanes}];")
    if "a" in every:
        count = every["a"].count
        body += loop(count, [f"fragment_a[i] = a[threadIdx.x * {count} + i];"])
    else:
        body += loop(4, ["lines[threadIdx.x * 4 + i] = a[threadIdx.x * 4 + i];"])
        body.append("__syncwarp();")
    if instruction.op == "movmatrix":
        body.append("movmatrix(fragment_d, fragment_a);")
    elif instruction.op == "ldmatrix":
        body.append(f"ldmatrix(fragment_d, {line});")
    else:
        body += loop(4, ["lines[threadIdx.x * 4 + i] = d[threadIdx.x * 4 + i];"])
        body += ["__syncwarp();", f"stmatrix(fragment_a, {line});", "__syncwarp();"]
    if "d" in every:
        count = every["d"].count
        body += loop(count, [f"d[threadIdx.x * {count} + i] = fragment_d[i];"])
    else:
        body += loop(4, ["d[threadIdx.x * 4 + i] = lines[threadIdx.x * 4 + i];"])
    words, lines = f"uint32[{lanes}][words]", f"the 16 bytes to which each lane points, uint32[{lanes}][4]"
    moves = {
        "ldmatrix": f"a: {lines}; d: registers, {words}.",
        "stmatrix": f"a: registers, {words}; d: {lines}.",
        "movmatrix": f"a and d: registers, uint32[{lanes}].",
    }
    parameters = ["uint32_t* d", "const uint32_t* a"]
    return [f"// {moves[instruction.op]} Launch one warp.", *kernel(raw_name(instruction), parameters, body)]
