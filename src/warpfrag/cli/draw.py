"""`warpfrag draw`: a figure of an instruction or of one of its operands, as a file or in the terminal."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack, cast, get_args

import click

from warpfrag.cli.descriptor import read_word
from warpfrag.cli.support.options import (
    choice_options,
    complete_instruction,
    complete_operand,
    file_option,
    integer,
    load_options,
    target_option,
    warp_option,
)
from warpfrag.cli.support.output import echo, terminal_width
from warpfrag.cli.support.verbs import verb
from warpfrag.errors import quote
from warpfrag.smem.shared_memory import SWIZZLES
from warpfrag.smem.tensor_map import ELEMENT_TYPES, INTERLEAVES, TensorMapFields
from warpfrag.tensorcore.registry import get
from warpfrag.viz.box_view import box_drawing
from warpfrag.viz.cells import Cut
from warpfrag.viz.draw import draw, draw_figure
from warpfrag.viz.palette import Theme
from warpfrag.viz.views import VIEWS, View

if TYPE_CHECKING:
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.viz.cells import Range
    from warpfrag.viz.drawing import Drawing

RANGE = re.compile(r"(\d{1,9})(?:(?:-|\.\.|:)(\d{1,9}))?", re.ASCII)

BOX = re.compile(r"\d{1,9}(?:x\d{1,9}){0,4}", re.ASCII)


class BoxOptions(NamedTuple):
    """The box of a tensor map, outermost extent first, and what else the map says."""

    box: tuple[int, ...] | None
    dtype: str | None
    swizzle: int | None
    interleave: int | None

    @property
    def names(self) -> list[str]:
        """The options that are there."""
        return [f"--{option}" for option, choice in self._asdict().items() if choice is not None]


class DrawOptions(TypedDict, total=False):
    """Options of a figure; `warpfrag.viz.draw.draw` explains each."""

    view: View
    rows: Range
    cols: Range
    parts: Range
    selector: int
    thread_id: int
    byte_id: int
    target: str
    warp: int
    descriptor: tuple[int, ...]
    trans: bool
    through: str
    column: int
    base_lane: int
    block: int


def read_range(_context: click.Context, parameter: click.Parameter, text: str | None) -> Range | None:
    """A range written `16-31`, or one number."""
    if text is None:
        return None
    match = RANGE.fullmatch(text.strip())
    if match is None:
        msg = f"expected first-last, such as 16-31, got {quote(text)}"
        raise click.BadParameter(msg, param=parameter)
    return int(match[1]), int(match[2] or match[1])


def read_words(_context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[int, ...] | None:
    """Words of descriptors, in hex."""
    return tuple(read_word(text).word for text in texts) or None


def read_box(_context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    """The extents of a box, outermost first."""
    if text is None:
        return None
    if BOX.fullmatch(text.strip()) is None:
        msg = f"expected extents such as 8x64, outermost first, got {quote(text)}"
        raise click.BadParameter(msg, param=parameter)
    return tuple(map(int, text.strip().split("x")))


@verb(
    "warpfrag draw mma.m16n8k16.f32.f16.f16.f32 -o mma.svg            # A left, B above, D in the corner",
    "warpfrag draw mma.m16n8k16.f32.f16.f16.f32 a                     # in the terminal",
    "warpfrag draw mma.m16n8k16.f32.f16.f16.f32 a --view warp -o a.png",
    "warpfrag draw mma.sp.m16n8k32.f32.f16.f16.f32 metadata --selector 1 -o e.svg",
    "warpfrag draw wgmma.mma_async.m64n64k16.f32.f16.f16 d --warp 1 -o d.svg",
    "warpfrag draw wgmma.mma_async.m64n64k16.f32.f16.f16 b --descriptor 0x4000004000000000 -o b.svg",
    "warpfrag draw tcgen05.mma.cta_group::1.kind::f16.m64n64k16.f32.f16.f16 d -o d.svg         # tensor memory",
    "warpfrag draw tcgen05.ld.sync.aligned.16x256b.x2.b32 -o ld.svg",
    "warpfrag draw --box 8x64 --dtype float16 --swizzle 128 -o box.svg   # what a tensor map leaves in shared memory",
    "warpfrag draw --figure 130 -o figure-130.svg                     # as numbered in the PTX ISA",
)
@click.argument("name", metavar="[INSTRUCTION]", required=False, shell_complete=complete_instruction)
@click.argument("operand", metavar="[OPERAND]", required=False, shell_complete=complete_operand)
@file_option("-o", "--output", help_text="A name in .svg, .png or .txt.")
@click.option("--view", type=click.Choice(VIEWS), help="Default: the clearest for the operand.")
@click.option("--figure", metavar="N", help="A figure of the PTX ISA by its number, instead of an instruction.")
@click.option("--rows", metavar="A-B", callback=read_range, help="Only these rows of the matrix.")
@click.option("--cols", metavar="A-B", callback=read_range, help="Only these columns of the matrix.")
@click.option("--parts", metavar="A-B", callback=read_range, help="Only these products or matrices.")
@choice_options("selector", "thread_id", "byte_id")
@warp_option
@click.option(
    "--descriptor",
    metavar="WORD",
    multiple=True,
    callback=read_words,
    help="The shared-memory descriptor of A or B of wgmma; repeat it for each step along k.",
)
@click.option("--trans", is_flag=True, default=None, help="The operand is MN-major in shared memory (16-bit types).")
@click.option("--box", metavar="AxB", callback=read_box, help="A box of a tensor map (TMA), instead of an instruction.")
@click.option("--dtype", metavar="NAME", help="The type of its elements, such as float16 (the default) or uint8.")
@click.option("--swizzle", type=integer(), metavar="N", help="The swizzle of the map: 0, 32, 64 or 128.")
@click.option("--interleave", type=integer(), metavar="N", help="Bytes of a slice of channels: 16 or 32.")
@click.option("--theme", type=click.Choice(get_args(Theme)), default="auto", show_default=True, help="Colours.")
@load_options
@click.option("--block", type=integer(), metavar="N", help="Which of a pair of blocks (tcgen05).")
@target_option
def command(
    *,
    name: str | None,
    operand: str | None,
    output: str | None,
    figure: str | None,
    box: tuple[int, ...] | None,
    dtype: str | None,
    swizzle: int | None,
    interleave: int | None,
    theme: Theme,
    **options: Unpack[DrawOptions],
) -> None:
    """A figure of an instruction, or of one of its operands.

    OPERAND is a, b, c, d, metadata, scale_a or scale_b; without it, the whole instruction is drawn. Without -o the
    figure is printed as text.
    """
    requested = cast("DrawOptions", {option: choice for option, choice in options.items() if choice is not None})
    picture = _picture(name, operand, figure, BoxOptions(box, dtype, swizzle, interleave), theme, requested)
    if output is None:
        echo(picture.to_text(terminal_width()).rstrip("\n"))
        return
    picture.save(output)


def _picture(
    name: str | None,
    operand: str | None,
    figure: str | None,
    box_options: BoxOptions,
    theme: Theme,
    options: DrawOptions,
) -> Drawing:
    """The figure that the words ask for: an instruction, a box, or a number and nothing else."""
    other = [word for word in (name, operand) if word] + [f"--{option.replace('_', '-')}" for option in options]
    if figure is not None:
        if other or box_options.names:
            words = ", ".join([*other, *box_options.names])
            msg = f"--figure says everything about a figure but its colours; leave out {words}"
            raise click.UsageError(msg)
        return draw_figure(figure, theme=theme)
    if box_options.box is not None:
        wrong = [word for word in other if word != "--rows"]
        if wrong:
            msg = f"--box is a figure of its own; leave out {', '.join(wrong)}"
            raise click.UsageError(msg)
        return replace(_box_picture(box_options, box_options.box, options.get("rows")), theme=theme)
    if box_options.names:
        msg = f"{box_options.names[0]} says something of a box: expected --box too, such as --box 8x64"
        raise click.UsageError(msg)
    if name is None:
        msg = "expected an instruction, --box and its extents, or --figure and a number"
        raise click.UsageError(msg)
    _check_options(get(name), operand, options)
    return draw(name, operand, theme=theme, **options)


def _box_picture(box_options: BoxOptions, box: tuple[int, ...], rows: Range | None) -> Drawing:
    """The figure of a map over a tensor that is one box."""
    swizzle, interleave = box_options.swizzle or 0, box_options.interleave or 0
    name = box_options.dtype or "float16"
    for option, choice, choices in (
        ("--dtype", name, tuple(ELEMENT_TYPES)),
        ("--swizzle", swizzle, tuple(SWIZZLES)),
        ("--interleave", interleave, INTERLEAVES),
    ):
        if choice not in choices:
            msg = f"expected {option} of {', '.join(map(str, choices))}, got {quote(choice)}"
            raise click.UsageError(msg)
    element, dims = ELEMENT_TYPES[name], box[::-1]
    strides, pitch = [], -(-dims[0] * (interleave or element.bytes) // 32) * 32
    for extent in dims[1:]:
        strides.append(pitch)
        pitch *= extent
    fields = TensorMapFields(element, 0, dims, tuple(strides), dims, (1,) * len(dims), swizzle, "zero", interleave)
    words = [f"{element.name}, box {'x'.join(map(str, box))}"]
    words += [f"swizzle {swizzle}"] if swizzle else []
    words += [f"interleave {interleave}"] if interleave else []
    return box_drawing(", ".join(words), fields, Cut(rows))


def _check_options(instruction: Instruction, operand: str | None, requested: DrawOptions) -> None:
    """Refuse an option that would change nothing: only metadata have selectors, only scale factors have ids."""
    drawn = [operand] if operand else [*instruction.operands]
    chosen = {"selector": {"metadata"}, "byte_id": {"scale_a", "scale_b"}, "thread_id": {"scale_a", "scale_b"}}
    for option, roles in chosen.items():
        if option in requested and not roles & {*drawn} & {*instruction.operands}:
            what = f"{operand} of {instruction}" if operand else f"{instruction}"
            msg = f"--{option.replace('_', '-')} is not for {what}: it chooses within {' and '.join(sorted(roles))}"
            raise click.UsageError(msg)
