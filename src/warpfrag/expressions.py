"""Formulas: a layout as the index arithmetic that a person would write.

Each bit of an index moves to one bit of another. Bits that move together become one term: a shift, a mask and a factor,
each left out where it does nothing. So `lane: c2 c4 r1 r2 r4` reads `row = lane >> 2` and `col = (lane & 3) * 2`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from warpfrag.layout import Layout


class Move(NamedTuple):
    """Bit `source_bit` of the index `source` becomes bit `bit` of the result."""

    source: str
    source_bit: int
    bit: int


def element_formulas(layout: Layout) -> dict[str, str]:
    """Each coordinate from `lane` and PTX's element number `i`, which counts through the registers of a lane."""
    inputs = [("lane", bit, basis) for bit, basis in enumerate(layout.lane)]
    inputs += [("i", bit, basis) for bit, basis in enumerate(layout.slot + layout.reg)]
    widths = {"lane": len(layout.lane), "i": len(layout.slot) + len(layout.reg)}
    return {
        dim: formula(
            [
                Move(name, bit, basis.step.bit_length() - 1)
                for name, bit, basis in inputs
                if basis.step and basis.dim == dim
            ],
            widths,
        )
        for dim in layout.dims
    }


def place_formulas(layout: Layout) -> dict[str, str]:
    """lane, reg and slot of the first holder of an element from its coordinates."""
    widths = {dim: extent.bit_length() - 1 for dim, extent in layout.extents.items()}
    return {
        name: formula(
            [
                Move(basis.dim, basis.step.bit_length() - 1, bit)
                for bit, basis in enumerate(getattr(layout, name))
                if basis.step
            ],
            widths,
        )
        for name in ("lane", "reg", "slot")
    }


def formula(moves: list[Move], widths: dict[str, int]) -> str:
    """The sum of terms, one for each run of bits that move together; highest bits of the result first."""
    runs: list[list[Move]] = []
    for move in sorted(moves, key=lambda move: move.bit):
        last = runs[-1][-1] if runs else None
        if last and last.source == move.source and (last.source_bit + 1, last.bit + 1) == (move.source_bit, move.bit):
            runs[-1].append(move)
        else:
            runs.append([move])
    terms = [_term(run, widths[run[0].source]) for run in reversed(runs)]
    return " + ".join(terms if len(terms) > 1 else [_bare(term) for term in terms]) or "0"


def _term(run: list[Move], width: int) -> str:
    """One run of bits: cut out of its source, and put where it belongs."""
    source, low, place = run[0]
    mask = (1 << len(run)) - 1
    if len(run) == width:
        term = source
    elif low == place:
        return f"({source} & {mask << low})"  # the bits are where they belong already
    elif low + len(run) == width:
        term = f"({source} >> {low})"
    else:
        term = f"({source} & {mask})" if low == 0 else f"({source} >> {low} & {mask})"
    return f"{term} * {1 << place}" if place else term


def _bare(term: str) -> str:
    """A term that stands alone needs no parentheses around it."""
    return term[1:-1] if term.startswith("(") and term.endswith(")") else term
