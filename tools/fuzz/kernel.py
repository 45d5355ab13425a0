"""Kernels made of removable pieces, written as PTX with or without a trace of every result.

A `Statement` is one instruction. A `Group` has statements, labels and groups. The parts of a group that is `whole` make
sense only together (an address and the load from it, the frame of a loop), so a reducer keeps all of them or none. The
parts of any other group can be removed one by one.

The entry is `k(in, out, blob)`. Each thread reads its own `IN_BYTES` at `in` and writes its own `OUT_BYTES` at `out`:
first its scratch memory, then every register. `TAIL_BYTES`, which all threads update, follow the bytes of the last
thread. `blob` is a struct.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = "8.7"
REGISTERS = {"h": 8, "r": 16, "d": 8, "p": 6}
BITS = {"h": 16, "r": 32, "d": 64}
SCRATCH_BYTES = 64
PREDICATE_BYTES = 4  # all predicates, one bit each
OUT_BYTES = SCRATCH_BYTES + PREDICATE_BYTES + sum(BITS.get(name, 0) // 8 * count for name, count in REGISTERS.items())
OUT_BYTES += -OUT_BYTES % 16
IN_BYTES = 128
TAIL_BYTES = 512
BLOB_BYTES = 64
TRACED = 1500  # maximum results per thread in a trace
NAME = re.compile(r"%[a-z_]+\d*")


@dataclass(frozen=True, eq=False)
class Statement:
    """One instruction: its opcode with qualifiers, its operands, and the kernel registers that it writes.

    Registers that are not in `REGISTERS`, such as addresses and counters, are not among the results.
    """

    name: str
    operands: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    guard: str = ""

    @property
    def text(self) -> str:
        """The instruction as PTX."""
        return f"{self.guard} {self.name} {', '.join(self.operands)}".strip() + ";"

    @property
    def sources(self) -> tuple[str, ...]:
        """The registers that the instruction reads, in text order."""
        first = 1 if self.results else 0
        return tuple(NAME.findall(" ".join([self.guard, *self.operands[first:]])))


@dataclass(eq=False)
class Group:
    """Several pieces, which can only be removed together if the group is `whole`."""

    pieces: list[Piece] = field(default_factory=list)
    whole: bool = False


Piece: TypeAlias = "Statement | Group | str"  # a str is a label or a declaration


@dataclass(frozen=True)
class Function:
    """A function of the module: its head, prologue, body and epilogue."""

    head: str
    start: tuple[str, ...]
    body: Group
    end: tuple[str, ...]


@dataclass(frozen=True)
class Kernel:
    """A kernel of a seed, and its launch parameters."""

    seed: int
    target: str
    grid: int
    block: int
    variables: tuple[str, ...]
    functions: tuple[Function, ...]
    start: tuple[str, ...]
    body: Group
    end: Group

    @property
    def threads(self) -> int:
        """The number of threads in all blocks."""
        return self.grid * self.block

    @property
    def out_bytes(self) -> int:
        """The size of the output."""
        return self.threads * OUT_BYTES + TAIL_BYTES

    def statements(self) -> Iterator[Statement]:
        """Return every instruction of the bodies, functions first."""
        for function in self.functions:
            yield from instructions(function.body)
        yield from instructions(self.body)
        yield from instructions(self.end)

    def text(self, without: frozenset[Piece] = frozenset(), *, traced: bool = False) -> str:
        """Return the module's text without the pieces in `without`; a traced module has a fourth parameter, `trace`."""
        trace = Trace() if traced else None
        parameters = ".param .u64 in, .param .u64 out, .param .align 16 .b8 blob[64]" + ", .param .u64 trace" * traced
        lines = [f".version {VERSION}", f".target {self.target}", ".address_size 64", *self.variables]
        lines += [".global .align 8 .u64 trace_start;"] if trace else []
        for function in self.functions:
            lines += [function.head, "{", *function.start, *(trace.open() if trace else ())]
            lines += [*written(function.body, without, trace), *function.end, "}"]
        lines += [f".visible .entry k({parameters})", "{", *self.start]
        lines += ["ld.param.u64 %base, [trace];", "st.global.u64 [trace_start], %base;", "bar.sync 0;"] if trace else []
        lines += trace.open() if trace else []
        lines += [*written(self.body, without, trace), *written(self.end, frozenset(), None), "}", ""]
        return "\n".join(lines)

    def traced_results(self, without: frozenset[Piece] = frozenset()) -> list[tuple[Statement, str]]:
        """Return the result that each trace entry belongs to."""
        trace = Trace()
        for body in (*(function.body for function in self.functions), self.body):
            list(written(body, without, trace))
        return trace.entries


def instructions(group: Group, without: frozenset[Piece] = frozenset()) -> Iterator[Statement]:
    """Yield the statements of a group in order."""
    for piece in group.pieces:
        if isinstance(piece, Group) and piece not in without:
            yield from instructions(piece, without)
        elif isinstance(piece, Statement) and piece not in without:
            yield piece


def removable(group: Group, without: frozenset[Piece] = frozenset()) -> Iterator[Piece]:
    """Yield the removable pieces of a group, outer pieces before inner ones."""
    for piece in group.pieces:
        if isinstance(piece, str) or piece in without:
            continue
        if not group.whole:
            yield piece
        if isinstance(piece, Group):
            yield from removable(piece, without)


def written(group: Group, without: frozenset[Piece], trace: Trace | None) -> Iterator[str]:
    """Yield the lines of a group."""
    for piece in group.pieces:
        if isinstance(piece, str):
            yield piece
        elif piece in without:
            continue
        elif isinstance(piece, Group):
            yield from written(piece, without, trace)
        else:
            yield piece.text
            if trace is not None:
                for register in piece.results:
                    yield from trace.store(piece, register)


class Trace:
    """Statements that store the number and value of each result of a thread, 16 bytes each, after their count."""

    def __init__(self) -> None:
        """Create an empty trace."""
        self.entries: list[tuple[Statement, str]] = []

    @staticmethod
    def open() -> list[str]:
        """Return code that finds the thread's part of the trace; its count is in memory, so functions can append."""
        return [
            ".reg .b64 %base_t, %value_t, %count_t, %place_t; .reg .b32 %thread_t, %other_t, %zero_t;",
            ".reg .b16 %none_t; .reg .pred %fits_t;",
            "mov.b32 %zero_t, 0; mov.b16 %none_t, 0; ld.global.u64 %base_t, [trace_start];",
            "mov.u32 %thread_t, %ctaid.x; mov.u32 %other_t, %ntid.x; mul.lo.u32 %thread_t, %thread_t, %other_t;",
            "mov.u32 %other_t, %tid.x; add.u32 %thread_t, %thread_t, %other_t;",
            f"mad.wide.u32 %base_t, %thread_t, {16 + 16 * TRACED}, %base_t;",
        ]

    def store(self, statement: Statement, register: str) -> list[str]:
        """Return the statements that store one register's value."""
        self.entries.append((statement, register))
        pack = {
            "p": f"selp.u64 %value_t, 1, 0, {register};",
            "h": f"mov.b64 %value_t, {{{register}, %none_t, %none_t, %none_t}};",
            "r": f"mov.b64 %value_t, {{{register}, %zero_t}};",
            "d": f"mov.b64 %value_t, {register};",
        }[register[1]]
        return [
            f"{pack} ld.global.u64 %count_t, [%base_t]; setp.lt.u64 %fits_t, %count_t, {TRACED};",
            "shl.b64 %place_t, %count_t, 4; add.u64 %place_t, %place_t, %base_t;",
            f"mov.u64 %count_t, {len(self.entries) - 1};",
            "@%fits_t st.global.v2.b64 [%place_t+16], {%count_t, %value_t};",
            "ld.global.u64 %count_t, [%base_t]; add.u64 %count_t, %count_t, 1; st.global.u64 [%base_t], %count_t;",
        ]
