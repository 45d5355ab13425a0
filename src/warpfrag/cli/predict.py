"""`warpfrag predict`: what torch.matmul gives on an H200."""

from __future__ import annotations

from dataclasses import asdict
from io import BytesIO

import click

from warpfrag.cli.support.array_files import array_argument, codes_option, read_array
from warpfrag.cli.support.options import complete_file, file_option, integer, json_option
from warpfrag.cli.support.output import echo, print_json, wrapped
from warpfrag.cli.support.verbs import verb
from warpfrag.render.files import write_atomically


@verb(
    "warpfrag predict A.npy B.npy -o D.npy                        # float16; float32 with TF32; int8",
    "warpfrag predict A.npy B.npy --codes bf16 --layout nt --bias bias.npy -o D.npy   # a linear layer",
    "warpfrag predict A.npy B.npy --codes e4m3 --fast-accumulation",
    "warpfrag predict A.npy B.npy --shape 8 1024 4096             # some rows and columns of a larger product",
)
@array_argument("a")
@array_argument("b")
@codes_option
@click.option("--bias", metavar="FILE", shell_complete=complete_file, help="The bias of a linear layer, .npy.")
@click.option("--layout", type=click.Choice(["nn", "nt", "tn"]), default="nn", show_default=True,
              help="Which of A and B lies turned in memory.")  # fmt: skip
@click.option("--fast-accumulation", is_flag=True, help="e4m3 with use_fast_accum.")
@click.option("--shape", nargs=3, type=integer(low=1), metavar="M N K", help="Of the product that these are part of.")
@file_option("-o", "--output", help_text="Write D to this .npy: numbers, or codes of bf16 as uint16.")
@json_option
def command(
    *,
    a: str,
    b: str,
    codes: str | None,
    bias: str | None,
    layout: str,
    fast_accumulation: bool,
    shape: tuple[int, int, int] | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Predict D = A B as PyTorch computes it on an H200, to the last bit, and state how well that is known.

    The order of additions comes from a table of measured shapes; where it has none, it is a guess, and labelled as one.
    """
    import numpy as np

    from warpfrag.prediction.predict import predict

    prediction = predict(
        read_array(a, codes),
        read_array(b, codes),
        bias=None if bias is None else read_array(bias, None),
        layout=layout,
        fast_accumulation=fast_accumulation,
        shape=shape,
    )
    stored = np.asarray(prediction.D)
    if stored.dtype.kind not in "iuf":
        stored = stored.view(np.uint16)  # .npy has no name for bfloat16
    if output is not None:
        stream = BytesIO()
        np.save(stream, stored)
        write_atomically(output, stream.getvalue())
    if as_json:
        order, row = asdict(prediction.order), prediction.row
        facts = {"shape": list(prediction.D.shape), "instruction": prediction.instruction, "order": order}
        names = ("call", "type", "layout", "batch", "m", "n", "k", "kernel")
        measured = {name: getattr(row, name) for name in names}
        print_json("predict", {**facts, "guess": prediction.is_guess, "text": prediction.text, "measured": measured})
        return
    echo(wrapped(prediction.text))
    if output is not None:
        echo(f"wrote {output}: {prediction.D.dtype} of shape {prediction.D.shape}")
