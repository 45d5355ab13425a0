"""Kernel findings: one mistake at one location, with one or two accesses and an occurrence count.

A location is the finding's kind and the source lines of both accesses, so unrolled copies give one finding; without
source lines, the PTX lines are used. A missing barrier or wait can cause findings at many locations: three or more that
share a source line, or that one barrier would fix, are merged. Only the first occurrence is described; later ones are
counted. A verdict summarises all findings of a launch.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

from warpfrag.errors import location_text
from warpfrag.machine.ir.program import SourceLine, excerpt

Verdict = Literal["clean", "findings", "incomplete"]
Check = Literal["memory", "races", "uninitialised", "barriers", "async"]
BATCH_THREADS = 2048  # maximum number of concurrent threads whose order is tracked


class KernelCheck(NamedTuple):
    """A check: the kinds of findings that it reports, its observers, and when compiled code can screen it."""

    kinds: tuple[str, ...]
    observers: Callable[[Any], list[Any]]  # takes a CheckedWarpBatch
    can_screen: Callable[[Any], bool]  # takes a ProgramScreen
    follows_order: bool = False  # True if accesses are compared with the events that order them


CHECK_TABLE: dict[Check, KernelCheck] = {
    "memory": KernelCheck(("bounds", "misaligned", "readonly", "freed"), lambda _: [], lambda _: True),
    "races": KernelCheck(
        ("race", "lockstep", "unordered"), lambda _: [], lambda screen: screen.is_ordered, follows_order=True
    ),
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
"""All checks by name. `RaceCheck` tracks the accesses for every check with `follows_order`."""
CHECKS: tuple[Check, ...] = tuple(CHECK_TABLE)
ORDER_CHECKS = {name for name, check in CHECK_TABLE.items() if check.follows_order}
UNORDERED = {"race", "lockstep", "async"}
"""The kinds of findings that a missing barrier or wait causes."""
MAX_PAIRS = 2  # maximum number of findings on a shared source line that are reported separately
KINDS = {kind: name for name, check in CHECK_TABLE.items() for kind in check.kinds}


@dataclass(frozen=True)
class KernelAccess:
    """One access of a finding: its operation, line and thread; `stack` lists the lines of the enclosing calls."""

    operation: str
    line: int
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    stack: tuple[int, ...] = ()
    source: SourceLine | None = None

    @property
    def text(self) -> str:
        """A description of the access, as in "st.shared.f32 at line 12 by thread (3, 0, 0) of block (0, 0, 0)"."""
        line = location_text(self.line).removeprefix("at ")
        where = f"{self.source} ({line})" if self.source else line
        return f"{self.operation} at {where} by thread {self.thread} of block {self.block}"


@dataclass(frozen=True)
class KernelFinding:
    """A mistake in a kernel: its kind, the access that reveals it, and the conflicting access (`other`), if any.

    `space` and `address` locate the access in memory; `array` and `element` name the caller's array and the element.
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
    fix: str = ""

    @property
    def check(self) -> str:
        """The check that reports this kind of finding."""
        return KINDS[self.kind]

    def __str__(self) -> str:
        """Format the kind, the location and the description, and quote the source lines."""
        where = location_text(self.line, self.source)
        similar = f" similar pair{'s' * (self.count > 2)}" if self.other else " more"
        more = f" (and {self.count - 1}{similar})" if self.count > 1 else ""
        fix = f"; fix: {self.fix}" if self.fix else ""
        return f"{self.kind}, {where}: {self.text}{more}{fix}{self.excerpt}"

    @property
    def excerpt(self) -> str:
        """The source lines of both accesses, each on a new line."""
        return excerpt(self.source, self.other.source if self.other else None)

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON-compatible values; each source line becomes a string."""
        result: dict[str, object] = asdict(self)
        result |= {"check": self.check, "source": str(self.source) if self.source else None}
        if self.other is not None:
            result["other"] = asdict(self.other) | {"source": str(self.other.source) if self.other.source else None}
        return result


class FindingCollector:
    """Collects a launch's findings by location, and the reasons why its checks are incomplete."""

    def __init__(self, sources: Mapping[int, SourceLine], checks: tuple[Check, ...]) -> None:
        """Create an empty collector for the given checks; other findings are ignored."""
        self.sources, self.checks = sources, checks
        self.places: dict[tuple[object, ...], KernelFinding] = {}
        self.unjudged: dict[str, None] = {}
        self.notes: dict[str, None] = {}

    def add(self, finding: KernelFinding, count: int = 1) -> None:
        """Add a finding; if its location already has one, increase that finding's count instead."""
        if finding.check not in self.checks:
            return
        source, other, other_source = self.sources.get(finding.line), finding.other, None
        if other is not None:
            other_source = self.sources.get(other.line)
            other = replace(other, source=other_source)
        category = "race" if finding.kind == "lockstep" else finding.kind
        key: tuple[object, ...] = (finding.kind, finding.line, other.line if other else 0)
        if source is not None and (other is None or other_source is not None):
            key = (category, source, other_source)
        known = self.places.get(key)
        count += known.count if known else 0
        if known is None or (known.kind == "lockstep" and finding.kind == "race"):
            known = replace(finding, source=source, other=other)
        self.places[key] = replace(known, count=count)

    def drop(self, kind: str) -> bool:
        """Remove the findings of a kind; return True if there were any."""
        kept = {key: finding for key, finding in self.places.items() if finding.kind != kind}
        has_dropped, self.places = len(kept) < len(self.places), kept
        return has_dropped

    def leave_out(self, reason: str) -> None:
        """Record something that the checks could not judge, which makes the verdict incomplete."""
        self.unjudged.setdefault(reason)

    def note(self, text: str) -> None:
        """Record something unusual that is not a mistake."""
        self.notes.setdefault(text)

    @property
    def findings(self) -> list[KernelFinding]:
        """All findings in line order; three or more that one missing barrier or wait may have caused are merged."""
        groups: list[tuple[set[SourceLine], list[KernelFinding]]] = []
        for finding in sorted(self.places.values(), key=lambda finding: (finding.line, finding.kind)):
            ends = (finding.source, finding.other.source) if finding.other and finding.kind in UNORDERED else ()
            lines = {line for line in ends if line is not None}
            alike = [group for group in groups if group[0] & lines]
            groups = [group for group in groups if not group[0] & lines]
            members = [finding for _, items in alike for finding in items]
            groups.append((lines.union(*(own for own, _ in alike)), [*members, finding]))
        result = []
        for members in joined_by_barriers([members for _, members in groups]):
            first = min(members, key=lambda finding: finding.line)
            is_many = len(members) > MAX_PAIRS
            result += [replace(first, count=sum(finding.count for finding in members))] if is_many else members
        return sorted(result, key=lambda finding: (finding.line, finding.kind))


def joined_by_barriers(groups: list[list[KernelFinding]]) -> list[list[KernelFinding]]:
    """Join the groups of findings that one barrier, at some line, would fix."""
    result: list[list[KernelFinding]] = []
    barrier = 0  # a barrier directly before this line would fix the last joined group
    for end, start, number in sorted((*common_span(group), number) for number, group in enumerate(groups)):
        if start >= barrier:
            result.append([])
            barrier = end
        result[-1] += groups[number]
    return result


def common_span(findings: list[KernelFinding]) -> tuple[int, int]:
    """Return (end, start) if a barrier after line `start` and before line `end` would fix all findings, else zeros."""
    pairs = [(each, each.other) for each in findings if each.other and each.kind in UNORDERED]
    if len(pairs) < len(findings) or any(each.space == "global" and each.block != other.block for each, other in pairs):
        return 0, 0
    start = max((other.stack or (other.line,))[0] for _, other in pairs)
    end = min((each.stack or (each.line,))[0] for each, _ in pairs)
    return (end, start) if start < end else (0, 0)
