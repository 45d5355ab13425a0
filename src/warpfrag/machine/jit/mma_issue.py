"""Combine a warp's mma instructions into the tiles of one large product, which many warps issue together.

Several mma are the tiles of one product if each A is multiplied by each B once; successive mma on the same accumulators
are one product with a longer K. Registers are compared to find the warps that hold the same A or B.
`pending_mma` executes the products.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from warpfrag.isa.legality import form_of
from warpfrag.isa.qualifiers import Form
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.lane_group import LaneGroup, items_of
from warpfrag.machine.interpreter.matrix_instructions import matrix_name, tell_reads, words_of
from warpfrag.machine.interpreter.warp_state import WarpState
from warpfrag.machine.ir.actions import Action, AsyncCopy, LaneOp, MatrixOp, MemoryLoad, MemoryStore, Move, NoOp
from warpfrag.machine.ir.program import (
    DecodedInstruction,
    Immediate,
    Program,
    PtxOperand,
    Register,
    VectorOperand,
    indices_of,
    registers_of,
)
from warpfrag.machine.ir.scalar_types import B64, PRED
from warpfrag.machine.jit import c_functions
from warpfrag.machine.jit.pending_mma import (
    UNIT_WORDS,
    MmaInstructions,
    OperandCodes,
    OperandUnits,
    PendingProduct,
    PendingProducts,
    TilePlaces,
)
from warpfrag.machine.jit.register_flow import RegisterLayout, live_after
from warpfrag.tensorcore.execute_wgmma import element_places
from warpfrag.tensorcore.resolved_instruction import OperandCodec, ResolvedInstruction, resolve_form

Index = NDArray[np.int64]

# the first 64-bit words of the 16-byte units in a warp's 32-bit register
UNITS_OF_REGISTER = np.arange(0, LANES * 4 // 8, UNIT_WORDS)


@dataclass(frozen=True)
class RegisterTile:
    """The offsets [rows, cols] of an operand's codes in a warp's registers, in elements of `dtype`."""

    dtype: np.dtype[Any]
    index: Index
    units: Index  # the first 64-bit word of each 16-byte unit, [1, units]

    def read(self, buffer: NDArray[np.uint8], rows: Index) -> NDArray[Any]:
        """Gather the operand's codes in the given warps, [warps, rows, cols]."""
        out = np.empty((len(rows), *self.index.shape), np.uint32 if self.dtype.itemsize <= 4 else self.dtype)
        take = c_functions.take[self.dtype.itemsize]
        take.run(buffer.view(self.dtype), rows, self.index.reshape(-1), out.reshape(len(rows), -1))
        return out

    def units_of(self, buffer: NDArray[np.uint8], rows: Index) -> OperandUnits:
        """Return the 16-byte units of the given warps' registers that contain the operand."""
        return OperandUnits(
            buffer.reshape(-1).view(np.uint64), rows * (buffer.shape[1] // 8), self.units, np.zeros(len(rows), np.int64)
        )


@dataclass(frozen=True)
class Tiling:
    """Several mma instructions, combined as the tiles of one product."""

    runner: ResolvedInstruction
    a: RegisterTile
    b: RegisterTile
    c: TilePlaces
    d: TilePlaces

    @staticmethod
    def of(parts: list[list[DecodedInstruction]], layout: RegisterLayout, arch: str) -> Tiling | None:
        """Combine the instructions of all parts, in order along K, into one product; return None if they do not fit."""
        runner = resolve_form(form_of(matrix_name(parts[0][0])), arch)
        grids = [grid_of(instructions) for instructions in parts]
        along_a, along_b = [], []
        for number, grid in enumerate(grids):
            if grid is None or grids[0] is None or (len(grid), len(grid[0])) != (len(grids[0]), len(grids[0][0])):
                return None
            before = grids[number - 1] if number else None
            if before is not None and operands_of(grid, is_result=False) != operands_of(before, is_result=True):
                return None
            along_a.append(tile_of(runner.a, [[line[0].sources[0]] for line in grid], layout))
            along_b.append(tile_of(runner.b, [[inst.sources[1] for inst in grid[0]]], layout))
        first, last = grids[0], grids[-1]
        if first is None or last is None or (len(parts) > 1 and runner.kernels.rule.c != runner.kernels.rule.d):
            return None
        a, b = join(along_a, 1), join(along_b, 0)
        c = tile_of(runner.c, operands_of(first, is_result=False), layout)
        d = tile_of(runner.d, operands_of(last, is_result=True), layout)
        # True if every code of D is stored once, without copies in other lanes
        fills = runner.d.size * runner.d.container.itemsize == 4 * prod(runner.d.words)
        if a is None or b is None or c is None or d is None or not fills:
            return None
        of_c, of_d = TilePlaces(c.index, c.dtype), TilePlaces(d.index, d.dtype)
        is_in_place = c.dtype == d.dtype and np.array_equal(c.index, d.index)
        return Tiling(runner, a, b, of_c, of_c if is_in_place else of_d)

    def issue(self, products: PendingProducts, rows: Index, accumulators: frozenset[int]) -> None:
        """Issue the product for the given warps."""
        has_c = np.ones(len(rows), np.bool_)
        product = PendingProduct(self.runner.kernels, accumulators, rows, self.c, self.d, has_c)
        operands = []
        for role, tile in (("a", self.a), ("b", self.b)):
            sharing = products.find_different(accumulators, role, tile.units_of(products.buffer, rows))
            operands.append(OperandCodes(tile.read(products.buffer, rows[sharing.different]), sharing.which))
        products.issue(product, *operands)


def tilings_of(
    parts: list[list[DecodedInstruction]], layout: RegisterLayout, arch: str, *, is_chain: bool
) -> list[tuple[Tiling | None, list[DecodedInstruction]]]:
    """Return the tiling of a whole chain, without instructions, if `is_chain` is true and there is one.

    Otherwise, return a pair for each part: its tiling, or None, and its instructions.
    """
    whole = Tiling.of(parts, layout, arch) if is_chain else None
    if whole is not None:
        return [(whole, [])]
    return [(Tiling.of([instructions], layout, arch), instructions) for instructions in parts]


def grid_of(instructions: list[DecodedInstruction]) -> list[list[DecodedInstruction]] | None:
    """Arrange instructions as [rows][columns] by A and B; return None unless each pair of A and B occurs once."""
    all_a, all_b = (list(dict.fromkeys(inst.sources[place] for inst in instructions)) for place in (0, 1))
    tiles = {(all_a.index(inst.sources[0]), all_b.index(inst.sources[1])): inst for inst in instructions}
    if not len(tiles) == len(instructions) == len(all_a) * len(all_b):
        return None
    return [[tiles[row, column] for column in range(len(all_b))] for row in range(len(all_a))]


def operands_of(grid: list[list[DecodedInstruction]], *, is_result: bool) -> list[list[PtxOperand]]:
    """Return every tile's D operand, or its C operand if `is_result` is false."""
    return [[inst.results[0] if is_result else inst.sources[2] for inst in line] for line in grid]


def join(parts: list[RegisterTile | None], axis: int) -> RegisterTile | None:
    """Join tiles along K into one operand; return None if a tile is None."""
    tiles = [tile for tile in parts if tile is not None]
    if len(tiles) != len(parts):
        return None
    index = np.concatenate([tile.index for tile in tiles], axis=axis)
    return RegisterTile(tiles[0].dtype, index, np.concatenate([tile.units for tile in tiles], axis=1))


def register_starts(port: OperandCodec, operand: PtxOperand, layout: RegisterLayout) -> Index | None:
    """Return the byte offsets of a fragment's registers; None unless they have 32 bits and hold whole elements."""
    items = items_of(operand)
    registers = [element for element in items if isinstance(element, Register) and element.bits == 32]
    is_split = port.container.itemsize > 4  # machine code stores f64 in pairs of registers
    if is_split or not port.fills_bytes or len(registers) != len(items) or len(items) != port.words[-1]:
        return None
    return np.array([layout.offsets[register.index] for register in registers], np.int64)


def element_offsets(port: OperandCodec, starts: Index, row_bytes: int = 0) -> Index:
    """Return the offsets of a fragment's codes, in elements, from the first register of the warp or warpgroup."""
    size = port.container.itemsize
    thread, rest = np.divmod(np.asarray(port.first_places, np.int64), 4 // size * len(starts))
    word, part = np.divmod(rest, 4 // size)
    warp, lane = np.divmod(thread, LANES)
    return ((warp * row_bytes + starts[word] + 4 * lane) // size + part).reshape(port.shape)


def tile_of(port: OperandCodec, grid: list[list[PtxOperand]], layout: RegisterLayout) -> RegisterTile | None:
    """Return the offsets for a grid of fragments, or None if a fragment does not fill 32-bit registers."""
    if len(port.shape) != 2:
        return None
    lines, used = [], []
    for operands in grid:
        blocks = []
        for operand in operands:
            starts = register_starts(port, operand, layout)
            if starts is None:
                return None
            blocks.append(element_offsets(port, starts))
            used.append((starts[:, None] // 8 + UNITS_OF_REGISTER).reshape(-1))
        lines.append(np.concatenate(blocks, axis=1))
    index = np.ascontiguousarray(np.concatenate(lines, axis=0))
    return RegisterTile(np.dtype(port.container), index, np.concatenate(used)[None])


WARPS = 4  # warps in a warpgroup
UNIT_BYTES = 8 * UNIT_WORDS
SCALE_D = 2  # the index of scale_d in the sources: A, B, scale_d, then signs and transpositions


def is_joinable(inst: DecodedInstruction) -> bool:
    """Return True for an unguarded dense wgmma whose flags are all immediates."""
    action = inst.action
    if (
        not isinstance(action, MatrixOp)
        or action.operation != "wgmma"
        or inst.guard is not None
        or action.form.is_sparse
    ):
        return False
    return all(isinstance(operand, Immediate) for operand in inst.sources[SCALE_D + 1 :])


@dataclass(frozen=True)
class GatherPlaces:
    """The 16-byte units of operands in shared memory, [descriptors, units], given by their first 64-bit word.

    `which` is the descriptor index of each warpgroup. Swizzles keep 16 bytes together, so a unit contains codes that
    are consecutive along one axis of the operand. If that is the first axis, the operand is gathered transposed.
    """

    units: Index
    which: Index
    is_transposed: bool

    @staticmethod
    def of(places: Index, which: Index, code_bytes: int) -> GatherPlaces | None:
        """Group codes at offsets [descriptors, rows, columns] into 16-byte units; None if codes are scattered."""
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


@lru_cache(1024)  # kernels reuse a few descriptors
def gather_places(
    form: Form, arch: str, role: str, descriptors: bytes, size: int, *, is_transposed: bool
) -> GatherPlaces | None:
    """Return the units that descriptors address; None if codes are scattered or beyond the first `size` bytes."""
    bits = getattr(resolve_form(form, arch).operands, role).format.bits
    unique, which = np.unique(np.frombuffer(descriptors, np.uint64), return_inverse=True)
    places = [element_places(form, arch, role, word, is_transposed) for word in unique.tolist()]
    inside = [units for units in places if units is not None and int(units.max()) < size * 8 // bits]
    return GatherPlaces.of(np.stack(inside), which, bits // 8) if len(inside) == len(places) else None


@dataclass(frozen=True)
class WgmmaPlan:
    """The properties of a wgmma that are the same in every execution on an architecture.

    `d` has the offsets of D's codes from the registers of a warpgroup's first warp.
    """

    prepared: ResolvedInstruction
    negate: tuple[bool, bool]
    trans: tuple[bool, bool]
    d: TilePlaces

    @staticmethod
    def of(inst: DecodedInstruction, arch: str, layout: RegisterLayout, row_bytes: int) -> WgmmaPlan | None:
        """Return an instruction's plan, or None if the instruction cannot be joined with others."""
        action = inst.action
        if not isinstance(action, MatrixOp):
            return None
        prepared = resolve_form(action.form, arch)
        numbers = [operand.code(None) for operand in inst.sources[SCALE_D + 1 :] if isinstance(operand, Immediate)]
        negate = [number != 1 for number in numbers[:2]] or [False, False]
        trans = [False, False, *map(bool, numbers[2:])][-2:]  # only B has a descriptor if A is in registers
        starts = register_starts(prepared.d, inst.results[0], layout)
        if starts is None or (any(negate) and not prepared.operands.a.format.is_float):
            return None
        return WgmmaPlan(
            prepared,
            (negate[0], negate[1]),
            (trans[0], trans[1]),
            TilePlaces(
                np.ascontiguousarray(element_offsets(prepared.d, starts, row_bytes)), np.dtype(prepared.d.container)
            ),
        )


WgmmaPlans: TypeAlias = dict[tuple[int, str], WgmmaPlan | None]
"""Plans by instruction index and architecture."""


class WgmmaProducts:
    """Issues a batch's wgmma; the program caches the plans."""

    def __init__(
        self,
        batch: WarpState,
        products: PendingProducts,
        layout: RegisterLayout,
        instructions: MmaInstructions,
        plans: WgmmaPlans,
    ) -> None:
        """Create the issuer of a batch, with its pending products and its register layout."""
        self.batch, self.products, self.layout = batch, products, layout
        self.instructions, self.plans = instructions, plans

    def run(self, at: int, inst: DecodedInstruction, group: LaneGroup) -> bool:
        """Issue a wgmma of whole warps; return False, having issued nothing, if the interpreter must run it."""
        accumulators = self.instructions.accumulators.get(at)
        plan = None if accumulators is None or not group.is_whole else self.plan(at, inst)
        operands = None if plan is None else self.operands(plan, inst, group)
        if accumulators is None or plan is None or operands is None:
            self.products.flush()
            return False
        a, b = (self.different(plan, accumulators, role, operands[role]) for role in ("a", "b"))
        rows = np.ascontiguousarray(group.warp_rows[::WARPS])
        scale_d = group.read(inst.sources[SCALE_D], PRED)[::WARPS, 0]
        product = PendingProduct(plan.prepared.kernels, accumulators, rows, plan.d, plan.d, scale_d.copy())
        self.products.issue(product, a, b)
        return True

    def plan(self, at: int, inst: DecodedInstruction) -> WgmmaPlan | None:
        """Return the cached plan of an instruction."""
        plans, arch = self.plans, self.batch.launch.arch
        if (at, arch) not in plans:
            plans[at, arch] = WgmmaPlan.of(inst, arch, self.layout, self.products.buffer.shape[1])
        return plans[at, arch]

    def operands(
        self, plan: WgmmaPlan, inst: DecodedInstruction, group: LaneGroup
    ) -> dict[str, tuple[OperandUnits, bool]] | None:
        """Locate A [64, k] and B [k, n] of every warpgroup; return None if an operand cannot be gathered.

        Operands that extend beyond shared memory, and codes that are not whole bytes, cannot be gathered.
        """
        operands, bits = {}, plan.prepared.operands.a.format.bits
        if bits % 8:
            return None
        for role, source in zip("ab", inst.sources[:SCALE_D], strict=True):
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
        """Return the shared-memory units that descriptors address, and True if the operand is gathered transposed."""
        batch, form = self.batch, plan.prepared.form
        stride = batch.memory.shared_stride
        words = group.read(operand, B64)[:, 0]
        is_transposed = plan.trans[role == "b"]
        tell_reads(batch, group, form, role, words, is_transposed=is_transposed)
        descriptors = words[::WARPS].tobytes()
        places = gather_places(form, batch.launch.arch, role, descriptors, stride, is_transposed=is_transposed)
        if places is None:
            return None
        bases = batch.warp_block[group.warp_rows[::WARPS]] * (stride // 8)
        units = OperandUnits(batch.memory.shared.view(np.uint64), bases, places.units, places.which)
        return units, places.is_transposed

    def different(
        self, plan: WgmmaPlan, accumulators: frozenset[int], role: str, operand: tuple[OperandUnits, bool]
    ) -> OperandCodes:
        """Return an operand's distinct codes [tiles, rows, columns], and the tile index of each warpgroup."""
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


def is_matrix_store(action: Action) -> bool:
    """Return True if an action is stmatrix."""
    return isinstance(action, MatrixOp) and action.operation == "stmatrix"


def _is_plain_product(action: Action) -> bool:
    """Return True for an mma with one tile per warp that reads all operands before it writes D."""
    if not isinstance(action, MatrixOp) or action.operation != "mma":
        return False
    return action.form.shape[:2] == (16, 8)


PASSED = (AsyncCopy, LaneOp, MemoryLoad, MemoryStore, Move, NoOp)
"""Actions that an mma may be moved across, because they do not make lanes diverge."""


def grouped(program: Program) -> Program:
    """Return a program in which independent mma instructions are adjacent.

    ptxas puts loads and integer arithmetic between the mma instructions that compute the tiles of one product. An mma
    is moved across an instruction only if neither depends on the other.
    """
    instructions = list(program.instructions)
    last: int | None = None  # the block's last mma so far
    between: set[int] = set()  # registers written by the instructions after `last`
    used: set[int] = set()  # registers used by the instructions after `last`
    for at, inst in enumerate(program.instructions):
        action = inst.action
        if _is_plain_product(action) and inst.guard is None:
            results = indices_of(inst.results)
            is_free = not (results & used or (indices_of(inst.sources) | results) & between)
            if last is not None and is_free:
                last += 1
                instructions.insert(last, instructions.pop(at))
            else:
                last, between, used = at, set(), set()
        elif isinstance(action, PASSED) or (isinstance(action, MatrixOp) and action.operation == "ldmatrix"):
            between |= indices_of(inst.results)
            used |= indices_of(inst.operands_read)
        else:
            last = None
        if program.ends[at] == at + 1:
            last = None
    return replace(program, instructions=instructions)


def mma_runs(program: Program) -> dict[int, tuple[int, ...]]:
    """Map the first instruction of each mma run to the end of each of its parts.

    The mma of a part are independent, so they can be computed together, like one mma of more warps. The parts may form
    one product with a longer K.
    """
    runs: dict[int, tuple[int, ...]] = {}
    start: int | None = None
    written: set[int] = set()
    for at, inst in enumerate(program.instructions):
        if not _is_plain_product(inst.action) or len(inst.sources) != 3 or inst.guard is not None:
            start = None
            continue
        used = {register.index for operand in inst.sources for register in registers_of(operand)}
        mine = {register.index for operand in inst.results for register in registers_of(operand)}
        same = (
            start is not None
            and inst.action == program.instructions[start].action
            and program.ends[at] == program.ends[start]
        )
        if start is None or not same:
            start, written = at, set()
            runs[start] = (at + 1,)
        elif used & written or mine & written:
            written = set()
            runs[start] = (*runs[start], at + 1)
        else:
            runs[start] = (*runs[start][:-1], at + 1)
        written |= mine
    return runs


def mma_chains(program: Program, runs: dict[int, tuple[int, ...]]) -> set[int]:
    """Return the runs whose parts may form one product, because only the next part reads each part's results."""
    lasts = {ends[-1] - 1: (start, ends) for start, ends in runs.items() if len(ends) > 1}
    joinable: set[int] = set()
    for at, live in live_after(program) if lasts else ():
        if at in lasts:
            start, ends = lasts[at]
            last = indices_of(operand for inst in program.instructions[ends[-2] : ends[-1]] for operand in inst.results)
            before = indices_of(operand for inst in program.instructions[start : ends[-2]] for operand in inst.results)
            multiplied = indices_of(
                source for inst in program.instructions[ends[0] : ends[-1]] for source in inst.sources[:2]
            )
            if not multiplied & before and not any(register in live for register in before - last):
                joinable.add(start)
    return joinable
