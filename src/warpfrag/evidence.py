"""Evidence: how well it is known what an instruction computes on an architecture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from warpfrag.arithmetic import plan
from warpfrag.captured.index import evidence_rows
from warpfrag.errors import IllegalInstruction, NotModelled
from warpfrag.isa.names import spell
from warpfrag.isa.operands import operands
from warpfrag.isa.rows import Form, legal_targets, targets

if TYPE_CHECKING:
    from collections.abc import Iterator

Level = Literal["specified", "hardware", "published", "not modelled"]


@dataclass(frozen=True)
class Evidence:
    """How an answer is known: by the ISA, by comparison with a GPU, by a published model, or not at all.

    `cases` counts the captured tiles that were compared with a GPU. `machine` is what the instruction becomes there,
    `native` whether that is one machine instruction. It unpacks as `level, detail, cases = mma.evidence("sm_90")`.
    """

    level: Level
    detail: str
    cases: int = 0
    machine: str = ""
    native: bool = False

    def __iter__(self) -> Iterator[Any]:
        """Level, detail and cases."""
        return iter((self.level, self.detail, self.cases))


def evidence(form: Form, arch: str) -> Evidence:
    """What is known of a form on an architecture or target."""
    if arch not in targets():
        raise IllegalInstruction(spell(form), f"unknown arch {arch!r}; expected one of {', '.join(targets())}")
    wanted = targets()[arch].arch
    able = {targets()[target].arch for target in legal_targets(form)}
    if wanted not in able:
        return Evidence("not modelled", f"not legal on {arch}")
    if not form.is_product:
        return _mover_evidence(form, wanted)
    try:
        steps = plan(form, wanted)
    except NotModelled as error:
        return Evidence("not modelled", str(error))
    rows = evidence_rows(spell(form), wanted)
    if rows:
        detail = "; ".join(f"{row.device}, driver {row.driver}, {row.cases} cases" for row in rows)
        return Evidence("hardware", detail, sum(row.cases for row in rows), steps.machine, steps.native)
    return Evidence(steps.level, steps.source, 0, steps.machine, steps.native)


def _mover_evidence(form: Form, arch: str) -> Evidence:
    """A mover is known as well as its layouts are: measured where the ISA leaves them open, else specified."""
    rows = operands(form, arch).values()
    unknown = next((row.unknown for row in rows if row.unknown), "")
    if unknown:
        return Evidence("not modelled", unknown)
    return Evidence("hardware" if form.is_wmma else "specified", "; ".join(dict.fromkeys(row.source for row in rows)))
