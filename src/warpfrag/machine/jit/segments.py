"""Segments: instruction sequences that are compiled to one function each, and the LLVM modules that contain them.

A program is compiled in chunks of a few basic blocks, because most of a large program never runs. A function runs its
instructions for one warp at a time and keeps values in vector registers between memory accesses. Warps must see each
other's stores in the interpreter's order, so a store starts a segment, and no load follows the store in that segment.
"""

from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir

from warpfrag.machine.ir.actions import Action, AsyncCopy, MemoryLoad, MemoryStore
from warpfrag.machine.ir.program import Program
from warpfrag.machine.jit.memory_access import Helper
from warpfrag.machine.jit.mma_issue import is_matrix_store
from warpfrag.machine.jit.register_flow import RegisterLayout, live_after
from warpfrag.machine.jit.warp_code import COMPILED, UnsupportedInstruction, WarpCode
from warpfrag.machine.jit.warp_ops import is_masked

MAX_INSTRUCTIONS = 256  # per segment; LLVM's compile time grows faster than linearly with the function length


@dataclass(frozen=True)
class Segment:
    """Instructions compiled to one function; `stores` counts the stores, `is_whole` is true if it needs whole warps."""

    start: int
    end: int
    name: str
    stores: int = 0
    is_whole: bool = False


class GeneratedModule(NamedTuple):
    """Segments, the text of an LLVM module with one function per segment, and the helpers that the functions call."""

    segments: list[Segment]
    text: str
    helpers: set[Helper]


def cut(
    program: Program, layout: RegisterLayout, module: ir.Module, first: int, last: int
) -> list[tuple[Segment, WarpCode]]:
    """Split basic blocks into segments, each as long as possible, and build their code."""
    pieces: list[tuple[Segment, WarpCode]] = []
    ends, instructions = program.ends, program.instructions
    start, stored, code = first, False, None

    def close(end: int, *, is_whole: bool = False) -> None:
        nonlocal code
        if code is not None:
            pieces.append((Segment(start, end, code.function.name, int(stored), is_whole), code))
        code = None

    for at in range(first, last):
        inst = instructions[at]
        action: Action = inst.action
        stores = isinstance(action, MemoryStore | AsyncCopy) or is_matrix_store(action)
        is_whole = action.is_collective and not is_masked(inst)
        breaks = is_whole or stores or (isinstance(action, MemoryLoad) and stored)
        if code is not None and (breaks or ends[at] != ends[start] or at - start == MAX_INSTRUCTIONS):
            close(at)
        if code is None:
            start, stored = at, False
        if not isinstance(action, COMPILED) or action.ends_block:
            close(at)
            continue
        code = code or WarpCode(layout, module)
        try:
            code.inst(at, inst)
        except UnsupportedInstruction:  # part of the failed instruction's code may have been emitted
            del module.globals[code.function.name]
            code = None
            if start < at:
                code = WarpCode(layout, module)
                for earlier in range(start, at):
                    code.inst(earlier, instructions[earlier])
            close(at)
            continue
        stored |= stores
        if is_whole:
            close(at + 1, is_whole=True)
    close(last)
    return pieces


def generate(program: Program, layout: RegisterLayout, first: int, last: int) -> GeneratedModule:
    """Generate the LLVM module for the blocks from instruction `first` to `last`."""
    module, helpers = ir.Module("segments"), set[Helper]()
    pieces = cut(program, layout, module, first, last)
    by_last = {segment.end - 1: code for segment, code in pieces}
    for at, live in live_after(program, first, last):
        if at in by_last:
            by_last[at].finish(live)
            helpers |= by_last[at].helpers
    return GeneratedModule([segment for segment, _ in pieces], str(module), helpers)
