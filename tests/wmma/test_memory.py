"""Loads and stores: the measured fragments, and memory of every kind; test_memory_rules.py has the rules."""

import array
import mmap
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from warpfrag import wmma
from warpfrag.wmma.wmma_types import BY_FORMAT, MatrixLayout, MemoryLayout, Use

DATA = Path(__file__).parents[1] / "data" / "wmma_layout_sm90.npz"
MEASURED = dict(np.load(DATA))
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}


def parse(key):
    """Use, memory layout, size and element type of a measured fragment."""
    use, layout, shape, kind = key.split(".")
    size = tuple(int(extent) for extent in re.fullmatch(r"m(\d+)n(\d+)k(\d+)", shape).groups())
    return Use(use), layout, size, BY_FORMAT[kind]


def make(use, layout, size, kind):
    """Return a fragment, and the arguments of a load besides pointer and ldm."""
    if use is wmma.accumulator:
        return wmma.fragment(use, *size, kind), (MemoryLayout(layout),)
    return wmma.fragment(use, *size, kind, MatrixLayout(layout)), ()


def extents(use, size):
    m, n, k = size
    return {Use.matrix_a: (m, k), Use.matrix_b: (k, n), Use.accumulator: (m, n)}[use]


def to_memory(codes, bits):
    """Return bytes with packed lines of codes, low bits first."""
    if bits >= 8:
        return codes.astype(f"<u{bits // 8}").view(np.uint8)
    spread = (codes[..., None] >> np.arange(bits, dtype=np.uint64)) & np.uint64(1)
    return np.packbits(spread.astype(np.uint8).reshape(len(codes), -1), axis=-1, bitorder="little")


def elements_of(fragment):
    """The codes of all elements of all lanes, [32, num_elements]."""
    bits = BITS[fragment.element_type.format_name]
    if bits >= 8:
        return fragment.words.view(f"<u{bits // 8}").astype(np.uint64)
    spread = np.unpackbits(fragment.words.view(np.uint8), axis=1, bitorder="little").reshape(32, -1, bits)
    return (spread.astype(np.uint64) << np.arange(bits, dtype=np.uint64)).sum(axis=-1).astype(np.uint64)


def test_every_pair_of_layouts_was_measured():
    assert len(MEASURED) == 62 + 2 * 13  # multiplicands have their layout; accumulators come in both
    assert {key.split(".")[3] for key in MEASURED} == set(BITS)


@pytest.mark.parametrize("key", MEASURED)
def test_loads_give_the_measured_fragments(key):
    """Load the index of each element, in pieces of the element's width: each lane gets the same as on the GPU."""
    use, layout, size, kind = parse(key)
    bits = BITS[kind.format_name]
    rows, cols = extents(use, size)
    index = np.arange(rows * cols, dtype=np.uint64).reshape(rows, cols)
    lines = index if layout == "row" else index.T
    unit = 128 // bits
    ldm = (-(-lines.shape[1] // unit) + 1) * unit  # not the least that would do
    found = np.zeros(MEASURED[key].shape, np.uint64)
    for low in range(0, int(index.max()).bit_length(), bits):
        padded = np.full((len(lines), ldm), (1 << bits) - 1, np.uint64)
        padded[:, : lines.shape[1]] = (lines >> np.uint64(low)) & np.uint64((1 << bits) - 1)
        memory = to_memory(padded, bits)
        memory.flags.writeable = False
        fragment, more = make(use, layout, size, kind)
        wmma.load_matrix_sync(fragment, memory, ldm, *more)
        found |= elements_of(fragment) << np.uint64(low)
    assert np.array_equal(found, MEASURED[key])


@pytest.mark.parametrize("key", [key for key in MEASURED if key.startswith("c.")])
@pytest.mark.parametrize("other", ["row", "col"])
def test_a_store_is_the_inverse_of_a_load(key, other):
    """Arbitrary bits, loaded in one layout and stored in another, are transposed, and nothing else is written."""
    use, layout, size, kind = parse(key)
    rng = np.random.default_rng(3)
    m, n, _ = size
    dtype = np.dtype(f"u{kind.dtype.itemsize}")
    source = rng.integers(0, 1 << 8 * dtype.itemsize, (m, n) if layout == "row" else (n, m), dtype=dtype)
    fragment, _ = make(use, layout, size, kind)
    wmma.load_matrix_sync(fragment, source.view(kind.dtype), source.shape[1], MemoryLayout(layout))
    expected = source if layout == other else source.T
    ldm = 48
    target = rng.integers(0, 1 << 8 * dtype.itemsize, (expected.shape[0] + 2, ldm), dtype=dtype)
    before = target.copy()
    wmma.store_matrix_sync(wmma.ptr(target.view(kind.dtype)) + ldm, fragment, ldm, MemoryLayout(other))
    before[1:-1, : expected.shape[1]] = expected
    assert np.array_equal(target, before)


def test_a_fragment_shows_its_matrix():
    matrix = np.arange(256, dtype=np.float16).reshape(16, 16)
    for layout, memory in ((wmma.row_major, matrix), (wmma.col_major, matrix.T.copy())):
        fragment = wmma.fragment(wmma.matrix_b, 16, 16, 16, wmma.half, layout)
        wmma.load_matrix_sync(fragment, memory, 16)
        assert np.array_equal(fragment.matrix(), matrix)


# Memory


def buffers(values, folder):
    """Return the same bytes in every kind of memory, with the object that owns them."""
    raw = values.tobytes()
    with (folder / "memory").open("w+b") as file:
        file.write(raw)
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return {
        "array": values,
        "flat array": values.ravel(),
        "pointer": wmma.ptr(values),
        "bytes": raw,
        "bytearray": bytearray(raw),
        "memoryview": memoryview(raw),
        "array.array": array.array("f", values.ravel().tolist()),
        "mmap": mapped,
        "memmap": np.memmap(folder / "memory", np.float32, "r"),
        "frombuffer": np.frombuffer(raw, np.float32),
    }


def test_memory_is_any_buffer(accumulator, tmp_path):
    values = np.arange(256, dtype=np.float32).reshape(16, 16)
    kinds = buffers(values, tmp_path)
    for kind, memory in kinds.items():
        wmma.fill_fragment(accumulator, -1.0)
        wmma.load_matrix_sync(accumulator, memory, 16, wmma.mem_row_major)
        assert np.array_equal(accumulator.matrix(), values), kind
    assert len(kinds) == 10


def test_stores_write_to_any_writable_buffer(accumulator):
    wmma.fill_fragment(accumulator, 3.0)
    for memory in (bytearray(1024), array.array("f", [0.0] * 256), np.zeros(256, np.float32)):
        wmma.store_matrix_sync(memory, accumulator, 16, wmma.mem_col_major)
        assert bytes(memory) == np.full(256, 3, np.float32).tobytes()


def test_pointers_count_elements(multiplicand):
    matrix = np.arange(48 * 64, dtype=np.float32).astype(np.float16).reshape(48, 64)
    pointer = 32 + wmma.ptr(matrix) + 16 * 64 + 16 - 16
    assert repr(pointer) == "<pointer to element 1056 of float16[48, 64]>"
    wmma.load_matrix_sync(multiplicand, pointer, 64)
    assert np.array_equal(multiplicand.matrix(), matrix[16:32, 32:48])


def test_a_view_is_a_pointer_to_its_first_element(multiplicand):
    matrix = np.arange(48 * 64, dtype=np.float32).astype(np.float16).reshape(48, 64)
    for view in (matrix[16:32, 32:48], matrix[16:, 32:], wmma.ptr(memoryview(matrix)[16:]) + 32):
        wmma.load_matrix_sync(multiplicand, view, 64)
        assert np.array_equal(multiplicand.matrix(), matrix[16:32, 32:48])
    columns = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.col_major)
    wmma.load_matrix_sync(columns, np.asfortranarray(matrix)[16:, 32:], 48)
    assert np.array_equal(columns.matrix(), matrix[16:32, 32:48])


def test_sub_byte_elements_lie_packed_in_memory():
    values = np.random.default_rng(5).integers(-8, 8, (8, 64))
    packed = (values[:, ::2] & 15 | (values[:, 1::2] & 15) << 4).astype(np.uint8)
    fragment = wmma.fragment(wmma.matrix_a, 8, 8, 32, wmma.experimental.precision.s4, wmma.row_major)
    for memory in (packed, packed.view(np.uint32), packed.view(np.int32), packed.tobytes()):
        wmma.load_matrix_sync(fragment, memory, 64)
        assert np.array_equal(fragment.matrix().astype(int), values[:, :32])
    bits = np.random.default_rng(6).integers(0, 2, (128, 8)).astype(bool)
    packed = np.ascontiguousarray(np.packbits(bits.T, axis=1, bitorder="little"))
    fragment = wmma.fragment(wmma.matrix_b, 8, 8, 128, wmma.experimental.precision.b1, wmma.col_major)
    wmma.load_matrix_sync(fragment, packed, 128)
    assert np.array_equal(fragment.matrix(), bits)


# Filling


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (wmma.half, 1 + 2**-11, 0x3C00),  # a tie, to even
        (wmma.half, 1e6, 0x7C00),
        (wmma.float, 0.1, 0x3DCCCCCD),
        (wmma.int, -2, 0xFFFFFFFE),
    ],
)
def test_an_accumulator_is_filled(kind, value, expected):
    fragment = wmma.fragment(wmma.accumulator, 16, 16, 16, kind)
    wmma.fill_fragment(fragment, value)
    assert (fragment.codes() == expected).all()
    assert (fragment.words == fragment.words[0, 0]).all()


@pytest.mark.parametrize(
    ("name", "size", "value", "expected"),
    [
        ("s4", 32, -3, 0xDDDDDDDD),
        ("u4", 32, 0x1F, 0xFFFFFFFF),
        ("u4", 32, 0x12, 0x22222222),
        ("b1", 128, 1, 0xFFFFFFFF),
        ("b1", 128, 2, 0),
    ],
)
def test_sub_byte_fragments_are_filled_from_the_low_bits(name, size, value, expected):
    kind = getattr(wmma.experimental.precision, name)
    fragment = wmma.fragment(wmma.matrix_a, 8, 8, size, kind, wmma.row_major)
    wmma.fill_fragment(fragment, value)
    assert (fragment.words == expected).all()


def test_other_multiplicands_are_filled():
    fragment = wmma.fragment(wmma.matrix_a, 16, 16, 8, wmma.precision.tf32, wmma.row_major)
    wmma.fill_fragment(fragment, 0.1)  # all bits of the float are kept
    assert (fragment.words == 0x3DCCCCCD).all()
    fragment = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.bfloat16, wmma.row_major)
    wmma.fill_fragment(fragment, 1.5)
    assert (fragment.matrix() == ml_dtypes.bfloat16(1.5)).all()
    fragment = wmma.fragment(wmma.matrix_a, 8, 8, 4, wmma.double, wmma.row_major)
    wmma.fill_fragment(fragment, -1)
    assert (fragment.matrix() == -1.0).all()


def test_values_that_do_not_fit_are_refused():
    fragment = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.unsigned_char, wmma.row_major)
    with pytest.raises(wf.errors.InvalidOperand, match=r"fill_fragment: unsigned_char holds 0\.\.255, got 256"):
        wmma.fill_fragment(fragment, 256)
    with pytest.raises(wf.errors.InvalidOperand, match=r"expected an integer for unsigned_char, got 1\.5"):
        wmma.fill_fragment(fragment, 1.5)
    with pytest.raises(
        wf.errors.InvalidOperand, match=r"expected one value for all elements, got an array of shape \(2,\)"
    ):
        wmma.fill_fragment(fragment, np.zeros(2))
    halves = wmma.fragment(wmma.accumulator, 16, 16, 16, wmma.half)
    with pytest.raises(wf.errors.InvalidOperand, match="fill_fragment: expected a number for half, got None"):
        wmma.fill_fragment(halves, None)
    with pytest.raises(wf.errors.InvalidOperand, match="fill_fragment: expected a number for half, got 'one'"):
        wmma.fill_fragment(halves, "one")
    with pytest.raises(wf.errors.InvalidOperand, match="fill_fragment: expected a to be a fragment, got ndarray"):
        wmma.fill_fragment(np.zeros(2), 0)
