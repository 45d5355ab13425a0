"""The result of a launch, apart from memory: counts, evidence and findings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from warpfrag.errors import location_text
from warpfrag.formats.arrays import Bytes
from warpfrag.machine.interpreter.kernel_findings import KernelFinding, Verdict
from warpfrag.machine.ir.program import SourceLine
from warpfrag.machine.launch.exploration import Exploration
from warpfrag.machine.launch.profile import Profile
from warpfrag.tensorcore.evidence import UNCERTAIN, Evidence

MAX_ROWS = 12  # maximum number of table rows in a notebook
MAX_NAMES = 3  # maximum number of names in a sentence
PTX = "ptx"
"""The value of `Run.basis` for a launch that executed PTX."""
UNORDERED = "a check found unordered accesses"
SKIPPED = {"bounds", "misaligned", "readonly", "freed"}
PTX_REASON = "PTX was executed as its manual defines it; a GPU executes ptxas's machine code, which can differ"


@dataclass(frozen=True)
class Counts:
    """Counts of a launch: warp instructions by opcode, bytes and wavefronts by state space.

    A shared-memory wavefront is one pass over the banks: an access needs one for each word of its busiest bank
    (`smem.shared_memory`), counted separately for each matrix of ldmatrix and stmatrix. A global-memory wavefront is a
    32-byte sector that a warp's access touches. Accesses by wmma.load, wmma.store, wgmma and tcgen05 are not counted.
    """

    opcodes: dict[str, int]
    read: dict[str, int]
    written: dict[str, int]
    wavefronts: dict[str, int]

    @property
    def instructions(self) -> int:
        """The total number of warp instructions."""
        return sum(self.opcodes.values())


@dataclass(frozen=True)
class InexactLine:
    """A line whose result may differ on a GPU, with the reason."""

    line: int
    source: str
    reason: str


@dataclass(frozen=True)
class Run:
    """The result of a launch, apart from memory: counts, evidence and findings."""

    evidence: dict[str, Evidence]
    counts: Counts
    profile: Profile
    """The counts of each line."""
    findings: list[KernelFinding] = field(default_factory=list)
    engine: str = "reference"  # "reference" or "compiled"
    interpreted: tuple[str, ...] = ()  # opcodes that the interpreter executed
    printed: str = ""  # the output of printf, in block order
    inexact_lines: tuple[InexactLine, ...] = ()
    arch: str = ""  # the architecture whose arithmetic was computed
    checks: tuple[str, ...] = ()
    """The checks that the launch ran."""
    unjudged: tuple[str, ...] = ()
    """Accesses and events that the checks could not judge, with reasons."""
    notes: tuple[str, ...] = ()
    """Stores that look like mistakes but have a definite result, with the reason for each."""
    basis: str = PTX
    """The code that was executed: "ptx", or machine code with its architecture, assembler and digest."""
    ptx_reason: str = ""
    """The reason why PTX was executed instead of machine code, or ""."""
    reasons: tuple[str, ...] = ()
    """The reasons why a GPU may give different results: uncompared spellings, access order, unwritten values."""
    unwritten: Mapping[int, Bytes] = field(default_factory=dict, repr=False, compare=False)
    """The marks of unwritten bytes after the launch, by host address, if the check "uninitialised" tracked them."""
    exploration: Exploration | None = None
    """The results of other interleavings, if `explore` was set."""

    @property
    def verdict(self) -> Verdict | None:
        """The verdict of the checks: "clean", "findings" or "incomplete" (see `unjudged`), or None without checks."""
        if not self.checks:
            return None
        differs = self.exploration is not None and not self.exploration.agrees
        return "findings" if self.findings else "incomplete" if self.unjudged or differs else "clean"

    @property
    def exact(self) -> bool:
        """True if a GPU of architecture `arch` would write the same bytes when it runs the cubin that `basis` names.

        This means that machine code was executed, that every executed spelling was compared with a GPU of that
        architecture, and that no undefined order of execution can change the result. Otherwise, `inexact` gives the
        reasons.
        """
        return not self.inexact

    @property
    def inexact(self) -> tuple[str, ...]:
        """Reasons why a GPU of architecture `arch` may write different bytes; empty if the run is `exact`."""
        if self.basis == PTX:
            return (f"{PTX_REASON} ({self.ptx_reason})" if self.ptx_reason else PTX_REASON, *self.uncertain)
        explored = self.exploration
        found = [] if explored is None or explored.agrees else [f"explore: {explored}"]
        skipped = [f"{finding.kind}: an access was skipped" for finding in self.findings if finding.kind in SKIPPED]
        return (*self.reasons, *skipped, *found, *self.uncertain)

    @property
    def uncertain(self) -> tuple[str, ...]:
        """The opcodes, lines and races with uncertain results at the executed level, with a reason for each."""
        opcodes = [f"{name}: {self.evidence[name].detail}" for name in self.inexact_opcodes]
        lines = [f"{location_text(cause.line)}: {cause.reason}" for cause in self.inexact_lines]
        return (*opcodes, *lines, *([UNORDERED] if self._has_race else []))

    @property
    def inexact_opcodes(self) -> list[str]:
        """The executed opcodes whose results are approximate or not modelled."""
        return [name for name, known in self.evidence.items() if known.level in UNCERTAIN]

    @property
    def _has_race(self) -> bool:
        """True if the order of accesses may change the result on a GPU."""
        return any(finding.kind in {"race", "lockstep", "unordered", "async", "fence"} for finding in self.findings)

    @property
    def source_counts(self) -> dict[SourceLine, int]:
        """Warp instructions per line of the kernel's own source; inlined code is counted at the line of the call."""
        return {row.source: row.instructions for row in self.profile.by_source if row.source is not None}

    def __repr__(self) -> str:
        """Return a summary of the run."""
        return f"<{self._summary()}>"

    def _summary(self) -> str:
        causes = [*self.inexact_opcodes, *(f"line {cause.line}" for cause in self.inexact_lines)]
        causes += ["the order of accesses"] if self._has_race else []
        executed = self.arch if self.basis == PTX else self.basis.split()[1].rstrip(",")
        arch = f" for {executed}" if executed else ""
        more = f" and {len(causes) - MAX_NAMES} more" if len(causes) > MAX_NAMES else ""
        found = len(self.findings) or "no"
        checked = f"{found} finding{'s' * (found != 1)}" if self.checks or self.findings else "not checked"
        parts = [
            f"Run: {'PTX semantics' if self.basis == PTX else 'machine code'}{arch}",
            "exact" if self.exact else "not exact",
            *([f"uncertain: {', '.join(causes[:MAX_NAMES])}{more}"] if causes else []),
            f"{self.counts.instructions:,} warp instructions of {len(self.counts.opcodes)} opcodes",
            f"{self.engine} engine",
            checked,
            *([str(self.exploration)] if self.exploration is not None else []),
            *(["incomplete checks"] if self.verdict == "incomplete" else []),
        ]
        return ", ".join(parts)

    def _repr_html_(self) -> str:
        """Return an HTML card for notebooks: a summary, frequent opcodes with their evidence, and the findings."""
        from warpfrag import html

        ranking = sorted(self.counts.opcodes.items(), key=itemgetter(1), reverse=True)
        rows = [
            (name, f"{count:,}", self.evidence[name].level if name in self.evidence else "") for name, count in ranking
        ]
        findings = [(finding.check, str(finding.line), finding.text) for finding in self.findings]
        uncertain = [(str(cause.line), cause.source, cause.reason) for cause in self.inexact_lines]
        memory = (self.counts.read, self.counts.written, self.counts.wavefronts)
        spaces = sorted({space for table in memory for space in table})
        traffic = [(space, *(f"{table.get(space, 0):,}" for table in memory)) for space in spaces]
        tables = (
            (("opcode", "warp instructions", "evidence"), rows),
            (("state space", "bytes read", "bytes written", "wavefronts"), traffic),
            (("check", "line", "finding"), findings),
            (("line", "instruction", "uncertain because"), uncertain),
        )
        parts = [f"<code>{html.escape(self._summary())}</code>"]
        for heads, cells in tables:
            more = len(cells) - MAX_ROWS
            parts += [html.table(heads, cells[:MAX_ROWS])] if cells else []
            parts += [f"<p>{more} more: {heads[0]}</p>"] if more > 0 else []
        return html.card(*parts)
