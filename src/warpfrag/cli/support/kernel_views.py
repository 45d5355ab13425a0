"""What `warpfrag ptx` shows of the inside of a launch: a profile, one instruction explained, two runs compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from warpfrag.cli.support.output import DONE, NO, echo, print_heading, print_json, print_table, terminal_width
from warpfrag.errors import InvalidOperand, quote
from warpfrag.files import write_atomically

if TYPE_CHECKING:
    from warpfrag.ptx import Comparison, InstructionView, Kernel, OperandValues, Run
    from warpfrag.viz.drawing import Drawing

MAX_ROWS = 30


def at_line(file: str) -> tuple[str, int]:
    """The file and the line of FILE:LINE."""
    name, colon, line = file.rpartition(":")
    if not colon or not (line.isascii() and line.isdigit()) or len(line) > 9:
        msg = f"explain: expected FILE.ptx:LINE, such as matmul.ptx:120, got {quote(file)}"
        raise click.UsageError(msg)
    return name, int(line)


def print_profile(run: Run, *, by: str | None, output: str | None, as_json: bool) -> int:
    """The profile of a launch, as text, JSON or a page."""
    profile = run.profile
    if output is not None:
        from warpfrag.viz.explorer.profile_page import build_profile_page

        if not output.endswith((".html", ".htm")):
            msg = f"profile: expected a name that ends in .html, got {quote(output)}"
            raise InvalidOperand(msg)
        write_atomically(output, build_profile_page(profile))
    if as_json:
        print_json("ptx", {"action": "profile", "profile": profile.to_dict()})
        return DONE
    echo(repr(profile)[1:-1])
    heads, rows = profile.table(by=by or "", limit=None)
    print_table(heads, rows[:MAX_ROWS])
    if len(rows) > MAX_ROWS:
        echo(f"{len(rows) - MAX_ROWS} more; --json has all")
    return DONE


def print_comparison(comparison: Comparison, *, as_json: bool) -> int:
    """Where two runs first differ; the exit status is 1 if they do."""
    if as_json:
        print_json("ptx", {"action": "compare", "comparison": comparison.to_dict()})
    else:
        echo(str(comparison))
    return DONE if comparison.equal else NO


def explain_line(
    kernel: Kernel,
    launch: dict[str, Any],
    line: int,
    *,
    block: tuple[int, ...] | None,
    warp: int | None,
    visit: int,
) -> InstructionView:
    """The instruction of a line, in one warp at one visit."""
    with kernel.debug(**launch) as debugger:
        debugger.break_at(line, block=block, warp=warp)
        stop = debugger.run()
        if stop is not None and (visit or block is None or warp is None):
            here = debugger.focus()
            debugger.breakpoints.clear()
            point = debugger.break_at(line, block=here[0], warp=here[1])
            for _ in range(visit):
                stop = debugger.run()
                if stop is None:
                    msg = f"line {line} has fewer visits by warp {here[1]} of block {here[0]}: {point.hits + 1}"
                    raise InvalidOperand(msg)
        if stop is None:
            msg = f"line {line} of {kernel.name} was not reached by such a warp in this launch"
            raise InvalidOperand(msg)
        debugger.breakpoints.clear()
        return debugger.explain()


def print_view(view: InstructionView, *, visit: int, output: str | None, as_json: bool) -> int:
    """An instruction and its operands: matrices, drawn, or the values of 32 lanes."""
    stop = view.stop
    if output is not None and not view.is_matrix:
        msg = f"line {stop.line} is no matrix instruction: there is no figure of {stop.text}"
        raise InvalidOperand(msg)
    picture = drawing_of(view, visit) if view.is_matrix and (output is not None or not as_json) else None
    if output is not None and picture is not None:
        picture.save(output)
    if as_json:
        print_json("ptx", {"action": "explain", "instruction": _facts(view, visit)})
    elif picture is not None:
        echo(picture.to_text(terminal_width()).rstrip("\n"))
    else:
        print_heading(stop.text)
        echo(_place(view, visit))
        heads = ["lane", *(f"{item.name}{' (after)' if item.is_result else ''}" for item in view.operands)]
        rows = [
            [lane, *(_number(item, lane) for item in view.operands), *([] if stop.lanes >> lane & 1 else ["idle"])]
            for lane in range(32)
        ]
        width = max(map(len, rows))
        print_table([*heads, *[""] * (width - len(heads))], [[*row, *[""] * (width - len(row))] for row in rows])
    return DONE


def _place(view: InstructionView, visit: int) -> str:
    stop = view.stop
    source = f", {stop.source}" if stop.source is not None else ""
    return f"line {stop.line}{source}; block {stop.block}, warp {stop.warp}, visit {visit}; {view.arch}"


def _number(item: OperandValues, lane: int) -> str:
    """A value of a lane: floats as such, integers, addresses and bits in hex."""
    value = item.values[lane]
    if item.values.dtype.kind == "f":
        return f"{value:.9g}"
    if item.values.dtype.kind == "i":
        return str(int(value))
    return str(int(value)) if item.format in {"pred", "u8", "u16", "u32", "u64"} else f"{int(value):#x}"


def drawing_of(view: InstructionView, visit: int) -> Drawing:
    """The operands of a matrix instruction as a figure, with their values."""
    from warpfrag.tensorcore.registry import get
    from warpfrag.viz.value_view import draw_values

    instruction = get(view.instruction, target=view.arch) if "wmma" in view.instruction[:5] else get(view.instruction)
    matrices = [
        (item.name, f"{item.format}, {'after' if item.is_result else 'before'}", item.values) for item in view.operands
    ]
    staged = {item.name: item.in_shared_memory for item in view.operands}
    note = ("Grey: in shared memory.",) if any(staged.values()) else ()
    title = _place(view, visit)
    return draw_values(instruction, matrices, title=title, notes=(view.stop.text, *note), staged=staged)


def _facts(view: InstructionView, visit: int) -> dict[str, object]:
    stop = view.stop
    return {
        "line": stop.line,
        "text": stop.text,
        "source": None if stop.source is None else str(stop.source),
        "name": view.instruction,
        "arch": view.arch,
        "block": list(stop.block),
        "warp": stop.warp,
        "visit": visit,
        "lanes": stop.lanes,
        "operands": [
            {
                "name": item.name,
                "format": item.format,
                "is_result": item.is_result,
                "shape": list(item.values.shape),
                "values": _plain(item),
            }
            for item in view.operands
        ],
    }


def _plain(item: OperandValues) -> list[object]:
    """Values in order; what is not finite is a text."""
    import numpy as np

    values = item.values.reshape(-1)
    if values.dtype.kind in "biu":
        return [int(value) for value in values]
    wide = values.astype(np.float64)
    return [float(value) if np.isfinite(value) else str(float(value)) for value in wide]
