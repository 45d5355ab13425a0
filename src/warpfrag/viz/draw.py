"""Draw figures of fragments, plans, tensor maps and reports, for a terminal, a notebook, a paper or a browser.

    >>> from warpfrag.viz.draw import draw
    >>> picture = draw("mma.m8n8k4.f64.f64.f64.f64", "c")
    >>> print(picture.to_text(width=80))
    Operand C, m8n8k4
    mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64
    C: 8 x 8 of f64, 2 .f64 registers per lane: c0..c1.
    <BLANKLINE>
    C (8 x 8)
    row        0        1        2        3        4        5        6        7 col
      0   T0: c0   T0: c1   T1: c0   T1: c1   T2: c0   T2: c1   T3: c0   T3: c1
      1   T4: c0   T4: c1   T5: c0   T5: c1   T6: c0   T6: c1   T7: c0   T7: c1
      2   T8: c0   T8: c1   T9: c0   T9: c1  T10: c0  T10: c1  T11: c0  T11: c1
      3  T12: c0  T12: c1  T13: c0  T13: c1  T14: c0  T14: c1  T15: c0  T15: c1
      4  T16: c0  T16: c1  T17: c0  T17: c1  T18: c0  T18: c1  T19: c0  T19: c1
      5  T20: c0  T20: c1  T21: c0  T21: c1  T22: c0  T22: c1  T23: c0  T23: c1
      6  T24: c0  T24: c1  T25: c0  T25: c1  T26: c0  T26: c1  T27: c0  T27: c1
      7  T28: c0  T28: c1  T29: c0  T29: c1  T30: c0  T30: c1  T31: c0  T31: c1
    <BLANKLINE>

`views` chooses the grids of an instruction. `fragment_grids`, `plan_views`, `shared_memory_views` and
`tensor_memory_views` make grids of cells (`grids`), `grid_svg` writes them as SVG and `drawing` as text. `plots` draws
charts and `notebook` makes cards. `FigureRow` is a figure of the PTX ISA, a row of `tables/figures.toml`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from warpfrag.errors import InvalidOperand, check_flag, check_index, quote
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, Immediates
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.tensor_map import TensorMapFields
from warpfrag.tables import read_table
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.shared_operand import as_descriptor
from warpfrag.viz.drawing import Drawing, GridDrawing, Plot
from warpfrag.viz.fragment_grids import WARPS, flatten_warps
from warpfrag.viz.grids import Cut, Range
from warpfrag.viz.palette import Theme
from warpfrag.viz.shared_memory_views import box_drawing
from warpfrag.viz.tensor_memory_views import is_in_tensor_memory, tensor_drawing
from warpfrag.viz.views import (
    DEFAULT_OPTIONS,
    VIEWS,
    AnyOperand,
    FigureRequest,
    View,
    ViewOptions,
    default_view,
    notes,
    scenes,
)

if TYPE_CHECKING:  # only for type checkers, because these modules import numpy
    from warpfrag.blas.cublas.batch_invariance import Invariance
    from warpfrag.blas.error_report import ErrorReport
    from warpfrag.machine.launch.tensor_map_argument import TensorMap
    from warpfrag.plans.access_plan import AccessPlan
    from warpfrag.plans.relayout import Relayout

__all__ = ["Drawing", "ViewOptions", "draw", "draw_figure"]

Choice = TypeVar("Choice")


def draw(
    subject: str | Instruction | Relayout | AccessPlan | TensorMap | ErrorReport | Invariance,
    operand: str | None = None,
    view: View | None = None,
    *,
    rows: Range | None = None,
    cols: Range | None = None,
    immediates: Immediates = DEFAULT_IMMEDIATES,
    options: ViewOptions = DEFAULT_OPTIONS,
    arch: str | None = None,
    theme: Theme = "auto",
    title: str = "",
) -> Drawing:
    """Draw an instruction or one of its operands, a relayout, a plan to load or store, a tensor map or a report.

    Views of an instruction: "whole" (A left, B above, D in the corner), "matrix" (the lane that holds each element),
    "warp" (the element in each register), "logical" (a sparse A as the full matrix), "memory" (an operand in shared or
    tensor memory). The default depends on the instruction.

    `rows` and `cols` show a part of a matrix, as (first, last); for metadata, `cols` are columns of A; in shared
    memory, `rows` are lines of 128 bytes. `immediates` select the part of metadata and scale words that is read.
    `options` are for warpgroups, shared memory and tensor memory. `arch` selects the fragments of wmma. `theme` is
    "light" or "dark" to override the reader's colour scheme.

    A relayout shows the registers of the source and of the target, coloured by the lane that each element comes from. A
    plan shows shared memory, coloured by the lanes that address it. A tensor map shows a box and the shared memory that
    a copy writes. An error report shows a histogram of errors and their growth with k, and batch invariance shows the
    ranges of m.
    """
    if not isinstance(title, str):
        raise InvalidOperand(f"title: expected a string, got {quote(title)}")
    _check_choice("theme", theme, get_args(Theme))
    for name, value, expected in (("immediates", immediates, Immediates), ("options", options, ViewOptions)):
        if not isinstance(value, expected):
            raise InvalidOperand(f"{name}: expected {expected.__name__}(...), got {quote(value)}")
    picture = _own_figure(subject, rows)
    if picture is not None:
        defaults = (None, None, None, DEFAULT_IMMEDIATES, DEFAULT_OPTIONS, None)
        if (operand, view, cols, immediates, options, arch) != defaults:
            raise InvalidOperand(
                "figures of plans, tensor maps and reports take only a theme and a title (and rows for a tensor map)"
            )
        return replace(picture, title=title or picture.title, theme=theme)
    if isinstance(subject, Operand):
        raise InvalidOperand(
            f"to draw an operand, pass its instruction and its name: draw(instruction, {subject.role!r})"
        )
    instruction = get(cast("str | Instruction", subject), arch=arch)
    chosen = _operand(instruction, operand)
    if view is not None:
        _check_choice("view", view, VIEWS)
    descriptors = _descriptors(options.descriptor, getattr(chosen, "descriptor_kind", "wgmma"))
    request = FigureRequest(Cut(rows, cols, options.parts), immediates, options, descriptors)
    if is_in_tensor_memory(instruction, chosen) and not descriptors and not check_flag("trans", options.trans):
        picture = tensor_drawing(instruction, chosen, view, request)
        return replace(picture, title=title or picture.title, theme=theme)
    if options.through is not None or options.block is not None or options.column or options.base_lane:
        raise InvalidOperand(
            f"through, column, base_lane and block apply to tcgen05 operands in tensor memory, not to {instruction}"
        )
    view = view or ("memory" if descriptors else default_view(instruction, chosen))
    _check_options(instruction, view, request)
    # before anything is drawn, because it rejects impossible figures
    pictures = scenes(instruction, chosen, view, request)
    title = title or _title(instruction, chosen, view)
    return GridDrawing(title, instruction.name, notes(instruction, chosen, view, request), pictures, theme)


def _own_figure(subject: object, rows: Range | None) -> GridDrawing | Plot | None:
    """Return the figure of an object that has only one kind of figure, or None for an instruction."""
    fields = getattr(subject, "fields", None)
    if isinstance(fields, TensorMapFields):
        return box_drawing(repr(subject), fields, Cut(rows))
    if isinstance(subject, str | Operand) or hasattr(subject, "form"):
        return None
    Cut(rows).reject("this figure")
    from warpfrag.viz.plan_views import plan_drawing  # both import numpy
    from warpfrag.viz.plots import report_plot

    return plan_drawing(subject) or report_plot(subject)


def figure_svg(subject: Any, theme: Theme) -> str:  # noqa: ANN401 (anything that `draw` accepts)
    """Return the figure of an object as SVG."""
    return draw(subject, theme=theme).svg


def draw_figure(key: int | str, *, theme: Theme = "auto") -> Drawing:
    """Draw a figure of the PTX ISA by its number, or a figure of the gallery by its name."""
    row = figure_row(key)
    return draw(
        row.instruction,
        row.operand or None,
        cast("View", row.view) or None,
        rows=row.rows,
        cols=row.cols,
        immediates=Immediates(row.selector),
        options=ViewOptions(parts=row.parts),
        theme=theme,
        title=row.title,
    )


def _operand(instruction: Instruction, role: str | None) -> AnyOperand | None:
    """Return the operand with this role, in upper or lower case.

    Without a role, return the only operand, or None if there are several.
    """
    if role is None:
        only = tuple(instruction.operands.values())
        return only[0] if len(only) == 1 else None
    if not instruction.operands:
        raise InvalidOperand(f"{instruction} has no operands to draw")
    name = role.lower() if isinstance(role, str) else role
    _check_choice("operand", name, tuple(instruction.operands), of=instruction.name)
    chosen: AnyOperand = instruction.operands[name]
    return chosen if instruction.form.operation.scope == "block" else flatten_warps(chosen)


def _descriptors(descriptor: object, kind: str) -> tuple[Descriptor, ...]:
    """Return one or several descriptors as Descriptor objects of type `kind`."""
    if descriptor is None:
        return ()
    several = descriptor if isinstance(descriptor, list | tuple) else [descriptor]
    return tuple(as_descriptor(each, kind) for each in several)


def _check_options(instruction: Instruction, view: View, request: FigureRequest) -> None:
    """Raise an error for options that have no effect, such as a descriptor outside the memory view."""
    warp = request.options.warp
    if check_flag("trans", request.options.trans) and view != "memory":
        raise InvalidOperand("trans applies only to an operand in shared memory, drawn in the memory view")
    if request.descriptors and view != "memory":
        raise InvalidOperand(
            f"a descriptor applies only to an operand in shared memory, drawn in the memory view, not the {view} view"
        )
    if warp is None:
        return
    warps = WARPS[instruction.form.operation.scope]
    if warps == 1 or view == "memory":
        raise InvalidOperand(f"warp applies to registers of a warpgroup; {instruction} has none in the {view} view")
    check_index("warp", warp, warps)
    if request.cut.rows is not None:
        raise InvalidOperand("expected warp or rows, got both; a warp holds 16 rows of the matrix")


def _check_choice(name: str, choice: Choice, choices: tuple[Choice, ...], of: str = "a figure") -> None:
    if not (isinstance(choice, str) and choice in choices):
        raise InvalidOperand(f"the {name} of {of} must be one of {', '.join(map(str, choices))}; got {quote(choice)}")


def _title(instruction: Instruction, operand: AnyOperand | None, view: View) -> str:
    subject = {"whole": "A, B and D", "warp": "Registers"}.get(view, "All operands")
    if operand is not None:
        name = operand.role.upper() if len(operand.role) == 1 else operand.role
        where = {"warp": f" in the registers of the {instruction.form.operation.scope}", "memory": " in shared memory"}
        subject = f"Operand {name}" + where.get(view, "")
    return f"{subject}, {instruction.shape}"


@dataclass(frozen=True)
class FigureRow:
    """A row of the table of figures; the head of the table explains the fields."""

    key: str
    caption: str
    section: str
    instruction: str
    operand: str = ""
    view: str = ""
    rows: Range | None = None
    cols: Range | None = None
    parts: Range | None = None
    selector: int = 0

    @property
    def title(self) -> str:
        """The caption, preceded by the figure number if there is one."""
        return f"Figure {self.key}: {self.caption}" if self.key.isdigit() else self.caption

    @property
    def command(self) -> str:
        """The command that draws the figure from its instruction instead of its number."""
        words = ["warpfrag draw", self.instruction, self.operand]
        for name in ("view", "rows", "cols", "parts", "selector"):
            choice = getattr(self, name)
            if choice:
                words.append(f"--{name} {'{}-{}'.format(*choice) if isinstance(choice, tuple) else choice}")
        return " ".join(word for word in words if word)


@cache
def figure_rows() -> dict[str, FigureRow]:
    """Return every row by its key: a figure number in the ISA, or a name that warpfrag chose."""
    rows = list(_read())
    by_key = {row.key: row for row in rows}
    if len(by_key) != len(rows):
        raise ValueError("table figures: two rows with the same key")
    return by_key


def _read() -> Iterator[FigureRow]:
    for section in read_table("figures")["section"]:
        for row in section["figures"]:
            ranges = {name: tuple(row[name]) for name in ("rows", "cols", "parts") if name in row}
            yield FigureRow(
                **{"instruction": section.get("instruction", ""), **row, **ranges, "key": str(row["key"])},
                section=section["title"],
            )


def figure_row(key: int | str) -> FigureRow:
    """Return the row of a figure; for an unknown key, raise an error that lists similar keys."""
    rows = figure_rows()
    wanted = str(key)
    if wanted in rows:
        return rows[wanted]
    near = difflib.get_close_matches(wanted, rows, n=3, cutoff=0.4)
    hint = f"; near: {', '.join(near)}" if near else ""
    raise InvalidOperand(f"unknown figure {quote(wanted)}{hint}; figures are {', '.join(rows)}")
