"""Functions that the driver brings: vprintf, which printf becomes, __assertfail, malloc and free.

The heap is one allocation, of which malloc hands out one piece after the other; free does nothing.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.errors import PtxError, WarpfragError
from warpfrag.ptx.interpreter.calls import bytes_of, put_bytes
from warpfrag.ptx.program import state_spaces

if TYPE_CHECKING:
    from warpfrag.ptx.interpreter.lane_group import LaneGroup
    from warpfrag.ptx.interpreter.memory import Owners
    from warpfrag.ptx.interpreter.warp_state import WarpState
    from warpfrag.ptx.program.program import DecodedInstruction

MAX_TEXT = 4096  # characters of a text
FIELD = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?P<precision>\.(?:\*|\d*))?(?P<length>hh|h|ll|l|j|z|t|L)?(?P<kind>.)"
)


def run_system(state: WarpState, step: DecodedInstruction, group: LaneGroup, name: str) -> None:
    """Call a function of the driver, lane after lane."""
    words = [bytes_of(group, source, size) for source, size in zip(step.sources, SIZES[name], strict=False)]
    numbers = [[int.from_bytes(row.tobytes(), "little") for row in rows] for rows in words]
    if name == "malloc":
        addresses = [_allocate(state, size) for size in numbers[0]]
        put_bytes(group, step.results[0], np.array(addresses, np.uint64).view(np.uint8).reshape(-1, 8))
        return
    warps, lanes = np.nonzero(group.mask)
    for index, args in enumerate(zip(*numbers, strict=True)):
        thread = ThreadReader(state, group.owners.at(np.array([index])))
        if name == "__assertfail":
            message, file, line, function = (*args, 0, 0, 0, 0)[:4]
            who = state.thread_name(int(group.warp_rows[warps[index]]), int(lanes[index]))
            where = f"{thread.text(file)}:{line}: {thread.text(function)}"
            raise PtxError(step.line, f"{where}: {who}: assertion `{thread.text(message)}` failed")
        if name == "vprintf":
            state.tally.printed.append(thread.formatted(*args[:2]))
    if step.results:
        put_bytes(group, step.results[0], np.zeros((len(warps), 4), np.uint8))


SIZES = {"vprintf": (8, 8), "__assertfail": (8, 8, 4, 8, 8), "malloc": (8,), "free": (8,)}


def _allocate(state: WarpState, size: int) -> int:
    """The address of a piece of the heap, or 0 where not enough is left."""
    memory = state.memory
    piece = -(-max(size, 1) // 16) * 16
    if memory.heap_used + piece > state_spaces.HEAP_BYTES:
        return 0
    memory.heap_used += piece
    return state_spaces.HEAP + memory.heap_used - piece


class ThreadReader:
    """Reads memory as one thread sees it."""

    def __init__(self, state: WarpState, owners: Owners) -> None:
        """Take the memory of a batch, and whose shared and local memory is meant."""
        self.state, self.owners = state, owners

    def read(self, address: int, size: int) -> bytes:
        """Some bytes at a generic address."""
        places = np.array([address], np.uint64)
        return self.state.memory.load("generic", places, np.dtype(f"u{size}"), 1, self.owners).tobytes()

    def text(self, address: int) -> str:
        """The characters up to a zero byte; "?" where there are none to read."""
        text = bytearray()
        try:
            while len(text) < MAX_TEXT and (byte := self.read(address + len(text), 1)) != b"\0":
                text += byte
        except WarpfragError:
            return "?"
        return text.decode("utf-8", "replace")

    def formatted(self, form: int, arguments: int) -> str:
        """The text of a printf: arguments lie one after the other, each aligned to its size."""
        at = arguments

        def next_argument(size: int) -> bytes:
            nonlocal at
            at = -(-at // size) * size
            at += size
            return self.read(at - size, size)

        def field(match: re.Match[str]) -> str:
            if match["kind"] == "%":
                return "%"
            width = str(_signed(next_argument(4))) if match["width"] == "*" else match["width"]
            precision = match["precision"] or ""
            if precision == ".*":
                precision = f".{_signed(next_argument(4))}"
            start = f"%{match['flags']}{width}{precision}"
            kind = match["kind"]
            if kind in "fFeEgG":
                return f"{start}{kind}" % struct.unpack("<d", next_argument(8))
            if kind == "s":
                return f"{start}s" % self.text(int.from_bytes(next_argument(8), "little"))
            if kind == "p":
                return f"0x{int.from_bytes(next_argument(8), 'little'):x}"
            data = next_argument(8 if match["length"] in {"l", "ll", "j", "z", "t"} else 4)
            data = data[: {"hh": 1, "h": 2}.get(match["length"], 8)]
            if kind in "di":
                return f"{start}d" % _signed(data)
            if kind in "uxXo":
                return f"{start}{kind}" % int.from_bytes(data, "little")
            return f"{start}c" % chr(data[0]) if kind == "c" else match[0]

        return FIELD.sub(field, self.text(form))


def _signed(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)
