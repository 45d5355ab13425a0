"""tcgen05 in the PTX machine: tensor memory, its instructions and products, whole kernels in both engines."""

import numpy as np
import pytest

import warpfrag as wf
from ptx.tensor_kernels import kernel, run, vector
from warpfrag import ptx
from warpfrag.smem.instruction_descriptor import ZeroColumnMask
from warpfrag.tensorcore.execute_tcgen05 import resized
from warpfrag.tensorcore.tensor_images import image_columns, shared_parts

RELINQUISH = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
RANDOM = np.random.default_rng(3)
MMA = "tcgen05.mma"
PRODUCTS = [
    (f"{MMA}.cta_group::1.kind::f16", {"m": 128, "n": 24, "a": "bf16", "d": "f32"}, ""),
    (f"{MMA}.cta_group::1.kind::f8f6f4", {"m": 64, "n": 16, "a": "e2m1", "b": "e5m2", "d": "f16"}, ""),
    (f"{MMA}.cta_group::1.kind::mxf8f6f4.block_scale", {"m": 128, "n": 16, "a": "e4m3", "b": "e3m2"}, ""),
    (f"{MMA}.cta_group::1.kind::mxf4nvf4.block_scale.block16", {"m": 128, "n": 16, "scale_type": "ue4m3", "k": 64}, ""),
    (f"{MMA}.ws.sp.cta_group::1.kind::i8", {"m": 64, "n": 64, "a": "s8", "b": "u8"}, ""),
    (f"{MMA}.cta_group::2.kind::f16", {"m": 256, "n": 32, "a": "f16", "d": "f32"}, "a pair of blocks"),
    (f"{MMA}.cta_group::2.kind::mxf8f6f4.block_scale", {"m": 128, "n": 32, "a": "e4m3", "b": "e4m3"}, "a pair"),
    (f"{MMA}.sp.cta_group::2.kind::f8f6f4", {"m": 128, "n": 16, "a": "e4m3", "b": "e5m2", "d": "f16"}, "a sparse mma"),
    (f"{MMA}.sp.cta_group::1.kind::tf32", {"m": 64, "n": 16, "d": "f32"}, "a sparse mma"),
    (f"{MMA}.sp.cta_group::1.kind::mxf4.block_scale", {"m": 128, "n": 16}, "a sparse mma"),
    (f"{MMA}.ws.cta_group::1.kind::f16", {"m": 32, "n": 64, "a": "f16", "d": "f32"}, "mma.ws"),
    (f"{MMA}.cta_group::1.kind::mxf4.block_scale", {"m": 128, "n": 16, "k": 96}, "96 terms"),
]


def matrices(t):
    """Return A, B and C that are exact in every format, with exact sums; a sparse A is pruned."""
    m, n, k = t.shape
    low = 0 if t.b.format.name == "u8" else -3
    A, B = RANDOM.integers(-3, 4, (m, k)).astype(float), RANDOM.integers(low, 4, (k, n)).astype(float)
    A = wf.prune(A, t.a.pattern.name) if "metadata" in t.operands else A
    return A, B, RANDOM.integers(-9, 9, (m, n)).astype(float)


@pytest.mark.parametrize(("name", "shape", "reason"), PRODUCTS)
def test_emitted_kernels_give_the_product(name, shape, reason):
    """All sums are exact, so the result does not depend on the rule."""
    t = wf.get(name, **shape)
    target = "sm_103a" if shape.get("k") == 96 else "sm_100a"
    module = ptx.load(wf.emit(t, lang="ptx", arch=target))
    (program,) = (module[name] for name in module)
    A, B, C = matrices(t)
    stored, codes = t.compress(A) if "metadata" in t.operands else (A, None)
    a, b = shared_parts(t.form)
    is_pair = t.blocks == 2
    tiles = [
        a.store(np.stack(np.split(stored, 2)) if is_pair else stored).memory,
        b.store(np.stack(np.split(B, 2, axis=1)) if is_pair else B).memory,
    ]
    places = image_columns(t.form)
    image = np.zeros((*t.d.pack(C).shape[:-1], places["end"]), np.uint32)
    image[..., : t.d.columns] = t.d.pack(C)
    expected = A @ B + C
    if codes is not None:
        image[..., places["metadata"] :][..., : t.metadata.columns] = t.metadata.pack(codes)
    if "scale_a" in t.operands:
        scales = [2.0 ** RANDOM.integers(-1, 3, operand.shape) for operand in (t.scale_a, t.scale_b)]
        for role, scale in zip(("scale_a", "scale_b"), scales, strict=True):
            image[..., places[role] :][..., : t.operands[role].columns] = t.operands[role].pack(scale)
        each = t.shape.k // scales[0].shape[1]
        expected = (A * np.repeat(scales[0], each, 1)) @ (B * np.repeat(scales[1], each, 0)) + C
    d = np.zeros((*image.shape[:-1], t.d.columns), np.uint32)
    launched = program.launch(t.blocks, 128, [*tiles, image, d], arch=target)
    assert (t.d.unpack(d) == expected).all()
    assert bool(launched.uncertain) == bool(reason)
    assert [reason in line.reason for line in launched.inexact_lines] == [True] * bool(reason)


def test_exact_products_are_those_of_gemm():
    """Any numbers: the codes of one product, and of four in a row along k, are `gemm`'s."""
    t = wf.get(f"{MMA}.cta_group::1.kind::f16", m=128, n=32, a="f16", d="f32")
    A, B = RANDOM.normal(size=(128, 64)).astype(np.float16), RANDOM.normal(size=(64, 32)).astype(np.float16)
    B[3, 5], A[7, 2], A[9, 9] = np.inf, -np.inf, np.nan
    a, b = resized(t.a, 128, 64), resized(t.b, 64, 32)
    tiles = [a.store(A, t.a.descriptors(k=64)[0]), b.store(B, t.b.descriptors(k=64)[0])]
    at_b = -(-tiles[0].memory.size // 1024) * 1024
    image = np.zeros(at_b + tiles[1].memory.size, np.uint8)
    image[: tiles[0].memory.size], image[at_b:] = tiles[0].memory, tiles[1].memory
    statements = [f"mov.b32 %r9, {t.descriptor().word:#x};", "setp.ne.u32 %p5, %r1, 0;"]
    for step, (first, second) in enumerate(zip(t.a.descriptors(k=64), t.b.descriptors(k=64), strict=True)):
        statements += [
            f"add.u64 %rd6, %rd5, {first.word:#x};",
            f"add.u64 %rd7, %rd5, {second.word + at_b // 16:#x};",
            f"{t.ptx} [%r8], %rd6, %rd7, %r9, {'%p4' if step else '%p5'};",
        ]
    program = kernel("\n".join(statements), size=image.size)
    out, launched = run(program, image, np.zeros((128, 64), np.uint32))
    expected = wf.gemm(A, B, instruction=t, arch="sm_100").view(np.uint32)
    assert not launched.uncertain
    assert (t.d.unpack(out[:, :32], raw=True) == expected).all()


def cells(columns=64):
    return RANDOM.integers(0, 1 << 32, (128, columns), dtype=np.uint32)


LOADS = [
    ("16x64b.x2", ""), ("16x128b.x2", ""), ("16x256b.x1", ""), ("32x32b.x8", ""),
    ("16x64b.x4", "16b"), ("16x256b.x1", "16b"), ("16x32bx2.x4", ""), ("16x32bx2.x2", "16b"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "packed"), LOADS)
def test_loads_and_stores_move_what_their_layouts_say(shape, packed):
    """A load from column 8 and lanes 16.. of each warp, stored to other columns: compared with the ISA's formulas."""
    split = ", 6" if shape.startswith("16x32bx2") else ""
    pack, unpack = (f".pack::{packed}", f".unpack::{packed}") if packed else ("", "")
    base = 0 if shape.startswith("32") else 16
    registers = {"16x64b.x2": 2, "16x128b.x2": 4, "16x256b.x1": 4, "32x32b.x8": 8, "16x64b.x4": 4, "16x32bx2.x4": 4}
    count = registers.get(shape, 2)
    lane = f"add.u32 %r7, %r6, {base << 16};"
    by_warps = f"""{lane}
    tcgen05.ld.sync.aligned.{shape}{pack}.b32 {vector(count)}, [%r7+8]{split};
    tcgen05.wait::ld.sync.aligned;
    tcgen05.st.sync.aligned.{shape}{unpack}.b32 [%r7+40]{split}, {vector(count)};
    tcgen05.wait::st.sync.aligned;"""
    before = cells()
    out, _ = run(kernel("", by_warps), np.zeros(2048, np.uint8), before)
    expected = before.copy()
    for warp in range(4):
        for t in range(32):
            for r in range(count):
                row, column = place_of(shape.split(".")[0], t, r, 6)
                for part in range(2 if packed else 1):
                    twice = 2 if packed else 1
                    at = column * twice + part
                    if split and packed:
                        at = 2 * r + 6 * (t // 16) + part
                    to = (32 * warp + base + row, at)
                    moved = before[to[0], 8 + at]
                    old = expected[to[0], 40 + at]
                    expected[to[0], 40 + at] = old & 0xFFFF0000 | moved & 0xFFFF if packed else moved
    assert (out == expected).all()


def place_of(shape, t, r, split):
    """Lane and column of register r of thread t, as the tables of the ISA have them."""
    return {
        "32x32b": (t, r),
        "16x64b": (t // 4 + 8 * (t & 1), (t >> 1 & 1) + 2 * r),
        "16x128b": (t // 4 + 8 * (r & 1), t % 4 + 4 * (r >> 1)),
        "16x256b": (t // 4 + 8 * (r >> 1 & 1), 2 * (t % 4) + (r & 1) + 8 * (r >> 2)),
        "16x32bx2": (t % 16, r + split * (t // 16)),
    }[shape]


def test_copies_shifts_and_reductions():
    source = RANDOM.integers(0, 256, 2048).astype(np.uint8)
    word = wf.Descriptor(leading=128, stride=256, kind="tcgen05").word
    body = f"""add.u64 %rd6, %rd5, {word:#x};
    tcgen05.cp.cta_group::1.32x128b.warpx4 [%r8+4], %rd6;
    tcgen05.cp.cta_group::1.4x256b [%r8+8], %rd6;
    tcgen05.shift.cta_group::1.down [%r8+16];"""
    before = cells()
    out, launched = run(kernel(body), source, before)
    rows = source.reshape(-1, 2, 8, 16)  # groups of eight rows; two columns of 16 bytes each
    for lane in range(128):
        row = lane % 32
        assert (out[lane, 4:8].view(np.uint8) == rows[row // 8, 0, row % 8]).all()
        last = lane % 32 == 31
        assert (out[lane, 16:24] == before[lane if last else lane + 1, 16:24]).all()
        copied = np.concatenate([rows[0, 0, lane // 32], rows[0, 1, lane // 32]]).view(np.uint32)
        assert (out[lane, 8:16] == (copied if lane % 32 == 0 else before[lane, 8:16])).all()
    assert not launched.uncertain
    reduced = f"""tcgen05.ld.red.sync.aligned.32x32b.x4.max.s32 {vector(4)}, %v8, [%r6+8];
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r6], {{%v8}};"""
    out, _ = run(kernel("", reduced, target="sm_103a", version="8.8"), source, before)
    assert (out[:, 0].view(np.int32) == before[:, 8:12].view(np.int32).max(axis=1)).all()


def integer_tile(t, A, B):
    """Return consecutive images of A and B, and their descriptors."""
    tiles = t.a.store(A), t.b.store(B)
    start = -(-tiles[0].memory.size // 1024) * 1024
    image = np.zeros(start + tiles[1].memory.size, np.uint8)
    image[: tiles[0].memory.size], image[start:] = tiles[0].memory, tiles[1].memory
    lines = [f"add.u64 %rd6, %rd5, {tiles[0].descriptor.word:#x};"]
    lines += [f"add.u64 %rd7, %rd5, {tiles[1].descriptor.word + start // 16:#x};"]
    return image, [*lines, f"mov.b32 %r9, {t.descriptor().word:#x};"]


def test_lane_masks_and_the_factor_of_d():
    t = wf.get(f"{MMA}.cta_group::1.kind::f16", m=128, n=32, a="f16", d="f32")
    A, B, C = matrices(t)
    image, lines = integer_tile(t, A, B)
    before = np.zeros((128, 64), np.uint32)
    before[:, :32] = t.d.pack(C)
    masks = [0x80000001, 0, 0xFFFF, 1 << 31]
    lines += [f"mov.b32 %r{20 + at}, {mask:#x};" for at, mask in enumerate(masks)]
    lines.append(f"{t.ptx} [%r8], %rd6, %rd7, %r9, {{%r20, %r21, %r22, %r23}}, %p4, 3;")
    out, launched = run(kernel("\n".join(lines), size=image.size), image, before)
    kept = np.array([masks[lane // 32] >> lane % 32 & 1 for lane in range(128)], bool)
    assert (out[kept] == before[kept]).all()
    assert (t.d.unpack(out[:, :32])[~kept] == (A @ B + C / 8)[~kept]).all()
    assert not launched.uncertain
    before[:, :32] = 3  # a subnormal, which eighths of are none
    _, launched = run(kernel("\n".join(lines), size=image.size), image, before)
    assert "scaled subnormal D" in launched.inexact_lines[0].reason


@pytest.mark.slow
def test_each_part_of_d_has_its_own_copy_of_a_in_tensor_memory():
    """Rows in lanes 64.. belong to another A: the second half of the columns is its product. Then A is shifted."""
    t = wf.get(f"{MMA}.ws.cta_group::1.kind::i8", m=64, n=64, a="s8", b="s8")
    A, other, B = (RANDOM.integers(-5, 5, shape).astype(np.int8) for shape in ((64, 32), (64, 32), (32, 64)))
    image, lines = integer_tile(t, A, B)
    mask = ZeroColumnMask(zeros=1, used=3, starts=(1, 0, 0, 0))
    before = np.zeros((128, 64), np.uint32)
    before[:64, 40:48], before[64:, 40:48] = t.a.pack(A)[:64], t.a.pack(other)[64:]
    lines += ["setp.ne.u32 %p5, %r1, 0;", f"{t.ptx} [%r8], [%r8+40], %rd7, %r9, %p5;"]
    out, launched = run(kernel("\n".join(lines), size=image.size), image, before)
    product = np.concatenate([A.astype(int) @ B[:, :32], other.astype(int) @ B[:, 32:]], axis=1)
    assert not launched.uncertain
    assert (t.d.unpack(out[:, :32]) == product).all()
    before[64:, 40:48] = t.a.pack(A)[64:]
    lines[-1] = f"mov.b64 %rd8, {mask.word:#x}; {t.ptx} [%r8], [%r8+40], %rd7, %r9, %p5, %rd8;"
    out, _ = run(kernel("\n".join(lines), size=image.size), image, before)
    chosen = np.array([B[:, column] if column is not None else 0 * B[:, 0] for column in mask.columns(64, 64)]).T
    assert (t.d.unpack(out[:, :32]) == A.astype(int) @ chosen).all()
    t = wf.get(f"{MMA}.cta_group::1.kind::i8", m=128, n=32, a="s8", b="s8")
    A, B = RANDOM.integers(-5, 5, (128, 32)).astype(np.int8), RANDOM.integers(-5, 5, (32, 32)).astype(np.int8)
    image, lines = integer_tile(t, A, B)
    before[:, 40:48] = t.a.pack(A)
    lines += ["setp.ne.u32 %p5, %r1, 0;", f"{t.ptx}.ashift [%r8], [%r8+40], %rd7, %r9, %p5;"]
    out, _ = run(kernel("\n".join(lines), size=image.size), image, before)
    assert (t.d.unpack(out[:, :32]) == A.astype(int) @ B.astype(int)).all()
    lanes = np.arange(128)
    assert (out[:, 40:48] == before[np.where(lanes % 32 == 31, lanes, lanes + 1), 40:48]).all()


WRONG = [
    (
        "tcgen05.shift.cta_group::1.down [%r8+60];",
        "",
        r"columns 60..67 \(cells\) are not allocated: block .* has 0..63",
    ),
    ("tcgen05.shift.cta_group::1.down [%r8+1048576];", "", "lane in the address must be a multiple of 32, got 16"),
    ("", "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v0}, [%r8+2097152];", r"can access lanes 0..31, got lane 32"),
    ("", "add.u32 %r7, %r6, %r1; tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v0}, [%r7];", "the same address in all"),
    (
        "mov.b32 %r9, 0x8400490; tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd5, %rd5, %r9, %p4;",
        "",
        "are not allocated",
    ),
    ("mov.b32 %r9, 0x490; tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd5, %rd5, %r9, %p4;", "", "describe an mma: m=0"),
    ("mov.b32 %r9, 0x494; tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd5, %rd5, %r9, %p4;", "", "is sparse, but"),
    ("tcgen05.mma.cta_group::1.kind::ti16 [%r8], %rd5, %rd5, %r9, %p4;", "", "ti16"),
    ("tcgen05.mma.cta_group::2.kind::f16 [%r8], %rd5, %rd5, %r9, %p4;", "", "not describe an mma"),
    ("@%p2 tcgen05.wait::ld.sync.aligned;", "@%p3 tcgen05.wait::ld.sync.aligned;", "needs all 32 lanes"),
    (
        "",
        f"@%p2 bra OVER; {RELINQUISH} tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [allocated], 32; OVER:",
        r"cannot allocate more columns, because it relinquished its permit at line \d+",
    ),
    (
        "",
        "@%p2 bra OVER; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 32; OVER:",
        r"expected an allocation of the block \(64 at 0\), got 32 columns at 0x0",
    ),
]


@pytest.mark.one_engine
@pytest.mark.parametrize(("by_thread", "by_warps", "message"), WRONG)
def test_mistakes_are_named(by_thread, by_warps, message):
    with pytest.raises(wf.errors.PtxError, match=message):
        run(kernel(by_thread, by_warps), np.zeros(2048, np.uint8), cells())


@pytest.mark.one_engine
def test_statements_that_no_assembler_takes_are_refused():
    for text, message in [
        ("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%v0, %v1}, [%r8];", "has 4 registers, got 2"),
        ("tcgen05.ld.sync.aligned.32x32b.x2.b32 {%v0, %v1}, %r8;", "takes {registers}, "),
        ("tcgen05.mma.cta_group::1.kind::i8 [%r8], %rd5, %rd5, %r9, %p4, 3;", "only kind::f16 and kind::tf32 take"),
    ]:
        with pytest.raises(wf.errors.PtxError, match=message):
            kernel("", text)
    statement = "tcgen05.mma.cta_group::1.kind::i8 [%r8], %rd5, %rd5, %r9, %p4;"
    with pytest.raises(wf.errors.PtxError, match="i8 is legal on sm_100a, sm_110a, but not on sm_103a"):
        run(kernel(statement, target="sm_103a"), np.zeros(2048, np.uint8), cells())


UNFREED = """.version 8.6
.target sm_100a
.address_size 64
.visible .entry k()
{
    .shared .b32 place;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32;
    BODY
    ret;
}
"""


def test_what_is_allocated_must_be_freed():
    body = "mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 2; @%p1 bra END;"
    body += "tcgen05.dealloc.cta_group::1.sync.aligned.b32 0, 32; END:"
    text = UNFREED.replace(".shared .b32", ".reg .b32 %r<2>; .reg .pred %p<2>; .shared .b32")
    with pytest.raises(wf.errors.PtxError, match=r"^line 7: block \(2, 0, 0\) ends with 32 columns") as info:
        ptx.load(text.replace("BODY", body))["k"].launch(4, 32, [])
    assert info.value.line == 7
    grown = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 64;"
    with pytest.raises(
        wf.errors.PtxError, match="64 columns are more than the 32 of the previous allocation: allocations must not"
    ):
        ptx.load(UNFREED.replace("BODY", grown))["k"].launch(1, 32, [])
    many = 17 * "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32;\n"
    with pytest.raises(wf.errors.PtxError, match="32 columns are not free: the block has 32 from line 7"):
        ptx.load(UNFREED.replace("BODY", many))["k"].launch(1, 32, [])
