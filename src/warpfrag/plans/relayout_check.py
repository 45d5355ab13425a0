"""Prove that a relayout plan is correct: run its operations on symbols and compare every target element.

The planner works on bits and digits; this check does not. It fills each source register with symbols that name their
position and runs the operations. The symbol that arrives at each target position must come from a source position with
the same matrix element, in every warp. `relayout` returns only plans that pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import gcd, prod
from typing import TypeAlias

from warpfrag.isa.operands import OperandSpec
from warpfrag.layout.linear_layout import Layout
from warpfrag.plans.relayout_operations import (
    WORD_BITS,
    Assembly,
    Convert,
    LanePermute,
    Permute,
    RelayoutOperation,
    Transpose,
)
from warpfrag.plans.shuffle_search import Select, Shuffle

Word: TypeAlias = tuple["int | None", ...]
"""The pieces of a register, low bits first. A piece is position * parts + part; a conversion complements it."""

HALF = 16  # the bits of the elements that movmatrix transposes


def is_right(operations: Iterable[RelayoutOperation], source: OperandSpec, target: OperandSpec, end: Layout) -> bool:
    """Return True if the operations move every element from the source registers to its position in `end`."""
    operations = tuple(operations)
    sizes = [op.bits for op in operations if isinstance(op, Permute | LanePermute)]
    sizes += [HALF for op in operations if isinstance(op, Transpose)]
    runner = _Runner(source, target, gcd(WORD_BITS, source.container, target.container, *sizes))
    try:
        state = runner.start()
        for op in operations:
            state = runner.run(op, state)
        origins = runner.origins(state)
    except (_Broken, IndexError):
        return False
    per_warp = len(origins)
    held, wanted = source.layout.elements, end.elements
    own = len(held) // prod(source.threads[:-1])
    return all(
        [held[warp * own + origin] for origin in origins] == wanted[warp * per_warp : (warp + 1) * per_warp]
        for warp in range(prod(source.threads[:-1]))
    )


class _Broken(Exception):
    """Raised if an element is split, lost, or not converted exactly once."""


class _Runner:
    """The registers of one warp as symbols: state[lane][register] has the pieces of a register."""

    def __init__(self, source: OperandSpec, target: OperandSpec, piece_bits: int) -> None:
        self.source, self.target, self.piece_bits = source, target, piece_bits
        stored = [(spec.format.name, spec.container, spec.low) for spec in (source, target)]
        self.converts = stored[0] != stored[1]
        self.per_word = WORD_BITS // piece_bits

    def start(self) -> list[list[Word]]:
        """Return registers whose pieces name their own positions."""
        spec, layout = self.source, self.source.layout
        parts, per_register = spec.container // self.piece_bits, spec.register_bits // self.piece_bits
        used, state = layout.slots * parts, []
        for lane in range(layout.lanes):
            pieces: list[int | None] = []
            for reg in range(layout.regs):
                first = (lane * layout.regs + reg) * used
                pieces += [*range(first, first + used), *[None] * (per_register - used)]
            state.append([tuple(pieces[at : at + self.per_word]) for at in range(0, len(pieces), self.per_word)])
        return state

    def origins(self, state: list[list[Word]]) -> list[int]:
        """Return the source position of the element at each target position of a warp."""
        spec, layout = self.target, self.target.layout
        parts, per_register = spec.container // self.piece_bits, spec.register_bits // self.piece_bits
        if len(state) != layout.lanes or {len(words) * self.per_word for words in state} != {
            layout.regs * per_register
        }:
            raise _Broken
        origins = []
        for words in state:
            pieces = [piece for word in words for piece in word]
            for reg in range(layout.regs):
                for slot in range(layout.slots):
                    first = reg * per_register + slot * parts
                    origins.append(self._whole(pieces[first : first + parts], parts, converted=self.converts))
        return origins

    @staticmethod
    def _whole(pieces: list[int | None] | Word, parts: int, *, converted: bool) -> int:
        """Return the position of the element that these pieces form; raise _Broken if they form none."""
        numbers = [~piece if converted and piece is not None else piece for piece in pieces]
        first = numbers[0]
        if first is None or first < 0 or first % parts or numbers != [*range(first, first + parts)]:
            raise _Broken
        return first // parts

    def run(self, op: RelayoutOperation, state: list[list[Word]]) -> list[list[Word]]:
        """Return the registers after an operation."""
        if isinstance(op, Shuffle):
            reads = [range(len(state)) if flip is None else op.lanes(flip) for flip in op.flips]
            return [[state[read[lane]][word] for word, read in enumerate(reads)] for lane in range(len(state))]
        if isinstance(op, Select):
            moved = [[words[word] for word in op.words] for words in state]
            return moved if not op.mask else _chosen(op.mask, moved, state)
        if isinstance(op, Transpose):
            return self._transposed(op, state)
        if isinstance(op, Convert):
            return [[self._converted(op, words, cells) for cells in op.words] for words in state]
        if isinstance(op, Permute):
            return self._joined(op.words, op.bits, state)
        if isinstance(op, LanePermute):
            return _chosen(op.mask, self._joined(op.others, op.bits, state), self._joined(op.words, op.bits, state))
        size = min(self.source.container, self.target.container) // self.piece_bits
        swap: Callable[[Word], Word] = lambda word: tuple(  # noqa: E731
            word[(at // size ^ op.flip) * size + at % size] for at in range(self.per_word)
        )
        return _chosen(op.mask, [[swap(word) for word in words] for words in state], state)

    def _joined(self, assembly: Assembly, bits: int, state: list[list[Word]]) -> list[list[Word]]:
        size = bits // self.piece_bits
        sources = [
            [(cell.word, cell.slot * size + part) if cell else None for cell in cells for part in range(size)]
            for cells in assembly
        ]
        return [[tuple(at and words[at[0]][at[1]] for at in cells) for cells in sources] for words in state]

    def _converted(self, op: Convert, words: list[Word], cells: tuple[tuple[int, int] | None, ...]) -> Word:
        """Return a register of converted elements; each must be complete and in the source format."""
        if (op.source, op.target) != (self.source.format.name, self.target.format.name):
            raise _Broken
        before, after = (spec.container // self.piece_bits for spec in (self.source, self.target))
        pieces: list[int | None] = []
        for cell in cells:
            if cell is None:
                pieces += [None] * after
                continue
            word, slot = cell
            first = self._whole(words[word][slot * before : (slot + 1) * before], before, converted=False) * after
            pieces += [~part for part in range(first, first + after)]
        return tuple(pieces)

    def _transposed(self, op: Transpose, state: list[list[Word]]) -> list[list[Word]]:
        """Return the registers after movmatrix: lane 4 i + j holds the elements (i, 2 j) and (i, 2 j + 1)."""
        half = HALF // self.piece_bits

        def element(row: int, col: int, word: int) -> Word:
            return state[row * 4 + col // 2][word][col % 2 * half : (col % 2 + 1) * half]

        return [
            [element(lane % 4 * 2, lane // 4, word) + element(lane % 4 * 2 + 1, lane // 4, word) for word in op.words]
            for lane in range(len(state))
        ]


def _chosen(mask: int, moved: list[list[Word]], state: list[list[Word]]) -> list[list[Word]]:
    """Return `moved` for the lanes with an odd number of bits in the mask, `state` for the others."""
    pairs = zip(moved, state, strict=True)
    return [pair[not (lane & mask).bit_count() & 1] for lane, pair in enumerate(pairs)]
