"""Move D of one tcgen05.mma to A of the next: load some columns, convert them in registers, and store them.

Both are in tensor memory. The registers of a load map linearly to D, and those of a store to A, so the work in between
is an ordinary register relayout. The plan uses the load and store that need the least work, usually only conversions.

A warp can access only its own 32 lanes. If D is split across lanes, and A has copies in the lanes of other warps,
elements would have to move between warps: such operands are rejected.

`relayout` here is `wf.relayout`: it plans for tensor memory, or calls `plans.relayout` for operands in registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from warpfrag.errors import InvalidOperand, NotModelled
from warpfrag.isa.qualifiers import Shape
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.isa.tcgen05_spelling import TensorSpelling, read_spelling
from warpfrag.isa.tmem_layouts import access, accumulator, multiplicand, placement
from warpfrag.layout.linear_layout import Layout
from warpfrag.plans.relayout import Relayout
from warpfrag.plans.relayout import relayout as register_relayout
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.tcgen05_types import TensorInstruction, TensorLoad, TensorStore
from warpfrag.tensorcore.tensor_operand import TensorOperand, composed

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from warpfrag.formats.arrays import Words

# the number of columns that one repetition of each shape accesses
COLUMNS = {"32x32b": 1, "16x64b": 2, "16x128b": 4, "16x256b": 8}
WHOLE, HALVES = ("32x32b",), ("16x64b", "16x128b", "16x256b")  # shapes that access all lanes, or 16 of every 32
SAME_LANES = "ACDF"  # data paths for which D and A are in the same lanes
WIDEST = 64  # the most columns of D to load at a time, limited by a thread's registers
REPEATS = 128
HALF = 16  # the size in bits of the elements that a load packs


@dataclass(frozen=True)
class TensorRelayout(Relayout):
    """A plan from D of one tcgen05.mma to A of another: `load`, `registers` and `store` for each `columns` columns.

    `operations` are the operations of `registers`; every part runs them.
    """

    source: TensorOperand
    target: TensorOperand
    load: TensorLoad = field(kw_only=True)
    registers: Relayout = field(kw_only=True)
    store: TensorStore = field(kw_only=True)
    columns: int = field(kw_only=True)

    @property
    def count(self) -> int:
        """The number of loads, which equals the number of stores."""
        return self.source.layout.outs["col"] // self.columns

    @property
    def stored(self) -> int:
        """The number of tensor-memory columns that one store fills."""
        return self.columns * self.target.spec.container // 32

    @cached_property
    def counts(self) -> dict[str, int]:
        """The number of instructions per lane between the loads and the stores, by name."""
        return {instruction: count * self.count for instruction, count in self.registers.counts.items()}

    @property
    def cost(self) -> int:
        """The cost of all instructions between loads and stores."""
        return self.registers.cost * self.count

    @property
    def verdict(self) -> str:
        """A sentence that describes the plan."""
        return f"In tensor memory, through registers, {self}."

    @property
    def instructions(self) -> tuple[str, str, str]:
        """The load, the register operations and the store of each part, as text."""
        return self.load.name, str(self.registers) or "nothing", self.store.name

    def __str__(self) -> str:
        """Return a description of the plan in one line."""
        return f"{self.count} times: {'; '.join(self.instructions)}"

    def __call__(self, words: ArrayLike, source: int = 0, target: int = 0) -> Words:
        """Run the plan on tensor memory `words`, and return it; D starts at column `source`, A at column `target`.

        With a pair of blocks, each block runs the plan.
        """
        import numpy as np

        from warpfrag.tensorcore.execute_tcgen05 import check_tensor_memory

        after: Words = np.array(check_tensor_memory(words, 2 if "block" in self.source.layout.ins else 1))
        for part in range(self.count):
            loaded = cast("Words", self.load.execute(after, source + part * self.columns))
            after = self.store.execute(after, target + part * self.stored, self.registers(loaded))
        return after


@overload
def relayout(source: TensorOperand, target: TensorOperand) -> TensorRelayout: ...


@overload
def relayout(source: Operand, target: Operand, *, permute: Literal["row", "col"] | None = None) -> Relayout: ...


def relayout(source: Operand, target: Operand, *, permute: Literal["row", "col"] | None = None) -> Relayout:
    """Return the cheapest plan from the registers of one operand to those of another that holds the same matrix.

    If the formats differ, values are rounded to nearest even, with the saturation of PTX's cvt. With `permute="col"`,
    the columns of the target may be permuted so that every element stays in its lane: target column j holds source
    column permutation[j]. The rows of the other factor must then be permuted in the same way.

    From D to A of tcgen05, in tensor memory, the plan is a load, conversions and a store.
    """
    if isinstance(source, TensorOperand) and isinstance(target, TensorOperand) and permute is None:
        return tensor_relayout(source, target)
    return register_relayout(source, target, permute=permute)


def tensor_relayout(source: TensorOperand, target: TensorOperand) -> TensorRelayout:
    """Return the plan from D of one mma to the A of another that reads all columns of D, k at a time."""
    first, second = (cast("TensorInstruction", get(operand.instruction)).form for operand in (source, target))
    if source.role not in "cd" or target.role != "a":
        raise InvalidOperand(f"a relayout in tensor memory moves D to A, got {source.role} to {target.role}")
    n, k = source.layout.outs["col"], target.layout.outs["col"]
    if (first.shape.m, first.blocks) != (second.shape.m, second.blocks) or n % k:
        raise InvalidOperand(
            f"D has {first.shape.m} rows and {n} columns in {first.blocks} block(s), A {second.shape.m} rows in "
            f"{second.blocks}; expected the same rows and blocks in A, and a multiple of {k} columns in D"
        )
    for form in (first, second):
        if placement(form)[0] not in SAME_LANES:
            raise InvalidOperand(
                f"{form.name}: D is split across lanes, and A has copies in lanes that no single warp can access"
            )
    plans = list(_plans(source, target, first, second))
    if not plans:
        raise InvalidOperand(
            f"no load and store of the same {n} columns fit {source.description} and {target.description}"
        )
    return min(plans, key=lambda plan: (plan.cost, plan.count))


def _plans(
    source: TensorOperand, target: TensorOperand, first: TensorForm, second: TensorForm
) -> Iterator[TensorRelayout]:
    """Yield a plan for each combination of load and store that can access the lanes."""
    n = source.layout.outs["col"]
    columns = max(width for width in (1 << bit for bit in range(WIDEST.bit_length())) if n % width == 0)
    shapes = HALVES if placement(first)[0] in "CF" else WHOLE
    stored = columns * target.spec.container // 32
    refusal: NotModelled | None = None
    packed = (False, True) if source.format.bits == HALF else (False,)
    for loaded_by, is_packed, stored_by in product(shapes, packed, shapes):
        load = _access("ld", loaded_by, columns // 2 if is_packed else columns, ".pack::16b" if is_packed else "")
        store = _access("st", stored_by, stored, "")
        if load is None or store is None:
            continue
        ends = (
            _registers(source, _block_layout(accumulator(_wide(first, n=columns)), first.blocks), load, is_packed),
            _registers(
                target,
                _block_layout(multiplicand(_wide(second, stored=columns), target.spec.container), second.blocks),
                store,
            ),
        )
        try:
            moved = register_relayout(*ends)
        except NotModelled as error:  # there is no known conversion between these formats
            refusal = error
            continue
        yield TensorRelayout(
            source,
            target,
            moved.operations,
            load=cast("TensorLoad", get(load.name)),
            registers=moved,
            store=cast("TensorStore", get(store.name)),
            columns=columns,
        )
    if refusal is not None:
        raise refusal


def _access(op: str, shape: str, columns: int, packed: str) -> TensorSpelling | None:
    """Return the load or store of a shape that accesses `columns` columns, or None if there is none."""
    repeat = columns // COLUMNS[shape]
    if not 1 <= repeat <= REPEATS * COLUMNS["32x32b"] // max(1, COLUMNS[shape] // 2) or columns % COLUMNS[shape]:
        return None
    return read_spelling(f"tcgen05.{op}.sync.aligned.{shape}.x{repeat}{packed}.b32")


def _wide(form: TensorForm, *, n: int | None = None, stored: int | None = None) -> TensorForm:
    """Return the form with `n` columns of D, or with `stored` columns of A."""
    m, own_n, k = form.shape
    if stored is not None:
        k = stored * (2 if form.spelling.is_sparse else 1)
    return replace(form, shape=Shape(m, own_n if n is None else n, k))


def _block_layout(layout: Layout, blocks: int) -> Layout:
    """Return the layout for one block of a pair, with rows counted from 0."""
    if blocks == 1:
        return layout
    steps = {name: [(step.radix, tuple(step.moves)) for step in layout.steps(name)] for name in layout.ins}
    del steps["block"]
    return Layout.of_steps({**layout.outs, "row": layout.outs["row"] // blocks}, steps)


def _registers(operand: TensorOperand, layout: Layout, spelling: TensorSpelling, is_packed: bool = False) -> Operand:  # noqa: FBT001, FBT002
    """Return an operand as the registers of a load or store hold it."""
    reached = access(spelling, columns=layout.ins["column"])
    row: dict[str, Any] = {"layout": composed(layout, reached)}
    if is_packed:
        row["container"] = HALF
    return Operand(replace(operand.spec, **row), operand.instruction)
