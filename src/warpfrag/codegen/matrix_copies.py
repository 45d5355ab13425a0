"""ldmatrix and stmatrix for an operand in shared memory whose strides are known when the kernel runs.

`plans.matrix_accesses` finds the matrix moves that serve, and the start of each lane's line; here that becomes formulas
of the lane.

    >>> from warpfrag.tensorcore.registry import get
    >>> copy = shared_copies(get("mma.m16n8k16.f32.f16.f16.f32").a.spec)[0]
    >>> copy.matrix_move.name, copy.order, {dim: str(formula) for dim, formula in copy.formulas.items()}
    ('ldmatrix.sync.aligned.m8n8.x4.shared.b16', 'row', {'row': 'lane & 15', 'col': '(lane >> 4) * 8'})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from warpfrag.codegen.statement import ROLES
from warpfrag.isa.operands import REGISTER_BITS, OperandSpec
from warpfrag.layout.index_expressions import Expression, linear
from warpfrag.plans.matrix_accesses import LineStart, line_starts, moved
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.registry import find

ORDERS = ("row", "col")


@dataclass(frozen=True)
class SharedCopy:
    """The copy of one operand between registers and shared memory, in row or column major order, by one matrix move.

    `starts` has the start of the line of each lane that passes an address.
    """

    matrix_move: Instruction
    operand: OperandSpec
    order: str
    starts: tuple[LineStart, ...]

    @property
    def memory_bits(self) -> int:
        """Bits from one element to the next in memory; 16 narrow ones are padded to 16 bytes."""
        return self.operand.container

    @property
    def shift(self) -> int:
        """The left shift after ldmatrix, which leaves a code in the low bits of its container."""
        return self.operand.low

    @property
    def formulas(self) -> dict[str, Expression]:
        """Row and column of the start of a line from `lane`; lanes that need not give an address repeat another's."""
        bits = range((self.operand.layout.lanes - 1).bit_length())
        steps = [self.starts[1 << bit] if 1 << bit < len(self.starts) else LineStart(0, 0) for bit in bits]
        return {dim: linear({"lane": [getattr(step, dim) for step in steps]}) for dim in LineStart._fields}


@cache
def shared_copies(operand: OperandSpec, op: str = "ldmatrix") -> tuple[SharedCopy, ...]:
    """Every copy of an operand by ldmatrix (or stmatrix), row major first."""
    if operand.unknown or operand.layout.dims != ("row", "col") or operand.container > REGISTER_BITS:
        return ()
    matches = (_match(matrix_move, operand, order) for order in ORDERS for matrix_move in find(op=op))
    return tuple(copy for copy in matches if copy is not None)


def _match(matrix_move: Instruction, operand: OperandSpec, order: str) -> SharedCopy | None:
    """Return the copy; None if a line does not fit, or elements in memory are no elements in registers."""
    unit = moved(matrix_move).spec
    unpacked = (operand.format.bits, operand.container) == (unit.format.bits, unit.container)
    if unit.layout.regs != operand.layout.regs:
        return None
    if not (unpacked if matrix_move.form.memory else operand.format.bits == operand.container):
        return None
    starts = line_starts(matrix_move, operand, order)
    return SharedCopy(matrix_move, operand, order, starts) if starts else None


def operand_copies(instruction: Instruction, targets: Iterable[str]) -> dict[str, list[SharedCopy]]:
    """The copies of each matrix of a product that are legal on these targets; those without .trans first."""
    copies = {}
    for role in "dabc":
        every = shared_copies(instruction.operands[role].spec, "stmatrix" if role == "d" else "ldmatrix")
        legal = [copy for copy in every if set(targets) <= set(copy.matrix_move.targets)]
        copies[role] = sorted(legal, key=lambda copy: copy.matrix_move.form.trans)
    return copies


def kernel_copies(instruction: Instruction, targets: Iterable[str]) -> list[dict[str, SharedCopy]]:
    """Return a copy for every operand that has one, for each kernel; together they use all copies of A and B."""
    copies = operand_copies(instruction, targets)
    return [
        {role: some[min(number, len(some) - 1)] for role, some in copies.items() if some}
        for number in range(max(len(copies["a"]), len(copies["b"])))
    ]


def memory_orders(chosen: Mapping[str, SharedCopy]) -> dict[str, str]:
    """Return the memory order of each matrix in a kernel: that of its copy, or row major without one."""
    return {role: chosen[role].order if role in chosen else "row" for role in ROLES}


def described_orders(orders: Mapping[str, str]) -> str:
    """Describe the memory order of A, B, C and D, for a comment."""
    return ", ".join(f"{role.upper()} {orders[role]} major" for role in "abcd")
