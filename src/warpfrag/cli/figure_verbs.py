"""`warpfrag draw` and `warpfrag explore`: figures of instructions, and the interactive page."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import click

from warpfrag.cli.descriptor_verb import read_word
from warpfrag.cli.support.arguments import IN_TENSOR_MEMORY, Arch, File, InstructionName, Load, OperandName, WarpIndex
from warpfrag.cli.support.output import echo, flush, terminal_width
from warpfrag.cli.support.verbs import Param, integer, verb
from warpfrag.errors import quote
from warpfrag.files import write_atomically
from warpfrag.smem.shared_memory import SWIZZLES
from warpfrag.smem.tensor_map import ELEMENT_TYPES, INTERLEAVES, TensorMapFields
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.registry import get
from warpfrag.viz.drawing import Drawing, GridDrawing
from warpfrag.viz.grids import Cut
from warpfrag.viz.palette import Theme
from warpfrag.viz.views import View

RANGE = re.compile(r"(\d{1,9})(?:(?:-|\.\.|:)(\d{1,9}))?", re.ASCII)
BOX = re.compile(r"\d{1,9}(?:x\d{1,9}){0,4}", re.ASCII)
CHOSEN = {"selector": {"metadata"}, "byte_id": {"scale_a", "scale_b"}, "thread_id": {"scale_a", "scale_b"}}


def read_range(text: str) -> tuple[int, int]:
    """Return a range written `16-31`, or one number."""
    match = RANGE.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(f"expected first-last, such as 16-31, got {quote(text)}")
    return int(match[1]), int(match[2] or match[1])


def read_box(text: str) -> tuple[int, ...]:
    """Return the extents of a box, outermost first."""
    if BOX.fullmatch(text.strip()) is None:
        raise click.BadParameter(f"expected extents such as 8x64, outermost first, got {quote(text)}")
    return tuple(map(int, text.strip().split("x")))


Range = Annotated[tuple[int, int], Param("A-B", read_range)]


class Box(NamedTuple):
    """The box of a tensor map.

    Options:
        box: A box of a tensor map (TMA), outermost extent first, instead of an instruction.
        dtype (NAME): Its element type, such as float16 (the default) or uint8.
        swizzle: The swizzle of the map: 0, 32, 64 or 128.
        interleave: Bytes of a slice of channels: 16 or 32.
    """

    box: Annotated[tuple[int, ...], Param("AxB", read_box)] | None = None
    dtype: str | None = None
    swizzle: int | None = None
    interleave: int | None = None


class Selection(NamedTuple):
    """The part of an operand that is drawn.

    Options:
        view: Default: the clearest for the operand.
        rows: Only these rows of the matrix.
        cols: Only these columns of the matrix.
        parts: Only these matrices.
        selector: The sparsity selector.
        thread_id: Which lanes supply the scale factors.
        byte_id: The first byte of the scale word that is used.
        block: Which of a pair of blocks (tcgen05).
    """

    view: View | None = None
    rows: Range | None = None
    cols: Range | None = None
    parts: Range | None = None
    selector: int | None = None
    thread_id: int | None = None
    byte_id: int | None = None
    block: int | None = None


@verb(
    "warpfrag draw mma.m16n8k16.f32.f16.f16.f32 -o mma.svg            # A left, B above, D in the corner",
    "warpfrag draw mma.m16n8k16.f32.f16.f16.f32 a                     # in the terminal",
    "warpfrag draw mma.m16n8k16.f32.f16.f16.f32 a --view warp -o a.png",
    "warpfrag draw mma.sp.m16n8k32.f32.f16.f16.f32 metadata --selector 1 -o e.svg",
    "warpfrag draw wgmma.mma_async.m64n64k16.f32.f16.f16 d --warp 1 -o d.svg",
    "warpfrag draw wgmma.mma_async.m64n64k16.f32.f16.f16 b --descriptor 0x4000004000000000 -o b.svg",
    "warpfrag draw tcgen05.mma.cta_group::1.kind::f16.m64n64k16.f32.f16.f16 d -o d.svg         # tensor memory",
    "warpfrag draw tcgen05.ld.sync.aligned.16x256b.x2.b32 -o ld.svg",
    "warpfrag draw --box 8x64 --dtype float16 --swizzle 128 -o box.svg   # a tensor map's box in shared memory",
    "warpfrag draw --figure 130 -o figure-130.svg                     # as numbered in the PTX ISA",
    json=False,
)
def draw(
    instruction: InstructionName | None = None,
    operand: OperandName | None = None,
    *,
    output: File | None = None,
    figure: str | None = None,
    selection: Selection = Selection(),  # noqa: B008 (immutable)
    warp: WarpIndex | None = None,
    descriptor: tuple[Annotated[str, Param("WORD")], ...] = (),
    trans: bool = False,
    box: Box = Box(),  # noqa: B008 (immutable)
    theme: Theme = "auto",
    load: Load = IN_TENSOR_MEMORY,
    arch: Arch | None = None,
) -> None:
    """Draw an instruction, or one of its operands.

    OPERAND is a, b, c, d, metadata, scale_a or scale_b; default: the whole instruction. Without -o the figure is
    printed as text.

    Options:
        output: A name in .svg, .png or .txt.
        figure (N): A figure of the PTX ISA by its number, instead of an instruction.
        descriptor: The shared-memory descriptor of A or B of wgmma; repeat it for each step along k.
        trans: The operand is MN-major in shared memory (16-bit types).
        theme: Colours.
    """
    words = tuple(read_word(text).word for text in descriptor) or None
    settings = {**selection._asdict(), **load._asdict(), "warp": warp, "descriptor": words, "arch": arch}
    options = {name: value for name, value in settings.items() if value is not None} | (
        {"trans": True} if trans else {}
    )
    picture = _picture(instruction, operand, figure, box, theme, options)
    if output is None:
        echo(picture.to_text(terminal_width()).rstrip("\n"))
    else:
        picture.save(output)


def _picture(
    name: str | None, operand: str | None, figure: str | None, box: Box, theme: Theme, options: dict[str, Any]
) -> Drawing:
    """Return the figure of an instruction, a box, or a number alone."""
    from warpfrag.isa.immediates import Immediates
    from warpfrag.viz.draw import ViewOptions, draw_figure
    from warpfrag.viz.draw import draw as draw_instruction

    others = [word for word in (name, operand) if word] + [f"--{option.replace('_', '-')}" for option in options]
    boxed = [f"--{option}" for option, value in box._asdict().items() if value is not None]
    msg = ""
    if figure is not None and others + boxed:
        msg = f"--figure needs no other option than --theme and -o; leave out {', '.join(others + boxed)}"
    elif box.box is not None and (wrong := [word for word in others if word != "--rows"]):
        msg = f"--box is a figure of its own; leave out {', '.join(wrong)}"
    elif box.box is None and boxed:
        msg = f"{boxed[0]} is about a box: expected --box too, such as --box 8x64"
    elif name is None and figure is None and box.box is None:
        msg = "expected an instruction, --box and its extents, or --figure and a number"
    if msg:
        raise click.UsageError(msg)
    if figure is not None:
        return draw_figure(figure, theme=theme)
    if box.box is not None:
        return replace(_box_picture(box, box.box, options.get("rows")), theme=theme)
    _check_options(get(name or ""), operand, options)
    byte_id, thread_id = options.get("byte_id", 0), options.get("thread_id", 0)
    return draw_instruction(
        name or "",
        operand,
        options.get("view"),
        rows=options.get("rows"),
        cols=options.get("cols"),
        immediates=Immediates(options.get("selector", 0), (byte_id, byte_id), (thread_id, thread_id)),
        options=ViewOptions(**{name: options[name] for name in ViewOptions.__dataclass_fields__ if name in options}),
        arch=options.get("arch"),
        theme=theme,
    )


def _box_picture(options: Box, box: tuple[int, ...], rows: tuple[int, int] | None) -> GridDrawing:
    """Return the figure of a map over a tensor that is one box."""
    from warpfrag.viz.shared_memory_views import box_drawing

    swizzle, interleave, name = options.swizzle or 0, options.interleave or 0, options.dtype or "float16"
    known: dict[str, tuple[object, Collection[object]]] = {
        "--dtype": (name, ELEMENT_TYPES),
        "--swizzle": (swizzle, SWIZZLES),
        "--interleave": (interleave, INTERLEAVES),
    }
    for option, (choice, choices) in known.items():
        if choice not in choices:
            raise click.UsageError(f"expected {option} of {', '.join(map(str, choices))}, got {quote(choice)}")
    element, dims = ELEMENT_TYPES[name], box[::-1]
    strides, pitch = [], -(-dims[0] * (interleave or element.bytes) // 32) * 32
    for extent in dims[1:]:
        strides.append(pitch)
        pitch *= extent
    fields = TensorMapFields(element, 0, dims, tuple(strides), dims, (1,) * len(dims), swizzle, "zero", interleave)
    words = [f"{element.name}, box {'x'.join(map(str, box))}"]
    words += [f"{option} {size}" for option, size in (("swizzle", swizzle), ("interleave", interleave)) if size]
    return box_drawing(", ".join(words), fields, Cut(rows))


def _check_options(instruction: Instruction, operand: str | None, options: dict[str, Any]) -> None:
    """Reject an option that would change nothing: only metadata have selectors, only scale factors have ids."""
    drawn = {operand} if operand else {*instruction.operands}
    for option, roles in CHOSEN.items():
        if option in options and not roles & drawn & {*instruction.operands}:
            subject = f"{operand} of {instruction}" if operand else f"{instruction}"
            raise click.UsageError(
                f"--{option.replace('_', '-')} is not for {subject}: it chooses within {' and '.join(sorted(roles))}"
            )


@verb(
    "warpfrag explore -o explorer.html     # one file: open it in a browser",
    "warpfrag explore --serve              # or serve it on this machine",
    json=False,
)
def explore(
    *,
    output: File | None = None,
    serve: bool = False,
    port: Annotated[int, Param("N", integer(0, 65535))] | None = None,
) -> None:
    """Write an interactive page of every fragment of every instruction, for a browser without a network.

    Options:
        output: Write the page to a file.
        serve: Serve the page on 127.0.0.1, until interrupted.
        port: The port of --serve; default: any free one.
    """
    if (output is None and not serve) or (port is not None and not serve):
        raise click.UsageError("--port goes with --serve" if port is not None else "expected -o FILE or --serve")
    if output is not None:
        from warpfrag.viz import explorer

        page = explorer.build_page()
        write_atomically(output, page)
        echo(f"{output}: {len(page.encode()) // 1024} KiB")
    if serve:
        from warpfrag.viz.explorer.page_server import PageServer

        with PageServer(port or 0) as server:
            echo(f"{server.address} shows the explorer; Ctrl-C ends it")
            flush()  # at once, also into a pipe
            server.serve_forever()
