"""The index expressions of wrong stores and loads are found from the addresses of the elements."""

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.diagnosis.index_maps import IndexMap, loaded_elsewhere, places_of, stored_elsewhere
from warpfrag.formats.codes import code_dtype

NAMES = (
    "mma.m16n8k16.f32.f16.f16.f32",
    "mma.m16n8k16.f16.f16.f16.f16",
    "mma.m16n8k32.s32.s8.s8.s32",
    "mma.m8n8k4.f64.f64.f64.f64",
    "wgmma.mma_async.m64n32k16.f32.f16.f16",
)


def wrong_map(places, random):
    """Return a wrong map inside the matrix: steps of the thread's bits exchanged, some 0, or offsets exchanged."""
    bits = places.factors.shape[1] - 2
    right = [places.indices[places.length << bit] - places.indices[0] for bit in range(bits)]
    tiles = [places.indices[(places.factors[:, -2:] == each).all(axis=1)][:1] for each in ((1, 0), (0, 1))]
    steps = random.permutation(right) * (random.random(bits) < 0.8)
    offsets = random.permutation(places.indices[: places.length])
    return IndexMap((*steps, *(int(tile[0]) if tile.size else 0 for tile in tiles)), (*offsets,))


def distinct_codes(operand, shape, random):
    count = min(shape[0] * shape[1], operand.format.codes - 1)
    codes = random.permutation(shape[0] * shape[1]) % count + 1
    return codes.reshape(shape).astype(code_dtype(operand.format))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tiles", [(1, 1), (3, 2)])
def test_stores_with_any_linear_index_are_explained(name, tiles):
    random, d = np.random.default_rng(3), wf.get(name).d
    shape = d.shape[0] * tiles[0], d.shape[1] * tiles[1]
    right, places = distinct_codes(d, shape, random), places_of(d, shape, (shape[1], 1))
    for _ in range(6):
        wrong = wrong_map(places, random).of(places)
        memory, last = np.zeros_like(right.ravel()), random.permutation(right.size)
        memory[wrong[last]] = right.ravel()[places.indices[last]]
        (found,) = stored_elsewhere(d, memory.reshape(shape), right)
        assert found.text.startswith("stored with ")
        if tiles == (1, 1):
            registers = found.change(d.pack(right, raw=True))
            assert np.array_equal(d.unpack(registers, raw=True).ravel(), memory)
        memory[wrong[0]] = d.format.codes - 1
        assert not [*stored_elsewhere(d, memory.reshape(shape), right)]


@pytest.mark.parametrize("name", NAMES[:4])
@pytest.mark.parametrize("role", ["a", "b"])
def test_loads_with_any_linear_index_are_explained(name, role):
    random, operand = np.random.default_rng(4), wf.get(name).operands[role]
    high, wide = operand.shape
    matrix = random.permutation(6 * high * wide).reshape(2 * high, 3 * wide)
    elements, places = (places_of(operand, operand.shape, strides) for strides in ((wide, 1), (3 * wide, 1)))
    for _ in range(6):
        held = np.empty(high * wide, int)
        held[elements.indices] = matrix.ravel()[wrong_map(places, random).of(places) + high * 3 * wide + wide]
        corners = [(row, col) for row in (0, high) for col in (0, wide, 2 * wide)]
        corner, text = loaded_elsewhere(operand, held.reshape(high, wide), matrix, corners)
        assert (corner, text[:12]) == ((high, wide), "loaded with ")
        held[0] = -1
        assert loaded_elsewhere(operand, held.reshape(high, wide), matrix, corners) is None


def test_the_bits_of_another_thread_number_are_named():
    mma = wf.get("wgmma.mma_async.m64n32k16.f32.f16.f16")
    right, places = np.arange(1, 2049, dtype=np.uint32).reshape(64, 32), places_of(mma.d, (64, 32), (32, 1))
    steps = [places.indices[places.length << bit] for bit in range(5)] + [0, 0]  # every warp stores the same rows
    wrong = IndexMap((*steps, 0, 0), (*places.indices[: places.length],)).of(places)
    memory = np.zeros(2048, np.uint32)
    memory[wrong] = right.ravel()[places.indices]
    (found,) = stored_elsewhere(mma.d, memory.reshape(64, 32), right)

    assert found.text == (
        "stored with (thread & 3) * 2 + (thread >> 2 & 7) * 32 in the index instead of "
        "(thread & 3) * 2 + (thread >> 2 & 7) * 32 + (thread >> 5) * 512"
    )


@pytest.mark.parametrize("role", ["a", "b", "d"])
def test_the_fix_names_the_index_that_the_kernel_uses(role):
    """The kernel takes lane & 7 for groupID, and lane >> 3 for threadID_in_group."""
    mma, random = wf.get(NAMES[0]), np.random.default_rng(2)
    A, B = (random.normal(size=operand.shape).astype(np.float16) for operand in (mma.a, mma.b))
    operand = mma.operands[role]
    lanes = np.arange(32)
    taken = (lanes & 7) * 4 + (lanes >> 3)
    if role == "d":
        words = mma.d.pack(mma(A, B))
        found = wf.diagnose(mma, words[np.argsort(taken)], A, B)
    else:
        matrix = {"a": A, "b": B}[role]
        found = wf.diagnose(operand, operand.pack(matrix)[taken], matrix)
    (finding,) = (each for each in found if each.kind == "lanes")
    right, wrong = finding.fix.split(", not ")

    assert finding.text == "lane (lane & 7) * 4 + (lane >> 3) taken for lane"
    assert ("lane & 7" in wrong, "lane >> 3" in wrong, "lane >> 2" in right, "lane & 3" in right) == (True,) * 4
    assert wrong.replace("lane & 7", "lane >> 2").replace("lane >> 3", "lane & 3") == right.partition("must be ")[2]
