"""PTX for ldmatrix, stmatrix and movmatrix by themselves: a kernel that shows what one does.

`a` and `d` are registers, uint32[32][words], or the 16 bytes to which each lane points, uint32[32][4]. Launch one warp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.emit.ptx.raw import move_registers
from warpfrag.emit.ptx.text import Body, entry, load_parameter
from warpfrag.emit.statement import raw_name, registers, statement

if TYPE_CHECKING:
    from warpfrag.instruction import Instruction


def mover(instruction: Instruction) -> list[str]:
    """Everything for one mover."""
    body = Body()
    lane = body.compute("lane", "mov.u32", "%laneid")
    operands = registers(instruction)
    names = {role: body.vector(f"{role}_", operand) for role, operand in operands.items()}
    line = ""
    if instruction.op != "movmatrix":
        body.shared("lines", 512)
        start = body.compute("line", "mov.u32", "lines")
        line = body.compute("line", "mad.lo.u32", lane, 16, start)
    if "a" in operands:
        move_registers(body, "a", operands["a"], names["a"], lane, "ld")
    if instruction.op != "movmatrix":
        # what stmatrix does not write stays as it was
        _move_line(body, "a" if instruction.op == "ldmatrix" else "d", lane, line, to_shared=True)
        body.do("bar.warp.sync 0xffffffff")
    address = line
    if instruction.op != "movmatrix" and not instruction.form.space:
        address = body.compute("address", "cvta.shared.u64", body.compute("wide", "mul.wide.u32", line, 1))
    body.do(statement(instruction, names, address=address).rstrip(";"))
    if "d" in operands:
        move_registers(body, "d", operands["d"], names["d"], lane, "st")
    else:
        body.do("bar.warp.sync 0xffffffff")
        _move_line(body, "d", lane, line, to_shared=False)
    return [f"// {instruction.name}", *entry(raw_name(instruction), {"d": ".u64", "a": ".u64"}, body)]


def _move_line(body: Body, name: str, lane: str, line: str, *, to_shared: bool) -> None:
    """The 16 bytes of this lane, between global and shared memory."""
    pointer = body.compute("line_at", "mad.wide.u32", lane, 16, load_parameter(body, name, ".u64"))
    words = [body.new("word") for _ in range(4)]
    vector = f"{{{', '.join(words)}}}"
    if to_shared:
        body.do(f"ld.global.v4.b32 {vector}, [{pointer}]")
        body.do(f"st.shared.v4.b32 [{line}], {vector}")
    else:
        body.do(f"ld.shared.v4.b32 {vector}, [{line}]")
        body.do(f"st.global.v4.b32 [{pointer}], {vector}")
