"""CUDA C++ helpers of one operand: between memory and registers by the layout, and by ldmatrix or stmatrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.emit.cuda.text import DEVICE, LANE, Extra, Variable, assembly, function, loop
from warpfrag.emit.memory import described, described_index, element_bits, formulas, index_formula, stride_names
from warpfrag.emit.shared import moved

if TYPE_CHECKING:
    from warpfrag.emit.shared import SharedCopy
    from warpfrag.operand import Registers

# Shared by every instruction of a unit.
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

// Helpers take strides in elements: (ld, 1) is row major, (1, ld) column major. All 32 lanes of a warp take part.
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

// Copy a tile of whole words between global and shared memory, with one warp.
__device__ __forceinline__ void copy_words(void* to, const void* from, int words) {
    for (int i = threadIdx.x & 31; i < words; i += 32) {
        static_cast<uint32_t*>(to)[i] = static_cast<const uint32_t*>(from)[i];
    }
    __syncwarp();
}

}  // namespace warpfrag
#endif
"""


def _index(operand: Registers) -> list[str]:
    """The coordinates of element i, and its place in memory."""
    coordinates = [f"const int {dim} = {text};" for dim, text in formulas(operand).items()]
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
    return [_comment(operand), *function(signature, [LANE, *body])]


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
    return [_comment(operand), *function(signature, [LANE, *body])]


def _slot(operand: Registers) -> tuple[str, str]:
    """Register and shift of element i of an operand with several slots."""
    reg = f"i >> {len(operand.layout.slot)}" if operand.regs > 1 else "0"
    slot = f"(i & {operand.slots - 1})" if operand.regs > 1 else "i"
    shift = f"{slot} * {operand.row.container}"
    return reg, f"({shift} + {operand.row.low})" if operand.row.low else shift


def shared_function(operand: Registers, copy: SharedCopy) -> list[str]:
    """`ldmatrix_a_row` and its like: between shared memory and registers, a row or column per lane."""
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
        LANE,
        *(f"const int {dim} = {text};" for dim, text in copy.formulas.items()),
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
    registers = variable.parameter(const=stores)
    parameters = ["void* memory", "int ld", registers] if stores else [registers, "const void* memory", "int ld"]
    signature = f"{DEVICE} void {shared_name(operand, copy)}({', '.join(parameters)})"
    return [*comment, *function(signature, body)]


def _in_bytes(elements: str, bits: int) -> str:
    """A number of elements as bytes."""
    if bits == 8:
        return f"({elements})"
    return f"({elements}) * {bits // 8}" if bits > 8 else f"({elements}) / {8 // bits}"


def shared_name(operand: Registers, copy: SharedCopy) -> str:
    """What such a helper is called."""
    return f"{copy.mover.op}_{operand.role}_{copy.order}"
