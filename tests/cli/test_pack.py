"""`warpfrag pack` and `warpfrag unpack`: matrices to registers, and back."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpfrag as wf
from warpfrag.cli.io.matrix_files import exact_value, short_text
from warpfrag.formats.codes import from_codes, natural_dtype

NAME = "mma.m16n8k16.f32.f16.f16.f32"
BYTES = "mma.m16n8k32.s32.s8.s8.s32"
SPARSE = "mma.sp.m16n8k32.f32.f16.f16.f32"
SCALED = "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
QUAD = "mma.m8n8k4.row.col.f32.f16.f16.f32"


def text(matrix, separator=" "):
    return "\n".join(separator.join(map(str, row)) for row in np.asarray(matrix).reshape(-1, matrix.shape[-1]).tolist())


def words_of(answer):
    assert answer.code == 0
    return np.array([[int(word, 16) for word in line.split()] for line in answer.lines], np.uint32)


def dump(words):
    return "\n".join(" ".join(f"0x{word:08x}" for word in row) for row in np.asarray(words).reshape(32, -1).tolist())


A = np.random.default_rng(1).integers(-9, 10, (16, 16))


@pytest.mark.parametrize("separator", [" ", ",", ", ", ";", "\t"])
def test_pack_reads_text_with_any_separator(run, separator):
    assert np.array_equal(words_of(run("pack", NAME, "a", stdin=text(A, separator))), wf.get(NAME).a.pack(A))


@pytest.mark.parametrize("shown", [str(A), repr(A.tolist()), "# a comment\n\n" + text(A), text(A).replace("\n", " ")])
def test_pack_reads_matrices_as_they_are_printed(run, shown):
    assert np.array_equal(words_of(run("pack", NAME, "a", stdin=shown)), wf.get(NAME).a.pack(A))


def test_pack_reads_files_of_text_and_npy(run, tmp_path):
    half = np.random.default_rng(2).standard_normal((16, 16)).astype(np.float16)
    np.save(tmp_path / "a.npy", half)
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + text(half).encode())  # with a byte order mark
    expected = wf.get(NAME).a.pack(half)

    assert np.array_equal(words_of(run("pack", NAME, "a", tmp_path / "a.npy")), expected)
    assert np.array_equal(words_of(run("pack", NAME, "a", tmp_path / "a.txt")), expected)
    assert np.array_equal(words_of(run("pack", NAME, "a", "-", stdin=(tmp_path / "a.npy").read_bytes())), expected)


def test_pack_in_json(run):
    assert run("pack", NAME, "a", "--json", stdin=text(A)).json == {
        "schema": 2,
        "verb": "pack",
        "instruction": wf.get(NAME).name,
        "operand": "a",
        "words": wf.get(NAME).a.pack(A).tolist(),
    }


OPERANDS = [
    (NAME, "a"),
    (NAME, "d"),
    (BYTES, "b"),
    ("mma.m16n8k64.s32.u4.s4.s32", "a"),
    ("mma.m16n8k64.s32.u4.s4.s32", "b"),
    ("mma.m16n8k128.s32.b1.b1.s32.and.popc", "a"),
    ("mma.m16n8k16.f64.f64.f64.f64", "a"),
    ("mma.m16n8k8.f32.bf16.bf16.f32", "a"),
    ("mma.m16n8k8.f32.tf32.tf32.f32", "b"),
    ("mma.m16n8k32.f32.e4m3.e5m2.f32", "a"),
    ("mma.m16n8k32.f32.e4m3.e5m2.f32", "b"),
    ("mma.m16n8k32.kind::f8f6f4.f32.e3m2.e2m1.f32", "a"),
    ("mma.m16n8k32.kind::f8f6f4.f32.e3m2.e2m1.f32", "b"),
    (SCALED, "a"),
    (SPARSE, "a"),
    (QUAD, "c"),
    ("wmma.load.a.row.m16n16k16.f16", "a"),
    ("ldmatrix.m8n8.x4.b16", "d"),
]


def some_codes(operand):
    """Return random codes without NaNs, because a value does not keep their payload."""
    number_format = operand.format
    rng = np.random.default_rng(3)
    codes = rng.integers(0, number_format.codes, operand.shape, dtype=np.uint64)
    for index in np.ndindex(*operand.shape):
        if number_format.is_nan(int(codes[index])):
            codes[index] = 0
    return codes >> number_format.unused << number_format.unused


@pytest.mark.parametrize(("name", "operand"), OPERANDS)
def test_raw_codes_go_to_registers_and_back(run, name, operand):
    codes = some_codes(wf.get(name).operands[operand])
    packed = run("pack", name, operand, "--raw", stdin=text(codes))
    back = run("unpack", name, operand, "--raw", stdin=packed.out)

    assert np.array_equal(words_of(packed), wf.get(name).operands[operand].pack(codes, raw=True))
    assert run("pack", name, operand, "--raw", stdin=back.out).out == packed.out
    assert np.array_equal(
        np.array(run("unpack", name, operand, "--raw", "--json", stdin=packed.out).json["matrix"]), codes
    )


@pytest.mark.parametrize(("name", "operand"), OPERANDS)
def test_values_go_to_text_and_back(run, name, operand):
    words = wf.get(name).operands[operand].pack(some_codes(wf.get(name).operands[operand]), raw=True)
    short = run("unpack", name, operand, stdin=dump(words))

    assert run("pack", name, operand, "--rounding", "rne", stdin=short.out).out.split() == dump(words).split()


def test_values_are_printed_with_as_few_digits_as_tell_them_apart(run):
    words = wf.get(NAME).a.pack(np.full((16, 16), 0.1, np.float16))
    row = run("unpack", NAME, "a", stdin=dump(words)).lines[0].split()

    assert row == ["0.1"] * 16


def test_negative_zero_and_what_is_not_finite_survive(run):
    d = np.array([-0.0, np.inf, -np.inf, np.nan] * 32, np.float32).reshape(16, 8)
    answer = run("unpack", NAME, "d", stdin=dump(wf.get(NAME).d.pack(d)))

    assert answer.lines[0].split() == ["-0.0", "inf", "-inf", "nan"] * 2
    assert np.array_equal(words_of(run("pack", NAME, "d", stdin=answer.out)), wf.get(NAME).d.pack(d))


def test_metadata_and_scales(run):
    codes = np.random.default_rng(4).choice([0b0100, 0b1001, 0b1110], (16, 8))
    metadata = run("pack", SPARSE, "metadata", "--selector", 1, stdin=text(codes))
    assert np.array_equal(words_of(metadata)[:, 0], wf.get(SPARSE).metadata.pack(codes, selector=1))
    back = run("unpack", SPARSE, "metadata", "--selector", 1, stdin=metadata.out)
    assert back.lines[0].split() == [f"0b{code:04b}" for code in codes[0]]
    assert run("pack", SPARSE, "metadata", "--selector", 1, stdin=back.out).out == metadata.out

    scales = 2.0 ** np.random.default_rng(5).integers(-9, 9, (2, 8))
    packed = run("pack", SCALED, "scale_b", "--byte-id", 2, "--thread-id", 3, stdin=text(scales))
    assert np.array_equal(words_of(packed)[:, 0], wf.get(SCALED).scale_b.pack(scales, byte_id=2, thread_id=3))
    assert run("unpack", SCALED, "scale_b", "--byte-id", 2, "--thread-id", 3, "--json", stdin=packed.out).json[
        "matrix"
    ] == (scales.tolist())


def test_full_thins_a_sparse_a_first(run):
    full = np.tile([5, 0, 0, 7, 0, 6, 8, 0], (16, 4))
    stored, codes = wf.get(SPARSE).compress(full)

    assert np.array_equal(words_of(run("pack", SPARSE, "a", "--full", stdin=text(full))), wf.get(SPARSE).a.pack(stored))
    metadata = words_of(run("pack", SPARSE, "metadata", "--full", stdin=text(full)))
    assert np.array_equal(metadata[:, 0], wf.get(SPARSE).metadata.pack(codes))


def test_the_two_words_of_an_f64_register_may_be_given_as_one(run):
    name = "mma.m8n8k4.f64.f64.f64.f64"
    matrix = np.random.default_rng(6).standard_normal((8, 8))
    words = wf.get(name).c.pack(matrix)
    whole = "\n".join(" ".join(f"0x{register:016x}" for register in row) for row in words.view(np.uint64).tolist())

    assert run("unpack", name, "c", stdin=whole).out == run("unpack", name, "c", stdin=dump(words)).out
    assert np.array_equal(np.array(run("unpack", name, "c", "--json", stdin=whole).json["matrix"]), matrix)


@pytest.mark.parametrize(
    ("operand", "stdin", "message"),
    [
        ("a", "1 2 x", "stdin, line 1: 'x' is not a number"),
        ("a", "1 3c00", "stdin, line 1: '3c00' is not a number"),
        ("a", "a b", "stdin, line 1: 'a' is not a number"),
        ("a", "", "stdin: expected 16\N{MULTIPLICATION SIGN}32 numbers, 512 in all, got 0"),
        ("a", "1 2 3", "stdin: expected 16\N{MULTIPLICATION SIGN}32 numbers, 512 in all, got 3"),
        ("b", "1 " * 32 + "\n" + "1 " * 224, "8 in each line, got 32 in line 1"),
        ("a", "nan " + "0 " * 511, "element (0, 0) is 'nan'"),
        ("a", "0 300 " + "0 " * 510, "element (0, 1) is '300', but s8 holds the integers -128..127"),
        (
            "a",
            "0.5 " + "0 " * 511,
            "element (0, 0) is '0.5', but that is not exact in s8; --rounding rne rounds it to the nearest value",
        ),
        ("a", str(1 << 70) + " 0" * 511, "element (0, 0) is '1180591620717411303424'"),
        ("a", b"\xff\xfe", "stdin is neither UTF-8 text nor a .npy file"),
        ("a", b"\x93NUMPY", "stdin is not an array of numbers"),
    ],
)
def test_a_bad_matrix_is_refused(refused, operand, stdin, message):
    assert message in refused("pack", BYTES, operand, stdin=stdin)


def test_an_inexact_value_is_refused_unless_rounded(run, refused):
    stdin = "0.1 " + "0 " * 255

    assert "is '0.1', but that is not exact in f16; --rounding rne" in refused("pack", NAME, "a", stdin=stdin)
    assert words_of(run("pack", NAME, "a", "--rounding", "rne", stdin=stdin))[0, 0] == 0x2E66


def test_files_that_cannot_be_read_are_refused(refused, tmp_path):
    missing, folder = str(tmp_path / "missing.txt"), str(tmp_path)

    assert refused("pack", NAME, "a", missing) == f"cannot read {missing!r}: No such file or directory"
    assert refused("unpack", NAME, "a", folder) == f"cannot read {folder!r}: Is a directory"
    assert refused("unpack", NAME, "b", "sample:A.npy") == "'sample:A.npy' is a .npy file, but text is expected"


def test_an_array_of_another_shape_is_refused(refused, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((8, 16)))

    assert refused("pack", NAME, "a", tmp_path / "a.npy").endswith("expected an array of shape (16, 16), got (8, 16)")


def test_what_cannot_be_packed_is_refused(refused):
    assert "addresses of ldmatrix" in refused("pack", "ldmatrix.m8n8.x4.b16", "addresses")
    assert "addresses of ldmatrix" in refused("unpack", "ldmatrix.m8n8.x4.b16", "addresses")
    assert "--full applies to A and metadata" in refused("pack", SPARSE, "b", "--full")
    assert "only a sparse A has stored elements" in refused("pack", NAME, "a", "--full", stdin=text(A))
    assert "--selector does not apply to a of" in refused("pack", SPARSE, "a", "--selector", 0)
    assert "were not measured" in refused("unpack", "ldmatrix.m8n16.x4.s8.s4", "d")


def test_unequal_copies_are_refused_if_asked(run, refused):
    name = "wmma.load.a.row.m16n16k16.f16"
    words = wf.get(name).a.pack(A)
    words[3, 5] ^= 1

    assert run("unpack", name, "a", stdin=dump(words)).code == 0
    assert "copies of one element differ" in refused("unpack", name, "a", "--strict", stdin=dump(words))


def test_minus_zero_keeps_its_sign(run):
    assert words_of(run("pack", NAME, "a", stdin="-0 " + "0 " * 255))[0, 0] == 0x8000
    assert words_of(run("pack", BYTES, "a", stdin="-0 " + "0 " * 511))[0, 0] == 0


F64 = "mma.m8n8k4.f64.f64.f64.f64"
JUST_ABOVE_A_TIE = (
    "1.000488281250000000001"  # of f16: the tie itself rounds down, and it is the float64 nearest to this
)


@pytest.mark.parametrize(
    ("name", "operand", "word", "code", "is_exact"),
    [
        (NAME, "a", JUST_ABOVE_A_TIE, 0x3C01, False),
        (NAME, "a", "1.00048828125", 0x3C00, False),
        (NAME, "a", "-1.000488281249999999999", 0xBC00, False),
        (NAME, "a", "1.0009765625", 0x3C01, True),
        (NAME, "a", "0x1.0020000000000001p0", 0x3C01, False),
        (NAME, "a", "0x1.004p0", 0x3C01, True),
        (NAME, "a", "1e400", 0x7C00, False),
        (NAME, "a", "-1e999999999999999999999", 0xFC00, False),
        (NAME, "a", "-1e-999999999999999999999", 0x8000, False),
        (NAME, "a", "0e999999999999999999999", 0, True),
        (NAME, "a", "0x1p-99999999999999999999", 0, False),
        (NAME, "a", "2.98023223876953125e-08", 0, False),
        (NAME, "a", "2.98023223876953125000000000000000001e-08", 1, False),
        (NAME, "a", "." + "0" * 3000 + "1e3001", 0x3C00, True),
        (NAME, "a", "-Infinity", 0xFC00, True),
        (F64, "c", "9007199254740993", 0x4340000000000000, False),
        (F64, "c", "9007199254740993.0000000000000000000000001", 0x4340000000000001, False),
        (F64, "c", "9007199254740992", 0x4340000000000000, True),
        (F64, "c", "0.1", 0x3FB999999999999A, False),
        (F64, "c", "1.7976931348623158079e308", 0x7FEFFFFFFFFFFFFF, False),
        (F64, "c", "1.797693134862315808e308", 0x7FF0000000000000, False),
        (BYTES, "a", "0.5000000000000000000001", 1, False),
        (BYTES, "a", "0.5", 0, False),
        (BYTES, "a", "-0x80", 0x80, True),
        (BYTES, "a", "12.70e1", 127, True),
    ],
)
def test_numbers_of_a_text_are_read_exactly_and_rounded_once(run, refused, name, operand, word, code, is_exact):
    registers = wf.get(name).operands[operand]
    stdin = word + " 0" * (np.prod(registers.shape) - 1)
    rounded = words_of(run("pack", name, operand, "--rounding", "rne", stdin=stdin))

    assert registers.unpack(rounded, raw=True).flat[0] == code
    if is_exact:
        assert np.array_equal(words_of(run("pack", name, operand, stdin=stdin)), rounded)
    else:
        assert f"element (0, 0) is {word!r}, but " in refused("pack", name, operand, stdin=stdin)


@pytest.mark.parametrize(
    "word",
    [
        *["1e", "e5", ".", "0x", "0x.", "0xp3", "0b", "0b2", "1_000", "--1", "1e5.5", "infinit"],
        *["\N{ARABIC-INDIC DIGIT ONE}", "1" * 5000, "1e" + "1" * 5000, "0x" + "1" * 5000],
    ],
)
def test_what_is_no_number_is_refused(refused, word):
    message = refused("pack", BYTES, "a", stdin=word + " 0" * 511)

    assert message.startswith("stdin, line 1: '")
    assert "is not a number" in message
    assert len(message) < 500


@pytest.mark.parametrize("word", ["-1", "256", "0.5", "nan", "1e30"])
def test_a_code_that_the_format_has_not_is_refused(refused, word):
    expected = f"element (0, 0) is {word!r}, but s8 codes are 0..0xff"
    assert expected in refused("pack", BYTES, "a", "--raw", stdin=word + " 0" * 511)


def header(text, data=b"", *, version=1):
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode() + data


def described(descr="'<f2'", shape="(16, 16)", order="False"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header(described(shape="(1000000000000, 1000000)")), "is not an array of numbers"),
        (header(described(shape=f"({10**30}, 2)")), "is not an array of numbers"),
        (header(described(shape="(-16, -16)"), bytes(512)), "is not an array of numbers"),
        (header(described(shape="(-1,)"), bytes(512)), "is not an array of numbers"),
        (header(described(shape="(0, 16)")), "stdin is an empty array"),
        (header(described(shape="(16.0, 16)"), bytes(512)), "is not an array of numbers"),
        (header(described(shape="16"), bytes(512)), "is not an array of numbers"),
        (header(described(), bytes(511)), "is not an array of numbers"),
        (header(described("'|O'"), bytes(512)), "is not an array of numbers"),
        (header(described("'<c8'"), bytes(2048)), "its dtype is 'complex64'"),
        (header(described("'<U1000000'"), bytes(512)), "is not an array of numbers"),
        (header(described("[('a', '<f2')]"), bytes(512)), "its dtype is"),
        (header(described("('<f2', (2, 2))"), bytes(2048)), "is not an array of numbers"),
        (header(described("'no such'"), bytes(512)), "is not an array of numbers"),
        (header("{" * 5000), "is not an array of numbers"),
        (header("(" * 9000 + ")" * 9000), "is not an array of numbers"),
        (header(described(), bytes(512), version=9), "is not an array of numbers"),
        (header(described())[:40], "is not an array of numbers"),
        (b"\x93NUMPY\x01\x00\xff\xff", "is not an array of numbers"),
        (b"\x80\x04N.", "neither UTF-8 text nor a .npy file"),
        (b"PK\x03\x04", "is not an array of numbers"),
        (b"\xff\xfe1\x00", "neither UTF-8 text nor a .npy file"),
        (b"\0" * 100, "is not a number"),
    ],
    ids=lambda part: part[:60] if isinstance(part, str) else "",
)
def test_an_array_file_is_not_trusted(refused, content, message):
    for words in (["pack", NAME, "a"], ["execute", NAME, "--a", "-"]):
        assert message in refused(*words, stdin=content)


def test_arrays_of_any_order_and_byte_order_are_read(run, tmp_path):
    for array in (np.asfortranarray(A.astype(np.float32)), A.astype(">f8"), A.astype(np.int8)):
        np.save(tmp_path / "a.npy", array)
        assert np.array_equal(words_of(run("pack", NAME, "a", tmp_path / "a.npy")), wf.get(NAME).a.pack(A))


@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=None).filter(lambda number: abs(number.adjusted()) < 1500)
)
def test_a_decimal_is_the_fraction_that_it_is(number):
    found = exact_value(str(number), "here")

    assert found == Fraction(number)
    assert isinstance(found, float) == (number.is_signed() and not number)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_hexadecimal_number_is_the_value_again(value):
    assert Fraction(exact_value(value.hex(), "here")) == Fraction(value)


@given(st.sampled_from(["f16", "bf16", "tf32", "f32", "f64", "e4m3", "e5m2", "e2m1", "ue8m0"]), st.data())
def test_the_shortest_text_of_a_code_rounds_to_it(name, data):
    number_format = wf.FORMATS[name]
    code = data.draw(st.integers(0, number_format.codes - 1)) >> number_format.unused << number_format.unused
    if number_format.is_nan(code):
        code = number_format.nan_code
    with np.errstate(over="ignore"):  # a few digits of a large value may lie beyond the largest one
        text = short_text(natural_dtype(number_format))(from_codes(number_format, np.array([code], np.uint64))[0])

    assert number_format.encode(exact_value(text, "here"), rounding="rne") == code


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("tcgen05.mma.cta_group::1.kind::f16.m64n8k16.f16.f16.f16", "d"),
        ("tcgen05.mma.cta_group::2.kind::i8.m256n32k32.s32.s8.s8", "d"),
        ("tcgen05.mma.cta_group::1.kind::f8f6f4.m128n8k32.f32.e2m1.e4m3", "a"),
        ("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.m128n8k64.f32.e2m1.e2m1.ue8m0", "scale_a"),
        ("tcgen05.mma.sp.cta_group::1.kind::f16.m128n8k32.f32.f16.f16", "metadata"),
    ],
)
def test_tensor_memory_comes_back(run, refused, name, role):
    operand = wf.get(name).operands[role]
    shape = operand.shape[-2:]
    codes = np.random.default_rng(2).choice([4, 8, 9], shape)
    options = () if role == "metadata" else ("--raw",)
    answer = run("pack", name, role, *options, stdin=text(codes))
    columns = operand.pack(codes.astype(np.uint8), **({} if role == "metadata" else {"raw": True}))
    assert answer.lines[5].rpartition("lane 5: ")[2] == " ".join(
        f"0x{word:08x}" for word in columns.reshape(-1, columns.shape[-1])[5]
    )
    back = run("unpack", name, role, *options, stdin=answer.out)
    numbers = [[int(word, 0) for word in line.split()] for line in back.lines]
    assert np.array_equal(numbers, codes)
    if columns.ndim == 2:  # the lanes of two blocks need labels
        unnamed = "\n".join(line.partition(": ")[2] for line in answer.lines)
        assert run("unpack", name, role, *options, stdin=unnamed).out == back.out
    assert "lane 1 is missing" in refused("unpack", name, role, stdin=answer.lines[0])
    assert "for lane 3, got " in refused("unpack", name, role, stdin=f"{answer.out}\nlane 3: 0")
