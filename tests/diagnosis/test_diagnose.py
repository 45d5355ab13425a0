"""Diagnose: each planted mistake is among the first findings, and a correct result is reported as correct."""

from functools import cache
from zlib import crc32

import numpy as np
import pytest

import warpfrag as wf
from diagnosis.asking import diagnose
from slow_cases import sampled
from warpfrag.diagnosis.arithmetic_mistakes import misreadings
from warpfrag.diagnosis.diagnose import Finding
from warpfrag.diagnosis.findings import KINDS
from warpfrag.diagnosis.mistakes import distinct, suspects
from warpfrag.diagnosis.outcome import SuspectProduct
from warpfrag.diagnosis.register_mistakes import other_choices
from warpfrag.formats.codes import from_codes
from warpfrag.isa.immediates import Immediates
from warpfrag.tensorcore.random_operands import random_matrix
from warpfrag.tensorcore.registry import instruction_of

F16 = "mma.m16n8k16.f32.f16.f16.f32"
SPARSE = "mma.sp.m16n8k32.f32.f16.f16.f32"
SCALED = "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
WMMA = "wmma.mma.row.col.m16n16k16.f32.f32"
FAMILIES = {
    F16: "sm_90",
    "mma.m16n8k16.f32.bf16.bf16.f32": "sm_80",
    "mma.m16n8k8.f32.tf32.tf32.f32": "sm_90",
    "mma.m16n8k32.s32.s8.s8.s32": "sm_90",
    "mma.m16n8k64.s32.s4.u4.s32": "sm_90",
    "mma.m16n8k32.f32.e4m3.e5m2.f32": "sm_90",
    "mma.m16n8k8.f64.f64.f64.f64": "sm_90",
    "mma.m16n8k256.s32.b1.b1.s32.and.popc": "sm_90",
    SPARSE: "sm_90",
    SCALED: "sm_120",
    "mma.m8n8k4.row.col.f32.f16.f16.f32": "sm_70",
    WMMA: "sm_90",
}


@cache
def different(operand):
    """Return the mistakes with an operand, without synonyms."""
    return tuple(distinct(operand, suspects(operand)))


class Planted:
    """A product with random operands, in which mistakes can be planted."""

    def __init__(self, name: str, arch: str, seed: int = 7) -> None:
        form = wf.get(name).form
        self.mma = mma = instruction_of(form, arch if form.is_wmma else "")
        self.arch = arch
        random = np.random.default_rng(seed)
        roles = [role for role in ("a", "b", "c") if role in mma.operands]
        codes = {role: random_matrix(mma, role, random) for role in roles}
        self.given = {role.upper(): from_codes(mma.operands[role].format, codes[role]) for role in roles}
        self.words = {role: mma.operands[role].pack(codes[role], raw=True) for role in "bc"}
        self.others = {}
        if mma.pattern is None:
            self.words["a"] = mma.a.pack(codes["a"], raw=True)
        else:  # every lane holds legal codes, as those that read another selector's do
            stored, fields = mma.compress(codes["a"], raw=True)
            legal = list(mma.pattern.rising)
            self.words["a"] = mma.a.pack(stored, raw=True)
            self.others["metadata"] = mma.metadata.pack(fields) | sum(
                mma.metadata.pack(random.choice(legal, fields.shape), selector=one) for one in mma.selectors[1:]
            )
        for role in ("scale_a", "scale_b"):
            if role in mma.operands:
                self.others[role] = (random.integers(120, 134, (32, 4)).astype(np.uint8)).view(np.uint32)[:, 0]
        self.words |= self.others
        self.case = SuspectProduct(mma, arch, Immediates())
        self.right = self.case.right(self.words)

    def every(self):
        """Return all mistakes that can be planted."""
        operands = self.mma.operands
        found = [one for role in (*self.words, "d") for one in different(operands[role])]
        found += [one for role in self.words for one in other_choices(operands[role], Immediates())]
        return [*found, *misreadings(self.mma.form, self.arch)]

    def named(self, *starts):
        """Return the mistakes whose names start with this text."""
        return tuple(
            next(one for one in self.every() if f"{one.operand}: {one.text}".lower().startswith(name.lower()))
            for name in starts
        )

    def make(self, made):
        """Return D's codes with this mistake, or None if it has no effect."""
        codes = self.case.outcome(self.words, made)
        return None if codes is None or np.array_equal(codes, self.right) else codes

    def diagnose(self, codes, **more):
        D = from_codes(self.mma.d.format, codes)
        return diagnose(self.mma, D, **self.given, **self.others, arch=self.arch, **more)


def one_line(one):
    return f"{one.operand}: {one.text}"


@cache
def planted(name):
    return Planted(name, FAMILIES[name])


def key(one):
    return one.kind, one.operand, one.text


@pytest.mark.slow
@pytest.mark.parametrize("name", [SPARSE, SCALED])
def test_each_mistake_of_the_list_is_among_the_first_three(name):
    product = planted(name)
    samples = {}
    for one in product.every():
        samples.setdefault((one.kind, one.operand, one.rare), []).append(one)
    made = {}
    for some in samples.values():
        # of each kind with each operand a common one and a rare one: which, differs from family to family
        start = crc32(name.encode()) % len(some)
        shown = ((one, product.make(one)) for one in some[start:] + some[:start])
        made |= dict([next(pair for pair in shown if pair[1] is not None)]) if some[0].kind != "arch" else {}
    explained = {
        one: [(found.kind, found.operand) for found in product.diagnose(codes)[:3]] for one, codes in made.items()
    }
    late = [key(one) for one, found in explained.items() if (one.kind, one.operand) not in found]

    assert late == []
    assert len(made) >= 30
    assert {one.operand for one in made} >= {*"abcd", *product.others}


def test_every_kind_is_planted_somewhere():
    kinds = {one.kind for name in (F16, SPARSE, "mma.m16n8k32.s32.s8.s8.s32") for one in planted(name).every()}

    # those of wgmma: test_wgmma_mistakes.py; of loops and roundings: test_new_mistakes.py
    assert kinds == set(KINDS) - {"descriptor", "loop", "rounding"}


def test_a_correct_result_gives_none_and_says_so():
    found = planted(F16).diagnose(planted(F16).right)

    assert found == []
    assert found.correct
    assert str(found) == "correct: the instruction gives this result"


def test_nothing_found_says_how_far_the_search_went():
    product = planted(F16)
    found = product.diagnose(np.roll(product.right, 3, axis=0) ^ 1)

    assert found == []
    assert not found.correct
    assert found.tried["registers"] > 50
    counted = ", ".join(f"{kind} {count}" for kind, count in found.tried.items())
    assert str(found).startswith(
        f"nothing found: {sum(found.tried.values())} mistakes tried ({counted})\nnone of 128 elements is right"
    )


def test_mistakes_that_are_the_same_are_both_listed():
    product = planted(F16)
    swapped = product.make(*product.named("b: registers 0 and 1"))
    found = [str(finding) for finding in product.diagnose(swapped)]

    assert found[:2] == ["B: registers 0 and 1 swapped", "A: registers in the order 2, 3, 0, 1"]


def test_registers_and_matrices_of_d_give_the_same():
    product = planted(F16)
    codes = product.make(*product.named("a: read with row-major"))
    words = product.mma.d.pack(codes, raw=True)
    by_registers = diagnose(F16, words, **product.given)

    assert by_registers == product.diagnose(codes)
    assert by_registers[0] == Finding("transposed", "a", "read with row-major and column-major order swapped")


def test_one_mistake_must_explain_every_product():
    first, second = Planted(F16, "sm_90", 1), Planted(F16, "sm_90", 2)
    inputs = {role: np.stack([first.given[role], second.given[role]]) for role in "ABC"}
    (swap,) = [one for one in suspects(first.mma.b) if one.text == "registers 0 and 1 swapped"]
    wrong = [product.case.outcome(product.words, swap) for product in (first, second)]
    D = [np.stack([first.right, wrong[1]]), np.stack(wrong)]

    assert diagnose(F16, from_codes(first.mma.d.format, D[0]), **inputs) == []
    assert diagnose(F16, from_codes(first.mma.d.format, D[1]), **inputs)[0].text == swap.text


# One operand: its registers, and the matrix that they should hold


@pytest.mark.parametrize("name", sampled(FAMILIES, 3))
def test_one_operand_is_diagnosed_from_its_registers(name):
    mma = planted(name).mma
    random = np.random.default_rng(3)
    for role, operand in mma.operands.items():
        if role in {"metadata", "scale_a", "scale_b"}:
            continue
        codes = np.arange(np.prod(operand.shape), dtype=np.uint64).reshape(operand.shape)
        codes = random.permuted(codes & np.uint64(operand.format.codes - 1), axis=None)
        words, matrix = operand.pack(codes, raw=True), operand.unpack(operand.pack(codes, raw=True))
        for one in different(operand)[crc32(name.encode()) % 90 :: 90]:
            changed = one.change(words)
            found = diagnose(operand, changed, matrix)
            same = np.array_equal(operand.unpack(changed, raw=True), operand.unpack(words, raw=True))
            assert same == found.correct
            assert same or key(one) in map(key, found), (role, one.text, found)
            assert same or (one.kind, role) in [(other.kind, other.operand) for other in found[:3]]


def test_one_operand_with_two_mistakes_and_with_one_and_with_none():
    a = wf.get(F16).a
    A = np.arange(256.0).reshape(16, 16)
    by_name = {one.text: one for one in suspects(a)}
    first, second = by_name["read with row-major and column-major order swapped"], by_name["registers 0 and 1 swapped"]
    found = diagnose(a, second.change(first.change(a.pack(A))), A)

    assert diagnose(a, a.pack(A), A).correct
    assert found == []
    assert Finding("transposed", "a", first.text) in diagnose(a, first.change(a.pack(A)), A)
    assert not diagnose(a, np.zeros((32, 4), np.uint32), A).correct


def test_metadata_and_scales_are_diagnosed_from_their_words():
    sp, mx = wf.get(SPARSE), wf.get(SCALED)
    fields = np.random.default_rng(0).choice(list(sp.pattern.rising), sp.metadata.shape)
    scales = np.exp2(np.arange(32).reshape(mx.scale_a.shape) - 16.0)

    assert diagnose(sp.metadata, sp.metadata.pack(fields), fields).correct
    assert str(diagnose(sp.metadata, sp.metadata.pack(fields, selector=1), fields)[0]) == (
        "metadata: written for selector 1 instead of 0"
    )
    assert diagnose(mx.scale_a, mx.scale_a.pack(scales, thread_id=1), scales, thread_id=(1, 0)).correct
    assert str(diagnose(mx.scale_a, mx.scale_a.pack(scales, byte_id=2), scales)[0]) in {
        "scale_a: halves of a register swapped",
        "scale_a: written for byte_id 2 instead of 0",
    }


def test_wrong_input_is_refused_with_what_was_expected():
    mma, sp = wf.get(F16), wf.get(SPARSE)
    A, B, D = np.zeros((16, 16)), np.zeros((16, 8)), np.zeros((16, 8))
    refusals = {
        r"expected a matrix \(..., 16, 8\) or registers, uint32\[..., 32, 4\], got float64 \(8,": (mma, D[:8], A, B),
        r"expected the inputs A and B; to diagnose A alone, pass the operand": (mma, D, A),
        r"expected only its registers and the matrix that they should hold": (mma.a, D, A, B),
        r"leading axes do not broadcast: b \(2,\), a \(3,\), c \(\), d \(\)": (
            mma, D, np.zeros((3, 16, 16)), np.zeros((2, 16, 8))
        ),
        r"expected at least one matrix, got leading axes \(0,\)": (mma, D, np.zeros((0, 16, 16)), B),
        r"observed has the shape of A: pass D first, as in diagnose\(mma, D, A, B\)": (mma, A, B, D),
        r"it only moves data, so it has no arithmetic": ("ldmatrix.m8n8.x4.b16", D, A, B),
        r"expected registers uint32\[..., 32, 4\], got dtype float64": (mma.a, A, A),
    }  # fmt: skip
    for message, given in refusals.items():
        with pytest.raises(wf.WarpfragError, match=message):
            diagnose(*given)
    for more, message in (
        ({"metadata": np.zeros(32, np.uint32)}, "is dense and takes no metadata"),
        ({"selector": 1}, "is dense: it takes no selector"),
        ({"scale_a": np.ones((16, 2))}, "takes no scale_a"),
        ({"byte_id": (2, 0)}, "has no scale factors"),
        ({"arch": "sm_70"}, "does not have this instruction"),
    ):
        with pytest.raises(wf.WarpfragError, match=message):
            diagnose(mma, D, A, B, **more)
    with pytest.raises(wf.WarpfragError, match="traps|out of range"):
        diagnose(sp, D, np.zeros((16, 32)), np.zeros((32, 8)), selector=3)


def test_no_two_mistakes_with_an_operand_have_one_text():
    for name in FAMILIES:
        for operand in planted(name).mma.operands.values():
            texts = [one.text for one in different(operand)]
            assert len(set(texts)) == len(texts) > 5
