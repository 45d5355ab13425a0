"""Fragments: which exist, and the elements that they hold."""

import copy
import pickle
import re

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from warpfrag import wmma

u4, s4, b1 = (getattr(wmma.experimental.precision, name) for name in ("u4", "s4", "b1"))
tf32 = wmma.precision.tf32

# The table of the CUDA C++ guide: multiplicand, accumulators, size, elements per lane of a, b and accumulator.
TABLE = [
    (wmma.half, (wmma.float, wmma.half), (16, 16, 16), (16, 16, 8)),
    (wmma.half, (wmma.float, wmma.half), (32, 8, 16), (16, 16, 8)),
    (wmma.half, (wmma.float, wmma.half), (8, 32, 16), (16, 16, 8)),
    (wmma.signed_char, (wmma.int,), (16, 16, 16), (8, 8, 8)),
    (wmma.signed_char, (wmma.int,), (32, 8, 16), (16, 4, 8)),
    (wmma.signed_char, (wmma.int,), (8, 32, 16), (4, 16, 8)),
    (wmma.unsigned_char, (wmma.int,), (16, 16, 16), (8, 8, 8)),
    (wmma.unsigned_char, (wmma.int,), (32, 8, 16), (16, 4, 8)),
    (wmma.unsigned_char, (wmma.int,), (8, 32, 16), (4, 16, 8)),
    (wmma.bfloat16, (wmma.float,), (16, 16, 16), (8, 8, 8)),
    (wmma.bfloat16, (wmma.float,), (32, 8, 16), (16, 4, 8)),
    (wmma.bfloat16, (wmma.float,), (8, 32, 16), (4, 16, 8)),
    (tf32, (wmma.float,), (16, 16, 8), (4, 4, 8)),
    (wmma.double, (wmma.double,), (8, 8, 4), (1, 1, 2)),
    (u4, (wmma.int,), (8, 8, 32), (8, 8, 2)),
    (s4, (wmma.int,), (8, 8, 32), (8, 8, 2)),
    (b1, (wmma.int,), (8, 8, 128), (32, 32, 2)),
]
STORAGE = {tf32: wmma.float, u4: wmma.unsigned, s4: wmma.int, b1: wmma.unsigned}
DTYPES = {
    wmma.half: np.float16,
    wmma.float: np.float32,
    wmma.double: np.float64,
    wmma.bfloat16: ml_dtypes.bfloat16,
    wmma.signed_char: np.int8,
    wmma.unsigned_char: np.uint8,
    wmma.int: np.int32,
    wmma.unsigned: np.uint32,
}
IDS = [f"{row[0].name}-{row[2][0]}x{row[2][1]}x{row[2][2]}" for row in TABLE]


def layouts_of(use, kind):
    """Sub-byte types have A row-major and B column-major only."""
    if kind in (u4, s4, b1):
        return [wmma.row_major if use is wmma.matrix_a else wmma.col_major]
    return [wmma.row_major, wmma.col_major]


def every_fragment():
    """Every fragment of the table, as arguments."""
    found = []
    for kind, accumulators, size, _ in TABLE:
        for use in (wmma.matrix_a, wmma.matrix_b):
            found += [(use, *size, kind, layout) for layout in layouts_of(use, kind)]
        found += [(wmma.accumulator, *size, kind) for kind in accumulators]
    return sorted(set(found), key=str)


@pytest.mark.parametrize("row", TABLE, ids=IDS)
def test_elements_per_lane(row):
    kind, accumulators, size, (of_a, of_b, of_c) = row
    for use, expected in ((wmma.matrix_a, of_a), (wmma.matrix_b, of_b)):
        for layout in layouts_of(use, kind):
            fragment = wmma.fragment(use, *size, kind, layout)
            stored = 1 if kind in (u4, s4, b1) else expected
            assert (fragment.num_elements, fragment.num_storage_elements) == (expected, stored)
            assert (fragment.element_type, fragment.storage_element_type) == (kind, STORAGE.get(kind, kind))
            assert fragment.x.dtype == DTYPES[fragment.storage_element_type]
            assert fragment.x.shape == (stored, 32)
    for kind_of_c in accumulators:
        fragment = wmma.fragment(wmma.accumulator, *size, kind_of_c)
        assert fragment.num_elements == fragment.num_storage_elements == of_c
        assert fragment.element_type is fragment.storage_element_type is kind_of_c
        assert (fragment.x.shape, fragment.x.dtype) == ((of_c, 32), DTYPES[kind_of_c])


def test_only_the_fragments_of_the_table_exist():
    kinds = [*DTYPES, tf32, u4, s4, b1]
    kinds.remove(wmma.unsigned)
    sizes = {row[2] for row in TABLE} | {(16, 8, 16), (8, 8, 16), (16, 16, 32)}
    expected = set(every_fragment())
    found = set()
    for use in (wmma.matrix_a, wmma.matrix_b, wmma.accumulator):
        layouts = [()] if use is wmma.accumulator else [(wmma.row_major,), (wmma.col_major,)]
        for arguments in [(use, *size, kind, *layout) for size in sizes for kind in kinds for layout in layouts]:
            try:
                wmma.fragment(*arguments)
            except wf.errors.InvalidOperand as error:
                assert "does not exist on sm_90; valid fragments: half 16x16x16" in str(error)  # noqa: PT017
            else:
                found.add(arguments)
    assert found == expected
    assert len(found) == 62 + 13  # multiplicands and accumulators


@pytest.mark.parametrize(
    ("arch", "kind", "size", "exists"),
    [
        ("sm_70", wmma.half, (16, 16, 16), True),
        ("sm_70", wmma.signed_char, (16, 16, 16), False),
        ("sm_75", wmma.signed_char, (16, 16, 16), True),
        ("sm_75", b1, (8, 8, 128), True),
        ("sm_75", wmma.bfloat16, (16, 16, 16), False),
        ("sm_75", tf32, (16, 16, 8), False),
        ("sm_75", wmma.double, (8, 8, 4), False),
        ("sm_80", wmma.double, (8, 8, 4), True),
        ("sm_80", tf32, (16, 16, 8), True),
        ("sm_120a", wmma.bfloat16, (32, 8, 16), True),
    ],
)
def test_what_exists_depends_on_the_architecture(arch, kind, size, exists):
    if exists:
        assert wmma.fragment(wmma.matrix_a, *size, kind, wmma.row_major, arch=arch).arch == arch.rstrip("a")
    else:
        with pytest.raises(
            wf.errors.InvalidOperand, match=f"does not exist on {arch}; valid fragments: half 16x16x16 8x32x16"
        ):
            wmma.fragment(wmma.matrix_a, *size, kind, wmma.row_major, arch=arch)


def refusal(*arguments, **options):
    with pytest.raises(wf.errors.InvalidOperand) as caught:
        wmma.fragment(*arguments, **options)
    return str(caught.value)


def test_an_error_lists_what_is_allowed():
    message = refusal(wmma.matrix_b, 8, 8, 32, s4, wmma.row_major)
    assert message.startswith("fragment matrix_b of experimental.precision.s4 8x8x32 row_major does not exist on sm_90")
    assert "experimental.precision.s4 8x8x32 (col_major only)" in message
    assert "precision.tf32 16x16x8; double 8x8x4" in message
    message = refusal(wmma.accumulator, 16, 16, 16, wmma.bfloat16)
    assert message.endswith(
        "valid fragments: half 16x16x16 8x32x16 32x8x16; float 16x16x16 8x32x16 32x8x16 16x16x8; "
        "int 16x16x16 8x32x16 32x8x16 8x8x32 8x8x128; double 8x8x4"
    )


def test_layouts_are_given_where_they_belong():
    message = refusal(wmma.accumulator, 16, 16, 16, wmma.float, wmma.row_major)
    assert message == (
        "fragment accumulator: expected no Layout, got row_major; pass mem_row_major or mem_col_major to "
        "load_matrix_sync and store_matrix_sync"
    )
    message = refusal(wmma.matrix_a, 16, 16, 16, wmma.half)
    assert message == "fragment matrix_a: expected the Layout row_major or col_major, got None"
    message = refusal(wmma.matrix_b, 16, 16, 16, wmma.half, wmma.mem_row_major)
    assert message == "fragment matrix_b: expected the Layout row_major or col_major, got mem_row_major"


def test_other_arguments_are_checked():
    kinds = "half, float, double, bfloat16, signed_char, unsigned_char, int, precision.tf32"
    assert f"expected one of {kinds}" in refusal(wmma.accumulator, 16, 16, 16, np.float16)
    assert refusal(wmma.accumulator, 16, 16, 16, wmma.unsigned).endswith("got unsigned")
    assert refusal(wmma.accumulator, 16, 16, 16, wmma).startswith("element type: expected one of half")
    assert refusal("a", 16, 16, 16, wmma.half) == "use: expected one of matrix_a, matrix_b, accumulator; got 'a'"
    assert refusal(wmma.accumulator, 16, 16.0, 16, wmma.half) == "n: expected an integer, got 16.0"
    with pytest.raises(wf.errors.IllegalInstruction, match="unknown arch 'sm_91'; expected one of sm_70, sm_72"):
        wmma.fragment(wmma.accumulator, 16, 16, 16, wmma.half, arch="sm_91")


def test_names_are_those_of_cuda():
    names = vars(wmma)
    assert names["__half"] is wmma.half
    assert names["__nv_bfloat16"] is wmma.bfloat16
    assert names["__float_to_tf32"] is wmma.float_to_tf32
    assert wmma.char is wmma.signed_char
    assert wmma.layout_t.mem_row_major is wmma.mem_row_major
    assert wmma.layout_t.mem_col_major is wmma.mem_col_major
    missing = [name for name in wmma.__all__ if name not in names]
    assert missing == []
    assert {"float", "int"}.isdisjoint(wmma.__all__)  # a star import does not hide Python's own


def test_pythons_float_and_int_mean_those_of_cuda():
    assert wmma.fragment(wmma.accumulator, 16, 16, 16, float).element_type is wmma.float
    assert wmma.fragment(wmma.accumulator, 16, 16, 16, int).element_type is wmma.int


@pytest.mark.parametrize("arguments", every_fragment(), ids=str)
def test_x_and_words_are_the_same_bits(arguments):
    fragment = wmma.fragment(*arguments)
    assert not fragment.words.any()
    assert (fragment.words.dtype, fragment.words.shape[0]) == (np.dtype(np.uint32), 32)
    rng = np.random.default_rng(1)
    fragment.words[...] = rng.integers(0, 1 << 32, fragment.words.shape, dtype=np.uint32)
    size = fragment.x.dtype.itemsize
    for lane in (0, 5, 31):
        stored = fragment.words[lane].tobytes()
        assert fragment.x[:, lane].tobytes() == stored
        assert fragment.x[0, lane].tobytes() == stored[:size]
    before = fragment.words.copy()
    fragment.x[-1, 7] = 1
    assert fragment.words[7].tobytes()[-size:] == np.array(1, fragment.x.dtype).tobytes()
    assert np.array_equal(np.delete(fragment.words, 7, axis=0), np.delete(before, 7, axis=0))


def test_elementwise_code_is_that_of_the_guide():
    fragment = wmma.fragment(wmma.accumulator, 16, 16, 16, wmma.float)
    fragment.x[...] = np.arange(256).reshape(8, 32)
    for t in range(fragment.num_elements):
        fragment.x[t] *= 0.5
    assert np.array_equal(fragment.x, np.arange(256).reshape(8, 32) / 2)
    fragment.x *= 2  # the whole at once
    assert np.array_equal(fragment.x, np.arange(256).reshape(8, 32))
    fragment.words = np.zeros((32, 8), np.uint32)
    assert not fragment.x.any()
    with pytest.raises(
        wf.errors.InvalidOperand, match=re.escape("expected registers uint32[..., 32, 8], got shape (8, 32)")
    ):
        fragment.words = np.zeros((8, 32), np.uint32)


def test_copies_are_independent():
    fragment = wmma.fragment(wmma.accumulator, 16, 16, 16, wmma.half)
    wmma.fill_fragment(fragment, 2.0)
    for other in (fragment.copy(), copy.copy(fragment), copy.deepcopy(fragment), pickle.loads(pickle.dumps(fragment))):  # noqa: S301
        other.x[0, 0] = 5
        assert (other.x[0, 0], other.x[0, 1], fragment.x[0, 0]) == (5, 2, 2)


def test_a_fragment_says_what_it_is():
    fragment = wmma.fragment(wmma.matrix_a, 32, 8, 16, wmma.half, wmma.col_major)
    assert repr(fragment) == "<fragment<matrix_a, 32, 8, 16, half, col_major> of sm_90>"
    assert (fragment.m, fragment.n, fragment.k) == (32, 8, 16)
    unmeasured = wmma.fragment(wmma.accumulator, 16, 16, 8, wmma.float, arch="sm_80")
    assert repr(unmeasured) == "<fragment<accumulator, 16, 16, 8, float> of sm_80, x in placeholder order>"


@pytest.mark.parametrize("arguments", every_fragment(), ids=str)
def test_the_layout_tells_what_each_element_is(arguments):
    fragment = wmma.fragment(*arguments)
    found = fragment.layout()
    slots = fragment.num_elements // fragment.num_storage_elements
    matrix = fragment.matrix()
    for t, lane, slot in [(0, 0, 0), (0, 21, slots - 1), (fragment.num_storage_elements - 1, 9, slots // 2)]:
        place = found.at(t=t, lane=lane, slot=slot)
        assert (t, lane, slot) in found.where(row=place.row, col=place.col)
        formulas = {name: eval(rule, {"lane": lane, "i": t * slots + slot}) for name, rule in found.formulas.items()}  # noqa: S307
        assert formulas == place._asdict()
    # one bit of x, through the map: the first holder of an element is what counts
    t, lane, slot = found.where(row=3, col=2)[0]
    bits = fragment.element_type.format.bits
    fragment.x.view(f"u{fragment.x.dtype.itemsize}")[t, lane] = 1 << (bits * slot if slots > 1 else 0)
    changed = np.argwhere(fragment.codes() != matrix.view(fragment.codes().dtype))
    assert changed.tolist() == [[3, 2]]


def test_the_layout_comes_with_its_evidence():
    found = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major).layout()
    assert found.evidence == wf.get("wmma.load.a.row.m16n16k16.f16").evidence("sm_90")
    assert (found.evidence.level, found.evidence.authority) == ("hardware", "measured")
    assert "H200" in found.evidence.detail
    assert str(found).startswith("x[i, lane] on sm_90: row = ")
    assert "each element has 2 copies (hardware: read off an H200" in str(found)
    bits = wmma.fragment(wmma.matrix_a, 8, 8, 128, b1, wmma.row_major).layout()
    assert str(bits).startswith("element i % 32 of x[i / 32, lane] on sm_90: row = lane >> 2, col = ")
    with pytest.raises(wf.errors.InvalidOperand, match=r"t must be in 0\.\.15, got 16"):
        found.at(t=16, lane=0)
    with pytest.raises(wf.errors.InvalidOperand, match=r"slot must be in 0\.\.0, got 1"):
        found.at(t=0, lane=0, slot=1)


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_89", "sm_120"])
def test_an_unmeasured_layout_is_refused(arch):
    fragment = wmma.fragment(wmma.accumulator, 16, 16, 16, wmma.half, arch=arch)
    said = f"the wmma fragments of {arch} were not measured; available: sm_90"
    with pytest.raises(wf.errors.NotModelled, match=said):
        fragment.layout()
