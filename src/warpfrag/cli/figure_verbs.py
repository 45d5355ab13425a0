"""`warpfrag draw` and `warpfrag explore`: figures of instructions, and the interactive page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import click

from warpfrag.cli.descriptor_verb import read_word
from warpfrag.cli.io.arguments import IN_TENSOR_MEMORY, Arch, File, InstructionName, Load, OperandName, WarpIndex
from warpfrag.cli.io.output import ProgressLine, echo, terminal_width
from warpfrag.cli.io.verbs import Param, verb
from warpfrag.errors import quote
from warpfrag.files import write_atomically
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.registry import get
from warpfrag.viz.drawing import Drawing
from warpfrag.viz.palette import Theme
from warpfrag.viz.views import View

RANGE = re.compile(r"(\d{1,9})(?:(?:-|\.\.|:)(\d{1,9}))?", re.ASCII)
CHOSEN = {"selector": ("metadata",), "byte_id": ("scale_a", "scale_b"), "thread_id": ("scale_a", "scale_b")}


def read_range(text: str) -> tuple[int, int]:
    """Parse a range such as `16-31`, or a single number."""
    match = RANGE.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(f"expected first-last, such as 16-31, got {quote(text)}")
    return int(match[1]), int(match[2] or match[1])


Range = Annotated[tuple[int, int], Param("A-B", read_range)]


class Selection(NamedTuple):
    """The part of an operand to draw.

    Options:
        view: The type of figure; the default depends on the operand.
        rows: Only these rows of the matrix.
        cols: Only these columns of the matrix.
        parts: Only these matrices.
        selector: The sparsity selector.
        thread_id: The thread id, which selects the lanes that supply the scale factors.
        byte_id: The byte id: the first byte of the scale word that is used.
        block: The block of a CTA pair: 0 or 1 (tcgen05).
    """

    view: View | None = None
    rows: Range | None = None
    cols: Range | None = None
    parts: Range | None = None
    selector: int | None = None
    thread_id: int | None = None
    byte_id: int | None = None
    block: int | None = None


@verb
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
    theme: Theme = "auto",
    load: Load = IN_TENSOR_MEMORY,
    arch: Arch | None = None,
) -> None:
    """Draw an instruction, or one of its operands.

    OPERAND is a, b, c, d, metadata, scale_a or scale_b; default: the whole instruction. Without -o, the figure is
    printed as text.

    Options:
        output: A file that ends in .svg, .png or .txt.
        figure (N): Draw this figure of the PTX ISA instead of an instruction.
        descriptor: The shared-memory descriptor of A or B of wgmma; repeat it for each step along k.
        trans: The operand is MN-major in shared memory (16-bit types).
        theme: The colours.

    For example:
        warpfrag draw mma.m16n8k16.f32.f16.f16.f32 -o mma.svg            # A on the left, B above D
        warpfrag draw mma.m16n8k16.f32.f16.f16.f32 a                     # as text, in the terminal
        warpfrag draw mma.m16n8k16.f32.f16.f16.f32 a --view warp -o a.png
        warpfrag draw mma.sp.m16n8k32.f32.f16.f16.f32 metadata --selector 1 -o e.svg
        warpfrag draw wgmma.mma_async.m64n64k16.f32.f16.f16 d --warp 1 -o d.svg
        warpfrag draw wgmma.mma_async.m64n64k16.f32.f16.f16 b --descriptor 0x4000004000000000 -o b.svg
        warpfrag draw tcgen05.mma.cta_group::1.kind::f16.m64n64k16.f32.f16.f16 d -o d.svg         # tensor memory
        warpfrag draw tcgen05.ld.sync.aligned.16x256b.x2.b32 -o ld.svg
        warpfrag draw --figure 130 -o figure-130.svg                     # as numbered in the PTX ISA
    """
    from warpfrag.isa.immediates import Immediates
    from warpfrag.viz.draw import ViewOptions, draw_figure
    from warpfrag.viz.draw import draw as draw_instruction

    given = {**selection._asdict(), **load._asdict(), "warp": warp, "arch": arch, "trans": trans or None}
    given["descriptor"] = tuple(read_word(text).word for text in descriptor) or None
    options = {name: value for name, value in given.items() if value is not None}
    picture: Drawing
    if figure is not None:
        extra = [word for word in (instruction, operand) if word] + [_spelled(option) for option in options]
        if extra:
            raise click.UsageError(f"--figure can be combined only with --theme and -o; leave out {', '.join(extra)}")
        picture = draw_figure(figure, theme=theme)
    elif instruction is None:
        raise click.UsageError("expected an instruction, or --figure N")
    else:
        _check_options(get(instruction), operand, options)
        byte_id, thread_id = options.get("byte_id", 0), options.get("thread_id", 0)
        picture = draw_instruction(
            instruction,
            operand,
            selection.view,
            rows=selection.rows,
            cols=selection.cols,
            immediates=Immediates(options.get("selector", 0), (byte_id, byte_id), (thread_id, thread_id)),
            options=ViewOptions(**{key: options[key] for key in ViewOptions.__dataclass_fields__ if key in options}),
            arch=arch,
            theme=theme,
        )
    if output is None:
        echo(picture.to_text(terminal_width()).rstrip("\n"))
    else:
        picture.save(output)


def _spelled(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _check_options(instruction: Instruction, operand: str | None, options: dict[str, Any]) -> None:
    """Raise an error for options without effect, such as a selector if no metadata is drawn."""
    drawn = {operand} if operand else {*instruction.operands}
    for option, roles in CHOSEN.items():
        if option in options and not {*roles} & drawn & {*instruction.operands}:
            subject = f"{operand} of {instruction}" if operand else f"{instruction}"
            raise click.UsageError(f"{_spelled(option)} does not apply to {subject}, only to {' and '.join(roles)}")


@verb
def explore(*, output: File, url: str = "") -> None:
    """Write an interactive page that shows every fragment of every instruction, and works offline.

    The page is one static file. The URL selects the view: #i=NAME&at=d.12.5 is row 12, column 5 of D.

    Options:
        output: The file to write, or a folder for index.html.
        url (URL): The address at which the page will be hosted; links copied from a page on disk use this address.

    For example:
        warpfrag explore -o explorer.html     # one file: open it in a browser
        warpfrag explore -o site/ --url https://example.org/explorer/
    """
    from warpfrag.viz import explorer

    with ProgressLine() as line:
        line.show(0, 1, "building the page for all instructions (a few seconds)")
        page = explorer.build_page(url)
    if output.endswith("/") or Path(output).is_dir():
        Path(output).mkdir(parents=True, exist_ok=True)
        output = str(Path(output) / "index.html")
    write_atomically(output, page)
    echo(f"{output}: {len(page.encode()) // 1024} KiB")
