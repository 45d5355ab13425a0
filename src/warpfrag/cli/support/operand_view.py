"""One operand as the command line shows it: its places, the coordinates that users pass, and notes on reading it.

A layout may have coordinates that choose (a product, a matrix, a selector, a byte): those are options. The others, row
and column, are arguments. Everything is a record, a dict from column to number, which text and JSON print alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.cli.support.options import CHOICES
from warpfrag.cli.support.output import shape_text
from warpfrag.core.coordinates import LANES, check_index
from warpfrag.errors import InvalidOperand, quote
from warpfrag.execution.operand import Metadata, Operand, Scale, SparseOperand

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from warpfrag.catalog.instruction import Instruction
    from warpfrag.core.coordinates import Place
    from warpfrag.core.layout import Layout
    from warpfrag.execution.operand import Registers

Record = dict[str, int]
ADDRESSES = "addresses"


class LogicalColumns(NamedTuple):
    """A range of logical columns of a sparse A, both ends included."""

    first: int
    last: int

    @property
    def text(self) -> str:
        """Such as 12..15, or one number."""
        return f"{self.first}..{self.last}" if self.first < self.last else f"{self.first}"


@dataclass(frozen=True)
class OperandView:
    """An operand, or the row addresses of ldmatrix and stmatrix, which are no registers."""

    instruction: Instruction
    name: str
    layout: Layout
    registers: Registers | None = None

    @property
    def title(self) -> str:
        """What is shown, for the line above an answer."""
        if self.registers is None:
            return f"row addresses of {self.instruction}"
        return f"{self.name} of {self.instruction}: {shape_text(self.registers.shape)} {self.registers.format}"

    @property
    def matrix_registers(self) -> Metadata | Scale | Operand:
        """The registers of an operand that is a matrix; addresses are refused."""
        if not isinstance(self.registers, Metadata | Scale | Operand):
            msg = f"addresses of {self.instruction} are no matrix; `warpfrag at` and `warpfrag where` show them"
            raise InvalidOperand(msg)
        return self.registers

    @property
    def choices(self) -> tuple[str, ...]:
        """The coordinates that options give."""
        return tuple(dim for dim in self.layout.dims if dim in CHOICES)

    @property
    def positions(self) -> tuple[str, ...]:
        """The coordinates that arguments give."""
        return tuple(dim for dim in self.layout.dims if dim not in CHOICES)

    @property
    def threads(self) -> tuple[str, ...]:
        """The coordinates of a thread: the lane, of a warpgroup the warp too; of tensor memory lane and column."""
        return tuple(name for name in ("block", "tlane", "column", "warp", "lane") if name in self.layout.ins)

    @property
    def in_tensor_memory(self) -> bool:
        """Whether its places are lanes and columns of tensor memory."""
        return "tlane" in self.layout.ins

    @property
    def lane_name(self) -> str:
        """What its lanes are called."""
        return "tlane" if self.in_tensor_memory else "lane"

    @property
    def counted(self) -> tuple[str, ...]:
        """The coordinates inside a thread: register and slot; tensor memory has no registers."""
        return ("slot",) if self.in_tensor_memory else ("reg", "slot")

    def warps(self, warp: int | None) -> list[dict[str, int]]:
        """The warps that a question is about: the one that is given, or all there are; none where there is but one."""
        if "warp" not in self.layout.ins:
            if warp is not None:
                msg = f"{self.instruction} is an instruction of one warp: it takes no --warp, got {warp}"
                raise InvalidOperand(msg)
            return [{}]
        count = self.layout.ins["warp"]
        return [{"warp": index} for index in (range(count) if warp is None else [check_index("warp", warp, count)])]

    def step(self, dim: str) -> int:
        """What one step of the layout means to the user: byte_id counts bytes, the layout counts groups of them."""
        return self.registers.byte_ids.step if dim == "byte_id" and isinstance(self.registers, Scale) else 1

    def record(self, place: Place) -> Record:
        """A place and the element it holds."""
        threads = {name: getattr(place, name) for name in self.threads}
        record: Record = dict(threads)
        if self.registers is not None:
            bits = self.registers.bits(place.slot)
            reg = getattr(place, "reg", 0)
            counted = {"slot": place.slot} if self.in_tensor_memory else {"reg": reg, "slot": place.slot}
            record |= {
                **counted,
                "element": reg * self.registers.slots + place.slot,
                "bit_high": bits.high,
                "bit_low": bits.low,
            }
        coordinates = self.layout.at(**place._asdict())
        return record | {dim: getattr(coordinates, dim) * self.step(dim) for dim in self.layout.dims}

    def check_lane(self, lane: int) -> bool:
        """Whether a lane takes part: only the addresses of some are read. A lane that there is not is refused."""
        if self.in_tensor_memory:
            return check_index("tlane", lane, self.layout.ins["tlane"]) == lane
        check_index("lane", lane, LANES)
        return lane < self.layout.lanes

    @property
    def unread(self) -> str:
        """Which lanes take no part, as a sentence; nothing where all do."""
        lanes = LANES if self.in_tensor_memory else self.layout.lanes
        return f"the addresses of lanes {lanes} to {LANES - 1} are not read" if lanes < LANES else ""

    def places(self) -> Iterator[Record]:
        """Every place, lane by lane."""
        return map(self.record, self.layout.places())

    def chosen(self, choice: Mapping[str, int | None]) -> Iterator[Record]:
        """Every value of the coordinates that choose, narrowed down by the options."""
        for dim, index in choice.items():
            if index is not None and dim not in self.choices:
                has = ", ".join(f"--{own.replace('_', '-')}" for own in self.choices) or "no such option"
                msg = f"--{dim.replace('_', '-')} is not for {self.name} of {self.instruction}, which takes {has}"
                raise InvalidOperand(msg)
        extents = self.layout.outs
        ranges = []
        for dim in self.choices:
            legal = range(0, extents[dim] * self.step(dim), self.step(dim))
            index = choice.get(dim)
            if index is not None and index not in legal:
                msg = f"{dim} is one of {', '.join(map(str, legal))}, got {index}"
                raise InvalidOperand(msg)
            ranges.append(legal if index is None else [index])
        return (dict(zip(self.choices, values, strict=True)) for values in product(*ranges))

    def where(self, position: Sequence[int], choice: Mapping[str, int | None]) -> list[Record]:
        """Every holder of the element at a position, for every choice that the user left open."""
        if len(position) != len(self.positions):
            names = " and ".join(self.positions)
            msg = f"expected {names} for {self.name} of {self.instruction}, got {' '.join(map(str, position))}"
            raise InvalidOperand(msg)
        coordinates = dict(zip(self.positions, position, strict=True))
        for dim, index in coordinates.items():
            check_index(dim, index, self.layout.outs[dim])
        return [
            self.record(place)
            for chosen in self.chosen(choice)
            for place in self.layout.where(
                **{dim: index // self.step(dim) for dim, index in chosen.items()}, **coordinates
            )
        ]

    def logical(self, record: Record) -> LogicalColumns | None:
        """The logical columns of A that a stored element or a metadata code is about; None for other operands."""
        rule = self.instruction.pattern
        if isinstance(self.registers, SparseOperand) and rule:
            chunk = record["col"] // rule.kept
        elif isinstance(self.registers, Metadata) and rule:
            chunk = record["chunk"]
        else:
            return None
        return LogicalColumns(chunk * rule.chunk, (chunk + 1) * rule.chunk - 1)

    def header(self) -> list[str]:
        """The columns of a text table of records."""
        numbers = ["element"] if self.has_numbers else []
        place = [*self.threads, *([*self.counted, "bits", *numbers] if self.registers else [])]
        dims = [
            "stored col" if dim == "col" and isinstance(self.registers, SparseOperand) else dim
            for dim in self.layout.dims
        ]
        about = isinstance(self.registers, SparseOperand | Metadata)
        return [*place, *dims, *(["logical cols"] if about else [])]

    def cells(self, record: Record, columns: LogicalColumns | None = None) -> list[object]:
        """One line of that table; `columns` replaces the logical columns where they are known exactly."""
        cells: list[object] = [record[name] for name in self.threads]
        if self.registers:
            cells += [*(record[name] for name in self.counted), bits_text(record)]
            cells += [f"{self.name}{record['element']}"] if self.has_numbers else []
        cells += [record[dim] for dim in self.layout.dims]
        columns = columns or self.logical(record)
        return [*cells, *([columns.text] if columns else [])]

    def json(self, record: Record, columns: LogicalColumns | None = None) -> dict[str, object]:
        """A record as JSON has it; `columns` as for cells."""
        columns = columns or self.logical(record)
        return {**record, **({"logical_first": columns.first, "logical_last": columns.last} if columns else {})}

    def written(self, notation: str) -> str:
        """The layout in another notation, B as CuTe has it."""
        turned = {"transposed": True} if self._is_turned(notation) else {}
        return str(self.layout.to(notation, **turned))

    def numbering(self, notation: str) -> str:
        """How a text in CuTe's notation numbers elements, which it leaves out; nothing for the others."""
        if notation != "cute":
            return ""
        dims = self.layout.dims[::-1] if self._is_turned(notation) else self.layout.dims
        weights = [prod(self.layout.outs[below] for below in dims[:at]) for at in range(len(dims))]
        terms = [f"{weight} * {dim}" if weight > 1 else dim for dim, weight in zip(dims, weights, strict=True)]
        return " + ".join(terms) + (": CuTe has it as N x K" if self._is_turned(notation) else "")

    def _is_turned(self, notation: str) -> bool:
        return notation == "cute" and self.name == "b" and len(self.layout.dims) == 2

    @property
    def has_numbers(self) -> bool:
        """Whether PTX numbers the elements: a0, a1, ... for a matrix, nothing for metadata and scales."""
        return len(self.name) == 1 and not self.in_tensor_memory

    @property
    def notes(self) -> list[str]:
        """Notes for readers of the places of this operand."""
        notes = []
        if self.instruction.arch:
            notes.append(
                f"wmma fragments differ between GPUs: these are of {self.instruction.arch}; --target chooses others"
            )
        if self.unread:
            notes.append(self.unread)
        if self.layout.copies > 1 and self.in_tensor_memory:
            notes.append(_copies_note(self))
        elif self.layout.copies > 1:
            notes.append(f"every element is held {self.layout.copies} times; the hardware reads the first")
        if self.registers and self.registers.row.register_bits > 32:
            notes.append("a register has 64 bits: register r is the 32-bit words 2r and 2r + 1")
        if isinstance(self.registers, SparseOperand):
            notes.append("half of A is stored: the metadata code of a chunk says which logical columns")
        return notes


def _copies_note(view: OperandView) -> str:
    """What the copies of an operand in tensor memory are for."""
    if view.name in ("scale_a", "scale_b"):
        return "all four groups of 32 lanes hold the same scale factors"
    if view.instruction.form.shape.m in (64, 128) and view.name in ("c", "d"):
        return "16 of each 32 lanes are used: those from base lane 0, or those from base lane 16"
    return f"every element is there {view.layout.copies} times, or in the lanes that the base lane selects"


def bits_text(record: Record) -> str:
    """A range of bits as manuals write it."""
    return (
        f"{record['bit_high']}:{record['bit_low']}"
        if record["bit_high"] > record["bit_low"]
        else f"{record['bit_low']}"
    )


def operand_view(instruction: Instruction, operand: str) -> OperandView:
    """The operand that a word names, in any case; NotModelled where its layout is unknown."""
    name = operand.lower()
    if name in instruction.operands:
        registers = instruction.operands[name]
        return OperandView(instruction, name, registers.layout, registers)
    if name == ADDRESSES and instruction.addresses is not None:
        return OperandView(instruction, name, instruction.addresses)
    known = [*instruction.operands, *([ADDRESSES] if instruction.addresses is not None else [])]
    msg = f"{instruction} has no operand {quote(operand)}: it has {', '.join(known)}"
    raise InvalidOperand(msg)


def numbering_notes(views: Iterable[OperandView], notation: str) -> list[str]:
    """How elements are numbered, a sentence for all operands that are alike."""
    numberings: dict[str, list[str]] = {}
    for view in views:
        numberings.setdefault(view.numbering(notation), []).append(view.name)
    return [
        f"elements of {', '.join(names)} are numbered {numbers}" for numbers, names in numberings.items() if numbers
    ]
