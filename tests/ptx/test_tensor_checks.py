"""Mistakes with tensor memory, planted in correct kernels: each is found at its line, and the kernels are clean."""

import numpy as np
import pytest

import warpfrag as wf
from ptx.tensor_kernels import kernel, probe_module, run, vector, whole
from warpfrag import ptx
from warpfrag.tensorcore.tensor_images import image_columns, shared_parts

pytestmark = pytest.mark.one_engine  # checks of tensor memory run in the interpreter, whichever engine is asked for
MMA = "tcgen05.mma"
PRODUCTS = {
    "f16": (f"{MMA}.cta_group::1.kind::f16", {"m": 128, "n": 16, "a": "f16", "d": "f32"}),
    "64 rows": (f"{MMA}.cta_group::1.kind::f8f6f4", {"m": 64, "n": 8, "a": "e4m3", "b": "e5m2", "d": "f16"}),
    "scaled": (f"{MMA}.cta_group::1.kind::mxf8f6f4.block_scale", {"m": 128, "n": 8, "a": "e4m3", "b": "e3m2"}),
    "pair": (f"{MMA}.cta_group::2.kind::i8", {"m": 256, "n": 32, "a": "s8", "b": "s8"}),
}
# What is taken out of a kernel: lines that hold a text, and which of them; then where it shows, and what is said.
MISTAKES = {
    "not freed": ("tcgen05.dealloc", 0, "tcgen05.alloc", "never freed"),
    "no wait for a store": ("tcgen05.wait::st", 0, f"{MMA}.", "no tcgen05.wait::st follows it"),
    "no fence before": ("tcgen05.fence::before", 1, f"{MMA}.", "no tcgen05.fence::before_thread_sync follows"),
    "no fence behind": ("tcgen05.fence::after", 1, f"{MMA}.", "no tcgen05.fence::after_thread_sync between"),
    "no fence behind the wait": ("tcgen05.fence::after", 2, "tcgen05.ld", "and the wait for tcgen05.mma"),
    "no wait for the product": ("mbarrier.try_wait", 0, "tcgen05.ld", "no thread waited for an mbarrier"),
    "no commit": ("tcgen05.commit", 0, "tcgen05.ld", "no thread waited for an mbarrier"),
    "not written": ("tcgen05.st", 0, f"{MMA}.", "has not been written since it was allocated"),
}


def emitted(name):
    """The text of a kernel, and a function that launches it under the checks."""
    words, shape = PRODUCTS[name]
    t = wf.get(words, **shape)
    places = image_columns(t.form)
    pair = (2,) if t.blocks == 2 else ()
    tiles = [np.zeros((*pair, part.store(np.zeros(part.shape)).memory.size), np.uint8) for part in shared_parts(t.form)]
    image = np.zeros((*pair, 128, places["end"]), np.uint32)
    d = np.zeros((*pair, 128, t.d.columns), np.uint32)

    def launch(text):
        module = ptx.load(text)
        (program,) = (module[entry] for entry in module)
        return program.launch(t.blocks, 128, [*tiles, image, d], checks=["async"])

    return wf.emit(t, lang="ptx", arch="sm_100a"), launch


def without(text, part, number):
    """Return the text with one line blanked, so that line numbers stay the same; for a wait, also its branch."""
    lines = text.splitlines()
    at = [number for number, line in enumerate(lines) if part in line][number]
    lines[at] = ""
    if part == "mbarrier.try_wait":
        lines[at + 1] = ""
    if part == "tcgen05.commit":  # nobody waits for it then
        return without("\n".join(lines), "mbarrier.try_wait", 0)
    return "\n".join(lines)


def line_of(text, part):
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line and "//" not in line)


@pytest.mark.parametrize("name", ["f16", "scaled", "pair"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_planted_mistakes_are_found(name, mistake):
    text, launch = emitted(name)
    part, number, shows, said = MISTAKES[mistake]
    found = launch(without(text, part, number)).findings
    assert {finding.kind for finding in found} == {"tensor_memory"}
    right = [finding for finding in found if finding.line == line_of(text, shows) and said in finding.text]
    assert right, [str(finding) for finding in found]
    assert found[0].check == "async"


@pytest.mark.parametrize("name", PRODUCTS)
def test_kernels_without_mistakes_are_clean(name):
    text, launch = emitted(name)
    launched = launch(text)
    assert (launched.verdict, launched.findings) == ("clean", [])


def reuses():
    """Statements of one thread that overwrite columns 0..7, and the bytes they read."""
    t = wf.get(f"{MMA}.cta_group::1.kind::f16", m=128, n=8, a="f16", d="f32")
    tiles = t.a.store(np.zeros(t.a.shape)), t.b.store(np.zeros(t.b.shape))
    start = -(-tiles[0].memory.size // 1024) * 1024
    word = wf.Descriptor(leading=128, stride=256, kind="tcgen05").word
    product = [
        f"add.u64 %rd6, %rd5, {tiles[0].descriptor.word:#x};",
        f"add.u64 %rd7, %rd5, {tiles[1].descriptor.word + start // 16:#x};",
        f"mov.b32 %r9, {t.descriptor().word:#x};",
        f"{t.ptx} [%r8], %rd6, %rd7, %r9, %p4;",
    ]
    copy = [f"add.u64 %rd6, %rd5, {word:#x};", "tcgen05.cp.cta_group::1.128x256b [%r8], %rd6;"]
    return {"mma": product, "cp": copy, "shift": ["tcgen05.shift.cta_group::1.down [%r8];"]}


@pytest.mark.parametrize("by", ["mma", "cp", "shift"])
def test_columns_are_reused_before_a_load_is_complete(by):
    """All warps load columns that one thread then overwrites; with wait::ld before the barrier that is right."""
    ld = f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {vector(8)}, [%r6];"
    cells = np.zeros((128, 64), np.uint32)
    options = {"size": 8192}
    for waits in (True, False):
        by_warps = ld + ("\ntcgen05.wait::ld.sync.aligned;" if waits else "")
        text = probe_module("\n".join(reuses()[by]), by_warps, **options)
        program = ptx.load(text)["probe"]
        launched = program.launch(
            1, 128, [np.zeros(whole(8192), np.uint8), cells, np.zeros_like(cells)], checks=["async"]
        )
        if waits:
            assert (launched.verdict, launched.findings) == ("clean", [])
            continue
        (finding,) = launched.findings
        assert (finding.kind, finding.line) == ("tensor_memory", line_of(text, f"tcgen05.{by}"))
        assert finding.other.line == line_of(text, ld)
        assert "no tcgen05.wait::ld follows it" in finding.text


def test_a_store_that_nobody_waited_for_is_read_too_early():
    st = f"tcgen05.st.sync.aligned.32x32b.x4.b32 [%r6+8], {vector(4)};"
    ld = f"tcgen05.ld.sync.aligned.32x32b.x2.b32 {vector(2, 8)}, [%r6+9];"
    for between, count in (("tcgen05.wait::st.sync.aligned;", 0), ("", 1)):
        text = probe_module("", f"{st}\n{between}\n{ld}\ntcgen05.wait::ld.sync.aligned;")
        cells = np.zeros((128, 64), np.uint32)
        launched = ptx.load(text)["probe"].launch(
            1, 128, [np.zeros(2048, np.uint8), cells, np.zeros_like(cells)], checks=["async"]
        )
        assert len(launched.findings) == count
        for finding in launched.findings:
            assert (finding.line, finding.other.line) == (line_of(text, ld), line_of(text, st))


def test_a_kernel_without_fences_says_what_was_not_judged():
    text, launch = emitted("f16")
    lines = ["" if "tcgen05.fence" in line else line for line in text.splitlines()]
    launched = launch("\n".join(lines))
    assert (launched.verdict, launched.findings) == ("incomplete", [])


def test_without_checks_an_allocation_that_is_left_ends_the_launch():
    program = kernel("")
    text = without(probe_module(""), "tcgen05.dealloc", 0)
    with pytest.raises(wf.errors.PtxError, match="never freed"):
        run(ptx.load(text)["probe"], np.zeros(2048, np.uint8), np.zeros((128, 64), np.uint32))
    out, _ = run(program, np.zeros(2048, np.uint8), np.ones((128, 64), np.uint32))
    assert (out == 1).all()


@pytest.mark.parametrize("columns", [32, 64, 128])
def test_a_load_of_columns_that_nobody_wrote_is_found_where_its_value_is_stored(columns):
    """Pipelined loops load columns before they know if an iteration follows: only using the value is a mistake."""
    text = probe_module("", columns=columns)
    unused = f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {vector(8, 16)}, [%r6+8];\ntcgen05.wait::ld.sync.aligned;"
    stores = [line for line in text.splitlines() if "tcgen05.st." in line]
    cells = np.zeros((128, columns), np.uint32)
    arguments = [np.zeros(whole(2048), np.uint8), cells, np.zeros_like(cells)]
    early = text.replace("COLUMN_tensor_image:", f"{unused}\nCOLUMN_tensor_image:")
    launched = ptx.load(early)["probe"].launch(1, 128, arguments, checks="all")
    assert (launched.verdict, launched.findings) == ("clean", [])
    planted = without(text, stores[-1], 0)
    launched = ptx.load(planted)["probe"].launch(1, 128, arguments, checks="all")
    loads = [number for number, line in enumerate(text.splitlines(), 1) if "tcgen05.ld." in line]
    assert launched.findings
    assert {finding.kind for finding in launched.findings} == {"uninitialised"}
    assert all(finding.line > loads[-1] for finding in launched.findings)


ADDRESS_THEN_COPY = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<8>;
.shared .align 128 .b8 sm[128];
.shared .align 8 .b64 bar;
ld.param.u64 %rd1, [in];
ld.param.u64 %rd2, [out];
mov.u32 %r1, %tid.x;
setp.eq.u32 %p1, %r1, 0;
@%p1 mbarrier.init.shared::cta.b64 [bar], 1;
@%p1 fence.proxy.async;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [sm], 32;
bar.sync 0;
ld.shared.u32 %r2, [sm];
{store}
bar.sync 0;
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [sm], [%rd1], 128, [bar];
W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0;
@!%p2 bra W;
ld.shared.u32 %r3, [sm];
mul.wide.u32 %rd3, %r1, 4;
add.u64 %rd4, %rd2, %rd3;
st.global.u32 [%rd4], %r3;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;
ret;
}
"""


def test_a_copy_may_overwrite_the_address_of_an_allocation():
    """The manual names no proxy for the write of tcgen05.alloc; a thread's store there needs a fence."""
    arguments = [np.ones(32, np.uint32), np.zeros(32, np.uint32)]
    launched = ptx.load(ADDRESS_THEN_COPY.replace("{store}", ""))["k"].launch(1, 32, arguments, checks="all")
    assert (launched.findings, arguments[1].tolist()) == ([], [1] * 32)
    stored = ADDRESS_THEN_COPY.replace("{store}", "bar.sync 0;\n@%p1 st.shared.u32 [sm], 0;")
    (finding,) = ptx.load(stored)["k"].launch(1, 32, arguments, checks="all").findings
    assert (finding.kind, finding.line) == ("fence", line_of(stored, "cp.async.bulk"))


REUSED_STAGE = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<8>;
.shared .align 128 .b8 sm[128];
.shared .align 8 .b64 full;
.shared .align 8 .b64 empty;
ld.param.u64 %rd1, [in];
ld.param.u64 %rd2, [out];
mov.u32 %r1, %tid.x;
setp.eq.u32 %p1, %r1, 0;
@%p1 mbarrier.init.shared::cta.b64 [full], 1;
@%p1 mbarrier.init.shared::cta.b64 [empty], 1;
@%p1 fence.mbarrier_init.release.cluster;
@%p1 fence.proxy.async;
bar.sync 0;
setp.eq.u32 %p2, %r1, 32;
@%p1 bra PRODUCER;
@%p2 bra CONSUMER;
bra DONE;
PRODUCER:
mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 128;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [sm], [%rd1], 128, [full];
E: mbarrier.try_wait.parity.shared::cta.b64 %p3, [empty], 0;
@!%p3 bra E;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 128;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [sm], [%rd1+128], 128, [full];
bra DONE;
CONSUMER:
{wait}
mov.u32 %r2, empty;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r2];
DONE:
bar.sync 0;
G: mbarrier.try_wait.parity.shared::cta.b64 %p3, [full], 1;
@!%p3 bra G;
shl.b32 %r3, %r1, 2;
and.b32 %r3, %r3, 124;
mov.u32 %r4, sm;
add.u32 %r4, %r4, %r3;
ld.shared.u32 %r5, [%r4];
mul.wide.u32 %rd3, %r1, 4;
add.u64 %rd4, %rd2, %rd3;
st.global.u32 [%rd4], %r5;
ret;
}
"""


def test_a_commit_tells_of_the_copies_that_its_thread_has_waited_for():
    """The producer of a warp-specialised product reuses a stage when the commit signals that it was consumed."""
    wait = "F: mbarrier.try_wait.parity.shared::cta.b64 %p3, [full], 0;\n@!%p3 bra F;"
    arguments = [np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)]
    launched = ptx.load(REUSED_STAGE.replace("{wait}", wait))["k"].launch(1, 64, arguments, checks="all")
    assert (launched.findings, arguments[1].tolist()) == ([], [*range(32, 64)] * 2)
    early = REUSED_STAGE.replace("{wait}", "")
    (finding,) = ptx.load(early)["k"].launch(1, 64, arguments, checks="all").findings
    assert (finding.kind, finding.line) == ("async", line_of(early, "[%rd1+128], 128"))
