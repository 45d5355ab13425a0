"""wgmma in CUDA C++: descriptors, fences, the wrapper of an instruction, loads, stores and staging, and kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.codegen.cuda_builder import DEVICE, AsmOperand, CudaBuilder, InlineAssembly, device_function, guarded
from warpfrag.codegen.cuda_functions import load_function, register_array, selector_check, store_function, template
from warpfrag.codegen.cuda_kernels import matrix_parameters
from warpfrag.codegen.memory_indexing import described, described_index, stride_names
from warpfrag.codegen.staging import Stage
from warpfrag.codegen.wgmma_variants import (
    COMMIT,
    FENCE,
    PROXY_FENCE,
    SWIZZLE_PERIOD,
    THREADS,
    WAIT,
    immediate_names,
    immediates,
    is_sparse,
    kernel_variants,
    raw_name,
    stages,
    statement,
    tile_name,
    tile_operands,
)
from warpfrag.smem.descriptor import CODES, Descriptor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.wgmma_call import Variant

SHARED = "static_cast<uint32_t>(__cvta_generic_to_shared(shared))"


def common() -> str:
    """What the functions of every wgmma use: descriptors and fences."""
    wait = InlineAssembly(memory=True)
    (remaining,) = wait.input(AsmOperand("n", "left"))
    wait_body = CudaBuilder()
    wait_body.line(wait.statement(WAIT.format(remaining)))
    lines = [
        "// All 128 threads of a warpgroup call the functions of wgmma together.",
        "",
        "// The shared-memory descriptor of an operand, fields in bytes; base_offset counts rows of 128 bytes.",
        *_descriptor(),
        "// wgmma may read and write registers after this, as they are now.",
        *_fence("wgmma_fence", FENCE),
        "// The products so far become a group.",
        *_fence("wgmma_commit", COMMIT),
        "// Wait until at most this many groups are pending; 0: all are done.",
        *template({"left": 0}),
        *device_function("wgmma_wait", [], wait_body),
        "// wgmma may read what this thread wrote into shared memory after this; a barrier must follow.",
        *_fence("fence_async", PROXY_FENCE),
    ]
    wide = ["#ifdef __CUDACC_RTC__", "using uint64_t = unsigned long long;", "#endif", ""]
    return guarded("WARPFRAG_WGMMA", "warpfrag", lines, before=wide)


def _descriptor() -> list[str]:
    """The function that packs the fields of a descriptor into its word."""
    parts = []
    for name, field in Descriptor.FIELDS.items():
        number = f"{name} / {field.unit}" if field.unit > 1 else "code" if name == "swizzle" else name
        part = f"static_cast<uint64_t>({number} & 0x{(1 << field.bits) - 1:x})"
        parts.append(f"{part} << {field.low}" if field.low else part)
    codes = " : ".join(f"swizzle == {width} ? {code}" for width, code in CODES.items() if code)
    code = CudaBuilder()
    code.line(f"const uint32_t code = {codes} : 0;")
    code.line(*f"return {' |@       '.join(parts)};".split("@"))
    parameters = "uint32_t start, uint32_t leading, uint32_t stride, uint32_t swizzle, uint32_t base_offset = 0"
    return code.function(f"{DEVICE} uint64_t descriptor(\n    {parameters})")


def _fence(name: str, text: str) -> list[str]:
    code = CudaBuilder()
    code.assembly(text, memory=True)
    return device_function(name, [], code)


def wgmma_functions(instruction: Instruction, _targets: Sequence[str]) -> dict[str, list[str]]:
    """The wrappers of one wgmma, loads and stores of its registers, and how A and B get into shared memory."""
    lines = [line for staged in (True, False) for line in wrapper(instruction, staged=staged)]
    lines += load_function(instruction.c) + store_function(instruction.d) + load_function(instruction.a)
    if is_sparse(instruction):
        lines += load_function(instruction.metadata)
    for stage in stages(instruction):
        lines += stage_function(stage) + descriptor_function(stage)
    return {"": lines}


def wrapper(instruction: Instruction, *, staged: bool) -> list[str]:
    """`mma`: the product as a function of D's registers, descriptors, and A's registers where it lies there."""
    names = immediate_names(instruction, staged=staged)
    d, a = register_array(instruction.d), register_array(instruction.a)
    operands = [AsmOperand("l", "a")] if staged else a.operands()
    parameters = [d.parameter(const=False), "uint64_t a" if staged else a.parameter(), "uint64_t b"]
    operands.append(AsmOperand("l", "b"))
    if is_sparse(instruction):
        operands += [AsmOperand("r", "metadata[0]"), AsmOperand("n", "selector")]
        parameters.append("const uint32_t (&metadata)[1]")
    operands.append(AsmOperand("r", "static_cast<int>(scale_d)"))
    parameters.append("bool scale_d = true")
    operands += [AsmOperand("n", name) for name in names if name != "selector"]
    assembly = InlineAssembly(memory=True)
    results = assembly.output(*d.operands("+"))
    numbers = iter(assembly.input(*operands))
    left = next(numbers) if staged else [next(numbers) for _ in range(a.count)]
    right = next(numbers)
    metadata = [next(numbers), next(numbers)] if is_sparse(instruction) else []
    scale_d = next(numbers)
    name, text = statement(instruction, results, left, right, "is_added", [*numbers], metadata).split(" ", maxsplit=1)
    code = CudaBuilder()
    code.line(*selector_check(instruction), *_immediate_checks(names))
    predicate = ("{ .reg .pred is_added; ", f"setp.ne.b32 is_added, {scale_d}, 0; ")
    code.line(*assembly.lines(*predicate, f"{name} ", f"{text} }}"))
    where = "shared memory" if staged else "registers"
    return [
        f"// D = A B + D, without D if not scale_d; A in {where}. Between wgmma_fence and wgmma_commit.",
        *template({name: int(name.startswith("scale")) for name in names}),
        *device_function("mma", parameters, code),
    ]


def _immediate_checks(names: list[str]) -> list[str]:
    """Static assertions that signs and transpositions are legal."""
    checks = []
    for name in names:
        if name.startswith("scale"):
            checks.append(f'static_assert({name} == 1 || {name} == -1, "{name} is 1 or -1");')
        elif name.startswith("trans"):
            checks.append(f'static_assert({name} == 0 || {name} == 1, "{name} is 0 or 1");')
    return checks


def stage_function(stage: Stage) -> list[str]:
    """`stage_a` and its like: from memory into shared memory, as the descriptor of the same name reads it."""
    operand = stage.operand
    row, col = stage.coordinates
    bits = operand.format.bits
    kind = f"uint{8 * stage.unit_bytes}_t"
    code = CudaBuilder()
    with code.braces(f"for (int unit = threadIdx.x & {THREADS - 1}; unit < {stage.units}; unit += {THREADS})"):
        code.line(*(f"const int {name} = {formula};" for name, formula in stage.formulas.items()))
        code.line(f"const int index = {_factor(row)} * row_stride + {_factor(col)} * col_stride;")
        if bits < 8:
            step = "col_stride" if operand.role == "a" else "row_stride"
            code.line(f"{kind} code = 0;")
            code.repeat(stage.elements, f"code |= element<{bits}>(memory, index + i * {step}) << i * {bits};")
        else:
            code.line(f"const {kind} code = static_cast<const {kind}*>(memory)[index];")
        code.line(f"*reinterpret_cast<{kind}*>(static_cast<char*>(shared) + address) = code;")
    parameters = ["void* shared", "const void* memory", *(f"int {name}" for name in stride_names(operand))]
    return [
        f"// {described(operand)}, into shared memory, at a multiple of {SWIZZLE_PERIOD}: {stage.size} bytes.",
        f"// {stage.described}. {described_index(operand)}.",
        *device_function(f"stage_{stage.suffix}", parameters, code),
    ]


def _factor(text: str) -> str:
    return f"({text})" if " " in text else text


def descriptor_function(stage: Stage) -> list[str]:
    """`descriptor_a` and its like: of what `stage_a` left."""
    fields = stage.descriptor
    code = CudaBuilder()
    code.line(f"return descriptor({SHARED}, {fields.leading}, {fields.stride}, {fields.swizzle});")
    return device_function(f"descriptor_{stage.suffix}", ["const void* shared"], code, "uint64_t")


def wgmma_kernels(instruction: Instruction, _targets: Sequence[str]) -> list[str]:
    """Every kernel of one wgmma."""
    lines = []
    for variant in kernel_variants(instruction):
        lines += tile_kernel(instruction, variant)
        lines += [] if any(variant.trans) else raw_kernel(instruction, variant)
    return lines


def _multiply(
    code: CudaBuilder, instruction: Instruction, variant: Variant, arguments: dict[str, str], function: str = "mma"
) -> None:
    """A product with the fences and the wait that must stand around it."""
    numbers = ([str(variant.selector)] if is_sparse(instruction) else []) + immediates(instruction, variant)
    template_arguments = f"<{', '.join(numbers)}>" if numbers else ""
    code.line("fence_async();", "__syncthreads();", "wgmma_fence();")
    code.line(f"{function}{template_arguments}({', '.join(arguments.values())});")
    code.line("wgmma_commit();", "wgmma_wait();")


def tile_kernel(instruction: Instruction, variant: Variant) -> list[str]:
    """One tile from memory to memory, with one warpgroup."""
    operands = tile_operands(instruction)
    strides = {role: ", ".join(stride_names(operand, f"{role}_")) for role, operand in operands.items()}
    code = CudaBuilder()
    code.line(register_array(instruction.d, "fragment_d").declaration())
    code.line(f"load_c(fragment_d, c, {strides['c']});")
    arguments = {"d": "fragment_d"}
    for role, operand in (("a", instruction.a), ("b", instruction.b)):
        if role == "a" and not variant.staged:
            code.line(f"uint32_t fragment_a[{operand.regs}];", f"load_a(fragment_a, a, {strides['a']});")
            arguments["a"] = "fragment_a"
            continue
        stage = Stage(operand, variant.trans["ab".index(role)])
        code.line(f"__shared__ __align__({SWIZZLE_PERIOD}) uint8_t shared_{role}[{stage.size}];")
        code.line(f"stage_{stage.suffix}(shared_{role}, {role}, {strides[role]});")
        arguments[role] = f"descriptor_{stage.suffix}(shared_{role})"
    if is_sparse(instruction):
        code.line("uint32_t fragment_metadata[1];")
        code.line(f"load_metadata(fragment_metadata, metadata, {strides['metadata']});")
        arguments["metadata"] = "fragment_metadata"
    _multiply(code, instruction, variant, arguments)
    code.line(f"store_d(d, {strides['d']}, fragment_d);")
    return [
        f"// One tile from memory to memory, with one warpgroup; {variant.described}.",
        *code.kernel(tile_name(instruction, variant), matrix_parameters(operands)),
    ]


def raw_kernel(instruction: Instruction, variant: Variant, function: str = "mma") -> list[str]:
    """Registers and bytes of shared memory in, registers out, with the parameters that the raw kernels in PTX take."""
    d = register_array(instruction.d, "fragment_d")
    pointers = ["uint32_t* d", *(f"const uint32_t* {name}" for name in ("a", "c", "metadata", "shared"))]
    parameters = [*pointers, "uint64_t a_descriptor", "uint64_t b_descriptor", "uint32_t scale_d", "uint32_t bytes"]
    to, source = "d", "c"
    if d.c_type != "uint32_t":
        to, source = f"reinterpret_cast<{d.c_type}*>(d)", f"reinterpret_cast<const {d.c_type}*>(c)"
    code = CudaBuilder()
    code.line("extern __shared__ uint32_t shared_bytes[];")
    code.line(f"const int thread = blockIdx.x * {THREADS} + threadIdx.x;")
    code.line("const uint32_t first = static_cast<uint32_t>(__cvta_generic_to_shared(shared_bytes));")
    code.line(f"const uint32_t base = (first + {SWIZZLE_PERIOD - 1}) & ~{SWIZZLE_PERIOD - 1}u;")
    with code.braces(f"for (uint32_t i = threadIdx.x; i < bytes / 4; i += {THREADS})"):
        image = "shared[static_cast<size_t>(blockIdx.x) * (bytes / 4) + i]"
        code.line(f"shared_bytes[(base - first) / 4 + i] = {image};")
    code.line(d.declaration())
    code.repeat(d.count, f"fragment_d[i] = {source}[thread * {d.count} + i];")
    arguments = {"d": "fragment_d"}
    if variant.staged:
        arguments["a"] = "a_descriptor + base / 16"
    else:
        count = instruction.a.regs
        code.line(f"uint32_t fragment_a[{count}];")
        code.repeat(count, f"fragment_a[i] = a[thread * {count} + i];")
        arguments["a"] = "fragment_a"
    arguments["b"] = "b_descriptor + base / 16"
    if is_sparse(instruction):
        code.line("uint32_t fragment_metadata[1] = {metadata[thread]};")
        arguments["metadata"] = "fragment_metadata"
    arguments["scale_d"] = "scale_d != 0"
    _multiply(code, instruction, variant, arguments, function)
    code.repeat(d.count, f"{to}[thread * {d.count} + i] = fragment_d[i];")
    return [
        f"// Registers in, registers out, a block for each case: uint32[cases][{THREADS}][words]; shared is",
        "// uint8[cases][bytes], and descriptors count from its first byte.",
        f"// It takes bytes + {SWIZZLE_PERIOD} of dynamic shared memory.",
        *code.kernel(raw_name(instruction, variant), parameters),
    ]
