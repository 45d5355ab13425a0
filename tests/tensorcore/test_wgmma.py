"""wgmma: forms, registers, descriptors, shared memory and execution, against statements made apart from the tables."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpfrag as wf
from instructions import every
from oracle import wgmma_formulas as formulas
from warpfrag.isa.immediates import Immediates
from warpfrag.smem.descriptor import Problem

ACCEPTED = [
    line.split()
    for line in (Path(__file__).parents[1] / "data" / "wgmma_accepts.txt").read_text(encoding="utf-8").splitlines()
]
NAMES = [pattern.replace("*", n) for pattern, widths in ACCEPTED for n in widths.split(",")]
WARPGROUP = [one for one in every() if one.form.is_warpgroup]
NARROW = [one for one in WARPGROUP if one.shape.n <= 24]
F16 = wf.get("wgmma.mma_async.m64n64k16.f32.f16.f16")
TF32 = wf.get("wgmma.mma_async.m64n64k8.f32.tf32.tf32")
S8 = wf.get("wgmma.mma_async.m64n32k32.s32.s8.s8")
B1 = wf.get("wgmma.mma_async.m64n8k256.s32.b1.b1.and.popc")
SPARSE = wf.get("wgmma.mma_async.sp.m64n16k32.f32.f16.f16")
FP8 = wf.get("wgmma.mma_async.m64n8k32.f32.e4m3.e4m3")


def named(instructions):
    return pytest.mark.parametrize("w", instructions, ids=[one.name.partition("aligned.")[2] for one in instructions])


def codes(operand, seed, batch=()):
    """Random codes of an operand: finite numbers for floats."""
    chance = np.random.default_rng(seed)
    if operand.format.name in ("tf32", "f32"):
        return chance.standard_normal((*batch, *operand.shape)).astype(np.float32).view(np.uint32)
    if operand.format.name == "f16":
        return chance.standard_normal((*batch, *operand.shape)).astype(np.float16).view(np.uint16)
    most = {"e4m3": 0x7F, "e5m2": 0x7C, "bf16": 0x7F80}.get(operand.format.name, operand.format.codes)
    return chance.integers(0, most, (*batch, *operand.shape), dtype=np.uint64).astype(np.uint32)


# ---- forms


def test_the_assembler_takes_exactly_these_forms():
    assert len(NAMES) == 1074
    assert {one.name for one in wf.find() if one.form.is_warpgroup} == set(NAMES)
    assert {one.targets for one in wf.find() if one.form.is_warpgroup} == {("sm_90a",)}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16", "'m64n12k16' is not a valid shape"),
        ("wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8", "with wgmma.mma_async m64n40k32: expected"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16", "'bf16' is not a valid type of A"),
        ("wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.xor.popc", "'xor.popc' is not a valid bit operation"),
        ("wgmma.mma_async.sp::ordered_metadata.sync.aligned.m64n8k32.f32.f16.f16", "unknown qualifier"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.row.col.f32.f16.f16", "'row' is not a qualifier of wgmma.mma_async"),
        ("wgmma.fence.sync.aligned", "a wgmma fence or wait"),
    ],
)
def test_what_is_no_form_is_refused_with_its_word(name, reason):
    with pytest.raises(wf.errors.IllegalInstruction) as error:
        wf.get(name)
    assert reason in error.value.reason
    assert all(near.startswith("wgmma") for near in error.value.nearest)


def test_words_come_in_any_order_and_one_target_takes_them():
    assert wf.get("wgmma.mma_async.m64n64k16.sync.f32.aligned.f16.f16") is F16
    assert wf.get("wgmma.mma_async.sync.aligned.m64n16k32.f32.f16.sp.f16") is SPARSE
    assert wf.get(F16.name, arch="sm_90a") is F16
    with pytest.raises(wf.errors.IllegalInstruction, match="legal on sm_90a"):
        wf.get(F16.name, arch="sm_100a")


# ---- registers


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".f16.f16") and ".sp." not in name])
def test_accumulators_of_every_width_are_as_the_isa_says(name):
    operand = wf.get(name).d
    places = operand.layout.places()
    found = [tuple(operand.layout.at(**place._asdict())) for place in places]
    count = operand.regs * operand.slots
    assert operand.words == wf.get(name).shape.n // (2 if operand.format.bits == 32 else 4)
    assert found == [
        formulas.accumulator(warp, lane, i) for warp in range(4) for lane in range(32) for i in range(count)
    ]


@named([one for one in WARPGROUP if one.shape.n == 8])
def test_multiplicands_and_metadata_are_as_the_isa_says(w):
    for place in w.a.layout.places():
        expected = formulas.multiplicand(place.warp, place.lane, place.reg, place.slot, w.a.format.bits)
        assert tuple(w.a.layout.at(**place._asdict())) == expected
    assert w.a.regs == 4
    assert w.c.layout == w.d.layout
    if w.form.is_sparse:
        kind = "16-bit or tf32" if w.a.format.bits > 8 else "8-bit"
        for place in w.metadata.layout.places():
            expected = formulas.metadata(place.warp, place.lane, 4 * place.slot, kind)
            assert tuple(w.metadata.layout.at(**place._asdict())) == expected


def test_a_warpgroup_packs_four_warps():
    C = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    words = F16.c.pack(C)
    assert words.shape == (4, 32, 32)
    assert words[1, 5, 7] == C[25, 11].view(np.uint32)
    assert (F16.c.unpack(words) == C).all()
    assert F16.a.storage == "warpgroup"
    assert SPARSE.metadata.where(row=17, chunk=5, selector=1) == (1, 7, 4)
    assert SPARSE.metadata.at(warp=1, lane=7, bit=4, selector=1) == (17, 5)
    assert SPARSE.a.span(warp=1, lane=5, reg=2) == (17, 20, 23)


@pytest.mark.parametrize("what", ["layout", "regs", "slots", "threads", "words"])
def test_b_has_no_registers(what):
    with pytest.raises(wf.errors.InvalidOperand, match="is in shared memory and has no registers"):
        getattr(F16.b, what)
    for call in (lambda: F16.b.pack(np.zeros((16, 64))), lambda: F16.b.unpack(np.zeros((4, 32, 4), np.uint32))):
        with pytest.raises(wf.errors.InvalidOperand, match="store"):
            call()
    assert F16.b.storage == "shared"
    assert "shared memory" in repr(F16.b)


# ---- descriptors


@given(st.integers(0, 2**64 - 1))
def test_a_word_comes_back_as_it_was(word):
    assert wf.Descriptor.decode(word).word == word


@given(st.data())
def test_addresses_are_as_the_hardware_has_them(data):
    w = data.draw(st.sampled_from([F16, TF32, S8, SPARSE, FP8]))
    operand = data.draw(st.sampled_from([w.a, w.b]))
    trans = operand.format.bits == 16 and data.draw(st.booleans())
    number = st.integers(0, 255).map(lambda units: 16 * units)
    descriptor = wf.Descriptor(
        data.draw(number), data.draw(number), data.draw(number), data.draw(st.sampled_from([0, 32, 64, 128])),
        data.draw(st.integers(0, 7)),
    )  # fmt: skip
    found = operand.addresses(descriptor, trans)
    size = operand.format.bits // 8
    expected = [
        [formulas.address(descriptor.word, operand.role, row, col, size, trans=trans) for col in range(found.shape[1])]
        for row in range(found.shape[0])
    ]
    assert found.tolist() == expected
    assert (operand.addresses(descriptor.word, trans) == found).all()


def test_bits_share_their_bytes():
    descriptor = wf.Descriptor(leading=128, stride=256)
    found = B1.b.addresses(descriptor)
    assert found.shape == (256, 8)
    expected = [formulas.address(descriptor.word, "b", k // 8, 1, 1, trans=False) for k in range(256)]
    assert found[:, 1].tolist() == expected


@named(NARROW)
def test_a_stored_operand_is_read_back_wherever_a_good_descriptor_puts_it(w):
    chance = random.Random(w.name)
    for operand in (w.a, w.b):
        matrix = codes(operand, 1)
        mine = operand.shape[1 if operand.role == "a" else 0]
        for trans in {False, operand.format.bits == 16}:
            inner = operand.shape[1 if operand.role == "b" else 0] if trans else 4 * mine
            line = inner * operand.format.bits // 8
            fitting = [swizzle for swizzle in (0, 32, 64, 128) if line % max(16, swizzle) == 0]
            assert fitting
            for swizzle in fitting:
                steps = operand.descriptors(k=4 * mine, swizzle=swizzle, trans=trans, start=1024)
                assert len(steps) == 4
                one = chance.choice(steps)
                assert one.problems(operand, trans=trans) == []
                tile = operand.store(matrix, one, trans=trans, raw=True)
                assert (operand.load(tile, raw=True) == matrix).all()
        tile = operand.store(matrix, raw=True)
        assert len(np.unique(operand.addresses(tile.descriptor))) * max(1, operand.format.bits // 8) == tile.memory.size


def test_steps_along_k_cover_a_tile_once():
    for trans in (False, True):
        for swizzle in (0, 32, 64, 128):
            steps = F16.b.descriptors(k=64, swizzle=swizzle, trans=trans)
            taken = np.concatenate([F16.b.addresses(one, trans).ravel() for one in steps])
            assert sorted(taken) == list(range(0, 64 * 64 * 2, 2))


ODD = {
    "leading 64 is not used: K-major, the 32 bytes of a line are in one atom": (
        F16.b, wf.Descriptor(leading=64, stride=1024, swizzle=128), False),
    "stride 512 is not used: K-major, all 8 lines are in one atom": (
        FP8.b, wf.Descriptor(leading=128, stride=512), False),
    "start 128 is 1 rows of 128 bytes into a pattern that repeats every 1024 bytes": (
        F16.b, wf.Descriptor(start=128, stride=1024, swizzle=128), False),
    "stride 1040 is not a multiple of 1024, after which a 128-byte swizzle repeats": (
        F16.b, wf.Descriptor(stride=1040, swizzle=128), False),
    "start 112 is 112 bytes into a line of 128 bytes: 32 bytes from there run into the next line": (
        F16.b, wf.Descriptor(start=112, stride=1024, swizzle=128), False),
    "base_offset 3 has no effect without a swizzle": (
        F16.b, wf.Descriptor(leading=128, stride=256, base_offset=3), False),
    "elements overlap: row 0, column 0 and row 0, column 8 are both at byte 0": (
        F16.b, wf.Descriptor(swizzle=128), False),
    "beyond the 232448 bytes": (
        F16.b, wf.Descriptor(start=229376, stride=1024, swizzle=128), False),
    "bits 0x4000 belong to no field and should be 0": (
        F16.b, wf.Descriptor(stride=1024, swizzle=128, other=0x4000), False),
    "leading 32 is not used: MN-major, the 128 bytes of a line are in one atom": (
        F16.b, wf.Descriptor(leading=32, stride=1024, swizzle=128), True),
}  # fmt: skip


@pytest.mark.parametrize("text", ODD)
def test_each_mistake_has_a_problem_that_says_what_is_wrong(text):
    operand, descriptor, trans = ODD[text]
    found = descriptor.problems(operand, trans=trans)
    assert any(text in problem.text for problem in found), found
    assert all(isinstance(problem, Problem) for problem in found)


def test_a_pattern_may_start_late():
    descriptor = wf.Descriptor(start=128, stride=1024, swizzle=128, base_offset=1)
    assert descriptor.problems(F16.b) == []


def test_a_swizzled_descriptor_of_cute_has_no_problem():
    assert wf.Descriptor.decode(0x4000004000010000).leading == 16
    assert wf.Descriptor.decode(0x4000004000010000).problems(F16.b) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: wf.Descriptor(start=8), "start: expected a multiple of 16 bytes from 0 to 262128, got 8"),
        (lambda: wf.Descriptor(stride=1 << 18), "from 0 to 262128"),
        (lambda: wf.Descriptor(leading=-16), "leading"),
        (lambda: wf.Descriptor(swizzle=16), "swizzle must be 0, 32, 64, 128 bytes, got 16"),
        (lambda: wf.Descriptor(base_offset=8), "base_offset: expected a number from 0 to 7, got 8"),
        (lambda: wf.Descriptor(other=1), "belong to no field"),
        (lambda: wf.Descriptor.decode(1 << 64), "a descriptor of 64 bits"),
        (lambda: wf.Descriptor.decode("x"), "a descriptor of 64 bits"),
        (lambda: S8.b.addresses(0, True), "only 16-bit types can be MN-major"),
        (lambda: F16.b.addresses("x"), "expected a Descriptor or a 64-bit word, got 'x'"),
        (lambda: F16.d.addresses(0), "only A and B of wgmma can be in shared memory"),
        (lambda: wf.get("mma.m16n8k16.f32.f16.f16.f32").a.store(np.zeros((16, 16))), "only A and B of wgmma"),
        (lambda: F16.b.store(np.zeros((64, 16))), r"expected an array of shape \(..., 16, 64\)"),
        (lambda: F16.b.store(np.zeros((16, 64)), wf.Descriptor(swizzle=128)), "are both at byte"),
        (lambda: F16.b.load(np.zeros(4)), "expected a Shared, as `store` returns"),
        (lambda: F16.b.load(wf.Shared(np.zeros(64, np.uint8), wf.Descriptor(stride=1024))), "reaches byte"),
        (lambda: F16.b.descriptors(k=24), "a multiple of 16"),
        (lambda: F16.b.descriptors(swizzle=128), "expected a line whose size is a multiple of 128 bytes"),
    ],
)  # fmt: skip
def test_what_is_no_descriptor_or_tile_is_refused(make, message):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        make()


def test_a_tensor_map_leaves_the_tile_that_the_descriptor_reads():
    for trans in (False, True):
        for swizzle in (0, 32, 64, 128):
            steps = F16.b.descriptors(k=64, swizzle=swizzle, trans=trans)
            found = steps[0].tensor_map(F16.b, trans=trans, k=64)
            inner, count = found.box
            memory = np.full(64 * 64 * 2, -1, np.int64)
            for first, byte in found.copies:  # TMA: line after line, and its own swizzle of absolute addresses
                for line in range(count):
                    for element in range(inner):
                        at = byte + line * inner * 2 + element * 2
                        at ^= at // 128 % 8 % max(1, swizzle // 16) * 16
                        memory[at] = (first + element) * 1000 + line
            for step, one in enumerate(steps):
                found_at = memory[F16.b.addresses(one, trans)]
                k, n = np.indices((16, 64))
                k += 16 * step
                assert (found_at == (n * 1000 + k if trans else k * 1000 + n)).all()
            assert found.swizzle.endswith(f"_{swizzle}B" if swizzle else "NONE")


@pytest.mark.parametrize(
    ("descriptor", "reason"),
    [
        (wf.Descriptor(start=64, stride=1024, swizzle=128), "multiples of 128 bytes"),
        (wf.Descriptor(stride=1024, swizzle=128, base_offset=1), "base_offset must be 0"),
        (wf.Descriptor(stride=2048, swizzle=128), "stride must be 1024, not 2048"),
    ],
)
def test_no_tensor_map_leaves_some_tiles(descriptor, reason):
    with pytest.raises(wf.errors.InvalidOperand, match=reason):
        descriptor.tensor_map(F16.b, k=64)


# ---- execution


@named(NARROW)
def test_registers_shared_memory_and_matrices_agree(w):
    """However A and B are given, D is the same; k and the rows of A are those of the matrices."""
    a, b, c = codes(w.a, 1, (2,)), codes(w.b, 2, (2,)), codes(w.c, 3, (2,))
    extra = {}
    if w.form.is_sparse:
        rising = sorted(w.pattern.rising)
        fields = np.array(rising, np.uint8)[np.random.default_rng(4).integers(0, len(rising), w.metadata.shape)]
        extra = {
            "metadata": w.metadata.pack(fields, selector=w.selectors[-1]),
            "immediates": Immediates(w.selectors[-1]),
        }
        a_full = w.expand(a, np.broadcast_to(fields, (2, *fields.shape)), raw=True)
    else:
        a_full = a
    words, tile_a, tile_b = w.a.pack(a, raw=True), w.a.store(a, raw=True), w.b.store(b, raw=True)
    found = wf.execute(w, words, tile_b, w.c.pack(c, raw=True), **extra)
    assert found.shape == (2, 4, 32, w.d.words)
    assert (wf.execute(w, tile_a, tile_b, w.c.pack(c, raw=True), **extra) == found).all()
    one = w.d.unpack(found, raw=True)[1]
    if not w.form.is_sparse:  # a full A may be stored in another order
        assert (w(a_full[1], b[1], c[1], raw=True) == one).all()
        assert (wf.gemm(a_full[1], b[1], c[1], instruction=w, raw=True) == one).all()


def test_descriptors_read_one_memory():
    chance = np.random.default_rng(0)
    A, B = chance.standard_normal((64, 16)).astype(np.float16), chance.standard_normal((16, 64)).astype(np.float16)
    for trans in (False, True):
        a = F16.a.store(A, trans=trans)
        desc_b = F16.b.descriptors(trans=trans, start=4096)[0]
        b = F16.b.store(B, desc_b, trans=trans)
        memory = b.memory.copy()
        memory[: a.memory.size] = a.memory
        both = wf.execute(F16, a.descriptor.word, desc_b, shared=memory, immediates=Immediates(trans=(trans, trans)))
        assert (both == wf.execute(F16, F16.a.pack(A), F16.b.store(B))).all()
        assert (
            wf.execute(F16, F16.a.pack(A), desc_b.word, shared=memory, immediates=Immediates(trans=(False, trans)))
            == both
        ).all()
        assert (wf.execute(F16, a, desc_b, shared=memory, immediates=Immediates(trans=(trans, trans))) == both).all()
        batch = wf.execute(
            F16,
            F16.a.pack(A),
            desc_b,
            shared=np.stack([memory, np.zeros_like(memory)]),
            immediates=Immediates(trans=(False, trans)),
        )
        assert (batch[0] == both).all()
        assert not batch[1].any()


def test_signs_and_the_old_d():
    chance = np.random.default_rng(0)
    A, B, C = (chance.standard_normal(shape).astype(np.float16) for shape in ((64, 16), (16, 64), (64, 64)))
    a, b, c = F16.a.pack(A), F16.b.store(B), F16.c.pack(C.astype(np.float32))
    plain = wf.execute(F16, a, b, c)
    assert (wf.execute(F16, a, b, c, immediates=Immediates(negate=(True, True))) == plain).all()
    for negate in ((True, False), (False, True)):
        assert (
            wf.execute(F16, a, b, c, immediates=Immediates(negate=negate)) == wf.execute(F16, F16.a.pack(-A), b, c)
        ).all()
    assert (wf.execute(F16, a, b, c, immediates=Immediates(scale_d=False)) == wf.execute(F16, a, b)).all()
    assert (wf.execute(F16, a, b, c, immediates=Immediates(scale_d=False)) != plain).any()


REFUSED = [
    ({"b": np.zeros((4, 32, 4), np.uint32)}, "is in shared memory: expected a Shared"),
    ({"b": 0}, "is a descriptor: it needs shared="),
    ({"b": None}, "is in shared memory: expected a Shared"),
    ({"a": np.zeros((32, 4), np.uint32)}, "expected registers uint32"),
    ({"c": np.zeros((4, 32, 4), np.uint32)}, "expected registers uint32"),
    ({"immediates": Immediates(trans=(True, False))}, "is in registers, which cannot be transposed"),
    ({"immediates": Immediates(trans=(False, True))}, "a Shared tile already has its order"),
    ({"immediates": Immediates(trans=True)}, "trans must be a pair of bools"),
    ({"immediates": Immediates(negate=(1, 0))}, "negate must be a pair of bools"),
    ({"immediates": Immediates(scale_d=2)}, "scale_d must be True or False, got 2"),
    ({"shared": np.zeros(64, np.uint8)}, "neither A nor B is one"),
    ({"b": wf.Descriptor(stride=1024, swizzle=128), "shared": np.zeros(64, np.uint8)}, "reaches byte"),
    ({"b": 0, "shared": np.zeros(64, np.uint16)}, "shared to be uint8"),
    ({"immediates": Immediates(selector=1)}, "is dense: it takes no selector"),
    ({"metadata": np.zeros((4, 32), np.uint32)}, "takes no metadata"),
    ({"scales": (np.zeros((4, 32), np.uint32),) * 2}, "takes no scales"),
    ({"immediates": Immediates(byte_id=(1, 0))}, "takes no byte_id"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_cannot_be_run_is_refused(change, message):
    good = {"a": np.zeros((4, 32, 4), np.uint32), "b": F16.b.store(np.zeros((16, 64), np.float16)), "c": None}
    call = good | change
    with pytest.raises(wf.WarpfragError, match=message):
        wf.execute(F16, call.pop("a"), call.pop("b"), call.pop("c"), **call)


def test_only_wgmma_takes_what_wgmma_takes():
    mma = wf.get("mma.m16n8k16.f32.f16.f16.f32")
    a, b = np.zeros((32, 4), np.uint32), np.zeros((32, 2), np.uint32)
    for change in (Immediates(negate=(True, False)), Immediates(scale_d=False), Immediates(trans=(False, True))):
        with pytest.raises(wf.errors.InvalidOperand, match="only wgmma does"):
            wf.execute(mma, a, b, immediates=change)
    with pytest.raises(wf.errors.InvalidOperand, match="only wgmma reads tiles"):
        wf.execute(mma, a, F16.b.store(np.zeros((16, 64), np.float16)))
    tile = S8.b.store(np.zeros((32, 32), np.int8))
    with pytest.raises(wf.errors.InvalidOperand, match="only float types can be negated"):
        wf.execute(S8, np.zeros((4, 32, 4), np.uint32), tile, immediates=Immediates(negate=(True, False)))
    with pytest.raises(wf.errors.IllegalInstruction, match="does not have this instruction; it runs on sm_90a"):
        wf.execute(F16, np.zeros((4, 32, 4), np.uint32), F16.b.store(np.zeros((16, 64))), arch="sm_100")


def test_thirteen_bits_of_fp8():
    """1 + 2**-13 keeps its last bit, 1 + 2**-14 loses it: fp8 of a warpgroup adds with 13 bits below the largest."""
    one, tiny = np.zeros((64, 32), np.float32), np.zeros((32, 8), np.float32)
    one[:, :2] = 1
    tiny[0], tiny[1] = 1, 2.0**-9
    C = np.zeros((64, 8), np.float32)
    assert FP8(one, tiny, C, rounding="rne")[0, 0] == 1 + 2.0**-9
    assert FP8(one, np.where(tiny == 1, 1, 0).astype(np.float32), C + 2.0**-13)[0, 0] == 1 + 2.0**-13
    assert FP8(one, np.where(tiny == 1, 1, 0).astype(np.float32), C + 2.0**-14)[0, 0] == 1
    assert FP8.evidence("sm_90").level == "hardware"
