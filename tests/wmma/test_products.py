"""mma_sync and bmma_sync: an H200's bits, saturation, compatible fragments, unmeasured architectures."""

import copy

import numpy as np
import pytest

import warpfrag as wf
from warpfrag import wmma
from wmma.captured_wmma import captured_products, fragments_for, multiply

u4, s4, b1 = (getattr(wmma.experimental.precision, name) for name in ("u4", "s4", "b1"))
ROUNDED = {mma.name for mma in wf.find(op="wmma.mma") if mma.form.rounding}  # nvcuda::wmma rounds doubles to nearest
PRODUCTS = [mma for mma in wf.find(op="wmma.mma") if mma.name not in ROUNDED]


@pytest.mark.slow
def test_every_product_was_captured():
    assert len(ROUNDED) == 3 * 4  # rounding to zero, down and up, for each pair of layouts
    assert len(PRODUCTS) == 122
    assert set(captured_products()) == {mma.name for mma in PRODUCTS} | ROUNDED


@pytest.mark.parametrize("instruction", PRODUCTS, ids=str)
def test_products_are_those_of_the_hardware(instruction):
    """Random and special registers, copies unequal: the D registers of every captured case, in place and not."""
    cases = captured_products()[instruction.name]
    assert len(cases) >= 2
    d, a, b, c = fragments_for(instruction)
    for case in cases:
        for number in range(len(case.d)):
            a.words, b.words, c.words = case.a[number], case.b[number], case.c[number]
            multiply(instruction, d, a, b, c)
            assert np.array_equal(d.words, case.d[number]), case.operands
            assert np.array_equal(a.words, case.a[number])
            assert np.array_equal(c.words, case.c[number])
            if c.element_type is d.element_type:
                multiply(instruction, c, a, b, c)
                assert np.array_equal(c.words, case.d[number]), case.operands


def product_fragments(kind, kind_of_c, size, arch="sm_90", kind_of_d=None):
    a = wmma.fragment(wmma.matrix_a, *size, kind, wmma.row_major, arch=arch)
    b = wmma.fragment(wmma.matrix_b, *size, kind, wmma.col_major, arch=arch)
    c = wmma.fragment(wmma.accumulator, *size, kind_of_c, arch=arch)
    d = wmma.fragment(wmma.accumulator, *size, kind_of_d or kind_of_c, arch=arch)
    return d, a, b, c


def test_the_hardware_reads_the_first_copy():
    """Half fragments hold each element two or four times; a load writes all copies, a product reads the first."""
    for size, copies in (((16, 16, 16), (2, 2)), ((32, 8, 16), (1, 4)), ((8, 32, 16), (4, 1))):
        d, a, b, c = product_fragments(wmma.half, wmma.float, size)
        rng = np.random.default_rng(7)
        for fragment, count in ((a, copies[0]), (b, copies[1])):
            rows, cols = fragment.operand.shape
            values = rng.integers(-9, 9, (rows, cols)).astype(np.float16)
            wmma.load_matrix_sync(fragment, values if fragment is a else np.ascontiguousarray(values.T), 16)
            places = fragment.layout().where(row=5, col=6)
            assert len(places) == count
            assert {fragment.x[t, lane] for t, lane, _ in places} == {values[5, 6]}
        expected = (a.matrix().astype(np.float32) @ b.matrix().astype(np.float32)).astype(np.float32)
        wmma.mma_sync(d, a, b, c)
        assert np.array_equal(d.matrix(), expected)
        for fragment in (a, b):
            for t, lane, _ in fragment.layout().where(row=5, col=6)[1:]:
                fragment.x[t, lane] = 99
        wmma.mma_sync(d, a, b, c)
        assert np.array_equal(d.matrix(), expected)
        t, lane, _ = a.layout().where(row=5, col=6)[0]
        a.x[t, lane] += 1
        wmma.mma_sync(d, a, b, c)
        expected[5] += b.matrix()[6]
        assert np.array_equal(d.matrix(), expected)


# Saturation

HALF_CODES = {"inf": 0x7C00, "max": 0x7BFF, "nan": 0x7E01, "sign": 0x8000}
FLOAT_CODES = {"inf": 0x7F800000, "max": 0x7F7FFFFF, "nan": 0x7FC00001, "sign": 0x80000000}
DOUBLE_CODES = {
    "inf": 0x7FF0000000000000,
    "max": 0x7FEFFFFFFFFFFFFF,
    "nan": 0x7FF8000000000001,
    "sign": 0x8000000000000000,
}


@pytest.mark.parametrize(
    ("kind", "kind_of_c", "size", "codes"),
    [
        (wmma.half, wmma.half, (16, 16, 16), HALF_CODES),
        (wmma.half, wmma.float, (16, 16, 16), FLOAT_CODES),
        (wmma.bfloat16, wmma.float, (32, 8, 16), FLOAT_CODES),
        (wmma.precision.tf32, wmma.float, (16, 16, 8), FLOAT_CODES),
        (wmma.double, wmma.double, (8, 8, 4), DOUBLE_CODES),
    ],
    ids=["half", "float", "float of bfloat16", "float of tf32", "double"],
)
def test_satf_of_floats_replaces_the_result_once(kind, kind_of_c, size, codes):
    d, a, b, c = product_fragments(kind, kind_of_c, size)
    inf, nan, sign, largest = codes["inf"], codes["nan"], codes["sign"], codes["max"]
    given = c.codes()
    given[0, :6] = [inf, inf | sign, nan, nan | sign, largest, sign]
    c.set_codes(given)
    wmma.mma_sync(d, a, b, c)
    assert d.codes()[0, :2].tolist() == [inf, inf | sign]
    assert np.isnan(d.matrix()[0, 2:4]).all()
    wmma.mma_sync(d, a, b, c, True)
    assert d.codes()[0, :5].tolist() == [largest, largest | sign, 0, 0, largest]
    assert not d.matrix()[0, 5:].any()
    wmma.mma_sync(c, a, b, c, satf=True)  # in place
    assert np.array_equal(c.words, d.words)


@pytest.mark.parametrize(("kind_of_c", "codes"), [(wmma.half, HALF_CODES), (wmma.double, DOUBLE_CODES)])
def test_satf_takes_what_overflows(kind_of_c, codes):
    kind, size = (wmma.half, (16, 16, 16)) if kind_of_c is wmma.half else (wmma.double, (8, 8, 4))
    d, a, b, c = product_fragments(kind, kind_of_c, size)
    limit = np.finfo(c.x.dtype).max
    wmma.fill_fragment(a, 1.0)
    wmma.fill_fragment(b, limit / 2)
    wmma.fill_fragment(c, limit)
    wmma.mma_sync(d, a, b, c)
    assert (d.codes() == codes["inf"]).all()
    wmma.mma_sync(d, a, b, c, satf=True)
    assert (d.codes() == codes["max"]).all()


@pytest.mark.parametrize(
    ("kind", "size", "most"),
    [
        (wmma.signed_char, (16, 16, 16), 127),
        (wmma.unsigned_char, (8, 32, 16), 255),
        (s4, (8, 8, 32), 7),
        (u4, (8, 8, 32), 15),
    ],
    ids=["signed_char", "unsigned_char", "s4", "u4"],
)
def test_satf_of_integers_clamps_the_sum(kind, size, most):
    d, a, b, c = product_fragments(kind, wmma.int, size)
    limit = 2**31 - 1
    wmma.fill_fragment(a, most)
    wmma.fill_fragment(b, most)
    wmma.fill_fragment(c, limit)
    total = size[2] * most * most
    wmma.mma_sync(d, a, b, c)
    assert (d.matrix() == limit + total - 2**32).all()
    wmma.mma_sync(d, a, b, c, satf=True)
    assert (d.matrix() == limit).all()
    if most in (127, 7):
        wmma.fill_fragment(b, -most)
        wmma.fill_fragment(c, -limit)
        wmma.mma_sync(d, a, b, c, satf=True)
        assert (d.matrix() == -limit - 1).all()


# Bits


@pytest.mark.parametrize("operation", ["XOR", "AND"])
def test_products_of_bits(operation):
    d, a, b, c = product_fragments(b1, wmma.int, (8, 8, 128))
    rng = np.random.default_rng(8)
    bits_a, bits_b = rng.integers(0, 2, (8, 128)), rng.integers(0, 2, (128, 8))
    wmma.load_matrix_sync(a, np.packbits(bits_a, axis=1, bitorder="little"), 128)
    wmma.load_matrix_sync(b, np.packbits(np.ascontiguousarray(bits_b.T), axis=1, bitorder="little"), 128)
    wmma.fill_fragment(c, -5)
    experimental = wmma.experimental
    op = getattr(experimental, f"bmmaBitOp{operation}")
    experimental.bmma_sync(d, a, b, c, op, experimental.bmmaAccumulateOpPOPC)
    pairs = bits_a[:, :, None] ^ bits_b if operation == "XOR" else bits_a[:, :, None] & bits_b
    assert np.array_equal(d.matrix(), pairs.sum(axis=1) - 5)
    copied = copy.deepcopy(d)
    experimental.bmma_sync(copied, copy.deepcopy(a), b, c, op)  # a copy is as good
    assert np.array_equal(copied.words, d.words)
    if operation == "XOR":  # the default
        experimental.bmma_sync(c, a, b, c)
        assert np.array_equal(c.words, d.words)


# What fits with what


def refusal(call, *arguments):
    before = arguments[0].words.copy() if hasattr(arguments[0], "words") else None
    with pytest.raises(wf.WarpfragError) as caught:
        call(*arguments)
    assert before is None or np.array_equal(arguments[0].words, before)
    return str(caught.value)


def test_rule_uses_fit():
    d, a, b, c = product_fragments(wmma.half, wmma.float, (16, 16, 16))
    message = refusal(wmma.mma_sync, d, b, a, c)
    given = "<fragment<matrix_b, 16, 16, 16, half, col_major> of sm_90>"
    assert message == f"mma_sync: expected a to be matrix_a, got {given}"
    assert refusal(wmma.mma_sync, a, a, b, c).startswith(
        "mma_sync: expected d to be accumulator, got <fragment<matrix_a"
    )
    assert refusal(wmma.mma_sync, d, a, b, a).startswith("mma_sync: expected c to be accumulator")
    assert refusal(wmma.mma_sync, d, a, b, c.words) == "mma_sync: expected c to be a fragment, got ndarray"


def test_rule_sizes_fit():
    d, a, b, c = product_fragments(wmma.half, wmma.float, (16, 16, 16))
    other = product_fragments(wmma.half, wmma.float, (32, 8, 16))
    expected = "mma_sync: expected d, a, b and c with the same size m x n x k, got "
    message = refusal(wmma.mma_sync, d, a, other[2], c)
    assert message == expected + "d 16x16x16, a 16x16x16, b 32x8x16, c 16x16x16"
    for number in range(4):
        mixed = [d, a, b, c]
        mixed[number] = other[number]
        assert refusal(wmma.mma_sync, *mixed).startswith(expected)


def test_rule_types_fit():
    d, a, b, c = product_fragments(wmma.half, wmma.float, (16, 16, 16))
    brain = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.bfloat16, wmma.row_major)
    bytes_of_b = wmma.fragment(wmma.matrix_b, 16, 16, 16, wmma.unsigned_char, wmma.row_major)
    integers = wmma.fragment(wmma.accumulator, 16, 16, 16, wmma.int)
    message = refusal(wmma.mma_sync, d, brain, b, c)
    assert message == "mma_sync: expected a and b of the same type, got bfloat16 and half"
    signed = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.signed_char, wmma.row_major)
    message = refusal(wmma.mma_sync, integers, signed, bytes_of_b, integers)
    assert message == "mma_sync: expected a and b of the same type, got signed_char and unsigned_char"
    assert refusal(wmma.mma_sync, integers, a, b, c) == "mma_sync: with half, d must be half or float; got int"
    assert refusal(wmma.mma_sync, d, a, b, integers) == "mma_sync: with half, c must be half or float; got int"
    halves = wmma.fragment(wmma.accumulator, 16, 16, 16, wmma.half)
    brain_b = wmma.fragment(wmma.matrix_b, 16, 16, 16, wmma.bfloat16, wmma.row_major)
    assert refusal(wmma.mma_sync, d, brain, brain_b, halves) == "mma_sync: with bfloat16, c must be float; got half"


def test_rule_architectures_do_not_mix():
    d, a, b, c = product_fragments(wmma.half, wmma.float, (16, 16, 16))
    other = product_fragments(wmma.half, wmma.float, (16, 16, 16), arch="sm_80")
    expected = "mma_sync: expected d, a, b and c with the same arch, got "
    for number in range(4):
        mixed = [d, a, b, c]
        mixed[number] = other[number]
        assert refusal(wmma.mma_sync, *mixed).startswith(expected)
    message = refusal(wmma.mma_sync, d, a, other[2], c)
    assert message == expected + "d sm_90, a sm_90, b sm_80, c sm_90"
    # sm_90a is what the assembler calls the same machine with more instructions
    same = wmma.fragment(wmma.matrix_b, 16, 16, 16, wmma.half, wmma.col_major, arch="sm_90a")
    wmma.fill_fragment(a, 1.0)
    wmma.fill_fragment(same, 2.0)
    wmma.mma_sync(d, a, same, c)
    assert (d.matrix() == 32).all()


def test_bits_have_a_function_of_their_own():
    of_bits = product_fragments(b1, wmma.int, (8, 8, 128))
    message = refusal(wmma.mma_sync, *of_bits)
    assert message == "mma_sync: for bits, use experimental.bmma_sync, which takes the bit operation"
    bmma_sync = wmma.experimental.bmma_sync
    message = refusal(bmma_sync, *product_fragments(s4, wmma.int, (8, 8, 32)))
    assert message.startswith("bmma_sync: expected fragments of experimental.precision.b1, got experimental.precision")
    message = refusal(bmma_sync, *of_bits, "xor")
    assert message == "bmma_sync: expected bmmaBitOpXOR or bmmaBitOpAND, got 'xor'"
    message = refusal(bmma_sync, *of_bits, wmma.experimental.bmmaBitOpAND, 1)
    assert message == "bmma_sync: expected bmmaAccumulateOpPOPC, got 1"


def test_and_of_bits_needs_sm_80():
    of_bits = product_fragments(b1, wmma.int, (8, 8, 128), arch="sm_75")
    message = refusal(wmma.experimental.bmma_sync, *of_bits, wmma.experimental.bmmaBitOpAND)
    assert "not available on sm_75; it is legal on sm_80" in message
    wmma.experimental.bmma_sync(*of_bits, wmma.experimental.bmmaBitOpXOR)
    assert not of_bits[0].words.any()


# Architectures whose fragments nobody measured


def test_products_are_exact_where_the_map_is_unknown():
    """A wmma of 16 x 16 x 16 halves on sm_80 is two mma of 16 x 8 x 16, whose registers the ISA does fix."""
    rng = np.random.default_rng(9)
    A, B = (rng.standard_normal((16, 16)).astype(np.float16) for _ in "AB")
    C = rng.standard_normal((16, 16)).astype(np.float32)
    D = np.zeros((16, 16), np.float32)
    d, a, b, c = product_fragments(wmma.half, wmma.float, (16, 16, 16), arch="sm_80")
    wmma.load_matrix_sync(a, A, 16)
    wmma.load_matrix_sync(b, np.ascontiguousarray(B.T), 16)
    wmma.load_matrix_sync(c, C, 16, wmma.mem_row_major)
    wmma.mma_sync(d, a, b, c)
    for t in range(d.num_elements):
        d.x[t] *= 2  # all elements alike: no map needed
    wmma.store_matrix_sync(D, d, 16, wmma.mem_row_major)
    mma = wf.get("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    halves = [mma(A, B[:, n : n + 8], C[:, n : n + 8], arch="sm_80") for n in (0, 8)]
    assert np.array_equal(D, 2 * np.concatenate(halves, axis=1))
    here = [mma(A, B[:, n : n + 8], C[:, n : n + 8], arch="sm_90") for n in (0, 8)]
    assert not np.array_equal(D, 2 * np.concatenate(here, axis=1))  # and sm_90 computes something else


@pytest.mark.parametrize("arch", ["sm_75", "sm_86", "sm_100", "sm_121"])
def test_integer_products_are_exact_where_the_map_is_unknown(arch):
    rng = np.random.default_rng(10)
    d, a, b, c = product_fragments(wmma.signed_char, wmma.int, (32, 8, 16), arch=arch)
    A, B = rng.integers(-128, 128, (32, 16), dtype=np.int8), rng.integers(-128, 128, (16, 8), dtype=np.int8)
    wmma.load_matrix_sync(a, A, 16)
    wmma.load_matrix_sync(b, np.ascontiguousarray(B.T), 16)
    wmma.fill_fragment(c, 2**31 - 1)
    D = np.zeros((8, 32), np.int32)
    wmma.mma_sync(d, a, b, c, satf=True)
    wmma.store_matrix_sync(D, d, 32, wmma.mem_col_major)
    exact = A.astype(np.int64) @ B.astype(np.int64) + 2**31 - 1
    assert np.array_equal(D.T, np.minimum(exact, 2**31 - 1))


def test_what_nobody_published_is_refused():
    """C and D of different types: it is not documented when sm_70 converts."""
    fragments = product_fragments(wmma.half, wmma.float, (16, 16, 16), arch="sm_70", kind_of_d=wmma.half)
    with pytest.raises(wf.errors.NotModelled, match="not modelled on sm_70: the conversion of C"):
        wmma.mma_sync(*fragments)
