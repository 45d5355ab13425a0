"""`get` and `find` with any argument that a program may pass: an answer, or IllegalInstruction in one short line."""

import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpfrag as wf
from warpfrag.isa.instruction_names import LONGEST, spell
from warpfrag.tensorcore import registry
from warpfrag.tensorcore.evidence import Evidence

NAME = "mma.m16n8k16.f32.f16.f16.f32"
SPARSE = "mma.sp.m16n8k16.f32.f16.f16.f32"
MEGABYTE = "x" * 10**6
STRANGE = [5, 1.5, b"mma", [NAME], {NAME: 1}, {"90"}, object(), np.zeros(3), np.zeros((200, 200)), MEGABYTE]
STRANGE += ["\x1b[31m\a", float("nan"), 10**5000, NAME.encode(), "\ud800", True, Ellipsis, lambda: None]


def refusal(function, *arguments, **options):
    with pytest.raises(wf.errors.IllegalInstruction) as caught:
        function(*arguments, **options)
    return caught.value


@pytest.mark.parametrize("entry", STRANGE, ids=lambda entry: type(entry).__name__)
@pytest.mark.parametrize(
    "ask",
    [
        wf.get,
        lambda entry: wf.get(NAME, arch=entry),
        lambda entry: wf.get(SPARSE, selector=-1 if entry is True else entry),
        lambda entry: wf.find(arch=entry),
        lambda entry: wf.find(shape=entry),
        lambda entry: wf.find(shape=(entry, 8)),
        lambda entry: wf.find(a=entry),
        lambda entry: wf.find(op=entry),
        lambda entry: wf.find(sparse="yes" if entry is True else entry),
        lambda entry: wf.get(NAME).evidence(entry),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_short_line(ask, entry):
    error = refusal(ask, entry)
    text = str(error)

    assert len(text) < 1500
    assert text.isprintable()
    assert error.reason in text


@pytest.mark.parametrize("arch", ["sm_91", "cray", "", None, 90, ["sm_90"]], ids=repr)
def test_an_arch_or_target_that_there_is_not_is_refused_alike_everywhere(arch):
    mma, wmma = wf.get(NAME), wf.wmma
    A, B = np.zeros((16, 16)), np.zeros((16, 8))
    asked = [
        lambda: wf.execute(NAME, mma.a.pack(A), mma.b.pack(B), arch=arch),
        lambda: wf.gemm(A, B, instruction=NAME, arch=arch),
        lambda: mma(A, B, arch=arch),
        lambda: mma.evidence(arch),
        lambda: wf.test_vectors(NAME, arch=arch),
        lambda: wf.diagnose(NAME, B, A, B, arch=arch),
        lambda: wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major, arch),
    ]
    if arch is not None:  # which is any target
        asked += [lambda: wf.get(NAME, arch=arch), lambda: wf.find(arch=arch), lambda: wf.emit(NAME, arch=arch)]
        asked += [lambda: wf.draw(NAME, "a", arch=arch)]
    for ask in asked:
        assert re.search(
            r"unknown arch .*; expected (one of sm_70, sm_72, |an architecture such as sm_90)", refusal(ask).reason
        )


@pytest.mark.parametrize("short", ["90a", "sm90a", "SM_90A", "compute_90a", " sm_90a "])
def test_a_target_and_an_arch_may_be_written_as_people_do(short):
    mma, wmma = wf.get(NAME), wf.wmma
    A, B = np.ones((16, 16)), np.ones((16, 8))
    assert wf.get(NAME, arch=short) is mma
    assert wf.find(arch=short) == wf.find(arch="sm_90a")
    assert wf.emit(NAME, arch=short) == wf.emit(NAME, arch="sm_90a")
    assert np.array_equal(wf.execute(NAME, mma.a.pack(A), mma.b.pack(B), arch=short), mma.d.pack(np.full((16, 8), 16)))
    assert np.array_equal(wf.gemm(A, B, instruction=NAME, arch=short), mma(A, B, arch=short))
    assert mma.evidence(short) == mma.evidence("sm_90a")
    assert wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major, short).arch == "sm_90"


WORDS = ["mma", "sp", "sync", "row", "f16", "x4", "kind::mxf4", "m8n8", "m16n8k16", ".", "::", ";"]


@given(st.text(max_size=40) | st.lists(st.sampled_from(WORDS)).map(".".join))
def test_any_text_is_an_instruction_or_a_refusal_that_can_be_printed(text):
    try:
        said = wf.get(text).name
    except wf.errors.IllegalInstruction as error:
        said = str(error)
    assert said.isprintable()


@given(st.data())
def test_any_order_of_the_words_is_the_same_instruction(data):
    """Except for words with a fixed order; tests/oracle/test_word_order.py compares with the assembler."""
    listed = data.draw(st.sampled_from(wf.find()))
    form = listed.form
    types = {form.d, form.a, form.b, form.c, form.memory, form.scale_type}
    words = listed.name.removeprefix(f"{listed.op}.").split(".")
    kept = {*types, *form.layouts, form.bitop, "popc"}
    free = data.draw(st.permutations([word for word in words if word not in kept]))
    fixed = [word for word in words if word in kept]
    places = sorted(data.draw(st.lists(st.integers(0, len(free)), min_size=len(fixed), max_size=len(fixed))))
    for shift, (place, word) in enumerate(zip(places, fixed, strict=True)):
        free.insert(place + shift, word)

    assert wf.get(".".join([listed.op, *free])) is wf.get(listed.name)


def test_an_instruction_is_one_object_however_it_comes():
    for name in (NAME, "wmma.load.a.row.m16n16k16.shared.f16", "ldmatrix.x4.m8n8.b16"):
        found = wf.get(name)
        assert pickle.loads(pickle.dumps(found)) is found  # noqa: S301 (our own)
        assert wf.get(found) is found
        assert spell(found.form) == found.name


def test_no_cache_holds_what_users_type():
    """The key is at most as long as a name may be, and the number of keys is limited."""
    longest = NAME + " " * 10**6
    before = registry._get.cache_info()
    assert before.maxsize is not None
    for number in range(50):
        assert wf.get(f"{longest}{number}") is wf.get(NAME)
    assert registry._get.cache_info().currsize <= before.currsize + 1
    assert len(str(refusal(wf.get, "mma." + "x" * 10**6))) < 2 * LONGEST


def test_evidence_unpacks_and_tells_two_things_apart():
    known = wf.get("mma.m16n8k32.s32.s8.s8.s32").evidence("90")
    level, detail, cases = known

    assert (level, known.authority) == ("hardware", "specified")
    assert known.gpus == ("NVIDIA H200",)
    assert "H200" in detail
    assert cases == known.cases > 0
    other = wf.get("mma.m16n8k32.s32.s8.s8.s32").evidence("sm_107a")
    assert (other.level, other.authority, other.cases, other.gpus) == ("specified", "specified", 0, ())
    nobody = wf.get(NAME).evidence("sm_107")
    assert (nobody.level, nobody.authority) == ("not modelled", "not modelled")
    assert wf.get("ldmatrix.m8n8.x4.b16").evidence("sm_75").authority == "specified"
    assert wf.get("wmma.load.a.row.m16n16k16.f16").evidence("sm_90").authority == "measured"
    assert isinstance(other, Evidence)


@pytest.mark.parametrize(("old", "new"), [("sm_101", "sm_110"), ("sm_101a", "sm_110a"), ("sm_101f", "sm_110f")])
def test_sm_101_is_the_old_name_of_sm_110(old, new):
    """Its arithmetic is that of sm_110; its assembler is older than ldmatrix .s8.s4."""
    for one in wf.find(arch=old):
        assert new in one.targets
        assert one.evidence(old) == one.evidence(new)
    assert {one.form.memory for one in wf.find(arch=new)} - {one.form.memory for one in wf.find(arch=old)} <= {"s4"}
