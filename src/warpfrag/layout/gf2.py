"""Elimination over bits: which masks can be made by xor from which others.

A mask stands for a set of output bits that one input moves. Masks are added one by one; each is first reduced by those
that are there. What is left over is a new row; if nothing is left, the inputs that were used cancel each other.

    >>> rows = Echelon()
    >>> rows.add(0b011, inputs=0b001), rows.add(0b110, inputs=0b010)  # two inputs, both move something new
    (0, 0)
    >>> bin(rows.add(0b101, inputs=0b100))  # the third moves what both together move
    '0b111'
    >>> rows.rest(0b100), bin(rows.inputs(0b101))  # bit 2 alone cannot be made; bits 0 and 2 can
    (1, '0b11')
"""

from __future__ import annotations


class Echelon:
    """Masks reduced against each other, each with the inputs that make it up."""

    def __init__(self) -> None:
        """Without masks: only 0 can be made."""
        self._rows: dict[int, tuple[int, int]] = {}  # by its leading bit: a mask, and the inputs that make it

    def add(self, mask: int, inputs: int = 0) -> int:
        """Take in a mask that some inputs make; where the rows make it already, the inputs that cancel each other."""
        rest, used = self._reduce(mask, inputs)
        if not rest:
            return used
        self._rows[rest.bit_length()] = (rest, used)
        return 0

    @property
    def rank(self) -> int:
        """How many masks were new."""
        return len(self._rows)

    def rest(self, mask: int) -> int:
        """What is left of a mask where the rows have done all they can: 0 if they make it."""
        return self._reduce(mask, 0)[0]

    def inputs(self, mask: int) -> int:
        """The inputs that make a mask."""
        return self._reduce(mask, 0)[1]

    def _reduce(self, mask: int, inputs: int) -> tuple[int, int]:
        rest = 0  # the bits that lead no row
        while mask:
            lead = mask.bit_length()
            if lead in self._rows:
                row, used = self._rows[lead]
                mask, inputs = mask ^ row, inputs ^ used
            else:
                rest, mask = rest | 1 << (lead - 1), mask ^ 1 << (lead - 1)
        return rest, inputs
