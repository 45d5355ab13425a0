"""PTX for mma and mma.sp: functions for every operand, and kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.emit.memory import contiguous_strides, extents, stride_names
from warpfrag.emit.ptx.helpers import function_name, move_function
from warpfrag.emit.ptx.raw import raw_kernel
from warpfrag.emit.ptx.text import Body, entry, load_parameter
from warpfrag.emit.shared import described_orders, kernel_copies, memory_orders, moved
from warpfrag.emit.statement import (
    FIRST_CHOICE,
    choices,
    immediates,
    registers,
    shared_kernel_name,
    statement,
    tile_name,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.emit.shared import SharedCopy
    from warpfrag.emit.statement import Choice
    from warpfrag.instruction import Instruction
    from warpfrag.operand import Registers


def product(instruction: Instruction, targets: Sequence[str]) -> list[str]:
    """Everything for one mma or mma.sp."""
    lines = []
    for operand in registers(instruction).values():
        lines += move_function(instruction, operand)
    for choice in choices(instruction):
        lines += tile_kernel(instruction, choice)
        lines += raw_kernel(instruction, choice)
    for chosen in kernel_copies(instruction, targets):
        lines += shared_kernel(instruction, chosen)
    return lines


def _call(body: Body, instruction: Instruction, operand: Registers, words: list[str], places: list[str]) -> None:
    """Move every register of an operand by its function."""
    name = function_name(instruction, operand)
    for reg, word in enumerate(words):
        arguments = ", ".join([*places, str(reg)])
        if operand.role == "d":
            body.do(f"call.uni {name}, ({arguments}, {word})")
        else:
            body.do(f"call.uni ({word}), {name}, ({arguments})")


def tile_kernel(instruction: Instruction, choice: Choice) -> list[str]:
    """One tile from memory to memory, with one warp."""
    body, names, places = Body(), {}, {}
    parameters: dict[str, str] = {}
    for role, operand in registers(instruction).items():
        own = {role: ".u64", **dict.fromkeys(stride_names(operand, f"{role}_"), ".u32")}
        parameters |= own
        places[role] = [load_parameter(body, name, kind) for name, kind in own.items()]
        names[role] = body.vector(f"{role}_", operand)
        if role != "d":
            _call(body, instruction, operand, names[role], places[role])
    body.do(statement(instruction, names, immediates(instruction, choice)).rstrip(";"))
    _call(body, instruction, instruction.operands["d"], names["d"], places["d"])
    comment = f"// {instruction.name}: one tile from memory to memory, with one warp"
    return [comment, *entry(tile_name(instruction, choice), parameters, body)]


def shared_kernel(instruction: Instruction, chosen: dict[str, SharedCopy]) -> list[str]:
    """One tile through shared memory; in memory, without gaps, in the orders that the copies name."""
    body, names = Body(), {}
    orders = memory_orders(chosen)
    lane = body.compute("lane", "mov.u32", "%laneid")
    pointers = {role: load_parameter(body, role, ".u64") for role in registers(instruction)}
    for role, operand in registers(instruction).items():
        names[role] = body.vector(f"{role}_", operand)
        if role in chosen:
            body.shared(f"shared_{role}", _bytes(operand, chosen[role]))
    for role, operand in registers(instruction).items():
        if role == "d":
            continue
        if role not in chosen:
            steps = map(str, contiguous_strides(operand, orders[role]))
            _call(body, instruction, operand, names[role], [pointers[role], *steps])
            continue
        copy = chosen[role]
        _copy_words(body, lane, role, pointers[role], _bytes(operand, copy), to_shared=True)
        address = _line_address(body, lane, role, copy, operand)
        body.do(statement(copy.mover, {"d": names[role]}, address=address).rstrip(";"))
        for word in names[role] if copy.shift else ():
            body.do(f"shl.b32 {word}, {word}, {copy.shift}")
    body.do(statement(instruction, names, immediates(instruction, FIRST_CHOICE)).rstrip(";"))
    operand = instruction.operands["d"]
    if "d" in chosen:
        address = _line_address(body, lane, "d", chosen["d"], operand)
        body.do(statement(chosen["d"].mover, {moved(chosen["d"].mover).role: names["d"]}, address=address).rstrip(";"))
        _copy_words(body, lane, "d", pointers["d"], _bytes(operand, chosen["d"]), to_shared=False)
    else:
        steps = map(str, contiguous_strides(operand))
        _call(body, instruction, operand, names["d"], [pointers["d"], *steps])
    order = described_orders(orders)
    comment = f"// {instruction.name}: one tile through shared memory; in memory, without gaps: {order}"
    return [comment, *entry(shared_kernel_name(instruction, orders), dict.fromkeys(pointers, ".u64"), body)]


def _bytes(operand: Registers, copy: SharedCopy) -> int:
    rows, cols = extents(operand)
    return rows * cols * copy.memory_bits // 8


def _copy_words(body: Body, lane: str, role: str, pointer: str, size: int, *, to_shared: bool) -> None:
    """A tile of `size` bytes between global and shared memory, a word per lane at a time."""
    if not to_shared:
        body.do("bar.warp.sync 0xffffffff")
    shared = body.compute("shared", "mov.u32", f"shared_{role}")
    shared = body.compute("shared", "mad.lo.u32", lane, 4, shared)
    place = body.compute("global", "mad.wide.u32", lane, 4, pointer)
    word = body.new("word")
    inside = body.new("inside", ".pred")
    for start in range(0, size, 128):
        if size - start < 128:
            body.do(f"setp.lt.u32 {inside}, {lane}, {(size - start) // 4}")
            guard = f"@{inside} "
        else:
            guard = ""
        if to_shared:
            body.do(f"{guard}ld.global.b32 {word}, [{place} + {start}]")
            body.do(f"{guard}st.shared.b32 [{shared} + {start}], {word}")
        else:
            body.do(f"{guard}ld.shared.b32 {word}, [{shared} + {start}]")
            body.do(f"{guard}st.global.b32 [{place} + {start}], {word}")
    if to_shared:
        body.do("bar.warp.sync 0xffffffff")


def _line_address(body: Body, lane: str, role: str, copy: SharedCopy, operand: Registers) -> str:
    """The address of the 16 bytes that this lane gives."""
    row, col = (body.formula(dim, text, {"lane": lane}) for dim, text in copy.formulas.items())
    ld = max(contiguous_strides(operand, copy.order))
    line, inside = (row, col) if copy.order == "row" else (col, row)
    index = body.compute("index", "mad.lo.s32", line, ld, inside)
    if copy.memory_bits >= 8:
        offset = body.compute("offset", "mul.lo.s32", index, copy.memory_bits // 8)
    else:
        offset = body.compute("offset", "shr.u32", index, (8 // copy.memory_bits).bit_length() - 1)
    shared = body.compute("shared", "mov.u32", f"shared_{role}")
    return body.compute("line", "add.s32", shared, offset)
