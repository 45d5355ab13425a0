"""PTX of small kernels around tensor copies, transaction barriers and clusters, one entry each."""

# ruff: noqa: E501 (lines of PTX)

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
"""
REGS = """  .reg .pred %p<8>; .reg .b32 %r<64>; .reg .b64 %rd<48>; .reg .b32 %c<8>;
"""
WAIT = """{label}:
  mbarrier.try_wait.parity.shared::cta.b64 %p7, [{bar}], {parity};
  @!%p7 bra {label};
"""
FILL = """  mov.u32 %r10, smem; mov.u32 %r11, %tid.x; shl.b32 %r12, %r11, 2; mov.u32 %r14, 0xA5A5A5A5;
FILL: setp.ge.u32 %p1, %r12, %r9; @%p1 bra FILLED;
  add.u32 %r13, %r10, %r12; st.shared.u32 [%r13], %r14; add.u32 %r12, %r12, 512; bra FILL;
FILLED: fence.proxy.async.shared::cta; bar.sync 0;
"""
DUMP = """  bar.sync 0; mov.u32 %r11, %tid.x; shl.b32 %r12, %r11, 2; mov.u32 %r15, %ctaid.x; mul.wide.u32 %rd10, %r15, %r9;
  add.s64 %rd11, %rd2, %rd10;
DUMP: setp.ge.u32 %p1, %r12, %r9; @%p1 bra DUMPED;
  add.u32 %r13, %r10, %r12; ld.shared.u32 %r14, [%r13]; cvt.u64.u32 %rd12, %r12; add.s64 %rd13, %rd11, %rd12;
  st.global.u32 [%rd13], %r14; add.u32 %r12, %r12, 512; bra DUMP;
DUMPED:
"""


def coords(rank, base="%rd1"):
    text = f"  mov.u32 %r1, %ctaid.x; mul.lo.u32 %r1, %r1, {4 * rank}; cvt.u64.u32 %rd20, %r1; add.s64 %rd20, %rd20, {base};\n"
    return text + "".join(f"  ld.global.u32 %c{i}, [%rd20+{4 * i}];\n" for i in range(rank))


def braces(rank):
    return "{" + ", ".join(f"%c{i}" for i in range(rank)) + "}"


def load(name, rank, mode="tile", space="shared::cluster", by_pointer=False):
    """map, coords, out, bytes, dump, offset of the box, im2col offsets (packed 16 bits each, up to 3)."""
    offs = ""
    more = ""
    if mode == "im2col":
        items = ", ".join(f"%h{i}" for i in range(rank - 2))
        more = "  .reg .b16 %h<4>; ld.param.u64 %rd7, [offs];\n" + "".join(
            f"  shr.u64 %rd8, %rd7, {16 * i}; cvt.u16.u64 %h{i}, %rd8;\n" for i in range(rank - 2)
        )
        offs = ", {" + items + "}"
    param = ".param .u64 m" if by_pointer else ".param .align 64 .b8 m[128]"
    getmap = "  ld.param.u64 %rd4, [m];\n" if by_pointer else "  mov.b64 %rd3, m; cvta.param.u64 %rd4, %rd3;\n"
    return f""".visible .entry {name}({param}, .param .u64 coords, .param .u64 out, .param .u32 bytes, .param .u32 dump, .param .u32 offset, .param .u64 offs)
{{
{REGS}  .shared .align 8 .b64 bar;
  ld.param.u64 %rd1, [coords]; ld.param.u64 %rd2, [out]; ld.param.u32 %r8, [bytes]; ld.param.u32 %r9, [dump]; ld.param.u32 %r7, [offset];
{getmap}{more}{FILL}{coords(rank)}  setp.eq.u32 %p0, %r11, 0;
  @%p0 mbarrier.init.shared::cta.b64 [bar], 1;
  @%p0 fence.mbarrier_init.release.cluster;
  @%p0 fence.proxy.async.shared::cta;
  bar.sync 0;
  add.u32 %r6, %r10, %r7; mov.u32 %r5, bar;
  @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %r8;
  @%p0 cp.async.bulk.tensor.{rank}d.{space}.global.{mode}.mbarrier::complete_tx::bytes [%r6], [%rd4, {braces(rank)}], [%r5]{offs};
{WAIT.format(label="WAIT", bar="bar", parity=0)}{DUMP}  ret;
}}
"""


def store(name, rank, op="", mode="tile"):
    """map, coords, in, bytes per block, offset."""
    head = "cp.reduce.async.bulk.tensor" if op else "cp.async.bulk.tensor"
    mid = f".{op}" if op else ""
    return f""".visible .entry {name}(.param .align 64 .b8 m[128], .param .u64 coords, .param .u64 in, .param .u32 bytes, .param .u32 offset)
{{
{REGS}  ld.param.u64 %rd1, [coords]; ld.param.u64 %rd2, [in]; ld.param.u32 %r9, [bytes]; ld.param.u32 %r7, [offset];
  mov.b64 %rd3, m; cvta.param.u64 %rd4, %rd3;
  mov.u32 %r10, smem; add.u32 %r10, %r10, %r7; mov.u32 %r11, %tid.x; shl.b32 %r12, %r11, 2; mov.u32 %r15, %ctaid.x; mul.wide.u32 %rd10, %r15, %r9;
  add.s64 %rd11, %rd2, %rd10;
COPY: setp.ge.u32 %p1, %r12, %r9; @%p1 bra COPIED;
  cvt.u64.u32 %rd12, %r12; add.s64 %rd13, %rd11, %rd12; ld.global.u32 %r14, [%rd13]; add.u32 %r13, %r10, %r12; st.shared.u32 [%r13], %r14;
  add.u32 %r12, %r12, 512; bra COPY;
COPIED: fence.proxy.async.shared::cta; bar.sync 0;
{coords(rank)}  setp.ne.u32 %p0, %r11, 0; @%p0 bra DONE;
  {head}.{rank}d.global.shared::cta{mid}.{mode}.bulk_group [%rd4, {braces(rank)}], [%r10];
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
DONE: ret;
}}
"""


def multicast(name, rank=2):
    """map, coords, out, bytes, masks, expected: block r of a cluster loads a box to smem + r * bytes of the blocks of its mask."""
    return f""".visible .entry {name}(.param .align 64 .b8 m[128], .param .u64 coords, .param .u64 out, .param .u32 bytes, .param .u32 dump, .param .u64 masks, .param .u64 expected)
{{
{REGS}  .reg .b16 %h<2>; .shared .align 8 .b64 bar;
  ld.param.u64 %rd1, [coords]; ld.param.u64 %rd2, [out]; ld.param.u32 %r8, [bytes]; ld.param.u32 %r9, [dump];
  ld.param.u64 %rd5, [masks]; ld.param.u64 %rd6, [expected];
  mov.b64 %rd3, m; cvta.param.u64 %rd4, %rd3;
{FILL}{coords(rank)}  setp.eq.u32 %p0, %r11, 0;
  @%p0 mbarrier.init.shared::cta.b64 [bar], 1;
  @%p0 fence.mbarrier_init.release.cluster;
  mov.u32 %r20, %cluster_ctarank; mul.wide.u32 %rd21, %r20, 4; add.s64 %rd22, %rd5, %rd21; ld.global.u32 %r21, [%rd22]; cvt.u16.u32 %h0, %r21;
  add.s64 %rd22, %rd6, %rd21; ld.global.u32 %r22, [%rd22];
  barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
  mad.lo.u32 %r6, %r20, %r8, %r10; mov.u32 %r5, bar;
  @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %r22;
  setp.ne.and.u32 %p2, %r21, 0, %p0;
  @%p2 cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%r6], [%rd4, {braces(rank)}], [%r5], %h0;
{WAIT.format(label="WAIT", bar="bar", parity=0)}{DUMP}  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  ret;
}}
"""


def bulk_multicast(name):
    """src, out, bytes, dump, masks, expected."""
    return f""".visible .entry {name}(.param .u64 src, .param .u64 out, .param .u32 bytes, .param .u32 dump, .param .u64 masks, .param .u64 expected)
{{
{REGS}  .reg .b16 %h<2>; .shared .align 8 .b64 bar;
  ld.param.u64 %rd1, [src]; ld.param.u64 %rd2, [out]; ld.param.u32 %r8, [bytes]; ld.param.u32 %r9, [dump];
  ld.param.u64 %rd5, [masks]; ld.param.u64 %rd6, [expected];
{FILL}  setp.eq.u32 %p0, %r11, 0;
  @%p0 mbarrier.init.shared::cta.b64 [bar], 1;
  @%p0 fence.mbarrier_init.release.cluster;
  mov.u32 %r20, %cluster_ctarank; mul.wide.u32 %rd21, %r20, 4; add.s64 %rd22, %rd5, %rd21; ld.global.u32 %r21, [%rd22]; cvt.u16.u32 %h0, %r21;
  add.s64 %rd22, %rd6, %rd21; ld.global.u32 %r22, [%rd22];
  mov.u32 %r23, %ctaid.x; mul.wide.u32 %rd24, %r23, %r8; add.s64 %rd24, %rd24, %rd1;
  barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
  mad.lo.u32 %r6, %r20, %r8, %r10; mov.u32 %r5, bar;
  @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %r22;
  setp.ne.and.u32 %p2, %r21, 0, %p0;
  @%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r6], [%rd24], %r8, [%r5], %h0;
{WAIT.format(label="WAIT", bar="bar", parity=0)}{DUMP}  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  ret;
}}
"""


def registers(name):
    """out: 16 words for each block; the values of the cluster registers, and ranks of mapped addresses."""
    names = [
        "clusterid.x",
        "clusterid.y",
        "clusterid.z",
        "nclusterid.x",
        "nclusterid.y",
        "nclusterid.z",
        "cluster_ctaid.x",
        "cluster_ctaid.y",
        "cluster_ctaid.z",
        "cluster_nctaid.x",
        "cluster_nctaid.y",
        "cluster_nctaid.z",
        "cluster_ctarank",
        "cluster_nctarank",
    ]
    body = "".join(f"  mov.u32 %r2, %{item}; st.global.u32 [%rd2+{4 * i}], %r2;\n" for i, item in enumerate(names))
    return f""".visible .entry {name}(.param .u64 out)
{{
{REGS}  .shared .align 4 .b32 word;
  ld.param.u64 %rd2, [out];
  mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ctaid.y; mov.u32 %r5, %ctaid.z; mov.u32 %r6, %nctaid.x; mov.u32 %r7, %nctaid.y;
  mad.lo.u32 %r8, %r5, %r7, %r4; mad.lo.u32 %r8, %r8, %r6, %r3; mul.wide.u32 %rd3, %r8, 64; add.s64 %rd2, %rd2, %rd3;
{body}  .reg .pred %q; mov.pred %q, %is_explicit_cluster; selp.u32 %r9, 1, 0, %q; st.global.u32 [%rd2+56], %r9;
  mov.u32 %r10, %cluster_ctarank; mov.u32 %r11, %cluster_nctarank; add.u32 %r12, %r10, 1; rem.u32 %r12, %r12, %r11;
  mov.u32 %r13, word; mapa.shared::cluster.u32 %r14, %r13, %r12; getctarank.shared::cluster.u32 %r15, %r14;
  getctarank.shared::cluster.u32 %r16, %r13;
  mad.lo.u32 %r17, %r15, 256, %r16; st.global.u32 [%rd2+60], %r17;
  ret;
}}
"""


def distributed(name):
    """in, out: words of the next block by ld.shared::cluster, of the one after by a generic ld; a sum by remote atomics."""
    return f""".visible .entry {name}(.param .u64 in, .param .u64 out)
{{
{REGS}  .shared .align 16 .b8 words[256]; .shared .align 4 .b32 total; .shared .align 4 .b32 last;
  ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %cluster_ctarank; mov.u32 %r4, %cluster_nctarank;
  mad.lo.u32 %r5, %r2, 64, %r1; mul.wide.u32 %rd3, %r5, 4; add.s64 %rd4, %rd1, %rd3; ld.global.u32 %r6, [%rd4];
  mov.u32 %r7, words; shl.b32 %r8, %r1, 2; add.u32 %r9, %r7, %r8; st.shared.u32 [%r9], %r6;
  setp.eq.u32 %p0, %r1, 0; mov.u32 %r10, 0; @%p0 st.shared.u32 [total], %r10; @%p0 st.shared.u32 [last], %r10;
  barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
  add.u32 %r11, %r3, 1; rem.u32 %r11, %r11, %r4; mapa.shared::cluster.u32 %r12, %r9, %r11; ld.shared::cluster.u32 %r13, [%r12];
  add.u32 %r14, %r3, 2; rem.u32 %r14, %r14, %r4; cvt.u64.u32 %rd5, %r9; cvta.shared.u64 %rd6, %rd5; mapa.u64 %rd7, %rd6, %r14; ld.u32 %r15, [%rd7];
  mov.u32 %r16, total; mapa.shared::cluster.u32 %r17, %r16, 0; red.shared::cluster.add.u32 [%r17], %r6;
  mov.u32 %r18, last; mapa.shared::cluster.u32 %r19, %r18, %r11; atom.shared::cluster.max.u32 %r20, [%r19], %r6;
  xor.b32 %r21, %r13, %r15;
  barrier.cluster.arrive; barrier.cluster.wait;
  ld.shared.u32 %r22, [total]; ld.shared.u32 %r23, [last]; add.u32 %r21, %r21, %r22; xor.b32 %r21, %r21, %r23;
  add.s64 %rd8, %rd2, %rd3; st.global.u32 [%rd8], %r21;
  barrier.cluster.arrive.relaxed; barrier.cluster.wait;
  ret;
}}
"""


def remote(name, kind="st"):
    """in, out: every thread sends its word to the next block by st.async or red.async, v2 too; that waits for the bytes."""
    op = "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r12], %r6, [%r13];"
    if kind != "st":
        op = f"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{kind} [%r12], %r6, [%r13];"
    own = "shl.b32 %r8, %r1, 2;" if kind == "st" else "and.b32 %r8, %r1, 7; shl.b32 %r8, %r8, 2;"
    return f""".visible .entry {name}(.param .u64 in, .param .u64 out)
{{
{REGS}  .shared .align 16 .b8 words[256]; .shared .align 8 .b64 bar;
  ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %cluster_ctarank; mov.u32 %r4, %cluster_nctarank;
  mad.lo.u32 %r5, %r2, 64, %r1; mul.wide.u32 %rd3, %r5, 4; add.s64 %rd4, %rd1, %rd3; ld.global.u32 %r6, [%rd4];
  mov.u32 %r7, words; {own} add.u32 %r9, %r7, %r8; shl.b32 %r30, %r1, 2; add.u32 %r30, %r30, %r7; mov.u32 %r31, 0x1234567; st.shared.u32 [%r30], %r31; setp.eq.u32 %p0, %r1, 0; mov.u32 %r10, bar;
  @%p0 mbarrier.init.shared::cta.b64 [%r10], 1; @%p0 fence.mbarrier_init.release.cluster;
  @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 256;
  barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
  add.u32 %r11, %r3, 1; rem.u32 %r11, %r11, %r4; mapa.shared::cluster.u32 %r12, %r9, %r11; mapa.shared::cluster.u32 %r13, %r10, %r11;
  {op}
{WAIT.format(label="WAIT", bar="%r10", parity=0)}  ld.shared.u32 %r14, [%r30]; add.s64 %rd8, %rd2, %rd3; st.global.u32 [%rd8], %r14;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  ret;
}}
"""


def arrivals(name):
    """out: remote arrivals, drops, states and pending counts of an mbarrier; 16 words for each block."""
    return f""".visible .entry {name}(.param .u64 out)
{{
{REGS}  .shared .align 8 .b64 bar; .shared .align 8 .b64 own;
  ld.param.u64 %rd2, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd3, %r2, 64; add.s64 %rd2, %rd2, %rd3;
  mov.u32 %r3, %cluster_ctarank; mov.u32 %r4, %cluster_nctarank; setp.eq.u32 %p0, %r1, 0; mov.u32 %r10, bar; mov.u32 %r5, own;
  @!%p0 bra READY;
  mbarrier.init.shared::cta.b64 [%r10], %r4; mbarrier.init.shared::cta.b64 [%r5], 5; fence.mbarrier_init.release.cluster;
READY:
  barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
  @!%p0 bra SENT;
  mov.u32 %r6, 0;
SEND: mapa.shared::cluster.u32 %r7, %r10, %r6; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];
  add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, %r4; @%p1 bra SEND;
SENT:
{WAIT.format(label="WAIT", bar="%r10", parity=0)}  @!%p0 bra DONE;
  mbarrier.arrive.shared::cta.b64 %rd10, [%r5]; mbarrier.pending_count.b64 %r20, %rd10; st.global.u32 [%rd2], %r20;
  mbarrier.arrive.shared::cta.b64 %rd11, [%r5], 2; mbarrier.pending_count.b64 %r21, %rd11; st.global.u32 [%rd2+4], %r21;
  mbarrier.test_wait.shared::cta.b64 %p2, [%r5], %rd11; selp.u32 %r22, 1, 0, %p2; st.global.u32 [%rd2+8], %r22;
  mbarrier.arrive_drop.shared::cta.b64 %rd12, [%r5]; mbarrier.pending_count.b64 %r23, %rd12; st.global.u32 [%rd2+12], %r23;
  mbarrier.arrive.shared::cta.b64 %rd14, [%r5]; mbarrier.pending_count.b64 %r24, %rd14; st.global.u32 [%rd2+16], %r24;
  mbarrier.test_wait.shared::cta.b64 %p3, [%r5], %rd14; selp.u32 %r25, 1, 0, %p3; st.global.u32 [%rd2+20], %r25;
  mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r5], 1; selp.u32 %r25, 1, 0, %p3; st.global.u32 [%rd2+24], %r25;
  mbarrier.arrive.shared::cta.b64 %rd15, [%r5], 4; mbarrier.pending_count.b64 %r26, %rd15; st.global.u32 [%rd2+28], %r26;
  mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r5], 1; selp.u32 %r27, 1, 0, %p3; st.global.u32 [%rd2+32], %r27;
  mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r5], 48; mbarrier.arrive.shared::cta.b64 %rd16, [%r5], 4;
  mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r5], 0; selp.u32 %r28, 1, 0, %p3; st.global.u32 [%rd2+36], %r28;
  mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r5], 48;
  mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r5], 0; selp.u32 %r29, 1, 0, %p3; st.global.u32 [%rd2+40], %r29;
  mbarrier.inval.shared::cta.b64 [%r5];
DONE:
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  ret;
}}
"""


def bulk_remote(name, op=""):
    """in, out: 256 bytes of every block to the next, by a copy or a reduction."""
    head = "cp.reduce.async.bulk" if op else "cp.async.bulk"
    return f""".visible .entry {name}(.param .u64 in, .param .u64 out)
{{
{REGS}  .shared .align 16 .b8 words[256]; .shared .align 16 .b8 came[256]; .shared .align 8 .b64 bar;
  ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %cluster_ctarank; mov.u32 %r4, %cluster_nctarank;
  mad.lo.u32 %r5, %r2, 64, %r1; mul.wide.u32 %rd3, %r5, 4; add.s64 %rd4, %rd1, %rd3; ld.global.u32 %r6, [%rd4];
  mov.u32 %r7, words; shl.b32 %r8, %r1, 2; add.u32 %r9, %r7, %r8; st.shared.u32 [%r9], %r6; mov.u32 %r15, came; add.u32 %r16, %r15, %r8;
  mad.lo.u32 %r17, %r1, 77777777, 12345; st.shared.u32 [%r16], %r17;
  setp.eq.u32 %p0, %r1, 0; mov.u32 %r10, bar;
  @%p0 mbarrier.init.shared::cta.b64 [%r10], 1; @%p0 fence.mbarrier_init.release.cluster;
  @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 256;
  fence.proxy.async; barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
  add.u32 %r11, %r3, 1; rem.u32 %r11, %r11, %r4; mapa.shared::cluster.u32 %r12, %r15, %r11; mapa.shared::cluster.u32 %r13, %r10, %r11;
  @%p0 {head}.shared::cluster.shared::cta.mbarrier::complete_tx::bytes{op} [%r12], [%r7], 256, [%r13];
{WAIT.format(label="WAIT", bar="%r10", parity=0)}  ld.shared.u32 %r14, [%r16]; add.s64 %rd8, %rd2, %rd3; st.global.u32 [%rd8], %r14;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  ret;
}}
"""


def bulk_reduce(name, op):
    """in, out, bytes: shared memory filled from in, then reduced into out."""
    return f""".visible .entry {name}(.param .u64 in, .param .u64 out, .param .u32 bytes)
{{
{REGS}  ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in]; ld.param.u32 %r9, [bytes];
  mov.u32 %r10, smem; mov.u32 %r11, %tid.x; shl.b32 %r12, %r11, 2; mov.u32 %r15, %ctaid.x; mul.wide.u32 %rd10, %r15, %r9;
  add.s64 %rd11, %rd2, %rd10; add.s64 %rd14, %rd1, %rd10;
COPY: setp.ge.u32 %p1, %r12, %r9; @%p1 bra COPIED;
  cvt.u64.u32 %rd12, %r12; add.s64 %rd13, %rd11, %rd12; ld.global.u32 %r14, [%rd13]; add.u32 %r13, %r10, %r12; st.shared.u32 [%r13], %r14;
  add.u32 %r12, %r12, 512; bra COPY;
COPIED: fence.proxy.async.shared::cta; bar.sync 0; setp.ne.u32 %p0, %r11, 0; @%p0 bra DONE;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.{op} [%rd14], [%r10], %r9;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
DONE: ret;
}}
"""


def made(name):
    """A map of rank 2 made on the device, from zeros, then used: tensor, scratch (128 bytes each block), coords, out, bytes, dump, dims and box."""
    return f""".visible .entry {name}(.param .u64 tensor, .param .u64 scratch, .param .u64 coords, .param .u64 out, .param .u32 bytes, .param .u32 dump,
  .param .u32 d0, .param .u32 d1, .param .u64 s0, .param .u32 b0, .param .u32 b1)
{{
{REGS}  .shared .align 8 .b64 bar; .shared .align 128 .b8 map[128];
  ld.param.u64 %rd1, [coords]; ld.param.u64 %rd2, [out]; ld.param.u32 %r8, [bytes]; ld.param.u32 %r9, [dump];
  ld.param.u64 %rd30, [tensor]; ld.param.u64 %rd31, [scratch]; ld.param.u32 %r30, [d0]; ld.param.u32 %r31, [d1]; ld.param.u64 %rd32, [s0]; ld.param.u32 %r32, [b0]; ld.param.u32 %r33, [b1];
{FILL}{coords(2)}  mov.u32 %r40, map; mov.u32 %r41, 0; setp.lt.u32 %p3, %r11, 32; shl.b32 %r42, %r11, 2; add.u32 %r43, %r42, %r40;
  @%p3 st.shared.u32 [%r43], %r41;
  mov.u32 %r44, %ctaid.x; mul.wide.u32 %rd33, %r44, 128; add.s64 %rd33, %rd33, %rd31;
  setp.eq.u32 %p0, %r11, 0;
  bar.sync 0;
  @!%p0 bra MADE;
  tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r40], %rd30;
  tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r40], 1;
  tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r40], 0, %r32;
  tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r40], 1, %r33;
  tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r40], 0, %r30;
  tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r40], 1, %r31;
  tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r40], 0, %rd32;
  tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r40], 0, 1;
  tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r40], 1, 1;
  tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r40], 1;
  tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%r40], 0;
  tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r40], 3;
  tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%r40], 0;
MADE:
  bar.sync 0;
  @!%p3 bra PUT;
  bar.warp.sync 0xffffffff;
  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd33], [%r40], 128;
PUT:
  bar.sync 0;
  @%p0 mbarrier.init.shared::cta.b64 [bar], 1;
  @%p0 fence.mbarrier_init.release.cluster;
  bar.sync 0;
  mov.u32 %r5, bar;
  @%p0 fence.proxy.tensormap::generic.acquire.gpu [%rd33], 128;
  @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %r8;
  @%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r10], [%rd33, {braces(2)}], [%r5];
{WAIT.format(label="WAIT", bar="bar", parity=0)}{DUMP}  ret;
}}
"""


REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
BULK_REDUCTIONS = (
    "add.u32",
    "add.s32",
    "add.u64",
    "add.f32",
    "add.f64",
    "add.noftz.f16",
    "add.noftz.bf16",
    "min.u32",
    "min.s32",
    "min.u64",
    "min.s64",
    "max.u32",
    "max.s32",
    "max.u64",
    "max.s64",
    "min.f16",
    "max.f16",
    "min.bf16",
    "max.bf16",
    "inc.u32",
    "dec.u32",
    "and.b32",
    "or.b32",
    "xor.b32",
    "and.b64",
    "or.b64",
    "xor.b64",
)


def module():
    parts = [HEAD]
    parts += [load(f"load{rank}", rank) for rank in range(1, 6)]
    parts += [load("load2_cta", 2, space="shared::cta"), load("load2_pointer", 2, by_pointer=True)]
    parts += [store(f"store{rank}", rank) for rank in range(1, 6)]
    parts += [store(f"reduce2_{op}", 2, op) for op in REDUCTIONS]
    parts += [store(f"reduce{rank}_add", rank, "add") for rank in (1, 3, 4, 5)]
    parts += [load(f"im2col{rank}", rank, "im2col") for rank in (3, 4, 5)]
    parts += [store(f"put_im2col{rank}", rank, mode="im2col_no_offs") for rank in (3, 4, 5)]
    parts += [multicast("multicast2"), bulk_multicast("bulk_multicast"), registers("registers")]
    parts += [
        distributed("distributed"),
        remote("st_async"),
        remote("red_async_add", "add.u32"),
        remote("red_async_min", "min.s32"),
    ]
    parts += [remote("red_async_xor", "xor.b32"), arrivals("arrivals")]
    parts += [
        bulk_remote("bulk_remote"),
        bulk_remote("bulk_remote_add", ".add.u32"),
        bulk_remote("bulk_remote_min", ".min.s32"),
    ]
    parts += [bulk_remote("bulk_remote_xor", ".xor.b32"), bulk_remote("bulk_remote_u64", ".add.u64")]
    parts += [bulk_reduce(f"bulk_{op.replace('.', '_')}", op) for op in BULK_REDUCTIONS]
    parts += [made("made2")]
    return "\n".join(parts)
