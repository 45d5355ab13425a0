"""The answer: which mistakes explain what was observed, the likeliest first, and how far the search went."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from warpfrag import html
from warpfrag.diagnosis.mistake_types import KINDS, Misreading, Mistake, likelihood

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from warpfrag.diagnosis.agreement import Agreement
    from warpfrag.diagnosis.mistake_types import Kind

Suspect: TypeAlias = Mistake | Misreading
Candidate: TypeAlias = tuple[Suspect, ...]
"""What may have gone wrong: one mistake, or two in the order in which they are made."""


MAX_LISTED = 3  # findings in a repr


@dataclass(frozen=True)
class Finding:
    """A mistake that explains what was observed. `operand` is the one it is made with; `second` the other of a pair."""

    kind: Kind
    operand: str
    text: str
    second: Finding | None = None

    def __str__(self) -> str:
        """The operand and the mistake, such as `b: registers 0 and 1 swapped`."""
        if self.second is None:
            return f"{self.operand}: {self.text}"
        joint = "then" if self.second.operand == self.operand else "and"
        return f"{self.operand}: {self.text}; {joint} {self.second}"


class Diagnosis(list[Finding]):
    """The findings, the likeliest first, and how far the search went.

    `correct`: nothing is wrong. `tried` counts the mistakes that were made, by kind, and `pairs` the pairs of them.
    `agreement` says which elements are right and what the wrong ones equal; None where all are right.
    """

    def __init__(
        self,
        findings: Iterable[Finding],
        *,
        correct: bool,
        tried: Mapping[Kind, int],
        pairs: int,
        agreement: Agreement | None = None,
    ) -> None:
        """Keep the findings, the counts and what is right."""
        super().__init__(findings)
        self.correct = correct
        self.tried = dict(tried)
        self.pairs = pairs
        self.agreement = agreement

    def __str__(self) -> str:
        """The answer in words; where no mistake explains all of it, what is right and what the wrong ones equal."""
        if self or self.agreement is None:
            return "\n".join(map(str, self)) or self.summary
        return f"{self.summary}\n{self.agreement}"

    def __repr__(self) -> str:
        """The summary, and the likeliest findings."""
        listed = [f" {finding}" for finding in self[:MAX_LISTED]]
        more = [f" and {len(self) - MAX_LISTED} more"] if len(self) > MAX_LISTED else []
        return "\n".join([f"<Diagnosis: {self.summary}", *listed, *more]) + ">"

    def _repr_html_(self) -> str:
        """A card for notebooks: the summary, and every finding with its rank."""
        rows = [
            (str(rank), finding.kind, finding.operand, finding.text if finding.second is None else str(finding))
            for rank, finding in enumerate(self, start=1)
        ]
        findings = html.table(("rank", "kind", "operand", "mistake"), rows) if rows else ""
        partial = "" if self.agreement is None else f"<p>{html.escape(str(self.agreement))}</p>"
        return html.card("<code>Diagnosis</code>", f"<p>{html.escape(self.summary)}</p>", findings, partial)

    @property
    def summary(self) -> str:
        """One sentence: what came of it."""
        if self.correct:
            return "correct: this is what the instruction gives"
        if self:
            singular, plural = ("pair of mistakes", "pairs of mistakes") if self[0].second else ("mistake", "mistakes")
            count = len(self)
            which = "1" if count == 1 else f"either of {count}" if count == 2 else f"any of {count}"
            return f"{which} {singular if count == 1 else plural} explains it"
        counts = ", ".join(f"{kind} {count}" for kind, count in self.tried.items())
        return f"nothing found: {sum(self.tried.values())} mistakes tried ({counts}) and {self.pairs} pairs of them"


def rank(candidate: Candidate) -> tuple[bool, int, list[tuple[bool, int, int]]]:
    """A key that sorts the likeliest first."""
    rare = any(mistake.rare for mistake in candidate)
    return rare, sum(KINDS.index(mistake.kind) for mistake in candidate), sorted(map(likelihood, candidate))


def diagnosis(
    candidates: Iterable[Candidate], suspected: Iterable[Suspect], pairs: int, agreement: Agreement | None = None
) -> Diagnosis:
    """The answer. Two mistakes with one operand stand in their order; where either will do, once."""
    findings: dict[frozenset[int], Finding] = {}
    alike: Counter[tuple[tuple[Kind, str], ...]] = Counter()  # how many of a kind with an operand came before
    place: dict[frozenset[int], int] = {}
    for candidate in sorted(candidates, key=rank):
        same_operand = len({mistake.operand for mistake in candidate}) == 1
        first, *rest = candidate if same_operand else sorted(candidate, key=likelihood)
        made = [Finding(mistake.kind, mistake.operand, mistake.text) for mistake in (first, *rest)]
        key = frozenset(map(id, candidate))
        if key not in findings:
            kinds = tuple((mistake.kind, mistake.operand) for mistake in made)
            place[key] = alike[kinds]
            alike[kinds] += 1
            findings[key] = replace(made[0], second=made[1]) if rest else made[0]
    counts = Counter(mistake.kind for mistake in suspected)
    tried = {kind: counts[kind] for kind in KINDS if counts[kind]}
    # one of each kind with each operand before a second: different explanations are worth more than more of one
    ordered = [findings[key] for key in sorted(findings, key=lambda key: place[key])]
    return Diagnosis(ordered, correct=False, tried=tried, pairs=pairs, agreement=agreement)
