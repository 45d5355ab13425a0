"""`warpfrag info`: everything about one instruction."""

from __future__ import annotations

import re
from dataclasses import asdict
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from warpfrag.cli.support.options import instruction_argument, json_option, target_option, to_option
from warpfrag.cli.support.output import (
    TIMES,
    WIDTH,
    echo,
    print_heading,
    print_json,
    print_notes,
    print_table,
    shape_text,
    table_lines,
    wrapped,
)
from warpfrag.cli.support.verbs import verb
from warpfrag.isa.legality import able_architectures, advice, companions, first_version
from warpfrag.tensorcore.registry import get

if TYPE_CHECKING:
    from warpfrag.cli.support.operand_view import OperandView
    from warpfrag.tensorcore.instruction import Instruction

Formulas = dict[str, str]
EQUATIONS = {  # by what an operation does, and its scope
    ("multiply", "warp"): "D = {term} + C{saturated}{times}",
    ("multiply", "warpgroup"): "D = {term} + C{saturated}, where C is the old D, or zero where scale-d is false",
    ("multiply", "block"): "D = {term} + C{saturated}, where C is the old D, or zero where enable-input-d is false",
}


@verb(
    "warpfrag info mma.m16n8k16.f32.f16.f16.f32",
    "warpfrag info mma.sp.m16n8k64.s32.s8.s8.s32 --json",
    "warpfrag info mma.m16n8k16.f32.f16.f16.f32 --to cute       # also triton, mlir, c, json",
)
@instruction_argument
@to_option
@target_option
@json_option
def command(*, name: str, notation: str | None, target: str | None, as_json: bool) -> None:
    """Operands, registers, formulas in both directions, targets, selectors, sparsity and sources of an instruction.

    With --to, only the layouts of all operands, in the notation of another tool.
    """
    instruction = get(name, target)
    views = _views(instruction)
    texts = {view.name: view.written(notation) for view in views} if notation else {}
    if as_json:
        print_json("info", {**_json(instruction, views), "notation": notation, "texts": texts})
        return
    if notation:
        _print_texts(instruction, notation, texts)
        return
    print_heading(instruction.name)
    if equation := _equation(instruction):
        echo(equation)
    echo()
    _print_operands(instruction)
    for layout in dict.fromkeys(view.layout for view in views):
        echo()
        _print_formulas([view for view in views if view.layout == layout])
    reasons = [operand.row.unknown for operand in instruction.operands.values() if operand.row.unknown]
    for reason in dict.fromkeys(reasons):
        echo("\n" + wrapped(f"layout not modelled: {reason}"))
    echo()
    _print_rest(instruction)
    print_notes(dict.fromkeys(note for view in views for note in view.notes))


def _print_texts(instruction: Instruction, notation: str, texts: dict[str, str]) -> None:
    """The layout of each operand in another notation, on one line if it has only one."""
    from warpfrag.cli.support.operand_view import numbering_notes

    print_heading(instruction.name)
    alike: dict[str, list[str]] = {}
    for name, text in texts.items():
        alike.setdefault(text, []).append(name)
    width = max((len(", ".join(names)) for names in alike.values()), default=0)
    for text, names in alike.items():
        for at, line in enumerate(text.splitlines()):
            echo(f"{'' if at else ', '.join(names):<{width}}  {line}")
    print_notes(numbering_notes(_views(instruction), notation))


def _views(instruction: Instruction) -> list[OperandView]:
    """Every operand whose layout is known, and the addresses."""
    from warpfrag.cli.support.operand_view import ADDRESSES, operand_view  # a name that is none needs no operands

    operands = instruction.operands.items()
    known = [role for role, operand in operands if not operand.row.unknown and operand.home != "shared"]
    return [operand_view(instruction, name) for name in [*known, *([ADDRESSES] if instruction.addresses else [])]]


def _equation(instruction: Instruction) -> str:
    """What the instruction computes, as mathematics; nothing for one that moves matrices."""
    form = instruction.form
    template = EQUATIONS.get((form.operation.does, form.operation.scope))
    if template is None:
        return ""
    term = "(A · SA) · (B · SB)" if form.block_scale else "A · B"
    if form.bitop:
        term = f"popc(A {form.bitop} B)"
    saturated = " with saturation" if form.satfinite else ""
    times = ", four times" if len(instruction.operands["d"].shape if "d" in instruction.operands else ()) > 2 else ""
    return template.format(term=term, saturated=saturated, times=times)


def _print_operands(instruction: Instruction) -> None:
    header = ["operand", "format", "shape", "registers", "slots", "bits of slot 0, 1, ..."]
    lines = []
    for role, operand in instruction.operands.items():
        if operand.home == "shared":
            lines.append(
                [role, operand.format, shape_text(operand.shape), "shared memory", "", "a descriptor says where"]
            )
            continue
        if operand.home == "tensor":
            count = operand.layout.ins["column"]
            held = f"tensor memory, {count} column{'s' if count > 1 else ''}"
        else:
            held = f"{operand.regs} {TIMES} {operand.ptx_type}"
        ranges = [operand.bits(slot) for slot in range(min(operand.slots, 3))]
        bits = " ".join(f"{high}:{low}" if high > low else str(low) for high, low in ranges)
        more = " …" if operand.slots > len(ranges) else ""
        lines.append([role, operand.format, shape_text(operand.shape), held, operand.slots, bits + more])
    print_table(header, lines)


def formulas(view: OperandView) -> tuple[Formulas, Formulas]:
    """Coordinates from lane and i, and lane, reg and slot from coordinates, as a person would write them."""
    from warpfrag.layout.index_expressions import element_formulas, place_formulas

    forth = element_formulas(view.layout)
    if not view.layout.is_onto:  # a load reaches some places of many: there is no way back from the others
        return forth, {}
    back = place_formulas(view.layout)
    step = view.step("byte_id")
    if step > 1 and view.layout.outs["byte_id"] > 1:  # the layout counts groups of bytes, the instruction counts bytes
        forth = {f"byte_id / {step}" if dim == "byte_id" else dim: formula for dim, formula in forth.items()}
        back = {index: re.sub(r"\bbyte_id\b", f"(byte_id / {step})", formula) for index, formula in back.items()}
    used = view.threads if view.registers is None else (*view.threads, *view.counted)
    return forth, {index: back[index] for index in used}


def _element(view: OperandView) -> str:
    """What i counts."""
    slots, regs = view.layout.slots, view.layout.regs
    if view.registers is None or view.in_tensor_memory:
        return ""
    if slots == 1:
        return "i = reg"
    return "i = slot" if regs == 1 else f"i = {slots} * reg + slot"


def _print_formulas(alike: list[OperandView]) -> None:
    """The formulas of operands that share a layout."""
    view = alike[0]
    forth, back = formulas(view)
    print_heading(f"{', '.join(other.name for other in alike)}  {_element(view)}".rstrip())
    left, right = ([f"{name} = {formula}" for name, formula in side.items()] for side in (forth, back))
    side_by_side = table_lines(["", "", ""], [["", *pair] for pair in zip_longest(left, right, fillvalue="")], gap=4)[
        1:
    ]
    fits = max(map(len, side_by_side)) <= WIDTH
    for line in side_by_side if fits else [f"    {formula}" for formula in left + right]:
        echo(line)
    echo(f"    bases {view.layout}")


def _print_rest(instruction: Instruction) -> None:
    facts = [("targets", " ".join(instruction.targets)), ("PTX", _version_line(instruction))]
    advised = advice(instruction.form)
    if advised:
        facts.append(("advice", advised))
    facts += [("around it", f"{name}: {when}") for name, when in companions(instruction.form)]
    if instruction.selectors:
        facts.append(("selectors", " ".join(map(str, instruction.selectors))))
    rule = instruction.pattern
    if rule:
        legal = rule.columns
        kept = ", ".join(f"{code:04b} keeps {' '.join(map(str, columns))}" for code, columns in sorted(legal.items()))
        facts.append(("sparsity", f"{rule.name}, of {rule.chunk} columns {rule.kept} are stored; code {kept}"))
    facts += [("source", source) for source in instruction.sources]
    facts += [("evidence", line) for line in _evidence_lines(instruction)]
    for label, text in facts:
        echo(wrapped(f"{label:<10}{text}", indent=10))


def ptx_versions(instruction: Instruction) -> dict[str, str]:
    """The lowest version behind .version, by target."""
    versions = {target: first_version(instruction.form, target) for target in instruction.targets}
    return {target: f"{major}.{minor}" for target, (major, minor) in versions.items()}


def _version_line(instruction: Instruction) -> str:
    """The same in words, targets with the same version together."""
    together: dict[str, list[str]] = {}
    for target, version in sorted(ptx_versions(instruction).items(), key=lambda entry: float(entry[1])):
        together.setdefault(version, []).append(target)
    return "; ".join(f"{version} on {' '.join(names)}" for version, names in together.items())


def evidence(instruction: Instruction) -> dict[str, dict[str, Any]]:
    """How it is known what the instruction does on each architecture that has it."""
    return {arch: asdict(instruction.evidence(arch)) for arch in able_architectures(instruction.form)}


def _evidence_lines(instruction: Instruction) -> list[str]:
    """The evidence, architectures with the same one together."""
    together: dict[tuple[str, str], list[str]] = {}
    for arch, known in evidence(instruction).items():
        level, authority = known["level"], known["authority"]
        detail = "" if level == "not modelled" else f": {known['detail']}"
        words = level if level == authority else f"{level} (rule {authority})"
        together.setdefault((words, detail), []).append(arch)
    return [f"{words} on {' '.join(archs)}{detail}" for (words, detail), archs in together.items()]


def _json(instruction: Instruction, views: list[OperandView]) -> dict[str, Any]:
    from warpfrag.cli.support.operand_view import ADDRESSES

    form, rule = instruction.form, instruction.pattern
    known = {view.name: view for view in views}
    operands: dict[str, dict[str, Any]] = {}
    for role, operand in instruction.operands.items():
        operands[role] = {"format": operand.format.name, "shape": operand.shape, "home": operand.home}
        if operand.home == "shared":
            operands[role] |= {"source": operand.source, "not_modelled": None}
            continue
        operands[role] |= {
            "registers": operand.regs,
            "register_bits": operand.row.register_bits,
            "words": operand.words,
            "slots": operand.slots,
            "ptx_type": operand.ptx_type,
            "bits": [operand.bits(slot) for slot in range(operand.slots)],
            "source": operand.source,
            "not_modelled": operand.row.unknown or None,
            **({"layout": _json_layout(known[role])} if role in known else {}),
        }
    return {
        "instruction": instruction.name,
        "op": form.op,
        "scope": form.operation.scope,
        "shape": form.shape._asdict(),
        "layouts": [word for word in form.layouts if word],
        "kind": form.kind,
        "space": form.space,
        "fragments_of": instruction.arch or None,
        "operands": operands,
        "addresses": _json_layout(known[ADDRESSES]) if ADDRESSES in known else None,
        "targets": instruction.targets,
        "ptx_versions": ptx_versions(instruction),
        "advice": advice(form) or None,
        "companions": [{"name": name, "when": when} for name, when in companions(form)],
        "selectors": instruction.selectors,
        "sparsity": rule
        and {
            "pattern": rule.name,
            "chunk": rule.chunk,
            "kept": rule.kept,
            "codes": {f"{code:04b}": columns for code, columns in sorted(rule.columns.items())},
        },
        "sources": instruction.sources,
        "evidence": evidence(instruction),
    }


def _json_layout(view: OperandView) -> dict[str, Any]:
    forth, back = formulas(view)
    layout = view.layout
    bases = {name: layout.bases.get(name, "").split() for name in (*view.threads, *view.counted)}
    return {
        "dims": layout.dims,
        "extents": layout.shape,
        "bases": bases,
        "copies": layout.copies,
        "element_number": _element(view) or None,
        "from_lane_and_i": forth,
        "from_coordinates": back,
    }
