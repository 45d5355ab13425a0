"""Mistakes, findings, and the diagnosis that `diagnose` returns.

A `Mistake` changes the registers of one operand; a `Misreading` runs a different instruction on the right registers. A
`Finding` is a mistake that explains the observed result, and the `Diagnosis` lists them. The `Agreement` lists the
correct elements of a wrong result, and known values that the wrong ones equal, even if no mistake is found.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from warpfrag import html
from warpfrag.formats.arrays import as_doubles
from warpfrag.formats.codes import from_codes
from warpfrag.formats.number_formats import Format
from warpfrag.tensorcore import fragment
from warpfrag.tensorcore.operand import Operand

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


# ---- agreement of observed and expected results


BLOCK = 8  # the rows and columns of a block
MIN_EQUAL = 2  # the smallest group of elements that is reported
MAX_NAMED = 12  # the maximum number of ranges that a text lists


@dataclass(frozen=True)
class Agreement:
    """The right parts of a wrong result (rows, columns, blocks, lanes and registers), and hints about the wrong ones.

    `blocks` are (row, column) pairs of 8 x 8 blocks, or of the tiles of a kernel; `lanes` are numbered through the
    warps of a warpgroup. `equals` has a sentence for each group of wrong elements that have a known value.
    """

    correct: int
    elements: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...]
    lanes: tuple[int, ...]
    registers: tuple[int, ...]
    equals: tuple[str, ...]
    block_shape: tuple[int, int] = (BLOCK, BLOCK)

    def __repr__(self) -> str:
        """Format the number of correct elements."""
        return f"<Agreement: {self.correct} of {self.elements} elements are right>"

    def __str__(self) -> str:
        """Format the number and location of correct elements, and the known values of wrong elements."""
        if not self.correct:
            lines = [f"none of {self.elements} elements is right"]
        else:
            lines = [f"{self.correct} of {self.elements} elements are right"]
            names = ("rows", "columns", "blocks", "lanes", "registers")
            right = named_lines({name: getattr(self, name) for name in names}, self.block_shape)
            lines[0] += f"; right throughout: {'; '.join(right)}" if right else "; no row, column, lane or register is"
            lines[0] += "" if right else " right throughout"
        return "\n".join([*lines, *self.equals])

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON-compatible values."""
        names = ("rows", "columns", "block_shape", "lanes", "registers", "equals")
        lists: dict[str, object] = {name: list(getattr(self, name)) for name in names}
        blocks = [list(block) for block in self.blocks]
        return {"correct": self.correct, "elements": self.elements, "blocks": blocks, **lists}


def named_lines(lines: Mapping[str, tuple[Any, ...]], block: tuple[int, int]) -> list[str]:
    """Return a text for each category of lines, such as "rows 0-7"."""
    pairs = [f"({row}, {col})" for row, col in lines.get("blocks", ())]
    blocks = ", ".join(pairs[:MAX_NAMED] + ["..."] * (len(pairs) > MAX_NAMED))
    texts = {name: blocks if name == "blocks" else numbers(some) for name, some in lines.items()}
    size = f"{block[0]} x {block[1]} "
    names = {
        name: f"{size if name == 'blocks' else ''}{name[: -1 if len(lines[name]) == 1 else None]}" for name in texts
    }
    return [f"{names[name]} {text}" for name, text in texts.items() if text]


def as_lines(numbers: NDArray[Any]) -> tuple[Any, ...]:
    """Return line numbers as integers; complex numbers, which represent blocks, become pairs."""
    is_block = np.iscomplexobj(numbers)
    return tuple((int(number.real), int(number.imag)) if is_block else int(number) for number in numbers)


def numbers(some: Iterable[int]) -> str:
    """Return ascending numbers as text, with ranges.

    >>> numbers([0, 1, 2, 3, 7, 9, 10])
    '0-3, 7, 9, 10'
    """
    runs: list[list[int]] = []
    for number in some:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join(parts[:MAX_NAMED]) + (", ..." if len(parts) > MAX_NAMED else "")


def agreement(
    operand: Operand, seen: Codes, right: Codes, *, c: Codes | None = None, block: tuple[int, int] = (BLOCK, BLOCK)
) -> Agreement:
    """Compare a result with the expected one, which is a fragment of `operand` or a matrix of many fragments."""
    same = seen == right
    indices = line_numbers(operand, same.shape, block)
    return Agreement(
        correct=int(same.sum()),
        elements=same.size,
        **{name: as_lines(np.setdiff1d(index, index[~same])) for name, index in indices.items()},
        equals=tuple(_equals(operand.format, seen, right, c)),
        block_shape=block,
    )


def line_numbers(
    operand: Operand, shape: tuple[int, ...], block: tuple[int, int] = (BLOCK, BLOCK)
) -> dict[str, NDArray[Any]]:
    """Return each element's row, column, block, lane and register; an incomplete fragment counts as one lane."""
    row, col = np.indices(shape)[-2:]
    layout, own, place = operand.layout, operand.shape, np.zeros(shape, np.intp)
    repeats = [extent // size for extent, size in zip(shape, own, strict=False)]
    if shape == tuple(np.multiply(repeats, own)):
        place = np.tile(fragment.first_places(layout).reshape(own), repeats)
    return {
        "rows": row,
        "columns": col,
        "blocks": row // block[0] + 1j * (col // block[1]),
        "lanes": place // (layout.regs * layout.slots),
        "registers": place // layout.slots % layout.regs,
    }


def _equals(form: Format, seen: Codes, right: Codes, c: Codes | None) -> Iterator[str]:
    """Yield a sentence for each group of wrong elements; an element belongs to the first group that fits."""
    if seen.size > 1 and (seen == seen.flat[0]).all():
        yield f"every element is {from_codes(form, seen).flat[0]:g}: check that the kernel ran, and that it stores D"
    left = seen != right
    total = int(left.sum())
    got, expected = (as_doubles(from_codes(form, codes)) for codes in (seen, right))
    with np.errstate(invalid="ignore", over="ignore"):
        groups = [
            ("are 0", got == 0),
            ("are NaN", np.isnan(got)),
            ("are infinite", np.isinf(got)),
            ("equal C", np.zeros_like(left) if c is None else seen == c),
            ("have the expected magnitude and the opposite sign", got == -expected),
            ("are twice the expected value", got == 2 * expected),
            ("are half the expected value", 2 * got == expected),
        ]
    for text, fits in groups:
        count = int((left & fits).sum())
        if count:
            yield f"{count} of {total} wrong elements {text}"
            left &= ~fits
    yield from _elsewhere(seen, right, left, total)


def _elsewhere(seen: Codes, right: Codes, left: NDArray[np.bool_], total: int) -> Iterator[str]:
    """Yield a sentence about wrong elements whose values are expected in a different row or column."""
    codes, first, counts = np.unique(right, return_index=True, return_counts=True)
    unique = dict(zip(codes[counts == 1].tolist(), first[counts == 1].tolist(), strict=True))
    away: Counter[tuple[int, ...]] = Counter()
    for place in np.argwhere(left):
        source = unique.get(seen[tuple(place)].item())
        if source is not None:
            at = np.array(np.unravel_index(source, right.shape))
            away[tuple((at - place).tolist()[-2:])] += 1
    count = sum(away.values())
    if count < MIN_EQUAL:
        return
    (row, col), often = away.most_common(1)[0]
    if 2 * often > count:
        yield f"{often} of {total} wrong elements equal the expected D[row{_by(row)}, col{_by(col)}]"
    elif count:
        yield f"{count} of {total} wrong elements equal an expected element in a different row or column"


def _by(step: int) -> str:
    return f" {'+' if step > 0 else '-'} {abs(step)}" if step else ""


# ---- findings


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
