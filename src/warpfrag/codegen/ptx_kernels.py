"""Raw kernels in PTX, whose inputs and outputs are registers.

Operands are uint32[cases][lanes][words] in global memory; an operand that the instruction does not read may be null.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from warpfrag.codegen import ptx_builder, statement
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, Immediates
from warpfrag.isa.legality import check_immediates
from warpfrag.layout.coordinates import LANES
from warpfrag.plans.loads import LINE
from warpfrag.smem.shared_memory import UNIT
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import OperandBase
from warpfrag.tensorcore.wgmma_call import USUAL, Variant

RAW_PARAMETERS = {**dict.fromkeys(statement.ROLES, ".u64"), "cases": ".u32"}
# `shared` is uint8[cases][bytes], bytes a multiple of 4; the launch provides bytes + 1024 of dynamic shared memory
WGMMA_RAW_PARAMETERS = {
    **dict.fromkeys(("d", "a", "c", "metadata", "shared", "descriptor_a", "descriptor_b"), ".u64"),
    **dict.fromkeys(("scale_d", "bytes"), ".u32"),
}
DYNAMIC = "dynamic_shared"


def declarations(instructions: Iterable[Instruction]) -> list[str]:
    """Return the declaration of dynamic shared memory if the kernels of these instructions need it."""
    is_used = any(instruction.form.is_warpgroup or _uses_shared(instruction) for instruction in instructions)
    return [ptx_builder.dynamic_shared(DYNAMIC, statement.SWIZZLE_PERIOD)] if is_used else []


def _uses_shared(instruction: Instruction) -> bool:
    """Return True for a load or store that accesses shared memory."""
    return instruction.addresses is not None or statement.state_space(instruction) == "shared"


class PtxKernel:
    """A kernel in PTX; `parameters` have their PTX types."""

    def __init__(self, instruction: Instruction, parameters: Mapping[str, str]) -> None:
        """Create an empty kernel."""
        self.instruction = instruction
        self.parameters = parameters
        self.code = ptx_builder.PtxBuilder()
        self.fragments: dict[str, list[str]] = {}
        self.thread = self.case = self.base = ""
        self._parameters: dict[str, str] = {}
        self._bytes: dict[str, int] = {}  # the size of a register of each fragment in bytes

    def parameter(self, name: str) -> str:
        """Return the register that holds a parameter, loading it on first use."""
        if name not in self._parameters:
            self._parameters[name] = self.code.load_parameter(name, self.parameters[name])
        return self._parameters[name]

    def kernel(self, name: str, *comment: str) -> list[str]:
        """Return the lines of the kernel, preceded by a comment."""
        comments = [f"// {text}" for text in (self.instruction.name, *comment)]
        return [*comments, *self.code.entry(name, self.parameters)]

    def declare(self, role: str, operand: OperandBase) -> None:
        """Declare a fragment."""
        self.fragments[role] = self.code.declare_vector(f"{role}_", operand.regs, operand.ptx_type)
        self._bytes[role] = ptx_builder.width(ptx_builder.declared_type(operand.ptx_type))

    def start(self, scope: Literal["warp", "cases", "block"]) -> None:
        """Compute the thread's lane, or its index in the grid if each warp (`cases`) or block handles one case."""
        code = self.code
        if scope == "warp":
            self.thread = code.compute("lane", "mov.u32", "%laneid")
            return
        block, size, tid = (code.compute("index", "mov.u32", f"%{name}.x") for name in ("ctaid", "ntid", "tid"))
        self.thread = code.compute("thread", "mad.lo.u32", block, size, tid)
        self.case = block
        if scope == "cases":
            case = code.compute("case", "shr.u32", self.thread, statement.threads(self.instruction).bit_length() - 1)
            outside = code.declare("outside", ".pred")
            code.emit(f"setp.ge.u32 {outside}, {case}, {self.parameter('cases')}")
            code.emit(f"@{outside} ret")

    def load(self, role: str, operand: OperandBase, pointer: str = "") -> None:
        """Declare a fragment and load its registers from an array, by default the array of its role."""
        self.declare(role, operand)
        for word, address in self._addresses(pointer or role, role):
            self.code.emit(f"ld.global.b{8 * self._bytes[role]} {word}, {address}")

    def store(self, role: str, pointer: str = "") -> None:
        """Store the registers of a fragment in the array of its role, or in the given array."""
        for word, address in self._addresses(pointer or role, role):
            self.code.emit(f"st.global.b{8 * self._bytes[role]} {address}, {word}")

    def _addresses(self, pointer: str, role: str) -> Iterator[tuple[str, str]]:
        """Yield each register of a fragment with its address."""
        words, size = self.fragments[role], self._bytes[role]
        offset = size * len(words)
        start = self.code.compute(f"{pointer}_start", "mad.wide.u32", self.thread, offset, self.parameter(pointer))
        yield from ((word, f"[{start} + {size * reg}]") for reg, word in enumerate(words))

    def copy_loop(
        self, name: str, thread: str, count: int, memory: str, shared: str, *, to_shared: bool = True
    ) -> None:
        """Copy `bytes` bytes between global and shared memory with `count` threads, each moving a word at a time."""
        code = self.code
        offset = code.compute("offset", "mul.lo.u32", thread, 4)
        size, word, outside = self.parameter("bytes"), code.declare("word"), code.declare("outside", ".pred")
        code.label(f"COPY_{name}")
        code.emit(f"setp.ge.u32 {outside}, {offset}, {size}")
        code.emit(f"@{outside} bra COPIED_{name}")
        target = code.compute("shared", "add.u32", shared, offset)
        source = code.compute("global", "mad.wide.u32", offset, 1, memory)
        ends = (("global", source), ("shared", target))
        (source_space, read), (target_space, written) = ends if to_shared else ends[::-1]
        code.emit(f"ld.{source_space}.b32 {word}, [{read}]")
        code.emit(f"st.{target_space}.b32 [{written}], {word}")
        code.emit(f"add.u32 {offset}, {offset}, {4 * count}")
        code.emit(f"bra COPY_{name}")
        code.label(f"COPIED_{name}")

    def stage_image(self) -> None:
        """Copy the shared-memory bytes of this case to dynamic shared memory."""
        code = self.code
        first = code.compute("first", "mov.u32", DYNAMIC)
        first = code.compute("first", "add.u32", first, statement.SWIZZLE_PERIOD - 1)
        self.base = code.compute("base", "and.b32", first, -statement.SWIZZLE_PERIOD)
        tid = code.compute("thread_in_block", "mov.u32", "%tid.x")
        image = code.compute("image", "mad.wide.u32", self.case, self.parameter("bytes"), self.parameter("shared"))
        self.copy_loop("IMAGE", tid, statement.THREADS, image, self.base)

    def moved_descriptor(self, name: str) -> str:
        """Return a descriptor parameter, adjusted to the address of the image in shared memory."""
        units = self.code.compute("units", "shr.u32", self.base, (UNIT - 1).bit_length())
        return self.code.compute("moved", "mad.wide.u32", units, 1, self.parameter(name))

    def multiply_wgmma(self, variant: Variant, a: str | list[str], b: str) -> None:
        """Append wgmma between its fences; `a` is a descriptor or the registers."""
        code, fragments = self.code, self.fragments
        is_added = code.declare("is_added", ".pred")
        code.emit(f"setp.ne.u32 {is_added}, {self.parameter('scale_d')}, 0")
        metadata = [fragments["metadata"][0], str(variant.selector)] if statement.is_sparse(self.instruction) else []
        numbers = statement.wgmma_immediates(self.instruction, variant)
        product = statement.wgmma_statement(self.instruction, fragments["d"], a, b, is_added, numbers, metadata)
        for text in (statement.PROXY_FENCE, ptx_builder.BLOCK_BARRIER, statement.FENCE, product, statement.COMMIT):
            code.emit(text)
        code.emit(statement.WAIT.format(0))


def raw_kernels(instruction: Instruction) -> list[str]:
    """Return every raw kernel: one for each selector or, for wgmma, one for each place where A may be stored."""
    if instruction.form.is_warpgroup:
        variants = (variant for variant in statement.kernel_variants(instruction) if not any(variant.trans))
        return [line for variant in variants for line in wgmma_raw_kernel(instruction, variant)]
    if not instruction.form.is_product:
        return move_kernel(instruction)
    return [line for choice in statement.choices(instruction) for line in raw_kernel(instruction, choice)]


def raw_kernel(instruction: Instruction, choice: Immediates = DEFAULT_IMMEDIATES) -> list[str]:
    """Return the raw kernel of an mma that one warp executes."""
    check_immediates(instruction.form, choice, instruction.operands.selected_layouts)
    kernel = PtxKernel(instruction, RAW_PARAMETERS)
    kernel.start("cases")
    for role, operand in statement.registers(instruction).items():
        if role == "d":
            kernel.declare(role, operand)
        else:
            kernel.load(role, operand)
    kernel.code.emit(statement.statement(instruction, kernel.fragments, statement.immediates(instruction, choice)))
    kernel.store("d")
    shape = f"uint32[cases][{statement.threads(instruction)}][words]"
    return kernel.kernel(
        statement.raw_name(instruction, choice),
        f"registers in, registers out: each operand is {shape}; one case per warp",
    )


def move_kernel(instruction: Instruction) -> list[str]:
    """Return the kernel for a single load, store or movmatrix, executed by one warp.

    Shared memory starts as a copy of `memory` and is copied back afterwards; each lane of ldmatrix and stmatrix points
    to its own 16 bytes.
    """
    in_shared, stores = _uses_shared(instruction), instruction.op in {"stmatrix", "wmma.store.d"}
    kernel = PtxKernel(
        instruction, {**dict.fromkeys(("registers", "memory"), ".u64"), **dict.fromkeys(("stride", "bytes"), ".u32")}
    )
    kernel.start("warp")
    code = kernel.code
    for role, operand in instruction.operands.items():
        if stores or (instruction.op, role) == ("movmatrix", "a"):
            kernel.load(role, operand, "registers")
        else:
            kernel.declare(role, operand)
    address = kernel.parameter("memory")
    tile = ""
    if in_shared:
        tile = address = code.compute("tile", "mov.u32", DYNAMIC)
        kernel.copy_loop("IN", kernel.thread, LANES, kernel.parameter("memory"), tile)
        code.emit(ptx_builder.WARP_BARRIER)
    if instruction.addresses is not None:
        address = code.compute("line", "mad.lo.u32", kernel.thread, LINE, tile)
    if in_shared and not statement.state_space(instruction):
        wide = code.compute("wide", "mad.wide.u32", address, 1, 0)
        address = code.compute("generic", "cvta.shared.u64", wide)
    code.emit(statement.statement(instruction, kernel.fragments, address=address, stride=kernel.parameter("stride")))
    if stores and in_shared:
        code.emit(ptx_builder.WARP_BARRIER)
        kernel.copy_loop("OUT", kernel.thread, LANES, kernel.parameter("memory"), tile, to_shared=False)
    if not stores:
        kernel.store("d" if "d" in kernel.fragments else next(iter(kernel.fragments)), "registers")
    comment = [f"`registers` holds the words (f64: doubles) of each of the {LANES} lanes in turn; one warp"]
    if in_shared:
        comment.append("the first `bytes` bytes of memory pass through dynamic shared memory of that size")
    return kernel.kernel(statement.raw_name(instruction), *comment)


def wgmma_raw_kernel(instruction: Instruction, variant: Variant = USUAL) -> list[str]:
    """Return the kernel that takes registers and bytes of shared memory, and returns registers."""
    statement.check_variant(instruction, variant)
    kernel = PtxKernel(instruction, WGMMA_RAW_PARAMETERS)
    kernel.start("block")
    kernel.stage_image()
    kernel.load("d", instruction.d, "c")
    if not variant.staged:
        kernel.load("a", instruction.a)
    if statement.is_sparse(instruction):
        kernel.load("metadata", instruction.metadata)
    a = kernel.moved_descriptor("descriptor_a") if variant.staged else kernel.fragments["a"]
    kernel.multiply_wgmma(variant, a, kernel.moved_descriptor("descriptor_b"))
    kernel.store("d")
    return kernel.kernel(
        statement.raw_name(instruction, variant),
        f"registers in, registers out, one case per block: each operand is uint32[cases][{statement.THREADS}][words]",
        "shared is uint8[cases][bytes], and descriptors are relative to its first byte",
        f"it needs bytes + {statement.SWIZZLE_PERIOD} of dynamic shared memory",
    )
