"""`warpfrag vectors`: test vectors that expose layout mistakes."""

from __future__ import annotations

import click

from warpfrag.cli.support.options import arch_option, file_option, instruction_argument, integer, json_option
from warpfrag.cli.support.output import echo, print_heading, print_json, wrapped
from warpfrag.cli.support.verbs import verb


@verb(
    "warpfrag vectors mma.m16n8k16.f32.f16.f16.f32                  # the groups, and the mistakes each catches",
    "warpfrag vectors mma.m16n8k16.f32.f16.f16.f32 -o vectors.npz   # or .json, or a C++ header .h",
    "warpfrag vectors tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.bf16.bf16 --arch sm_100 -o vectors.h",
)
@instruction_argument
@arch_option
@click.option("--seed", type=integer(low=0), default=1, show_default=True, help="Seed of the operands.")
@file_option("-o", "--output", help_text="Write them: .npz, .json or a C++ header .h.")
@json_option
def command(name: str, arch: str, seed: int, output: str | None, *, as_json: bool) -> int:
    """Test vectors that expose layout mistakes: operand registers and the expected result registers.

    For tcgen05 they are the contents of shared and tensor memory, with descriptors of every order and swizzle.
    Each group says which mistakes it catches.
    """
    from warpfrag.codegen.vectors import check_output, test_vectors

    if output:
        check_output(output)
    vector_set = test_vectors(name, arch=arch, seed=seed)
    if output:
        vector_set.save(output)
    if as_json:
        groups = [{"name": group.name, "cases": group.cases, "catches": group.catches} for group in vector_set.groups]
        answer = {
            "instruction": vector_set.instruction.name,
            "arch": arch,
            "seed": seed,
            "file": output,
            "groups": groups,
        }
        print_json("vectors", answer)
        return 0
    print_heading(f"{vector_set.instruction.name} on {arch}")
    for group in vector_set.groups:
        echo(f"\n{group.name}: {group.cases} cases")
        echo(wrapped(f"  catches {group.catches}", indent=2))
    echo(f"\n{vector_set.cases} cases" + (f", written to {output}" if output else ""))
    return 0
