"""The spellings of arithmetic and atomic opcode rows, and the forms that ptxas accepts.

A row stands for more names than the assembler accepts (`cvt.rn.f32.f32`, `setp.lt.ftz.f64`), and not every operand of
an accepted name may be a constant. `accepted.txt.gz` has ptxas's answers, with a line for each spelling and a column
for each target: `-` if ptxas rejects it, else the numbers of the operands that may be constants, or `.` if none may.

    python -m tools.fuzz spellings      # query ptxas again after the rows have changed
"""

from __future__ import annotations

import gzip
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tools.fuzz.assembler import assemble
from tools.opcodes import CARRIES, Case, cases, pairs, register, spellings
from warpfrag.files import write_atomically
from warpfrag.machine.ir.actions import LaneOp, WarpCollective
from warpfrag.machine.ops.opcode_lookup import ROWS
from warpfrag.machine.ops.opcode_rows import match
from warpfrag.ptx.lowering.statements import SCALAR_VIDEO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warpfrag.machine.ir.opcode import OpcodeRow
    from warpfrag.machine.ir.scalar_types import Type

TABLE = Path(__file__).parent / "accepted.txt.gz"
TARGETS = ("sm_80", "sm_90a")
VERSION = "8.7"
PER_MODULE = 3000  # statements per ptxas run


class Spelling(NamedTuple):
    """A name that ptxas accepts: the types of its results and sources, and the sources that may be constants."""

    name: str
    row: OpcodeRow
    results: tuple[Type, ...]
    sources: tuple[Type | None, ...]  # None is an operand that must be a constant
    constants: frozenset[int]
    carries_in: bool
    carries_out: bool
    is_collective: bool
    has_members: bool  # True if the last source is a lane mask


def shaped(case: Case, constants: frozenset[int] = frozenset()) -> Spelling:
    """Return the spelling of a case, with the operands as they are written: no carries, no optional second result."""
    action = case.action
    takes, gives = case.row.opcode in CARRIES, ".cc" in case.name
    results = tuple(kind for kind in action.results if kind is not None)[: 1 if gives else pairs(case)]
    sources = action.sources[:-1] if takes else action.sources
    members = isinstance(action, WarpCollective) and action.synced
    return Spelling(
        case.name, case.row, results, tuple(sources), constants, takes, gives,
        isinstance(action, WarpCollective), members,
    )  # fmt: skip


def candidates() -> Iterator[Case]:
    """Return one case for each name of the arithmetic rows."""
    seen: set[str] = set()
    for case in cases():
        if case.name not in seen:
            seen.add(case.name)
            yield case


class Update(NamedTuple):
    """An atomic instruction: atom or red with its qualifiers."""

    name: str
    opcode: str
    space: str  # "" is generic
    operation: str
    vector: int
    kind: Type


def updates() -> Iterator[Update]:
    """Return every atom and red in each space, with the qualifiers in ptxas's order."""
    for opcode in ("atom", "red"):
        for row in (row for row in ROWS[opcode] if "asynchronous" not in row.modifiers):
            for space, operation, vector, kind in product(
                ("", "global", "shared"), row.modifiers["operation"].words, (1, 2, 4, 8), row.types[0]
            ):
                words = [opcode, space, operation, "noftz" if kind.element in {"f16", "bf16"} else ""]
                words += [f"v{vector}" if vector > 1 else "", kind.name]
                yield Update(".".join(word for word in words if word), opcode, space, operation, vector, kind)


@lru_cache(2)
def accepted_updates(target: str) -> tuple[Update, ...]:
    """Return the atomics that ptxas accepts for a target."""
    column = TARGETS.index(target)
    return tuple(update for update in updates() if table().get(update.name, ("-",) * len(TARGETS))[column] != "-")


class Video(NamedTuple):
    """A scalar video instruction; one that takes c has a second operation or merges its result into c."""

    name: str
    row: OpcodeRow
    takes_c: bool
    merges: bool  # True if the result is inserted into c


def scalar_video() -> Iterator[Video]:
    """Return every scalar video instruction that is modelled."""
    for row in (row for opcode in sorted(SCALAR_VIDEO) for row in ROWS[opcode]):
        for name in spellings(row):
            for count in (3, 4):
                attributes = match(row, name, count)
                if isinstance(attributes, str):
                    continue
                needs_c = row.opcode == "vmad" or attributes.operation is not None
                if (count == 4 or not needs_c) and isinstance(row.bind(attributes), LaneOp):
                    yield Video(name, row, count == 4, count == 4 and not needs_c)


@lru_cache(2)
def accepted_video(target: str) -> tuple[tuple[Video, ...], ...]:
    """Return the scalar video instructions that ptxas accepts for a target, by row."""
    column = TARGETS.index(target)
    taken = [video for video in scalar_video() if table()[video.name][column] != "-"]
    rows = {id(video.row): video.row for video in taken}
    return tuple(tuple(video for video in taken if video.row is row) for row in rows.values())


def _video_probe(video: Video) -> str:
    """Return one statement of a scalar video instruction."""
    d = "%b32_0.b1" if video.merges else "%b32_0"
    return f"{video.name} {', '.join([d, '%b32_1.h1', '%b32_2.b3', *(['%b32_3'] if video.takes_c else [])])};"


def names() -> set[str]:
    """Return every spelling in the table."""
    return {one.name for listed in (candidates(), updates(), scalar_video()) for one in listed}


def _update_probe(update: Update) -> str:
    """Return one statement of an atomic."""
    kind = register(update.kind)

    def vector(first: int) -> str:
        names = [f"%{kind}_{first + index}" for index in range(update.vector)]
        return f"{{{', '.join(names)}}}" if update.vector > 1 else names[0]

    operands = ["[%b64_0]", vector(0), *([vector(0)] if update.operation == "cas" else [])]
    return f"{update.name} {', '.join([vector(8), *operands] if update.opcode == 'atom' else operands)};"


@lru_cache(1)
def table() -> dict[str, tuple[str, ...]]:
    """Return ptxas's answers by spelling, for each of TARGETS."""
    lines = gzip.decompress(TABLE.read_bytes()).decode("ascii").splitlines()
    return {name: tuple(answers) for name, *answers in (line.split() for line in lines)}


@lru_cache(2)
def accepted(target: str) -> tuple[Spelling, ...]:
    """Return the spellings that ptxas accepts for a target."""
    column = TARGETS.index(target)
    found = []
    for case in candidates():
        answer = table().get(case.name, ("-",) * len(TARGETS))[column]
        if answer != "-":
            found.append(shaped(case, frozenset(int(digit) for digit in answer if digit != ".")))
    return tuple(found)


def constant(kind: Type) -> str | None:
    """Return a literal of a type, or None if PTX has none."""
    if kind.is_float:
        return {"f32": "0f40490FDB", "f64": "0d400921FB54442D18"}.get(kind.name)
    return None if kind.bits == 1 else "5"


def _probe(case: Case, constant_at: int | None) -> str | None:
    """Return a statement with registers, or with one constant operand, or None if there is no such literal."""
    spelling = shaped(case)
    written = "|".join(f"%{register(kind)}_{index}" for index, kind in enumerate(spelling.results))
    operands = []
    for index, kind in enumerate(spelling.sources):
        if kind is None:
            operands.append("5")
        elif index == constant_at:
            literal = constant(kind)
            if literal is None:
                return None
            operands.append(literal)
        else:
            operands.append(f"%{register(kind)}_{index + 2}")
    return f"{case.name} {', '.join([written, *operands])};"


def judge(target: str) -> dict[str, str]:
    """Return ptxas's verdict on every spelling for a target."""
    everything = list(candidates())
    plain = _accepted_of({(case.name, None): _probe(case, None) for case in everything}, target)
    trials: dict[tuple[str, int | None], str | None] = {
        (case.name, index): _probe(case, index)
        for case in everything
        if (case.name, None) in plain
        for index, kind in enumerate(shaped(case).sources)
        if kind is not None
    }
    constants = _accepted_of(trials, target)
    answers = {}
    for case in everything:
        places = [str(index) for index in range(len(shaped(case).sources)) if (case.name, index) in constants]
        answers[case.name] = ("".join(places) or ".") if (case.name, None) in plain else "-"
    taken = _accepted_of({(update.name, None): _update_probe(update) for update in updates()}, target)
    answers |= {update.name: "." if (update.name, None) in taken else "-" for update in updates()}
    taken = _accepted_of({(video.name, None): _video_probe(video) for video in scalar_video()}, target)
    answers |= {video.name: "." if (video.name, None) in taken else "-" for video in scalar_video()}
    return answers


def _accepted_of(statements: dict[tuple[str, int | None], str | None], target: str) -> set[tuple[str, int | None]]:
    """Return the keys of the statements that ptxas accepts, tested in large modules."""
    waiting = [(key, text) for key, text in statements.items() if text is not None]
    found: set[tuple[str, int | None]] = set()
    for first in range(0, len(waiting), PER_MODULE):
        part = waiting[first : first + PER_MODULE]
        while part:
            lines = [f".version {VERSION}", f".target {target}", ".address_size 64", ".visible .entry k()", "{"]
            lines += [f".reg .{kind} %{kind}_<16>;" for kind in ("pred", "b16", "b32", "b64", "b128")]
            start = len(lines) + 1
            refused = assemble("\n".join([*lines, *(text for _, text in part), "ret;", "}", ""]), target)
            if not refused:
                found |= {key for key, _ in part}
                break
            bad = {line - start for line in refused}
            left = [item for number, item in enumerate(part) if number not in bad]
            if len(left) == len(part):
                msg = f"ptxas rejects a module for a reason outside its statements: {refused}"
                raise RuntimeError(msg)
            part = left
    return found


def write_table() -> None:
    """Query ptxas for every target and write the answers."""
    answers = [judge(target) for target in TARGETS]
    lines = [" ".join([name, *(answer[name] for answer in answers)]) for name in answers[0]]
    write_atomically(TABLE, gzip.compress("\n".join([*sorted(lines), ""]).encode("ascii"), 9, mtime=0))
