"""Correct kernels, and mistakes that can be planted in them.

A kernel is the text of `KERNELS` with its marks filled in: `{name}` is an instruction that a mistake leaves out, or
another one in its place. `PLANTED` has a row for each mistake: kernel, mark, what stands there instead, the kind of the
finding, and the line of text at which it shows.
"""

import numpy as np

import warpfrag as wf

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in)
{
.reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<80>; .reg .b64 %rd<16>; .reg .f32 %f<16>;
.shared .align 128 .b8 sm[8192];
.shared .align 8 .b64 bar;
ld.param.u64 %rd1, [out];
ld.param.u64 %rd2, [in];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, sm;
shl.b32 %r4, %r1, 2;
add.u32 %r5, %r3, %r4;
mul.wide.u32 %rd3, %r1, 4;
add.u64 %rd4, %rd1, %rd3;
add.u64 %rd5, %rd2, %rd3;
setp.eq.u32 %p1, %r1, 0;
"""
TAIL = "\nst.global.u32 [%rd4], %r10;\nret;\n}\n"
LEFT = "xor.b32 %r6, %r1, 32;\nshl.b32 %r6, %r6, 2;\nadd.u32 %r6, %r3, %r6;\n"  # the place of a thread of another warp
NEAR = "xor.b32 %r6, %r1, 1;\nshl.b32 %r6, %r6, 2;\nadd.u32 %r6, %r3, %r6;\n"  # of the next lane
OPERANDS = """st.shared.u32 [%r5], 0;
st.shared.u32 [%r5+512], 0;
st.shared.u32 [%r5+1024], 0;
st.shared.u32 [%r5+1536], 0;
st.shared.u32 [%r5+2048], 0;
st.shared.u32 [%r5+3072], 0;
{proxy}
bar.sync 0;
shr.u32 %r20, %r3, 4;
and.b32 %r20, %r20, 16383;
cvt.u64.u32 %rd7, %r20;
{strides}
mov.f32 %f0, 0f00000000;
mov.f32 %f1, %f0;
mov.f32 %f2, %f0;
mov.f32 %f3, %f0;
add.u64 %rd8, %rd7, 128;
mov.u32 %r40, 0;
"""  # of a wgmma, all zero: descriptors in %rd7 and %rd8, accumulators in %f0 to %f3
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, "
KERNELS = {
    "tensor map": """st.shared.u32 [%r5], %r1;
{sync}
mov.u32 %r10, 0;
setp.ge.u32 %p2, %r1, 32;
@%p2 bra MADE;
bar.warp.sync -1;
add.u64 %rd6, %rd1, 512;
add.u32 %r6, %r3, 128;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd6], [%r6], 128;
MADE:""",
    "exchange": LEFT + "st.shared.u32 [%r5], %r1;\n{sync}\nld.shared.u32 %r10, [%r6];",
    "sum": LEFT
    + """st.shared.u32 [%r5], %r1;
{sync}
ld.shared.u32 %r10, [%r6];
ld.shared.u32 %r11, [%r5];
{again}
add.u32 %r10, %r10, %r11;
st.shared.u32 [%r5], %r10;""",
    "named": LEFT + "st.shared.u32 [%r5], %r1;\n{sync}\nld.shared.u32 %r10, [%r6];",
    "lanes": NEAR + "st.shared.u32 [%r5], %r1;\n{warp}\nld.shared.u32 %r10, [%r6];",
    "lanes loop": NEAR
    + """st.shared.u32 [%r5], %r1;
{warp}
ld.shared.u32 %r10, [%r6];
{second}
st.shared.u32 [%r5], %r10;""",
    "shuffle": NEAR + "st.shared.u32 [%r5], %r1;\n{warp}\nld.shared.u32 %r10, [%r6];",
    "histogram": """setp.lt.u32 %p2, %r1, 8;
@%p2 st.shared.u32 [%r5], 0;
bar.sync 0;
and.b32 %r7, %r1, 7;
shl.b32 %r7, %r7, 2;
add.u32 %r7, %r3, %r7;
{count}
bar.sync 0;
and.b32 %r8, %r1, 7;
shl.b32 %r8, %r8, 2;
add.u32 %r8, %r3, %r8;
ld.shared.u32 %r10, [%r8];""",
    "global histogram": """and.b32 %r7, %r1, 7;
mul.wide.u32 %rd6, %r7, 4;
add.u64 %rd6, %rd2, %rd6;
{count}
mov.u32 %r10, 0;""",
    "counter": "{count}\nmov.u32 %r10, 1;",
    "blocks": """setp.ne.u32 %p2, %r2, 0;
@%p2 bra READ;
@!%p1 bra READ;
st.global.u32 [%rd2], 7;
{release}
{flag}
READ:
setp.ne.u32 %p3, %r2, 1;
@%p3 bra DONE;
@!%p1 bra DONE;
{poll}
{acquire}
ld.global.u32 %r12, [%rd2];
DONE:
mov.u32 %r10, 0;""",
    "last block": """{store}
{fence}
bar.sync 0;
@%p1 atom.global.add.u32 %r12, [%rd2+512], 1;
{after}
bar.sync 0;
ld.global.u32 %r13, [%rd2];
mov.u32 %r10, 0;""",
    "sum of the last block": """setp.eq.u32 %p2, %r1, 33;
mul.wide.u32 %rd6, %r2, 4;
add.u64 %rd6, %rd2, %rd6;
@%p2 st.global.u32 [%rd6], 7;
{fence}
bar.sync 0;
@%p1 atom.global.add.u32 %r12, [%rd2+512], 1;
@%p1 st.shared.u32 [%r3], %r12;
bar.sync 0;
ld.shared.u32 %r12, [%r3];
mov.u32 %r10, 0;
setp.ne.u32 %p3, %r12, 1;
@%p3 bra DONE;
{after}
setp.lt.u32 %p4, %r1, 2;
@%p4 ld.volatile.global.u32 %r13, [%rd5];
DONE:""",
    "cp.async": LEFT
    + """cp.async.ca.shared.global [%r5], [%rd5], 4;
{commit}
{wait}
bar.sync 0;
ld.shared.u32 %r10, [%r6];""",
    "cp.async twice": """cp.async.ca.shared.global [%r5], [%rd5], 4;
cp.async.commit_group;
cp.async.ca.shared.global [%r5+4096], [%rd5], 4;
{commit}
{wait}
ld.shared.u32 %r10, [%r5+4096];""",
    "cp.async source": """cp.async.ca.shared.global [%r5], [%rd5], 4;
cp.async.commit_group;
{wait}
st.global.u32 [%rd5], 5;
cp.async.wait_all;
ld.shared.u32 %r10, [%r5];""",
    "bulk": """mov.u32 %r20, bar;
@%p1 mbarrier.init.shared.b64 [%r20], 1;
{fence}
{init}
@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r20], {count};
@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd2], 256, [%r20];
{wait}
ld.shared.u32 %r10, [%r5];""",
    "bulk store": """st.shared.u32 [%r5], %r1;
{proxy}
bar.sync 0;
@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r3], 256;
{commit}
{wait}
{behind}
mov.u32 %r10, 0;""",
    "bulk reduction": """st.shared.u32 [%r5], %r1;
{proxy}
bar.sync 0;
@%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd2], [%r3], 256;
{commit}
{wait}
mov.u32 %r10, 0;""",
    "wgmma": OPERANDS
    + "{start}\n"
    + WGMMA
    + """%rd7, %rd8, 1, 1, 1, 0, 0;
{close}
{end}
cvt.rzi.u32.f32 %r10, %f0;""",
    "wgmma registers": OPERANDS
    + "add.u32 %r40, %r40, 1;\n{start}\n"
    + WGMMA
    + """{%r40, %r40, %r40, %r40}, %rd8, 1, 1, 1, 0;
{close}
{end}
add.u32 %r40, %r40, 1;
cvt.rzi.u32.f32 %r10, %f1;""",
    "wgmma twice": OPERANDS
    + "{start}\n"
    + WGMMA
    + """%rd7, %rd8, 1, 1, 1, 0, 0;
{close}
{end}
add.f32 %f2, %f2, %f2;
{again}
"""
    + WGMMA
    + """%rd7, %rd8, 1, -1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
{last}
st.shared.u32 [%r5], 1;
cvt.rzi.u32.f32 %r10, %f3;""",
    "st.async": """mov.u32 %r20, bar;
@%p1 mbarrier.init.shared.b64 [%r20], 1;
{init}
@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r20], 256;
mapa.shared::cluster.u32 %r21, %r5, 0;
mapa.shared::cluster.u32 %r22, %r20, 0;
st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r21], %r1, [%r22];
{wait}
{proxy}
@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r3], 256;
@%p1 cp.async.bulk.commit_group;
@%p1 cp.async.bulk.wait_group 0;
mov.u32 %r10, 0;""",
    "reused by mbarrier": """mov.u32 %r20, bar;
@%p1 cp.async.ca.shared.global [%r20], [%rd2], 8;
@%p1 cp.async.commit_group;
{wait}
@%p1 mbarrier.init.shared.b64 [%r20], 1;
mov.u32 %r10, 0;""",
    "one word": "setp.lt.u32 %p2, %r1, 32;\n{store}\nmov.u32 %r10, 0;",
    "neighbours": """xor.b32 %r6, %r2, {block};
mad.lo.u32 %r6, %r6, 64, %r1;
mul.wide.u32 %rd6, %r6, 4;
add.u64 %rd6, %rd2, %rd6;
mad.lo.u32 %r7, %r2, 64, %r1;
mul.wide.u32 %rd7, %r7, 4;
add.u64 %rd7, %rd2, %rd7;
ld.global.u32 %r8, [%rd6];
ld.global.u32 %r9, [%rd7];
add.u32 %r9, %r8, %r9;
st.global.u32 [%rd7], %r9;
mov.u32 %r10, 0;""",
    "unwritten": LEFT + "{store}\nbar.sync 0;\nld.shared.u32 %r10, [%r6];",
    "unwritten register": "{store}\nadd.u32 %r10, %r30, 1;",
    "unwritten address": "{store}\nadd.u32 %r31, %r5, %r30;\nld.shared.u32 %r32, [%r31];\nmov.u32 %r10, 1;",
    "unwritten branch": "{store}\nsetp.eq.u32 %p4, %r30, 1;\nmov.u32 %r10, 1;\n@%p4 bra NEXT;\nmov.u32 %r10, 2;\nNEXT:",
    "masked": """mov.u32 %r10, 0;
@%p1 st.shared.u32 [%r3], 9;
ld.shared.u32 %r30, [%r5];
@%p1 mov.u32 %r10, %r30;""",
    "divergent": """setp.lt.u32 %p2, %r1, {count};
@%p2 bra A;
bar.sync 0;
bra B;
A:
bar.sync 0;
B:
mov.u32 %r10, 0;""",
    "late lanes": """mov.u32 %r8, 0;
@%p1 st.shared.u32 [%r3], 1;
bar.sync 0;
L:
ld.volatile.shared.u32 %r9, [%r3];
add.u32 %r8, %r8, %r9;
setp.lt.u32 %p2, %r8, %r4;
@%p2 bra L;
{leave}
bar.sync 0;
mov.u32 %r10, 0;""",
    "left": "setp.lt.u32 %p2, %r1, 32;\n{leave}\nbar.sync 0;\nmov.u32 %r10, 0;",
    "counts": "setp.lt.u32 %p2, %r1, 32;\n@%p2 bra A;\nbar.sync 1, 64;\nbra B;\nA:\n{sync}\nB:\nmov.u32 %r10, 0;",
    "phases": """mov.u32 %r20, bar;
@%p1 mbarrier.init.shared.b64 [%r20], {count};
bar.sync 0;
mbarrier.arrive.shared.b64 _, [%r20];
WAIT:
mbarrier.try_wait.parity.shared.b64 %p2, [%r20], 0;
@!%p2 bra WAIT;
mov.u32 %r10, 0;""",
}
WAIT = "W:\nmbarrier.try_wait.parity.shared.b64 %p2, [%r20], 0;\n@!%p2 bra W;"
POLL = "P:\nld.relaxed.gpu.global.u32 %r11, [%rd2+512];\nsetp.eq.u32 %p4, %r11, 0;\n@%p4 bra P;"
RIGHT = {
    "sync": "bar.sync 0;", "again": "bar.sync 0;", "warp": "bar.warp.sync -1;", "second": "bar.warp.sync -1;",
    "commit": "cp.async.commit_group;", "wait": "cp.async.wait_group 0;", "init": "bar.sync 0;",
    "release": "fence.acq_rel.gpu;", "acquire": "fence.acq_rel.gpu;", "poll": POLL,
    "flag": "st.relaxed.gpu.global.u32 [%rd2+512], 1;", "proxy": "fence.proxy.async.shared::cta;", "behind": "",
    "strides": "or.b64 %rd7, %rd7, 0x0000000800400000;",  # of A: 128 bytes along m, 1024 along k
    "fence": "membar.gl;", "after": "membar.gl;", "leave": "",
    "start": "wgmma.fence.sync.aligned;", "close": "wgmma.commit_group.sync.aligned;",
    "end": "wgmma.wait_group.sync.aligned 0;", "last": "wgmma.wait_group.sync.aligned 0;",
    "store": "st.shared.u32 [%r5], %r1;\nmov.u32 %r30, 0;",
}  # fmt: skip
OWN = {  # what is right in one kernel alone
    "named": {"sync": "bar.sync 3, 64;"},
    "histogram": {"count": "red.shared.add.u32 [%r7], 1;"},
    "global histogram": {"count": "red.global.add.u32 [%rd6], 1;"},
    "counter": {"count": "@%p1 red.global.add.u32 [%rd2], 1;"},
    "bulk": {"wait": WAIT, "count": "256", "fence": "fence.proxy.async.shared::cta;"},
    "st.async": {"wait": WAIT},
    "one word": {"store": "@%p1 st.global.u32 [%rd2], %r1;"},
    "neighbours": {"block": "0"},
    "bulk reduction": {"commit": "@%p1 cp.async.bulk.commit_group;", "wait": "@%p1 cp.async.bulk.wait_group 0;"},
    "bulk store": {"commit": "@%p1 cp.async.bulk.commit_group;", "wait": "@%p1 cp.async.bulk.wait_group 0;"},
    "wgmma twice": {"again": "wgmma.fence.sync.aligned;"},
    "last block": {"store": "@%p1 red.global.add.u32 [%rd2], 1;\n@!%p1 bra S;\nS:"},
    "divergent": {"count": "0"},
    "counts": {"sync": "bar.sync 1, 64;"},
    "phases": {"count": "64"},
    "unwritten register": {"store": "mov.u32 %r30, 5;"},
}
PLANTED = [
    ("tensor map", "sync", "", "race", "tensormap.cp_fenceproxy"),
    ("exchange", "sync", "", "race", "ld.shared.u32 %r10, [%r6]"),
    ("sum", "sync", "", "race", "ld.shared.u32 %r10, [%r6]"),
    ("sum", "again", "", "race", "st.shared.u32 [%r5], %r10"),
    ("named", "sync", "", "race", "ld.shared.u32 %r10, [%r6]"),
    ("exchange", "sync", "bar.warp.sync -1;", "race", "ld.shared.u32 %r10, [%r6]"),
    ("lanes", "warp", "", "lockstep", "ld.shared.u32 %r10, [%r6]"),
    ("lanes loop", "second", "", "lockstep", "st.shared.u32 [%r5], %r10"),
    ("shuffle", "warp", "shfl.sync.bfly.b32 %r12, %r1, 1, 31, -1;", "lockstep", "ld.shared.u32 %r10, [%r6]"),
    (
        "histogram",
        "count",
        "ld.shared.u32 %r9, [%r7];\nadd.u32 %r9, %r9, %r1;\nst.shared.u32 [%r7], %r9;",
        "race",
        "st.shared.u32 [%r7], %r9",
    ),
    (
        "global histogram",
        "count",
        "ld.global.u32 %r9, [%rd6];\nadd.u32 %r9, %r9, %r1;\nst.global.u32 [%rd6], %r9;",
        "race",
        "st.global.u32 [%rd6], %r9",
    ),
    ("one word", "store", "@%p2 st.global.u32 [%rd2], %r1;", "race", "@%p2 st.global.u32 [%rd2], %r1"),
    ("one word", "store", "@%p2 st.global.u32 [%rd2], %r4;", "race", "@%p2 st.global.u32 [%rd2], %r4"),
    ("one word", "store", "@%p2 st.global.u32 [%rd2], %r3;", None, ""),  # all lanes store the same
    ("neighbours", "block", "1", "race", "st.global.u32 [%rd7], %r9"),
    ("counter", "count", "@%p1 st.global.u32 [%rd2], %r2;", "race", "st.global.u32 [%rd2], %r2"),
    ("blocks", "release", "", "race", "ld.global.u32 %r12, [%rd2]"),
    ("blocks", "release", "membar.cta;", "race", "ld.global.u32 %r12, [%rd2]"),
    ("blocks", "acquire", "", "race", "ld.global.u32 %r12, [%rd2]"),
    ("sum of the last block", "fence", "", "race", "@%p4 ld.volatile"),
    ("sum of the last block", "fence", "membar.cta;", "race", "@%p4 ld.volatile"),
    ("sum of the last block", "fence", "fence.acq_rel.gpu;", "race", "@%p4 ld.volatile"),
    ("sum of the last block", "after", "", "race", "@%p4 ld.volatile"),
    ("sum of the last block", "after", "fence.acq_rel.gpu;", "race", "@%p4 ld.volatile"),
    ("cp.async", "wait", "", "async", "ld.shared.u32 %r10, [%r6]"),
    ("cp.async", "commit", "", "async", "ld.shared.u32 %r10, [%r6]"),
    ("cp.async twice", "wait", "cp.async.wait_group 1;", "async", "ld.shared.u32 %r10, [%r5+4096]"),
    ("cp.async twice", "commit", "", "async", "ld.shared.u32 %r10, [%r5+4096]"),
    ("cp.async source", "wait", "", "async", "st.global.u32 [%rd5], 5"),
    ("bulk", "wait", "", "async", "ld.shared.u32 %r10, [%r5]"),
    ("bulk", "init", "", "race", "mbarrier.try_wait"),
    ("bulk", "fence", "", "incomplete", ""),
    ("bulk", "fence", "fence.mbarrier_init.release.cluster;", None, ""),
    ("reused by mbarrier", "wait", "", "async", "mbarrier.init"),
    ("st.async", "proxy", "", "fence", "cp.async.bulk.global.shared::cta"),
    ("st.async", "wait", "", "async", "cp.async.bulk.global.shared::cta"),
    ("bulk store", "proxy", "", "fence", "cp.async.bulk.global.shared::cta"),
    ("bulk store", "behind", "bar.sync 0;\nst.shared.u32 [%r5], 1;", None, ""),
    ("bulk store", "wait", "bar.sync 0;\nst.shared.u32 [%r5], 1;", "async", "st.shared.u32 [%r5], 1"),
    ("bulk store", "commit", "", "async", "cp.async.bulk.global.shared::cta"),
    ("unwritten", "store", "", "uninitialised", "st.global.u32 [%rd4], %r10"),
    ("unwritten register", "store", "", "uninitialised", "st.global.u32 [%rd4], %r10"),
    ("unwritten address", "store", "", "uninitialised", "ld.shared.u32 %r32"),
    ("unwritten branch", "store", "", "uninitialised", "@%p4 bra NEXT"),
    ("divergent", "count", "16", "barrier", "bar.sync 0;"),
    ("late lanes", "leave", "@!%p1 bra M;\nbar.sync 0;\nbra N;\nM:\nbar.sync 0;\nN:", "barrier", "bar.sync 0;"),
    ("left", "leave", "@%p2 exit;", "barrier", "bar.sync 0;"),
    ("counts", "sync", "bar.sync 1, 96;", "barrier", "bar.sync 1, 96;"),
    ("phases", "count", "65", "deadlock", "mbarrier.try_wait"),
    ("bulk", "count", "512", "deadlock", "mbarrier.try_wait"),
    ("named", "sync", "bar.sync 3, 96;", "deadlock", "bar.sync 3"),
    ("bulk reduction", "proxy", "", "fence", "cp.reduce.async.bulk"),
    ("bulk reduction", "wait", "bar.sync 0;\nst.shared.u32 [%r5], 1;", "async", "st.shared.u32 [%r5], 1"),
    ("wgmma", "proxy", "", "fence", "wgmma.mma_async"),
    ("wgmma registers", "proxy", "", "fence", "wgmma.mma_async"),
    ("wgmma twice", "proxy", "", "fence", "wgmma.mma_async"),
    ("wgmma", "start", "", "fence", "wgmma.mma_async"),
    ("wgmma registers", "start", "", "fence", "wgmma.mma_async"),
    ("wgmma twice", "again", "", "fence", "%rd7, %rd8, 1, -1"),
    ("wgmma", "close", "", "async", "cvt.rzi.u32.f32 %r10, %f0"),
    ("wgmma registers", "close", "", "async", "cvt.rzi.u32.f32 %r10, %f1"),
    ("wgmma twice", "close", "", "async", "add.f32 %f2, %f2, %f2"),
    ("wgmma", "end", "", "async", "cvt.rzi.u32.f32 %r10, %f0"),
    ("wgmma", "end", "wgmma.wait_group.sync.aligned 1;", "async", "cvt.rzi.u32.f32 %r10, %f0"),
    ("wgmma registers", "end", "", "async", "add.u32 %r40, %r40, 1;"),
    ("wgmma twice", "end", "", "async", "add.f32 %f2, %f2, %f2"),
    ("wgmma twice", "last", "", "async", "st.shared.u32 [%r5], 1"),
    (
        "wgmma",
        "strides",
        "or.b64 %rd7, %rd7, 0x4000000800400000;",
        "descriptor",
        "wgmma.mma_async",
    ),
    ("wgmma twice", "strides", "or.b64 %rd7, %rd7, 0x4000000800400000;", "descriptor", "wgmma.mma_async"),
    *(
        (
            name,
            "strides",
            "or.b64 %rd7, %rd7, 0x0000000800404000;",
            "descriptor",
            "wgmma.mma_async",
        )
        for name in ("wgmma", "wgmma registers", "wgmma twice")
    ),
    *(
        (name, mark, f"{right}\nld.global.u32 %r12, [%rd5+{offset}];", kind, f"ld.global.u32 %r12, [%rd5+{offset}]")
        for name, mark, right in (
            ("exchange", "sync", "bar.sync 0;"),
            ("lanes", "warp", "bar.warp.sync -1;"),
            ("bulk", "init", "bar.sync 0;"),
        )
        for offset, kind in ((1024, "bounds"), (2, "misaligned"))
    ),
]


def text_of(name, mark="", instead=""):
    words = RIGHT | OWN.get(name, {}) | ({mark: instead} if mark else {})
    body = KERNELS[name]
    for key, value in words.items():
        body = body.replace(f"{{{key}}}", value)
    return HEAD + body + TAIL


def run_checks(text, name, **options):
    grid = 2 if name in {"blocks", "counter", "neighbours", "sum of the last block"} else 1
    out, data = np.zeros(256, np.uint32), np.zeros(256, np.uint32)
    block = 128 if name.startswith("wgmma") else 64
    return wf.ptx.load(text)["k"].launch(grid, block, [out, data], **{"checks": "all"} | options)


BRANCHES = """.shared .align 4 .b32 words[32];
mov.u32 %r5, words; shl.b32 %r6, %r1, 2; add.u32 %r5, %r5, %r6; sub.u32 %r6, 124, %r6; mov.u32 %r7, words;
add.u32 %r6, %r7, %r6; setp.lt.u32 %p1, %r1, 16;
@%p1 bra LOW;
st.shared.u32 [%r5], %r1; {high} ld.shared.u32 %r8, [%r6]; st.global.u32 [%rd3], %r8; ret;
LOW: st.shared.u32 [%r5], %r4; {low} ld.shared.u32 %r8, [%r6]; st.global.u32 [%rd3], %r8;"""
"""The body of a kernel whose branches exchange words of shared memory, each after a bar.warp.sync of its own."""
