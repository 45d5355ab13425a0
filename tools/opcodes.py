"""Compare every opcode row of the PTX machine with a GPU, with one generated kernel per spelling.

    python -m tools.opcodes [REPORT.md] [--only PREFIX]
    python -m tools.opcodes --keep REPORT.json

A kernel reads its operands from memory, runs one instruction in every thread and stores the result. The GPU and the
machine run the same text on the same random and special operands, and every code is compared. --keep stores the
spellings that were equal in a report as the evidence that `warpfrag.machine.ops.opcode_lookup` reads.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tools.arguments import CHECKOUT, report_parser
from warpfrag.errors import WarpfragError
from warpfrag.files import write_atomically
from warpfrag.hardware.gpu_device import Gpu, open_gpu
from warpfrag.machine.ir.actions import LaneOp, WarpCollective
from warpfrag.machine.ir.scalar_types import TYPES, Type
from warpfrag.machine.ops.opcode_lookup import ROWS, TABLE, Compared, packed
from warpfrag.machine.ops.opcode_rows import match
from warpfrag.ptx.lowering.statements import SCALAR_VIDEO
from warpfrag.ptx.ptx_module import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from warpfrag.machine.ir.opcode import OpcodeRow

EVIDENCE = CHECKOUT / "src" / "warpfrag" / "machine" / "ops" / TABLE.name
WARPS = 96
THREADS = WARPS * 32
TABLES = (0xE8, 0x96, 0x1B, 0x80)  # lop3 tables: majority, parity, and two arbitrary ones
CARRIES = {"addc", "subc", "madc"}
LEFT_OUT = {"createpolicy", "isspacep", "cvta", "activemask"}  # the result depends on addresses or on the whole warp
LEFT_OUT |= {"mapa", "getctarank"}  # the result depends on the cluster
LEFT_OUT |= {"alloca", "stacksave", "stackrestore"}
LEFT_OUT |= SCALAR_VIDEO  # operands may be parts of registers
BITS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}


@dataclass(frozen=True)
class Case:
    """One spelling of a row, with its immediate, if any."""

    row: OpcodeRow
    name: str
    action: LaneOp | WarpCollective
    immediate: int = 0


def cases(prefix: str = "") -> Iterator[Case]:
    """Return every spelling of every arithmetic row."""
    seen = set()
    for opcode, rows in ROWS.items():
        if opcode in LEFT_OUT or not opcode.startswith(prefix):
            continue
        for row in rows:
            if row.any_words or not computes(row):
                continue
            for name in spellings(row):
                attributes = match(row, name, 4 if ".pack." in name and "b32" in name else 3)
                if isinstance(attributes, str) or name in seen:
                    continue
                seen.add(name)
                action = row.bind(attributes)
                if isinstance(action, LaneOp | WarpCollective):
                    many = TABLES if None in action.sources else (0,)
                    for immediate in many:
                        yield Case(row, name, action, immediate)


def computes(row: OpcodeRow) -> bool:
    """Return True if a row computes registers from registers, judged by its first spelling."""
    attributes = match(row, next(spellings(row)), 3)
    return not isinstance(attributes, str) and isinstance(row.bind(attributes), LaneOp | WarpCollective)


def spellings(row: OpcodeRow) -> Iterator[str]:
    """Return the names of a row, with modifiers in the row's order and types last (first for scalar video)."""
    lists = [sorted(one.words if one.is_required else ("", *one.words)) for one in row.modifiers.values()]
    for options in product(*lists):
        words = [word for word in options if word]
        if ("xorsign" in words) != ("abs" in words and row.opcode in {"min", "max"}):
            continue
        for types in product(*(sorted(kind.name for kind in kinds) for kinds in row.types)):
            if row.opcode == "cvt" and "pack" in words:  # the packed type precedes the operand type
                yield ".".join([row.opcode, *words, *types])
            elif row.opcode in SCALAR_VIDEO:
                yield ".".join([row.opcode, *types, *words])
            else:
                yield ".".join([row.opcode, *words, *types])


def register(kind: Type) -> str:
    """Return the register type of a PTX type; bytes use 16-bit registers."""
    return "pred" if kind.bits == 1 else f"b{max(16, kind.bits)}"


def kernel(case: Case, target: str) -> str:
    """Return a module with one entry `k(out, in)`: 64-bit words out[result][thread] and in[source][thread]."""
    action = case.action
    sources: list[Type] = [kind for kind in action.sources if kind is not None]
    takes_carry = case.row.opcode in CARRIES
    gives_carry = ".cc" in case.name
    if takes_carry:
        sources = sources[:-1]
    members = isinstance(action, WarpCollective) and action.synced
    if members:
        sources = sources[:-1]
    lines = [
        ".version 8.7", f".target {target}", ".address_size 64",
        ".visible .entry k(.param .u64 out, .param .u64 in)", "{",
        ".reg .b64 %in, %out, %at, %wide<4>;", ".reg .b32 %thread, %block, %carry<4>;", "ld.param.u64 %out, [out];",
        "ld.param.u64 %in, [in];", "mov.u32 %thread, %tid.x;", "mov.u32 %block, %ctaid.x;",
        "mad.lo.u32 %thread, %block, 32, %thread;", "mul.wide.u32 %at, %thread, 8;", "add.u64 %in, %in, %at;",
        "add.u64 %out, %out, %at;",
    ]  # fmt: skip
    for index, kind in enumerate(sources):
        lines += _read(f"%s{index}", kind, index)
    results = list(action.results)
    if gives_carry:
        results = results[:-1]
    shown_results = results[: pairs(case)]
    lines += [f".reg .{register(kind)} %d{index};" for index, kind in enumerate(shown_results)]
    given = [f"%s{index}" for index in range(len(sources))]
    for at, wanted in enumerate(action.sources):
        if wanted is None:
            given.insert(at, str(case.immediate))
    if members:
        given.append("-1")
    if takes_carry:
        lines += _read("%cin", TYPES["u32"], len(sources))
        lines.append("add.cc.u32 %carry0, %cin, 0xFFFFFFFF;")
    target_text = "|".join(f"%d{index}" for index in range(len(shown_results)))
    lines.append(f"{case.name} {', '.join([target_text, *given])};")
    if gives_carry:
        lines.append("addc.u32 %carry1, 0, 0;")
    for index, kind in enumerate(shown_results):
        lines += _write(f"%d{index}", kind, index)
    if gives_carry:
        lines += _write("%carry1", TYPES["u32"], len(shown_results))
    return "\n".join([*lines, "ret;", "}", ""])


def pairs(case: Case) -> int:
    """Return the number of results that a kernel stores; setp of f16 and bf16 may lack the second."""
    two = case.row.opcode in {"setp", "lop3", "shfl", "match", "elect"} and len(case.action.results) > 1
    return 2 if two and not case.name.endswith((".f16", ".bf16")) else 1


def shape(case: Case) -> tuple[int, int]:
    """Return the number of sources and results of a case's kernel."""
    action = case.action
    sources = sum(kind is not None for kind in action.sources) - (isinstance(action, WarpCollective) and action.synced)
    return sources, pairs(case) + (".cc" in case.name)


def _read(name: str, kind: Type, index: int) -> list[str]:
    place = f"[%in+{index * THREADS * 8}]"
    if kind.bits == 1:
        return [
            f".reg .pred {name};", f"ld.global.b64 %wide0, {place};", "and.b64 %wide0, %wide0, 1;",
            f"setp.ne.b64 {name}, %wide0, 0;",
        ]  # fmt: skip
    bits = max(16, kind.bits)
    return [f".reg .b{bits} {name};", f"ld.global.b{bits} {name}, {place};"]


def _write(name: str, kind: Type, index: int) -> list[str]:
    place = f"[%out+{index * THREADS * 8}]"
    if kind.bits == 1:
        return [f"selp.b64 %wide1, 1, 0, {name};", f"st.global.b64 {place}, %wide1;"]
    return [f"st.global.b{max(16, kind.bits)} {place}, {name};"]


def operands(case: Case, random: np.random.Generator) -> NDArray[np.uint64]:
    """Return the operands of every thread: all pairs of special codes, then random codes."""
    kinds = [kind for kind in case.action.sources if kind is not None]
    if isinstance(case.action, WarpCollective) and case.action.synced:
        kinds = kinds[:-1]
    columns = []
    for index, kind in enumerate(kinds):
        special = _special(kind)
        column = random.integers(0, 1 << 64, THREADS, dtype=np.uint64) & np.uint64((1 << kind.bits) - 1)
        pick = random.integers(0, 4, THREADS)
        chosen = np.array(special, np.uint64)[random.integers(0, len(special), THREADS)]
        small = random.integers(0, 72, THREADS).astype(np.uint64)
        column = np.where(pick == 0, chosen, np.where((pick == 1) & (not kind.is_float), small, column))
        if kind.is_float and kind.parts == 1 and kind.element in BITS:  # similar magnitudes, so that sums cancel
            column = np.where(pick == 2, _near_one(kind, column), column)
        span = special[:28]
        grid = np.array([span[(n // 28**index) % len(span)] for n in range(28 * 28)], np.uint64)
        column[: len(grid)] = grid
        columns.append(column & np.uint64((1 << kind.bits) - 1))
    return np.array(columns or [np.zeros(THREADS, np.uint64)], np.uint64)


def _near_one(kind: Type, column: NDArray[np.uint64]) -> NDArray[np.uint64]:
    exponent, fraction = BITS[kind.element]
    bias = (1 << (exponent - 1)) - 1
    low = column & np.uint64((1 << fraction) - 1)
    spread = (column >> np.uint64(max(0, min(60, kind.bits - 3)))) & np.uint64(3)
    sign = (column >> np.uint64(kind.bits - 1)) << np.uint64(kind.bits - 1)
    found: NDArray[np.uint64] = sign | ((np.uint64(bias - 1) + spread) << np.uint64(fraction)) | low
    return found


def _special(kind: Type) -> list[int]:
    """Return boundary codes of a type."""
    top = 1 << kind.bits
    if kind.bits == 1:
        return [0, 1]
    if not kind.is_float or kind.element not in BITS:
        half = top >> 1
        found = [0, 1, 2, 3, top - 1, top - 2, half, half - 1, half + 1, 31, 32, 33, 63, 64, 8, 16, 24, 255, 0x7F, 0x80]
        return [code % top for code in found] + [
            0x5555555555555555 % top,
            0xAAAAAAAAAAAAAAAA % top,
            half >> 1,
            half | 1,
        ]
    exponent, fraction = BITS[kind.element]
    bits = 1 + exponent + fraction
    one = ((1 << (exponent - 1)) - 1) << fraction
    infinite = ((1 << exponent) - 1) << fraction
    near_least = [0x20000001, 0x1FFFFFFE] if kind.element == "f32" else []  # their product is just below 2**-126
    positive = [
        *near_least, 0, 1, (1 << fraction) - 1, 1 << fraction, one, one + 1, one - 1, one + (1 << fraction),
        infinite - 1, infinite, infinite + 1, infinite | 1 << (fraction - 1),
    ]  # fmt: skip
    codes = [*positive, *(code | 1 << (bits - 1) for code in positive)]
    if kind.parts == 2:
        return [code | codes[(7 * at + 3) % len(codes)] << bits for at, code in enumerate(codes)]
    return codes


@dataclass
class Outcome:
    """The outcome of one case."""

    name: str
    level: str
    cases: int
    different: int
    refused: str = ""
    example: str = ""


def compare(gpu: Gpu, case: Case, seed: int = 3) -> Outcome:
    """Run one case on both sides."""
    text = kernel(case, gpu.target)
    given = operands(case, np.random.default_rng([seed, *case.name.encode()]))
    count, results = shape(case)
    given = given[:count] if count else given
    blank = np.zeros((results, THREADS), np.uint64)
    try:
        module = gpu.load(text)
        found = gpu.run_blocks(module, "k", WARPS, [blank.view(np.uint32), np.ascontiguousarray(given).view(np.uint32)])
    except Exception as error:  # noqa: BLE001 (cuda-core raises various types)
        return Outcome(case.name, case.row.level, 0, 0, refused=str(error).splitlines()[0][:200])
    expected = emulate(text, given, results)
    actual = np.ascontiguousarray(found).view(np.uint64).reshape(results, THREADS)
    wrong = (actual != expected).any(axis=0)
    example = ""
    if wrong.any():
        shown = []
        for at in [int(index) for index in np.nonzero(wrong)[0][:6]]:
            codes = " ".join(f"{int(column[at]):x}" for column in given)
            shown.append(
                f"{codes} -> gpu {[hex(int(v)) for v in actual[:, at]]} here {[hex(int(v)) for v in expected[:, at]]}"
            )
        example = "; ".join(shown)
    return Outcome(case.name, case.row.level, THREADS, int(wrong.sum()), example=example)


def emulate(text: str, given: NDArray[np.uint64], results: int) -> NDArray[np.uint64]:
    """Return the results of a kernel on the PTX machine."""
    out = np.zeros((results, THREADS), np.uint64)
    load(text)["k"].launch(WARPS, 32, [out, np.ascontiguousarray(given)])
    return out


def keep(report: Path) -> None:
    """Store the spellings that a report found equal as evidence."""
    found = json.loads(report.read_text(encoding="utf-8"))
    outcomes = [Outcome(**one) for one in found["outcomes"]]
    equal = {one.name for one in outcomes if one.cases and not one.different and one.level != "approximate"}
    unequal = {one.name for one in outcomes if one.different}  # spellings that differ with another immediate
    known = Compared(found["gpu"], found["driver"], found["arch"], THREADS, frozenset(equal - unequal))
    write_atomically(EVIDENCE, packed(known))


def main(argv: Sequence[str] | None = None) -> int:
    """Compare all rows, and print and write a report; the exit status is 1 if anything differs."""
    parser = report_parser("opcodes", __doc__, "only opcodes that start with this text")
    parser.add_argument("--keep", type=Path, metavar="REPORT.json", help="use a report's equal spellings as evidence")
    arguments = parser.parse_args(argv)
    if arguments.keep:
        keep(arguments.keep)
        return 0
    gpu = open_gpu()
    outcomes: list[Outcome] = []
    for case in cases(arguments.only):
        try:
            outcomes.append(compare(gpu, case))
        except WarpfragError as error:
            outcomes.append(Outcome(case.name, case.row.level, 0, 0, refused=f"machine: {error}"))
        last = outcomes[-1]
        if last.different and last.level != "approximate":
            print(f"DIFFERS {last.name}: {last.different} of {last.cases}: {last.example}")
    report = summary(gpu, outcomes)
    print(report)
    if arguments.report:
        write_atomically(arguments.report, report.encode())
        found = {"gpu": gpu.name, "driver": gpu.driver, "arch": gpu.arch, "outcomes": [vars(one) for one in outcomes]}
        write_atomically(arguments.report.with_suffix(".json"), json.dumps(found, indent=1).encode())
    return int(any(one.different and one.level != "approximate" for one in outcomes))


def summary(gpu: Gpu, outcomes: list[Outcome]) -> str:
    """Return the report."""
    kinds: Counter[str] = Counter()
    for one in outcomes:
        state = "refused by the assembler" if one.refused else "different" if one.different else "equal"
        kinds[f"{state}{' (approximate)' if one.level == 'approximate' else ''}"] += 1
    lines = [
        f"{gpu.name}, driver {gpu.driver}",
        "",
        *(f"* {count} spellings: {state}" for state, count in kinds.items()),
    ]
    lines += [f"* {sum(one.cases for one in outcomes)} threads compared", ""]
    lines += [
        f"* DIFFERS {one.name}: {one.different} of {one.cases}: {one.example}" for one in outcomes if one.different
    ]
    lines += [f"* refused {one.name}: {one.refused}" for one in outcomes if one.refused]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
