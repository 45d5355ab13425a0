"""`warpfrag descriptor`: a shared-memory descriptor of wgmma or tcgen05, or the other words of a product of tcgen05."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from warpfrag.cli.support.options import integer, json_option
from warpfrag.cli.support.output import DONE, NO, echo, print_heading, print_json, print_table, wrapped
from warpfrag.cli.support.verbs import verb
from warpfrag.errors import InvalidOperand, quote
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.instruction_descriptor import MASK_BITS, WORD_BITS, InstructionDescriptor, ZeroColumnMask
from warpfrag.smem.shared_memory import SWIZZLES
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.tcgen05_types import TensorMma

if TYPE_CHECKING:
    from warpfrag.smem.descriptor import Problem

WORD = re.compile(r"(?:0x)?[0-9a-f_]{1,20}", re.IGNORECASE | re.ASCII)


def read_word(text: str, kind: str = "wgmma", *, decimal: bool = False) -> Descriptor:
    """The descriptor that a text names: in hex, with or without 0x, or in decimal."""
    example = "4611686293305294848" if decimal else "0x4000004000000000"
    return Descriptor.decode(_number("a descriptor", 64, text, example, decimal=decimal), kind=kind)


def _number(what: str, bits: int, text: str, example: str, *, decimal: bool) -> int:
    """The word that a text is."""
    digits = text.strip().replace("_", "")
    is_word = WORD.fullmatch(text.strip()) and (digits.isdecimal() if decimal else digits.lower() not in ("", "0x"))
    number = int(digits, 10 if decimal else 16) if is_word else -1
    if not 0 <= number < 1 << bits:
        expected = f"{bits} bits{' in decimal' if decimal else ''} such as {example}"
        msg = f"{what} is a word of {expected}, got {quote(text)}" + (f" of {number.bit_length()}" if is_word else "")
        raise InvalidOperand(msg)
    return number


@verb(
    "warpfrag descriptor 0x4000004000000000                 # explained field by field",
    "warpfrag descriptor 4000004000000000                   # the same: digits without 0x are hex",
    "warpfrag descriptor --stride 1024 --swizzle 128        # built",
    "warpfrag descriptor 0x4000004000000000 --for wgmma.mma_async.m64n64k16.f32.f16.f16 b   # its problems",
    "warpfrag descriptor --tile 64 --swizzle 128 --for wgmma.mma_async.m64n64k16.f32.f16.f16 b",
    "warpfrag descriptor 0x4000404000000000 --for tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.f16.f16 b",
    "warpfrag descriptor 0x8400490 --for tcgen05.mma.cta_group::1.kind::f16 idesc    # the instruction descriptor",
    "warpfrag descriptor --for tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.f16.f16 idesc    # built",
)
@click.argument("word", required=False)
@click.option("--decimal", is_flag=True, help="WORD is decimal; else it is hex, with or without 0x.")
@click.option("--start", type=integer(), metavar="BYTES", help="Where the operand starts.")
@click.option("--leading", type=integer(), metavar="BYTES", help="The leading byte offset.")
@click.option("--stride", type=integer(), metavar="BYTES", help="The stride byte offset.")
@click.option("--swizzle", type=integer(), metavar="BYTES", help=f"One of {', '.join(map(str, SWIZZLES))}.")
@click.option("--base-offset", type=integer(), metavar="N", help="Swizzle phase, in 128-byte rows.")
@click.option(
    "--for",
    "operand_for",
    nargs=2,
    metavar="INSTRUCTION OPERAND",
    help="The A or B it is for; of tcgen05 also idesc and mask.",
)
@click.option(
    "--trans", is_flag=True, help="The operand is MN-major (16-bit types; of tcgen05 also 8-bit ones and tf32)."
)
@click.option(
    "--tile",
    type=integer(),
    metavar="K",
    help="A tile without gaps with this extent along K: a descriptor for each step.",
)
@json_option
def command(
    *,
    word: str | None,
    decimal: bool,
    operand_for: tuple[str, str] | None,
    trans: bool,
    tile: int | None,
    as_json: bool,
    **fields: int | None,
) -> int:
    """A shared-memory descriptor of wgmma or tcgen05: its fields, its layout in CuTe's words, and its problems.

    WORD is the 64 bits, in hex (with --decimal, in decimal); or give its fields, in bytes; or --tile for a tile that
    lies without gaps. With --for, the exit status is 1 if there is a problem: the hardware itself reports none. Of
    tcgen05, idesc is the instruction descriptor, 32 bits, and mask the zero-column mask of mma.ws; without a WORD
    idesc is built.
    """
    if operand_for is not None and operand_for[1].lower() in ("idesc", "mask"):
        return _tensor_word(operand_for[0], operand_for[1].lower(), word, decimal=decimal, as_json=as_json)
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
        kind = operand.descriptor_kind if operand else "wgmma"
        entries: dict[str, Any] = {**values, "kind": kind}
        descriptors = [Descriptor(**entries) if word is None else read_word(word, kind, decimal=decimal)]
    problems = [descriptor.problems(operand, trans=trans) if operand else [] for descriptor in descriptors]
    if as_json:
        rows = [_json(*explained, trans=trans) for explained in zip(descriptors, problems, strict=True)]
        named = {"instruction": operand.instruction, "operand": operand.role} if operand else {}
        print_json("descriptor", {**named, "trans": trans, "descriptors": rows})
    else:
        if word is not None and word.strip().isdecimal() and not decimal:
            echo(f"{word.strip()} is read as hex; --decimal reads it as decimal")
        for at, explained in enumerate(zip(descriptors, problems, strict=True)):
            if at:
                echo()
            _print_descriptor(*explained, trans=trans)
        if len(descriptors) > 1:
            starts = [descriptor.start for descriptor in descriptors]
            step = starts[1] - starts[0]
            echo(f"\nstart of each step along K: {', '.join(map(str, starts))}; the first step is {step}")
    return NO if any(problems) else DONE


def _tensor_word(name: str, which: str, text: str | None, *, decimal: bool, as_json: bool) -> int:
    """The instruction descriptor or the zero-column mask of a product of tcgen05, explained or built."""
    instruction = get(name)
    if not isinstance(instruction, TensorMma):
        msg = f"{which} is a word of products of tcgen05, not of {instruction}"
        raise InvalidOperand(msg)
    bits = MASK_BITS if which == "mask" else WORD_BITS
    number = (
        None if text is None else _number(which, bits, text, "138413200" if decimal else "0x8400490", decimal=decimal)
    )
    if which == "mask":
        mask = ZeroColumnMask.decode(number if number is not None else 0)
        m, n = instruction.shape.m or 128, instruction.shape.n or 256
        problems = mask.problems(m)
        rows: list[list[object]] = [[field, getattr(mask, field)] for field in ("zeros", "used", "shift", "active")]
        rows += [["starts", " ".join(map(str, mask.starts))], ["zero first", " ".join(map(str, mask.zero_first))]]
        facts = {"columns": mask.columns(m, n), "m": m, "n": n}
        header = ["field", "meaning"]
        title = f"0x{mask.word:016x}"
    else:
        idesc = (
            InstructionDescriptor.decode(number, kind=instruction.kind)
            if number is not None
            else instruction.descriptor()
        )
        problems = idesc.problems(instruction)
        rows = [[field.name, f"{field.high}:{field.low}", field.raw, field.meaning] for field in idesc.explain()]
        facts = {"fields": [field._asdict() for field in idesc.explain()]}
        header = ["field", "bits", "raw", "meaning"]
        title = f"0x{idesc.word:08x}"
    if as_json:
        result = [problem._asdict() for problem in problems]
        asked = {"instruction": instruction.name, "operand": which, "trans": False}
        print_json("descriptor", {**asked, "descriptors": [{"word": title, **facts, "problems": result}]})
    else:
        print_heading(title)
        print_table(header, rows)
        for problem in problems:
            echo(wrapped(f"problem: {problem.text}", indent=9))
    return NO if problems else DONE


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
        msg = "--tile needs --for INSTRUCTION OPERAND"
        raise InvalidOperand(msg)
    others = [f"--{name.replace('_', '-')}" for name in values if name not in {"start", "swizzle"}]
    if word is not None or others:
        msg = f"--tile takes only --start and --swizzle; got {quote(word) if word else others[0]} too"
        raise InvalidOperand(msg)
    return operand.descriptors(k=tile, swizzle=values.get("swizzle"), trans=trans, start=values.get("start", 0))


def _print_descriptor(descriptor: Descriptor, problems: list[Problem], *, trans: bool) -> None:
    print_heading(f"0x{descriptor.word:016x}")
    rows = [[field.name, f"{field.high}:{field.low}", field.raw, field.meaning] for field in descriptor.explain()]
    print_table(["field", "bits", "raw", "meaning"], rows)
    echo(f"CuTe, in units of 16 bytes, {'MN' if trans else 'K'}-major: {descriptor.cute(trans=trans)}")
    for hint in descriptor.hints():
        echo(wrapped(f"hint: {hint}", indent=6))
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
        "hints": descriptor.hints(),
        "problems": [problem._asdict() for problem in problems],
    }
