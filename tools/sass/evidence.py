"""Collect the spellings that machine code executes: kernels, operand sets and special values of each.

An operand set is one execution of an instruction by a lane (by a warp, if all its operands are uniform); a bulk or
tensor copy has one for each 16-byte unit that it writes, because each has its own address and value. Sets are
distinguished by the values of the source registers; those of a load include the loaded words, because its result
depends on them. A spelling is counted in a kernel only if its result can reach memory: it has an effect itself, or an
instruction with an effect depends on it (`reaching`).
"""

from __future__ import annotations

import json
import lzma
import re
from collections import defaultdict
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.formats.float_environment import exact_floats
from warpfrag.machine.interpreter.observer import Observer
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.ir.actions import Branch, Jump, LaneOp, MatrixOp, MemoryLoad, Move, Return, WarpCollective
from warpfrag.machine.ir.program import BankOperand, Immediate, VectorOperand, indices_of, registers_of
from warpfrag.machine.jit.register_flow import registers_read
from warpfrag.machine.launch.grid import Work
from warpfrag.machine.launch.options import launch_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from tools.sass.captures import Launch
    from warpfrag.machine.interpreter.lane_group import LaneGroup
    from warpfrag.machine.interpreter.observer import Bytes, Numbers
    from warpfrag.machine.interpreter.warp_state import LaunchPart
    from warpfrag.machine.ir.program import Program, PtxOperand
    from warpfrag.machine.launch.options import LaunchOptions

MAX_DISTINCT = 1024
COPY_UNIT = 16  # in bytes
MAX_KEPT = 1 << 15
"""The maximum number of operand sets that are kept for an instruction in a launch."""
PURE = LaneOp | Move | MemoryLoad | WarpCollective | MatrixOp
"""Actions whose only effect is their result; a matrix instruction without results is a store."""
SPECIAL_EXPONENTS = (0x7F800000, 0x7FF00000, 0x7C00, 0x7C000000)  # infinities and NaNs of f32, f64, f16
SPECIAL_WORDS = np.array([0, 1, 0x80000000, 0x7FFFFFFF, 0xFFFFFFFF, 0x3F800000], np.uint32)


@dataclass
class SpellingCount:
    """The kernels, operand sets and special operands of a spelling; `values` has digests of different sets.

    `differs` is True if a result of this spelling alone differed from a GPU's.
    """

    kernels: int = 0
    sets: int = 0
    specials: int = 0
    values: set[int] = field(default_factory=set)
    differs: bool = False

    def add(self, other: SpellingCount) -> None:
        """Add the counts of another kernel or process."""
        self.kernels += other.kernels
        self.sets += other.sets
        self.specials += other.specials
        self.differs |= other.differs
        if len(self.values) < MAX_DISTINCT:
            self.values |= other.values


def enough() -> set[int]:
    """Return placeholder values for a spelling that already had enough different operand sets."""
    return set(range(-MAX_DISTINCT, 0))


class SpellingTable(defaultdict[str, SpellingCount]):
    """The counts of all spellings; spellings in `compared` were compared before, and are not counted again."""

    def __init__(
        self, counts: Mapping[str, SpellingCount] = MappingProxyType({}), compared: frozenset[str] = frozenset()
    ) -> None:
        """Create a table."""
        super().__init__(SpellingCount, counts)
        self.compared = compared

    def is_complete(self, spelling: str) -> bool:
        """Return True if a spelling counts as compared, so that more operands need not be kept."""
        count = self.get(spelling)
        return spelling in self.compared or (count is not None and is_compared(spelling, count))

    def join(self, other: SpellingTable) -> None:
        """Add the counts of another table."""
        for spelling, count in other.items():
            self[spelling].add(count)

    def rows(self) -> dict[str, list[Any]]:
        """Return the counts as JSON, with the values of spellings that have too few, so that tables can be joined."""
        return {
            name: [
                count.kernels,
                count.sets,
                count.specials,
                sorted(count.values) if len(count.values) < MAX_DISTINCT else None,
                count.differs,
            ]
            for name, count in sorted(self.items())
        }

    @staticmethod
    def from_rows(rows: dict[str, list[Any]]) -> SpellingTable:
        """Create a table from rows that `rows` returned."""
        table = SpellingTable()
        for name, (kernels, sets, specials, values, differs) in rows.items():
            table[name] = SpellingCount(kernels, sets, specials, enough() if values is None else set(values), differs)
        return table

    def write(self, path: Path) -> None:
        """Write the counts."""
        path.write_bytes(lzma.compress(json.dumps(self.rows()).encode(), preset=1))

    @staticmethod
    def read(path: Path) -> SpellingTable:
        """Read counts that `write` wrote."""
        return SpellingTable.from_rows(json.loads(lzma.decompress(path.read_bytes())))


def reaching(program: Program, executed: NDArray[np.bool_]) -> set[int]:
    """Return the executed instructions whose result can reach memory or control flow.

    A backward slice over all paths, in which instructions that were not executed neither use nor change a value.
    """
    instructions = program.instructions
    starts = sorted({0, *program.ends} - {len(instructions)})
    number = {start: at for at, start in enumerate(starts)}
    before = [0] * len(starts)
    has_run = executed.tolist()
    reads = [sum(1 << index for index in registers_read(inst)) for inst in instructions]
    writes = [sum(1 << index for index in indices_of(inst.results)) for inst in instructions]
    found: set[int] = set()
    is_changed = True
    while is_changed:
        is_changed = False
        for block in range(len(starts) - 1, -1, -1):
            end = program.ends[starts[block]]
            last = instructions[end - 1]
            passes = last.guard is not None or not isinstance(last.action, Branch | Return | Jump)
            following = [*last.targets, *([end] if passes else [])]
            live = 0
            for at in following:
                live |= before[number[at]] if at in number else 0
            for at in range(end - 1, starts[block] - 1, -1):
                inst = instructions[at]
                is_pure = isinstance(inst.action, PURE) and bool(inst.results)
                if not has_run[at] or (is_pure and not live & writes[at]):
                    continue
                found.add(at)
                if inst.guard is None and isinstance(inst.action, LaneOp | Move | MemoryLoad):
                    live &= ~writes[at]
                live |= reads[at]
            if live != before[block]:
                before[block], is_changed = live, True
    return found


class CollectingBatch(WarpBatch):
    """A batch that keeps the operand values of every spelling that is not compared yet."""

    def __init__(self, part: LaunchPart, collector: SpellingCollector) -> None:
        """Create a batch that reports to the launch's collector."""
        super().__init__(part)
        self.collector = collector
        self.memory.observer = CopyCounter(self)

    def run_inst(self, at: int, group: LaneGroup) -> bool:
        """Read the operands before the first instruction of a machine instruction runs.

        A branch counts as executed even if it is not taken.
        """
        watched = self.collector.watched.get(at)
        if watched is None:
            return super().run_inst(at, group)
        inst = self.program.instructions[at]
        active = group if isinstance(inst.action, Branch) else self.active_part(inst, group)
        words = [active.pick(self.registers[index]) for index in watched.sources] if active.mask.any() else None
        has_run = super().run_inst(at, group)
        if has_run and words is not None:
            watched.add(self, active, words)
        return has_run


class CopyCounter(Observer):
    """Counts each 16-byte unit that a bulk or tensor copy writes as an operand set."""

    def __init__(self, batch: CollectingBatch) -> None:
        """Create a counter for a batch."""
        self.batch = batch

    def copy_write(
        self, buffer: Bytes, offsets: Numbers, size: int, thread: int, cell: int | None, *, reduction: str = ""
    ) -> None:
        """Count the units of a copy, except one that was counted as an execution."""
        del buffer, thread, cell, reduction
        inst = self.batch.program.instructions[self.batch.memory.inst]
        watched = self.batch.collector.by_address.get(inst.line)
        if watched is not None:
            watched.sets += max(0, len(offsets) * size // COPY_UNIT - 1)


@dataclass
class WatchedInstruction:
    """A machine instruction whose operands are kept: its source registers and constants, and their values."""

    spelling: str
    sources: list[int]
    immediates: list[int]
    banks: list[int]
    sets: int = 0
    kept: list[NDArray[np.uint64]] = field(default_factory=list)

    def add(self, batch: WarpBatch, active: LaneGroup, words: list[NDArray[Any]]) -> None:
        """Count an execution by active lanes."""
        lanes = len(active.active_rows) if self.spelling.startswith("U") else int(active.mask.sum())
        self.sets += lanes
        if len(self.kept) * lanes > MAX_KEPT:
            return
        constants = [*self.immediates, *(batch.memory.constant(offset, 4) for offset in self.banks)]
        width = int(active.mask.sum())
        rows = [np.full(width, value & (1 << 64) - 1, np.uint64) for value in constants]
        kept = np.array([*(row.astype(np.uint64) for row in words), *rows], np.uint64)
        self.kept.append(kept.reshape(len(words) + len(rows), width))

    def counted(self) -> SpellingCount:
        """Return the counts of all executions."""
        words = np.concatenate(self.kept, axis=1) if self.kept else np.zeros((0, 0), np.uint64)
        special = words[: len(self.sources)] if self.sources else words
        digests: set[int] = set()
        if len(words):
            mixed = np.zeros(words.shape[1], np.uint64)
            for row in words:
                mixed = (mixed ^ row) * np.uint64(0x9E3779B97F4A7C15)
                mixed ^= mixed >> np.uint64(29)
            digests.update((np.unique(mixed)[:MAX_DISTINCT] >> np.uint64(16)).tolist())
        return SpellingCount(1, self.sets, int(specials_of(special).sum()) if len(special) else 0, digests)


class SpellingCollector:
    """Counts the spellings of one kernel; spellings that are compared in `known` are not watched."""

    def __init__(self, program: Program, known: SpellingTable) -> None:
        """Find the registers and constants that each machine instruction reads."""
        self.program = program
        self.watched: dict[int, WatchedInstruction] = {}
        self.by_address: dict[int, WatchedInstruction] = {}
        by_address: dict[int, list[int]] = defaultdict(list)
        for at, inst in enumerate(program.instructions):
            by_address[inst.line].append(at)
        operands = [operand for inst in program.instructions for operand in (*inst.sources, *inst.results)]
        by_name = {register.name: register.index for operand in operands for register in registers_of(operand)}
        for address, own in by_address.items():
            spelling = program.spellings.get(address, "")
            if not spelling or known.is_complete(spelling):
                continue
            written: set[int] = set()
            sources: dict[int, None] = {}
            constants: list[PtxOperand] = []
            for at in own:
                inst = program.instructions[at]
                sources |= dict.fromkeys(sorted(indices_of(inst.sources) - written))
                written |= indices_of(inst.results)
                for operand in inst.sources:
                    constants += operand.items if isinstance(operand, VectorOperand) else (operand,)
            if not sources:  # an opcode whose operands are not modelled, such as FCHK
                text = program.instructions[own[0]].text.partition(",")[2]
                sources = dict.fromkeys(by_name[name] for name in re.findall(r"\bU?R\d+", text) if name in by_name)
            immediates = [item.code(None) for item in constants if isinstance(item, Immediate)]
            banks = [item.offset for item in constants if isinstance(item, BankOperand)]
            self.watched[own[0]] = WatchedInstruction(spelling, list(sources), immediates, banks)
            self.by_address[address] = self.watched[own[0]]

    def table(self, executed: NDArray[np.bool_]) -> SpellingTable:
        """Return the counts of the spellings whose results can reach memory."""
        table = SpellingTable()
        reached = {self.program.instructions[at].line for at in reaching(self.program, executed)}
        for at, watched in self.watched.items():
            if watched.sets and self.program.instructions[at].line in reached:
                table[watched.spelling].add(watched.counted())
        for count in table.values():
            count.kernels = 1
        for address in reached:
            if (spelling := self.program.spellings.get(address, "")) and spelling not in table:
                table[spelling].kernels = 1
        return table


def specials_of(words: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return True for lanes with a special operand: an extreme integer, zero, one, an infinity or a NaN."""
    low, high = words.astype(np.uint32), (words >> np.uint64(32)).astype(np.uint32)
    result = np.zeros(words.shape[1], np.bool_)
    for part in (low, high):
        result |= np.isin(part, SPECIAL_WORDS).any(axis=0) if part is low else False
        for exponent in SPECIAL_EXPONENTS:
            result |= ((part & np.uint32(exponent)) == exponent).any(axis=0)
    return result


@exact_floats
def observe(launch: Launch, options: LaunchOptions, known: SpellingTable) -> SpellingTable:
    """Run a kernel in the interpreter and return the counts of its spellings."""
    kernel, grid, block, args, shared = launch
    config = launch_config(kernel.program, grid, block, shared, None, options)
    kernel = kernel.for_launch(config)
    collector = SpellingCollector(kernel.program, known)
    raw: Any = {name: value for name, value in args.items() if name != "args"}
    memory = kernel.device_memory(args.get("args", ()), config, raw)
    work = Work(kernel.program, config, memory, None, batch_of=lambda part: CollectingBatch(part, collector))
    work.run_waves(kernel.waves(config, None), 1, None)
    if work.failure is not None:
        raise work.failure[1]
    return collector.table(np.asarray(work.tally.instructions) > 0)


MIN_SETS = 1024
MIN_RUNS = 256
"""The number of executions that an instruction without operands needs."""
ARITHMETIC = re.compile(
    r"(F(?!LO|ENCE)|D(?!EPBAR)|H(?!GMMA)|MUFU|I2F|F2|I2I|IMAD(?!\.MOV|\.IADD|\.SHL)|IDP|IMMA|VABSDIFF|VHMNMX|BMMA).*"
)
"""Opcodes whose result depends on operand values in many ways: floating point, conversions, multiplications."""


def is_arithmetic(spelling: str) -> bool:
    """Return True if the result of a spelling depends on operand values in many ways."""
    return ARITHMETIC.fullmatch(spelling.partition(" ")[0]) is not None


def is_compared(spelling: str, count: SpellingCount) -> bool:
    """Return True if a spelling counts as compared.

    It needs 1,024 operand sets, with special values if it reads registers; opcodes of `ARITHMETIC` need 1,024 different
    ones. Barriers read counts, phases and lane masks, which have no special values. An instruction without operands has
    only one operand set.
    """
    if count.differs or count.sets < (MIN_SETS if " " in spelling else MIN_RUNS):
        return False
    if is_arithmetic(spelling):
        return count.specials > 0 and len(count.values) >= MAX_DISTINCT
    forms = spelling.partition(" ")[2].split(",")[1:]
    reads = any(re.match(r"[-~|]*U?R(?!Z)", form) for form in forms)
    return count.specials > 0 or not reads or spelling.startswith(("BAR.", "SYNCS.", "WARPSYNC"))


def table_text(table: SpellingTable) -> str:
    """Return the table of compared spellings: spelling, kernels, operand sets, distinct sets (up to 1,024)."""
    return "".join(
        f"{name}\t{item.kernels}\t{item.sets}\t{min(len(item.values), MAX_DISTINCT)}\n"
        for name, item in sorted(table.items())
        if is_compared(name, item)
    )


def report(table: SpellingTable, ran: str) -> str:
    """Return the evidence page: the runs, and the compared spellings by opcode."""
    compared = {name: item for name, item in table.items() if is_compared(name, item)}
    by_opcode: dict[str, list[str]] = defaultdict(list)
    for name in sorted(compared):
        by_opcode[name.partition(" ")[0].split(".")[0]].append(name)
    rows = [
        f"| {opcode} | {len(names):,} | {sum(compared[name].sets for name in names):,} |"
        for opcode, names in sorted(by_opcode.items())
    ]
    return PAGE.format(ran=ran, compared=len(compared), rows="\n".join(rows))


PAGE = """# Machine code compared with an H200

`python -m tools.sass evidence` writes this page and the table that `run.exact` reads (`warpfrag/sass`).

A spelling is an opcode with its modifiers and the forms and modifiers of its operands, such as `FFMA.FTZ R,R,-c,R`. It
counts as compared if

- it was executed in kernels whose bytes are all equal to those that an H200 wrote,
- its result can reach memory in these kernels: a backward slice over executed instructions, from stores, addresses and
  branches, contains it,
- it had at least 1,024 operand sets. A set is one execution by a lane (by a warp if the opcode is uniform) or, for bulk
  and tensor copies, one 16-byte unit that they write. An instruction without operands (`UTMACMDFLUSH`) has one set, and
  was executed at least 256 times,
- special values were among the register operands: zero, one, the largest or smallest integer, an infinity or a NaN
  (BAR, SYNCS and WARPSYNC read counts, phases and lane masks, which have none),
- and, for floating point, conversions and products, 1,024 operand sets were different; immediates and constants are
  operands too. Other opcodes (integer, logic, memory, control) often have operands with few values, such as addresses;
  the table keeps the number of different sets.

The number of operand sets is a lower bound, because counting stops when a spelling counts as compared. For spellings
that random kernels have but this table lacks, `python -m tools.sass probe` runs each one alone on a GPU, between loads
of its operands and stores of its results.

{ran}

{compared:,} spellings count as compared.

| opcode | compared spellings | operand sets |
|---|---:|---:|
{rows}
"""
