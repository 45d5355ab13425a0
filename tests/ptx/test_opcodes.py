"""Opcode rows compared with plain definitions, and approximate opcodes with an H200."""

import gzip
import json
import random
from hashlib import sha256
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from oracle.rounded import rounded
from tools import opcodes
from tools.opcodes import THREADS, cases, emulate, kernel, operands, pairs, shape
from warpfrag.machine.ir.actions import Refused
from warpfrag.machine.ops.opcode_lookup import ROWS, compared, find

DATA = Path(__file__).parent.parent / "data" / "ptx"
SPECIAL = [
    0,
    1,
    2,
    7,
    31,
    32,
    33,
    0x7F,
    0x80,
    0xFFFF,
    0x8000,
    0x7FFFFFFF,
    0x80000000,
    0x80000001,
    0xFFFFFFFF,
    0x55555555,
]


def compute(name, *codes, bits=32, count=None):
    """Return the result of a row for lists of codes."""
    action = find(name, 1 + len(codes) if count is None else count).action
    assert not isinstance(action, Refused), action
    arrays = []
    for kind, code in zip(action.sources, codes, strict=True):
        arrays.append(code if kind is None else np.array(code, kind.dtype)[None])
    found = action.function(*arrays)
    return [one[0].tolist() for one in found] if isinstance(found, tuple) else found[0].tolist()


def signed(value, bits):
    return value - (1 << bits) if value >> (bits - 1) else value


def byte(value, index):
    return value >> 8 * index & 255


def field(value, start, length, bits, is_signed):
    start, length = start & 255, length & 255
    sign = value >> min(start + length - 1, bits - 1) & 1 if is_signed and length else 0
    return sum((value >> start + i & 1 if i < length and start + i < bits else sign) << i for i in range(bits))


def permuted(a, b, c):
    whole = a | b << 32
    found = 0
    for index in range(4):
        selector = c >> 4 * index & 15
        one = byte(whole, selector & 7)
        found |= (255 * (one >> 7) if selector & 8 else one) << 8 * index
    return found


def parts(a, b, count, operation, is_signed=False):
    """Return an operation applied to each of several parts of 32 bits."""
    bits = 32 // count
    pairs_of = [[value >> bits * at & (1 << bits) - 1 for value in (a, b)] for at in range(count)]
    return [operation(*(signed(value, bits) if is_signed else value for value in pair)) for pair in pairs_of]


def joined(values):
    bits = 32 // len(values)
    return sum((value & (1 << bits) - 1) << bits * at for at, value in enumerate(values))


MEANING = {
    "vabsdiff4.u32.u32.u32": lambda a, b, c: joined(parts(a, b, 4, lambda x, y: abs(x - y))),
    "vabsdiff2.s32.s32.s32.add": lambda a, b, c: c + sum(parts(a, b, 2, lambda x, y: abs(x - y), is_signed=True)),
    "vadd4.u32.u32.u32.sat": lambda a, b, c: joined(parts(a, b, 4, lambda x, y: min(255, x + y))),
    "vsub2.s32.s32.s32": lambda a, b, c: joined(parts(a, b, 2, lambda x, y: x - y)),
    "vmax4.s32.s32.s32": lambda a, b, c: joined(parts(a, b, 4, max, is_signed=True)),
    "vset4.u32.u32.lt.add": lambda a, b, c: c + sum(parts(a, b, 4, lambda x, y: x < y)),
    "vavrg2.u32.u32.u32": lambda a, b, c: joined(parts(a, b, 2, lambda x, y: (x + y + 1) >> 1)),
    "add.s32": lambda a, b: a + b,
    "sub.u32": lambda a, b: a - b,
    "mul.lo.s32": lambda a, b: a * b,
    "mul.hi.u32": lambda a, b: a * b >> 32,
    "mul.hi.s32": lambda a, b: signed(a, 32) * signed(b, 32) >> 32,
    "sad.s32": lambda a, b, c: abs(signed(a, 32) - signed(b, 32)) + c,
    "min.s32": lambda a, b: min(signed(a, 32), signed(b, 32)),
    "max.u32": max,
    "add.sat.s32": lambda a, b: max(-(2**31), min(2**31 - 1, signed(a, 32) + signed(b, 32))),
    "mul24.lo.s32": lambda a, b: signed(a & 0xFFFFFF, 24) * signed(b & 0xFFFFFF, 24),
    "mul24.hi.u32": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 16,
    "shl.b32": lambda a, b: a << min(b, 32),
    "shr.u32": lambda a, b: a >> min(b, 32),
    "shr.s32": lambda a, b: signed(a, 32) >> min(b, 31),
    "shf.l.wrap.b32": lambda a, b, c: (b << 32 | a) << (c & 31) >> 32,
    "shf.r.clamp.b32": lambda a, b, c: (b << 32 | a) >> min(c, 32),
    "bfe.u32": lambda a, b, c: field(a, b, c, 32, is_signed=False),
    "bfe.s32": lambda a, b, c: field(a, b, c, 32, is_signed=True),
    "prmt.b32": permuted,
    "popc.b32": lambda a: a.bit_count(),
    "clz.b32": lambda a: 32 - a.bit_length(),
    "brev.b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "bfind.u32": lambda a: a.bit_length() - 1,
    "cnot.b32": lambda a: int(a == 0),
    "bmsk.clamp.b32": lambda a, b: (1 << min(b, 32)) - 1 << min(a, 32),
    "dp4a.s32.u32": lambda a, b, c: sum(signed(byte(a, i), 8) * byte(b, i) for i in range(4)) + c,
    "dp2a.lo.u32.s32": lambda a, b, c: sum((a >> 16 * i & 0xFFFF) * signed(byte(b, i), 8) for i in range(2)) + c,
}


@pytest.mark.one_engine
@pytest.mark.parametrize("name", MEANING)
def test_integer_rows_mean_what_the_isa_says(name):
    source = random.Random(name)
    count = MEANING[name].__code__.co_argcount if hasattr(MEANING[name], "__code__") else 2
    tried = [[source.choice([*SPECIAL, source.getrandbits(32)]) for _ in range(count)] for _ in range(300)]
    found = compute(name, *zip(*tried, strict=True))

    assert found == [MEANING[name](*codes) & 0xFFFFFFFF for codes in tried]


@pytest.mark.one_engine
@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_division_goes_towards_zero(kind):
    bits = int(kind[1:])
    source = random.Random(kind)
    pairs_of = [(source.getrandbits(bits), source.getrandbits(source.choice([3, bits])) or 1) for _ in range(200)]
    pairs_of += [(1 << (bits - 1), (1 << bits) - 1), (5, 0)]
    quotients, rests = (compute(f"{name}.{kind}", *zip(*pairs_of, strict=True)) for name in ("div", "rem"))
    for (a, b), quotient, rest in zip(pairs_of, quotients, rests, strict=True):
        x, y = (signed(v, bits) if kind[0] == "s" else v for v in (a, b))
        if y == 0:
            assert quotient == rest == (1 << bits) - 1
            continue
        whole = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        assert (quotient, rest) == (whole % (1 << bits), (x - whole * y) % (1 << bits))


@pytest.mark.one_engine
@pytest.mark.parametrize("table", [0x00, 0xE8, 0x96, 0xFF, 0x1B])
def test_lop3_is_any_function_of_three_bits(table):
    a, b, c = 0b11110000, 0b11001100, 0b10101010

    assert compute("lop3.b32", [a], [b], [c], table)[0] & 0xFF == table


@pytest.mark.one_engine
@pytest.mark.parametrize("target", ["e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "e2m1x2"])
def test_narrow_conversions_agree_with_ml_dtypes(target):
    dtype = {
        "e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2, "e2m3x2": ml_dtypes.float6_e2m3fn,
        "e3m2x2": ml_dtypes.float6_e3m2fn, "e2m1x2": ml_dtypes.float4_e2m1fn,
    }[target]  # fmt: skip
    values = np.random.default_rng(1).normal(0, 4, 400).astype(np.float32)
    most = float(ml_dtypes.finfo(dtype).max)
    values = np.concatenate([values, np.float32([0, -0.0, most, -most, 1e-3, 2.0**-10])])
    codes = values.view(np.uint32).tolist()
    found = compute(f"cvt.rn.satfinite.{target}.f32", codes, codes[::-1])
    expected = np.clip(values, -most, most).astype(dtype).view(np.uint8).tolist()
    shift = 4 if target == "e2m1x2" else 8

    assert [code >> shift for code in found] == expected
    assert [code & ((1 << shift) - 1) for code in found] == expected[::-1]


@pytest.mark.one_engine
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_wide_integers_are_rounded_once(mode):
    source = random.Random(mode)
    values = [source.getrandbits(source.choice([20, 30, 54, 64])) | 1 for _ in range(300)]
    found = compute(f"cvt.{mode}.f32.u64", values)

    assert found == [rounded("f32", value, mode) for value in values]
    negative = compute(f"cvt.{mode}.f64.s64", [(1 << 64) - (value >> 1) - 1 for value in values])
    assert negative == [rounded("f64", -(value >> 1) - 1, mode) for value in values]


@pytest.mark.one_engine
@pytest.mark.parametrize(
    ("name", "codes", "expected"),
    [
        ("cvt.rzi.s32.f32", [0x4F000000, 0xCF000001, 0x7FC00000, 0x3FC00000], [0x7FFFFFFF, 0x80000000, 0, 1]),
        ("cvt.rni.u8.f32", [0x43800000, 0xBF800000, 0x40200000], [255, 0, 2]),
        ("cvt.rzi.s64.f64", [0x7FF8000000000000], [1 << 63]),
        ("cvt.sat.u8.s32", [300, 0xFFFFFFFF, 7], [255, 0, 7]),
        ("cvt.s16.s8", [0x80], [0xFF80]),
        ("cvt.rpi.f32.f32", [0x3F800001, 0xBF000000], [0x40000000, 0x80000000]),
        ("cvt.rna.tf32.f32", [0x3F801000, 0x3F800FFF], [0x3F802000, 0x3F800000]),
        ("cvt.f64.f32", [0x7F800001], [0x7FF8000020000000]),
        ("testp.normal.f32", [0, 1, 0x7F800000, 0x3F800000], [True, False, False, True]),
        ("abs.f32", [0xFFC00000, 0x80000000], [0x7FFFFFFF, 0]),
    ],
)
def test_conversions_at_their_edges(name, codes, expected):
    assert compute(name, codes) == expected


with np.load(DATA / "approximate_h200.npz") as captured:
    OF_AN_H200 = {name: captured[name] for name in captured}  # results by spelling; their operands are "... of"
ALL_HALVES = {
    "ex2.approx.f16": "0b1bab5ab5e9f0b651a93cbb9f3d9ba6dfd06213bbde208c85ea6a1715fa5359",
    "ex2.approx.ftz.bf16": "b70d00fc43d804d625756220b85551f3fff2a33bd1ff58a53785c58003172580",
    "tanh.approx.f16": "52bd79238ac307cacae2bc02c4cdf434d3ce31da6206d4d899c256739a4c8484",
    "tanh.approx.bf16": "d7cc5224b1ee4e49bb42369cd97b5c6f279f622dc7ffdb8bf8edecd88e09c39c",
}


@pytest.mark.parametrize("name", [name for name in OF_AN_H200 if not name.endswith(" of")])
def test_approximate_functions_are_those_of_an_h200(name):
    codes = np.atleast_2d(OF_AN_H200["div of" if name.startswith("div") else f"{name} of"])
    case = next(case for case in cases(name.split(".")[0]) if case.name == name)
    given = np.zeros((len(codes), THREADS), np.uint64)
    given[:, : codes.shape[1]] = codes
    found = emulate(kernel(case, "sm_90a"), given, 1)[0, : codes.shape[1]]
    wrong = np.nonzero(found != OF_AN_H200[name])[0]
    assert [(hex(codes[0, at]), hex(found[at]), hex(OF_AN_H200[name][at])) for at in wrong[:5]] == []


@pytest.mark.one_engine
@pytest.mark.parametrize("name", ALL_HALVES)
def test_halves_of_every_input(name):
    codes = np.arange(1 << 16, dtype=np.uint16)
    halves = find(name, 2).action.function(codes)
    assert sha256(halves.tobytes()).hexdigest() == ALL_HALVES[name]
    joined = codes[:-1].astype(np.uint32) << np.uint32(16) | codes[1:]
    expected = halves[:-1].astype(np.uint32) << np.uint32(16) | halves[1:]
    assert np.array_equal(find(f"{name}x2", 2).action.function(joined), expected)


@pytest.mark.one_engine
def test_every_row_has_a_source_and_a_kernel_that_can_be_compared():
    assert all(row.source for rows in ROWS.values() for row in rows)
    found = list(cases("cvt"))
    assert len({case.name for case in found}) > 500
    for case in found[::97]:
        text = kernel(case, "sm_90a")
        assert f"{case.name} %d0" in text
        assert len(operands(case, np.random.default_rng(1))) == shape(case)[0]
        assert pairs(case) == 1


@pytest.mark.one_engine
def test_what_was_compared_with_a_gpu_is_in_the_table():
    known = compared()
    refused = [name for name in sorted(known.spellings)[::7] if isinstance(find(name, 3).action, Refused)]
    told = (Path(__file__).parents[2] / "docs" / "evidence" / "h200_opcodes.md").read_text(encoding="utf-8")

    assert not refused
    assert f"{len(known.spellings):,} different names" in told
    assert f"{known.gpu}, driver {known.driver}" in told
    assert f"{known.threads:,} threads and random" in told
    assert "add.f32x2" not in known.spellings


@pytest.mark.one_engine
def test_a_report_becomes_the_table(tmp_path, monkeypatch):
    rows = [("add.s32", 9, 0), ("add.s64", 9, 1), ("sin.approx.f32", 9, 0), ("add.f32x2", 0, 0)]
    outcomes = [
        {"name": name, "level": "approximate" if "approx" in name else "specified", "cases": cases, "different": wrong}
        for name, cases, wrong in rows
    ]
    head = {"gpu": "GPU", "driver": "1.2", "arch": "sm_90"}
    (tmp_path / "report.json").write_text(json.dumps(head | {"outcomes": outcomes}))
    monkeypatch.setattr(opcodes, "EVIDENCE", tmp_path / "table.gz")
    assert opcodes.main(["--keep", str(tmp_path / "report.json")]) == 0

    assert gzip.decompress((tmp_path / "table.gz").read_bytes()).split() == [b"GPU,1.2,sm_90,3072", b"add.s32"]
