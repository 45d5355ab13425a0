"""Mistakes, findings, and the diagnosis that `diagnose` returns.

A `Mistake` changes the registers of one operand; a `Misreading` runs a different instruction on the right registers. A
`Finding` is a mistake that explains the observed result, and the `Diagnosis` lists them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from numpy.typing import NDArray

from warpfrag import html
from warpfrag.diagnosis.agreement import Agreement

Words: TypeAlias = NDArray[Any]  # registers, or the bytes of shared memory
Codes: TypeAlias = NDArray[Any]
Kind = Literal[
    "transposed", "descriptor", "blocks", "registers", "halves", "index", "stride", "offset", "layout", "lanes", "sign",
    "selector", "metadata", "c", "loop", "arch", "order", "rounding",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)
"""The categories of mistakes, most likely first."""


@dataclass(frozen=True, eq=False)
class Mistake:
    """A change to the registers of one operand, uint32[..., lanes, words].

    Metadata and scales are one word per lane and have no last axis, as in `execute`; for an operand in shared memory,
    `change` takes its bytes. Rare mistakes are listed last.
    """

    kind: Kind
    operand: str
    text: str
    change: Callable[[Words], Words]
    rare: bool = False

    @property
    def name(self) -> str:
        """The operand and the text; the name is unique among the mistakes of an instruction."""
        return f"{self.operand}: {self.text}"


@dataclass(frozen=True, eq=False)
class Misreading:
    """A mistake in which the wrong instruction or architecture runs on the right registers.

    `words` are the qualifiers that differ. `again` is the extra operation: the mma again (with D as C), the addition of
    C again, or reading C although scale-d is 0. `k_order` is the order of the columns of A and the rows of B: the same
    terms are added in a different order.
    """

    kind: Kind
    operand: str
    text: str
    words: Mapping[str, str | bool] = field(default_factory=dict)
    arch: str = ""
    again: Literal["", "product", "c", "scale_d"] = ""
    rare: bool = False
    k_order: tuple[int, ...] = ()


def likelihood(mistake: Mistake | Misreading) -> tuple[bool, int, int]:
    """Return a sort key that puts likely mistakes first: common before rare, then by category, then inputs before D."""
    place = "abc".find(mistake.operand[:1])
    return mistake.rare, KINDS.index(mistake.kind), place if place >= 0 else len(KINDS)


def without_repetitions(mistakes: Iterable[Mistake], words: Words) -> Iterator[Mistake]:
    """Yield mistakes, without those that do not change `words` or that repeat an earlier one of their category."""
    right, seen = words.tobytes(), set()
    for mistake in mistakes:
        # compare names, which are unique, because changes may hold large arrays
        if mistake.kind == "selector":
            yield mistake
            continue
        key = mistake.kind, mistake.change(words).tobytes()
        if key[1] != right and key not in seen:
            seen.add(key)
            yield mistake


Suspect: TypeAlias = Mistake | Misreading

MAX_LISTED = 3  # number of findings in a repr
SAME_D = "All give the same D for other inputs too; fix the one that matches your code"
HARMLESS = {"order", "rounding"}  # the categories of findings that are not mistakes
TOO_FEW_DIGITS = "print D with %.9g or %08x for a certain answer"


@dataclass(frozen=True)
class Finding:
    """A mistake with an operand that explains the observed result, and the change to the kernel that fixes it."""

    kind: Kind
    operand: str
    text: str
    fix: str = field(default="", compare=False)

    def __str__(self) -> str:
        """Format the operand and the mistake, as in `B: registers 0 and 1 swapped`."""
        return f"{self.operand.upper() if len(self.operand) == 1 else self.operand}: {self.text}"


class Diagnosis(list[Finding]):
    """The findings, most likely first, and the extent of the search.

    `correct` is True if nothing is wrong and all bits are right. `tried` counts the mistakes by category. `agreement`
    lists the correct elements, and the known values of wrong elements; it is None if everything is right. `notes` are
    hints: the precision of the comparison, the architecture, and a kernel result that would distinguish several
    findings.
    """

    def __init__(
        self,
        findings: Iterable[Finding],
        *,
        correct: bool,
        tried: Mapping[Kind, int],
        agreement: Agreement | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        """Create a diagnosis from findings, counts, agreement and notes."""
        super().__init__(findings)
        self.notes = tuple(notes)
        self.correct = correct
        self.tried = dict(tried)
        self.agreement = agreement

    def __str__(self) -> str:
        """Return the findings, or else the summary and the agreement, followed by the notes."""
        lines = [*map(str, self)] or [self.summary]
        if not self and self.agreement is not None:
            lines.append(str(self.agreement))
        return "\n".join([*lines, *self.notes])

    def __repr__(self) -> str:
        """Format the summary and the most likely findings."""
        listed = [f" {finding}" for finding in self[:MAX_LISTED]]
        more = [f" and {len(self) - MAX_LISTED} more"] if len(self) > MAX_LISTED else []
        return "\n".join([f"<Diagnosis: {self.summary}", *listed, *more]) + ">"

    def _repr_html_(self) -> str:
        """Return an HTML card for notebooks, with the summary and every finding."""
        rows = [
            (str(rank), finding.kind, finding.operand, finding.text, finding.fix)
            for rank, finding in enumerate(self, start=1)
        ]
        findings = html.table(("rank", "kind", "operand", "mistake", "fix"), rows) if rows else ""
        partial = "" if self.agreement is None else f"<p>{html.escape(str(self.agreement))}</p>"
        return html.card("<code>Diagnosis</code>", f"<p>{html.escape(self.summary)}</p>", findings, partial)

    @property
    def is_certain(self) -> bool:
        """False if too few digits were printed to distinguish mistakes."""
        return not any(note.endswith(TOO_FEW_DIGITS) for note in self.notes)

    @property
    def is_rounding(self) -> bool:
        """True if D is right except for the rounding, or for the order in which terms are added."""
        return bool(self) and all(finding.kind in HARMLESS for finding in self)

    @property
    def summary(self) -> str:
        """The diagnosis in one sentence."""
        if self.correct and self.notes:
            return "correct as far as the printed digits show"
        if self.correct:
            return "correct: the instruction gives this result"
        if self.is_rounding:
            return "no mistake: D differs only by rounding"
        if self:
            if len(self) == 1:
                return f"1 mistake {'explains' if self.is_certain else 'may explain'} the result"
            which = "" if self.is_certain else "possible "
            return f"{len(self)} {'equivalent ' if SAME_D in self.notes else which}explanations; the most likely first"
        counts = ", ".join(f"{kind} {count}" for kind, count in self.tried.items())
        return f"nothing found: {sum(self.tried.values())} mistakes tried ({counts})"


def diagnosis(
    explanations: Iterable[Suspect],
    suspected: Iterable[Suspect],
    agreement: Agreement | None = None,
    *,
    fix: Callable[[Suspect], str] = lambda _: "",
    notes: Iterable[str] = (),
) -> Diagnosis:
    """Return the diagnosis; findings are ranked by `ranked`."""
    counts = Counter(mistake.kind for mistake in suspected)
    tried = {kind: counts[kind] for kind in KINDS if counts[kind]}
    findings = [Finding(each.kind, each.operand, each.text, fix(each)) for each in ranked(explanations)]
    return Diagnosis(findings, correct=False, tried=tried, agreement=agreement, notes=notes)


def ranked(explanations: Iterable[Suspect]) -> list[Suspect]:
    """Rank the explanations, most likely first; the first of each category and operand precedes all second ones."""
    alike: Counter[tuple[Kind, str]] = Counter()
    numbered: list[tuple[int, Suspect]] = []
    for mistake in sorted(explanations, key=likelihood):
        category = mistake.kind, mistake.operand
        numbered.append((alike[category], mistake))
        alike[category] += 1
    return [mistake for _, mistake in sorted(numbered, key=lambda entry: entry[0])]
