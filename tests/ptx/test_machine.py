"""Small kernels for what real ones do rarely: divergence, waiting, atomics, calls, asynchronous copies."""

import numpy as np
import pytest

import warpfrag as wf
from small_kernel import run

pytestmark = pytest.mark.both_engines

NEVER = """.shared .align 8 .b64 bar;
mov.u32 %r5, bar;
mbarrier.init.shared.b64 [%r5], 7;
W:
mbarrier.try_wait.parity.shared.b64 %p1, [%r5], 0;
@!%p1 bra W;"""


def test_loops_of_different_lengths_and_early_returns():
    out, launched = run(
        "and.b32 %r5, %r1, 7;\nsetp.eq.u32 %p1, %r5, 3;\n@%p1 ret;\nmov.u32 %r6, 0;\nmov.u32 %r7, 0;\n"
        "LOOP:\nadd.u32 %r7, %r7, %r6;\nadd.u32 %r6, %r6, 1;\nsetp.le.u32 %p2, %r6, %r1;\n@%p2 bra LOOP;\n"
        "st.global.u32 [%rd3], %r7;"
    )

    threads = np.arange(64)
    assert np.array_equal(out, np.where(threads % 8 == 3, 0, threads * (threads + 1) // 2))
    assert launched.counts.opcodes["ret"] >= 2


@pytest.mark.slow
def test_a_lane_that_holds_a_lock_gets_its_turn():
    """Lanes of one warp take a spin lock in turn: spinning lanes must let the holder proceed."""
    lock = np.zeros(4, np.uint32)
    run(
        "add.u64 %rd4, %rd1, 8;\nSPIN:\natom.global.cas.b32 %r5, [%rd1], 0, 1;\nsetp.ne.u32 %p1, %r5, 0;\n"
        "@%p1 bra SPIN;\n"
        "ld.volatile.global.u32 %r6, [%rd4];\nadd.u32 %r6, %r6, 1;\nst.volatile.global.u32 [%rd4], %r6;\n"
        "atom.global.exch.b32 %r7, [%rd1], 0;",
        out=lock, block=40,
    )  # fmt: skip

    assert lock.tolist() == [0, 0, 40, 0]


def test_producer_and_consumer_warps_meet_at_named_barriers():
    out, _ = run(
        ".shared .b32 box[32];\nmov.u32 %r10, box;\nsetp.ge.u32 %p1, %r1, 32;\n@%p1 bra CONSUMER;\n"
        "mad.lo.u32 %r11, %r1, 4, %r10;\nmul.lo.u32 %r12, %r1, %r1;\nst.shared.u32 [%r11], %r12;\n"
        "bar.arrive 1, 64;\nbra DONE;\nCONSUMER:\nbar.sync 1, 64;\nsub.u32 %r13, 63, %r1;\n"
        "mad.lo.u32 %r11, %r13, 4, %r10;\nld.shared.u32 %r12, [%r11];\nst.global.u32 [%rd3], %r12;\nDONE:"
    )

    assert out[32:].tolist() == [(31 - lane) ** 2 for lane in range(32)]


@pytest.mark.parametrize(
    ("reduction", "expected"), [("popc.u32 %r9, 0, %p1", 24), ("and.pred %p2, 0, %p1", 0), ("or.pred %p2, 0, %p1", 1)]
)
def test_barriers_that_vote(reduction, expected):
    after = "" if "popc" in reduction else "selp.u32 %r9, 1, 0, %p2;"
    out, _ = run(f"setp.lt.u32 %p1, %r1, 24;\nbar.red.{reduction};\n{after}\nst.global.u32 [%rd3], %r9;")

    assert set(out.tolist()) == {expected}


def test_shuffles_votes_and_matches_in_part_of_a_warp():
    out, _ = run(
        "and.b32 %r5, %r1, 1;\nsetp.eq.u32 %p1, %r5, 0;\n@!%p1 bra ODD;\n"
        "shfl.sync.down.b32 %r6|%p2, %r1, 2, 31, 0x55555555;\n"
        "vote.sync.ballot.b32 %r7, %p2, 0x55555555;\nshr.u32 %r8, %r1, 3;\nmatch.any.sync.b32 %r9, %r8, 0x55555555;\n"
        "redux.sync.add.u32 %r10, %r1, 0x55555555;\nxor.b32 %r11, %r6, %r9;\nadd.u32 %r11, %r11, %r10;\n"
        "add.u32 %r11, %r11, %r7;\nst.global.u32 [%rd3], %r11;\nbra END;\nODD:\nactivemask.b32 %r12;\n"
        "elect.sync %r13|%p3, 0xAAAAAAAA;\nselp.u32 %r14, 100, 0, %p3;\nadd.u32 %r12, %r12, %r14;\n"
        "st.global.u32 [%rd3], %r12;\nEND:",
        block=32,
    )

    even = np.arange(0, 32, 2)
    down = np.where(even + 2 <= 31, even + 2, even)
    groups = np.array([sum(1 << lane for lane in even if lane >> 3 == one >> 3) for one in even])
    inside = sum(1 << int(lane) for lane in even if lane + 2 <= 31)
    expected = (down ^ groups) + even.sum() + inside
    assert out[::2].tolist() == (expected % 2**32).tolist()
    assert out[1] == 0xAAAAAAAA + 100
    assert set(out[3::2].tolist()) == {0xAAAAAAAA}


def test_lanes_wait_for_the_others_of_a_mask():
    """One half of the warp reaches the shuffle later than the other; both participate."""
    out, _ = run(
        "setp.lt.u32 %p1, %r1, 16;\nmov.u32 %r5, %r1;\n@%p1 bra MEET;\nadd.u32 %r5, %r5, 1000;\nMEET:\n"
        "shfl.sync.bfly.b32 %r6, %r5, 16, 31, -1;\nst.global.u32 [%rd3], %r6;",
        block=32,
    )

    assert out.tolist() == [1000 + lane for lane in range(16, 32)] + list(range(16))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add.u32", lambda old, new: (old + new) % 2**32),
        ("min.s32", min),
        ("max.u32", max),
        ("xor.b32", lambda old, new: old ^ new),
        ("exch.b32", lambda old, new: new),
        ("inc.u32", lambda old, new: 0 if old >= new else old + 1),
        ("dec.u32", lambda old, new: new if old == 0 or old > new else old - 1),
    ],
)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomics_on_one_address_are_done_in_turn(name, expected, space):
    cell = np.zeros(70, np.uint32)
    cell[64] = 5
    body = (
        "add.u64 %rd4, %rd1, 256;\n.shared .b32 cell;\nmov.u32 %r20, cell;\nld.global.u32 %r21, [%rd4];\n"
        "st.shared.u32 [%r20], %r21;\nbar.sync 0;\nadd.u32 %r5, %r1, 3;\n"
        f"atom.{space}.{name} %r6, [{'%rd4' if space == 'global' else '%r20'}], %r5;\nst.global.u32 [%rd3], %r6;\n"
        "bar.sync 0;\nld.shared.u32 %r21, [%r20];\nsetp.eq.u32 %p1, %r1, 0;\n"
        + ("@%p1 st.global.u32 [%rd4], %r21;" if space == "shared" else "")
    )
    run(body, out=cell)

    value = 5
    for thread in range(64):
        assert cell[thread] == value
        value = expected(value, thread + 3)
    assert cell[64] == value


def test_float_atomics_round_every_sum():
    out = np.array([1.0, 0.0], np.float32)
    run("cvt.rn.f32.u32 %f1, %r1;\nmul.f32 %f1, %f1, 0f33000000;\nred.global.add.f32 [%rd1], %f1;", out=out, grid=2)

    total = np.float32(1.0)
    for _ in range(2):
        for thread in range(64):
            total = np.float32(total + np.float32(thread) * np.float32(2.0**-25))
    assert out.tolist() == [float(total), 0.0]


def test_calls_of_functions_in_part_of_a_warp():
    function = (
        ".func (.param .b32 result) twice(.param .b32 given)\n{\n.reg .b32 %a<4>; .reg .pred %q;\n"
        "ld.param.u32 %a1, [given];\nsetp.gt.u32 %q, %a1, 20;\n@%q bra BIG;\nshl.b32 %a2, %a1, 1;\n"
        "st.param.b32 [result], %a2;\nret;\nBIG:\nst.param.b32 [result+0], 7;\nret;\n}\n"
    )
    out, _ = run(
        "setp.eq.u32 %p1, %r1, 5;\n@%p1 bra SKIP;\n{\n.param .b32 argument;\n.param .b32 back;\n"
        "st.param.b32 [argument+0], %r1;\n"
        "call.uni (back), twice, (argument);\nld.param.b32 %r5, [back+0];\n}\nst.global.u32 [%rd3], %r5;\nSKIP:",
        before=function, block=32,
    )  # fmt: skip

    assert out.tolist() == [0 if lane == 5 else 7 if lane > 20 else 2 * lane for lane in range(32)]


def test_lanes_of_one_warp_that_name_different_members():
    """Two sets of lanes execute one instruction together: each sees only its own lanes."""
    out, _ = run(
        "and.b32 %r5, %r1, 1;\nsetp.eq.u32 %p1, %r5, 1;\nselp.b32 %r6, 0xAAAAAAAA, 0x55555555, %p1;\n"
        "redux.sync.add.u32 %r7, %r1, %r6;\nvote.sync.ballot.b32 %r8, %p1, %r6;\n"
        "match.all.sync.b32 %r9|%p2, %r5, %r6;\n"
        "xor.b32 %r10, %r8, %r9;\nadd.u32 %r10, %r10, %r7;\nst.global.u32 [%rd3], %r10;",
        block=32,
    )

    assert out.tolist() == [256 if lane % 2 else (240 + 0x55555555) for lane in range(32)]


def test_a_lane_that_has_left_gives_zero_to_a_shuffle():
    out, _ = run(
        "setp.eq.u32 %p1, %r1, 9;\n@%p1 ret;\nadd.u32 %r5, %r1, 100;\n"
        "shfl.sync.bfly.b32 %r6, %r5, 1, 31, 0xffffffff;\nst.global.u32 [%rd3], %r6;",
        block=32,
    )
    assert out.tolist() == [0 if lane in {8, 9} else 100 + (lane ^ 1) for lane in range(32)]


def test_vectors_are_moved_whole_and_128_bits_too():
    """Both sides of a move may share registers; an exchange of 128 bits is one."""
    out, _ = run(
        ".reg .v2 .b32 pair; .reg .b128 %q<4>; .reg .b64 %w<4>; .shared .align 16 .b8 cell[16];\n"
        "add.u32 %r5, %r1, 100;\nmov.v2.b32 pair, {%r1, %r5};\nmov.v2.u32 {%r5, %r1}, {%r1, %r5};\n"
        "mov.b64 %rd4, pair;\nmov.b64 %rd5, {%r5, %r1};\nmov.b128 %q1, {%rd4, %rd5};\nst.b128 [cell], %q1;\n"
        "mov.b128 %q3, %q1;\natom.shared.cas.b128 %q2, [cell], %q1, %q3;\natom.shared.exch.b128 %q2, [cell], %q2;\n"
        "ld.shared.b128 %q2, [cell];\nmov.b128 {%w1, %w2}, %q2;\nshr.u64 %w1, %w1, 32;\nadd.u64 %w1, %w1, %w2;\n"
        "cvt.u32.u64 %r6, %w1;\nst.global.u32 [%rd3], %r6 + 1;",
        block=2, grid=3,
    )  # fmt: skip
    first = 0  # of two lanes that store to one address at once an H200 keeps the first
    assert out.tolist() == [first + 100 + first + 1] * 6


def test_indexed_branches_local_memory_and_initialised_variables():
    data = ".global .align 4 .u32 table[4] = {10, 20, 30, 40};\n.const .align 4 .f32 half = 0f3F000000;\n"
    out, _ = run(
        ".local .align 8 .b8 depot[16];\nmov.u64 %rd4, depot;\ncvta.local.u64 %rd5, %rd4;\nst.u32 [%rd5+8], %r1;\n"
        "ld.local.u32 %r5, [%rd4+8];\nand.b32 %r6, %r1, 3;\nmul.wide.u32 %rd6, %r6, 4;\nmov.u64 %rd7, table;\n"
        "add.u64 %rd7, %rd7, %rd6;\nld.global.u32 %r7, [%rd7];\nts: .branchtargets A, B, A, C;\nbrx.idx %r6, ts;\n"
        "A:\nadd.u32 %r7, %r7, 1;\nbra C;\nB:\nld.const.f32 %f1, [half];\ncvt.rn.f32.u32 %f2, %r7;\n"
        "mul.f32 %f2, %f2, %f1;\n"
        "cvt.rzi.u32.f32 %r7, %f2;\nC:\nadd.u32 %r7, %r7, %r5;\nst.global.u32 [%rd3], %r7;",
        before=data,
    )

    assert out.tolist() == [[11, 10, 31, 40][thread % 4] + thread for thread in range(64)]


def test_asynchronous_copies_fill_with_zeros():
    given = np.arange(64, dtype=np.uint32)
    out, launched = run(
        ".extern .shared .align 16 .b8 tile[];\nld.param.u64 %rd4, [source];\nmov.u32 %r5, tile;\n"
        "mad.lo.u32 %r6, %r1, 16, %r5;\n"
        "mul.wide.u32 %rd5, %r1, 16;\nadd.u64 %rd6, %rd4, %rd5;\nsetp.lt.u32 %p1, %r1, 8;\nselp.u32 %r7, 16, 4, %p1;\n"
        "cp.async.cg.shared.global [%r6], [%rd6], 16, %r7;\ncp.async.commit_group;\ncp.async.wait_group 0;\n"
        "bar.sync 0;\n"
        "ld.shared.v4.b32 {%r8, %r9, %r10, %r11}, [%r6];\nadd.u32 %r12, %r8, %r9;\nadd.u32 %r12, %r12, %r10;\n"
        "add.u32 %r12, %r12, %r11;\nst.global.u32 [%rd3], %r12;",
        parameters=".param .u64 out, .param .u64 source", args=[given], block=16, shared=256,
    )  # fmt: skip

    assert out.tolist() == [16 * lane + 6 if lane < 8 else 4 * lane for lane in range(16)]
    assert launched.counts.read["global"] == 8 * 16 + 8 * 4


def test_an_mbarrier_hands_a_tile_from_warp_to_warp():
    out, _ = run(
        ".shared .align 8 .b64 bar;\n.shared .b32 box[32];\nmov.u32 %r5, bar;\nmov.u32 %r6, box;\n"
        "setp.ne.u32 %p1, %r1, 0;\n"
        "@%p1 bra READY;\nmbarrier.init.shared.b64 [%r5], 32;\nREADY:\nbar.sync 0;\nsetp.lt.u32 %p2, %r1, 32;\n"
        "@%p2 bra WAIT;\n"
        "sub.u32 %r7, %r1, 32;\nmad.lo.u32 %r8, %r7, 4, %r6;\nst.shared.u32 [%r8], %r1;\n"
        "mbarrier.arrive.shared.b64 %rd5, [%r5];\nbra END;\nWAIT:\nmbarrier.try_wait.parity.shared.b64 %p3, [%r5], 0;\n"
        "@!%p3 bra WAIT;\nmad.lo.u32 %r8, %r1, 4, %r6;\nld.shared.u32 %r9, [%r8];\nst.global.u32 [%rd3], %r9;\nEND:",
    )

    assert out[:32].tolist() == list(range(32, 64))


def test_an_mbarrier_counts_bytes_and_phases():
    out, _ = run(
        ".shared .align 8 .b64 bar;\nmov.u32 %r5, bar;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 ret;\n"
        "mbarrier.init.shared::cta.b64 [%r5], 1;\nmbarrier.arrive.expect_tx.shared::cta.b64 %rd5, [%r5], 64;\n"
        "mbarrier.test_wait.shared.b64 %p2, [%r5], %rd5;\nselp.u32 %r6, 1, 0, %p2;\n"
        "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r5], 64;\nmbarrier.test_wait.shared.b64 %p3, [%r5], %rd5;\n"
        "selp.u32 %r7, 2, 0, %p3;\nmbarrier.test_wait.parity.shared.b64 %p4, [%r5], 1;\nselp.u32 %r8, 4, 0, %p4;\n"
        "mbarrier.inval.shared.b64 [%r5];\nor.b32 %r9, %r6, %r7;\nor.b32 %r9, %r9, %r8;\nst.global.u32 [%rd3], %r9;",
        block=32,
    )

    assert out[0] == 2


def test_extended_arithmetic_carries():
    out, _ = run(
        "mov.u32 %r5, 0xFFFFFFFF;\nadd.cc.u32 %r6, %r5, %r1;\naddc.cc.u32 %r7, %r5, 0;\naddc.u32 %r8, 0, 0;\n"
        "sub.cc.u32 %r9, %r1, 1;\nsubc.u32 %r10, 5, 0;\nshl.b32 %r8, %r8, 8;\nor.b32 %r8, %r8, %r10;\n"
        "st.global.u32 [%rd3], %r8;",
        block=4,
    )

    assert out.tolist() == [4, 0x105, 0x105, 0x105]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "st.global.u32 [%rd3+4], %r1;",
            r"thread \(63, 0, 0\) of block \(0, 0, 0\): 4 bytes at 0x\w+ are outside",
        ),
        ("st.global.u32 [%rd3+2], %r1;", "is not a multiple of 4"),
        ("mov.u32 %r5, 64;\nst.shared.u32 [%r5], %r1;", "outside shared memory"),
        ("mov.u64 %rd5, 0;\nld.global.u32 %r5, [%rd5];", "the nearest is argument 0 .*out.* of 256 bytes"),
        ("setp.lt.u32 %p1, %r1, 32;\n@%p1 bar.sync 1, 64;", "deadlock: barrier 1 waits for 64 threads, 32 arrived"),
        ("SPIN:\nbra SPIN;", "its limit"),
        ("trap;", "ended the launch itself"),
        ("frobnicate.u32 %r5, %r1;", "frobnicate.u32 is not modelled: frobnicate is not a known opcode$"),
        ("fmaa.rn.f32 %f1, %f1, %f1, %f1;", "fmaa is not a known opcode; nearest: fma$"),
        ("add.v9.u32 %r5, %r1, %r1;", "add does not take"),
        ("mov.u32 %r5, %nosuch;", "expected a declared name, got '%nosuch'"),
        ("bar.sync 99;", "expected a barrier number from 0 to 15, got 99"),
        (
            NEVER,
            "deadlock: mbarrier.try_wait",
        ),
        ("call.uni vprintf, (%r1);", "cannot call vprintf"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r1];", "ldmatrix.* by thread .*not a multiple of 16"),
    ],
)
def test_what_goes_wrong_is_named_with_its_line(body, message):
    with pytest.raises(wf.WarpfragError, match=rf"line \d+: .*{message}"):
        run(body, limit=20_000)


def test_an_unknown_instruction_that_never_runs_is_no_error():
    out, launched = run("setp.lt.u32 %p1, %r1, 0;\n@%p1 frobnicate.u32 %r5, %r1;\nst.global.u32 [%rd3], %r1;")

    assert out.tolist() == list(range(64))
    assert launched.uncertain


def test_a_divergent_barrier_is_a_finding():
    body = "setp.lt.u32 %p1, %r1, 16;\n@%p1 bra A;\nbar.sync 0;\nbra B;\nA:\nbar.sync 0;\nB:"
    _, launched = run(body, block=32, checks=("barriers",))

    assert [finding.check for finding in launched.findings] == ["barriers", "barriers"]
    assert "part of a warp" in launched.findings[0].text
    assert run("bar.sync 0;", checks=("barriers",))[1].findings == []


def test_a_clock_is_not_exact():
    _, launched = run("mov.u32 %r5, %clock;\nst.global.u32 [%rd3], %r5;")

    assert launched.uncertain
    assert launched.evidence["%clock"].level == "approximate"


def test_state_spaces_of_generic_addresses_are_those_of_an_h200():
    """Constants are not in global memory, parameters are; none of the others is in a second space."""
    kernel = wf.ptx.load(""".version 8.7
.target sm_90
.address_size 64
.const .b32 constant = 1;
.global .b32 variable = 1;
.visible .entry k(.param .u64 out)
{
    .reg .pred %p<6>;
    .reg .b32 %r<6>;
    .reg .b64 %d<8>;
    .shared .b32 tile;
    .local .b32 slot;
    ld.param.u64 %d0, [out];
    cvta.const.u64 %d1, constant;
    cvta.global.u64 %d2, variable;
    mov.u64 %d7, tile;
    cvta.shared.u64 %d3, %d7;
    mov.u64 %d7, slot;
    cvta.local.u64 %d4, %d7;
    mov.b64 %d7, out;
    cvta.param.u64 %d5, %d7;
""" + "".join(
        f"isspacep.{space} %p0, %d{place}; selp.u32 %r0, 1, 0, %p0;\n"
        f"st.global.u32 [%d0+{4 * (5 * row + place - 1)}], %r0;\n"
        for row, space in enumerate(("const", "global", "shared", "local"))
        for place in range(1, 6)
    ) + "ret; }")["k"]  # fmt: skip
    out = np.zeros(20, np.uint32)

    kernel.launch(1, 1, [out])

    assert out.reshape(4, 5).tolist() == [[1, 0, 0, 0, 0], [0, 1, 0, 0, 1], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]]


def test_a_wmma_whose_d_overlaps_c_runs_as_ptx_defines_it():
    """D[0] is C[5], D[1] is C[6], D[3] is C[7]: an H200 writes half of D before it reads the rest of C."""
    names = ", ".join(f"%w{number}" for number in range(16))
    d, c = "{%w9, %w0, %w8, %w15, %w7, %w1, %w10, %w3}", "{%w1, %w6, %w11, %w2, %w11, %w9, %w0, %w15}"
    out, _ = run(
        f".reg .b32 {names};\n"
        + "".join(f"mov.b32 %w{number}, 0x7fffffff;\n" for number in range(16))
        + f"wmma.mma.sync.aligned.row.col.m16n16k16.s32.u8.u8.s32 {d}, {{%w2, %w5}}, {{%w14, %w14}}, {c};\n"
        "mad.wide.u32 %rd3, %r4, 16, %rd1;\nst.global.v4.b32 [%rd3], {%w7, %w1, %w10, %w3};",
        out=np.zeros((32, 4), np.uint32), block=32,
    )  # fmt: skip

    assert (out == 0x800CE40F).all()
