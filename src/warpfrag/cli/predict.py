"""`warpfrag predict`: what PyTorch gives on a GPU, and for which m it changes bits or loses numbers."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from io import BytesIO
from typing import TYPE_CHECKING

import click

from warpfrag.cli.support.array_files import codes_option, read_array
from warpfrag.cli.support.options import complete_file, file_option, integer, json_option
from warpfrag.cli.support.output import DONE, echo, print_json, wrapped
from warpfrag.cli.support.verbs import verb
from warpfrag.errors import LossyProduct
from warpfrag.files import write_atomically

if TYPE_CHECKING:
    from warpfrag.blas.cublas.batch_invariance import Invariance

TYPES = ("bf16", "f16", "tf32", "e4m3", "s8")


@verb(
    "warpfrag predict A.npy B.npy -o D.npy                        # float16; float32 with TF32; int8",
    "warpfrag predict A.npy B.npy --codes bf16 --layout nt --bias bias.npy -o D.npy   # a linear layer",
    "warpfrag predict A.npy B.npy --codes e4m3 --fast-accumulation",
    "warpfrag predict A.npy B.npy --shape 8 1024 4096             # some rows and columns of a larger product",
    "warpfrag predict --over m --n 4096 --k 14336 bf16            # ranges of m in which a row keeps its bits",
    "warpfrag predict --lossy --n 64 --k 11528 f16                # m for which the library loses numbers",
    "warpfrag predict --over m --layers layers.toml --svg bits.svg   # of a whole model",
)
@click.argument("operands", nargs=-1, metavar="A.npy B.npy | [TYPE]", shell_complete=complete_file)
@codes_option
@click.option("--bias", metavar="FILE", shell_complete=complete_file, help="The bias of a linear layer, .npy.")
@click.option("--layout", type=click.Choice(["nn", "nt", "tn"]),
              help="Which of A and B is transposed in memory; default: nn, or nt for ranges of m.")  # fmt: skip
@click.option("--fast-accumulation", is_flag=True, help="e4m3 with use_fast_accum.")
@click.option("--shape", nargs=3, type=integer(low=1), metavar="M N K", help="Full M N K when A and B are slices.")
@click.option("--over", type=click.Choice(["m"]), help="List the ranges of m with one order, without operands.")
@click.option("--lossy", is_flag=True, help="List the m for which the library omits products of K.")
@click.option("--n", type=integer(low=1), metavar="N", help="Columns of the layer, for --over and --lossy.")
@click.option("--k", type=integer(low=1), metavar="K", help="Depth of the layer, likewise.")
@click.option("--layers", metavar="FILE", shell_complete=complete_file, help="Layers as `warpfrag survey` takes them.")
@click.option("--m", "span", nargs=2, type=integer(low=1), metavar="FIRST LAST", default=(1, 8192), show_default=True,
              help="Which m, for --over and --lossy.")  # fmt: skip
@file_option("--svg", help_text="Write a picture of the ranges.")
@click.option("--gpu", default="H200", show_default=True, metavar="NAME", help="Whose tabulated choices.")
@click.option("--ask", is_flag=True, help="Ask the cuBLAS of this machine.")
@click.option("--choices", metavar="FILE", shell_complete=complete_file, multiple=True,
              help="A file that `warpfrag survey` has written; several are compared with --over.")  # fmt: skip
@file_option("-o", "--output", help_text="Write D to this .npy: numbers, or codes of bf16 as uint16.")
@json_option
def command(
    *,
    operands: tuple[str, ...],
    codes: str | None,
    bias: str | None,
    layout: str | None,
    fast_accumulation: bool,
    shape: tuple[int, int, int] | None,
    over: str | None,
    lossy: bool,
    n: int | None,
    k: int | None,
    layers: str | None,
    span: tuple[int, int],
    svg: str | None,
    gpu: str,
    ask: bool,
    choices: tuple[str, ...],
    output: str | None,
    as_json: bool,
) -> int:
    """Predict D = A B as PyTorch computes it on a GPU, to the last bit, and state how well that is known.

    The order of additions is the library's own choice where it is tabulated, asked for or in a file; else it is
    modelled: then it is a guess, and labelled as one. With --over m or --lossy there are no operands, but a TYPE (bf16,
    f16, tf32, e4m3, s8; bf16 without one) and a layer, --n and --k, or --layers.
    """
    if over is None and not lossy:
        if len(operands) != 2:
            msg = f"expected two operands, A.npy and B.npy, or --over m; got {len(operands)}"
            raise click.UsageError(msg)
        if len(choices) > 1:
            msg = "--choices: one file, unless --over m compares several"
            raise click.UsageError(msg)
        _predict_product(
            operands, codes, bias, output, as_json=as_json,
            keywords={
                "layout": layout or "nn", "fast_accumulation": fast_accumulation, "shape": shape, "gpu": gpu,
                "ask": ask, "choices": choices[0] if choices else None,
            },
        )  # fmt: skip
        return DONE
    if len(operands) > 1 or (operands and operands[0] not in TYPES):
        msg = f"expected one of {', '.join(TYPES)} beside --over and --lossy, got {' '.join(operands)}"
        raise click.UsageError(msg)
    from warpfrag.blas.cublas.batch_invariance import invariance

    named: object = n
    if layers is not None:
        from warpfrag.hardware.survey import SurveyPlan

        named = dict(SurveyPlan.read(layers).layers)
    elif n is None or k is None:
        msg = "expected a layer: --n and --k, or --layers FILE"
        raise click.UsageError(msg)
    ranges = invariance(
        named, None if layers else k, type=operands[0] if operands else "bf16", layout=layout or "nt",  # type: ignore[arg-type] # it checks
        bias=bias is not None, fast_accumulation=fast_accumulation, m=span, gpu=gpu, ask=ask, choices=choices or None,
    )  # fmt: skip
    if svg is not None:
        write_atomically(svg, ranges.svg().encode())
    if as_json:
        print_json("predict", {"over": "m", **ranges.to_dict(), "lossy": _lossy(ranges)})
    elif lossy:
        _print_lossy(ranges)
    else:
        for line in ranges.text.splitlines():
            echo(wrapped(line, indent=4 if line.startswith(" ") else 0))
    if svg is not None and not as_json:
        echo(f"wrote {svg}")
    return DONE


def _predict_product(
    operands: tuple[str, ...],
    codes: str | None,
    bias: str | None,
    output: str | None,
    *,
    keywords: dict[str, object],
    as_json: bool,
) -> None:
    """D of two operands."""
    import numpy as np

    from warpfrag.blas.cublas.predict import predict

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyProduct)  # the answer says so itself
        prediction = predict(
            read_array(operands[0], codes),
            read_array(operands[1], codes),
            bias=None if bias is None else read_array(bias, None),
            **keywords,  # type: ignore[arg-type] # named as there
        )
    stored = np.asarray(prediction.D)
    if stored.dtype.kind not in "iuf":
        stored = stored.view(np.uint16)  # .npy has no name for bfloat16
    if output is not None:
        stream = BytesIO()
        np.save(stream, stored)
        write_atomically(output, stream.getvalue())
    if as_json:
        product = prediction.product.to_dict()
        facts = {"shape": list(prediction.D.shape), "instruction": prediction.instruction}
        print_json("predict", {**facts, "order": asdict(prediction.order), "product": product, "text": prediction.text})
        return
    echo(wrapped(prediction.text))
    if output is not None:
        echo(f"wrote {output}: {prediction.D.dtype} of shape {prediction.D.shape}")


def _lossy(ranges: Invariance) -> list[dict[str, object]]:
    """The ranges of m in which products are lost."""
    return [
        {"name": layer.name, "n": layer.n, "k": layer.k, "first": run.first, "last": run.last, "lost": run.lost,
         "guess": run.is_guess}
        for layer in ranges.layers
        for run in layer.ranges
        if run.lost
    ]  # fmt: skip


def _print_lossy(ranges: Invariance) -> None:
    rows = _lossy(ranges)
    first, last = ranges.m
    if not rows:
        echo(wrapped(f"{ranges.source} loses nothing for m = {first}..{last}"))
    for row in rows:
        guess = ", a guess" if row["guess"] else ""
        where = f"{row['name']}: m = {row['first']}..{row['last']}"
        echo(wrapped(f"{where}: the last {row['lost']} of {row['k']} products of K are left out{guess}"))
