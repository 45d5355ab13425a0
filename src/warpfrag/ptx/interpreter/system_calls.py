"""Functions that the driver brings: vprintf, which printf becomes, __assertfail, malloc and free."""

from __future__ import annotations

import math
import re
import struct
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.errors import Fault, PtxError, quote
from warpfrag.ptx.interpreter.calls import bytes_of, put_bytes
from warpfrag.ptx.program.actions import SYSTEM_FUNCTIONS

if TYPE_CHECKING:
    from warpfrag.ptx.interpreter.lane_group import LaneGroup
    from warpfrag.ptx.interpreter.memory import Owners
    from warpfrag.ptx.interpreter.warp_state import WarpState
    from warpfrag.ptx.program.program import DecodedInstruction

MAX_TEXT = 4096  # characters of a text
MAX_WIDTH = 4096  # characters of a field, and digits
MAX_DIGITS = 11  # of a width
MAX_PRINTED = 1 << 26  # characters of a launch
FIELD = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?P<precision>\.(?:\*|\d*))?(?P<length>hh|h|ll|l|j|z|t|L)?(?P<kind>.)",
    re.ASCII | re.DOTALL,
)


def run_system(state: WarpState, step: DecodedInstruction, group: LaneGroup, name: str) -> None:
    """Call a function of the driver, lane after lane."""
    function = SYSTEM_FUNCTIONS[name]
    words = [bytes_of(group, source, size) for source, size in zip(step.sources, function.arguments, strict=True)]
    numbers = [[int.from_bytes(row.tobytes(), "little") for row in rows] for rows in words]
    if name == "malloc":
        addresses = [state.memory.heap.allocate(size) for size in numbers[0]]
        put_bytes(group, step.results[0], np.array(addresses, np.uint64).view(np.uint8).reshape(-1, 8))
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
            raise PtxError(step.line, f"{place}: {who}: assertion `{thread.text(message)}` failed")
        if name == "vprintf":
            _print(state, step.line, thread, *args)
    if step.results:
        put_bytes(group, step.results[0], np.zeros((len(warps), 4), np.uint8))


def _print(state: WarpState, line: int, thread: ThreadReader, form: int, arguments: int) -> None:
    """Keep what a thread prints, unless it is more than anyone reads."""
    try:
        text = thread.formatted(form, arguments)
    except ValueError as error:
        reason = error.reason if isinstance(error, Fault) else str(error)
        raise PtxError(line, f"printf of {quote(thread.text(form))}: {reason}") from None
    state.tally.printed_characters += len(text)
    if state.tally.printed_characters > MAX_PRINTED:
        raise PtxError(line, f"expected at most {MAX_PRINTED} characters from printf in a launch, got more")
    state.tally.printed.append(text)


class ThreadReader:
    """Reads memory as a thread sees it; what the driver reads is not counted."""

    def __init__(self, state: WarpState, owners: Owners) -> None:
        """Take the memory of a batch, and whose shared and local memory is meant."""
        self.state, self.owners = state, owners

    def read(self, address: int, size: int) -> bytes:
        """Some bytes at a generic address."""
        return self.state.memory.peek(address, size, self.owners)[:size].tobytes()

    def text(self, address: int) -> str:
        """The characters up to a zero byte; "?" where there are none to read."""
        try:
            data = self.state.memory.peek(address, 1, self.owners)[:MAX_TEXT].tobytes()
        except Fault:
            return "?"
        return data.partition(b"\0")[0].decode("utf-8", "replace")

    def formatted(self, form: int, arguments: int) -> str:
        """The text of a printf: arguments lie one after the other, each aligned to its size."""
        at = arguments

        def next_argument(size: int) -> bytes:
            nonlocal at
            at = -(-at // size) * size
            at += size
            return self.read((at - size) & ((1 << 64) - 1), size)

        def number(text: str) -> str:
            text = str(_signed(next_argument(4))) if text == "*" else text
            if len(text) > MAX_DIGITS or abs(int(text or 0)) > MAX_WIDTH:
                msg = f"expected a width and a precision of at most {MAX_WIDTH}, got {quote(text)}"
                raise ValueError(msg)
            return text

        def field(match: re.Match[str]) -> str:
            kind = match["kind"]
            if kind == "%":
                return "%"
            flags, width = match["flags"], number(match["width"])
            precision = None if match["precision"] is None else number(match["precision"][1:])
            if precision is not None and precision.startswith("-"):
                precision = None  # as if there were none
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
