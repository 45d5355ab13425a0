"""Evidence for the result of an instruction on an architecture.

It has two parts: the source of the arithmetic (`authority`: the ISA, a published model, our measurement, or none), and
the GPUs that the result was compared with (`gpus`, `cases`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from warpfrag.errors import NotModelled
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.instruction_table import able_architectures, families_of
from warpfrag.isa.operands import operands
from warpfrag.isa.operations import Does
from warpfrag.isa.qualifiers import Form
from warpfrag.isa.targets import read_target

Level = Literal["specified", "hardware", "published", "approximate", "not modelled"]
UNCERTAIN = {"approximate", "not modelled"}
Authority = Literal["specified", "published", "measured", "not modelled"]
CAPTURED_WIDTHS = {"warpgroup": 8}
"""For each scope, the only n whose results were captured; in other scopes, every n was captured."""
AUTHORITIES: dict[Level, Authority] = {"specified": "specified", "published": "published", "hardware": "measured"}


@dataclass(frozen=True)
class Evidence:
    """The evidence for an answer; it unpacks as `level, detail, cases = mma.evidence("sm_90")`.

    `level` is "hardware" if the result was compared with a GPU, else the authority. `authority` is one of "specified"
    (the ISA), "published" (by others), "measured" (by us) or "not modelled". `cases` counts the captured tiles that
    were compared with `gpus`. `machine` is the machine code of the instruction; `native` is True if that is a single
    machine instruction.
    """

    level: Level
    detail: str
    cases: int = 0
    machine: str = ""
    native: bool = False
    authority: Authority = "not modelled"
    gpus: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[str | int]:
        """Iterate over level, detail and cases."""
        return iter((self.level, self.detail, self.cases))


def evidence(form: Form, arch: str) -> Evidence:
    """Return the evidence for a form on an architecture or target."""
    target = read_target(arch, lambda: spell(form))
    if target.arch not in able_architectures(form):
        return Evidence("not modelled", f"not legal on {target.name}")
    return EVIDENCE_OF[form.operation.does](form, target.arch)


def _product_evidence(form: Form, arch: str) -> Evidence:
    """Return the evidence for the arithmetic of an mma: its plan, and any comparison with a GPU."""
    from warpfrag.tensorcore.arithmetic_plan import plan
    from warpfrag.tensorcore.captures.capture_index import evidence_rows

    try:
        steps = plan(form, arch)
    except NotModelled as error:
        return Evidence("not modelled", str(error))
    authority = AUTHORITIES[steps.level]
    rows = evidence_rows(spell(form), arch)
    note = ""
    width = CAPTURED_WIDTHS.get(form.operation.scope)
    if not rows and width is not None:
        rows = evidence_rows(spell(replace(form, shape=form.shape._replace(n=width))), arch)
        note = f" with n{width}, because the terms of an element of D do not depend on n"
    if not rows:
        return Evidence(steps.level, steps.source, 0, steps.machine, steps.native, authority)
    detail = "; ".join(f"{row.device}, driver {row.driver}, {row.cases} captured cases" for row in rows) + note
    gpus = tuple(dict.fromkeys(row.device for row in rows))
    cases = sum(row.cases for row in rows)
    return Evidence("hardware", detail, cases, steps.machine, steps.native, authority, gpus)


def _layout_evidence(form: Form, arch: str) -> Evidence:
    """Return the evidence for the layout of a load or store: specified, or measured if the ISA does not specify it."""
    rows = operands(form, arch).values()
    unknown = next((row.unknown for row in rows if row.unknown), "")
    if unknown:
        return Evidence("not modelled", unknown)
    source = "; ".join(dict.fromkeys(row.source for row in rows))
    level: Level = "hardware" if form.operation.fragments == "measured" else "specified"
    return Evidence(level, source, authority=AUTHORITIES[level])


EVIDENCE_OF: dict[Does, Callable[[Form, str], Evidence]] = {
    "multiply": _product_evidence,
    "load": _layout_evidence,
    "store": _layout_evidence,
    "transpose": _layout_evidence,
    # an instruction that only allocates or synchronizes: the ISA specifies it
    "manage": lambda form, _arch: Evidence("specified", families_of(form)[0].source, authority="specified"),
}
