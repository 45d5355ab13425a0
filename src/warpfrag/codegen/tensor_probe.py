"""A kernel around statements of tcgen05 that somebody wants to see at work: images in, statements, an image out.

Its parameters are the bytes of a tile of shared memory, an image of tensor memory, uint32[128, columns], and where the
image afterwards goes; 128 threads run it. The statements find

    %r8    the first column           %rd5   the address of the tile >> 4, to add to a descriptor
    %r6    the lanes of their warp    %v0 .. %v135, %r9 .. %r31, %rd6 .. %rd11, %p5   registers to use
    %r1    the number of the thread   %p4    true, where a single thread runs them
"""

from __future__ import annotations

UNIT = 2048  # bytes that 128 threads copy at a time
CHUNK = 32  # columns that are loaded and stored at a time

HEAD = """.version {version}
.target {target}
.address_size 64
.visible .entry probe(.param .u64 shared_image, .param .u64 tensor_image, .param .u64 out)
.reqntid 128
{{
    .reg .b32 %r<32>;
    .reg .b32 %v<136>;
    .reg .b64 %rd<12>;
    .reg .pred %p<6>;
    .shared .align 1024 .b8 tile[{bytes}];
    .shared .align 8 .b64 done;
    .shared .align 4 .b32 allocated;
    mov.u32 %r1, %tid.x;
    ld.param.u64 %rd1, [shared_image];
    ld.param.u64 %rd2, [tensor_image];
    ld.param.u64 %rd3, [out];
    mov.u32 %r2, %r1;
COPY:
    mul.wide.u32 %rd4, %r2, 16;
    add.u64 %rd4, %rd1, %rd4;
    ld.global.v4.b32 {{%v0, %v1, %v2, %v3}}, [%rd4];
    shl.b32 %r3, %r2, 4;
    mov.u32 %r4, tile;
    add.u32 %r3, %r3, %r4;
    st.shared.v4.b32 [%r3], {{%v0, %v1, %v2, %v3}};
    add.u32 %r2, %r2, 128;
    setp.lt.u32 %p1, %r2, {units};
    @%p1 bra COPY;
    setp.ge.u32 %p2, %r1, 32;
    setp.ne.u32 %p3, %r1, 0;
    @%p2 bra ALLOCATED;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [allocated], {columns};
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
ALLOCATED:
    @!%p3 mbarrier.init.shared::cta.b64 [done], 1;
    fence.proxy.async.shared::cta;
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    ld.shared.b32 %r8, [allocated];
    and.b32 %r6, %r1, 0xFFFFFFE0;
    shl.b32 %r6, %r6, 16;
    add.u32 %r6, %r6, %r8;
    mul.wide.u32 %rd4, %r1, {row};
    add.u64 %rd2, %rd2, %rd4;
    add.u64 %rd3, %rd3, %rd4;
"""
BODY = """    tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    mov.u32 %r5, tile;
    shr.u32 %r5, %r5, 4;
    cvt.u64.u32 %rd5, %r5;
{by_warps}
    tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    @%p3 bra ISSUED;
    setp.eq.u32 %p4, %r1, 0;
{by_thread}
    mov.u32 %r5, done;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r5];
ISSUED:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [done], 0;
    @!%p1 bra ISSUED;
    tcgen05.fence::after_thread_sync;
"""
TAIL = """    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    @%p2 bra FREED;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, {columns};
FREED:
    ret;
}}
"""


def whole(size: int) -> int:
    """The bytes of the image of a tile of so many."""
    return -(-size // UNIT) * UNIT


def vector(count: int, first: int = 0) -> str:
    """So many of the registers %v in braces."""
    return "{" + ", ".join(f"%v{first + at}" for at in range(count)) + "}"


def probe_module(
    by_thread: str = "",
    by_warps: str = "",
    *,
    columns: int = 64,
    size: int = UNIT,
    target: str = "sm_100a",
    version: str = "8.8",
) -> str:
    """The module: `by_warps` are statements for all threads, then `by_thread` for the first; `size` bytes of a tile."""
    stores, loads = [], []
    for first in range(0, columns, CHUNK):
        fours = [(vector(4, four), 4 * (first + four)) for four in range(0, CHUNK, 4)]
        stores += [f"    ld.global.v4.b32 {registers}, [%rd2+{place}];" for registers, place in fours]
        stores.append(f"    tcgen05.st.sync.aligned.32x32b.x{CHUNK}.b32 [%r6+{first}], {vector(CHUNK)};")
        loads.append(f"    tcgen05.ld.sync.aligned.32x32b.x{CHUNK}.b32 {vector(CHUNK)}, [%r6+{first}];")
        loads.append("    tcgen05.wait::ld.sync.aligned;")
        loads += [f"    st.global.v4.b32 [%rd3+{place}], {registers};" for registers, place in fours]
    facts = {"version": version, "target": target, "columns": columns, "row": 4 * columns}
    head = HEAD.format(**facts, bytes=whole(size), units=whole(size) // 16)
    body = BODY.format(by_warps=by_warps, by_thread=by_thread)
    return head + "\n".join([*stores, ""]) + body + "\n".join([*loads, ""]) + TAIL.format(**facts)
