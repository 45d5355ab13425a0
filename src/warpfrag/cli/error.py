"""`warpfrag error`: how far a product is from the exact one."""

from __future__ import annotations

from collections import Counter

import click

from warpfrag.blas.order import Order
from warpfrag.cli.support.array_files import array_argument, codes_option, read_array
from warpfrag.cli.support.options import (
    backend_option,
    complete_file,
    complete_instruction,
    complete_target,
    file_option,
    json_option,
    read_order,
    target,
)
from warpfrag.cli.support.output import ProgressLine, echo, print_json
from warpfrag.cli.support.verbs import verb
from warpfrag.files import write_atomically
from warpfrag.tensorcore.registry import get


@verb(
    "warpfrag error A.npy B.npy --instruction mma.m16n8k16.f32.f16.f16.f32 --arch sm_80 sm_90 sm_100",
    "warpfrag error A.npy B.npy --instruction mma.m16n8k16.f32.f16.f16.f32 --order '' --order split_k=4,unit=64",
    "warpfrag error A.npy B.npy --instruction mma.m16n8k16.f32.bf16.bf16.f32 --codes bf16 -o errors.svg",
    "warpfrag error A8.npy B8.npy --instruction mma.m16n8k32.f32.e4m3.e4m3.f32 --codes e4m3 --against A.npy B.npy",
)
@array_argument("a")
@array_argument("b")
@click.argument("more", nargs=-1, metavar="[SM]...", type=target, shell_complete=complete_target)
@click.option(
    "--instruction",
    metavar="NAME",
    required=True,
    shell_complete=complete_instruction,
    help="The instruction that computes the product.",
)
@click.option(
    "--arch", multiple=True, metavar="SM...", type=target, shell_complete=complete_target,
    help="On which architectures; default: sm_90.",
)  # fmt: skip
@click.option(
    "--order", multiple=True, metavar="FIELDS", type=read_order,
    help="An order of additions, such as split_k=3,unit=64 or promote=128; more than one may be given.",
)  # fmt: skip
@click.option("--c", metavar="FILE", shell_complete=complete_file, help="C.npy; default: zero.")
@click.option("--scale-a", metavar="FILE", shell_complete=complete_file, help="Scale factors of A, as .npy.")
@click.option("--scale-b", metavar="FILE", shell_complete=complete_file, help="Scale factors of B, as .npy.")
@click.option(
    "--against", nargs=2, metavar="A B", shell_complete=complete_file,
    help="A and B before they were quantised, as .npy: compare with the exact product of these.",
)  # fmt: skip
@codes_option
@click.option(
    "--rounding", type=click.Choice(["rne"]), help="Round values that are not exact: to nearest, ties to even."
)
@file_option("-o", "--output", help_text="Write the figure to this file, as SVG.")
@backend_option
@json_option
def command(
    *,
    a: str,
    b: str,
    more: tuple[str, ...],
    instruction: str,
    arch: tuple[str, ...],
    order: tuple[Order, ...],
    c: str | None,
    scale_a: str | None,
    scale_b: str | None,
    against: tuple[str, str] | None,
    codes: str | None,
    rounding: str | None,
    output: str | None,
    backend: str,
    as_json: bool,
) -> None:
    """Compare D = A B + C with the exact result: largest, root mean square and mean error, in ulps and relative.

    A and B are .npy files of any extents. The exact result is computed in integers. Errors are in ulps, relative to
    each result, to |A||B| + |C| (the size of what is added), and to the root mean square of the results.
    """
    from warpfrag.blas.measure_errors import error_report

    name = get(instruction).name
    archs = [*arch, *more] or ["sm_90"]
    A, B, C = read_array(a, codes), read_array(b, codes), None if c is None else read_array(c, None)
    with ProgressLine() as progress:
        report = error_report(
            A,
            B,
            C,
            instruction=name,
            arch=archs,
            order=list(order) or Order(),
            rounding="rne" if rounding else None,
            report=progress.show,
            backend=backend,
            scale_a=None if scale_a is None else read_array(scale_a, None),
            scale_b=None if scale_b is None else read_array(scale_b, None),
            against=None if against is None else (read_array(against[0], None), read_array(against[1], None)),
        )
    if output is not None:
        write_atomically(output, report.svg().encode())
    if as_json:
        print_json("error", report.to_dict())
        return
    echo(str(report))
    for name, count in Counter(archs).items():
        if count > 1:
            echo(f"{name} was given {count} times: the same arithmetic, so the same bits")
    for series in report:
        if series.nonfinite:
            echo(f"{series.name}: {series.nonfinite} outputs are infinite or NaN, and left out")
    if output is not None:
        echo(f"wrote {output}")
