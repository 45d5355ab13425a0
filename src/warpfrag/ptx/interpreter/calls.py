"""Calls of functions: how arguments and results are passed, where each lane returns to, and frames.

The registers of a function exist once. A call that may recurse saves the caller's registers in a frame, and moves the
start of its local memory; the return restores both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from warpfrag.errors import Fault, PtxError
from warpfrag.layout.coordinates import LANES
from warpfrag.ptx.program.program import Discard, MemoryOperand, VectorOperand
from warpfrag.ptx.program.types import TYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.ptx.interpreter.lane_group import LaneGroup
    from warpfrag.ptx.interpreter.warp_state import WarpState
    from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand
    from warpfrag.ptx.program.types import Codes

MAX_CALL_DEPTH = 1024
B64 = TYPES["b64"]
KINDS = {1: TYPES["b8"], 2: TYPES["b16"], 4: TYPES["b32"], 8: TYPES["b64"]}


class CallStacks:
    """The call stacks of all lanes: `depth`, the steps to return to (`callers`), the registers that callers `saved`."""

    def __init__(self, state: WarpState) -> None:
        """Start with every lane in the entry, at depth 0."""
        self.state = state
        self.depth = np.zeros((state.warps, LANES), np.int64)
        self.callers = np.zeros((state.warps, LANES, 0), np.int64)
        self.saved: dict[tuple[int, int], Codes] = {}  # by depth and register

    def call(self, at: int, step: DecodedInstruction, group: LaneGroup) -> None:
        """Copy the arguments, and push the step to return to."""
        depth = group.of(self.depth)
        deepest = int(depth[group.mask].max())
        if deepest + 1 >= self.callers.shape[2]:
            if deepest >= MAX_CALL_DEPTH:
                raise PtxError(step.line, f"expected at most {MAX_CALL_DEPTH} nested calls")
            more = np.zeros((self.state.warps, LANES, 8), np.int64)
            self.callers = np.concatenate([self.callers, more], axis=2)
        args = [bytes_of(group, copy.source, copy.size) for copy in step.copies]
        if step.saves:
            for level in np.unique(depth[group.mask]):
                self._save(step, group.part(group.mask & (depth == level)), int(level))
        if step.deepens:
            self._move_frame(group, self.state.program.frame_bytes)
        for copy, data in zip(step.copies, args, strict=True):
            put_bytes(group, copy.target, data)
        warps, lanes = self._places(group)
        self.callers[warps, lanes, self.depth[warps, lanes]] = at
        self.depth[warps, lanes] += 1

    def return_(self, group: LaneGroup) -> None:
        """Pop the step that each lane returns to, and copy the results."""
        state = self.state
        warps, lanes = self._places(group)
        self.depth[warps, lanes] -= 1
        returned = self.callers[warps, lanes, self.depth[warps, lanes]]
        where = np.nonzero(group.mask)
        for caller in np.unique(returned):
            mask = np.zeros(group.mask.shape, np.bool_)
            chosen = returned == caller
            mask[where[0][chosen], where[1][chosen]] = True
            part = group.part(mask)
            step = state.program.steps[int(caller)]
            results = [bytes_of(part, copy.source, copy.size) for copy in step.returns]
            if step.deepens:
                self._move_frame(part, -state.program.frame_bytes)
            if step.saves:
                depth = part.of(self.depth)
                for level in np.unique(depth[mask]):
                    self._restore(step, part.part(mask & (depth == level)), int(level))
            for copy, data in zip(step.returns, results, strict=True):
                put_bytes(part, copy.target, data)
            part.put(state.pc, int(caller) + 1)

    def _places(self, group: LaneGroup) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        warps, lanes = np.nonzero(group.mask)
        return group.warp_rows[warps], lanes

    def _save(self, step: DecodedInstruction, group: LaneGroup, level: int) -> None:
        for register in step.saves:
            codes = self.state.registers[register.index]
            if (level, register.index) not in self.saved:
                self.saved[level, register.index] = np.zeros_like(codes)
            group.put(self.saved[level, register.index], group.of(codes))

    def _restore(self, step: DecodedInstruction, group: LaneGroup, level: int) -> None:
        for register in step.saves:
            group.write(register, group.of(self.saved[level, register.index]))

    def _move_frame(self, group: LaneGroup, by: int) -> None:
        frame = self.state.program.frame
        group.write(frame, group.read(frame, B64) + np.uint64(by & ((1 << 64) - 1)))


def bytes_of(group: LaneGroup, source: PtxOperand, size: int) -> NDArray[np.uint8]:
    """The bytes of an argument of some lanes, [lanes, size]."""
    if isinstance(source, MemoryOperand):
        memory = group.state.memory
        return memory.local[_local_bytes(group, source, size)]
    if isinstance(source, VectorOperand):
        part = size // len(source.items)
        return np.concatenate([bytes_of(group, item, part) for item in source.items], axis=1)
    codes = group.values(source, KINDS[size])
    return np.ascontiguousarray(codes).view(np.uint8).reshape(len(codes), size)


def put_bytes(group: LaneGroup, target: PtxOperand, data: NDArray[np.uint8]) -> None:
    """Write the bytes of an argument or a result, [lanes, size]."""
    if isinstance(target, MemoryOperand):
        group.state.memory.local[_local_bytes(group, target, data.shape[1])] = data
    elif isinstance(target, VectorOperand):
        for item, piece in zip(target.items, np.split(data, len(target.items), axis=1), strict=True):
            put_bytes(group, item, piece)
    elif not isinstance(target, Discard):
        codes: Codes = np.ascontiguousarray(data).view(KINDS[data.shape[1]].dtype)[:, 0]
        group.write(target, group.scatter(codes))


def _local_bytes(group: LaneGroup, place: MemoryOperand, size: int) -> NDArray[np.int64]:
    """Where the bytes of a parameter lie in the local memory of all lanes, [lanes, size]."""
    stride = group.state.memory.local_stride
    offsets = group.addresses(place).astype(np.int64)
    wrong = (offsets < 0) | (offsets > stride - size)
    if wrong.any():
        raise Fault(int(wrong.argmax()), f"the nested calls need more than {stride} bytes of local memory")
    starts: NDArray[np.int64] = group.owners.threads * stride + offsets
    return starts[:, None] + np.arange(size)
