"""Mistakes with registers: registers, slots, bytes, lanes and warps in the wrong order; metadata and scale words."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import combinations, permutations, product
from operator import methodcaller
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.diagnosis.agreement import numbers
from warpfrag.diagnosis.findings import Kind, Mistake, Words
from warpfrag.isa.immediates import Immediates, legal, part_of
from warpfrag.isa.operands import REGISTER_BITS
from warpfrag.layout.coordinates import LANES
from warpfrag.layout.index_expressions import linear
from warpfrag.tensorcore.operand import AnyOperand, Metadata, Operand, OperandBase, Scale

MANY = 8  # up to this count, swaps of two are likely; above it, swaps of all pairs that are a power of two apart
FEW = 4  # up to this count, every order is tried
MAX_BITS = 5  # up to this many bits, every order of bits is tried; above it, only swaps of two
PARTS = {
    16: "halves of a register swapped",
    8: "bytes of each half swapped",
    24: "bytes of a register reversed",
    4: "nibbles of each byte swapped",
    28: "nibbles of a register reversed",
    2: "pairs of bits of each nibble swapped",
    7: "bits of each byte reversed",
    31: "bits of a register reversed",
}
"""Descriptions of bit exchanges, by the mask that is xored with every bit number."""
HALVES = {
    "the halves of {} swapped": (1, 0),
    "both halves of {} hold its low half": (0, 0),
    "both halves of {} hold its high half": (1, 1),
}
NIBBLE = 4
GROUP = 4  # the number of lanes that share a row in most fragments


class WrongOrder(NamedTuple):
    """A wrong order of registers, slots, lanes or warps: `sources[i]` is the index that replaces i."""

    text: str
    sources: list[int]
    rare: bool = False


@cache
def wrong_orders(noun: str, numbers: tuple[int, ...]) -> tuple[WrongOrder, ...]:
    """Return distinct wrong orders: swaps, xor masks, shifts, and permutations of index bits."""
    by_sources: dict[tuple[int, ...], WrongOrder] = {tuple(range(len(numbers))): WrongOrder("", [])}
    for order in _orders(noun, numbers):
        by_sources.setdefault(tuple(order.sources), order)
    return tuple(by_sources.values())[1:]


def _orders(noun: str, numbers: tuple[int, ...]) -> Iterator[WrongOrder]:
    count, is_warp = len(numbers), noun == "warp"
    every, bits = range(count), range((count - 1).bit_length())
    for first, second in combinations(every, 2):
        if count <= LANES or (second - first).bit_count() == 1:
            text = f"{noun}s {numbers[first]} and {numbers[second]} swapped"
            yield WrongOrder(text, _swapped(count, first, second), count > MANY)
    if (noun, count) == ("lane", LANES):
        text = "lane (lane & 3) * 8 + (lane >> 2) taken for lane: groupID and threadID_in_group exchanged"
        yield WrongOrder(text, [n % 4 * 8 + n // 4 for n in every])
    yield WrongOrder(f"{noun}s reversed", [*reversed(every)], count <= FEW)
    if count <= FEW:
        for order in permutations(every):
            text = f"{noun}s in the order {', '.join(str(numbers[n]) for n in order)}"
            yield WrongOrder(text, [*order], not is_warp)
    is_power = count == 1 << len(bits)
    for mask in every[1:] if is_power else ():
        is_bit = mask.bit_count() == 1
        text = f"{noun}s {mask} apart swapped" if is_bit else f"{noun} ^ {mask} taken for {noun}"
        yield WrongOrder(text, [n ^ mask for n in every], not is_bit or count <= MANY)
    for step in every[1:]:
        back, by = ("", step) if 2 * step <= count else ("back ", count - step)
        text = f"{noun}s moved {back}by {'one' if by == 1 else by}"
        yield WrongOrder(text, [(n - step) % count for n in every], by not in {1, GROUP} or count <= MANY)
    swaps = (tuple(_swapped(len(bits), low, high)) for low, high in combinations(bits, 2))
    for order in (permutations(bits) if len(bits) <= MAX_BITS else swaps) if is_power else ():
        text = f"{noun} {linear({noun: [1 << to for to in order]})} taken for {noun}"
        sources = [sum((n >> bit & 1) << to for bit, to in enumerate(order)) for n in every]
        yield WrongOrder(text, sources, rare=True)
    for n in every:
        yield WrongOrder(f"every {noun} is {noun} {numbers[n]}", [n] * count, not is_warp)


def _swapped(count: int, first: int, second: int) -> list[int]:
    order = list(range(count))
    order[first], order[second] = second, first
    return order


def simple(operand: Operand) -> Iterator[Mistake]:
    """Yield the simple mistakes with registers, slots of a register, and lanes."""
    role, is_long = operand.role, len(_first_registers(operand)) > MANY
    for mistake in register_orders(operand):
        if " and " in mistake.text or (is_long and "apart" in mistake.text):
            yield mistake
    if operand.slots > 1:
        text = PARTS[16] if operand.slots == 2 else "slots reversed"
        yield Mistake("halves", role, text, partial(exchange_bits, mask=REGISTER_BITS - operand.spec.container))
    for lane in range(operand.layout.lanes):
        yield Mistake("lanes", role, f"lane {lane} dropped", partial(_drop, index=lane, axis=-2), rare=True)
    yield Mistake("lanes", role, "lanes moved by one", partial(np.roll, shift=1, axis=-2))


# ---- registers and lanes


def register_orders(operand: Operand) -> Iterator[Mistake]:
    """Yield mistakes with registers in a wrong order, and with registers that are not filled."""
    first, width = _first_registers(operand), operand.words // operand.regs
    whole = np.arange(operand.words).reshape(-1, width)
    for text, sources, rare in wrong_orders("register", tuple(first)) if len(first) > 1 else ():
        full = list(range(operand.regs))
        for index, source in enumerate(sources):
            full[first[index]] = first[source]
        change = methodcaller("take", whole[full].reshape(-1), axis=-1)
        yield Mistake("registers", operand.role, text, change, rare=rare)
    for some in (*([reg] for reg in first), *halves_of(first)) if len(first) > 1 else ():
        drop = partial(_drop, index=whole[some].reshape(-1), axis=-1)
        text = f"register{'s' * (len(some) > 1)} {numbers(some)} not {'stored' if operand.role == 'd' else 'filled'}"
        yield Mistake("registers", operand.role, text, drop, rare=operand.role != "d")


def halves_of(registers: list[int]) -> Iterator[list[int]]:
    """Yield, for each bit, the registers whose number has the bit, and the registers whose number lacks it."""
    for bit, is_set in product(range((len(registers) - 1).bit_length()), (1, 0)):
        yield [reg for place, reg in enumerate(registers) if place >> bit & 1 == is_set]


def _first_registers(operand: OperandBase) -> list[int]:
    """Return the registers that the hardware reads, without those that only hold copies."""
    zero = dict.fromkeys(operand.layout.ins, 0)
    first = {operand.layout.at(**zero | {"reg": reg}): reg for reg in reversed(range(operand.regs))}
    return sorted(first.values())


def _drop(words: Words, *, index: int | NDArray[np.intp], axis: int) -> Words:
    """Return registers with zeros at an index along an axis."""
    result = words.copy()
    np.moveaxis(result, axis, 0)[index] = 0
    return result


def lanes(operand: AnyOperand) -> Iterator[Mistake]:
    """Yield the mistakes of lanes that use the wrong lane's registers."""
    axis = -1 if isinstance(operand, Metadata | Scale) else -2
    for text, sources, rare in wrong_orders("lane", tuple(range(LANES))):
        order = np.array(sources)
        if operand.role == "d" and np.unique(order).size == LANES:
            order = np.argsort(order)  # for D, the text names the lane whose locations a lane stores to
        yield Mistake(_kind(operand, "lanes"), operand.role, text, methodcaller("take", order, axis=axis), rare=rare)


def warps(operand: AnyOperand) -> Iterator[Mistake]:
    """Yield the mistakes of warps that use the wrong warp's registers."""
    axis = -2 if operand.role == "metadata" else -3
    for text, sources, rare in wrong_orders("warp", tuple(range(operand.threads[0]))):
        change = methodcaller("take", np.array(sources), axis=axis)
        yield Mistake(_kind(operand, "lanes"), operand.role, text, change, rare=rare)


# ---- parts of a register


def parts(operand: Operand) -> Iterator[Mistake]:
    """Yield swaps within a register that `simple` does not include: of elements, or of bits of elements."""
    role, container = operand.role, operand.spec.container
    if container > REGISTER_BITS:
        swap = methodcaller("take", np.arange(operand.words) ^ 1, axis=-1)
        yield Mistake("halves", role, "low and high word of a register swapped", swap)
    registers = (slice(None), *range(operand.words)) if operand.slots == 2 else ()
    for reg, (text, order) in product(registers, HALVES.items()):
        name = "every register" if isinstance(reg, slice) else f"register {reg}"
        change = partial(_slots, order=order, container=container, reg=reg)
        yield Mistake("halves", role, text.format(name), change, rare=True)
    for mask, text in PARTS.items():
        whole = mask % container == 0 or mask == REGISTER_BITS // 2
        if mask != REGISTER_BITS - container and (whole or mask >= NIBBLE):
            yield Mistake("halves", role, text, partial(exchange_bits, mask=mask), rare=not whole)
    for text, sources, _ in wrong_orders("slot", tuple(range(operand.slots))) if operand.slots > 2 else ():
        yield Mistake("halves", role, text, partial(_slots, order=sources, container=container), rare=True)


def _slots(words: Words, *, order: Sequence[int], container: int, reg: int | slice = slice(None)) -> Words:
    """Return registers with the slots of register `reg`, by default of all registers, in a different order."""
    mask = np.uint32((1 << container) - 1)
    result = words.copy()
    result[..., reg] = 0
    for slot, of in enumerate(order):
        result[..., reg] |= (words[..., reg] >> np.uint32(of * container) & mask) << np.uint32(slot * container)
    return result


def exchange_bits(words: Words, *, mask: int) -> Words:
    """Move every bit to the position given by its bit number xor `mask`."""
    result = words
    for step, low in ((16, 0x0000FFFF), (8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
        if mask & step:
            lower, by = np.uint32(low), np.uint32(step)
            result = (result & lower) << by | result >> by & lower
    return result


# ---- metadata and scale words


def simple_word_mistakes(operand: AnyOperand) -> Iterator[Mistake]:
    """Yield the mistakes of reversed fields or bytes, and of lanes off by one."""
    reverse = partial(exchange_bits, mask=REGISTER_BITS - operand.spec.container)
    fields = "fields" if operand.role == "metadata" else "bytes"
    yield Mistake(_kind(operand, "halves"), operand.role, f"{fields} reversed", reverse)
    yield Mistake(_kind(operand, "lanes"), operand.role, "lanes moved by one", partial(np.roll, shift=1, axis=-1))


def word_mistakes(operand: AnyOperand) -> Iterator[Mistake]:
    """Yield the other swaps within words and between lanes, and words that are equal in all lanes."""
    role, parts = operand.role, _kind(operand, "halves")
    for mask, text in PARTS.items():
        if mask != REGISTER_BITS - operand.spec.container and mask in {16, 8, 24, 4, 2}:
            yield Mistake(parts, role, text, partial(exchange_bits, mask=mask), rare=mask < 8)
    yield from lanes(operand)
    if isinstance(operand, Metadata):
        for code in range(operand.format.codes):
            word = code * (0xFFFFFFFF // (operand.format.codes - 1))
            everywhere = partial(np.full_like, fill_value=word)
            yield Mistake("metadata", role, f"{word:#010x} everywhere", everywhere, rare=True)
    elif isinstance(operand, Scale):
        word = operand.format.encode(1.0) * (0xFFFFFFFF // 255)
        yield Mistake("layout", role, "1 everywhere", partial(np.full_like, fill_value=word), rare=True)


def _kind(operand: AnyOperand, usual: Kind) -> Kind:
    return "metadata" if operand.role == "metadata" else usual


def other_choices(operand: AnyOperand, choice: Immediates) -> Iterator[Mistake]:
    """Yield a mistake for each wrong selector, byte id or thread id, as a change of the register words."""
    if isinstance(operand, Metadata | Scale):
        right = part_of(choice, operand.role)
        for text, wrong in _wrong_immediates(operand, right):
            change = partial(_chosen, operand=operand, wrong=wrong, right=right)
            yield Mistake("selector", operand.role, text, change)


def _wrong_immediates(operand: Metadata | Scale, right: dict[str, int]) -> Iterator[tuple[str, dict[str, int]]]:
    for name, number in right.items():
        for other in legal(operand.layout, name):
            if other != number:
                yield f"{name} {other} instead of {number}", {**right, name: other}


def _chosen(words: Words, *, operand: Metadata | Scale, wrong: dict[str, int], right: dict[str, int]) -> Words:
    """Return registers from which the right immediates select what the wrong immediates would have selected."""
    return chosen_words(operand, chosen_codes(operand, words, wrong), right)


def chosen_codes(operand: Metadata | Scale, words: Words, choice: Mapping[str, int]) -> NDArray[Any]:
    """Return the codes that words hold for a selector, or for a byte id and thread id."""
    return (
        operand.unpack(words, **choice) if isinstance(operand, Metadata) else operand.unpack(words, **choice, raw=True)
    )


def chosen_words(operand: Metadata | Scale, codes: NDArray[Any], choice: Mapping[str, int]) -> Words:
    """Return words that hold codes for a selector, or for a byte id and thread id."""
    how: dict[str, Any] = {**choice} if isinstance(operand, Metadata) else {**choice, "raw": True}
    return operand.pack(codes, **how)


def written_elsewhere(operand: Metadata | Scale, codes: NDArray[Any], choice: Immediates) -> Iterator[Mistake]:
    """Yield the mistake of filling the words for the wrong selector or id."""
    for text, wrong in _wrong_immediates(operand, part_of(choice, operand.role)):
        words = chosen_words(operand, codes, wrong)
        yield Mistake("selector", operand.role, f"written for {text}", partial(_replaced, by=words))


def _replaced(words: Words, *, by: Words) -> Words:
    return np.broadcast_to(by, words.shape)
