"""Calls of functions: arguments and results on their way, the way back of every lane, and frames.

The registers of a function are there once. A call that may come back to its caller keeps the caller's registers in a
frame, and moves the start of its local memory; the return gives both back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.errors import Fault, PtxError
from warpfrag.ptx.program.program import Place, Sink, Vector
from warpfrag.ptx.program.types import TYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.ptx.interpreter.lane_group import Group
    from warpfrag.ptx.interpreter.warp_state import Warps
    from warpfrag.ptx.program.program import Operand, Step
    from warpfrag.ptx.program.types import Codes

DEEPEST_CALLS = 1024
B64 = TYPES["b64"]
KINDS = {1: TYPES["b8"], 2: TYPES["b16"], 4: TYPES["b32"], 8: TYPES["b64"]}


class Calls:
    """Where every lane of a wave was called from, and what its callers keep."""

    def __init__(self, wave: Warps) -> None:
        """Every lane is in the entry."""
        self.wave = wave
        self.depth = np.zeros((wave.warps, 32), np.int64)
        self.back = np.zeros((wave.warps, 32, 0), np.int64)
        self.kept: dict[tuple[int, int], Codes] = {}  # by depth and register

    def call(self, at: int, step: Step, group: Group) -> None:
        """Copy the arguments and remember the way back."""
        depth = group.of(self.depth)
        deepest = int(depth[group.mask].max())
        if deepest + 1 >= self.back.shape[2]:
            if deepest >= DEEPEST_CALLS:
                raise PtxError(step.line, f"expected at most {DEEPEST_CALLS} calls inside each other")
            more = np.zeros((self.wave.warps, 32, 8), np.int64)
            self.back = np.concatenate([self.back, more], axis=2)
        given = [bytes_of(group, copy.source, copy.size) for copy in step.copies]
        if step.saves:
            for level in np.unique(depth[group.mask]):
                self._keep(step, group.part(group.mask & (depth == level)), int(level))
        if step.deepens:
            self._move_frame(group, self.wave.program.frame_bytes)
        for copy, data in zip(step.copies, given, strict=True):
            put_bytes(group, copy.target, data)
        warps, lanes = self._places(group)
        self.back[warps, lanes, self.depth[warps, lanes]] = at
        self.depth[warps, lanes] += 1

    def leave(self, group: Group) -> None:
        """Back to where each lane was called from, with the results."""
        wave = self.wave
        warps, lanes = self._places(group)
        self.depth[warps, lanes] -= 1
        callers = self.back[warps, lanes, self.depth[warps, lanes]]
        where = np.nonzero(group.mask)
        for caller in np.unique(callers):
            mask = np.zeros(group.mask.shape, np.bool_)
            chosen = callers == caller
            mask[where[0][chosen], where[1][chosen]] = True
            part = group.part(mask)
            step = wave.program.steps[int(caller)]
            given = [bytes_of(part, copy.source, copy.size) for copy in step.returns]
            if step.deepens:
                self._move_frame(part, -wave.program.frame_bytes)
            if step.saves:
                depth = part.of(self.depth)
                for level in np.unique(depth[mask]):
                    self._give_back(step, part.part(mask & (depth == level)), int(level))
            for copy, data in zip(step.returns, given, strict=True):
                put_bytes(part, copy.target, data)
            part.put(wave.place, int(caller) + 1)

    def _places(self, group: Group) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        rows = group.rows if group.rows is not None else np.arange(self.wave.warps)
        warps, lanes = np.nonzero(group.mask)
        return rows[warps], lanes

    def _keep(self, step: Step, group: Group, level: int) -> None:
        for register in step.saves:
            codes = self.wave.registers[register.index]
            if (level, register.index) not in self.kept:
                self.kept[level, register.index] = np.zeros_like(codes)
            group.put(self.kept[level, register.index], group.of(codes))

    def _give_back(self, step: Step, group: Group, level: int) -> None:
        for register in step.saves:
            group.write(register, group.of(self.kept[level, register.index]))

    def _move_frame(self, group: Group, by: int) -> None:
        frame = self.wave.program.frame
        group.write(frame, group.read(frame, B64) + np.uint64(by & ((1 << 64) - 1)))


def bytes_of(group: Group, source: Operand, size: int) -> NDArray[np.uint8]:
    """An argument of some lanes, [lanes, size]."""
    if isinstance(source, Place):
        memory = group.wave.memory
        return memory.local[_local_bytes(group, source, size)]
    if isinstance(source, Vector):
        part = size // len(source.items)
        return np.concatenate([bytes_of(group, item, part) for item in source.items], axis=1)
    codes = group.read(source, KINDS[size])[group.mask]
    return np.ascontiguousarray(codes).view(np.uint8).reshape(len(codes), size)


def put_bytes(group: Group, target: Operand, data: NDArray[np.uint8]) -> None:
    """Give some lanes an argument or a result."""
    if isinstance(target, Place):
        group.wave.memory.local[_local_bytes(group, target, data.shape[1])] = data
    elif isinstance(target, Vector):
        for item, piece in zip(target.items, np.split(data, len(target.items), axis=1), strict=True):
            put_bytes(group, item, piece)
    elif not isinstance(target, Sink):
        codes: Any = np.ascontiguousarray(data).view(KINDS[data.shape[1]].dtype)[:, 0]
        group.write(target, group.scatter(codes))


def _local_bytes(group: Group, place: Place, size: int) -> NDArray[np.int64]:
    """Where the bytes of a parameter lie in the local memory of all lanes, [lanes, size]."""
    stride = group.wave.memory.local_stride
    offsets = group.addresses(place).astype(np.int64)
    wrong = offsets + size > stride
    if wrong.any():
        raise Fault(int(wrong.argmax()), f"the calls inside each other need more than {stride} bytes of local memory")
    starts: NDArray[np.int64] = group.owners.threads * stride + offsets
    return starts[:, None] + np.arange(size)
