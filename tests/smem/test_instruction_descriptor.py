"""Instruction descriptors, zero-column masks and shared-memory descriptors of tcgen05."""

import random
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.isa.tcgen05_forms import listed_forms
from warpfrag.smem.instruction_descriptor import ZeroColumnMask

KINDS = ("f16", "tf32", "f8f6f4", "i8", "ti16", "mxf8f6f4", "mxf4", "mxf4nvf4")


def test_any_word_comes_back():
    chance = random.Random(1)
    for _ in range(300):
        word = chance.getrandbits(32)
        for kind in KINDS:
            decoded = wf.InstructionDescriptor.decode(word, kind=kind)
            assert decoded.word == word
            assert len(decoded.explain()) > 10
            decoded.problems()
        word = chance.getrandbits(64)
        for kind in ("wgmma", "tcgen05"):
            assert wf.Descriptor.decode(word, kind=kind).word == word
        assert ZeroColumnMask.decode(word).word == word


def test_every_product_has_a_word_without_problems():
    typed = [form for form in listed_forms() if form.is_typed]
    for form in random.Random(2).sample(typed, 300):
        t = wf.get(form.name)
        assert t.descriptor().problems(t) == []
        assert wf.InstructionDescriptor.decode(t.descriptor().word, kind=t.kind) == t.descriptor()


@pytest.mark.parametrize(
    ("word", "kind", "field", "text"),
    [
        (0x8400490 | 1 << 6, "f16", "other", "bits 0x40 belong to no field"),
        (0x8400490 | 6 << 7, "f16", "a", "a is 7, which kind::f16 does not have"),
        (0x8400490 ^ 1 << 24, "f16", "m", "m 144 with n 256 is not a shape"),
        (0x8400490 | 1, "f16", "selector", "selector 1 is not used"),
        (0x8400490 | 8, "f16", "saturate", "only kind::i8 saturates"),
        (0x8400490 ^ 1 << 7, "f16", "a", "no mma of f16 and bf16"),
    ],
)
def test_problems_of_words(word, kind, field, text):
    problems = wf.InstructionDescriptor.decode(word, kind=kind).problems()
    assert any(problem.field == field and text in problem.text for problem in problems), problems


def test_a_word_of_another_instruction_is_noticed():
    t = wf.get("tcgen05.mma.cta_group::1.kind::f16", m=128, n=64, a="f16", d="f32")
    texts = [problem.text for problem in wf.InstructionDescriptor.decode(0x8400490, kind="f16").problems(t)]
    assert "the descriptor has n 256, the instruction 64" in texts
    assert "the descriptor has a bf16, the instruction f16" in texts


def test_fields_that_cannot_be_written_are_refused():
    for wrong, match in {
        ("m", 100): "multiple of 16",
        ("n", 12): "multiple of 8",
        ("a", "e4m3"): "one of f16, bf16",
        ("sparse", 1): "True or False",
        ("scale_a_id", 1): "no scale_a_id",
        ("kind", "f17"): "kind must be one of",
    }.items():
        fields = {"kind": "f16", "m": 128, "n": 64, "a": "f16", "b": "f16"} | dict([wrong])
        with pytest.raises(wf.errors.InvalidOperand, match=match):
            wf.InstructionDescriptor(**fields)
    with pytest.raises(wf.errors.InvalidOperand, match="32 bits"):
        wf.InstructionDescriptor.decode(1 << 32, kind="f16")


def test_zero_columns():
    mask = ZeroColumnMask(zeros=2, used=3, starts=(1, 0, 0, 0), shift=8)
    assert mask.columns(128, 8) == [8, 9, None, None, 12, 13, 14, None]
    first = ZeroColumnMask(zeros=2, used=2, zero_first=(True, False, False, False))
    assert first.columns(64, 8) == [None, None, 2, 3, 4, 5, None, None]
    assert ZeroColumnMask(active=False).columns(32, 4) == [0, 1, 2, 3]
    assert [problem.field for problem in ZeroColumnMask(shift=20, starts=(0, 0, 1, 0)).problems(32)] == ["shift"]
    with pytest.raises(wf.errors.InvalidOperand, match="zeros of a zero-column mask"):
        ZeroColumnMask(zeros=0)


def test_descriptors_of_tcgen05():
    made = wf.Descriptor(stride=1024, swizzle=128, kind="tcgen05")
    assert made.word == 0x4000404000000000
    assert wf.Descriptor(swizzle=128, unit=32, kind="tcgen05").word == 1 << 61 | 1 << 46
    assert wf.Descriptor(absolute=True, kind="tcgen05").word == 1 << 52 | 1 << 46
    t = wf.get("tcgen05.mma.cta_group::1.kind::f16", m=128, n=64, a="f16", d="f32")
    old = wf.Descriptor.decode(0x4000004000000000, kind="tcgen05")
    assert "bits 48:46 are 0" in old.problems(t.b)[0].text
    for wrong in ({"unit": 32}, {"absolute": True}, {"kind": "umma"}):
        with pytest.raises(wf.errors.InvalidOperand):
            wf.Descriptor(swizzle=64, **wrong)


def test_a_swizzle_that_leaves_32_bytes_together():
    t = wf.get("tcgen05.mma.cta_group::1.kind::tf32", m=128, n=64)
    tile = wf.Descriptor(leading=2048, stride=512, swizzle=128, unit=32, kind="tcgen05")
    addresses = t.b.addresses(tile, trans=True)
    for k in range(8):
        for col in range(0, 64, 5):
            plain = col % 32 * 4 + col // 32 * 2048 + k % 4 * 128 + k // 4 * 512
            assert addresses[k, col] == plain ^ (plain >> 7 & 3) << 5


def test_words_are_those_that_triton_writes():
    """tl.dot and tl.dot_scaled compiled for Blackwell without a GPU: all words of products, and the descriptors."""
    lines = (Path(__file__).parent.parent / "data" / "triton_tcgen05.csv").read_text().splitlines()[1:]
    assert len(lines) >= 48
    for line in lines:
        names, rows, cols, _, instruction, words, uppers = line.split(",")
        a, b, scale = names.split() if " " in names else (names, names, None)
        for word in (int(text, 0) for text in words.split()):
            decoded = wf.InstructionDescriptor.decode(word, kind=wf.get(instruction).kind)
            assert (decoded.m, decoded.n) == (min(int(rows), 128), int(cols))
            types = {"a": a, "b": b, "d": "s32" if a == "s8" else "f32"} | ({"scale_type": scale} if scale else {})
            made = wf.get(instruction, m=decoded.m, n=decoded.n, **types)
            fields = ("transpose_a", "transpose_b", "scale_a_id", "scale_b_id")
            assert made.descriptor(**{name: getattr(decoded, name) for name in fields}).word == word
            assert decoded.problems(made) == []
        for upper in uppers.split():
            descriptor = wf.Descriptor.decode(int(upper, 0) << 32, kind="tcgen05")
            assert (descriptor.version, descriptor.other, descriptor.absolute) == (1, 0, False)
            assert descriptor.stride == 8 * descriptor.width


def test_words_are_those_that_cute_writes():
    """CuTe's Python package, one product in each of 45 kernels: instruction descriptors and both shared-memory ones."""
    lines = (Path(__file__).parent.parent / "data" / "cute_tcgen05_words.csv").read_text().splitlines()[1:]
    assert len(lines) == 45
    for line in lines:
        ab, d, m, n, blocks, major_a, major_b, kind, word, *places = line.split(",")
        made = wf.get(f"tcgen05.mma.cta_group::{blocks}.kind::{kind}", m=int(m), n=int(n), a=ab, b=ab, d=d)
        decoded = wf.InstructionDescriptor.decode(int(word, 0), kind=kind)
        assert (decoded.m, decoded.n, decoded.saturate) == (int(m), int(n), kind == "i8")
        turned = {"transpose_a": major_a == "MN", "transpose_b": major_b == "MN"}
        assert made.descriptor(**turned, saturate=decoded.saturate).word == int(word, 0)
        assert decoded.problems(made) == []
        for operand, major, place in zip((made.a, made.b), (major_a, major_b), places, strict=True):
            descriptor = wf.Descriptor.decode(int(place, 0), kind="tcgen05")
            assert descriptor.word == int(place, 0)
            trans = major == "MN"
            if trans and ab == "tf32":  # CuTe's only choice for it
                assert (descriptor.unit, descriptor.stride, descriptor.swizzle) == (32, 512, 128)
                continue
            ours = operand.descriptors(trans=trans, swizzle=128, k=4 * made.shape.k)[0]
            assert np.array_equal(operand.addresses(descriptor, trans=trans), operand.addresses(ours, trans=trans)), (
                line
            )
