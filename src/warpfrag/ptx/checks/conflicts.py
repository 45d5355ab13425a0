"""What a finding of two accesses says: its kind, both sides in words, and where in memory they meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpfrag.layout.coordinates import LANES
from warpfrag.ptx.checks.findings import KernelAccess, KernelFinding
from warpfrag.ptx.checks.shadow import STEP_SHIFT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.ptx.checks.findings import FindingCollector
    from warpfrag.ptx.checks.ordering import Ordering
    from warpfrag.ptx.checks.shadow import ShadowMemory
    from warpfrag.ptx.interpreter.memory import Allocation
    from warpfrag.ptx.interpreter.warp_batch import WarpBatch

    Bytes = NDArray[np.uint8]
    Numbers = NDArray[np.int64]

WHY = {
    "race": "nothing orders them",
    "lockstep": "they are lanes of one warp, and no bar.warp.sync orders them",
    "async": "it has not been waited for",
}


class AccessGroup(NamedTuple):
    """Accesses of one step to one buffer: who issues them, who makes them, where, and of what nature."""

    buffer: Bytes
    shadow: ShadowMemory
    cells: Numbers  # [accesses, cells of each]
    offsets: Numbers
    size: int
    threads: Numbers  # that issue them, in the batch
    entities: Numbers
    nature: int
    codes: NDArray[Any] | None = None  # what plain stores write


class ConflictReporter:
    """Makes findings of conflicts; `written` has the arrays that a kernel may change."""

    def __init__(
        self, state: WarpBatch, ordering: Ordering, collector: FindingCollector, written: dict[int, Allocation]
    ) -> None:
        """Nothing is reported yet."""
        self.state, self.ordering, self.collector, self.written = state, ordering, collector, written

    def report(
        self,
        access: AccessGroup,
        wrong: NDArray[np.bool_],
        entities: Numbers,
        natures: Numbers,
        kind: str = "",
        text: str = "",
    ) -> None:
        """Report the first of some conflicts, and count them by the accesses that take part."""
        steps = natures >> STEP_SHIFT
        for at in np.unique(steps[wrong]).tolist():
            chosen = wrong & (steps == at)
            index, cell = (int(v) for v in np.argwhere(chosen)[0])
            mine, other = int(access.entities[index]), int(entities[index, cell])
            thread = int(access.threads[index])
            named = kind or self.kind_of(mine, other, thread)
            first = self.described(mine, self.state.memory.step, thread)
            second = self.described(other, at, thread)
            place = self.place(access, index)
            why = text or WHY[named]
            self.collector.add(
                KernelFinding(
                    named, first.line, f"{first.what} and {second.text} both access {place['name']}: {why}",
                    block=first.block, thread=first.thread, stack=first.stack, other=second,
                    space=place["space"], address=place["address"], array=place["array"], element=place["element"],
                ),
                int(chosen.any(axis=1).sum()),
            )  # fmt: skip

    def kind_of(self, mine: int, other: int, thread: int) -> str:
        """Which kind of conflict it is."""
        if other < 0:
            return "async"
        issuer = int(self.ordering.entities(np.array([thread]))[0])
        if mine >= 0 and issuer // LANES == other // LANES:
            return "lockstep" if mine != other else "race"
        return "race"

    def described(self, entity: int, at: int, thread: int) -> KernelAccess:
        """An access in words: the instruction, its line and its thread."""
        step = self.state.program.steps[at]
        what = f"{step.name}"
        if entity < 0:
            what = f"{step.name} (in flight)"
            name = self.agent_name(entity)
            thread = name if name is not None else thread
            entity = int(self.ordering.entities(np.array([thread]))[0])
        block, own = divmod(entity, self.ordering.per_block)
        x, y, _ = self.state.launch.grid
        i, j, _ = self.state.launch.block
        return KernelAccess(
            what, step.line, (block % x, block // x % y, block // (x * y)), (own % i, own // i % j, own // (i * j)),
            self.stack(entity),
        )  # fmt: skip

    def agent_name(self, entity: int) -> int | None:
        """The thread of an agent, where it is one's."""
        column = int(self.ordering.columns(np.array([entity]))[0])
        if column < 0:
            return None
        name = self.ordering.agent_names[column - self.ordering.own_columns]
        if not isinstance(name, tuple):
            return None
        return {"wgmma": int(name[1]) * LANES, "mbarrier": None, "st.async": None}.get(name[0], int(name[1]))

    def stack(self, entity: int) -> tuple[int, ...]:
        """The lines of the calls that a thread is in now, outermost first."""
        column = int(self.ordering.columns(np.array([entity]))[0])
        calls = self.state.calls
        if column < 0 or self.ordering.share > 1:
            return ()
        warp, lane = divmod(column, LANES)
        depth = int(calls.depth[warp, lane])
        return tuple(self.state.program.steps[int(at)].line for at in calls.callers[warp, lane, :depth])

    def place(self, access: AccessGroup, index: int) -> dict[str, Any]:
        """Where an access lies: space, address, and the array of the caller."""
        offset = int(access.offsets[index])
        memory = self.state.memory
        if access.buffer is memory.shared:
            address = offset % memory.shared_stride
            return {
                "space": "shared", "address": address, "array": "", "element": None,
                "name": f"shared memory at {address:#x}",
            }  # fmt: skip
        home = self.written[id(access.buffer)]
        element = offset // access.size
        return {
            "space": "global", "address": home.start + offset, "array": home.name, "element": element,
            "name": f"{home.name} at byte {offset}",
        }  # fmt: skip
