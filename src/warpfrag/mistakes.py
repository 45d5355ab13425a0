"""The mistakes people make with fragments: the one list that `vectors` and `diagnose` both read.

A mistake stands for a kernel or an emulator that gets one thing wrong. Most are a change of the registers of one
operand (`Mistake`): of A, B, C, metadata and scales it changes what goes in, of D what comes out. The others leave the
registers alone and run something else on them (`Misreading`): another sign, another type, another architecture.

`mistakes` has the simple ones, of which no two are the same: `vectors` sees that test vectors notice each of them.
`suspects` has every one, also those that are the same by another name: `diagnose` tries them.

    >>> from warpfrag.registry import get
    >>> [mistake.name for mistake in mistakes(get("mma.m16n8k16.f32.f16.f16.f32")) if mistake.operand == "b"][:3]
    ['b: registers 0 and 1 swapped', 'b: halves of a register swapped', 'b: lane 0 dropped']
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import combinations, permutations, product
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from warpfrag import fragment
from warpfrag.arithmetic import plan
from warpfrag.choice import legal
from warpfrag.codes import from_codes, to_codes
from warpfrag.errors import NotModelled
from warpfrag.formats import FORMATS
from warpfrag.isa.legality import able_architectures, resolve
from warpfrag.isa.operands import REGISTER_BITS, mma_layouts, operands
from warpfrag.isa.rows import forms
from warpfrag.movers import move_words
from warpfrag.operand import Metadata, Scale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from warpfrag.arithmetic.rules import Rule
    from warpfrag.choice import Choice
    from warpfrag.instruction import Instruction
    from warpfrag.isa.words import Form
    from warpfrag.layout import Layout
    from warpfrag.operand import AnyOperand, Operand, Registers

    Words = NDArray[np.uint32]

Kind = Literal[
    "transposed", "blocks", "registers", "halves", "layout", "lanes", "sign", "selector", "metadata", "c", "arch"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""The likeliest first."""

MOST_OPERANDS = 64  # whose mistakes are kept
LANES = 32
BLOCK = 8  # rows and columns of what ldmatrix and movmatrix turn
FEW = 4  # so many registers are tried in every order; of more, only in those that an index bit makes
OTHER_TYPE = {"f16": "bf16", "bf16": "f16", "e4m3": "e5m2", "e5m2": "e4m3"}
ACCUMULATORS = ("f16", "f32")
PARTS = {
    16: "halves of a register swapped",
    8: "bytes of each half swapped",
    24: "bytes of a register reversed",
    4: "nibbles of each byte swapped",
    28: "nibbles of a register reversed",
    7: "bits of each byte reversed",
    31: "bits of a register reversed",
}
"""What is exchanged where the number of every bit is joined to this one by xor."""


@dataclass(frozen=True, eq=False)
class Mistake:
    """One mistake. `change` takes and gives the registers of the operand, uint32[..., lanes, words].

    Metadata and scales are one word a lane and have no last axis, as in `execute`. A rare one is looked at last.
    """

    kind: Kind
    operand: str
    text: str
    change: Callable[[Words], Words]
    rare: bool = False

    @property
    def name(self) -> str:
        """The operand and the text: no other mistake of the instruction has it."""
        return f"{self.operand}: {self.text}"


@dataclass(frozen=True, eq=False)
class Misreading:
    """The right registers, but something else runs on them: other words of the name, another architecture.

    `again` says what is done once more afterwards: the product (D goes in as C), or the addition of C.
    """

    kind: Kind
    operand: str
    text: str
    words: Mapping[str, str] = field(default_factory=dict)
    arch: str = ""
    again: Literal["", "product", "c"] = ""
    rare: bool = False


def mistakes(instruction: Instruction) -> Iterator[Mistake]:
    """The simple mistakes that the operands of an instruction allow, each different from all others."""
    for operand in (instruction.a, instruction.b, instruction.c, instruction.d):
        yield from _simple(operand)
    for operand in (instruction.a, instruction.b):
        yield _read_in_other_order(operand)
    for role in ("metadata", "scale_a", "scale_b"):
        if role in instruction.operands:
            yield from _simple_of_words(instruction.operands[role])


@lru_cache(MOST_OPERANDS)
def suspects(operand: AnyOperand) -> tuple[Mistake, ...]:
    """Every mistake with one operand, the likeliest first; some are the same by another name."""
    if isinstance(operand, Metadata | Scale):
        found = [*_simple_of_words(operand), *_more_of_words(operand)]
    else:
        found = [_read_in_other_order(operand), *_simple(operand), *_turned(operand), *_orders(operand)]
        found += [*_parts(operand), *_lane_orders(operand), *_other_layouts(operand)]
        if operand.role == "c":
            found += [
                Mistake("c", "c", "missing", np.zeros_like),
                Mistake("c", "c", "added twice", partial(_doubled, operand=operand)),
            ]
    return tuple(sorted(found, key=likelihood))


def likelihood(mistake: Mistake | Misreading) -> tuple[bool, int, int]:
    """A key that sorts the likeliest first: by kind, and operands that go in before D."""
    return mistake.rare, KINDS.index(mistake.kind), "abc".find(mistake.operand[:1]) % LANES


# ---- any matrix: registers, slots and lanes


def _simple(operand: Operand) -> Iterator[Mistake]:
    role = operand.role
    for first, second in combinations(_first_registers(operand), 2):
        swap = partial(_in_order, order=_swapped(operand.regs, first, second), width=operand.words // operand.regs)
        yield Mistake("registers", role, f"registers {first} and {second} swapped", swap)
    if operand.slots > 1:
        text = "halves of a register swapped" if operand.slots == 2 else "slots reversed"
        yield Mistake("halves", role, text, partial(_reverse_slots, container=operand.row.container))
    for lane in range(operand.layout.lanes):
        yield Mistake("lanes", role, f"lane {lane} dropped", partial(_drop_lane, lane=lane), rare=True)
    yield Mistake("lanes", role, "lanes moved by one", partial(np.roll, shift=1, axis=-2))


def _first_registers(operand: Registers) -> list[int]:
    """The registers that the hardware reads: not those that hold copies of earlier ones."""
    first = {operand.layout.at(lane=0, reg=reg): reg for reg in reversed(range(operand.regs))}
    return sorted(first.values())


def _swapped(regs: int, first: int, second: int) -> list[int]:
    order = list(range(regs))
    order[first], order[second] = second, first
    return order


def _in_order(words: Words, *, order: Iterable[int], width: int) -> Words:
    """Registers of `width` words, taken in another order."""
    whole = np.arange(words.shape[-1]).reshape(-1, width)
    return words[..., whole[list(order)].reshape(-1)]


def _orders(operand: Operand) -> Iterator[Mistake]:
    """Orders of the registers beyond one swap: every one of a few, else those that exchange bits of their numbers."""
    first, width = _first_registers(operand), operand.words // operand.regs
    count = len(first)
    bits = range((count - 1).bit_length())
    if count <= FEW:
        orders = [*permutations(range(count))]
    elif count == 1 << len(bits):
        exchanged = [[sum((n >> bit & 1) << to for bit, to in zip(bits, p, strict=True)) for n in range(count)]
                     for p in permutations(bits)]  # fmt: skip
        orders = [*map(tuple, exchanged), *(tuple(n ^ mask for n in range(count)) for mask in range(1, count))]
    else:
        orders = [tuple(reversed(range(count)))]
    for order in orders:
        if sum(place != to for place, to in enumerate(order)) > 2:
            full = list(range(operand.regs))
            for place, to in enumerate(order):
                full[first[place]] = first[to]
            text = f"registers in the order {', '.join(str(first[to]) for to in order)}"
            yield Mistake("registers", operand.role, text, partial(_in_order, order=full, width=width), rare=True)


def _reverse_slots(words: Words, *, container: int) -> Words:
    mask = np.uint32((1 << container) - 1)
    result = np.zeros_like(words)
    for low in range(0, REGISTER_BITS, container):
        result |= (words >> np.uint32(low) & mask) << np.uint32(REGISTER_BITS - container - low)
    return result


def _parts(operand: Operand) -> Iterator[Mistake]:
    """Parts of a register exchanged, beyond those of `_simple`."""
    container = operand.row.container
    if container > REGISTER_BITS:
        order = np.arange(operand.words) ^ 1
        yield Mistake("halves", operand.role, "low and high word of a register swapped", partial(np.take, indices=order, axis=-1))  # fmt: skip  # noqa: E501
    for mask, text in PARTS.items():
        if mask % container == 0 and mask != REGISTER_BITS - container:
            yield Mistake("halves", operand.role, text, partial(_exchange_bits, mask=mask))


def _exchange_bits(words: Words, *, mask: int) -> Words:
    """Every bit goes to where its number joined to a mask by xor says."""
    result = words
    for step, low in ((16, 0x0000FFFF), (8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
        if mask & step:
            lower, by = np.uint32(low), np.uint32(step)
            result = (result & lower) << by | result >> by & lower
    return result


def _drop_lane(words: Words, *, lane: int) -> Words:
    result = words.copy()
    result[..., lane, :] = 0
    return result


def _lane_orders(operand: Operand) -> Iterator[Mistake]:
    """Lanes that take each other's registers."""
    lane = np.arange(LANES)
    orders = {
        "lanes moved by one, the other way": lane + 1,
        "lanes moved by four, one group": lane - 4,
        "lanes moved by four, one group, the other way": lane + 4,
        **{f"lanes {bit} apart swapped": lane ^ bit for bit in (1, 2, 4, 8, 16)},
        "groupID and threadID_in_group swapped": lane % 4 * 8 + lane // 4,
        "groupID and threadID_in_group swapped, the other way": lane % 8 * 4 + lane // 8,
        "lanes reversed": lane ^ 31,
    }
    for text, order in orders.items():
        yield Mistake("lanes", operand.role, text, partial(np.take, indices=order % LANES, axis=-2))


# ---- the matrix turned, whole or in blocks


def _read_in_other_order(operand: Operand) -> Mistake:
    transpose = partial(_moved, operand=operand, order=_other_order(operand.shape))
    return Mistake("transposed", operand.role, "memory read in the other order", transpose)


def _other_order(shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Which element comes where, if what lies column by column is read row by row."""
    return np.arange(math.prod(shape)).reshape(shape).swapaxes(-1, -2).reshape(-1)


def _moved(words: Words, *, operand: Operand, order: NDArray[np.intp]) -> Words:
    """The registers of the matrix whose element i is element order[i] of the one that these hold."""
    codes = operand.unpack(words, raw=True)
    batch = words.shape[:-2]
    flat = codes.reshape(*batch, order.size)
    return operand.pack(flat.take(order, axis=-1).reshape(codes.shape), raw=True)


def _turned(operand: Operand) -> Iterator[Mistake]:
    """Blocks turned, or in another order; and memory that was written in the other order."""
    role, shape = operand.role, operand.shape
    rows, cols = shape[-2:]
    move = partial(partial, _moved, operand=operand)
    if rows != cols:
        written = np.argsort(_other_order(shape))
        yield Mistake("transposed", role, "memory written in the other order", move(order=written))
    if operand.row.container == 16 and role in "ab":
        text = f"each {BLOCK} x {BLOCK} block transposed: ldmatrix with .trans, or without it where it is needed"
    else:
        text = f"each {BLOCK} x {BLOCK} block transposed"
    if rows % BLOCK == 0 and cols % BLOCK == 0:
        blocks = np.arange(math.prod(shape)).reshape(-1, rows // BLOCK, BLOCK, cols // BLOCK, BLOCK)
        yield Mistake("blocks", role, text, move(order=blocks.transpose(0, 1, 4, 3, 2).reshape(-1)))
        if rows > BLOCK and cols > BLOCK:
            turned = blocks.transpose(0, 3, 1, 2, 4).reshape(-1, rows // BLOCK, cols // BLOCK, BLOCK, BLOCK)
            order = turned.transpose(0, 1, 3, 2, 4).reshape(-1)
            yield Mistake("blocks", role, f"{BLOCK} x {BLOCK} blocks in the other order", move(order=order))
    if role in "ab" and operand.row.container < 16:
        yield Mistake("blocks", role, "ldmatrix with .trans, which turns pairs of bytes, not elements", move_words)


# ---- another layout


def _other_layouts(operand: Operand) -> Iterator[Mistake]:
    """The registers filled, or of D read, by the rule of another operand, or by none."""
    layout = operand.layout
    if layout.copies > 1:
        return
    elements = fragment.elements(layout)
    places = np.argsort(elements)
    turned = _other_order(operand.shape)
    seen = {order.tobytes() for order in (np.arange(turned.size), turned, np.argsort(turned))}
    for text, other in _known_elements(operand):
        order = other[places]
        if order.tobytes() in seen:
            continue
        seen.add(order.tobytes())
        if operand.role == "d":
            order = np.argsort(order)
        verb = "read" if operand.role == "d" else "laid out"
        yield Mistake("layout", operand.role, f"{verb} {text}", partial(_moved, operand=operand, order=order))


def _known_elements(operand: Operand) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """The element of every place, by other rules for a matrix of this shape."""
    layout = operand.layout
    size = math.prod(operand.shape)
    if layout.dims == ("row", "col"):
        for role in "abc":
            for other in mma_layouts(role):
                yield from _tilings(f"{REGISTER_BITS // other.slots}-bit {role.upper()}", other, layout)
    elif layout.dims == ("mma", "row", "col"):
        form = resolve(operand.instruction)
        for words in product(("row", "col"), repeat=len(form.layouts)):
            other = operands(replace(form, layouts=words), "")[operand.role].layout
            yield f"for .{'.'.join(words)}", fragment.elements(other)
    each = size // LANES
    places = np.arange(size).reshape(LANES, each)
    yield f"row by row, {each} elements to a lane", places.reshape(-1)
    yield f"column by column, {each} elements to a lane", _other_order(operand.shape)[places].reshape(-1)
    yield "row by row, an element to a lane", places.reshape(each, LANES).T.reshape(-1)


def _tilings(text: str, other: Layout, layout: Layout) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """A layout, as it is or with rows and columns exchanged, tiled to the shape of this one."""
    rows, cols = other.shape
    shape = layout.shape
    for turned, (high, wide) in ((False, (rows, cols)), (True, (cols, rows))):
        counts = {"row": shape[0] // high, "col": shape[1] // wide}
        if shape != (high * counts["row"], wide * counts["col"]) or (turned and rows == cols):
            continue
        mine = {"row": counts["col"], "col": counts["row"]} if turned else counts
        whole = other.tiled(**mine)
        if whole.regs * whole.slots != layout.regs * layout.slots or whole.copies > 1:
            continue
        elements = fragment.elements(whole)
        if turned:
            elements = elements % shape[0] * shape[1] + elements // shape[0]
        size = f"{rows} x {cols}" + (", turned" if turned else "")
        tiles = "tiles of " if max(counts.values()) > 1 else ""
        yield f"like {tiles}{'an' if text[0] == '8' else 'a'} {text} of {size}", elements


# ---- metadata, scale factors, C


def _simple_of_words(operand: AnyOperand) -> Iterator[Mistake]:
    kinds: dict[str, tuple[Kind, Kind, str]] = {"metadata": ("metadata", "metadata", "fields")}
    parts, lanes, text = kinds.get(operand.role, ("halves", "lanes", "bytes"))
    yield Mistake(parts, operand.role, f"{text} reversed", partial(_reverse_slots, container=operand.row.container))
    yield Mistake(lanes, operand.role, "lanes moved by one", partial(np.roll, shift=1, axis=-1))


def _more_of_words(operand: AnyOperand) -> Iterator[Mistake]:
    role = operand.role
    parts, lanes = ("metadata", "metadata") if role == "metadata" else ("halves", "lanes")
    for mask in (16, 8, 24):
        if mask != REGISTER_BITS - operand.row.container:
            yield Mistake(parts, role, PARTS[mask], partial(_exchange_bits, mask=mask))  # type: ignore[arg-type]
    order = np.arange(LANES)
    yield Mistake(lanes, role, "lanes moved by one, the other way", partial(np.roll, shift=-1, axis=-1))  # type: ignore[arg-type]
    for bit in (1, 2, 4, 8, 16):
        take = partial(np.take, indices=order ^ bit, axis=-1)
        yield Mistake(lanes, role, f"lanes {bit} apart swapped", take)  # type: ignore[arg-type]


def other_choices(operand: AnyOperand, choice: Choice) -> Iterator[Mistake]:
    """Another selector, byte id or thread id than the right ones, as a change of the words."""
    if not isinstance(operand, Metadata | Scale):
        return
    right = choice.of(operand.role)
    for name in right:
        for other in legal(operand.layout, name):
            if other != right[name]:
                wrong = {**right, name: other}
                change = partial(_chosen, operand=operand, wrong=wrong, right=right)
                yield Mistake("selector", operand.role, f"{name} {other} instead of {right[name]}", change)


def _chosen(words: Words, *, operand: Metadata | Scale, wrong: dict[str, int], right: dict[str, int]) -> Words:
    """Words in which the right choice reads what the wrong one reads in these."""
    if isinstance(operand, Metadata):
        codes = operand.unpack(words, **wrong)
    else:
        codes = operand.unpack(words, byte_id=wrong["byte_id"], thread_id=wrong["thread_id"], raw=True)
    return chosen_words(operand, codes, right)


def chosen_words(operand: Metadata | Scale, codes: NDArray[Any], choice: Mapping[str, int]) -> Words:
    """The words that hold codes for a selector, or for a byte id and a thread id."""
    if isinstance(operand, Metadata):
        return operand.pack(codes, **choice)
    return operand.pack(codes, byte_id=choice["byte_id"], thread_id=choice["thread_id"], raw=True)


def written_elsewhere(operand: Metadata | Scale, codes: NDArray[Any], choice: Choice) -> Iterator[Mistake]:
    """The words of the same codes, written for another selector or id."""
    right = choice.of(operand.role)
    for name in right:
        for other in legal(operand.layout, name):
            if other != right[name]:
                words = chosen_words(operand, codes, {**right, name: other})
                text = f"written for {name} {other} instead of {right[name]}"
                yield Mistake("selector", operand.role, text, partial(_replaced, by=words))


def _replaced(words: Words, *, by: Words) -> Words:
    return np.broadcast_to(by, words.shape)


def _doubled(words: Words, *, operand: Operand) -> Words:
    codes = operand.unpack(words, raw=True)
    return operand.pack(added(operand, codes, codes), raw=True)


def added(operand: Operand, left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Codes of the sum of two matrices of an operand's format, as a kernel adds them: rounded to nearest, or wrapped.

    >>> from warpfrag.registry import get
    >>> c = get("mma.m16n8k16.f32.f16.f16.f32").c
    >>> hex(added(c, np.uint32(0x3F800000), np.uint32(0x3F800000)))
    '0x40000000'
    """
    if not operand.format.is_float:
        wrapped: NDArray[Any] = left + right
        return wrapped
    with np.errstate(over="ignore", invalid="ignore"):
        total = from_codes(operand.format, left) + from_codes(operand.format, right)
    return to_codes(operand.format, total)


# ---- something else runs on the right registers


def misreadings(form: Form, arch: str) -> Iterator[Misreading]:
    """Other signs, types, accumulators and architectures, and what is done twice."""
    signs = {name: f"{'us'[name[0] == 'u']}{name[1:]}" for name in FORMATS if name[0] in "su" and name[1:].isdigit()}
    for kind, table in (("sign", signs), ("layout", OTHER_TYPE)):
        yield from _other_formats(form, kind, table)  # type: ignore[arg-type]
    for other in ACCUMULATORS:
        words = {"c": other, "d": other}
        if form.d in ACCUMULATORS and other != form.d and replace(form, **words) in forms():  # type: ignore[arg-type]
            yield Misreading("layout", "d", f"accumulated in {other}", words)
    if form.c == form.d:
        yield Misreading("c", "d", "the product added twice: D went in as C once more", again="product")
        yield Misreading("c", "c", "added once more after the product", again="c")
    by_rule: dict[Rule, list[str]] = {}
    for other in able_architectures(form):
        with suppress(NotModelled):
            by_rule.setdefault(plan(form, other).rule, []).append(other)
    for archs in by_rule.values():
        if arch not in archs:
            yield Misreading("arch", "d", f"the arithmetic of {', '.join(archs)}", arch=archs[0])


def _other_formats(form: Form, kind: Kind, table: Mapping[str, str]) -> Iterator[Misreading]:
    names = {role: getattr(form, role) for role in "ab"}
    for roles in ("a", "b", "ab"):
        if not all(names[role] in table for role in roles):
            continue
        words = {role: table[names[role]] for role in roles}
        if replace(form, **words) in forms():  # type: ignore[arg-type]
            both = "as B, " if len(roles) > 1 else ""
            text = f"{both}{names[roles[0]]} taken for {words[roles[0]]}"
            yield Misreading(kind, roles[0], text, words)
