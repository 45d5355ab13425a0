"""Raw kernels: registers in, registers out, one case per warp. They run when hardware is compared with warpfrag.

Every kernel takes the same parameters: pointers to D, A, B, C, metadata, scales of A and of B, each
uint32[cases][32][words] in global memory, and the number of cases. Pointers that an instruction does not use may be
null. Launch blocks of whole warps, 32 threads for each case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.emit.ptx.text import Body, entry, load_parameter, register_type, width
from warpfrag.emit.statement import FIRST_CHOICE, ROLES, check_choice, immediates, raw_name, registers, statement

if TYPE_CHECKING:
    from warpfrag.emit.statement import Choice
    from warpfrag.instruction import Instruction
    from warpfrag.operand import Registers

PARAMETERS = {**dict.fromkeys(ROLES, ".u64"), "cases": ".u32"}


def raw_kernel(instruction: Instruction, choice: Choice = FIRST_CHOICE) -> list[str]:
    """The raw kernel of a product."""
    check_choice(instruction, choice)
    body = Body()
    body.say("a warp is a case, a thread a lane of it")
    position = {name: body.compute("position", "mov.u32", f"%{name}.x") for name in ("ctaid", "ntid", "tid")}
    thread = body.compute("thread", "mad.lo.u32", position["ctaid"], position["ntid"], position["tid"])
    case = body.compute("case", "shr.u32", thread, 5)
    cases = load_parameter(body, "cases", ".u32")
    outside = body.new("outside", ".pred")
    body.do(f"setp.ge.u32 {outside}, {case}, {cases}")
    body.do(f"@{outside} ret")
    names = {}
    for role, operand in registers(instruction).items():
        names[role] = body.vector(f"{role}_" if len(role) > 1 else role, operand)
        if role != "d":
            move_registers(body, role, operand, names[role], thread, "ld")
    body.do(statement(instruction, names, immediates(instruction, choice)).rstrip(";"))
    move_registers(body, "d", instruction.operands["d"], names["d"], thread, "st")
    return [f"// {instruction.name}", *entry(raw_name(instruction, choice), PARAMETERS, body)]


def move_registers(body: Body, name: str, operand: Registers, words: list[str], thread: str, operation: str) -> None:
    """Load or store the registers of an operand, those of one thread after those of another."""
    size = width(register_type(operand))
    pointer = load_parameter(body, name, ".u64")
    pointer = body.compute(f"{name}_at", "mad.wide.u32", thread, size * operand.regs, pointer)
    for reg, word in enumerate(words):
        place = f"[{pointer} + {size * reg}]"
        body.do(f"{operation}.global.b{8 * size} {', '.join([word, place] if operation == 'ld' else [place, word])}")
