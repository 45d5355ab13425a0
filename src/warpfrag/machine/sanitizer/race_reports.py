"""The findings of the race check: the text, fix and category of an unordered pair of accesses.

`RaceReporter.category` distinguishes races, races in a warp (`lockstep`) and asynchronous accesses (`async`). `races`
names the other categories itself: `unordered` (in `compare_values`) and `fence` (in `check_fence`).
"""

from typing import Any

import numpy as np

from warpfrag.formats.arrays import Mask, Numbers
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.device_memory import Allocation
from warpfrag.machine.interpreter.kernel_findings import FindingCollector, KernelAccess, KernelFinding
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.sanitizer.ordering import Ordering
from warpfrag.machine.sanitizer.shadow_memory import INST_SHIFT, AccessGroup

WHY = {
    "race": "nothing orders them",
    "lockstep": "they are lanes of one warp, and no bar.warp.sync orders them",
    "async": "the operation in flight has not been waited for",
    "unordered": "both are volatile or relaxed, and nothing orders them, so the value depends on timing",
}


FIXES = {
    "race": "put __syncthreads() (bar.sync) between them",
    "global": "use an atomic operation if both update it, otherwise put __syncthreads() between them"
    " (in Triton: tl.atomic_add, tl.debug_barrier)",
    "blocks": "use an atomic operation, let one block write each element, or use a grid-wide barrier",
    "lockstep": "use an atomic operation (atomicAdd, tl.atomic_add) if both update it, otherwise put __syncwarp()"
    " (bar.warp.sync) between them",
    "async": "wait for the asynchronous operation first (cp.async.wait_group, an mbarrier, wgmma.wait_group)",
    "fence": "put fence.proxy.async between them",
    "unordered": "put __syncwarp() or __syncthreads() between them; volatile does not order accesses",
}
"""The usual fix for each category; `blocks` is a race between blocks, `global` one in global memory within a block."""


class RaceReporter:
    """Turns conflicts into findings; `written` lists the arrays that a kernel may change."""

    def __init__(
        self, state: WarpBatch, ordering: Ordering, collector: FindingCollector, written: dict[int, Allocation]
    ) -> None:
        """Create a reporter for a batch, with its ordering and its collector of findings."""
        self.state, self.ordering, self.collector, self.written = state, ordering, collector, written

    def report(
        self, access: AccessGroup, wrong: Mask, entities: Numbers, natures: Numbers, kind: str = "", text: str = ""
    ) -> None:
        """Report one conflict per conflicting instruction, between two warps if possible, and count all accesses."""
        instructions = natures >> INST_SHIFT
        is_own = self.ordering.entities(access.threads)[:, None] // LANES == entities // LANES
        for at in np.unique(instructions[wrong]).tolist():
            chosen = wrong & (instructions == at)
            across = chosen & ~is_own
            index, cell = (int(v) for v in np.argwhere(across if across.any() else chosen)[0])
            mine, other = int(access.entities[index]), int(entities[index, cell])
            thread = int(access.threads[index])
            named = kind or self.category(mine, other, thread)
            first = self.description(mine, self.state.memory.inst, thread)
            second = self.description(other, at, thread)
            place = self.place(access, index)
            who = f"thread {first.thread}" + (f" of block {first.block}" if first.block != second.block else "")
            both = f"{first.operation} by {who} and {second.text} both access {place['name']}"
            scope = "blocks" if first.block != second.block else "global" if place["space"] == "global" else "race"
            self.collector.add(
                KernelFinding(
                    named, first.line, f"{both}: {text or WHY[named]}",
                    block=first.block, thread=first.thread, stack=first.stack, other=second,
                    space=place["space"], address=place["address"], array=place["array"], element=place["element"],
                    fix=(named in {"race", "lockstep"} and scope == "race" and self.loop_fix(at))
                    or FIXES[named if named != "race" else scope],
                ),
                int(chosen.any(axis=1).sum()),
            )  # fmt: skip

    def loop_fix(self, earlier: int) -> str:
        """Return the fix for accesses in two iterations of a loop, or "" for other accesses.

        Accesses are in two iterations if a branch jumps back over both and the later access comes first in the code.
        """
        instructions, now = self.state.program.instructions, self.state.memory.inst
        ends = [
            (at - target, target, at)
            for at, inst in enumerate(instructions[earlier:], earlier)
            for target in inst.targets
            if inst.name.startswith("bra") and target <= now <= earlier
        ]
        if not ends:
            return ""
        _, start, end = min(ends)
        lines = (self.collector.sources.get(inst.line) for inst in instructions[start : end + 1])
        last = max((line.outermost for line in lines if line), key=lambda line: line.line, default=None)
        return f"put __syncthreads() at the end of the loop body{f', after {last}' if last else ''}"

    def category(self, mine: int, other: int, thread: int) -> str:
        """Return the category of an unordered pair that `races` does not name."""
        if other < 0:
            return "async"
        issuer = int(self.ordering.entities(np.array([thread]))[0])
        return "lockstep" if mine >= 0 and issuer // LANES == other // LANES and mine != other else "race"

    def description(self, entity: int, at: int, thread: int) -> KernelAccess:
        """Describe an access: its instruction, its line and its thread."""
        inst = self.state.program.instructions[at]
        opcode = inst.name
        if entity < 0:
            opcode = f"{inst.name} (in flight)"
            name = self.agent_name(entity)
            thread = name if name is not None else thread
            entity = int(self.ordering.entities(np.array([thread]))[0])
        block, own = divmod(entity, self.ordering.per_block)
        x, y, _ = self.state.launch.grid
        i, j, _ = self.state.launch.block
        return KernelAccess(
            opcode, inst.line, (block % x, block // x % y, block // (x * y)), (own % i, own // i % j, own // (i * j)),
            self.stack(entity), self.collector.sources.get(inst.line),
        )  # fmt: skip

    def agent_name(self, entity: int) -> int | None:
        """Return the thread to which an agent belongs, or None."""
        column = int(self.ordering.columns(np.array([entity]))[0])
        name, number = self.ordering.agent_names[column - self.ordering.own_columns] if column >= 0 else ("mbarrier", 0)
        by_mbarrier = dict.fromkeys(("mbarrier", "mbarrier read", "st.async"))
        return {"wgmma": number * LANES, **by_mbarrier}.get(name, number)

    def stack(self, entity: int) -> tuple[int, ...]:
        """Return the lines of a thread's active calls, outermost first."""
        column = int(self.ordering.columns(np.array([entity]))[0])
        calls = self.state.calls
        if column < 0 or self.ordering.share > 1:
            return ()
        warp, lane = divmod(column, LANES)
        depth = int(calls.depth[warp, lane])
        return tuple(self.state.program.instructions[int(at)].line for at in calls.callers[warp, lane, :depth])

    def place(self, access: AccessGroup, index: int) -> dict[str, Any]:
        """Locate an access: return its space, its address, and the caller's array that contains it."""
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
