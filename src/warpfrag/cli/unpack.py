"""`warpfrag unpack`: from a hex register dump to a matrix."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import click

from warpfrag.cli.support.matrix_files import code_text, exact_text, matrix_lines, read_source, short_text
from warpfrag.cli.support.operand_view import OperandView, operand_view
from warpfrag.cli.support.options import (
    choice_options,
    file_argument,
    instruction_argument,
    integer,
    json_option,
    operand_argument,
    target_option,
)
from warpfrag.cli.support.output import echo, print_json
from warpfrag.cli.support.register_dumps import dump_of, parse_warps, single_warp, warps_of_group
from warpfrag.cli.support.tensor_dumps import read_tensor_dump
from warpfrag.cli.support.verbs import verb
from warpfrag.tensorcore.operand import Metadata, Scale
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.tensor_operand import TensorMetadata, TensorScale

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


@verb(
    "warpfrag unpack mma.m16n8k16.f32.f16.f16.f32 d dump.txt",
    "cuda-gdb ... | warpfrag unpack mma.m16n8k16.f32.f16.f16.f32 d - --by register",
    "warpfrag unpack mma.m16n8k16.f32.f16.f16.f32 d dump.txt --raw      # codes in hex",
)
@instruction_argument
@operand_argument
@file_argument
@click.option("--raw", is_flag=True, help="Print codes in hex, not values.")
@click.option("--exact", is_flag=True, help="Print every digit of a value.")
@click.option("--strict", is_flag=True, help="Refuse copies of one element that differ (wmma).")
@click.option("--by", type=click.Choice(["lane", "register"]), help="What a line of the dump is, if it names no lanes.")
@click.option("--warp", type=integer(low=0), metavar="N", help="Which warp of a dump of several; default: all.")
@choice_options("selector", "thread_id", "byte_id")
@target_option
@json_option
def command(
    *,
    name: str,
    operand: str,
    file: str,
    by: str | None,
    warp: int | None,
    target: str | None,
    raw: bool,
    exact: bool,
    strict: bool,
    as_json: bool,
    **choice: int | None,
) -> None:
    """The matrix that registers hold, from a dump as printf or a debugger shows it.

    Words are hex, with or without 0x; where one of the numbers has a point or a sign, or is inf or nan, all are values
    of a float operand. A line may name its warp and lane (lane 3:, T3, warp 1 lane 3:) and its registers (a3=..., %r12
    = ...), in any order; lines without names are the lanes in order, or one stream. FILE is text; without one, stdin is
    read. Several warps give several matrices.

    Values are printed with as few digits as tell them apart: `warpfrag pack --rounding rne` reads back the same. In
    JSON they have every digit, and those that are not finite are the strings nan, inf and -inf.
    """
    import numpy as np

    view = operand_view(get(name, target), operand)
    next(view.chosen(choice))  # refuses an option that is not for this operand
    registers = view.matrix_registers
    rows = _rows(view, file, by, warp)
    is_codes = raw or registers.format.kind == "bits" or isinstance(registers, Metadata)
    matrix = _unpack(view, rows, choice, raw=is_codes, strict=strict)
    if as_json:
        asked = {"instruction": view.instruction.name, "operand": view.name, "raw": is_codes}
        entry = _json_value if registers.format.is_float and not is_codes else int
        numbers = np.array([entry(number) for number in matrix.ravel().tolist()], object).reshape(matrix.shape)
        print_json("unpack", {**asked, "matrix": numbers.tolist()})
        return
    write: Callable[[float], str] = exact_text if exact else short_text(matrix.dtype)
    if isinstance(registers, Metadata):
        write = "0b{:04b}".format
    elif is_codes:
        write = partial(code_text, number_format=registers.format)
    for line in matrix_lines(matrix, write):
        echo(line)


def _rows(view: OperandView, file: str, by: str | None, warp: int | None) -> list[list[int]] | list[list[list[int]]]:
    """The words of a dump: of each lane, of several warps one after the other, or of tensor memory."""
    registers, text = view.matrix_registers, read_source(file).text()
    if registers.home in ("tensor", "either"):
        return cast("list[list[int]]", read_tensor_dump(text, registers.threads).tolist())
    warps = parse_warps(text, dump_of(registers, by))
    if "warp" in view.threads:
        return warps_of_group(warps, warp, view.layout.ins["warp"], f"{view.name} of {view.instruction}")
    return single_warp(warps, warp) if warp is not None or len(warps) == 1 else [*warps.values()]


def _unpack(
    view: OperandView,
    rows: list[list[int]] | list[list[list[int]]],
    choice: dict[str, int | None],
    *,
    raw: bool,
    strict: bool,
) -> NDArray[Any]:
    """The matrix, of codes if raw; those of several warps are a batch."""
    import numpy as np

    words = np.array(rows, np.uint32)
    registers = view.matrix_registers
    chosen = {dim: index or 0 for dim, index in choice.items() if dim in view.choices}
    if isinstance(registers, TensorMetadata):
        return registers.unpack(words, **chosen)
    if isinstance(registers, TensorScale):
        return registers.unpack(words, raw=raw)
    if isinstance(registers, Metadata):
        return registers.unpack(words[..., 0], **chosen)
    if isinstance(registers, Scale):
        return registers.unpack(words[..., 0], raw=raw, **chosen)
    return registers.unpack(words, raw=raw, strict=strict)


def _json_value(value: float) -> float | str:
    """A value as JSON can hold it; values of ml_dtypes become floats first."""
    number = float(value)
    return number if math.isfinite(number) else repr(number)
