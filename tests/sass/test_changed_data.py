"""Discarded data, changed constant data and stored addresses: kernels that are not exact, and correct neighbours."""

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.machine.jit import c_functions
from warpfrag.sass import exactness

pytestmark = [pytest.mark.one_engine, pytest.mark.usefixtures("every_spelling_compared")]
HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
DECLARED = """
    .reg .b32 %r<20>; .reg .b64 %d<20>; .reg .pred %p<4>; .reg .f32 %f<4>; .shared .align 16 .b8 sm[1024];
    .local .align 16 .b8 own[64];
    ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; ld.param.u64 %d9, [none]; ld.param.u32 %r4, [count];
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
    mul.wide.u32 %d2, %r3, 4; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;
"""
PARAMETERS = ".param .u64 out, .param .u64 in, .param .u64 none, .param .u32 count, .param .align 8 .b8 many[48]"
EXACT = {
    "a copy": "ld.global.u32 %r5, [%d4]; st.global.u32 [%d3], %r5;",
    "constant data": """ld.global.nc.u32 %r5, [%d4]; ld.global.nc.u32 %r6, [%d1]; add.u32 %r5, %r5, %r6;
        st.global.u32 [%d3], %r5;""",
    "constant data in an array that is also written": """ld.global.nc.u32 %r5, [%d4];
        st.global.u32 [%d4+2048], %r5; st.global.u32 [%d3], %r5;""",
    "changed data": "st.global.u32 [%d3], %r3; ld.global.u32 %r5, [%d3]; st.global.u32 [%d3+2048], %r5;",
    "other cache operations": """prefetch.global.L2 [%d1]; applypriority.global.L2::evict_normal [%d1], 128;
        st.global.u32 [%d3], %r3;""",
    "data at an address, not the address": """setp.eq.u64 %p0, %d1, 0; @%p0 bra DONE; ld.global.u64 %d5, [%d1];
        add.u64 %d5, %d5, %d9; st.global.u64 [%d0], %d5; atom.global.add.u64 %d6, [%d0+8], %d5; DONE:""",
    "the distance of two addresses": """sub.u64 %d5, %d4, %d1; add.u64 %d5, %d5, %d2; shr.u64 %d5, %d5, 1;
        cvt.u32.u64 %r5, %d5; st.global.u32 [%d3], %r5;""",
}  # fmt: skip
ADDRESS = "the address of an array or variable"
INEXACT = {
    "constant data of the thread": ("constant data", """st.global.u32 [%d3], %r3; ld.global.nc.u32 %r5, [%d3];
        st.global.u32 [%d3+2048], %r5;"""),
    "constant data that changes later": ("constant data", """ld.global.nc.u32 %r5, [%d3]; add.u32 %r5, %r5, 1;
        st.global.u32 [%d3], %r5;"""),
    "constant data of another thread": ("constant data", """xor.b32 %r5, %r3, 1; mul.wide.u32 %d5, %r5, 4;
        add.u64 %d5, %d5, %d0;
        st.global.u32 [%d3], %r3; bar.sync 0; ld.global.nc.u32 %r5, [%d5]; st.global.u32 [%d3+2048], %r5;"""),
    "constant data that an atomic changes": ("constant data", """ld.global.nc.u32 %r5, [%d3];
        st.global.u32 [%d3+2048], %r5; red.global.add.u32 [%d3], 1;"""),
    "constant data that a copy changes": ("constant data", """mov.u32 %r5, sm; mul.wide.u32 %d5, %r1, 256;
        add.u64 %d5, %d5, %d0; shl.b32 %r6, %r0, 2; add.u32 %r6, %r6, %r5;
        st.shared.u32 [%r6], %r3; fence.proxy.async; bar.sync 0; setp.ne.u32 %p0, %r0, 0;
        ld.global.nc.u32 %r7, [%d3]; st.global.u32 [%d3+2048], %r7; bar.sync 0;
        @%p0 bra DONE; cp.async.bulk.global.shared::cta.bulk_group [%d5], [%r5], 128; cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0; DONE:"""),
    "discarded data": ("discard", """st.global.u32 [%d3], %r3; and.b32 %r5, %r0, 31; setp.ne.u32 %p0, %r5, 0;
        @!%p0 discard.global.L2 [%d3], 128;"""),
    "discarded data that another thread writes": ("discard", """@%p0 discard.global.L2 [%d3], 128;
        discard.L2 [%d3], 128; bar.sync 0; st.global.u32 [%d3], %r3;"""),
    "the address of an element": (ADDRESS, "shl.b64 %d5, %d2, 1; add.u64 %d5, %d5, %d0; st.global.u64 [%d5], %d4;"),
    "a hash of an address": (ADDRESS, """cvt.u32.u64 %r5, %d4; mul.lo.u32 %r5, %r5, 0x9E3779B1; shr.u32 %r5, %r5, 9;
        st.global.u32 [%d3], %r5;"""),
    "the address in a loop and a shuffle": (ADDRESS, """mov.u32 %r5, 0; LOOP: add.u64 %d4, %d4, 4; add.u32 %r5, %r5, 1;
        setp.lt.u32 %p0, %r5, %r4; @%p0 bra LOOP; cvt.u32.u64 %r6, %d4;
        shfl.sync.bfly.b32 %r7, %r6, 1, 31, -1; st.global.u32 [%d3], %r7;"""),
    "an address in an atomic": (ADDRESS, "atom.global.max.u64 %d6, [%d0], %d4;"),
    # ptxas 13.0 stores R1, the stack pointer, because nothing else was assigned
    "local memory that was never written": ("stack pointer", """ld.local.u32 %r5, [own+32]; st.local.u32 [own], %r0;
        st.global.u32 [%d3], %r5;"""),
}  # fmt: skip


def launch(body, *, grid=2, block=64, **options):
    kernel = wf.ptx.load(f"{HEAD}.visible .entry k({PARAMETERS}) {{{DECLARED}{body} ret; }}")["k"]
    out, given = np.zeros(2048, np.uint32), np.arange(2048, dtype=np.uint32)
    many = [given, given, *(np.uint64(n) for n in range(3, 7))]
    return kernel.launch(grid, block, [out, given, np.uint64(0), np.uint32(4), many], level="sass", **options), out


@pytest.mark.parametrize("name", EXACT)
def test_correct_kernels_are_exact(name):
    run, _ = launch(EXACT[name])

    assert run.inexact == ()


@pytest.mark.every_case
@pytest.mark.parametrize("name", INEXACT)
def test_attacks_are_not_exact(name):
    reason, body = INEXACT[name]

    run, _ = launch(body)

    assert any(reason in found for found in run.inexact), run.inexact


@pytest.mark.every_case
@pytest.mark.parametrize("name", [name for name in (*EXACT, *INEXACT) if "constant data" in name])
def test_compiled_code_finds_changed_constant_data(name, monkeypatch):
    if not c_functions.is_available():
        pytest.skip("no compiled library")
    monkeypatch.setattr(exactness, "FEW_STEPS", 0)
    monkeypatch.setattr(exactness, "STEPS_PER_SECOND", 0)

    run, _ = launch(EXACT[name] if name in EXACT else INEXACT[name][1])

    assert run.exact == (name in EXACT)
    assert name in EXACT or run.inexact == (exactness.NOT_JUDGED.format(10),)


def test_addresses_that_the_caller_chose_are_data():
    body = ".reg .b64 %d; ld.param.u64 %d, [out]; st.global.u64 [%d], %d; ret;"
    text = f"{HEAD}.visible .entry k(.param .u64 out) {{{body}}}"
    out, address = np.zeros(1, np.uint64), 0x7000_0000_0000

    memory = wf.GlobalMemory({address: out})
    run = wf.ptx.load(text)["k"].launch(1, 1, params=address.to_bytes(8, "little"), memory=memory, level="sass")

    assert run.inexact == ()
    assert out[0] == address


def test_the_address_of_a_module_variable_is_not_exact():
    body = ".reg .b64 %d<3>; ld.param.u64 %d0, [out]; mov.u64 %d1, counter; {store} st.global.u64 [%d0], %d2; ret;"
    verdicts = []
    for store in ("mov.u64 %d2, %d1;", "ld.global.u64 %d2, [%d1];"):
        text = f"{HEAD}.global .u64 counter = 5;\n.visible .entry k(.param .u64 out) {{{body.format(store=store)}}}"
        run = wf.ptx.load(text)["k"].launch(1, 1, [np.zeros(1, np.uint64)], level="sass")
        verdicts.append(run.exact)

    assert verdicts == [False, True]
