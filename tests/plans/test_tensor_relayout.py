"""D of one tcgen05 product as A of the next: values, the code on the PTX machine, and errors."""

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from oracle.toolkit import compile_cuda, find_nvcc
from warpfrag.plans.relayout_execution import convert_codes
from warpfrag.plans.tensor_relayout import TensorRelayout

RANDOM = np.random.default_rng(11)
MMA = "tcgen05.mma.cta_group::"


def accumulator(m, n, blocks=1, d="f32"):
    return wf.get(f"{MMA}{blocks}.kind::f16", m=m, n=n, a="f16", b="f16", d=d).d


def multiplicand(m, a, blocks=1):
    kind = "f8f6f4" if a.startswith("e") else "i8" if a.endswith("8") else "f16"
    return wf.get(f"{MMA}{blocks}.kind::{kind}", m=m, n=64, a=a, b=a, d="s32" if kind == "i8" else "f32").a


CASES = [
    *((m, blocks, "f32", a) for m, blocks in ((128, 1), (64, 1), (256, 2)) for a in ("f16", "bf16", "e4m3", "e5m2")),
    (128, 1, "f16", "f16"),
    (64, 1, "f16", "f16"),
    (64, 1, "f16", "e4m3"),
]


@pytest.mark.parametrize(("m", "blocks", "d", "a"), CASES)
@pytest.mark.parametrize("n", [32, 96, 256])
def test_a_holds_what_d_held_and_nothing_else_changes(m, blocks, d, a, n):
    source, target = accumulator(m, n, blocks, d), multiplicand(m, a, blocks)
    plan = wf.relayout(source, target)
    assert isinstance(plan, TensorRelayout)
    values = RANDOM.normal(size=(m, n)).astype(np.float16 if d == "f16" else np.float32)
    before = RANDOM.integers(0, 1 << 32, (2, 128, 512) if blocks == 2 else (128, 512), dtype=np.uint32)
    used = np.arange(128) % 32 < 16 if m == 64 else np.ones(128, np.bool_)
    before[..., used, :n] = source.pack(values)[..., used, :]
    after = plan(before, source=0, target=300)
    k, columns = target.shape[1], target.columns
    parts = [target.unpack(after[..., 300 + at * columns :][..., :columns], raw=True) for at in range(n // k)]
    expected = convert_codes(d, a, source.codes(values)).astype(np.uint32)
    assert np.array_equal(np.concatenate(parts, axis=1), expected)
    end = 300 + n // k * columns
    assert np.array_equal(after[..., :300], before[..., :300])
    assert np.array_equal(after[..., end:], before[..., end:])
    assert np.array_equal(after[..., ~used, :], before[..., ~used, :])
    assert plan.is_free == (m != 64 or d == "f16" or a in ("f16", "bf16"))


def test_the_next_product_gives_what_matrices_give():
    """Scores converted to bf16, times values: attention without its softmax."""
    first = wf.get(f"{MMA}1.kind::f16", m=128, n=64, a="bf16", b="bf16", d="f32")
    second = wf.get(f"{MMA}1.kind::f16", m=128, n=32, a="bf16", b="bf16", d="f32")
    Q, K, V = (RANDOM.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in ((128, 16), (16, 64), (64, 32)))
    memory = first.execute(np.zeros((128, 256), np.uint32), first.a.store(Q), first.b.store(K), accumulate=False)
    memory = wf.relayout(first.d, second.a)(memory, source=0, target=64)
    for step in range(4):
        tile = second.b.store(V[16 * step : 16 * step + 16])
        memory = second.execute(memory, None, tile, at={"d": 128, "a": 64 + 8 * step}, accumulate=step > 0)
    scores = first(Q, K, arch="sm_100").astype(ml_dtypes.bfloat16)
    expected = wf.gemm(scores, V, instruction=second, arch="sm_100")
    assert np.array_equal(second.d.unpack(memory[:, 128:160]), expected)


KERNEL = """
extern "C" __global__ void move(uint32_t* image, uint32_t* out) {
    __shared__ uint32_t allocated;
    const int thread = threadIdx.x;
    if (thread < 32)
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 256;"
                     :: "r"(static_cast<uint32_t>(__cvta_generic_to_shared(&allocated))) : "memory");
    __syncthreads();
    const uint32_t lanes = allocated + (static_cast<uint32_t>(thread / 32 * 32) << 16);
    for (int column = 0; column < 256; ++column)
        asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};"
                     :: "r"(lanes + column), "r"(image[thread * 256 + column]) : "memory");
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    relayout(lanes, lanes + 128);
    for (int column = 0; column < 256; ++column) {
        uint32_t word;
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1]; tcgen05.wait::ld.sync.aligned;"
                     : "=r"(word) : "r"(lanes + column) : "memory");
        out[thread * 256 + column] = word;
    }
    __syncthreads();
    if (thread < 32)
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 256;" :: "r"(allocated));
}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("m", "d", "a"), [(128, "f32", "bf16"), (64, "f32", "f16"), (64, "f32", "e4m3"), (128, "f16", "f16")]
)
def test_the_emitted_code_does_the_same(tmp_path, m, d, a):
    plan = wf.relayout(accumulator(m, 64, d=d), multiplicand(m, a))
    source = tmp_path / "move.cu"
    source.write_text(plan.emit() + KERNEL)
    assert compile_cuda(find_nvcc(), "sm_100a", source) == ""
    values = RANDOM.normal(size=(m, 64)).astype(np.float16 if d == "f16" else np.float32)
    image = RANDOM.integers(0, 1 << 32, (128, 256), dtype=np.uint32)
    image[:, :64] = plan.source.pack(values)
    out = np.zeros_like(image)
    wf.ptx.compile(source, arch="sm_100a")["move"].launch(1, 128, [image, out])
    assert np.array_equal(out, plan(image, 0, 128))


def test_what_no_warp_reaches_is_refused_with_the_reason():
    pair = wf.get(f"{MMA}2.kind::f16", m=128, n=64, a="f16", b="f16", d="f32")
    with pytest.raises(wf.errors.InvalidOperand, match="that no single warp can access"):
        wf.relayout(pair.d, pair.a)
    with pytest.raises(wf.errors.InvalidOperand, match="expected the same rows and blocks in A"):
        wf.relayout(accumulator(128, 64), multiplicand(64, "f16"))
    with pytest.raises(wf.errors.InvalidOperand, match="a multiple of 32 columns"):
        wf.relayout(accumulator(128, 48), multiplicand(128, "e4m3"))
    with pytest.raises(wf.errors.InvalidOperand, match="moves D to A, got a to d"):
        wf.relayout(multiplicand(128, "f16"), accumulator(128, 64))
    with pytest.raises(wf.errors.NotModelled, match="no conversion from f32 to tf32"):
        wf.relayout(accumulator(128, 64), wf.get(f"{MMA}1.kind::tf32", m=128, n=8).a)
    with pytest.raises(wf.errors.InvalidOperand, match="load it$"):
        wf.relayout(accumulator(128, 64), wf.get("mma.m16n8k16.f32.f16.f16.f32").a)
    with pytest.raises(wf.errors.InvalidOperand, match="expected cuda for a relayout"):
        wf.relayout(accumulator(128, 64), multiplicand(128, "f16")).emit("ptx")
