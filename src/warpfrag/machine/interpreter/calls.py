"""Function calls and their stack frames, and the driver functions printf, malloc, free and assert.

A function has one set of registers. A call that may recurse saves the caller's registers in a frame and moves the start
of the local memory; the return restores both.
"""

from __future__ import annotations

import math
import re
import struct

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import MemoryFault, PtxError, quote
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.device_memory import Owners
from warpfrag.machine.interpreter.lane_group import LaneGroup
from warpfrag.machine.interpreter.warp_state import WarpState
from warpfrag.machine.ir.actions import SYSTEM_FUNCTIONS, SystemCall
from warpfrag.machine.ir.program import DecodedInstruction, Discard, MemoryOperand, PtxOperand, VectorOperand
from warpfrag.machine.ir.scalar_types import B64, TYPES, Codes

MAX_CALL_DEPTH = 1024
KINDS = {1: TYPES["b8"], 2: TYPES["b16"], 4: TYPES["b32"], 8: TYPES["b64"]}


class CallStacks:
    """The call stacks of all lanes: their `depth`, return addresses (`callers`) and `saved` registers."""

    def __init__(self, state: WarpState) -> None:
        """Create the call stacks of a batch; every lane is in the entry function, at depth 0."""
        self.state = state
        self.depth = np.zeros((state.warps, LANES), np.int64)
        self.callers = np.zeros((state.warps, LANES, 0), np.int64)
        self.saved: dict[tuple[int, int], Codes] = {}  # keyed by depth and register

    def call(self, at: int, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Copy the arguments and push the return address."""
        depth = group.of(self.depth)
        deepest = int(depth[group.mask].max())
        if deepest + 1 >= self.callers.shape[2]:
            if deepest >= MAX_CALL_DEPTH:
                raise PtxError(inst.line, f"calls are nested more than {MAX_CALL_DEPTH} deep")
            self.callers = np.concatenate([self.callers, np.zeros((self.state.warps, LANES, 8), np.int64)], axis=2)
        args = [bytes_of(group, copy.source, copy.size) for copy in inst.arguments]
        if inst.saved_registers:
            for level in np.unique(depth[group.mask]):
                self._save(inst, group.part(group.mask & (depth == level)), int(level))
        if inst.pushes_frame:
            self._move_frame(group, self.state.program.frame_bytes)
        for copy, data in zip(inst.arguments, args, strict=True):
            put_bytes(group, copy.target, data)
        warps, lanes = self._places(group)
        self.callers[warps, lanes, self.depth[warps, lanes]] = at
        self.depth[warps, lanes] += 1

    def return_(self, group: LaneGroup) -> None:
        """Pop each lane's return address and copy the results."""
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
            inst = state.program.instructions[int(caller)]
            results = [bytes_of(part, copy.source, copy.size) for copy in inst.returns]
            if inst.pushes_frame:
                self._move_frame(part, -state.program.frame_bytes)
            if inst.saved_registers:
                depth = part.of(self.depth)
                for level in np.unique(depth[mask]):
                    self._restore(inst, part.part(mask & (depth == level)), int(level))
            for copy, data in zip(inst.returns, results, strict=True):
                put_bytes(part, copy.target, data)
            part.put(state.pc, int(caller) + 1)

    def _places(self, group: LaneGroup) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        warps, lanes = np.nonzero(group.mask)
        return group.warp_rows[warps], lanes

    def _save(self, inst: DecodedInstruction, group: LaneGroup, level: int) -> None:
        for register in inst.saved_registers:
            codes = self.state.registers[register.index]
            if (level, register.index) not in self.saved:
                self.saved[level, register.index] = np.zeros_like(codes)
            group.put(self.saved[level, register.index], group.of(codes))

    def _restore(self, inst: DecodedInstruction, group: LaneGroup, level: int) -> None:
        for register in inst.saved_registers:
            group.write(register, group.of(self.saved[level, register.index]))

    def _move_frame(self, group: LaneGroup, by: int) -> None:
        frame = self.state.program.frame
        group.write(frame, group.read(frame, B64) + np.uint64(by & ((1 << 64) - 1)))


def bytes_of(group: LaneGroup, source: PtxOperand, size: int) -> NDArray[np.uint8]:
    """Return the bytes of an argument in each lane of the group, as [lanes, size]."""
    if isinstance(source, MemoryOperand):
        return group.state.memory.local[local_bytes(group, source, size)]
    if isinstance(source, VectorOperand):
        part = size // len(source.items)
        return np.concatenate([bytes_of(group, element, part) for element in source.items], axis=1)
    codes = group.values(source, KINDS[size])
    return np.ascontiguousarray(codes).view(np.uint8).reshape(len(codes), size)


def put_bytes(group: LaneGroup, target: PtxOperand, data: NDArray[np.uint8]) -> None:
    """Write the bytes of an argument or a result, given as [lanes, size]."""
    if isinstance(target, MemoryOperand):
        group.state.memory.local[local_bytes(group, target, data.shape[1])] = data
    elif isinstance(target, VectorOperand):
        for element, piece in zip(target.items, np.split(data, len(target.items), axis=1), strict=True):
            put_bytes(group, element, piece)
    elif not isinstance(target, Discard):
        codes: Codes = np.ascontiguousarray(data).view(KINDS[data.shape[1]].dtype)[:, 0]
        group.write(target, group.scatter(codes))


def local_bytes(group: LaneGroup, place: MemoryOperand, size: int) -> NDArray[np.int64]:
    """Return the local-memory offsets of a parameter's bytes in each lane, as [lanes, size]."""
    stride = group.state.memory.local_stride
    offsets = group.addresses(place).astype(np.int64)
    wrong = (offsets < 0) | (offsets > stride - size)
    if wrong.any():
        raise MemoryFault(int(wrong.argmax()), f"the nested calls need more than {stride} bytes of local memory")
    starts: NDArray[np.int64] = group.owners.threads * stride + offsets
    return starts[:, None] + np.arange(size)


MAX_TEXT = 4096  # maximum length of a string that is read from a thread's memory, in bytes
MAX_WIDTH = 4096  # maximum width and precision of a field
MAX_DIGITS = 11  # maximum number of digits in a width
MAX_PRINTED = 1 << 26  # maximum number of characters that a launch may print
FIELD = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?P<precision>\.(?:\*|\d*))?(?P<length>hh|h|ll|l|j|z|t|L)?(?P<kind>.)",
    re.ASCII | re.DOTALL,
)


def run_system(state: WarpState, inst: DecodedInstruction, action: SystemCall, group: LaneGroup) -> None:
    """Run a driver function, such as malloc or vprintf, lane by lane."""
    name, sizes = action.name, SYSTEM_FUNCTIONS[action.name].arguments
    words = [bytes_of(group, source, size) for source, size in zip(inst.sources, sizes, strict=True)]
    numbers = [[int.from_bytes(row.tobytes(), "little") for row in rows] for rows in words]
    if name == "malloc":
        addresses = [state.memory.heap.allocate(size) for size in numbers[0]]
        put_bytes(group, inst.results[0], np.array(addresses, np.uint64).view(np.uint8).reshape(-1, 8))
        return
    if name == "free" and state.memory.is_checked:
        for index, address in enumerate(numbers[0]):
            state.memory.heap.free(address, index)
    warps, lanes = np.nonzero(group.mask)
    for index, args in enumerate(zip(*numbers, strict=True)):
        thread = ThreadReader(state, group.owners.at(np.array([index])))
        if name == "__assertfail":
            message, file, line, where, _ = args
            who = state.thread_name(int(group.warp_rows[warps[index]]), int(lanes[index]))
            place = f"{thread.text(file)}:{line}: {thread.text(where)}"
            raise PtxError(inst.line, f"{place}: {who}: assertion `{thread.text(message)}` failed")
        if name == "vprintf":
            _print(state, inst.line, thread, *args)
    if inst.results:
        put_bytes(group, inst.results[0], np.zeros((len(warps), 4), np.uint8))


def _print(state: WarpState, line: int, thread: ThreadReader, form: int, arguments: int) -> None:
    """Append the output of a thread's printf; raise PtxError if the launch prints too much."""
    try:
        text = thread.formatted(form, arguments)
    except ValueError as error:
        reason = error.reason if isinstance(error, MemoryFault) else str(error)
        raise PtxError(line, f"printf of {quote(thread.text(form))}: {reason}") from None
    state.tally.printed_characters += len(text)
    if state.tally.printed_characters > MAX_PRINTED:
        raise PtxError(line, f"expected at most {MAX_PRINTED} characters from printf in a launch, got more")
    state.tally.printed.append(text)


class ThreadReader:
    """Reads a thread's memory without counting the reads."""

    def __init__(self, state: WarpState, owners: Owners) -> None:
        """Create a reader for the thread in `owners`, which selects its shared and local memory."""
        self.state, self.owners = state, owners

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes at a generic address."""
        return self.state.memory.peek(address, size, self.owners)[:size].tobytes()

    def text(self, address: int) -> str:
        """Return a null-terminated string, or "?" if it cannot be read."""
        try:
            data = self.state.memory.peek(address, 1, self.owners)[:MAX_TEXT].tobytes()
        except MemoryFault:
            return "?"
        return data.partition(b"\0")[0].decode("utf-8", "replace")

    def formatted(self, form: int, arguments: int) -> str:
        """Return the text that printf produces; the arguments are stored consecutively, each aligned to its size."""
        at = arguments

        def next_argument(size: int) -> bytes:
            nonlocal at
            at = -(-at // size) * size
            at += size
            return self.read((at - size) & ((1 << 64) - 1), size)

        def number(text: str) -> str:
            text = str(_signed(next_argument(4))) if text == "*" else text
            if len(text) > MAX_DIGITS or abs(int(text or 0)) > MAX_WIDTH:
                raise ValueError(f"expected a width and a precision of at most {MAX_WIDTH}, got {quote(text)}")
            return text

        def field(match: re.Match[str]) -> str:
            kind = match["kind"]
            if kind == "%":
                return "%"
            flags, width = match["flags"], number(match["width"])
            precision = None if match["precision"] is None else number(match["precision"][1:])
            if precision is not None and precision.startswith("-"):
                precision = None  # printf ignores a negative precision
            start = f"%{flags}{width}" + ("" if precision is None else f".{precision}")
            if kind in "fFeEgG":
                (value,) = struct.unpack("<d", next_argument(8))
                return f"{start if math.isfinite(value) else start.replace('0', '', 1)}{kind}" % value
            if kind == "s":
                return f"{start}s" % self.text(int.from_bytes(next_argument(8), "little"))
            if kind == "p":
                return f"%{flags}{width}s" % f"0x{int.from_bytes(next_argument(8), 'little'):x}"
            if kind not in "diuxXoc":
                return match[0]
            data = next_argument(8 if match["length"] in {"l", "ll", "j", "z", "t"} else 4)
            data = data[: {"hh": 1, "h": 2}.get(match["length"], 8)]
            if kind == "c":
                return f"{start}c" % chr(data[0])
            return f"{start}{'d' if kind in 'di' else kind}" % (
                _signed(data) if kind in "di" else int.from_bytes(data, "little")
            )

        return FIELD.sub(field, self.text(form))


def _signed(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)
