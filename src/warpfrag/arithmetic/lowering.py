"""Which steps an instruction takes on an architecture: PTX is not the unit of arithmetic, the machine code is.

    instruction + architecture  --tables/lowering.toml-->  steps, in order
    unit named by the row       --tables/arithmetic.toml-> the numbers of each step

`plan` joins the two. Everything that runs or explains an instruction (`fast`, `reference`, `trace`) reads a `Plan`
and knows nothing of PTX names or architectures.

    fp8 on sm_90:   A, B -> f16;  previous = fused(places 0 1 4 5 ...) onto 0;
                    previous = fused(places 2 3 6 7 ...) onto previous;  D = C + previous, to nearest
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from warpfrag.arithmetic.units import Level, Unit, find_unit
from warpfrag.errors import NotModelled
from warpfrag.formats import FORMATS
from warpfrag.isa.targets import architectures
from warpfrag.tables import read_table

if TYPE_CHECKING:
    from warpfrag.isa.words import Form

Do = Literal[
    "read_c",
    "read_ab",
    "fused",
    "add_c",
    "round_d",
    "chain_f32",
    "chain_f16",
    "fma_f64",
    "integer",
    "popcount",
    "scaled",
    "grouped",
]
Onto = Literal["c", "zero", "previous"]

_CONDITIONS = ("op", "a", "shape", "kind", "bitop", "accumulators", "arch")
_ANSWERS = ("native", "machine", "unit", "piece", "steps", "source", "level")


@dataclass(frozen=True)
class Step:
    """One thing done to an output; `places` are stored elements of A's row, in the order they are added."""

    do: Do
    places: tuple[int, ...] = ()
    onto: Onto | None = None
    to: str = ""
    unit: Unit | None = None


@dataclass(frozen=True)
class Plan:
    """How one instruction runs on one architecture.

    `operand_a` and `operand_b` are the formats that enter the arithmetic: those of A and B, or what they are
    converted to. `scales` is the number of scale factors per row of A and column of B.
    """

    arch: str
    m: int
    n: int
    k: int
    a: str
    b: str
    c: str
    d: str
    operand_a: str
    operand_b: str
    is_sparse: bool
    satfinite: bool
    bitop: str
    rounding: str
    scales: int
    scale_type: str
    steps: tuple[Step, ...]
    native: bool
    machine: str
    source: str
    level: Level

    def __hash__(self) -> int:
        """A cheap hash: a plan is looked up on every call, and its steps are long."""
        return hash((self.arch, self.m, self.n, self.k, self.a, self.b, self.c, self.d, self.machine))

    @property
    def stored(self) -> int:
        """Stored elements per row of A."""
        return self.k // 2 if self.is_sparse else self.k

    @property
    def fused_steps(self) -> tuple[Step, ...]:
        """The steps that add products, without conversions and the final addition."""
        return tuple(step for step in self.steps if step.do in ("fused", "scaled", "grouped"))


def plan(instruction: Form, arch: str) -> Plan:
    """How `instruction` runs on `arch` (a trailing a or f, as in sm_90a, changes nothing).

    Raises NotModelled where nobody has published or measured it.
    """
    base = arch.rstrip("af")
    row = _find_row(instruction, base)
    if row is None:
        raise NotModelled(_refusal(instruction, base))
    operand_a, operand_b = instruction.a, instruction.b
    for written in row["steps"]:
        if written["do"] == "read_ab":
            operand_a = operand_b = written["to"]
    unit = None
    if "unit" in row:
        rounds_d = any(written["do"] == "round_d" for written in row["steps"])
        accumulator = instruction.c if rounds_d else instruction.d
        unit = find_unit(row["unit"], base, operand_a, operand_b, accumulator)
        if unit is None:
            raise NotModelled(_refusal(instruction, base))
    shape = instruction.shape
    stored = shape.k // 2 if instruction.is_sparse else shape.k
    source = row["source"] if unit is None else f"{row['source']}; {unit.source}"
    return Plan(
        arch=base,
        m=shape.m,
        n=shape.n,
        k=shape.k,
        a=instruction.a,
        b=instruction.b,
        c=instruction.c,
        d=instruction.d,
        operand_a=operand_a,
        operand_b=operand_b,
        is_sparse=instruction.is_sparse,
        satfinite=instruction.satfinite,
        bitop=instruction.bitop,
        rounding=(instruction.rounding or "rn") if instruction.a == "f64" else "",
        scales=int(instruction.scale_vec[0]) if instruction.scale_vec else 0,
        scale_type=instruction.scale_type,
        steps=_resolve_steps(row["steps"], unit, stored),
        native=row["native"],
        machine=_spell_machine(row, instruction, base),
        source=source,
        level=row["level"] if unit is None else unit.level,
    )


@cache
def _read_rows() -> tuple[dict[str, Any], ...]:
    """The rows of the table; one that names an unknown condition, architecture, step or format is refused."""
    rows = tuple(read_table("lowering")["lowering"])
    for row in rows:
        named = [key.removeprefix("piece_") for key in row if key not in (*_CONDITIONS, *_ANSWERS)]
        named = [name for name in (*named, *row.get("arch", ())) if name not in architectures()]
        if named:
            msg = f"lowering table: unknown keys or architectures {named}"
            raise ValueError(msg)
        for written in row["steps"]:
            if written["do"] not in Do.__args__:  # type: ignore[attr-defined]
                msg = f"lowering table: unknown step {written['do']!r}"
                raise ValueError(msg)
        unknown = [name for name in row.get("a", ()) if name not in FORMATS]
        if unknown:
            msg = f"lowering table: unknown formats {unknown}"
            raise ValueError(msg)
    return rows


def _find_row(instruction: Form, arch: str) -> dict[str, Any] | None:
    """The first row whose every condition fits."""
    facts = {
        "op": instruction.op,
        "a": instruction.a,
        "shape": str(instruction.shape),
        "kind": instruction.kind,
        "bitop": instruction.bitop,
        "accumulators": f"{instruction.d}.{instruction.c}",
        "arch": arch,
    }
    for row in _read_rows():
        if all(facts[name] in row[name] for name in _CONDITIONS if name in row):
            return row
    return None


def _resolve_steps(written_steps: list[dict[str, Any]], unit: Unit | None, stored: int) -> tuple[Step, ...]:
    """The steps with their places: a fused step longer than the unit can add is split, the rest goes onto it."""
    steps: list[Step] = []
    for written in written_steps:
        if unit is None or written["do"] not in ("fused", "scaled", "grouped"):
            steps.append(Step(do=written["do"], to=written.get("to", "")))
            continue
        places = range(stored)
        if "of" in written:
            chosen = tuple(p for p in places if (p // written["of"]) % 2 == written["take"])
        else:
            chosen = tuple(places)
        length = min(len(chosen), unit.products, written.get("at_most", unit.products))
        for first in range(0, len(chosen), length):
            onto: Onto = written["onto"] if first == 0 else "previous"
            steps.append(Step(do=written["do"], places=chosen[first : first + length], onto=onto, unit=unit))
    return tuple(steps)


def _spell_machine(row: dict[str, Any], instruction: Form, arch: str) -> str:
    """The machine instructions as text, with the shape and types filled in."""
    shape = instruction.shape
    piece = row.get(f"piece_{arch}", row.get("piece"))
    count = 1 if piece is None else -(-shape.m // piece[0]) * -(-shape.n // piece[1]) * -(-shape.k // piece[2])
    if piece is not None and shape.m < piece[0]:  # m8n32k16 runs with A and B exchanged
        count = -(-shape.n // piece[0]) * -(-shape.m // piece[1]) * -(-shape.k // piece[2])
    joint = "x" if instruction.a == "f64" else ""
    accumulator = instruction.d.upper()
    operands = {"f16": "", "bf16": ".BF16", "tf32": ".TF32"}
    if instruction.a in operands:
        types = accumulator + operands[instruction.a]
    elif FORMATS[instruction.a].is_float:
        types = f"{accumulator}.{instruction.a.upper()}.{instruction.b.upper()}"
    else:
        types = f"{instruction.a.upper()}.{instruction.b.upper()}" + (".SAT" if instruction.satfinite else "")
    rounding = instruction.rounding.upper()
    return str(row["machine"]).format(
        shape=joint.join(str(size) for size in (shape.m, shape.n, shape.k)),
        half=f"{shape.m}{shape.n}{shape.k // 2}",
        piece="".join(str(size) for size in piece) if piece else "",
        count=count,
        types=types,
        sp=".SP" if instruction.is_sparse else "",
        accumulator=accumulator,
        add="HADD2" if instruction.d == "f16" else "FADD",
        rounding=f".{rounding}" if rounding in ("RZ", "RM", "RP") else "",
    )


def _refusal(instruction: Form, arch: str) -> str:
    """One sentence on what is not known."""
    types = f"{instruction.d}.{instruction.a}.{instruction.b}.{instruction.c}"
    name = f"{instruction.op} {instruction.shape} {types}"
    if instruction.kind:
        name += f" kind::{instruction.kind}"
    if instruction.is_sparse:
        reason = "how many products of a sparse floating-point step are added together is measured on sm_90 only"
    elif instruction.op == "wmma.mma" and instruction.c != instruction.d:
        reason = "nobody has published when C is converted if C and D differ"
    else:
        reason = "nobody has published or measured its arithmetic there"
    return f"{name} is not modelled on {arch}: {reason}"
