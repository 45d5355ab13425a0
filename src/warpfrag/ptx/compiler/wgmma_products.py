"""The wgmma of many warpgroups as one product, and wgmma after wgmma on the same accumulators as one with a longer K.

A and B are gathered when an instruction is issued, by the places that its descriptors lead to; these are found once for
each descriptor. The product stays *pending* until a step touches the accumulators: so all iterations of a loop over K
are one product. Then C is read from the registers and D written there once for all of them. Warpgroups that hold the
same A or B, as those of neighbouring blocks do, are rows and columns of a larger product still (`operand_groups`). An
output depends on its row, its column and its C alone, so none of this changes a code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpfrag.arithmetic.product import multiply
from warpfrag.arithmetic.protocol import ProductOperands
from warpfrag.core.coordinates import LANES
from warpfrag.execution.prepared import prepare
from warpfrag.execution.wgmma import element_places
from warpfrag.ptx.compiler.operand_groups import group_by_operands
from warpfrag.ptx.interpreter.matrix_instructions import words_of
from warpfrag.ptx.program.actions import DirectCall, IndirectCall, MatrixOp, Return
from warpfrag.ptx.program.program import Immediate, MemoryOperand, Register, VectorOperand, registers_of
from warpfrag.ptx.program.types import TYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.execution.prepared import OperandCodec, PreparedInstruction
    from warpfrag.ptx.compiler.warp_code import RegisterLayout
    from warpfrag.ptx.interpreter.lane_group import LaneGroup
    from warpfrag.ptx.interpreter.warp_state import WarpState
    from warpfrag.ptx.program.program import DecodedInstruction, Program, PtxOperand

    Index = NDArray[np.int64]

WARPS = 4  # of a warpgroup
MAX_PENDING_BYTES = 1 << 26  # of gathered codes: then they are multiplied
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


def touches(step: DecodedInstruction, registers: frozenset[int]) -> bool:
    """Whether a step reads or writes one of some registers."""
    operands = [*step.sources, *step.results, *([step.guard] if step.guard is not None else [])]
    operands += [item.base for item in operands if isinstance(item, MemoryOperand) and item.base is not None]
    return any(item.index in registers for operand in operands for item in registers_of(operand))


class WgmmaSteps:
    """What a program says of its wgmma: which can be pending, and which steps need what they compute.

    `accumulators` has the registers of D by step; `needs_products` is True for steps that read or write such a
    register, and for calls and returns, which save and restore registers.
    """

    def __init__(self, program: Program) -> None:
        """Find both; plans are made when a step first runs."""
        steps = program.steps
        self.accumulators = {
            at: frozenset(item.index for operand in step.results for item in registers_of(operand))
            for at, step in enumerate(steps)
            if is_joinable(step)
        }
        every = frozenset[int]().union(*self.accumulators.values())
        self.needs_products = np.array([self._needs_products(at, step, every) for at, step in enumerate(steps)])
        self.plans: dict[tuple[int, str], WgmmaPlan | None] = {}

    def _needs_products(self, at: int, step: DecodedInstruction, accumulators: frozenset[int]) -> bool:
        if at in self.accumulators:
            return any(item.index in accumulators for operand in step.sources for item in registers_of(operand))
        return isinstance(step.action, DirectCall | IndirectCall | Return) or touches(step, accumulators)


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

    `places` are those of D's codes behind the registers of a warpgroup's first warp; `gathers` has, by role and
    descriptors, the places of codes in shared memory.
    """

    prepared: PreparedInstruction
    negate: tuple[bool, bool]
    trans: tuple[bool, bool]
    places: Index
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
        return WgmmaPlan(prepared, (negate[0], negate[1]), (trans[0], trans[1]), places)

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


class OperandCodes(NamedTuple):
    """An operand of one instruction of many warpgroups: the different codes [tiles, rows, columns], and who has which."""

    tiles: NDArray[Any]
    which: Index

    @staticmethod
    def of(codes: NDArray[Any]) -> OperandCodes:
        """Copy what is different in codes [warpgroups, rows, columns]."""
        from warpfrag.ptx.compiler.gather import PIECE_WORDS, find_equal

        lines = codes if codes.flags.c_contiguous else codes.swapaxes(1, 2)
        words = lines.reshape(len(codes), -1).view(np.uint64)
        everyone, first = np.arange(len(codes)), np.empty(len(codes), np.int64)
        starts = np.arange(0, words.shape[1], PIECE_WORDS)
        find_equal.run(words, everyone, starts, np.empty(len(codes), np.uint64), first)
        different = first == everyone
        return OperandCodes(codes[different], (np.cumsum(different) - 1)[first])

    def of_groups(self, groups: Index) -> NDArray[Any]:
        """The codes of some warpgroups."""
        return self.tiles[self.which[groups]]


@dataclass
class PendingProduct:
    """What was issued for some warpgroups and accumulators, and is not multiplied yet: A and B of each instruction."""

    plan: WgmmaPlan
    step: DecodedInstruction  # the first
    accumulators: frozenset[int]
    rows: Index  # the first warp of every warpgroup
    has_c: NDArray[np.bool_]
    a: list[OperandCodes] = field(default_factory=list)
    b: list[OperandCodes] = field(default_factory=list)

    def continues(self, step: DecodedInstruction, rows: Index) -> bool:
        """Whether a step adds to the same accumulators of the same warpgroups."""
        first = self.step
        return step.action == first.action and step.results == first.results and np.array_equal(self.rows, rows)

    def conflicts(self, accumulators: frozenset[int], rows: Index) -> bool:
        """Whether registers that other warpgroups or another form would write are among these."""
        return bool(self.accumulators & accumulators) and bool(np.isin(rows, self.rows).any())


class WgmmaProducts:
    """The wgmma of a batch: what is issued, and computed when a step needs it."""

    def __init__(self, batch: WarpState, buffer: NDArray[np.uint8], layout: RegisterLayout, steps: WgmmaSteps) -> None:
        """Nothing is pending; the registers are in a buffer, as a layout says."""
        self.batch, self.buffer, self.layout, self.steps = batch, buffer, layout, steps
        self.pending: list[PendingProduct] = []
        self.pending_bytes = 0
        self.scratch: dict[tuple[str, int, int, str], NDArray[Any]] = {}  # what is gathered, until the next step

    def run(self, at: int, step: DecodedInstruction, group: LaneGroup) -> bool:
        """Issue a wgmma of whole warps; False where it has to run by itself, with nothing pending."""
        accumulators = self.steps.accumulators.get(at)
        plan = None if accumulators is None or not group.is_whole else self.plan(at, step)
        operands = None if plan is None else self.operands(plan, step, group)
        if accumulators is None or plan is None or operands is None:
            self.flush()
            return False
        rows = np.ascontiguousarray(group.warp_rows[::WARPS])
        scale_d = group.read(step.sources[SCALE_D], PRED)[::WARPS, 0]
        pending = next((item for item in self.pending if item.continues(step, rows)), None)
        if pending is None or not scale_d.all():
            if any(item.conflicts(accumulators, rows) for item in self.pending):
                self.flush()
            pending = PendingProduct(plan, step, accumulators, rows, scale_d.copy())
            self.pending.append(pending)
        for codes, parts in zip(operands, (pending.a, pending.b), strict=True):
            parts.append(OperandCodes.of(codes))
            self.pending_bytes += parts[-1].tiles.nbytes
        if self.pending_bytes > MAX_PENDING_BYTES:
            self.flush()
        return True

    def plan(self, at: int, step: DecodedInstruction) -> WgmmaPlan | None:
        """The plan of a step, made once."""
        plans, arch = self.steps.plans, self.batch.launch.arch
        if (at, arch) not in plans:
            plans[at, arch] = WgmmaPlan.of(step, arch, self.layout, self.buffer.shape[1])
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
        from warpfrag.ptx.compiler.gather import take_planned

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

    def flush(self) -> None:
        """Multiply what is pending, and write D to the registers."""
        pending, self.pending, self.pending_bytes = self.pending, [], 0
        for product in pending:
            self.multiply(product)

    def multiply(self, product: PendingProduct) -> None:
        """Multiply for all warpgroups: as large products where they share operands, else one product for each."""
        groups = group_by_operands(first_of_all(product.a).tobytes(), first_of_all(product.b).tobytes())
        if groups is None:
            everyone = np.arange(len(product.rows))
            a, b = ([part.of_groups(everyone) for part in parts] for parts in (product.a, product.b))
            self.multiply_tiles(product, everyone[:, None], a, b)
            return
        for group in groups:
            a, b = [part.of_groups(group[:, 0]) for part in product.a], [part.of_groups(group[0]) for part in product.b]
            whole_a = [codes.reshape(1, -1, codes.shape[2]) for codes in a]
            whole_b = [codes.swapaxes(0, 1).reshape(1, codes.shape[1], -1) for codes in b]
            self.multiply_tiles(product, group, whole_a, whole_b)

    def multiply_tiles(
        self, product: PendingProduct, group: Index, a: list[NDArray[Any]], b: list[NDArray[Any]]
    ) -> None:
        """Multiply for the warpgroups group[i, j], whose accumulators are the tiles of the products' outputs."""
        from warpfrag.ptx.compiler.gather import put_tiles, take_tiles

        prepared, places = product.plan.prepared, product.plan.places
        cells = self.buffer.reshape(-1).view(prepared.d.container)
        bases = product.rows[group] * (self.buffer.shape[1] // cells.itemsize)
        tiles = np.zeros((group.shape[0], places.shape[0], group.shape[1], places.shape[1]), np.uint32)
        c = tiles.reshape(tiles.shape[0] * tiles.shape[1], -1)
        if product.has_c.any():
            take_tiles.run(cells, bases, places, c)
            tiles.swapaxes(1, 2)[~product.has_c[group]] = 0
        codes: NDArray[Any] = c.reshape(a[0].shape[0], -1, c.shape[1])
        pairs = [(a, b)]
        if prepared.kernels.rule.c != prepared.kernels.rule.d:  # D is no C of a next instruction
            pairs = [([part_a], [part_b]) for part_a, part_b in zip(a, b, strict=True)]
        for parts_a, parts_b in pairs:
            whole = [np.concatenate(parts, axis=axis, dtype=np.uint32) for parts, axis in ((parts_a, 2), (parts_b, 1))]
            codes = multiply(prepared.kernels, ProductOperands(*whole, codes), 1)
        put_tiles.run(cells, bases, places, codes.reshape(c.shape).astype(np.uint32, copy=False))


def first_of_all(parts: list[OperandCodes]) -> Index:
    """For every warpgroup the first one that has the same codes in every part."""
    every = np.stack([part.which for part in parts])
    _, first, which = np.unique(every, axis=1, return_index=True, return_inverse=True)
    return np.ascontiguousarray(first[which.reshape(-1)], np.int64)


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
