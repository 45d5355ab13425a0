"""`warpfrag explain`: why two results of one product differ."""

from __future__ import annotations

import click

from warpfrag.cli.support.array_files import array_argument, codes_option, read_array
from warpfrag.cli.support.options import complete_file, json_option, product_instruction_option
from warpfrag.cli.support.output import DONE, NO, ProgressLine, echo, print_json, print_table, wrapped
from warpfrag.cli.support.verbs import verb


@verb(
    "warpfrag explain D1.npy D2.npy A.npy B.npy                          # float16, float32 (as tf32) or int8",
    "warpfrag explain D1.npy D2.npy A.npy B.npy --codes bf16 --result bf16   # codes, as uint16",
    "warpfrag explain D1.npy D2.npy A.npy B.npy --arch sm_80 --arch sm_90   # who may have computed them",
)
@array_argument("d1")
@array_argument("d2")
@array_argument("a")
@array_argument("b")
@click.option("--bias", metavar="FILE", shell_complete=complete_file, help="The bias of a linear layer, .npy.")
@product_instruction_option
@codes_option
@click.option(
    "--result",
    metavar="FORMAT",
    type=click.Choice(["bf16", "f16", "f32"]),
    help="The results are codes of this format.",
)
@click.option("--arch", multiple=True, metavar="ARCH", help="An architecture to try; may be repeated.")
@json_option
def command(
    *,
    d1: str,
    d2: str,
    a: str,
    b: str,
    bias: str | None,
    instruction: str | None,
    codes: str | None,
    result: str | None,
    arch: tuple[str, ...],
    as_json: bool,
) -> int:
    """Explain two results of D = A B: the order and architecture of each, and where their sums diverge.

    A, B and the results may be some rows and columns of a product, with the whole K. Exit status 1 if a result is
    explained by nothing that is modelled.
    """
    from warpfrag.blas.explain import ARCHS, explain

    with ProgressLine() as progress:
        answer = explain(
            read_array(d1, result, "--result"),
            read_array(d2, result, "--result"),
            read_array(a, codes),
            read_array(b, codes),
            bias=None if bias is None else read_array(bias, None),
            instruction=instruction,
            arch=arch or ARCHS,
            report=progress.show,
        )
    status = NO if answer.first.order is None or answer.second.order is None else DONE
    if as_json:
        print_json("explain", answer.to_dict())
        return status
    for line in answer.text.splitlines():
        echo(wrapped(line))
    rows = answer.rows
    if rows:
        echo()
        print_table(["step", answer.first.name, "sum", answer.second.name, "sum"], [list(row) for row in rows])
    return status
