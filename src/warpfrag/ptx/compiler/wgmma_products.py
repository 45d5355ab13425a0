"""The wgmma of many warpgroups: their operands in shared memory, and the products that they issue.

A and B are gathered when an instruction is issued, by the places that its descriptors lead to; these are found once for
each descriptor. What happens then is in `pending_products`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from warpfrag.layout.coordinates import LANES
from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.ptx.compiler.pending_products import UNIT_WORDS, OperandCodes, OperandUnits, PendingProduct, TilePlaces
from warpfrag.ptx.interpreter.matrix_instructions import words_of
from warpfrag.ptx.program.actions import MatrixOp
from warpfrag.ptx.program.program import Immediate, Register, VectorOperand
from warpfrag.ptx.program.types import TYPES
from warpfrag.tensorcore.execute_wgmma import element_places
from warpfrag.tensorcore.prepared import prepare

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.isa.qualifiers import Form
    from warpfrag.ptx.compiler.pending_products import PendingProducts, ProductSteps
    from warpfrag.ptx.compiler.warp_code import RegisterLayout
    from warpfrag.ptx.interpreter.lane_group import LaneGroup
    from warpfrag.ptx.interpreter.warp_state import WarpState
    from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand
    from warpfrag.tensorcore.prepared import OperandCodec, PreparedInstruction

    Index = NDArray[np.int64]

WARPS = 4  # of a warpgroup
UNIT_BYTES = 8 * UNIT_WORDS
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


@frozen_dataclass
class GatherPlaces:
    """Where operands lie in shared memory, [descriptors, units]: the words of 64 bits at which units begin.

    `which` has the descriptor of every warpgroup. Swizzles keep 16 bytes together, so units are codes that follow each
    other along one axis of the operand. Where that is the first axis, the operand is gathered transposed.
    """

    units: Index
    which: Index
    is_transposed: bool

    @staticmethod
    def of(places: Index, which: Index, code_bytes: int) -> GatherPlaces | None:
        """The units of codes at some places [descriptors, rows, columns]; None where they are scattered."""
        count = UNIT_BYTES // code_bytes
        for is_transposed in (False, True):
            lines = places.swapaxes(1, 2) if is_transposed else places
            if lines.shape[2] % count:
                continue
            units = lines.reshape(len(lines), -1, count)
            first = units[:, :, 0]
            if not (first % count).any() and (units == first[:, :, None] + np.arange(count)).all():
                return GatherPlaces(np.ascontiguousarray(first // count * UNIT_WORDS), which, is_transposed)
        return None


@lru_cache(1024)  # kernels use few descriptors and use them often
def gather_places(
    form: Form, arch: str, role: str, descriptors: bytes, size: int, *, is_transposed: bool
) -> GatherPlaces | None:
    """The places that the descriptors of warpgroups lead to; None where one is not below `size` bytes."""
    bits = getattr(prepare(form, arch).operands, role).format.bits
    unique, which = np.unique(np.frombuffer(descriptors, np.uint64), return_inverse=True)
    places = [element_places(form, arch, role, word, is_transposed) for word in unique.tolist()]
    inside = [item for item in places if item is not None and int(item.max()) < size * 8 // bits]
    return GatherPlaces.of(np.stack(inside), which, bits // 8) if len(inside) == len(places) else None


@frozen_dataclass
class WgmmaPlan:
    """A wgmma of a program on an architecture: what is the same whenever it runs.

    `d` are the places of D's codes behind the registers of a warpgroup's first warp.
    """

    prepared: PreparedInstruction
    negate: tuple[bool, bool]
    trans: tuple[bool, bool]
    d: TilePlaces

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


WgmmaPlans: TypeAlias = dict[tuple[int, str], WgmmaPlan | None]
"""By step and architecture."""


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

    def run(self, at: int, step: DecodedInstruction, group: LaneGroup) -> bool:
        """Issue a wgmma of whole warps; False where it has to run by itself, with nothing pending."""
        accumulators = self.steps.accumulators.get(at)
        plan = None if accumulators is None or not group.is_whole else self.plan(at, step)
        operands = None if plan is None else self.operands(plan, step, group)
        if accumulators is None or plan is None or operands is None:
            self.products.flush()
            return False
        a, b = (self.different(plan, accumulators, role, operands[role]) for role in ("a", "b"))
        rows = np.ascontiguousarray(group.warp_rows[::WARPS])
        scale_d = group.read(step.sources[SCALE_D], PRED)[::WARPS, 0]
        product = PendingProduct(plan.prepared.kernels, accumulators, rows, plan.d, plan.d, scale_d.copy())
        self.products.issue(product, a, b)
        return True

    def plan(self, at: int, step: DecodedInstruction) -> WgmmaPlan | None:
        """The plan of a step, made once."""
        plans, arch = self.plans, self.batch.launch.arch
        if (at, arch) not in plans:
            plans[at, arch] = WgmmaPlan.of(step, arch, self.layout, self.products.buffer.shape[1])
        return plans[at, arch]

    def operands(
        self, plan: WgmmaPlan, step: DecodedInstruction, group: LaneGroup
    ) -> dict[str, tuple[OperandUnits, bool]] | None:
        """Where A [64, k] and B [k, n] of every warpgroup lie, and whether transposed; None where out of memory.

        None too where their codes are no whole bytes.
        """
        operands, bits = {}, plan.prepared.operands.a.format.bits
        if bits % 8:
            return None
        for role, source in zip("ab", step.sources[:SCALE_D], strict=True):
            if isinstance(source, VectorOperand):
                words = words_of(group, source)
                codes = plan.prepared.a.read(words.reshape(-1, WARPS, *words.shape[1:]), (group.warps // WARPS,))
                operands[role] = OperandUnits.of(np.ascontiguousarray(codes, f"u{bits // 8}")), False
                continue
            units = self.shared_units(plan, role, source, group)
            if units is None:
                return None
            operands[role] = units
        return operands

    def shared_units(
        self, plan: WgmmaPlan, role: str, operand: PtxOperand, group: LaneGroup
    ) -> tuple[OperandUnits, bool] | None:
        """The units that descriptors lead to, each in the shared memory of its block, and whether transposed."""
        batch, form = self.batch, plan.prepared.form
        stride = batch.memory.shared_stride
        descriptors = group.read(operand, B64)[::WARPS, 0].tobytes()
        is_transposed = plan.trans[role == "b"]
        places = gather_places(form, batch.launch.arch, role, descriptors, stride, is_transposed=is_transposed)
        if places is None:
            return None
        bases = batch.warp_block[group.warp_rows[::WARPS]] * (stride // 8)
        units = OperandUnits(batch.memory.shared.view(np.uint64), bases, places.units, places.which)
        return units, places.is_transposed

    def different(
        self, plan: WgmmaPlan, accumulators: frozenset[int], role: str, operand: tuple[OperandUnits, bool]
    ) -> OperandCodes:
        """The different codes of an operand [tiles, rows, columns], and who has which."""
        units, is_transposed = operand
        sharing = self.products.find_different(accumulators, role, units)
        place = getattr(plan.prepared.operands, role)
        codes: NDArray[Any] = units.take(sharing.different).view(f"u{place.format.bits // 8}")
        if plan.negate[role == "b"]:
            codes ^= codes.dtype.type(1 << (place.format.bits - 1))
        rows, columns = place.shape
        if is_transposed:
            return OperandCodes(codes.reshape(-1, columns, rows).swapaxes(1, 2), sharing.which)
        return OperandCodes(codes.reshape(-1, rows, columns), sharing.which)


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
