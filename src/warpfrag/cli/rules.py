"""`warpfrag rules`: what the tensor cores of an architecture compute, with references."""

from __future__ import annotations

import click

from warpfrag.cli.support.options import json_option
from warpfrag.cli.support.output import echo, print_heading, print_json, print_table, wrapped
from warpfrag.cli.support.verbs import verb

CELLS = """8/24: 8 products per step, 24 fraction bits kept; fma: every product is rounded by itself; exact: integers;
-: no such instruction, or not modelled""".replace("\n", " ")


@verb(
    "warpfrag rules sm_90",
    "warpfrag rules sm_90 --for mma.m16n8k16.f32.f16.f16.f32",
    "warpfrag rules                                    # one table of all architectures",
    "warpfrag rules sm_100 --json",
)
@click.argument("arch", required=False)
@click.option("--for", "instruction", metavar="INSTRUCTION", help="Only the row of this instruction.")
@json_option
def command(*, arch: str | None, instruction: str | None, as_json: bool) -> int:
    """What a tensor core adds in one step, which bits it keeps, how it rounds, in which order, and the references.

    Without ARCH, one table of all architectures: products per step / fraction bits kept; fma where every product is
    rounded by itself; exact for integers.
    """
    from warpfrag.tensorcore.arithmetic_table import ArithmeticTable, references, rules

    table = rules(arch)
    if instruction is not None:
        table = ArithmeticTable(tuple(table.every(instruction)), ())
    if as_json:
        print_json("rules", {"arch": arch, **table.to_dict()})
        return 0
    if arch is None and instruction is None:
        head, *body = table.overview()
        print_table(list(head), [list(row) for row in body])
        echo(wrapped(CELLS))
    else:
        for row in table:
            heading, *lines = str(row).splitlines()
            print_heading(heading if arch else f"{row.arch}: {heading}")
            for line in lines:
                echo(wrapped(line, indent=4))
    cited = {key for row in table for key in row.references}
    if not cited:
        return 0
    print_heading("references")
    for key, entry in references().items():
        if key in cited:
            echo(wrapped(f"  {key}: {entry}", indent=4))
    return 0
