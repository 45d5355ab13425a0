"""`warpfrag loads`, `stores` and `relayout`: plan moves between memory and registers, and between fragments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

import click

from warpfrag.cli.io.arguments import Arch, File, FragmentName, InstructionName, OperandName
from warpfrag.cli.io.fragment_argument import FragmentFacts, fragment_facts, fragment_text, read_fragment, read_operand
from warpfrag.cli.io.output import DONE, NO, echo, echo_wrapped, print_heading, print_notes, print_table, wrapped
from warpfrag.cli.io.verbs import Answer, Param, facts_of, integer, verb
from warpfrag.errors import InvalidOperand
from warpfrag.files import write_atomically
from warpfrag.plans import access_plan
from warpfrag.plans import loads as plans
from warpfrag.plans.relayout import Relayout
from warpfrag.plans.relayout_operations import cost, described
from warpfrag.plans.tensor_relayout import TensorRelayout
from warpfrag.plans.tensor_relayout import relayout as plan_relayout
from warpfrag.smem.shared_memory import MAX_BYTES, Memory
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import get

IN_LINE = 8  # number of addresses per line

Size = Annotated[int, Param("BYTES", integer(1, MAX_BYTES - 1))]
Language = Annotated[Literal["cuda", "ptx"], Param(help="Print the code.")]


class AccessFacts(NamedTuple):
    """One instruction of a plan.

    words: registers that it moves
    slot: the element that it moves, if it does not move whole registers
    width: bytes per lane
    addresses: address by lane; null for a lane that does not take part
    expression: the address in CUDA C++
    passes: shared-memory passes
    conflicts: passes above the minimum
    """

    instruction: str
    words: tuple[int, ...]
    slot: int | None
    width: int
    addresses: tuple[int | None, ...]
    expression: str
    passes: int
    conflicts: int


class PlanFacts(NamedTuple):
    """A plan of accesses.

    instructions: number of instructions
    cost: instructions and passes
    shift: bits by which each word is shifted left afterwards
    archs: architectures that have its instructions
    """

    name: str
    memory: Memory
    instructions: int
    passes: int
    conflicts: int
    cost: int
    shift: int
    archs: tuple[str, ...]
    accesses: list[AccessFacts]


class AccessPlans(NamedTuple):
    """The plans to load or store an operand, cheapest first.

    order: the contiguous direction: row or col
    lang: language of the code
    code: with --emit: the code
    file: file that was written
    remedies: padding and swizzle that remove the bank conflicts of the first plan
    """

    operand: FragmentFacts
    order: str
    plans: list[PlanFacts]
    lang: str | None
    code: str | None
    file: str | None
    remedies: list[str]


class MatrixInMemory(NamedTuple):
    """A matrix in shared memory.

    Options:
        order: The contiguous direction.
        pitch: Bytes from one row to the next or, in column order, from one column to the next.
        swizzle: Swizzle width in bytes; default: 0.
        start: Start address of the matrix.
    """

    order: Literal["row", "col"] = "row"
    pitch: Size | None = None
    swizzle: Literal["0", "32", "64", "128"] | None = None
    start: Annotated[int, Param("BYTES", integer(0, MAX_BYTES - 1))] | None = None


class PlanOutput(NamedTuple):
    """The plans that are shown.

    Options:
        search: Find pitches and swizzles without bank conflicts.
        plan: Show only plan N; code and figures default to plan 1.
        lanes: Show the address of every lane, in bytes.
        output: Write the code with --emit, otherwise a figure: .svg, .png or .txt.
    """

    search: bool = False
    plan: Annotated[int, Param("N", integer(1))] | None = None
    lanes: bool = False
    emit: Language | None = None
    output: File | None = None


@verb
def loads(
    instruction: InstructionName,
    operand: OperandName,
    *,
    memory: MatrixInMemory = MatrixInMemory(),  # noqa: B008 (immutable)
    packed: bool = False,
    shown: PlanOutput = PlanOutput(),  # noqa: B008 (immutable)
    arch: Arch | None = None,
) -> Answer[AccessPlans]:
    """Show every plan to load an operand from shared memory, cheapest first: addresses, passes, bank conflicts.

    OPERAND is a, b, c or d; b:col=2 is two tiles side by side, b:row=2 two stacked tiles. Without --pitch, the matrix
    has no gaps. All sizes are in bytes. The cost is the number of instructions plus shared-memory passes.

    Options:
        packed: Each group of 16 elements (of 4 or 6 bits) starts at a multiple of 16 bytes.

    For example:
        warpfrag loads mma.m16n8k16.f32.f16.f16.f32 a --order row --pitch 128 --swizzle 128
        warpfrag loads mma.m16n8k16.f32.f16.f16.f32 b:col=2 --order col --pitch 128 --swizzle 128 --lanes   # two tiles
        warpfrag loads mma.m16n8k16.f32.f16.f16.f32 a --search
        warpfrag loads mma.m16n8k16.f32.f16.f16.f32 b --pitch 128 --swizzle 128 --emit cuda
        warpfrag loads mma.m16n8k16.f32.f16.f16.f32 a --pitch 128 --swizzle 128 -o addresses.svg
        warpfrag loads mma.m16n8k32.kind::f8f6f4.f32.e3m2.e2m1.f32 a --pitch 48 --packed
    """
    return _plan_answer("load", read_operand(get(instruction, arch), operand), memory, shown, arch, packed=packed)


@verb
def stores(
    instruction: InstructionName,
    operand: OperandName,
    *,
    memory: MatrixInMemory = MatrixInMemory(),  # noqa: B008 (immutable)
    shown: PlanOutput = PlanOutput(),  # noqa: B008 (immutable)
    arch: Arch | None = None,
) -> Answer[AccessPlans]:
    """Show every plan to store an operand to shared memory, cheapest first: addresses, passes, bank conflicts.

    OPERAND is a, b, c or d; b:col=2 is two tiles side by side, b:row=2 two stacked tiles. Without --pitch, the matrix
    has no gaps. All sizes are in bytes. The cost is the number of instructions plus shared-memory passes.

    For example:
        warpfrag stores mma.m16n8k16.f16.f16.f16.f16 d --order row --pitch 32 --swizzle 32
        warpfrag stores mma.m16n8k16.f32.f16.f16.f32 d --pitch 32 --arch sm_80
        warpfrag stores mma.m16n8k16.f16.f16.f16.f16 d:col=2 --search --emit ptx
        warpfrag stores wgmma.mma_async.m64n64k16.f16.f16.f16 d --pitch 128 --swizzle 128   # with four warps
    """
    return _plan_answer("store", read_operand(get(instruction, arch), operand), memory, shown, arch)


def _plan_answer(
    direction: access_plan.Direction,
    operand: Operand,
    memory: MatrixInMemory,
    shown: PlanOutput,
    arch: str | None,
    *,
    packed: bool = False,
) -> Answer[AccessPlans]:
    found = _plans(direction, operand, memory, packed=packed, searches=shown.search)
    if arch:
        found = [plan for plan in found if arch in plan.targets]
    if shown.plan is not None and shown.plan > len(found):
        raise click.UsageError(
            f"--plan: expected a number from 1 to {len(found)}" if found else "--plan: no plan was found"
        )
    first = (shown.plan or 1) - 1
    chosen = found if shown.plan is None else found[first : first + 1]
    code = found[first].emit(shown.emit) if shown.emit and found else None
    if shown.output and code:
        write_atomically(shown.output, code)
    elif shown.output and found:
        from warpfrag.viz.draw import draw

        draw(found[first]).save(shown.output)
    rows = [_plan_facts(plan) for plan in chosen]
    remedies = _remedies(chosen[0]) if chosen else []
    facts = AccessPlans(fragment_facts(operand), memory.order, rows, shown.emit, code, shown.output, remedies)
    return Answer(
        facts, lambda: _print_plans(direction, operand, memory, shown, chosen, code, remedies), DONE if found else NO
    )


def _plans(
    direction: access_plan.Direction, operand: Operand, memory: MatrixInMemory, *, packed: bool, searches: bool
) -> list[access_plan.AccessPlan]:
    if searches:
        options = memory._asdict() | {"order": None, "packed": packed or None}
        if superfluous := ", ".join(f"--{name}" for name, value in options.items() if value is not None):
            raise click.UsageError(f"--search finds pitches and swizzles itself: leave out {superfluous}")
        return plans.search(operand, memory.order, direction)
    placed = Memory(memory.order, memory.pitch, int(memory.swizzle or 0), memory.start or 0)
    return plans.loads(operand, placed, packed=packed) if direction == "load" else plans.stores(operand, placed)


def _plan_facts(plan: access_plan.AccessPlan) -> PlanFacts:
    accesses = [facts_of(AccessFacts, access, expression=plan.expression(access)) for access in plan.accesses]
    return facts_of(PlanFacts, plan, archs=plan.targets, accesses=accesses)


def _print_code(code: str, output: str | None) -> None:
    """Print the code, or the name and size of the file that contains it."""
    echo(f"{output}: {code.count(chr(10))} lines" if output else code.rstrip("\n"))


def _print_plans(
    direction: access_plan.Direction,
    operand: Operand,
    memory: MatrixInMemory,
    shown: PlanOutput,
    found: list[access_plan.AccessPlan],
    code: str | None,
    remedies: list[str],
) -> None:
    if code:
        _print_code(code, shown.output)
        return
    placed = f"{memory.order} order" if shown.search or not found else found[0].memory.description
    print_heading(fragment_text(operand))
    print_heading(f"{'from' if direction == 'load' else 'to'} shared memory: {placed}")
    if not found:
        echo("no plan" + (" without bank conflicts" if shown.search else _unaligned(operand, memory)))
        return
    numbered = list(enumerate(found, shown.plan or 1))
    header = ["plan", *["pitch", "swizzle"] * shown.search, "instructions", "passes", "conflicts", "cost", "name"]
    rows = [
        [
            number,
            *([plan.memory.pitch or 0, plan.memory.swizzle] if shown.search else []),
            *(plan.instructions, plan.passes, plan.conflicts, plan.cost, _short(plan.name)),
        ]
        for number, plan in numbered
    ]
    print_table(header, rows)
    for number, plan in numbered:
        echo(f"\nplan {number}")
        for access in plan.accesses:
            for line in _access_lines(plan, access, lanes=shown.lanes):
                echo(line)
        if plan.shift:
            echo(f"  then shift each word left by {plan.shift} bits")
    print_notes([*_notes(operand, found), *remedies])


def _unaligned(operand: Operand, memory: MatrixInMemory) -> str:
    """Return the reason why misaligned elements rule out every plan, or an empty string."""
    size = operand.spec.container // 8
    offsets = {"pitch": memory.pitch or 0, "start": memory.start or 0}
    misaligned = [f"{name} {offset}" for name, offset in offsets.items() if size > 1 and offset % size]
    return f": {size}-byte elements are not aligned with {' and '.join(misaligned)}" if misaligned else ""


def _short(name: str) -> str:
    """Return a shortened instruction name."""
    return name.replace(".sync.aligned", "")


def _access_lines(plan: access_plan.AccessPlan, access: access_plan.Access, *, lanes: bool) -> Iterator[str]:
    words = ", ".join(map(str, access.words))
    part = "" if access.slot is None else f", element {access.slot}"
    yield f"  {_short(access.instruction)}, register{'s' if len(access.words) > 1 else ''} {words}{part}"
    total = access_plan.sum_expression(access_plan.address_sum(access.addresses, plan.memory))
    yield f"    {f'swizzle({total})' if plan.memory.swizzle else total}"
    if lanes:
        pairs = [(thread, address) for thread, address in enumerate(access.addresses) if address is not None]
        name, wide = access_plan.thread_name(len(access.addresses)), len(str(len(access.addresses) - 1))
        for first in range(0, len(pairs), IN_LINE):
            numbers = " ".join(f"{address:6}" for _, address in pairs[first : first + IN_LINE])
            yield f"    {name} {pairs[first][0]:{wide}}: {numbers}"


def _notes(operand: Operand, found: list[access_plan.AccessPlan]) -> list[str]:
    notes = ["base is the start of the matrix in shared memory, as a 32-bit address, in bytes"]
    if len(operand.threads) > 1:
        notes.append("thread is threadIdx.x % 128, the index of a thread in its warpgroup; all four warps take part")
    for memory in {plan.memory.swizzle: plan.memory for plan in found if plan.memory.swizzle}.values():
        formula = f"swizzle(a) = {access_plan.swizzle_expression(memory, 'a')}"
        notes.append(f"{formula} for {memory.swizzle} bytes; align the memory to {8 * memory.swizzle} bytes")
    memory = found[0].memory
    extent = operand.layout.outs["col" if memory.order == "row" else "row"] * operand.spec.container // 8
    if memory.pitch is not None and memory.pitch < extent:
        notes.append(f"elements overlap: the pitch is {memory.pitch} bytes, but a {memory.order} has {extent} bytes")
    return notes


def _remedies(plan: access_plan.AccessPlan) -> list[str]:
    """Return a note on the smallest padding and the swizzle that remove a plan's bank conflicts, if there are any."""
    padding, swizzle = plans.without_conflicts(plan) if plan.conflicts else (None, None)
    remedies = [f"--pitch {padding[0]} ({padding[1]} bytes of padding per {plan.memory.order})"] if padding else []
    remedies += [f"--swizzle {swizzle}"] if swizzle is not None else []
    return [f"to remove the bank conflicts of the first plan: {' or '.join(remedies)}"] if remedies else []


class RelayoutMove(NamedTuple):
    """One step of a relayout: instructions of one type, and a description."""

    instruction: str
    count: int  # type: ignore[assignment] # not the method of tuple
    text: str


class RelayoutFacts(NamedTuple):
    """The plan that moves a matrix from one fragment to another.

    free: true if registers are only renamed
    counts: instructions by type: shfl, movmatrix, select, prmt, cvt
    cost: number of instructions; shfl and movmatrix count twice
    steps: the operations, in the order in which they run
    permutation: with --permute: destination column (or row) j holds source column p[j]
    lang: language of the code
    code: with --emit: the code
    file: file that was written
    """

    source: FragmentFacts
    destination: FragmentFacts
    free: bool
    counts: dict[str, int]
    cost: int
    steps: list[RelayoutMove]
    permutation: tuple[int, ...] | None
    lang: str | None
    code: str | None
    file: str | None


@verb
def relayout(
    source: FragmentName,
    destination: FragmentName,
    *,
    permute: Literal["row", "col"] | None = None,
    emit: Language | None = None,
    output: File | None = None,
    arch: Arch | None = None,
) -> Answer[RelayoutFacts]:
    """Plan the instructions that move a matrix from the registers of one fragment to those of another.

    The first fragment is the source and the second the destination. Each is written INSTRUCTION:OPERAND.
    Append :col=2 for two tiles side by side, :row=2 for two stacked tiles, or :row=2,col=2 for four. Both fragments
    must hold a matrix of the same size. If the formats differ, values are rounded to nearest even, with the
    saturation of cvt. A step that only renames registers is free.

    To convert a tcgen05 D to a tcgen05 A, the plan loads from tensor memory, converts the values and stores them.

    Options:
        permute: Allow any order of the destination's rows or columns.
        output: Write the code with --emit, otherwise a figure: .svg, .png or .txt.

    For example:
        warpfrag relayout mma.m16n8k16.f32.f16.f16.f32:d:col=2 mma.m16n8k16.f32.f16.f16.f32:a   # two D tiles become A
        warpfrag relayout mma.m16n8k32.f32.e4m3.e4m3.f32:d:col=4 mma.m16n8k32.f32.e4m3.e4m3.f32:a --emit cuda
        warpfrag relayout mma.m16n8k32.f32.e4m3.e4m3.f32:d:col=4 mma.m16n8k32.f32.e4m3.e4m3.f32:a --permute col
        warpfrag relayout mma.m16n8k16.f32.f16.f16.f32:d mma.m16n8k16.f32.f16.f16.f32:b -o moves.svg
        warpfrag relayout tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.bf16.bf16:d
            tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.bf16.bf16:a     # tensor memory: load, convert, store
    """
    try:
        plan = plan_relayout(read_fragment(source, arch), read_fragment(destination, arch), permute=permute)
    except InvalidOperand as error:
        names = {"source": source, "target": destination}
        tiled = re.compile(r"\b(source|target)\.tiled\((.+?)\)")
        raise InvalidOperand(tiled.sub(lambda m: f"{names[m[1]]}:{m[2].replace(' ', '')}", str(error))) from None
    code = plan.emit(emit) if emit else None
    if output and code:
        write_atomically(output, code)
    elif output:
        from warpfrag.viz.draw import draw

        if isinstance(plan, TensorRelayout):
            raise InvalidOperand("a relayout in tensor memory cannot be drawn; --emit cuda writes its code")
        draw(plan).save(output)
    moves = [RelayoutMove(*cost(step), described(step)) for step in plan.operations]
    if isinstance(plan, TensorRelayout):
        moves = [
            RelayoutMove(plan.load.name, 1, "load columns of D"),
            *moves,
            RelayoutMove(plan.store.name, 1, "store columns of A"),
        ]
        moves = [move._replace(count=move.count * plan.count) for move in moves]
    ends = fragment_facts(plan.source), fragment_facts(plan.target)
    permutation = None if isinstance(plan, TensorRelayout) else plan.permutation
    facts = RelayoutFacts(*ends, plan.is_free, plan.counts, plan.cost, moves, permutation, emit, code, output)
    return Answer(facts, lambda: _print_code(code, output) if code else _print_relayout(plan, facts))


def _print_relayout(plan: Relayout | TensorRelayout, facts: RelayoutFacts) -> None:
    print_heading(f"{fragment_text(plan.source)}")
    print_heading(f"-> {fragment_text(plan.target)}")
    if isinstance(plan, TensorRelayout):
        echo(wrapped(f"In tensor memory, through registers, {plan.count} x {plan.columns} columns of D:"))
        echo_wrapped((f"{number:2}. {name}" for number, name in enumerate(plan.instructions, 1)), indent=4)
        return
    echo(wrapped(plan.verdict))
    if facts.steps:
        echo()
        costs = [f"{move.count} {move.instruction}" if move.count else "free" for move in facts.steps]
        left = max(map(len, costs)) + 2
        for number, (text, move) in enumerate(zip(costs, facts.steps, strict=True), 1):
            echo(wrapped(f"{number:2}. {text:<{left}}{move.text}", indent=left + 4))
    if plan.permutation:
        echo("\n" + wrapped(plan.permutation_text, indent=2))
