"""The command line's view of an operand: its registers and lanes, the coordinates that users pass, and notes.

Layout coordinates that select a matrix, selector or byte are options; row and column are arguments. A record is a
register slot with its element, as a dict from column to number, which is printed as text or JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from warpfrag.cli.io.arguments import IN_TENSOR_MEMORY, ElementChoice, Load
from warpfrag.cli.io.output import shape_text
from warpfrag.errors import InvalidOperand, check_index, quote
from warpfrag.grouping import grouped
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.isa.tmem_layouts import copies_in_words, scaled_lines
from warpfrag.layout.coordinates import LANES, Place
from warpfrag.layout.linear_layout import Layout
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Metadata, Operand, OperandBase, Scale, SparseOperand

if TYPE_CHECKING:
    from warpfrag.tensorcore.tensor_operand import TensorScale

Record = dict[str, int]
ADDRESSES = "addresses"


class OperandView:
    """An operand, or the row addresses of ldmatrix and stmatrix, which are not in registers.

    `dims` are the coordinates of its elements: `choices` are options of a verb, `positions` are arguments. `threads`
    are the coordinates of a thread (for tensor memory, lane and column), and `counted` those within a thread.
    """

    def __init__(
        self, instruction: Instruction, name: str, layout: Layout, registers: OperandBase | None = None, after: str = ""
    ) -> None:
        """Split the coordinates of the layout into options and arguments."""
        self.instruction, self.name, self.layout, self.registers, self.after = (
            instruction, name, layout, registers, after,
        )  # fmt: skip
        self.dims = tuple(dim for dim in layout.dims if dim not in layout.ins)
        self.choices = tuple(dim for dim in self.dims if dim in ElementChoice._fields)
        self.positions = tuple(dim for dim in self.dims if dim not in ElementChoice._fields)
        self.threads: tuple[str, ...] = tuple(
            dim for dim in ("block", "tlane", "column", "warp", "lane") if dim in layout.ins
        )
        self.in_tensor_memory = "tlane" in layout.ins
        self.is_access = "tlane" in layout.outs  # the registers of tcgen05.ld and st hold columns of tensor memory
        self.lane_name = "tlane" if self.in_tensor_memory else "lane"
        self.counted: tuple[str, ...] = ("slot",) if self.in_tensor_memory else ("reg", "slot")
        self.has_numbers = len(name) == 1 and not self.in_tensor_memory  # PTX numbers elements as a0, a1, ...

    @property
    def title(self) -> str:
        """Return the heading of the output."""
        if self.registers is None:
            return f"row addresses of {self.instruction}"
        extents = [self.layout.outs[dim] for dim in self.dims if dim in self.positions]
        shape = extents if self.is_access else self.registers.shape
        after = f", after {self.after}" if self.after else ""
        return f"{self.name} of {self.instruction}: {shape_text(tuple(shape))} {self.registers.format}{after}"

    @property
    def matrix_registers(self) -> Metadata | Scale | Operand | TensorScale:
        """Return the registers of a matrix operand; raise InvalidOperand for addresses."""
        from warpfrag.tensorcore.tensor_operand import TensorScale

        if not isinstance(self.registers, Metadata | Scale | Operand | TensorScale):
            raise InvalidOperand(
                f"the addresses of {self.instruction} are not a matrix; `warpfrag at` and `warpfrag where` show them"
            )
        return self.registers

    @cached_property
    def lines(self) -> tuple[str, tuple[int, ...]]:
        """Return the padded coordinate of scale factors in tensor memory, and the index of each row or column."""
        form = self.instruction.form
        if not (isinstance(form, TensorForm) and self.name in ("scale_a", "scale_b")):
            return "", ()
        return "row" if self.name == "scale_a" else "col", scaled_lines(form, self.name[-1])

    def warps(self, warp: int | None) -> list[dict[str, int]]:
        """Return the index of the requested warp, or of every warp; an empty index if one warp holds the operand."""
        if "warp" not in self.layout.ins:
            if warp is not None:
                raise InvalidOperand(f"one warp executes {self.instruction}, so --warp does not apply; got {warp}")
            return [{}]
        count = self.layout.ins["warp"]
        warps = range(count) if warp is None else [check_index("warp", warp, count)]
        blocks = [{"block": index} for index in range(self.layout.ins["block"])] if "block" in self.layout.ins else [{}]
        return [{**block, "warp": index} for block in blocks for index in warps]

    def step(self, dim: str) -> int:
        """Return the stride of a coordinate: 1, except for byte_id, because the layout counts groups of bytes."""
        return self.registers.byte_ids.step if dim == "byte_id" and isinstance(self.registers, Scale) else 1

    def record(self, place: Place) -> Record:
        """Return a register slot and its element."""
        record: Record = {name: getattr(place, name) for name in self.threads}
        if self.registers is not None:
            bits = self.registers.bits(place.slot)
            reg = getattr(place, "reg", 0)
            record |= {
                **({} if self.in_tensor_memory else {"reg": reg}),
                "slot": place.slot,
                "element": reg * self.registers.slots + place.slot,
                "bit_high": bits.high,
                "bit_low": bits.low,
            }
        coordinates = self.layout.at(**place._asdict())
        record |= {dim: getattr(coordinates, dim) * self.step(dim) for dim in self.dims}
        padded, indices = self.lines
        line_at = {index: line for line, index in enumerate(indices)}
        return record | ({padded: line_at.get(record[padded], -1)} if padded else {})

    def records(self, places: Iterable[Place]) -> list[Record]:
        """Return register slots and their elements, without the padding of scale factors."""
        padded, _ = self.lines
        return [record for record in map(self.record, places) if not padded or record[padded] >= 0]

    def check_lane(self, lane: int) -> bool:
        """Return True if the lane is used (ldmatrix may ignore some addresses); raise an error for an invalid lane."""
        if self.in_tensor_memory:
            return check_index("lane", lane, self.layout.ins["tlane"]) == lane
        check_index("lane", lane, LANES)
        return lane < self.layout.lanes

    def chosen(self, choice: ElementChoice = ElementChoice()) -> Iterator[Record]:  # noqa: B008 (immutable)
        """Yield every combination of selecting coordinates that the options allow."""
        indices = choice._asdict()
        for dim, index in indices.items():
            if index is not None and dim not in self.choices:
                has = ", ".join(f"--{own.replace('_', '-')}" for own in self.choices) or "no options"
                raise InvalidOperand(
                    f"--{dim.replace('_', '-')} does not apply to {self.name} of {self.instruction}, which takes {has}"
                )
        extents = self.layout.outs
        ranges = []
        for dim in self.choices:
            legal = range(0, extents[dim] * self.step(dim), self.step(dim))
            index = indices.get(dim)
            if index is not None and index not in legal:
                raise InvalidOperand(f"{dim}: expected one of {', '.join(map(str, legal))}, got {index}")
            ranges.append(legal if index is None else [index])
        return (dict(zip(self.choices, values, strict=True)) for values in product(*ranges))

    def where(self, position: Sequence[int], choice: ElementChoice = ElementChoice()) -> list[Record]:  # noqa: B008 (immutable)
        """Return every holder of the element at a position, for every combination that the options allow."""
        if len(position) != len(self.positions):
            names = " and ".join(self.positions)
            raise InvalidOperand(
                f"expected {names} for {self.name} of {self.instruction}, got {' '.join(map(str, position))}"
            )
        coordinates = dict(zip(self.positions, position, strict=True))
        padded, lines = self.lines
        for dim, index in coordinates.items():
            check_index(dim, index, len(lines) if dim == padded else self.layout.outs[dim])
        if padded:
            coordinates[padded] = lines[coordinates[padded]]
        return [
            self.record(place)
            for chosen in self.chosen(choice)
            for place in self.layout.where(
                **dict.fromkeys(self.layout.dims, 0)
                | {dim: index // self.step(dim) for dim, index in chosen.items()}
                | coordinates
            )
        ]

    def logical(self, record: Record) -> tuple[int, int] | None:
        """Return the first and last logical column of A that a stored element or metadata code may represent."""
        rule = self.instruction.pattern
        if isinstance(self.registers, SparseOperand) and rule:
            chunk = record["col"] // rule.kept
        elif isinstance(self.registers, Metadata) and rule:
            chunk = record["chunk"]
        else:
            return None
        return chunk * rule.chunk, (chunk + 1) * rule.chunk - 1

    def header(self) -> list[str]:
        """Return the header of a text table of records."""
        numbers = ["element"] if self.has_numbers else []
        place = [*self.threads, *([*self.counted, "bits", *numbers] if self.registers else [])]
        dims = [
            "stored col" if dim == "col" and isinstance(self.registers, SparseOperand) else dim for dim in self.dims
        ]
        return [*place, *dims, *(["logical cols"] if isinstance(self.registers, SparseOperand | Metadata) else [])]

    def cells(self, record: Record) -> list[object]:
        """Return one row of the table that `header` begins."""
        cells: list[object] = [record[name] for name in self.threads]
        if self.registers:
            cells += [*(record[name] for name in self.counted), bits_text(record)]
            cells += [f"{self.name}{record['element']}"] if self.has_numbers else []
        cells += [record[dim] for dim in self.dims]
        columns = self.logical(record)
        return [*cells, *([f"{columns[0]}..{columns[1]}"] if columns else [])]

    def json(self, record: Record) -> Record:
        """Return a record with the logical columns of a sparse A."""
        columns = self.logical(record)
        return record | ({"logical_first": columns[0], "logical_last": columns[1]} if columns else {})

    def written(self, notation: str) -> str:
        """Return the layout in another notation, with B in CuTe's order."""
        options = {"transposed": True} if self._is_turned(notation) else {}
        return str(self.layout.to(notation, **options))

    def numbering(self, notation: str) -> str:
        """Return the numbering of elements, which CuTe's notation leaves out; empty for other notations."""
        if notation != "cute":
            return ""
        dims = self.layout.dims[::-1] if self._is_turned(notation) else self.layout.dims
        weights = [prod(self.layout.outs[below] for below in dims[:at]) for at in range(len(dims))]
        terms = [f"{weight} * {dim}" if weight > 1 else dim for dim, weight in zip(dims, weights, strict=True)]
        return " + ".join(terms) + (", because B is N x K in CuTe" if self._is_turned(notation) else "")

    def _is_turned(self, notation: str) -> bool:
        return notation == "cute" and self.name == "b" and len(self.layout.dims) == 2

    @property
    def notes(self) -> list[str]:
        """Return notes on this operand."""
        notes = []
        if self.instruction.arch:
            notes.append(f"wmma fragments depend on the GPU; these are for {self.instruction.arch} (see --arch)")
        if not self.in_tensor_memory and self.layout.lanes < LANES:
            notes.append(f"the addresses of lanes {self.layout.lanes} to {LANES - 1} are not read")
        form = self.instruction.form
        if self.layout.copies > 1 and self.in_tensor_memory and isinstance(form, TensorForm):
            notes.append(copies_in_words(form, self.name, self.layout.copies))
        elif self.layout.copies > 1 and self.after:
            notes.append(f"every element is held {self.layout.copies} times")
        elif self.layout.copies > 1:
            notes.append(f"every element is held {self.layout.copies} times; the hardware reads the first")
        if self.registers and self.registers.spec.register_bits > 32:
            notes.append("a register has 64 bits: register r is the 32-bit words 2r and 2r + 1")
        if isinstance(self.registers, SparseOperand):
            notes.append("half of A is stored; the metadata code of a chunk selects its logical columns")
        return notes


def bits_text(record: Record) -> str:
    """Return a range of bits as text, such as 31:16."""
    high, low = record["bit_high"], record["bit_low"]
    return f"{high}:{low}" if high > low else f"{low}"


def operand_view(instruction: Instruction, operand: str, load: Load = IN_TENSOR_MEMORY) -> OperandView:
    """Return the view of the named operand, in upper or lower case; raise NotModelled if its layout is unknown."""
    name = operand.lower()
    if name in instruction.operands:
        registers = instruction.operands[name]
        return _loaded(OperandView(instruction, name, registers.layout, registers), registers, load)
    load.refuse(f"{quote(operand)} of {instruction}")
    if name == ADDRESSES and instruction.addresses is not None:
        return OperandView(instruction, name, instruction.addresses)
    known = [*instruction.operands, *([ADDRESSES] if instruction.addresses is not None else [])]
    raise InvalidOperand(f"{instruction} has no operand {quote(operand)}; expected one of {', '.join(known)}")


def _loaded(view: OperandView, registers: OperandBase, load: Load) -> OperandView:
    """Return the operand in registers after a tcgen05.ld, or the registers of a tcgen05.ld or st at a given address."""
    if load == IN_TENSOR_MEMORY:
        return view
    from warpfrag.tensorcore.tensor_operand import after_load, load_layout

    column, base_lane = load.column or 0, load.base_lane or 0
    if view.is_access and load.through is None:
        return OperandView(view.instruction, view.name, load_layout(view.instruction, column, base_lane), registers)
    if registers.storage != "tensor":
        load.refuse(f"{view.name} of {view.instruction}")
    if load.through is None:
        raise InvalidOperand("--column and --base-lane belong to the address of a load: name the load with --through")
    loaded = after_load(registers, load.through, column, base_lane)
    at = f" at column {column}" * bool(column) + f" from lane {base_lane} of each 32" * bool(base_lane)
    return OperandView(view.instruction, view.name, loaded.layout, loaded, load.through + at)


def numbering_notes(views: Iterable[OperandView], notation: str) -> list[str]:
    """Return a note on the numbering of elements for each group of similar operands."""
    numberings = grouped((view.numbering(notation), view.name) for view in views)
    return [f"elements of {', '.join(names)} are numbered {text}" for text, names in numberings.items() if text]
