"""tcgen05 on tensor memory: products, loads, stores, copies and shifts, and the words that products take."""

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from warpfrag.tensorcore.array_types import Scaled
from warpfrag.tensorcore.execute_tcgen05 import half

RANDOM = np.random.default_rng(33)
F16 = "tcgen05.mma.cta_group::1.kind::f16"


def tensor_memory(*, pair=False):
    """Return tensor memory with random contents."""
    return RANDOM.integers(0, 1 << 32, (2, 128, 512) if pair else (128, 512), dtype=np.uint32)


def normal(shape, dtype):
    return RANDOM.normal(size=shape).astype(dtype)


def test_a_product_changes_the_columns_of_d_and_nothing_else():
    t = wf.get(F16, m=128, n=64, a="bf16", b="bf16", d="f32")
    A, B, C = normal((128, 16), ml_dtypes.bfloat16), normal((16, 64), ml_dtypes.bfloat16), normal((128, 64), np.float32)
    before = tensor_memory()
    before[:, 100:164] = t.d.pack(C)
    after = t.execute(before, t.a.store(A), t.b.store(B), at={"d": 100})
    assert (t.d.unpack(after[:, 100:164], raw=True) == t(A, B, C, arch="sm_100").view(np.uint32)).all()
    others = np.r_[0:100, 164:512]
    assert (after[:, others] == before[:, others]).all()
    before[:, :8] = t.a.pack(A)
    from_tensor_memory = t.execute(before, None, t.b.store(B), at={"d": 100, "a": 0})
    assert (from_tensor_memory[:, 100:164] == after[:, 100:164]).all()
    word = t.descriptor(transpose_b=True, negate_a=True)
    turned = t.execute(before, t.a.store(A), t.b.store(B, trans=True), at={"d": 100}, accumulate=False, idesc=word.word)
    assert (t.d.unpack(turned[:, 100:164]) == t(-A, B, arch="sm_100")).all()


@pytest.mark.parametrize("base", [0, 16])
def test_64_rows_take_the_lanes_of_their_base(base):
    t = wf.get(F16, m=64, n=24, a="f16", d="f16")
    A, B = normal((64, 16), np.float16), normal((16, 24), np.float16)
    before = tensor_memory()
    after = t.execute(before, t.a.store(A), t.b.store(B), at={"d": base << 16}, accumulate=False)
    used = np.arange(128) // 16 % 2 == base // 16
    assert (after[~used] == before[~used]).all()
    assert (after[used][:, :24] == t(A, B, arch="sm_100").view(np.uint16)).all()  # and the upper halves are zero


@pytest.mark.parametrize(
    ("name", "scale", "k"),
    [
        ("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16", "ue4m3", 64),
        ("tcgen05.mma.cta_group::1.kind::mxf4.block_scale", "ue8m0", 64),
        ("tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale", "ue8m0", 32),
    ],
)
def test_scale_factors_are_read_from_their_bytes(name, scale, k):
    t = wf.get(name, m=128, n=72, a="e2m1", b="e2m1", k=k, scale_type=scale)
    A, B = RANDOM.integers(0, 16, t.a.shape), RANDOM.integers(0, 16, t.b.shape)
    SA, SB = (RANDOM.integers(100, 120, operand.shape) for operand in (t.scale_a, t.scale_b))
    for byte_id in t.scale_a.byte_ids:
        memory = tensor_memory()
        memory[:, 300 : 300 + t.scale_a.columns] = t.scale_a.pack(SA, byte_id=byte_id, raw=True)
        memory[:, 310 : 310 + t.scale_b.columns] = t.scale_b.pack(SB, byte_id=byte_id, raw=True)
        word = t.descriptor(scale_a_id=byte_id, scale_b_id=byte_id)
        tiles = t.a.store(A, raw=True), t.b.store(B, raw=True)
        at = {"scale_a": 300, "scale_b": 310}
        after = t.execute(memory, *tiles, accumulate=False, at=at, idesc=word)
        expected = t(Scaled(A, SA), Scaled(B, SB), arch="sm_100", raw=True)
        assert (t.d.unpack(after[:, : t.d.columns], raw=True) == expected).all()


@pytest.mark.parametrize("sparse", ["", ".sp"])
@pytest.mark.parametrize("m", [128, 256])
def test_a_pair_of_blocks_multiplies_integers_exactly(sparse, m):
    t = wf.get(f"tcgen05.mma{sparse}.cta_group::2.kind::i8", m=m, n=64, a="s8", b="u8")
    A = RANDOM.integers(-128, 128, (m, t.shape.k)).astype(np.int8)
    B = RANDOM.integers(0, 256, (t.shape.k, 64)).astype(np.uint8)
    memory, at, stored = tensor_memory(pair=True), {}, A
    if sparse:
        A = wf.prune(A, "2:4")
        stored, codes = t.compress(A)
        memory[..., 400 : 400 + t.metadata.columns] = t.metadata.pack(codes)
        at = {"metadata": 400}
    tile_a = half(t.a, 0).store(np.stack(np.split(stored, 2)))
    tile_b = half(t.b, 1).store(np.stack(np.split(B, 2, axis=1)))
    after = t.execute(memory, tile_a, tile_b, accumulate=False, at=at)
    assert (t.d.unpack(after[..., : t.d.columns]) == A.astype(np.int64) @ B.astype(np.int64)).all()
    if m == 128 and not sparse:
        with pytest.raises(wf.errors.InvalidOperand, match="two shared memories"):
            t.execute(memory, half(t.a, 0).store(stored[:64]), tile_b)


def test_integers_wrap_or_saturate_once():
    t = wf.get("tcgen05.mma.ws.cta_group::1.kind::i8", m=32, n=64, a="s8", b="s8")
    A, B = np.full((32, 32), 127, np.int8), np.full((32, 64), 127, np.int8)
    memory = tensor_memory()
    memory[:, : t.d.columns] = t.d.pack(np.full((32, 64), 2**31 - 5, np.int32))
    tiles = t.a.store(A), t.b.store(B)
    wrapped = t.d.unpack(t.execute(memory, *tiles)[:, : t.d.columns])
    clamped = t.d.unpack(t.execute(memory, *tiles, idesc=t.descriptor(saturate=True))[:, : t.d.columns])
    assert (wrapped == 2**31 - 5 + 127 * 127 * 32 - 2**32).all()
    assert (clamped == 2**31 - 1).all()


@pytest.mark.parametrize("shape", ["32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"])
@pytest.mark.parametrize("packed", [False, True])
def test_stores_undo_loads(shape, packed):
    ld = wf.get(f"tcgen05.ld.sync.aligned.{shape}.x4{'.pack::16b' if packed else ''}.b32")
    st = wf.get(f"tcgen05.st.sync.aligned.{shape}.x4{'.unpack::16b' if packed else ''}.b32")
    memory = tensor_memory()
    words = ld.execute(memory, 64)
    for warp, lane, reg in [(0, 0, 0), (3, 31, words.shape[-1] - 1), (2, 13, words.shape[-1] // 2)]:
        place = ld.d.layout.at(warp=warp, lane=lane, reg=reg, slot=0)
        mask = 0xFFFF if packed else 0xFFFFFFFF
        assert words[warp, lane, reg] & mask == memory[place.tlane, place.column + 64] & mask
    other = np.full_like(memory, 0xBEEF0000)
    stored = st.execute(other, 64, words)
    assert (ld.execute(stored, 64) == words).all()
    assert not packed or (stored >> 16 == 0xBEEF).all()


def test_copies_widen_and_reach_their_lanes():
    source = RANDOM.integers(0, 256, 512).astype(np.uint8)
    plain = wf.Descriptor(leading=128, stride=128, kind="tcgen05")
    after = wf.get("tcgen05.cp.cta_group::1.32x128b.warpx4").execute(tensor_memory(), 8, plain, shared=source)
    for group in range(4):
        assert (after[32 * group : 32 * group + 32, 8:12].copy().view(np.uint8).reshape(-1) == source).all()
    wide = wf.get("tcgen05.cp.cta_group::1.32x128b.warpx4.b8x16.b4x16_p64")
    cells = wide.execute(tensor_memory(), 0, plain, shared=source)[:32, :4].copy().view(np.uint8)
    assert cells[0, 0] == (source[0] & 15) << 2
    assert cells[0, 1] == (source[0] >> 4) << 2
    six = wf.get("tcgen05.cp.cta_group::1.32x128b.warpx4.b8x16.b6x16_p32")
    cells = six.execute(tensor_memory(), 0, plain, shared=source)[:32, :4].copy().view(np.uint8)
    assert cells[1, 1] == (source[16] >> 6 | source[17] << 2) & 63


def test_shift_moves_lanes_inside_each_32():
    memory = tensor_memory()
    after = wf.get("tcgen05.shift.cta_group::1.down").execute(memory, 16)
    assert (after[3, 16:24] == memory[4, 16:24]).all()
    assert (after[31::32, 16:24] == memory[31::32, 16:24]).all()
    assert (after[:, 24:] == memory[:, 24:]).all()


def test_reductions_ignore_nan_unless_asked():
    values = normal((128, 512), np.float32)
    values[7, 3] = np.nan
    values[9, :8] = -0.0
    plain, strict = (wf.get(f"tcgen05.ld.red.sync.aligned.32x32b.x8.min{word}.f32") for word in ("", ".NaN"))
    _, found = plain.execute(values.view(np.uint32))
    assert (found.reshape(128).view(np.float32) == np.nanmin(values[:, :8], axis=1)).all()
    assert strict.execute(values.view(np.uint32))[1].reshape(128)[7] == 0x7FFFFFFF
    assert found.reshape(128)[9] == 0x80000000


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("tcgen05.mma.sp.cta_group::1.kind::f16", {"m": 128, "n": 64, "a": "f16", "d": "f32"}),
        ("tcgen05.mma.ws.cta_group::1.kind::f16", {"m": 128, "n": 64, "a": "f16", "d": "f32"}),
        ("tcgen05.mma.cta_group::2.kind::f16", {"m": 128, "n": 64, "a": "f16", "d": "f32"}),
        ("tcgen05.mma.cta_group::1.kind::mxf4.block_scale", {"m": 128, "n": 64, "k": 96}),
    ],
)
def test_what_nobody_published_is_refused(name, shape):
    t = wf.get(name, **shape)
    with pytest.raises(wf.errors.NotModelled, match="not published|neither published"):
        t.execute(tensor_memory(pair=t.blocks == 2), 0, 0, shared=np.zeros(1 << 16, np.uint8), arch=t.targets[0])
    one = Scaled(np.ones((1, 1)), np.ones((1, 1))) if t.form.block_scale else np.ones((1, 1))
    with pytest.raises(wf.errors.NotModelled):
        wf.gemm(one, one, instruction=t, arch=t.targets[0])


def test_errors_say_what_is_missing():
    t = wf.get(F16, m=128, n=64, a="f16", d="f32")
    memory = tensor_memory()
    tile = t.b.store(np.zeros((16, 64), np.float16))
    for match, wrong in {
        "first tensor-memory column as at=.'a': 64": lambda: t.execute(memory, None, tile),
        "needs shared=": lambda: t.execute(memory, 0, tile),
        "takes columns 500": lambda: t.execute(memory, None, tile, at={"d": 500, "a": 0}),
        "base lane of D is 0": lambda: t.execute(memory, None, tile, at={"d": 16 << 16, "a": 0}),
        "tensor memory is uint32": lambda: t.execute(memory.astype(np.int64), None, tile),
        "does not match": lambda: t.execute(memory, None, tile, idesc=0),
    }.items():
        with pytest.raises(wf.errors.InvalidOperand, match=match):
            wrong()
    with pytest.raises(wf.errors.IllegalInstruction, match="depends on the shape and types"):
        _ = wf.get(F16).d
    with pytest.raises(wf.errors.IllegalInstruction, match="allocates or synchronizes"):
        wf.get("tcgen05.wait::ld.sync.aligned").execute()


def test_gemm_adds_k_after_k():
    A, B = normal((70, 100), ml_dtypes.float8_e4m3fn), normal((100, 33), ml_dtypes.float8_e4m3fn)
    t = wf.get("tcgen05.mma.cta_group::1.kind::f8f6f4", m=128, n=64, a="e4m3", b="e4m3", d="f32")
    whole = wf.gemm(A, B, instruction=t, arch="sm_100")
    padded_a, padded_b = np.zeros((128, 128), A.dtype), np.zeros((128, 64), B.dtype)
    padded_a[:70, :100], padded_b[:100, :33] = A, B
    total = None
    for k in range(0, 128, 32):
        total = t(padded_a[:, k : k + 32], padded_b[k : k + 32], total, arch="sm_100")
    assert (whole == total[:70, :33]).all()


KINDS = ["f16", "tf32", "i8", "f8f6f4", "mxf8f6f4.block_scale", "mxf4.block_scale"]
KINDS += ["mxf4nvf4.block_scale.scale_vec::2X", "mxf4nvf4.block_scale.scale_vec::4X"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_for_a_name_without_a_shape_can_be_typed(kind):
    for operation in ("tcgen05.mma.cta_group::1", "tcgen05.mma.cta_group::2", "tcgen05.mma.sp.cta_group::2"):
        with pytest.raises(wf.WarpfragError, match="depends on the shape and types") as error:
            _ = wf.get(f"{operation}.kind::{kind}").d
        example = str(error.value).rsplit(" ", 1)[1]
        assert wf.get(example).d.shape == (256 if "::2.kind" in example else 128, 256)
