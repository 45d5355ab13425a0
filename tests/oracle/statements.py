"""Instruction texts as statements that an assembler can judge, many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oracle.toolkit import assemble, virtual

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from warpfrag import Instruction

DECLARED = "{ .reg .b32 r<256>; .reg .b64 p; .reg .pred q; .reg .f32 f<256>; .reg .f64 d<64>; .reg .b32 stride;"
CLASSES = {".f32": "f", ".f64": "d"}


def with_operands(text: str, instruction: Instruction) -> str:
    """A text followed by the operands of an instruction."""
    if instruction.form.is_warpgroup:
        return _warpgroup(text, instruction)
    registers, used = {}, 0
    for role in ("d", "a", "b", "c", "metadata", "scale_a", "scale_b"):
        operand = instruction.operands.get(role)
        if operand is not None:
            kind = CLASSES.get(operand.ptx_type, "r")
            registers[role] = ", ".join(f"{kind}{used + reg}" for reg in range(operand.regs))
            used += operand.regs
    vectors = {role: f"{{{names}}}" for role, names in registers.items()}
    does, form = instruction.form.operation.does, instruction.form
    if does == "transpose":
        operands = [registers["d"], registers["a"]]
    elif does == "load":
        operands = [*vectors.values(), "[p]"]
    elif does == "store":
        operands = ["[p]", *vectors.values()]
    else:
        operands = [vectors[role] for role in form.operation.roles]
        operands += [registers["metadata"], "0"] if form.is_sparse else []
        operands += [registers["scale_a"], "{0, 0}", registers["scale_b"], "{0, 0}"] if form.block_scale else []
    if form.is_wmma and does != "multiply":
        operands.append("stride")
    return f"{text} {', '.join(operands)};"


def _warpgroup(text: str, instruction: Instruction) -> str:
    """wgmma: D, the descriptors, metadata and selector, scale-d; floats can be negated, 16-bit types turned."""
    kind = CLASSES.get(instruction.d.ptx_type, "r")
    operands = [f"{{{', '.join(f'{kind}{reg}' for reg in range(instruction.d.regs))}}}", "p", "p"]
    operands += ["r0", "0"] if instruction.form.is_sparse else []
    operands += ["q", *(["1", "1"] if instruction.a.format.is_float else [])]
    operands += ["0", "0"] if instruction.form.a in {"f16", "bf16"} else []
    return f"{text} {', '.join(operands)};"


def judge(statements: Sequence[str], ptxas: Path, target: str, version: tuple[int, int], folder: Path) -> list[bool]:
    """Return the statements that an assembler accepts: it names all rejected lines in one pass."""
    left = dict(enumerate(statements))
    module = folder / "judged.ptx"
    while left:
        head = [f".version {version[0]}.{version[1]}", f".target {target}", ".address_size 64"]
        lines = [*head, ".visible .entry judged()", DECLARED, *left.values(), "}"]
        module.write_text("\n".join(lines) + "\n", encoding="utf-8")
        owners = dict(enumerate(left, start=len(head) + 3))
        complaints = assemble(ptxas, virtual(target), module)
        if not complaints:
            break
        if any(complaint.line not in owners for complaint in complaints):
            return [False] * len(statements)  # the target is not known, whatever the statements
        refused = {owners[complaint.line] for complaint in complaints}
        left = {number: statement for number, statement in left.items() if number not in refused}
    return [number in left for number in range(len(statements))]
