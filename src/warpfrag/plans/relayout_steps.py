"""The steps of a relayout: what each does to the registers of a lane, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.layout.index_expressions import linear
from warpfrag.plans.conversions import conversion
from warpfrag.plans.shuffle_search import Select, Shuffle, Swap

if TYPE_CHECKING:
    from collections.abc import Iterable

WORD_BITS = 32
BYTE = 8  # bits


class RegisterSlot(NamedTuple):
    """An element of a lane: its word, and which of the elements of the word it is, low bits first."""

    word: int
    slot: int


Assembly: TypeAlias = tuple[tuple[RegisterSlot | None, ...], ...]
"""For each word that is made, the cells that it is made of; None where nothing is needed."""


@frozen_dataclass
class Permute:
    """Words put together from cells of `bits` bits."""

    bits: int
    words: Assembly

    @property
    def renames(self) -> bool:
        """Whether every word is one of those before, as a whole: registers only change their names."""
        return all(whole_word(cells) is not None for cells in self.words)


@frozen_dataclass
class LanePermute:
    """Words put together from bytes of two words each, as `words` says, or as `others` where `mask` selects the lane.

    One prmt, whose selector depends on the lane: it does what a Select and a Permute do.
    """

    mask: int
    bits: int
    words: Assembly
    others: Assembly


@frozen_dataclass
class Convert:
    """Words put together from converted elements."""

    source: str
    target: str
    words: Assembly


@frozen_dataclass
class Transpose:
    """movmatrix on these words, which are all that are kept: 8 x 8 elements of 16 bits."""

    words: tuple[int, ...]


Step: TypeAlias = Permute | LanePermute | Convert | Transpose | Select | Shuffle | Swap


def whole_word(cells: tuple[RegisterSlot | None, ...]) -> int | None:
    """The word that these cells are, in order; None where they are taken from several places."""
    first = next((cell.word for cell in cells if cell), None)
    in_order = all(cell is None or cell == (first, slot) for slot, cell in enumerate(cells))
    return first if in_order else None


def fused(steps: Iterable[Step]) -> list[Step]:
    """Steps in which a Select and the Permute behind it are one prmt each, where two words are all that each needs."""
    made: list[Step] = []
    for step in steps:
        before = made[-1] if made else None
        if isinstance(before, Select) and before.mask and isinstance(step, Permute) and step.bits % BYTE == 0:
            words = before.words
            others = tuple(
                tuple(cell and RegisterSlot(words[cell.word], cell.slot) for cell in cells) for cells in step.words
            )
            needed = [
                {cell.word for cell in (*usual, *other) if cell}
                for usual, other in zip(step.words, others, strict=True)
            ]
            if all(1 <= len(some) <= 2 for some in needed):
                made[-1] = LanePermute(before.mask, step.bits, step.words, others)
                continue
        made.append(step)
    return made


THROUGH_MEMORY = ("shfl", "movmatrix")
"""What goes once through the unit that also serves shared memory: a pass, beyond the instruction itself."""


def price(kind: str, count: int) -> int:
    """What so many instructions of a kind cost: one each, and one for each pass through shared memory's unit.

    Loads and stores are counted alike, so that a relayout and a round trip through memory can be compared. What only
    depends on the lane, such as addresses, is worked out once for many runs and is not counted.
    """
    return count * (2 if kind in THROUGH_MEMORY else 1)


def total_cost(steps: Iterable[Step]) -> int:
    """What steps cost in all."""
    return sum(price(kind, count) for kind, count in map(cost, steps))


def cost(step: Step) -> tuple[str, int]:
    """The instruction that a step is made of, and how many of it."""
    if isinstance(step, Shuffle):
        return "shfl", sum(flip is not None for flip in step.flips)
    if isinstance(step, Select):
        return "select", len(step.words) if step.mask else 0
    if isinstance(step, Swap):
        return "prmt", step.words
    if isinstance(step, LanePermute | Transpose):
        return "movmatrix" if isinstance(step, Transpose) else "prmt", len(step.words)
    if isinstance(step, Convert):
        row = conversion(step.source, step.target)
        size = 2 if row and row.pair else 1
        together = {cells[at : at + size] for cells in step.words for at in range(0, len(cells), size)}
        return "cvt", sum(any(cells) for cells in together)  # copies are converted once
    # a prmt takes bytes of two words: n words are joined by n - 1 of them
    joined = [len({cell.word for cell in cells if cell}) for cells in step.words if whole_word(cells) is None]
    return "prmt", sum(max(1, words - 1) for words in joined)


def described(step: Step) -> str:
    """What a step does, in words."""
    if isinstance(step, Permute | LanePermute):
        if isinstance(step, Permute) and step.renames:
            return f"rename registers: take {_listed(whole_word(cells) or 0 for cells in step.words)}, in this order"
        others = f", with another selector {_where(step.mask)}" if isinstance(step, LanePermute) else ""
        return f"assemble words from {step.bits}-bit pieces{others}"
    if isinstance(step, Convert):
        return f"convert {step.source} to {step.target}, {len(step.words[0])} to a word"
    if isinstance(step, Transpose):
        return f"transpose 8 x 8 elements across the warp, in {_listed(step.words)}"
    if isinstance(step, Select):
        if not step.mask:
            return f"take {_listed(step.words)}, in this order"
        pairs = [f"{word} with {other}" for word, other in enumerate(step.words) if word < other]
        return f"{_where(step.mask)} exchange words {', '.join(pairs)}"
    if isinstance(step, Swap):
        return f"{_where(step.mask)} exchange element s of each word with element s ^ {step.flip}"
    words: dict[int, list[int]] = {}
    for word, flip in enumerate(step.flips):
        if flip is not None:
            words.setdefault(flip, []).append(word)
    own = str(linear({"lane": step.columns}))
    short = own if own == "lane" else "f"
    reads = [f"{_listed(some)} of lane {short}{f' ^ {flip}' if flip else ''}" for flip, some in words.items()]
    return f"read {', '.join(reads)}{f'; f = {own}' if short == 'f' else ''}"


def _listed(words: Iterable[int]) -> str:
    numbers = [str(word) for word in words]
    return f"word{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def _where(mask: int) -> str:
    """The lanes with an odd number of bits in a mask."""
    if mask.bit_count() == 1:
        return f"in lanes with lane & {mask}"
    return f"in lanes where popc(lane & {mask}) is odd"
