"""`warpfrag emit`: code around an instruction, in CUDA C++ or PTX."""

from __future__ import annotations

import click

from warpfrag.cli.support.options import complete_instruction, file_option, json_option, target_option_with_help
from warpfrag.cli.support.output import echo, print_json
from warpfrag.cli.support.verbs import verb
from warpfrag.codegen.emit import LANGUAGES, emit
from warpfrag.files import write_atomically
from warpfrag.tensorcore.registry import get


@verb(
    "warpfrag emit mma.m16n8k16.f32.f16.f16.f32",
    "warpfrag emit mma.m16n8k16.f32.f16.f16.f32 --target sm_90 -o mma.cuh    # with stmatrix",
    "warpfrag emit mma.m16n8k16.f32.f16.f16.f32 --kernels -o mma.cu          # with kernels to launch",
    "warpfrag emit mma.sp.m16n8k32.f32.f16.f16.f32 wmma.mma.row.col.m16n16k16.f32.f32 --lang ptx",
)
@click.argument("names", metavar="INSTRUCTION...", nargs=-1, required=True, shell_complete=complete_instruction)
@click.option("--lang", type=click.Choice(LANGUAGES), default="cuda", show_default=True, help="The language.")
@target_option_with_help("Refuse an instruction that this target does not accept; use all of its features.")
@click.option("--kernels", is_flag=True, help="CUDA C++: kernels too, for a file that is compiled, not included.")
@file_option("-o", "--output", help_text="Write the code to a file.")
@json_option
def command(
    names: tuple[str, ...], lang: str, target: str | None, output: str | None, *, kernels: bool, as_json: bool
) -> None:
    """The code around instructions: a CUDA C++ header, or a PTX module.

    For a product: the inline-PTX wrapper, functions that move each operand between memory and registers, by ldmatrix
    and stmatrix too where the layout allows it. The header may be included in any number of files. Kernels, which PTX
    always has: one tile from memory to memory, and raw registers to raw registers. Without --target the code compiles
    wherever the instructions are legal.
    """
    text = emit(names, lang=lang, target=target, kernels=kernels)
    if output:
        write_atomically(output, text)
    if as_json:
        instructions = [get(name).name for name in names]
        has_kernels = kernels or lang == "ptx"
        answer = {"instructions": instructions, "lang": lang, "target": target, "kernels": has_kernels, "file": output}
        print_json("emit", answer if output else {**answer, "text": text})
    elif output:
        echo(f"{output}: {text.count(chr(10))} lines")
    else:
        echo(text.rstrip("\n"))
