"""The wgmma of many warpgroups as one product, and wgmma after wgmma on the same accumulators as one with a longer K.

A and B are gathered when an instruction is issued, by the places that its descriptors lead to; these are found once for
each descriptor. The product waits until the last wgmma of a *chain*: instructions of one block of steps with the same
D, which nothing between them reads or writes. Then C is read from the registers and D written there once for all of
them. An output depends on its row, its column and its C alone, so none of this changes a code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.arithmetic.product import multiply
from warpfrag.arithmetic.protocol import ProductOperands
from warpfrag.core.coordinates import LANES
from warpfrag.execution.prepared import prepare
from warpfrag.execution.wgmma import element_places
from warpfrag.ptx.interpreter.matrix_instructions import words_of
from warpfrag.ptx.program.actions import MatrixOp, MemoryBarrier
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
SCALE_D = 2  # of the sources: A, B, scale_d, then signs and transpositions
B64, PRED = TYPES["b64"], TYPES["pred"]


def chains_of(program: Program) -> dict[int, int]:
    """For every wgmma that can be joined to others, the last of its chain."""
    lasts: dict[int, int] = {}
    members: list[int] = []
    own: set[int] = set()

    def close() -> None:
        lasts.update(dict.fromkeys(members, members[-1] if members else 0))
        members.clear()

    for at, step in enumerate(program.steps):
        is_product = is_joinable(step)
        first = program.steps[members[0]] if members else None
        if first is not None and program.ends[at] != program.ends[members[0]]:
            close()
        elif first is not None and is_product:
            if step.action != first.action or step.results != first.results:
                close()
        elif first is not None and (touches(step, own) or may_split(step)):
            close()
        if is_product:
            members.append(at)
            own = {item.index for operand in step.results for item in registers_of(operand)}
    close()
    return lasts


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


def touches(step: DecodedInstruction, registers: set[int]) -> bool:
    """Whether a step reads or writes one of some registers."""
    operands = [*step.sources, *step.results, *([step.guard] if step.guard is not None else [])]
    operands += [item.base for item in operands if isinstance(item, MemoryOperand) and item.base is not None]
    return any(item.index in registers for operand in operands for item in registers_of(operand))


def may_split(step: DecodedInstruction) -> bool:
    """Whether lanes that come to a step together may go on apart."""
    action = step.action
    return action.is_collective or action.ends_block or (isinstance(action, MemoryBarrier) and action.waits)


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
    gathers: dict[tuple[str, bytes], Index | None] = field(default_factory=dict)

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

    def gather_places(self, role: str, descriptors: NDArray[np.uint64], arch: str, size: int) -> Index | None:
        """The places of codes [descriptors, codes] in shared memory; None where one is not below `size` codes."""
        key = role, descriptors.tobytes()
        if key not in self.gathers:
            is_transposed = self.trans[role == "b"]
            form = self.prepared.form
            places = [element_places(form, arch, role, word, is_transposed) for word in descriptors.tolist()]
            inside = [item.reshape(-1) for item in places if item is not None and int(item.max()) < size]
            self.gathers[key] = np.stack(inside) if len(inside) == len(places) else None
        return self.gathers[key]


@dataclass
class PendingProducts:
    """The operands of a chain so far: for each warpgroup, A's columns and B's rows from every instruction."""

    plan: WgmmaPlan
    last: int
    rows: Index  # the first warp of every warpgroup
    has_c: NDArray[np.bool_]
    a: list[NDArray[Any]] = field(default_factory=list)
    b: list[NDArray[Any]] = field(default_factory=list)


class WgmmaChains:
    """The chains of a program, and the plans of their steps by architecture."""

    def __init__(self, program: Program) -> None:
        """Find the chains; plans are made when a step first runs."""
        self.lasts = chains_of(program)
        self.plans: dict[tuple[int, str], WgmmaPlan | None] = {}


class WgmmaProducts:
    """The chains of a batch: what is issued, and computed at the end of its chain."""

    def __init__(
        self, batch: WarpState, buffer: NDArray[np.uint8], layout: RegisterLayout, chains: WgmmaChains
    ) -> None:
        """Nothing is pending; the registers are in a buffer, as a layout says."""
        self.batch, self.buffer, self.layout, self.chains = batch, buffer, layout, chains
        self.pending: PendingProducts | None = None

    def run(self, at: int, step: DecodedInstruction, group: LaneGroup) -> bool:
        """Issue a wgmma of whole warps; False where it has to run by itself, with nothing pending."""
        last = self.chains.lasts.get(at)
        plan = None if last is None or not group.is_whole else self.plan(at, step)
        operands = None if plan is None else self.operands(plan, step, group)
        if last is None or plan is None or operands is None:
            self.flush()
            return False
        rows = np.ascontiguousarray(group.warp_rows[::WARPS])
        scale_d = group.read(step.sources[SCALE_D], PRED)[::WARPS, 0]
        pending = self.pending
        if pending is None or pending.last != last or not scale_d.all() or not np.array_equal(pending.rows, rows):
            self.flush()
            pending = self.pending = PendingProducts(plan, last, rows, scale_d.copy())
        pending.a.append(operands[0])
        pending.b.append(operands[1])
        if at == last:
            self.flush()
        return True

    def plan(self, at: int, step: DecodedInstruction) -> WgmmaPlan | None:
        """The plan of a step, made once."""
        plans, arch = self.chains.plans, self.batch.launch.arch
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

    def gather(self, plan: WgmmaPlan, role: str, operand: PtxOperand, group: LaneGroup) -> NDArray[np.uint32] | None:
        """The codes that descriptors lead to, each in the shared memory of its block."""
        from warpfrag.ptx.compiler.gather import take_planned

        batch = self.batch
        place = getattr(plan.prepared.operands, role)
        size = place.format.bits // 8 or 1
        codes_of_block = batch.memory.shared_stride // size
        descriptors, which = np.unique(group.read(operand, B64)[::WARPS, 0], return_inverse=True)
        places = plan.gather_places(role, descriptors, batch.launch.arch, codes_of_block)
        if places is None:
            return None
        bases = batch.warp_block[group.warp_rows[::WARPS]] * codes_of_block
        out = np.empty((len(bases), places.shape[1]), np.uint32)
        take_planned.run(batch.memory.shared.view(f"u{size}"), bases, places, which, out)
        return out.reshape(-1, *place.shape)

    def flush(self) -> None:
        """Multiply what is pending, and write D to the registers."""
        from warpfrag.ptx.compiler.gather import put_planned, take_planned

        pending, self.pending = self.pending, None
        if pending is None:
            return
        plan, prepared, buffer = pending.plan, pending.plan.prepared, self.buffer
        cells = buffer.reshape(-1).view(prepared.d.container)
        bases = pending.rows * (buffer.shape[1] // cells.itemsize)
        c = np.empty((len(bases), plan.places.size), np.uint32)
        take_planned.run(cells, bases, plan.places[None], np.zeros_like(bases), c)
        c[~pending.has_c] = 0
        codes: NDArray[Any] = c.reshape(-1, *prepared.d.shape)
        pairs = [(np.concatenate(pending.a, axis=2), np.concatenate(pending.b, axis=1))]
        if prepared.kernels.rule.c != prepared.kernels.rule.d:
            pairs = list(zip(pending.a, pending.b, strict=True))
        for a, b in pairs:
            codes = multiply(prepared.kernels, ProductOperands(a, b, codes), 1)
        put_planned.run(cells, bases, plan.places, codes.reshape(len(bases), -1).astype(np.uint32, copy=False))


def tile_places(port: OperandCodec, operand: PtxOperand, layout: RegisterLayout, row_bytes: int) -> Index | None:
    """Where the codes of D lie behind the first warp's registers, [64 * n]; None unless it fills 32-bit registers."""
    items = operand.items if isinstance(operand, VectorOperand) else (operand,)
    registers = [item for item in items if isinstance(item, Register) and item.bits == 32]
    if not port.fills_bytes or len(registers) != len(items) or len(items) != port.words[-1]:
        return None
    size = port.container.itemsize
    starts = np.array([layout.offsets[register.index] for register in registers], np.int64)
    thread, rest = np.divmod(np.asarray(port.first_places, np.int64), 4 // size * len(items))
    word, part = np.divmod(rest, 4 // size)
    warp, lane = np.divmod(thread, LANES)
    return np.ascontiguousarray(((warp * row_bytes + starts[word] + 4 * lane) // size + part).reshape(-1))
