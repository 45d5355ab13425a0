"""The parts of kernels in CUDA C++; `kernels` puts them together.

Kernels have plain names (extern "C"), by which a program finds them, so they belong in a file that is compiled, not in
a header. They call the device functions of their instruction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from warpfrag.codegen.cuda_builder import CudaBuilder, RegisterArray
from warpfrag.codegen.cuda_functions import register_array, shared_name
from warpfrag.codegen.memory_indexing import SharedCopy, Stage, contiguous_strides, extents, stride_names
from warpfrag.codegen.statement import (
    SWIZZLE_PERIOD,
    THREADS,
    Parameters,
    immediates,
    is_sparse,
    registers,
    state_space,
    threads,
    wgmma_immediates,
)
from warpfrag.isa.immediates import Immediates
from warpfrag.isa.operands import REGISTER_BITS
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import OperandBase
from warpfrag.tensorcore.wgmma_call import Variant

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

TYPES = {"matrix": "void*", "words": "uint32_t*", "int": "int", "word": "uint32_t", "descriptor": "uint64_t"}


class CudaKernel:
    """A kernel in CUDA C++."""

    def __init__(self, instruction: Instruction, parameters: Parameters, outputs: Iterable[str] = "d") -> None:
        """Start a kernel; `outputs` are the parameters that point to memory it writes."""
        self.instruction = instruction
        self.parameters = parameters
        self.outputs = tuple(outputs)
        self.code = CudaBuilder()
        self.fragments: dict[str, RegisterArray] = {}
        self.thread = "threadIdx.x"
        self._shared: set[str] = set()

    def kernel(self, name: str, *comment: str) -> list[str]:
        """Return the lines of the kernel, below a comment."""
        parameters = [
            f"{'const ' * (TYPES[kind].endswith('*') and name not in self.outputs)}{TYPES[kind]} {name}"
            for name, kind in self.parameters.items()
        ]
        return [*(f"// {text}" for text in comment), *self.code.kernel(name, parameters)]

    def declare(self, role: str, operand: OperandBase) -> None:
        """Declare a fragment: an array called `fragment_` and its role."""
        self.fragments[role] = register_array(operand, f"fragment_{role}")
        self.code.line(self.fragments[role].declaration())

    def start(self, scope: Literal["warp", "cases", "block"]) -> None:
        """Compute the thread index: in its warp, or in the grid, where a warp or a block is a case."""
        if scope != "warp":
            self.thread = "thread"
            self.code.line("const int thread = blockIdx.x * blockDim.x + threadIdx.x;")
        if scope == "cases":
            self.code.line(f"if (thread / {threads(self.instruction)} >= cases) return;")

    def move_tile(self, operand: OperandBase, strides: Sequence[str | int] = (), fragment: str = "") -> None:
        """Load a fragment from memory, or store D; strides are parameters unless they are given."""
        role = operand.role
        listed = ", ".join(map(str, strides or stride_names(operand, f"{role}_")))
        if role == "d":
            self.code.line(f"store_d(d, {listed}, fragment_d);")
        else:
            self.code.line(f"load_{role}(fragment_{fragment or role}, {role}, {listed});")

    def move_raw(self, operand: OperandBase, pointer: str, fragment: str, *, stores: bool) -> None:
        """Load or store the registers of a fragment as they are."""
        array = self.fragments[fragment]
        const = "" if pointer in self.outputs else "const "
        words = pointer if array.c_type == "uint32_t" else f"reinterpret_cast<{const}{array.c_type}*>({pointer})"
        register, word = f"{array.name}[i]", f"{words}[{self.thread} * {operand.regs} + i]"
        self.code.repeat(operand.regs, f"{word} = {register};" if stores else f"{register} = {word};")

    def _call(self, numbers: list[str], arguments: Iterable[str]) -> str:
        template_arguments = f"<{', '.join(numbers)}>" if numbers else ""
        return f"mma{template_arguments}({', '.join(arguments)});"

    def multiply(self, choice: Immediates) -> None:
        """Run the instruction on its fragments."""
        fragments = (f"fragment_{role}" for role in registers(self.instruction))
        self.code.line(self._call(immediates(self.instruction, choice), fragments))

    def _shared_words(self, operand: OperandBase, copy: SharedCopy) -> int:
        """Declare the shared array of an operand once; return its size in words."""
        rows, cols = extents(operand)
        words = rows * cols * copy.memory_bits // REGISTER_BITS
        if operand.role not in self._shared:
            self._shared.add(operand.role)
            self.code.line(f"__shared__ __align__(16) uint32_t shared_{operand.role}[{words}];")
        return words

    def copy_tile(self, operand: OperandBase, copy: SharedCopy) -> None:
        """Copy a tile between global memory and a new shared array, D to global memory."""
        role, words = operand.role, self._shared_words(operand, copy)
        if role == "d":
            self.code.line("__syncwarp();", f"copy_words(d, shared_d, {words});")
        else:
            self.code.line(f"copy_words(shared_{role}, {role}, {words});")

    def move_matrices(self, operand: OperandBase, copy: SharedCopy) -> None:
        """Move a fragment between the shared array and registers, by ldmatrix or stmatrix."""
        role, stride = operand.role, max(contiguous_strides(operand, copy.order))
        self._shared_words(operand, copy)
        memory, fragment = f"shared_{role}, {stride}", f"fragment_{role}"
        arguments = f"{memory}, {fragment}" if role == "d" else f"{fragment}, {memory}"
        self.code.line(f"{shared_name(operand, copy)}({arguments});")

    def move_wmma(self, role: str, order: str = "", address: str = "") -> None:
        """Load a fragment by wmma.load, or store D by wmma.store; without an order by the instruction itself."""
        name = "store" if role == "d" else "load"
        memory = f"{role}, {role}_stride" if order else f"{address or 'memory'}, stride"
        if order:
            name += f"_{role}" if role in "ab" else f"_{role}_{order}"
        fragment = f"fragment_{role}"
        self.code.line(f"{name}({memory}, {fragment});" if role == "d" else f"{name}({fragment}, {memory});")

    def copy_bytes(self, *, to_shared: bool) -> str:
        """Copy `bytes` bytes between `memory` and dynamic shared memory; return its address."""
        if to_shared:
            self.code.line("extern __shared__ __align__(32) uint32_t tile[];", "copy_words(tile, memory, bytes / 4);")
        else:
            self.code.line("__syncwarp();", "copy_words(memory, tile, bytes / 4);")
        return "tile"

    def move_line(self, pointer: str, *, to_shared: bool) -> None:
        """Copy the 16 bytes of this lane between global memory and the shared array of lines."""
        ends = ["lines[threadIdx.x * 4 + i]", f"{pointer}[threadIdx.x * 4 + i]"]
        if to_shared:
            self.code.line(f"__shared__ __align__(16) uint32_t lines[{4 * threads(self.instruction)}];")
        target, source = ends if to_shared else ends[::-1]
        self.code.repeat(4, f"{target} = {source};")

    def move_matrix(self) -> None:
        """Run ldmatrix, stmatrix or movmatrix on fragments and the line of this lane."""
        arguments = [f"fragment_{role}" for role in registers(self.instruction)]
        if self.instruction.addresses is not None:
            line = "lines + threadIdx.x * 4"
            is_generic = not state_space(self.instruction)
            arguments.append(line if is_generic else f"static_cast<uint32_t>(__cvta_generic_to_shared({line}))")
        self.code.line(f"{self.instruction.op}({', '.join(arguments)});")

    def synchronize_warp(self) -> None:
        """Append a barrier for the warp."""
        self.code.line("__syncwarp();")

    def stage(self, stage: Stage) -> str:
        """Copy A or B to a new shared array, as wgmma reads it; return its descriptor."""
        role = stage.operand.role
        strides = ", ".join(stride_names(stage.operand, f"{role}_"))
        self.code.line(f"__shared__ __align__({SWIZZLE_PERIOD}) uint8_t shared_{role}[{stage.size}];")
        self.code.line(f"stage_{stage.suffix}(shared_{role}, {role}, {strides});")
        return f"descriptor_{stage.suffix}(shared_{role})"

    def stage_image(self) -> None:
        """Copy the bytes of this case to dynamic shared memory."""
        self.code.line(
            "extern __shared__ uint32_t shared_bytes[];",
            "const uint32_t first = static_cast<uint32_t>(__cvta_generic_to_shared(shared_bytes));",
            f"const uint32_t base = (first + {SWIZZLE_PERIOD - 1}) & ~{SWIZZLE_PERIOD - 1}u;",
        )
        with self.code.braces(f"for (uint32_t i = threadIdx.x; i < bytes / 4; i += {THREADS})"):
            image = "shared[static_cast<size_t>(blockIdx.x) * (bytes / 4) + i]"
            self.code.line(f"shared_bytes[(base - first) / 4 + i] = {image};")

    def moved_descriptor(self, name: str) -> str:
        """Return a descriptor parameter, counted from the start of the image in shared memory."""
        return f"{name} + base / 16"

    def multiply_wgmma(self, variant: Variant, a: str, b: str, *, scale_d: bool) -> None:
        """Run wgmma between its fences; an empty `a` is the fragment, `scale_d` a parameter or true."""
        sparse = is_sparse(self.instruction)
        numbers = ([str(variant.selector)] if sparse else []) + wgmma_immediates(self.instruction, variant)
        arguments = ["fragment_d", a or "fragment_a", b, *(["fragment_metadata"] if sparse else [])]
        arguments += ["scale_d != 0"] if scale_d else []
        self.code.line("fence_async();", "__syncthreads();", "wgmma_fence();")
        self.code.line(self._call(numbers, arguments), "wgmma_commit();", "wgmma_wait();")
