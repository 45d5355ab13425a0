"""`warpfrag relayout`: what brings a matrix from one fragment to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from warpfrag.cli.support.access_plans import access_plan_json, write_or_echo
from warpfrag.cli.support.fragment_argument import fragment_json, fragment_text, read_fragment
from warpfrag.cli.support.options import complete_instruction, file_option, json_option, target_option
from warpfrag.cli.support.output import echo, print_heading, print_json, wrapped
from warpfrag.cli.support.verbs import verb
from warpfrag.errors import InvalidOperand
from warpfrag.isa.targets import targets
from warpfrag.plans.relayout_operations import cost, described
from warpfrag.plans.tensor_relayout import TensorRelayout, relayout

if TYPE_CHECKING:
    from warpfrag.plans.relayout import Relayout
    from warpfrag.plans.round_trip import SharedMemoryRoundTrip
    from warpfrag.tensorcore.tensor_operand import TensorOperand

TENSOR = "tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.bf16.bf16"
ACCUMULATOR, FP8 = "mma.m16n8k16.f32.f16.f16.f32", "mma.m16n8k32.f32.e4m3.e4m3.f32"


@verb(
    f"warpfrag relayout {ACCUMULATOR}:d:col=2 {ACCUMULATOR}:a             # D of two is A of the next",
    f"warpfrag relayout {FP8}:d:col=4 {FP8}:a --emit cuda",
    f"warpfrag relayout {FP8}:d:col=4 {FP8}:a --permute col     # free, with k permuted",
    f"warpfrag relayout {ACCUMULATOR}:d {ACCUMULATOR}:b -o moves.svg",
    f"warpfrag relayout {TENSOR}:d {TENSOR}:a     # tensor memory: load, convert, store",
)
@click.argument("source", metavar="SRC", shell_complete=complete_instruction)
@click.argument("destination", metavar="DST", shell_complete=complete_instruction)
@click.option("--permute", type=click.Choice(["row", "col"]), help="Allow any order of the target's rows or columns.")
@click.option("--emit", "lang", type=click.Choice(["cuda", "ptx"]), help="Print the code.")
@file_option("-o", "--output", help_text="With --emit the code; else a figure, .svg, .png or .txt.")
@target_option
@json_option
def command(
    *,
    source: str,
    destination: str,
    permute: Literal["row", "col"] | None,
    lang: str | None,
    output: str | None,
    target: str | None,
    as_json: bool,
) -> None:
    """The steps that move a matrix from the registers of one fragment to those of another, if any are needed.

    SRC and DST are written INSTRUCTION:OPERAND, and INSTRUCTION:OPERAND:col=2 for two tiles side by side, row=2 for two
    below each other, row=2,col=2 for four. Both must hold a matrix of the same extents; where formats differ, values
    are converted to nearest even, saturating where cvt does. A step that only renames registers costs nothing.

    From D to A of tcgen05 the plan is a load of tensor memory, conversions and a store; A has as many steps of k as D
    has columns for.
    """
    plan = relayout(read_fragment(source, target), read_fragment(destination, target), permute=permute)
    code = plan.emit(lang) if lang else None
    if output and not code:
        from warpfrag.viz.draw import draw

        if isinstance(plan, TensorRelayout):
            msg = "a relayout in tensor memory has no figure; --emit cuda writes its code"
            raise InvalidOperand(msg)
        draw(plan).save(output)
    through_memory = plan.cheaper_round_trip(target)
    if as_json:
        print_json("relayout", {**_json(plan, through_memory), "lang": lang, "code": code, "file": output})
    if write_or_echo(code, output, quiet=as_json) or as_json:
        return
    print_heading(f"{fragment_text(plan.source)}")
    print_heading(f"-> {fragment_text(plan.target)}")
    if isinstance(plan, TensorRelayout):
        echo(wrapped(f"In tensor memory, through registers, {plan.count} times {plan.columns} columns of D:"))
        for number, step in enumerate(plan.instructions, 1):
            echo(wrapped(f"{number:2}. {step}", indent=4))
        return
    _print_plan(plan, through_memory)


def _print_plan(plan: Relayout, through_memory: SharedMemoryRoundTrip | None) -> None:
    echo(wrapped(plan.verdict))
    if plan.operations:
        echo()
        costs = [f"{count} {kind}" if count else "free" for kind, count in map(cost, plan.operations)]
        left = max(map(len, costs)) + 2
        for number, (cost_text, step) in enumerate(zip(costs, plan.operations, strict=True), 1):
            echo(wrapped(f"{number:2}. {cost_text:<{left}}{described(step)}", indent=left + 4))
    if plan.permutation:
        echo()
        echo(wrapped(plan.permutation_text, indent=2))
    if through_memory:
        costs_less = f"Through shared memory it costs {through_memory.cost} instead of {plan.cost}"
        echo()
        echo(wrapped(f"{costs_less}, {_where(through_memory.targets)}: {through_memory}.", indent=2))


def _where(legal: tuple[str, ...]) -> str:
    """Targets, as the first where all later ones have it too."""
    every = [*targets()]
    later = every[every.index(legal[0]) :]
    return f"from {legal[0]} on" if list(legal) == later else f"on {', '.join(legal)}"


def _json(plan: Relayout, through_memory: SharedMemoryRoundTrip | None) -> dict[str, object]:
    if isinstance(plan, TensorRelayout):
        return _tensor_json(plan)
    return {
        "source": fragment_json(plan.source),
        "target": fragment_json(plan.target),
        "free": plan.is_free,
        "counts": plan.counts,
        "cost": plan.cost,
        "steps": [
            {"instruction": kind, "count": count, "text": described(step)}
            for step in plan.operations
            for kind, count in [cost(step)]
        ],
        "permutation": plan.permutation,
        "through_memory": through_memory
        and {
            "cost": through_memory.cost,
            "store": access_plan_json(through_memory.store),
            "load": access_plan_json(through_memory.load),
        },
    }


def _tensor_json(plan: TensorRelayout) -> dict[str, object]:
    """The same keys: a load, what happens to registers, and a store, each as often as there are parts."""
    steps = [
        (plan.load.name, "load columns of D"),
        *((kind, described(step)) for step in plan.operations for kind, _ in [cost(step)]),
        (plan.store.name, "store columns of A"),
    ]
    counts = [1, *(count for step in plan.operations for _, count in [cost(step)]), 1]
    return {
        "source": _tensor_operand(plan.source),
        "target": _tensor_operand(plan.target),
        "free": plan.is_free,
        "counts": plan.counts,
        "cost": plan.cost,
        "steps": [
            {"instruction": kind, "count": count * plan.count, "text": text}
            for (kind, text), count in zip(steps, counts, strict=True)
        ],
        "permutation": None,
        "through_memory": None,
    }


def _tensor_operand(operand: TensorOperand) -> dict[str, object]:
    """An operand in tensor memory; its words are those of a lane."""
    return {
        "instruction": operand.instruction,
        "operand": operand.role,
        "format": operand.format.name,
        "shape": operand.shape,
        "words": operand.columns,
    }
