"""`warpfrag samples`: the example files that come with the package."""

from __future__ import annotations

import click

from warpfrag.cli.support.options import file_option, json_option
from warpfrag.cli.support.output import echo, print_json, print_table
from warpfrag.cli.support.verbs import verb
from warpfrag.files import write_atomically
from warpfrag.tables.samples import SAMPLES, read_sample


@verb(
    "warpfrag samples                  # list them",
    "warpfrag samples dump.txt         # print a text file",
    "warpfrag samples D.npy -o D.npy   # copy a file",
    "warpfrag diagnose mma.m16n8k16.f32.f16.f16.f32 --a sample:A.txt --b sample:B.txt sample:dump.txt",
)
@click.argument("name", required=False, metavar="[NAME]", type=click.Choice([*SAMPLES]))
@file_option("-o", "--output", help_text="Write the sample to this file.")
@json_option
def command(*, name: str | None, output: str | None, as_json: bool) -> None:
    """List, print or copy the example files. Wherever a verb takes a file, sample:NAME stands for one of them."""
    if name is None:
        if output is not None:
            msg = "-o needs the name of a sample"
            raise click.UsageError(msg)
        sizes = {sample: len(read_sample(sample)) for sample in SAMPLES}
        if as_json:
            listed = [{"name": sample, "bytes": sizes[sample], "text": text} for sample, text in SAMPLES.items()]
            print_json("samples", {"samples": listed})
            return
        print_table(["name", "bytes", "what"], [[sample, sizes[sample], text] for sample, text in SAMPLES.items()])
        return
    content = read_sample(name)
    if output is not None:
        write_atomically(output, content)
    if as_json:
        print_json("samples", {"samples": [{"name": name, "bytes": len(content), "text": SAMPLES[name]}]})
    elif output is not None:
        echo(f"wrote {output}")
    elif name.endswith(".npy"):
        echo(f"{name}: {SAMPLES[name]}, {len(content)} bytes; -o FILE writes it to a file")
    else:
        echo(content.decode("utf-8").removesuffix("\n"))
