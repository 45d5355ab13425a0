"""The wgmma of many warpgroups: their operands in shared memory, and the products that they issue.

A and B are gathered when an instruction is issued, by the places that its descriptors lead to; these are found once for
each descriptor. What happens then is in `pending_products`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from warpfrag.core.coordinates import LANES
from warpfrag.execution.prepared import prepare
from warpfrag.execution.wgmma import element_places
from warpfrag.ptx.compiler.operand_groups import PIECE_WORDS
from warpfrag.ptx.compiler.pending_products import OperandCodes, PendingProduct, TilePlaces, number_different
from warpfrag.ptx.interpreter.matrix_instructions import words_of
from warpfrag.ptx.program.actions import MatrixOp
from warpfrag.ptx.program.program import Immediate, Register, VectorOperand
from warpfrag.ptx.program.types import TYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.execution.prepared import OperandCodec, PreparedInstruction
    from warpfrag.ptx.compiler.pending_products import PendingProducts, ProductSteps
    from warpfrag.ptx.compiler.warp_code import RegisterLayout
    from warpfrag.ptx.interpreter.lane_group import LaneGroup
    from warpfrag.ptx.interpreter.warp_state import WarpState
    from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand

    Index = NDArray[np.int64]

WARPS = 4  # of a warpgroup
CELL_BYTES = 8  # of what is gathered at once
SCALE_D = 2  # of the sources: A, B, scale_d, then signs and transpositions
B64, PRED = TYPES["b64"], TYPES["pred"]


def is_joinable(step: DecodedInstruction) -> bool:
    """Whether a step is a dense wgmma without a guard, with constants for what is constant."""
    action = step.action
    if (
        not isinstance(action, MatrixOp)
        or action.operation != "wgmma"
        or step.guard is not None
        or action.form.is_sparse
    ):
        return False
    return all(isinstance(operand, Immediate) for operand in step.sources[SCALE_D + 1 :])


@dataclass(frozen=True)
class GatherPlaces:
    """Where the codes of operands lie in shared memory, [descriptors, cells]: cells of several codes where they can be.

    Swizzles keep 16 bytes together, so codes that follow each other along one axis of the operand are gathered as words
    of 64 bits. Where that is the first axis, the operand is gathered transposed.
    """

    places: Index
    dtype: np.dtype[Any]  # of a cell
    is_transposed: bool = False

    @staticmethod
    def of(places: Index, code_bytes: int) -> GatherPlaces:
        """The cells of codes at some places [descriptors, rows, columns]."""
        count = CELL_BYTES // code_bytes
        for is_transposed in (False, True):
            lines = places.swapaxes(1, 2) if is_transposed else places
            if lines.shape[2] % count:
                continue
            cells = lines.reshape(len(lines), -1, count)
            first = cells[:, :, 0]
            if not (first % count).any() and (cells == first[:, :, None] + np.arange(count)).all():
                return GatherPlaces(np.ascontiguousarray(first // count), np.dtype(np.uint64), is_transposed)
        return GatherPlaces(places.reshape(len(places), -1), np.dtype(f"u{code_bytes}"))


@dataclass
class WgmmaPlan:
    """A wgmma of a program on an architecture: what is the same whenever it runs.

    `d` are the places of D's codes behind the registers of a warpgroup's first warp; `gathers` has, by role and
    descriptors, the places of codes in shared memory.
    """

    prepared: PreparedInstruction
    negate: tuple[bool, bool]
    trans: tuple[bool, bool]
    d: TilePlaces
    gathers: dict[tuple[str, bytes], GatherPlaces | None] = field(default_factory=dict)

    @staticmethod
    def of(step: DecodedInstruction, arch: str, layout: RegisterLayout, row_bytes: int) -> WgmmaPlan | None:
        """The plan of a step; None where it has to run by itself."""
        action = step.action
        if not isinstance(action, MatrixOp):
            return None
        prepared = prepare(action.form, arch)
        numbers = [item.code(None) for item in step.sources[SCALE_D + 1 :] if isinstance(item, Immediate)]
        negate = [number != 1 for number in numbers[:2]] or [False, False]
        trans = [False, False, *map(bool, numbers[2:])][-2:]  # A in registers: that of B alone
        places = tile_places(prepared.d, step.results[0], layout, row_bytes)
        if places is None or (any(negate) and not prepared.operands.a.format.is_float):
            return None
        return WgmmaPlan(
            prepared, (negate[0], negate[1]), (trans[0], trans[1]), TilePlaces(places, np.dtype(prepared.d.container))
        )

    def gather_places(self, role: str, descriptors: NDArray[np.uint64], arch: str, size: int) -> GatherPlaces | None:
        """The places that descriptors lead to in shared memory; None where one is not below `size` codes."""
        key = role, descriptors.tobytes()
        if key not in self.gathers:
            is_transposed = self.trans[role == "b"]
            form = self.prepared.form
            places = [element_places(form, arch, role, word, is_transposed) for word in descriptors.tolist()]
            inside = [item for item in places if item is not None and int(item.max()) < size]
            code_bytes = getattr(self.prepared.operands, role).format.bits // 8
            self.gathers[key] = GatherPlaces.of(np.stack(inside), code_bytes) if len(inside) == len(places) else None
        return self.gathers[key]


WgmmaPlans: TypeAlias = dict[tuple[int, str], WgmmaPlan | None]
"""By step and architecture."""


def different_codes(codes: NDArray[Any]) -> OperandCodes:
    """Copy what is different in codes [warpgroups, rows, columns]."""
    from warpfrag.ptx.compiler.loops import find_equal

    lines = codes if codes.flags.c_contiguous else codes.swapaxes(1, 2)
    words = lines.reshape(len(codes), -1).view(np.uint64)
    starts, first = np.arange(0, words.shape[1], PIECE_WORDS), np.empty(len(codes), np.int64)
    find_equal.run(words, np.arange(len(codes)), starts, np.empty(len(codes), np.uint64), first)
    different, which = number_different(first)
    return OperandCodes(codes[different], which)


class WgmmaProducts:
    """The wgmma of a batch; `plans` are kept with the program, by step and architecture."""

    def __init__(
        self,
        batch: WarpState,
        products: PendingProducts,
        layout: RegisterLayout,
        steps: ProductSteps,
        plans: WgmmaPlans,
    ) -> None:
        """The registers are in a buffer, as a layout says."""
        self.batch, self.products, self.layout, self.steps, self.plans = batch, products, layout, steps, plans
        self.scratch: dict[tuple[str, int, int, str], NDArray[Any]] = {}  # what is gathered, until the next step

    def run(self, at: int, step: DecodedInstruction, group: LaneGroup) -> bool:
        """Issue a wgmma of whole warps; False where it has to run by itself, with nothing pending."""
        accumulators = self.steps.accumulators.get(at)
        plan = None if accumulators is None or not group.is_whole else self.plan(at, step)
        operands = None if plan is None else self.operands(plan, step, group)
        if accumulators is None or plan is None or operands is None:
            self.products.flush()
            return False
        rows = np.ascontiguousarray(group.warp_rows[::WARPS])
        scale_d = group.read(step.sources[SCALE_D], PRED)[::WARPS, 0]
        product = PendingProduct(plan.prepared.kernels, accumulators, rows, plan.d, plan.d, scale_d.copy())
        self.products.issue(product, different_codes(operands[0]), different_codes(operands[1]))
        return True

    def plan(self, at: int, step: DecodedInstruction) -> WgmmaPlan | None:
        """The plan of a step, made once."""
        plans, arch = self.plans, self.batch.launch.arch
        if (at, arch) not in plans:
            plans[at, arch] = WgmmaPlan.of(step, arch, self.layout, self.products.buffer.shape[1])
        return plans[at, arch]

    def operands(
        self, plan: WgmmaPlan, step: DecodedInstruction, group: LaneGroup
    ) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """The codes of A [warpgroups, 64, k] and B [warpgroups, k, n]; None where descriptors lead out of memory."""
        a, b = step.sources[:SCALE_D]
        codes_a: NDArray[Any] | None
        if isinstance(a, VectorOperand):
            words = words_of(group, a)
            codes_a = plan.prepared.a.read(words.reshape(-1, WARPS, *words.shape[1:]), (group.warps // WARPS,))
        else:
            codes_a = self.gather(plan, "a", a, group)
        codes_b = self.gather(plan, "b", b, group)
        if codes_a is None or codes_b is None:
            return None
        sign = 1 << (plan.prepared.operands.a.format.bits - 1)
        return (
            codes_a ^ codes_a.dtype.type(sign) if plan.negate[0] else codes_a,
            codes_b ^ codes_b.dtype.type(sign) if plan.negate[1] else codes_b,
        )

    def gather(self, plan: WgmmaPlan, role: str, operand: PtxOperand, group: LaneGroup) -> NDArray[Any] | None:
        """The codes that descriptors lead to, each in the shared memory of its block."""
        from warpfrag.ptx.compiler.loops import take_planned

        batch = self.batch
        place = getattr(plan.prepared.operands, role)
        size = place.format.bits // 8 or 1
        stride = batch.memory.shared_stride
        every = group.read(operand, B64)[::WARPS, 0]
        descriptors, which = every[:1], np.zeros(len(every), np.int64)
        if (every != every[0]).any():
            descriptors, which = np.unique(every, return_inverse=True)
        plan_places = plan.gather_places(role, descriptors, batch.launch.arch, stride // size)
        if plan_places is None:
            return None
        cells, places = batch.memory.shared.view(plan_places.dtype), plan_places.places
        bases = batch.warp_block[group.warp_rows[::WARPS]] * (stride // cells.itemsize)
        key = role, len(bases), places.shape[1], cells.dtype.str
        if key not in self.scratch:
            self.scratch[key] = np.empty((len(bases), places.shape[1]), cells.dtype)
        out = self.scratch[key]
        take_planned.run(cells, bases, places, which, out)
        rows, columns = place.shape
        if plan_places.is_transposed:
            return out.view(f"u{size}").reshape(-1, columns, rows).swapaxes(1, 2)
        return out.view(f"u{size}").reshape(-1, rows, columns)


def tile_places(port: OperandCodec, operand: PtxOperand, layout: RegisterLayout, row_bytes: int) -> Index | None:
    """Where the codes of D lie behind the first warp's registers, [64, n]; None unless it fills 32-bit registers."""
    items = operand.items if isinstance(operand, VectorOperand) else (operand,)
    registers = [item for item in items if isinstance(item, Register) and item.bits == 32]
    if not port.fills_bytes or len(registers) != len(items) or len(items) != port.words[-1]:
        return None
    size = port.container.itemsize
    starts = np.array([layout.offsets[register.index] for register in registers], np.int64)
    thread, rest = np.divmod(np.asarray(port.first_places, np.int64), 4 // size * len(items))
    word, part = np.divmod(rest, 4 // size)
    warp, lane = np.divmod(thread, LANES)
    return np.ascontiguousarray(((warp * row_bytes + starts[word] + 4 * lane) // size + part).reshape(port.shape))
