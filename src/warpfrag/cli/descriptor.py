"""`warpfrag descriptor`: a shared-memory descriptor of wgmma, explained or built."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from warpfrag.catalog.registry import get
from warpfrag.cli.support.options import integer, json_option
from warpfrag.cli.support.output import DONE, NO, echo, print_heading, print_json, print_table, wrapped
from warpfrag.cli.support.verbs import verb
from warpfrag.errors import InvalidOperand, quote
from warpfrag.execution.operand import Operand
from warpfrag.memory.descriptor import Descriptor
from warpfrag.memory.shared_memory import SWIZZLES

if TYPE_CHECKING:
    from warpfrag.memory.descriptor import Problem

WORD = re.compile(r"(?:0x[0-9a-f_]{1,20}|[0-9]{1,20})", re.IGNORECASE | re.ASCII)


def read_word(text: str) -> Descriptor:
    """The descriptor that a text names, in hex or decimal."""
    if not WORD.fullmatch(text.strip()):
        msg = f"a descriptor is a word of 64 bits such as 0x4000004000000000, got {quote(text)}"
        raise InvalidOperand(msg)
    return Descriptor.decode(int(text.strip().replace("_", ""), 0))


@verb(
    "warpfrag descriptor 0x4000004000000000                 # explained field by field",
    "warpfrag descriptor --stride 1024 --swizzle 128        # built",
    "warpfrag descriptor 0x4000004000000000 --for wgmma.mma_async.m64n64k16.f32.f16.f16 b   # its problems",
    "warpfrag descriptor --tile 64 --swizzle 128 --for wgmma.mma_async.m64n64k16.f32.f16.f16 b",
)
@click.argument("word", required=False)
@click.option("--start", type=integer(), metavar="BYTES", help="Where the operand starts.")
@click.option("--leading", type=integer(), metavar="BYTES", help="The leading byte offset.")
@click.option("--stride", type=integer(), metavar="BYTES", help="The stride byte offset.")
@click.option("--swizzle", type=integer(), metavar="BYTES", help=f"One of {', '.join(map(str, SWIZZLES))}.")
@click.option("--base-offset", type=integer(), metavar="N", help="By how many rows of 128 bytes the pattern is late.")
@click.option("--for", "operand_for", nargs=2, metavar="INSTRUCTION OPERAND", help="The A or B of wgmma it is for.")
@click.option("--trans", is_flag=True, help="The operand is MN-major (16-bit types).")
@click.option(
    "--tile", type=integer(), metavar="K", help="A tile without gaps of so much K: a descriptor for each step."
)
@json_option
def command(
    *,
    word: str | None,
    operand_for: tuple[str, str] | None,
    trans: bool,
    tile: int | None,
    as_json: bool,
    **fields: int | None,
) -> int:
    """A shared-memory descriptor of wgmma: its fields, its layout in CuTe's words, and its problems.

    WORD is the 64 bits, in hex; or give its fields, in bytes; or --tile for a tile that lies without gaps. With --for,
    the exit status is 1 if there is a problem: the hardware refuses none of them.
    """
    values = {name: number for name, number in fields.items() if number is not None}
    operand = _operand(operand_for)
    if trans and operand is not None:
        operand.memory(0, trans=trans)  # refuses a type that cannot be turned
    if tile is not None:
        descriptors = _of_tile(operand, values, word, tile, trans=trans)
    elif word is None and not values:
        msg = "expected a word such as 0x4000004000000000, its fields (--stride 1024 --swizzle 128), or --tile"
        raise InvalidOperand(msg)
    elif word is not None and values:
        msg = f"give a word or its fields, not both: got {quote(word)} and --{next(iter(values)).replace('_', '-')}"
        raise InvalidOperand(msg)
    else:
        descriptors = [Descriptor(**values) if word is None else read_word(word)]
    problems = [descriptor.problems(operand, trans=trans) if operand else [] for descriptor in descriptors]
    if as_json:
        rows = [_json(*explained, trans=trans) for explained in zip(descriptors, problems, strict=True)]
        named = {"instruction": operand.instruction, "operand": operand.role} if operand else {}
        print_json("descriptor", {**named, "trans": trans, "descriptors": rows})
    else:
        for at, explained in enumerate(zip(descriptors, problems, strict=True)):
            if at:
                echo()
            _print_descriptor(*explained, trans=trans)
        if len(descriptors) > 1:
            starts = [descriptor.start for descriptor in descriptors]
            step = starts[1] - starts[0]
            echo(f"\nstart of each step along K: {', '.join(map(str, starts))}; the first step is {step}")
    return NO if any(problems) else DONE


def _operand(operand_for: tuple[str, str] | None) -> Operand | None:
    if operand_for is None:
        return None
    instruction = get(operand_for[0])
    operand = instruction.operands.get(operand_for[1].lower())
    if not (isinstance(operand, Operand) and operand.staged):
        msg = f"descriptors are for A and B of wgmma, not for {quote(operand_for[1])} of {instruction}"
        raise InvalidOperand(msg)
    return operand


def _of_tile(
    operand: Operand | None, values: dict[str, int], word: str | None, tile: int, *, trans: bool
) -> list[Descriptor]:
    if operand is None:
        msg = "--tile needs --for INSTRUCTION OPERAND: whose tile it is"
        raise InvalidOperand(msg)
    others = [f"--{name.replace('_', '-')}" for name in values if name not in {"start", "swizzle"}]
    if word is not None or others:
        msg = f"--tile takes --start and --swizzle and works the rest out; got {quote(word) if word else others[0]} too"
        raise InvalidOperand(msg)
    return operand.descriptors(k=tile, swizzle=values.get("swizzle"), trans=trans, start=values.get("start", 0))


def _print_descriptor(descriptor: Descriptor, problems: list[Problem], *, trans: bool) -> None:
    print_heading(f"0x{descriptor.word:016x}")
    rows = [[field.name, f"{field.high}:{field.low}", field.raw, field.meaning] for field in descriptor.explain()]
    print_table(["field", "bits", "raw", "meaning"], rows)
    echo(f"CuTe, in units of 16 bytes, {'MN' if trans else 'K'}-major: {descriptor.cute(trans=trans)}")
    for problem in problems:
        echo(wrapped(f"problem: {problem.text}", indent=9))


def _json(descriptor: Descriptor, problems: list[Problem], *, trans: bool) -> dict[str, object]:
    return {
        "word": f"0x{descriptor.word:016x}",
        "start": descriptor.start,
        "leading": descriptor.leading,
        "stride": descriptor.stride,
        "swizzle": descriptor.swizzle,
        "base_offset": descriptor.base_offset,
        "other": f"0x{descriptor.other:x}",
        "cute": descriptor.cute(trans=trans),
        "problems": [problem._asdict() for problem in problems],
    }
