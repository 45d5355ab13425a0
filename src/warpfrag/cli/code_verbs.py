"""`warpfrag arithmetic-table`, `test-vectors` and `emit`: an instruction's arithmetic, test vectors and code."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from warpfrag.cli.io.arguments import Arch, File, InstructionName, Seed
from warpfrag.cli.io.output import echo, echo_wrapped, print_heading, print_table, wrapped
from warpfrag.cli.io.verbs import Answer, verb
from warpfrag.files import write_atomically
from warpfrag.isa.alias_names import is_plain
from warpfrag.isa.instruction_table import running_target
from warpfrag.tensorcore.arithmetic_table import ArithmeticRow, ArithmeticTable, references
from warpfrag.tensorcore.arithmetic_table import arithmetic_table as make_table
from warpfrag.tensorcore.registry import get

CELLS = """8/24: 8 products per step, 24 fraction bits kept; fma: rounded after every product; exact: integers;
-: no such instruction, or not modelled""".replace("\n", " ")


class ArithmeticFacts(NamedTuple):
    """The arithmetic of tensor cores.

    arch: the requested architecture; null for all
    rows: one for each arithmetic model
    not_modelled: instructions whose arithmetic is not published
    references: the publications that rows cite, by key
    """

    arch: str | None
    rows: list[ArithmeticRow]
    not_modelled: list[str]
    references: dict[str, dict[str, Any]]


@verb
def arithmetic_table(arch: str | None = None, *, for_: InstructionName | None = None) -> Answer[ArithmeticFacts]:
    """Show how many products a tensor core adds per step, the bits kept, the rounding and the order, with references.

    Without ARCH, show one table for all architectures. A cell has the number of products per step and the fraction bits
    that are kept; fma means that the sum is rounded after every product, and exact means integers. ARCH may also be an
    instruction, as with --for. Each row names the source of its rule: published, or hardware if it was measured for
    warpfrag. `warpfrag get` also names the GPUs that were compared.

    Options:
        for_: Show only the row of this instruction.

    For example:
        warpfrag arithmetic-table sm_90
        warpfrag arithmetic-table sm_90 --for mma.m16n8k16.f32.f16.f16.f32
        warpfrag arithmetic-table                                    # one table for all architectures
        warpfrag arithmetic-table sm_100 --json
    """
    if arch is not None and for_ is None and is_plain(arch):
        arch, for_ = None, arch
    table = make_table(arch)
    if for_ is not None:
        table = ArithmeticTable(tuple(table.every(for_)), ())
    facts = ArithmeticFacts(arch, **table.to_dict())  # type: ignore[arg-type] # the keys are field names
    return Answer(facts, lambda: _print_table(table, arch, is_overview=arch is None and for_ is None))


def _print_table(table: ArithmeticTable, arch: str | None, *, is_overview: bool) -> None:

    if is_overview:
        head, *body = table.overview()
        print_table(list(head), [list(row) for row in body])
        echo(wrapped(CELLS))
    for row in () if is_overview else table:
        heading, *lines = str(row).splitlines()
        print_heading(heading if arch else f"{row.arch}: {heading}")
        echo_wrapped(lines, indent=4)
    cited = {key for row in table for key in row.references}
    if cited:
        print_heading("references")
    for key, entry in references().items():
        if key in cited:
            echo(wrapped(f"  {key}: {entry}", indent=4))


class TestVectorGroup(NamedTuple):
    """A group of test vectors, and the mistakes that it detects."""

    name: str
    cases: int
    catches: str


class TestVectorFacts(NamedTuple):
    """Test vectors of an instruction.

    instruction: canonical name
    file: file that was written
    """

    instruction: str
    arch: str
    seed: int
    file: str | None
    groups: list[TestVectorGroup]


@verb
def test_vectors(
    instruction: InstructionName, *, arch: Arch = "sm_90", seed: Seed = 1, output: File | None = None
) -> Answer[TestVectorFacts]:
    """Write test vectors that expose layout mistakes: operand registers and the expected result registers.

    Each group lists the mistakes that it catches. For tcgen05, the vectors are the contents of shared and tensor
    memory, with descriptors.

    Options:
        arch: The architecture whose arithmetic is used.
        output: Write the vectors to this .npz archive.

    For example:
        warpfrag test-vectors mma.m16n8k16.f32.f16.f16.f32                  # the groups, and the mistakes they catch
        warpfrag test-vectors mma.m16n8k16.f32.f16.f16.f32 -o vectors.npz
        warpfrag test-vectors tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.bf16.bf16 --arch sm_100 -o vectors.npz
    """
    from warpfrag.codegen.vectors import check_output
    from warpfrag.codegen.vectors import test_vectors as make_vectors

    if output:
        check_output(output)
    vectors = make_vectors(instruction, arch=arch, seed=seed)
    if output:
        vectors.save(output)
    groups = [TestVectorGroup(group.name, group.cases, group.catches) for group in vectors.groups]

    def show() -> None:
        print_heading(f"{vectors.instruction.name} on {running_target(vectors.instruction.form, arch)}")
        for group in groups:
            echo(f"\n{group.name}: {group.cases} cases")
            echo(wrapped(f"  catches {group.catches}", indent=2))
        echo(f"\n{vectors.cases} cases" + (f", written to {output}" if output else ""))

    return Answer(TestVectorFacts(vectors.instruction.name, arch, seed, output, groups), show)


class EmittedCode(NamedTuple):
    """Generated code for instructions.

    instructions: canonical names
    lang: cuda or ptx
    arch: the requested architecture
    kernels: true if the code contains kernels
    file: file that was written
    text: the code; null if it was written to a file
    """

    instructions: list[str]
    lang: str
    arch: str | None
    kernels: bool
    file: str | None
    text: str | None


@verb
def emit(
    instructions: tuple[InstructionName, ...],
    *,
    lang: Literal["cuda", "ptx"] = "cuda",
    arch: Arch | None = None,
    kernels: bool = False,
    output: File | None = None,
) -> Answer[EmittedCode]:
    """Write code that executes instructions: a CUDA C++ header, or a PTX module.

    For a multiplication, the header has an inline-PTX wrapper, and functions that move each operand between memory and
    registers, with ldmatrix and stmatrix if the layout allows it. Any number of files may include the header. A PTX
    module has kernels that load and store whole registers. Without --arch, the code compiles for every architecture
    that accepts the instructions.

    Options:
        lang: The language.
        arch: Use all features of this architecture, and reject instructions that it does not accept.
        kernels: CUDA C++: add kernels that read and write memory; compile the file instead of including it.
        output: Write the code to a file.

    For example:
        warpfrag emit mma.m16n8k16.f32.f16.f16.f32
        warpfrag emit mma.m16n8k16.f32.f16.f16.f32 --arch sm_90 -o mma.cuh      # with stmatrix
        warpfrag emit mma.m16n8k16.f32.f16.f16.f32 --kernels -o mma.cu          # with kernels to launch
        warpfrag emit mma.sp.m16n8k32.f32.f16.f16.f32 wmma.mma.row.col.m16n16k16.f32.f32 --lang ptx
    """
    from warpfrag.codegen.emit import emit as emit_code

    text = emit_code(instructions, lang=lang, arch=arch, kernels=kernels)
    if output:
        write_atomically(output, text)
    names = [get(name).name for name in instructions]
    facts = EmittedCode(names, lang, arch, kernels or lang == "ptx", output, None if output else text)
    return Answer(facts, lambda: echo(f"{output}: {text.count(chr(10))} lines" if output else text.rstrip("\n")))
