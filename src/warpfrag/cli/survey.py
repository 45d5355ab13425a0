"""`warpfrag survey`: ask the cuBLAS of this machine which kernels it takes for layers."""

from __future__ import annotations

import click

from warpfrag.cli.support.options import complete_file, json_option
from warpfrag.cli.support.output import ProgressLine, echo, print_json
from warpfrag.cli.support.verbs import verb


@verb(
    "warpfrag survey layers.toml -o choices.npz        # on a machine with a GPU; resumes if interrupted",
    "warpfrag predict A.npy B.npy --choices choices.npz   # on any machine",
)
@click.argument("layers", metavar="LAYERS.toml", shell_complete=complete_file)
@click.option("-o", "--output", required=True, metavar="FILE", shell_complete=complete_file,
              help="The file of choices, .npz; what is in it is not asked for again.")  # fmt: skip
@json_option
def command(*, layers: str, output: str, as_json: bool) -> None:
    """Ask the library of this machine, for every m, which configuration it chooses for layers; nothing is multiplied.

    LAYERS.toml has a table [layers] with lines such as qkv = [6144, 4096], n and k of a weight; and where they are not
    the usual: types = ["bf16"], layouts = ["nt", "nn"], biases = [false, true], fast_accumulation = [true], m = 16384.
    """
    from warpfrag.hardware.survey import SurveyPlan, survey

    plan = SurveyPlan.read(layers)
    with ProgressLine() as progress:
        table = survey(plan, output, report=progress.show)
    facts = {"layers": len(table.layers), "runs": len(table.ends), "gpu": table.gpu, "library": table.library}
    if as_json:
        print_json("survey", {**facts, "file": output, "settings": dict(table.settings)})
        return
    echo(f"wrote {output}: {facts['layers']} layers, {facts['runs']} runs, {table.library} on an {table.gpu}")
