"""Batched execution in the compiled engine, compared with the interpreter: warps, boxes, mbarriers, polling."""

import numpy as np
import pytest

import warpfrag as wf
from ptx import hopper_kernels
from warpfrag.errors import PtxError
from warpfrag.machine.interpreter.mbarriers import MAX_TX, Mbarriers, MbarrierState
from warpfrag.machine.interpreter.store_tags import first_tags
from warpfrag.machine.jit import engine as compiled_engine
from warpfrag.machine.jit.box_copies import BatchedMbarriers, BoxCopies, UnitPlan, joined
from warpfrag.machine.jit.c_functions import advance_mbarriers, copy_units, find_equal
from warpfrag.machine.jit.warp_ops import WARP_LOWERINGS

pytestmark = pytest.mark.one_engine  # each launch names its own

ENGINES = ("reference", "compiled")
HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
BLOCKS, THREADS = 3, 64


def launch_both(text, results, args=(), blocks=BLOCKS, **options):
    """Run both engines, check that results and counts are equal, and return the results and the last run."""
    found = []
    for engine in ENGINES:
        out = np.zeros((blocks * THREADS, results), np.uint32)
        run = wf.ptx.load(text)["k"].launch(blocks, THREADS, [out, *args], engine=engine, **options)
        assert run.engine == engine
        found.append((out, run))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1].counts == found[1][1].counts
    return found[1]


def kernel(body, results, parameters=""):
    """A kernel that stores the words %o0, %o1... of each thread; %x is a number of the thread, %n its place."""
    stores = "\n".join(f"  st.global.b32 [%rd2+{4 * place}], %o{place};" for place in range(results))
    return f"""{HEAD}.visible .entry k(.param .u64 out{parameters})
{{
  .reg .b64 %rd<20>; .reg .b32 %r<40>; .reg .b32 %o<20>; .reg .pred %p<9>; .reg .b32 %n, %x, %tid_;
  .shared .align 8 .b64 bars[8];
  ld.param.u64 %rd1, [out]; mov.u32 %tid_, %tid.x; mov.u32 %n, %ctaid.x; mad.lo.u32 %n, %n, {THREADS}, %tid_;
  mul.wide.u32 %rd3, %n, {4 * results}; add.s64 %rd2, %rd1, %rd3;
  mul.lo.u32 %x, %n, 0x9E3779B9; shr.u32 %r39, %x, 15; xor.b32 %x, %x, %r39;
{body}
{stores}
  ret;
}}"""


WARP_STEPS = {
    "vote": [f"vote.sync.{mode}.pred %p1, %p0, -1; selp.u32 %o0, 1, 0, %p1;" for mode in ("all", "any", "uni")]
    + ["vote.sync.ballot.b32 %o0, %p0, -1;",
       "setp.ge.u32 %p0, %x, 0; vote.sync.uni.pred %p1, %p0, -1; selp.u32 %o0, 3, 2, %p1;"],
    "match": ["and.b32 %r1, %x, 3; match.any.sync.b32 %o0, %r1, -1;",
              "and.b32 %r1, %x, 0; match.all.sync.b32 %o0|%p1, %r1, -1; selp.u32 %o1, 1, 0, %p1;",
              "match.all.sync.b32 %o0|%p1, %x, -1; selp.u32 %o1, 1, 0, %p1;",
              "cvt.u64.u32 %rd4, %x; and.b64 %rd4, %rd4, 7; match.any.sync.b64 %o0, %rd4, -1;"],
    "redux": [f"redux.sync.{name}.{kind} %o0, %x, -1;" for kind in ("u32", "s32") for name in ("add", "min", "max")]
    + [f"redux.sync.{name}.b32 %o0, %x, -1;" for name in ("and", "or", "xor")],
    "elect": ["elect.sync %o0|%p1, -1; selp.u32 %o1, 1, 0, %p1;"],
    "activemask": ["activemask.b32 %o0;"],
}  # fmt: skip


def test_every_step_of_whole_warps_that_is_compiled_has_a_case():
    assert WARP_STEPS.keys() == WARP_LOWERINGS.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("opcode", "body"), [(opcode, body) for opcode in WARP_STEPS for body in WARP_STEPS[opcode]])
def test_steps_of_whole_warps_are_compiled_and_give_the_same(opcode, body):
    start = "  mov.u32 %o0, 77; mov.u32 %o1, 78; setp.lt.s32 %p0, %x, 0x40000000;\n  "
    out, run = launch_both(kernel(start + body, 2), 2)

    assert (out[:, 0] != 77).all()
    assert not any(name.split(".")[0] == opcode for name in run.interpreted)


def test_steps_of_warps_that_are_not_whole_give_the_same():
    body = """  mov.u32 %o0, 0; mov.u32 %o1, 0; and.b32 %r1, %tid_, 1; setp.eq.u32 %p2, %r1, 0; @%p2 bra EVEN;
  vote.sync.ballot.b32 %o0, %p2, 0xAAAAAAAA; redux.sync.add.u32 %o1, %x, 0xAAAAAAAA; bra BOTH;
EVEN: activemask.b32 %o0; match.any.sync.b32 %o1, %r1, 0x55555555;
BOTH: bar.warp.sync -1;"""
    out, _ = launch_both(kernel(body, 2), 2)

    assert len(np.unique(out[:, 1])) > 2


# --- boxes of tensor maps


@pytest.fixture
def taken(monkeypatch):
    """Return True for each tensor copy that was made for all its lanes at once."""
    noted = []
    run = BoxCopies.run

    def noting(self, *args):
        noted.append(run(self, *args))
        return noted[-1]

    monkeypatch.setattr(BoxCopies, "run", noting)
    return noted


def load_boxes(starts, swizzle=0, box=(8, 16)):
    """Return what both engines load: a box for each block, from a tensor of 40 x 64 numbers; -1 for unwritten words."""
    tensor = np.arange(40 * 64, dtype=np.int32).reshape(40, 64)
    text = hopper_kernels.HEAD + hopper_kernels.load("k", 2)
    size = 4 * box[0] * box[1]
    found = []
    for engine in ENGINES:
        out = np.zeros((len(starts), *box), np.int32)
        coordinates = np.array([(column, row) for row, column in starts], np.int32)
        args = [wf.ptx.TensorMap(tensor, box, swizzle=swizzle), coordinates, out]
        numbers = [np.uint32(size), np.uint32(size), np.uint32(0), np.uint64(0)]
        run = wf.ptx.load(text)["k"].launch(
            len(starts), 128, [*args, *numbers], shared=size, engine=engine, arch="sm_90a"
        )
        found.append((out, run.counts))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]
    return tensor, found[0][0]


def test_boxes_inside_of_a_tensor_are_copied_at_once(taken):
    starts = [(0, 0), (3, 4), (32, 48), (16, 20)]
    tensor, boxes = load_boxes(starts)

    assert taken == [True]
    for (row, column), found in zip(starts, boxes, strict=True):
        np.testing.assert_array_equal(found, tensor[row : row + 8, column : column + 16])


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_swizzled_boxes_are_copied_at_once(swizzle, taken):
    width = swizzle // 4
    tensor, boxes = load_boxes([(0, 0), (8, 16), (24, 0)], swizzle, (8, width))

    assert taken == [True]
    np.testing.assert_array_equal(np.sort(boxes[1], axis=None), np.sort(tensor[8:16, 16 : 16 + width], axis=None))


def test_boxes_that_reach_out_of_the_tensor_are_left_to_the_interpreter(taken):
    tensor, boxes = load_boxes([(0, 0), (36, 56), (-4, -8)])

    assert taken == [False]
    np.testing.assert_array_equal(boxes[1][:4, :8], tensor[36:, 56:])
    assert not boxes[1][4:].any()
    np.testing.assert_array_equal(boxes[2][4:, 8:], tensor[:4, :8])


def stored_boxes(rows):
    """What both engines store: box by box of 4 rows, from row `rows[block]` of a tensor on."""
    given = np.arange(len(rows) * 4 * 16, dtype=np.int32) + 1
    text = hopper_kernels.HEAD + hopper_kernels.store("k", 2)
    found = []
    for engine in ENGINES:
        tensor = np.zeros((32, 16), np.int32)
        coordinates = np.array([(0, row) for row in rows], np.int32)
        args = [wf.ptx.TensorMap(tensor, (4, 16)), coordinates, given, np.uint32(256), np.uint32(0)]
        run = wf.ptx.load(text)["k"].launch(len(rows), 128, args, shared=256, engine=engine, arch="sm_90a")
        found.append((tensor, run.counts, run.uncertain))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1:] == found[1][1:]
    return found[1]


def test_boxes_that_are_stored_apart_are_certain(taken):
    tensor, _, uncertain = stored_boxes([0, 8, 4, 28])

    assert taken == [True]
    assert not uncertain
    np.testing.assert_array_equal(tensor[8:12].reshape(-1), np.arange(65, 129))


def test_boxes_that_overlap_in_global_memory_are_uncertain_in_both(taken):
    _, _, uncertain = stored_boxes([0, 8, 10, 28])

    assert taken == [True]  # the rest lane by lane
    assert uncertain


def test_copies_stop_at_one_that_meets_what_another_block_stored():
    writers = first_tags(np.array([0, 0, 1]), np.array([0, 0, 0]))
    tags, source, target = np.zeros(64, np.uint64), np.arange(1, 33, dtype=np.uint64), np.zeros(32, np.uint64)
    plan, which, done = np.array([[0, 2]]), np.zeros(3, np.int64), np.zeros(1, np.int64)
    bases = np.array([0, 8, 2])  # the third begins in the middle of the first
    runs = np.array([[[0, 4]]])
    copies = (source.ctypes.data, bases, plan, which, target.ctypes.data, bases, plan, which)
    copy_units.run(*copies, runs, tags, writers, False, done)

    assert done.tolist() == [2]
    assert np.nonzero(target)[0].tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    assert np.nonzero(tags)[0].tolist() == [*range(8), *range(16, 24)]


def test_runs_of_words_are_those_that_the_units_of_each_plan_fill():
    plans = [UnitPlan.of(np.array(units)) for units in ([1, 0, 3, 2], [5, 0, 4, 1])]
    units, runs = joined(plans)

    assert units.tolist() == [[2, 0, 6, 4], [10, 0, 8, 2]]
    assert runs.tolist() == [[[0, 8], [0, 0]], [[0, 4], [8, 4]]]
    assert joined(plans[:1])[1].tolist() == [[[0, 8]]]


# --- operands that are compared


@pytest.mark.parametrize("answer", [[0, 1, 2, 3], [0, 0, 2, 2], [0, 1, 0, 3], [0, 0, 0, 0]])
def test_an_answer_stays_where_it_holds_and_is_found_anew_where_not(answer):
    tiles = np.array([[7, 8, 9, 10], [7, 8, 9, 11], [7, 8, 9, 10], [7, 8, 9, 12]], np.uint64)
    bases, plans, first = np.arange(0, 16, 4), np.array([[0, 2]]), np.array(answer)
    find_equal.run(tiles.reshape(-1), bases, plans, np.zeros(4, np.int64), first, np.empty(4, np.uint64))

    assert first.tolist() == [0, 1, 0, 3]


def test_an_answer_that_holds_stays_though_more_are_equal():
    tiles, first = np.ones((4, 2), np.uint64), np.array([0, 0, 2, 2])
    bases, plans = np.arange(0, 8, 2), np.array([[0]])
    find_equal.run(tiles.reshape(-1), bases, plans, np.zeros(4, np.int64), first, np.empty(4, np.uint64))

    assert first.tolist() == [0, 0, 2, 2]


@pytest.mark.parametrize("answer", [[0, 1, 2, 3], [0, 0, 0, 0]])
def test_tiles_at_other_places_are_compared_unit_by_unit(answer):
    words = np.array([1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4], np.uint64)
    bases, plans = np.array([0, 4, 8, 8]), np.array([[0, 2], [2, 0]])
    which, first = np.array([0, 1, 0, 1]), np.array(answer)
    find_equal.run(words, bases, plans, which, first, np.empty(4, np.uint64))

    assert first.tolist() == [0, 0, 0, 3]


WGMMA_AT_32_KIB = f"""{HEAD}.extern .shared .align 128 .b8 tiles[];
.visible .entry k(.param .u64 out)
{{
  .reg .f32 %f<4>; .reg .b64 %rd<2>;
  mov.b64 %rd1, 0x0000000800010800;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %rd1, %rd1, 0, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
  ret;
}}"""


def test_a_descriptor_that_led_into_shared_memory_is_refused_where_a_launch_has_less():
    product = wf.ptx.load(WGMMA_AT_32_KIB)["k"]
    product.launch(1, 128, [np.zeros(1, np.uint32)], shared=65536, engine="compiled")

    with pytest.raises(PtxError, match="reaches byte 33807, but the memory has 5120"):
        product.launch(1, 128, [np.zeros(1, np.uint32)], shared=4096, engine="compiled")


# --- mbarriers


@pytest.mark.parametrize("drops", [False, True])
def test_mbarriers_are_changed_as_the_readable_ones(drops):
    rng = np.random.default_rng(0)
    barriers = [MbarrierState(200, 3000 if drops else 200, 0, 0) for _ in range(4)]
    words = np.array([barrier.word for barrier in barriers], np.uint64)
    cells, arrivals, owed = rng.integers(0, 4, 2000), rng.integers(0, 3, 2000), rng.integers(-1, 2, 2000)
    expected, has_ended = [], []
    for at, cell in enumerate(cells.tolist()):
        barrier = barriers[cell]
        arrivals[at] = min(int(arrivals[at]), barrier.pending, barrier.count - 1)
        owed[at] = -barrier.bytes if barrier.pending == arrivals[at] else owed[at]  # so that phases end
        expected.append(barrier.word)
        parity = barrier.parity
        barrier.owe(int(owed[at]))
        barrier.pending -= int(arrivals[at])
        barrier.count -= int(arrivals[at]) * drops
        barrier.complete()
        has_ended.append(barrier.parity != parity)
    before, ended, done = np.empty(2000, np.uint64), np.zeros(2000, np.bool_), np.zeros(1, np.int64)
    written = np.zeros_like(words)
    advance_mbarriers.run(words, written, cells, arrivals, owed, drops, before, ended, done)

    assert done.tolist() == [2000]
    assert before.tolist() == expected
    assert ended.tolist() == has_ended
    assert any(has_ended)
    assert words.tolist() == written.tolist() == [barrier.word for barrier in barriers]


@pytest.mark.parametrize(("arrivals", "owed"), [([1, 1, 1], [0, 0, 0]), ([0, 0, 0], [MAX_TX, 0, 1])])
def test_a_change_that_is_wrong_is_not_made(arrivals, owed):
    words = np.array([MbarrierState(2, 5, 1, 0).word], np.uint64)
    done, cells = np.zeros(1, np.int64), np.zeros(3, np.int64)
    arguments = (np.array(arrivals), np.array(owed), False, np.empty(3, np.uint64), np.zeros(3, np.bool_), done)
    advance_mbarriers.run(words, np.zeros_like(words), cells, *arguments)

    assert done[0] in (0, 2)
    assert done[0] == (2 if arrivals[0] else 0)


INITIALISE = """  mov.u32 %r1, bars; and.b32 %r2, %tid_, 7; shl.b32 %r3, %r2, 3; add.u32 %r4, %r1, %r3;
  setp.lt.u32 %p0, %tid_, 8; @%p0 mbarrier.init.shared::cta.b64 [%r4], 16; bar.sync 0;
"""


@pytest.mark.parametrize(
    "body",
    [
        "mbarrier.arrive.shared::cta.b64 %rd5, [%r4]; mbarrier.arrive.shared::cta.b64 %rd6, [%r4];",
        "mbarrier.arrive.shared::cta.b64 %rd5, [%r4], 2; mov.b64 %rd6, 5;",
        "mbarrier.arrive_drop.shared::cta.b64 %rd5, [%r4]; mbarrier.arrive.shared::cta.b64 %rd6, [%r4];",
        (
            "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r4], %tid_; bar.sync 0; mov.b64 %rd6, 5;"
            "mbarrier.arrive.shared::cta.b64 %rd5, [%r4];"
            "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r4], %tid_;"
        ),
        (
            "mbarrier.arrive.expect_tx.shared::cta.b64 %rd5, [%r4], 32; bar.sync 0;"
            "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r4], 32;"
            "mbarrier.arrive.expect_tx.shared::cta.b64 %rd6, [%r4], 0;"
        ),
        (
            "mbarrier.arrive.shared::cta.b64 %rd5, [%r4]; mbarrier.arrive.shared::cta.b64 %rd6, [%r4]; bar.sync 0;"
            "@%p0 mbarrier.inval.shared::cta.b64 [%r4]; bar.sync 0; @%p0 mbarrier.init.shared::cta.b64 [%r4], 3;"
        ),
    ],
)
def test_mbarriers_of_many_lanes_are_those_of_the_interpreter(body):
    after = " bar.sync 0; ld.shared.v2.u32 {%o4, %o5}, [%r4]; mov.b64 {%o0, %o1}, %rd5; mov.b64 {%o2, %o3}, %rd6;"
    out, _ = launch_both(kernel(INITIALISE + "  " + body + after, 6), 6)

    assert (out[:, 4] != 0).all()


def test_the_arrival_that_is_too_much_is_named_in_both_engines():
    body = INITIALISE + "  add.u32 %r5, %r2, 1; shr.u32 %r5, %r5, 2; add.u32 %r5, %r5, 1;\n"
    wrong = wf.ptx.load(kernel(body + "  mbarrier.arrive.shared::cta.b64 %rd5, [bars], %r5;", 1))["k"]
    messages = set()
    for engine in ENGINES:
        with pytest.raises(PtxError, match="more arrivals at the mbarrier, got") as caught:
            wrong.launch(1, THREADS, [np.zeros(THREADS, np.uint32)], engine=engine)
        messages.add(str(caught.value))
    assert len(messages) == 1


@pytest.mark.parametrize(
    ("wait", "place", "lanes"),  # one mbarrier of a warp, or one of each lane; and how many lanes Python looks at
    [("try_wait", "[bars]", {1}), ("test_wait", "[bars]", {1}), ("try_wait", "[%r4]", {32})],
)
def test_waits_of_lanes_with_one_mbarrier_or_several_are_the_same(wait, place, lanes, monkeypatch):
    parts = []
    phases = Mbarriers.ended_phases

    def noting(self, step, action, group):
        if isinstance(self, BatchedMbarriers):
            parts.append(int(group.mask[0].sum()))
        return phases(self, step, action, group)

    monkeypatch.setattr(Mbarriers, "ended_phases", noting)
    body = f"""{INITIALISE}  mov.u32 %o0, 0; setp.lt.u32 %p3, %tid_, 32; @%p3 bra WAIT;
  mov.u32 %r20, 0;
MORE: add.u32 %r20, %r20, 1; setp.lt.u32 %p4, %r20, 20; @%p4 bra MORE;
  setp.lt.u32 %p5, %tid_, 40; @%p5 mbarrier.arrive.shared::cta.b64 %rd5, [%r4], 16;
  mov.u32 %o0, 5; bra DONE;
WAIT: mbarrier.{wait}.parity.shared::cta.b64 %p6, {place}, 0; @!%p6 bra WAIT;
  mov.u32 %o0, 7;
DONE:"""
    out, _ = launch_both(kernel(body, 1), 1)

    assert sorted(np.unique(out).tolist()) == [5, 7]
    assert set(parts) == lanes


def polls(run):
    return sum(count for name, count in run.counts.opcodes.items() if "test_wait" in name)


def test_a_thread_that_polls_sleeps_until_the_barrier_changes():
    """One warp runs a loop of 4000 iterations, and the other polls until it has arrived."""
    body = """  mov.u32 %r1, bars; setp.eq.u32 %p0, %tid_, 0; @%p0 mbarrier.init.shared::cta.b64 [bars], 32; bar.sync 0;
  mov.u32 %o0, 0; setp.lt.u32 %p3, %tid_, 32; @%p3 bra ASK;
  mov.u32 %r20, 0;
MORE: add.u32 %r20, %r20, 1; setp.lt.u32 %p4, %r20, 4000; @%p4 bra MORE;
  mbarrier.arrive.shared::cta.b64 %rd5, [bars]; bra DONE;
ASK: add.u32 %o0, %o0, 1; mbarrier.test_wait.parity.shared::cta.b64 %p6, [bars], 0; @!%p6 bra ASK;
DONE:"""
    out, run = launch_both(kernel(body, 1), 1)

    assert run.counts.instructions > BLOCKS * 12_000
    assert 1 <= polls(run) <= 4 * BLOCKS
    assert out.max() <= 4


# --- whether to compile


def long_kernel(steps):
    body = "\n".join(f"  mad.lo.u32 %x, %x, {3 + 2 * at}, %n;" for at in range(steps))
    return wf.ptx.load(kernel(f"{body}\n  mov.u32 %o0, %x;", 1))["k"]


def test_a_long_kernel_that_runs_once_is_interpreted():
    long, out = long_kernel(3000), np.zeros(THREADS, np.uint32)
    assert long.launch(1, THREADS, [out], engine="auto").engine == "reference"
    assert long.compiled.interpreted_instructions == len(long.program.instructions)
    assert not long.compiled.is_ready


def test_a_kernel_is_compiled_once_interpreting_has_cost_as_much(monkeypatch):
    monkeypatch.setattr(compiled_engine, "PATIENCE", 2)
    monkeypatch.setattr(compiled_engine, "MIN_INSTRUCTIONS", 10)
    long, out = long_kernel(100), np.zeros(THREADS, np.uint32)
    compiled, launches = long.compiled, 0
    while not compiled.is_ready:
        long.launch(1, THREADS, [out], engine="auto")
        launches += 1
        assert launches < 1000
    patience = 2 * len(long.program.instructions)
    assert patience <= compiled.interpreted_instructions <= patience + 2 * len(long.program.instructions)


def test_only_the_code_that_runs_is_compiled():
    """A chunk that no lane reaches has no machine code; it is compiled when a lane reaches it."""
    ways = [
        "\n".join(f"  mad.lo.u32 %x, %x, {3 + 2 * at}, {way};" for at in range(compiled_engine.CHUNK))
        for way in range(3)
    ]
    body = (
        f"  ld.param.u32 %r1, [way]; setp.eq.u32 %p0, %r1, 0;\n{ways[0]}\n  @%p0 bra END;\n{ways[1]}\nEND:\n{ways[2]}"
    )
    branching = wf.ptx.load(kernel(f"{body}\n  mov.u32 %o0, %x;", 1, ", .param .u32 way"))["k"]
    for way, expected in ((0, [True, False, True]), (1, [True, True, True])):
        reference, out = np.zeros(THREADS, np.uint32), np.zeros(THREADS, np.uint32)
        branching.launch(1, THREADS, [reference, np.uint32(way)], engine="reference")
        branching.launch(1, THREADS, [out, np.uint32(way)], engine="compiled")
        assert np.array_equal(out, reference)
        assert branching.compiled.compiled == expected


RING = """.version 8.6
.target sm_90
.address_size 64
.visible .entry ring(.param .u64 out, .param .u32 rounds, .param .u32 spread, .param .u32 more)
{
.reg .pred %p<8>; .reg .b32 %r<40>; .reg .b64 %rd<8>;
.shared .align 8 .b64 full[4];
.shared .align 8 .b64 empty[4];
.shared .align 4 .b32 slots[4];
ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [rounds]; ld.param.u32 %r2, [spread]; ld.param.u32 %r30, [more];
mov.u32 %r3, %tid.x; mov.u32 %r4, %ctaid.x;
setp.eq.u32 %p0, %r3, 0;
mov.u32 %r5, full; mov.u32 %r6, empty; mov.u32 %r7, slots;
@%p0 mbarrier.init.shared::cta.b64 [full], 1;
@%p0 mbarrier.init.shared::cta.b64 [full+8], 1;
@%p0 mbarrier.init.shared::cta.b64 [full+16], 1;
@%p0 mbarrier.init.shared::cta.b64 [full+24], 1;
@%p0 mbarrier.init.shared::cta.b64 [empty], 96;
@%p0 mbarrier.init.shared::cta.b64 [empty+8], 96;
@%p0 mbarrier.init.shared::cta.b64 [empty+16], 96;
@%p0 mbarrier.init.shared::cta.b64 [empty+24], 96;
bar.sync 0;
mov.u32 %r10, 0; mov.u32 %r11, 0;
setp.ge.u32 %p1, %r3, 32; @%p1 bra CONSUME;
setp.ne.u32 %p1, %r3, 5; @%p1 bra DONE;
PRODUCE:
and.b32 %r12, %r10, 3; shl.b32 %r13, %r12, 3; shr.u32 %r14, %r10, 2; and.b32 %r15, %r14, 1; xor.b32 %r16, %r15, 1;
add.u32 %r17, %r6, %r13; add.u32 %r18, %r5, %r13;
WAITE: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r17], %r16; @!%p2 bra WAITE;
shl.b32 %r19, %r12, 2; add.u32 %r20, %r7, %r19; mad.lo.u32 %r21, %r10, 7, %r4; st.shared.u32 [%r20], %r21;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r18], 16;
mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r18], 16;
add.u32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, %r1; @%p3 bra PRODUCE;
bra DONE;
CONSUME:
and.b32 %r12, %r10, 3; shl.b32 %r13, %r12, 3; shr.u32 %r14, %r10, 2; and.b32 %r15, %r14, 1;
add.u32 %r17, %r6, %r13; add.u32 %r18, %r5, %r13;
WAITF: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r18], %r15; @!%p2 bra WAITF;
shl.b32 %r19, %r12, 2; add.u32 %r20, %r7, %r19; ld.shared.u32 %r21, [%r20]; add.u32 %r11, %r11, %r21;
setp.ne.u32 %p5, %r2, 0; @%p5 bra HALVES;
mbarrier.arrive.shared::cta.b64 _, [%r17], %r30;
bra NEXT;
HALVES: and.b32 %r22, %r3, 1; setp.eq.u32 %p6, %r22, 0;
@%p6 mbarrier.arrive.shared::cta.b64 _, [%r17];
@!%p6 mbarrier.arrive.shared::cta.b64 _, [%r17];
NEXT:
add.u32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, %r1; @%p3 bra CONSUME;
DONE:
mad.lo.u32 %r23, %r4, 128, %r3; mul.wide.u32 %rd2, %r23, 4; add.u64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r11;
ret;
}
"""


@pytest.mark.parametrize("rounds", [1, 3, 40])
@pytest.mark.parametrize("is_split", [0, 1], ids=["whole warps", "halves of warps"])
def test_a_ring_of_mbarriers_is_the_same_in_both(rounds, is_split):
    """One lane produces, three warps consume: waits that succeed or sleep, arrivals of whole and of split warps."""
    found = []
    for engine in ENGINES:
        out = np.zeros((5, 128), np.uint32)
        args = [out, np.uint32(rounds), np.uint32(is_split), np.uint32(1)]
        run = wf.ptx.load(RING)["ring"].launch(5, 128, args, engine=engine)
        found.append((out.tolist(), run.counts, run.uncertain))
    assert found[0] == found[1]
    assert out[:, 32:].tolist() == [[sum(7 * n + block for n in range(rounds))] * 96 for block in range(5)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("mbarrier.arrive.shared::cta.b64 _, [full], 2;", "expected at most 1 more arrivals at the mbarrier, got 2"),
        ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 2000000;", "pending bytes, got 2000000"),
        ("mbarrier.arrive.shared::cta.b64 _, [slots];", "no mbarrier is initialised"),
        ("mbarrier.arrive.shared::cta.b64 _, [full+4];", "is not a multiple of 8"),
        ("mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3+99995], 0;", "outside shared memory"),
        ("W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [full+8], 0; @!%p2 bra W;", "deadlock: mbarrier.try_wait"),
    ],
)
def test_what_is_wrong_with_an_mbarrier_is_said_alike(wrong, message):
    text = RING.replace("PRODUCE:\n", f"{wrong}\nPRODUCE:\n").replace(".align 4 .b32 slots", ".align 8 .b32 slots")
    errors = []
    for engine in ENGINES:
        args = [np.zeros((2, 128), np.uint32), np.uint32(9), np.uint32(0), np.uint32(1)]
        with pytest.raises(PtxError, match=message) as error:
            wf.ptx.load(text)["ring"].launch(2, 128, args, engine=engine)
        errors.append(str(error.value))
    assert errors[0] == errors[1]
