"""Execute on registers and on matrices: batches, broadcasting, every error."""

import inspect
import pickle

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.blas.gemm_backend import Cpu
from warpfrag.isa.immediates import Immediates
from warpfrag.tensorcore.array_types import Scaled
from warpfrag.tensorcore.execute import _form_named

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
S8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
SP = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
ORDERED = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
MX = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
QUAD = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"
W = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
LD = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
ST = "stmatrix.sync.aligned.m8n8.x4.shared.b16"
MOV = "movmatrix.sync.aligned.m8n8.trans.b16"
LOAD = "wmma.load.a.sync.aligned.row.m16n16k16.global.f16"
WMMA = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"


def random_words(name: str, batch: tuple[int, ...] = (), seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    mma = wf.get(name)
    return {
        role: rng.integers(0, 2**32, (*batch, 32, getattr(mma, role).words), dtype=np.uint32)
        for role in ("a", "b", "c")
    }


def legal_metadata(name: str, seed: int = 0) -> np.ndarray:
    sp = wf.get(name)
    codes = np.random.default_rng(seed).choice([0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110], sp.metadata.shape)
    return sp.metadata.pack(codes.astype(np.uint8))


@pytest.mark.parametrize("name", [S8, F16, QUAD, "mma.m16n8k256.s32.b1.b1.s32.and.popc", "mma.m16n8k64.s32.s4.u4.s32"])
def test_registers_and_matrices_agree(name: str):
    mma = wf.get(name)
    words = random_words(name, (3,))
    matrices = [getattr(mma, role).unpack(words[role], raw=True) for role in ("a", "b", "c")]
    assert np.array_equal(mma.d.unpack(wf.execute(name, **words), raw=True), mma(*matrices, raw=True))


def test_integers_are_exact_and_wrap():
    mma = wf.get(S8)
    rng = np.random.default_rng(4)
    A, B = rng.integers(-128, 128, (5, 16, 32)), rng.integers(-128, 128, (5, 32, 8))
    C = rng.choice([-(2**31), 0, 12345, 2**31 - 1], (5, 16, 8))
    exact = A @ B + C
    assert np.array_equal(mma(A, B, C), exact.astype(np.int32))
    saturating = wf.get("mma.m16n8k32.satfinite.s32.s8.s8.s32")
    assert np.array_equal(saturating(A, B, C), np.clip(exact, -(2**31), 2**31 - 1))
    assert (exact != np.clip(exact, -(2**31), 2**31 - 1)).any()


def test_many_tiles_give_what_one_gives():
    words = random_words(F16, (100,), seed=7)
    together = wf.execute(F16, **words)
    for tile in (0, 41, 99):
        assert np.array_equal(wf.execute(F16, **{role: array[tile] for role, array in words.items()}), together[tile])


@pytest.mark.parametrize("name", [F16, S8, QUAD, WMMA, "mma.m8n8k4.f64.f64.f64.f64", "mma.m16n8k16.f16.f16.f16.f16"])
def test_one_tile_is_a_batch_of_one(name: str):
    words = random_words(name, (1,), seed=9)
    together = wf.execute(name, **words)
    alone = {role: array[0] for role, array in words.items()}
    assert np.array_equal(wf.execute(name, **alone), together[0])
    scattered = {role: np.asfortranarray(array) for role, array in alone.items()}
    assert np.array_equal(wf.execute(name, **scattered), together[0])
    alone.pop("c")
    assert np.array_equal(wf.execute(name, **alone), wf.execute(name, words["a"], words["b"])[0])


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_matter(threads: int):
    words = random_words(F16, (300,), seed=8)
    assert np.array_equal(wf.execute(F16, **words, threads=threads), wf.execute(F16, **words))


def test_leading_axes_broadcast():
    words = random_words(S8, (4, 1))
    words["b"] = random_words(S8, (3,), seed=1)["b"]
    words["c"] = random_words(S8, seed=2)["c"]
    found = wf.execute(S8, **words)
    assert found.shape == (4, 3, 32, 4)
    assert np.array_equal(found[2, 1], wf.execute(S8, words["a"][2, 0], words["b"][1], words["c"]))


def test_no_c_is_zero():
    words = random_words(S8)
    zero = np.zeros_like(words["c"])
    assert np.array_equal(wf.execute(S8, words["a"], words["b"]), wf.execute(S8, words["a"], words["b"], zero))
    A, B = np.ones((16, 16)), np.ones((16, 8))
    assert np.array_equal(wf.get(F16)(A, B), np.full((16, 8), 16, np.float32))


def test_only_the_fields_that_the_selector_reads_are_checked():
    words = random_words(SP)
    metadata = legal_metadata(SP)
    assert not metadata.reshape(8, 4)[:, 2:].any()  # lanes of selector 1 hold 0000, which is no legal code
    found = wf.execute(SP, **words, metadata=metadata)
    assert found.shape == (32, 4)
    with pytest.raises(wf.errors.InvalidSparsity, match="metadata code 0000 repeats a position"):
        wf.execute(SP, **words, metadata=metadata, immediates=Immediates(1))


def test_ordered_metadata_must_rise():
    words = random_words(ORDERED)
    metadata = legal_metadata(ORDERED)
    metadata[4] = metadata[4] & ~np.uint32(0xF) | np.uint32(0b0001)
    assert wf.execute(SP, **words, metadata=metadata).shape == (32, 4)
    with pytest.raises(wf.errors.InvalidSparsity, match="row 1, columns 0..3: metadata code 0001 descends"):
        wf.execute(ORDERED, **words, metadata=metadata)


def test_sparse_equals_the_expanded_product_of_integers():
    sp = wf.get("mma.sp.m16n8k64.s32.s8.s8.s32")
    rng = np.random.default_rng(3)
    stored = rng.integers(-128, 128, sp.a.shape)
    codes = rng.choice([4, 8, 9, 12, 13, 14], sp.metadata.shape).astype(np.uint8)
    full, B = sp.expand(stored, codes).astype(np.int64), rng.integers(-128, 128, (64, 8))
    words = wf.execute(sp, sp.a.pack(stored), sp.b.pack(B), metadata=sp.metadata.pack(codes))
    assert np.array_equal(sp.d.unpack(words), full @ B)
    assert np.array_equal(sp(full, B), full @ B)


def test_scale_factors_scale():
    mx = wf.get(MX)
    A, B = np.ones((16, 64)), np.ones((64, 8))
    SA, SB = np.full((16, 4), 2.0), np.full((4, 8), 0.5)
    SA[3] = 4.0
    expected = np.full((16, 8), 64.0)
    expected[3] = 128.0
    assert np.array_equal(mx(Scaled(A, SA), Scaled(B, SB), arch="sm_120"), expected)
    scales, ids = (mx.scale_a.pack(SA, thread_id=1), mx.scale_b.pack(SB, thread_id=1)), Immediates(thread_id=(1, 1))
    found = wf.execute(mx, mx.a.pack(A), mx.b.pack(B), scales=scales, immediates=ids, arch="sm_120a")
    assert np.array_equal(mx.d.unpack(found), expected)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"a": np.zeros((32, 3), np.uint32)},
            wf.errors.InvalidOperand,
            r"operand a of .*uint32\[..., 32, 4\], got shape \(32, 3\)",
        ),
        (
            {"b": np.zeros((32, 4), np.uint32)},
            wf.errors.InvalidOperand,
            r"operand b of .*uint32\[..., 32, 2\], got shape",
        ),
        ({"c": np.zeros((32, 4), np.float32)}, wf.errors.InvalidOperand, "operand c of .*got dtype float32"),
        (
            {"a": np.zeros((2, 32, 4), np.uint32), "b": np.zeros((3, 32, 2), np.uint32)},
            wf.errors.InvalidOperand,
            "do not broadcast",
        ),
        ({"immediates": Immediates(1)}, wf.errors.InvalidOperand, "is dense: it takes no selector, got 1"),
        ({"metadata": np.zeros(32, np.uint32)}, wf.errors.InvalidOperand, "takes no metadata"),
        ({"scales": (np.zeros(32, np.uint32),) * 2}, wf.errors.InvalidOperand, "takes no scale_a"),
        ({"arch": "sm_75"}, wf.errors.IllegalInstruction, "sm_75 does not have this instruction; it runs on sm_80"),
        ({"arch": "sm_91"}, wf.errors.IllegalInstruction, "unknown arch 'sm_91'; expected one of sm_70"),
        ({"arch": "cray"}, wf.errors.IllegalInstruction, "unknown arch 'cray'"),
    ],
)
def test_bad_operands_are_refused(change: dict, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        wf.execute(F16, **(random_words(F16) | change))


def test_an_error_lists_only_architectures_whose_arithmetic_is_known():
    with pytest.raises(wf.errors.IllegalInstruction) as error:
        wf.execute(F16, **random_words(F16), arch="sm_75")
    listed = error.value.reason.split("runs on ")[1].split(", ")
    known = [arch for arch in wf.get(F16).targets if wf.get(F16).evidence(arch).level != "not modelled"]
    assert listed == [arch for arch in known if arch[-1].isdigit()]


def test_sparse_and_scaled_instructions_say_what_they_need():
    with pytest.raises(wf.errors.InvalidOperand, match="needs metadata"):
        wf.execute(SP, **random_words(SP))
    with pytest.raises(wf.errors.IllegalInstruction, match="ptxas accepts selector 2, but the hardware traps on it"):
        wf.execute(SP, **random_words(SP), metadata=legal_metadata(SP), immediates=Immediates(2))
    with pytest.raises(wf.errors.InvalidOperand, match=r"expected registers uint32\[..., 32\], got shape \(31,\)"):
        wf.execute(SP, **random_words(SP), metadata=legal_metadata(SP)[1:])
    with pytest.raises(wf.errors.InvalidOperand, match="needs scale_a"):
        wf.execute(MX, **random_words(MX), arch="sm_120")
    with pytest.raises(wf.errors.InvalidOperand, match="needs scale_b"):
        wf.get(MX)(Scaled(np.ones((16, 64)), np.ones((16, 4))), np.ones((64, 8)), arch="sm_120")


def test_a_mover_computes_nothing():
    words = np.zeros((32, 1), np.uint32)
    with pytest.raises(wf.errors.InvalidOperand, match="takes no b, got"):
        wf.execute("movmatrix.m8n8.trans.b16", words, words)
    with pytest.raises(wf.errors.IllegalInstruction, match="it only moves data, so it has no arithmetic"):
        wf.execute("wmma.load.a.sync.aligned.row.m16n16k16.global.f16", words, words)


def test_wmma_needs_a_measured_layout_for_registers_but_not_for_matrices():
    words = random_words(WMMA)
    with pytest.raises(wf.errors.NotModelled, match="the wmma fragments of sm_80"):
        wf.execute(WMMA, **words, arch="sm_80")
    A = B = np.eye(16)
    assert np.array_equal(wf.get(WMMA)(A, B, arch="sm_80"), np.eye(16, dtype=np.float32))


def test_what_nobody_modelled_is_refused():
    with pytest.raises(wf.errors.NotModelled):
        wf.execute(SP, **random_words(SP), metadata=legal_metadata(SP), arch="sm_80")


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (Immediates(byte_id=0), r"byte_id: expected a pair for A and B, such as \(0, 0\); got 0"),
        (Immediates(thread_id=(0, 1, 2)), r"thread_id: expected a pair .*; got \(0, 1, 2\)"),
        (Immediates(byte_id=(1, 0)), r"has no scale factors: it takes no byte_id, got \(1, 0\)"),
    ],
)
def test_ids_that_mean_nothing_are_refused(ids: Immediates, message: str):
    a, b = np.zeros((32, 4), np.uint32), np.zeros((32, 2), np.uint32)
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        wf.execute("mma.m16n8k16.f32.f16.f16.f32", a, b, immediates=ids)


@pytest.mark.parametrize(
    "name",
    [F16, QUAD, WMMA, SP, ORDERED, MX, W, "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16", LD, ST, MOV, LOAD],
)
def test_every_class_takes_at_most_ten_parameters_and_has_a_docstring(name: str):
    method = type(wf.get(name)).execute
    assert len(inspect.signature(method).parameters) <= 10
    assert method.__doc__


def test_methods_give_what_the_function_gives():
    words = random_words(F16, (2,))
    mma = wf.get(F16)
    assert np.array_equal(mma.execute(**words, arch="sm_80"), wf.execute(F16, **words, arch="sm_80"))
    sp, metadata = wf.get(SP), legal_metadata(SP)
    words = random_words(SP)
    assert np.array_equal(sp.execute(**words, metadata=metadata), wf.execute(SP, **words, metadata=metadata))
    memory, addresses = np.arange(512, dtype=np.uint16).view(np.uint8), np.arange(32) * 16
    loaded = wf.get(LD).execute(addresses, shared=memory)
    assert np.array_equal(loaded, wf.execute(LD, addresses, shared=memory))
    assert np.array_equal(wf.get(ST).execute(addresses, loaded, shared=np.zeros_like(memory))[:512], memory[:512])
    assert np.array_equal(wf.get(MOV).execute(loaded[:, :1]), wf.execute(MOV, loaded[:, :1]))


def test_methods_take_only_what_their_class_has():
    words = random_words(F16)
    with pytest.raises(wf.errors.InvalidOperand, match="takes no metadata"):
        wf.get(F16).execute(**words, metadata=legal_metadata(SP))
    with pytest.raises(wf.errors.InvalidOperand, match="needs metadata"):
        wf.get(SP).execute(**random_words(SP))
    with pytest.raises(wf.errors.IllegalInstruction, match="it only moves data, so it has no arithmetic"):
        wf.get(LOAD).execute(words["a"])


def test_a_documented_default_is_never_refused():
    defaults = {
        "metadata": None, "scales": None, "immediates": Immediates(), "shared": None, "arch": "sm_90", "threads": None,
    }  # fmt: skip
    words = random_words(F16)
    assert np.array_equal(wf.execute(F16, **words, **defaults), wf.execute(F16, **words))
    w = wf.get(W)
    tile, a = w.b.store(np.ones((16, 8), np.float16)), w.a.pack(np.ones((64, 16), np.float16))
    assert np.array_equal(wf.execute(w, a, tile, None, **defaults), w.execute(a, tile))
    metadata = legal_metadata(SP)
    words = random_words(SP)
    changed = defaults | {"metadata": metadata}
    assert np.array_equal(wf.execute(SP, **words, **changed), wf.get(SP).execute(**words, metadata=metadata))
    memory, addresses = np.zeros(512, np.uint8), np.zeros(32, np.int64)
    assert wf.execute(LD, addresses, None, None, **(defaults | {"shared": memory})).shape == (32, 4)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (LD, {"metadata": np.zeros(32, np.uint32)}, "takes no metadata"),
        (LD, {"immediates": Immediates(trans=(True, False))}, "takes no immediates"),
        (LD, {"b": np.zeros((32, 1), np.uint32)}, "takes no b, got"),
        (ST, {"b": np.zeros((32, 4), np.uint32), "c": 1}, "takes no c"),
        (ST, {}, "needs b, the registers to store"),
        (LD, {"shared": None}, "needs shared=, the bytes of its memory"),
    ],
)
def test_what_a_move_does_not_take_is_refused(name: str, change: dict, message: str):
    call = {"a": np.zeros(32, np.int64), "shared": np.zeros(512, np.uint8)} | change
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        wf.execute(name, **call)


def test_pasted_source_is_not_kept():
    source = f"// {'x' * 4_000}\n{F16};"
    words = random_words(F16)
    before = _form_named.cache_info().currsize
    assert np.array_equal(wf.execute(source, **words), wf.execute(F16, **words))
    assert _form_named.cache_info().currsize <= before + 1


def test_a_refusal_travels_to_other_processes():
    with pytest.raises(wf.errors.IllegalInstruction) as refusal:
        wf.get("mma.m16n8k17.f32.f16.f16.f32")
    copy = pickle.loads(pickle.dumps(refusal.value))  # noqa: S301 (our own bytes)
    assert (str(copy), copy.nearest) == (str(refusal.value), refusal.value.nearest)
    assert copy.nearest


def test_a_refusal_does_not_deny_a_legal_instruction():
    with pytest.raises(wf.errors.IllegalInstruction) as refusal:
        wf.get("mma.sp.m16n8k32.f32.f16.f16.f32", selector=7)
    assert str(refusal.value) == (
        "'mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32': selector 7 is out of range; legal selectors are 0, 1"
    )


@pytest.mark.parametrize("batch", [(0,), (3, 0), (0, 3), (2, 0, 3)])
def test_a_batch_may_be_empty(batch: tuple[int, ...]):
    """In any of its axes, for every operand of every kind, and for every method."""
    for name in (F16, S8, SP, MX, QUAD, WMMA, "mma.m8n8k4.f64.f64.f64.f64", "mma.m16n8k256.s32.b1.b1.s32.and.popc"):
        mma = wf.get(name)
        matrices = {role: np.zeros((*batch, *mma.operands[role].shape)) for role in "abc"}
        words = {role: mma.operands[role].pack(matrix) for role, matrix in matrices.items()}
        for role, packed in words.items():
            operand = mma.operands[role]
            assert packed.shape == (*batch, 32, operand.words)
            assert operand.unpack(packed, strict=True).shape == matrices[role].shape
        more, arch = {}, "sm_90"
        if mma.metadata is not None:
            codes = np.full((*batch, *mma.metadata.shape), 0b0100, np.uint8)
            more["metadata"] = mma.metadata.pack(codes)
            assert mma.metadata.unpack(more["metadata"]).shape == codes.shape
            assert mma.expand(matrices["a"], codes).shape[: len(batch)] == batch
        if mma.scale_a is not None:
            scales = {role: np.ones((*batch, *mma.operands[role].shape)) for role in ("scale_a", "scale_b")}
            words_of_scales = [mma.operands[role].pack(scale) for role, scale in scales.items()]
            more, arch = {"scales": (words_of_scales[0], words_of_scales[1])}, "sm_120"
            assert mma.scale_a.unpack(words_of_scales[0]).shape == scales["scale_a"].shape
        assert wf.execute(mma, **words, **more, arch=arch).shape == (*batch, 32, mma.d.words)
    shared, addresses = np.zeros(512, np.uint8), np.zeros((*batch, 32), np.int64)
    for shape, kind in (("m8n8", "b16"), ("m16n8", "b8")):
        store = wf.get(f"stmatrix.{shape}.x4.trans.shared.{kind}")
        words = np.zeros((*batch, 32, store.a.words), np.uint32)
        assert np.array_equal(wf.execute(store, addresses, words, shared=shared), shared)
    assert wf.execute("ldmatrix.m8n8.x4.shared.b16", addresses, shared=shared).shape == (*batch, 32, 4)
    assert wf.execute("movmatrix.m8n8.trans.b16", np.zeros((*batch, 32, 1), np.uint32)).shape == (*batch, 32, 1)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: wf.execute([F16], 0, 0), "expected PTX text, got a list"),
        (lambda: wf.gemm([[1]], [[1]], instruction=3), "expected PTX text, got a int"),
        (lambda: wf.gemm([[1, 2], [3]], [[1]], instruction=F16), "A: expected an array .*, got rows of unequal"),
        (
            lambda: wf.get(F16).a.pack([[1], [1, 2]]),
            "operand a of .*: expected an array of numbers, got rows of unequal",
        ),
        (
            lambda: wf.get(F16).a.unpack([[1], [1, 2]]),
            "operand a of .*: expected an array of numbers, got rows of unequal",
        ),
        *[
            (lambda run=run, threads=threads: run(threads), f"threads must be a positive integer, .*; got {threads!r}")
            for threads in (0, -1, "x", 1.5, True)
            for run in (
                lambda threads: wf.gemm(np.ones((0, 4)), np.ones((4, 3)), instruction=F16, backend=Cpu(threads)),
                lambda threads: wf.execute(F16, **random_words(F16), threads=threads),
                lambda threads: wf.execute(F16, **random_words(F16, (0,)), threads=threads),
                lambda threads: wf.get(F16)(np.ones((16, 16)), np.ones((16, 8)), threads=threads),
            )
        ],
        (lambda: wf.test_vectors(F16, seed=1.5), "seed: expected a non-negative integer, got 1.5"),
    ],
)
def test_what_is_no_instruction_no_array_or_no_number_is_refused(ask, message: str):
    with pytest.raises(wf.WarpfragError, match=message):
        ask()
