"""The operations of a relayout: their effect on registers, and their cost."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple, TypeAlias

from warpfrag.errors import NotModelled
from warpfrag.grouping import grouped
from warpfrag.isa.operands import OperandSpec
from warpfrag.layout.index_expressions import linear
from warpfrag.plans.shuffle_search import Select, Shuffle, Swap
from warpfrag.tables import read_table


@dataclass(frozen=True)
class Conversion:
    """A row of the conversion table; the table's comments explain the fields."""

    source: str
    target: str
    cvt: str
    pair: bool
    nan: int
    too_large: Literal["infinity", "largest", "clamp"]
    since: int


@cache
def conversions() -> dict[tuple[str, str], Conversion]:
    """Return every conversion, by its source and target formats."""
    by_formats = {}
    for row in read_table("conversions")["conversion"]:
        rest = {name: entry for name, entry in row.items() if name not in {"from", "to"}}
        by_formats[row["from"], row["to"]] = Conversion(row["from"], row["to"], **rest)
    return by_formats


def conversion(source: str, target: str) -> Conversion | None:
    """Return the conversion between two formats, or None if they are equal; raise NotModelled if it is unknown."""
    if source == target:
        return None
    row = conversions().get((source, target))
    if row is None:
        known = ", ".join(f"{a} to {b}" for a, b in conversions())
        raise NotModelled(f"no conversion from {source} to {target} is known; known: {known}")
    return row


def converts(source: OperandSpec, target: OperandSpec) -> bool:
    """Return True if a relayout changes the bits of elements, or their positions in their containers."""
    return (source.format, source.container, source.low) != (target.format, target.container, target.low)


WORD_BITS = 32
BYTE = 8  # the size of a byte in bits


class RegisterSlot(NamedTuple):
    """An element of a lane: its register, and its index in the register, low bits first."""

    word: int
    slot: int


Assembly: TypeAlias = tuple[tuple[RegisterSlot | None, ...], ...]
"""The source of each cell of the new registers; None for a cell whose value does not matter."""


@dataclass(frozen=True)
class Permute:
    """Assemble registers from cells of `bits` bits."""

    bits: int
    words: Assembly

    @property
    def renames(self) -> bool:
        """True if every new register is a whole old register, so that registers are only renamed."""
        return all(whole_word(cells) is not None for cells in self.words)


@dataclass(frozen=True)
class LanePermute:
    """Assemble each register from bytes of two, as given by `words` or, in lanes that `mask` selects, by `others`.

    This is one prmt whose selector depends on the lane. It replaces a Select and a Permute.
    """

    mask: int
    bits: int
    words: Assembly
    others: Assembly


@dataclass(frozen=True)
class Convert:
    """Assemble registers from converted elements."""

    source: str
    target: str
    words: Assembly


@dataclass(frozen=True)
class Transpose:
    """Apply movmatrix to these registers, each with 8 x 8 16-bit elements; all other registers are dropped."""

    words: tuple[int, ...]


RelayoutOperation: TypeAlias = Permute | LanePermute | Convert | Transpose | Select | Shuffle | Swap


def whole_word(cells: tuple[RegisterSlot | None, ...]) -> int | None:
    """Return the register that consists of these cells in order, or None if they come from several registers."""
    first = next((cell.word for cell in cells if cell), None)
    in_order = all(cell is None or cell == (first, slot) for slot, cell in enumerate(cells))
    return first if in_order else None


def fused(operations: Iterable[RelayoutOperation]) -> list[RelayoutOperation]:
    """Fuse each Select with the Permute after it into one prmt per register, if each needs at most two registers."""
    made: list[RelayoutOperation] = []
    for op in operations:
        before = made[-1] if made else None
        if isinstance(before, Select) and before.mask and isinstance(op, Permute) and op.bits % BYTE == 0:
            words = before.words
            others = tuple(
                tuple(cell and RegisterSlot(words[cell.word], cell.slot) for cell in cells) for cells in op.words
            )
            needed = [
                {cell.word for cell in (*usual, *other) if cell} for usual, other in zip(op.words, others, strict=True)
            ]
            if all(1 <= len(some) <= 2 for some in needed):
                made[-1] = LanePermute(before.mask, op.bits, op.words, others)
                continue
        made.append(op)
    return made


THROUGH_MEMORY = ("shfl", "movmatrix")
"""Instructions that also cost one pass through the shared-memory unit."""


def price(instruction: str, count: int) -> int:
    """Return the cost of `count` instructions: one each, plus one for each pass through the shared-memory unit.

    Loads and stores are counted in the same way, so a relayout can be compared with a round trip through memory. Values
    that depend only on the lane, such as addresses, are computed once for many runs and are not counted.
    """
    return count * (2 if instruction in THROUGH_MEMORY else 1)


def total_cost(operations: Iterable[RelayoutOperation]) -> int:
    """Return the cost of all operations."""
    return sum(price(instruction, count) for instruction, count in map(cost, operations))


def cost(op: RelayoutOperation) -> tuple[str, int]:
    """Return the instruction that an operation needs, and how many of them."""
    if isinstance(op, Shuffle):
        return "shfl", sum(flip is not None for flip in op.flips)
    if isinstance(op, Select):
        return "select", len(op.words) if op.mask else 0
    if isinstance(op, Swap):
        return "prmt", op.words
    if isinstance(op, LanePermute | Transpose):
        return "movmatrix" if isinstance(op, Transpose) else "prmt", len(op.words)
    if isinstance(op, Convert):
        row = conversion(op.source, op.target)
        size = 2 if row and row.pair else 1
        together = {cells[at : at + size] for cells in op.words for at in range(0, len(cells), size)}
        return "cvt", sum(any(cells) for cells in together)  # an element with copies is converted only once
    # a prmt reads two words, so joining n words takes n - 1 prmt
    joined = [len({cell.word for cell in cells if cell}) for cells in op.words if whole_word(cells) is None]
    return "prmt", sum(max(1, words - 1) for words in joined)


def described(op: RelayoutOperation) -> str:
    """Return a description of an operation."""
    if isinstance(op, Permute | LanePermute):
        if isinstance(op, Permute) and op.renames:
            return f"rename registers: take {_listed(whole_word(cells) or 0 for cells in op.words)}, in this order"
        others = f", with a different selector {_where(op.mask)}" if isinstance(op, LanePermute) else ""
        return f"assemble registers from {op.bits}-bit pieces{others}"
    if isinstance(op, Convert):
        return f"convert {op.source} to {op.target}, {len(op.words[0])} per word"
    if isinstance(op, Transpose):
        return f"transpose 8 x 8 elements across the warp, in {_listed(op.words)}"
    if isinstance(op, Select):
        if not op.mask:
            return f"take {_listed(op.words)}, in this order"
        pairs = [f"{word} with {other}" for word, other in enumerate(op.words) if word < other]
        return f"{_where(op.mask)} exchange words {', '.join(pairs)}"
    if isinstance(op, Swap):
        return f"{_where(op.mask)} exchange element s of each word with element s ^ {op.flip}"
    words = grouped((flip, word) for word, flip in enumerate(op.flips) if flip is not None)
    own = str(linear({"lane": op.columns}))
    short = own if own == "lane" else "f"
    reads = [f"{_listed(some)} of lane {short}{f' ^ {flip}' if flip else ''}" for flip, some in words.items()]
    return f"read {', '.join(reads)}{f'; f = {own}' if short == 'f' else ''}"


def _listed(words: Iterable[int]) -> str:
    numbers = [str(word) for word in words]
    return f"word{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def _where(mask: int) -> str:
    """Return a description of the lanes whose number has an odd number of bits in common with a mask."""
    if mask.bit_count() == 1:
        return f"in lanes with lane & {mask}"
    return f"in lanes where popc(lane & {mask}) is odd"
