"""What a launch leaves besides memory: counts, evidence and findings, and how a notebook shows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

from warpfrag.render import html

if TYPE_CHECKING:
    from warpfrag.catalog.evidence import Evidence

MAX_ROWS = 12  # of a table in a notebook
MAX_NAMES = 3  # in a sentence


@dataclass(frozen=True)
class Counts:
    """What a launch executed: warp instructions by opcode and by line, bytes and wavefronts by state space.

    A wavefront of shared memory is a pass over its banks: an access takes as many as its busiest bank has words to give
    (`memory.shared_memory`), each matrix of ldmatrix and stmatrix for itself. Of global memory it is a sector of 32
    bytes that a warp's access touches. `wavefronts_by_line` has both, for the lines that access one of these spaces.
    What wmma.load, wmma.store and wgmma do in memory is not among them.
    """

    opcodes: dict[str, int]
    lines: dict[int, int]
    read: dict[str, int]
    written: dict[str, int]
    wavefronts: dict[str, int]
    wavefronts_by_line: dict[int, int]

    @property
    def instructions(self) -> int:
        """All warp instructions."""
        return sum(self.opcodes.values())


@dataclass(frozen=True)
class Observation:
    """Something that a check saw."""

    check: str
    line: int
    text: str


@dataclass(frozen=True)
class InexactLine:
    """A line of which a GPU may leave another result, and why."""

    line: int
    source: str
    reason: str


@dataclass(frozen=True)
class DepartedLine:
    """A line of which ptxas makes other code than the manual says: what it does, and which versions do it."""

    line: int
    source: str
    text: str
    versions: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """What a launch left besides memory: how well its result is known, what it executed, what the checks saw."""

    evidence: dict[str, Evidence]
    counts: Counts
    findings: list[Observation] = field(default_factory=list)
    engine: str = "reference"  # or "compiled"
    interpreted: tuple[str, ...] = ()  # opcodes that ran without machine code
    printed: str = ""  # what printf gave, block after block
    inexact_lines: tuple[InexactLine, ...] = ()
    arch: str = ""  # the architecture that the launch was for

    @property
    def exact(self) -> bool:
        """Whether a GPU of `arch` gives exactly this: every opcode that ran is known, no line has a cause for doubt."""
        return not self.inexact and not self.inexact_lines

    @property
    def inexact(self) -> list[str]:
        """The opcodes that ran of which nobody knows every bit."""
        return [name for name, known in self.evidence.items() if known.level in {"approximate", "not modelled"}]

    def __repr__(self) -> str:
        """What ran, how exact it is and what the checks saw; the attributes have the details."""
        return f"<{self._summary()}>"

    def _summary(self) -> str:
        """Whether it was exact, what ran, on which engine, and how many findings there are."""
        causes = [*self.inexact, *(f"line {item.line}" for item in self.inexact_lines)]
        where = f" on {self.arch}" if self.arch else ""
        exact = f"not exact{where} ({_listed(causes)})" if causes else f"exact{where}"
        count = len(self.counts.opcodes)
        parts = [
            f"Run: {exact}",
            f"{self.counts.instructions:,} warp instructions of {count} opcodes",
            f"{self.engine} engine",
            f"{len(self.findings)} findings" if self.findings else "no findings",
        ]
        return ", ".join(parts)

    def _repr_html_(self) -> str:
        """A card for notebooks: the summary, the opcodes that ran most with their evidence, and the findings."""
        ranking = sorted(self.counts.opcodes.items(), key=itemgetter(1), reverse=True)
        rows = [
            (name, f"{count:,}", self.evidence[name].level if name in self.evidence else "")
            for name, count in ranking[:MAX_ROWS]
        ]
        if len(ranking) > MAX_ROWS:
            rest = sum(count for _, count in ranking[MAX_ROWS:])
            rows.append((f"{len(ranking) - MAX_ROWS} more opcodes", f"{rest:,}", ""))
        spaces = sorted({*self.counts.read, *self.counts.written, *self.counts.wavefronts})
        traffic = [
            (
                space,
                *(
                    f"{table.get(space, 0):,}"
                    for table in (self.counts.read, self.counts.written, self.counts.wavefronts)
                ),
            )
            for space in spaces
        ]
        findings = [(item.check, str(item.line), item.text) for item in self.findings[:MAX_ROWS]]
        if len(self.findings) > MAX_ROWS:
            findings.append((f"{len(self.findings) - MAX_ROWS} more findings", "", ""))
        doubts = [(str(item.line), item.source, item.reason) for item in self.inexact_lines[:MAX_ROWS]]
        return html.card(
            f"<code>{html.escape(self._summary())}</code>",
            html.table(("opcode", "warp instructions", "evidence"), rows),
            html.table(("state space", "bytes read", "bytes written", "wavefronts"), traffic) if traffic else "",
            html.table(("check", "line", "finding"), findings) if findings else "",
            html.table(("line", "instruction", "not exact because"), doubts) if doubts else "",
        )


def _listed(names: list[str]) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
