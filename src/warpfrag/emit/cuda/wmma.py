"""CUDA C++ for wmma: it loads and stores its fragments itself, so no layout is needed and every target is served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.emit.cuda.products import call, declarations, raw_kernel, wrapper
from warpfrag.emit.cuda.text import DEVICE, Extra, Variable, assembly, function, kernel, loop
from warpfrag.emit.statement import FIRST_CHOICE, memory_instruction, raw_name, tile_name

if TYPE_CHECKING:
    from warpfrag.instruction import Instruction

SHARED = Extra("r", "static_cast<uint32_t>(__cvta_generic_to_shared(memory))")
ADDRESS = {
    "": Extra("l", "memory"),
    "global": Extra("l", "__cvta_generic_to_global(memory)"),
    "shared": SHARED,
    "shared::cta": SHARED,
}


def move_function(move: Instruction, name: str) -> list[str]:
    """wmma.load or wmma.store as a function of a fragment, a pointer and the stride of rows or columns."""
    role = move.op[-1]
    variable = Variable(role, move.operands[role], role)
    stores = role == "d"
    fragment = variable.parameter(const=stores)
    parameters = ["void* memory", "int stride", fragment] if stores else [fragment, "const void* memory", "int stride"]
    body = assembly(
        move,
        [] if stores else [variable],
        [variable] if stores else [],
        address=ADDRESS[move.form.space],
        stride=Extra("r", "stride"),
    )
    line = "row" if move.layouts == ("row",) else "column"
    where = f"{move.form.space} memory" if move.form.space else "memory"
    what = f"{role.upper()}, {move.operands[role].format}, {line} major in {where}, at a multiple of 32 bytes"
    comment = f"// {what}: stride elements from one {line} to the next."
    return [comment, *function(f"{DEVICE} void {name}({', '.join(parameters)})", body)]


def product(instruction: Instruction) -> list[str]:
    """Everything for one wmma.mma: A and B have the memory layout that the instruction names, C and D either."""
    lines = wrapper(instruction)
    for role, layout in zip("ab", instruction.layouts, strict=True):
        lines += move_function(memory_instruction(instruction, role, layout), f"load_{role}")
    for layout in ("row", "col"):
        lines += move_function(memory_instruction(instruction, "c", layout), f"load_c_{layout}")
        lines += move_function(memory_instruction(instruction, "d", layout), f"store_d_{layout}")
    parameters = [f"{'' if role == 'd' else 'const '}void* {role}, int {role}_stride" for role in "dabc"]
    for layout in ("row", "col"):
        body = [
            *declarations(instruction),
            "load_a(fragment_a, a, a_stride);",
            "load_b(fragment_b, b, b_stride);",
            f"load_c_{layout}(fragment_c, c, c_stride);",
            call(instruction, FIRST_CHOICE),
            f"store_d_{layout}(d, d_stride, fragment_d);",
        ]
        lines += [
            f"// One tile from memory to memory, with one warp; C and D {layout} major.",
            *kernel(tile_name(instruction, order=layout), parameters, body),
        ]
    return lines + raw_kernel(instruction, FIRST_CHOICE)


def move(instruction: Instruction) -> list[str]:
    """A wmma.load or wmma.store by itself: the wrapper, and a kernel from memory to raw registers or back.

    No kernel of shared memory: what is there when it starts is nobody's.
    """
    if instruction.form.space.startswith("shared"):
        return move_function(instruction, "store" if instruction.op == "wmma.store.d" else "load")
    role = instruction.op[-1]
    variable = Variable(role, instruction.operands[role], role)
    stores = role == "d"
    registers = f"{'const ' if stores else ''}{variable.c_type}* registers"
    memory = f"{'' if stores else 'const '}void* memory"
    at = f"registers[threadIdx.x * {variable.count} + i]"
    fragment = f"{variable.c_type} fragment[{variable.count}];"
    if stores:
        body = [fragment, *loop(variable.count, [f"fragment[i] = {at};"]), "store(memory, stride, fragment);"]
    else:
        body = [fragment, "load(fragment, memory, stride);", *loop(variable.count, [f"{at} = fragment[i];"])]
    return [
        *move_function(instruction, "store" if stores else "load"),
        "// Registers are one word (f64: double) after another for each of 32 lanes; launch one warp.",
        *kernel(raw_name(instruction), [registers, memory, "int stride"], body),
    ]
