"""`exact`: planted cases for every reason, and machine code that is exact under other schedules and values."""

import random

import numpy as np
import pytest

import warpfrag as wf
from tools.fuzz.emulation import data_of
from tools.fuzz.generate import generate
from tools.fuzz.record import arch_of
from warpfrag.machine.interpreter.device_memory import DeviceMemory
from warpfrag.machine.interpreter.warp_state import WarpState
from warpfrag.machine.jit import c_functions
from warpfrag.sass import exactness
from warpfrag.sass.sass_instruction import AddressOperand, RegisterOperand, SassInstruction
from warpfrag.sass.sass_module import SassModule

pytestmark = [pytest.mark.one_engine, pytest.mark.usefixtures("every_spelling_compared")]
HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
DECLARED = """
    .reg .b32 %r<20>; .reg .b64 %d<12>; .reg .pred %p<4>; .reg .f32 %f<12>; .shared .align 16 .b8 sm[1024];
    ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
    mad.lo.u32 %r3, %r1, %r2, %r0; mul.wide.u32 %d1, %r3, 4; add.u64 %d2, %d0, %d1; mov.u32 %r4, sm;
    shl.b32 %r5, %r0, 2; add.u32 %r6, %r4, %r5; cvt.rn.f32.u32 %f0, %r3;
"""


def launch(body, grid=2, block=64, **options):
    kernel = wf.ptx.load(f"{HEAD}.visible .entry k(.param .u64 out) {{{DECLARED}{body} ret; }}")["k"]
    out = np.zeros(1024, np.uint32)
    return kernel.launch(grid, block, [out], **options), out


FLAG = "setp.ne.u32 %p0, %r0, 0; setp.ne.u32 %p1, %r1, 0; mov.u32 %r7, 1; mov.u32 %r9, 0; @%p0 bra DONE;"
WAITED = "ld.volatile.global.u32 %r8, [%d0+2048]; setp.lt.u32 %p2, %r8,"
PARTS = f"""setp.ne.u32 %p1, %r1, 0; and.b32 %r7, %r0, 31; setp.ne.u32 %p0, %r7, 0; @%p0 bra DONE; @%p1 bra WAIT;
    st.global.u32 [%d2], %r3; membar.gl; red.global.add.u32 [%d0+2048], 1; bra DONE;
    WAIT: {WAITED} COUNT; @%p2 bra WAIT; membar.gl; ld.global.u32 %r9, [%d0+128]; st.global.u32 [%d2], %r9; DONE:"""
REDUCED = """st.shared.u32 [%r6], %r3; fence.proxy.async; bar.sync 0; setp.ne.u32 %p0, %r0, 0; setp.ne.u32 %p1, %r1, 0;
    @%p0 bra DONE; COPY cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; DONE:"""
COPY = "cp.reduce.async.bulk.global.shared::cta.bulk_group"
WAITED_FOR = "W0: mbarrier.try_wait.parity.shared.b64 %p1, [%r4], 0; @!%p1 bra W0;"
PHASES = """setp.ne.u32 %p0, %r0, 0; @!%p0 mbarrier.init.shared.b64 [%r4], 2; bar.sync 0; and.b32 %r7, %r0, 31;
    setp.ne.u32 %p0, %r7, 0; @%p0 exit; st.shared.u32 [%r6+64], %r3; mbarrier.arrive.shared.b64 %d6, [%r4]; {}
    mbarrier.arrive.shared.b64 %d6, [%r4]; W1: mbarrier.try_wait.parity.shared.b64 %p1, [%r4], 1; @!%p1 bra W1;
    xor.b32 %r7, %r5, 128; add.u32 %r7, %r7, %r4; ld.shared.u32 %r8, [%r7+64]; st.global.u32 [%d2], %r8;"""
"""The first lanes of two warps arrive twice at an mbarrier for two arrivals."""
BYTES = """setp.ne.u32 %p0, %r0, 0; mov.u32 %r9, 1; @%p0 bra W0; mbarrier.init.shared.b64 [%r4+512], 1;
    fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 %d6, [%r4+512], {};
    add.u32 %r8, %r4, 512;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%d0+3072], 128, [%r8];
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4+128], [%d0+3072], 128, [%r8];
    W0: bar.sync 0; W1: mbarrier.try_wait.parity.shared.b64 %p1, [%r4+512], 0; @!%p1 bra W1; bar.sync 0;
    setp.gt.u32 %p1, %r0, 31; @%p1 exit; ld.shared.u32 %r8, [%r6]; st.global.u32 [%d2], %r8;"""
EXACT = {
    "bytes that an mbarrier expects": BYTES.format(256),
    "a shuffle from lanes that have exited": """setp.ge.u32 %p0, %r0, 48; @%p0 ret;
        shfl.sync.down.b32 %r8, %r3, 8, 31, 0xffffffff; st.global.u32 [%d2], %r8;""",
    "a wait for two warps": PARTS.replace("COUNT", "2"),
    "integer sums of copies": REDUCED.replace(
        "COPY", f"{COPY}.add.u32 [%d0], [%r4], 128; {COPY}.add.u32 [%d0], [%r4], 64;"
    ),
    "stores": "st.global.u32 [%d2], %r3;",
    "a reduction through shared memory": """st.shared.u32 [%r6], %r3; bar.sync 0; xor.b32 %r7, %r5, 4;
        add.u32 %r7, %r7, %r4; ld.shared.u32 %r8, [%r7]; st.global.u32 [%d2], %r8;""",
    "an exchange in one warp": """st.shared.u32 [%r6], %r3; bar.warp.sync 0xffffffff; xor.b32 %r7, %r5, 4;
        add.u32 %r7, %r7, %r4; ld.shared.u32 %r8, [%r7]; st.global.u32 [%d2], %r8;""",
    "integer reductions to one address": "red.global.add.u32 [%d0], %r3;",
    "sums with block scope by each block": "red.relaxed.cta.global.add.u32 [%d2], 1;",
    # a race in PTX; but H200s execute atomics of any scope in the L2 cache, and random kernels have many such sums
    "sums with block scope by all blocks": "red.relaxed.cta.global.add.u32 [%d0], %r3;",
    "integer reductions by one thread of each block": """setp.ne.u32 %p0, %r0, 0;
        @!%p0 red.global.add.u32 [%d0], %r3;""",
    "an unused clock": "mov.u64 %d5, %clock64; st.global.u32 [%d2], %r3;",
    "a clock in a dead sum": "mov.u32 %r7, %clock; add.u32 %r8, %r7, 1; st.global.u32 [%d2], %r3;",
    "a float atomic for each thread": "red.global.add.f32 [%d2], %f0;",
    "phases of atomics": """mov.u32 %r7, 0; st.shared.u32 [%r6], %r7; bar.sync 0; red.shared.add.u32 [%r4], %r0;
        bar.sync 0; red.shared.max.u32 [%r4], %r0; bar.sync 0; ld.shared.u32 %r8, [%r4]; st.global.u32 [%d2], %r8;""",
    "a divergent loop": """mov.u32 %r7, 0; LOOP: setp.ge.u32 %p0, %r7, %r0; @%p0 bra DONE; add.u32 %r7, %r7, 3;
        bra LOOP; DONE: st.global.u32 [%d2], %r7;""",
    "a spin-wait on an mbarrier": """setp.ne.u32 %p0, %r0, 0; @!%p0 mbarrier.init.shared.b64 [%r4], 64; bar.sync 0;
        mbarrier.arrive.shared.b64 %d6, [%r4]; WAIT: mbarrier.try_wait.shared.b64 %p1, [%r4], %d6; @!%p1 bra WAIT;
        st.global.u32 [%d2], %r3;""",
    "a flag that an acquire load waits for": f"""{FLAG} @%p1 bra WAIT; st.global.u32 [%d2], %r3;
        st.release.gpu.global.u32 [%d0+2048], %r7; bra DONE; WAIT: ld.acquire.gpu.global.u32 %r8, [%d0+2048];
        setp.lt.u32 %p2, %r8, 1; @%p2 bra WAIT; ld.global.u32 %r9, [%d0]; st.global.u32 [%d2], %r9; DONE:""",
    "stores of a warp that one lane releases": """setp.ge.u32 %p0, %r0, 32; @%p0 exit; setp.eq.u32 %p0, %r0, 0;
        setp.ne.u32 %p1, %r1, 0; mov.u32 %r7, 1; @%p1 bra WAIT; st.global.u32 [%d2], %r3; bar.warp.sync -1;
        @%p0 st.release.gpu.global.u32 [%d0+2048], %r7; exit; WAIT: @!%p0 bra MET; AGAIN:
        ld.acquire.gpu.global.u32 %r8, [%d0+2048]; setp.lt.u32 %p2, %r8, 1; @%p2 bra AGAIN; MET: bar.warp.sync -1;
        mul.wide.u32 %d3, %r5, 1; add.u64 %d3, %d3, %d0; ld.global.u32 %r9, [%d3]; st.global.u32 [%d2], %r9;""",
    "phases of an mbarrier": PHASES.format(WAITED_FOR),
    "a spin-wait before the end": """setp.ne.u32 %p0, %r0, 0; @!%p0 mbarrier.init.shared.b64 [%r4], 64; bar.sync 0;
        st.global.u32 [%d2], %r3; mbarrier.arrive.shared.b64 %d6, [%r4];
        WAIT: mbarrier.try_wait.shared.b64 %p1, [%r4], %d6; @!%p1 bra WAIT;""",
    "64-bit atomics in shared memory": """mov.u64 %d6, 7; cvt.u64.u32 %d7, %r3; setp.ne.u32 %p0, %r0, 0;
        @!%p0 st.shared.u64 [%r4], %d6; bar.sync 0; red.shared.add.u64 [%r4], %d7; bar.sync 0;
        red.shared.max.s64 [%r4], %d7; bar.sync 0; red.shared.xor.b64 [%r4], %d7; bar.sync 0;
        ld.shared.u32 %r8, [%r4]; st.global.u32 [%d2], %r8;""",
    "the state of an own mbarrier": """shl.b32 %r7, %r0, 3; add.u32 %r7, %r7, %r4; mbarrier.init.shared.b64 [%r7], 2;
        mbarrier.arrive.shared.b64 %d6, [%r7]; mbarrier.test_wait.shared.b64 %p1, [%r7], %d6; selp.u32 %r8, 1, 2, %p1;
        mbarrier.arrive.shared.b64 %d6, [%r7]; mbarrier.test_wait.shared.b64 %p1, [%r7], %d6;
        mbarrier.pending_count.b64 %r9, %d6; add.u32 %r8, %r8, %r9; @%p1 add.u32 %r8, %r8, 8;
        st.global.u32 [%d2], %r8;""",
    "an mbarrier test after a barrier": """setp.ne.u32 %p0, %r0, 0; @!%p0 mbarrier.init.shared.b64 [%r4], 64;
        bar.sync 0; mbarrier.arrive.shared.b64 %d6, [%r4]; bar.sync 0;
        mbarrier.test_wait.parity.shared.b64 %p1, [%r4], 0; selp.u32 %r8, 1, 2, %p1; st.global.u32 [%d2], %r8;""",
    "the low half of a register": """.reg .b16 %h<4>; cvt.u16.u32 %h0, %r3; mov.b32 %r7, {%h0, %h1};
        shl.b32 %r8, %r7, 16; st.global.u32 [%d2], %r8;""",
}
INEXACT = {
    "a shuffle from lanes that have branched away": ("never written", """setp.ge.u32 %p0, %r0, 16; mov.u32 %r8, %r3;
        @%p0 bra DONE; shfl.sync.down.b32 %r8, %r3, 16, 31, 0xffff; LOOP: add.u32 %r7, %r8, %r0;
        st.volatile.global.u32 [%d2], %r7; add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, 5; @%p1 bra LOOP;
        DONE: st.global.u32 [%d2+1024], %r8;"""),
    "a wait for one warp of two": ("nothing orders them", PARTS.replace("COUNT", "1")),
    "a wait for a count that was reached before": ("nothing orders them", PARTS.replace("COUNT", "0")),
    "a flag that is set twice": ("nothing orders them", f"""{FLAG} @%p1 bra WAIT;
        st.volatile.global.u32 [%d0+2048], %r7;
        membar.gl; st.global.u32 [%d2], %r3; membar.gl; mov.u32 %r7, 2; st.volatile.global.u32 [%d0+2048], %r7;
        bra DONE; WAIT: {WAITED} 1; @%p2 bra WAIT; membar.gl; ld.global.u32 %r9, [%d0]; st.global.u32 [%d2], %r9;
        DONE:"""),
    "rounds of a wait for a flag": ("depends on timing", f"""{FLAG} @%p1 bra WAIT;
        st.volatile.global.u32 [%d0+2048], %r7; bra DONE;
        WAIT: add.u32 %r9, %r9, 1; {WAITED} 1; @%p2 bra WAIT; st.global.u32 [%d2], %r9; DONE:"""),
    "a wait that gives up": ("depends on timing", f"""{FLAG} @%p1 bra WAIT;
        st.volatile.global.u32 [%d0+2048], %r7; bra DONE;
        WAIT: {WAITED} 1; @!%p2 bra MET; add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 9; @%p2 bra WAIT;
        st.global.u32 [%d2], %r3; bra DONE; MET: st.global.u32 [%d2], %r1; DONE:"""),
    "the value that a wait found": ("depends on timing", f"""{FLAG} @%p1 bra WAIT;
        st.volatile.global.u32 [%d0+2048], %r7; membar.gl; mov.u32 %r7, 2; st.volatile.global.u32 [%d0+2048], %r7;
        bra DONE; WAIT: {WAITED} 1; @%p2 bra WAIT; st.global.u32 [%d2], %r8; DONE:"""),
    "float sums of copies": ("several warps or blocks", REDUCED.replace("COPY", f"{COPY}.add.f32 [%d0], [%r4], 128;")),
    "float sums of copies of one thread": ("several warps or blocks", REDUCED.replace("COPY",
        f"@!%p1 {COPY}.add.f32 [%d0], [%r4], 128; @!%p1 {COPY}.add.f32 [%d0], [%r4+128], 128;")),
    "sums and maxima of copies": ("several warps or blocks", REDUCED.replace("COPY",
        f"@%p1 {COPY}.add.u32 [%d0], [%r4], 128; @!%p1 {COPY}.max.u32 [%d0], [%r4], 128;")),
    "a race between warps": ("nothing orders them", """st.shared.u32 [%r6], %r3; xor.b32 %r7, %r5, 128;
        add.u32 %r7, %r7, %r4; ld.shared.u32 %r8, [%r7]; st.global.u32 [%d2], %r8;"""),
    "a race between blocks": ("nothing orders them", """setp.eq.u32 %p0, %r1, 0; @%p0 st.global.u32 [%d0+2048], %r2;
        ld.global.u32 %r8, [%d0+2048]; st.global.u32 [%d2], %r8;"""),
    "different stores of two warps": ("nothing orders them", "st.global.u32 [%d0], %r3;"),
    "float atomics of several warps": ("the order of these atomics changes the result",
                                       "red.global.add.f32 [%d0], %f0;"),
    "a float atomic of each block": ("several warps or blocks", """setp.ne.u32 %p0, %r0, 0;
        @!%p0 red.global.add.f32 [%d0], %f0;"""),
    "a float atomic of each warp": ("several warps or blocks", """and.b32 %r7, %r0, 31; setp.ne.u32 %p0, %r7, 0;
        @!%p0 red.global.add.f32 [%d0], %f0;"""),
    "a slot for each block": ("several warps or blocks", """setp.ne.u32 %p0, %r0, 0;
        @!%p0 atom.global.add.u32 %r7, [%d0], 1; @!%p0 st.global.u32 [%d2+8], %r7;"""),
    "an exchange by each block": ("several warps or blocks", """setp.ne.u32 %p0, %r0, 0;
        @!%p0 atom.global.exch.b32 %r7, [%d0], %r3;"""),
    "a swap by each block": ("several warps or blocks", """setp.ne.u32 %p0, %r0, 0;
        @!%p0 atom.global.cas.b32 %r7, [%d0], 0, %r3;"""),
    "slots from an atomic": ("the order of these atomics changes the result", """atom.global.add.u32 %r7, [%d0], 1;
        st.global.u32 [%d2+8], %r7;"""),
    "different atomics": ("the order of these atomics changes the result", """setp.lt.u32 %p0, %r0, 32;
        @%p0 red.global.add.u32 [%d0], %r3; @!%p0 red.global.max.u32 [%d0], %r3;"""),
    "an exchange": ("the order of these atomics changes the result", "atom.global.exch.b32 %r7, [%d0], %r3;"),
    "shared memory that was never written": ("never written", """setp.lt.u32 %p0, %r0, 16;
        @%p0 st.shared.u32 [%r6], %r3; bar.sync 0; ld.shared.u32 %r8, [%r6]; st.global.u32 [%d2], %r8;"""),
    "a clock that is stored": ("%clock", "mov.u32 %r7, %clock; st.global.u32 [%d2], %r7;"),
    "a branch on a clock": ("%clock", """mov.u32 %r7, %clock; and.b32 %r7, %r7, 1; setp.eq.u32 %p0, %r7, 0;
        @%p0 bra DONE; st.global.u32 [%d2], %r3; DONE:"""),
    "the number of a multiprocessor": ("%smid", "mov.u32 %r7, %smid; st.global.u32 [%d2], %r7;"),
    "rounds of a spin-wait": ("depends on timing", """setp.ne.u32 %p0, %r0, 0; mov.u32 %r9, 0;
        @!%p0 mbarrier.init.shared.b64 [%r4], 64; bar.sync 0; mbarrier.arrive.shared.b64 %d6, [%r4];
        WAIT: add.u32 %r9, %r9, 1; mbarrier.test_wait.shared.b64 %p1, [%r4], %d6; @!%p1 bra WAIT;
        st.global.u32 [%d2], %r9;"""),
    "more bytes than an mbarrier expects": ("after the last phase", BYTES.format(128)),
    "arrivals without a wait for the phase before": ("after the last phase", PHASES.format("")),
    "a wait for a phase that may have been replaced": ("may end before its test", """setp.ne.u32 %p0, %r0, 0;
        @!%p0 mbarrier.init.shared.b64 [%r4], 1; bar.sync 0; setp.lt.u32 %p1, %r0, 32; @%p1 bra FIRST;
        W0: mbarrier.try_wait.parity.shared.b64 %p1, [%r4], 0; @!%p1 bra W0; st.global.u32 [%d2], %r3; exit;
        FIRST: @%p0 exit; mbarrier.arrive.shared.b64 %d6, [%r4];
        W1: mbarrier.try_wait.parity.shared.b64 %p1, [%r4], 0; @!%p1 bra W1; mov.u32 %r7, 0;
        LOOP: st.volatile.shared.u32 [%r6+64], %r7; add.u32 %r7, %r7, 1; setp.lt.u32 %p1, %r7, 40; @%p1 bra LOOP;
        mbarrier.arrive.shared.b64 %d6, [%r4];"""),
    "a wait that decides if a thread leaves": ("depends on timing", """setp.ne.u32 %p0, %r0, 0;
        @!%p0 mbarrier.init.shared.b64 [%r4], 64; bar.sync 0; mbarrier.arrive.shared.b64 %d6, [%r4];
        mbarrier.test_wait.shared.b64 %p1, [%r4], %d6; @%p1 exit; st.global.u32 [%d2], %r3;"""),
    "an mbarrier test beside arrivals": ("depends on timing", """setp.ne.u32 %p0, %r0, 0;
        @!%p0 mbarrier.init.shared.b64 [%r4], 64; bar.sync 0; mbarrier.arrive.shared.b64 %d6, [%r4];
        mbarrier.test_wait.shared.b64 %p1, [%r4], %d6; selp.u32 %r8, 1, 2, %p1; st.global.u32 [%d2], %r8;"""),
    "the state that an arrival returns": ("depends on timing", """setp.ne.u32 %p0, %r0, 0;
        @!%p0 mbarrier.init.shared.b64 [%r4], 128; bar.sync 0; mbarrier.arrive.shared.b64 %d6, [%r4];
        mbarrier.pending_count.b64 %r8, %d6; st.global.u32 [%d2], %r8;"""),
    "a test whose result does not matter": ("nothing orders them", """setp.ne.u32 %p0, %r0, 0;
        @!%p0 mbarrier.init.shared.b64 [%r4], 64; bar.sync 0; st.shared.u32 [%r6+64], %r3;
        mbarrier.arrive.shared.b64 %d6, [%r4]; mbarrier.test_wait.shared.b64 %p1, [%r4], %d6;
        xor.b32 %r7, %r5, 128; add.u32 %r7, %r7, %r4; ld.shared.u32 %r8, [%r7+64]; st.global.u32 [%d2], %r8;"""),
    "old values of 64-bit atomics": ("never written", """mov.u64 %d6, 7; cvt.u64.u32 %d7, %r3;
        setp.ne.u32 %p0, %r0, 0; @!%p0 st.shared.u64 [%r4], %d6; bar.sync 0; atom.shared.xor.b64 %d8, [%r4], %d7;
        cvt.u32.u64 %r8, %d8; st.global.u32 [%d2], %r8;"""),
    "an exit that depends on shared memory that was never written": ("never written", """ld.shared.u32 %r8, [%r6];
        setp.eq.u32 %p0, %r8, 3; @%p0 exit; st.global.u32 [%d2], %r3;"""),
    "a branch on an old value of 64-bit atomics": ("never written", """mov.u64 %d6, 0; setp.ne.u32 %p0, %r0, 0;
        @!%p0 st.shared.u64 [%r4], %d6; bar.sync 0; atom.shared.add.u64 %d8, [%r4], 1; setp.ne.u64 %p1, %d8, 5;
        @%p1 exit; st.global.u32 [%d2], %r3;"""),
    "a load before atomics": ("nothing orders them", """setp.ne.u32 %p0, %r1, 0; @%p0 red.global.add.u32 [%d0], 1;
        @!%p0 ld.volatile.global.u32 %r8, [%d0]; @!%p0 st.global.u32 [%d2+8], %r8;"""),
    "a load after atomics": ("nothing orders them", """setp.eq.u32 %p0, %r1, 0; @%p0 red.global.add.u32 [%d0], 1;
        @!%p0 ld.relaxed.gpu.global.u32 %r8, [%d0]; @!%p0 st.global.u32 [%d2+8], %r8;"""),
    "a shuffle from lanes that may not have exited yet": ("never written", """setp.lt.u32 %p0, %r0, 16;
        mov.u32 %r8, %r3; mov.u32 %r7, 0; @%p0 bra LOW; LOOP: st.volatile.global.u32 [%d2], %r7; add.u32 %r7, %r7, 1;
        setp.lt.u32 %p1, %r7, %r2; @%p1 bra LOOP; exit;
        LOW: shfl.sync.down.b32 %r8, %r8, 16, 31, 0xffff; st.global.u32 [%d2], %r8;"""),
    "a flag of another block that is loaded with block scope": ("nothing orders them", f"""{FLAG} @%p1 bra WAIT;
        st.relaxed.gpu.global.u32 [%d0+2048], %r7; bra DONE;
        WAIT: ld.relaxed.cta.global.u32 %r8, [%d0+2048]; setp.lt.u32 %p2, %r8, 1; @%p2 bra WAIT; DONE:"""),
    "minima with and without a sign": ("the order of these atomics changes the result", """setp.lt.u32 %p0, %r0, 32;
        @%p0 red.global.min.u32 [%d0], %r3; @!%p0 red.global.min.s32 [%d0], %r3;"""),
}  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize("name", EXACT)
def test_the_result_does_not_depend_on_order(name):
    run, out = launch(EXACT[name])
    assert run.inexact == ()
    assert run.exact
    for seed in range(3):
        assert launch(EXACT[name], seed=seed)[1].tolist() == out.tolist()


@pytest.mark.every_case
@pytest.mark.parametrize("name", INEXACT)
def test_every_open_order_is_a_reason_with_an_address(name):
    reason, body = INEXACT[name]
    run, _ = launch(body)
    assert not run.exact
    assert any(reason in text and text.startswith("0x") for text in run.inexact), run.inexact


@pytest.mark.parametrize(
    ("order", "is_exact"),
    [("", True), (".relaxed", False), ("fence.cluster", True), ("fence.cta", False), ("start", False)],
)
def test_only_a_fence_before_a_relaxed_cluster_barrier_orders_stores(order, is_exact):
    sync = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    fence = order.startswith("fence") * f"fence.acq_rel.{order[6:]};"
    meet = fence + sync.replace("arrive", f"arrive{order if order[:1] == '.' else '.relaxed' * bool(fence)}")
    store = f"st.shared.u32 [%r6], %r3; {meet} ld.shared::cluster.u32 %r8, [%r11];"
    store = "st.shared::cluster.u32 [%r11], %r3; mov.u32 %r8, %r3;" if order == "start" else store
    body = f"""mov.u32 %r10, %cluster_ctarank; xor.b32 %r10, %r10, 1; mapa.shared::cluster.u32 %r11, %r6, %r10;
        {store} st.global.u32 [%d2], %r8; {sync}"""
    run, _ = launch(body, options=wf.ptx.LaunchOptions(cluster=(2, 1, 1)))
    assert run.exact == is_exact, run.inexact


@pytest.mark.parametrize(
    ("reason", "inst"),
    [
        ("red.global.add.f32: lanes of a warp update one address", "red.global.add.f32 [%d0], %f0;"),
        ("CS2R.32 ", "mov.u32 %r7, %clock; st.global.u32 [%d2], %r7;"),
    ],
)
def test_a_reason_names_the_source_line_and_an_order_is_reported_once(reason, inst):
    body = f'.file 1 "sum.cu"\n.visible .entry k(.param .u64 out) {{ {DECLARED}\n.loc 1 7 0\n{inst} ret; }}'
    run = wf.ptx.load(HEAD + body)["k"].launch(32, 64, [np.zeros(2048, np.uint32)], level="sass")
    assert not any(found.startswith("atomics: too many") for found in run.inexact)
    assert [f" (sum.cu:7): {reason}" in found for found in run.inexact if found.startswith("0x")] == [True], run.inexact


def test_lanes_that_do_not_exist_have_no_values():
    body = "mov.u32 %r7, 12; mul.wide.u32 %d3, %r3, 16; add.u64 %d3, %d3, %d0; st.global.u32 [%d3], %r0;"
    run, out = launch(body, grid=1, block=33)
    assert run.exact
    assert out[:132:4].tolist() == list(range(33))


def test_lanes_that_have_diverged_are_not_ordered():
    body = """mov.u32 %r7, 0; st.shared.u32 [%r6], %r7; bar.sync 0; and.b32 %r8, %r0, 1; setp.eq.u32 %p0, %r8, 0;
        mov.u32 %r11, 0; @%p0 bra EVEN; ODD: ld.volatile.shared.u32 %r9, [%r4]; add.u32 %r10, %r9, 5;
        st.volatile.shared.u32 [%r4], %r10; add.u32 %r11, %r11, 1; setp.lt.u32 %p1, %r11, %r2; @%p1 bra ODD; bra DONE;
        EVEN: ld.volatile.shared.u32 %r9, [%r4]; mul.lo.u32 %r10, %r9, 7; add.u32 %r10, %r10, 1;
        st.volatile.shared.u32 [%r4], %r10; add.u32 %r11, %r11, 1; setp.lt.u32 %p1, %r11, %r2; @%p1 bra EVEN;
        DONE: st.global.u32 [%d2], %r10;"""
    run, _ = launch(body, grid=1, block=32)
    assert any("they are lanes of one warp" in reason for reason in run.inexact)


def test_a_spelling_that_was_not_compared_is_named_with_its_address(monkeypatch):
    run, _ = launch(EXACT["stores"])
    spellings = set(
        wf.ptx.load(f"{HEAD}.visible .entry k(.param .u64 out) {{{DECLARED}{EXACT['stores']} ret; }}")["k"]
        .module.machine_kernel("k", "sm_90")
        .program.spellings.values()
    )
    assert run.exact
    missing = next(name for name in spellings if name.startswith("STG"))
    monkeypatch.setattr(SassModule, "compared_spellings", lambda _: frozenset(spellings - {missing}))
    (reason,) = launch(EXACT["stores"])[0].inexact
    assert reason.startswith("0x")
    assert f"{missing} was not compared with an sm_90a GPU" in reason
    monkeypatch.setattr(SassModule, "compared_spellings", lambda _: frozenset())
    assert launch(EXACT["stores"])[0].inexact == ("no machine code for sm_90a was compared with a GPU",)


@pytest.mark.parametrize("engine", ["reference", "compiled"])
@pytest.mark.parametrize("checks", [(), ("races",)])
def test_both_engines_and_checks_give_the_same_verdict(engine, checks):
    run, out = launch(EXACT["a reduction through shared memory"], engine=engine, checks=checks)
    assert run.exact
    assert out[:4].tolist() == [1, 0, 3, 2]
    assert run.verdict == ("clean" if checks else None)


def test_an_exploration_that_differs_changes_both_verdicts():
    options = wf.ptx.LaunchOptions(explore=6)
    run, _ = launch("atom.global.exch.b32 %r7, [%d0], %r3;", grid=4, checks="memory", options=options)
    assert not run.exploration.agrees
    assert run.verdict == "incomplete"
    assert any(reason.startswith("explore: ") for reason in run.inexact)


def test_a_skipped_store_is_a_reason():
    kernel = wf.ptx.load(f"{HEAD}.visible .entry k(.param .u64 out) {{{DECLARED}{EXACT['stores']} ret; }}").assemble()[
        "k"
    ]
    run = kernel.launch(1, 32, [np.zeros(31, np.uint32)], checks="memory")
    assert any("an access was skipped" in reason for reason in run.inexact)


def test_a_launch_that_is_too_long_is_not_judged(monkeypatch):
    monkeypatch.setattr(exactness, "FEW_STEPS", 0)
    monkeypatch.setattr(exactness, "STEPS_PER_SECOND", 2)
    monkeypatch.setattr(exactness, "screened", lambda *_: None)
    run, out = launch(EXACT["a divergent loop"])
    assert out[5] == 6
    assert run.inexact == (exactness.NOT_JUDGED.format(10),)


@pytest.mark.parametrize("name", [*EXACT, *INEXACT])
def test_compiled_code_calls_no_open_order_exact(name, monkeypatch):
    monkeypatch.setattr(exactness, "FEW_STEPS", 0)
    body = EXACT[name] if name in EXACT else INEXACT[name][1]
    run, out = launch(body, grid=3)
    monkeypatch.undo()
    assert name in EXACT or not run.exact
    if run.exact:
        assert out.tolist() == launch(body, grid=3, engine="reference")[1].tolist()


def test_a_long_launch_is_judged_by_compiled_code(monkeypatch):
    if not c_functions.is_available():
        pytest.skip("no compiled library")
    monkeypatch.setattr(exactness, "STEPS_PER_SECOND", 0)
    monkeypatch.setattr(exactness, "FEW_STEPS", 0)
    run, out = launch(EXACT["a divergent loop"])
    assert run.exact
    assert run.engine == "compiled"
    assert out[5] == 6
    raced, _ = launch(INEXACT["a race between warps"][1])
    assert raced.inexact == (exactness.NOT_JUDGED.format(10),)


# Random sequences of accesses: a run that is called exact leaves the same memory whatever the hardware leaves open.

PIECES = (
    "st.shared.u32 [%r6], %r3;", "st.shared.u32 [%r6], %r8;", "bar.sync 0;", "bar.warp.sync 0xffffffff;",
    "xor.b32 %r7, %r5, 4; add.u32 %r7, %r7, %r4; ld.shared.u32 %r9, [%r7]; add.u32 %r8, %r8, %r9;",
    "xor.b32 %r7, %r5, 128; add.u32 %r7, %r7, %r4; ld.shared.u32 %r9, [%r7]; xor.b32 %r8, %r8, %r9;",
    "red.shared.add.u32 [%r4+512], %r0;", "red.shared.max.u32 [%r4+516], %r0;",
    "ld.shared.u32 %r9, [%r4+512]; add.u32 %r8, %r8, %r9;",
    "mov.u32 %r9, %clock;", "mov.u32 %r9, %clock; add.u32 %r8, %r8, %r9;", "red.global.add.u32 [%d0+3072], %r8;",
    "red.global.add.f32 [%d0+3076], %f0;", "atom.global.add.u32 %r9, [%d0+3080], 1;",
    "atom.global.add.u32 %r9, [%d0+3084], 1; add.u32 %r8, %r8, %r9;",
    "setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.u32 [%r4+512], %r3; @%p0 st.shared.u32 [%r4+516], %r3;",
    "setp.lt.u32 %p0, %r0, 32; @%p0 st.shared.u32 [%r6], %r1;", "ld.global.u32 %r9, [%d0+3072]; add.u32 %r8, %r8, %r9;",
)  # fmt: skip


def fill_unwritten(monkeypatch, seed):
    """Give registers, shared and local memory other values before anything is written."""
    start, begin = DeviceMemory.start_blocks, WarpState.__init__
    rng = np.random.default_rng(seed)

    def start_blocks(memory, *arguments):
        start(memory, *arguments)
        for data in (memory.shared, memory.local):
            data[...] = rng.integers(0, 256, data.shape, np.uint8)

    def initialise(state, part):
        begin(state, part)
        for index, codes in enumerate(state.registers):
            if index != part.program.frame.index:
                state.registers[index] = (
                    rng.integers(0, 256, codes.nbytes, np.uint8)
                    .view(np.uint8)
                    .reshape(*codes.shape, -1)
                    .view(codes.dtype)[..., 0]
                    if codes.dtype != np.bool_
                    else rng.integers(0, 2, codes.shape).astype(bool)
                )

    monkeypatch.setattr(DeviceMemory, "start_blocks", start_blocks)
    monkeypatch.setattr(WarpState, "__init__", initialise)


@pytest.mark.every_case
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_what_is_called_exact_does_not_depend_on_schedules_or_unwritten_values(seed, monkeypatch):
    """Twenty kernels for each seed."""
    generator = random.Random(seed)
    verdicts = []
    for _ in range(20):
        body = "mov.u32 %r8, %r3;\n" + "\n".join(generator.choices(PIECES, k=generator.randint(1, 6)))
        run, out = launch(f"{body}\nst.global.u32 [%d2], %r8;", options=wf.ptx.LaunchOptions(explore=2))
        verdicts.append(run.exact)
        if run.exact:
            with monkeypatch.context() as patch:
                fill_unwritten(patch, seed)
                again, others = launch(f"{body}\nst.global.u32 [%d2], %r8;", seed=seed + 1)
            assert others.tolist() == out.tolist(), body
            assert run.exploration.agrees
            assert again.exact
    assert True in verdicts
    assert False in verdicts


REPEATED = {
    16000301: "diverged lanes initialise their own mbarriers",
    16001506: "a thread updates a word before a barrier, and all threads update it otherwise after it",
    16001586: "a guarded instruction after a spin-wait",
    16001846: "an instruction that reads the low half of a register whose upper half was never written",
    21008372: "a bitwise function of constants in a compare-and-swap loop",
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", REPEATED)
def test_random_kernels_whose_bytes_repeat_on_a_gpu_are_exact(seed):
    kernel = generate(seed)
    data = data_of(kernel)
    module = wf.ptx.load(kernel.text()).assemble(arch=arch_of(kernel.text()))
    run = module["k"].launch(kernel.grid, kernel.block, [data.given, data.before, data.blob])
    assert run.inexact == (), REPEATED[seed]


def instruction(text, address, opcode, operands, *, releases=7, awaits=0, modifiers=()):
    encoding = releases << 113 | awaits << 116
    return SassInstruction(address, None, opcode, modifiers, operands, text, encoding)


@pytest.mark.parametrize(
    ("awaits", "base", "is_late"), [(0, "R", True), (1 << 2, "R", False), (1 << 3, "R", True), (0, None, False)]
)
def test_a_uniform_address_that_is_overwritten_too_early_is_a_reason(awaits, base, is_late):
    """ptxas 13.0 wrote this for random kernel 21007050, and an H200 loaded from the new address."""
    uniform = RegisterOperand("UR", 4)
    memory = AddressOperand("", RegisterOperand("R", 10, selector="64"), uniform if base else None, 16)
    load = instruction("LDG R30, [R10.64+UR4+0x10]", 0x10, "LDG", (RegisterOperand("R", 30), memory), releases=2)
    new = instruction("ULDC.64 UR4, c[0x0][0xd0]", 0x20, "ULDC", (uniform,), awaits=awaits, modifiers=("64",))

    found = exactness.late_addresses([load, new])

    assert list(found) == ([0x10] if is_late else [])
    assert not is_late or "ULDC.64 UR4, c[0x0][0xd0] at 0x20 overwrites its address" in found[0x10]
