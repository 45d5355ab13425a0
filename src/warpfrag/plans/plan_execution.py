"""The execution of plans on numpy arrays: relayout operations on registers, loads and stores of shared memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.errors import InvalidOperand
from warpfrag.formats.arrays import Bytes, Words, as_doubles
from warpfrag.formats.codes import code_dtype, from_codes, to_codes
from warpfrag.formats.float_environment import exact_floats
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.legality import resolve
from warpfrag.isa.operands import OperandSpec
from warpfrag.plans.access_plan import Access, AccessPlan
from warpfrag.plans.relayout_operations import (
    WORD_BITS,
    Assembly,
    Convert,
    LanePermute,
    Permute,
    RegisterSlot,
    RelayoutOperation,
    Transpose,
    conversion,
)
from warpfrag.plans.shuffle_search import Select, Shuffle
from warpfrag.smem.shared_memory import as_bytes
from warpfrag.tensorcore import matrix_moves


@exact_floats
def convert_codes(source: str, target: str, codes: NDArray[Any]) -> NDArray[Any]:
    """Return the codes of one format converted to another."""
    row = conversion(source, target)
    if row is None:
        return codes
    into = FORMATS[target]
    values = as_doubles(from_codes(FORMATS[source], codes))
    nan = np.isnan(values)
    if row.too_large != "infinity":
        values = np.clip(np.where(nan, 0.0, values), into.min, into.max)
    converted = to_codes(into, np.where(nan, 0.0, values), rounding="rne")
    return np.where(nan, code_dtype(into).type(row.nan), converted)


def run_operation(
    op: RelayoutOperation, state: NDArray[np.uint32], source: OperandSpec, target: OperandSpec
) -> NDArray[np.uint32]:
    """Registers [..., lanes, words] after one operation from one operand to another."""
    lanes = np.arange(state.shape[-2])
    if isinstance(op, Shuffle):
        read = [lanes if flip is None else np.array(op.lanes(flip)) for flip in op.flips]
        return np.stack([state[..., which, word] for word, which in enumerate(read)], axis=-1)
    if isinstance(op, Select):
        moved = state[..., list(op.words)]
        return moved if not op.mask else np.where(_parity(lanes, op.mask)[:, None], moved, state)
    if isinstance(op, Transpose):
        return matrix_moves.move_words(state[..., list(op.words)])
    if isinstance(op, Convert):
        return _assembled(state, op.words, source, target, (op.source, op.target))
    if isinstance(op, Permute):
        return _joined(state, op.words, op.bits)
    if isinstance(op, LanePermute):
        either = (_joined(state, words, op.bits) for words in (op.others, op.words))
        return np.where(_parity(lanes, op.mask)[:, None], *either)
    bits = min(source.container, target.container)
    per_word = WORD_BITS // bits
    swapped = tuple(tuple(RegisterSlot(word, slot ^ op.flip) for slot in range(per_word)) for word in range(op.words))
    return np.where(_parity(lanes, op.mask)[:, None], _joined(state, swapped, bits), state)


def _parity(lanes: NDArray[np.intp], mask: int) -> NDArray[np.bool_]:
    """Return the lanes with an odd number of bits in a mask, as booleans."""
    return np.array([(int(lane) & mask).bit_count() & 1 for lane in lanes], bool)


def _joined(state: NDArray[np.uint32], words: Assembly, bits: int) -> NDArray[np.uint32]:
    """Words made of cells as they are."""
    mask = np.uint32((1 << bits) - 1)
    made = []
    for cells in words:
        word = np.zeros(state.shape[:-1], np.uint32)
        for slot, cell in enumerate(cells):
            if cell is not None:
                word |= (state[..., cell.word] >> np.uint32(cell.slot * bits) & mask) << np.uint32(slot * bits)
        made.append(word)
    return np.stack(made, axis=-1)


def _assembled(
    state: NDArray[np.uint32], words: Assembly, source: OperandSpec, target: OperandSpec, formats: tuple[str, str]
) -> NDArray[np.uint32]:
    """Return words made of converted elements."""
    made = []
    for cells in words:
        word = np.zeros(state.shape[:-1], np.uint32)
        for slot, cell in enumerate(cells):
            if cell is not None:
                shifted = state[..., cell.word] >> np.uint32(cell.slot * source.container + source.low)
                codes = (shifted & np.uint32(source.format.codes - 1)).astype(code_dtype(source.format))
                converted = convert_codes(*formats, codes).astype(np.uint32)
                word |= converted << np.uint32(slot * target.container + target.low)
        made.append(word)
    return np.stack(made, axis=-1)


def load(plan: AccessPlan, shared: ArrayLike) -> Words:
    """Return the registers of the plan's operand, loaded from a memory."""
    memory, operand = _reached(plan, as_bytes(shared)), plan.operand
    shape = (*operand.threads, operand.words)
    words = np.zeros((math.prod(shape[:-1]), shape[-1]), np.uint32)
    for access in plan.accesses:
        if "matrix" not in access.instruction:
            threads, addresses = _plain_addresses(access)
            held = np.ascontiguousarray(words[threads][:, list(access.words)]).view(np.uint8)
            held[:, _own_bytes(access)] = memory[addresses]
            words[np.ix_(threads, access.words)] = held.view(np.uint32)
            continue
        form = resolve(access.instruction)
        for warp in plan.warps:
            words[warp, list(access.words)] = matrix_moves.load(form, _filled(access.addresses[warp]), memory)
    loaded = words.reshape(shape)
    turned = matrix_moves.move_words(loaded) if plan.transposes else loaded
    return turned << np.uint32(plan.shift)


def store(plan: AccessPlan, words: ArrayLike, shared: ArrayLike) -> Bytes:
    """Return the memory after the registers are stored in it; the argument is not changed."""
    operand = plan.operand
    registers, memory = operand.check_words(words), _reached(plan, as_bytes(shared)).copy()
    held = (*operand.threads, operand.words)
    if registers.shape != held:
        extents = ", ".join(map(str, held))
        raise InvalidOperand(f"expected the registers of one operand, uint32[{extents}], got shape {registers.shape}")
    turned = (matrix_moves.move_words(registers) if plan.transposes else registers).reshape(-1, held[-1])
    for access in plan.accesses:
        if "matrix" in access.instruction:
            form = resolve(access.instruction)
            for warp in plan.warps:
                moved = turned[warp, list(access.words)]
                memory = matrix_moves.store(form, _filled(access.addresses[warp]), moved, memory)
            continue
        threads, addresses = _plain_addresses(access)
        own = np.ascontiguousarray(turned[threads][:, list(access.words)]).view(np.uint8)
        memory[addresses] = own[:, _own_bytes(access)]
    return memory


def _reached(plan: AccessPlan, memory: Bytes) -> Bytes:
    """Return the memory, rejected if an access would go past its end."""
    last = max(
        address + access.width for access in plan.accesses for address in access.addresses if address is not None
    )
    if last > len(memory):
        raise InvalidOperand(f"{plan.name} reaches byte {last - 1} of a memory of {len(memory)} bytes")
    return memory


def _plain_addresses(access: Access) -> tuple[list[int], NDArray[np.intp]]:
    """Return the threads that pass an address, and the addresses of their bytes."""
    by_thread = {thread: address for thread, address in enumerate(access.addresses) if address is not None}
    return list(by_thread), np.array([*by_thread.values()], np.intp)[:, None] + np.arange(access.width)


def _own_bytes(access: Access) -> slice:
    """Return the bytes of its words that a thread moves."""
    first = 0 if access.slot is None else access.slot * access.width
    return slice(first, first + access.width)


def _filled(addresses: tuple[int | None, ...]) -> list[int]:
    """Return the addresses of all lanes, 0 for a lane without one."""
    return [address or 0 for address in addresses]
