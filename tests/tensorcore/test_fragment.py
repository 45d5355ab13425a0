"""Packing and unpacking for any layout, against places one by one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpfrag as wf
from warpfrag.isa.operands import OperandSpec
from warpfrag.layout.axes import Axis
from warpfrag.layout.linear_layout import Layout
from warpfrag.tensorcore import fragment

FORMATS = {0: "f32", 1: "f16", 2: "e4m3", 3: "s4", 5: "b1"}  # by the bits of a slot


@st.composite
def rows(draw: st.DrawFn) -> OperandSpec:
    """Return an operand whose bits are mixed at random, with copies, and sometimes an odd factor in its size."""
    slot_bits = draw(st.sampled_from(list(FORMATS)))
    row_bits, col_bits = draw(st.integers(0, 3)), draw(st.integers(slot_bits, slot_bits + 2))
    outs = {"row": (2,) * row_bits, "col": (2,) * col_bits + draw(st.sampled_from([(), (), (3,)]))}
    radices = [radix for axis in outs.values() for radix in axis]
    bits = [digit for digit, radix in enumerate(radices) if radix == 2]
    columns = [1 << digit for digit in range(len(radices))]
    if len(bits) > 1 and draw(st.booleans()):
        pair = st.permutations(bits).map(lambda order: order[:2])
        for into, other in draw(st.lists(pair, max_size=4)):
            columns[into] ^= columns[other]
    pairs = draw(st.permutations(list(zip(radices, columns, strict=True)) + [(2, 0)] * draw(st.integers(0, 2))))
    plain = [pair for pair in pairs if pair[0] == 2][:slot_bits]
    rest = [pair for pair in pairs if not any(pair is one for one in plain)]
    cut = draw(st.integers(0, len(rest)))
    parts = {"lane": [one for one in rest[:cut] if one[0] == 2]}
    parts["reg"] = [one for one in rest if not any(one is other for other in parts["lane"])]
    parts["slot"] = plain
    layout = Layout(
        tuple(Axis(name, tuple(radix for radix, _ in part)) for name, part in parts.items()),
        tuple(Axis(name, axis) for name, axis in outs.items()),
        tuple(column for part in parts.values() for _, column in part),
    )
    number_format = wf.FORMATS[FORMATS[slot_bits]]
    return OperandSpec("a", number_format, layout, 32 >> slot_bits, 0, "made up")


def placed(row: OperandSpec, codes: Any) -> np.ndarray:
    """The registers of a matrix, place by place."""
    layout = row.layout
    words = np.zeros((layout.lanes, layout.regs), np.uint64)
    for place in layout.places():
        at = layout.at(**place._asdict())
        words[place.lane, place.reg] |= np.uint64(int(codes[at.row, at.col]) << (place.slot * row.container))
    return words.astype(np.uint32)


@given(rows(), st.integers(0, 2**32))
def test_every_element_is_written_to_all_its_places_and_read_from_the_first(row: OperandSpec, seed: int):
    random = np.random.default_rng(seed)
    codes = random.integers(0, row.format.codes, (2, *row.layout.shape), np.uint64).astype(
        f"u{max(8, row.container) // 8}"
    )
    words = fragment.pack(row, codes)
    assert np.array_equal(words, np.stack([placed(row, one) for one in codes]))
    assert np.array_equal(fragment.unpack(row, words, strict=True), codes)
    noise = random.integers(0, 2**32, words.shape, np.uint32)
    found = fragment.unpack(row, noise)
    for row_index, col in np.ndindex(*row.layout.shape):
        first = row.layout.where(row=row_index, col=col)[0]
        shifted = noise[:, first.lane, first.reg] >> np.uint32(first.slot * row.container)
        assert np.array_equal(found[:, row_index, col], shifted & ((1 << row.format.bits) - 1))


@given(rows())
def test_copies_that_differ_are_refused_when_strict(row: OperandSpec):
    words = fragment.pack(row, np.zeros(row.layout.shape, np.uint32))
    last = row.layout.where(row=0, col=0)[-1]
    words[last.lane, last.reg] ^= np.uint32(1 << (last.slot * row.container))
    if row.layout.copies == 1:
        assert fragment.unpack(row, words, strict=True).any()
        return
    with pytest.raises(wf.errors.InvalidOperand, match=f"copies of one element differ: in tile 0, lane {last.lane}"):
        fragment.unpack(row, words, strict=True)
    assert not fragment.unpack(row, words).any()


def test_the_elements_of_a_layout_that_does_not_start_at_zero() -> None:
    """The upper halves of what one lane holds: every place has what the first one starts from."""
    layout = wf.get("mma.m16n8k16.f32.f16.f16.f32").a.layout.fix(lane=5, slot=1)
    one_by_one = [np.ravel_multi_index(layout.at(**place._asdict()), layout.shape) for place in layout.places()]
    assert one_by_one[0] != 0
    assert fragment.elements(layout).tolist() == one_by_one
