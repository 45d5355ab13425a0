"""Tile kernels in CUDA C++, which compute one tile of a gemm with the functions of an instruction.

Kernels have unmangled names (extern "C"), so that a program can look them up; they belong in a source file, not in a
header.
"""

from collections.abc import Iterable, Sequence

from warpfrag.codegen import memory_indexing, statement
from warpfrag.codegen.cuda_builder import CudaBuilder
from warpfrag.codegen.cuda_functions import register_array, shared_name
from warpfrag.codegen.operation_texts import fill_template
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, Immediates
from warpfrag.isa.operands import REGISTER_BITS
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import OperandBase
from warpfrag.tensorcore.wgmma_call import Variant

# Included once, for the kernels of every instruction.
COMMON = fill_template("copy_words.cuh") + "\n"


class CudaKernel:
    """A kernel in CUDA C++ with a pointer and strides as parameters for each matrix."""

    def __init__(self, instruction: Instruction, operands: Iterable[OperandBase]) -> None:
        """Start a kernel, and declare a fragment array for each operand, such as `fragment_a`."""
        self.instruction = instruction
        self.code = CudaBuilder()
        self.parameters: list[str] = []
        for operand in operands:
            self.declare(operand)

    def declare(self, operand: OperandBase) -> None:
        """Declare the fragment of an operand."""
        self.code.line(register_array(operand, f"fragment_{operand.role}").declaration())

    def take(self, role: str, strides: Iterable[str] = ()) -> None:
        """Add the parameters of a matrix: its pointer and its strides."""
        self.parameters += [f"{'' if role == 'd' else 'const '}void* {role}", *(f"int {name}" for name in strides)]

    def kernel(self, name: str, comment: str) -> list[str]:
        """Return the lines of the kernel, preceded by a comment."""
        return [f"// {comment}", *self.code.kernel(name, self.parameters)]

    def move_tile(self, operand: OperandBase, strides: Sequence[str | int] = (), fragment: str = "") -> None:
        """Load a fragment from memory, or store D; strides are kernel parameters by default."""
        role = operand.role
        listed = ", ".join(map(str, strides or memory_indexing.stride_names(operand, f"{role}_")))
        if role == "d":
            self.code.line(f"store_d(d, {listed}, fragment_d);")
        else:
            self.code.line(f"load_{role}(fragment_{fragment or role}, {role}, {listed});")

    def _call(self, numbers: list[str], arguments: Iterable[str]) -> str:
        template_arguments = f"<{', '.join(numbers)}>" if numbers else ""
        return f"mma{template_arguments}({', '.join(arguments)});"

    def multiply(self, choice: Immediates) -> None:
        """Append the instruction, with its fragments as operands."""
        fragments = (f"fragment_{role}" for role in statement.registers(self.instruction))
        self.code.line(self._call(statement.immediates(self.instruction, choice), fragments))

    def copy_through_shared(self, operand: OperandBase, copy: memory_indexing.SharedCopy) -> None:
        """Load a fragment through a new shared array with ldmatrix, or store D with stmatrix."""
        role, stride = operand.role, max(memory_indexing.contiguous_strides(operand, copy.order))
        rows, cols = memory_indexing.extents(operand)
        words = rows * cols * copy.memory_bits // REGISTER_BITS
        self.code.line(f"__shared__ __align__(16) uint32_t shared_{role}[{words}];")
        memory, fragment = f"shared_{role}, {stride}", f"fragment_{role}"
        function = shared_name(operand, copy)
        if role == "d":
            self.code.line(f"{function}({memory}, {fragment});", "__syncwarp();", f"copy_words(d, shared_d, {words});")
        else:
            self.code.line(f"copy_words(shared_{role}, {role}, {words});", f"{function}({fragment}, {memory});")

    def stage(self, stage: memory_indexing.Stage) -> str:
        """Copy A or B to a new shared array in the layout that wgmma reads, and return its descriptor."""
        role = stage.operand.role
        strides = ", ".join(memory_indexing.stride_names(stage.operand, f"{role}_"))
        self.code.line(f"__shared__ __align__({statement.SWIZZLE_PERIOD}) uint8_t shared_{role}[{stage.size}];")
        self.code.line(f"stage_{stage.suffix}(shared_{role}, {role}, {strides});")
        return f"descriptor_{stage.suffix}(shared_{role})"

    def multiply_wgmma(self, variant: Variant, a: str, b: str) -> None:
        """Append wgmma between its fences; `a` is a descriptor or the fragment."""
        sparse = statement.is_sparse(self.instruction)
        numbers = ([str(variant.selector)] if sparse else []) + statement.wgmma_immediates(self.instruction, variant)
        self.code.line("fence_async();", "__syncthreads();", "wgmma_fence();")
        arguments = ["fragment_d", a, b, *(["fragment_metadata"] if sparse else [])]
        self.code.line(self._call(numbers, arguments), "wgmma_commit();", "wgmma_wait();")


def mma_kernels(instruction: Instruction, targets: Sequence[str]) -> list[str]:
    """Return a tile kernel for every selector, and one for each path through shared memory."""
    lines = [line for choice in statement.choices(instruction) for line in tile_kernel(instruction, choice)]
    return lines + [
        line
        for copies in memory_indexing.kernel_copies(instruction, targets)
        for line in shared_kernel(instruction, copies)
    ]


def tile_kernel(instruction: Instruction, choice: Immediates) -> list[str]:
    """Return the kernel that computes one tile from memory to memory, with one warp."""
    operands = statement.registers(instruction)
    kernel = CudaKernel(instruction, operands.values())
    for role, operand in operands.items():
        kernel.take(role, memory_indexing.stride_names(operand, f"{role}_"))
        if role != "d":
            kernel.move_tile(operand)
    kernel.multiply(choice)
    kernel.move_tile(operands["d"])
    return kernel.kernel(statement.tile_name(instruction, choice), "one tile from memory to memory, with one warp")


def shared_kernel(instruction: Instruction, copies: dict[str, memory_indexing.SharedCopy]) -> list[str]:
    """Return the kernel that computes one contiguous tile through shared memory, in the memory orders of `copies`."""
    operands, orders = statement.registers(instruction), memory_indexing.memory_orders(copies)
    kernel = CudaKernel(instruction, operands.values())
    for role in operands:
        kernel.take(role)
    for role in [*(role for role in operands if role != "d"), "d"]:
        if role == "d":
            kernel.multiply(DEFAULT_IMMEDIATES)
        if role in copies:
            kernel.copy_through_shared(operands[role], copies[role])
        else:
            kernel.move_tile(operands[role], memory_indexing.contiguous_strides(operands[role], orders[role]))
    comment = f"one tile through shared memory; contiguous matrices: {memory_indexing.described_orders(orders)}"
    return kernel.kernel(statement.shared_kernel_name(instruction, orders), comment)


def wmma_kernels(instruction: Instruction, _targets: Sequence[str]) -> list[str]:
    """Return a tile kernel for each memory order of C and D."""
    lines = []
    for order in ("row", "col"):
        kernel = CudaKernel(instruction, (instruction.operands[role] for role in "dabc"))
        for role in "dabc":
            kernel.take(role, [f"{role}_stride"])
        for role, suffix in (("a", "a"), ("b", "b"), ("c", f"c_{order}")):
            kernel.code.line(f"load_{suffix}(fragment_{role}, {role}, {role}_stride);")
        kernel.multiply(DEFAULT_IMMEDIATES)
        kernel.code.line(f"store_d_{order}(d, d_stride, fragment_d);")
        comment = f"one tile from memory to memory, with one warp; C and D {order} major"
        lines += kernel.kernel(statement.tile_name(instruction, order=order), comment)
    return lines


def wgmma_kernels(instruction: Instruction, _targets: Sequence[str]) -> list[str]:
    """Return the tile kernels of one wgmma."""
    return [line for each in statement.kernel_variants(instruction) for line in wgmma_tile_kernel(instruction, each)]


def wgmma_tile_kernel(instruction: Instruction, variant: Variant) -> list[str]:
    """Return the kernel that computes one tile from memory to memory, with one warpgroup."""
    statement.check_variant(instruction, variant)
    kernel = CudaKernel(instruction, [instruction.d])
    for role, operand in statement.tile_operands(instruction).items():
        kernel.take(role, memory_indexing.stride_names(operand, f"{role}_"))
    kernel.move_tile(instruction.c, fragment="d")
    if variant.staged:
        a = kernel.stage(memory_indexing.Stage(instruction.a, variant.trans[0]))
    else:
        a = "fragment_a"
        kernel.declare(instruction.a)
        kernel.move_tile(instruction.a)
    b = kernel.stage(memory_indexing.Stage(instruction.b, variant.trans[1]))
    if statement.is_sparse(instruction):
        kernel.declare(instruction.metadata)
        kernel.move_tile(instruction.metadata)
    kernel.multiply_wgmma(variant, a, b)
    kernel.move_tile(instruction.d)
    comment = f"one tile from memory to memory, with one warpgroup; {variant.description}"
    return kernel.kernel(statement.tile_name(instruction, variant), comment)
