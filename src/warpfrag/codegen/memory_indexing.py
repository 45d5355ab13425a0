"""Operands in memory: their coordinates, element widths, strides and index formulas.

A, B, C and D are packed: a 4-bit element takes 4 bits, low bits first, and 6-bit elements cross byte boundaries.
Each metadata code or scale factor takes a byte, as `Instruction.compress` and NumPy return them.

A `SharedCopy` is an ldmatrix or stmatrix of an operand in shared memory with run-time strides. `plans.loads` finds the
suitable instructions and the start of each lane's line; this module turns them into formulas.

    >>> from warpfrag.tensorcore.registry import get
    >>> copy = shared_copies(get("mma.m16n8k16.f32.f16.f16.f32").a.spec)[0]
    >>> copy.matrix_move.name, copy.order, {dim: str(formula) for dim, formula in copy.formulas.items()}
    ('ldmatrix.sync.aligned.m8n8.x4.shared.b16', 'row', {'row': 'lane & 15', 'col': '(lane >> 4) * 8'})
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce

from warpfrag.codegen.statement import ROLES, can_transpose
from warpfrag.isa.operands import REGISTER_BITS, OperandSpec
from warpfrag.layout.index_expressions import (
    Expression,
    IndexConstant,
    IndexOperation,
    IndexVariable,
    element_expressions,
    linear,
)
from warpfrag.layout.linear_layout import Layout
from warpfrag.plans.loads import LineStart, line_starts, moved
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.shared_memory import ROW_OF_UNITS, SWIZZLES, UNIT, Digit
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand, OperandBase, SparseOperand
from warpfrag.tensorcore.registry import find

# Coordinates that select among the words of a warp; they are not part of the matrix in memory.
CHOSEN = ("selector", "thread_id", "byte_id")


def dimensions(operand: OperandBase) -> tuple[str, ...]:
    """Return the coordinates of the matrix in memory, each of which has a stride."""
    return tuple(dim for dim in _layout(operand).dims if dim not in CHOSEN)


def _layout(operand: OperandBase) -> Layout:
    """Return the operand's layout; if the operand is in shared memory, only the coordinates are meaningful."""
    return operand.spec.layout if operand.storage == "shared" else operand.layout


def extents(operand: OperandBase) -> tuple[int, ...]:
    """Return the extent of each coordinate."""
    return tuple(_layout(operand).outs[dim] for dim in dimensions(operand))


def thread_name(operand: OperandBase) -> str:
    """Return the name of the thread index in formulas: `lane` in a warp, `thread` in a warpgroup."""
    return "thread" if operand.storage == "warpgroup" else "lane"


def formulas(operand: OperandBase) -> dict[str, Expression]:
    """Return a formula for each coordinate, in terms of `lane` or `thread` and the element number `i`."""
    every = _of_a_warpgroup(operand.layout) if operand.storage == "warpgroup" else element_expressions(operand.layout)
    return {dim: every[dim] for dim in dimensions(operand)}


def _of_a_warpgroup(layout: Layout) -> dict[str, Expression]:
    """Return formulas for the coordinates, in terms of `thread` (lanes, warps) and `i` (slots, registers)."""
    origin = dict.fromkeys(layout.ins, 0)
    moved = {
        name: [layout.at(**{**origin, name: 1 << bit}) for bit in range((size - 1).bit_length())]
        for name, size in layout.ins.items()
    }
    inputs = {"thread": moved["lane"] + moved["warp"], "i": moved["slot"] + moved["reg"]}
    return {
        dim: linear({name: [getattr(at, dim) for at in images] for name, images in inputs.items()})
        for dim in layout.dims
    }


def stride_names(operand: OperandBase, prefix: str = "") -> list[str]:
    """Return the name of the stride of each coordinate of an operand."""
    return [f"{prefix}{dim}_stride" for dim in dimensions(operand)]


def index_formula(operand: OperandBase) -> str:
    """Return a formula for the index of an element in memory, in terms of its coordinates and the strides."""
    return " + ".join(f"{dim} * {step}" for dim, step in zip(dimensions(operand), stride_names(operand), strict=True))


def described_index(operand: OperandBase) -> str:
    """Return the index formula as text, for use in a comment."""
    return f"Element ({', '.join(dimensions(operand))}) is at index {index_formula(operand)} in memory"


def element_bits(operand: OperandBase) -> int:
    """Return the distance between adjacent elements in memory, in bits."""
    return operand.format.bits if operand.role in "abcd" else 8


def described(operand: OperandBase) -> str:
    """Return a description of the operand's matrix, for use in a comment."""
    names = {"metadata": "Metadata codes", "scale_a": "Scales of A", "scale_b": "Scales of B"}
    name = names.get(operand.role, operand.role.upper())
    unit = ", a byte each" if operand.role not in "abcd" else ""
    if isinstance(operand, SparseOperand):
        unit = ", the stored half"
    return f"{name}, {' x '.join(map(str, extents(operand)))} {operand.format}{unit}"


def contiguous_strides(operand: OperandBase, order: str = "row") -> tuple[int, ...]:
    """Return the strides of a contiguous matrix, row or column major; a leading coordinate counts whole matrices."""
    sizes = extents(operand)
    rows, cols = sizes[-2:]
    last = (cols, 1) if order == "row" else (1, rows)
    return (*(rows * cols for _ in sizes[:-2]), *last)


# ---- A and B of wgmma in shared memory


@dataclass(frozen=True)
class Stage:
    """The copy of one wgmma operand to shared memory; it is stored MN-major if `trans`.

    The tile is contiguous, as in `operand.descriptors`, with the widest swizzle that its lines fill. It is copied in
    units of one element, or of eight bits if elements are smaller.

    >>> from warpfrag.tensorcore.registry import get
    >>> stage = Stage(get("wgmma.mma_async.m64n64k16.f32.f16.f16").b)
    >>> stage.descriptor.swizzle, {name: str(formula) for name, formula in stage.formulas.items()}
    (32, {'k': 'unit & 15', 'n': 'unit >> 4', 'offset': 'k * 2 + n * 32', 'address': 'offset ^ (offset >> 3 & 16)'})
    """

    operand: Operand
    trans: bool = False

    @cached_property
    def descriptor(self) -> Descriptor:
        """The descriptor of the tile, relative to its first byte."""
        return self.operand.descriptors(trans=self.trans)[0]

    @property
    def suffix(self) -> str:
        """The suffix of function names: the operand's role, and `mn` if it is MN-major."""
        return f"{self.operand.role}{'_mn' if self.trans else ''}"

    @property
    def description(self) -> str:
        """A description of the order and the swizzle, for use in a comment."""
        swizzle = f"{self.descriptor.swizzle}-byte swizzle" if self.descriptor.swizzle else "no swizzle"
        return f"{'MN' if self.trans else 'K'}-major, {swizzle}"

    @property
    def elements(self) -> int:
        """The number of elements in a unit, along K."""
        return max(1, 8 // self.operand.format.bits)

    @property
    def unit_bytes(self) -> int:
        """The number of bytes in a unit."""
        return max(1, self.operand.format.bits // 8)

    @property
    def units(self) -> int:
        """The number of units."""
        rows, cols = self.operand.shape
        return rows * cols // self.elements

    @property
    def size(self) -> int:
        """The number of bytes in the tile."""
        return self.units * self.unit_bytes

    @property
    def other(self) -> str:
        """The name of the coordinate that is not k."""
        return "m" if self.operand.role == "a" else "n"

    @property
    def coordinates(self) -> tuple[str, str]:
        """The names of the row and column coordinates; k counts units."""
        k = "k" if self.elements == 1 else f"k * {self.elements}"
        return (self.other, k) if self.operand.role == "a" else (k, self.other)

    @cached_property
    def formulas(self) -> dict[str, Expression]:
        """Formulas for k, the other coordinate, the unswizzled `offset` and the `address`, in terms of `unit`."""
        per_line = self.operand.shape[1 if self.operand.role == "a" else 0] // self.elements
        unit = IndexVariable("unit")
        memory = self.descriptor.memory(self.operand.role, trans=self.trans)
        inner, outer = (self.other, "k") if self.trans else ("k", self.other)
        counts = {"k": per_line, self.other: self.units // per_line}
        along = _digits(inner, counts[inner], memory.along, self.unit_bytes)
        terms = [*along, *_digits(outer, counts[outer], memory.across, 1)]
        offset: Expression = IndexVariable("offset")
        bits = SWIZZLES[self.descriptor.swizzle]
        if bits:  # the low bits of the 128-byte row number, moved to the bits that select the 16-byte unit
            moved = IndexOperation(">>", offset, IndexConstant(_log2(ROW_OF_UNITS // UNIT)))
            offset = IndexOperation("^", offset, IndexOperation("&", moved, IndexConstant(((1 << bits) - 1) * UNIT)))
        return {
            "k": IndexOperation("&", unit, IndexConstant(per_line - 1)),
            self.other: IndexOperation(">>", unit, IndexConstant(_log2(per_line))),
            "offset": reduce(lambda left, right: IndexOperation("+", left, right), terms),
            "address": offset,
        }


def _digits(name: str, count: int, digits: Sequence[Digit], step: int) -> list[Expression]:
    """Return the digits of an index, counted in units of `step` and multiplied by their strides.

    There is only one digit if the index does not reach the second one, or if the second one continues the first.
    """
    (extent, stride), (_, last) = digits
    index = IndexVariable(name)
    if extent is None or count * step <= extent or last == extent * stride:
        return [_times(index, stride * step)]
    low = IndexOperation("&", index, IndexConstant(extent // step - 1))
    high = IndexOperation(">>", index, IndexConstant(_log2(extent // step)))
    return [_times(low, stride * step), _times(high, last)]


def _times(index: Expression, factor: int) -> Expression:
    return index if factor == 1 else IndexOperation("*", index, IndexConstant(factor))


def _log2(number: int) -> int:
    return number.bit_length() - 1


def stages(instruction: Instruction) -> Iterator[Stage]:
    """Yield the copies of A and B to shared memory: K-major, and also MN-major if the instruction can read that."""
    for operand in (instruction.a, instruction.b):
        for trans in (False, True) if can_transpose(instruction) else (False,):
            yield Stage(operand, trans)


ORDERS = ("row", "col")


@dataclass(frozen=True)
class SharedCopy:
    """The copy of an operand between registers and row- or column-major shared memory with ldmatrix or stmatrix.

    `starts` gives the start of the line of each lane that passes an address.
    """

    matrix_move: Instruction
    operand: OperandSpec
    order: str
    starts: tuple[LineStart, ...]

    @property
    def memory_bits(self) -> int:
        """The distance between elements in memory, in bits; 16 narrow elements are padded to 16 bytes."""
        return self.operand.container

    @property
    def shift(self) -> int:
        """The left shift that ldmatrix results need, because it leaves each code in the low bits of its container."""
        return self.operand.low

    @property
    def formulas(self) -> dict[str, Expression]:
        """Formulas for the start of a line, as row and column; lanes that need no address repeat another lane's."""
        bits = range((self.operand.layout.lanes - 1).bit_length())
        steps = [self.starts[1 << bit] if 1 << bit < len(self.starts) else LineStart(0, 0) for bit in bits]
        return {dim: linear({"lane": [getattr(step, dim) for step in steps]}) for dim in LineStart._fields}


@cache
def shared_copies(operand: OperandSpec, op: str = "ldmatrix") -> tuple[SharedCopy, ...]:
    """Return every ldmatrix (or stmatrix) copy of an operand, row-major ones first."""
    if operand.unknown or operand.layout.dims != ("row", "col") or operand.container > REGISTER_BITS:
        return ()
    matches = (_match(matrix_move, operand, order) for order in ORDERS for matrix_move in find(op=op))
    return tuple(copy for copy in matches if copy is not None)


def _match(matrix_move: Instruction, operand: OperandSpec, order: str) -> SharedCopy | None:
    """Return the copy that an instruction performs, or None if lines do not fit or element sizes differ."""
    unit = moved(matrix_move).spec
    unpacked = (operand.format.bits, operand.container) == (unit.format.bits, unit.container)
    if unit.layout.regs != operand.layout.regs:
        return None
    if not (unpacked if matrix_move.form.memory else operand.format.bits == operand.container):
        return None
    starts = line_starts(matrix_move, operand, order)
    return SharedCopy(matrix_move, operand, order, starts) if starts else None


def operand_copies(instruction: Instruction, targets: Iterable[str]) -> dict[str, list[SharedCopy]]:
    """Return the legal copies of each mma matrix on these targets; those without .trans come first."""
    copies = {}
    for role in "dabc":
        every = shared_copies(instruction.operands[role].spec, "stmatrix" if role == "d" else "ldmatrix")
        legal = [copy for copy in every if set(targets) <= set(copy.matrix_move.targets)]
        copies[role] = sorted(legal, key=lambda copy: copy.matrix_move.form.trans)
    return copies


def kernel_copies(instruction: Instruction, targets: Iterable[str]) -> list[dict[str, SharedCopy]]:
    """Return, for each kernel, the copies of its operands; together, the kernels use all copies of A and B."""
    copies = operand_copies(instruction, targets)
    return [
        {role: some[min(number, len(some) - 1)] for role, some in copies.items() if some}
        for number in range(max(len(copies["a"]), len(copies["b"])))
    ]


def memory_orders(chosen: Mapping[str, SharedCopy]) -> dict[str, str]:
    """Return the memory order of each matrix in a kernel: that of its copy, or row major without one."""
    return {role: chosen[role].order if role in chosen else "row" for role in ROLES}


def described_orders(orders: Mapping[str, str]) -> str:
    """Return a description of the memory orders of A, B, C and D, for use in a comment."""
    return ", ".join(f"{role.upper()} {orders[role]} major" for role in "abcd")
