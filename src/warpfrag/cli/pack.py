"""`warpfrag pack`: from a matrix to hex registers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from warpfrag.cli.support.matrix_files import read_codes
from warpfrag.cli.support.operand_view import OperandView, operand_view
from warpfrag.cli.support.options import (
    choice_options,
    file_argument,
    instruction_argument,
    json_option,
    operand_argument,
    target_option,
)
from warpfrag.cli.support.output import echo, print_json
from warpfrag.cli.support.register_dumps import dump_lines
from warpfrag.cli.support.tensor_dumps import tensor_lines
from warpfrag.cli.support.verbs import verb
from warpfrag.errors import InvalidOperand
from warpfrag.tensorcore.operand import Metadata, Scale
from warpfrag.tensorcore.registry import get

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.formats.number_formats import Rounding


@verb(
    "warpfrag pack mma.m16n8k16.f32.f16.f16.f32 a matrix.txt",
    "warpfrag pack mma.m16n8k16.f32.f16.f16.f32 a matrix.txt | warpfrag unpack mma.m16n8k16.f32.f16.f16.f32 a",
    "warpfrag pack mma.sp.m16n8k32.f32.f16.f16.f32 metadata sparse.txt --full",
)
@instruction_argument
@operand_argument
@file_argument
@click.option("--raw", is_flag=True, help="The numbers are codes, not values.")
@click.option(
    "--rounding", type=click.Choice(["rne"]), help="Round values that are not exact: to nearest, ties to even."
)
@click.option("--full", is_flag=True, help="FILE holds the full A of a sparse instruction: compress it first.")
@choice_options("selector", "thread_id", "byte_id")
@target_option
@json_option
def command(
    *,
    name: str,
    operand: str,
    file: str,
    target: str | None,
    raw: bool,
    rounding: Rounding,
    full: bool,
    as_json: bool,
    **choice: int | None,
) -> None:
    """Registers that hold a matrix, in hex: a line per lane (and warp), a word of 32 bits per column.

    Of an operand in tensor memory, a line is a lane of it, and a word a column.

    FILE is text (numbers separated by spaces or commas, a line per row; 0x... and 0b... are accepted) or .npy; without
    one, stdin is read. Values must be exact in the format of the operand, unless --rounding. A sparse A is given as it
    is stored and metadata as codes, rows by chunks, unless --full.
    """
    view = operand_view(get(name, target), operand)
    next(view.chosen(choice))  # refuses an option that is not for this operand
    packed = _pack(view, file, choice, raw=raw, rounding=rounding, full=full)
    is_in_tensor_memory = view.matrix_registers.home in ("tensor", "either")
    words = packed.tolist() if is_in_tensor_memory else packed.reshape(*view.matrix_registers.threads, -1).tolist()
    if as_json:
        print_json("pack", {"instruction": view.instruction.name, "operand": view.name, "words": words})
        return
    if is_in_tensor_memory:
        for line in tensor_lines(packed):
            echo(line)
        return
    if "warp" not in view.threads:
        for line in dump_lines(words):
            echo(line)
        return
    for warp, rows in enumerate(words):
        for lane, line in enumerate(dump_lines(rows)):
            echo(f"warp {warp} lane {lane}: {line}")


def _pack(
    view: OperandView, file: str, choice: dict[str, int | None], *, raw: bool, rounding: Rounding, full: bool
) -> NDArray[Any]:
    """The words of every lane."""
    registers, instruction = view.matrix_registers, view.instruction
    chosen = {dim: index or 0 for dim, index in choice.items() if dim in view.choices}
    if full:
        if view.name not in {"a", "metadata"}:
            msg = f"--full is for A and metadata of a sparse instruction, not for {view.name}"
            raise InvalidOperand(msg)
        shape = (instruction.shape.m, instruction.shape.k)
        matrix = read_codes(file, instruction.a.format, shape, raw=raw, rounding=rounding)
        stored, fields = instruction.compress(matrix, raw=True)
        codes = stored if view.name == "a" else fields
    else:
        is_raw = raw or isinstance(registers, Metadata)
        codes = read_codes(file, registers.format, registers.shape, raw=is_raw, rounding=rounding)
    if isinstance(registers, Metadata):
        return registers.pack(codes, **chosen)
    if isinstance(registers, Scale):
        return registers.pack(codes, raw=True, byte_id=chosen["byte_id"], thread_id=chosen["thread_id"])
    return registers.pack(codes, raw=True)
