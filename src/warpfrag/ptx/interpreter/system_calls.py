"""Functions that the driver brings: vprintf, which printf becomes, __assertfail, malloc and free.

The heap is one allocation, of which malloc takes the next piece; free takes nothing back.
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
    from warpfrag.ptx.interpreter.lane_group import Group
    from warpfrag.ptx.interpreter.memory import Owners
    from warpfrag.ptx.interpreter.warp_state import Warps
    from warpfrag.ptx.program.program import Step

LONGEST = 4096  # characters of a text
FIELD = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?P<precision>\.(?:\*|\d*))?(?P<length>hh|h|ll|l|j|z|t|L)?(?P<kind>.)"
)


def run_system(wave: Warps, step: Step, group: Group, name: str) -> None:
    """Call a function of the driver, lane after lane."""
    words = [bytes_of(group, source, size) for source, size in zip(step.sources, SIZES[name], strict=False)]
    numbers = [[int.from_bytes(row.tobytes(), "little") for row in rows] for rows in words]
    if name == "malloc":
        taken = [_allocate(wave, given) for given in numbers[0]]
        put_bytes(group, step.results[0], np.array(taken, np.uint64).view(np.uint8).reshape(-1, 8))
        return
    warps, lanes = np.nonzero(group.mask)
    rows = group.rows if group.rows is not None else np.arange(wave.warps)
    for index, given in enumerate(zip(*numbers, strict=True)):
        one = Reader(wave, group.owners.at(np.array([index])))
        if name == "__assertfail":
            message, file, line, function = (*given, 0, 0, 0, 0)[:4]
            who = wave.thread_name(int(rows[warps[index]]), int(lanes[index]))
            where = f"{one.text(file)}:{line}: {one.text(function)}"
            raise PtxError(step.line, f"{where}: {who}: assertion `{one.text(message)}` failed")
        if name == "vprintf":
            wave.tally.printed.append(one.formatted(*given[:2]))
    if step.results:
        put_bytes(group, step.results[0], np.zeros((len(warps), 4), np.uint8))


SIZES = {"vprintf": (8, 8), "__assertfail": (8, 8, 4, 8, 8), "malloc": (8,), "free": (8,)}


def _allocate(wave: Warps, size: int) -> int:
    """The address of a piece of the heap, or 0 where there is no room."""
    memory = wave.memory
    piece = -(-max(size, 1) // 16) * 16
    if memory.heap_taken + piece > state_spaces.HEAP_BYTES:
        return 0
    memory.heap_taken += piece
    return state_spaces.HEAP + memory.heap_taken - piece


class Reader:
    """What one thread can read."""

    def __init__(self, wave: Warps, owners: Owners) -> None:
        """Of a thread of a wave."""
        self.wave, self.owners = wave, owners

    def read(self, address: int, size: int) -> bytes:
        """Some bytes at a generic address."""
        places = np.array([address], np.uint64)
        return self.wave.memory.load("generic", places, np.dtype(f"u{size}"), 1, self.owners).tobytes()

    def text(self, address: int) -> str:
        """A text that ends with a zero."""
        found = bytearray()
        try:
            while len(found) < LONGEST and (byte := self.read(address + len(found), 1)) != b"\0":
                found += byte
        except WarpfragError:
            return "?"
        return found.decode("utf-8", "replace")

    def formatted(self, form: int, arguments: int) -> str:
        """The text of a printf: arguments lie one after the other, each aligned to its size."""
        at = arguments

        def taken(size: int) -> bytes:
            nonlocal at
            at = -(-at // size) * size
            at += size
            return self.read(at - size, size)

        def field(found: re.Match[str]) -> str:
            if found["kind"] == "%":
                return "%"
            width = str(_signed(taken(4))) if found["width"] == "*" else found["width"]
            precision = found["precision"] or ""
            if precision == ".*":
                precision = f".{_signed(taken(4))}"
            start = f"%{found['flags']}{width}{precision}"
            kind = found["kind"]
            if kind in "fFeEgG":
                return f"{start}{kind}" % struct.unpack("<d", taken(8))
            if kind == "s":
                return f"{start}s" % self.text(int.from_bytes(taken(8), "little"))
            if kind == "p":
                return f"0x{int.from_bytes(taken(8), 'little'):x}"
            data = taken(8 if found["length"] in {"l", "ll", "j", "z", "t"} else 4)
            data = data[: {"hh": 1, "h": 2}.get(found["length"], 8)]
            if kind in "di":
                return f"{start}d" % _signed(data)
            if kind in "uxXo":
                return f"{start}{kind}" % int.from_bytes(data, "little")
            return f"{start}c" % chr(data[0]) if kind == "c" else found[0]

        return FIELD.sub(field, self.text(form))


def _signed(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)
