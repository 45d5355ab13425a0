"""`warpfrag legal`: whether a target accepts an instruction."""

from __future__ import annotations

import click

from warpfrag.cli.command import instruction_argument, integer, json_option, target_option_saying, verb
from warpfrag.cli.output import NO, heading, say, say_json, wrapped
from warpfrag.errors import IllegalInstruction
from warpfrag.registry import get


@verb(
    "warpfrag legal mma.m16n8k16.f32.f16.f16.f32 --target sm_75",
    "warpfrag legal mma.sp.m16n8k32.f32.f16.f16.f32 --target sm_90 --selector 2",
)
@instruction_argument
@target_option_saying("The target; without one, whether any accepts it.")
@click.option("--selector", type=integer(), metavar="N", help="The sparsity selector.")
@json_option
def command(*, name: str, target: str | None, selector: int | None, as_json: bool) -> int:
    """Whether a target accepts an instruction; if not, which word is wrong and what is near.

    The exit status is 0 for yes and 1 for no.
    """
    asked = {"asked": name, "target": target, "selector": selector}
    try:
        instruction = get(name, target, selector)
    except IllegalInstruction as refusal:
        if as_json:
            say_json("legal", {**asked, "legal": False, "reason": refusal.reason, "nearest": refusal.nearest})
        else:
            heading("no")
            say(wrapped(refusal.reason))
            for near in refusal.nearest:
                say(f"  near: {near}")
        return NO
    if as_json:
        say_json("legal", {**asked, "legal": True, "instruction": instruction.name, "targets": instruction.targets})
    else:
        heading("yes")
        say(instruction.name)
        say(wrapped(f"legal on {' '.join(instruction.targets)}", indent=9))
    return 0
