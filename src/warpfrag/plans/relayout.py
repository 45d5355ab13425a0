"""Relayout: move a matrix from the registers of one fragment to those of another.

Both fragments are linear maps to the same matrix. The map from each target register to its source is then linear too:
the target layout followed by the inverse of the source layout. `shuffle_search` finds the fewest shuffles for it; this
module turns them into operations on registers.

1. Within the source lane, elements are packed into packets; they are converted first if that makes them smaller.
2. Packets change lanes. If the source lane is the lane itself, nothing happens.
3. Within the target lane, packets are unpacked into registers; elements are converted here if that makes them larger.

Operations that do nothing are omitted, so a plan that only renames registers has no other operations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations, product
from typing import TYPE_CHECKING, Literal

from warpfrag.errors import InvalidOperand, quote
from warpfrag.html import card, escape, table
from warpfrag.layout import providers
from warpfrag.layout.axes import Axes, Axis
from warpfrag.layout.bit_matrix import Echelon
from warpfrag.layout.coordinates import Coordinate
from warpfrag.layout.linear_layout import Layout
from warpfrag.plans import relayout_operations as ops
from warpfrag.plans.relayout_check import is_right, origins
from warpfrag.plans.shuffle_search import LANE, Select, Shuffle, Swap, combined, find_shuffles
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import find, get

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from warpfrag.formats.arrays import Words

MATRIX_BITS = 16  # the size in bits of the elements that movmatrix transposes
WARP = "warp"  # the axis that is distributed over four warps


@dataclass(frozen=True)
class Relayout:
    """A plan that moves a matrix from one operand's registers to another's; it can be run or emitted as code."""

    source: Operand
    target: Operand
    operations: tuple[ops.RelayoutOperation, ...]
    permutation: tuple[int, ...] | None = None
    permuted: Literal["row", "col"] | None = None

    @property
    def is_free(self) -> bool:
        """True if the plan only renames registers and converts pairs of elements."""
        return all(
            isinstance(op, ops.Convert) or (isinstance(op, ops.Permute) and op.renames) for op in self.operations
        )

    @cached_property
    def counts(self) -> dict[str, int]:
        """The number of instructions that every lane executes, by name; renames need none."""
        counts = dict.fromkeys(("shfl", "movmatrix", "select", "prmt", "cvt"), 0)
        for op in self.operations:
            instruction, count = ops.cost(op)
            counts[instruction] += count
        return counts

    @property
    def cost(self) -> int:
        """The cost of all instructions, plus a pass for each shuffle and movmatrix; see `relayout_operations.price`."""
        return ops.total_cost(self.operations)

    @property
    def verdict(self) -> str:
        """A sentence that describes how the elements move."""
        if not self.operations:
            return "Nothing moves: the registers are the same."
        if self.is_free:
            cvt = self.counts["cvt"]
            return f"Free: no element changes its lane{f'; {cvt} cvt convert' if cvt else ''}."
        crosses = self.counts["shfl"] or self.counts["movmatrix"]
        moved = "Elements change lanes" if crosses else "Elements move within their lanes"
        return f"{moved}: {self}. Cost {self.cost} (instructions + shared-memory passes)."

    @property
    def permutation_text(self) -> str:
        """A sentence that explains how to apply the permutation, or an empty string."""
        if not self.permutation:
            return ""
        whole, other = ("column", "rows") if self.permuted == "col" else ("row", "columns")
        order = " ".join(map(str, self.permutation))
        return f"Target {whole} j holds source {whole} p[j]. Permute the {other} of the other factor by p too: {order}"

    def __repr__(self) -> str:
        """Format the cost and both operands."""
        return f"<Relayout {self}\n from {_summary(self.source)}\n to {_summary(self.target)}>"

    def _repr_html_(self) -> str:
        """Return an HTML card for notebooks: the verdict, the operands and every operation."""
        ends = [(word, _summary(end)) for word, end in (("from", self.source), ("to", self.target))]
        operations = [(*map(str, ops.cost(op)), ops.described(op)) for op in self.operations]
        notes = [text for text in (self.verdict, self.permutation_text) if text]
        return card(
            "<code>Relayout</code>",
            *(f"<p>{escape(text)}</p>" for text in notes),
            table(("", "operand"), ends),
            table(("instruction", "count", "operation in each lane"), operations) if operations else "",
        )

    def __str__(self) -> str:
        """Format the cost in one line."""
        parts = ", ".join(f"{count} {instruction}" for instruction, count in self.counts.items() if count)
        return f"free{f': {parts}' if parts else ''}" if self.is_free else parts

    def __call__(self, words: ArrayLike) -> Words:
        """Return the target's registers, uint32[..., 32, registers], computed from those of the source."""
        from warpfrag.plans.relayout_execution import move

        ends = self.source.spec, self.target.spec
        return move(self.source.check_words(words), origins(self.operations, *ends), *ends)

    def emit(self, lang: str = "cuda", name: str = "") -> str:
        """Return the code, as `wf.emit` does; the function is called `relayout` unless `name` is given."""
        return providers.emit_plan(self, lang, name)


def _summary(operand: Operand) -> str:
    shape = " x ".join(map(str, operand.layout.shape))
    return f"{operand.role} of {operand.instruction}: {shape} of {operand.format} in {operand.regs} registers"


def relayout(source: Operand, target: Operand, *, permute: Literal["row", "col"] | None = None) -> Relayout:
    """Return the cheapest plan that moves a matrix from the registers of one operand to those of another.

    If the formats differ, values are rounded to nearest even, with the saturation of PTX's cvt. With `permute="col"`,
    the columns of the target may be permuted so that every element stays in its lane: target column j holds source
    column permutation[j]. The rows of the other factor must then be permuted in the same way.
    """
    _check(source, target)
    end, permutation = target.layout, None
    if permute is not None:
        order = find_permutation(source.layout, target.layout, permute)
        end, permutation = order @ target.layout, tuple(_counted(order, permute))
    _check_warps(source.layout, end)
    plans = [_plan(source, target, source.layout, end)]
    if source.spec.container == MATRIX_BITS:
        plans.append(_transposed(source, target, end))
    elif target.spec.container == MATRIX_BITS < source.spec.container and source.format != target.format:
        plans += [
            (conversion_between(source, half), *_transposed(half, target, end)) for half in packed(source, target)
        ]
    for operations in sorted(plans, key=ops.total_cost):
        if is_right(operations, source.spec, target.spec, end):
            return Relayout(source, target, operations, permutation, permute)
    raise InvalidOperand(
        f"no plan from {_summary(source)} to {_summary(target)} could be proved correct: store the matrix in shared"
        " memory and load it from there"
    )


def packed(wide: Operand, narrow: Operand) -> Iterator[Operand]:
    """Yield an operand with elements in another operand's smaller format, for each way to join registers."""
    joined = (narrow.layout.slots // wide.layout.slots).bit_length() - 1
    steps = {name: wide.layout.steps(name) for name in wide.layout.ins}
    if any(step.radix != 2 for name in ("reg", "slot") for step in steps[name]):
        return
    for chosen in combinations(steps["reg"], joined):
        reg = [step for step in steps["reg"] if step not in chosen]
        layout = Layout.of_steps(wide.layout.outs, {**steps, "reg": reg, "slot": [*steps["slot"], *chosen]})
        container, low = narrow.spec.container, narrow.spec.low
        row = replace(wide.spec, layout=layout, format=narrow.format, container=container, low=low)
        yield replace(wide, spec=row)


def conversion_between(source: Operand, target: Operand) -> ops.Convert:
    """Return the operation that converts an operand to another with the same lanes and a different format."""
    words = []
    for reg in range(target.regs):
        first = dict.fromkeys(target.layout.ins, 0)
        elements = [target.layout.at(**first | {"reg": reg, "slot": slot})._asdict() for slot in range(target.slots)]
        holders = [
            next(holder for holder in source.layout.where(**element) if not any(holder[:-2])) for element in elements
        ]
        words.append(tuple(ops.RegisterSlot(holder.reg, holder.slot) for holder in holders))
    return ops.Convert(source.format.name, target.format.name, tuple(words))


def _transposed(source: Operand, target: Operand, end: Layout) -> tuple[ops.RelayoutOperation, ...]:
    """Return the operations of a plan that starts with movmatrix on the required registers."""
    operations = _plan(source, target, source.layout @ _movmatrix(source.layout), end)
    if not operations or not isinstance(operations[0], ops.Permute | ops.Convert):
        return ops.Transpose(tuple(range(source.words))), *operations
    needed = tuple(sorted({cell.word for cells in operations[0].words for cell in cells if cell}))
    words = tuple(
        tuple(cell and ops.RegisterSlot(needed.index(cell.word), cell.slot) for cell in cells)
        for cells in operations[0].words
    )
    return ops.Transpose(needed), *_without_idle([replace(operations[0], words=words), *operations[1:]], len(needed))


def _check(source: Operand, target: Operand) -> None:
    for name, operand in (("source", source), ("target", target)):
        if not isinstance(operand, Operand):
            raise InvalidOperand(
                f"{name}: expected an operand such as mma.d or mma.a.tiled(col=2), got {quote(operand)}"
            )
        if operand.storage == "tensor":
            raise InvalidOperand(
                f"the {name} of a relayout must be in registers, but {operand.description} is in tensor memory; load it"
            )
    if source.layout.outs != target.layout.outs or source.threads != target.threads:
        mine, its = (
            f"{' x '.join(f'{size} {name}s' for name, size in operand.layout.outs.items())} in {_threads(operand)}"
            for operand in (source, target)
        )
        raise InvalidOperand(
            f"source and target must have the same extents and threads; the source has {mine}, the target {its}"
            f"{_advice(source, target)}"
        )
    ops.conversion(source.format.name, target.format.name)  # raises an error if there is no conversion


def _threads(operand: Operand) -> str:
    warps = math.prod(operand.threads[:-1])
    return f"{warps} warps" if warps > 1 else "a warp"


def _advice(source: Operand, target: Operand) -> str:
    """Return advice to tile an operand if that makes a relayout possible, or an empty string."""
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
    """Raise an error if elements would have to move between warps, or differently in each warp.

    Shuffles cannot do that.
    """
    if WARP in end.ins and not (start.inverse() @ end).is_trivial_over(WARP):
        raise InvalidOperand(
            "elements would move between warps, or differently in each warp, which shuffles cannot do: store the matrix"
            " in shared memory, wait for all warps at a barrier, and load it from there"
        )


class _Lane:
    """The cells of one lane, numbered by the bits of slot and reg; digits larger than a bit count repetitions."""

    def __init__(self, axes: Axes) -> None:
        by_name = {axis.name: zip(axis.weights, axis.radices, strict=True) for axis in axes}
        digits = [(axis, *digit) for axis in ("slot", "reg") for digit in by_name[axis]]
        self.bits = [(axis, weight) for axis, weight, radix in digits if radix == 2]
        self.larger = [(axis, weight, radix) for axis, weight, radix in digits if radix != 2]

    def direction(self, holder: Coordinate) -> int:
        """Return the lane and cell of a place as one integer, as in `shuffle_search`; the repetition is ignored."""
        at = holder._asdict()
        return at["lane"] << LANE | sum((at[axis] // weight & 1) << bit for bit, (axis, weight) in enumerate(self.bits))

    def repeats(self) -> list[dict[str, int]]:
        """Return the first register and slot of each repetition."""
        starts = []
        for digits in product(*(range(radix) for *_, radix in self.larger)):
            at = {"reg": 0, "slot": 0}
            for (axis, weight, _), digit in zip(self.larger, digits, strict=True):
                at[axis] += weight * digit
            starts.append(at)
        return starts

    def repeat_of(self, holder: Coordinate) -> dict[str, int]:
        """Return the first register and slot of the repetition to which a place belongs."""
        at = {"reg": 0, "slot": 0}
        for axis, weight, radix in self.larger:
            at[axis] += weight * (holder._asdict()[axis] // weight % radix)
        return at

    def cell(self, number: int, start: dict[str, int]) -> ops.RegisterSlot:
        """Return the register and slot of a cell in the repetition that starts at `start`."""
        at = dict(start)
        for bit, (axis, weight) in enumerate(self.bits):
            at[axis] += weight * (number >> bit & 1)
        return ops.RegisterSlot(at["reg"], at["slot"])

    def slot_directions(self) -> list[int]:
        """The directions from slot to slot within a register, lowest first."""
        return [1 << bit for bit, (axis, _) in enumerate(self.bits) if axis == "slot"]


def _plan(source: Operand, target: Operand, start: Layout, end: Layout) -> tuple[ops.RelayoutOperation, ...]:
    """Return the operations that convert source registers with layout `start` to target registers with layout `end`."""
    pull = start.inverse() @ end
    # cut both sides as the composed map does: 6 registers may be 2 x 3 or 3 x 2
    own, its = _Lane(pull.out_axes), _Lane(pull.in_axes)
    zero = dict.fromkeys(pull.ins, 0)
    # prefer the copy of an element in the lane that needs it
    copies = [own.direction(holder) for holder in start.where(**start.at(**zero)._asdict())]

    def image(lane: int = 0, **unit: int) -> int:
        """Return the direction in the source that corresponds to one bit of the target's lane or cell."""
        direction = own.direction(pull.at(**zero | {"lane": lane} | unit))
        return min(
            (direction ^ copy for copy in copies), key=lambda source_place: ((source_place >> LANE) ^ lane).bit_count()
        )

    lanes = [image(lane=1 << bit) for bit in range(end.lanes.bit_length() - 1)]
    cells = [image(**{axis: weight}) for axis, weight in its.bits]
    stored = [(operand.format.name, operand.spec.container, operand.spec.low) for operand in (source, target)]
    bits = min(source.spec.container, target.spec.container)
    slots = max(1, ops.WORD_BITS // bits).bit_length() - 1
    early = stored[0] != stored[1] and target.spec.container <= source.spec.container
    late = stored[0] != stored[1] and not early
    moves = find_shuffles(lanes, cells, slots, _preferred_directions(cells, own, its, late=late))
    if moves is None:
        raise InvalidOperand(f"no shuffle plan is known from {source!r} to {target!r}")

    def converted(words: ops.Assembly) -> ops.RelayoutOperation:
        return ops.Convert(source.format.name, target.format.name, words)

    def permuted(words: ops.Assembly) -> ops.RelayoutOperation:
        return ops.Permute(bits, words)

    packets: list[tuple[ops.RegisterSlot | None, ...]] = []
    homes: dict[ops.RegisterSlot, ops.RegisterSlot] = {}  # the location of each target cell among the received words
    rounds = len(moves.shuffle.flips)
    for number, to in enumerate(its.repeats()):
        since = own.repeat_of(pull.at(**zero | to))
        made = [tuple(own.cell(cell, since) for cell in packet) for packet in moves.packets]
        packets += [(*cells_of, *[None] * ((1 << slots) - len(cells_of))) for cells_of in made]
        for cell, (word, slot) in enumerate(moves.cells):
            homes[its.cell(cell, to)] = ops.RegisterSlot(number * rounds + word, slot)
    wanted = tuple(
        tuple(homes[ops.RegisterSlot(reg, slot)] for slot in range(target.slots)) for reg in range(target.regs)
    )
    repeats = len(its.repeats())
    if moves.crosses:
        operations = [
            (converted if early else permuted)(tuple(packets)),
            *(_repeated(op, repeats) for op in (*moves.publish, moves.shuffle, *moves.receive)),
            (converted if late else permuted)(wanted),
        ]
    else:  # nothing changes lanes, so packing and unpacking are not needed
        order = [number * len(moves.packets) + word for number in range(repeats) for word in moves.order]
        direct = tuple(tuple(packets[order[cell.word]][cell.slot] for cell in cells_of) for cells_of in wanted)
        operations = [(converted if early or late else permuted)(direct)]
    wide = source.spec.register_bits // ops.WORD_BITS
    return tuple(ops.fused(_widened(op, wide) for op in _without_idle(operations, source.regs)))


def _preferred_directions(cells: list[int], own: _Lane, its: _Lane, *, late: bool) -> list[int]:
    """Return the cheapest directions for packets: those along slots of both sides, then those along slots of one side.

    Elements that are converted at the end are unpacked anyway, so their new slots do not matter.
    """
    everything = range(1 << len(cells))
    target = [] if late else its.slot_directions()
    source = [bits for slot in own.slot_directions() for bits in everything if combined(bits, cells) == slot]
    return [bits for bits in target if bits in source] + target + source


def _repeated(op: ops.RelayoutOperation, repeats: int) -> ops.RelayoutOperation:
    """Extend an operation on the registers of one repetition to all repetitions."""
    if isinstance(op, Select):
        before = len(op.words) if op.mask else max(op.words) + 1
        return Select(op.mask, tuple(repeat * before + word for repeat in range(repeats) for word in op.words))
    if isinstance(op, Shuffle):
        return Shuffle(op.columns, op.flips * repeats)
    return Swap(op.mask, op.flip, op.words * repeats) if isinstance(op, Swap) else op


def _widened(op: ops.RelayoutOperation, words: int) -> ops.RelayoutOperation:
    """Convert an operation on wide registers to one on 32-bit registers."""
    if words == 1:
        return op
    each = range(words)
    if isinstance(op, ops.Permute):
        cells = [
            [cell and ops.RegisterSlot(cell.word * words + part, 0) for cell in cells_of]
            for cells_of in op.words
            for part in each
        ]
        return ops.Permute(ops.WORD_BITS, tuple(map(tuple, cells)))
    if isinstance(op, Select):
        return Select(op.mask, tuple(word * words + part for word in op.words for part in each))
    if isinstance(op, Shuffle):
        return Shuffle(op.columns, tuple(flip for flip in op.flips for _ in each))
    return op


def _without_idle(operations: list[ops.RelayoutOperation], words: int) -> list[ops.RelayoutOperation]:
    """Remove the operations that do nothing; `words` is the initial number of registers."""
    active = []
    for op in operations:
        idle = False
        if isinstance(op, ops.Permute | ops.Convert):
            idle = isinstance(op, ops.Permute) and [*map(ops.whole_word, op.words)] == [*range(words)]
            words = len(op.words)
        elif isinstance(op, Select):
            idle = not op.mask and list(op.words) == [*range(words)]
            words = len(op.words)
        elif isinstance(op, Shuffle):
            idle = all(flip is None for flip in op.flips)
        if not idle:
            active.append(op)
    return active


# ---- permuted columns, and movmatrix


def find_permutation(source: Layout, target: Layout, axis: str) -> Layout:
    """Return the permutation of one coordinate, as a map, with which every element stays in its lane."""
    if not isinstance(axis, str) or axis not in target.outs or list(source.outs) != list(target.outs):
        raise InvalidOperand(f"permute: expected one of {', '.join(target.outs)}, got {quote(axis)}")
    axes = {name: Axis.of_size(name, size) for name, size in target.outs.items()}
    bits = [weight for weight, radix in zip(axes[axis].weights, axes[axis].radices, strict=True) if radix == 2]
    zero = dict.fromkeys(target.outs, 0)

    def lane(layout: Layout, **element: int) -> tuple[int, int]:
        holder = layout.inverse().at(**zero | element)._asdict()
        return holder.get(WARP, 0), holder["lane"]

    taken, chosen = Echelon(), []
    for weight in bits:
        options = sorted(range(1, 1 << len(bits)), key=lambda option: (option.bit_count(), option))
        wanted = lane(target, **{axis: weight})
        choice = next(
            (option for option in options if taken.rest(option) and lane(source, **{axis: option}) == wanted), None
        )
        if choice is None:
            raise InvalidOperand(f"no order of the {axis}s keeps every element in its lane")
        taken.add(choice)
        chosen.append(choice)
    steps = {}
    for at, (name, full) in enumerate(axes.items()):
        moves = [*chosen, *full.weights[len(chosen) :]] if name == axis else full.weights
        for weight, move in zip(full.weights, moves, strict=True):
            if weight == move and lane(target, **{name: weight}) != lane(source, **{name: weight}):
                raise InvalidOperand(
                    f"no order of the {axis}s keeps every element in its lane: the {name}s are in different lanes"
                )
        steps[name] = [
            (radix, tuple(move if at == place else 0 for place in range(len(axes))))
            for radix, move in zip(full.radices, moves, strict=True)
        ]
    return Layout.of_steps(target.outs, steps)


def _counted(order: Layout, axis: str) -> list[int]:
    """Return the permutation of one coordinate as a list of indices."""
    zero = dict.fromkeys(order.ins, 0)
    return [order.at(**zero | {axis: index})._asdict()[axis] for index in range(order.ins[axis])]


def _movmatrix(layout: Layout) -> Layout:
    """Return the layout that maps each place after movmatrix to the place before it, register by register."""
    mover = get("movmatrix.sync.aligned.m8n8.trans.b16")
    others = {name: size for name, size in layout.ins.items() if name in {WARP, "reg"}}
    return (mover.a.layout.inverse() @ mover.d.layout) * Layout.identity(**others)


MAX_TILES = 4
WIDTH = 64  # the columns of D in the listed warpgroup fragments; n may be 8 to 256


@cache
def fragments() -> tuple[Operand, ...]:
    """Return every distinct fragment of mma, mma.sp, wmma on sm_90 and ldmatrix."""
    return _distinct(
        operand
        for instruction in find()
        if instruction.op == "ldmatrix" or _multiplies(instruction, "warp")
        for operand in (instruction.a, instruction.b, instruction.c, instruction.d)
    )


@cache
def warpgroup_fragments() -> tuple[Operand, ...]:
    """Return every distinct warpgroup fragment.

    D is listed for one width, because its registers repeat every 8 columns.
    """
    return _distinct(
        operand
        for instruction in find()
        if _multiplies(instruction, "warpgroup")
        for operand in (instruction.a, instruction.d if instruction.shape.n == WIDTH else None)
    )


def _multiplies(instruction: Instruction, scope: str) -> bool:
    operation = instruction.form.operation
    return (operation.does, operation.scope) == ("multiply", scope)


def _distinct(operands: Iterable[Operand | None]) -> tuple[Operand, ...]:
    """Return the first operand for each distinct layout and format."""
    by_fragment: dict[object, Operand] = {}
    for operand in operands:
        if operand is not None and operand.storage != "shared" and not operand.spec.unknown:
            by_fragment.setdefault((operand.layout, operand.format, operand.spec.container, operand.spec.low), operand)
    return tuple(by_fragment.values())


def tiled_alike(source: Operand, target: Operand, max_tiles: int = MAX_TILES) -> tuple[Operand, Operand] | None:
    """Tile both operands to equal extents; return None if that takes too many tiles or there is no conversion."""
    outs = source.layout.outs, target.layout.outs
    if list(outs[0]) != list(outs[1]):
        return None
    if source.format != target.format and (source.format.name, target.format.name) not in ops.conversions():
        return None
    counts = [{name: max(1, other[name] // mine[name]) for name in mine} for mine, other in (outs, outs[::-1])]
    if max(*counts[0].values(), *counts[1].values()) > max_tiles:
        return None
    return source.tiled(**counts[0]), target.tiled(**counts[1])
