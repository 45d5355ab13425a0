"""`warpfrag vectors`: registers in and registers out that show mistakes."""

from __future__ import annotations

import click

from warpfrag.cli.support.options import arch_option, file_option, instruction_argument, integer, json_option
from warpfrag.cli.support.output import NO, echo, print_heading, print_json, wrapped
from warpfrag.cli.support.verbs import verb


@verb(
    "warpfrag vectors mma.m16n8k16.f32.f16.f16.f32                  # what there is, and what it catches",
    "warpfrag vectors mma.m16n8k16.f32.f16.f16.f32 -o vectors.npz   # or .json, or a C++ header .h",
    "warpfrag vectors mma.m16n8k16.f32.f16.f16.f32 -o test.cu       # a program that tests a GPU: nvcc test.cu",
    "warpfrag vectors mma.m16n8k32.s32.s8.s8.s32 --self-check",
    "warpfrag vectors tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.bf16.bf16 --arch sm_100 -o test.cu",
)
@instruction_argument
@arch_option
@click.option("--seed", type=integer(low=0), default=1, show_default=True, help="Seed of the operands.")
@click.option(
    "--lang", type=click.Choice(["c", "cuda"]), help="Print a C++ header of arrays, or a CUDA program that tests a GPU."
)
@file_option("-o", "--output", help_text="Write them: .npz, .json, a C++ header .h, .hpp, .cuh, or a program .cu.")
@click.option("--self-check", "check", is_flag=True, help="Make every simple mistake and check that it is caught.")
@json_option
def command(
    name: str, arch: str, seed: int, lang: str | None, output: str | None, *, check: bool, as_json: bool
) -> int:
    """Test vectors of one product: operand registers and the expected result registers.

    Of tcgen05 they are the contents of shared and tensor memory, and descriptors of every order and swizzle.

    Each group says which mistakes it catches. The program runs every group on a GPU and names those that fail, with
    lane, register, expected and got. With --self-check, exit status 1 means that a mistake went unnoticed.
    """
    from warpfrag.codegen.vectors import vectors

    if lang and as_json:
        msg = "--lang prints code and --json prints JSON: give one of them"
        raise click.UsageError(msg)
    if output:
        from warpfrag.codegen.vectors.vector_files import check_output

        check_output(output)
    test_vectors = vectors(name, arch=arch, seed=seed)
    if output:
        test_vectors.save(output)
    if lang:
        from warpfrag.codegen.vectors.vector_program import as_header, as_program

        write = as_program if lang == "cuda" else as_header
        echo(write(test_vectors.instruction, arch, test_vectors.groups).rstrip("\n"))
        return 0
    caught = test_vectors.self_check() if check else {}
    missed = [mistake for mistake, group in caught.items() if group is None]
    if as_json:
        groups = [{"name": group.name, "cases": group.cases, "catches": group.catches} for group in test_vectors.groups]
        answer = {
            "instruction": test_vectors.instruction.name,
            "arch": arch,
            "seed": seed,
            "file": output,
            "groups": groups,
        }
        print_json("vectors", {**answer, "self_check": caught} if check else answer)
        return NO if missed else 0
    print_heading(f"{test_vectors.instruction.name} on {arch}")
    for group in test_vectors.groups:
        echo(f"\n{group.name}: {group.cases} cases")
        echo(wrapped(f"  catches {group.catches}", indent=2))
    echo(f"\n{test_vectors.cases} cases" + (f", written to {output}" if output else ""))
    if check:
        echo(f"self-check: {len(caught) - len(missed)} of {len(caught)} mistakes are caught")
        for mistake in missed:
            echo(f"  not caught: {mistake}")
    return NO if missed else 0
