"""`warpfrag legal`: whether a target accepts an instruction."""

from __future__ import annotations

import click

from warpfrag.cli.support.options import instruction_argument, integer, json_option, target_option_with_help
from warpfrag.cli.support.output import NO, echo, print_heading, print_illegal, print_json, wrapped
from warpfrag.cli.support.verbs import verb
from warpfrag.errors import IllegalInstruction
from warpfrag.isa.targets import targets


@verb(
    "warpfrag legal mma.m16n8k16.f32.f16.f16.f32 --target sm_75",
    "warpfrag legal mma.sp.m16n8k32.f32.f16.f16.f32 --target sm_90 --selector 2",
)
@instruction_argument
@target_option_with_help("The target; without one, whether any accepts it.")
@click.option("--selector", type=integer(), metavar="N", help="The sparsity selector.")
@json_option
def command(*, name: str, target: str | None, selector: int | None, as_json: bool) -> int:
    """Whether a target accepts an instruction; if not, which word is wrong and the closest alternatives.

    The exit status is 0 for yes and 1 for no.
    """
    from warpfrag.cli.info import ptx_versions
    from warpfrag.isa.legality import advice, left_out
    from warpfrag.tensorcore.registry import get

    asked = {"asked": name, "target": target, "selector": selector}
    try:
        instruction = get(name, target, selector)
    except IllegalInstruction as refusal:
        if as_json:
            print_json("legal", {**asked, "legal": False, "reason": refusal.reason, "nearest": refusal.nearest})
        else:
            print_illegal(refusal)
        return NO
    missing = left_out(name)
    advised = advice(instruction.form)
    if as_json:
        facts = {
            "instruction": instruction.name,
            "left_out": missing,
            "targets": instruction.targets,
            "ptx_versions": ptx_versions(instruction),
            "advice": advised or None,
        }
        print_json("legal", {**asked, "legal": True, **facts})
        return 0
    print_heading("yes")
    echo(instruction.name)
    if missing:
        echo(wrapped(f"short form; the full name adds .{'.'.join(missing)}"))
    echo(wrapped(f"legal on {' '.join(instruction.targets)}", indent=9))
    if target:
        last = targets()[target].ptxas
        only = f", and an assembler of CUDA {last} or earlier" if last else ""
        echo(f"needs PTX {ptx_versions(instruction)[target]} or later on {target}{only}")
    if advised:
        echo(wrapped(advised))
    return 0
