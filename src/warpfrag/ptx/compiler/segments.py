"""Runs of steps as native functions: which steps go together, and their text.

A function runs its steps for one warp after the other, with the registers of a warp in its hands. So that warps see
each other's stores as in the readable engine, step by step, a store starts a run and no load follows it there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from warpfrag.ptx.compiler.liveness import live_after
from warpfrag.ptx.compiler.memory_access import DECLARED, Helper, declaration, helper_texts
from warpfrag.ptx.compiler.warp_code import Body, File, Unsupported
from warpfrag.ptx.program.actions import Action, AsyncCopy, Load, Matrix, Store
from warpfrag.ptx.program.program import Step, registers_of

if TYPE_CHECKING:
    from warpfrag.ptx.program.program import Program


@dataclass(frozen=True)
class Segment:
    """Steps that run as one function."""

    start: int
    end: int
    name: str
    stores: int = 0
    is_whole: bool = False  # all lanes of each warp must be there


def is_supported(file: File, at: int, step: Step) -> bool:
    """Whether a step can be compiled."""
    if step.action.ends_block:
        return False
    try:
        Body(file).step(at, step)
    except Unsupported:
        return False
    return True


def cut(program: Program, file: File) -> list[Segment]:
    """The segments of a program."""
    found: list[Segment] = []
    ends, steps = program.ends, program.steps
    first: int | None = None
    stored = False
    for at, step in enumerate(steps):
        action: Action = step.action
        fits = is_supported(file, at, step)
        alone = fits and action.is_collective
        stores = isinstance(action, Store | AsyncCopy)
        breaks = stores or (isinstance(action, Load) and stored)
        if first is not None and (not fits or alone or breaks or ends[at] != ends[first]):
            found.append(Segment(first, at, f"segment{first}", int(stored)))
            first = None
        if alone:
            found.append(Segment(at, at + 1, f"segment{at}", is_whole=True))
            continue
        if fits and first is None:
            first, stored = at, False
        stored = stored or (fits and stores)
    if first is not None:
        found.append(Segment(first, len(steps), f"segment{first}", int(stored)))
    return found


def products(program: Program) -> dict[int, tuple[int, ...]]:
    """Runs of mma: start to the ends of its parts. What a part writes its own mma do not read, but the next part's may.

    A part is one product of more warps, and parts may be one product with a longer K.
    """
    found: dict[int, tuple[int, ...]] = {}
    start: int | None = None
    written: set[int] = set()
    for at, step in enumerate(program.steps):
        plain = isinstance(step.action, Matrix) and step.action.operation == "mma" and len(step.sources) == 3
        plain = plain and step.guard is None and ".m16n8k" in step.name  # others have several tiles in a warp
        if not plain:
            start = None
            continue
        used = {one.index for operand in step.sources for one in registers_of(operand)}
        mine = {one.index for operand in step.results for one in registers_of(operand)}
        same = (
            start is not None and step.action == program.steps[start].action and program.ends[at] == program.ends[start]
        )
        if start is None or not same:
            start, written = at, set()
            found[start] = (at + 1,)
        elif used & written or mine & written:
            written = set()
            found[start] = (*found[start], at + 1)
        else:
            found[start] = (*found[start][:-1], at + 1)
        written |= mine
    return found


def module_texts(program: Program, file: File, segments: list[Segment]) -> tuple[str, list[str]]:
    """All functions of a program, and those that move its data."""
    used: set[str] = set()
    helpers: set[Helper] = set()
    functions = []
    live = live_after(program)
    for segment in segments:
        body = Body(file)
        for at in range(segment.start, segment.end):
            body.step(at, program.steps[at])
        body.finish(live[segment.end - 1])
        used |= body.text.used
        helpers |= body.helpers
        functions.append(FUNCTION.format(name=segment.name, body="\n".join(body.text.lines)))
    parts = [*sorted(used), DECLARED, *map(declaration, sorted(helpers)), *functions]
    return "\n".join([*parts, '!0 = !{!"branch_weights", i32 1, i32 1000}', ""]), helper_texts(helpers)


FUNCTION = """
define void @{name}(ptr noalias %context, ptr noalias %rows, ptr noalias %masks, i64 %count) {{
entry:
  %addresses = alloca <32 x i64>, align 256
  %items = alloca [8 x <32 x i64>], align 256
  %taken = alloca <32 x i32>, align 256
  %registers = load ptr, ptr %context
  %stride_at = getelementptr i64, ptr %context, i64 1
  %stride = load i64, ptr %stride_at
  br label %loop
loop:
  %index = phi i64 [0, %entry], [%index_after, %next]
  %row_at = getelementptr i64, ptr %rows, i64 %index
  %row = load i64, ptr %row_at
  %mask_at = getelementptr i32, ptr %masks, i64 %index
  %mask = load i32, ptr %mask_at
  %warp_offset = mul i64 %row, %stride
  %warp = getelementptr i8, ptr %registers, i64 %warp_offset
{body}
  br label %next
next:
  %index_after = add i64 %index, 1
  %more = icmp ult i64 %index_after, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}}"""
