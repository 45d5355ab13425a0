"""mma and wgmma that are computed later than they are issued: both engines leave the same registers."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.machine.jit import pending_mma
from warpfrag.machine.jit.pending_mma import PendingProducts

pytestmark = pytest.mark.one_engine  # each launch names its own

KERNELS = Path(__file__).parents[1] / "data" / "ptx" / "hopper" / "kernels.zip"
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
HALF_MMA = "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"
THREADS, BLOCKS, WORDS = 128, 3, 8  # words of input of each thread
ACCUMULATE = f"  {MMA} {{%r10,%r11,%r12,%r13}}, {{%r0,%r1,%r2,%r3}}, {{%r4,%r5}}, {{%r10,%r11,%r12,%r13}};"
SUMS = ("%r10", "%r11", "%r12", "%r13")


def kernel(body, stored):
    """A kernel that loads eight words of each thread, runs a body, and stores some registers."""
    loads = "\n".join(f"  ld.global.b32 %r{word}, [%rd3+{4 * word}];" for word in range(WORDS))
    stores = "\n".join(f"  st.global.b32 [%rd4+{4 * place}], {name};" for place, name in enumerate(stored))
    return wf.ptx.load(f""".version 8.6
.target sm_90a
.address_size 64
.func (.reg .b32 y) negate(.reg .b32 x) {{ xor.b32 y, x, 0x80000000; ret; }}
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 rounds)
{{
  .reg .b64 %rd<9>; .reg .b32 %r<99>; .reg .pred %p<3>; .reg .b32 %n<9>; .shared .b32 smem[{THREADS}];
  ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; ld.param.u32 %n3, [rounds];
  mov.u32 %n0, %tid.x; mov.u32 %n1, %ctaid.x; mad.lo.u32 %n2, %n1, {THREADS}, %n0;
  mul.wide.u32 %rd5, %n2, {4 * WORDS}; add.s64 %rd3, %rd1, %rd5;
  mul.wide.u32 %rd6, %n2, {4 * len(stored)}; add.s64 %rd4, %rd2, %rd6;
  mov.u32 %n4, smem; shl.b32 %n5, %n0, 2; add.u32 %n4, %n4, %n5;
{loads}
  mov.b32 %r10, 0; mov.b32 %r11, 0; mov.b32 %r12, 0; mov.b32 %r13, 0;
{body}
{stores}
  ret;
}}""")["k"]


def check_both(body, stored, rounds=1):
    """Both engines leave the same registers, and none is 0 in all threads."""
    given = np.random.default_rng(0).normal(size=BLOCKS * THREADS * WORDS * 2).astype(np.float16)
    found = []
    for engine in ("reference", "compiled"):
        out = np.zeros((BLOCKS * THREADS, len(stored)), np.uint32)
        run = kernel(body, stored).launch(BLOCKS, THREADS, [given, out, np.uint32(rounds)], engine=engine)
        assert run.engine == engine
        found.append(out)
    np.testing.assert_array_equal(*found)
    assert found[0].any(axis=0).all()


@pytest.fixture
def lengths(monkeypatch):
    """Return the number of instructions along K of each product that is computed."""
    noted = []
    multiply = PendingProducts.multiply

    def noting(self, product):
        noted.append(len(product.a))
        multiply(self, product)

    monkeypatch.setattr(PendingProducts, "multiply", noting)
    return noted


LOOP = f"""LOOP:
{ACCUMULATE}
  xor.b32 %r0, %r0, 0x80010001; add.u32 %r5, %r5, 3;
  bar.sync 0; sub.u32 %n3, %n3, 1; setp.ne.u32 %p1, %n3, 0;
  @%p1 bra LOOP;"""


def test_a_loop_over_k_is_one_product(lengths):
    check_both(LOOP, SUMS, rounds=7)

    assert lengths == [7]


def test_operands_that_grow_too_large_are_multiplied(lengths, monkeypatch):
    monkeypatch.setattr(pending_mma, "MAX_PENDING_BYTES", 40_000)
    check_both(LOOP, SUMS, rounds=7)

    assert sum(lengths) == 7
    assert len(lengths) > 1


@pytest.mark.parametrize(
    "between",
    [
        "xor.b32 %r10, %r10, 0x80000000;",
        "mov.b32 %r11, 0x3F800000;",
        "shfl.sync.idx.b32 %r4, %r12, 3, 31, -1;",
        "st.shared.b32 [%n4], %r13; bar.sync 0; ld.shared.b32 %r5, [%n4];",
        "setp.lt.s32 %p1, %r10, 0; @%p1 mov.b32 %r4, 0;",
        "call (%r10), negate, (%r10);",
        "atom.shared.add.u32 %r5, [%n4], %r12;",
    ],
)
def test_a_step_that_needs_an_accumulator_sees_it(between, lengths):
    check_both(f"{ACCUMULATE}\n  {between}\n{ACCUMULATE}", SUMS)

    assert lengths == [1, 1]


def test_an_accumulator_that_is_multiplied_is_computed_before():
    body = f"""  {HALF_MMA} {{%r10,%r11}}, {{%r0,%r1,%r2,%r3}}, {{%r4,%r5}}, {{%r10,%r11}};
  {HALF_MMA} {{%r12,%r13}}, {{%r10,%r11,%r2,%r3}}, {{%r4,%r10}}, {{%r12,%r13}};
  bar.sync 0;
  {HALF_MMA} {{%r12,%r13}}, {{%r12,%r11,%r2,%r3}}, {{%r4,%r13}}, {{%r12,%r13}};"""
    check_both(body, SUMS)


def test_a_sum_in_the_middle_of_a_chain_is_kept_if_it_is_read():
    body = f"""  {MMA} {{%r14,%r15,%r16,%r17}}, {{%r0,%r1,%r2,%r3}}, {{%r4,%r5}}, {{%r10,%r11,%r12,%r13}};
  {MMA} {{%r18,%r19,%r20,%r21}}, {{%r0,%r1,%r2,%r3}}, {{%r6,%r7}}, {{%r14,%r15,%r16,%r17}};"""
    check_both(body, ("%r14", "%r15", "%r18", "%r21"))


def test_a_chain_of_which_only_the_end_is_read_is_one_product(lengths):
    body = f"""  {MMA} {{%r14,%r15,%r16,%r17}}, {{%r0,%r1,%r2,%r3}}, {{%r4,%r5}}, {{%r10,%r11,%r12,%r13}};
  {MMA} {{%r18,%r19,%r20,%r21}}, {{%r0,%r1,%r2,%r3}}, {{%r6,%r7}}, {{%r14,%r15,%r16,%r17}};"""
    check_both(body, ("%r18", "%r21"))

    assert lengths == [1]


def test_accumulators_that_share_some_registers_follow_each_other():
    body = f"""{ACCUMULATE}
  bar.sync 0;
  {MMA} {{%r12,%r13,%r14,%r15}}, {{%r0,%r1,%r2,%r3}}, {{%r6,%r7}}, {{%r12,%r13,%r14,%r15}};
  bar.sync 0;
{ACCUMULATE}"""
    check_both(f"  mov.b32 %r14, 0; mov.b32 %r15, 0;\n{body}", (*SUMS, "%r14", "%r15"))


def test_warps_that_run_apart_have_products_of_their_own():
    """Half of the warps add to their accumulators once more, and negate them."""
    body = f"""{ACCUMULATE}
  setp.lt.u32 %p1, %n0, 64; @%p1 bra BOTH;
{ACCUMULATE}
  xor.b32 %r10, %r10, 0x80000000;
BOTH:
  bar.sync 0;
{ACCUMULATE}"""
    check_both(body, SUMS)


@pytest.mark.slow
def test_a_whole_gemm_of_wgmma_is_one_product_for_each_wave(lengths):
    m, n, k = 256, 128, 320
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(rows, k)).astype(np.float16) for rows in (m, n))
    with zipfile.ZipFile(KERNELS) as archive:
        matmul = wf.ptx.load(archive.read("mm_ws2_8.ptx").decode())["mm_ws2"]
    found = []
    for engine in ("reference", "compiled"):
        c = np.zeros((m, n), np.float16)
        args = []
        for array, box in ((a, (128, 64)), (b, (64, 64)), (c, (128, 64))):
            strides = [np.int64(stride // array.itemsize) for stride in array.strides]
            args += [wf.ptx.TensorMap(array, box, swizzle=128), *map(np.int32, array.shape), *strides]
        run = matmul.launch((2, 2), 256, [*args, np.int32(k), None, None], shared=73752, engine=engine)
        found.append((c.view(np.uint16), run.counts))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][0].any(axis=0).all()
    assert found[0][1] == found[1][1]
    assert lengths == [k // 16]
