"""`warpfrag get`: facts about an instruction."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import NamedTuple

from warpfrag.cli.io import output
from warpfrag.cli.io.arguments import Arch, InstructionName, NotationName
from warpfrag.cli.io.operand_view import ADDRESSES, OperandView, numbering_notes, operand_view
from warpfrag.cli.io.verbs import Answer, verb
from warpfrag.errors import InvalidOperand
from warpfrag.grouping import grouped
from warpfrag.html import table_lines
from warpfrag.isa.instruction_table import able_architectures, running_target
from warpfrag.isa.legality import advice, companions, first_versions
from warpfrag.tensorcore.evidence import Evidence
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import OperandBase
from warpfrag.tensorcore.registry import get as get_instruction

EQUATIONS = {  # keyed by operation and scope
    ("multiply", "warp"): "D = {term} + C{saturated}{times}",
    ("multiply", "warpgroup"): "D = {term} + C{saturated}, where C is the old D, or zero if scale-d is false",
    ("multiply", "block"): "D = {term} + C{saturated}, where C is the old D, or zero if enable-input-d is false",
}


class LayoutFacts(NamedTuple):
    """A layout: the linear map as bases, and as formulas.

    dims: names of the coordinates
    extents: extents of the coordinates
    bases: the move of each bit, low bit first: r8 is a move by 8 rows, 0 a copy of the same element
    copies: number of copies of each element
    element_number: the definition of i, the number of an element in its lane
    from_lane_and_i: each coordinate as a formula
    from_coordinates: lane, reg and slot as formulas
    """

    dims: tuple[str, ...]
    extents: tuple[int, ...]
    bases: dict[str, list[str]]
    copies: int
    element_number: str
    from_lane_and_i: dict[str, str]
    from_coordinates: dict[str, str]


class OperandFacts(NamedTuple):
    """An operand of an instruction; register facts are null in shared memory.

    format: number format
    shape: extents of the matrix
    home: where the operand is stored: warp, warpgroup, shared, tensor, or either (shared or tensor memory)
    source: the origin of the layout
    not_modelled: the reason why the layout is unknown
    registers: registers per lane
    register_bits: width of a register: 32, or 64 for f64
    words: 32-bit words per lane
    slots: elements per register
    ptx_type: type of the registers
    bits: high and low bit of each slot
    layout: null if it is unknown
    """

    format: str
    shape: tuple[int, ...]
    home: str
    source: str
    not_modelled: str | None
    registers: int | None = None
    register_bits: int | None = None
    words: int | None = None
    slots: int | None = None
    ptx_type: str | None = None
    bits: list[tuple[int, int]] | None = None
    layout: LayoutFacts | None = None


class Companion(NamedTuple):
    """PTX that a kernel must contain before or after an instruction, and the condition for it."""

    name: str
    condition: str


class Sparsity(NamedTuple):
    """The pruning of A.

    pattern: 2:4, 1:2 or 4:8
    chunk: number of columns that share a code
    kept: number of columns that are stored in each chunk
    codes: the columns that each code keeps
    """

    pattern: str
    chunk: int
    kept: int
    codes: dict[str, tuple[int, ...]]


class InstructionFacts(NamedTuple):
    """Everything about one instruction.

    instruction: canonical name
    op: operation, such as mma.sp
    scope: the threads that execute it together: warp, warpgroup or block
    shape: m, n, k; k is 0 for loads, stores and transposes
    layouts: the row and col qualifiers
    kind: the qualifier after kind::, or an empty string
    space: state space of a load or store; empty if generic
    fragments_of: for wmma, the architecture of the fragments
    operands: by role
    addresses: the lanes that supply row addresses (ldmatrix and stmatrix)
    archs: architectures that accept it
    ptx_versions: lowest PTX version by architecture
    advice: the assembler's advice
    companions: PTX that a kernel must contain around it (wgmma)
    selectors: sparsity selectors that do not trap
    sparsity: the pruning of A
    sources: the sources of the facts
    evidence: the evidence by architecture
    notation: with --to: the notation
    texts: with --to: the layout of each operand in that notation
    """

    instruction: str
    op: str
    scope: str
    shape: dict[str, int]
    layouts: list[str]
    kind: str
    space: str
    fragments_of: str | None
    operands: dict[str, OperandFacts]
    addresses: LayoutFacts | None
    archs: tuple[str, ...]
    ptx_versions: dict[str, str]
    advice: str | None
    companions: list[Companion]
    selectors: tuple[int, ...]
    sparsity: Sparsity | None
    sources: tuple[str, ...]
    evidence: dict[str, Evidence]
    notation: str | None
    texts: dict[str, str]


@verb
def get(
    instruction: InstructionName, *, to: NotationName | None = None, arch: Arch | None = None
) -> Answer[InstructionFacts]:
    """Show the operands, registers, layout formulas, architectures, selectors, sparsity and sources of an instruction.

    With --to, show only the layouts of all operands, in the notation of another tool. The exit status is 1 if the
    notation cannot express one of them.

    For example:
        warpfrag get mma.m16n8k16.f32.f16.f16.f32
        warpfrag get mma.sp.m16n8k64.s32.s8.s8.s32 --json
        warpfrag get mma.m16n8k16.f32.f16.f16.f32 --to cute       # also triton, mlir, c, json
    """
    resolved = get_instruction(instruction, arch)
    views = _views(resolved)
    layouts = {view.name: _layout_facts(view) for view in views}
    texts: dict[str, str] = {}
    for view in views if to else ():
        try:
            texts[view.name] = view.written(to or "")
        except InvalidOperand as error:
            if view is views[-1] and not texts:
                raise
            output.echo_error(f"warpfrag: {view.name}: {error}")
    facts = _facts(resolved, layouts, to, texts)

    def show() -> None:
        output.print_heading(resolved.name)
        if to:
            _print_texts(views, to, facts.texts)
            return
        if equation := _equation(resolved):
            output.echo(equation)
        output.echo()
        _print_operands(resolved)
        for layout in dict.fromkeys(view.layout for view in views):
            output.echo()
            alike = [view for view in views if view.layout == layout]
            _print_formulas(alike, layouts[alike[0].name])
        for reason in dict.fromkeys(filter(None, (operand.not_modelled for operand in facts.operands.values()))):
            output.echo("\n" + output.wrapped(f"layout not modelled: {reason}"))
        output.echo()
        _print_rest(facts)
        output.print_notes(dict.fromkeys(note for view in views for note in view.notes))

    return Answer(facts, show, output.NO if len(texts) < len(views) and to else output.DONE)


def _views(instruction: Instruction) -> list[OperandView]:
    """Return a view of each operand outside shared memory that has a known layout, and of the row addresses."""
    operands = instruction.operands.items()
    known = [role for role, operand in operands if not operand.spec.unknown and operand.storage != "shared"]
    return [operand_view(instruction, name) for name in [*known, *([ADDRESSES] if instruction.addresses else [])]]


def _facts(
    instruction: Instruction, layouts: dict[str, LayoutFacts], notation: str | None, texts: dict[str, str]
) -> InstructionFacts:
    form, rule = instruction.form, instruction.pattern
    codes = {f"{code:04b}": columns for code, columns in sorted(rule.columns.items())} if rule else {}
    return InstructionFacts(
        instruction=instruction.name,
        op=form.op,
        scope=form.operation.scope,
        shape=form.shape._asdict(),
        layouts=[word for word in form.layouts if word],
        kind=form.kind,
        space=form.space,
        fragments_of=instruction.arch or None,
        operands={role: _operand_facts(each, layouts.get(role)) for role, each in instruction.operands.items()},
        addresses=layouts.get(ADDRESSES),
        archs=instruction.targets,
        ptx_versions=first_versions(form, instruction.targets),
        advice=advice(form) or None,
        companions=[Companion(*companion) for companion in companions(form)],
        selectors=instruction.selectors,
        sparsity=Sparsity(rule.name, rule.chunk, rule.kept, codes) if rule else None,
        sources=instruction.sources,
        evidence={arch: instruction.evidence(arch) for arch in able_architectures(form)},
        notation=notation,
        texts=texts,
    )


def _operand_facts(operand: OperandBase, layout: LayoutFacts | None) -> OperandFacts:
    facts = operand.format.name, operand.shape, operand.storage, operand.source, operand.spec.unknown or None
    if operand.storage == "shared":
        return OperandFacts(*facts)
    registers = operand.regs, operand.spec.register_bits, operand.words, operand.slots, operand.ptx_type
    return OperandFacts(
        *facts, *registers, [(high, low) for high, low in map(operand.bits, range(operand.slots))], layout
    )


def _layout_facts(view: OperandView) -> LayoutFacts:
    forth, back = _formulas(view)
    layout = view.layout
    bases = {name: layout.bases.get(name, "").split() for name in (*view.threads, *view.counted)}
    return LayoutFacts(layout.dims, layout.shape, bases, layout.copies, _element_number(view), forth, back)


def _print_texts(views: list[OperandView], notation: str, texts: dict[str, str]) -> None:
    """Print the layout of each operand in another notation; operands with the same layout share a line."""
    alike = grouped((text, name) for name, text in texts.items())
    width = max((len(", ".join(names)) for names in alike.values()), default=0)
    for text, names in alike.items():
        for number, line in enumerate(text.splitlines()):
            output.echo(f"{'' if number else ', '.join(names):<{width}}  {line}")
    output.print_notes(numbering_notes(views, notation))


def _equation(instruction: Instruction) -> str:
    """Return the formula of the instruction, or an empty string if it moves matrices."""
    form = instruction.form
    template = EQUATIONS.get((form.operation.does, form.operation.scope), "")
    term = "(A · SA) · (B · SB)" if form.block_scale else f"popc(A {form.bitop} B)" if form.bitop else "A · B"
    times = ", four times" if len(instruction.operands["d"].shape if "d" in instruction.operands else ()) > 2 else ""
    return template.format(term=term, saturated=" with saturation" if form.satfinite else "", times=times)


def _print_operands(instruction: Instruction) -> None:
    lines = []
    for role, operand in instruction.operands.items():
        facts = [role, operand.format, output.shape_text(operand.shape)]
        if operand.storage == "shared":
            lines.append([*facts, "shared memory", "", "addressed by a descriptor"])
            continue
        if operand.storage == "tensor":
            count = operand.layout.ins["column"]
            registers = f"tensor memory, {count} column{'s' if count > 1 else ''}"
        else:
            registers = f"{operand.regs} {output.TIMES} {operand.ptx_type}"
        ranges = [operand.bits(slot) for slot in range(min(operand.slots, 3))]
        bits = " ".join(f"{high}:{low}" if high > low else str(low) for high, low in ranges)
        lines.append([*facts, registers, operand.slots, bits + " …" * (operand.slots > len(ranges))])
    output.print_table(["operand", "format", "shape", "registers", "slots", "bits of slot 0, 1, ..."], lines)


def _formulas(view: OperandView) -> tuple[dict[str, str], dict[str, str]]:
    """Return the formulas for the coordinates from lane and i, and for lane, reg and slot from the coordinates."""
    from warpfrag.layout.index_expressions import element_formulas, place_formulas

    forth = element_formulas(view.layout)
    if not view.layout.is_onto:  # a load that reaches only some of the elements has no inverse
        return forth, {}
    back = place_formulas(view.layout)
    step = view.step("byte_id")
    if step > 1 and view.layout.outs["byte_id"] > 1:  # the layout counts groups of bytes, the instruction single bytes
        forth = {f"byte_id / {step}" if dim == "byte_id" else dim: formula for dim, formula in forth.items()}
        back = {index: re.sub(r"\bbyte_id\b", f"(byte_id / {step})", formula) for index, formula in back.items()}
    used = view.threads if view.registers is None else (*view.threads, *view.counted)
    return forth, {index: back[index] for index in used}


def _element_number(view: OperandView) -> str:
    """Return the definition of the element number i, or an empty string if there is none."""
    slots, regs = view.layout.slots, view.layout.regs
    if view.registers is None or view.in_tensor_memory:
        return ""
    if slots == 1:
        return "i = reg"
    return "i = slot" if regs == 1 else f"i = {slots} * reg + slot"


def _print_formulas(alike: list[OperandView], facts: LayoutFacts) -> None:
    """Print the formulas of operands that share a layout."""
    view = alike[0]
    output.print_heading(f"{', '.join(other.name for other in alike)}  {_element_number(view)}".rstrip())
    sides = facts.from_lane_and_i, facts.from_coordinates
    forth, back = ([f"{name} = {formula}" for name, formula in side.items()] for side in sides)
    pairs = [["", *pair] for pair in zip_longest(forth, back, fillvalue="")]
    _, *side_by_side = table_lines(["", "", ""], pairs, gap=4)
    fits = max(map(len, side_by_side)) <= output.WIDTH
    for line in side_by_side if fits else [f"    {formula}" for formula in forth + back]:
        output.echo(line)
    output.echo(f"    bases {view.layout}")


def _print_rest(facts: InstructionFacts) -> None:
    versions = sorted(facts.ptx_versions.items(), key=lambda entry: float(entry[1]))
    by_version = grouped((version, arch) for arch, version in versions)
    lines = [("archs", " ".join(facts.archs))]
    lines.append(("PTX", "; ".join(f"{version} on {' '.join(archs)}" for version, archs in by_version.items())))
    if facts.advice:
        lines.append(("advice", facts.advice))
    lines += [("around it", f"{name}: {condition}") for name, condition in facts.companions]
    if facts.selectors:
        lines.append(("selectors", " ".join(map(str, facts.selectors))))
    if rule := facts.sparsity:
        codes = ", ".join(f"{code} keeps {' '.join(map(str, columns))}" for code, columns in rule.codes.items())
        lines.append(("sparsity", f"{rule.pattern}: {rule.kept} of {rule.chunk} columns are stored; code {codes}"))
    lines += [("source", source) for source in facts.sources]
    form = get_instruction(facts.instruction).form
    known = grouped((_evidence_text(entry), running_target(form, arch)) for arch, entry in facts.evidence.items())
    lines += [("evidence", text.format(" ".join(archs))) for text, archs in known.items()]
    output.echo_wrapped((f"{label:<10}{text}" for label, text in lines), indent=10)


def _evidence_text(evidence: Evidence) -> str:
    """Return the evidence as a format string with a placeholder for the architectures."""
    level = evidence.level if evidence.level == evidence.authority else f"{evidence.level} (rule {evidence.authority})"
    return f"{level} on {{}}" + ("" if evidence.level == "not modelled" else f": {evidence.detail}")
