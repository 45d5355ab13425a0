"""The instructions that tests run over: all of them, but of wgmma's widths only some, for a width is only a size."""

from __future__ import annotations

import warpfrag as wf

WIDTHS = (8, 24, 64, 256)  # one tile, no power of two, a usual one, the largest


def every() -> list[wf.Instruction]:
    """Every instruction, of a warpgroup's only those of some widths."""
    return [one for one in wf.find() if not one.form.is_warpgroup or one.shape.n in WIDTHS]


def everything() -> list[wf.Instruction]:
    """Every instruction there is."""
    return list(wf.find())


def listed() -> list[wf.Instruction]:
    """What a list shows that has one line for all widths of a warpgroup's instruction: the usual width."""
    return [*of_a_warp(), *(one for one in wf.find() if one.form.is_warpgroup and one.shape.n == 64)]


def of_a_warp() -> list[wf.Instruction]:
    """Every instruction of one warp."""
    return [one for one in wf.find() if not one.form.is_warpgroup]
