"""Mistakes: each is one named change of registers, different from all others."""

import numpy as np
import pytest

from warpfrag import get
from warpfrag.diagnosis.mistakes import mistakes

MMA = "mma.m16n8k16.f32.f16.f16.f32"
SPARSE = "mma.sp.m16n8k32.s32.s8.s8.s32"
SCALED = "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"


def registers(operand, *batch):
    shape = (*batch, 32) if operand.role not in "abcd" else (*batch, 32, operand.words)
    return np.random.default_rng(1).integers(0, 1 << 32, shape, np.uint32)


@pytest.mark.parametrize("name", [MMA, SPARSE, SCALED, "mma.m16n8k8.f64.f64.f64.f64"])
def test_every_mistake_changes_registers_in_a_way_of_its_own(name):
    found = {}
    instruction = get(name)
    for mistake in mistakes(instruction):
        words = registers(instruction.operands[mistake.operand], 2)
        changed = mistake.change(words)
        kept = registers(instruction.operands[mistake.operand], 2)

        assert np.array_equal(words, kept), "the registers given are not changed in place"
        assert changed.shape == words.shape
        assert changed.dtype == np.uint32
        assert not np.array_equal(changed, words)
        assert np.array_equal(mistake.change(words[1]), changed[1]), "any leading axes are a batch"
        found[mistake.operand, changed.tobytes()] = mistake.name

    assert len(found) == len(list(mistakes(instruction))) == len(set(found.values()))


def test_every_kind_is_made():
    made = {(mistake.kind, mistake.operand) for name in (MMA, SPARSE, SCALED) for mistake in mistakes(get(name))}

    assert made >= {(kind, role) for kind in ("registers", "halves", "lanes") for role in "ab"}
    assert made >= {("registers", "c"), ("lanes", "d"), ("transposed", "a"), ("transposed", "b")}
    assert made >= {("metadata", "metadata"), ("halves", "scale_a"), ("lanes", "scale_b")}


@pytest.mark.parametrize(
    ("name", "place", "expected"),
    [
        ("a: registers 1 and 2 swapped", (3, 1), (3, 2)),
        ("a: lanes moved by one", (3, 1), (2, 1)),
        ("c: lanes moved by one", (0, 1), (31, 1)),
    ],
)
def test_what_moves_where(name, place, expected):
    instruction = get(MMA)
    (mistake,) = [mistake for mistake in mistakes(instruction) if mistake.name == name]
    words = registers(instruction.operands[mistake.operand])

    assert mistake.change(words)[place] == words[expected]


def test_halves_lanes_and_orders():
    instruction = get(MMA)
    by_name = {mistake.name: mistake for mistake in mistakes(instruction)}
    words = registers(instruction.b)
    matrix = np.arange(128, dtype=np.float16).reshape(16, 8)
    other = instruction.b.unpack(
        by_name["b: read with row-major and column-major order swapped"].change(instruction.b.pack(matrix))
    )

    assert np.array_equal(by_name["b: halves of a register swapped"].change(words), words << 16 | words >> 16)
    assert not by_name["b: lane 7 dropped"].change(words)[7].any()
    assert np.array_equal(other, matrix.T.reshape(16, 8))


def test_registers_that_hold_copies_are_not_swapped():
    fragment = get("wmma.mma.row.col.m16n16k16.f32.f16", arch="sm_90")
    swapped = [mistake.text for mistake in mistakes(fragment) if (mistake.kind, mistake.operand) == ("registers", "a")]

    assert fragment.a.layout.copies == 2
    assert len(swapped) == 6  # four of the eight registers
