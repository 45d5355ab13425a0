"""What a comparison with hardware found."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_MISMATCHES = 5  # mismatches kept per kernel: the first few tell the story


@dataclass(frozen=True)
class Mismatch:
    """One word that differs: where, and both values."""

    operands: str
    case: int
    lane: int
    word: int
    hardware: str
    warpfrag: str
    warp: int | None = None  # of a warpgroup

    def __str__(self) -> str:
        """One line, in hex."""
        warp = "" if self.warp is None else f"warp {self.warp}, "
        return (
            f"{self.operands} case {self.case}, {warp}lane {self.lane}, word {self.word}: "
            f"hardware {self.hardware}, warpfrag {self.warpfrag}"
        )


@dataclass(frozen=True)
class KernelResult:
    """One kernel: an instruction with a selector."""

    instruction: str
    selector: int | None
    cases: int
    differing: int
    mismatches: tuple[Mismatch, ...] = ()
    skip_reason: str = ""  # why it was not compared in full (a trap, a refusal of the assembler, no model), or nothing
    variant: str = ""  # of wgmma: where A lies, what is transposed and negated

    @property
    def kernel(self) -> str:
        """Which kernel it is."""
        selector = "" if self.selector is None else f" #{self.selector}"
        return f"{self.instruction}{selector}{f' ({self.variant})' if self.variant else ''}"

    @property
    def equal(self) -> bool:
        """Whether it was compared in full and every code was equal."""
        return not self.skip_reason and not self.differing


@dataclass(frozen=True)
class Report:
    """A whole comparison."""

    device: str
    arch: str
    driver: str
    assembler: str
    seed: int
    lines: tuple[KernelResult, ...] = field(default=())

    @property
    def cases(self) -> int:
        """How many cases were compared."""
        return sum(line.cases for line in self.lines)

    @property
    def differing(self) -> int:
        """How many of them differ in some word."""
        return sum(line.differing for line in self.lines)

    @property
    def skipped(self) -> tuple[KernelResult, ...]:
        """The kernels that were not compared in full."""
        return tuple(line for line in self.lines if line.skip_reason)

    @property
    def equal(self) -> bool:
        """Whether everything was compared and every code was equal."""
        return bool(self.lines) and all(line.equal for line in self.lines)

    def summary(self) -> str:
        """How many kernels and cases were compared, and how many differ."""
        if not self.cases:
            result = "nothing was compared"
        else:
            result = f"{self.differing} cases differ" if self.differing else "every code equal"
        skip_reason = f"; kernels not compared in full: {len(self.skipped)}" if self.skipped else ""
        return f"{len(self.lines)} kernels, {self.cases} cases on {self.device} ({self.arch}): {result}{skip_reason}"

    def markdown(self) -> str:
        """A page to keep: the machine, the sum, one row per kernel."""
        rows = [
            f"| `{line.instruction}`{f' {line.variant}' if line.variant else ''} | "
            f"{'' if line.selector is None else line.selector} | {line.cases} | {line.skip_reason or line.differing} |"
            for line in self.lines
        ]
        detail = [f"* `{line.instruction}`: {mismatch}" for line in self.lines for mismatch in line.mismatches]
        head = [
            f"# {self.device}, {self.arch}",
            "",
            f"{self.summary()}.",
            "",
            f"Driver {self.driver}; assembled by {self.assembler}; seed {self.seed}.",
            "",
            "| instruction | selector | cases | differing |",
            "|---|---|---:|---|",
        ]
        return "\n".join([*head, *rows, *([""] if detail else []), *detail]) + "\n"
