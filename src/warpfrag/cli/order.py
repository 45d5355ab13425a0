"""`warpfrag order`: which order of additions gives an observed product."""

from __future__ import annotations

from dataclasses import asdict

import click

from warpfrag.cli.support.array_files import array_argument, codes_option, read_array
from warpfrag.cli.support.options import arch_option, backend_option, json_option, product_instruction_option
from warpfrag.cli.support.output import DONE, NO, ProgressLine, echo, print_json, wrapped
from warpfrag.cli.support.verbs import verb
from warpfrag.tensorcore.registry import get


@verb(
    "warpfrag order A.npy B.npy D.npy                                  # float16, float32 (as tf32) or int8",
    "warpfrag order A.npy B.npy D.npy --codes bf16 --result bf16       # codes, as uint16",
    "warpfrag order A.npy B.npy D.npy --instruction mma.m16n8k16.f32.f16.f16.f32 --arch sm_80",
)
@array_argument("a")
@array_argument("b")
@array_argument("d")
@product_instruction_option
@codes_option
@click.option(
    "--result", metavar="FORMAT", type=click.Choice(["bf16", "f16", "f32"]), help="D holds codes of this format."
)
@arch_option
@backend_option
@json_option
def command(
    *,
    a: str,
    b: str,
    d: str,
    instruction: str | None,
    codes: str | None,
    result: str | None,
    arch: str,
    backend: str,
    as_json: bool,
) -> int:
    """Search the order of additions that gives D = A B in every code: k ascending, split-K, promotion, residue first.

    A, B and D may be some rows and some columns of a product, with the whole K. Exit status 1 if no order gives D.
    """
    from warpfrag.blas.find_order import find_order

    name = None if instruction is None else get(instruction).name
    A, B = read_array(a, codes), read_array(b, codes)
    D = read_array(d, result, "--result")
    tried = 0
    with ProgressLine() as progress:

        def report(done: int, total: int, text: str) -> None:
            nonlocal tried
            tried = done + 1
            progress.show(done, total, text)

        order = find_order(A, B, D, instruction=name, arch=arch, report=report, backend=backend)
    depth = int(A.shape[-1])
    text = "" if order is None else order.describe(depth)
    if as_json:
        order_json = None if order is None else asdict(order)
        seen = "" if order is None else order.seen_in
        facts = {"instruction": name, "arch": arch, "shape": list(D.shape), "k": depth}
        print_json("order", {**facts, "order": order_json, "text": text, "seen_in": seen, "tried": tried})
    elif order is None:
        echo(wrapped(f"no order explains it: {tried} were tried, and none gives every code of D"))
    else:
        echo(wrapped(f"{text}: as {order.seen_in}"))
        echo(wrapped(f"every code of {D.size} equal; in Python: wf.{order!r}"))
    return NO if order is None else DONE
