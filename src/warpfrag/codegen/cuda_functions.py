"""Device functions in CUDA C++: the wrapper of an instruction, and the loads and stores of its registers.

All are inline, so that any number of files may include them. The functions of a family form blocks: the first, called
"", has the functions for all targets of the instruction; each further block has one function that only some targets
support. Each block has its own include guard, so headers for several targets can be included together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from warpfrag.codegen import memory_indexing, statement
from warpfrag.codegen.cuda_builder import (
    DEVICE,
    AsmOperand,
    CudaBuilder,
    InlineAssembly,
    RegisterArray,
    device_function,
    guarded,
)
from warpfrag.codegen.operation_texts import fill_template
from warpfrag.plans.loads import moved
from warpfrag.smem.descriptor import CODES, Descriptor
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import OperandBase

if TYPE_CHECKING:
    Blocks = dict[str, list[str]]

# Text that a header contains once, for the functions of every instruction.
COMMON = fill_template("element.cuh") + "\n"

# The template parameters of a wrapper, in the order of the statement: immediates that select a part of a word.
TEMPLATE_PARAMETERS = {
    "metadata": ("selector",),
    "scale_a": ("byte_id_a", "thread_id_a"),
    "scale_b": ("byte_id_b", "thread_id_b"),
}

# The inline-assembly constraint for an address in each state space; the last one is for generic addresses.
ADDRESSES = {
    "global": AsmOperand("l", "__cvta_generic_to_global(memory)"),
    "shared": AsmOperand("r", "static_cast<uint32_t>(__cvta_generic_to_shared(memory))"),
    "": AsmOperand("l", "memory"),
}


def register_array(operand: OperandBase, name: str = "") -> RegisterArray:
    """Return an operand's registers as an array, which is named after the operand's role unless `name` is given."""
    return RegisterArray(name or operand.role, operand.regs, operand.ptx_type)


def register_arrays(instruction: Instruction) -> dict[str, RegisterArray]:
    """Return every register operand as an array named after its role."""
    return {role: register_array(operand, role) for role, operand in statement.registers(instruction).items()}


def instruction_assembly(
    instruction: Instruction,
    outputs: Mapping[str, RegisterArray],
    inputs: Mapping[str, RegisterArray],
    *,
    immediates: Sequence[str] = (),
    address: AsmOperand | None = None,
    stride: AsmOperand | None = None,
) -> list[str]:
    """Return the inline assembly for one instruction; `outputs` and `inputs` are register arrays by role."""
    assembly = InlineAssembly(memory=address is not None)
    names = {role: assembly.output(*array.operands("=")) for role, array in outputs.items()}
    names |= {role: assembly.input(*array.operands()) for role, array in inputs.items()}
    further = [*(AsmOperand("n", name) for name in immediates), *(part for part in (address, stride) if part)]
    numbers = assembly.input(*further) if further else []
    memory = numbers[len(immediates) :]
    text = statement.statement(
        instruction,
        names,
        numbers[: len(immediates)],
        address=memory[0] if address else "",
        stride=memory[1] if stride else "",
    )
    name, operands = text.split(" ", maxsplit=1)
    return assembly.lines(f"{name} ", operands)


def start_with_thread(operand: OperandBase) -> CudaBuilder:
    """Return a function body that declares `lane` or `thread`, the index of this thread in its warp or warpgroup."""
    code = CudaBuilder()
    code.line(f"const int {memory_indexing.thread_name(operand)} = threadIdx.x & {math.prod(operand.threads) - 1};")
    return code


# ---- mma, including sparse and block-scaled forms


def mma_functions(instruction: Instruction, targets: Sequence[str]) -> Blocks:
    """Return the wrapper, a load or store for each operand, and the ldmatrix and stmatrix copies for these targets."""
    blocks: Blocks = {"": wrapper(instruction)}
    copies = memory_indexing.operand_copies(instruction, targets)
    for role, operand in statement.registers(instruction).items():
        blocks[""] += store_function(operand) if role == "d" else load_function(operand)
        for copy in copies.get(role, ()):
            on_every_target = set(instruction.targets) <= set(copy.matrix_move.targets)
            blocks.setdefault("" if on_every_target else f"_{shared_name(operand, copy)}", []).extend(
                shared_function(operand, copy)
            )
    return blocks


def wrapper(instruction: Instruction) -> list[str]:
    """Return `mma`, a function on register arrays; the selector and the ids are template parameters."""
    arrays = register_arrays(instruction)
    d, inputs = arrays["d"], {role: array for role, array in arrays.items() if role != "d"}
    names = [name for role in arrays for name in TEMPLATE_PARAMETERS.get(role, ())]
    code = CudaBuilder()
    code.line(*selector_check(instruction))
    code.line(*instruction_assembly(instruction, {"d": d}, inputs, immediates=names))
    parameters = [d.parameter(const=False), *(array.parameter() for array in inputs.values())]
    return [*template(dict.fromkeys(names, 0)), *device_function("mma", parameters, code)]


def template(parameters: Mapping[str, int]) -> list[str]:
    """Return the template line for integer parameters with defaults, or an empty list if there are none."""
    listed = ", ".join(f"int {name} = {default}" for name, default in parameters.items())
    return [f"template <{listed}>"] if listed else []


def selector_check(instruction: Instruction) -> list[str]:
    """Return a static assertion that the selector of a sparse mma is legal."""
    count = len(instruction.selectors)
    text = f'static_assert(0 <= selector && selector < {count}, "selectors are 0 to {count - 1}");'
    return [text] if "metadata" in instruction.operands else []


def _index(operand: OperandBase) -> list[str]:
    """Return statements that compute the coordinates of element i and its index in memory."""
    coordinates = [f"const int {dim} = {formula};" for dim, formula in memory_indexing.formulas(operand).items()]
    return [*coordinates, f"const int index = {memory_indexing.index_formula(operand)};"]


def _comment(operand: OperandBase) -> str:
    return f"// {memory_indexing.described(operand)}. {memory_indexing.described_index(operand)}."


def load_function(operand: OperandBase) -> list[str]:
    """Return a function such as `load_a`, which loads an operand from memory to registers."""
    array, code = register_array(operand), start_with_thread(operand)
    if operand.slots == 1:
        element = f"static_cast<const {array.c_type}*>(memory)[index]"
        code.repeat(operand.regs, *_index(operand), f"{array.name}[i] = {element};")
    else:
        reg, shift = _slot(operand)
        element = f"element<{memory_indexing.element_bits(operand)}>(memory, index)"
        code.line(f"for (uint32_t& word : {array.name}) word = 0;")
        code.repeat(operand.regs * operand.slots, *_index(operand), f"{array.name}[{reg}] |= {element} << {shift};")
    strides = [f"int {name}" for name in memory_indexing.stride_names(operand)]
    parameters = [array.parameter(const=False), "const void* memory", *strides]
    return [_comment(operand), *device_function(f"load_{operand.role}", parameters, code)]


def store_function(operand: OperandBase) -> list[str]:
    """Return `store_d`, which stores D's registers to memory."""
    array, code = register_array(operand), start_with_thread(operand)
    if operand.slots == 1:
        store = f"static_cast<{array.c_type}*>(memory)[index] = {array.name}[i];"
    else:
        reg, shift = _slot(operand)
        element = f"uint{operand.format.bits}_t"
        store = f"static_cast<{element}*>(memory)[index] = static_cast<{element}>({array.name}[{reg}] >> {shift});"
    code.repeat(operand.regs * operand.slots, *_index(operand), store)
    parameters = ["void* memory", *(f"int {name}" for name in memory_indexing.stride_names(operand)), array.parameter()]
    return [_comment(operand), *device_function(f"store_{operand.role}", parameters, code)]


def _slot(operand: OperandBase) -> tuple[str, str]:
    """Return expressions for the register and the shift of element i, for an operand with several slots."""
    reg = f"i >> {operand.slots.bit_length() - 1}" if operand.regs > 1 else "0"
    slot = f"(i & {operand.slots - 1})" if operand.regs > 1 else "i"
    shift = f"{slot} * {operand.spec.container}"
    return reg, f"({shift} + {operand.spec.low})" if operand.spec.low else shift


def shared_name(operand: OperandBase, copy: memory_indexing.SharedCopy) -> str:
    """Return the function name of a shared-memory copy, such as `ldmatrix_a_row`."""
    return f"{copy.matrix_move.op}_{operand.role}_{copy.order}"


def shared_function(operand: OperandBase, copy: memory_indexing.SharedCopy) -> list[str]:
    """Return the function that copies between shared memory and registers with ldmatrix or stmatrix."""
    matrix_move = copy.matrix_move
    stores = matrix_move.op == "stmatrix"
    line = "row" if copy.order == "row" else "column"
    array = register_array(operand)
    offset = "row * ld + col" if copy.order == "row" else "col * ld + row"
    direction = "to" if stores else "from"
    described = memory_indexing.described(operand)
    comment = [
        f"// {described} {direction} shared memory, {line} major, each {line} at a multiple of 16 bytes.",
        f"// Each lane passes the address of row {copy.formulas['row']}, col {copy.formulas['col']}.",
    ]
    if matrix_move.form.memory:
        comment.append(f"// In memory ({matrix_move.form.memory}) 16 elements are padded to 16 bytes.")
    code = start_with_thread(operand)
    code.line(*(f"const int {dim} = {formula};" for dim, formula in copy.formulas.items()))
    code.line(f"const void* line = static_cast<const char*>(memory) + {_in_bytes(offset, copy.memory_bits)};")
    code.line("const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(line));")
    held = {moved(matrix_move).role: array}
    outputs, inputs = ({}, held) if stores else (held, {})
    code.line(*instruction_assembly(matrix_move, outputs, inputs, address=AsmOperand("r", "address")))
    if copy.shift:
        code.line(f"for (uint32_t& word : {array.name}) word <<= {copy.shift};  // the code is in the middle bits")
    fragment = array.parameter(const=stores)
    parameters = ["void* memory", "int ld", fragment] if stores else [fragment, "const void* memory", "int ld"]
    return [*comment, *device_function(shared_name(operand, copy), parameters, code)]


def _in_bytes(elements: str, bits: int) -> str:
    """Return a C++ expression that converts a number of elements to bytes."""
    if bits == 8:
        return f"({elements})"
    return f"({elements}) * {bits // 8}" if bits > 8 else f"({elements}) / {8 // bits}"


# ---- ldmatrix, stmatrix, movmatrix


def matrix_move_functions(instruction: Instruction, _targets: Sequence[str]) -> Blocks:
    """Return the function for `ldmatrix`, `stmatrix` or `movmatrix`; the first two take a shared-memory address."""
    arrays = register_arrays(instruction)
    outputs, inputs = ({role: arrays[role]} if role in arrays else {} for role in "da")
    parameters = [array.parameter(const=role in inputs) for role, array in (outputs | inputs).items()]
    code, lines, address = CudaBuilder(), [], None
    per_lane = instruction.addresses
    if per_lane is not None:
        is_generic = not statement.state_space(instruction)
        address = AsmOperand("l" if is_generic else "r", "address")
        pointer = "const void* address" if outputs else "void* address"
        parameters.append(pointer if is_generic else "uint32_t address")
        all_lanes = per_lane.lanes == moved(instruction).spec.layout.lanes
        who = "Every lane gives" if all_lanes else f"Lanes 0 to {per_lane.lanes - 1} give"
        rest = "" if all_lanes else "; other lanes may pass any valid address"
        address_text = "generic address, in shared memory," if is_generic else "shared memory address"
        lines.append(f"// {who} the {address_text} of a 16-byte {per_lane.dims[1]}{rest}.")
    code.line(*instruction_assembly(instruction, outputs, inputs, address=address))
    return {"": [*lines, *device_function(instruction.op, parameters, code)]}


# ---- wmma


def wmma_functions(instruction: Instruction, _targets: Sequence[str]) -> Blocks:
    """Return a wmma.mma wrapper with its loads and stores: A and B in their own memory orders, C and D in both.

    Addresses are generic, so they may refer to global or shared memory.
    """
    lines = wrapper(instruction)
    for role, layout in zip("ab", instruction.layouts, strict=True):
        lines += wmma_move_function(statement.memory_instruction(instruction, role, layout), f"load_{role}")
    for layout in ("row", "col"):
        lines += wmma_move_function(statement.memory_instruction(instruction, "c", layout), f"load_c_{layout}")
        lines += wmma_move_function(statement.memory_instruction(instruction, "d", layout), f"store_d_{layout}")
    return {"": lines}


def wmma_move_functions(instruction: Instruction, _targets: Sequence[str]) -> Blocks:
    """Return `load` or `store`, the function for a single wmma.load or wmma.store."""
    return {"": wmma_move_function(instruction, instruction.form.operation.does)}


def wmma_move_function(move: Instruction, name: str) -> list[str]:
    """Return a function for wmma.load or wmma.store that takes a fragment, a pointer and a row or column stride."""
    ((role, operand),) = move.operands.items()
    array = register_array(operand, role)
    stores = role == "d"
    fragment = array.parameter(const=stores)
    parameters = ["void* memory", "int stride", fragment] if stores else [fragment, "const void* memory", "int stride"]
    space = statement.state_space(move)
    outputs, inputs = ({}, {role: array}) if stores else ({role: array}, {})
    code = CudaBuilder()
    stride = AsmOperand("r", "stride")
    code.line(*instruction_assembly(move, outputs, inputs, address=ADDRESSES[space], stride=stride))
    line = "row" if move.layouts == ("row",) else "column"
    where = f"{space} memory" if space else "memory"
    label = f"{role.upper()}, {operand.format}, {line} major in {where}, at a multiple of 32 bytes"
    return [f"// {label}: stride elements from one {line} to the next.", *device_function(name, parameters, code)]


# ---- wgmma

SHARED = "static_cast<uint32_t>(__cvta_generic_to_shared(shared))"


def wgmma_common() -> str:
    """Return the functions that every wgmma uses: descriptors and fences."""
    wait = InlineAssembly(memory=True)
    (remaining,) = wait.input(AsmOperand("n", "left"))
    wait_body = CudaBuilder()
    wait_body.line(wait.statement(statement.WAIT.format(remaining)))
    lines = [
        "// All 128 threads of a warpgroup call the functions of wgmma together.",
        "",
        "// The shared-memory descriptor of an operand, fields in bytes; base_offset counts rows of 128 bytes.",
        *_descriptor(),
        "// Required before the first wgmma, and after registers change.",
        *_fence("wgmma_fence", statement.FENCE),
        "// Commit all previous wgmma as one group.",
        *_fence("wgmma_commit", statement.COMMIT),
        "// Wait until at most this many groups are pending; 0 waits for all.",
        *template({"left": 0}),
        *device_function("wgmma_wait", [], wait_body),
        "// Make this thread's shared-memory stores visible to wgmma; a barrier must follow.",
        *_fence("fence_async", statement.PROXY_FENCE),
    ]
    wide = ["#ifdef __CUDACC_RTC__", "using uint64_t = unsigned long long;", "#endif", ""]
    return guarded("WARPFRAG_WGMMA", "warpfrag", lines, before=wide)


def _descriptor() -> list[str]:
    """Return the function that packs the fields of a descriptor into a 64-bit word."""
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
    """Return the wrappers of a wgmma, its register loads and stores, and the copies of A and B to shared memory."""
    lines = [line for staged in (True, False) for line in wgmma_wrapper(instruction, staged=staged)]
    lines += load_function(instruction.c) + store_function(instruction.d) + load_function(instruction.a)
    if statement.is_sparse(instruction):
        lines += load_function(instruction.metadata)
    for stage in memory_indexing.stages(instruction):
        lines += stage_function(stage) + descriptor_function(stage)
    return {"": lines}


def wgmma_wrapper(instruction: Instruction, *, staged: bool) -> list[str]:
    """Return `mma`, a function of D's registers, descriptors, and A's registers if A is in registers."""
    names = statement.wgmma_immediate_names(instruction, staged=staged)
    d, a = register_array(instruction.d), register_array(instruction.a)
    operands = [AsmOperand("l", "a")] if staged else a.operands()
    parameters = [d.parameter(const=False), "uint64_t a" if staged else a.parameter(), "uint64_t b"]
    operands.append(AsmOperand("l", "b"))
    if statement.is_sparse(instruction):
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
    metadata = [next(numbers), next(numbers)] if statement.is_sparse(instruction) else []
    scale_d = next(numbers)
    name, text = statement.wgmma_statement(instruction, results, left, right, "is_added", [*numbers], metadata).split(
        " ", maxsplit=1
    )
    code = CudaBuilder()
    code.line(*selector_check(instruction), *_immediate_checks(names))
    predicate = ("{ .reg .pred is_added; ", f"setp.ne.b32 is_added, {scale_d}, 0; ")
    code.line(*assembly.lines(*predicate, f"{name} ", f"{text} }}"))
    where = "shared memory" if staged else "registers"
    return [
        f"// D = A B + D, or A B if scale_d is false; A in {where}. Call it between wgmma_fence and wgmma_commit.",
        *template({name: int(name.startswith("scale")) for name in names}),
        *device_function("mma", parameters, code),
    ]


def _immediate_checks(names: list[str]) -> list[str]:
    """Return static assertions that signs and transpositions are legal."""
    checks = []
    for name in names:
        if name.startswith("scale"):
            checks.append(f'static_assert({name} == 1 || {name} == -1, "{name} is 1 or -1");')
        elif name.startswith("trans"):
            checks.append(f'static_assert({name} == 0 || {name} == 1, "{name} is 0 or 1");')
    return checks


def stage_function(stage: memory_indexing.Stage) -> list[str]:
    """Return `stage_a` or `stage_b`, which stores an operand as `descriptor_a` or `descriptor_b` describes it."""
    operand = stage.operand
    row, col = stage.coordinates
    bits = operand.format.bits
    c_type = f"uint{8 * stage.unit_bytes}_t"
    code = CudaBuilder()
    with code.braces(
        f"for (int unit = threadIdx.x & {statement.THREADS - 1}; unit < {stage.units}; unit += {statement.THREADS})"
    ):
        code.line(*(f"const int {name} = {formula};" for name, formula in stage.formulas.items()))
        code.line(f"const int index = {_factor(row)} * row_stride + {_factor(col)} * col_stride;")
        if bits < 8:
            step = "col_stride" if operand.role == "a" else "row_stride"
            code.line(f"{c_type} code = 0;")
            code.repeat(stage.elements, f"code |= element<{bits}>(memory, index + i * {step}) << i * {bits};")
        else:
            code.line(f"const {c_type} code = static_cast<const {c_type}*>(memory)[index];")
        code.line(f"*reinterpret_cast<{c_type}*>(static_cast<char*>(shared) + address) = code;")
    strides = [f"int {name}" for name in memory_indexing.stride_names(operand)]
    described = memory_indexing.described(operand)
    return [
        f"// {described}, to {stage.size} bytes of shared memory, at a multiple of {statement.SWIZZLE_PERIOD} bytes.",
        f"// {stage.description}. {memory_indexing.described_index(operand)}.",
        *device_function(f"stage_{stage.suffix}", ["void* shared", "const void* memory", *strides], code),
    ]


def _factor(text: str) -> str:
    return f"({text})" if " " in text else text


def descriptor_function(stage: memory_indexing.Stage) -> list[str]:
    """Return `descriptor_a` or `descriptor_b`: the descriptor of the staged tile."""
    fields = stage.descriptor
    code = CudaBuilder()
    code.line(f"return descriptor({SHARED}, {fields.leading}, {fields.stride}, {fields.swizzle});")
    return device_function(f"descriptor_{stage.suffix}", ["const void* shared"], code, "uint64_t")
