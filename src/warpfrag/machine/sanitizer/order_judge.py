"""Decides whether unspecified order or unwritten values can change the memory that machine code leaves.

The race check compares accesses (`races`). Machine code has fewer synchronisation instructions than PTX, because lanes
that run together need none: lanes of a warp are ordered here as long as they have taken the same branches since they
last met (BSYNC, WARPSYNC). Atomics on one address are judged too: unordered ones must commute, and their old values
must not be used.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.kernel_findings import Check, FindingCollector
from warpfrag.machine.interpreter.lane_group import LaneGroup, items_of
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.interpreter.warp_state import LaunchPart
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import DecodedInstruction, Discard, PtxOperand, Register, registers_of
from warpfrag.machine.ir.scalar_types import B32, B64, Codes
from warpfrag.machine.sanitizer.checked_batch import CheckedWarpBatch, LaunchChecks
from warpfrag.machine.sanitizer.conflicts import ShadowMemory
from warpfrag.machine.sanitizer.instruction_observer import InstructionObserver
from warpfrag.machine.sanitizer.ordering import LaunchOrder
from warpfrag.machine.sanitizer.races import RaceCheck
from warpfrag.machine.sanitizer.sync_tracking import NO_INIT_FENCE
from warpfrag.machine.sanitizer.unwritten import UnwrittenCheck

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
JUDGED: tuple[Check, ...] = ("races", "uninitialised", "async")
ORDERED_BY_WARP = (
    actions.MemoryLoad | actions.MemoryStore | actions.Atomic | actions.AsyncCopy | actions.BulkCopy
    | actions.TensorCopy | actions.AsyncStore | actions.MemoryBarrier | actions.MatrixOp | actions.ClusterBarrier
)  # fmt: skip
COMMUTING = {"add", "min", "max", "and", "or", "xor"}
BITWISE = {"lop3", "plop3", "p2r"}
"""Bitwise operations: each result bit depends on one bit of each operand."""
MAX_VARIANTS = 1 << 6
R2UR_SOURCES = 3  # the value, the guard, and the old value
MAX_LAYERS = 16  # atomic layers per word


class JudgedOrder(RaceCheck):
    """The race check for machine code, in which lanes that have not diverged run in lockstep."""

    def __init__(
        self,
        state: WarpBatch,
        order: LaunchOrder,
        shadows: dict[int, ShadowMemory],
        numbers: list[int],
        collector: FindingCollector,
    ) -> None:
        """Create the check with all lanes of a warp in one class."""
        super().__init__(state, order, shadows, numbers, collector)
        self.classes = np.zeros((self.state.warps, LANES), np.int64)
        self.next_class = 1
        self.atomics: dict[tuple[int, int], list[AtomicLayer]] = {}  # by buffer and offset
        instructions = self.state.program.instructions
        targets = {target for inst in instructions for target in inst.targets}
        self.meetings = {
            at + 1: inst
            for at, inst in enumerate(instructions)
            if isinstance(inst.action, actions.Reconverge) and at + 1 not in targets and inst.guard is None
        }
        self.sensitive = {at for at, inst in enumerate(instructions) if is_order_sensitive(inst)}

    def arrive(self, at: int, group: LaneGroup) -> None:
        """Update the classes before an instruction: lanes join after BSYNC and split at branches."""
        inst = self.state.program.instructions[at]
        met = self.meetings.get(at)
        if met is not None:
            self.renumber(group, group.read(met.sources[0], B32).astype(np.int64), joins=True)
        action = inst.action
        if isinstance(action, actions.Branch) and inst.guard is not None:
            self.renumber(group, group.of(self.state.registers[inst.guard.index]).astype(np.int64))
        if isinstance(action, actions.Jump) or (isinstance(action, actions.Branch) and action.indexed):
            self.renumber(group, group.read(inst.sources[0], B64).astype(np.int64))
        if isinstance(action, ORDERED_BY_WARP):
            self.order_lanes(group)

    def renumber(self, group: LaneGroup, values: Numbers, *, joins: bool = False) -> None:
        """Split classes by value; if `joins` is set, lanes with equal values get the same class."""
        mask, old = group.mask, group.of(self.classes)
        first = np.where(mask, values, values[np.arange(len(mask)), mask.argmax(axis=1)][:, None])
        if not joins and (first == first[:, :1]).all():
            return
        rows = np.broadcast_to(np.arange(len(mask))[:, None], mask.shape)[mask]
        keys = [rows, values[mask]] if joins else [rows, values[mask], old[mask]]
        _, numbers = np.unique(np.stack(keys), axis=1, return_inverse=True)
        new = old.copy()
        new[mask] = self.next_class + numbers.reshape(-1)
        self.next_class += int(mask.sum())
        group.put(self.classes, new)

    def order_lanes(self, group: LaneGroup) -> None:
        """Order the lanes of a group that are in one class, because they have run the same instructions."""
        classes, mask = group.of(self.classes), group.mask
        whole = mask.all(axis=1) & (classes == classes[:, :1]).all(axis=1)
        if whole.any():
            self.ordering.sync_warps(group.warp_rows[whole].astype(np.int64))
        for row in np.nonzero(~whole & mask.any(axis=1))[0].tolist():
            for own in np.unique(classes[row][mask[row]]).tolist():
                lanes = np.nonzero(mask[row] & (classes[row] == own))[0]
                if len(lanes) > 1:
                    self.ordering.sync_lanes(int(group.warp_rows[row]) * LANES + lanes)

    def after(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Join the lanes of a WARPSYNC."""
        super().after(inst, group)
        if isinstance(inst.action, actions.WarpWait):
            self.renumber(group, group.read(inst.sources[-1], B32).astype(np.int64), joins=True)

    def update(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Compare atomics with earlier atomics on the same words."""
        super().update(buffer, offsets, size, threads)
        if self.shadow_of(buffer) is None:
            return
        at, action = self.state.memory.inst, self.inst.action
        name = getattr(action, "name", "")
        is_sensitive = at in self.sensitive or name not in COMMUTING
        seen: set[int] = set()
        for offset, thread in zip(offsets.tolist(), threads.tolist(), strict=True):
            layers = self.atomics.setdefault((id(buffer), offset), [])
            if is_sensitive and offset in seen:
                self.report_atomic(thread, "lanes of a warp")
            elif not all(self.follows(layer, thread, name, is_sensitive=is_sensitive) for layer in layers):
                self.report_atomic(thread, "several warps or blocks")
            seen.add(offset)
            self.keep(layers, thread, name, is_sensitive=is_sensitive)

    def keep(self, layers: list[AtomicLayer], thread: int, name: str, *, is_sensitive: bool) -> None:
        """Add an atomic to the layers of its word."""
        entity = int(self.ordering.entities(np.array([thread]))[0])
        new = AtomicLayer(entity, self.ordering.now, name, is_sensitive, entity // self.ordering.per_block)
        last = layers[-1] if layers else None
        if last is not None and last.entity == entity and not last.is_group:
            same_name = name if name == last.name else ""
            layers[-1] = new._replace(name=same_name, is_sensitive=is_sensitive or last.is_sensitive)
        elif last is not None and last.name == name and not is_sensitive and not last.is_sensitive:
            layers[-1] = new._replace(block=new.block if new.block == last.block else -1, is_group=True)
        elif len(layers) < MAX_LAYERS:
            layers.append(new)
        else:
            self.collector.leave_out("atomics: too many update one word to track them all")

    def follows(self, layer: AtomicLayer, thread: int, name: str, *, is_sensitive: bool) -> bool:
        """Return True if an atomic commutes with a layer's atomics or is ordered after them."""
        if not is_sensitive and not layer.is_sensitive and layer.name == name:
            return True
        own = int(self.ordering.entities(np.array([thread]))[0])
        if layer.is_group:  # several threads: only a barrier of their block orders all of them
            is_near = layer.block == own // self.ordering.per_block
            return is_near and bool(self.ordering.floor[thread] >= layer.time)
        asked = np.array([thread]), np.array([layer.entity]), np.array([layer.time])
        return layer.entity == own or bool(self.ordering.knows(*asked)[0])

    def report_atomic(self, thread: int, who: str) -> None:
        """Report an atomic whose order matters."""
        text = f"{self.inst.name}: {who} update one address, and the order of these atomics changes the result"
        self.report("unordered", thread, text)


class AtomicLayer(NamedTuple):
    """Commuting atomics on one word: the last thread and time, the operation, and the block (-1 for several)."""

    entity: int
    time: int
    name: str
    is_sensitive: bool
    block: int
    is_group: bool = False  # True if several threads are involved


def is_order_sensitive(inst: DecodedInstruction) -> bool:
    """Return True if the order of unordered atomics with this instruction changes memory or registers."""
    action = inst.action
    if not isinstance(action, actions.Atomic):
        return False
    results = [item for operand in inst.results for item in items_of(operand)]
    is_used = action.returns and any(not isinstance(item, Discard) for item in results)
    return action.is_float or is_used or action.name not in COMMUTING


class JudgedValues(UnwrittenCheck):
    """The check of unwritten values for machine code, which may read registers without using them."""

    def __init__(self, state: WarpBatch, collector: FindingCollector, marked: dict[int, Bytes]) -> None:
        """Find the uniform registers, which all lanes of a warp share."""
        super().__init__(state, collector, marked)
        self.uniform: set[int] = set()
        for inst in self.state.program.instructions:
            for operand in (*inst.results, *inst.sources):
                self.uniform |= {item.index for item in registers_of(operand) if item.name.startswith("U")}

    def put(self, group: LaneGroup, operand: PtxOperand, mask: Codes) -> None:
        """Set the mask of a register; a uniform register is written for the whole warp."""
        super().put(group, operand, mask)
        if isinstance(operand, Register) and operand.index in self.uniform:
            own = self.masks[operand.index]
            active = group.mask.any(axis=1)
            rows = group.warp_rows[active]
            value = own[rows, group.mask[active].argmax(axis=1)]
            own[rows] = value[:, None]
            self.is_marked[operand.index] = bool(own.any())

    def put_clean(self, group: LaneGroup, operand: PtxOperand) -> None:
        """Clear the marks of an operand's registers."""
        for item in items_of(operand):
            if isinstance(item, Register) and item.index in self.uniform and self.is_marked[item.index]:
                self.put(group, item, np.zeros(group.mask.shape, self.masks[item.index].dtype))
            else:
                super().put_clean(group, item)

    def computed(self, inst: DecodedInstruction, action: actions.LaneOp, group: LaneGroup) -> list[Codes]:
        """Return the masks of the results; bitwise operations are evaluated with both values of each unwritten bit."""
        if inst.attributes.opcode not in BITWISE:
            return super().computed(inst, action, group)
        types = [kind or B32 for kind in action.sources]
        values = [group.read(operand, kind) for operand, kind in zip(inst.sources, types, strict=True)]
        masks = [self.mask_of(operand)[group.warp_rows] for operand in inst.sources]
        marked = [at for at, mask in enumerate(masks) if ((mask != 0) & group.mask).any()]
        if 1 << len(marked) > MAX_VARIANTS and inst.attributes.opcode != "p2r":
            return super().computed(inst, action, group)
        if inst.attributes.opcode == "p2r":
            choices = [[], *([at] for at in marked)]  # a bit of the result depends on one operand
        else:
            choices = [[at for bit, at in enumerate(marked) if number >> bit & 1] for number in range(1 << len(marked))]
        results: list[Codes] = []
        for chosen in choices:
            variant = list(values)
            for at in marked:
                mask = masks[at].astype(values[at].dtype)
                variant[at] = values[at] | mask if at in chosen else values[at] & ~mask
            constants = [
                int(item.flat[0]) if kind is None else item for item, kind in zip(variant, action.sources, strict=True)
            ]
            found = action.function(*constants)
            results.append(found[0] if isinstance(found, tuple) else found)
        changed = np.zeros_like(results[0])
        for found in results[1:]:
            changed = changed | (found ^ results[0])
        return [changed] * len(inst.results)

    def collected(self, inst: DecodedInstruction, action: actions.WarpCollective, group: LaneGroup) -> list[Codes]:
        """Return the masks of the results; R2UR takes the mask of the lane that it reads."""
        if inst.attributes.opcode != "first_value" or len(inst.sources) != R2UR_SOURCES:
            return super().collected(inst, action, group)
        masks = [self.mask_of(operand)[group.warp_rows] for operand in inst.sources]
        if ((masks[1] != 0) & group.mask).any():
            return super().collected(inst, action, group)
        held = group.read(inst.sources[1], action.sources[1])
        moved = action.function(group.mask, masks[0].astype(np.uint32), held, masks[2].astype(np.uint32))
        return [moved[0] if isinstance(moved, tuple) else moved]


class JudgedWarpBatch(CheckedWarpBatch):
    """A batch of blocks whose machine code is judged."""

    def order_check(self, numbers: list[int]) -> RaceCheck:
        """Create the race check."""
        checks = self.checks
        return JudgedOrder(self, checks.order, checks.shadows, numbers, checks.collector)

    def unwritten_checks(self) -> list[InstructionObserver]:
        """Create the observer that tracks unwritten values."""
        return [JudgedValues(self, self.checks.collector, self.checks.marks(self.memory))]

    def run_inst(self, at: int, group: LaneGroup) -> bool:
        """Update the lane classes, then run the instruction."""
        if isinstance(self.races, JudgedOrder):
            self.races.arrive(at, group)
        return super().run_inst(at, group)


class LaunchJudge(LaunchChecks):
    """The judge of one launch."""

    def batch(self, part: LaunchPart) -> JudgedWarpBatch:
        """Create a judged batch of blocks."""
        return JudgedWarpBatch(part, self)

    @property
    def reasons(self) -> list[str]:
        """The reasons why the result may depend on unspecified behaviour; empty if it cannot."""
        found = [f"{item.line:#x}: {item.text}" for item in self.collector.findings]
        return found + [reason for reason in self.collector.unjudged if reason != NO_INIT_FENCE]
