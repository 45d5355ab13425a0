"""Segments: the runs of steps that are compiled to one function each, and the LLVM module with all of them.

A function runs its steps for one warp after the other, with the registers of a warp in vector registers. Warps must see
each other's stores as in the interpreter, step by step: so a store starts a segment, and no load follows it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from llvmlite import ir

from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.ptx.compiler.liveness import indices_of, live_after
from warpfrag.ptx.compiler.memory_access import Helper
from warpfrag.ptx.compiler.warp_code import COMPILED, RegisterLayout, UnsupportedStep, WarpCode
from warpfrag.ptx.program.actions import Action, AsyncCopy, MatrixOp, MemoryLoad, MemoryStore
from warpfrag.ptx.program.program import registers_of

if TYPE_CHECKING:
    from warpfrag.ptx.program.program import Program


@frozen_dataclass
class Segment:
    """Steps that run as one function; `stores` counts them, `is_whole` asks for all lanes of each warp."""

    start: int
    end: int
    name: str
    stores: int = 0
    is_whole: bool = False


class GeneratedModule(NamedTuple):
    """Segments, the text of a module with a function for each, and the helpers that move their data."""

    segments: list[Segment]
    text: str
    helpers: set[Helper]


def cut(program: Program, layout: RegisterLayout, module: ir.Module) -> list[tuple[Segment, WarpCode]]:
    """Cut a program into segments: as long as steps can be compiled and stay in one block. Each has its code."""
    pieces: list[tuple[Segment, WarpCode]] = []
    ends, steps = program.ends, program.steps
    start, stored, code = 0, False, None

    def close(end: int, *, is_whole: bool = False) -> None:
        nonlocal code
        if code is not None:
            pieces.append((Segment(start, end, code.function.name, int(stored), is_whole), code))
        code = None

    for at, step in enumerate(steps):
        action: Action = step.action
        stores = isinstance(action, MemoryStore | AsyncCopy) or is_matrix_store(action)
        breaks = action.is_collective or stores or (isinstance(action, MemoryLoad) and stored)
        if code is not None and (breaks or ends[at] != ends[start]):
            close(at)
        if code is None:
            start, stored = at, False
        if not isinstance(action, COMPILED) or action.ends_block:
            close(at)
            continue
        code = code or WarpCode(layout, module)
        try:
            code.step(at, step)
        except UnsupportedStep:  # it has left some of its code
            del module.globals[code.function.name]
            code = WarpCode(layout, module) if start < at else None
            for earlier in range(start, at):
                code.step(earlier, steps[earlier])
            close(at)
            continue
        stored |= stores
        if action.is_collective:
            close(at + 1, is_whole=True)
    close(len(steps))
    return pieces


def is_matrix_store(action: Action) -> bool:
    """Whether an action is stmatrix."""
    return isinstance(action, MatrixOp) and action.operation == "stmatrix"


def _is_plain_product(action: Action) -> bool:
    """Whether an action is an mma of one tile per warp that reads everything before it writes."""
    if not isinstance(action, MatrixOp) or action.operation != "mma" or action.parts:
        return False
    return action.form.shape[:2] == (16, 8)


def products(program: Program) -> dict[int, tuple[int, ...]]:
    """Runs of mma: first step to the ends of its parts. The mma of a part are independent of each other.

    So a part is one product of more warps, and parts may be one product with a longer K.
    """
    runs: dict[int, tuple[int, ...]] = {}
    start: int | None = None
    written: set[int] = set()
    for at, step in enumerate(program.steps):
        action = step.action
        if not _is_plain_product(action) or len(step.sources) != 3 or step.guard is not None:
            start = None
            continue
        used = {item.index for operand in step.sources for item in registers_of(operand)}
        mine = {item.index for operand in step.results for item in registers_of(operand)}
        same = (
            start is not None and step.action == program.steps[start].action and program.ends[at] == program.ends[start]
        )
        if start is None or not same:
            start, written = at, set()
            runs[start] = (at + 1,)
        elif used & written or mine & written:
            written = set()
            runs[start] = (*runs[start], at + 1)
        else:
            runs[start] = (*runs[start][:-1], at + 1)
        written |= mine
    return runs


def chains(program: Program, runs: dict[int, tuple[int, ...]]) -> set[int]:
    """The runs of several parts that may be one product: earlier results are added to, and not read afterwards."""
    lasts = {ends[-1] - 1: (start, ends) for start, ends in runs.items() if len(ends) > 1}
    joinable: set[int] = set()
    for at, live in live_after(program) if lasts else ():
        if at in lasts:
            start, ends = lasts[at]
            last = indices_of(operand for step in program.steps[ends[-2] : ends[-1]] for operand in step.results)
            before = indices_of(operand for step in program.steps[start : ends[-2]] for operand in step.results)
            multiplied = indices_of(item for step in program.steps[ends[0] : ends[-1]] for item in step.sources[:2])
            if not multiplied & before and not any(register in live for register in before - last):
                joinable.add(start)
    return joinable


def generate(program: Program, layout: RegisterLayout) -> GeneratedModule:
    """The LLVM module of a program's segments."""
    module, helpers = ir.Module("segments"), set[Helper]()
    pieces = cut(program, layout, module)
    by_last = {segment.end - 1: code for segment, code in pieces}
    for last, live in live_after(program):
        if last in by_last:
            by_last[last].finish(live)
            helpers |= by_last[last].helpers
    return GeneratedModule([segment for segment, _ in pieces], str(module), helpers)
