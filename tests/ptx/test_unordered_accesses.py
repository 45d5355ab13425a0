"""Conflicts that a check with a fixed number of slots misses: many readers, many writers, copies in flight."""

import numpy as np
import pytest

import warpfrag as wf
from small_kernel import kernel

pytestmark = pytest.mark.one_engine

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
.reg .pred %p<12>; .reg .b32 %r<40>; .reg .b64 %rd<16>; .reg .f32 %f<16>;
.shared .align 128 .b32 sm[2048];
.shared .align 8 .b64 mb;
ld.param.u64 %rd1, [out];
mov.u32 %r1, %tid.x; mov.u32 %r2, sm; mov.u32 %r3, mb; mov.u32 %r4, %cluster_ctarank; and.b32 %r6, %r1, 31;
setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 32; setp.eq.u32 %p3, %r1, 64; setp.ne.u32 %p8, %r4, 0;
shl.b32 %r7, %r1, 2; add.u32 %r7, %r7, %r2; st.shared.u32 [%r7], %r1;
@%p1 mbarrier.init.shared::cta.b64 [%r3], 1;
fence.proxy.async; fence.mbarrier_init.release.cluster;
"""
SYNC = "bar.sync 0;\n"
CLUSTER_SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p6, [%r3], 0;\n@!%p6 bra W;\n"


def verdict(body, block=96, cluster=1):
    """The verdict of a kernel, and the kinds of its findings."""
    options = wf.ptx.LaunchOptions(cluster=(cluster, 1, 1))
    kernel = wf.ptx.load(HEAD + body + "\nret;\n}\n")["k"]
    run = kernel.launch(cluster, block, [np.zeros(4096, np.uint32)], checks="all", options=options)
    return run.verdict, {finding.kind for finding in run.findings}


CLEAN = ("clean", set())


@pytest.mark.parametrize(("scope", "cluster"), [("cta", 2), ("cluster", 1), ("gpu", 1)])
def test_the_scope_of_atomics_contains_the_blocks_that_run_them_together(scope, cluster):
    run = wf.ptx.load(f"{HEAD}red.relaxed.{scope}.global.add.u32 [%rd1], 1;\nret;\n}}\n")["k"].launch(
        2, 32, [np.zeros(4, np.uint32)], checks="races", options=wf.ptx.LaunchOptions(cluster=(cluster, 1, 1))
    )
    assert (run.verdict == "clean") == (scope == "gpu")


OTHER_BLOCK = (
    "xor.b32 %r10, %r4, 1; mapa.shared::cluster.u32 %r11, %r7, %r10; mapa.shared::cluster.u32 %r12, %r3, %r10;\n"
)
STARTED = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;\n"


@pytest.mark.parametrize(("start", "expected"), [("", "findings"), (STARTED, "clean"), (CLUSTER_SYNC, "clean")])
def test_shared_memory_of_a_block_is_accessed_after_the_block_has_started(start, expected):
    body = f"{OTHER_BLOCK}{start}st.shared::cluster.u32 [%r11+4096], 1;\n{CLUSTER_SYNC}"
    assert verdict(body, 32, cluster=2)[0] == expected


@pytest.mark.parametrize(("last", "expected"), [("", ("findings", {"race"})), (CLUSTER_SYNC, CLEAN)])
def test_the_source_of_a_copy_to_another_block_exists_until_the_copy_has_ended(last, expected):
    body = f"""{OTHER_BLOCK}mapa.shared::cluster.u32 %r13, %r2, %r10; add.u32 %r13, %r13, 4096;
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 128;
{CLUSTER_SYNC}
@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r13], [%r2], 128, [%r12];
{WAIT}{last}"""
    assert verdict(body, 32, cluster=2) == expected


@pytest.mark.parametrize(("mask", "expected"), [(60, ("findings", {"race"})), (124, CLEAN)])
def test_lanes_that_copy_to_one_word_race(mask, expected):
    body = f"""add.u64 %rd2, %rd1, 1024; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd2, %rd2, %rd3; st.global.u32 [%rd2], %r1;
and.b32 %r8, %r7, {mask}; add.u32 %r8, %r8, %r2; cp.async.ca.shared.global [%r8+2048], [%rd2], 4; cp.async.wait_all;"""
    assert verdict(body, 32) == expected


@pytest.mark.parametrize("release", ["", ".release.cta", ".release.cluster"])
@pytest.mark.parametrize("acquire", ["", ".acquire.cta", ".acquire.cluster"])
def test_an_mbarrier_orders_writes_of_another_block_only_with_cluster_scope(release, acquire):
    body = f"""{OTHER_BLOCK}{CLUSTER_SYNC}@%p1 st.shared::cluster.u32 [%r11+4096], 1;
@%p1 mbarrier.arrive{release}.shared::cluster.b64 _, [%r12];
W: mbarrier.try_wait.parity{acquire}.shared::cta.b64 %p6, [%r3], 0;
@!%p6 bra W;
ld.shared.u32 %r8, [%r2+4096];
{CLUSTER_SYNC}"""
    is_wide = release.endswith("cluster") and acquire.endswith("cluster")
    assert verdict(body, 32, cluster=2) == (CLEAN if is_wide else ("findings", {"race"}))


@pytest.mark.parametrize("lane", [0, 5, 31])
def test_all_lanes_that_read_a_word_are_kept(lane):
    reads = f"{SYNC}ld.shared.u32 %r8, [%r2];\nsetp.eq.u32 %p4, %r6, {lane};\n"
    assert verdict(f"{reads}@%p4 st.shared.u32 [%r2], 9;", 32) == ("findings", {"lockstep"})
    assert verdict(f"{reads}bar.warp.sync -1;\n@%p4 st.shared.u32 [%r2], 9;", 32) == CLEAN


@pytest.mark.parametrize("lane", [0, 5, 31])
@pytest.mark.parametrize("sync", ["", "bar.warp.sync -1;\n"])
def test_an_arrival_of_one_lane_does_not_release_the_others(lane, sync):
    body = f"""{SYNC}setp.lt.u32 %p4, %r1, 32;
@%p4 bra W;
ld.shared.u32 %r8, [%r2];
{sync}setp.eq.u32 %p5, %r6, {lane};
@%p5 mbarrier.arrive.shared::cta.b64 _, [%r3];
bra.uni D;
{WAIT}@%p1 st.shared.u32 [%r2], 9;
D:"""
    assert verdict(body, 64) == (CLEAN if sync else ("findings", {"race"}))


def test_lanes_that_read_one_after_the_other_are_kept():
    body = """setp.eq.u32 %p4, %r6, 3; setp.eq.u32 %p5, %r6, 7;
bar.sync 0;
@%p4 ld.shared.u32 %r8, [%r2];
@%p5 ld.shared.u32 %r8, [%r2];
"""
    assert verdict(body + "@%p5 st.shared.u32 [%r2], 9;", 32) == ("findings", {"lockstep"})
    assert verdict(body + "bar.warp.sync -1;\n@%p5 st.shared.u32 [%r2], 9;", 32) == CLEAN


BULK_STORE = (
    "@{0} cp.async.bulk.global.shared::cta.bulk_group [%rd{1}], [%r2], 128;\n@{0} cp.async.bulk.commit_group;\n"
)
BULK_WAIT = "@{0} cp.async.bulk.wait_group 0;\n"


@pytest.mark.parametrize(("first", "second"), [("%p1", "%p2"), ("%p2", "%p1")])
@pytest.mark.parametrize("waits", [False, True])
def test_two_bulk_stores_that_read_one_region_are_kept(first, second, waits):
    body = SYNC + BULK_STORE.format(first, 1) + (BULK_WAIT.format(first) if waits else "")
    body += f"{SYNC}add.u64 %rd2, %rd1, 1024;\n{BULK_STORE.format(second, 2)}{BULK_WAIT.format(second)}{SYNC}"
    body += f"@%p3 st.shared.u32 [%r2], 9;\n{SYNC}{BULK_WAIT.format(first)}"
    assert verdict(body) == (CLEAN if waits else ("findings", {"async"}))


WGMMA = """wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd7, %rd8, 0, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
"""
WGMMA_WAIT = "wgmma.wait_group.sync.aligned 0;\n"


@pytest.mark.parametrize("waits", [(True, True), (False, True), (True, False)])
def test_two_warpgroups_that_read_one_tile_are_kept(waits):
    first, second = (WGMMA_WAIT * wait for wait in waits)
    body = f"""st.shared.u32 [%r7+1024], 0; st.shared.u32 [%r7+2048], 0; st.shared.u32 [%r7+3072], 0;
setp.lt.u32 %p4, %r1, 128;
fence.proxy.async;
{SYNC}shr.u32 %r20, %r2, 4; and.b32 %r20, %r20, 16383; cvt.u64.u32 %rd7, %r20; or.b64 %rd7, %rd7, 0x0000000800080000;
mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
add.u64 %rd8, %rd7, 128;
@!%p4 bra SECOND;
{WGMMA}{first}bar.sync 1, 256;
bra.uni JOIN;
SECOND: bar.sync 1, 256;
{WGMMA}{second}JOIN: bar.sync 2, 256;
@%p1 st.shared.u32 [%r2+2048], 9;
{WGMMA_WAIT}"""
    assert verdict(body, 256) == (CLEAN if all(waits) else ("findings", {"async"}))


def test_a_missing_wgmma_fence_is_one_finding():
    body = f"""setp.lt.u32 %p4, %r1, 128; fence.proxy.async;
{SYNC}shr.u32 %r20, %r2, 4; and.b32 %r20, %r20, 16383; cvt.u64.u32 %rd7, %r20; or.b64 %rd7, %rd7, 0x0000000800080000;
mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
{WGMMA.replace("wgmma.fence.sync.aligned;", "").replace("%rd8", "%rd7") * 3}{WGMMA_WAIT}"""
    kernel = wf.ptx.load(HEAD + body + "\nret;\n}\n")["k"]
    run = kernel.launch(1, 128, [np.zeros(4096, np.uint32)], checks="async")
    assert [finding.kind for finding in run.findings] == ["fence"]


@pytest.mark.parametrize("warps", [4, 8, 16, 32])
def test_all_warps_that_read_a_word_of_global_memory_are_kept(warps):
    count, last = 64, 32 * warps - 1
    body = f"""ld.global.u32 %r8, [%rd1];
setp.lt.u32 %p4, %r1, {32 * warps - count}; @%p4 bra D;
bar.sync 1, {count};
setp.eq.u32 %p5, %r1, {last};
@%p5 st.global.u32 [%rd1], 7;
D:"""
    assert verdict(body, 32 * warps) == ("findings", {"race"})
    assert verdict(body.replace("setp.lt", f"{SYNC}setp.lt"), 32 * warps) == CLEAN


def test_readers_of_a_cluster_with_more_than_32_warps_are_kept():
    body = f"""mapa.shared::cluster.u32 %r9, %r2, 0;
{CLUSTER_SYNC}setp.eq.u32 %p4, %r4, 0; and.pred %p4, %p4, %p1;
setp.eq.u32 %p5, %r4, 2; and.pred %p5, %p5, %p1;
setp.eq.u32 %p6, %r4, 1; and.pred %p6, %p6, %p1;
@%p4 ld.shared.u32 %r10, [%r2];
@%p5 ld.shared::cluster.u32 %r10, [%r9];
@%p5 st.release.gpu.global.u32 [%rd1], 1;
@!%p6 bra E;
P: ld.acquire.gpu.global.u32 %r11, [%rd1]; setp.eq.u32 %p7, %r11, 0; @%p7 bra P;
st.shared::cluster.u32 [%r9], 99;
E: {CLUSTER_SYNC}"""
    assert verdict(body, 512, 4) == ("findings", {"race"})
    assert verdict(body.replace("@%p4 ld.shared", "@%p6 ld.shared"), 512, 4) == CLEAN


def test_writes_before_the_last_are_kept():
    init = f"{SYNC}setp.eq.u32 %p4, %r1, 32;\n"
    replaced = init + "@%p4 st.shared.u32 [%r2+512], 5;\n@%p4 atom.shared.exch.b32 %r8, [%r2+512], 6;\n{}"
    load = "@%p1 ld.relaxed.cta.shared.u32 %r9, [%r2+512];"
    assert verdict(replaced.format(load).replace("@%p1 ld", "bar.warp.sync -1;\n@%p1 ld")) == ("findings", {"race"})
    assert verdict(replaced.format(SYNC + load)) == CLEAN
    atomics = init + "@%p1 atom.shared.exch.b32 %r8, [%r2], 5;\n{}@%p4 atom.shared.exch.b32 %r8, [%r2], 6;\n"
    assert verdict(atomics.format("") + "@%p4 ld.shared.u32 %r9, [%r2];") == ("findings", {"race"})
    assert verdict(atomics.format(SYNC) + "@%p4 ld.shared.u32 %r9, [%r2];") == CLEAN


@pytest.mark.parametrize("early", [False, True])
def test_the_source_of_a_copy_is_kept_until_its_mbarrier_is_waited_for(early):
    store = "@%p1 st.global.u32 [%rd1], 77;\n"
    body = f"""{SYNC}@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 128;
@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+1024], [%rd1], 128, [%r3];
{store * early}{WAIT}{store * (not early)}"""
    assert verdict(body) == (("findings", {"async"}) if early else CLEAN)


@pytest.mark.parametrize("early", [False, True])
def test_the_source_of_a_copy_to_a_neighbour_is_kept_until_its_mbarrier_is_waited_for(early):
    store = "@%p9 st.shared.u32 [%r2], 77;\n"
    body = f"""not.pred %p9, %p8; and.pred %p9, %p9, %p1; and.pred %p7, %p8, %p1;
mapa.shared::cluster.u32 %r10, %r2, 1; mapa.shared::cluster.u32 %r11, %r3, 1;
{CLUSTER_SYNC}@%p7 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 128;
@%p9 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r10+1024], [%r2], 128, [%r11];
{store * early}@!%p8 bra E;
{WAIT}E: {CLUSTER_SYNC}{store * (not early)}"""
    assert verdict(body, 64, 2) == (("findings", {"async"}) if early else CLEAN)


@pytest.mark.parametrize(
    "fence", ["", "fence.acq_rel.cluster;", "fence.sc.cluster;", "fence.acq_rel.gpu;", "membar.gl;"]
)
def test_a_fence_before_a_relaxed_arrival_releases(fence):
    body = f"""mapa.shared::cluster.u32 %r9, %r2, 0;
not.pred %p9, %p8; and.pred %p9, %p9, %p1; and.pred %p7, %p8, %p1;
{CLUSTER_SYNC}@%p9 ld.shared.u32 %r10, [%r2];
{fence}
barrier.cluster.arrive.relaxed.aligned;
barrier.cluster.wait.aligned;
@%p7 st.shared::cluster.u32 [%r9], 7;
{CLUSTER_SYNC}"""
    assert verdict(body, 32, 2) == (CLEAN if fence else ("findings", {"race"}))


BOX = """.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry box(.param .align 64 .b8 map[128])
{
.reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<6>;
mov.b64 %rd2, map; cvta.param.u64 %rd3, %rd2;
mov.u32 %r3, smem; mov.u32 %r5, %tid.x; shl.b32 %r6, %r5, 2; add.u32 %r7, %r3, %r6; mov.u32 %r1, 0;
LOOP: st.shared.u32 [%r7], %r5;
add.u32 %r7, %r7, 144; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, ROWS;
@%p1 bra LOOP;
fence.proxy.async.shared::cta;
bar.sync 0;
setp.eq.u32 %p0, %r5, 0; mov.u32 %r8, 0;
@%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd3, {%r8, %r8}], [%r3];
@%p0 cp.async.bulk.commit_group;
@%p0 cp.async.bulk.wait_group 0;
ret;
}
"""


@pytest.mark.parametrize("rows", [7, 8])
def test_bytes_of_a_box_outside_the_tensor_may_be_unwritten(rows):
    tensor = wf.ptx.TensorMap(np.full((8, 64), 7, np.uint16), box=(8, 72))
    kernel = wf.ptx.load(BOX.replace("ROWS", str(rows)))["box"]
    run = kernel.launch(1, 32, [tensor], shared=8 * 144, checks="all")
    assert run.verdict == ("clean" if rows == 8 else "findings")


REMOTE = {
    "load": "ld.shared::cluster.u32 %r10, [%r9];",
    "store": "st.shared::cluster.u32 [%r9], 5;",
    "atomic": "atom.shared::cluster.add.u32 %r10, [%r9], 5;",
    "arrival": "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11];",
}


@pytest.mark.parametrize("access", REMOTE)
@pytest.mark.parametrize("waits", [False, True])
def test_shared_memory_of_a_block_that_may_have_exited_is_not_used(access, waits):
    body = f"""mapa.shared::cluster.u32 %r9, %r2, 1; mapa.shared::cluster.u32 %r11, %r3, 1;
not.pred %p9, %p8; and.pred %p9, %p9, %p1;
{CLUSTER_SYNC}@%p9 {REMOTE[access]}
{CLUSTER_SYNC * waits}"""
    assert verdict(body, 32, 2) == (CLEAN if waits else ("findings", {"race"}))


def test_a_remote_arrival_that_the_block_waits_for_precedes_its_exit():
    body = f"""mapa.shared::cluster.u32 %r11, %r3, 1;
not.pred %p9, %p8; and.pred %p9, %p9, %p1;
{CLUSTER_SYNC}@%p9 {REMOTE["arrival"]}
@!%p8 bra E;
{WAIT}E:"""
    assert verdict(body, 32, 2) == CLEAN


@pytest.mark.parametrize(("barriers", "kinds"), [((2, 2), {"barrier"}), ((2, 3), set())])
def test_two_groups_of_threads_do_not_share_a_named_barrier(barriers, kinds):
    body = f"""setp.lt.u32 %p4, %r1, 128;
@%p4 bra FIRST;
bar.sync {barriers[0]}, 128;
bra.uni D;
FIRST: bar.sync {barriers[1]}, 128;
D: xor.b32 %r8, %r7, 64;
ld.shared.u32 %r9, [%r8];"""
    assert verdict(body, 256) == ("findings" if kinds else "clean", kinds)


@pytest.mark.parametrize(("checks", "expected"), [("all", ("findings", {"barrier"})), ("races", ("incomplete", set()))])
def test_more_threads_do_not_arrive_at_a_named_barrier_than_it_counts(checks, expected):
    """Both halves of the block execute one bar.sync, like consumers that should each have their own barrier."""
    array = np.zeros(256, np.uint32)
    text = kernel("bar.sync 2, 128;\nst.global.u32 [%rd3], %r4;")
    run = wf.ptx.load(text)["k"].launch(1, 256, [array], checks=checks, level="ptx")
    assert (run.verdict, {finding.kind for finding in run.findings}) == expected


def test_a_named_barrier_can_be_used_again_after_something_orders_its_phases():
    body = "setp.lt.u32 %p4, %r1, 64;\n@%p4 bar.sync 2, 64;\n{}@!%p4 bar.sync 2, 64;"
    assert verdict(body.format(SYNC), 128) == CLEAN
    assert verdict(body.format("@%p4 bar.sync 2, 64;\n" + SYNC), 128) == CLEAN
    assert verdict(body.format(""), 128) == ("findings", {"barrier"})


def test_producer_and_consumer_alternate_at_named_barriers():
    body = f"""{SYNC}mov.u32 %r20, 0; setp.lt.u32 %p4, %r1, 32;
@%p4 bra PRODUCE;
CONSUME: bar.sync 1, 64;
ld.shared.u32 %r9, [%r2];
bar.arrive 2, 64;
add.u32 %r20, %r20, 1; setp.lt.u32 %p5, %r20, 4;
@%p5 bra CONSUME;
bra.uni D;
PRODUCE: st.shared.u32 [%r2], %r20;
bar.arrive 1, 64;
bar.sync 2, 64;
add.u32 %r20, %r20, 1; setp.lt.u32 %p5, %r20, 4;
@%p5 bra PRODUCE;
D:"""
    assert verdict(body.replace("st.shared.u32 [%r2]", "@%p1 st.shared.u32 [%r2]"), 64) == CLEAN
    assert "findings" in verdict(body.replace("bar.arrive 2, 64;", "").replace("bar.sync 2, 64;", ""), 64)


@pytest.mark.parametrize("fence", ["", "fence.proxy.async;", "fence.mbarrier_init.release.cluster;"])
def test_an_mbarrier_that_copies_signal_is_fenced(fence):
    head = HEAD.replace("fence.proxy.async; fence.mbarrier_init.release.cluster;", "fence.proxy.async;")
    head = head.replace("@%p1 mbarrier.init.shared::cta.b64 [%r3], 1;\nfence.proxy.async;", "fence.proxy.async;\nINIT")
    body = f"""{SYNC}@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 128;
@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+1024], [%rd1], 128, [%r3];
{WAIT}"""
    text = head.replace("INIT", f"@%p1 mbarrier.init.shared::cta.b64 [%r3], 1;\n{fence}\n") + body + "\nret;\n}\n"
    run = wf.ptx.load(text)["k"].launch(1, 64, [np.zeros(64, np.uint32)], checks="all")
    assert (run.findings, run.verdict) == ([], "clean" if fence else "incomplete")
    assert [reason for reason in run.unjudged if "mbarrier.init" in reason] == ([] if fence else list(run.unjudged))


@pytest.mark.parametrize("sync", ["", "bar.warp.sync -1;"])
def test_a_warp_synchronous_reduction_is_unordered(sync):
    body = f"""{SYNC}setp.lt.u32 %p4, %r6, 16;
@%p4 ld.volatile.shared.u32 %r8, [%r7+64];
@%p4 ld.volatile.shared.u32 %r9, [%r7];
@%p4 add.u32 %r9, %r9, %r8;
{sync}
@%p4 st.volatile.shared.u32 [%r7], %r9;
{sync}
@%p4 ld.volatile.shared.u32 %r8, [%r7+32];
{sync}
@%p4 add.u32 %r9, %r9, %r8;
@%p4 st.volatile.shared.u32 [%r7], %r9;"""
    assert verdict(body, 32) == (CLEAN if sync else ("findings", {"unordered"}))


@pytest.mark.parametrize("words", ["volatile", "relaxed.cta"])
def test_a_value_that_depends_on_timing_is_unordered(words):
    load, store = f"ld.{words}.shared.u32 %r8, [%r2]", f"st.{words}.shared.u32 [%r2], 9;"
    keep = "@%p2 st.shared.u32 [%r7+512], %r8;"
    assert verdict(f"{SYNC}@%p1 {store}\n@%p2 {load};\n{keep}") == ("findings", {"unordered"})
    assert verdict(f"{SYNC}@%p2 {load};\nbar.warp.sync -1;\n@%p1 {store}\n{keep}") == ("findings", {"unordered"})
    assert verdict(f"{SYNC}@%p1 {store}\n{SYNC}@%p2 {load};\n{keep}") == CLEAN
    assert verdict(f"{SYNC}@%p1 {store}\n@%p2 {load};") == CLEAN


def test_a_store_after_a_wait_for_another_store_is_not_judged():
    wait = "P: ld.volatile.shared.u32 %r8, [%r2]; setp.ne.u32 %p5, %r8, 9; @%p5 bra P;"
    body = f"st.shared.u32 [%r2], 0;\n{SYNC}@%p1 st.volatile.shared.u32 [%r2], 9;\n@!%p2 bra D;\n"
    end = "st.volatile.shared.u32 [%r2], 10;\nD:"
    assert verdict(f"{body}{wait} {end}") == ("incomplete", set())
    assert verdict(f"{body}{end}") == ("findings", {"unordered"})


def test_a_value_that_a_thread_waits_for_is_no_finding():
    body = f"""{SYNC}@%p1 st.volatile.shared.u32 [%r2+512], 9;
@!%p2 bra D;
P: ld.volatile.shared.u32 %r8, [%r2+512]; setp.ne.u32 %p5, %r8, 9; @%p5 bra P;
st.shared.u32 [%r7+1024], %r8;
D:"""
    assert verdict(f"st.shared.u32 [%r7+512], 0;\n{body}") == CLEAN


@pytest.mark.parametrize(
    ("first", "second", "kinds"),
    [
        ("st.volatile.shared.u32 [%r2], 7;", "st.volatile.shared.u32 [%r2], 8;", {"unordered"}),
        ("st.volatile.shared.u32 [%r2], 7;", "st.volatile.shared.u32 [%r2], 7;", set()),
        ("st.relaxed.cta.shared.u32 [%r2], 7;", "atom.shared.add.u32 %r8, [%r2], 2;", {"unordered"}),
        ("atom.shared.add.u32 %r8, [%r2], 2;", "st.volatile.shared.u32 [%r2], 7;", {"unordered"}),
        ("atom.shared.add.u32 %r8, [%r2], 2;", "atom.shared.add.u32 %r8, [%r2], 3;", set()),
        ("st.release.cta.shared.u32 [%r2], 7;", "atom.shared.add.u32 %r8, [%r2], 2;", set()),
    ],
)
def test_stores_whose_order_decides_what_stays_are_unordered(first, second, kinds):
    body = f"{SYNC}@%p1 {first}\n@%p2 {second}"
    assert verdict(body) == ("findings" if kinds else "clean", kinds)
    assert verdict(f"{SYNC}@%p1 {first}\n{SYNC}@%p2 {second}") == CLEAN


LOCK = """L{0}: atom.shared.cas.b32 %r9, [%r2+2048], 0, 1; setp.ne.u32 %p5, %r9, 0; @%p5 bra L{0};
{1}
st.volatile.shared.u32 [%r2], {0};
{1}
atom.shared.exch.b32 %r9, [%r2+2048], 0;
"""


@pytest.mark.parametrize(("fence", "kinds"), [("membar.cta;", set()), ("", {"unordered"})])
def test_a_lock_needs_fences(fence, kinds):
    head = f"@%p1 st.shared.u32 [%r2+2048], 0;\n{SYNC}"
    body = f"{head}@!%p1 bra N;\n{LOCK.format(1, fence)}N: @!%p2 bra D;\n{LOCK.format(2, fence)}D:"
    assert verdict(body) == ("findings" if kinds else "clean", kinds)


@pytest.mark.parametrize(("fence", "expected"), [("membar.cta;", "clean"), ("", "incomplete")])
def test_a_flag_without_an_acquire_is_not_judged(fence, expected):
    """Programs rely on it, although the model does not order it."""
    body = f"""@%p1 st.shared.u32 [%r2+2048], 0;
{SYNC}@%p1 st.volatile.shared.u32 [%r2], 7;
@%p1 membar.cta;
@%p1 atom.shared.exch.b32 %r9, [%r2+2048], 1;
@!%p2 bra D;
P: atom.shared.add.u32 %r9, [%r2+2048], 0; setp.eq.u32 %p5, %r9, 0; @%p5 bra P;
{fence}
ld.volatile.shared.u32 %r8, [%r2];
st.shared.u32 [%r7+512], %r8;
D:"""
    assert verdict(body) == (expected, set())


@pytest.mark.parametrize(
    ("acquire", "release", "expected"),
    [
        ("membar.gl;", "membar.gl;", ["clean", "clean"]),
        ("membar.cta;", "membar.gl;", ["incomplete", "findings"]),
        ("", "membar.gl;", ["incomplete", "findings"]),
        ("membar.gl;", "", ["findings", "incomplete"]),
    ],
)
def test_a_lock_without_a_fence_in_one_block_is_clean_in_no_order(acquire, release, expected):
    lock = LOCK.replace(".shared", ".global").replace("%r2", "%rd1")
    own = lock.replace("{1}", acquire, 1).replace("{1}", release).format(1)
    other = lock.format(2, "membar.gl;")
    body = f"""mov.u32 %r4, %ctaid.x; setp.eq.u32 %p2, %r4, 1; @!%p1 bra D;
@%p2 bra N;
{own}bra D;
N: {other}D:"""
    kernel = wf.ptx.load(HEAD + body + "\nret;\n}\n")["k"]
    runs = [kernel.launch(2, 32, [np.zeros(4096, np.uint32)], checks="all", seed=seed) for seed in (None, 0)]
    assert [run.verdict for run in runs] == expected
    assert {finding.kind for run in runs for finding in run.findings} <= {"unordered"}


def test_data_behind_a_flag_of_an_earlier_block_is_not_judged():
    """Without a cooperative launch, block 1 starts after the end of block 0."""
    body = """mov.u32 %r4, %ctaid.x; setp.eq.u32 %p2, %r4, 1; @!%p1 bra D; @%p2 bra P;
st.volatile.global.u32 [%rd1], 7; membar.gl; atom.global.exch.b32 %r9, [%rd1+2048], 1; bra D;
P: atom.global.exch.b32 %r9, [%rd1+2048], 0; setp.eq.u32 %p5, %r9, 0; @%p5 bra P;
ld.volatile.global.u32 %r8, [%rd1]; st.global.u32 [%rd1+1024], %r8;
D:"""
    for cooperative in (False, True):
        kernel, options = wf.ptx.load(HEAD + body + "\nret;\n}\n")["k"], wf.ptx.LaunchOptions(cooperative=cooperative)
        run = kernel.launch(2, 32, [np.zeros(4096, np.uint32)], checks="all", options=options)
        assert (run.verdict, run.findings) == ("incomplete", [])


@pytest.mark.parametrize(("outside", "expected"), [("", "clean"), ("st.volatile.shared.u32 [%r2], 3;", "incomplete")])
def test_accesses_outside_a_lock_are_not_judged_by_one_order_of_its_threads(outside, expected):
    """In this order the second thread takes the lock after the first; in the other one the store is unordered."""
    lock = LOCK.replace("st.volatile.shared.u32 [%r2], {0};", "ld.volatile.shared.u32 %r8, [%r2];")
    first, second = (lock.format(number, "membar.cta;") for number in (1, 2))
    body = f"@%p1 st.shared.u32 [%r2+2048], 0;\n{SYNC}@!%p1 bra N;\n{first}N: @!%p2 bra D;\n{second}{outside}\nD:"
    assert verdict(body) == (expected, set())


@pytest.mark.parametrize(("load", "expected"), [("ld.volatile", "incomplete"), ("ld", "findings")])
@pytest.mark.parametrize(
    "poll", ["atom.shared.add.u32 %r9, [%r2+2048], 0;", "ld.relaxed.cta.shared.u32 %r9, [%r2+2048];"]
)
def test_data_behind_a_flag_without_an_acquire_is_never_clean(load, expected, poll):
    body = f"""@%p1 st.shared.u32 [%r2+2048], 0;
{SYNC}@%p1 st{load.removeprefix("ld")}.shared.u32 [%r2], 7;
@%p1 membar.cta;
@%p1 st.relaxed.cta.shared.u32 [%r2+2048], 1;
@!%p2 bra D;
P: {poll} setp.eq.u32 %p5, %r9, 0; @%p5 bra P;
{{}}
{load}.shared.u32 %r8, [%r2];
st.shared.u32 [%r7+512], %r8;
D:"""
    assert verdict(body.format("")) == (expected, {"race"} if expected == "findings" else set())
    assert verdict(body.format("fence.acq_rel.cta;")) == CLEAN


@pytest.mark.parametrize("operation", ["add.bf16x2", "add.f16x2", "mul.bf16x2", "fma.rn.f16x2"])
@pytest.mark.parametrize(("half", "kinds"), [("{%h3, _}", set()), ("{_, %h3}", {"uninitialised"})])
def test_the_unused_half_of_a_packed_register_may_be_unwritten(operation, half, kinds):
    third = ", %r9" * operation.startswith("fma")
    body = f""".reg .b16 %h<9>;
cvt.u16.u32 %h1, %r1;
mov.b32 %r9, {{%h1, %h2}};
{operation} %r10, %r9, %r9{third};
mov.b32 {half}, %r10;
cvt.u32.u16 %r11, %h3;
mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;
st.global.u32 [%rd3], %r11;"""
    assert verdict(body, 32) == ("findings" if kinds else "clean", kinds)


@pytest.mark.parametrize(("step", "is_race"), [("1", False), ("0x100000", True)])
def test_lanes_whose_sums_round_differently_are_a_note(step, is_race):
    body = f"""{SYNC}and.b32 %r8, %r1, 1; mul.lo.u32 %r8, %r8, {step};
add.u32 %r8, %r8, 0x3f800000;
st.shared.u32 [%r2], %r8;"""
    kernel = wf.ptx.load(HEAD + body + "\nret;\n}\n")["k"]
    run = kernel.launch(1, 32, [np.zeros(4, np.uint32)], checks="all")
    assert run.verdict == ("findings" if is_race else "clean")
    assert bool(run.notes) is not is_race
