"""CUDA C++ for mma and mma.sp: the wrapper, helpers for every operand, and kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.emit.cuda.helpers import load_function, shared_function, shared_name, store_function
from warpfrag.emit.cuda.text import DEVICE, Extra, Variable, assembly, function, kernel, loop
from warpfrag.emit.memory import contiguous_strides, extents, stride_names
from warpfrag.emit.shared import described_orders, kernel_copies, memory_orders, operand_copies
from warpfrag.emit.statement import (
    FIRST_CHOICE,
    ROLES,
    choices,
    immediates,
    raw_name,
    registers,
    shared_kernel_name,
    tile_name,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.emit.shared import SharedCopy
    from warpfrag.emit.statement import Choice
    from warpfrag.instruction import Instruction

IDS = ("byte_id_a", "thread_id_a", "byte_id_b", "thread_id_b")


def variables(instruction: Instruction) -> dict[str, Variable]:
    """Every register operand as an array named after its role."""
    return {role: Variable(role, operand, role) for role, operand in registers(instruction).items()}


def wrapper(instruction: Instruction) -> list[str]:
    """`mma`: the instruction as a function of register arrays; selector and ids are template parameters."""
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


def call(instruction: Instruction, choice: Choice) -> str:
    """A call of the wrapper with these immediates."""
    # the template parameters of the wrapper are 0 by default, as in the first choice
    template = "" if choice == FIRST_CHOICE else f"<{', '.join(immediates(instruction, choice))}>"
    return f"mma{template}({', '.join(f'fragment_{role}' for role in registers(instruction))});"


def declarations(instruction: Instruction) -> list[str]:
    """The fragments of a kernel."""
    return [
        f"{variable.c_type} fragment_{role}[{variable.count}];" for role, variable in variables(instruction).items()
    ]


def raw_kernel(instruction: Instruction, choice: Choice) -> list[str]:
    """Registers in, registers out, with the parameters that the raw kernels in PTX take."""
    every = variables(instruction)
    pointers = [f"{'' if role == 'd' else 'const '}uint32_t* {role}" for role in ROLES]
    body = [
        "const int thread = blockIdx.x * blockDim.x + threadIdx.x;",
        "if (thread / 32 >= cases) return;",
        *declarations(instruction),
    ]
    for role, variable in every.items():
        at = f"[thread * {variable.count} + i]"
        source = role if variable.c_type == "uint32_t" else f"reinterpret_cast<const {variable.c_type}*>({role})"
        if role != "d":
            body += loop(variable.count, [f"fragment_{role}[i] = {source}{at};"])
    body.append(call(instruction, choice))
    d = every["d"]
    target = "d" if d.c_type == "uint32_t" else f"reinterpret_cast<{d.c_type}*>(d)"
    body += loop(d.count, [f"{target}[thread * {d.count} + i] = fragment_d[i];"])
    return [
        "// Registers in, registers out: each operand is uint32[cases][32][words]; one case per warp.",
        *kernel(raw_name(instruction, choice), [*pointers, "int cases"], body),
    ]


def tile_kernel(instruction: Instruction, choice: Choice) -> list[str]:
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
        words = rows * cols * copy.memory_bits // 32
        before.append(f"__shared__ __align__(16) uint32_t shared_{role}[{words}];")
        helper = shared_name(operand, copy)
        if role == "d":
            after += [f"{helper}(shared_d, {max(steps)}, fragment_d);", "__syncwarp();"]
            after.append(f"copy_words(d, shared_d, {words});")
        else:
            before.append(f"copy_words(shared_{role}, {role}, {words});")
            before.append(f"{helper}(fragment_{role}, shared_{role}, {max(steps)});")
    parameters = [f"{'' if role == 'd' else 'const '}void* {role}" for role in registers(instruction)]
    body = [*before, call(instruction, FIRST_CHOICE), *after]
    return [
        f"// One tile through shared memory. In memory, without gaps: {described_orders(orders)}.",
        *kernel(shared_kernel_name(instruction, orders), parameters, body),
    ]


def product(instruction: Instruction, targets: Sequence[str]) -> list[str]:
    """Everything for one mma or mma.sp."""
    moves = operand_copies(instruction, targets)
    lines = wrapper(instruction)
    for role, operand in registers(instruction).items():
        lines += store_function(operand) if role == "d" else load_function(operand)
        for copy in moves.get(role, ()):
            lines += shared_function(operand, copy)
    for choice in choices(instruction):
        lines += tile_kernel(instruction, choice)
        lines += raw_kernel(instruction, choice)
    for chosen in kernel_copies(instruction, targets):
        lines += shared_kernel(instruction, chosen)
    return lines
