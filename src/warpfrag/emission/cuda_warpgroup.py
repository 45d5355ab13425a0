"""wgmma in CUDA C++: descriptors, fences, the wrapper of an instruction, its operands' ways in and out, and kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.emission.cuda_functions import guarded, load_function, store_function
from warpfrag.emission.cuda_syntax import DEVICE, Variable, function, indented, kernel, loop
from warpfrag.emission.staging import Stage
from warpfrag.emission.statement import identifier
from warpfrag.emission.strides import described, described_index, stride_names
from warpfrag.emission.warpgroup import (
    BEFORE,
    COMMIT,
    PATTERN,
    PROXY,
    THREADS,
    TILE_ROLES,
    WAIT,
    immediates,
    kernel_variants,
    parameters_of,
    raw_name,
    stages,
    statement,
    tile_name,
)
from warpfrag.memory.descriptor import CODES, Descriptor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warpfrag.catalog.instruction import Instruction
    from warpfrag.execution.operand import Registers
    from warpfrag.execution.wgmma_call import Variant

SHARED = "static_cast<uint32_t>(__cvta_generic_to_shared(shared))"


def common() -> str:
    """What the functions of every wgmma use: descriptors and fences."""
    parts = []
    for name, field in Descriptor.FIELDS.items():
        number = f"{name} / {field.unit}" if field.unit > 1 else "code" if name == "swizzle" else name
        part = f"static_cast<uint64_t>({number} & 0x{(1 << field.bits) - 1:x})"
        parts.append(f"{part} << {field.low}" if field.low else part)
    codes = " : ".join(f"swizzle == {width} ? {code}" for width, code in CODES.items() if code)
    signature = [
        f"{DEVICE} uint64_t descriptor(",
        "    uint32_t start, uint32_t leading, uint32_t stride, uint32_t swizzle, uint32_t base_offset = 0) {",
    ]
    body = [f"const uint32_t code = {codes} : 0;", f"return {parts[0]} |", *(f"       {part} |" for part in parts[1:])]
    body[-1] = body[-1].removesuffix(" |") + ";"
    wait = [f'asm volatile("{WAIT.format("%0")}" : : "n"(left) : "memory");']
    lines = [
        "// All 128 threads of a warpgroup call the functions of wgmma together.",
        "",
        "// The word that tells wgmma where an operand lies, all in bytes; base_offset counts rows of 128 bytes.",
        *signature,
        *indented(body),
        "}",
        "",
        "// wgmma may read and write registers after this, as they are now.",
        *_assembly("wgmma_fence", BEFORE),
        "// The products so far become a group.",
        *_assembly("wgmma_commit", COMMIT),
        "// Wait until at most so many groups are left; 0: all are done.",
        "template <int left = 0>",
        *function(f"{DEVICE} void wgmma_wait()", wait),
        "// wgmma may read what this thread wrote into shared memory after this; a barrier must follow.",
        *_assembly("fence_async", PROXY),
    ]
    head = ["#ifndef WARPFRAG_WGMMA", "#define WARPFRAG_WGMMA", "", "#ifdef __CUDACC_RTC__"]
    head += ["using uint64_t = unsigned long long;", "#endif", "", "namespace warpfrag {", ""]
    return "\n".join([*head, *lines, "}  // namespace warpfrag", "#endif", ""])


def _assembly(name: str, text: str) -> list[str]:
    return function(f"{DEVICE} void {name}()", [f'asm volatile("{text}" : : : "memory");'])


def block(instruction: Instruction) -> str:
    """The functions of one wgmma."""
    lines = [line for staged in (True, False) for line in wrapper(instruction, staged=staged)]
    lines += load_function(instruction.c) + store_function(instruction.d) + load_function(instruction.a)
    if instruction.form.is_sparse:
        lines += load_function(instruction.metadata)
    for stage in stages(instruction):
        lines += stage_function(stage) + descriptor_function(stage)
    name = identifier(instruction)
    return guarded(name, name, lines)


def wrapper(instruction: Instruction, *, staged: bool) -> list[str]:
    """`mma`: the product as a function of D's registers, descriptors, and A's registers where it lies there."""
    names = parameters_of(instruction, staged=staged)
    d, a = Variable("d", instruction.d, "d"), Variable("a", instruction.a, "a")
    count = iter(range(1000))
    places = {"d": [f"%{next(count)}" for _ in range(d.count)]}
    inputs, parameters = [], [d.parameter(const=False)]
    if staged:
        left: list[str] | str = f"%{next(count)}"
        inputs.append('"l"(a)')
        parameters.append("uint64_t a")
    else:
        left = [f"%{next(count)}" for _ in range(a.count)]
        inputs.append(a.constraints())
        parameters.append(a.parameter())
    right = f"%{next(count)}"
    inputs.append('"l"(b)')
    parameters.append("uint64_t b")
    metadata = []
    if instruction.form.is_sparse:
        metadata = [f"%{next(count)}", f"%{next(count)}"]
        inputs.append('"r"(metadata[0]), "n"(selector)')
        parameters.append("const uint32_t (&metadata)[1]")
    added = f"%{next(count)}"
    inputs.append('"r"(static_cast<int>(scale_d))')
    parameters.append("bool scale_d = true")
    rest = [f"%{next(count)}" for name in names if name != "selector"]
    inputs += [f'"n"({name})' for name in names if name != "selector"]
    text = statement(instruction, places["d"], left, right, "is_added", rest, metadata)
    name, operands = text.split(" ", maxsplit=1)
    body = [
        *_checks(instruction, names),
        "asm volatile(",
        '    "{ .reg .pred is_added; "',
        f'    "setp.ne.b32 is_added, {added}, 0; "',
        f'    "{name} "',
        f'    "{operands} }}"',
        f"    : {d.constraints('+')}",
        f"    : {', '.join(inputs)}",
        '    : "memory");',
    ]
    template = ", ".join(f"int {name} = {1 if name.startswith('scale') else 0}" for name in names)
    where = "shared memory" if staged else "registers"
    return [
        f"// D = A B + D, without D if not scale_d; A in {where}. Between wgmma_fence and wgmma_commit.",
        *([f"template <{template}>"] if names else []),
        *function(f"{DEVICE} void mma({', '.join(parameters)})", body),
    ]


def _checks(instruction: Instruction, names: list[str]) -> list[str]:
    found = []
    if "selector" in names:
        most = len(instruction.selectors)
        found.append(f'static_assert(0 <= selector && selector < {most}, "selectors are 0 to {most - 1}");')
    for name in names:
        if name.startswith("scale"):
            found.append(f'static_assert({name} == 1 || {name} == -1, "{name} is 1 or -1");')
        elif name.startswith("trans"):
            found.append(f'static_assert({name} == 0 || {name} == 1, "{name} is 0 or 1");')
    return found


def stage_function(stage: Stage) -> list[str]:
    """`stage_a` and its like: from memory into shared memory, as the descriptor of the same name reads it."""
    operand = stage.operand
    row, col = stage.coordinates
    bits = operand.format.bits
    kind = f"uint{8 * stage.unit_bytes}_t"
    index = f"{_inside(row)} * row_stride + {_inside(col)} * col_stride"
    if bits < 8:
        step = "col_stride" if operand.role == "a" else "row_stride"
        read = [
            f"{kind} code = 0;",
            *loop(stage.elements, [f"code |= element<{bits}>(memory, index + i * {step}) << i * {bits};"]),
        ]
    else:
        read = [f"const {kind} code = static_cast<const {kind}*>(memory)[index];"]
    body = [
        f"for (int unit = threadIdx.x & {THREADS - 1}; unit < {stage.units}; unit += {THREADS}) {{",
        *indented(
            [
                *(f"const int {name} = {formula};" for name, formula in stage.formulas.items()),
                f"const int index = {index};",
                *read,
                f"*reinterpret_cast<{kind}*>(static_cast<char*>(shared) + address) = code;",
            ]
        ),
        "}",
    ]
    parameters = ["void* shared", "const void* memory", *(f"int {name}" for name in stride_names(operand))]
    return [
        f"// {described(operand)}, into shared memory, at a multiple of {PATTERN}: {stage.size} bytes.",
        f"// {stage.described}. {described_index(operand)}.",
        *function(f"{DEVICE} void stage_{stage.suffix}({', '.join(parameters)})", body),
    ]


def _inside(text: str) -> str:
    return f"({text})" if " " in text else text


def descriptor_function(stage: Stage) -> list[str]:
    """`descriptor_a` and its like: of what `stage_a` left."""
    found = stage.descriptor
    numbers = f"{SHARED}, {found.leading}, {found.stride}, {found.swizzle}"
    return function(
        f"{DEVICE} uint64_t descriptor_{stage.suffix}(const void* shared)", [f"return descriptor({numbers});"]
    )


def kernels(instruction: Instruction) -> str:
    """Every kernel of one wgmma."""
    lines = []
    for variant in kernel_variants(instruction):
        lines += tile_kernel(instruction, variant)
        lines += [] if any(variant.trans) else raw_kernel(instruction, variant)
    name = identifier(instruction)
    head = [f"// Kernels of {instruction.name}", f"namespace warpfrag::{name} {{", ""]
    return "\n".join([*head, *lines, f"}}  // namespace warpfrag::{name}", ""])


def call(instruction: Instruction, variant: Variant, given: dict[str, str], function: str = "mma") -> list[str]:
    """A product with what must stand around it."""
    numbers = ([str(variant.selector)] if instruction.form.is_sparse else []) + immediates(instruction, variant)
    template = f"<{', '.join(numbers)}>" if numbers else ""
    return [
        "wgmma_fence();",
        f"{function}{template}({', '.join(given.values())});",
        "wgmma_commit();",
        "wgmma_wait();",
    ]


def _roles(instruction: Instruction) -> Iterator[tuple[str, Registers]]:
    """The matrices in memory, in the order of the parameters."""
    for role in TILE_ROLES:
        if role in instruction.operands:
            yield role, instruction.operands[role]


def tile_kernel(instruction: Instruction, variant: Variant) -> list[str]:
    """One tile from memory to memory, with one warpgroup."""
    parameters = []
    for role, operand in _roles(instruction):
        numbers = [f"int {name}" for name in stride_names(operand, f"{role}_")]
        parameters.append(", ".join([f"{'' if role == 'd' else 'const '}void* {role}", *numbers]))
    steps = {role: ", ".join(stride_names(operand, f"{role}_")) for role, operand in _roles(instruction)}
    d = Variable("d", instruction.d, "d")
    body = [f"{d.c_type} fragment_d[{d.count}];", f"load_c(fragment_d, c, {steps['c']});"]
    given = {"d": "fragment_d"}
    for role, operand in (("a", instruction.a), ("b", instruction.b)):
        if role == "a" and not variant.staged:
            body += [f"uint32_t fragment_a[{operand.regs}];", f"load_a(fragment_a, a, {steps['a']});"]
            given["a"] = "fragment_a"
            continue
        stage = Stage(operand, variant.trans["ab".index(role)])
        body += [
            f"__shared__ __align__({PATTERN}) uint8_t shared_{role}[{stage.size}];",
            f"stage_{stage.suffix}(shared_{role}, {role}, {steps[role]});",
        ]
        given[role] = f"descriptor_{stage.suffix}(shared_{role})"
    if instruction.form.is_sparse:
        body += ["uint32_t fragment_metadata[1];", f"load_metadata(fragment_metadata, metadata, {steps['metadata']});"]
        given["metadata"] = "fragment_metadata"
    body += ["fence_async();", "__syncthreads();", *call(instruction, variant, given)]
    body.append(f"store_d(d, {steps['d']}, fragment_d);")
    return [
        f"// One tile from memory to memory, with one warpgroup; {variant.described}.",
        *kernel(tile_name(instruction, variant), parameters, body),
    ]


def raw_kernel(instruction: Instruction, variant: Variant, function: str = "mma") -> list[str]:
    """Registers and bytes of shared memory in, registers out, with the parameters that the raw kernels in PTX take."""
    d = Variable("d", instruction.d, "d")
    pointers = ["uint32_t* d", *(f"const uint32_t* {name}" for name in ("a", "c", "metadata", "shared"))]
    parameters = [*pointers, "uint64_t a_descriptor", "uint64_t b_descriptor", "uint32_t scale_d", "uint32_t bytes"]
    to, source = "d", "c"
    if d.c_type != "uint32_t":
        to, source = f"reinterpret_cast<{d.c_type}*>(d)", f"reinterpret_cast<const {d.c_type}*>(c)"
    body = [
        "extern __shared__ uint32_t shared_bytes[];",
        f"const int thread = blockIdx.x * {THREADS} + threadIdx.x;",
        "const uint32_t first = static_cast<uint32_t>(__cvta_generic_to_shared(shared_bytes));",
        f"const uint32_t base = (first + {PATTERN - 1}) & ~{PATTERN - 1}u;",
        f"for (uint32_t i = threadIdx.x; i < bytes / 4; i += {THREADS}) {{",
        "    shared_bytes[(base - first) / 4 + i] = shared[static_cast<size_t>(blockIdx.x) * (bytes / 4) + i];",
        "}",
        f"{d.c_type} fragment_d[{d.count}];",
        *loop(d.count, [f"fragment_d[i] = {source}[thread * {d.count} + i];"]),
    ]
    given = {"d": "fragment_d"}
    if variant.staged:
        given["a"] = "a_descriptor + base / 16"
    else:
        body += [f"uint32_t fragment_a[{instruction.a.regs}];"]
        body += loop(instruction.a.regs, [f"fragment_a[i] = a[thread * {instruction.a.regs} + i];"])
        given["a"] = "fragment_a"
    given["b"] = "b_descriptor + base / 16"
    if instruction.form.is_sparse:
        body += ["uint32_t fragment_metadata[1] = {metadata[thread]};"]
        given["metadata"] = "fragment_metadata"
    given["scale_d"] = "scale_d != 0"
    body += ["fence_async();", "__syncthreads();", *call(instruction, variant, given, function)]
    body += loop(d.count, [f"{to}[thread * {d.count} + i] = fragment_d[i];"])
    return [
        f"// Registers in, registers out, a block for each case: uint32[cases][{THREADS}][words]; shared is",
        "// uint8[cases][bytes], and descriptors count from its first byte.",
        f"// It takes bytes + {PATTERN} of dynamic shared memory.",
        *kernel(raw_name(instruction, variant), parameters, body),
    ]
