"""PTX for wmma: it loads and stores its fragments itself, so no layout is needed and every target is served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.emit.ptx.raw import move_registers, raw_kernel
from warpfrag.emit.ptx.text import Body, entry, load_parameter
from warpfrag.emit.statement import memory_instruction, raw_name, statement, tile_name

if TYPE_CHECKING:
    from warpfrag.instruction import Instruction


def product(instruction: Instruction) -> list[str]:
    """Everything for one wmma.mma: a tile with C and D row major, one with both column major, and the raw kernel."""
    return [*tile_kernel(instruction, "row"), *tile_kernel(instruction, "col"), *raw_kernel(instruction)]


def tile_kernel(instruction: Instruction, layout: str) -> list[str]:
    """One tile from memory to memory; A and B have the memory layout that the instruction names."""
    body = Body()
    layouts = dict(zip("ab", instruction.layouts, strict=True)) | {"c": layout, "d": layout}
    kinds = {f"{role}{part}": kind for role in "dabc" for part, kind in (("", ".u64"), ("_stride", ".u32"))}
    given = {name: load_parameter(body, name, kind) for name, kind in kinds.items()}
    names = {role: body.vector(f"{role}_", instruction.operands[role]) for role in "dabc"}

    def move(role: str) -> None:
        mover = memory_instruction(instruction, role, layouts[role])
        words = {role: names[role]}
        body.do(statement(mover, words, address=given[role], stride=given[f"{role}_stride"]).rstrip(";"))

    for role in "abc":
        move(role)
    body.do(statement(instruction, names).rstrip(";"))
    move("d")
    comment = f"// {instruction.name}: one tile from memory to memory, C and D {layout} major"
    return [comment, *entry(tile_name(instruction, order=layout), kinds, body)]


def move(instruction: Instruction) -> list[str]:
    """A wmma.load or wmma.store by itself: one warp, between memory and raw registers, uint32[32][words]."""
    body = Body()
    role = instruction.op[-1]
    operand = instruction.operands[role]
    kinds = {"registers": ".u64", "memory": ".u64", "stride": ".u32"}
    memory, stride = (load_parameter(body, name, kinds[name]) for name in ("memory", "stride"))
    lane = body.compute("lane", "mov.u32", "%laneid")
    words = body.vector(f"{role}_", operand)
    text = statement(instruction, {role: words}, address=memory, stride=stride).rstrip(";")
    if role == "d":
        move_registers(body, "registers", operand, words, lane, "ld")
        body.do(text)
    else:
        body.do(text)
        move_registers(body, "registers", operand, words, lane, "st")
    space = f"; memory is an address of {instruction.form.space} memory" if instruction.form.space else ""
    return [f"// {instruction.name}{space}", *entry(raw_name(instruction), kinds, body)]
