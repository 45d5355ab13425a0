"""Find the cause of a difference: the first result that differs, or a reduced kernel.

A trace stores every result of every thread, on the GPU and on the machine. The first result that differs identifies the
statement, and the trace contains its operands. Tracing changes the optimisations of ptxas, so a difference may vanish.
`shrink` removes parts of the untraced kernel as long as the difference remains.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from tools.fuzz.emulation import data_of
from tools.fuzz.kernel import IN_BYTES, TRACED, removable

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tools.fuzz.kernel import Kernel, Piece, Statement

INITIAL = re.compile(r"ld\.global\.b(\d+) (%[hrd]\d+), \[%in\+(\d+)\];")
ENTRY = np.dtype([("number", np.uint64), ("value", np.uint64)])


def first_difference(kernel: Kernel, here: NDArray[np.uint8], there: NDArray[np.uint8]) -> dict[str, Any]:
    """Return the first result that differs between two traces, its operands, and the opcodes that wrote them."""
    results = kernel.traced_results()
    machine, gpu = (trace.view(np.uint64).reshape(kernel.threads, -1) for trace in (here, there))
    threads = np.nonzero((machine != gpu).any(axis=1))[0]
    best: tuple[int, int, int] | None = None
    for thread in (int(number) for number in threads):
        entries = [side[thread, 2:].view(ENTRY) for side in (machine, gpu)]
        at = int(np.argmax(entries[0] != entries[1]))
        if entries[0][at] == entries[1][at]:
            continue  # only the counts differ
        number = int(entries[0][at]["number"])
        if best is None or number < best[0]:
            best = number, thread, at
    if best is None:
        return {"found": False}
    number, thread, at = best
    entries = [side[thread, 2:].view(ENTRY) for side in (machine, gpu)]
    count = min(int(machine[thread, 0]), TRACED)
    if at >= count or entries[0][at]["number"] != entries[1][at]["number"]:
        return {"found": True, "statement": "another path", "key": "another path", "thread": thread}
    statement, register = results[number]
    first = at  # the other results of this statement are not its operands
    while first and results[int(entries[0][first - 1]["number"])][0] is statement:
        first -= 1
    values, writers = last_values(kernel, results, entries[0][:first], thread)
    return {
        "found": True,
        "key": context_key(statement),
        "statement": statement.text,
        "thread": thread,
        "result": register,
        "here": hex(int(entries[0][at]["value"])),
        "gpu": hex(int(entries[1][at]["value"])),
        "before": hex(values[register]) if register in values else "?",
        "operands": {name: hex(values[name]) if name in values else "?" for name in statement.sources},
        "writers": {name: writers.get(name, "") for name in statement.sources},
        "threads": len(threads),
    }


def last_values(
    kernel: Kernel, results: list[tuple[Statement, str]], entries: NDArray[np.void], thread: int
) -> tuple[dict[str, int], dict[str, str]]:
    """Return the value of each register after the entries of a trace, and the opcode that wrote it last."""
    own = data_of(kernel).given[thread * IN_BYTES : (thread + 1) * IN_BYTES].tobytes()
    values, writers = {}, {}
    for bits, register, at in INITIAL.findall("\n".join(kernel.start)):
        values[register] = int.from_bytes(own[int(at) : int(at) + int(bits) // 8], "little")
        writers[register] = "ld"
    for entry in entries:
        statement, register = results[int(entry["number"])]
        values[register], writers[register] = int(entry["value"]), statement.name
    return values, writers


def context_key(statement: Statement) -> str:
    """Return a key that groups differences: the opcode, its guard, and which operands are constant or equal."""
    sources = statement.operands[1:] if statement.results else statement.operands
    shape = ["c" if not source.lstrip("!{[").startswith("%") else "r" for source in sources]
    registers = [source for source in sources if source.startswith("%")]
    same = " same register" if len(set(registers)) < len(registers) else ""
    guard = " guarded" if statement.guard else ""
    return f"{statement.name} ({','.join(shape)}){guard}{same}"


def shrink(kernel: Kernel, differs: Callable[[frozenset[Piece]], bool], seconds: float) -> str | None:
    """Return the smallest module that still differs, or None if the kernel does not differ."""
    until = time.monotonic() + seconds
    without: frozenset[Piece] = frozenset()
    if not differs(without):
        return None
    bodies = [*(function.body for function in kernel.functions), kernel.body]
    pieces = [piece for body in bodies for piece in removable(body)]
    size = len(pieces) // 2
    while size and time.monotonic() < until:
        pieces = [piece for body in bodies for piece in removable(body, without)]
        before = without
        for first in range(0, len(pieces), size):
            if time.monotonic() > until:
                break
            trial = without | frozenset(pieces[first : first + size])
            if trial != without and differs(trial):
                without = trial
        size = size // 2 if without == before or size > 1 else size
    return kernel.text(without)
