"""Run the operations of a relayout plan on symbols, which shows where every element comes from.

The planner works on bits and digits; this module does not. It fills each source register with symbols that name their
position and runs the operations. In a correct plan, the symbol that arrives at each target position comes from a source
position with the same matrix element, in every warp. `relayout` returns only plans that pass this check.
"""

from functools import lru_cache
from math import gcd, prod
from typing import TypeAlias

from warpfrag.isa.operands import OperandSpec
from warpfrag.layout.linear_layout import Layout
from warpfrag.plans import relayout_operations as ops
from warpfrag.plans.shuffle_search import Select, Shuffle

Word: TypeAlias = tuple["int | None", ...]
"""The pieces of a register, low bits first. Each is the number position * parts + part, or its complement (~) after a
conversion."""

MAX_PLANS = 64  # number of plans that are kept
HALF = 16  # the size in bits of the elements that movmatrix transposes


class BrokenPlan(ValueError):
    """Raised if an element is split, lost, or not converted exactly once."""


def is_right(
    operations: tuple[ops.RelayoutOperation, ...], source: OperandSpec, target: OperandSpec, end: Layout
) -> bool:
    """Return True if the operations move every element from the source registers to its position in `end`."""
    try:
        moved = origins(operations, source, target)
    except (BrokenPlan, IndexError):
        return False
    per_warp = len(moved)
    held, wanted = source.layout.elements, end.elements
    own = len(held) // prod(source.threads[:-1])
    return all(
        [held[warp * own + origin] for origin in moved] == wanted[warp * per_warp : (warp + 1) * per_warp]
        for warp in range(prod(source.threads[:-1]))
    )


@lru_cache(MAX_PLANS)
def origins(operations: tuple[ops.RelayoutOperation, ...], source: OperandSpec, target: OperandSpec) -> list[int]:
    """Return the source position of the element that the operations move to each target position of a warp.

    Raises BrokenPlan, or IndexError, if they do not move complete elements.
    """
    sizes = [op.bits for op in operations if isinstance(op, ops.Permute | ops.LanePermute)]
    sizes += [HALF for op in operations if isinstance(op, ops.Transpose)]
    runner = _Runner(source, target, gcd(ops.WORD_BITS, source.container, target.container, *sizes))
    state = runner.start()
    for op in operations:
        state = runner.run(op, state)
    return runner.origins(state)


class _Runner:
    """The registers of one warp as symbols: state[lane][register] contains the pieces of a register."""

    def __init__(self, source: OperandSpec, target: OperandSpec, piece_bits: int) -> None:
        self.source, self.target, self.piece_bits = source, target, piece_bits
        self.per_word = ops.WORD_BITS // piece_bits

    def start(self) -> list[list[Word]]:
        """Return registers whose pieces name their own positions."""
        count = self.source.layout.regs * self.source.register_bits // ops.WORD_BITS
        firsts = range(0, self.source.layout.lanes * count * self.per_word, self.per_word)
        words: list[Word] = [tuple(range(first, first + self.per_word)) for first in firsts]
        return [words[at : at + count] for at in range(0, len(words), count)]

    def origins(self, state: list[list[Word]]) -> list[int]:
        """Return the source position of the element at each target position of a warp."""
        count = self.target.layout.regs * self.target.register_bits // ops.WORD_BITS
        if [len(words) for words in state] != [count] * self.target.layout.lanes:
            raise BrokenPlan
        pieces = [piece for words in state for word in words for piece in word]
        parts, converted = self.target.container // self.piece_bits, ops.converts(self.source, self.target)
        ends = range(parts, len(pieces) + 1, parts)
        return [self._whole(pieces[end - parts : end], parts, converted=converted) for end in ends]

    @staticmethod
    def _whole(pieces: list[int | None] | Word, parts: int, *, converted: bool) -> int:
        """Return the position of the element that these pieces form; raise BrokenPlan if they form none."""
        numbers = [~piece if converted and piece is not None else piece for piece in pieces]
        first = numbers[0]
        if first is None or first < 0 or first % parts or numbers != [*range(first, first + parts)]:
            raise BrokenPlan
        return first // parts

    def run(self, op: ops.RelayoutOperation, state: list[list[Word]]) -> list[list[Word]]:
        """Return the registers after an operation."""
        if isinstance(op, Shuffle):
            reads = [range(len(state)) if flip is None else op.lanes(flip) for flip in op.flips]
            return [[state[read[lane]][word] for word, read in enumerate(reads)] for lane in range(len(state))]
        if isinstance(op, Select):
            moved = [[words[word] for word in op.words] for words in state]
            return moved if not op.mask else _chosen(op.mask, moved, state)
        if isinstance(op, ops.Transpose):
            return self._transposed(op, state)
        if isinstance(op, ops.Convert):
            return [[self._converted(op, words, cells) for cells in op.words] for words in state]
        if isinstance(op, ops.Permute):
            return self._joined(op.words, op.bits, state)
        if isinstance(op, ops.LanePermute):
            return _chosen(op.mask, self._joined(op.others, op.bits, state), self._joined(op.words, op.bits, state))
        size = min(self.source.container, self.target.container) // self.piece_bits
        places = [(at // size ^ op.flip) * size + at % size for at in range(self.per_word)]
        swapped = [[tuple(word[place] for place in places) for word in words] for words in state]
        return _chosen(op.mask, swapped, state)

    def _joined(self, assembly: ops.Assembly, bits: int, state: list[list[Word]]) -> list[list[Word]]:
        size = bits // self.piece_bits
        sources = [
            [(cell.word, cell.slot * size + part) if cell else None for cell in cells for part in range(size)]
            for cells in assembly
        ]
        return [[tuple(at and words[at[0]][at[1]] for at in cells) for cells in sources] for words in state]

    def _converted(self, op: ops.Convert, words: list[Word], cells: tuple[tuple[int, int] | None, ...]) -> Word:
        """Return a register of converted elements; each must be complete and in the source format."""
        if (op.source, op.target) != (self.source.format.name, self.target.format.name):
            raise BrokenPlan
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

    def _transposed(self, op: ops.Transpose, state: list[list[Word]]) -> list[list[Word]]:
        """Return the registers after movmatrix: lane 4 i + j holds the elements (i, 2 j) and (i, 2 j + 1)."""
        half = HALF // self.piece_bits

        def element(row: int, col: int, word: int) -> Word:
            return state[row * 4 + col // 2][word][col % 2 * half : (col % 2 + 1) * half]

        return [
            [element(lane % 4 * 2, lane // 4, word) + element(lane % 4 * 2 + 1, lane // 4, word) for word in op.words]
            for lane in range(len(state))
        ]


def _chosen(mask: int, moved: list[list[Word]], state: list[list[Word]]) -> list[list[Word]]:
    """Return `moved` for the lanes that have an odd number of bits in common with the mask, else `state`."""
    pairs = zip(moved, state, strict=True)
    return [pair[not (lane & mask).bit_count() & 1] for lane, pair in enumerate(pairs)]
