"""Sparse A: compress, expand, spans, and every error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpfrag as wf
from instructions import each_of, every
from warpfrag.formats.codes import from_codes
from warpfrag.tensorcore.sparsity import compress_to_columns, logical_columns

SPARSE = [one for one in every() if one.form.is_sparse and not one.form.satfinite]
BY_PATTERN = {
    "1:2": "mma.sp.m16n8k16.f32.tf32.tf32.f32",
    "2:4": "mma.sp.m16n8k32.f32.f16.f16.f32",
    "4:8": "mma.sp.m16n8k64.s32.s4.s4.s32",
}

WALKED = set()  # layouts and selectors of metadata whose every place was looked at


def thinned(instruction: wf.Instruction, rng: np.random.Generator, batch: tuple[int, ...] = ()) -> np.ndarray:
    """Return random codes that follow the pattern: each chunk keeps the columns of a random legal code."""
    rule = instruction.pattern
    shape = (*batch, instruction.shape.m, instruction.shape.k)
    codes = rng.integers(1, instruction.a.format.codes, shape, dtype=np.uint64)
    keep = np.zeros(shape, bool).reshape(-1, rule.chunk)
    choices = list(rule.rising.values())
    for chunk in keep:
        chunk[list(choices[rng.integers(len(choices))])] = True
    return np.where(keep.reshape(shape), codes, 0)


@each_of(SPARSE)
def test_expand_inverts_compress(instruction: wf.Instruction):
    full = thinned(instruction, np.random.default_rng(1), (2, 3))
    stored, codes = instruction.compress(full, raw=True)
    assert stored.shape == (2, 3, *instruction.a.shape)
    assert codes.shape == (2, 3, *instruction.metadata.shape)
    assert codes.dtype == np.uint8
    assert np.array_equal(instruction.expand(stored, codes, raw=True), full)
    again, columns = compress_to_columns(instruction.pattern, full)
    assert np.array_equal(again, stored)
    assert np.array_equal(columns, logical_columns(instruction.pattern, codes))
    assert np.array_equal(np.take_along_axis(full, columns.astype(np.int64), -1), stored)


@each_of(SPARSE)
def test_metadata_words_keep_the_codes_of_every_selector(instruction: wf.Instruction):
    rng = np.random.default_rng(2)
    assert instruction.selectors == tuple(instruction.metadata.selectors)
    for selector in instruction.selectors:
        codes = rng.integers(0, 16, (5, *instruction.metadata.shape)).astype(np.uint8)
        words = instruction.metadata.pack(codes, selector=selector)
        assert words.shape == (5, *((4, 32) if instruction.form.is_warpgroup else (32,)))
        assert np.array_equal(instruction.metadata.unpack(words, selector=selector), codes)
        if (instruction.metadata.layout, selector) in WALKED:
            continue  # other types have the same places
        WALKED.add((instruction.metadata.layout, selector))
        for row, chunk in np.ndindex(*instruction.metadata.shape):
            *thread, bit = place = instruction.metadata.where(row=row, chunk=chunk, selector=selector)
            assert words[0, *thread] >> bit & 15 == codes[0, row, chunk]
            assert instruction.metadata.at(**place._asdict(), selector=selector) == (row, chunk)


@pytest.mark.parametrize(
    ("pattern", "chunk", "stored", "code"),
    [
        ("2:4", [0, 0, 0, 0], [0, 0], 0b0100),  # free places are filled lowest first
        ("2:4", [0, 0, 5, 0], [0, 5], 0b1000),
        ("2:4", [5, 0, 0, 0], [5, 0], 0b0100),
        ("2:4", [0, 5, 0, 6], [5, 6], 0b1101),
        ("2:4", [0, 0, 5, 6], [5, 6], 0b1110),
        ("2:4", [0, 0, 0, 0x8000], [0, 0x8000], 0b1100),  # a negative zero is kept
        ("1:2", [0, 0], [0], 0b0100),
        ("1:2", [0, 7], [7], 0b1110),
        ("1:2", [7, 0], [7], 0b0100),
        ("4:8", [0, 0, 0, 0, 0, 3, 0, 0], [0, 0, 0, 3], 0b1000),  # pairs are kept whole
        ("4:8", [0, 1, 0, 0, 0, 0, 2, 0], [0, 1, 2, 0], 0b1100),
    ],
)
def test_compress_keeps_what_is_not_zero(pattern: str, chunk: list[int], stored: list[int], code: int):
    instruction = wf.get(BY_PATTERN[pattern])
    full = np.zeros((instruction.shape.m, instruction.shape.k), np.uint64)
    full[3, : len(chunk)] = chunk
    kept, codes = instruction.compress(full, raw=True)
    assert kept[3, : len(stored)].tolist() == stored
    assert codes[3, 0] == code


@pytest.mark.parametrize(
    ("pattern", "columns", "message"),
    [
        ("2:4", [4, 5, 7], r"row 9 is not 2:4 sparse: in columns 4..7, at most 2 may .* but columns 4, 5, 7 do"),
        ("1:2", [2, 3], r"row 9 is not 1:2 sparse: in columns 2..3, at most 1 may .* but columns 2, 3 do"),
        ("4:8", [8, 11, 12], r"row 9 is not 4:8 sparse: in columns 8..15, at most 2 pairs .* columns 8, 10, 12 do"),
    ],
)
def test_a_row_that_is_not_thin_is_refused(pattern: str, columns: list[int], message: str):
    instruction = wf.get(BY_PATTERN[pattern])
    full = np.zeros((2, instruction.shape.m, instruction.shape.k))
    full[1, 9, columns] = 1
    with pytest.raises(wf.errors.InvalidSparsity, match=message):
        instruction.compress(full)


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("mma.sp.m16n8k32.f32.f16.f16.f32", 0b0101, "row 2, columns 4..7: metadata code 0101 repeats a position"),
        ("mma.sp.m16n8k16.f32.tf32.tf32.f32", 0b1000, "row 2, columns 2..3: metadata code 1000 has no meaning for 1:2"),
        (
            "mma.sp::ordered_metadata.m16n8k32.f32.f16.f16.f32",
            0b0001,
            "code 0001 descends, which ordered metadata does not",
        ),
    ],
)
def test_an_illegal_code_is_refused(name: str, code: int, message: str):
    instruction = wf.get(name)
    codes = np.full(instruction.metadata.shape, 0b0100, np.uint8)
    codes[2, 1] = code
    with pytest.raises(wf.errors.InvalidSparsity, match=message):
        instruction.expand(np.zeros(instruction.a.shape), codes)


def test_plain_sp_takes_descending_positions():
    instruction = wf.get("mma.sp.m16n8k32.f32.f16.f16.f32")
    codes = np.full(instruction.metadata.shape, 0b0010, np.uint8)
    stored = np.arange(np.prod(instruction.a.shape)).reshape(instruction.a.shape) % 100 + 1
    full = instruction.expand(stored, codes).astype(int)
    assert full[0, :4].tolist() == [stored[0, 1], 0, stored[0, 0], 0]


@given(row=st.integers(0, 15), col=st.integers(0, 31), seed=st.integers(0, 9))
def test_where_finds_a_logical_element_where_it_is_stored(row: int, col: int, seed: int):
    instruction = wf.get("mma.sp.m16n8k32.f32.f16.f16.f32")
    full = thinned(instruction, np.random.default_rng(seed))
    stored, codes = instruction.compress(full, raw=True)
    words = instruction.a.pack(stored, raw=True)
    places = instruction.a.where(row=row, col=col, codes=codes)
    for lane, reg, slot in places:
        assert words[lane, reg] >> 16 * slot & 0xFFFF == full[row, col]
        span = instruction.a.span(lane=lane, reg=reg)
        assert span.row == row
        assert span.first <= col <= span.last
    assert places or full[row, col] == 0


def test_a_dense_instruction_has_nothing_to_compress():
    mma = wf.get("mma.m16n8k16.f32.f16.f16.f32")
    assert mma.metadata is None
    assert mma.selectors == ()
    with pytest.raises(wf.errors.InvalidSparsity, match="is dense: only a sparse A"):
        mma.compress(np.zeros((16, 16)))


def test_wrong_shapes_are_refused():
    sp = wf.get("mma.sp.m16n8k32.f32.f16.f16.f32")
    with pytest.raises(wf.errors.InvalidSparsity, match=r"expected a full A of shape \(..., 16, 32\), got \(16, 16\)"):
        sp.compress(np.zeros((16, 16)))
    with pytest.raises(wf.errors.InvalidSparsity, match="expected metadata codes of shape"):
        sp.expand(np.zeros((16, 16)), np.zeros((16, 4), np.uint8))
    with pytest.raises(wf.errors.InvalidOperand, match=r"shape \(..., 16, 8\), got \(16, 4\)"):
        sp.metadata.pack(np.zeros((16, 4), np.uint8))
    with pytest.raises(wf.errors.InvalidOperand, match="b4 codes are 0..0xf"):
        sp.metadata.pack(np.full((16, 8), 16))
    with pytest.raises(wf.errors.InvalidOperand, match="selector must be in 0..1, got 2"):
        sp.metadata.pack(np.zeros((16, 8), np.uint8), selector=2)
    with pytest.raises(
        wf.errors.InvalidOperand, match="bits 0 to 3 of lane 2 are read only with selector 1, got selector 0"
    ):
        sp.metadata.at(lane=2, bit=0, selector=0)
    with pytest.raises(wf.errors.InvalidOperand, match="bit must be in 0..31, got 32"):
        sp.metadata.at(lane=2, bit=32, selector=0)


def test_natural_dtypes_survive():
    sp = wf.get("mma.sp.m16n8k32.f32.f16.f16.f32")
    full = from_codes(sp.a.format, thinned(sp, np.random.default_rng(3)))
    stored, codes = sp.compress(full)
    assert stored.dtype == np.float16
    assert np.array_equal(sp.expand(stored, codes).view(np.uint16), full.view(np.uint16))


@pytest.mark.parametrize(
    ("stored", "codes", "message"),
    [
        (
            (2, 16, 16),
            (3, 16, 8),
            r"leading axes do not broadcast: stored elements \(2, 16, 16\), metadata codes \(3, ",
        ),
        ((16, 16), (16, 7), r"expected metadata codes of shape \(\.\.\., 16, 8\), got \(16, 7\)"),
    ],
)
def test_elements_and_codes_that_do_not_go_together_are_refused(stored, codes, message):
    with pytest.raises(wf.errors.InvalidSparsity, match=message):
        wf.get(BY_PATTERN["2:4"]).expand(np.zeros(stored), np.full(codes, 4, np.uint8))


@pytest.mark.parametrize(("code", "came"), [(np.uint8(16), "got 16..16"), (4.0, "got dtype float64")])
def test_codes_that_are_no_codes_are_refused_with_what_came(code, came):
    with pytest.raises(wf.errors.InvalidSparsity, match=f"metadata codes must be integers in 0..15, {came}"):
        wf.get(BY_PATTERN["2:4"]).expand(np.zeros((16, 16)), np.full((16, 8), code))
