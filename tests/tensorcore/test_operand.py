"""Operands and instructions as objects: identity, registers, and every kind of bad input."""

import pickle

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from warpfrag.isa.immediates import Immediates

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
S8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
MX = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
WMMA = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"


def test_an_instruction_is_one_object_however_it_comes():
    mma = wf.get(F16)
    assert wf.get(mma) is mma
    assert wf.get(F16, arch="sm_90a") is mma
    assert pickle.loads(pickle.dumps(mma)) is mma  # noqa: S301 (our own bytes)
    assert hash(mma) == hash(wf.get(F16.upper()))
    assert mma in wf.find(arch="sm_90a", a="f16")


def test_pickle_keeps_the_fragments_of_wmma():
    old = wf.get(WMMA, arch="sm_80")
    assert pickle.loads(pickle.dumps(old)) is old  # noqa: S301 (our own bytes)
    assert old != wf.get(WMMA)


def test_wmma_says_whose_fragments_it_has():
    assert "sm_90" in repr(wf.get(WMMA))
    assert wf.get(WMMA, arch="sm_90a") is wf.get(WMMA)
    unknown = wf.get(WMMA, arch="sm_80")
    assert unknown.a.regs == 8
    with pytest.raises(wf.errors.NotModelled, match="the wmma fragments of sm_80 were not measured; available: sm_90"):
        unknown.a.layout  # noqa: B018
    with pytest.raises(wf.errors.NotModelled, match="sm_80"):
        unknown.a.pack(np.zeros((16, 16)))


def test_find_asks_every_question():
    assert len(wf.find()) > 600
    found = wf.find(arch="sm_90a", a="e4m3", b="e5m2", d="f32", shape="m16n8k32", sparse=False)
    assert [str(entry) for entry in found] == ["mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32"]
    assert wf.find(shape=(16, 8, 32)) == wf.find(shape="m16n8k32")
    assert {entry.kind for entry in wf.find(kind="mxf4")} == {"mxf4"}
    assert wf.find(arch="sm_70", a="bf16") == []


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"a": "e4m4"}, "a must be one of .*e4m3"),
        ({"arch": "sm_91"}, "unknown arch 'sm_91'; expected one of sm_70"),
        ({"shape": "m16n9"}, "shape must be one of"),
        ({"kind": "mxfp4"}, "kind must be one of .*mxf4"),
    ],
)
def test_find_refuses_a_question_nobody_can_answer(question: dict[str, str], message: str):
    with pytest.raises(wf.errors.IllegalInstruction, match=message):
        wf.find(**question)


def test_bits_tell_where_a_code_sits():
    assert wf.get(F16).a.bits(1) == (31, 16)
    narrow = wf.get("mma.m16n8k32.kind::f8f6f4.f32.e2m1.e3m2.f32")
    assert narrow.a.bits(1) == (13, 10)
    assert narrow.b.bits(1) == (13, 8)
    assert wf.get(MX).a.bits(7) == (31, 28)
    assert wf.get("mma.m8n8k4.f64.f64.f64.f64").a.bits(0) == (63, 0)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (
            np.zeros((16, 15), np.float16),
            r"operand a of .*: expected an array of shape \(..., 16, 16\), got \(16, 15\)",
        ),
        (np.zeros(16), r"expected an array of shape \(..., 16, 16\), got \(16,\)"),
        (np.full((16, 16), 1 / 3), r"element \(0, 0\) is 0.333.*, but that is not exact in f16"),
        (np.full((16, 16), 1e6), r"element \(0, 0\) is 1000000.0, but f16 holds the values"),
        (np.full((16, 16), "x"), "expected float16 or real numbers, got dtype"),
        (np.zeros((16, 16), complex), "got dtype complex128"),
    ],
)
def test_pack_says_what_is_wrong_with_a_matrix(matrix: np.ndarray, message: str):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        wf.get(F16).a.pack(matrix)


def test_pack_refuses_a_nan_where_the_format_has_none():
    with pytest.raises(wf.errors.InvalidOperand, match=r"element \(0, 3\) is nan, but s8 holds the integers -128..127"):
        wf.get(S8).a.pack(np.where(np.arange(512).reshape(16, 32) == 3, np.nan, 0))


def test_pack_takes_raw_codes_and_refuses_others():
    mma = wf.get(S8)
    assert mma.a.pack(np.full((16, 32), 255), raw=True).max() == 0xFFFFFFFF
    with pytest.raises(wf.errors.InvalidOperand, match="s8 codes are 0..0xff"):
        mma.a.pack(np.full((16, 32), 256), raw=True)
    with pytest.raises(wf.errors.InvalidOperand, match="s8 codes are 0..0xff"):
        mma.a.pack(np.full((16, 32), -1), raw=True)
    with pytest.raises(wf.errors.InvalidOperand, match="expected s8 codes as unsigned integers, got dtype float64"):
        mma.a.pack(np.zeros((16, 32)), raw=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (np.zeros((32, 3), np.uint32), r"expected registers uint32\[..., 32, 4\], got shape \(32, 3\)"),
        (np.zeros((31, 4), np.uint32), r"got shape \(31, 4\)"),
        (np.zeros(4, np.uint32), r"got shape \(4,\)"),
        (np.zeros((32, 4), np.int32), r"expected registers uint32\[..., 32, 4\], got dtype int32"),
        (np.zeros((32, 4)), "got dtype float64"),
    ],
)
def test_unpack_says_what_is_wrong_with_registers(words: np.ndarray, message: str):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        wf.get(F16).a.unpack(words)


def test_values_are_taken_exactly_or_rounded_when_asked():
    mma = wf.get(F16)
    matrix = np.linspace(-2, 2, 256).reshape(16, 16)
    words = mma.a.pack(matrix, rounding="rne")
    assert np.array_equal(mma.a.unpack(words), matrix.astype(np.float16))
    exact = np.arange(256).reshape(16, 16)
    assert np.array_equal(mma.a.unpack(mma.a.pack(exact)), exact.astype(np.float16))
    assert np.array_equal(mma.a.pack(exact.tolist()), mma.a.pack(exact))


def test_unequal_copies_are_refused_when_strict():
    fragment = wf.get("wmma.load.a.sync.aligned.row.m16n16k16.global.f16").a
    words = fragment.pack(np.arange(256).reshape(16, 16))
    assert np.array_equal(fragment.unpack(words, strict=True), fragment.unpack(words))
    words[3, 7] ^= 1
    assert fragment.unpack(words)[0, 0] == 0
    with pytest.raises(wf.errors.InvalidOperand, match="copies of one element differ: in tile 0, lane 3"):
        fragment.unpack(words, strict=True)


def test_scale_words_hold_what_the_ids_choose():
    mx = wf.get(MX)
    scales = np.arange(64).reshape(16, 4)
    words = mx.scale_a.pack(scales, raw=True, thread_id=1)
    assert mx.scale_a.where(row=9, scale=2, thread_id=1) == (7, 2)
    assert words[7] >> 16 & 0xFF == scales[9, 2]
    assert mx.scale_a.at(lane=7, byte=2, thread_id=1) == (9, 2)
    assert mx.scale_a.unpack(words, thread_id=1).dtype == ml_dtypes.float8_e4m3fn
    assert not mx.scale_a.unpack(words, thread_id=0, raw=True).any()


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ({"thread_id": 2}, "thread_id must be in 0..1, got 2"),
        ({"byte_id": 1}, "byte_id must be one of 0, got 1"),
    ],
)
def test_scale_ids_out_of_range_are_refused(ids: dict[str, int], message: str):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        wf.get(MX).scale_a.pack(np.ones((16, 4)), **ids)


@pytest.mark.parametrize("mask", [True, False, np.True_])
def test_a_truth_is_no_selector_and_no_id(mask: bool):
    """NumPy would use it as a mask of everything or nothing."""
    sp, mx = wf.get("mma.sp.m16n8k32.f32.f16.f16.f32"), wf.get(MX)
    codes, scales = np.full(sp.metadata.shape, 0b0100, np.uint8), np.ones(mx.scale_a.shape)
    words = np.zeros(32, np.uint32)
    for name, ask in (
        ("selector", lambda chosen: sp.metadata.pack(codes, **chosen)),
        ("selector", lambda chosen: sp.metadata.unpack(words, **chosen)),
        ("selector", lambda chosen: sp.metadata.where(row=0, chunk=0, **chosen)),
        ("thread_id", lambda chosen: mx.scale_a.pack(scales, **chosen)),
        ("thread_id", lambda chosen: mx.scale_a.unpack(words, **chosen)),
        ("byte_id", lambda chosen: mx.scale_a.pack(scales, **chosen)),
        ("byte_id", lambda chosen: mx.scale_a.unpack(words, **chosen)),
    ):
        with pytest.raises(wf.errors.InvalidOperand, match=f"{name} must be .*, got .*{mask}"):
            ask({name: mask})
    with pytest.raises(wf.WarpfragError, match=f"selector.* got .*{mask}|selector .*{mask}"):
        wf.execute(
            sp, np.zeros((32, 4), np.uint32), np.zeros((32, 4), np.uint32), metadata=words, immediates=Immediates(mask)
        )


def test_a_scale_has_no_sign():
    with pytest.raises(
        wf.errors.InvalidOperand, match=r"element \(0, 0\) is -1.0, but ue4m3 holds the values 0.0..448.0"
    ):
        wf.get(MX).scale_a.pack(np.full((16, 4), -1, ml_dtypes.float8_e4m3fn))
    with pytest.raises(
        wf.errors.InvalidOperand,
        match="bits 16 to 22 of lane 7 are read only with thread_id 1, byte_id 0, got thread_id 0, byte_id 0",
    ):
        wf.get(MX).scale_a.at(lane=7, byte=2, thread_id=0)


def test_an_operand_that_an_instruction_has_not_is_none():
    mover = wf.get("ldmatrix.m8n8.x4.b16")
    assert mover.a is None
    assert mover.b is None
    assert wf.get(F16).metadata is None
    assert wf.get(F16).scale_a is None
    assert wf.get(F16).addresses is None


def test_only_lanes_that_give_an_address_have_one():
    addresses = wf.get("ldmatrix.m8n8.x1.b16").addresses
    assert addresses.at(lane=7) == (0, 7)
    with pytest.raises(wf.errors.InvalidOperand, match="lane must be in 0..7, got 8"):
        addresses.at(lane=8)


def test_an_unknown_attribute_of_the_package_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'gett'"):
        wf.gett  # noqa: B018
    assert {"get", "find", "FORMATS"} <= set(dir(wf))
