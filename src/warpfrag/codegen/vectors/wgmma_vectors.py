"""Test vectors of wgmma: operands in shared memory in every order and swizzle, and the mistakes that these catch.

The groups of all products come with A and B in shared memory, without gaps. Further groups have A in registers, and
tiles of each swizzle, K-major and MN-major, of which the instruction reads a part in the middle.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpfrag.codegen.vectors.vector_group import VectorGroup, run
from warpfrag.codegen.vectors.vector_groups import common_groups, warpgroup_positions
from warpfrag.codegen.vectors.vector_maker import VectorMaker
from warpfrag.codegen.wgmma_variants import SWIZZLE_PERIOD, can_transpose, is_sparse
from warpfrag.diagnosis.descriptor_mistakes import swizzle_text, wrong_descriptors
from warpfrag.errors import InvalidOperand
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES
from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.shared_memory import SWIZZLES
from warpfrag.tensorcore.wgmma_call import Variant, WgmmaCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from warpfrag.isa.immediates import Immediates
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import Operand

    Words = NDArray[np.uint32]

STEPS = 4  # instructions along k that a tile of a swizzle group serves, at most
NOISE = 0xA5  # what lies beyond the memory of a group, for mistakes that reach there


@frozen_dataclass
class OperandPlacement:
    """How the operands of a group lie: where A is, the order, and the swizzle; None is the widest of a tight tile."""

    staged: bool = True
    trans: bool = False
    swizzle: int | None = None


CONTIGUOUS = OperandPlacement()


class WgmmaVectorMaker(VectorMaker):
    """Makes operands of one wgmma, in registers and in shared memory."""

    few = 2
    is_large = True

    def group(
        self,
        name: str,
        catches: str,
        codes: dict[str, NDArray[Any]],
        choice: Immediates,
        placement: OperandPlacement = CONTIGUOUS,
    ) -> VectorGroup:
        """Store and pack matrices of codes and run them. A sparse A is full without metadata codes, else stored."""
        instruction = self.instruction
        codes = self._compressed(codes)
        cases = len(codes["b"])
        words = {"c": instruction.c.pack(codes["c"], raw=True)}
        if is_sparse(instruction):
            words["metadata"] = self._metadata_words(codes["metadata"], choice.selector)
        shared = self.random.integers(0, 256, (cases, 0), np.uint8)
        descriptor_a = Descriptor()
        if placement.staged:
            shared, descriptor_a = self._stored(shared, instruction.a, codes["a"], placement)
        else:
            words["a"] = instruction.a.pack(codes["a"], raw=True)
        shared, descriptor_b = self._stored(shared, instruction.b, codes["b"], placement)
        words["shared"] = np.ascontiguousarray(shared).view(np.uint32)
        variant = Variant(
            placement.staged, (placement.staged and placement.trans, placement.trans), selector=choice.selector
        )
        call = WgmmaCall(variant, (descriptor_a.word, descriptor_b.word))
        return VectorGroup(name, catches, words, run(instruction, words, choice, self.arch, call), choice, call)

    def _stored(
        self, shared: NDArray[np.uint8], operand: Operand, codes: NDArray[Any], placement: OperandPlacement
    ) -> tuple[NDArray[np.uint8], Descriptor]:
        """The memory with an operand behind what lies there, among random bytes."""
        start = -(-shared.shape[1] // SWIZZLE_PERIOD) * SWIZZLE_PERIOD
        tile = tiles(operand, placement)
        chosen = tile[len(tile) // 2]
        descriptor = replace(chosen, start=chosen.start + start)
        memory = operand.memory(descriptor, trans=placement.trans)
        rows, cols = operand.shape
        size = -(-memory.size((rows, cols), operand.format.bits) // 16) * 16
        whole = self.random.integers(0, 256, (len(codes), size), np.uint8)
        whole[:, : shared.shape[1]] = shared
        return memory.write(whole, codes, operand.format.bits), descriptor


def tiles(operand: Operand, placement: OperandPlacement) -> list[Descriptor]:
    """The descriptors along k of a tile that lies like this; InvalidOperand where its lines are too short."""
    mine = operand.shape[1 if operand.role == "a" else 0]
    if placement.swizzle is None:
        return operand.descriptors(trans=placement.trans)
    steps = 1 if placement.trans else max(1, placement.swizzle * 8 // (mine * operand.format.bits))
    return operand.descriptors(k=mine * min(steps, STEPS), swizzle=placement.swizzle, trans=placement.trans)


def wgmma_groups(instruction: Instruction, arch: str, seed: int) -> Iterator[VectorGroup]:
    """Every group of a wgmma: those of all products, and those of its own."""
    maker = WgmmaVectorMaker(instruction, arch, seed)
    yield warpgroup_positions(maker)
    yield from common_groups(maker)
    yield from placement_groups(maker)


def placement_groups(maker: WgmmaVectorMaker) -> Iterator[VectorGroup]:
    """The groups that only wgmma has: A in registers, and every order and swizzle."""
    placements = [OperandPlacement(staged=False)]
    for trans in (False, True) if can_transpose(maker.instruction) else (False,):
        placements += [OperandPlacement(trans=trans, swizzle=swizzle) for swizzle in SWIZZLES]
    for placement in placements:
        try:
            for operand in (maker.instruction.a, maker.instruction.b):
                tiles(operand, placement)
        except InvalidOperand:
            continue  # lines too short for this swizzle
        codes = {role: maker.finite(role, maker.few) for role in "abc"}
        if is_sparse(maker.instruction):
            codes["metadata"] = maker.fields(maker.few)
        if not placement.staged:
            yield maker.group(
                "registers", "A in the wrong warp, lane, register or slot", codes, DEFAULT_IMMEDIATES, placement
            )
            continue
        order = "MN-major" if placement.trans else "K-major"
        name = f"{order}, {swizzle_text(placement.swizzle or 0)}"
        catches = "leading and stride byte offsets swapped, other swizzle bits"
        catches += ", a base offset" if placement.swizzle else ""
        catches += ", a missing transposition" if can_transpose(maker.instruction) else ""
        yield maker.group(
            name, f"wrong descriptors: {catches}, a start off by 16 bytes", codes, DEFAULT_IMMEDIATES, placement
        )


class CallMistake(NamedTuple):
    """A mistake with a call: its name, and the call that is made instead."""

    name: str
    call: WgmmaCall


def call_mistakes(instruction: Instruction, call: WgmmaCall) -> Iterator[CallMistake]:
    """The mistakes that people make with descriptors and immediates."""
    for side, role in enumerate("ab"):
        if role == "a" and not call.variant.staged:
            continue
        order = "MN-major" if call.variant.trans[side] else "K-major"
        for text, descriptor in wrong_descriptors(Descriptor.decode(call.descriptors[side]), order):
            words = [*call.descriptors]
            words[side] = descriptor.word
            yield CallMistake(f"{role}: {text}", replace(call, descriptors=(words[0], words[1])))
        if can_transpose(instruction):
            trans = [*call.variant.trans]
            trans[side] = not trans[side]
            what = "missing" if call.variant.trans[side] else "set"
            variant = replace(call.variant, trans=(trans[0], trans[1]))
            yield CallMistake(f"{role}: {order}: transposition {what}", replace(call, variant=variant))
    for selector in instruction.selectors:
        if selector != call.variant.selector:
            other = replace(call, variant=replace(call.variant, selector=selector))
            yield CallMistake(f"metadata: selector {selector} instead of {call.variant.selector}", other)


class WordMistake(NamedTuple):
    """A mistake with the registers of one operand, uint32[cases, 4, 32, words]; of D with what comes out."""

    name: str
    role: str
    change: Callable[[Words], Words]


def word_mistakes(instruction: Instruction) -> Iterator[WordMistake]:
    """The simple mistakes with registers: warps, lanes, registers and halves in another order."""
    for role in ("a", "c", "d"):
        operand = instruction.operands[role]
        yield WordMistake(f"{role}: warps moved by one", role, partial(np.roll, shift=1, axis=-3))
        yield WordMistake(f"{role}: lanes moved by one", role, partial(np.roll, shift=1, axis=-2))
        for bit in range((operand.words - 1).bit_length()):
            order = np.arange(operand.words) ^ (1 << bit)
            order = np.where(order < operand.words, order, np.arange(operand.words))
            text = f"{role}: registers {1 << bit} apart swapped"
            yield WordMistake(text, role, partial(np.take, indices=order, axis=-1))
        if operand.slots > 1:
            text = "halves of a register swapped" if operand.slots == 2 else "bytes of a register reversed"
            yield WordMistake(f"{role}: {text}", role, partial(_reversed, slots=operand.slots))
    if is_sparse(instruction):
        yield WordMistake("metadata: lanes moved by one", "metadata", partial(np.roll, shift=1, axis=-1))
        yield WordMistake("metadata: warps moved by one", "metadata", partial(np.roll, shift=1, axis=-2))


def _reversed(words: Words, *, slots: int) -> Words:
    """The slots of every register in reverse order; of bits whole bytes."""
    kind = np.dtype(f"<u{4 // min(slots, 4)}")
    parts = np.ascontiguousarray(words).view(kind).reshape(*words.shape, -1)
    return np.ascontiguousarray(parts[..., ::-1]).view(np.uint32).reshape(words.shape)


def self_check_wgmma(instruction: Instruction, arch: str, groups: Sequence[VectorGroup]) -> dict[str, str | None]:
    """For each mistake the first group that shows it; None where none does."""
    caught: dict[str, str | None] = {}
    for group in groups:
        if not isinstance(group.call, WgmmaCall):
            continue
        for mistake in word_mistakes(instruction):
            if mistake.role != "d" and mistake.role not in group.words:
                continue
            if caught.setdefault(mistake.name, None) is None:
                d = group.d
                if mistake.role == "d":
                    changed_d = mistake.change(d)
                else:
                    words = {**group.words, mistake.role: mistake.change(group.words[mistake.role])}
                    changed_d = run(instruction, words, group.choice, arch, group.call)
                caught[mistake.name] = None if np.array_equal(changed_d, d) else group.name
        for name, call in call_mistakes(instruction, group.call):
            if caught.setdefault(name, None) is None:
                changed_d = run(instruction, _padded(instruction, group.words, call), group.choice, arch, call)
                caught[name] = None if np.array_equal(changed_d, group.d) else group.name
    return caught


def _padded(instruction: Instruction, words: dict[str, Words], call: WgmmaCall) -> dict[str, Words]:
    """The memory, and noise behind it as far as wrong descriptors reach."""
    reach = 0
    for side, operand in enumerate((instruction.a, instruction.b)):
        if side or call.variant.staged:
            memory = operand.memory(call.descriptors[side], trans=call.variant.trans[side])
            rows, cols = operand.shape
            reach = max(reach, memory.size((rows, cols), operand.format.bits))
    shared = words["shared"].view(np.uint8)
    more = max(0, -(-reach // 4) * 4 - shared.shape[1])
    return {**words, "shared": np.pad(shared, ((0, 0), (0, more)), constant_values=NOISE).view(np.uint32)}
