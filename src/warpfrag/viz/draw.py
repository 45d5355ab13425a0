"""Figures: see a fragment, in a terminal, a notebook, a paper or a browser.

    >>> from warpfrag.viz.draw import draw
    >>> picture = draw("mma.m8n8k4.f64.f64.f64.f64", "c")
    >>> print(picture.to_text(width=80))
    Operand C, m8n8k4
    mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64
    C: 8 x 8 of f64, 2 registers .f64 per lane: c0..c1.
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

How it is built: `views` chooses grids of `cells`, which `by_element` and `by_lane` make from layouts, `motion_view`
from relayouts, `access_view` from loads and stores, `staged_view` from descriptors and `box_view` from tensor maps;
`warpgroup_lanes` flattens the warps of a warpgroup; `tensor_view` and `tensor_map` show tensor memory. `panel` writes a
grid as SVG with the elements of `render.svg`, `composition` puts panels, heading and legend together, `terminal` writes
ASCII. `figures` has the figures of the ISA by number, `notebook` the cards of a notebook.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, cast, get_args

from warpfrag.errors import InvalidOperand, check_flag, check_index, quote
from warpfrag.plans.access_plan import AccessPlan
from warpfrag.plans.relayout import Relayout
from warpfrag.smem.tensor_map import TensorMapFields
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.shared_operand import as_descriptor
from warpfrag.viz.access_view import access_drawing
from warpfrag.viz.box_view import box_drawing
from warpfrag.viz.cells import Cut
from warpfrag.viz.drawing import Drawing
from warpfrag.viz.figures import figure_row
from warpfrag.viz.palette import Theme
from warpfrag.viz.relayout_view import relayout_drawing
from warpfrag.viz.tensor_view import TensorRequest, is_in_tensor_memory, tensor_picture
from warpfrag.viz.views import VIEWS, FigureRequest, default_view, notes, scenes
from warpfrag.viz.warpgroup_lanes import WARPS, flatten_warps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.ptx.launch.tensor_map import TensorMap
    from warpfrag.smem.descriptor import Descriptor
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.viz.cells import Range
    from warpfrag.viz.views import AnyOperand, View

__all__ = ["Drawing", "draw", "draw_figure"]

T = TypeVar("T")


def draw(
    instruction: str | Instruction | Relayout | AccessPlan | TensorMap,
    operand: str | None = None,
    view: View | None = None,
    *,
    target: str | None = None,
    selector: int = 0,
    byte_id: int = 0,
    thread_id: int = 0,
    rows: Range | None = None,
    cols: Range | None = None,
    parts: Range | None = None,
    warp: int | None = None,
    descriptor: Descriptor | int | Sequence[Descriptor | int] | None = None,
    trans: bool = False,
    through: str | Instruction | None = None,
    column: int = 0,
    base_lane: int = 0,
    block: int | None = None,
    theme: Theme = "auto",
    title: str = "",
) -> Drawing:
    """A figure of an instruction, or of one of its operands; of a relayout, a plan to load or store, a tensor map.

    Views: "whole" (A left, B above, D in the corner), "matrix" (which lane holds each element), "warp" (what each
    register holds), "logical" (a sparse A as the matrix it stands for), "memory" (A or B of wgmma in shared memory).
    Left out, the most telling one is taken.

    `selector`, `byte_id` and `thread_id` choose what is read of metadata and scale factors. `rows`, `cols` and `parts`
    (products of m8n8k4, matrices of ldmatrix) cut out a part, as (first, last); of metadata, `cols` are columns of A.
    Of a matrix of a warpgroup the first 32 columns are shown, unless `cols` says others, and all warps, unless `warp`
    says which. In shared memory an operand lies as a `descriptor` says, or several, one for each step along k; `trans`:
    MN-major. Without one, a tile without gaps is shown. There `rows` are lines of 128 bytes.
    Of tcgen05, "memory" is a map of tensor memory by lane and column, in regions, and "matrix" has single elements.
    With `through`, a tcgen05.ld, the registers after it are shown, of `warp` 0 unless said; `column` and `base_lane`
    are of its address. `block` chooses one of a pair.
    `theme` is "light" or "dark" where the reader's screen shall not decide. wmma has the fragments of `target`.

    Of a relayout, the registers of the source and those of the target are shown, coloured by the lane that each element
    comes from. Of a plan to load or store, shared memory is shown, coloured by the lanes whose addresses fall there.
    Of a tensor map (`ptx.TensorMap`), a box and the shared memory that a copy leaves it in; `rows` are lines of it.
    """
    if not isinstance(title, str):
        msg = f"the title of a figure is a text, got {quote(title)}"
        raise InvalidOperand(msg)
    fields = getattr(instruction, "fields", None)
    if isinstance(instruction, Relayout | AccessPlan) or isinstance(fields, TensorMapFields):
        options = (operand, view, target, cols, parts, warp, descriptor, trans or None, selector or None)
        tensor = (through, block, column or None, base_lane or None, byte_id or None, thread_id or None)
        has_more = any(option is not None for option in (*options, *tensor))
        picture = _whole_picture(instruction, fields, rows, has_more=has_more)
        return replace(picture, title=title or picture.title, theme=_checked_choice("theme", theme, get_args(Theme)))
    if isinstance(instruction, Operand):
        msg = f"a figure of an operand takes its instruction and its name: draw(instruction, {instruction.role!r})"
        raise InvalidOperand(msg)
    resolved = get(cast("str | Instruction", instruction), target=target)
    chosen = _operand(resolved, operand)
    descriptors = _descriptors(descriptor, getattr(chosen, "descriptor_kind", "wgmma"))
    if is_in_tensor_memory(resolved, chosen) and not descriptors and not check_flag("trans", trans):
        asked = TensorRequest(Cut(rows, cols, parts), warp, block, through, column, base_lane)
        checked = None if view is None else _checked_choice("view", view, VIEWS)
        tensor_figure = tensor_picture(resolved, chosen, checked, asked)
        checked_theme = _checked_choice("theme", theme, get_args(Theme))
        return Drawing(
            title or tensor_figure.title, resolved.name, tensor_figure.notes, tensor_figure.scenes, checked_theme
        )
    if through is not None or block is not None or column or base_lane:
        msg = f"through, column, base_lane and block are for operands of tcgen05 in tensor memory, not for {resolved}"
        raise InvalidOperand(msg)
    usual = "memory" if descriptors else default_view(resolved, chosen)
    chosen_view = _checked_choice("view", view, VIEWS) if view is not None else usual
    _check_shared(resolved, chosen_view, warp, descriptors, rows, trans=trans)
    request = FigureRequest(selector, byte_id, thread_id, Cut(rows, cols, parts), warp, descriptors, trans)
    pictures = scenes(resolved, chosen, chosen_view, request)  # first, because it refuses what cannot be shown
    return Drawing(
        title=title or _title(resolved, chosen, chosen_view),
        instruction=resolved.name,
        notes=notes(resolved, chosen, chosen_view, request),
        scenes=pictures,
        theme=_checked_choice("theme", theme, get_args(Theme)),
    )


def _whole_picture(subject: object, fields: object, rows: Range | None, *, has_more: bool) -> Drawing:
    """The figure of what has one figure alone: a tensor map, a relayout, a plan to load or store."""
    if isinstance(fields, TensorMapFields):
        if has_more:
            msg = "a figure of a tensor map takes rows, a theme and a title, nothing else"
            raise InvalidOperand(msg)
        return box_drawing(repr(subject), fields, Cut(rows))
    if has_more or rows is not None or not isinstance(subject, Relayout | AccessPlan):
        msg = "a figure of a relayout, or of a plan to load or store, takes a theme and a title, nothing else"
        raise InvalidOperand(msg)
    return relayout_drawing(subject) if isinstance(subject, Relayout) else access_drawing(subject)


def draw_figure(key: int | str, *, theme: Theme = "auto") -> Drawing:
    """A figure of the PTX ISA by its number, or one of the gallery's own by its name."""
    row = figure_row(key)
    return draw(row.instruction, **row.options, theme=theme, title=row.title)


def _operand(instruction: Instruction, role: str | None) -> AnyOperand | None:
    """The operand that a role names, in any case; without a role the only one, or none of many."""
    if role is None:
        only = tuple(instruction.operands.values())
        return only[0] if len(only) == 1 else None
    if not instruction.operands:
        msg = f"{instruction} has no operands to draw"
        raise InvalidOperand(msg)
    wanted = role.lower() if isinstance(role, str) else role
    name = _checked_choice("operand", wanted, tuple(instruction.operands), what=instruction.name)
    chosen: AnyOperand = instruction.operands[name]
    return chosen if instruction.form.operation.scope == "block" else flatten_warps(chosen)


def _descriptors(descriptor: Descriptor | int | Sequence[Descriptor | int] | None, kind: str) -> tuple[Descriptor, ...]:
    """The descriptors that are given, as objects of the operand's kind."""
    if descriptor is None:
        return ()
    several = descriptor if isinstance(descriptor, list | tuple) else [descriptor]
    return tuple(as_descriptor(each, kind) for each in several)


def _check_shared(
    instruction: Instruction,
    view: View,
    warp: int | None,
    descriptors: tuple[Descriptor, ...],
    rows: Range | None,
    *,
    trans: bool,
) -> None:
    """Refuse what would change nothing: warps belong to registers of a warpgroup, descriptors to shared memory."""
    if check_flag("trans", trans) and view != "memory":
        msg = "trans turns an operand in shared memory: it is for the memory view"
        raise InvalidOperand(msg)
    if descriptors and view != "memory":
        msg = f"a descriptor says how an operand lies in shared memory: it is for the memory view, not for {view}"
        raise InvalidOperand(msg)
    if warp is None:
        return
    warps = WARPS[instruction.form.operation.scope]
    if warps == 1 or view == "memory":
        msg = f"warp chooses among the registers of a warpgroup; {instruction} has none in the {view} view"
        raise InvalidOperand(msg)
    check_index("warp", warp, warps)
    if rows is not None:
        msg = "a warp is 16 rows of the matrix: give warp or rows, not both"
        raise InvalidOperand(msg)


def _checked_choice(name: str, choice: T, choices: tuple[T, ...], what: str = "a figure") -> T:
    """A choice, refused where it is none of those there are."""
    if isinstance(choice, str) and choice in choices:
        return choice
    msg = f"the {name} of {what} is one of {', '.join(map(str, choices))}; got {quote(choice)}"
    raise InvalidOperand(msg)


def _title(instruction: Instruction, operand: AnyOperand | None, view: View) -> str:
    shape = str(instruction.shape)
    what = {"whole": "A, B and D", "warp": "Registers"}.get(view, "All operands")
    if operand is not None:
        name = operand.role.upper() if len(operand.role) == 1 else operand.role
        where = {"warp": f" in the registers of the {instruction.form.operation.scope}", "memory": " in shared memory"}
        what = f"Operand {name}" + where.get(view, "")
    return f"{what}, {shape}"
