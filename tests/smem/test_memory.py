"""Shared memory: addresses both ways, swizzles, banks; ldmatrix, stmatrix and movmatrix on a byte buffer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpfrag as wf
from warpfrag.smem.shared_memory import Digit, Memory, bank_conflicts, swizzled, wavefronts

BITS = (1, 4, 8, 16, 32, 64)
MOVERS = Path(__file__).parents[1] / "data" / "movers_sm90.npz"


def memories() -> st.SearchStrategy[Memory]:
    """Memories in which no two elements of a matrix of up to 32 x 32 elements of 64 bits meet."""
    return st.builds(
        Memory,
        order=st.sampled_from(["row", "col"]),
        pitch=st.integers(16, 40).map(lambda units: 16 * units),
        swizzle=st.sampled_from([0, 32, 64, 128]),
        start=st.integers(0, 64).map(lambda units: 16 * units),
        base_offset=st.integers(0, 7),
    )


@given(memories(), st.sampled_from(BITS), st.data())
def test_an_address_is_a_sum_of_strides_and_a_swizzle(memory: Memory, bits: int, data: st.DataObject):
    row, col = data.draw(st.tuples(st.integers(0, 31), st.integers(0, 31)))
    inner, outer = (col, row) if memory.order == "row" else (row, col)
    linear = memory.start + outer * memory.pitch + inner * bits // 8
    unit = linear >> 4 & 7
    kept = {0: 0, 32: 1, 64: 3, 128: 7}[memory.swizzle]
    turned = unit ^ ((linear >> 7) - memory.base_offset & kept)
    expected = linear - 16 * unit + 16 * turned
    assert memory.address(row=row, col=col, bits=bits) == expected
    assert memory.addresses((32, 32), bits)[row, col] == expected
    assert (row, col) in memory.elements(expected, (32, 32), bits)


@given(memories(), st.sampled_from(BITS), st.integers(0, 2**32))
def test_what_is_written_is_read_back_and_nothing_else_changes(memory: Memory, bits: int, seed: int):
    random = np.random.default_rng(seed)
    shape = (8, 16)
    codes = random.integers(0, 1 << bits, shape, np.uint64, endpoint=False) if bits < 64 else random.integers(
        0, 2**64 - 1, shape, np.uint64
    )  # fmt: skip
    before = random.integers(0, 256, memory.size(shape, bits) + 64, np.uint8)
    after = memory.write(before, codes, bits)
    assert np.array_equal(memory.read(after, shape, bits), codes)
    assert np.array_equal(memory.write(after, memory.read(before, shape, bits), bits), before)
    touched = {byte for first in memory.addresses(shape, bits).flat for byte in range(first, first + max(1, bits // 8))}
    assert set(np.flatnonzero(before != after)) <= touched


def test_tiles_one_after_the_other_are_digits():
    """Eight rows of 16 bytes make a tile; tiles follow each other along a row, then down."""
    tiles = Memory(order="row", along=(Digit(16, 1), Digit(None, 128)), across=(Digit(8, 16), Digit(None, 512)))
    found = tiles.addresses((16, 32), 16)
    for row, col in np.ndindex(16, 32):
        assert found[row, col] == 512 * (row // 8) + 128 * (col // 8) + 16 * (row % 8) + 2 * (col % 8)
    assert sorted(found.flat) == list(range(0, 1024, 2))


def test_without_a_pitch_rows_follow_each_other():
    assert Memory("row").addresses((3, 6), 4).tolist() == [[0, 0, 1, 1, 2, 2], [3, 3, 4, 4, 5, 5], [6, 6, 7, 7, 8, 8]]
    assert Memory("col").address(row=1, col=2, bits=16, shape=(8, 4)) == 34
    assert Memory("row").elements(4, (3, 6), 4) == [(1, 2), (1, 3)]
    assert Memory("row", pitch=16).elements(13, (3, 6), 4) == []


@pytest.mark.parametrize(("swizzle", "conflicts"), [(0, 7), (32, 3), (64, 1), (128, 0)])
def test_a_swizzle_spreads_a_column_of_units_over_the_banks(swizzle: int, conflicts: int):
    """Eight rows, 128 bytes apart; ldmatrix reads 16 bytes of each."""
    memory = Memory("row", pitch=128, swizzle=swizzle)
    rows = [memory.address(row=row, col=0, bits=16) for row in range(8)]
    assert bank_conflicts(rows, width=16) == conflicts
    assert wavefronts(rows, width=16) == conflicts + 1


@pytest.mark.parametrize(
    ("addresses", "width", "passes", "conflicts"),
    [
        ([4 * lane for lane in range(32)], 4, 1, 0),
        ([0] * 32, 4, 1, 0),  # one word for all
        ([8 * lane for lane in range(32)], 4, 2, 1),
        (list(range(32)), 1, 1, 0),
        ([8 * lane for lane in range(32)], 8, 2, 0),
        ([16 * lane for lane in range(32)], 16, 4, 0),
        ([32 * lane for lane in range(32)], 16, 8, 4),
        ([128 * lane for lane in range(32)], 4, 32, 31),
        ([None] * 31 + [0], 4, 1, 0),
        ([None] * 32, 4, 0, 0),
    ],
)
def test_a_bank_gives_one_word_in_a_pass(addresses: list[int], width: int, passes: int, conflicts: int):
    assert wavefronts(addresses, width) == passes
    assert bank_conflicts(addresses, width) == conflicts


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: Memory("diagonal"), "order must be row or col, got 'diagonal'"),
        (lambda: Memory(swizzle=16), "swizzle must be 0, 32, 64, 128 bytes, got 16"),
        (lambda: Memory(pitch=0), "pitch must be an integer of at least 1, in bytes; got 0"),
        (lambda: Memory(start=-1), "start must be an integer of at least 0, in bytes; got -1"),
        (lambda: Memory(pitch=16, across=(Digit(None, 16),)), "expected a pitch or the digits across, not both"),
        (lambda: Memory().address(row=0, col=0, bits=16), "pass shape="),
        (
            lambda: Memory(pitch=16).address(row=0, col=0, bits=6),
            "expected elements of 1, 4, 8, 16, 32, 64 bits, got 6",
        ),
        (lambda: Memory(pitch=16).address(row=-1, col=0, bits=8), "row must be in 0"),
        (
            lambda: Memory(pitch=2).write(np.zeros(64, np.uint8), np.ones((2, 2), int), 16),
            "are both at byte",
        ),
        (lambda: Memory(pitch=8).read(np.zeros(15, np.uint8), (2, 8), 8), "reaches byte 15, but the memory has 15"),
        (lambda: wavefronts([0], 3), "expected an access of 1, 2, 4, 8 or 16 bytes per lane, got 3"),
        (lambda: wavefronts([0, -4], 4), "the address of lane 1 must be in 0\\.\\.\\d+, got -4"),
        (lambda: bank_conflicts([True], 4), "the address of lane 0 must be an integer in 0\\.\\.\\d+, got True"),
    ],
)
def test_what_is_no_memory_is_refused(ask: Any, message: str):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        ask()


@given(st.integers(0, 1 << 20), st.sampled_from([32, 64, 128]), st.integers(0, 7))
def test_a_swizzle_is_its_own_inverse(address: int, swizzle: int, base_offset: int):
    assert swizzled(swizzled(address, swizzle, base_offset), swizzle, base_offset) == address


# ---- movers


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_movers_do_what_an_h200_did(count: int, trans: str):
    with np.load(MOVERS) as captured:
        key = f"x{count}{trans[1:2]}"
        addresses = 16 * captured["rows"]
        counting = np.arange(512, dtype=np.uint16).view(np.uint8)
        load = wf.get(f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16")
        assert np.array_equal(wf.execute(load, addresses, shared=counting), captured[f"ldmatrix.{key}"])
        store = wf.get(f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16")
        untouched = np.full(512, 0xDEAD, np.uint16).view(np.uint8)
        after = wf.execute(store, addresses, captured[f"stmatrix.{key}.in"], shared=untouched)
        assert np.array_equal(after.view(np.uint16).reshape(64, 8), captured[f"stmatrix.{key}.smem"])
        assert (untouched.view(np.uint16) == 0xDEAD).all()


def test_movmatrix_does_what_an_h200_did():
    with np.load(MOVERS) as captured:
        moved = wf.execute("movmatrix.sync.aligned.m8n8.trans.b16", captured["movmatrix.in"][:, None])
        assert np.array_equal(moved[:, 0], captured["movmatrix.out"])


@pytest.mark.parametrize("name", [
    "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8",
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8x16.b6x16_p32",
    "ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b4x16_p64",
    "stmatrix.sync.aligned.m16n8.x2.trans.shared.b8",
])  # fmt: skip
def test_narrow_movers_go_by_their_layouts(name: str):
    """These were not captured: each element must arrive at the place that the layouts name, bit by bit."""
    mover = wf.get(name)
    random = np.random.default_rng(7)
    operand = mover.d or mover.a
    matrices, height, width = operand.shape
    bits = operand.format.bits
    lines, length = (height, width) if "row" in mover.addresses.outs else (width, height)
    memory = random.integers(0, 256, 16 * 64, np.uint8)
    addresses = 16 * random.permutation(64)[:32]
    codes = np.zeros(operand.shape, np.uint8)
    for lane in range(matrices * lines):
        matrix, line = mover.addresses.at(lane=lane)
        whole = int.from_bytes(memory[addresses[lane] : addresses[lane] + 16].tobytes(), "little")
        for place in range(length):
            at = (line, place) if "row" in mover.addresses.outs else (place, line)
            codes[matrix, *at] = whole >> (bits * place) & ((1 << bits) - 1)
    words = operand.pack(codes, raw=True)
    if mover.d:
        assert np.array_equal(wf.execute(mover, addresses, shared=memory), words)
    else:
        after = wf.execute(mover, addresses, words, shared=np.zeros_like(memory))
        wanted = np.isin(np.arange(len(memory)) // 16, addresses[: matrices * lines] // 16)
        assert np.array_equal(after, np.where(wanted, memory, 0))


LOAD, STORE = "ldmatrix.sync.aligned.m8n8.x1.shared.b16", "stmatrix.sync.aligned.m8n8.x1.shared.b16"
ROWS, MEMORY, ONE = 16 * np.arange(32), np.zeros(512, np.uint8), np.arange(32, dtype=np.uint32)[:, None]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: wf.execute(LOAD, ROWS + 8, shared=MEMORY), "lane 0 is 8, expected multiples of 16"),
        (lambda: wf.execute(LOAD, ROWS + 400, shared=MEMORY), "the address of lane 7 is 512"),
        (lambda: wf.execute(LOAD, ROWS[:8], shared=MEMORY), r"addresses int\[..., 32\], got int64 of shape \(8,\)"),
        (lambda: wf.execute(LOAD, ROWS * 1.0, shared=MEMORY), "got float64"),
        (lambda: wf.execute(LOAD, ROWS), "needs shared"),
        (lambda: wf.execute(LOAD, ROWS, shared=MEMORY.view(np.uint16)), r"shared must be uint8\[bytes\], got uint16"),
        (lambda: wf.execute(LOAD, ROWS, ONE, shared=MEMORY), "takes no b"),
        (lambda: wf.execute(STORE, ROWS, shared=MEMORY), "needs b, the registers"),
        (lambda: wf.execute(STORE, 0 * ROWS, ONE, shared=MEMORY), "two lanes store different bytes at one address"),
        (lambda: wf.execute(STORE, ROWS, ONE[:8], shared=MEMORY), r"expected registers uint32\[..., 32, 1\]"),
        (lambda: wf.execute("movmatrix.m8n8.trans.b16", ONE, shared=MEMORY), "takes no shared"),
        (lambda: wf.execute("mma.m16n8k8.f32.f16.f16.f32", ONE, ONE, shared=MEMORY), "takes no shared"),
    ],
)  # fmt: skip
def test_what_a_mover_cannot_do_is_refused(ask: Any, message: str):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        ask()


def test_lanes_that_give_no_address_may_hold_anything():
    addresses = ROWS.copy()
    addresses[8:] = -5
    assert np.array_equal(wf.execute(LOAD, addresses, shared=np.arange(512, dtype=np.uint8)),
                          wf.execute(LOAD, ROWS, shared=np.arange(512, dtype=np.uint8)))  # fmt: skip
    with pytest.raises(wf.errors.NotModelled, match="were not measured"):
        wf.execute("ldmatrix.sync.aligned.m8n16.x1.shared.s8.s4", ROWS, shared=MEMORY)
