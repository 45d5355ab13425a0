"""Device functions in CUDA C++: the wrapper of an instruction, and what fills and empties its registers.

All are inline, so that any number of files may include them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.emission.cuda_syntax import DEVICE, Extra, Variable, assembly, function, loop, thread_index
from warpfrag.emission.shared import operand_copies
from warpfrag.emission.statement import identifier, memory_instruction, registers, state_space
from warpfrag.emission.strides import described, described_index, element_bits, formulas, index_formula, stride_names
from warpfrag.motion.lines import moved

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warpfrag.catalog.instruction import Instruction
    from warpfrag.emission.shared import SharedCopy
    from warpfrag.execution.operand import Registers

# Used by the functions of every instruction.
COMMON = """\
#ifndef WARPFRAG_ELEMENT
#define WARPFRAG_ELEMENT

#ifdef __CUDACC_RTC__  // NVRTC comes without <cstdint>
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned;
#else
#include <cstdint>
#endif

// Functions take strides in elements: (ld, 1) is row major, (1, ld) column major. All lanes of a warp take part.
namespace warpfrag {

// The code of an element of packed memory, low bits first: 4-bit element 3 is the high half of byte 1.
template <int bits>
__device__ __forceinline__ uint32_t element(const void* memory, int index) {
    if constexpr (bits == 16) {
        return static_cast<const uint16_t*>(memory)[index];
    } else if constexpr (bits == 8) {
        return static_cast<const uint8_t*>(memory)[index];
    } else {
        const uint8_t* bytes = static_cast<const uint8_t*>(memory) + (index * bits >> 3);
        const int low = index * bits & 7;
        uint32_t found = bytes[0];
        if (low + bits > 8) found |= static_cast<uint32_t>(bytes[1]) << 8;  // a 6-bit element crosses bytes
        return found >> low & ((1u << bits) - 1);
    }
}

}  // namespace warpfrag
#endif
"""

# The template parameters of a block-scaled wrapper, in the order of the statement.
IDS = ("byte_id_a", "thread_id_a", "byte_id_b", "thread_id_b")

# How inline assembly takes an address in each state space.
ADDRESSES = {
    "global": Extra("l", "__cvta_generic_to_global(memory)"),
    "shared": Extra("r", "static_cast<uint32_t>(__cvta_generic_to_shared(memory))"),
    "": Extra("l", "memory"),
}


def blocks(instruction: Instruction, targets: Sequence[str]) -> Iterator[str]:
    """The functions of one instruction for these targets.

    First come those that every target of the instruction has, then each that only some have. Each block is guarded by
    itself: headers that were emitted for several targets may be included together.
    """
    name = identifier(instruction)
    if instruction.op == "wmma.mma":
        yield guarded(name, name, _wmma_product(instruction))
    elif instruction.form.is_wmma:
        stores = instruction.op == "wmma.store.d"
        yield guarded(name, name, wmma_function(instruction, "store" if stores else "load"))
    elif not instruction.form.is_product:
        yield guarded(name, name, mover_wrapper(instruction))
    else:
        lines = wrapper(instruction)
        added = {}
        copies = operand_copies(instruction, targets)
        for role, operand in registers(instruction).items():
            lines += store_function(operand) if role == "d" else load_function(operand)
            for copy in copies.get(role, ()):
                text = shared_function(operand, copy)
                if set(instruction.targets) <= set(copy.mover.targets):
                    lines += text
                else:
                    added[shared_name(operand, copy)] = text
        yield guarded(name, name, lines)
        for own, text in added.items():
            yield guarded(f"{name}_{own}", name, text)


def guarded(guard: str, namespace: str, lines: Sequence[str]) -> str:
    """Lines in a namespace, which a file may include more than once."""
    macro = f"WARPFRAG_{guard.upper()}"
    head = [f"#ifndef {macro}", f"#define {macro}", "", f"namespace warpfrag::{namespace} {{", ""]
    return "\n".join([*head, *lines, f"}}  // namespace warpfrag::{namespace}", "#endif", ""])


def variables(instruction: Instruction) -> dict[str, Variable]:
    """Every register operand as an array named after its role."""
    return {role: Variable(role, operand, role) for role, operand in registers(instruction).items()}


def wrapper(instruction: Instruction) -> list[str]:
    """`mma`: a product as a function of register arrays; selector and ids are template parameters."""
    every = variables(instruction)
    names = (["selector"] if instruction.form.is_sparse else []) + (list(IDS) if instruction.form.block_scale else [])
    inputs = [variable for role, variable in every.items() if role != "d"]
    head = [f"template <{', '.join(f'int {name} = 0' for name in names)}>"] if names else []
    checks = []
    if instruction.form.is_sparse:
        most = len(instruction.selectors)
        checks = [f'static_assert(0 <= selector && selector < {most}, "selectors are 0 to {most - 1}");']
    parameters = [every["d"].parameter(const=False), *(variable.parameter() for variable in inputs)]
    body = assembly(instruction, [every["d"]], inputs, immediates=[Extra("n", name) for name in names])
    return [*head, *function(f"{DEVICE} void mma({', '.join(parameters)})", [*checks, *body])]


def _index(operand: Registers) -> list[str]:
    """The coordinates of element i, and its place in memory."""
    coordinates = [f"const int {dim} = {formula};" for dim, formula in formulas(operand).items()]
    return [*coordinates, f"const int index = {index_formula(operand)};"]


def _comment(operand: Registers) -> str:
    return f"// {described(operand)}. {described_index(operand)}."


def load_function(operand: Registers) -> list[str]:
    """`load_a` and its like: memory to registers."""
    variable = Variable(operand.role, operand, operand.role)
    parameters = [
        variable.parameter(const=False),
        "const void* memory",
        *(f"int {name}" for name in stride_names(operand)),
    ]
    if operand.slots == 1:
        body = loop(
            operand.regs,
            [*_index(operand), f"{operand.role}[i] = static_cast<const {variable.c_type}*>(memory)[index];"],
        )
    else:
        reg, shift = _slot(operand)
        element = f"element<{element_bits(operand)}>(memory, index)"
        body = [
            f"for (uint32_t& word : {operand.role}) word = 0;",
            *loop(operand.regs * operand.slots, [*_index(operand), f"{operand.role}[{reg}] |= {element} << {shift};"]),
        ]
    signature = f"{DEVICE} void load_{operand.role}({', '.join(parameters)})"
    return [_comment(operand), *function(signature, [thread_index(operand), *body])]


def store_function(operand: Registers) -> list[str]:
    """`store_d`: registers to memory."""
    variable = Variable(operand.role, operand, operand.role)
    parameters = ["void* memory", *(f"int {name}" for name in stride_names(operand)), variable.parameter()]
    if operand.slots == 1:
        store = f"static_cast<{variable.c_type}*>(memory)[index] = {operand.role}[i];"
    else:
        reg, shift = _slot(operand)
        code = f"static_cast<uint{operand.format.bits}_t>({operand.role}[{reg}] >> {shift})"
        store = f"static_cast<uint{operand.format.bits}_t*>(memory)[index] = {code};"
    body = loop(operand.regs * operand.slots, [*_index(operand), store])
    signature = f"{DEVICE} void store_{operand.role}({', '.join(parameters)})"
    return [_comment(operand), *function(signature, [thread_index(operand), *body])]


def _slot(operand: Registers) -> tuple[str, str]:
    """Register and shift of element i of an operand with several slots."""
    reg = f"i >> {operand.slots.bit_length() - 1}" if operand.regs > 1 else "0"
    slot = f"(i & {operand.slots - 1})" if operand.regs > 1 else "i"
    shift = f"{slot} * {operand.row.container}"
    return reg, f"({shift} + {operand.row.low})" if operand.row.low else shift


def shared_name(operand: Registers, copy: SharedCopy) -> str:
    """`ldmatrix_a_row` and its like: what the function of a shared copy is called."""
    return f"{copy.mover.op}_{operand.role}_{copy.order}"


def shared_function(operand: Registers, copy: SharedCopy) -> list[str]:
    """Between shared memory and registers by ldmatrix or stmatrix, a row or column per lane."""
    mover = copy.mover
    stores = mover.op == "stmatrix"
    line = "row" if copy.order == "row" else "column"
    variable = Variable(moved(mover).role, operand, operand.role)
    place = "row * ld + col" if copy.order == "row" else "col * ld + row"
    direction = "to" if stores else "from"
    comment = [
        f"// {described(operand)} {direction} shared memory, {line} major, each {line} at a multiple of 16 bytes.",
        f"// A lane gives the address of row {copy.formulas['row']}, col {copy.formulas['col']}.",
    ]
    if mover.form.memory:
        comment.append(f"// In memory ({mover.form.memory}) 16 elements are padded to 16 bytes.")
    body = [
        thread_index(operand),
        *(f"const int {dim} = {formula};" for dim, formula in copy.formulas.items()),
        f"const void* line = static_cast<const char*>(memory) + {_in_bytes(place, copy.memory_bits)};",
        "const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(line));",
        *assembly(
            mover,
            [] if stores else [variable],
            [variable] if stores else [],
            address=Extra("r", "address"),
        ),
    ]
    if copy.shift:
        body.append(f"for (uint32_t& word : {variable.name}) word <<= {copy.shift};  // the code sits in the middle")
    fragment = variable.parameter(const=stores)
    parameters = ["void* memory", "int ld", fragment] if stores else [fragment, "const void* memory", "int ld"]
    signature = f"{DEVICE} void {shared_name(operand, copy)}({', '.join(parameters)})"
    return [*comment, *function(signature, body)]


def _in_bytes(elements: str, bits: int) -> str:
    """A number of elements as bytes."""
    if bits == 8:
        return f"({elements})"
    return f"({elements}) * {bits // 8}" if bits > 8 else f"({elements}) / {8 // bits}"


def mover_wrapper(instruction: Instruction) -> list[str]:
    """`ldmatrix`, `stmatrix` or `movmatrix` as a function of register arrays and an address in shared memory."""
    every = variables(instruction)
    is_generic = not state_space(instruction)
    address = None if instruction.op == "movmatrix" else Extra("l" if is_generic else "r", "address")
    outputs = [every["d"]] if "d" in every else []
    inputs = [every["a"]] if "a" in every else []
    parameters = [variable.parameter(const=variable in inputs) for variable in (*outputs, *inputs)]
    if address:
        pointer = "void* address" if outputs == [] else "const void* address"
        parameters.append(pointer if is_generic else "uint32_t address")
    lines = []
    given = instruction.addresses
    if given is not None:
        all_lanes = given.lanes == moved(instruction).row.layout.lanes
        who = "Every lane gives" if all_lanes else f"Lanes 0 to {given.lanes - 1} give"
        rest = "" if all_lanes else "; the others give any valid one"
        kind = "generic address, in shared memory," if is_generic else "shared memory address"
        lines.append(f"// {who} the {kind} of a {given.dims[1]}, 16 bytes{rest}.")
    signature = f"{DEVICE} void {instruction.op}({', '.join(parameters)})"
    return lines + function(signature, assembly(instruction, outputs, inputs, address=address))


def wmma_function(move: Instruction, name: str) -> list[str]:
    """wmma.load or wmma.store as a function of a fragment, a pointer and the stride of rows or columns."""
    role = move.op[-1]
    variable = Variable(role, move.operands[role], role)
    stores = role == "d"
    fragment = variable.parameter(const=stores)
    parameters = ["void* memory", "int stride", fragment] if stores else [fragment, "const void* memory", "int stride"]
    space = state_space(move)
    body = assembly(
        move,
        [] if stores else [variable],
        [variable] if stores else [],
        address=ADDRESSES[space],
        stride=Extra("r", "stride"),
    )
    line = "row" if move.layouts == ("row",) else "column"
    where = f"{space} memory" if space else "memory"
    what = f"{role.upper()}, {move.operands[role].format}, {line} major in {where}, at a multiple of 32 bytes"
    comment = f"// {what}: stride elements from one {line} to the next."
    return [comment, *function(f"{DEVICE} void {name}({', '.join(parameters)})", body)]


def _wmma_product(instruction: Instruction) -> list[str]:
    """The wrapper of a wmma.mma and its loads and stores: A and B lie in memory as its name says, C and D as asked.

    Addresses are generic: they may be of global or of shared memory.
    """
    lines = wrapper(instruction)
    for role, layout in zip("ab", instruction.layouts, strict=True):
        lines += wmma_function(memory_instruction(instruction, role, layout), f"load_{role}")
    for layout in ("row", "col"):
        lines += wmma_function(memory_instruction(instruction, "c", layout), f"load_c_{layout}")
        lines += wmma_function(memory_instruction(instruction, "d", layout), f"store_d_{layout}")
    return lines
