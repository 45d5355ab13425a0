"""Test vectors of tcgen05: images of shared and tensor memory, descriptors of every kind, and what shows mistakes.

A case is the images of `execution.tensor_images`; a group says with which descriptors they are read. Behind the common
groups come those of its own: every byte of scale factors, every order and swizzle of A and B, signs, saturation.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from warpfrag.codegen.vectors.vector_group import VectorGroup, run
from warpfrag.codegen.vectors.vector_groups import (
    MISPLACED,
    arithmetic_groups,
    free_columns,
    full_shape,
    largest_count,
    write_digits,
)
from warpfrag.codegen.vectors.vector_maker import VectorMaker
from warpfrag.diagnosis.descriptor_mistakes import swizzle_text, wrong_descriptors
from warpfrag.errors import InvalidOperand
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, SIDES, Immediates
from warpfrag.isa.tmem_layouts import TENSOR_LANES
from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.instruction_descriptor import InstructionDescriptor
from warpfrag.smem.shared_memory import SWIZZLES
from warpfrag.tensorcore.tensor_call import TensorCall
from warpfrag.tensorcore.tensor_images import image_columns, shared_parts, tensor_operands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.tcgen05_types import TensorMma
    from warpfrag.tensorcore.tensor_operand import InTensorShared

    Words = NDArray[np.uint32]

STEPS = 4  # instructions along k that a tile of a swizzle group serves, at most
BASE = 4  # of the digits that number rows and columns: every format has the numbers 0 to 4
HALF_CODES = 30000  # codes of f16 that are normal and positive, about
UNIT = 16  # bytes that an image is a multiple of
NOISE = 0xA5  # what lies beyond the image of a tile, for mistakes that reach there


@frozen_dataclass
class TilePlacement:
    """How A and B lie in shared memory, and fields of the instruction descriptor; swizzle None is a tight tile's."""

    trans: bool = False
    swizzle: int | None = None
    negate: bool = False
    saturate: bool = False


TIGHT = TilePlacement()


class TensorVectorMaker(VectorMaker):
    """Makes images of one product of tcgen05."""

    few = 2
    is_large = True

    @property
    def product(self) -> TensorMma:
        """The instruction."""
        return cast("TensorMma", self.instruction)

    def group(
        self,
        name: str,
        catches: str,
        codes: dict[str, NDArray[Any]],
        choice: Immediates,
        placement: TilePlacement = TIGHT,
    ) -> VectorGroup:
        """Store matrices of codes and run them. A sparse A is full without metadata codes, else stored."""
        t = self.product
        codes = self._compressed(codes)
        words: dict[str, Words] = {}
        descriptors = []
        for axis, (role, part) in enumerate(zip("ab", shared_parts(t.form), strict=True)):
            descriptor = _tile(part, placement)
            own = np.stack(np.split(codes[role], 2, axis - 2), axis=1) if t.blocks == 2 else codes[role]
            memory = part.store(own, descriptor, trans=placement.trans, raw=True).memory
            words[role] = _whole(memory)
            descriptors.append(descriptor.word)
        words["c"] = self._tensor_memory(codes, choice)
        call = TensorCall((descriptors[0], descriptors[1]), described(t, placement, choice).word)
        return VectorGroup(name, catches, words, run(t, words, choice, self.arch, call), choice, call)

    def _tensor_memory(self, codes: dict[str, NDArray[Any]], choice: Immediates) -> Words:
        """The image of D, metadata and scale factors; fields for other selectors and ids hold other legal codes."""
        t, places, cases = self.product, image_columns(self.product.form), len(codes["b"])
        old = t.d.pack(codes["c"], raw=True)
        image = np.zeros((*old.shape[:-1], places["end"]), np.uint32)
        image[..., : t.d.columns] = old
        if "metadata" in t.operands:
            own = self._metadata_words(codes["metadata"], choice.selector)
            image[..., places["metadata"] : places["metadata"] + t.metadata.columns] = own
        operands = tensor_operands(t.form)
        for role, byte_id in zip(SIDES, choice.byte_id, strict=True):
            if role in operands:
                scale = operands[role]
                scales = codes[role] if role in codes else self.scales(role, cases, unit=True)
                own = np.zeros((*old.shape[:-1], scale.columns), np.uint32)
                for byte in scale.byte_ids:
                    own |= scale.pack(scales if byte == byte_id else self.scales(role, cases), byte_id=byte, raw=True)
                image[..., places[role] : places[role] + scale.columns] = own
        return image


def described(t: TensorMma, placement: TilePlacement, choice: Immediates) -> InstructionDescriptor:
    """The instruction descriptor of a group."""
    fields: dict[str, Any] = {"transpose_a": placement.trans, "transpose_b": placement.trans}
    fields |= {"negate_a": placement.negate, "saturate": placement.saturate, "selector": choice.selector}
    fields |= {"scale_a_id": choice.byte_id[0], "scale_b_id": choice.byte_id[1]}
    return t.descriptor(**{name: entry for name, entry in fields.items() if entry})


def _tile(part: InTensorShared, placement: TilePlacement) -> Descriptor:
    """The descriptor of a tile that lies like this; InvalidOperand where its lines are too short, or it is odd."""
    if placement.swizzle is None:
        return part.descriptors(trans=placement.trans)[0]
    mine = part.shape[1 if part.role == "a" else 0]
    steps = 1 if placement.trans else max(1, placement.swizzle * 8 // (mine * part.stored_bits))
    tile = part.descriptors(k=mine * min(steps, STEPS), swizzle=placement.swizzle, trans=placement.trans)
    chosen = tile[len(tile) // 2]
    if chosen.problems(part, trans=placement.trans):
        raise InvalidOperand(str(chosen.problems(part, trans=placement.trans)[0]))
    return chosen


def _whole(memory: NDArray[np.uint8]) -> Words:
    """Bytes as words, so many that an image is a whole number of units."""
    more = -memory.shape[-1] % UNIT
    padded = np.pad(memory, [(0, 0)] * (memory.ndim - 1) + [(0, more)])
    return np.ascontiguousarray(padded).view(np.uint32)


def tensor_groups(instruction: Instruction, arch: str, seed: int) -> Iterator[VectorGroup]:
    """Every group of a product of tcgen05: those of all products, and those of its own."""
    maker = TensorVectorMaker(instruction, arch, seed)
    yield tensor_positions(maker)
    yield from _random(maker)
    yield from arithmetic_groups(maker)
    yield from _placement_groups(maker)


def tensor_positions(maker: TensorVectorMaker) -> VectorGroup:
    """Every row has a value of its own, then every column, then by C alone every output."""
    t = maker.product
    matrices = {role: np.zeros((3, *full_shape(maker, role))) for role in "ab"}
    a, b = matrices["a"], matrices["b"]
    sides = ((a[:1], b[:1], "a", t.shape.m), (np.swapaxes(b[1:2], -1, -2), np.swapaxes(a[1:2], -1, -2), "b", t.shape.n))
    for digits, ones, role, count in sides:
        free, top, numbers = iter(free_columns(maker)), largest_count(t.operands[role].format), np.arange(count)
        write_digits(digits, ones, numbers % BASE, top, 1, free)
        write_digits(digits, ones, numbers // BASE, top, BASE, free)
    codes = {role: maker.exact(role, matrix) for role, matrix in matrices.items()}
    codes["c"] = maker.zeros("c", 3)
    numbers = np.arange(codes["c"][2].size).reshape(codes["c"][2].shape)
    if t.c.format.name == "f16":  # as codes: all are normal
        codes["c"][2] = (1 << t.c.format.fraction) + numbers % HALF_CODES
    else:
        codes["c"][2] = maker.exact("c", 1 + numbers)
    catches = (
        "outputs in the wrong lane or column of tensor memory: every output of C alone differs from its neighbours"
    )
    return maker.group("positions", catches, codes, DEFAULT_IMMEDIATES)


def _random(maker: TensorVectorMaker) -> Iterator[VectorGroup]:
    """Any finite operands, for every selector, and so many scale ids that each comes once."""
    operands = maker.product.operands
    catches = "; ".join(text for role, text in MISPLACED.items() if role in operands)
    for choice in _choices(maker.product):
        codes = maker.stored({role: maker.finite(role, maker.few) for role in "abc"})
        codes |= {role: maker.scales(role, maker.few) for role in SIDES if role in operands}
        suffix = f" selector {choice.selector}" if choice.selector else ""
        suffix += " scale ids {} {}".format(*choice.byte_id) if "scale_a" in operands else ""
        yield maker.group(f"random{suffix}", catches, codes, choice)


def _choices(t: TensorMma) -> list[Immediates]:
    """Every selector of a sparse product; so many pairs of scale ids that each id comes once."""
    if "scale_a" in t.operands:
        ids = [t.scale_a.byte_ids, t.scale_b.byte_ids]
        count = max(map(len, ids))
        first, second = (list(islice(cycle(of), count)) for of in ids)
        return [Immediates(0, pair) for pair in zip(first, second[1:] + second[:1], strict=True)]
    return [Immediates(selector) for selector in (t.metadata.selectors if "metadata" in t.operands else (0,))]


def _placement_groups(maker: TensorVectorMaker) -> Iterator[VectorGroup]:
    """Every order and swizzle of A and B that the types take, a sign, and saturation."""
    t = maker.product
    orders = (False,) if t.form.kind == "tf32" else (False, True)  # swizzles of a transposed tf32 are an open point
    placements = [TilePlacement(trans, swizzle) for trans in orders for swizzle in SWIZZLES]
    if t.a.format.is_float:
        placements.append(TilePlacement(negate=True))
    elif t.form.kind == "i8":
        placements.append(TilePlacement(saturate=True))
    for placement in placements:
        try:
            for part in shared_parts(t.form):
                _tile(part, placement)
            if described(t, placement, DEFAULT_IMMEDIATES).problems(t):
                continue  # these types are not transposed
        except InvalidOperand:
            continue  # lines too short for this swizzle, or these types are not transposed
        codes = maker.stored({role: maker.finite(role, maker.few) for role in "abc"})
        if placement.saturate:
            shape = codes["c"].shape
            codes["c"] = maker.exact("c", maker.random.choice([-(2**31), 2**31 - 1], shape).astype(np.int32))
        yield maker.group(*_explained(t, placement), codes, DEFAULT_IMMEDIATES, placement)


def _explained(t: TensorMma, placement: TilePlacement) -> tuple[str, str]:
    """The name of a placement's group, and what it catches."""
    if placement.negate:
        return "negated", "a wrong sign of A: bit 13 of the instruction descriptor"
    if placement.saturate:
        return "saturated", "sums beyond s32 that do not clamp: bit 3 of the instruction descriptor"
    order = "MN-major" if placement.trans else "K-major"
    catches = "leading and stride byte offsets swapped, other swizzle bits, a start off by 16 bytes"
    catches += ", a missing transposition" if t.a.format.bits >= 8 else ""
    return f"{order}, {swizzle_text(placement.swizzle or 0)}", f"wrong descriptors: {catches}"


class TensorCallMistake(NamedTuple):
    """A mistake with descriptors: its name, and the call that is made instead."""

    name: str
    call: TensorCall


def tensor_call_mistakes(t: TensorMma, call: TensorCall) -> Iterator[TensorCallMistake]:
    """The mistakes that people make with the three descriptors."""
    right = InstructionDescriptor.decode(call.idesc, kind=t.form.kind)
    for side, (role, is_turned) in enumerate(zip("ab", (right.transpose_a, right.transpose_b), strict=True)):
        order = "MN-major" if is_turned else "K-major"
        for text, descriptor in wrong_descriptors(Descriptor.decode(call.descriptors[side], kind="tcgen05"), order):
            words = [*call.descriptors]
            words[side] = descriptor.word
            if words[side] == call.descriptors[side]:
                continue  # of a small tile both offsets may be the same
            yield TensorCallMistake(f"{role}: {text}", replace(call, descriptors=(words[0], words[1])))
    for name, other in _other_words(t, right):
        yield TensorCallMistake(f"instruction descriptor: {name}", replace(call, idesc=other.word))


def _other_words(t: TensorMma, right: InstructionDescriptor) -> Iterator[tuple[str, InstructionDescriptor]]:
    """The instruction descriptor with another flag or number in it."""
    flags = ["negate_a", "negate_b"] if t.a.format.is_float else ["saturate"] if t.form.kind == "i8" else []
    if right.transpose_a or right.transpose_b:
        flags += ["transpose_a", "transpose_b"]
    for flag in flags:
        set_now = getattr(right, flag)
        change: dict[str, Any] = {flag: not set_now}
        yield f"{flag} {'missing' if set_now else 'set'}", replace(right, **change)
    operands = tensor_operands(t.form)
    for role, name in zip(SIDES, ("scale_a_id", "scale_b_id"), strict=True):
        for other in operands[role].byte_ids if role in operands else ():
            if other != getattr(right, name):
                change = {name: other}
                yield f"{name} {other} instead of {getattr(right, name)}", replace(right, **change)
    for selector in t.metadata.selectors if "metadata" in t.operands else ():
        if selector != right.selector:
            yield f"selector {selector} instead of {right.selector}", replace(right, selector=selector)


class ImageMistake(NamedTuple):
    """A mistake with the image of one memory; of D with what comes out."""

    name: str
    role: str
    change: Callable[[Words], Words]


def image_mistakes(t: TensorMma) -> Iterator[ImageMistake]:
    """Lanes and columns of tensor memory in another order, and elements of a word in shared memory."""
    places = image_columns(t.form)
    operands = tensor_operands(t.form)
    spans = {role: (places[role], operand.columns) for role, operand in operands.items() if role in places}
    for role, (first, count) in spans.items():
        image = "c"
        yield ImageMistake(f"{role}: lanes moved by one", image, partial(_moved, first=first, count=count, lanes=1))
        if role not in SIDES:  # scale factors are the same in all four groups of lanes
            text = f"{role}: lanes moved by a warp"
            yield ImageMistake(text, image, partial(_moved, first=first, count=count, lanes=32))
        for bit in range((count - 1).bit_length()):
            text = f"{role}: columns {1 << bit} apart swapped"
            yield ImageMistake(text, image, partial(_exchanged, first=first, count=count, bit=1 << bit))
    yield ImageMistake("result: lanes moved by one", "d", partial(np.roll, shift=1, axis=-2))
    yield ImageMistake("result: columns moved by one", "d", partial(np.roll, shift=1, axis=-1))


def _moved(image: Words, *, first: int, count: int, lanes: int) -> Words:
    changed = image.copy()
    changed[..., first : first + count] = np.roll(image[..., first : first + count], lanes, axis=-2)
    return changed


def _exchanged(image: Words, *, first: int, count: int, bit: int) -> Words:
    order = np.arange(count) ^ bit
    order = np.where(order < count, order, np.arange(count))
    changed = image.copy()
    changed[..., first : first + count] = image[..., first + order]
    return changed


def self_check_tensor(instruction: Instruction, arch: str, groups: Sequence[VectorGroup]) -> dict[str, str | None]:
    """For each mistake the first group that shows it; None where none does."""
    t = cast("TensorMma", instruction)
    caught: dict[str, str | None] = {}
    for group in groups:
        if not isinstance(group.call, TensorCall):
            continue
        for mistake in image_mistakes(t):
            if caught.setdefault(mistake.name, None) is not None:
                continue
            if mistake.role == "d":
                changed = mistake.change(group.d)
            else:
                words = {**group.words, "c": mistake.change(group.words["c"])}
                changed = run(t, words, group.choice, arch, group.call)
            caught[mistake.name] = None if np.array_equal(changed, group.d) else group.name
        for name, call in tensor_call_mistakes(t, group.call):
            if caught.setdefault(name, None) is None:
                changed = run(t, _reaching(t, group.words, call), group.choice, arch, call)
                caught[name] = None if np.array_equal(changed, group.d) else group.name
    return caught


def _reaching(t: TensorMma, words: dict[str, Words], call: TensorCall) -> dict[str, Words]:
    """The images, and noise behind those of A and B as far as a wrong descriptor reaches."""
    idesc = InstructionDescriptor.decode(call.idesc, kind=t.form.kind)
    longer = {}
    for side, (role, part) in enumerate(zip("ab", shared_parts(t.form), strict=True)):
        is_turned = (idesc.transpose_a, idesc.transpose_b)[side]
        reach = int(part.addresses(Descriptor.decode(call.descriptors[side], kind="tcgen05"), is_turned).max()) + UNIT
        image = np.ascontiguousarray(words[role]).view(np.uint8)
        more = max(0, -(-reach // UNIT) * UNIT - image.shape[-1])
        noisy = np.pad(image, [(0, 0)] * (image.ndim - 1) + [(0, more)], constant_values=NOISE)
        longer[role] = np.ascontiguousarray(noisy).view(np.uint32)
    return {**words, **longer}


def image_shapes(t: TensorMma) -> dict[str, tuple[tuple[int, ...], int | None]]:
    """The axes of each image of a case, and the words of its last; None where groups differ in it."""
    operands, places = tensor_operands(t.form), image_columns(t.form)
    pair = (2,) if t.blocks == 2 else ()
    lanes = (*pair, TENSOR_LANES)
    return {"a": (pair, None), "b": (pair, None), "c": (lanes, places["end"]), "d": (lanes, operands["d"].columns)}
