"""Mistakes with registers: registers, slots, bytes, lanes and warps in another order; metadata and scale words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import combinations, permutations
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.diagnosis.findings import Kind, Mistake, Words
from warpfrag.isa.immediates import Immediates, legal, part_of
from warpfrag.isa.operands import REGISTER_BITS
from warpfrag.layout.coordinates import LANES
from warpfrag.tensorcore.operand import AnyOperand, Metadata, Operand, OperandBase, Scale

MANY = 8  # up to 8 registers, any two may be exchanged; of more, those that are a power of two apart
FEW = 4  # up to 4 things are tried in every order; of more, only in orders that permute bits of their numbers
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
"""The exchanges of bits by the mask that is xored to every bit number."""
NIBBLE = 4
GROUP = 4  # lanes that share a row of most fragments
STEPS = (1, 2, 4, 8, 16)


def simple(operand: Operand) -> Iterator[Mistake]:
    """Yield the simple mistakes: two registers, the slots of a register, a lane."""
    role = operand.role
    registers = _first_registers(operand)
    for first, second in _couples(registers):
        swap = _registers(operand, _swapped(operand.regs, first, second))
        text = f"registers {first} and {second} swapped"
        yield Mistake("registers", role, text, swap, rare=len(registers) > MANY)
    if len(registers) > MANY:
        for bit in range((operand.regs - 1).bit_length()):
            order = [reg ^ (1 << bit) if reg ^ (1 << bit) < operand.regs else reg for reg in range(operand.regs)]
            yield Mistake("registers", role, f"registers {1 << bit} apart swapped", _registers(operand, order))
    if operand.slots > 1:
        text = PARTS[16] if operand.slots == 2 else "slots reversed"
        yield Mistake("halves", role, text, partial(exchange_bits, mask=REGISTER_BITS - operand.spec.container))
    for lane in range(operand.layout.lanes):
        yield Mistake("lanes", role, f"lane {lane} dropped", partial(_drop_lane, lane=lane), rare=True)
    yield Mistake("lanes", role, "lanes moved by one", partial(np.roll, shift=1, axis=-2))


# ---- registers


def register_orders(operand: Operand) -> Iterator[Mistake]:
    """Yield registers in another order, used twice, or not filled."""
    first = _first_registers(operand)
    for order in _orders(len(first)):
        full = list(range(operand.regs))
        for place, to in enumerate(order):
            full[first[place]] = first[to]
        text = f"registers in the order {', '.join(str(first[to]) for to in order)}"
        yield Mistake("registers", operand.role, text, _registers(operand, full), rare=True)
    couples = _couples(first)
    for reg, other in sorted([*couples, *((high, low) for low, high in couples)]):
        used = [other if index == reg else index for index in range(operand.regs)]
        text = f"register {other} used for register {reg} too"
        yield Mistake("registers", operand.role, text, _registers(operand, used), rare=True)
    if len(first) > 1:
        alone = [[reg] for reg in first]
        half = [[first[n] for n in range(len(first)) if n & bit] for bit in STEPS if bit < len(first)]
        for some in (*alone, *half):
            text = f"register{'s' if len(some) > 1 else ''} {', '.join(map(str, some))} not filled"
            change = partial(_drop, regs=some, width=_width(operand))
            yield Mistake("registers", operand.role, text, change, rare=True)


def _first_registers(operand: OperandBase) -> list[int]:
    """Return the registers that the hardware reads, without copies of earlier ones."""
    zero = dict.fromkeys(operand.layout.ins, 0)
    first = {operand.layout.at(**zero | {"reg": reg}): reg for reg in reversed(range(operand.regs))}
    return sorted(first.values())


def _couples(registers: list[int]) -> list[tuple[int, int]]:
    """Return pairs of registers; of many registers, only pairs that are a power of two apart."""
    some = combinations(range(len(registers)), 2)
    near = {1 << bit for bit in range(len(registers).bit_length())}
    return [
        (registers[first], registers[second])
        for first, second in some
        if len(registers) <= MANY or second - first in near
    ]


def _orders(count: int) -> Iterator[tuple[int, ...]]:
    """Yield orders beyond one swap: all orders of a few; of more, rotations and those that permute or flip bits."""
    bits = range((count - 1).bit_length())
    if count <= FEW:
        orders = [*permutations(range(count))]
    else:
        orders = [tuple((n + step) % count for n in range(count)) for step in range(1, count)]
        orders.append(tuple(reversed(range(count))))
        if count == 1 << len(bits):
            orders += [_by_bits(count, order) for order in (permutations(bits) if count <= MANY else _bit_swaps(bits))]
            orders += [tuple(n ^ mask for n in range(count)) for mask in range(1, count)]
    for order in dict.fromkeys(orders):
        if sum(place != to for place, to in enumerate(order)) > 2:
            yield order


def _bit_swaps(bits: range) -> Iterator[tuple[int, ...]]:
    """Yield the orders of bits with two bits exchanged."""
    return (tuple(_swapped(len(bits), low, high)) for low, high in combinations(bits, 2))


def _by_bits(count: int, order: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers with their bits in another order."""
    return tuple(sum((n >> bit & 1) << to for bit, to in enumerate(order)) for n in range(count))


def _swapped(count: int, first: int, second: int) -> list[int]:
    order = list(range(count))
    order[first], order[second] = second, first
    return order


def _width(operand: Operand) -> int:
    """Return the words of a register."""
    return operand.words // operand.regs


def _registers(operand: Operand, order: Iterable[int]) -> Callable[[Words], Words]:
    """Return the change that takes registers in another order."""
    whole = np.arange(operand.words).reshape(-1, _width(operand))
    return methodcaller("take", whole[list(order)].reshape(-1), axis=-1)


def _drop(words: Words, *, regs: Iterable[int], width: int) -> Words:
    result = words.copy()
    for reg in regs:
        result[..., reg * width : (reg + 1) * width] = 0
    return result


# ---- parts of a register


def parts(operand: Operand) -> Iterator[Mistake]:
    """Yield exchanged parts of a register, beyond those of `simple`: elements, or parts of elements."""
    role, container = operand.role, operand.spec.container
    if container > REGISTER_BITS:
        order = np.arange(operand.words) ^ 1
        swap = methodcaller("take", order, axis=-1)
        yield Mistake("halves", role, "low and high word of a register swapped", swap)
    for mask, text in PARTS.items():
        whole = mask % container == 0 or mask == REGISTER_BITS // 2
        if mask != REGISTER_BITS - container and (whole or mask >= NIBBLE):
            yield Mistake("halves", role, text, partial(exchange_bits, mask=mask), rare=not whole)
    if operand.slots > 2:
        for slots in _orders(operand.slots):
            change = partial(_slots, order=slots, container=container)
            yield Mistake("halves", role, f"slots in the order {', '.join(map(str, slots))}", change, rare=True)
    if operand.slots == FEW:
        for first, second in combinations(range(operand.slots), 2):
            change = partial(_slots, order=_swapped(operand.slots, first, second), container=container)
            yield Mistake("halves", role, f"slots {first} and {second} swapped", change, rare=True)
    if operand.slots > 1 and operand.regs > 1:
        turn = partial(exchange_bits, mask=REGISTER_BITS - container)
        for reg in _first_registers(operand):
            done = "halves of register {} swapped" if operand.slots == 2 else "slots of register {} reversed"
            yield Mistake("halves", role, done.format(f"{reg} alone"), partial(_only, reg=reg, change=turn), rare=True)


def _only(words: Words, *, reg: int, change: partial[Words]) -> Words:
    """Apply a change to one 32-bit register."""
    result = words.copy()
    result[..., reg] = change(words[..., reg])
    return result


def _slots(words: Words, *, order: Sequence[int], container: int) -> Words:
    """Return registers with their slots in another order."""
    mask = np.uint32((1 << container) - 1)
    result = np.zeros_like(words)
    for slot, of in enumerate(order):
        result |= (words >> np.uint32(of * container) & mask) << np.uint32(slot * container)
    return result


def exchange_bits(words: Words, *, mask: int) -> Words:
    """Move every bit to its number xor the mask."""
    result = words
    for step, low in ((16, 0x0000FFFF), (8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
        if mask & step:
            lower, by = np.uint32(low), np.uint32(step)
            result = (result & lower) << by | result >> by & lower
    return result


# ---- lanes


@cache
def lane_orders() -> dict[str, NDArray[np.intp]]:
    """Return the common wrong lane orders: the lane whose registers each lane takes."""
    lane = np.arange(LANES)
    orders = {
        "lanes moved by one, the other way": lane + 1,
        "lanes moved by four, one group": lane - GROUP,
        "lanes moved by four, one group, the other way": lane + GROUP,
        **{f"lanes {bit} apart swapped": lane ^ bit for bit in STEPS},
        "groupID and threadID_in_group swapped": lane % 4 * 8 + lane // 4,
        "groupID and threadID_in_group swapped, the other way": lane % 8 * 4 + lane // 8,
        "lanes reversed": lane ^ (LANES - 1),
    }
    return {text: order % LANES for text, order in orders.items()}


@cache
def rare_lane_orders() -> dict[str, NDArray[np.intp]]:
    """Return the rare wrong lane orders: shifts within groups, one lane for all, xor masks."""
    lane = np.arange(LANES)
    orders = {f"lanes moved by {step}": lane - step for step in range(2, LANES - 1)}
    orders |= {f"lane ^ {mask} taken for lane": lane ^ mask for mask in range(1, LANES)}
    orders |= {
        f"lanes of each {size} moved by one{direction}": lane // size * size + (lane + step) % size
        for size in (GROUP, 2 * GROUP, 4 * GROUP)
        for direction, step in (("", -1), (", the other way", 1))
    }
    for step in STEPS:  # __shfl_up_sync and __shfl_down_sync keep a value if there is no source lane
        orders[f"lanes moved by {step}, the first keep their own"] = np.where(lane < step, lane, lane - step)
        kept = lane + step >= LANES
        orders[f"lanes moved by {step} the other way, the last keep their own"] = np.where(kept, lane, lane + step)
    orders |= {f"every lane has the registers of lane {source}": np.full(LANES, source) for source in range(LANES)}
    orders |= {f"lanes of each {size} have the registers of the first": lane // size * size for size in (2, 4, 8, 16)}
    for order in permutations(range(len(STEPS))):
        text = f"bits of the lane in the order {', '.join(map(str, order))}"
        orders[text] = np.array(_by_bits(LANES, order))
    orders |= {
        f"lanes {first} and {second} swapped": np.array(_swapped(LANES, first, second))
        for first, second in combinations(range(LANES), 2)
    }
    return {text: order % LANES for text, order in orders.items()}


def lanes(operand: Operand) -> Iterator[Mistake]:
    """Yield lanes that take each other's registers."""
    for orders, rare in ((lane_orders(), False), (rare_lane_orders(), True)):
        for text, order in orders.items():
            yield Mistake("lanes", operand.role, text, methodcaller("take", order, axis=-2), rare=rare)


def warps(operand: OperandBase) -> Iterator[Mistake]:
    """Yield warps of a warpgroup that take each other's registers."""
    axis = -2 if operand.role == "metadata" else -3
    kind: Kind = "metadata" if operand.role == "metadata" else "lanes"
    count = operand.threads[0]
    for order in permutations(range(count)):
        moved = [warp for warp, of in enumerate(order) if warp != of]
        if not moved:
            continue
        text = f"warps in the order {', '.join(map(str, order))}"
        if len(moved) == 2:
            text = f"warps {moved[0]} and {moved[1]} swapped"
        take = methodcaller("take", np.array(order), axis=axis)
        yield Mistake(kind, operand.role, text, take, rare=len(moved) == count - 1)
    for warp in range(count):
        take = methodcaller("take", np.full(count, warp), axis=axis)
        yield Mistake(kind, operand.role, f"every warp has the registers of warp {warp}", take)


def _drop_lane(words: Words, *, lane: int) -> Words:
    result = words.copy()
    result[..., lane, :] = 0
    return result


# ---- metadata and scale words


def simple_word_mistakes(operand: AnyOperand) -> Iterator[Mistake]:
    """Yield fields or bytes reversed, and lanes off by one."""
    reverse = partial(exchange_bits, mask=REGISTER_BITS - operand.spec.container)
    fields = "fields" if operand.role == "metadata" else "bytes"
    yield Mistake(_kind(operand, "halves"), operand.role, f"{fields} reversed", reverse)
    yield Mistake(_kind(operand, "lanes"), operand.role, "lanes moved by one", partial(np.roll, shift=1, axis=-1))


def word_mistakes(operand: AnyOperand) -> Iterator[Mistake]:
    """Yield other parts and lanes exchanged, and words that are the same in all lanes."""
    role, parts = operand.role, _kind(operand, "halves")
    for mask, text in PARTS.items():
        if mask != REGISTER_BITS - operand.spec.container and mask in {16, 8, 24, 4, 2}:
            yield Mistake(parts, role, text, partial(exchange_bits, mask=mask), rare=mask < 8)
    for orders, rare in ((lane_orders(), False), (rare_lane_orders(), True)):
        for text, order in orders.items():
            take = methodcaller("take", order, axis=-1)
            yield Mistake(_kind(operand, "lanes"), role, text, take, rare=rare)
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
    """Yield a wrong selector, byte id or thread id, as a change of the words."""
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
    """Return words in which the right immediates read what the wrong ones read in these."""
    return chosen_words(operand, chosen_codes(operand, words, wrong), right)


def chosen_codes(operand: Metadata | Scale, words: Words, choice: Mapping[str, int]) -> NDArray[Any]:
    """Return the codes that words hold for a selector, or for a byte id and a thread id."""
    return (
        operand.unpack(words, **choice) if isinstance(operand, Metadata) else operand.unpack(words, **choice, raw=True)
    )


def chosen_words(operand: Metadata | Scale, codes: NDArray[Any], choice: Mapping[str, int]) -> Words:
    """Return the words that hold codes for a selector, or for a byte id and a thread id."""
    how: dict[str, Any] = {**choice} if isinstance(operand, Metadata) else {**choice, "raw": True}
    return operand.pack(codes, **how)


def written_elsewhere(operand: Metadata | Scale, codes: NDArray[Any], choice: Immediates) -> Iterator[Mistake]:
    """Yield the words of the same codes, written for another selector or id."""
    for text, wrong in _wrong_immediates(operand, part_of(choice, operand.role)):
        words = chosen_words(operand, codes, wrong)
        yield Mistake("selector", operand.role, f"written for {text}", partial(_replaced, by=words))


def _replaced(words: Words, *, by: Words) -> Words:
    return np.broadcast_to(by, words.shape)
