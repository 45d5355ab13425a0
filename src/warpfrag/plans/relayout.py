"""From one fragment to another: what brings a matrix from the registers it is in to those it should be in.

Both fragments are linear maps to the same matrix, so "from where does each place get its element" is one too: the
inverse of the source after the target. `shuffle_search` finds the fewest shuffles for it; here they become steps on
registers.

1. Within the source lane, elements are put together to packets, and converted if that makes them smaller.
2. Packets change lanes. Where the source lane is the lane itself, nothing happens.
3. Within the target lane, packets are taken apart into registers, and converted if that makes elements larger.

A step that does nothing is left out, so that a plan which only renames registers has no other step.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Literal

from warpfrag.errors import InvalidOperand, quote
from warpfrag.isa.targets import read_target
from warpfrag.layout.axes import Axis
from warpfrag.layout.deprecation import renamed_attributes
from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.layout.gf2 import Echelon
from warpfrag.layout.linear_layout import Layout
from warpfrag.plans.conversions import conversion
from warpfrag.plans.packed_operands import conversion_between, packed
from warpfrag.plans.relayout_steps import (
    WORD_BITS,
    Assembly,
    Convert,
    Permute,
    RegisterSlot,
    Step,
    Transpose,
    cost,
    described,
    fused,
    total_cost,
    whole_word,
)
from warpfrag.plans.shuffle_search import LANE, Select, Shuffle, Swap, combined, find_shuffles
from warpfrag.plans.step_execution import run_step
from warpfrag.tensorcore.operand import Operand

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from warpfrag.formats.arrays import Words
    from warpfrag.layout.coordinates import Coordinate
    from warpfrag.plans.shared_memory_round_trip import SharedMemoryRoundTrip

MATRIX_BITS = 16  # of the elements that movmatrix transposes
WARP = "warp"  # the axis of a fragment that four warps hold together


@frozen_dataclass
class Relayout:
    """How a matrix gets from the registers of one operand to those of another: steps, to run or to print."""

    source: Operand
    target: Operand
    steps: tuple[Step, ...]
    permutation: tuple[int, ...] | None = None
    permuted: Literal["row", "col"] | None = None

    @property
    def is_free(self) -> bool:
        """Whether nothing crosses lanes and nothing is permuted within one, beyond renames and conversions of pairs."""
        return all(isinstance(step, Convert) or (isinstance(step, Permute) and step.renames) for step in self.steps)

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many instructions of each kind every lane runs; renames cost none."""
        counts = dict.fromkeys(("shfl", "movmatrix", "select", "prmt", "cvt"), 0)
        for step in self.steps:
            kind, count = cost(step)
            counts[kind] += count
        return counts

    @property
    def cost(self) -> int:
        """Instructions in all, and a pass more for each shuffle and movmatrix; see `relayout_steps.price`."""
        return total_cost(self.steps)

    @cached_property
    def through_memory(self) -> SharedMemoryRoundTrip | None:
        """A store to shared memory and a load from it that cost less than these steps; None where none does."""
        return self.cheaper_round_trip()

    def cheaper_round_trip(self, legal_on: str | None = None) -> SharedMemoryRoundTrip | None:
        """The same with what one target has."""
        from warpfrag.plans.shared_memory_round_trip import plan_through_memory

        target = None if legal_on is None else read_target(legal_on, "relayout", "target").name
        plan = None if self.is_free or self.permutation else plan_through_memory(self.source, self.target, target)
        return plan if plan and plan.cost < self.cost else None

    if not TYPE_CHECKING:
        __getattr__ = renamed_attributes({"cheaper_trip": "cheaper_round_trip"})

    @property
    def verdict(self) -> str:
        """Whether anything moves, in a sentence."""
        if not self.steps:
            return "Nothing moves: the registers are the same."
        if self.is_free:
            cvt = self.counts["cvt"]
            return f"Free: no element changes its lane{f'; {cvt} cvt convert' if cvt else ''}."
        crosses = self.counts["shfl"] or self.counts["movmatrix"]
        moved = "Elements change lanes" if crosses else "Elements move within their lanes"
        return f"{moved}: {self}. Cost {self.cost} (instructions + shared-memory passes)."

    @property
    def permutation_text(self) -> str:
        """What the permutation asks of whoever uses it, in a sentence; nothing where there is none."""
        if not self.permutation:
            return ""
        whole, other = ("column", "rows") if self.permuted == "col" else ("row", "columns")
        order = " ".join(map(str, self.permutation))
        return (
            f"Target {whole} j holds source {whole} p[j]. Give the {other} of the other factor in the order p: {order}"
        )

    def __repr__(self) -> str:
        """What it costs, and between which operands."""
        return f"<Relayout {self}\n from {_summary(self.source)}\n to {_summary(self.target)}>"

    def _repr_html_(self) -> str:
        """A card for notebooks: the verdict, the operands and every step."""
        from warpfrag.html import card, escape, table

        ends = [(word, _summary(end)) for word, end in (("from", self.source), ("to", self.target))]
        steps = [(*map(str, cost(step)), described(step)) for step in self.steps]
        notes = [text for text in (self.verdict, self.permutation_text) if text]
        return card(
            "<code>Relayout</code>",
            *(f"<p>{escape(text)}</p>" for text in notes),
            table(("", "operand"), ends),
            table(("instruction", "count", "what each lane does"), steps) if steps else "",
        )

    def __str__(self) -> str:
        """What it costs, in one line."""
        parts = ", ".join(f"{count} {kind}" for kind, count in self.counts.items() if count)
        return f"free{f': {parts}' if parts else ''}" if self.is_free else parts

    def __call__(self, words: ArrayLike) -> Words:
        """The registers of the target, uint32[..., 32, words], from those of the source."""
        import numpy as np

        state = self.source.check_words(words)
        for step in self.steps:
            state = run_step(step, state, self.source.row, self.target.row)
        return np.ascontiguousarray(state, np.uint32)

    def emit(self, lang: str = "cuda", name: str = "relayout") -> str:
        """As code: a device function in CUDA, a function in PTX."""
        from warpfrag.codegen.relayout_code import emit_steps

        about = f"{self}. {self.permutation_text}".rstrip(". ")
        return emit_steps(self.source, self.target, self.steps, lang=lang, name=name, about=about)


def _summary(operand: Operand) -> str:
    shape = " x ".join(map(str, operand.layout.shape))
    return f"{operand.role} of {operand.instruction}: {shape} of {operand.format} in {operand.regs} registers"


def relayout(source: Operand, target: Operand, *, permute: Literal["row", "col"] | None = None) -> Relayout:
    """The cheapest plan from the registers of one operand to those of another that holds the same matrix.

    Formats may differ: values are converted to nearest even, saturating where PTX's cvt does. With `permute="col"` the
    columns of the target may come in any order that keeps every element in its lane, and `permutation` says which:
    target column j holds source column permutation[j]. The rows of the other factor must then come in that order too.
    """
    _check(source, target)
    end, permutation = target.layout, None
    if permute is not None:
        order = find_permutation(source.layout, target.layout, permute)
        end, permutation = order @ target.layout, tuple(_counted(order, permute))
    _check_warps(source.layout, end)
    plans = [_plan(source, target, source.layout, end)]
    if source.row.container == MATRIX_BITS:
        plans.append(_transposed(source, target, end))
    elif target.row.container == MATRIX_BITS < source.row.container and source.format != target.format:
        plans += [
            (conversion_between(source, half), *_transposed(half, target, end)) for half in packed(source, target)
        ]
    return Relayout(source, target, min(plans, key=total_cost), permutation, permute)


def _transposed(source: Operand, target: Operand, end: Layout) -> tuple[Step, ...]:
    """The steps where movmatrix comes first, on the words that are needed: copies may not be."""
    steps = _plan(source, target, source.layout @ _movmatrix(source.layout), end)
    if not steps or not isinstance(steps[0], Permute | Convert):
        return Transpose(tuple(range(source.words))), *steps
    needed = tuple(sorted({cell.word for cells in steps[0].words for cell in cells if cell}))
    words = tuple(
        tuple(cell and RegisterSlot(needed.index(cell.word), cell.slot) for cell in cells) for cells in steps[0].words
    )
    return Transpose(needed), *_without_idle([replace(steps[0], words=words), *steps[1:]], len(needed))


def _check(source: Operand, target: Operand) -> None:
    for name, operand in (("source", source), ("target", target)):
        if not isinstance(operand, Operand):
            msg = f"the {name} of a relayout is an operand such as mma.d or mma.a.tiled(col=2), got {quote(operand)}"
            raise InvalidOperand(msg)
        if operand.home == "tensor":
            msg = (
                f"the {name} of a relayout lies in registers; {operand.described} lies in tensor memory: load it first"
            )
            raise InvalidOperand(msg)
    if source.layout.outs != target.layout.outs or source.threads != target.threads:
        mine, its = (
            f"{' x '.join(f'{size} {name}s' for name, size in operand.layout.outs.items())} in {_threads(operand)}"
            for operand in (source, target)
        )
        msg = f"a relayout keeps the matrix: the source has {mine}, the target {its}{_advice(source, target)}"
        raise InvalidOperand(msg)
    conversion(source.format.name, target.format.name)  # refuses what nothing converts


def _threads(operand: Operand) -> str:
    warps = math.prod(operand.threads[:-1])
    return f"{warps} warps" if warps > 1 else "a warp"


def _advice(source: Operand, target: Operand) -> str:
    """What to tile, where that is all that is needed."""
    if source.threads != target.threads:
        return ""
    calls = []
    for name, operand, other in (("source", source, target), ("target", target, source)):
        mine, its = operand.layout.outs, other.layout.outs
        if list(mine) != list(its) or any(max(mine[dim], its[dim]) % min(mine[dim], its[dim]) for dim in mine):
            return "; tiled() puts tiles side by side"
        counts = {dim: its[dim] // mine[dim] for dim in mine if its[dim] > mine[dim]}
        if counts:
            calls.append(f"{name}.tiled({', '.join(f'{dim}={count}' for dim, count in counts.items())})")
    return f"; tiled() puts tiles side by side: {' and '.join(calls)}"


def _check_warps(start: Layout, end: Layout) -> None:
    """Refuse what would bring elements from warp to warp, or move them differently in each: shuffles stay in a warp."""
    if WARP in end.ins and not (start.inverse() @ end).is_trivial_over(WARP):
        msg = (
            "elements would change warps, or move differently in each, which no shuffle does: store the matrix"
            " in shared memory, let all warps meet at a barrier, and load it from there"
        )
        raise InvalidOperand(msg)


class _Lane:
    """The cells of one lane, numbered by the bits of slot and reg; larger digits count repeats of all that."""

    def __init__(self, layout: Layout) -> None:
        digits = [(axis, *digit) for axis in ("slot", "reg") for digit in layout.digits(axis)]
        self.bits = [(axis, weight) for axis, weight, radix in digits if radix == 2]
        self.larger = [(axis, weight, radix) for axis, weight, radix in digits if radix != 2]

    def direction(self, place: Coordinate) -> int:
        """A place as `shuffle_search` takes it, whatever its repeat."""
        at = place._asdict()
        return at["lane"] << LANE | sum((at[axis] // weight & 1) << bit for bit, (axis, weight) in enumerate(self.bits))

    def repeats(self) -> list[dict[str, int]]:
        """The first register and slot of each repeat."""
        starts = []
        for digits in product(*(range(radix) for *_, radix in self.larger)):
            at = {"reg": 0, "slot": 0}
            for (axis, weight, _), digit in zip(self.larger, digits, strict=True):
                at[axis] += weight * digit
            starts.append(at)
        return starts

    def repeat_of(self, place: Coordinate) -> dict[str, int]:
        """The first register and slot of the repeat that a place is in."""
        at = {"reg": 0, "slot": 0}
        for axis, weight, radix in self.larger:
            at[axis] += weight * (place._asdict()[axis] // weight % radix)
        return at

    def cell(self, number: int, start: dict[str, int]) -> RegisterSlot:
        """A cell of the repeat that starts there."""
        at = dict(start)
        for bit, (axis, weight) in enumerate(self.bits):
            at[axis] += weight * (number >> bit & 1)
        return RegisterSlot(at["reg"], at["slot"])

    def slot_directions(self) -> list[int]:
        """The directions from slot to slot of one register, low first."""
        return [1 << bit for bit, (axis, _) in enumerate(self.bits) if axis == "slot"]


def _plan(source: Operand, target: Operand, start: Layout, end: Layout) -> tuple[Step, ...]:
    """The steps from layout `start` of the source's registers to layout `end` of the target's."""
    pull = start.inverse() @ end
    own, its = _Lane(start), _Lane(end)
    zero = dict.fromkeys(pull.ins, 0)
    # of an element that the source holds several times, the copy in the lane that wants it is the best
    copies = [own.direction(place) for place in start.where(**start.at(**zero)._asdict())]

    def image(lane: int = 0, **unit: int) -> int:
        """Where the element comes from that is one step away from the first place."""
        direction = own.direction(pull.at(**zero | {"lane": lane} | unit))
        return min(
            (direction ^ copy for copy in copies), key=lambda source_place: ((source_place >> LANE) ^ lane).bit_count()
        )

    lanes = [image(lane=1 << bit) for bit in range(end.lanes.bit_length() - 1)]
    cells = [image(**{axis: weight}) for axis, weight in its.bits]
    stored = [(operand.format.name, operand.row.container, operand.row.low) for operand in (source, target)]
    bits = min(source.row.container, target.row.container)
    slots = max(1, WORD_BITS // bits).bit_length() - 1
    early = stored[0] != stored[1] and target.row.container <= source.row.container
    late = stored[0] != stored[1] and not early
    moves = find_shuffles(lanes, cells, slots, _liked(cells, own, its, late=late))
    if moves is None:
        msg = f"no plan of shuffles is known from {source!r} to {target!r}"
        raise InvalidOperand(msg)

    def converted(words: Assembly) -> Step:
        return Convert(source.format.name, target.format.name, words)

    def permuted(words: Assembly) -> Step:
        return Permute(bits, words)

    packets: list[tuple[RegisterSlot | None, ...]] = []
    homes: dict[RegisterSlot, RegisterSlot] = {}  # where each cell of the target is found among the words that arrived
    rounds = len(moves.shuffle.flips)
    for number, to in enumerate(its.repeats()):
        since = own.repeat_of(pull.at(**zero | to))
        made = [tuple(own.cell(cell, since) for cell in packet) for packet in moves.packets]
        packets += [(*cells_of, *[None] * ((1 << slots) - len(cells_of))) for cells_of in made]
        for cell, (word, slot) in enumerate(moves.cells):
            homes[its.cell(cell, to)] = RegisterSlot(number * rounds + word, slot)
    wanted = tuple(tuple(homes[RegisterSlot(reg, slot)] for slot in range(target.slots)) for reg in range(target.regs))
    repeats = len(its.repeats())
    if moves.crosses:
        steps = [
            (converted if early else permuted)(tuple(packets)),
            *(_repeated(step, repeats) for step in (*moves.publish, moves.shuffle, *moves.receive)),
            (converted if late else permuted)(wanted),
        ]
    else:  # nothing changes lanes: packets need not be made, only to be taken apart again
        order = [number * len(moves.packets) + word for number in range(repeats) for word in moves.order]
        direct = tuple(tuple(packets[order[cell.word]][cell.slot] for cell in cells_of) for cells_of in wanted)
        steps = [(converted if early or late else permuted)(direct)]
    wide = source.row.register_bits // WORD_BITS
    return tuple(fused(_widened(step, wide) for step in _without_idle(steps, source.regs)))


def _liked(cells: list[int], own: _Lane, its: _Lane, *, late: bool) -> list[int]:
    """Directions along which a packet costs least: along the slots of both sides, then of one.

    What is converted late is taken apart in any case, so that its new slots do not matter.
    """
    everything = range(1 << len(cells))
    target = [] if late else its.slot_directions()
    source = [bits for slot in own.slot_directions() for bits in everything if combined(bits, cells) == slot]
    return [bits for bits in target if bits in source] + target + source


def _repeated(step: Step, repeats: int) -> Step:
    """A step on the words of one repeat, done for all of them."""
    if isinstance(step, Select):
        width = len(step.words)
        before = max(step.words) + 1 if not step.mask else width
        return Select(step.mask, tuple(repeat * before + word for repeat in range(repeats) for word in step.words))
    if isinstance(step, Shuffle):
        return Shuffle(step.columns, step.flips * repeats)
    if isinstance(step, Swap):
        return Swap(step.mask, step.flip, step.words * repeats)
    return step


def _widened(step: Step, words: int) -> Step:
    """A step on registers of several words, as one on words."""
    if words == 1:
        return step
    each = range(words)
    if isinstance(step, Permute):
        cells = [
            [cell and RegisterSlot(cell.word * words + part, 0) for cell in cells_of]
            for cells_of in step.words
            for part in each
        ]
        return Permute(WORD_BITS, tuple(map(tuple, cells)))
    if isinstance(step, Select):
        return Select(step.mask, tuple(word * words + part for word in step.words for part in each))
    if isinstance(step, Shuffle):
        return Shuffle(step.columns, tuple(flip for flip in step.flips for _ in each))
    return step


def _without_idle(steps: list[Step], words: int) -> list[Step]:
    """The steps that do something, where there are so many words at first."""
    active = []
    for step in steps:
        idle = False
        if isinstance(step, Permute | Convert):
            idle = isinstance(step, Permute) and [*map(whole_word, step.words)] == [*range(words)]
            words = len(step.words)
        elif isinstance(step, Select):
            idle = not step.mask and list(step.words) == [*range(words)]
            words = len(step.words)
        elif isinstance(step, Shuffle):
            idle = all(flip is None for flip in step.flips)
        if not idle:
            active.append(step)
    return active


# ---- permuted columns, and movmatrix


def find_permutation(source: Layout, target: Layout, axis: str) -> Layout:
    """The order of one coordinate, as a map of elements, in which the target finds every element in its own lane."""
    if not isinstance(axis, str) or axis not in target.outs or list(source.outs) != list(target.outs):
        msg = f"permute is one of {', '.join(target.outs)}, got {quote(axis)}"
        raise InvalidOperand(msg)
    identity = {name: Axis.of_size(name, size) for name, size in target.outs.items()}
    weights = [weight for weight, radix in target.inverse().digits(axis) if radix == 2]
    zero = dict.fromkeys(target.outs, 0)

    def lane(layout: Layout, **element: int) -> tuple[int, int]:
        place = layout.inverse().at(**zero | element)._asdict()
        return place.get(WARP, 0), place["lane"]

    taken, chosen = Echelon(), []
    for weight in weights:
        options = sorted(range(1, target.outs[axis]), key=lambda option: (option.bit_count(), option))
        wanted = lane(target, **{axis: weight})
        choice = next(
            (option for option in options if taken.rest(option) and lane(source, **{axis: option}) == wanted), None
        )
        if choice is None:
            msg = f"no order of the {axis}s keeps every element in its lane"
            raise InvalidOperand(msg)
        taken.add(choice)
        chosen.append(choice)
    for name in target.outs:
        moved = [weight for weight, _ in target.inverse().digits(name) if name != axis]
        if any(lane(target, **{name: weight}) != lane(source, **{name: weight}) for weight in moved):
            msg = f"no order of the {axis}s keeps every element in its lane: the {name}s lie in other lanes"
            raise InvalidOperand(msg)
    steps = {name: chosen if name == axis else full.weights for name, full in identity.items()}
    bases = {name: " ".join(f"{name[0]}{step}" for step in some) for name, some in steps.items()}
    return Layout.parse(target.outs, **bases)


def _counted(order: Layout, axis: str) -> list[int]:
    """A permutation of one coordinate, index by index."""
    zero = dict.fromkeys(order.ins, 0)
    return [order.at(**zero | {axis: index})._asdict()[axis] for index in range(order.ins[axis])]


def _movmatrix(layout: Layout) -> Layout:
    """From which place movmatrix fills each place, register by register."""
    from warpfrag.tensorcore.registry import get

    mover = get("movmatrix.sync.aligned.m8n8.trans.b16")
    others = {name: size for name, size in layout.ins.items() if name in {WARP, "reg"}}
    return (mover.a.layout.inverse() @ mover.d.layout) * Layout.identity(**others)
