"""Compiled code proves the order of machine code with mbarriers, bulk copies and wgmma, and of nothing that is open."""

import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.machine.jit import c_functions
from warpfrag.sass import exactness

pytestmark = pytest.mark.one_engine
PTX = Path(__file__).parents[1] / "data" / "ptx"
HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
DECLARED = """
    .reg .b32 %r<20>; .reg .b64 %d<12>; .reg .pred %p<6>; .reg .f32 %f<4>;
    .shared .align 128 .b8 sm[2048]; .shared .align 8 .b64 full; .shared .align 8 .b64 empty;
    ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
    mad.lo.u32 %r3, %r1, %r2, %r0; mul.wide.u32 %d1, %r3, 4; add.u64 %d2, %d0, %d1; mov.u32 %r4, sm;
    shl.b32 %r5, %r0, 2; add.u32 %r6, %r4, %r5; mov.u32 %r10, full; mov.u32 %r11, empty; add.u64 %d3, %d0, 2048;
    cvta.to.global.u64 %d3, %d3; shr.u32 %r12, %r0, 5; shfl.sync.idx.b32 %r12, %r12, 0, 31, 0xffffffff;
    elect.sync _|%p5, 0xffffffff; setp.eq.and.u32 %p0, %r12, 0, %p5;
"""
INIT = """@%p0 mbarrier.init.shared.b64 [%r10], 1; @%p0 mbarrier.init.shared.b64 [%r11], 2;
    fence.proxy.async; bar.sync 0;"""
COPY = """@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 256;
    @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%d3], 256, [%r10];"""


def wait(barrier, parity, label):
    """A loop that waits for a phase."""
    return f"""{label}: mbarrier.try_wait.parity.shared.b64 %p1, [{barrier}], {parity}; @!%p1 bra {label};"""


READ = "ld.shared.u32 %r8, [%r6]; st.global.u32 [%d2], %r8;"
OTHER = "xor.b32 %r7, %r5, 128; add.u32 %r7, %r7, %r4;"  # the bytes of the other warp
RELEASE = "@%p5 mbarrier.arrive.shared.b64 _, [%r11];"
AGAIN = "ld.shared.u32 %r9, [%r6]; st.global.u32 [%d2+512], %r9;"
STORE = """@%p0 cp.async.bulk.global.shared::cta.bulk_group [%d3], [%r4], 256; cp.async.bulk.commit_group;"""
PROVED = {
    "a bulk copy": INIT + COPY + wait("%r10", 0, "A") + READ,
    "two bulk copies with a barrier": INIT
    + COPY
    + wait("%r10", 0, "A")
    + READ
    + "bar.sync 0;"
    + COPY
    + wait("%r10", 1, "B")
    + AGAIN,
    "two bulk copies with an mbarrier": INIT
    + COPY
    + wait("%r10", 0, "A")
    + READ
    + RELEASE
    + wait("%r11", 0, "C")
    + COPY
    + wait("%r10", 1, "B")
    + AGAIN,
    "an exchange through an mbarrier": INIT
    + "st.shared.u32 [%r6], %r3;"
    + RELEASE
    + wait("%r11", 0, "A")
    + OTHER
    + "ld.shared.u32 %r8, [%r7]; st.global.u32 [%d2], %r8;",
    "a bulk store": INIT
    + """st.shared.u32 [%r6], %r3; fence.proxy.async; bar.sync 0;"""
    + STORE
    + "cp.async.bulk.wait_group.read 0;",
}
OPEN = {
    "no wait for a bulk copy": INIT + COPY + READ,
    "a single test": INIT + COPY + "mbarrier.test_wait.parity.shared.b64 %p1, [%r10], 0;" + READ,
    "a wait in one warp": INIT
    + COPY
    + "setp.ne.u32 %p2, %r12, 0; @%p2 bra.uni DONE;"
    + wait("%r10", 0, "A")
    + "DONE:"
    + READ,
    "a second copy over bytes that are read": INIT
    + COPY
    + wait("%r10", 0, "A")
    + COPY
    + READ
    + wait("%r10", 1, "B")
    + AGAIN,
    "a second copy after the release of one warp": INIT.replace("[%r11], 2", "[%r11], 1")
    + COPY
    + wait("%r10", 0, "A")
    + "setp.eq.and.u32 %p3, %r12, 0, %p5; @%p3 mbarrier.arrive.shared.b64 _, [%r11];"
    + READ
    + wait("%r11", 0, "C")
    + COPY
    + wait("%r10", 1, "B")
    + AGAIN,
    "no barrier after the initialisation": INIT.replace("bar.sync 0;", "") + COPY + wait("%r10", 0, "A") + READ,
    "a store before the arrival of another warp": INIT
    + "st.shared.u32 [%r6], %r3;"
    + RELEASE
    + OTHER
    + "ld.shared.u32 %r8, [%r7]; st.global.u32 [%d2], %r8;",
    "a store after the release": INIT
    + RELEASE
    + "st.shared.u32 [%r6], %r3;"
    + wait("%r11", 0, "A")
    + OTHER
    + "ld.shared.u32 %r8, [%r7]; st.global.u32 [%d2], %r8;",
    "a wait for the parity of the phase before": INIT
    + "st.shared.u32 [%r6], %r3;"
    + wait("%r11", 1, "A")
    + OTHER
    + "ld.shared.u32 %r8, [%r7]; st.global.u32 [%d2], %r8;",
    "bytes that no copy writes": INIT
    + COPY
    + wait("%r10", 0, "A")
    + "ld.shared.u32 %r8, [%r6+1024]; st.global.u32 [%d2], %r8;",
    "a bulk store without a proxy fence": INIT
    + "st.shared.u32 [%r6], %r3; bar.sync 0;"
    + STORE
    + "cp.async.bulk.wait_group.read 0;",
    "a bulk store without a barrier": INIT
    + "st.shared.u32 [%r6], %r3; fence.proxy.async;"
    + STORE
    + "cp.async.bulk.wait_group.read 0;",
    "a bulk store that is not waited for": INIT + "st.shared.u32 [%r6], %r3; fence.proxy.async; bar.sync 0;" + STORE,
    "bytes that a bulk store reads": INIT
    + "st.shared.u32 [%r6], %r3; fence.proxy.async; bar.sync 0;"
    + STORE
    + "st.shared.u32 [%r6], %r1; cp.async.bulk.wait_group.read 0;",
    "a bulk store of two blocks": INIT
    + "st.shared.u32 [%r6], %r3; fence.proxy.async; bar.sync 0;"
    + STORE.replace("[%d3]", "[%d0]")
    + "cp.async.bulk.wait_group.read 0;",
    "a copy that is not waited for": INIT + COPY + "st.global.u32 [%d2], %r3;",
    "a plain load of an mbarrier": INIT
    + COPY
    + wait("%r10", 0, "A")
    + READ
    + "ld.shared.u32 %r9, [%r10]; st.global.u32 [%d2+512], %r9;",
    "float atomics after a copy": INIT
    + COPY
    + wait("%r10", 0, "A")
    + "ld.shared.f32 %f1, [%r6]; red.global.add.f32 [%d0], %f1;",
    "a volatile flag": INIT
    + COPY
    + wait("%r10", 0, "A")
    + READ
    + "ld.volatile.global.u32 %r9, [%d0+1024]; st.global.u32 [%d2+512], %r9;",
}


@pytest.fixture(autouse=True)
def _only_compiled_code_judges(every_spelling_compared, monkeypatch):
    if not c_functions.is_available():
        pytest.skip("no compiled library")
    monkeypatch.setattr(exactness, "FEW_STEPS", 0)
    monkeypatch.setattr(exactness, "STEPS_PER_SECOND", 0)


def launch(body, grid=1, block=64, values=None):
    kernel = wf.ptx.load(f"{HEAD}.visible .entry k(.param .u64 out) {{{DECLARED}{body} ret; }}").assemble(arch="sm_90")[
        "k"
    ]
    out = np.zeros(1024, np.uint32)
    out[512:] = np.arange(512) if values is None else values
    return kernel.launch(grid, block, [out]), out


@pytest.mark.parametrize("name", PROVED)
def test_the_order_is_proved(name):
    run, out = launch(PROVED[name])
    assert run.inexact == ()
    assert run.exact
    assert out.tolist() == launch(PROVED[name])[1].tolist()


@pytest.mark.parametrize("name", OPEN)
def test_an_open_order_is_never_proved(name):
    grid = 2 if "two blocks" in name else 1
    assert exactness.NOT_JUDGED.format(10) in launch(OPEN[name], grid)[0].inexact


GEMM_MISTAKES = {
    "no wait for the tensor copies": (r"mbarrier\.try_wait[^;]*;", "setp.eq.u32 complete, 0, 0;"),
    "a wgmma is not waited for before its bytes are overwritten": (r"wgmma\.wait_group\.sync\.aligned\s+1;", ""),
    "no proxy fence before the tensor store": (r"fence\.proxy\.async[^;]*;", ""),
    "the tensor store is not waited for": (r"cp\.async\.bulk\.wait_group[^;]*;", ""),
}


def gemm(text, level="sass"):
    """A launch of Triton's matmul with tensor maps and wgmma, 256 x 128 x 256, and the bytes of C."""
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=size).astype(np.float16) for size in ((256, 256), (256, 128), (256, 128)))
    args = []
    for array, box in ((a, (128, 64)), (b, (64, 64)), (c, (128, 64))):
        strides = [np.int64(stride // array.itemsize) for stride in array.strides]
        args += [wf.ptx.TensorMap(array, box, swizzle=128), *map(np.int32, array.shape), *strides]
    module = wf.ptx.load(text)
    kernel = (module.assemble(arch="sm_90") if level == "sass" else module)["mm_ws2"]
    run = kernel.launch((2, 2), 256, [*args, np.int32(256), None, None], shared=73752, level=level)
    return run, c.tobytes()


@pytest.fixture(scope="module")
def gemm_text():
    with zipfile.ZipFile(PTX / "hopper" / "kernels.zip") as archive:
        return archive.read("mm_ws2_8.ptx").decode()


def test_the_order_of_a_gemm_with_tensor_maps_and_wgmma_is_proved(gemm_text):
    run, product = gemm(gemm_text)
    assert run.exact
    assert product == gemm(gemm_text, level="ptx")[1]


@pytest.mark.parametrize("name", GEMM_MISTAKES)
def test_the_order_of_a_wrong_gemm_is_not_proved(name, gemm_text):
    pattern, instead = GEMM_MISTAKES[name]
    text, count = re.subn(pattern, instead, gemm_text)
    assert count
    assert exactness.NOT_JUDGED.format(10) in gemm(text)[0].inexact


# --- proofs that are kept


def test_a_proof_is_kept_only_if_no_loaded_value_affects_accesses(monkeypatch):
    calls = []
    screened = exactness.screened
    monkeypatch.setattr(exactness, "screened", lambda *args: calls.append(1) or screened(*args))
    fixed = "ld.global.u32 %r8, [%d2+2048]; add.u32 %r8, %r8, 1; st.global.u32 [%d2], %r8;"
    moved = """ld.global.u32 %r8, [%d2+2048]; and.b32 %r8, %r8, 63; mul.wide.u32 %d4, %r8, 4; add.u64 %d4, %d4, %d0;
        st.global.u32 [%d4], %r3;"""
    same = "ld.global.u32 %r8, [%d3]; st.global.u32 [%d0], %r8;"
    for body, counts in ((fixed, [1, 0]), (moved, [1, 1]), (same, [1, 1])):
        kernel = wf.ptx.load(f"{HEAD}.visible .entry k(.param .u64 out) {{{DECLARED}{body} ret; }}").assemble(
            arch="sm_90"
        )
        for count in counts:
            calls.clear()
            out = np.arange(1024, dtype=np.uint32)
            assert kernel["k"].launch(1, 64, [out]).exact
            assert len(calls) == count
    out = np.arange(1024, dtype=np.uint32)
    out[512:] = 7
    run = wf.ptx.load(f"{HEAD}.visible .entry k(.param .u64 out) {{{DECLARED}{moved} ret; }}").assemble(arch="sm_90")
    kernel = run["k"]
    assert kernel.launch(1, 64, [np.arange(1024, dtype=np.uint32)]).exact
    assert not kernel.launch(1, 64, [out]).exact  # all threads store to one address


def test_a_proof_holds_for_the_same_launch_only():
    body = "st.global.u32 [%d0], %r1; st.global.u32 [%d2+4], %r3;"
    kernel = wf.ptx.load(f"{HEAD}.visible .entry k(.param .u64 out) {{{DECLARED}{body} ret; }}").assemble(arch="sm_90")[
        "k"
    ]
    assert kernel.launch(1, 32, [np.zeros(1024, np.uint32)]).exact
    assert not kernel.launch(2, 32, [np.zeros(1024, np.uint32)]).exact
