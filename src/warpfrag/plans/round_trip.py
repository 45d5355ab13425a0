"""Relayout through shared memory: the source stores the matrix there, the target loads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Literal

from warpfrag.layout.linear_layout import Layout
from warpfrag.plans.access_plan import AccessPlan
from warpfrag.plans.loads import LINE, loads, stores
from warpfrag.plans.relayout_operations import Convert, RegisterSlot, RelayoutOperation, total_cost
from warpfrag.smem.shared_memory import Memory
from warpfrag.tensorcore.operand import Operand

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from warpfrag.formats.arrays import Words


def packed(wide: Operand, narrow: Operand) -> Iterator[Operand]:
    """Yield an operand with its elements in the smaller format of another, in every choice of joined registers."""
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


def conversion_between(source: Operand, target: Operand) -> Convert:
    """Return the operation from one operand to another with the same lanes and another format."""
    words = []
    for reg in range(target.regs):
        first = dict.fromkeys(target.layout.ins, 0)
        elements = [target.layout.at(**first | {"reg": reg, "slot": slot})._asdict() for slot in range(target.slots)]
        places = [
            next(place for place in source.layout.where(**element) if not any(place[:-2])) for element in elements
        ]
        words.append(tuple(RegisterSlot(place.reg, place.slot) for place in places))
    return Convert(source.format.name, target.format.name, tuple(words))


BARRIER = 1  # __syncwarp() between the store and the load


@dataclass(frozen=True)
class SharedMemoryRoundTrip:
    """A store and a load, with a conversion before or after them."""

    source: Operand
    target: Operand
    before: tuple[RelayoutOperation, ...]
    store: AccessPlan
    load: AccessPlan
    after: tuple[RelayoutOperation, ...]

    @property
    def cost(self) -> int:
        """The cost, as for a relayout, with one instruction for the barrier between store and load."""
        return total_cost(self.before) + self.store.cost + BARRIER + self.load.cost + total_cost(self.after)

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that have both."""
        return tuple(target for target in self.store.targets if target in self.load.targets)

    @property
    def memory(self) -> Memory:
        """The memory that holds the matrix in between."""
        return self.store.memory

    def __call__(self, words: ArrayLike) -> Words:
        """Return the registers of the target, uint32[32, words], from those of the source."""
        import numpy as np

        from warpfrag.plans.relayout_execution import run_operation

        state = self.source.check_words(words)
        for op in self.before:
            state = run_operation(op, state, self.source.spec, self.target.spec)
        stored = self.store.operand
        rows, cols = stored.layout.shape
        memory = np.zeros(self.memory.size((rows, cols), stored.spec.container), np.uint8)
        state = self.load.load(self.store.store(state, memory))
        for op in self.after:
            state = run_operation(op, state, self.source.spec, self.target.spec)
        return np.ascontiguousarray(state, np.uint32)

    def __repr__(self) -> str:
        """Show both instructions and the cost."""
        return f"<SharedMemoryRoundTrip {self}; cost {self.cost}>"

    def __str__(self) -> str:
        """Show both instructions in one line."""
        return f"{self.store.name}, then {self.load.name}, in {self.memory.description}"


def plan_through_memory(source: Operand, target: Operand, legal_on: str | None = None) -> SharedMemoryRoundTrip | None:
    """Return the cheapest round trip through shared memory; None if there is none, as for several matrices at once.

    With `legal_on`, only what that target has: `stmatrix` comes with sm_90.
    """
    if any(
        operand.layout.dims != ("row", "col") or len(operand.threads) != 1 or operand.spec.register_bits != 32
        for operand in (source, target)
    ):
        return None
    candidates = []
    for stored, loaded in _stored(source, target):
        before: tuple[RelayoutOperation, ...] = () if stored is source else (conversion_between(source, stored),)
        after: tuple[RelayoutOperation, ...] = () if loaded is target else (conversion_between(loaded, target),)
        for memory in _memories(stored):
            every = (stores(stored, memory), loads(loaded, memory))
            legal = [[plan for plan in some if legal_on is None or legal_on in plan.targets] for some in every]
            plans = [some[0] for some in legal if some]
            if len(plans) == 2:
                candidates.append(SharedMemoryRoundTrip(source, target, before, plans[0], plans[1], after))
    return min(candidates, key=lambda candidate: (candidate.cost, candidate.memory.swizzle), default=None)


def _stored(source: Operand, target: Operand) -> Iterator[tuple[Operand, Operand]]:
    """Yield operands to store and load: the operands themselves, the one with larger elements packed as the other."""
    if (source.format, source.spec.container, source.spec.low) == (
        target.format,
        target.spec.container,
        target.spec.low,
    ):
        yield source, target
    elif source.spec.container >= target.spec.container:
        yield from ((packed, target) for packed in packed(source, target))
    else:
        yield from ((source, packed) for packed in packed(target, source))


def _memories(stored: Operand) -> Iterator[Memory]:
    """Yield memories without gaps, and with each swizzle, in both orders."""
    orders: tuple[Literal["row", "col"], ...] = ("row", "col")
    for order in orders:
        tight = max(LINE, stored.layout.outs["col" if order == "row" else "row"] * stored.spec.container // 8)
        yield Memory(order, tight)
        for swizzle in (32, 64, 128):
            yield Memory(order, -(-tight // swizzle) * swizzle, swizzle)
