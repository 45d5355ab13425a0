"""The instructions that tests run over: all, but only some widths of wgmma, because the width is only a size."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

import warpfrag as wf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

WIDTHS = (8, 24, 64, 256)  # one tile, no power of two, a usual one, the largest


@cache
def found() -> tuple[wf.Instruction, ...]:
    """Return every instruction, found once."""
    return tuple(wf.find())


def every() -> list[wf.Instruction]:
    """Return every instruction, but only some widths of warpgroup instructions."""
    return [one for one in found() if not one.form.is_warpgroup or one.shape.n in WIDTHS]


def everything() -> list[wf.Instruction]:
    """Return every instruction."""
    return list(found())


def listed() -> list[wf.Instruction]:
    """Return the instructions of a list with one line for all widths of a warpgroup instruction: the usual width.

    Loads and stores of tensor memory have one line for all repeats, and a spelling of tcgen05.mma one for all products.
    """
    moves = [one for op in ("tcgen05.ld", "tcgen05.st") for one in wf.find(op=op) if one.form.spelling.repeat == 4]
    products: dict[str, wf.Instruction] = {}
    for one in wf.find(op="tcgen05"):
        if one.form.is_typed:
            kept = products.setdefault(one.form.spelling.name, one)
            products[one.form.spelling.name] = min(kept, one, key=_unusual)
    widest = [one for one in found() if one.form.is_warpgroup and one.shape.n == 64]
    return [*of_a_warp(), *widest, *moves, *products.values()]


def _unusual(one: wf.Instruction) -> tuple[bool, bool, bool]:
    """Return a sort key: m 128, n 64 and f32 sums come first."""
    return one.shape.m != 128, one.shape.n != 64, one.form.d != "f32"


def of_a_warp() -> list[wf.Instruction]:
    """Every instruction of one warp."""
    return [one for one in found() if not one.form.is_warpgroup]


def each_of(things: Iterable[Any]) -> Callable[[Callable[[Any], None]], Callable[[str], None]]:
    """Run a test on each of many instructions or objects named like one: one test per operation and shape.

    A test for each would take longer to collect and to report than to run. A failure names the thing.
    """
    groups: dict[str, list[Any]] = {}
    for thing in things:
        name = thing if isinstance(thing, str) else thing.name
        shape = re.search(r"m\d+n\d+(k\d+)?", name)
        groups.setdefault(f"{name.partition('.sync')[0]} {shape[0] if shape else ''}".strip(), []).append(thing)

    def decorate(test: Callable[[Any], None]) -> Callable[[str], None]:
        @pytest.mark.parametrize("group", groups)
        def run(group: str) -> None:
            for thing in groups[group]:
                try:
                    test(thing)
                except BaseException as error:
                    error.add_note(f"in {thing if isinstance(thing, str) else thing.name}")
                    raise

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate
