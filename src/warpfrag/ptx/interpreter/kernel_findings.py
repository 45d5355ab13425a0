"""A finding: one mistake of a kernel at one place, with both accesses where there are two, and how often it occurred.

A place is the kind, the line, and the line of the other access. The first occurrence is described, the others are
counted. A verdict says what all findings of a launch amount to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

from warpfrag.ptx.reader.source_lines import SourceLine

Verdict = Literal["clean", "findings", "incomplete"]
Check = Literal["memory", "races", "uninitialised", "barriers", "async"]
BATCH_THREADS = 2048  # that run at once when their order is followed


class KernelCheck(NamedTuple):
    """A check: what it finds, the observers of a batch that search for it, and if compiled code can screen for it."""

    kinds: tuple[str, ...]
    observers: Callable[[Any], list[Any]]  # of a CheckedWarpBatch
    can_screen: Callable[[Any], bool]  # of a ProgramScreen
    follows_order: bool = False  # accesses are compared with what orders them


CHECK_TABLE: dict[Check, KernelCheck] = {
    "memory": KernelCheck(("bounds", "misaligned", "readonly", "freed"), lambda _: [], lambda _: True),
    "races": KernelCheck(("race", "lockstep"), lambda _: [], lambda screen: screen.is_ordered, follows_order=True),
    "uninitialised": KernelCheck(
        ("uninitialised",), lambda batch: batch.unwritten_checks(), lambda screen: screen.has_marks
    ),
    "barriers": KernelCheck(
        ("barrier", "deadlock"), lambda batch: batch.barrier_checks(), lambda screen: screen.has_whole_barriers
    ),
    "async": KernelCheck(
        ("async", "fence", "descriptor", "tensor_memory"),
        lambda batch: batch.async_checks(),
        lambda screen: not screen.is_asynchronous or screen.is_ordered,
        follows_order=True,
    ),
}
"""All checks. `RaceCheck` follows the accesses of all that follow the order."""
CHECKS: tuple[Check, ...] = tuple(CHECK_TABLE)
ORDER_CHECKS = {name for name, check in CHECK_TABLE.items() if check.follows_order}
KINDS = {kind: name for name, check in CHECK_TABLE.items() for kind in check.kinds}


@dataclass(frozen=True)
class KernelAccess:
    """One side of a finding: what was done, at which line, by which thread; `stack` has the lines of the calls."""

    what: str
    line: int
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    stack: tuple[int, ...] = ()
    source: SourceLine | None = None

    @property
    def text(self) -> str:
        """The access in words, as "st.shared.f32 at line 12 by thread (3, 0, 0) of block (0, 0, 0)"."""
        where = f"{self.source} (line {self.line})" if self.source else f"line {self.line}"
        return f"{self.what} at {where} by thread {self.thread} of block {self.block}"


@dataclass(frozen=True)
class KernelFinding:
    """A mistake of a kernel: its kind, where it shows, and the access that it does not fit with (`other`).

    `space` and `address` say where in memory, `array` and `element` which array of the caller and which element of it.
    """

    kind: str
    line: int
    text: str
    source: SourceLine | None = None
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    stack: tuple[int, ...] = ()
    other: KernelAccess | None = None
    space: str = ""
    address: int | None = None
    array: str = ""
    element: int | None = None
    count: int = 1

    @property
    def check(self) -> str:
        """The check that searches for this kind."""
        return KINDS[self.kind]

    def __str__(self) -> str:
        """Kind, place and words."""
        where = f"{self.source} (line {self.line} of the PTX)" if self.source else f"line {self.line}"
        more = f"; {self.count - 1} more here" if self.count > 1 and self.check != "memory" else ""
        return f"{self.kind}, {where}: {self.text}{more}"

    def to_dict(self) -> dict[str, object]:
        """All of it as JSON has it; source lines in words."""
        result: dict[str, object] = asdict(self)
        result |= {"check": self.check, "source": str(self.source) if self.source else None}
        if self.other is not None:
            result["other"] = asdict(self.other) | {"source": str(self.other.source) if self.other.source else None}
        return result


class FindingCollector:
    """The findings of a launch by place, and what could not be judged."""

    def __init__(self, sources: Mapping[int, SourceLine], checks: tuple[Check, ...]) -> None:
        """Nothing is reported yet; kinds of other checks are left out."""
        self.sources, self.checks = sources, checks
        self.places: dict[tuple[str, int, int], KernelFinding] = {}
        self.unjudged: dict[str, None] = {}

    def add(self, finding: KernelFinding, count: int = 1) -> None:
        """Report a finding, or count it at its place."""
        if finding.check not in self.checks:
            return
        key = finding.kind, finding.line, finding.other.line if finding.other else 0
        known = self.places.get(key)
        if known is not None:
            self.places[key] = replace(known, count=known.count + count)
            return
        other = finding.other
        if other is not None:
            other = replace(other, source=self.sources.get(other.line))
        self.places[key] = replace(finding, count=count, source=self.sources.get(finding.line), other=other)

    def leave_out(self, reason: str) -> None:
        """Note what could not be judged, and why."""
        self.unjudged.setdefault(reason)

    @property
    def findings(self) -> list[KernelFinding]:
        """All findings, by line."""
        return sorted(self.places.values(), key=lambda item: (item.line, item.kind))
