"""`warpfrag vectors`: registers in and registers out that show mistakes."""

from __future__ import annotations

import click

from warpfrag.cli.command import arch_option, file_option, instruction_argument, integer, json_option, verb
from warpfrag.cli.output import NO, heading, say, say_json, wrapped, writing


@verb(
    "warpfrag vectors mma.m16n8k16.f32.f16.f16.f32                  # what there is, and what it catches",
    "warpfrag vectors mma.m16n8k16.f32.f16.f16.f32 -o vectors.npz   # or .json, or a C++ header .h",
    "warpfrag vectors mma.m16n8k32.s32.s8.s8.s32 --self-check",
)
@instruction_argument
@arch_option
@click.option("--seed", type=integer(least=0), default=1, show_default=True, help="Seed of the operands.")
@file_option("-o", "--output", saying="Write them: .npz, .json, or a C++ header .h, .hpp, .cuh.")
@click.option("--self-check", "check", is_flag=True, help="Make every simple mistake and see that it is caught.")
@json_option
def command(name: str, arch: str, seed: int, output: str | None, *, check: bool, as_json: bool) -> int:
    """Test vectors of one product: operand registers and the registers that must come out.

    Each group says which mistakes it catches. With --self-check, exit status 1 says that a mistake went unnoticed.
    """
    from warpfrag.vectors import vectors

    found = vectors(name, arch=arch, seed=seed)
    if output:
        with writing(output):
            found.save(output)
    caught = found.self_check() if check else {}
    missed = [mistake for mistake, group in caught.items() if group is None]
    if as_json:
        groups = [{"name": group.name, "cases": group.cases, "catches": group.catches} for group in found.groups]
        answer = {"instruction": found.instruction.name, "arch": arch, "seed": seed, "file": output, "groups": groups}
        say_json("vectors", {**answer, "self_check": caught} if check else answer)
        return NO if missed else 0
    heading(f"{found.instruction.name} on {arch}")
    for group in found.groups:
        say(f"\n{group.name}: {group.cases} cases")
        say(wrapped(f"  catches {group.catches}", indent=2))
    say(f"\n{found.cases} cases" + (f", written to {output}" if output else ""))
    if check:
        say(f"self-check: {len(caught) - len(missed)} of {len(caught)} mistakes are caught")
        for mistake in missed:
            say(f"  not caught: {mistake}")
    return NO if missed else 0
