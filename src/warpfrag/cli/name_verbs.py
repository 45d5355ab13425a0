"""`warpfrag find`, `aliases` and `legal`: names of instructions, their meaning, and the targets that accept them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from warpfrag.cli.io import output
from warpfrag.cli.io.arguments import Arch, ElementType, InstructionName
from warpfrag.cli.io.verbs import Answer, facts_of, verb
from warpfrag.errors import IllegalInstruction, WarpfragError, quote
from warpfrag.grouping import grouped
from warpfrag.isa.targets import gpu_called, gpus, targets

if TYPE_CHECKING:
    from warpfrag.isa.aliases import Meaning
    from warpfrag.isa.qualifiers import Form
    from warpfrag.tensorcore.instruction import Instruction

MAX_DETAILED = 4  # number of instructions shown with all their names: one screen
MAX_LISTED = 12  # number of instructions listed as text; --json lists all


class FoundInstruction(NamedTuple):
    """An instruction that `find` lists; the element type of a missing operand is empty.

    name: canonical name
    op: operation, such as mma.sp
    shape: such as m16n8k16
    kind: the qualifier after kind::, or an empty string
    sparse: true if A is sparse
    archs: architectures that accept it
    """

    name: str
    op: str
    shape: str
    kind: str
    a: str
    b: str
    c: str
    d: str
    sparse: bool
    archs: tuple[str, ...]


class FoundInstructions(NamedTuple):
    """The instructions that match all filters, in the order of the tables."""

    count: int  # type: ignore[assignment] # replaces the method of tuple
    instructions: list[FoundInstruction]


@verb
def find(
    *,
    arch: Arch | None = None,
    type_: ElementType | None = None,
    a: ElementType | None = None,
    b: ElementType | None = None,
    c: ElementType | None = None,
    d: ElementType | None = None,
    shape: str | None = None,
    kind: str | None = None,
    op: str | None = None,
    sparse: bool = False,
    dense: bool = False,
    long: bool = False,
) -> Answer[FoundInstructions]:
    """List instructions, one name per line; options filter them.

    The 15,000 tcgen05 instructions are listed only with a filter such as --op tcgen05. The exit status is 1 if no
    instruction matches.

    Options:
        arch: Only instructions that this architecture accepts.
        type_: Element type of at least one operand; aliases such as fp8 and nvfp4 are accepted.
        a: Element type of A.
        b: Element type of B.
        c: Element type of C.
        d: Element type of D.
        shape (SHAPE): The shape, such as m16n8k16.
        kind (KIND): The qualifier after kind::, such as mxf4.
        op (OP): The operation, such as mma.sp; wmma, wgmma and tcgen05 match all their operations.
        sparse: Only instructions with a sparse A.
        dense: Only instructions with a dense A.
        long: Show the architectures that accept each instruction.

    For example:
        warpfrag find --arch sm_90a -a e4m3
        warpfrag find --op wmma --type bf16 --long      # with the architectures that accept each
        warpfrag find --sparse --shape m16n8k64 --json
        warpfrag find -a fp8 --arch 'RTX 4090'           # an alias of types, the name of a GPU
    """
    from warpfrag.tensorcore import registry

    filters = {"shape": shape, "kind": kind, "op": op, "a": a, "b": b, "c": c, "d": d}
    words = {name: word.lower() for name, word in filters.items() if word is not None}
    found = registry.find(arch=arch, sparse=sparse if sparse or dense else None, **words)
    if type_ is not None:
        if not words and arch is None and not (sparse or dense):
            found += registry.find(op="tcgen05")
        found = _with_type(type_, found)
    rows = [_found(each) for each in found]

    def show() -> None:
        if long and rows:
            output.print_table(["instruction", "architectures"], [[row.name, " ".join(row.archs)] for row in rows])
        else:
            for row in rows:
                output.echo(row.name)
        if not rows:
            output.echo_error("warpfrag: no instruction matches all of these filters")

    return Answer(FoundInstructions(len(rows), rows), show, 0 if rows else output.NO)


def _with_type(name: str, found: list[Instruction]) -> list[Instruction]:
    """Return the instructions with an operand of this type; raise an error if there are none."""
    from warpfrag.formats.number_formats import format_alias
    from warpfrag.isa.instruction_table import ROLES, has_elements

    alias = format_alias(name)
    types = {id(each): {getattr(each.form, role) for role in (*ROLES, "memory")} for each in found}
    chosen = [
        each
        for each in found
        if name.lower() in types[id(each)] or (alias and any(has_elements(each.form, role, alias) for role in ROLES))
    ]
    if not chosen:
        known = sorted(set().union(*types.values()) - {""})
        raise WarpfragError(f"no instruction has the type {quote(name)}; expected one of {', '.join(known)}")
    return chosen


def _found(instruction: Instruction) -> FoundInstruction:
    form = instruction.form
    own = {"name": instruction.name, "shape": str(form.shape), "sparse": form.is_sparse, "archs": instruction.targets}
    return facts_of(FoundInstruction, form, **own)


class InstructionNames(NamedTuple):
    """The names of one instruction in other tools.

    instruction: canonical name
    cute: the CuTe atom
    sass: machine code by architecture
    nvvm: the LLVM intrinsic
    mlir: the MLIR operation
    synonyms: other names, and CuTe atoms that use it
    """

    instruction: str
    cute: str | None
    sass: dict[str, str]
    nvvm: str | None
    mlir: str | None
    synonyms: tuple[str, ...]


class NameMeaning(NamedTuple):
    """The meaning of a name from another tool; keys that do not apply are null or empty.

    query: the name that was looked up
    notation: cute, sass, nvvm, mlir, ptx, gpu or type; null if unknown
    origin: the meaning of the name, if it is a construct that contains the instruction
    instructions: the instructions that it names
    expands_to: other instructions that compile to this name
    gpu: the GPU
    arch: the architecture that accepts everything the GPU can run
    types: element types that it may mean
    requires: lists of qualifiers; an instruction with these types has one qualifier from each list
    reason: the reason why the name is unknown
    nearest: the closest instructions to an unknown name
    """

    query: str
    notation: str | None
    origin: str | None = None
    instructions: tuple[InstructionNames, ...] = ()
    expands_to: tuple[str, ...] = ()
    gpu: str | None = None
    arch: str | None = None
    types: tuple[str, ...] = ()
    requires: dict[str, list[str]] | None = None
    reason: str | None = None
    nearest: tuple[str, ...] = ()


@verb
def aliases(name: InstructionName) -> Answer[NameMeaning]:
    """Translate between PTX, SASS, CuTe, LLVM and MLIR names.

    INSTRUCTION is a CuTe atom, a line of SASS, an NVVM intrinsic, an MLIR operation, PTX or a source line with inline
    assembly; it may also be a GPU or an element type. If the name is unknown, the nearest names or
    the reason are printed, and the exit status is 1.

    For example:
        warpfrag aliases SM80_16x8x16_F32F16F16F32_TN                  # a CuTe atom
        warpfrag aliases HMMA.16816.F32                                # machine code
        warpfrag aliases llvm.nvvm.mma.m16n8k16.row.col.bf16           # an LLVM intrinsic
        warpfrag aliases 'asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0'   # a source line
        warpfrag aliases mma.m16n8k32.s32.s8.s8.s32                    # other names of a PTX instruction
        warpfrag aliases hopper                                        # a generation of GPUs
        warpfrag aliases 'RTX 4090'                                    # a GPU
    """
    from warpfrag.formats.number_formats import format_alias
    from warpfrag.isa.instruction_names import spell

    if gpu := gpu_called(name):
        arch = gpus()[gpu]
        return Answer(NameMeaning(name, "gpu", gpu=gpu, arch=arch), lambda: output.echo(f"{gpu} is {arch}"))
    if alias := format_alias(name):
        facts = NameMeaning(name, "type", types=alias.types, requires=alias.lists)
        return Answer(facts, lambda: _print_type(facts))
    try:
        meant, forms = _meaning(name)
    except IllegalInstruction as error:
        facts = NameMeaning(name, None, reason=error.reason, nearest=error.nearest)
        return Answer(facts, lambda: _print_illegal(facts), output.NO)
    names = tuple(_names(form) for form in forms)
    notation, origin = (meant.notation, meant.how) if meant else ("ptx", "")
    expands_to = tuple(map(spell, meant.among)) if meant else ()
    facts = NameMeaning(name, notation, origin or None, names, expands_to)
    return Answer(facts, lambda: _print_names(facts, meant.name if meant else name))


def _meaning(text: str) -> tuple[Meaning | None, tuple[Form, ...]]:
    """Return the meaning of a name, and its instructions; raise IllegalInstruction if there are none."""
    from warpfrag.isa.alias_names import is_plain, statements
    from warpfrag.isa.aliases import meaning
    from warpfrag.isa.legality import resolve

    if not is_plain(text):
        if several := statements(text):
            return None, tuple(dict.fromkeys(resolve(name) for name in several))
        meant = meaning(text)
        if meant and meant.forms:
            return meant, meant.forms
    return None, (resolve(text),)


def _names(form: Form) -> InstructionNames:
    from warpfrag.isa.aliases import aliases_of
    from warpfrag.isa.instruction_names import spell

    names = aliases_of(form)
    return InstructionNames(spell(form), names["cute"], names["sass"], names["nvvm"], names["mlir"], names["also"])


def _print_names(facts: NameMeaning, name: str) -> None:
    if facts.origin:
        output.echo(output.wrapped(f"{name} is {facts.origin}:"))
    for number, names in enumerate(facts.instructions[:MAX_LISTED]):
        if number:
            output.echo()
        output.print_heading(names.instruction)
        if len(facts.instructions) > MAX_DETAILED:
            continue
        by_code = grouped((code, arch) for arch, code in names.sass.items())
        rows = [("CuTe", names.cute or "-")]
        rows += [("SASS", f"{code}  ({' '.join(archs)})") for code, archs in by_code.items()] or [("SASS", "-")]
        rows += [("NVVM", names.nvvm or "-"), ("MLIR", names.mlir or "-")]
        rows += [("also", other) for other in names.synonyms]
        output.echo_wrapped((f"  {label}  {text}" for label, text in rows), indent=8)
    _print_more(len(facts.instructions), "")
    if facts.expands_to:
        output.echo("\n" + output.wrapped(f"{name} is also emitted for:"))
        for other in facts.expands_to[:MAX_LISTED]:
            output.echo(f"  {other}")
        _print_more(len(facts.expands_to), "  ")


def _print_more(count: int, indent: str) -> None:
    if count > MAX_LISTED:
        output.echo(f"{indent}... and {count - MAX_LISTED} more; --json lists all")


def _print_type(facts: NameMeaning) -> None:
    output.echo(f"{facts.query} is {' or '.join(facts.types)}")
    if facts.requires:
        output.print_table(["with", "one of"], [[name, " ".join(words)] for name, words in facts.requires.items()])


def _print_illegal(facts: NameMeaning | Legality) -> None:
    """Print the reason why an instruction is illegal, and the nearest legal instructions."""
    output.print_heading("no")
    output.echo(output.wrapped(facts.reason or ""))
    for near in facts.nearest:
        output.echo(f"  near: {near}")


class Legality(NamedTuple):
    """The verdict on an instruction for an architecture; keys that do not apply are null or empty.

    query: the name that was checked
    arch: the requested architecture
    selector: the requested selector
    legal: true if the instruction is legal
    instruction: canonical name
    left_out: qualifiers that the short name omits
    archs: architectures that accept it
    ptx_versions: lowest PTX version by architecture
    advice: the assembler's advice
    reason: the reason why it is not legal
    nearest: the nearest legal names, if it is not legal
    """

    query: str
    arch: str | None
    selector: int | None
    legal: bool
    instruction: str | None = None
    left_out: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    ptx_versions: dict[str, str] | None = None
    advice: str | None = None
    reason: str | None = None
    nearest: tuple[str, ...] = ()


@verb
def legal(
    instruction: InstructionName, on: Arch | None = None, *, arch: Arch | None = None, selector: int | None = None
) -> Answer[Legality]:
    """Check whether an architecture accepts an instruction; if not, show the reason and the nearest legal names.

    The exit status is 0 if it is legal, and 1 if not.

    Options:
        arch: The architecture, which may also come after the instruction; default: any.
        selector: The sparsity selector.

    For example:
        warpfrag legal mma.m16n8k16.f32.f16.f16.f32 sm_75
        warpfrag legal mma.sp.m16n8k32.f32.f16.f16.f32 --arch sm_90 --selector 2
    """
    from warpfrag.isa.legality import advice, first_versions, left_out
    from warpfrag.tensorcore.registry import get as get_instruction

    if arch and on and arch != on:
        raise click.UsageError(f"the architecture is given twice: {on} and --arch {arch}")
    arch = arch or on
    try:
        resolved = get_instruction(instruction, arch, selector)
    except IllegalInstruction as error:
        refusal = Legality(instruction, arch, selector, legal=False, reason=error.reason, nearest=error.nearest)
        return Answer(refusal, lambda: _print_illegal(refusal), output.NO)
    versions, advised = first_versions(resolved.form, resolved.targets), advice(resolved.form) or None
    names = resolved.name, left_out(instruction), resolved.targets
    facts = Legality(instruction, arch, selector, True, *names, versions, advised)  # noqa: FBT003
    return Answer(facts, lambda: _print_legal(facts, versions))


def _print_legal(facts: Legality, versions: dict[str, str]) -> None:

    output.print_heading("yes")
    output.echo(facts.instruction or "")
    if facts.left_out:
        output.echo(output.wrapped(f"short form; the full name adds .{'.'.join(facts.left_out)}"))
    output.echo(output.wrapped(f"legal on {' '.join(facts.archs)}", indent=9))
    if facts.arch:
        last = targets()[facts.arch].ptxas
        only = f", and ptxas from CUDA {last} or earlier" if last else ""
        output.echo(f"needs PTX {versions[facts.arch]} or later on {facts.arch}{only}")
    if facts.advice:
        output.echo(output.wrapped(facts.advice))
