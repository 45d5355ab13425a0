"""What the reader of a figure should know: registers, names, padding, copies, whose fragments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.operand import Metadata, Operand, Scale, SparseOperand

if TYPE_CHECKING:
    from warpfrag.draw.views import View
    from warpfrag.instruction import Instruction
    from warpfrag.isa.patterns import Pattern
    from warpfrag.operand import Registers


def notes(instruction: Instruction, operand: Registers | None, view: View) -> tuple[str, ...]:
    """What a reader of the picture should know: registers, names, padding, copies, whose fragments."""
    every = instruction.operands.values()
    shown = [operand] if operand else [one for one in every if view != "whole" or one.role != "c"]
    found = [_registers_note(one) for one in shown]
    if view == "whole" and instruction.c.layout == instruction.d.layout:
        found.append("C sits where D sits: c0 in the place of d0, and so on.")
    elif view == "whole":
        found.append(f"C has another layout than D, because it is {instruction.c.format}: draw operand c to see it.")
    if instruction.form.is_quad:
        found.append(
            "Products 0 to 3 are the ISA's computations 1 to 4; lanes 4p..4p+3 and 16+4p..19+4p hold product p."
        )
    if instruction.addresses:
        found.append("address: the lane that gives the shared-memory address of the line beside it.")
    if any(isinstance(one, SparseOperand) for one in shown) and view in {"logical", "whole"}:
        pattern = instruction.a.sparsity
        found.append(f"Of each {pattern.chunk} columns {pattern.kept} are stored; the metadata says which.")
    if any(isinstance(one, Metadata) for one in shown):
        found.append(_codes_note(instruction.a.sparsity))
    if view == "warp":
        found.append(f"Cells say {_coordinate_words(shown)}; low bits stand left.")
    found += dict.fromkeys(_copies_note(one) for one in shown if isinstance(one, Operand) and one.layout.copies > 1)
    if instruction.arch:
        found.append(f"The ISA leaves wmma fragments open: these are the ones of {instruction.arch}, measured.")
    return tuple(found)


def _registers_note(operand: Registers) -> str:
    """Registers of an operand, and how its elements fill them."""
    count = operand.regs * operand.slots
    extents = " x ".join(map(str, operand.shape))
    if isinstance(operand, Metadata):
        return f"metadata: a 4-bit code for each of {extents} chunks of A, in one word {operand.ptx_type} per lane."
    if isinstance(operand, Scale):
        return f"{operand.role}: {extents} of {operand.format}, a byte each, in one word {operand.ptx_type} per lane."
    registers = f"{operand.regs} register{'s' * (operand.regs > 1)} {operand.ptx_type} per lane"
    names = f"{operand.role}0" if count == 1 else f"{operand.role}0..{operand.role}{count - 1}"
    names += ", low bits first" if operand.slots > 1 else ""
    stored = " (the stored half)" if isinstance(operand, SparseOperand) else ""
    kind = f"{operand.role.upper()}: {extents} of {operand.format}{stored}"
    return f"{kind}, {registers}: {names}.{_padding_note(operand)}"


def _codes_note(pattern: Pattern) -> str:
    """What the codes of ordered metadata mean."""
    meanings = (f"{code:04b} columns {' '.join(map(str, kept))}" for code, kept in sorted(pattern.rising.items()))
    return f"Of each chunk of {pattern.chunk} columns a code keeps: {'; '.join(meanings)}."


def _padding_note(operand: Registers) -> str:
    """Where codes are narrower than their place in the register."""
    high, low = operand.bits(0)
    if operand.row.container == operand.format.bits:
        return ""
    return f" Each code fills bits {high}:{low} of {operand.row.container}; the others are padding."


def _copies_note(operand: Operand) -> str:
    return f"Every element of {operand.role.upper()} has {operand.layout.copies} holders; the hardware reads the first."


def _coordinate_words(shown: list[Registers]) -> str:
    """The names of the coordinates in the cells."""
    dims = {one.layout.dims if isinstance(one, Operand) else one.layout.dims[-2:] for one in shown}
    return " or ".join(f"({', '.join(names)})" for names in sorted(dims))
